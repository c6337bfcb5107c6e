"""Verify names whatever is wrong; repair brings back every byte, or leaves all as it was."""

import contextlib
import hashlib
import json
import os
import re
import shutil
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    ROWS,
    START,
    content_of,
    edit_manifest,
    knowing,
    lasting,
    mend,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
    unchanged,
)
from tests.cli.running import run
from tests.columns import ARROW_SCHEMA
from tests.loopback import spoilt
from tests.moments import between, both, from_microseconds, to_microseconds
from tests.node.truth import matching

FIRST, SECOND = "2023-04-28", "2023-04-29"
CHECKPOINT = "_checkpoints/2023-05-01.pq"
MANIFEST = "_archive.json"


def verify(folder, **options):
    return ba.Archive(folder).verify(**options)


def name_of(period):
    return f"changes/date={period}/changes.parquet"


NAME = name_of(SECOND)
OLDEST = name_of(FIRST)
ITS_DAY = START + 4 * HOUR, START + 28 * HOUR
"""The day of the second file."""


def rewritten(change, name=NAME, schema=ARROW_SCHEMA):
    """Return a function that changes a file's rows, and notes its new digest in the manifest."""

    def rewrite(folder):
        path = folder / name
        old = pq.read_table(path).cast(ARROW_SCHEMA).to_pylist()
        rows = change(old)
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        data, times = path.read_bytes(), [to_microseconds(row["timestamp"]) for row in rows or old]
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        digests = {"sha256": hashlib.sha256(data), "footer": hashlib.sha256(footer)}
        noted = {key: digest.hexdigest() for key, digest in digests.items()}
        noted |= {"rows": len(rows), "size": len(data), "first": min(times), "last": max(times)}

        def edit(content):
            named = {name_of(period): entry for period, entry in content["files"].items()}
            (named[CHECKPOINT],) = content["checkpoints"].values()
            named[name].update(noted)

        edit_manifest(folder, edit)

    return rewrite


def repeated(rows):
    return [*rows, rows[-1]]


def in_floats(rows):
    return [{**row, "balance": 1.0} for row in rows]


def with_row_at(moment):
    return lambda rows: [*rows, {**rows[-1], "timestamp": from_microseconds(moment)}]


def with_balance(place, balance):
    return lambda rows: [
        {**row, "balance": Decimal(balance)} if row is rows[place] else row for row in rows
    ]


def note_another(**note):
    return lambda folder: edit_manifest(folder, lambda c: c["files"][SECOND].update(note))


def turned_around(rows):
    """Return rows with two rows of one account swapped."""
    keys = [[row[name] for name in ba.ACCOUNT_KEY] for row in rows]
    place = next(i for i, (one, other) in enumerate(pairwise(keys)) if one == other)
    return [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]


def flip(path):
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_answers(folder, *spans):
    """Split an archive's one answer into several."""

    def split(content):
        (whole,) = content["evidence"]["answers"]
        content["evidence"]["answers"] = [{**whole, "span": span} for span in spans]

    edit_manifest(folder, split)


def changed_node(change):
    """Return a node whose rows of the second day are changed, one by one; `None` drops one."""
    rows = [change(row) if row.time in range(*ITS_DAY) else row for row in ROWS]
    return node_of([row for row in rows if row is not None])


def to_77(row):
    return row._replace(balance=77)


def prunes_meanwhile(moment):
    """Return a node that forgets the rows before a moment once it is asked for other rows."""

    def prune(_, request):
        if request.get("pagination.first", "1") != "1":
            node.replace(matching(ROWS, start=moment))

    node = node_of(ROWS, faults=prune)
    return node


def lacking(start, end):
    """Return a node without some rows, which says so."""
    there = [row for row in ROWS if not start <= row.time < end]
    return node_of(there, extra_headers={"X-Incomplete": f"{start}000-{end}000"})


def cut_beside_another(folder):
    """Truncate a file, and leave the announcement of a run that was killed before replacing it."""

    def add_pending(content):
        entry = {**content["files"][SECOND], "sha256": "0" * 64}
        content["pending"] = {"name": NAME, "file": entry, "evidence": content["evidence"]}

    edit_manifest(folder, add_pending)
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:-20])


FLOATS = ARROW_SCHEMA.set(5, pa.field("balance", pa.float64(), nullable=False))

