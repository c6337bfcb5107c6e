"""What a table does itself: `table.balances.select(...)`, `.between(...)`, `.explore()`.

`frame`, which makes tables, registers the accessor. For a caller's own frames the package does so
when a name of it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.known import known_of
from balance_analysis.names import names_of
from balance_analysis.naming import labelled
from balance_analysis.presentation import Frame, facts_html
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS, Instant
from balance_analysis.text import clipped, count_text, list_text, range_text, spans_text

if TYPE_CHECKING:
    import pandas as pd

_ROWS: Final = 10
"""Maximum number of rows shown, the first and the last."""

_WIDEST: Final = 24
"""Maximum number of characters of a label."""


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a module that itself needs tables, when it is used."""
    return importlib.import_module(f"{__package__}.{name}")


class BalancesAccessor:
    """Parts of a table that keep what it knows, and a page to explore it.

    Raises
    ------
    AttributeError
        On a frame that lacks a column of a table.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise AttributeError(
                f"a frame without the columns {missing} is no table of balance changes, so it has "
                "no .balances"
            )
        self._table = table

    def select(
        self,
        *,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
    ) -> pd.DataFrame:
        """Return the rows of some accounts.

        Parameters
        ----------
        asset_id
            One asset: its id or its symbol.
        party_ids, market_ids
            Whole ids, short forms such as `c2071f…76b5`, unique beginnings of four characters or
            more, or own names; one may be given as plain text.
        account_types
            Names such as `ACCOUNT_TYPE_GENERAL` or `general`.

        Returns
        -------
        pandas.DataFrame
            All rows of the accounts that every filter selects, with the index and the columns of
            the table. Its attrs say what the table knows of these accounts.

        Raises
        ------
        ValueError
            If a word stands for nothing in the table, or may stand for several things.

        Examples
        --------
        >>> import pandas as pd
        >>> import balance_analysis as ba
        >>> table = pd.DataFrame({
        ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
        ...     "party_id": ["alice", "berta"], "market_id": "",
        ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
        ...     "balance": [5, 7],
        ... })
        >>> table.balances.select(party_ids="alic")["balance"].tolist()
        [5]
        """
        selection = _module("analysis.selection")
        chosen: pd.DataFrame = selection.select(
            self._table,
            asset_id=asset_id,
            party_ids=party_ids,
            market_ids=market_ids,
            account_types=account_types,
        )
        return chosen

    def between(self, start: Instant | None = None, end: Instant | None = None) -> pd.DataFrame:
        """Return the changes of a table in [start, end), and the opening of each account.

        Functions give the same of the result, over its interval, as of the whole table. A mask by
        `timestamp` would drop what accounts held before its rows.

        Parameters
        ----------
        start, end
            The interval, half-open; without a time zone UTC. By default from the beginning to the
            end of what is known, else from the first row to just after the last one.

        Returns
        -------
        pandas.DataFrame
            A table: the rows in [start, end), and of each account its last row before `start`,
            under its own timestamp. Its attrs say the `start`, and what is known.

        Raises
        ------
        ValueError
            If `start` is not before `end`.
        CheckError
            If two rows of one account and timestamp differ in balance.

        Examples
        --------
        >>> import pandas as pd
        >>> import balance_analysis as ba
        >>> table = pd.DataFrame({
        ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
        ...     "market_id": "", "balance": [5, 7],
        ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
        ... })
        >>> part = table.balances.between("2023-04-02", "2023-04-08")
        >>> ba.deltas(part)[["timestamp", "balance", "delta"]]
                          timestamp  balance  delta
        1 2023-04-03 00:00:00+00:00        7      2
        """
        part: pd.DataFrame = _module("analysis.selection").between(self._table, start, end)
        return part

    def explore(self, **options: Any) -> Frame:  # noqa: ANN401 - those of write_report
        """Show the table in a notebook as a page to explore: `write_report`, with its options."""
        with TemporaryDirectory() as folder:
            page = Path(folder, "report.html")
            _module("explorer.report").write_report(self._table, page, **options)
            return Frame(page.read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        facts = (f"{name}: {value}" for name, value in self._facts())
        return "\n".join([self._title(), *facts, "", _short(self._table).to_string()])

    def _repr_html_(self) -> str:
        return facts_html(self._title(), self._facts()) + _short(self._table).to_html(border=0)

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


def _short(table: pd.DataFrame) -> pd.DataFrame:
    """Return the first and last rows, in which names stand for the ids of accounts."""
    half = _ROWS // 2
    some = table if len(table) <= _ROWS else table.iloc[[*range(half), *range(-half, 0)]]
    shown = labelled(some)[["symbol", "label", "timestamp", "balance"]]
    label = [clipped(each, _WIDEST) for each in shown["label"]]
    return shown.assign(label=label, timestamp=shown["timestamp"].dt.floor("s"))
