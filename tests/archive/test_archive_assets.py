"""Names of assets, parties and markets are given once, kept, and known to every reader."""

import io
from pathlib import Path

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import END, ROWS, START, client_of, loaded, run_export
from tests.cli.running import run
from tests.node.truth import lines_of_table

ASSET = ROWS[0].account[0]
OTHER = next(row.account[0] for row in ROWS if row.account[0] != ASSET)
NAMES = {ASSET: {"symbol": "tUSD", "decimals": 6}}
PARTY = next(row.account[2] for row in ROWS if len(row.account[2]) == 64)
LABELS = {PARTY: "Alice"}
SHORT = f"{PARTY[:6].upper()}…{PARTY[-4:]}"
ALSO = {OTHER: {"symbol": "tGOV", "decimals": 18}}


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
    run_export(node, archive.uri, end=END, assets={ASSET: 7})  # later names win
    assert archive.names().assets == ba.read_assets(ALSO | {ASSET: 7})
    assert archive.verify().problems == ()


def test_labels_are_kept_wherever_assets_are(node, tmp_path):
    names, own = {"assets": NAMES, "labels": LABELS}, {"b2" * 32: "Savings"}
    run_export(node, tmp_path / "a", start=START, end=END, **names)
    run_export(node, tmp_path / "a", end=END, labels=own)
    archive, kept = ba.Archive(tmp_path / "a"), ba.read_labels(LABELS | own)
    assert archive.names().labels == kept
    assert archive.verify().problems == ()
    table = archive.select(party_ids="alice").read()
    loads = loaded(node, START, END, party_ids="Alice", **names)
    for each in (table, loads):
        assert set(each["party_id"]) == {PARTY}
    ba.write_parquet(table, tmp_path / "t.parquet")
    with client_of(node) as client:
        note = ba.load_to_parquet(client, tmp_path / "u.parquet", party_ids="Alice", **names)
    assert PARTY in str(note["filters"])
    for known, expected in (
        (table, kept),
        (loads, ba.read_labels(LABELS)),
        (ba.read_parquet(tmp_path / "t.parquet"), kept),
        (ba.read_parquet(tmp_path / "u.parquet"), ba.read_labels(LABELS)),
        (ba.read_parquet(tmp_path / "u.parquet", labels=kept), kept),
        (ba.balance_at(archive, table["timestamp"].iloc[-1]), kept),
        (ba.summarize_accounts(archive), kept),
        (ba.totals(archive, by="account_type", freq="1D"), kept),
    ):
        assert names_of(known) == (ba.read_assets(NAMES), expected)


def test_an_archive_bound_by_names_continues_with_them(node, tmp_path):
    bound = {"asset_id": "tUSD", "party_ids": "alice"}
    run_export(node, tmp_path / "a", start=START, end=END, assets=NAMES, labels=LABELS, **bound)
    run_export(node, tmp_path / "a", end=END, **bound)
    held = ba.Archive(tmp_path / "a").read()
    assert {*zip(held["asset_id"], held["party_id"], strict=True)} == {(ASSET, PARTY)}


@pytest.mark.parametrize(
    ("name", "word", "whole"), [("asset_id", "TUSD", ASSET), ("party_ids", SHORT, PARTY)]
)
def test_every_way_to_read_an_archive_takes_its_symbols_and_short_ids(archive, name, word, whole):
    selected, column = archive.select(**{name: word}), name.removesuffix("s")
    expected = archive.read().query(f"{column} == @whole")
    assert lines_of_table(selected.read()) == lines_of_table(expected) != []
    assert set(ba.balance_at(selected, "2023-05-03")[column]) == {whole}
    shown = run("series", archive.uri, f"--{column.replace('_', '-')}", word).stdout
    assert {*pd.read_csv(io.StringIO(shown))[column]} == {whole}


def test_a_selection_names_a_filter_that_matches_nothing_and_accepts_other_names(archive):
    with pytest.raises(ValueError, match=r"'tUSB' .*did you mean tUSD"):
        archive.select(asset_id="tUSB")
    renamed = archive.select(asset_id="X", assets={ASSET: {"symbol": "X", "decimals": 1}}).read()
    assert {*renamed["asset_id"]} == {ASSET}
    assert names_of(renamed)[0][ASSET].symbol == "X"


@pytest.mark.parametrize(("kind", "given"), [("assets", NAMES), ("labels", LABELS)])
def test_a_damaged_file_of_names_is_named_and_repaired_by_passing_them_again(
    node, archive, kind, given
):
    run_export(node, archive.uri, end=END, **{kind: given})
    file = Path(archive.uri, f"_{kind}.json")
    file.write_text(file.read_text()[:-5])
    (problem,) = archive.verify().problems
    assert (problem.kind, problem.where) == (kind, file.name)
    assert f"--{kind}" in problem.remedy
    with pytest.raises(ba.ArchiveDamagedError, match=f"{file.name} is damaged"):
        archive.read()
    run_export(node, archive.uri, end=END)  # a schedule goes on
    run_export(node, archive.uri, end=END, **{kind: given})
    assert archive.verify().problems == ()


def test_commands_keep_and_show_names_of_options_or_variables(node, whole, tmp_path):
    assets, labels = tmp_path / "assets.toml", tmp_path / "labels.csv"
    assets.write_text(f'["{ASSET}"]\nsymbol = "tUSD"\ndecimals = 6\n')
    labels.write_text(f"party_id,label\n{PARTY},Alice\n")
    file, kept = tmp_path / "x.parquet", tmp_path / "b"
    given = ("--assets", assets, "--labels", labels)
    run("fetch", node.url, "-o", file, "--asset-id", "tUSD", *given)
    variables = {"BALANCE_ANALYSIS_ASSETS": str(assets), "BALANCE_ANALYSIS_LABELS": str(labels)}
    run("export", kept, node.url, env=variables)
    rows = [run("series", source, "--asset-id", "tusd").stdout for source in (file, kept)]
    assert rows[0] == rows[1]
    written = pd.read_csv(io.StringIO(rows[0]))
    assert {*zip(written["symbol"], written["asset_id"], strict=True)} == {("tUSD", ASSET)}
    names = ba.Archive(kept).names()
    assert (names.assets, names.labels) == (ba.read_assets(NAMES), ba.read_labels(LABELS))
    for source in (file, kept):
        shown = run("summary", source, "--asset-id", "tUSD", "--party-id", "ALICE").stdout
        assert ("tUSD" in shown, "Alice" in shown) == (True, True)
        assert (ASSET[:6] in shown, PARTY[:6] in shown) == (False, False)
    assert "Alice" in run("summary", whole, "--party-id", "ALICE", env=variables).stdout
    run("summary", kept, "--party-id", "Alice", "-o", tmp_path / "y.csv")
    assert set(pd.read_csv(tmp_path / "y.csv")["party_id"]) == {PARTY}
