"""Real clients of `toolcrib serve mcp`: both eras of the protocol, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from mcp import Client, MCPError

from http_servers import Head, answering_json, serving
from sampling import sample
from serving_mcp import (
    BASICS,
    Standing,
    client,
    connected,
    each_era,
    each_way,
    each_way_and_era,
    quiet_sdk,
    serve,
    standing,
    stdio,
    texts,
    write,
)
from toolcrib import __version__

pytestmark = [quiet_sdk]

PARTS = """
    name: parts
    description: Everything that a result can hold.
    mock:
      content:
        - {type: text, text: look}
        - {type: image, mime_type: image/png, data: aGk=}
        - {type: audio, mime_type: audio/wav, data: aGk=}
        - {type: resource, uri: "test://text", mime_type: text/plain, text: inside}
        - {type: resource, uri: "test://blob", mime_type: application/x-thing, data: aGk=}
        - {type: resource, uri: "https://example.com/report.pdf", title: The report}
    ---
    name: both
    description: A value and parts.
    mock:
      result: {size: 1}
      content:
        - {type: text, text: '{"size":1}'}
        - {type: text, text: more}
    ---
    name: nothing
    description: Says nothing.
    mock: {result: null}
    ---
    name: list.all
    description: A name that no provider takes, and an answer that is no object.
    output_schema: {type: array, items: {type: integer}}
    mock: {result: [1, 2]}
    ---
    name: broken
    description: Always fails.
    mock: {error: {code: sold_out, message: "No seats are left; try another day", retryable: true}}
    ---
    name: undeclared
    title: A Title
    description: An object without a schema.
    icons: [{src: "https://example.com/i.png"}]
    annotations: {read_only: true}
    mock: {result: {free: true}}
"""


ALL = ["add", "both", "broken", "echo", "list_all", "nothing", "parts", "slow", "undeclared"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All of these tools, and a server of them over HTTP."""
    with standing(write(tmp_path_factory.mktemp("tools"), f"{BASICS}    ---{PARTS}")) as served:
        yield served


def asked(way: str, era: str, served: Standing) -> AbstractAsyncContextManager[Client]:
    return client(stdio(served.folder) if way == "stdio" else served.url, era)


@each_way_and_era
async def test_tools_are_listed_and_called(way, era, everything):
    async with asked(way, era, everything) as one:
        listed = await one.list_tools()
        assert [tool.name for tool in listed.tools] == ALL
        assert listed.tools[0].input_schema == {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        }
        result = await one.call_tool("add", {"a": 2, "b": 3})
        assert (result.is_error, texts(result), result.structured_content) == (
            False,
            ['{"sum":5}'],
            {"sum": 5},
        )
        assert texts(await one.call_tool("echo", {"text": "hello ☃"})) == ["hello ☃"]


@each_way_and_era
async def test_results_in_all_their_shapes(way, era, everything):
    async with asked(way, era, everything) as one:
        listed = {tool.name: tool for tool in (await one.list_tools()).tools}
        assert listed["undeclared"].title == "A Title"
        assert listed["undeclared"].annotations.read_only_hint is True
        assert listed["undeclared"].icons[0].src == "https://example.com/i.png"
        parts = (await one.call_tool("parts")).content
        assert [part.type for part in parts] == [
            "text",
            "image",
            "audio",
            "resource",
            "resource",
            "resource_link",
        ]
        assert (parts[3].resource.text, parts[4].resource.blob) == ("inside", "aGk=")
        assert (parts[5].uri, parts[5].name) == ("https://example.com/report.pdf", "The report")
        both = await one.call_tool("both")
        assert (texts(both), both.structured_content) == (['{"size":1}', "more"], {"size": 1})
        assert texts(await one.call_tool("nothing")) == ["null"]
        free = await one.call_tool("undeclared")
        assert (texts(free), free.structured_content) == (['{"free":true}'], {"free": True})


