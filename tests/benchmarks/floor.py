"""The floor: one session, typed decoding, Arrow columns, one Parquet file, nothing else.

No check, no retry, no second connection: `python floor.py URL SINCE UNTIL FILE`.
"""

import datetime as dt
import sys

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import requests

PAGE_SIZE = 5000


class Node(msgspec.Struct, rename="camel", gc=False):
    asset_id: str
    account_type: str
    party_id: str
    market_id: str
    timestamp: str
    balance: str


class Edge(msgspec.Struct, gc=False):
    node: Node


class PageInfo(msgspec.Struct, rename="camel"):
    end_cursor: str
    has_next_page: bool


class Balances(msgspec.Struct, rename="camel"):
    edges: list[Edge]
    page_info: PageInfo


class Page(msgspec.Struct):
    balances: Balances


def columns(page: Balances) -> pa.RecordBatch:
    rows = [edge.node for edge in page.edges]
    times = [int(row.timestamp) // 1000 for row in rows]
    return pa.record_batch(
        {
            "asset_id": pa.array([row.asset_id for row in rows]).dictionary_encode(),
            "account_type": pa.array([row.account_type for row in rows]).dictionary_encode(),
            "party_id": pa.array([row.party_id for row in rows]).dictionary_encode(),
            "market_id": pa.array([row.market_id for row in rows]).dictionary_encode(),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "balance": pa.array([row.balance for row in rows]).cast(pa.decimal128(38, 0)),
        }
    )


def main(url: str, since: str, until: str, file: str) -> None:
    decoder = msgspec.json.Decoder(Page)
    start, end = (int(dt.datetime.fromisoformat(text).timestamp()) for text in (since, until))
    asked = {
        "pagination.first": str(PAGE_SIZE),
        "pagination.newestFirst": "false",
        "dateRange.startTimestamp": f"{start}000000000",
        "dateRange.endTimestamp": f"{end}000000000",
    }
    batches = []
    with requests.Session() as session:
        while True:
            answer = session.get(f"{url}/api/v2/balance/changes", params=asked, timeout=30)
            page = decoder.decode(answer.content).balances
            batches.append(columns(page))
            if not page.page_info.has_next_page:
                break
            asked["pagination.after"] = page.page_info.end_cursor
    table = pa.Table.from_batches(batches).unify_dictionaries()
    pq.write_table(table, file, compression="zstd")


if __name__ == "__main__":
    main(*sys.argv[1:])
