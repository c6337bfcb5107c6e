"""What is written to the archive is served at once; what happens to it never breaks the service."""

from __future__ import annotations

import shutil
import threading

import pytest

from tests.archive.writing import writer_of
from tests.service.archives import END, Stretch, commit, replace_rows, write_archive
from tests.service.rows import BASE, HOUR, block_of
from tests.serving import answering


def _follow(service, size, newest):
    """Yield the pages of the whole list."""
    asked = {"pagination.first": size, "pagination.newestFirst": newest}
    more = True
    while more:
        page = service.page(asked)
        yield page
        info = page["pageInfo"]
        more, asked["pagination.after"] = info["hasNextPage"], info["endCursor"]


def _move_away(path):
    path.rename(path.with_suffix(".away"))


def _cut(folder):
    for file in folder.glob("*/*"):
        file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        *(("", _move_away), ("_archive.json", _move_away), ("changes", _move_away)),
        ("changes", _cut),
        ("_archive.json", lambda manifest: manifest.write_bytes(b"{}")),
        ("_archive.json", lambda manifest: manifest.write_bytes(b"\xff" * 50)),
    ],
)
def test_an_archive_that_is_damaged_is_an_error_until_it_is_mended(tmp_path, part, damage):
    archive = write_archive(tmp_path / "archive", block_of(20))
    shutil.copytree(tmp_path / "archive", tmp_path / "copy")
    with answering(archive) as service, answering(archive) as other:
        whole = service.page()
        damage(tmp_path / "archive" / part)
        broken = service.get()
        assert other.get().error[:2] == (503, 14)
        shutil.copytree(tmp_path / "copy", tmp_path / "archive", dirs_exist_ok=True)
        assert service.page() == other.page() == whole
    if part == "changes" and broken.status == 200:  # it has read these rows
        assert broken.json() == {"balances": whole}
    else:
        assert broken.error[:2] == (503, 14)


def test_an_answer_is_of_one_state_while_a_day_is_replaced_again_and_again(tmp_path):
    archive = write_archive(tmp_path / "archive", block_of(300))
    versions = [[row._replace(balance=number) for row in block_of(300)] for number in range(2)]
    replace_rows(writer_of(archive), "2023-05-01", versions[0])
    ended, answered = threading.Event(), threading.Semaphore(0)

    def write():
        writer, number = writer_of(archive), 0
        while not ended.is_set():
            number += 1
            replace_rows(writer, "2023-05-01", versions[number % 2])
            for _ in range(2):  # a page that begins after a write sees it, however slow it is
                answered.acquire()

    balances = []
    with answering(archive) as service:
        thread = threading.Thread(target=write)
        thread.start()
        try:
            while len(balances) < 30 or ({"0"} not in balances or {"1"} not in balances):
                edges = service.page()["edges"]
                balances.append({edge["node"]["balance"] for edge in edges})
                answered.release()
                assert (len(edges), len(balances[-1])) == (300, 1)
                assert len(balances) < 3000
        finally:
            ended.set()
            answered.release(2)
            thread.join()


@pytest.mark.parametrize("partition", ["day", "hour"])
@pytest.mark.parametrize("newest", ["true", "false"])
def test_what_is_written_is_served_at_once_and_paging_meanwhile_loses_no_row(
    tmp_path, newest, partition
):
    times = range(BASE - HOUR, BASE + 4 * HOUR, HOUR // 4)
    rows = [row for time in times for row in block_of(9, time=time)]
    known = BASE + HOUR // 8
    begun = [Stretch(BASE - HOUR, known)]
    archive = write_archive(tmp_path / "archive", rows, stretches=begun, partition=partition)
    writer = writer_of(archive)
    at_first = {(f"{row.time}000", row.party_id) for row in rows if row.time < known}
    visited = []
    with answering(archive) as service:
        for number, page in enumerate(_follow(service, 7, newest)):
            nodes = [edge["node"] for edge in page["edges"]]
            visited += [(node["timestamp"], node["partyId"]) for node in nodes]
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
    with answering(archive) as service:
        whole = service.page()["edges"]
        gone = whole[7]
        kept = [row for row in rows if row.node != gone["node"]]
        replace_rows(writer_of(archive), "2023-05-01", kept)
        rest = service.get({"pagination.after": gone["cursor"]})
        assert service.page({"pagination.after": whole[6]["cursor"]})["edges"] == whole[8:]
    if rest.status == 200:
        assert rest.json()["balances"]["edges"] == whole[8:]
    else:
        assert rest.error[:2] == (400, 3)
