"""Run the benchmarks and write the page of results: `python -m tests.benchmarks [PART ...]`.

Each part is a process of its own, so that one that fails takes none of the others with it. A part
that isn't named keeps the figures that it measured last, in `.benchmarks`.
"""

import importlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

from tests.benchmarks.figures import CHECKOUT, Figure, environment, module

PARTS = {"startup": 3, "loads": 3, "reconstruct": 3, "archives": 1, "service": 3, "pictures": 3}
"""The parts, each with its rounds, chosen so that all end within 20 minutes on two processors."""

LONGEST = 900
"""Seconds after which a part is given up."""

RECORDS = CHECKOUT / ".benchmarks"
PAGE = CHECKOUT / "tests" / "benchmarks" / "RESULTS.md"
README = CHECKOUT / "README.md"
PACKAGES = ("numpy", "pandas", "pyarrow", "msgspec", "polars", "duckdb")


class Record(msgspec.Struct, rename={"load": "load before"}):
    """A part's measurements, with their time, the commit and the machine's load before."""

    figures: list[Figure]
    commit: str
    date: str
    seconds: float
    load: float


def main(names: list[str]) -> int:
    if unknown := {*names} - {*PARTS}:
        sys.exit(f"there is no benchmark {min(unknown)}; there are {', '.join(PARTS)}")
    RECORDS.mkdir(exist_ok=True)
    for name in names or PARTS:
        run_part(name)
    records = {
        name: msgspec.json.decode(record_of(name).read_bytes(), type=Record)
        for name in PARTS
        if record_of(name).exists()
    }
    failed = ", ".join(name for name in PARTS if name not in records)
    PAGE.write_text("\n".join(page(records, failed)) + "\n", encoding="utf-8")
    if "loads" in records:
        pattern = r"500,000 rows load in .* as a plain loop"
        readme = re.sub(pattern, headline(records), README.read_text(encoding="utf-8"))
        README.write_text(readme, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written; failed: {failed or 'none'}\n")
    return bool(failed)


def record_of(name: str) -> Path:
    return RECORDS / f"{name}.json"


def run_part(name: str) -> None:
    """Run one part as a process, which writes its record if it measured all."""
    record_of(name).unlink(missing_ok=True)
    try:
        command = module("__main__", "--part", name)
        subprocess.run(command, cwd=CHECKOUT, env=environment(), check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"{name}: given up after {LONGEST} s\n")


def measure(name: str) -> None:
    """Measure one part in this process and write its record."""
    began, load = time.time(), os.getloadavg()[0]
    figures = []
    data = Path(tempfile.gettempdir()) / "balance-analysis-benchmarks"
    data.mkdir(exist_ok=True)
    for figure in importlib.import_module(f"tests.benchmarks.{name}").measure(data, PARTS[name]):
        print(f"{name}: {figure.name}: {figure.value:,.3g} {figure.unit}", flush=True)  # noqa: T201
        figures.append(figure)
    described = f"git -C '{CHECKOUT}' describe --always --dirty"
    failed, commit = subprocess.getstatusoutput(described)
    commit = "no commit" if failed else commit
    date = time.strftime("%Y-%m-%d", time.gmtime(began))
    record = Record(figures, commit, date, time.time() - began, load)
    record_of(name).write_bytes(msgspec.json.encode(record))


def headline(records: dict[str, Record]) -> str:
    """Return README's sentence about speed."""
    values = {(figure.name, figure.unit): figure.value for figure in records["loads"].figures}
    took = values["500,000 rows, fetch, 4 workers", "s"]
    times = values["requests + json_normalize / fetch, 4 workers, seconds", "times"]
    return f"500,000 rows load in {took:.1f} s, {times:.1f} times as fast as a plain loop"


def page(records: dict[str, Record], failed: str) -> list[str]:
    """Return the lines of the page of results."""
    every = [figure for record in records.values() for figure in record.figures]
    goals = [figure for figure in every if figure.goal]
    missed = [figure for figure in goals if figure.is_missed]
    lines = ["# What was measured", ""]
    lines += ["`make bench` wrote this page. [README.md](README.md) says what is measured.", ""]
    if "loads" in records:
        lines += [f"{headline(records)}.", ""]
    lines += [f"{len(goals) - len(missed)} of {len(goals)} goals are met. Medians, least and most"]
    lines += ["are over rounds; a goal is compared with the median.", ""]
    if failed:
        lines += [f"Failed: {failed}.", ""]
    lines += ["## Goals missed", "", *_table(missed), ""]
    for name, record in records.items():
        about = f"{record.date}, commit {record.commit}, {record.seconds:.0f} s"
        lines += [f"## {name}", "", f"{about}, load before {record.load:.1f}", ""]
        lines += [*_table(record.figures), ""]
    processor = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) or ["?"]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines += ["## Machine", "", f"{os.cpu_count()} processors ({processor[0]}),"]
    lines += [f"{platform.system()} {platform.machine()}, Python {platform.python_version()};"]
    return [*lines, f"{versions}."]


def _table(figures: list[Figure]) -> list[str]:
    lines = ["| figure | median | least | most | unit | goal |"]
    lines += ["| --- | --: | --: | --: | --- | --- |"]
    for each in figures:
        numbers = (each.value, min(each.values), max(each.values))
        texts = (f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers)
        lines.append(f"| {each.name} | {' | '.join(texts)} | {each.unit} | {each.goal} |")
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        sys.exit(measure(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
