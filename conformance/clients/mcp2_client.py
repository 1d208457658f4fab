"""The client of the SDK's line 2.x: told by JSON what to ask, prints as JSON what it got. Runs in its own environment."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ToolListChangedNotification

ASKED = json.loads(sys.argv[1])
MODERN = ASKED["era"] == "modern"


def target():
    if ASKED["url"]:
        return ASKED["url"]
    command, *args = ASKED["command"]
    return StdioServerParameters(command=command, args=args, env=ASKED["env"])


def told(result):
    return {
        "is_error": bool(result.is_error),
        "texts": [part.text for part in result.content if part.type == "text"],
        "kinds": [part.type for part in result.content],
        "structured": result.structured_content,
    }


async def ask(client, changed):
    reports = []

    async def progress(done, total, _message):
        reports.append([done, total])

    found = {
        "protocol": client.protocol_version,
        "listed": [tool.name for tool in (await client.list_tools()).tools],
    }
    for key, (name, arguments) in ASKED["calls"].items():
        found[key] = told(await client.call_tool(name, arguments))
    await client.call_tool(ASKED["progress"], {}, progress_callback=progress)
    found["progress"] = reports
    try:
        found["unknown"] = told(await client.call_tool("no_such_tool", {}))
    except MCPError as error:
        found["unknown"] = {"code": error.error.code, "message": error.error.message}
    async with AsyncExitStack() as stack:
        if MODERN:
            subscription = await stack.enter_async_context(client.listen(tools_list_changed=True))
            changed = asyncio.ensure_future(anext(aiter(subscription)))
        file, text = ASKED["appears"]
        Path(file).write_text(text, encoding="utf-8")
        await asyncio.wait_for(changed if MODERN else changed.wait(), 15)
        found["after"] = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
    return found


async def main():
    changed = asyncio.Event()

    async def heard(message):
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    mode = "auto" if MODERN else "legacy"
    async with Client(target(), mode=mode, message_handler=heard) as client:
        print(json.dumps(await ask(client, changed)))


asyncio.run(main())
