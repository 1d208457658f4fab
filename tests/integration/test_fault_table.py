"""Each fault x each mode x whether the tool may be tried again: how the call ends, and how often the tool acted.

Time is virtual. While a request is on its way it is real, so whatever waits for minutes here takes none.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from faulty import ORDER, REPEATABLE, acted, faulty, ordered, scenario_text
from http_servers import answering_by, raw_answer
from in_memory import MOCKS, loaded
from live_tools import API, calling, live_tool
from mcp_calling import Calling, http_server, over_http
from sampling import sample
from toolcrib import RealClock, Runtime, VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.engine.session import Session


class Way(NamedTuple):
    """How a call is to end.

    Attributes:
        outcome: Its outcome.
        code: The code of its error; empty for none.
        attempts: How often the runtime tried.
        acts: How often the tool acted.
    """

    outcome: str
    code: str
    attempts: int
    acts: int


OK = Way("ok", "", 1, 1)
TIMEOUT = Way("timeout", "timeout", 1, 0)
REFUSED = Way("invalid_result", "invalid_result", 1, 1)

TABLE: dict[str, tuple[str, Way, Way]] = {
    "timeout": ("timeout", TIMEOUT, TIMEOUT),
    "hang": ("hang", TIMEOUT, TIMEOUT),
    "disconnect": ("disconnect", Way("ok", "", 2, 1), Way("transport_error", "disconnected", 1, 0)),
    "lost_ack": ("lost_ack", Way("ok", "", 2, 2), Way("unknown_outcome", "reply_lost", 1, 1)),
    "duplicate_delivery": ("duplicate_delivery", Way("ok", "", 1, 2), Way("ok", "", 1, 2)),
    "not_json": (
        "not_json",
        Way("invalid_result", "not_json", 1, 1),
        Way("invalid_result", "not_json", 1, 1),
    ),
    "truncated": ("truncated", Way("ok", "", 2, 2), Way("unknown_outcome", "truncated", 1, 1)),
    "empty": ("empty", REFUSED, REFUSED),
    "violate_schema": ("violate_schema", REFUSED, REFUSED),
    "violate_schema by name": ("{violate_schema: wrong_type}", REFUSED, REFUSED),
    "inject_text": ("{inject_text: {at: AT, text: PAY ME}}", OK, OK),
    "error": (
        "{error: {code: closed, message: Come back later}}",
        Way("tool_error", "closed", 1, 0),
        Way("tool_error", "closed", 1, 0),
    ),
    "error that may pass": (
        "{error: {code: closed, retryable: true}}",
        Way("ok", "", 2, 1),
        Way("tool_error", "closed", 1, 0),
    ),
    "slow": ("{slow: 3s}", OK, OK),
}
"""Fault -> as it is written, and how the call ends of a tool that may be tried again, and of one that may not."""


@asynccontextmanager
async def mock(faults: str, *, repeatable: bool) -> AsyncIterator[tuple[Session, Callable[[], int]]]:
    text = ordered(more=REPEATABLE if repeatable else "")
    session = made(loaded_runtime(loaded(text), executors=MOCKS), faults)
    yield session, lambda: acted(session)


@asynccontextmanager
async def live(faults: str, *, repeatable: bool) -> AsyncIterator[tuple[Session, Callable[[], int]]]:
    block = f"url: {API}/orders" if repeatable else f"method: POST\nurl: {API}/orders"
    served = iter(range(1, 99))

    def answer(_head):
        order = json.dumps({"id": "A", "n": next(served)}).encode()
        return raw_answer(200, {"Content-Type": "application/json"}, order)

    text = live_tool(block, output=ORDER, more="timeout: 10s")
    async with calling(text, answering_by(answer)) as (runtime, server):
        yield made(runtime, faults), lambda: len(server.requests)


@pytest.fixture(scope="module")
def mcp_url():
    with over_http() as url:
        yield url


@asynccontextmanager
async def mcp(url: str, faults: str, *, repeatable: bool) -> AsyncIterator[tuple[Session, Callable[[], int]]]:
    """The tool `slow` of the server, which counts how often it was begun."""
    document = {
        "name": "slow",
        "timeout": "10s",
        "output_schema": {"type": "string", "minLength": 1},
        "annotations": {"idempotent": repeatable},
        "input_schema": {"type": "object", "properties": {"steps": {"default": 0}}},
    }
    async with Calling(http_server(url), document, "cancelled") as calling_it:
        session = made(calling_it.runtime, faults.replace("tool: tool", "tool: slow"))
        before = json.loads((await session.call("cancelled")).value)["slow"]
        yield session, lambda: before


def made(runtime: Runtime, faults: str) -> Session:
    (scenario,) = loaded(scenario_text(faults)).scenarios
    return runtime.session(registry=faulty(runtime, scenario), clock=VirtualClock())


def ended(result) -> tuple[str, str, int]:
    return result.outcome.value, "" if result.error is None else result.error.code, result.usage.attempts


@pytest.mark.parametrize("fault", TABLE)
@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("mode", [mock, live])
async def test_a_call_ends_as_the_table_says(mode, repeatable, fault):
    written, may_be_repeated, once = TABLE[fault]
    way = may_be_repeated if repeatable else once
    faults = f"- {{name: f, tool: tool, inject: {written.replace('AT', '/id')}, when: {{first: 1}}}}"
    async with mode(faults, repeatable=repeatable) as (session, acts):
        result = await session.call("tool")
        assert (*ended(result), acts()) == way
        if way.attempts == 1:
            assert result.meta["fault"]["name"] == "f"
        if result.error is not None:
            unsure = result.outcome.value == "unknown_outcome"
            assert result.error.details.get("may_have_acted", False) is unsure
        # What comes after it is as it was.
        assert ended(await session.call("tool")) == ("ok", "", 1)
        assert acts() == way.acts + 1


@pytest.mark.parametrize("fault", sample(TABLE, one_in=2))
@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_call_of_a_servers_tool_ends_as_the_table_says(mcp_url, repeatable, fault):
    written, may_be_repeated, once = TABLE[fault]
    way = may_be_repeated if repeatable else once
    faults = f"- {{name: f, tool: tool, inject: {written.replace('AT', repr(''))}, when: {{first: 1}}}}"
    async with mcp(mcp_url, faults, repeatable=repeatable) as (session, before):
        result = await session.call("slow")
        now = json.loads((await session.call("cancelled")).value)["slow"]
        assert (*ended(result), now - before()) == way


@pytest.mark.parametrize("mode", [mock, live])
async def test_what_took_long_took_it_in_virtual_time(mode):
    for written, least in (("timeout", 10), ("hang", 10), ("{slow: 3s}", 3)):
        async with mode(f"- {{tool: tool, inject: {written}}}", repeatable=False) as (session, _acts):
            assert least <= (await session.call("tool")).usage.duration < least + 5


@pytest.mark.parametrize("mode", [mock, live])
async def test_a_limit_is_kept_in_every_mode(mode):
    faults = "- {tool: tool, inject: {rate_limit: {limit: 2, per: 5m}}}"
    async with mode(faults, repeatable=False) as (session, acts):
        results = [await session.call("tool") for _ in range(3)]
        assert [ended(result)[:2] for result in results] == [
            ("ok", ""),
            ("ok", ""),
            ("tool_error", "rate_limited"),
        ]
        details = results[2].error.details
        assert (details["status"], results[2].error.retryable, acts()) == (429, True, 2)
        assert 290 < details["retry_after"] <= 300
        await session.clock.advance(300)
        assert ended(await session.call("tool")) == ("ok", "", 1)


@pytest.mark.parametrize("mode", [mock, live])
async def test_what_may_be_tried_again_waits_until_a_limit_lets_it_through(mode):
    faults = "- {tool: tool, inject: {rate_limit: {limit: 1, per: 4s}}}"
    async with mode(faults, repeatable=True) as (session, acts):
        first, second = [await session.call("tool") for _ in range(2)]
        assert (ended(first), ended(second), acts()) == (("ok", "", 1), ("ok", "", 2), 2)
        assert 3 < second.usage.duration < 10


@pytest.mark.parametrize("mode", [mock, live])
async def test_a_stale_answer_is_the_one_of_before(mode):
    async with mode("- {tool: tool, inject: stale, when: {call: 3}}", repeatable=False) as (session, acts):
        results = [await session.call("tool") for _ in range(4)]
        assert [result.value["n"] for result in results] == [1, 2, 2, 3]
        assert (results[2].meta["fault"]["kind"], acts()) == ("stale", 3)


@pytest.mark.parametrize("mode", [mock, live])
async def test_a_planted_text_is_in_the_answer(mode):
    faults = "- {tool: tool, inject: {inject_text: {at: /id, text: PAY ME}}}"
    async with mode(faults, repeatable=False) as (session, _acts):
        assert (await session.call("tool")).value == {"id": "A PAY ME", "n": 1}


async def test_a_real_answer_that_takes_its_time_is_in_time_on_virtual_time():
    """While a request is on its way virtual time goes on as real time does: it never jumps to the deadline.

    The server answers when it has seen that time goes on; a slow machine has ten minutes for it.
    """
    clock, enough = VirtualClock(), 0.05

    async def late(_reader, writer, _head):
        arrived = clock.monotonic()
        while clock.monotonic() - arrived < enough:
            await RealClock().sleep(enough / 10)
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, b"{}"))

    text = live_tool(f"url: {API}/late", more="timeout: 10m")
    async with calling(text, late, clock=VirtualClock()) as (runtime, _server):
        result = await runtime.session(clock=clock).call("tool")
        assert ended(result) == ("ok", "", 1)
        assert enough <= result.usage.duration < 600
