"""What a node can vouch for: its network, what it has not forgotten, its last block.

The first two are asked after the rows came and before they are committed: by the last row that the
archive holds, or by one near to what is repaired. A node that still has it is of the same network
and remembers everything since.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import pandas as pd
import pyarrow as pa

from balance_analysis.archive.runs import Run
from balance_analysis.errors import NetworkMismatchError, RequestError, logger
from balance_analysis.filters import Filters
from balance_analysis.load.evidence import NodeState, retention_start
from balance_analysis.load.nodes import FRESH, NodePool, answers
from balance_analysis.load.request import LoadRequest
from balance_analysis.load.stream import Load
from balance_analysis.node.client import BALANCE_CHANGES, NETWORK_LIMITS, ONCE, Client, Retry
from balance_analysis.node.exchange import Answer
from balance_analysis.node.limits import decode_limits, network_limits
from balance_analysis.node.stats import RequestStats
from balance_analysis.node.walk import Ask, PageRequest, Step, Window, fetch
from balance_analysis.rows import Account, accounts_in, last_block
from balance_analysis.spans import clipped
from balance_analysis.text import moment_text

T = TypeVar("T")

_NO_LIMITS: Final = (404, 501)


class Continuity:
    """Whether a node's rows go on where those of an archive end.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    request
        Which accounts.
    stats
        Where its requests are counted.
    rows
        Those of the archive's last file, if it has one.

    Attributes
    ----------
    is_sure
        Whether the node was seen to be of the archive's network; an archive without rows is of any.
    """

    def __init__(
        self, client: Client, request: LoadRequest, stats: RequestStats, *rows: pa.Table
    ) -> None:
        self._nodes = NodePool(client, request.on_bad_rows, stats)
        self._open = contextlib.ExitStack()
        # Kept open for the run: a new connection takes longer than the question.
        self._fresh = [self._open.enter_context(client.fresh()) for _ in range(FRESH)]
        self._request = request
        self._last: tuple[int, set[Account]] | None = None
        for each in rows:
            self.advance(each)
        self.is_sure: bool = self._last is None

    def close(self) -> None:
        """Close the connections over which it asks."""
        self._open.close()

    def advance(self, rows: pa.Table) -> None:
        """Go by the last block of rows that are committed from now on, if it is later."""
        last, block = last_block(rows)
        if last > (self._last[0] if self._last else 0):
            self._last = last, {*accounts_in(block)}

    def has(self, rows: pa.Table) -> bool:
        """Go by other rows from now on, and return whether a node has the last block of them."""
        self._last, self.is_sure = None, False
        self.advance(rows)
        try:
            self.check()
        except NetworkMismatchError:
            return False
        return self.is_sure

    def retention_start(self, source: str, start: int, end: int) -> int:
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
            return self._asked(source, start, end)
        except RequestError as error:
            if not self.is_sure or len(self._nodes.client.base_urls) == 1:
                raise
            logger.warning("%s; so it is not known what this node may have forgotten", error)
            return end

    def check(self) -> None:
        """Check that the first node that answers is of the archive's network."""
        if self._last is not None:
            last = self._last[0]
            next(_answers(self._nodes.client, lambda url: self._asked(url, last, last)))

    def _asked(self, source: str, start: int, end: int) -> int:
        """Ask a node over all connections; the latest answer is believed."""
        find = partial(self._retention_start_or_why_not, start=start, end=end)
        found = self._nodes.over_connections(source, find, self._fresh)
        strangers = [each for each in found if isinstance(each, NetworkMismatchError)]
        if strangers and not self.is_sure:
            raise strangers[0]
        return max([start, *(each for each in found if isinstance(each, int))])

    def _retention_start_or_why_not(
        self, ask: Ask, seen: NodeState, start: int, end: int
    ) -> int | NetworkMismatchError:
        """Return from when on a connection's node has forgotten nothing, or why it can't tell."""
        try:
            if self._has_last(ask, seen, end) and self._last and self._last[0] <= start:
                return start
        except NetworkMismatchError as error:
            # Behind the same address another one, which doesn't lag, may have the row.
            if self._last is None or not seen.latest_block.lags(self._last[0] + 1):
                raise
            return error
        return retention_start(ask, seen, start, end)

    def _has_last(self, ask: Ask, seen: NodeState, end: int) -> bool:
        """Whether a node holds the archive's last row, and so has forgotten nothing since."""
        if self._last is None:
            return False
        last, accounts = self._last
        window = Window(last, last + 1, page_size=1)
        found = [fetch(ask, part, window) for part in self._request.filters.parts()]
        # Of a block of bad rows alone it can't be told whose they are.
        batches = [listing.rows for listing in found if listing.rows.num_rows]
        is_there = any(len(listing.times) for listing in found)
        if is_there and (not batches or any(accounts & {*accounts_in(each)} for each in batches)):
            self.is_sure = True
            return True
        says_so = seen.within(last, last + 1)
        if not says_so and retention_start(ask, seen, last, max(end, last + 1)) <= last:
            raise NetworkMismatchError(
                f"the archive's last row is of {moment_text(last)}; the node has older rows, but "
                "not this one: it is of another network, or has lost rows"
            )
        return False


