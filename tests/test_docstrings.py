"""The examples in docstrings run, in every module that has some."""

import doctest
import importlib
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import balance_analysis as ba

FOLDER = Path(ba.__file__).parent
MODULES = [
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    for path in sorted(FOLDER.rglob("*.py"))
    if "\n    >>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_run(module, request):
    backend, flags = plt.get_backend(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    known = {"getfixture": request.getfixturevalue}
    failed, attempted = doctest.testmod(
        importlib.import_module(module), optionflags=flags, extraglobs=known
    )
    plt.close("all")
    plt.switch_backend(backend)
    assert (failed, attempted > 0) == (0, True)


OF_TABLES = [
    name
    for name in ba.__all__
    if getattr(getattr(ba, name), "__module__", "").startswith("balance_analysis.analysis.")
]


@pytest.mark.parametrize("name", OF_TABLES)
def test_every_function_of_a_table_has_an_example(name):
    assert ">>> " in getattr(ba, name).__doc__
