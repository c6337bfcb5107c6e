"""Run notebooks, and keep their pictures in them, but no other outputs: `make pictures`.

`python -m tests.notebooks 04_plots` runs those that are named, without a name all.
"""

from __future__ import annotations

import base64
import sys

import nbformat

from tests.notebooks.running import NOTEBOOKS, PICTURE, run


def keep(path):
    """Run a notebook, and write it with the pictures that it shows."""
    notebook = nbformat.read(path, as_version=4)
    for cell, pictures in run(notebook, path.stem):
        cell.update(outputs=[], execution_count=None, metadata={})
        for picture in pictures:
            data = {PICTURE: base64.b64encode(picture).decode()}
            cell.outputs.append(nbformat.v4.new_output("display_data", data))
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            keep(path)
            sys.stderr.write(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB\n")
