from __future__ import annotations

import pytest

from tests.benchmarks.contestants import (
    DLT,
    FLOOR,
    LOOP,
    TABLE,
    fetch_command,
    fetching,
    loaded,
    script_command,
)
from tests.benchmarks.processes import run
from tests.benchmarks.report import WHOLE


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("name", [FLOOR, TABLE, fetching(1), fetching(4), LOOP, DLT])
def test_every_way_of_loading_brings_all_rows(name, node, tmp_path, report, request):
    file = tmp_path / "changes.parquet"
    match name:
        case _ if name == DLT:
            command = script_command(name, node, tmp_path, request.getfixturevalue("dlt_python"))
        case _ if name.startswith("fetch"):
            command = fetch_command(node, file, workers=1 if name == fetching(1) else 4)
        case _:
            command = script_command(name, node, file)

    cost = run(command)

    files = sorted(tmp_path.rglob("changes*/*.parquet")) if name == DLT else [file]
    assert loaded(files) == (node.rows, node.total)
    report.add(WHOLE, name, cost)
