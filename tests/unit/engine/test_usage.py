"""What calls used: requests and bytes over HTTP and MCP, and processes that are measured while they run."""

from __future__ import annotations

import asyncio

import pytest

from exec_tools import document, registry_of
from http_servers import answering, answering_by, answering_each, answering_json, answering_raw, raw_answer
from in_memory import mocked, runtime_of
from live_tools import API, calling, live_tool
from mcp_calling import Calling, http_server, over_http
from mcp_sdk_server import sdk_server
from toolcrib import CallFinished, Outcome, RealClock, Runtime

PATIENCE = 60.0


async def until(condition):
    """Wait until a condition holds."""
    clock = RealClock()
    deadline = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < deadline
        await clock.sleep(0.01)


def traffic(result):
    return result.usage.requests, result.usage.sent_bytes, result.usage.received_bytes


async def test_a_call_over_http_counts_what_passes_the_connection():
    raw = raw_answer(200, {"Content-Type": "application/json"}, b'{"a": 1}')
    heard = []

    def answer(head):
        heard.append(head)
        return answering_raw(raw, close=False)

    ended = []
    text = live_tool(f"url: {API}/x\nmethod: POST\nbody: {{text: '{{{{ args.x }}}}'}}")
    async with calling(text, answering_by(answer)) as (runtime, _server):
        runtime.observe(ended.append)
        result = await runtime.call("tool", {"x": "y" * 5000})
    requests, sent, received = traffic(result)
    assert (requests, received) == (1, len(raw))
    assert 5000 < sent < 6000
    assert result.usage.as_json()["sent_bytes"] == sent
    [finished] = [event.result for event in ended if isinstance(event, CallFinished)]
    assert traffic(finished) == traffic(result)


async def test_all_attempts_and_redirects_count():
    moved = answering(307, {"Location": "/there"})
    busy, good = answering(503), answering_json(1)
    text = live_tool(f"url: {API}/x\nredirects: 1", more="limits: {backoff: {first: 1ms}}")
    async with calling(text, answering_each(busy, moved, good)) as (runtime, _server):
        result = await runtime.call("tool", {})
    assert (result.value, result.usage.attempts, result.usage.requests) == (1, 2, 3)


async def test_calls_that_fail_tell_what_they_sent():
    text = live_tool(f"url: {API}/x", more="limits: {output_size: 1KiB}")
    async with calling(text, answering_json("y" * 5000)) as (runtime, _server):
        large = await runtime.call("tool", {})
        again = await runtime.call("tool", {})
    assert large.error.code == "response_too_large"
    assert large.usage.requests == again.usage.requests == 1

    arrived = asyncio.Event()

    async def silent(_reader, _writer, _head):
        arrived.set()
        await asyncio.Event().wait()

    async with calling(live_tool(f"url: {API}/x"), silent) as (runtime, _server):
        call = asyncio.ensure_future(runtime.call("tool", {}))
        await arrived.wait()
        [running] = runtime.running()
        assert (running.usage.requests, running.usage.received_bytes) == (1, 0)
        runtime.cancel(all=True)
        ended = await call
    assert (ended.outcome, ended.usage.requests, ended.usage.received_bytes) == (Outcome.CANCELLED, 1, 0)
    assert ended.usage.sent_bytes == running.usage.sent_bytes > 0


async def test_a_call_that_sends_nothing_has_no_requests():
    async with calling(live_tool(f"url: {API}/x", inputs="{required: [x]}"), answering_json(1)) as (
        runtime,
        _,
    ):
        refused = await runtime.call("tool", {})
    assert refused.outcome is Outcome.INVALID_ARGUMENTS
    mock = await runtime_of(mocked("result: 1")).call("tool")
    for usage in (refused.usage, mock.usage):
        assert (usage.requests, usage.sent_bytes, usage.received_bytes, usage.memory) == (None,) * 4
        assert usage.as_json().keys() == {"attempts", "duration"}


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_call_over_mcp_counts_its_request_and_response(era, transport):
    with over_http() as url:
        server = http_server(url, era=era) if transport == "http" else sdk_server(era=era)
        async with Calling(server, "echo") as calling_tools:
            first = await calling_tools.call("echo", {"text": "y" * 3000})
            second = await calling_tools.call("echo", {"text": "y" * 3000})
    for result in (first, second):
        requests, sent, received = traffic(result)
        assert requests == 1
        # The text goes there and back, escaped once more.
        assert 3000 < sent < 5000
        assert 3000 < received < 10_000


async def test_a_running_program_is_measured(tmp_path):
    marker = tmp_path / "started"
    block = {
        "command": ["sh", "-c", f"x=$(head -c 1000 /dev/zero | wc -c); echo $x > {marker}; exec sleep 600"]
    }
    async with Runtime(registry_of(document(exec=block)), sandbox="none") as runtime:
        call = asyncio.ensure_future(runtime.call("tool", {}))
        await until(lambda: marker.exists() and marker.read_text())
        readings = []
        # While `exec` replaces the shell, the process has no memory of its own.
        await until(lambda: readings.extend(runtime.running()) or (readings[-1].usage.memory or 0) > 100_000)
        running = readings[-1]
        assert running.usage.processes >= 1
        assert running.usage.cpu_time is not None
        assert running.as_json()["usage"]["memory"] == running.usage.memory
        assert runtime.cancel(all=True) == 1
        assert (await call).outcome is Outcome.CANCELLED
        assert runtime.running() == ()


async def test_a_program_that_stays_running_is_measured(tmp_path):
    marker = tmp_path / "started"
    code = f"import sys, time; sys.stdin.readline(); open({str(marker)!r}, 'w').write('1'); time.sleep(600)"
    block = {"command": ["python3", "-c", code], "lifetime": "runtime", "wire": "json"}
    async with Runtime(registry_of(document(exec=block)), sandbox="none") as runtime:
        call = asyncio.ensure_future(runtime.call("tool", {"x": 1}))
        await until(lambda: marker.exists() and marker.read_text())
        [running] = runtime.running()
        assert running.usage.memory > 1_000_000
        runtime.cancel(all=True)
        await call


async def test_the_process_of_a_server_is_measured():
    async with Calling(sdk_server(era="modern"), "slow") as calling_tools:
        call = asyncio.ensure_future(calling_tools.call("slow", {"delay": 600}))
        await until(lambda: any(each.usage.memory for each in calling_tools.runtime.running()))
        [running] = calling_tools.runtime.running()
        assert running.usage.memory > 1_000_000
        assert running.usage.processes >= 1
        # Other calls may use the same process.
        assert running.usage.cpu_time is None
        await until(lambda: calling_tools.runtime.running()[0].usage.requests == 1)
        calling_tools.runtime.cancel(all=True)
        await call
