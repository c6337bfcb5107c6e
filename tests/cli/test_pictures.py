"""`plot` and `report` draw what is asked for, say what they chose, and replace nothing good."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END
from tests.archive.exporting import START as BEGIN
from tests.cli.running import SAMPLE, SAMPLE_DATA, moment, run

ASSETS = SAMPLE_DATA / "assets.toml"
USD = "e46bed5b0745e4778e9be69108c8d9e81eedd6f92271ef8af77cff45d48a55b1"
DAI = "ef4a2c0cad1ef6471074a93b338126ddea24ea374ea65c2a58c80c41b737b3fd"
FORMS = {"activity": ("png", b"\x89PNG"), "coverage": ("svg", b"<?xml"), "limits": ("pdf", b"%PDF")}
"""The format that a kind is drawn in here, twice, and what its files begin with."""

LAST_DAYS = ("--since", moment(BEGIN + 2 * DAY), "--until", moment(END))


def draw(*arguments):
    result = run(*arguments)
    assert result.stdout == ""
    return result.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file of some days of a few accounts of the sample, of two assets."""
    file = tmp_path_factory.mktemp("pictures") / "small.parquet"
    types = ["bond", "insurance", "fees_liquidity"]
    chosen = ba.read_parquet(SAMPLE).balances.select(account_types=types)
    ba.write_parquet(chosen.balances.between("2023-04-09", "2023-04-14"), file)
    return file


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Return a function that runs a plot command, and returns the Axes and the output."""
    figures = []
    monkeypatch.setattr(plt, "close", figures.append)

    def axes_of(*arguments):
        said = draw("plot", *arguments, "-o", tmp_path / "x.png")
        return figures[-1].axes[0], said

    yield axes_of
    monkeypatch.undo()
    plt.close("all")


@pytest.mark.parametrize("kind", ["balances", "totals", "flows", "drawdown", *FORMS])
def test_every_kind_is_drawn_from_an_archive_in_the_format_of_the_files_name(
    kind, gapped, tmp_path
):
    form, start = FORMS.get(kind, ("png", b"\x89PNG"))
    picture = tmp_path / f"x.{form}"
    said = draw("plot", gapped, "--kind", kind, "-o", picture, "--partial")
    assert said.splitlines()[-1] == f"Wrote {picture}"
    assert [*tmp_path.iterdir()] == [picture]
    before = picture.read_bytes()
    assert before.startswith(start)
    if kind in FORMS:
        draw("plot", gapped, "--kind", kind, "-o", picture, "--partial", "-q")
        assert picture.read_bytes() == before


def test_an_archive_and_a_file_of_the_same_rows_give_the_same_picture(whole, tmp_path):
    ba.write_parquet(ba.Archive(whole).read(), tmp_path / "x.parquet")
    for source, name in ((whole, "a.svg"), (tmp_path / "x.parquet", "b.svg")):
        draw("plot", source, "--kind", "drawdown", *LAST_DAYS, "-o", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("kind", "says"),
    [("balances", [USD, "--asset-id"]), ("drawdown", [USD, "which held the most"])],
)
def test_an_automatic_choice_is_announced(kind, says, tmp_path, small):
    said = draw("plot", small, "--kind", kind, "-o", tmp_path / "x.png")
    assert all(part in said for part in says)


def test_a_given_asset_or_account_is_not_replaced(tmp_path, small):
    options = ("--kind", "flows", "--freq", "1D", "--asset-id", DAI)
    said = draw("plot", small, *options, "-o", tmp_path / "x.png")
    assert said == f"Wrote {tmp_path / 'x.png'}\n"


def test_the_time_axis_shows_the_interval(axes_of, small):
    ax, _ = axes_of(small, "--kind", "totals", "--since", "2023-04-10", "--until", "2023-04-12")
    low, high = (plt.matplotlib.dates.num2date(x) for x in ax.dataLim.intervalx)
    assert abs(low - pd.Timestamp("2023-04-10", tz="UTC")) < pd.Timedelta("1h")
    assert abs(high - pd.Timestamp("2023-04-12", tz="UTC")) < pd.Timedelta("1h")


def test_the_drawdown_is_of_the_account_that_held_most_in_the_interval(axes_of, small):
    dai = ba.read_parquet(small).balances.select(asset_id=DAI)
    accounts = ba.summarize_accounts(dai, start="2023-04-10", end="2023-04-12")
    most = accounts.sort_values("maximum", na_position="first").iloc[-1]
    bounds = ("--since", "2023-04-10", "--until", "2023-04-12")
    ax, _ = axes_of(small, "--kind", "drawdown", "--asset-id", DAI, *bounds)
    levels = ax.lines[0].get_ydata()
    assert max(levels) == float(most["maximum"])
    assert levels[0] == float(most["opening"])


def test_whole_units_have_the_asset_s_symbol(axes_of, small):
    ax, _ = axes_of(small, "--kind", "drawdown", "--asset-id", "tUSD", "--assets", ASSETS)
    assert "(tUSD)" in ax.get_ylabel()
    assert ax.get_title("left").startswith("tUSD ")


def test_a_file_without_rows_is_drawn_as_empty(axes_of, tmp_path, small):
    ba.write_parquet(ba.read_parquet(small).iloc[:0], tmp_path / "x.parquet")
    for kind in ("balances", "drawdown"):
        ax, _ = axes_of(tmp_path / "x.parquet", "--kind", kind)
        assert "no balance changes" in ax.texts[0].get_text()


def test_pictures_use_the_known_intervals_of_a_file(gapped, axes_of, tmp_path):
    table = ba.Archive(gapped).read(partial=True)
    ba.write_parquet(table, tmp_path / "x.parquet")
    ax, said = axes_of(tmp_path / "x.parquet")
    assert "x.parquet: rows may be missing in 2" in said
    assert any("rows may be missing" in text.get_text() for text in ax.get_legend().get_texts())


def test_a_report_on_a_file_is_that_of_the_library(small, tmp_path):
    table = ba.read_parquet(small)
    party = table["party_id"][table["account_type"] == "ACCOUNT_TYPE_BOND"].iloc[0]
    bounds = {"start": "2023-04-12T00:00:01", "end": "2023-04-13"}
    options = {"accounts": table.balances.select(party_ids=party), "assets": ASSETS}
    table = ba.read_parquet(small, assets=ASSETS)
    ba.write_report(table, tmp_path / "expected.html", **bounds, **options)
    arguments = ("--since", bounds["start"], "--until", bounds["end"], "--assets", ASSETS)
    said = draw("report", small, "-o", tmp_path / "x.html", "--party-id", party, *arguments)
    assert said == f"Wrote {tmp_path / 'x.html'}\n"
    assert (tmp_path / "x.html").read_bytes() == (tmp_path / "expected.html").read_bytes()


def test_a_report_on_an_archive_shows_its_gap(gapped, tmp_path):
    bounds = ("--since", moment(BEGIN + DAY // 2), "--until", moment(END))
    draw("report", gapped, "-o", tmp_path / "x.html", "--largest", 0, *bounds)
    assert "not complete" in (tmp_path / "x.html").read_text(encoding="utf-8")
