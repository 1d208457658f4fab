"""An MCP server over stdio whose tools stand in a file, read anew for each listing.

    python tests/listing_server.py TOOLS.json VERSION [sdk]

With `sdk` it is the SDK's low-level server, of both eras; without, the standard library alone, which starts at once.
Each start adds a line to TOOLS.json.started.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def tools_of(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8"))


def serve_plainly(file: Path, version: str) -> None:
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "listing", "version": version}}
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            answer = {"result": {"protocolVersion": params["protocolVersion"], **about}}
        elif method == "tools/list":
            answer = {"result": {"tools": tools_of(file)}}
        elif method == "tools/call":
            answer = {"result": {"content": [{"type": "text", "text": "done"}]}}
        else:
            answer = {"error": {"code": -32601, "message": "Method not found"}}
        if "id" in request:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
            sys.stdout.flush()


def serve_with_sdk(file: Path, version: str) -> None:
    import anyio  # noqa: PLC0415 -- slow to import
    from mcp.server import Server  # noqa: PLC0415
    from mcp.server.stdio import stdio_server  # noqa: PLC0415
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool  # noqa: PLC0415

    async def listed(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in tools_of(file)])

    async def called(_context: Any, _params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="done")])

    async def serve() -> None:
        server: Any = Server("listing", version=version, on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with path.with_name(f"{path.name}.started").open("a", encoding="utf-8") as log:
        log.write("started\n")
    (serve_with_sdk if "sdk" in sys.argv else serve_plainly)(path, sys.argv[2])
