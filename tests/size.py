"""How large the code is, counted: `make size` prints it, room by room.

A line of code is one that is not blank, a comment or a docstring. A room is a folder of the
package.

`make lint` fails where a figure rises above that of `[tool.size]` in `pyproject.toml`. Whoever
raises one says why in the commit.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "balance_analysis"
HEADER = ["room", "modules", "code", "docstring", "functions", "longest"]


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module, and which of its lines are code and which docstring."""

    room: str
    text: str
    tree: ast.Module
    code: set[int]
    docstring: set[int]

    @property
    def functions(self):
        """The lines of code of each function, nested ones too."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS)]
        return [len(self.code & {*range(x.lineno, x.end_lineno + 1)}) for x in nodes]


def read_package(folder):
    """Return the modules of a package."""
    return [_read_module(path, folder) for path in sorted(folder.rglob("*.py"))]


def _read_module(path, folder):
    parts, text = path.relative_to(folder).parts, path.read_text()
    room, tree = f"{parts[0]}/" if len(parts) > 1 else "(top)", ast.parse(text)
    return Module(room, text, tree, *_lines(text, tree))


def _body_lines(tree):
    """Yield the lines of functions without signatures; nested functions are the outer one's."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield from range(node.body[0].lineno, node.end_lineno + 1)
        else:
            yield from _body_lines(node)


def _inner_names(node):
    """Return how many names a statement imports from below the package's door."""
    match node:
        case ast.ImportFrom(module=str(module)) if module.startswith(f"{PACKAGE}."):
            return len(node.names)
        case ast.Import():
            return sum(alias.name.startswith(f"{PACKAGE}.") for alias in node.names)
    return 0


def _lines(text, tree):
    """Return the lines of code and those of docstrings; comments and blank lines are neither."""
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            code.update(range(token.start[0], token.end[0] + 1))
    docstring = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                docstring.update(range(node.lineno, node.end_lineno + 1))
    blank = {i for i, line in enumerate(text.splitlines(), 1) if not line.strip()}
    return code - docstring - blank, docstring - blank


def table(modules):
    """Return the counts of each package and the total, as lines."""
    rooms = defaultdict(list)
    for module in modules:
        rooms[module.room].append(module)
    rows = [HEADER, *(_row(room, rooms[room]) for room in sorted(rooms))]
    rows.append(_row("total", modules))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def _row(room, modules):
    columns = zip(*((x.code, x.docstring, x.functions) for x in modules), strict=True)
    longest = max((lines for module in modules for lines in module.functions), default=0)
    numbers = len(modules), *(sum(map(len, column)) for column in columns), longest
    return [room, *(f"{number:,}" for number in numbers)]


def measure(code, tests):
    """Return the figures that may not rise, by their names in `[tool.size]`."""
    every = [node for module in code for node in ast.walk(module.tree)]
    classes = Counter(node.name for node in every if isinstance(node, ast.ClassDef))
    return {
        "lines of function bodies": sum(len(x.code & {*_body_lines(x.tree)}) for x in code),
        "code lines": sum(len(module.code) for module in code),
        "classes": classes.total(),
        "modules": len(code),
        "longest module": max(len(module.text.splitlines()) for module in code),
        "classes of one name in two places": sum(count > 1 for count in classes.values()),
        "modules that use pyarrow.parquet": _users(code, r"\bpq\."),
        "inner names that tests import": sum(
            _inner_names(node)
            for module in tests
            if module.room != "benchmarks/"
            for node in ast.walk(module.tree)
        ),
    }


def _users(modules, pattern):
    """Return how many modules have a pattern in their text."""
    return sum(re.search(pattern, module.text) is not None for module in modules)


def exceeded(root):
    """Yield the figures that rose, each with its limit."""
    allowed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["size"]
    measured = measure(read_package(root / PACKAGE), read_package(root / "tests"))
    for name, most in allowed.items():
        if measured[name] > most:
            yield f"{name}: {measured[name]:,}, but [tool.size] in pyproject.toml allows {most:,}"


def report(root):
    """Yield the lines of what `make size` prints."""
    code, tests = read_package(root / PACKAGE), read_package(root / "tests")
    yield from [PACKAGE, *table(code), "", "tests", *table(tests), ""]
    measured = measure(code, tests)
    width = max(map(len, measured))
    yield from (f"{name.ljust(width)}  {figure:>6,}" for name, figure in measured.items())
    ratio = sum(len(x.code) for x in tests) / sum(len(x.code) for x in code)
    yield f"{ratio:.2f} lines of tests per line of code"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(exceeded(ROOT)) or 0)
    sys.stdout.writelines(f"{line}\n" for line in report(ROOT))