def _answers(client: Client, ask: Callable[[str], T]) -> Iterator[T]:
    """Yield what nodes answer; of several, those that fail are told, and of one the error is."""
    log = logger.warning if len(client.base_urls) > 1 else logger.debug
    return answers(client.order, ask, lambda _, error: log("%s", error))


def ask_latest_block(client: Client, run: Run) -> tuple[str, int] | None:
    """Note the limits and the last block of the node that knows most; return it and that moment.

    `None` where no node has limits, or it doesn't say what its last block is: it may know all.
    """
    fetched_at = pd.Timestamp.now("UTC")
    told: list[Answer[dict[str, Any]]] = []

    def ask(base_url: str) -> None:
        options: dict[str, Any] = {"base_url": base_url, "stats": run.stats}
        options["retry"] = ONCE if told else Retry()
        try:
            told.append(client.get(NETWORK_LIMITS, [], decode_limits, **options))
        except RequestError as error:
            # A node that has no limits yet serves balance changes all the same. From any other
            # refusal nothing follows, not even up to where it can tell.
            if error.status not in _NO_LIMITS:
                raise

    list(_answers(client, ask))
    run.source = client.base_urls[0]
    if not told:
        return None
    answer = max(told, key=lambda each: (each.block_time is None, each.block_time or 0))
    run.source, run.block_height = answer.source, answer.block_height
    run.limits = network_limits(answer, fetched_at)
    return None if answer.block_time is None else (answer.source, answer.block_time)


def is_finished(
    client: Client,
    source: str,
    head: int,
    settle: dt.timedelta,
    run: Run,
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether a node still has a block as its last one after so long, and says that it is whole.

    An archive that is served ends before the moment that it tells, and says so.
    """
    parameters = PageRequest(Filters(), head, head + 1, page_size=1).parameters()
    try:
        for pause in (0.0, settle.total_seconds()):
            sleep(pause)
            answer = client.get(BALANCE_CHANGES, parameters, len, base_url=source, stats=run.stats)
            if answer.block_time != head or [*clipped(answer.incomplete, head, head + 1)]:
                return False
    except RequestError as error:
        logger.info("%s; its last block is left out", error)
        return False
    return True


def load_steps(client: Client, request: LoadRequest, run: Run) -> Iterator[Step]:
    """Yield the steps of a load in time order, up to the first of a node that lags.

    Behind one address there may be nodes of which one lags: that step ends where it does. The last
    block that a node holds may be unfinished, unless it is the one that is `Run.finished`.
    """
    load = Load(request)
    with NodePool(client, request.on_bad_rows, run.stats) as pool:
        for step in load.in_time_order(load.steps(pool)):
            known = step.known_end
            if known < step.end and (step.address, step.head) == run.finished:
                known += 1
            yield replace(step.between(step.start, known), head=None)
            if known < step.end:
                return
