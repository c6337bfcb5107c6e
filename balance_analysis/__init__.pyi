from .analysis.balances import balance_at
from .analysis.checks import check_table
from .analysis.summary import summarize_accounts
from .analysis.units import to_units
from .archive.files import (
    read_network_limits,
    read_parquet,
    write_network_limits,
    write_parquet,
)
from .errors import (
    ArchiveError,
    BalanceAnalysisError,
    CheckError,
    DecodeError,
    IncompleteError,
    RequestError,
    TooLargeError,
)
from .figures.plots import plot_balances
from .load import iter_pages, load_balance_changes, load_network_limits
from .node.client import Client
from .node.pages import Page
from .schema import ACCOUNT_KEY, ACCOUNT_TYPES, NetworkLimits

__version__: str

__all__ = [
    "ACCOUNT_KEY",
    "ACCOUNT_TYPES",
    "ArchiveError",
    "BalanceAnalysisError",
    "CheckError",
    "Client",
    "DecodeError",
    "IncompleteError",
    "NetworkLimits",
    "Page",
    "RequestError",
    "TooLargeError",
    "balance_at",
    "check_table",
    "iter_pages",
    "load_balance_changes",
    "load_network_limits",
    "plot_balances",
    "read_network_limits",
    "read_parquet",
    "summarize_accounts",
    "to_units",
    "write_network_limits",
    "write_parquet",
]
