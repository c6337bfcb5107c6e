"""An archive is compared with segments: row by row, and each change with the ledger."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import MONTH, node_of, run_export
from tests.cli.running import run
from tests.segments.writer import ROWS, START, pg_time, write_segments

TIMES = sorted({row.time for row in ROWS})
LAST = TIMES[-1] + 1


def verified(folder, segments):
    return ba.Archive(folder).verify(segments=segments)


@pytest.mark.parametrize("kind", ["of segments", "of some accounts", "of a node"])
def test_an_archive_agrees_with_segments_and_their_ledger(tmp_path, imported, segments, kind):
    folder = imported if kind == "of segments" else tmp_path / "archive"
    if kind == "of some accounts":
        ba.import_segments(folder, segments, account_types="general")
    elif kind == "of a node":
        run_export(node_of(ROWS), folder, start=START, end=LAST)
    report = verified(folder, segments)
    assert (report.problems, report.not_compared) == ((), ())
    assert report.changes == len(ba.Archive(folder).read())
    assert report.compared[0].is_same == (kind != "of some accounts")


def test_accounts_dont_begin_at_zero_after_a_day_that_the_archive_lacks(tmp_path, segments):
    run_export(node_of(ROWS), tmp_path / "archive", start=MONTH, end=LAST)
    report = verified(tmp_path / "archive", segments)
    assert report.problems == ()
    assert 0 < report.changes < len(ba.Archive(tmp_path / "archive").read())
    assert "the archive is not complete there" in report.not_compared[0]


@given(number=st.integers(0, len(ROWS) - 1), step=st.integers(-(10**20), 10**20))
@settings(max_examples=3, deadline=None)
def test_a_row_that_differs_is_named_with_both_balances(tmp_path_factory, imported, number, step):
    row = ROWS[number]
    other = row._replace(balance=max(0, row.balance + step))
    changed = [other if each == row else each for each in ROWS]
    report = verified(imported, write_segments(tmp_path_factory.mktemp("other"), changed))
    if other == row:
        assert report.is_whole
        return
    kinds = [problem.kind for problem in report.problems]
    assert kinds[0] == "difference"
    assert ("ledger" in kinds) == (row.account_type != "ACCOUNT_TYPE_EXTERNAL")
    said = rf"the archive has {row.balance}, segments \S+ \S+ has {other.balance}$"
    assert re.search(said, report.problems[0].what)


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger, entry: ledger.remove(entry),
        lambda ledger, entry: ledger.append(entry),
        lambda ledger, entry: entry.update(vega_time=ledger[-1]["vega_time"]),
    ],
    ids=["lacking", "twice", "at another time"],
)
def test_a_missing_or_surplus_ledger_entry_is_named(tmp_path, imported, change):
    def edit(parts):
        ledger = parts[2].tables["history/ledger"]
        change(ledger, next(each for each in ledger if each["quantity"] != "0"))

    report = verified(imported, write_segments(tmp_path, ROWS, edit=edit))
    assert {problem.kind for problem in report.problems} == {"ledger"}
    assert "the balance changes by" in report.problems[0].what


@pytest.mark.parametrize(
    "values",
    [
        {"account_to_id": "\\x00"},
        {"account_from_id": None},
        {"quantity": "1.5"},
        {"quantity": "9" * 39},
        {"vega_time": pg_time(0)},
    ],
)
def test_an_unreadable_ledger_is_named(tmp_path, imported, values):
    spoil = lambda parts: parts[2].tables["history/ledger"][1].update(values)  # noqa: E731
    paths = write_segments(tmp_path, ROWS, edit=spoil)
    with pytest.raises(ba.DecodeError, match="an entry of the ledger can't be read"):
        verified(imported, paths)


@pytest.mark.parametrize("is_external", [True, False])
def test_flows_beyond_38_digits_are_a_problem_except_of_external_accounts(
    tmp_path, imported, is_external
):
    def edit(parts):
        ledger = parts[2].tables["history/ledger"]
        accounts = parts[2].tables["currentstate/accounts"]
        banks = {x["id"]: x["asset_id"] for x in accounts if x["type"] == "10"}
        entry = next(x for x in ledger if x["account_from_id"] in banks)
        other = {**accounts[0], "id": "\\x" + "ab" * 32, "type": "10"}
        other["asset_id"] = banks[entry["account_from_id"]]
        for part in parts:
            part.tables["currentstate/accounts"].append(other)
        to = {"account_to_id": other["id"]} if is_external else {}
        ledger += [{**entry, **to, "quantity": "9" * 38}] * 3

    report = verified(imported, write_segments(tmp_path, ROWS, edit=edit))
    assert {problem.kind for problem in report.problems} == (set() if is_external else {"ledger"})


def test_the_command_names_the_difference_and_exits_with_5(tmp_path, imported, segments):
    said = run("verify", imported, "--against", segments).stdout
    assert "no problem" in said
    assert "compared with the ledger" in said
    folder = tmp_path / "segments"
    write_segments(folder, [ROWS[0], *ROWS[2:]], quiet=[ROWS[1].time])
    said = run("verify", imported, "--against", folder, code=5).stdout
    assert re.search(r"segments \S+ \S+ has no row", said)
