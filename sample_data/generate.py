"""Make the sample data: a month of a small, invented trading network.

An event simulation over a ledger. An event is a set of transfers inside one block; when the block
closes, each account that was touched gets one row with its new balance. So money moves but never
appears, except by the deposits and withdrawals that `History.external_flows` lists.

Amounts are integers in the asset's smallest unit and chance comes from one seed: the same seed
gives the same rows on every machine, and the same bytes under the same pyarrow.

Run ``python sample_data/generate.py [FOLDER]``; without a folder it writes beside this file.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.table.frame import to_arrow, to_frame
from balance_analysis.table.moments import to_microseconds
from balance_analysis.table.schema import ACCOUNT_KEY, ARROW_SCHEMA, NETWORK_PARTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    Event = tuple[int, Callable[[], None]]
    """The block's slot, and what happens in it."""

SEED: Final = 20230401
START: Final = to_microseconds("2023-04-01")
ACTIVE_DAYS: Final = (*range(16), *range(23, 30))  # nothing from 17 to 23 April
VOLATILE_DAY: Final = 11  # 12 April
SLOT: Final = 720_000  # microseconds; holds one block at most
SLOTS_PER_HOUR: Final = 5000
BUSY_HOURS: Final = (2, 1, 1, 1, 2, 2, 3, 5, 6, 7, 6, 6, 7, 9, 9, 9, 8, 7, 6, 5, 4, 3, 2, 2)  # UTC

PPM: Final = 1_000_000
INFRASTRUCTURE_FEE, MAKER_FEE, LIQUIDITY_FEE = 200, 100, 200  # ppm of a trade's value
MARGIN_RATE: Final = 100_000  # ppm of a position's value
SEARCH, INITIAL, RELEASE = 110, 120, 140  # percent of the margin required

NETWORK_LIMITS: Final = {
    "can_propose_market": True,
    "can_propose_asset": True,
    "propose_market_enabled": True,
    "propose_asset_enabled": True,
    "genesis_loaded": True,
    "propose_market_enabled_from": "2023-03-01T12:00:00.000000000Z",
    "propose_asset_enabled_from": "2023-03-01T12:00:00.000000000Z",
    "fetched_at": "2023-05-01T00:00:00Z",
    "source": "https://node.example.invalid",
    "block_height": 30 * 24 * SLOTS_PER_HOUR,
    "extra": {"canProposeSpotMarket": False},
}


