import os
import pickle

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import END, MONTH, START, loaded, node_of, run_export, spread_history


@pytest.fixture(params=["folder", "file URL", "S3"])
def place(request, tmp_path):
    if request.param == "S3":
        return request.getfixturevalue("address").replace("/a?", "/deep/archive?")
    folder = tmp_path / "deep" / "archive"
    return folder if request.param == "folder" else f"file://{folder}"


def test_files_are_kept_under_their_names(place):
    store = ba.Archive(place).store
    assert (list(store.names()), store.read("a/z")) == ([], None)
    store.delete("a/z")
    for name, content in (("b", b""), ("a/z", b"one"), ("a/b/c", b""), ("a/z", b"two")):
        store.write(name, content)
    assert list(store.names()) == ["a/b/c", "a/z", "b"]
    assert store.read("a/z") == b"two"
    with store.open("a/z") as file:
        assert file.read_at(1, 2) == b"o"
    store.delete("a/z")
    assert (list(store.names()), store.read("a/z")) == (["a/b/c", "b"], None)


def test_an_archive_is_filled_and_read_wherever_it_is(place):
    node = node_of(spread_history(4))
    run_export(node, place, start=START, end=MONTH, partition="month")
    run_export(node, place, end=END)
    expected = loaded(node, START, END)
    pd.testing.assert_frame_equal(ba.Archive(place).read(), expected)


def test_a_pickled_archive_is_the_same_one_from_another_directory(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = ba.Archive(place if isinstance(place, str) else os.path.relpath(place))
    archive.store.write("a", b"1")
    pickled = pickle.dumps(archive)
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).store.read("a") == b"1"


def test_a_missing_bucket_is_named(address):
    address = address.replace("s3://", "s3://nowhere-")
    with pytest.raises(ba.ArchiveError, match=r"s3://nowhere-.*is not an archive"):
        ba.Archive(address).coverage()
    with node_of([]) as node, pytest.raises(OSError, match=r"s3://nowhere-.*NoSuchBucket"):
        run_export(node, address, start=START, end=END)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://key:secret@bucket/archive", "credentials"),
        ("gs://key@bucket/x", "credentials"),
        ("ftp://host/archive", "ftp://host/archive can't be used"),
    ],
)
def test_credentials_in_an_address_and_an_unknown_kind_are_refused(address, said):
    with pytest.raises(ba.ArchiveError, match=said) as caught:
        ba.Archive(address)
    assert "secret" not in str(caught.value)


def test_an_at_sign_after_the_bucket_is_not_a_credential(address):
    store = ba.Archive(address.replace("/a?", "/team@example/x?")).store
    store.write("a@b", b"1")
    assert store.read("a@b") == b"1"
    assert store.uri.endswith("/team@example/x")  # without the query after a question mark
