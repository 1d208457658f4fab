"""The context of a trace on its way through MCP, and the attributes of its conventions; the official SDK is the other side."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext

import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from http_servers import answering_json, raw_answer, serving
from mcp_calling import Calling, http_server, over_http
from mcp_over_http import SESSION, speaking
from mcp_sdk_server import sdk_server
from sampling import sample
from serving_mcp import ERAS, process, request, write
from spans import (
    RecordedDurations,
    RecordedSpans,
    attributes_of,
    id_of,
    parent_of,
    recorded_globally,
    trace_of,
    traceparent_of,
)
from toolcrib import Outcome, Runtime, Telemetry
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.mcp import Options, serve_http
from toolcrib.serve.mcp.server import ToolServer

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return RecordedSpans()


def calls_of(spans, **more):
    return Telemetry(trace="calls", tracer_provider=spans.provider, **more)


# toolcrib as the client.


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_server_over_http_gets_the_context_and_describes_the_span(era, spans):
    with over_http() as url:
        async with Calling(http_server(url, era=era), "seen", telemetry=calls_of(spans)) as calling:
            seen = json.loads((await calling.call("seen")).value)
    span = spans.one("execute_tool seen")
    assert seen["meta"]["traceparent"] == traceparent_of(span)
    found = attributes_of(span)
    port = int(url.rpartition(":")[2].partition("/")[0])
    assert {key: found.get(key) for key in ("server.address", "server.port")} == {
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert found["mcp.method.name"] == "tools/call"
    assert found["mcp.protocol.version"] == seen["protocol"]
    assert (found["network.transport"], found["network.protocol.name"]) == ("tcp", "http")
    assert found["jsonrpc.request.id"].isdecimal()
    assert ("mcp.session.id" in found) is (era == "handshake")
    assert [each.name for each in spans.all()] == ["execute_tool seen"]


async def test_a_server_over_stdio_gets_the_context_too(spans):
    async with Calling(sdk_server(), "seen", telemetry=calls_of(spans)) as calling:
        seen = json.loads((await calling.call("seen")).value)
    span = spans.one("execute_tool seen")
    assert seen["meta"]["traceparent"] == traceparent_of(span)
    found = attributes_of(span)
    assert found["network.transport"] == "pipe"
    assert found["jsonrpc.request.id"].isdecimal()
    assert {"server.address", "network.protocol.name", "mcp.session.id"}.isdisjoint(found)


async def test_a_json_rpc_error_is_the_type_of_the_error(spans):
    error = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "canary-of-server"}}

    async def refuse(reader, writer, head):
        answer = {**error, "id": head.json["id"]}
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode()))

    async with serving(speaking(calls=refuse)) as server:
        url = f"{server.origin}/mcp"
        options = {"telemetry": calls_of(spans), "egress": [f"127.0.0.1:{server.port}"]}
        async with Calling(http_server(url, era="handshake"), "echo", **options) as calling:
            assert (await calling.call("echo")).outcome is not Outcome.OK
    found = attributes_of(spans.one("execute_tool echo"))
    assert (found["error.type"], found["rpc.response.status_code"]) == ("-32602", "-32602")
    assert found["mcp.session.id"] == SESSION
    assert "canary-of-server" not in spans.text()


async def test_a_failed_result_of_a_server_is_a_tool_error(spans):
    with over_http() as url:
        async with Calling(http_server(url), "fails", telemetry=calls_of(spans)) as calling:
            assert (await calling.call("fails")).outcome is Outcome.TOOL_ERROR
    assert attributes_of(spans.one("execute_tool fails"))["error.type"] == "tool_error"


async def test_with_a_global_provider_the_request_of_the_sdk_is_within_the_span():
    with recorded_globally() as spans, over_http() as url:
        async with Calling(http_server(url), "echo", telemetry=Telemetry(trace="calls")) as calling:
            await calling.call("echo", {"a": 1})
        call = spans.one("execute_tool echo")
        request = spans.one("MCP send tools/call echo")
        assert parent_of(request) == id_of(call)
        # The server runs in this process, and has extracted the context of the request.
        answered = spans.one("tools/call echo")
        assert (trace_of(answered), parent_of(answered)) == (trace_of(call), id_of(request))


# toolcrib as the server.

TOOLS = """
    name: add
    description: Adds two numbers.
    input_schema: {type: object, properties: {a: {type: number}, b: {type: number}}}
    mock: {result: "{{ args.a + args.b }}"}
    ---
    name: fetch
    description: Gets something.
    mode: live
    live: {url: "https://api.example.com/x"}
