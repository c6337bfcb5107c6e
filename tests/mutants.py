"""Whether the tests notice small faults: `make mutants MODULE=proof/diff` breaks one at a time.

The tests of the module's room run once, and what each of them executes is recorded. Then each fault
is put into a copy of the project, and the tests that execute its lines are run until one fails. A
fault that none notices is printed: either a test is missing, or it changes nothing.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import coverage

from tests.size import PACKAGE, ROOT

NAMES = "Lt LtE Gt GtE Eq NotEq In NotIn Is IsNot Add Sub And Or"
KINDS = [getattr(ast, name) for name in NAMES.split()]
SWAPS = {kind: KINDS[place ^ 1] for place, kind in enumerate(KINDS)}
LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "__pycache__")


def faults(tree):
    """Return a module's small faults: each with its lines, its change, and the faulty module."""
    made = []
    for first, node in _nodes(tree):
        if broken := _broken(node):
            own, before = dict(vars(node)), ast.unparse(node)
            vars(node).update(broken)
            change = f"{before} -> {ast.unparse(node)}"
            # A decorator stands before its function's first line.
            lines = range(min(first, node.lineno), node.end_lineno + 1)
            made.append((lines, change, ast.unparse(tree)))
            vars(node).update(own)
    return made


def _nodes(parent, first=1):
    """Yield each node below, with the first line of its statement."""
    for node in ast.iter_child_nodes(parent):
        line = node.lineno if isinstance(node, ast.stmt) else first
        yield line, node
        yield from _nodes(node, line)


def _broken(node):
    """Return the fields of a node that differ in a faulty module."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return {"ops": [SWAPS[type(op)]()]}
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            return {"op": SWAPS[type(op)]()}
        case ast.UnaryOp(op=ast.Not()):
            return {"operand": ast.UnaryOp(ast.Not(), node.operand)}
        case ast.IfExp():
            return {"body": node.orelse, "orelse": node.body}
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return {"value": value + 1}
    return {}


def survivors(modules, *, count, seed, tests):
    """Yield whether the tests noticed each fault, with its module, first line and change."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = SimpleQueue()
        for number in range(os.cpu_count()):
            folder = Path(scratch).resolve() / f"project{number}"
            folders.put(shutil.copytree(ROOT, folder, ignore=LEFT_OUT))
        began = time.monotonic()
        if _run(folder, ["-n", "auto", *tests], RECORD_IN=scratch):
            sys.exit(f"{' '.join(tests)} fail without a fault")
        seconds = 60 + 2 * (time.monotonic() - began)
        measured = coverage.Coverage(data_file=f"{scratch}/lines")
        measured.combine()

        def attempt(module, where, change, text):
            lines = measured.get_data().contexts_by_lineno(f"{folder}/{PACKAGE}/{module}.py")
            own = folders.get()
            path = own / PACKAGE / f"{module}.py"
            sound = path.read_text()
            path.write_text(text)
            is_noticed = _run(own, tests, chosen=_executing(lines, where), seconds=seconds)
            path.write_text(sound)
            folders.put(own)
            return is_noticed, module, where[0], change

        drawn = []
        for module in modules:
            possible = faults(ast.parse((ROOT / PACKAGE / f"{module}.py").read_text()))
            some = random.Random(seed).sample(possible, min(count, len(possible)))
            drawn += [(module, *fault) for fault in some]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield from pool.map(lambda fault: attempt(*fault), drawn)


def _executing(lines, where):
    """Return the tests and fixtures that execute some lines, those of the fewest lines first."""
    busy = Counter(name for names in lines.values() for name in names)
    return sorted({name for line in where for name in lines.get(line, ())} - {""}, key=busy.get)


def _run(folder, tests, *, chosen=(), seconds=0, **environment):
    """Return whether one of the chosen tests, or of all, fails or takes too long."""
    if chosen:
        environment["CHOSEN_IN"] = f"{folder}/chosen.json"
        Path(folder, "chosen.json").write_text(json.dumps(chosen))
        if all("::" in name for name in chosen):
            tests = {name.partition("::")[0] for name in chosen}
    environment |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder}", "HOME": f"{folder}"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutants", *tests]
    # `timeout` ends the processes that the tests started, too.
    limited = ["timeout", "--signal=KILL", f"{seconds}", *command]
    done = subprocess.run(limited, cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode != 0


def pytest_configure(config):
    """Record what tests execute, if asked to, except in a process that only starts others."""
    if "RECORD_IN" in os.environ and config.getoption("dist") == "no":
        config.pluginmanager.register(_Recorder(os.environ["RECORD_IN"]))


def pytest_collection_modifyitems(items):
    """Keep the chosen tests, and those that use a chosen fixture, in the order of the choice."""
    if path := os.environ.get("CHOSEN_IN"):
        chosen = json.loads(Path(path).read_text())
        place = {name: number for number, name in enumerate(chosen)}
        names = {item: {item.nodeid, *item.fixturenames} & {*place} for item in items}
        kept = [item for item in items if names[item]]
        items[:] = sorted(kept, key=lambda item: min(place[name] for name in names[item]))


class _Recorder:
    """Record which test, or which fixture of tests, executes each line of the package."""

    def __init__(self, folder):
        how = {"data_suffix": True, "source": [PACKAGE]}
        self.measured = coverage.Coverage(data_file=f"{folder}/lines", **how)
        self.measured.start()

    def pytest_fixture_setup(self, fixturedef):
        self.measured.switch_context(fixturedef.argname)

    def pytest_runtest_call(self, item):
        self.measured.switch_context(item.nodeid)

    def pytest_unconfigure(self):
        self.measured.stop()
        self.measured.save()


def main():
    """Print each fault that no test noticed, and how many there were."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("modules", nargs="+", help="such as proof/diff")
    options.add_argument("--tests", nargs="+", help="by default those of the modules' rooms")
    options.add_argument("--count", type=int, default=10, help="of faults of each module")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    rooms = {name.partition("/")[0] if "/" in name else f"test_{name}.py" for name in given.modules}
    given.tests, noticed = given.tests or [f"tests/{room}" for room in sorted(rooms)], []
    for is_noticed, module, line, change in survivors(**vars(given)):
        noticed.append(is_noticed)
        if not is_noticed:
            print(f"{module}.py:{line}: {change}", flush=True)  # noqa: T201 - its output
    print(f"{sum(noticed)} of {len(noticed)} faults noticed")  # noqa: T201 - likewise


if __name__ == "__main__":
    main()
