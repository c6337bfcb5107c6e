"""What differs between two histories is found, whatever holds them, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import DAY, END, START, loaded, node_of, run_export, spread_history
from tests.cli.running import fails, run
from tests.cluster.archives import write_archive
from tests.columns import ATTRS_KEY
from tests.moments import from_microseconds, moment_text
from tests.node.truth import lines_of_table
from tests.segments.writer import write_segments

ROWS = spread_history(11, rows=160)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
SPAN = {"start": TIMES[0], "end": TIMES[-1] + 1}
KINDS = ["archive", "hours", "months", "file", "written", "table", "node", "segments"]
FORMS = st.sampled_from(["day", "month", "hour", "table", "file"])


def balances(rows):
    return {(*row.account, row.timestamp_ns // 1000): int(row.balance) for row in rows}


def naive(ours, theirs):
    """Return what differs between balances by account and time, as (place, balance, other)."""
    return {
        (at, ours.get(at), theirs.get(at)) for at in ours | theirs if ours.get(at) != theirs.get(at)
    }


def found_in(difference):
    """Return the rows that a difference tells, in the same form."""
    rows = difference.rows.astype({"timestamp": "int64"}).to_dict("records")
    kinds = {(True, False): "removed", (False, True): "added", (True, True): "changed"}
    for row in rows:
        is_there = pd.notna(row["balance"]), pd.notna(row["other_balance"])
        assert row["change"] == kinds[is_there]
    return {
        (
            (*(row[name] for name in ba.ACCOUNT_KEY), row["timestamp"]),
            *(None if pd.isna(row[x]) else int(row[x]) for x in ("balance", "other_balance")),
        )
        for row in rows
    }


def table_of(rows):
    with node_of(rows, head=END) as node:
        return loaded(node, START, END)


@pytest.fixture(scope="module")
def changed():
    """The history with a row less, one more, and another balance, on three days."""
    first, second, third, *_ = [ROWS[len(ROWS) * n // 4] for n in range(1, 4)]
    rows = [row for row in ROWS if row != first]
    rows[rows.index(second)] = replace(second, balance=int(second.balance) + 1)
    return [*rows, replace(third, timestamp_ns=third.timestamp_ns + 1000)]


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Return a function that gives a history in one of several forms, which stay."""
    folder = tmp_path_factory.mktemp("diff")
    nodes, made = [], {}

    def give(rows, kind):
        key = (len(made), kind)
        path = folder / f"{len(made)}-{kind}"
        made[key] = path
        if kind == "segments":
            write_segments(path, rows)
            return path
        node = node_of(rows, head=END).__enter__()
        nodes.append(node)
        if kind == "node":
            return node.url
        if kind in {"archive", "hours", "months"}:
            partition = {"archive": "day"}.get(kind, kind.removesuffix("s"))
            run_export(node, path, **SPAN, partition=partition)
            return path
        bounds = {name: from_microseconds(at) for name, at in SPAN.items()}
        with ba.Client(node.url) as client:
            if kind == "file":
                ba.load_to_parquet(client, f"{path}.parquet", **bounds, page_size=7)
                return f"{path}.parquet"
            table = ba.load_balance_changes(client, **bounds)
        if kind == "table":
            return table
        ba.write_parquet(table, f"{path}.parquet")
        return f"{path}.parquet"

    yield give
    for node in nodes:
        node.__exit__(None, None, None)


@settings(max_examples=15)
@given(data=st.data(), forms=st.tuples(FORMS, FORMS))
def test_the_rows_that_differ_are_those_that_a_plain_comparison_finds(
    tmp_path_factory, data, forms
):
    whole = table_of(ROWS)
    inner = st.sets(st.integers(1, len(whole) - 2), max_size=12)
    sides = []
    times = whole["timestamp"]
    ends = {int(times.argmin()), int(times.argmax())}
    for form in forms:
        gone = sorted(data.draw(inner) - ends)
        other = sorted(data.draw(inner) - {*gone})
        table = whole.copy()
        words = [int(x) + (n in other) for n, x in enumerate(table["balance"])]
        table["balance"] = pd.array(words, dtype=whole["balance"].dtype)
        table = table.drop(index=gone).reset_index(drop=True)
        table.attrs = {}
        source = table
        if form == "file":
            source = tmp_path_factory.mktemp("diff") / "x.parquet"
            ba.write_parquet(table, source)
        elif form != "table":
            source = write_archive(tmp_path_factory.mktemp("diff") / "a", table, form)
        sides.append((source, table))
    (one, ours), (other, theirs) = sides
    found = ba.diff(one, other)

    wanted = naive(*({line[:5]: line[5] for line in lines_of_table(x)} for x in (ours, theirs)))
    assert found_in(found) == wanted
    assert found.days.to_numpy().sum() == len(wanted)
    assert found.is_same == (not wanted)
    assert found.compared == (len(ours), len(theirs))


