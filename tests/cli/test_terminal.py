"""The command line in a terminal, in a pipe and in a shell, and what it says to swapped words."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import balance_analysis as ba
from balance_analysis import demo
from tests.cli.running import COMMANDS, GROUPS, SAMPLE, child, fails, printed_commands, run

NODE = "http://127.0.0.1:1"
PANELS = ("Ask a node", "Fill, check and serve an archive", "Look at what", "Try it")


@pytest.fixture(scope="module")
def archive(tmp_path_factory, sample_node):
    folder = tmp_path_factory.mktemp("kept") / "archive"
    assets = demo.sample_data() / "assets.toml"
    run("export", sample_node, folder, "--until", "2023-04-02", "--assets", assets)
    return str(folder)


# In a pipe

PRINTING = [  # by the parser, as text, as many bytes, and as an answer of a node
    "--help",
    f"summary {SAMPLE} --limit 0 --wide",
    f"series {SAMPLE} --freq 1h --layout wide",
    "doctor {node}",
]


@pytest.fixture(scope="module")
def sample_node():
    with demo.serve_sample() as url:
        yield url


@pytest.mark.parametrize("command", PRINTING)
def test_a_reader_that_leaves_early_is_no_error(command, sample_node):
    words = command.format(node=sample_node).split()
    with child(*words) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert said == ""
    assert process.returncode == 141


def test_a_shell_is_told_that_the_reader_left():
    line = f"set -o pipefail; {sys.executable} -m balance_analysis series {SAMPLE} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (141, 1, "")


# On a terminal


def on_a_terminal(*words, **environment):
    """What a command writes to a terminal."""
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "balance_analysis", *words]
    process = subprocess.Popen(command, stdout=follower, env={**os.environ, **environment})
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # its other end is closed
        while part := os.read(leader, 1 << 16):
            shown += part
    os.close(leader)
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [80, 200])
def test_what_sql_prints_fits_the_terminal_and_says_what_it_leaves_out(width, archive):
    hidden = ["asset_id", "market_id", "balance"] if width == 80 else []
    query = ("sql", archive, "from changes where symbol = 'tGOV'", "--limit", "0")
    header, *rows = on_a_terminal(*query, COLUMNS=str(width), NO_COLOR="1").splitlines()
    names = [*ba.ACCOUNT_KEY, "timestamp", "balance", "symbol", "amount"]
    assert header.split() == [name for name in names if name not in hidden]
    assert not hidden or rows.pop().startswith("... without asset_id, market_id, balance; --wide")
    assert max(map(len, [header, *rows])) <= width
    told = [Decimal(line.split()[-1]).scaleb(18) for line in rows]
    held = ba.Archive(archive).select(asset_id="tGOV").read()["balance"]
    assert sorted(told) == sorted(held)
    assert len(run(*query).stdout.splitlines()[0]) > 100


@pytest.mark.parametrize("width", [80, 200])
def test_what_doctor_prints_fits_the_terminal(width, sample_node):
    told = on_a_terminal("doctor", sample_node, COLUMNS=str(width)).splitlines()
    assert 70 < max(map(len, told)) <= min(width, 100)


QUIET_DAYS = ("summary", SAMPLE, "--until", "2023-03-22", "--since", "2023-03-01", "--wide")


def test_colours_are_for_terminals_and_only_if_wanted():
    plain, shown = run(*QUIET_DAYS).stdout, on_a_terminal(*QUIET_DAYS, NO_COLOR="")
    assert "\033" not in plain
    assert shown.startswith("\033[1masset")
    assert "\033[2m" in shown.splitlines()[1]
    bare = re.sub(r"\033\[\d+m", "", shown)
    assert [*map(str.rstrip, bare.splitlines())] == [*map(str.rstrip, plain.splitlines())]
    assert on_a_terminal(*QUIET_DAYS, NO_COLOR="1") == plain


# Help and completion


def test_help_lists_every_command_once_under_what_it_is_about():
    said = run("--help").stdout
    named = [*COMMANDS, *GROUPS]
    lines = said.splitlines()
    assert all(any(line.startswith(panel) for line in lines) for panel in PANELS)
    starts = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3].strip()]
    assert {name: starts.count(name) for name in named} == dict.fromkeys(named, 1)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("verif", "verify"),
        ("config s", "show"),
        ("plot --ki", "--kind"),
        ("plot --kind cov", "coverage"),
        ("summary some_fi", ""),  # bash itself completes files
    ],
)
def test_bash_completes_commands_options_and_values(typed, completed, tmp_path):
    program = tmp_path / "balance-analysis"
    program.write_text(f"#!{sys.executable}\nfrom balance_analysis.cli import main\nmain()\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path(ba.__file__).parents[1])
    script = f"""
        source <(_BALANCE_ANALYSIS_COMPLETE=source_bash balance-analysis)
        COMP_WORDS=(balance-analysis {typed}) COMP_CWORD={len(typed.split())}
        _balance_analysis_completion balance-analysis
        echo "${{COMPREPLY[*]}}"; complete -p balance-analysis
    """
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    replied, registered = done.stdout.splitlines()
    assert (replied, done.stderr) == (completed, "")
    assert registered.startswith("complete -o default ")


# Swapped words

EXPORTED = ("export", NODE, "archive")
FETCHED = ("fetch", NODE, "-o", "changes.parquet")


@pytest.mark.parametrize(
    ("command", "says", "instead"),
    [
        (("export", "{archive}", NODE), "the archive comes last", ("export", NODE, "{archive}")),
        (("export", NODE), "the archive comes last", EXPORTED),
        (
            ("export", NODE, "http://b:2"),
            "the archive comes last",
            ("export", NODE, "http://b:2", "archive"),
        ),
        (("export", NODE, SAMPLE), "is a file, not an archive", ("summary", SAMPLE)),
        (("export", NODE, "{archive}", "other"), "is an archive, not", ("status", "{archive}")),
        (("fetch", SAMPLE, "-o", "x"), "is a file, not the address", ("summary", SAMPLE)),
        (("fetch", NODE, "{archive}", "-o", "x"), "is an archive", ("status", "{archive}")),
        (("limits", "{archive}"), "is an archive, not", ("status", "{archive}")),
        (("doctor", SAMPLE), "is a file, not", ("summary", SAMPLE)),
        (("status", NODE), "is the address of a node, not an archive", EXPORTED),
        (("status", SAMPLE), "is a file, not an archive", ("summary", SAMPLE)),
        (("verify", SAMPLE), "is a file, not an archive", ("summary", SAMPLE)),
        (("serve", NODE), "is the address of a node", EXPORTED),
        (("serve", SAMPLE), "is a file, not an archive", ("summary", SAMPLE)),
        (("summary", NODE), "not a file or an archive", FETCHED),
        (("series", NODE), "not a file or an archive", FETCHED),
        (("plot", NODE, "-o", "x.png"), "not a file or an archive", FETCHED),
        (("report", NODE, "-o", "x.html"), "not a file or an archive", FETCHED),
    ],
)
def test_what_is_swapped_is_told_with_what_to_write_instead(
    command, says, instead, archive, tmp_path
):
    words = [word.format(archive=archive) for word in command]
    said = fails(*words, code=2, folder=tmp_path)
    assert says in said
    assert printed_commands(said) == [[word.format(archive=archive) for word in instead]]


def test_an_archive_without_a_node_names_the_one_that_filled_it(sample_node, tmp_path):
    run("export", sample_node, tmp_path / "a", "--until", "2023-04-02")
    said = fails("export", tmp_path / "a", code=2, folder=tmp_path)
    assert printed_commands(said) == [["export", sample_node, str(tmp_path / "a")]]


# Slips


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fetch http://x -o x.parquet --page-size x", "--page-size must be a valid integer (`"),
        ("serve --demo --port 99999", "--port must be less than or equal to 65535 (`"),
        (f"plot {SAMPLE} -o x.png --kind foo", "--kind: 'foo' is not one of 'balances', "),
        ("fetch http://x", "Missing option '-o' / '--output' (`"),
        ("fetchx", "No such command 'fetchx'. Did you mean 'fetch'? (`"),
        ("export --lag", "Option '--lag' requires an argument"),
    ],
)
def test_an_option_that_cannot_be_used_is_told_in_one_line(words, said, tmp_path):
    assert fails(*words.split(), code=2, folder=tmp_path).startswith(f"balance-analysis: {said}")
