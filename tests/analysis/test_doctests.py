from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["balances", "checks", "summary", "units"])
def test_the_examples_in_docstrings_run(module):
    module = importlib.import_module(f"balance_analysis.analysis.{module}")
    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert attempted > 0
    assert failed == 0
