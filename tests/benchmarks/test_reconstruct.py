from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

pytest.importorskip("polars")

from balance_analysis.frame import to_arrow
from balance_analysis.schema import ACCOUNT_KEY
from tests.benchmarks.engines import ENGINES, to_exact
from tests.benchmarks.levels import DAY, make_table
from tests.benchmarks.races import (
    ACCOUNTS,
    DUCKDB,
    OURS,
    POLARS,
    QUARTER,
    RACES,
    ROWS,
    SERIES,
    SHAPES,
    WORKS,
    title,
)
from tests.benchmarks.workers import Worker, copy_rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NINE_DAYS = 9 * DAY
"""The steps of the series and the averages of many accounts."""

AGAINST = {"ours": OURS, "DuckDB": DUCKDB, "Polars": POLARS}


def make_rows(count, accounts, *, is_ordered):
    rows = to_arrow(make_table(count, accounts))
    order = np.random.default_rng(3).permutation(count)
    return rows if is_ordered else rows.take(pa.array(order))


def steps_of(shape):
    return () if SHAPES[shape][0] == ACCOUNTS else (NINE_DAYS, NINE_DAYS)


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.strip(", ") or "usual")
def small(request):
    accounts, is_ordered = SHAPES[request.param]
    rows = make_rows(20_000, accounts // 25, is_ordered=is_ordered)
    return {name: ENGINES[name](rows, *steps_of(request.param)) for name in AGAINST}


@pytest.mark.parametrize("name", ["DuckDB", "Polars"])
@pytest.mark.parametrize("work", WORKS.values())
def test_the_engines_find_the_same(work, name, small):
    ours = to_exact(getattr(small["ours"], work)())
    theirs = to_exact(getattr(small[name], work)())

    assert set(ours.column_names) - set(theirs.column_names) <= {"end", "state", "opening"}
    for column in theirs.column_names:
        assert theirs[column].equals(ours[column]), column


def test_the_other_series_are_the_same():
    rows = make_rows(20_000, 200, is_ordered=True)
    engine = ENGINES["ours"](rows)
    ours = to_exact(engine.series())
    packed = to_exact(ENGINES["Polars"](rows).series_packed())
    floats = to_exact(ENGINES["pandas"](rows).series())
    wide = engine.series_wide()
    stacked = pa.concat_arrays([pa.array(wide.iloc[:, n]) for n in range(wide.shape[1])])

    assert packed.equals(ours.select(packed.column_names))
    assert floats.select([*ACCOUNT_KEY, "timestamp"]).equals(
        ours.select([*ACCOUNT_KEY, "timestamp"])
    )
    balances = ours["balance"].to_pylist()
    assert floats["balance"].to_pylist() == [held and float(held) for held in balances]
    assert stacked.equals(ours["balance"].combine_chunks())


def write_rows(file, *shape, **order):
    pyarrow.feather.write_feather(make_rows(*shape, **order), file, compression="uncompressed")


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> Path:
    """All rows of the usual shape."""
    file = tmp_path_factory.mktemp("reconstruct") / "usual.arrow"
    write_rows(file, ROWS, ACCOUNTS, is_ordered=True)
    return file


@pytest.fixture(scope="module")
def workers(request, usual, tmp_path_factory) -> Iterator[dict[str, Worker]]:
    """The engines with the rows of a shape; of the usual one, one more has a quarter of them."""
    accounts, is_ordered = SHAPES[request.param]
    file, steps = tmp_path_factory.mktemp("shape") / "rows.arrow", steps_of(request.param)
    if request.param:
        write_rows(file, ROWS, accounts, is_ordered=is_ordered)
        started = {name: Worker(name, file, *steps) for name in AGAINST}
    else:
        write_rows(file, QUARTER, accounts, is_ordered=is_ordered)
        started = {name: Worker(name, usual) for name in ENGINES} | {"fewer": Worker("ours", file)}
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(worker) for name, worker in started.items()}
    file.unlink()


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize(
    ("shape", "workers"),
    [(shape, shape) for shape in SHAPES],
    indirect=["workers"],
    scope="module",
)
def test_a_work_takes_some_time(name, shape, workers, report, rounds):
    every = RACES[name]
    if shape:
        every = {contestant: every[contestant] for contestant in AGAINST.values()}
    report.copy_rates.append(copy_rate())
    for _ in range(-(-rounds // 2) if shape else rounds):
        for contestant, (worker, work) in every.items():
            for cost in workers[worker].time(work):
                report.add(title(name, shape), contestant, cost)
    report.touched[title(name, shape)] = workers["ours"].touched


@pytest.mark.parametrize(("name", "work"), [*WORKS.items(), (f"{SERIES}, wide", "series_wide")])
def test_a_work_holds_some_memory(name, work, usual, report):
    with Worker("ours", usual) as worker:
        report.weights[name] = worker.weigh(work)
