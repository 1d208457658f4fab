"""`toolcrib list`."""

from __future__ import annotations

import click
import pytest

from sampling import sample
from toolcrib.cli import exit_codes
from toolcrib.cli.output import columns_of
from toolcrib.registry.catalog import Card, flags_of


def names(result):
    return [tool["name"] for tool in result["tools"]]


def test_the_table_shows_name_mode_flags_and_the_first_sentence(tools, toolcrib):
    assert toolcrib("list").stdout.splitlines() == [
        "echo     mock                               Says it again.",
        "failing  mock                               Never works.",
        "later    unbound  deprecated, experimental  Nobody wrote it yet.",
        "3 tools: 2 mock, 1 unbound",
    ]


def test_a_column_that_nobody_needs_is_not_there(write, toolcrib):
    write(
        {
            "descriptors/a.tool.yaml": "name: a\ndescription: Yes.\nannotations: {read_only: true}\nmock: {result: 1}\n"
        }
    )
    assert toolcrib("list").stdout == "a  mock  read-only  Yes.\n1 tool: 1 mock\n"


def test_a_tool_whose_mode_is_not_installed_is_unavailable(write, toolcrib, document):
    write({"descriptors/a.tool.yaml": "name: a\nmode: robot\nrobot: {command: x}\nmock: {result: 1}\n"})
    assert "robot (unavailable)" in toolcrib("list").stdout
    assert "not installed" in document("list", "--json")["tools"][0]["unavailable"]


def test_a_program_that_is_installed_later_makes_its_tool_available(write, toolcrib):
    folder = write({"descriptors/a.tool.yaml": "name: a\nmode: exec\nexec: {command: [./run.sh]}\n"})
    assert "exec (unavailable)" in toolcrib("list").stdout
    assert "exec (unavailable)" in toolcrib("list").stdout
    program = folder / "descriptors" / "run.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert toolcrib("list").stdout == "a  exec\n1 tool: 1 exec\n"


def test_a_variable_that_is_set_later_makes_its_tool_available(write, toolcrib, document, monkeypatch):
    live = "live: {url: 'https://api.example.com/v1', headers: {X-Key: '${LISTED_KEY}'}}"
    write({"descriptors/a.tool.yaml": f"name: a\n{live}\n"})
    for _again in range(2):
        assert "live (unavailable)" in toolcrib("list").stdout
    assert "`LISTED_KEY` is not set" in document("list", "--json")["tools"][0]["unavailable"]
    assert "`LISTED_KEY` is not set" in document("search", "a", "--json")["tools"][0]["unavailable"]
    assert "`LISTED_KEY` is not set" in document("show", "a", "--json")["unavailable"]
    monkeypatch.setenv("LISTED_KEY", "zq-canary-58")
    for _again in range(2):
        assert toolcrib("list").stdout.startswith("a  live  ")
        assert "unavailable" not in toolcrib("list").stdout
    monkeypatch.delenv("LISTED_KEY")
    assert "live (unavailable)" in toolcrib("list").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--name", "*a*"], ["failing", "later"]),
        (["--tag", "talk"], ["echo"]),
        (["--mode", "mock"], ["echo", "failing"]),
        (["--source", "*/failing*"], ["failing"]),
        (["--label", "team"], ["echo"]),
        (["--label", "team=numbers"], []),
    ],
)
def test_tools_are_chosen_by_name_tag_mode_source_and_label(words, expected, tools, document):
    assert names(document("list", *words, "--json")) == expected


def test_json_says_what_the_table_says_and_where_a_tool_is_from(tools, document):
    assert document("list", "--name", "echo", "--json")["tools"] == [
        {
            "name": "echo",
            "alias": "echo",
            "title": "",
            "description": "Says it again. And that is all.",
            "version": "",
            "category": "",
            "mode": "mock",
            "unavailable": None,
            "hidden": None,
            "modes": ["mock"],
            "tags": ["talk"],
            "labels": {"team": "words"},
            "annotations": ["destructive", "open_world"],
            "capabilities": [],
            "requires": [],
            "arguments": ["text", "times"],
            "deprecated": False,
            "experimental": False,
            "stale": None,
            "pack": None,
            "namespace": None,
            "source": "descriptors/echo.tool.yaml",
            "line": 2,
        }
    ]


