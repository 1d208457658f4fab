"""The tool call that a message of a peer requests, and the parts of the answer (`urn:toolcrib:a2a:tool-descriptors:v1`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

from a2a.server.agent_execution import RequestContext
from a2a.types import Artifact, Message, Part, Role, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Descriptor, Outcome, Result
from toolcrib.core.text import decode_json
from toolcrib.registry.catalog import DENIED
from toolcrib.registry.registry import Registry
from toolcrib.serve.http_common.failures import RAISED, explain_failure
from toolcrib.servers.a2a.artifacts import artifact_of_result, data_part, exact_value_of, to_json
from toolcrib.servers.a2a.cards import SKILL_PREFIX
from toolcrib.servers.a2a.messages import CALL, text_of_message
from toolcrib.servers.a2a.numbers import whole_numbers

RESULT_ID: Final = "result"
"""ID of the artifact with the result of a task."""

PARTIAL_ID: Final = "partial"
"""ID of the artifact with what a task sends before its result."""

LONGEST_KEY: Final = 200
"""Maximum length of a peer's idempotency key, in characters."""

_SHOWN: Final = 10
"""Maximum number of tools that a message names."""


class RequestedCall(NamedTuple):
    """A call that a message asks for.

    Attributes:
        name: The peer's name for the tool.
        arguments: The arguments.
        key: The idempotency key; empty for none.
    """

    name: str
    arguments: dict[str, JSON]
    key: str = ""


class InvalidCall(Exception):
    """A message that asks for no call; `str()` says what to send."""


def requested_call(context: RequestContext, tools: Registry) -> RequestedCall:
    """The call that a message asks for.

    Peers that know the extension send `_tool_call` in the metadata of the message, of the request or in a data part. Other peers
    send the name of a tool as the first word of a text; or only its arguments, if there is one tool.

    Args:
        context: The request with the message.
        tools: The tools that the peer may call.

    Raises:
        InvalidCall: The message names no tool, or its arguments are not an object.
    """
    message = context.message
    assert message is not None  # noqa: S101 -- the SDK requires it in a request
    fields = message.metadata.fields
    found = MessageToDict(fields[CALL]) if CALL in fields else context.metadata.get(CALL)
    if found is None:
        data = _data_in(message)
        written = next((each for each in data if isinstance(each, dict) and CALL in each), None)
        if written is None:
            return _unmarked(message, data, tools)
        found = written[CALL]
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not found["name"]:
        raise InvalidCall(
            f"`{CALL}` must be an object with the `name` of a tool, and its arguments in `params`"
        )
    params = found.get("params")
    if params is None:
        data = _data_in(message)
        params = data[0] if data and CALL not in data[0] else {}
    for part in message.parts:
        try:
            exact = exact_value_of(part)
        except ValueError:
            raise InvalidCall("the exact text of the arguments is not valid JSON") from None
        params = params if exact is None else exact
    if not isinstance(params, dict):
        raise InvalidCall(f"the arguments in `params` of `{CALL}` must be an object")
    name = found["name"]
    more = found.get("metadata")
    key = more.get("idempotency_key", "") if isinstance(more, dict) else ""
    if not isinstance(key, str) or len(key) > LONGEST_KEY or not key.isprintable():
        raise InvalidCall(f"`idempotency_key` must be a text of 1 to {LONGEST_KEY} printable characters")
    return RequestedCall(name, whole_numbers(params), key)


def _data_in(message: Message) -> list[Any]:
    """The values of the data parts of a message."""
    return [MessageToDict(part.data) for part in message.parts if part.WhichOneof("content") == "data"]


def named_tool(name: str, tools: Registry) -> str | None:
    """The tool's own name, by itself, by its alias or by the ID of its skill; None if no such tool is offered."""
    for each in (name, name.removeprefix(SKILL_PREFIX)):
        own = each if each in tools else tools.named_by_alias(each)
        if own is None:
            continue
        hidden = tools.hidden(own)
        # A call of a tool that access denies is made, so that it is denied and recorded.
        if hidden is None or hidden.code == DENIED:
            return own
    return None


def _unmarked(message: Message, data: list[Any], tools: Registry) -> RequestedCall:
    """The call in a message of a peer that does not know the extension."""
    text = text_of_message(message).strip()
    names = [card.name for card in tools.query()]
    first, _, rest = text.partition(" ")
    name = named_tool(first.rstrip(":"), tools) if first else None
    if name is None:
        if len(names) != 1:
            raise InvalidCall(
                f"the message does not name a tool; send `{CALL}` with `name` and `params` in its metadata, or the name of the "
                f"tool and its arguments as JSON in a text; {tools_in_words(names)}"
            )
        name, rest = names[0], text
    arguments = next((each for each in data if isinstance(each, dict)), None)
    if arguments is not None:
        return RequestedCall(name, whole_numbers(arguments))
    return RequestedCall(name, _arguments_in_text(rest.strip(), tools[name]))


