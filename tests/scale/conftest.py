"""An archive of many slices, and its table."""

import pytest

from tests.analysis.tables import HOUR, START, many_rows, table_of
from tests.scale.archives import write_archive


@pytest.fixture(scope="package")
def archive(tmp_path_factory):
    rows = [(*row[:4], START + (row[4] - START) * HOUR // 4, row[5]) for row in many_rows(600)]
    return write_archive(tmp_path_factory.mktemp("scale") / "archive", table_of(rows))


@pytest.fixture(scope="package")
def table(archive):
    return archive.read()
