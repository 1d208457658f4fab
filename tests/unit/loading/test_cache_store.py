"""The files of the index: whole or not there, never trusted, never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept import Shelf, assert_same, write_project
from sampling import examples, sample
from toolcrib.loading.cache.header import index_key
from toolcrib.loading.cache.index import default_index
from toolcrib.loading.cache.store import BYTES, FILES, IndexFolder


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A project in the working directory, kept."""
    monkeypatch.chdir(write_project(tmp_path / "project"))
    shelf = Shelf(tmp_path / "index")
    shelf.keep()
    return shelf


def test_a_file_that_ends_anywhere_is_no_index(shelf):
    file, whole = shelf.file(), shelf.file().read_bytes()
    for length in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        file.write_bytes(whole[:length])
        assert shelf.recall() is None
    file.write_bytes(whole)
    assert shelf.recall() is not None


@pytest.mark.exhaustive
def test_a_flipped_bit_anywhere_is_no_index(shelf):
    file, whole = shelf.file(), bytearray(shelf.file().read_bytes())
    for at in [*range(200), *range(200, len(whole), 41)]:
        whole[at] ^= 1 << at % 8
        file.write_bytes(whole)
        assert shelf.recall() is None
        whole[at] ^= 1 << at % 8
    file.write_bytes(whole)
    assert shelf.recall() is not None


@given(data=st.data())
@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_becomes_of_the_file_it_is_whole_or_no_index(shelf, data):
    file = shelf.file()
    whole = file.read_bytes()
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 4096)))
    harmed = whole[:begin] + data.draw(st.binary(max_size=64)) + whole[end:]
    file.write_bytes(harmed)
    try:
        assert (shelf.recall() is not None) == (harmed == whole)
    finally:
        file.write_bytes(whole)


MAGIC = b"toolcrib index 3\n"

FORGED = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=300).map(MAGIC.__add__),
    st.tuples(
        st.sampled_from([0, 1, 129, 2**31, 2**63, 2**64 - 1]), st.binary(min_size=64, max_size=200)
    ).map(lambda drawn: MAGIC + drawn[0].to_bytes(8, "big") + drawn[1]),
)
"""Files as somebody without the key makes them."""


@given(content=FORGED)
@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_that_was_made_without_the_key_is_no_index(shelf, content):
    file = shelf.file()
    whole = file.read_bytes()
    file.write_bytes(content)
    try:
        assert shelf.recall() is None
        assert IndexFolder(str(shelf.folder)).read(shelf.key) is None
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "harm",
    sample(
        [
            lambda data: MAGIC + (2**64 - 1).to_bytes(8, "big") + data[len(MAGIC) + 8 :],
            lambda data: MAGIC + (1).to_bytes(8, "big") + data[len(MAGIC) + 8 :],
            lambda data: os.urandom(len(data)),
            lambda data: MAGIC + os.urandom(len(data)),
        ],
        one_in=2,
    ),
    ids=sample(
        ["a huge length", "a short body", "random bytes", "random bytes behind the magic line"], one_in=2
    ),
)
def test_no_length_is_used_before_the_header_is_authentic(shelf, monkeypatch, harm):
    file = shelf.file()
    file.write_bytes(harm(file.read_bytes()))
    read, lengths = os.read, []
    monkeypatch.setattr(os, "read", lambda handle, length: lengths.append(length) or read(handle, length))
    cabinet = IndexFolder(str(shelf.folder))
    assert cabinet.read(shelf.key) is None
    assert max(lengths) < 200


def test_a_file_that_is_larger_than_all_may_be_is_not_read(tmp_path):
    cabinet = IndexFolder(str(tmp_path / "index"))
    cabinet.write(b"key", b"body")
    os.truncate(cabinet.path(b"key"), BYTES + 1)
    assert cabinet.read(b"key") is None


@pytest.mark.skipif(os.name != "posix", reason="links need a privilege elsewhere")
def test_a_link_in_place_of_the_file_is_replaced(shelf, tmp_path):
    file = shelf.file()
    moved = file.rename(tmp_path / "elsewhere")
    file.symlink_to(moved)
    assert shelf.recall() is None
    cold = shelf.keep()
    assert not file.is_symlink()
    assert_same(shelf.recall(), cold)


def test_a_file_of_another_format_is_no_index(shelf):
    file = shelf.file()
    file.write_bytes(file.read_bytes().replace(b"toolcrib index 3\n", b"toolcrib index 2\n"))
    assert shelf.recall() is None
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)


