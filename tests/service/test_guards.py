"""What the service takes from the network, and what it doesn't."""

from __future__ import annotations

import logging
import re
import threading
import time
from urllib.parse import quote

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import Response

from balance_analysis.service import guards
from balance_analysis.service.app import AT_ONCE
from balance_analysis.service.changes import Changes
from balance_analysis.service.guards import LONGEST_URL, RateLimit, RateLimiter
from tests.service.archives import write_archive
from tests.service.conftest import read_error, spoken
from tests.service.rows import block_of
from tests.serving import CHANGES, LIMITS, application, serving

BROWSER = {"Origin": "https://example.org"}
ASKING = {"Access-Control-Request-Method": "GET"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("guarded") / "archive", block_of(120))


@pytest.fixture(scope="module")
def url(archive):
    with serving(archive) as url:
        yield url


def ask(url, path=CHANGES, method="GET", **options):
    return requests.request(method, url + path, timeout=20, **options)


def refused(response):
    """Status and code of an answer that must be an error."""
    return response.status_code, read_error(response.json())[0]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


# The form of answers


def test_fields_stand_in_the_order_of_a_node(url):
    balances = ask(url, params={"pagination.first": 1}).json()["balances"]
    (edge,) = balances["edges"]
    assert [*balances, *edge] == ["edges", "pageInfo", "node", "cursor"]
    assert [*edge["node"]] == [
        *("timestamp", "balance", "partyId", "assetId", "marketId", "accountType")
    ]


@pytest.mark.parametrize("query", ["pretty", "pretty=", "pretty=true", "x=1&pretty=1"])
@pytest.mark.parametrize("path", [CHANGES, f"{CHANGES}?pagination.first=0", "/health", "/nothing"])
def test_an_answer_is_indented_if_asked_for(url, path, query):
    plain, pretty = ask(url, path), ask(url, f"{path}{'&' if '?' in path else '?'}{query}")
    content, told = plain.json(), pretty.json()
    if path == "/health":
        assert told.pop("age_seconds") >= content.pop("age_seconds")
    assert (pretty.status_code, told) == (plain.status_code, content)
    assert plain.text.count("\n") == 0
    assert pretty.text.startswith('{\n  "')


@pytest.mark.parametrize("query", ["x=pretty", "Pretty", "prettyprint"])
def test_another_word_indents_nothing(url, query):
    assert ask(url, f"{CHANGES}?{query}").content == ask(url).content


def test_a_page_that_is_no_json_stays_as_it_is(url):
    assert ask(url, "/docs?pretty").content == ask(url, "/docs").content


# Methods and addresses


