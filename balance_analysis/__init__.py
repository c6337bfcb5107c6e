"""Load, keep, reconstruct and plot the history of account balances of a trading network.

    import balance_analysis as ba

    with ba.Client("https://node.example.org") as client:
        table = ba.load_balance_changes(client, start="2023-04-01", end="2023-04-08")

A table is a pandas DataFrame that carries evidence of the intervals in which it has every row. An
`Archive` keeps what nodes forget; every function takes an archive of any size in place of a table.
`balance_analysis.service.app` serves an archive, and `balance_analysis.demo` has sample data.
"""

# `__init__.pyi` lists the public names. Each is imported from its module when it is first used, so
# that importing this package, or asking the command line for help, costs nothing.

import importlib
import sys

import lazy_loader

__version__ = "0.1.0"

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _register() -> None:
    """Register the accessor `.balances` if pandas is already imported."""
    if "pandas" in sys.modules:
        importlib.import_module("balance_analysis.table.frame")


def __getattr__(name: str) -> object:
    value = _import(name)
    _register()
    return value


_register()
