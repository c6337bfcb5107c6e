"""The commands in the notebook on archives run as written, one after the other."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.archive.exporting import node_of, spread_history
from tests.cli.running import run
from tests.moments import to_microseconds

ROOT = Path(__file__).parents[2]
NOTEBOOK = nbformat.read(ROOT / "notebooks" / "03_archives.ipynb", as_version=4)
TEXT = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown")
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)).splitlines()
START, END = map(to_microseconds, ("2023-04-19", "2023-05-01"))
ROWS = [
    row._replace(balance=row.balance % 10**20)
    for row in spread_history(7, start=START, end=END, rows=30, accounts=5)
]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_command_of_the_notebook_does_what_the_notebook_says(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    with node_of(ROWS, head=END) as node:
        places = {"http://127.0.0.1:3008": node.url, "s3://bucket/archive": address}
        for line in COMMANDS:
            command = re.sub("|".join(places), lambda match: places[match[0]], line)
            code = int((re.findall(r"# exit code (\d+)", line) or [0])[0])
            if command.startswith("balance-analysis"):
                quoted = re.sub(re.escape(address), lambda match: shlex.quote(match[0]), command)
                run(*shlex.split(quoted, comments=True)[1:], code=code)
            else:
                subprocess.run(["sh", "-c", command], check=True)
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("code", re.findall(r"^\| (\d+) \|", README, re.MULTILINE)[1:])
def test_the_notebook_says_what_to_do_at_each_exit_code(code):
    assert re.search(rf"^\| {code} \| .+ \| .+ \|$", TEXT, re.MULTILINE)


def test_the_notebooks_figures_bound_the_measured_ones():
    measured = (ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    for bound, row in {
        r"a fetch takes less than ([\d,]+) MB": r"8,000,000 rows, fetch, 1 worker, memory \| (\d+)",
        r"20,000,000 rows takes less than ([\d,]+) MB": (
            r"20,000,000 rows, read whole \| ([\d,]+) .* MB"
        ),
        r"service\*\* of 20,000,000 rows takes less than ([\d,]+) MB": r"\| the service \| (\d+)",
    }.items():
        most, used = (
            int(re.search(pattern, text)[1].replace(",", ""))
            for pattern, text in ((bound, TEXT), (row, measured))
        )
        assert most / 2 < used < most
