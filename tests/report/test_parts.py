"""What a report is made of, piece by piece."""

from __future__ import annotations

import doctest
import re
from decimal import Decimal

import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from balance_analysis.assets import read_assets
from balance_analysis.report import report, tables
from balance_analysis.report.pictures import to_svg
from balance_analysis.report.tables import AssetUnit, ratio_text, units_of, write_moment
from tests.report.reading import read_page

LARGEST = 10**38 - 1


@pytest.mark.parametrize("module", [report, tables])
def test_the_examples_in_docstrings_run(module):
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0


amounts = st.lists(st.none() | st.integers(-LARGEST, LARGEST), min_size=1, max_size=8)


@given(amounts, st.integers(0, 40))
def test_an_amount_is_written_with_every_digit(values, decimals):
    for text, value in zip(AssetUnit(decimals).write(values), values, strict=True):
        if value is None:
            assert text == "unknown"
        else:
            assert Decimal(text.replace(",", "")) == Decimal(f"{value}e-{decimals}")


@given(amounts, st.integers(0, 40))
def test_the_amounts_of_a_column_have_as_many_decimals_as_one_of_them_needs(values, decimals):
    texts = [text for text in AssetUnit(decimals).write(values) if text != "unknown"]
    assert len({len(text.partition(".")[2]) for text in texts}) <= 1
    if texts and "." in texts[0]:
        assert any(not text.endswith("0") for text in texts)


@given(amounts)
def test_digits_are_grouped_by_three(values):
    for text in AssetUnit().write(values):
        assert text == "unknown" or re.fullmatch(r"-?\d{1,3}(,\d{3})*", text)


def test_an_asset_is_shown_in_whole_units_by_its_symbol_or_its_short_id():
    assets = read_assets({"A": {"decimals": 6, "symbol": "tA"}, "B": 2})
    assert units_of(["A", "B", "C"], assets) == {
        "A": AssetUnit(6, "tA"),
        "B": AssetUnit(2, "B"),
        "C": AssetUnit(),
    }


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.0, "0.00"),
        (1e-30, "<0.01"),
        (0.0001, "0.01"),
        (0.5, "50.00"),
        (0.99999999, ">99.99"),
        (1.0, "100.00"),
        (None, "unknown"),
    ],
)
def test_a_part_of_a_whole_is_neither_rounded_to_nothing_nor_to_all(part, text):
    assert ratio_text(part, places=2) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2023-04-01T00:00:00Z", "2023-04-01 00:00:00"),
        ("2023-04-01T10:20:30.100Z", "2023-04-01 10:20:30.1"),
        ("2023-04-01T10:20:30.123456Z", "2023-04-01 10:20:30.123456"),
        ("2023-04-01T12:00:00.000000001+02:00", "2023-04-01 10:00:00.000000001"),
    ],
)
def test_a_moment_has_every_digit_that_it_has(moment, text):
    assert write_moment(pd.Timestamp(moment)) == text


def svg_of(text, key="f1"):
    with mpl.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(3, 2))
        ax = figure.add_subplot()
        ax.plot([0, 1, 1, 2], [0, 0, 5e20, 5e20], label=text)
        ax.bar([0, 1], [1, 2], hatch="//")
        ax.scatter([0, 1], [1, 2])
        ax.legend()
        return str(to_svg(figure, key=key, label="what"))


@pytest.mark.parametrize(
    "text",
    [
        "<script>",
        "$\\frac{1$",
        "a\x00\x0b b",
        "😀",
        "a & b",
        "日本",
        'style="fill: red" d="M 1.234"',
    ],
)
def test_a_label_is_text_whatever_is_in_it(text):
    page = read_page(svg_of(text))
    shown = re.sub("[\x00-\x1f]", "\ufffd", text)
    assert shown in page.text("text")
    assert not page.all("script")


def test_an_inline_picture_has_no_styles_and_ids_of_its_own():
    first, second = svg_of("a", "f1"), svg_of("a", "f2")
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    assert "style" not in first
    for svg, known in zip((first, second), ids, strict=True):
        assert known == set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))


def test_a_line_of_steps_is_drawn_to_a_tenth_of_a_point():
    """Against the path that matplotlib writes itself."""
    with mpl.rc_context({"path.simplify": False}):
        figure = Figure(figsize=(3, 2))
        ax = figure.add_subplot()
        (line,) = ax.plot([0, 0, 1, 1, 1, 3], [5, 5, 5, 2, 2, 4])
        svg = to_svg(figure, key="f", label="what")
    height = 2 * 72
    points = line.get_transform().transform(line.get_xydata()) * 72 / figure.dpi
    (path,) = (path for path in re.findall(r' d="([^"]*)"', svg) if _ends(path, points, height))
    assert {"H", "V", "L"} <= set(path)


def _ends(path, points, height):
    x, y = 0.0, 0.0
    ends = set()
    for letter, numbers in re.findall(r"([MLHVz])([-\d. ]*)", path):
        values = [float(number) for number in numbers.split()]
        x = values[0] if letter in "MLH" else x
        y = values[-1] if letter in "MLV" else y
        ends.add((round(x, 1), round(y, 1)))
    return ends == {(round(x, 1), round(height - y, 1)) for x, y in points.tolist()}


def test_everything_that_is_drawn_lies_in_the_picture():
    with mpl.rc_context():
        figure = Figure(figsize=(3, 2))
        ax = figure.add_subplot()
        ax.plot([0, 1], [0, 1], label="a rather long label")
        ax.set(xlabel="x", ylabel="two\nlines")
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        to_svg(figure, key="f", label="what")
    drawn = ax.get_tightbbox().extents
    assert min(drawn) >= 0
    assert all(drawn[2:] <= figure.bbox.size)


def test_a_figure_drawn_twice_is_the_same_picture():
    assert svg_of("a") == svg_of("a")
