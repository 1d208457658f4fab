"""What the HTTP face refuses, byte by byte: D85 to D90, and what else a stranger may try."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from sampling import sample
from serving_mcp import (
    BASICS,
    PATIENCE,
    as_http,
    headers_of,
    json_of,
    process,
    quiet_sdk,
    request,
    said_raw,
    serve,
    status_of,
    write,
)
from toolcrib.cli.group import cli

pytestmark = [quiet_sdk]

TOKEN = "s3cr3t-token-for-tests"
CALL = request("tools/call", {"name": "echo", "arguments": {"text": "hello"}})


async def posted(port: int, message: object, *, path: str = "/mcp", **headers: str) -> bytes:
    """The answer to a message; `host_` of the headers is written `host`, which is the server's own unless given."""
    told = headers_of(message) if isinstance(message, dict) else headers_of(CALL)
    told |= {"host": f"127.0.0.1:{port}"} | {
        name.strip("_").replace("_", "-"): text for name, text in headers.items()
    }
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return await said_raw(port, as_http("POST", path, told, body))


async def got(port: int, path: str, method: str = "GET", **headers: str) -> bytes:
    told = {"host": f"127.0.0.1:{port}"} | {
        name.strip("_").replace("_", "-"): text for name, text in headers.items()
    }
    return await said_raw(port, as_http(method, path, told))


def head_of(raw: bytes) -> str:
    return raw.partition(b"\r\n\r\n")[0].decode().lower()


async def test_loopback_without_a_token(tmp_path):
    async with serve(write(tmp_path, BASICS)) as served:
        port = served.port
        assert f"3 tools (3 mock) at http://127.0.0.1:{port}/mcp" in served.line

        good = await posted(port, CALL)
        assert status_of(good) == 200
        assert json_of(good)["result"]["content"] == [{"type": "text", "text": "hello"}]
        assert "access-control" not in head_of(good)
        assert "server:" not in head_of(good)
        await foreigners_are_refused(port)
        await its_own_names_are_answered(port)
        await broken_messages_are_refused(port)
        await paths_that_are_not_there(port)
        assert status_of(await posted(port, CALL)) == 200
        assert await served.end() == 0


async def foreigners_are_refused(port: int) -> None:
    """D85 and D86, at every path"""
    origins = ("https://evil.test", "null", f"http://evil.test:{port}", f"https://127.0.0.1:{port}")
    for path in ("/mcp", "/healthz", "/nowhere"):
        evil = await posted(port, CALL, path=path, host="evil.test")
        assert (status_of(evil), b"evil" in evil) == (421, False), path
        for origin in origins:
            foreign = await posted(port, CALL, path=path, origin=origin)
            assert (status_of(foreign), b"evil" in foreign) == (403, False), (path, origin)
            assert "access-control" not in head_of(foreign)


async def its_own_names_are_answered(port: int) -> None:
    for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost", "localhost:9999"):
        assert status_of(await posted(port, CALL, host=host)) == 200, host
    for host in (
        "127.0.0.1.evil.test",
        f"localhost.evil.test:{port}",
        "127.0.0.1@evil.test",
        "",
        "127.0.0.1:x",
    ):
        assert status_of(await posted(port, CALL, host=host)) in {400, 421}, host
    for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        own = await posted(port, CALL, origin=origin)
        assert (status_of(own), "access-control" in head_of(own)) == (200, False), origin
    assert status_of(await got(port, "/mcp", "OPTIONS")) == 405


