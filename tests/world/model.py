"""A model world: one true history, nodes that know a part of it, and archives of what they said.

Moments are microseconds, stretches half-open. What a source has of each account is a dict from
(moment, account) to balance. The oracle is plain: an archive's model remembers each answer that a
node gave for it, over the wire, and each source that it was compared with.
"""

import hashlib
import random
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import lru_cache, partial
from pathlib import Path

import balance_analysis as ba
from tests.cli.running import invoke
from tests.loopback import LoopbackNode, Row
from tests.moments import both, from_microseconds, to_microseconds
from tests.node.truth import lines_of_table, matching

SECOND = 1_000_000
HOUR = 3600 * SECOND
BEGIN = to_microseconds("2023-04-28T20:00")
EVER = (0, to_microseconds("2100-01-01"))
PAUSES = (1, SECOND, 1200 * SECOND, 3 * HOUR, 3 * HOUR, 9 * HOUR, 30 * HOUR)
SEGMENTS, STRANGER = "segments", "stranger"
TOO_LONG, UNREADABLE = "9" * 39, "x" * 39
"""What stands for a balance of 39 digits, and for a time that can't be read."""
UNEXPECTED = 1
"""The exit code of an error of another kind than the package's."""


def an_id(seed: str) -> str:
    return hashlib.sha256(seed.encode()).hexdigest()


ASSETS = an_id("asset 0"), an_id("asset 1")
PARTIES = an_id("party 0"), an_id("party 1")
KINDS = [("GENERAL", PARTIES[0]), ("GENERAL", PARTIES[1]), ("GLOBAL_REWARD", "network")]
ACCOUNTS = [(asset, f"ACCOUNT_TYPE_{x}", party, "") for asset in ASSETS for x, party in KINDS]
FILTERS = ({}, {}, {"asset_id": ASSETS[0]}, {"party_ids": (PARTIES[1],)})


def grown(rng: random.Random, rows: list[Row], blocks: int, *, salt: str = "") -> list[Row]:
    """Return a history with more blocks: ties, quiet stretches, repeated and long balances."""
    rows, held = [*rows], {row.account: row.balance for row in rows}
    time = rows[-1].time if rows else BEGIN - bool(salt) * 2 * max(PAUSES)
    for _ in range(blocks):
        time += rng.choice(PAUSES)
        for asset, *others in rng.sample(ACCOUNTS, rng.choice((1, 1, 2, 4))):
            account = (an_id(asset + salt) if salt else asset, *others)
            kept, digits = rng.random() < 0.2, rng.choice((1, 6, 20, 38))
            held[account] = held.get(account, 0) if kept else rng.randrange(10**digits)
            rows.append(Row(*account, time, held[account]))
    return sorted(rows, key=lambda row: row.order)


def balances(rows, filters=None):
    """Return rows of some accounts by moment and account."""
    return {(row.time, row.account): row.balance for row in matching(rows, **filters or {})}


def balances_of(table):
    return {(line[4], line[:4]): line[5] for line in lines_of_table(table)}


def at(rows, moment):
    """Return the balances of one moment."""
    return {account: balance for (time, account), balance in rows.items() if time == moment}


def only(rows, filters):
    """Return the balances of some accounts."""
    asset, parties = filters.get("asset_id"), filters.get("party_ids")
    is_wanted = {x for _, x in rows if asset in (None, x[0]) and (not parties or x[2] in parties)}
    return {place: balance for place, balance in rows.items() if place[1] in is_wanted}


def covers(one, other):
    """Whether a request for some accounts includes others."""
    parties = {*one.get("party_ids", ())}
    return one.get("asset_id") in {None, other.get("asset_id")} and (
        not parties or parties >= {*other.get("party_ids", ("none",))}
    )


def holds(spans, moment):
    return any(start <= moment < end for start, end in spans)


@dataclass(frozen=True)
class Answer:
    """A source's rows of a stretch, and the stretches in which it could claim completeness."""

    source: str
    span: tuple[int, int]
    claims: list
    filters: dict
    rows: dict


@dataclass(frozen=True)
class View:
    """A source's state at a moment: its accounts, its rows, and where it claims to be complete.

    `origins` gives, for a moment, the sources that the rows came from.
    """

    filters: dict
    claims: list
    rows: dict
    origins: object


