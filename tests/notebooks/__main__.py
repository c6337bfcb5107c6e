"""Run notebooks, and keep in them what they show, without what is of one run: `make pictures`.

`python -m tests.notebooks 04_plots` runs those that are named, without a name all.
"""

import sys

import nbformat

from tests.notebooks.running import NOTEBOOKS, draw_small, run


def keep(path):
    """Run a notebook, and write it with the pictures, tables and texts that it shows."""
    notebook = nbformat.read(path, as_version=4)
    for cell, outputs in run(notebook, path.stem, take=draw_small):
        cell.update(outputs=outputs, execution_count=None, metadata={})
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            keep(path)
            sys.stderr.write(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB\n")
