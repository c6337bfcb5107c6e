"""The views of the explorer, answered as everything here is: with refusals of the one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from starlette.responses import Response

from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.errors import BalanceAnalysisError, SnapshotGoneError
from balance_analysis.explorer.query import read_query
from balance_analysis.explorer.source import ViewTooLargeError
from balance_analysis.explorer.views import Explorer
from balance_analysis.service.coverage import unavailable
from balance_analysis.service.errors import Code, RefusedError


def answer_view(
    explorer: Explorer,
    view: str,
    items: Sequence[tuple[str, str]],
    check: Callable[[], None],
) -> Response:
    """Return a view of the explorer; `check` is called now and then, and may end the work.

    Raises
    ------
    RefusedError
        If a parameter is wrong, the view needs too many rows, the state that it is asked of is
        gone, or the archive can't be read.
    """
    try:
        query = read_query(view, [(name, text) for name, text in items if name != "pretty"])
    except ValueError as error:
        raise RefusedError(str(error)) from error
    try:
        check()
        with in_one_thread():  # the other processors are for pages
            content = explorer.encode(view, query, check=check)
    except SnapshotGoneError as error:
        raise RefusedError(
            "the archive has changed, and this state of it is gone: ask /explore/about for the "
            "current one",
            code=Code.ABORTED,
        ) from error
    except (ViewTooLargeError, OverflowError) as error:
        raise RefusedError(str(error), code=Code.OUT_OF_RANGE) from error
    except (BalanceAnalysisError, OSError) as error:
        raise unavailable(error) from error
    finally:
        pa.default_memory_pool().release_unused()
    return Response(content, media_type="application/json")
