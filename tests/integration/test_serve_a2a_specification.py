"""What the specification of A2A 1.0 demands of a server of tools, over raw HTTP; each test names its sections.

Push notifications (3.1.7 to 3.1.10, 4.3) and gRPC (10) are not offered, which section 3.3.4 allows.
"""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from google.protobuf.json_format import MessageToDict

from sampling import one_of_each
from served_a2a import (
    BINDINGS,
    EXTENSION,
    HEADERS,
    Gate,
    add,
    count,
    events_of,
    message_of,
    reason_of,
    runtime_of,
    serving,
    text_message,
)
from toolcrib.serve.a2a import AgentOptions

ADD = MessageToDict(message_of("add", {"a": 1, "b": 2}))
QUIET = AgentOptions(watch=False)

ENDED = {f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}


def message(name="add", **changes):
    params = {"a": 1, "b": 2} if name == "add" else {}
    return {**MessageToDict(message_of(name, params)), **changes}


BOTH = one_of_each("binding", BINDINGS)


@BOTH
async def test_3_1_1_a_message_is_answered_by_a_task_with_what_is_required_of_it(binding):
    async with serving(runtime_of(add)) as agent:
        status, answer = await agent.asked(binding, "SendMessage", {"message": ADD})
        task = answer["task"]
        assert status == 200
        # 4.1.1, 4.1.2, 4.1.9, and 5.5: camelCase names and full names of enums.
        assert task["id"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["artifacts"][0]["artifactId"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"sum": 3}
        # 5.6.1: timestamps are ISO 8601 in UTC.
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task["status"]["timestamp"])
        # 3.4.1: a context is generated, and returned.
        assert task["contextId"]


@BOTH
async def test_3_4_1_the_context_of_a_client_is_kept(binding):
    async with serving(runtime_of(add)) as agent:
        _, answer = await agent.asked(binding, "SendMessage", {"message": message(contextId="mine")})
        assert answer["task"]["contextId"] == "mine"


@BOTH
async def test_3_1_1_a_task_that_has_ended_takes_no_message(binding):
    async with serving(runtime_of(add)) as agent:
        _, answer = await agent.asked(binding, "SendMessage", {"message": ADD})
        task = answer["task"]
        again = message(taskId=task["id"])
        _, refused = await agent.asked(binding, "SendMessage", {"message": again})
        assert reason_of(refused) == "UNSUPPORTED_OPERATION"
        # 3.4.2: a context that is not that of the task is refused.
        other = message(taskId=task["id"], contextId="other")
        _, refused = await agent.asked(binding, "SendMessage", {"message": other})
        assert reason_of(refused) == "INVALID_PARAMS"


@BOTH
async def test_3_2_2_a_message_waits_for_the_end_of_its_task_unless_it_says_otherwise(binding):
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        waiting = asyncio.create_task(agent.asked(binding, "SendMessage", {"message": message("wait")}))
        await asyncio.wait_for(gate.entered.wait(), 60)
        at_once = {"message": message("wait"), "configuration": {"returnImmediately": True}}
        _, answer = await agent.asked(binding, "SendMessage", at_once)
        assert answer["task"]["status"]["state"] == "TASK_STATE_WORKING"
        assert not waiting.done()
        gate.opened.set()
        _, answer = await waiting
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert answer["task"]["artifacts"]


