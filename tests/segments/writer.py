"""Network history segments as a data node writes them, of any history, with any fault.

A segment is made as plain values first, which a test may edit, and then written as a zip or as a
folder, in the form of PostgreSQL's `COPY ... (FORMAT csv, HEADER)`.
"""

import csv
import functools
import hashlib
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.archive.exporting import HOUR, MONTH, spread_history
from tests.loopback import Row, account_id
from tests.loopback.query import ACCOUNT_TYPES
from tests.moments import from_microseconds

START, END = MONTH - 4 * HOUR, MONTH + 16 * HOUR
ROWS = spread_history(5, start=START, end=END, rows=160, accounts=20)
"""What most tests here share: one night, in which a month begins."""

CHAIN = "vega-test-0011"
WELL_KNOWN = {
    "VOTE": "00", "network": "03", "XYZalpha": "04", "XYZbeta": "05", "XYZdelta": "06",
    "XYZepsilon": "07", "XYZgamma": "08", "fBTC": "09", "fDAI": "0a", "fEURO": "0b", "fUSDC": "0c",
}  # fmt: skip
NUMBERS = {name: n + (n >= 8) for n, name in enumerate(ACCOUNT_TYPES.split())}
"""The account types by number; 8 is unused."""

COLUMNS = {
    "currentstate/accounts": "id party_id asset_id market_id type tx_hash vega_time",
    "currentstate/assets": "id name symbol decimals quantum source erc20_contract lifetime_limit "
    "withdraw_threshold status tx_hash vega_time",
    "currentstate/network_limits": "tx_hash vega_time can_propose_market can_propose_asset "
    "propose_market_enabled propose_asset_enabled genesis_loaded propose_market_enabled_from "
    "propose_asset_enabled_from",
    "history/balances": "account_id vega_time tx_hash balance",
    "history/blocks": "vega_time height hash",
    "history/ledger": "ledger_entry_time account_from_id account_to_id quantity tx_hash vega_time "
    "transfer_time type account_from_balance account_to_balance",
}


@dataclass
class Segment:
    """One segment.

    Attributes
    ----------
    name
        The name of the zip.
    metadata
        What `metadata.json` says.
    tables
        The rows of each table as dicts of text; `None` is null.
    other
        Files whose content is replaced: neither the metadata nor a table.
    """

    name: str
    metadata: dict[str, Any]
    tables: dict[str, list[dict[str, str | None]]]
    other: dict[str, bytes] = field(default_factory=dict)

    def files(self) -> dict[str, bytes]:
        """Return the files by name."""
        metadata = json.dumps(self.metadata).encode()
        tables = {name: _csv(COLUMNS[name].split(), rows) for name, rows in self.tables.items()}
        return {"metadata.json": metadata, **tables, **self.other}

    def write(
        self,
        folder: Path,
        *,
        root: str = "",
        zipped: bool = True,
        packing: int = zipfile.ZIP_DEFLATED,
        size: int | None = None,
    ) -> Path:
        """Write a zip, whose files may be in a folder `root`, or that folder; return its path.

        The `other` files may be packed otherwise, and said to have another size.
        """
        path = folder / (self.name if zipped else self.name.removesuffix(".zip"))
        folder.mkdir(parents=True, exist_ok=True)
        if zipped:
            with zipfile.ZipFile(path, "w") as file:
                for each, content in self.files().items():
                    # Without the time of writing: the same rows are the same bytes.
                    how = packing if each in self.other else zipfile.ZIP_DEFLATED
                    file.writestr(zipfile.ZipInfo(root + each), content, how)
                for each in self.other:
                    file.getinfo(each).file_size = size or file.getinfo(each).file_size
            return path
        for each, content in self.files().items():
            (path / root / each).parent.mkdir(parents=True, exist_ok=True)
            (path / root / each).write_bytes(content)
        return path


def make_segments(
    rows: Sequence[Row],
    *,
    each: int = 7,
    first: int = 1,
    chain: str = CHAIN,
    quiet: Iterable[int] = (),
    assets: Mapping[str, tuple[str, int]] | None = None,
    limits: Sequence[Mapping[str, Any]] = (),
) -> list[Segment]:
    """Return the segments of a history.

    Parameters
    ----------
    rows
        Ascending. The ledger is made of their differences, from nothing on.
    each
        Blocks a segment.
    first
        The height of the first block.
    quiet
        Times of blocks without rows, microseconds.
    assets
        The symbol and decimals of each; by default invented ones for the rows' assets.
    limits
        Each change: `vega_time` in microseconds and flags; moments are microseconds or `None`.
    """
    times = sorted({*(row.time for row in rows), *quiet})
    named = assets or {a: (f"T{n}", 6) for n, a in enumerate(sorted({r.asset_id for r in rows}))}
    entries, levels = _ledger(rows, first), list(rows)
    segments: list[Segment] = []
    for lowest in range(first, first + len(times), each):
        part = times[lowest - first :][:each]
        highest, begin, last = lowest + len(part) - 1, part[0], part[-1]
        metadata = {
            "HeightFrom": lowest,
            "HeightTo": highest,
            "DatabaseVersion": 34,
            "ChainID": chain,
            "PreviousHistorySegmentID": content_id(segments[-1]) if segments else "",
        }
        tables = {
            "currentstate/accounts": list(_accounts(r for r in levels if r.time <= last)),
            "currentstate/assets": list(_assets(named, begin)),
            "currentstate/network_limits": [_limit(x) for x in limits if x["vega_time"] <= last],
            "history/balances": [_balance(r) for r in levels if begin <= r.time <= last],
            "history/blocks": [
                {"vega_time": pg_time(at), "height": str(n), "hash": _bytes(f"{at}000")}
                for n, at in enumerate(part, lowest)
            ],
            "history/ledger": [e for at, e in entries if begin <= at <= last],
        }
        segments.append(Segment(f"{chain}-34-{lowest}-{highest}.zip", metadata, tables))
    return segments


