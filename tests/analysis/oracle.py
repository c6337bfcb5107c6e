"""The analysis again, as loops over Python integers: slow, plain, and sharing no code with it.

Rows are tuples of (asset, type, party, market, microseconds, balance), openings are
{account: (balance, microseconds since then)}, where (0, None) stands for an account that held
nothing before its rows, known intervals are pairs of microseconds, None where nothing is stated,
and a result is a list of tuples in the order of its columns, with None for what is unknown.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count, pairwise, takewhile
from zoneinfo import ZoneInfo

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
KEY = ("asset_id", "account_type", "party_id", "market_id")
EXTERNAL = "ACCOUNT_TYPE_EXTERNAL"
TOO_LARGE = 10**38


def fit(*amounts):
    """Return these amounts, or raise where one of them has more than 38 digits."""
    for amount in amounts:
        if amount is not None and abs(amount) >= TOO_LARGE:
            raise OverflowError(f"{amount} has more than 38 digits")
    return amounts


def half_even(exact):
    """Return the integer next to a fraction, the even one of two that are as near."""
    below, rest = divmod(exact.numerator, exact.denominator)
    if 2 * rest == exact.denominator:
        return below + below % 2
    return below + (2 * rest > exact.denominator)


@dataclass(frozen=True)
class Account:
    """What is known of one account: its rows, ascending, and what it held before them."""

    changes: tuple[tuple[int, int], ...]
    held: int | None = None
    since: int | None = None
    intervals: tuple[tuple[int, int], ...] | None = None

    def level(self, when):
        for time, balance in reversed(self.changes):
            if time <= when:
                return balance if self.sees_all(time + 1, when) else None
        first = min(self.intervals or (), default=(0,))[0]
        begin = first if self.since is None else self.since + 1
        is_held = self.since is None or self.since <= when
        return self.held if is_held and self.sees_all(begin, when) else None

    def sees_all(self, start, stop):
        """Whether every change from one moment to another, both included, would be seen."""
        if self.intervals is None or start > stop:
            return True
        return any(begin <= start and stop < end for begin, end in self.intervals)

    def rests_on(self, when):
        """Return the time that set the level, None where it is unknown or has no time."""
        if self.level(when) is None:
            return None
        return max((time for time, _ in self.changes if time <= when), default=self.since)

    def told(self, when):
        """Return level and time that are told of a moment: at the end of what is known the last."""
        is_end = any(end == when for _, end in self.intervals or ())
        at = when - 1 if is_end and self.level(when) is None else when
        return self.level(at), self.rests_on(at)

    def state(self, when):
        if self.told(when)[0] is None:
            return "unknown"
        if any(time == when for time, _ in self.changes):
            return "observed"
        if any(time < when for time, _ in self.changes):
            return "carried"
        return "opening"

    def deltas(self):
        """Return (time, balance, delta) of each row."""
        return _deltas(self)

    def pieces(self, start, end):
        """Return (from, to, level) of each stretch of [start, end) in which nothing changes."""
        times = {time for time, _ in self.changes} | ({self.since} - {None})
        if self.intervals is not None:
            times |= {time + 1 for time in times}
            times |= {edge for interval in self.intervals for edge in interval}
        bounds = sorted({start, end, *(time for time in times if start < time < end)})
        return [(left, right, self.level(left)) for left, right in pairwise(bounds)]

    def known(self, start, end):
        return [piece for piece in self.pieces(start, end) if piece[2] is not None]

    def average(self, start, end):
        """Return the exact average, None where a part is unknown."""
        pieces = self.pieces(start, end)
        if any(level is None for _, _, level in pieces):
            return None
        return Fraction(sum((right - left) * level for left, right, level in pieces), end - start)


@cache
def _deltas(account):
    found = []
    for time, balance in account.changes:
        before = account.level(time - 1)
        found.append((time, balance, *fit(None if before is None else balance - before)))
    return found


def book(rows, opening=None, known=None):
    """Return {key: Account}, keys ascending."""
    histories = defaultdict(dict)
    for *key, time, balance in rows:
        histories[tuple(key)][time] = balance
    opening = opening or {}
    return {
        key: Account(tuple(sorted(histories[key].items())), *opening.get(key, (None, None)), known)
        for key in sorted({*histories, *opening})
    }


def groups(accounts, by):
    """Return {group: [Account]}, groups ascending."""
    found = defaultdict(list)
    for key, account in accounts.items():
        found[tuple(key[KEY.index(name)] for name in by)].append(account)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Fixed:
    """A frequency of so many microseconds."""

    length: int

    @property
    def text(self):
        return f"{self.length}us"

    def after(self, start, zone):
        return (start + step * self.length for step in count(1))

    def floor(self, time, zone):
        return time - time % self.length


@dataclass(frozen=True)
class Days:
    """A frequency of so many days by the clock on the wall."""

    number: int

    @property
    def text(self):
        return f"{self.number}D"

    def after(self, start, zone):
        wall = local(start, zone).replace(tzinfo=None, fold=0)
        if start == midnight(wall.date(), zone):
            wall = dt.datetime.combine(wall.date(), dt.time())  # which the clocks may have skipped
        for step in count(1):
            yield microseconds((wall + dt.timedelta(days=step * self.number)).replace(tzinfo=zone))

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
    return (EPOCH + time * MICROSECOND).astimezone(zone)


def midnight(day, zone):
    """Return a day's first moment; where the clock skips midnight, that to which it is put on."""
    return microseconds(dt.datetime.combine(day, dt.time(), tzinfo=zone))


