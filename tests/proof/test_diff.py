"""What differs between two histories is found, whatever holds them, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, node_of, run_export, spread_history
from tests.cli.running import fails, run
from tests.moments import from_microseconds, moment_text
from tests.segments.writer import write_segments

ROWS = spread_history(11, rows=160)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
SPAN = {"start": TIMES[0], "end": TIMES[-1] + 1}
KINDS = ["archive", "hours", "months", "file", "written", "table", "node", "segments"]


def balances(rows):
    return {(*row.account, row.timestamp_ns // 1000): int(row.balance) for row in rows}


def naive(ours, theirs):
    """Return what differs between balances by account and time, as (place, balance, other)."""
    return {
        (at, ours.get(at), theirs.get(at)) for at in ours | theirs if ours.get(at) != theirs.get(at)
    }


def found_in(difference):
    """Return the rows of a difference, in the same form."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_histories_are_compared_whatever_holds_them(held, changed, kind):
    one, same = held(ROWS, "archive"), held(ROWS, kind)
    assert ba.diff(one, same).is_same
    assert ba.diff(same, one).is_same

    other = held(changed, kind)
    found = ba.diff(one, other, start=moment_text(TIMES[0]), end=moment_text(TIMES[-1]))
    assert found_in(found) == naive(balances(ROWS), balances(changed))
    assert sorted(found.rows["change"]) == ["added", "changed", "removed"]
    assert all(f"\n{day}: 1 " in str(found) for day in found.rows["timestamp"].dt.date)


def test_two_nodes_and_two_files_are_compared(held, changed):
    for kind in ("node", "file"):
        found = ba.diff(held(ROWS, kind), held(changed, kind))
        assert found_in(found) == naive(balances(ROWS), balances(changed))


def test_what_a_node_does_not_hold_yet_is_not_shared(held):
    middle = TIMES[len(TIMES) // 2]
    early = [row for row in ROWS if row.timestamp_ns // 1000 < middle]
    with node_of(early, head=middle) as behind:
        found = ba.diff(held(ROWS, "archive"), behind.url)
    assert found.rows.empty
    ((span, *states),) = found.not_shared
    assert (span[0], states) == (from_microseconds(middle), ["complete", "missing"])


def test_a_node_is_asked_for_the_accounts_of_the_other_side(tmp_path, held):
    asset = ROWS[0].asset_id
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", **SPAN, asset_id=asset)
        run_export(node, tmp_path / "b", **SPAN, asset_id="f" * 64)
        before = len(node.requests)
        assert ba.diff(tmp_path / "a", node.url).is_same
        asked = [request.params for request in node.requests[before:]]
    assert {"filter.assetId": [asset]}.items() <= asked[0].items()
    found = ba.diff(tmp_path / "a", held(ROWS, "archive"))
    assert (found.is_same, len(found.rows), found.not_shared) == (False, 0, ())
    found = ba.diff(tmp_path / "a", tmp_path / "b")
    assert (found.is_same, found.shared, found.filters) == (False, (), None)
    run("diff", tmp_path / "a", tmp_path / "b", code=3)


def test_a_bad_row_of_a_node_leaves_its_moment_out(held):
    place = len(ROWS) // 2
    with node_of(ROWS, head=END) as node:
        bad = str(ROWS[place].timestamp_ns)
        node.edit_row = lambda row: {**row, "balance": "x"} if row["timestamp"] == bad else row
        found = ba.diff(held(ROWS, "archive"), node.url)
    moment = ROWS[place].timestamp_ns // 1000
    ((span, *states),) = found.not_shared
    assert span == (from_microseconds(moment), from_microseconds(moment + 1))
    assert states == ["complete", "unproven"]
    assert found.rows.empty


def test_time_that_was_asked_for_and_that_neither_has_is_not_the_same(held):
    one, other = held(ROWS, "archive"), held(ROWS, "months")
    first, last = from_microseconds(SPAN["start"]), from_microseconds(SPAN["end"])
    day = pd.Timedelta("1D")
    assert ba.diff(one, other, start=first, end=last).is_same
    for start, end in ((first - day, None), (None, last + day), (first - day, last + day)):
        difference = ba.diff(one, other, start=start, end=end)
        missing = [(first - day, first)] * bool(start) + [(last, last + day)] * bool(end)
        assert list(difference.not_shared) == [(x, "missing", "missing") for x in missing]
        assert not difference.is_same
        assert difference.rows.empty
    said = run("diff", one, other, "--until", moment_text(SPAN["end"] + DAY), code=3)
    assert "missing in the first, missing in the other" in said.stdout


def test_a_command_ends_as_diff_does_and_writes_each_row(held, changed, tmp_path):
    one, other = held(ROWS, "archive"), held(changed, "file")
    assert "the same" in run("diff", one, held(ROWS, "months")).stdout
    printed = run("diff", one, other, "-o", tmp_path / "x.csv", code=1).stdout
    written = pd.read_csv(tmp_path / "x.csv", dtype=str)
    assert sorted(written["change"]) == ["added", "changed", "removed"]
    assert printed.count(": 1 ") == 3
    day = f"{from_microseconds(TIMES[len(TIMES) // 2] // DAY * DAY):%Y-%m-%d}"
    content = json.loads(run("diff", one, one, "--until", day, "--format=json").stdout)
    assert content["is_same"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{one}", "{folder}/none"), "none"),
        (("{one}", "{folder}/text"), "is not a Parquet file of balance changes"),
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


def test_a_selection_of_an_archive_is_compared_for_its_own_accounts(tmp_path):
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "x", **SPAN)
    archive = ba.Archive(tmp_path / "x")
    table, party = archive.read(), ROWS[0].party_id
    some = archive.select(party_ids=party)
    own = table.balances.select(party_ids=party)
    assert ba.diff(some, own).is_same
    assert ba.diff(some, own).compared == (len(own), len(own))
    for one, other in ((some, table), (archive, own), (some, archive)):
        found = ba.diff(one, other)
        assert not found.is_same
        assert found.rows.empty
        assert found.compared == (len(own), len(own))
