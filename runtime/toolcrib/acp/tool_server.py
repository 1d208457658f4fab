"""The tools of a runtime as an MCP server for one agent. They run in this process, in the runtime itself.

An agent that can connect to MCP servers over HTTP gets an address on this machine and a token. Any other agent starts
`tool_relay`, which connects its stdin and stdout with a socket of this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, cast

from toolcrib.acp import tool_relay
from toolcrib.core.dependencies import imports_of_extra
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.http_common.stdio_pipes import StdioPipes
from toolcrib.serve.mcp.options import Options

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

NAME: Final = "toolcrib"
"""Name of the MCP server. Many agents put it before the names of the tools."""


class AgentToolServer:
    """Serves the tools of a runtime to one agent.

    Args:
        runtime: The tools; already entered.
        options: Which of them are served.
        user: Name of the agent, which is the user of its calls.
    """

    def __init__(self, runtime: Runtime, options: Options, user: str) -> None:
        self._runtime = runtime
        self._options = options
        self._user = user
        self._shutdown = Shutdown()
        self._serving: set[asyncio.Task[None]] = set()
        self._entry: dict[str, Any] | None = None
        self._folder = ""
        self._listener: asyncio.Server | None = None

    async def entry(self, *, http: bool) -> dict[str, Any]:
        """Start serving unless that was done, and return the server as `session/new` names it.

        Args:
            http: Whether the agent can connect to MCP servers over HTTP.

        Raises:
            ConfigurationError: The extra `mcp` is missing, or the system has no sockets for the relay.
        """
        if self._entry is None:
            self._entry = await (self._over_http() if http else self._over_relay())
        return self._entry

    async def close(self) -> None:
        """Stop serving; calls that run are cancelled."""
        self._shutdown.ask()
        self._shutdown.ask()
        if self._listener is not None:
            self._listener.close()
        if self._serving:
            await asyncio.wait(self._serving)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _over_http(self) -> dict[str, Any]:
        with imports_of_extra("mcp", cannot="offer tools to an agent", doing="offering tools to an agent"):
            from toolcrib.serve.mcp.streamable_http import serve_http  # noqa: PLC0415 -- an extra; slow to import

        token = token_urlsafe(32)
        address = ListenAddress(port=0, tokens=(token,), users=(self._user,))
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = self._serve(
            serve_http(
                self._runtime,
                self._options,
                address,
                lambda _text: None,
                self._shutdown,
                listening=listening.set_result,
            )
        )
        either: set[asyncio.Future[Any]] = {serving, listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            serving.result()
        header = {"name": "Authorization", "value": f"Bearer {token}"}
        return {"type": "http", "name": NAME, "url": await listening, "headers": [header]}

    async def _over_relay(self) -> dict[str, Any]:
        with imports_of_extra("mcp", cannot="offer tools to an agent", doing="offering tools to an agent"):
            import toolcrib.serve.mcp.stdio  # noqa: F401, PLC0415 -- an extra; slow to import

        if os.name == "nt":
            raise ConfigurationError(
                "the agent cannot connect to MCP servers over HTTP, and this system has no Unix sockets",
                code="unsupported",
                hint="use an agent that announces `mcpCapabilities.http`",
            )
        # Only we may enter the folder, so nobody else can connect.
        self._folder = tempfile.mkdtemp(prefix="toolcrib-")
        path = os.path.join(self._folder, "mcp")
        self._listener = await asyncio.get_running_loop().create_unix_server(
            lambda: _Connection(lambda descriptor: self._serve(self._served(descriptor))), path
        )
        return {
            "name": NAME,
            "command": sys.executable,
            "args": ["-I", str(Path(tool_relay.__file__)), path],
            "env": [],
        }

    def _serve(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return task

    async def _served(self, descriptor: int) -> None:
        from toolcrib.serve.mcp.stdio import serve_stdio  # noqa: PLC0415 -- an extra

        pipes = StdioPipes(descriptor, descriptor)
        try:
            await serve_stdio(self._runtime, self._options, lambda _text: None, pipes, self._shutdown)
        finally:
            with suppress(OSError):
                os.close(descriptor)


class _Connection(asyncio.Protocol):
    """A connection of the relay. Its socket is taken from asyncio: `StdioPipes` reads and writes in threads of its own.

    Args:
        serve: Called with the descriptor of the socket.
    """

    def __init__(self, serve: Callable[[int], object]) -> None:
        self._serve = serve

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio before it reads."""
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        os.set_blocking(descriptor, True)
        cast("asyncio.Transport", transport).abort()
        self._serve(descriptor)
