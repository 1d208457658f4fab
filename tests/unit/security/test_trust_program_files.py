"""Which project files a command runs, and that a change of any of them is noticed."""

from __future__ import annotations

import json
import py_compile
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.security.program_files import MOST_FILES, files_of_command, files_of_module


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


def files(found):
    """The files that count; without the folders whose names count."""
    return [name for name in found.digests if not name.endswith("/")]


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
    assert files(found) == ["server.py"]
    folder(server__dot__py="x = 2")
    assert followed([word.format(root=root) for word in argv], root).digests != found.digests


def test_so_does_one_in_its_environment_and_in_its_working_directory(folder):
    root = folder(lib__in__helper__dot__py="", sub__in__server__dot__py="import helper", preload__dot__js="")
    environment = {"PYTHONPATH": f"../lib{':'}/elsewhere", "NODE_OPTIONS": "--require=../preload.js"}
    found = followed(["python", "server.py"], root, environment, f"{root}/sub")
    assert files(found) == ["lib/helper.py", "preload.js", "sub/server.py"]


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
    assert files(found) == [
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
    assert files(followed(["python", "-m", "app"], root)) == [
        "app/__init__.py",
        "app/__main__.py",
        "app/core.py",
    ]
    assert files(files_of_module("app.core", root)) == ["app/__init__.py", "app/core.py"]
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
    assert files(followed(["node", "index.mjs"], root)) == [
        "a.js",
        "b.cjs",
        "c/index.js",
        "d.ts",
        "index.mjs",
    ]


@pytest.mark.parametrize("runner", ["npm", "/usr/bin/uv", "make", "npx.cmd"])
def test_runners_read_manifests(runner, folder):
    root = folder(package__dot__json="{}", Makefile="", pyproject__dot__toml="")
    assert files(followed([runner, "run", "x"], root)) == [
        "Makefile",
        "package.json",
        "pyproject.toml",
    ]
    assert followed(["python", "x"], root).digests == {}


def test_of_a_folder_that_is_named_what_is_run_counts(folder):
    root = folder(
        server__in__package__dot__json="{}", server__in__index__dot__js="", server__in__data__dot__bin=""
    )
    assert files(followed(["node", "server"], root)) == ["server/index.js", "server/package.json"]


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
    assert files(followed(["python", "again.py"], root)) == ["inside.py"]


def test_more_files_than_are_followed_are_told(folder):
    names = {f"m{number}__dot__py": "" for number in range(MOST_FILES + 5)}
    root = folder(server__dot__py="\n".join(f"import m{number}" for number in range(MOST_FILES + 5)), **names)
    found = followed(["python", "server.py"], root)
    assert len(files(found)) == MOST_FILES
    assert not found.complete


@pytest.mark.parametrize(
    "text",
    [
        "import os, part as p",
        "import package . part",
        "import package.part as q; x = 1",
        "from package import (  # the one\n    nothing,\n    part as p,\n)",
        "from package import \\\n    nothing, part",
        "from.package import(part)",
        "from . package . part import *",
        "try: import package.part\nexcept ImportError: pass",
        "type New[T] = list[T]\nimport package.part",
        "x = 'from here'\nfrom package import part",
    ],
)
def test_an_import_is_found_however_it_is_written(text, folder):
    root = folder(server__dot__py=text, package__in__part__dot__py="", part__dot__py="", other__dot__py="")
    found = files(followed(["python", "server.py"], root))
    assert found in (["package/part.py", "server.py"], ["part.py", "server.py"])


def test_a_long_chain_of_imports_is_followed_to_its_end(folder):
    names = {f"m{number}__dot__py": f"import m{number + 1}" for number in range(450)}
    root = folder(**names)
    found = followed(["python", "m0.py"], root)
    assert len(files(found)) == 450
    assert found.complete


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "python sub/server.py"],
        ["sh", "-c", "cd sub && exec python -u 'server.py'"],
        ["sh", "-c", "cd sub; python -m server"],
        ["sh", "-c", "sh -c 'python \"$PWD/sub/server.py\"'"],
        ["uv", "run", "--directory", "sub", "server.py"],
        ["uv", "run", "--directory=sub", "python", "-m", "server"],
        ["python", "${SCRIPT:-sub/server.py}"],
        ["python", "${SCRIPT:-${OTHER:-sub}/server.py}"],
        ["python", "sub/server"],
    ],
)
def test_a_script_is_found_wherever_a_command_line_names_it(argv, folder):
    root = folder(sub__in__server__dot__py="import helper", sub__in__helper__dot__py="")
    assert files(followed(argv, root)) == ["sub/helper.py", "sub/server.py"]


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "-m", "common"],
        ["python", "-mcommon"],
        ["python3.11", "-Im", "common"],
        ["python", "-Imcommon"],
        ["python", "-c", "import common"],
        ["sh", "-c", "python -c 'if 1: import common'"],
        ["sh", "-c", "python -m json.tool; python -m common"],
        ["python", "${FLAG:--mcommon}"],
    ],
)
def test_a_module_is_found_however_it_is_named(argv, folder):
    root = folder(common__dot__py="import helper", helper__dot__py="")
    assert files(followed(argv, root)) == ["common.py", "helper.py"]


@pytest.mark.parametrize("name", ["data.csv", "server.db", "server"])
@pytest.mark.parametrize(
    "argv", [["python", "{}"], ["sh", "-c", "sh x; python {}"], ["./{}"], ["uv", "run", "python", "-u", "{}"]]
)
def test_what_is_run_counts_whatever_it_is_called(argv, name, folder, tmp_path):
    root = folder(helper__dot__py="", x="")
    (tmp_path / name).write_text("import helper")
    found = followed([word.format(name) for word in argv], root)
    assert set(files(found)) - {"x"} == {"helper.py", name}
    assert found.left == ()


