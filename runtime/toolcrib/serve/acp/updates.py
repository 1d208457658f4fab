"""The updates of a session: events of a conversation in the words of the protocol.

A call is `tool_call` first, with the status `pending`. It becomes `in_progress`, and ends `completed` or `failed`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from acp.schema import ToolCallStart

from toolcrib.core.model import JSON, Content, Descriptor
from toolcrib.core.subschemas import plan_argument
from toolcrib.core.text import decode_json
from toolcrib.provider import Event, Stop

STATUS: Final[Mapping[str, str]] = {
    "pending": "pending",
    "waiting": "pending",
    "running": "in_progress",
    "completed": "completed",
    "failed": "failed",
}
"""Status of a call in the timeline -> status in the protocol, which has none for cancelled calls."""

STOPS: Final[Mapping[Stop, str]] = {
    # A stop reason without an entry below is a limit of the policy.
    **dict.fromkeys(Stop, "max_turn_requests"),
    Stop.ANSWERED: "end_turn",
    Stop.STOP_ON_TOOL: "end_turn",
    Stop.LENGTH: "max_tokens",
    Stop.REFUSED: "refusal",
    Stop.CANCELLED: "cancelled",
}
"""Reason why a turn ended -> stop reason in the protocol."""

META: Final = "toolcrib"
"""Key of what toolcrib adds in `_meta`."""

KINDS: Final = frozenset(get_args(get_args(ToolCallStart.model_fields["kind"].annotation)[0]))
"""The kinds of calls in the protocol."""


def text_block(text: str) -> dict[str, Any]:
    """A content block with a text."""
    return {"type": "text", "text": text}


def kind_of(tool: Descriptor | None) -> str:
    """The kind of a tool's calls: its category if that is a kind of the protocol, else what its annotations say."""
    if tool is None:
        return "other"
    if tool.category in KINDS:
        return tool.category
    says = tool.annotations
    if "process" in tool.capabilities:
        return "execute"
    if says.read_only:
        return "fetch" if says.open_world else "read"
    # The marks of arguments with paths, as access reads them.
    return "edit" if any(mark == "write" for _name, mark in _path_arguments(tool)) else "other"


def locations_of(
    tool: Descriptor | None, arguments: Mapping[str, JSON] | None, cwd: str
) -> list[dict[str, Any]]:
    """The files that a call uses: its arguments marked `x-path`.

    Args:
        tool: The tool.
        arguments: Its arguments.
        cwd: Folder against which relative paths resolve; the protocol wants absolute ones.
    """
    if tool is None or not arguments:
        return []
    paths = [arguments.get(name) for name, _mark in _path_arguments(tool)]
    found: list[dict[str, Any]] = [
        {"path": os.path.join(cwd, path)} for path in paths if isinstance(path, str) and path
    ]
    line = arguments.get("offset", arguments.get("line"))
    if len(found) == 1 and type(line) is int and line > 0:
        found[0]["line"] = line
    return found


def _path_arguments(tool: Descriptor) -> list[tuple[str, object]]:
    schema = tool.input_schema
    properties: Any = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    return [
        (name, said["x-path"])
        for name, said in properties.items()
        if isinstance(said, dict) and "x-path" in said
    ]


