"""`summary`, `series` and `compare` write what the library computes, and print it in 80 columns."""

import re
import shlex
from itertools import product
from pathlib import Path

import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, ROWS, node_of
from tests.archive.exporting import START as BEGIN
from tests.cli.running import SAMPLE, SAMPLE_DATA, fails, moment, run

ASSETS = SAMPLE_DATA / "assets.toml"
MOMENTS = moment(BEGIN + DAY), moment(END - DAY // 2)
AT = "--at '{}' --at '{}'".format(*MOMENTS)
BOUNDS = {"start": moment(BEGIN + 9 * DAY // 4), "end": moment(END)}
SINCE = "--since '{start}' --until '{end}'".format(**BOUNDS)


def check_written(expected, path, *, ordered=True):
    """Check that a file equals the library's file of a result, or has its lines in any order."""
    theirs = path.with_stem("theirs")
    ba.write_table(expected, theirs)
    lines = [each.read_bytes().splitlines() for each in (path, theirs)]
    assert lines[0] == lines[1] if ordered else sorted(lines[0]) == sorted(lines[1])


@pytest.fixture(scope="module")
def sources(tmp_path_factory, whole, gapped):
    """An archive, a file of its rows, one of a load with a gap, and an archive with one."""
    folder = tmp_path_factory.mktemp("tables")
    ba.write_parquet(ba.Archive(whole).read(), folder / "rows.parquet")
    unknown = [(BEGIN, BEGIN + DAY), (BEGIN + 2 * DAY, END)]
    lacks = ", ".join(f"{start * 1000}-{end * 1000}" for start, end in unknown)
    with node_of(ROWS, extra_headers={"X-Incomplete": lacks}) as node:
        interval = ("--since", moment(BEGIN), "--until", moment(END))
        said = run("fetch", node.url, "-o", folder / "short.parquet", *interval, code=3).stderr
    assert "short.parquet is incomplete" in said
    files = {name: folder / f"{name}.parquet" for name in ("rows", "short")}
    return {"archive": whole, "gapped": gapped, **files}


RESULTS = {
    "summary": ba.summarize_accounts,
    f"summary {SINCE}": lambda x: ba.summarize_accounts(x, **BOUNDS),
    "summary --by type": lambda x: ba.summarize_parties(x, by="account_type"),
    "summary --by market": lambda x: ba.summarize_parties(x, by="market_id"),
    "series": lambda x: ba.balance_series(x, layout="long"),
    f"series --freq 6h {SINCE}": lambda x: ba.balance_series(x, freq="6h", layout="long", **BOUNDS),
    "series --by asset --freq 1D": lambda x: ba.balance_series(
        x, by="asset_id", freq="1D", layout="long"
    ),
    "series --layout wide": lambda x: ba.balance_series(x, layout="wide"),
    f"compare {AT}": lambda x: ba.compare(x, at=MOMENTS),
    f"compare {AT} --by party": lambda x: ba.compare(x, at=MOMENTS, by="party_id"),
}


@pytest.mark.parametrize(
    ("command", "source", "ending"),
    [
        *((command, "rows", "csv") for command in RESULTS),
        *product([f"summary {SINCE}", f"compare {AT}"], ["archive", "gapped", "short"], ["csv"]),
        *product(["summary", "series"], ["rows"], ["json", "parquet"]),
    ],
)
def test_written_rows_are_those_that_the_library_computes(
    command, source, ending, sources, tmp_path
):
    (name, *options), path, ours = shlex.split(command), sources[source], tmp_path / f"x.{ending}"
    table = ba.read_parquet(path) if path.is_file() else ba.Archive(path).read(partial=True)
    words = (name, path, *options, *(["--partial"] if source == "gapped" else []))
    run(*words, "-o", ours)
    is_ranked = name == "summary" and "--by" in options
    check_written(RESULTS[command](table), ours, ordered=not is_ranked)
    if ending != "parquet":
        assert run(*words, "--format", ending).stdout == ours.read_text(encoding="utf-8")


def test_whole_units_are_those_of_the_library(tmp_path):
    words = (SAMPLE, "--asset-id", "tUSD", "--assets", ASSETS, "--units")
    usd = ba.read_parquet(SAMPLE, assets=ASSETS).balances.select(asset_id="tUSD")
    summary = ba.to_units(ba.summarize_accounts(usd))
    run("summary", *words, "-o", tmp_path / "ours.csv")
    check_written(summary, tmp_path / "ours.csv")
    run("series", *words, "--freq", "1D", "-o", tmp_path / "ours.json")
    series = ba.to_units(ba.balance_series(usd, freq="1D", layout="long"))
    check_written(series, tmp_path / "ours.json")
    assert str(summary["closing"].max()) in run("summary", *words, "--wide", "--limit", 0).stdout


@pytest.mark.parametrize("command", ["series -o x.csv", "summary -o x.csv", "plot -o x.svg"])
def test_an_archive_with_a_gap_is_incomplete_unless_partial_is_asked_for(
    command, gapped, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()
    said = fails(name, gapped, *options, code=3, folder=tmp_path)
    assert "is missing" in said
    assert "; pass `--partial` to read it anyway" in said
    said = run(name, gapped, *options, "--partial").stderr
    assert "is missing" in said
    assert "to read it anyway" not in said
    assert Path(options[-1]).exists()
    behind = ("--since", moment(BEGIN + 2 * DAY), "--until", moment(END))
    assert "is missing" not in run(name, gapped, *options, *behind).stderr


def test_a_file_whose_known_intervals_lack_a_part_of_the_requested_one_is_named(sources):
    lacks = " to ".join(f"{moment(BEGIN + days * DAY):%Y-%m-%dT%H:%MZ}" for days in (0, 1))
    for bounds in ((), ("--until", moment(BEGIN + 3 * DAY))):
        for command in ("series", "summary"):
            said = run(command, sources["short"], *bounds, "--format", "csv").stderr
            assert (said.count("\n"), lacks in said) == (1, True)
    inside = ("--since", moment(BEGIN + DAY), "--until", moment(BEGIN + 2 * DAY))
    assert run("series", sources["short"], *inside).stderr == ""


def test_the_largest_holders_of_each_asset_come_first():
    lines = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--wide").stdout.splitlines()
    largest = ba.holders(ba.read_parquet(SAMPLE), by="party_id", n=2)
    assert [line.split()[1] for line in lines[1:-1]] == largest["party_id"].tolist()
    assert lines[-1] == f"... {len(largest)} of 497 rows; --limit 0 shows all"
    short = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--assets", ASSETS).stdout
    assert short.splitlines()[0].split()[:2] == ["asset", "party"]
    assert re.search(r" \d[\d,]*\.\d\d ", short)
    assert max(map(len, short.splitlines())) <= 80


def test_a_printed_comparison_ends_with_counts_of_all_states():
    moments = ("--at", "2023-04-10", "--at", "2023-04-20")
    words = ("compare", SAMPLE, *moments, "--assets", ASSETS)
    lines = run(*words, "--by", "party").stdout.splitlines()
    names = ["before", "after", "change"]
    assert lines[0].split() == ["asset", "party", *names, "change_percent", "state"]
    assert lines[-1] == "0 new, 5 gone, 488 changed, 1 same, 3 unknown"
    assert max(map(len, lines)) <= 80
    lines = run(*words).stdout.splitlines()
    assert lines[0].split() == ["asset", "type", "party", "market", *names]
    assert max(map(len, lines)) <= 80


def test_a_wide_series_by_party_has_the_parties_names_in_its_header(tmp_path):
    table = ba.read_parquet(SAMPLE)
    (asset,) = (one for one, x in ba.read_assets(ASSETS).items() if x.symbol == "tUSD")
    one, other = sorted({*table["party_id"][table["asset_id"] == asset]} - {"network"})[:2]
    (tmp_path / "names.csv").write_text(f"id,label\n{one},Alice\n")
    names = ("--assets", ASSETS, "--labels", tmp_path / "names.csv")
    words = ("--by", "party", "--layout", "wide", "--freq", "7D", "--asset-id", "tUSD")
    said = run("series", SAMPLE, *words, *names, "--party-id", "Alice", "--party-id", other).stdout
    header = said.splitlines()[0]
    unit, short = "[10^-6 tUSD]", f"{other[:6]}..{other[-4:]}"
    assert header == f"timestamp,tUSD/Alice {unit},tUSD/{short} {unit}"
