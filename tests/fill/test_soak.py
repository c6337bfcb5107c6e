"""A week of runs against a node that fails at random, with time compressed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pandas as pd
import pytest

from balance_analysis import Archive, BalanceAnalysisError
from tests.archive.exporting import (
    DAY,
    HOUR,
    MONTH,
    assert_holds,
    content_of,
    lasting,
    loaded,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.loopback import Fault, Kind
from tests.waits import without_waits

START = MONTH - 3 * DAY
END = START + 7 * DAY
ROWS = spread_history(8, start=START, end=END, rows=400, accounts=40, largest_block=15)
FAULTS = (
    lambda: Fault(Kind.RESET),
    lambda: Fault(Kind.RESET_MIDWAY),
    lambda: Fault(Kind.TRUNCATED),
    lambda: Fault(Kind.HALF_JSON),
    Fault.html,
    Fault.rate_limited,
    Fault.too_large,
    lambda: Fault.status(500),
    lambda: Fault.status(503),
    lambda: Fault.json({"balances": None}),
    lambda: Fault.code(504, 4, "deadline exceeded"),
    lambda: Fault.answer(200, b""),
)


@pytest.fixture(autouse=True, scope="module")
def retries_without_waits():
    with without_waits():
        yield


@dataclass
class Week:
    """A node whose history grows hour by hour, and a schedule that is not kept to the minute.

    Attributes
    ----------
    failed
        How many runs ended in an error.
    """

    seed: int
    trouble: float
    failed: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        self.node = node_of([], head=START, faults=self.fault)

    def fault(self, _, __):
        if self.rng.random() < self.trouble:
            return self.rng.choice(FAULTS)()
        return None

    def pass_until(self, now):
        self.node.replace([row for row in ROWS if row.timestamp_ns < now * 1000])
        self.node.block_timestamp = now * 1000

    def run(self, folder, **options):
        try:
            run_export(
                self.node,
                folder,
                page_size=self.rng.choice([20, 100, 5000]),
                workers=self.rng.choice([1, 3]),
                progress=self.interrupting(),
                **options,
            )
        except (BalanceAnalysisError, KeyboardInterrupt) as error:
            self.failed += 1
            self.errors.append(error)

    def interrupting(self):
        """Return a function that gets the progress, and now and then is Ctrl-C."""
        if self.rng.random() > self.trouble:
            return False

        def interrupt(*_):
            raise KeyboardInterrupt

        return interrupt


def test_a_week_of_runs_ends_with_every_row_and_no_gap(tmp_path):
    week, folder = Week(1, trouble=0.2), tmp_path / "archive"
    with week.node:
        for hour in range(1, 7 * 24 + 1, 6):
            week.pass_until(START + hour * HOUR - week.rng.randrange(HOUR // 10))
            if week.rng.random() < 0.3:  # the machine was off
                continue
            week.run(folder, start=START, end=END)
            if (folder / "_archive.json").exists():
                assert_holds(folder, week.node.rows)
        week.trouble = 0.0
        week.pass_until(END)
        week.run(folder, start=START, end=END)
        run_export(week.node, tmp_path / "one", start=START, end=END)
        expected = loaded(week.node, START, END)
    assert week.failed > 3
    assert spans_of(folder) == [(START, END, True)]
    pd.testing.assert_frame_equal(Archive(folder).read(), expected)
    assert lasting(folder) == lasting(tmp_path / "one")
    assert not [name for name in content_of(folder) if name.endswith(".tmp")]
    assert not [error for error in week.errors if "archive" in str(error).lower()]
