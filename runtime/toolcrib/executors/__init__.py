"""Executors, one per mode, discovered by entry point and imported on first use.

This room imports `formats` and the rooms below it. Executors are registered in the entry point group
`toolcrib.executors`, under the name of their mode. No other module selects code by the name of a mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.core.protocols import Executor, Remote

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server
    from toolcrib.loading.format_contract import Formats
    from toolcrib.security.requirements import Requirements
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need

GROUP = "toolcrib.executors"

_MEMBERS = ("block_schema", "check", "bind", "aclose")
"""The members that every executor has."""

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "a2a": "toolcrib.executors.a2a:A2aExecutor",
        "client": "toolcrib.executors.client:ClientExecutor",
        "exec": "toolcrib.executors.exec:ExecExecutor",
        "live": "toolcrib.executors.live:LiveExecutor",
        "mcp": "toolcrib.executors.mcp:McpExecutor",
        "mock": "toolcrib.executors.mock:MockExecutor",
        "python": "toolcrib.executors.python:PythonExecutor",
    }
)
"""toolcrib's own modes, as its entry points declare them: mode -> `module:class`."""


class Executors:
    """The available executors by mode. Each one is created on first use and kept until `aclose`.

    Attributes:
        targets: Mode -> `module:class`; empty unless the executors were created by `named` or `installed`.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Executor]]) -> None:
        self.targets: Mapping[str, str] = {}
        self._makers = dict(sorted(makers.items()))
        self._made: dict[str, Executor] = {}
        self._broken: dict[str, str] = {}

    @classmethod
    def installed(cls) -> Executors:
        """Every executor that an installed distribution provides."""
        return cls.named(_installed_targets())

    @classmethod
    def of_modes(cls, modes: Mapping[str, bool]) -> Executors:
        """Executors of modes that are known to be installed, without reading entry points up front.

        Entry points are read when a third-party mode is first used.

        Args:
            modes: Mode -> whether it is one of toolcrib's own.
        """
        found: dict[str, str] = {}

        def maker_of(mode: str) -> Callable[[], Executor]:
            def make() -> Executor:
                # Scanning the installed distributions is slow: done once, and only for third-party modes.
                if not found:
                    found.update(_installed_targets())
                if mode not in found:
                    raise ImportError("no installed distribution provides it")
                return _maker(found[mode])()

            return make

        return cls(
            {
                mode: _maker(BUILT_IN[mode]) if own and mode in BUILT_IN else maker_of(mode)
                for mode, own in modes.items()
            }
        )

    @classmethod
    def named(cls, targets: Mapping[str, str]) -> Executors:
        """Executors by target, mode -> `module:class`. A target is imported on first use."""
        executors = cls({mode: _maker(target) for mode, target in targets.items()})
        executors.targets = dict(targets)
        return executors

    @cached_property
    def formats(self) -> Formats:
        """The third-party document formats that are read in addition to toolcrib's own."""
        # Deferred: a start from the index reads no documents and needs no formats.
        from toolcrib.formats.known_formats import FORMATS  # noqa: PLC0415

        return FORMATS

    @property
    def modes(self) -> tuple[str, ...]:
        """The names of the installed modes, sorted. Does not import any executor."""
        return tuple(self._makers)

    @property
    def built_in(self) -> frozenset[str]:
        """The modes that toolcrib itself implements."""
        # Compares targets, not names: another distribution may replace a mode under the same name.
        return frozenset(mode for mode, target in self.targets.items() if BUILT_IN.get(mode) == target)

    @property
    def broken(self) -> Mapping[str, str]:
        """The modes that failed to load or to answer, with the reason."""
        return self._broken

    def add(self, mode: str, executor: Executor) -> None:
        """Add the executor of a mode. It is closed with the others.

        Raises:
            ConfigurationError: The mode exists, its name is invalid, or the object is not an executor.
        """
        if mode in self._makers:
            target = self.targets.get(mode)
            where = f" ({target})" if target else ""
            hint = "choose another name, or pass `executors=` to `Runtime` to replace it"
            raise ConfigurationError(
                f"the mode `{mode}` exists already{where}", code="duplicate_mode", hint=hint
            )
        if not mode.isidentifier() or mode in Descriptor._fields:
            hint = "use letters, digits and `_`; names of descriptor keys are reserved"
            raise ConfigurationError(f"`{mode}` is not a valid name of a mode", code="bad_mode", hint=hint)
        missing = [each for each in _MEMBERS if not hasattr(executor, each)]
        if missing or isinstance(executor, type):
            kind = executor.__name__ if isinstance(executor, type) else type(executor).__name__
            listed = ", ".join(f"`{each}`" for each in missing)
            why = f"it lacks {listed}" if missing else "it is a class"
            hint = "pass an instance that has the members of `toolcrib.protocols.Executor`"
            message = f"`{kind}` is not an executor: {why}"
            raise ConfigurationError(message, code="bad_mode", hint=hint)
        self._makers = dict(sorted({**self._makers, mode: lambda: executor}.items()))

    def get(self, mode: str) -> Executor | None:
        """The executor of a mode; None if none is installed or it cannot be created."""
        if mode not in self._made and mode in self._makers and mode not in self._broken:
            try:
                self._made[mode] = self._makers[mode]()
            # Importing a third-party distribution runs its code, which may raise anything; the other modes
            # must stay usable.
            except Exception as error:  # noqa: BLE001
                self._give_up(mode, str(error) if isinstance(error, ImportError) else _error_text(error))
        return self._made.get(mode)

    def made(self, mode: str) -> Executor | None:
        """The executor of a mode if it was created before."""
        return self._made.get(mode)

    def _give_up(self, mode: str, why: str) -> None:
        # Deferred: needed only if a mode is broken.
        import logging  # noqa: PLC0415

        from toolcrib.core.text import escape_terminal  # noqa: PLC0415

        # The text comes from third-party code and is printed on terminals.
        self._broken[mode] = why = escape_terminal(why)
        logging.getLogger("toolcrib").warning("mode `%s` cannot be used: %s", mode, why)

    def missing(self, mode: str) -> str:
        """Why a mode cannot be used; empty if it can."""
        if mode not in self._makers:
            installed = ", ".join(f"`{mode}`" for mode in self._makers) or "none"
            return f"is not installed; the installed modes are: {installed}"
        return "" if self.get(mode) is not None else f"cannot be used: {self._broken[mode]}"

    def blocks(self) -> dict[str, Schema]:
        """Mode -> JSON Schema of its block, for every usable mode."""
        return {mode: schema for mode in self.modes if (schema := self.schema_for(mode)) is not None}

    def schema_for(self, mode: str) -> Schema | None:
        """The JSON Schema of a mode's block; None if the mode is not installed or its property fails."""
        executor = self.get(mode)
        if executor is None:
            return None
        try:
            return executor.block_schema
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`block_schema` failed: {_error_text(error)}")
            # Otherwise `get` would keep returning an executor that is reported as broken.
            del self._made[mode]
            return None

    def check_binding(self, mode: str, descriptor: Descriptor) -> Sequence[Problem]:
        """The problems that the mode's executor finds in the descriptor's block.

        If the executor itself fails, that failure is the only problem.
        """
        executor = self.get(mode)
        if executor is None:
            return ()
        try:
            return executor.check(descriptor)
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            return [_failed_check(mode, error)]

    def annotations_of(self, mode: str, block: JSON) -> Mapping[str, bool]:
        """The tool annotations that a mode derives from its block; empty if the mode derives none."""
        # An optional member of the executor protocol, like `remote`, `contained` and `needs` below.
        said = getattr(self.get(mode), "annotations", None)
        if said is None or not isinstance(block, dict):
            return {}
        try:
            annotations: Mapping[str, bool] = said(block)
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`annotations` failed: {_error_text(error)}")
            return {}
        return annotations

    def remote_of(self, mode: str, name: str, block: JSON) -> Remote | None:
        """The server tool that the block of tool `name` refers to; None if the tool is not remote."""
        said = getattr(self.get(mode), "remote", None)
        if said is None or not isinstance(block, dict):
            return None
        try:
            remote: Remote | None = said(name, block)
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`remote` failed: {_error_text(error)}")
            return None
        return remote

    def is_contained(self, mode: str) -> bool:
        """Whether a mode declares that its calls stay within this process. The default is False."""
        return getattr(self.get(mode), "contained", False) is True

    def keeps_state(self, mode: str, tool: Descriptor) -> bool:
        """Whether calls of a tool in a mode depend on earlier calls of their session. The default is False."""
        said = getattr(self.get(mode), "keeps_state", None)
        if said is None or mode not in tool.bindings:
            return False
        try:
            return said(tool) is True
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`keeps_state` failed: {_error_text(error)}")
            return False

    def checks_machine(self, mode: str) -> bool:
        """Whether a mode can tell what this machine lacks to run a tool."""
        return hasattr(self.get(mode), "lacks")

    def lacks(self, mode: str, tool: Descriptor, base: str) -> str:
        """What this machine lacks to run a tool in a mode, and how to fix it; empty if nothing is known to be missing."""
        said = getattr(self.get(mode), "lacks", None)
        if said is None or mode not in tool.bindings:
            return ""
        try:
            lacking: str = said(tool, base)
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`lacks` failed: {_error_text(error)}")
            return ""
        return lacking

    def required_variables(
        self, mode: str, tool: Descriptor, servers: Mapping[str, Server] = NOTHING
    ) -> tuple[str, ...] | None:
        """The environment variables that must be set so that `lacks` is empty; None if more than variables decides.

        Args:
            mode: The mode.
            tool: The tool.
            servers: The servers that blocks may name.
        """
        executor = self.get(mode)
        said = getattr(executor, "required_variables", None)
        if said is None or mode not in tool.bindings:
            return None if hasattr(executor, "lacks") else ()
        remote = self.remote_of(mode, tool.name, tool.bindings[mode])
        try:
            lists: list[tuple[str, ...] | None] = [
                said(tool, servers.get(name)) for name in (("",) if remote is None else remote.servers)
            ]
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`required_variables` failed: {_error_text(error)}")
            return None
        known = [names for names in lists if names is not None]
        together = dict.fromkeys(name for names in known for name in names)
        return tuple(together) if len(known) == len(lists) else None

    def may_complete(self, mode: str) -> bool:
        """Whether binding a tool in a mode may complete its schemas."""
        return hasattr(self.get(mode), "completes")

    def completes(self, tool: Descriptor) -> bool:
        """Whether binding a tool in its mode completes its schemas."""
        mode = tool.mode or ""
        if mode not in tool.bindings:
            return False
        try:
            completes: bool = self.get(mode).completes(tool)  # type: ignore[union-attr]
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`completes` failed: {_error_text(error)}")
            return False
        return completes

    def needs_of(self, mode: str, tool: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """What a tool needs permission for in a mode; nothing if the mode is contained.

        The whole block is the need if the mode declares none.
        """
        executor = self.get(mode)
        if executor is None or self.is_contained(mode):
            return ()
        block = tool.bindings.get(mode)
        said = getattr(executor, "needs", None)
        needs: list[Need] = [] if said is None else [*said(tool, workspace)]
        if needs:
            return needs
        # Deferred: mocks need nothing.
        from toolcrib.security.trust_needs import needs_of_other_mode  # noqa: PLC0415

        # A mode that does not declare its needs must not be trusted more than one that does.
        place = f"{tool.origin.source}:{tool.origin.line}"
        return needs_of_other_mode(mode, block, user=f"tool {tool.name}", place=place)

    def requirements_of(
        self, mode: str, tool: Descriptor, servers: Mapping[str, Server] = NOTHING
    ) -> Requirements | None:
        """What calls of a tool in a mode use outside the program; None if the mode does not say.

        Args:
            mode: The mode.
            tool: The tool, with a block for it.
            servers: The servers that blocks may name.
        """
        executor = self.get(mode)
        said = getattr(executor, "requirements", None)
        if said is None:
            # Deferred: loading asks only for tools that declare capabilities or have such a mode.
            from toolcrib.security.requirements import NO_REQUIREMENTS  # noqa: PLC0415

            return NO_REQUIREMENTS if executor is not None and self.is_contained(mode) else None
        remote = self.remote_of(mode, tool.name, tool.bindings.get(mode)) if servers else None
        try:
            several: list[Requirements] = [
                said(tool, servers.get(name)) for name in (("",) if remote is None else remote.servers)
            ]
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            self._give_up(mode, f"`requirements` failed: {_error_text(error)}")
            return None
        return several[0] if len(several) == 1 else several[0].joined(several[1:])

    @property
    def empty_handed(self) -> bool:
        """Whether every executor created so far declares (`keeps_nothing`) that it holds nothing to release."""
        return all(getattr(executor, "keeps_nothing", False) for executor in self._made.values())

    async def release(self, session_id: str) -> None:
        """Release what the executors hold for one session, after it has ended."""
        for executor in self._made.values():
            release = getattr(executor, "release", None)
            if release is not None:
                await release(session_id)

    async def aclose(self) -> None:
        """Close every executor that was created, all at the same time. An executor that is used again is created anew.

        Cancelling it cancels the closing of each, which then ends its processes without a grace period.

        Raises:
            ExceptionGroup: The exceptions of executors that failed to close; the others are closed.
        """
        # Emptied before the first await: a call that arrives meanwhile must not get a closing executor.
        made, self._made = self._made, {}
        import asyncio  # noqa: PLC0415 -- already imported where a coroutine is awaited

        closing = (executor.aclose() for executor in made.values())
        ended = await asyncio.gather(*closing, return_exceptions=True)
        errors = [error for error in ended if isinstance(error, Exception)]
        if errors:
            raise ExceptionGroup("cannot close all executors", errors)


def is_executor(value: object) -> bool:
    """Whether an object, or a class, looks like an executor."""
    return hasattr(value, "block_schema") and hasattr(value, "bind")


def is_provider(value: object) -> bool:
    """Whether an object looks like a `ToolProvider`."""
    return not isinstance(value, type) and hasattr(value, "list") and hasattr(value, "call")


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _failed_check(mode: str, error: Exception) -> Problem:
    message = f"mode `{mode}` failed to check this block: {_error_text(error)}"
    hint = "this is a bug in the mode; report it to its maintainers"
    return Problem(code="check_failed", message=message, pointer=f"/{mode}", hint=hint)


def _installed_targets() -> dict[str, str]:
    """Mode -> `module:class` of every installed mode. The last of several with one name wins."""
    # Deferred: slow to import, and the index already has the names of the modes.
    from toolcrib.loading.fingerprints import installed_entry_points  # noqa: PLC0415

    found = {entry.name: f"{entry.module}:{entry.attr}" for entry in installed_entry_points(GROUP)}
    # An installation from source may have been made before a mode was added.
    return {**BUILT_IN, **found}


def _maker(target: str) -> Callable[[], Executor]:
    """A function that imports `module:class` and creates the executor."""

    def make() -> Executor:
        module, _, path = target.partition(":")
        executor: Executor = reduce(getattr, path.split("."), import_module(module))()  # type: ignore[operator]
        return executor

    return make
