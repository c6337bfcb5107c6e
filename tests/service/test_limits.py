"""The network limits, from an archive's newest snapshot to the wire."""

from __future__ import annotations

from dataclasses import fields, replace

import pandas as pd
import pytest

from balance_analysis import Archive, NetworkLimits
from tests.archive.writing import writer_of
from tests.serving import LIMITS as PATH

SNAPSHOT = NetworkLimits(
    can_propose_market=True,
    can_propose_asset=False,
    propose_market_enabled=True,
    propose_asset_enabled=False,
    genesis_loaded=True,
    propose_market_enabled_from=pd.Timestamp("2023-04-01T00:00:00.123456789Z"),
    propose_asset_enabled_from=None,
    fetched_at=pd.Timestamp("2023-05-01T00:00:00Z"),
    source="https://node.example",
    block_height=7,
    extra={"canUseAmm": True, "later": ["ä", 1]},
)
LIMITS = {
    "canProposeMarket": True,
    "canProposeAsset": False,
    "proposeMarketEnabled": True,
    "proposeAssetEnabled": False,
    "genesisLoaded": True,
    "proposeMarketEnabledFrom": "1680307200123456789",
    "proposeAssetEnabledFrom": "0",
    "canUseAmm": True,
    "later": ["ä", 1],
}

FLAGS = [*zip([each.name for each in fields(SNAPSHOT)][:5], LIMITS, strict=False)]
"""The five booleans, as a snapshot and the interface call them."""

CHANGES = [
    ({}, {}),
    *(({name: not getattr(SNAPSHOT, name)}, {x: not LIMITS[x]}) for name, x in FLAGS),
    ({"propose_market_enabled_from": None}, {"proposeMarketEnabledFrom": "0"}),
    *(
        ({"propose_asset_enabled_from": pd.Timestamp(moment)}, {"proposeAssetEnabledFrom": written})
        for moment, written in (
            ("1969-12-31T23:59:59.999999999Z", "-1"),
            ("2262-01-01T00:00:00.987654321Z", "9214646400987654321"),
        )
    ),
    # No extra field hides a known one.
    ({"extra": {**SNAPSHOT.extra, "genesisLoaded": False}}, {}),
]


@pytest.fixture
def served(node):
    """Keeps snapshots in the archive that is served, and gives the limits that it answers."""
    node.hold([])

    def keep(*snapshots):
        for snapshot in snapshots:
            writer_of(Archive(node.path)).keep_limits(snapshot)
        answer = node.get(path=PATH)
        assert answer.status == 200, answer.body
        assert set(answer.json()) == {"limits"}
        return answer.json()["limits"]

    return keep


def test_the_limits_have_the_interface_s_form_and_a_snapshot_that_comes_back_is_the_newest(served):
    for change, answer in CHANGES:
        assert served(replace(SNAPSHOT, **change)) == LIMITS | answer
    assert served(SNAPSHOT) == LIMITS


def test_without_a_snapshot_the_limits_are_not_found(node):
    assert node.hold().get(path=PATH).error[:2] == (404, 5)


@pytest.mark.parametrize("content", [b"", b"not Parquet"])
def test_a_damaged_snapshot_is_an_error_that_shows_nothing_of_the_inside(node, content):
    node.hold([])
    (node.path / "_limits.parquet").write_bytes(content)
    assert node.get(path=PATH).error[:2] in ((500, 13), (503, 14))
    assert node.page()["edges"] == []
