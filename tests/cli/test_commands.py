"""The command line does what the library does, and tells what went wrong in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pandas as pd
import pytest
import stamina

import balance_analysis as ba
from balance_analysis.cli import app
from balance_analysis.demo import sample_data
from tests.cli.running import child, fails, run
from tests.loopback import Fault, LoopbackNode, random_history

ROWS = random_history(7, rows=400, accounts=60, largest_block=20)
COMMANDS = [one.name or one.callback.__name__ for one in app.registered_commands]
LATE = 4_000_000_000 * 10**9
SAMPLE = str(sample_data() / "changes.parquet")
USD = "e46bed5b0745e4778e9be69108c8d9e81eedd6f92271ef8af77cff45d48a55b1"


@pytest.fixture(autouse=True)
def _without_waiting():
    with stamina.set_testing(True, attempts=3):
        yield


@pytest.fixture
def node():
    with LoopbackNode(ROWS) as node:
        yield node


def test_fetch_writes_every_row_of_the_node(node, tmp_path):
    run("fetch", node.url, "-o", tmp_path / "x.parquet", "--page-size", 7)
    table = ba.read_parquet(tmp_path / "x.parquet")
    assert len(table) == len(ROWS)
    ba.check_table(table)


def test_fetch_takes_every_filter_and_bound(node, tmp_path):
    node.block_timestamp = LATE
    row = next(row for row in ROWS if row.market_id and row.party_id != "network")
    start, end = "2023-04-01T00:00:00Z", "2023-05-01"
    run(
        *("fetch", node.url, "-o", tmp_path / "x.parquet", "--since", start, "--until", end),
        *("--asset-id", row.asset_id, "--party-id", row.party_id, "--market-id", row.market_id),
        *("--account-type", row.account_type.removeprefix("ACCOUNT_TYPE_").lower()),
        *("--account-type", "settlement"),
    )
    params = node.requests[0].params
    assert params["filter.assetId"] == [row.asset_id]
    assert params["filter.partyIds"] == [row.party_id]
    assert params["filter.marketIds"] == [row.market_id]
    assert params["filter.accountTypes"] == [row.account_type, "ACCOUNT_TYPE_SETTLEMENT"]
    expected = [r for r in ROWS if r.account == row.account]
    assert len(ba.read_parquet(tmp_path / "x.parquet")) == len(expected)


def test_relative_moments_are_counted_back_from_now(node, tmp_path):
    node.block_timestamp = LATE
    run("fetch", node.url, "-o", tmp_path / "x.parquet", "--since", "7d", "--until", "now-1h")
    loaded = ba.read_parquet(tmp_path / "x.parquet").attrs["balance_analysis"]
    start, end = pd.Timestamp(loaded["start"]), pd.Timestamp(loaded["end"])
    assert end - start == pd.Timedelta(days=7, hours=-1)
    assert abs(pd.Timestamp.now("UTC") - pd.Timedelta(hours=1) - end) < pd.Timedelta(minutes=5)


def test_nothing_to_load_is_a_success(node, tmp_path):
    node.block_timestamp = LATE
    run("fetch", node.url, "-o", tmp_path / "x.parquet", "--since", "1h")
    assert ba.read_parquet(tmp_path / "x.parquet").empty


def test_summary_prints_the_most_active_accounts(tmp_path):
    lines = run("summary", SAMPLE, "--limit", 5).stdout.splitlines()
    assert lines[0].split()[:4] == ["asset", "type", "party", "market"]
    assert len(lines) == 7
    assert "5 most active of 686" in lines[-1]
    assert max(map(len, lines)) < 200


def test_summary_as_csv_and_json_has_every_account_and_digit():
    accounts = ba.summarize_accounts(ba.read_parquet(SAMPLE))
    largest = str(accounts["maximum"].max())
    assert len(largest) == 29
    csv = run("summary", SAMPLE, "--format", "csv").stdout
    assert len(csv.splitlines()) == len(accounts) + 1
    assert largest in csv
    content = json.loads(run("summary", SAMPLE, "--format", "json").stdout)
    assert [row["maximum"] for row in content] == [str(x) for x in accounts["maximum"]]
    assert [row["rows"] for row in content] == accounts["rows"].tolist()


def test_summary_of_an_unknown_balance_says_so():
    arguments = ("--asset-id", USD, "--since", "2023-04-01", "--until", "2023-04-02")
    opening = [
        row["opening"]
        for row in json.loads(run("summary", SAMPLE, *arguments, "--format", "json").stdout)
    ]
    assert None in opening


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_plot_draws_what_the_name_says(kind, tmp_path):
    run("plot", SAMPLE, "-o", tmp_path / f"x.{kind}", "--account-type", "bond", "--since", "12d")
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert (tmp_path / f"x.{kind}").read_bytes().startswith(starts[kind])


def test_plot_of_several_assets_takes_the_one_with_most_rows_and_says_so(tmp_path):
    assert USD in run("plot", SAMPLE, "-o", tmp_path / "x.png").stderr


def test_limits_are_shown_and_written(node, tmp_path):
    text = run("limits", node.url, "-o", tmp_path / "limits.json").stdout
    assert re.search(r"can_propose_market +yes", text)
    content = json.loads(run("limits", node.url, "--format", "json").stdout)
    assert content["source"] == node.url
    assert ba.read_network_limits(tmp_path / "limits.json").genesis_loaded is True


def test_quiet_says_nothing_and_verbose_tells_requests(node, tmp_path):
    assert run("fetch", node.url, "-o", tmp_path / "x", "-q").stderr == ""
    assert "/api/v2/balance/changes" in run("fetch", node.url, "-o", tmp_path / "x", "-vv").stderr


def test_a_retry_is_told(tmp_path):
    with LoopbackNode(ROWS, faults=[Fault.status(503)]) as node:
        assert "503" in run("fetch", node.url, "-o", tmp_path / "x").stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("node.example.org", "https://node.example.org"),
        ("ftp://x", "not the address"),
        ("http://", "address"),
    ],
)
def test_a_wrong_address_is_usage(url, says, tmp_path):
    assert says in fails("fetch", url, "-o", tmp_path / "x", code=2, folder=tmp_path)


def test_a_refused_connection_is_an_unavailable_source(tmp_path):
    with LoopbackNode() as node:
        url = node.url
    said = fails("fetch", url, "-o", tmp_path / "x", "-q", code=4, folder=tmp_path)
    assert url in said
    assert "refused" in said


@pytest.mark.parametrize("command", ["fetch", "limits"])
def test_html_is_an_unavailable_source(command, tmp_path):
    with LoopbackNode(html=True) as node:
        said = fails(command, node.url, "-o", tmp_path / "x", code=4, folder=tmp_path)
    assert "web page" in said
    assert len(node.requests) == 1


def test_limits_before_the_first_block_are_an_unavailable_source(tmp_path):
    with LoopbackNode(limits=None) as node:
        assert "404" in fails("limits", node.url, code=4, folder=tmp_path)


def test_a_bad_row_is_bad_data(tmp_path):
    with LoopbackNode(ROWS, edit_row=lambda row: {**row, "balance": "1e5"}) as node:
        said = fails("fetch", node.url, "-o", tmp_path / "x", code=5, folder=tmp_path)
    assert "1e5" in said


def test_pages_that_do_not_add_up_are_incomplete(tmp_path):
    def empty(answer, _):
        answer["balances"]["edges"] = []
        answer["balances"]["pageInfo"]["hasNextPage"] = True
        return answer

    with LoopbackNode(ROWS, edit_page=empty) as node:
        arguments = ("fetch", node.url, "-o", tmp_path / "x", "--since", "2023-04-01")
        assert "sent none" in fails(*arguments, code=3, folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--account-type", "GENERALL"], "ACCOUNT_TYPE_GENERAL?"),
        (["--account-type", "GENERALL"], "new:"),
        (["--party-id", "abc"], "64 hex digits"),
        (["--market-id", ""], "empty market id"),
        (["--since", "2023-05-01", "--until", "2023-04-01"], "start must be before end"),
        (["--since", "2023-05-01", "--until", "2023-05-01"], "start must be before end"),
        (["--since", "yesterday"], "ISO 8601"),
    ],
)
def test_a_wrong_option_is_usage_and_sends_nothing(options, says, node, tmp_path):
    said = fails("fetch", node.url, "-o", tmp_path / "x", *options, code=2, folder=tmp_path)
    assert says in said
    assert node.requests == []


def test_a_newer_account_type_passes_on_purpose(node, tmp_path):
    node.edit_page = lambda answer, _: answer
    arguments = ("fetch", node.url, "-o", tmp_path / "x", "--since", "2023-04-01", "-q")
    said = fails(*arguments, "--account-type", "new:ACCOUNT_TYPE_X", code=4, folder=tmp_path)
    assert "ACCOUNT_TYPE_X" in said  # this node doesn't know it either, and says so


@pytest.mark.parametrize("path", ["missing/x.parquet", "folder"])
def test_an_unwritable_output_is_usage_and_sends_nothing(path, node, tmp_path):
    (tmp_path / "folder").mkdir()
    fails("fetch", node.url, "-o", tmp_path / path, code=2, folder=tmp_path)
    assert node.requests == []


def test_a_file_that_is_no_table_is_usage(tmp_path):
    (tmp_path / "x.parquet").write_text("not parquet")
    for command in (["summary"], ["plot", "-o", tmp_path / "x.png"]):
        said = fails(command[0], tmp_path / "x.parquet", *command[1:], code=2, folder=tmp_path)
        assert "x.parquet" in said


def test_a_file_that_is_not_there_is_usage(tmp_path):
    said = fails("summary", tmp_path / "none.parquet", code=2, folder=tmp_path)
    assert "none.parquet" in said


def test_a_picture_of_an_unknown_kind_is_usage(tmp_path):
    said = fails("plot", SAMPLE, "-o", tmp_path / "x.doc", "-q", code=2, folder=tmp_path)
    assert ".svg" in said


def test_the_version_is_the_package_s():
    assert run("--version").stdout == f"{ba.__version__}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS, "config show"])
def test_every_command_has_help(command):
    assert "Usage" in run(*command.split(), "--help").stdout


def test_a_failed_fetch_leaves_the_old_file(tmp_path):
    (tmp_path / "x.parquet").write_text("old")
    with LoopbackNode(html=True) as node:
        fails("fetch", node.url, "-o", tmp_path / "x.parquet", code=4, folder=tmp_path)
    assert (tmp_path / "x.parquet").read_text() == "old"


def test_ctrl_c_ends_a_fetch_at_once_and_writes_nothing(tmp_path):
    with LoopbackNode(ROWS, faults=lambda _i, _r: Fault.stalled(60)) as node:
        process = child("fetch", node.url, "-o", tmp_path / "x.parquet", "--since", "2023-04-01")
        while not node.requests:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert said == "balance-analysis: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_demo_cleanly(tmp_path):
    process = child("demo", "--out", tmp_path / "out", env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert "embedded node" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said == "balance-analysis: interrupted\n"
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix == ".tmp"]


def test_a_reader_that_leaves_early_is_no_error():
    with child("summary", SAMPLE, "--format", "csv") as process:
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("day", ["2023-03-01", "2023-04-18", "2023-06-01"])
def test_summary_of_a_quiet_day_is_a_table(day):
    lines = run("summary", SAMPLE, "--since", day, "--until", f"{day[:8]}22").stdout.splitlines()
    assert len(lines) == 22
    assert all(line.endswith("quiet") for line in lines[1:-1])


def test_summary_before_the_first_row_says_unknown():
    bounds = ("--since", "2023-03-01", "--until", "2023-03-02")
    assert "unknown" in run("summary", SAMPLE, *bounds).stdout


def test_output_through_a_link_replaces_what_it_points_to(node, tmp_path):
    (tmp_path / "real.parquet").write_text("old")
    (tmp_path / "link.parquet").symlink_to("real.parquet")
    run("fetch", node.url, "-o", tmp_path / "link.parquet", "--since", "2023-04-01")
    assert (tmp_path / "link.parquet").is_symlink()
    assert len(ba.read_parquet(tmp_path / "real.parquet")) == len(ROWS)


def test_output_that_is_no_regular_file_is_refused(node, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = fails("fetch", node.url, "-o", tmp_path / "pipe", code=2, folder=tmp_path)
    assert "no regular file" in said
    assert node.requests == []


def test_filters_that_match_no_row_of_a_file_are_told():
    assert "No row" in run("summary", SAMPLE, "--asset-id", "zz").stderr


def test_a_plot_of_an_empty_interval_is_usage(tmp_path):
    bounds = ("--since", "2023-05-01", "--until", "2023-04-01")
    fails("plot", SAMPLE, "-o", tmp_path / "x.png", "-q", *bounds, code=2, folder=tmp_path)
