"""What a node holds and sends: how far back, which rows, fields, types and limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.node.doctor.asking import is_refusal
from balance_analysis.node.doctor.page import DAY, row_key
from balance_analysis.node.doctor.wording import counted, duration, listed, moment, some
from balance_analysis.node.limits import network_limits
from balance_analysis.node.query import Filters
from balance_analysis.schema import ACCOUNT_TYPES, FIELD_NAMES, from_microseconds

if TYPE_CHECKING:
    from balance_analysis.node.doctor.asking import Asker
    from balance_analysis.node.doctor.report import Said
    from balance_analysis.node.doctor.seen import Seen
    from balance_analysis.node.doctor.stretch import Stretch

_NOT_FOUND: Final = 404
_SHORT_HISTORY_DAYS: Final = 31


def judge_oldest_row(seen: Seen) -> Said:
    """Tell how far back its rows go."""
    if not seen.newest().edges:
        text = "It holds no balance change since 2020: nothing happened, or nothing was kept."
        return None, "note", text
    oldest = min(seen.oldest().times, default=None)
    if oldest is None:
        raise IncompleteError("the oldest rows have no time that can be read")
    days = (max(seen.row_page().times) - oldest) / DAY
    before = f"{duration(days * 86_400)} before the newest" if days else "as is the newest"
    said = f"The oldest row is of {moment(oldest)}, {before}"
    value = from_microseconds(oldest).isoformat()
    if days <= _SHORT_HISTORY_DAYS:
        text = f"{said}: the node may have pruned what was before, which looks like no changes."
        return value, "note", text
    return value, "ok", f"{said}."


def judge_rows(seen: Seen) -> Said:
    """Tell whether the rows that came can be loaded, and are in order."""
    seen.newest()
    pages = seen.asker.pages
    count, bad = sum(page.edges for page in pages), [why for page in pages for why in page.bad]
    value = {"rows": count, "bad": len(bad), "out_of_order": seen.asker.out_of_order}
    if bad:
        text = f"Of {count:,} rows that were sent, {len(bad):,} can't be loaded: {bad[0]}."
        return value, "warning", text
    if seen.asker.out_of_order:
        text = "Rows came out of order: what was left out can't be told, so loads fail and say so."
        return value, "warning", text
    if not count:
        raise IncompleteError("the node sent no row to tell by")
    text = f"Every row sent ({count:,}) is as the interface describes, and they are in order."
    return value, "ok", text


def judge_filters(seen: Seen) -> Said:
    """Tell which filters leave exactly the rows that they should."""
    stretch = seen.stretch()
    value: dict[str, str] = {}
    for name, wire in _FILTERED.items():
        values = Counter(str(node.get(wire) or "") for node in stretch.page.nodes)
        texts = [text for text in values if text and not text.isdecimal()]
        if texts and len(values) > 1:
            value[name] = _try_filter(seen.asker, stretch, name, texts[0])
    if not value:
        raise IncompleteError("the rows that were looked at have nothing to tell them apart by")
    names = [name.replace("_", " ") for name in value]
    wrong = [f"{name.replace('_', ' ')} {how}" for name, how in value.items() if how != "honoured"]
    if wrong:
        text = f"Not every filter works: {', '.join(wrong)}; load without it and select afterwards."
        return value, "warning", text
    return value, "ok", f"Filters by {listed(names)} leave exactly the rows that they should."


_FILTERED: Final = {
    "asset_id": "assetId",
    "party_ids": "partyId",
    "market_ids": "marketId",
    "account_types": "accountType",
}


def _try_filter(asker: Asker, stretch: Stretch, name: str, text: str) -> str:
    filters = Filters(**{name: text if name == "asset_id" else (text,)})  # type: ignore[arg-type]
    try:
        page = asker.page(stretch.start, stretch.end, first=asker.size, filters=filters)
    except RequestError as error:
        if not is_refusal(error):
            raise
        return "refused"
    if any(node.get(_FILTERED[name]) != text for node in page.nodes):
        return "ignored"
    wanted = {row_key(node) for node in stretch.page.nodes if node.get(_FILTERED[name]) == text}
    return "honoured" if wanted <= {row_key(node) for node in page.nodes} else "too narrow"


def judge_fields(seen: Seen) -> Said:
    """Tell which fields come beyond the interface's."""
    nodes = [node for page in seen.asker.pages for node in page.nodes]
    unknown = sorted({name for node in nodes for name in node} - set(FIELD_NAMES.values()))
    try:
        in_limits = sorted(_typed_limits(seen).extra)
    except BalanceAnalysisError:
        in_limits = []
    value = {"rows": unknown, "limits": in_limits}
    said = []
    if unknown:
        said.append(f"rows have {some(unknown)}, which loads leave out")
    if in_limits:
        said.append(f"the limits have {some(in_limits)}, kept in `extra`")
    if said:
        return value, "note", f"Fields beyond the interface's: {'; '.join(said)}."
    if not nodes:
        raise IncompleteError("the node sent no row to tell by")
    return value, "ok", "Rows and limits have no fields beyond the interface's."


def judge_account_types(seen: Seen) -> Said:
    """Tell which account types come beyond this package's list."""
    seen.row_page()
    wire = FIELD_NAMES["account_type"]
    kinds = (node.get(wire) for page in seen.asker.pages for node in page.nodes)
    known = {kind for kind in kinds if isinstance(kind, str | int)}
    unknown = sorted(known - set(ACCOUNT_TYPES), key=str)
    value = {"seen": len(known), "unknown": unknown}
    if any(isinstance(kind, int) for kind in unknown):
        text = (
            f"Types beyond the list of this package: {some(unknown)}. A number is a type that the "
            "node has no name for; both stay as they come."
        )
        return value, "note", text
    if unknown:
        text = (
            f"Types beyond the list of this package: {some(unknown)}. They stay as they come; "
            "filter by `new:NAME`."
        )
        return value, "note", text
    return value, "ok", f"{counted(len(known), 'type')} came, all on this package's list."


def judge_network_limits(seen: Seen) -> Said:
    """Tell whether the network limits are there and can be read."""
    try:
        _typed_limits(seen)
    except RequestError as error:
        if error.status == _NOT_FOUND and is_refusal(error):
            text = "The network limits are not there: a node has none before its first block."
            return False, "note", text
        raise
    except BalanceAnalysisError as error:
        return False, "warning", f"The network limits can't be read: {error}."
    return True, "ok", "The network limits are there, and as the interface describes."


def _typed_limits(seen: Seen) -> Any:  # noqa: ANN401
    now = pd.Timestamp.now("UTC")
    return network_limits(seen.limits(), fetched_at=now, source="", block_height=None)
