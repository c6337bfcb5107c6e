import json
import pickle
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.table import names
from tests.analysis.cases import CASES
from tests.analysis.oracle import Days, Grid
from tests.moments import to_microseconds

PARTY, MARKET, OTHER = "a1" * 32, "b2" * 32, "c3" * 32
ACCOUNT = ("VOTE", "ACCOUNT_TYPE_MARGIN", PARTY, MARKET)
USD, GOV = "e4" * 32, "7c" * 32
ASSETS = {USD: ba.Asset(USD, 6, "tUSD", "Test dollar"), GOV: ba.Asset(GOV, 18, "tGOV")}
DESCRIBED = {
    USD: {"symbol": "tUSD", "decimals": 6, "name": "Test dollar"},
    GOV: {"symbol": "tGOV", "decimals": 18},
}
long_ids = st.text("0123456789abcdef", min_size=64, max_size=64)
ids = long_ids | st.from_regex(
    r"[G-Zg-z_-][A-Za-z_-]*", fullmatch=True
)  # ids that a node could send


texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=9)
described = st.fixed_dictionaries({"symbol": texts, "decimals": st.integers(0, 77), "name": texts})


def toml(value):
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return f"{{ {', '.join(f'{name} = {toml(each)}' for name, each in value.items())} }}"


def files_of(folder, named, rows):
    """Write names to a file of each kind (TOML, JSON and CSV) and yield the paths."""
    lines = (f"{toml(key)} = {toml(value)}" for key, value in named.items())
    content = {"a.toml": "\n".join(lines), "a.JSON": json.dumps(named)}
    content["a.csv"] = rows.to_csv(index=False)
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
        yield folder / name


@settings(max_examples=12)
@given(
    st.dictionaries(ids, described, min_size=1),
    st.dictionaries(ids, texts.filter(str.strip), min_size=1),
)
def test_names_are_the_same_from_a_mapping_a_frame_a_file_and_the_table_that_carries_them(
    tmp_path_factory, assets, labels
):
    assume(not {*labels} & {each.strip() for each in labels.values()})
    folder = tmp_path_factory.getbasetemp()
    given_names = names.read_names(assets, labels)
    assert given_names.assets == {one: ba.Asset(one, **about) for one, about in assets.items()}
    assert given_names.labels == {key: label.strip() for key, label in labels.items()}
    frame = pd.DataFrame([{"asset_id": one, **about, "x": 1} for one, about in assets.items()])
    for source in (frame, given_names.assets, *files_of(folder, assets, frame)):
        assert ba.read_assets(source) == given_names.assets
    frame = pd.DataFrame({"id": [*labels], "label": [*labels.values()], "x": 1})
    for source in (frame, given_names.labels, *files_of(folder, labels, frame)):
        assert ba.read_labels(source) == given_names.labels
    noted = names.note_names({}, given_names)
    for metadata in (noted, pickle.loads(pickle.dumps(noted)), json.loads(json.dumps(noted))):
        read = names.names_in(metadata)
        assert (read.assets, read.labels) == (given_names.assets, given_names.labels)


def test_ids_in_any_case_and_columns_of_parties_or_markets_are_accepted():
    assert ba.read_assets({USD.upper(): 6}) == {USD: ba.Asset(USD, 6)}
    rows = [{"party_id": PARTY.upper(), "label": "Alice"}, {"market_id": MARKET, "label": "BTC"}]
    assert ba.read_labels(pd.DataFrame(rows)) == {PARTY: "Alice", MARKET: "BTC"}


@pytest.mark.parametrize(
    "key", ["a1a1a1…a1a1", "a1..a1", f"0x{PARTY}", "0Xa1", "1.2E+63", "7e+63", "12E+9", "a1a1a1"]
)
def test_a_key_that_is_not_a_whole_id_is_refused(key):
    message = f"{re.escape(repr(key))} is not a whole id"
    for read, value in ((ba.read_labels, "Alice"), (ba.read_assets, 6)):
        with pytest.raises(ValueError, match=message):
            read({key: value})
    with pytest.raises(ValueError, match=f"row 1: {message}"):
        ba.read_labels(pd.DataFrame({"party_id": [key], "label": ["Alice"]}))


