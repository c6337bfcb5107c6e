"""`export`, `status` and `verify` do what the library does, and end with the documented code."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, START, node_of, spread_history, state_of
from tests.cli.running import child, printed_commands, run
from tests.loopback import Fault, Kind, LoopbackNode
from tests.waits import sleeping

ROWS = spread_history(7, rows=200, accounts=15)


pytestmark = pytest.mark.usefixtures("without_waits")


@pytest.fixture
def node():
    with node_of(ROWS) as node:
        yield node


def outcomes(folder):
    """How the runs ended, the last one first."""
    reports = sorted((folder / "_runs").iterdir(), reverse=True)
    return [json.loads(path.read_text())["outcome"] for path in reports]


def stalling_after(count):
    """Return faults that let a node answer so often, and then keep everybody waiting."""
    return lambda index, _: Fault(Kind.STALLED, 60) if index >= count else None


def metric(path, name):
    """Return the value of a metric that a file has once."""
    (value,) = re.findall(rf"_{name}\{{.*\}} (\S+)$", path.read_text(), re.MULTILINE)
    return float(value)


def test_export_makes_an_archive_of_every_row_and_says_so_in_one_line(node, tmp_path):
    metrics = tmp_path / "x.prom"
    result = run("export", tmp_path / "a", node.url, "--metrics-file", metrics)
    assert re.fullmatch(
        rf"{len(ROWS)} new rows from \S+ to \S+ in \d+ requests, \d+\.\d s: \S+\n", result.stderr
    )
    assert result.stdout == ""
    assert len(ba.Archive(tmp_path / "a").read()) == len(ROWS)
    assert (metric(metrics, "archive_rows"), metric(metrics, "exit_code")) == (len(ROWS), 0)
    assert "Nothing new" in run("export", tmp_path / "a", node.url).stderr
    assert run("export", tmp_path / "a", node.url, "-q").stderr == ""


def test_an_export_of_accounts_without_a_row_says_that_none_matches(node, tmp_path):
    said = run("export", tmp_path / "a", node.url, "--party-id", "f" * 64, code=3).stderr
    assert said.startswith("No row matches")


def test_an_export_from_a_node_without_a_row_is_incomplete(tmp_path):
    with node_of([]) as empty:
        said = run("export", tmp_path / "a", empty.url, code=3).stderr
    assert "covers nothing yet" in said


@pytest.mark.parametrize("command", ["export", "fetch"])
def test_every_option_reaches_the_node(command, node, tmp_path):
    row = next(row for row in ROWS if row.market_id and row.party_id != "network")
    run(
        command,
        *([tmp_path / "a", node.url] if command == "export" else [node.url, "-o", tmp_path / "x"]),
        *("--asset-id", row.asset_id, "--party-id", row.party_id, "--market-id", row.market_id),
        *("--account-type", "general", "--account-type", "bond", "--page-size", 7),
        *("--since", "2023-04-28", "--until", "2023-05-01"),
        code=3,  # the node begins later
    )
    asked = next(x.params for x in node.requests if x.params.get("filter.assetId"))
    assert asked["filter.partyIds"] == [row.party_id]
    assert asked["filter.marketIds"] == [row.market_id]
    assert sorted(asked["filter.accountTypes"]) == ["ACCOUNT_TYPE_BOND", "ACCOUNT_TYPE_GENERAL"]
    assert asked["pagination.first"] == ["7"]
    if command == "export":
        assert state_of(tmp_path / "a").evidence.bounds[1] == START + 2 * DAY + 4 * 3_600_000_000


def test_the_node_is_asked_no_more_than_the_rate_allows(node, tmp_path):
    rate = ("--max-requests-per-second", 0.01, "--page-size", 20)
    for command in (
        ("export", tmp_path / "a", node.url),
        ("fetch", node.url, "-o", tmp_path / "x"),
    ):
        before, waits = len(node.requests), []
        with sleeping(waits.append):
            run(*command, "--since", "2023-05-01", "--until", "2023-05-02", *rate)
        # A wait that isn't waited for is added to the next one.
        assert max(waits) > 50 * (len(node.requests) - before)
    run("export", tmp_path / "b", node.url, "--max-requests-per-second", 0, code=2)


def test_a_later_run_keeps_the_partition_of_the_first(node, tmp_path):
    run("export", tmp_path / "a", node.url, "--partition", "month", "--until", "2023-04-30")
    run("export", tmp_path / "a", node.url)
    assert sorted(state_of(tmp_path / "a").files) == ["2023-04", "2023-05"]


def test_a_dry_run_prints_the_intervals_to_ask_for_and_writes_nothing(node, tmp_path):
    metrics = tmp_path / "x.prom"
    said = run("export", tmp_path / "a", node.url, "--dry-run", "--metrics-file", metrics).stdout
    header, line = said.splitlines()
    assert header.split() == ["start", "end"]
    assert line.split() == ["2023-04-28T20:00Z", "2023-05-03T08:00:00.000001Z"]
    assert list(tmp_path.iterdir()) == []
    assert len(node.requests) < 10


def test_settings_come_from_the_environment(node, tmp_path):
    """Others' variables, such as Kubernetes sets beside a service of that name, are ignored."""
    env = {"EXPORT_UNTIL": "2023-05-01", "EXPORT_WORKERS": "2", "SERVICE_HOST": "10.0.0.1"}
    env = {f"BALANCE_ANALYSIS_{name}": value for name, value in env.items()}
    run("export", tmp_path / "a", node.url, env=env)
    assert state_of(tmp_path / "a").evidence.bounds[1] == START + 2 * DAY + 4 * 3_600_000_000
    run("export", tmp_path / "a", node.url, "--until", "2023-05-02", env=env)
    assert state_of(tmp_path / "a").evidence.bounds[1] == START + 3 * DAY + 4 * 3_600_000_000
    wrong = {"BALANCE_ANALYSIS_EXPORT_LAG": "soon"}
    said = run("export", tmp_path / "a", node.url, env=wrong, code=2).stderr
    assert "'soon' is not a duration" in said


