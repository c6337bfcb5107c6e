from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY, CheckError, check_table, to_table
from tests.analysis.tables import GENERAL, LARGEST, START, rows, rows_of, table_of
from tests.columns import BALANCE_DTYPE, COLUMNS, empty_table

OTHER = ("VOTE", "ACCOUNT_TYPE_GENERAL", "b2", "m1")


@pytest.fixture
def table():
    return table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])


def raised(table):
    with pytest.raises(CheckError) as caught:
        check_table(table)
    return caught.value


@given(rows.filter(lambda rows: len(rows) > 1), st.randoms(use_true_random=False))
def test_rows_out_of_order_are_never_accepted(rows, random):
    table = table_of(rows)
    order = list(range(len(table)))
    random.shuffle(order)
    if order == sorted(order):
        return
    assert "sorted by" in str(raised(table.iloc[order]))


def test_the_order_of_categories_does_not_decide_the_order_of_rows(table):
    table["party_id"] = table["party_id"].cat.reorder_categories(["b2", "a1"])
    check_table(table)


def without(column):
    """Return a function that removes a value from the middle row of a table."""

    def take_out(table):
        table.loc[1, column] = pd.NaT if column == "timestamp" else pd.NA
        return table

    return take_out


def with_first(balance):
    """Return a function that prepends another row of the first account and moment."""

    def put_in_front(table):
        balances = pd.array([balance, *table["balance"]], dtype=BALANCE_DTYPE)
        return table.iloc[[0, 0, 1, 2]].assign(balance=balances)

    return put_in_front


def negative(table):
    return table.assign(balance=pd.array([5, 6, -1], dtype=BALANCE_DTYPE))


FIRST, SECOND, LAST = (*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, -1)
SAID = "party_id=b2, market_id=m1, timestamp=2023-03-28 10:40:00+00:00"
BROKEN = [
    (lambda table: table.drop(columns="market_id"), "lacks the columns ['market_id']", None),
    (lambda table: table.assign(delta=0), "'delta'", None),
    (lambda table: table[table.columns[::-1]], "the table's columns are", None),
    *(
        (lambda table, name=name, dtype=dtype: table.astype({name: dtype}), said, None)
        for name, dtype, said in (
            ("asset_id", "str", "column 'asset_id' must be category of str, not str"),
            ("timestamp", "datetime64[ns, UTC]", "not datetime64[ns, UTC]"),
            ("timestamp", "datetime64[us, Europe/Berlin]", "not datetime64[us, Europe/Berlin]"),
            ("balance", "float64", "'balance' must be decimal128(38, 0)[pyarrow], not float64"),
            ("balance", "object", "not object"),
        )
    ),
    (
        lambda table: table.assign(party_id=pd.Categorical([1, 1, 2])),
        "column 'party_id' must be category of str, not category of int64",
        None,
    ),
    *((without(name), f"no value in [{name!r}]", 1) for name in COLUMNS),
    (lambda table: table.iloc[[0, 2, 1]], "belong before the row above", [SECOND]),
    (with_first(9), "conflicting duplicates (balances 9 and 5)", [(*FIRST[:5], 9), FIRST]),
    (with_first(5), "identical duplicates", [FIRST] * 2),
    (negative, "never negative", [LAST]),
    (negative, SAID, [LAST]),
]


@pytest.mark.parametrize(("change", "message", "rows"), BROKEN)
def test_a_broken_rule_is_refused_with_the_rule_and_its_rows(table, change, message, rows):
    error = raised(change(table))
    assert message in str(error)
    if rows == 1:
        assert error.rows.index.tolist() == [1]
    else:
        assert (error.rows if rows is None else rows_of(error.rows)) == rows


@given(rows, st.randoms(use_true_random=False))
def test_dropping_identical_duplicates_restores_the_table(rows, random):
    table = table_of(rows)
    order = [*range(len(table)), *(random.randrange(len(table)) for _ in rows)]
    random.shuffle(order)
    pd.testing.assert_frame_equal(to_table(table.iloc[order]), table)


