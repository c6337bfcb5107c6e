"""Where results go, and what is refused."""

from __future__ import annotations

import inspect
import json
import shutil

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from tests.analysis.tables import records
from tests.columns import ID_TYPE
from tests.moments import from_microseconds
from tests.scale.archives import SIZE, assert_same, write_archive


def test_a_folder_is_one_dataset_with_the_rows_of_the_result_by_party(archive, tmp_path):
    folder = tmp_path / "series"
    how = {"freq": "1D", "layout": "long", "rows_per_slice": SIZE}
    expected = ba.over_accounts(ba.balance_series, archive, **how)
    assert ba.over_accounts(ba.balance_series, archive, to=folder, **how) is None

    assert len([*folder.iterdir()]) > 5
    rows = pq.read_table(folder)
    assert rows.schema.field("party_id").type == ID_TYPE
    assert rows.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert rows.schema.field("balance").type == pa.decimal128(38, 0)
    key = ["party_id", "asset_id", "account_type", "market_id"]
    order = [*key, "timestamp"]
    result = rows.to_pandas(types_mapper={pa.decimal128(38, 0): expected["balance"].dtype}.get)
    texts = expected.astype(dict.fromkeys(key, "str")).sort_values(order)
    assert records(result) == records(texts.astype(dict.fromkeys(key, "category")))


def test_sums_of_groups_are_written_in_their_own_order(archive, tmp_path, table):
    folder = tmp_path / "totals"
    ba.over_accounts(ba.totals, archive, freq="1D", rows_per_slice=SIZE, to=folder)
    result, expected = pq.read_table(folder), ba.totals(table, freq="1D")
    assert result["total"].to_pylist() == pa.array(expected["total"]).to_pylist()
    assert result["asset_id"].cast(pa.string()).to_pylist() == expected["asset_id"].tolist()


def test_a_work_that_fails_leaves_nothing(table, tmp_path):
    archive = write_archive(tmp_path / "archive", table)
    target = tmp_path / "result"
    last = max((tmp_path / "archive" / "changes").rglob("*.parquet"))
    content = last.read_bytes()
    last.unlink()

    with pytest.raises(ba.ArchiveError, match="can't be read"):
        ba.over_accounts(ba.flows, archive, rows_per_slice=SIZE, to=target)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    last.write_bytes(content)
    ba.over_accounts(ba.flows, archive, rows_per_slice=SIZE, to=target)
    assert pq.read_table(target).num_rows == len(ba.flows(table))
    with pytest.raises(FileExistsError, match="name a new folder"):
        ba.over_accounts(ba.flows, archive, to=target)


def test_progress_goes_up_to_all_rows(archive, table):
    seen = []
    how = {"rows_per_slice": SIZE, "progress": lambda *step: seen.append(step)}
    ba.over_accounts(ba.flows, archive, **how)
    assert seen == sorted(seen)
    assert len(seen) > 5
    assert seen[-1] == (1.0, len(table))


def test_a_function_keeps_its_signature():
    parameters = inspect.signature(ba.totals).parameters
    assert [*parameters][:3] == ["source", "by", "freq"]
    assert inspect.signature(ba.totals).return_annotation == "pd.DataFrame"
    assert ba.totals.__doc__.startswith("Return the sum")


def test_one_warning_counts_the_unknown_averages_of_all_slices(archive, caplog):
    averages = ba.over_accounts(ba.time_weighted_average, archive, rows_per_slice=SIZE)["average"]
    said = [each.getMessage() for each in caplog.records]
    counts = f"{averages.isna().sum()} of {len(averages)} averages are unknown"
    assert [each.startswith(counts) for each in said if "averages" in each] == [True]


def test_results_carry_the_names_that_the_archive_keeps_or_the_caller_gives(table, tmp_path):
    archive = write_archive(tmp_path / "archive", table)
    party = table["party_id"].iloc[0]
    (tmp_path / "archive" / "_labels.json").write_text(json.dumps({party: "kept"}))
    for labels, name in ((None, "kept"), ({party: "given"}, "given")):
        chosen = archive.select(labels=labels)
        totals = ba.totals(chosen, by=["asset_id", "party_id"], freq="1D")
        expected = ba.totals(chosen.read(), by=["asset_id", "party_id"], freq="1D")
        assert totals.attrs == expected.attrs
        assert name in set(ba.labelled(totals)["label"])


