"""Coverage: the evidence of an archive as a frame."""

from __future__ import annotations

from typing import Any

import pandas as pd

from balance_analysis.evidence import STATES, Evidence
from balance_analysis.text import without_credentials


def coverage_frame(evidence: Evidence) -> pd.DataFrame:
    """Return a row for each stretch of time, gaps between answers included.

    See `Archive.coverage` for the columns.
    """
    rows = []
    for (start, end), state, answer, by in evidence.stretches():
        row: dict[str, object] = {"start": start, "end": end, "state": state}
        if answer is not None:
            heights = answer.heights or (None, None)
            row |= {"source": without_credentials(answer.node.name), "block_height": heights[1]}
            row |= {
                "first_block_height": heights[0],
                "confirmed_by": by and without_credentials(by.name),
            }
            row |= {"asked_at": answer.asked[1], "first_asked_at": answer.asked[0]}
        rows.append(row)
    moment, text = "datetime64[us, UTC]", "str"
    types: dict[str, Any] = {
        "start": moment,
        "end": moment,
        "state": pd.CategoricalDtype([*STATES]),
    }
    types |= {"source": text, "block_height": "Int64", "first_block_height": "Int64"}
    types |= {"asked_at": moment, "first_asked_at": moment, "confirmed_by": text}
    numbers: Any = {name: "Int64" for name, kind in types.items() if kind == moment}
    return pd.DataFrame(rows, columns=[*types]).astype(numbers).astype(types)
