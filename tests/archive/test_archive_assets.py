"""What assets, parties and markets are called is given once, kept, and known to whoever reads."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import END, ROWS, START, loaded, run_export
from tests.cli.running import run
from tests.node.truth import lines_of_table

ASSET = ROWS[0].account[0]
OTHER = next(row.account[0] for row in ROWS if row.account[0] != ASSET)
NAMES = {ASSET: {"symbol": "tUSD", "decimals": 6}}
PARTY = next(row.account[2] for row in ROWS if len(row.account[2]) == 64)
LABELS = {PARTY: "Alice"}
ALSO = {OTHER: {"symbol": "tGOV", "decimals": 18}}
FILE = f'["{ASSET}"]\nsymbol = "tUSD"\ndecimals = 6\n'


def names_of(frame):
    note = frame.attrs["balance_analysis"]
    return ba.read_assets(note["assets"]), ba.read_labels(note.get("labels", {}))


@pytest.fixture
def archive(node, tmp_path):
    run_export(node, tmp_path / "a", start=START, end=END, assets=NAMES)
    return ba.Archive(tmp_path / "a")


def test_an_archive_keeps_the_assets_of_all_exports(node, archive):
    assert archive.names().assets == ba.read_assets(NAMES)
    run_export(node, archive.uri, end=END)
    assert archive.names().assets == ba.read_assets(NAMES)
    run_export(node, archive.uri, end=END, assets=ALSO)
    assert archive.names().assets == ba.read_assets(NAMES | ALSO)
    run_export(node, archive.uri, end=END, assets={ASSET: 7})  # what is said later holds
    assert archive.names().assets == ba.read_assets(ALSO | {ASSET: 7})
    assert archive.verify().problems == ()


def test_labels_are_kept_wherever_assets_are(node, tmp_path):
    names = {"assets": NAMES, "labels": LABELS}
    run_export(node, tmp_path / "a", start=START, end=END, **names)
    run_export(node, tmp_path / "a", end=END, labels={("A", "B", PARTY, ""): "Savings"})
    run_export(node, tmp_path / "b", start=START, end=END, asset_id="tUSD", assets=NAMES)
    run_export(node, tmp_path / "b", end=END, asset_id="tUSD")
    assert {*ba.Archive(tmp_path / "b").read()["asset_id"]} == {ASSET}
    archive = ba.Archive(tmp_path / "a")
    kept = ba.read_labels(LABELS | {("A", "B", PARTY, ""): "Savings"})
    assert archive.names().labels == kept
    assert archive.verify().problems == ()
    table = archive.select(party_ids="alice").read()
    assert set(table["party_id"]) == {PARTY}
    ba.write_parquet(table, tmp_path / "t.parquet")
    with ba.Client(node.url) as client:
        note = ba.load_to_parquet(client, tmp_path / "u.parquet", party_ids="Alice", **names)
    table_of_node = loaded(node, START, END, party_ids="Alice", **names)
    assert PARTY in str(note["filters"])
    assert set(table_of_node["party_id"]) == {PARTY}
    for known, expected in (
        (table, kept),
        (table_of_node, ba.read_labels(LABELS)),
        (ba.read_parquet(tmp_path / "t.parquet"), kept),
        (ba.read_parquet(tmp_path / "u.parquet"), ba.read_labels(LABELS)),
        (ba.read_parquet(tmp_path / "u.parquet", labels=kept), kept),
        (ba.balance_at(archive, table["timestamp"].iloc[-1]), kept),
        (ba.summarize_accounts(archive), kept),
        (ba.totals(archive, by="account_type", freq="1D"), kept),
    ):
        assert names_of(known) == (ba.read_assets(NAMES), expected)


SPELLED = {"asset_id": [ASSET, "tUSD", "TUSD"], "party_ids": [PARTY]}
SPELLED["party_ids"] += [PARTY[:8], PARTY[:6].upper(), f"{PARTY[:3]}..{PARTY[-9:]}"]


def test_every_way_to_read_an_archive_takes_its_symbols_and_short_ids(archive, tmp_path):
    whole = archive.read()
    for name, words in SPELLED.items():
        expected = whole[whole[name.removesuffix("s")] == words[0]]
        assert len(expected)
        for word in words:
            selected = archive.select(**{name: word})
            assert lines_of_table(selected.read()) == lines_of_table(expected)
            assert sum(batch.num_rows for batch in selected.iter_batches()) == len(expected)
    at = pd.Timestamp(END, unit="us", tz="UTC") - pd.Timedelta("1us")
    assert set(ba.balance_at(archive.select(asset_id="tUSD"), at)["asset_id"]) == {ASSET}
    ba.write_parquet(whole, tmp_path / "x.parquet")
    for source in (archive.uri, tmp_path / "x.parquet"):
        shown = run("series", source, "--party-id", f"{PARTY[:6]}…{PARTY[-4:]}").stdout
        assert {*pd.read_csv(io.StringIO(shown))["party_id"]} == {PARTY}
    for wrong, said in (
        ({"party_ids": "zzzz"}, "'zzzz' is not 64 hex digits"),
        ({"asset_id": "tUSB"}, r"'tUSB' .*did you mean tUSD"),
    ):
        with pytest.raises(ValueError, match=said):
            archive.select(**wrong)
    renamed = archive.select(asset_id="X", assets={ASSET: {"symbol": "X", "decimals": 1}}).read()
    assert lines_of_table(renamed) == lines_of_table(whole[whole["asset_id"] == ASSET])
    assert names_of(renamed)[0][ASSET].symbol == "X"


@pytest.mark.parametrize(("kind", "given"), [("assets", NAMES), ("labels", LABELS)])
def test_a_damaged_file_of_names_is_named_and_mended_by_giving_them_again(
    node, archive, kind, given
):
    run_export(node, archive.uri, end=END, **{kind: given})
    file = Path(archive.uri, f"_{kind}.json")
    file.write_text(file.read_text()[:-5])
    (problem,) = archive.verify().problems
    assert (problem.kind, problem.where) == (kind, file.name)
    assert f"--{kind}" in problem.mend
    with pytest.raises(ba.ArchiveDamagedError, match=f"{file.name} is damaged"):
        archive.read()
    run_export(node, archive.uri, end=END)  # a schedule goes on
    run_export(node, archive.uri, end=END, **{kind: given})
    assert archive.verify().problems == ()


@pytest.mark.usefixtures("without_waits")
def test_the_command_line_keeps_and_takes_symbols(node, archive, tmp_path):
    (tmp_path / "assets.toml").write_text(FILE)
    (tmp_path / "labels.json").write_text(json.dumps(LABELS))
    given = ("--assets", tmp_path / "assets.toml", "--labels", tmp_path / "labels.json")
    run("fetch", node.url, "-o", tmp_path / "x.parquet", "--asset-id", "tUSD", *given)
    run("export", tmp_path / "b", node.url, *given)
    rows = [
        run("series", source, "--asset-id", "tusd").stdout
        for source in (tmp_path / "x.parquet", tmp_path / "b")
    ]
    assert rows[0] == rows[1]
    written = pd.read_csv(io.StringIO(rows[0]))
    assert {*zip(written["symbol"], written["asset_id"], strict=True)} == {("tUSD", ASSET)}
    assert ba.Archive(tmp_path / "b").names().assets == archive.names().assets
    assert ba.Archive(tmp_path / "b").names().labels == ba.read_labels(LABELS)
    summary = run("summary", tmp_path / "b", "--asset-id", "tUSD").stdout
    assert "tUSD" in summary
    assert ASSET[:6] not in summary


def test_variables_name_files_of_names_which_printed_tables_show_and_files_lack(
    archive, tmp_path, monkeypatch
):
    (tmp_path / "labels.csv").write_text(f"party_id,label\n{PARTY},Alice\n")
    (tmp_path / "assets.toml").write_text(FILE.replace("tUSD", "dollar"))
    monkeypatch.setenv("BALANCE_ANALYSIS_LABELS", str(tmp_path / "labels.csv"))
    monkeypatch.setenv("BALANCE_ANALYSIS_ASSETS", str(tmp_path / "assets.toml"))
    assert "dollar" in run("summary", archive.uri, "--asset-id", "Dollar").stdout
    ba.write_parquet(archive.read(), tmp_path / "x.parquet")
    for source in (tmp_path / "x.parquet", archive.uri):
        shown = run("summary", source, "--party-id", "ALICE").stdout
        assert "Alice" in shown
        assert PARTY[:6] not in shown
    run("summary", archive.uri, "--party-id", "Alice", "-o", tmp_path / "y.csv")
    assert set(pd.read_csv(tmp_path / "y.csv")["party_id"]) == {PARTY}
