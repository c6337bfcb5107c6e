"""`serve` tells where it listens, ends as it is told to, and says in one line what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import requests

import balance_analysis as ba
from balance_analysis.cli.archive import _rate_limit
from balance_analysis.service.guards import RateLimit
from balance_analysis.service.server import serve
from tests.cli.running import invoke
from tests.service.archives import write_archive
from tests.service.rows import block_of
from tests.serving import CHANGES

PATIENCE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "archive"
    write_archive(folder, block_of(5000))
    return str(folder)


class Served:
    """A `serve` that runs in a process of its own."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "balance_analysis", "serve", "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.line = self.process.stderr.readline()
        self.url = re.search(r"http://\S+(?=,)", self.line)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        """Exit code, and what else was written, after a signal."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out + err


def test_an_archive_is_served_until_a_signal(folder):
    with Served(folder) as served:
        assert served.line.startswith(f"Serving {folder} at http://127.0.0.1:")
        page = requests.get(served.url + CHANGES, timeout=10)
        assert len(page.json()["balances"]["edges"]) == 1000
        assert "Ratelimit-Limit" not in page.headers
        code, rest = served.end()
    assert (code, rest) == (0, "")


def test_the_sample_is_served_and_requests_are_told(tmp_path):
    with Served("--demo", "-v", TMPDIR=str(tmp_path)) as served:
        assert requests.get(f"{served.url}/health", timeout=10).json()["rows"] > 60_000
        code, rest = served.end()
    assert code == 0
    assert re.fullmatch(r"127\.0\.0\.1 200 \d+ ms: GET /health\n", rest)
    assert list(tmp_path.iterdir()) == []


def fails(*arguments, code=2):
    result = invoke(["serve", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    assert result.stdout == ""
    assert re.fullmatch(r"balance-analysis: [^\n]+\n", result.stderr)
    return result.stderr


def test_a_port_that_is_taken_is_told(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fails(folder, "--port", port)
    assert f"127.0.0.1, port {port} can't be listened on: Address already in use; choose" in said


def test_what_is_no_archive_is_told(tmp_path):
    assert "is no archive" in fails(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give an archive, or --demo"),
        (("x", "--demo"), "not both"),
        (("x", "--rate-limit", "0"), "--rate-limit"),
        (("x", "--rate-limit", "fast"), "--rate-limit"),
        (("x", "--timeout", "0s"), "--timeout"),
        (("--demo", "--allow-origin", "example.org"), "'example.org' is not an origin: give one"),
        (("x", "--timeout", "soon"), "not a duration"),
        (("--demo", "--host", "no-such-host.invalid"), "no-such-host.invalid"),
    ],
)
def test_wrong_options_are_told(arguments, said):
    assert said in fails(*arguments)


@pytest.mark.parametrize(
    ("wanted", "host", "limit"),
    [
        (None, "127.0.0.1", None),
        (None, "::1", None),
        (None, "localhost", None),
        (None, "0.0.0.0", RateLimit(20, 100)),
        (None, "::", RateLimit(20, 100)),
        (None, "example.org", RateLimit(20, 100)),
        ("off", "0.0.0.0", None),
        ("7", "127.0.0.1", RateLimit(7, 35)),
    ],
)
def test_the_rate_is_limited_where_others_can_come(wanted, host, limit):
    assert _rate_limit(wanted, host) == limit


@pytest.mark.parametrize(
    ("arguments", "names", "allowed"),
    [
        ([], {"localhost": 200, "a.example": 403}, None),
        (["--allow-origin", "https://b.example", "--allow-origin", "https://a.example"],
         {"localhost": 200, "a.example": 200, "c.example": 403}, "https://a.example"),
        (["--host", "localhost", "--allow-origin", "*"], {"c.example": 200}, "*"),
    ],
)  # fmt: skip
def test_who_may_read_is_told_by_options(folder, arguments, names, allowed):
    with Served(folder, *arguments) as served:
        origin = {"Origin": "https://a.example"}
        found = {
            name: requests.get(served.url + CHANGES, headers={**origin, "Host": name}, timeout=10)
            for name in names
        }
    assert {name: each.status_code for name, each in found.items()} == names
    shared = found[next(iter(names))].headers.get("Access-Control-Allow-Origin")
    assert shared == allowed


@pytest.mark.parametrize(("options", "port"), [([], 0), (["--port", "3100"], 3100)])
def test_exploring_serves_on_a_free_or_given_port_and_opens_the_browser_there(
    options, port, folder, monkeypatch
):
    asked, opened = [], []

    def serve_once(app, *, host, port, on_up):
        asked.append((host, port))
        on_up("http://127.0.0.1:1")

    monkeypatch.setattr("balance_analysis.service.server.serve_until_told", serve_once)
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = invoke(["explore", str(folder), *options])
    assert result.exit_code == 0, result.output
    assert result.stderr == f"Exploring {folder} at http://127.0.0.1:1; end with Ctrl-C\n"
    assert (asked, opened) == ([("127.0.0.1", port)], ["http://127.0.0.1:1"])


def test_the_page_to_explore_takes_own_names(folder, tmp_path, monkeypatch):
    names, found = tmp_path / "names.csv", []
    (party, *_) = ba.summarize_accounts(ba.Archive(folder))["party_id"]
    names.write_text(f"id,label\n{party},Alice & Co\n")

    def ask(app, **_):
        with serve(app) as url:
            answer = requests.get(f"{url}/explore/about", timeout=10)
        found.append(answer.json()["labels"].get(party))

    monkeypatch.setattr("balance_analysis.service.server.serve_until_told", ask)
    for options in ([], ["--labels", str(names)]):
        result = invoke(["explore", str(folder), *options])
        assert result.exit_code == 0, result.output
    assert found == [None, "Alice & Co"]
