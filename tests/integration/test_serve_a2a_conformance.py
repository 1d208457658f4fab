"""What the specification of A2A 1.0 (1.0.1) demands of a server of tools beside the course of a task: requests that are refused, the
data model, both bindings, the card and access. Raw HTTP and the SDK's client are the foreign side; each test names its sections.

The course of tasks and their streams (3.1 to 3.5) is in `test_serve_a2a_specification`. Push notifications (3.1.7 to 3.1.10, 4.3, 13.2)
and gRPC (10) are not offered, which section 3.3.4 allows; custom bindings (12) do not exist.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime

import httpx
import pytest
import trustme
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard, SendMessageRequest, Task
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt import PyJWS

from holding import project
from served_a2a import (
    BINDINGS,
    EXTENSION,
    HEADERS,
    OPERATIONS,
    Gate,
    add,
    count,
    echo,
    events_of,
    fail,
    message_of,
    reason_of,
    result_of,
    runtime_of,
    serving,
    text_message,
)
from toolcrib import Runtime
from toolcrib.serve.a2a import AgentOptions, CardKey
from toolcrib.serve.http_common.listen_address import MOST_BODY, CertificateFiles

ADD = MessageToDict(message_of("add", {"a": 1, "b": 2}))
ADA, BOB = "token-of-ada-1234567890", "token-of-bob-1234567890"
BODIES = {
    "CreateTaskPushNotificationConfig": {"taskId": "x", "url": "https://hooks.example.com/a"},
    "DeleteTaskPushNotificationConfig": {"taskId": "x", "id": "hook"},
    "GetTaskPushNotificationConfig": {"taskId": "x", "id": "hook"},
    "ListTaskPushNotificationConfigs": {"taskId": "x"},
    "SendMessage": {"message": ADD},
    "SendStreamingMessage": {"message": ADD},
}


def names_in(value):
    """All names of members in a JSON value, except in what users define: metadata, params and data."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            if name not in {"metadata", "params", "data"}:
                yield from names_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from names_in(member)


async def sent(agent, binding, **more):
    status, answer = await agent.asked(binding, "SendMessage", {"message": ADD, **more})
    return status, answer.get("task", answer)


async def test_3_1_3_and_3_3_1_a_task_can_be_read_again_and_again():
    async with serving(runtime_of(add)) as agent:
        for binding in BINDINGS:
            _, made = await sent(agent, binding)
            first, second = [await agent.asked(binding, "GetTask", None, made["id"]) for _ in range(2)]
            assert first == second
            assert first[1]["status"] == made["status"]
            assert first[1]["artifacts"] == made["artifacts"]
            assert first[1]["history"][0]["messageId"] == ADD["messageId"]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_3_1_4_tasks_are_filtered_and_their_pages_are_stable(binding):
    gate = Gate()
    async with serving(runtime_of(add, gate.tool())) as agent:
        waiting = await agent.task(message_of("wait", {}), immediately=True)
        one, two, three = [(await sent(agent, binding))[1] for _ in range(3)]
        _, working = await agent.asked(binding, "ListTasks", {"status": "TASK_STATE_WORKING"})
        assert [task["id"] for task in working["tasks"]] == [waiting.id]
        assert (working["totalSize"], working["nextPageToken"]) == (1, "")
        since = {"statusTimestampAfter": two["status"]["timestamp"]}
        _, late = await agent.asked(binding, "ListTasks", since)
        assert [task["id"] for task in late["tasks"]] == [three["id"], two["id"]]
        _, page = await agent.asked(binding, "ListTasks", {"pageSize": 1})
        assert [task["id"] for task in page["tasks"]] == [three["id"]]
        # A task that is made between two pages does not move the others.
        await sent(agent, binding)
        _, rest = await agent.asked(binding, "ListTasks", {"pageSize": 2, "pageToken": page["nextPageToken"]})
        assert [task["id"] for task in rest["tasks"]] == [two["id"], one["id"]]
        assert rest["nextPageToken"]
        _, whole = await agent.asked(binding, "ListTasks")
        times = [task["status"]["timestamp"] for task in whole["tasks"]]
        assert (len(times), times) == (5, sorted(times, reverse=True))
        assert whole["nextPageToken"] == ""


