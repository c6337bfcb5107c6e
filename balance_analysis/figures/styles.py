"""Colours, hatches and labels: of account types, groups of accounts, and unknown stretches.

Account types with a common purpose form a family with one hue. Within it, types differ by lightness
first, then by hatch and line style, so that neighbours can be distinguished without colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pandas as pd
from matplotlib import cbook
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like, to_hex, to_rgb, to_rgba
from matplotlib.lines import Line2D

from balance_analysis.table.display import account_labels
from balance_analysis.table.names import LabelsLike
from balance_analysis.table.schema import ACCOUNT_KEY
from balance_analysis.table.text import printable

BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
PINK: Final = "#CC79A7"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREY: Final = "#999999"
"""The palette of Okabe and Ito, safe for colour-blind people; grey replaces their faint yellow."""

COVERAGE_COLOURS: Final = {
    "confirmed": GREEN,
    "complete": BLUE,
    "unproven": ORANGE,
    "missing": VERMILION,
}
"""The colour of each state of an archive's coverage, in the order of the lanes."""

_DARK: Final = {
    "#15181d": "figure.facecolor savefig.facecolor axes.facecolor legend.facecolor",
    "#e6e8eb": "text.color axes.labelcolor axes.titlecolor xtick.labelcolor ytick.labelcolor",
    "#9aa3ad": "xtick.color ytick.color axes.edgecolor",
    "#4a525c": "grid.color",
}
"""Matplotlib's settings by colour: background, text, lines and grid."""

DARK_STYLE: Final[Mapping[str, Any]] = MappingProxyType(
    {name: colour for colour, names in _DARK.items() for name in names.split()}
)
"""Matplotlib settings for dark figures: `with matplotlib.rc_context(DARK_STYLE)`."""

_FAMILIES: Final = {
    BLUE: "GENERAL",
    ORANGE: "MARGIN, ORDER_MARGIN",
    GREEN: "BOND, LOCKED_FOR_STAKING, HOLDING",
    PINK: "INSURANCE, GLOBAL_INSURANCE, NETWORK_TREASURY",
    SKY: "FEES_LIQUIDITY, FEES_INFRASTRUCTURE, FEES_MAKER, LP_LIQUIDITY_FEES, "
    "LIQUIDITY_FEES_BONUS_DISTRIBUTION, BUY_BACK_FEES",
    VERMILION: "GLOBAL_REWARD, VESTING_REWARDS, VESTED_REWARDS, REWARD_MAKER_PAID_FEES, "
    "REWARD_MAKER_RECEIVED_FEES, REWARD_LP_RECEIVED_FEES, REWARD_MARKET_PROPOSERS, "
    "REWARD_AVERAGE_POSITION, REWARD_RELATIVE_RETURN, REWARD_RETURN_VOLATILITY, "
    "REWARD_VALIDATOR_RANKING, PENDING_FEE_REFERRAL_REWARD, REWARD_REALISED_RETURN, "
    "REWARD_AVERAGE_NOTIONAL, REWARD_ELIGIBLE_ENTITIES",
    GREY: "SETTLEMENT, PENDING_TRANSFERS, EXTERNAL, UNSPECIFIED",
}
"""The account types of each hue, in the order of the hue's variants."""

_SHADES: Final = (0.0, 0.45, -0.2)
"""Each variant's shift from the hue towards white (positive) or black; visible on either."""

_SHADES_OF_BLUE: Final = (0.0, 0.56, 0.28)
"""The same for blue: the darkest hue; a darker one wouldn't stand out on a dark background."""

_HATCHES: Final = ("", "////", "xxxx", "....", "\\\\\\\\", "++++")
_DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2, 1, 2, 1, 2)), (0, (3, 1)))


@dataclass(frozen=True, slots=True)
class Style:
    """The style of an account type or an account.

    Attributes
    ----------
    colour
        Colour of the line or area, as "#rrggbb".
    hatch
        Hatch of the area; "" for none.
    dashes
        Dashes of the line, as matplotlib's `linestyle`.
    """

    colour: str
    hatch: str
    dashes: str | tuple[int, tuple[int, ...]]


OTHERS: Final = Style(GREY, "", "-")
"""The style of all accounts without a line or area of their own."""


def _variant(hue: str, place: int) -> Style:
    """Return a hue's style number `place`: shades vary first, then hatches and line styles."""
    turn, shade = divmod(place, len(_SHADES))
    amount = (_SHADES_OF_BLUE if hue == BLUE else _SHADES)[shade]
    target = 1.0 if amount > 0 else 0.0
    red, green, blue = (part + (target - part) * abs(amount) for part in to_rgb(hue))
    return Style(to_hex((red, green, blue)), _HATCHES[turn % 6], _DASHES[turn % 6])


_PLACES: Final = {
    f"ACCOUNT_TYPE_{name}": (hue, place)
    for hue, names in _FAMILIES.items()
    for place, name in enumerate(names.split(", "))
}


def type_style(account_type: str) -> Style:
    """Return an account type's style, the same in every figure.

    Types outside `ACCOUNT_TYPES` share a grey.
    """
    return _variant(*_PLACES.get(account_type, (GREY, _FAMILIES[GREY].count(", ") + 1)))


