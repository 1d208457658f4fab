"""Tools as an MCP server: over stdio and streamable HTTP, in the handshake era and since 2026-07-28, with one server object.

`serve_stdio` and `serve_http` need the extra `mcp`; nothing of it is imported before they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.mcp.options import (
    CertificateFiles,
    ClientLimits,
    ListenAddress,
    Options,
    Say,
    StdoutError,
)

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

__all__ = [
    "CertificateFiles",
    "ClientLimits",
    "ListenAddress",
    "Options",
    "StdoutError",
    "serve_http",
    "serve_stdio",
]


async def serve_stdio(runtime: Runtime, options: Options, say: Say) -> None:
    """Serve the client at the other end of stdin and stdout, until it or a signal ends that.

    Args:
        runtime: The tools.
        options: What is offered, and how.
        say: Tells people what goes on; never on stdout.

    Raises:
        ConfigurationError: The extra `mcp` is not installed, or there is no such toolset.
        StdoutError: stdout can't be written to. A client that went away is no error.
    """
    _check(runtime, options)
    from toolcrib.serve.mcp.stdio import serve_stdio as serve  # noqa: PLC0415 -- an extra, and slow to import

    async with runtime:
        await serve(runtime, options, say)


async def serve_http(runtime: Runtime, options: Options, address: ListenAddress, say: Say) -> None:
    """Serve whoever asks at an address, until a signal ends that.

    Args:
        runtime: The tools.
        options: What is offered, and how.
        address: Where, and for whom.
        say: Tells people where it is served, and what goes on.

    Raises:
        ConfigurationError: The extra `mcp` is not installed; there is no such toolset; or the address can't be
            listened at, must not without a long token, or not with this certificate.
    """
    _check(runtime, options)
    from toolcrib.serve.mcp.streamable_http import serve_http as serve  # noqa: PLC0415 -- as above

    async with runtime:
        await serve(runtime, options, address.checked(), say)


def _check(runtime: Runtime, options: Options) -> None:
    """Raise what stands in the way before anything is begun."""
    try:
        import mcp.server  # noqa: F401, PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError(
            f"tools are served over MCP with the extra `mcp`: {error}",
            code="missing_extra",
            hint="pip install 'toolcrib[mcp]'",
        ) from None
    if options.toolset:
        runtime.registry.within(options.toolset)
