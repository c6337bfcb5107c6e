"""Impossible requests fail in one line with exit code 2, and leave all files unchanged."""

import shlex

import pytest

from tests.cli.running import SAMPLE, fails

OTHER = "ab" * 32
"""An id that nothing has."""

NODE = "http://127.0.0.1:1"
"""A node that was asked would refuse, which ends a command with 4."""

FETCH, EXPORT = f"fetch {NODE} -o x.parquet", f"export new {NODE}"
SERIES, SUMMARY, PLOT, REPORT = (
    f"{command} {{gapped}} --since 2023-05-01"  # behind the gap
    for command in ("series", "summary", "plot -o x.png", "report -o x.html")
)
SQL = "sql {gapped} --format csv"
EXPORTED = f"is the address of a node, not an archive; `balance-analysis export archive {NODE}`"
FETCHED = "a file or an archive; load its rows first, "
FETCHED += f"`balance-analysis fetch {NODE} -o changes.parquet`"
NO_ARCHIVE = f"is a file, not an archive; `balance-analysis summary {SAMPLE}`"
NO_NODE = f"is a file, not the address of a node; `balance-analysis summary {SAMPLE}`"
SHOWN = "is an archive, not the address of a node; `balance-analysis status {gapped}`"

USAGE = {
    # a source
    "fetch node.example.org -o x": "https://node.example.org",
    "fetch 127.0.0.1:3008 -o x": "did you mean http://127.0.0.1:3008?",
    "limits ftp://x": "not the address",
    "summary none.parquet": "none.parquet: no such file or archive",
    "summary bad.parquet": "bad.parquet is not a Parquet file of balance changes, or",
    "plot bad.parquet -o x.png": "bad.parquet is not a Parquet file of balance",
    "status .": "not an archive: it has no _archive.json",
    "verify .": "not an archive",
    "export . http://127.0.0.1:1": "bad.parquet",
    "export": "Missing argument 'ARCHIVE'",
    "export archive": "Missing argument 'URL...'",
    f"plot {SAMPLE} --kind coverage -o x.svg": "is a file, not an archive",
    f"plot {SAMPLE} --kind limits -o x.svg": "is a file, not an archive",
    # a source of another kind
    **dict.fromkeys([f"export {NODE} {{gapped}}", f"status {NODE}", f"serve {NODE}"], EXPORTED),
    **dict.fromkeys([f"{x} {SAMPLE}" for x in ("status", "verify", "serve")], NO_ARCHIVE),
    f"export {SAMPLE} {NODE}": NO_ARCHIVE,
    f"fetch {SAMPLE} -o x": NO_NODE,
    f"doctor {SAMPLE}": NO_NODE,
    **dict.fromkeys(["export other {gapped}", "limits {gapped}"], SHOWN),
    f"fetch {NODE} {{gapped}} -o x": SHOWN,
    **dict.fromkeys([f"summary {NODE}", f"series {NODE}"], FETCHED),
    **dict.fromkeys([f"plot {NODE} -o x.png", f"report {NODE} -o x.html"], FETCHED),
    # a server
    "serve": "give an archive, or --demo",
    "serve x --demo": "not both",
    "serve 'no archive'": "is not an archive: there is no such folder",
    "serve --demo --allow-origin example.org": "'example.org' is not an origin: give one",
    "serve --demo --host no-such-host.invalid": "no-such-host.invalid",
    # accounts, moments and other values
    f"{FETCH} --account-type GENERALL": "did you mean GENERAL or",
    f"{FETCH} --party-id abc": "64 hex digits",
    f"{FETCH} --since 2023-05-01 --until 2023-05-01": "start must be before end",
    f"{FETCH} --since yesterday": "ISO 8601",
    f"{EXPORT} --since soon": "ISO 8601",
    f"{EXPORT} --lag 5": "'5' is not a duration",
    f"{EXPORT} --on-bad-rows eat": "'quarantine', 'raise'",
    f"{EXPORT} --metrics-file new/x": "write to this folder",
    f"{EXPORT} --max-requests-per-second 0": "greater than or equal to 0.001",
    f"{SERIES} --asset-id id:tUSD -o x.csv": "tUSD",
    f"{SUMMARY} --asset-id id:tUSD -o x.csv": "tUSD",
    f"{SERIES} --party-id network --party-id {OTHER} -o x.csv": OTHER[:4],
    f"series {SAMPLE} --freq 1s --layout wide -o x.csv": "a shorter interval",
    f"{PLOT} --kind flows --asset-id {OTHER}": OTHER,
    f"{PLOT} --kind activity --party-id {OTHER}": OTHER,
    f"{REPORT} --party-id {OTHER}": OTHER[:4],
    f"{REPORT} --assets none.toml": "none.toml",
    f"{REPORT} --until 2023-04-01": "before",
    f"compare {SAMPLE} --at 2023-04-20 --at 2023-04-10": "the earlier one first",
    f"compare {SAMPLE} --at 2023-04-10 --at 2023-04-10": "the earlier one first",
    f"compare {SAMPLE} --at 2023-04-10 -o x.csv": "--at BEFORE --at AFTER",
    f"{SUMMARY} --units": "have unknown decimals: pass assets",
    f"{SUMMARY} --units --wide": "have unknown decimals: pass assets",
    f"{SUMMARY} --units --format json": "have unknown decimals: pass assets",
    # what is explained, and what a digest is of
    f"explain {{gapped}} --at 2023-05-03 --party-id {OTHER}": "no row has the party",
    "explain {gapped} --at 2023-05-03 --account-type order_margin": "2 such accounts: select one",
    "digest {gapped} --since 2023-05-01 --until 2023-05-01": "before end",
    "digest .": "not an archive",
    # a file to write, before anything is read
    f"{FETCH}.csv": "must end with .parquet or .pq",
    f"{FETCH}.2023-04": "must end with .parquet or .pq",
    "limits http://127.0.0.1:1 -o x.parquet": "must end with .json",
    "summary none --format parquet": "-o FILE.parquet",
    "summary none -o x.doc": ".csv, .json, .parquet or .xlsx",
    "summary none -o x": "--format",
    "summary none -o none/x.csv": "create it first",
    "summary none -o folder.csv": "is a folder",
    "summary none -o x.csv --format table": "only be printed",
    "summary none -o x.parquet --format csv": "must end with .csv",
    "series none -o x.parquet --format csv": "must end with .csv",
    "plot none -o x.doc": "must end with .png or .svg or .pdf",
    "plot none -o x": "must end with .png or .svg or .pdf",
    "plot none -o none/x.png": "create it first",
    "report none -o x.png": "must end with .html",
    # options of a picture
    "plot none -o x.png --since yesterday": "ISO 8601",
    "plot {gapped} -o x.png --kind limits --since 2d --until 3d": "start must be before end",
    f"{PLOT} --since 2023-04-20 --until 2023-04-10": "start must be before end",
    f"{SUMMARY} --since 2023-04-20 --until 2023-04-10": "start must be before end",
    "plot none -o x.png --kind drawdown --freq 1D": "leave out --freq",
    "plot none -o x.png --kind activity --freq 1W": "leave out --freq",
    "plot none -o x.png --kind coverage --since 1d": "leave out --since",
    f"plot none -o x.png --kind coverage --asset-id {OTHER}": "shows all accounts",
    # a query
    f"{SQL} 'select no from changes'": 'Referenced column "no" not found',
    f"{SQL} 'selec 1'": 'syntax error at or near "selec"',
    f"{SQL} 'select 1; select 2'": "only a single SELECT",
    f"{SQL} \"copy (select 1) to 'x.csv'\"": "only a single SELECT",
    f"{SQL} ''": "only a single SELECT",
    f"{SQL} \"from '/etc/passwd'\"": "/etc/passwd",
    f"{SQL} 'select 1 as a, 2 as a'": "two columns are called a",
}
"""What is said of each command, in a folder of a few files."""


@pytest.mark.parametrize(("command", "says"), USAGE.items())
def test_impossible_requests_are_usage_errors_and_change_nothing(
    command, says, gapped, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.parquet").write_text("not parquet")
    (tmp_path / "folder.csv").mkdir()
    for name in ("x.csv", "x.html", "x.parquet", "x.png"):
        (tmp_path / name).write_text("old")
    said = fails(*shlex.split(command.format(gapped=gapped)), code=2, folder=tmp_path)
    assert says.format(gapped=gapped) in said
