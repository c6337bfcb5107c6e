from itertools import combinations, pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.figures.drawn import history, type_style

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear light.
SEEN_BY = {
    "all": "1 0 0 0 1 0 0 0 1",
    "protan": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "deutan": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881",
    "tritan": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900",
}
SEEN_BY = {who: np.array(x.split(), float).reshape(3, 3) for who, x in SEEN_BY.items()}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]
LARGE_TYPES = ("GENERAL", "MARGIN", "BOND", "INSURANCE", "GLOBAL_REWARD", "FEES_LIQUIDITY")
COMMON = {f"ACCOUNT_TYPE_{name}" for name in LARGE_TYPES}


def linear(colour):
    parts = np.array(to_rgb(colour))
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(colour, seen):
    """Return a colour in CIE L*a*b*, as somebody sees it."""
    xyz = TO_XYZ @ np.clip(seen @ linear(colour), 0, 1) / (0.95047, 1, 1.08883)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(colour, other):
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (colour, other))]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("seen", SEEN_BY.values(), ids=SEEN_BY)
def test_any_two_account_types_differ_in_colour_or_in_hatch_and_common_ones_in_colour(seen):
    styles = {each: type_style(each) for each in ba.ACCOUNT_TYPES}
    colours = {each: lab(colour, seen) for each, (colour, _) in styles.items()}
    for one, other in combinations(styles, 2):
        apart = np.linalg.norm(colours[one] - colours[other])
        assert apart > 5 or styles[one][1] != styles[other][1]
        assert apart > 10 or not {one, other} <= COMMON


@pytest.mark.parametrize("paper", ["#ffffff", ba.DARK_STYLE["figure.facecolor"]])
def test_every_colour_stands_out_on_light_and_on_dark(paper):
    assert min(contrast(type_style(each)[0], paper) for each in ba.ACCOUNT_TYPES) > 1.4


kinds = st.sampled_from([*ba.ACCOUNT_TYPES, "ACCOUNT_TYPE_OF_TOMORROW"])


@given(st.lists(kinds, min_size=1, max_size=9))
@settings(max_examples=15)
def test_accounts_on_one_axes_are_all_drawn_differently(types):
    rows = [("VOTE", each, f"a{n:02}", "", START, 5) for n, each in enumerate(types)]
    ax = ba.plot_totals(table_of(rows), by=ba.ACCOUNT_KEY)
    styles = [(mpl.colors.to_hex(area.get_facecolor()), area.get_hatch()) for area in ax.patches]
    plt.close(ax.figure)
    assert len(set(styles)) == len(styles) == len(types)
    assert {type_style(account_type) for account_type in types} <= set(styles)


def test_an_unknown_type_has_a_style_that_no_known_type_has():
    assert type_style("77") not in {type_style(each) for each in ba.ACCOUNT_TYPES}


def test_a_type_has_one_colour_in_every_figure():
    table = history(20, types=("MARGIN",))
    groups = (ba.ACCOUNT_KEY, ["asset_id", "account_type"])
    areas = [ba.plot_totals(table, by=by).patches[0].get_facecolor() for by in groups]
    lines = [plot(table).lines[0].get_color() for plot in (ba.plot_balances, ba.plot_drawdown)]
    assert {*map(mpl.colors.to_hex, areas + lines)} == {type_style("ACCOUNT_TYPE_MARGIN")[0]}


def test_a_dark_figure_has_no_dark_text():
    with mpl.rc_context(ba.DARK_STYLE):
        ax = ba.plot_totals(history(20, parties=2))
        ax.figure.canvas.draw()
        texts = [*ax.get_legend().get_texts(), *ax.get_xticklabels(), ax.xaxis.label]
        assert all(contrast(text.get_color(), ax.get_facecolor()) > 7 for text in texts)
    assert plt.rcParams["figure.facecolor"] != ba.DARK_STYLE["figure.facecolor"]


@pytest.mark.parametrize("account_type", LARGE_TYPES)
def test_further_accounts_of_a_type_stand_out_on_dark_and_differ(account_type):
    table = history(5, parties=3, types=(account_type,))
    colours = [line.get_color() for line in ba.plot_balances(table).lines]
    assert min(contrast(each, ba.DARK_STYLE["figure.facecolor"]) for each in colours) > 3
    for seen in SEEN_BY.values():
        pairs = combinations([lab(colour, seen) for colour in colours], 2)
        assert min(np.linalg.norm(a - b) for a, b in pairs) > 10


@pytest.mark.parametrize("style", [{}, ba.DARK_STYLE], ids=["light", "dark"])
def test_counts_of_activity_can_be_distinguished(style):
    with mpl.rc_context(style):
        ax = ba.plot_activity(history(4000, days=60))
    shades = ax.collections[0].get_cmap()(np.linspace(0, 1, 4))[:, :3]
    assert contrast(shades[0], ax.get_facecolor()[:3]) < 1.3
    assert all(contrast(a, b) > 1.25 for a, b in pairwise(shades))
