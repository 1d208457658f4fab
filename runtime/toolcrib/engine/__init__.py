"""`Runtime` and `Session`, and the layers around every call.

It imports `executors` and the rooms below it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, which is slow to import
if TYPE_CHECKING:
    from toolcrib.engine.runtime import Engine, Runtime


def engine_of(runtime: Runtime) -> Engine:
    """The engine of a runtime, for rooms that need more than its public methods."""
    return runtime._engine  # noqa: SLF001 -- callers of a runtime do not see it
