"""LangChain and LangGraph with the tools of a runtime and a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from shop import CALLS, hanging_tool, new_runtime, run_how_to, with_listing_server

from toolcrib import ConfigurationError, InternalError
from toolcrib.frameworks import to_langchain

THREAD = {"configurable": {"thread_id": "1"}}
HELLO = {"messages": [("user", "hello")]}


class Scripted(GenericFakeChatModel):
    """A chat model that says what was written for it, and accepts tools."""

    def bind_tools(self, tools: Any, **_options: Any) -> Any:
        return self


def call(name: str, arguments: dict[str, Any], number: str = "c1") -> AIMessage:
    asked = {"name": name, "args": arguments, "id": number, "type": "tool_call"}
    return AIMessage(content="", tool_calls=[asked])


def agent_of(tools: list[Any], *messages: AIMessage, **options: Any) -> Any:
    return create_agent(Scripted(messages=iter([*messages, AIMessage("done")])), tools, **options)


def results(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def test_an_agent_calls_a_tool():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_langchain(runtime), call("get_forecast", {"city": "Oslo"}))
            return await agent.ainvoke(HELLO)

    (message,) = results(asyncio.run(run()))
    assert (message.content, message.status) == ('{"city":"Oslo","days":3}', "success")
    assert message.artifact["result"] == {"city": "Oslo", "days": 3}


def test_an_agent_without_an_event_loop_calls_a_tool():
    with new_runtime() as runtime:
        agent = agent_of(to_langchain(runtime), call("get_forecast", {"city": "Oslo"}), call("count", {}))
        events = list(agent.stream(HELLO, stream_mode="custom"))
    assert [event.get("progress") for event in events] == [1, None, 2]


def test_models_get_the_schema_of_the_tool():
    with new_runtime() as runtime:
        (tool,) = to_langchain(runtime, "find.items")
    declared = convert_to_openai_tool(tool)["function"]
    assert declared["name"] == "find_items"
    assert declared["parameters"]["properties"]["config"]["properties"]["kind"] == {"const": "book"}


def test_an_argument_may_be_called_config():
    with new_runtime() as runtime:
        (tool,) = to_langchain(runtime, "find.items")
        assert tool.invoke({"config": {"self": "x"}}) == '{"found":{"config":{"self":"x"}}}'


def test_a_model_reads_what_is_wrong_and_calls_again():
    async def run():
        async with new_runtime() as runtime:
            wrong, right = {"city": "Oslo", "days": 9}, {"city": "Oslo", "days": "7"}
            calls = (
                call("get_forecast", wrong),
                call("get_forecast", right, "c2"),
                call("get_forecast", {"city": "Atlantis"}, "c3"),
            )
            return await agent_of(to_langchain(runtime), *calls).ainvoke(HELLO)

    refused, repaired, failed = results(asyncio.run(run()))
    assert (refused.status, "/days" in refused.content) == ("error", True)
    assert repaired.content == '{"city":"Oslo","days":7}'
    assert (failed.status, failed.content) == ("error", "LookupError: this city is under water")


def test_a_bug_raises():
    async def run():
        async with new_runtime() as runtime:
            await agent_of(to_langchain(runtime), call("broken", {})).ainvoke(HELLO)

    with pytest.raises(InternalError):
        asyncio.run(run())


def test_progress_and_content_reach_the_stream_of_the_graph():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_langchain(runtime), call("count", {}))
            return [event async for event in agent.astream(HELLO, stream_mode="custom")]

    first, partial, second = asyncio.run(run())
    assert first == {"tool": "count", "tool_call_id": "c1", "progress": 1, "total": 2, "message": "first"}
    assert partial["content"] == {"type": "text", "text": "half"}
    assert second["progress"] == 2


def test_progress_is_a_custom_event_outside_a_graph():
    async def run():
        async with new_runtime() as runtime:
            (tool,) = to_langchain(runtime, "count")
            events = [event async for event in tool.astream_events({}, version="v2")]
            return [event["data"] for event in events if event["event"] == "on_custom_event"]

    assert [event.get("message") for event in asyncio.run(run())] == ["first", None, "second"]


def test_cancelling_the_graph_cancels_the_call():
    async def run():
        hang, state = hanging_tool()
        async with new_runtime() as runtime:
            runtime.add(hang)
            agent = agent_of(to_langchain(runtime), call("hang", {}))
            task = asyncio.create_task(agent.ainvoke(HELLO))
            await asyncio.wait_for(state.started.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert state.cancelled.is_set()

    asyncio.run(run())


def test_a_deadline_is_an_error_that_the_model_reads():
    async def run():
        hang, state = hanging_tool("10ms")
        async with new_runtime() as runtime:
            runtime.add(hang)
            found = await agent_of(to_langchain(runtime), call("hang", {})).ainvoke(HELLO)
            assert state.cancelled.is_set()
            return found

    (message,) = results(asyncio.run(run()))
    assert message.status == "error"
    assert "10ms" in message.content


ANSWERS = {
    "approve": ({"approve": True}, ["A1"], "refunded A1"),
    "true": (True, ["A1"], "refunded A1"),
    "edit": ({"approve": {"arguments": {"order": "A2"}}}, ["A2"], "refunded A2"),
    "reject": ({"reject": "too late"}, [], "rejected: `refund` was not called: too late"),
}


@pytest.mark.parametrize(("answer", "calls", "content"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("ask", [(), ("refund",)], ids=["middleware", "ask"])
def test_a_call_that_needs_approval_interrupts_the_graph(answer, calls, content, ask):
    async def run():
        async with new_runtime() as runtime:
            tools = to_langchain(runtime, ask=ask)
            agent = agent_of(tools, call("refund", {"order": "A1"}), checkpointer=InMemorySaver())
            paused = await agent.ainvoke(HELLO, THREAD)
            (interrupt,) = paused["__interrupt__"]
            assert CALLS == []
            return interrupt.value, await agent.ainvoke(Command(resume=answer), THREAD)

    asked, state = asyncio.run(run())
    assert {key: asked[key] for key in ("id", "tool", "arguments", "code")} == {
        "id": "c1",
        "tool": "refund",
        "arguments": {"order": "A1"},
        "code": "needs_approval",
    }
    assert calls == CALLS
    assert [message.content for message in results(state)] == [content]


def test_a_client_answers_a_call_while_the_graph_is_interrupted():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(
                to_langchain(runtime), call("ask_person", {"question": "Size?"}), checkpointer=InMemorySaver()
            )
            paused = await agent.ainvoke(HELLO, THREAD)
            assert paused["__interrupt__"][0].value["code"] == "client_tool_deferred"
            return await agent.ainvoke(Command(resume={"result": "XL"}), THREAD)

    (message,) = results(asyncio.run(run()))
    assert message.content == "XL"


def test_the_result_of_a_client_is_validated():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(
                to_langchain(runtime), call("ask_person", {"question": "Size?"}), checkpointer=InMemorySaver()
            )
            await agent.ainvoke(HELLO, THREAD)
            return await agent.ainvoke(Command(resume={"result": 7}), THREAD)

    (message,) = results(asyncio.run(run()))
    assert message.status == "error"


def test_an_invalid_answer_says_what_is_valid():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(
                to_langchain(runtime), call("refund", {"order": "A1"}), checkpointer=InMemorySaver()
            )
            await agent.ainvoke(HELLO, THREAD)
            await agent.ainvoke(Command(resume="yes"), THREAD)

    with pytest.raises(ConfigurationError, match="resume with an answer"):
        asyncio.run(run())


def test_without_a_graph_the_model_is_told_that_approval_is_needed():
    with new_runtime() as runtime:
        (tool,) = to_langchain(runtime, "refund")
        assert tool.invoke({"order": "A1"}) == "refund A1?"
    assert CALLS == []


def test_images_are_content_blocks():
    with new_runtime() as runtime:
        (tool,) = to_langchain(runtime, "draw")
        message = tool.invoke({"name": "draw", "args": {}, "id": "c1", "type": "tool_call"})
    assert message.content == [
        {"type": "text", "text": "drawn"},
        {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
    ]


def test_a_server_is_listed_before_its_tools_are_passed_on(tmp_path):
    async def run():
        async with with_listing_server(tmp_path) as runtime:
            return to_langchain(runtime)

    unopened = with_listing_server(tmp_path)
    with pytest.raises(ConfigurationError, match="`docs` are not known yet") as caught:
        to_langchain(unopened)
    assert caught.value.code == "not_discovered"
    found = {tool.name: tool.args for tool in asyncio.run(run())}
    assert found == {"say": {"text": {"type": "string"}}, "docs__echo": {"text": {"type": "string"}}}


def test_the_how_to(tmp_path):
    run_how_to("use-from-langchain.md", tmp_path)
