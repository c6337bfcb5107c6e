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
MORE_SHAPES = [shape for shape in SHAPES if shape]


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
def files(tmp_path_factory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("reconstruct")
    files = {count: folder / f"{count}.arrow" for count in (ROWS, QUARTER)}
    for count, file in files.items():
        write_rows(file, count, ACCOUNTS, is_ordered=True)
    return files


@pytest.fixture(scope="module")
def workers(files) -> Iterator[dict[str, Worker]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Worker(name, files[ROWS])) for name in ENGINES} | {
            "fewer": stack.enter_context(Worker("ours", files[QUARTER]))
        }


@pytest.fixture(scope="module")
def workers_of_shape(request, tmp_path_factory) -> Iterator[dict[str, Worker]]:
    accounts, is_ordered = SHAPES[request.param]
    file = tmp_path_factory.mktemp("shape") / "rows.arrow"
    write_rows(file, ROWS, accounts, is_ordered=is_ordered)
    with contextlib.ExitStack() as stack:
        steps = steps_of(request.param)
        yield {name: stack.enter_context(Worker(name, file, *steps)) for name in AGAINST}
    file.unlink()


def time_work(report, group, contestant, worker, work):
    report.add(group, contestant, worker.time(work))
    if contestant == OURS:
        report.touched[group] = worker.touched


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize(
    ("name", "contestant"), [(name, contestant) for name in RACES for contestant in RACES[name]]
)
def test_a_work_takes_some_time(name, contestant, workers, report):
    worker, work = RACES[name][contestant]

    report.copy_rates.append(copy_rate())
    time_work(report, title(name), contestant, workers[worker], work)


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize(
    ("shape", "workers_of_shape"),
    [(shape, shape) for shape in MORE_SHAPES],
    indirect=["workers_of_shape"],
)
def test_a_work_on_another_shape_takes_some_time(name, shape, workers_of_shape, report, rounds):
    for _ in range(-(-rounds // 2)):
        for worker, contestant in AGAINST.items():
            group = title(name, shape)
            time_work(report, group, contestant, workers_of_shape[worker], WORKS[name])


@pytest.mark.parametrize(("name", "work"), [*WORKS.items(), (f"{SERIES}, wide", "series_wide")])
def test_a_work_holds_some_memory(name, work, files, report):
    with Worker("ours", files[ROWS]) as worker:
        report.weights[name] = worker.weigh(work)
