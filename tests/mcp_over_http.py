"""MCP over HTTP as a test writes it down: handlers for `http_servers.serving`.

    async with serving(speaking()) as server: ...          # streamable HTTP with a session, answers as JSON
    async with serving(speaking(stream=True)) as server    # answers as streams of events
    async with serving(speaking(calls=answering(503)))     # what answers tools/call instead

The tool `echo` answers its arguments, as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from http_servers import Handler, Head, raw_answer

SESSION = "session-1"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Bytes as a piece of a body in pieces; none for its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(message: Any, name: str = "message") -> bytes:
    """A message, or any text, as an event in a piece of a body."""
    text = message if isinstance(message, str) else json.dumps(message)
    return chunk(f"event: {name}\ndata: {text}\n\n".encode())


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """What a good server answers."""
    params = request.get("params") or {}
    method, answer = request["method"], {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        info = {"name": "spoken", "version": "1"}
        told = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    elif method == "tools/list":
        told = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        told = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    else:
        return {**answer, "error": {"code": -32601, "message": "Method not found"}}
    return {**answer, "result": told}


def speaking(
    *,
    stream: bool = False,
    session: str = SESSION,
    calls: Handler | None = None,
    seen: Callable[[Head], bytes | None] | None = None,
) -> Handler:
    """A handler that speaks streamable HTTP.

    Args:
        stream: Answer requests with a stream of events.
        session: What `initialize` gives; empty for none.
        calls: Answers tools/call.
        seen: Looks at each request first; bytes that it returns are the answer.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
        raw = seen(head) if seen is not None else None
        if raw is not None:
            writer.write(raw)
            return
        if head.method != "POST":
            writer.write(raw_answer(405 if head.method == "GET" else 200))
            return
        message = head.json
        if "id" not in message or "method" not in message:
            writer.write(raw_answer(202))
        elif message["method"] == "tools/call" and calls is not None:
            await calls(reader, writer, head)
        elif stream:
            writer.write(STREAM + event(answer_to(message)) + chunk(b""))
        else:
            more = {"Mcp-Session-Id": session} if message["method"] == "initialize" and session else {}
            headers = {"Content-Type": "application/json", **more}
            writer.write(raw_answer(200, headers, json.dumps(answer_to(message)).encode()))

    return handle
