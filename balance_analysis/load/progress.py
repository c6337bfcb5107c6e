"""Show how far a load has come, where somebody can see it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Report = Callable[[float, int], None]
"""Gets the share of the interval that is settled, 0 to 1, and the rows so far."""

_FORM = "{percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]"


@contextlib.contextmanager
def reporting(progress: bool | Report | None) -> Iterator[Report]:
    """Give the function to call after each step: the caller's, or one that draws a bar or nothing.

    `None` is for a bar where stderr is a terminal or this is a notebook.
    """
    if callable(progress):
        yield progress
    elif progress or (progress is None and _is_seen()):
        with _bar() as report:
            yield report
    else:
        yield lambda _share, _rows: None


def _is_seen() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextlib.contextmanager
def _bar() -> Iterator[Report]:
    from tqdm import tqdm  # noqa: PLC0415 - only where a bar is shown

    with tqdm(total=1.0, bar_format=_FORM, leave=False) as bar:

        def show(share: float, rows: int) -> None:
            elapsed = bar.format_dict["elapsed"] or 1e-9
            bar.set_postfix_str(f"{rows:,} rows, {rows / elapsed:,.0f} rows/s", refresh=False)
            bar.update(share - bar.n)

        yield show
