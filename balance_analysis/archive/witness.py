"""Whether a node is of an archive's network, and has forgotten nothing of what it is asked.

Both are asked after the rows came and before they are committed: by the last row that the archive
holds. A node that still has it is of the same network and remembers everything since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive.commit import within
from balance_analysis.errors import NetworkMismatchError
from balance_analysis.load.asking import Asking
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds

if TYPE_CHECKING:
    from balance_analysis.archive.commit import Writer
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client

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
        self._request = request
        self._last: tuple[int, Accounts] | None = None
        for period in list(writer.state.files)[-1:]:
            self.see(writer.rows_of(period))
        self.is_sure = self._last is None

    def see(self, rows: pa.Table) -> None:
        """Take over the last block of rows that are committed, if it is later."""
        if not rows.num_rows:
            return
        last = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
        if self._last is None or self._last[0] < last:
            self._last = last, _accounts(within(rows, last, last + 1).to_batches())

    def remembered(self, start: int, end: int) -> int:
        """Return from when on the node has forgotten nothing of [start, end), microseconds.

        Raises
        ------
        NetworkMismatchError
            If the node has older rows than the archive's last one, but not that one.
        """
        if self._last is not None:
            last, accounts = self._last
            is_there, found = self.asking.block_at(last, self._request.filters.parts())
            if is_there and (not found or accounts & _accounts(found)):
                self.is_sure = True
                if last <= start:
                    return start
            elif self.asking.remembered(last, max(end, last + 1)) <= last:
                raise NetworkMismatchError(
                    f"the archive's last row is of {from_microseconds(last)}, and the node has "
                    "older ones but not this one: it is of another network, or has lost rows"
                )
        return self.asking.remembered(start, end)


def _accounts(batches: list[pa.RecordBatch]) -> Accounts:
    return frozenset(
        key
        for batch in batches
        for key in zip(*(batch[name].to_pylist() for name in ACCOUNT_KEY), strict=True)
    )
