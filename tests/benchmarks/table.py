"""A table loaded, and written: `python table.py URL SINCE UNTIL FILE`."""

from __future__ import annotations

import sys

import balance_analysis as ba


def main(url: str, since: str, until: str, file: str) -> None:
    with ba.Client(url) as client:
        table = ba.load_balance_changes(client, start=since, end=until, progress=False)
    ba.write_parquet(table, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
