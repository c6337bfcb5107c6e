"""The same by dlt's REST client and pipeline: `python dlt_pipeline.py URL SINCE UNTIL FOLDER`.

It runs with the Python of `--dlt-python`, which has neither this package nor its dependencies.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import dlt
from dlt.sources.helpers.rest_client import RESTClient
from dlt.sources.helpers.rest_client.paginators import JSONResponseCursorPaginator

PAGE_SIZE = 5000


@dlt.resource(name="changes", write_disposition="append")
def changes(url: str, since: str, until: str):
    start, end = (int(dt.datetime.fromisoformat(text).timestamp()) for text in (since, until))
    client = RESTClient(
        base_url=url,
        paginator=JSONResponseCursorPaginator(
            cursor_path="balances.pageInfo.endCursor",
            cursor_param="pagination.after",
            has_more_path="balances.pageInfo.hasNextPage",
        ),
    )
    asked = {
        "pagination.first": PAGE_SIZE,
        "pagination.newestFirst": "false",
        "dateRange.startTimestamp": f"{start}000000000",
        "dateRange.endTimestamp": f"{end}000000000",
    }
    for page in client.paginate(
        "/api/v2/balance/changes", params=asked, data_selector="balances.edges"
    ):
        yield [edge["node"] for edge in page]


def main(url: str, since: str, until: str, folder: str) -> None:
    files = Path(folder).absolute()
    pipeline = dlt.pipeline(
        "benchmark",
        pipelines_dir=str(files / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=(files / "data").as_uri()),
        dataset_name="balances",
    )
    pipeline.run(changes(url, since, until), loader_file_format="parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