@BOTH
@pytest.mark.parametrize("tool", ["add", "count"])
async def test_3_1_2_a_stream_begins_with_the_task_and_closes_at_its_end(binding, tool):
    async with serving(runtime_of(add, count)) as agent:
        params = {"n": 3} if tool == "count" else {"a": 1, "b": 2}
        body = {"message": MessageToDict(message_of(tool, params))}
        if binding == "JSONRPC":
            answer = await agent.rpc("SendStreamingMessage", body)
        else:
            answer = await agent.rest("POST", "/message:stream", body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        first, *rest_ = events_of(answer.text)
        assert list(first) == ["task"]
        assert all(next(iter(event)) in {"statusUpdate", "artifactUpdate"} for event in rest_)
        ids = [next(iter(event.values())).get("taskId") for event in rest_]
        assert set(ids) <= {first["task"]["id"]}
        last = rest_[-1]["statusUpdate"] if rest_ else first["task"]
        assert last["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_3_5_2_every_stream_of_a_task_gets_the_same_events_and_ends_alone():
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        at_once = {"message": message("wait"), "configuration": {"returnImmediately": True}}
        _, answer = await agent.asked("JSONRPC", "SendMessage", at_once)
        id_ = answer["task"]["id"]
        await asyncio.wait_for(gate.entered.wait(), 60)
        path = f"{agent.url}/a2a/tasks/{id_}:subscribe"

        async def lines(until=None):
            found = []
            async with agent.http.stream("POST", path, headers=HEADERS) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data:"):
                        found.append(json.loads(line[5:]))
                        subscribed.release()
                        if until == len(found):
                            break
            return found

        subscribed = asyncio.Semaphore(0)
        streams = [asyncio.create_task(lines(until)) for until in (None, None, 1)]
        for _ in streams:
            await asyncio.wait_for(subscribed.acquire(), 60)
        short = await streams[2]
        assert list(short[0]) == ["task"]
        gate.opened.set()
        one, two = await streams[0], await streams[1]
        # What comes after the last subscription: the result and the end.
        assert one[-2:] == two[-2:]
        # 3.1.6: the first event is the task as it is.
        assert [list(events[0]) for events in (one, two)] == [["task"], ["task"]]
        assert one[-2]["artifactUpdate"]["artifact"]["artifactId"] == "result"
        assert one[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@BOTH
async def test_3_3_2_an_unknown_task_is_not_found(binding):
    async with serving(runtime_of(add)) as agent:
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            status, answer = await agent.asked(binding, operation, None, "unknown")
            assert reason_of(answer) == "TASK_NOT_FOUND"
            if binding == "JSONRPC":
                assert answer["error"]["code"] == -32001
            else:
                assert status == answer["error"]["code"] == 404
        _, answer = await agent.asked(binding, "SendMessage", {"message": message(taskId="unknown")})
        assert reason_of(answer) == "TASK_NOT_FOUND"


@BOTH
async def test_3_1_5_and_3_1_6_a_task_that_has_ended_is_neither_cancelled_nor_followed(binding):
    async with serving(runtime_of(add)) as agent:
        _, answer = await agent.asked(binding, "SendMessage", {"message": ADD})
        id_ = answer["task"]["id"]
        _, refused = await agent.asked(binding, "CancelTask", None, id_)
        assert reason_of(refused) == "TASK_NOT_CANCELABLE"
        _, refused = await agent.asked(binding, "SubscribeToTask", None, id_)
        assert reason_of(refused) == "UNSUPPORTED_OPERATION"


@BOTH
async def test_3_1_4_tasks_are_listed_by_their_last_change_in_pages(binding):
    async with serving(runtime_of(add)) as agent:
        ids = []
        for number in range(3):
            body = {"message": message(contextId=f"context-{number % 2}")}
            _, answer = await agent.asked(binding, "SendMessage", body)
            ids.append(answer["task"]["id"])
        _, page = await agent.asked(binding, "ListTasks", {"pageSize": 2})
        assert [task["id"] for task in page["tasks"]] == [ids[2], ids[1]]
        assert (page["totalSize"], page["pageSize"]) == (3, 2)
        assert all("artifacts" not in task for task in page["tasks"])
        _, last = await agent.asked(binding, "ListTasks", {"pageSize": 2, "pageToken": page["nextPageToken"]})
        assert ([task["id"] for task in last["tasks"]], last["nextPageToken"]) == ([ids[0]], "")
        _, some = await agent.asked(
            binding, "ListTasks", {"contextId": "context-1", "includeArtifacts": True}
        )
        assert [task["id"] for task in some["tasks"]] == [ids[1]]
        assert some["tasks"][0]["artifacts"]
        for wrong in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "?"}, {"historyLength": -1}):
            _, refused = await agent.asked(binding, "ListTasks", wrong)
            assert reason_of(refused) == "INVALID_PARAMS", wrong


@BOTH
async def test_3_2_4_at_most_as_many_messages_of_the_history_as_asked_for(binding):
    async with serving(runtime_of(add)) as agent:
        _, answer = await agent.asked(binding, "SendMessage", {"message": ADD})
        id_ = answer["task"]["id"]
        for length, kept in ((0, 0), (1, 1), (9, 1)):
            _, task = await agent.asked(binding, "GetTask", {"historyLength": length}, id_)
            assert len(task.get("history", [])) == kept


@BOTH
async def test_3_3_4_what_the_card_does_not_offer_is_refused(binding):
    async with serving(runtime_of(add)) as agent:
        config = {"taskId": "x", "url": "https://example.com/hook"}
        _, refused = await agent.asked(binding, "CreateTaskPushNotificationConfig", config)
        assert reason_of(refused) == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        _, refused = await agent.asked(binding, "GetExtendedAgentCard", None)
        assert reason_of(refused) == "UNSUPPORTED_OPERATION"


@BOTH
async def test_3_3_4_and_4_6_a_required_extension_is_enforced(binding):
    async with serving(runtime_of(add), AgentOptions(watch=False, required=True)) as agent:
        card = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        assert card["capabilities"]["extensions"][0]["required"] is True
        _, refused = await agent.asked(binding, "SendMessage", {"message": ADD})
        assert reason_of(refused) == "EXTENSION_SUPPORT_REQUIRED"
        headers = {**HEADERS, "a2a-extensions": f"urn:other, {EXTENSION}"}
        if binding == "JSONRPC":
            answer = await agent.rpc("SendMessage", {"message": ADD}, headers=headers)
            task = answer.json()["result"]["task"]
        else:
            answer = await agent.rest("POST", "/message:send", {"message": ADD}, headers)
            task = answer.json()["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert answer.headers["a2a-extensions"] == EXTENSION
        streamed = await agent.rpc("SendStreamingMessage", {"message": ADD})
        assert streamed.json()["error"]["code"] == -32008


async def test_3_6_2_other_versions_are_refused():
    async with serving(runtime_of(add)) as agent:
        for version in ("1.0", "", "0.3", "2.0", "x"):
            told = (await agent.rpc("SendMessage", {"message": ADD}, headers={"a2a-version": version})).json()
            headers = {"content-type": "application/json", **({"a2a-version": version} if version else {})}
            answer = await agent.rest("POST", "/message:send", {"message": ADD}, headers)
            if version == "1.0":
                assert told["result"]["task"]
                assert answer.status_code == 200
                continue
            assert (told["error"]["code"], reason_of(told)) == (-32009, "VERSION_NOT_SUPPORTED"), version
            assert (answer.status_code, reason_of(answer.json())) == (400, "VERSION_NOT_SUPPORTED")


async def test_3_6_1_the_version_may_be_a_parameter():
    async with serving(runtime_of(add)) as agent:
        headers = {"content-type": "application/json"}
        answer = await agent.rest("POST", "/message:send?A2A-Version=1.0", {"message": ADD}, headers)
        assert answer.status_code == 200


async def test_8_the_card_is_where_it_is_looked_for_with_what_is_required_of_it():
    async with serving(runtime_of(add)) as agent:
        answer = await agent.http.get(f"{agent.url}/.well-known/agent-card.json")
        card = answer.json()
        # 4.4.1, 4.4.3, 4.4.5, 4.4.6
        for key in ("name", "description", "version", "defaultInputModes", "defaultOutputModes", "skills"):
            assert card[key], key
        assert card["capabilities"]["streaming"] is True
        for skill in card["skills"]:
            assert {"id", "name", "description", "tags"} <= skill.keys()
        for interface in card["supportedInterfaces"]:
            assert {"url", "protocolBinding", "protocolVersion"} <= interface.keys()
        # 8.6: caching
        assert answer.headers["etag"]
        assert "max-age" in answer.headers["cache-control"]
        assert (await agent.http.post(f"{agent.url}/.well-known/agent-card.json")).status_code == 405


INVALID = [
    (b"{", -32700),
    (b"\xff", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "GetTask"}', -32600),
    (b"[]", -32600),
    (b'"text"', -32600),
    (b'{"id": 1, "method": "GetTask", "params": {}}', -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask", "params": {}}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {}}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 5}}', -32602),
    (
        b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"role": "ROLE_USER"}}}',
        -32602,
    ),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": ' + b"[" * 300 + b"]" * 300 + b"}", -32700),
]


