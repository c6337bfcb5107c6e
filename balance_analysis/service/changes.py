"""The list of balance changes: one page of an archive, and what is known of it.

`parameters` reads what is asked, `catalog` what the archive holds, `page_query` the rows; `render`
writes them, and `coverage` tells what may be missing.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from balance_analysis.service.catalog import Watch, away
from balance_analysis.service.coverage import incomplete, missing
from balance_analysis.service.cursors import foreign
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.service.page_query import Finder, UnknownPlaceError, allowed_by
from balance_analysis.service.parameters import AFTER, BEFORE, read_parameters
from balance_analysis.service.render import render
from balance_analysis.service.row_groups import Reader, StaleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from balance_analysis.archive.archive import Archive
    from balance_analysis.service.catalog import Held

TIMEOUT: Final = 30.0

_TRIES: Final = 5
"""How often a page is looked for while files are replaced under it."""

_PAUSE: Final = 0.05
"""Seconds before the second try, twice as many before each next one."""

logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answers.

    Attributes
    ----------
    body
        A whole JSON text.
    headers
        `X-Block-Height` and `X-Block-Timestamp` where they are known; `Warning` where rows may be
        missing, and `X-Incomplete` with the stretches: nanoseconds, half-open, `0-1000, 5000-6000`.
    """

    body: bytes
    headers: dict[str, str]


class Changes:
    """The balance changes of an archive, for any number of threads.

    Parameters
    ----------
    archive
        The archive; an export may go on meanwhile.
    strict_coverage
        Whether to refuse a request that reaches outside of what the archive vouches for, rather
        than to answer it with a warning.
    timeout
        Seconds that a page may take.
    """

    def __init__(
        self, archive: Archive, *, strict_coverage: bool = False, timeout: float = TIMEOUT
    ) -> None:
        self._watch, self._reader = Watch(archive.store), Reader(archive.store)
        self._strict, self._timeout = strict_coverage, timeout

    def answer(self, items: Sequence[tuple[str, str]]) -> Answer:
        """Return one page.

        Parameters
        ----------
        items
            Names and values of the query, decoded, in its order.

        Raises
        ------
        RefusedError
            If the request is wrong, reaches outside of the coverage though that is refused, takes
            too long, or the archive can't be read.
        """
        check = partial(_check_time, time.monotonic() + self._timeout)
        pause = _PAUSE
        failure = None
        for _ in range(_TRIES):
            try:
                return self._answer(items, self._watch.now(), check)
            except StaleError as error:
                failure = error
                time.sleep(pause)
                pause *= 2
                check()
        logger.warning("a file is not what the coverage says: %s; verify the archive", failure)
        raise away()

    def close(self) -> None:
        """Let go of threads and memory."""
        self._reader.close()

    def _answer(
        self, items: Sequence[tuple[str, str]], held: Held, check: Callable[[], None]
    ) -> Answer:
        finder = Finder(held, self._reader, check)
        filters, paging = read_parameters(items, is_known_type=finder.has_account_type)
        allowed = allowed_by(filters)
        lacking = missing(held, filters, allowed)
        if lacking and self._strict:
            raise RefusedError(
                f"the archive does not vouch for all of this: {lacking}", code=Code.OUT_OF_RANGE
            )
        try:
            page = finder.page(filters, paging)
        except UnknownPlaceError as error:
            name = BEFORE if paging.backward else AFTER
            raise foreign(name, next(value for key, value in items if key == name)) from error
        headers = held.headers()
        if lacking:
            stretches = incomplete(held, filters, allowed)
            headers["Warning"] = f'199 - "{lacking}"'
            headers["X-Incomplete"] = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in stretches)
        return Answer(render(page), headers)


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RefusedError(
            "the query took too long: ask for a shorter range or for fewer rows",
            code=Code.DEADLINE_EXCEEDED,
        )
