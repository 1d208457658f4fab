"""Descriptors of mode `mcp` that name no server: which one they get, and why none."""

from __future__ import annotations

import pytest

from offering import NOW, Offering, definition, offer, outcome
from toolcrib import Outcome, Runtime, parse_registry
from toolcrib.core.server_config import Server

READ = definition("read_file")

PROMPTKIT = """
apiVersion: promptkit.altairalabs.ai/v1alpha1
kind: Tool
metadata: {name: NAME}
spec: {description: d, input_schema: {type: object}, output_schema: {}, mode: mcp}
"""
FLAT = '{"name": "NAME", "description": "d", "inputSchema": {"type": "object"}, "mode": "mcp"}'
OWN = "name: NAME\nmode: mcp\n"
EMPTY = "name: NAME\nmcp: {}\n"


@pytest.fixture
def project(tmp_path):
    """Writes a project with some servers and one descriptor, and returns its folder."""

    def write(text: str, *servers: str, more: str = "{command: x}"):
        named = ", ".join(f"{server}: {more}" for server in servers)
        (tmp_path / "toolcrib.yaml").write_text(f"project: p\nservers: {{{named}}}\n")
        (tmp_path / "descriptors").mkdir(exist_ok=True)
        suffix = "json" if text.startswith("{") else "yaml"
        (tmp_path / f"descriptors/x.tool.{suffix}").write_text(text)
        return tmp_path

    return write


def named(text: str, name: str) -> str:
    return text.replace("NAME", name)


@pytest.mark.parametrize("text", [PROMPTKIT, FLAT, OWN, EMPTY])
@pytest.mark.parametrize("name", ["read_file", "mcp__fs__read_file"])
async def test_the_only_server_that_offers_the_tool_is_called(project, text, name):
    offering = Offering(offer("fs", READ), offer("time", NOW))
    folder = project(named(text, name), "time", "fs")
    async with Runtime.open(folder, executors=offering.executors()) as runtime:
        result = await runtime.call(name)
    assert result.value == {"server": "fs", "tool": "read_file", "args": {}}


@pytest.mark.parametrize("text", [PROMPTKIT, OWN])
async def test_the_first_call_asks_the_servers(project, text):
    offering = Offering(offer("fs", READ), offer("time", NOW))
    runtime = Runtime.open(project(named(text, "read_file"), "time", "fs"), executors=offering.executors())
    assert (list(runtime.registry), offering.asked) == (["read_file"], [])
    assert runtime._engine.undiscovered == ("fs", "time")
    assert (await runtime.call("read_file")).outcome is Outcome.OK
    assert sorted(offering.asked) == ["fs", "time"]
    await runtime.aclose()


async def test_the_name_of_a_server_in_the_name_of_the_tool_asks_no_other(project):
    offering = Offering(offer("fs", READ), offer("time", READ))
    runtime = Runtime.open(
        project(named(OWN, "mcp__fs__read_file"), "time", "fs"), executors=offering.executors()
    )
    result = await runtime.call("mcp__fs__read_file")
    assert (result.value, offering.asked) == ({"server": "fs", "tool": "read_file", "args": {}}, ["fs"])
    await runtime.aclose()


async def test_one_server_needs_no_question(project):
    offering = Offering()
    runtime = Runtime.open(project(named(FLAT, "read_file"), "fs"), executors=offering.executors())
    assert runtime.registry["read_file"].bindings["mcp"] == {"server": "fs", "tool": "read_file"}
    assert (runtime._engine.undiscovered, offering.asked) == ((), [])
    await runtime.aclose()


@pytest.mark.parametrize(
    ("servers", "name", "expected"),
    [
        (["fs", "fs__deep"], "mcp__fs__deep__read", ("fs__deep", "read")),
        (["fs", "other"], "mcp__fs__deep__read", ("fs", "deep__read")),
        (["mcp__fs", "other"], "mcp__fs__read", ("mcp__fs", "read")),
        (["my-fs", "other"], "mcp__my-fs__read", ("my-fs", "read")),
    ],
)
async def test_the_longest_name_of_a_server_counts(project, servers, name, expected):
    offering = Offering(*(offer(server, definition("x")) for server in servers))
    runtime = Runtime.open(project(named(FLAT, name), *servers), executors=offering.executors())
    block = runtime.registry[name].bindings["mcp"]
    assert (block["server"], block["tool"]) == expected
    await runtime.aclose()


async def test_a_written_tool_counts_more_than_the_name(project):
    offering = Offering(offer("fs", READ), offer("time", NOW))
    folder = project("name: reader\nmcp: {tool: read_file}\n", "time", "fs")
    async with Runtime.open(folder, executors=offering.executors()) as runtime:
        assert (await runtime.call("reader")).value["tool"] == "read_file"
        assert runtime.registry["reader"].description == "Does read_file."
        assert runtime.registry["reader"].origin.settings["mcp.server"] == "the server that offers the tool"


