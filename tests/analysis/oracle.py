"""The analysis again, as loops over Python integers: slow, plain, and sharing no code with it.

Rows are tuples of (asset, type, party, market, microseconds, balance). A result is a list of tuples
in the order of its columns, with None for what is unknown and amounts of any size: `fit` refuses
those that no column holds.
"""

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import accumulate, count, pairwise
from zoneinfo import ZoneInfo

from tests.moments import from_microseconds, to_microseconds, uncovered

KEY = ("asset_id", "account_type", "party_id", "market_id")
EXTERNAL = "ACCOUNT_TYPE_EXTERNAL"
TOO_LARGE = 10**38


def fit(rows):
    """Return rows, or raise if an amount in them has more than 38 digits."""
    for amount in (value for row in rows for value in row if isinstance(value, int)):
        if abs(amount) >= TOO_LARGE:
            raise OverflowError(f"{amount} has more than 38 digits")
    return rows


@dataclass(frozen=True)
class Account:
    """What is known about one account: its rows, ascending, and its balance before them.

    It held `held` since the moment `since`, `None` where that is the moment `first`, from which on
    anything is known. `intervals` are those in which every change is seen, `None` where that is
    always, and `ends` are where knowledge ends. Older rows than `begin` are left out but the last.
    """

    changes: tuple[tuple[int, int], ...]
    held: int | None = None
    since: int | None = None
    intervals: tuple[tuple[int, int], ...] | None = None
    ends: frozenset[int] = frozenset()
    first: int = 0
    begin: int = 0

    def level(self, when):
        for time, balance in reversed(self.changes):
            if time <= when:
                return balance if self.sees_all(time + 1, when) else None
        begin = self.first if self.since is None else self.since + 1
        is_held = self.since is None or self.since <= when
        return self.held if is_held and self.sees_all(begin, when) else None

    def sees_all(self, start, stop):
        """Whether every change from one moment to another, both included, would be seen."""
        if self.intervals is None or start > stop:
            return True
        return any(begin <= start and stop < end for begin, end in self.intervals)

    def has_all(self, start, stop):
        """Whether it has all rows from one moment to another."""
        return self.intervals is None or (self.begin <= start and self.sees_all(start, stop))

    def shown_at(self, when):
        """Return the moment that stands for another: where knowledge ends, the one before it."""
        return when - 1 if when in self.ends and self.level(when) is None else when

    def shown(self, when):
        return self.level(self.shown_at(when))

    def since_when(self, when):
        """Return the time that set the level shown, None where it is unknown or has no time."""
        at = self.shown_at(when)
        if self.level(at) is None:
            return None
        return max((time for time, _ in self.changes if time <= at), default=self.since)

    def state(self, when):
        if self.shown(when) is None:
            return "unknown"
        if any(time == when for time, _ in self.changes):
            return "observed"
        return "carried" if any(time < when for time, _ in self.changes) else "opening"

    def deltas(self):
        """Return (time, balance, delta) of each row."""
        return _deltas(self)

    def deltas_in(self, start, end):
        return [delta for time, _, delta in self.deltas() if start <= time < end]


@cache
def _deltas(account):
    result = []
    for time, balance in account.changes:
        before = account.level(time - 1)
        result.append((time, balance, None if before is None else balance - before))
    return result


@dataclass(frozen=True)
class Holder:
    """Accounts that count as one: their sum is known only where each balance is known."""

    members: tuple[Account, ...]

    def shown(self, when):
        levels = [member.shown(when) for member in self.members]
        return None if None in levels else sum(levels)

    def pieces(self, start, end):
        """Return (from, to, level shown) of each stretch of [start, end) without a change."""
        times = {time for each in self.members for time, _ in each.changes}
        times |= {each.since for each in self.members} - {None}
        if any(each.intervals is not None for each in self.members):
            times |= {time + 1 for time in times}
            spans = (span for each in self.members for span in each.intervals or ())
            edges = [*(edge for span in spans for edge in span), *self.members[0].ends]
            times |= {edge + more for edge in edges for more in (0, 1)}
        bounds = sorted({start, end, *(time for time in times if start < time < end)})
        return [(left, right, self.shown(left)) for left, right in pairwise(bounds)]

    def known(self, start, end):
        return [piece for piece in self.pieces(start, end) if piece[2] is not None]

    def average(self, start, end):
        """Return the exact average of the parts that are known, and their share of the whole."""
        pieces = self.known(start, end)
        length = sum(right - left for left, right, _ in pieces)
        held = sum((right - left) * level for left, right, level in pieces)
        return Fraction(held, length or 1), Fraction(length, end - start)

    def flow(self, start, end, *, internal):
        """Return inflow, outflow, net and internal flow; unknown flows count as 0.

        Unless `internal` is set, internal flow counts as both inflow and outflow.
        """
        blocks = defaultdict(list)
        for place, member in enumerate(self.members):
            for time, _, delta in member.deltas():
                if start <= time < end and delta is not None:
                    blocks[time, None if internal else place].append(delta)
        nets = [sum(moves) for moves in blocks.values()]
        gains = sum(move for moves in blocks.values() for move in moves if move > 0)
        inflow = sum(net for net in nets if net > 0)
        return inflow, inflow - sum(nets), sum(nets), gains - inflow

    def has_all(self, start, stop):
        return all(member.has_all(start, stop) for member in self.members)

    def total(self, when):
        """Return the sum of the known balances, and the numbers of known and unknown accounts."""
        levels = [member.shown(when) for member in self.members]
        known = [level for level in levels if level is not None]
        return sum(known) if known else None, len(known), len(levels) - len(known)


