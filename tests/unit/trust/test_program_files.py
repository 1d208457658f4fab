"""Which project files a command runs, and that a change of any of them is noticed."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.trust.program_files import MOST_FILES, files_of_command, files_of_module


@pytest.fixture
def folder(tmp_path):
    """A folder, with links resolved; `put` writes files below it."""

    def put(**files: str):
        for name, text in files.items():
            path = tmp_path / name.replace("__dot__", ".").replace("__in__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path.resolve())

    return put


def followed(argv, root, environment=None, folder=None):
    return files_of_command(argv, environment or {}, folder or root, root)


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "server.py"],
        ["python", "./server.py"],
        ["python", "{root}/server.py"],
        ["./server.py"],
        ["uv", "run", "server.py"],
        ["node", "--require=server.py"],
        ["sh", "-c", "x", "server.py"],
        ["deno", "run", "file://{root}/server.py"],
        ["python", "sub/../server.py"],
    ],
)
def test_a_file_that_a_command_names_counts(argv, folder):
    root = folder(server__dot__py="x = 1", sub__in__other__dot__txt="")
    found = followed([word.format(root=root) for word in argv], root)
    assert list(found.digests) == ["server.py"]
    folder(server__dot__py="x = 2")
    assert followed([word.format(root=root) for word in argv], root).digests != found.digests


def test_so_does_one_in_its_environment_and_in_its_working_directory(folder):
    root = folder(lib__in__helper__dot__py="", sub__in__server__dot__py="import helper", preload__dot__js="")
    environment = {"PYTHONPATH": f"../lib{':'}/elsewhere", "NODE_OPTIONS": "--require=../preload.js"}
    found = followed(["python", "server.py"], root, environment, f"{root}/sub")
    assert list(found.digests) == ["lib/helper.py", "preload.js", "sub/server.py"]


def test_what_python_imports_from_the_project_counts(folder):
    root = folder(
        server__dot__py="import helper, os\nfrom package import part\nfrom package.deep import name\nimport yaml",
        helper__dot__py="from . import nothing",
        package__in____init____dot__py="from .inner import *",
        package__in__part__dot__py="",
        package__in__inner__dot__py="from ..helper import x",
        package__in__deep__dot__py="def f():\n    import late",
        late__dot__py="",
        unused__dot__py="",
    )
    found = followed(["python", "server.py"], root)
    assert list(found.digests) == [
        "helper.py",
        "late.py",
        "package/__init__.py",
        "package/deep.py",
        "package/inner.py",
        "package/part.py",
        "server.py",
    ]


def test_a_module_that_is_run_counts(folder):
    root = folder(
        app__in____init____dot__py="",
        app__in____main____dot__py="from app import core",
        app__in__core__dot__py="",
    )
    assert list(followed(["python", "-m", "app"], root).digests) == [
        "app/__init__.py",
        "app/__main__.py",
        "app/core.py",
    ]
    assert list(files_of_module("app.core", root).digests) == ["app/__init__.py", "app/core.py"]
    assert files_of_module("os.path", root).digests == {}


def test_what_scripts_import_by_a_relative_path_counts(folder):
    root = folder(
        index__dot__mjs="import x from './a.js'; const y = require('./b'); export * from \"./c/index.js\"; import 'fs'",
        a__dot__js="await import('./d.ts')",
        b__dot__cjs="",
        c__in__index__dot__js="",
        d__dot__ts="",
        other__dot__js="",
    )
    assert list(followed(["node", "index.mjs"], root).digests) == [
        "a.js",
        "b.cjs",
        "c/index.js",
        "d.ts",
        "index.mjs",
    ]


@pytest.mark.parametrize("runner", ["npm", "/usr/bin/uv", "make", "npx.cmd"])
def test_runners_read_manifests(runner, folder):
    root = folder(package__dot__json="{}", Makefile="", pyproject__dot__toml="")
    assert list(followed([runner, "run", "x"], root).digests) == [
        "Makefile",
        "package.json",
        "pyproject.toml",
    ]
    assert followed(["python", "x"], root).digests == {}


def test_of_a_folder_that_is_named_what_is_run_counts(folder):
    root = folder(
        server__in__package__dot__json="{}", server__in__index__dot__js="", server__in__data__dot__bin=""
    )
    assert list(followed(["node", "server"], root).digests) == ["server/index.js", "server/package.json"]


def test_data_is_named_and_not_followed(folder, tmp_path):
    root = folder(rows__dot__db="1", out__dot__log="1")
    (tmp_path / "store").write_bytes(b"SQLite format 3\0...")
    before = followed(["server", "--db", "rows.db", "--log=out.log", "store"], root)
    folder(rows__dot__db="2", out__dot__log="2")
    after = followed(["server", "--db", "rows.db", "--log=out.log", "store"], root)
    assert (before.digests, before.left) == ({}, ("out.log", "rows.db", "store"))
    assert after == before


def test_what_lies_outside_does_not_count_nor_what_a_link_leads_to(folder, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text("")
    root = folder(inside__dot__py="")
    (tmp_path / "link.py").symlink_to(outside)
    (tmp_path / "again.py").symlink_to(tmp_path / "inside.py")
    assert followed(["python", str(outside), "link.py", sys.executable], root).digests == {}
    assert list(followed(["python", "again.py"], root).digests) == ["inside.py"]


def test_more_files_than_are_followed_are_told(folder):
    names = {f"m{number}__dot__py": "" for number in range(MOST_FILES + 5)}
    root = folder(server__dot__py="\n".join(f"import m{number}" for number in range(MOST_FILES + 5)), **names)
    found = followed(["python", "server.py"], root)
    assert len(found.digests) == MOST_FILES
    assert not found.complete


@pytest.mark.parametrize("text", ["import", "\0", "(" * 5000, "x = 'é'.encode('latin-1')"])
def test_a_file_that_is_no_python_is_followed_by_itself(text, folder):
    root = folder(server__dot__py=text)
    assert list(followed(["python", "server.py"], root).digests) == ["server.py"]


@given(
    st.lists(st.text(max_size=20), max_size=5),
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
)
def test_any_words_are_read_without_an_error(words, environment):
    files_of_command(words, environment, "/nonexistent", "/nonexistent")
