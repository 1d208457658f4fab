"""Calls of MCP tools, end to end over processes: what is sent, what comes of it, in both eras."""

from __future__ import annotations

import asyncio
import json

import pytest

from mcp_calling import Calling, http_server, over_http
from mcp_sdk_server import PNG, sdk_server
from sampling import one_for
from toolcrib import Outcome, Progress, RealClock
from toolcrib.security.secrets import SecretResolver


def pytest_generate_tests(metafunc):
    """Each test has a server of one era, or of both if everything is run."""
    for name in {"server", "child"}.intersection(metafunc.fixturenames):
        metafunc.parametrize(name, one_for(metafunc.function, ["handshake", "modern"]), indirect=True)


@pytest.fixture
def server(request):
    """The SDK's server over streamable HTTP, in one era and the other."""
    with over_http() as url:
        yield http_server(url, era=request.param)


@pytest.fixture
def child(request):
    """The same as a process."""
    return sdk_server(era=request.param)


async def answers(server):
    async with Calling(server, "echo", "add") as calling:
        said = await calling.call("echo", {"city": "Köln", "n": 1.0})
        assert (said.outcome, said.value) == (Outcome.OK, '{"city": "K\\u00f6ln", "n": 1.0}')
        added = await calling.call("add", {"a": 2, "b": 3})
        assert (added.value, added.content) == ({"sum": 5}, ())


async def test_a_call_is_answered_over_http(server):
    await answers(server)


async def test_a_call_is_answered_over_stdio(child):
    await answers(child)


@pytest.mark.parametrize(
    ("asked", "spoken"), [("auto", "2026-07-28"), ("handshake", "2025-11-25"), ("modern", "2026-07-28")]
)
async def test_the_era_is_the_one_asked_for(asked, spoken):
    with over_http() as url:
        await speaks(http_server(url, era=asked), spoken)


async def speaks(server, spoken):
    async with Calling(server, "seen") as calling:
        seen = json.loads((await calling.call("seen")).value)
        assert seen["protocol"] == spoken
        assert (await calling.executor.catalogue("sdk")).info["protocol"] == spoken


async def test_parts_that_are_no_text_are_content(server):
    async with Calling(server, "mixed") as calling:
        result = await calling.call("mixed")
        assert result.value == "a picture"
        assert [(part.type, part.data, part.mime_type) for part in result.content] == [
            ("image", PNG, "image/png")
        ]


async def test_a_tool_that_fails_says_why(server):
    async with Calling(server, "fails") as calling:
        result = await calling.call("fails")
        assert (result.outcome, result.message, result.error.code) == (
            Outcome.TOOL_ERROR,
            "the shop is closed",
            "tool_error",
        )


async def test_an_error_of_the_protocol_is_told_with_its_number(server):
    async with Calling(server, "boom") as calling:
        result = await calling.call("boom")
        assert (result.outcome, result.message) == (Outcome.TOOL_ERROR, "kaput")
        assert result.error.code == "mcp_internal_error"
        assert result.error.details == {"number": -32603, "data": {"part": 7}}


async def test_a_tool_that_the_server_does_not_have_is_unavailable(server):
    async with Calling(server, "ecco") as calling:
        result = await calling.call("ecco")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_remote_tool")
        assert result.message == "the server `sdk` has no tool `ecco`; did you mean `echo`?"


async def test_progress_is_told_to_whoever_watches(server):
    async with Calling(server, "slow") as calling:
        events = [event async for event in calling.runtime.stream("slow", {"steps": 3})]
        assert events[:-1] == [Progress(float(n), 3.0, f"step {n}") for n in (1, 2, 3)]
        assert events[-1].value == "done"


async def test_progress_that_the_idle_timeout_requests_is_listed(server):
    async with Calling(server._replace(idle_timeout=600), "slow") as calling:
        task = asyncio.ensure_future(calling.call("slow", {"steps": 2, "delay": 600}))
        async with asyncio.timeout(60):
            while not (running := calling.runtime.running()) or running[0].progress is None:
                await RealClock().sleep(0.005)
        assert running[0].progress.total == 2
        calling.runtime.cancel(all=True)
        await task


async def counted(calling):
    return json.loads((await calling.call("cancelled")).value)


async def until(calling, reached):
    """Ask the server what it counted until that is reached."""
    async with asyncio.timeout(60):
        while not reached(await counted(calling)):
            pass


async def gives_up(server):
    async with Calling(server, "slow", "cancelled") as calling:
        task = asyncio.ensure_future(calling.call("slow", {"delay": 600}))
        await until(calling, lambda count: count["slow"] == 1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until(calling, lambda count: count["cancelled"] == 1)


async def test_progress_tells_no_secret(server):
    secrets = SecretResolver({"STEP": "step 2"})
    secrets.fill("${STEP}")
    async with Calling(server, "slow", secrets=secrets) as calling:
        told = [event.message async for event in calling.runtime.stream("slow", {"steps": 2})]
        assert told[:-1] == ["step 1", "***"]


async def test_a_call_that_is_given_up_is_cancelled_at_the_server(server):
    await gives_up(server)


async def test_a_call_that_is_given_up_is_cancelled_in_the_process(child):
    await gives_up(child)


async def test_a_deadline_cancels_at_the_server(server):
    slow = {"name": "slow", "timeout": "300ms"}
    async with Calling(server, slow, "cancelled") as calling:
        await counted(calling)
        late = await calling.call("slow", {"delay": 600})
        assert (late.outcome, late.error.details["may_have_acted"]) == (Outcome.TIMEOUT, True)
        await until(calling, lambda count: count["cancelled"] == 1)


async def test_a_silent_server_is_given_up_and_one_that_tells_progress_is_not(server):
    async with Calling(server._replace(idle_timeout=3.0), "slow", "cancelled") as calling:
        assert (await calling.call("slow", {"steps": 16, "delay": 0.2})).outcome is Outcome.OK
        silent = await calling.call("slow", {"delay": 600})
        assert (silent.outcome, silent.error.code) == (Outcome.TIMEOUT, "idle_timeout")
        assert silent.message == "`slow`: the server `sdk` sent nothing for 3s; the call was cancelled"
        await until(calling, lambda count: count["cancelled"] == 1)


async def test_trace_context_goes_along(server):
    async with Calling(server, "seen") as calling:
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-other": "no"}
        result = await calling.runtime.session().call("seen", {}, trace=trace)
        meta = json.loads(result.value)["meta"]
        assert meta["traceparent"] == trace["traceparent"]
        assert "x-other" not in meta


async def test_arguments_are_laid_over_those_of_the_call(server):
    tool = {"name": "tool", "mcp": {"tool": "echo", "args": {"unit": "C", "city": "{{ args.town | upper }}"}}}
    async with Calling(server, tool) as calling:
        result = await calling.call("tool", {"town": "oslo", "days": 3, "unit": "F"})
        assert json.loads(result.value) == {"days": 3, "unit": "C", "city": "OSLO"}
