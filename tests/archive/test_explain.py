"""An archive explains a balance: its row, the row's file and the node that sent it."""

import json
from itertools import product

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import edit_manifest, node_of, run_export
from tests.archive.months import END, HELD, MOMENTS, ROWS, START
from tests.cli.running import run
from tests.columns import COLUMNS
from tests.loopback import spoilt
from tests.moments import from_microseconds, moment_text, to_microseconds
from tests.segments.writer import write_segments

ACCOUNTS = sorted({row.account for row in ROWS})


def balance_of(archive, account, at):
    """Return the result of `balance_at` for an account; `None` if it is unknown."""
    balances = ba.balance_at(archive, at)
    is_its = (balances[ba.ACCOUNT_KEY].astype(str) == [*account]).all(axis=1)
    return next(map(int, balances["balance"][is_its].dropna()), None)


@settings(max_examples=15)
@given(account=st.sampled_from(ACCOUNTS), moment=MOMENTS)
def test_a_balance_is_explained_by_its_last_row_the_neighbouring_rows_and_the_nodes_answer(
    torn, account, moment
):
    archive = ba.Archive(torn)
    at = from_microseconds(moment)
    explanation = archive.explain(account, at=at)

    lines = [(x.time, x.balance) for x in HELD if x.account == account]
    until = [line for line in lines if line[0] <= moment]
    later = [line for line in lines if line[0] > moment]
    wanted = [*[*until[::-1], None, None][:2], next(iter(later), None)]
    cited = [explanation.row, explanation.before, explanation.after]
    assert [x and (to_microseconds(x.timestamp), x.balance) for x in cited] == wanted
    for row in filter(None, cited):
        its = dict(zip(COLUMNS, (*account, row.timestamp, row.balance), strict=True))
        assert its in pq.ParquetFile(torn / row.file).read().to_pylist()

    assert explanation.balance == balance_of(archive, account, at)
    assert (explanation.why is None) == (explanation.balance is not None)
    assert ("\nwhy " in str(explanation)) == (explanation.why is not None)
    is_held = explanation.row is not None and explanation.balance is not None
    assert explanation.carried == (at - explanation.row.timestamp if is_held else None)
    if explanation.row is not None:
        covered, since = archive.coverage(), explanation.row.timestamp
        is_its = (covered["start"] <= since) & (covered["end"] > since)
        (its,) = covered[is_its].to_dict("records")
        assert (explanation.source, explanation.state) == (its["source"], its["state"])
        assert explanation.heights == (its["first_block_height"], its["block_height"])
        assert explanation.asked == (its["first_asked_at"], its["asked_at"])


@pytest.mark.parametrize("change", [{"assetId": ""}, {"balance": "x"}])
def test_a_bad_row_makes_its_account_unknown_unless_that_is_unreadable_and_has_a_row(
    tmp_path, change
):
    row = ROWS[60]
    its = row.time + 1
    node = node_of(ROWS, head=END)
    run_export(node, tmp_path / "a", start=START, end=its, partition="month")
    node.edit_row = spoilt(row.to_json().__eq__, **change)
    run_export(node, tmp_path / "a", end=END, overlap="90d")
    archive, at = ba.Archive(tmp_path / "a"), from_microseconds(its)
    explained = archive.explain(row.account, at=at).balance
    assert explained == (int(row.balance) if "assetId" in change else None)
    assert balance_of(archive, row.account, at) == explained
    why = archive.explain(row.account, at=from_microseconds(row.time)).why
    assert "assetId" in change or f"{moment_text(row.time)} to {moment_text(its)}" in why
    # A bad row may belong to any account without a row at that moment.
    there = {each.account for each in ROWS if each.time == row.time}
    other = next(each for each in ROWS[59::-1] if each.account not in there)
    explained = archive.explain(other.account, at=at).balance
    assert explained == (None if "assetId" in change else int(other.balance))
    assert balance_of(archive, other.account, at) == explained
    assert archive.status().unproven


def test_an_account_without_a_row_since_the_first_block_holds_nothing(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    ba.import_segments(tmp_path / "a", tmp_path / "segments", partition="month")
    archive = ba.Archive(tmp_path / "a")
    row = ROWS[70]
    at = from_microseconds(row.time)
    explanation = archive.explain(dict(zip(ba.ACCOUNT_KEY, row.account, strict=True)), at=at)
    assert explanation.balance == int(row.balance)

    accounts = ba.summarize_accounts(archive)[ba.ACCOUNT_KEY]
    held = {*accounts.itertuples(index=False, name=None)}
    strangers = {*product(*(accounts[name].unique() for name in ba.ACCOUNT_KEY))} - held
    nobody = archive.explain(min(strangers), at=at)
    assert (nobody.balance, nobody.row) == (0, None)
    assert "since the network's first block" in nobody.why
    edit_manifest(tmp_path / "a", lambda x: x["evidence"]["answers"][0].update(reached=False))
    assert archive.explain(min(strangers), at=at).balance is None


def test_a_command_explains_the_account_that_its_options_name(torn):
    row = ROWS[-1]
    at = moment_text(row.time)
    ids = {name: getattr(row, name) for name in ba.ACCOUNT_KEY}
    names = [f"--{name.replace('_', '-')}={value}" for name, value in ids.items() if value]
    printed = run("explain", torn, *names, "--at", at, "--format=json").stdout
    content = json.loads(printed)
    assert content["balance"] == content["row"]["balance"] == str(row.balance)
    assert content["carried_seconds"] == 0
    said = run("explain", torn, *names, "--at", at).stdout
    assert f"{int(row.balance):,} since {at}" in said
    assert ["balance", f"{int(row.balance):,}"] in map(str.split, said.splitlines())
    assert "unit of balances  the asset's smallest" in said


def test_a_value_that_is_not_an_account_is_refused(torn):
    with pytest.raises(ValueError, match="pass an account's asset_id"):
        ba.Archive(torn).explain(["x"], at="2023-04-01")
    short = [name[:6] for name in ROWS[0].account]
    explanation = ba.Archive(torn).explain(short, at="2023-04-01")
    assert explanation.balance is None
    assert f"no row has the asset_id '{short[0]}'" in explanation.why