@dataclass(frozen=True)
class World:
    """A table's rows, and the intervals in which it has every change.

    Attributes
    ----------
    rows
        The rows from `begin` on.
    opening
        The balances before `begin`: {account: (balance, time)}.
    known
        The known intervals; `None` where nothing is stated.
    nothing_before
        Whether accounts without an opening held nothing.
    bad
        Bad rows that were set aside: (interval, account), of any account where that is `None`.
    begin
        The start of a table with openings.
    lost
        Accounts that lost rows since the table was made: they are known at their rows alone.
    """

    rows: list[tuple]
    opening: dict[tuple, tuple[int, int]] = field(default_factory=dict)
    known: tuple[tuple[int, int], ...] | None = None
    nothing_before: bool = False
    bad: tuple[tuple[tuple[int, int], tuple | None], ...] = ()
    begin: int | None = None
    lost: frozenset[tuple] = frozenset()

    def book(self):
        """Return {key: Account}, keys ascending."""
        changes = defaultdict(dict)
        for *key, time, balance in self.rows:
            changes[tuple(key)][time] = balance
        seen, first = self.seen() or (), self.known[0][0] if self.known else 0
        ends = frozenset(end for _, end in seen) - {start for (start, _), _ in self.bad}
        before = (0, None) if self.begins_with_nothing else (None, None)
        return {
            key: Account(
                tuple(sorted(changes[key].items())),
                *self.opening.get(key, before),
                () if key in self.lost else self.seen(key),
                ends,
                first,
                self.begin or 0,
            )
            for key in sorted({*changes, *self.opening})
        }

    @property
    def begins_with_nothing(self):
        """Whether accounts without an opening held nothing; a bad row may be of a first block."""
        if not self.bad:
            return self.nothing_before
        starts = [[start for start, _ in spans][:1] for spans in (self.known, self.seen())]
        return self.nothing_before and starts[0] == starts[1] != []

    def seen(self, account=None):
        """Return the known intervals of an account, or those of accounts without bad rows."""
        seen = self.known
        for (start, end), whose in self.bad:
            if whose in (account, None):
                seen = tuple(part for span in seen for part in uncovered([(start, end)], *span))
        return seen

    def holders(self, by):
        """Return {group: Holder}, groups ascending."""
        members = defaultdict(list)
        for key, account in self.book().items():
            members[tuple(key[KEY.index(name)] for name in by)].append(account)
        return {group: Holder(tuple(members[group])) for group in sorted(members)}

    def without(self, dropped):
        """Return the world of a table after some rows, as (account, time), were removed."""
        rows = [row for row in self.rows if (row[:4], row[4]) not in dropped]
        opening = {key: x for key, x in self.opening.items() if (key, x[1]) not in dropped}
        return replace(
            self, rows=rows, opening=opening, lost=frozenset(account for account, _ in dropped)
        )

    def between(self, start, end):
        """Return the world of an interval with openings."""
        begin = start if self.begin is None else max(start, self.begin)
        before = [(*key, time, held) for key, (held, time) in self.opening.items()]
        before += [row for row in self.rows if row[4] < begin]
        opening = {}
        for *key, time, held in sorted(before, key=lambda row: row[4]):
            opening[tuple(key)] = (held, time)
        first = min([begin, *(row[4] for row in [*self.rows, *before])])
        known = [(first, end)] if self.known is None else self.known
        known = tuple((a, min(b, end)) for a, b in known if a < end)
        return World(
            [row for row in self.rows if begin <= row[4] < end],
            opening,
            known,
            self.nothing_before and bool(known),
            tuple(((a, min(b, end)), whose) for (a, b), whose in self.bad if a < end),
            begin,
        )


