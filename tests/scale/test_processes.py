"""On a cluster of two real processes: equal results, errors as themselves, workers that die."""

import os
import pickle
import signal

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis import errors
from balance_analysis.archive.datafile import KeyRange
from balance_analysis.slices import mapped
from tests.scale.archives import SIZE, assert_same


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster  # noqa: PLC0415 - long to import

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (ba.balance_series, {"freq": "1D", "by": "asset_id"}),
        (ba.totals, {"freq": "6h"}),
        (ba.summarize_parties, {"by": "asset_id"}),
        (ba.deltas, {}),
    ],
)
def test_two_processes_return_what_one_returns(client, archive, table, function, how):
    with client.as_current():
        result = ba.over_accounts(function, archive, rows_per_slice=2 * SIZE, **how)
    expected = function(table, **how)
    if expected.columns.name:
        assert result.equals(expected)
    else:
        assert_same(result, expected)


def test_a_shuffle_between_processes_keeps_every_digit(client, archive, table):
    with client.as_current():
        parts = archive.to_dask().shuffle("party_id", npartitions=3).to_delayed()
        result = client.gather(client.compute(parts))
    parties = [set(part["party_id"].astype("str")) for part in result]
    assert sum(map(len, parties)) == len(set.union(*parties))
    assert_same(ba.to_table(pd.concat(result)), table)


def test_a_worker_killed_midway_changes_nothing(client, archive, table):
    killed = []

    def kill_one(share, _rows):
        if not killed and share > 0.2:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    how = {"freq": "6h", "rows_per_slice": SIZE, "progress": kill_one}
    with client.as_current():
        result = ba.over_accounts(ba.flows, archive, **how)
    assert killed
    assert_same(result, ba.flows(table, freq="6h"))
    client.wait_for_workers(2)
    assert killed[0] not in client.run(os.getpid).values()


def test_a_tasks_error_arrives_with_a_note_of_the_task(client):
    with client.as_current(), pytest.raises(ba.CheckError, match="wrong") as failed:
        list(mapped(_refuse, [KeyRange(("a",), ("b",))]))
    assert failed.value.rows.equals(pd.DataFrame({"a": [1]}))
    assert failed.value.__notes__ == ["in the task of accounts from 'a' before 'b'"]


def _refuse(_part):
    raise ba.CheckError("wrong", rows=pd.DataFrame({"a": [1]}))


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", [each for each in KINDS if issubclass(each, Exception)])
def test_an_error_pickles_with_all_its_attributes(kind):
    error = kind("what happened")
    error.extra = {"row": 1}
    error.add_note("where")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.__dict__) == (str(error), error.__dict__)
    assert copy.__notes__ == ["where"]


def test_the_client_that_the_caller_made_is_used(client):
    with client.as_current():
        assert list(mapped(_process, [1])) != [os.getpid()]
    assert list(mapped(_process, [1])) == [os.getpid()]


def _process(_item):
    return os.getpid()
