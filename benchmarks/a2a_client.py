"""Calls of an agent's tool by toolcrib and by the SDK's client, to the same agent; and starts with many agents.

python benchmarks/a2a_client.py [--rounds 60]
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.helpers import new_data_part
from a2a.types import Message, Role, SendMessageRequest
from a2a_server import ARGUMENTS, EXTENSION, sdk_version
from google.protobuf.struct_pb2 import Struct
from peers import program
from rounds import Round, Row, interleaved, print_rows

from toolcrib import Runtime

ROUNDS = 40
GOAL = 1.3
START_GOAL = 1.2
CALLS = 10
CALLERS = 50
AGENTS = 50
DEAD = "http://127.0.0.1:1"

Call = Callable[[], Awaitable[None]]


def project(folder: str, cards: list[str]) -> None:
    """A project that imports the tools of agents `a0`, `a1` and so on."""
    agents = {f"a{number}": {"card": card, "import": True} for number, card in enumerate(cards)}
    limits = {"concurrency": 2 * CALLERS, "origin": {"concurrency": 2 * CALLERS}}
    text = {"project": "bench", "sources": [], "limits": limits, "journal": "off", "agents": agents}
    (Path(folder) / "toolcrib.yaml").write_text(json.dumps(text), encoding="utf-8")


def sdk_call(url: str, http: httpx.AsyncClient) -> Call:
    """The same call with the SDK's client."""
    card = parse_agent_card(httpx.get(f"{url}/.well-known/agent-card.json").json())
    client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
    context = ClientCallContext(service_parameters={"A2A-Extensions": EXTENSION})

    async def call() -> None:
        metadata = Struct()
        metadata.update({"_tool_call": {"name": "add", "params": ARGUMENTS}})
        message = Message(
            message_id=str(uuid.uuid4()),
            role=Role.ROLE_USER,
            parts=[new_data_part(ARGUMENTS, media_type="application/json")],
            metadata=metadata,
            extensions=[EXTENSION],
        )
        async for _event in client.send_message(
            SendMessageRequest(message=message, metadata=metadata), context=context
        ):
            pass

    return call


def our_call(runtime: Runtime) -> Call:
    """A call of the imported tool."""

    async def call() -> None:
        result = await runtime.call("a0__add", ARGUMENTS)
        assert result.value == {"sum": 5}, result

    return call


async def timed(call: Call, callers: int) -> float:
    """Seconds of a round."""
    began = time.perf_counter()
    if callers == 1:
        for _ in range(CALLS):
            await call()
    else:
        await asyncio.gather(*(call() for _ in range(callers)))
    return time.perf_counter() - began


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    sdk_version(versions)
    with program("a2a_agent.py") as url, asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        project(folder, [url])
        runtime = Runtime.open(folder, index=False)
        runner.run(runtime.__aenter__())
        http = httpx.AsyncClient(timeout=None)
        contenders = {"ours": our_call(runtime), "sdk": sdk_call(url, http)}
        for callers in (1, CALLERS):
            times = interleaved(
                {name: _round(runner, call, callers) for name, call in contenders.items()}, rounds
            )
            many = "" if callers == 1 else f", {callers} concurrent callers"
            measure = f"A2A tool call as a client, JSON-RPC with a stream{many}"
            yield Row(measure, "SDK, Client.send_message", times["ours"], times["sdk"], GOAL)
        runner.run(http.aclose())
        runner.run(runtime.aclose())
        logging.getLogger("toolcrib").setLevel(logging.CRITICAL)  # the dead agent is reported at each start
        with tempfile.TemporaryDirectory() as alive, tempfile.TemporaryDirectory() as dead:
            project(alive, [url] * AGENTS)
            project(dead, [url] * (AGENTS - 1) + [DEAD])
            starts: dict[str, Round] = {
                name: _start(runner, place) for name, place in (("dead", dead), ("alive", alive))
            }
            times = interleaved(starts, rounds)
            measure = f"start with {AGENTS} A2A agents, one of them dead"
            yield Row(measure, "none dead", times["dead"], times["alive"], START_GOAL)


def _round(runner: asyncio.Runner, call: Call, callers: int) -> Round:
    return lambda: runner.run(timed(call, callers))


def _start(runner: asyncio.Runner, folder: str) -> Round:
    async def start() -> float:
        began = time.perf_counter()
        runtime: Any = Runtime.open(folder, index=False)
        async with runtime:
            return time.perf_counter() - began

    return lambda: runner.run(start())


if __name__ == "__main__":
    print_rows(lambda rounds: rows(rounds=rounds), __doc__)
