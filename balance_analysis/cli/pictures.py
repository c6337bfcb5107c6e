"""Commands that make something to look at: a picture, or a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from typer import Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import command
from balance_analysis.cli.output import Messages
from balance_analysis.files.atomic import check_output, replacing
from balance_analysis.text import count_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.archives import Archive

PictureKind = Literal["balances", "totals", "flows", "drawdown", "activity", "coverage", "limits"]
_OF_ONE_ASSET: Final = {"balances", "totals", "flows", "drawdown"}
_OF_ARCHIVES: Final = {"coverage", "limits"}
_WITH_FREQ: Final = {"totals", "flows"}
_WITH_BY: Final = {"balances", "drawdown", "totals"}

_UNDATED: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""No date, so that equal pictures have equal bytes."""


@command()
def plot(
    messages: Messages,
    selection: options.Selection,
    output: Annotated[Path, options.output_option("The picture to write: .png, .svg or .pdf.")],
    kind: Annotated[PictureKind, Option(help="What to show.")] = "balances",
    freq: Annotated[
        options.Text, Option(help="Period of flows or totals, such as 1h, 1D, MS.")
    ] = None,
    by: options.By = None,
) -> None:
    """Draw a picture of a file or an archive.

    The command chooses what the options leave open, and says what it chose.
    """
    check_output(output, inputs=[selection.file], suffixes=(".png", ".svg", ".pdf"))
    if freq is not None and kind not in _WITH_FREQ:
        raise ValueError(f"--kind {kind} has no periods; leave out --freq")
    if by is not None and kind not in _WITH_BY:
        raise ValueError(f"--kind {kind} is not by {by}; leave out --by")
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    form = output.suffix[1:].lower()
    with plt.rc_context({"svg.hashsalt": "balance_analysis"}):
        axes = _plot(kind, selection, freq, by, messages)
        figure: Any = axes.get_figure(root=True)
        with replacing(output) as temporary:
            figure.savefig(temporary, format=form, dpi=150, metadata=_UNDATED.get(form))
        plt.close(figure)
    messages.say(f"Wrote {output}")


def _plot(
    kind: PictureKind,
    selection: options.Selection,
    freq: str | None,
    by: str | None,
    messages: Messages,
) -> Axes:
    bounds: dict[str, Any] = selection.bounds
    if kind in _OF_ARCHIVES:
        if any(selection.filters().values()):
            raise ValueError(
                f"--kind {kind} covers all accounts; leave out the options that select some"
            )
        if kind == "coverage" and any(bounds.values()):
            raise ValueError("--kind coverage shows all time; leave out --since and --until")
        archive = options.archive_at(selection.file)
        if kind == "coverage":
            return ba.plot_coverage(archive)
        return ba.plot_limits(archive, **bounds)
    source = selection.open(messages)
    if kind in _OF_ONE_ASSET:
        source = _of_one_asset(source, bounds, messages)
    how = bounds | ({"freq": freq} if freq else {})
    if by is not None:
        how["by"] = [*dict.fromkeys(["asset_id", options.BY[by]])]
    if kind == "drawdown" and by is None:
        source = _of_one_account(source, bounds, messages)
    axes: Axes = getattr(ba, f"plot_{kind}")(source, **how)
    return axes


def _of_one_asset(
    source: Archive | pd.DataFrame, bounds: dict[str, Any], messages: Messages
) -> Archive | pd.DataFrame:
    """Return a source narrowed to the asset that has most rows in the interval."""
    from balance_analysis.names import names_of, rank_assets

    counts = ba.summarize_accounts(source, **bounds, columns=["rows"])
    rows = counts.groupby("asset_id", observed=True)["rows"].sum()
    if len(rows) <= 1:
        return source
    asset = rank_assets({str(name): int(count) for name, count in rows.items()})[0]
    names = names_of(counts)
    name = names.shown("asset_id", [asset])[asset] if asset in names.assets else asset
    said = f"Showing asset {name}, which has {count_text(int(rows[asset]), 'row')}"
    messages.say(f"{said}; choose another with --asset-id")
    return _select(source, asset_id=f"id:{asset}")


def _of_one_account(
    source: Archive | pd.DataFrame, bounds: dict[str, Any], messages: Messages
) -> Archive | pd.DataFrame:
    """Return a source narrowed to the account that held most in the interval."""
    accounts = ba.summarize_accounts(source, **bounds, columns=["maximum"])
    if len(accounts) <= 1:
        return source
    place = int(accounts["maximum"].fillna(-1).map(int).argmax())
    messages.say(
        f"Showing account {ba.account_labels(accounts).iloc[place]}, which held the most; choose "
        "another with --party-id, --market-id and --account-type"
    )
    how = {**bounds, "opening": True, "partial": True}
    table = source.read(**how) if isinstance(source, ba.Archive) else source
    key = accounts.iloc[place][ba.ACCOUNT_KEY].tolist()
    return table[(table[ba.ACCOUNT_KEY].astype("str") == key).all(axis=1)]


def _select(source: Archive | pd.DataFrame, **filters: Any) -> Archive | pd.DataFrame:  # noqa: ANN401
    return (
        source.select(**filters)
        if isinstance(source, ba.Archive)
        else source.balances.select(**filters)
    )


@command()
def report(
    messages: Messages,
    file: options.Source,
    output: Annotated[Path, options.output_option("The .html page to write.")],
    since: options.Since = None,
    until: options.UntilLast = None,
    largest: Annotated[
        int, Option(min=0, help="Accounts per asset whose history the page has.")
    ] = 20,
    party_id: Annotated[
        options.Texts, options.id_option("party", "Show this party first; repeatable.")
    ] = None,
    assets: options.AssetsFile = None,
    labels: options.LabelsFile = None,
) -> None:
    """Write an HTML page to explore a file or an archive.

    The page says how complete the data is, and needs no network.
    """
    check_output(output, inputs=[file, assets, labels], suffixes=(".html", ".htm"))
    names: dict[str, Any] = {"assets": assets, "labels": labels}
    selection = options.Selection(file=file, since=since, until=until, partial=True, **names)
    source, how = selection.open(messages), {**selection.bounds, **names}
    if party_id:
        chosen = _select(source, party_ids=party_id)
        how["accounts"] = ba.summarize_accounts(chosen, columns=["rows"])[ba.ACCOUNT_KEY]
    ba.write_report(source, output, largest=largest, **how)
    messages.say(f"Wrote {output}")
