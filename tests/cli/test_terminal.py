"""The command line in a terminal, in a pipe and in a shell."""

import errno
import io
import os
import re
import shlex
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import balance_analysis as ba
from tests.cli.running import COMMANDS, SAMPLE, on_a_terminal, run, write_to

PANELS = ("Query a node", "Fill, check and serve an archive", "Show the contents", "Try it")


# In a pipe


def test_a_closed_pipe_is_not_a_parsing_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "balance_analysis", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


SHELL = {
    f"series {SAMPLE} | head -1": (141, 1, ""),
    f"summary {SAMPLE} --format csv > /dev/full": (74, 0, os.strerror(errno.ENOSPC)),
    f"summary {SAMPLE} -o x.csv >&- && test -s x.csv": (0, 0, "686 rows: x.csv"),
    f"summary {SAMPLE} -o x.csv 2>&- && test -s x.csv": (0, 0, ""),
}


@pytest.mark.parametrize(("line", "code", "lines", "says"), [(x, *SHELL[x]) for x in SHELL])
def test_a_shell_gets_the_exit_code_of_a_closed_pipe_or_a_missing_stream(
    line, code, lines, says, tmp_path
):
    line = f"set -o pipefail; {sys.executable} -m balance_analysis {line}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("\n")) == (code, lines)
    assert done.stderr.removeprefix("balance-analysis: ") == (says and f"{says}\n")


# On a terminal


@pytest.mark.parametrize("width", [80, 200])
def test_printed_sql_rows_fit_the_terminal_and_name_omitted_columns(width, sample):
    chosen = "from changes where symbol = 'tGOV' and timestamp < '2023-04-02'"
    query = ("sql", sample.uri, chosen, "--limit", "0")
    header, *rows = run(*query, env={"COLUMNS": str(width)}).stdout.splitlines()
    names = [*ba.ACCOUNT_KEY, "timestamp", "balance", "symbol", "amount"]
    hidden = [name for name in names if name not in header.split()]
    assert header.split() == [name for name in names if name not in hidden]
    assert {"timestamp", "symbol", "amount"} <= {*header.split()}
    assert bool(hidden) == (width == 80)
    assert not hidden or rows.pop() == f"... without {', '.join(hidden)}; --wide shows all columns"
    assert max(map(len, [header, *rows])) <= width
    held = sample.select(asset_id="tGOV").read(end="2023-04-02")["balance"]
    if not hidden:
        assert sorted(Decimal(line.split()[-1]).scaleb(18) for line in rows) == sorted(held)
    assert len(rows) == len(held)


def test_the_doctors_report_fits_the_terminal(sample_node):
    for width in (80, 200):
        said = run("doctor", sample_node, env={"COLUMNS": str(width)}).stdout.splitlines()
        assert 70 < max(map(len, said)) <= min(width, 100)


QUIET_DAYS = ("summary", SAMPLE, "--until", "2023-03-22", "--since", "2023-03-01", "--wide")


def test_colours_are_printed_only_on_terminals_and_if_wanted():
    plain, shown = run(*QUIET_DAYS).stdout, on_a_terminal(*QUIET_DAYS, NO_COLOR="")
    assert all("unknown" in line for line in plain.splitlines()[1:-1])
    assert "\033" not in plain
    assert shown.startswith("\033[1masset")
    assert "\033[2m" in shown.splitlines()[1]
    bare = re.sub(r"\033\[\d+m", "", shown)
    assert [*map(str.rstrip, bare.splitlines())] == [*map(str.rstrip, plain.splitlines())]
    assert on_a_terminal(*QUIET_DAYS, NO_COLOR="1") == plain


def test_a_stream_that_cant_encode_a_character_gets_its_code_and_the_whole_table():
    held = io.BytesIO()
    write_to(io.TextIOWrapper(held, encoding="cp437"), "summary", SAMPLE, "--limit", 5)
    shown = held.getvalue().decode("cp437").splitlines()
    assert len(shown) == 7
    assert any("790919..9728" in line for line in shown)


# Help and completion


def test_help_lists_every_command_once_in_its_panel():
    lines = run("--help").stdout.splitlines()
    assert all(any(line.startswith(panel) for line in lines) for panel in PANELS)
    starts = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3].strip()]
    assert {name: starts.count(name) for name in COMMANDS} == dict.fromkeys(COMMANDS, 1)


COMPLETED = {
    "plot --kind cov": "coverage",
    "summary some_fi": "",  # bash itself completes files
}


def test_bash_completes_commands_options_and_values(tmp_path):
    program = tmp_path / "balance-analysis"
    program.write_text(f"#!{sys.executable}\nfrom balance_analysis.cli import main\nmain()\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path(ba.__file__).parents[1])
    script = f"""
        source <(_BALANCE_ANALYSIS_COMPLETE=source_bash balance-analysis)
        for typed in {shlex.join(COMPLETED)}; do
            COMP_WORDS=(balance-analysis $typed)
            COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _balance_analysis_completion balance-analysis
            echo "${{COMPREPLY[*]}}"
        done
        complete -p balance-analysis
    """
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    *replied, registered = done.stdout.splitlines()
    assert (replied, done.stderr) == ([*COMPLETED.values()], "")
    assert registered.startswith("complete -o default ")
