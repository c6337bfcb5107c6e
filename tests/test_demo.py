"""The demo does the whole main job over HTTP, and ends clean."""

import contextlib
import re
import shlex
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import requests

import balance_analysis as ba
from balance_analysis import demo
from sample_data.segments import main as make_segments
from tests.cli.running import run


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """The folder of a demo that ran twice, and the command's output of each run."""
    folder = tmp_path_factory.mktemp("a demo")
    with contextlib.chdir(folder):
        said = [run("demo", "--out", "a demo").stderr for _ in range(2)]
    return folder / "a demo", said


@pytest.fixture(scope="module")
def made(demos):
    return demos[0]


def test_a_second_demo_continues_its_archive_and_exports_nothing_new(demos):
    first, second = demos[1]
    assert "Exported 63,381 balance changes" in first
    assert "Exported 0 balance changes" in second


def test_the_archive_and_the_files_hold_the_sample(made):
    sample = ba.read_parquet(demo.sample_data() / "changes.parquet")
    archive = ba.Archive(made / "archive")
    for table in (archive.read(), ba.read_parquet(made / "changes.parquet")):
        assert table.equals(sample)
    assert not archive.status().missing
    limits = ba.read_network_limits(demo.sample_data() / "network_limits.json")
    written = ba.read_network_limits(made / "network_limits.json")
    assert (written.extra, written.block_height) == (limits.extra, limits.block_height)
    assert ba.read_assets(made / "assets.toml") == demo.sample_assets()
    ba.check_table(archive.read())


def test_a_few_segments_are_imported_and_agree_with_their_ledger(made):
    history, table = ba.Archive(made / "history"), ba.Archive(made / "archive").read()
    sample = table[table["timestamp"] < history.coverage()["end"].max()]
    pd.testing.assert_frame_equal(history.read(), ba.to_table(sample))
    assert not ba.deltas(history.read())["delta"].isna().any()


def test_the_segments_are_those_of_the_sample(tmp_path):
    make_segments(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path for path in (demo.sample_data() / "segments").iterdir()}
    assert made.keys() == kept.keys()
    for name, path in kept.items():
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / name) as new:
            one, other = ({x: each.read(x) for x in each.namelist()} for each in (old, new))
            assert one == other


def test_there_is_a_picture_of_every_asset(made):
    pictures = [*made.glob("totals-*.png")]
    assert len(pictures) == len(demo.sample_assets())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_server_is_gone_when_its_block_is_interrupted():
    with pytest.raises(KeyboardInterrupt), demo.serve_sample() as url:
        raise KeyboardInterrupt
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)


def test_the_commands_suggested_next_commands_run(demos, monkeypatch):
    out, (said, _) = demos
    monkeypatch.chdir(out.parent)
    serve, report = re.findall("Open next: balance-analysis (.*)", said)
    assert shlex.split(serve) == ["serve", "a demo/archive", "--open"]
    run(*shlex.split(report), "--largest", 0, "--since", "2023-04-30T20:00")
    assert Path("report.html").is_file()