FILES = [
    (cut_beside_another, NAME, "bytes, not"),
    (note_another(rows=1), NAME, r"rows from \S+ to \S+, not 1 row from"),
    (note_another(first=START + 5 * HOUR), NAME, r"has \d+ rows from \S+ to \S+, not \d+ rows"),
    (rewritten(with_row_at(START - HOUR), OLDEST), OLDEST, "1 of .* outside the answered time$"),
    (rewritten(with_row_at(START + 28 * HOUR)), NAME, "1 of its rows are outside its period"),
    (rewritten(repeated), NAME, "^1 of its rows repeat the account and timestamp of another$"),
    (rewritten(turned_around), NAME, "^its rows are not in the order party_id"),
    (rewritten(in_floats, schema=FLOATS), NAME, "column balance is double"),
    (rewritten(list, schema=ARROW_SCHEMA.remove(3)), NAME, "has the columns .*party_id, timestamp"),
    (rewritten(lambda rows: rows[:0]), NAME, "has 0 rows"),
    (lambda folder: (folder / CHECKPOINT).unlink(), CHECKPOINT, "is missing"),
    (
        rewritten(with_balance(3, 12345), CHECKPOINT),
        CHECKPOINT,
        "differs from the balances before 2023-05-01T00:00Z",
    ),
]
"""What harms an archive, the file that it harms, and what is said of that."""


ANOTHER = spread_history(6, rows=400, accounts=20)
FORGOTTEN = "2023-04-29 stays as it is: .* may have forgotten"
HELPLESS = {
    "has forgotten it": (lambda: knowing(ROWS, START + DAY), FORGOTTEN),
    "forgets it": (lambda: prunes_meanwhile(START + 16 * HOUR), FORGOTTEN),
    "holds less yet": (lambda: knowing(ROWS, head=START + DAY), "it is.*doesn't have all of them"),
    "is another": (lambda: node_of(ANOTHER), "of another network"),
    "has lost it": (lambda: changed_node(lambda _: None), "sends no row that the archive holds"),
    "says so": (lambda: lacking(START + 18 * HOUR, START + 24 * HOUR), "says that it may"),
}


def test_an_empty_archive_is_whole(tmp_path):
    run_export(node_of([]), tmp_path / "x", start=START)
    report = verify(tmp_path / "x")
    assert (report.is_whole, report.files) == (True, 0)


@pytest.mark.parametrize(("damage", "name", "said"), FILES)
def test_a_wrong_file_is_named_and_repaired(*, node, whole, folder, damage, name, said):
    damage(folder)
    kind = "checkpoint" if name == CHECKPOINT else "rows"
    problem, *others = sorted(verify(folder).problems, key=lambda each: each.where != name)
    assert (problem.kind, problem.where) == (kind, name)
    assert problem.remedy.endswith(" --repair")
    assert re.search(said, problem.what)
    assert {each.kind for each in others} <= {"checkpoint"}
    before, replaced = len(node.requests), (folder / name).exists() and (folder / name).read_bytes()
    done = mend(node, folder)
    assert done.left.is_whole
    kept = [path.read_bytes() for path in folder.glob("_quarantine/*.parquet")]
    assert (replaced in kept) == (kind == "rows" and (folder / name).read_bytes() != replaced)
    assert [*map(name_of, done.periods)] == [name] * (kind == "rows")
    assert (len(node.requests) > before) == (kind == "rows")
    assert lasting(folder) == lasting(whole)


def test_a_checkpoint_reveals_a_balance_that_was_changed_before_it(folder):
    rewritten(with_balance(-1, 7), name_of("2023-04-30"))(folder)
    (problem,) = verify(folder).problems
    assert problem.where == CHECKPOINT


def test_rows_in_uncovered_time_are_named_with_the_command_that_covers_it(node, folder):
    until = START + 4 * HOUR
    edit_answers(folder, (START, until), (until + DAY, END))
    (problem,) = (p for p in verify(folder).problems if p.kind == "rows")
    assert problem.where == NAME
    assert "are outside the answered time" in problem.what
    assert problem.remedy.endswith("--since 2023-04-29T00:00Z --fill-gaps`")
    assert not mend(node, folder).left.is_whole
    run_export(node, folder, fill_gaps=True)
    assert verify(folder).is_whole


def test_rows_between_two_answers_of_a_day_are_counted(folder):
    times = [row.time for row in matching(ROWS, start=START + 12 * HOUR)]
    edit_answers(folder, (START, times[0]), (times[0] + 1, END))
    (problem,) = verify(folder).problems
    assert problem.what == f"{times.count(times[0])} of its rows are outside the answered time"


