"""The table of balance changes and the network limits: columns, types, units and names.

`frame` has the same as pandas.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from balance_analysis.table.presentation import Record
from balance_analysis.table.spans import Moments, Span
from balance_analysis.table.text import EPOCH, to_duration

if TYPE_CHECKING:
    import pandas as pd


ACCOUNT_KEY: Final = ["asset_id", "account_type", "party_id", "market_id"]
"""The columns that name an account; a list, as pandas takes several columns."""
COLUMNS: Final = (*ACCOUNT_KEY, "timestamp", "balance")
FIELD_NAMES: Final = {
    "asset_id": "assetId",
    "account_type": "accountType",
    "party_id": "partyId",
    "market_id": "marketId",
    "timestamp": "timestamp",
    "balance": "balance",
}

ATTRS_KEY: Final = "balance_analysis"
"""The key in a table's `attrs` of everything that this package notes there."""

BALANCE_DIGITS: Final = 38
"""The most digits that 128 bits hold, in Parquet, Arrow and every engine that reads them."""

NETWORK_PARTY: Final = "network"
NAMED_ASSETS: Final = (
    *("VOTE", "XYZalpha", "XYZbeta", "XYZdelta", "XYZepsilon", "XYZgamma"),
    *("fBTC", "fDAI", "fEURO", "fUSDC"),
)
"""The assets whose ids networks spell by name, in the order of their numbers."""

NO_MARKET: Final = ""

EXTERNAL: Final = "ACCOUNT_TYPE_EXTERNAL"

TYPE_PREFIX: Final = "ACCOUNT_TYPE_"
_INTERFACE_TYPES: Final = (  # of the interface document, v0.71
    "UNSPECIFIED INSURANCE SETTLEMENT MARGIN GENERAL FEES_INFRASTRUCTURE FEES_LIQUIDITY FEES_MAKER "
    "BOND EXTERNAL GLOBAL_INSURANCE GLOBAL_REWARD PENDING_TRANSFERS REWARD_MAKER_PAID_FEES "
    "REWARD_MAKER_RECEIVED_FEES REWARD_LP_RECEIVED_FEES REWARD_MARKET_PROPOSERS"
)
_LATER_TYPES: Final = (  # of later releases, up to v0.79
    "HOLDING LP_LIQUIDITY_FEES LIQUIDITY_FEES_BONUS_DISTRIBUTION NETWORK_TREASURY VESTING_REWARDS "
    "VESTED_REWARDS REWARD_AVERAGE_POSITION REWARD_RELATIVE_RETURN REWARD_RETURN_VOLATILITY "
    "REWARD_VALIDATOR_RANKING PENDING_FEE_REFERRAL_REWARD ORDER_MARGIN REWARD_REALISED_RETURN "
    "BUY_BACK_FEES REWARD_AVERAGE_NOTIONAL REWARD_ELIGIBLE_ENTITIES LOCKED_FOR_STAKING"
)
ACCOUNT_TYPES: Final[tuple[str, ...]] = tuple(
    TYPE_PREFIX + name for name in (*_INTERFACE_TYPES.split(), *_LATER_TYPES.split())
)
"""The names of all account types that this release knows."""

_NOT_USED: Final = 8
TYPES_BY_NUMBER: Final = {
    place + (place >= _NOT_USED): name for place, name in enumerate(ACCOUNT_TYPES)
}
"""The account types by the numbers that nodes know them by; none has the number 8."""

ID_TYPE = pa.dictionary(pa.int32(), pa.string())

ARROW_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, ID_TYPE, nullable=False) for name in ACCOUNT_KEY),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("balance", pa.decimal128(BALANCE_DIGITS, 0), nullable=False),
    ]
)

_AGO: Final = re.compile(r"(?:now-)?(\d+[smhdw])|now", re.ASCII)
_FINER: Final = re.compile(r"(\.\d{6})(\d+)", re.ASCII)

Instant = dt.datetime | dt.date | str
"""A moment: a datetime, a date (its midnight), ISO 8601 text, or text that counts back from now.

Without a time zone it is UTC. "7d" is seven days ago, "now-1h" an hour ago, and "now" is now; both
bounds of an interval count from one now, but two calls from two.
"""


def to_bounds(
    start: Instant | None, end: Instant | None, *, zone: dt.tzinfo = dt.UTC
) -> tuple[int | None, int | None]:
    """Return the bounds of an interval as `to_microseconds` does, `None` where one is not given."""
    now = dt.datetime.now(dt.UTC)
    begin, stop = (
        None if bound is None else to_microseconds(bound, zone=zone, now=now)
        for bound in (start, end)
    )
    return begin, stop


