"""Archives that commands read."""

from __future__ import annotations

import pytest

from tests.archive.exporting import DAY, END, START, node_of, run_export
from tests.cli.running import ROWS


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """An archive of all of the days."""
    folder = tmp_path_factory.mktemp("cli") / "whole"
    with node_of(ROWS) as node:
        run_export(node, folder, start=START, end=END)
    return folder


@pytest.fixture(scope="session")
def gapped(tmp_path_factory):
    """An archive of four days with a day's gap in it."""
    folder = tmp_path_factory.mktemp("cli") / "archive"
    with node_of(ROWS) as node:
        run_export(node, folder, start=START + 2 * DAY, end=END)
        run_export(node, folder, start=START, end=START + DAY)
    return folder
