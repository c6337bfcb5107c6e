from __future__ import annotations

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, node_of, run_export, spread_history
from tests.archive.exporting import START as BEGIN
from tests.cli.running import SAMPLE, SAMPLE_DATA, fails, moment, run

ASSETS = str(SAMPLE_DATA / "assets.toml")
AT = ("2023-04-10", "2023-04-20")
MOMENTS = ["--at", AT[0], "--at", AT[1]]
COLUMNS = {"party": "party_id", "type": "account_type", "market": "market_id", "asset": "asset_id"}


@pytest.fixture(scope="module")
def table():
    return ba.read_parquet(SAMPLE)


def test_the_largest_holders_of_each_asset_stand_first(table):
    lines = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--wide").stdout.splitlines()
    shown = ba.holders(table, by="party_id", n=2)
    assert [line.split()[1] for line in lines[1:-1]] == shown["party_id"].tolist()
    assert lines[-1] == f"... {len(shown)} of 497 rows; --limit 0 shows all"
    short = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--assets", ASSETS).stdout
    assert short.splitlines()[0].split()[:2] == ["asset", "party"]
    assert max(map(len, short.splitlines())) <= 80


@pytest.mark.parametrize("by", COLUMNS)
def test_a_summary_in_a_file_is_that_of_the_library(by, table, tmp_path):
    output = tmp_path / "summary.parquet"
    run("summary", SAMPLE, "--by", by, "-o", output)
    names = list(dict.fromkeys(["asset_id", COLUMNS[by]]))
    shown = pd.read_parquet(output).sort_values(names, ignore_index=True)
    expected = ba.summarize_parties(table, by=COLUMNS[by])
    for name in ("accounts", "rows", "closing", "internal"):
        assert shown[name].tolist() == expected[name].tolist()


def test_a_series_by_asset_is_that_of_the_library(table, tmp_path):
    output = tmp_path / "series.csv"
    run("series", SAMPLE, "--by", "asset", "--freq", "1D", "-o", output)
    expected = ba.balance_series(table, freq="1D", layout="long", by="asset_id")
    assert pd.read_csv(output, dtype=str)["balance"].dropna().tolist() == (
        expected["balance"].dropna().astype("str").tolist()
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """An archive, and a file of its rows."""
    folder = tmp_path_factory.mktemp("parties")
    with node_of(spread_history(5, rows=200, accounts=30)) as node:
        run_export(node, folder / "archive", start=BEGIN, end=END)
    ba.write_parquet(ba.Archive(folder / "archive").read(), folder / "rows.parquet")
    return folder / "archive", folder / "rows.parquet"


@pytest.mark.parametrize("by", [None, *COLUMNS])
def test_two_moments_of_a_file_and_of_an_archive_compare_as_in_the_library(by, sources, tmp_path):
    at = moment(BEGIN + DAY), moment(END - DAY // 2)
    columns = COLUMNS[by] if by else ba.ACCOUNT_KEY
    expected = ba.compare(ba.Archive(sources[0]).read(), at=at, by=columns)
    assert len(expected["state"].unique()) > 1
    how = ["--at", at[0].isoformat(), "--at", at[1].isoformat(), *(["--by", by] if by else [])]
    for source in sources:
        output = tmp_path / "compared.csv"
        run("compare", source, *how, "-o", output)
        shown = pd.read_csv(output, dtype=str, keep_default_na=False)
        for name in ("before", "after", "change", "state"):
            texts = expected[name].astype("str").where(expected[name].notna(), "")
            assert shown[name].tolist() == texts.tolist()


def test_a_comparison_in_a_file_has_the_names_that_are_given(sources, tmp_path):
    party = ba.summarize_accounts(ba.Archive(sources[0]))["party_id"].mode()[0]
    (tmp_path / "names.csv").write_text(f"id,label\n{party},Alice\n")
    at = ("--at", moment(BEGIN + DAY).isoformat(), "--at", moment(END - DAY // 2).isoformat())
    names = ("--labels", tmp_path / "names.csv", "--party", "Alice")
    for source in sources:
        run("compare", source, *at, *names, "--by", "party", "-o", tmp_path / "compared.csv")
        assert {*pd.read_csv(tmp_path / "compared.csv")["label"]} == {"Alice"}


def test_a_printed_comparison_ends_with_what_became_of_all():
    lines = run(
        "compare", SAMPLE, *MOMENTS, "--by", "party", "--assets", ASSETS
    ).stdout.splitlines()
    assert lines[0].split() == [
        "asset",
        "party",
        "before",
        "after",
        "change",
        "change_percent",
        "state",
    ]
    assert lines[-1] == "0 new, 5 gone, 488 changed, 1 same, 3 unknown"
    assert max(map(len, lines)) <= 80


def test_a_printed_comparison_of_accounts_shows_what_each_held_before_and_after():
    lines = run("compare", SAMPLE, *MOMENTS, "--assets", ASSETS).stdout.splitlines()
    assert lines[0].split() == ["asset", "type", "party", "market", "before", "after", "change"]
    assert max(map(len, lines)) <= 80


def test_a_wide_series_by_party_has_what_parties_are_called_above_it(tmp_path):
    table = ba.read_parquet(SAMPLE)
    (asset,) = (one for one, x in ba.read_assets(ASSETS).items() if x.symbol == "tUSD")
    one, other = sorted({*table["party_id"][table["asset_id"] == asset]} - {"network"})[:2]
    (tmp_path / "names.csv").write_text(f"id,label\n{one},Alice\n")
    names = ("--assets", ASSETS, "--labels", tmp_path / "names.csv")
    words = ("--by", "party", "--layout", "wide", "--freq", "7D", "--asset", "tUSD")
    said = run("series", SAMPLE, *words, *names, "--party", "Alice", "--party", other).stdout
    header = said.splitlines()[0]
    unit, short = "[10^-6 tUSD]", f"{other[:6]}..{other[-4:]}"
    assert header == f"timestamp,tUSD/Alice {unit},tUSD/{short} {unit}"


def test_a_comparison_takes_two_moments_the_earlier_one_first(tmp_path):
    turned = ("compare", SAMPLE, "--at", AT[1], "--at", AT[0])
    assert "the earlier one first" in fails(*turned, code=2, folder=tmp_path)
    said = fails(
        "compare", SAMPLE, "--at", AT[0], "-o", tmp_path / "x.csv", code=2, folder=tmp_path
    )
    assert "--at BEFORE --at AFTER" in said
