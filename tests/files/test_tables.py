"""Other programs read everything that was written to a file."""

import csv
import datetime as dt
import json
import sys
from decimal import Context, Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis.tables import START, table_of
from tests.columns import BALANCE_DTYPE, note_known

SAMPLE = ba.read_parquet(demo.sample_data() / "changes.parquet")
OWN = SAMPLE.balances.select(party_ids=[*SAMPLE["party_id"].drop_duplicates()[:3]])
SOME = OWN[::300]
ENDINGS = ["parquet", "csv", "json", "xlsx"]
OPENED = SOME["timestamp"].quantile(0.3, "lower")


def read(path):
    """Return the header and the rows of a file, read by other software."""
    match path.suffix:
        case ".parquet":
            rows = pq.read_table(path)
            return rows.column_names, list(zip(*rows.to_pydict().values(), strict=True))
        case ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                header, *rows = csv.reader(file)
        case ".json":
            content = json.loads(path.read_text())
            header = list(content[0]) if content else []
            rows = [list(row.values()) for row in content]
        case ".xlsx":
            header, *rows = sheet_at(path).iter_rows(values_only=True)
            header = [name or "" for name in header]
    return list(header), rows


def sheet_at(path):
    import openpyxl  # noqa: PLC0415 - long to import

    sheet = openpyxl.load_workbook(path).active
    assert not any(cell.data_type == "f" for row in sheet for cell in row)
    return sheet


def sheet_of(frame, folder):
    ba.write_table(frame, folder / "x.xlsx")
    return sheet_at(folder / "x.xlsx")


def texts_of(sheet):
    return [list(row) for row in sheet.iter_rows(values_only=True)]


def header_of(column):
    """Return a column's header in a file; for an account its ids, short and in ASCII."""
    if not isinstance(column, tuple):
        return str(column)
    ids = [each if len(each) < 12 else f"{each[:6]}..{each[-4:]}" for each in column]
    ids[1] = column[1].removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()
    return "/".join(ids).strip("/")


def is_same(cell, value):
    """Return whether a file's cell is a value of a frame."""
    if not isinstance(value, str) and pd.isna(value):
        return cell in (None, "") or cell != cell  # noqa: PLR0124 - NaN
    match value:
        case str():
            return (cell or "") in (value, f"'{value}")
        case bool() | np.bool_():
            return str(cell).lower() == str(value).lower()
        case dt.datetime():
            moment = pd.Timestamp(cell)
            is_utc = value.tzinfo is not None and moment.tzinfo is None
            return (moment.tz_localize("UTC") if is_utc else moment) == value
        case dt.date():
            return pd.Timestamp(cell).date() == value
        case dt.timedelta():
            return pd.Timedelta(cell) == value
        case pd.Period():
            return " " not in cell and pd.Period(cell, value.freq) == value
        case float():
            return float(cell) == pytest.approx(value, rel=1e-14)
    # Text has neither an exponent nor zeros at the end.
    is_plain = not isinstance(cell, str) or ("E" not in cell and not cell.endswith(".0"))
    return is_plain and Decimal(str(cell)) == Decimal(str(value))


def check(frame, path):
    """Write a frame, and check that each cell of the file equals the frame's."""
    ba.write_table(frame, path)
    expected = frame.to_frame() if isinstance(frame, pd.Series) else frame
    if any(name is not None for name in expected.index.names) or "mean" in expected.index:
        expected = expected.reset_index()
    header, rows = read(path)
    if "asset_id" in expected and header[-1:] == ["unit"]:
        assert {row[-1] for row in rows} <= {"smallest"}
        header, rows = header[:-1], [row[:-1] for row in rows]
    if rows or path.suffix != ".json":
        plain = [name.removesuffix(" (UTC)").removesuffix(" [smallest]") for name in header]
        assert [x.removeprefix("'").strip("/") for x in plain] == [*map(header_of, expected)]
    assert path.suffix == ".xlsx" or not any(name.endswith(" (UTC)") for name in header)
    assert len(rows) == len(expected)
    for row, values in zip(rows, expected.itertuples(index=False, name=None), strict=True):
        for cell, value in zip(row, values, strict=True):
            assert is_same(cell, value), (cell, value)
    return rows


