"""Load what accounts held before a moment: the opening balances of an interval.

Accounts are looked for newest first, many in one request, in windows that reach further and further
back. The first row of an account that comes is its last one. What one request leaves open is asked
again by tighter filters, and an account that is left alone by a page of one row.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.errors import logger
from balance_analysis.filters import make_filters
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE
from balance_analysis.load.evidence import LatestBlock
from balance_analysis.load.nodes import NodePool, answers
from balance_analysis.load.request import check_positive
from balance_analysis.node.client import Client
from balance_analysis.node.last_balances import LastBalances, Search
from balance_analysis.rows import Account
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, Instant, to_microseconds
from balance_analysis.text import iso_text

_TYPE_PREFIX: Final = "ACCOUNT_TYPE_"

_STATES: Final = pd.CategoricalDtype(pd.Index(["known", "none", "pruned"], dtype="str"))


def load_opening_balances(
    client: Client,
    accounts: pd.DataFrame,
    *,
    at: Instant,
    page_size: int = defaults.PAGE_SIZE,
    workers: int = defaults.WORKERS,
) -> pd.DataFrame:
    """Load the last balance before a moment, of each of these accounts.

    It is what `balance_at` and others take as `opening` for a table that starts at that moment. An
    account that is quiet in that table is in none of its rows: take the accounts from wherever all
    of them are known, such as a table of a longer interval.

    Where `state` is "none", nothing was held, but the balance is NA all the same, as no row says
    so. To count it as 0: ``opening["balance"].mask(opening["state"] == "none", 0)``.

    Parameters
    ----------
    client
        The node; of several, one answers all: the first, in order of what they hold, that can.
    accounts
        A table, a summary or any frame with the columns `ACCOUNT_KEY`; rows may repeat an account.
    at
        The moment, UTC where no time zone is given. A row at exactly `at` is not before it.
    page_size
        Rows a request.
    workers
        Requests at once. The result doesn't depend on it.

    Returns
    -------
    pandas.DataFrame
        One row per account, sorted by `ACCOUNT_KEY` (category of str, ids in lower case):

        - `balance` (decimal128(38, 0)[pyarrow], in the asset's smallest unit): NA where the node
          holds no row of the account before `at`.
        - `since` (datetime64[us, UTC]): the timestamp of the row that set it, else NaT.
        - `state` (category of str): "known"; "none", where the account had no row before `at`, as
          the node holds the asset's history from its beginning; or "pruned", where that can't be
          shown, so that the node may have forgotten older rows.

        `attrs["balance_analysis"]` tells, as JSON, the source, the requests and the node's last
        block. A node that has not reached `at` answers as of that block.

    Raises
    ------
    RequestError
        If no node can be reached or answers, after the retries.
    DecodeError
        If an answer or a row is not what the interface describes.
    IncompleteError
        If an account's last row can't be told, as the answers don't add up.
    CheckError
        If two rows of one account and time differ.
    ValueError
        If accounts lacks a column, or an id is missing or malformed.

    Notes
    -----
    Pruned history looks exactly like nothing having happened, and no node tells how far back it
    reaches. One row does: an asset's EXTERNAL account gets one in the block in which the asset
    comes to be, and else only where a network is restored from a snapshot, with rows of all
    accounts and what they hold. So it is "none" only if the oldest block that the node holds of
    the asset has that row and no balance but 0, seen after all other answers, so that nothing was
    pruned meanwhile. In any other case it is "pruned".

    One request settles all accounts of up to 60 parties that fit one page of the last day's rows.
    Those that are left take a request for the week before, again per 60 parties; then, once, one
    for each year from 2020 to the node's oldest row, one per 60 parties for each year from there to
    `at`, and one for each asset. Only an account that is quiet between busy ones which the filters
    can't part takes more; "no market" can't be asked for.
    """
    check_positive("page_size", page_size)
    check_positive("workers", workers)
    end, wanted = to_microseconds(at), _accounts(accounts)
    began = time.monotonic()

    def find(base_url: str) -> tuple[str, LatestBlock, LastBalances]:
        ask, state = pool.to(base_url)
        with Search(ask, end, page_size, workers) as search:
            found = search.find(wanted)
        return base_url, state.latest_block, found

    def failed(base_url: str, error: Exception) -> None:
        logger.warning("%s; no opening balances from %s", error, base_url)

    with NodePool(client, "raise") as pool:
        # Nodes differ in what they have pruned, so they are not mixed.
        source, latest, found = next(answers(pool.nodes(end), find, failed))
    opening = _frame(wanted, found)
    opening.attrs[ATTRS_KEY] = {
        "source": pool.sources[source],
        "at": iso_text(end),
        **pool.stats.as_json(),
        "seconds": round(time.monotonic() - began, 3),
        "block_height": latest.height,
        "block_time": latest.time and iso_text(latest.time),
    }
    logger.info("%d opening balances in %d requests", len(wanted), pool.stats.requests)
    return opening


def _accounts(frame: pd.DataFrame) -> list[Account]:
    """Return the distinct accounts of a frame, sorted, in the form in which nodes have them."""
    missing = [name for name in ACCOUNT_KEY if name not in frame]
    if missing:
        raise ValueError(f"not a frame of accounts: it has no column {', '.join(missing)}")
    keys = frame[ACCOUNT_KEY].drop_duplicates()
    if keys.isna().to_numpy().any():
        raise ValueError("accounts has a missing id; no market is '', not missing")
    columns = [
        keys[name].astype("str").map({text: _id(name, text) for text in keys[name].astype("str")})
        for name in ACCOUNT_KEY
    ]
    return sorted(set(zip(*columns, strict=True)))


def _id(name: str, text: str) -> str:
    match name:
        case "asset_id":
            return make_filters(asset_id=f"id:{text}").asset_id or text
        case "party_id":
            return make_filters(party_ids=text).party_ids[0]
        case "market_id":
            return make_filters(market_ids=text).market_ids[0] if text else text
    # The name of a type may be a newer one, or the number of one that the node has no name for.
    if text.startswith(_TYPE_PREFIX) or text.isdecimal():
        return text
    return make_filters(account_types=text).account_types[0]


def _frame(accounts: list[Account], found: LastBalances) -> pd.DataFrame:
    rows = [found.last.get(account, (None, None)) for account in accounts]
    times = pa.array([row[0] for row in rows], pa.timestamp("us", "UTC"))
    balances = pa.array([row[1] for row in rows], BALANCE_DTYPE.pyarrow_dtype)
    columns: dict[str, Any] = {
        name: pd.Series([account[i] for account in accounts], dtype="str").astype("category")
        for i, name in enumerate(ACCOUNT_KEY)
    }
    return pd.DataFrame(
        {
            **columns,
            "balance": pd.Series(pd.arrays.ArrowExtensionArray(balances)),
            "since": pd.Series(times.to_pandas(), dtype=TIMESTAMP_DTYPE),
            "state": pd.Series([found.state(account) for account in accounts], dtype=_STATES),
        }
    )
