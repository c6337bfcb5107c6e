"""Run the benchmarks and write the page of results: `python -m tests.benchmarks [PART ...]`.

Each part is a process of its own, so that one that fails takes none of the others with it. A part
that isn't named keeps the figures that it measured last, in `.benchmarks`.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.figures import CHECKOUT, Figure, environment

PARTS: Final = {
    "startup": 3,
    "loads": 3,
    "reconstruct": 3,
    "archives": 1,
    "service": 3,
    "pictures": 3,
}
"""The parts, each with its rounds, chosen so that all end within 20 minutes on two processors."""

LONGEST: Final = 900
"""Seconds after which a part is given up."""

RECORDS: Final = CHECKOUT / ".benchmarks"
PAGE: Final = CHECKOUT / "tests" / "benchmarks" / "RESULTS.md"
README: Final = CHECKOUT / "README.md"
PACKAGES: Final = ("numpy", "pandas", "pyarrow", "msgspec", "polars", "duckdb")


def main(names: list[str]) -> int:
    if unknown := {*names} - {*PARTS}:
        sys.exit(f"there is no benchmark {min(unknown)}; there are {', '.join(PARTS)}")
    RECORDS.mkdir(exist_ok=True)
    failed = [name for name in names or PARTS if not run_part(name)]
    failed += [name for name in PARTS if name not in failed and not record_of(name).exists()]
    records = {
        name: json.loads(record_of(name).read_text()) for name in PARTS if name not in failed
    }
    PAGE.write_text("\n".join(page(records, failed)) + "\n", encoding="utf-8")
    if "loads" in records:
        pattern = r"500,000 rows load in .* as a plain loop"
        readme = re.sub(pattern, headline(records), README.read_text(encoding="utf-8"))
        README.write_text(readme, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written; failed: {', '.join(failed) or 'none'}\n")
    return bool(failed)


def record_of(name: str) -> Path:
    return RECORDS / f"{name}.json"


def run_part(name: str) -> bool:
    """Run one part as a process and return whether it measured all."""
    record_of(name).unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "tests.benchmarks", "--part", name]
    try:
        subprocess.run(command, cwd=CHECKOUT, env=environment(), check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"{name}: given up after {LONGEST} s\n")
    return record_of(name).exists()


def measure(name: str) -> None:
    """Measure one part in this process and write its record."""
    began, load = time.time(), os.getloadavg()[0]
    figures = []
    data = Path(tempfile.gettempdir()) / "balance-analysis-benchmarks"
    data.mkdir(exist_ok=True)
    for figure in importlib.import_module(f"tests.benchmarks.{name}").measure(data, PARTS[name]):
        sys.stdout.write(f"{name}: {figure.name}: {figure.value:,.3g} {figure.unit}\n")
        sys.stdout.flush()
        figures.append(asdict(figure))
    described = f"git -C '{CHECKOUT}' describe --always --dirty"
    failed, commit = subprocess.getstatusoutput(described)
    record = {
        "figures": figures,
        "commit": "no commit" if failed else commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": time.time() - began,
        "load before": load,
    }
    record_of(name).write_text(json.dumps(record), encoding="utf-8")


def figures_of(record: dict[str, Any]) -> list[Figure]:
    return [Figure(**each | {"values": tuple(each["values"])}) for each in record["figures"]]


def headline(records: dict[str, Any]) -> str:
    """Return the one sentence that README has of speed."""
    figures = {figure.name + figure.unit: figure.value for figure in figures_of(records["loads"])}
    took = figures["500,000 rows, fetch, 4 workerss"]
    times = figures["requests + json_normalize / fetch, 4 workers, secondstimes"]
    return f"500,000 rows load in {took:.1f} s, {times:.1f} times as fast as a plain loop"


def page(records: dict[str, Any], failed: list[str]) -> list[str]:
    """Return the lines of the page of results."""
    every = [figure for record in records.values() for figure in figures_of(record)]
    goals = [figure for figure in every if (figure.at_most, figure.at_least) != (None, None)]
    missed = [figure for figure in goals if figure.is_missed]
    lines = ["# What was measured", ""]
    lines += ["`make bench` wrote this page. [README.md](README.md) says what is measured.", ""]
    if "loads" in records:
        lines += [f"{headline(records)}.", ""]
    lines += [f"{len(goals) - len(missed)} of {len(goals)} goals are met. Medians, least and most"]
    lines += ["are over rounds; a goal is compared with the median.", ""]
    if failed:
        lines += [f"Failed: {', '.join(failed)}.", ""]
    lines += ["## Goals missed", "", *_table(missed), ""]
    for name, record in records.items():
        about = f"{record['date']}, commit {record['commit']}, {record['seconds']:.0f} s,"
        lines += [f"## {name}", "", f"{about} load before {record['load before']:.1f}", ""]
        lines += [*_table(figures_of(record)), ""]
    processor = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) or ["?"]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines += ["## Machine", "", f"{os.cpu_count()} processors ({processor[0]}),"]
    lines += [f"{platform.system()} {platform.machine()}, Python {platform.python_version()};"]
    return [*lines, f"{versions}."]


def _table(figures: list[Figure]) -> list[str]:
    lines = [
        "| figure | median | least | most | unit | goal |",
        "| --- | --: | --: | --: | --- | --- |",
    ]
    for figure in figures:
        goal = "" if figure.at_most is None else f"<= {figure.at_most:g}"
        goal = goal if figure.at_least is None else f">= {figure.at_least:g}"
        numbers = (figure.value, min(figure.values), max(figure.values))
        shown = " | ".join(
            f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers
        )
        lines.append(f"| {figure.name} | {shown} | {figure.unit} | {goal} |")
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        sys.exit(measure(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
