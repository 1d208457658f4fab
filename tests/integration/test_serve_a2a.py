"""Tools served over A2A to the SDK's client: calls, streams, cancellation, approvals, toolsets, tokens and reloads."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys

import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.helpers import new_data_part
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Part,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import (
    MethodNotFoundError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from anyio.lowlevel import checkpoint
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from holding import PAY, opened, project
from served_a2a import (
    BINDINGS,
    EXTENSION,
    PATIENCE,
    Gate,
    add,
    count,
    echo,
    error_of,
    fail,
    in_words,
    message_of,
    result_of,
    runtime_of,
    sent,
    serving,
    state_of,
    struct,
    text_message,
    text_of,
)
from toolcrib import Outcome, Result, Runtime
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.serve.a2a import AgentOptions, CardKey
from toolcrib.serve.a2a.card_signature import card_signer

TOKENS = ("token-of-ada-1234567890", "token-of-bob-1234567890")

CONFIRMED = PAY.replace(
    "description: Pays an amount.", 'description: Pays.\nrequires_confirmation: "Pay {{ args.amount }}?"'
)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_call_over_both_bindings(binding):
    async with serving(runtime_of(add)) as agent:
        task = await agent.task(message_of("add", {"a": 2, "b": 3}), binding)
        assert (state_of(task), result_of(task)) == ("completed", {"sum": 5.0})
        (artifact,) = task.artifacts
        assert (artifact.name, [*artifact.extensions]) == ("add", [EXTENSION])
        metadata = MessageToDict(artifact.metadata)
        assert metadata.keys() == {"_tool_result", "tool_name", "execution_time_ms"}
        assert metadata["tool_name"] == "add"
        assert artifact.parts[0].media_type == "application/json"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_progress_and_partial_results_are_streamed(binding):
    async with serving(runtime_of(count)) as agent:
        events = [in_words(event) for event in await agent.send(message_of("count", {"n": 2}), binding)]
        assert events == [
            "task working",
            "status working step 0",
            "artifact partial append=False last=False chunk 0",
            "status working step 1",
            "artifact partial append=True last=False chunk 1",
            "artifact result append=False last=True 2.0",
            "status completed",
        ]


async def test_integers_above_2_to_the_53_survive_in_both_directions():
    largest = {"n": 2**63 - 1, "list": [-(2**60) - 1]}
    async with serving(runtime_of(echo)) as agent:
        exact = Part(
            text=json.dumps({"value": largest}),
            media_type="application/json",
            metadata=struct({EXTENSION: {"exact": True}}),
        )
        message = message_of("echo", {"value": {}}, parts=[new_data_part({}), exact])
        task = await agent.task(message)
        data, text = task.artifacts[0].parts
        assert json.loads(text.text) == largest
        assert MessageToDict(text.metadata) == {EXTENSION: {"exact": True}}
        assert MessageToDict(data.data)["n"] == float(2**63)


async def test_a_value_that_is_too_deep_for_data_is_sent_as_exact_text():
    deep = value = {}
    for _ in range(30):
        value["a"] = [{}]
        value = value["a"][0]
    async with serving(runtime_of(echo)) as agent:
        exact = Part(
            text=json.dumps({"value": deep}),
            media_type="application/json",
            metadata=struct({EXTENSION: {"exact": True}}),
        )
        task = await agent.task(message_of("echo", {}, parts=[exact]))
        (part,) = task.artifacts[0].parts
        assert json.loads(part.text) == deep


MESSAGES = [
    (message_of("add", {"a": 1, "b": 2}), {"sum": 3}),
    (message_of("tool-add", {"a": 1, "b": 2}), {"sum": 3}),
    (message_of("add", {"a": 1, "b": 2}, metadata=Struct()), None),
    (
        message_of(
            "add",
            {},
            metadata=Struct(),
            parts=[new_data_part({"_tool_call": {"name": "add", "params": {"a": 1, "b": 2}}})],
        ),
        {"sum": 3},
    ),
    (
        message_of(
            "add",
            {},
            metadata=struct({"_tool_call": {"name": "add"}}),
            parts=[new_data_part({"a": 1, "b": 2})],
        ),
        {"sum": 3},
    ),
    (text_message('add {"a": 1, "b": 2}'), {"sum": 3}),
    (text_message('tool-add: {"a": 1, "b": 2}'), {"sum": 3}),
    (text_message("echo hello"), "hello"),
    (text_message("what can you do?"), None),
    (text_message("add one and two"), None),
]
"""Messages, and the result of the call that they name; None if they name none."""


async def test_how_a_message_names_a_tool():
    async with serving(runtime_of(add, echo)) as agent:
        for message, value in MESSAGES:
            task = await agent.task(message)
            if value is not None:
                assert (state_of(task), result_of(task)) == ("completed", value), message
            else:
                assert (state_of(task), error_of(task)["code"]) == ("rejected", "tool_call_missing"), message
                assert "add" in text_of(task), message


def keyed(key):
    call = {"name": "add", "params": {"a": 1, "b": 2}, "metadata": {"idempotency_key": key}}
    return message_of("add", {"a": 1, "b": 2}, metadata=struct({"_tool_call": call}))


async def test_a_repeated_call_with_the_same_key_is_made_once():
    made = []

    def pay() -> int:
        made.append(1)
        return len(made)

    pay_message = {"_tool_call": {"name": "pay", "params": {}, "metadata": {"idempotency_key": "one"}}}
    async with serving(runtime_of(pay, add)) as agent:
        for _ in range(2):
            assert result_of(await agent.task(message_of("pay", {}, metadata=struct(pay_message)))) == 1
        for key in ("k" * 201, "line\nbreak", 5):
            refused = await agent.task(keyed(key))
            assert error_of(refused)["code"] == "tool_call_missing"
            assert "idempotency_key" in text_of(refused)


async def test_the_only_tool_needs_no_name():
    async with serving(runtime_of(echo)) as agent:
        assert result_of(await agent.task(text_message("hello"))) == "hello"
        named = message_of("", {}, metadata=Struct(), parts=[new_data_part({"value": [1]})])
        assert result_of(await agent.task(named)) == [1]


def refuse() -> Result:
    """Report a failure."""
    return Result.failure(Outcome.TOOL_ERROR, "nothing is left", code="no_stock")


async def test_calls_that_do_not_succeed(caplog):
    caplog.set_level(logging.CRITICAL, "toolcrib")
    async with serving(runtime_of(add, refuse)) as agent:
        wrong = await agent.task(message_of("add", {"a": "one", "b": 2}))
        assert (state_of(wrong), error_of(wrong)["code"]) == ("rejected", "invalid_arguments")
        assert "/a" in text_of(wrong)
        unknown = await agent.task(message_of("ad", {}))
        assert (state_of(unknown), error_of(unknown)["code"]) == ("rejected", "tool_not_found")
        assert "`add`" in text_of(unknown)
        failed = await agent.task(message_of("refuse", {}))
        assert (state_of(failed), error_of(failed)["code"]) == ("failed", "no_stock")
        assert text_of(failed) == "nothing is left"


class OutOfStock(Exception):
    pass


def sell(text: str) -> str:
    """Raise an exception of the tool's own."""
    raise OutOfStock(text)


