"""`summary` and `series` print and write every row and digit, and refuse what can't be shown."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import (
    LARGEST,
    accounts,
    fixed_grids,
    table_of,
    times,
)
from tests.archive.exporting import DAY, END, node_of
from tests.archive.exporting import START as BEGIN
from tests.cli.running import ROWS, fails, moment, run

SAMPLE = Path(__file__).parents[2] / "sample_data" / "changes.parquet"
ASSETS = SAMPLE.with_name("assets.toml")
USD = "e46bed5b0745e4778e9be69108c8d9e81eedd6f92271ef8af77cff45d48a55b1"
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


def read_back(text):
    """Return lines of CSV as dicts, text as it stands, without the unit of amounts."""
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row.pop("unit", "smallest") for row in rows} <= {"smallest"}
    return rows


def as_text(frame):
    """Return what CSV must have of a frame: an independent writing of each cell."""
    columns = [_text(str(name)) for name in frame.columns]
    return [
        {name: _text(value) for name, value in zip(columns, row, strict=True)}
        for row in frame.itertuples(index=False, name=None)
    ]


def only_amounts(rows):
    """Return rows of a summary without shares, which as_text writes in another way."""
    return [{name: text for name, text in row.items() if name != "zero_share"} for row in rows]


def _text(value):
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_run = isinstance(value, str) and value[:1] in tuple("=+-@\t\r\n")
    return f"'{value}" if is_run else str(value)


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
def test_series_read_back_are_the_series_of_the_library(table, grid, layout, scratch):
    ba.write_parquet(table, scratch / "x.parquet")
    options, asked = [], {}
    if grid is not None:
        for option, name, value in (
            ("--since", "start", grid.start),
            ("--until", "end", grid.end),
        ):
            if value is not None:
                asked[name] = moment(value)
                options += [option, asked[name].isoformat()]
        asked["freq"] = grid.freq and grid.freq.text
        options += ["--freq", asked["freq"]] if asked["freq"] else []
    expected = ba.balance_series(table, layout=layout, **asked)
    said = run("series", scratch / "x.parquet", "--layout", layout, *options).stdout
    header = next(csv.reader(io.StringIO(said)))
    if layout == "wide":
        assert len({*header}) == len(header)
        expected = expected.set_axis(header[1:], axis="columns").reset_index()
    assert read_back(said) == as_text(expected)
    written = scratch / "y.parquet"
    run("series", scratch / "x.parquet", "--layout", layout, *options, "-o", written)
    back = pq.read_table(written)
    assert [_text(name) for name in back.column_names] == header
    cells = back.drop_columns([name for name in back.column_names if name == "unit"])
    assert [list(row.values()) for row in cells.to_pylist()] == [
        [None if value is pd.NA else value for value in row]
        for row in expected.itertuples(index=False, name=None)
    ]


def test_series_as_json_have_amounts_as_text():
    options = ("--asset", USD, "--account-type", "insurance", "--freq", "7D")
    rows = json.loads(run("series", SAMPLE, *options, "--format", "json").stdout)
    assert {type(row["balance"]) for row in rows} == {str, type(None)}
    assert {row["state"] for row in rows} == {"carried", "unknown"}


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


def test_summary_as_parquet_is_the_summary_of_the_library(tmp_path):
    expected = ba.summarize_accounts(ba.read_parquet(SAMPLE))
    run("summary", SAMPLE, "-o", tmp_path / "x.parquet")
    back = pq.read_table(tmp_path / "x.parquet")
    assert back.column_names == [*expected.columns, "unit"]
    assert str(back.schema.field("maximum").type) == "decimal128(38, 0)"
    assert str(back.schema.field("asset_id").type).startswith("dictionary<values=string")
    plain = back.select(["rows", "opening", "maximum", "drawdown", "zero_share"]).to_pandas()
    assert plain["rows"].tolist() == expected["rows"].tolist()
    for name in ("opening", "maximum", "drawdown"):
        assert [_text(value) for value in plain[name]] == [_text(x) for x in expected[name]]
    assert plain["zero_share"].equals(expected["zero_share"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "parquet"], "-o FILE.parquet"),
        (["-o", "{}/x.doc"], ".csv, .json, .parquet or .xlsx"),
        (["-o", "{}/x"], "--format"),
        (["-o", "{}/none/x.csv"], "make it first"),
        (["-o", "{}/folder.csv"], "is a folder"),
        (["-o", "{}/x.csv", "--format", "table"], "for the terminal"),
    ],
)
def test_an_output_that_can_not_be_is_usage_before_anything_is_read(arguments, says, tmp_path):
    arguments = [each.format(tmp_path) for each in arguments]
    (tmp_path / "folder.csv").mkdir()
    said = fails("summary", tmp_path / "missing", *arguments, code=2, folder=tmp_path)
    assert says in said
    assert "missing" not in said


def test_a_grid_that_is_too_large_is_usage_and_says_what_to_do(tmp_path):
    arguments = ("series", SAMPLE, "--freq", "1s", "--layout", "wide")
    said = fails(*arguments, "-o", tmp_path / "x.csv", code=2, folder=tmp_path)
    assert "GB" in said
    assert "a shorter interval" in said


@pytest.mark.parametrize("command", ["series", "summary"])
def test_filters_that_leave_nothing_do_not_replace_a_file(command, tmp_path):
    (tmp_path / "x.csv").write_text("old")
    arguments = (command, SAMPLE, "--asset-id", "id:tUSD", "-o", tmp_path / "x.csv")
    said = fails(*arguments, code=2, folder=tmp_path)
    assert "tUSD" in said


def test_a_filter_that_leaves_nothing_beside_others_is_refused(tmp_path):
    party = ba.read_parquet(SAMPLE)["party_id"].iloc[0]
    other = "ab" * 32
    arguments = ("series", SAMPLE, "--party", party, "--party", other, "-o", tmp_path / "x.csv")
    assert other[:4] in fails(*arguments, code=2, folder=tmp_path)


@pytest.mark.parametrize("command", ["series", "summary"])
def test_an_archive_with_a_gap_is_incomplete_unless_partial_is_asked_for(command, gapped, tmp_path):
    said = fails(command, gapped, "-o", tmp_path / "x.csv", code=3, folder=tmp_path)
    assert "is missing" in said
    assert "; `--partial` takes what there is" in said
    said = run(command, gapped, "-o", tmp_path / "x.csv", "--partial").stderr
    assert "is missing" in said
    assert "takes what there is" not in said
    assert (tmp_path / "x.csv").exists()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A file of a load of four days of which only the second one is known."""
    file = tmp_path_factory.mktemp("short") / "x.parquet"
    unknown = [(BEGIN, BEGIN + DAY), (BEGIN + 2 * DAY, END)]
    incomplete = ", ".join(f"{start * 1000}-{end * 1000}" for start, end in unknown)
    with node_of(ROWS, extra_headers={"X-Incomplete": incomplete}) as node:
        interval = ("--since", moment(BEGIN), "--until", moment(END))
        said = run("fetch", node.url, "-o", file, *interval, code=3).stderr
    assert "x.parquet is incomplete" in said
    return file


