"""`summary`, `series` and `compare` write what the library computes, and print it in 80 columns."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import LARGEST, accounts, fixed_grids, table_of, times
from tests.archive.exporting import DAY, END, node_of
from tests.archive.exporting import START as BEGIN
from tests.cli.running import ROWS, SAMPLE, SAMPLE_DATA, fails, moment, run

ASSETS = SAMPLE_DATA / "assets.toml"
USD = "e46bed5b0745e4778e9be69108c8d9e81eedd6f92271ef8af77cff45d48a55b1"
AT = moment(BEGIN + DAY), moment(END - DAY // 2)
MOMENTS = ["--at", "2023-04-10", "--at", "2023-04-20"]
BOUNDS = {"start": moment(BEGIN + 9 * DAY // 4), "end": moment(END)}
SINCE = ["--since", BOUNDS["start"], "--until", BOUNDS["end"]]
SPOILING = [
    "VOTE",
    'a "quoted" id',
    "with, comma",
    "two\nlines",
    "",
    "NA",
    "=1+1",
    "-x",
    "\tx",
    "ä/ö",
]


@st.composite
def tables(draw):
    """Draw a table of few accounts, with ids that CSV has to take care of."""
    spoil = st.tuples(*(st.sampled_from(SPOILING) for _ in range(4)))
    levels = draw(
        st.dictionaries(
            st.tuples(accounts | spoil, times), st.integers(-LARGEST, LARGEST), max_size=12
        )
    )
    return table_of([(*account, time, level) for (account, time), level in levels.items()])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=8)
@given(table=tables(), grid=st.none() | fixed_grids(), layout=st.sampled_from(["long", "wide"]))
def test_a_series_of_any_table_is_that_of_the_library(table, grid, layout, scratch):
    ba.write_parquet(table, scratch / "x.parquet")
    asked = {}
    if grid is not None:
        bounds = {"start": grid.start, "end": grid.end}
        asked = {name: moment(bound) for name, bound in bounds.items() if bound is not None}
        asked |= {"freq": grid.freq.text} if grid.freq else {}
    names = {"start": "--since", "end": "--until", "freq": "--freq"}
    options = [word for name, value in asked.items() for word in (names[name], value)]
    expected = ba.balance_series(ba.read_parquet(scratch / "x.parquet"), layout=layout, **asked)
    for ending in ("csv", "parquet"):
        is_written = ("--layout", layout, *options, "-o", scratch / f"ours.{ending}")
        run("series", scratch / "x.parquet", *is_written)
        check_written(expected, scratch / f"ours.{ending}")


def check_written(expected, path):
    """Check that a file is what the library writes of a result."""
    theirs = path.with_stem("theirs")
    ba.write_table(expected, theirs)
    assert path.read_bytes() == theirs.read_bytes()


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
    "summary": ([], ba.summarize_accounts),
    "summary of days": (SINCE, lambda x: ba.summarize_accounts(x, **BOUNDS)),
    "series": ([], lambda x: ba.balance_series(x, layout="long")),
    "series of hours": (
        ["--freq", "6h", *SINCE],
        lambda x: ba.balance_series(x, freq="6h", layout="long", **BOUNDS),
    ),
    "series of assets": (
        ["--by", "asset", "--freq", "1D"],
        lambda x: ba.balance_series(x, by="asset_id", freq="1D", layout="long"),
    ),
    "compare": (["--at", AT[0], "--at", AT[1]], lambda x: ba.compare(x, at=AT)),
    "compare parties": (
        ["--at", AT[0], "--at", AT[1], "--by", "party"],
        lambda x: ba.compare(x, at=AT, by="party_id"),
    ),
}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *((name, "rows") for name in RESULTS),
        *product(["summary of days", "compare"], ["archive", "gapped", "short"]),
    ],
)
def test_what_is_written_is_what_the_library_computes(name, source, sources, tmp_path):
    (command, *_), (options, compute), path = name.split(), RESULTS[name], sources[source]
    is_file = path.suffix == ".parquet"
    table = ba.read_parquet(path) if is_file else ba.Archive(path).read(partial=True)
    how = [*options, *(["--partial"] if source == "gapped" else [])]
    run(command, path, *how, "-o", tmp_path / "ours.csv")
    check_written(compute(table), tmp_path / "ours.csv")
    printed = run(command, path, *how, "--format", "csv").stdout
    assert printed == (tmp_path / "ours.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("by", ["type", "market"])
def test_a_summary_of_holders_has_those_of_the_library(by, sources, tmp_path):
    column = {"type": "account_type", "market": "market_id"}[by]
    run("summary", sources["rows"], "--by", by, "-o", tmp_path / "ours.csv")
    holders = ba.summarize_parties(ba.read_parquet(sources["rows"]), by=column)
    ba.write_table(holders, tmp_path / "theirs.csv")
    ours, theirs = ((tmp_path / f"{x}.csv").read_text().splitlines() for x in ("ours", "theirs"))
    assert sorted(ours) == sorted(theirs)


def test_whole_units_are_those_of_the_library(tmp_path):
    words = (SAMPLE, "--asset-id", "tUSD", "--assets", ASSETS, "--units")
    usd = ba.read_parquet(SAMPLE, assets=ASSETS).balances.select(asset_id="tUSD")
    summary = ba.summarize_accounts(usd, units=True)
    run("summary", *words, "-o", tmp_path / "ours.csv")
    check_written(summary, tmp_path / "ours.csv")
    run("series", *words, "--freq", "1D", "-o", tmp_path / "ours.json")
    series = ba.balance_series(usd, freq="1D", layout="long", units=True)
    check_written(series, tmp_path / "ours.json")
    assert str(summary["closing"].max()) in run("summary", *words, "--wide", "--limit", 0).stdout


@pytest.mark.parametrize(
    ("command", "name"), [("series", "x.csv"), ("summary", "x.json"), ("series", "x.parquet")]
)
def test_the_file_s_name_gives_the_format_and_the_bytes_are_the_same_each_time(
    command, name, tmp_path
):
    arguments = (command, SAMPLE, "--account-type", "bond", "-o")
    run(*arguments, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    run(*arguments, tmp_path / name, "-q")
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert first[:4] == {"x.csv": b"asse", "x.json": b"[\n  ", "x.parquet": b"PAR1"}[name]


@pytest.mark.parametrize("command", ["series", "summary"])
def test_an_archive_with_a_gap_is_incomplete_unless_partial_is_asked_for(command, gapped, tmp_path):
    said = fails(command, gapped, "-o", tmp_path / "x.csv", code=3, folder=tmp_path)
    assert "is missing" in said
    assert "; pass `--partial` to read what there is" in said
    said = run(command, gapped, "-o", tmp_path / "x.csv", "--partial").stderr
    assert "is missing" in said
    assert "to read what there is" not in said
    assert (tmp_path / "x.csv").exists()


def test_a_file_that_does_not_know_all_that_was_asked_for_says_what_it_lacks(sources):
    lacks = " to ".join(f"{moment(BEGIN + days * DAY):%Y-%m-%dT%H:%MZ}" for days in (0, 1))
    for bounds in ((), ("--until", moment(BEGIN + 3 * DAY))):
        for command in ("series", "summary"):
            said = run(command, sources["short"], *bounds, "--format", "csv").stderr
            assert (said.count("\n"), lacks in said) == (1, True)
    inside = ("--since", moment(BEGIN + DAY), "--until", moment(BEGIN + 2 * DAY))
    assert run("series", sources["short"], *inside).stderr == ""


def test_the_largest_holders_of_each_asset_stand_first():
    lines = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--wide").stdout.splitlines()
    largest = ba.holders(ba.read_parquet(SAMPLE), by="party_id", n=2)
    assert [line.split()[1] for line in lines[1:-1]] == largest["party_id"].tolist()
    assert lines[-1] == f"... {len(largest)} of 497 rows; --limit 0 shows all"
    short = run("summary", SAMPLE, "--by", "party", "--limit", 2, "--assets", ASSETS).stdout
    assert short.splitlines()[0].split()[:2] == ["asset", "party"]
    assert max(map(len, short.splitlines())) <= 80


def test_a_printed_comparison_ends_with_what_became_of_all():
    words = ("compare", SAMPLE, *MOMENTS, "--assets", ASSETS)
    lines = run(*words, "--by", "party").stdout.splitlines()
    names = ["before", "after", "change"]
    assert lines[0].split() == ["asset", "party", *names, "change_percent", "state"]
    assert lines[-1] == "0 new, 5 gone, 488 changed, 1 same, 3 unknown"
    assert max(map(len, lines)) <= 80
    lines = run(*words).stdout.splitlines()
    assert lines[0].split() == ["asset", "type", "party", "market", *names]
    assert max(map(len, lines)) <= 80


def test_a_wide_series_by_party_has_what_parties_are_called_above_it(tmp_path):
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
