"""Reconstructions of 5,000,000 rows beside what a user would write in Polars and DuckDB.

Both engines hold the rows in their own memory, with enums for ids and 128-bit integers for
balances. Each result is compared with this package's on a small table before anything is timed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import balance_analysis as ba
from balance_analysis.table.frame import to_arrow, to_frame
from balance_analysis.table.schema import ACCOUNT_KEY
from tests.benchmarks.figures import Figure, ratios, seconds
from tests.benchmarks.levels import DAY, HOUR, SINCE, UNTIL, make_table

ROWS = 5_000_000
ACCOUNTS = 5000
GROUP = ("asset_id", "account_type")
COLUMNS = ("first_seen", "last_seen", "rows", "changes", "closing", "minimum", "maximum", "net")
FASTER = 3
"""How many times as long the others should take; for summaries at least as long."""

AT_MOST = {"compare": 0.1, "summaries of parties": 0.5}
"""Goals in seconds for 2,000,000 rows."""


Works = dict[str, "Callable[[], Any]"]
"""What to call for each work."""


def ours(rows: pa.Table) -> Works:
    """Return the works of this package."""
    table = to_frame(rows, sort=False)
    since, until = (pd.Timestamp(moment, unit="us", tz="UTC") for moment in (SINCE, UNTIL))
    within: Any = {"start": since, "end": until}
    return {
        "series": lambda: ba.balance_series(table, freq="1h", layout="long", **within),
        "totals": lambda: ba.totals(table, by=GROUP, freq="1h", **within),
        "deltas": lambda: ba.deltas(table),
        "flows": lambda: ba.flows(table, freq="1D", **within),
        "averages": lambda: ba.time_weighted_average(table, freq="1D", **within),
        "summaries": lambda: ba.summarize_accounts(table, columns=COLUMNS),
    }


_KEY = ", ".join(ACCOUNT_KEY)
_ACCOUNT = f"(partition by {_KEY} order by timestamp)"
_LAG = f"(select *, balance - lag(balance) over {_ACCOUNT} as delta from changes)"


def _at_every(step: int) -> str:
    same = " and ".join(f"cells.{name} = changes.{name}" for name in ACCOUNT_KEY)
    return f"""
        select cells.*, balance from (
            select {_KEY}, unnest(range({SINCE}, {UNTIL}, {step})) as timestamp
            from (select distinct {_KEY} from changes)) as cells
        asof left join changes on {same} and cells.timestamp >= changes.timestamp"""


_QUERIES = {
    "series": _at_every(HOUR),
    "totals": f"""
        select {", ".join(GROUP)}, timestamp, sum(balance) as total,
            count(balance) as known, count(*) - count(balance) as unknown
        from ({_at_every(HOUR)}) group by all""",
    "deltas": f"select * from {_LAG}",
    "flows": f"""
        select {_KEY}, timestamp // {DAY} * {DAY} as start,
            coalesce(sum(delta) filter (delta > 0), 0) as inflow,
            coalesce(-sum(delta) filter (delta < 0), 0) as outflow,
            coalesce(sum(delta), 0) as net, count(*) filter (delta <> 0) as changes
        from {_LAG} group by {_KEY}, start""",
    "averages": f"""
        with steps as (
            select {_KEY}, timestamp, balance from changes
            union by name ({_at_every(DAY)})),
        held as (
            select *, timestamp // {DAY} * {DAY} as start,
                coalesce(lead(timestamp) over {_ACCOUNT}, {UNTIL}) - timestamp as duration
            from steps),
        sums as (
            select {_KEY}, start, sum(balance * duration) as integral,
                count(*) = count(balance) as is_known
            from held group by {_KEY}, start)
        select {_KEY}, start, case when is_known then integral // {DAY} + case
            when 2 * (integral % {DAY}) + integral // {DAY} % 2 > {DAY} then 1 else 0 end
            end as average
        from sums""",
    "summaries": f"""
        select {_KEY}, min(timestamp) as first_seen, max(timestamp) as last_seen,
            count(*) as rows, count(*) filter (delta <> 0) as changes,
            arg_max(balance, timestamp) as closing, min(balance) as minimum,
            max(balance) as maximum, coalesce(sum(delta), 0) as net
        from {_LAG} group by {_KEY}""",
}


def in_duckdb(rows: pa.Table) -> Works:
    """Return the works of DuckDB, from a table of its own to Arrow."""
    connection = duckdb.connect()
    connection.register("rows", rows)
    for name in ACCOUNT_KEY:
        ids = f"select distinct {name}::varchar from rows order by 1"
        connection.execute(f"create type {name}_enum as enum ({ids})")
    ids = ", ".join(f"{name}::{name}_enum as {name}" for name in ACCOUNT_KEY)
    connection.execute(
        f"create table changes as select {ids}, epoch_us(timestamp) as timestamp,"
        " balance::hugeint as balance from rows"
    )
    connection.unregister("rows")
    return {
        work: lambda query=query: connection.sql(query).to_arrow_table()
        for work, query in _QUERIES.items()
    }


_T, _B, _DELTA = pl.col("timestamp"), pl.col("balance"), pl.col("delta")


def in_polars(given: pa.Table) -> Works:
    """Return the reconstructions in Polars, each from a frame to a frame."""
    frame = pl.from_arrow(given).with_columns(
        pl.col(ACCOUNT_KEY).cast(pl.String), _T.cast(pl.Int64), _B.cast(pl.Int128)
    )
    enums = (pl.col(name).cast(pl.Enum(frame[name].unique().sort())) for name in ACCOUNT_KEY)
    rows = frame.with_columns(enums).rechunk().lazy()
    deltas = rows.with_columns(delta=_B - _B.shift().over(ACCOUNT_KEY, order_by="timestamp"))

    def at_every(step: int) -> pl.LazyFrame:
        times = pl.int_range(SINCE, UNTIL, step, dtype=pl.Int64, eager=True).alias("timestamp")
        accounts = rows.select(ACCOUNT_KEY).unique()
        cells = accounts.join(times.to_frame().lazy(), how="cross").sort("timestamp")
        by_time = rows.sort("timestamp")
        return cells.join_asof(by_time, on="timestamp", by=ACCOUNT_KEY, check_sortedness=False)

    sums = {"total": _B.sum(), "known": _B.count(), "unknown": _B.null_count()}
    hours = at_every(HOUR).group_by(*GROUP, "timestamp").agg(**sums)
    flows = deltas.group_by(*ACCOUNT_KEY, start=_T // DAY * DAY).agg(
        inflow=_DELTA.filter(_DELTA > 0).sum(), net=_DELTA.sum(), changes=(_DELTA != 0).sum()
    )
    cells = at_every(DAY).select(*ACCOUNT_KEY, "timestamp", "balance")
    until = _T.shift(-1).over(ACCOUNT_KEY, order_by="timestamp").fill_null(UNTIL)
    held = pl.concat([rows, cells]).unique([*ACCOUNT_KEY, "timestamp"])
    held = held.with_columns(duration=until - _T, start=_T // DAY * DAY)
    integrals = held.group_by(*ACCOUNT_KEY, "start").agg(
        integral=(_B * pl.col("duration")).sum(), gaps=_B.null_count()
    )
    whole, rest = pl.col("integral") // DAY, pl.col("integral") % DAY
    rounded = whole + (2 * rest + whole % 2 > DAY).cast(pl.Int128)
    average = pl.when(pl.col("gaps") == 0).then(rounded)
    summaries = deltas.group_by(ACCOUNT_KEY).agg(
        first_seen=_T.min(),
        last_seen=_T.max(),
        rows=pl.len(),
        changes=(_DELTA != 0).sum(),
        closing=_B.sort_by("timestamp").last(),
        minimum=_B.min(),
        maximum=_B.max(),
        net=_DELTA.sum(),
    )
    return {
        "series": at_every(HOUR).collect,
        "totals": hours.with_columns(total=pl.when(pl.col("known") > 0).then("total")).collect,
        "deltas": deltas.collect,
        "flows": flows.with_columns(outflow=pl.col("inflow") - pl.col("net")).collect,
        "averages": integrals.select(*ACCOUNT_KEY, "start", average=average).collect,
        "summaries": summaries.collect,
    }


OTHERS = {"DuckDB": in_duckdb, "Polars": in_polars}


def plain(result: Any) -> pa.Table:
    """Return any result as Arrow, ids as text, in the order of accounts and times."""
    if isinstance(result, pl.DataFrame):
        wide = [name for name, kind in result.schema.items() if kind == pl.Int128]
        result = result.with_columns(pl.col(wide).cast(pl.Decimal(38, 0))).to_arrow()
    elif isinstance(result, pd.DataFrame):
        result = pa.Table.from_pandas(result, preserve_index=False)
    for place, name in enumerate(result.column_names):
        if name in ACCOUNT_KEY:
            result = result.set_column(place, name, result[name].cast(pa.string()))
    order = [name for name in (*ACCOUNT_KEY, "timestamp", "start") if name in result.column_names]
    return result.sort_by([(name, "ascending") for name in order]).combine_chunks()


def check_results() -> None:
    """Fail unless all engines find the same, value for value, on a small table."""
    rows = to_arrow(make_table(20_000, 200))
    rows = rows.take(pa.array(np.random.default_rng(3).permutation(len(rows))))
    for work, own in ours(rows).items():
        expected = plain(own())
        for engine, works in OTHERS.items():
            theirs = plain(works(rows)[work]())
            for name in theirs.column_names:
                if not theirs[name].cast(expected[name].type).equals(expected[name]):
                    raise RuntimeError(f"{engine} has another {name} in {work}")


def measure(_: Path, rounds: int) -> Iterator[Figure]:
    """Yield the seconds of each work, and how many times as long the others take."""
    check_results()
    for shape, accounts in (("", ACCOUNTS), (", 500,000 accounts", 100 * ACCOUNTS)):
        rows = to_arrow(make_table(ROWS, accounts))
        own, others = ours(rows), {name: works(rows) for name, works in OTHERS.items()}
        for work in ("deltas", "flows", "summaries") if shape else own:
            took, name = seconds(own[work], rounds), f"{work}, {ROWS:,} rows{shape}"
            yield Figure(name, took, "s")
            for engine, works in others.items():
                theirs = seconds(works[work], rounds)
                times, least = ratios(theirs, took), 1 if work == "summaries" else FASTER
                yield Figure(f"{name}: {engine} / ours", times, "times", at_least=least)
    table = make_table(2_000_000, ACCOUNTS)
    moments = pd.Timestamp("2023-05-01", tz="UTC"), pd.Timestamp("2023-06-01", tz="UTC")
    works = lambda: ba.compare(table, at=moments), lambda: ba.summarize_parties(table)
    for (name, most), work in zip(AT_MOST.items(), works, strict=True):
        yield Figure(f"{name}, 2,000,000 rows", seconds(work, rounds), "s", at_most=most)