def frame_of(**letters):
    """Return a frame of columns of one letter a row."""
    return pd.DataFrame({name: [*column] for name, column in letters.items()})


@pytest.mark.parametrize(
    ("read", "source", "message"),
    [
        (ba.read_assets, {USD: {}}, "needs decimals, a whole number from 0 to 77, not 'None'"),
        (ba.read_assets, {USD: True}, "needs decimals"),
        (ba.read_assets, {USD: -1}, "not '-1'"),
        (ba.read_assets, {USD: 78}, "not '78'"),
        (ba.read_assets, {USD: {"decimals": 6, "symbol": 7}}, "must be text"),
        (ba.read_labels, {PARTY: " "}, "must be non-blank text, not ' '"),
        (ba.read_labels, {PARTY: None}, "must be non-blank text, not None"),
        (ba.read_labels, {PARTY: {"symbol": "USD"}}, "must be non-blank text, not None"),
        (ba.read_labels, {PARTY: "network"}, "is an id itself"),
        (ba.read_labels, {PARTY: OTHER}, "is an id itself"),
        (ba.read_labels, {PARTY: "x", "x": "y"}, "is an id itself"),
        (ba.read_labels, {" ": "x"}, "' ' is not an id"),
        (ba.read_labels, {("a", "b"): "x"}, "not an id"),
        (ba.read_labels, {5: "x"}, "5 is not an id"),
        (ba.read_labels, {PARTY.upper(): "Alice", PARTY: "Bob"}, "already defined differently"),
        (ba.read_labels, frame_of(label="x"), "row 1: a label needs one id"),
        (ba.read_labels, frame_of(party_id="x"), "no column label"),
        (ba.read_labels, frame_of(asset_id="x", label="y"), "row 1: a label needs"),
        (ba.read_labels, frame_of(account_type="x", party_id="y", label="z"), "needs one id"),
        (ba.read_labels, frame_of(party_id="x", market_id="y", label="z"), "row 1: a label needs"),
        (ba.read_labels, frame_of(id="aa", label="xy"), "row 2: 'a' is already defined diff"),
    ],
)
def test_malformed_names_are_refused(read, source, message):
    with pytest.raises(ValueError, match=message):
        read(source)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "must be in a .toml, .csv or .json file"),
        ("a.toml", "[", "can't be read"),
        ("a.json", "{", "can't be read"),
        ("a.json", "[1]", "must be a JSON object of assets by id"),
        ("a.csv", "asset_id\nx\n", "no column decimals"),
        ("a.csv", "asset_id,decimals\nx,1.5\n", "row 1: asset 'x' needs decimals"),
        ("a.csv", "asset_id,decimals\nx,1\nx,2\n", "row 2: 'x' is already defined differently"),
        ("a.toml", b"\xff", "can't be read: .*codec"),
        ("a.json", '{"x": 1, "x": 2}', "the key 'x' occurs 2 times in one object"),
        ("a.json", '{"x": {"decimals": 1, "decimals": 2}}', "the key 'decimals' occurs 2 times"),
        ("a.json", '{"x":' * 100_000 + "1" + "}" * 100_000, "can't be read: maximum recursion"),
        ("a.json", "[" * 100_000, "can't be read: maximum recursion"),
        ("a.toml", "x = " + "[" * 100_000, "nest|recursion"),
        ("a.toml", f"x = {'1' * 5000}", "can't be read"),
        ("a.json", f'{{"x": {"1" * 5000}}}', "can't be read"),
        ("a.csv", f"asset_id,decimals\nx,{'1' * 5000}\n", "row 1: asset 'x' needs decimals"),
        ("a.csv", f"asset_id,decimals,note\nx,1,{'y' * 200_000}\n", "can't be read: field larger"),
    ],
)
def test_a_file_without_assets_is_refused_with_one_line(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as raised:
        ba.read_assets(file)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_a_source_that_is_neither_a_mapping_nor_a_frame_nor_a_path_is_a_type_error():
    for read in (ba.read_assets, ba.read_labels):
        with pytest.raises(TypeError, match="not 6"):
            read(6)


def find(word, column="party_id", held=None, **given_names):
    """Return the ids that a word means, among held ids and ids with a name."""
    return names.read_names(**given_names).find(word, column, held)


@given(st.lists(st.text("0123ab", min_size=64, max_size=64), min_size=1, max_size=30), st.data())
def test_a_short_form_stands_for_the_only_id_that_it_fits_or_is_refused(many, data):
    whole = data.draw(st.sampled_from(many))
    head, tail = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    mark = data.draw(st.sampled_from(["…", "...", "..", ""]))
    tail = tail if mark else 0
    word = whole[:head] + mark + whole[64 - tail :]
    fitting = {x for x in many if x[:head] == whole[:head] and x[64 - tail :] == whole[64 - tail :]}
    held = {"party_id": {*many}}
    if head + tail < 4 or len(fitting) > 1:
        message = f"may stand for {len(fitting)}: " if head + tail >= 4 else "is not 64 hex digits"
        with pytest.raises(ValueError, match=message):
            find(word, held=held)
    else:
        assert find(word, held=held) == [whole]


ID, FIRST, SECOND = "ab" * 32, "0" * 63 + "1", "0" * 63 + "2"


def assets_called(**symbols):
    return {one: {"symbol": symbol, "decimals": 1} for symbol, one in symbols.items()}


@pytest.mark.parametrize(
    ("word", "column", "given_names", "expected"),
    [
        ("tUSD", "asset_id", {"assets": ASSETS}, [USD]),
        ("TUSD", "asset_id", {"assets": ASSETS}, [USD]),
        (USD.upper(), "asset_id", {"assets": ASSETS}, [USD]),
        ("abab…abab", "asset_id", {"assets": {ID: 1}}, [ID]),
        ("vote", "asset_id", {}, ["VOTE"]),  # an id on networks
        ("VOTE", "asset_id", {"assets": ASSETS}, ["VOTE"]),
        ("VOTE", "asset_id", {"assets": assets_called(VOTE=GOV)}, [GOV]),
        ("VOTE", "asset_id", {"assets": {"VOTE": 1, "vote": 1, **assets_called(V=GOV)}}, ["VOTE"]),
        ("DESK", "party_id", {"labels": {FIRST: "Desk", SECOND: "Desk"}}, [FIRST, SECOND]),
        ("Alice", "party_id", {"labels": {ID: "Alice"}}, [ID]),
        ("abab", "market_id", {"labels": {ID: "Alice"}}, [ID]),
        ("BTC/USD", "party_id", {"labels": {ID: "BTC/USD"}}, [ID]),  # may be a party or a market
    ],
)
def test_a_word_stands_for_an_id_a_name_or_a_part_of_an_id(word, column, given_names, expected):
    assert find(word, column, **given_names) == expected


MANY = {"market_id": {f"abcd{n:060}" for n in range(7)}}
X = {"symbol": "X", "decimals": 1}
BTC = {"labels": {FIRST: "A", ID: "BTC/USD"}, "held": {"party_id": {FIRST}, "market_id": {ID}}}


@pytest.mark.parametrize(
    ("word", "column", "given_names", "message"),
    [
        ("tUSB", "asset_id", {"assets": ASSETS}, "'tUSB' .*did you mean tUSD"),
        ("zzzz", "asset_id", {"assets": ASSETS}, "'zzzz' .*known names: tGOV, tUSD"),
        ("x", "asset_id", {"assets": {USD: 6}}, "nor a short form of 4 characters or more"),
        ("tUSD", "asset_id", {}, "for a symbol, give assets too"),
        ("Alise", "party_id", {"labels": {ID: "Alice"}}, "did you mean Alice"),
        ("zzzzz", "party_id", {"labels": {ID: "Bob", USD: "Alice"}}, "known names: Alice, Bob"),
        ("Alice", "party_id", {}, "give the whole id; .* for another name labels"),
        ("Bob", "party_id", {"labels": {ID: "Bob"}, "held": {"party_id": [USD]}}, "nor a known"),
        ("", "party_id", {"labels": {ID: "Alice"}}, "is not 64 hex digits"),
        ("abcd", "market_id", {"held": MANY}, r"'abcd' may stand for 7: (\w+, ){5}and 2 more"),
        ("Desk (4444…4444)", "party_id", {"labels": {ID: "Desk"}}, "is not 64 hex digits"),
        ("X", "asset_id", {"assets": {**DESCRIBED, **assets_called(X=ID, x=FIRST)}}, "stand for 2"),
        ("X", "asset_id", {"assets": dict.fromkeys((USD, GOV), X)}, "stand for 2"),
        ("btc/usd", "party_id", BTC, "nor a known name, .*; known names: A$"),
        ("A", "market_id", BTC, "nor a known name, .*; known names: BTC/USD$"),
    ],
)
def test_a_word_that_matches_no_id_or_several_is_refused_with_a_hint(
    word, column, given_names, message
):
    with pytest.raises(ValueError, match=message):
        find(word, column, **given_names)


@pytest.mark.parametrize("word", ["Desk", "desk", "DESK"])
def test_names_that_differ_by_case_are_refused_in_any_case(word):
    message = rf"may stand for 2: {FIRST} \(Desk\), {SECOND} \(desk\)"
    with pytest.raises(ValueError, match=message):
        find(word, labels={FIRST: "Desk", SECOND: "desk"})
    with pytest.raises(ValueError, match=message):
        find(word, "asset_id", assets=assets_called(Desk=FIRST, desk=SECOND))


def test_the_text_shown_for_ids_of_one_name_finds_each_id():
    labels = dict.fromkeys([ID, "cd" * 32], "Desk (UK)") | {d * 64: "Desk" for d in "123"}
    named = names.read_names(assets_called(X=FIRST, x=GOV), labels)
    shown = named.shown("party_id", labels)
    assert len({*shown.values()}) == len(labels)
    for party_id, text in shown.items():
        assert named.find(text, "party_id") == [party_id]
    for asset_id, text in named.shown("asset_id", [FIRST, GOV]).items():
        assert named.find(text, "asset_id") == [asset_id]
    assert len(named.shown("asset_id", ["ab" * 32])["ab" * 32]) < 20


def short_forms(ids):
    """Return the short forms of parties' ids in tables."""
    return ba.account_labels(pd.DataFrame({"party_id": ids}, dtype="str")).tolist()


# Few letters and the ellipsis itself, so that ends collide.
@given(st.lists(st.text("ab…", min_size=1, max_size=20), max_size=30))
def test_short_forms_differ_keep_both_ends_and_are_never_longer(ids):
    forms = short_forms(ids)
    assert len({*forms}) == len({*ids})
    for full, form in zip(ids, forms, strict=True):
        assert len(form) <= len(full)
        assert form == full or (full.startswith(form[:6]) and full.endswith(form[-4:]))


def test_a_short_form_has_six_and_four_characters_or_as_many_as_it_needs():
    whole, like_it = "c2071f98" + "1" * 46 + "d9d5d9ed19", "c2071f98" + "0" * 46 + "d9d5d9ed19"
    few = ["network", "VOTE", "eleven char"]
    assert short_forms([*few, whole]) == [*few, "c2071f…ed19"]
    assert short_forms([whole, like_it]) == ["c2071f9811…d5d9ed19", "c2071f9800…d5d9ed19"]


ACCOUNTS = pd.DataFrame(
    [("VOTE", "ACCOUNT_TYPE_GENERAL", *ids) for ids in [("NA", "m"), ("", ""), (None, None)]],
    columns=ba.ACCOUNT_KEY,
)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["asset_id"], ["all accounts"] * 3),
        (["market_id"], ["market m", "no market", "market NA"]),
        (["account_type", "market_id"], ["general · market m", "general", "general · market NA"]),
        (["party_id", "market_id"], ["NA · m", "no party", "NA · NA"]),
        ([*ba.ACCOUNT_KEY], ["general · NA · m", "general · no party", "general · NA · NA"]),
    ],
)
def test_a_label_has_each_part_of_an_account_or_group_and_missing_ones_too(columns, expected):
    shown = ba.account_labels(ACCOUNTS[columns].set_axis([*"xyx"]))
    pd.testing.assert_series_equal(shown, pd.Series(expected, [*"xyx"], name="label"))


