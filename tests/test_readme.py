"""Everything that README shows runs as written."""

import contextlib
import re
import shlex
import shutil
import sqlite3
import textwrap
import tomllib
from decimal import Decimal
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
import requests

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.cli import EXIT_CODES
from tests.cli.running import COMMANDS, SAMPLE, run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTEBOOKS = "\n".join(
    cell.source
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    for cell in nbformat.read(path, as_version=4).cells
    if cell.cell_type == "markdown"
)


def blocks(language):
    pattern = rf"^( *)```{language}\n(.*?)^ *```"
    matches = re.findall(pattern, README, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in matches]


def test_readme_is_short():
    assert len(README.encode()) <= 10_000


def test_the_oldest_python_is_the_same_everywhere_and_classifiers_name_tested_ones():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert f"With Python {oldest} or newer:" in README
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tried = re.findall(r"python(3\.\d+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert named[0] == oldest
    assert set(named) <= set(tried)


def test_the_python_quickstart_runs(tmp_path, monkeypatch):
    (block,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    exec(block, {"__name__": "__main__"})
    plt.close("all")
    assert not ba.read_parquet(tmp_path / "changes.parquet").empty
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"changes.parquet", "noon.csv", "pools.png"}


def test_the_command_line_quickstart_runs(tmp_path, monkeypatch, sample_node):
    (_, _, served, script) = blocks("sh")
    # A few days have fewer rows: the first five, in the order of those that README names.
    script = script.replace("2023-05-01", "2023-04-16")
    script = re.sub(r"2023-04-(\d\d)", lambda day: f"2023-04-{int(day[1]) // 4 + 1:02}", script)
    assert served.strip() == "balance-analysis serve --demo"  # which test_server.py runs
    (tmp_path / "demo").mkdir()
    shutil.copy(demo.sample_data() / "assets.toml", tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    for line in script.replace("http://127.0.0.1:3008", sample_node).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            monkeypatch.setenv(*words[1].split("="))
        elif words:
            assert words[0] == "balance-analysis"
            if words[1] != "report":  # which test_demo.py runs
                run(*words[1:])  # also `diff`: both have the same history
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"demo", "changes.parquet", "pools.xlsx", "archive", "totals.svg"}


def test_files_that_the_quickstarts_write_are_ignored_by_git():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    written = re.findall(r"[\w.]+\.(?:csv|parquet|png|svg|xlsx|html)\b", "".join(blocks("python")))
    written += re.findall(r"-o ([\w.]+)", "".join(blocks("sh")))
    assert {f"/{name}" for name in [*written, "archive/"]} <= {*ignored}


def test_the_served_archives_example_requests_are_answered(sample_node):
    (asked,) = re.findall(r"curl 'http://127\.0\.0\.1:3008(.*)'", NOTEBOOKS)
    answer = requests.get(sample_node + asked, timeout=10).json()
    assert len(answer["balances"]["edges"]) == 5


def test_the_set_up_commands_are_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    assert {"demo", "test", "reference"} == set(re.findall(r"make (\w+)", README)) <= targets


def test_every_exit_code_is_documented():
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert documented == {0, *EXIT_CODES.values()}


def test_every_command_is_documented():
    assert all(f"balance-analysis {command}" in README + NOTEBOOKS for command in COMMANDS)


def test_readmes_figures_of_speed_are_the_measured_ones():
    (said,) = re.findall(r"500,000 rows load in .*? as a plain loop", README)
    figure = r"\d[\d.,]* (?:s|ms|MB|times|\u00d7)\b"
    assert re.findall(figure, README) == re.findall(figure, said)
    assert said in (ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


PAGES = {ROOT: README, ROOT / "notebooks": NOTEBOOKS} | {
    folder: (folder / "README.md").read_text(encoding="utf-8")
    for folder in (ROOT / "tests", ROOT / "tests" / "benchmarks")
}


@pytest.mark.parametrize("folder", PAGES, ids=lambda folder: folder.name)
def test_every_picture_and_link_exists(folder):
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGES[folder])
    assert targets
    assert all((folder / target).exists() for target in targets)


(TABLE,) = re.findall(r"^\| fails in pandas \|.*\n((?:\|.*\n)+)", NOTEBOOKS, re.MULTILINE)
PANDAS = re.findall(r"^\| `(.+?)`( \(rounds\))? \| (.+) \|$", TABLE, re.MULTILINE)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names that the quickstart defines, run in its own folder."""
    folder = tmp_path_factory.mktemp("pandas")
    table = ba.read_parquet(SAMPLE, assets=demo.sample_assets())[::60]
    ba.write_parquet(table, folder / "changes.parquet")
    with contextlib.chdir(folder):
        yield {
            "ba": ba,
            "pd": pd,
            "Decimal": Decimal,
            "table": table,
            "balance": table["balance"],
            "whole": ba.to_units(table),
            "exact": ba.to_integers(table),
        }
    plt.close("all")


def test_everything_that_pandas_cant_do_is_listed():
    verbs = "diff pct_change describe nlargest / * cumsum hist > to_excel to_sql read_parquet"
    for verb in verbs.split():
        assert any(verb in code for code, _, _ in PANDAS)


@pytest.mark.parametrize(("code", "rounds", "advice"), PANDAS)
def test_pandas_still_cant_do_it_and_the_advice_works(code, rounds, advice, names):
    # The advice also works on a connection on which a statement has failed.
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        known = {**names, "connection": connection}
        if not rounds:
            with pytest.raises(Exception, match=r"."):
                eval(code, known)
        for better in re.findall(r"`([^`]+)`", advice):
            value = eval(better, known)
            if rounds:
                assert eval(code, known) != value == names["exact"]["balance"].sum()