MAKES = {
    "table": lambda t: t,
    "wide": lambda t: ba.balance_series(t, freq="7D"),
    "berlin": lambda t: ba.balance_series(t, freq="7D", layout="long", tz="Europe/Berlin"),
    "share": lambda t: ba.totals(t, freq="7D", share=True),
    "none": lambda t: ba.summarize_accounts(t[:0]),
    "described": lambda t: ba.to_units(t, demo.sample_assets())[["balance"]].describe(),
    "grouped": lambda t: t.groupby(ba.ACCOUNT_KEY, observed=True)["balance"].max(),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_any_result_is_read_back_digit_by_digit_and_written_again_with_equal_bytes(make, tmp_path):
    frame = make(SOME)
    for ending in ENDINGS:
        check(frame, tmp_path / f"x.{ending}")
        ba.write_table(frame, tmp_path / f"y.{ending}")
        one, other = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "xy")
        assert one == other


CENTURY = dt.timedelta(days=36_525)
whole = st.integers(0, 38).flatmap(lambda digits: st.integers(1 - 10**digits, 10**digits - 1))
moments = st.datetimes(dt.datetime(1850, 1, 1), dt.datetime(2100, 1, 1))  # noqa: DTZ001
TEXTS = ["VOTE", 'a "quoted" id', "with, comma", "two\nlines", "", "NA", "=1+1", "-x", "\tx", "ä/ö"]
FRACTIONS = pd.ArrowDtype(pa.decimal128(38, 18))
KINDS = {
    "text": (st.sampled_from(TEXTS), ["str", "category", object]),
    "amount": (whole, [BALANCE_DTYPE, object]),
    "fraction": (st.decimals(-(10**19), 10**19, allow_nan=False, places=18), [FRACTIONS]),
    "float": (st.floats(allow_nan=False) | st.just(float("-inf")), ["float64"]),
    "flag": (st.booleans(), ["boolean", object]),
    "moment": (  # ISO 8601 has no seconds in an offset, as Berlin's had until 1893
        moments.filter(lambda at: at.year >= 1900).map(
            lambda at: pd.Timestamp(at, tz="UTC").tz_convert("Europe/Berlin")
        ),
        [pd.DatetimeTZDtype("us", "Europe/Berlin")],
    ),
    "second": (moments.map(lambda at: at.replace(microsecond=0)), ["datetime64[s]"]),
    "day": (moments.map(dt.datetime.date), [object]),
    "length": (
        st.timedeltas(-CENTURY, CENTURY),
        ["timedelta64[us]", object, pd.ArrowDtype(pa.duration("us"))],
    ),
    **{
        f"period {freq}": (
            moments.map(lambda at, freq=freq: pd.Period(at, freq)),
            [pd.PeriodDtype(freq), "category", object],
        )
        for freq in "YQMDhs"
    },
}


@st.composite
def frames(draw):
    """Draw a frame of a few columns, with values that not each format can hold."""
    kinds = draw(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=5))
    count, columns = draw(st.integers(0, 5)), {}
    for number, kind in enumerate(kinds):
        values, dtypes = KINDS[kind]
        some = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns[f"={number} {kind}"] = pd.Series(some, dtype=draw(st.sampled_from(dtypes)))
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.mark.parametrize("ending", ENDINGS)
@example(frame=pd.DataFrame({"=0 amount": pd.Series([10**15 + 1], dtype=BALANCE_DTYPE)}))
@example(frame=pd.DataFrame({"=0 fraction": pd.Series([Decimal(0)], dtype=FRACTIONS)}))
@given(frame=frames())
def test_every_digit_and_moment_of_any_frame_is_read_back(ending, frame, scratch):
    rows = check(frame, scratch / f"x.{ending}")
    for name, *cells in zip(frame, *rows, strict=True) if ending == "xlsx" else ():
        # A column is of numbers or moments, or of text that has all digits.
        kinds = {type(cell) is str for cell in cells if cell not in (None, "")}
        assert len(kinds) <= 1 or "float" in name
        if kinds == {False} and ("amount" in name or "fraction" in name):
            numbers = [Decimal(str(cell)) for cell in cells if cell is not None]
            assert [*map(Context(prec=15).create_decimal, numbers)] == numbers