def test_no_line_is_wider_than_the_terminal(tools, on_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    out, _err = on_terminal("list")
    assert all(columns_of(line) <= 30 for line in click.unstyle(out).splitlines())
    assert "…" in out


def test_a_pattern_that_fits_nothing_says_so(tools, toolcrib):
    result = toolcrib("list", "--name", "zzz*")
    assert (result.exit_code, result.stdout) == (0, "no tool matches\n")
    assert toolcrib("list", "--name", "zzz*", "--strict").exit_code == exit_codes.PROBLEMS


def test_paths_are_listed_as_other_verbs_read_them(tools, write, toolcrib, document):
    write({"elsewhere/far.tool.yaml": "name: far\nmock: {result: 1}\n"})
    assert names(document("list", "elsewhere", "--json")) == ["far"]
    assert names(document("list", "elsewhere/far.tool.yaml", "descriptors", "--json"))[-2:] == [
        "far",
        "later",
    ]
    result = toolcrib("list", "get_*")
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert (
        "file or folder `get_*` does not exist; to filter tools by name, use `--name 'get_*'`"
        in result.stderr
    )


@pytest.mark.parametrize("verb", sample([("list",), ("search", "word"), ("cost",)], one_in=3))
def test_an_empty_list_of_a_source_that_is_absent_is_no_success(verb, write, toolcrib):
    write({"toolcrib.yaml": "project: p\nsources: [gone]\n"})
    result = toolcrib(*verb)
    assert result.exit_code == exit_codes.PROBLEMS
    assert "path_not_found: `gone` does not exist" in result.stderr


def test_an_empty_list_of_a_project_with_errors_is_no_success(write, toolcrib):
    write({"toolcrib.yaml": "projcet: p\n", "descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\n"})
    result = toolcrib("list")
    assert (result.exit_code, result.stdout) == (1, "no tools; 1 not offered, `--all` shows why\n")


def test_an_empty_folder_lists_nothing_and_says_how_to_begin(write, toolcrib):
    write({})
    result = toolcrib("list")
    assert (result.exit_code, result.stdout) == (exit_codes.PROBLEMS, "no tools\n")
    assert "`toolcrib init`" in result.stderr


def test_refused_files_are_counted_and_the_rest_is_listed(tools, write, toolcrib):
    write({"descriptors/bad.tool.yaml": "name: bad\nmock: {result: 1}\noops: 1\n"})
    result = toolcrib("list")
    assert "3 tools: 2 mock, 1 unbound" in result.stdout
    assert result.stderr == "1 file was refused, fully or partly; run `toolcrib validate`\n"
    assert (result.exit_code, toolcrib("list", "--strict").exit_code) == (0, exit_codes.PROBLEMS)
    write({"descriptors/worse.tool.yaml": "name: worse\nmock: {}\n"})
    assert toolcrib("list").stderr.startswith("2 files were refused")


def test_a_description_can_not_steer_the_terminal(write, on_terminal):
    write({"descriptors/a.tool.yaml": 'name: a\ndescription: "x\\e[31m\\u202Ey."\nmock: {result: 1}\n'})
    out, _err = on_terminal("list")
    assert "x\\x1b[31m\\u202ey." in out
    assert "\x1b[31m" not in out


CATALOGUE = """
name: get_map
description: A map of a city.
tags: [geo, slow]
labels: {team: geo}
category: maps
annotations: {read_only: true}
mock: {result: 1}
---
name: get_city
tags: [geo]
category: maps
mock: {result: 1}
---
name: put.city
description: Changes a city.
mock: {result: 1}
deprecated: true
"""


@pytest.fixture
def catalogue(write):
    write({"descriptors/all.yaml": CATALOGUE})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--name", "get_*", "--name", "put*"], ["get_city", "get_map", "put.city"]),
        (["--name", "get_map", "--name", "zzz"], ["get_map"]),
        (["--tag", "geo", "--tag", "slow"], ["get_map"]),
        (["--tag", "geo", "--tag", "!slow"], ["get_city"]),
        (["--tag", "slow", "--category", "maps"], ["get_map"]),
        (["--label", "team=geo", "--deprecated", "--any"], ["get_map", "put.city"]),
        (["--category", "maps"], ["get_city", "get_map"]),
        (["--annotation", "!read_only"], ["get_city", "put.city"]),
        (["--no-deprecated"], ["get_city", "get_map"]),
        (["--experimental"], []),
        (["--mode", "!mock"], []),
        (["--pack-name", "none"], []),
    ],
)
def test_options_may_be_given_several_times_and_turned_around(words, expected, catalogue, document):
    assert names(document("list", *words, "--json")) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tag", "gep"], "no tool has the tag `gep`; did you mean `geo`?"),
        (["--tag", "!zzz", "--tag", "zz"], "no tool has the tag `zz`; known values: `geo`, `slow`"),
        (["--label", "taem=geo"], "no tool has the label `taem=geo`; did you mean `team=geo`?"),
        (["--category", "mops"], "no tool has the category `mops`; did you mean `maps`?"),
        (["--mode", "mokc"], "no tool has the mode `mokc`; did you mean `mock`?"),
        (["--pack-name", "maps"], "no tool is from the pack `maps`; none are defined"),
        (["--annotation", "readonly"], "unknown annotation `readonly`; did you mean `read_only`?"),
        (["--toolset", "maps"], "unknown toolset `maps`; none are defined"),
        (["--name", "get_mop*"], "no tool name matches `get_mop*`; did you mean `get_map`?"),
        (
            ["--source", "descriptor/*"],
            "no source file matches `descriptor/*`; did you mean `descriptors/all.yaml`?",
        ),
    ],
)
def test_where_nothing_fits_values_that_no_tool_has_are_told(words, told, catalogue, toolcrib):
    result = toolcrib("list", *words)
    assert result.stdout == "no tool matches\n"
    assert told in result.stderr.splitlines()
    assert toolcrib("list", *words, "--json").stderr == result.stderr


