"""Results as files, and what goes wrong before there is one."""

from __future__ import annotations

import inspect
import json
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from balance_analysis import cluster
from balance_analysis.archive.accounts import FILE_KEY, KeyRange
from balance_analysis.cluster.pool import Pool
from balance_analysis.cluster.tasks import check_memory
from tests.analysis.tables import HOUR, START, many_rows, records, table_of
from tests.cluster.archives import assert_same, write_archive
from tests.columns import ID_TYPE
from tests.moments import from_microseconds

SIZE = 150


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    rows = [(*row[:4], START + (row[4] - START) * HOUR // 4, row[5]) for row in many_rows()]
    return write_archive(tmp_path_factory.mktemp("cluster") / "archive", table_of(rows))


@pytest.fixture(scope="module")
def table(archive):
    return archive.read()


def test_a_file_has_the_rows_of_the_result_by_party(archive, tmp_path):
    file = tmp_path / "series.parquet"
    expected = cluster.series(archive, freq="1D", rows_per_task=SIZE)
    assert cluster.series(archive, freq="1D", rows_per_task=SIZE, to=file) is None

    rows = pq.read_table(file)
    assert rows.schema.field("party_id").type == ID_TYPE
    assert rows.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert rows.schema.field("balance").type == pa.decimal128(38, 0)
    order = [*FILE_KEY, "timestamp"]
    found = rows.to_pandas(types_mapper={pa.decimal128(38, 0): expected["balance"].dtype}.get)
    texts = expected.astype(dict.fromkeys(FILE_KEY, "str")).sort_values(order)
    assert records(found) == records(texts.astype(dict.fromkeys(FILE_KEY, "category")))


def test_a_keyword_that_there_is_not_is_told_in_the_name_of_what_was_called(archive):
    with pytest.raises(
        TypeError, match=r"^totals\(\) has no keyword 'units'; to_units\(result, assets\)"
    ):
        cluster.totals(archive, freq="1D", units=True)
    with pytest.raises(TypeError, match=r"^series\(\) .* did you mean rows_per_task"):
        cluster.series(archive, rows_per_tasks=SIZE)


def test_a_file_is_the_same_whoever_makes_it(archive, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        for name, client in (("one", pool), ("other", None)):
            cluster.flows(archive, rows_per_task=SIZE, client=client, to=tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_sums_of_groups_are_written_in_their_own_order(archive, tmp_path, table):
    cluster.totals(archive, freq="1D", rows_per_task=SIZE, to=tmp_path / "totals.parquet")
    found = pq.read_table(tmp_path / "totals.parquet")
    expected = ba.totals(table, freq="1D")
    assert found["total"].to_pylist() == pa.array(expected["total"]).to_pylist()
    assert found["asset_id"].cast(pa.string()).to_pylist() == expected["asset_id"].tolist()


def test_a_work_that_fails_leaves_the_file_that_was_there(table, tmp_path):
    archive = write_archive(tmp_path / "archive", table)
    target = tmp_path / "result.parquet"
    target.write_bytes(b"before")
    last = max((tmp_path / "archive" / "changes").rglob("*.parquet"))
    content = last.read_bytes()
    last.unlink()

    with pytest.raises(ba.ArchiveError, match="can't be read"):
        cluster.flows(archive, rows_per_task=SIZE, to=target)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["result.parquet"]
    last.write_bytes(content)
    cluster.flows(archive, rows_per_task=SIZE, to=target)
    assert pq.read_table(target).num_rows == len(ba.flows(table))


def test_a_work_that_fails_cancels_what_waits(archive):
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="stop"):
        cluster.flows(archive, rows_per_task=1, client=pool, progress=_stop)


def _stop(_share, _rows):
    raise RuntimeError("stop")


def test_progress_goes_up_to_all_rows(archive, table):
    seen = []
    cluster.flows(archive, rows_per_task=SIZE, progress=lambda *how: seen.append(how))
    assert seen == sorted(seen)
    assert len(seen) > 5
    assert seen[-1] == (1.0, len(table))


def test_an_unknown_option_is_refused(archive):
    for name in ("layout", "foo"):
        with pytest.raises(TypeError, match=f"no keyword '{name}'"):
            cluster.series(archive, **{name: 1})


def test_a_signature_has_the_options_with_their_defaults():
    shown = inspect.signature(cluster.time_weighted_average).parameters
    assert {*cluster.Options.__annotations__} <= {*shown}
    assert [shown[name].default for name in ("to", "partial", "market_ids")] == [None, False, ()]


def test_results_carry_the_names_that_the_archive_keeps_or_the_caller_gives(table, tmp_path):
    archive = write_archive(tmp_path / "archive", table)
    party = table["party_id"].iloc[0]
    (tmp_path / "archive" / "_labels.json").write_text(json.dumps({party: "kept"}))
    for labels, told in ((None, "kept"), ({party: "given"}, "given")):
        totals = cluster.totals(archive, by=["asset_id", "party_id"], freq="1D", labels=labels)
        expected = ba.totals(archive.read(labels=labels), by=["asset_id", "party_id"], freq="1D")
        assert totals.attrs == expected.attrs
        assert told in set(ba.labelled(totals)["label"])


class Small:
    """A cluster of which one worker has a limit of memory."""

    def scheduler_info(self):
        return {"workers": {"a": {"memory_limit": 10**9}, "b": {"memory_limit": 0}}}


def test_an_account_that_fits_into_no_worker_is_refused_with_what_to_do():
    pool = Pool(Small(), 2, dict)
    check_memory(pool, ("a1",), 6_000_000)
    with pytest.raises(ValueError, match=r"the account 'a1' has 7,000,000 rows .* more memory"):
        check_memory(pool, ("a1",), 7_000_000)


def test_what_is_no_archive_is_refused(table):
    with pytest.raises(TypeError, match="an Archive or the path of one is wanted"):
        cluster.totals(table)


def test_what_was_chosen_stays_what_it_was_while_the_archive_grows(table, tmp_path):
    times = table["timestamp"]
    middle = times.min().floor("D") + pd.Timedelta("3D12h")
    early = table[times < middle]
    folder = tmp_path / "archive"
    archive = write_archive(folder, early)
    scan = archive.scan()
    shutil.rmtree(folder)
    write_archive(folder, table)
    later = scan.files[-1].spans[-1][1]
    known = table[times < from_microseconds(later)]
    assert len(known) < len(table)
    assert_same(scan.read(KeyRange()), ba.to_table(known))


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ({"to": "no/such/folder/file"}, FileNotFoundError, "be written to"),
        ({"to": "."}, ValueError, "is a folder"),
        ({"by": "party"}, ValueError, "did you mean 'party_id'"),
        ({"by": None}, TypeError, "by must name columns"),
        ({"start": "2023-04-02", "end": "2023-04-01"}, ValueError, "start must be before end"),
        ({"opening": 3}, TypeError, "opening must be a pandas DataFrame"),
        ({"opening": pd.DataFrame({"party_id": ["a"]})}, ValueError, "opening has no column"),
        ({"rows_per_task": 0}, ValueError, "rows_per_task must be at least 1"),
        ({"rows_per_task": True}, TypeError, "rows_per_task must be a whole number"),
    ],
)
@pytest.mark.parametrize("work", [cluster.totals, cluster.flows])
def test_what_can_not_be_is_refused_before_any_work(
    *, archive, tmp_path, monkeypatch, work, how, kind, said
):
    monkeypatch.chdir(tmp_path)
    begun = []
    with pytest.raises(kind, match=said) as failed:
        work(archive, **how, progress=lambda *done: begun.append(done))
    assert begun == []
    assert not hasattr(failed.value, "__notes__")
    assert list(tmp_path.iterdir()) == []


def test_an_opening_of_no_accounts_is_one(archive, table):
    opening = ba.balance_at(table, table["timestamp"].min()).iloc[:0]
    assert len(opening.columns) > 4
    found = cluster.totals(archive, freq="1D", opening=opening, rows_per_task=SIZE)
    assert_same(found, ba.totals(table, freq="1D", opening=opening))


def test_an_opening_with_a_missing_id_is_refused_in_the_words_for_tables(archive, table):
    opening = ba.balance_at(table, table["timestamp"].max())
    opening["market_id"] = opening["market_id"].astype(object).where(opening.index > 0)
    for work in (
        lambda: ba.flows(table, opening=opening),
        lambda: cluster.flows(archive, opening=opening),
    ):
        with pytest.raises(ValueError, match="an account with a missing id; no market is ''"):
            work()


def test_ids_of_the_last_character_there_is_are_accounts_too(tmp_path):
    last = "\U0010ffff"
    rows = [("VOTE", "T", party, "", START, 1) for party in ("a", last, last + last, last + "b")]
    archive = write_archive(tmp_path / "archive", table_of(rows))
    table = archive.read()
    for size in (1, 2, 100):
        assert_same(cluster.totals(archive, rows_per_task=size), ba.totals(table))
        found = cluster.series(archive, rows_per_task=size)
        assert_same(found, ba.balance_series(table, layout="long"))


def test_a_machine_that_does_not_reach_the_archive_says_so(archive, tmp_path):
    elsewhere = replace(archive.scan(), store=ba.Archive(tmp_path / "elsewhere").store)
    with pytest.raises(ba.ArchiveError, match=f"{platform.node()} does not find .*same path"):
        elsewhere.read(KeyRange())
    with pytest.raises(ba.ArchiveError, match="does not find"):
        elsewhere.accounts()


def test_accounts_that_are_known_from_an_opening_alone_are_spread_as_well(archive, table):
    keys = {"asset_id": "VOTE", "account_type": "T", "market_id": ""}
    opening = pd.DataFrame({**keys, "party_id": [f"q{n:04}" for n in range(1000)], "balance": 7})
    seen = []
    found = cluster.series(
        archive,
        freq="1D",
        opening=opening,
        rows_per_task=SIZE,
        progress=lambda *how: seen.append(how),
    )
    assert_same(found, ba.balance_series(table, freq="1D", opening=opening, layout="long"))
    assert len(seen) > (len(table) + len(opening)) / SIZE
