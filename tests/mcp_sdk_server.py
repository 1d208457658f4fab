"""An MCP server made of the SDK's low-level one, of both eras, over stdio or streamable HTTP.

    python tests/mcp_sdk_server.py                # stdio
    python tests/mcp_sdk_server.py --http [PORT]  # prints its address, serves until it is ended

What it was asked is told by its tools: `cancelled` says how many calls of `slow` began and were cancelled, `seen` what
a call carried besides its arguments. Tests name it with `sdk_server()`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from typing import Any

import anyio
from mcp import MCPDeprecationWarning, MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

warnings.filterwarnings("ignore", category=MCPDeprecationWarning)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
ANY: dict[str, Any] = {"type": "object"}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"size": {"type": "string"}, "milk": {"type": "boolean", "default": True}},
    "required": ["size"],
}


PYTHON = sys.executable
"""What runs this script."""


def sdk_server(name: str = "sdk", **fields: Any) -> Any:
    """The `Server` that is this script over stdio; `fields` are other fields of it."""
    from toolcrib.core.server_config import Server as Named  # noqa: PLC0415 -- the script itself needs none of it

    return Named(name, command=PYTHON, args=(__file__,), **fields)


def text(said: str, **more: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=said)], **more)


class Tools:
    """The tools, and what they remember."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self.bus)
        self.sessions: dict[str, Any] = {}
        self.cancelled = 0
        self.slow = 0
        self.more: list[str] = []
        self.broken = False

    async def listed(self, context: Any, _params: Any) -> ListToolsResult:
        self.remember(context)
        if self.broken:
            raise MCPError(INTERNAL_ERROR, "the shelf is broken")
        reads = ToolAnnotations(read_only_hint=True)
        tools = [
            Tool(name="echo", input_schema=ANY, description="Says it again.", annotations=reads),
            Tool(name="add", input_schema=ANY, output_schema={"type": "object", "required": ["sum"]}),
            Tool(
                name="with_header",
                input_schema={
                    "type": "object",
                    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
                },
            ),
        ]
        others = [
            "mixed",
            "fails",
            "boom",
            "slow",
            "cancelled",
            "seen",
            "register",
            "ask",
            "sample",
            "order",
            "die",
        ]
        return ListToolsResult(
            tools=[*tools, *(Tool(name=name, input_schema=ANY) for name in (*others, *self.more))]
        )

    def remember(self, context: Any) -> None:
        request = getattr(context, "request", None)
        key = request.headers.get("mcp-session-id", "") if request is not None else ""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self.sessions[key] = context.session

    async def called(self, context: Any, params: Any) -> Any:
        self.remember(context)
        method = getattr(self, f"do_{params.name}", None)
        if params.name in self.more:
            return text(params.name)
        if method is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await method(context, params.arguments or {}, params)

    async def do_echo(self, _context: Any, arguments: Any, _params: Any) -> Any:
        return text(json.dumps(arguments))

    async def do_add(self, _context: Any, arguments: Any, _params: Any) -> Any:
        value = {"sum": arguments["a"] + arguments["b"]}
        return text(json.dumps(value), structured_content=value)

    async def do_with_header(self, context: Any, _arguments: Any, _params: Any) -> Any:
        request = getattr(context, "request", None)
        return text(str(request.headers.get("mcp-param-region") if request is not None else None))

    async def do_mixed(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        image = ImageContent(type="image", data=PNG, mime_type="image/png")
        return CallToolResult(content=[TextContent(type="text", text="a picture"), image])

    async def do_fails(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        return text("the shop is closed", is_error=True)

    async def do_boom(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        raise MCPError(INTERNAL_ERROR, "kaput", {"part": 7})

    async def do_slow(self, context: Any, arguments: Any, _params: Any) -> Any:
        self.slow += 1
        steps = arguments.get("steps", 2)
        try:
            for step in range(steps):
                await context.session.report_progress(step + 1, steps, f"step {step + 1}")
                await anyio.sleep(arguments.get("delay", 0.01))
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return text("done")

    async def do_cancelled(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        return text(json.dumps({"cancelled": self.cancelled, "slow": self.slow}))

    async def do_seen(self, context: Any, _arguments: Any, params: Any) -> Any:
        meta = dict(params.meta or {})
        capabilities = (
            context.session.client_capabilities if hasattr(context.session, "client_capabilities") else None
        )
        told = None if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True)
        return text(json.dumps({"meta": meta, "protocol": context.protocol_version, "capabilities": told}))

    async def do_register(self, _context: Any, arguments: Any, _params: Any) -> Any:
        self.more.append(arguments["name"])
        self.broken = arguments.get("broken", False)
        if arguments.get("hang_up"):
            self.listening.close()
            return text("registered, and told to nobody")
        await self.bus.publish(ToolsListChanged())
        for session in self.sessions.values():
            await session.send_tool_list_changed()
        return text("registered")

    async def do_ask(self, context: Any, _arguments: Any, params: Any) -> Any:
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answer = (params.input_responses or {}).get("order")
            if answer is None:
                asked = ElicitRequestFormParams(message="Which coffee?", requested_schema=FORM)
                return InputRequiredResult(
                    input_requests={"order": ElicitRequest(params=asked)}, request_state="s1"
                )
            assert isinstance(answer, ElicitResult)
            assert params.request_state == "s1"
        else:
            answer = await context.session.elicit_form("Which coffee?", FORM)
        return text(json.dumps({"action": answer.action, "content": answer.content}))

    async def do_sample(self, context: Any, _arguments: Any, _params: Any) -> Any:
        message = SamplingMessage(role="user", content=TextContent(type="text", text="Say hi."))
        answer = await context.session.create_message(messages=[message], max_tokens=10)
        return text(answer.content.text)

    async def do_order(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        return CallToolResult(content=[TextContent(type="text", text=each) for each in ("1", "2")])

    async def do_die(self, _context: Any, _arguments: Any, _params: Any) -> Any:
        sys.stderr.write("out of beans\n")
        sys.stderr.flush()
        os._exit(3)


def build() -> Any:
    tools = Tools()

    class Telling(Server):
        def create_initialization_options(
            self, notification_options: Any = None, *args: Any, **keys: Any
        ) -> Any:
            options = notification_options or NotificationOptions(tools_changed=True)
            return super().create_initialization_options(options, *args, **keys)

    return Telling(
        "sdk",
        version="1.2",
        instructions="Be kind.",
        on_list_tools=tools.listed,
        on_call_tool=tools.called,
        on_subscriptions_listen=tools.listening,
    )


async def over_stdio() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port: int) -> None:
    listening = listening_on(port)
    print(address_of(listening), flush=True)  # noqa: T201 -- whoever started it waits for it
    web_server().run(sockets=[listening])


def listening_on(port: int) -> socket.socket:
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio does not set TCP_NODELAY
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    return listening


def address_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


def web_server() -> Any:
    """The server over streamable HTTP, for uvicorn to run."""
    import uvicorn  # noqa: PLC0415 -- only this needs it

    app = build().streamable_http_app(json_response=False, stateless_http=False)
    return uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))


if __name__ == "__main__":
    if "--http" in sys.argv:
        over_http(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
    else:
        anyio.run(over_stdio)
