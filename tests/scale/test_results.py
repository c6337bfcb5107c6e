"""Where results go, and what is refused."""

import inspect
import json
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from tests.analysis.tables import HOUR, START, records
from tests.columns import BALANCE_DTYPE, ID_TYPE
from tests.scale.archives import SIZE, assert_same, write_archive


@pytest.mark.parametrize(
    ("function", "how"),
    [(ba.balance_series, {"freq": "1D", "layout": "long"}), (ba.totals, {"freq": "1D"})],
)
def test_a_folder_is_one_dataset_of_the_result_by_party_or_in_its_own_order(
    function, how, archive, tmp_path
):
    how = {**how, "rows_per_slice": SIZE}
    (tmp_path / "result").mkdir()
    expected = ba.over_accounts(function, archive, **how)
    assert ba.over_accounts(function, archive, to=tmp_path / "result", **how) is None
    rows = pq.read_table(tmp_path / "result")
    assert rows.schema.field("asset_id").type == ID_TYPE
    assert rows.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    if "party_id" in expected:
        assert len([*(tmp_path / "result").iterdir()]) > 5
        order = ["party_id", "asset_id", "account_type", "market_id", "timestamp"]
        expected = expected.sort_values(order)
    types = {pa.decimal128(38, 0): BALANCE_DTYPE}
    assert records(rows.to_pandas(types_mapper=types.get)) == records(expected)


def test_failed_work_leaves_nothing(table, tmp_path):
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


def test_an_archive_warns_about_the_same_left_out_accounts_as_its_table(table, tmp_path, caplog):
    held, stranger = tuple(table[ba.ACCOUNT_KEY].iloc[0]), ("VOTE", "ACCOUNT_TYPE_BOND", "z9", "")
    said = "accounts whose rows were all set aside as bad are left out (1 row)"
    for account in (held, stranger):
        bad = [((START + HOUR, START + HOUR + 1), account)]
        archive = write_archive(tmp_path / account[2], table, bad=bad, from_first_block=True)
        for source in (archive, archive.read(partial=True)):
            caplog.clear()
            ba.flows(source, by="asset_id")
            assert caplog.messages == [said] * (account is stranger)


def test_one_warning_counts_the_unknown_averages_of_all_slices(archive, caplog):
    averages = ba.over_accounts(ba.time_weighted_average, archive, rows_per_slice=SIZE)["average"]
    said = [each.getMessage() for each in caplog.records]
    counts = f"unknown averages: {averages.isna().sum()} of {len(averages)}"
    assert [each.startswith(counts) for each in said if "averages" in each] == [True]


@pytest.mark.parametrize("function", [ba.deltas, ba.drawdown])
def test_changes_of_an_archive_are_a_table_again(archive, table, function, tmp_path):
    result = ba.over_accounts(function, archive, rows_per_slice=SIZE)
    ba.over_accounts(function, archive, rows_per_slice=SIZE, to=tmp_path / "changes")
    written = ba.read_parquet(tmp_path / "changes")
    assert records(written) == records(table)
    part = min((tmp_path / "changes").iterdir())
    assert ba.diff(archive, part).shared == ba.diff(archive, written).shared == ()
    held = [ba.balance_at(x, table["timestamp"].max()) for x in (result, result.iloc[1:])]
    assert [x["balance"].isna().sum() for x in held] == [0, 1]
    for again in (result, written):
        assert_same(ba.totals(again, freq="1D"), ba.totals(table, freq="1D"))
    part.unlink()
    with pytest.raises(ba.ArchiveError, match=r"changes has \d+ of \d+ files; write it again"):
        ba.read_parquet(tmp_path / "changes")


@pytest.mark.parametrize(
    ("work", "how", "kind", "said"),
    [
        (ba.totals, {"to": "no/such/folder"}, FileNotFoundError, "no/such/folder"),
        (ba.flows, {"to": "."}, FileExistsError, "name a new folder"),
        (ba.totals, {"by": "party"}, ValueError, "did you mean 'party_id'"),
        (ba.flows, {"by": None}, TypeError, "by must name columns"),
        (ba.totals, {"start": "2023-04-02", "end": "2023-04-01"}, ValueError, "before end"),
        (ba.flows, {"rows_per_slice": 0}, ValueError, "rows_per_slice must be at least 1"),
        (ba.totals, {"rows_per_slice": True}, TypeError, "rows_per_slice must be a whole number"),
        (ba.flows, {"foo": 1}, TypeError, "unexpected keyword argument 'foo'"),
        (ba.balance_series, {"freq": "1D", "to": "x"}, ValueError, "layout='long'"),
        (len, {}, TypeError, "isn't a balance_analysis function that takes an archive"),
    ],
)
def test_invalid_arguments_are_refused(archive, work, how, kind, said):
    with pytest.raises(kind, match=said):
        ba.over_accounts(work, archive, **how)
    with pytest.raises(TypeError, match="takes an archive"):
        ba.over_accounts(ba.flows, archive.read())


NAMED = {
    "deltas": {},
    "balance_series": {"freq": "1D", "layout": "long"},
    "flows": {"freq": "1D"},
    "summarize_accounts": {},
    "holders": {"at": None},
    "balance_at": {"at": "2023-04-02"},
    "totals": {"by": ["asset_id", "party_id"], "freq": "1D"},
}


@pytest.fixture(scope="module")
def named(tmp_path_factory, table):
    """An archive with names, whose ids need longer short forms than those of its slices."""
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


@pytest.mark.parametrize(
    ("name", "own"), [*product(NAMED, [False]), *product(["flows", "holders"], [True])]
)
def test_labels_distinguish_the_accounts_of_all_slices(named, name, own):
    """As the archive has them, or the caller."""
    function, how, source = getattr(ba, name), NAMED[name], named
    if own:
        parties = named.read(partial=True)["party_id"]
        source = named.select(labels=dict.fromkeys(parties[:9].astype("str"), "Own"))
    result = ba.over_accounts(function, source, rows_per_slice=2 * SIZE, **how)
    expected = function(source.read(partial=True), **how)
    assert result["label"].astype("str").str.contains("Own" if own else "Desk").any()
    assert [*result] == [*expected]
    assert_same(result, expected)
    assert result.attrs == expected.attrs
