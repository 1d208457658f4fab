"""An MCP server over stdio that offers the tools of a JSON file, good and bad ones. Standard library only.

    python tests/mcp_listing.py TOOLS.json

A call answers with the tool and the arguments, as one JSON text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def listing(tools: Path) -> dict[str, Any]:
    """The entry of `mcpServers` that is this script with a file of tools."""
    return {"command": sys.executable, "args": ["-S", __file__, str(tools)]}


def answer(method: str, params: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    """The `result` or `error` of a request."""
    if method == "initialize":
        told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        return {"result": {**told, "serverInfo": {"name": "listing", "version": "1"}}}
    if method == "tools/list":
        return {"result": {"tools": tools}}
    if method == "tools/call":
        said = json.dumps({"tool": params["name"], "arguments": params.get("arguments")})
        return {"result": {"content": [{"type": "text", "text": said}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    tools = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            told = answer(asked["method"], asked.get("params") or {}, tools)
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
