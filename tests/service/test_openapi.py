"""The service keeps what its description promises, and the description is the interface's."""

from __future__ import annotations

import importlib
import json
import re

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import validate

from balance_analysis.explorer.wire import MOST_ACCOUNTS, NUMBERS, VIEWS
from balance_analysis.service.guards import EXPOSED, LONGEST_URL
from balance_analysis.service.openapi import VIEWS_AT, describe
from balance_analysis.service.parameters import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from tests.serving import CHANGES, LIMITS, serving

FORMS = {
    "filter.assetId": "string",
    "filter.partyIds": "array",
    "filter.marketIds": "array",
    "filter.accountTypes": "array",
    "pagination.first": "integer",
    "pagination.after": "string",
    "pagination.last": "integer",
    "pagination.before": "string",
    "pagination.newestFirst": "boolean",
    "dateRange.startTimestamp": "string",
    "dateRange.endTimestamp": "string",
}
"""The interface's parameters; an int64 is text, since JavaScript's numbers would round it."""

EXAMPLES = 6
"""Of requests by chance, for each operation."""


@pytest.fixture(scope="module")
def url(sample):
    with serving(sample) as url:
        yield url


@pytest.fixture(scope="module")
def cursors(url):
    page = requests.get(url + CHANGES, params={"pagination.first": 50}, timeout=10).json()
    return [edge["cursor"] for edge in page["balances"]["edges"]]


@pytest.fixture(scope="module")
def run(url, cursors):
    """What schemathesis found: it asks all that the description allows, and what it doesn't.

    It is imported here, since that takes long and other processes don't need it.
    """
    schemathesis = importlib.import_module("schemathesis")
    schemathesis.openapi.format("cursor", st.sampled_from(cursors))
    config = schemathesis.config.SchemathesisConfig(seed=6, color=False)
    schema = schemathesis.openapi.from_dict(describe(), config=config)
    schema.config.update(base_url=url, continue_on_failure=True, request_timeout=30)
    schema.config.generation.update(max_examples=EXAMPLES, deterministic=True, database="none")

    @schemathesis.hook
    def before_call(context, case, kwargs):
        # OpenAPI 3.1 has no words for two parameters of a query that go by each other.
        if case.meta.generation.mode.is_positive and "pagination.after" in case.query:
            case.query.pop("pagination.before", None)
        ends = [case.query[name] for name in ("start", "end") if name in case.query]
        if case.meta.generation.mode.is_positive and ends[1:] and int(ends[0]) >= int(ends[1]):
            case.query["end"] = int(ends[0]) + 1

    yield list(schemathesis.engine.from_schema(schema).execute())
    schemathesis.hooks.unregister(before_call)


def _scenarios(run):
    return [event for event in run if type(event).__name__ == "ScenarioFinished"]


def test_schemathesis_finds_no_violation(run):
    failures = [
        f"{check.name}: {check.failure_info.failure}"
        for scenario in _scenarios(run)
        for checks in scenario.recorder.checks.values()
        for check in checks
        if check.status.name == "FAILURE"
    ]
    assert failures == []
    assert [str(event.value) for event in run if type(event).__name__ == "NonFatalError"] == []


def test_schemathesis_had_answers_of_every_kind(run):
    seen = {
        (interaction.response.status_code, "pagination.after" in interaction.request.uri)
        for scenario in _scenarios(run)
        for interaction in scenario.recorder.interactions.values()
        if interaction.response is not None
    }
    assert {(200, True), (200, False), (400, True), (405, False)} <= seen


def test_the_description_is_openapi():
    validate(describe())
    assert describe()["security"] == []  # no operation asks who it is


def test_every_parameter_of_the_interface_is_described_and_no_other():
    parameters = describe()["paths"][CHANGES]["get"]["parameters"]
    assert {each["name"]: each["schema"]["type"] for each in parameters} == FORMS


def test_the_numbers_that_are_told_are_those_that_hold():
    document = describe()
    of_views = [path for path in document["paths"] if path.startswith(VIEWS_AT)]
    text = json.dumps({**document, "paths": {CHANGES: document["paths"][CHANGES]}})
    assert [path.rpartition("/")[2] for path in of_views] == [*VIEWS]
    assert {*re.findall(r'"maximum": (\d+)|"maxItems": (\d+)', text)} == {
        (str(MAX_PAGE_SIZE), ""),
        ("", str(MAX_PAGE_SIZE)),
    }
    assert f"{DEFAULT_PAGE_SIZE:,} if neither this" in text
    assert {*re.findall(r"([0-9,]+) bytes", text)} == {f"{LONGEST_URL:,}"}
    assert {*EXPOSED} == {*describe()["components"]["headers"]}


def test_the_numbers_of_views_are_those_that_hold():
    operations = [path["get"] for at, path in describe()["paths"].items() if VIEWS_AT in at]
    told = {each["name"]: each["schema"] for one in operations for each in one["parameters"]}
    assert told["account"]["maxItems"] == MOST_ACCOUNTS
    bounds = {name: (x["minimum"], x["maximum"]) for name, x in told.items() if "minimum" in x}
    assert bounds == NUMBERS


def test_every_error_answer_has_the_interface_s_body():
    document = describe()
    body = {"$ref": "#/components/schemas/Error"}
    contents = [each["content"] for each in document["components"]["responses"].values()]
    assert contents == [{"application/json": {"schema": body}}] * len(contents)
    for path in (CHANGES, LIMITS):
        others = {
            s: r for s, r in document["paths"][path]["get"]["responses"].items() if s != "200"
        }
        assert others == {s: {"$ref": f"#/components/responses/{s}"} for s in others}


@pytest.mark.parametrize("path", [CHANGES, LIMITS])
def test_what_any_address_may_answer_is_described_at_each(path):
    responses = describe()["paths"][path]["get"]["responses"]
    assert {"200", "405", "414", "429", "500", "503"} <= set(responses)


def _moment(name):
    parameters = describe()["paths"][CHANGES]["get"]["parameters"]
    return next(each["schema"]["pattern"] for each in parameters if each["name"] == name)


@given(st.from_regex(_moment("dateRange.startTimestamp"), fullmatch=True))
def test_a_moment_of_the_described_form_has_64_bits(text):
    assert -(2**63) <= int(text) < 2**63


@pytest.mark.parametrize(
    "text", ["1680307200000000000", "0", "-1", f"{2**63 // 10**18 - 1}" + "9" * 18]
)
def test_moments_are_of_the_described_form(text):
    assert re.search(_moment("dateRange.endTimestamp"), text)


def test_the_served_description_is_this_one(url):
    assert requests.get(f"{url}/openapi.json", timeout=10).json() == describe()


def test_a_description_is_its_caller_s_to_change():
    describe()["paths"].clear()
    assert CHANGES in describe()["paths"]