async def broken_messages_are_refused(port: int) -> None:
    """D88 and D89"""
    broken = (b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"')
    odd = (b"[]", b'"EVIL"', b'{"jsonrpc": "1.0", "EVIL": 1}', b'{"jsonrpc":"2.0","id":{},"method":"EVIL"}')
    for code, bodies in ((-32700, broken), (-32600, odd)):
        for body in bodies:
            for version in ("2026-07-28", "2025-11-25"):
                answer = await posted(port, body, mcp_protocol_version=version)
                assert (status_of(answer), b"EVIL" in answer) == (400, False)
                assert json_of(answer)["error"]["code"] == code, (body[:20], version)
    lost = await posted(port, request("tools/call", {"name": "no_such", "arguments": {}}))
    assert json_of(lost)["error"]["code"] == -32602
    assert json_of(await posted(port, request("no/such")))["error"]["code"] == -32601


async def paths_that_are_not_there(port: int) -> None:
    health = await got(port, "/healthz")
    assert (status_of(health), json_of(health)) == (200, {"status": "ok", "tools": 3})
    assert status_of(await got(port, "/healthz", "HEAD")) == 200
    assert status_of(await got(port, "/healthz", "DELETE")) == 405
    for path in ("/", "/mcp/", "/healthz/", "/mcp/a/b", "/docs", "/MCP"):
        assert status_of(await got(port, path)) == 404, path


@pytest.mark.parametrize("counted", sample([True, False], one_in=2))
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(counted, tmp_path):
    """D87"""
    async with serve(write(tmp_path, BASICS)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        size = 50 * 1024 * 1024
        told = headers_of(CALL) | {"host": f"127.0.0.1:{served.port}"}
        told |= {"content-length": str(size)} if counted else {"transfer-encoding": "chunked"}
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
        writer.write("\r\n".join(lines).encode())

        async def pour() -> None:
            block = b"x" * 65536
            for _ in range(size // len(block)):
                writer.write(block if counted else b"10000\r\n" + block + b"\r\n")
                await writer.drain()

        pouring = asyncio.create_task(pour())
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
        assert line.split()[1] == b"413"
        pouring.cancel()
        await asyncio.wait([pouring])
        if not pouring.cancelled():
            pouring.exception()
        writer.transport.abort()
        assert status_of(await posted(served.port, CALL)) == 200


async def test_a_token_is_asked_for(tmp_path):
    """D90"""
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    async with serve(write(tmp_path / "tools", BASICS), "--token-file", secret) as served:
        port = served.port
        for path in ("/mcp", "/mcp/any", "/nowhere"):
            bare = await posted(port, CALL, path=path)
            assert status_of(bare) == 401, path
            assert "www-authenticate: bearer" in head_of(bare)
            assert TOKEN.encode() not in bare
        for proof in (
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            "Bearer",
            f"Basic {TOKEN}",
            TOKEN,
            "Bearer \xff",
        ):
            assert status_of(await posted(port, CALL, authorization=proof)) == 401, proof
        for proof in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            assert status_of(await posted(port, CALL, authorization=proof)) == 200
        listed = await posted(port, request("tools/list"), authorization=f"Bearer {TOKEN}")
        assert json_of(listed)["result"]["cacheScope"] == "private"
        assert status_of(await got(port, "/healthz")) == 200
        await served.end()
        assert TOKEN not in "".join(served.said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "other machines can reach `0.0.0.0`.*--token-env"),
        (["--host", "::"], "other machines can reach"),
        (["--host", "some.name"], "other machines can reach"),
        (
            ["--host", "0.0.0.0", "--token-env", "SHORT"],
            "the token is too short: expected at least 16 characters, got 15.*secrets.token_urlsafe(32)",
        ),
        (["--allow-origin", "*"], "is not a single host or origin"),
        (["--allow-host", "*.example.com"], "is not a single host or origin"),
        (["--allow-origin", "example.com"], "is not a valid origin"),
        (["--token-env", "NO_SUCH_TOKEN"], "no token in `NO_SUCH_TOKEN`"),
        (["--token-env", "A", "--token-env", "TOKEN"], "two of the tokens are equal"),
        (["--toolset", "no_such"], "unknown toolset `no_such`"),
        (["--profile", "no_such"], "no_such"),
        (["--port", "70000"], "70000"),
        (["--host", "203.0.113.7", "--token-env", "TOKEN"], "cannot listen on 203.0.113.7:0"),
    ],
)
def test_what_can_not_be_served_is_told_at_once(words, said, tmp_path, monkeypatch):
    for name in ("TOKEN", "A"):
        monkeypatch.setenv(name, TOKEN)
    monkeypatch.setenv("SHORT", TOKEN[:15])
    tools = str(write(tmp_path / "tools", BASICS))
    port = [] if "--port" in words else ["--port", "0"]
    told = CliRunner().invoke(cli, ["serve", "mcp", tools, "--transport", "http", *port, *words])
    assert (told.exit_code, told.stdout) == (2, "")
    for part in said.split(".*"):
        assert part in told.stderr
    assert "Traceback" not in told.stderr
    assert TOKEN[:15] not in told.stderr


async def test_a_port_that_is_taken_is_told_at_once(tmp_path):
    tools = write(tmp_path, BASICS)
    async with (
        serve(tools) as first,
        process(tools, "--transport", "http", "--port", str(first.port)) as second,
    ):
        assert await second.ended() == 2
        assert "in use" in "".join(second.said)
        assert "--port 0" in "".join(second.said)


async def test_a_short_token_is_served_to_this_machine_with_a_warning(tmp_path):
    async with serve(write(tmp_path, BASICS), "--token-env", "SHORT", env={"SHORT": TOKEN[:15]}) as served:
        assert "secrets.token_urlsafe(32)" in await served.until_said("warning: the token has fewer than 16")
        assert status_of(await posted(served.port, CALL)) == 401
        assert status_of(await posted(served.port, CALL, authorization=f"Bearer {TOKEN[:15]}")) == 200
    assert TOKEN[:15] not in "".join(served.said)


async def test_everywhere_with_a_token(tmp_path):
    tools = write(tmp_path, BASICS)
    words = ("--host", "0.0.0.0", "--token-env", "TOKEN", "--allow-host", "mcp.example.com")
    async with serve(tools, *words, env={"TOKEN": TOKEN}) as served:
        proof = f"Bearer {TOKEN}"
        assert status_of(await posted(served.port, CALL)) == 401
        for host in ("mcp.example.com", f"mcp.example.com:{served.port}", f"localhost:{served.port}"):
            assert status_of(await posted(served.port, CALL, host=host, authorization=proof)) == 200
        assert status_of(await posted(served.port, CALL, host="example.com", authorization=proof)) == 421


async def test_a_page_of_an_origin_that_is_allowed(tmp_path):
    origin = "https://app.example.com"
    async with serve(
        write(tmp_path, BASICS), "--allow-origin", origin, "--token-env", "TOKEN", env={"TOKEN": TOKEN}
    ) as served:
        port = served.port
        asked = await got(
            port,
            "/mcp",
            "OPTIONS",
            origin=origin,
            access_control_request_method="POST",
            access_control_request_headers="content-type, mcp-param-region, x-evil, authorization",
        )
        assert status_of(asked) == 204
        told = head_of(asked)
        assert f"access-control-allow-origin: {origin}" in told
        assert "access-control-allow-headers: authorization, content-type, mcp-param-region" in told
        assert "x-evil" not in told
        assert "*" not in told
        called = await posted(port, CALL, origin=origin, authorization=f"Bearer {TOKEN}")
        assert status_of(called) == 200
        assert f"access-control-allow-origin: {origin}" in head_of(called)
        refused = await posted(port, CALL, origin=origin)
        assert (status_of(refused), f"access-control-allow-origin: {origin}" in head_of(refused)) == (
            401,
            True,
        )
        plain = await posted(port, CALL, authorization=f"Bearer {TOKEN}")
        assert "access-control" not in head_of(plain)
        for other in ("https://app.example.com.evil.test", "http://app.example.com"):
            foreign = await got(port, "/mcp", "OPTIONS", origin=other, access_control_request_method="POST")
            assert status_of(foreign) == 403


async def test_toolsets_by_path_and_by_option(tmp_path):
    write(tmp_path / "descriptors", BASICS)
    (tmp_path / "toolcrib.yaml").write_text(
        "project: shop\ntoolsets:\n  maths: {tools: [add]}\n  words: {tools: [echo]}\n"
    )

    async def names(served, path):
        listed = await posted(served.port, request("tools/list"), path=path)
        return [tool["name"] for tool in json_of(listed)["result"]["tools"]]

    async with serve(tmp_path) as served:
        assert await names(served, "/mcp") == ["add", "echo", "slow"]
        assert await names(served, "/mcp/maths") == ["add"]
        assert await names(served, "/mcp/words") == ["echo"]
        assert status_of(await posted(served.port, CALL, path="/mcp/words")) == 200
        outside = json_of(await posted(served.port, CALL, path="/mcp/maths"))
        assert outside["error"]["code"] == -32602
        lost = await posted(served.port, CALL, path="/mcp/math")
        assert (status_of(lost), json_of(lost)["error"]["data"]) == (404, {"didYouMean": ["maths"]})
        evil = await posted(served.port, CALL, path="/mcp/%3Cscript%3E")
        assert (status_of(evil), b"script" in evil) == (404, False)
    async with serve(tmp_path, "--toolset", "maths") as served:
        assert await names(served, "/mcp") == await names(served, "/mcp/maths") == ["add"]
        assert status_of(await posted(served.port, CALL, path="/mcp/words")) == 404
        assert json_of(await got(served.port, "/healthz")) == {"status": "ok", "tools": 1}
        assert "toolset maths" in served.line


async def test_headers_that_repeat_an_argument_are_judged(tmp_path):
    tools = write(
        tmp_path,
        """
        name: look
        input_schema:
          type: object
          properties: {region: {type: string, x-mcp-header: Region}}
        mock: {result: "{{ args.region }}"}
        """,
    )
    call = request("tools/call", {"name": "look", "arguments": {"region": "eu"}})
    async with serve(tools) as served:
        agrees = await posted(served.port, call, mcp_param_region="eu")
        assert json_of(agrees)["result"]["content"][0]["text"] == "eu"
        for headers in ({}, {"mcp_param_region": "us"}):
            wrong = await posted(served.port, call, **headers)
            assert status_of(wrong) == 400
            assert json_of(wrong)["error"]["code"] == -32020


async def test_a_call_of_the_handshake_era_is_a_stream_only_where_there_may_be_more_to_say(tmp_path):
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    async with serve(write(tmp_path, BASICS)) as served:
        port = served.port
        opened = await posted(
            port, request("initialize", opening, modern=False), mcp_protocol_version="2025-11-25"
        )
        (session,) = [
            line.partition(":")[2].strip()
            for line in head_of(opened).splitlines()
            if line.startswith("mcp-session-id")
        ]
        headers = {"mcp_protocol_version": "2025-11-25", "mcp_session_id": session}
        await posted(port, {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}, **headers)
        asked = {"name": "echo", "arguments": {"text": "hello"}}
        first = await posted(port, request("tools/call", asked, 2, modern=False), **headers)
        again = await posted(port, request("tools/call", asked, 3, modern=False), **headers)
        watched = {**asked, "_meta": {"progressToken": "p"}}
        progress = await posted(port, request("tools/call", watched, 4, modern=False), **headers)
        for answer in (first, again, progress):
            assert b'"text":"hello"' in answer
        assert "content-type: application/json" in head_of(again)
        assert json_of(again)["id"] == 3
        assert "content-type: text/event-stream" in head_of(progress)
        assert status_of(await got(port, "/mcp", "DELETE", **headers)) == 200
        assert status_of(await posted(port, request("tools/call", asked, 5, modern=False), **headers)) == 404
