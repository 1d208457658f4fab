"""Which files are looked at, and that nothing outside the folder is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.core.model import Origin
from toolcrib.executors import Executors
from toolcrib.loading.documents.document import BYTES
from toolcrib.loading.documents.files import (
    DATA_BYTES,
    DiskFiles,
    MemoryFiles,
    pack_file,
    read_bytes,
    read_data,
    read_text,
)
from toolcrib.loading.sources import load


def write(folder, *names, content="{}"):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def walk(folder):
    """What a load looks at, in order: each file holds nothing, and is told so; a linked folder is told at the end."""
    return [Path(problem.source) for problem in load([folder], Executors.installed()).problems]


def test_a_folder_is_walked_in_a_stable_order(tmp_path):
    names = ["b.yaml", "a.json", "sub/z.yml", "sub/a.tool.yaml", "deep/er/x.yaml", "Z.yaml"]
    write(tmp_path, *names)
    found = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)]
    assert found == ["Z.yaml", "a.json", "b.yaml", "deep/er/x.yaml", "sub/a.tool.yaml", "sub/z.yml"]


def test_hidden_files_other_endings_and_caches_are_passed_over(tmp_path):
    write(
        tmp_path,
        ".hidden.yaml",
        ".git/x.yaml",
        "__pycache__/x.json",
        "node_modules/x.json",
        "readme.md",
        "x.yaml.orig",
        "yaml",
    )
    assert list(walk(tmp_path)) == []


def test_linked_folders_are_not_entered(tmp_path):
    write(tmp_path, "real/x.yaml", "scanned/y.yaml")
    (tmp_path / "scanned" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "scanned" / "circle").symlink_to(tmp_path / "scanned")
    assert [path.name for path in walk(tmp_path / "scanned")] == ["y.yaml", "link"]


@pytest.mark.parametrize("name", ["pack.yaml", "pack.yml", "pack.json"])
def test_one_file_makes_a_pack(tmp_path, name):
    assert pack_file(tmp_path) is None
    write(tmp_path, name)
    assert pack_file(tmp_path) == tmp_path / name


def test_a_folder_that_is_called_like_a_pack_file_is_none(tmp_path):
    (tmp_path / "pack.yaml").mkdir()
    assert pack_file(tmp_path) is None


def test_a_file_is_read_relative_to_the_folder_and_remembered(tmp_path):
    write(tmp_path, "pack/tools/x.json", "pack/data/y.json", content='"here"')
    (tmp_path / "pack" / "link.json").symlink_to(tmp_path / "pack" / "data" / "y.json")
    files = DiskFiles(tmp_path / "pack" / "tools", tmp_path / "pack")
    assert files.read("x.json") == files.read("../link.json") == b'"here"'
    assert files.touched == {
        str(tmp_path / "pack" / "tools" / "x.json"),
        str(tmp_path / "pack" / "tools" / ".." / "link.json"),
        str(Path(os.path.realpath(tmp_path)) / "pack" / "data" / "y.json"),
    }


LEADING_OUT = [
    "../secret.json",
    "../../secret.json",
    "tools/../../secret.json",
    "{absolute}",
    "link.json",
    "linked/secret.json",
]


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_path_may_not_leave_the_folder(tmp_path, name):
    write(tmp_path, "secret.json", "elsewhere/secret.json", "pack/tools/x.json")
    (tmp_path / "pack" / "link.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "pack" / "linked").symlink_to(tmp_path / "elsewhere")
    files = DiskFiles(tmp_path / "pack", tmp_path / "pack")
    with pytest.raises(PermissionError, match="is outside"):
        files.read(name.format(absolute=tmp_path / "secret.json"))
    assert len(files.touched) == 1  # what lies there may be another file tomorrow


def test_a_link_within_the_folder_is_followed(tmp_path):
    write(tmp_path, "real/x.json", content="1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert DiskFiles(tmp_path, tmp_path).read("link/x.json") == b"1"


def test_an_absolute_path_within_the_folder_is_the_same_file(tmp_path):
    write(tmp_path, "x.json", content="1")
    assert DiskFiles(tmp_path, tmp_path).read(str(tmp_path / "x.json")) == b"1"


@pytest.mark.parametrize("name", ["absent.json", "sub", "circle", "a\0b", "x" * 5000, ""])
def test_what_is_no_file_is_an_os_error(tmp_path, name):
    (tmp_path / "sub").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError) as raised:
        DiskFiles(tmp_path, tmp_path).read(name)
    assert len(str(raised.value)) < 6000


def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(FileNotFoundError):
        DiskFiles(tmp_path, tmp_path).read("pipe.json")


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(DATA_BYTES + 1)
    with pytest.raises(OSError, match="exceeds 64 MiB"):
        DiskFiles(tmp_path, tmp_path).read("large.json")


CONTENTS = {"tools/x.tool.yaml": "name: x", "data/y.json": '"é"', "top.bin": b"\xff"}


@pytest.mark.parametrize(
    ("folder", "name", "content"),
    [
        ("tools", "x.tool.yaml", b"name: x"),
        ("tools", "../data/y.json", '"é"'.encode()),
        ("tools", "./../data/./y.json", '"é"'.encode()),
        ("", "top.bin", b"\xff"),
        ("", "data/y.json", '"é"'.encode()),
    ],
)
def test_files_in_memory_are_read_by_their_path(folder, name, content):
    files = MemoryFiles(CONTENTS, folder)
    assert files.read(name) == content
    assert len(files.touched) == 1


@pytest.mark.parametrize("name", ["../../x", "../x/../../y", ".."])
def test_a_path_may_not_leave_the_memory(name):
    with pytest.raises(OSError, match=r"leaves its folder|no file"):
        MemoryFiles(CONTENTS, "tools").read(name)


def test_an_absolute_path_is_no_file_of_a_memory():
    with pytest.raises(FileNotFoundError):
        MemoryFiles(CONTENTS, "tools").read("/etc/passwd")


def test_a_misspelt_file_of_a_memory_has_its_near_miss():
    with pytest.raises(FileNotFoundError, match=r"did you mean `data/y\.json`"):
        MemoryFiles(CONTENTS, "tools").read("../data/z.json")


def told(read, name, **files):
    """The value that a reader gives and the problems that it adds."""
    problems = []
    value = read(Origin(files=MemoryFiles(files) if files else None), name, "/place", problems)
    assert all(problem.pointer == "/place" for problem in problems)
    return value, problems


def test_a_file_that_can_be_read_gives_its_content():
    files = {"x.json": '{"a": [1]}', "y.yaml": "a: no\n", "list.json": "[1, 2]", "t.j2": "é"}
    assert told(read_data, "x.json", **files) == ({"a": [1]}, [])
    assert told(read_data, "y.yaml", **files) == ({"a": "no"}, [])
    assert told(read_data, "list.json", **files) == ([1, 2], [])
    assert told(read_text, "t.j2", **files) == ("é", [])
    assert told(read_bytes, "t.j2", **files) == ("é".encode(), [])


def test_a_text_from_memory_alone_has_no_files():
    value, (problem,) = told(read_bytes, "x.json")
    assert (value, problem.code) == (b"", "file_unreadable")
    assert "loaded from memory" in problem.message


@pytest.mark.parametrize(("read", "empty"), [(read_bytes, b""), (read_text, ""), (read_data, None)])
def test_a_file_that_can_not_be_read_is_one_problem(read, empty):
    value, (problem,) = told(read, "absent", there="x")
    assert (value, problem.code) == (empty, "file_unreadable")
    assert "`absent`" in problem.message
    assert "may not leave" in problem.hint


def test_what_the_system_says_of_a_file_is_told(tmp_path):
    problems = []
    read_bytes(Origin(files=DiskFiles(tmp_path, tmp_path)), "x" * 5000, "/place", problems)
    assert "File name too long" in problems[0].message
    assert len(problems[0].message) < 200


def test_a_text_that_is_not_utf8_is_a_problem():
    value, (problem,) = told(read_text, "x.txt", **{"x.txt": b"ab\xff"})
    assert (value, problem.code) == ("", "invalid_utf8")
    assert "byte 2" in problem.message


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x.json", "{", "invalid_json"),
        ("x.yaml", "a: *b", "alias_refused"),
        ("x.yaml", "a: 1\n---\nb: 2\n", "several_documents"),
        ("x.yaml", "# nothing\n", "empty_document"),
        ("x.json", "1" * 1001, "number_too_long"),
        ("x.json", '"' + "x" * BYTES + '"', "too_large"),
    ],
)
def test_data_that_can_not_be_used_is_a_problem(name, content, code):
    _value, problems = told(read_data, name, **{name: content})
    assert [problem.code for problem in problems] == [code]
    assert f"`{name}`" in problems[0].message
    assert problems[0].severity == "error"
