"""`tools/list` by the SDK's client, from several servers: until every page is read, and without its cache.

Usage: python on_mcp_listing.py NAME=URL...
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from functools import partial

import worker
from mcp import Client


async def listing(client: Client) -> None:
    page = await client.list_tools(cache_mode="bypass")
    found = len(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
        found += len(page.tools)
    assert found == worker.MANY, found


async def prepared() -> None:
    servers = dict(given.split("=", 1) for given in sys.argv[1:])
    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(Client(url)) for name, url in servers.items()}
        await worker.serve(("mcp",), {name: partial(listing, client) for name, client in clients.items()})


worker.main(prepared)
