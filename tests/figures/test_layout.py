"""Every figure has readable texts and times in UTC, and draws into the caller's Axes."""

import io
from itertools import combinations

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, START, table_of
from tests.figures.drawn import coverage_frame, entries, history, snapshots, us, visible_labels

VEGA = {"VOTE": {"symbol": "VEGA", "decimals": 6}}
LONG = {"VOTE": {"symbol": "V" * 62, "decimals": 18}}
TYPES = ("GENERAL", "MARGIN", "BOND", "INSURANCE", "REWARD_LP_RECEIVED_FEES", "SETTLEMENT")
LIMITS = snapshots(
    ("2023-03-20", "2023-04-02", False, True),
    ("2023-04-03", "2023-04-20", True, True),
    ("2023-04-25", "2023-04-25", True, False),
    since=[None, "2023-04-01", "2023-04-01"],
)
COVERAGE = coverage_frame(
    (us("2021-04-01"), us("2022-04-01"), True),
    (us("2022-04-02"), us("2023-04-01"), False),
    (us("2023-04-01"), us("2023-05-01"), True),
)


def with_gaps(table):
    first, last = table["timestamp"].min(), table["timestamp"].max()
    length = last - first
    return ba.to_table(table, known=[(first, first + length * 0.3), (first + length * 0.5, last)])


TABLES = {
    "one row": table_of([(*GENERAL, START, 5 * 10**9)]),
    "a minute": history(30, days=1 / 1440, parties=2),
    "a month": with_gaps(history(60, days=30, parties=40, types=TYPES)),
    "six years": history(60, days=2200, parties=12, types=TYPES),
    "nothing": table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 0)]),
    "38 digits": history(40, scale=10**37, parties=3),
}


def one_account(table):
    keys = ba.ACCOUNT_KEY
    return table.merge(table[keys].head(1), on=keys).astype(dict.fromkeys(keys, "category"))


PLOTS = {
    "balances": lambda table, ax: ba.plot_balances(table, ax=ax, limits=LIMITS, assets=LONG),
    "totals": lambda table, ax: ba.plot_totals(table, ax=ax, assets=VEGA, limits=LIMITS),
    "shares": lambda table, ax: ba.plot_totals(table, ax=ax, by=ba.ACCOUNT_KEY, share=True),
    "flows": lambda table, ax: ba.plot_flows(table, ax=ax, assets=VEGA, limits=LIMITS),
    "drawdown": lambda table, ax: ba.plot_drawdown(one_account(table), ax=ax),
    "activity": lambda table, ax: ba.plot_activity(table, ax=ax),
}
ALL = {
    **PLOTS,
    "coverage": lambda _, ax: ba.plot_coverage(COVERAGE, ax=ax),
    "limits": lambda _, ax: ba.plot_limits(LIMITS, ax=ax, end="2023-05-01"),
}
of_each_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)


def axes_of(size=(6.4, 4.0), **layout):
    return plt.subplots(figsize=size, **layout)[1]


def check_words(ax):
    """Check that no words of a figure overlap or leave it, and that legends stand beside data."""
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()
    boxes = []
    for each in figure.axes:
        texts = [text for text in each.findobj(Text) if text.get_visible() and is_shown(text, each)]
        boxes += [(text, text.get_window_extent()) for text in texts if text.get_text().strip()]
        if each.get_legend():
            assert not overlap(each.get_legend().get_window_extent(), each.bbox)
    for text, box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, text
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, text
    for (one, box), (other, its_box) in combinations(boxes, 2):
        assert not overlap(box, its_box), (one, other)


def is_shown(text, ax):
    """Whether a text is drawn: matplotlib keeps ticks beyond an axis, which it doesn't draw."""
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.majorTicks, *axis.minorTicks]:
            if text in (tick.label1, tick.label2):
                return axis.get_visible() and low <= tick.get_loc() <= high
    return True


def overlap(one, other):
    x0, x1 = max(one.x0, other.x0), min(one.x1, other.x1)
    return x1 > x0 + 1 and min(one.y1, other.y1) > max(one.y0, other.y0) + 1


@pytest.mark.parametrize("name", ALL)
def test_texts_do_not_overlap_and_the_legend_is_beside_the_data(name):
    check_words(ALL[name](TABLES["a month"], axes_of()))
    if name != "balances":  # of 62 letters
        check_words(ALL[name](TABLES["six years"], axes_of((3.4, 2.4))))


