from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive.coverage import Coverage, Interval
from balance_analysis.figures.shading import complete_spans, incomplete_spans
from tests.analysis.tables import table_of
from tests.figures.drawn import DAY, GENERAL, HOUR, entries, shaded, us

START = us("2023-04-01")
HATCH = "\\\\\\\\"
PLOTS = [ba.plot_balances, ba.plot_totals, ba.plot_flows, ba.plot_drawdown]


def coverage_of(*spans):
    """Return the frame of an archive's coverage of (start, end, proven)."""
    intervals = (Interval(*span, "https://node.example", None, "2023-05-01") for span in spans)
    return Coverage(tuple(intervals)).to_frame()


def table():
    days = ("2023-04-01", "2023-04-02", "2023-04-08", "2023-04-10")
    return table_of([(*GENERAL, us(day), 5 + n % 2) for n, day in enumerate(days)])


GAPS = coverage_of(
    (START, START + 2 * DAY, True),
    (START + 2 * DAY, START + 3 * DAY, False),
    (START + 6 * DAY, START + 30 * DAY, True),
)


@pytest.mark.parametrize("plot", PLOTS)
def test_gaps_and_what_is_unproven_are_hatched_with_one_entry_in_the_legend(plot):
    ax = plot(table(), coverage=GAPS)
    assert [span[1:] for span in shaded(ax, HATCH)] == [(START + 2 * DAY, START + 6 * DAY)]
    assert sum("not known to be complete" in entry for entry in entries(ax)) == 1
    patch = next(patch for patch in ax.patches if patch.get_hatch() == HATCH)
    assert all(patch.get_zorder() > drawn.get_zorder() for drawn in (*ax.lines, *ax.collections))


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("coverage", [None, coverage_of((START, START + 30 * DAY, True))])
def test_where_all_is_complete_nothing_is_hatched(plot, coverage):
    ax = plot(table(), coverage=coverage)
    assert not shaded(ax, HATCH)
    assert not any("complete" in entry for entry in entries(ax))


@pytest.mark.parametrize("plot", PLOTS)
def test_an_archive_is_taken_as_its_coverage(plot):
    class Covered:
        def coverage(self):
            return GAPS

    assert len(shaded(plot(table(), coverage=Covered()), HATCH)) == 1


@pytest.mark.parametrize("plot", PLOTS)
def test_a_coverage_that_is_none_is_refused(plot):
    with pytest.raises(TypeError, match="a coverage is the frame of"):
        plot(table(), coverage="demo/archive")
    with pytest.raises(ValueError, match="no column start, end, state"):
        plot(table(), coverage=table())


def test_a_gap_of_an_hour_among_years_has_an_edge():
    rows = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1500 * DAY, 6)])
    gap = START + 700 * DAY
    coverage = coverage_of((START, gap, True), (gap + HOUR, START + 1600 * DAY, True))
    ax = ba.plot_balances(rows, coverage=coverage)
    (patch,) = ax.patches
    assert patch.get_linewidth() > 0
    assert shaded(ax, HATCH)[0][1:] == (gap, gap + HOUR)


def test_what_the_archive_never_asked_for_is_hatched_unless_too_short_to_see():
    coverage = coverage_of((START + 1_000_000, START + 5 * DAY, True))
    spans = incomplete_spans(complete_spans(coverage), START, START + 9 * DAY)
    assert spans == [(START + 5 * DAY, START + 9 * DAY)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=6
    ),
    st.integers(-5, 20),
    st.integers(1, 20),
)
def test_each_hour_is_hatched_unless_it_is_complete(parts, first, length):
    spans, at = [], 0
    for pause, hours, proven in parts:
        at += pause
        spans.append((at, at + hours, proven))
        at += hours
    coverage = coverage_of(*((START + a * HOUR, START + b * HOUR, p) for a, b, p in spans))
    found = incomplete_spans(
        complete_spans(coverage), START + first * HOUR, START + (first + length) * HOUR
    )
    hatched = {h for a, b in found for h in range((a - START) // HOUR, (b - START) // HOUR)}
    complete = {h for a, b, proven in spans if proven for h in range(a, b)}
    assert hatched == set(range(first, first + length)) - complete
    assert found == sorted(found)


def test_the_legend_of_flows_says_where_what_moved_in_a_gap_counts():
    assert "not known to be complete: what\nchanged there is in later bars or none" in entries(
        ba.plot_flows(table(), coverage=GAPS)
    )


def test_limits_and_coverage_are_told_apart_in_a_legend():
    ax = ba.plot_balances(table(), start=pd.Timestamp("2023-03-30"), coverage=GAPS)
    assert entries(ax)[-2:] == ["unknown", "not known to be complete:\nchanges may be missing"]
