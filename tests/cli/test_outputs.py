"""Commands never overwrite data, and never write what a terminal or a spreadsheet runs."""

import contextlib
import csv
import errno
import io
import json
import os
import re
import resource
import shlex
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import balance_analysis as ba
from balance_analysis import cli, demo
from tests.archive.exporting import ROWS, client_of, node_of
from tests.cli.running import COMMANDS, SAMPLE, fails, on_a_terminal, run
from tests.loopback import Fault, LoopbackNode

INPUTS = {"assets", "labels", "previous"}
"""The options that name a file to read."""

WRITERS = {
    "fetch --output": ("fetch {url}", ".parquet"),
    "limits --output": ("limits {url}", ".json"),
    "summary --output": ("summary {source}", ".parquet"),
    "series --output": ("series {source}", ".parquet"),
    "diff --output": ("diff {archive} {archive}", ".csv"),
    "compare --output": ("compare {source} --at 2023-04-01 --at 2023-04-02", ".csv"),
    "plot --output": ("plot {source} --kind activity", ".png"),
    "report --output": ("report {source} --largest 0", ".html"),
    "export --metrics-file": ("export {archive} {url}", ".prom"),
    "sql --output": ("sql {archive} 'select 1 as one'", ".xlsx"),
    "demo --out": ("demo", ""),
}
"""How each command that writes is asked to, and what its files end with."""

READING = [name for name, (words, _) in WRITERS.items() if "{source}" in words]
INPUT_PLACES = {
    "it": lambda world: world.source,
    "a symbolic link to it": lambda world: linked(world, os.symlink, world.source),
    "a hard link to it": lambda world: linked(world, os.link, world.source),
    "another spelling": lambda world: f"./x/../{world.source.name}",
    "a link to its folder": lambda world: world.around / world.source.name,
}
ARCHIVE_PLACES = {
    "the archive": lambda world: world.archive,
    "a file of it": lambda world: world.held,
    "a new file": lambda world: world.archive / f"new{world.suffix}",
    "a new file of a folder": lambda world: world.archive / "changes" / f"new{world.suffix}",
    "another spelling of the archive": lambda world: f"x/../archive/new{world.suffix}",
    "a symbolic link to a file of it": lambda world: linked(world, os.symlink, world.held),
    "through a link": lambda world: world.around / "archive" / f"new{world.suffix}",
    "a folder of it that stands elsewhere": lambda world: world.archive / f"far/new{world.suffix}",
}
PLACES = INPUT_PLACES | ARCHIVE_PLACES
PLACES["a pipe"] = lambda world: linked(world, lambda _, path: os.mkfifo(path), None)


def linked(world, link, target):
    """Make a link to a file, and return it."""
    path = world.folder / f"link{world.suffix}"
    link(target, path)
    return path


