"""Check a load's arguments before the first request, and report its progress."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Literal

from balance_analysis.table.moments import Moment, moment_text, to_microseconds

OnBadRows = Literal["raise", "quarantine"]

OnProgress = Callable[[float, int], None]
"""Function called with the loaded share of the interval, 0 to 1, and the rows so far."""

_FORM = "{percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]"


def make_bounds(start: Moment | None = None, end: Moment | None = None) -> tuple[int | None, int]:
    """Return a load's bounds (in microseconds); `end=None` becomes now.

    Raises
    ------
    ValueError, TypeError
        If a bound is malformed, or the start isn't before the end.
    """
    now = dt.datetime.now(dt.UTC)
    last = to_microseconds(now if end is None else end, now=now)
    first = None if start is None else to_microseconds(start, now=now)
    if first is not None and first >= last:
        raise ValueError(
            f"start must be before end, but {moment_text(first)} is not before {moment_text(last)}"
        )
    return first, last


def check_positive(name: str, number: int) -> None:
    """Raise unless a number is an integer of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a whole number, not {number!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")


@contextlib.contextmanager
def reporting(progress: bool | OnProgress | None) -> Iterator[OnProgress]:
    """Yield the function to call after each step: the caller's, or one that draws a bar or nothing.

    `None` draws a bar if stderr is a terminal or this is a notebook.
    """
    is_notebook = "ipykernel" in sys.modules
    if callable(progress):
        yield progress
    elif not progress and (progress is False or not (sys.stderr.isatty() or is_notebook)):
        yield lambda _share, _rows: None
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, a line of text suffices
            from tqdm.auto import tqdm  # noqa: PLC0415 - only where a bar is shown

        # Notebooks show stderr in red.
        file = sys.stdout if is_notebook else sys.stderr
        bar = tqdm(total=1.0, bar_format=_FORM, leave=False, file=file)

        def show(share: float, rows: int) -> None:
            elapsed = bar.format_dict["elapsed"] or 1e-9
            bar.set_postfix_str(f"{rows:,} rows, {rows / elapsed:,.0f} rows/s", refresh=False)
            bar.update(share - bar.n)

        with bar:
            yield show