def test_a_report_counts_gaps_too(node, tmp_path):
    run_export(node, tmp_path / "a", start=MONTH, end=END)
    run_export(node, tmp_path / "a", start=START - DAY, end=START + HOUR)
    said = str(verify(tmp_path / "a"))
    assert "no problem (" in said
    status = f"balance-analysis status {tmp_path / 'a'}"
    assert f"\ncoverage: 1 missing and 1 unproven part\n    `{status}` lists them" in said


def test_a_folder_that_is_not_an_archive_is_refused(node, tmp_path):
    with pytest.raises(ba.ArchiveError, match="is not an archive"):
        verify(tmp_path)
    with pytest.raises(ba.ArchiveError, match="is not an archive"):
        mend(node, tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [MANIFEST, NAME])
def test_leftovers_of_an_interrupted_write_are_no_problem_and_are_deleted(node, folder, name):
    place = folder / name
    leftover = place.with_name(f".{place.name}.0123abcd.tmp")
    leftover.write_text("half")
    assert verify(folder).is_whole
    assert mend(node, folder).left.is_whole
    assert not leftover.exists()


def test_a_checkpoint_missing_from_the_manifest_is_written_again(whole, node, folder):
    edit_manifest(folder, lambda content: content.update(checkpoints={}))
    assert verify(folder).is_whole
    run_export(node, folder, end=END)
    assert lasting(folder) == lasting(whole)


def test_a_report_is_given_as_text_and_as_json(folder):
    flip(folder / NAME)
    report = verify(folder)
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{folder}: 1 problem (")
    assert lines[1].startswith(NAME)
    assert re.fullmatch(rf"balance-analysis export {folder} http://\S+ --repair", lines[2].strip())
    content = json.loads(report.to_json())
    assert content["is_whole"] is False
    assert content["problems"][0]["periods"] == [SECOND]


FOREIGN = ("notes.txt", "changes/notes.txt", ".hidden.tmp", "a link")
ROW_FILES = ("changes/date=2023-04-29/part-0.parquet", "changes/date=2022-01-01/changes.parquet")


@pytest.mark.parametrize("name", FOREIGN + ROW_FILES)
def test_a_file_that_is_not_part_of_the_archive_is_named_and_never_deleted(
    node, whole, folder, tmp_path, name
):
    (tmp_path / "mine").write_text("mine")
    (folder / name).parent.mkdir(exist_ok=True)
    put = os.symlink if name == "a link" else shutil.copyfile
    put(tmp_path / "mine", folder / name)
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("foreign", name)
    assert mend(node, folder).left.problems == (problem,)
    run_export(node, folder, end=END)
    assert (folder / name).read_text() == "mine"
    assert ba.Archive(folder).read().equals(ba.Archive(whole).read())


HARMS = {
    "removed": lambda path, _: path.unlink(),
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[:-1]),
    "exchanged": lambda path, other: shutil.copyfile(other / path.name, path),
}


@pytest.mark.parametrize("harm", HARMS)
def test_altered_limits_are_named_and_the_next_run_starts_a_new_file(
    node, folder, tmp_path, caplog, harm
):
    limits = folder / "_limits.parquet"
    run_export(node, tmp_path / "other", start=END - HOUR, end=END)
    HARMS[harm](limits, tmp_path / "other")
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("limits", limits.name)
    assert "restore a backup of it; otherwise remove it" in problem.remedy
    assert re.search(r"is missing$|is not what was written: \S+ \S+", problem.what)
    assert str(verify(folder)).count("restore a backup") == 1
    for read in (ba.Archive(folder).limits, ba.Archive(folder).connect):
        with pytest.raises(ba.ArchiveDamagedError, match=r"_limits\.parquet"):
            read()
    assert harm == "exchanged" or ba.Archive(folder).status().lost == (limits.name,)
    if harm != "removed":
        harmed = limits.read_bytes()
        assert run_export(node, folder, end=END).damaged == [limits.name]
        assert re.search(r"_limits\.parquet.* restore a backup", caplog.text)
        assert limits.read_bytes() == harmed
        limits.unlink()
    assert run_export(node, folder, end=END).damaged == []
    assert "the older limits are lost" in caplog.text
    assert verify(folder).is_whole
    assert len(ba.Archive(folder).limits()) == 1