def write_segments(
    folder: Path,
    rows: Sequence[Row],
    *,
    edit: Callable[[list[Segment]], object] = lambda _: None,
    **how: Any,
) -> list[Path]:
    """Write the segments of a history as zips, in the order of their blocks, after an edit."""
    segments = make_segments(rows, **how)
    edit(segments)
    return [segment.write(folder) for segment in segments]


def limits_at(microseconds: int, **values: Any) -> dict[str, Any]:
    """Return a change of the limits: all flags are set, except the given ones."""
    names = COLUMNS["currentstate/network_limits"].split()[2:7]
    return {"vega_time": microseconds, **dict.fromkeys(names, True), **values}


def old_segment(folder: Path, name: str = f"{CHAIN}-1-300.tar") -> Path:
    """Write a segment as nodes older than v0.71 did: snapshots in a tar."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / name, "w") as file:
        for kind in ("currentstate", "history"):
            file.addfile(tarfile.TarInfo(f"{CHAIN}-1-300-{kind}snapshot.gz"))
    return folder / name


def flip(path: Path) -> None:
    """Damage the balances of a zip."""
    with zipfile.ZipFile(path) as file:
        place = file.getinfo("history/balances").header_offset + 60
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


@functools.cache
def pg_time(microseconds: int) -> str:
    """Return a moment as PostgreSQL prints it: without zeros at the end of its fraction."""
    text = f"{from_microseconds(microseconds):%Y-%m-%d %H:%M:%S.%f}"
    return f"{text.rstrip('0').rstrip('.')}+00"


def pg_bytes(text: str) -> str:
    r"""Return an id as PostgreSQL prints bytes; nothing is `\x`."""
    return "\\x" + WELL_KNOWN.get(text, text)


def content_id(segment: Segment) -> str:
    """Return the name by which nodes share a segment."""
    return "Qm" + hashlib.sha256(segment.name.encode()).hexdigest()[:44]


def _bytes(seed: object) -> str:
    return "\\x" + hashlib.sha256(str(seed).encode()).hexdigest()


def _account(row: Row) -> str:
    return "\\x" + row.account_id


def _balance(row: Row) -> dict[str, str | None]:
    return {
        "account_id": _account(row),
        "vega_time": pg_time(row.time),
        "tx_hash": _bytes(f"{row.time}000"),
        "balance": str(row.balance),
    }


def _accounts(rows: Iterable[Row]) -> Iterator[dict[str, str | None]]:
    seen = set()
    for row in rows:
        for kind in (row.account_type, "ACCOUNT_TYPE_EXTERNAL"):
            is_bank = kind == "ACCOUNT_TYPE_EXTERNAL"
            party, market = ("network", "") if is_bank else (row.party_id, row.market_id)
            number = kind if isinstance(kind, int) else NUMBERS[kind.removeprefix("ACCOUNT_TYPE_")]
            account = account_id(row.asset_id, party, market, kind)
            if account not in seen:
                seen.add(account)
                yield {
                    "id": "\\x" + account,
                    "party_id": pg_bytes(party),
                    "asset_id": pg_bytes(row.asset_id),
                    "market_id": pg_bytes(market),
                    "type": str(number),
                    "tx_hash": _bytes(account),
                    "vega_time": pg_time(row.time),
                }


def _assets(assets: Mapping[str, tuple[str, int]], at: int) -> Iterator[dict[str, str | None]]:
    for asset, (symbol, decimals) in assets.items():
        # An older version comes after the newer one: the table has no order.
        for version, name in ((1, f'{symbol}, "the\nbest"'), (0, "as proposed")):
            yield {
                "id": pg_bytes(asset),
                "name": name,
                "symbol": symbol if version else "OLD",
                "decimals": str(decimals if version else 0),
                "quantum": "1",
                **dict.fromkeys(["lifetime_limit", "withdraw_threshold"], "0"),
                "status": "STATUS_ENABLED",
                "tx_hash": _bytes(asset),
                "vega_time": pg_time(at + (version - 1) * 10**6),
            }


def _limit(limits: Mapping[str, Any]) -> dict[str, str | None]:
    def spelt(value: bool | int | None) -> str | None:
        if isinstance(value, bool):
            return "t" if value else "f"
        return None if value is None else pg_time(value)

    return {"tx_hash": _bytes("limits")} | {name: spelt(limits[name]) for name in limits}


def _ledger(rows: Sequence[Row], seed: int) -> list[tuple[int, dict[str, str | None]]]:
    """Return entries that make the rows: each flow in up to two parts, to or from outside."""
    rng, held, entries = random.Random(seed), {}, []
    for row in rows:
        net = int(row.balance) - held.get(row.account, 0)
        held[row.account] = int(row.balance)
        if row.account_type == "ACCOUNT_TYPE_EXTERNAL" or not net:
            continue
        bank = "\\x" + account_id(row.asset_id, "network", "", "ACCOUNT_TYPE_EXTERNAL")
        part = rng.randrange(abs(net))
        for quantity in (part, abs(net) - part):
            ends = (bank, _account(row)) if net > 0 else (_account(row), bank)
            at = pg_time(row.time)
            entry = {
                "ledger_entry_time": pg_time(row.time + len(entries)),
                "account_from_id": ends[0],
                "account_to_id": ends[1],
                "quantity": str(quantity),
                "tx_hash": _bytes(len(entries)),
                "vega_time": at,
                "transfer_time": at,
                "type": "4",
            }
            entries.append((row.time, entry))
    return entries


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, str | None]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name) for name in columns] for row in rows)
    return text.getvalue().encode()
