"""The demo does the whole main job over HTTP, and ends clean."""

from __future__ import annotations

import shlex
import shutil
import threading
import time
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
def result(tmp_path_factory):
    said = []
    made = demo.run_demo(tmp_path_factory.mktemp("demo") / "out", say=said.append)
    assert len(said) == 5
    return made


def test_a_second_demo_finds_its_archive_and_nothing_new(result, tmp_path_factory):
    said, out = [], tmp_path_factory.mktemp("demo") / "out"
    shutil.copytree(result.files[0].parent, out)
    again = demo.run_demo(out, say=said.append)
    assert again.table.equals(result.table)
    assert "Exported 0 balance changes" in said[1]


def test_the_archive_is_complete(result):
    assert result.status.rows == len(result.table)
    assert not result.status.gaps


def test_the_archive_holds_the_sample(result):
    sample = ba.read_parquet(demo.sample_data() / "changes.parquet")
    for table in (result.table, ba.read_parquet(result.files[0])):
        assert table.equals(sample)
    limits = ba.read_network_limits(demo.sample_data() / "network_limits.json")
    written = ba.read_network_limits(result.files[1])
    assert written == result.limits
    assert (written.extra, written.block_height) == (limits.extra, limits.block_height)
    assert len(result.summary) == len(sample[ba.ACCOUNT_KEY].drop_duplicates())
    ba.check_table(result.table)


def test_a_few_segments_are_imported_and_agree_with_their_ledger(result):
    history = ba.Archive(result.files[0].parent / "history")
    sample = result.table[result.table["timestamp"] < history.coverage()["end"].max()]
    pd.testing.assert_frame_equal(history.read(), ba.to_table(sample))
    assert not ba.deltas(history.read())["delta"].isna().any()


def test_the_segments_are_those_of_the_sample(tmp_path):
    make_segments(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path for path in (demo.sample_data() / "segments").iterdir()}
    assert made.keys() == kept.keys()
    for name, path in kept.items():
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / name) as new:
            assert {x: old.read(x) for x in old.namelist()} == {
                x: new.read(x) for x in new.namelist()
            }


def test_the_assets_beside_it_are_those_of_the_archive(result):
    assert ba.read_assets(result.files[2]) == demo.sample_assets()


def test_there_is_a_picture_of_every_asset(result):
    pictures = result.files[3:]
    assert len(pictures) == len(demo.sample_assets())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_server_is_gone_when_its_block_is_interrupted():
    before = threading.active_count()
    urls = []

    def interrupted():
        with demo.serve_sample() as url:
            urls.append(f"{url}/api/v2/network/limits")
            assert requests.get(urls[0], timeout=5).ok
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    patience = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < patience:
        time.sleep(0.01)
    assert threading.active_count() <= before
    with pytest.raises(requests.ConnectionError):
        requests.get(urls[0], timeout=5)


def test_what_the_command_names_to_open_next_is_there_and_runs(result, tmp_path, monkeypatch):
    def made(out, *, say):
        shutil.copytree(result.files[0].parent, out)
        return result

    monkeypatch.setattr("balance_analysis.demo.run_demo", made)
    monkeypatch.chdir(tmp_path)
    _, said = run("demo", "--out", "a demo").stderr.split("Open next:\n")
    picture, explore, report, plot, notebook = (line.strip() for line in said.splitlines())
    assert Path(picture.partition(",")[0]).is_file()
    assert Path(notebook.partition(",")[0]).is_file()
    assert (" explore " in explore, " report " in report) == (True, True)
    words = shlex.split(plot)
    run(*words[words.index("plot") :])
    assert Path("a demo", "totals.png").is_file()
