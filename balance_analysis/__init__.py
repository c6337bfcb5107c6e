"""Load, keep, reconstruct and plot the history of account balances of a trading network.

    import balance_analysis as ba

    with ba.Client("https://node.example.org") as client:
        table = ba.load_balance_changes(client, start="2023-04-01", end="2023-04-08")

A table is a pandas frame that carries its evidence: in which time it has every row. `Archive` keeps
what nodes forget, and every function takes one of any size in a table's place.
`balance_analysis.service.app` serves one, and `balance_analysis.demo` has sample data.
"""

# `__init__.pyi` lists the public names. Each is imported from its module when it is first used, so
# that importing this package, or asking the command line for help, costs nothing.

import importlib
import sys

import lazy_loader

__version__ = "0.1.0"

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _register() -> None:
    """Give frames `.balances`, which needs pandas: once that is imported."""
    if "pandas" in sys.modules:
        importlib.import_module("balance_analysis.table.frame")


def __getattr__(name: str) -> object:
    value = _import(name)
    _register()
    return value


_register()
