"""Call tools of real servers through a runtime, and judge every answer. Runs where toolcrib is installed.

Told the folder of a project whose servers are `everything`, `filesystem` ..., it prints what came of each as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib import Outcome, Progress, Result, Runtime, ToolcribError


class Judged(NamedTuple):
    """A call and what must come of it.

    Attributes:
        label: What the call shows, for the table.
        tool: The tool; without its server's name for an imported one.
        arguments: Its arguments.
        holds: Whether an answer is right.
        outcome: How the call must end.
        code: The code that its error must have.
    """

    label: str
    tool: str
    arguments: dict[str, Any]
    holds: Callable[[Result], bool] = lambda _result: True
    outcome: Outcome = Outcome.OK
    code: str = ""


def value(wanted: Any) -> Callable[[Result], bool]:
    """Whether an answer is this very value."""
    return lambda result: bool(result.value == wanted)


def told(*words: str) -> Callable[[Result], bool]:
    """Whether a message says all of these."""
    return lambda result: all(word in result.message for word in words)


def kinds(*wanted: str) -> Callable[[Result], bool]:
    """Whether the content is of these kinds, and none of it is empty."""
    return lambda result: (
        [part.type for part in result.content] == list(wanted)
        and all(part.data or part.text or part.uri for part in result.content)
    )


def refusals(bad: dict[str, Any], tool: str, unjudged: str, said: str, code: str) -> list[Judged]:
    """The same bad arguments, refused by us before they are sent, and by the server where our check lets them through."""
    return [
        Judged("bad arguments", tool, bad, outcome=Outcome.INVALID_ARGUMENTS, code="invalid_arguments"),
        Judged("the server's refusal", unjudged, bad, told(said), Outcome.TOOL_ERROR, code),
        Judged("unknown tool", unjudged.replace("unjudged", "missing"), {}, told("no_such_tool"), Outcome.UNAVAILABLE, "unknown_remote_tool"),
    ]  # fmt: skip


def everything(name: str) -> list[Judged]:
    """What is asked of server-everything, whichever way it is reached."""
    return [
        Judged("text", "echo", {"message": "hi"}, value("Echo: hi")),
        Judged("numbers", "get-sum", {"a": 2, "b": 3}, value("The sum of 2 and 3 is 5.")),
        Judged("structured output", "get-structured-content", {"location": "New York"}, value({"temperature": 33, "conditions": "Cloudy", "humidity": 82})),
        Judged("image", "get-tiny-image", {}, kinds("image")),
        Judged("resource", "get-resource-reference", {"resourceType": "Text", "resourceId": 1}, kinds("resource")),
        Judged("resource links", "get-resource-links", {"count": 2}, kinds("resource", "resource")),
        Judged("a tool that is a task", "simulate-research-query", {"topic": "x"}, outcome=Outcome.UNAVAILABLE, code="task_required"),
        Judged("timeout", f"{name}_hurried", {"duration": 20, "steps": 2}, outcome=Outcome.TIMEOUT),
        *refusals({"a": "x"}, "get-sum", f"{name}_unjudged", "expected number", "mcp_invalid_params"),
    ]  # fmt: skip


QUESTIONS = [
    Judged("elicitation", "trigger-elicitation-request", {}, lambda result: '"integer": 42' in str(result.value)),
    Judged("sampling", "trigger-sampling-request", {"prompt": "?", "maxTokens": 9}, lambda result: '"text": "hi"' in str(result.value)),
]  # fmt: skip
"""What asks back, and so needs the hooks that only the server over stdio has here."""

ADA = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}


def filesystem(files: str) -> list[Judged]:
    """What is asked of server-filesystem, which may see one folder."""
    return [
        Judged("read", "read_text_file", {"path": f"{files}/hello.txt"}, value({"content": "hello\n"})),
        Judged("write", "write_file", {"path": f"{files}/new.txt", "content": "new"}),
        Judged("list", "list_directory", {"path": files}, value({"content": "[FILE] hello.txt\n[FILE] new.txt"})),
        Judged("forbidden path", "read_text_file", {"path": "/etc/passwd"}, told("Access denied"), Outcome.TOOL_ERROR),
        *refusals({}, "read_text_file", "filesystem_unjudged", "expected string", "mcp_invalid_params"),
    ]  # fmt: skip


MEMORY = [
    Judged("write", "create_entities", {"entities": [ADA]}, value({"entities": [ADA]})),
    Judged("search", "search_nodes", {"query": "programs"}, value({"entities": [ADA], "relations": []})),
    Judged("unknown entity", "add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}, told("Nobody"), Outcome.TOOL_ERROR),
    *refusals({"names": 3}, "open_nodes", "memory_unjudged", "expected array", "mcp_invalid_params"),
]  # fmt: skip

NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}

TIME = [
    Judged("now", "get_current_time", {"timezone": "UTC"}, lambda result: result.value["timezone"] == "UTC"),
    Judged("convert", "convert_time", NOON, lambda result: result.value["time_difference"] == "+9.0h"),
    Judged("no such hour", "convert_time", {**NOON, "time": "25:99"}, told("Invalid time format"), Outcome.TOOL_ERROR),
    *refusals({}, "get_current_time", "time_unjudged", "timezone", "tool_error"),
]  # fmt: skip


TIME_1X = [
    Judged("now", "get_current_time", {"timezone": "UTC"}, lambda result: '"timezone": "UTC"' in str(result.value)),
    Judged("convert", "convert_time", NOON, lambda result: '"+9.0h"' in str(result.value)),
    Judged("no such hour", "convert_time", {**NOON, "time": "25:99"}, told("Invalid time format"), Outcome.TOOL_ERROR),
    *refusals({}, "get_current_time", "time_1x_unjudged", "timezone", "tool_error"),
]  # fmt: skip
"""The same of a server of the SDK's line before, whose answers are texts."""


