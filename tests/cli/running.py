"""Runs commands: in this process, or in a child that can be interrupted."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import typer.testing
from typer.testing import CliRunner

from balance_analysis.cli import app
from tests.archive.exporting import spread_history

# The commands are built once, as in a process: typer's runner would build them for each run.
typer.testing._get_command = cache(typer.testing._get_command)

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
SAMPLE = str(SAMPLE_DATA / "changes.parquet")
ROWS = spread_history(7, rows=200, accounts=15)
COMMANDS = [one.name or one.callback.__name__ for one in app.registered_commands]


def invoke(arguments, env=None):
    """Return how a command ended in this process, and what it printed."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)


def run(*arguments, code=0, env=None):
    result = invoke(arguments, env)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def fails(*arguments, code, folder):
    """Run a command that fails as documented: one line, no traceback, nothing written."""
    before = _content(folder)
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert re.fullmatch(r"balance-analysis: [^\n]+\n", result.stderr)
    assert _content(folder) == before
    return result.stderr


def written(path):
    """Return the rows of a file, by its ending; cells of CSV and Excel are text."""
    match path.suffix:
        case ".csv":
            return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        case ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        case ".parquet":
            return pq.read_table(path).to_pylist()
    return pd.read_excel(path, dtype=str).to_dict("records")


def moment(microseconds):
    return pd.Timestamp(microseconds, unit="us", tz="UTC")


def _content(folder):
    return {path: path.is_file() and path.read_bytes() for path in sorted(folder.rglob("*"))}


def printed_commands(said):
    """Arguments of the commands that a message names, as a shell would take them from there."""
    return [shlex.split(line)[1:] for line in re.findall("`(balance-analysis [^`]+)`", said)]


def child(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "balance_analysis", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