async def test_3_1_4_and_11_5_parameters_that_are_invalid_are_refused_and_told():
    async with serving(runtime_of(add)) as agent:
        for query, told in (
            ("pageSize=150&historyLength=-5&status=TASK_STATE_RUNNING", "TASK_STATE_RUNNING"),
            ("status=running", "TASK_STATE_RUNNING"),
            ("status=TASK_STATE_WORKING&includeArtifacts=maybe", "includeArtifacts"),
            ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
            ("pageSize=many", "pageSize"),
            ("pageToken=%3F", "page token"),
        ):
            answer = await agent.rest("GET", f"/tasks?{query}")
            assert answer.status_code == answer.json()["error"]["code"] == 400, query
            assert told in answer.json()["error"]["message"], query
        for params in (
            {"status": "TASK_STATE_RUNNING"},
            {"status": "working"},
            {"status": [1]},
            [1],
            "x",
            [],
        ):
            refused = (await agent.rpc("ListTasks", params)).json()
            assert (refused["id"], refused["error"]["code"]) == (7, -32602), params
        # Section 11.5 writes states of queries like this as well.
        await sent(agent, "JSONRPC")
        for query, found in (
            ("status=completed", 1),
            ("status=input-required", 0),
            ("pageSize=5&status=working", 0),
        ):
            assert len((await agent.rest("GET", f"/tasks?{query}")).json()["tasks"]) == found


async def test_3_1_5_and_3_3_1_a_task_is_cancelled_once():
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        for binding in BINDINGS:
            waiting = await agent.task(message_of("wait", {}), immediately=True)
            _, cancelled = await agent.asked(binding, "CancelTask", None, waiting.id)
            ParseDict(cancelled, Task())
            assert (cancelled["id"], cancelled["status"]["state"]) == (waiting.id, "TASK_STATE_CANCELED")
            status, again = await agent.asked(binding, "CancelTask", None, waiting.id)
            assert reason_of(again) == "TASK_NOT_CANCELABLE"
            assert (status, again["error"]["code"]) in {(200, -32002), (400, 400)}
            _, read = await agent.asked(binding, "GetTask", None, waiting.id)
            assert read == cancelled


@pytest.mark.parametrize("method", ["GET", "POST", "JSONRPC"])
async def test_3_1_6_a_subscription_begins_with_the_task_and_ends_with_it(method):
    gate = Gate()
    async with serving(runtime_of(gate.tool())) as agent:
        waiting = await agent.task(message_of("wait", {}), immediately=True)
        await asyncio.wait_for(gate.entered.wait(), 60)
        path, content = f"/tasks/{waiting.id}:subscribe", None
        if method == "JSONRPC":
            asked = {"jsonrpc": "2.0", "id": "s", "method": "SubscribeToTask", "params": {"id": waiting.id}}
            method, path, content = "POST", "", json.dumps(asked)
        url = f"{agent.url}/a2a{path}"
        async with agent.http.stream(method, url, content=content, headers=HEADERS) as stream:
            lines = []
            async for line in stream.aiter_lines():
                lines.append(line)
                gate.opened.set()
        first, *_, last = events_of("\n".join(lines))
        assert first["task"]["status"]["state"] == "TASK_STATE_WORKING"
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_3_2_4_the_history_that_is_sent_is_limited_and_in_order():
    async with serving(runtime_of(add, count)) as agent:
        for binding in BINDINGS:
            _, none = await sent(agent, binding, configuration={"historyLength": 0})
            assert "history" not in none
            _, refused = await sent(agent, binding, configuration={"historyLength": -1})
            assert reason_of(refused) == "INVALID_PARAMS"
            _, page = await agent.asked(binding, "ListTasks", {"historyLength": 0, "pageSize": 1})
            assert not page["tasks"][0].get("history")
        counted = await agent.task(message_of("count", {"n": 3}))
        _, whole = await agent.asked("HTTP+JSON", "GetTask", None, counted.id)
        texts = [each["parts"][0].get("text") for each in whole["history"]]
        assert texts == [None, "step 0", "step 1", "step 2"]
        _, short = await agent.asked("HTTP+JSON", "GetTask", {"historyLength": 2}, counted.id)
        assert short["history"] == whole["history"][-2:]


