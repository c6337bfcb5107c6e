"""Ask one of several nodes of a network after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from balance_analysis.errors import IncompleteError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


def answers(
    base_urls: Iterable[str],
    ask: Callable[[str], T],
    failed: Callable[[str, Exception], object],
) -> Iterator[T]:
    """Yield what nodes answer, one after the other; a caller that is content asks no more.

    Parameters
    ----------
    base_urls
        The nodes, best first.
    ask
        Asks one.
    failed
        Called with a node that failed, and how.

    Raises
    ------
    RequestError, IncompleteError
        What the last node failed with, if all did.
    """
    failure: Exception | None = None
    any_answered = False
    for base_url in base_urls:
        try:
            answer = ask(base_url)
        except (RequestError, IncompleteError) as error:
            failure = error
            failed(base_url, error)
        else:
            any_answered = True
            yield answer
    if not any_answered:
        raise failure or AssertionError("a client has at least one node")
