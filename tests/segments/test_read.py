"""Segments are read as the rows that a node lists, or the error says what is wrong."""

import os
import tracemalloc
import zipfile
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.columns import known_of
from tests.loopback import LoopbackNode, Row, histories
from tests.node.asking import client_to
from tests.node.truth import lines_of_rows, lines_of_table
from tests.segments.writer import (
    CHAIN,
    COLUMNS,
    ROWS,
    content_id,
    flip,
    limits_at,
    make_segments,
    old_segment,
    pg_time,
    write_segments,
)

TIMES = sorted({row.time for row in ROWS})
TABLES = [*COLUMNS]
SEGMENT = make_segments(ROWS, limits=[limits_at(TIMES[0], propose_asset_enabled_from=TIMES[0])])[0]


def noted(table):
    return table.attrs["balance_analysis"]


@given(rows=histories(most_rows=120, most_accounts=40), each=st.integers(1, 40), data=st.data())
def test_the_rows_of_segments_are_those_of_the_node(tmp_path_factory, rows, each, data):
    if not rows:
        return
    folder = tmp_path_factory.mktemp("segments")
    quiet = data.draw(st.lists(st.integers(-(10**9), 10**9), max_size=9))
    quiet = [TIMES[0] + 10**9 + n for n in quiet]
    segments = data.draw(st.permutations(make_segments(rows, each=each, quiet=quiet)))
    if data.draw(st.booleans(), "named as in IPFS"):
        for segment in segments:
            segment.name = f"{content_id(segment)}.zip"
    for number, segment in enumerate(segments + segments[: data.draw(st.integers(0, 2))]):
        root, zipped = data.draw(st.sampled_from(["", "in/"])), data.draw(st.booleans())
        segment.write(folder / str(number), root=root, zipped=zipped)
    table = ba.read_segments(folder)
    assert lines_of_table(table) == lines_of_rows(rows)
    times = sorted({*quiet, *(row.time for row in rows)})
    assert known_of(table) == ((times[0], times[-1] + 1),)
    assert noted(table)["source"] == f"segments {CHAIN} 1-{len(times)}"


def some(column):
    return sorted({getattr(row, column) for row in ROWS} - {""})[:2]


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"asset_id": some("asset_id")[0]},
        *({f"{column}s": some(column)} for column in ("account_type", "party_id", "market_id")),
    ],
)
def test_a_table_of_segments_equals_that_of_a_node(segments, chosen):
    table = ba.read_segments(segments, **chosen)
    with client_to(LoopbackNode(ROWS)) as client:
        loaded = ba.load_balance_changes(client, start="2023-01-01", end="2024-01-01", **chosen)
    assert table.equals(loaded)
    assert table.dtypes.equals(loaded.dtypes)


def test_well_known_ids_and_types_by_number_are_spelt_as_the_interface_spells_them(tmp_path):
    rows = [
        Row("VOTE", "ACCOUNT_TYPE_GENERAL", "network", "", TIMES[0], 10**38 - 1),
        Row("fUSDC", 35, "ab" * 32, "cd" * 32, TIMES[0], 0),
        Row("XYZalpha", "ACCOUNT_TYPE_LOCKED_FOR_STAKING", "ab" * 32, "", TIMES[0], 3),
    ]
    write_segments(tmp_path, sorted(rows, key=lambda row: row.order))
    table = ba.read_segments(tmp_path)
    assert lines_of_table(table) == lines_of_rows(rows)
    assert "35" in set(table["account_type"])


def test_symbols_select_assets_and_the_last_version_of_an_asset_counts(tmp_path):
    asset = ROWS[0].asset_id
    write_segments(tmp_path, ROWS, assets={asset: ("tUSD", 6)})
    table = ba.read_segments(tmp_path, asset_id="tusd")
    assert set(table["asset_id"]) == {asset}
    read = ba.read_assets(noted(table)["assets"])[asset]
    assert (read.symbol, read.decimals, read.name) == ("tUSD", 6, 'tUSD, "the\nbest"')


