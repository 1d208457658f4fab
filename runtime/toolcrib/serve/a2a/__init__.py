"""Serve tools over A2A: an agent whose skills are the tools, over JSON-RPC and HTTP+JSON.

`serve_http` needs the extra `a2a`, which is imported only when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.serve.a2a.agent_options import AgentOptions, CardKey
from toolcrib.serve.http_common.lifecycle import opened
from toolcrib.serve.http_common.listen_address import ListenAddress, Say

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

__all__ = ["AgentOptions", "CardKey", "serve_http"]


async def serve_http(runtime: Runtime, options: AgentOptions, address: ListenAddress, say: Say) -> None:
    """Serve peers at an address until a signal arrives.

    Args:
        runtime: The tools.
        options: Which tools are served, and how.
        address: Where to listen, and which peers may call.
        say: Prints a line for the user: the address, reloads, warnings.

    Raises:
        ConfigurationError: The extra `a2a` is not installed; the toolset is unknown; the key cannot sign cards; or the
            address cannot be listened on, needs a (longer) token, or the certificate is unusable.
    """
    with imports_of_extra("a2a", cannot="serve over A2A", doing="serving over A2A"):
        from toolcrib.serve.a2a.agent_app import serve_http as serve  # noqa: PLC0415 -- an extra; slow to import
    if options.toolset:
        # Called for its error: an unknown toolset fails here and not at the first request.
        runtime.registry.within(options.toolset)
    async with opened(runtime) as shutdown:
        await serve(runtime, options, address.checked(), say, shutdown)