@pytest.mark.parametrize(
    ("table", "layout"),
    [("one row", None), ("nothing", None), ("38 digits", None), ("six years", "tight")],
)
def test_texts_do_not_overlap_in_subplots_whatever_the_data(table, layout):
    _, axes = plt.subplots(2, 3, figsize=(24, 11), layout=layout)
    for plot, ax in zip(PLOTS.values(), axes.flat, strict=True):
        plot(TABLES[table], ax)
    check_words(axes[0, 0])


sizes = st.tuples(st.floats(6, 16), st.floats(4, 9))


@given(st.sampled_from([*PLOTS]), sizes, st.floats(0.001, 3000), st.integers(1, 12))
@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
def test_texts_do_not_overlap_in_any_size_and_over_any_time(name, size, days, parties):
    table = history(30, days=days, parties=parties, types=TYPES)
    check_words(PLOTS[name](table, axes_of(size)))


def test_the_legend_covers_no_text_of_a_second_y_axis():
    ax = ba.plot_totals(TABLES["a month"], ax=axes_of((8, 6)).twinx())
    ax.figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    texts = [ax.yaxis.label, *ax.get_yticklabels()]
    assert not any(overlap(box, text.get_window_extent()) for text in texts)
    assert overlap(box, ax.bbox)


def test_an_inset_has_its_legend_inside_and_a_tight_picture_includes_it():
    inset = axes_of((8, 6)).inset_axes((0.2, 0.3, 0.7, 0.5))
    ba.plot_totals(TABLES["a month"], ax=inset)
    inset.figure.canvas.draw()
    assert overlap(inset.get_legend().get_window_extent(), inset.bbox)
    before = entries(inset)
    inset.figure.savefig(io.BytesIO(), bbox_inches="tight")
    assert entries(inset) == before


def test_long_names_are_broken_in_a_legend_and_none_is_lost():
    name = "A desk whose name nobody could have made any longer"
    table = table_of([(*GENERAL, START, 5)])
    ax = ba.plot_totals(table, ax=axes_of(), by="party_id", labels={"a1": name})
    check_words(ax)
    assert entries(ax) == [f"{name} 5"]


@pytest.mark.parametrize("settings", [{}, {"text.usetex": True}], ids=["plain", "usetex"])
def test_ids_with_any_characters_are_written_unchanged(settings):
    party, asset = "_a$b$^x%", "$VO_TE$"
    rows = [(asset, GENERAL[1], name, "", START, 5) for name in (party, "line\nbreak")]
    with mpl.rc_context(settings):
        ax = ba.plot_totals(table_of(rows), by="party_id", share=True)
    assert sorted(entries(ax)) == [f" {party} 50%", r"line\u000abreak 50%"]
    assert ax.get_title("left") == f"{asset} shares by party"
    words = [*ax.get_legend().findobj(Text), ax.title, ax._left_title, ax.yaxis.label]
    own = [text for text in words if text.get_text()]
    assert len(own) == 5
    assert not any(text.get_usetex() or text.get_parse_math() for text in own)


@of_each_plot
def test_a_figure_draws_into_the_given_axes_or_into_its_own(plot):
    before = mpl.rcParams.copy()
    figure, axes = plt.subplots(1, 2, figsize=(16, 5), layout="constrained")
    assert plot(TABLES["a minute"], axes[1]) is axes[1]
    assert not axes[0].has_data()
    assert plt.get_fignums() == [figure.number]
    assert [figure.number, plot(TABLES["a minute"], None).figure.number] == plt.get_fignums()
    assert mpl.rcParams == before


@of_each_plot
def test_an_axes_on_which_pandas_drew_periods_is_refused_with_a_remedy(plot):
    days = pd.Series([1.0, 2.0], pd.date_range("2023-04-01", periods=2, freq="D"))
    shared = [axes_of(), axes_of().twinx(), plt.subplots(2, sharex=True)[1][1]]
    for ax in shared:
        days.plot(ax=ax.get_figure().axes[0])
        with pytest.raises(ValueError, match="x_compat=True"):
            plot(TABLES["one row"], ax)
    ax = plot(TABLES["one row"], days.plot(ax=axes_of(), x_compat=True))
    left, right = ax.get_xlim()
    low, high = ax.dataLim.intervalx
    assert left <= low < high <= right


@of_each_plot
def test_limits_that_a_caller_sets_stay(plot):
    ax = axes_of()
    ax.set_xlim(19_000, 20_000)
    plot(TABLES["one row"], ax)
    ax.set_ylim(0, 7)
    ax.get_figure().draw_without_rendering()
    assert (*ax.get_xlim(), *ax.get_ylim()) == (19_000, 20_000, 0, 7)


