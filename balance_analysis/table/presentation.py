"""Show records as text in a terminal, as a table in a notebook, and as JSON.

Tables use the notebook's colours and fonts. Text may come from anyone; this module escapes it, and
no other does.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any, ClassVar, Final

from balance_analysis.table.text import moment_text

_LEFT: Final = "text-align: left; vertical-align: top; padding: 0.2em 1em 0.2em 0"
_WRAPPED: Final = f"{_LEFT}; overflow-wrap: anywhere; white-space: pre-line"
_LINE: Final = f"{_LEFT}; white-space: nowrap"
_CUT: Final = f"{_LINE}; max-width: 8em; overflow: hidden; text-overflow: ellipsis"


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole page, shown in a notebook in a sandboxed frame."""

    html: str

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" width="100%" height="900" '
            f'style="border: 0" srcdoc="{escape(self.html)}"></iframe>'
        )


class Record:
    """Base of records that are shown as text and HTML and written as JSON.

    A record has a title and either facts (names with values) or findings: rows with the columns of
    `_header`, of which the first says where and the second what. Its JSON has its fields and the
    properties listed in `_also`.
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
            return facts_html(self._title(), facts)
        return rows_html(self._title(), self._header, self._findings())


def _json_of(value: Any) -> object:  # noqa: ANN401 - any type
    if isinstance(value, Record):
        return value._content()  # noqa: SLF001 - this module's class
    return value.isoformat() if isinstance(value, dt.datetime) else asdict(value)


def facts_html(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """Return names and values as an HTML table of two columns with a title.

    Parameters
    ----------
    title
        The table's title.
    facts
        Names with values: text, numbers, moments, booleans, or `None` if not set. Line breaks in
        text are kept.
    """
    rows = [f"{_head(name, 'row')}{_cell(value)}" for name, value in facts]
    return _table(title, rows)


def rows_html(
    title: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, cut: bool = False
) -> str:
    """Return rows as an HTML table with a title, or the title alone without rows.

    Parameters
    ----------
    title
        The table's title.
    names
        The header.
    rows
        Values as in `facts_html`, one for each name.
    cut
        Whether to keep each row on one line and cut long text. Copying the text, or pointing at it,
        gives all of it.
    """
    body = ["".join(_cell(value, cut=cut) for value in row) for row in rows]
    head = "".join(_head(name, "col") for name in names)
    return _table(title, [head, *body] if body else [])


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


def _head(name: str, scope: str) -> str:
    return f'<th scope="{scope}" style="{_LEFT}">{escape(name)}</th>'


def _cell(value: object, *, cut: bool = False) -> str:
    text = escape(plain(value))
    if cut and isinstance(value, str):
        return f'<td style="{_CUT}" title="{text}">{text}</td>'
    if cut:
        return f'<td style="{_LINE}">{text}</td>'
    return f'<td style="{_WRAPPED}">{text}</td>'


def _table(title: str, rows: Iterable[str]) -> str:
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    if not lines:
        return f"<p><b>{escape(title)}</b></p>"
    caption = f'<caption style="{_LEFT}; font-weight: bold">{escape(title)}</caption>'
    return f"<table>{caption}<tbody>{lines}</tbody></table>"
