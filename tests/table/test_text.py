from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba

PARTY = "c2071f9874933829eb432b1af0d776b5d49d5d4a7feefffa7d1e9642d9d5ed19"
LIKE_IT = PARTY[:8] + "0" * 46 + PARTY[-10:]


def short_forms(ids):
    """Return what tables show in place of the ids of parties."""
    return ba.account_labels(pd.DataFrame({"party_id": ids}, dtype="str")).tolist()


# Few letters and the ellipsis itself, so that ends collide.
@given(st.lists(st.text("ab…", min_size=1, max_size=20), max_size=30))
def test_short_forms_differ_keep_both_ends_and_are_never_longer(ids):
    forms = short_forms(ids)
    assert len({*forms}) == len({*ids})
    for full, form in zip(ids, forms, strict=True):
        assert len(form) <= len(full)
        assert form == full or (full.startswith(form[:6]) and full.endswith(form[-4:]))


@pytest.mark.parametrize(
    ("ids", "forms"),
    [
        ([PARTY], ["c2071f…ed19"]),
        *(([whole, PARTY], [whole, "c2071f…ed19"]) for whole in ("network", "VOTE", "eleven char")),
        ([PARTY, LIKE_IT], ["c2071f9874…d9d5ed19", "c2071f9800…d9d5ed19"]),
    ],
)
def test_a_short_form_has_six_and_four_characters_or_as_many_as_it_needs(ids, forms):
    assert short_forms(ids) == forms