@dataclass
class Node:
    """A node of the network, with its faults.

    Attributes
    ----------
    since, until
        It holds the blocks from the one on, and up to the other, inclusive; `None` is the present.
    begun
        Whether it has begun its last block and committed no row of that.
    lies
        Rows stored in place of true ones, by their order: another row, or none. One of the
        two balances of 39 characters makes a malformed row of it.
    """

    name: str
    server: LoopbackNode
    truth: list = field(default_factory=list)
    since: int = 0
    until: int | None = None
    headers: bool = True
    begun: bool = False
    lies: dict = field(default_factory=dict)
    answers: list = field(default_factory=list)

    def __post_init__(self):
        self.server.edit_page, self.server.edit_row = self._note, unreadable
        self.server.start()

    @property
    def is_healthy(self):
        return not (self.since or self.until or self.begun or self.lies) and self.headers

    def heal(self):
        self.since, self.until, self.headers, self.begun, self.lies = 0, None, True, False, {}

    def refresh(self):
        """Serve what the node holds by now."""
        self.server.replace(self._held())
        self.server.block_headers = self.headers
        self.server.block_timestamp = self.head * 1000

    @property
    def head(self):
        """The moment of the last block that it has begun."""
        return max(row.time for row in self.truth if row.time <= (self.until or EVER[1]))

    @property
    def reach(self):
        """The stretch in which the node holds all rows that it will ever send."""
        times = [row.time for row in self._held()]
        end = self.head - self.begun if self.headers else max(times, default=-1)
        return self.since, end + 1

    def _held(self):
        last = self.head - self.begun
        true = [row for row in self.truth if self.since <= row.time <= last]
        return [row for row in (self.lies.get(x.order, x) for x in true) if row is not None]

    def _sound(self):
        return [row for row in self._held() if len(str(row.balance)) <= 38]

    def view(self):
        sound, claims = self._sound(), [self.reach]
        for moment in {row.time for row in self._held()} - {row.time for row in sound}:
            claims = both(claims, [(0, moment), (moment + 1, EVER[1])])
        return View({}, claims, balances(sound), lambda _: {self.name})

    def _note(self, page, request):
        """Remember the answer to a request for rows, except to one for the oldest row."""
        asked = {name: request.get(f"pagination.{name}") for name in ("first", "newestFirst")}
        is_newest = asked["newestFirst"] == "true"
        if asked["first"] is None or (asked["first"] == "1" and not is_newest):
            return
        start, end = (int(request.get(f"dateRange.{x}Timestamp")) // 1000 for x in ("start", "end"))
        if page["balances"]["pageInfo"]["hasNextPage"]:
            times = [edge["node"]["timestamp"] for edge in page["balances"]["edges"]]
            there = [int(time) // 1000 for time in times if time.isdecimal()]
            if is_newest:
                start = min(there, default=end - 1) + 1
            else:
                end = max(there, default=start)
        asset, parties = request.get("filter.assetId"), request.params.get("filter.partyIds")
        filters = {"asset_id": asset} if asset else {}
        filters |= {"party_ids": tuple(parties)} if parties else {}
        rows = matching(self._sound(), start=start, end=end, **filters)
        claims = [] if self.name == STRANGER else self.view().claims
        self.answers.append(Answer(self.name, (start, end), claims, filters, balances(rows)))


def unreadable(row):
    """Spoil the time of a row that is to be sent as a bad one."""
    if row["balance"] == UNREADABLE:
        row |= {"balance": "1", "timestamp": "soon"}


@lru_cache
def coverage_of(path, _manifest):
    """Return the stretches of an archive and their states, read once for each manifest."""
    frame = ba.Archive(path).coverage().astype({"start": "int64", "end": "int64", "state": "str"})
    return [*frame[["start", "end", "state"]].itertuples(index=False, name=None)]


@dataclass(eq=False)
class Held:
    """An archive, the answers that it was filled from, and what it was compared with."""

    path: Path
    filters: dict
    answers: list = field(default_factory=list)
    compared: list = field(default_factory=list)

    @property
    def archive(self):
        return ba.Archive(self.path)

    @property
    def options(self):
        """The options of commands that name its accounts, and a file's period."""
        asset, parties = self.filters.get("asset_id"), self.filters.get("party_ids", ())
        own = ["--asset-id", asset] if asset else [x for y in parties for x in ("--party-id", y)]
        return [*own, "--partition", "month" if self.filters else "day"]

    def copied_to(self, path):
        return replaced(self, path=path, answers=[*self.answers], compared=[*self.compared])

    def spans(self, *states):
        rows = coverage_of(self.path, (self.path / "_archive.json").read_bytes())
        return [(start, end) for start, end, state in rows if state in states]

    def complete(self):
        return self.spans("complete", "confirmed")

    def read(self):
        start, end = (from_microseconds(moment) for moment in (BEGIN - 365 * 24 * HOUR, EVER[1]))
        return self.archive.read(start=start, end=end, partial=True)

    def view(self):
        origins = partial(sources, [*self.answers])
        return View(self.filters, self.complete(), balances_of(self.read()), origins)

    def problems(self, truth):
        """Yield the places where the archive's words are false."""
        rows, true = balances_of(self.read()), balances(truth, self.filters)
        yield from untrue(rows, self.complete(), self.answers, self.filters, true)
        for start, end in self.spans("confirmed"):
            inside = {t for t, _ in [*rows, *true] if start <= t < end}
            for moment in sorted({start, *inside, end - 1}):
                if not any(self._confirms(*each, moment, rows) for each in self.compared):
                    yield f"{self.path.name}: {moment} is confirmed, but no second source says so"

    def _confirms(self, view, span, moment, rows):
        """Whether a source that it was compared with may confirm a moment of it."""
        return (
            holds(both([span], view.claims), moment)
            and view.filters in ({}, self.filters)
            and at(rows, moment) == at(only(view.rows, self.filters), moment)
            and len(view.origins(moment) | sources(self.answers, moment)) > 1
        )


def sources(answers, moment):
    """Return the sources that answered for a moment."""
    return {each.source for each in answers if holds([each.span], moment)}


def untrue(rows, complete, answers, filters, true):
    """Yield moments called complete at which rows are not the true ones, and no node said so.

    A node that has a wrong row, or lacks one, within its reach is believed.
    """
    for moment in sorted({time for time, _ in [*rows, *true]}):
        there = at(rows, moment)
        if not holds(complete, moment) or there == at(true, moment):
            continue
        said = [
            at(only(each.rows, filters), moment)
            for each in answers
            if covers(each.filters, filters) and holds(both([each.span], each.claims), moment)
        ]
        if there not in said:
            asked = sorted(sources(answers, moment))
            yield f"{moment} is called complete but has other rows than are true, asked of {asked}"


def run_command(*arguments):
    """Return a command's exit code, never that of an unexpected error, and its output."""
    result = invoke(arguments)
    assert result.exit_code != UNEXPECTED, (arguments, result.output)
    assert isinstance(result.exception, SystemExit | None), (arguments, result.exception)
    return result.exit_code, result.output
