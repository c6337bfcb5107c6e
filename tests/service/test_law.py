"""What our own tools get from the service is what the archive holds, each byte of it.

A load of any node is complete: `tests/load`. The service answers as a node: `test_model`.
"""

from __future__ import annotations

import pandas as pd

from balance_analysis import Archive, Client, export, load_balance_changes
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    START,
    content_of,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.columns import lacking
from tests.moments import from_microseconds
from tests.service.archives import WHOLE, Stretch, write_archive
from tests.service.rows import BASE, block_of
from tests.serving import serving

ROWS = spread_history(6, rows=240, accounts=60, largest_block=40)


def test_an_export_copies_each_byte_the_limits_and_how_far_the_archive_goes(tmp_path):
    """Beyond its last block a node knows nothing, and neither does a copy of its archive."""
    folder = tmp_path / "archive"
    node = node_of(ROWS)
    # In several runs, which is how archives come about.
    for end in (START + DAY, START + DAY + HOUR, END):
        run_export(node, folder, start=START, end=end)
    with serving(Archive(folder)) as url, Client(url, timeout=20) as client:
        export(client, Archive(tmp_path / "copy"), start=from_microseconds(START))
    assert lasting(tmp_path / "copy") == lasting(folder)
    assert len(content_of(folder, "changes/")) >= 2
    names = ["propose_asset_enabled_from", "can_propose_market", "genesis_loaded", "extra"]
    limits, copied = (Archive(each).limits() for each in (folder, tmp_path / "copy"))
    pd.testing.assert_frame_equal(copied[names], limits[names].tail(1).reset_index(drop=True))
    assert copied["block_height"].tolist() == limits["block_height"].tolist()[-1:]


_GAP = (BASE - HOUR, BASE + HOUR)
_VAGUE = (BASE + 2 * HOUR, BASE + 3 * HOUR)
_PARTS = (
    Stretch(WHOLE[0].start, _GAP[0]),
    Stretch(_GAP[1], _VAGUE[0]),
    Stretch(*_VAGUE, proven=False),
    Stretch(_VAGUE[1], WHOLE[0].end),
)


def test_neither_a_load_nor_a_copy_claims_more_than_its_source(tmp_path):
    rows = [*block_of(9, time=WHOLE[0].start), *block_of(9, time=_VAGUE[0])]
    archive = write_archive(tmp_path / "archive", rows, stretches=_PARTS)
    start, end = WHOLE[0][:2]
    with serving(archive) as url, Client(url, timeout=20) as client:
        bounds = {"start": from_microseconds(start), "end": from_microseconds(end)}
        table = load_balance_changes(client, **bounds)
        run_export(url, tmp_path / "copy", start=start, end=end)
    assert len(table) == 18
    assert lacking(table.attrs["balance_analysis"]) == [_GAP, _VAGUE]
    doubted = [(start, end) for start, end, proven in spans_of(tmp_path / "copy") if not proven]
    assert doubted == [_GAP, _VAGUE]
    assert content_of(tmp_path / "copy", "changes/") == content_of(tmp_path / "archive", "changes/")