def test_figures_that_share_an_axis_show_the_interval_of_both():
    _, (one, other) = plt.subplots(2, sharex=True)
    ba.plot_balances(table_of([(*GENERAL, us("2023-04-01"), 5)]), ax=one, end="2023-04-03")
    ba.plot_flows(table_of([(*GENERAL, us("2023-04-09"), 5)]), ax=other, end="2023-04-11")
    low, high = one.get_xlim()
    assert low <= us("2023-04-01") / DAY
    assert us("2023-04-11") / DAY <= high <= us("2023-04-12") / DAY


@pytest.mark.parametrize("name", [name for name in PLOTS if name != "drawdown"])
def test_no_rows_give_axes_that_say_so(name):
    ax = PLOTS[name](table_of([]), axes_of())
    check_words(ax)
    assert [text.get_text() for text in ax.texts] == ["no balance changes"]


@pytest.mark.parametrize("plot", [ba.plot_balances, ba.plot_totals, ba.plot_flows])
def test_an_interval_without_a_row_is_named_with_its_bounds(plot):
    table = table_of([(*GENERAL, START, 5)])
    ax = plot(table, end="2020-01-01")
    assert [text.get_text() for text in ax.texts] == ["no balance changes\nto 2020-01-01"]
    with pytest.raises(ValueError, match="start must be before end"):
        plot(table, start="2023-04-07", end="2023-04-07")


@pytest.mark.parametrize("name", ["balances", "activity"])
def test_times_are_utc_whatever_the_time_zone_of_matplotlib(name):
    seen = []
    for zone in ("UTC", "Asia/Kolkata"):
        with mpl.rc_context({"timezone": zone}):
            ax = PLOTS[name](TABLES["a minute"], axes_of((10, 4)))
            ax.figure.draw_without_rendering()
            labels = [label.get_text() for label in visible_labels(ax.xaxis)]
            seen.append((ax.get_xticks().tolist(), labels, ax.xaxis.get_offset_text().get_text()))
    assert seen[0] == seen[1]
    assert seen[0][1]
    assert ax.xaxis.get_offset_text().get_text().endswith(" UTC")


@pytest.mark.parametrize(
    ("end", "month"), [("2023-05-01", "2023-Apr UTC"), ("2023-05-09", "2023-May UTC")]
)
def test_a_month_is_named_even_if_the_next_one_begins_at_its_end(end, month):
    rows = [(*GENERAL, us(f"2023-04-{day:02}"), day) for day in range(1, 31)]
    ax = ba.plot_balances(table_of(rows), ax=axes_of((10, 4)), end=end)
    ax.figure.draw_without_rendering()
    assert ax.xaxis.get_offset_text().get_text() == month
    ax.set_xlim(us("2023-06-02") / DAY, us("2023-06-20") / DAY)
    ax.figure.draw_without_rendering()
    assert ax.xaxis.get_offset_text().get_text() == "2023-Jun UTC"


@pytest.mark.parametrize("plot", [ba.plot_balances, ba.plot_flows, ba.plot_drawdown])
@pytest.mark.parametrize("length", [1, 900])
def test_microseconds_are_an_axis_like_any_other(plot, length):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + length, 7)])
    options = {"freq": None} if plot is ba.plot_flows else {}
    ax = plot(table, ax=axes_of(), **options)
    check_words(ax)
    ticks = [label.get_text() for label in visible_labels(ax.xaxis)]
    assert len(ticks) == len(set(ticks)) >= 2


def test_an_archive_draws_what_its_table_does(sample):
    asset = sample.select(asset_id="tUSD", account_types=["bond", "insurance"])
    table, bounds = asset.read(), {"start": "2023-04-11", "end": "2023-04-12"}
    for plot in (ba.plot_balances, ba.plot_totals, ba.plot_flows, ba.plot_activity):
        images = []
        for source in (asset, table):
            ax = plot(source, ax=axes_of(), **bounds)
            ax.figure.canvas.draw()
            images.append(bytes(ax.figure.canvas.buffer_rgba()))
            plt.close("all")
        assert images[0] == images[1], plot


def test_a_callers_title_and_line_style_are_used():
    rows = [(*GENERAL[:2], f"p{i}", "", START + i, 5) for i in range(3)]
    ax = ba.plot_balances(table_of(rows), title="Mine: $5", color=["r", "g"], lw=3)
    assert ax.get_title("left") == "Mine: $5"
    lines = [(line.get_color(), line.get_linewidth()) for line in ax.lines]
    assert lines == [("r", 3), ("g", 3), ("r", 3)]
    assert not ba.plot_balances(table_of(rows), title="").get_title("left")
    with pytest.raises(AttributeError, match="'figsize'"):
        ba.plot_balances(table_of(rows), figsize=(3, 2))