def test_the_file_of_another_key_is_no_index(shelf):
    file = shelf.file()
    other = shelf.of("team")
    other.keep()
    (theirs,) = {*shelf.folder.iterdir()} - {file}
    theirs.replace(file)
    assert shelf.recall() is None


def test_an_empty_folder_in_place_of_the_file_is_replaced(shelf):
    file = shelf.file()
    file.unlink()
    file.mkdir()
    assert shelf.recall() is None
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)
    assert [*shelf.folder.iterdir()] == [file]


def test_a_folder_with_files_in_place_of_the_file_is_left_alone(shelf, caplog):
    file = shelf.file()
    file.unlink()
    (file / "within").mkdir(parents=True)
    with caplog.at_level("DEBUG", "toolcrib"):
        assert shelf.recall() is None
        shelf.keep()
    assert "an index was not written" in caplog.text
    assert [*shelf.folder.iterdir()] == [file]


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes in folders elsewhere")
def test_a_pipe_in_place_of_the_file_is_replaced(shelf):
    file = shelf.file()
    file.unlink()
    os.mkfifo(file)
    assert shelf.recall() is None
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)


def test_a_pipe_or_nothing_in_place_of_the_folder(shelf, tmp_path):
    for folder in (tmp_path / "project" / "toolcrib.yaml", tmp_path / "project" / "toolcrib.yaml" / "below"):
        none = Shelf(folder)
        none.keep()
        assert none.recall() is None


def test_a_folder_that_others_may_write_to_is_not_used(shelf):
    shelf.folder.chmod(0o777)
    assert shelf.recall() is None
    shelf.file().unlink()
    shelf.keep()
    assert [*shelf.folder.iterdir()] == []


def test_folder_and_file_are_the_users_alone(shelf):
    assert shelf.folder.stat().st_mode & 0o777 == 0o700
    assert shelf.file().stat().st_mode & 0o777 == 0o600


FULL_DISK = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kept import Shelf
shelf = Shelf(Path(sys.argv[2]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
shelf.keep()
print(shelf.recall() is None, [*Path(sys.argv[2]).iterdir()])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of this kind")
def test_a_full_disk_leaves_nothing_behind(shelf, tmp_path):
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, tests, str(tmp_path / "full")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True []\n", "")


def test_drafts_that_nobody_finished_are_removed_when_they_are_old(shelf):
    young, old = (Path(f"{shelf.file()}.1.{number}") for number in (1, 2))
    for draft in (young, old):
        draft.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    shelf.of("team").keep()
    assert young.exists()
    assert not old.exists()


def test_what_was_used_longest_ago_is_removed(tmp_path):
    cabinet = IndexFolder(str(tmp_path / "index"))
    for number in range(FILES + 5):
        cabinet.write(b"k" * (number + 1), b"body")
        os.utime(cabinet.path(b"k" * (number + 1)), (number, number))
    cabinet.write(b"last", b"body")
    assert len([*(tmp_path / "index").iterdir()]) == FILES
    assert cabinet.read(b"k") is None
    assert bytes(cabinet.read(b"last")) == b"body"


def test_so_much_is_kept_and_no_more(tmp_path):
    cabinet = IndexFolder(str(tmp_path / "index"))
    cabinet.write(b"small", b"body")
    cabinet.write(b"large", b"body")
    os.truncate(cabinet.path(b"large"), BYTES)
    os.utime(cabinet.path(b"small"), (1, 1))
    cabinet.write(b"next", b"body")
    assert len([*(tmp_path / "index").iterdir()]) == 1


def test_what_is_used_counts_as_young(tmp_path):
    cabinet = IndexFolder(str(tmp_path / "index"))
    cabinet.write(b"key", b"body")
    os.utime(cabinet.path(b"key"), (1, 1))
    assert cabinet.read(b"key") is not None
    assert Path(cabinet.path(b"key")).stat().st_mtime > 1000


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false", " off "])
def test_it_can_be_turned_off(monkeypatch, word):
    assert default_index() is not None
    monkeypatch.setenv("TOOLCRIB_INDEX", word)
    assert default_index() is None


@pytest.mark.parametrize("word", ["", "on", "1", "yes"])
def test_it_is_on_otherwise(monkeypatch, word):
    monkeypatch.setenv("TOOLCRIB_INDEX", word)
    assert default_index() is not None


def test_without_a_cache_folder_there_is_no_index(monkeypatch):
    monkeypatch.delenv("TOOLCRIB_CACHE_DIR")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert default_index() is None


def test_a_working_directory_that_is_gone_has_no_index(shelf, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert index_key(("x",)) is None
