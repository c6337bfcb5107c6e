"""An export that is watched: a node that stands still."""

from __future__ import annotations

from tests.archive.exporting import node_of, spread_history
from tests.cli.running import run

ROWS = spread_history(7, rows=60, accounts=9)


def test_a_node_that_stands_still_is_noticed_though_it_answers(tmp_path):
    with node_of(ROWS) as node:
        asked = ("export", node.url, tmp_path / "a", "--max-age", "2h")
        run(*asked, code=3)
        again = run(*asked, code=3).stderr
        assert "Nothing new" in again
        status = run("status", tmp_path / "a", "-q", "--max-age", "2h", code=3)
        assert again.endswith(f" s: {tmp_path / 'a'}\n{status.stderr}")
        run(*asked[:-1], "5000w")
