"""The settings of an export: from options, then the environment, then a TOML file.

Each value remembers where it comes from. What nobody reads is refused: a misspelt setting would
otherwise be as good as none.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from balance_analysis.cli.options import OnBadRows, Partition, format_duration
from balance_analysis.text import to_duration, without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "BALANCE_ANALYSIS_"
TABLE: Final = "export"
DEFAULT: Final = "default"

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Rate = Annotated[float, msgspec.Meta(gt=0)]
_SETTINGS: Final[dict[str, tuple[Any, Any]]] = {
    "url": (list[str], None),
    "archive": (str, None),
    "since": (str, None),
    "until": (str, None),
    "lag": (dt.timedelta, dt.timedelta(minutes=1)),
    "overlap": (dt.timedelta, dt.timedelta(minutes=10)),
    "settle": (dt.timedelta, dt.timedelta(seconds=10)),
    "fill_gaps": (bool, False),
    "partition": (Partition, None),
    "asset_id": (str, None),
    "party_id": (list[str], None),
    "market_id": (list[str], None),
    "account_type": (list[str], None),
    "assets": (Path, None),
    "page_size": (_Count, 5000),
    "workers": (_Count, 4),
    "max_requests_per_second": (_Rate, None),
    "on_bad_rows": (OnBadRows, "quarantine"),
    "scheduler": (str, None),
    "metrics_file": (Path, None),
    "log_format": (Literal["text", "json"], "text"),
}
"""Of each setting its type and its default."""


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value, and where it comes from: an option, a variable, a file, or "default"."""

    value: Any
    origin: str

    def __str__(self) -> str:
        value = self.value
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
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
    unknown = [f"environment: {PREFIX}{key.upper()}" for key in {*variables} - {*_SETTINGS}]
    unknown += [f"{where}: {key}" for key in {*table} - {*_SETTINGS}]
    if unknown:
        raise ValueError(f"{min(unknown)} is no setting; there are {', '.join(_SETTINGS)}")
    values = {}
    for key, (kind, default) in _SETTINGS.items():
        if options.get(key) not in (None, [], ()):
            values[key] = _parsed(kind, options[key], f"option --{key.replace('_', '-')}")
        elif key in variables:
            values[key] = _parsed(kind, variables[key], f"environment {PREFIX}{key.upper()}")
        elif key in table:
            values[key] = replace(_parsed(kind, table[key], f"{where} {key}"), origin=where)
        else:
            values[key] = Value(default, DEFAULT)
    return values


def _parsed(kind: Any, value: object, origin: str) -> Value:  # noqa: ANN401 - a type
    try:
        return Value(_parse(kind, value), origin)
    except ValueError as error:
        raise ValueError(f"{origin}: {without_credentials(str(error))}") from error


def _parse(kind: Any, value: object) -> object:  # noqa: ANN401 - a type
    if kind is dt.timedelta:
        return to_duration(str(value))
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ValueError(f"must be {' or '.join(get_args(kind))}, not {value!r}")
    if kind is str and isinstance(value, list):
        raise ValueError("one value a section, not a list; make a section for each")
    if kind == list[str] and isinstance(value, str):
        return value.split()
    if isinstance(value, dt.date):  # a moment in TOML
        value = value.isoformat()
    return msgspec.convert(value, kind, strict=False, dec_hook=lambda _, v: Path(v).expanduser())


def _read_table(config: Path, name: str | None) -> tuple[dict[str, Any], str]:
    """Return one `[export.NAME]` of a file, and how messages call it."""
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{config} is not TOML: {error}") from error
    tables = content.pop(TABLE, None)
    settings = tables.values() if isinstance(tables, dict) else [None]
    if content or not all(isinstance(each, dict) for each in settings):
        raise ValueError(f"{config}: settings stand under [{TABLE}.NAME], and nowhere else")
    if name is None and len(tables) == 1:
        (name,) = tables
    if name not in tables:
        asked = "" if name is None else f" no [{TABLE}.{name}], but"
        raise ValueError(f"{config} has{asked} {', '.join(tables) or 'nothing'}: name one of them")
    table = {key.replace("-", "_"): value for key, value in tables[name].items()}
    return table, f"{config} [{TABLE}.{name}]"
