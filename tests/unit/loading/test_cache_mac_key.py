"""The key that authenticates indexes: the user's alone, made once, and never replaced while it is good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.loading.cache.store import DamagedKeyError, IndexFolder, read_key, read_or_make_key, why_no_key

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file in a state folder that does not exist yet."""
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "key"


@pytest.fixture
def cabinet(tmp_path: Path, key_file: Path) -> IndexFolder:
    """A folder with one index, under the key `k`."""
    cabinet = IndexFolder(str(tmp_path / "index"))
    cabinet.write(b"k", b"body")
    assert bytes(cabinet.read(b"k")) == b"body"
    return cabinet


def test_a_key_is_made_once(key_file):
    assert why_no_key() == ""
    with pytest.raises(FileNotFoundError):
        read_key()
    assert not key_file.parent.exists()
    key = read_or_make_key()
    assert len(key) == 32
    assert key == read_key() == read_or_make_key() == key_file.read_bytes()
    assert why_no_key() == ""
    assert [*key_file.parent.iterdir()] == [key_file]


@POSIX
def test_the_key_is_the_users_alone(key_file):
    before = os.umask(0)
    try:
        read_or_make_key()
    finally:
        os.umask(before)
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert key_file.parent.stat().st_mode & 0o777 == 0o700


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_read_or_write_is_not_used(cabinet, key_file, mode):
    key_file.chmod(mode)
    with pytest.raises(PermissionError, match="others may read or write its key file"):
        cabinet.read(b"k")
    with pytest.raises(PermissionError):
        cabinet.write(b"k", b"other")
    assert cabinet.why_unused() == f"others may read or write its key file {key_file}"
    key_file.chmod(0o600)
    assert bytes(cabinet.read(b"k")) == b"body"


@POSIX
def test_a_key_of_another_user_is_not_used(cabinet, key_file, monkeypatch):
    owner = key_file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_key()


@POSIX
def test_a_key_in_a_folder_that_others_may_write_to_is_not_used(cabinet, key_file):
    key_file.parent.chmod(0o777)
    expected = f"its key cannot be kept in {key_file.parent}: others can write to it"
    for attempt in (read_key, read_or_make_key):
        with pytest.raises(PermissionError) as raised:
            attempt()
        assert str(raised.value) == expected
    assert why_no_key() == expected
    key_file.unlink()
    with pytest.raises(PermissionError) as raised:
        read_or_make_key()
    assert str(raised.value) == expected == why_no_key()
    assert not key_file.exists()


@POSIX
def test_a_link_in_place_of_the_key_is_not_used(cabinet, key_file, tmp_path):
    moved = key_file.rename(tmp_path / "elsewhere")
    key_file.symlink_to(moved)
    with pytest.raises(OSError, match="symbolic links"):
        cabinet.read(b"k")
    with pytest.raises(OSError, match="symbolic links"):
        cabinet.write(b"k", b"other")
    assert "cannot read its key" in why_no_key()


@POSIX
def test_a_pipe_or_folder_in_place_of_the_key_is_not_used(cabinet, key_file):
    for make in (os.mkfifo, os.mkdir):
        key_file.unlink()
        make(key_file, 0o600)
        with pytest.raises(PermissionError, match="not a regular file"):
            cabinet.read(b"k")
        if make is os.mkdir:
            key_file.rmdir()
            key_file.touch()


@pytest.mark.parametrize("content", [b"", b"short", b"k" * 31, b"k" * 33])
def test_a_damaged_key_is_replaced_by_the_next_writer(cabinet, key_file, content):
    key_file.write_bytes(content)
    with pytest.raises(DamagedKeyError):
        cabinet.read(b"k")
    assert why_no_key() == ""
    cabinet.write(b"k", b"new")
    assert bytes(cabinet.read(b"k")) == b"new"
    assert key_file.read_bytes() != content


def test_an_index_of_another_key_is_not_read(cabinet, key_file):
    key_file.unlink()
    with pytest.raises(FileNotFoundError):
        cabinet.read(b"k")
    read_or_make_key()
    assert cabinet.read(b"k") is None


@pytest.mark.parametrize("place", ["state", "index"])
def test_nothing_is_kept_in_a_work_tree(cabinet, key_file, tmp_path, place):
    folder = tmp_path / place
    (folder / ".git").mkdir()
    if place == "state":
        with pytest.raises(PermissionError, match="is in the work tree"):
            cabinet.read(b"k")
        expected = f"the folder of its key, {folder}, is in the work tree {folder}"
    else:
        assert cabinet.read(b"k") is None
        expected = f"it is in the work tree {folder}"
    assert cabinet.why_unused() == expected
    with pytest.raises(PermissionError, match="is in the work tree"):
        cabinet.write(b"k", b"other")
    (folder / ".git").rmdir()
    assert cabinet.why_unused() == ""
    assert bytes(cabinet.read(b"k")) == b"body"


def test_no_folder_is_made_in_a_work_tree(tmp_path, monkeypatch):
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(PermissionError):
        read_or_make_key()
    assert why_no_key() == f"the folder of its key, {tmp_path / 'state'}, is in the work tree {tmp_path}"
    with pytest.raises(PermissionError):
        IndexFolder(str(tmp_path / "index")).write(b"k", b"body")
    assert [*tmp_path.iterdir()] == [tmp_path / ".git"]


def test_without_a_state_folder_there_is_no_key(monkeypatch):
    monkeypatch.delenv("TOOLCRIB_STATE_DIR")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert why_no_key() == "there is no folder for its key; set TOOLCRIB_STATE_DIR"
    with pytest.raises(OSError, match="there is no folder for its key"):
        read_or_make_key()


def test_a_file_system_without_hard_links_keeps_a_key(key_file, monkeypatch):
    def no_links(_from: str, _to: str) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    key = read_or_make_key()
    assert read_or_make_key() == key
    assert [*key_file.parent.iterdir()] == [key_file]


def test_a_process_that_is_slower_takes_the_key_of_the_other(key_file, monkeypatch):
    others = b"o" * 32
    key_file.parent.mkdir(mode=0o700)

    def link_later(draft: str, path: str) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(handle, others)
        os.close(handle)
        raise FileExistsError(path)

    monkeypatch.setattr(os, "link", link_later)
    assert read_or_make_key() == others
    assert [*key_file.parent.iterdir()] == [key_file]


def test_a_full_disk_leaves_no_half_of_a_key(key_file, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:5]))
    with pytest.raises(OSError, match="no space left"):
        read_or_make_key()
    assert [*key_file.parent.iterdir()] == []


MAKER = "from toolcrib.loading.cache.store import read_or_make_key\nprint(read_or_make_key().hex())"


def test_processes_that_start_at_once_agree_on_a_key(key_file):
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER], stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert len({maker.communicate(timeout=60)[0] for maker in makers}) == 1
    assert [*key_file.parent.iterdir()] == [key_file]