def microseconds(aware):
    return (aware.astimezone(dt.UTC) - EPOCH) // MICROSECOND


@dataclass(frozen=True)
class Grid:
    """What a caller asks for: a frequency, None for one interval, and bounds, None for defaults.

    `since` is when a table with openings begins, by default where its first row is.
    """

    freq: Fixed | Days | Calendar | None = None
    start: int | None = None
    end: int | None = None
    zone: str = "UTC"
    since: int | None = None

    def periods(self, rows):
        """Return the (start, end) of each period."""
        times = self._times(rows)
        begin = self._begin(times)
        if begin is None:
            return []
        last = max([begin, *times])
        if self.freq is None:
            return [(begin, last + 1 if self.end is None else self.end)]
        edges = [begin]
        for point in self._after(begin):
            edges.append(point if self.end is None else min(point, self.end))
            if edges[-1] == self.end or (self.end is None and point > last):
                if self.start is None and self.since is not None and edges[1] > self.since:
                    edges[0] = max(edges[0], self.since)
                return list(pairwise(edges))
        raise AssertionError

    def points(self, rows):
        """Return the moments at which levels are asked for."""
        times = self._times(rows)
        begin = self._begin(times)
        if begin is None:
            return []
        if self.end is not None:
            return [begin, *takewhile(lambda point: point < self.end, self._after(begin))]
        found = [begin]
        for point in self._after(begin):
            if found[-1] >= max([begin, *times]):
                return found
            found.append(point)
        raise AssertionError

    def own(self, times):
        """Return these times where they are in the interval, and its start, if it has one."""
        inside = {time for time in times if self.holds(time)}
        return sorted(inside | ({self.start} - {None}))

    def holds(self, time):
        return (self.start is None or self.start <= time) and (self.end is None or time < self.end)

    def interval(self, rows):
        """Return the one interval of a summary, which is never empty."""
        times = self._times(rows)
        start = self.start
        if start is None:
            start = min(times) if self.end is None else min([*times, self.end - 1])
        return start, max([*times, start]) + 1 if self.end is None else self.end

    def _times(self, rows):
        times = [row[4] for row in rows]
        return [*times, self.since] if times and self.since is not None else times

    def _begin(self, times):
        if self.start is not None or not times:
            return self.start
        return min(times) if self.freq is None else self.freq.floor(min(times), self._zone())

    def _after(self, begin):
        return self.freq.after(begin, self._zone())

    def _zone(self):
        return ZoneInfo(self.zone)


def balances_at(rows, opening, instants, known=None):
    return [
        (*key, when, *account.told(when))
        for key, account in book(rows, opening, known).items()
        for when in instants
    ]


def series(rows, opening, grid, known=None):
    points = grid.points(rows)
    return [
        (*key, point, account.told(point)[0], account.state(point))
        for key, account in book(rows, opening, known).items()
        for point in points
    ]


def sparse_series(rows, opening, grid):
    return [
        (*key, point, account.level(point), account.state(point))
        for key, account in book(rows, opening).items()
        for point in grid.own(time for time, _ in account.changes)
    ]


def deltas(rows, opening, _grid=None, known=None):
    return [
        (*key, *change)
        for key, account in book(rows, opening, known).items()
        for change in account.deltas()
    ]


def flows(rows, opening, grid, by, known=None, *, full=False):
    """Return flows; if they are full, also those of periods in which a group has no row."""
    found = []
    anyone = Account((), intervals=known)
    for group, members in groups(book(rows, opening, known), by).items():
        for start, end in grid.periods(rows):
            inside = _deltas_in(members, start, end)
            active = sum(any(_deltas_in([account], start, end)) for account in members)
            *sums, changes = _flow_of(inside)
            counts = [changes, active, inside.count(None)]
            if not anyone.sees_all(start, end - 1):
                sums = [None] * 3
                counts = counts if inside else [None] * 3
            if full and not changes and None in inside:
                sums = [None] * 3
            if inside or full:
                found.append((*group, start, end, *sums, *counts))
    return found


def _deltas_in(members, start, end):
    return [
        delta for account in members for time, _, delta in account.deltas() if start <= time < end
    ]


def _flow_of(deltas):
    """Return inflow, outflow, net and changes."""
    known = [delta for delta in deltas if delta is not None]
    inflow = sum(delta for delta in known if delta > 0)
    outflow = -sum(delta for delta in known if delta < 0)
    return *fit(inflow, outflow, sum(known)), sum(delta != 0 for delta in known)


