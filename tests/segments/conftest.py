"""The history that most tests share, as segments and as an archive of them."""

import pytest

import balance_analysis as ba
from tests.segments.writer import ROWS, write_segments


@pytest.fixture(scope="session")
def segments(tmp_path_factory):
    """A folder of segments; not to be changed."""
    folder = tmp_path_factory.mktemp("segments")
    write_segments(folder, ROWS)
    return folder


@pytest.fixture(scope="session")
def imported(segments, tmp_path_factory):
    """An archive of them; not to be changed."""
    folder = tmp_path_factory.mktemp("imported") / "archive"
    ba.import_segments(folder, segments)
    return folder
