from __future__ import annotations

import pytest

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.columns import ATTRS_KEY, note_known
from tests.moments import from_microseconds

TABLE = table_of(
    [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "", START + at, level)
        for at, level in enumerate([5, 7, 3])
    ]
)


def test_a_frame_that_is_no_table_has_none():
    with pytest.raises(AttributeError, match=r"without the columns \['balance'\]"):
        _ = TABLE.drop(columns="balance").balances


def test_a_callers_own_frame_has_them_too():
    plain = ba.to_table(TABLE).astype({"party_id": "str"})
    assert len(plain.balances.select(party_ids="a1")) == 3
    assert len(plain.balances.between(from_microseconds(START + 1))) == 3


def test_it_shows_what_the_table_is_and_what_it_knows():
    table = TABLE.copy()
    table.attrs[ATTRS_KEY] = {"assets": {"VOTE": {"symbol": "<b>", "decimals": 0}}}
    note_known(table, [(START, START + 10**6)])
    said, page = repr(table.balances), table.balances._repr_html_()
    assert said.splitlines()[0] == "3 balance changes of 1 account"
    assert f"known: {from_microseconds(START):%Y-%m-%dT%H:%M}" in said
    assert "<b>" in said
    assert "&lt;b&gt;" in page
    assert "known: not stated" in repr(TABLE[:0].balances)