@pytest.mark.parametrize(
    ("offers", "name", "code", "message", "hint"),
    [
        (
            [offer("fs", READ), offer("web", READ), offer("time", NOW)],
            "read_file",
            "ambiguous_server",
            "several servers offer the tool `read_file`: `fs`, `web`; `read_file` must name one of them",
            "write `mcp: {server: fs, tool: read_file}`",
        ),
        (
            [offer("fs", READ), offer("time", NOW)],
            "read_fil",
            "unknown_remote_tool",
            "no server offers the tool `read_fil`, so `read_fil` cannot be called in mode `mcp`; the servers are `fs`, `time`",
            "did you mean `read_file`?",
        ),
        (
            [offer("fs", READ), offer("time", NOW)],
            "wholly_other",
            "unknown_remote_tool",
            "no server offers the tool `wholly_other`, so `wholly_other` cannot be called in mode `mcp`; the servers are `fs`, `time`",
            "name the tool: `mcp: {server: fs, tool: ...}`",
        ),
        (
            [offer("files", READ), offer("time", NOW)],
            "mcp__fs__read_file",
            "unknown_server",
            "unknown server `fs` in the name `mcp__fs__read_file`; the servers are `files`, `time`",
            "write `mcp: {server: files, tool: read_file}`",
        ),
        (
            [offer("files"), offer("time", NOW)],
            "mcp__file__read_file",
            "unknown_server",
            "unknown server `file` in the name `mcp__file__read_file`; the servers are `files`, `time`",
            "did you mean `files`?",
        ),
    ],
)
async def test_without_one_server_the_tool_is_unavailable(project, offers, name, code, message, hint):
    offering = Offering(*offers)
    folder = project(named(OWN, name), *(each.server for each in offers))
    async with Runtime.open(folder, executors=offering.executors()) as runtime:
        (problem,) = runtime.problems
        assert (problem.code, problem.message, problem.hint) == (code, message, hint)
        assert (problem.severity, problem.line) == ("warning", 1)
        result = await runtime.call(name)
        assert outcome(result) == (Outcome.UNAVAILABLE, code)
        assert result.message == f"{message}\n    hint: {hint}"
        assert runtime._engine.unavailable(runtime.registry[name]) == f"{message}; {hint}"


async def test_the_filter_of_a_server_hides_its_tool(project, tmp_path):
    folder = project(named(OWN, "read_file"), "fs", "web", more="{command: x, import: {except: [read_file]}}")
    text = (tmp_path / "toolcrib.yaml").read_text().replace("{except: [read_file]}", "true", 1)
    (tmp_path / "toolcrib.yaml").write_text(text)
    offering = Offering(offer("fs", READ), offer("web", READ))
    async with Runtime.open(folder, executors=offering.executors()) as runtime:
        assert (await runtime.call("read_file")).value["server"] == "fs"


async def test_a_server_that_is_down_leaves_the_choice_open(project):
    offering = Offering(offer("fs", READ))
    runtime = Runtime.open(project(named(OWN, "read_file"), "fs", "time"), executors=offering.executors())
    result = await runtime.call("read_file")
    assert outcome(result) == (Outcome.UNAVAILABLE, "server_down")
    assert result.message.startswith(
        "`read_file` names no server, and not all can be asked: the server `time`"
    )
    offering.offers["time"] = offer("time", NOW)
    assert (await runtime.call("read_file")).outcome is Outcome.OK
    await runtime.aclose()


async def test_a_tool_that_appears_at_a_second_server_makes_it_ambiguous(project):
    offering = Offering(offer("fs", READ), offer("time", NOW))
    folder = project(named(OWN, "read_file"), "fs", "time")
    async with Runtime.open(folder, executors=offering.executors()) as runtime:
        assert (await runtime.call("read_file")).outcome is Outcome.OK
        runtime._engine._discovery.offered["time"] = offer("time", NOW, READ)
        await runtime.reload()
        assert outcome(await runtime.call("read_file")) == (Outcome.UNAVAILABLE, "ambiguous_server")


async def test_servers_that_a_program_passes_are_chosen_too():
    offering = Offering(offer("fs", READ), offer("time", NOW))
    registry = parse_registry("x", {"name": "read_file", "mode": "mcp"}, kinds=offering.executors())
    servers = {name: Server(name, command="x") for name in ("fs", "time")}
    async with Runtime(registry, executors=offering.executors(), servers=servers) as runtime:
        assert (await runtime.call("read_file")).value["server"] == "fs"