def test_a_refused_connection_is_an_unavailable_source(tmp_path):
    with LoopbackNode() as node:
        url = node.url
    metrics = tmp_path / "x.prom"
    said = run("export", tmp_path / "a", url, "--metrics-file", metrics, code=4).stderr
    refusals = [line for line in said.splitlines() if "can't be reached" in line]
    assert len([line for line in refusals if "trying again" not in line]) == 1
    assert metric(metrics, "exit_code") == 4
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["_lock"]


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_signal_commits_what_is_complete_and_ends_with_130(tmp_path):
    with node_of(ROWS, faults=stalling_after(14)) as node:
        process = child(
            *("export", tmp_path / "a", node.url, "--since", "2023-04-28T20:00"),
            *("--page-size", 20, "--workers", 1, "--metrics-file", tmp_path / "x.prom"),
        )
        wait_for(lambda: len(node.requests) > 14)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.endswith("balance-analysis: interrupted\n")
    committed = r"^Complete parts are committed: \d\d+ new rows from \S+ to "
    assert re.search(committed, said, re.MULTILINE)
    assert outcomes(tmp_path / "a")[0] == "partial"
    assert metric(tmp_path / "x.prom", "exit_code") == 130
    node.faults = []
    with node_of(ROWS) as again:
        run("export", tmp_path / "a", again.url)
    assert len(ba.Archive(tmp_path / "a").read()) == len(ROWS)
    assert not state_of(tmp_path / "a").evidence.incomplete(START, END)


