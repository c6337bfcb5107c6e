"""Archives that commands read."""

import pytest

from tests.archive.exporting import DAY, END, START, run_export


@pytest.fixture(scope="session")
def gapped(node_of_days, tmp_path_factory):
    """An archive of four days with a day's gap in it."""
    folder = tmp_path_factory.mktemp("cli") / "archive"
    run_export(node_of_days, folder, start=START + 2 * DAY, end=END)
    run_export(node_of_days, folder, start=START, end=START + DAY)
    return folder
