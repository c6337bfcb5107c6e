"""Load, keep, reconstruct and plot the history of account balances of a trading network.

    import balance_analysis as ba

    with ba.Client("https://node.example.org") as client:
        table = ba.load_balance_changes(client, start="2023-04-01", end="2023-04-08")

A table is a pandas DataFrame that carries evidence of the intervals in which it has every row. An
`Archive` keeps what nodes forget; every function takes an archive of any size in place of a table.
`balance_analysis.service.app` serves an archive, and `balance_analysis.demo` has sample data.
"""

# `__init__.pyi` lists the public names. Each is imported from its module when it is first used, so
# that importing this package, or asking the command line for help, costs nothing. For the same
# reason a finder of modules waits for pandas to be imported, and then registers `.balances`.

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _register(pandas: ModuleType) -> None:
    """Register the accessor `.balances`, whose module is imported at its first use."""

    def balances(table: object) -> object:
        from balance_analysis.table import display  # noqa: PLC0415 - long to import

        return display.BalancesAccessor(table)

    pandas.api.extensions.register_dataframe_accessor("balances")(balances)


def _find_pandas(name: str, *where: object) -> object:
    """Find pandas as other finders do, and register the accessor once it is imported."""
    if name != "pandas":
        return None
    others: list[Any] = [each for each in sys.meta_path if each is not _FINDER]
    spec = next(filter(None, (finder.find_spec(name, *where) for finder in others)), None)
    if spec:
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            _register(module)

        spec.loader.exec_module = run_and_register
    return spec


_FINDER: Any = SimpleNamespace(find_spec=_find_pandas)

if "pandas" in sys.modules:
    _register(sys.modules["pandas"])
else:
    sys.meta_path.insert(0, _FINDER)