def test_a_signal_before_anything_is_complete_says_that_nothing_is_kept(tmp_path):
    with node_of(ROWS, faults=stalling_after(1)) as node:
        process = child("export", tmp_path / "a", node.url, "--since", "2023-04-28T20:00")
        wait_for(lambda: len(node.requests) > 1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Nothing new is committed" in said


def test_a_second_run_ends_with_75_and_names_the_first(tmp_path):
    metrics = tmp_path / "x.prom"
    metrics.write_text("of the first")
    with node_of(ROWS, faults=stalling_after(0)) as node:
        first = child("export", tmp_path / "a", node.url)
        wait_for(lambda: node.requests)
        said = run("export", tmp_path / "a", node.url, "--metrics-file", metrics, code=75).stderr
        first.kill()
        first.communicate()
    assert re.search(rf"process {first.pid} on \S+, since [\d:T-]+Z; try again", said)
    assert metrics.read_text() == "of the first"


def test_status_shows_what_an_archive_holds_and_ends_with_3_if_it_is_too_old(node, tmp_path):
    run("export", tmp_path / "a", node.url)
    assert re.search(r"^missing +none$", run("status", tmp_path / "a").stdout, re.MULTILINE)
    assert json.loads(run("status", tmp_path / "a", "--format", "json").stdout)["rows"] == len(ROWS)
    assert "more than 2h ago" in run("status", tmp_path / "a", "--max-age", "2h", code=3).stderr
    run("status", tmp_path / "a", "--max-age", "5000w")
    for form in ("table", "json"):
        assert run("status", tmp_path / "a", "-q", "--format", form).output == ""
    quiet = run("status", tmp_path / "a", "-q", "--max-age", "1h", code=3)
    assert (quiet.stdout, quiet.stderr.count("\n")) == ("", 1)


def test_status_of_an_archive_with_gaps_ends_with_3_when_asked(node, tmp_path):
    run("export", tmp_path / "a", node.url, "--since", "2023-04-29", "--until", "2023-04-30")
    run("status", tmp_path / "a", "--fail-on-gaps")
    before = ("--since", "2023-04-28T21:00", "--until", "2023-04-28T22:00")
    run("export", tmp_path / "a", node.url, *before)
    run("status", tmp_path / "a")
    said = run("status", tmp_path / "a", "--fail-on-gaps", code=3).stderr
    assert "unproven: 2023-04-28T22:00Z to 2023-04-29T00:00Z; " in said
    (fill,) = printed_commands(said)
    run(*fill)
    run("status", tmp_path / "a", "--fail-on-gaps")


def test_what_a_node_had_forgotten_before_the_beginning_is_unproven_too(node, tmp_path):
    asked = (tmp_path / "a", node.url, "--since", "2023-01-01", "--until", "2023-05-01")
    said = run("export", *asked, code=3).stderr
    assert "is not complete for 2023-01-01T00:00Z to 2023-04-28T20:00Z" in said
    run("export", *asked)
    result = run("status", tmp_path / "a", "--fail-on-gaps", code=3)
    assert re.search(r"^unproven +2023-01-01T", result.stdout, re.MULTILINE)
    assert "unproven: 2023-01-01T00:00Z to 2023-04-28T20:00Z; " in result.stderr
    both = run("status", tmp_path / "a", "--fail-on-gaps", "--max-age", "1d", code=3).stderr
    assert "more than 1d ago; missing or unproven: 2023-01-01" in both


OF_PARTIES = "--party-id", ROWS[0].party_id, "--party-id", "network"
OF_SOME = "--asset-id", ROWS[0].asset_id, "--account-type", ROWS[0].account_type, *OF_PARTIES


@pytest.mark.parametrize("filters", [(), OF_SOME], ids=["of all accounts", "of some"])
def test_a_damaged_manifest_is_made_again_and_proven_by_the_commands_that_are_named(
    filters, node, tmp_path
):
    folder = tmp_path / "my archive"
    run("export", folder, node.url, *filters)
    (folder / "_archive.json").write_text("{")
    (repair,) = printed_commands(run("status", folder, code=5).stderr)
    assert repair[:3] == ["export", str(folder), node.url]
    (fill,) = printed_commands(run(*repair).stderr)
    run("status", folder, "--fail-on-gaps", code=3)
    run(*fill)
    run("status", folder, "--fail-on-gaps")
    run("verify", folder)


def test_the_schedules_interval_is_not_asked_for_again_by_a_repair(node, tmp_path):
    env = {"BALANCE_ANALYSIS_EXPORT_SINCE": "2023-04-29"}
    run("export", tmp_path / "a", node.url, env=env)
    said = run("export", tmp_path / "a", node.url, "--repair", env=env).stderr
    assert "Nothing to repair" in said


def test_no_command_is_said_to_mend_limits_that_are_damaged(node, tmp_path):
    run("export", tmp_path / "a", node.url)
    damaged = tmp_path / "a" / "_limits.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    (only,) = printed_commands(run("export", tmp_path / "a", node.url, code=5).stderr)
    assert "restore a backup of it; otherwise remove it" in run(*only, code=5).stdout
    damaged.unlink()
    run("export", tmp_path / "a", node.url)
    run("verify", tmp_path / "a")


def test_verify_names_a_damaged_file_and_repair_mends_it(node, tmp_path):
    run("export", tmp_path / "a", node.url)
    damaged = min((tmp_path / "a" / "changes").rglob("*.parquet"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-9])
    assert damaged.parent.name in run("verify", tmp_path / "a", code=5).stdout
    assert "1 file damaged or gone" in run("status", tmp_path / "a", code=5).stderr
    show, mend = printed_commands(run("export", tmp_path / "a", node.url, code=5).stderr)
    run(*show, code=5)
    said = run(*mend).stderr
    assert "1 period requested again, 0 with different rows" in said
    assert damaged.read_bytes() == content
    assert "no problem" in run("verify", tmp_path / "a").stdout
    run("verify", tmp_path / "a", "--against", node.url)
