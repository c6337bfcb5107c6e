"""A whole archive, and the node that it is of."""

from __future__ import annotations

import shutil

import pytest

from tests.archive.exporting import (
    END,
    START,
    node_of,
    run_export,
)
from tests.proof.damages import (
    ROWS,
)


@pytest.fixture(autouse=True)
def _no_waits(without_waits):
    """Wait for no next block of a chain that rests."""


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as serving:
        yield serving


@pytest.fixture(scope="module")
def undisturbed(node, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "archive"
    run_export(node, folder, start=START, end=END)
    return folder


@pytest.fixture
def folder(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "archive")
    return tmp_path / "archive"
