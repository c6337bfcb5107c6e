from __future__ import annotations

from tests.figures.conftest import drawing

__all__ = ["drawing"]
