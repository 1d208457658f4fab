"""`toolcrib import promptkit`: an arena as a pack of our own, which says and does the same."""

from __future__ import annotations

import json

import pytest

from arenas import LOOK_UP, TURNS, arena_files, manifest
from toolcrib.cli import exit_codes

PICTURE = """
name: draw
description: Draws.
input_schema: {type: object}
output_schema: {}
mode: mock
mock_result: drawn
mock_parts: [{type: image, media: {file_path: media/a.png, mime_type: image/png}}]
"""


def drawn(name="draw"):
    spec = PICTURE.replace("name: draw\n", "")
    return manifest("Tool", name, spec)


def turns_of(run):
    return [turn["entries"] for scenario in run["scenarios"] for turn in scenario["agent"]["turns"]]


def test_an_arena_becomes_a_pack_that_runs(write, toolcrib):
    folder = write(arena_files(media__a_DOT_png="png", tools__draw_DOT_tool_DOT_yaml=drawn()))
    there = json.loads(toolcrib("run", ".", "--json").stdout)
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert result.stdout.splitlines() == [
        "wrote new/pack.yaml",
        "wrote new/tools/draw.tool.yaml",
        "wrote new/tools/media/a.png",
        "wrote new/tools/look_up.tool.yaml",
        "wrote new/scenarios/one.scenario.yaml",
        "",
        "Run it: `toolcrib run new`",
    ]
    assert (folder / "new/tools/media/a.png").read_text() == "png"
    assert (
        (folder / "new/scenarios/one.scenario.yaml")
        .read_text()
        .startswith("scenario: one\n\nagent:\n  system: Help.\n  policy: {allow: [look_up]}\n")
    )
    assert toolcrib("validate", "new", "--strict").exit_code == exit_codes.OK
    here = json.loads(toolcrib("run", "new", "--json").stdout)
    assert (there["passed"], there["failed"]) == (1, 0)
    assert turns_of(here) == turns_of(there)
    assert here["calls"] == there["calls"] == 1


def test_what_was_imported_into_the_arena_is_not_read_again(write, toolcrib):
    write(arena_files())
    first = toolcrib("import", "promptkit", ".", "--out", "./a new [1]")
    again = toolcrib("import", "promptkit", ".", "--out", "a new [1]", "--force")
    assert (again.exit_code, again.stderr, again.stdout) == (exit_codes.OK, "", first.stdout)


def test_names_of_tools_that_are_not_there_are_warnings_after_it_too(write, toolcrib):
    write(arena_files(prompt="task_type: help\nallowed_tools: [look_up, nosuch]"))
    assert toolcrib("import", "promptkit", ".", "--out", "new").exit_code == exit_codes.OK
    assert toolcrib("run", "new").exit_code == exit_codes.OK


def test_mock_responses_alone_say_what_is_to_be_run(write, toolcrib):
    write({f"shop/{name}": text for name, text in arena_files().items()})
    result = toolcrib("run", "shop/mock-responses.yaml")
    assert "PromptKit mock responses" in result.stderr
    assert ("`toolcrib run shop`" in result.stderr, "non_string_key" in result.stderr) == (True, False)


@pytest.mark.parametrize("kind", ["Arena", "Tool", "Scenario", "Provider"])
def test_a_manifest_without_a_version_says_so(write, toolcrib, kind):
    write({"x.yaml": f"kind: {kind}\nmetadata: {{name: x}}\nspec: {{type: mock}}\n"})
    for path in (".", "x.yaml"):
        result = toolcrib("run", path)
        assert "missing_key: missing `apiVersion`" in result.stderr
        assert "unrecognised" not in result.stderr


def test_what_has_no_counterpart_is_told(write, toolcrib):
    write(arena_files("deploy: {provider: x}\nmemory: {enabled: true}\n"))
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.OK
    told = [line for line in result.stderr.splitlines() if "no_counterpart" in line]
    assert ["`memory`" in told[0], "`deploy`" in told[1]] == [True, True]


def test_nothing_is_overwritten_unless_it_is_asked_for(write, toolcrib):
    folder = write({**arena_files(), "new/pack.yaml": "mine"})
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "new/pack.yaml already exists and was not changed; use `--force` to overwrite it" in result.stderr
    assert (folder / "new/pack.yaml").read_text() == "mine"


def test_servers_come_into_a_project(write, toolcrib):
    servers = """
mcp_servers:
  - name: files
    command: npx
    args: [-y, "a${b}"]
    env: {A: "1"}
    working_dir: data
    scope: scenario
    timeout_ms: 500
    tool_filter: {allowlist: [read_*], blocklist: [x]}
  - {name: web, url: "https://x.example", headers: {a: b}, transport: streamable_http, tool_filter: {blocklist: [x]}}
  - {name: old, url: "https://y.example"}
  - {name: box, source: docker, source_args: {image: x}}
  - {command: nameless}
"""
    folder = write(arena_files(servers))
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS  # one of the servers has no name
    assert "servers that are started from a `source` are not supported" in result.stderr
    assert (folder / "new/toolcrib.yaml").read_text().splitlines() == [
        "project: small",
        'sources: ["."]',
        "servers:",
        "  mcp__files:",
        "    command: npx",
        '    args: ["-y", "a$${b}"]',
        '    env: {A: "1"}',
        "    cwd: data",
        "    scope: session",
        '    timeouts: {start: "500ms"}',
        '    import: {only: ["read_*"]}',
        "  mcp__web:",
        '    url: "https://x.example"',
        "    headers: {a: b}",
        "    transport: http",
        "    import: {except: [x]}",
        '  mcp__old: {url: "https://y.example", transport: sse, import: true}',
    ]


