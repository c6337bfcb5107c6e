"""An export that is watched: what a health check is told, and a node that stands still."""

from __future__ import annotations

import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.archive.exporting import node_of, spread_history
from tests.cli.running import run

ROWS = spread_history(7, rows=60, accounts=9)
SECRET = "3f1c-secret"


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr("balance_analysis.ingest.ping.SECONDS", 0.3)
    with node_of(ROWS) as node:
        yield node


class Health:
    """A health-check service: what it was told, and how it answers."""

    def __init__(self, status=200):
        told = self.told = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                told.append((self.path.removeprefix(f"/{SECRET}"), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_health_check_is_told_the_begin_and_the_end(node, tmp_path):
    with Health() as health:
        for _ in range(2):
            run("export", node.url, tmp_path / "a", "--ping-url", f"{health.url}/?a=b")
        assert health.told == [("/start?a=b", ""), ("/?a=b", "")] * 2
        run("export", node.url, tmp_path / "a", "--ping-url", health.url, "--dry-run")
        assert len(health.told) == 4


def test_a_health_check_is_told_why_a_run_failed_by_the_environment_too(node, tmp_path):
    with Health() as health:
        told = {"env": {"BALANCE_ANALYSIS_PING_URL": health.url}}
        run("export", node.url, tmp_path / "a", "--max-age", "1h", code=3, **told)
        (start, _), (fail, said) = health.told
        assert (start, fail) == ("/start", "/fail")
        assert said.startswith(f"exit code 3: {tmp_path / 'a'} is complete only up to 2023-05-03T")
        other = ("--asset-id", ROWS[0].asset_id)
        said = run("export", node.url, tmp_path / "a", *other, code=2, **told).stderr
        assert health.told[-1] == ("/fail", said.replace("balance-analysis", "exit code 2").strip())


def test_a_health_check_is_told_that_a_run_was_interrupted(tmp_path):
    def interrupted(*_):
        signal.raise_signal(signal.SIGTERM)

    with Health() as health, node_of(ROWS, faults=interrupted) as node:
        run("export", node.url, tmp_path / "a", "--ping-url", health.url, code=130)
    assert health.told == [("/start", ""), ("/fail", "exit code 130: interrupted")]


@pytest.mark.parametrize("way", ["answers 500", "hangs", "refuses"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_health_check_that_can_not_be_told_changes_nothing(way, code, node, tmp_path):
    options = ("--max-age", "1h") if code else ()
    with Health(500) as health, socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if way == "refuses":
            silent.close()
        url = health.url if way == "answers 500" else f"http://127.0.0.1:{port}/{SECRET}"
        found = run("export", node.url, tmp_path / "a", "--ping-url", url, *options, code=code)
    assert "new rows from" in found.stderr
    assert found.stderr.count("can't be told") == 1  # a warning is told once a minute
    assert SECRET not in found.output
    assert len(health.told) == (4 if way == "answers 500" else 0)


def test_the_address_of_a_health_check_is_a_secret():
    given = {"BALANCE_ANALYSIS_PING_URL": f"https://me@health.example.org/{SECRET}"}
    assert "https://health.example.org/…" in run("config", "show", env=given).stdout
    assert SECRET not in run("config", "show", "--format", "json", env=given).stdout
    said = run("export", "http://127.0.0.1:1", "a", "--ping-url", SECRET, code=2).stderr
    assert "option --ping-url: it must begin with https:// or http://" in said
    assert SECRET not in said


def test_a_node_that_stands_still_is_noticed_though_it_answers(node, tmp_path):
    asked = ("export", node.url, tmp_path / "a", "--max-age", "2h")
    run(*asked, code=3)
    again = run(*asked, code=3).stderr
    assert "Nothing new" in again
    status = run("status", tmp_path / "a", "-q", "--max-age", "2h", code=3)
    assert again.endswith(f" s: {tmp_path / 'a'}\n{status.stderr}")
    run(*asked[:-1], "5000w")
