"""`make size` counts what it says."""

from __future__ import annotations

import pytest

from tests.size import circles, exceeded, measure, read_package, report, table

TOP = '''\
"""Two lines

of docstring."""

from pack.room import inner
import pack.other  # a remark is no line of its own

# A comment.
TEXT = """a
# no comment

b"""
"""What it is."""


def outer(
    a,
):
    """Say."""
    def within():
        return a  # why
    return within
'''
INNER = """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..top import outer
"""
LATE = """\
import importlib

def late():
    from . import inner, other
    importlib.import_module("pack.top")
"""


@pytest.fixture
def modules(tmp_path):
    folder = tmp_path / "pack"
    files = {"__init__.py": "", "top.py": TOP, "other.py": "from . import absent\n"}
    files |= {"room/__init__.py": "", "room/inner.py": INNER, "room/late.py": LATE}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {module.name: module for module in read_package(folder)}


def test_lines_are_told_apart(modules):
    top = modules["pack.top"]
    assert (top.code, top.docstring, top.comment) == (11, 4, 1)
    assert top.lines == len(TOP.splitlines())
    assert modules["pack"].code == 0


def test_functions_are_counted_in_lines_of_code_without_their_docstring(modules):
    assert modules["pack.top"].functions == [6, 2]


def test_imports_are_found_wherever_they_stand(modules):
    assert modules["pack.top"].imports == {"pack.room.inner", "pack.other"}
    assert modules["pack.room.inner"].imports == {"pack.top"}
    assert modules["pack.room.late"].imports == {"pack.room", "pack.room.inner", "pack.top"}
    assert modules["pack.other"].imports == {"pack"}


def test_a_circle_is_found_though_it_is_for_types_only(modules):
    assert circles(modules.values()) == [["pack.room.inner", "pack.top"]]


def test_the_table_has_each_room_and_the_total(modules):
    assert table(modules.values()) == [
        "room   modules  code  docstring  comment  functions  median  longest  over 400  in circle",
        "(top)        3    12          4        1          2       4        6         0          1",
        "room/        3     7          0        0          1       3        3         0          1",
        "total        6    19          4        1          3       3        6         0          2",
    ]


def test_tests_are_told_per_line_of_code(tmp_path):
    for folder, text in ("balance_analysis", "a = 1\nb = 2\n"), ("tests", "c = 3\n" * 3):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text(text)
    *_, last = report(tmp_path)
    assert last == "1.50 lines of tests per line of code"


FILES = {
    "balance_analysis/__init__.py": "",
    "balance_analysis/one.py": "class A:\n    def f(self):\n        return pq.read_table(1)\n",
    "balance_analysis/two.py": "class A: ...\nclass B: ...\nto_coverage(1)\n",
    "tests/__init__.py": "from balance_analysis.one import A, f\nfrom balance_analysis import ba\n",
    "tests/benchmarks/__init__.py": "import balance_analysis.two\n",
    "pyproject.toml": "[tool.size]\nclasses = 2\nmodules = 3\n",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_figures_are_those_of_the_code(project):
    folders = (read_package(project / name) for name in ("balance_analysis", "tests"))
    assert measure(*folders) == {
        "lines of function bodies": 1,
        "code lines": 6,
        "classes": 3,
        "modules": 3,
        "longest module": 3,
        "modules in a circle": 0,
        "classes of one name in two places": 1,
        "modules that use pyarrow.parquet": 1,
        "modules that read the coverage": 1,
        "inner names that tests import": 2,
    }


def test_a_figure_that_rose_is_named(project):
    assert [*exceeded(project)] == ["classes: 3, but [tool.size] in pyproject.toml allows 2"]