@each_way_and_era
async def test_a_tool_is_called_by_the_name_that_is_listed_and_by_its_own(way, era, everything):
    modern = era == "2026-07-28"
    async with asked(way, era, everything) as one:
        listed = {tool.name: tool for tool in (await one.list_tools()).tools}
        assert (listed["list_all"].output_schema is not None) is modern
        for name in ("list_all", "list.all"):
            result = await one.call_tool(name)
            assert (texts(result), result.structured_content) == (["[1,2]"], [1, 2] if modern else None)


@each_way_and_era
async def test_failures_say_what_to_do(way, era, everything):
    async with asked(way, era, everything) as one:
        with pytest.raises(MCPError) as unknown:
            await one.call_tool("ecko", {"text": "x"})
        assert unknown.value.error.code == -32602
        assert unknown.value.error.message == "Unknown tool: ecko"
        assert unknown.value.error.data == {"didYouMean": ["echo"]}
        wrong = await one.call_tool("add", {"a": "two", "c": 1})
        assert wrong.is_error
        assert texts(wrong)[0].splitlines()[0] == "invalid arguments for `add`:"
        assert {line.partition(":")[0] for line in texts(wrong)[0].splitlines()[1:]} == {"/a", "/b"}
        failed = await one.call_tool("broken")
        assert (failed.is_error, texts(failed)) == (True, ["No seats are left; try another day"])
        assert failed.meta["dev.toolcrib/outcome"] == {
            "outcome": "tool_error",
            "code": "sold_out",
            "retryable": True,
            "details": {},
        }


@each_way_and_era
async def test_progress_reaches_who_asked_for_it(way, era, tmp_path):
    tools = write(
        tmp_path,
        """
        name: steps
        description: Goes step by step.
        mock:
          result: {done: true}
          progress:
            - {progress: 1, total: 3, message: one}
            - {progress: 1, total: 3, message: still one, after: 10ms}
            - {progress: 3, total: 3, after: 10ms}
        """,
    )
    heard = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with connected(way, era, tools) as one:
        result = await one.call_tool("steps", {}, progress_callback=hear)
        quiet = await one.call_tool("steps", {})
    assert result.structured_content == quiet.structured_content == {"done": True}
    assert [(round(progress), total, message) for progress, total, message in heard] == [
        (1, 3, "one"),
        (1, 3, "still one"),
        (3, 3, None),
    ]
    steps = [progress for progress, _total, _message in heard]
    assert steps == sorted(set(steps)), "progress grows with each notification"


LIVE = """
    name: wait
    description: Asks a server that takes its time.
    input_schema: {{type: object, properties: {{}}}}
    annotations: {{read_only: true}}
    live: {{method: GET, url: "{origin}/wait"}}
"""


def live_project(folder, origin):
    write(folder / "descriptors", LIVE.format(origin=origin))
    (folder / "toolcrib.yaml").write_text(
        f"project: shop\negress: {{allow: ['{origin.partition('//')[2]}']}}\n"
    )
    return folder


@each_way_and_era
async def test_cancelling_a_request_cancels_what_the_tool_does(way, era, tmp_path):
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def hang(reader, _writer, _head: Head) -> None:
        asked.set()
        await reader.read()
        dropped.set()

    async with serving(hang) as remote, connected(way, era, live_project(tmp_path, remote.origin)) as one:
        calling = asyncio.create_task(one.call_tool("wait", {}))
        async with asyncio.timeout(60):
            await asked.wait()
            calling.cancel()
            await dropped.wait()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert [tool.name for tool in (await one.list_tools()).tools] == ["wait"]


@each_way_and_era
async def test_a_call_takes_the_trace_of_its_request_along(way, era, tmp_path):
    trace = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=1",
        "baggage": "k=v",
    }

    async def answer(_reader, writer, _head: Head) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    async with serving(answer) as remote, connected(way, era, live_project(tmp_path, remote.origin)) as one:
        result = await one.call_tool("wait", {}, meta={**trace, "baggage2": "no"})
        assert not result.is_error
        await one.call_tool("wait", {}, meta={"traceparent": "a\r\nX-Evil: 1", "tracestate": 7})
    first, second = remote.requests
    assert {name: first.header(name) for name in trace} == trace
    assert [second.header(name) for name in (*trace, "x-evil")] == [None] * 4


