"""The four filters of accounts: check a caller's values and convert them to the form that is sent.

Values that a node would misread or refuse raise here, before the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.table.names import Held, Names
from balance_analysis.table.schema import ACCOUNT_KEY, ACCOUNT_TYPES, NETWORK_PARTY, TYPE_PREFIX
from balance_analysis.table.text import LONG_ID, did_you_mean, list_text

if TYPE_CHECKING:
    import pandas as pd

_NEW_PREFIX: Final = "new:"
_ID_PREFIX: Final = "id:"

_FIELDS: Final = ("asset_id", "party_ids", "market_ids", "account_types")
_COLUMNS: Final = ("asset_id", "party_id", "market_id", "account_type")
"""The fields of `Filters`, and the columns they filter."""

IDS_PER_REQUEST: Final = 60
"""Maximum number of ids per request. An id takes about 82 characters of the URL, which stays under
8 KB even with all account types."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The accounts to ask for: AND across the fields, OR within a list; empty fields don't filter.

    `make_filters` checks and normalises a caller's values.
    """

    asset_id: str | None = None
    party_ids: tuple[str, ...] = ()
    market_ids: tuple[str, ...] = ()
    account_types: tuple[str, ...] = ()

    def __str__(self) -> str:
        allowed = self.allowed().items()
        return "; ".join(f"{name} {', '.join(ids)}" for name, ids in allowed) or "all accounts"

    def sorted(self) -> Filters:
        """Return these filters with sorted lists, so that equivalent filters compare equal."""
        lists: Any = {name: tuple(sorted({*getattr(self, name)})) for name in _FIELDS[1:]}
        return replace(self, **lists)

    def allowed(self) -> dict[str, tuple[str, ...]]:
        """Return the values to ask for, by filtered column."""
        asset_ids = () if self.asset_id is None else (self.asset_id,)
        values = asset_ids, self.party_ids, self.market_ids, self.account_types
        return {name: ids for name, ids in zip(_COLUMNS, values, strict=True) if ids}

    def selects(self, account: Sequence[str]) -> bool:
        """Whether these filters select an account, given its ids in the order of `ACCOUNT_KEY`."""
        ids = dict(zip(ACCOUNT_KEY, account, strict=True))
        return all(ids[name] in values for name, values in self.allowed().items())

    def intersection(self, other: Filters) -> Filters | None:
        """Return filters for the accounts that both select; `None` if there can't be any."""
        one, two = self.allowed(), other.allowed()
        sets = ({*one.get(x, two.get(x, ()))} & {*two.get(x, one.get(x, ()))} for x in _COLUMNS)
        asset_ids, *lists = map(tuple, map(sorted, sets))
        both = Filters(next(iter(asset_ids), None), *lists)
        return both if both.allowed().keys() == {*one, *two} else None

    def covers(self, other: Filters) -> bool:
        """Whether these filters select every account that `other` selects."""
        return self.intersection(other) == other.sorted()

    def select(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table's rows that these filters select."""
        for name, values in self.allowed().items():
            table = table[table[name].isin(values)]
        return table

    def check_held(self, held: Held) -> None:
        """Raise ValueError if no row has a selected id; the message lists ids that rows have."""
        for name, values in self.allowed().items():
            if missing := [repr(value) for value in values if value not in held[name]]:
                kind = name.removesuffix("_id").replace("_", " ")
                present = list_text(sorted(filter(None, held[name]))) or "none"
                raise ValueError(f"no row has the {kind} {list_text(missing)}; rows have {present}")

    def parts(self) -> list[Filters]:
        """Split into filters whose URLs are short enough; each account is in exactly one."""
        if len(self.party_ids) + len(self.market_ids) <= IDS_PER_REQUEST:
            return [self]
        share = IDS_PER_REQUEST // 2 if self.party_ids and self.market_ids else IDS_PER_REQUEST
        chunks = product(_chunks(self.party_ids, share), _chunks(self.market_ids, share))
        return [replace(self, party_ids=parties, market_ids=markets) for parties, markets in chunks]

    def halves(self) -> list[Filters]:
        """Return two filters that split the accounts, or an empty list if that is impossible.

        Only lists from the caller are halved: a node may have account types that this release
        doesn't know.
        """
        for name in _FIELDS[1:]:
            values = getattr(self, name)
            if middle := len(values) // 2:
                return [replace(self, **{name: ids}) for ids in (values[:middle], values[middle:])]
        return []


def _chunks(values: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    return [values[i : i + size] for i in range(0, len(values), size)] or [()]


def make_filters(
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    *,
    names: Callable[[], Names] = Names,
    held: Held | None = None,
) -> Filters:
    """Check a caller's filters and convert them to the form that is sent.

    Parameters
    ----------
    asset_id
        One asset: its id of 64 hex digits, a name such as `VOTE`, or its symbol; any other id as
        `id:ID`.
    party_ids, market_ids
        Ids of 64 hex digits, `network` for the party of accounts without one, or labels, which
        select every id that has the label. A single value may be plain text. Nodes refuse the empty
        id of accounts without a market, so it must be in `held`. Ids in `held` and ids with a name
        may be shortened if that is unambiguous: `c2071f…76b5`, also with dots, or the first four
        characters or more.
    account_types
        Names such as `ACCOUNT_TYPE_GENERAL`, `GENERAL` or `general`. Write `new:NAME` for a name
        that this release doesn't know.
    names
        Returns the names of assets, parties and markets; called only for a value that isn't a whole
        id.
    held
        The ids of a table or an archive, by column.

    Raises
    ------
    ValueError
        If an id or a name is malformed or unknown, a name may mean several assets, or a short form
        several ids.
    TypeError
        If a value is not text.
    """
    asset_ids = () if asset_id is None else _ids([asset_id], "asset_id", names, held)
    types = map(_type, _texts(account_types, "account_types"))
    return Filters(
        next(iter(asset_ids), None),
        _ids(party_ids, "party_ids", names, held),
        _ids(market_ids, "market_ids", names, held),
        tuple(dict.fromkeys(types)),
    )


def _ids(
    words: str | Iterable[str], name: str, names: Callable[[], Names], held: Held | None
) -> tuple[str, ...]:
    """Return the ids that a filter's values stand for, without repeats."""
    ids: list[str] = []
    for word in _texts(words, name):
        plain = word.removeprefix(_ID_PREFIX) if name == "asset_id" else word
        if LONG_ID.fullmatch(plain):
            ids.append(plain.lower())
        elif plain not in {word, ""} or (name == "party_ids" and word == NETWORK_PARTY):
            ids.append(plain)
        else:
            ids += names().find(word, name.removesuffix("s"), held)
    return tuple(dict.fromkeys(ids))


def _texts(values: str | Iterable[str], name: str) -> list[str]:
    is_one = isinstance(values, str) or not isinstance(values, Iterable)
    texts: list[Any] = [values] if is_one else [*values]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {text!r}")
    return texts


def _type(text: str) -> str:
    if text.startswith(_NEW_PREFIX):
        if not (new_type := text.removeprefix(_NEW_PREFIX)):
            raise ValueError(f"{text!r} needs the name of an account type after it")
        return new_type
    name = text.strip().upper().replace("-", "_").replace(" ", "_")
    name = name if name.startswith(TYPE_PREFIX) else TYPE_PREFIX + name
    if name in ACCOUNT_TYPES:
        return name
    short = [known.removeprefix(TYPE_PREFIX) for known in ACCOUNT_TYPES]
    near = did_you_mean(name.removeprefix(TYPE_PREFIX), short)
    raise ValueError(
        f"unknown account type {text!r}; {near or 'no name resembles it.'} "
        f"ba.ACCOUNT_TYPES has all {len(short)}. If the node is newer than this list, write "
        f"{_NEW_PREFIX + name!r}"
    )
