"""New rows are served at once, and no damage to the archive breaks the service."""

import shutil

import pytest

from tests.archive.writing import writer_of
from tests.service.archives import END, Stretch, commit, replace_rows, write_archive
from tests.service.rows import BASE, HOUR, block_of
from tests.serving import answering


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
def test_a_damaged_archive_is_an_error_until_it_is_repaired(tmp_path, part, damage):
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


@pytest.mark.parametrize("partition", ["day", "hour"])
@pytest.mark.parametrize("newest", ["true", "false"])
def test_new_rows_are_served_at_once_and_paging_loses_no_row(tmp_path, newest, partition):
    times = range(BASE - HOUR, BASE + 4 * HOUR, HOUR // 4)
    rows = [row for time in times for row in block_of(9, time=time)]
    known = BASE + HOUR // 8
    begun = [Stretch(BASE - HOUR, known)]
    archive = write_archive(tmp_path / "archive", rows, stretches=begun, partition=partition)
    writer = writer_of(archive)
    at_first = {(f"{row.time}000", row.party_id) for row in rows if row.time < known}
    visited, asked = [], {"pagination.first": 7, "pagination.newestFirst": newest}
    with answering(archive) as service:
        for number, page in enumerate(service.pages(asked)):
            nodes = [edge["node"] for edge in page["edges"]]
            visited += [(node["timestamp"], node["partyId"]) for node in nodes]
            step = Stretch(known + number * HOUR // 3, known + (number + 1) * HOUR // 3)
            if step.end < END:
                commit(writer, rows, step)
    assert len(visited) == len(set(visited))
    assert [place for place in at_first if place not in visited] == []
    if newest == "false":
        assert len(visited) == len(rows)


def test_a_cursor_whose_row_is_gone_is_refused_or_continues_from_its_place(tmp_path):
    rows = block_of(20)
    archive = write_archive(tmp_path / "archive", rows)
    with answering(archive) as service:
        whole = service.page()["edges"]
        gone = whole[7]
        kept = [row for row in rows if row.to_json() != gone["node"]]
        replace_rows(writer_of(archive), "2023-05-01", kept)
        rest = service.get({"pagination.after": gone["cursor"]})
        assert service.page({"pagination.after": whole[6]["cursor"]})["edges"] == whole[8:]
    if rest.status == 200:
        assert rest.json()["balances"]["edges"] == whole[8:]
    else:
        assert rest.error[:2] == (400, 3)
