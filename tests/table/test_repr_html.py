"""Values in a notebook: complete, escaped, in the notebook's own colours."""

import datetime as dt
import re
import sys
import warnings
from dataclasses import fields, replace
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.load import arguments
from balance_analysis.proof.verify import Problem
from tests.archive.exporting import END, ROWS, START, run_export
from tests.loopback import LoopbackNode, random_history

EVIL = "<script>alert('1')</script>\"&amp;"


class Reading:
    """The cells and titles of tables, as a browser reads them; fails on any other element."""

    def __init__(self, html):
        root = ET.fromstring(f"<div>{html}</div>")
        _, *elements = root.iter()
        tags = {"table", "caption", "tbody", "tr", "th", "td", "p", "b"}
        assert {each.tag for each in elements} <= tags
        assert {name for each in elements for name in each.attrib} <= {"style"}
        self.rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
        self.titles = [each.text for each in elements if each.tag in {"caption", "b"}]


def facts_of(value):
    html = value._repr_html_()
    assert not re.search(r"color|background|<script|class=|id=", html)
    return {row[0]: row[1] for row in Reading(html).rows if len(row) == 2}


texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1)


@pytest.fixture(scope="module")
def limits():
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        return ba.load_network_limits(client)


def report_of(*messages, url="http://node"):
    """Return a report whose findings have these messages."""
    findings = [ba.Finding("page_size", 5, "note", message) for message in messages]
    return ba.NodeReport(url, dt.datetime(2023, 4, 1, tzinfo=dt.UTC), 7, tuple(findings))


@given(url=texts, some=st.lists(texts))
def test_any_text_in_facts_or_rows_comes_back_as_it_is(limits, url, some):
    extra = {f"text{place}": text for place, text in enumerate(some)}
    facts = facts_of(replace(limits, extra=extra))
    assert {name: facts[name] for name in extra} == extra
    read = Reading(report_of(*some, url=url)._repr_html_())
    assert read.titles == [f"{url}, 2023-04-01T00:00Z, 7 requests"]
    assert read.rows[1:] == [["note", "page size", text] for text in some]


def test_limits_show_every_field_and_a_node_s_others_as_text_beside_their_own(limits):
    moment = pd.Timestamp("2023-04-01T02:00:00.123456789", tz="Europe/Berlin")
    odd = replace(
        limits,
        propose_market_enabled_from=moment,
        propose_asset_enabled_from=None,
        block_height=None,
        extra={EVIL: EVIL, "source": "another"},
    )
    rows = Reading(odd._repr_html_()).rows
    assert [row[1] for row in rows if row[0] == "source"] == [limits.source, "another"]
    expected = {
        "can_propose_market": "yes",
        "propose_market_enabled_from": "2023-04-01T00:00:00.123456789Z",
        "propose_asset_enabled_from": "not set",
        "block_height": "unknown",
        EVIL: EVIL,
    }
    assert expected.items() <= dict(rows).items()
    assert len(rows) == len(fields(odd)) + 1


def page_of(rows, **options):
    with LoopbackNode(rows) as node, ba.Client(node.url) as client:
        return next(iter(ba.iter_pages(client, start="2023-01-01", end="2024-01-01", **options)))


@pytest.mark.parametrize("sent", [7, 50])
def test_a_page_shows_its_cursors_and_its_first_and_last_rows(sent):
    page = page_of(random_history(3, rows=60, accounts=9), first=sent)
    page = replace(page, table=page.table.assign(party_id=EVIL))
    facts, mark, rows = page._repr_html_().partition("</table>")
    read = Reading(facts + mark)
    assert read.titles == [f"Page of a node: {sent} balance changes, in its order"]
    assert ["next page", "yes"] in read.rows
    assert ["end cursor", page.end_cursor] in read.rows
    header, *cells = Reading(re.sub(r' class=".*?"| border="0"|</?thead>', "", rows)).rows
    assert header == [*page.table]
    cells = [row for row in cells if {*row} != {"..."}]
    assert {row[2] for row in cells} == {EVIL}
    held = page.table["balance"].astype(str).tolist()
    assert [row[5] for row in cells] == (held if sent == 7 else [*held[:5], *held[-5:]])


def test_a_run_shows_what_it_did(node, tmp_path):
    run = run_export(node, tmp_path / "a", start=START, end=END)
    facts = facts_of(run)
    assert facts["new rows"] == str(len(ROWS))
    assert facts["asked for"] == "2023-04-28T20:00Z to 2023-05-03T08:00Z"
    assert facts["conflicts"] == facts["bad rows"] == "0"
    assert facts["node"] == run.source
    assert facts["run"] == run.id
    assert facts["block height"] == str(run.block_height)
    assert Reading(run._repr_html_()).titles == ["An export"]
    unbegun = facts_of(ba.Run())
    assert unbegun["asked for"] == unbegun["committed"] == "nothing"
    assert unbegun["block height"] == "unknown"


def test_a_status_shows_the_same_in_html_as_in_text_and_so_does_its_archive(whole, tmp_path):
    status = ba.Archive(whole).status()
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in str(status).splitlines())
    assert facts_of(status) == lines
    assert facts_of(ba.Archive(whole))["complete"] == lines["complete"]
    assert "is not an archive" in facts_of(ba.Archive(tmp_path / "none"))["state"]


def test_a_report_is_one_line_or_shows_each_problem_and_what_to_do(whole):
    report = ba.Archive(whole).verify()
    read = Reading(report._repr_html_())
    assert (read.titles, read.rows) == ([str(report)], [])
    problem = Problem("stranger", EVIL, "a/b", "move it")
    report = replace(report, problems=(problem,), not_compared=("[a, b): why",))
    read = Reading(report._repr_html_())
    assert read.rows[1:] == [["a/b", EVIL, "move it"], ["not compared", "[a, b): why", ""]]
    assert "1 problem" in read.titles[0]


@pytest.mark.parametrize("is_notebook", [True, False])
def test_progress_in_a_notebook_is_not_written_to_stderr(is_notebook, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    if not is_notebook:
        monkeypatch.delitem(sys.modules, "ipykernel")
    with warnings.catch_warnings(record=True) as warned, arguments.reporting(True) as report:
        report(0.5, 7)
    said = capsys.readouterr()
    assert "%|" in (said.out if is_notebook else said.err)
    assert not (said.err if is_notebook else said.out)
    assert not warned
