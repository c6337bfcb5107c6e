"""`export`, `status` and `verify` do what the library does, and end with the documented code."""

import re
import signal

import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, ROWS, START, node_of, reports, state_of
from tests.cli.running import interrupted, play, run, waiting
from tests.waits import sleeping


@pytest.mark.parametrize("command", ["export", "fetch"])
def test_every_option_reaches_the_node(command, node, tmp_path):
    row = next(row for row in ROWS if row.market_id and row.party_id != "network")
    before = len(node.requests)
    run(
        command,
        *([tmp_path / "a", node.url] if command == "export" else [node.url, "-o", tmp_path / "x"]),
        *("--asset-id", row.asset_id, "--party-id", row.party_id, "--market-id", row.market_id),
        *("--account-type", "general", "--account-type", "bond", "--page-size", 7),
        *("--since", "2023-04-28", "--until", "2023-05-01"),
        code=3,  # the node begins later
    )
    asked = next(x.params for x in node.requests[before:] if x.params.get("filter.assetId"))
    assert asked["filter.partyIds"] == [row.party_id]
    assert asked["filter.marketIds"] == [row.market_id]
    assert sorted(asked["filter.accountTypes"]) == ["ACCOUNT_TYPE_BOND", "ACCOUNT_TYPE_GENERAL"]
    assert asked["pagination.first"] == ["7"]
    if command == "export":
        assert state_of(tmp_path / "a").evidence.bounds[1] == START + 2 * DAY + 4 * 3_600_000_000


def test_requests_never_exceed_the_rate(node, tmp_path):
    rate = ("--max-requests-per-second", 0.01, "--page-size", 20)
    export, fetch = ("export", tmp_path / "a", node.url), ("fetch", node.url, "-o", tmp_path / "x")
    for command in (export, fetch):
        before, waits = len(node.requests), []
        with sleeping(waits.append):
            run(*command, "--since", "2023-05-01", "--until", "2023-05-02", *rate)
        # A wait that isn't waited for is added to the next one.
        assert max(waits) > 50 * (len(node.requests) - before)


def test_a_signal_commits_complete_periods_and_exits_with_130(tmp_path):
    with node_of(ROWS) as node:
        process = waiting(
            *(node, 14, "export", tmp_path / "a", node.url, "--since", "2023-04-28T20:00"),
            *("--page-size", 16, "--workers", 1, "--metrics-file", tmp_path / "x.prom"),
        )
        said = interrupted(process)
    committed = r"^Complete parts are committed: \d\d+ new rows from \S+ to "
    assert re.search(committed, said, re.MULTILINE)
    assert reports(tmp_path / "a")[0]["outcome"] == "partial"
    assert re.search(r"_exit_code\{.*\} 130\.0$", (tmp_path / "x.prom").read_text(), re.MULTILINE)
    with node_of(ROWS) as again:
        run("export", tmp_path / "a", again.url)
    assert len(ba.Archive(tmp_path / "a").read()) == len(ROWS)
    assert not state_of(tmp_path / "a").evidence.incomplete(START, END)


def test_a_signal_before_anything_is_complete_says_that_nothing_is_committed(tmp_path):
    with node_of(ROWS) as node:
        process = waiting(node, 1, "export", tmp_path / "a", node.url)
        assert "Nothing new is committed" in interrupted(process, signal.SIGTERM)


def test_a_second_run_exits_with_75_and_names_the_first(tmp_path):
    metrics = tmp_path / "x.prom"
    metrics.write_text("of the first")
    with node_of(ROWS) as node:
        first = waiting(node, 0, "export", tmp_path / "a", node.url)
        said = run("export", tmp_path / "a", node.url, "--metrics-file", metrics, code=75).stderr
        first.kill()
        first.communicate()
    assert re.search(rf"process {first.pid} on \S+, since [\d:T-]+Z; try again", said)
    assert metrics.read_text() == "of the first"


