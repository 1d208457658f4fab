"""Tools of agents by the agents' own names: listed, called, streamed, and answered. The agents are the official SDK's."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from a2a.helpers import new_text_part
from a2a.types import TaskState
from google.protobuf.json_format import MessageToDict

from a2a_agents import INTEGERS, SUM, sdk_agent
from toolcrib import ConfigurationError, Outcome, Partial, Runtime


def runtime(folder, base, **agent):
    agents = {"crm": {"card": base, **agent}}
    (folder / "toolcrib.yaml").write_text(json.dumps({"project": "p", "sources": [], "agents": agents}))
    return Runtime.open(folder, index=False)


async def test_tools_are_listed_without_being_imported(tmp_path):
    async with sdk_agent() as agent, runtime(tmp_path, agent.base) as tools:
        assert [*tools.registry] == []
        add, note, _ask = await tools.list_remote_tools("crm")
        assert (add.name, add.agent, add.url, add.version) == ("add", "crm", agent.base, "1.2.0")
        assert (add.input_schema, add.output_schema, add.description) == (INTEGERS, SUM, "Add two integers")
        assert (add.annotations, note.output_schema) == ({"readOnlyHint": True}, None)


async def test_a_tool_is_called_by_the_name_of_its_agent(tmp_path):
    async with sdk_agent() as agent, runtime(tmp_path, agent.base) as tools:
        result = await tools.execute_remote_tool(
            "crm", "add", {"a": 2, "b": 3}, metadata={"ticket": "T-1"}, timeout=7
        )
        assert (result.outcome, result.value, result.tool) == (Outcome.OK, {"sum": 5}, "crm__add")
        call = MessageToDict(agent.messages[0].message.metadata)["_tool_call"]
        assert call["metadata"] == {"ticket": "T-1"}
        assert 0 < call["timeout_ms"] <= 7_000
        wrong = await tools.execute_remote_tool("crm", "add", {"a": "x"})
        assert wrong.outcome is Outcome.INVALID_ARGUMENTS


async def test_an_imported_tool_keeps_its_settings(tmp_path):
    document = {
        "name": "crm__add",
        "input_schema": {"type": "object", "required": ["c"]},
        "a2a": {"agent": "crm", "tool": "add"},
    }
    async with sdk_agent() as agent:
        runtime(tmp_path, agent.base, **{"import": True})
        text = json.loads((tmp_path / "toolcrib.yaml").read_text())
        (tmp_path / "toolcrib.yaml").write_text(json.dumps({**text, "sources": ["tool.json"]}))
        (tmp_path / "tool.json").write_text(json.dumps(document))
        async with Runtime.open(tmp_path, index=False) as tools:
            result = await tools.execute_remote_tool("crm", "add", {"a": 1, "b": 1})
            assert result.outcome is Outcome.INVALID_ARGUMENTS


async def test_a_deadline_of_the_call_holds(tmp_path):
    async def forever(_turn):
        await asyncio.Event().wait()

    async with sdk_agent(forever) as agent, runtime(tmp_path, agent.base) as tools:
        result = await tools.execute_remote_tool("crm", "note", {}, timeout=0.2)
        assert result.outcome is Outcome.TIMEOUT
        assert agent.cancelled.is_set()


async def test_a_call_is_streamed_and_leaving_cancels_it(tmp_path):
    gate = asyncio.Event()

    async def count(turn):
        await turn.result({"i": 0}, artifact_id="one", append=False, last_chunk=False)
        await gate.wait()
        await turn.result({"i": 1}, artifact_id="one", append=True, last_chunk=True)
        await turn.updater.complete()

    async with sdk_agent(count) as agent, runtime(tmp_path, agent.base) as tools:
        async with contextlib.aclosing(tools.execute_remote_tool_streaming("crm", "note", {})) as events:
            assert isinstance(await anext(events), Partial)
        await asyncio.wait_for(agent.cancelled.wait(), 60)
        gate.set()
        seen = [event async for event in tools.execute_remote_tool_streaming("crm", "note", {})]
        assert [type(event).__name__ for event in seen] == ["Partial", "Partial", "Result"]
        assert seen[-1].value == [{"i": 0}, {"i": 1}]


async def test_an_answer_continues_the_same_task(tmp_path):
    heard = []

    async def books(turn):
        if turn.context.current_task is None or not heard:
            heard.append(turn.params)
            ask = turn.updater.new_agent_message([new_text_part("Which colour?")])
            await turn.updater.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, ask)
            return
        heard.append(turn.context.get_user_input())
        if len(heard) == 2:
            ask = turn.updater.new_agent_message([new_text_part("Really?")])
            await turn.updater.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, ask)
            return
        await turn.result({"booked": heard[1:]})
        await turn.updater.complete()

    async with sdk_agent(books) as agent, runtime(tmp_path, agent.base, **{"import": True}) as tools:
        first = await tools.call("crm__note", {"room": 1})
        assert (first.outcome, first.error.details["question"]) == (Outcome.NEEDS_APPROVAL, "Which colour?")
        second = await tools.answer_remote_task(first, "blue")
        assert (second.outcome, second.error.details["question"]) == (Outcome.NEEDS_APPROVAL, "Really?")
        last = await tools.answer_remote_task(second, "yes")
        assert (last.outcome, last.value) == (Outcome.OK, {"booked": ["blue", "yes"]})
        assert len({context.task_id for context in agent.messages}) == 1
        assert len(agent.messages) == 3


async def test_only_a_call_that_waits_can_be_answered(tmp_path):
    async with sdk_agent() as agent, runtime(tmp_path, agent.base) as tools:
        result = await tools.execute_remote_tool("crm", "add", {"a": 1, "b": 1})
        with pytest.raises(ConfigurationError, match="does not wait for an answer"):
            await tools.answer_remote_task(result, "yes")


async def test_an_unknown_agent_and_an_unknown_tool(tmp_path):
    async with sdk_agent() as agent, runtime(tmp_path, agent.base) as tools:
        with pytest.raises(ConfigurationError, match="unknown agent `crn`") as told:
            await tools.list_remote_tools("crn")
        assert "crm" in told.value.hint
        result = await tools.execute_remote_tool("crm", "ad", {})
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_remote_tool")
        with pytest.raises(ConfigurationError, match="greater than 0"):
            await tools.execute_remote_tool("crm", "add", {}, timeout=0)


async def test_an_agent_that_is_down_is_a_result(tmp_path):
    async with runtime(tmp_path, "http://127.0.0.1:1") as tools:
        result = await tools.execute_remote_tool("crm", "add", {})
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "server_down")
        events = [event async for event in tools.execute_remote_tool_streaming("crm", "add", {})]
        assert [event.outcome for event in events] == [Outcome.UNAVAILABLE]


async def test_rules_of_access_apply(tmp_path):
    async with sdk_agent() as agent:
        runtime(tmp_path, agent.base)
        text = json.loads((tmp_path / "toolcrib.yaml").read_text())
        access = {"rules": [{"deny": {"tool": "crm__*"}, "reason": "not today"}]}
        (tmp_path / "toolcrib.yaml").write_text(json.dumps({**text, "access": access}))
        async with Runtime.open(tmp_path, index=False) as tools:
            result = await tools.execute_remote_tool("crm", "add", {"a": 1, "b": 1})
            assert result.outcome is Outcome.DENIED
        assert agent.messages == []


async def test_an_untrusted_project_calls_nothing(tmp_path):
    async with sdk_agent() as agent:
        runtime(tmp_path, agent.base)
        async with Runtime.open(tmp_path, index=False, trust=False) as tools:
            result = await tools.execute_remote_tool("crm", "add", {"a": 1, "b": 1})
            assert (result.outcome, result.error.code) == (Outcome.DENIED, "untrusted_workspace")
        assert agent.cards == 0


async def test_a_task_that_runs_is_looked_at_and_cancelled_from_elsewhere(tmp_path):
    async def forever(_turn):
        await asyncio.Event().wait()

    async with sdk_agent(forever) as agent, runtime(tmp_path, agent.base) as tools:
        running = asyncio.create_task(tools.execute_remote_tool("crm", "note", {}))
        await agent.started.wait()
        number = agent.messages[0].task_id
        # The agent answers questions about a task once it has stored it.
        async with asyncio.timeout(60):
            while (result := await tools.remote_task_result("crm", number)).error.code == "task_not_found":
                pass
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "task_not_ended")
        ended = await tools.cancel_remote_task("crm", number)
        assert (ended.outcome, ended.error.code) == (Outcome.CANCELLED, "cancelled_by_agent")
        assert (await running).error.code == "cancelled_by_agent"


async def test_the_tasks_of_an_agent_that_is_down(tmp_path):
    async with runtime(tmp_path, "http://127.0.0.1:1") as tools:
        assert (await tools.remote_task_result("crm", "1")).error.code == "server_down"
        with pytest.raises(ConfigurationError, match="unknown agent"):
            await tools.cancel_remote_task("crn", "1")
