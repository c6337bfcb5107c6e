from __future__ import annotations

import doctest
import importlib

import matplotlib.pyplot as plt
import pytest


@pytest.mark.parametrize(
    "module",
    [
        "axes",
        "balances",
        "flows",
        "timelines",
        "totals",
    ],
)
def test_the_examples_in_docstrings_run(module):
    module = importlib.import_module(f"balance_analysis.figures.{module}")
    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    plt.close("all")
    assert attempted > 0
    assert failed == 0