INVALID = [
    ({}, "message"),
    ({"message": {**ADD, "parts": []}}, "message.parts"),
    ({"message": {**ADD, "parts": [ADD["parts"][0], {}]}}, "message.parts[1]"),
    ({"message": {**ADD, "messageId": ""}}, "message.message_id"),
    ({"message": {**ADD, "role": "user"}}, "message.role"),
    ({"message": {**ADD, "parts": [{"text": "a", "data": 1}]}}, "parts"),
    ({"message": {**ADD, "parts": "x"}}, "parts"),
    ({"message": {**ADD, "metadata": 5}}, "metadata"),
    ({"message": ADD, "configuration": {"historyLength": "many"}}, "historyLength"),
]


async def test_3_3_2_and_4_1_6_an_invalid_message_is_refused_before_anything_runs():
    runs = []

    def add(a: int, b: int) -> int:
        runs.append(a + b)
        return a + b

    async with serving(runtime_of(add)) as agent:
        for binding in BINDINGS:
            for operation in ("SendMessage", "SendStreamingMessage"):
                for body, field in INVALID:
                    status, refused = await agent.asked(binding, operation, body)
                    assert reason_of(refused) in {"INVALID_PARAMS", "INVALID_REQUEST"}, body
                    assert (status, refused["error"]["code"]) in {(200, -32602), (400, 400)}, body
                    assert field in json.dumps(refused), body
        _, page = await agent.asked("JSONRPC", "ListTasks")
        assert (runs, page["totalSize"]) == ([], 0)


async def test_3_3_4_push_notifications_are_refused_wherever_they_are_asked_for():
    async with serving(runtime_of(add)) as agent:
        hook = {"taskPushNotificationConfig": {"url": "https://hooks.example.com/a"}}
        asked = [(name, body) for name, body in BODIES.items() if "Push" in name]
        asked += [
            (name, {"message": ADD, "configuration": hook})
            for name in ("SendMessage", "SendStreamingMessage")
        ]
        for binding in BINDINGS:
            for operation, body in asked:
                bodiless = binding != "JSONRPC" and OPERATIONS[operation][0] != "POST"
                status, refused = await agent.asked(binding, operation, None if bodiless else body)
                assert reason_of(refused) == "PUSH_NOTIFICATION_NOT_SUPPORTED", operation
                assert (status, refused["error"]["code"]) in {(200, -32003), (400, 400)}
        _, page = await agent.asked("JSONRPC", "ListTasks")
        assert page["totalSize"] == 0


