"""The runtime: a registry, the layers, the executors. A call, read top to bottom.

Runtime.call(name, arguments)
-> the tool's chain, built once          Runtime.chain_for
-> Call, frozen                          Session.call (session.py)
-> events > user > arguments > deadline > results > Executor.execute
-> Result
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from toolcrib.clock import RealClock
from toolcrib.errors import (
    ClosedRuntime,
    ConfigurationError,
    DocumentError,
    Problem,
    UnknownMode,
    did_you_mean,
)
from toolcrib.executors import Executors
from toolcrib.loading.contents import log_problems
from toolcrib.loading.linking import link
from toolcrib.loading.packs import Pack
from toolcrib.loading.scenarios import Scenario
from toolcrib.loading.sources import Loaded, load
from toolcrib.middleware import Observer, build_chain, layers_of, middleware_named
from toolcrib.model import (
    JSON,
    NOTHING,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
)
from toolcrib.protocols import BoundTool, Clock, Kinds, Middleware
from toolcrib.registry import Registry, without_duplicates
from toolcrib.session import Chain, Session, Shelf, Unavailable
from toolcrib.validation.faults import shorten

T = TypeVar("T")

log = logging.getLogger("toolcrib")

DEFAULT_PATHS = ("descriptors", "packs")
"""What is read where no path is given, as far as it exists."""


class Runtime:
    """Tools that can be called.

    Attributes:
        packs: The packs that they came in.
        scenarios: The scenarios that were found beside them.
        problems: What was wrong with the documents; the tools in them are not in the registry.
        executors: The modes.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        loaded: Loaded | None = None,
    ) -> None:
        """Hold a registry; `Runtime.open` reads one from files.

        Args:
            registry: The tools.
            executors: The modes; the installed ones unless given.
            middleware: Layers around every call, outermost first; a text names one that an installed
                distribution offers (entry-point group `toolcrib.middleware`).
            observer: Receives `CallStarted` and `CallFinished` of every call.
            clock: Time of the default session; the machine's unless given.
            seed: Seeds what mocks generate in the default session.
            loaded: What was read, where the registry came from files.
        """
        loaded = loaded or Loaded()
        self.packs: tuple[Pack, ...] = loaded.packs
        self.scenarios: tuple[Scenario, ...] = loaded.scenarios
        self.problems: tuple[Problem, ...] = loaded.problems
        self.executors = executors or Executors.installed()
        self._refused = loaded.refused
        self._middleware = tuple(
            middleware_named(item) if isinstance(item, str) else item for item in middleware
        )
        self._observer = observer
        self._shelf = Shelf(registry)
        self._session_ids = itertools.count(1)
        self.call_numbers = itertools.count(1)
        self._runner: asyncio.Runner | None = None
        self.closed = False
        self._main = self.session(id="main", clock=clock, seed=seed)

    @classmethod
    def open(
        cls,
        *paths: str | Path,
        mode: str | None = None,
        modes: Mapping[str, str] = NOTHING,
        strict: bool = False,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | None = None,
        clock: Clock | None = None,
        seed: int = 0,
    ) -> Runtime:
        """Read tools, packs and scenarios from disk, and hold what is good.

        Args:
            paths: Folders, packs or files; `descriptors` and `packs` here unless given.
            mode: The mode of every tool that has a block for it.
            modes: Tool glob -> mode; the first that fits counts, before `mode`. One that fits no tool is logged.
            strict: Raise for any problem, also for warnings and notices and for a glob of `modes` that fits
                no tool, instead of logging it.
            executors: The modes; the installed ones unless given.
            middleware: Layers around every call, outermost first.
            observer: Receives the events of every call.
            clock: Time of the default session.
            seed: Seeds what mocks generate in the default session.

        Raises:
            DocumentError: `strict`, and something is wrong with the documents.
            UnknownMode: `mode`, or a glob of `modes`, asks for one that is neither installed nor written anywhere.
            ConfigurationError: `mode` and the glob `*` of `modes` ask for different modes; or `strict`, and a
                glob of `modes` fits no tool.
        """
        other = modes.get("*", mode)
        if mode is not None and mode != other:
            raise ConfigurationError(
                f"`mode` asks for `{mode}` and the glob `*` of `modes` for `{other}`, both of every tool",
                hint="leave one of them out",
            )
        executors = executors or Executors.installed()
        runtime = cls.of(
            load(paths or default_paths(), executors),
            modes=modes if mode is None else {**modes, "*": mode},
            executors=executors,
            middleware=middleware,
            observer=observer,
            clock=clock,
            seed=seed,
        )
        if strict and runtime.problems:
            raise DocumentError(runtime.problems)
        for error in idle_globs(runtime.registry, modes):
            if strict:
                raise error
            log.warning("%s", error)
        log_problems(runtime.problems)
        return runtime

    @classmethod
    def of(
        cls,
        loaded: Loaded,
        *,
        modes: Mapping[str, str] = NOTHING,
        executors: Executors | None = None,
        **options: Any,
    ) -> Runtime:
        """A runtime over what was read, from disk or memory; `options` are those of the constructor.

        Raises:
            UnknownMode: A glob of `modes` asks for a mode that is neither installed nor written anywhere.
        """
        executors = executors or Executors.installed()
        registry, scenarios, problems = linked(loaded, executors)
        check_modes(registry, modes, executors)
        told = replace(loaded, scenarios=scenarios, problems=problems)
        return cls(with_modes(registry, modes), executors=executors, loaded=told, **options)

    @property
    def registry(self) -> Registry:
        """The tools, as they are now."""
        return self._shelf.registry

    def call(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Coroutine[Any, Any, Result]:
        """Call a tool in the default session. See `Session.call`."""
        return self._main.call(name, arguments)

    def stream(
        self, name: str, arguments: Mapping[str, JSON] | None = None
    ) -> AsyncIterator[Progress | Partial | Result]:
        """Call a tool in the default session and watch it. See `Session.stream`."""
        return self._main.stream(name, arguments)

    async def dry_run(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """What a call would do. See `Session.dry_run`."""
        return await self._main.dry_run(name, arguments)

    def call_sync(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """`call` for code without an event loop.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: There is a running event loop: `await call(...)` there.
        """
        if _loop_is_running():
            raise ConfigurationError(
                "`call_sync` was called inside a running event loop",
                hint="write `await runtime.call(...)` there",
            )
        self.check_open()
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self.call(name, arguments))

    def session(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the session's own name for it
        seed: int = 0,
        clock: Clock | None = None,
        registry: Registry | None = None,
        user: str = "",
        caller: str = "",
        correlation: str = "",
    ) -> Session:
        """An isolated session: mock state, counters and time of its own, and the same `call`.

        Args:
            id: Part of every keyed draw; numbered unless given.
            seed: Seeds what mocks generate.
            clock: Its time; the machine's unless given.
            registry: Its tools; the runtime's unless given.
            user: On whose behalf it calls.
            caller: Which agent or program calls.
            correlation: Ties its calls to those of other systems.
        """
        return Session(
            self,
            id=id if id is not None else f"session-{next(self._session_ids)}",
            seed=seed,
            clock=RealClock() if clock is None else clock,
            shelf=self._shelf if registry is None else Shelf(registry),
            user=user,
            caller=caller,
            correlation=correlation,
        )

    def chain_for(self, tool: Descriptor) -> Chain:
        """The chain of a descriptor. That of a tool of the runtime's own registry is built once and shared."""
        shelf = self._shelf
        if shelf.registry.get(tool.name) is not tool:
            return self._chain(tool)
        chain = shelf.chains.get(tool.name)
        if chain is None:
            chain = shelf.chains[tool.name] = self._chain(tool)
        return chain

    def _chain(self, tool: Descriptor) -> Chain:
        reason = self.unavailable(tool)
        executor = self.executors.get(tool.mode) if tool.mode is not None and not reason else None
        if executor is None:
            bound: BoundTool = Unavailable(reason)
            layers = [layer for name, layer in self._layers(tool, bound) if name in {"events", "user"}]
        else:
            bound = executor.bind(tool)
            layers = [layer for _name, layer in self._layers(tool, bound)]
        return Chain(tool, bound, build_chain(layers, bound.execute))

    def _layers(self, tool: Descriptor, bound: BoundTool) -> list[tuple[str, Middleware]]:
        return layers_of(tool, bound, user=self._middleware, observer=self._observer)

    def unavailable(self, tool: Descriptor) -> str:
        """Why a tool can't run as things are, and what to write; empty if it can."""
        if tool.mode is None:
            blocks = " or ".join(f"`{mode}:`" for mode in self.executors.modes)
            return f"`{tool.name}` is unbound: write a {blocks} block in {tool.origin.place()}"
        if tool.mode not in tool.bindings:
            there = ", ".join(f"`{mode}`" for mode in tool.bindings) or "none"
            return (
                f"`{tool.name}` has no `{tool.mode}:` block ({tool.origin.place()}); its modes are: {there}"
            )
        missing = self.executors.missing(tool.mode)
        return f"mode `{tool.mode}` of `{tool.name}` {missing}" if missing else ""

    def not_found(self, name: str, registry: Registry) -> Result:
        """The result of a call to a tool that is not there: near misses, and whether its file was refused."""
        near = registry.near(name)
        message = f"there is no tool `{shorten(name)}`"
        if name in self._refused:
            message += f": its document was refused, {self._refused[name]}"
        elif near:
            message += f"; did you mean {' or '.join(f'`{match}`' for match in near)}?"
        else:
            message += f"; {_how_many(registry)}"
        return Result.failed(Outcome.NOT_FOUND, message, details={"near": list(near)})

    def check_open(self) -> None:
        """Nothing, while calls are possible.

        Raises:
            ClosedRuntime: The runtime was closed.
        """
        if self.closed:
            raise ClosedRuntime("the runtime is closed", hint="call inside `async with Runtime.open(...)`")

    async def aclose(self) -> None:
        """Give back what the executors hold. A later call raises ClosedRuntime."""
        self.closed = True
        await self.executors.aclose()

    def close(self) -> None:
        """`aclose` for code without an event loop."""
        with self._runner or asyncio.Runner() as runner:
            runner.run(self.aclose())
        self._runner = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _how_many(registry: Registry) -> str:
    many = len(registry)
    return f"{many or 'no'} tool{' is' if many == 1 else 's are'} loaded"


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def default_paths() -> tuple[str, ...]:
    """`descriptors` and `packs` of the working directory, as far as they exist; else `descriptors`."""
    return tuple(path for path in DEFAULT_PATHS if Path(path).is_dir()) or DEFAULT_PATHS[:1]


def linked(loaded: Loaded, kinds: Kinds) -> tuple[Registry, tuple[Scenario, ...], tuple[Problem, ...]]:
    """What was read, put together: the second of two tools of one name and scenarios that do not fit are refused.

    Returns:
        The registry, the scenarios that fit it, and all problems in order of file and line.
    """
    tools, duplicates = without_duplicates(loaded.tools)
    registry = Registry(tools)
    problems = [*loaded.problems, *duplicates]
    scenarios = []
    for scenario in loaded.scenarios:
        faults = link(scenario, registry, kinds, loaded.refused)
        problems += faults
        if not any(fault.severity == "error" for fault in faults):
            scenarios.append(scenario)
    for scenario in loaded.refused_scenarios:
        problems += link(scenario, registry, kinds, loaded.refused)
    problems.sort(key=lambda problem: (problem.source, problem.line, problem.column))
    return registry, tuple(scenarios), tuple(problems)


def check_modes(registry: Registry, modes: Mapping[str, str], kinds: Kinds) -> None:
    """Refuse a mode that no tool can be in; a misspelt one would change nothing, and nobody would notice.

    A tool that is named without wildcards needs no check: it becomes unavailable and says why.

    Raises:
        UnknownMode: The mode is neither installed nor the name of a block of any tool.
    """
    known = {*kinds.modes, *(mode for tool in registry.values() for mode in tool.bindings)}
    for glob, mode in modes.items():
        if mode not in known and glob not in registry:
            there = ", ".join(f"`{name}`" for name in sorted(known)) or "none"
            hint = did_you_mean(mode, known) or f"the modes are: {there}"
            raise UnknownMode(f"there is no mode `{mode}`", hint=hint)


def idle_globs(registry: Registry, modes: Mapping[str, str]) -> Iterator[ConfigurationError]:
    """An error for each glob that fits no tool, with near misses; `*` may stand for no tool at all."""
    for glob in modes:
        if glob != "*" and not any(fnmatchcase(name, glob) for name in registry):
            hint = did_you_mean(glob.strip("*?"), registry) or _how_many(registry)
            message = f"`{glob}` in `modes` fits no tool, so it changes nothing"
            yield ConfigurationError(message, code="unknown_tool", hint=hint)


def with_modes(registry: Registry, modes: Mapping[str, str]) -> Registry:
    """The registry with other modes in force: tool glob -> mode, the first that fits counts.

    A tool that is named without wildcards gets the mode in any case, and is unavailable if it has no block
    for it; a glob passes over tools without one.
    """
    if not modes:
        return registry
    return registry.with_tools(_in_modes(registry.values(), modes))


def _in_modes(tools: Iterable[Descriptor], modes: Mapping[str, str]) -> Iterable[Descriptor]:
    for tool in tools:
        glob = next((glob for glob in modes if fnmatchcase(tool.name, glob)), None)
        if glob is None or modes[glob] == tool.mode:
            continue
        if modes[glob] in tool.bindings or glob == tool.name:
            yield replace(tool, mode=modes[glob])
