"""A comparison shows all that differs and nothing else, and confirms what both have."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
    unchanged,
)
from tests.cli.running import fails, run
from tests.loopback import nobody
from tests.moments import from_microseconds, moment_text
from tests.segments.writer import write_segments
from tests.serving import serving

pytestmark = pytest.mark.usefixtures("without_waits")
ROWS = spread_history(11, rows=160)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
SPAN = {"start": TIMES[0], "end": TIMES[-1] + 1}
INTERVAL = {name: from_microseconds(at) for name, at in SPAN.items()}
KINDS = ["file", "node", "segments"]


GONE, OTHER, LATE = (ROWS[len(ROWS) * n // 4] for n in range(1, 4))
ANOTHER = replace(OTHER, balance=int(OTHER.balance) + 1)
MORE = replace(LATE, timestamp_ns=LATE.timestamp_ns + 1000)
CHANGED = [ANOTHER if row is OTHER else row for row in [*ROWS, MORE] if row is not GONE]
"""The history with a row less, another balance, and a row more, on three days."""


def assert_changed(difference):
    """Check that a comparison of the history with the changed one has all that differs."""
    columns = [*ba.ACCOUNT_KEY, "timestamp", "balance", "other_balance", "change"]
    rows = difference.rows[columns].astype({"timestamp": "int64"}).astype("str").fillna("")
    expected = [
        (*row.account, str(row.timestamp_ns // 1000), *balances, change)
        for row, balances, change in (
            (GONE, (str(GONE.balance), ""), "removed"),
            (OTHER, (str(OTHER.balance), str(ANOTHER.balance)), "changed"),
            (MORE, ("", str(MORE.balance)), "added"),
        )
    ]
    assert sorted(rows.itertuples(index=False, name=None)) == sorted(expected)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Return a function that gives a history in one of several forms, which stay."""
    folder = tmp_path_factory.mktemp("diff")
    with contextlib.ExitStack() as stack:

        @functools.cache
        def node(is_changed):
            return stack.enter_context(node_of(CHANGED if is_changed else ROWS, head=END))

        @functools.cache
        def give(kind, *, is_changed=False):
            path, url = folder / f"{kind} {is_changed}", node(is_changed).url
            if kind == "segments":
                write_segments(path, CHANGED if is_changed else ROWS)
            elif kind == "archive":
                run_export(url, path, **SPAN)
            elif kind == "file":
                with ba.Client(url) as client:
                    ba.load_to_parquet(client, path, **INTERVAL, page_size=7)
            return url if kind == "node" else path

        yield give


@pytest.mark.parametrize("kind", KINDS)
def test_histories_are_compared_whatever_holds_them(held, kind):
    one, same, other = held("archive"), held(kind), held(kind, is_changed=True)
    assert ba.diff(one, same).is_same
    assert ba.diff(same, one).is_same
    difference = ba.diff(one, other, start=moment_text(TIMES[0]), end=moment_text(TIMES[-1]))
    assert_changed(difference)
    days = difference.rows["timestamp"].dt.date
    assert all(f"\n{day}: 1 " in str(difference) for day in days)
    if kind in {"node", "file"}:
        assert_changed(ba.diff(same, other))
    # Only before a network's first block there is nothing to miss.
    difference = ba.diff(same, same, start=INTERVAL["start"] - pd.Timedelta("1D"))
    assert difference.is_same == (kind == "segments")


MIDDLE = OTHER.timestamp_ns // 1000