def test_the_report_is_json(write, document):
    write(arena_files(scenario=TURNS + "context: {x: 1}"))
    told = document("import", "promptkit", ".", "--out", "new", "--json")
    assert [entry["kind"] for entry in told["written"]] == ["pack", "tool", "scenario"]
    assert (told["existing"], told["refused"]) == ([], {})
    assert [problem["code"] for problem in told["problems"]] == ["no_counterpart"]


def test_two_scenarios_of_one_name_are_one_file(write, toolcrib):
    files = arena_files()
    spec = "scenarios: [{file: scenarios/one.scenario.yaml}, {file: scenarios/other.yaml}]"
    files["config.arena.yaml"] = files["config.arena.yaml"].replace(
        "scenarios: [{file: scenarios/one.scenario.yaml}]", spec
    )
    files["scenarios/other.yaml"] = files["scenarios/one.scenario.yaml"]
    write(files)
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "no file for `one`: duplicate scenario `one`" in result.stderr


@pytest.mark.parametrize(
    "files", [{"a.yaml": LOOK_UP}, {"config.arena.yaml": manifest("Arena", "empty", "{}")}]
)
def test_a_folder_without_anything_to_import_is_told(write, toolcrib, files):
    write({f"there/{name}": text for name, text in files.items()})
    result = toolcrib("import", "promptkit", "there", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS
    assert ("no PromptKit arena" in result.stderr) != ("nothing was written" in result.stderr)


def program(name, block, mode="exec"):
    spec = "description: Runs.\ninput_schema: {type: object, properties: {a: {type: integer}}}\noutput_schema: {}\n"
    return manifest("Tool", name, f"{spec}mode: {mode}\nexec: {block}\n")


ANSWER = 'read line; printf \'{"result": "%s"}\' "$0"\n'

SERVE = """
while read line; do
  id=$(printf %s "$line" | sed 's/.*"id": *\\([0-9]*\\).*/\\1/')
  printf '{"jsonrpc": "2.0", "id": %s, "result": {"result": "served"}}\\n' "$id"
done
"""


def test_programs_are_copied_with_their_tools(write, toolcrib, monkeypatch):
    folder = write(
        {
            **arena_files(
                tools__once_DOT_tool_DOT_yaml=program("once", "{command: sh, args: [./scripts/once.sh]}"),
                tools__own_DOT_tool_DOT_yaml=program("own", "{command: ./scripts/own.sh}"),
                tools__stay_DOT_tool_DOT_yaml=program(
                    "stay", "{command: sh, args: [./scripts/stay.sh]}", mode="server"
                ),
                tools__other_DOT_tool_DOT_yaml=program("other", "{command: cat}"),
            ),
            "scripts/once.sh": ANSWER,
            "scripts/own.sh": f"#!/bin/sh\n{ANSWER}",
            "scripts/stay.sh": SERVE,
        }
    )
    (folder / "scripts/own.sh").chmod(0o755)
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.OK, result.stderr
    assert result.stderr == "only the files that commands name were copied; copy what they import or read\n"
    for name in ("once", "own", "stay"):
        assert f"wrote new/tools/scripts/{name}.sh" in result.stdout
    assert (folder / "new/tools/scripts/own.sh").stat().st_mode & 0o111
    assert not (folder / "new/tools/scripts/once.sh").stat().st_mode & 0o111
    (folder / "new" / "toolcrib.yaml").write_text("project: new\nsources: [.]\nsandbox: none\n")
    for elsewhere in ("tools", "scripts"):
        (folder / elsewhere).rename(folder / f"{elsewhere}-gone")
    assert toolcrib("validate", "new", "--strict").exit_code == exit_codes.OK
    monkeypatch.chdir(folder / "new")
    assert toolcrib("call", "once", "a=1").stdout == "./scripts/once.sh\n"
    assert toolcrib("call", "own", "a=1").stdout.endswith("scripts/own.sh\n")
    assert json.loads(toolcrib("call", "stay", "a=1").stdout) == {"result": "served"}


def test_a_program_does_not_overwrite_another(write, toolcrib):
    write(
        {
            **arena_files(
                tools__a__one_DOT_tool_DOT_yaml=program("one", "{command: sh, args: [./run.sh]}"),
                tools__b__two_DOT_tool_DOT_yaml=program("two", "{command: sh, args: [./run.sh]}"),
            ),
            "tools/a/run.sh": "echo 1\n",
            "tools/b/run.sh": "echo 2\n",
        }
    )
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "no file for `two`: its program `run.sh` would overwrite another one at tools/run.sh" in result.stderr
    )
