"""How the service speaks HTTP: its errors, who may read it, its description, and its time."""

import gzip
import threading

import pytest
import requests

from tests.service.archives import Stretch, write_archive
from tests.service.rows import BASE, HOUR, block_of
from tests.serving import CHANGES, LIMITS, Answer, answering, application, serving

BROWSER = {"origin": "https://example.org"}
ASKING = {"access-control-request-method": "GET"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("guarded") / "archive", block_of(120))


@pytest.fixture(scope="module")
def service(archive):
    with answering(archive) as service:
        yield service


@pytest.fixture(scope="module")
def url(archive):
    with serving(archive) as url:
        yield url


# The form of answers


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", [CHANGES, "/health"])
def test_other_methods_are_refused_with_the_supported_ones(service, method, path):
    answer = service.get(path=path, method=method)
    assert answer.error[:2] == (405, 12)
    assert {*answer.headers["allow"].split(", ")} == {"GET", "HEAD"}


def test_a_head_request_gets_the_headers_of_a_get_and_no_body(url):
    get, head = requests.get(url + CHANGES, timeout=30), requests.head(url + CHANGES, timeout=30)
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


@pytest.mark.parametrize("path", ["/nope", f"{CHANGES}/", "/docs", "/../etc", "/\0", "/ä"])
def test_an_unknown_address_is_not_found(service, path):
    assert service.get(path=path).error[:2] == (404, 5)


def test_as_many_ids_as_our_client_sends_are_answered(url):
    query = "&".join(f"filter.partyIds={row.party_id}" for row in block_of(90))
    page = requests.get(f"{url}{CHANGES}?{query}", timeout=30).json()["balances"]
    assert len(page["edges"]) == 90


def test_answers_are_compressed_only_for_clients_that_accept_it(service):
    plain = service.get(accept_encoding="identity")
    packed = service.get(accept_encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.body == gzip.decompress(packed.body)


def test_the_page_loads_nothing_from_elsewhere(service):
    answer = service.get(path="/")
    assert b"<html" in answer.body
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_health_counts_gaps_and_unproven_stretches(tmp_path):
    parts = [(0, 1, True), (1, 2, False), (3, 4, True)]
    stretches = [Stretch(BASE + a * HOUR, BASE + b * HOUR, proven) for a, b, proven in parts]
    with answering(write_archive(tmp_path / "a", [], stretches=stretches)) as service:
        health = service.get(path="/health").json()
    assert health.pop("age_seconds") > 0
    assert health == {
        "status": "ok",
        "coverage_start": "2023-05-01T00:00:00+00:00",
        "coverage_end": "2023-05-01T04:00:00+00:00",
        "missing": 1,
        "unproven": 1,
        "rows": 0,
    }


# Browsers

OWN = ["localhost", "127.0.0.1:1", "LOCALHOST:80", "[::1]:8080", "a.localhost"]
OTHER = ["example.org", "example.org:80", "localhost.example.org", "192.0.2.1", "0.0.0.0", ""]
OTHER += ["[::2]", "[::1", "127.0.0.1@example.org", "localhost:80:80", "::1", "user:localhost"]
PATHS = [CHANGES, LIMITS, "/", "/openapi.json", "/health", "/explore/about", "/nope"]


@pytest.mark.parametrize("host", [*OWN, *OTHER])
def test_on_loopback_every_loopback_host_is_answered_and_others_refused(service, host):
    """Else a page whose name is made to lead here, by DNS rebinding, would read the archive."""
    answer = service.get(host=host)
    status = 200 if host in OWN else 400
    assert (answer.status, b"edges" in answer.body) == (status, host in OWN)


@pytest.mark.parametrize("name", ["LOCALHOST", "a.localhost", "::1"])
def test_a_service_under_any_loopback_name_refuses_other_hosts(archive, name):
    with answering(archive, host=name) as service:
        answers = [service.get(host=host).status for host in ("localhost", "example.org")]
    assert answers == [200, 400]


@pytest.mark.parametrize("path", PATHS)
def test_on_loopback_no_other_sites_page_reads_anything(service, path):
    assert service.get(path=path, host="example.org").status == 400
    answers = [service.get(path=path, **BROWSER)]
    answers += [service.get(path=path, method="OPTIONS", **BROWSER, **ASKING)]
    assert not [name for each in answers for name in each.headers if name.startswith("access-")]


def test_an_allowed_origin_reads_on_loopback_and_its_host_is_answered(archive):
    allowed = ["https://example.org", "http://other.example:8080"]
    with answering(archive, allow_origins=allowed) as service:
        for origin in allowed:
            answer = service.get(origin=origin, host=origin.partition("//")[2])
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == origin
        stranger = service.get(origin="https://evil.example")
        assert service.get(host="evil.example").status == 400
    assert (stranger.status, "access-control-allow-origin" in stranger.headers) == (200, False)


@pytest.mark.parametrize("how", [{"allow_origins": ["*"]}, {"host": "0.0.0.0"}])
def test_a_star_and_addresses_beyond_loopback_allow_any_origin_and_host(archive, how):
    with answering(archive, **how) as service:
        for path in (CHANGES, LIMITS, "/nope", "/health"):
            answer = service.get(path=path, host="example.org", **BROWSER)
            asked = service.get(path=path, method="OPTIONS", **BROWSER, **ASKING)
            assert answer.status != 400
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "X-Incomplete" in answer.headers["access-control-expose-headers"]
            assert asked.headers["access-control-allow-methods"] == "GET, HEAD"


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "HTTPS://", "", "**"])
def test_a_malformed_origin_is_refused(archive, origin):
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


