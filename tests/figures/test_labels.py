from __future__ import annotations

import pandas as pd

from balance_analysis.figures.labels import account_labels, type_label
from balance_analysis.schema import ACCOUNT_KEY

PARTY = "c2071f9874933829eb432b1af0d776b5d49d5d4a7feefffa7d1e9642d9d5ed19"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"


def test_an_account_shows_type_party_and_market_if_it_has_one_in_the_order_of_the_rows():
    keys = [
        ("VOTE", "ACCOUNT_TYPE_ORDER_MARGIN", PARTY, MARKET),
        ("VOTE", "ACCOUNT_TYPE_GENERAL", "a", ""),
    ]
    assert account_labels(pd.DataFrame(keys, columns=list(ACCOUNT_KEY))) == [
        "order margin · c2071f…ed19 · market bda439…4f32",
        "general · a",
    ]


def test_an_account_type_without_the_prefix_stays_recognisable():
    assert type_label("77") == "77"
