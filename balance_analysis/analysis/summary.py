"""One row per account: what its balance did in an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.balances import (
    account_keys,
    count_accounts,
    first_rows,
    last_rows,
    take_balances,
    take_times,
    to_utc,
)
from balance_analysis.analysis.checks import (
    account_numbers,
    drop_identical_duplicates,
    microseconds,
)
from balance_analysis.frame import BALANCE_DTYPE
from balance_analysis.schema import BALANCE_DIGITS, to_microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from balance_analysis.schema import Instant

_WIDE = pa.decimal256(BALANCE_DIGITS, 0)
"""The type to compute in: a delta of two balances needs one digit more than decimal128 has."""

_ZERO = pa.scalar(0, pa.decimal256(BALANCE_DIGITS + 2, 0))
"""Of the type that Arrow gives to the difference of two numbers of `_WIDE`."""


def summarize_accounts(
    table: pd.DataFrame, *, start: Instant | None = None, end: Instant | None = None
) -> pd.DataFrame:
    """Summarise what the balance of each account did in [start, end).

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order. Rows before `start` tell which balance an
        account brings into the interval.
    start, end
        The interval, half-open; without a time zone UTC. By default from the table's first row to
        just after its last.

    Returns
    -------
    pandas.DataFrame
        One row per account of the table, also for one that is quiet in the interval, sorted by
        `ACCOUNT_KEY` (category of str), with

        - `first_seen`, `last_seen`: timestamps of the account's first and last row in the interval
          (datetime64[us, UTC]; NaT where it has none)
        - `rows`, `changes`: its rows in the interval, and those whose balance differs from the
          account's previous row, wherever that is (int64)
        - `opening`: the balance just before `start`; where known, with `net` it makes `closing`
        - `closing`: the balance just before `end`
        - `minimum`, `maximum`: of the known part of the interval
        - `minimum_at`, `maximum_at`: when in the interval it was first held (datetime64[us, UTC])
        - `inflow`, `outflow`, `net`: the sum of the positive deltas of the rows in the interval, of
          the negative ones (as a positive number), and the difference. An account's first row has
          no delta: what was before it is unknown.

        Amounts are decimal128(38, 0), in the asset's smallest unit, and exact. NA is unknown: the
        `opening` of an account that has no row before `start`, and every amount of one that has no
        row before `end`.

    Raises
    ------
    ValueError
        If `start` is not before `end`.
    OverflowError
        If a sum has more than 38 digits; the message names the account.
    CheckError
        If two rows of one account and timestamp differ in balance.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-09"],
    ...     utc=True), "balance": pd.array([5, 7, 1], dtype=BALANCE_DTYPE),
    ... })
    >>> summarize_accounts(table)[["rows", "opening", "closing", "maximum", "inflow", "net"]]
       rows  opening  closing  maximum  inflow  net
    0     3     <NA>        1        7       2   -4
    """
    rows = drop_identical_duplicates(table)
    numbers, times = account_numbers(rows), microseconds(rows)
    begin, stop = _interval(times, start, end)
    inside = (begin <= times) & (times < stop)
    at_start = last_rows(numbers, times <= begin)
    held = inside.copy()
    held[at_start[at_start >= 0]] = True
    keys = account_keys(rows, numbers)
    deltas = _deltas(rows, numbers, inside)
    return keys.assign(
        first_seen=to_utc(take_times(times, first_rows(numbers, inside))),
        last_seen=to_utc(take_times(times, last_rows(numbers, inside))),
        rows=np.bincount(numbers[inside], minlength=len(keys)),
        changes=np.bincount(numbers[_to_mask(pc.not_equal(deltas, _ZERO))], minlength=len(keys)),
        opening=take_balances(rows, last_rows(numbers, times < begin)),
        closing=take_balances(rows, last_rows(numbers, times < stop)),
        **_extremes(rows, numbers, held, np.maximum(times, begin)),
        **_flows(deltas, numbers, held, keys),
    )


def _interval(
    times: NDArray[np.int64], start: Instant | None, end: Instant | None
) -> tuple[int, int]:
    """Return the bounds in microseconds. One that is left out never makes the interval empty."""
    begin = None if start is None else to_microseconds(start)
    stop = None if end is None else to_microseconds(end)
    if begin is not None and stop is not None and begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    if begin is None:
        begin = first if stop is None else min(first, stop - 1)
    if stop is None:
        stop = max(last, begin) + 1
    return begin, stop


def _deltas(
    rows: pd.DataFrame, numbers: NDArray[np.int64], inside: NDArray[np.bool_]
) -> pa.Array[Any]:
    """Return each row's delta, 0 where it is unknown or outside the interval."""
    balance = pa.array(rows["balance"]).cast(_WIDE)
    steps = pc.subtract(balance[1:], balance[:-1])
    deltas = pa.concat_arrays([pa.nulls(min(len(rows), 1), steps.type), steps])
    known = inside & np.append(False, numbers[1:] == numbers[:-1])[: len(rows)]
    result: pa.Array[Any] = pc.if_else(pa.array(known), deltas, _ZERO)
    return result


