"""Read the content of a drawn figure, and make histories to draw."""

import functools
import random
from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import balance_analysis as ba
from tests.analysis.tables import DAY, START, table_of, worlds

BOND = ("VOTE", "ACCOUNT_TYPE_BOND", "a1", "m1")


def of_one_asset(world):
    """Return the part of a world with one asset's accounts on no market."""
    accounts = [key for key in world.book() if (key[0], key[3]) == ("VOTE", "")]
    rows = [row for row in world.rows if row[:4] in accounts]
    opening = {key: x for key, x in world.opening.items() if key in accounts}
    return replace(world, rows=rows, opening=opening)


one_asset = worlds().map(of_one_asset).filter(lambda world: world.book())


def history(count, *, scale=10**24, days=30, parties=1, seed=1, types=("GENERAL",)):
    """Return a lifelike table: random walks of several parties with ids as long as real ones."""
    walk = random.Random(seed)
    rows = []
    for number in range(parties):
        account_type = f"ACCOUNT_TYPE_{types[number % len(types)]}"
        account = ("VOTE", account_type, f"{walk.getrandbits(256):064x}", "")
        level, time = walk.randrange(scale), START
        for _ in range(count):
            time += 1 + walk.randrange(int(2 * days * DAY) // count)
            level = abs(level + walk.randrange(-scale // 10, scale // 10))
            rows.append((*account, time, level))
    return table_of(rows)


def micros(dates):
    """Return matplotlib's dates, or numpy's, as microseconds."""
    dates = np.asarray(dates)
    if dates.dtype.kind == "M":
        return [int(date) for date in dates.astype("M8[us]").astype(int)]
    return [round(date * DAY) for date in dates.tolist()]


def lines(ax):
    """Return {legend label: [(microseconds, level), ...]} of the lines of an Axes."""
    return {
        line.get_label(): [*zip(micros(line.get_xdata(orig=True)), line.get_ydata(), strict=True)]
        for line in ax.lines
    }


def areas(ax):
    """Return {legend label: [(microseconds, level), ...]} of the areas of an Axes."""
    return {patch.get_label(): steps_of(patch) for patch in ax.patches if is_area(patch)}


def shown(steps, span):
    """Return the level at each moment of a span, roughly; `None` where nothing is drawn."""
    levels = []
    for when in range(*span):
        before = [level for time, level in steps if time <= when]
        levels.append(None if not before or np.isnan(before[-1]) else roughly(before[-1]))
    return levels


def roughly(level):
    return None if level is None else float(f"{level:.9g}")


def is_area(patch):
    return hasattr(patch, "get_data")


def steps_of(area):
    levels, edges, _ = area.get_data()
    return list(zip(micros(edges), [*levels, levels[-1]], strict=True))


def entries(ax):
    """Return the entries of a legend, one line each, without its title."""
    return [_in_one_line(text) for text in ax.get_legend().get_texts()]


def said(ax):
    """Return the title of a legend, in one line."""
    return _in_one_line(ax.get_legend().get_title())


def _in_one_line(text):
    return text.get_text().replace("\n", " ")


def visible_labels(axis):
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    ]


def shaded(ax, hatch=None):
    """Return [(label, start, end)] of the stretches from top to bottom, with that hatch."""
    return [
        (patch.get_label(), *micros([patch.get_x(), patch.get_x() + patch.get_width()]))
        for patch in ax.patches
        if not is_area(patch) and patch.get_hatch() == hatch and patch.get_height() == 1
    ]


def snapshots(*rows, since=None):
    """Return a frame of limits of (first, last, market enabled, asset enabled)."""
    first, last, market, asset = zip(*rows, strict=True)
    since = since or [None] * len(rows)
    dates = pd.Series(pd.to_datetime(since, utc=True)).dt.as_unit("ns")
    return pd.DataFrame(
        {
            "first_seen": pd.to_datetime(first, utc=True, format="ISO8601").as_unit("us"),
            "last_seen": pd.to_datetime(last, utc=True, format="ISO8601").as_unit("us"),
            "can_propose_market": market,
            "can_propose_asset": asset,
            "propose_market_enabled": market,
            "propose_asset_enabled": asset,
            "genesis_loaded": True,
            "propose_market_enabled_from": dates,
            "propose_asset_enabled_from": dates,
        }
    )


def coverage_frame(*spans):
    """Return a frame of an archive's coverage of (start, end, proven), microseconds, ascending."""
    rows = []
    for start, end, proven in spans:
        if rows and rows[-1][1] < start:
            rows.append((rows[-1][1], start, "missing"))
        rows.append((start, end, "complete" if proven else "unproven"))
    frame = pd.DataFrame(rows, columns=["start", "end", "state"])
    moments = {name: pd.to_datetime(frame[name], unit="us", utc=True) for name in ("start", "end")}
    return frame.assign(**moments)


def type_style(account_type):
    """Return the colour and the hatch in which an account type is drawn."""
    place = [*ba.ACCOUNT_TYPES].index(account_type) if account_type in ba.ACCOUNT_TYPES else None
    types = [account_type] if place is None else ba.ACCOUNT_TYPES[place // 8 * 8 :][:8]
    return _styles_of(tuple(types))[account_type]


@functools.cache
def _styles_of(types):
    """Return the styles of account types that share an Axes, that of the largest first."""
    rows = [("VOTE", each, "a1", "", START, 9 - place) for place, each in enumerate(types)]
    table, styles = table_of(rows), {}
    lines, patches = ba.plot_balances(table).lines, ba.plot_totals(table).patches
    for each, line, area in zip(types, lines, patches, strict=True):
        styles[each] = mpl.colors.to_hex(area.get_facecolor()), area.get_hatch()
        assert mpl.colors.to_hex(line.get_color()) == styles[each][0]
    plt.close("all")
    return styles


def us(text):
    return int(pd.Timestamp(text, tz="UTC").timestamp() * 1_000_000)
