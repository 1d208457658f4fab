"""Where a project's file is looked for, and where the search ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.loading.project_discovery import (
    PROJECT_FILES,
    candidate_folders,
    find_project,
    other_project_files,
    project_file,
)


@pytest.fixture
def folders(tmp_path, monkeypatch) -> Path:
    """`a/b/c` within a home folder."""
    home = tmp_path / "home"
    (home / "a" / "b" / "c").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    return home


def put(folder: Path, name: str = "toolcrib.yaml") -> str:
    (folder / name).write_text("project: p\n", encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize("name", PROJECT_FILES)
def test_the_nearest_folder_above_counts(folders, name):
    far, near = put(folders / "a"), put(folders / "a" / "b", name)
    assert find_project(folders / "a" / "b" / "c") == near
    assert find_project(folders / "a" / "b") == near
    assert find_project(folders / "a") == far


def test_a_file_that_is_found_is_named_as_the_folder_is(folders, monkeypatch):
    put(folders / "a")
    monkeypatch.chdir(folders / "a" / "b")
    assert find_project() == str(Path("..", "toolcrib.yaml"))
    assert find_project("c") == str(Path("..", "toolcrib.yaml"))
    monkeypatch.chdir(folders / "a")
    assert find_project() == "toolcrib.yaml"
    assert find_project("b/c") == "toolcrib.yaml"
    assert find_project(folders / "a") == str(folders / "a" / "toolcrib.yaml")


def test_the_search_ends_at_the_home_folder(folders):
    put(folders.parent)
    assert find_project(folders / "a" / "b") is None
    assert list(candidate_folders(folders / "a" / "b")) == [
        str(folders / "a" / "b"),
        str(folders / "a"),
        str(folders),
    ]
    at_home = put(folders)
    assert find_project(folders / "a") == at_home


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_search_ends_at_a_repository(folders, kind):
    git = folders / "a" / "b" / ".git"
    git.mkdir() if kind == "folder" else git.write_text("gitdir: elsewhere\n", encoding="utf-8")
    put(folders / "a")
    assert find_project(folders / "a" / "b" / "c") is None
    within = put(folders / "a" / "b")
    assert find_project(folders / "a" / "b" / "c") == within


def test_nothing_is_taken_from_a_folder_above_into_which_everybody_may_put_files(folders):
    shared = folders / "a"
    shared.chmod(0o1777)
    planted = put(shared)
    assert find_project(shared / "b" / "c") is None
    assert list(candidate_folders(shared / "b")) == [str(shared / "b")]
    assert find_project(shared) == planted, "who stands in it sees what lies there"


def test_where_the_working_directory_is_gone_there_is_no_place(folders, monkeypatch):
    monkeypatch.chdir(folders / "a" / "b" / "c")
    (folders / "a" / "b" / "c").rmdir()
    assert list(candidate_folders()) == []
    assert find_project() is None


def test_the_root_is_the_last_place(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere/at/all")
    assert list(candidate_folders("/usr/lib")) == ["/usr/lib", "/usr", "/"]


def test_a_folder_of_that_name_is_no_project(folders):
    (folders / "a" / "toolcrib.yaml").mkdir()
    assert project_file(folders / "a") is None
    assert project_file(folders / "nowhere") is None


def test_of_several_files_in_one_folder_the_first_name_counts(folders):
    second, first = put(folders, "toolcrib.json"), put(folders, "toolcrib.yaml")
    assert project_file(folders) == first
    assert other_project_files(first) == [second]
