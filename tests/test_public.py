"""The package's public names, and the cost of importing it."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import cloudpickle
import pytest

import balance_analysis as ba
from tests.cli.running import SAMPLE

ROOT = Path(__file__).parents[1]
SHOWN = [ROOT / "README.md", *sorted((ROOT / "notebooks").glob("*.ipynb"))]
TABLES = {"numpy", "pandas", "pyarrow"}
NETWORK = {"msgspec", "pydantic", "requests", "urllib3"}
SELDOM = {"IPython", "asyncio", "boto3", "dask", "distributed", "duckdb", "jinja2"}
SELDOM |= {"matplotlib", "polars", "prometheus_client", "rich", "scipy", "starlette"}
SELDOM |= {"hypercorn", "tqdm", "xlsxwriter"}
FETCH = "fetch {node} -q -o {folder}/x.parquet --since 2023-04-29 --until 2023-05-01"
NOT_IMPORTED = [
    {
        "--help": TABLES | NETWORK | SELDOM | {"filelock"},
        "plot --help": TABLES | NETWORK | SELDOM | {"filelock"},
        "limits {node}": SELDOM | {"filelock", "pyarrow.parquet"},
    },
    {FETCH: SELDOM | {"filelock", "pandas"}},
    {
        "summary {sample}": SELDOM | {"filelock", "requests"},
        "summary {archive}": SELDOM | {"requests", "pyarrow.dataset"},
        "sql {archive} values(1)": SELDOM - {"duckdb"} | {"requests"},
    },
]
"""Of commands, what a start would take longer with and they have no use for.

Those of one process have in common what the ones before them import.
"""


def test_public_names_are_those_that_the_stub_imports_sorted_and_complete():
    stub = ast.parse((ROOT / "balance_analysis" / "__init__.pyi").read_text(encoding="utf-8"))
    imported = [n.name for s in stub.body if isinstance(s, ast.ImportFrom) for n in s.names]
    assert sorted(imported) == ba.__all__
    assert all(getattr(ba, name) is not None for name in ba.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = ba.nothing


POSITIONAL = {"accounts", "archive", "assets", "at", "flows", "freq", "n", "other"}
POSITIONAL |= {"path", "paths", "when"}


@pytest.mark.parametrize(
    "name", [name for name in ba.__all__ if inspect.isfunction(getattr(ba, name))]
)
def test_only_a_functions_subject_is_positional(name):
    _, *others = inspect.signature(getattr(ba, name)).parameters.values()
    positional = {each.name for each in others if each.kind is each.POSITIONAL_OR_KEYWORD}
    bounds = {"start", "end"} if name == "time_weighted_average" else set()
    assert positional <= POSITIONAL | bounds


ORDERS = ["pd, ba", "ba, importlib.util; importlib.util.find_spec('pandas'); import pd"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_frame_with_a_tables_columns_is_selected_from_whatever_is_imported_first(order):
    names = order.replace("pd", "pandas as pd").replace("ba", "balance_analysis as ba")
    code = (
        f"import {names}\n"
        "columns = 'asset_id account_type party_id market_id timestamp balance'.split()\n"
        "print(len(pd.DataFrame(columns=columns).balances.between('2023-04-30')))\n"
        "print(hasattr(pd.DataFrame({'a': [1]}), 'balances'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False"], done.stderr


def test_a_program_that_only_loads_gets_warnings_and_a_tables_methods(sample_node):
    code = (
        "import sys, balance_analysis as ba\n"
        "with ba.Client(sys.argv[1]) as client:\n"
        "    table = ba.load_balance_changes(client, start='2023-04-29', end='2023-05-02')\n"
        "print('matplotlib' in sys.modules, len(table.balances.between('2023-04-30')))"
    )
    arguments = [sys.executable, "-c", code, sample_node]
    done = subprocess.run(arguments, capture_output=True, text=True)
    imported, rows = done.stdout.split()
    assert imported == "False"
    assert int(rows) > 0
    assert done.stderr.count("known to be complete") == done.stderr.count("\n") == 1


@pytest.mark.parametrize("commands", NOT_IMPORTED, ids=["limits", "fetch", "rows"])
def test_a_command_imports_only_what_it_needs(commands, tmp_path, sample, sample_node):
    places = {"node": sample_node, "archive": sample.uri, "sample": SAMPLE, "folder": tmp_path}
    code = (
        "import sys; from balance_analysis.cli import app\n"
        "for command in sys.argv[1:]:\n"
        "    try: app(command.split('|'))\n"
        "    except SystemExit as end: assert not end.code\n"
        "    print('imported', *sys.modules)"
    )
    words = [command.replace(" ", "|").format(**places) for command in commands]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = [line.split() for line in done.stdout.splitlines() if line.startswith("imported ")]
    for (command, unwanted), modules in zip(commands.items(), loaded, strict=True):
        assert "balance_analysis.cli.app" in modules
        assert unwanted & {*modules} == set(), command


def test_every_file_meant_for_the_wheel_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert carried
    assert all((ROOT / source).exists() for source in carried)


def test_a_function_that_uses_the_package_can_be_sent_to_a_worker():
    def loads():
        return ba.export

    # A room that is named as a public function is would stand in its way, and can't be pickled.
    assert cloudpickle.loads(cloudpickle.dumps(loads))() is ba.export


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_readme_and_the_notebooks_import_public_modules_only(path):
    imported = re.findall(r"\b(?:from|import) (balance_analysis[\w.]*)", path.read_text("utf-8"))
    assert {*imported} <= {"balance_analysis", "balance_analysis.demo"}
