"""An ACP agent of toolcrib and the smallest one of the SDK: their starts, and one update of each.

python benchmarks/acp_agent.py [--rounds 40]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from acp import update_agent_message_text
from acp.agent.connection import AgentSideConnection
from peers import HERE
from rounds import Row, interleaved, print_rows

from toolcrib.provider import Timeline
from toolcrib.serve.acp.connection import Editor
from toolcrib.serve.acp.connection_observer import ConnectionObserver
from toolcrib.serve.acp.updates import UpdateWriter
from toolcrib.serve.http_common.stdio_pipes import StdioPipes

ROUNDS = 40
START_GOAL = 1.3
UPDATE_GOAL = 1.5
UPDATES = 500

SCENARIO = "scenario: hello\nagent:\n  turns:\n    - user: hello\n      script: [{say: hello}]\n"
TOOL = "name: echo\nmock: {result: hello}\n"


def smallest() -> list[str]:
    """The command of the smallest agent of the SDK."""
    return [sys.executable, str(HERE / "peers" / "acp_smallest.py")]


def ours(folder: str) -> list[str]:
    """The command of an agent with one tool, whose model is a script."""
    (Path(folder) / "hello.scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    (Path(folder) / "echo.tool.yaml").write_text(TOOL, encoding="utf-8")
    options = ["--provider", "scripted", "--script", "hello"]
    return [sys.executable, "-m", "toolcrib", "serve", "acp", folder, *options]


def started(command: Sequence[str], *, turn: bool) -> float:
    """Seconds from the start of an agent to its first answer, or to the end of its first turn."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as agent:
        _ask(agent, 0, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        if turn:
            session = _ask(agent, 1, "session/new", {"cwd": "/", "mcpServers": []})["sessionId"]
            prompt = [{"type": "text", "text": "hello"}]
            ended = _ask(agent, 2, "session/prompt", {"sessionId": session, "prompt": prompt})
            assert ended["stopReason"] == "end_turn", ended
        took = time.perf_counter() - began
        assert agent.stdin is not None
        agent.stdin.close()
    return took


def _ask(agent: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert agent.stdin is not None
    assert agent.stdout is not None
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    agent.stdin.write(json.dumps(request).encode() + b"\n")
    agent.stdin.flush()
    while line := agent.stdout.readline():
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            result: dict[str, Any] = message["result"]
            return result
    raise EOFError(method)


@asynccontextmanager
async def our_editor() -> AsyncIterator[tuple[Editor, Timeline, UpdateWriter]]:
    """What passes on an event: the timeline, the writer of updates, and the connection to an editor that reads nothing."""
    source, target = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)

    async def handle(_method: str, _params: Any, _notification: bool) -> None:
        return None

    # As served: with the watchdog, and without a recording.
    observer = ConnectionObserver(warn=lambda _finding: None)
    yield (
        Editor(handle, StdioPipes(source, target), observer),
        Timeline(),
        UpdateWriter(lambda _name: None, "/"),
    )


async def sdk_connection() -> AgentSideConnection:
    """The SDK's connection to a client that reads nothing."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    nobody: Any = object()  # an agent whose methods nobody calls
    return AgentSideConnection(lambda _connection: nobody, writer, asyncio.StreamReader())


async def our_updates(editor: Editor, timeline: Timeline, writer: UpdateWriter) -> float:
    """Seconds of a round: pieces of text become events, updates and lines."""
    began = time.perf_counter()
    for _ in range(UPDATES):
        for event in timeline.text("hello "):
            update = writer.of(event)
            assert update is not None
            await editor.update("session", update)
    return time.perf_counter() - began


async def sdk_updates(connection: AgentSideConnection) -> float:
    """Seconds of a round: the same lines from the SDK."""
    began = time.perf_counter()
    for _ in range(UPDATES):
        await connection.session_update("session", update_agent_message_text("hello "))
    return time.perf_counter() - began


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    if versions is not None:
        versions["agent-client-protocol"] = version("agent-client-protocol")
    with tempfile.TemporaryDirectory() as folder:
        commands = {"ours": ours(folder), "sdk": smallest()}
        for turn in (False, True):
            contenders = {
                name: lambda command=command, turn=turn: started(command, turn=turn)
                for name, command in commands.items()
            }
            times = interleaved(contenders, rounds)
            what = "end of the first turn" if turn else "first answer"
            goal = None if turn else START_GOAL
            yield Row(
                f"ACP agent, from its start to the {what}",
                "SDK, the smallest agent",
                times["ours"],
                times["sdk"],
                goal,
            )
    with asyncio.Runner() as runner:
        opened = our_editor()
        editor = runner.run(opened.__aenter__())
        connection = runner.run(sdk_connection())
        times = interleaved(
            {
                "ours": lambda: runner.run(our_updates(*editor)),
                "sdk": lambda: runner.run(sdk_updates(connection)),
            },
            rounds,
        )
        runner.run(connection.close())
        measure = f"{UPDATES} pieces of text, through the timeline to an ACP client"
        yield Row(measure, "SDK, session_update alone", times["ours"], times["sdk"], UPDATE_GOAL)


if __name__ == "__main__":
    print_rows(lambda rounds: rows(rounds=rounds), __doc__, ROUNDS)