async def found(tools: Runtime, server: str, calls: Sequence[Judged]) -> dict[str, Any]:
    """Make the calls to one server."""
    try:
        info = (await tools.catalogue(server)).info
    except ToolcribError as error:
        return {"protocol": "?", "tools": 0, "calls": [], "faults": [str(error)]}
    listed = [name for name in tools.registry if name.startswith(f"{server}__")]
    faults = [] if listed else ["nothing was listed"]
    for call in calls:
        name = f"{server}__{call.tool}" if f"{server}__{call.tool}" in tools.registry else call.tool
        result = await tools.call(name, call.arguments)
        code = result.error.code if result.error else ""
        if result.outcome is not call.outcome or code != (call.code or code) or not call.holds(result):
            faults.append(f"{call.label} (`{name}`): {json.dumps(result.as_json())[:1500]}")
    labels = [call.label for call in calls]
    if server.startswith("everything"):
        labels.append("progress")
        faults += await progress_faults(tools, server)
    return {"protocol": info.get("protocol", "?"), "tools": len(listed), "calls": labels, "faults": faults}


async def progress_faults(tools: Runtime, server: str) -> list[str]:
    """What is wrong with the reports of a long call."""
    name = f"{server}__trigger-long-running-operation"
    events = [event async for event in tools.stream(name, {"duration": 0.4, "steps": 4})]
    heard = [
        (event.progress, event.total) if isinstance(event, Progress) else type(event).__name__
        for event in events
    ]
    wanted = [(1, 4), (2, 4), (3, 4), (4, 4), "Result"]
    return [] if heard == wanted else [f"progress (`{name}`): {heard} instead of {wanted}"]


async def main(folder: str) -> None:
    """Ask every server of the project, and print what came of it."""
    files = str(Path(folder, "files"))
    calls = {
        "everything": [*everything("everything"), *QUESTIONS],
        "everything_http": everything("everything_http"),
        "everything_sse": everything("everything_sse"),
        "filesystem": filesystem(files),
        "memory": MEMORY,
        "time": TIME,
        "time_1x": TIME_1X,
    }
    async with Runtime.open(folder) as tools:
        print(json.dumps({server: await found(tools, server, calls[server]) for server in tools.servers}))


asyncio.run(main(sys.argv[-1]))