@given(rows.filter(bool), st.randoms(use_true_random=False))
def test_a_duplicate_with_another_balance_is_never_dropped(rows, random):
    chosen = random.choice(rows)
    doubled = [*rows, chosen, (*chosen[:5], chosen[5] + 1)]
    with pytest.raises(CheckError, match="conflicting") as caught:
        to_table(table_of(doubled))
    assert {row[:5] for row in rows_of(caught.value.rows)} == {chosen[:5]}


ODD = {
    "a missing balance": ({"balance": [5, None]}, ValueError, "lacks a value in 1 row, .*row 1"),
    "no market as missing": ({"market_id": None}, ValueError, "market_id lacks.*'' for no market"),
    "ids as numbers": ({"party_id": [1, 2]}, TypeError, "party_id must be text, not int64"),
    "times as text": ({"timestamp": ["2023-04-01"] * 2}, TypeError, r"pd\.to_datetime"),
    "a part of a microsecond": (
        {"timestamp": pd.to_datetime(["2023-04-01", "2023-04-02"]) + pd.Timedelta("1ns")},
        ValueError,
        "timestamp isn't in whole microseconds",
    ),
    "times as numbers": ({"timestamp": [1, 2]}, TypeError, "must be datetimes, not int64"),
    "floats": ({"balance": [1.0, 2.0]}, TypeError, "float64, which loses digits"),
    "float objects": ({"balance": pd.Series([1.0, 2], dtype=object)}, TypeError, "1.0 in row 0"),
    "flag objects": ({"balance": pd.Series([True, 2], dtype=object)}, TypeError, "True in row 0"),
    "bytes objects": ({"balance": pd.Series([b"1", 2], dtype=object)}, TypeError, "b'1' in row 0"),
    "39 digits as text": ({"balance": ["1" * 39, "2"]}, ValueError, "row 0, not a whole number"),
    "39 digits": ({"balance": [10**38, 2]}, ValueError, "row 0, not a whole number"),
    "a fraction": ({"balance": [Decimal("1.5"), 2]}, ValueError, "in row 0, not a whole number"),
    "words": ({"balance": ["one", "2"]}, ValueError, "'one' in row 0, not a whole number"),
}


def raw(**columns):
    account = dict.fromkeys(ACCOUNT_KEY, "VOTE")
    days = pd.to_datetime(["2023-04-01", "2023-04-02"], utc=True)
    return pd.DataFrame({**account, "timestamp": days, "balance": [5, 7], **columns})


@pytest.mark.parametrize(("columns", "error", "message"), ODD.values(), ids=ODD)
def test_a_frame_that_is_not_a_table_is_refused_with_its_column_and_row(columns, error, message):
    with pytest.raises(error, match=message):
        to_table(raw(**columns))


@pytest.mark.parametrize("table", [None, [1], pa.table({})])
def test_a_value_that_is_not_a_frame_is_refused(table):
    with pytest.raises(TypeError, match="expected a table as a pandas DataFrame"):
        to_table(table)


@pytest.mark.parametrize(
    "balance",
    [
        ["5", str(LARGEST)],
        [Decimal(5), Decimal(LARGEST)],
        pd.Series([5, LARGEST], dtype=object),
        pd.array([5, LARGEST], dtype=BALANCE_DTYPE),
    ],
    ids=["text", "Decimal", "integers", "Arrow"],
)
def test_whole_numbers_of_any_type_keep_every_digit(balance):
    assert [int(value) for value in to_table(raw(balance=balance))["balance"]] == [5, LARGEST]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_of_any_unit_and_zone_are_the_same_moments(unit, zone):
    days = pd.to_datetime(["2023-04-01", "2023-04-02"]).as_unit(unit)
    times = days if zone is None else days.tz_localize("UTC").tz_convert(zone)
    pd.testing.assert_frame_equal(to_table(raw(timestamp=times)), to_table(raw()))


def test_a_frame_without_rows_is_an_empty_table_whatever_its_types():
    for frame in (pd.DataFrame(columns=[*COLUMNS]), pd.DataFrame({name: [] for name in COLUMNS})):
        pd.testing.assert_frame_equal(to_table(frame), empty_table())
