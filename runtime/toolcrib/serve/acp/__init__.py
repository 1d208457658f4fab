"""Serve a model's tool loop as an agent of the Agent Client Protocol, for an editor that starts it.

`serve_stdio` needs the extra `acp`, which is imported only when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.serve.acp.editor_agent import EditorAgent
from toolcrib.serve.acp.sdk_import import import_sdk
from toolcrib.serve.http_common.lifecycle import opened
from toolcrib.serve.http_common.listen_address import Say
from toolcrib.serve.http_common.stdio_pipes import StdioPipes, StdoutError

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

__all__ = ["EditorAgent", "serve_stdio"]


async def serve_stdio(runtime: Runtime, options: EditorAgent, say: Say) -> None:
    """Serve the editor at the other end of stdin and stdout until it disconnects or a signal arrives.

    Args:
        runtime: The tools.
        options: The model, and which tools it may use.
        say: Prints a line for the user; never on stdout.

    Raises:
        ConfigurationError: The extra `acp` is not installed.
        StdoutError: stdout cannot be written to. An editor that disconnects is not an error.
    """
    with imports_of_extra("acp", cannot="serve over ACP", doing="serving over ACP"):
        import_sdk()
        from toolcrib.serve.acp import agent  # noqa: PLC0415 -- an extra; slow to import

    # Entering the runtime imports Python sources and hooks, whose code may print.
    with StdioPipes.claimed(limit=agent.LONGEST_LINE) as pipes:
        async with opened(runtime) as shutdown:
            await agent.serve_pipes(runtime, options, say, pipes, shutdown)
    if pipes.error is not None:
        raise StdoutError(*pipes.error.args)