@pytest.fixture(scope="module")
def rows(whole, tmp_path_factory):
    """A file of the archive's rows."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    ba.write_parquet(ba.Archive(whole).read(), path)
    return path


@pytest.fixture
def world(name, whole, rows, tmp_path, monkeypatch):
    """A folder with an input and an archive, and a node that must not be asked."""
    monkeypatch.chdir(tmp_path)
    suffix, archive, around = WRITERS[name][1], tmp_path / "archive", tmp_path / "x" / "around"
    source, held = (folder / f"input{suffix}" for folder in (tmp_path, archive))
    shutil.copytree(whole, archive)
    for place in (source, held):
        shutil.copy(rows, place)
    around.parent.mkdir()
    around.symlink_to(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (archive / "far").symlink_to(tmp_path / "elsewhere")
    paths = {"folder": tmp_path, "archive": archive, "around": around}
    with node_of(ROWS) as node:
        yield SimpleNamespace(**paths, source=source, held=held, suffix=suffix, node=node)


def writing(name, world, place):
    """Return the words of a command that writes to a place."""
    places = {"url": world.node.url, "source": world.source, "archive": world.archive}
    return *shlex.split(WRITERS[name][0].format(**places)), name.split()[1], place


def test_every_command_that_writes_is_tested_here():
    options = {
        f"{name} --{option.name.replace('_', '-')}"
        for name, command in COMMANDS.items()
        for option in command.params
        if option.type_descriptor.is_path and option.name not in INPUTS
    }
    assert options == set(WRITERS)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *(("summary --output", place) for place in INPUT_PLACES),
        *((name, "it") for name in READING),
        ("fetch --output", "a pipe"),
        *(("fetch --output", place) for place in ARCHIVE_PLACES),
        *((name, "a new file of a folder") for name in WRITERS),
    ],
)
def test_an_output_that_is_the_input_or_not_a_regular_file_or_in_an_archive_is_refused(
    name, place, world
):
    said = fails(*writing(name, world, PLACES[place](world)), code=2, folder=world.folder)
    assert ("is an archive;" in said) == (place == "the archive")
    assert world.node.requests == []


@pytest.mark.parametrize("name", ["export --metrics-file"])
def test_metrics_inside_a_new_archive_are_refused(name, world):
    (new := world.folder / "new").mkdir()
    words = ("export", new, world.node.url, "--metrics-file", new / "x.prom")
    assert "lies in" in fails(*words, code=2, folder=world.folder)


@pytest.mark.parametrize("name", ["report --output"])
def test_a_report_does_not_replace_the_file_of_its_assets(name, world):
    (assets := world.folder / "assets.html").write_text("")
    words = ("report", world.archive, "--assets", assets, "-o", linked(world, os.link, assets))
    fails(*words, code=2, folder=world.folder)
    with pytest.raises(ValueError, match="the same file as"):
        ba.write_report(ba.read_parquet(world.source), "assets.html", assets=assets)


def test_the_library_writes_nothing_into_an_archive(whole):
    archive, table = whole, ba.Archive(whole).read()
    with client_of(node_of(ROWS)) as client:
        limits = ba.load_network_limits(client)
        for write_it in (
            lambda: ba.write_parquet(table, archive / "_limits.parquet"),
            lambda: ba.write_network_limits(limits, archive / "limits.json"),
            lambda: ba.write_report(table, archive / "report.html"),
            lambda: ba.load_to_parquet(client, archive / "changes.parquet"),
            lambda: ba.over_accounts(ba.deltas, ba.Archive(archive), to=archive / "series.parquet"),
            lambda: demo.run_demo(archive, say=print),
            lambda: demo.run_demo(archive / "changes" / "demo", say=print),
        ):
            with pytest.raises(ValueError, match="archive"):
                write_it()
    assert ba.Archive(archive).verify().is_whole


# A disk that is full, or read-only


@contextlib.contextmanager
def full_disk():
    """Make every further write fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_exits_with_74_names_the_path_and_keeps_the_old_file(name, world):
    place, is_file = world.folder / f"y{world.suffix}", name != "demo --out"
    if is_file:
        place.write_text("old")
    with full_disk():
        said = run(*writing(name, world, place), code=74).stderr.splitlines()[-1]
    # The archive of an export is written first, and the sample that a demo's node serves.
    written = {"export": world.archive, "demo": tempfile.gettempdir()}.get(name.split()[0], place)
    assert str(written) in said
    assert os.strerror(errno.EFBIG) in said
    assert not list(world.folder.glob(".*"))
    if is_file:
        assert place.read_text() == "old"
        run(*writing(name, world, place))
        assert place.read_bytes() != b"old"