@quiet_sdk
async def test_a_handshake_connection_has_a_session_of_its_own(tmp_path):
    tools = write(
        tmp_path,
        """
        name: count
        description: Counts the calls of a session.
        mock:
          sequence: [{result: 1}, {result: 2}, {result: 3}]
        """,
    )
    async with serve(tools) as served:
        async with client(served.url, "legacy") as one, client(served.url, "legacy") as other:
            assert texts(await one.call_tool("count")) == ["1"]
            assert texts(await one.call_tool("count")) == ["2"]
            assert texts(await other.call_tool("count")) == ["1"]
        async with client(served.url, "2026-07-28") as one:
            assert texts(await one.call_tool("count")) == ["1"]
        async with client(served.url, "2026-07-28") as other:
            assert texts(await other.call_tool("count")) == ["2"]


@each_way
@pytest.mark.parametrize("era", sample(["legacy", "auto"], one_in=2))
async def test_a_server_is_called_as_its_project_is(way, era, tmp_path):
    write(tmp_path / "descriptors", BASICS)
    (tmp_path / "toolcrib.yaml").write_text("project: shop\ndescription: Sells things.\n")
    async with connected(way, era, tmp_path) as one:
        told = one.server_info
        assert (told.name, told.description, told.version) == ("shop", "Sells things.", __version__)


async def test_a_server_without_a_project_is_called_toolcrib(tmp_path):
    async with connected("stdio", "auto", write(tmp_path, BASICS)) as one:
        assert (one.server_info.name, one.server_info.description) == ("toolcrib", None)


@each_era
async def test_references_are_inlined_where_that_is_wanted(era, tmp_path):
    tools = write(
        tmp_path,
        """
        name: place
        description: Has a reference in its schema.
        input_schema:
          type: object
          properties: {at: {$ref: "#/$defs/point"}}
          $defs: {point: {type: object, properties: {x: {type: number}}}}
        mock: {result: {ok: true}}
        """,
    )
    async with client(stdio(tools), era) as one:
        assert (await one.list_tools()).tools[0].input_schema["properties"]["at"] == {"$ref": "#/$defs/point"}
    async with client(stdio(tools, "--inline-refs"), era) as one:
        schema = (await one.list_tools()).tools[0].input_schema
        assert schema["properties"]["at"] == {"type": "object", "properties": {"x": {"type": "number"}}}
        assert "$defs" not in schema


@each_way
async def test_a_mode_is_put_in_force(way, tmp_path):
    tools = write(
        tmp_path,
        """
        name: weather
        description: Live, but mocked.
        mode: live
        live: {method: GET, url: "https://api.example.com/"}
        mock: {result: {sky: blue}}
        """,
    )
    async with connected(way, "legacy", tools, "--mode", "mock") as one:
        assert (await one.call_tool("weather")).structured_content == {"sky": "blue"}


async def test_mocks_hand_calls_on_only_where_that_is_allowed(tmp_path):
    async with serving(answering_json({"sky": "grey"})) as outside:
        write(
            tmp_path / "descriptors",
            f"""
            name: weather
            description: Asks the other binding.
            mode: mock
            mock: {{passthrough: live}}
            live: {{url: "http://127.0.0.1:{outside.port}/"}}
            """,
        )
        (tmp_path / "toolcrib.yaml").write_text(
            f'project: weather\negress: {{allow: ["127.0.0.1:{outside.port}"]}}\n'
        )
        async with client(stdio(tmp_path), "auto") as one:
            assert "passthrough_not_allowed" in str(await one.call_tool("weather"))
        async with client(stdio(tmp_path, "--allow-passthrough"), "auto") as one:
            assert (await one.call_tool("weather")).structured_content == {"sky": "grey"}
