"""What a user sees of a runtime: its names, and what it prints."""

from __future__ import annotations

import asyncio

from in_memory import mocked, runtime_of
from toolcrib import Registry, Result, Runtime, Session

FACE = {
    "aclose",
    "add",
    "answer_remote_task",
    "approvals",
    "call",
    "call_sync",
    "cancel",
    "cancel_remote_task",
    "catalogue",
    "close",
    "configure",
    "disable",
    "discover",
    "dry_run",
    "enable",
    "estimate",
    "execute_remote_tool",
    "execute_remote_tool_streaming",
    "journal",
    "list_remote_tools",
    "observe",
    "open",
    "packs",
    "problems",
    "project",
    "registry",
    "reload",
    "remote_task_result",
    "remove",
    "reset_statistics",
    "resume",
    "running",
    "scenarios",
    "servers",
    "session",
    "statistics",
    "stream",
    "violations",
    "watch",
}


def names_of(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_runtime_shows_what_a_user_calls():
    assert names_of(Runtime) == FACE


def test_a_session_gives_back_what_it_holds_at_the_end_of_its_block():
    runtime = runtime_of(mocked("result: 1"))
    released = []

    async def release(session_id):
        released.append(session_id)

    runtime._engine.executors.release = release

    async def run():
        async with runtime.session(id="mine") as session:
            assert isinstance(session, Session)
            return await session.call("tool")

    assert asyncio.run(run()).value == 1
    assert released == ["mine"]


def test_a_runtime_prints_its_content():
    with Runtime.open("descriptors", "packs", index=False, trust=False) as runtime:
        text = repr(runtime)
    assert text == (
        f"Runtime({len(runtime.registry)} tools, {len(runtime.packs)} packs, {len(runtime.scenarios)} scenarios)"
    )
    runtime.close()
    assert repr(runtime).endswith(", closed)")


def test_a_session_prints_its_tools_and_calls():
    session = runtime_of(mocked("result: 1")).session(id="mine")
    asyncio.run(session.call("tool"))
    assert repr(session) == "Session('mine', 1 tool, 1 call)"


def test_a_registry_prints_its_first_names():
    tools = [runtime_of(mocked("result: 1")).registry["tool"]._replace(name=name) for name in "abcdefg"]
    assert repr(Registry(tools)) == "Registry(7 tools: a, b, c, d, e, ...)"
    assert repr(Registry(tools[:1])) == "Registry(1 tool: a)"
    assert repr(Registry()) == "Registry(0 tools)"


def test_a_descriptor_prints_its_name_mode_arguments_and_origin():
    tool = runtime_of(mocked("result: 1")).registry["tool"]
    assert (
        repr(tool) == f"Descriptor('tool', mode='mock', arguments=[], origin={f'{tool.origin.source}:1'!r})"
    )


def test_a_result_prints_outcome_tool_and_the_beginning_of_its_value():
    other = mocked("error: no such city").replace("name: tool", "name: other")
    runtime = runtime_of(mocked("result: {city: Oslo}") + "---\n" + other)
    assert repr(runtime.call_sync("tool")) == "Result(ok, tool, {'city': 'Oslo'})"
    assert repr(runtime.call_sync("other")) == "Result(tool_error, other, no such city)"
    assert repr(Result.success("a\nb" + "x" * 100)) == f"Result(ok, 'a\\nb{'x' * 75}...)"
    assert repr(Result.success()) == "Result(ok, None)"
