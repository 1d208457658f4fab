"""What is said in a conversation: messages, each of parts in their order. Plain data, to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from toolcrib.errors import ConfigurationError
from toolcrib.model import JSON, Content, Outcome

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(NamedTuple):
    """Text that was said."""

    text: str


class Reasoning(NamedTuple):
    """What a model thought aloud.

    Attributes:
        text: What may be read of it; empty where the provider keeps it to itself.
        data: What the provider wants back with the next request, as it gave it: signatures, encrypted content.
    """

    text: str
    data: JSON = None


class ToolCall(NamedTuple):
    """A call that a model asked for.

    Attributes:
        id: Unique in the conversation.
        name: The tool's name; what the model wrote where no tool is meant by it.
        arguments: As the tool takes them; None where what the model wrote is no JSON object.
        written: The arguments as the model wrote them.
        alias: The name that the model used, where it is another one.
    """

    id: str
    name: str
    arguments: dict[str, JSON] | None
    written: str = ""
    alias: str = ""


class ToolResult(NamedTuple):
    """What a model is told of a call. Every call has exactly one.

    Attributes:
        id: Of the call.
        name: The tool's name.
        outcome: How the call ended.
        text: What the model reads.
        content: Parts that are more than text, for providers that take them.
        code: Finer than the outcome; empty where the call ended `ok`.
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
        role: Whose it is; a message of the role `tool` has one `ToolResult`.
        parts: What is in it, in order.
    """

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All its text, without what the model thought."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that it asks for, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What it tells of calls."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    def as_json(self) -> dict[str, JSON]:
        """`{role, parts: [{type, ...}]}`; what a part does not have is left out."""
        return {"role": self.role, "parts": [_part_as_json(part) for part in self.parts]}


def system(text: str) -> Message:
    """A message that instructs the model."""
    return Message("system", (Text(text),))


def user(*parts: str | Content) -> Message:
    """A message of the user: texts, images, audio, resources."""
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


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
    required = {"name", "text", "arguments"}
    return {key: value for key, value in told.items() if key in required or value not in (None, "", [])}


def parse_message(value: Message | Mapping[str, Any]) -> Message:
    """A message of what `as_json` made; or of `{role, content}`, where `content` is a text.

    Raises:
        ConfigurationError: It is neither.
    """
    if isinstance(value, Message):
        return value
    try:
        if isinstance(value.get("content"), str):
            return Message(_role(value["role"]), (Text(value["content"]),))
        return Message(_role(value["role"]), tuple(_parse_part(part) for part in value["parts"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"this is no message: {type(error).__name__}: {error}",
            code="invalid_message",
            hint='write `{"role": "user", "content": "..."}`, or what `Message.as_json()` gives',
        ) from None


def parse_messages(value: str | Message | Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Messages; a text is what the user says.

    Raises:
        ConfigurationError: One of them is no message.
    """
    if isinstance(value, str):
        return (user(value),)
    if isinstance(value, Message):
        return (value,)
    return tuple(parse_message(each) for each in value)


_ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _role(name: str) -> Role:
    if name not in _ROLES:
        raise ValueError(f"`{name}` is no role")
    return _ROLES[name]


def _parse_part(value: Mapping[str, Any]) -> Part:
    fields = {key: item for key, item in value.items() if key != "type"}
    if value["type"] == "content":
        return Content(**fields["content"])
    if value["type"] == "tool_result":
        fields["outcome"] = Outcome(fields["outcome"])
        fields["content"] = tuple(Content(**part) for part in fields.get("content", ()))
    part: Part = _TYPES[value["type"]](**fields)
    return part
