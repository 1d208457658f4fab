"""Adapter for Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Content, Outcome
from toolcrib.http.event_stream import StreamEvent
from toolcrib.provider.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolcrib.provider.models.http_client import (
    IMAGES,
    PDF,
    AnswerReader,
    ServedModel,
    Service,
    ServiceAnswer,
    arguments_of,
    count_of,
    declared_tools,
    describe_part,
    object_of,
    objects_of,
    settings_of,
    text_of,
    wire_id,
    wire_name,
)
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)

MAX_TOKENS: Final = 8192
"""Default of the setting `max_tokens`, which the service requires."""

_RESERVED: Final = {
    "messages": "the conversation provides the messages",
    "model": "pass `model` when opening the provider",
    "stream": "stream the events of the conversation instead",
    "system": "use a system message instead",
    "tool_choice": "set it in the policy",
    "tools": "the runtime declares the tools",
}
_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_CACHED: Final[dict[str, JSON]] = {"cache_control": {"type": "ephemeral"}}


class Anthropic(ServedModel):
    """A model with Anthropic's messages API.

    The setting `prompt_caching: true` lets the service cache the tool declarations and the system message,
    which are the same in all requests. The setting `max_tokens` defaults to 8192.

    Args:
        **options: Options of `ServedModel`.
    """

    SERVICE = Service(
        "Anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "x-api-key",
        "",
        {"anthropic-version": "2023-06-01"},
    )
    PATH = "/v1/messages"
    dialect = "anthropic"

    def __init__(self, *, base_url: str = "", **options: Any) -> None:
        # `PATH` has the version already. Users often pass the URL with `/v1`, as for OpenAI.
        super().__init__(base_url=base_url.rstrip("/").removesuffix("/v1"), **options)

    def body(self, request: Request) -> dict[str, JSON]:
        """Build the body of a request."""
        settings = settings_of(request, _RESERVED)
        caching = settings.pop("prompt_caching", False)
        if not isinstance(caching, bool):
            message = "the setting `prompt_caching` must be true or false"
            raise ConfigurationError(message, code="invalid_setting")
        body: dict[str, Any] = {"model": self.model, "max_tokens": MAX_TOKENS, **settings}
        if request.streaming:
            body["stream"] = True
        if tools := _tools(request):
            # A mark on the last tool caches everything up to it.
            body["tools"] = [*tools[:-1], {**tools[-1], **_CACHED}] if caching else tools
            body |= _choice(request)
        if said := [message.text for message in request.messages if message.role == "system"]:
            text = "\n\n".join(said)
            body["system"] = [{"type": "text", "text": text, **_CACHED}] if caching else text
        body["messages"] = _messages(request.messages)
        return body

    def read_whole(self, value: dict[str, Any], answer: ServiceAnswer) -> Iterator[Delta]:
        """Decode an answer that is not streamed."""
        if not isinstance(value.get("content"), list):
            raise answer.unreadable("the answer has no `content`")
        blocks = objects_of(value["content"])
        for index, block in enumerate(blocks):
            yield from _begun(index, block, answer)
            if thought := _handed_back(block):
                yield ReasoningDelta("", thought)
        usage, model = object_of(value.get("usage")), text_of(value.get("model"))
        yield _finish(value.get("stop_reason"), blocks, usage, model)

    def reader(self, answer: ServiceAnswer) -> AnswerReader:
        """Create the reader of a streamed answer."""
        return _Reader(answer)


def _tools(request: Request) -> list[dict[str, JSON]]:
    """The tool declarations."""
    # The service refuses messages with calls if no tools are declared; declare the called ones without a
    # schema.
    tools = [dict(tool.definition) for tool in declared_tools(request)]
    if tools or not request.aware:
        return tools
    names = dict.fromkeys(wire_name(call) for message in request.messages for call in message.calls)
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _choice(request: Request) -> dict[str, JSON]:
    kinds: dict[str, dict[str, JSON]] = {
        "auto": {"type": "auto"},
        "required": {"type": "any"},
        "none": {"type": "none"},
    }
    choice = kinds.get(request.tool_choice, {"type": "tool", "name": request.tool_choice})
    if not request.tools:
        choice = kinds["none"]  # the declarations only satisfy the service, see `_tools`
    if not request.parallel and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}


def _messages(messages: Iterable[Message]) -> list[JSON]:
    """Convert all messages except system messages, and merge adjacent messages of a role."""
    # The service expects alternating roles, and all results of a round in one message.
    merged: list[tuple[str, list[JSON]]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [block for part in message.parts for block in _blocks(part)]
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        elif blocks:
            merged.append((role, blocks))
    return [{"role": role, "content": _content(blocks)} for role, blocks in merged]


def _content(blocks: list[JSON]) -> JSON:
    """The content of a message: a string if it has only text."""
    first = object_of(blocks[0])
    return first["text"] if len(blocks) == 1 and first["type"] == "text" else blocks


def _blocks(part: Part) -> Iterator[JSON]:
    """Convert a part to blocks."""
    if isinstance(part, Text):
        # The service refuses text blocks that are empty or blank.
        if part.text.strip():
            yield {"type": "text", "text": part.text}
    elif isinstance(part, Reasoning):
        yield from _thought(part)
    elif isinstance(part, ToolCall):
        named = {"type": "tool_use", "id": wire_id(part.id), "name": wire_name(part)}
        yield {**named, "input": arguments_of(part)}
    elif isinstance(part, ToolResult):
        yield _result(part)
    else:
        yield _shown(part)


def _thought(part: Reasoning) -> Iterator[JSON]:
    data = object_of(part.data)
    if data.get("type") == "thinking":
        yield {"type": "thinking", "thinking": part.text, "signature": data.get("signature")}
    elif data.get("type") == "redacted_thinking":
        yield data


def _result(part: ToolResult) -> JSON:
    shown = [block for block in map(_shown, part.content) if object_of(block)["type"] != "text"]
    text: list[JSON] = [{"type": "text", "text": part.text}] if part.text.strip() else []
    told: dict[str, JSON] = {"type": "tool_result", "tool_use_id": wire_id(part.id)}
    told["content"] = [*text, *shown] if shown else part.text
    if part.outcome is not Outcome.OK:
        told["is_error"] = True
    return told


def _shown(part: Content) -> JSON:
    for kind, types in _KINDS:
        if part.data and part.mime_type in types:
            data: JSON = {"type": "base64", "media_type": part.mime_type, "data": part.data}
            return {"type": kind, "source": data}
    if part.type == "image" and part.uri and part.uri.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": part.uri}}
    # An empty text block would be refused.
    return {"type": "text", "text": describe_part(part) or "[empty]"}


_KINDS: Final[Sequence[tuple[str, frozenset[str]]]] = (("image", IMAGES), ("document", frozenset({PDF})))


def _begun(index: int, block: dict[str, Any], answer: ServiceAnswer) -> Iterator[Delta]:
    """Decode the start of a block, which is the whole block in an answer that is not streamed."""
    kind = block.get("type")
    if kind == "text":
        yield from _prose(TextDelta, block.get("text"))
    elif kind == "thinking":
        yield from _prose(ReasoningDelta, block.get("thinking"))
    elif kind == "tool_use":
        # In a stream, `input` is an empty object here and its JSON text follows in pieces.
        written = object_of(block.get("input"))
        yield CallDelta(index, text_of(block.get("id")), text_of(block.get("name")), written or "")
    elif kind != "redacted_thinking":
        raise answer.unreadable(f"the answer has a block of the unknown type `{kind}`")


def _prose(kind: type[TextDelta | ReasoningDelta], text: Any) -> Iterator[Delta]:
    # Blocks begin with an empty text, which must not count as a part of the reply: a retry is still possible.
    if text := text_of(text):
        yield kind(text)


def _handed_back(block: dict[str, Any]) -> JSON:
    """The data of a reasoning block to send back; None if there is none."""
    # The service refuses reasoning without its signature.
    if block.get("type") == "redacted_thinking":
        return block
    signature = block.get("signature") if block.get("type") == "thinking" else None
    return {"type": "thinking", "signature": signature} if signature else None


def _finish(reason: Any, blocks: Iterable[Mapping[str, Any]], usage: dict[str, Any], model: str) -> Finish:
    cached, writes = (
        count_of(usage.get("cache_read_input_tokens")),
        count_of(usage.get("cache_creation_input_tokens")),
    )
    # The service counts cached tokens separately; `Tokens.input` includes them.
    tokens = Tokens(
        input=count_of(usage.get("input_tokens")) + cached + writes,
        output=count_of(usage.get("output_tokens")),
        cached=cached,
        cache_writes=writes,
    )
    told = text_of(reason) or "end_turn"
    if told == "stop_sequence" or not reason:
        # Complete calls end with the reason `tool_use`; with any other reason the last call may be cut off.
        called = any(block.get("type") == "tool_use" for block in blocks)
        told = "max_tokens" if called else told
    return Finish(_REASONS.get(told, told), tokens, model)


class _Reader:
    finish: Finish | None = None
    done = False

    def __init__(self, answer: ServiceAnswer) -> None:
        self._answer = answer
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._reason: Any = None

    def add(self, event: StreamEvent) -> Iterator[Delta]:
        value = self._answer.read_event(event)
        kind, index = text_of(value.get("type")) or event.type, count_of(value.get("index"))
        if kind == "message_start":
            message = object_of(value.get("message"))
            self._model = text_of(message.get("model"))
            self._count(message)
        elif kind == "content_block_start":
            self._blocks[index] = object_of(value.get("content_block"))
            yield from _begun(index, self._blocks[index], self._answer)
        elif kind == "content_block_delta":
            yield from self._piece(index, object_of(value.get("delta")))
        elif kind == "content_block_stop":
            if thought := _handed_back(self._blocks.get(index, {})):
                yield ReasoningDelta("", thought)
        elif kind == "message_delta":
            self._reason = object_of(value.get("delta")).get("stop_reason")
            self._count(value)
        elif kind == "message_stop":
            self.finish = self.unfinished()
            self.done = True

    def unfinished(self) -> Finish:
        return _finish(self._reason, self._blocks.values(), self._usage, self._model)

    def _count(self, value: dict[str, Any]) -> None:
        """Update the token counts."""
        # Counts are running totals; those that an event omits stay as they are.
        told = object_of(value.get("usage"))
        self._usage |= {name: count for name, count in told.items() if count is not None}

    def _piece(self, index: int, delta: dict[str, Any]) -> Iterator[Delta]:
        kind = delta.get("type")
        if kind == "text_delta":
            yield from _prose(TextDelta, delta.get("text"))
        elif kind == "input_json_delta":
            yield CallDelta(index, arguments=text_of(delta.get("partial_json")))
        elif kind == "thinking_delta":
            yield from _prose(ReasoningDelta, delta.get("thinking"))
        elif kind == "signature_delta":
            block = self._blocks.setdefault(index, {})
            block["signature"] = text_of(block.get("signature")) + text_of(delta.get("signature"))
