"""The user's cache and state folders, and the checks that a folder is safe to use."""

from __future__ import annotations

import os
import sys

import pytest

from toolcrib.core.user_folders import (
    cache_folder,
    find_work_tree,
    state_folder,
    why_unused,
    why_writable_by_others,
)

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes of folders are POSIX's")

FOLDERS = {
    "cache": (
        cache_folder,
        "TOOLCRIB_CACHE_DIR",
        "XDG_CACHE_HOME",
        "/home/somebody/.cache/toolcrib",
        "/home/somebody/Library/Caches/toolcrib",
        "/app/toolcrib",
    ),
    "state": (
        state_folder,
        "TOOLCRIB_STATE_DIR",
        "XDG_STATE_HOME",
        "/home/somebody/.local/state/toolcrib",
        "/home/somebody/Library/Application Support/toolcrib",
        "/app/toolcrib/state",
    ),
}


@pytest.mark.parametrize(
    ("folder", "variable", "xdg", "linux", "mac", "windows"), FOLDERS.values(), ids=FOLDERS
)
def test_the_folder_on_each_system(folder, variable, xdg, linux, mac, windows, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, str(tmp_path / "told"))
    assert folder() == str(tmp_path / "told")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "told")
    assert folder() == str(tmp_path / "told")
    monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv(xdg, "/xdg")
    assert folder() == "/xdg/toolcrib"
    monkeypatch.setenv(xdg, "")
    assert folder() == linux
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder() == mac
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/app")
    assert folder() == windows
    monkeypatch.delenv("LOCALAPPDATA")
    assert folder() is None


def test_a_folder_in_a_work_tree_names_its_top(tmp_path):
    assert find_work_tree(str(tmp_path / "a" / "b")) == ""
    (tmp_path / "a" / ".git").mkdir(parents=True)
    for folder in (tmp_path / "a", tmp_path / "a" / "not" / "there"):
        assert find_work_tree(str(folder)) == str(tmp_path / "a")
    assert find_work_tree(str(tmp_path / "other")) == ""
    (tmp_path / "a" / "b").mkdir()
    (tmp_path / "a" / "b" / ".git").write_text("gitdir: elsewhere")
    assert find_work_tree(str(tmp_path / "a" / "b" / "c")) == str(tmp_path / "a" / "b")


@POSIX
def test_a_link_into_or_out_of_a_work_tree_counts(tmp_path):
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "inward").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / "outward").symlink_to(tmp_path / "plain")
    for folder in ("plain/inward", "plain/inward/index", "tree/outward", "tree/outward/index"):
        assert find_work_tree(str(tmp_path / folder)) == str(tmp_path / "tree")
    assert find_work_tree(str(tmp_path / "plain" / "index")) == ""


@POSIX
def test_why_a_folder_is_unused(tmp_path):
    assert why_unused(str(tmp_path)) == ""
    assert why_unused(str(tmp_path / "new" / "deep")) == ""
    (tmp_path / "file").touch()
    assert why_unused(str(tmp_path / "file")) == "it is not a folder"
    assert why_unused(str(tmp_path / "file" / "inner")) == "one of its parents is not a folder"
    (tmp_path / "loop").symlink_to("loop")
    assert why_unused(str(tmp_path / "loop" / "inner")).startswith("cannot access it: ")
    tmp_path.chmod(0o770)
    assert why_unused(str(tmp_path)) == "others can write to it"
    tmp_path.chmod(0o700)


@POSIX
def test_a_folder_of_somebody_else_is_not_the_users(tmp_path, monkeypatch):
    found = tmp_path.stat()
    assert why_writable_by_others(found) == ""
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + 1)
    assert why_writable_by_others(found) == "it belongs to another user"
