import contextlib
import json
import re

import msgspec
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.node.decode import decode_page
from tests.columns import ARROW_SCHEMA
from tests.damage import damaged
from tests.loopback import V71_LIMITS, Fault, LoopbackNode
from tests.node.asking import NOWHERE, client_to
from tests.node.truth import lines_of_table
from tests.segments.writer import NUMBERS

TIME = 1_680_307_200_000_000_000
GOOD = {
    "assetId": "a" * 64,
    "accountType": "ACCOUNT_TYPE_GENERAL",
    "partyId": "b" * 64,
    "marketId": "",
    "timestamp": str(TIME),
    "balance": "12345",
}
INFO = {"startCursor": "S", "endCursor": "E", "hasNextPage": True, "hasPreviousPage": False}


def page_of(*nodes, **info):
    """Return the body of a page of these rows."""
    edges = [{"node": node, "cursor": "C"} for node in nodes]
    return json.dumps({"balances": {"edges": edges, "pageInfo": {**INFO, **info}}}).encode()


def raw_page(node):
    """Return the body of a page with one row, given as JSON text."""
    return page_of("ROW").replace(b'"ROW"', node)


def row(**changes):
    """Return a good row with some fields changed; `...` leaves a field out."""
    return {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}


FIRST, LAST = 1_420_070_400 * 10**9, 4_102_444_800 * 10**9
LARGEST = 10**38 - 1

