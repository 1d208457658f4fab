"""The modes: each is an executor, found by its entry point and loaded when first used.

It imports `formats` and the rooms below it. The group of entry points is `toolcrib.executors`, and an entry point's name
is the mode. This module is the only place where a mode's name decides what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.protocols import Executor, Remote

if TYPE_CHECKING:
    from toolcrib.loading.format_contract import Formats
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need

GROUP = "toolcrib.executors"

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "client": "toolcrib.executors.client:ClientExecutor",
        "live": "toolcrib.executors.live:LiveExecutor",
        "mcp": "toolcrib.executors.mcp:McpExecutor",
        "mock": "toolcrib.executors.mock:MockExecutor",
    }
)
"""The modes of toolcrib itself, as its entry points name them: mode -> `module:class`."""


class Executors:
    """The executors that are at hand, by mode. Each is made at first use and kept until `aclose`.

    Attributes:
        targets: Mode -> `module:class`, for executors that were given or found that way.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Executor]]) -> None:
        self.targets: Mapping[str, str] = {}
        self._makers = dict(sorted(makers.items()))
        self._made: dict[str, Executor] = {}
        self._broken: dict[str, str] = {}

    @classmethod
    def installed(cls) -> Executors:
        """Every executor that an installed distribution offers."""
        return cls.named(_installed_targets())

    @classmethod
    def of_modes(cls, modes: Mapping[str, bool]) -> Executors:
        """Executors of modes that are known to be installed; entry points are read when one of others is first used.

        Args:
            modes: Name of a mode -> whether it is toolcrib's own.
        """
        found: dict[str, str] = {}

        def maker_of(mode: str) -> Callable[[], Executor]:
            def make() -> Executor:
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
        """Executors by where they lie: mode -> `module:class`. Nothing is imported before it is used."""
        executors = cls({mode: _maker(target) for mode, target in targets.items()})
        executors.targets = dict(targets)
        return executors

    @cached_property
    def formats(self) -> Formats:
        """The formats of other systems in which documents are read besides toolcrib's own."""
        from toolcrib.formats.known_formats import FORMATS  # noqa: PLC0415 -- a start from an index reads no documents

        return FORMATS

    @property
    def modes(self) -> tuple[str, ...]:
        """The names of the installed modes, sorted; nothing is loaded for it."""
        return tuple(self._makers)

    @property
    def built_in(self) -> frozenset[str]:
        """The modes that are toolcrib's own; another distribution may offer one under the same name."""
        return frozenset(mode for mode, target in self.targets.items() if BUILT_IN.get(mode) == target)

    @property
    def broken(self) -> Mapping[str, str]:
        """The modes that turned out not to be importable -> why."""
        return self._broken

    def get(self, mode: str) -> Executor | None:
        """The executor of a mode; None where none is installed, or where what is installed can't be made."""
        if mode not in self._made and mode in self._makers and mode not in self._broken:
            try:
                self._made[mode] = self._makers[mode]()
            except Exception as error:  # noqa: BLE001 -- what a third party's distribution does when it is imported is its own
                self._give_up(mode, str(error) if isinstance(error, ImportError) else _error_text(error))
        return self._made.get(mode)

    def _give_up(self, mode: str, why: str) -> None:
        import logging  # noqa: PLC0415 -- most modes can be used

        from toolcrib.core.text import escape_terminal  # noqa: PLC0415 -- as above

        self._broken[mode] = why = escape_terminal(why)
        logging.getLogger("toolcrib").warning("mode `%s` cannot be used: %s", mode, why)

    def missing(self, mode: str) -> str:
        """Why a mode can't be used; empty if it can."""
        if mode not in self._makers:
            installed = ", ".join(f"`{mode}`" for mode in self._makers) or "none"
            return f"is not installed; the installed modes are: {installed}"
        return "" if self.get(mode) is not None else f"cannot be used: {self._broken[mode]}"

    def blocks(self) -> dict[str, Schema]:
        """Mode -> JSON Schema of its block, of every installed mode."""
        return {mode: schema for mode in self.modes if (schema := self.schema_for(mode)) is not None}

    def schema_for(self, mode: str) -> Schema | None:
        """The JSON Schema of a mode's block; None where the mode is not installed, or has none to give."""
        executor = self.get(mode)
        if executor is None:
            return None
        try:
            return executor.block_schema
        except Exception as error:  # noqa: BLE001 -- a third party's property may raise anything
            self._give_up(mode, f"`block_schema` failed: {_error_text(error)}")
            del self._made[mode]
            return None

    def check_binding(self, mode: str, descriptor: Descriptor) -> Sequence[Problem]:
        """What the mode's executor finds wrong with the descriptor's block; if it fails at that, just this."""
        executor = self.get(mode)
        if executor is None:
            return ()
        try:
            return executor.check(descriptor)
        except Exception as error:  # noqa: BLE001 -- a third party's check may raise anything
            return [_failed_check(mode, error)]

    def annotations_of(self, mode: str, block: JSON) -> Mapping[str, bool]:
        """What a mode's block says a tool does to the world; nothing where the mode does not tell."""
        said = getattr(self.get(mode), "annotations", None)
        if said is None or not isinstance(block, dict):
            return {}
        try:
            annotations: Mapping[str, bool] = said(block)
        except Exception as error:  # noqa: BLE001 -- as above
            self._give_up(mode, f"`annotations` failed: {_error_text(error)}")
            return {}
        return annotations

    def remote_of(self, mode: str, name: str, block: JSON) -> Remote | None:
        """The tool of a server that a block of the tool `name` stands for; None where it stands for itself."""
        said = getattr(self.get(mode), "remote", None)
        if said is None or not isinstance(block, dict):
            return None
        try:
            remote: Remote | None = said(name, block)
        except Exception as error:  # noqa: BLE001 -- as above
            self._give_up(mode, f"`remote` failed: {_error_text(error)}")
            return None
        return remote

    def is_contained(self, mode: str) -> bool:
        """Whether calls in a mode stay within this process, as the mode says; one that does not say so is none."""
        return getattr(self.get(mode), "contained", False) is True

    def needs_of(self, mode: str, tool: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """What a tool needs in a mode: nothing in one that is contained, all of its block in one that does not say.

        So a mode that forgets to say what it needs is no more trusted than one that says it.
        """
        executor = self.get(mode)
        if executor is None or self.is_contained(mode):
            return ()
        block = tool.bindings.get(mode)
        said = getattr(executor, "needs", None)
        needs: list[Need] = [] if said is None else [*said(tool, workspace)]
        if needs:
            return needs
        from toolcrib.security.trust_needs import needs_of_other_mode  # noqa: PLC0415 -- mocks need nothing

        place = f"{tool.origin.source}:{tool.origin.line}"
        return needs_of_other_mode(mode, block, user=f"tool {tool.name}", place=place)

    @property
    def empty_handed(self) -> bool:
        """Whether no executor that was made has anything to give back, as it says by `keeps_nothing`."""
        return all(getattr(executor, "keeps_nothing", False) for executor in self._made.values())

    async def release(self, session_id: str) -> None:
        """A session is over: what the modes hold for it alone is given back."""
        for executor in self._made.values():
            release = getattr(executor, "release", None)
            if release is not None:
                await release(session_id)

    async def aclose(self) -> None:
        """Close every executor that was made; each is made anew when used again.

        Raises:
            ExceptionGroup: What executors raised while they closed; all of them were asked to.
        """
        made, self._made = self._made, {}
        errors: list[Exception] = []
        for executor in made.values():
            try:
                await executor.aclose()
            except Exception as error:  # noqa: BLE001 -- a third party's executor may raise anything
                errors.append(error)
        if errors:
            raise ExceptionGroup("cannot close all executors", errors)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _failed_check(mode: str, error: Exception) -> Problem:
    message = f"mode `{mode}` failed to check this block: {_error_text(error)}"
    hint = "this is a bug in the mode; report it to its maintainers"
    return Problem(code="check_failed", message=message, pointer=f"/{mode}", hint=hint)


def _installed_targets() -> dict[str, str]:
    """Mode -> `module:class`, of every mode that an installed distribution offers; of two the last one counts."""
    from importlib.metadata import entry_points  # noqa: PLC0415 -- an index knows the names, and this is slow

    return {entry.name: f"{entry.module}:{entry.attr}" for entry in entry_points(group=GROUP)}


def _maker(target: str) -> Callable[[], Executor]:
    """Makes the executor that lies at `module:class`; its distribution is imported only then."""

    def make() -> Executor:
        module, _, path = target.partition(":")
        executor: Executor = reduce(getattr, path.split("."), import_module(module))()  # type: ignore[operator]
        return executor

    return make
