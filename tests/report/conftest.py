from __future__ import annotations

import pytest
from markupsafe import Markup

from balance_analysis.report import pictures
from tests.figures.conftest import drawing

__all__ = ["drawing"]


@pytest.fixture
def words_only(monkeypatch):
    """Leave the pictures of a page empty: to write them is most of the work."""
    monkeypatch.setattr(pictures, "to_svg", lambda *_, **__: Markup(""))
