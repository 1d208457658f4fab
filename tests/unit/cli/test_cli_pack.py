"""`toolcrib pack`: build writes an archive or says why not, inspect shows what is in one."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from toolcrib.cli import exit_codes
from toolcrib.scenarios.pack_builder import zip_bytes

PACK = """
name: shop
version: 1.2.0
description: Things to buy. And more.
author: Ada
licence: MIT
namespace: acme
requires: {toolcrib: ">=0.1"}
toolsets: {small: [get_*]}
prompts: {helper: {system: Help., description: Helps. A lot., tools: [get_it]}, other: {system: Hi.}}
defaults: {timeout: 5s}
"""

FILES = {
    "shop/pack.yaml": PACK,
    "shop/tools/get.tool.yaml": "name: get_it\ndescription: Gets it. Always.\nmode: mock\nmock: {result_file: ../data/a.json}\nrobot: {}\n",
    "shop/data/a.json": '{"a": 1}',
    "shop/scenarios/one.scenario.yaml": "scenario: one\nsteps: [{call: get_it, expect: {result: {a: 1}}}]\n",
}


@pytest.fixture
def shop(write):
    return write(FILES)


@pytest.fixture
def built(shop, toolcrib):
    assert toolcrib("pack", "build", "shop").exit_code == exit_codes.OK
    return shop / "shop-1.2.0.zip"


def test_build_writes_the_archive_here_and_says_what_is_in_it(shop, toolcrib):
    result = toolcrib("pack", "build", "shop")
    data = (shop / "shop-1.2.0.zip").read_bytes()
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert lines == [
        ["wrote", "shop-1.2.0.zip"],
        ["pack", "shop 1.2.0"],
        ["files", f"4, {sum(map(len, map(str.encode, FILES.values())))} bytes in all"],
        ["size", f"{len(data)} bytes"],
        ["sha256", hashlib.sha256(data).hexdigest()],
    ]
    assert "mode_not_installed" in result.stderr


def test_build_writes_where_it_is_told(shop, toolcrib, document):
    told = document("pack", "build", "shop", "--json", "-o", "out/x.zip")
    assert told["written"] == str(Path("out", "x.zip"))
    toolcrib("pack", "build", "shop", "--output", "y.zip")
    assert (shop / "out" / "x.zip").read_bytes() == (shop / "y.zip").read_bytes()


def test_a_pack_that_is_built_from_within_lies_beside_its_folder(shop, toolcrib, monkeypatch):
    monkeypatch.chdir(shop / "shop")
    for _ in range(2):
        result = toolcrib("pack", "build")
        assert result.exit_code == exit_codes.OK, result.stderr
    assert (shop / "shop-1.2.0.zip").is_file()
    assert sorted(path.name for path in Path().iterdir()) == ["data", "pack.yaml", "scenarios", "tools"]
    assert toolcrib("pack", "build", "-o", "x.zip").exit_code == exit_codes.USAGE


def test_an_archive_is_not_built_from_an_archive(built, toolcrib):
    result = toolcrib("pack", "build", built.name)
    assert result.exit_code == exit_codes.USAGE
    assert "already an archive" in result.stderr


def test_build_writes_nothing_where_something_is_wrong(shop, write, toolcrib, document):
    write({"shop/tools/bad.tool.yaml": "name: bad\nmock: {resul: 1}\n"})
    result = toolcrib("pack", "build", "shop")
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stdout == ""
    assert "unknown_key" in result.stderr
    assert "nothing was written: " in result.stderr
    told = document("pack", "build", "shop", "--json")
    assert (told["written"], told["sha256"]) == (None, None)
    assert not list(shop.glob("*.zip"))


def test_build_says_when_it_cant_write(shop, toolcrib):
    (shop / "file").write_text("")
    result = toolcrib("pack", "build", "shop", "-o", "file/x.zip")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "cannot be written" in result.stderr


def test_inspect_shows_an_archive_without_unpacking_it(built, toolcrib):
    before = sorted(built.parent.rglob("*"))
    result = toolcrib("pack", "inspect", built.name)
    assert result.exit_code == exit_codes.OK
    shown = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    for fact in (
        ["source", "shop-1.2.0.zip"],
        ["pack", "shop 1.2.0"],
        ["description", "Things to buy. And more."],
        ["author", "Ada"],
        ["licence", "MIT"],
        ["namespace", "acme"],
        ["requires", "toolcrib >=0.1"],
        ["toolset", "small: get_*"],
        ["prompt", "helper: Helps."],
        ["prompt", "other: *"],
        ["defaults", "timeout 5s"],
        ["acme__get_it", "mock, robot  Gets it."],
        ["one"],
        ["data/a.json", "8 bytes"],
        ["sha256", hashlib.sha256(built.read_bytes()).hexdigest()],
    ):
        assert fact in shown
    assert sorted(built.parent.rglob("*")) == before


def test_inspect_of_a_folder_shows_what_build_would_write(built, document):
    folder, archive = (document("pack", "inspect", path, "--json") for path in ("shop", built.name))
    for key in ("source", "problems"):
        folder.pop(key), archive.pop(key)
    assert folder == archive
    assert folder["tools"] == [
        {
            "name": "acme__get_it",
            "mode": "mock",
            "modes": ["mock", "robot"],
            "description": "Gets it. Always.",
        }
    ]
    assert folder["requires"] == {"toolcrib": ">=0.1"}
    assert folder["toolsets"] == {"small": {"description": "", "tools": ["get_*"]}}
    assert folder["prompts"] == {
        "helper": {"description": "Helps. A lot.", "tools": ["get_it"]},
        "other": {"description": "", "tools": ["*"]},
    }
    assert folder["files"]["data/a.json"] == 8


def test_inspect_tells_all_that_is_wrong(write, toolcrib, document, tmp_path):
    write({"a.txt": ""})
    with zipfile.ZipFile("bad.zip", "w") as archive:
        archive.writestr("../x\x1b[31m", "")
        archive.writestr("a", "")
        archive.writestr("A", "")
    result = toolcrib("pack", "inspect", "bad.zip")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "\x1b" not in result.stdout + result.stderr
    assert "archive_unsafe_name" in result.stderr
    told = document("pack", "inspect", "bad.zip", "--json")
    assert {problem["code"] for problem in told["problems"]} == {
        "archive_unsafe_name",
        "archive_duplicate_name",
    }
    assert told["name"] is None


def test_inspect_of_a_broken_pack_shows_what_is_good(shop, write, document, toolcrib):
    write({"shop/tools/bad.tool.yaml": "name: bad\nmock: {resul: 1}\n"})
    told = document("pack", "inspect", "shop", "--json")
    assert told["name"] == "shop"
    assert [tool["name"] for tool in told["tools"]] == ["acme__get_it"]
    assert told["sha256"] is None
    assert toolcrib("pack", "inspect", "shop").exit_code == exit_codes.PROBLEMS


def test_packs_that_are_needed_are_read_besides(write, toolcrib):
    write(
        {
            "base/pack.yaml": "name: base\nversion: 1.0.0\n",
            "base/look.tool.yaml": "name: look\nmock: {result: 1}\n",
            "shop/pack.yaml": 'name: shop\nversion: 1.0.0\nrequires: {packs: {base: ">=1,<2"}}\n',
            "shop/one.scenario.yaml": "scenario: one\nsteps: [{call: look}]\n",
        }
    )
    assert toolcrib("pack", "build", "shop").exit_code == exit_codes.PROBLEMS
    for words in (["pack", "build", "shop", "--pack", "base"], ["--pack", "base", "pack", "build", "shop"]):
        result = toolcrib(*words)
        assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert toolcrib("pack", "inspect", "shop-1.0.0.zip", "--pack", "base").exit_code == exit_codes.OK
    assert toolcrib("run", "base", "shop-1.0.0.zip").exit_code == exit_codes.OK


def test_what_is_built_runs_as_its_folder_does(built, toolcrib, tmp_path):
    runs = [json.loads(toolcrib("run", path, "--json").stdout) for path in ("shop", built.name)]
    assert [run["outcomes"] for run in runs] == [runs[0]["outcomes"]] * 2
    assert runs[0]["passed"] == runs[1]["passed"] == 1


def test_a_pack_in_one_folder_of_an_archive_is_placed_there(write, toolcrib):
    folder = write({})
    files = {f"shop-main/{name.removeprefix('shop/')}": text.encode() for name, text in FILES.items()}
    files["shop-main/tools/bad.tool.yaml"] = b"name: bad\nmock: {resul: 1}\n"
    (folder / "shop.zip").write_bytes(zip_bytes(files))
    assert "shop.zip/shop-main/tools/bad.tool.yaml:2" in toolcrib("validate", "shop.zip").stdout
    assert "shop.zip/shop-main/tools/bad.tool.yaml:2" in toolcrib("pack", "inspect", "shop.zip").stderr