async def test_no_part_of_an_exception_is_sent(caplog):
    async with serving(runtime_of(fail, sell)) as agent:
        for tool in ("fail", "sell"):
            for binding in BINDINGS:
                task = await agent.task(message_of(tool, {"text": "canary-8613"}), binding)
                assert (state_of(task), error_of(task)["code"]) == ("failed", "tool_exception")
                assert text_of(task) == "the tool raised an exception (tool_exception)"
                assert not any(word in str(task.status) for word in ("canary", "RuntimeError", "OutOfStock"))
                # The log has the reason, under the ID that the peer was told.
                call = error_of(task)["details"]["call"]
                assert any(call in line and "canary-8613" in line for line in caplog.messages)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_cancelling_a_task_cancels_its_call(binding):
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        task = await agent.task(message_of("wait", {}), binding, immediately=True)
        assert state_of(task) == "working"
        await asyncio.wait_for(gate.entered.wait(), 60)
        client = await agent.client(binding)
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert state_of(cancelled) == "canceled"
        async with asyncio.timeout(60):
            while agent.runtime.running():
                await checkpoint()
        assert gate.left == 1
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="unknown"))


async def test_a_stream_that_breaks_off_does_not_end_the_task_and_can_be_resumed():
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        client = await agent.client()
        stream = sent(client, message_of("wait", {}))
        first = await anext(stream)
        await asyncio.wait_for(gate.entered.wait(), 60)
        await stream.aclose()
        resumed = client.subscribe(SubscribeToTaskRequest(id=first.task.id))
        assert in_words(await anext(resumed)) == "task working"
        gate.opened.set()
        rest = [in_words(event) async for event in resumed]
        assert rest[-2:] == ["artifact result append=False last=True opened", "status completed"]
        assert gate.left == 0
        with pytest.raises(UnsupportedOperationError):
            await anext(client.subscribe(SubscribeToTaskRequest(id=first.task.id)))


