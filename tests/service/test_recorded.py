"""Rows that a real node stored come back in the order in which it stores them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.service.archives import Stretch
from tests.service.rows import Row

RECORDED = Path(__file__).parents[3] / "shared" / "recorded" / "system_tests" / "rows.csv"


@pytest.fixture
def recorded():
    if not RECORDED.exists():
        pytest.skip("the recording is not at hand")
    with RECORDED.open(newline="") as file:
        return [
            Row(
                row["asset_id"],
                row["account_type"],
                row["party_id"],
                row["market_id"],
                int(row["timestamp"]) // 1000,
                int(row["balance"]),
            )
            for row in csv.DictReader(file)
        ]


def test_oldest_first_is_the_order_of_a_real_node(node, recorded):
    whole = Stretch(recorded[0].time, recorded[-1].time + 1)
    node.hold(recorded[::-1], stretches=[whole])
    page = node.page({"pagination.newestFirst": "false"})
    assert [edge["node"] for edge in page["edges"]] == [row.node for row in recorded]
