"""Attempts, places, breakers and kept answers of live tools, as servers see them."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from http_servers import answering, answering_by, answering_each, answering_json, raw_answer
from live_tools import API, calling, live_tool, open_files, others
from toolcrib import Outcome, VirtualClock

READ = f"url: {API}/things/{{{{ args.n }}}}"
WRITE = f'method: POST\nurl: {API}/things\nbody: {{json: {{n: "{{{{ args.n }}}}"}}}}'
N = "{type: object, properties: {n: {type: integer}}}"


async def test_a_busy_server_is_asked_again_when_it_says_so():
    busy = answering(429, {"Retry-After": "7"})
    server_does = answering_each(busy, answering_json(1))
    options = {"clock": VirtualClock()}
    async with calling(live_tool(READ, inputs=N), server_does, **options) as (tools, server):
        result = await tools.call("tool", {"n": 1})
        assert (result.outcome, result.usage.attempts) == (Outcome.OK, 2)
        assert 7 <= result.usage.duration < 10
        assert len(server.requests) == 2


async def test_a_busy_server_is_not_asked_twice_to_act():
    async with calling(live_tool(WRITE, inputs=N), answering(429, {"Retry-After": "1"})) as (
        tools,
        server,
    ):
        result = await tools.call("tool", {"n": 1})
        assert (result.outcome, result.usage.attempts) == (Outcome.TOOL_ERROR, 1)
        assert result.error.details["retry_after"] == 1
        assert len(server.requests) == 1


async def test_a_wait_beyond_the_deadline_is_told_instead():
    async with calling(live_tool(READ, inputs=N), answering(503, {"Retry-After": "120"})) as (
        tools,
        server,
    ):
        result = await tools.call("tool", {"n": 1})
        assert result.message == "HTTP 503 Service Unavailable; retry after 2m"
        assert (result.usage.attempts, len(server.requests)) == (1, 1)


def flaky(effects: Counter, draws: Random):
    """Of ten requests three get 503 before anything happens; one in twenty takes effect, and its answer breaks off."""

    async def hangs_up(_reader, writer, _head):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        writer.close()

    def choose(head):
        draw = draws.random()
        if draw < 0.3:
            return raw_answer(503)
        effects[head.json["n"] if head.body else head.path] += 1
        return hangs_up if draw < 0.35 else raw_answer(200, {"Content-Type": "application/json"}, b"1")

    return answering_by(choose)


async def test_a_flaky_server_is_never_made_to_act_twice():
    effects: Counter = Counter()
    text = live_tool(WRITE, inputs=N, more="limits: {breaker: off, queue: 1000}")
    async with calling(text, flaky(effects, Random(1))) as (tools, server):
        results = await asyncio.gather(*(tools.call("tool", {"n": n}) for n in range(300)))
        assert len(server.requests) == 300
    assert set(effects.values()) == {1}
    ends = Counter(result.outcome for result in results)
    assert set(ends) == {Outcome.OK, Outcome.TOOL_ERROR, Outcome.UNKNOWN_OUTCOME}
    assert ends[Outcome.OK] + ends[Outcome.UNKNOWN_OUTCOME] == len(effects)


async def test_a_flaky_server_gets_at_most_a_fifth_more_requests():
    effects: Counter = Counter()
    text = live_tool(READ, inputs=N, more="limits: {breaker: off, queue: 1000, backoff: {first: 1ms}}")
    options = {"clock": VirtualClock()}
    async with calling(text, flaky(effects, Random(2)), **options) as (tools, server):
        results = await asyncio.gather(*(tools.call("tool", {"n": n}) for n in range(500)))
        assert len(server.requests) == sum(result.usage.attempts for result in results)
        assert len(server.requests) <= 1.2 * 500 + 10 + 1
    assert sum(result.outcome is Outcome.OK for result in results) > 375


async def test_a_server_that_fails_is_left_alone():
    text = live_tool(READ, inputs=N, more="limits: {attempts: 1, breaker: {failures: 3}}")
    async with calling(text, answering(503)) as (tools, server):
        codes = [(await tools.call("tool", {"n": 1})).error.code for _ in range(6)]
        assert codes == ["http_503"] * 3 + ["circuit_open"] * 3
        assert len(server.requests) == 3


async def test_a_server_gets_no_more_requests_at_once_than_it_may():
    inside, most, all_in = 0, 0, asyncio.Event()

    async def answer(_reader, writer, _head):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 4:
            all_in.set()
        await all_in.wait()
        inside -= 1
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, b"1"))

    text = live_tool(READ, inputs=N, more="limits: {concurrency: 4}")
    async with calling(text, answer) as (tools, _server):
        results = await asyncio.gather(*(tools.call("tool", {"n": n}) for n in range(40)))
    assert {result.outcome for result in results} == {Outcome.OK}
    assert most == 4


async def test_a_thousand_cancelled_calls_leave_neither_sockets_nor_tasks_nor_places():
    asked = asyncio.Event()

    async def silent(reader, writer, _head):
        asked.set()
        await reader.read()
        writer.close()

    text = live_tool(READ, inputs=N, more="limits: {concurrency: 20, queue: 1000}")
    good = answering_json(1)
    handlers = answering_by(lambda head: good if head.path.endswith("/0") else silent)
    async with calling(text, handlers) as (tools, server):
        await tools.call("tool", {"n": 0})
        files, tasks = open_files(), others()
        calls = [asyncio.ensure_future(tools.call("tool", {"n": n})) for n in range(1, 1001)]
        await asked.wait()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        async with asyncio.timeout(60):
            while server.open > 1:
                result = await tools.call("tool", {"n": 0})
                assert (result.outcome, result.usage.attempts) == (Outcome.OK, 1)
        assert (open_files(), others()) <= (files, tasks)


async def test_a_kept_answer_spares_the_request_and_then_its_body():
    fresh = {"Cache-Control": "max-age=60", "ETag": '"v1"'}
    server_does = answering_each(answering_json({"n": 1}, headers=fresh), answering(304, fresh))
    options = {"clock": VirtualClock()}
    async with calling(live_tool(READ, inputs=N), server_does, **options) as (tools, server):
        results = []
        for wait in (0, 30, 31, 30):
            await tools._main.clock.advance(wait)
            results.append(await tools.call("tool", {"n": 1}))
        assert [result.value for result in results] == [{"n": 1}] * 4
        assert ["cache" in result.meta for result in results] == [False, True, False, True]
        assert [head.header("if-none-match") for head in server.requests] == [None, '"v1"']
