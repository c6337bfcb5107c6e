"""Names in place of ids: as the columns `symbol` and `label`, as headers, and wherever one looks.

What is computed with, or written to a file of rows, has whole ids; the view alone hasn't.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from balance_analysis.assets import AssetsLike
from balance_analysis.errors import check_type
from balance_analysis.labels import LabelsLike, names_of, note_names, short_keys, told_of
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.text import clipped, count_text

_WIDTH: Final = 80
_WIDEST: Final = 24
"""Characters of a narrow view, and of a label in it."""


class _AnyFrame(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pd.DataFrame)


class DataFrame(pd.DataFrame, metaclass=_AnyFrame):
    """A frame that shows its ids short; what pandas makes of it is one as well.

    Only the view is another: a frame of pandas counts as one, so that `assert_frame_equal` finds
    the two equal.
    """

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame

    def __repr__(self) -> str:
        text = super().__repr__()
        is_cut = {"...", "\\"} & {*text.partition("\n")[0].split()}
        return to_text(self) if is_cut else text

    def _repr_html_(self) -> str:
        return to_html(self)


def check_frame(table: pd.DataFrame) -> None:
    """Raise TypeError, which says how to get a table, unless it is a frame."""
    hint = "the table comes first; ba.load_balance_changes, ba.read_parquet, Archive.read give one"
    check_type(table, pd.DataFrame, "a table as a pandas DataFrame", hint)


def labelled(
    data: pd.DataFrame, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Return a frame with what its assets, and its accounts, are called in front.

    Parameters
    ----------
    data
        A table, or any result with columns of `ACCOUNT_KEY`.
    assets, labels
        The names, as `read_assets` and `read_labels` take them; by default those that the attrs of
        `data` tell. The attrs of the result tell them.

    Returns
    -------
    pandas.DataFrame
        A copy of `data`, with the columns `symbol` (of its asset, or the id, shortened; if it has
        `asset_id`) and `label` (as `account_labels` returns it; if it has another one) before the
        others, both category of str. They replace columns of these names.

    Raises
    ------
    ValueError
        If it has none of these columns, or names are malformed. A wide series has its accounts in
        its header: see `account_labels`, or take the long layout.

    Examples
    --------
    >>> import pandas as pd
    >>> held = pd.DataFrame({"asset_id": "VOTE", "party_id": ["a1", "b2"], "balance": [5, 7]})
    >>> labelled(held, labels={"a1": "Alice"})
      symbol  label asset_id party_id  balance
    0   VOTE  Alice     VOTE       a1        5
    1   VOTE     b2     VOTE       b2        7
    """
    check_frame(data)
    names = names_of(data, assets, labels)
    told, places = told_of(data, names)
    made = ["symbol"] if "symbol" in told else []
    made += ["label"] if {*told} & {*ACCOUNT_KEY[1:]} else []
    found = data.drop(columns=made, errors="ignore")
    for name in reversed(made):
        found.insert(0, name, told[name].astype("category").array.take(places))
    found.attrs[ATTRS_KEY] = note_names(found.attrs.get(ATTRS_KEY, {}), names)
    return found


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column; of holders, in the header of a wide frame, a short one."""
    levels = frame.columns.to_frame(index=False)
    short = short_keys(levels, names_of(frame)) if _is_wide(frame) else {}
    texts = levels.assign(**short).itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]


def to_text(frame: pd.DataFrame, rows: int | None = None) -> str:
    """Return a frame as text that fits the display: names, amounts, then as much as has room.

    Parameters
    ----------
    frame
        Any frame.
    rows
        How many of its rows, at most; by default as many as pandas shows.
    """
    if not {*ACCOUNT_KEY} & {*frame.columns}:
        return repr(_with_short_header(frame))
    most, some = _some_of(frame, rows)
    named = labelled(some).drop(columns=ACCOUNT_KEY, errors="ignore")
    for name, column in named.select_dtypes("datetimetz").items():
        named[name] = column.dt.floor("s").dt.tz_localize(None)
    if "label" in named:
        named["label"] = [clipped(each, _WIDEST) for each in named["label"]]
    amount, *amounts = [
        *(name for name in named if str(named[name].dtype).startswith("decimal")),
        *named,
    ]
    order = dict.fromkeys(["symbol", "label", amount, "timestamp", *amounts])
    first = [name for name in order if name in named]
    room = pd.get_option("display.width") or _WIDTH
    for count in range(len(first), 0, -1):
        kept = [name for name in named if name in first[:count]]
        text: str = named[kept].to_string(max_rows=most)
        if len(text.partition("\n")[0]) <= room:
            break
    return f"{text}\n\n[{_size(frame)}]"


def to_html(frame: pd.DataFrame, rows: int | None = None) -> str:
    """Return a frame as a notebook shows it: as `to_text` does, but with all of its columns."""
    if not {*ACCOUNT_KEY} & {*frame.columns}:
        wide: Any = _with_short_header(frame)
        return str(wide._repr_html_())
    most, some = _some_of(frame, rows)
    short = pd.DataFrame(some).assign(**short_keys(some, names_of(frame)))
    return f"{short.to_html(max_rows=most, border=0)}<p>{_size(frame)}</p>"


def _is_wide(frame: pd.DataFrame) -> bool:
    return bool({*ACCOUNT_KEY} & {*frame.columns.names})


def _with_short_header(frame: pd.DataFrame) -> pd.DataFrame:
    plain = pd.DataFrame(frame)
    return plain.set_axis(header_of(frame), axis="columns") if _is_wide(frame) else plain


def _some_of(frame: pd.DataFrame, rows: int | None) -> tuple[int, pd.DataFrame]:
    """Return how many rows are shown, and a frame of them, the first and the last."""
    most = rows or pd.get_option("display.max_rows") or len(frame)
    if len(frame) <= most:
        return most, frame
    most = min(most, pd.get_option("display.min_rows") or most)
    return most, frame.iloc[[*range(most // 2 + 1), *range(-(most // 2), 0)]]


def _size(frame: pd.DataFrame) -> str:
    return f"{count_text(len(frame), 'row')} x {count_text(frame.shape[1], 'column')}"
