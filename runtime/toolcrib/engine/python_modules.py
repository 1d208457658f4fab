"""Python sources of a runtime: import them once they are trusted, and remember their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import NotReady, Problem
from toolcrib.core.model import Descriptor, Outcome, Result
from toolcrib.core.pointers import file_and_line
from toolcrib.engine.workspaces import home_of_module
from toolcrib.formats.descriptor_document import document_of
from toolcrib.loading.cache.definitions import Definitions, load_definitions, save_definitions
from toolcrib.loading.python_sources import ModuleTools, PythonSource
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.trust import Trust, Untrusted, subject_of_module

if TYPE_CHECKING:
    from toolcrib.executors import Executors
    from toolcrib.loading.snapshot import LoadedProject
    from toolcrib.registry.registry import Registry


class ModuleHost(Protocol):
    """The parts of the engine that its Python sources use."""

    @property
    def registry(self) -> Registry:
        """The active tools."""
        ...

    @property
    def stock(self) -> LoadedProject:
        """The loaded project, with its Python sources."""
        ...

    @property
    def executors(self) -> Executors:
        """The modes."""
        ...

    @property
    def trust(self) -> Trust:
        """Decides which modules may be imported."""
        ...


class PythonModules:
    """The imported modules of one runtime. A reload does not import a module again.

    Attributes:
        imported: The tools of the sources that were imported, also of those that failed.
    """

    def __init__(self, owner: ModuleHost, provided: Mapping[str, Any]) -> None:
        """Import nothing yet.

        Args:
            owner: The engine.
            provided: The dependencies of factories and classes, by name.
        """
        self.imported: dict[PythonSource, ModuleTools] = {}
        self._denied: dict[PythonSource, NotReady] = {}
        self._owner = owner
        self._provided = provided

    @property
    def unimported(self) -> tuple[PythonSource, ...]:
        """The sources that were not imported by this runtime."""
        return tuple(source for source in self._owner.stock.python if source not in self.imported)

    @property
    def untried(self) -> bool:
        """Whether some source was neither imported nor denied."""
        return any(source not in self._denied for source in self.unimported)

    def load(self) -> bool:
        """Import the modules that are trusted; True if there were any."""
        before = len(self.imported)
        for source in self.unimported:
            try:
                # The files run next, so a change since the decision counts.
                self._owner.trust.check(subject_of_module(home_of_module(source)), fresh=True)
            except Untrusted as error:
                self._denied[source] = error
                continue
            self._denied.pop(source, None)
            self.imported[source] = self._imported(source)
        return len(self.imported) > before

    def _imported(self, source: PythonSource) -> ModuleTools:
        from toolcrib.executors.python.module_tools import import_tools  # noqa: PLC0415 -- imports typed tools

        found = import_tools(source, self._owner.executors, self._provided)
        # After a failure, the last definitions are still the best that can be shown.
        if found.tools:
            save_definitions(source.module, source.root, _definitions(found.tools))
        return found

    def problems(self) -> tuple[Problem, ...]:
        """One error for each source that is not trusted."""
        return tuple(
            Problem(code=error.code, message=error.message, hint=error.hint).at(*_line_of(source), 1)
            for source, error in self._denied.items()
        )

    def why_unknown(self, name: str) -> Result | None:
        """The result of a call of a tool that a source may have that was not imported; None if all were."""
        called = f"unknown tool `{shorten(name)}`"
        for source, error in self._denied.items():
            message = f"{called}; the tools of `{source.name}` are not known: {error}"
            outcome = Outcome.DENIED if error.denied else Outcome.UNAVAILABLE
            return Result.failure(outcome, message, code=error.code)
        for source, found in self.imported.items():
            if found.problems and not found.tools:
                message = f"{called}; the tools of `{source.name}` are not known: {found.problems[0]}"
                return Result.failure(Outcome.UNAVAILABLE, message, code=found.problems[0].code)
        return None


def _line_of(source: PythonSource) -> tuple[str, int]:
    return file_and_line(source.place) if source.place else (source.file, 1)


def _definitions(tools: Iterable[Descriptor]) -> Definitions:
    when = RealClock().now().isoformat(timespec="seconds")
    return Definitions(
        when, tuple((document_of(each), each.origin.source, each.origin.line) for each in tools)
    )


def save_completed(before: Sequence[Descriptor], completed: Iterable[Descriptor], trust: Trust) -> None:
    """Cache the schemas that functions gave to the tools of files.

    Args:
        before: The tools as the files declare them.
        completed: The same tools with their schemas; some may be missing.
        trust: Knows the project of each file.
    """
    calls = {tool.name: _call_of(tool) for tool in before}
    for tool in completed:
        if calls.get(tool.name):
            save_definitions(calls[tool.name], trust.folder_of(tool.origin.source), _definitions([tool]))


def load_completed(
    incomplete: Iterable[Descriptor], trust: Trust
) -> tuple[list[Descriptor], dict[str, tuple[str, bool]]]:
    """Complete the tools of files from the cache.

    Returns:
        The completed tools; and for each its name, with the time of the import, and whether its files have changed since.
    """
    tools: list[Descriptor] = []
    when: dict[str, tuple[str, bool]] = {}
    for tool in incomplete:
        call = _call_of(tool)
        known = load_definitions(call, trust.folder_of(tool.origin.source)) if call else None
        if known is not None and known.tools:
            document = known.tools[0][0]
            changes = {key: document[key] for key in ("input_schema", "output_schema") if key in document}
            if not tool.description and isinstance(document.get("description"), str):
                changes["description"] = document["description"]
            if isinstance(changes.get("input_schema", {}), dict):
                tools.append(tool._replace(**changes))
                when[tool.name] = (known.when, known.changed)
    return tools, when


def _call_of(tool: Descriptor) -> str:
    block: Any = tool.bindings.get(tool.mode or "")
    call = block.get("call") if isinstance(block, dict) else None
    return call if isinstance(call, str) else ""