texts = st.text(max_size=12)
names = st.text(min_size=1, max_size=12)
good_rows = st.builds(
    row,
    assetId=names,
    accountType=names | st.integers(0, 40) | st.integers(-(2**63), 2**64 - 1),
    partyId=texts,
    marketId=texts,
    timestamp=st.integers(FIRST // 1000, LAST // 1000 - 1).map(lambda us: us * 1000)
    | st.integers(FIRST // 1000, LAST // 1000 - 1).map(lambda us: str(us * 1000)),
    balance=st.integers(-LARGEST, LARGEST).map(str),
    newField=texts,
)
plain = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'))
plain_ids = st.sampled_from(["a" * 64, "b" * 64, "VOTE"]) | plain
plain_values = {
    "balance": st.integers(-LARGEST, LARGEST).map(str),
    "timestamp": st.integers(0, 9).map(lambda us: str(TIME + 1000 * us)),
}
alike_rows = st.permutations(sorted(GOOD)).flatmap(
    lambda names: st.lists(
        st.fixed_dictionaries({name: plain_values.get(name, plain_ids) for name in names}),
        min_size=2,
        max_size=8,
    )
)
odd_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(
        ["1e5", " 5", "", "0x10", "+5", "٣", "5\n", "1.0", "-", "9" * 39, "1" * 78, "9" * 19]
    )
    | st.lists(texts, max_size=2)
)
edges = st.sampled_from([FIRST, LAST]).flatmap(lambda at: st.integers(at - 3000, at + 3000))
odd_rows = odd_values | st.builds(
    lambda name, value, base: row(**{**base, name: value}),
    st.sampled_from(sorted(GOOD)),
    odd_values | edges.map(str) | st.just(...),
    good_rows,
)


TYPES = {number: f"ACCOUNT_TYPE_{name}" for name, number in NUMBERS.items()}


def is_good(node):
    """Return whether a row keeps each rule of the table."""
    if not isinstance(node, dict) or not set(GOOD) <= set(node):
        return False
    if not all(isinstance(node[name], str) for name in ("assetId", "partyId", "marketId")):
        return False
    if "" in (node["assetId"], node["accountType"]):
        return False
    for name in ("accountType", "timestamp"):
        if isinstance(node[name], bool) or not isinstance(node[name], str | int):
            return False
    if not isinstance(node["balance"], str):
        return False
    time = str(node["timestamp"])
    if not re.fullmatch("[0-9]{19}", time) or int(time) % 1000 or not FIRST <= int(time) < LAST:
        return False
    return re.fullmatch("-?[0-9]{1,38}", node["balance"]) is not None


def as_line(node):
    kind = TYPES.get(node["accountType"], str(node["accountType"]))
    ids = node["assetId"], kind, node["partyId"], node["marketId"]
    return (*ids, int(node["timestamp"]) // 1000, int(node["balance"]))


def assert_valid(page):
    assert page.rows.schema.equals(ARROW_SCHEMA)
    page.rows.validate(full=True)
    assert all(column.null_count == 0 for column in page.rows.columns)
    assert len(page.times) + len(page.bad_rows) >= page.rows.num_rows
    for line in lines_of_table(page.rows.to_pandas()):
        assert FIRST <= line[4] * 1000 < LAST
        assert -LARGEST <= line[5] <= LARGEST


@given(alike_rows | st.lists(good_rows, max_size=8) | st.lists(good_rows | odd_rows, max_size=6))
@example([row(assetId="a\0b"), row(assetId="\0", partyId="", marketId="\0")])
@example([row(assetId='"balance":', partyId='\\"balance": 1,'), row(extra=['{"node": 1}', "::"])])
def test_a_page_splits_into_good_rows_and_bad_rows_as_the_rules_say(nodes):
    page = decode_page(page_of(*nodes))
    assert_valid(page)
    info = page.info
    assert (info.start_cursor, info.end_cursor) == ("S", "E")
    assert (info.has_next_page, info.has_previous_page) == (True, False)
    good = [as_line(node) for node in nodes if is_good(node)]
    assert lines_of_table(page.rows.to_pandas()) == good
    bad = [json.loads(bad.raw) for bad in page.bad_rows]
    assert bad == [node for node in nodes if not is_good(node)]
    assert all(bad.reason and bad.reason != "None" for bad in page.bad_rows)
    assert bad or page.times.tolist() == [line[4] for line in good]


PAGE_BODY = page_of(row(), row(balance="-7"), row(partyId="\u00e9", extra=[{"a": 1.5}]))


@given(st.binary() | damaged(PAGE_BODY))
@example(b"")
@example(b"\xff")
@example(b"null")
@example(raw_page(json.dumps(row()).encode().replace(b"aaa", b"\\ud800", 1)))
@example(raw_page(b"[" * 100_000))
@example(raw_page(b'{"timestamp": ' + b"[" * 100_000))
@example(raw_page(json.dumps(row()).encode().replace(b'"12345"', b"9" * 100_000)))
def test_any_bytes_are_a_page_or_a_decoder_error(body):
    with contextlib.suppress(ba.DecodeError, msgspec.DecodeError):
        assert_valid(decode_page(body))


ALIKE_BODY = page_of(row(), row(balance="-7", marketId="m"), row(partyId="network"))


def with_changes(*pairs):
    """Return a page of rows that look alike, with some bytes replaced from the end on."""
    body = ALIKE_BODY
    for old, new in pairs:
        assert old in body
        body = new.join(body.rsplit(old, 1))
    return body


@given(damaged(ALIKE_BODY))
@example(with_changes((b"assetId", b"PARTYID"), (b"partyId", b"assetId"), (b"PARTYID", b"partyId")))
@example(with_changes((b"marketId", b"X"), (b"partyId", b"marketId"), (b"X", b"partyId")))
@example(with_changes((b"assetId", b"partyId")))
@example(ALIKE_BODY.replace(b"marketId", b"partyId"))
@example(ALIKE_BODY.replace(b'"cursor"', b'"node"'))
@example(ALIKE_BODY.replace(b'"node"', b'"cursor"'))
@example(with_changes((b'"network"', b'"a\\"b"')))
@example(with_changes((b'"network"', b'"\\u0041"')))
@example(with_changes((b'"network"', b'"\n"')))
@example(with_changes((b'"network"', b'"\xc3\xa9"')))
@example(with_changes((b'"network"', b'"\xff"')))
@example(with_changes((b"}, {", b"}; {")))
@example(with_changes((b"}, {", b"}, 1, {")))
@example(with_changes((b'"C"}]', b'"C"}, 1]')))
@example(with_changes((b'"C"}]', b'"C"}x]')))
@example(ALIKE_BODY.replace(b'[{"node"', b'[1, {"node"', 1))
@example(ALIKE_BODY.replace(b', "cursor"', b'; "cursor"'))
@example(ALIKE_BODY.replace(b'"E"', b'"E]"'))
@example(ALIKE_BODY.replace(b'"S"', b'"[S"').replace(b'"E"', b"[]"))
@example(ALIKE_BODY[: ALIKE_BODY.rindex(b"]") + 1])
@example(ALIKE_BODY[ALIKE_BODY.index(b"[") :])
@example(
    b'{"balances": {"pageInfo": %s, "edges": [' % json.dumps(INFO).encode()
    + ALIKE_BODY.partition(b"[")[2].rpartition(b"]")[0]
    + b"]}}"
)
def test_a_damaged_page_is_refused_or_has_the_rows_of_its_json(body):
    with contextlib.suppress(ba.DecodeError, msgspec.DecodeError):
        page = decode_page(body)
        nodes = [edge["node"] for edge in json.loads(body)["balances"]["edges"]]
        good = [as_line(node) for node in nodes if is_good(node)]
        assert lines_of_table(page.rows.to_pandas()) == good


AT = TIME // 1000
NO_TIME = "not in nanoseconds between 2015 and 2100"


@pytest.mark.parametrize(
    ("change", "reason", "time"),
    [
        ({"balance": "9" * 39}, "at most 38 digits", AT),
        ({"balance": "1e5"}, "'1e5' is not an integer", AT),
        ({"balance": None}, "Expected `str`, got `null`.*balance", AT),
        ({"balance": 5}, "Expected `str`, got `int`.*balance", AT),
        ({"balance": ...}, "missing required field `balance`", AT),
        ({"partyId": ..., "timestamp": TIME}, "missing required field `partyId`", AT),
        ({"accountType": None}, "accountType", AT),
        ({"assetId": ""}, "length >= 1.*assetId", AT),
        ({"timestamp": str(TIME // 1000)}, NO_TIME, None),
        ({"timestamp": str(TIME + 1)}, "not a whole number of microseconds", None),
        ({"timestamp": str(FIRST - 1000)}, NO_TIME, None),
        ({"timestamp": str(2**63)}, NO_TIME, None),
        ({"timestamp": "2023-04-01T00:00:00Z"}, NO_TIME, None),
        ({"timestamp": None}, "Expected `int | str`, got `null`|timestamp", None),
        ({"timestamp": ...}, "missing required field `timestamp`", None),
    ],
)
def test_a_bad_row_has_its_reason_and_its_time_if_readable(change, reason, time):
    bad_row = row(**change)
    page = decode_page(page_of(GOOD, bad_row, GOOD))
    assert page.rows.num_rows == 2
    (bad,) = page.bad_rows
    assert re.search(reason, bad.reason)
    assert json.loads(bad.raw) == bad_row
    assert bad.time == time
    assert page.times.tolist() == [AT, *([] if time is None else [time]), AT]


NO_PAGES = [
    None,
    {"edges": None, "pageInfo": {}},
    {"edges": []},
    {"edges": [], "pageInfo": {"hasNextPage": "yes"}},
    {"edges": [{}], "pageInfo": {}},
]
OTHERS = [{}, [], None, "text", {"limits": {}}, *({"balances": each} for each in NO_PAGES)]


@pytest.mark.parametrize("value", OTHERS)
def test_json_of_another_shape_is_a_decode_error_that_says_so(value):
    with pytest.raises(ba.DecodeError, match="not a page of balance changes"):
        decode_page(json.dumps(value).encode())


def limits_of(**changes):
    fields = {name: value for name, value in {**V71_LIMITS, **changes}.items() if value is not ...}
    return limits_in(json.dumps({"limits": fields}).encode())


def limits_in(body, status=200):
    """Return the network limits of a node that answers so."""
    node = LoopbackNode(faults=lambda *_: Fault.answer(status, body))
    with client_to(node) as client:
        return ba.load_network_limits(client)


FLAGS = [name for name, value in V71_LIMITS.items() if isinstance(value, bool)]
NO_FLAGS = (1, "true", None, ...)
NO_DATES = (5, None, True, [], {}, ..., "1e5", " 5", "x", "9" * 30, "-1", "now", "today", "NaT")


@pytest.mark.parametrize("name", FLAGS)
def test_each_limit_is_in_its_own_field(name):
    limits = limits_of(**{**dict.fromkeys(FLAGS, False), name: True})
    snake = re.sub("([A-Z])", lambda letter: "_" + letter[1].lower(), name)
    assert [key for key in limits.__slots__ if getattr(limits, key) is True] == [snake]


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("1640995200000000001", "2022-01-01T00:00:00.000000001Z"),
        ("2022-01-01T02:00:00+02:00", "2022-01-01T00:00Z"),
    ],
)
def test_a_date_keeps_its_nanoseconds_and_may_be_iso_8601(date, moment):
    limits = limits_of(proposeAssetEnabledFrom=date)
    assert limits.propose_asset_enabled_from == pd.Timestamp(moment)


def test_limits_have_their_source_and_the_time_of_the_request():
    before = pd.Timestamp.now("UTC")
    with client_to(LoopbackNode(block_height=12)) as client:
        limits = ba.load_network_limits(client)
    assert before <= limits.fetched_at <= pd.Timestamp.now("UTC")
    assert (limits.source, limits.block_height) == (NOWHERE, 12)


def test_fields_that_the_interface_does_not_list_are_kept():
    assert limits_of(canUseAmm=[1, None]).extra == {"canUseAmm": [1, None]}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in V71_LIMITS for value in (NO_FLAGS if name in FLAGS else NO_DATES)],
)
def test_a_malformed_flag_or_date_is_a_decode_error_that_names_it(name, value):
    with pytest.raises(ba.DecodeError, match=name):
        limits_of(**{name: value})


@pytest.mark.parametrize("value", [{}, [], None, {"limits": []}, {"limits": None}])
def test_another_shape_of_limits_is_a_decode_error(value):
    with pytest.raises(ba.DecodeError, match="not the network limits"):
        limits_in(json.dumps(value).encode())


ISO = {"proposeAssetEnabledFrom": "2022-01-01T00:00:00Z", "more": [1, {"a": None}]}
LIMITS_BODY = json.dumps({"limits": {**V71_LIMITS, **ISO}}).encode()


@given(body=damaged(LIMITS_BODY))
@example(body=LIMITS_BODY.replace(b'"1640995200000000000"', b'"' + b"9" * 5000 + b'"'))
@example(body=LIMITS_BODY.replace(b"2022-01", b"0001-01"))
@example(body=LIMITS_BODY.replace(b"00:00Z", b"00:00+99:99"))
@example(body=LIMITS_BODY.replace(b"[1,", b"[" * 100_000 + b"1,"))
@example(body=LIMITS_BODY.replace(b"[1,", b"[" + b"9" * 100_000 + b","))
def test_damaged_limits_are_read_or_named(body):
    with contextlib.suppress(ba.DecodeError, ba.RequestError):
        limits_in(body)


@given(body=damaged(b'{"code": 3, "message": "it", "details": [{"inner": "more"}]}'))
@example(body=b'{"details": ' + b"[" * 100_000)
@example(body=b'{"code": "x"}')
@example(body=b'{"details": [1]}')
@example(body=b'{"message": null}')
@example(body=b'{"code": ' + b"9" * 100_000 + b"}")
def test_a_damaged_error_body_causes_no_other_error(body):
    with pytest.raises(ba.RequestError, match="answered 400"):
        limits_in(body, 400)
