"""Words that vouch were once false in eight ways: one way a section, through public surfaces."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
from dataclasses import replace

import pytest

import balance_analysis as ba
from tests.columns import known_of
from tests.loopback import LoopbackNode
from tests.loopback.node import LIMITS
from tests.moments import from_microseconds, moment_text
from tests.segments.writer import write_segments
from tests.serving import serving
from tests.world.model import (
    HOUR,
    PARTIES,
    Held,
    at,
    balances,
    balances_of,
    grown,
    holds,
    lacking,
    run_command,
    time_of,
)

pytestmark = pytest.mark.usefixtures("without_waits")
ROWS = grown(random.Random(8), [], 32)
TIMES = sorted({time_of(row) for row in ROWS})
FIRST, LAST = TIMES[0], TIMES[-1]
LATER = LAST + 30 * 24 * HOUR
MIDDLE = ROWS[len(ROWS) // 2]


def until(moment, rows=ROWS):
    return [row for row in rows if time_of(row) <= moment]


def since(moment, rows=ROWS):
    return [row for row in rows if time_of(row) >= moment]


def changed(row, rows=ROWS, **other):
    return [replace(each, **other) if each is row else each for each in rows]


def export(folder, *urls, code=0, **options):
    """Export from the first row on; return the model of the archive."""
    options = {"since": moment_text(FIRST), "until": moment_text(LATER), **options}
    options["partition"] = "month"
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    ended, said = run_command("export", folder, *urls, *[x for x in given if x is not True])
    assert code in {None, ended}, said
    return Held(folder, {})


def assert_true(held):
    """Check that an archive has every row in what it calls complete."""
    rows = balances_of(held.read())
    for moment in TIMES:
        if holds(held.complete(), moment):
            assert at(rows, moment) == at(balances(ROWS), moment)


@pytest.fixture
def node():
    with LoopbackNode(ROWS) as serving_all:
        yield serving_all


@pytest.fixture
def second():
    with LoopbackNode(ROWS) as serving_all:
        yield serving_all


@pytest.fixture
def held(node, tmp_path):
    return export(tmp_path / "a", node.url)


# 1. Rows lost for ever


def test_what_a_node_without_block_headers_did_not_have_yet_is_asked_for_later(tmp_path):
    behind = until(LAST - 27 * HOUR)
    with LoopbackNode(behind, block_headers=False) as node:
        held = export(tmp_path / "a", node.url, code=None)
        assert held.complete()[-1][1] <= time_of(behind[-1]) + 1
        node.replace(ROWS)
        for _ in range(2):
            export(tmp_path / "a", node.url, code=None)
    assert_true(held)
    # Its newest row may be one of several in an unfinished block.
    assert holds(held.complete(), LAST - 1)


# 2. A row set aside


def test_a_row_that_is_set_aside_makes_its_moment_unproven_until_it_comes_whole(node, tmp_path):
    node.replace(changed(MIDDLE, balance="9" * 39))
    spoiled = export(tmp_path / "a", node.url, code=5)
    assert not holds(spoiled.complete(), time_of(MIDDLE))
    assert not holds(known_of(spoiled.read()), time_of(MIDDLE))
    assert_true(spoiled)
    assert run_command("status", spoiled.path, "--fail-on-gaps")[0] == 3
    outcome = spoiled.archive.explain(MIDDLE.account, at=from_microseconds(time_of(MIDDLE)))
    assert outcome.balance is None
    assert outcome.why
    node.replace(ROWS)
    export(spoiled.path, node.url, "--fill-gaps")
    assert balances_of(spoiled.read()) == balances(ROWS)
    assert holds(spoiled.complete(), time_of(MIDDLE))


# 3. Some accounts compared with all


@pytest.fixture(params=["archive", "served", "loaded", "selected"])
def of_one_party(request, held, node, tmp_path):
    """A source of one party: an archive, served or not, or a file that was written in some way."""
    party, path = PARTIES[0], tmp_path / request.param
    if request.param in {"archive", "served"}:
        outcome = export(path, node.url, **{"party-id": party})
        with (
            serving(outcome.archive)
            if request.param == "served"
            else contextlib.nullcontext(path) as source
        ):
            yield source
        return
    if request.param == "loaded":
        bounds = {"start": from_microseconds(FIRST), "end": from_microseconds(LATER)}
        with ba.Client(node.url) as client:
            table = ba.load_balance_changes(client, **bounds, party_ids=[party])
    else:
        table = held.read()
        table = table[table["party_id"] == party]
    ba.write_parquet(table, path.with_suffix(".parquet"))
    yield path.with_suffix(".parquet")


def test_one_party_is_not_the_same_as_all_and_confirms_nothing_of_all(
    held, of_one_party, second, tmp_path
):
    assert not ba.diff(held.path, of_one_party).is_same
    assert not ba.diff(of_one_party, held.path).is_same
    other = export(tmp_path / "other", second.url)  # of another origin
    outcome = ba.confirm(other.path, of_one_party)
    assert not other.spans("confirmed")
    # Rows that a caller took out may be a difference: the frame doesn't say that it lacks any.
    assert outcome.rows.empty or "selected" in str(of_one_party)


# 4. Confirmed by itself


@contextlib.contextmanager
def itself(kind, held, node, folder):
    """Give the archive's own source, or what was made of the archive, as another source."""
    if kind == "copy":
        shutil.copytree(held.path, folder / "copy")
        yield folder / "copy"
    elif kind == "file":
        ba.write_parquet(held.read(), folder / "x.parquet")
        yield folder / "x.parquet"
    elif kind == "served":
        with serving(held.archive) as url:
            yield url
    elif kind == "second after a dead address":
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
            with ba.Client([dead, node.url]) as client:
                yield client
    else:
        yield node.url.replace("http://127.0.0.1", kind)


