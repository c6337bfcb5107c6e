"""Commands that make something to look at: a picture, or a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from typer import Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import command
from balance_analysis.cli.output import Messages
from balance_analysis.cli.selection import Selection
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import check_output, replacing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.analysis.history import History


_OfOneAsset = Literal["balances", "totals", "flows", "drawdown"]
_OfArchives = Literal["coverage", "limits"]
PictureKind = Literal[_OfOneAsset, "activity", _OfArchives]
_OF_ONE_ASSET: Final = {*get_args(_OfOneAsset)}
_OF_ARCHIVES: Final = {*get_args(_OfArchives)}
_WITH_FREQ: Final = {"totals", "flows"}

_OF_HOLDERS: Final = {"balances", "drawdown"}
"""Kinds that draw accounts, or others in their place."""

_FREQS: Final = {"1min": 60, "10min": 600, "1h": 3600, "1D": 86_400, "W": 604_800}
"""Periods that people know, with their seconds."""

_MOST_BARS: Final = 100
"""Three months of days, four days of hours; a period that gives more is too fine."""

_UNDATED: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""A date would give the same picture other bytes each time."""


@command()
def plot(
    messages: Messages,
    selection: Selection,
    output: Annotated[Path, options.output_option("The picture to write: .png, .svg or .pdf.")],
    kind: Annotated[PictureKind, Option(help="What to show.")] = "balances",
    freq: Annotated[
        options.Text,
        Option(help="Period of flows or totals, such as 1h, 1D, MS."),
    ] = None,
    title: Annotated[options.Text, Option(help="Title, instead of the default one.")] = None,
    by: options.By = None,
    dark: Annotated[bool, Option("--dark", help="Draw light lines on a dark background.")] = False,
) -> None:
    """Draw a picture of a file or an archive.

    The command chooses what the options leave open, and says what it chose.
    """
    check_output(output, inputs=[selection.file], suffixes=(".png", ".svg", ".pdf"))
    _check_kind(kind, freq, selection)
    if by is not None and kind not in {*_OF_HOLDERS, "totals"}:
        raise ValueError(f"--kind {kind} is not by {by}; leave out --by")
    how: dict[str, Any] = {"title": title}
    import matplotlib.pyplot as plt

    from balance_analysis.analysis.totals import merged

    plt.switch_backend("Agg")
    form = output.suffix[1:].lower()
    style: Any = {**(ba.DARK_STYLE if dark else {}), "svg.hashsalt": "balance_analysis"}
    with plt.rc_context(style):
        if kind in _OF_ARCHIVES:
            axes = _plot_archive(kind, selection, title)
        else:
            history = selection.read(messages, into=output)
            if kind in _OF_ONE_ASSET:
                history = _one_asset(history, selection, messages)
            if kind in _OF_HOLDERS:
                history = merged(history, options.columns_of(by))
            axes = _plot_history(kind, history, freq, how, selection, messages, by)
        figure: Any = axes.get_figure(root=True)
        with replacing(output) as temporary:
            figure.savefig(temporary, format=form, dpi=150, metadata=_UNDATED.get(form))
        plt.close(figure)
    messages.say(f"Wrote {output}")


def _check_kind(kind: PictureKind, freq: str | None, selection: Selection) -> None:
    """Raise before any work if an option or the source doesn't go with a kind."""
    if freq is not None and kind not in _WITH_FREQ:
        raise ValueError(f"--kind {kind} has no periods; leave out --freq")
    if kind in _OF_ARCHIVES and selection.filters.allowed():
        raise ValueError(
            f"--kind {kind} covers all accounts; leave out the options that select some"
        )
    if kind in _OF_ARCHIVES and not selection.is_archive:
        raise ArchiveError(f"{selection.name} is a file; only an archive has {kind} over time")


def _plot_archive(kind: PictureKind, selection: Selection, title: str | None) -> Axes:
    """Draw what only an archive has, as far as it lies in the interval."""
    archive, bounds = ba.Archive(selection.file), selection.bounds
    if kind == "coverage":
        coverage = _clip(archive.coverage(), "start", "end", **bounds)
        return ba.plot_coverage(coverage, title=title)
    limits = _clip(archive.limits(), "first_seen", "last_seen", **bounds)
    return ba.plot_limits(limits, **bounds, title=title)


