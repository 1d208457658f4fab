"""The runtime: a registry, the layers, the executors. A call, read top to bottom.

Runtime.call(name, arguments)
-> the tool's chain, built once          Engine.chain_for, Binder.chain (binder.py)
-> Call, frozen                          Session.call (session.py)
-> the layers, outermost first           LAYERS (middleware/__init__.py)
-> the tool                              BoundTool.execute (executors/*)
-> Result
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ClosedRuntime, ConfigurationError, DocumentError, NotReady, Problem
from toolcrib.core.model import JSON, NOTHING, Client, Descriptor, Outcome, Partial, Progress, Result
from toolcrib.core.protocols import BoundTool, Clock, Middleware
from toolcrib.core.server_config import MODE, Catalogue, Server
from toolcrib.engine.binder import Binder
from toolcrib.engine.middleware import middleware_named
from toolcrib.engine.middleware.events import Observer
from toolcrib.engine.session import BoundChain, Session, ToolTable, Unavailable, count_phrase
from toolcrib.engine.startup import (
    OpenRequest,
    StartupState,
    apply_profile,
    idle_modes,
    start,
    start_again,
    start_over,
)
from toolcrib.executors import Executors
from toolcrib.loading.settings import NO_SETTINGS
from toolcrib.loading.snapshot import LoadedProject, log_problems
from toolcrib.registry.registry import Registry, how_many
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.trust import UNTRUSTED, Trust, TrustPolicy, Untrusted, hashes_in

if TYPE_CHECKING:
    import asyncio
    import logging
    from pathlib import Path
    from threading import Lock

    from toolcrib.core.clock import CrossLoopLock
    from toolcrib.engine.discovery import Discovery
    from toolcrib.loading.fingerprints import FileFingerprints
    from toolcrib.loading.packs import Pack
    from toolcrib.loading.projects import Project
    from toolcrib.loading.reader import LoadedDocuments
    from toolcrib.loading.reload import ReloadReport, ToolEvent
    from toolcrib.loading.scenarios.model import Scenario
    from toolcrib.loading.settings import Settings
    from toolcrib.registry.catalog import HiddenReason
    from toolcrib.security.trust import Consent, TrustRequest
    from toolcrib.servers.environment import NetworkEnvironment

T = TypeVar("T")


class Runtime:
    """Tools that can be called: `async with Runtime.open("descriptors") as tools: await tools.call(...)`."""

    __slots__ = ("__weakref__", "_engine", "_main")

    def __init__(
        self,
        registry: Registry,
        *,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        client: Client | None = None,
    ) -> None:
        """Create a runtime over a registry; `Runtime.open` reads one from files.

        Args:
            registry: The tools.
            executors: The modes; the installed ones unless given. They are closed with the runtime, so two runtimes
                have their own each.
            middleware: Layers around every call, outermost first; a text names one that an installed
                distribution offers (entry-point group `toolcrib.middleware`).
            observer: Receives `CallStarted` and `CallFinished` of every call, and what a reload changes.
            clock: Time of the default session; the machine's unless given.
            seed: Seeds what mocks generate in the default session.
            egress: `host:port` that tools may reach although the address is private, loopback or otherwise
                special, besides what the project allows.
            origins: Origin as descriptors write it -> the one that is called instead; before those of the project.
            servers: MCP servers that descriptors may name, and whose tools may be imported, by name.
            passthrough: Whether mocks that say so may hand calls on to another binding of their tools.
            client: Fulfils calls of tools in mode `client`, in every session that has none of its own.

        Raises:
            ConfigurationError: An entry of `egress` or `origins` is none, or `client` is no function.
        """
        self._run_on(
            Engine(
                registry,
                executors=executors,
                middleware=middleware,
                observer=observer,
                clock=clock,
                seed=seed,
                egress=egress,
                origins=origins,
                servers=servers,
                passthrough=passthrough,
                client=client,
            )
        )

    def _run_on(self, engine: Engine) -> None:
        self._engine = engine
        self._main = engine.default_session

    @classmethod
    def open(
        cls,
        *paths: str | Path,
        profile: str | None = None,
        mode: str | None = None,
        modes: Mapping[str, str] = NOTHING,
        strict: bool = False,
        index: bool = True,
        watch: bool = False,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        client: Client | None = None,
        trust: bool | str | None = None,
    ) -> Runtime:
        """Read tools, packs and scenarios from disk, and hold what is good.

        Args:
            paths: Folders, packs, files or a project. Unless given: the project that the working directory lies
                in, or else the folders `descriptors` and `packs` here.
            profile: Name of a profile of the project; else `TOOLCRIB_PROFILE`, else the project's own choice.
            mode: The mode of every tool that has a block for it.
            modes: Tool glob -> mode; the first that fits counts, before `mode` and before the profile. One that
                fits no tool is logged.
            strict: Raise for any problem, also for warnings and notices and for a glob of `modes` that fits
                no tool, instead of logging it.
            index: Whether what was read may be kept in the user's cache folder, and be taken from there as long
                as no file has changed.
            watch: Reload when files change, while the runtime is used as `async with`.
            executors: The modes; the installed ones unless given. With modes of your own there is no index.
            middleware: Layers around every call, outermost first.
            observer: Receives the events of every call and of every reload.
            clock: Time of the default session.
            seed: Seeds what mocks generate in the default session.
            egress: `host:port` that tools may reach although the address is private, loopback or otherwise
                special, besides what the project allows.
            origins: Origin as descriptors write it -> the one that is called instead; before those of the project.
            servers: MCP servers besides those that files name; one of the same name counts more.
            passthrough: Whether mocks that say so may hand calls on to another binding of their tools.
            client: Fulfils calls of tools in mode `client`, in every session that has none of its own.
            trust: Whether what was read may start programs, contact hosts and look secrets up. Unless said, paths
                that are given are trusted, and what is found without (and sources that lie elsewhere) as on the command
                line: by decisions of `toolcrib trust`, and `TOOLCRIB_TRUST`. True trusts all that the paths hold, False
                nothing: whatever is no mock ends `denied`. A text is the hash of what is agreed to, as
                `toolcrib trust --dry-run` tells it.

        Raises:
            DocumentError: `strict`, and something is wrong with the documents.
            UnknownMode: `mode` or a glob of `modes` asks for one that is neither installed nor written anywhere.
                Where the profile does, that is a problem, and no tool is offered.
            ConfigurationError: `mode` and the glob `*` of `modes` ask for different modes; there is no such
                profile; two paths are projects; an entry of `egress` or `origins` is none; `trust` is no hash; or
                `strict`, and a glob of `modes` fits no tool.
        """
        other = modes.get("*", mode)
        if mode is not None and mode != other:
            raise ConfigurationError(
                f"`mode` asks for `{mode}` and the glob `*` of `modes` for `{other}`, both of every tool",
                hint="leave one of them out",
            )
        asked = OpenRequest(
            paths=tuple(str(path) for path in paths),
            profile=profile,
            modes=modes if mode is None else {**modes, "*": mode},
            indexed=index and executors is None,
            watched=watch,
            servers=servers,
            trust=_policy_of(trust, [str(path) for path in paths]),
        )
        runtime = read_runtime(
            asked,
            executors=executors,
            middleware=middleware,
            observer=observer,
            clock=clock,
            seed=seed,
            egress=egress,
            origins=origins,
            passthrough=passthrough,
            client=client,
        )
        if strict and runtime.problems:
            raise DocumentError(runtime.problems)
        for error in idle_modes(runtime.registry, modes):
            if strict:
                raise error
            _log().warning("%s", error)
        if runtime.problems:
            log_problems(runtime.problems)
        return runtime

    def __repr__(self) -> str:
        """What it holds: `Runtime(78 tools, 3 packs, 87 scenarios, project 'shop')`."""
        parts = [count_phrase(len(self.registry), "tool")]
        parts += [
            count_phrase(len(found), noun)
            for found, noun in ((self.packs, "pack"), (self.scenarios, "scenario"))
            if found
        ]
        parts += [count_phrase(len(self.servers), "server")] if self.servers else []
        parts += [f"project {self.project.name!r}"] if self.project is not None else []
        parts += ["closed"] if self._engine.closed else []
        return f"Runtime({', '.join(parts)})"

    @property
    def registry(self) -> Registry:
        """The tools, as they are now."""
        return self._engine.registry

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The packs that the tools came in."""
        return tuple(self._engine.stock.packs)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios that were found beside the tools."""
        return tuple(self._engine.stock.scenarios)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the documents, whose tools are not in the registry; and servers that can't be asked."""
        return self._engine.problems

    @property
    def project(self) -> Project | None:
        """The project that the tools belong to."""
        return self._engine.stock.project

    @property
    def servers(self) -> Mapping[str, Server]:
        """The MCP servers, by name."""
        return self._engine.stock.servers

    def call(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Coroutine[Any, Any, Result]:
        """Call a tool in the default session. See `Session.call`."""
        main = self._main
        return main._call(name, arguments, main._context)  # noqa: SLF001 -- `Session.call` costs a frame, felt here

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
        return self._engine.call_sync(name, arguments)

    def session(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the session's own name for it
        seed: int = 0,
        clock: Clock | None = None,
        registry: Registry | None = None,
        toolset: str | None = None,
        user: str = "",
        caller: str = "",
        correlation: str = "",
        client: Client | None = None,
    ) -> Session:
        """An isolated session: mock state, counters and time of its own, and the same `call`.

        Args:
            id: Part of every keyed draw; numbered unless given.
            seed: Seeds what mocks generate.
            clock: Its time; the machine's unless given.
            registry: Its tools; the runtime's unless given, also after a reload.
            toolset: Name of the toolset that it is offered; it keeps the tools as they are now.
            user: On whose behalf it calls.
            caller: Which agent or program calls.
            correlation: Ties its calls to those of other systems.
            client: Fulfils its calls of tools in mode `client`; the runtime's unless given.

        Raises:
            ConfigurationError: There is no such toolset, or `client` is no function.
        """
        return self._engine.session(
            id=id,
            seed=seed,
            clock=clock,
            registry=registry,
            toolset=toolset,
            user=user,
            caller=caller,
            correlation=correlation,
            client=client,
        )

    async def reload(self) -> ReloadReport:
        """Read everything again and put it in force, all at once.

        A file that is broken now keeps its last good version, marked stale. Calls that have begun end on the
        version they began with. The observer receives the tools that appear, change and go.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The runtime was not opened from files; or what is in force now can't be set up
                (then everything stays as it was).
        """
        return await self._engine.reload()

    def watch(self, *, poll: float = 1.0) -> AsyncGenerator[ReloadReport, None]:
        """Reload whenever files change, and report each time: `async for report in runtime.watch()`.

        Args:
            poll: Seconds between looks, where no file events wake the watch earlier; more than 0.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The runtime was not opened from files that can be followed, or `poll` is no time.
        """
        return self._engine.watch(poll=poll)

    async def discover(self, *names: str) -> tuple[Problem, ...]:
        """Ask MCP servers what they offer, and put it in force. The observer receives the tools that appear.

        `async with` and a call that needs it do so by themselves; what is locked needs no asking.

        Args:
            names: The servers, which are asked if they were not before; all that must be, where none is named.

        Returns:
            An error for each server that could not be asked.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: There is no such server.
        """
        return await self._engine.discover(*names)

    async def catalogue(self, server: str) -> Catalogue:
        """What an MCP server offers; it is started if it does not run.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: There is no such server, or no installed mode speaks to servers.
            ServerDown: It can't be started or reached.
            NotReady: A prerequisite is missing: the extra `mcp`, a secret.
        """
        return await self._engine.catalogue(server)

    async def aclose(self) -> None:
        """Give back what the executors hold. A later call raises ClosedRuntime."""
        await self._engine.aclose()

    def close(self) -> None:
        """`aclose` for code without an event loop."""
        self._engine.close()

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        self._engine.start_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def runtime_on(engine: Engine) -> Runtime:
    """The runtime of an engine."""
    runtime = Runtime.__new__(Runtime)
    runtime._run_on(engine)  # noqa: SLF001 -- no second constructor is offered
    return runtime


def read_runtime(
    asked: OpenRequest,
    *,
    executors: Executors | None = None,
    ask: Callable[[TrustRequest], Consent] | None = None,
    **options: Any,
) -> Runtime:
    """`Runtime.open` for a caller who reports the problems: nothing is logged, and none of them raises.

    Args:
        asked: What to read, and what to put in force.
        executors: The modes; the installed ones unless given.
        ask: Is asked to trust what nobody has agreed to yet; None where there is nobody to ask.
        options: Those of `Engine`.
    """
    trust = Trust(asked.trust, ask=ask)
    started = start(asked, executors, trust)
    engine = Engine(
        started.registry, executors=started.executors, stock=started.stock, trust=trust, **options
    )
    engine.read_from(asked, started.settings)
    return runtime_on(engine)


def loaded_runtime(
    loaded: LoadedDocuments,
    *,
    modes: Mapping[str, str] = NOTHING,
    executors: Executors | None = None,
    **options: Any,
) -> Runtime:
    """A runtime over what was read, from disk or memory; `options` are those of `Engine`.

    Raises:
        UnknownMode: A glob of `modes` asks for a mode that is neither installed nor written anywhere.
    """
    from toolcrib.engine.open_project import link_all  # noqa: PLC0415 -- as above
    from toolcrib.loading.settings import NO_SETTINGS  # noqa: PLC0415 -- a call from an index reads nothing

    executors = executors or Executors.installed()
    stock = link_all(loaded, executors)
    registry = apply_profile(stock, NO_SETTINGS, modes, executors)
    return runtime_on(Engine(registry, executors=executors, stock=stock, **options))


class Engine:
    """The state and the work behind a runtime: registry, bound tools, servers, documents, permitted network.

    Other rooms reach it through `engine_of`. It is not public.

    Attributes:
        executors: The modes.
        settings: What the project and its profile put in force; None outside projects.
        closed: Whether `aclose` was called.
        passthrough: Whether mocks that say so may hand calls on to another binding of their tools.
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
        stock: LoadedProject | None = None,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        client: Client | None = None,
        trust: Trust | None = None,
    ) -> None:
        """Hold a registry; the parameters are those of `Runtime`, besides `stock` (what was read) and `trust` (who decides).

        Raises:
            ConfigurationError: As `Runtime`.
        """
        self.executors = executors or Executors.installed()
        self.settings: Settings | None = None
        self.closed = False
        self.passthrough = passthrough
        self.call_numbers = itertools.count(1)
        self._client = client
        self._given = (stock or LoadedProject(registry))._replace(registry=registry)
        if servers:
            registry, stock = start_over(self._given, servers, self.executors)
        self._stock = LoadedProject(registry) if stock is None else stock
        self._asked: OpenRequest | None = None
        layers = tuple(middleware_named(item) if isinstance(item, str) else item for item in middleware)
        self.trust = Trust() if trust is None else trust
        self._binder = Binder(self.executors, layers, observer, self._equip, self._check_trust)
        self._observer = observer
        self._reach = (egress if isinstance(egress, str) else tuple(egress), dict(origins))
        if any(self._reach):
            _world_of(*self._reach)
        self._world: NetworkEnvironment | None = None
        self._settled = False  # whether what the project lets tools reach may be in force
        self._table = ToolTable(registry)
        self._session_ids = itertools.count(1)
        self._runner: asyncio.Runner | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._followers: list[Callable[[], None]] = []
        self._main = self.session(id="main", clock=clock, seed=seed)

    def read_from(self, asked: OpenRequest, settings: Settings | None) -> None:
        """Remember what was read from disk, so that a reload can read it again."""
        self._asked, self.settings = asked, settings

    @property
    def stock(self) -> LoadedProject:
        """What was read, before the profile: packs, project, sources, what was looked at."""
        return self._stock

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the documents, whose tools are not in the registry; and servers that can't be asked."""
        told = self._discovery.problems() if self.servers else ()
        return (*self._stock.problems, *told) if told else self._stock.problems

    @property
    def servers(self) -> Mapping[str, Server]:
        """The MCP servers, by name."""
        return self._stock.servers

    @property
    def lock_file(self) -> str:
        """The path of the lock file of the servers; empty if there are no servers."""
        return self._stock.lock_file

    @property
    def registry(self) -> Registry:
        """The tools, as they are now."""
        return self._table.registry

    @property
    def default_session(self) -> Session:
        """The session of calls that name none."""
        return self._main

    def call_sync(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """Call without an event loop; see `Runtime.call_sync`."""
        if _loop_is_running():
            raise ConfigurationError(
                "`call_sync` was called inside a running event loop",
                hint="write `await runtime.call(...)` there",
            )
        result = self._main.call_at_once(name, arguments)
        return self._run(self._main.call(name, arguments)) if result is None else result

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop kept for synchronous code; threads take turns."""
        with self._running:
            if self._runner is None:
                from asyncio import Runner  # noqa: PLC0415 -- a call that never waits needs none of it

                self._runner = Runner()
            return self._runner.run(work)

    @cached_property
    def _running(self) -> Lock:
        from threading import Lock  # noqa: PLC0415 -- as above

        return Lock()

    def session(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the session's own name for it
        seed: int = 0,
        clock: Clock | None = None,
        registry: Registry | None = None,
        toolset: str | None = None,
        user: str = "",
        caller: str = "",
        correlation: str = "",
        client: Client | None = None,
    ) -> Session:
        """An isolated session; see `Runtime.session`."""
        if toolset is not None:
            registry = (self.registry if registry is None else registry).within(toolset)
        return Session(
            self,
            id=id if id is not None else f"session-{next(self._session_ids)}",
            seed=seed,
            clock=RealClock() if clock is None else clock,
            table=self._table if registry is None else self._table.of(registry),
            user=user,
            caller=caller,
            correlation=correlation,
            client=self._client if client is None else client,
        )

    def in_mode(self, tool: Descriptor, mode: str) -> BoundTool:
        """A tool bound in another of its modes, without layers; what says why where it can't be."""
        return self._binder.in_mode(tool, mode)

    def chain_for(self, tool: Descriptor) -> BoundChain:
        """The chain of a descriptor. That of a tool of the runtime's own registry is built once and shared."""
        table = self._table
        if table.registry.get(tool.name) is not tool:
            return self._chain(tool)
        chain = table.chains.get(tool.name)
        if chain is None:
            chain = self._chain(tool)
            if chain.lasting:
                table.chains[tool.name] = chain
        return chain

    def chain_of_hidden(self, tool: Descriptor, hidden: HiddenReason) -> BoundChain:
        """What the calls of a tool run through that is not offered: each says why."""
        return self._binder.of_hidden(tool, hidden)

    def _chain(self, tool: Descriptor) -> BoundChain:
        server = self.awaited(tool.name)
        if server is None:
            return self._binder.chain(tool)
        return self._binder.unable(tool, self._unheard(tool.name, server), lasting=False)

    def _unheard(self, name: str, server: str) -> Unavailable:
        """Why a tool can't be called of which only its server knows what it takes."""
        why, code, outcome = self._discovery.why_unheard(name, server)
        return Unavailable(why, code=code, outcome=outcome)

    @property
    def world(self) -> NetworkEnvironment:
        """What the modes may reach, as the project, its profile and the caller put it in force.

        Nobody reaches anything as a project wants it that nobody trusts, not even a model that somebody named.
        """
        settled = self.trust.trusts_settings()
        if self._world is None or settled is not self._settled:
            self._settled = settled
            egress, origins = self._reach
            settings = self.settings if settled else None
            if settings is not None:
                egress, origins = (*settings.egress, *egress), {**settings.origins, **origins}
            self._world = _world_of(egress, origins)._replace(trust=self.trust)
            if self.servers:
                self._world = self._world._replace(servers=self.servers, judge=self._discovery.judge())
        return self._world

    def _check_trust(self, tool: Descriptor) -> None:
        from toolcrib.engine.workspaces import subject_of_tool  # noqa: PLC0415 -- mocks are contained

        if self.trust.policy.everything or tool.mode is None:
            return
        self.trust.check(subject_of_tool(tool, self.executors, self.trust, tool.mode))
        remote = self.executors.remote_of(tool.mode, tool.name, tool.bindings.get(tool.mode))
        if remote is not None and remote.server in self.servers:
            self.trust.check_server(self.servers[remote.server])

    def _equip(self, executor: Any) -> None:
        """Give an executor what it asks for: what it may reach, whom to tell, how to bind in another mode."""
        if hasattr(executor, "world"):
            executor.world = self.world
        if hasattr(executor, "changed"):
            executor.changed = self._discovery.hear
        if hasattr(executor, "elsewhere"):
            executor.elsewhere = self._binder.in_mode

    @cached_property
    def _discovery(self) -> Discovery:
        from toolcrib.engine.discovery import Discovery  # noqa: PLC0415 -- few runtimes have servers

        return Discovery(self)

    @property
    def lock_policy(self) -> Literal["warn", "block"]:
        """Whether a tool that differs from the lock is reported (`warn`) or refused (`block`)."""
        said = self.settings.lock if self.settings is not None else ""
        return "block" if said == "block" else "warn"

    def unavailable(self, tool: Descriptor) -> str:
        """Why a tool can't be called, and what to write; empty if it can."""
        return self.registry.why_hidden(tool.name) or self._binder.missing(tool)

    def not_ready(self, tool: Descriptor) -> str:
        """What a tool that reaches out lacks now, such as a secret; empty if nothing. It is bound to find out."""
        bound = self._binder.chain(tool).bound if self.reaches_out(tool) else None
        return bound.reason if isinstance(bound, Unavailable) else ""

    def timeout_of(self, tool: Descriptor) -> float:
        """Seconds that a call of a tool may take: what its binding says for itself, else what the tool says."""
        own: float | None = getattr(self._binder.chain(tool).bound, "timeout", None)
        return tool.timeout if own is None else own

    def reaches_out(self, tool: Descriptor) -> bool:
        """Whether the mode in force touches something outside: a server, a process, whoever calls."""
        executor = None if tool.mode is None else self.executors.get(tool.mode)
        return hasattr(executor, "world") or getattr(executor, "reaches_out", False)

    def not_found(self, name: str, registry: Registry) -> Result:
        """The result of a call to a tool that is not there: near misses, and whether its file was refused."""
        server = self.awaited(name)
        if server is not None:
            unheard = self._unheard(name, server)
            return Result.failed(unheard.outcome, unheard.reason, code=unheard.code)
        near = registry.near(name)
        message = f"there is no tool `{shorten(name)}`"
        refused = self._stock.refused
        if name in refused and refused[name].code == "server_remark":
            message += f": {refused[name].message}"
        elif name in refused:
            message += f": its document was rejected, {refused[name]}"
        elif near:
            message += f"; did you mean {' or '.join(f'`{match}`' for match in near)}?"
        else:
            message += f"; {how_many(registry)}"
        return Result.failed(Outcome.NOT_FOUND, message, details={"near": list(near)})

    def check_open(self) -> None:
        """Check that calls are possible.

        Raises:
            ClosedRuntime: The runtime was closed.
        """
        if self.closed:
            raise ClosedRuntime("the runtime is closed", hint="call inside `async with Runtime.open(...)`")

    async def reload(self) -> ReloadReport:
        """Read everything again and put it in force; see `Runtime.reload`."""
        from toolcrib.loading.reload import reload_report  # noqa: PLC0415 -- few runtimes reload

        if self._asked is None:
            raise ConfigurationError(
                "this runtime can't reload: it was not read from disk",
                hint="open it with `Runtime.open(...)`",
            )
        async with self.changing:
            started = RealClock().monotonic()
            self.check_open()
            seen, servers = self._stock.seen, self.servers
            events = await self.read_again()
            if servers and self._discovery.forget(servers):
                events = [*events, *await self.read_again()]
            files = seen.changed() if seen is not None else ()
            duration = RealClock().monotonic() - started
            report = reload_report(self.registry, events, self._stock.problems, files, duration)
        if servers:
            await self.discover()
        return report

    @cached_property
    def changing(self) -> CrossLoopLock:
        """The lock held while the registry changes."""
        from toolcrib.core.clock import CrossLoopLock  # noqa: PLC0415 -- few runtimes change

        return CrossLoopLock()

    async def read_again(self) -> Sequence[ToolEvent]:
        """Read everything again, and put it in force all at once."""
        import asyncio  # noqa: PLC0415 -- as above

        from toolcrib.loading.reload import compare_registries  # noqa: PLC0415 -- as above
        from toolcrib.loading.settings import has_same_egress  # noqa: PLC0415 -- as above

        before = self.registry
        now = await asyncio.to_thread(self._started_again)
        events = compare_registries(before, now.registry)
        self._table.swap(now.registry.after(before), {})
        same = has_same_egress(self.settings, now.settings) and now.stock.servers == self.servers
        self._stock = now.stock
        if self._asked is not None:
            self.settings = now.settings
        if not same:
            self._world = None  # else connections and tokens stay
        self._tell(events)
        return events

    def _started_again(self) -> StartupState:
        offered = self._discovery.offered if self.servers else NOTHING
        if self._asked is None:
            started = start_over(self._given, self.servers, self.executors, offered)
            return StartupState(self.executors, started[1], started[0], NO_SETTINGS)
        return start_again(self._asked, self.executors, self._stock, offered, self.trust)

    async def discover(self, *names: str) -> tuple[Problem, ...]:
        """Ask MCP servers what they offer, and put it in force; see `Runtime.discover`."""
        self.check_open()
        wanted = names or self.undiscovered
        return await self._discovery.ask(wanted) if wanted else ()

    @property
    def undiscovered(self) -> tuple[str, ...]:
        """The servers that must be asked before it is known which tools there are, and what they take; sorted."""
        stock = self._stock
        if not stock.unlisted and not stock.waiting:
            return ()
        from toolcrib.engine.discovery import all_awaited  # noqa: PLC0415 -- as above

        return all_awaited(stock, self.registry)

    def awaited(self, name: str) -> str | None:
        """The server that must be asked before a tool can be called; None for none."""
        stock = self._stock
        return self._discovery.awaited(name) if stock.unlisted or stock.waiting or stock.locked else None

    @property
    def down(self) -> Mapping[str, NotReady]:
        """The MCP servers that could not be asked -> why; those among them that may not be asked are `denied`."""
        return self._discovery.down if self.servers else NOTHING

    async def catalogue(self, server: str) -> Catalogue:
        """List what an MCP server offers; see `Runtime.catalogue`."""
        self.check_open()
        if server not in self.servers:
            from toolcrib.engine.discovery import unknown_server  # noqa: PLC0415 -- as above

            message, hint = unknown_server(server, self.servers)
            raise ConfigurationError(message, code="unknown_server", hint=hint)
        executor: Any = self.executors.get(MODE)
        if executor is None:
            raise ConfigurationError(f"mode `{MODE}` {self.executors.missing(MODE)}")
        self._equip(executor)
        catalogue: Catalogue = await executor.catalogue(server)
        await self._remember(self.servers[server], catalogue)
        return catalogue

    async def _remember(self, server: Server, catalogue: Catalogue) -> None:
        """Keep what a server offers for commands that only list, where the runtime was read from files."""
        if self._asked is None and not self._stock.lock_file:
            return
        import asyncio  # noqa: PLC0415 -- few runtimes have servers

        from toolcrib.servers.tool_list_cache import save_tool_list  # noqa: PLC0415 -- as above

        when = RealClock().now().isoformat(timespec="seconds")
        await asyncio.to_thread(save_tool_list, server, catalogue, when)

    def follow(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Have something called, in the event loop, each time that tools appear, change or go.

        Other than an observer it costs calls nothing.

        Returns:
            What ends that.
        """
        self._followers.append(hear)
        return lambda: self._followers.remove(hear)

    def _tell(self, events: Sequence[ToolEvent]) -> None:
        if self._observer is not None:
            for event in events:
                self._observer(event)
        for hear in [*self._followers] if events else ():
            hear()

    async def watch(self, *, poll: float = 1.0) -> AsyncGenerator[ReloadReport, None]:
        """Reload whenever files change, and report each time; see `Runtime.watch`."""
        from toolcrib.loading.reload import watch_changes  # noqa: PLC0415 -- few runtimes watch

        self.check_open()
        if not poll > 0:
            raise ConfigurationError(
                f"`poll` is {poll:g}, and a watch waits between its looks", hint="write 1.0"
            )

        def seen() -> FileFingerprints:
            if self._stock.seen is None:
                raise ConfigurationError("there are no files that can be watched")
            return self._stock.seen

        clock = RealClock()
        async with aclosing(watch_changes(seen, clock=clock, poll=poll)) as changed:
            async for _paths in changed:
                while True:
                    try:
                        yield await self.reload()
                    except ConfigurationError as error:
                        _log().warning("a reload was refused, and everything stays as it was: %s", error)
                    except OSError as error:
                        # No file descriptor is free. `changes` does not report the same change again.
                        _log().warning("a reload failed and is tried again: %s", error)
                        await clock.sleep(poll)
                        continue
                    break

    async def _keep_watching(self) -> None:
        async for report in self.watch():
            _log().info("reloaded: %s", report)

    async def released(self, session_id: str) -> None:
        """Release what the modes hold for a session that has ended."""
        await self.executors.release(session_id)

    async def aclose(self) -> None:
        """Give back what the executors hold. A later call raises ClosedRuntime."""
        self.closed = True
        if self._watcher is not None:
            import asyncio  # noqa: PLC0415 -- few runtimes watch

            self._watcher.cancel()
            await asyncio.wait([self._watcher])
            self._watcher = None
        if self.servers:
            self._discovery.cancel()
        await self.executors.aclose()

    def close(self) -> None:
        """`aclose` for code without an event loop."""
        if self._runner is None and self._watcher is None and self.executors.empty_handed:
            self.closed = True
            return
        from asyncio import Runner  # noqa: PLC0415 -- as above

        with self._runner or Runner() as runner:
            runner.run(self.aclose())
        self._runner = None

    async def start(self) -> None:
        """Ask the servers that must be asked, and watch the files if that was asked for."""
        unasked = self._unasked
        if unasked:
            self._log_down(await self.discover(*unasked))
        if self._asked is not None and self._asked.watched:
            import asyncio  # noqa: PLC0415 -- as above

            self._watcher = asyncio.create_task(self._keep_watching())

    def start_sync(self) -> None:
        """`start` for code without an event loop."""
        unasked = self._unasked
        if unasked:
            self._log_down(self._run(self.discover(*unasked)))

    @property
    def _unasked(self) -> tuple[str, ...]:
        """The servers that must be asked, without those that are known to be down."""
        return tuple(name for name in self.undiscovered if name not in self.down)

    def _log_down(self, problems: Iterable[Problem]) -> None:
        """Log which servers could not be asked; what nobody has agreed to may have been told already."""
        for problem in problems:
            if problem.code != Untrusted.code or not self.trust.told:
                _log().warning("%s", problem)


def _log() -> logging.Logger:
    import logging  # noqa: PLC0415 -- a command that has nothing to log starts without it

    return logging.getLogger("toolcrib")


def _policy_of(trust: bool | str | None, paths: Sequence[str]) -> TrustPolicy:
    """What `Runtime.open` trusts without a stored decision."""
    if trust is True:
        return TrustPolicy(paths=tuple(paths), everything=not paths).with_environment()
    if trust is False:
        return UNTRUSTED
    if trust is None:
        return TrustPolicy(paths=tuple(paths)).with_environment()
    hashes = hashes_in(trust)
    if not hashes:
        raise ConfigurationError(
            f"`{shorten(trust)}` is no hash of what is agreed to",
            hint="`toolcrib trust --dry-run` tells it; True trusts the paths, False trusts nothing",
        )
    return UNTRUSTED._replace(hashes=hashes)


def _loop_is_running() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _world_of(egress: Iterable[str], origins: Mapping[str, str]) -> NetworkEnvironment:
    from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415 -- a mock reaches nothing

    if isinstance(egress, str):
        raise ConfigurationError("`egress` is a list of entries", hint=f'write `egress=["{egress}"]`')
    try:
        return NetworkEnvironment.of(egress, origins)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