ITSELF = ["http://127.0.0.1", "http://localhost", "HTTP://127.0.0.1", "copy", "file", "served"]


def test_nothing_is_confirmed_by_its_own_source_and_all_by_a_second_node(
    held, node, second, tmp_path
):
    for kind in (*ITSELF, "second after a dead address"):
        with itself(kind, held, node, tmp_path) as other:
            ba.confirm(held.path, other)
        assert not held.spans("confirmed"), kind
    ba.confirm(held.path, second.url)
    assert not lacking(held.spans("confirmed"), FIRST, LAST)


# 5. Disputes


def test_a_dispute_takes_confirmed_away_at_its_moment(held, second):
    ba.confirm(held.path, second.url)
    second.replace(changed(MIDDLE, balance=int(MIDDLE.balance) + 1))
    assert len(ba.confirm(held.path, second.url).rows) == 1
    assert not holds(held.spans("confirmed"), time_of(MIDDLE))


def test_rows_that_an_unproven_stretch_lacks_are_no_dispute(tmp_path, second):
    with LoopbackNode(since(time_of(MIDDLE))) as forgetful:
        held = export(tmp_path / "a", forgetful.url, code=3)
    assert ba.confirm(held.path, second.url).rows.empty
    assert not list(held.path.glob("_disputes/*"))
    assert not lacking(held.spans("confirmed"), time_of(MIDDLE) + 1, LAST)


# 6. The same, though not compared


@pytest.mark.parametrize("order", [1, -1])
def test_a_node_that_forgets_is_not_the_same_as_one_that_remembers(node, order):
    with LoopbackNode(since(time_of(MIDDLE))) as forgetful:
        sides = [node.url, forgetful.url][::order]
        assert not ba.diff(*sides).is_same
        assert run_command("diff", *sides)[0] != 0


@pytest.mark.parametrize("kind", ["archive", "file", "segments"])
def test_two_that_share_no_time_are_not_the_same_and_end_with_3(node, tmp_path, kind):
    middle = moment_text(time_of(MIDDLE))
    early = export(tmp_path / "early", node.url, until=middle)
    late = export(tmp_path / "late", node.url, since=middle)
    other = early.path
    if kind == "file":
        other = tmp_path / "early.parquet"
        ba.write_parquet(early.read(), other)
    elif kind == "segments":
        other = tmp_path / "segments"
        write_segments(other, until(time_of(MIDDLE) - 1))
    assert run_command("diff", late.path, other)[0] == 3
    assert not ba.diff(other, late.path).is_same
    ba.confirm(late.path, other)
    assert not late.spans("confirmed")


