"""What two sources have the same is confirmed, and nothing that one of them lacks."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    END,
    START,
    node_of,
    run_export,
    spread_history,
    state_of,
)
from tests.cli.running import fails, run
from tests.segments.writer import write_segments

ROWS = spread_history(13, rows=200)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
FIRST, LAST = TIMES[0], TIMES[-1] + 1


def time_of(row):
    return row.timestamp_ns // 1000


def changing(rows, rng):
    place = rng.randrange(len(rows))
    other = replace(rows[place], balance=int(rows[place].balance) + 1)
    return [*rows[:place], other, *rows[place + 1 :]], END


def confirmed(folder):
    return state_of(folder).evidence.confirmed


def test_a_difference_is_kept_and_its_moment_not_confirmed_and_overwrites_nothing(tmp_path):
    other, _ = changing(ROWS, random.Random(3))
    (row,) = set(ROWS).difference(other)
    with node_of(ROWS, head=END) as node, node_of(other, head=END) as second:
        run_export(node, tmp_path / "a", start=START, end=END)
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
    row = ROWS[random.Random(3).randrange(len(ROWS))]
    disputed = [(time_of(row), time_of(row) + 1)]

    def change(sent):
        is_its = (sent["timestamp"], sent["partyId"]) == (str(row.timestamp_ns), row.party_id)
        return {**sent, "balance": "77"} if is_its else sent

    with (
        node_of(ROWS, head=END) as node,
        node_of(ROWS, head=END) as second,
        node_of(ROWS, head=END) as third,
        ba.Client(node.url) as client,
    ):
        run_export(node, folder, start=FIRST, end=LAST)
        run_export(second, tmp_path / "older", start=FIRST, end=LAST)
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


def test_segments_confirm_and_the_same_node_is_no_second_source(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", start=FIRST, end=LAST)
        local = node.url.replace("127.0.0.1", "localhost")
        said = run("verify", tmp_path / "a", "--against", local, "--confirm", code=3).stderr
        assert "Confirmed: nothing" in said
        assert "of two origins" in said
        said = run("verify", tmp_path / "a", "--against", tmp_path / "segments", "--confirm")
        ba.confirm(tmp_path / "a", node.url)  # takes nothing back
    assert "Confirmed: 20" in said.stderr
    assert ba.Archive(tmp_path / "a").status().confirmed_by[0].startswith("segments ")


def test_segments_of_another_chain_confirm_nothing_whatever_rows_they_have(tmp_path):
    for chain in ("one", "other"):
        write_segments(tmp_path / chain, ROWS, chain=chain)
    ba.import_segments(tmp_path / "a", tmp_path / "one")
    ba.import_segments(tmp_path / "b", tmp_path / "other")
    ba.write_parquet(ba.Archive(tmp_path / "b").read(), tmp_path / "x.parquet")
    for other in (tmp_path / "other", tmp_path / "b", tmp_path / "x.parquet"):
        with pytest.raises(ba.NetworkMismatchError, match=r"of the chain one, and .* of other"):
            ba.confirm(tmp_path / "a", other)
    assert not confirmed(tmp_path / "a")


def test_what_comes_again_as_it_was_stays_confirmed_and_what_is_new_is_not(tmp_path):
    before = END - 10**10
    with node_of(ROWS, head=END) as node, node_of(ROWS, head=END) as second:
        run_export(node, tmp_path / "a", start=START, end=before)
        ba.confirm(tmp_path / "a", second.url)
        run_export(node, tmp_path / "a", end=END, overlap="6h")
    assert confirmed(tmp_path / "a") == [(START, before)]


def test_confirm_wants_one_other_source(tmp_path):
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", start=START, end=END)
    said = fails("verify", tmp_path / "a", "--confirm", code=2, folder=tmp_path)
    assert "--against SOURCE" in said
    with pytest.raises(ba.ArchiveError, match="is no archive"):
        ba.confirm(tmp_path / "none", tmp_path / "a")


def test_where_both_have_no_row_the_other_may_be_of_any_network_and_nothing_is_confirmed(tmp_path):
    start, end = max(pairwise(TIMES), key=lambda pair: pair[1] - pair[0])
    with node_of(ROWS, head=END) as node, node_of(ROWS, head=END) as second:
        run_export(node, tmp_path / "a", start=start + 1, end=end)
        assert ba.confirm(tmp_path / "a", second.url).is_same
    assert not confirmed(tmp_path / "a")
