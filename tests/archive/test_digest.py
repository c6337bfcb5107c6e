"""Archives of the same history have the same digest, and no others."""

import hashlib
import json
from itertools import groupby, pairwise
from operator import attrgetter

from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import DAY, END, HOUR, ROWS, START, edit_manifest, node_of, run_export
from tests.cli.running import fails, run
from tests.moments import moment_text
from tests.segments.writer import write_segments

TIMES = sorted({row.time for row in ROWS})
ASSETS = sorted({row.asset_id for row in ROWS})
PLACE = attrgetter("party_id", "asset_id", "account_type", "market_id")
MOMENTS = st.sampled_from([at + shift for at in (START, END, *TIMES) for shift in (-1, 0, 1, HOUR)])


def naive(rows, complete, unproven=(), **filters):
    """Return the digest of a history, as the docstring defines it, row by row."""
    covered = [*complete, *unproven]
    held = sorted(
        (row.time // DAY, *PLACE(row), row.time, int(row.balance))
        for row in rows
        if any(a <= row.time < b for a, b in covered)
    )
    head = {"complete": complete, "filters": filters, "unproven": [*unproven], "version": 2}
    content = json.dumps(head, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    for _, some in groupby(held, key=lambda row: row[0]):
        digest = hashlib.sha256()
        for _, party, asset, kind, market, at, balance in some:
            ids = [each.encode() for each in (asset, kind, party, market)]
            account = b"".join(len(each).to_bytes(4, "little") + each for each in ids)
            digest.update(hashlib.sha256(account).digest() + at.to_bytes(8, "little"))
            digest.update(balance.to_bytes(16, "little", signed=True))
        content += digest.digest()
    return hashlib.sha256(content).hexdigest()


@settings(max_examples=8)
@given(
    partition=st.sampled_from(["day", "month", "hour"]),
    cuts=st.lists(st.integers(TIMES[20], END - 1), max_size=2, unique=True).map(sorted),
    bounds=st.none() | st.tuples(MOMENTS, MOMENTS).filter(lambda x: x[0] < x[1]),
    asset=st.none() | st.sampled_from(ASSETS),
    forgotten=st.sampled_from([0, 0, 7, 19]),
)
def test_a_digest_depends_only_on_rows_and_intervals_not_on_how_they_were_exported(
    *, tmp_path_factory, partition, cuts, bounds, asset, forgotten
):
    made, first = tmp_path_factory.mktemp("digest"), TIMES[forgotten]
    held = [row for row in ROWS if row.time >= first]
    own = [row for row in held if asset in {None, row.asset_id}]
    node = node_of(held)
    for start, end in pairwise([START, *cuts, END]):
        how = {"partition": partition, "overlap": "0s", "asset_id": asset}
        run_export(node, made, start=start, end=end, **how)
    start, end = bounds or (START, END)
    between = {} if bounds is None else {"start": moment_text(start), "end": moment_text(end)}
    spans = [(START, first), (first, END)]
    cut_out = [[max(start, since), min(end, until)] for since, until in spans]
    unproven, complete = ([span] if span[0] < span[1] else [] for span in cut_out)

    digested = ba.Archive(made).digest(**between)

    filters = {} if asset is None else {"asset_id": [asset]}
    assert digested.digest == naive(own, complete, unproven, **filters)
    assert digested.rows == sum(start <= row.time < end for row in own)


def test_an_archive_from_segments_has_the_digest_of_one_from_a_node(node, tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    ba.import_segments(tmp_path / "imported", tmp_path / "segments")
    run_export(node, tmp_path / "exported", start=TIMES[0], end=TIMES[-1] + 1)
    digests = {ba.Archive(tmp_path / name).digest().digest for name in ("imported", "exported")}
    assert digests == {naive(ROWS, [[TIMES[0], TIMES[-1] + 1]])}


def test_digests_of_limits_and_assets_dont_depend_on_when_they_were_fetched(node, whole, tmp_path):
    assets = {ROWS[0].asset_id: {"symbol": "A", "decimals": 5}}
    for name, other in (("a", node), ("b", node_of(ROWS, limits=None))):
        run_export(other, tmp_path / name, start=START, end=END, assets=assets)
    bare, one, other = (ba.Archive(x).digest() for x in (whole, tmp_path / "a", tmp_path / "b"))
    assert bare.digest == one.digest == other.digest
    assert bare.limits == one.limits != other.limits
    assert bare.assets != one.assets == other.assets


def test_a_copy_is_proven_by_the_digest_that_was_printed(whole):
    since, until = "2023-04-29", "2023-05-02T06:30Z"
    asked = "digest", whole, "--since", since, "--until", until
    printed = json.loads(run(*asked, "--format=json").stdout)
    assert printed["digest"] == ba.Archive(whole).digest(start=since, end=until).digest
    assert printed["digest"] in run(*asked).stdout


def test_a_digest_shows_unproven_time_and_a_damaged_file_has_none(folder):
    digest = ba.Archive(folder).digest().digest
    edit_manifest(folder, lambda content: content["evidence"]["answers"][0].update(reached=False))
    assert ba.Archive(folder).digest().digest == naive(ROWS, [], [[START, END]]) != digest
    assert f"unproven  {moment_text(START)} to " in str(ba.Archive(folder).digest())

    damaged = next(folder.glob("changes/*/changes.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert "verify" in fails("digest", folder, code=5, folder=folder)