@pytest.mark.parametrize("name", ["fetch --output", "plot --output"])
def test_a_read_only_disk_exits_with_74_before_any_work(name, world, monkeypatch):
    def refuse(**_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    said = run(*writing(name, world, world.folder / f"y{world.suffix}"), code=74).stderr
    assert f"{world.folder}: " in said
    assert os.strerror(errno.EROFS) in said
    assert world.node.requests == []


# Text that a terminal or a spreadsheet would run

ESCAPE = "\x1b]0;gone\x07\x1b[2J\x9b31m\u202e\u2028\x7f"
OBEYED = re.compile(r"[^\n -~\xa1-\u2027\u2030-\uffff]")


def is_harmless(said):
    return not OBEYED.search(said.stdout + said.stderr)


@pytest.fixture
def evil(tmp_path):
    """A file whose ids try to break terminals and spreadsheets."""
    table = ba.read_parquet(SAMPLE).head(400)
    table["asset_id"] = "=1+1"
    parties = table["party_id"].astype("str")
    first = sorted(set(parties))
    names = ["+1", "-1", "@x", "\tx", "\rx", "\nx", f"x{ESCAPE}", "'=2", "=2", "plain"]
    table["party_id"] = parties.map(dict(zip(first, names * len(first), strict=False)))
    table = ba.to_table(table.drop_duplicates([*ba.ACCOUNT_KEY, "timestamp"]))
    ba.write_parquet(table, tmp_path / "evil.parquet")
    return tmp_path / "evil.parquet"


def test_tables_and_messages_escape_characters_that_a_terminal_would_obey(evil, tmp_path):
    said = run("summary", evil, "--limit", 0)
    assert "\\u001b" in said.stdout
    assert len(said.stdout.splitlines()) == 1 + len(ba.summarize_accounts(ba.read_parquet(evil)))
    drawn = run("plot", evil, "--kind", "drawdown", "-o", tmp_path / "x.png")
    refused = run("series", evil, "--party-id", f"y{ESCAPE[:8]}", "-o", tmp_path / "x.csv", code=2)
    assert all(map(is_harmless, (said, drawn, refused)))


def test_errors_and_log_lines_are_escaped(tmp_path):
    fault = Fault.code(503, 14, f"{ESCAPE}\nERROR forged")
    with LoopbackNode(ROWS, faults=lambda *_: fault) as node:
        said = run("fetch", node.url, "-o", tmp_path / "x.parquet", "-vv", code=4)
    assert is_harmless(said)
    assert "\\u001b]0;gone" in said.stderr
    assert not re.search(r"^ERROR forged", said.stderr, re.MULTILINE)


def test_limits_doctor_status_and_verify_are_escaped(tmp_path):
    bad = [row._replace(asset_id=f"{row.asset_id}{ESCAPE}") for row in ROWS]
    extra = {f"new{ESCAPE}": f"{ESCAPE}\nforged  yes"}
    limits = {**LoopbackNode().limits, **extra}
    with node_of(bad, limits=limits, edit_row=lambda row: row | extra) as node:
        for words in (
            ("limits", node.url),
            ("doctor", node.url),
            ("export", tmp_path / "a", node.url, "-vv"),
            ("status", tmp_path / "a"),
            ("verify", tmp_path / "a", "--against", node.url),
        ):
            said = run(*words)
            assert is_harmless(said), words
            assert "\nforged" not in said.stdout
        content = json.loads(run("limits", node.url, "--format", "json").stdout)["extra"]
    assert extra.items() <= content.items()


def test_rows_are_escaped_on_a_terminal_and_unchanged_in_a_pipe(evil):
    shown = on_a_terminal("series", evil)
    assert "\\u001b]0;gone" in shown
    assert not OBEYED.search(shown)
    assert ESCAPE in run("series", evil).stdout


def test_no_module_of_the_command_line_prints_directly():
    modules = Path(cli.__file__).parent.glob("*.py")
    printing = {each.name for each in modules if "typer.echo" in each.read_text(encoding="utf-8")}
    assert printing == {"app.py", "output.py"}  # app prints the version


def test_a_spreadsheet_runs_nothing_in_a_csv_and_numbers_keep_their_sign(evil, tmp_path):
    table = ba.read_parquet(evil)
    table["balance"] = -table["balance"]
    ba.write_parquet(table, evil)
    for layout in ("wide", "long"):
        run("series", evil, "--layout", layout, "-o", tmp_path / "x.csv")
        with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        started = [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\n"))]
        assert started
        assert all(re.fullmatch("-[0-9]+", cell) for cell in started)


def test_json_and_parquet_keep_texts_unchanged(evil):
    rows = json.loads(run("summary", evil, "--format", "json").stdout)
    assert {row["party_id"] for row in rows} == {*ba.read_parquet(evil)["party_id"]}
    said = list(csv.DictReader(io.StringIO(run("summary", evil, "--format", "csv").stdout)))
    assert len(said) == len(rows)