@dataclass(frozen=True)
class Fixed:
    """A frequency of some microseconds."""

    length: int

    @property
    def text(self):
        return f"{self.length}us"

    def after(self, start, zone):
        return (start + step * self.length for step in count(1))

    def floor(self, time, zone):
        shift = local(time, zone).utcoffset() // dt.timedelta(microseconds=1)
        return time - (time + shift) % self.length


@dataclass(frozen=True)
class Days:
    """A frequency of some days by the clock on the wall."""

    number: int

    @property
    def text(self):
        return f"{self.number}D"

    def after(self, start, zone):
        wall = local(start, zone).replace(tzinfo=None, fold=0)
        if start == midnight(wall.date(), zone):
            wall = dt.datetime.combine(wall.date(), dt.time())  # which the clocks may have skipped
        for step in count(1):
            day = wall + dt.timedelta(days=step * self.number)
            moment = to_microseconds(day.replace(tzinfo=zone))
            if local(moment, zone).date() == day.date():  # the calendar may skip a day
                yield moment

    def floor(self, time, zone):
        return midnight(local(time, zone).date(), zone)


@dataclass(frozen=True)
class Calendar:
    """A frequency whose points are the midnights of some dates."""

    text: str

    def after(self, start, zone):
        day = local(start, zone).date()
        while True:
            if is_date_of(self.text, day) and midnight(day, zone) > start:
                yield midnight(day, zone)
            day += dt.timedelta(days=1)

    def floor(self, time, zone):
        day = local(time, zone).date()
        while not is_date_of(self.text, day):
            day -= dt.timedelta(days=1)
        return midnight(day, zone)


def is_date_of(frequency, day):
    return {
        "MS": day.day == 1,
        "QS-FEB": day.day == 1 and day.month in (2, 5, 8, 11),
        "QS": day.day == 1 and day.month in (1, 4, 7, 10),
        "YS": day.day == 1 and day.month == 1,
        "W-MON": day.weekday() == 1,
        "W-SUN": day.weekday() == 0,
        "B": day.weekday() < 5,
    }[frequency]


def local(time, zone):
    return from_microseconds(time).astimezone(zone)


def midnight(day, zone):
    """Return a day's first moment, which is after midnight if the clock skips midnight."""
    return to_microseconds(dt.datetime.combine(day, dt.time(), tzinfo=zone))


@dataclass(frozen=True)
class Grid:
    """What a caller asks for: a frequency, None for one interval, and bounds, None for defaults."""

    freq: Fixed | Days | Calendar | None = None
    start: int | None = None
    end: int | None = None
    zone: str = "UTC"

    def periods(self, world):
        """Return the (start, end) of each period."""
        return list(pairwise(self._edges(world)[0]))

    def points(self, world):
        """Return the moments at which levels are asked for."""
        return self._edges(world)[1]

    def own(self, times):
        """Return the times that lie in the interval, and the interval's start, if it has one."""
        times = {*times}
        start = min(times, default=0) if self.start is None else self.start
        inside = {x for x in times if start <= x and (self.end is None or x < self.end)}
        return sorted(inside | ({self.start} - {None}))

    def _edges(self, world):
        """Return the edges of the periods, and the points of a series."""
        zone, times = ZoneInfo(self.zone), sorted(row[4] for row in world.rows)
        known, since = world.seen(), world.begin
        if known is not None and since is not None:
            known = [(max(a, since), b) for a, b in known if since < b]
        if world.opening and times:
            times, known = [since, *times], [(since, since)] if known is None else known
        if not times and known:
            times = [known[0][0]]
        begin = self.start
        if begin is None:
            if not times:
                return [], []
            first = times[0] if self.end is None else min(times[0], self.end - 1)
            begin = first if self.freq is None else self.freq.floor(first, zone)
        last, stop = max([begin, *times]), self.end
        if stop is None and known and known[-1][1] > last:
            stop = known[-1][1]
        edges = [begin, *self._inner(begin, last, stop, zone), *({stop} - {None})]
        points = edges[:] if stop is None and edges[-2] < last else edges[:-1]
        if self.start is None and known:
            starts = [start for start, _ in known if start <= times[0] < edges[1]]
            edges[0] = max([begin, *starts])
        return edges, points

    def _inner(self, begin, last, stop, zone):
        """Yield the points after a beginning up to a stop, or to the first one after the last."""
        if self.freq is None:
            yield from [last + 1] * (stop is None)
            return
        for point in self.freq.after(begin, zone):
            if stop is not None and point >= stop:
                return
            yield point
            if stop is None and point > last:
                return


