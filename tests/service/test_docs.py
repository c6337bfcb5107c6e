"""The page at /docs is whole by itself, says all, and works in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import requests

from balance_analysis.service.openapi import describe, page
from tests.serving import CHANGES, serving


class Reading(HTMLParser):
    """The text, the ids, and everything that a browser might fetch or run."""

    def __init__(self):
        super().__init__()
        self.text, self.ids, self.links = "", [], []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in {"src", "href", "action", "srcset", "data"}:
                self.links.append(value)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def read():
    reading = Reading()
    reading.feed(page()[0])
    return reading


def test_the_page_asks_nobody_else(read):
    outside = [link for link in read.links if re.match(r"(\w+:|//)", link)]
    assert all(link.startswith("data:") for link in outside)


def test_every_link_inside_the_page_leads_somewhere(read):
    assert len(set(read.ids)) == len(read.ids)
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(read.ids)


def test_the_page_has_every_operation_parameter_error_and_form(read):
    document = describe()
    parameters = document["paths"][CHANGES]["get"]["parameters"]
    names = [*document["paths"], *(each["name"] for each in parameters)]
    names += [*document["components"]["responses"], *document["components"]["schemas"]]
    assert [name for name in names if name not in read.text] == []
    assert "`" not in read.text.partition('"use strict"')[0]


@pytest.fixture(scope="module")
def url(sample):
    with serving(sample) as url:
        yield url


def test_the_policy_allows_the_page_s_own_script_alone(url):
    policy = requests.get(f"{url}/docs", timeout=10).headers["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", rules["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", rules["style-src"])
    assert rules["connect-src"] == "'self'"


@pytest.fixture(params=[(1440, "light"), (375, "dark")], ids=["desk", "phone"])
def tab(request, chromium, url):
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab = context.new_page()
    tab.complaints = []
    tab.on("console", lambda message: tab.complaints.append(message.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.goto(f"{url}/docs")
    yield tab
    context.close()


def _press(tab, button):
    with tab.expect_response(lambda response: CHANGES in response.url) as answer:
        tab.click(f"#listBalanceChanges button:has-text('{button}')")
    tab.wait_for_selector("#listBalanceChanges .said b")
    return answer.value


def test_the_page_fits_its_window_and_nothing_complains(tab):
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints == []


def test_the_form_asks_and_pages(tab):
    tab.fill("[name='dateRange.startTimestamp']", "2023-04-02")
    first = _press(tab, "Send").json()["balances"]
    second = _press(tab, "Next").json()["balances"]
    back = _press(tab, "Previous").json()["balances"]
    assert second["edges"][0]["cursor"] not in {edge["cursor"] for edge in first["edges"]}
    assert back["edges"] == first["edges"]
    sent = tab.inner_text("#listBalanceChanges .sent")
    assert "dateRange.startTimestamp=1680393600000000000" in sent
    assert tab.complaints == []


def test_the_form_shows_what_is_wrong(tab):
    tab.fill("[name='pagination.first']", "0")
    assert _press(tab, "Send").status == 400
    tab.wait_for_function(
        "document.querySelector('#listBalanceChanges .body').textContent.includes('send 1 to 5000')"
    )
