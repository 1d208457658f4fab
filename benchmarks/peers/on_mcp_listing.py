"""`tools/list` by the SDK's client, from several servers: until every page is read, and without its cache.

One more contender, `floor`, has no server: the client gets the smallest valid response, on one page, from its own memory.
No server that offers the same tools can take less time.

Usage: python on_mcp_listing.py NAME=URL...
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from functools import partial

import httpx2
import worker
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Required members of both results."""

TOOLS = [
    {
        "name": f"tool_{number}",
        "description": f"The weather in a city, {number}.",
        "inputSchema": worker.INPUT,
        "outputSchema": worker.OUTPUT,
    }
    for number in range(worker.MANY)
]


def encoded(result: object) -> bytes:
    return json.dumps(result, separators=(",", ":")).encode()


RESULTS = {
    "server/discover": encoded(
        {
            **HINTS,
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "floor", "version": "1"},
        }
    ),
    "tools/list": encoded({**HINTS, "tools": TOOLS}),
}


def answer(request: httpx2.Request) -> httpx2.Response:
    asked = json.loads(request.content)
    body = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (encoded(asked["id"]), RESULTS[asked["method"]])
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)


async def listing(client: Client) -> None:
    page = await client.list_tools(cache_mode="bypass")
    found = len(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
        found += len(page.tools)
    assert found == worker.MANY, found


async def prepared() -> None:
    servers: dict[str, Client] = {}
    for given in sys.argv[1:]:
        name, _, url = given.partition("=")
        servers[name] = Client(url)
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(httpx2.AsyncClient(transport=httpx2.MockTransport(answer)))
        servers["floor"] = Client(streamable_http_client("http://floor/mcp", http_client=memory))
        clients = {name: await stack.enter_async_context(client) for name, client in servers.items()}
        await worker.serve(("mcp",), {name: partial(listing, client) for name, client in clients.items()})


worker.main(prepared)
