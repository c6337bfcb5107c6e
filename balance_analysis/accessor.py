"""The functions over a table as methods of one: `table.balances.at(...)`.

It knows the functions by their names alone, and finds them at the package's door when they are
called. `frame`, which makes tables, gives them the accessor; for a caller's own frames the door
imports that, when a name of it is used beside pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.known import known_of
from balance_analysis.labels import names_of
from balance_analysis.naming import to_html, to_text
from balance_analysis.presentation import Frame, facts_html
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS
from balance_analysis.text import count_text, list_text, range_text, spans_text

if TYPE_CHECKING:
    import pandas as pd


KINDS: Final = {
    "levels": "at series summarize summarize_parties totals time_weighted_average ohlc drawdown",
    "changes": "deltas flows compare",
    "cuts": "between",
    "shares": "holders share concentration",
    "numbers": "to_units to_integers",
    "names": "labelled",
    "checks": "check check_conservation reconcile to_table",
    "pictures": "plot plot_activity plot_averages plot_balances plot_concentration plot_drawdown "
    "plot_flows plot_totals",
    "files": "write_parquet write_report write_table",
}
"""The methods, by what they are about."""

_ROWS: Final = 10
"""How many rows are shown, the first and the last."""

_SHORT: Final = {
    "at": "balance_at",
    "between": "cut_between",
    "check": "check_table",
    "plot": "plot_balances",
    "series": "balance_series",
    "summarize": "summarize_accounts",
}
METHODS: Final = {
    name: _SHORT.get(name, name) for names in KINDS.values() for name in names.split()
}
"""Of each method the function that it is."""


class BalancesAccessor:
    """Every function that takes a table first, as a method; see the functions.

    Raises
    ------
    AttributeError
        On a frame that lacks a column of a table.

    Examples
    --------
    >>> import balance_analysis as ba
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> table.balances.at("2023-04-02")[["party_id", "balance"]]
      party_id  balance
    0       a1        5
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise AttributeError(
                f"a frame without the columns {missing} is no table of balance changes, so it has "
                "no .balances"
            )
        self._table = table

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function of this package
        if name not in METHODS:
            raise AttributeError(f".balances has no {name!r}; it has {', '.join(METHODS)}")
        return MethodType(getattr(sys.modules[__package__], METHODS[name]), self._table)

    def explore(self, **options: Any) -> Frame:  # noqa: ANN401 - those of write_report
        """Show the table in a notebook as a page to explore: `write_report`, with its options."""
        with TemporaryDirectory() as folder:
            page = Path(folder, "report.html")
            self.write_report(page, **options)
            return Frame(page.read_text(encoding="utf-8"))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *METHODS]

    def __repr__(self) -> str:
        facts = (f"{name}: {value}" for name, value in self._facts())
        return "\n".join([self._title(), *facts, "", to_text(self._table, _ROWS)])

    def _repr_html_(self) -> str:
        return facts_html(self._title(), self._facts()) + to_html(self._table, _ROWS)

    def _title(self) -> str:
        accounts = len(self._table.drop_duplicates(ACCOUNT_KEY))
        rows = count_text(len(self._table), "balance change")
        return f"{rows} of {count_text(accounts, 'account')}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        times, known = self._table["timestamp"], known_of(self._table)
        ids = self._table["asset_id"].drop_duplicates().astype("str")
        labels = names_of(self._table).assets.labels(ids)
        yield "assets", list_text([*labels.values()], 5) or "none"
        if not times.empty:
            yield "from", range_text(times.min(), times.max())
        yield "known", "nothing tells" if known is None else spans_text(known) or "nothing"
        yield from ((kind, names.replace(" ", ", ")) for kind, names in KINDS.items())