@pytest.mark.parametrize("write", [ba.write_parquet, ba.write_table])
def test_a_table_in_parquet_is_read_with_its_openings_and_known_intervals(write, tmp_path):
    table = table_of(SOME.astype(dict.fromkeys(ba.ACCOUNT_KEY, "str")).itertuples(index=False))
    note_known(table, [(START, START + 1)])
    table.attrs["balance_analysis"]["start"] = OPENED.isoformat()
    write(table, tmp_path / "x.parquet")
    back = ba.read_parquet(tmp_path / "x.parquet")
    pd.testing.assert_frame_equal(back, table)
    assert table.attrs["balance_analysis"].items() <= back.attrs["balance_analysis"].items()


def test_polars_and_pandas_read_written_files(tmp_path):
    polars = pytest.importorskip("polars")
    held = ba.balance_at(OWN, "2023-04-12").dropna()
    amounts = [int(balance) for balance in held["balance"]]
    assert amounts
    for ending in ENDINGS:
        ba.write_table(held, tmp_path / f"x.{ending}")
    assert [*map(int, polars.read_parquet(tmp_path / "x.parquet")["balance"])] == amounts
    text = polars.read_csv(tmp_path / "x.csv", infer_schema=False)["balance"]
    assert [*map(int, text)] == amounts
    assert [*map(int, pd.read_excel(tmp_path / "x.xlsx")["balance"])] == amounts


def test_excel_has_moments_in_utc_and_finer_ones_than_milliseconds_as_text(tmp_path):
    # The clocks in Berlin show this time twice.
    noon = pd.Timestamp("2023-10-29T01:30Z").tz_convert("Europe/Berlin")
    plain, finer = noon.tz_localize(None), noon + pd.Timedelta("1us")
    first = pd.Timestamp("1900-03-01")
    frame = pd.DataFrame({"a": [noon], "b": [finer], "c": [plain], "d": [plain.normalize()]})
    sheet = sheet_of(frame.assign(e=first, f=first - pd.Timedelta("1s")), tmp_path)
    header, (*row, early) = texts_of(sheet)
    assert header == ["a (UTC)", "b", "c", "d", "e", "f"]
    utc = noon.tz_convert(None)
    assert row == [utc, "2023-10-29T01:30:00.000001Z", plain, plain.normalize(), first]
    assert early.startswith("1900-02-28T23:59:59")
    assert [cell.is_date for cell in sheet[2]] == [True, False, True, True, True, False]
    formats = [sheet[cell].number_format for cell in ("C2", "D2")]
    assert formats == ["yyyy-mm-dd hh:mm:ss", "yyyy-mm-dd"]


def test_a_sheet_of_excel_is_ready_to_be_read_and_filtered_and_has_names(tmp_path):
    party = SOME["party_id"].iloc[0]
    given = {"assets": demo.sample_assets(), "labels": {party: "Alice"}}
    held = ba.to_units(ba.balance_at(ba.labelled(OWN, **given), "2023-04-12"))
    sheet = sheet_of(held, tmp_path)
    header, *rows = texts_of(sheet)
    assert header[:2] == ["symbol", "label"]
    assert [row[:2] for row in rows] == ba.labelled(held)[header[:2]].to_numpy().tolist()
    assert any("Alice" in label for _, label, *_ in rows)
    places = {cell.value: cell.column_letter for cell in sheet[1]}
    assert sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    assert all(cell.font.bold for cell in sheet[1])
    assert sheet[f"{places['balance']}2"].number_format == "#,##0.00####"
    widths = {name: sheet.column_dimensions[letter].width for name, letter in places.items()}
    assert max(len(f"{value:,.2f}") for value in held["balance"].dropna()) <= widths["balance"] < 30
    assert widths["asset_id"] == pytest.approx(40, abs=1)


