"""An archive is compared with segments: row by row, and each change with the ledger."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import DAY, HOUR, START, node_of, run_export, spread_history
from tests.cli.running import run
from tests.segments.writer import make_segments, pg_time, write_edited, write_segments

ROWS = spread_history(4, rows=90, accounts=20, end=START + 20 * HOUR)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
LAST = TIMES[-1] + 1


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    write_segments(folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory, segments):
    folder = tmp_path_factory.mktemp("whole") / "archive"
    ba.import_segments(ba.Archive(folder), segments, partition="month")
    return folder


def verified(folder, segments):
    return ba.Archive(folder).verify(segments=segments)


@pytest.mark.parametrize("kind", ["of segments", "of some accounts", "of a node"])
def test_an_archive_agrees_with_segments_and_their_ledger(tmp_path, whole, segments, kind):
    folder = whole if kind == "of segments" else tmp_path / "archive"
    if kind == "of some accounts":
        ba.import_segments(folder, segments, account_types="general")
    elif kind == "of a node":
        run_export(node_of(ROWS), folder, start=START, end=LAST)
    report = verified(folder, segments)
    assert (report.problems, report.not_compared) == ((), ())
    assert report.changes == len(ba.Archive(folder).read())
    assert report.compared[0].is_same == (kind != "of some accounts")


def test_behind_a_day_that_an_archive_lacks_no_account_began_at_zero(tmp_path, segments):
    midnight = START - START % DAY + DAY
    run_export(node_of(ROWS), tmp_path / "archive", start=midnight, end=LAST)
    report = verified(tmp_path / "archive", segments)
    assert report.problems == ()
    assert 0 < report.changes < len(ba.Archive(tmp_path / "archive").read())
    assert "the archive is not complete there" in report.not_compared[0]


@given(number=st.integers(0, len(ROWS) - 1), step=st.integers(-(10**20), 10**20))
@settings(max_examples=2, deadline=None)
def test_a_row_that_differs_is_named_with_both_balances(tmp_path_factory, segments, number, step):
    row, folder = ROWS[number], tmp_path_factory.mktemp("other")
    is_external = row.account_type == "ACCOUNT_TYPE_EXTERNAL"
    other = max(0, row.balance + step)
    changed = [replace(each, balance=other) if each == row else each for each in ROWS]
    write_segments(folder / "segments", changed)
    ba.import_segments(folder / "archive", folder / "segments", partition="month")
    report = verified(folder / "archive", segments)
    if other == row.balance:
        assert report.is_whole
        return
    kinds = [problem.kind for problem in report.problems]
    assert kinds[0] == "difference"
    assert ("ledger" in kinds) is not is_external
    said = re.escape(f"the archive has {other}, segments ")
    assert re.search(f"{said}\\S+ \\S+ {row.balance} of", report.problems[0].what)


def test_an_entry_that_the_ledger_lacks_or_has_too_much_is_named(tmp_path, whole):
    def lacks(ledger, entry, _):
        ledger.remove(entry)

    def twice(ledger, entry, _):
        ledger.append(entry)

    def at_another_time(_, entry, times):
        entry["vega_time"] = next(time for time in times if time != entry["vega_time"])

    for change in (lacks, twice, at_another_time):

        def edit(part, change=change):
            ledger = part.tables["history/ledger"]
            entry = next(each for each in ledger if each["quantity"] != "0")
            change(ledger, entry, [x["vega_time"] for x in part.tables["history/blocks"]])

        report = verified(whole, write_edited(tmp_path / change.__name__, ROWS, edit))
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
def test_a_ledger_that_cant_be_read_is_named(tmp_path, whole, values):
    write_edited(tmp_path, ROWS, lambda part: part.tables["history/ledger"][1].update(values))
    with pytest.raises(ba.DecodeError, match="an entry of the ledger can't be read"):
        verified(whole, tmp_path)


def test_flows_of_external_accounts_may_pass_38_digits(tmp_path, whole):
    parts = make_segments(ROWS)
    ledger = parts[2].tables["history/ledger"]
    accounts = parts[2].tables["currentstate/accounts"]
    banks = {x["id"]: x["asset_id"] for x in accounts if x["type"] == "10"}
    bank = next(x["account_from_id"] for x in ledger if x["account_from_id"] in banks)
    other = {**accounts[0], "id": "\\x" + "ab" * 32, "asset_id": banks[bank], "type": "10"}
    entry = {**ledger[0], "account_from_id": bank, "account_to_id": other["id"]}
    ledger += [{**entry, "quantity": "9" * 38}] * 3
    for part in parts:
        part.tables["currentstate/accounts"].append(other)
        part.write(tmp_path / "segments")
    assert verified(whole, tmp_path / "segments").problems == ()


def test_flows_of_other_accounts_that_pass_38_digits_are_a_problem_and_no_error(tmp_path, whole):
    def edit(part):
        ledger = part.tables["history/ledger"]
        ledger += [{**ledger[0], "quantity": "9" * 38}] * 3

    write_edited(tmp_path, ROWS, edit)
    assert "ledger" in {x.kind for x in verified(whole, tmp_path).problems}


def test_the_command_names_it_and_ends_with_5(tmp_path, whole, segments):
    said = run("verify", whole, "--against", segments).stdout
    assert "no problem" in said
    assert "compared with the ledger" in said
    folder = shutil.copytree(segments, tmp_path / "segments")
    parts = make_segments([ROWS[0], *ROWS[2:]], quiet=[ROWS[1].timestamp_ns])
    for part in parts:
        part.write(folder)
    said = run("verify", whole, "--against", folder, code=5).stdout
    assert re.search(r"segments \S+ \S+ no row", said)
