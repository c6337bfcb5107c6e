"""What an answer may lack is said in a few plain words, and only then."""

from __future__ import annotations

import json

import pytest

from balance_analysis.service.changes import Changes
from balance_analysis.service.errors import RefusedError
from tests.moments import to_microseconds
from tests.service.archives import Stretch, write_archive
from tests.service.rows import block_of

APRIL, MAY, JUNE, JULY = (to_microseconds(f"2023-{month:02}-01") for month in range(4, 8))
PARTY = block_of(1)[0].party_id


def asked(start=None, end=None, **others):
    bounds = {"startTimestamp": start, "endTimestamp": end}
    given = {f"dateRange.{name}": moment for name, moment in bounds.items() if moment is not None}
    return [(name, str(moment * 1000)) for name, moment in given.items()] + list(others.items())


@pytest.fixture
def warned(tmp_path):
    """The warning of an answer about some stretches, which the strict service refuses as well."""

    def ask(stretches, items):
        archive = write_archive(tmp_path / "archive", block_of(3), stretches=stretches)
        lax, strict = Changes(archive), Changes(archive, strict_coverage=True)
        answer = lax.answer(items)
        warning = answer.headers.get("Warning")
        assert json.loads(answer.body)["balances"]
        if warning is None:
            assert strict.answer(items).body == answer.body
        else:
            with pytest.raises(RefusedError) as refused:
                strict.answer(items)
            assert (refused.value.status, refused.value.code) == (416, 11)
            assert warning.removeprefix('199 - "').removesuffix('"') in str(refused.value)
        return warning

    return ask


WHOLE = (Stretch(APRIL, JULY),)
GAP = (Stretch(APRIL, MAY), Stretch(JUNE, JULY))


@pytest.mark.parametrize(
    ("stretches", "items", "warning"),
    [
        (WHOLE, asked(), None),
        (WHOLE, asked(MAY), None),
        (WHOLE, asked(None, JUNE), None),
        (WHOLE, asked(JULY, APRIL - 1), None),
        (GAP, asked(JUNE), None),
        (
            WHOLE,
            asked(APRIL - 2),
            "not covered: 2023-03-31T23:59:59.999998Z to 2023-04-01T00:00:00Z",
        ),
        (WHOLE, asked(APRIL - 1), None),
        (GAP, asked(JUNE - 1, JULY), None),
        (
            GAP,
            asked(MAY, MAY + 1),
            "not covered: 2023-05-01T00:00:00Z to 2023-05-01T00:00:00.000001Z",
        ),
        ((Stretch(APRIL, MAY, proven=False), Stretch(MAY, JULY)), asked(MAY - 1), None),
        (
            WHOLE,
            asked(None, JULY + 1),
            "not covered: 2023-07-01T00:00:00Z to 2023-07-01T00:00:00.000001Z",
        ),
        (WHOLE, asked(JULY), "not covered: from 2023-07-01T00:00:00Z on"),
        (WHOLE, asked(None, APRIL), "not covered: before 2023-04-01T00:00:00Z"),
        (GAP, asked(), "not covered: 2023-05-01T00:00:00Z to 2023-06-01T00:00:00Z"),
        ((), asked(), "nothing is covered yet"),
        ((Stretch(APRIL, MAY, proven=False), Stretch(MAY, JULY)), asked(MAY, JULY), None),
        (
            (Stretch(APRIL, MAY, proven=False), Stretch(MAY, JULY)),
            asked(),
            "not known to be complete: 2023-04-01T00:00:00Z to 2023-05-01T00:00:00Z",
        ),
        (
            (Stretch(APRIL, MAY, proven=False), Stretch(JUNE, JULY)),
            asked(APRIL - 9, JULY + 1),
            (
                "not covered: 2023-03-31T23:59:59.999991Z to 2023-04-01T00:00:00Z; "
                "not covered: 2023-05-01T00:00:00Z to 2023-06-01T00:00:00Z; "
                "not covered: 2023-07-01T00:00:00Z to 2023-07-01T00:00:00.000001Z; and 1 more"
            ),
        ),
    ],
)
def test_what_may_be_missing_is_named(warned, stretches, items, warning):
    assert warned(stretches, items) == (warning and f'199 - "{warning}"')


def test_the_extremes_of_int64_are_named_too(warned):
    names = ("dateRange.startTimestamp", "dateRange.endTimestamp")
    bounds = [(name, str(value)) for name, value in zip(names, (-(2**63), 2**63 - 1), strict=True)]
    warning = warned(WHOLE, bounds)
    assert "1677-09-21" in warning
    assert "2262-04-11" in warning


@pytest.mark.parametrize(
    ("items", "lacks"),
    [
        (asked(), True),
        ([("filter.partyIds", "network")], True),
        ([("filter.partyIds", PARTY), ("filter.partyIds", "network")], True),
        ([("filter.partyIds", PARTY)], False),
        ([("filter.partyIds", PARTY.upper())], False),
    ],
)
def test_accounts_that_the_archive_is_not_bound_to_are_missing(tmp_path, items, lacks):
    bound = (("party_ids", (PARTY,)),)
    archive = write_archive(tmp_path / "archive", block_of(1), stretches=WHOLE, bound=bound)
    warning = Changes(archive).answer(items).headers.get("Warning", "")
    assert ("only accounts of some values of party_id are held" in warning) == lacks


@pytest.mark.parametrize(
    ("stretches", "items", "spans"),
    [
        (WHOLE, asked(APRIL - 1, JULY), []),
        (WHOLE, asked(APRIL - 2, JULY + 1), [(APRIL - 2, APRIL), (JULY, JULY + 1)]),
        (GAP, asked(), [(MAY, JUNE)]),
        ((), asked(MAY, JUNE), [(MAY, JUNE)]),
        (WHOLE, asked(JULY), []),
        ([Stretch(2 * n, 2 * n + 1) for n in range(99)], asked(), [(1, 196)]),
    ],
)
def test_a_program_is_told_every_stretch(tmp_path, stretches, items, spans):
    archive = write_archive(tmp_path / "archive", (), stretches=stretches)
    said = Changes(archive).answer(items).headers.get("X-Incomplete", "")
    assert said == ", ".join(f"{start * 1000}-{end * 1000}" for start, end in spans)