@pytest.mark.parametrize("method", ["POST", "DELETE", "TRACE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", [CHANGES, "/health"])
def test_other_methods_are_refused_with_those_that_are_supported(url, method, path):
    response = ask(url, path, method, data=b"{}" if method == "POST" else None)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"
    assert read_error(response.json()) == (12, f"{method} is not supported: use GET")


def test_a_head_has_the_headers_of_a_get_and_no_body(url):
    get, head = ask(url), ask(url, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


@pytest.mark.parametrize(
    "path", ["/nope", f"{CHANGES}/", "/api", "//docs", "/..%2fetc", "/%00", "/%c3%a4"]
)
def test_an_unknown_address_is_not_found(url, path):
    assert refused(ask(url, path)) == (404, 5)


def test_a_url_of_the_longest_length_is_read_and_a_longer_one_refused(url):
    room = LONGEST_URL - len(f"{CHANGES}?other=")
    assert ask(url, f"{CHANGES}?other={'x' * room}").status_code == 200
    assert refused(ask(url, f"{CHANGES}?other={'x' * (room + 1)}")) == (414, 3)


def test_as_many_ids_as_our_client_sends_are_answered(url):
    query = "&".join(f"filter.partyIds={row.party_id}" for row in block_of(90))
    assert len(ask(url, f"{CHANGES}?{query}").json()["balances"]["edges"]) == 90


@pytest.mark.parametrize("query", ["", "&&&", "=&=", "?", "a", ";", "%26", "#x", "%zz=%FF%FE"])
def test_a_query_without_parameters_restricts_nothing(url, query):
    _, body = spoken(url, f"GET {CHANGES}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert len(body["balances"]["edges"]) == 120


@given(text=st.text(max_size=40) | st.binary(max_size=40).map(lambda b: b.decode("latin-1")))
def test_no_query_makes_the_service_fail(url, text):
    raw = quote(text, safe="=&.?/;:@!$'()*+,[]")
    response = ask(url, f"{CHANGES}?{raw}")
    assert response.status_code == 200 or refused(response) == (400, 3)


@pytest.mark.parametrize(
    "value", ["' OR '1'='1", "../../etc/passwd", "\0", "\r\nX-In: 1", "😀", "\\"]
)
def test_an_asset_s_id_has_no_other_meaning(url, value):
    response = ask(url, params={"filter.assetId": value})
    assert response.json()["balances"]["edges"] == []
    assert "X-In" not in response.headers


@pytest.mark.parametrize(
    "sent",
    [
        b"this is not HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xe4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /?" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_or_cut_off_and_the_service_goes_on(url, sent):
    try:
        head, _ = spoken(url, sent)
    except ConnectionError:
        head = b"HTTP/1.1 400 "
    assert head.startswith(b"HTTP/1.1 400 ")
    assert ask(url).status_code == 200


# Browsers


OWN = ["localhost", "127.0.0.1:1", "LOCALHOST.:80", "127.9.9.9", "[::1]:8080", "a.localhost"]
OTHER = ["example.org", "example.org:80", "localhost.example.org", "192.0.2.1", "0.0.0.0", ""]
OTHER += ["[::2]", "[::1", "127.0.0.1@example.org", "localhost:80:80", "::1", "user:localhost"]
PATHS = [CHANGES, LIMITS, "/", "/docs", "/metrics", "/health", "/explore/about", "/nope"]


@pytest.mark.parametrize("host", OWN)
def test_on_loopback_every_name_of_loopback_is_answered(url, host):
    assert ask(url, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", OTHER)
def test_on_loopback_another_name_is_refused(url, host):
    """Else a page whose name is made to lead here, by DNS rebinding, would read the archive."""
    response = ask(url, headers={"Host": host})
    assert refused(response) == (403, 7)
    assert "--allow-origin" in response.text


@pytest.mark.parametrize("path", PATHS)
def test_on_loopback_no_page_from_elsewhere_reads_anything(url, path):
    assert refused(ask(url, path, headers={"Host": "example.org"})) == (403, 7)
    answers = [ask(url, path, headers=BROWSER)]
    answers += [ask(url, path, "OPTIONS", headers={**BROWSER, **ASKING})]
    assert not [name for each in answers for name in each.headers if name.startswith("Access-")]


def test_an_allowed_origin_reads_on_loopback_and_its_host_is_answered(archive):
    allowed = ["https://example.org", "http://other.example:8080"]
    with serving(archive, allow_origins=allowed) as url:
        for origin in allowed:
            response = ask(url, headers={"Origin": origin, "Host": origin.partition("//")[2]})
            assert response.status_code == 200
            assert response.headers["Access-Control-Allow-Origin"] == origin
        stranger = ask(url, headers={"Origin": "https://evil.example"})
        assert refused(ask(url, headers={"Host": "evil.example"})) == (403, 7)
    assert (stranger.status_code, "Access-Control-Allow-Origin" in stranger.headers) == (200, False)


def test_a_star_allows_every_origin_and_host(archive):
    with serving(archive, allow_origins=["*"]) as url:
        response = ask(url, headers={**BROWSER, "Host": "example.org"})
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (200, "*")


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "HTTPS://", "", "**"])
def test_what_is_no_origin_is_refused(archive, origin):
    with pytest.raises(ValueError, match="is not an origin"):
        application(archive, allow_origins=[origin])


@pytest.fixture(scope="module")
def public(archive):
    """Where it is served as if for all, so that no test listens on more than loopback."""
    with serving(archive, host="0.0.0.0") as url:
        yield url


@pytest.mark.parametrize("path", [CHANGES, LIMITS, "/nope", "/health"])
def test_in_public_any_origin_may_read_every_answer_under_any_name(public, path):
    response = ask(public, path, headers={**BROWSER, "Host": "example.org"})
    assert response.status_code != 403
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Block-Height" in response.headers["Access-Control-Expose-Headers"]


def test_a_browser_that_asks_first_is_told_what_it_may(public):
    response = ask(public, method="OPTIONS", headers={**BROWSER, **ASKING})
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Methods"] == "GET, HEAD"


def test_answers_are_compressed_only_for_who_takes_that(url):
    plain = ask(url, headers={"Accept-Encoding": "identity"})
    packed = ask(url, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.content == packed.content


# Rates


def test_a_burst_is_let_through_then_refused_until_some_come_back():
    clock = Clock()
    limiter = RateLimiter(RateLimit(per_second=2, burst=3), clock=clock)
    assert [limiter.take("192.0.2.1") for _ in range(5)] == [2, 1, 0, None, None]
    clock.now += 0.5
    assert [limiter.take("192.0.2.1") for _ in range(2)] == [0, None]
    clock.now += 1000
    assert [limiter.take("192.0.2.1") for _ in range(4)] == [2, 1, 0, None]


@given(
    steps=st.lists(st.floats(0, 5), max_size=60),
    rate=st.floats(0.5, 20),
    burst=st.integers(1, 30),
)
def test_no_more_is_let_through_than_burst_and_rate_allow(steps, rate, burst):
    clock = Clock()
    limiter = RateLimiter(RateLimit(per_second=rate, burst=burst), clock=clock)
    began, admitted = clock.now, 0
    for step in steps:
        clock.now += step
        admitted += limiter.take("192.0.2.1") is not None
        assert admitted <= burst + (clock.now - began) * rate + 1e-6


@given(rate=st.floats(0.5, 20), burst=st.integers(1, 30))
def test_who_keeps_to_the_rate_is_never_refused(rate, burst):
    clock = Clock()
    limiter = RateLimiter(RateLimit(per_second=rate, burst=burst), clock=clock)
    for _ in range(3 * burst):
        assert limiter.take("192.0.2.1") is not None
        clock.now += 1.001 / rate


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [("192.0.2.1", "192.0.2.2", False), ("unknown", "unknown", True)],
)
def test_each_address_has_a_rate_of_its_own(one, other, is_same):
    limiter = RateLimiter(RateLimit(burst=1), clock=Clock())
    assert limiter.take(one) == 0
    assert (limiter.take(other) is None) is is_same


def test_only_so_many_addresses_are_remembered(monkeypatch):
    monkeypatch.setattr(guards, "MOST_ADDRESSES", 10)
    limiter = RateLimiter(RateLimit(burst=1), clock=Clock())
    for number in range(100):
        limiter.take(f"192.0.2.{number}")
    assert [limiter.take(f"192.0.2.{number}") for number in (99, 90, 89)] == [None, None, 0]


@pytest.mark.parametrize("limit", [{"per_second": 0}, {"burst": 0}, {"per_second": -1}])
def test_a_limit_that_lets_nothing_through_is_refused(limit):
    with pytest.raises(ValueError, match="let some requests through"):
        RateLimit(**limit)


def test_the_rate_is_told_as_nodes_tell_it_and_goes_by_a_proxy_s_client(archive):
    limit = RateLimit(per_second=0.001, burst=2)
    with serving(archive, rate_limit=limit) as url:
        addresses = ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"]
        found = [ask(url, LIMITS, headers={"X-Forwarded-For": each}) for each in addresses]
    assert [refused(each) for each in found] == [(404, 5), (404, 5), (429, 8), (404, 5)]
    assert [each.headers["Ratelimit-Remaining"] for each in found] == ["1", "0", "0", "1"]
    assert {each.headers["Ratelimit-Limit"] for each in found} == {"2"}
    assert not [each for each in found if "Retry-After" in each.headers]


# Many at once


def test_few_pages_are_looked_for_at_once_and_who_watches_is_answered(archive, monkeypatch):
    done, running, most = threading.Event(), [], []

    def answer(_self, _items, _check):
        running.append(True)
        most.append(len(running))
        done.wait(20)
        running.pop()
        return Response(b"{}")

    monkeypatch.setattr(Changes, "answer", answer)
    with serving(archive) as url:
        asking = [threading.Thread(target=ask, args=(url,)) for _ in range(2 * AT_ONCE)]
        for thread in asking:
            thread.start()
        while len(most) < AT_ONCE:
            time.sleep(0.01)
        status = ask(url, "/health").status_code
        done.set()
        for thread in asking:
            thread.join(20)
    assert (status, max(most), len(most)) == (200, AT_ONCE, 2 * AT_ONCE)


def test_more_requests_under_way_than_there_is_room_for_are_refused(monkeypatch, archive):
    monkeypatch.setattr(guards, "MOST_AT_ONCE", 0)
    with serving(archive) as url:
        assert refused(ask(url)) == (503, 14)


# What it tells

PREFIX = "balance_analysis_service_"


def figures(url):
    """Every figure by its name and labels."""
    families = text_string_to_metric_families(ask(url, "/metrics").text)
    return {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_metrics_count_requests_and_rows(archive):
    with serving(archive) as url:
        for size in (7, 5000, 0):
            ask(url, f"{CHANGES}?pagination.first={size}")
        for path in ("/one", "/two"):
            ask(url, path)
        found = figures(url)
        kind = ask(url, "/metrics").headers["Content-Type"]
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert found["requests_total", CHANGES, "200"] == 2
    assert found["requests_total", CHANGES, "400"] == 1
    assert found["requests_total", "other", "404"] == 2
    assert found["rows_total",] == 127
    assert found["in_flight",] == 1
    assert found["request_seconds_count", CHANGES] == 3
    assert found["request_seconds_bucket", "+Inf", CHANGES] == 3
    assert {name for name, *_ in found} == {
        *("requests_total", "rows_total", "in_flight"),
        *(f"request_seconds_{name}" for name in ("bucket", "sum", "count")),
        *("archive_readable", "archive_rows"),
        *("coverage_end_timestamp_seconds", "coverage_age_seconds"),
    }


def test_metrics_and_health_tell_of_the_archive(archive, url):
    end = archive.status().complete[-1][1]
    found, health = figures(url), ask(url, "/health").json()
    assert found["archive_rows",] == health["rows"] == 120
    assert found["coverage_end_timestamp_seconds",] == end.timestamp()
    assert health["coverage_end"] == end.isoformat()
    assert (health["status"], health["gaps"]) == ("ok", 0)


def test_a_service_whose_archive_is_gone_says_so_and_recovers(tmp_path):
    archive = write_archive(tmp_path / "archive", block_of(3))
    with serving(archive) as url:
        (tmp_path / "archive").rename(tmp_path / "away")
        gone, gone_figures = ask(url, "/health"), figures(url)
        (tmp_path / "away").rename(tmp_path / "archive")
        back = ask(url, "/health")
    assert refused(gone) == (503, 14)
    assert gone_figures["archive_readable",] == 0
    assert (back.status_code, back.json()["rows"]) == (200, 3)


def test_an_unexpected_error_tells_the_client_nothing(archive, monkeypatch, caplog):
    def fail(_self, _items, _check):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(Changes, "answer", fail)
    with serving(archive, allow_origins=["*"]) as url:
        response = ask(url, headers=BROWSER)
    assert response.status_code == 500
    assert read_error(response.json()) == (13, "unexpected error: the log of the service has it")
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "a secret of the inside" in str(caplog.records[0].exc_info)


def test_requests_are_logged_one_line_each_and_no_client_writes_its_own(url, caplog):
    caplog.set_level(logging.INFO, logger="balance_analysis")
    ask(url, "/one%0Atwo?x=%1B[31m" + "y" * 300)
    ask(url)  # the first one's line is written by then
    assert re.fullmatch(
        r"127\.0\.0\.1 404 \d+ ms: GET /one%0Atwo\?x=%1B\S+\.\.\.", caplog.messages[0]
    )
    assert len(caplog.messages[0]) < 260
    assert all(message.isprintable() for message in caplog.messages)