@pytest.mark.parametrize(("each", "shared"), [(7, "15 to 21"), (9, "1 to 7")])
def test_different_segments_that_share_blocks_are_refused_and_named(tmp_path, each, shared):
    paths = write_segments(tmp_path / "a", ROWS)
    rows = [row._replace(balance=row.balance + (row.time == TIMES[17])) for row in ROWS]
    others = write_segments(tmp_path / "b", rows, each=each)
    with pytest.raises(ba.CheckError, match=f"both have blocks {shared}: leave one out") as failed:
        ba.read_segments(tmp_path)
    one = int(shared.split()[0]) // 7
    assert str(paths[one]) in str(failed.value)
    assert str(others[one]) in str(failed.value)


def test_paths_are_files_folders_and_patterns(tmp_path):
    paths = write_segments(tmp_path / "deep" / "er", ROWS)
    for named in ([tmp_path], str(tmp_path / "deep/*/*.zip"), paths, [*paths, tmp_path]):
        assert len(ba.read_segments(named)) == len(ROWS)
    with pytest.raises(FileNotFoundError, match="there is no segment"):
        ba.read_segments(tmp_path / "nothing*.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no segment in the folder"):
        ba.read_segments(tmp_path / "empty")


@given(rows=histories(most_rows=60, most_accounts=30), each=st.integers(3, 9), data=st.data())
@settings(max_examples=8, deadline=None)
def test_an_unlisted_block_has_the_previous_blocks_time_or_is_lost_and_unproven(
    tmp_path_factory, rows, each, data
):
    folder, times = tmp_path_factory.mktemp("twins"), sorted({row.time for row in rows})
    ends = {n for n in range(1, len(times) + 1) if (n - 1) % each in {0, each - 1}} | {len(times)}
    twins = [n for n in range(2, len(times)) if n not in ends and data.draw(st.booleans())]
    # One of two in a row at most: a node's clock goes on.
    twins = {n for n in twins if n - 1 not in twins}
    moved = {time: time for time in times} | {times[n - 1]: times[n - 2] for n in twins}
    rows = [row._replace(time=moved[row.time]) for row in rows]
    kept = {(row.account, row.time): row for row in rows}
    if not kept:
        return
    rows = sorted(kept.values(), key=lambda row: row.order)
    for segment in make_segments(rows, each=each, quiet=times):
        blocks = segment.tables["history/blocks"]
        segment.tables["history/blocks"] = [x for x in blocks if int(x["height"]) not in twins]
        segment.write(folder)
    table = ba.read_segments(folder)
    assert lines_of_table(table) == lines_of_rows(rows)
    doubts = [(times[n - 2] + 1, times[n]) for n in sorted(twins)]
    edges = [times[0], *(edge for doubt in doubts for edge in doubt), times[-1] + 1]
    assert known_of(table) == tuple(zip(edges[::2], edges[1::2], strict=True))
    ba.import_segments(folder / "archive", folder)
    archive = ba.Archive(folder / "archive")
    assert archive.read(partial=True).equals(table)
    coverage = archive.coverage()
    assert coverage["state"].tolist() == [*("complete", "unproven") * len(doubts), "complete"]
    spans = coverage[["start", "end"]].astype("int64").to_numpy().tolist()
    assert spans == [list(span) for span in pairwise(edges)]
    assert set(coverage["source"]) == {f"segments {CHAIN}"}
    assert coverage["block_height"].max() == len(times)
    assert ba.diff(archive, folder).rows.empty


def setting(table, place, number=1, **values):
    """Return a damage that changes the values of a table's row."""
    return lambda parts: parts[number].tables[table][place].update(values)


def metadata(number=1, **values):
    return lambda parts: parts[number].metadata.update(values)


def containing(name, content):
    return lambda parts: parts[1].other.update({name: content})


def without(table):
    return lambda parts: parts[1].tables.pop(table)


def without_block(place):
    return lambda parts: parts[1].tables["history/blocks"].pop(place)


def lost(*places, kept=""):
    """Return a damage that removes blocks, and their rows from all tables except one."""

    def edit(parts):
        tables = parts[1].tables
        times = {tables["history/blocks"][place]["vega_time"] for place in places}
        for name in {"history/blocks", "history/balances", "history/ledger"} - {kept}:
            tables[name] = [row for row in tables[name] if row["vega_time"] not in times]

    return edit


