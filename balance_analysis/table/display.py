"""Show a frame to users: names in place of ids, units, headers, and `table.balances`.

The package's `__init__` registers the accessor.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pandas as pd

from balance_analysis.errors import check_frame
from balance_analysis.table.filters import make_filters
from balance_analysis.table.known import note_selection, read_notes
from balance_analysis.table.moments import Moment, range_text
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, names_of, note_names
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, COLUMNS, are_heads, distinct_ids
from balance_analysis.table.text import (
    EmbeddedPage,
    count_text,
    html_table,
    list_text,
    printable,
    spans_text,
    truncated,
)

_SHOWN_ROWS: Final = 10
"""Maximum number of rows shown: the first and the last ones."""

_LABEL_LENGTH: Final = 24
"""Maximum number of characters of a label shown."""

UNITS_KEY: Final = "units"
"""The key in `attrs[ATTRS_KEY]` of the whole units that a frame's amounts are in, by asset."""


def account_labels(accounts: pd.DataFrame, *, labels: LabelsLike | None = None) -> pd.Series[str]:
    """Return a readable label for each account or group of accounts, different for each.

    Labels omit the asset: accounts of different assets don't share an axis.

    Parameters
    ----------
    accounts
        A table, a result, or the header of a wide series (`series.columns.to_frame()`), with at
        least one column of `ACCOUNT_KEY`. Ids are shortened as far as those in it stay distinct.
    labels
        The labels, as `read_labels` takes them; by default those in the attrs of
        `accounts`.

    Returns
    -------
    pandas.Series
        One label per row (str), with the same index.

    Raises
    ------
    ValueError
        If `accounts` has no column of `ACCOUNT_KEY`.

    Examples
    --------
    >>> import pandas as pd
    >>> accounts = pd.DataFrame({
    ...     "asset_id": "VOTE",
    ...     "account_type": ["ACCOUNT_TYPE_MARGIN", "ACCOUNT_TYPE_GLOBAL_REWARD"],
    ...     "party_id": ["033acc4e3803f1160cb399b7e041735c92576db9dc4d7d94", "network"],
    ...     "market_id": ["bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef", ""],
    ... })
    >>> account_labels(accounts).tolist()
    ['margin · 033acc…7d94 · bda439…82ef', 'global reward · network']
    >>> account_labels(accounts[["market_id"]]).tolist()
    ['market bda439…82ef', 'no market']
    """
    column: Any = _labels_of(_ids_of(accounts), names_of(accounts, labels=labels))
    return pd.Series(column, accounts.index, name="label").astype("str")


