"""Whether the rows add up: what an asset's accounts hold together, and flows told by others.

Accounts of an asset only hand on what they hold; deposits and withdrawals alone change how much it
is together. A row that is missing shows as a change that neither explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.flows import row_deltas
from balance_analysis.analysis.history import Source, are_known, open_history
from balance_analysis.analysis.steps import check_fits
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.frame import to_arrow, to_frame
from balance_analysis.presentation import Record
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, EXTERNAL

_BLOCK: Final = ["asset_id", "timestamp"]
_ROW: Final = [*ACCOUNT_KEY, "timestamp"]
_REASON_OF: Final = {"both": "other amount", "left_only": "no flow", "right_only": "no row"}
_REASONS: Final = pd.CategoricalDtype(pd.Index(["no row", "no flow", "other amount"], dtype="str"))


@dataclass(frozen=True, slots=True)
class ConservationReport(Record):
    """At which blocks the total of an asset moves; `str()` tells it in words.

    Attributes
    ----------
    moves
        One row for each asset and block at which the total over all accounts but EXTERNAL moves,
        sorted: `asset_id` (category of str), `timestamp` (datetime64[us, UTC]), and

        - `move`: by how much, where accounts held nothing before their first row: known + first
        - `known`: the sum of the deltas of the block's rows that are known
        - `first`: the sum of the balances of first rows, whose delta is unknown
        - `rows`, `first_rows`: how many rows of the asset the block has, and of them first ones
          (int64)

        Amounts are decimal128(38, 0), in the asset's smallest unit.
    rows
        The rows of these blocks, with `delta`: as `deltas` returns them, without EXTERNAL accounts.
    blocks
        How many blocks of an asset were looked at.
    """

    moves: pd.DataFrame
    rows: pd.DataFrame
    blocks: int

    _header = ("asset", "what moves its total")

    def _title(self) -> str:
        found = f"{len(self.moves):,} of {self.blocks:,} blocks move the total of their asset"
        return (
            f"{found}: by a deposit, a withdrawal, a row that is missing, or an account's first row"
        )

    def _findings(self) -> list[tuple[str, str]]:
        groups = self.moves.groupby("asset_id", observed=True)["first_rows"]
        return [
            (
                str(asset),
                f"{len(rows):,} blocks, {(rows > 0).sum():,} of them with an account's first row",
            )
            for asset, rows in groups
        ]

    def _content(self) -> dict[str, Any]:
        return {"blocks": self.blocks, "moves": dict(self._findings())}


def check_conservation(source: Source) -> ConservationReport:
    """Tell at which blocks the total of an asset's accounts moves.

    What an account gives another one gets, so the total over all accounts of an asset, EXTERNAL
    ones aside, moves by deposits and withdrawals only. What else moves it is a sign of a row that
    is missing: by its amount at its own block, and back at the account's next row.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order: all accounts of an asset, or each
        transfer to those that are left out shows as a move.

    Returns
    -------
    ConservationReport
        The moves, and the rows of their blocks. It is no verdict: a table can't tell a deposit from
        a missing row, so nothing is raised for a move; `reconcile` can with a list of flows.

    Raises
    ------
    OverflowError
        If a delta or a sum has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-05",
    ...                                  "2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 3, 2, 0, 2],
    ... })
    >>> report = check_conservation(table)
    >>> report.moves[["timestamp", "move", "known", "first", "first_rows"]]
                      timestamp  move  known  first  first_rows
    0 2023-04-01 00:00:00+00:00     5      0      5           2
    1 2023-04-05 00:00:00+00:00    -1     -1      0           0
    >>> report.rows[["party_id", "timestamp", "balance", "delta"]]
      party_id                 timestamp  balance  delta
    0       a1 2023-04-01 00:00:00+00:00        5   <NA>
    1       a1 2023-04-05 00:00:00+00:00        2     -1
    2       b2 2023-04-01 00:00:00+00:00        0   <NA>
    """
    rows = _without_external(row_deltas(open_history(source)))
    cells, _ = _cells(rows, _BLOCK)
    is_behind_gap = rows["delta"].isna() & rows[ACCOUNT_KEY].duplicated()
    is_left_out = np.bincount(cells, is_behind_gap) > 0
    rows = rows.loc[~is_left_out[cells]].reset_index(drop=True)
    cells, heads = _cells(rows, _BLOCK)
    is_first = rows["delta"].isna().to_numpy()
    known_words, known_too_large = _sum(rows["delta"], ~is_first, cells, len(heads))
    first, first_too_large = _sum(rows["balance"], is_first, cells, len(heads))
    move, too_large = int128.add(known_words, first)
    check_fits(
        known_too_large | first_too_large | too_large,
        lambda cell: f"the sum of the changes of {rows.loc[heads[cell], _BLOCK].to_dict()}",
    )
    is_moved = ~int128.is_zero(move)
    moves = rows.loc[heads, _BLOCK].assign(
        move=int128.to_balances(move),
        known=int128.to_balances(known_words),
        first=int128.to_balances(first),
        rows=np.bincount(cells, minlength=len(heads)),
        first_rows=np.bincount(cells[is_first], minlength=len(heads)),
    )
    return ConservationReport(
        _used(moves.loc[is_moved]), _used(rows.loc[is_moved[cells]]), blocks=len(heads)
    )


def reconcile(
    source: Source,
    flows: pd.DataFrame,
    *,
    units: Units | None = None,
) -> pd.DataFrame:
    """Compare balance changes with an independent list of flows, and return what differs.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    flows
        What accounts got and gave, block by block, such as the export of a ledger: `ACCOUNT_KEY`,
        `timestamp` and `net` (integers or Arrow decimals, in the asset's smallest unit). Several
        flows of one account and timestamp add up.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each account and timestamp at which the two differ, sorted; empty where they
        agree: `ACCOUNT_KEY` (category of str), `timestamp` (datetime64[us, UTC]), `delta` and
        `net`, NA where there is none, and `difference`, delta - net, where a missing one counts as
        0 (decimal128(38, 0), in the asset's smallest unit), and `reason` (category of str): "no
        row" for a flow, "no flow" for a row that changes a balance, or "other amount".

        An account's first row has no delta unless an opening says what was before it, so it isn't
        compared, and neither is the first one behind a stretch that is not known, nor a flow in
        such a stretch; `attrs["balance_analysis"]["not_compared"]` tells how many these are.
        EXTERNAL accounts, whose balances nodes don't keep, are left out.

    Raises
    ------
    ValueError
        If `flows` lacks a column or a value.
    TypeError
        If a `net` is a float, which loses digits.
    OverflowError
        If a delta, a sum of flows or a difference has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> account = {"asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...            "market_id": ""}
    >>> days = pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-05"], utc=True)
    >>> table = pd.DataFrame({**account, "timestamp": days, "balance": [5, 7, 1]})
    >>> ledger = pd.DataFrame({**account, "timestamp": days, "net": [5, 2, -5]})
    >>> reconcile(table, ledger)[["timestamp", "delta", "net", "difference", "reason"]]
                      timestamp  delta  net  difference        reason
    0 2023-04-05 00:00:00+00:00     -6   -5          -1  other amount
    """
    history = open_history(source)
    rows = _without_external(row_deltas(history))
    ledger = _read_flows(flows)
    texts = dict.fromkeys(ACCOUNT_KEY, "str")
    both = rows.astype(texts).merge(
        ledger.astype(texts), on=_ROW, how="outer", indicator=True, sort=True
    )
    is_known = are_known(history.known, microseconds(both), microseconds(both) + 1)
    is_left_out = np.where(both["_merge"] == "right_only", ~is_known, both["delta"].isna())
    delta, net = (int128.words_of(pa.array(both[name].fillna(0))) for name in ("delta", "net"))
    difference, too_large = int128.subtract(delta, net)
    check_fits(too_large, lambda row: f"the difference of {both.loc[row, _ROW].to_dict()}")
    reasons = both["_merge"].map(_REASON_OF).astype(_REASONS)
    found = both.assign(difference=int128.to_balances(difference), reason=reasons)
    columns = [*_ROW, "delta", "net", "difference", "reason"]
    result = found.loc[~int128.is_zero(difference) & ~is_left_out, columns].reset_index(drop=True)
    result = result.astype(dict.fromkeys(ACCOUNT_KEY, "category"))
    result.attrs[ATTRS_KEY] = {"not_compared": int(is_left_out.sum())}
    return in_units(result, units, history.attrs)


def _read_flows(flows: pd.DataFrame) -> pd.DataFrame:
    """Return flows with one row for each account and timestamp, without EXTERNAL accounts."""
    missing = [name for name in (*_ROW, "net") if name not in flows]
    if missing:
        raise ValueError(f"flows has no column {', '.join(missing)}")
    rows = _without_external(to_frame(to_arrow(flows.assign(balance=flows["net"]))))
    cells, heads = _cells(rows, _ROW)
    net, too_large = _sum(rows["balance"], np.ones(len(rows), bool), cells, len(heads))
    keys = rows.loc[heads, _ROW]
    check_fits(too_large, lambda cell: f"the sum of the flows of {keys.iloc[cell].to_dict()}")
    return keys.assign(net=int128.to_balances(net))


def _cells(rows: pd.DataFrame, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each row's group by some columns, and each group's first row."""
    cells = np.asarray(rows.groupby(list(names), observed=True).ngroup(), np.int64)
    return cells, np.unique(cells, return_index=True)[1]


def _sum(
    amounts: pd.Series[Any], chosen: NDArray[np.bool_], cells: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sum of the chosen amounts in each cell, and which don't fit."""
    return int128.sum_words(int128.words_of(pa.array(amounts))[chosen], cells[chosen], count)


def _without_external(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.loc[(rows["account_type"] != EXTERNAL).to_numpy()].reset_index(drop=True)


def _used(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a fresh index and no categories that none of them uses."""
    ids = {name: rows[name].cat.remove_unused_categories() for name in rows if name in ACCOUNT_KEY}
    return rows.assign(**ids).reset_index(drop=True)