OF_PARTIES = f"--party-id {ROWS[0].party_id} --party-id network"
OF_SOME = f"--asset-id {ROWS[0].asset_id} --account-type {ROWS[0].account_type} {OF_PARTIES}"
WHOLE = "2023-04-28T20:00Z", "2023-05-03T08:00:00.000001Z"
FORGOTTEN = "2023-01-01T00:00Z to 2023-04-28T20:00Z"
NOTHING, ONE_LINE = r"\A\Z", r"\A[^\n]+\n\Z"
SESSIONS = {
    "every row, and then nothing new": [
        ("export {a} {url} --dry-run", 0, rf"\Astart +end\n{WHOLE[0]} +{WHOLE[1]}\n\Z"),
        ("status {a}", 2, "not an archive"),
        ("export {a} {url}", 0, r"\A160 new rows from \S+ to \S+ in \d+ requests, \S+ s: .+\n\Z"),
        ("export {a} {url}", 0, "Nothing new"),
        ("export {a} {url} -q", 0, NOTHING),
        ("status {a}", 0, "^missing +none$"),
        ("status {a} --format json", 0, '"rows": 160,'),
        ("status {a} --max-age 2h", 3, "more than 2h ago"),
        ("status {a} --max-age 5000w", 0, "^rows +160 of 20 accounts$"),
        ("status {a} -q", 0, NOTHING),
        ("status {a} -q --format json", 0, NOTHING),
        ("status {a} -q --max-age 1h", 3, ONE_LINE),
        ("export {a} {url} --repair", 0, "No rows to repair"),
        ("verify {a} --against {url}", 0, "no problem"),
    ],
    "no row of an account": [
        (f"export {{a}} {{url}} --party-id {'f' * 64}", 3, r"\ANo row .+\n.+ covers nothing yet")
    ],
    "a node that refuses": [
        ("export {a} {nowhere}", 4, r"\A(.+; trying again.+\n)+.+reached.+\n\Z")
    ],
    "settings of the environment, and those of a service of that name in Kubernetes": [
        ("EXPORT_UNTIL=2023-05-01 SERVICE_HOST=10.0.0.1 export {a} {url}", 0, "2023-05-01T00:00Z"),
        ("EXPORT_UNTIL=2023-05-01 export {a} {url} --until 2023-05-02", 0, "2023-05-02T00:00Z"),
        ("EXPORT_LAG=soon export {a} {url}", 2, "'soon' is not a duration"),
        ("EXPORT_SINCE=2023-04-29 export {a} {url} --repair", 0, "No rows to repair"),
    ],
    "a gap": [
        ("export {a} {url} --since 2023-04-29 --until 2023-04-30", 0, "new rows"),
        ("status {a} --fail-on-gaps", 0, "^unproven +none$"),
        ("export {a} {url} --since 2023-04-28T21:00 --until 2023-04-28T22:00", 0, "Nothing new"),
        ("status {a}", 0, "^missing +2023-04-28T22:00Z"),
        ("status {a} --fail-on-gaps", 3, "unproven: 2023-04-28T22:00Z to 2023-04-29T00:00Z; "),
        ("status {a} --since 2023-04-29 --until 2023-04-30", 0, "^unproven +none$"),
        ("status {a} --since 2023-04-28T23:00", 3, "n: 2023-04-28T23:00Z to 2023-04-29T00:00Z; "),
        ("status {a} --since 2023-04-29 --until 2023-04-30T01:00", 3, "to 2023-04-30T01:00Z; "),
        ("status {a} --since 2023-05-02", 3, "unproven: 2023-05-02T00:00Z to 2023-05-02T00:00:00."),
        ("status {a} --until 2023-04-01", 3, " to 2023-04-01T00:00Z; "),
        ("status {a} --since 2023-04-30 --until 2023-04-29", 2, "start must be before end"),
        ("{last}", 0, "new row"),
        ("status {a} --fail-on-gaps", 0, "^unproven +none$"),
    ],
    "what the node has forgotten": [
        ("export {a} {url} --since 2023-01-01 --until 2023-05-01", 3, f"complete for {FORGOTTEN}"),
        ("export {a} {url} --since 2023-01-01 --until 2023-05-01", 0, "Nothing new"),
        ("status {a} --fail-on-gaps", 3, f"^unproven +2023-01-01T(.|\n)+unproven: {FORGOTTEN}; "),
        ("status {a} --fail-on-gaps --max-age 1d", 3, "1d ago; missing or unproven: 2023-01-01"),
    ],
    **{
        f"a damaged manifest of accounts {filters}": [
            (f"export {{a}} {{url}} {filters}", 0, "new rows"),
            ("spoil _archive.json", 0, ""),
            ("status {a}", 5, ONE_LINE),
            ("{last}", 3, "has been rebuilt from the files"),
            ("status {a} --fail-on-gaps", 3, "unproven"),
            ("{last}", 0, ""),
            ("status {a} --fail-on-gaps", 0, ""),
            ("verify {a}", 0, "no problem"),
        ]
        for filters in ("", OF_SOME)
    },
    "limits that are damaged": [
        ("export {a} {url}", 0, "new rows"),
        ("spoil _limits.parquet", 0, ""),
        ("export {a} {url}", 5, "`balance-analysis verify "),
        ("{last}", 5, "restore a backup of it; otherwise remove it"),
        ("remove _limits.parquet", 0, ""),
        ("export {a} {url}", 0, r"starting a new one(.|\n)+Nothing new"),
        ("verify {a}", 0, "no problem"),
    ],
    "a damaged file": [
        ("export {a} {url}", 0, "new rows"),
        ("spoil changes/date=2023-04-28/changes.parquet", 0, ""),
        ("verify {a}", 5, "date=2023-04-28"),
        ("status {a}", 5, "1 file damaged or missing"),
        ("export {a} {url}", 5, "`balance-analysis verify "),
        ("{last}", 0, "1 period requested again, 0 with different rows"),
        ("verify {a}", 0, "no problem"),
    ],
    "a damaged month, which the first run made": [
        ("export {a} {url} --partition month --until 2023-04-30", 0, "new rows"),
        ("export {a} {url}", 0, "new rows"),
        ("spoil changes/month=2023-05/changes.parquet", 0, ""),
        ("export {a} {url}", 5, "--repair` repairs it"),
        ("{last}", 0, "1 period requested again, 0 with different rows"),
    ],
}
"""See `tests.cli.running.play`."""


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_a_command_exits_with_its_code_the_reason_and_the_next_command(session, node, tmp_path):
    play(session, tmp_path / "my archive", url=node.url, nowhere="http://127.0.0.1:1")
