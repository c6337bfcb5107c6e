"""What there is in segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from balance_analysis.files.atomic import PathLike
from balance_analysis.presentation import Record
from balance_analysis.segments.chain import Stretch, gaps_text, missing_blocks, put_in_order
from balance_analysis.segments.rows import read_accounts, read_blocks
from balance_analysis.segments.segment import find_segments
from balance_analysis.segments.state import read_segment_assets, read_segment_limits
from balance_analysis.text import count_text, list_text, moment_text


@dataclass(frozen=True, slots=True)
class SegmentsReport(Record):
    """What segments hold. As text it is for the terminal.

    Attributes
    ----------
    chain
        The network's chain id.
    segments
        How many there are.
    stretches
        Blocks that follow each other: the first and the last height, and their times in UTC.
    missing
        The heights that are in none, between the stretches: the first and the last of each gap.
    is_from_first
        Whether they begin with the network's first block, before which there was nothing.
    accounts, assets, limits
        As of the last block: how many accounts, which assets by symbol, and how many changes of the
        network's limits.
    """

    chain: str
    segments: int
    stretches: tuple[tuple[int, int, str, str], ...]
    missing: tuple[tuple[int, int], ...]
    is_from_first: bool
    accounts: int
    assets: tuple[str, ...]
    limits: int

    def _title(self) -> str:
        return f"{count_text(self.segments, 'segment')} of {self.chain}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "chain", f"{self.chain}, {count_text(self.segments, 'segment')}"
        for first, last, begin, end in self.stretches:
            yield "blocks", f"{first:,} to {last:,}, {begin} to {end}"
        yield "missing", gaps_text([*self.missing]) or "none in between"
        before = "nothing: they begin with the first block" if self.is_from_first else "unknown"
        yield "before", before
        assets = f"{count_text(len(self.assets), 'asset')} ({list_text(self.assets, 5)})"
        yield (
            "at last",
            (
                f"{count_text(self.accounts, 'account')}, {assets}, "
                f"{count_text(self.limits, 'change')} of the network's limits"
            ),
        )
        yield "ids", "The content ids of segments (Qm...) are not checked."


def diagnose_segments(paths: PathLike | Iterable[PathLike]) -> SegmentsReport:
    """Tell what network history segments hold, and what is missing, without reading their rows.

    Parameters
    ----------
    paths
        As for `read_segments`.

    Raises
    ------
    DecodeError, IncompleteError, NetworkMismatchError, CheckError, FileNotFoundError
        As `read_segments`; what is wrong with rows is found where these are read.
    """
    stretches = put_in_order(find_segments(paths))
    last = stretches[-1].segments[-1]
    assets = read_segment_assets(last)
    return SegmentsReport(
        last.chain,
        sum(len(stretch.segments) for stretch in stretches),
        tuple(_bounds(stretch) for stretch in stretches),
        tuple(missing_blocks(stretches)),
        stretches[0].is_from_first,
        len(read_accounts(last).places),
        tuple(assets.labels(assets).values()),
        len(read_segment_limits(last, stretches[-1].source)),
    )


def _bounds(stretch: Stretch) -> tuple[int, int, str, str]:
    first, last = (read_blocks(stretch.segments[place]) for place in (0, -1))
    begin = int(first.times[first.since])
    return stretch.first, stretch.last, moment_text(begin), moment_text(int(last.times[-1]))