def _extremes(
    rows: pd.DataFrame,
    numbers: NDArray[np.int64],
    held: NDArray[np.bool_],
    times: NDArray[np.int64],
) -> dict[str, pd.Series[Any]]:
    balance = pa.array(rows["balance"])
    columns = {}
    functions: dict[str, Literal["min", "max"]] = {"minimum": "min", "maximum": "max"}
    for name, function in functions.items():
        extreme = _per_account(balance, numbers, held, function)
        reached = held & _to_mask(pc.equal(balance, extreme.take(pa.array(numbers, pa.int64()))))
        columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(extreme))
        columns[f"{name}_at"] = to_utc(take_times(times, first_rows(numbers, reached)))
    return {name: columns[name] for name in ("minimum", "maximum", "minimum_at", "maximum_at")}


def _flows(
    deltas: pa.Array[Any],
    numbers: NDArray[np.int64],
    held: NDArray[np.bool_],
    keys: pd.DataFrame,
) -> dict[str, pd.Series[Any]]:
    parts = {
        "inflow": pc.if_else(pc.greater(deltas, _ZERO), deltas, _ZERO),
        "outflow": pc.if_else(pc.less(deltas, _ZERO), pc.negate(deltas), _ZERO),
        "net": deltas,
    }
    return {
        name: _narrow(name, _per_account(part, numbers, held, "sum"), keys)
        for name, part in parts.items()
    }


def _per_account(
    values: pa.Array[Any],
    numbers: NDArray[np.int64],
    chosen: NDArray[np.bool_],
    function: Literal["min", "max", "sum"],
) -> pa.Array[Any]:
    """Aggregate the chosen values of each account, null where none is chosen."""
    groups = pa.table({"account": pa.array(numbers), "value": values}).filter(pa.array(chosen))
    result = groups.group_by("account").aggregate([("value", function)])
    positions = np.full(count_accounts(numbers), -1)
    positions[result["account"].to_numpy()] = np.arange(len(result))
    column = result[f"value_{function}"].combine_chunks()
    return column.take(pa.array(positions, pa.int64(), mask=positions < 0))


def _narrow(name: str, amounts: pa.Array[Any], keys: pd.DataFrame) -> pd.Series[Any]:
    """Return wide amounts as decimal128(38, 0), or say which account's doesn't fit."""
    limit = pa.scalar(10**BALANCE_DIGITS, amounts.type)
    too_large = _to_mask(pc.greater_equal(pc.abs(amounts), limit))
    if too_large.any():
        account = keys.iloc[int(too_large.argmax())].to_dict()
        raise OverflowError(
            f"the {name} of {account} has more than {BALANCE_DIGITS} digits: "
            "ask for a shorter interval with start and end"
        )
    return pd.Series(pd.arrays.ArrowExtensionArray(amounts.cast(BALANCE_DTYPE.pyarrow_dtype)))


def _to_mask(condition: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return an Arrow condition as a mask; null is not true."""
    return np.asarray(condition.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