async def test_9_5_an_invalid_request_has_an_error_with_the_code_of_json_rpc():
    async with serving(runtime_of(add)) as agent:
        for body, code in INVALID:
            answer = await agent.http.post(f"{agent.url}/a2a", content=body, headers=HEADERS)
            told = answer.json()
            assert (told["jsonrpc"], told["error"]["code"]) == ("2.0", code), body
            assert isinstance(told["error"]["message"], str)
            assert "Traceback" not in answer.text
            assert ".py" not in answer.text


REFUSED = [
    ("POST", "/message:send", b"{", 400),
    ("POST", "/message:send", b'{"message": {}, "message": {}}', 400),
    ("POST", "/message:send", b'{"message": 5}', 400),
    ("POST", "/message:send", b"{}", 400),
    ("POST", "/message:stream", b"{}", 400),
    ("GET", "/message:send", None, 405),
    ("GET", "/nothing", None, 404),
    ("GET", "/tasks/unknown", None, 404),
    ("GET", "/tasks?pageSize=many", None, 400),
    ("PUT", "/tasks/unknown", b"{}", 405),
    ("GET", "", None, 405),
]


async def test_11_6_an_invalid_request_has_the_status_of_its_error():
    async with serving(runtime_of(add)) as agent:
        for method, path, body, status in REFUSED:
            answer = await agent.http.request(method, f"{agent.url}/a2a{path}", content=body, headers=HEADERS)
            assert answer.status_code == status, (method, path)
            assert "Traceback" not in answer.text


