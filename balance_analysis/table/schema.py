"""The table of balance changes and the network limits: columns, types, units and names.

`frame` has the same for pandas.
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
"""The columns that identify an account; a list, because pandas takes a tuple as one column."""
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
"""The key of this package's metadata in a table's `attrs`."""

BALANCE_DIGITS: Final = 38
"""Maximum digits of a 128-bit decimal in Parquet, Arrow and every engine that reads them."""

NETWORK_PARTY: Final = "network"
NAMED_ASSETS: Final = (
    *("VOTE", "XYZalpha", "XYZbeta", "XYZdelta", "XYZepsilon", "XYZgamma"),
    *("fBTC", "fDAI", "fEURO", "fUSDC"),
)
"""The assets whose ids are names instead of hex digits, in the order of their numbers."""

NO_MARKET: Final = ""

EXTERNAL: Final = "ACCOUNT_TYPE_EXTERNAL"

TYPE_PREFIX: Final = "ACCOUNT_TYPE_"
_INTERFACE_TYPES: Final = (  # from the interface document, v0.71
    "UNSPECIFIED INSURANCE SETTLEMENT MARGIN GENERAL FEES_INFRASTRUCTURE FEES_LIQUIDITY FEES_MAKER "
    "BOND EXTERNAL GLOBAL_INSURANCE GLOBAL_REWARD PENDING_TRANSFERS REWARD_MAKER_PAID_FEES "
    "REWARD_MAKER_RECEIVED_FEES REWARD_LP_RECEIVED_FEES REWARD_MARKET_PROPOSERS"
)
_LATER_TYPES: Final = (  # from later releases, up to v0.79
    "HOLDING LP_LIQUIDITY_FEES LIQUIDITY_FEES_BONUS_DISTRIBUTION NETWORK_TREASURY VESTING_REWARDS "
    "VESTED_REWARDS REWARD_AVERAGE_POSITION REWARD_RELATIVE_RETURN REWARD_RETURN_VOLATILITY "
    "REWARD_VALIDATOR_RANKING PENDING_FEE_REFERRAL_REWARD ORDER_MARGIN REWARD_REALISED_RETURN "
    "BUY_BACK_FEES REWARD_AVERAGE_NOTIONAL REWARD_ELIGIBLE_ENTITIES LOCKED_FOR_STAKING"
)
ACCOUNT_TYPES: Final[tuple[str, ...]] = tuple(
    TYPE_PREFIX + name for name in (*_INTERFACE_TYPES.split(), *_LATER_TYPES.split())
)
"""The names of all account types that this release knows."""

_UNUSED_NUMBER: Final = 8
TYPES_BY_NUMBER: Final = {
    index + (index >= _UNUSED_NUMBER): name for index, name in enumerate(ACCOUNT_TYPES)
}
"""The account types by their numbers on nodes; the number 8 is unused."""

ID_TYPE = pa.dictionary(pa.int32(), pa.string())

ARROW_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, ID_TYPE, nullable=False) for name in ACCOUNT_KEY),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("balance", pa.decimal128(BALANCE_DIGITS, 0), nullable=False),
    ]
)

_AGO: Final = re.compile(r"(?:now-)?(\d+[smhdw])|now", re.ASCII)
_NANOSECONDS: Final = re.compile(r"(\.\d{6})(\d+)", re.ASCII)

Instant = dt.datetime | dt.date | str
"""A moment: a datetime, a date (its midnight), ISO 8601 text, or text that counts back from now.

