"""The definition of a table, written a second time: from the design, not from the package.

Other programs read these columns, types and notes from files and frames, so they notice a change
here.
"""

import json

import pandas as pd
import pyarrow as pa

from balance_analysis import ACCOUNT_KEY
from tests.moments import from_microseconds, to_microseconds, uncovered

COLUMNS = ("asset_id", "account_type", "party_id", "market_id", "timestamp", "balance")
EXTERNAL = "ACCOUNT_TYPE_EXTERNAL"

ID_TYPE = pa.dictionary(pa.int32(), pa.string())
ARROW_SCHEMA = pa.schema(
    [
        *(pa.field(name, ID_TYPE, nullable=False) for name in ACCOUNT_KEY),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("balance", pa.decimal128(38, 0), nullable=False),
    ]
)
BALANCE_DTYPE = pd.ArrowDtype(pa.decimal128(38, 0))
TIMESTAMP_DTYPE = pd.DatetimeTZDtype("us", "UTC")

ATTRS_KEY = "balance_analysis"


def empty_table():
    """Return a table of no rows, with all columns and dtypes."""
    ids = pd.Categorical([], categories=pd.Index([], dtype="str"))
    columns = dict.fromkeys(ACCOUNT_KEY, ids)
    columns["timestamp"] = pd.array([], dtype=TIMESTAMP_DTYPE)
    columns["balance"] = pd.array([], dtype=BALANCE_DTYPE)
    return pd.DataFrame(columns)


def known_of(table):
    """Return the intervals that a table's attrs state to be known, in microseconds."""
    noted = table.attrs.get(ATTRS_KEY, {}).get("known")
    if noted is None:
        return None
    return tuple(tuple(map(to_microseconds, interval)) for interval in noted)


def note_known(table, known, *, nothing_before=False):
    """Note the known intervals in a table's attrs, as a load does."""
    noted = {
        **table.attrs.get(ATTRS_KEY, {}),
        "known": [[from_microseconds(bound).isoformat() for bound in span] for span in known],
    }
    noted.pop("nothing_before", None)
    table.attrs[ATTRS_KEY] = {**noted, **({"nothing_before": True} if nothing_before else {})}


def note_evidence(table, known, evidence, **how):
    """Note in a table's attrs the evidence of its rows, in the JSON that files keep."""
    note_known(table, known, **how)
    table.attrs[ATTRS_KEY]["evidence"] = json.dumps(evidence, default=sorted)


def lacking(noted):
    """Return the unknown stretches of a load's interval, from its attrs."""
    known = [tuple(map(to_microseconds, interval)) for interval in noted["known"]]
    return uncovered(known, *(to_microseconds(noted[name]) for name in ("start", "end")))
