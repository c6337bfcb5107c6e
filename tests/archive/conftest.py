"""Archives of three months, and S3 on loopback."""

import functools
import threading
import time

import pytest
import requests
from botocore.loaders import JSONFileLoader
from werkzeug.http import http_date, parse_date
from werkzeug.serving import make_server

from tests.archive.months import ROW_GROUP, filled, torn_apart


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a function that makes an archive of three months."""

    def made(name, make, *given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("balance_analysis.archive.datafile.ROW_GROUP", ROW_GROUP)
            return make(tmp_path_factory.mktemp("made") / name, *given)

    return made


@pytest.fixture(scope="session")
def months(made):
    """An archive with a file a month; not to be changed."""
    return made("months", filled, "month")


@pytest.fixture(scope="session")
def days(made):
    """The same, with a file a day."""
    return made("days", filled, "day")


@pytest.fixture(scope="session")
def torn(made):
    """An archive with an awkward name, a gap in March and an unproven beginning of April."""
    return made("it's [a] *.folder", torn_apart)


class Front:
    """S3 that handles one request at a time, as a store must, and that a test can change."""

    def __init__(self, s3):
        self.s3 = s3
        self.turn = threading.Lock()
        self.reset()

    def reset(self):
        self.refuse = lambda environ: None
        self.forget = ()
        self.lose = 0
        self.clock = 0
        self.aged = 0
        self.writes = []

    def __call__(self, environ, start):
        with self.turn:
            self.now = time.time() + self.clock
            return [b"".join(self.answer(environ, start))]

    def answer(self, environ, start):
        if environ["REQUEST_METHOD"] == "PUT":
            self.writes.append(environ["PATH_INFO"])
        refused = self.refuse(environ)
        if refused:
            start(f"{refused} Refused", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>"]
        for name in self.forget:
            environ.pop(name, None)
        return self.s3(environ, functools.partial(self.begin, environ, start))

    def begin(self, environ, start, status, headers, *rest):
        if self.lose and environ["REQUEST_METHOD"] == "PUT":
            self.lose -= 1
            return start("500 Lost", [("Content-Type", "text/plain")])
        known = dict(headers)
        if "last-modified" in known:
            age = self.aged or time.time() - parse_date(known["last-modified"]).timestamp()
            known["last-modified"] = http_date(self.now - age)
        return start(status, list(known.items()), *rest)


@pytest.fixture(scope="session", autouse=True)
def _descriptions_read_once():
    """Cache the description of S3, whose reading takes most of a client's start."""
    load = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: load(path))
        yield


@pytest.fixture(scope="session")
def serving():
    from moto.moto_server import werkzeug_app as moto  # noqa: PLC0415 - long to import

    front = Front(moto.DomainDispatcherApplication(moto.create_backend_app))

    class Handler(moto.MotoRequestHandler):
        def date_time_string(self, timestamp=None):
            return http_date(front.now)

    server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield front, f"127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def front(serving, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    serving[0].reset()
    yield serving[0]
    serving[0].reset()


@pytest.fixture
def address(front, serving, request):
    """An address for an archive, in the test's own bucket."""
    bucket = request.node.name.replace("_", "-").split("[")[0][-60:].strip("-")
    requests.put(f"http://{serving[1]}/{bucket}", timeout=20).raise_for_status()
    return f"s3://{bucket}/a?endpoint_override={serving[1]}&scheme=http&region=us-east-1"