def balances_at(world, grid, _by=KEY):
    return [
        (*key, when, account.shown(when), account.since_when(when))
        for key, account in world.book().items()
        for when in (grid.end, grid.start)
    ]


def series(world, grid, by=KEY):
    """Return levels at the points of a grid, or at all changes of any account."""
    points = grid.points(world) if grid.freq else grid.own(row[4] for row in world.rows)
    return [
        (*key, point, holder.shown(point))
        for key, holder in world.holders(by).items()
        for point in points
    ]


def series_with_states(world, grid, _by=KEY):
    """Return levels and states at the points of a grid, or at each account's own changes."""
    return [
        (*key, point, account.shown(point), account.state(point))
        for key, account in world.book().items()
        for point in (
            grid.points(world) if grid.freq else grid.own(time for time, _ in account.changes)
        )
    ]


def deltas(world, _grid=None, _by=KEY):
    return [
        (*key, time, balance, delta)
        for key, account in world.book().items()
        for time, balance, delta in account.deltas()
    ]


def flows(world, grid, by=KEY, *, full=False, internal=False):
    """Return flows; if they are full, also those of periods in which a group has no row."""
    result = []
    for group, holder in world.holders(by).items():
        for start, end in grid.periods(world):
            inside = [each.deltas_in(start, end) for each in holder.members]
            *sums, moved = holder.flow(start, end, internal=internal)
            sums += [moved] * internal
            moves = [delta for deltas in inside for delta in deltas]
            counts = [len([*filter(None, moves)]), sum(map(any, inside)), moves.count(None)]
            if not holder.has_all(start, end - 1):
                sums = [None] * len(sums)
                counts = counts if moves else [None] * 3
            if full and None in moves and not any(moves):
                sums = [None] * len(sums)
            if moves or full:
                result.append((*group, start, end, *sums, *counts))
    return result


def averages(world, grid, by=KEY, *, partial=False):
    """Return averages; on request also of parts of periods, with their shares."""
    result = []
    for key, holder in world.holders(by).items():
        for start, end in grid.periods(world):
            exact, share = holder.average(start, end)
            average = round(exact) if share == 1 or (share and partial) else None
            result.append((*key, start, end, average, *([float(share)] * partial)))
    return result


def ohlc(world, grid, by=KEY):
    result = []
    for key, holder in world.holders(by).items():
        for start, end in grid.periods(world):
            first, last = holder.shown(start), holder.shown(end - 1)
            levels = [level for _, _, level in holder.known(start, end)]
            low, high = min(levels, default=None), max(levels, default=None)
            result.append((*key, start, end, first, high, low, last))
    return result


def drawdowns(world, _grid=None, _by=KEY):
    result = []
    for key, account in world.book().items():
        peak, peak_at = account.held, account.since
        is_behind = False
        for n, (time, balance) in enumerate(account.changes):
            follows = n > 0 or account.held is not None
            is_behind |= follows and account.level(time - 1) is None
            if peak is None or balance > peak:
                peak, peak_at = balance, time
            fall = (None,) * 3 if is_behind else (peak, peak_at, peak - balance)
            result.append((*key, time, balance, *fall))
    return result


def totals(world, grid, by):
    result = []
    for group, holder in world.holders(by).items():
        own = {time for account in holder.members for time, _ in account.changes}
        points = grid.own(own) if grid.freq is None else grid.points(world)
        result += [(*group, point, *holder.total(point)) for point in points]
    return result


def shares(world, grid, by):
    """Return totals and their shares of the asset's total."""
    assets, place = world.holders(["asset_id"]), list(by).index("asset_id")
    result = []
    for *group, time, total, known, unknown in totals(world, grid, by):
        whole = assets[group[place],].total(time)[0]
        share = None if total is None or not whole else total / whole
        result.append((*group, time, total, known, unknown, share))
    return result


def summaries(world, grid, by, without=()):
    """Return the summaries of accounts or parties, but for some columns."""
    if not world.book():
        return []
    whole = replace(grid, freq=None).periods(world)
    [(start, end)] = whole or [(world.begin, world.begin + 1)]
    rows = {key: _summary(holder, start, end) for key, holder in world.holders(by).items()}
    return [
        (*key, *(row[name] for name in row if name not in without)) for key, row in rows.items()
    ]


