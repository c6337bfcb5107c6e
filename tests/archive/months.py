"""A history of three months, for archives with a file a month."""

from hypothesis import strategies as st

from tests.archive.exporting import DAY, node_of, run_export, spread_history

START, END = 1_676_000_000_000_000, 1_684_000_000_000_000  # 2023-02-10 to 2023-05-13
MARCH, APRIL, MAY = 1_677_628_800_000_000, 1_680_307_200_000_000, 1_682_899_200_000_000
ROWS = spread_history(5, start=START, end=END, rows=100, accounts=20)
ROW_GROUP = 3
"""Rows of a row group: filters choose among several of each file."""

HELD = [row for row in ROWS if not MARCH <= row.time < APRIL]
"""What the archive with a gap has."""

TIMES = sorted({row.time for row in ROWS})
DOUBTED = MARCH, min(at for at in TIMES if at >= APRIL)
"""Where it may lack rows: the gap, and what is unproven behind it."""

MOMENTS = st.sampled_from(
    [at + n for at in (START, MARCH, APRIL, MAY, END - 1, *TIMES) for n in (-1, 0, 1)]
).filter(lambda at: START <= at < END)


def filled(folder, partition, **given):
    """Return an archive of the whole history, or of some accounts of it."""
    run_export(node_of(ROWS, head=END), folder, start=START, end=END, partition=partition, **given)
    return folder


def torn_apart(folder):
    """Return an archive with a gap in March, and an unproven beginning of April."""
    late = [row for row in ROWS if row.time >= APRIL]
    node = node_of(late, head=MAY)
    run_export(node, folder, start=APRIL - DAY, end=MAY, partition="month")
    node.block_timestamp, node.block_height = END * 1000, 1000
    run_export(node, folder, end=END)
    run_export(node_of(ROWS, head=END), folder, start=START, end=MARCH)
    return folder