class UpdateWriter:
    """Turns the events of a conversation into updates.

    Args:
        tool_of: Returns a tool by its name; None if it is unknown.
        cwd: Working folder of the session.
    """

    def __init__(self, tool_of: Callable[[str], Descriptor | None], cwd: str) -> None:
        self._tool_of = tool_of
        self._cwd = cwd
        self._tools: dict[str, str] = {}
        self._contents: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._plans: dict[str, Any] = {}

    def show(self, call: str, content: Sequence[Mapping[str, Any]]) -> None:
        """Set what the end of a call shows in place of the text of its result: a diff, a terminal.

        Args:
            call: ID of the call.
            content: Content of the call in the protocol.
        """
        self._contents[call] = content

    def of(self, event: Event) -> dict[str, Any] | None:
        """The update of an event; None if the protocol has none."""
        if event.type in {"text", "reasoning"}:
            kind = "agent_message_chunk" if event.type == "text" else "agent_thought_chunk"
            return {"sessionUpdate": kind, "content": text_block(event.text)}
        if event.type == "call":
            return self._started(event)
        if event.type == "call_updated":
            return self._changed(event)
        return None

    def plan(self, event: Event) -> dict[str, Any] | None:
        """The plan that a completed call has set; None for other events. Ask for it after the update of the event."""
        if event.status not in {"completed", "failed"}:
            return None
        entries = self._plans.pop(event.id, None)
        if entries is None or event.status == "failed":
            return None
        told = [
            {
                "content": each["content"],
                "priority": each.get("priority", "medium"),
                "status": each.get("status", "pending"),
            }
            for each in entries
        ]
        return {"sessionUpdate": "plan", "entries": told}

    def _started(self, event: Event) -> dict[str, Any]:
        self._tools[event.id] = event.tool
        facts = self._facts(event)
        facts.setdefault("title", "Tool call")
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": event.id,
            "kind": "other",
            "status": "pending",
            **facts,
        }

    def _changed(self, event: Event) -> dict[str, Any] | None:
        if event.tool:
            self._tools[event.id] = event.tool
        told = self._facts(event)
        if event.status and event.status != "waiting":
            told["status"] = STATUS[event.status]
        if event.status in {"completed", "failed"}:
            text = [{"type": "content", "content": text_block(event.text)}] if event.text else []
            shown = [*self._contents.pop(event.id, ())]
            # The reason of a failure is not in a terminal or a diff.
            told["content"] = [*shown, *(text if event.status == "failed" or not shown else [])]
            told["rawOutput"] = _raw_output(event)
        elif event.text and event.status != "waiting":
            told["content"] = [{"type": "content", "content": text_block(event.text)}]
        if not told:
            return None
        return {"sessionUpdate": "tool_call_update", "toolCallId": event.id, **told}

    def _facts(self, event: Event) -> dict[str, Any]:
        """What the tool and the arguments of an event say, as far as it has them."""
        name = self._tools.get(event.id, "")
        tool = self._tool_of(name) if name else None
        facts: dict[str, Any] = {}
        if event.tool:
            facts["title"] = (tool.title if tool is not None else "") or name
            facts["kind"] = kind_of(tool)
            facts["_meta"] = {META: {"tool": name}}
        if event.arguments is not None:
            facts["rawInput"] = event.arguments
            locations = locations_of(tool, event.arguments, self._cwd)
            if locations:
                facts["locations"] = locations
            plan = plan_argument(tool.input_schema) if tool is not None else ""
            if plan in event.arguments:
                self._plans[event.id] = event.arguments[plan]
        return facts


def _raw_output(event: Event) -> JSON:
    if event.status == "failed":
        return {"outcome": event.outcome, "message": event.text}
    try:
        return decode_json(event.text)
    except ValueError:  # a text, or a result that was too long to show in full
        return event.text


def prompt_parts(blocks: Sequence[Any]) -> list[str | Content]:
    """The parts of a message of the user, from the content blocks of a prompt.

    Raises:
        ValueError: A block is of a kind that the agent does not know.
    """
    return [_prompt_part(block) for block in blocks]


def _prompt_part(block: Any) -> str | Content:
    if block.type == "text":
        return str(block.text)
    if block.type == "image":
        return Content("image", data=block.data, mime_type=block.mime_type, uri=block.uri)
    if block.type == "audio":
        return Content("audio", data=block.data, mime_type=block.mime_type)
    if block.type == "resource_link":
        return f"[{block.title or block.name}]({block.uri})"
    if block.type != "resource":  # a later revision of the SDK may have more
        raise ValueError(f"the agent accepts no {block.type}")
    resource = block.resource
    if hasattr(resource, "text"):
        # As text: few providers accept files in messages of the user, and the model needs the address as well.
        return f"Contents of {resource.uri}:\n{resource.text}"
    return Content("resource", data=resource.blob, mime_type=resource.mime_type, uri=resource.uri)
