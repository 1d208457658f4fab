"""Serve tools over MCP: stdio and streamable HTTP, handshake revisions and 2026-07-28, with one server object.

`serve_stdio` and `serve_http` need the extra `mcp`, which is imported only when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.serve.http_common.lifecycle import opened
from toolcrib.serve.http_common.listen_address import ListenAddress, Say
from toolcrib.serve.http_common.stdio_pipes import StdioPipes, StdoutError
from toolcrib.serve.mcp.options import Options

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

__all__ = [
    "Options",
    "StdoutError",
    "serve_http",
    "serve_stdio",
]


async def serve_stdio(runtime: Runtime, options: Options, say: Say) -> None:
    """Serve the client at the other end of stdin and stdout until it disconnects or a signal arrives.

    Args:
        runtime: The tools.
        options: Which tools are served, and how.
        say: Prints a line for the user; never on stdout.

    Raises:
        ConfigurationError: The extra `mcp` is not installed, or the toolset is unknown.
        StdoutError: stdout cannot be written to. A client that disconnects is not an error.
    """
    _check(runtime, options)
    with imports_of_extra("mcp", cannot="serve over MCP", doing="serving over MCP"):
        from toolcrib.serve.mcp import stdio  # noqa: PLC0415 -- an extra; slow to import

    # Entering the runtime imports Python sources and hooks, whose code may print.
    with StdioPipes.claimed() as pipes:
        async with opened(runtime) as shutdown:
            await stdio.serve_stdio(runtime, options, say, pipes, shutdown)
    if pipes.error is not None:
        raise StdoutError(*pipes.error.args)


async def serve_http(runtime: Runtime, options: Options, address: ListenAddress, say: Say) -> None:
    """Serve clients at an address until a signal arrives.

    Args:
        runtime: The tools.
        options: Which tools are served, and how.
        address: Where to listen, and which clients may call.
        say: Prints a line for the user: the address, reloads, warnings.

    Raises:
        ConfigurationError: The extra `mcp` is not installed; the toolset is unknown; or the address cannot be
            listened on, needs a (longer) token, or the certificate is unusable.
    """
    _check(runtime, options)
    with imports_of_extra("mcp", cannot="serve over MCP", doing="serving over MCP"):
        from toolcrib.serve.mcp.streamable_http import serve_http as serve  # noqa: PLC0415 -- an extra; slow to import

    async with opened(runtime) as shutdown:
        await serve(runtime, options, address.checked(), say, shutdown)


def _check(runtime: Runtime, options: Options) -> None:
    # Runs before the runtime is entered, which starts servers and reads credentials.
    with imports_of_extra("mcp", cannot="serve over MCP", doing="serving over MCP"):
        import mcp.server  # noqa: F401, PLC0415 -- an extra
    if options.toolset:
        # Called for its error: an unknown toolset fails here and not at the first request.
        runtime.registry.within(options.toolset)
