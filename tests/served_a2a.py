"""Tools served over A2A in this process, and the SDK's client for them.

async with serving(runtime) as agent:
    events = await agent.send("JSONRPC", "add", {"a": 2, "b": 3})
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.helpers import new_data_part
from a2a.types import (
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

from toolcrib import CallContext, Partial, Progress, Registry, Runtime
from toolcrib.core.model import Content
from toolcrib.core.protocols import Clock
from toolcrib.serve.a2a import AgentOptions, serve_http
from toolcrib.serve.http_common.listen_address import CertificateFiles, ListenAddress

EXTENSION = "urn:toolcrib:a2a:tool-descriptors:v1"
BINDINGS = ("JSONRPC", "HTTP+JSON")
PATIENCE = 60.0

HEADERS = {"content-type": "application/json", "a2a-version": "1.0"}

OPERATIONS = {
    "CancelTask": ("POST", "/tasks/{task}:cancel"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{task}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{task}/pushNotificationConfigs/hook"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
    "GetTask": ("GET", "/tasks/{task}"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{task}/pushNotificationConfigs/hook"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{task}/pushNotificationConfigs"),
    "ListTasks": ("GET", "/tasks"),
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "SubscribeToTask": ("POST", "/tasks/{task}:subscribe"),
}
"""The operations of A2A 1.0 with their requests of HTTP+JSON (section 5.3)."""


def add(a: int, b: int) -> dict[str, int]:
    """Add two integers."""
    return {"sum": a + b}


def echo(value: Any) -> Any:
    """Return the value."""
    return value


def fail(text: str) -> str:
    """Raise an exception with the text."""
    raise RuntimeError(text)


async def count(n: int) -> AsyncIterator[Any]:
    """Report progress and partial results, then the number."""
    for number in range(n):
        yield Progress(number, n, f"step {number}")
        yield Partial(Content("text", text=f"chunk {number}"))
    yield n


class Gate:
    """A tool that waits for the test.

    Attributes:
        entered: Set when a call waits.
        opened: Set by the test to let calls end.
        left: Number of calls that were cancelled.
    """

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.left = 0

    def tool(self) -> Any:
        async def wait(context: CallContext) -> str:
            """Wait until the test opens the gate."""
            context.emit(Progress(1, None, "waiting"))
            self.entered.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.left += 1
                raise
            return "opened"

        return wait


def runtime_of(*tools: Any, **options: Any) -> Runtime:
    """A runtime with these Python functions as tools."""
    runtime = Runtime(Registry(), **options)
    for tool in tools:
        runtime.add(tool)
    return runtime


def struct(value: Mapping[str, Any]) -> Struct:
    made = Struct()
    made.update(dict(value))
    return made


def message_of(name: str, params: Mapping[str, Any], **more: Any) -> Message:
    """The message of a call, as the extension describes it."""
    call = {"_tool_call": {"name": name, "params": params}}
    fields = {"parts": [new_data_part(dict(params))], "metadata": struct(call), "extensions": [EXTENSION]}
    return Message(message_id=str(uuid4()), role=Role.ROLE_USER, **(fields | more))


def text_message(text: str, **more: Any) -> Message:
    """A message of a peer that does not know the extension."""
    return Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **more)


class ServedAgent:
    """A served agent, and clients for it.

    Attributes:
        url: Where it is, such as `http://127.0.0.1:8000`.
        said: What it says to people.
        http: A plain client.
    """

    def __init__(self, runtime: Runtime, token: str = "") -> None:
        self.runtime = runtime
        self.url = ""
        self.said: list[str] = []
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(timeout=PATIENCE, trust_env=False, headers=headers)
        self._new = asyncio.Event()

    def say(self, line: str) -> None:
        self.said.append(line)
        self._new.set()

    async def until_said(self, part: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                self._new.clear()
                for line in self.said:
                    if part in line:
                        return line
                await self._new.wait()

    def stop(self) -> None:
        """Ask the server to stop, as a signal does."""
        signal.raise_signal(signal.SIGTERM)

    async def client(self, binding: str = "JSONRPC", path: str = "", **config: Any) -> Client:
        """The SDK's client, which reads the card."""
        card = await A2ACardResolver(self.http, self.url + path).get_agent_card()
        settings = ClientConfig(httpx_client=self.http, supported_protocol_bindings=[binding], **config)
        return ClientFactory(settings).create(card)

    async def send(
        self,
        message: Message,
        binding: str = "JSONRPC",
        *,
        path: str = "",
        immediately: bool = False,
        **config: Any,
    ) -> list[Any]:
        """The events that answer a message."""
        client = await self.client(binding, path, **config)
        return [event async for event in sent(client, message, immediately=immediately)]

    async def task(self, message: Message, binding: str = "JSONRPC", **more: Any) -> Any:
        """The task that answers a message, without streaming."""
        (event,) = await self.send(message, binding, streaming=False, **more)
        return event.task

    async def rpc(
        self, method: str, params: Any, *, path: str = "/a2a", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The answer to a JSON-RPC request, written by hand."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.http.post(
            self.url + path, content=json.dumps(body), headers={**HEADERS, **(headers or {})}
        )

    async def rest(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The answer to a request of HTTP+JSON, written by hand."""
        content = None if body is None else json.dumps(body)
        told = HEADERS if headers is None else headers
        return await self.http.request(method, f"{self.url}/a2a{path}", content=content, headers=told)

    async def asked(self, binding: str, operation: str, body: Any = None, task: str = "") -> tuple[int, Any]:
        """The status and the JSON of the answer to an operation, whose result is unwrapped."""
        if binding == "JSONRPC":
            answer = await self.rpc(operation, {**(body or {}), **({"id": task} if task else {})})
            return answer.status_code, answer.json().get("result", answer.json())
        method, path = OPERATIONS[operation]
        path = path.format(task=task or "x")
        if method == "GET" and body:
            path += "?" + "&".join(f"{key}={json.dumps(value).strip(chr(34))}" for key, value in body.items())
            body = None
        answer = await self.rest(method, path, body)
        return answer.status_code, answer.json()


def sent(client: Client, message: Message, *, immediately: bool = False) -> AsyncIterator[Any]:
    """Send a message with the SDK's client."""
    configuration = SendMessageConfiguration(return_immediately=immediately)
    request = SendMessageRequest(message=message, configuration=configuration, metadata=message.metadata)
    context = ClientCallContext(service_parameters={"A2A-Extensions": EXTENSION})
    return client.send_message(request, context=context)


@asynccontextmanager
async def serving(
    runtime: Runtime,
    options: AgentOptions | None = None,
    *,
    tokens: tuple[str, ...] = (),
    users: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    tls: CertificateFiles | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[ServedAgent]:
    """Serve a runtime over A2A."""
    agent = ServedAgent(runtime, tokens[0] if tokens else "")
    options = AgentOptions(watch=False) if options is None else options
    address = ListenAddress(port=0, tokens=tokens, users=users, origins=origins, tls=tls)
    task = asyncio.create_task(serve_http(runtime, options, address, agent.say, clock=clock))
    try:
        said = asyncio.ensure_future(agent.until_said(" at http"))
        await asyncio.wait([said, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            said.cancel()
            task.result()
        line = await said
        agent.url = line.partition(" at ")[2].partition(";")[0].removesuffix("/a2a")
        yield agent
    finally:
        await agent.http.aclose()
        task.cancel()
        await asyncio.wait([task])


def events_of(text: str) -> list[Any]:
    """The events of a stream, parsed by the SDK's types."""
    found = [json.loads(line.partition(":")[2]) for line in text.splitlines() if line.startswith("data:")]
    found = [each.get("result", each) for each in found]
    for each in found:
        ParseDict(each, StreamResponse())
    return found


def reason_of(answer: Any) -> str:
    """The `reason` of an error, in either binding (A2A 1.0, sections 9.5 and 11.6)."""
    error = answer["error"]
    details = error.get("data") or error["details"]
    assert all("@type" in each for each in details)
    detail = details[0]
    assert detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert detail["domain"] == "a2a-protocol.org"
    reason: str = detail["reason"]
    return reason


def state_of(task: Any) -> str:
    """`completed`, `input_required` and so on."""
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


def result_of(task: Any) -> Any:
    """The value of the data part of the artifact that is marked as the result."""
    (artifact,) = [
        each for each in task.artifacts if MessageToDict(each.metadata).get("_tool_result") is True
    ]
    return MessageToDict(artifact.parts[0].data)


def error_of(task: Any) -> Any:
    """The error in the message of the state of a task."""
    return MessageToDict(task.status.message.parts[1].data)["error"]


def text_of(task: Any) -> str:
    """The text of the message of the state of a task."""
    text: str = task.status.message.parts[0].text
    return text


def in_words(event: Any) -> str:
    """An event of a stream, such as `artifact partial append=True last=False chunk 1`."""
    kind = event.WhichOneof("payload")
    if kind == "task":
        return f"task {state_of(event.task)}"
    if kind == "status_update":
        status = event.status_update.status
        text = status.message.parts[0].text if status.HasField("message") else ""
        return f"status {state_of(event.status_update)} {text}".strip()
    update = event.artifact_update
    part = update.artifact.parts[0]
    told = part.text or MessageToDict(part.data)
    return f"artifact {update.artifact.artifact_id} append={update.append} last={update.last_chunk} {told}"
