import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import tables
from tests.analysis.oracle import World
from tests.analysis.tables import GENERAL, MARGIN, START, opened, spans, table_of
from tests.figures.drawn import areas, lines, roughly, said, shown, us
from tests.moments import between

histories = st.builds(
    lambda levels, known: World([(*GENERAL, *row) for row in sorted(levels.items())], known=known),
    st.dictionaries(tables.times, st.integers(0, 9) | tables.odd, min_size=1),
    st.none() | tables.gaps,
)


@given(histories, spans)
@settings(max_examples=20)
def test_the_curve_is_as_far_below_zero_as_the_balance_is_below_its_peak_so_far(world, span):
    ((_, account),) = world.book().items()
    ax = ba.plot_drawdown(opened(world), **between(*span), assets={"VOTE": 0})
    levels = [account.level(when) for when in range(*span)]
    begun = next((n for n, level in enumerate(levels) if level is not None), len(levels))
    seen = [levels[begun : n + 1] for n in range(len(levels))]
    peaks = [max(held) if held and None not in held else None for held in seen]
    falls = [
        None if peak is None else level - peak for level, peak in zip(levels, peaks, strict=True)
    ]
    expected = {"balance": levels, "its peak so far": peaks, "below its peak": falls}
    drawn = lines(ax) | areas(ax)
    assert {name: shown(drawn.get(name, []), span) for name in expected} == {
        name: [*map(roughly, each)] for name, each in expected.items()
    }
    assert not drawn or ("never below" in said(ax)) is not any(falls)


def test_the_texts_name_the_account_and_its_deepest_fall():
    rows = [(us("2023-04-01"), 8), (us("2023-04-02"), 2), (us("2023-04-03T12:00"), 6)]
    ax = ba.plot_drawdown(table_of([(*MARGIN, *row) for row in rows]), assets={"VOTE": 0})
    assert ax.get_title("left") == "VOTE balance and drawdown of margin · a1 · m1"
    assert said(ax) == "deepest: 6 (75%), 2023-04-02"


def test_several_accounts_are_refused_with_the_way_to_select_one():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START, 5)])
    with pytest.raises(ValueError, match="2; select one, such as that of asset_id='VOTE'"):
        ba.plot_drawdown(table)
