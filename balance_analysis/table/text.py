"""Show values as text in messages and reports, as tables in a notebook, and as JSON.

HTML tables use the notebook's colours and fonts. Their text may come from anyone; only this module
escapes it.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, Final

from balance_analysis.table.moments import Interval, Span, moment_text, range_text, to_utc

_USER: Final = re.compile(r"(?<=://)[^/\s?#]*@")
_PARAMETER: Final = re.compile(
    r"(?<=[?&])([^=&\s]*(?:secret|token|password|credential|signature|key)[^=&\s]*)=[^&\s\"']*",
    re.IGNORECASE,
)
LONG_ID: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_UNITS: Final = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))

_CELL: Final = (
    "text-align: left; vertical-align: top; padding: 0.2em 1em 0.2em 0; overflow-wrap: anywhere; "
    "white-space: pre-line"
)


def count_text(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> count_text(1, "new row"), count_text(63_381, "new row")
    ('1 new row', '63,381 new rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def list_text(texts: Sequence[str], most: int = 3, sep: str = ", ") -> str:
    """Return the first few texts, and the number of others.

    Examples
    --------
    >>> list_text(["a", "b", "c", "d"], 2)
    'a, b, and 2 more'
    """
    more = len(texts) - most
    return sep.join([*texts[:most], *[f"and {more} more"] * (more > 0)])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the known words that a word resembles in any case; may be empty.

    Examples
    --------
    >>> did_you_mean("alise", ["Alice", "Bob"]), did_you_mean("x", ["Alice"])
    ('did you mean Alice?', '')
    """
    by_case = {text.casefold(): text for text in known}
    near = difflib.get_close_matches(word.casefold(), by_case, cutoff=0.5)
    return f"did you mean {' or '.join(by_case[text] for text in near)}?" if near else ""


def spans_text(spans: Sequence[Span | Interval]) -> str:
    """Return spans as readable text: the first few, and the number of others."""
    return list_text([range_text(*span) for span in spans])


def duration_text(length: dt.timedelta) -> str:
    """Return a length of time in words, rounded to its two largest units.

    Examples
    --------
    >>> duration_text(dt.timedelta(hours=25, seconds=3)), duration_text(dt.timedelta(seconds=1))
    ('1 day 1 hour', '1 second')
    """
    seconds, parts = length.total_seconds(), []
    if seconds < 1:
        return "less than a second"
    for (_, larger), (_, smaller) in pairwise(_UNITS):
        rounded = round(seconds / smaller) * smaller
        if rounded >= larger:
            seconds = rounded
            break
    for unit, size in _UNITS:
        count, seconds = divmod(int(seconds), size)
        parts += [count_text(count, unit)] * (count > 0)
    return " ".join(parts)


def decimal_text(number: Decimal) -> str:
    """Return a number with all of its digits, without an exponent or trailing zeros.

    Examples
    --------
    >>> decimal_text(Decimal("0E-18")), decimal_text(Decimal("-1.50"))
    ('0', '-1.5')
    """
    whole, _, decimals = f"{number:f}".partition(".")
    return f"{whole}.{decimals}".rstrip("0").rstrip(".") if decimals else whole


