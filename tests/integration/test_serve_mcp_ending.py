"""How a server ends: when its input does, by a signal, and what becomes of the calls in flight."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from sampling import sample
from serving_mcp import (
    BASICS,
    PATIENCE,
    answers,
    as_http,
    client,
    each_era,
    headers_of,
    json_of,
    process,
    quiet_sdk,
    request,
    said_raw,
    serve,
    write,
)

pytestmark = [quiet_sdk]

LATER = """
    name: later
    description: Answers after a while.
    mock: {result: {done: true}, latency: 1500ms}
    ---
    name: never
    description: Answers after a long while.
    mock: {result: {done: true}, latency: 5m}
"""


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def call(name: str, number: int) -> dict[str, object]:
    return request("tools/call", {"name": name, "arguments": {}}, number)


async def test_everything_that_was_asked_is_answered_before_stdio_ends(tmp_path):
    async with process(write(tmp_path, BASICS)) as served:
        pipe = served.process.stdin
        pipe.write(line(request("server/discover")))
        for number in range(2, 50):
            pipe.write(
                line(request("tools/call", {"name": "echo", "arguments": {"text": str(number)}}, number))
            )
        pipe.write(line(request("tools/list", number=50))[:-1])  # the last line needs no end
        pipe.close()
        told = {answer["id"]: answer["result"] for answer in await answers(served)}
        assert await served.ended() == 0
    assert [told[number]["content"][0]["text"] for number in range(2, 50)] == [
        str(number) for number in range(2, 50)
    ]
    assert [tool["name"] for tool in told[50]["tools"]] == ["add", "echo", "slow"]


async def test_lines_that_are_no_messages_are_answered_and_do_no_harm(tmp_path):
    async with process(write(tmp_path, BASICS)) as served:
        pipe = served.process.stdin
        for bad in (
            b"{\n",
            b"[]\n",
            b"\xff\n",
            b"\n",
            b'"' + b"x" * (5 << 20) + b'"\n',
            b'{"jsonrpc":"2.0"}\n',
        ):
            pipe.write(bad)
        pipe.write(line(request("tools/call", {"name": "echo", "arguments": {"text": "alive"}}, 7)))
        pipe.close()
        *refused, last = await answers(served)
        assert await served.ended() == 0
    assert [answer["error"]["code"] for answer in refused] == [-32700, -32600, -32700, -32600, -32600]
    assert all(answer["id"] is None for answer in refused)
    assert last["result"]["content"][0]["text"] == "alive"


async def test_a_call_that_does_not_end_is_cancelled_soon_after_the_input_ended(tmp_path):
    async with process(write(tmp_path, LATER)) as served:
        served.process.stdin.write(line(call("never", 1)))
        served.process.stdin.close()
        (told,) = await answers(served)
        assert await served.ended() == 0
    assert told["result"]["isError"] is True
    assert told["result"]["_meta"]["dev.toolcrib/outcome"]["outcome"] == "cancelled"


async def test_a_client_that_is_gone_ends_stdio(tmp_path):
    async with process(write(tmp_path, LATER)) as served:
        served.process.stdin.write(line(call("never", 1)))
        await served.until_said("serving")
        served.process.stdout._transport.close()
        served.process.stdin.close()
        assert await served.ended() == 0


PRINTING = """
import os, subprocess
import toolcrib

def noise():
    print("printed", flush=True)
    os.write(1, b"written\\n")
    subprocess.run(["echo", "echoed"])

noise()

@toolcrib.tool(worker={worker!r})
def work() -> str:
    noise()
    return "done"
