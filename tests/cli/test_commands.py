"""The command line does what the library does, and says what went wrong in one line."""

import json
import re
import signal
import tempfile
import time
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import ROWS, node_of
from tests.cli.running import COMMANDS, SAMPLE, child, fails, interrupted, play, run, waiting
from tests.loopback import Fault, spoilt

LATE = 4_000_000_000 * 1_000_000


def test_relative_moments_are_counted_back_from_now(tmp_path):
    last = ROWS[-1]._replace(time=(int(time.time()) - 30 * 86_400) * 10**6)
    words = ("-o", tmp_path / "x.parquet", "--since", "7d", "--until", "now-1h")
    with node_of([*ROWS, last], head=LATE) as living:
        run("fetch", living.url, *words)
    loaded = ba.read_parquet(tmp_path / "x.parquet").attrs["balance_analysis"]
    start, end = pd.Timestamp(loaded["start"]), pd.Timestamp(loaded["end"])
    assert end - start == pd.Timedelta(days=7, hours=-1)
    assert abs(pd.Timestamp.now("UTC") - pd.Timedelta(hours=1) - end) < pd.Timedelta(minutes=5)


def test_summary_prints_the_most_active_accounts():
    accounts = ba.summarize_accounts(ba.read_parquet(SAMPLE))
    lines = run("summary", SAMPLE, "--limit", 9).stdout.splitlines()
    assert lines[0].split()[:4] == ["asset", "type", "party", "market"]
    assert len(lines) == 11
    assert lines[-1] == "... 9 of 686 rows; --limit 0 shows all"
    assert max(map(len, lines)) <= 80
    place = lines[0].index("rows") + len("rows")
    shown = [int(line[:place].split()[-1].replace(",", "")) for line in lines[1:-1]]
    assert shown == [*accounts["rows"].nlargest(9)]
    wide = run("summary", SAMPLE, "--limit", 5, "--wide").stdout.splitlines()
    assert {*accounts} <= {*wide[0].split()}
    first = accounts.nlargest(1, "rows").iloc[0]
    assert {first["party_id"], str(first["maximum"])} < {*wide[1].split()}


@given(
    ids=st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=5),
    symbol=st.text(max_size=30),
    balance=st.integers(0, 10**38 - 1),
)
@settings(max_examples=6)
def test_a_summary_of_any_accounts_fits_80_columns(ids, symbol, balance):
    rows = pd.DataFrame(
        {
            **dict.fromkeys(("asset_id", "party_id", "market_id"), sorted({*ids})),
            "account_type": "ACCOUNT_TYPE_LIQUIDITY_FEES_BONUS_DISTRIBUTION",
            "timestamp": pd.Timestamp("2023-04-01", tz="UTC"),
            "balance": Decimal(balance),
        }
    )
    symbol = symbol if symbol.isprintable() else "x"
    with tempfile.TemporaryDirectory() as folder:
        path, assets = Path(folder) / "x.parquet", Path(folder) / "assets.json"
        ba.write_parquet(rows, path)
        assets.write_text(json.dumps({ids[0]: {"symbol": symbol, "decimals": 0}}))
        header, *lines = run("summary", path, "--assets", assets).stdout.splitlines()
    assert max(map(len, [header, *lines])) <= 80
    assert {"asset", "type", "party", "market", "closing"} <= {*header.split()}
    names = header.split()
    for line in lines:
        shown = line.split()[names.index("closing") - len(names)]
        assert float(shown.replace(",", "")) == pytest.approx(balance, rel=1e-3)


def test_limits_are_written(node, tmp_path):
    result = run("limits", node.url, "-o", tmp_path / "limits.json")
    assert result.stderr == f"Wrote {tmp_path / 'limits.json'}\n"
    assert ba.read_network_limits(tmp_path / "limits.json").genesis_loaded is True


REFUSED = r"\A[^\n]+refused[^\n]+\n\Z"
SAID = {
    "--version": (0, rf"\A{re.escape(ba.__version__)}\n\Z"),
    **{f"{command} --help": (0, "Usage") for command in ("", *COMMANDS)},
    "fetch {url} -o {a} -q": (0, r"\A\Z"),
    "fetch {url} -o {a}": (0, r"\A160 rows from [^\n]+\n\Z"),
    f"fetch {{url}} -o {{a}} --party-id {'f' * 64}": (0, r"\A0 rows .+\nNo row matches; .+\n\Z"),
    "fetch {url} -o {a} -vv": (0, "/api/v2/balance/changes"),
    "fetch {nowhere} -o {a} -q": (4, REFUSED),
    "doctor {nowhere} -q": (4, REFUSED),
    "diff {nowhere} {nowhere} -q": (4, REFUSED),
    "limits {url}": (0, r"^can_propose_market +yes(.|\n)+^can_propose_spot_market +yes"),
    "limits {url} --format json": (0, r'^ +"source": "http'),
    "doctor {url}": (0, r"\Ahttp.*\n\nok +reachable(.|\n)+\nWARNING +cursors +Cursors lose"),
    "doctor {url} --format json": (0, r'\A{\s+"node": "http(.|\n)+"name": "cursors"'),
}


@pytest.mark.parametrize(("line", "code", "says"), [(line, *SAID[line]) for line in SAID])
def test_a_command_exits_with_its_code_and_a_message(line, code, says, node, tmp_path):
    play([(line, code, says)], tmp_path / "x", url=node.url, nowhere="http://127.0.0.1:1")


WRONG_NODES = {
    "a web page": ({"faults": lambda *_: Fault.html(200)}, 4, "web page"),
    "a bad row": ({"edit_row": spoilt(bool, balance="1e5")}, 5, "1e5"),
    "pages that don't add up": ({"ignores": ["pagination.newestFirst"]}, 3, "out of order"),
}


@pytest.mark.parametrize(("how", "code", "says"), WRONG_NODES.values(), ids=WRONG_NODES)
def test_a_wrong_answer_ends_a_fetch_with_its_code(how, code, says, tmp_path):
    words = ("-o", tmp_path / "x", "--since", "2023-04-01")
    with node_of(ROWS, **how) as node:
        assert says in fails("fetch", node.url, *words, code=code, folder=tmp_path)


def test_ctrl_c_ends_a_fetch_at_once_and_writes_nothing(tmp_path):
    with node_of(ROWS) as node:
        process = waiting(node, 0, "fetch", node.url, "-o", tmp_path / "x.parquet")
        assert interrupted(process) == "balance-analysis: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_output_through_a_link_replaces_the_links_target(node, tmp_path):
    (tmp_path / "real.parquet").write_text("old")
    (tmp_path / "link.parquet").symlink_to("real.parquet")
    run("fetch", node.url, "-o", tmp_path / "link.parquet")
    assert (tmp_path / "link.parquet").is_symlink()
    assert len(ba.read_parquet(tmp_path / "real.parquet")) == len(ROWS)


STARTING = """
import runpy, sys, threading

slow, *sys.argv = sys.argv[1:]

class Slow:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == slow:
            print("importing", flush=True)
            threading.Event().wait(60)

sys.meta_path.insert(0, Slow)
runpy.run_module("balance_analysis", run_name="__main__")
"""


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "typer"), (signal.SIGINT, "pandas")])
def test_a_signal_while_python_imports_ends_with_130_in_one_line(number, name):
    program = ["-c", STARTING, name, "balance-analysis"]
    with child("summary", SAMPLE, program=program) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        said = process.communicate()
    assert (process.returncode, *said) == (130, "", "balance-analysis: interrupted\n")
