from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.feather
import pytest

pytest.importorskip("polars")

from balance_analysis.frame import to_arrow
from balance_analysis.schema import ACCOUNT_KEY
from tests.benchmarks.engines import ENGINES, to_exact
from tests.benchmarks.levels import make_table
from tests.benchmarks.races import ACCOUNTS, QUARTER, RACES, ROWS, SERIES, WORKS, title
from tests.benchmarks.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def rows():
    return to_arrow(make_table(20_000, 200))


@pytest.fixture(scope="module")
def small(rows):
    return {name: engine(rows) for name, engine in ENGINES.items()}


@pytest.mark.parametrize("name", ["DuckDB", "Polars"])
@pytest.mark.parametrize("work", WORKS.values())
def test_the_engines_find_the_same(work, name, small):
    ours = to_exact(getattr(small["ours"], work)())
    theirs = to_exact(getattr(small[name], work)())

    assert set(ours.column_names) - set(theirs.column_names) <= {"end", "state", "opening"}
    for column in theirs.column_names:
        assert theirs[column].equals(ours[column]), column


def test_the_other_series_are_the_same(small):
    ours = to_exact(small["ours"].series())
    packed = to_exact(small["Polars"].series_packed())
    floats = to_exact(small["pandas"].series())
    wide = small["ours"].series_wide()
    stacked = pa.concat_arrays([pa.array(wide.iloc[:, n]) for n in range(wide.shape[1])])

    assert packed.equals(ours.select(packed.column_names))
    assert floats.select([*ACCOUNT_KEY, "timestamp"]).equals(
        ours.select([*ACCOUNT_KEY, "timestamp"])
    )
    balances = ours["balance"].to_pylist()
    assert floats["balance"].to_pylist() == [held and float(held) for held in balances]
    assert stacked.equals(ours["balance"].combine_chunks())


@pytest.mark.parametrize("name", ["DuckDB", "Polars"])
@pytest.mark.parametrize("work", ["totals", "deltas", "flows", "averages"])
def test_an_engine_that_relies_on_an_order_checks_it(work, name, rows):
    swapped = pa.concat_tables([rows.slice(0, 1000), rows.slice(1001), rows.slice(1000, 1)])

    with pytest.raises(ValueError, match="not in order"):
        getattr(ENGINES[name](swapped), work)()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("reconstruct")
    files = {}
    for count in (ROWS, QUARTER):
        rows = to_arrow(make_table(count, ACCOUNTS))
        files[count] = folder / f"{count}.arrow"
        pyarrow.feather.write_feather(rows, files[count], compression="uncompressed")
    return files


@pytest.fixture(scope="module")
def workers(files) -> Iterator[dict[str, Worker]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Worker(name, files[ROWS])) for name in ENGINES} | {
            "fewer": stack.enter_context(Worker("ours", files[QUARTER]))
        }


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize(
    ("name", "contestant"), [(name, contestant) for name in RACES for contestant in RACES[name]]
)
def test_a_work_takes_some_time(name, contestant, workers, report):
    worker, work = RACES[name][contestant]

    report.add(title(name), contestant, workers[worker].time(work))


@pytest.mark.parametrize(("name", "work"), [*WORKS.items(), (f"{SERIES}, wide", "series_wide")])
def test_a_work_holds_some_memory(name, work, files, report):
    with Worker("ours", files[ROWS]) as worker:
        report.weights[name] = worker.weigh(work)