def test_so_does_a_program_that_begins_like_a_database(folder):
    root = folder(server__dot__db="SQLite format 3\0")
    assert files(followed(["python", "server.db"], root)) == ["server.db"]


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "server.py", "--db", "rows.db"],
        ["python", "-m", "server", "rows.db"],
        ["sh", "-c", "python server.py rows.db"],
    ],
)
def test_data_that_a_script_works_on_does_not_count(argv, folder):
    root = folder(server__dot__py="", rows__dot__db="1")
    found = followed(argv, root)
    assert (files(found), found.left) == (["server.py"], ("rows.db",))


@pytest.mark.parametrize(
    "argv", [["python", "server.py"], ["python", "-m", "server"], ["python", "-m", "json.tool"]]
)
@pytest.mark.parametrize(
    "new", ["queue__dot__py", "yaml__in____init____dot__py", "yaml__dot__cpython-313-darwin__dot__so"]
)
def test_a_new_file_that_stands_before_a_module_counts(argv, new, folder):
    root = folder(server__dot__py="import logging.handlers")
    before = followed(argv, root)
    folder(**{new: ""})
    assert followed(argv, root).digests["./"] != before.digests["./"]


def test_a_new_file_that_is_no_module_does_not_count(folder):
    root = folder(server__dot__py="")
    before = followed(["python", "server.py"], root)
    folder(
        logs__in__a__dot__txt="",
        notes__dot__txt="",
        my__dot__data__in__rows__dot__csv="",
        __pycache____in__x__dot__pyc="",
    )
    assert followed(["python", "server.py"], root) == before


def test_a_file_called_like_a_standard_module_counts_with_its_content(folder):
    root = folder(
        server__dot__py="import logging.handlers",
        queue__dot__py="import part",
        part__dot__py="",
        other__dot__py="",
    )
    assert files(followed(["python", "server.py"], root)) == ["part.py", "queue.py", "server.py"]


def test_what_python_runs_when_it_starts_counts(folder):
    root = folder(lib__in__sitecustomize__dot__py="", server__dot__py="")
    found = followed(["python", "server.py"], root, {"PYTHONPATH": "lib"})
    assert list(found.digests) == ["./", "lib/", "lib/sitecustomize.py", "server.py"]


@pytest.mark.parametrize(
    ("mode", "counts"), [("UNCHECKED_HASH", True), ("CHECKED_HASH", True), ("TIMESTAMP", False)]
)
def test_bytecode_that_is_run_in_place_of_its_source_counts(mode, counts, folder, tmp_path):
    root = folder(server__dot__py="import helper", helper__dot__py="x = 1")
    written = py_compile.compile(
        str(tmp_path / "helper.py"), invalidation_mode=py_compile.PycInvalidationMode[mode]
    )
    name = f"__pycache__/{written.rpartition('/')[2]}"
    assert (name in files(followed(["python", "server.py"], root))) is counts


@pytest.mark.parametrize("argv", [["node", "."], ["node", "{root}"], ["sh", "-c", "node ."]])
def test_of_the_workspace_itself_what_node_runs_counts(argv, folder):
    root = folder(index__dot__js="require('./part')", part__dot__js="", other__dot__js="")
    assert files(followed([word.format(root=root) for word in argv], root)) == ["index.js", "part.js"]
    assert files(followed(["files", root], root)) == []


@pytest.mark.parametrize(
    "said",
    [
        {"scripts": {"start": "node server.js"}},
        {"scripts": {"start": "NODE_ENV=x node server"}},
        {"scripts": {"start": "sh -c 'cd . && node server.js'"}},
        {"main": "server"},
        {"bin": {"server": "./server.js"}},
    ],
)
def test_what_a_package_says_counts(said, folder):
    root = folder(package__dot__json=json.dumps(said), server__dot__js="import './part.js'", part__dot__ts="")
    assert files(followed(["npm", "start"], root)) == ["package.json", "part.ts", "server.js"]


@pytest.mark.parametrize("text", ["{", "[]", '{"scripts": [1], "main": {"a": 1}}', "[" * 100_000])
def test_a_package_that_says_nothing_is_followed_by_itself(text, folder):
    root = folder(package__dot__json=text, server__dot__js="")
    assert files(followed(["npm", "start"], root)) == ["package.json"]


@pytest.mark.parametrize(
    "text",
    [
        "python server.py",
        "./server.py",
        "# it's\ncd /tmp\npython -m server",
        'exec python "$(dirname "$0")/server.py" "$@"',
        "python \\\n  ${HERE}/server.py",
    ],
)
@pytest.mark.parametrize("name", ["run.sh", "run"])
def test_what_a_shell_script_runs_counts(text, name, folder, tmp_path):
    root = folder(server__dot__py="import helper", helper__dot__py="")
    (tmp_path / name).write_text(text)
    assert files(followed(["bash", name], root)) == ["helper.py", name, "server.py"]


def test_a_script_without_an_ending_is_read(folder):
    root = folder(
        server="#!/usr/bin/env python3\nimport helper", helper__dot__py="", bin__in__x="#!/bin/sh\n./server"
    )
    assert files(followed(["env", "bin/x"], root)) == ["bin/x", "helper.py", "server"]


@pytest.mark.parametrize("text", ["import", "\0", "(" * 5000, "x = 'é'.encode('latin-1')"])
def test_a_file_that_is_no_python_is_followed_by_itself(text, folder):
    root = folder(server__dot__py=text)
    assert files(followed(["python", "server.py"], root)) == ["server.py"]


@given(
    st.lists(st.text(max_size=20), max_size=5),
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
)
def test_any_words_are_read_without_an_error(words, environment):
    files_of_command(words, environment, "/nonexistent", "/nonexistent")