def asking(service, count):
    """Questions for views that wait."""
    return [service.ask({"text": n}, "/explore/accounts") for n in range(count)]


def test_pages_and_the_state_are_answered_while_views_wait(archive, monkeypatch):
    slow = Slow(monkeypatch)
    with answering(archive) as service:

        async def meanwhile():
            for path in (CHANGES, "/explore/version", "/health", "/") * 3:
                assert (await service.ask(path=path)).status == 200
            assert slow.begun.acquire(timeout=30)
            is_alone = not slow.begun.acquire(timeout=0.05)  # one view at once
            slow.go.set()
            return is_alone

        *answers, is_alone = service.run(*asking(service, 6), meanwhile())
    assert ([each.status for each in answers], is_alone) == ([200] * 6, True)


def test_waiting_counts_as_time_and_late_work_ends(archive, monkeypatch):
    slow = Slow(monkeypatch)
    with answering(archive, timeout=0.3) as service:
        answers = service.run(*asking(service, 3))
        assert slow.ended.acquire(timeout=10)
        slow.go.set()
        assert service.get(path="/explore/accounts").status == 200
    assert [each.error[:2] for each in answers] == [(504, 4)] * 3


def test_more_requests_than_may_wait_are_refused(archive, monkeypatch):
    monkeypatch.setattr("balance_analysis.service.app.MOST_WAITING", 1)
    slow = Slow(monkeypatch)
    with answering(archive) as service:

        async def let_go(asked):
            answer = await asked
            slow.go.set()
            return answer

        one, other, late = asking(service, 3)
        answers = service.run(one, other, let_go(late))
    assert [each.status for each in answers] == [200, 200, 503]
    assert int(answers[2].headers["retry-after"]) > 0


def test_an_unexpected_error_reveals_no_internals(archive, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr("balance_analysis.explorer.views.answer", fail)
    with serving(archive) as url:
        response = requests.get(f"{url}/explore/accounts", timeout=30)
        assert requests.get(url + CHANGES, timeout=30).status_code == 200
    assert Answer(response.status_code, {}, response.content).error[:2] == (500, 13)
    assert "secret" not in response.text
    assert "a secret" in caplog.text


# The description


@pytest.fixture(scope="module")
def described(sample):
    """The service over the sample, and its description."""
    with answering(sample) as service:
        yield service, service.get(path="/openapi.json").json()


def test_the_description_is_openapi_and_has_every_parameter_of_the_interface(described):
    from openapi_spec_validator import validate  # noqa: PLC0415 - long to import

    document = described[1]
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
    ("path", "items", "kind"),
    [
        (CHANGES, {"pagination.first": 50}, "ListBalanceChangesResponse"),
        (LIMITS, {}, "GetNetworkLimitsResponse"),
        ("/explore/about", {}, "View"),
        (CHANGES, {"pagination.first": 0}, "Error"),
        ("/explore/series", {"account": "x"}, "Error"),
        ("/nope", {}, "Error"),
    ],
)
def test_answers_have_the_described_form(described, path, items, kind):
    from openapi_schema_validator import OAS31Validator  # noqa: PLC0415 - long to import

    service, document = described
    schema = {"$ref": f"#/components/schemas/{kind}", "components": document["components"]}
    OAS31Validator(schema).validate(service.get(items, path).json())
