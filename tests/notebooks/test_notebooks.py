"""Every notebook runs from top to bottom, without a warning, and is kept without its outputs."""

import ast
from functools import partial
from pathlib import Path

import distributed
import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture
def displayed(monkeypatch):
    """As in a notebook: figures are shown as pictures, and what pandas is told stays inside.

    A cluster's workers are threads: tests/cluster has processes.
    """
    cluster = partial(distributed.LocalCluster, processes=False, protocol="tcp", host="127.0.0.1")
    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    before = plt.get_backend()
    plt.switch_backend("Agg")

    def show():
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()
        plt.close("all")

    monkeypatch.setattr(plt, "show", show)
    with pd.option_context("display.max_colwidth", 50, "display.float_format", None):
        yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("displayed")
def test_a_notebook_runs_from_top_to_bottom(path):
    names = {"__name__": "__main__"}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            run(cell.source, names, f"<{path.stem}>")
            plt.show()


def run(source, names, where):
    """Run a cell, and write out the value of its last line, as a kernel does."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        getattr(value, "_repr_html_", value.__repr__)()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell["outputs"] for cell in notebook.cells if cell.cell_type == "code")
