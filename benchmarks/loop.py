"""The loop around a model: a turn of two requests and one mocked call, and the same requests alone.

The model is a list in memory, or OpenAI's chat completions over loopback, from a server in a process of its own that
answers at once or after the time that a fast model takes.

    python benchmarks/loop.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, cast

from calls import ARGUMENTS, runtime_of, weather
from rounds import Round, Row, interleaved, line

from toolcrib import ProviderMiddleware, Runtime
from toolcrib.provider import CallDelta, Delta, Finish, Provider, Request, Stop, TextDelta
from toolcrib.provider.models.installed_providers import open_provider
from toolcrib.servers.environment import NetworkEnvironment

ROUNDS = 40

LATENCY = 0.02
"""Seconds that a fast model takes for its first words."""

IN_MEMORY, AT_ONCE, LATER = 200, 30, 5
"""Turns in one round."""

SAID = "It is 18.5 degrees in Lisbon."


class Listed:
    """A model in memory: it asks for the weather, and says it once it was told."""

    async def respond(self, request: Request) -> AsyncIterator[Delta]:
        if request.messages[-1].role == "tool":
            yield TextDelta(SAID)
            yield Finish()
        else:
            yield CallDelta(0, "call_1", "weather", json.dumps(ARGUMENTS))
            yield Finish("tool_calls")


class Overheard:
    """Another model, whose requests are kept."""

    def __init__(self, model: Provider) -> None:
        self.requests: list[Request] = []
        self.dialect = getattr(model, "dialect", "plain")
        self._model = model

    def respond(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        return self._model.respond(request)


async def bare(model: Provider, requests: Sequence[Request]) -> None:
    """The requests of a turn, and nothing else."""
    for request in requests:
        async for _delta in model.respond(request):
            pass


async def by_hand(model: Provider, requests: Sequence[Request], tools: Runtime) -> None:
    """The same with the call between them, as a person writes it who trusts the model."""
    asked, told = requests
    calls = [delta async for delta in model.respond(asked) if isinstance(delta, CallDelta)]
    for call in calls:
        result = await tools.call(call.name, json.loads(cast(str, call.arguments)))
        json.dumps(result.value)
    async for _delta in model.respond(told):
        pass


async def turn(middleware: ProviderMiddleware) -> None:
    """The same by the loop."""
    conversation = await middleware.run("How warm is it in Lisbon?")
    assert conversation.stop is Stop.ANSWERED, conversation.detail


def a_round(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[None]], count: int) -> Round:
    """A round of consecutive turns; its time is that of one turn."""

    async def all_of_them() -> None:
        for _ in range(count):
            await work()

    def round_() -> float:
        started = perf_counter()
        loop.run_until_complete(all_of_them())
        return (perf_counter() - started) / count

    return round_


def measured(
    loop: asyncio.AbstractEventLoop,
    model: Provider,
    tools: Runtime,
    count: int,
    rounds: int,
    *,
    by_hand_count: int | None = None,
) -> dict[str, list[float]]:
    """The turn by the loop, by a hand-written loop, and its two requests alone.

    Args:
        loop: The event loop.
        model: The model.
        tools: The tools.
        count: Turns in one round.
        rounds: Number of rounds.
        by_hand_count: Turns in one round of the hand-written loop; None for `count`.
    """
    overheard = Overheard(model)
    loop.run_until_complete(turn(ProviderMiddleware(overheard, tools)))
    requests = overheard.requests
    assert len(requests) == 2
    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "loop": partial(turn, ProviderMiddleware(model, tools)),
        "by hand": partial(by_hand, model, requests, tools),
        "bare": partial(bare, model, requests),
    }
    counts = {"by hand": by_hand_count or count}
    return interleaved(
        {name: a_round(loop, way, counts.get(name, count)) for name, way in ways.items()}, rounds
    )


def rows(rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file."""
    loop = asyncio.new_event_loop()
    try:
        # Rounds of about the same time: a shorter one would be affected less by other load.
        times = measured(
            loop, Listed(), runtime_of(weather()), IN_MEMORY, rounds, by_hand_count=8 * IN_MEMORY
        )
        title = "model turn (two requests, one mocked call)"
        yield Row(f"{title}, model in memory", "hand-written loop", times["loop"], times["by hand"], 8.0)
        with serving() as port:
            for delay, count, what in (
                (0.0, AT_ONCE, "no latency"),
                (LATENCY, LATER, f"{LATENCY * 1000:.0f} ms latency"),
            ):
                tools, world = runtime_of(weather()), NetworkEnvironment.of([f"127.0.0.1:{port}"], {})
                address = f"http://127.0.0.1:{port}/{delay}/v1"
                model = open_provider("openai", model="m", base_url=address, api_key="k", world=world)
                times = measured(loop, model, tools, count, rounds)
                served = f"{title}, model on loopback, {what}"
                goal = 1.1 if delay else None
                yield Row(served, "the two requests alone", times["loop"], times["bare"], goal)
                yield Row(served, "hand-written loop", times["loop"], times["by hand"], None)
                loop.run_until_complete(cast(Any, model).aclose())
    finally:
        loop.close()


# The server.


def _answer(message: dict[str, Any], reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 80, "completion_tokens": 20, "total_tokens": 100}
    body = json.dumps(
        {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    )
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


_ASKS = _answer(
    {
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)},
            }
        ],
    },
    "tool_calls",
)
_SAYS = _answer({"content": SAID}, "stop")


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: `POST /<seconds>/v1/...`, answered after so many seconds."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line_.split(b":")[1])
                for line_ in head.lower().split(b"\r\n")
                if line_.startswith(b"content-length")
            )
            body = await reader.readexactly(length)
            delay = float(head.split(b"/", 2)[1])
            if delay:
                await asyncio.sleep(delay)
            writer.write(_SAYS if b'"role":"tool"' in body.replace(b'": "', b'":"') else _ASKS)
    except asyncio.IncompleteReadError:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_converse, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def serving() -> Iterator[int]:
    """A running server: its port."""
    arguments = [sys.executable, __file__, "serve"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(_serve())
    else:
        for row in rows():
            print(line(row), flush=True)
