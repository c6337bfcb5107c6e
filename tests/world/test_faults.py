"""What no property covers of who confirms an archive, and of exports from several addresses.

Histories with gaps, rows set aside, other accounts and other origins are compared tick by tick in
`tests/proof`, and nodes that forget or lag are drawn in `tests/fill`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket

import pytest

import balance_analysis as ba
from tests.loopback import LIMITS, LoopbackNode
from tests.moments import moment_text
from tests.serving import serving
from tests.world.model import (
    HOUR,
    Held,
    balances,
    balances_of,
    grown,
    lacking,
    run_command,
    time_of,
)

pytestmark = pytest.mark.usefixtures("without_waits")
ROWS = grown(random.Random(8), [], 32)
TIMES = sorted({time_of(row) for row in ROWS})
FIRST, LAST = TIMES[0], TIMES[-1]
LATER = LAST + 30 * 24 * HOUR
SINCE_MIDDLE = [row for row in ROWS if time_of(row) >= time_of(ROWS[len(ROWS) // 2])]


def export(folder, *urls, code=0, **options):
    """Export from the first row on; return the model of the archive."""
    options = {"since": moment_text(FIRST), "until": moment_text(LATER), **options}
    options["partition"] = "month"
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    ended, said = run_command("export", folder, *urls, *[x for x in given if x is not True])
    assert code == ended, said
    return Held(folder, {})


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


# Confirmed by itself


@contextlib.contextmanager
def another(kind, held, node, folder):
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
        with another(kind, held, node, tmp_path) as other:
            ba.confirm(held.path, other)
        assert not held.spans("confirmed"), kind
    ba.confirm(held.path, second.url)
    assert not lacking(held.spans("confirmed"), FIRST, LAST)


# Several addresses, and requests


@pytest.mark.parametrize("slower", [0, 1])
def test_two_healthy_addresses_of_a_chain_at_rest_end_with_0(node, second, tmp_path, slower):
    (node, second)[slower].latency = 0.02
    held = export(tmp_path / "a", node.url, second.url)
    assert not lacking(held.complete(), FIRST, LAST + 1)
    for asked in (node, second):
        assert sum(request.path == LIMITS for request in asked.requests) <= 2


@pytest.mark.parametrize("order", [1, -1])
def test_gaps_that_no_node_can_fill_end_with_3_until_whichever_address_remembers_fills_them(
    node, tmp_path, order
):
    with LoopbackNode(SINCE_MIDDLE) as forgetful:
        held = export(tmp_path / "a", forgetful.url, code=3)
        complete = held.complete()
        export(held.path, forgetful.url, code=3, **{"fill-gaps": True})
        assert held.complete() == complete
        export(held.path, *[forgetful.url, node.url][::order], **{"fill-gaps": True})
    assert not lacking(held.complete(), FIRST, LAST + 1)
    assert balances_of(held.read()) == balances(ROWS)


def test_who_fills_gaps_learns_of_those_behind_the_end_too(node, tmp_path):
    early, late = (moment_text(TIMES[place]) for place in (10, 20))
    export(tmp_path / "a", node.url, since=late)
    export(tmp_path / "a", node.url, until=early)
    export(tmp_path / "a", node.url, until=early)
    export(tmp_path / "a", node.url, until=early, code=3, **{"fill-gaps": True})


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
