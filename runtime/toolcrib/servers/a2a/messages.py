"""The messages of calls, in the types of the A2A SDK.

A call is a message with `_tool_call` in its metadata, and in that of the request, and the arguments as a data part. Its result is
an artifact with `_tool_result` in its metadata (`urn:toolcrib:a2a:tool-descriptors:v1`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import Artifact, Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value

from toolcrib.core.model import JSON, Content, Schema
from toolcrib.core.text import compact, decode_json
from toolcrib.http import HTTPError
from toolcrib.servers.a2a.cards import (
    EXTENSION,
    LARGEST_CARD,
    AgentCard,
    AgentInterface,
    decode_card,
    sdk_card,
)
from toolcrib.servers.a2a.numbers import is_inexact, narrow_numbers, whole_numbers
from toolcrib.servers.a2a.transport import AgentTransport
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.mcp.failures import InvalidAnswer
from toolcrib.servers.mcp.transports import LinkTrouble

CALL: Final = "_tool_call"
RESULT: Final = "_tool_result"
_JSON: Final = "application/json"

EXTENSIONS_HEADER: Final = "A2A-Extensions"


def open_sdk_client(card: AgentCard, interface: AgentInterface, endpoint: EndpointClient) -> Client:
    """The SDK's client of an endpoint, which sends through our HTTP client."""
    # Without `trust_env=False`, HTTP_PROXY and `.netrc` would bypass the egress guard and add credentials.
    http = httpx.AsyncClient(transport=AgentTransport(endpoint), trust_env=False, timeout=None)  # noqa: S113 -- the deadline of the call applies
    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[interface.binding])
    return ClientFactory(config).create(parse_agent_card(sdk_card(card, interface)))


async def extended_card(endpoint: EndpointClient, interface: AgentInterface) -> dict[str, Any]:
    """The extended card as JSON: the SDK's types would drop unknown members of skills.

    Raises:
        ExchangeFailure: The agent cannot be reached, or answered with another status than 200.
        InvalidAnswer: The answer is not a card.
    """
    path = "/" + interface.url.partition("://")[2].partition("/")[2]
    legacy = interface.version.startswith("0.")
    headers = [("Accept", _JSON), ("Content-Type", _JSON)]
    if not legacy:
        headers.append(("A2A-Version", "1.0"))
    if interface.binding == "JSONRPC":
        method = "agent/getAuthenticatedExtendedCard" if legacy else "GetExtendedAgentCard"
        call: JSON = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        request = endpoint.endpoint.request("POST", headers, compact(call).encode(), path)
    else:
        end = "/v1/card" if legacy else "/extendedAgentCard"
        request = endpoint.endpoint.request("GET", headers, target=path.rstrip("/") + end)
    answer = await endpoint.send(request, silence=None, most=LARGEST_CARD)
    try:
        body = await answer.whole()
    except HTTPError as error:
        raise ExchangeFailure.by(error) from None
    finally:
        await answer.aclose()
    if answer.status != 200:
        message = f"it answered with status {answer.status}"
        raise ExchangeFailure(LinkTrouble("http_status", message), sent=True)
    card = decode_card(body)
    if interface.binding != "JSONRPC":
        return card
    result = card.get("result")
    if not isinstance(result, dict):
        raise InvalidAnswer("it answered with an error")
    return result


class SkillCall(NamedTuple):
    """A call to send.

    Attributes:
        tool: The agent's name for the tool.
        arguments: The arguments.
        message_id: ID of the message; the same for each attempt.
        text: The argument that is sent as a text; None if the tool takes arguments.
        timeout: Seconds that the caller waits; None for no limit.
        metadata: Further metadata of the call.
        extension: Whether the agent declares the extension.
        task_id: The task that waits for this message; empty for a new one.
        context_id: The context of that task.
        wait: Whether the agent may answer after the task has ended; otherwise it answers at once.
    """

    tool: str
    arguments: dict[str, JSON]
    message_id: str
    text: str | None = None
    timeout: float | None = None
    metadata: Mapping[str, JSON] = {}
    extension: bool = True
    task_id: str = ""
    context_id: str = ""
    wait: bool = True

    def request(self) -> SendMessageRequest:
        """The request in the SDK's types."""
        params = _struct(self.arguments)
        fields = {"name": Value(string_value=self.tool), "params": Value(struct_value=params)}
        if self.timeout is not None:
            fields["timeout_ms"] = Value(number_value=round(self.timeout * 1000))
        if self.metadata:
            fields["metadata"] = Value(struct_value=_struct(dict(self.metadata)))
        call = Struct(fields={CALL: Value(struct_value=Struct(fields=fields))})
        if self.text is not None:
            parts = [Part(text=self.text)]
        else:
            parts = [Part(data=Value(struct_value=params), media_type=_JSON)]
            if self.extension and is_inexact(self.arguments):
                parts.append(exact_part(self.arguments))
        message = Message(
            message_id=self.message_id,
            role=Role.ROLE_USER,
            parts=parts,
            metadata=call,
            extensions=[EXTENSION],
            task_id=self.task_id,
            context_id=self.context_id,
        )
        configuration = SendMessageConfiguration(return_immediately=not self.wait)
        return SendMessageRequest(message=message, configuration=configuration, metadata=call)


