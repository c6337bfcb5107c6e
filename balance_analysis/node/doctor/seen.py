"""What several findings rest on, asked for once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from balance_analysis.errors import BalanceAnalysisError, IncompleteError
from balance_analysis.node.doctor.stretch import find_newest, find_oldest, find_stretch

if TYPE_CHECKING:
    from collections.abc import Callable

    from balance_analysis.node.doctor.asking import Asker
    from balance_analysis.node.doctor.page import Page

T = TypeVar("T")


class Once(Generic[T]):
    """A question that is asked when its answer is first wanted, and not again."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: list[T] = []
        self._error: BalanceAnalysisError | None = None

    def __call__(self) -> T:
        """Return the answer, or raise the question's error again."""
        if self._error is not None:
            raise self._error
        if not self._answer:
            try:
                self._answer = [self._ask()]
            except BalanceAnalysisError as error:
                self._error = error
                raise
        return self._answer[0]


class Seen:
    """What several findings rest on."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.limits = Once(asker.limits)
        self.newest = Once(lambda: find_newest(asker))
        self.oldest = Once(lambda: find_oldest(asker, self.row_page()))
        self.stretch = Once(lambda: find_stretch(asker, [self.row_page(), self.oldest()]))

    def row_page(self) -> Page:
        """Return the newest rows, of which there is at least one."""
        if not self.newest().nodes:
            raise IncompleteError("the node sent no row to tell by")
        return self.newest()