@pytest.mark.parametrize(
    ("since", "until", "bad", "span", "state"),
    [
        (TIMES[0], MIDDLE, None, (MIDDLE, SPAN["end"]), "missing"),
        (MIDDLE, END, None, (TIMES[0], MIDDLE), "unproven"),
        (TIMES[0], END, OTHER, (MIDDLE, MIDDLE + 1), "unproven"),
    ],
    ids=["it holds less yet", "it has forgotten", "it sends a bad row"],
)
def test_what_a_node_may_lack_is_not_shared(*, held, since, until, bad, span, state):
    def spoil(row):
        is_bad = bad is not None and row["timestamp"] == str(bad.timestamp_ns)
        return {**row, "balance": "x"} if is_bad else row

    rows = [row for row in ROWS if since <= row.timestamp_ns // 1000 < until]
    with node_of(rows, head=until, edit_row=spoil) as node:
        for sides in ((held("archive"), node.url), (node.url, held("archive"))):
            difference = ba.diff(*sides)
            ((moments, *states),) = difference.not_shared
            assert moments == tuple(map(from_microseconds, span))
            assert sorted(states) == ["complete", state]
            assert difference.rows.empty
            assert not difference.is_same
        assert not ba.diff(held("node"), node.url).is_same
        assert not ba.diff(node.url, held("node")).is_same


def test_a_node_is_asked_for_the_accounts_of_the_other_side(tmp_path):
    asset = ROWS[0].asset_id
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", **SPAN, asset_id=asset)
        before = len(node.requests)
        assert ba.diff(tmp_path / "a", node.url).is_same
        asked = [request.params for request in node.requests[before:]]
    assert {"filter.assetId": [asset]}.items() <= asked[0].items()


def test_a_node_is_asked_for_the_openings_of_a_table_too(held):
    bounds = {**INTERVAL, "start": from_microseconds(MIDDLE + 1)}
    with ba.Client(held("node")) as client:
        table = ba.load_balance_changes(client, **bounds, opening=True)
    assert OTHER.account in {*table[[*ba.ACCOUNT_KEY]].itertuples(index=False, name=None)}
    for sides in ((table, held("node")), (held("node"), table)):
        difference = ba.diff(*sides)
        assert (difference.is_same, difference.compared) == (True, (len(table), len(table)))
    assert "changed" in set(ba.diff(table, held("node", is_changed=True)).rows["change"])


def test_segments_with_a_bad_row_are_not_compared(tmp_path, held):
    rows = [replace(row, balance=10**39) if row is OTHER else row for row in ROWS]
    write_segments(tmp_path / "segments", rows)
    with pytest.raises(ba.DecodeError, match="has a bad row"):
        ba.diff(held("archive"), tmp_path / "segments")


def test_a_command_ends_as_diff_does_and_writes_each_row(held, tmp_path):
    one, other = held("archive"), held("file", is_changed=True)
    assert "the same" in run("diff", one, held("file")).stdout
    said = run("diff", one, one, "--until", moment_text(SPAN["end"] + DAY), code=3).stdout
    assert "missing in the first, missing in the other" in said
    printed = run("diff", one, other, "-o", tmp_path / "x.csv", code=1).stdout
    written = pd.read_csv(tmp_path / "x.csv", dtype=str)
    assert sorted(written["change"]) == ["added", "changed", "removed"]
    assert printed.count(": 1 ") == 3


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
    one = held("archive")
    given_ = [each.format(one=one, folder=tmp_path) for each in arguments]
    assert said in fails("diff", *given_, code=2, folder=tmp_path)


def confirmed(folder):
    return state_of(folder).evidence.confirmed


def test_a_difference_is_kept_and_its_moment_not_confirmed_and_overwrites_nothing(tmp_path):
    row, other = OTHER, [ANOTHER if row is OTHER else row for row in ROWS]
    with node_of(ROWS, head=END) as node, node_of(other, head=END) as second:
        run_export(node, tmp_path / "a", start=TIMES[0], end=END)
        before = ba.Archive(tmp_path / "a").read()
        confirm = ("verify", tmp_path / "a", "--against", second.url, "--confirm")
        _ = run(*confirm, code=5), run(*confirm, code=5)
    assert ba.Archive(tmp_path / "a").read().equals(before)
    (kept,) = (tmp_path / "a" / "_disputes").iterdir()
    content = json.loads(kept.read_text())
    assert content["other"] == second.url
    (wrong,) = content["rows"]
    assert (wrong["balance"], wrong["other_balance"]) == (
        str(row.balance),
        str(int(row.balance) + 1),
    )
    assert wrong["party_id"] == row.party_id
    covered = ba.Archive(tmp_path / "a").coverage()
    assert covered["state"].tolist() == ["confirmed", "complete", "confirmed"]
    assert covered["end"][1] - covered["start"][1] == pd.Timedelta("1us")
    assert set(covered["confirmed_by"].dropna()) == {second.url}
    assert ba.Archive(tmp_path / "a").status().confirmed_by == (second.url,)
    assert f" by {second.url}" in run("status", tmp_path / "a").stdout
    run("verify", tmp_path / "a")


def test_only_the_node_that_disputed_asked_again_lifts_its_dispute_even_if_the_manifest_was_lost(
    tmp_path,
):
    folder, archive = tmp_path / "a", ba.Archive(tmp_path / "a")
    disputed = [(OTHER.timestamp_ns // 1000, OTHER.timestamp_ns // 1000 + 1)]

    def change(sent):
        account = str(OTHER.timestamp_ns), OTHER.party_id
        return (
            {**sent, "balance": "77"} if (sent["timestamp"], sent["partyId"]) == account else sent
        )

    with (
        node_of(ROWS, head=END) as node,
        node_of(ROWS, head=END) as second,
        node_of(ROWS, head=END) as third,
        ba.Client(node.url) as client,
    ):
        run_export(node, folder, **SPAN)
        run_export(second, tmp_path / "older", **SPAN)
        second.edit_row = change
        ba.confirm(archive, second.url)
        for agreeing in (tmp_path / "older", third.url):
            ba.confirm(archive, agreeing)
            assert [span for span, _ in state_of(folder).evidence.disputed] == disputed
        (folder / "_archive.json").unlink()
        ba.repair(client, archive)
        run_export(node, folder, fill_gaps=True)
        ba.confirm(archive, third.url)
        before, after = confirmed(folder)
        assert (before[1], after[0]) == disputed[0]
        assert len(archive.status().disputed) == 1
        second.edit_row = None
        ba.confirm(archive, second.url)
    assert confirmed(folder) == [(before[0], after[1])]
    assert not archive.status().disputed


def test_segments_confirm_and_an_archives_own_source_however_it_is_spelled_or_copied_does_not(
    held, tmp_path
):
    folder, url = shutil.copytree(held("archive"), tmp_path / "a"), held("node")
    ba.write_parquet(ba.Archive(folder).read(), tmp_path / "x.parquet")
    shutil.copytree(folder, tmp_path / "copy")
    with serving(ba.Archive(folder)) as served, nobody() as dead:
        local = url.replace("127.0.0.1", "localhost")
        copies = tmp_path / "copy", tmp_path / "x.parquet", served
        for other in (url, local, url.replace("http", "HTTP"), *copies, ba.Client([dead, url])):
            ba.confirm(folder, other)
            assert not confirmed(folder), other
    said = run("verify", folder, "--against", local, "--confirm", code=3).stderr
    assert "Confirmed: nothing" in said
    assert "must have different origins" in said
    said = run("verify", folder, "--against", held("segments"), "--confirm").stderr
    ba.confirm(folder, url)  # takes nothing back
    assert "Confirmed: 20" in said
    assert confirmed(folder) == [(TIMES[0], SPAN["end"])]
    assert ba.Archive(folder).status().confirmed_by[0].startswith("segments ")


def test_segments_of_another_chain_confirm_nothing_whatever_rows_they_have(tmp_path):
    for chain in ("one", "other"):
        write_segments(tmp_path / chain, ROWS, chain=chain)
    ba.import_segments(tmp_path / "a", tmp_path / "one")
    ba.import_segments(tmp_path / "b", tmp_path / "other")
    ba.write_parquet(ba.Archive(tmp_path / "b").read(), tmp_path / "x.parquet")
    for other in (tmp_path / "other", tmp_path / "b", tmp_path / "x.parquet"):
        with pytest.raises(ba.NetworkMismatchError, match=r"from the chain one, but .* from other"):
            ba.confirm(tmp_path / "a", other)
    assert not confirmed(tmp_path / "a")


def test_what_comes_again_as_it_was_stays_confirmed_and_what_changed_or_is_new_does_not(tmp_path):
    before, at_other = END - 10**10, (MIDDLE, MIDDLE + 1)
    with node_of(ROWS, head=END) as node, node_of(ROWS, head=END) as second:
        run_export(node, tmp_path / "a", start=TIMES[0], end=before)
        ba.confirm(tmp_path / "a", second.url)
        run_export(node, tmp_path / "a", end=END, overlap="6h")
        assert confirmed(tmp_path / "a") == [(TIMES[0], before)]
        node.replace([ANOTHER if row is OTHER else row for row in ROWS])
        for later in (1, 2):
            node.block_timestamp = (END + later) * 1000
            run_export(node, tmp_path / "a", end=END + later, overlap="9d")
    # The node repeated its new row, so all is complete again, and nobody agreed with that.
    assert spans_of(tmp_path / "a") == [(TIMES[0], END + 2, True)]
    assert confirmed(tmp_path / "a") == [(TIMES[0], at_other[0]), (at_other[1], before)]


def test_confirm_wants_one_other_source(tmp_path):
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", start=TIMES[0], end=END)
    said = fails("verify", tmp_path / "a", "--confirm", code=2, folder=tmp_path)
    assert "--against SOURCE" in said
    with pytest.raises(ba.ArchiveError, match="is not an archive"):
        ba.confirm(tmp_path / "none", tmp_path / "a")


def test_who_has_no_row_in_common_may_be_of_any_network_and_confirms_nothing(tmp_path):
    start, end = max(pairwise(TIMES), key=lambda pair: pair[1] - pair[0])
    strangers = [replace(row, asset_id=row.asset_id[::-1]) for row in ROWS]
    with node_of(ROWS, head=END) as node, node_of(ROWS, head=END) as second:
        run_export(node, tmp_path / "a", start=start + 1, end=end)
        assert ba.confirm(tmp_path / "a", second.url).is_same
        assert not confirmed(tmp_path / "a")
        run_export(node, tmp_path / "b", **SPAN)
        second.replace(strangers)
        with unchanged(tmp_path / "b"), pytest.raises(ba.NetworkMismatchError, match="in common"):
            ba.confirm(tmp_path / "b", second.url)
