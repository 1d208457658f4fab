"""The client of the SDK's line 1.x: told by JSON what to ask, prints as JSON what it got. Runs in its own environment."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ServerNotification, ToolListChangedNotification

ASKED = json.loads(sys.argv[1])


@asynccontextmanager
async def streams():
    if ASKED["url"]:
        async with (
            httpx.AsyncClient() as http,
            streamable_http_client(ASKED["url"], http_client=http) as opened,
        ):
            yield opened[0], opened[1]
        return
    command, *args = ASKED["command"]
    async with stdio_client(StdioServerParameters(command=command, args=args, env=ASKED["env"])) as opened:
        yield opened


async def ask(session, protocol, changed):
    def told(result):
        return {
            "is_error": bool(result.isError),
            "texts": [part.text for part in result.content if part.type == "text"],
            "kinds": [part.type for part in result.content],
            "structured": result.structuredContent,
        }

    reports = []

    async def progress(done, total, _message):
        reports.append([done, total])

    found = {"protocol": protocol, "listed": [tool.name for tool in (await session.list_tools()).tools]}
    for key, (name, arguments) in ASKED["calls"].items():
        found[key] = told(await session.call_tool(name, arguments))
    await session.call_tool(ASKED["progress"], {}, progress_callback=progress)
    found["progress"] = reports
    try:
        found["unknown"] = told(await session.call_tool("no_such_tool", {}))
    except McpError as error:
        found["unknown"] = {"code": error.error.code, "message": error.error.message}
    file, text = ASKED["appears"]
    Path(file).write_text(text, encoding="utf-8")
    await asyncio.wait_for(changed.wait(), 15)
    found["after"] = [tool.name for tool in (await session.list_tools()).tools]
    return found


async def main():
    changed = asyncio.Event()

    async def heard(message):
        if isinstance(message, ServerNotification) and isinstance(message.root, ToolListChangedNotification):
            changed.set()

    async with streams() as (read, write), ClientSession(read, write, message_handler=heard) as session:
        said = await session.initialize()
        print(json.dumps(await ask(session, said.protocolVersion, changed)))


asyncio.run(main())
