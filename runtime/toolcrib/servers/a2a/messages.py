"""The messages of calls, in the types of the A2A SDK.

A call is a message with `_tool_call` in its metadata, and in that of the request, and the arguments as a data part. Its result is
an artifact with `_tool_result` in its metadata (`urn:toolcrib:a2a:tool-descriptors:v1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from google.protobuf.struct_pb2 import Struct, Value

from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.http import HTTPError
from toolcrib.servers.a2a.artifacts import JSON_TYPE, exact_part, to_json, to_struct
from toolcrib.servers.a2a.cards import (
    EXTENSION,
    LARGEST_CARD,
    AgentCard,
    AgentInterface,
    decode_card,
    sdk_card,
)
from toolcrib.servers.a2a.numbers import is_inexact
from toolcrib.servers.a2a.transport import AgentTransport
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.mcp.failures import InvalidAnswer
from toolcrib.servers.mcp.transports import LinkTrouble

CALL: Final = "_tool_call"

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
    headers = [("Accept", JSON_TYPE), ("Content-Type", JSON_TYPE)]
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
        params = to_struct(self.arguments)
        fields = {"name": Value(string_value=self.tool), "params": Value(struct_value=params)}
        if self.timeout is not None:
            fields["timeout_ms"] = Value(number_value=round(self.timeout * 1000))
        if self.metadata:
            fields["metadata"] = Value(struct_value=to_struct(dict(self.metadata)))
        call = Struct(fields={CALL: Value(struct_value=Struct(fields=fields))})
        if self.text is not None:
            parts = [Part(text=self.text)]
        else:
            parts = [Part(data=Value(struct_value=params), media_type=JSON_TYPE)]
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


def text_of_message(message: Message) -> str:
    """The texts of a message, joined with newlines."""
    return "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text")


def error_of_message(message: Message) -> dict[str, Any]:
    """The `error` object in a data part of a message; empty if there is none.

    Raises:
        InvalidAnswer: It contains NaN or an infinity.
    """
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            value: Any = to_json(part.data)
            error = value.get("error") if isinstance(value, dict) else None
            if isinstance(error, dict):
                return error
    return {}