def test_limits_missing_from_the_manifest_are_a_problem(tmp_path):
    run_export(node_of(ROWS, limits=None), tmp_path / "a", start=START, end=END)
    assert verify(tmp_path / "a").is_whole
    (tmp_path / "a/_limits.parquet").write_bytes(b"")
    (problem,) = verify(tmp_path / "a").problems
    assert (problem.kind, "is not in the manifest" in problem.what) == ("limits", True)


def test_a_damaged_checkpoint_is_not_built_upon(tmp_path):
    end = START + 40 * DAY
    node = node_of(spread_history(5, rows=60, end=end), head=end)
    run_export(node, tmp_path / "x", start=START, end=END)
    flip(tmp_path / "x" / CHECKPOINT)
    run_export(node, tmp_path / "x")
    run_export(node, tmp_path / "y", start=START)
    later = "_checkpoints/2023-06-01.pq"
    assert (tmp_path / "x" / later).read_bytes() == (tmp_path / "y" / later).read_bytes()


def test_a_manifest_is_rebuilt_without_a_node_and_omits_damaged_files(node, whole, folder, caplog):
    flip(folder / NAME)
    (folder / MANIFEST).unlink()
    with ba.Client("http://127.0.0.1:9") as client:
        done = ba.repair(client, ba.Archive(folder))
    assert done.is_rebuilt
    assert f"{NAME} is left out" in caplog.text
    assert SECOND not in state_of(folder).files
    coverage = ba.Archive(folder).coverage()
    assert "missing" in set(coverage["state"])
    assert coverage["asked_at"].isna().all()
    assert "last asked  never" in str(ba.Archive(folder).status())
    assert [problem.where for problem in done.left.problems] == [NAME]
    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(whole)


