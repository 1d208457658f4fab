"""Paths of calls: links, `..`, look-alike names and races do not lead outside of the allowed folders."""

from __future__ import annotations

import os
import threading

import pytest

from toolcrib.security.path_access import PathAccess, PathArgument, PathRefused, path_arguments


@pytest.fixture
def tree(tmp_path):
    for folder in ("data/sub", "data-private", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("data/a.txt", "data/sub/b.txt", "data-private/c.txt", "other/d.txt", "e.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "data/link").symlink_to(tmp_path / "other")
    (tmp_path / "data/inside").symlink_to(tmp_path / "data/sub")
    (tmp_path / "data/file_link").symlink_to(tmp_path / "e.txt")
    return tmp_path


def access_to(tree):
    return PathAccess(str(tree), read=[str(tree / "data")], write=[str(tree / "data/sub")])


def content(access, path, purpose="read"):
    with os.fdopen(access.open(path, purpose)) as file:
        return file.read()


@pytest.mark.parametrize(
    "path", ["data/a.txt", "./data/sub/../a.txt", "data/inside/b.txt", "data", "data/new.txt"]
)
def test_a_path_inside_is_accepted(tree, path):
    assert access_to(tree).why_refused(path, "read") == ""
    assert access_to(tree).why_refused(str(tree / path), "read") == ""


@pytest.mark.parametrize(
    "path",
    [
        "data-private/c.txt",
        "data/../e.txt",
        "../etc/passwd",
        "/etc/passwd",
        "data/link/d.txt",
        "data/file_link",
        "data/inside/../../e.txt",
        "data/link/../data/../e.txt",
        "e.txt",
        "",
        "data\0/a.txt",
    ],
)
def test_a_path_that_leads_outside_is_refused(tree, path):
    assert access_to(tree).why_refused(path, "read") != ""
    with pytest.raises(PathRefused):
        access_to(tree).open(path, "read")


def test_the_reason_names_where_a_link_leads(tree):
    why = access_to(tree).why_refused("data/link/d.txt", "read")
    assert why == f"it leads to `{tree}/other/d.txt`, which is in none of the folders of `paths.read`"
    assert access_to(tree).why_refused("e.txt", "read") == "it is in none of the folders of `paths.read`"


def test_reading_and_writing_have_their_own_folders(tree):
    access = access_to(tree)
    assert content(access, "data/inside/b.txt") == "data/sub/b.txt"
    with pytest.raises(PathRefused, match="may not be opened to write"):
        access.open("data/a.txt", "write")
    os.close(access.open("data/sub/new.txt", "write"))
    assert (tree / "data/sub/new.txt").read_text() == ""


def test_without_a_list_every_path_is_accepted(tree):
    access = PathAccess(str(tree))
    assert access.why_refused("/etc/passwd", "read") == ""
    assert content(access, "e.txt") == "e.txt"
    assert not access.limits("read")


@pytest.mark.parametrize("last", [True, False])
def test_a_link_that_appears_after_the_check_is_not_followed(tree, last):
    class Swapped(PathAccess):
        """Replaces a part of the path after the last check of it, as an attacker would."""

        checks = 0

        def _folder_of(self, real, purpose):
            found = super()._folder_of(real, purpose)
            self.checks += 1
            target = tree / ("data/sub/b.txt" if last else "data/sub")
            if self.checks == 2:
                target.rename(tree / "moved")
                target.symlink_to(tree / ("e.txt" if last else "data-private"))
            return found

    access = Swapped(str(tree), read=[str(tree / "data")])
    with pytest.raises(PathRefused, match="a part of it became a link during the check"):
        access.open("data/sub/b.txt", "read")


@pytest.mark.exhaustive
def test_a_race_between_two_links_never_opens_a_file_outside(tree):
    """A folder and a link to another one take turns under one name, as fast as possible."""
    (tree / "data/turn").mkdir()
    (tree / "data/turn/x.txt").write_text("inside")
    (tree / "other/x.txt").write_text("outside")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for _ in range(20):
                (tree / "data/turn/x.txt").stat()  # leaves it in place for a while
            (tree / "data/turn").rename(tree / "data/kept")
            (tree / "data/turn").symlink_to(tree / "other")
            (tree / "data/turn").unlink()
            (tree / "data/kept").rename(tree / "data/turn")

    swapping = threading.Thread(target=swap)
    swapping.start()
    access, seen = access_to(tree), set()
    try:
        for count in range(20_000):
            if count > 2000 and {"inside", "refused"} <= seen:
                break
            try:
                seen.add(content(access, "data/turn/x.txt"))
            except (PathRefused, FileNotFoundError):
                seen.add("refused")
    finally:
        stop.set()
        swapping.join()
    assert "outside" not in seen
    assert "inside" in seen


def test_a_pipe_in_place_of_a_file_is_refused(tree):
    os.mkfifo(tree / "data/pipe")
    with pytest.raises(PathRefused, match="neither a file nor a folder"):
        access_to(tree).open("data/pipe", "read")


def test_a_schema_marks_the_arguments_that_are_paths():
    schema = {
        "properties": {
            "source": {"type": "string", "x-path": "read"},
            "files": {"type": "array", "items": {"properties": {"to": {"x-path": "write"}}}},
            "other": {"type": "string"},
        }
    }
    marked = path_arguments(schema)
    assert marked == (PathArgument(("source",), "read"), PathArgument(("files", None, "to"), "write"))
    assert [each.name for each in marked] == ["source", "files[].to"]
    arguments = {"source": "a", "files": [{"to": "b"}, {}, {"to": 3}, {"to": "c"}]}
    assert [[*each.texts(arguments)] for each in marked] == [["a"], ["b", "c"]]
    assert path_arguments(True) == ()