def _struct(value: Mapping[str, Any]) -> Struct:
    made = Struct()
    made.update(dict(value))
    return made


def exact_part(value: JSON) -> Part:
    """A value as JSON text, for peers that know the extension: integers above 2^53 keep their digits."""
    marked = Struct(fields={EXTENSION: Value(struct_value=_struct({"exact": True}))})
    return Part(text=compact(value), media_type=_JSON, metadata=marked)


class ArtifactParts:
    """An artifact as far as it has arrived.

    Attributes:
        metadata: Its metadata.
        parts: Its parts.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.metadata = to_json(artifact.metadata)
        self.parts = [*artifact.parts]

    def append(self, artifact: Artifact) -> None:
        """Add the parts of a chunk."""
        self.metadata |= to_json(artifact.metadata)
        self.parts += artifact.parts

    @property
    def marked(self) -> bool:
        """Whether it is the result of a tool."""
        return self.metadata.get(RESULT) is True


def to_json(message: Any) -> dict[str, Any]:
    """A protobuf struct or message as JSON, with integers in place of whole floats."""
    made: dict[str, Any] = whole_numbers(MessageToDict(message))
    return made


class ToolValue(NamedTuple):
    """The value of an artifact.

    Attributes:
        value: The value: that of its data part, a list of the values of several, or else its text.
        content: Its other parts.
        inexact: Whether it contains integers that may have lost digits.
    """

    value: JSON
    content: tuple[Content, ...]
    inexact: bool


def value_of_parts(parts: list[Part], schema: Schema | None) -> ToolValue:
    """The value and the content of the parts of a result.

    Args:
        parts: The parts.
        schema: The output schema, which tells integers and numbers apart; None for none.

    Raises:
        InvalidAnswer: A part is empty, or its exact text is not valid JSON.
    """
    data: list[JSON] = []
    exact: list[JSON] = []
    texts: list[str] = []
    content: list[Content] = []
    for place, part in enumerate(parts):
        kind = part.WhichOneof("content")
        if kind == "data":
            data.append(MessageToDict(part.data))
        elif kind == "text" and _is_exact(part):
            try:
                exact.append(decode_json(part.text))
            except (ValueError, RecursionError):
                raise InvalidAnswer(f"part {place + 1} of its result is not valid JSON") from None
        elif kind == "text":
            texts.append(part.text)
        elif kind is None:
            raise InvalidAnswer(f"part {place + 1} of its result is empty")
        else:
            content.append(content_of_part(part))
    if exact and len(exact) >= len(data):
        return ToolValue(_one_or_all(exact), (*_shown(texts), *content), False)
    if data:
        whole = _one_or_all(data)
        value = narrow_numbers(whole, schema)
        return ToolValue(value, (*_shown(texts), *content), is_inexact(value))
    if texts:
        return ToolValue("\n".join(texts), tuple(content), False)
    return ToolValue(None, tuple(content), False)


def _one_or_all(values: list[JSON]) -> JSON:
    return values[0] if len(values) == 1 else values


def _shown(texts: list[str]) -> tuple[Content, ...]:
    return tuple(Content("text", text=text) for text in texts)


def _is_exact(part: Part) -> bool:
    if not part.HasField("metadata"):
        return False
    mark = to_json(part.metadata).get(EXTENSION)
    return isinstance(mark, dict) and mark.get("exact") is True


def content_of_part(part: Part) -> Content:
    """A part as content for a model or a person."""
    kind, media = part.WhichOneof("content"), part.media_type or None
    title = part.filename or None
    if kind == "text":
        return Content("text", text=part.text)
    if kind == "data":
        return Content("text", text=compact(whole_numbers(MessageToDict(part.data))), mime_type=_JSON)
    if kind == "url":
        return Content("resource", uri=part.url, mime_type=media, title=title)
    raw = b64encode(part.raw).decode()
    family = (media or "").partition("/")[0]
    if family == "image":
        return Content("image", data=raw, mime_type=media, title=title)
    if family == "audio":
        return Content("audio", data=raw, mime_type=media, title=title)
    return Content("resource", data=raw, mime_type=media, title=title, uri=title and f"attachment:{title}")


def text_of_message(message: Message) -> str:
    """The texts of a message, joined with newlines."""
    return "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text")


def error_of_message(message: Message) -> dict[str, Any]:
    """The `error` object in a data part of a message; empty if there is none."""
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            value = whole_numbers(MessageToDict(part.data))
            error = value.get("error") if isinstance(value, dict) else None
            if isinstance(error, dict):
                return error
    return {}
