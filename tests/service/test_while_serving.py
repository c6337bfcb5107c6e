"""What is written to the archive is served at once; what happens to it never breaks the service."""

from __future__ import annotations

import shutil
import threading

import pytest
import requests

from balance_analysis import Archive, Client, load_balance_changes, repair
from tests.archive import exporting
from tests.archive.exporting import DAY, node_of, run_export, spread_history
from tests.archive.writing import writer_of
from tests.moments import from_microseconds
from tests.node.truth import lines_of_rows, lines_of_table
from tests.service.archives import END, Stretch, commit, replace_rows, write_archive
from tests.service.conftest import CHANGES, read_error
from tests.service.rows import BASE, HOUR, block_of
from tests.serving import serving

ROWS = spread_history(9, rows=120, accounts=20)


def _page(url, **asked):
    names = {"first": "pagination.first", "after": "pagination.after"}
    names |= {"newest": "pagination.newestFirst"}
    parameters = {names[name]: value for name, value in asked.items()}
    response = requests.get(url + CHANGES, params=parameters, timeout=20)
    assert response.status_code == 200, response.text
    return response.json()["balances"]


def _places(page):
    return [(edge["node"]["timestamp"], edge["node"]["partyId"]) for edge in page["edges"]]


def _follow(url, size, newest):
    """Yield the pages of the whole list."""
    asked = {"first": size, "newest": newest}
    more = True
    while more:
        page = _page(url, **asked)
        yield page
        more, asked["after"] = page["pageInfo"]["hasNextPage"], page["pageInfo"]["endCursor"]


def _loaded(url):
    bounds = (from_microseconds(moment) for moment in (exporting.START, exporting.END))
    with Client(url, timeout=20) as client:
        return lines_of_table(
            load_balance_changes(client, **dict(zip(("start", "end"), bounds, strict=True)))
        )


def assert_right_or_unavailable(response, whole):
    """What the service has read before it may answer still."""
    if response.status_code == 200:
        assert response.json() == {"balances": whole}
    else:
        assert (response.status_code, read_error(response.json())[0]) == (503, 14)


@pytest.mark.parametrize("torn", [False, True])
def test_what_an_export_was_about_to_write_first_of_a_day_is_not_missed(tmp_path, torn):
    quiet, rows = Stretch(BASE + 1, BASE + 2), [*block_of(1, BASE), *block_of(1, BASE + 2)]
    archive = write_archive(tmp_path / "archive", stretches=(quiet,), beyond=rows, torn=torn)
    with serving(archive) as url:
        assert _page(url, first=5)["edges"] == []


@pytest.mark.parametrize("partition", ["day", "month"])
def test_an_export_is_served_as_soon_as_it_is_committed(tmp_path, partition):
    folder, middle = tmp_path / "archive", exporting.START + 2 * DAY
    with node_of(ROWS) as node:
        run_export(node, folder, start=exporting.START, end=middle, partition=partition)
        with serving(Archive(folder)) as url:
            before = _loaded(url)
            run_export(node, folder, end=exporting.END, partition=partition)
            after = _loaded(url)
    assert before == lines_of_rows(row for row in ROWS if row.timestamp_ns < middle * 1000)
    assert after == lines_of_rows(ROWS)


def test_a_repaired_archive_is_served(tmp_path):
    folder = tmp_path / "archive"
    with node_of(ROWS) as node, Client(node.url) as client:
        run_export(node, folder, start=exporting.START, end=exporting.END)
        with serving(Archive(folder)) as url:
            whole = _loaded(url)
            first = _page(url)
            for file in folder.glob("changes/*/*"):
                file.write_bytes(file.read_bytes()[:-100])
            broken = requests.get(url + CHANGES, timeout=20)
            with serving(Archive(folder)) as other:
                unread = requests.get(other + CHANGES, timeout=20)
            repair(client, Archive(folder))
            again = _loaded(url)
    assert_right_or_unavailable(broken, first)
    assert (unread.status_code, read_error(unread.json())[0]) == (503, 14)
    assert again == whole == lines_of_rows(ROWS)