def test_a_file_that_does_not_know_all_that_was_asked_for_says_what_it_lacks(short):
    lacks = " to ".join(f"{moment(BEGIN + days * DAY):%Y-%m-%dT%H:%MZ}" for days in (0, 1))
    for bounds in ((), ("--until", moment(BEGIN + 3 * DAY))):
        for command in ("series", "summary"):
            said = run(command, short, *bounds, "--format", "csv").stderr
            assert (said.count("\n"), lacks in said) == (1, True)
    inside = ("--since", moment(BEGIN + DAY), "--until", moment(BEGIN + 2 * DAY))
    assert run("series", short, *inside).stderr == ""
    table = ba.read_parquet(short)
    said = read_back(run("series", short, "--freq", "1h").stdout)
    assert said == as_text(ba.balance_series(table, freq="1h", layout="long"))


def test_what_an_archive_does_not_know_before_the_interval_is_empty(gapped):
    bounds = {"start": moment(BEGIN + 9 * DAY // 4), "end": moment(END)}
    options = ("--since", bounds["start"], "--until", bounds["end"])
    table = ba.Archive(gapped).read(**bounds, opening=True)
    held = ba.balance_at(table, bounds["start"] - pd.Timedelta("1us"))
    assert {pd.isna(balance) for balance in held["balance"]} == {True, False}
    said = read_back(run("summary", gapped, *options, "--format", "csv").stdout)
    expected = as_text(ba.summarize_accounts(table, **bounds))
    assert only_amounts(said) == only_amounts(expected)
    table = ba.Archive(gapped).read(partial=True)
    said = read_back(run("series", gapped, *options, "--freq", "6h").stdout)
    expected = ba.balance_series(table, freq="6h", layout="long", **bounds)
    assert said == as_text(expected)


@pytest.mark.parametrize("how", [(), ("--wide",), ("--format", "json")])
def test_whole_units_that_nobody_knows_are_refused_however_they_are_shown(how, tmp_path):
    with node_of(ROWS[:9]) as node:
        run("fetch", node.url, "-o", tmp_path / "x.parquet")
    said = fails("summary", tmp_path / "x.parquet", "--units", *how, code=2, folder=tmp_path)
    assert re.search("how many decimals the assets .* have is not known: give assets", said)


def test_files_and_wide_tables_have_whole_units_if_these_are_wanted(tmp_path):
    words = (SAMPLE, "--asset-id", "tUSD", "--assets", ASSETS)
    run("summary", *words, "--units", "-o", tmp_path / "a.csv")
    run("series", *words, "--freq", "1D", "--units", "-o", tmp_path / "s.csv")
    table = ba.read_parquet(SAMPLE, assets=ASSETS)
    usd = table.balances.select(asset_id="tUSD")
    wanted = ba.summarize_accounts(usd, units=True)
    assert pd.read_csv(tmp_path / "a.csv")["closing"].tolist() == wanted["closing"].tolist()
    series = ba.balance_series(usd, freq="1D", layout="long", units=True)["balance"].dropna()
    assert pd.read_csv(tmp_path / "s.csv")["balance"].dropna().tolist() == series.tolist()
    assert (
        str(wanted["closing"].max())
        in run("summary", *words, "--units", "--wide", "--limit", 0).stdout
    )