def test_verifying_against_a_node_without_rows_compares_nothing_and_ends_with_3(held):
    with LoopbackNode(block_timestamp=LAST * 1000) as empty:
        assert run_command("verify", held.path, "--against", empty.url)[0] == 3


# 7. Several addresses, and requests


@pytest.mark.parametrize("order", [1, -1])
def test_one_of_two_addresses_may_lag_behind_an_archive_and_their_order_decides_nothing(
    node, tmp_path, order
):
    with LoopbackNode(until(time_of(MIDDLE))) as behind:
        urls = [behind.url, node.url][::order]
        held = export(tmp_path / "a", node.url, until=moment_text(TIMES[-5]))
        for _ in range(2):
            export(held.path, *urls)
    assert not lacking(held.complete(), FIRST, LAST + 1)
    assert balances_of(held.read()) == balances(ROWS)


@pytest.mark.parametrize("order", [1, -1])
def test_gaps_are_filled_by_whichever_address_remembers(node, tmp_path, order):
    with LoopbackNode(since(time_of(MIDDLE))) as forgetful:
        held = export(tmp_path / "a", forgetful.url, code=3)
        export(held.path, *[forgetful.url, node.url][::order], "--fill-gaps")
    assert not lacking(held.complete(), FIRST, LAST + 1)
    assert balances_of(held.read()) == balances(ROWS)


@pytest.mark.parametrize("headers", [True, False])
def test_a_node_that_lags_behind_an_archive_is_not_of_another_network(held, headers):
    with LoopbackNode(until(time_of(MIDDLE)), block_headers=headers) as behind:
        ended, said = run_command("export", held.path, behind.url, "--until", moment_text(LATER))
    assert ended == 3
    assert said
    assert_true(held)


@pytest.mark.parametrize("slower", [0, 1])
def test_two_healthy_addresses_of_a_chain_at_rest_end_with_0(node, second, tmp_path, slower):
    (node, second)[slower].latency = 0.02
    held = export(tmp_path / "a", node.url, second.url)
    assert not lacking(held.complete(), FIRST, LAST + 1)
    for asked in (node, second):
        assert sum(request.path == LIMITS for request in asked.requests) <= 2


def test_filling_gaps_that_no_node_can_fill_ends_with_3(tmp_path):
    with LoopbackNode(since(time_of(MIDDLE))) as forgetful:
        held = export(tmp_path / "a", forgetful.url, code=3)
        complete = held.complete()
        ended, _ = run_command("export", held.path, forgetful.url, "--fill-gaps")
    assert ended == 3
    assert held.complete() == complete


def test_a_loop_of_exports_sends_no_more_requests_than_windows_plus_four_a_run(node, tmp_path):
    export(tmp_path / "a", node.url, until=moment_text(TIMES[16]))
    for moment in (TIMES[20], TIMES[25], LATER):
        node.requests.clear()
        export(tmp_path / "a", node.url, until=moment_text(moment), workers="1")
        bounds = [
            tuple(request.get(f"dateRange.{name}Timestamp") for name in ("start", "end"))
            for request in node.requests
            if request.get("pagination.first", "1") != "1"
        ]
        assert len(node.requests) <= len({*bounds}) + 4


# 8. Provenance


def test_a_row_is_explained_by_the_height_at_which_it_was_asked_for(node, tmp_path):
    node.block_height = 100
    held = export(tmp_path / "a", node.url, until=moment_text(time_of(MIDDLE) + 1))
    asked_at = held.archive.coverage()["asked_at"].max()
    node.block_height = 999
    export(held.path, node.url)
    old = next(row for row in ROWS if row.account == MIDDLE.account)
    outcome = held.archive.explain(old.account, at=from_microseconds(time_of(old)))
    assert outcome.heights[0] == 100
    assert outcome.asked[0] <= asked_at
