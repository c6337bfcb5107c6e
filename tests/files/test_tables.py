"""What is written to a file is there when others read it."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
from decimal import Decimal

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.files import tables
from tests.analysis.tables import LARGEST, START
from tests.cli.test_tables import tables as spoilt
from tests.columns import BALANCE_DTYPE, note_known

SAMPLE = ba.read_parquet(demo.sample_data() / "changes.parquet")
SOME = SAMPLE[SAMPLE["party_id"].isin(SAMPLE["party_id"].drop_duplicates()[:3])][::100]
ENDINGS = ["parquet", "csv", "json", "xlsx"]
MAKES = {
    "table": lambda t: t,
    "at": lambda t: ba.balance_at(t, "2023-04-12"),
    "wide": lambda t: ba.balance_series(t, freq="7D"),
    "berlin": lambda t: ba.balance_series(t, freq="7D", layout="long", tz="Europe/Berlin"),
    "deltas": lambda t: ba.deltas(t).head(300),
    "flows": lambda t: ba.flows(t, freq="7D", by="asset_id"),
    "totals": lambda t: ba.totals(t, freq="7D"),
    "share": lambda t: ba.totals(t, freq="7D", share=True),
    "summary": ba.summarize_accounts,
    "averages": lambda t: ba.time_weighted_average(t, freq="7D"),
    "none": lambda t: ba.summarize_accounts(t[:0]),
    "described": lambda t: ba.to_units(t, demo.sample_data() / "assets.toml")[
        ["balance"]
    ].describe(),
    "grouped": lambda t: t.groupby(ba.ACCOUNT_KEY, observed=True)["balance"].max(),
    "integers": lambda t: t.assign(balance=t["balance"].astype(object).map(int).cumsum()).head(99),
}


def read(path):
    """Return the header and the rows of a file, as another reader sees them."""
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
            header, *rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
            header = [name or "" for name in header]
    return list(header), rows


def header_of(column):
    """Return what a file calls a column; of an account its ids, short and in ASCII."""
    if not isinstance(column, tuple):
        return str(column)
    ids = [each if len(each) < 12 else f"{each[:6]}..{each[-4:]}" for each in column]
    ids[1] = column[1].removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()
    return "/".join(ids).strip("/")


def check(frame, path):
    expected = frame.to_frame() if isinstance(frame, pd.Series) else frame
    if any(name is not None for name in expected.index.names) or "mean" in expected.index:
        expected = expected.reset_index()
    header, rows = read(path)
    names = list(map(header_of, expected.columns))
    if "asset_id" in expected and header[-1:] == ["unit"]:
        assert {row[-1] for row in rows} <= {"smallest"}
        header, rows = header[:-1], [row[:-1] for row in rows]
    header = [name.removesuffix(" [smallest]") for name in header]
    if rows or path.suffix != ".json":
        plain = [name.removesuffix(" (UTC)").removeprefix("'") for name in header]
        assert [name.strip("/") for name in plain] == names
    assert len(rows) == len(expected)
    for name in (name for name in header if name and name.endswith(" (UTC)")):
        assert path.suffix == ".xlsx", name
    for row, wanted in zip(rows, expected.itertuples(index=False, name=None), strict=True):
        for value, cell in zip(row, wanted, strict=True):
            assert is_same(value, cell), (value, cell)


def is_same(value, cell):
    if not isinstance(cell, str) and pd.isna(cell):
        return value in (None, "") or pd.isna(value)
    if isinstance(cell, pd.Timestamp):
        moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return moment == cell
    if isinstance(cell, float):
        return float(value) == pytest.approx(cell, rel=1e-14)
    if isinstance(cell, int | Decimal | np.integer):
        return Decimal(str(value)) == Decimal(str(cell))
    return (value or "") == cell or value == f"'{cell}"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_any_result_is_read_back_digit_by_digit(make, ending, tmp_path):
    frame = make(SOME)
    ba.write_table(frame, tmp_path / f"x.{ending}")
    check(frame, tmp_path / f"x.{ending}")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=8)
@given(table=spoilt())
@pytest.mark.parametrize("ending", ENDINGS)
def test_any_text_and_amount_is_read_back(ending, table, scratch):
    ba.write_table(table, scratch / f"x.{ending}")
    check(table, scratch / f"x.{ending}")


def test_a_table_in_parquet_is_what_write_parquet_writes(tmp_path):
    table = SAMPLE.copy()
    note_known(table, [(START, START + 1)])
    ba.write_table(table, tmp_path / "x.parquet")
    back = ba.read_parquet(tmp_path / "x.parquet")
    pd.testing.assert_frame_equal(back, table)
    assert back.attrs == table.attrs


def test_polars_and_pandas_read_what_was_written(tmp_path):
    polars = pytest.importorskip("polars")
    held = ba.balance_at(SAMPLE, "2023-04-12").dropna()
    amounts = [int(balance) for balance in held["balance"]]
    ba.write_table(held, tmp_path / "x.parquet")
    ba.write_table(held, tmp_path / "x.csv")
    ba.write_table(held, tmp_path / "x.xlsx")
    assert [*map(int, polars.read_parquet(tmp_path / "x.parquet")["balance"])] == amounts
    text = polars.read_csv(tmp_path / "x.csv", infer_schema=False)["balance"]
    assert [*map(int, text)] == amounts
    assert [*map(int, pd.read_excel(tmp_path / "x.xlsx")["balance"])] == amounts


def sheet_of(frame, folder):
    ba.write_table(frame, folder / "x.xlsx")
    return openpyxl.load_workbook(folder / "x.xlsx").active


def texts_of(sheet):
    return [list(row) for row in sheet.iter_rows(values_only=True)]


@settings(max_examples=12)
@given(
    whole=st.lists(st.none() | st.integers(-LARGEST, LARGEST), min_size=1, max_size=5),
    fraction=st.lists(
        st.none() | st.decimals(-(10**19), 10**19, allow_nan=False, places=18), max_size=5
    ),
)
def test_every_amount_of_excel_is_a_number_or_text_with_all_of_its_digits(whole, fraction, scratch):
    for values, kind in ((whole, pa.decimal128(38, 0)), (fraction, pa.decimal128(38, 18))):
        frame = pd.DataFrame({"x": pd.array(values, pd.ArrowDtype(kind)), "y": "z"})
        ba.write_table(frame, scratch / "n.xlsx")
        header, *rows = texts_of(openpyxl.load_workbook(scratch / "n.xlsx").active)
        assert header == ["x", "y"]
        cells = [cell for cell, _ in rows]
        assert len({type(cell) is str for cell in cells if cell is not None}) <= 1
        assert [None if cell is None else Decimal(str(cell)) for cell in cells] == values


def test_excel_has_moments_in_utc_and_finer_ones_than_milliseconds_as_text(tmp_path):
    # The clocks in Berlin show this time twice.
    noon = pd.Timestamp("2023-10-29T01:30Z").tz_convert("Europe/Berlin")
    plain, finer = noon.tz_localize(None), noon + pd.Timedelta("1us")
    frame = pd.DataFrame({"a": [noon], "b": [finer], "c": [plain], "d": [plain.normalize()]})
    sheet = sheet_of(frame, tmp_path)
    header, row = texts_of(sheet)
    assert header == ["a (UTC)", "b", "c", "d"]
    utc = noon.tz_convert(None)
    assert row == [utc, "2023-10-29T01:30:00.000001Z", plain, plain.normalize()]
    assert [cell.is_date for cell in sheet[2]] == [True, False, True, True]
    assert [sheet["C2"].number_format, sheet["D2"].number_format] == [
        "yyyy-mm-dd hh:mm:ss",
        "yyyy-mm-dd",
    ]


def test_a_sheet_of_excel_is_ready_to_be_read_and_filtered(tmp_path):
    held = ba.balance_at(SAMPLE, "2023-04-12", units=demo.sample_assets())
    sheet = sheet_of(held, tmp_path)
    places = {cell.value: cell.column_letter for cell in sheet[1]}
    assert sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    assert all(cell.font.bold for cell in sheet[1])
    assert sheet[f"{places['balance']}2"].number_format == "#,##0.00####"
    widths = {name: sheet.column_dimensions[letter].width for name, letter in places.items()}
    longest = max(len(f"{value:,.2f}") for value in held["balance"].dropna())
    assert longest <= widths["balance"] < 30
    assert widths["asset_id"] == pytest.approx(40, abs=1)


def test_excel_has_the_names_of_assets_and_accounts_that_the_frame_knows(tmp_path):
    party = SOME["party_id"].iloc[0]
    given = {"assets": demo.sample_assets(), "labels": {party: "Alice"}}
    held = ba.balance_at(ba.labelled(SOME, **given), "2023-04-12")
    header, *rows = texts_of(sheet_of(held, tmp_path))
    assert header[:2] == ["symbol", "label"]
    named = ba.labelled(held)
    assert [row[:2] for row in rows] == named[["symbol", "label"]].to_numpy().tolist()
    assert any("Alice" in label for _, label, *_ in rows)
    wide = sheet_of(ba.balance_series(ba.labelled(SOME, **given), freq="7D"), tmp_path)
    assert "symbol" not in texts_of(wide)[0]


def test_nothing_in_excel_is_a_formula(tmp_path):
    ba.write_table(pd.DataFrame({"=a": ["=1+1", "+1", "@x"]}), tmp_path / "x.xlsx")
    cells = [cell for row in openpyxl.load_workbook(tmp_path / "x.xlsx").active for cell in row]
    assert {cell.data_type for cell in cells} == {"s"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_rows_give_the_same_bytes(ending, tmp_path):
    for name in ("a", "b"):
        ba.write_table(SOME, tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_what_python_holds_beyond_numbers_of_json_and_excel_is_text(tmp_path):
    frame = pd.DataFrame({"x": [float("inf"), float("nan"), 0.5], "y": [True, False, True]})
    for ending in ("json", "xlsx"):
        ba.write_table(frame, tmp_path / f"x.{ending}")
        _, rows = read(tmp_path / f"x.{ending}")
        assert [tuple(row) for row in rows] == [("inf", True), (None, False), (0.5, True)]


@pytest.mark.parametrize(
    ("frame", "name", "says"),
    [
        (pd.DataFrame({"x": range(4)}), "x.xlsx", "3 rows .* write .parq"),
        (pd.DataFrame([range(4)]), "x.xlsx", "3 columns"),
        (pd.DataFrame({"x": ["y" * 32_768]}), "x.xlsx", "32,767 characters"),
        (pd.DataFrame({("a/b", "c"): [1], ("a", "b/c"): [1]}), "x.csv", "two columns .* 'a/b/c'"),
        (pd.DataFrame({"x": [10**38]}, dtype=object), "x.csv", "more than 38 digits"),
        (pd.DataFrame({"x": [1]}), "x.xls", "name a .parquet or .csv or .json or .xlsx file"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_old_file_stays(
    *, frame, name, says, tmp_path, monkeypatch
):
    assert (tables.EXCEL_ROWS, tables.EXCEL_COLUMNS) == (1_048_576, 16_384)
    monkeypatch.setattr(tables, "EXCEL_ROWS", 4)
    monkeypatch.setattr(tables, "EXCEL_COLUMNS", 3)
    (tmp_path / name).write_text("old")
    with pytest.raises(ValueError, match=says):
        ba.write_table(frame, tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "old")]


@pytest.mark.parametrize("wrong", [[1], "x.parquet", None])
def test_what_is_no_frame_is_refused(wrong, tmp_path):
    with pytest.raises(TypeError, match="a frame or series of pandas"):
        ba.write_table(wrong, tmp_path / "x.csv")


def test_without_xlsxwriter_what_to_install_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(ValueError, match=r"pip install 'balance-analysis\[excel\]'"):
        ba.write_table(SOME, tmp_path / "x.xlsx")
    assert not [*tmp_path.iterdir()]


def test_a_sheet_as_long_as_it_may_be_is_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "EXCEL_ROWS", 4)
    ba.write_table(pd.DataFrame({"x": [1, 2, 3]}), tmp_path / "x.xlsx")
    assert len(read(tmp_path / "x.xlsx")[1]) == 3


def unknown_as_none(cells):
    return [None if cell in ("", None) else cell for cell in cells]


TEXTS = ["csv", "json", "xlsx"]
CENTURY = dt.timedelta(days=36_525)


days = st.none() | st.dates(dt.date(1900, 3, 1), dt.date(2100, 1, 1))
lengths = st.none() | st.timedeltas(-CENTURY, CENTURY)
amounts = st.decimals(-(10**19), 10**19, allow_nan=False, places=18)
DURATIONS = ("timedelta64[us]", object, pd.ArrowDtype(pa.duration("us")))


@pytest.mark.parametrize("ending", TEXTS)
@settings(max_examples=12)
@given(rows=st.lists(st.tuples(days, lengths, amounts), min_size=1))
def test_days_durations_and_decimals_keep_every_digit(ending, rows, scratch):
    rows = [*rows, (None, None, Decimal(0)), (None, None, Decimal("1e-18"))]
    days, lengths, amounts = map(list, zip(*rows, strict=True))
    wanted = pd.Series(lengths, dtype="timedelta64[us]")
    columns = [pd.Series(days, dtype=object), *map(wanted.astype, DURATIONS)]
    columns.append(pd.Series(amounts, dtype=pd.ArrowDtype(pa.decimal128(38, 18))))
    ba.write_table(pd.concat(columns, axis=1, keys=[*"dabcx"]), scratch / f"n.{ending}")
    cells, *durations, numbers = zip(*read(scratch / f"n.{ending}")[1], strict=True)
    if ending == "xlsx":
        assert [cell and cell.date() for cell in cells] == days
    else:
        assert unknown_as_none(cells) == [day and day.isoformat() for day in days]
    for texts in map(unknown_as_none, durations):
        assert all(text is None or text.startswith("P") for text in texts)
        assert pd.Series([*map(pd.Timedelta, texts)], dtype="timedelta64[us]").equals(wanted)
    assert [Decimal(str(number)) for number in numbers] == amounts
    # Neither an exponent nor zeros at the end.
    texts = [number for number in numbers if isinstance(number, str)]
    assert not any("E" in text or ("." in text and text.endswith("0")) for text in texts)
    assert numbers[-2] in (0, "0")


@pytest.mark.parametrize("ending", ENDINGS)
def test_periods_are_text(ending, tmp_path):
    columns = {
        freq: pd.Series([*pd.period_range("2023-04-01T05:00", periods=3, freq=freq), pd.NaT])
        for freq in "YQMDhs"
    }
    frame = pd.DataFrame({f"{x} period": periods for x, periods in columns.items()})
    for kind in ("category", object):
        frame = frame.assign(**{f"{x} {kind}": y.astype(kind) for x, y in columns.items()})
    ba.write_table(frame, tmp_path / f"x.{ending}")
    header, rows = read(tmp_path / f"x.{ending}")
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        assert all(isinstance(cell, str) and " " not in cell for cell in cells[:3])
        assert [pd.Period(cell, name[0]) for cell in cells[:3]] == [*columns[name[0]][:3]]
        assert cells[3] in (None, "")


@pytest.mark.parametrize("day", ["1900-02-28", "1850-04-01"])
def test_days_before_those_of_excel_are_text(day, tmp_path):
    # Excel counts a 29th of February 1900, which would move earlier days by one.
    for values in (pd.Series([dt.date.fromisoformat(day)]), pd.to_datetime(pd.Series([day]))):
        ba.write_table(pd.DataFrame({"x": values}), tmp_path / "x.xlsx")
        [(cell,)] = read(tmp_path / "x.xlsx")[1]
        assert cell.startswith(day)


def with_openings(start):
    table = SOME.copy()
    table.attrs[ba.schema.ATTRS_KEY] = {"start": start}
    return table


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_before_the_start_of_a_table_are_marked_as_openings(ending, tmp_path):
    start = SOME["timestamp"].quantile(0.3, "lower")
    ba.write_table(with_openings(start.isoformat()), tmp_path / f"x.{ending}")
    header, rows = read(tmp_path / f"x.{ending}")
    assert header[-1] == "opening"
    marks = [str(row[-1]).lower() == "true" for row in rows]
    assert marks == [*(SOME["timestamp"] < start)]
    assert any(marks)


def test_parquet_of_a_table_keeps_openings_as_rows_and_the_start(tmp_path):
    table = with_openings(SOME["timestamp"].quantile(0.3, "lower").isoformat())
    for write in (ba.write_parquet, ba.write_table):
        write(table, tmp_path / "x.parquet")
        back = ba.read_parquet(tmp_path / "x.parquet")
        whole = table.reset_index(drop=True)
        pd.testing.assert_frame_equal(back, whole, check_categorical=False)
        assert back.attrs[ba.schema.ATTRS_KEY]["start"] == table.attrs[ba.schema.ATTRS_KEY]["start"]


UNITS = {"e4" * 32: {"symbol": "tUSD", "decimals": 5}}


def held_in(*assets):
    frame = pd.DataFrame({"asset_id": assets, "party_id": "a1"})
    frame["balance"] = pd.array([150_000] * len(assets), dtype=BALANCE_DTYPE)
    return frame


@pytest.mark.parametrize("form", ["csv", "json", "xlsx", "parquet"])
def test_files_say_in_which_unit_amounts_are(tmp_path, form):
    read = {"csv": pd.read_csv, "json": pd.read_json, "xlsx": pd.read_excel}
    held, file = held_in(*UNITS, "odd"), tmp_path / f"x.{form}"
    named = held.copy()
    named.attrs["balance_analysis"] = {"assets": UNITS}
    whole = ba.to_units(held.head(1), UNITS)
    for frame, units in (
        (held, ["smallest", "smallest"]),
        (named, ["10^-5 tUSD", "smallest"]),
        (whole, ["tUSD"]),
    ):
        ba.write_table(frame, file)
        assert read.get(form, pd.read_parquet)(file)["unit"].tolist() == units
    for none in (held.drop(columns="balance"), held.drop(columns="asset_id")):
        ba.write_table(none, file)
        assert "unit" not in read.get(form, pd.read_parquet)(file)


def test_a_wide_layout_says_the_unit_in_its_header(tmp_path):
    table = ba.to_table(
        held_in(*UNITS).assign(
            account_type="ACCOUNT_TYPE_GENERAL", market_id="", timestamp=pd.Timestamp("2023-04-01")
        )
    )
    note = table.attrs.get("balance_analysis", {})
    table.attrs["balance_analysis"] = {**note, "assets": UNITS}
    series = ba.balance_series(table, freq="1D")
    for frame, unit in ((series, "10^-5 tUSD"), (ba.to_units(series), "tUSD")):
        ba.write_table(frame, tmp_path / "x.csv")
        assert [*pd.read_csv(tmp_path / "x.csv")][1] == f"tUSD/general/a1 [{unit}]"


def test_a_folder_of_files_knows_no_more_than_they_know_together(tmp_path):
    noon = pd.Timestamp("2023-04-12T12:00Z")
    table = ba.to_table(SAMPLE, known=[("2023-04-01", "2023-05-01")])
    one, other = (
        table.balances.select(party_ids=[party])
        for party in SAMPLE["party_id"].drop_duplicates()[:2]
    )
    early = one.balances.between("2023-04-01", noon)
    late = other.balances.between(noon, "2023-05-01")
    for name, part in (("a", early), ("b", late)):
        ba.write_parquet(part, tmp_path / f"{name}.parquet")
    both, before = ba.read_parquet(tmp_path), noon - pd.Timedelta("1h")
    assert len(both) == len(early) + len(late)
    assert ba.balance_at(early, before)["balance"].notna().any()
    for moment in (before, noon + pd.Timedelta("1D")):
        assert ba.balance_at(both, moment)["balance"].isna().all()
