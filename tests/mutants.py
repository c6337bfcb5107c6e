"""Whether the tests notice small faults: `make mutants MODULE=node/walk` breaks one at a time.

In a copy of the project, each fault is put into the module, and the tests of its room are run until
one fails. A fault that none notices is printed: either a test is missing, or it changes nothing.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.size import PACKAGE, ROOT

SWAPS = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
    ast.Add: ast.Sub,
    ast.And: ast.Or,
}
SWAPS |= {other: one for one, other in SWAPS.items()}
LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "__pycache__")


def faults(tree):
    """Return a module's small faults: each with its line, its change, and the faulty module."""
    made = []
    for node in ast.walk(tree):
        if broken := _broken(node):
            own, before = dict(vars(node)), ast.unparse(node)
            vars(node).update(broken)
            made.append((node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)))
            vars(node).update(own)
    return made


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


def survivors(module, *, count, seed, tests):
    """Yield whether the tests noticed each fault, with its line and its change."""
    with tempfile.TemporaryDirectory() as scratch:
        copied = Path(scratch) / "project"
        shutil.copytree(ROOT, copied, ignore=LEFT_OUT)
        path = copied / PACKAGE / f"{module}.py"
        text = path.read_text()
        if _run(copied, tests):
            sys.exit(f"{' '.join(tests)} fail without a fault")
        possible = faults(ast.parse(text))
        for line, change, broken in random.Random(seed).sample(possible, min(count, len(possible))):
            path.write_text(broken)
            yield _run(copied, tests), line, change


def _run(folder, tests):
    """Return whether a test fails or takes ten minutes."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "auto", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)},
            capture_output=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main():
    """Print each fault that no test noticed, and how many there were."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("module", help="such as node/walk")
    options.add_argument("--tests", nargs="+", help="by default those of its room")
    options.add_argument("--count", type=int, default=10)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    room = given.module.partition("/")[0] if "/" in given.module else f"test_{given.module}.py"
    tests, noticed = given.tests or [f"tests/{room}"], []
    how = {"count": given.count, "seed": given.seed, "tests": tests}
    for is_noticed, line, change in survivors(given.module, **how):
        noticed.append(is_noticed)
        if not is_noticed:
            print(f"{given.module}.py:{line}: {change}", flush=True)  # noqa: T201 - its output
    print(f"{sum(noticed)} of {len(noticed)} faults noticed")  # noqa: T201 - likewise


if __name__ == "__main__":
    main()