def _move_away(folder):
    folder.rename(folder.with_suffix(".away"))


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        *(("", _move_away), ("_archive.json", _move_away), ("changes", _move_away)),
        ("_archive.json", lambda manifest: manifest.write_bytes(b"{}")),
        ("_archive.json", lambda manifest: manifest.write_bytes(b"\xff" * 50)),
    ],
)
def test_an_archive_that_is_damaged_is_an_error_until_it_is_mended(tmp_path, part, damage):
    write_archive(tmp_path / "archive", block_of(20))
    shutil.copytree(tmp_path / "archive", tmp_path / "copy")
    with serving(Archive(tmp_path / "archive")) as url:
        whole = _page(url)
        damage(tmp_path / "archive" / part)
        broken = requests.get(url + CHANGES, timeout=20)
        shutil.copytree(tmp_path / "copy", tmp_path / "archive", dirs_exist_ok=True)
        again = _page(url)
    assert_right_or_unavailable(broken, whole)
    assert broken.status_code == 503 or part == "changes"
    assert again == whole


def test_an_answer_is_of_one_state_while_a_day_is_replaced_again_and_again(tmp_path):
    archive = write_archive(tmp_path / "archive", block_of(300))
    versions = [[row._replace(balance=number) for row in block_of(300)] for number in range(2)]
    replace_rows(writer_of(archive), "2023-05-01", versions[0])
    ended = threading.Event()

    def write():
        writer, number = writer_of(archive), 0
        while not ended.is_set():
            number += 1
            replace_rows(writer, "2023-05-01", versions[number % 2])

    balances = []
    with serving(archive) as url:
        thread = threading.Thread(target=write)
        thread.start()
        try:
            while len(balances) < 30 or ({"0"} not in balances or {"1"} not in balances):
                edges = _page(url)["edges"]
                balances.append({edge["node"]["balance"] for edge in edges})
                assert (len(edges), len(balances[-1])) == (300, 1)
                assert len(balances) < 3000
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("newest", ["true", "false"])
def test_paging_during_an_export_loses_no_row(tmp_path, newest):
    times = range(BASE - HOUR, BASE + 4 * HOUR, HOUR // 4)
    rows = [row for time in times for row in block_of(9, time=time)]
    known = BASE + HOUR // 8
    archive = write_archive(tmp_path / "archive", rows, stretches=[Stretch(BASE - HOUR, known)])
    writer = writer_of(archive)
    at_first = {(f"{row.time}000", row.party_id) for row in rows if row.time < known}
    visited = []
    with serving(archive) as url:
        for number, page in enumerate(_follow(url, 7, newest)):
            visited += _places(page)
            step = Stretch(known + number * HOUR // 3, known + (number + 1) * HOUR // 3)
            if step.end < END:
                commit(writer, rows, step)
    assert len(visited) == len(set(visited))
    assert [place for place in at_first if place not in visited] == []
    if newest == "false":
        assert len(visited) == len(rows)


def test_a_cursor_whose_row_is_gone_is_refused_or_goes_on_from_its_place(tmp_path):
    rows = block_of(20)
    archive = write_archive(tmp_path / "archive", rows)
    with serving(archive) as url:
        whole = _page(url)["edges"]
        gone = whole[7]
        kept = [row for row in rows if row.node != gone["node"]]
        replace_rows(writer_of(archive), "2023-05-01", kept)
        asked = {"pagination.after": gone["cursor"]}
        rest = requests.get(url + CHANGES, params=asked, timeout=20)
        others = _page(url, after=whole[6]["cursor"])["edges"]
    assert others == whole[8:]
    if rest.status_code == 200:
        assert rest.json()["balances"]["edges"] == whole[8:]
    else:
        assert (rest.status_code, read_error(rest.json())[0]) == (400, 3)