"""


@pytest.mark.parametrize("era", ERAS)
async def test_a_served_call_belongs_to_the_span_of_its_request(era, tmp_path):
    write(tmp_path, TOOLS)
    with recorded_globally() as spans:
        async with serving(answering_json({"n": 1})) as remote:
            runtime = Runtime.open(
                tmp_path,
                telemetry=Telemetry(trace="calls"),
                egress=[f"127.0.0.1:{remote.port}"],
                origins={"https://api.example.com": remote.origin},
            )
            async with runtime:
                server = ToolServer(runtime, Options(watch=False))
                async with Client(server.sdk, mode=era) as client:
                    meta = {"traceparent": REMOTE, "tracestate": "a=1"}
                    for _ in range(2):  # the second call needs no event loop
                        await client.call_tool("add", {"a": 1, "b": 2})
                    result = await client.call_tool("fetch", {}, meta=meta)
                    assert not result.is_error
        for sent in ("add", "fetch"):
            for call, answered in zip(
                spans.named(f"execute_tool {sent}"), spans.named(f"tools/call {sent}"), strict=True
            ):
                assert (trace_of(call), parent_of(call)) == (trace_of(answered), id_of(answered))
                assert call.links == ()
                assert attributes_of(answered)["network.transport"] == "pipe"
        (request,) = remote.requests
        assert request.header("traceparent") == traceparent_of(spans.one("execute_tool fetch"))


@pytest.mark.parametrize("era", sample(ERAS, one_in=2))
async def test_a_client_that_traces_by_itself_is_the_parent_of_a_served_call(era, tmp_path, spans):
    """Without a global provider, the SDK records nothing and passes the headers of the client through."""
    write(tmp_path, TOOLS)
    runtime = Runtime.open(tmp_path, telemetry=calls_of(spans))
    said = asyncio.Queue()
    task = asyncio.create_task(
        serve_http(runtime, Options(watch=False), ListenAddress(port=0), said.put_nowait)
    )
    try:
        line = await asyncio.wait_for(said.get(), 60)
        url = line.partition(" at ")[2].partition(";")[0]
        async with Client(streamable_http_client(url), mode=era) as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": REMOTE})
    finally:
        task.cancel()
        await asyncio.wait([task])
    found = spans.named("execute_tool add")
    assert [(trace_of(each), parent_of(each)) for each in found] == [
        (int(REMOTE[3:35], 16), int(REMOTE[36:52], 16))
    ] * 3


@pytest.mark.parametrize("era", sample(ERAS, one_in=2))
async def test_the_span_of_a_request_over_http_says_how_it_came(era, tmp_path):
    write(tmp_path, TOOLS)
    with recorded_globally() as spans:
        runtime = Runtime.open(tmp_path, telemetry=Telemetry(trace="calls"))
        said = asyncio.Queue()
        task = asyncio.create_task(
            serve_http(runtime, Options(watch=False), ListenAddress(port=0), said.put_nowait)
        )
        try:
            line = await asyncio.wait_for(said.get(), 60)
            url = line.partition(" at ")[2].partition(";")[0]
            async with Client(streamable_http_client(url), mode=era) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
        finally:
            task.cancel()
            await asyncio.wait([task])
        found = attributes_of(spans.one("tools/call add"))
    assert (found["network.transport"], found["network.protocol.name"]) == ("tcp", "http")
    assert (found["client.address"], found["network.protocol.version"]) == ("127.0.0.1", "1.1")
    assert found["client.port"] > 0
    assert ("mcp.session.id" in found) is (era == "legacy")


async def test_serve_writes_the_records_of_calls_to_stderr(tmp_path):
    write(tmp_path / "descriptors", TOOLS)
    write(tmp_path, "project: p\ntelemetry: {logs: true}\n", "toolcrib.yaml")
    async with process(tmp_path / "toolcrib.yaml") as served:
        asked = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": "canary-7f3d9a51"}})
        served.process.stdin.write(json.dumps(asked).encode() + b"\n")
        record = json.loads(await served.until_said('"outcome"'))
        served.process.stdin.close()
        assert await served.ended() == 0
    assert (record["tool"], record["caller"], record["outcome"]) == ("add", "mcp", "invalid_arguments")
    assert "canary-7f3d9a51" not in "".join(served.said)


# Durations.


def operations(durations, side):
    """Method -> the attributes of its durations."""
    points = durations.points(f"mcp.{side}.operation.duration")
    return {(point["mcp.method.name"], point.get("gen_ai.tool.name", "")): point for point in points}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_client_records_the_durations_of_requests_and_of_the_session(transport, spans):
    durations = RecordedDurations()
    telemetry = calls_of(spans, meter_provider=durations.provider)
    with over_http() if transport == "http" else nullcontext("") as url:
        server = http_server(url, era="handshake") if url else sdk_server(era="handshake")
        async with Calling(server, "echo", "fails", telemetry=telemetry) as calling:
            for name in ("echo", "echo", "fails"):
                await calling.call(name, {"a": 1})
    found = operations(durations, "client")
    assert {"initialize", "tools/list", "notifications/initialized"} <= {method for method, _tool in found}
    echo = found["tools/call", "echo"]
    assert (echo["count"], echo["gen_ai.operation.name"]) == (2, "execute_tool")
    assert echo["mcp.protocol.version"]
    assert "error.type" not in echo
    assert found["tools/call", "fails"]["error.type"] == "tool_error"
    (session,) = durations.points("mcp.client.session.duration")
    assert session["count"] == 1
    assert "error.type" not in session
    for point in (echo, session):
        if transport == "http":
            port = int(url.rpartition(":")[2].partition("/")[0])
            assert (point["server.address"], point["server.port"]) == ("127.0.0.1", port)
            assert (point["network.transport"], point["network.protocol.name"]) == ("tcp", "http")
        else:
            assert point["network.transport"] == "pipe"
        assert {"mcp.session.id", "jsonrpc.request.id"}.isdisjoint(point)


async def test_the_code_of_an_error_is_that_of_the_duration(spans):
    durations = RecordedDurations()

    async def refuse(reader, writer, head):
        answer = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "no"}, "id": head.json["id"]}
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode()))

    async with serving(speaking(calls=refuse)) as server:
        options = {
            "telemetry": calls_of(spans, meter_provider=durations.provider),
            "egress": [f"127.0.0.1:{server.port}"],
        }
        async with Calling(
            http_server(f"{server.origin}/mcp", era="handshake"), "echo", **options
        ) as calling:
            await calling.call("echo")
    found = operations(durations, "client")["tools/call", "echo"]
    assert (found["error.type"], found["rpc.response.status_code"]) == ("-32602", "-32602")


@pytest.mark.parametrize("era", ERAS)
async def test_the_server_records_the_durations_of_requests_and_of_sessions(era, tmp_path, spans):
    write(tmp_path, TOOLS + "    ---\n    name: fails\n    mock: {error: {code: x, message: y}}\n")
    durations = RecordedDurations()
    runtime = Runtime.open(tmp_path, telemetry=calls_of(spans, meter_provider=durations.provider))
    async with runtime:
        server = ToolServer(runtime, Options(watch=False))
        async with Client(server.sdk, mode=era) as client:
            for _ in range(2):
                await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("fails", {})
            with pytest.raises(MCPError):
                await client.call_tool("canary-7f3d9a51", {})
    found = operations(durations, "server")
    add = found["tools/call", "add"]
    assert (add["count"], add["gen_ai.operation.name"], add["network.transport"]) == (
        2,
        "execute_tool",
        "pipe",
    )
    assert found["tools/call", "fails"]["error.type"] == "tool_error"
    # What a client did wrong is no error of the server, and its text makes no series.
    unknown = found["tools/call", ""]
    assert (unknown["rpc.response.status_code"], "error.type" in unknown) == ("-32602", False)
    sessions = durations.points("mcp.server.session.duration")
    assert [point["count"] for point in sessions] == ([1] if era == "legacy" else [])


async def test_without_spans_no_duration_is_recorded(tmp_path):
    write(tmp_path, TOOLS)
    durations = RecordedDurations()
    telemetry = Telemetry(trace="propagation", meter_provider=durations.provider)
    async with (
        Runtime.open(tmp_path, telemetry=telemetry) as runtime,
        Client(ToolServer(runtime, Options(watch=False)).sdk) as client,
    ):
        await client.call_tool("add", {"a": 1, "b": 2})
    assert operations(durations, "server") == {}
