"""Objects in S3 that are put only where nobody has put them since.

A tag (S3's ETag) names one content of an object. The store lets through one of several puts that
expect the same tag, so that of two writers one learns of the other before anything is mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.fs as pafs

from balance_analysis.errors import ArchiveLockedError

_TRIES: Final = 5
_NOBODYS: Final = f'"{"0" * 32}"'
"""A tag that no content has."""

_TIMEOUTS: Final = {"connect_timeout": 5, "read_timeout": 5}
_CONFLICT, _FAILED, _NOT_IMPLEMENTED = 409, 412, 501


class NoConditionsError(OSError):
    """An object store has no conditional puts; the message says why."""


class Objects:
    """The objects of an S3 store, with their tags; the path of one begins with its bucket.

    Parameters
    ----------
    files
        The store as pyarrow reaches it.

    Raises
    ------
    NoConditionsError
        If the store is not S3, or boto3 is not installed.
    """

    def __init__(self, files: pafs.FileSystem) -> None:
        self._client = make_client(files)

    def check(self, path: str) -> None:
        """Raise NoConditionsError if the store ignores conditions; nothing is left at the path."""
        for condition in ({"IfMatch": _NOBODYS}, {"IfNoneMatch": "*"}):
            try:
                if self._put(path, b"", condition) and self._put(path, b"", condition):
                    raise NoConditionsError("the store ignores the conditions of a write")
            finally:
                self._ask("delete_object", path)

    def get(self, path: str) -> tuple[bytes | None, str]:
        """Return an object's content and tag; `None` and an empty tag if there is none."""
        answer = self._ask("get_object", path)
        return (None, "") if answer is None else (answer["Body"], answer["ETag"])

    def put(self, path: str, content: bytes, tag: str) -> str:
        """Put an object where its tag is still this one, and return its new tag.

        Raises
        ------
        ArchiveLockedError
            If it is another's by now.
        OSError
            If the store can't be asked, or refuses.
        """
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        for _ in range(_TRIES):
            if put := self._put(path, content, condition):
                return put
            held, now = self.get(path)
            if held == content:  # an answer that got lost
                return now
            if now != tag:
                raise ArchiveLockedError(
                    f"another run has written s3://{path} meanwhile; this run stops, and what it "
                    "has committed stays"
                )
        raise OSError(f"s3://{path}: the store reports conflicts; try again")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _put(self, path: str, content: bytes, condition: Mapping[str, str]) -> str | None:
        answer = self._ask("put_object", path, Body=content, **condition)
        return None if answer is None else str(answer["ETag"])

    def _ask(self, operation: str, path: str, **options: str | bytes) -> dict[str, Any] | None:
        """Return the store's answer; `None` where a condition fails or there is no object."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        bucket, _, key = path.partition("/")
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(
                Bucket=bucket, Key=key, **options
            )
            if "Body" in answer:
                answer["Body"] = answer["Body"].read()
        except (BotoCoreError, ClientError) as error:
            response = getattr(error, "response", {})
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = response.get("Error", {}).get("Code")
            if status in {_CONFLICT, _FAILED} or code == "NoSuchKey":
                return None
            if status == _NOT_IMPLEMENTED:
                raise NoConditionsError("the store has no conditional writes") from error
            raise OSError(f"s3://{path}: {error}") from error
        return answer


def make_client(files: pafs.FileSystem) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
    """Return a client that asks where pyarrow does.

    Raises
    ------
    NoConditionsError
        If the store is not S3, or boto3 is not installed.
    """
    if files.type_name != "s3":
        raise NoConditionsError("this kind of store has no conditional writes")
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
    except ModuleNotFoundError as error:
        said = "conditional writes take boto3: pip install 'balance-analysis[s3]'"
        raise NoConditionsError(said) from error
    # What pyarrow makes of an address and the environment stands in its pickle alone. Credentials
    # don't: both look for them in the same places.
    options = files.__reduce__()[1][0]
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    config = Config(
        **_TIMEOUTS,
        retries={"mode": "standard", "total_max_attempts": 2},
        s3={"addressing_style": "path" if endpoint else "auto"},
        ignore_configured_endpoint_urls=True,
        # Others than Amazon's refuse the checksums that it has begun to ask for.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session().client(
        "s3",
        region_name=files.region,
        endpoint_url=endpoint or None,
        verify=options.get("tls_ca_file_path") or None,
        config=config,
    )