@pytest.mark.parametrize(
    ("frame", "name", "says"),
    [
        (
            pd.DataFrame({"x": range(1_048_576)}),
            "x.xlsx",
            "1,048,575 rows below its header and 16,384 columns, not 1,048,576 and 1: write .parq",
        ),
        (pd.DataFrame({"x": ["y" * 32_768]}), "x.xlsx", "32,767 characters"),
        (pd.DataFrame({("a/b", "c"): [1], ("a", "b/c"): [1]}), "x.csv", "two columns .* 'a/b/c'"),
        (pd.DataFrame({"x": [10**38]}, dtype=object), "x.csv", "at most 38 digits"),
        (pd.DataFrame({"x": [1]}), "x.xls", "must end with .parquet or .csv or .json or .xlsx"),
        ([1], "x.csv", "a frame or series of pandas"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_and_the_old_file_stays(frame, name, says, tmp_path):
    (tmp_path / name).write_text("old")
    with pytest.raises((ValueError, TypeError), match=says):
        ba.write_table(frame, tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "old")]


def test_a_sheet_takes_excels_most_columns_and_characters_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("balance_analysis.files.tables.EXCEL_COLUMNS", 3)
    with pytest.raises(ValueError, match="and 3 columns, not 1 and 4"):
        ba.write_table(pd.DataFrame([range(4)]), tmp_path / "x.xlsx")
    ba.write_table(pd.DataFrame([("y" * 32_767, 1, 2)]), tmp_path / "x.xlsx")
    assert len(read(tmp_path / "x.xlsx")[1][0][0]) == 32_767


def test_without_xlsxwriter_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(ValueError, match=r"pip install 'balance-analysis\[excel\]'"):
        ba.write_table(SOME, tmp_path / "x.xlsx")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_before_the_start_of_a_table_are_marked_as_openings(ending, tmp_path):
    table = SOME.copy()
    table.attrs["balance_analysis"] = {"start": OPENED.isoformat()}
    ba.write_table(table, tmp_path / f"x.{ending}")
    header, rows = read(tmp_path / f"x.{ending}")
    assert header[-1] == "opening"
    marks = [str(row[-1]).lower() == "true" for row in rows]
    assert marks == [*(SOME["timestamp"] < OPENED)]
    assert any(marks)


UNITS = {"e4" * 32: {"symbol": "tUSD", "decimals": 5}}


def held_in(*assets):
    frame = pd.DataFrame({"asset_id": assets, "party_id": "a1"})
    frame["balance"] = pd.array([150_000] * len(assets), dtype=BALANCE_DTYPE)
    return frame


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_state_the_unit_of_amounts(tmp_path, ending):
    held = held_in(*UNITS, "odd")
    named = held.copy()
    named.attrs["balance_analysis"] = {"assets": UNITS}
    whole = ba.to_units(held.head(1), UNITS)
    for frame, units in (
        (held, ["smallest", "smallest"]),
        (named, ["10^-5 tUSD", "smallest"]),
        (whole, ["tUSD"]),
        (held.drop(columns="balance"), None),
        (held.drop(columns="asset_id"), None),
    ):
        ba.write_table(frame, tmp_path / f"x.{ending}")
        header, rows = read(tmp_path / f"x.{ending}")
        assert units == ([row[-1] for row in rows] if header[-1] == "unit" else None)


@pytest.mark.parametrize(("labels", "party"), [({}, "a1"), ({"a1": "Alice"}, "Alice")])
def test_a_wide_layout_has_names_and_the_unit_in_its_header(labels, party, tmp_path):
    table = table_of([(*UNITS, "ACCOUNT_TYPE_GENERAL", "a1", "", START, 150_000)])
    table.attrs["balance_analysis"] = {"assets": UNITS, "labels": labels}
    series = ba.balance_series(table, freq="1D")
    for frame, unit in ((series, "10^-5 tUSD"), (ba.to_units(series), "tUSD")):
        ba.write_table(frame, tmp_path / "x.csv")
        assert [*pd.read_csv(tmp_path / "x.csv")][1] == f"tUSD/general/{party} [{unit}]"


def test_a_folder_of_files_knows_no_more_than_its_files_together(tmp_path):
    noon = pd.Timestamp("2023-04-12T12:00Z")
    table = ba.to_table(SAMPLE, known=[("2023-04-01", "2023-05-01")])
    parties = SAMPLE["party_id"].drop_duplicates()[:2]
    one, other = (table.balances.select(party_ids=party) for party in parties)
    early = one.balances.between("2023-04-01", noon)
    late = other.balances.between(noon, "2023-05-01")
    ba.write_parquet(early, tmp_path / "a.parquet")
    ba.write_parquet(late, tmp_path / "b.parquet")
    both, before = ba.read_parquet(tmp_path), noon - pd.Timedelta("1h")
    assert len(both) == len(early) + len(late)
    assert ba.balance_at(early, before)["balance"].notna().any()
    for moment in (before, noon + pd.Timedelta("1D")):
        assert ba.balance_at(both, moment)["balance"].isna().all()
