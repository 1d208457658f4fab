"""The OpenAI Agents SDK with the tools of a runtime and a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, add_trace_processor, set_trace_processors
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tracing import TracingProcessor
from shop import CALLS, hanging_tool, new_runtime, run_how_to, with_listing_server

from toolcrib import ConfigurationError, InternalError, Runtime
from toolcrib.frameworks import to_openai_agents

set_trace_processors([])


def agent_of(tools: list[Any], *calls: Any) -> Agent:
    steps = [
        [function_call(name, arguments, call_id=f"c{number}")]
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    return Agent("shop", model=ScriptedModel([*steps, [assistant_message("done")]]), tools=tools)


def outputs(result: Any) -> list[Any]:
    return [item.output for item in result.new_items if hasattr(item, "output")]


def test_an_agent_calls_a_tool():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_openai_agents(runtime), ("get_forecast", {"city": "Oslo"}))
            return await Runner.run(agent, "hello")

    assert outputs(asyncio.run(run())) == ['{"city":"Oslo","days":3}']


def test_models_get_the_schema_of_the_tool():
    with new_runtime() as runtime:
        (tool,) = to_openai_agents(runtime, "find.items")
        (strict,) = to_openai_agents(runtime, "get_forecast", dialect="openai_responses_strict")
    assert (tool.name, tool.strict_json_schema) == ("find_items", False)
    assert tool.params_json_schema["properties"]["config"]["properties"]["kind"] == {"const": "book"}
    assert (strict.strict_json_schema, strict.params_json_schema["required"]) == (True, ["city", "days"])


def test_arguments_of_strict_mode_are_restored():
    async def run():
        async with new_runtime() as runtime:
            tools = to_openai_agents(runtime, dialect="openai_responses_strict")
            return await Runner.run(
                agent_of(tools, ("get_forecast", {"city": "Oslo", "days": None})), "hello"
            )

    assert outputs(asyncio.run(run())) == ['{"city":"Oslo","days":3}']


def test_a_model_reads_what_is_wrong_and_calls_again():
    async def run():
        async with new_runtime() as runtime:
            calls = (
                ("get_forecast", {"city": "Oslo", "days": 9}),
                ("get_forecast", '{"city": '),
                ("get_forecast", {"city": "Oslo", "days": "7"}),
                ("get_forecast", {"city": "Atlantis"}),
            )
            return await Runner.run(agent_of(to_openai_agents(runtime), *calls), "hello")

    refused, unreadable, repaired, failed = outputs(asyncio.run(run()))
    assert "/days" in refused
    assert unreadable.startswith("not_json: ")
    assert repaired == '{"city":"Oslo","days":7}'
    assert failed == "LookupError: this city is under water"


def test_a_bug_raises():
    async def run():
        async with new_runtime() as runtime:
            await Runner.run(agent_of(to_openai_agents(runtime), ("broken", {})), "hello")

    with pytest.raises(Exception) as caught:  # noqa: PT011 -- the SDK may wrap it
        asyncio.run(run())
    assert InternalError in {type(caught.value), type(caught.value.__cause__)}


class Spans(TracingProcessor):
    """Keeps the custom spans."""

    def __init__(self) -> None:
        self.data: list[tuple[str, dict[str, Any]]] = []

    def on_span_end(self, span: Any) -> None:
        if span.span_data.type == "custom":
            self.data.append((span.span_data.name, span.span_data.data))

    def on_trace_start(self, trace: Any) -> None: ...
    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


def test_progress_and_content_are_spans_of_the_trace():
    spans = Spans()
    add_trace_processor(spans)

    async def run():
        async with new_runtime() as runtime:
            await Runner.run(agent_of(to_openai_agents(runtime), ("count", {})), "hello")

    asyncio.run(run())
    set_trace_processors([])
    toolcrib = [(name, data) for name, data in spans.data if name.startswith("toolcrib")]
    assert toolcrib == [
        ("toolcrib.progress", {"progress": 1, "total": 2, "message": "first"}),
        ("toolcrib.content", {"content": {"type": "text", "text": "half"}}),
        ("toolcrib.progress", {"progress": 2, "total": 2, "message": "second"}),
    ]


def test_cancelling_the_run_cancels_the_call():
    async def run():
        hang, state = hanging_tool()
        async with new_runtime() as runtime:
            runtime.add(hang)
            task = asyncio.create_task(Runner.run(agent_of(to_openai_agents(runtime), ("hang", {})), "hello"))
            await asyncio.wait_for(state.started.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(state.cancelled.wait(), 30)

    asyncio.run(run())


def test_a_deadline_is_told_to_the_model():
    async def run():
        hang, state = hanging_tool("10ms")
        async with new_runtime() as runtime:
            runtime.add(hang)
            result = await Runner.run(agent_of(to_openai_agents(runtime), ("hang", {})), "hello")
            assert state.cancelled.is_set()
            return result

    (output,) = outputs(asyncio.run(run()))
    assert "10ms" in output


@pytest.mark.parametrize("approve", [True, False], ids=["approve", "reject"])
def test_a_call_that_needs_approval_interrupts_the_run(approve):
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_openai_agents(runtime, ask=["refund"]), ("refund", {"order": "A1"}))
            paused = await Runner.run(agent, "hello")
            (interruption,) = paused.interruptions
            assert (interruption.tool_name, CALLS) == ("refund", [])
            state = paused.to_state()
            if approve:
                state.approve(interruption)
            else:
                state.reject(interruption, rejection_message="too late")
            return await Runner.run(agent, state)

    result = asyncio.run(run())
    assert result.final_output == "done"
    assert (outputs(result), CALLS) == ((["refunded A1"], ["A1"]) if approve else (["too late"], []))


def test_nobody_is_asked_about_invalid_arguments():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_openai_agents(runtime, ask=["refund"]), ("refund", {"order": 7.5}))
            return await Runner.run(agent, "hello")

    result = asyncio.run(run())
    assert (result.interruptions, result.final_output) == ([], "done")


@pytest.mark.parametrize("approve", [True, False], ids=["approve", "reject"])
def test_a_rule_of_the_project_that_asks_interrupts_the_run(approve, tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: shop\nsources: [pay.yaml]\n"
        "access: {rules: [{ask: {tool: pay, args: {amount: {$gt: 100}}}}]}\n"
    )
    (tmp_path / "pay.yaml").write_text(
        "name: pay\ninput_schema: {type: object, properties: {amount: {type: integer}}}\n"
        "mock: {result: 'paid {{ args.amount }}'}\n"
    )

    async def run():
        async with Runtime.open(tmp_path, index=False, approvals=tmp_path / "approvals") as runtime:
            calls = (("pay", {"amount": 7}), ("pay", {"amount": 700}))
            agent = agent_of(to_openai_agents(runtime), *calls)
            paused = await Runner.run(agent, "hello")
            (interruption,) = paused.interruptions
            assert outputs(paused)[:1] == ["paid 7"]
            state = paused.to_state()
            if approve:
                state.approve(interruption)
            else:
                state.reject(interruption, rejection_message="too much")
            return await Runner.run(agent, state), runtime.approvals.pending()

    result, pending = asyncio.run(run())
    assert result.final_output == "done"
    assert outputs(result)[-1] == ("paid 700" if approve else "too much")
    assert pending == ()


def test_a_call_that_only_the_runtime_knows_to_need_approval_is_not_made():
    async def run():
        async with new_runtime() as runtime:
            agent = agent_of(to_openai_agents(runtime), ("refund", {"order": "A1"}))
            return await Runner.run(agent, "hello")

    assert (outputs(asyncio.run(run())), CALLS) == (["refund A1?"], [])


def test_images_are_outputs_of_their_own():
    async def run():
        async with new_runtime() as runtime:
            return await Runner.run(agent_of(to_openai_agents(runtime), ("draw", {})), "hello")

    ((text, image),) = outputs(asyncio.run(run()))
    assert (text.text, image.image_url) == ("drawn", "data:image/png;base64,aGVsbG8=")


def test_a_session_keeps_its_own_tools():
    async def run():
        async with new_runtime() as runtime, runtime.session(user="ada") as session:
            return await Runner.run(
                agent_of(to_openai_agents(session), ("get_forecast", {"city": "Oslo"})),
                "hello",
                run_config=RunConfig(tracing_disabled=True),
            )

    assert len(outputs(asyncio.run(run()))) == 1


def test_a_server_is_listed_before_its_tools_are_passed_on(tmp_path):
    async def run():
        async with with_listing_server(tmp_path) as runtime:
            return to_openai_agents(runtime)

    with pytest.raises(ConfigurationError, match="`docs` are not known yet"):
        to_openai_agents(with_listing_server(tmp_path))
    expected = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    found = {tool.name: tool.params_json_schema for tool in asyncio.run(run())}
    assert found == {"say": expected, "docs__echo": expected}


def test_the_how_to(tmp_path):
    run_how_to("use-from-openai-agents.md", tmp_path)
