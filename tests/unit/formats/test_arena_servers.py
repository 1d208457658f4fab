"""`mcp_servers` of an arena: which servers they become, and where their problems are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arenas import KINDS, arena_files, manifest, put, read, told
from toolcrib.engine.open_project import open_project
from toolcrib.formats.promptkit.arena_servers import servers_of
from toolcrib.formats.promptkit.source_nodes import SourceNode
from toolcrib.loading.documents.document import parse_documents


def servers(text: str):
    """What the `mcp_servers` of an arena become, and the problems."""
    (document,), _problems = parse_documents("a/x.yaml", manifest("Arena", "x", f"mcp_servers:\n{text}"))
    return servers_of(SourceNode(document, "", document.value).part("spec"))


def opened(folder: Path, *paths: str):
    return open_project([str(folder), *paths], [], KINDS)


def problems_of(stock):
    """Code, pointer and line of the problems."""
    return [
        (problem.code, problem.pointer, problem.line)
        for problem in stock.problems
        if problem.severity != "notice"
    ]


def test_a_server_has_the_keys_of_a_project():
    found, problems = servers(
        "  - {name: fs, command: npx, args: [-y, 8080, '${X}'], env: {A: 1, B: yes}, working_dir: data, scope: session, timeout_ms: 500}\n"
        "  - {name: web, url: 'https://x.test', headers: {a: '${b}'}, tool_filter: {allowlist: [x], blocklist: [y]}}\n"
    )
    assert [(each.code, each.pointer, each.severity) for each in problems] == [
        ("unresolved_variable", "/spec/mcp_servers/1/headers/a", "warning")
    ]
    assert {name: dict(block.said) for name, block in found.items()} == {
        "mcp__fs": {
            "command": "npx",
            "args": ["-y", "8080", "$${X}"],
            "env": {"A": "1", "B": "yes"},
            "cwd": "data",
            "scope": "session",
            "timeouts": {"start": "500ms"},
            "import": True,
        },
        "mcp__web": {
            "url": "https://x.test",
            "headers": {"a": "$${b}"},
            "transport": "sse",
            "import": {"only": ["x"]},
        },
    }
    fs = found["mcp__fs"]
    assert (fs.root, fs.spot("cwd").pointer) == ("a", "/spec/mcp_servers/0/working_dir")
    assert fs.spot("env", "A").pointer == "/spec/mcp_servers/0/env/A"


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("Make sure node is on your path", ["Make sure node is on your path"]),
        ("''", []),
        ("/opt/a:$PATH", ["/opt/a"]),
        ("'${PATH}:/opt/a:'", ["/opt/a"]),
        ("/opt/a:/opt/b", ["/opt/a", "/opt/b"]),
    ],
)
def test_a_path_is_added_to_the_one_that_the_server_inherits(path, parts):
    found, problems = servers(f"  - {{name: fs, command: npx, env: {{PATH: {path}}}}}")
    assert found["mcp__fs"].said["env"]["PATH"].split(os.pathsep) == [*parts, "${PATH}"]
    assert problems == []


def test_a_variable_that_promptkit_does_not_resolve_is_reported():
    found, problems = servers("  - {name: fs, command: npx, env: {TOKEN: '${MY_TOKEN}', PRICE: $5}}")
    assert found["mcp__fs"].said["env"] == {"TOKEN": "$${MY_TOKEN}", "PRICE": "$5"}
    (problem,) = problems
    assert problem.message == "`${...}` in `TOKEN` is literal: PromptKit resolves no variables of servers"
    assert "`mcp__fs` in the `toolcrib.yaml`" in problem.hint


@pytest.mark.parametrize("timeout", ["0", "-1", "null"])
def test_without_a_positive_timeout_the_default_applies(timeout):
    found, _problems = servers(f"  - {{name: fs, command: npx, timeout_ms: {timeout}}}")
    assert "timeouts" not in found["mcp__fs"].said


def test_the_servers_of_an_arena_are_servers_of_a_direct_run(tmp_path):
    stock = opened(put(tmp_path, arena_files("mcp_servers: [{name: fs, command: serve}]")))
    server = stock.servers["mcp__fs"]
    assert (server.command, server.root, server.imports) == ("serve", str(tmp_path), True)
    assert server.place("command") == f"{tmp_path}/config.arena.yaml:9"
    assert (stock.unlisted, stock.lock_file) == (("mcp__fs",), str(tmp_path / "toolcrib.lock"))
    assert problems_of(stock) == []


@pytest.mark.parametrize("choice", ["required", "mcp__fs__read"])
def test_a_choice_is_no_contradiction_before_the_servers_were_asked(tmp_path, choice):
    prompt = f'task_type: help\nallowed_tools: ["mcp__fs__*"]\ntool_policy: {{tool_choice: {choice}}}'
    files = arena_files(
        "mcp_servers: [{name: fs, command: serve}]", prompt=prompt, answers="defaultResponse: Hi"
    )
    stock = opened(put(tmp_path, files))
    assert problems_of(stock) == []
    assert ([each.name for each in stock.postponed], stock.scenarios) == (["one"], ())


def test_a_scenario_alone_brings_the_servers_of_its_arena_only(tmp_path):
    files = arena_files("mcp_servers: [{name: fs, command: serve}]")
    other = manifest("Arena", "other", "mcp_servers: [{name: other, command: serve}]")
    folder = put(tmp_path, {**files, "other.arena.yaml": other})
    assert [*opened(folder / "scenarios/one.scenario.yaml").servers] == ["mcp__fs"]
    assert sorted(opened(folder).servers) == ["mcp__fs", "mcp__other"]


def test_a_server_of_the_project_replaces_one_of_an_arena(tmp_path):
    project = "project: p\nsources: [arena]\nservers: {mcp__fs: {command: ours}}\n"
    arena = arena_files("mcp_servers: [{name: fs, command: theirs}, {name: web, url: 'https://x.test'}]")
    folder = put(
        tmp_path, {"toolcrib.yaml": project, **{f"arena/{name}": text for name, text in arena.items()}}
    )
    stock = opened(folder)
    assert {name: server.command for name, server in stock.servers.items()} == {
        "mcp__fs": "ours",
        "mcp__web": "",
    }
    assert stock.lock_file == str(tmp_path / "toolcrib.lock")


def test_the_server_of_two_arenas_is_the_last_one(tmp_path):
    arenas = {
        f"{name}.yaml": manifest("Arena", name, f"mcp_servers: [{{name: fs, command: {name}}}]")
        for name in "ab"
    }
    stock = opened(put(tmp_path, arenas))
    assert stock.servers["mcp__fs"].command == "b"
    assert problems_of(stock) == [("duplicate_name", "/spec/mcp_servers/0", 6)]


def test_the_server_of_two_equal_entries_is_the_last_one():
    found, problems = servers("  - {name: fs, command: a}\n  - {name: fs, command: b}\n")
    assert found["mcp__fs"].said["command"] == "b"
    assert [problem.message for problem in problems] == ["duplicate server `fs`; this one is used"]


def test_a_pack_configures_no_servers(tmp_path):
    arena = arena_files("mcp_servers: [{name: fs, command: serve}]")
    stock = opened(
        put(tmp_path, {"pack.yaml": "name: p\nversion: 1.0.0\ntools: ['**']\nscenarios: ['**']\n", **arena})
    )
    assert dict(stock.servers) == {}
    (problem,) = (problem for problem in stock.problems if problem.code == "server_left_out")
    assert (problem.message, problem.severity, problem.line) == (
        "the server `mcp__fs` of a pack is ignored",
        "warning",
        9,
    )
    assert problem.hint == "configure it under `servers` in toolcrib.yaml"


@pytest.mark.parametrize(
    ("server", "code", "pointer"),
    [
        ("{name: fs, command: npx -y fs}", "wrong_form", "/command"),
        ("{name: fs}", "missing_key", ""),
        ("{name: fs, command: a, url: 'https://x.test'}", "wrong_combination", "/url"),
        ("{name: fs, url: x.test}", "invalid_url", "/url"),
        ("{name: fs, command: a, timeout_ms: 700000}", "out_of_range", "/timeout_ms"),
        ("{name: fs, command: a, env: {API_KEY: '123'}}", "literal_secret", "/env/API_KEY"),
        ("{name: fs, command: a, env: {'': x}}", "wrong_form", "/env/"),
        ("{name: fs, command: a, args: b}", "wrong_type", "/args"),
        ("{name: fs, command: a, env: {A: {}}}", "wrong_type", "/env/A"),
        ("{name: fs, command: a, tool_filter: {allowlist: x}}", "wrong_type", "/tool_filter/allowlist"),
        ("{name: fs, comand: a}", "unknown_key", "/comand"),
        ("{command: a}", "missing_key", ""),
        ("{name: fs, source: docker}", "no_counterpart", "/source"),
        ("x", "wrong_type", ""),
    ],
)
def test_a_wrong_server_is_reported_where_it_is_written(tmp_path, server, code, pointer):
    stock = opened(put(tmp_path, arena_files(f"mcp_servers:\n  - {server}\n")))
    assert (code, f"/spec/mcp_servers/0{pointer}", 10) in problems_of(stock)


def test_the_hint_of_a_literal_secret_does_not_name_a_variable_that_an_arena_would_not_look_up(tmp_path):
    spec = "mcp_servers: [{name: fs, command: a, env: {API_KEY: '123'}}]"
    (problem,) = opened(put(tmp_path, arena_files(spec))).problems
    assert problem.hint == "configure the server in `toolcrib.yaml`, where `${VAR}` is looked up"


def test_reading_without_a_project_still_reads_the_arena(tmp_path):
    found = read(put(tmp_path, arena_files("mcp_servers: [{name: fs, command: serve}]")))
    assert told(found) == []
    assert [scenario.name for scenario in found.scenarios] == ["one"]


def test_a_reload_keeps_the_servers_of_an_arena_that_is_broken_now(tmp_path):
    folder = put(tmp_path, arena_files("mcp_servers: [{name: fs, command: serve}]"))
    before = opened(folder)
    config = folder / "config.arena.yaml"
    whole = config.read_text()
    config.write_text(whole + "  providers: 7\n")
    broken = open_project([str(folder)], [], KINDS, before)
    assert broken.servers == before.servers
    assert ("duplicate_key", "/spec/providers", 10) in problems_of(broken)
    config.write_text(whole.replace("mcp_servers:", "labels:"))
    assert dict(open_project([str(folder)], [], KINDS, broken).servers) == {}