def test_accounts_show_own_names_and_parties_of_one_name_differ():
    accounts = pd.DataFrame([ACCOUNT] * 3, columns=ba.ACCOUNT_KEY)
    accounts["account_type"] = [f"ACCOUNT_TYPE_{name}" for name in ("MARGIN", "BOND", "MARGIN")]
    labels = {PARTY: "Desk", OTHER: "desk", MARKET: "BTC"}
    accounts["party_id"] = [PARTY, "d4" * 32, OTHER]
    assert ba.account_labels(accounts, labels=labels).tolist() == [
        "margin · Desk (a1a1a1…a1a1) · BTC",
        "bond · d4d4d4…d4d4 · BTC",
        "margin · desk (c3c3c3…c3c3) · BTC",
    ]
    assert ba.account_labels(accounts[["market_id"]], labels=labels).iloc[0] == "BTC"


@given(
    st.lists(st.tuples(*(st.integers(0, 2) for _ in range(4))), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_each_row_has_the_label_of_its_own_account_whatever_the_order(rows, as_categories, many):
    accounts = pd.DataFrame(rows, columns=ba.ACCOUNT_KEY).astype("str")
    if as_categories:
        kind = pd.CategoricalDtype(map(str, range(128 if many else 3)))
        accounts = accounts.astype(kind)
    shown = ba.labelled(accounts)
    assert shown["symbol"].tolist() == accounts["asset_id"].tolist()
    assert shown["label"].tolist() == [
        f"{kind} · {party} · {market}"
        for kind, party, market in accounts.iloc[:, 1:].itertuples(index=False)
    ]


SAMPLE = Path(demo.sample_data() / "changes.parquet")
SYMBOLS = {one: asset.symbol for one, asset in demo.sample_assets().items()}
DAYS = ("2023-04-11", "2023-04-13")
POOLS = ["bond", "insurance"]


def days_of(**names):
    """Return some days of a few accounts of the sample."""
    table = ba.read_parquet(SAMPLE, **names).balances.select(account_types=POOLS)
    return table.balances.between(*DAYS)


PLAIN = days_of()
SOME = sorted({*PLAIN["party_id"]} - {"network"})[:3]
OWN = {SOME[0]: "Alice", SOME[1]: "Desk", SOME[2]: "Desk"}
NAMED = days_of(assets=demo.sample_assets(), labels=OWN)
GRID = Grid(Days(1), to_microseconds(DAYS[0]), to_microseconds(DAYS[1]))
LONG = [name for name, case in CASES.items() if case.columns]


@pytest.mark.parametrize("name", ["table", *LONG])
def test_every_long_result_of_a_table_with_names_has_symbol_and_label_first(name):
    plain, shown = PLAIN, ba.labelled(NAMED)
    if name in CASES:
        plain, shown = (CASES[name].of(table, GRID) for table in (PLAIN, NAMED))
    assert not {"symbol", "label"} & {*plain}
    pd.testing.assert_frame_equal(pd.DataFrame(shown.iloc[:, 2:]), pd.DataFrame(plain))
    assert [*shown][:2] == ["symbol", "label"]
    assert {str(shown[name].dtype) for name in ("symbol", "label")} == {"category"}
    assert (shown["symbol"] == [SYMBOLS[one] for one in plain["asset_id"]]).all()
    for party, label in zip(SOME, ["Alice", *(f"Desk ({x[:6]}" for x in SOME[1:])], strict=True):
        texts = shown["label"][(plain["party_id"] == party).to_numpy()].astype("str")
        assert texts.str.contains(label, regex=False).all()
    keys = [name for name in ba.ACCOUNT_KEY[1:] if name in plain]
    pairs = shown[["label", *keys]].drop_duplicates()
    assert len(pairs) == shown["label"].nunique() == len(plain[keys].drop_duplicates())
    pd.testing.assert_frame_equal(ba.labelled(shown), shown)
    again = ba.labelled(shown, labels={SOME[0]: "Bob"})
    assert [*again] == [*shown]
    is_own = (plain["party_id"] == SOME[0]).to_numpy()
    assert (again["label"].astype("str").str.contains("Bob").to_numpy() == is_own).all()


def test_wide_results_and_those_without_names_keep_their_columns():
    assert [*ba.balance_series(NAMED, freq="1D").columns.names] == ba.ACCOUNT_KEY
    assert [*ba.totals(NAMED, freq="1D", by="asset_id")][:2] == ["symbol", "asset_id"]
    assert "insurance" in {*ba.totals(NAMED, freq="1D")["label"]}
    assert "symbol" not in ba.balance_at(PLAIN, "2023-04-12")
    wide = ba.balance_series(PLAIN.head(100), freq="1D")
    assert ba.account_labels(wide.columns.to_frame()).index.equals(wide.columns)
    assert ba.account_labels(PLAIN[:0]).empty
    assert ba.labelled(NAMED[:0]).empty
    for label in (ba.labelled, ba.account_labels):
        with pytest.raises(ValueError, match="one of the columns asset_id, account_type"):
            label(pd.DataFrame({"x": [1]}))


def test_names_are_read_once_and_follow_changes_of_attrs():
    held = ba.balance_at(NAMED, "2023-04-12")
    carried = names.names_of(held)
    assert carried is names.names_of(NAMED)
    held.attrs["balance_analysis"] = {**held.attrs["balance_analysis"], "labels": {SOME[0]: "Bob"}}
    assert names.names_of(held).labels == {SOME[0]: "Bob"}
    assert names.names_of(held).assets == carried.assets


def test_functions_of_results_accept_results_with_names():
    held = ba.balance_at(NAMED, "2023-04-12")
    whole = ba.to_units(held)
    assert [*whole] == [*held]
    assert whole["balance"].dtype == float
    assert ba.account_labels(held).tolist() == held["label"].tolist()
    assert ba.to_integers(held)["label"].equals(held["label"])
    sums, shown = ba.totals(NAMED, freq="1D"), ba.labelled(NAMED)
    assert ba.to_units(ba.to_integers(sums))["total"].equals(ba.to_units(sums)["total"])
    pd.testing.assert_frame_equal(ba.totals(shown, freq="1D"), ba.totals(NAMED, freq="1D"))


READ = {"csv": pd.read_csv, "json": pd.read_json, "xlsx": pd.read_excel, "parquet": pd.read_parquet}


@pytest.mark.parametrize("form", READ)
def test_files_of_results_have_the_names_in_columns(tmp_path, form):
    held = ba.balance_at(NAMED, "2023-04-12")
    ba.write_table(held, tmp_path / f"x.{form}")
    read = READ[form](tmp_path / f"x.{form}")
    assert [*read][:3] == ["symbol", "label", "asset_id"]
    assert read["party_id"].tolist() == held["party_id"].tolist()
    assert read["symbol"].tolist() == held["symbol"].tolist()
    assert read["label"].str.contains("Alice").any()
    assert read["label"].map(str.isascii).all() == (form == "csv")
    ba.write_table(NAMED, tmp_path / f"x.{form}")
    assert ("symbol" in READ[form](tmp_path / f"x.{form}")) == (form != "parquet")


def test_a_caller_s_own_column_label_stays_and_can_be_grouped_by(tmp_path):
    table = NAMED[NAMED["asset_id"] == NAMED["asset_id"].iloc[0]]
    table = table.assign(label=ba.labelled(table[["party_id"]], labels=OWN)["label"])
    sums = ba.totals(table, by=["asset_id", "label"], freq="1D")
    assert ba.labelled(sums)["label"].tolist() == sums["label"].tolist()
    ba.write_table(sums, tmp_path / "x.csv")
    read = pd.read_csv(tmp_path / "x.csv", keep_default_na=False, dtype=str)
    assert read["label"].tolist() == [x.replace("…", "..") for x in sums["label"]]
    expected = ba.totals(table, by=["asset_id", "party_id"], freq="1D")
    alice = sums[sums["label"] == "Alice"].drop(columns="label").reset_index(drop=True)
    other = expected[expected["party_id"] == SOME[0]].drop(columns=["party_id", "label"])
    pd.testing.assert_frame_equal(alice, other.reset_index(drop=True))


def test_the_text_of_a_table_fits_a_terminal_and_has_names_and_balances():
    shown = repr(NAMED.balances)
    rows = shown[shown.index("symbol") :].splitlines()
    assert max(map(len, rows)) <= 100
    held = NAMED["balance"].astype("str").tolist()
    assert [row.split()[-1] for row in rows[1:]] == [*held[:5], *held[-5:]]
    assert "tUSD" in shown
    assert "<table" in NAMED.balances._repr_html_()
    assert "Alice" in repr(NAMED[NAMED["party_id"] == SOME[0]].balances)


def test_the_text_of_a_table_has_its_rows_accounts_and_known_intervals():
    table = ba.to_table(PLAIN.head(3), known=[DAYS])
    assets = {PLAIN["asset_id"].iloc[0]: {"symbol": "<b>", "decimals": 0}}
    table.attrs["balance_analysis"]["assets"] = assets
    said = repr(table.balances)
    assert said.startswith("3 balance changes of ")
    assert f"known: {DAYS[0]}T00:00Z to {DAYS[1]}T00:00Z" in said
    assert "<b>" in said
    assert "&lt;b&gt;" in table.balances._repr_html_()
    empty = ba.to_table(pd.DataFrame(columns=[*PLAIN]))
    assert "assets: none\nknown: not stated" in repr(empty.balances)
    with pytest.raises(AttributeError, match=r"without the columns \['balance'\]"):
        _ = table.drop(columns="balance").balances


def test_a_difference_of_tables_with_names_has_them_in_its_rows(tmp_path):
    plain, named = (ba.to_table(x.tail(), known=[DAYS]) for x in (PLAIN, NAMED))
    changed = plain.copy()
    changed.loc[4, "balance"] += 1
    assert "symbol" not in ba.diff(plain, changed).rows
    assert "label" in ba.diff(plain, ba.labelled(changed, labels={PARTY: "Alice"})).rows
    ba.write_parquet(named, tmp_path / "x.parquet")
    for one in (named, tmp_path / "x.parquet"):
        rows = ba.diff(one, changed).rows
        assert [*rows][:3] == ["symbol", "label", "asset_id"]
        assert rows["symbol"].tolist() == [SYMBOLS[rows["asset_id"].iloc[0]]]
