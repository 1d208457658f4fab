"""FastMCP's client: told by JSON what to ask, prints as JSON what it got. Runs in its own environment."""

import asyncio
import json
import sys
from pathlib import Path

import mcp_types
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError

ASKED = json.loads(sys.argv[1])


class Heard(MessageHandler):
    def __init__(self):
        self.changed = asyncio.Event()

    async def on_tool_list_changed(self, message: mcp_types.ToolListChangedNotification) -> None:
        self.changed.set()


def transport():
    if ASKED["url"]:
        return StreamableHttpTransport(ASKED["url"])
    command, *args = ASKED["command"]
    return StdioTransport(command=command, args=args, env=ASKED["env"], keep_alive=False)


def told(result):
    return {
        "is_error": bool(result.is_error),
        "texts": [part.text for part in result.content if part.type == "text"],
        "kinds": [part.type for part in result.content],
        "structured": result.structured_content,
    }


async def ask(client, heard):
    reports = []

    async def progress(done, total, _message):
        reports.append([done, total])

    found = {
        "protocol": client.protocol_version,
        "listed": [tool.name for tool in await client.list_tools()],
    }
    for key, (name, arguments) in ASKED["calls"].items():
        found[key] = told(await client.call_tool(name, arguments, raise_on_error=False))
    await client.call_tool(ASKED["progress"], {}, progress_handler=progress)
    found["progress"] = reports
    try:
        found["unknown"] = told(await client.call_tool("no_such_tool", {}, raise_on_error=False))
    except MCPError as error:
        found["unknown"] = {"code": error.error.code, "message": error.error.message}
    if ASKED["era"] == "handshake":
        file, text = ASKED["appears"]
        Path(file).write_text(text, encoding="utf-8")
        await asyncio.wait_for(heard.changed.wait(), 15)
        found["after"] = [tool.name for tool in await client.list_tools()]
    return found


async def main():
    heard = Heard()
    mode = "auto" if ASKED["era"] == "modern" else "legacy"
    async with Client(transport(), mode=mode, message_handler=heard) as client:
        print(json.dumps(await ask(client, heard)))


asyncio.run(main())