def labelled(
    data: pd.DataFrame, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Return a frame with the names of its assets and accounts as its first columns.

    Results of a table with names in its attrs have these columns already.

    Parameters
    ----------
    data
        A table, or any result with columns of `ACCOUNT_KEY`.
    assets, labels
        The names, as `read_assets` and `read_labels` take them; by default those in the attrs of
        `data`. They are added to the result's attrs.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` with up to two columns before the others, both category of str: `symbol`
        (the asset's symbol, or its shortened id) if it has `asset_id`, and `label` (as
        `account_labels` returns it) if it has another column of `ACCOUNT_KEY`. They replace columns
        of these names.

    Raises
    ------
    ValueError
        If `data` has no column of `ACCOUNT_KEY`, or names are malformed. A wide series has its
        accounts in its header: use `account_labels`, or the long layout.

    Examples
    --------
    >>> import pandas as pd
    >>> held = pd.DataFrame({"asset_id": "VOTE", "party_id": ["a1", "b2"], "balance": [5, 7]})
    >>> labelled(held, labels={"a1": "Alice"})
      symbol  label asset_id party_id  balance
    0   VOTE  Alice     VOTE       a1        5
    1   VOTE     b2     VOTE       b2        7
    """
    check_frame(data)
    names, has_label = names_of(data, assets, labels), {*data} & {*ACCOUNT_KEY[1:]}
    replaced = ["symbol"] * ("asset_id" in data) + ["label"] * bool(has_label)
    named = with_names(data.drop(columns=replaced, errors="ignore"), names)
    named.attrs[ATTRS_KEY] = note_names(named.attrs.get(ATTRS_KEY, {}), names)
    return named


def with_names(data: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Return a frame with those first columns of `labelled` that it lacks."""
    named, ids = data.copy(deep=False), _ids_of(data)
    column: Any
    if {*ids} & {*ACCOUNT_KEY[1:]} and "label" not in data:
        column = _labels_of(ids, names)
        named.insert(0, "label", column)
    if "asset_id" in ids and "symbol" not in data:
        assets = ids["asset_id"].array
        symbols = names.shown("asset_id", assets.categories.astype("str"))
        column = assets.rename_categories(pd.Index([*symbols.values()], dtype="str"))
        named.insert(0, "symbol", column)
    return named


def _ids_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame's columns of ids, as categories."""
    names = [name for name in ACCOUNT_KEY if name in frame]
    if not names:
        raise ValueError(f"labels need at least one of the columns {', '.join(ACCOUNT_KEY)}")
    return frame[names].astype("category")


def _labels_of(ids: pd.DataFrame, names: Names) -> pd.Categorical:
    """Return the label of each row's account or group of accounts, with sorted categories."""
    # Rows of one account mostly follow each other, so only the first row of each run is read.
    is_head = are_heads([ids[name].array.codes for name in ids])
    runs = np.flatnonzero(is_head)
    accounts, places = distinct_ids(ids.iloc[runs])
    labels = pd.Categorical(pd.array(_texts(accounts, names), dtype="str"))
    codes = np.repeat(labels.codes[places], np.diff(runs, append=len(is_head)))
    return pd.Categorical.from_codes(codes, dtype=labels.dtype, validate=False)


def _texts(accounts: pd.DataFrame, names: Names) -> list[str]:
    """Return the labels of distinct accounts or groups of accounts."""
    ids = {str(name): accounts[name].astype("str").fillna("NA").tolist() for name in accounts}
    parts = (map(_parts(name, ids, names).__getitem__, ids[name]) for name in ids)
    return [" · ".join(filter(None, row)) for row in zip(*parts, strict=True)]


def _parts(name: str, ids: Mapping[str, Sequence[str]], names: Names) -> dict[str, str]:
    """Return the part of a label for each id of a column; `ids` has all columns."""
    if name == "asset_id":
        return dict.fromkeys(ids[name], "" if len(ids) > 1 else "all accounts")
    empty_texts = {"account_type": "no type", "party_id": "no party"}
    is_named = bool({"account_type", "party_id"} & {*ids})
    empty = empty_texts.get(name, "" if is_named else "no market")
    prefix = "market " if name == "market_id" and "party_id" not in ids else ""
    shown = {key: printable(text) for key, text in names.shown(name, ids[name]).items()}
    own = names.called(name)
    return {
        key: f"{'' if key in own else prefix}{text}" if text else empty
        for key, text in shown.items()
    }


def units_of(frame: pd.DataFrame, asset_ids: Iterable[str]) -> dict[str, str]:
    """Return the unit of each asset's amounts in a frame.

    Whole units are the symbol, such as `tUSD`; smallest units are `10^-5 tUSD` if the decimals are
    known, else `smallest`.
    """
    names, units = names_of(frame), dict.fromkeys(asset_ids, "smallest")
    shown = names.shown("asset_id", units)
    for asset_id in units.keys() & names.assets.keys():
        decimals = names.assets[asset_id].decimals
        units[asset_id] = f"10^-{decimals} {shown[asset_id]}" if decimals else shown[asset_id]
    noted = (frame.attrs.get(ATTRS_KEY) or {}).get(UNITS_KEY, {})
    return units | {key: unit for key, unit in noted.items() if key in units}


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column, with names in place of ids in a wide frame's header."""
    levels, names = frame.columns.to_frame(index=False), names_of(frame)
    for name in {*ACCOUNT_KEY} & {*frame.columns.names}:
        ids = levels[name].astype("str")
        levels[name] = ids.map(names.shown(name, ids))
    texts = levels.itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]


