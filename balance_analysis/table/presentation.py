"""Show records as text in a terminal, as a table in a notebook, and as JSON.

Tables take colours and fonts from the notebook. Text may come from anybody: it is escaped here, and
nowhere else.
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
    """A whole page, shown in a notebook in a frame of its own, from where it reaches nothing."""

    html: str

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" width="100%" height="900" '
            f'style="border: 0" srcdoc="{escape(self.html)}"></iframe>'
        )


class Record:
    """A record's text, HTML and JSON, from one description of it.

    A record has a title and either facts, which are names with values, or findings: rows under
    the names of `_header`; the first value says where and the second what. JSON has its fields, and
    the properties that `_also` names.
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
        """Return it as JSON; moments are ISO 8601 in UTC, `null` where not known."""
        return json.dumps(self._content(), indent=2, default=_json_of)

    def __str__(self) -> str:
        if facts := list(self._facts()):
            width = max(len(name) for name, _ in facts)
            lines = [f"{name:{width}}  {plain(value)}" for name, value in facts]
            return "\n".join(line.replace("\n", r"\n") for line in lines)
        lines = [self._title()]
        for where, what, *more in self._findings():
            lines += [f"{where}: {what}", *(f"    {each}" for each in more if each)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if facts := list(self._facts()):
            return facts_html(self._title(), facts)
        return rows_html(self._title(), self._header, self._findings())


def _json_of(value: Any) -> object:  # noqa: ANN401 - of many kinds
    if isinstance(value, Record):
        return value._content()  # noqa: SLF001 - a record's own
    return value.isoformat() if isinstance(value, dt.datetime) else asdict(value)


def facts_html(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """Return names and values as a table of two columns under a title.

    Parameters
    ----------
    title
        What it is.
    facts
        Names with values: text, numbers, moments, yes or no, `None` for what is not set. A line
        break in text stays one.
    """
    rows = [f"{_head(name, 'row')}{_cell(value)}" for name, value in facts]
    return _table(title, rows)


def rows_html(
    title: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, cut: bool = False
) -> str:
    """Return rows as a table under a title; of no rows the title alone.

    Parameters
    ----------
    title
        What they are.
    names
        The header.
    rows
        Values as of `facts_html`, one for each name.
    cut
        Whether each row takes one line, and long text shows its beginning. Copying it, or pointing
        at it, gives the whole.
    """
    body = ["".join(_cell(value, cut=cut) for value in row) for row in rows]
    head = "".join(_head(name, "col") for name in names)
    return _table(title, [head, *body] if body else [])


def plain(value: object) -> str:
    """Return a value as a person writes it, moments in UTC.

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
