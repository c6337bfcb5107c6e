"""Balances, flows and sums of rows, in plain integers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from fractions import Fraction

EVER, NEVER = -(10**18), 10**18


def joined(spans):
    """Spans that touch as one, in order."""
    union = []
    for start, end in sorted(spans):
        if union and union[-1][1] >= start:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([start, end])
    return [tuple(span) for span in union]


class Truth:
    """Rows (account, time, balance), and the stretches in which every change is known.

    A balance that was seen is known until the next row, or until changes may be missing. Of an
    account without an earlier row nothing is known, unless the first stretch begins with the chain.
    """

    def __init__(self, rows, known, *, from_first_block=False):
        self.known = joined(known)
        bounds = [EVER, *(bound for span in self.known for bound in span), NEVER]
        self.gaps = [gap for gap in zip(bounds[::2], bounds[1::2], strict=True) if gap[0] < gap[1]]
        if from_first_block:
            self.gaps = self.gaps[1:]
        self.rows = defaultdict(list)
        for account, time, balance in sorted(rows):
            self.rows[account].append((time, balance))
        self.is_first = from_first_block

    def until(self, time):
        """Until when a balance that was seen at a time is known."""
        return max(
            time + 1, next(start for start, end in [*self.gaps, (NEVER, NEVER)] if end > time + 1)
        )

    def seen(self, account, at):
        """The last row up to a moment, if there is one."""
        rows = self.rows[account]
        place = bisect_right(rows, (at, NEVER**3))
        if place:
            return rows[place - 1]
        return (EVER, 0) if self.is_first else None

    def held(self, account, at, *, until_end=False):
        """The balance at a moment, `None` if unknown; `until_end`: known to the end, inclusive."""
        row = self.seen(account, at)
        if row is None:
            return None
        until = self.until(row[0])
        is_end = until_end and until in {end for _, end in self.known}
        return row[1] if at < until + is_end else None

    def accounts(self, asset=None, *, party=None):
        """Accounts that have a row, sorted."""
        return sorted(
            account
            for account, rows in self.rows.items()
            if asset in (None, account[0]) and party in (None, account[2])
        )

    def knows(self, start, end):
        """Whether every change in [start, end) is known."""
        spans = [(EVER if self.is_first and not n else a, b) for n, (a, b) in enumerate(self.known)]
        return any(a <= start and end <= b for a, b in spans)

    def deltas(self, account, start, end):
        """The rows of an account in [start, end): time, balance, and delta where that is known."""
        deltas = []
        for time, balance in self.rows[account]:
            if start <= time < end:
                before = self.held(account, time - 1)
                deltas.append((time, balance, None if before is None else balance - before))
        return deltas

    def flows(self, accounts, start, end):
        """What came in and went out of accounts; `None` where changes may be missing."""
        deltas = [delta for one in accounts for _, _, delta in self.deltas(one, start, end)]
        known = [delta for delta in deltas if delta is not None]
        sums = {
            "inflow": sum(delta for delta in known if delta > 0),
            "outflow": -sum(delta for delta in known if delta < 0),
            "net": sum(known),
        }
        if not self.knows(start, end):
            sums = dict.fromkeys(sums)
        changes, unknown = sum(delta != 0 for delta in known), deltas.count(None)
        return {**sums, "changes": changes, "unknown": unknown}

    def level(self, accounts, at):
        """The sum of the balances that are known, and the numbers of those that are and aren't."""
        held = [self.held(account, at, until_end=True) for account in accounts]
        known = [level for level in held if level is not None]
        return (sum(known) if known else None), len(known), held.count(None)

    def average(self, account, start, end):
        """The time-weighted average, half-even; `None` where the balance is unknown in a part."""
        changes = [time for time, _ in self.rows[account] if start < time < end]
        edges = [start, *changes, end]
        held = [self.held(account, at) for at in edges[:-1]]
        lasts = [self.held(account, at - 1) for at in edges[1:]]
        if None in held or None in lasts:
            return None
        whole = sum(b * (y - x) for b, x, y in zip(held, edges, edges[1:], strict=False))
        return round(Fraction(whole, end - start))
