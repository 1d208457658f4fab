"""The class that generated stubs extend: typed calls of the tools of a runtime; see `formats.python_stubs`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from toolcrib.core.model import JSON, NOTHING
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.formats.python_stubs import changed_documents, fingerprint_of

_SHOWN: Final = 5
"""How many changes a message names."""


class ToolStub:
    """Calls the tools of a runtime or session with typed methods, which `toolcrib stubs` generates.

    A method returns the value of the result. Documents that have changed since are reported in the log when the stub is
    imported, and tools that have changed when it gets its runtime.

    Raises:
        CallError: A call did not end `ok`; the subclass is that of the outcome.
    """

    _file: ClassVar[str] = ""
    _command: ClassVar[str] = "toolcrib stubs --out FILE"
    _documents: ClassVar[Mapping[str, tuple[int, str]]] = NOTHING
    _fingerprints: ClassVar[Mapping[str, str]] = NOTHING

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A subclass of a stub would report the same again.
        if "_documents" in vars(cls):
            changed = changed_documents(cls._file, cls._documents)
            if changed:
                cls._warn([f"`{name}` has changed" for name in changed])

    def __init__(self, tools: Runtime | Session) -> None:
        """Call the tools of a runtime or session."""
        self._session = tools
        changes = [*_changes(tools, self._fingerprints)]
        if changes:
            self._warn(changes)

    @classmethod
    def _warn(cls, changes: Sequence[str]) -> None:
        shown = ", ".join(
            [*changes[:_SHOWN], *([f"and {len(changes) - _SHOWN} more"] if changes[_SHOWN:] else [])]
        )
        logging.getLogger("toolcrib").warning(
            "the stub `%s` is out of date: %s; run `%s`", cls.__module__, shown, cls._command
        )

    async def _value(self, name: str, arguments: Mapping[str, Any]) -> JSON:
        value: JSON = (await self._session.call(name, arguments)).raise_for_outcome().value
        return value


def _changes(tools: Runtime | Session, fingerprints: Mapping[str, str]) -> Iterator[str]:
    """What has changed since the stub was generated."""
    for name, fingerprint in fingerprints.items():
        tool = tools.registry.get(name)
        if tool is None:
            # A server that was not asked yet, or a module that was not imported yet, may offer it.
            if not (isinstance(tools, Runtime) and engine_of(tools).may_appear(name)):
                yield f"`{name}` does not exist"
        elif fingerprint_of(tool) != fingerprint:
            yield f"`{name}` has changed"