def to_microseconds(
    instant: Instant,
    *,
    zone: dt.tzinfo = dt.UTC,
    now: dt.datetime | None = None,
    down: bool = False,
) -> int:
    """Return a moment as microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    instant
        A moment; datetimes may be those of pandas or numpy. A part of a microsecond is rounded up:
        rows have whole microseconds, so the rows in [start, end) stay the same.
    zone
        What a moment without a time zone is in. One that the clocks show twice is the first, one
        that they skip is as if they had not been put forward.
    now
        What text is counted back from; by default this moment.
    down
        Whether a part of a microsecond is rounded down, as for what is held at a moment.

    Raises
    ------
    TypeError
        If it is of another type.
    ValueError
        If text is no moment, or the moment doesn't exist (NaT).
    """
    if isinstance(instant, str):
        moment, is_between = _parse(instant, now or dt.datetime.now(dt.UTC))
    elif isinstance(instant, dt.datetime):
        moment, is_between = _plain(instant)
    elif type(instant).__name__ == "datetime64":  # numpy's, which is not imported for it
        from pandas import Timestamp  # noqa: PLC0415 - heavy

        moment, is_between = _plain(Timestamp(instant))
    elif isinstance(instant, dt.date):
        moment, is_between = dt.datetime.combine(instant, dt.time()), False
    else:
        raise TypeError(f"a moment is a datetime, a date or text, not {instant!r}")
    aware = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    return (aware - EPOCH) // dt.timedelta(microseconds=1) + (is_between and not down)


def _parse(text: str, now: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return the moment of a text, and whether digits behind its microseconds are not 0."""
    if ago := _AGO.fullmatch(text):
        return _before(now, text, ago[1] or "0s"), False
    finer = _FINER.search(text)
    try:
        moment = dt.datetime.fromisoformat(_FINER.sub(r"\1", text))
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not an ISO 8601 moment such as 2023-04-01T12:00:00Z, nor text such as "
            "now, now-1h or 7d, which is ago"
        ) from error
    return moment, finer is not None and finer[2].strip("0") != ""


def _before(now: dt.datetime, text: str, length: str) -> dt.datetime:
    try:
        return now - to_duration(length)
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long ago") from error


def _plain(moment: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a datetime without what pandas adds to one, and whether it had nanoseconds."""
    if moment != moment:  # noqa: PLR0124 - NaT differs from itself
        raise ValueError("a moment must not be NaT")
    if not hasattr(moment, "nanosecond"):
        return moment, False
    return moment.to_pydatetime(warn=False), moment.nanosecond > 0  # type: ignore[attr-defined]


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return the moment of a number of microseconds since 1970-01-01 UTC."""
    return EPOCH + dt.timedelta(microseconds=microseconds)


def to_moments(spans: Iterable[Span]) -> tuple[Moments, ...]:
    """Return spans of microseconds as spans of datetimes, in UTC."""
    return tuple((from_microseconds(start), from_microseconds(end)) for start, end in spans)


FIRST_MOMENT: Final = to_microseconds("2015-01-01")
LAST_MOMENT: Final = to_microseconds("2100-01-01")
"""A row that lies before the first or not before the last one is in another unit of time."""


@dataclass(frozen=True, slots=True)
class NetworkLimits(Record):
    """The network's limits at one moment: a snapshot.

    Attributes
    ----------
    can_propose_market, can_propose_asset
        Whether such a proposal is accepted now.
    propose_market_enabled, propose_asset_enabled
        Whether such proposals are switched on at all.
    genesis_loaded
        Whether the network's first state has been loaded.
    propose_market_enabled_from, propose_asset_enabled_from
        Since when, UTC with nanoseconds; `None` where it is not set. Nodes fill the market's date
        from the asset's: it is shown as they send it.
    extra
        Fields that the interface document doesn't list, under their own names, as they came.
    fetched_at
        When the node was asked, UTC.
    source
        Base address of the node.
    block_height
        The last block that the node held; `None` where it didn't say.
    """

    can_propose_market: bool
    can_propose_asset: bool
    propose_market_enabled: bool
    propose_asset_enabled: bool
    genesis_loaded: bool
    propose_market_enabled_from: pd.Timestamp | None
    propose_asset_enabled_from: pd.Timestamp | None
    fetched_at: pd.Timestamp
    source: str
    block_height: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def _title(self) -> str:
        return "Network limits"

    def _facts(self) -> Iterator[tuple[str, object]]:
        height = "unknown" if self.block_height is None else self.block_height
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        del facts["extra"]
        yield from (facts | {"block_height": height}).items()
        for name, value in self.extra.items():
            yield re.sub("(?<=[a-z0-9])[A-Z]", r"_\g<0>", name).lower(), value

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        for name in (*LIMIT_MOMENTS, "fetched_at"):
            if (moment := content[name]) is not None:
                utc = moment.tz_convert("UTC").tz_localize(None)
                content[name] = utc.isoformat(timespec="nanoseconds") + "Z"
        return content


LIMIT_FLAGS: Final = tuple(each.name for each in fields(NetworkLimits) if each.type == "bool")
LIMIT_MOMENTS: Final = ("propose_market_enabled_from", "propose_asset_enabled_from")
