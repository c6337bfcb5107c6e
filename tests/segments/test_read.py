"""What segments hold is read as the rows that a node lists, or it is said what is wrong."""

from __future__ import annotations

import shutil
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
from tests.loopback import LoopbackNode, Row, histories, random_history
from tests.node.truth import lines_of_rows, lines_of_table
from tests.segments.writer import (
    CHAIN,
    COLUMNS,
    flip,
    make_segments,
    old_segment,
    packed,
    pg_time,
    write_edited,
    write_segments,
)

ROWS = random_history(5, rows=160, accounts=40, largest_block=9)
TIMES = sorted({row.timestamp_ns for row in ROWS})
LIMITS = {
    **dict.fromkeys(COLUMNS["currentstate/network_limits"].split()[2:7], True),
    **dict.fromkeys(["vega_time", "propose_asset_enabled_from"], TIMES[0]),
}


def noted(table):
    return table.attrs["balance_analysis"]


@given(rows=histories(most_rows=120, most_accounts=40), each=st.integers(1, 40), data=st.data())
def test_the_rows_of_segments_are_those_of_the_node(tmp_path_factory, rows, each, data):
    if not rows:
        return
    folder = tmp_path_factory.mktemp("segments")
    quiet = data.draw(st.lists(st.integers(-(10**9), 10**9), max_size=9))
    quiet = [TIMES[0] + 10**12 + n * 1000 for n in quiet]
    segments = data.draw(st.permutations(make_segments(rows, each=each, quiet=quiet)))
    for number, segment in enumerate(segments + segments[: data.draw(st.integers(0, 2))]):
        root, zipped = data.draw(st.sampled_from(["", "in/"])), data.draw(st.booleans())
        segment.write(folder / str(number), root=root, zipped=zipped)
    table = ba.read_segments(folder)
    assert lines_of_table(table) == lines_of_rows(rows)
    times = sorted({*quiet, *(row.timestamp_ns for row in rows)})
    assert known_of(table) == ((times[0] // 1000, times[-1] // 1000 + 1),)
    assert noted(table)["source"] == f"segments {CHAIN} 1-{len(times)}"


def test_a_table_of_segments_equals_that_of_a_node(tmp_path):
    write_segments(tmp_path, ROWS)
    table = ba.read_segments(tmp_path)
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        loaded = ba.load_balance_changes(client, start="2023-01-01", end="2024-01-01")
    assert table.equals(loaded)
    assert table.dtypes.equals(loaded.dtypes)


@pytest.mark.parametrize("name", ["asset_id", "party_ids", "market_ids", "account_types"])
def test_filters_leave_what_they_leave_of_the_table(tmp_path, name):
    write_segments(tmp_path, ROWS)
    table = ba.read_segments(tmp_path)
    column = name.removesuffix("s")
    values = [x for x in table[column].cat.categories if x][:2]
    selected = ba.read_segments(tmp_path, **{name: values[0] if name == "asset_id" else values})
    wanted = table[table[column].isin(values[:1] if name == "asset_id" else values)]
    assert lines_of_table(selected) == lines_of_table(wanted)


def test_well_known_ids_and_types_by_number_are_spelt_as_the_interface_spells_them(tmp_path):
    rows = [
        Row(TIMES[0], "VOTE", "ACCOUNT_TYPE_GENERAL", "network", "", 10**38 - 1),
        Row(TIMES[0], "fUSDC", 35, "ab" * 32, "cd" * 32, 0),
        Row(TIMES[0], "XYZalpha", "ACCOUNT_TYPE_LOCKED_FOR_STAKING", "ab" * 32, "", 3),
    ]
    write_segments(tmp_path, sorted(rows, key=lambda row: row.order))
    table = ba.read_segments(tmp_path)
    assert lines_of_table(table) == lines_of_rows(rows)
    assert "35" in set(table["account_type"])


def test_symbols_choose_assets_and_the_last_version_of_an_asset_counts(tmp_path):
    asset = ROWS[0].asset_id
    write_segments(tmp_path, ROWS, assets={asset: ("tUSD", 6)})
    table = ba.read_segments(tmp_path, asset_id="tusd")
    assert set(table["asset_id"]) == {asset}
    read = ba.read_assets(noted(table)["assets"])[asset]
    assert (read.symbol, read.decimals, read.name) == ("tUSD", 6, 'tUSD, "the\nbest"')


@pytest.mark.parametrize(("each", "shared"), [(7, "15 to 21"), (9, "1 to 7")])
def test_other_segments_that_share_blocks_are_refused_and_named(tmp_path, each, shared):
    paths = write_segments(tmp_path / "a", ROWS)
    rows = [replace(row, balance=row.balance + 1) if row == ROWS[80] else row for row in ROWS]
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


def sharing(rows, each, twins):
    """Return segments in which blocks have the time of the one before, and so no row."""
    segments = make_segments(rows, each=each)
    for segment in segments:
        blocks = segment.tables["history/blocks"]
        times = {block["vega_time"]: block["vega_time"] for block in blocks}
        for before, block in pairwise(blocks):
            if block["height"] in twins:
                times[block["vega_time"]] = before["vega_time"]
        for name in ("history/balances", "history/ledger", "currentstate/accounts"):
            for row in segment.tables[name]:
                row["vega_time"] = times.get(row["vega_time"], row["vega_time"])
        kept = [block for block in blocks if times[block["vega_time"]] == block["vega_time"]]
        segment.tables["history/blocks"] = kept
    return segments


@given(rows=histories(most_rows=60, most_accounts=30), each=st.integers(3, 9), data=st.data())
@settings(max_examples=8, deadline=None)
def test_a_block_without_a_row_has_the_time_of_the_one_before_or_is_lost_and_unproven(
    tmp_path_factory, rows, each, data
):
    folder, times = tmp_path_factory.mktemp("twins"), sorted({row.timestamp_ns for row in rows})
    ends = {n for n in range(1, len(times) + 1) if (n - 1) % each in {0, each - 1}} | {len(times)}
    twins = [n for n in range(2, len(times)) if n not in ends and data.draw(st.booleans())]
    # One of two in a row at most: a node's clock goes on.
    twins = {n for n in twins if n - 1 not in twins}
    moved = {times[n - 1]: times[n - 2] for n in twins}
    kept = {}
    for row in rows:
        at = moved.get(row.timestamp_ns, row.timestamp_ns)
        kept[row.account, at] = replace(row, timestamp_ns=at)
    if not kept:
        return
    for segment in sharing(rows, each, {str(n) for n in twins}):
        last = {(x["account_id"], x["vega_time"]): x for x in segment.tables["history/balances"]}
        segment.tables["history/balances"] = [*last.values()]
        segment.write(folder)
    table = ba.read_segments(folder)
    assert lines_of_table(table) == lines_of_rows(sorted(kept.values(), key=lambda x: x.order))
    moments = [time // 1000 for time in times]
    doubts = [(moments[n - 2] + 1, moments[n]) for n in sorted(twins)]
    edges = [moments[0], *(edge for doubt in doubts for edge in doubt), moments[-1] + 1]
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


def edited(edit, number=1):
    """Return a damage: segments one of which is edited."""
    return lambda folder: write_edited(folder, ROWS, edit, number)


def cut(share):
    def write(folder):
        path = write_segments(folder, ROWS)[1]
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return write


def flipped(folder):
    flip(write_segments(folder, ROWS)[1])


def without(table):
    return edited(lambda segment: segment.tables.pop(table))


def setting(table, place, **values):
    return edited(lambda segment: segment.tables[table][place].update(values))


def metadata(number=1, **values):
    return edited(lambda segment: segment.metadata.update(values), number)


def lost_id(folder):
    segments = make_segments(ROWS)
    for number, segment in enumerate(segments):
        follower = segments[(number + 1) % len(segments)].metadata["PreviousHistorySegmentID"]
        segment.write(folder, name=f"{follower or segment.name}.zip")
    names = sorted(folder.glob("Qm*.zip"))
    shutil.move(names[0], folder / f"{'Qm' + 'A' * 44}.zip")


def without_block(place):
    return edited(lambda segment: segment.tables["history/blocks"].pop(place))


def lost(*places, kept=""):
    """Return a damage: blocks are lost with their rows in all tables but one."""

    def edit(segment):
        blocks = segment.tables["history/blocks"]
        times = {blocks[place]["vega_time"] for place in places}
        for name in {"history/blocks", "history/balances", "history/ledger"} - {kept}:
            rows = segment.tables[name]
            segment.tables[name] = [row for row in rows if row["vega_time"] not in times]

    return edited(edit)


def account(**values):
    """Return a damage: an account of the last segment, whose accounts are those of all."""
    return edited(lambda x: x.tables["currentstate/accounts"][2].update(values), number=-1)


[*_, SEGMENT] = make_segments(ROWS)


def zipped(content, *name, **how):
    return lambda folder: packed(SEGMENT, folder / "x.zip", content, *name, **how)


def twice(segment):
    rows = segment.tables["history/balances"]
    rows.append(rows[0])


row_twice, block = edited(twice), partial(setting, "history/blocks")
MISSING = (ba.IncompleteError, "missing: 11")
LATER = "2223-01-18 01:06:44+00"
DAMAGES = {
    "half a zip": (cut(0.5), ba.DecodeError, "is no segment, or not all of one"),
    "an empty zip": (cut(0), ba.DecodeError, "is no segment, or not all of one"),
    "a flipped byte": (flipped, ba.DecodeError, "history/balances can't be read"),
    **{
        f"without {table}": (without(table), ba.DecodeError, f"it has no {table}")
        for table in make_segments(ROWS)[0].tables
    },
    "two chains": (metadata(ChainID="other"), ba.NetworkMismatchError, "of the chain"),
    "no chain": (metadata(ChainID=""), ba.DecodeError, "names no chain and blocks"),
    "heights turned": (metadata(HeightTo=3), ba.DecodeError, "names no chain and blocks"),
    "no height": (metadata(HeightTo="x"), ba.DecodeError, "metadata.json is not that of a segment"),
    "fewer blocks": (metadata(HeightTo=13), ba.IncompleteError, "not 6 from 8 to 13"),
    "a block is missing": (without_block(3), ba.IncompleteError, "missing: 11"),
    "a block and its balances": (lost(3, kept="history/ledger"), *MISSING),
    "a block and its ledger": (lost(3, kept="history/balances"), *MISSING),
    "the first block is missing": (without_block(0), ba.IncompleteError, "missing: 8"),
    "more blocks than there are": (metadata(5, HeightTo=150), ba.IncompleteError, "39 to 150"),
    "more blocks than can be": (metadata(5, HeightTo=10**15), ba.IncompleteError, "39 to 1,000,"),
    "more blocks than numbers": (metadata(HeightTo=10**30), ba.DecodeError, "names no chain"),
    "two blocks in a row": (lost(4, 5), ba.IncompleteError, "missing: 12 to 13"),
    "the last block is missing": (lost(6), ba.IncompleteError, "missing: 14"),
    "a block twice": (block(3, height="9"), *MISSING),
    "a block of no height": (block(3, height="nine"), ba.DecodeError, "a block has no height"),
    "a block of no time": (block(3, vega_time="infinity"), ba.DecodeError, "is no moment"),
    "a block of another century": (block(6, vega_time=LATER), ba.DecodeError, "2015 and 2100"),
    "blocks that go back": (block(3, vega_time=pg_time(TIMES[0])), ba.DecodeError, "don't ascend"),
    "another before it": (lost_id, ba.IncompleteError, "came before it, but"),
    "a row twice": (row_twice, ba.CheckError, "two rows of one account in one block"),
    "a type by name": (account(type="GENERAL"), ba.DecodeError, "account's type is 'GENERAL'"),
    "an asset by name": (account(asset_id="VOTE"), ba.DecodeError, "account's asset_id is 'VOTE'"),
    "no asset": (account(asset_id="\\x"), ba.DecodeError, "account's asset_id is empty"),
    "another packing": (
        zipped(b"\n" * 10**7, packing=zipfile.ZIP_LZMA), ba.DecodeError, "not deflated"
    ),
    "deep metadata": (
        zipped(b'{"x":' * 200_000 + b"0" + b"}" * 200_000, "metadata.json"),
        ba.DecodeError,
        "not that of a segment",
    ),
    "many bad lines": (
        zipped(b"account_id,vega_time,tx_hash,balance\n" + b"1,2\n" * 100_000),
        ba.DecodeError,
        "Expected 4 columns, got 2: 1,2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_with_a_segment_is_named_and_nothing_is_read(tmp_path, damage):
    write, error, said = DAMAGES[damage]
    write(tmp_path)
    with pytest.raises(error, match=said):
        ba.read_segments(tmp_path)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with an unpacked segment, and an archive of it."""
    folder = tmp_path_factory.mktemp("unpacked")
    make_segments(ROWS, limits=[LIMITS])[0].write(folder, name="segment", zipped=False)
    ba.import_segments(folder / "archive", folder / "segment")
    return folder


@given(name=st.sampled_from([*SEGMENT.tables]), data=st.data())
@settings(max_examples=40, deadline=None)
def test_an_unpacked_table_that_ends_within_a_row_is_named(unpacked, name, data):
    path = unpacked / "segment" / name
    content = path.read_bytes()
    left = content[: data.draw(st.integers(1, len(content) - 1))]
    assume(not left.endswith(b"\n") or left.count(b'"') % 2)
    read = partial(ba.import_segments, unpacked / "other", unpacked / "segment")
    if name == "history/ledger":
        read = partial(ba.Archive(unpacked / "archive").verify, segments=unpacked / "segment")
    path.write_bytes(left)
    try:
        with pytest.raises(ba.DecodeError, match=f"{name} ends within a row|CSV parser"):
            read()
    finally:
        path.write_bytes(content)


BAD_ROWS = {
    "39 digits": ({"balance": "9" * 39}, "has more than 38 digits"),
    "78 digits": ({"balance": "-" + "9" * 78}, "has more than 38 digits"),
    "a fraction": ({"balance": "1.5"}, "is not an integer"),
    "an exponent": ({"balance": "1e5"}, "is not an integer"),
    "no balance": ({"balance": None}, "is not an integer"),
    "an unknown account": ({"account_id": "\\x" + "00" * 32}, "the table accounts has no"),
    "no account": ({"account_id": None}, "the table accounts has no"),
    "a time between blocks": ({"vega_time": pg_time(TIMES[7] + 1000)}, "none of the segment's"),
    "no time": ({"vega_time": None}, "none of the segment's"),
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_raises_or_is_set_aside(tmp_path, bad):
    values, said = BAD_ROWS[bad]
    setting("history/balances", 4, **values)(tmp_path)
    with pytest.raises(ba.DecodeError, match=said):
        ba.read_segments(tmp_path)
    table = ba.read_segments(tmp_path, on_bad_rows="quarantine")
    [row] = noted(table)["quarantined"]
    assert said in row["reason"]
    assert len(table) == len(ROWS) - 1
    [lost] = {*lines_of_rows(ROWS)} - {*lines_of_table(table)}
    assert not any(start <= lost[4] < end for start, end in known_of(table))


LARGE = 16 * 1024**2


@pytest.mark.parametrize("name", ["history/balances", "currentstate/accounts", "metadata.json"])
@pytest.mark.parametrize(
    ("size", "said"), [(2**30 + 1, "more than 1,073,741,824"), (900, "can't be read|not")]
)
def test_a_zip_of_a_table_too_large_is_refused_before_it_fills_the_memory(
    tmp_path, name, size, said
):
    path = packed(SEGMENT, tmp_path / "x.zip", b"\n" * LARGE, name, size=size)
    tracemalloc.start()
    try:
        with pytest.raises(ba.DecodeError, match=said):
            ba.read_segments(path)
        assert tracemalloc.get_traced_memory()[1] < LARGE / 4
    finally:
        tracemalloc.stop()


def test_segments_of_nodes_older_than_v0_71_are_named_and_left_out_beside_new_ones(
    tmp_path, caplog
):
    path, without_ending = old_segment(tmp_path / "a"), old_segment(tmp_path, "Qm" + "A" * 44)
    for named in (path, path.parent, without_ending):
        with pytest.raises(ba.DecodeError, match=r"written by a node older than v0\.71, as a tar"):
            ba.read_segments(named)
    write_segments(tmp_path, ROWS)
    assert lines_of_table(ba.read_segments(tmp_path)) == lines_of_rows(ROWS)
    assert "1 segment left out, such as " in caplog.text
    assert "written by a node older than v0.71" in caplog.text
