"""A notebook, run cell by cell as in Jupyter, and what it shows: pictures, tables and text."""

import ast
import base64
import io
import re
import subprocess
import tempfile
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
from PIL import Image

from tests.cli.running import invoke

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PICTURE = "image/png"
DPI, COLOURS = 80, 48
LONGEST = 12_000
"""Characters of a table or a text: what is longer, such as the explorer's page, is not kept."""

OF_A_RUN = {
    rf"{re.escape(tempfile.gettempdir())}/[^/\s'\"<]+/": "",
    r"127\.0\.0\.1:\d+": "127.0.0.1:3008",
    r"20(2[4-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?": "(now)",
    r"20(2[4-9]|[3-9]\d)\d{4}T\d{6}\.\d+Z-[0-9a-f]{6}": "(run)",
    r"[\d,]+ days?(\s+\d+\s+hours?)?(?=\s+ago|\s+at \(now\))": "(long)",
    r"\b\d+\.\d+ s\b": "(short)",
    r"(?<=_seconds\{archive=\"\.\.\./archive\"\} )\S+|(?<='age_seconds': )[\d.]+": "(now)",
}
"""What differs from one run, or one machine, to the next, and what is kept in its place."""


@contextmanager
def displayed(take):
    """As in a notebook: figures are shown as pictures, and settings of pandas stay inside.

    The block gets a list, to which each figure that is shown is added, as `take` returns it. A
    cluster's workers are threads: tests/scale has processes. Commands run here: tests/cli has them.
    """
    import distributed  # noqa: PLC0415 - long to import

    shown, before = [], plt.get_backend()

    def show():
        shown.extend(map(take, plt.get_fignums()))

    cluster = partial(distributed.LocalCluster, processes=False, protocol="tcp", host="127.0.0.1")
    plt.close("all")
    plt.switch_backend("Agg")
    with (
        mock.patch.object(distributed, "LocalCluster", cluster),
        mock.patch.object(plt, "show", show),
        mock.patch.object(subprocess, "run", _run_command),
        pd.option_context("display.max_colwidth", 50, "display.float_format", None),
    ):
        yield shown
    plt.close("all")
    plt.switch_backend(before)


def _run_command(command, *, run=subprocess.run, **options):
    """Run the package's command in this process, and any other command in a new process."""
    if command[1:3] != ["-m", "balance_analysis"]:
        return run(command, **options)
    done = invoke(command[3:])
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def run(notebook, name, *, take):
    """Run the cells of a notebook; yield each that is code, with the outputs to keep of it."""
    names = {"__name__": "__main__"}
    with displayed(take) as shown:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                with redirect_stdout(io.StringIO()) as printed:
                    result = _run_cell(cell.source, names, f"<{name}>")
                plt.show()
                pictures = [{PICTURE: base64.b64encode(each).decode()} for each in shown]
                outputs = [{"text/plain": printed.getvalue()}, *pictures, result]
                yield cell, [*map(_output, filter(_is_kept, map(_lasting, outputs)))]
                shown.clear()


def _lasting(data):
    """Return an output without the values that depend on the run and the machine."""
    for pattern, instead in OF_A_RUN.items():
        data = {k: v if k == PICTURE else re.sub(pattern, instead, v) for k, v in data.items()}
    return data


def _is_kept(data):
    return any(value and (kind == PICTURE or len(value) < LONGEST) for kind, value in data.items())


def _output(data):
    return nbformat.v4.new_output("display_data", data)


def kept(cell, kind):
    """Return the output that is kept with a cell, for a kind of output."""
    return [each["data"][kind] for each in cell["outputs"] if kind in each["data"]]


def size_of(picture):
    """Return how wide and high a PNG is, in pixels."""
    return Image.open(io.BytesIO(base64.b64decode(picture))).size


def _run_cell(source, names, where):
    """Run a cell, and return the display of its last value, as a kernel does."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is None:
        return {}
    value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if value is None or source.rstrip().endswith(";"):
        return {}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_()}
    return {"text/plain": repr(value)}


def draw_blank(number):
    """Return a blank PNG of the size of a figure, and close it.

    Each part is still drawn once; the tests of figures check the places of the parts.
    """
    figure, blank = plt.figure(number), io.BytesIO()
    figure.set(dpi=DPI, layout_engine="none")
    figure.draw_without_rendering()
    Image.new("1", figure.canvas.get_width_height()).save(blank, format="png")
    plt.close(figure)
    return blank.getvalue()


def draw_small(number):
    """Return a figure as a small PNG, with few colours, and close it."""
    figure, drawn, small = plt.figure(number), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    plt.close(figure)
    image = Image.open(drawn).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()
