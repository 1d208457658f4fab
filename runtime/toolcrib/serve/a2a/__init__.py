"""Serve tools over A2A: an agent whose skills are the tools, over JSON-RPC and HTTP+JSON.

`serve_http` needs the extra `a2a`, which is imported only when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from toolcrib.core.clock import RealClock
from toolcrib.core.dependencies import imports_of_extra
from toolcrib.serve.a2a.agent_options import AgentOptions, CardKey
from toolcrib.serve.http_common.lifecycle import opened
from toolcrib.serve.http_common.listen_address import ListenAddress, Say

if TYPE_CHECKING:
    from toolcrib.core.protocols import Clock
    from toolcrib.engine.runtime import Runtime

__all__ = ["AgentOptions", "CardKey", "serve_http"]

_SPANS: Final = "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"
"""Variable that the SDK reads when it is imported."""


async def serve_http(
    runtime: Runtime,
    options: AgentOptions,
    address: ListenAddress,
    say: Say,
    *,
    clock: Clock | None = None,
) -> None:
    """Serve peers at an address until a signal arrives.

    Args:
        runtime: The tools.
        options: Which tools are served, and how.
        address: Where to listen, and which peers may call.
        say: Prints a line for the user: the address, reloads, warnings.
        clock: Clock of the ages of tasks (default: the system clock).

    Raises:
        ConfigurationError: The extra `a2a` is not installed; the toolset is unknown; the key cannot sign cards; or the
            address cannot be listened on, needs a (longer) token, or the certificate is unusable.
    """
    with (
        _without_spans_of_sdk(),
        imports_of_extra("a2a", cannot="serve over A2A", doing="serving over A2A"),
    ):
        from toolcrib.serve.a2a.agent_app import serve_http as serve  # noqa: PLC0415 -- an extra; slow to import
    if options.toolset:
        # Called for its error: an unknown toolset fails here and not at the first request.
        runtime.registry.within(options.toolset)
    async with opened(runtime) as shutdown:
        await serve(
            runtime, options, address.checked(), say, shutdown, clock=RealClock() if clock is None else clock
        )


@contextmanager
def _without_spans_of_sdk() -> Iterator[None]:
    """Within the block, the SDK is imported without its own spans, unless the variable is set.

    It makes some seventy for a call, also when nobody collects them, which takes a seventh of the time of a served call. toolcrib has its
    own spans.
    """
    given = os.environ.get(_SPANS)
    os.environ.setdefault(_SPANS, "false")
    try:
        yield
    finally:
        if given is None:
            del os.environ[_SPANS]
