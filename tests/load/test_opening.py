"""With openings, a load has the last row before its start of each account, and its evidence."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import END, knowing, loaded, node_of, spread_history
from tests.cli.running import run
from tests.columns import known_of
from tests.loopback import LoopbackNode, histories, spoilt
from tests.moments import from_microseconds, moment_text
from tests.node.truth import lines_of_rows, lines_of_table, matching

ROWS = spread_history(5, rows=300, accounts=40)
TIMES = sorted({row.time for row in ROWS})
MIDDLE = TIMES[len(TIMES) // 2]


def load(node, start=MIDDLE, end=END, **options):
    return loaded(node, start, end, **{"opening": True, **options})


def last_rows(rows, start):
    """Return the last row of each account before a moment, by a loop."""
    last = {row.account: row for row in rows if row.time < start}
    return list(last.values())


def test_the_known_interval_reaches_back_to_the_oldest_row_and_the_start_stays():
    node = node_of(ROWS)
    table, plain = load(node), load(node, opening=False)
    notes, others = (each.attrs["balance_analysis"] for each in (table, plain))
    assert (notes["start"], notes["end"]) == (others["start"], others["end"])
    assert known_of(table) == ((TIMES[0], END),)
    assert known_of(plain) == ((MIDDLE, END),)
    assert notes["rows"] == len(table) > len(plain) == others["rows"]


def test_openings_cost_the_pages_before_the_start_and_no_further_reach_requests():
    node = node_of(ROWS)
    plain = load(node, opening=False).attrs["balance_analysis"]["requests"]
    table = load(node)
    # The oldest row is looked for from 2020 on, a year at a time, and then whether there is an
    # older one; one page holds the rows after it.
    assert table.attrs["balance_analysis"]["requests"] == plain + 4 + 1 + 1


@settings(max_examples=12)
@given(
    histories(most_rows=120, most_accounts=30, largest_block=20),
    st.data(),
    st.booleans(),
    st.sampled_from([2, 7, 5000]),
)
def test_a_known_interval_after_an_opening_has_no_other_row(rows, data, has_head, page_size):
    """An account's opening is its balance at the start wherever what lies between is known."""
    times = sorted({row.time for row in rows}) or [MIDDLE]
    start, head, pruned = (data.draw(st.sampled_from(times)) for _ in range(3))
    kept = [row for row in rows if pruned <= row.time < head]
    last = times[-1] + 1 if has_head else None
    stamp = {"block_timestamp": min(last, head) * 1000} if last else {}
    node = LoopbackNode(kept, **stamp)
    table = load(node, start=start, end=times[-1] + 10, page_size=page_size)
    known, truth = known_of(table), {row.account: row for row in last_rows(rows, start)}
    before = table[table["timestamp"] < from_microseconds(start)]
    for *account, at, balance in before.itertuples(index=False, name=None):
        row = truth[tuple(account)]
        if any(from_microseconds(first) <= at and start <= end for first, end in known):
            assert (at, balance) == (from_microseconds(row.time), int(row.balance))


def test_a_load_from_the_oldest_row_on_has_no_openings():
    table = load(node_of(ROWS), start=None)
    assert lines_of_table(table) == lines_of_rows(ROWS)


def test_a_node_that_doesnt_reach_the_start_gives_openings_and_the_gap_after_them():
    head = TIMES[len(TIMES) // 4]
    table = load(knowing(ROWS, head=head))
    assert lines_of_table(table) == lines_of_rows(last_rows(ROWS, head))
    assert known_of(table) == ((TIMES[0], head),)


def test_the_moment_of_a_row_set_aside_before_the_start_is_not_known(caplog):
    bad = last_rows(ROWS, MIDDLE)[3].time
    spoil = spoilt(lambda row: row["timestamp"] == str(bad * 1000))
    node = node_of(ROWS, edit_row=spoil)
    table = load(node, on_bad_rows="quarantine")
    with pytest.raises(ba.DecodeError):
        load(node)
    sound = [row for row in ROWS if row.time != bad]
    due = [*last_rows(sound, MIDDLE), *matching(sound, start=MIDDLE)]
    assert lines_of_table(table) == lines_of_rows(due)
    assert known_of(table) == ((TIMES[0], bad), (bad + 1, END))
    assert table.attrs["balance_analysis"]["quarantined"]
    assert "set aside" in caplog.text


def test_a_file_has_openings_too(tmp_path):
    path = tmp_path / "x.parquet"
    with node_of(ROWS) as node:
        table = load(node)
        bounds = ("--since", moment_text(MIDDLE), "--until", moment_text(END))
        run("fetch", node.url, "-o", path, *bounds, "--opening")
    pd.testing.assert_frame_equal(ba.read_parquet(path), table)
    # A file's evidence counts only while it has as many rows as it says.
    notes, others = (x.attrs["balance_analysis"] for x in (ba.read_parquet(path), table))
    assert notes["evidence"] is not None
    for name in ("known", "start", "end", "rows"):
        assert notes[name] == others[name]


def test_sums_name_the_moment_since_which_a_forgetful_node_has_openings(caplog):
    oldest = TIMES[30]
    table = load(knowing(ROWS, since=oldest))
    caplog.clear()
    ba.totals(table)
    (said,) = caplog.messages
    assert said.startswith(f"accounts without a change since {moment_text(oldest)}, if there are")
    assert said.endswith("only a source of older rows has them")
