"""`doctor` prints what `diagnose_node` finds, and tells a node that can't be reached."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.running import run
from tests.loopback import Fault, LoopbackNode, random_history

ROWS = random_history(7, rows=60, accounts=20, largest_block=9)


def test_the_report_is_a_table_on_stdout():
    with LoopbackNode(ROWS) as node:
        result = run("doctor", node.url)
    assert re.search(r"^WARNING +cursors +Following its cursors", result.stdout, re.MULTILINE)
    assert node.url in result.stdout.splitlines()[0]
    assert result.stderr == ""


def test_the_report_is_json_on_stdout():
    with LoopbackNode(ROWS) as node:
        content = json.loads(run("doctor", node.url, "--format", "json").stdout)
    assert content["node"] == node.url
    assert content["requests"] == len(node.requests)
    assert {finding["name"] for finding in content["findings"]} >= {"cursors", "page_size"}


def test_a_node_that_misbehaves_is_a_diagnosis_not_a_failure():
    with LoopbackNode(ROWS, limits=None, timestamp_unit="ms", ignores=("filter",)) as node:
        assert "WARNING" in run("doctor", node.url).stdout


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_refused_connection_is_an_unavailable_source(form):
    with LoopbackNode() as node:
        url = node.url
    result = run("doctor", url, "--format", form, code=4)
    assert result.stdout == ""
    assert re.fullmatch(r"balance-analysis: [^\n]*refused[^\n]*\n", result.stderr)


def test_a_web_page_is_an_unavailable_source():
    with LoopbackNode(ROWS, faults=lambda _i, _r: Fault.html(200)) as node:
        assert "web page" in run("doctor", node.url, code=4).stderr


def test_an_address_that_is_none_is_usage():
    assert "https://node.example.org" in run("doctor", "node.example.org", code=2).stderr
