"""The same reconstructions by this package, DuckDB, Polars and pandas.

All but pandas are exact, with 128-bit integers. Each engine has the rows in its own memory
beforehand, as they came, with ids as enums and times as 64-bit microseconds, and of the
formulations tried its fastest stands here. Where one relies on the order of the rows, it checks
that order and sorts them if need be, as the functions of this package do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import balance_analysis as ba
from balance_analysis.frame import to_frame
from balance_analysis.schema import ACCOUNT_KEY
from tests.benchmarks.levels import DAY, HOUR, SINCE, UNTIL

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP: Final = ("asset_id", "account_type")
AMOUNTS: Final = (
    *("average", "balance", "closing", "delta", "drawdown", "inflow", "maximum", "minimum", "net"),
    *("opening", "outflow", "total"),
)
SPLIT: Final = 40
"""Where a balance is cut in two, in bits: held for 90 days, a large one leaves 128 bits."""


class Ours:
    """This package."""

    def __init__(self, rows: pa.Table, hour: int = HOUR, day: int = DAY) -> None:
        self.table = to_frame(rows, sort=False)
        self.hour, self.day = (pd.Timedelta(step, unit="us") for step in (hour, day))
        since, until = (pd.Timestamp(moment, unit="us", tz="UTC") for moment in (SINCE, UNTIL))
        self.within = {"start": since, "end": until}

    def series(self) -> pd.DataFrame:
        return ba.balance_series(self.table, freq=self.hour, layout="long", **self.within)

    def series_wide(self) -> pd.DataFrame:
        return ba.balance_series(self.table, freq=self.hour, **self.within)

    def totals(self) -> pd.DataFrame:
        return ba.totals(self.table, by=GROUP, freq="1h", **self.within)

    def deltas(self) -> pd.DataFrame:
        return ba.deltas(self.table)

    def flows(self) -> pd.DataFrame:
        return ba.flows(self.table, freq="1D", **self.within)

    def averages(self) -> pd.DataFrame:
        return ba.time_weighted_average(self.table, freq=self.day, **self.within)

    def summaries(self) -> pd.DataFrame:
        return ba.summarize_accounts(self.table)


_KEY: Final = ", ".join(ACCOUNT_KEY)
_SAME: Final = " and ".join(f"{name} = lag({name}) over ()" for name in ACCOUNT_KEY)
_NEXT_SAME: Final = " and ".join(f"{name} = lead({name}) over ()" for name in ACCOUNT_KEY)
_WINDOW: Final = f"(partition by {_KEY} order by timestamp rows unbounded preceding)"
_DELTAS: Final = f"""
    select * exclude (before, same), case when same then balance - before end as delta
    from (select *, lag(balance) over () as before, {_SAME} as same from ordered)"""


def _rising_sql() -> str:
    rising = "timestamp > lag(timestamp) over ()"
    for name in reversed(ACCOUNT_KEY):
        before = f"lag({name}) over ()"
        rising = f"({name} > {before} or ({name} = {before} and {rising}))"
    return f"select bool_and(rising) from (select {rising} as rising from changes)"


class DuckDB:
    """DuckDB, from a table of its own to Arrow."""

    def __init__(self, rows: pa.Table, hour: int = HOUR, day: int = DAY) -> None:
        self.hour, self.day = hour, day
        self.connection = duckdb.connect()
        self.connection.register("rows", rows)
        for name in ACCOUNT_KEY:
            ids = f"select distinct {name}::varchar from rows order by 1"
            self.connection.execute(f"create type {name}_enum as enum ({ids})")
        ids = ", ".join(f"{name}::{name}_enum as {name}" for name in ACCOUNT_KEY)
        self.connection.execute(f"""
            create table changes as
            select {ids}, epoch_us(timestamp) as timestamp, balance::hugeint as balance
            from rows""")
        self.connection.unregister("rows")

    def _ask(self, query: str) -> pa.Table:
        return self.connection.sql(query).to_arrow_table()

    def _order(self) -> None:
        is_rising = self._ask(_rising_sql())[0][0].as_py()
        kind, order = ("view", "") if is_rising else ("table", f"order by {_KEY}, timestamp")
        self.connection.execute(
            f"create or replace temp {kind} ordered as select * from changes {order}"
        )

    def series(self) -> pa.Table:
        same = " and ".join(f"cells.{name} = changes.{name}" for name in ACCOUNT_KEY)
        return self._ask(f"""
            with cells as (
                select {_KEY}, unnest(range({SINCE}, {UNTIL}, {self.hour})) as timestamp
                from (select distinct {_KEY} from changes))
            select cells.*, balance from cells
            asof left join changes on {same} and cells.timestamp >= changes.timestamp""")

    def totals(self) -> pa.Table:
        self._order()
        group = ", ".join(GROUP)
        return self._ask(f"""
            with moves as (
                select {group}, (timestamp + {HOUR - 1}) // {HOUR} as hour,
                    sum(coalesce(delta, balance)) as move, count(*) - count(delta) as first
                from ({_DELTAS}) group by all),
            cells as (
                select {group}, sum(first) as accounts,
                    unnest(range({SINCE // HOUR}, {UNTIL // HOUR})) as hour
                from moves group by {group}),
            sums as (
                select *, sum(move) over cell as total, coalesce(sum(first) over cell, 0) as known
                from cells left join moves using ({group}, hour)
                window cell as (partition by {group} order by hour))
            select {group}, hour * {HOUR} as timestamp, case when known > 0 then total end as total,
                known, accounts - known as unknown
            from sums""")

    def deltas(self) -> pa.Table:
        self._order()
        return self._ask(_DELTAS)

    def flows(self) -> pa.Table:
        self._order()
        return self._ask(f"""
            with sums as (
                select {_KEY}, timestamp // {DAY} as day,
                    coalesce(sum(case when delta > 0 then delta end), 0) as inflow,
                    coalesce(sum(delta), 0) as net, count(*) filter (delta <> 0) as changes,
                    count(*) - count(delta) as unknown
                from ({_DELTAS}) group by {_KEY}, day)
            select {_KEY}, day * {DAY} as start, inflow, inflow - net as outflow, net, changes,
                (changes > 0)::bigint as active, unknown
            from sums""")

    def averages(self) -> pa.Table:
        self._order()
        day = self.day
        return self._ask(f"""
            with steps as (
                select *, timestamp // {day} as day, lead(timestamp) over () as after,
                    {_NEXT_SAME} as same
                from ordered),
            days as (
                select {_KEY}, day, min(timestamp) as first, arg_max(balance, timestamp) as last,
                    sum(balance * (least(case when same then after else {UNTIL} end,
                        (day + 1) * {day}) - timestamp)) as held
                from steps group by {_KEY}, day),
            cells as (
                select {_KEY}, unnest(range({SINCE // day}, {UNTIL // day})) as day
                from (select distinct {_KEY} from days)),
            filled as (
                select {_KEY}, day, first, held, last_value(last ignore nulls) over (
                    partition by {_KEY} order by day
                    rows between unbounded preceding and 1 preceding) as carried
                from cells left join days using ({_KEY}, day)),
            sums as (
                select {_KEY}, day, case
                    when carried is not null then coalesce(held, 0)
                        + carried * (coalesce(first, (day + 1) * {day}) - day * {day})
                    when first = day * {day} then held end as held
                from filled),
            parts as (
                select {_KEY}, day, held // {day} as whole, held % {day} as rest from sums)
            select {_KEY}, day * {day} as start, whole + case
                when 2 * rest > {day} or (2 * rest = {day} and whole % 2 = 1) then 1
                else 0 end as average
            from parts""")

    def summaries(self) -> pa.Table:
        return self._ask(f"""
            with bounds as (
                select min(timestamp) as since, max(timestamp) + 1 as until from changes),
            steps as materialized (
                select *, balance - before as delta, peak - balance as depth,
                    coalesce(after, until) - timestamp as held
                from (
                    select *, lag(balance) over account as before,
                        lead(timestamp) over account as after, max(balance) over account as peak
                    from changes window account as {_WINDOW})
                cross join bounds),
            sums as (
                select {_KEY}, min(timestamp) as first_seen, max(timestamp) as last_seen,
                    count(*) as rows, count(*) filter (delta <> 0) as changes,
                    arg_max(balance, timestamp) as closing,
                    min(balance) as minimum, max(balance) as maximum,
                    coalesce(sum(case when delta > 0 then delta end), 0) as inflow,
                    coalesce(sum(delta), 0) as net, max(depth) as deepest,
                    sum(held) as known, coalesce(sum(held) filter (balance = 0), 0) as zero,
                    sum((balance >> {SPLIT}) * held) as high,
                    sum((balance & {2**SPLIT - 1}) * held) as low
                from steps group by {_KEY}),
            firsts as (
                select {_KEY}, min(timestamp) filter (balance = minimum) as minimum_at,
                    min(timestamp) filter (balance = maximum) as maximum_at,
                    min(timestamp) filter (depth = deepest and depth > 0) as drawdown_at
                from steps join sums using ({_KEY}) group by {_KEY}),
            parts as (
                select *, high // known as most, (high % known << {SPLIT}) + low as less
                from sums join firsts using ({_KEY}) cross join bounds),
            wholes as (
                select *, (most << {SPLIT}) + less // known as whole, less % known as rest
                from parts)
            select {_KEY}, first_seen, last_seen, rows, changes, closing, minimum, maximum,
                minimum_at, maximum_at, inflow, inflow - net as outflow, net,
                case when first_seen = since then whole + case
                    when 2 * rest > known or (2 * rest = known and whole % 2 = 1) then 1
                    else 0 end end as average,
                deepest as drawdown, drawdown_at, zero / known as zero_share
            from wholes""")


_T, _B = pl.col("timestamp"), pl.col("balance")
_IS_SAME: Final = pl.all_horizontal(
    pl.col(name) == pl.col(name).shift() for name in reversed(ACCOUNT_KEY)
)
_IS_NEXT_SAME: Final = pl.all_horizontal(
    pl.col(name) == pl.col(name).shift(-1) for name in reversed(ACCOUNT_KEY)
)
_DELTA: Final = pl.when(_IS_SAME).then(_B.diff())
_NEXT: Final = pl.when(_IS_NEXT_SAME).then(_T.shift(-1))
_NUMBER: Final = (~_IS_SAME.fill_null(value=True)).cum_sum().cast(pl.Int64)


class Polars:
    """Polars, from a frame of its own to another."""

    def __init__(self, rows: pa.Table, hour: int = HOUR, day: int = DAY) -> None:
        self.hour, self.day = hour, day
        frame = pl.from_arrow(rows).with_columns(
            pl.col(ACCOUNT_KEY).cast(pl.String), _T.cast(pl.Int64), _B.cast(pl.Int128)
        )
        self.rows = frame.with_columns(
            pl.col(name).cast(pl.Enum(frame[name].unique().sort())) for name in ACCOUNT_KEY
        ).rechunk()

    def _ordered(self) -> pl.LazyFrame:
        """Return the rows in order; where they are not, sorted by one number."""
        rising = _T.diff() > 0
        for name in reversed(ACCOUNT_KEY):
            column = pl.col(name).to_physical()
            rising = (column > column.shift()) | ((column == column.shift()) & rising)
        if self.rows.select(rising.all()).item():
            return self.rows.lazy()
        sizes = [len(self.rows.schema[name].categories) for name in ACCOUNT_KEY]
        kind = pl.UInt64 if math.prod(sizes) * (UNTIL - SINCE) < 2**64 else pl.Int128
        number = pl.lit(0, kind)
        for name, size in zip(ACCOUNT_KEY, sizes, strict=True):
            number = number * size + pl.col(name).to_physical().cast(kind)
        place = number * (UNTIL - SINCE) + (_T - SINCE).cast(kind)
        return self.rows.lazy().sort(place).collect().lazy()

    def series(self) -> pl.DataFrame:
        rows = self._ordered()
        cells = _accounts(rows).join(_points("timestamp", self.hour), how="cross")
        return (
            cells.drop("number")
            .join_asof(rows, on="timestamp", by=ACCOUNT_KEY, check_sortedness=False)
            .collect(engine="streaming")
        )

    def series_packed(self) -> pl.DataFrame:
        """Return the same by one sorted key that stands for account and time."""
        ordered = self._ordered()
        cells = _accounts(ordered).join(
            _points("timestamp", self.hour), how="cross", maintain_order="left_right"
        )
        rows = ordered.select(_packed(_NUMBER, _T), "balance", number=_NUMBER)
        is_own = pl.col("number") == pl.col("number_right")
        return (
            cells.with_columns(_packed(pl.col("number"), _T))
            .join_asof(rows, on="packed")
            .select(*ACCOUNT_KEY, "timestamp", balance=pl.when(is_own).then(_B))
            .collect()
        )

    def totals(self) -> pl.DataFrame:
        hour, known = pl.col("hour"), pl.col("known")
        moves = (
            self._ordered()
            .select(*GROUP, "balance", delta=_DELTA, hour=(_T + HOUR - 1) // HOUR)
            .group_by(*GROUP, "hour")
            .agg(
                total=pl.col("delta").fill_null(_B).sum(),
                known=pl.col("delta").null_count().cast(pl.Int64),
            )
            .collect(engine="streaming")
            .lazy()
        )
        cells = moves.group_by(GROUP).agg(accounts=known.sum())
        hours = _points("hour", HOUR).select(hour // HOUR)
        return (
            cells.join(hours, how="cross")
            .join(moves, on=[*GROUP, "hour"], how="left")
            .sort(*GROUP, "hour")
            .with_columns(pl.col("total", "known").fill_null(0).cum_sum().over(GROUP))
            .select(
                *GROUP,
                timestamp=hour * HOUR,
                total=pl.when(known > 0).then("total"),
                known=known,
                unknown=pl.col("accounts") - known,
            )
            .collect(engine="streaming")
        )

    def deltas(self) -> pl.DataFrame:
        return self._ordered().with_columns(delta=_DELTA).collect(engine="streaming")

    def flows(self) -> pl.DataFrame:
        """Return the differences of the running sums where an account's day ends."""
        delta, day = pl.col("delta"), pl.col("day")
        sums = {
            "inflow": delta.clip(lower_bound=0).fill_null(0),
            "net": delta.fill_null(0),
            "changes": (delta != 0).fill_null(value=False).cast(pl.Int64),
            "unknown": delta.is_null().cast(pl.Int64),
        }
        is_last = ~(_IS_NEXT_SAME & (day == day.shift(-1))).fill_null(value=False)
        return (
            self._ordered()
            .select(*ACCOUNT_KEY, delta=_DELTA, day=_T // DAY)
            .with_columns(is_last.alias("is_last"), **{k: v.cum_sum() for k, v in sums.items()})
            .filter("is_last")
            .select(
                *ACCOUNT_KEY,
                (day * DAY).alias("start"),
                *(pl.col(name) - pl.col(name).shift(fill_value=0) for name in sums),
            )
            .with_columns(
                outflow=pl.col("inflow") - pl.col("net"),
                active=(pl.col("changes") > 0).cast(pl.Int64),
            )
            .collect(engine="streaming")
        )

    def averages(self) -> pl.DataFrame:
        """Return the differences of running integrals, whose overflows cancel out."""
        start, number = pl.col("start"), pl.col("number")
        ordered, end = self._ordered(), UNTIL + self.day
        edges = _accounts(ordered).join(
            _points("start", self.day, until=end), how="cross", maintain_order="left_right"
        )
        rows = ordered.select(
            _packed(_NUMBER, _T),
            _T,
            _B,
            number=_NUMBER,
            integral=(_B * (_NEXT.fill_null(_T) - _T)).cum_sum().shift(fill_value=0),
        )
        held = pl.col("integral") + _B * (start - _T)
        return (
            edges.with_columns(_packed(number, start))
            .join_asof(rows, on="packed")
            .with_columns(held=pl.when(number == pl.col("number_right")).then(held))
            .with_columns(held=pl.col("held").shift(-1) - pl.col("held"))
            .filter(start < UNTIL)
            .select(*ACCOUNT_KEY, start, average=_rounded(pl.col("held"), pl.lit(self.day)))
            .collect()
        )

    def summaries(self) -> pl.DataFrame:
        until = self.rows["timestamp"].max() + 1
        delta, depth, held = pl.col("delta"), pl.col("depth"), pl.col("held")
        known, high, low = pl.col("known"), pl.col("high"), pl.col("low")
        steps = (
            self._ordered()
            .with_columns(number=_NUMBER.set_sorted(), delta=_DELTA, after=_NEXT)
            .with_columns(
                depth=_B.cum_max().over("number") - _B,
                held=pl.col("after").fill_null(until) - _T,
                inflow=delta.clip(lower_bound=0),
            )
            .with_columns(
                high=_B // 2**SPLIT * held,
                low=_B % 2**SPLIT * held,
                zero=pl.when(_B == 0).then(held).otherwise(0),
            )
        )
        sums = steps.group_by("number").agg(
            pl.col(ACCOUNT_KEY).first(),
            first_seen=_T.first(),
            last_seen=_T.last(),
            rows=pl.len(),
            changes=(delta != 0).sum(),
            closing=_B.last(),
            minimum=_B.min(),
            maximum=_B.max(),
            minimum_at=_T.get(_B.arg_min()),
            maximum_at=_T.get(_B.arg_max()),
            inflow=pl.col("inflow").sum(),
            net=delta.sum(),
            drawdown=depth.max(),
            drawdown_at=_T.get(depth.arg_max()),
            known=held.sum(),
            zero=pl.col("zero").sum(),
            high=high.sum(),
            low=low.sum(),
        )
        rest = (high % known) * 2**SPLIT + low
        average = (high // known) * 2**SPLIT + _rounded(rest, known)
        return sums.select(
            *ACCOUNT_KEY,
            *("first_seen", "last_seen", "rows", "changes", "closing", "minimum", "maximum"),
            *("minimum_at", "maximum_at", "inflow", "net", "drawdown"),
            outflow=pl.col("inflow") - pl.col("net"),
            average=pl.when(pl.col("first_seen") == pl.col("first_seen").min()).then(average),
            drawdown_at=pl.when(pl.col("drawdown") > 0).then("drawdown_at"),
            zero_share=pl.col("zero") / known,
        ).collect()


def _accounts(rows: pl.LazyFrame) -> pl.LazyFrame:
    heads = rows.filter(~_IS_SAME.fill_null(value=False))
    return (
        heads.select(ACCOUNT_KEY)
        .with_row_index("number")
        .with_columns(pl.col("number").cast(pl.Int64))
    )


def _points(name: str, step: int, until: int = UNTIL) -> pl.LazyFrame:
    return (
        pl.int_range(SINCE, until, step, dtype=pl.Int64, eager=True).alias(name).to_frame().lazy()
    )


def _packed(number: pl.Expr, time: pl.Expr) -> pl.Expr:
    return (number * 2**46 + (time - SINCE)).set_sorted().alias("packed")


def _rounded(amount: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    whole, rest = amount // divisor, amount % divisor
    is_up = (2 * rest > divisor) | ((2 * rest == divisor) & (whole % 2 == 1))
    return whole + is_up.cast(pl.Int128)


class Pandas:
    """pandas with floats, which lose digits."""

    def __init__(self, rows: pa.Table) -> None:
        self.table = to_frame(rows, sort=False)
        self.table["balance"] = self.table["balance"].astype("float64")

    def series(self) -> pd.DataFrame:
        key = ACCOUNT_KEY
        since, until = (pd.Timestamp(moment, unit="us", tz="UTC") for moment in (SINCE, UNTIL))
        grid = pd.date_range(since, until, freq="1h", inclusive="left", name="timestamp")
        hours = self.table.assign(timestamp=self.table["timestamp"].dt.ceil("1h"))
        last = hours.groupby([*key, "timestamp"], observed=True)["balance"].last()
        wide = last.unstack(key).reindex(grid).ffill()
        return wide.T.stack(future_stack=True).rename("balance").reset_index()


ENGINES: Final[dict[str, Callable[..., Any]]] = {
    "ours": Ours,
    "DuckDB": DuckDB,
    "Polars": Polars,
    "pandas": Pandas,
}


def to_exact(result: pd.DataFrame | pl.DataFrame | pa.Table) -> pa.Table:
    """Return any result as Arrow with plain types, sorted by ids and time.

    Ids are strings, times 64-bit microseconds, counts 64-bit, amounts decimal128(38, 0).
    """
    if isinstance(result, pl.DataFrame):
        amounts = [name for name, kind in result.schema.items() if kind == pl.Int128]
        result = result.with_columns(pl.col(amounts).cast(pl.Decimal(38, 0))).to_arrow()
    elif isinstance(result, pd.DataFrame):
        result = pa.Table.from_pandas(result, preserve_index=False)
    columns = {name: _plain(name, result[name]) for name in result.column_names}
    order = [name for name in (*ACCOUNT_KEY, "timestamp", "start") if name in columns]
    return pa.table(columns).sort_by([(name, "ascending") for name in order]).combine_chunks()


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if name in ACCOUNT_KEY:
        return column.cast(pa.string())
    if pa.types.is_floating(column.type) or name == "state":
        return column
    is_amount = name in AMOUNTS
    return column.cast(pa.decimal128(38, 0) if is_amount else pa.int64())
