"""Views keep nobody from pages, wait for no longer than allowed, and end where nobody waits."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests

from balance_analysis.explorer.live import Explorer
from balance_analysis.service import app as application
from balance_analysis.service.app import MOST_VIEWS, VIEWS_AT_ONCE
from balance_analysis.service.changes import Changes
from tests.service.archives import write_archive
from tests.service.conftest import read_error
from tests.service.rows import block_of
from tests.serving import CHANGES, serving

LONG = 60
"""Seconds in which what is waited for has long happened."""

SOON = 0.2
"""Seconds that a question may take in a test of what happens then."""


ENCODE = Explorer.encode


class Work:
    """What is done for views, until it is let go; `checked` where it notices that nobody waits."""

    def __init__(self, *, checks=True):
        self.begun, self.ended, self.most, self._checks = [], threading.Semaphore(0), 0, checks
        self._running, self._begins, self._go = set(), threading.Semaphore(0), threading.Event()

    def encode(self, explorer, view, query, *, check):
        if view == "version":
            return ENCODE(explorer, view, query, check=check)
        self.begun.append(query.text)
        self._running.add(query.text)
        self.most = max(self.most, len(self._running))
        self._begins.release()
        try:
            while not self._go.wait(0.01):
                if self._checks:
                    check()
        except BaseException:
            self.ended.release()
            raise
        finally:
            self._running.discard(query.text)
        return b"{}"

    def wait_for(self, count):
        for _ in range(count):
            assert self._begins.acquire(timeout=LONG)

    def let_go(self):
        self._go.set()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("asked") / "archive", block_of(9))


@contextlib.contextmanager
def working(archive, monkeypatch, *, checks=True, **how):
    """Yield a service, what is done for its views, and what asks them without waiting."""
    work = Work(checks=checks)
    monkeypatch.setattr(Explorer, "encode", lambda *asked, check: work.encode(*asked, check=check))
    with serving(archive, **how) as url, ThreadPoolExecutor(2 * MOST_VIEWS) as clients:
        try:
            yield url, work, lambda name: clients.submit(ask, url, name)
        finally:
            work.let_go()


def ask(url, name):
    return requests.get(f"{url}/explore/accounts", params={"text": name}, timeout=LONG)


def refused(response):
    return response.status_code, read_error(response.json())


def test_pages_are_answered_while_views_take_all_their_turns(archive, monkeypatch):
    with working(archive, monkeypatch) as (url, work, submit):
        asked = [submit(str(number)) for number in range(3 * VIEWS_AT_ONCE)]
        work.wait_for(VIEWS_AT_ONCE)
        pages = [requests.get(url + CHANGES, timeout=LONG).status_code for _ in range(10)]
        assert (pages, len(work.begun)) == ([200] * 10, VIEWS_AT_ONCE)
        work.let_go()
        assert {each.result().status_code for each in asked} == {200}
    assert (work.most, len(work.begun)) == (VIEWS_AT_ONCE, len(asked))


def test_more_views_than_may_wait_are_refused(archive, monkeypatch):
    monkeypatch.setattr(application, "MOST_VIEWS", VIEWS_AT_ONCE + 1)
    with working(archive, monkeypatch) as (url, work, submit):
        asked = [submit(str(number)) for number in range(VIEWS_AT_ONCE)]
        work.wait_for(VIEWS_AT_ONCE)
        # Of two more one waits, and one is refused, whichever comes first.
        more = [submit("one"), submit("other")]
        while not (over := [each for each in more if each.done()]):
            pass
        code, (number, text) = refused(over[0].result())
        assert (code, number) == (503, 14)
        assert "ask again in a moment" in text
        work.let_go()
        rest = [*asked, *(each for each in more if each is not over[0])]
        assert {each.result().status_code for each in rest} == {200}
        assert ask(url, "later").status_code == 200


@pytest.mark.parametrize("checks", [True, False])
def test_waiting_counts_as_time_and_what_is_too_late_is_not_begun(archive, monkeypatch, checks):
    """Also where work that doesn't check, as one long call, keeps the turns."""
    with working(archive, monkeypatch, checks=checks, timeout=SOON) as (url, work, submit):
        asked = [submit(f"under way {number}") for number in range(VIEWS_AT_ONCE)]
        work.wait_for(VIEWS_AT_ONCE)
        late = None if checks else ask(url, "late")
        assert {refused(each.result()) for each in asked} == {(504, (4, TOO_LONG))}
        if checks:
            for _ in asked:
                assert work.ended.acquire(timeout=LONG)
            return
        assert refused(late) == (504, (4, TOO_LONG))
        work.let_go()
        while ask(url, "after").status_code != 200:
            pass
    assert "late" not in work.begun


TOO_LONG = "the query took too long: ask for a shorter range or for fewer rows"


def test_a_page_takes_no_longer_than_allowed_either(archive, monkeypatch):
    ended = threading.Semaphore(0)

    def answer(_self, _items, check):
        try:
            while True:
                check()
        finally:
            ended.release()

    monkeypatch.setattr(Changes, "answer", answer)
    with serving(archive, timeout=SOON) as url:
        assert refused(requests.get(url + CHANGES, timeout=LONG)) == (504, (4, TOO_LONG))
        assert ended.acquire(timeout=LONG)


def test_a_view_whose_client_has_left_ends_or_is_not_begun(archive, monkeypatch):
    with working(archive, monkeypatch) as (url, work, submit), contextlib.ExitStack() as stack:
        under_way = [stack.enter_context(leaving(url, f"{at}")) for at in range(VIEWS_AT_ONCE)]
        work.wait_for(VIEWS_AT_ONCE)
        with leaving(url, "waits"):
            await_figure(url, "in_flight", VIEWS_AT_ONCE + 2)  # with who asks for the figures
        await_figure(url, LEFT, 1)
        for client in under_way:
            client.close()
        for _ in under_way:
            assert work.ended.acquire(timeout=LONG)
        asked = submit("stays")
        work.wait_for(1)
        work.let_go()
        assert asked.result().status_code == 200
    assert sorted(work.begun) == [*map(str, range(VIEWS_AT_ONCE)), "stays"]


LEFT = 'requests_total{path="/explore/accounts",status="499"}'


def leaving(url, name):
    """A client that asks for a view, and may leave."""
    parts = urlsplit(url)
    client = socket.create_connection((parts.hostname, parts.port))
    client.sendall(f"GET /explore/accounts?text={name} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    return client


HOST = "localhost"


def await_figure(url, name, value):
    line = f"balance_analysis_service_{name} {value:.1f}"
    while line not in requests.get(f"{url}/metrics", timeout=LONG).text.splitlines():
        pass


def test_the_state_is_told_while_views_take_all_turns(archive, monkeypatch):
    with working(archive, monkeypatch) as (url, work, submit):
        for number in range(VIEWS_AT_ONCE):
            submit(str(number))
        work.wait_for(VIEWS_AT_ONCE)
        assert "version" in requests.get(f"{url}/explore/version", timeout=LONG).json()