def build_history(seed: int = SEED) -> History:
    """Return the whole month, simulated from a seed."""
    world = World(random.Random(seed), Ledger(), _open_markets())
    parts = (_opening(world), _arrivals(world), _trading(world), _epochs(world), _visits(world))
    slot_of = itemgetter(0)
    for slot, block in groupby(sorted(chain(*parts), key=slot_of), key=slot_of):
        for _, event in block:
            event()
        world.ledger.close_block(START + slot * SLOT + world.rng.randrange(SLOT * 3 // 4))
    return History(_to_table(world.ledger.rows), tuple(world.ledger.external_flows))


def write_sample(folder: Path, seed: int = SEED) -> None:
    """Write `changes.parquet` and `network_limits.json` into a folder, which is made if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = to_arrow(build_history(seed).table)
    pq.write_table(rows, folder / "changes.parquet", compression="zstd", compression_level=19)
    limits = json.dumps(NETWORK_LIMITS, indent=2) + "\n"
    (folder / "network_limits.json").write_text(limits, encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> None:
    """Write the sample data into the folder that is named, or beside this file."""
    write_sample(Path(arguments[0]) if arguments else Path(__file__).parent)


@cache
def identifier(name: str) -> str:
    """Return the 64 hex digits that stand for an invented asset, party or market."""
    return hashlib.sha256(f"balance_analysis sample {name}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Account:
    """What identifies an account, in the order of `ACCOUNT_KEY`."""

    asset_id: str
    account_type: str
    party_id: str
    market_id: str


@dataclass(frozen=True, slots=True)
class Asset:
    """An invented asset; its id follows from its symbol."""

    symbol: str
    decimals: int

    @property
    def asset_id(self) -> str:
        """Return the id."""
        return identifier(f"asset {self.symbol}")

    @property
    def unit(self) -> int:
        """Return one whole unit, in smallest units."""
        return int(10**self.decimals)

    def account(self, kind: str, party: str = NETWORK_PARTY, market: str = "") -> Account:
        """Return an account in this asset; `kind` is its type without the prefix."""
        return Account(self.asset_id, f"ACCOUNT_TYPE_{kind}", party, market)


@dataclass(frozen=True, slots=True)
class ExternalFlow:
    """A deposit, or as a negative amount a withdrawal; `timestamp` in microseconds since 1970."""

    timestamp: int
    asset_id: str
    amount: int


@dataclass(frozen=True, slots=True)
class History:
    """All rows as a table, and every deposit and withdrawal behind them."""

    table: pd.DataFrame
    external_flows: tuple[ExternalFlow, ...]


@dataclass(slots=True)
class Ledger:
    """Balances whose sum only `deposit` and `withdraw` change."""

    rows: list[tuple[Account, int, int]] = field(default_factory=list)
    external_flows: list[ExternalFlow] = field(default_factory=list)
    _balances: dict[Account, int] = field(default_factory=dict)
    _touched: dict[Account, None] = field(default_factory=dict)
    _crossings: list[tuple[str, int]] = field(default_factory=list)

    def __contains__(self, account: Account) -> bool:
        return account in self._balances

    def balance(self, account: Account) -> int:
        """Return a balance; 0 for an account that doesn't exist yet."""
        return self._balances.get(account, 0)

    def touch(self, *accounts: Account) -> None:
        """Give accounts a row at the end of this block, whether or not they change."""
        for account in accounts:
            self._add(account, 0)

    def transfer(self, source: Account, target: Account, amount: int) -> None:
        """Move an amount; a balance can't become negative."""
        self._add(source, -amount)
        self._add(target, amount)

    def deposit(self, account: Account, amount: int) -> None:
        """Bring an amount in from outside. As on real nodes, EXTERNAL itself gets no row."""
        self._add(account, amount)
        self._crossings.append((account.asset_id, amount))

    def withdraw(self, account: Account, amount: int) -> None:
        """Take an amount out."""
        self.deposit(account, -amount)

    def close_block(self, timestamp: int) -> None:
        """End the block: a row for each account that it touched."""
        self.rows += [(account, timestamp, self._balances[account]) for account in self._touched]
        self.external_flows += [ExternalFlow(timestamp, *crossing) for crossing in self._crossings]
        self._touched.clear()
        self._crossings.clear()

    def _add(self, account: Account, amount: int) -> None:
        balance = self.balance(account) + amount
        if balance < 0:
            raise ValueError(f"{account} has {-balance} less than it should pay")
        self._balances[account] = balance
        self._touched[account] = None


@dataclass(slots=True)
class Market:
    """A market: its accounts, and who holds how much of it.

    Attributes
    ----------
    price
        Of one lot, in the asset's smallest unit.
    lots
        Position of each party, negative if short; they add up to 0.
    cash
        What each party took in for its lots since the last settlement; adds up to 0 too.
    """

    market_id: str
    asset: Asset
    price: int
    makers: tuple[str, ...]
    traders: tuple[str, ...]
    lots: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cash: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def pool(self, kind: str) -> Account:
        """Return one of the market's own accounts."""
        return self.asset.account(kind, market=self.market_id)

    def general(self, party: str) -> Account:
        """Return the account from which a party trades here."""
        return self.asset.account("GENERAL", party)

    def margin(self, party: str) -> Account:
        """Return a party's margin account here."""
        return self.asset.account("MARGIN", party, self.market_id)

    def required(self, lots: int) -> int:
        """Return the margin that a position needs at the present price."""
        return abs(lots) * self.price * MARGIN_RATE // PPM

    def exchange(self, buyer: str, seller: str, lots: int) -> None:
        """Move lots from one party's position to another's at the present price."""
        for party, bought in ((buyer, lots), (seller, -lots)):
            self.lots[party] += bought
            self.cash[party] -= bought * self.price


@dataclass(frozen=True, slots=True)
class World:
    """What the events act on."""

    rng: random.Random
    ledger: Ledger
    markets: tuple[Market, ...]


USD: Final = Asset("tUSD", 6)
DAI: Final = Asset("tDAI", 18)
GOV: Final = Asset("tGOV", 18)
ASSETS: Final = (USD, DAI, GOV)

MAKERS: Final = tuple(identifier(f"maker {n}") for n in range(3))
TRADERS: Final = tuple(identifier(f"trader {n}") for n in range(48))
DAI_TRADERS: Final = TRADERS[::3]
STAKES: Final = {identifier(f"staker {n}"): n * 7919 % 1999 + 1 for n in range(350)}
VALIDATORS: Final = tuple(STAKES)[:13]
TREASURY: Final = GOV.account("NETWORK_TREASURY")


def _open_markets() -> tuple[Market, ...]:
    sides = {
        "BTC/tUSD": (USD, 28_471_930, MAKERS[:2], TRADERS[::2] + TRADERS[1::6]),
        "ETH/tUSD": (USD, 18_224_617, MAKERS[1:], TRADERS[1::2] + TRADERS[::8]),
        "SOL/tUSD": (USD, 20_735_402, MAKERS[::2], TRADERS[::3] + TRADERS[2::5]),
        "ETH/tDAI": (DAI, 18_224_617_309_482_610_573, MAKERS[1:], DAI_TRADERS),
    }
    return tuple(Market(identifier(f"market {name}"), *side) for name, side in sides.items())


def _to_table(rows: list[tuple[Account, int, int]]) -> pd.DataFrame:
    accounts, timestamps, balances = zip(*rows, strict=True)
    columns = [[getattr(account, name) for account in accounts] for name in ACCOUNT_KEY]
    schema = zip([*columns, timestamps, balances], ARROW_SCHEMA.types, strict=True)
    arrays = [pa.array(column, kind) for column, kind in schema]
    return to_frame(pa.Table.from_arrays(arrays, schema=ARROW_SCHEMA))


def _slot(day: int, hour: int, rng: random.Random) -> int:
    """Return a slot of an hour, early enough that what starts there ends within the hour."""
    return (day * 24 + hour) * SLOTS_PER_HOUR + rng.randrange(SLOTS_PER_HOUR - 100)


def _opening(world: World) -> Iterator[Event]:
    """Yield the first blocks: assets, markets, the treasury, and makers with their bonds."""
    ledger, rng = world.ledger, world.rng
    for asset in ASSETS:
        own = map(asset.account, ("EXTERNAL", "FEES_INFRASTRUCTURE", "GLOBAL_REWARD"))
        yield 0, partial(ledger.touch, *own)
    yield from _join(world, TREASURY, 40, 25_000_000_000 * GOV.unit)
    for maker, asset in ((maker, asset) for maker in MAKERS for asset in (USD, DAI)):
        account = asset.account("GENERAL", maker)
        yield from _join(world, account, 200, 4_000_000 * asset.unit)
    for market in world.markets:
        own = map(market.pool, ("INSURANCE", "SETTLEMENT", "FEES_MAKER", "FEES_LIQUIDITY"))
        yield 0, partial(ledger.touch, *own)
        for maker in market.makers:
            bond = market.asset.account("BOND", maker, market.market_id)
            pledge = partial(ledger.transfer, market.general(maker), bond)
            yield 600, partial(pledge, 150_000 * market.asset.unit)
            yield _slot(24, 9, rng), partial(pledge, 25_000 * market.asset.unit)


def _join(world: World, account: Account, slot: int, amount: int) -> Iterator[Event]:
    """Yield how an account begins: empty, with a deposit some blocks later."""
    yield slot, partial(world.ledger.touch, account)
    yield slot + world.rng.randrange(20, 90), partial(world.ledger.deposit, account, amount)


def _arrivals(world: World) -> Iterator[Event]:
    """Yield how traders come, over a week and with money, and stakers, who bring none."""
    rng = world.rng
    for trader in TRADERS:
        slot = _slot(rng.choice((0, 0, 0, 0, 1, 2, 4, 7)), rng.randrange(24), rng)
        for asset in _wallet(trader):
            thousands = rng.choice((2, 5, 10, 25, 50, 100))
            account = asset.account("GENERAL", trader)
            yield from _join(world, account, slot, thousands * 1000 * asset.unit)
    for staker in STAKES:
        account = GOV.account("GENERAL", staker)
        yield _slot(0, rng.randrange(24), rng), partial(world.ledger.touch, account)


def _wallet(trader: str) -> tuple[Asset, ...]:
    return (USD, DAI) if trader in DAI_TRADERS else (USD,)


def _visits(world: World) -> Iterator[Event]:
    """Yield later deposits of traders, and withdrawals of traders and stakers."""
    rng = world.rng
    for day in ACTIVE_DAYS[1:]:
        for trader in rng.sample(TRADERS, 8):
            asset = rng.choice(_wallet(trader))
            visit = partial(_visit, world, asset, asset.account("GENERAL", trader))
            yield _slot(day, rng.randrange(7, 23), rng), visit
        for staker in rng.sample(tuple(STAKES), 6):
            visit = partial(_withdraw, world, GOV, GOV.account("GENERAL", staker))
            yield _slot(day, rng.randrange(7, 23), rng), visit


def _visit(world: World, asset: Asset, account: Account) -> None:
    """Deposit, above all when little is left, or withdraw."""
    poor = world.ledger.balance(account) < 1000 * asset.unit
    if account in world.ledger and (poor or world.rng.randrange(3) == 0):
        world.ledger.deposit(account, world.rng.randrange(1, 13) * 1000 * asset.unit)
    else:
        _withdraw(world, asset, account)


def _withdraw(world: World, asset: Asset, account: Account) -> None:
    part = world.ledger.balance(account) // world.rng.randrange(2, 6)
    if amount := part // (10 * asset.unit) * 10 * asset.unit:
        world.ledger.withdraw(account, amount)


def _trading(world: World) -> Iterator[Event]:
    """Yield bursts of trading: a market, some blocks in a row, a settlement at the end."""
    rng = world.rng
    for day in ACTIVE_DAYS:
        wild, weekend = day == VOLATILE_DAY, day % 7 in (0, 1)
        for _ in range(90 if wild else 24 if weekend else 42):
            market = rng.choice(world.markets)
            slot = _slot(day, rng.choices(range(24), BUSY_HOURS)[0], rng)
            last = slot + rng.randrange(3, 9)
            yield from ((s, partial(_trade, world, market, wild=wild)) for s in range(slot, last))
            yield last, partial(_mark_to_market, world.ledger, market)


def _trade(world: World, market: Market, *, wild: bool) -> None:
    """Move the price, and let a trader trade, or amend an order, which changes no balance."""
    rng, ledger = world.rng, world.ledger
    drift, deviation = (-1500, 9000) if wild else (100, 4500)
    market.price += market.price * (drift + _bell(rng, deviation)) // PPM
    taker, maker = rng.choice(market.traders), rng.choice(market.makers)
    if ledger.balance(market.general(taker)) == 0:
        return
    if market.margin(taker) not in ledger:
        ledger.touch(market.margin(taker))
    elif lots := _lots_wanted(world, market, taker):
        market.exchange(taker, maker, lots)
        _pay_fees(ledger, market, taker, maker, abs(lots) * market.price)
        _rebalance(ledger, market, taker)
        _rebalance(ledger, market, maker)
    else:
        ledger.touch(market.general(taker), market.margin(taker))


def _bell(rng: random.Random, deviation: int) -> int:
    """Return a nearly normal integer around 0, without floats, which differ between machines."""
    return sum(rng.randrange(-deviation, deviation + 1) for _ in range(12)) // 2


def _lots_wanted(world: World, market: Market, taker: str) -> int:
    """Return how much to buy: towards a new position, out of one too large to keep, or 0."""
    general, margin = map(world.ledger.balance, (market.general(taker), market.margin(taker)))
    target = (general + margin) * world.rng.randrange(-550, 551) // 100 // market.price
    for lots in (target - market.lots[taker], -market.lots[taker]):
        after = market.required(market.lots[taker] + lots) * INITIAL // 100
        if max(0, after - margin) + abs(lots) * market.price // 1000 < general:
            return lots if world.rng.randrange(12) else 0
    return 0


def _pay_fees(ledger: Ledger, market: Market, taker: str, maker: str, value: int) -> None:
    payer, pot = market.general(taker), market.pool("FEES_MAKER")
    infrastructure = market.asset.account("FEES_INFRASTRUCTURE")
    ledger.transfer(payer, infrastructure, value * INFRASTRUCTURE_FEE // PPM)
    ledger.transfer(payer, market.pool("FEES_LIQUIDITY"), value * LIQUIDITY_FEE // PPM)
    ledger.transfer(payer, pot, value * MAKER_FEE // PPM)
    ledger.transfer(pot, market.general(maker), value * MAKER_FEE // PPM)


def _rebalance(ledger: Ledger, market: Market, party: str) -> None:
    """Fill a margin account that is short, or release what it has too much."""
    general, margin = market.general(party), market.margin(party)
    held, required = ledger.balance(margin), market.required(market.lots[party])
    excess = held - required * INITIAL // 100
    if held * 100 < required * SEARCH:
        ledger.transfer(general, margin, min(-excess, ledger.balance(general)))
    elif held * 100 > required * RELEASE:
        ledger.transfer(margin, general, excess)


def _mark_to_market(ledger: Ledger, market: Market) -> None:
    """Settle all positions at the present price: losses pay gains, then margins are put right."""
    gains = {party: lots * market.price + market.cash[party] for party, lots in market.lots.items()}
    for party in gains:
        market.cash[party] = -market.lots[party] * market.price
    _collect_losses(ledger, market, gains)
    _pay_gains(ledger, market, {party: gain for party, gain in gains.items() if gain > 0})
    for party in gains:
        _rebalance(ledger, market, party)
        if ledger.balance(market.margin(party)) < market.required(market.lots[party]):
            _close_out(ledger, market, party)


def _collect_losses(ledger: Ledger, market: Market, gains: dict[str, int]) -> None:
    """Bring losses to the settlement account; the insurance pool pays what a party can't."""
    for party, gain in gains.items():
        loss = max(0, -gain)
        for account in (market.margin(party), market.general(party), market.pool("INSURANCE")):
            if part := min(loss, ledger.balance(account)):
                ledger.transfer(account, market.pool("SETTLEMENT"), part)
                loss -= part


def _pay_gains(ledger: Ledger, market: Market, gains: dict[str, int]) -> None:
    """Pay gains out of the settlement account, all cut alike where it holds too little."""
    pot, owed = market.pool("SETTLEMENT"), sum(gains.values())
    held = ledger.balance(pot)
    for party, gain in gains.items():
        ledger.transfer(pot, market.margin(party), gain * held // owed)
    if rest := ledger.balance(pot):
        ledger.transfer(pot, market.pool("INSURANCE"), rest)


def _close_out(ledger: Ledger, market: Market, party: str) -> None:
    """Hand a position to a maker; the margin that is left goes to the insurance pool."""
    margin = market.margin(party)
    market.exchange(market.makers[0], party, market.lots[party])
    ledger.transfer(margin, market.pool("INSURANCE"), ledger.balance(margin))


def _epochs(world: World) -> Iterator[Event]:
    """Yield what each day's first blocks pay out: fees, rewards, and what has vested."""
    share_out = partial(_share_out, world.ledger)
    staking, trading = GOV.account("GLOBAL_REWARD"), GOV.account("REWARD_MAKER_PAID_FEES")
    stakers = {GOV.account("GENERAL", party): stake for party, stake in STAKES.items()}
    for day in ACTIVE_DAYS:
        fund = partial(world.ledger.transfer, TREASURY, staking, 20_000 * GOV.unit)
        yield _slot(day, 18, world.rng), fund
    for day in ACTIVE_DAYS[1:]:
        slot = day * 24 * SLOTS_PER_HOUR + world.rng.randrange(20)
        for market in world.markets:
            makers = dict.fromkeys(map(market.general, market.makers), 1)
            yield slot, partial(share_out, market.pool("FEES_LIQUIDITY"), makers)
        for asset in (USD, DAI):
            validators = {asset.account("GENERAL", party): STAKES[party] for party in VALIDATORS}
            yield slot + 1, partial(share_out, asset.account("FEES_INFRASTRUCTURE"), validators)
        yield slot + 2, partial(share_out, staking, stakers)
        lucky = world.rng.sample(TRADERS, 36)
        vesting = {GOV.account("VESTING_REWARDS", p): world.rng.randrange(1, 100) for p in lucky}
        yield slot + 3, partial(world.ledger.transfer, TREASURY, trading, 8_000 * GOV.unit)
        yield slot + 3, partial(share_out, trading, vesting)
        yield slot + 4, partial(_vest, world.ledger)


def _share_out(ledger: Ledger, source: Account, weights: dict[Account, int]) -> None:
    """Divide what an account holds by weight; what the division leaves stays there."""
    held, total = ledger.balance(source), sum(weights.values())
    for account, weight in weights.items():
        ledger.transfer(source, account, held * weight // total)


def _vest(ledger: Ledger) -> None:
    for trader in TRADERS:
        vesting = GOV.account("VESTING_REWARDS", trader)
        if vested := ledger.balance(vesting) // 10:
            ledger.transfer(vesting, GOV.account("GENERAL", trader), vested)


if __name__ == "__main__":
    main(sys.argv[1:])
