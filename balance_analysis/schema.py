"""The table of balance changes and the network limits, declared once.

Columns, dtypes, units and names stand here and nowhere else. Everything that is called a *table* in
this package is what `to_frame` returns.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCOUNT_KEY: Final = ("asset_id", "account_type", "party_id", "market_id")
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
"""Where a table's `attrs` tell how it was loaded."""

BALANCE_DIGITS: Final = 38
"""The most digits that 128 bits hold, in Parquet, Arrow and every engine that reads them."""

NETWORK_PARTY: Final = "network"
NO_MARKET: Final = ""

EXTERNAL: Final = "ACCOUNT_TYPE_EXTERNAL"

INTERFACE_ACCOUNT_TYPES: Final = (
    "ACCOUNT_TYPE_UNSPECIFIED",
    "ACCOUNT_TYPE_INSURANCE",
    "ACCOUNT_TYPE_SETTLEMENT",
    "ACCOUNT_TYPE_MARGIN",
    "ACCOUNT_TYPE_GENERAL",
    "ACCOUNT_TYPE_FEES_INFRASTRUCTURE",
    "ACCOUNT_TYPE_FEES_LIQUIDITY",
    "ACCOUNT_TYPE_FEES_MAKER",
    "ACCOUNT_TYPE_BOND",
    "ACCOUNT_TYPE_EXTERNAL",
    "ACCOUNT_TYPE_GLOBAL_INSURANCE",
    "ACCOUNT_TYPE_GLOBAL_REWARD",
    "ACCOUNT_TYPE_PENDING_TRANSFERS",
    "ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES",
    "ACCOUNT_TYPE_REWARD_MAKER_RECEIVED_FEES",
    "ACCOUNT_TYPE_REWARD_LP_RECEIVED_FEES",
    "ACCOUNT_TYPE_REWARD_MARKET_PROPOSERS",
)
"""The account types of the interface document, v0.71."""

LATER_ACCOUNT_TYPES: Final = (
    "ACCOUNT_TYPE_HOLDING",
    "ACCOUNT_TYPE_LP_LIQUIDITY_FEES",
    "ACCOUNT_TYPE_LIQUIDITY_FEES_BONUS_DISTRIBUTION",
    "ACCOUNT_TYPE_NETWORK_TREASURY",
    "ACCOUNT_TYPE_VESTING_REWARDS",
    "ACCOUNT_TYPE_VESTED_REWARDS",
    "ACCOUNT_TYPE_REWARD_AVERAGE_POSITION",
    "ACCOUNT_TYPE_REWARD_RELATIVE_RETURN",
    "ACCOUNT_TYPE_REWARD_RETURN_VOLATILITY",
    "ACCOUNT_TYPE_REWARD_VALIDATOR_RANKING",
    "ACCOUNT_TYPE_PENDING_FEE_REFERRAL_REWARD",
    "ACCOUNT_TYPE_ORDER_MARGIN",
    "ACCOUNT_TYPE_REWARD_REALISED_RETURN",
    "ACCOUNT_TYPE_BUY_BACK_FEES",
    "ACCOUNT_TYPE_REWARD_AVERAGE_NOTIONAL",
    "ACCOUNT_TYPE_REWARD_ELIGIBLE_ENTITIES",
    "ACCOUNT_TYPE_LOCKED_FOR_STAKING",
)
"""Account types of later releases, up to v0.79, which the interface document doesn't list."""

ACCOUNT_TYPES: Final = INTERFACE_ACCOUNT_TYPES + LATER_ACCOUNT_TYPES

_ID_TYPE = pa.dictionary(pa.int32(), pa.string())

ARROW_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, _ID_TYPE, nullable=False) for name in ACCOUNT_KEY),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("balance", pa.decimal128(BALANCE_DIGITS, 0), nullable=False),
    ]
)

BALANCE_DTYPE: Final = pd.ArrowDtype(pa.decimal128(BALANCE_DIGITS, 0))
TIMESTAMP_DTYPE: Final = pd.DatetimeTZDtype("us", "UTC")

Instant = dt.datetime | dt.date | str
"""A moment: a datetime, a date (its midnight) or ISO 8601 text; without a time zone it is UTC."""


