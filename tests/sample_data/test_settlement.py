from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sample_data.generate import USD, Ledger, Market, _mark_to_market

PARTIES = ("maker", "long", "short", "other")
funds = st.lists(st.integers(0, 1000), min_size=len(PARTIES), max_size=len(PARTIES))
trades = st.lists(
    st.tuples(st.sampled_from(PARTIES), st.sampled_from(PARTIES), st.integers(-50, 50)), max_size=8
)


def settle(funds, trades, price):
    """Trade at a price of 100, settle at another, and return what is left."""
    market = Market("m", USD, 100, PARTIES[:1], PARTIES[1:])
    ledger = Ledger()
    for party, amount in zip(PARTIES, funds, strict=True):
        ledger.deposit(market.margin(party), amount)
    for trade in trades:
        market.exchange(*trade)
    market.price = price
    _mark_to_market(ledger, market)
    return market, ledger


def total(market, ledger):
    accounts = [account(party) for party in PARTIES for account in (market.margin, market.general)]
    return sum(map(ledger.balance, [*accounts, market.pool("INSURANCE")]))


@given(funds, trades, st.integers(1, 300))
@example([0, 10, 7, 7], [("long", "short", 3), ("long", "other", 4)], 90)
def test_settlement_leaves_its_account_empty_even_if_losers_cannot_pay(funds, trades, price):
    market, ledger = settle(funds, trades, price)
    assert ledger.balance(market.pool("SETTLEMENT")) == 0


@given(funds, trades, st.integers(1, 300))
def test_settlement_keeps_the_sum(funds, trades, price):
    assert total(*settle(funds, trades, price)) == sum(funds)


@given(funds, trades, st.integers(1, 300))
def test_positions_add_up_to_0_after_settlement(funds, trades, price):
    market, _ = settle(funds, trades, price)
    assert sum(market.lots.values()) == 0


def test_a_gain_is_paid_in_full_by_the_loser():
    market, ledger = settle([0, 1000, 1000, 0], [("long", "short", 5)], 110)
    held = {p: sum(map(ledger.balance, (market.margin(p), market.general(p)))) for p in PARTIES}
    assert held == {"maker": 0, "long": 1050, "short": 950, "other": 0}


def test_a_party_without_enough_margin_loses_its_position_to_a_maker():
    market, _ = settle([1000, 1000, 60, 0], [("long", "short", 5)], 110)
    assert market.lots == {"long": 5, "short": 0, "maker": -5}
