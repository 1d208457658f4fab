"""A server that asks by itself, in an era in which none may."""

from __future__ import annotations

import sys

from mcp_calling import Calling
from toolcrib import Outcome
from toolcrib.core.server_config import Server

DESK = """
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("desk")


class Order(BaseModel):
    size: str = "small"


@server.tool()
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Which coffee?", Order)).action


server.run()
"""


async def test_a_call_that_fails_for_the_era_says_which_one_to_write(tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    desk = Server("desk", command=sys.executable, args=(str(tmp_path / "desk.py"),))
    asking = desk._replace(elicitation="mcp_hooks:answer")
    async with Calling(asking, "ask") as calling:
        result = await calling.call("ask")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith("add `era: handshake` under `servers.desk` in toolcrib.yaml")
    async with Calling(asking._replace(era="handshake"), "ask") as calling:
        assert (await calling.call("ask")).value == {"result": "accept"}