def printable(text: str) -> str:
    r"""Return a text with its control and other unprintable characters escaped.

    Texts and ids come from nodes. Escaped JSON keeps its meaning.

    Examples
    --------
    >>> print(printable("a\u001bb"))
    a\u001bb
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"  # noqa: PLR2004


def truncated(text: str, most: int) -> str:
    """Return a text, cut to at most `most` characters.

    Examples
    --------
    >>> truncated("abcd", 4), truncated("abcde", 4)
    ('abcd', 'abc…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return a unique short form of each id.

    Parameters
    ----------
    ids
        Ids of parties, markets or assets; they may repeat.

    Returns
    -------
    dict
        {id: short form}; no two ids have the same. Long ids keep their first six and last four
        characters, or more if two of them would look the same. Short ids, such as `network` or
        `VOTE`, stay whole.

    Examples
    --------
    >>> short_ids(["c2071f9874933829eb432b1af0d776b5", "network"])
    {'c2071f9874933829eb432b1af0d776b5': 'c2071f…76b5', 'network': 'network'}
    """
    distinct, extra = dict.fromkeys(ids), 0
    while len({*(forms := {x: short_id(x, extra) for x in distinct}).values()}) < len(forms):
        extra += 2
    return forms


def short_id(full: str, extra: int = 0) -> str:
    """Return a long id's first six and last four characters, and `extra` more of both."""
    head, tail = 6 + extra, 4 + extra
    return full if len(full) <= head + 1 + tail else f"{full[:head]}…{full[-tail:]}"


def type_label(account_type: str) -> str:
    """Return an account type as words.

    Examples
    --------
    >>> type_label("ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES"), type_label("77")
    ('reward maker paid fees', '77')
    """
    return account_type.removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()


def without_credentials(text: str) -> str:
    """Return text with `***` in place of credentials in URLs and of parameters that look secret.

    Examples
    --------
    >>> without_credentials("https://me:secret@node.example.org/x")
    'https://***@node.example.org/x'
    """
    return _PARAMETER.sub(r"\1=***", _USER.sub("***@", text))


@dataclass(frozen=True, slots=True)
class EmbeddedPage:
    """An HTML page, shown in a notebook in a sandboxed iframe."""

    html: str

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" width="100%" height="900" '
            f'style="border: 0" srcdoc="{_to_html(self.html)}"></iframe>'
        )


class Record:
    """Base of records that are shown as text and HTML and written as JSON.

    A record has a title and either facts (names with values) or findings: rows with the columns of
    `_header`; the first column is the place, the second the finding. Its JSON has its fields and
    the properties listed in `_also`.
    """

    __slots__ = ()
    _header: ClassVar[Sequence[str]] = ()
    _also: ClassVar[Sequence[str]] = ()

    def _title(self) -> str:
        raise NotImplementedError

    def _facts(self) -> Iterable[tuple[str, object]]:
        return ()

    def _findings(self) -> Iterable[Sequence[object]]:
        return ()

    def _content(self) -> dict[str, Any]:
        names = (*self._also, *(each.name for each in fields(self)))  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> str:
        """Return the record as JSON; moments are ISO 8601 in UTC, unknown values `null`."""
        return json.dumps(self._content(), indent=2, default=_json_of)

    def __str__(self) -> str:
        if facts := list(self._facts()):
            width = max(len(name) for name, _ in facts)
            lines = [f"{name:{width}}  {plain(value)}" for name, value in facts]
            return "\n".join(line.replace("\n", r"\n") for line in lines)
        lines = [self._title()]
        for where, what, *more in self._findings():
            lines += [f"{where}: {what}", *(f"    {text}" for text in more if text)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if facts := list(self._facts()):
            return html_table(self._title(), facts)
        return html_table(self._title(), self._findings(), self._header)


def _json_of(value: Any) -> object:  # noqa: ANN401 - any type
    if isinstance(value, Record):
        return value._content()  # noqa: SLF001 - this module's class
    return to_utc(value).isoformat() if isinstance(value, dt.datetime) else asdict(value)


def html_table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Return rows as an HTML table with a title, or the title alone without rows.

    Parameters
    ----------
    title
        The table's title.
    rows
        Text, numbers, moments, booleans, or `None` if not set. Line breaks in text are kept.
    header
        The names of the columns.
    """
    body = "".join(_row("td", row) for row in rows)
    if not body:
        return f"<p><b>{_to_html(title)}</b></p>"
    caption = f'<caption style="{_CELL}; font-weight: bold">{_to_html(title)}</caption>'
    head = _row("th", header) if header else ""
    return f"<table>{caption}<tbody>{head}{body}</tbody></table>"


def plain(value: object) -> str:
    """Return a value as readable text, with moments in UTC.

    Examples
    --------
    >>> plain(True), plain(None), plain(63_381), plain(dt.datetime(2023, 4, 1, tzinfo=dt.UTC))
    ('yes', 'not set', '63,381', '2023-04-01T00:00Z')
    """
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return moment_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _to_html(text: str) -> str:
    import html  # noqa: PLC0415 - its table of entities takes a tenth of the command line's start

    return html.escape(text)


def _row(tag: str, values: Iterable[object]) -> str:
    cells = (f'<{tag} style="{_CELL}">{_to_html(plain(value))}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"
