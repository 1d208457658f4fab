"""Live calls over connections that die or are closed under them, and token servers that fail."""

from __future__ import annotations

import asyncio

import pytest

from http_servers import answering, answering_by, raw_answer, serving
from live_tools import API, calling, live_runtime, live_tool
from toolcrib import Outcome


def dying_once(seen):
    """Hangs up on the second request."""

    async def answer(_reader, writer, head):
        seen.append(head.method)
        if len(seen) == 2:
            writer.close()
        else:
            writer.write(raw_answer(200, (), b"ok"))

    return answer


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_a_tool_says_counts_for_a_dead_connection_and_not_its_method(method):
    seen = []
    text = live_tool(
        f"url: {API}/x\nmethod: {method}", more="annotations: {read_only: false, idempotent: false}"
    )
    async with calling(text, dying_once(seen)) as (runtime, _server):
        await runtime.call("tool")
        result = await runtime.call("tool")
    assert result.outcome is Outcome.UNKNOWN_OUTCOME
    assert seen == [method] * 2


async def test_an_attempt_after_the_runtime_was_closed_opens_no_connection():
    asked, closed = asyncio.Event(), asyncio.Event()

    async def answer(_reader, writer, _head):
        asked.set()
        await closed.wait()
        writer.write(raw_answer(503))

    more = "limits: {backoff: {first: 1ms, longest: 1ms}}"
    async with serving(answer) as server:
        runtime = live_runtime(live_tool(f"url: {API}/x", more=more), server)
        under_way = asyncio.create_task(runtime.call("tool"))
        await asked.wait()
        # Only the modes: the runtime would cancel the call first.
        await runtime._engine.executors.aclose()
        closed.set()
        result = await under_way
        assert result.outcome is Outcome.TRANSPORT_ERROR
        assert result.message == "`tool`: the runtime is closed"
        await server.all_closed()
        assert server.accepted == 1


async def test_a_token_server_that_fails_does_not_open_the_circuit_of_the_api():
    auth = (
        f"auth: {{type: oauth2, flow: client_credentials, token_url: '{API}/token', client_id: a,"
        " client_secret: b}"
    )
    more = "limits: {attempts: 1, breaker: {failures: 2}}"
    handler = answering_by(lambda _head: answering(503))
    async with calling(live_tool(f"url: {API}/x\n{auth}", more=more), handler) as (
        runtime,
        _server,
    ):
        codes = [(await runtime.call("tool")).error.code for _ in range(4)]
    assert codes == ["auth_failed"] * 4
