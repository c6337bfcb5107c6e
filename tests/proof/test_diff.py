"""A comparison shows all that differs and nothing else, and confirms what both have."""

import functools
import json
import shutil
import time
from itertools import pairwise

import pandas as pd
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    END,
    ROWS,
    START,
    knowing,
    loaded,
    mend,
    node_of,
    run_export,
    spans_of,
    state_of,
    unchanged,
)
from tests.cli.running import fails, run
from tests.loopback import nobody, spoilt
from tests.moments import from_microseconds, moment_text
from tests.segments.writer import write_segments
from tests.serving import serving

TIMES = sorted({row.time for row in ROWS})
STOP = TIMES[-1] + 1
"""Where the last block ends, and so segments."""

INTERVAL = {"start": from_microseconds(START), "end": from_microseconds(STOP)}
GONE, OTHER, LATE = (ROWS[len(ROWS) * n // 6] for n in (1, 3, 5))
ANOTHER = OTHER._replace(balance=OTHER.balance + 1)
MORE = LATE._replace(time=LATE.time + 1)
CHANGED = [ANOTHER if row is OTHER else row for row in [*ROWS, MORE] if row is not GONE]
"""The history with a row less, another balance, and a row more, on three days."""

MIDDLE = OTHER.time


def assert_changed(difference):
    """Check that a comparison of the history with the changed one has all differences."""
    columns = [*ba.ACCOUNT_KEY, "timestamp", "balance", "other_balance", "change"]
    rows = difference.rows[columns].astype({"timestamp": "int64"}).astype("str").fillna("")
    expected = [
        (*GONE, "", "removed"),
        (*OTHER, ANOTHER.balance, "changed"),
        (*MORE[:5], "", MORE.balance, "added"),
    ]
    found = sorted(rows.itertuples(index=False, name=None))
    assert found == sorted(tuple(map(str, row)) for row in expected)


@pytest.fixture(scope="module")
def held(node, tmp_path_factory):
    """Return a function that returns the history, or the changed one, in one of several forms."""
    folder = tmp_path_factory.mktemp("diff")
    with node_of(CHANGED) as changed:

        @functools.cache
        def give(kind, *, is_changed=False):
            path, its = folder / f"{kind} {is_changed}", changed if is_changed else node
            if kind == "segments":
                write_segments(path, its.rows)
            elif kind == "file":
                with ba.Client(its.url) as client:
                    ba.load_to_parquet(client, path, **INTERVAL, page_size=7)
            return its.url if kind == "node" else path

        yield give


@pytest.fixture
def second():
    """A second node of the same rows, which a test may change."""
    with node_of(ROWS) as running:
        yield running


@pytest.mark.parametrize("kind", ["file", "node", "segments"])
def test_histories_are_compared_in_any_kind_of_source(whole, held, kind):
    same, other = held(kind), held(kind, is_changed=True)
    assert ba.diff(whole, same, **INTERVAL).is_same
    assert ba.diff(same, whole, **INTERVAL).is_same
    difference = ba.diff(whole, other, start=moment_text(START), end=moment_text(TIMES[-1]))
    assert_changed(difference)
    days = difference.rows["timestamp"].dt.date
    assert all(f"\n{day}: 1 " in str(difference) for day in days)
    if kind in {"node", "file"}:
        assert_changed(ba.diff(same, other))
    # Only before a network's first block there is nothing to miss.
    difference = ba.diff(same, same, start=from_microseconds(START - 1), end=INTERVAL["end"])
    assert difference.is_same == (kind == "segments")


def test_a_loaded_file_that_another_program_took_a_row_out_of_proves_nothing(whole, held, tmp_path):
    kept = {key: pq.read_metadata(held("file")).metadata[key] for key in [b"balance_analysis"]}
    rows = pq.read_table(held("file")).replace_schema_metadata(kept)
    pq.write_table(rows.slice(1), tmp_path / "x.parquet")
    assert ba.diff(whole, tmp_path / "x.parquet").shared == ()


@pytest.mark.parametrize(
    ("since", "until", "bad", "span", "state"),
    [
        (START, MIDDLE, None, (MIDDLE, END), "missing"),
        (MIDDLE, END, None, (START, MIDDLE), "unproven"),
        (START, END, OTHER, (MIDDLE, MIDDLE + 1), "unproven"),
    ],
    ids=["it holds less yet", "it has forgotten", "it sends a bad row"],
)
def test_time_that_a_node_may_lack_is_not_shared(*, whole, node, since, until, bad, span, state):
    spoil = spoilt(lambda row: bad is not None and row == bad.to_json())
    with knowing(ROWS, since, until, edit_row=spoil) as lacking:
        for sides in ((whole, lacking.url), (lacking.url, whole)):
            difference = ba.diff(*sides)
            ((moments, *states),) = difference.not_shared
            assert moments == tuple(map(from_microseconds, span))
            assert sorted(states) == ["complete", state]
            assert difference.rows.empty
            assert not difference.is_same
        assert not ba.diff(node.url, lacking.url).is_same
        assert not ba.diff(lacking.url, node.url).is_same


def test_two_nodes_are_compared_up_to_now():
    now = time.time_ns() // 1000
    rows = [row._replace(time=row.time + now - END) for row in ROWS]
    with node_of(rows, head=now) as one, node_of(rows[:-1], head=now) as two:
        assert ba.diff(one.url, two.url).rows["change"].tolist() == ["removed"]


def test_an_unproven_sides_missing_rows_are_no_difference(node, tmp_path):
    extra = GONE._replace(time=GONE.time + 1)
    rows = [*(row for row in CHANGED if row is not MORE), extra]
    may_lack = {"X-Incomplete": f"{START * 1000}-{MIDDLE * 1000 + 1000}"}
    with node_of(rows, extra_headers=may_lack) as second:
        run_export(second, tmp_path / "a", start=START, end=END)
        run_export(node, tmp_path / "b", start=START, end=END)
        for ours, theirs in (
            (tmp_path / "a", node.url),
            (second.url, tmp_path / "b"),
            (second.url, node.url),
            (ba.Archive(tmp_path / "a").read(partial=True), tmp_path / "b"),
        ):
            for is_turned in (False, True):
                difference = ba.diff(*((theirs, ours) if is_turned else (ours, theirs)))
                (states,) = ([*states] for _, *states in difference.not_shared)
                assert states == ["unproven", "complete"][:: -1 if is_turned else 1]
                found = {(x.timestamp.value, x.change) for x in difference.rows.itertuples()}
                kind = "added" if is_turned else "removed"
                assert found == {(OTHER.time * 1000, "changed"), (extra.time * 1000, kind)}
                assert difference.common == len(ROWS) - 2


def test_a_disputed_row_is_compared_with_another_node_and_confirmed_by_none(node, second, tmp_path):
    folder = tmp_path / "a"
    run_export(second, folder, start=START, end=END)
    second.replace([ANOTHER if row is OTHER else row for row in ROWS])
    second.block_timestamp = (END + 1) * 1000
    run_export(second, folder, end=END + 1, overlap="9d")
    disputed = (MIDDLE, MIDDLE + 1)
    assert state_of(folder).evidence.unproven == [disputed]
    for sides in ((folder, node.url), (node.url, folder)):
        difference = ba.diff(*sides, **INTERVAL)
        (states,) = ([*states] for _, *states in difference.not_shared)
        assert sorted(states) == ["complete", "unproven"]
        assert difference.rows["change"].tolist() == ["changed"]
        assert difference.compared == (len(ROWS), len(ROWS))
    said = run("verify", folder, "--against", node.url, code=5).stdout
    assert f"the archive has {ANOTHER.balance}, {node.url} has {OTHER.balance}" in said
    assert "compared in part: " in said
    run("diff", folder, node.url, code=1)
    ba.confirm(folder, node.url)
    assert confirmed(folder) == [(START, MIDDLE), (MIDDLE + 1, END + 1)]
    assert state_of(folder).evidence.unproven == [disputed]
    # The archive's node repeats its row, so the moment is complete, and is disputed still.
    run_export(second, folder, fill_gaps=True)
    assert not state_of(folder).evidence.unproven
    with node_of([ANOTHER if row is OTHER else row for row in ROWS]) as third:
        assert ba.confirm(folder, third.url).rows.empty
        run("verify", folder, "--against", third.url)
        assert confirmed(folder) == [(START, MIDDLE), (MIDDLE + 1, END + 1)]


def test_time_that_a_node_was_not_asked_for_is_not_missing(second, tmp_path):
    run_export(second, tmp_path / "a", start=MIDDLE, end=END)
    before = len(second.requests)
    for sides in ((tmp_path / "a", second.url), (second.url, tmp_path / "a")):
        difference = ba.diff(*sides, start=from_microseconds(START))
        ((moments, *states),) = difference.not_shared
        assert moments == (from_microseconds(START), from_microseconds(MIDDLE))
        assert sorted(states) == ["missing", "not asked"]
    asked = [request.params["dateRange.startTimestamp"] for request in second.requests[before:]]
    assert min(int(moment) for (moment,) in asked) // 1000 == MIDDLE - 1
    run_export(second, tmp_path / "a", start=START, end=START + 1)
    gap = from_microseconds(START + 1), from_microseconds(MIDDLE)
    expected = ((gap, "missing", "not asked"),)
    assert ba.diff(tmp_path / "a", second.url).not_shared == expected


def test_a_node_is_asked_for_the_accounts_of_the_other_side(second, tmp_path):
    asset = ROWS[0].asset_id
    run_export(second, tmp_path / "a", start=START, end=END, asset_id=asset)
    before = len(second.requests)
    assert ba.diff(tmp_path / "a", second.url).is_same
    asked = [request.params for request in second.requests[before:]]
    assert {"filter.assetId": [asset]}.items() <= asked[0].items()


def test_a_missing_opening_is_found_whatever_the_other_source(whole, node, second, held):
    start = from_microseconds(MIDDLE + 1)
    last = {row.account: row for row in ROWS if row.time <= MIDDLE}
    lost = min(last.values(), key=lambda row: row.time)
    second.replace([row for row in ROWS if row.account != lost.account])
    same, table = (loaded(each, MIDDLE + 1, STOP, opening=True) for each in (node, second))
    known = loaded(node, START, STOP).balances.between(start)
    for other in (whole, node.url, held("segments"), held("file"), known):
        assert ba.diff(same, other, start=start).compared == (len(same), len(same))
        for bounds in ({}, {"start": start}):
            rows = ba.diff(other, table, **bounds).rows
            times = rows.loc[rows["timestamp"] < start, "timestamp"].astype("int64").tolist()
            assert times == [lost.time], other
            assert {*rows["change"]} == {"removed"}
    for sides in ((same, node.url), (node.url, same)):
        assert ba.diff(*sides).is_same
    assert "changed" in set(ba.diff(same, held("node", is_changed=True)).rows["change"])


def test_segments_with_a_bad_row_are_not_compared(whole, tmp_path):
    rows = [row._replace(balance=10**39) if row is OTHER else row for row in ROWS]
    write_segments(tmp_path / "segments", rows)
    with pytest.raises(ba.DecodeError, match="has a bad row"):
        ba.diff(whole, tmp_path / "segments")


def test_the_exit_code_is_that_of_the_difference_and_each_row_is_written(
    whole, node, held, tmp_path
):
    assert "the same" in run("diff", whole, node.url).stdout
    said = run("diff", whole, whole, "--until", moment_text(END + 1), code=3).stdout
    assert "missing in the first, missing in the other" in said
    changed = held("file", is_changed=True)
    printed = run("diff", whole, changed, "-o", tmp_path / "x.csv", code=1).stdout
    written = pd.read_csv(tmp_path / "x.csv", dtype=str)
    assert sorted(written["change"]) == ["added", "changed", "removed"]
    assert printed.count(": 1 ") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{folder}/none", "name an archive, a file that `fetch` wrote, the address of a node ("),
        ("{folder}/text", "is not a Parquet file of balance changes"),
        ("{one} --since 2023-05-02 --until 2023-05-01", "before"),
        ("{one} -o {one}/x.csv", "archive"),
        ("{one} -o {folder}/x.abc", "csv"),
    ],
)
def test_an_error_exits_with_2_and_writes_nothing(whole, tmp_path, arguments, said):
    (tmp_path / "text").write_text("no table")
    given = arguments.format(one=whole, folder=tmp_path).split()
    assert said in fails("diff", whole, *given, code=2, folder=tmp_path)


def confirmed(folder):
    return state_of(folder).evidence.confirmed


def test_a_difference_is_recorded_unconfirms_its_moment_and_overwrites_nothing(folder, second):
    second.replace([ANOTHER if row is OTHER else row for row in ROWS])
    archive = ba.Archive(folder)
    before = archive.read()
    for _ in range(2):
        said = run("verify", folder, "--against", second.url, "--confirm", code=5).stderr
        assert f"`balance-analysis verify {folder} --against {second.url}` says what to do" in said
    assert archive.read().equals(before)
    (kept,) = (folder / "_disputes").iterdir()
    content = json.loads(kept.read_text())
    (wrong,) = content["rows"]
    assert (content["other"], wrong["party_id"]) == (second.url, OTHER.party_id)
    balances = str(OTHER.balance), str(ANOTHER.balance)
    assert (wrong["balance"], wrong["other_balance"]) == balances
    covered = archive.coverage()
    assert covered["state"].tolist() == ["confirmed", "complete", "confirmed"]
    assert covered["end"][1] - covered["start"][1] == pd.Timedelta("1us")
    assert set(covered["confirmed_by"].dropna()) == {second.url}
    assert archive.status().confirmed_by == (second.url,)
    assert f" by {second.url}" in run("status", folder).stdout
    run("verify", folder)


def test_only_the_disputing_node_lifts_its_dispute_even_if_the_manifest_is_lost(
    node, folder, second, tmp_path
):
    archive, disputed = ba.Archive(folder), (MIDDLE, MIDDLE + 1)
    run_export(second, tmp_path / "older", start=START, end=END)
    second.edit_row = spoilt(OTHER.to_json().__eq__, balance="77")
    manifest = (folder / "_archive.json").read_bytes()
    ba.confirm(archive, second.url)
    (folder / "_archive.json").write_bytes(manifest)  # from before the dispute
    run_export(node, folder)
    with node_of(ROWS) as third:
        for agreeing in (tmp_path / "older", third.url):
            ba.confirm(archive, agreeing)
            assert [span for span, _ in state_of(folder).evidence.disputed] == [disputed]
        (folder / "_archive.json").unlink()
        mend(node, folder)
        run_export(node, folder, fill_gaps=True)
        ba.confirm(archive, third.url)
    before, after = confirmed(folder)
    assert (before[1], after[0]) == disputed
    assert len(archive.status().disputed) == 1
    second.edit_row = None
    ba.confirm(archive, second.url)
    assert confirmed(folder) == [(before[0], after[1])]
    assert not archive.status().disputed


def test_segments_confirm_an_archive_and_its_own_source_or_a_copy_does_not(
    node, folder, held, tmp_path
):
    ba.write_parquet(ba.Archive(folder).read(), tmp_path / "x.parquet")
    shutil.copytree(folder, tmp_path / "copy")
    url, local = node.url, node.url.replace("127.0.0.1", "localhost")
    with serving(ba.Archive(folder)) as served, nobody() as dead:
        copies = tmp_path / "copy", tmp_path / "x.parquet", served
        for other in (url, local, url.replace("http", "HTTP"), *copies, ba.Client([dead, url])):
            ba.confirm(folder, other)
            assert not confirmed(folder), other
    by_itself = "verify", folder, "--against", local, "--confirm"
    said = run(*by_itself, code=3).stderr
    assert "Confirmed: nothing" in said
    assert "rows of its own origin" in said
    assert "Confirmed: 20" in run(*by_itself[:3], held("segments"), "--confirm").stderr
    assert "Confirmed: nothing" in run(*by_itself, code=3).stderr  # and it takes nothing back
    ba.import_segments(tmp_path / "part", held("segments"), party_ids=ROWS[0].party_id)
    assert not ba.confirm(folder, tmp_path / "part").confirmed  # though those segments agreed
    assert confirmed(folder) == [(START, STOP)]
    assert ba.Archive(folder).status().confirmed_by[0].startswith("segments ")


def test_segments_of_another_chain_confirm_nothing_whatever_rows_they_have(tmp_path):
    for chain in ("one", "other"):
        write_segments(tmp_path / chain, ROWS, chain=chain)
        ba.import_segments(tmp_path / f"of {chain}", tmp_path / chain)
    folder, copy = tmp_path / "of one", tmp_path / "of other"
    ba.write_parquet(ba.Archive(copy).read(), tmp_path / "x.parquet")
    for other in (tmp_path / "other", copy, tmp_path / "x.parquet"):
        with pytest.raises(ba.NetworkMismatchError, match=r"from the chain one, but .* from other"):
            ba.confirm(folder, other)
    assert not confirmed(folder)


def test_unchanged_rows_stay_confirmed_and_changed_or_new_ones_do_not(held, second, tmp_path):
    folder, before = tmp_path / "a", END - 10**10
    run_export(second, folder, start=START, end=before)
    ba.confirm(folder, held("segments"))
    run_export(second, folder, end=END, overlap="6h")
    assert confirmed(folder) == [(START, before)]
    ba.import_segments(folder, held("segments"))
    assert confirmed(folder) == [(START, before)]
    assert ba.Archive(folder).status().confirmed_by == (second.url,)
    second.replace([ANOTHER if row is OTHER else row for row in ROWS])
    for later in (END + 1, END + 2):
        second.block_timestamp = later * 1000
        run_export(second, folder, end=later, overlap="9d")
    # The node repeated its new row, so all is complete again, and nobody agreed with that.
    assert spans_of(folder) == [(START, later, True)]
    assert confirmed(folder) == [(START, MIDDLE), (MIDDLE + 1, before)]


def test_confirm_needs_one_other_source(folder, tmp_path):
    said = fails("verify", folder, "--confirm", code=2, folder=tmp_path)
    assert "--against SOURCE" in said
    with pytest.raises(ba.ArchiveError, match="is not an archive"):
        ba.confirm(tmp_path / "none", folder)


def test_a_source_without_a_common_row_may_be_of_any_network_and_confirms_nothing(
    node, folder, second, tmp_path
):
    start, end = max(pairwise(TIMES), key=lambda pair: pair[1] - pair[0])
    run_export(node, tmp_path / "quiet", start=start + 1, end=end)
    assert ba.confirm(tmp_path / "quiet", second.url).is_same
    assert not confirmed(tmp_path / "quiet")
    second.replace([row._replace(asset_id=row.asset_id[::-1]) for row in ROWS])
    with unchanged(folder), pytest.raises(ba.NetworkMismatchError, match="no common row"):
        ba.confirm(folder, second.url)
