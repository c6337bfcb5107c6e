from .analysis.balances import balance_at, balance_series, compare, holders
from .analysis.door import to_integers, to_units
from .analysis.flows import deltas, flows, reconcile
from .analysis.summaries import (
    drawdown,
    ohlc,
    summarize_accounts,
    summarize_parties,
    time_weighted_average,
)
from .analysis.totals import totals
from .archive.digest import ArchiveDigest
from .archive.explain import CitedRow, Explanation
from .archive.runs import Run
from .archive.status import ArchiveStatus
from .archives import Archive
from .errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveLockedError,
    BalanceAnalysisError,
    CheckError,
    DecodeError,
    IncompleteError,
    NetworkMismatchError,
    RequestError,
    SnapshotGoneError,
    TooLargeError,
)
from .explorer.report import write_report
from .figures.balances import plot_balances, plot_drawdown
from .figures.flows import plot_activity, plot_flows
from .figures.styles import DARK_STYLE
from .figures.timelines import plot_coverage, plot_limits
from .figures.totals import plot_totals
from .files.parquet import read_network_limits, read_parquet, write_network_limits, write_parquet
from .files.tables import write_table
from .fill.export import export
from .fill.imports import import_segments
from .load.changes import (
    Page,
    iter_balance_changes,
    iter_pages,
    load_balance_changes,
    load_to_parquet,
)
from .node.client import Client
from .node.doctor import Finding, NodeReport, diagnose_node
from .node.limits import load_network_limits
from .proof.diff import Difference, confirm, diff
from .proof.repair import Repaired, repair
from .proof.verify import VerifyReport
from .segments.rows import read_segments
from .slices import over_accounts
from .table.display import account_labels, labelled
from .table.frame import check_table, to_table
from .table.names import Asset, read_assets, read_labels
from .table.schema import ACCOUNT_KEY, ACCOUNT_TYPES, NetworkLimits

__version__: str

__all__ = [
    "ACCOUNT_KEY",
    "ACCOUNT_TYPES",
    "DARK_STYLE",
    "Archive",
    "ArchiveDamagedError",
    "ArchiveDigest",
    "ArchiveError",
    "ArchiveLockedError",
    "ArchiveStatus",
    "Asset",
    "BalanceAnalysisError",
    "CheckError",
    "CitedRow",
    "Client",
    "DecodeError",
    "Difference",
    "Explanation",
    "Finding",
    "IncompleteError",
    "NetworkLimits",
    "NetworkMismatchError",
    "NodeReport",
    "Page",
    "Repaired",
    "RequestError",
    "Run",
    "SnapshotGoneError",
    "TooLargeError",
    "VerifyReport",
    "account_labels",
    "balance_at",
    "balance_series",
    "check_table",
    "compare",
    "confirm",
    "deltas",
    "diagnose_node",
    "diff",
    "drawdown",
    "export",
    "flows",
    "holders",
    "import_segments",
    "iter_balance_changes",
    "iter_pages",
    "labelled",
    "load_balance_changes",
    "load_network_limits",
    "load_to_parquet",
    "ohlc",
    "over_accounts",
    "plot_activity",
    "plot_balances",
    "plot_coverage",
    "plot_drawdown",
    "plot_flows",
    "plot_limits",
    "plot_totals",
    "read_assets",
    "read_labels",
    "read_network_limits",
    "read_parquet",
    "read_segments",
    "reconcile",
    "repair",
    "summarize_accounts",
    "summarize_parties",
    "time_weighted_average",
    "to_integers",
    "to_table",
    "to_units",
    "totals",
    "write_network_limits",
    "write_parquet",
    "write_report",
    "write_table",
]