def _clip(frame: pd.DataFrame, begin: str, stop: str, *, start: Any, end: Any) -> pd.DataFrame:  # noqa: ANN401 - moments
    if start is not None:
        frame = frame[frame[stop] >= start]
        frame = frame.assign(**{begin: frame[begin].clip(lower=start)})
    if end is not None:
        frame = frame[frame[begin] < end]
        frame = frame.assign(**{stop: frame[stop].clip(upper=end)})
    return frame


def _plot_history(
    kind: PictureKind,
    history: History,
    freq: str | None,
    how: dict[str, Any],
    selection: Selection,
    messages: Messages,
    by: str | None,
) -> Axes:
    bounds = selection.bounds
    how = {**how, **bounds}
    if kind == "drawdown":
        history = _one_account(history, bounds, messages)
    if kind == "flows" and freq is None:
        freq = _fitting_freq(history, bounds, messages)
    if kind in _WITH_FREQ:
        how["freq"] = freq
    if by is not None and kind == "totals":
        how["by"] = [*dict.fromkeys(["asset_id", options.BY[by]])]
    axes: Axes = getattr(ba, f"plot_{kind}")(history, **how)
    return axes


def _one_asset(history: History, selection: Selection, messages: Messages) -> History:
    """Return the history of the asset that has most rows in the interval, or else most accounts."""
    from balance_analysis.names import rank_assets

    assets = history.accounts["asset_id"].astype("str")
    if assets.nunique() <= 1:
        return history
    times, (start, end) = history.rows["timestamp"], selection.bounds.values()
    is_inside = (times >= (start or times.min())) & (times < end if end else True)
    counted, what = history.rows["asset_id"][is_inside], "rows"
    if counted.empty:
        counted, what = assets, "accounts"
    asset = rank_assets(counted.astype("str").value_counts().to_dict())[0]
    name = selection.asset_name(asset)
    messages.say(f"Showing asset {name}, which has the most {what}; choose another with --asset-id")
    return history.select((assets == asset).to_numpy())


def _one_account(history: History, bounds: dict[str, Any], messages: Messages) -> History:
    """Return the history of the account that held most in the interval."""
    accounts = ba.summarize_accounts(history, **bounds, columns=["maximum"])
    if len(accounts) <= 1:
        return history
    place = int(accounts["maximum"].fillna(-1).map(int).argmax())
    label = ba.account_labels(accounts).iloc[place]
    messages.say(
        f"Showing account {label}, which held the most; choose another with --party-id, "
        "--market-id and --account-type"
    )
    is_it = (history.accounts.astype("str") == accounts.iloc[place][[*history.accounts]]).all(
        axis=1
    )
    return history.select(is_it.to_numpy())


def _fitting_freq(history: History, bounds: dict[str, Any], messages: Messages) -> str:
    """Return a period of which not too many bars fill the interval."""
    from balance_analysis.figures.times import period_name

    _, grid = history.over(**bounds)
    seconds = (grid.edges[-1] - grid.edges[0]) / 1_000_000 if len(grid) else 0
    fitting = (freq for freq, length in _FREQS.items() if seconds <= length * _MOST_BARS)
    freq = next(fitting, "MS")
    messages.say(f"Showing one bar per {period_name(freq)} (--freq {freq})")
    return freq


@command()
def report(
    messages: Messages,
    file: options.Source,
    output: Annotated[Path, options.output_option("The .html page to write.")],
    since: options.Since = None,
    until: options.UntilLast = None,
    largest: Annotated[
        int | None, Option(min=0, help="Most accounts per asset; by default as many as fit 5 MB.")
    ] = None,
    party_id: Annotated[
        options.Texts, options.id_option("party", "Show this party first; repeatable.")
    ] = None,
    assets: options.AssetsFile = None,
    labels: options.LabelsFile = None,
) -> None:
    """Write an HTML page to explore a file or an archive.

    The page says how complete the data is, and needs no network.
    """
    names: dict[str, Any] = {"assets": assets, "labels": labels}
    selection = Selection(file=file, since=since, until=until, party_id=party_id, **names)
    check_output(output, inputs=[file, assets, labels], suffixes=(".html", ".htm"))
    ba.write_report(
        selection.whole(),
        output,
        **selection.bounds,
        accounts=selection.accounts() if party_id else (),
        largest=largest,
        **selection.names.keywords(),
    )
    messages.say(f"Wrote {output}")
