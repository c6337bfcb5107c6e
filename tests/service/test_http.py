"""How the service speaks HTTP: its errors, who may read it, its description, and its time."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
import requests
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from tests.service.archives import Stretch, write_archive
from tests.service.conftest import read_error
from tests.service.rows import BASE, HOUR, block_of
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
    return requests.request(method, url + path, timeout=30, **options)


def refused(response):
    """Status and code of an answer that must be an error."""
    return response.status_code, read_error(response.json())[0]


def spoken(url, sent, timeout=20):
    """What comes back for bytes that no HTTP library would send, until the service closes."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=timeout) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


# The form of answers


def test_fields_stand_in_the_order_of_a_node(url):
    balances = ask(url, params={"pagination.first": 1}).json()["balances"]
    (edge,) = balances["edges"]
    assert [*balances, *edge] == ["edges", "pageInfo", "node", "cursor"]
    names = ["timestamp", "balance", "partyId", "assetId", "marketId", "accountType"]
    assert [*edge["node"]] == names


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", [CHANGES, "/health"])
def test_other_methods_are_refused_with_those_that_are_supported(url, method, path):
    response = ask(url, path, method)
    assert refused(response) == (405, 12)
    assert {*response.headers["Allow"].split(", ")} == {"GET", "HEAD"}


