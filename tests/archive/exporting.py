"""Histories, nodes and archives for the tests of exports, and what must hold of an archive."""

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from balance_analysis import Archive, Client, Repaired, Run, export, load_balance_changes, repair
from balance_analysis.archive.manifest import Manifest, read_manifest, sign
from tests.loopback import LoopbackNode, Row, random_history
from tests.moments import from_microseconds, to_microseconds
from tests.node.asking import client_to
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.waits import dont_wait

Source = LoopbackNode | str | list[LoopbackNode | str]
Moment = int | str | None

HOUR = 3_600_000_000
DAY = 24 * HOUR

START = to_microseconds("2023-04-28T20:00")
END = to_microseconds("2023-05-03T08:00")
MONTH = to_microseconds("2023-05-01")


def spread_history(
    seed: int,
    *,
    start: int = START,
    end: int = END,
    rows: int = 200,
    accounts: int = 30,
    largest_block: int = 6,
) -> list[Row]:
    """Return a random history that fills an interval, with blocks on and beside midnights.

    Parameters
    ----------
    start, end
        Microseconds. The first block stands at `start`, the last before `end`.
    """
    history = random_history(seed, rows=rows, accounts=accounts, largest_block=largest_block)
    blocks = sorted({row.time for row in history})
    rng = random.Random(seed)
    midnights = range(start - start % DAY + DAY, end, DAY)
    some = rng.sample(midnights, min(len(midnights), len(blocks) // 4))
    scan = {start, *(midnight + rng.randint(-1, 1) for midnight in some)}
    while len(scan) < len(blocks):
        scan.add(rng.choice([rng.randrange(start, end), min(rng.choice([*scan]) + 1, end - 1)]))
    moved = dict(zip(blocks, sorted(scan), strict=True))
    return [row._replace(time=moved[row.time]) for row in history]


ROWS = spread_history(5, rows=160, accounts=20)
"""What the archive has that most tests here share."""


def node_of(rows: Sequence[Row], *, head: int = END, **options: Any) -> LoopbackNode:
    """Return a node whose last block is at `head`, microseconds."""
    return LoopbackNode(rows, **{"block_timestamp": head * 1000, **options})


def knowing(rows: list[Row], since: int = START, head: int = END, **options: Any) -> LoopbackNode:
    """Return a node that forgot the rows before `since`, and has no block beyond `head`."""
    return node_of(matching(rows, start=since, end=head), head=head, **options)


def client_of(source: Source, **options: Any) -> Client:
    """Return a client of nodes or addresses; a node that never ran is asked in process."""
    if isinstance(source, LoopbackNode) and not source.has_address:
        return client_to(source, **options)
    sources = source if isinstance(source, list) else [source]
    urls = [each.url if isinstance(each, LoopbackNode) else each for each in sources]
    return Client(urls, timeout=10, **options)


def run_export(
    source: Source,
    folder: Archive | Path,
    sleep: Callable[[float], None] = dont_wait,
    **options: Any,
) -> Run:
    """Export from nodes; bounds are microseconds or as `export` takes them."""
    bounds = {
        name: from_microseconds(options.pop(name))
        for name in ("start", "end")
        if isinstance(options.get(name), int)
    }
    with client_of(source, sleep=sleep) as client:
        return export(client, folder, **bounds, **options)


def mend(node: LoopbackNode, folder: Path, **options: Any) -> Repaired:
    """Repair an archive from a node."""
    with client_of(node) as client:
        return repair(client, folder, **options)


def loaded(source: Source, start: Moment = START, end: Moment = END, **how: Any) -> pd.DataFrame:
    """Load a table; bounds are microseconds or as a load takes them."""
    bounds = [from_microseconds(at) if isinstance(at, int) else at for at in (start, end)]
    with client_of(source) as client:
        return load_balance_changes(client, start=bounds[0], end=bounds[1], **how)


def state_of(folder: Path) -> Manifest:
    """Return an archive's manifest."""
    return read_manifest(Archive(folder).store)


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change an archive's manifest, with a valid digest."""
    content = json.loads((folder / "_archive.json").read_bytes())
    del content["sha256"]
    edit(content)
    (folder / "_archive.json").write_bytes(sign(content))


def spans_of(folder: Path) -> list[tuple[int, int, bool]]:
    """Return the answered stretches and whether each is complete, without nodes and times."""
    evidence = state_of(folder).evidence
    complete = [(start, end, True) for start, end in evidence.complete]
    return sorted([*complete, *((start, end, False) for start, end in evidence.unproven)])


def content_of(folder: Path, *names: str) -> dict[str, bytes]:
    """Return the files and their bytes: those with a prefix, else all except a run's own."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    there = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}
    return {
        name: data
        for name, data in there.items()
        if (name.startswith(names) if names else not name.startswith(("_lock", "_runs/")))
    }


def reports(folder: Path) -> list[dict[str, Any]]:
    """Return the records of an archive's runs, newest first."""
    paths = sorted(folder.glob("_runs/*.json"), reverse=True)
    return [json.loads(path.read_text()) for path in paths]


def lasting(folder: Path) -> tuple[Any, ...]:
    """Return the files that are equal, byte for byte, in two archives of the same rows."""
    state = state_of(folder)
    files = content_of(folder, "changes/", "_checkpoints/")
    return files, spans_of(folder), state.query, state.files, state.checkpoints, state.pending


def in_spans(rows: Sequence[Row], spans: Sequence[tuple[int, int, bool]]) -> list[Row]:
    """Return the rows of a node that lie in answered stretches."""
    return [row for start, end, _ in spans for row in matching(rows, start=start, end=end)]


def assert_holds(folder: Path, rows: list[Row], *, whole: tuple[int, int] | None = None) -> None:
    """Check that an archive reads as exactly a node's rows in its covered intervals.

    Parameters
    ----------
    whole
        The interval that must be covered, without a gap.
    """
    there = lines_of_table(Archive(folder).read(start="2020-01-01", end="2100-01-01", partial=True))
    assert there == lines_of_rows(in_spans(rows, spans_of(folder)))
    if whole is not None:
        assert not state_of(folder).evidence.missing(*whole)


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Check that afterwards no file of an archive has changed, and none is new."""
    before = content_of(folder)
    yield
    assert content_of(folder) == before