async def test_tasks_can_be_read_and_listed():
    async with serving(runtime_of(add)) as agent:
        client = await agent.client()
        made = [await agent.task(message_of("add", {"a": n, "b": 0})) for n in range(3)]
        read = await client.get_task(GetTaskRequest(id=made[1].id))
        assert (result_of(read), len(read.history)) == ({"sum": 1.0}, 1)
        short = await client.get_task(GetTaskRequest(id=made[1].id, history_length=0))
        assert not short.history
        page = await client.list_tasks(ListTasksRequest(page_size=2, include_artifacts=True))
        assert (page.total_size, len(page.tasks), bool(page.tasks[0].artifacts)) == (3, 2, True)
        rest = await client.list_tasks(ListTasksRequest(page_size=2, page_token=page.next_page_token))
        assert {task.id for task in [*page.tasks, *rest.tasks]} == {task.id for task in made}


async def test_tasks_are_kept_in_bounded_number():
    async with serving(runtime_of(add), AgentOptions(watch=False, most_tasks=2)) as agent:
        client = await agent.client()
        made = [await agent.task(message_of("add", {"a": n, "b": 0})) for n in range(3)]
        assert (await client.list_tasks(ListTasksRequest())).total_size == 2
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=made[0].id))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_is_kept_for_a_time_after_its_last_change(asking, binding):
    clock = VirtualClock()
    options = AgentOptions(watch=False, task_age=60.0)
    async with serving(asking, options, clock=clock) as agent:
        client = await agent.client(binding)
        held = await agent.task(message_of("pay", {"amount": 5}), binding)
        refused = await agent.task(message_of("nothing", {}), binding)
        await clock.sleep(59)
        assert {task.id for task in (await client.list_tasks(ListTasksRequest())).tasks} == {
            held.id,
            refused.id,
        }
        # An answer changes a task, so that it is kept longer.
        paid = await agent.task(text_message("approve", task_id=held.id), binding)
        assert state_of(paid) == "completed"
        await clock.sleep(1)
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=refused.id))
        assert (await client.get_task(GetTaskRequest(id=held.id))).artifacts
        await clock.sleep(59)
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=held.id))
        assert (await client.list_tasks(ListTasksRequest())).total_size == 0


async def test_an_answer_that_comes_too_late_finds_no_task(asking):
    clock = VirtualClock()
    async with serving(asking, AgentOptions(watch=False, task_age=60.0), clock=clock) as agent:
        held = await agent.task(message_of("pay", {"amount": 5}))
        await clock.sleep(60)
        with pytest.raises(TaskNotFoundError):
            await agent.task(text_message("approve", task_id=held.id))


