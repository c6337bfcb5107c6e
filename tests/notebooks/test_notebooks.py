"""Every notebook runs from top to bottom, without a warning, and shows what is kept in it."""

import re
import runpy
import tempfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt

from tests.notebooks.running import FOLDER, NOTEBOOKS, PICTURE, draw_blank, kept, run, size_of

LARGEST = {"picture": 55_000, "all": 2_000_000}
KINDS = ["text/html", "text/plain"]


def words(text):
    """Return the words of a text or a table, with all numbers equal.

    Sizes of files depend on the release of a library, the look of tables on that of pandas.
    """
    text = re.sub(r"<style.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)
    return re.sub(r"[-+]?[\d.,]*\d[\d.,]*", "0", text).split()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_saved_output(path):
    for cell, outputs in run(nbformat.read(path, as_version=4), path.stem, take=draw_blank):
        now = {"outputs": outputs}
        pictures, old = kept(now, PICTURE), kept(cell, PICTURE)
        assert [*map(size_of, pictures)] == [*map(size_of, old)], cell.source
        for kind in KINDS:
            assert [*map(words, kept(now, kind))] == [*map(words, kept(cell, kind))], cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_has_its_output_and_nothing_specific_to_a_run_or_machine(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell["metadata"]
        if cell.cell_type == "code":
            assert cell["execution_count"] is None
            assert all(len(picture) <= LARGEST["picture"] for picture in kept(cell, PICTURE))
            for text in [text for kind in KINDS for text in kept(cell, kind)]:
                assert tempfile.gettempdir() not in text
                assert str(Path.home()) not in text
                assert not re.search(r" at 0x[0-9a-f]+|127\.0\.0\.1:(?!3008)|20(2[4-9]|3\d)-", text)


def test_all_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < LARGEST["all"]


def test_readmes_pictures_are_drawn_in_their_saved_size(tmp_path):
    backend = plt.get_backend()
    for drawn in runpy.run_path(str(FOLDER / "gallery.py"))["draw"](tmp_path):
        picture, old = (
            plt.imread(folder / drawn.relative_to(tmp_path)) for folder in (tmp_path, FOLDER)
        )
        assert picture.shape == old.shape
        assert len(np.unique(picture)) > 20  # it is not blank
    plt.switch_backend(backend)
