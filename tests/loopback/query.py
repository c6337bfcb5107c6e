"""What a request asks for, and which requests a node refuses."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BALANCE_CHANGES = "/api/v2/balance/changes"
NETWORK_LIMITS = "/api/v2/network/limits"

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
DEFAULT_PAGE_SIZE = 1000
EARLIEST = 1_577_836_800 * 10**9  # 2020-01-01
LONGEST = 365 * 86_400 * 10**9

INTERFACE_ACCOUNT_TYPES = (
    "UNSPECIFIED INSURANCE SETTLEMENT MARGIN GENERAL FEES_INFRASTRUCTURE FEES_LIQUIDITY FEES_MAKER"
    " BOND EXTERNAL GLOBAL_INSURANCE GLOBAL_REWARD PENDING_TRANSFERS REWARD_MAKER_PAID_FEES"
    " REWARD_MAKER_RECEIVED_FEES REWARD_LP_RECEIVED_FEES REWARD_MARKET_PROPOSERS"
)
LATER_ACCOUNT_TYPES = (
    "HOLDING LP_LIQUIDITY_FEES LIQUIDITY_FEES_BONUS_DISTRIBUTION NETWORK_TREASURY VESTING_REWARDS"
    " VESTED_REWARDS REWARD_AVERAGE_POSITION REWARD_RELATIVE_RETURN REWARD_RETURN_VOLATILITY"
    " REWARD_VALIDATOR_RANKING PENDING_FEE_REFERRAL_REWARD ORDER_MARGIN REWARD_REALISED_RETURN"
    " BUY_BACK_FEES REWARD_AVERAGE_NOTIONAL REWARD_ELIGIBLE_ENTITIES LOCKED_FOR_STAKING"
)
_V71_TYPES = tuple(f"ACCOUNT_TYPE_{name}" for name in INTERFACE_ACCOUNT_TYPES.split())
ACCOUNT_TYPES = _V71_TYPES + tuple(f"ACCOUNT_TYPE_{name}" for name in LATER_ACCOUNT_TYPES.split())

Params = Mapping[str, Sequence[str]]


class Refused(Exception):  # noqa: N818 - a node's answer, not a mistake of ours
    """The node answers with an error.

    Attributes
    ----------
    inner
        The text in `details`; `None` where the gateway in front refuses, without details.
    """

    def __init__(self, status: int, code: int, message: str, inner: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.inner = status, code, message, inner


@dataclass(frozen=True)
class Release:
    """In what the releases differ.

    Attributes
    ----------
    max_page_size
        `None` where there is none; then a request that sets only `newestFirst` is unlimited too.
    range_status
        The status with which a bad or missing range is refused; `None` where it is not checked.
    """

    account_types: tuple[str, ...]
    max_page_size: int | None
    range_status: int | None


_V73 = Release(ACCOUNT_TYPES, 5000, None)
_V76 = Release(ACCOUNT_TYPES, 5000, 400)
RELEASES = {
    "v0.71": Release(_V71_TYPES, None, None),
    "v0.72": Release(_V71_TYPES, None, None),
    "v0.73": _V73,
    "v0.74": _V73,
    "v0.75": Release(ACCOUNT_TYPES, 5000, 500),
    **{f"v0.{minor}": _V76 for minor in (76, 77, 78, 79)},
}


@dataclass(frozen=True)
class Filter:
    """Which accounts are asked for; an empty list doesn't restrict."""

    asset_id: str = ""
    party_ids: frozenset[str] = frozenset()
    market_ids: frozenset[str] = frozenset()
    account_types: frozenset[str] = frozenset()

    def matches(self, account: tuple[str, str | int, str, str]) -> bool:
        """Say whether an account (asset, type, party, market) is asked for."""
        asset_id, account_type, party_id, market_id = account
        return (
            self.asset_id in ("", asset_id)
            and (not self.party_ids or party_id in self.party_ids)
            and (not self.market_ids or market_id in self.market_ids)
            and (not self.account_types or str(account_type) in self.account_types)
        )


@dataclass(frozen=True)
class Query:
    """One request for a page of balance changes.

    Attributes
    ----------
    limit
        Rows a page; `None` is no limit.
    cursor
        The JSON text in the cursor to start from.
    start, end
        Bounds in nanoseconds, cut to microseconds.
    """

    filter: Filter
    limit: int | None
    backward: bool
    cursor: str | None
    newest_first: bool
    start: int | None
    end: int | None