def twice(parts):
    rows = parts[1].tables["history/balances"]
    rows.append(rows[0])


def another_before(parts):
    for part in parts:
        part.name = f"{content_id(part)}.zip"
    parts[0].name = f"Qm{'A' * 44}.zip"


# Its accounts are those of all.
account = partial(setting, "currentstate/accounts", 2, number=-1)
block = partial(setting, "history/blocks")
LATER = "2223-01-18 01:06:44+00"
DEEP = b'{"x":' * 200_000 + b"0" + b"}" * 200_000
SHORT = b"account_id,vega_time,tx_hash,balance\n" + b"1,2\n" * 10**5
DAMAGES = {
    **{f"without {name}": (without(name), ba.DecodeError, f"it has no {name}") for name in TABLES},
    "two chains": (metadata(ChainID="other"), ba.NetworkMismatchError, "of the chain"),
    "no chain": (metadata(ChainID=""), ba.DecodeError, "must name a chain and its blocks"),
    "heights turned": (metadata(HeightTo=3), ba.DecodeError, "must name a chain and its blocks"),
    "no height": (metadata(HeightTo="x"), ba.DecodeError, "metadata.json is not that of a segment"),
    "fewer blocks": (metadata(HeightTo=13), ba.IncompleteError, "not 6 from 8 to 13"),
    "a block is missing": (without_block(3), ba.IncompleteError, "missing: 11"),
    "a block and its balances": (lost(3, kept="history/ledger"), ba.IncompleteError, "missing: 11"),
    "a block and its ledger": (lost(3, kept="history/balances"), ba.IncompleteError, "missing: 11"),
    "a block but its accounts": (lost(4), ba.IncompleteError, "missing: 12"),
    "the first block is missing": (without_block(0), ba.IncompleteError, "missing: 8"),
    "more blocks than there are": (metadata(-1, HeightTo=150), ba.IncompleteError, "49 to 150"),
    "more blocks than can be": (metadata(-1, HeightTo=10**15), ba.IncompleteError, "49 to 1,000,"),
    "more blocks than numbers": (metadata(HeightTo=10**30), ba.DecodeError, "must name a chain"),
    "no block at all": (lost(*range(7)), ba.IncompleteError, "missing: 8 to 14"),
    "two blocks in a row": (lost(4, 5), ba.IncompleteError, "missing: 12 to 13"),
    "the last block is missing": (lost(6), ba.IncompleteError, "missing: 14"),
    "a block twice": (block(3, height="9"), ba.IncompleteError, "missing: 11"),
    "a block of no height": (block(3, height="nine"), ba.DecodeError, "a block has no height"),
    "a block of no time": (block(3, vega_time="infinity"), ba.DecodeError, "is not a moment"),
    "a block of another century": (block(6, vega_time=LATER), ba.DecodeError, "2015 and 2100"),
    "blocks of one time": (block(3, vega_time=pg_time(TIMES[9])), ba.DecodeError, "don't ascend"),
    "another before it": (another_before, ba.IncompleteError, "as the one before it, but"),
    "a row twice": (twice, ba.CheckError, "two rows of one account in one block"),
    "a type by name": (account(type="GENERAL"), ba.DecodeError, "account's type is 'GENERAL'"),
    "an asset by name": (account(asset_id="VOTE"), ba.DecodeError, "account's asset_id is 'VOTE'"),
    "no asset": (account(asset_id="\\x"), ba.DecodeError, "account's asset_id is empty"),
    "deep metadata": (containing("metadata.json", DEEP), ba.DecodeError, "not that of a segment"),
    "many bad lines": (containing("history/balances", SHORT), ba.DecodeError, "got 2: 1,2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_segments_fault_is_named_and_nothing_is_read(tmp_path, damage):
    edit, error, said = DAMAGES[damage]
    write_segments(tmp_path, ROWS, edit=edit)
    with pytest.raises(error, match=said):
        ba.read_segments(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(b""), "is not a whole segment"),
        (lambda path: os.truncate(path, 900), "is not a whole segment"),
        (flip, "history/balances can't be read"),
    ],
)
def test_a_damaged_zip_is_named(tmp_path, spoil, said):
    spoil(write_segments(tmp_path, ROWS)[1])
    with pytest.raises(ba.DecodeError, match=said):
        ba.read_segments(tmp_path)