def test_a_head_has_the_headers_of_a_get_and_no_body(url):
    get, head = ask(url), ask(url, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


@pytest.mark.parametrize("path", ["/nope", f"{CHANGES}/", "/docs", "/..%2fetc", "/%00", "/%c3%a4"])
def test_an_unknown_address_is_not_found(url, path):
    assert refused(ask(url, path)) == (404, 5)


def test_as_many_ids_as_our_client_sends_are_answered(url):
    query = "&".join(f"filter.partyIds={row.party_id}" for row in block_of(90))
    assert len(ask(url, f"{CHANGES}?{query}").json()["balances"]["edges"]) == 90


@pytest.mark.parametrize("value", ["' OR '1'='1", "../../etc/passwd", "\0", "\r\nX-In: 1", "😀"])
def test_an_asset_s_id_has_no_other_meaning(url, value):
    response = ask(url, params={"filter.assetId": value})
    assert response.json()["balances"]["edges"] == []
    assert "X-In" not in response.headers


@pytest.mark.parametrize(
    "sent",
    [
        b"this is not HTTP\r\n\r\n",
        b"GET /\xe4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /?" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_or_cut_off_and_the_service_goes_on(url, sent):
    try:
        answer = spoken(url, sent)
    except ConnectionError:
        answer = b""
    assert answer[:10] in (b"", b"HTTP/1.1 4")
    assert ask(url).status_code == 200


def test_answers_are_compressed_only_for_who_takes_that(url):
    plain = ask(url, headers={"Accept-Encoding": "identity"})
    packed = ask(url, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.content == packed.content


def test_the_page_needs_nothing_from_elsewhere(url):
    response = ask(url, "/")
    assert "<html" in response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_health_counts_gaps_and_unproven_stretches(tmp_path):
    parts = [(0, 1, True), (1, 2, False), (3, 4, True)]
    stretches = [Stretch(BASE + a * HOUR, BASE + b * HOUR, proven) for a, b, proven in parts]
    with serving(write_archive(tmp_path / "a", [], stretches=stretches)) as url:
        health = ask(url, "/health").json()
    assert (health["status"], health["missing"], health["unproven"], health["rows"]) == (
        "ok",
        1,
        1,
        0,
    )
    assert health["coverage_start"] == "2023-05-01T00:00:00+00:00"
    assert health["coverage_end"] == "2023-05-01T04:00:00+00:00"


# Browsers

OWN = ["localhost", "127.0.0.1:1", "LOCALHOST:80", "[::1]:8080", "a.localhost"]
OTHER = ["example.org", "example.org:80", "localhost.example.org", "192.0.2.1", "0.0.0.0", ""]
OTHER += ["[::2]", "[::1", "127.0.0.1@example.org", "localhost:80:80", "::1", "user:localhost"]
PATHS = [CHANGES, LIMITS, "/", "/openapi.json", "/health", "/explore/about", "/nope"]


@pytest.mark.parametrize("host", OWN)
def test_on_loopback_every_name_of_loopback_is_answered(url, host):
    assert ask(url, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", OTHER)
def test_on_loopback_another_name_is_refused(url, host):
    """Else a page whose name is made to lead here, by DNS rebinding, would read the archive."""
    response = ask(url, headers={"Host": host})
    assert (response.status_code, "edges" in response.text) == (400, False)


@pytest.mark.parametrize("path", PATHS)
def test_on_loopback_no_page_from_elsewhere_reads_anything(url, path):
    assert ask(url, path, headers={"Host": "example.org"}).status_code == 400
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
        assert ask(url, headers={"Host": "evil.example"}).status_code == 400
    assert (stranger.status_code, "Access-Control-Allow-Origin" in stranger.headers) == (200, False)


@pytest.mark.parametrize("how", [{"allow_origins": ["*"]}, {"host": "0.0.0.0"}])
@pytest.mark.parametrize("path", [CHANGES, LIMITS, "/nope", "/health"])
def test_a_star_and_every_address_but_loopback_allow_any_origin_and_host(archive, how, path):
    with serving(archive, **how) as url:
        response = ask(url, path, headers={**BROWSER, "Host": "example.org"})
        asked = ask(url, path, "OPTIONS", headers={**BROWSER, **ASKING})
    assert response.status_code != 400
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Incomplete" in response.headers["Access-Control-Expose-Headers"]
    assert asked.headers["Access-Control-Allow-Methods"] == "GET, HEAD"


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "HTTPS://", "", "**"])
def test_what_is_no_origin_is_refused(archive, origin):
    with pytest.raises(ValueError, match="is not an origin"):
        application(archive, allow_origins=[origin])


# Time


class Slow:
    """Makes the explorer's views wait."""

    def __init__(self, monkeypatch):
        self.begun, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.go = threading.Event()
        monkeypatch.setattr("balance_analysis.explorer.views.answer", self._answer)

    def _answer(self, view, request):
        if view == "version":
            return {"version": ""}
        self.begun.release()
        try:
            while not self.go.wait(0.005):
                request.check()
        finally:
            self.ended.release()
        return {}


def asking(url, count):
    """Ask for views that wait; return the threads, and what they will have been answered."""
    answers = []

    def one(number):
        answers.append(ask(url, "/explore/accounts", params={"text": str(number)}))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_pages_and_the_state_are_answered_while_views_wait(archive, monkeypatch):
    slow = Slow(monkeypatch)
    with serving(archive) as url:
        threads, answers = asking(url, 6)
        assert slow.begun.acquire(timeout=30)
        began = time.monotonic()
        for path in (CHANGES, "/explore/version", "/health", "/") * 3:
            assert ask(url, path).status_code == 200
        assert time.monotonic() - began < 10
        assert not slow.begun.acquire(timeout=0.05)  # one view at once
        slow.go.set()
        for thread in threads:
            thread.join()
    assert [each.status_code for each in answers] == [200] * 6


def test_waiting_counts_as_time_and_late_work_ends(archive, monkeypatch):
    slow = Slow(monkeypatch)
    with serving(archive, timeout=0.3) as url:
        threads, answers = asking(url, 3)
        for thread in threads:
            thread.join()
        assert slow.ended.acquire(timeout=10)
        slow.go.set()
        assert ask(url, "/explore/accounts").status_code == 200
    assert [refused(each) for each in answers] == [(504, 4)] * 3


def test_more_questions_than_may_wait_are_refused(archive, monkeypatch):
    monkeypatch.setattr("balance_analysis.service.app.MOST_WAITING", 1)
    slow = Slow(monkeypatch)
    with serving(archive) as url:
        threads, answers = asking(url, 3)
        while not answers:
            time.sleep(0.01)
        slow.go.set()
        for thread in threads:
            thread.join()
    assert [each.status_code for each in answers] == [503, 200, 200]


def test_an_unexpected_error_shows_nothing_of_the_inside(archive, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr("balance_analysis.explorer.views.answer", fail)
    with serving(archive) as url:
        response = ask(url, "/explore/accounts")
        assert ask(url).status_code == 200
    assert refused(response) == (500, 13)
    assert "secret" not in response.text
    assert "a secret" in caplog.text


# The description


@pytest.fixture(scope="module")
def document(url):
    return ask(url, "/openapi.json").json()


def test_the_description_is_openapi_and_has_every_parameter_of_the_interface(document):
    validate(document)
    parameters = document["paths"][CHANGES]["get"]["parameters"]
    assert {each["name"]: each["schema"]["type"] for each in parameters} == {
        "filter.assetId": "string",
        "filter.partyIds": "array",
        "filter.marketIds": "array",
        "filter.accountTypes": "array",
        "pagination.first": "integer",
        "pagination.after": "string",
        "pagination.last": "integer",
        "pagination.before": "string",
        "pagination.newestFirst": "boolean",
        # An int64 is text, since JavaScript's numbers would round it.
        "dateRange.startTimestamp": "string",
        "dateRange.endTimestamp": "string",
    }


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{CHANGES}?pagination.first=50", "ListBalanceChangesResponse"),
        (LIMITS, "GetNetworkLimitsResponse"),
        ("/explore/about", "View"),
        (f"{CHANGES}?pagination.first=0", "Error"),
        ("/explore/series?account=x", "Error"),
        ("/nope", "Error"),
    ],
)
def test_answers_have_the_described_form(sample, document, path, kind):
    schema = {"$ref": f"#/components/schemas/{kind}", "components": document["components"]}
    with serving(sample) as url:
        OAS31Validator(schema).validate(ask(url, path).json())
