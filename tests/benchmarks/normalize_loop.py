"""The loop that anybody writes first: `python normalize_loop.py URL SINCE UNTIL FILE`."""

import sys

import pandas as pd
import requests

PAGE_SIZE = 5000


def main(url: str, since: str, until: str, file: str) -> None:
    asked = {
        "pagination.first": PAGE_SIZE,
        "pagination.newestFirst": "false",
        "dateRange.startTimestamp": pd.Timestamp(since).as_unit("ns").value,
        "dateRange.endTimestamp": pd.Timestamp(until).as_unit("ns").value,
    }
    frames = []
    with requests.Session() as session:
        while True:
            answer = session.get(f"{url}/api/v2/balance/changes", params=asked, timeout=30)
            balances = answer.json()["balances"]
            frames.append(pd.json_normalize(balances["edges"]).drop(columns="cursor"))
            if not balances["pageInfo"]["hasNextPage"]:
                break
            asked["pagination.after"] = balances["pageInfo"]["endCursor"]
    table = pd.concat(frames, ignore_index=True)
    table.columns = table.columns.str.removeprefix("node.")
    table["timestamp"] = pd.to_datetime(table["timestamp"].astype("int64"), utc=True)
    table.to_parquet(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
