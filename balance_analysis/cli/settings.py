"""The settings of an export: from options, then the environment, then a TOML file.

Each value remembers where it comes from. What nobody reads is refused: a misspelt setting would
otherwise be as good as none.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.archive.layout import PARTITIONS
from balance_analysis.cli.times import format_duration, parse_duration
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PREFIX: Final = "BALANCE_ANALYSIS_"
TABLE: Final = "export"
DEFAULT: Final = "default"

_WORDS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value.

    Attributes
    ----------
    value
        What holds.
    origin
        Where it comes from: an option, an environment variable, a file, or "default".
    """

    value: Any
    origin: str

    def shown(self) -> str:
        """Return the value as a person writes it, without credentials."""
        value = self.value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return " ".join(map(without_credentials, value))
        if isinstance(value, dt.timedelta):
            return format_duration(value)
        return without_credentials(str(value))


def resolve(
    options: Mapping[str, object],
    *,
    environ: Mapping[str, str],
    config: Path | None = None,
    name: str | None = None,
) -> dict[str, Value]:
    """Return every setting, each from the first place that has it.

    Parameters
    ----------
    options
        What the command line says; `None` and empty lists say nothing.
    environ
        Environment variables: `BALANCE_ANALYSIS_LAG` for `lag`; lists separated by blanks.
    config, name
        A TOML file and which of its `[export.NAME]` to take; `name=None` where it has only one.

    Raises
    ------
    ValueError
        If a setting is unknown or malformed, or the file has no such table.
    OSError
        If the file can't be read.
    """
    table, where = ({}, "") if config is None else _read_table(config, name)
    variables = {
        key.removeprefix(PREFIX).lower(): value
        for key, value in environ.items()
        if key.startswith(PREFIX) and value
    }
    _refuse_unknown(variables, lambda key: f"environment: {PREFIX}{key.upper()}")
    _refuse_unknown(table, lambda key: f"{where}: {key}")
    values = {}
    for key, (parse, default) in _SETTINGS.items():
        if options.get(key) not in (None, [], ()):
            values[key] = _parsed(parse, options[key], f"option --{key.replace('_', '-')}")
        elif key in variables:
            values[key] = _parsed(parse, variables[key], f"environment {PREFIX}{key.upper()}")
        elif key in table:
            values[key] = replace(_parsed(parse, table[key], f"{where} {key}"), origin=where)
        else:
            values[key] = Value(default, DEFAULT)
    return values


def _parsed(parse: Callable[[Any], Any], value: object, origin: str) -> Value:
    try:
        return Value(parse(value), origin)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{origin}: {without_credentials(str(error))}") from error


def _read_table(config: Path, name: str | None) -> tuple[dict[str, Any], str]:
    """Return one `[export.NAME]` of a file, and how messages call it."""
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{config} is not TOML: {error}") from error
    tables = content.get(TABLE, {})
    others = [key for key in content if key != TABLE]
    if others:
        raise ValueError(f"{config}: {others[0]} is unknown; settings stand under [{TABLE}.NAME]")
    if not isinstance(tables, dict) or not tables:
        raise ValueError(f"{config} has no [{TABLE}.NAME]")
    if name is None and len(tables) == 1:
        name = next(iter(tables))
    if name is None:
        raise ValueError(f"{config} has {', '.join(tables)}: name one of them")
    if name not in tables:
        raise ValueError(f"{config} has no [{TABLE}.{name}], but {', '.join(tables)}")
    table = tables[name]
    where = f"{config} [{TABLE}.{name}]"
    if not isinstance(table, dict):
        raise ValueError(  # noqa: TRY004 - a file's content, no caller's slip
            f"{config}: settings stand under [{TABLE}.NAME], {name} is none"
        )
    return {key.replace("-", "_"): value for key, value in table.items()}, where


def _refuse_unknown(keys: Iterable[str], tell: Callable[[str], str]) -> None:
    for key in keys:
        if key not in _SETTINGS:
            near = difflib.get_close_matches(key, _SETTINGS, n=1, cutoff=0.5)
            meant = tell(near[0]).rpartition(" ")[2] if near else f"one of {', '.join(_SETTINGS)}"
            raise ValueError(f"{tell(key)} is no setting; did you mean {meant}?")


def _text(value: object) -> str:
    if isinstance(value, dt.date):  # a moment in TOML
        return value.isoformat()
    if not isinstance(value, str):
        raise TypeError(f"must be text, not {value!r}")
    return value


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list | tuple):
        raise TypeError(f"must be text or a list, not {value!r}")
    return [_text(each) for each in value]


def _switch(value: object) -> bool:
    found = _WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise TypeError(f"must be true or false, not {value!r}")
    return found


def _number(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"must be a whole number of at least 1, not {value!r}")
    return number


def _rate(value: object) -> float:
    rate = value
    if isinstance(value, str | int):
        with contextlib.suppress(ValueError):
            rate = float(value)
    if isinstance(value, bool) or not isinstance(rate, float) or not 0 < rate < float("inf"):
        raise ValueError(f"must be a number of more than 0, not {value!r}")
    return rate


def _path(value: object) -> Path:
    return Path(value if isinstance(value, Path) else _text(value)).expanduser()


def _duration(value: object) -> dt.timedelta:
    return parse_duration(value if isinstance(value, str) else repr(value))


def _one_of(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"must be {' or '.join(names)}, not {value!r}")
        return str(value)

    return parse


_SETTINGS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    "url": (_list, None),
    "archive": (_text, None),
    "since": (_text, None),
    "until": (_text, None),
    "lag": (_duration, dt.timedelta(minutes=1)),
    "overlap": (_duration, dt.timedelta(minutes=10)),
    "settle": (_duration, dt.timedelta(seconds=10)),
    "fill_gaps": (_switch, False),
    "partition": (_one_of(*PARTITIONS), None),
    "asset_id": (_text, None),
    "party_id": (_list, None),
    "market_id": (_list, None),
    "account_type": (_list, None),
    "page_size": (_number, 5000),
    "workers": (_number, 4),
    "max_requests_per_second": (_rate, None),
    "on_bad_rows": (_one_of("quarantine", "raise"), "quarantine"),
    "scheduler": (_text, None),
    "metrics_file": (_path, None),
    "log_format": (_one_of("text", "json"), "text"),
}
