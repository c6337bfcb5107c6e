"""Runs commands: in this process, or in a child that can be interrupted."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from unittest import mock

import pandas as pd
import typer.testing
from typer.testing import CliRunner

from balance_analysis.cli import app
from tests.loopback import Fault, Kind
from tests.waits import eventually

# The group is built once, as in a process: typer's runner would build it for each run.
typer.testing._get_command = cache(typer.testing._get_command)
GROUP = typer.testing._get_command(app)

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
SAMPLE = str(SAMPLE_DATA / "changes.parquet")
ONE_LINE = r"(balance-analysis: |Usage: .+\n.+\n\nError: )[^\n]+\n"
"""What went wrong; where the parser says it, below how the command is used."""

COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}


def invoke(arguments, env=None):
    """Run a command in this process, and return its exit code and output."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)


def run(*arguments, code=0, env=None):
    result = invoke(arguments, env)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def write_to(stream, *arguments, **environment):
    """Run a successful command whose output goes to a given stream."""
    with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(stream):
        assert not app([*map(str, arguments)], standalone_mode=False)
    stream.flush()


def on_a_terminal(*arguments, **environment):
    """Return a successful command's output on a terminal."""
    leader, follower = os.openpty()
    with ThreadPoolExecutor(1) as pool, os.fdopen(leader, "rb", buffering=0) as screen:
        shown = pool.submit(_read_all, screen)
        with os.fdopen(follower, "w", encoding="utf-8") as terminal:
            write_to(terminal, *arguments, **environment)
        return shown.result().decode().replace("\r\n", "\n")


def _read_all(screen):
    parts = []
    with contextlib.suppress(OSError):  # Linux says so of the end of a terminal
        while part := screen.read(1 << 16):
            parts.append(part)
    return b"".join(parts)


def fails(*arguments, code, folder):
    """Run a command that fails as documented: one line, no traceback, nothing written."""
    before = content_of(folder)
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert re.fullmatch(ONE_LINE, result.stderr)
    assert content_of(folder) == before
    return result.stderr


def moment(microseconds):
    return pd.Timestamp(microseconds, unit="us", tz="UTC")


def content_of(folder):
    """Return every file's bytes, and the targets of links."""
    return {
        path: path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


def printed_commands(said):
    """Arguments of the commands in a message, as a shell would split them."""
    return [shlex.split(line)[1:] for line in re.findall("`(balance-analysis [^`]+)`", said)]


DAMAGES = {"spoil": lambda path: path.write_bytes(path.read_bytes()[:-9]), "remove": Path.unlink}


def play(session, archive, **places):
    """Run commands one after the other, each with its exit code and a pattern of its output.

    A command may begin with variables of the environment. `{a}` is the archive, and `{last}` the
    last command that a message named; `spoil` and `remove` are done to a file of the archive.
    """
    places, last = {name: shlex.quote(str(place)) for name, place in places.items()}, []
    for line, code, says in session:
        words = shlex.split(line.format(a=shlex.quote(str(archive)), last="", **places)) or last
        if words[0] in DAMAGES:
            DAMAGES[words[0]](archive / words[1])
            continue
        env = dict(word.split("=") for word in words if re.match("[A-Z_]+=", word))
        env = {f"BALANCE_ANALYSIS_{name}": value for name, value in env.items()}
        said = run(*words[len(env) :], code=code, env=env).output
        assert re.search(says, said, re.MULTILINE), (line, said)
        (last,) = printed_commands(said)[-1:] or [last]


def child(*arguments, program=("-m", "balance_analysis"), **options):
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def waiting(node, count, *arguments):
    """Return a child that runs a command, once it waits for the answer after the given ones."""
    node.faults = lambda index, _: Fault(Kind.STALLED, 60) if index >= count else None
    process = child(*arguments)
    eventually(lambda: len(node.requests) > count)
    return process


def interrupted(process, number=signal.SIGINT):
    """Send a signal to a child, check that it ends as documented, and return its output."""
    time.sleep(0.2)  # it may still be busy with the last answer
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.endswith("balance-analysis: interrupted\n")
    return said
