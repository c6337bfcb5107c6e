"""A manifest that isn't a state of an archive is damage."""

import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import END, START, edit_manifest, node_of, run_export, spread_history
from tests.archive.writing import answered, begin
from tests.loopback import spoilt
from tests.moments import from_microseconds


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An archive whose manifest has every field."""
    folder, rows = tmp_path_factory.mktemp("whole") / "a", spread_history(3, rows=40, accounts=9)
    spoil = spoilt(rows[20].to_json().__eq__)
    with node_of(rows, edit_row=spoil) as node, node_of(rows) as second:
        run_export(node, folder, start=START, end=END, asset_id=rows[20].asset_id)
        ba.confirm(folder, second.url)
    return folder


def first(content):
    return content["evidence"]["answers"][0]


def a_file(content):
    return next(iter(content["files"].values()))


def announce(content, period, **filters):
    """Note a commit of a period's file that goes on, with evidence of some accounts."""
    name, evidence = f"changes/date={period}/changes.parquet", content["evidence"]
    evidence = {**evidence, "filters": {**evidence["filters"], **filters}}
    content["pending"] = {"name": name, "file": a_file(content), "evidence": evidence}


EDITS = [
    *(lambda c, key=key: c.pop(key) for key in ("partition", "evidence", "files", "limits")),
    *(lambda c, key=key: c.pop(key) for key in ("checkpoints", "pending")),
    lambda c: c.update(partition="week"),
    lambda c: first(c).update(reached="true"),
    lambda c: first(c).update(heights=[4.5, 7]),
    lambda c: first(c).update(span=[9, 0]),
    lambda c: c["evidence"]["set_aside"][0].update(account="a1"),
    lambda c: c["files"].update({"2023-02-30": a_file(c)}),
    lambda c: c["files"].update({"2023-01-31": a_file(c)}),
    lambda c: c["files"].update({"2023-04": a_file(c)}),
    lambda c: a_file(c).pop("sha256"),
    lambda c: c["checkpoints"].update({"April": a_file(c)}),
    lambda c: announce(c, "2023-02-30"),
    lambda c: announce(c, "2023-04-30", asset_id="b"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_a_value_of_a_wrong_type_is_damage(whole, tmp_path, edit):
    folder = shutil.copytree(whole, tmp_path / "a")
    edit_manifest(folder, lambda _: None)
    assert ba.Archive(folder).coverage().equals(ba.Archive(whole).coverage())
    edit_manifest(folder, edit)
    with pytest.raises(ba.ArchiveDamagedError, match=r"_archive\.json is damaged"):
        ba.Archive(folder).coverage()


def test_whitespace_and_the_order_of_keys_dont_matter_but_the_digest_does(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "a")
    content = json.loads((folder / "_archive.json").read_text())
    (folder / "_archive.json").write_text(json.dumps(dict(reversed(content.items())), indent=4))
    assert ba.Archive(folder).coverage().equals(ba.Archive(whole).coverage())
    (folder / "_archive.json").write_text(json.dumps({**content, "checkpoints": {}}))
    with pytest.raises(ba.ArchiveDamagedError, match="match its digest"):
        ba.Archive(folder).coverage()


def test_coverage_and_status_list_states_and_gaps_in_time_order_and_who_was_asked_last(tmp_path):
    evidence = answered((0, 2), "http://one", "2023-04-09", reached=False)
    for span, name, day, height in (
        ((2, 4), "http://user:secret@one", 1, 7),
        ((9, 12), "http://two", 2, 8),
        ((12, 14), "http://two", 3, 11),
    ):
        evidence = evidence.updated(answered(span, name, f"2023-04-0{day}", height=height))
    third = answered((3, 4), "http://you:secret@three", "2023-04-01").answers[0].node
    begin(tmp_path).set_evidence(evidence.with_verdict(third, [(3, 4)], []))
    frame, shown = ba.Archive(tmp_path).coverage(), ba.Archive(tmp_path).status()
    assert frame["state"].tolist() == ["unproven", "complete", "confirmed", "missing", "complete"]
    assert frame["start"].astype("int64").tolist() == [0, 2, 3, 4, 9]
    assert frame["end"].astype("int64").tolist() == [2, 3, 4, 9, 14]
    assert frame["block_height"].dropna().tolist() == [7, 7, 11]
    assert frame["first_block_height"].dropna().tolist() == [7, 7, 8]
    assert frame["asked_at"].dt.day.dropna().tolist() == [9, 1, 1, 3]
    assert frame["first_asked_at"].dt.day.dropna().tolist() == [9, 1, 1, 2]
    assert frame["source"].dropna().str[-3:].tolist() == ["one", "one", "one", "two"]
    assert frame["confirmed_by"].dropna().str[-5:].tolist() == ["three"]
    begin(tmp_path / "empty")
    assert frame.dtypes.equals(ba.Archive(tmp_path / "empty").coverage().dtypes)
    times = frame.dtypes[["start", "end", "asked_at", "first_asked_at"]]
    assert {*map(str, times)} == {"datetime64[us, UTC]"}

    at = [from_microseconds(place) for place in range(15)]
    assert (shown.unproven, shown.missing) == (((at[0], at[2]),), ((at[4], at[9]),))
    assert shown.complete == ((at[2], at[4]), (at[9], at[14]))
    assert (shown.source, shown.block_height) == ("http://one", None)
    assert shown.asked_at == pd.Timestamp("2023-04-09", tz="UTC")
    lines = str(replace(shown, missing=shown.missing * 5)).splitlines()
    assert next(line for line in lines if line.startswith("missing")).endswith(", and 2 more")
    assert "secret" not in frame.to_csv() + str(shown)
