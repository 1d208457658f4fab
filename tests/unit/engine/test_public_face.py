"""What a user sees of a runtime: its names, and what it prints."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import mocked, runtime_of
from toolcrib import ConfigurationError, Registry, Result, Runtime, Session

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
    "name",
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


def test_an_unknown_name_suggests_one():
    registry = runtime_of(mocked("result: 1")).registry
    with pytest.raises(KeyError, match=r"unknown tool `tol`; did you mean `tool`\?"):
        registry["tol"]
    with pytest.raises(KeyError, match=r"unknown tool `zzz`; Registry\(1 tool: tool\)"):
        registry["zzz"]


def test_a_runtime_is_a_collection_of_names_and_true_without_tools():
    runtime = runtime_of(mocked("result: 1"))
    assert (len(runtime), list(runtime), "tool" in runtime, "other" in runtime) == (1, ["tool"], True, False)
    empty = Runtime(Registry())
    assert (len(empty), bool(empty)) == (0, True)


def test_notebooks_show_tables_in_which_descriptions_are_escaped():
    first = runtime_of(mocked("result: 1")).registry["tool"]
    tools = [first._replace(name=f"t{number:02}", description="<b>One</b>. Two.") for number in range(60)]
    shown = Registry(tools)._repr_html_()
    assert "<tr><td>t00</td><td>mock</td><td>&lt;b&gt;One&lt;/b&gt;.</td></tr>" in shown
    assert (shown.count("<tr>"), shown.endswith("<p>and 10 more</p>")) == (51, True)
    with Runtime(Registry(tools[:1])) as runtime:
        assert runtime._repr_html_().startswith("<p>Runtime(1 tool)</p><table>")


def test_a_path_that_does_not_exist_raises_with_all_of_them_and_similar_names(tmp_path):
    (tmp_path / "descriptors").mkdir()
    wrong, other = tmp_path / "descriptor", tmp_path / "zzz" / "tools"
    with pytest.raises(ConfigurationError) as caught:
        Runtime.open(wrong, other, tmp_path)
    assert caught.value.code == "path_not_found"
    assert caught.value.message == f"`{wrong}`, `{other}` do not exist"
    assert caught.value.hint == f"did you mean `{tmp_path / 'descriptors'}`?"
    with pytest.raises(ConfigurationError, match=r"`/typo` does not exist"):
        Runtime.open("/typo")


def test_an_empty_folder_is_no_mistake(tmp_path):
    with Runtime.open(tmp_path) as runtime:
        assert (len(runtime), runtime.problems) == (0, ())


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