@pytest.mark.parametrize("kind", KINDS)
def test_histories_are_compared_whatever_holds_them(held, changed, kind):
    one, same = held(ROWS, "archive"), held(ROWS, kind)
    assert ba.diff(one, same).is_same
    assert ba.diff(same, one).is_same

    other = held(changed, kind)
    found = ba.diff(one, other, start=moment_text(TIMES[0]), end=moment_text(TIMES[-1]))
    assert found_in(found) == naive(balances(ROWS), balances(changed))
    assert sorted(found.rows["change"]) == ["added", "changed", "removed"]
    assert sum(1 for _ in found.days.itertuples()) == len(
        {row["timestamp"].date() for row in found.rows.to_dict("records")}
    )


def test_two_nodes_and_two_files_are_compared(held, changed):
    for kind in ("node", "file"):
        found = ba.diff(held(ROWS, kind), held(changed, kind))
        assert found_in(found) == naive(balances(ROWS), balances(changed))


def test_where_one_knows_nothing_no_row_differs_but_knowledge_does(tmp_path, held):
    late = [row for row in ROWS if row.timestamp_ns // 1000 >= TIMES[30]]
    with node_of(late, head=END) as forgetful:
        found = ba.diff(held(ROWS, "archive"), forgetful.url)
        run_export(forgetful, tmp_path / "a", **SPAN)
    assert found.rows.empty
    assert not found.is_same
    span = tuple(map(from_microseconds, (TIMES[0], TIMES[30])))
    assert found.knowledge == ((span, "complete", "unknown"),)
    assert "complete in the first, unknown in the other" in str(found)
    other = ba.diff(held(ROWS, "archive"), tmp_path / "a")
    assert other.knowledge == ((span, "complete", "unproven"),)
    assert set(other.rows["change"]) == {"removed"}


def test_a_table_that_doesnt_tell_what_it_knows_is_taken_as_whole(held):
    table = held(ROWS, "table")
    table.attrs.pop(ATTRS_KEY)
    assert ba.diff(held(ROWS, "node"), table).is_same
    assert len(ba.diff(held(ROWS, "archive"), table.drop(index=[5])).rows) == 1


def test_an_archive_of_some_accounts_is_compared_with_those_of_the_other(tmp_path, held):
    asset = ROWS[0].asset_id
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", **SPAN, asset_id=asset)
        run_export(node, tmp_path / "b", **SPAN, asset_id="f" * 64)
    for kind in KINDS:
        assert ba.diff(tmp_path / "a", held(ROWS, kind)).is_same
    with pytest.raises(ba.ArchiveError, match="bound to different accounts"):
        ba.diff(tmp_path / "a", tmp_path / "b")


def test_a_command_ends_as_diff_does_and_writes_each_row(held, changed, tmp_path):
    one, other = held(ROWS, "archive"), held(changed, "file")
    assert "no difference" in run("diff", one, held(ROWS, "months")).stdout
    told = run("diff", one, other, "-o", tmp_path / "x.csv", code=1).stdout
    written = pd.read_csv(tmp_path / "x.csv", dtype=str)
    assert sorted(written["change"]) == ["added", "changed", "removed"]
    assert told.count(": 1 ") == 3
    day = f"{from_microseconds(TIMES[len(TIMES) // 2] // DAY * DAY):%Y-%m-%d}"
    content = json.loads(run("diff", one, one, "--until", day, "--format=json").stdout)
    assert content["is_same"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{one}", "{folder}/none"), "none"),
        (("{one}", "{folder}/text"), "can't be read as a table"),
        (("{one}", "{one}", "--since", "2023-05-02", "--until", "2023-05-01"), "before"),
        (("{one}", "{one}", "-o", "{one}/x.csv"), "archive"),
        (("{one}", "{one}", "-o", "{folder}/x.abc"), "csv"),
    ],
)
def test_trouble_ends_with_2_and_writes_nothing(held, tmp_path, arguments, said):
    (tmp_path / "text").write_text("no table")
    one = held(ROWS, "archive")
    given_ = [each.format(one=one, folder=tmp_path) for each in arguments]
    assert said in fails("diff", *given_, code=2, folder=tmp_path)


def test_a_side_with_two_rows_of_one_account_and_time_is_refused(held):
    table = held(ROWS, "table")
    twice = pd.concat([table, table[4:5]])
    twice.attrs = table.attrs
    with pytest.raises(ba.CheckError, match="two rows"):
        ba.diff(table, twice)


def test_an_hour_of_which_one_side_has_no_row_differs(held):
    table = held(ROWS, "table")
    hours = table["timestamp"].dt.floor("h")
    inner = hours[~hours.isin([hours.min(), hours.max()])]
    gone = hours == inner.iloc[0]
    part = table[~gone].reset_index(drop=True)
    part.attrs = {}
    for sides, change in (((table, part), "removed"), ((part, table), "added")):
        assert ba.diff(*sides).rows["change"].tolist() == [change] * gone.sum()