def test_a_value_that_is_turned_around_keeps_nothing_out(catalogue, toolcrib):
    assert (
        toolcrib("list", "--tag", "!zzz", "--mode", "zz").stderr
        == "no tool has the mode `zz`; known values: `mock`\n"
    )


def test_where_something_fits_nothing_is_told(catalogue, toolcrib):
    assert toolcrib("list", "--tag", "geo", "--tag", "gep", "--any").stderr == ""
    assert toolcrib("list", "--tag", "geo", "--deprecated").stderr == ""


def test_json_has_the_alias_that_providers_take(catalogue, document):
    assert [tool["alias"] for tool in document("list", "--json")["tools"]] == [
        "get_city",
        "get_map",
        "put_city",
    ]


PROJECT = """
project: p
disable: ["put*"]
toolsets: {maps: {tools: ["*_map"]}}
profiles: {small: {toolset: maps}}
"""


@pytest.fixture
def project(catalogue, write):
    write({"toolcrib.yaml": PROJECT})


def test_what_is_not_offered_is_counted_and_shown_when_asked_for(project, toolcrib):
    assert toolcrib("list", "--profile", "small").stdout.splitlines() == [
        "get_map  mock  read-only  A map of a city.",
        "1 tool: 1 mock; 2 not offered, `--all` shows why",
    ]
    assert toolcrib("list", "--profile", "small", "--all").stdout.splitlines() == [
        "get_city  mock  not in toolset        `get_city` is not in the active toolset `maps` (toolcrib.yaml:4)",
        "get_map   mock  read-only             A map of a city.",
        "put.city  mock  disabled, deprecated  `put.city` is disabled by `put*` in toolcrib.yaml:3",
        "3 tools: 3 mock",
    ]
    assert toolcrib("list", "--name", "put*").stdout == "no tool matches; 1 not offered, `--all` shows why\n"


def test_json_says_why_a_tool_is_not_offered(project, document):
    assert names(document("list", "--json")) == ["get_city", "get_map"]
    assert [tool["hidden"] for tool in document("list", "--name", "p*", "--all", "--json")["tools"]] == [
        {
            "code": "disabled",
            "message": "`put.city` is disabled by `put*` in toolcrib.yaml:3",
            "place": "toolcrib.yaml:3",
        }
    ]


def test_tools_are_chosen_by_toolset(project, document, toolcrib):
    assert names(document("list", "--toolset", "maps", "--json")) == ["get_map"]
    assert names(document("list", "--toolset", "!maps", "--json")) == ["get_city"]
    assert "unknown toolset `mops`; did you mean `maps`?" in toolcrib("list", "--toolset", "mops").stderr


def test_a_stale_tool_is_marked():
    assert flags_of(Card("a", stale="a.yaml:3: it has errors", annotations=("read_only",))) == [
        "stale",
        "read-only",
    ]