"""


@pytest.mark.parametrize("worker", sample(["inline", "thread", "process"], one_in=3))
async def test_what_a_tool_or_a_child_prints_is_not_taken_for_a_message(worker, tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nsources: [descriptors, {python: printing_source}, {python: printing_hook}]\n"
    )
    (tmp_path / "printing_source.py").write_text(PRINTING.format(worker=worker))
    (tmp_path / "printing_hook.py").write_text(PRINTING.format(worker=worker) + "\n__all__ = []\n")
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "named.tool.yaml").write_text(
        f"name: named\nmode: python\npython: {{call: 'printing_hook:work', worker: {worker}}}\n"
    )
    async with process(env={"TOOLCRIB_TRUST": "all"}, cwd=tmp_path) as served:
        pipe = served.process.stdin
        pipe.write(line(request("server/discover")) + line(call("work", 2)) + line(call("named", 3)))
        told = {
            (answer := json.loads(await served.process.stdout.readline()))["id"]: answer for _ in range(3)
        }
        pipe.close()
        assert await answers(served) == []
        assert await served.ended() == 0
    assert [told[number]["result"]["structuredContent"] for number in (2, 3)] == ["done", "done"]
    for word in ("printed", "written", "echoed"):
        assert served.said.count(f"{word}\n") >= 2


@pytest.mark.parametrize("number", sample([signal.SIGTERM, signal.SIGINT], one_in=2))
async def test_calls_over_stdio_end_before_a_signal_does_its_work(number, tmp_path):
    async with process(write(tmp_path, LATER)) as served:
        served.process.stdin.write(line(request("server/discover", number=1)) + line(call("later", 2)))
        first = json.loads(await served.process.stdout.readline())
        served.process.send_signal(number)
        (told,) = await answers(served)
        assert await served.ended() == 0
    assert (first["id"], told["id"], told["result"]["structuredContent"]) == (1, 2, {"done": True})


@each_era
async def test_calls_over_http_end_before_a_signal_does_its_work(era, tmp_path):
    tools = write(tmp_path, LATER)
    began = asyncio.Event()
    async with serve(tools) as served, client(served.url, era) as one:
        await one.list_tools()
        calling = asyncio.create_task(one.call_tool("later", {}))
        await in_flight(calling)
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert (await calling).structured_content == {"done": True}
        assert await served.ended() == 0
        began.set()
    with pytest.raises(OSError, match="Connect"):
        await said_raw(served.port, b"")


async def in_flight(calling: asyncio.Task) -> None:
    """Until the request is on its way: nothing outside shows when the server has it."""
    await asyncio.wait([calling], timeout=0.5)


@each_era
async def test_calls_that_take_too_long_are_cancelled_in_words(era, tmp_path):
    tools = write(tmp_path, LATER)
    async with serve(tools, "--drain", "0.3") as served, client(served.url, era) as one:
        await one.list_tools()
        calling = asyncio.create_task(one.call_tool("never", {}))
        await in_flight(calling)
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            told = await calling
        assert told.is_error
        assert told.meta["dev.toolcrib/outcome"]["code"] == "server_ended"
        assert await served.ended() == 0
        assert any("cancelled 1 call in flight" in each for each in served.said)


async def test_a_second_signal_hurries(tmp_path):
    async with serve(write(tmp_path, LATER), "--drain", "600") as served:
        message = call("never", 1)
        raw = as_http(
            "POST", "/mcp", headers_of(message) | {"host": "localhost"}, json.dumps(message).encode()
        )
        calling = asyncio.create_task(said_raw(served.port, raw))
        await in_flight(calling)
        served.process.send_signal(signal.SIGINT)
        await in_flight(calling)
        served.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            assert json_of(await calling)["result"]["isError"] is True
            assert await served.ended() == 0


@each_era
async def test_those_who_wait_for_changes_do_not_hold_the_end_up(era, tmp_path):
    async with serve(write(tmp_path, BASICS), "--drain", "600") as served, client(served.url, era) as one:
        await one.list_tools()
        if era == "legacy":
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await served.ended() == 0
            return
        async with one.listen(tools_list_changed=True) as subscription:
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert [event async for event in subscription] == []
                assert await served.ended() == 0