def averages(rows, opening, grid, known=None):
    found = []
    for key, account in book(rows, opening, known).items():
        for start, end in grid.periods(rows):
            exact = account.average(start, end)
            found.append((*key, start, end, None if exact is None else half_even(exact)))
    return found


def parts_of_averages(rows, opening, grid, known=None):
    """Return the averages of what is known, and which part of the period that is."""
    found = []
    for key, account in book(rows, opening, known).items():
        for start, end in grid.periods(rows):
            pieces = account.known(start, end)
            length = sum(right - left for left, right, _ in pieces)
            held = sum((right - left) * level for left, right, level in pieces)
            part = half_even(Fraction(held, length)) if pieces else None
            found.append((*key, start, end, part, length / (end - start)))
    return found


def ohlc(rows, opening, grid, known=None):
    found = []
    for key, account in book(rows, opening, known).items():
        for start, end in grid.periods(rows):
            levels = [level for _, _, level in account.known(start, end)]
            low, high = min(levels, default=None), max(levels, default=None)
            first = account.told(start)[0]
            found.append((*key, start, end, first, high, low, account.level(end - 1)))
    return found


def drawdowns(rows, opening, _grid=None, known=None):
    found = []
    for key, account in book(rows, opening, known).items():
        peak, peak_at = account.held, account.since
        is_behind = False
        for n, (time, balance) in enumerate(account.changes):
            follows = n > 0 or account.held is not None
            is_behind |= follows and account.level(time - 1) is None
            if peak is None or balance > peak:
                peak, peak_at = balance, time
            fall = (None,) * 3 if is_behind else (peak, peak_at, *fit(peak - balance))
            found.append((*key, time, balance, *fall))
    return found


def totals(rows, opening, grid, by, known=None):
    found = []
    for group, members in groups(book(rows, opening, known), by).items():
        own = {time for account in members for time, _ in account.changes}
        points = grid.own(own) if grid.freq is None else grid.points(rows)
        found += [(*group, point, *total_at(members, point)) for point in points]
    return found


def total_at(members, when):
    """Return total, known and unknown."""
    known = _known_at(members, when)
    return *fit(sum(known) if known else None), len(known), len(members) - len(known)


def _known_at(members, when):
    levels = [account.told(when)[0] for account in members]
    return [level for level in levels if level is not None]


def summaries(rows, opening, grid, known=None):
    """Return {account: {column: value}}."""
    start, end = grid.interval(rows)
    return {
        key: _summary(account, start, end) for key, account in book(rows, opening, known).items()
    }


def _summary(account, start, end):
    inside = [time for time, _ in account.changes if start <= time < end]
    known = account.known(start, end)
    levels = [level for _, _, level in known]
    inflow, outflow, net, changes = _flow_of(_deltas_in([account], start, end))
    exact = account.average(start, end)
    low, high = min(levels, default=None), max(levels, default=None)
    deepest, deepest_at = _deepest(known)
    at_zero = sum(right - left for left, right, level in known if level == 0)
    time_known = sum(right - left for left, right, _ in known)
    before, after = account.level(start - 1), account.level(end - 1)
    if not Account((), intervals=account.intervals).sees_all(start, end - 1):
        inflow = outflow = None
        net = None if before is None or after is None else after - before
    return {
        "first_seen": min(inside, default=None),
        "last_seen": max(inside, default=None),
        "rows": len(inside),
        "changes": changes,
        "opening": before,
        "closing": after,
        "minimum": low,
        "maximum": high,
        "minimum_at": next((left for left, _, level in known if level == low), None),
        "maximum_at": next((left for left, _, level in known if level == high), None),
        "inflow": inflow,
        "outflow": outflow,
        "net": net,
        "average": None if exact is None else half_even(exact),
        "drawdown": deepest,
        "drawdown_at": deepest_at,
        "zero_share": at_zero / time_known if known else None,
    }


def _deepest(known):
    """Return the largest fall from the highest level before, and when, if any, it was reached."""
    falls = [
        (max(level for _, _, level in known[: position + 1]) - level, left)
        for position, (left, _, level) in enumerate(known)
    ]
    deepest = max((depth for depth, _ in falls), default=None)
    return *fit(deepest), next((at for depth, at in falls if depth == deepest and depth), None)


def differences(rows, opening, entries):
    """Return what differs from a list of (account, time, net), 0 where a side has nothing."""
    nets = defaultdict(int)
    for key, time, net in entries:
        if key[1] != EXTERNAL:
            nets[key, time] += net
    changes = {
        (key, time): delta
        for key, account in book(rows, opening).items()
        if key[1] != EXTERNAL
        for time, _, delta in account.deltas()
    }
    found = []
    for key, time in sorted({*nets, *changes}):
        delta, net = changes.get((key, time), 0), nets.get((key, time), 0)
        if delta is None or delta == net:
            continue
        reason = "other amount"
        if (key, time) not in changes:
            reason = "no row"
        elif (key, time) not in nets:
            reason = "no flow"
        found.append((*key, time, *fit(delta, net, delta - net), reason))
    return found
