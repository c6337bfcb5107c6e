import contextlib
import shutil

import pytest

from tests.service.archives import write_archive
from tests.service.rows import block_of
from tests.serving import answering


class Node:
    """The service over an archive that a test may replace."""

    def __init__(self, path, service):
        self.path, self.get = path, service.get
        self.page, self.pages = service.page, service.pages

    def hold(self, rows=(), **held):
        """Replace the served archive by another one, as a user would."""
        part, old = self.path.with_suffix(".part"), self.path.with_suffix(".old")
        write_archive(part, rows=rows, **held)
        self.path.rename(old)
        part.rename(self.path)
        shutil.rmtree(old)
        return self

    def refusal(self, items=()):
        """The text of a refusal of wrong parameters."""
        status, code, text = self.get(items).error
        assert (status, code) == (400, 3), text
        return text


@contextlib.contextmanager
def holding(path, rows=()):
    """Yield a service over an archive that can be replaced."""
    with answering(write_archive(path, rows)) as service:
        yield Node(path, service)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with holding(tmp_path_factory.mktemp("held") / "archive") as node:
        yield node


@pytest.fixture(scope="session")
def block(tmp_path_factory):
    """A service over one block of 30 rows, which stays."""
    with holding(tmp_path_factory.mktemp("block") / "archive", block_of(30)) as node:
        yield node