class BalancesAccessor:
    """Select parts of a table, keeping its known intervals, and explore it on a page.

    Raises
    ------
    AttributeError
        If the frame lacks a column of a table.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise AttributeError(
                f"a frame without the columns {missing} is not a table of balance changes, so it "
                "has no .balances"
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
            more, or labels; a single value may be plain text. An empty market id selects accounts
            without a market.
        account_types
            Names such as `ACCOUNT_TYPE_GENERAL` or `general`.

        Returns
        -------
        pandas.DataFrame
            All rows of the accounts that every filter selects, with the index and the columns of
            the table. Its attrs have the known intervals of these accounts.

        Raises
        ------
        ValueError
            If a value isn't in the table, or is ambiguous.

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
        table = self._table
        held = {name: {*map(str, table[name].unique())} for name in ACCOUNT_KEY}
        ids = (asset_id, party_ids, market_ids, account_types)
        filters = make_filters(*ids, names=lambda: names_of(table), held=held)
        filters.check_held(held)
        selection = filters.select(table)
        note_selection(selection, table, filters)
        return selection

    def between(self, start: Moment | None = None, end: Moment | None = None) -> pd.DataFrame:
        """Return the table's changes in [start, end), and each account's opening.

        Over this interval, functions return the same for the result as for the whole table. A mask
        on `timestamp` would lose the balances that accounts held before. If the table states no
        known intervals, `reconcile` compares only those accounts of the result that have a row.

        Parameters
        ----------
        start, end
            The interval, half-open; UTC if without a time zone. By default from the start of the
            first known interval to the end of the last one; if none is stated, from the first row
            to just after the last.

        Returns
        -------
        pandas.DataFrame
            A table: the rows in [start, end), and each account's last row before `start` with its
            own timestamp. Its attrs have the `start` and the known intervals.

        Raises
        ------
        ValueError
            If `start` isn't before `end`.
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
        module = _module("analysis.history")
        history = module.open_history(self._table)
        part: pd.DataFrame = module.cut_table(self._table, history, start, end)
        return part

    def explore(self, **options: Any) -> EmbeddedPage:  # noqa: ANN401 - those of write_report
        """Show the page of `write_report`, with its options, in a notebook."""
        with TemporaryDirectory() as folder:
            page = Path(folder, "report.html")
            _module("explorer.report").write_report(self._table, page, **options)
            return EmbeddedPage(page.read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        facts = (f"{name}: {value}" for name, value in self._facts())
        return "\n".join([self._title(), *facts, "", _preview(self._table).to_string()])

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._facts()) + _preview(self._table).to_html(border=0)

    def _title(self) -> str:
        accounts = len(self._table.drop_duplicates(ACCOUNT_KEY))
        rows = count_text(len(self._table), "balance change")
        return f"{rows} of {count_text(accounts, 'account')}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        times, notes = self._table["timestamp"], read_notes(self._table.attrs.get(ATTRS_KEY))
        ids = self._table["asset_id"].drop_duplicates().astype("str")
        labels = names_of(self._table).shown("asset_id", ids)
        yield "assets", list_text([*labels.values()], 5) or "none"
        if not times.empty:
            yield "from", range_text(times.min(), times.max())
        is_stated = notes.known is not None
        yield "known", spans_text(notes.known or ()) or "nothing" if is_stated else "not stated"


def _preview(table: pd.DataFrame) -> pd.DataFrame:
    """Return the first and last rows, with names in place of the ids of accounts."""
    half = _SHOWN_ROWS // 2
    rows = table if len(table) <= _SHOWN_ROWS else table.iloc[[*range(half), *range(-half, 0)]]
    shown = labelled(rows)[["symbol", "label", "timestamp", "balance"]]
    label = [truncated(text, _LABEL_LENGTH) for text in shown["label"]]
    return shown.assign(label=label, timestamp=shown["timestamp"].dt.floor("s"))


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a module on first use, because it imports this one."""
    return importlib.import_module(f"balance_analysis.{name}")
