"""Whether a node is of an archive's network, and has forgotten nothing of what it is asked.

Both are asked after the rows came and before they are committed: by the last row that the archive
holds. A node that still has it is of the same network and remembers everything since.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive.commit import within
from balance_analysis.errors import NetworkMismatchError, RequestError
from balance_analysis.load.session import FRESH, Asking, remembered
from balance_analysis.node.failover import answers
from balance_analysis.node.window import Window, fetch
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds

if TYPE_CHECKING:
    from balance_analysis.archive.commit import Writer
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.load.session import Seen
    from balance_analysis.node.client import Client
    from balance_analysis.node.window import Ask

logger = logging.getLogger("balance_analysis")

Accounts = frozenset[tuple[str, ...]]


class Witness:
    """The last row of an archive, as what a node is asked for again.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    request
        Which accounts.
    writer
        The archive.

    Attributes
    ----------
    asking
        What counts the requests.
    is_sure
        Whether the node was seen to be of the archive's network; an archive without rows is of any.
    """

    def __init__(self, client: Client, request: LoadRequest, writer: Writer) -> None:
        self.asking = Asking(client, request.on_bad_rows)
        self._open = contextlib.ExitStack()
        # Kept open for the run: a new connection takes longer than the question.
        self._fresh = [self._open.enter_context(client.fresh()) for _ in range(FRESH)]
        self._request = request
        self._last: tuple[int, Accounts] | None = None
        for period in list(writer.state.files)[-1:]:
            self.see(writer.rows_of(period))
        self.is_sure = self._last is None

    def close(self) -> None:
        """Close the connections over which it asks."""
        self._open.close()

    def see(self, rows: pa.Table) -> None:
        """Take over the last block of rows that are committed, if it is later."""
        if not rows.num_rows:
            return
        last = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
        if self._last is None or self._last[0] < last:
            self._last = last, _accounts(within(rows, last, last + 1).to_batches())

    def remembered(self, source: str, start: int, end: int) -> int:
        """Return from when on a node has forgotten nothing of [start, end), microseconds.

        One of several that is gone proves nothing of what it sent.

        Raises
        ------
        NetworkMismatchError
            If the node has older rows than the archive's last one, but not that one.
        RequestError
            If it doesn't answer, and is the only one, or none was seen to be of the same network.
        """
        try:
            return self._remembered_by(source, start, end)
        except RequestError as error:
            if not self.is_sure or len(self.asking.client.base_urls) == 1:
                raise
            logger.warning("%s; so what it may have forgotten is not known", error)
            return end

    def check(self) -> None:
        """Check that the first node that answers is of the archive's network."""
        if self._last is not None:
            last = self._last[0]
            next(
                answers(
                    self.asking.client.base_urls,
                    lambda url: self._remembered_by(url, last, last),
                    lambda _, error: logger.warning("%s", error),
                )
            )

    def _remembered_by(self, source: str, start: int, end: int) -> int:
        stranger: NetworkMismatchError | None = None
        for client in self._fresh:
            ask, seen = self.asking.over(client, source)
            try:
                if self._has_last(ask, seen, end) and self._last and self._last[0] <= start:
                    continue
            except NetworkMismatchError as error:
                # Behind the same address another one, which doesn't lag, may have the row.
                if self._last is None or not seen.head.lags(self._last[0] + 1):
                    raise
                stranger = error
            start = remembered(ask, seen, start, end)
        if stranger is not None and not self.is_sure:
            raise stranger
        return start

    def _has_last(self, ask: Ask, seen: Seen, end: int) -> bool:
        """Whether a node holds the archive's last row, and so has forgotten nothing since."""
        if self._last is None:
            return False
        last, accounts = self._last
        window = Window(last, last + 1, page_size=1)
        found = [fetch(ask, part, window) for part in self._request.filters.parts()]
        # Of a block of bad rows alone it can't be told whose they are.
        batches = [listing.rows for listing in found if listing.rows.num_rows]
        is_there = any(len(listing.times) for listing in found)
        if is_there and (not batches or accounts & _accounts(batches)):
            self.is_sure = True
            return True
        says_so = seen.within(last, last + 1)
        if not says_so and remembered(ask, seen, last, max(end, last + 1)) <= last:
            raise NetworkMismatchError(
                f"the archive's last row is of {from_microseconds(last)}, and the node has "
                "older ones but not this one: it is of another network, or has lost rows"
            )
        return False


def _accounts(batches: list[pa.RecordBatch]) -> Accounts:
    return frozenset(
        key
        for batch in batches
        for key in zip(*(batch[name].to_pylist() for name in ACCOUNT_KEY), strict=True)
    )
