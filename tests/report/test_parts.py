"""What a report is made of, piece by piece."""

from __future__ import annotations

import doctest
import re
from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from balance_analysis.figures.palette import COLOURS
from balance_analysis.report import amounts as report_amounts
from balance_analysis.report import page as report_page
from balance_analysis.report import report
from balance_analysis.report.amounts import AssetUnit, read_units
from balance_analysis.report.page import Note, dark_of, read_note
from balance_analysis.report.svg import to_svg
from balance_analysis.report.tables import ratios, write_moment
from tests.report.reading import read_page

LARGEST = 10**38 - 1


@pytest.mark.parametrize("module", [report, report_amounts, report_page])
def test_the_examples_in_docstrings_run(module):
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0


amounts = st.lists(st.none() | st.integers(-LARGEST, LARGEST), min_size=1, max_size=8)


@given(amounts, st.integers(0, 40))
def test_an_amount_is_written_with_every_digit(values, decimals):
    for text, value in zip(AssetUnit("a", decimals).write(values), values, strict=True):
        if value is None:
            assert text == "unknown"
        else:
            assert Decimal(text.replace(",", "")) == Decimal(f"{value}e-{decimals}")


@given(amounts, st.integers(0, 40))
def test_the_amounts_of_a_column_have_as_many_decimals_as_one_of_them_needs(values, decimals):
    texts = [text for text in AssetUnit("a", decimals).write(values) if text != "unknown"]
    assert len({len(text.partition(".")[2]) for text in texts}) <= 1
    if texts and "." in texts[0]:
        assert any(not text.endswith("0") for text in texts)


@given(amounts)
def test_digits_are_grouped_by_three(values):
    for text in AssetUnit("a").write(values):
        assert text == "unknown" or re.fullmatch(r"-?\d{1,3}(,\d{3})*", text)


@pytest.mark.parametrize("decimals", [{"A": -1}, {"A": 1.5}, {"A": True}])
def test_decimals_are_whole_numbers_from_0_on(decimals):
    with pytest.raises(ValueError, match="can't have"):
        read_units(["A"], decimals)


def test_decimals_are_a_mapping_or_a_file():
    with pytest.raises(TypeError, match="decimals must be"):
        read_units(["A"], 18)


def test_a_csv_tells_decimals_without_symbols(tmp_path):
    file = tmp_path / "assets.csv"
    file.write_text("asset_id,decimals\nA,6\n", encoding="utf-8")
    assert read_units(["A", "B"], file) == {"A": AssetUnit("A", 6), "B": AssetUnit("B")}


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
    (cell,) = ratios("share", [part], places=2).cells
    assert cell.text == text


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


def brightness(colour):
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_of_the_palette_stands_out_on_dark_paper(colour):
    ratio = (brightness(dark_of(colour)) + 0.05) / (brightness(dark_of("#ffffff")) + 0.05)
    assert ratio > 3


def test_colours_that_differ_by_day_differ_by_night():
    assert len({dark_of(colour) for colour in COLOURS}) == len(COLOURS)


def figure_of(text):
    figure = Figure(figsize=(3, 2), layout="constrained")
    ax = figure.add_subplot()
    ax.plot([0, 1, 1, 2], [0, 0, 5, 5], label=text)
    ax.bar([0, 1], [1, 2], hatch="//")
    ax.legend()
    return figure


def svg_of(text, key="f1"):
    return str(to_svg(figure_of(text), key=key, title="what", description="how"))


@pytest.mark.parametrize("text", ["<script>", "$\\frac{1$", "a\x00\x0b b", "😀", "a & b", "日本"])
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
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg)) <= known


def test_a_figure_drawn_twice_is_the_same_picture():
    assert svg_of("a") == svg_of("a")


@given(
    st.text(max_size=40)
    | st.sampled_from(["{}", "[]", "null", '{"start": 1}', '{"start": "x", "end": "y"}'])
)
def test_what_is_no_note_is_none(content):
    page = f'<script type="application/json" id="balance-analysis-report">{content}</script>'
    assert read_note(page) is None
    assert read_note(content) is None


def test_a_note_without_an_interval_is_one():
    content = '{"start": null, "end": null, "previous_end": null}'
    page = f'<script type="application/json" id="balance-analysis-report">{content}</script>'
    assert read_note(page) == Note(None, None, None)
