"""Every notebook runs from top to bottom, without a warning, and is kept with its pictures only."""

import nbformat
import pytest

from tests.notebooks.running import NOTEBOOKS, kept, run, size_of

LARGEST = {"picture": 40_000, "all": 1_500_000}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_the_pictures_that_are_kept_in_it(path):
    for cell, pictures in run(nbformat.read(path, as_version=4), path.stem):
        assert [*map(size_of, pictures)] == [*map(size_of, kept(cell))], cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_pictures_and_nothing_else_of_a_run(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell["metadata"]
        if cell.cell_type == "code":
            assert cell["execution_count"] is None
            assert all([*each["data"]] == ["image/png"] for each in cell["outputs"])
            assert all(len(picture) <= LARGEST["picture"] for picture in kept(cell))


def test_all_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < LARGEST["all"]
