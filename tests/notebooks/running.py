"""A notebook, run cell by cell as in Jupyter, and the pictures that its cells show."""

from __future__ import annotations

import ast
import base64
import io
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import distributed
import matplotlib.pyplot as plt
import pandas as pd
from PIL import Image

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PICTURE = "image/png"
DPI, COLOURS = 80, 48


@contextmanager
def displayed():
    """As in a notebook: figures are shown as pictures, and what pandas is told stays inside.

    The block gets a list, to which each figure that is shown is added, as a PNG. A cluster's
    workers are threads: tests/cluster has processes.
    """
    shown, before, show = [], plt.get_backend(), plt.show
    cluster = distributed.LocalCluster
    distributed.LocalCluster = partial(cluster, processes=False, protocol="tcp", host="127.0.0.1")
    plt.close("all")
    plt.switch_backend("Agg")
    plt.show = lambda: shown.extend(map(_take, plt.get_fignums()))
    try:
        with pd.option_context("display.max_colwidth", 50, "display.float_format", None):
            yield shown
    finally:
        distributed.LocalCluster, plt.show = cluster, show
        plt.close("all")
        plt.switch_backend(before)


def run(notebook, name):
    """Run the cells of a notebook; yield each that is code, with the pictures that it shows."""
    names = {"__name__": "__main__"}
    with displayed() as shown:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                _run_cell(cell.source, names, f"<{name}>")
                plt.show()
                yield cell, shown.copy()
                shown.clear()


def kept(cell):
    """Return the pictures that are kept with a cell."""
    return [base64.b64decode(each["data"][PICTURE]) for each in cell["outputs"]]


def size_of(picture):
    """Return how wide and high a PNG is, in pixels."""
    return Image.open(io.BytesIO(picture)).size


def _run_cell(source, names, where):
    """Run a cell, and write out the value of its last line, as a kernel does."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        getattr(value, "_repr_html_", value.__repr__)()


def _take(number):
    """Return a figure as a small PNG, with few colours, and close it."""
    figure, drawn, small = plt.figure(number), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    plt.close(figure)
    image = Image.open(drawn).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()
