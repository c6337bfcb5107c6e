"""This package's own tools get from the service exactly what the archive holds, to the byte.

A load of any node is complete: `tests/load`. The service answers as a node: `test_model`.
"""

import pandas as pd

from balance_analysis import Archive
from tests.archive import months
from tests.archive.exporting import START, content_of, lasting, loaded, run_export, spans_of
from tests.columns import lacking
from tests.node.truth import lines_of_rows, lines_of_table
from tests.serving import serving


def test_an_export_of_a_service_copies_each_byte_the_limits_and_the_archives_end(whole, tmp_path):
    """Beyond its last block a node knows nothing, and neither does a copy of its archive."""
    with serving(Archive(whole)) as url:
        run_export(url, tmp_path / "copy", start=START)
    assert lasting(tmp_path / "copy") == lasting(whole)
    names = ["propose_asset_enabled_from", "can_propose_market", "genesis_loaded", "extra"]
    limits, copied = (Archive(each).limits() for each in (whole, tmp_path / "copy"))
    pd.testing.assert_frame_equal(copied[names], limits[names].tail(1).reset_index(drop=True))
    assert copied["block_height"].tolist() == limits["block_height"].tolist()[-1:]


def test_neither_a_load_nor_a_copy_claims_more_than_its_source(tmp_path):
    folder, copy = months.torn_apart(tmp_path / "archive"), tmp_path / "copy"
    with serving(Archive(folder)) as url:
        table = loaded(url, months.START, months.END)
        run_export(url, copy, start=months.START, end=months.END, partition="month")
    assert lines_of_table(table) == lines_of_rows(months.HELD)
    assert lacking(table.attrs["balance_analysis"]) == [months.DOUBTED]
    assert [span for span in spans_of(copy) if not span[2]] == [(*months.DOUBTED, False)]
    assert content_of(copy, "changes/") == content_of(folder, "changes/")
