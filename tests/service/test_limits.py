"""The network limits, from a snapshot in a file to the wire."""

from __future__ import annotations

import dataclasses
import json

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.errors import ArchiveError
from balance_analysis.schema import NetworkLimits
from balance_analysis.service.app import create_app
from balance_analysis.service.embedded import serve
from balance_analysis.service.snapshot import read_limits
from tests.service.rows import write_rows

SNAPSHOT = {
    "can_propose_market": True,
    "can_propose_asset": False,
    "propose_market_enabled": True,
    "propose_asset_enabled": False,
    "genesis_loaded": True,
    "propose_market_enabled_from": "2023-04-01T00:00:00.123456789Z",
    "propose_asset_enabled_from": None,
    "fetched_at": "2023-05-01T00:00:00Z",
    "source": "https://node.example",
    "block_height": 7,
    "extra": {"canUseAmm": True},
}
LIMITS = {
    "canProposeMarket": True,
    "canProposeAsset": False,
    "proposeMarketEnabled": True,
    "proposeAssetEnabled": False,
    "genesisLoaded": True,
    "proposeMarketEnabledFrom": "1680307200123456789",
    "proposeAssetEnabledFrom": "0",
    "canUseAmm": True,
}


def _ask(tmp_path, limits):
    write_rows(tmp_path / "changes.parquet", [])
    with serve(create_app(tmp_path / "changes.parquet", limits)) as url:
        return requests.get(f"{url}/api/v2/network/limits", timeout=10)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "network_limits.json"
    path.write_text(json.dumps(SNAPSHOT))
    return path


def test_the_snapshot_has_the_fields_of_the_schema():
    assert set(SNAPSHOT) == {field.name for field in dataclasses.fields(NetworkLimits)}


def test_the_limits_have_the_interface_s_form(tmp_path, path):
    assert _ask(tmp_path, path).json() == {"limits": LIMITS}


def test_without_a_snapshot_the_limits_are_not_found(tmp_path):
    response = _ask(tmp_path, None)
    assert (response.status_code, response.json()["code"]) == (404, 5)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", "0"),
        ("2023-04-01T00:00:00", "1680307200000000000"),
        ("2023-04-01T00:00:00+00:00", "1680307200000000000"),
        ("1969-12-31T23:59:59.999999999Z", "-1"),
        ("2023-04-01T00:00:00.5Z", "1680307200500000000"),
        ("2023-04-01T00:00:00.000000001Z", "1680307200000000001"),
    ],
)
def test_a_date_keeps_its_nanoseconds(path, text, nanoseconds):
    path.write_text(json.dumps(SNAPSHOT | {"propose_asset_enabled_from": text}))
    assert read_limits(path)["proposeAssetEnabledFrom"] == nanoseconds


@given(flags=st.lists(st.booleans(), min_size=5, max_size=5))
def test_each_flag_keeps_its_name(tmp_path_factory, flags):
    names = list(SNAPSHOT)[:5]
    path = tmp_path_factory.getbasetemp() / "flags.json"
    path.write_text(json.dumps(SNAPSHOT | dict(zip(names, flags, strict=True))))
    limits = read_limits(path)
    assert [limits[name] for name in list(LIMITS)[:5]] == flags


def test_an_extra_field_never_hides_a_known_one(path):
    path.write_text(json.dumps(SNAPSHOT | {"extra": {"canProposeMarket": False}}))
    assert read_limits(path)["canProposeMarket"] is True


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        json.dumps({key: value for key, value in SNAPSHOT.items() if key != "genesis_loaded"}),
        json.dumps(SNAPSHOT | {"genesis_loaded": "yes"}),
        json.dumps(SNAPSHOT | {"propose_asset_enabled_from": "soon"}),
        json.dumps(SNAPSHOT | {"propose_asset_enabled_from": ""}),
        json.dumps(SNAPSHOT | {"propose_asset_enabled_from": "2023-04-01T00:00:00+02:00"}),
        json.dumps(SNAPSHOT | {"propose_asset_enabled_from": "2023-02-30T00:00:00Z"}),
    ],
)
def test_a_file_that_is_no_snapshot_is_an_archive_error(path, content):
    path.write_text(content)
    with pytest.raises(ArchiveError, match="can't be read as a snapshot"):
        read_limits(path)


def test_a_missing_file_is_an_archive_error(tmp_path):
    with pytest.raises(ArchiveError, match="can't be read as a snapshot"):
        read_limits(tmp_path / "nothing.json")