class Rules:
    """How a node reads requests, by its release and its other options."""

    def __init__(self, node: Any) -> None:
        self.release = RELEASES[node.release]
        self.account_types = {*self.release.account_types, *node.account_types}
        self.max_page_size = node.max_page_size or self.release.max_page_size
        self.nanoseconds_per_unit = NANOSECONDS[node.bounds_unit]
        self.cap_silently, self.ignores, self.clock = node.cap_silently, node.ignores, node.clock

    def read(self, params: Params) -> Query:
        """Return what the parameters ask for.

        Raises
        ------
        Refused
            If the node refuses them.
        """
        for name in params:
            if "[" in name or "]" in name:
                raise Refused(400, 3, f"invalid parameter: {name}")
        query = self._parse(params)
        if query.cursor is None and self.release.range_status is not None:
            self._check_range(query.start, query.end, self.release.range_status)
        return self._parse({k: v for k, v in params.items() if not self._is_ignored(k)})

    def _is_ignored(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self.ignores)

    def _parse(self, params: Params) -> Query:
        limit, backward, cursor = self._parse_page(params)
        return Query(
            filter=self._parse_filter(params),
            limit=limit,
            backward=backward,
            cursor=cursor,
            newest_first=_boolean(params, "pagination.newestFirst", default=True),
            start=self._parse_bound(params, "dateRange.startTimestamp"),
            end=self._parse_bound(params, "dateRange.endTimestamp"),
        )

    def _parse_filter(self, params: Params) -> Filter:
        for name in params.get("filter.accountTypes", ()):
            if name not in self.account_types:
                raise Refused(
                    400, 3, f'parsing list "filter.accountTypes": {name!r} is not a valid value'
                )
        for kind in ("party", "market"):
            for one in params.get(f"filter.{kind}Ids", ()):
                if not _is_id(one, kind):
                    raise _invalid(f"one or more {kind} id is invalid")
        return Filter(
            asset_id=_single(params, "filter.assetId") or "",
            party_ids=frozenset(params.get("filter.partyIds", ())),
            market_ids=frozenset(params.get("filter.marketIds", ())),
            account_types=frozenset(params.get("filter.accountTypes", ())),
        )

    def _parse_page(self, params: Params) -> tuple[int | None, bool, str | None]:
        first = _integer(params, "pagination.first", bits=32)
        last = _integer(params, "pagination.last", bits=32)
        after = _single(params, "pagination.after")
        before = _single(params, "pagination.before")
        if after is not None and before is not None:
            raise _invalid("cannot set both a before and after cursor")
        if first is not None:
            return self._limit(first), False, _decode(after)
        if last is not None:
            return self._limit(last), True, _decode(before)
        if before is not None:
            return self._default_limit(), True, _decode(before)
        only_order = after is None and "pagination.newestFirst" in params
        if only_order and self.release.max_page_size is None:
            return None, False, None
        return self._default_limit(), False, _decode(after)

    def _default_limit(self) -> int:
        return min(DEFAULT_PAGE_SIZE, self.max_page_size or DEFAULT_PAGE_SIZE)

    def _limit(self, asked: int) -> int:
        if asked <= 0:
            raise _invalid(
                "negative pagination value"
                if asked < 0
                else "pagination limit must be greater than 0"
            )
        if self.max_page_size is None or asked <= self.max_page_size:
            return asked
        if self.cap_silently:
            return self.max_page_size
        raise _invalid(f"pagination limit must be less than or equal to {self.max_page_size}")

    def _parse_bound(self, params: Params, name: str) -> int | None:
        value = _integer(params, name, bits=64)
        return None if value is None else value * self.nanoseconds_per_unit // 1000 * 1000

    def _check_range(self, start: int | None, end: int | None, status: int) -> None:
        end = self.clock() if end is None else end
        reason = None
        if start is None:
            reason = "date range is required"
        elif min(start, end) < EARLIEST:
            reason = "date range bounds must not be before 2020-01-01"
        elif end - start > LONGEST:
            reason = "date range must not be longer than 365 days"
        if reason is not None:
            code = 3 if status == 400 else 13
            raise Refused(status, code, "invalid date range", reason)


def _invalid(inner: str) -> Refused:
    return Refused(400, 3, "invalid argument", inner)


def _is_id(text: str, kind: str) -> bool:
    is_hex = re.fullmatch(r"[0-9a-fA-F]{64}", text) is not None
    return is_hex or (kind == "party" and text == "network")


def _decode(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    if not cursor:
        raise _invalid("cursor is empty")
    try:
        return base64.b64decode(cursor, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        raise _invalid(f"failed to decode cursor: {error}") from error


def _single(params: Params, name: str) -> str | None:
    values = params.get(name, ())
    if len(values) > 1:
        raise Refused(400, 3, f"too many values for field {name!r}: {', '.join(values)}")
    return values[0] if values else None


def _integer(params: Params, name: str, *, bits: int) -> int | None:
    text = _single(params, name)
    if text is None:
        return None
    largest = 2 ** (bits - 1) - 1
    if not re.fullmatch(r"[+-]?[0-9]{1,25}", text) or not -largest - 1 <= int(text) <= largest:
        raise _mismatch(name, f'strconv.ParseInt: parsing "{text}": invalid syntax or range')
    return int(text)


def _boolean(params: Params, name: str, *, default: bool) -> bool:
    text = _single(params, name)
    if text is None:
        return default
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise _mismatch(name, f'strconv.ParseBool: parsing "{text}": invalid syntax')


def _mismatch(name: str, reason: str) -> Refused:
    return Refused(400, 3, f"type mismatch, parameter: {name}, error: {reason}")