Without a time zone it is UTC. "7d" is seven days ago, "now-1h" an hour ago, and "now" is now. Both
bounds of an interval count back from the same now; each call takes a new one.
"""


def to_bounds(
    start: Instant | None, end: Instant | None, *, zone: dt.tzinfo = dt.UTC
) -> tuple[int | None, int | None]:
    """Return an interval's bounds as `to_microseconds` does; `None` if a bound isn't given."""
    now = dt.datetime.now(dt.UTC)
    begin = None if start is None else to_microseconds(start, zone=zone, now=now)
    return begin, None if end is None else to_microseconds(end, zone=zone, now=now)


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
        A moment; datetimes may be those of pandas or numpy. A fraction of a microsecond is rounded
        up: rows have whole microseconds, so the rows in [start, end) stay the same.
    zone
        The time zone of a moment without one. A local time that occurs twice means the first; one
        that the clocks skip is read as if they had not been put forward.
    now
        The moment from which text counts back; by default the current time.
    down
        Whether to round a fraction of a microsecond down, as for balances held at a moment.

    Raises
    ------
    TypeError
        If `instant` has another type.
    ValueError
        If text isn't a moment, or `instant` is NaT.
    """
    if isinstance(instant, str):
        moment, has_fraction = _parse(instant, now or dt.datetime.now(dt.UTC))
    elif isinstance(instant, dt.datetime):
        moment, has_fraction = _to_datetime(instant)
    elif type(instant).__name__ == "datetime64":  # compared by name, to avoid importing numpy
        from pandas import Timestamp  # noqa: PLC0415 - heavy

        moment, has_fraction = _to_datetime(Timestamp(instant))
    elif isinstance(instant, dt.date):
        moment, has_fraction = dt.datetime.combine(instant, dt.time()), False
    else:
        raise TypeError(f"a moment is a datetime, a date or text, not {instant!r}")
    aware = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    return (aware - EPOCH) // dt.timedelta(microseconds=1) + (has_fraction and not down)


def _parse(text: str, now: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a text's moment, and whether its digits after the microseconds are not all 0."""
    ago, fraction = _AGO.fullmatch(text), _NANOSECONDS.search(text)
    length = to_duration(ago[1] or "0s") if ago else None
    try:
        if length is not None:
            return now - length, False
        moment = dt.datetime.fromisoformat(_NANOSECONDS.sub(r"\1", text))
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long ago") from error
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a moment; write ISO 8601 such as 2023-04-01T12:00:00Z, or count back "
            "from now: now, now-1h or 7d"
        ) from error
    return moment, fraction is not None and fraction[2].strip("0") != ""


def _to_datetime(moment: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a moment, which may be pandas', as a datetime, and whether it had nanoseconds."""
    if moment != moment:  # noqa: PLR0124 - NaT differs from itself
        raise ValueError("a moment must not be NaT")
    if not hasattr(moment, "nanosecond"):
        return moment, False
    return moment.to_pydatetime(warn=False), moment.nanosecond > 0  # type: ignore[attr-defined]


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return microseconds since 1970-01-01 UTC as a datetime."""
    return EPOCH + dt.timedelta(microseconds=microseconds)


def to_moments(spans: Iterable[Span]) -> tuple[Moments, ...]:
    """Return spans of microseconds as spans of datetimes, in UTC."""
    return tuple((from_microseconds(start), from_microseconds(end)) for start, end in spans)


FIRST_MOMENT: Final = to_microseconds("2015-01-01")
LAST_MOMENT: Final = to_microseconds("2100-01-01")
"""A time outside [FIRST_MOMENT, LAST_MOMENT) is in another unit (both in microseconds)."""


@dataclass(frozen=True, slots=True)
class NetworkLimits(Record):
    """A snapshot of the network's limits.

    Attributes
    ----------
    can_propose_market, can_propose_asset
        Whether the network accepts such proposals now.
    propose_market_enabled, propose_asset_enabled
        Whether such proposals are switched on at all.
    genesis_loaded
        Whether the network's genesis state has been loaded.
    propose_market_enabled_from, propose_asset_enabled_from
        Since when (UTC with nanoseconds); `None` if not set. Nodes fill the market's date from the
        asset's; it is kept as sent.
    extra
        Fields that the interface document doesn't list, with their names and values as sent.
    fetched_at
        When the node was asked (UTC).
    source
        Base address of the node.
    block_height
        The node's last block; `None` if unknown.
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