@pytest.fixture
def asking(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    return Runtime.open(project(tmp_path / "project"))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_3_4_3_and_7_6_a_task_that_waits_for_a_person_is_continued_in_its_context(asking, binding):
    async with serving(asking) as agent:
        held = MessageToDict(message_of("pay", {"amount": 5}))
        # 3.2.2: an interrupted state ends the wait.
        _, answer = await agent.asked(binding, "SendMessage", {"message": held})
        task = answer["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        # 7.6.1: the task says what it waits for.
        assert task["status"]["message"]["parts"][0]["text"]
        said = MessageToDict(text_message("approve", task_id=task["id"]))
        _, refused = await agent.asked(binding, "SendMessage", {"message": {**said, "contextId": "other"}})
        assert reason_of(refused) == "INVALID_PARAMS"
        # 3.4.3: the context is that of the task.
        _, answer = await agent.asked(binding, "SendMessage", {"message": said})
        ended = answer["task"]
        assert (ended["id"], ended["contextId"]) == (task["id"], task["contextId"])
        assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
        # 3.7: the messages of both sides are kept, in order.
        roles = [each["role"] for each in ended["history"]]
        assert roles[:3] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


async def test_3_1_6_a_task_that_waits_for_a_person_can_be_followed_to_its_end(asking):
    async with serving(asking) as agent:
        held = await agent.task(message_of("pay", {"amount": 5}))
        url = f"{agent.url}/a2a/tasks/{held.id}:subscribe"
        async with agent.http.stream("POST", url, headers=HEADERS) as stream:
            lines, answered = [], None
            async for line in stream.aiter_lines():
                lines.append(line)
                if answered is None:
                    answered = asyncio.create_task(agent.task(text_message("approve", task_id=held.id)))
        await answered
        first, *_, last = events_of("\n".join(lines))
        assert first["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_3_4_2_every_task_has_an_id_of_its_own():
    async with serving(runtime_of(add)) as agent:
        ids = [(await sent(agent, binding))[1]["id"] for binding in BINDINGS * 3]
        # The messages were equal, and their ID is that of the peer.
        assert len(set(ids)) == 6
        assert ADD["messageId"] not in ids


async def test_3_6_versions_are_compared_by_major_and_minor():
    async with serving(runtime_of(add)) as agent:
        for version, served in (
            ("1.0", True),
            ("1.0.1", True),
            ("1.0.99", True),
            ("1.1", False),
            ("1.00", False),
            ("1", False),
            ("10", False),
            ("0.3", False),
            ("0.5", False),
            ("", False),
            ("1.0.x", False),
            ("v1.0", False),
        ):
            for binding in BINDINGS:
                # 9.2, 11.2: names of headers are not case-sensitive.
                headers = {"content-type": "application/json", "A2a-vErsion": version}
                if binding == "JSONRPC":
                    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": ADD}}
                    answer = await agent.rest("POST", "", body, headers)
                else:
                    answer = await agent.rest("POST", "/message:send", {"message": ADD}, headers)
                told = answer.json()
                assert ("error" not in told) is served, (binding, version)
                if not served:
                    assert reason_of(told) == "VERSION_NOT_SUPPORTED", (binding, version)
                    assert (answer.status_code, told["error"]["code"]) in {(200, -32009), (400, 400)}


async def test_4_6_3_an_extension_of_another_version_is_ignored():
    async with serving(runtime_of(add)) as agent:
        for asked, told in (
            (f"{EXTENSION}0", None),
            ("urn:other", None),
            (f"urn:other,{EXTENSION}", EXTENSION),
            (f"{EXTENSION} , urn:other", EXTENSION),
        ):
            headers = {**HEADERS, "a2a-extensions": asked}
            answer = await agent.rest("POST", "/message:send", {"message": ADD}, headers)
            assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert answer.headers.get("a2a-extensions") == told, asked
    async with serving(runtime_of(add), AgentOptions(watch=False, required=True)) as agent:
        headers = {**HEADERS, "a2a-extensions": f"{EXTENSION}0"}
        refused = await agent.rest("POST", "/message:send", {"message": ADD}, headers)
        assert reason_of(refused.json()) == "EXTENSION_SUPPORT_REQUIRED"


async def test_5_1_both_bindings_give_the_same_results_and_errors():
    def essence(answer):
        if "error" in answer:
            return reason_of(answer)
        task = answer.get("task", answer)
        parts = [artifact["parts"] for artifact in task.get("artifacts", ())]
        told = task["status"].get("message", {}).get("parts", [{}])[0]
        return task["status"]["state"], parts, told

    async with serving(runtime_of(add, echo, fail)) as agent:
        for name, params in (
            ("add", {"a": 1, "b": 2}),
            ("add", {"a": "x"}),
            ("echo", {"value": [1, "ü", None, {"deep": 2.5}]}),
            ("fail", {"text": "no"}),
            ("nothing", {}),
        ):
            body = {"message": MessageToDict(message_of(name, params))}
            one, two = [essence((await agent.asked(each, "SendMessage", body))[1]) for each in BINDINGS]
            assert one == two, name
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            one, two = [essence((await agent.asked(each, operation, None, "never"))[1]) for each in BINDINGS]
            assert one == two == "TASK_NOT_FOUND"
        for body in (
            {"message": {**ADD, "taskId": "never"}},
            {"message": {**ADD, "parts": [{"raw": "AAAA"}]}},
        ):
            one, two = [essence((await agent.asked(each, "SendMessage", body))[1]) for each in BINDINGS]
            assert one == two


async def test_5_2_and_8_3_1_every_interface_of_the_card_answers(tmp_path):
    runtime = Runtime.open(project(tmp_path, "toolsets: {till: [pay]}"))
    async with serving(runtime) as agent:
        for path in ("", "/a2a", "/a2a/till"):
            card = await A2ACardResolver(agent.http, agent.url + path).get_agent_card()
            assert [each.protocol_binding for each in card.supported_interfaces] == [*BINDINGS]
            for interface in card.supported_interfaces:
                assert interface.protocol_version == "1.0"
                one = AgentCard()
                one.CopyFrom(card)
                del one.supported_interfaces[:]
                one.supported_interfaces.append(interface)
                settings = ClientConfig(
                    httpx_client=agent.http,
                    streaming=False,
                    supported_protocol_bindings=[interface.protocol_binding],
                )
                request = SendMessageRequest(message=message_of("pay", {"amount": 5}))
                (event,) = [each async for each in ClientFactory(settings).create(one).send_message(request)]
                assert result_of(event.task) == {"paid": 5, "to": "shop", "known": False}


@pytest.mark.parametrize("binding", BINDINGS)
async def test_5_5_and_5_6_names_enums_and_times_are_written_as_json_of_protocol_buffers(binding):
    async with serving(runtime_of(add, count), tokens=(ADA,)) as agent:
        told = [(await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()]
        told += [
            (await agent.asked(binding, name, BODIES.get(name)))[1] for name in ("SendMessage", "ListTasks")
        ]
        body = {"message": MessageToDict(message_of("count", {"n": 2}))}
        path, asked = (
            ("/message:stream", body)
            if binding != "JSONRPC"
            else (
                "",
                {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body},
            )
        )
        told += events_of((await agent.rest("POST", path, asked)).text)
        for answer in told:
            assert [name for name in names_in(answer) if re.fullmatch("[a-z]+(_[a-z]+)+", name)] == []
        text = json.dumps(told)
        times = re.findall(r'"timestamp": "([^"]*)"', text)
        assert len(times) > 5
        for time in times:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z", time)
            assert abs((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()) < 3600
        assert {*re.findall(r'"(?:state|role)": ("?\w*"?)', text)} >= {
            '"TASK_STATE_COMPLETED"',
            '"ROLE_USER"',
        }
        assert not re.findall(r'"(?:state|role)": \d', text)


async def test_5_7_unknown_members_are_ignored():
    async with serving(runtime_of(add)) as agent:
        part = {**ADD["parts"][0], "fromTheFuture": 1}
        body = {"message": {**ADD, "parts": [part], "fromTheFuture": {"a": 1}}, "fromTheFuture": [1]}
        for binding in BINDINGS:
            _, answer = await agent.asked(binding, "SendMessage", body)
            assert answer["task"]["artifacts"][0]["parts"][0]["data"] == {"sum": 3}
        answer = await agent.rest("GET", "/tasks?fromTheFuture=1")
        assert answer.json()["totalSize"] == 2


async def test_7_1_over_tls_the_client_verifies_the_server(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    files = CertificateFiles(tmp_path / "both.pem", tmp_path / "both.pem")
    async with serving(runtime_of(add), tls=files) as agent:
        assert agent.url.startswith("https://")
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as http:
            card = await A2ACardResolver(http, agent.url).get_agent_card()
            assert {each.url for each in card.supported_interfaces} == {f"{agent.url}/a2a"}
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
            request = SendMessageRequest(message=message_of("add", {"a": 1, "b": 2}))
            (event,) = [each async for each in client.send_message(request)]
            assert result_of(event.task) == {"sum": 3}
        # 7.2: a client that does not know the authority connects to nothing.
        with pytest.raises(httpx.ConnectError):
            await agent.http.get(f"{agent.url}/.well-known/agent-card.json")


async def test_7_4_and_13_1_every_operation_authenticates():
    async with serving(runtime_of(add), tokens=(ADA,)) as agent:
        agent.http.headers.pop("authorization")
        for wrong in ({}, {"authorization": f"Bearer {BOB}"}, {"authorization": f"Basic {ADA}"}):
            for operation, (method, path) in OPERATIONS.items():
                body = BODIES.get(operation) if method == "POST" else None
                rest = await agent.rest(method, path.format(task="x"), body, {**HEADERS, **wrong})
                rpc = await agent.rpc(operation, BODIES.get(operation, {"id": "x"}), headers=wrong)
                for answer in (rest, rpc):
                    # 3.3.2: the scheme that is required is told.
                    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                    assert answer.json()["error"]["message"] == "A bearer token is required"
                # 11.6
                assert rest.json()["error"]["code"] == 401
                assert rpc.json()["jsonrpc"] == "2.0"
        # 3.1.11, 13.3: the extended card needs a token as well, and has the tools that the public card does not have.
        public = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        assert (public["capabilities"]["extendedAgentCard"], public["skills"]) == (True, [])
        told = {**HEADERS, "authorization": f"Bearer {ADA}"}
        (rest, rpc) = (
            (await agent.rest("GET", "/extendedAgentCard", None, told)).json(),
            (await agent.rpc("GetExtendedAgentCard", {}, headers=told)).json()["result"],
        )
        assert [skill["id"] for skill in rest["skills"]] == ["tool-add"]
        assert rest == rpc


async def test_13_1_tasks_of_other_peers_do_not_exist(asking):
    asking.add(add)
    async with serving(asking, tokens=(ADA, BOB)) as agent:
        held = await agent.task(message_of("pay", {"amount": 5}))
        _, ended = await sent(agent, "JSONRPC")
        agent.http.headers["authorization"] = f"Bearer {BOB}"
        for binding in BINDINGS:
            for task in (held.id, ended["id"]):
                for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
                    told = await agent.asked(binding, operation, None, task)
                    assert reason_of(told[1]) == "TASK_NOT_FOUND"
                    # 3.3.2: nothing distinguishes them from tasks that never were.
                    assert told == await agent.asked(binding, operation, None, "never")
                message = {**ADD, "taskId": task}
                _, told = await agent.asked(binding, "SendMessage", {"message": message})
                assert reason_of(told) == "TASK_NOT_FOUND"
            for filters in ({}, {"contextId": ended["contextId"]}, {"status": "TASK_STATE_INPUT_REQUIRED"}):
                _, page = await agent.asked(binding, "ListTasks", filters)
                assert (page["tasks"], page["totalSize"]) == ([], 0)
        agent.http.headers["authorization"] = f"Bearer {ADA}"
        _, page = await agent.asked("JSONRPC", "ListTasks")
        assert {task["id"] for task in page["tasks"]} == {held.id, ended["id"]}


def signed_text(card):
    """What the signatures of a served card cover, by the rules of section 8.4.1."""
    card = json.loads(json.dumps(card))
    del card["signatures"]
    # Members that are neither required nor optional are left out if they have the default value.
    for extension in card["capabilities"]["extensions"]:
        assert extension.pop("required") is False
    for requirement in card.get("securityRequirements", ()):
        assert requirement["schemes"]["bearer"].pop("list") == []
    # RFC 8785; the card has no numbers but whole ones, and no names beside ASCII.
    return json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("tokens", [(), (ADA,)])
async def test_8_4_a_signature_covers_the_canonical_card(tmp_path, tokens):
    def greet(name: str = "", titles: tuple[str, ...] = ()) -> dict[str, str]:
        """Grüße a person."""
        return {"greeting": f"Hello {name}"}

    private = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "key.pem"
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    options = AgentOptions(watch=False, signing_key=CardKey(file, "shop-1"))
    async with serving(runtime_of(greet), options, tokens=tokens) as agent:
        agent.http.headers.pop("authorization", None)
        card = (await agent.http.get(f"{agent.url}/.well-known/agent-card.json")).json()
        # The second one is for the SDK, which removes empty values that the card must have.
        assert len(card["signatures"]) == 2
        payload = urlsafe_b64encode(signed_text(card)).rstrip(b"=").decode()
        for signature in card["signatures"]:
            # 8.4.2
            padded = signature["protected"] + "=" * (-len(signature["protected"]) % 4)
            header = json.loads(urlsafe_b64decode(padded))
            assert header == {"alg": "ES256", "kid": "shop-1", "typ": "JOSE"}
        first = card["signatures"][0]
        token = f"{first['protected']}.{payload}.{first['signature']}"
        assert PyJWS().decode(token, private.public_key(), ["ES256"]) == signed_text(card)
        verify = create_signature_verifier(lambda _kid, _url: private.public_key(), ["ES256"])
        verify(ParseDict(card, AgentCard()))


async def test_8_6_1_and_14_3_the_card_can_be_cached_and_revalidated():
    async with serving(runtime_of(add)) as agent:
        url = f"{agent.url}/.well-known/agent-card.json"
        first = await agent.http.get(url)
        ParseDict(first.json(), AgentCard())
        assert first.headers["content-type"].startswith("application/json")
        tag = first.headers["etag"]
        for asked, status in ((tag, 304), (f'"other", W/{tag}', 304), ("*", 304), ('"other"', 200)):
            again = await agent.http.get(url, headers={"if-none-match": asked})
            assert (again.status_code, again.headers["etag"]) == (status, tag)
            assert re.search(r"max-age=\d+", again.headers["cache-control"])
            assert bool(again.content) is (status == 200)
        head = await agent.http.head(url)
        assert (head.status_code, head.headers["etag"], head.content) == (200, tag, b"")


async def test_9_requests_of_json_rpc_are_answered_with_their_id():
    async with serving(runtime_of(add)) as agent:
        for id_ in ("text", "", 0, -1, 2**40, None):
            asked = {"jsonrpc": "2.0", "id": id_, "method": "ListTasks"}
            answer = await agent.rest("POST", "", asked)
            told = answer.json()
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert told.keys() == {"jsonrpc", "id", "result"}
            assert (told["jsonrpc"], told["id"], told["result"]["totalSize"]) == ("2.0", id_, 0)
            refused = (await agent.rest("POST", "", {**asked, "method": "tasks/list"})).json()
            assert (refused["id"], refused["error"]["code"]) == (id_, -32601)
        for id_ in ({"bad": "type"}, [1], True, 1.5):
            refused = (
                await agent.rest("POST", "", {"jsonrpc": "2.0", "id": id_, "method": "ListTasks"})
            ).json()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600), id_
        # 9.4.2: each event of a stream is a response with the id of the request.
        asked = {"jsonrpc": "2.0", "id": "s", "method": "SendStreamingMessage", "params": {"message": ADD}}
        answer = await agent.rest("POST", "", asked)
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.text.splitlines() if line.startswith("data:")]
        assert {json.loads(line[5:])["id"] for line in lines} == {"s"}
        # 9.4.8 shows this request without parameters.
        asked = {"jsonrpc": "2.0", "id": 6, "method": "GetExtendedAgentCard"}
        assert reason_of((await agent.rest("POST", "", asked)).json()) == "UNSUPPORTED_OPERATION"


async def test_11_1_and_11_3_every_operation_has_its_path_and_its_methods():
    async with serving(runtime_of(add)) as agent:
        for operation, (method, path) in OPERATIONS.items():
            url = path.format(task="x")
            answer = await agent.rest(method, url, BODIES.get(operation) if method == "POST" else None)
            assert answer.status_code in (
                {200} if operation in {"SendMessage", "ListTasks", "SendStreamingMessage"} else {400, 404}
            )
            if operation in {"SendMessage", "ListTasks"}:
                assert answer.headers["content-type"] == "application/a2a+json"
            if answer.status_code != 200:
                # 11.6
                assert answer.headers["content-type"] == "application/json"
                assert answer.json()["error"]["code"] == answer.status_code
            for wrong in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
                other = await agent.rest(wrong, url, {} if wrong != "GET" else None)
                if other.status_code == 405:
                    assert other.json()["error"]["code"] == 405
                    assert f"{wrong} is not allowed here; use" in other.json()["error"]["message"]
                    assert method in other.headers["allow"].split(", ")
                    assert wrong not in other.headers["allow"].split(", ")
                else:
                    # The path has another operation with this method, or is that of a task.
                    assert wrong in {"GET", "POST", "DELETE"}, (wrong, path)


async def test_11_6_what_is_refused_before_the_binding_has_its_form():
    async with serving(runtime_of(add)) as agent:
        for method, path, headers, status in (
            ("GET", "/nothing", {}, 404),
            ("GET", "/tasks", {"host": "evil.example"}, 421),
            ("GET", "/tasks", {"origin": "https://evil.example"}, 403),
            ("PUT", "/message:send", {}, 405),
        ):
            answer = await agent.rest(method, path, None, {**HEADERS, **headers})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (status, status)
            assert error["status"] == error["status"].upper()
            assert error["message"]
            assert all("@type" in each for each in error.get("details", ()))
        evil = (await agent.rpc("ListTasks", {}, headers={"host": "evil.example"})).json()
        assert (evil["jsonrpc"], evil["error"]["code"]) == ("2.0", -32600)


async def test_13_4_and_14_1_messages_have_a_limit():
    async with serving(runtime_of(add)) as agent:
        # One byte too many, so that the server has read all of it when it answers.
        large = b"x" * (MOST_BODY + 1)
        for path in ("", "/message:send"):
            answer = await agent.http.post(f"{agent.url}/a2a{path}", content=large, headers=HEADERS)
            assert answer.status_code == 413
            assert "exceeds" in answer.json()["error"]["message"]
        assert (await agent.rest("GET", "/tasks")).json()["totalSize"] == 0