BAD = next(row for row in ROWS if row.time in range(*ITS_DAY))
SPOIL = spoilt(lambda row: row["timestamp"] == f"{BAD.time}000", balance="1e5")
NEWEST = max(row.time for row in ROWS)
PARTY = max((row.party_id for row in ROWS), key=[row.party_id for row in ROWS].count)
KINDS = {
    "of a stopped node": (-1, {"head": NEWEST}, {}),
    "of some accounts": (-1, {}, {"party_ids": PARTY, "partition": "month"}),
    "with bad rows": (1, {"edit_row": SPOIL}, {}),
    "with an unproven beginning": (0, {}, {"start": START - 3 * HOUR}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_is_compared_and_a_lost_file_and_its_query_are_restored(tmp_path, kind):
    place, given, options = KINDS[kind]
    with node_of(ROWS, **given) as node:
        run_export(node, tmp_path / "x", **{"start": START, **options})
        shutil.copytree(tmp_path / "x", tmp_path / "y")
        assert not verify(tmp_path / "x", against=node.url).problems
        sorted((tmp_path / "x" / "changes").glob("*/*.parquet"))[place].unlink()
        done = mend(node, tmp_path / "x")
        assert (done.left.is_whole, done.bad_rows > 0) == (True, kind == "with bad rows")
        assert lasting(tmp_path / "x") == lasting(tmp_path / "y")
        asked = [(start, end, False) for start, end in state_of(tmp_path / "x").evidence.answered]
        (tmp_path / "x" / MANIFEST).unlink()
        assert mend(node, tmp_path / "x").is_rebuilt
    assert state_of(tmp_path / "x").query == state_of(tmp_path / "y").query
    assert spans_of(tmp_path / "x") == asked


def test_a_differing_period_is_replaced_on_request(folder, tmp_path):
    with changed_node(to_77) as node:
        done = mend(node, folder, start="2023-04-29", end="2023-04-30")
        assert (done.periods, done.changed) == ((SECOND,), (SECOND,))
        assert verify(folder, against=node.url).is_whole
        run_export(node, tmp_path / "again", start=START, end=END)
    assert lasting(folder) == lasting(tmp_path / "again")


@pytest.mark.parametrize("is_damaged", [True, False])
@pytest.mark.parametrize("kind", HELPLESS)
def test_a_period_that_a_node_cant_know_is_not_replaced(folder, kind, is_damaged):
    bounds, (serve, said) = between(START + 19 * HOUR, START + 20 * HOUR), HELPLESS[kind]
    if is_damaged:
        bounds = flip(folder / NAME) or {}
    refused = ba.ArchiveError, ba.IncompleteError
    with unchanged(folder), pytest.raises(refused, match=said):
        mend(serve(), folder, **bounds)


@pytest.mark.parametrize("lost", [0, 1])
def test_unproven_rows_are_replaced_only_by_a_node_that_reaches_over_them(folder, lost):
    edit_manifest(folder, lambda content: content["evidence"]["answers"][0].update(reached=False))
    rows = matching(ROWS, start=MONTH, end=MONTH + DAY)
    rows = [*rows[:-1], to_77(rows[-1])]
    with knowing(rows, rows[0].time + lost, head=rows[-1].time + 1) as node:
        refused = pytest.raises(ba.IncompleteError, match="may have forgotten")
        with refused if lost else contextlib.nullcontext():
            assert mend(node, folder, **between(MONTH, MONTH + DAY)).changed == ("2023-05-01",)


def test_a_period_that_a_node_has_forgotten_does_not_stop_the_repair_of_others(whole, folder):
    names = [name_of(period) for period in (FIRST, SECOND, "2023-04-30")]
    for name in names:
        (folder / name).unlink()
    with knowing(ROWS, START + DAY) as node:
        said = run("export", folder, node.url, "--repair", code=3).stderr
    assert f"{FIRST} stays as it is" in said
    assert said.rstrip().endswith(f"also left as they were: {SECOND}")
    assert [problem.where for problem in verify(folder).problems] == names[:2]
    assert (folder / names[2]).read_bytes() == (whole / names[2]).read_bytes()


def test_an_older_manifest_loses_no_newer_file(folder):
    edit_manifest(folder, lambda content: content["files"].pop(SECOND))
    edit_answers(folder, (START, ITS_DAY[0]), (ITS_DAY[1], END))
    (problem,) = (x for x in verify(folder).problems if x.kind != "checkpoint")
    assert (problem.where, problem.what) == (NAME, "is not in the manifest")
    assert MANIFEST in problem.remedy
    newer = (folder / NAME).read_bytes()
    with knowing(ROWS, START + 16 * HOUR) as node:
        said = run("export", folder, node.url, "--fill-gaps", code=3).stderr
    assert f"{NAME} is replaced; _quarantine/{SECOND}-" in said
    assert newer in content_of(folder, "_quarantine/").values()
    assert ba.Archive(folder).status().unproven


def test_a_repair_of_a_whole_archive_requests_and_changes_nothing(node, folder):
    before = len(node.requests)
    with unchanged(folder):
        assert "No rows to repair" in run("export", folder, node.url, "--repair").stderr
    assert len(node.requests) == before


def test_the_only_file_is_repaired_by_a_node_with_as_many_rows_in_its_time(node, tmp_path):
    run_export(node, tmp_path / "x", start=START, end=MONTH, partition="month")
    before = lasting(tmp_path / "x")
    edit_manifest(tmp_path / "x", lambda c: c["files"]["2023-04"].update(sha256="0" * 64))
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    assert mend(node, tmp_path / "x").changed == ("2023-04",)
    assert lasting(tmp_path / "x") == before
    said = "no row that the archive holds"
    with unchanged(tmp_path / "y"), pytest.raises(ba.NetworkMismatchError, match=said):
        mend(node_of(ANOTHER), tmp_path / "y")


def test_a_repair_reports_what_it_requested_and_replaced(node, folder):
    edit_answers(folder, (START, START + 6 * HOUR), (START + 9 * HOUR, END))
    reports, before = [], len(node.requests)
    done = mend(node, folder, start="2023-04-29", end="2023-04-30", on_report=reports.append)
    report, (day, end) = reports[-1], ITS_DAY
    assert done.periods == (SECOND,)
    asked = (day, START + 6 * HOUR), (START + 9 * HOUR, end)
    spans = [(from_microseconds(a), from_microseconds(b)) for a, b in asked]
    assert report.spans == report.committed == spans
    assert (report.rows, report.conflicts, report.source) == (0, 0, node.url)
    assert report.block_height is not None
    assert report.requests == len(node.requests) - before


def test_bad_rows_in_a_repair_remove_no_sound_row(whole, folder):
    node = node_of(ROWS, edit_row=SPOIL)
    assert mend(node, folder, start="2023-04-29", end="2023-04-30").bad_rows
    assert lasting(folder) == lasting(whole)


def test_a_manifest_whose_query_no_report_has_is_not_rebuilt(node, folder):
    for report in (folder / "_runs").iterdir():
        report.unlink()
    (folder / MANIFEST).unlink()
    with unchanged(folder), pytest.raises(ba.ArchiveDamagedError, match="that it is bound to"):
        mend(node, folder)


WHOLE = (from_microseconds(START), from_microseconds(END))


def test_a_node_with_the_same_rows_agrees_and_the_compared_time_is_listed(node, folder):
    report = verify(folder, against=node.url)
    (difference,) = report.compared
    assert (report.is_whole, report.problems, difference.is_same) == (True, (), True)
    assert (report.files, report.rows, report.checkpoints) == (6, len(ROWS), 1)
    assert str(report).startswith(f"{folder}: no problem (")
    assert (difference.compared, difference.shared) == ((len(ROWS), len(ROWS)), (WHOLE,))
    assert f"compared with {node.url}: {len(ROWS)} rows of 2023-04-28T20:00Z to" in str(report)
    content = json.loads(report.to_json())
    assert content["compared"][0]["compared"] == [len(ROWS)] * 2
    part = verify(folder, against=node.url, start=WHOLE[0], end=from_microseconds(START + DAY))
    assert part.compared[0].shared == ((WHOLE[0], from_microseconds(START + DAY)),)


@pytest.mark.parametrize(("change", "said"), [(to_77, " has 77"), (lambda _: None, " has no row")])
def test_a_difference_from_a_node_is_a_problem_with_its_day_and_rows(folder, change, said):
    with changed_node(change) as node:
        report = verify(folder, against=node.url)
    (problem,) = report.problems
    assert problem.kind == "difference"
    assert problem.where.startswith("2023-04-29")
    assert f"{node.url}{said}" in problem.what
    assert "the archive has" in problem.what
    assert "ask a third source" in problem.remedy
    interval = "--since 2023-04-29T00:00Z --until 2023-04-30T00:00Z"
    assert f"export {folder} URL --repair {interval}`" in problem.remedy
    assert f"compared with {node.url}: {len(ROWS)} rows of " in str(report)


def test_a_damaged_file_is_not_compared_and_the_others_are(node, folder):
    flip(folder / NAME)
    report = verify(folder, against=node.url)
    assert [problem.where for problem in report.problems] == [NAME]
    (difference,) = report.compared
    assert (len(difference.shared), difference.rows.empty) == (2, True)


def test_the_exit_code_is_3_if_nothing_is_compared(folder, tmp_path):
    with node_of([]) as node:
        report = verify(folder, against=node.url)
        assert (report.is_whole, report.compared_nothing) == (True, True)
        said = run("verify", folder, "--against", node.url, code=3)
        assert f"compared with {node.url}: no stretch complete in both" in said.stdout
        assert "there was nothing to compare" in said.stderr
    run("verify", folder)


def confirmed_in(folder, span):
    return both(state_of(folder).evidence.confirmed, [span])


@pytest.mark.parametrize("is_damaged", [True, False])
def test_rows_that_a_repair_replaced_are_not_confirmed_by_earlier_agreement(
    node, folder, is_damaged
):
    moment = BAD.time, BAD.time + 1
    bounds = between(*moment)
    with node_of(ROWS) as second:
        ba.confirm(folder, second.url)
    assert confirmed_in(folder, moment)
    if is_damaged:
        bounds = flip(folder / NAME) or {}
    with changed_node(lambda row: to_77(row) if row == BAD else row) as other:
        assert mend(other, folder, **bounds).changed == (SECOND,)
    assert not confirmed_in(folder, moment)
    assert confirmed_in(folder, (END - DAY, END))
    # Of a file that was damaged nobody knows which rows were others.
    assert not is_damaged or not confirmed_in(folder, ITS_DAY)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_concurrent_run_that_replaces_files_causes_and_hides_no_problem(tmp_path, is_damaged):
    folder, shown = tmp_path / "x", []
    node = node_of(ROWS)
    run_export(node, folder, start=START, end=START + 2 * DAY)
    if is_damaged:
        flip(folder / NAME)

    def meanwhile(*_):
        if not shown:
            shown.append(True)
            # A damaged file ends the run that reads it for a checkpoint.
            with contextlib.suppress(ba.ArchiveDamagedError):
                run_export(node, folder, end=END - HOUR)

    report = ba.Archive(folder).verify(progress=meanwhile)
    assert [problem.where for problem in report.problems] == [NAME] * is_damaged
    assert is_damaged or report.rows == len(matching(ROWS, end=END - HOUR))