def group_styles(groups: pd.DataFrame) -> list[Style]:
    """Return a different style for each group of accounts on one Axes.

    The first group of an account type gets the type's style. Further ones, and groups without a
    type, get hues that are still free on the Axes; once these are used up, hues repeat with other
    dashes or hatches.
    """
    types = [*groups["account_type"]] if "account_type" in groups else [None] * len(groups)
    used = {type_style(each) for each in types if each is not None}
    hues = {style.colour for style in used}
    free = (style for style in _hues(2 * len(types) + len(_HUES)) if style not in used)
    others = iter(sorted(free, key=lambda style: style.colour in hues))
    return [
        next(others) if each is None or each in types[:place] else type_style(each)
        for place, each in enumerate(types)
    ]


_HUES: Final = tuple(hue.lower() for hue in (BLUE, ORANGE, GREEN, VERMILION, SKY, PINK))
"""Hues, ordered so that neighbours differ most; grey is reserved for `OTHERS`."""


def _hues(count: int) -> list[Style]:
    """Return `count` styles that differ: each hue once, then with other hatches and dashes."""
    turns = [n // len(_HUES) % len(_HATCHES) for n in range(count)]
    return [Style(_HUES[n % len(_HUES)], _HATCHES[t], _DASHES[t]) for n, t in enumerate(turns)]


def group_labels(groups: pd.DataFrame, labels: LabelsLike | None = None) -> list[str]:
    """Return a label for each group of accounts, from its ids and its other columns."""
    own = groups.drop(columns=ACCOUNT_KEY, errors="ignore").astype("str")
    own = own.fillna({name: f"no {name}" for name in own})
    if own.shape[1] + 1 < groups.shape[1] or own.empty:
        own.insert(0, "", account_labels(groups, labels=labels))
    return [" · ".join(map(drawable, map(str, texts))) for texts in own.itertuples(index=False)]


def split_labels(accounts: pd.DataFrame, labels: LabelsLike | None = None) -> tuple[str, list[str]]:
    """Return a common label for accounts, and each account's distinguishing label.

    Examples
    --------
    >>> import pandas as pd
    >>> split_labels(pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_MARGIN", "party_id": "a1",
    ...     "market_id": ["m1", "m2"],
    ... }))
    ('2 margin accounts of a1', ['market m1', 'market m2'])
    """
    if len(accounts) == 1 or {*accounts} != {*ACCOUNT_KEY}:
        texts = group_labels(accounts, labels)
        what = "parties" if [*accounts] == ["asset_id", "party_id"] else "holders"
        return texts[0] if len(texts) == 1 else f"{len(texts):,} {what}", texts
    differ = [name for name in ACCOUNT_KEY[1:] if accounts[name].nunique() > 1]
    kind, party, market = (
        words.format(account_labels(accounts[[name]], labels=labels).iloc[0])
        if name not in differ and accounts[name].iloc[0]
        else ""
        for name, words in zip(ACCOUNT_KEY[1:], ("{} ", " of {}", " in {}"), strict=True)
    )
    texts = [*map(drawable, account_labels(accounts[differ], labels=labels))]
    return f"{len(accounts):,} {kind}accounts{party}{market}", texts


def drawable(label: str) -> str:
    """Return a label that matplotlib draws: it would omit one that begins with an underscore."""
    label = printable(label)
    return f" {label}" if label.startswith("_") else label


def spread(
    style: Mapping[str, Any], count: int, kind: type[Artist] = Line2D
) -> list[dict[str, Any]]:
    """Return a style's arguments for each of `count` artists; `color` may be a list.

    Parameters
    ----------
    style
        The caller's arguments, under any name that matplotlib accepts.
    kind
        The class of the artists; if it isn't a line, `color` fills its face.
    """
    wanted = cbook.normalize_kwargs(dict(style), kind)
    colour = wanted.pop("color", None)
    if colour is None:
        return [wanted] * count
    colours = [colour] if is_color_like(colour) else list(colour)
    name = "color" if kind is Line2D else "facecolor"
    return [{**wanted, name: colours[place % len(colours)]} for place in range(count)]


def ink(ax: Axes) -> Any:  # noqa: ANN401 - a colour as matplotlib has them
    """Return the colour of an Axes' labels, which stands out on its background."""
    return ax.xaxis.label.get_color()


def unknown_style(ax: Axes) -> dict[str, Any]:
    """Return the options and the label of a stretch in which nothing is known."""
    hatched = {"facecolor": "none", "edgecolor": to_rgba(ink(ax), 0.35), "hatch": "////"}
    return {**hatched, "linewidth": 0.8, "zorder": 0.5, "label": "unknown"}


def incomplete_style(ax: Axes) -> dict[str, Any]:
    """Return the options and the label of a stretch in which rows may be missing.

    It covers what is drawn there.
    """
    paper, edge = to_rgba(ax.get_facecolor(), 0.6), to_rgba(ink(ax), 0.4)
    hatched = {"facecolor": paper, "edgecolor": edge, "hatch": "\\\\\\\\"}
    return {**hatched, "linewidth": 0.8, "zorder": 2.5, "label": "rows may be missing"}
