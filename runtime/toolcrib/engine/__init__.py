"""`Runtime`, `Session` and the layers around every call.

This package imports `executors` and the packages below it.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers accept this in place of `typing.TYPE_CHECKING`; `typing` is slow to import
)
if TYPE_CHECKING:
    from toolcrib.engine.runtime import Engine, Runtime
    from toolcrib.engine.session import Session


def engine_of(tools: Runtime | Session) -> Engine:
    """Return the engine of a runtime or session, for packages that need more than the public methods."""
    return tools._engine  # noqa: SLF001 -- the engine is not part of the public API
