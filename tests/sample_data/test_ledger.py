from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_data.generate import USD, ExternalFlow, Ledger

ACCOUNTS = [USD.account("GENERAL", party) for party in ("a", "b", "c")]
accounts = st.sampled_from(ACCOUNTS)
moves = st.lists(st.tuples(accounts, accounts, st.integers(0, 100)))


@given(st.lists(moves, max_size=6))
def test_a_block_gives_one_row_for_each_account_it_touched_with_the_balance_at_its_end(blocks):
    ledger, balances, expected = Ledger(), Counter(dict.fromkeys(ACCOUNTS, 10**6)), []
    for account in ACCOUNTS:
        ledger.deposit(account, 10**6)
    ledger.close_block(0)
    for time, block in enumerate(blocks, start=1):
        for source, target, amount in block:
            ledger.transfer(source, target, amount)
            balances[source] -= amount
            balances[target] += amount
        ledger.close_block(time)
        touched = {account for source, target, _ in block for account in (source, target)}
        expected += [(account, time, balances[account]) for account in touched]
    assert sorted(ledger.rows[len(ACCOUNTS) :], key=str) == sorted(expected, key=str)


def test_a_balance_cannot_become_negative():
    ledger = Ledger()
    ledger.deposit(ACCOUNTS[0], 5)
    with pytest.raises(ValueError, match="has 1 less than it should pay"):
        ledger.transfer(ACCOUNTS[0], ACCOUNTS[1], 6)


def test_deposits_and_withdrawals_are_listed_with_their_block():
    ledger = Ledger()
    ledger.deposit(ACCOUNTS[0], 5)
    ledger.close_block(1)
    ledger.withdraw(ACCOUNTS[0], 2)
    ledger.close_block(2)
    expected = [ExternalFlow(1, USD.asset_id, 5), ExternalFlow(2, USD.asset_id, -2)]
    assert ledger.external_flows == expected
