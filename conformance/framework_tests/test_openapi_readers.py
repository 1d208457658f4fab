"""FastMCP and Schemathesis read the exported OpenAPI document, and call the tools through it at a loopback server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import hypothesis
import pytest
import schemathesis
from fastmcp import Client, FastMCP

from toolcrib import Descriptor, Outcome, Result, Runtime
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.formats.openapi_document import openapi_document

ROOT = Path(__file__).resolve().parents[2]

STATUSES = {
    Outcome.OK: 200,
    Outcome.INVALID_ARGUMENTS: 400,
    Outcome.DENIED: 403,
    Outcome.NEEDS_APPROVAL: 403,
    Outcome.NOT_FOUND: 404,
    Outcome.TOOL_ERROR: 409,
}
"""Outcome -> status of the response; others are errors of the server."""

FAILING = {"room_lock"}
"""Tools of which some valid calls do not return on purpose."""


class Tools:
    """The tools of the packs and descriptors, each call in a session of its own, which begins at the same time."""

    def __init__(self) -> None:
        self.runtime = Runtime.open(ROOT / "packs", ROOT / "descriptors")
        self.tools = self.runtime.registry.select()
        self.names = {tool.name: self.runtime.registry.alias_of(tool.name) for tool in self.tools}
        self.by_alias = {alias: name for name, alias in self.names.items()}

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        return await self.runtime.session(clock=VirtualClock(), seed=1).call(name, arguments)

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        """The status and the body of the response to a request."""
        name = self.by_alias.get(path.removeprefix("/tools/"))
        if name is None:
            return 404, {"outcome": "not_found", "code": "not_found", "message": "no such tool"}
        try:
            arguments = json.loads(body or b"{}")
        except ValueError as error:
            return 400, {"outcome": "invalid_arguments", "code": "invalid_arguments", "message": str(error)}
        result = asyncio.run(self.call(name, arguments))
        if result.ok:
            return 200, result.value
        assert result.error is not None
        failure = {"outcome": result.outcome, "code": result.error.code, "message": result.message}
        return STATUSES.get(result.outcome, 500), failure


@contextmanager
def served(tools: Tools) -> Iterator[str]:
    """Serve the tools as the exported document says; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: object) -> None:
            pass

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            status, value = tools.answer(self.path, self.rfile.read(length))
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


TOOLS = Tools()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(TOOLS) as address:
        yield address


def document_of(tools: list[Descriptor], server: str) -> dict[str, Any]:
    made = openapi_document(tools, TOOLS.names, title="Tools", version="1.0.0", server=server)
    assert made.losses == ()
    read: dict[str, Any] = json.loads(json.dumps(made.document))
    return read


def test_fastmcp_has_every_tool_under_its_name(url):
    async def listed() -> set[str]:
        server = FastMCP.from_openapi(document_of(TOOLS.tools, url), name="tools")
        async with Client(server) as client:
            return {tool.name for tool in await client.list_tools()}

    assert asyncio.run(listed()) == {alias.replace("__", "_") for alias in TOOLS.names.values()}


def test_every_example_gets_the_same_result_through_fastmcp(url):
    async def run() -> list[str]:
        wrong = []
        async with httpx2.AsyncClient(base_url=url) as http:
            server = FastMCP.from_openapi(document_of(TOOLS.tools, url), client=http, name="tools")
            async with Client(server) as client:
                for tool in TOOLS.tools:
                    for example in tool.examples:
                        name = TOOLS.names[tool.name].replace("__", "_")
                        got = await client.call_tool(name, dict(example.args), raise_on_error=False)
                        expected = await TOOLS.call(tool.name, dict(example.args))
                        value = got.structured_content
                        # Structured content of MCP is an object, so FastMCP wraps other values.
                        same = value in (expected.value, {"result": expected.value})
                        if got.is_error == expected.ok or (expected.ok and not same):
                            wrong.append(f"{tool.name} {dict(example.args)}: {got.content}")
        return wrong

    assert sum(len(tool.examples) for tool in TOOLS.tools) > 70
    assert asyncio.run(run()) == []


def test_schemathesis_reads_every_operation(url):
    schema = schemathesis.openapi.from_dict(document_of(TOOLS.tools, url))
    schema.validate()
    assert sum(each.ok() is not None for each in schema.get_all_operations()) == len(TOOLS.tools)


def test_what_schemathesis_sends_is_answered_as_the_document_says(url):
    tools = [tool for tool in TOOLS.tools if tool.name not in FAILING]
    schema = schemathesis.openapi.from_dict(document_of(tools, url))
    sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @hypothesis.settings(
            max_examples=3,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=[*hypothesis.HealthCheck],
        )
        @hypothesis.given(case=operation.as_strategy())
        def run(case: Any) -> None:
            nonlocal sent
            sent += 1
            case.call_and_validate(base_url=url)

        run()
    assert sent > 2 * len(tools)