@given(name=st.sampled_from(TABLES), data=st.data())
@settings(max_examples=40, deadline=None)
def test_an_unpacked_table_that_ends_within_a_row_is_named(tmp_path_factory, name, data):
    content, folder = SEGMENT.files()[name], tmp_path_factory.mktemp("unpacked")
    left = content[: data.draw(st.integers(1, len(content) - 1))]
    assume(not left.endswith(b"\n") or left.count(b'"') % 2)
    path = replace(SEGMENT, other={name: left}).write(folder, zipped=False)

    def read_all():
        ba.import_segments(folder / "archive", path)
        ba.Archive(folder / "archive").verify(segments=path)

    with pytest.raises(ba.DecodeError, match=f"{name} ends within a row|CSV parser"):
        read_all()


BAD_ROWS = {
    "39 digits": ({"balance": "9" * 39}, "of at most 38 digits"),
    "78 digits": ({"balance": "-" + "9" * 78}, "of at most 38 digits"),
    "a fraction": ({"balance": "1.5"}, "is not an integer"),
    "an exponent": ({"balance": "1e5"}, "is not an integer"),
    "no balance": ({"balance": None}, "is not an integer"),
    "an unknown account": ({"account_id": "\\x" + "00" * 32}, "the table of accounts has no"),
    "no account": ({"account_id": None}, "the table of accounts has no"),
    "a time between blocks": ({"vega_time": pg_time(TIMES[9] + 1)}, "no block of the segment"),
    "no time": ({"vega_time": None}, "no block of the segment"),
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_raises_or_is_set_aside(tmp_path, bad):
    values, said = BAD_ROWS[bad]
    write_segments(tmp_path, ROWS, edit=setting("history/balances", 4, **values))
    with pytest.raises(ba.DecodeError, match=said):
        ba.read_segments(tmp_path)
    with pytest.raises(ValueError, match='"raise" or "quarantine", not'):
        ba.read_segments(tmp_path, on_bad_rows="skip")
    table = ba.read_segments(tmp_path, on_bad_rows="quarantine")
    [row] = noted(table)["quarantined"]
    assert said in row["reason"]
    assert len(table) == len(ROWS) - 1
    [lost] = {*lines_of_rows(ROWS)} - {*lines_of_table(table)}
    assert not any(start <= lost[4] < end for start, end in known_of(table))


LARGE = 16 * 1024**2


@pytest.mark.parametrize("name", ["history/balances", "currentstate/accounts", "metadata.json"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"size": 2**30 + 1}, "more than 1,073,741,824"),
        ({"size": 900}, "can't be read|not"),
        ({"packing": zipfile.ZIP_LZMA}, "another method than deflate"),
    ],
)
def test_a_zip_with_a_too_large_table_is_refused_before_it_fills_memory(tmp_path, name, how, said):
    path = replace(SEGMENT, other={name: b"\n" * LARGE}).write(tmp_path, **how)
    tracemalloc.start()
    try:
        with pytest.raises(ba.DecodeError, match=said):
            ba.read_segments(path)
        assert tracemalloc.get_traced_memory()[1] < LARGE / 4
    finally:
        tracemalloc.stop()


def test_segments_of_nodes_before_v0_71_are_named_and_left_out_beside_new_ones(tmp_path, caplog):
    path, without_ending = old_segment(tmp_path / "a"), old_segment(tmp_path, "Qm" + "A" * 44)
    for named in (path, path.parent, without_ending):
        with pytest.raises(ba.DecodeError, match=r"written by a node older than v0\.71, as a tar"):
            ba.read_segments(named)
    write_segments(tmp_path, ROWS)
    assert lines_of_table(ba.read_segments(tmp_path)) == lines_of_rows(ROWS)
    assert "1 segment left out, such as " in caplog.text