@BOTH
async def test_3_1_1_and_9_1_types_of_content_that_are_not_supported(binding):
    async with serving(runtime_of(add)) as agent:
        picture = message(parts=[{"raw": "AAAA", "mediaType": "image/png"}])
        _, refused = await agent.asked(binding, "SendMessage", {"message": picture})
        assert reason_of(refused) == "CONTENT_TYPE_NOT_SUPPORTED"
        path = "" if binding == "JSONRPC" else "/message:send"
        answer = await agent.rest(
            "POST", path, {"message": ADD}, {"content-type": "text/plain", "a2a-version": "1.0"}
        )
        assert (answer.status_code, reason_of(answer.json())) == (415, "CONTENT_TYPE_NOT_SUPPORTED")
        linked = await agent.rest(
            "POST", "/message:send", {"message": ADD}, {**HEADERS, "content-type": "application/a2a+json"}
        )
        assert linked.status_code == 200


async def test_7_a_request_without_credentials_is_refused_and_says_which_are_needed():
    token = "token-of-ada-1234567890"
    async with serving(runtime_of(add), tokens=(token,)) as agent:
        agent.http.headers.pop("authorization")
        card = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        assert card["securityRequirements"] == [{"schemes": {"bearer": {"list": []}}}]
        for answer in (await agent.rpc("GetTask", {"id": "x"}), await agent.rest("GET", "/tasks")):
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_13_pages_of_other_origins_are_refused():
    page = "https://app.example.com"
    async with serving(runtime_of(add), origins=(page,)) as agent:
        for headers, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": page}, 200),
        ):
            answer = await agent.rest("POST", "/message:send", {"message": ADD}, {**HEADERS, **headers})
            assert answer.status_code == status
            assert answer.headers.get("access-control-allow-origin") == (page if status == 200 else None)


async def test_4_1_6_a_text_for_people_is_in_the_message_of_the_state():
    async with serving(runtime_of(add)) as agent:
        _, answer = await agent.asked(
            "HTTP+JSON", "SendMessage", {"message": MessageToDict(text_message("?"))}
        )
        status = answer["task"]["status"]
        assert status["state"] in ENDED
        assert status["message"]["role"] == "ROLE_AGENT"
        assert status["message"]["messageId"]
        assert status["message"]["parts"][0]["text"]