def _summary(holder, start, end):
    seen = [t for each in holder.members for t, _ in each.changes if start <= t < end]
    moves = [delta for each in holder.members for delta in each.deltas_in(start, end)]
    known = holder.known(start, end)
    levels = [level for _, _, level in known]
    inflow, outflow, net, internal = holder.flow(start, end, internal=True)
    exact, share = holder.average(start, end)
    low, high = min(levels, default=None), max(levels, default=None)
    at_zero = sum(right - left for left, right, level in known if level == 0)
    time_known = sum(right - left for left, right, _ in known)
    before, after = holder.shown(start - 1), holder.shown(end - 1)
    if not holder.has_all(start, end - 1):
        inflow = outflow = net = internal = None
    if None not in (before, after):
        net = after - before
    tops = [*accumulate(levels, max)]
    falls = [top - level for top, level in zip(tops, levels, strict=True)]
    deepest = max(falls, default=None)
    is_unknown = [None in (x.shown(start - 1), x.shown(end - 1)) for x in holder.members]
    return {
        "accounts": len(holder.members),
        "unknown": sum(is_unknown),
        "first_seen": min(seen, default=None),
        "last_seen": max(seen, default=None),
        "rows": len(seen),
        "changes": sum(map(bool, moves)),
        "opening": before,
        "closing": after,
        "minimum": low,
        "maximum": high,
        "minimum_at": next((left for left, _, level in known if level == low), None),
        "maximum_at": next((left for left, _, level in known if level == high), None),
        "inflow": inflow,
        "outflow": outflow,
        "net": net,
        "internal": internal,
        "average": round(exact) if share == 1 else None,
        "drawdown": deepest,
        "drawdown_at": known[falls.index(deepest)][0] if deepest else None,
        "zero_share": at_zero / time_known if known else None,
    }


def ranked_holders(world, grid, by, n=None):
    """Return the holders of each asset at the grid's start and their balances, largest first."""
    when, place, rows = grid.start, list(by).index("asset_id"), []
    for key, holder in world.holders(by).items():
        total, known, unknown = holder.total(when)
        rows.append((key, total, known + unknown, unknown))
    result = []
    for (asset,), all_of_it in world.holders(["asset_id"]).items():
        own = [row for row in rows if row[0][place] == asset]
        own.sort(key=lambda row: (row[1] is None, -(row[1] or 0)))
        whole, so_far = all_of_it.total(when)[0], 0
        for key, total, *counts in own[:n]:
            so_far += total or 0
            is_part = total is not None and whole
            shares = (total / whole, so_far / whole) if is_part else (None, None)
            result.append((*key, total, *shares, *counts))
    return result


def comparison(world, grid, by):
    """Return how the grid's end differs from its start, the largest changes of an asset first."""
    place, rows = list(by).index("asset_id"), []
    for key, holder in world.holders(by).items():
        before, after = holder.shown(grid.start), holder.shown(grid.end)
        pairs = [(each.shown(grid.start), each.shown(grid.end)) for each in holder.members]
        change, percent, state = None, None, "unknown"
        if None not in (before, after):
            change = after - before
            state = (
                "same" if not change else "new" if not before else "changed" if after else "gone"
            )
            percent = 100 * change / abs(before) if before else None
        counts = len(pairs), sum(None in pair for pair in pairs)
        rows.append((key, change, before, after, percent, state, *counts))
    rows.sort(key=lambda row: (row[0][place], row[1] is None, -abs(row[1] or 0)))
    return [(*key, before, after, change, *rest) for key, change, before, after, *rest in rows]


def differences(world, entries):
    """Return the differences from some (account, time, net), and how many can't be compared."""
    nets = defaultdict(int)
    for key, time, net in entries:
        nets[key, time] += net
    changes = {(tuple(key), time): delta for *key, time, _, delta in fit(deltas(world))}
    result, not_compared = [], 0
    for key, time in sorted({*nets, *changes}):
        if key[1] == EXTERNAL:
            continue
        delta, net = changes.get((key, time)), nets.get((key, time))
        account = Account((), intervals=() if key in world.lost else world.seen(key))
        is_seen = account.sees_all(time, time) and time >= (world.begin or 0)
        if delta is None and ((key, time) in changes or not is_seen):
            not_compared += 1
        elif difference := (delta or 0) - (net or 0):
            reason = "no row" if delta is None else "no flow" if net is None else "other amount"
            result.append((*key, time, delta, net, difference, reason))
    return fit(result), not_compared
