"""Every notebook runs from top to bottom, without a warning, and is kept without its outputs."""

import ast
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
IN_A_KERNEL = "05_cluster"  # whose workers are processes of their own


@pytest.fixture
def displayed(monkeypatch):
    """As in a notebook: figures are shown as pictures, and what pandas is told stays inside."""
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


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem != IN_A_KERNEL], ids=lambda path: path.stem
)
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


def test_a_notebook_runs_in_a_kernel():
    (path,) = (path for path in NOTEBOOKS if path.stem == IN_A_KERNEL)
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = f"import warnings\nwarnings.simplefilter('error')\n{first.source}"
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert all(cell["execution_count"] for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell["outputs"] for cell in notebook.cells if cell.cell_type == "code")
