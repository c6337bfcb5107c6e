"""Read the parameters of a request for balance changes, and refuse invalid ones.

An unknown name in a known group is refused rather than ignored: if a misspelt filter were ignored,
the answer would have unwanted rows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException

from balance_analysis.service.listing import Place, decode_cursor
from balance_analysis.table.filters import Filters
from balance_analysis.table.schema import ACCOUNT_TYPES, NETWORK_PARTY, TYPES_BY_NUMBER
from balance_analysis.table.text import LONG_ID

DEFAULT_PAGE_SIZE: Final = 1000
MAX_PAGE_SIZE: Final = 5000

_NAMES: Final = (
    *(f"filter.{name}" for name in ("assetId", "partyIds", "marketIds", "accountTypes")),
    *(f"pagination.{name}" for name in ("first", "after", "last", "before", "newestFirst")),
    *(f"dateRange.{name}Timestamp" for name in ("start", "end")),
)
ASSET, PARTIES, MARKETS, TYPES, FIRST, AFTER, LAST, BEFORE, NEWEST_FIRST, START, END = _NAMES
_GROUP: Final = re.compile(r"(filter|pagination|dateRange|date_range)[.\[]")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""The booleans that Go's `strconv.ParseBool` accepts, since nodes are written in Go."""


@dataclass(frozen=True, slots=True)
class ChangesQuery:
    """A request's query.

    Attributes
    ----------
    filters
        The accounts; `None` if no row can match.
    start, end
        Half-open interval (in microseconds since 1970-01-01 UTC); `None` for no bound. Nanoseconds
        are rounded down, also before 1970, as in nodes' databases.
    size
        Maximum number of rows.
    backward
        Whether the page is counted backward: from the end of the list, or from the cursor.
    cursor
        The row next to the page; `None` for the list's start, or its end if `backward`.
    newest_first
        The order of the list, and of the page.
    """

    filters: Filters | None
    start: int | None = None
    end: int | None = None
    size: int = DEFAULT_PAGE_SIZE
    backward: bool = False
    cursor: Place | None = None
    newest_first: bool = True


def read_parameters(
    items: Iterable[tuple[str, str]], *, is_known_type: Callable[[str], bool]
) -> ChangesQuery:
    """Return the query of a request's parameters.

    Parameters
    ----------
    items
        Names and values in the order of the query string; lists repeat the name.
    is_known_type
        Function that returns whether the archive has an account type that `schema.ACCOUNT_TYPES`
        doesn't list.

    Raises
    ------
    HTTPException
        If a name or a value is invalid; the message names it.
    """
    values = _collect(items)
    filters = _filters(values, is_known_type)
    first, last = _integer(values, FIRST, 32), _integer(values, LAST, 32)
    after, before = _single(values, AFTER), _single(values, BEFORE)
    if after is not None and before is not None:
        raise HTTPException(400, f"{AFTER} and {BEFORE} exclude each other: send one of them")
    backward = first is None and (last is not None or before is not None)
    name, cursor = (BEFORE, before) if backward else (AFTER, after)
    return ChangesQuery(
        filters,
        _microseconds(values, START),
        _microseconds(values, END),
        _page_size(LAST, last) if backward else _page_size(FIRST, first),
        backward,
        None if cursor is None else decode_cursor(name, cursor),
        _newest_first(values),
    )


def _filters(
    values: Mapping[str, list[str]], is_known_type: Callable[[str], bool]
) -> Filters | None:
    # Nodes accept the types' numbers too.
    numbers = {str(number): name for number, name in TYPES_BY_NUMBER.items()}
    types = [numbers.get(value, value) for value in values[TYPES]]
    for name in types:
        if not name:
            raise HTTPException(400, f"{TYPES} is empty: leave it out for all account types")
        if name not in ACCOUNT_TYPES and not is_known_type(name):
            raise HTTPException(400, f"{TYPES}={name!r} is not a type like ACCOUNT_TYPE_GENERAL")
    filters = Filters(
        _single(values, ASSET) or None,
        tuple(_party(value) for value in values[PARTIES]),
        tuple(_hex_id(MARKETS, value) for value in values[MARKETS]),
        # On nodes, the default value matches no row.
        tuple(name for name in types if name != ACCOUNT_TYPES[0]),
    )
    return None if types and not filters.account_types else filters


def _collect(items: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in items:
        if name in _NAMES:
            values[name].append(value)
        elif _GROUP.match(name):
            raise HTTPException(400, f"{name!r} is not a parameter: send {', '.join(_NAMES)}")
    return values


def _single(values: Mapping[str, list[str]], name: str) -> str | None:
    texts = values[name]
    if len(texts) > 1:
        raise HTTPException(400, f"{name} takes one value, but was sent {len(texts)} times")
    return texts[0] if texts else None


def _party(value: str) -> str:
    return value if value == NETWORK_PARTY else _hex_id(PARTIES, value, f", or {NETWORK_PARTY!r}")


def _hex_id(name: str, value: str, otherwise: str = "") -> str:
    if not LONG_ID.fullmatch(value):
        raise HTTPException(400, f"{name}={value!r} is not an id: send 64 hex digits{otherwise}")
    return value.lower()


def _integer(values: Mapping[str, list[str]], name: str, bits: int) -> int | None:
    text = _single(values, name)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise HTTPException(400, f"{name}={text!r} is not an integer of {bits} bits")
    return int(text)


def _microseconds(values: Mapping[str, list[str]], name: str) -> int | None:
    nanoseconds = _integer(values, name, 64)
    return None if nanoseconds is None else nanoseconds // 1000


def _newest_first(values: Mapping[str, list[str]]) -> bool:
    text = _single(values, NEWEST_FIRST)
    if text is not None and text not in _BOOLEANS:
        raise HTTPException(400, f"{NEWEST_FIRST}={text!r} is neither 'true' nor 'false'")
    return text is None or _BOOLEANS[text]


def _page_size(name: str, size: int | None) -> int:
    if size is None:
        return DEFAULT_PAGE_SIZE
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise HTTPException(400, f"{name}={size} is not a page size: send 1 to {MAX_PAGE_SIZE}")
    return size