def test_deltas_of_an_archive_are_a_table_again(archive, table, tmp_path):
    result = ba.over_accounts(ba.deltas, archive, rows_per_slice=SIZE)
    assert_same(ba.totals(result, freq="1D"), ba.totals(table, freq="1D"))
    ba.over_accounts(ba.deltas, archive, rows_per_slice=SIZE, to=tmp_path / "deltas")
    assert records(ba.read_parquet(tmp_path / "deltas")) == records(table)


@pytest.mark.parametrize(
    "plot", [ba.plot_balances, ba.plot_totals, ba.plot_flows, ba.plot_activity]
)
def test_a_picture_of_an_archive_is_that_of_its_table(plot, archive, table):
    pictures = []
    for source in (archive.select(asset_id="VOTE"), table[table["asset_id"] == "VOTE"]):
        figure = plot(source).figure
        figure.canvas.draw()
        pictures.append(bytes(figure.canvas.buffer_rgba()))
        plt.close(figure)
    assert pictures[0] == pictures[1]


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
    assert_same(scan.read(), ba.to_table(known))


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ({"to": "no/such/folder"}, FileNotFoundError, "no/such/folder"),
        ({"to": "."}, FileExistsError, "name a new folder"),
        ({"by": "party"}, ValueError, "did you mean 'party_id'"),
        ({"by": None}, TypeError, "by must name columns"),
        ({"start": "2023-04-02", "end": "2023-04-01"}, ValueError, "start must be before end"),
        ({"rows_per_slice": 0}, ValueError, "rows_per_slice must be at least 1"),
        ({"rows_per_slice": True}, TypeError, "rows_per_slice must be a whole number"),
        ({"foo": 1}, TypeError, "unexpected keyword argument 'foo'"),
    ],
)
@pytest.mark.parametrize("work", [ba.totals, ba.flows])
def test_what_makes_no_sense_is_refused(archive, work, how, kind, said):
    with pytest.raises(kind, match=said):
        ba.over_accounts(work, archive, **how)


def test_what_is_no_function_of_a_table_is_refused(archive):
    with pytest.raises(TypeError, match="isn't a balance_analysis function that takes an archive"):
        ba.over_accounts(len, archive)


def test_a_wide_layout_is_not_written(archive, tmp_path):
    with pytest.raises(ValueError, match="layout='long'"):
        ba.over_accounts(ba.balance_series, archive, freq="1D", to=tmp_path / "x")


NAMED = {
    "deltas": {},
    "balance_series": {"freq": "1D", "layout": "long"},
    "flows": {"freq": "1D"},
    "summarize_accounts": {},
    "holders": {"at": None},
    "balance_at": {"at": "2023-04-02"},
    "totals": {"by": ["asset_id", "account_type"], "freq": "1D"},
}


@pytest.fixture(scope="module")
def named(tmp_path_factory, table):
    """Give an archive that keeps names, whose ids are short alike: slices would cut them more."""
    parties = [*table["party_id"].cat.categories]
    longer = {
        party: f"{number:03}{'0' * 58}{number % 2:03}" for number, party in enumerate(parties)
    }
    rows = table.assign(party_id=table["party_id"].map(longer).astype("category"))
    folder = tmp_path_factory.mktemp("named") / "archive"
    archive = write_archive(folder, ba.to_table(rows))
    labels = {longer[party]: "Desk" for party in parties[:4]}
    (folder / "_labels.json").write_text(json.dumps(labels))
    (folder / "_assets.json").write_text(json.dumps({"VOTE": {"symbol": "V", "decimals": 3}}))
    return archive


@pytest.mark.parametrize("units", [None, "own"])
@pytest.mark.parametrize("name", NAMED)
def test_labels_distinguish_the_accounts_of_all_slices(named, name, units):
    how = {**NAMED[name], "units": {"VOTE": 3, "ea43": 18} if units else None}
    function, whole = getattr(ba, name), named.read(partial=True)
    result = ba.over_accounts(function, named, rows_per_slice=SIZE, **how)
    expected = function(whole, **how)
    assert "symbol" in result
    assert [*result] == [*expected]
    assert_same(result, expected)
    assert result.attrs == expected.attrs