async def test_the_oldest_task_that_has_ended_makes_room_and_one_in_progress_stays():
    gate = Gate()
    async with serving(runtime_of(gate.tool(), add), AgentOptions(watch=False, most_tasks=3)) as agent:
        client = await agent.client()
        waiting = await agent.task(message_of("wait", {}), immediately=True)
        made = [await agent.task(message_of("add", {"a": n, "b": 0})) for n in range(5)]
        kept = [task.id for task in (await client.list_tasks(ListTasksRequest())).tasks]
        assert kept == [made[4].id, made[3].id, waiting.id]
        gate.opened.set()
        # It has ended now, and is the youngest.
        async with asyncio.timeout(PATIENCE):
            while state_of(await client.get_task(GetTaskRequest(id=waiting.id))) != "completed":
                await checkpoint()
        await agent.task(message_of("add", {"a": 5, "b": 0}))
        kept = [task.id for task in (await client.list_tasks(ListTasksRequest())).tasks]
        assert (len(kept), waiting.id in kept, made[3].id in kept) == (3, True, False)


def test_the_sdk_makes_no_spans_beside_those_of_toolcrib():
    program = """
import asyncio, os
from toolcrib import Registry, Runtime
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.a2a import AgentOptions, serve_http
from toolcrib.serve.http_common.listen_address import ListenAddress
try:
    asyncio.run(serve_http(Runtime(Registry()), AgentOptions(toolset="none"), ListenAddress(), print))
except ConfigurationError:
    from a2a.utils import telemetry
    print(telemetry.otel_enabled, os.environ.get(telemetry.ENABLED_ENV_VAR))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False None\n"


async def test_while_as_many_tasks_are_in_progress_as_may_be_kept_new_ones_are_refused():
    gate = Gate()
    async with serving(runtime_of(gate.tool(), add), AgentOptions(watch=False, most_tasks=1)) as agent:
        waiting = await agent.task(message_of("wait", {}), immediately=True)
        answer = (
            await agent.rpc("SendMessage", {"message": MessageToDict(message_of("add", {"a": 1, "b": 1}))})
        ).json()
        assert answer["error"]["code"] == -32603
        assert "too many tasks" in answer["error"]["message"]
        client = await agent.client()
        assert state_of(await client.cancel_task(CancelTaskRequest(id=waiting.id))) == "canceled"
        assert result_of(await agent.task(message_of("add", {"a": 1, "b": 1}))) == {"sum": 2}


@pytest.fixture
def asking(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    return Runtime.open(project(tmp_path / "project", "", CONFIRMED))


@pytest.mark.parametrize(
    ("answer", "state", "value"),
    [
        (text_message("approve"), "completed", {"paid": 5, "to": "shop", "known": False}),
        (text_message("Yes"), "completed", {"paid": 5, "to": "shop", "known": False}),
        (text_message("reject: too expensive"), "rejected", None),
        (
            message_of(
                "",
                {},
                metadata=Struct(),
                parts=[new_data_part({"decision": "approve", "arguments": '{"amount": 2}'})],
            ),
            "completed",
            {"paid": 2, "to": "shop", "known": False},
        ),
    ],
)
async def test_a_call_that_waits_for_a_person_is_continued_by_an_answer(asking, answer, state, value):
    async with serving(asking) as agent:
        task = await agent.task(message_of("pay", {"amount": 5, "password": "canary-8613"}))
        assert state_of(task) == "input_required"
        assert "Pay 5?" in text_of(task)
        assert "canary" not in str(task.status)
        asked = MessageToDict(task.status.message.parts[1].data)["approval"]
        # Peers without a token share a session, so nobody can approve for the others.
        assert asked["form"]["properties"]["decision"]["enum"] == ["approve", "reject"]
        answer.task_id, answer.context_id = task.id, task.context_id
        unclear = text_message("hm", task_id=task.id)
        again = await agent.task(unclear)
        assert state_of(again) == "input_required"
        assert "`decision` must be one of: `approve`, `reject`" in text_of(again)
        ended = await agent.task(answer)
        assert (ended.id, state_of(ended)) == (task.id, state)
        if value is not None:
            assert result_of(ended) == value


async def test_a_peer_with_a_token_may_approve_for_its_session(asking):
    async with serving(asking, tokens=TOKENS) as agent:
        task = await agent.task(message_of("pay", {"amount": 5}))
        answer = text_message("approve for this session", task_id=task.id)
        assert state_of(await agent.task(answer)) == "completed"
        assert state_of(await agent.task(message_of("pay", {"amount": 6}))) == "completed"


async def test_somebody_else_may_answer(asking):
    async with serving(asking) as agent:
        task = await agent.task(message_of("pay", {"amount": 5}))
        (pending,) = asking.approvals.pending()
        asking.approvals.answer(pending.id, {"approve": True})
        assert state_of(await agent.task(text_message("go on", task_id=task.id))) == "completed"


async def test_an_answer_to_an_approval_that_was_removed_is_rejected(tmp_path):
    async with serving(opened(tmp_path)) as agent:
        task = await agent.task(message_of("pay", {"amount": 5}))
        assert state_of(task) == "input_required"
        shutil.rmtree(tmp_path / "approvals")
        ended = await agent.task(text_message("approve", task_id=task.id))
        assert (state_of(ended), error_of(ended)["code"]) == ("rejected", "nothing_asked")
        assert text_of(ended) == "the task does not wait for an answer any more"


async def test_a_task_that_waits_for_an_answer_can_be_cancelled(asking):
    async with serving(asking) as agent:
        task = await agent.task(message_of("pay", {"amount": 5}))
        client = await agent.client()
        assert state_of(await client.cancel_task(CancelTaskRequest(id=task.id))) == "canceled"


async def test_the_card_describes_the_tools(tmp_path):
    async with serving(Runtime.open(project(tmp_path, "", PAY), index=False)) as agent:
        response = await agent.http.get(f"{agent.url}/.well-known/agent-card.json")
        card = response.json()
        assert response.headers["content-type"] == "application/json"
        assert (card["name"], card["description"]) == ("shop", "The tools of shop.")
        assert card["supportedInterfaces"] == [
            {"url": f"{agent.url}/a2a", "protocolBinding": binding, "protocolVersion": "1.0"}
            for binding in BINDINGS
        ]
        assert card["skills"] == [
            {"id": "tool-pay", "name": "pay", "description": "Pays an amount.", "tags": ["tool"]}
        ]
        (extension,) = card["capabilities"]["extensions"]
        assert (extension["uri"], extension["required"]) == (EXTENSION, False)
        descriptor = extension["params"]["tools"]["tool-pay"]
        assert descriptor["inputSchema"]["properties"]["amount"] == {"type": "number", "maximum": 1000}
        assert descriptor["timeoutMs"] == 30_000
        parsed = parse_agent_card(card)
        assert [skill.id for skill in parsed.skills] == ["tool-pay"]
        for path in ("/.well-known/agent.json", "/a2a/.well-known/agent-card.json"):
            assert (await agent.http.get(agent.url + path)).json() == card


async def test_a_reload_changes_the_card_and_its_tag(tmp_path):
    folder = project(tmp_path, "", PAY)
    async with serving(Runtime.open(folder, index=False)) as agent:
        path = f"{agent.url}/.well-known/agent-card.json"
        first = await agent.http.get(path)
        tag = first.headers["etag"]
        assert first.headers["cache-control"] == "public, max-age=60"
        same = await agent.http.get(path, headers={"if-none-match": f'"other", W/{tag}'})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        (folder / "descriptors" / "more.tool.yaml").write_text("name: more\nmock: {result: 1}\n")
        await agent.runtime.reload()
        changed = await agent.http.get(path, headers={"if-none-match": tag})
        assert changed.status_code == 200
        assert [skill["id"] for skill in changed.json()["skills"]] == ["tool-more", "tool-pay"]
        assert changed.headers["etag"] != tag
        assert result_of(await agent.task(message_of("more", {}))) == 1


TOOLSETS = "toolsets: {plain: [more], tasks: [pay]}"


async def test_a_toolset_is_an_agent_of_its_own(tmp_path):
    folder = project(tmp_path, TOOLSETS, PAY)
    (folder / "descriptors" / "more.tool.yaml").write_text("name: more\nmock: {result: 1}\n")
    async with serving(Runtime.open(folder, index=False)) as agent:
        # The toolset `tasks` has the name of an operation of HTTP+JSON.
        for toolset, tool in (("plain", "more"), ("tasks", "pay")):
            path = f"/a2a/{toolset}"
            card = (await agent.http.get(f"{agent.url}{path}/.well-known/agent-card.json")).json()
            assert (card["name"], [each["id"] for each in card["skills"]]) == (
                f"shop {toolset}",
                [f"tool-{tool}"],
            )
            for binding in BINDINGS:
                task = await agent.task(
                    message_of(tool, {"amount": 1} if tool == "pay" else {}), binding, path=path
                )
                assert state_of(task) == "completed"
                other = "pay" if tool == "more" else "more"
                refused = await agent.task(message_of(other, {}), binding, path=path)
                assert error_of(refused)["code"] == "tool_not_found"
            client = await agent.client("HTTP+JSON", path)
            assert (await client.get_task(GetTaskRequest(id=task.id))).id == task.id
        assert (await agent.http.get(f"{agent.url}/a2a/plane/.well-known/agent-card.json")).status_code == 404
    async with serving(Runtime.open(folder, index=False), AgentOptions("plain", watch=False)) as agent:
        card = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        assert [each["id"] for each in card["skills"]] == ["tool-more"]
        assert error_of(await agent.task(message_of("pay", {"amount": 1})))["code"] == "tool_not_found"


async def test_peers_with_different_tokens_have_tasks_of_their_own():
    async with serving(runtime_of(add), tokens=TOKENS, users=("ada", "bob")) as agent:
        path = f"{agent.url}/.well-known/agent-card.json"
        agent.http.headers.pop("authorization")
        bare = (await agent.http.get(path)).json()
        assert bare["skills"] == []
        assert bare["securitySchemes"] == {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        assert bare["capabilities"]["extendedAgentCard"] is True
        refused = await agent.rpc("ListTasks", {})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await agent.http.get(path, headers={"authorization": "Bearer guessed"})).status_code == 401
        agent.http.headers["authorization"] = f"Bearer {TOKENS[0]}"
        assert [skill["id"] for skill in (await agent.http.get(path)).json()["skills"]] == ["tool-add"]
        for binding in BINDINGS:
            extended = await (await agent.client(binding)).get_extended_agent_card(
                GetExtendedAgentCardRequest()
            )
            assert [skill.id for skill in extended.skills] == ["tool-add"]
        task = await agent.task(message_of("add", {"a": 1, "b": 2}))
        agent.http.headers["authorization"] = f"Bearer {TOKENS[1]}"
        client = await agent.client()
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=task.id))
        assert (await client.list_tasks(ListTasksRequest())).total_size == 0


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
async def test_peers_of_0_3_are_served_if_that_is_enabled(method):
    message = {
        "kind": "message",
        "messageId": "m1",
        "role": "user",
        "parts": [{"kind": "data", "data": {"a": 2, "b": 3}}],
        "metadata": {"_tool_call": {"name": "add", "params": {"a": 2, "b": 3}}},
    }
    async with serving(runtime_of(add), AgentOptions(watch=False, legacy=True)) as agent:
        card = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        assert (card["url"], card["preferredTransport"], card["protocolVersion"]) == (
            f"{agent.url}/a2a",
            "JSONRPC",
            "0.3.0",
        )
        answer = await agent.rpc(method, {"message": message}, headers={"a2a-version": ""})
        if method == "message/stream":
            lines = [line for line in answer.text.splitlines() if line.startswith("data:")]
            events = [json.loads(line.partition(":")[2])["result"] for line in lines]
            assert [event["kind"] for event in events] == ["task", "artifact-update", "status-update"]
            assert (events[2]["status"]["state"], events[2]["final"]) == ("completed", True)
            artifact, id_ = events[1]["artifact"], events[0]["id"]
        else:
            task = answer.json()["result"]
            assert (task["kind"], task["status"]["state"]) == ("task", "completed")
            artifact, id_ = task["artifacts"][0], task["id"]
        assert artifact["parts"][0]["data"] == {"sum": 5}
        read = await agent.rpc("tasks/get", {"id": id_}, headers={"a2a-version": ""})
        assert read.json()["result"]["id"] == id_
    async with serving(runtime_of(add)) as agent:
        answer = await agent.rpc(method, {"message": message}, headers={"a2a-version": ""})
        assert answer.json()["error"]["code"] == -32601


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_client_of_the_sdk_for_0_3_is_served_if_that_is_enabled(binding):
    gate = Gate()
    runtime = runtime_of(add, count, gate.tool())
    async with serving(runtime, AgentOptions(watch=False, legacy=True)) as agent:
        card = await A2ACardResolver(agent.http, agent.url).get_agent_card()
        old = [each for each in card.supported_interfaces if each.protocol_version == "0.3"]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(each for each in old if each.protocol_binding == binding)
        settings = ClientConfig(httpx_client=agent.http, supported_protocol_bindings=[binding])
        client = ClientFactory(settings).create(card)
        events = [in_words(event) async for event in sent(client, message_of("count", {"n": 1}))]
        assert events == [
            "task working",
            "status working step 0",
            "artifact partial append=False last=False chunk 0",
            "artifact result append=False last=True 1.0",
            "status completed",
        ]
        # What ends at once has the same course, since its last status says that it is final.
        events = [event async for event in sent(client, message_of("nothing", {}))]
        assert [in_words(event).split()[1] for event in events] == ["working", "rejected"]
        assert state_of(await client.get_task(GetTaskRequest(id=events[0].task.id))) == "rejected"
        stream = sent(client, message_of("wait", {}))
        waiting = (await anext(stream)).task
        await asyncio.wait_for(gate.entered.wait(), 60)
        assert state_of(await client.cancel_task(CancelTaskRequest(id=waiting.id))) == "canceled"
        assert in_words([event async for event in stream][-1]).startswith("status canceled")
        # The SDK's client of 0.3 takes a 404 of HTTP+JSON for an unknown method.
        with pytest.raises((TaskNotFoundError, MethodNotFoundError)):
            await client.get_task(GetTaskRequest(id="unknown"))


async def test_the_end_waits_for_calls_in_flight():
    gate = Gate()
    async with serving(runtime_of(gate.tool()), AgentOptions(watch=False, drain=0.0)) as agent:
        client = await agent.client()
        stream = sent(client, message_of("wait", {}))
        await anext(stream)
        await asyncio.wait_for(gate.entered.wait(), 60)
        agent.stop()
        rest = [in_words(event) async for event in stream]
        assert rest[-1].startswith("status canceled")
        await agent.until_said("cancelled 1 call in flight")


def key_file(folder, private):
    file = folder / "key.pem"
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


@pytest.mark.parametrize(
    ("private", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
async def test_a_signed_card_is_verified_by_the_sdk(private, algorithm, tmp_path):
    options = AgentOptions(watch=False, signing_key=CardKey(key_file(tmp_path, private), "shop-1"))
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    asked = set()

    def key_of(key_id, url):
        asked.add((key_id, url))
        return public

    verify = create_signature_verifier(key_of, [algorithm])
    async with serving(runtime_of(add, count), options) as agent:
        card = await A2ACardResolver(agent.http, agent.url).get_agent_card(signature_verifier=verify)
        assert asked == {("shop-1", None)}
        card.skills[0].description = "changed"
        with pytest.raises(InvalidSignaturesError):
            verify(card)


def test_keys_that_can_not_sign_a_card(tmp_path):
    missing = tmp_path / "missing.pem"
    text = tmp_path / "text.pem"
    text.write_text("text")
    wrong = key_file(tmp_path, ec.generate_private_key(ec.SECP384R1()))
    for file, why in (
        (missing, "No such file"),
        (text, "not a PEM private key"),
        (wrong, "not a P-256, RSA"),
    ):
        with pytest.raises(ConfigurationError, match=why) as refused:
            card_signer(CardKey(file))
        assert refused.value.code == "signing_key_unusable"
        assert str(file) in str(refused.value)
    encrypted = tmp_path / "encrypted.pem"
    sealed = BestAvailableEncryption(b"sealed-8613")
    private = ec.generate_private_key(ec.SECP256R1())
    encrypted.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
    with pytest.raises(ConfigurationError, match="encrypted"):
        card_signer(CardKey(encrypted))