def to_microseconds(instant: Instant) -> int:
    """Return a moment as microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    instant
        A datetime (also `pandas.Timestamp`), a date (its midnight) or ISO 8601 text. Without a time
        zone it is taken as UTC. A part of a microsecond is rounded up: rows stand on whole
        microseconds, so the rows in [start, end) stay the same.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If text is not ISO 8601, or the moment doesn't exist (NaT).
    """
    if not isinstance(instant, dt.date | str):
        raise TypeError(f"a moment must be a datetime, a date or ISO 8601 text, not {instant!r}")
    try:
        stamp = pd.Timestamp(
            dt.datetime.fromisoformat(instant) if isinstance(instant, str) else instant
        )
    except ValueError as error:
        raise ValueError(
            f"{instant!r} is not an ISO 8601 moment such as 2023-04-01T12:00:00Z"
        ) from error
    if pd.isna(stamp):
        raise ValueError("a moment must not be NaT")
    stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
    return -(-stamp.as_unit("ns").value // 1000)


def from_microseconds(microseconds: int) -> pd.Timestamp:
    """Return the moment that lies so many microseconds after 1970-01-01, in UTC."""
    return pd.Timestamp(microseconds, unit="us", tz="UTC")


def to_arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table, or any frame with its columns, as Arrow in its schema, rows as they stand.

    Raises
    ------
    ValueError
        If a column or a value is missing, or a value doesn't fit its column.
    TypeError
        If a column has a type that its column can't be made of, such as a float as a balance.
    """
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f"not a table of balance changes: it has no column {', '.join(missing)}")
    if pd.api.types.is_float_dtype(table["balance"].dtype):
        raise TypeError(
            "balances are floats, which lose digits; make them Arrow decimals or integers"
        )
    return pa.Table.from_pandas(
        table[list(COLUMNS)], schema=ARROW_SCHEMA, preserve_index=False
    ).replace_schema_metadata(None)


def to_frame(arrow: pa.Table, *, sort: bool = True) -> pd.DataFrame:
    """Return Arrow rows as a table: typed, sorted, with a fresh index.

    Parameters
    ----------
    arrow
        The columns of `ARROW_SCHEMA` in any order and any chunks; ids may be plain strings.
    sort
        Whether to bring the rows into the table's order. Without, they stand as they came.

    Returns
    -------
    pandas.DataFrame
        Columns `asset_id`, `account_type`, `party_id`, `market_id` (category of str, categories
        sorted and all in use), `timestamp` (datetime64[us, UTC]) and `balance`
        (decimal128(38, 0)[pyarrow], in the asset's smallest unit), sorted by `ACCOUNT_KEY`, then
        `timestamp`. The same rows give an equal table, whatever order and chunks they came in.
    """
    codes, categories = {}, {}
    for name in ACCOUNT_KEY:
        codes[name], categories[name] = _sorted_codes(arrow[name])
    times = arrow["timestamp"].cast(pa.int64()).to_numpy()
    keys = [times, *(codes[name] for name in reversed(ACCOUNT_KEY))]
    order = np.lexsort(keys) if sort else np.arange(len(times))
    frame = {
        name: pd.Categorical.from_codes(codes[name][order], categories=categories[name])
        for name in ACCOUNT_KEY
    }
    balance = arrow["balance"].combine_chunks().take(pa.array(order))
    return pd.DataFrame(
        {
            **frame,
            "timestamp": pd.Series(times[order].view("M8[us]")).dt.tz_localize("UTC"),
            "balance": pd.Series(pd.arrays.ArrowExtensionArray(balance)),
        }
    )


def _sorted_codes(column: pa.ChunkedArray) -> tuple[np.ndarray[Any, Any], pd.Index[Any]]:
    """Return a column of ids as codes into its sorted distinct values."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = pa.table({"id": column}).unify_dictionaries()["id"].combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # no chunks at all
        encoded = pa.array([], _ID_TYPE)
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    used, codes = np.unique(indices, return_inverse=True)
    values = encoded.dictionary.take(pa.array(used))
    order = pc.sort_indices(values).to_numpy()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes].astype(np.int64), pd.Index(
        values.take(pa.array(order)).to_pylist(), dtype="str"
    )


def empty_table() -> pd.DataFrame:
    """Return a table of no rows, with all columns and dtypes."""
    return to_frame(ARROW_SCHEMA.empty_table())


@dataclass(frozen=True, slots=True)
class NetworkLimits:
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
