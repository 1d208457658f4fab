"""The messages of a conversation and their parts, as plain data that converts to JSON and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Content, Outcome
from toolcrib.provider.data_schema import (
    anything,
    content,
    each,
    identity,
    kind_of,
    one_of,
    or_null,
    outcome,
    record,
    table,
    text,
)

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(NamedTuple):
    """A text part."""

    text: str


class Reasoning(NamedTuple):
    """The reasoning of a model.

    Attributes:
        text: Readable reasoning; empty if the provider does not disclose it.
        data: Data to send back unchanged with the next request, such as signatures or encrypted content.
    """

    text: str
    data: JSON = None


class ToolCall(NamedTuple):
    """A call that a model requested.

    Attributes:
        id: Unique in the conversation.
        name: Name of the tool; for an unknown tool, the name that the model wrote.
        arguments: Arguments in the form that the tool accepts; None if the model wrote no JSON object.
        written: The arguments as the model wrote them.
        alias: The name that the model used, if it differs from `name`.
    """

    id: str
    name: str
    arguments: dict[str, JSON] | None
    written: str = ""
    alias: str = ""


class ToolResult(NamedTuple):
    """The result of a call as the model reads it. Every call has exactly one.

    Attributes:
        id: ID of the call.
        name: Name of the tool.
        outcome: Outcome of the call.
        text: Text for the model.
        content: Images, audio and other parts, for providers that accept them.
        code: Error code; empty if the outcome is `ok`.
    """

    id: str
    name: str
    outcome: Outcome
    text: str
    content: tuple[Content, ...] = ()
    code: str = ""


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Content


class Message(NamedTuple):
    """One message.

    Attributes:
        role: The role of the sender. A message with the role `tool` has exactly one `ToolResult`.
        parts: The parts, in order.
    """

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text of the message, without reasoning."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that the message requests, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of calls in the message."""
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])

    def as_json(self) -> dict[str, JSON]:
        """Return `{role, parts: [{type, ...}]}`; empty fields of parts are omitted."""
        return {"role": self.role, "parts": [_part_as_json(part) for part in self.parts]}


def system(text: str) -> Message:
    """Create a message with instructions for the model."""
    return Message("system", (Text(text),))


def user(*parts: str | Content) -> Message:
    """Create a message of the user, from strings, images, audio and resources."""
    return Message("user", tuple([Text(part) if isinstance(part, str) else part for part in parts]))


_TYPES: Mapping[str, type[Any]] = {
    "text": Text,
    "reasoning": Reasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "content": Content,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def _part_as_json(part: Part) -> dict[str, JSON]:
    if isinstance(part, Content):
        return {"type": "content", "content": part.as_json()}
    told: dict[str, Any] = {"type": _NAMES[type(part)]}
    for key, value in part._asdict().items():
        if isinstance(value, Outcome):
            told[key] = value.value
        elif key == "content":
            told[key] = [each.as_json() for each in value]
        else:
            told[key] = value
    # Kept even if empty: the parsers require these keys.
    required = {"name", "text", "arguments"}
    return {key: value for key, value in told.items() if key in required or value not in (None, "", [])}


def parse_message(value: Message | Mapping[str, Any]) -> Message:
    """Parse the JSON form of a message: the output of `as_json`, or `{role, content}` with a string.

    Raises:
        ConfigurationError: The value is not a message; the error lists all violations.
    """
    return parse_messages([value])[0]


def parse_messages(value: str | Message | Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Parse messages; a string becomes a message of the user.

    Raises:
        ConfigurationError: A value is not a message; the error lists all violations.
    """
    if isinstance(value, str):
        return (Message("user", (Text(value),)),)
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise _no_message([f"expected a string, a message or a list of messages, got {kind_of(value)}"])
    messages = list(value)
    wrong = [
        fault
        for number, each_ in enumerate(messages)
        if not isinstance(each_, Message)
        for fault in message_form(each_, f"/{number}" if len(messages) > 1 else "")
    ]
    if wrong:
        raise _no_message(wrong)
    return tuple(each_ if isinstance(each_, Message) else _message(each_) for each_ in messages)


def _no_message(wrong: list[str]) -> ConfigurationError:
    told = f" {wrong[0]}" if len(wrong) == 1 else "".join(f"\n- {each_}" for each_ in wrong)
    return ConfigurationError(
        f"invalid message:{told}",
        code="invalid_message",
        hint='write `{"role": "user", "content": "..."}`, or pass the output of `Message.as_json()`',
    )


def _message(value: Mapping[str, Any]) -> Message:
    # The caller has checked the form.
    if "content" in value:
        return Message(value["role"], (Text(value["content"]),))
    return Message(value["role"], tuple(map(_part, value["parts"])))


_ROLE = one_of(get_args(Role))

_PARTS = {
    "text": record({"type": text, "text": text}),
    "reasoning": record({"type": text, "text": text}, {"data": anything}),
    "tool_call": record(
        {"type": text, "id": identity, "name": text, "arguments": or_null(table)},
        {"written": text, "alias": text},
    ),
    "tool_result": record(
        {"type": text, "id": identity, "name": text, "outcome": outcome, "text": text},
        {"content": each(content), "code": text},
    ),
    "content": record({"type": text, "content": content}),
}
_TYPE = one_of(_PARTS)


def _part_form(value: Any, pointer: str) -> Iterator[str]:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind in _PARTS:
        yield from _PARTS[kind](value, pointer)
    elif isinstance(value, Mapping):
        yield from _TYPE(kind, f"{pointer}/type")
    else:
        yield from table(value, pointer)


_SAID = record({"role": _ROLE, "content": text})
_WHOLE = record({"role": _ROLE, "parts": each(_part_form)})


def message_form(value: Any, pointer: str) -> Iterator[str]:
    """Check the JSON form of a message."""
    # The short form of most providers' APIs, so that their transcripts can be passed as they are.
    short = isinstance(value, Mapping) and "content" in value and "parts" not in value
    return (_SAID if short else _WHOLE)(value, pointer)


def _part(value: Mapping[str, Any]) -> Part:
    # The caller has checked the form.
    fields = {key: item for key, item in value.items() if key != "type"}
    if value["type"] == "content":
        return Content(**fields["content"])
    if value["type"] == "tool_result":
        fields["outcome"] = Outcome(fields["outcome"])
        fields["content"] = tuple(Content(**part) for part in fields.get("content", ()))
    made: Part = _TYPES[value["type"]](**fields)
    return made
