"""A caller's mistake raises an error that names it, in every function."""

import inspect

import matplotlib.pyplot as plt
import pytest

import balance_analysis as ba
from balance_analysis import demo

URL = "http://127.0.0.1:1"
FILE = demo.sample_data() / "changes.parquet"
TABLE = ba.read_parquet(FILE).head(50)
REST = {
    "accounts": TABLE,
    "archive": "nowhere",
    "at": "2023-04-02",
    "flows": TABLE,
    "freq": "1D",
    "path": "nowhere.parquet",
    "when": "2023-04-02",
}


def functions(first):
    """Return the public functions of a first argument, each with its other arguments."""
    for name in ba.__all__:
        function = getattr(ba, name)
        if inspect.isfunction(function):
            head, *others = inspect.signature(function).parameters.values()
            if head.name in first:
                needed = [x.name for x in others if x.default is x.empty or x.name == "when"]
                yield pytest.param(function, {n: REST[n] for n in needed if n in REST}, id=name)


def computing():
    """Return the functions that take a table or an archive, except those that need two moments."""
    for case in functions({"source"}):
        function, _ = case.values
        if ".analysis." in function.__module__ and function is not ba.compare:
            yield case


def everything():
    """Return all public functions and methods that can be called."""
    owners = {"": ba, "Archive.": ba.Archive, "balances.": TABLE.balances}
    for prefix, owner in owners.items():
        for name in getattr(owner, "__all__", None) or dir(owner):
            value = getattr(owner, name)
            if not name.startswith("_") and inspect.isroutine(value) and name != "over_accounts":
                yield pytest.param(value, id=f"{prefix}{name}")


@pytest.mark.parametrize("keyword", ["nonsense_keyword", "label"])
@pytest.mark.parametrize("function", [*everything()])
def test_an_unknown_keyword_is_named(function, keyword):
    if "style" in inspect.signature(function).parameters:  # whose names matplotlib knows
        pytest.skip("its keywords are those of artists")
    with pytest.raises(TypeError, match=keyword):
        function(**{keyword: 1})


def run(function, argument, rest):
    result = function(argument, **rest)
    return next(iter(result)) if inspect.isgenerator(result) else result


@pytest.mark.parametrize("wrong", [URL, FILE, None, TABLE])
@pytest.mark.parametrize(("function", "rest"), [*functions({"client"})])
def test_a_value_that_is_not_a_client_is_refused(function, rest, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=r"expected a Client, not .* ba\.Client\('http"):
        run(function, wrong, rest)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("wrong", [str(FILE), None, TABLE["balance"], [TABLE]])
@pytest.mark.parametrize(("function", "rest"), [*functions({"table", "data"}), *computing()])
def test_a_value_that_is_not_a_table_is_refused(function, rest, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=r"table as a pandas DataFrame, not .*Archive\.r"):
        run(function, wrong, rest)
    assert not [*tmp_path.iterdir()]
    plt.close("all")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: ba.Archive(TABLE), TypeError, "expected an Archive or the path of one"),
        (lambda: ba.Archive(FILE), ba.ArchiveError, "is a file, .* ba.read_parquet"),
        (lambda: ba.write_report(FILE, "x.html"), ba.ArchiveError, "ba.read_parquet"),
        (lambda: ba.write_report(5, "x.html"), TypeError, "an Archive or the path of one, not 5"),
        (lambda: ba.read_parquet(FILE.parent.parent), OSError, r"folder .* ba.Archive\(...\).read"),
        (lambda: ba.read_parquet(ba.Archive("x")), TypeError, "path of a file, not Arch"),
        (lambda: ba.write_table("x.csv", TABLE), TypeError, "path of a file, not Table"),
        (lambda: ba.write_network_limits("x", "y"), TypeError, "expected a NetworkLimits, not 'x'"),
        (lambda: ba.balance_at("2023-04-02", TABLE), TypeError, "the table comes first"),
        (lambda: ba.plot_limits(TABLE), ValueError, r"expected the frame of Archive.limits\(\)"),
        (lambda: ba.read_assets(TABLE), ValueError, "there is no column decimals"),
        (lambda: ba.Archive("x").select(), ba.ArchiveError, "not an archive"),
    ],
)
def test_other_wrong_arguments_are_refused(call, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        call()
    assert not [*tmp_path.iterdir()]
