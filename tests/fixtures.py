"""Profiles and fixtures that every test may use."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from balance_analysis import demo
from tests.archive.exporting import END, ROWS, START, node_of, run_export
from tests.loopback import read_ledger, read_recording
from tests.loopback.rows import Account, Row
from tests.serving import serving
from tests.waits import dont_wait, sleeping

RECORDING = Path(__file__).parents[2] / "shared" / "recorded" / "system_tests"

PROFILE = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", PROFILE, derandomize=True, database=None)
settings.register_profile("new", PROFILE, max_examples=200)
settings.register_profile("deep", PROFILE, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def recorded_rows() -> list[Row]:
    """The rows that a real node stored, ascending in the server's order."""
    return read_recording(_recorded("rows.csv"))


@pytest.fixture(scope="session")
def recorded_ledger() -> list[tuple[Account, int, int]]:
    """The net flow of each account in each block, recorded independently of the rows.

    An entry is the account, the block's time in microseconds, and the flow.
    """
    return read_ledger(_recorded("ledger.csv"))


@pytest.fixture(scope="session")
def sample():
    """An archive of the sample data, to read only."""
    with demo.sample_archive() as archive:
        yield archive


@pytest.fixture(scope="session")
def sample_node(sample):
    """The address of a node of the sample data."""
    with serving(sample) as url:
        yield url


@pytest.fixture(scope="session")
def node_of_days():
    """A node of some days' rows; not to be changed."""
    with node_of(ROWS) as running:
        yield running


@pytest.fixture(scope="session")
def node(node_of_days):
    """The same, which a module may replace by a node of its own."""
    return node_of_days


@pytest.fixture(scope="session")
def whole(node_of_days, tmp_path_factory):
    """An archive of all of the days; not to be changed."""
    made = tmp_path_factory.mktemp("whole") / "archive"
    run_export(node_of_days, made, start=START, end=END)
    return made


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(whole, tmp_path / "archive")


@pytest.fixture(scope="session", autouse=True)
def _without_waits():
    """Let clients not sleep between requests, unless a test says how they do."""
    with sleeping(dont_wait):
        yield


def _recorded(name: str) -> Path:
    path = RECORDING / name
    if not path.exists():
        pytest.skip(f"the public recording is not at {path}")
    return path
