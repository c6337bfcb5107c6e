"""The network limits, from an archive's newest snapshot to the wire."""

from dataclasses import fields, replace

import pandas as pd
import pytest

from balance_analysis import NetworkLimits
from tests.archive.writing import writer_of
from tests.loopback import V71_LIMITS
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
    **V71_LIMITS,
    "canProposeAsset": False,
    "proposeAssetEnabled": False,
    "proposeMarketEnabledFrom": "1680307200123456789",
    "proposeAssetEnabledFrom": "0",
    "canUseAmm": True,
    "later": ["ä", 1],
}

FLAGS = [*zip([each.name for each in fields(SNAPSHOT)][:5], LIMITS, strict=False)]
"""The five booleans, as a snapshot and the interface call them."""


def enabled_from(nanoseconds):
    moment = pd.Timestamp(nanoseconds, tz="UTC")
    return {"propose_asset_enabled_from": moment}, {"proposeAssetEnabledFrom": str(nanoseconds)}


CHANGES = [
    ({}, {}),
    *(({name: not getattr(SNAPSHOT, name)}, {x: not LIMITS[x]}) for name, x in FLAGS),
    ({"propose_market_enabled_from": None}, {"proposeMarketEnabledFrom": "0"}),
    *(enabled_from(nanoseconds) for nanoseconds in (-1, 9214646400987654321)),
    # No extra field hides a known one.
    ({"extra": {**SNAPSHOT.extra, "genesisLoaded": False}}, {}),
]


def served(node, snapshot):
    """Keep a snapshot in the served archive, and return the limits in the service's answer."""
    writer_of(node.path).keep_limits(snapshot)
    answer = node.get(path=PATH).json()
    assert [*answer] == ["limits"], answer
    return answer["limits"]


def test_limits_have_the_interfaces_form_and_a_repeated_snapshot_is_the_newest(node):
    node.hold()
    for change, answer in CHANGES:
        assert served(node, replace(SNAPSHOT, **change)) == LIMITS | answer
    assert served(node, SNAPSHOT) == LIMITS


def test_limits_without_a_snapshot_are_not_found(node):
    assert node.hold().get(path=PATH).error[:2] == (404, 5)


@pytest.mark.parametrize("content", [b"", b"not Parquet"])
def test_a_damaged_snapshot_is_an_error_that_reveals_no_internals(node, content):
    node.hold([])
    (node.path / "_limits.parquet").write_bytes(content)
    assert node.get(path=PATH).error[:2] in ((500, 13), (503, 14))
    assert node.page()["edges"] == []