def _arguments_in_text(text: str, tool: Descriptor) -> dict[str, JSON]:
    if not text:
        return {}
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    schema: Any = tool.input_schema
    required = schema.get("required", []) if isinstance(schema, dict) else []
    if len(required) == 1:
        return {required[0]: text}
    raise InvalidCall(f"send the arguments of `{tool.name}` as a JSON object, in a data part or in the text")


def tools_in_words(names: Iterable[str]) -> str:
    """`the tools are a, b and 3 more`."""
    names = [*names]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the tools are {', '.join(names[:_SHOWN])}{more}" if names else "there are no tools"


def unknown_tool(name: str, tools: Registry) -> Result:
    """The result of a call of a tool that is not served."""
    shown = name.encode(errors="replace").decode()
    shown = shown if len(shown) <= 128 else f"{shown[:128]}…"
    hint = did_you_mean(shown, [card.name for card in tools.query()])
    return Result.failure(Outcome.NOT_FOUND, f"unknown tool `{shown}`" + (f"; {hint}" if hint else ""))


class TaskEnd(NamedTuple):
    """How a task ends, or that it waits.

    Attributes:
        status: Its state, and what the peer is told.
        artifact: Its result; None for none.
    """

    status: TaskStatus
    artifact: Artifact | None = None


_STATES: Final[Mapping[Outcome, TaskState]] = {
    Outcome.INVALID_ARGUMENTS: TaskState.TASK_STATE_REJECTED,
    Outcome.NOT_FOUND: TaskState.TASK_STATE_REJECTED,
    Outcome.DENIED: TaskState.TASK_STATE_REJECTED,
    Outcome.CANCELLED: TaskState.TASK_STATE_CANCELED,
}
"""Outcome -> state of a call that was not `ok`, unless the state is FAILED."""

_CODES: Final[Mapping[Outcome, str]] = {
    Outcome.INVALID_ARGUMENTS: "invalid_arguments",
    Outcome.NOT_FOUND: "tool_not_found",
}
"""The codes that have a meaning of their own in the extension."""


def end_of_task(name: str, result: Result) -> TaskEnd:
    """How the task of a call ends.

    Args:
        name: Name of the tool.
        result: The result of the call.
    """
    if result.outcome is Outcome.OK:
        artifact = artifact_of_result(result, RESULT_ID, {})
        return TaskEnd(TaskStatus(state=TaskState.TASK_STATE_COMPLETED), artifact)
    failure = result.error
    # The code of an exception is the name of its class. Codes of tools and of toolcrib are not in camel case.
    if failure is not None and failure.code[:1].isupper() and not failure.code.isupper():
        result = Result.failure(result.outcome, f"{failure.code}: {result.message}", code=RAISED)
    told = explain_failure(name, result)
    text = result.message if result.outcome is Outcome.NOT_FOUND else told.text
    code = _CODES.get(result.outcome, str(told.facts["code"]))
    error: dict[str, JSON] = {"code": code, "message": text, "details": told.facts}
    state = _STATES.get(result.outcome, TaskState.TASK_STATE_FAILED)
    return TaskEnd(
        TaskStatus(state=state, message=agent_message([Part(text=text), data_part({"error": error})]))
    )


def agent_message(parts: list[Part], metadata: Mapping[str, Any] | None = None) -> Message:
    """A message to the peer."""
    return Message(message_id=str(uuid4()), role=Role.ROLE_AGENT, parts=parts, metadata=metadata)


def rejection(text: str, code: str) -> TaskEnd:
    """The end of a task whose message asks for no call."""
    error: dict[str, JSON] = {"code": code, "message": text}
    message = agent_message([Part(text=text), data_part({"error": error})])
    return TaskEnd(TaskStatus(state=TaskState.TASK_STATE_REJECTED, message=message))


def form_in_message(message: Message) -> dict[str, Any]:
    """The form that a peer has filled in: a data part, or the decision as a text."""
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            said = to_json(part.data)
            if isinstance(said, dict):
                return said
    text = text_of_message(message).strip()
    decision, _, reason = text.partition(":")
    word = decision.strip().lower()
    return {"decision": _DECISIONS.get(word, word), "reason": reason.strip()}


_DECISIONS: Final[Mapping[str, str]] = {
    "approved": "approve",
    "no": "reject",
    "rejected": "reject",
    "yes": "approve",
}
"""Other words for the decisions of the form."""
