"""The runtime: a registry, its layers and its executors. This is the path of a call.

Runtime.call(name, arguments)
-> the tool's chain, built once          Engine.chain_for, Binder.chain (binder.py)
-> Call, frozen                          Session.call (session.py)
-> the layers, outermost first           LAYERS (middleware/__init__.py)
-> the tool                              BoundTool.execute (executors/*)
-> Result
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from fnmatch import fnmatchcase
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from toolcrib.core.clock import RealClock, parse_duration
from toolcrib.core.errors import (
    ClosedRuntime,
    ConfigurationError,
    DocumentError,
    NetworkRefused,
    NotReady,
    Problem,
    did_you_mean,
)
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Approver,
    Call,
    CallContext,
    Client,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
)
from toolcrib.core.protocols import BoundTool, Clock, Executor, Middleware, ToolProvider
from toolcrib.core.server_config import MODE, Catalogue, Server, configured_servers, kind_of_mode
from toolcrib.core.user_folders import working_folder
from toolcrib.engine.access_control import (
    ANYONE,
    AccessControl,
    Principal,
    ToolGate,
    access_control,
    principal_of,
)
from toolcrib.engine.binder import Binder, over_estimate
from toolcrib.engine.middleware import middleware_named
from toolcrib.engine.middleware.events import Event, Observer, Observers
from toolcrib.engine.session import BoundChain, Session, ToolTable, Unavailable, count_phrase
from toolcrib.engine.startup import (
    OpenRequest,
    StartupState,
    apply_profile,
    completed_tools,
    idle_modes,
    start,
    start_again,
    start_over,
    with_modes,
)
from toolcrib.engine.statistics import CallEstimate, CallStatistics, Statistics, estimate_of
from toolcrib.engine.telemetry import MISSING, NO_TELEMETRY, Telemetry, mcp_durations, telemetry_of
from toolcrib.executors import Executors, is_executor, is_provider
from toolcrib.loading.settings import NO_SETTINGS, apply_settings
from toolcrib.loading.snapshot import LoadedProject, log_problems
from toolcrib.registry.catalog import Rule, card_of
from toolcrib.registry.catalog import why_unable as why_unable_of
from toolcrib.registry.registry import Registry, how_many, list_of_tools
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.access import AccessViolation, ViolationLog, read_access
from toolcrib.security.trust import UNTRUSTED, Trust, TrustPolicy, Untrusted, hashes_in

if TYPE_CHECKING:
    import asyncio
    import logging
    from pathlib import Path
    from threading import Lock
    from typing import Unpack

    from toolcrib.core.clock import CrossLoopLock
    from toolcrib.core.protocols import CallNext
    from toolcrib.core.running_calls import RunningCall, RunningCalls
    from toolcrib.engine.approvals import Approvals
    from toolcrib.engine.call_journal import Journal
    from toolcrib.engine.discovery import Discovery
    from toolcrib.engine.middleware.layer import Answer
    from toolcrib.engine.python_modules import PythonModules
    from toolcrib.engine.remote_tools import RemoteTool
    from toolcrib.executors.python.declarations import Declared, ToolKeys
    from toolcrib.loading.budgets import Budget
    from toolcrib.loading.fingerprints import FileFingerprints
    from toolcrib.loading.limit_rules import LimitRule
    from toolcrib.loading.packs import Pack
    from toolcrib.loading.projects import Project
    from toolcrib.loading.reader import LoadedDocuments
    from toolcrib.loading.reload import ReloadReport, ToolEvent
    from toolcrib.loading.scenarios.model import Scenario
    from toolcrib.loading.settings import Settings
    from toolcrib.registry.catalog import Card, HiddenReason
    from toolcrib.security.access import AccessDecision
    from toolcrib.security.approvals import ApprovalStore
    from toolcrib.security.path_access import PathAccess
    from toolcrib.security.redaction import Redactor
    from toolcrib.security.trust import Consent, TrustRequest
    from toolcrib.servers.environment import NetworkEnvironment

T = TypeVar("T")

DRAIN: Final = 10.0
"""Seconds that running calls have to end when a runtime is closed."""


class Runtime:
    """A set of tools that can be called.

    Open a runtime with `async with`, so that connections and processes are closed at the end. Every call
    returns a `Result`; only programming mistakes raise.

    Example:
        ```python
        async with Runtime.open("descriptors") as tools:
            result = await tools.call("get_forecast", {"city": "Oslo"})
            print(result.outcome, result.value)
        ```
    """

    __slots__ = ("__weakref__", "_engine", "_main")

    def __init__(
        self,
        registry: Registry,
        *,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | Sequence[Observer] | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        sandbox: Literal["bubblewrap", "none"] | None = None,
        client: Client | None = None,
        provide: Mapping[str, Any] = NOTHING,
        approvals: ApprovalStore | Path | str | None = None,
        approver: Approver | None = None,
        telemetry: Telemetry | None = None,
        journal: Path | str | Literal[False] | None = None,
        access: Mapping[str, JSON] | None = None,
    ) -> None:
        """Create a runtime over a registry. Use `Runtime.open` to read tools from files.

        Args:
            registry: The tools.
            executors: The modes (default: all installed ones). The runtime closes them, so do not share them
                between runtimes.
            middleware: Layers around every call, outermost first. A string names a middleware of an installed
                distribution (entry-point group `toolcrib.middleware`).
            observer: Receives the events of every call, every change of the tools and every violation of access; or
                several observers. See `observe`.
            clock: Clock of the default session (default: the system clock).
            seed: Seed of the values that mocks generate in the default session.
            egress: Private, loopback or otherwise special addresses (`host:port`) that tools may reach, in
                addition to those that the project allows.
            origins: Maps an origin in descriptors to the origin to call instead. Overrides the project's
                mapping.
            servers: MCP servers by name. Descriptors can refer to them, and their tools can be imported.
            passthrough: Whether mocks that ask for it may forward calls to another binding of their tool.
            sandbox: Where the programs of mode `exec` and the worker processes of Python tools run. Overrides `sandbox`
                of the project.
            client: Fulfils calls of tools in mode `client`, unless the session has its own client.
            provide: Dependencies by name, for the parameters of factories (`toolcrib.factory`) and of the
                constructors of `Tool` classes.
            approvals: The store of pending approvals, or its folder (default: in memory).
            approver: Asks a person in place if a call needs approval, unless the session has its own approver.
            telemetry: What is recorded of calls (default: `telemetry` of the project).
            journal: The file of the journal of calls that leave the process, or the address of a PostgreSQL server
                (`postgresql://...`). Default: none.
            access: Who may call what, as `access` of a project: `{"rules": [{"deny": {"tool": "pay_*"}}]}`. Relative folders
                are those of the working directory.

        Raises:
            ConfigurationError: An entry of `egress` or `origins` is invalid, `sandbox` is unknown, `client` is not
                callable, or `telemetry` needs an extra that is not installed.
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
                sandbox=sandbox,
                client=client,
                provide=provide,
                approvals=approvals,
                approver=approver,
                telemetry=telemetry,
                journal=journal,
                access=() if access is None else _plain_access(access, executors),
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
        observer: Observer | Sequence[Observer] | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        sandbox: Literal["bubblewrap", "none"] | None = None,
        client: Client | None = None,
        provide: Mapping[str, Any] = NOTHING,
        trust: bool | str | None = None,
        approvals: ApprovalStore | Path | str | None = None,
        approver: Approver | None = None,
        telemetry: Telemetry | None = None,
        journal: Path | str | Literal[False] | None = None,
        access: Mapping[str, JSON] | None = None,
    ) -> Runtime:
        """Read tools, packs and scenarios from disk. Documents with errors are skipped and reported.

        The problems are logged and listed in `problems`; `strict=True` raises them instead.

        Example:
            ```python
            async with Runtime.open("descriptors", mode="mock") as tools:
                print(await tools.call("get_order", {"order_id": "ORD-1"}))
            ```

        Args:
            paths: Folders, packs, files or a project. Default: the project that contains the working
                directory; without a project, the folders `descriptors` and `packs` of the working directory.
            profile: Name of a profile of the project. Default: `TOOLCRIB_PROFILE`, then the project's
                default.
            mode: Mode for every tool that has a block for it.
            modes: Maps a tool glob to a mode. The first match wins and overrides `mode` and the profile. A
                glob that matches no tool is logged.
            strict: Raise for every problem instead of logging it, including warnings, notices, and globs in
                `modes` that match no tool.
            index: Whether to cache the result in the user's cache folder, and to reuse it until a file
                changes.
            watch: Reload when files change, while the runtime is open in an `async with` block.
            executors: The modes (default: all installed ones). Custom modes disable the index.
            middleware: Layers around every call, outermost first.
            observer: Receives the events of every call, every change of the tools and every violation of access; or
                several observers. See `observe`.
            clock: Clock of the default session (default: the system clock).
            seed: Seed of the values that mocks generate in the default session.
            egress: Private, loopback or otherwise special addresses (`host:port`) that tools may reach, in
                addition to those that the project allows.
            origins: Maps an origin in descriptors to the origin to call instead. Overrides the project's
                mapping.
            servers: MCP servers by name, in addition to those in files. They replace servers of the same
                name.
            passthrough: Whether mocks that ask for it may forward calls to another binding of their tool.
            sandbox: Where the programs of mode `exec` and the worker processes of Python tools run. Overrides `sandbox`
                of the project.
            client: Fulfils calls of tools in mode `client`, unless the session has its own client.
            provide: Dependencies by name, for the parameters of factories (`toolcrib.factory`) and of the
                constructors of `Tool` classes.
            trust: Whether the documents may start programs, contact hosts and look up secrets. By default,
                the paths that you pass are trusted. A project found without paths, and sources outside it,
                follow the decisions of `toolcrib trust` and `TOOLCRIB_TRUST`, as on the command line. True
                trusts everything in the paths. False trusts nothing: only mocks run, and other calls end
                `denied`. A string is the trust hash that `toolcrib trust --dry-run` prints.
            approvals: The store of pending approvals, or its folder (default: a folder for these paths in the user's
                state folder, so that approvals survive a restart).
            approver: Asks a person in place if a call needs approval, unless the session has its own approver.
            telemetry: What is recorded of calls (default: `telemetry` of the project).
            journal: The file of the journal of calls that leave the process, or the address of a PostgreSQL server
                (`postgresql://...`). False for none. Default: `journal` of the project, which is a file in the user's
                state folder; without a project, none.
            access: Who may call what, as `access` of a project. Its rules are added to those of the project, its other
                keys replace them. Relative folders are those of the working directory. A rule that matches no tool is
                logged.

        Raises:
            DocumentError: `strict` is set and the documents have problems.
            UnknownMode: `mode` or `modes` selects a mode that is not installed and that no tool has a block
                for. An unknown mode in the profile is a problem instead, and no tool is offered.
            ConfigurationError: A path does not exist; `mode` and the glob `*` of `modes` conflict; the profile is unknown;
                two paths are projects; an entry of `egress` or `origins` is invalid; `trust` is not a hash; or `strict`
                is set and a glob of `modes` matches no tool.
        """
        missing = [path for path in paths if _is_missing(path)]
        if missing:
            raise _missing_paths(missing)
        other = modes.get("*", mode)
        if mode is not None and mode != other:
            raise ConfigurationError(
                f"`mode` and the glob `*` of `modes` conflict: `{mode}` and `{other}`",
                hint="remove one of them",
            )
        asked = OpenRequest(
            paths=tuple(str(path) for path in paths),
            profile=profile,
            modes=modes if mode is None else {**modes, "*": mode},
            indexed=index and executors is None,
            watched=watch,
            servers=servers,
            trust=_policy_of(trust, [str(path) for path in paths]),
            access=() if access is None else _plain_access(access, executors),
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
            sandbox=sandbox,
            client=client,
            provide=provide,
            approvals=approvals,
            approver=approver,
            telemetry=telemetry,
            journal=journal,
        )
        if strict and runtime.problems:
            raise DocumentError(runtime.problems)
        for error in idle_modes(runtime.registry, modes):
            if strict:
                raise error
            _log().warning("%s", error)
        runtime._engine.log_idle_rules(asked.access)  # noqa: SLF001 -- not a second public method
        if runtime.problems:
            log_problems(runtime.problems)
        return runtime

    def __repr__(self) -> str:
        """Describe the contents, such as `Runtime(78 tools, 3 packs, 87 scenarios, project 'shop')`."""
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
    def name(self) -> str:
        """The name of the project; without one, that of the only pack; else `toolcrib`. Protocols serve the tools under it."""
        project, packs = self.project, self.packs
        if project is not None and project.name:
            return project.name
        return packs[0].name if len(packs) == 1 else "toolcrib"

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The packs that were loaded."""
        return tuple(self._engine.stock.packs)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios that were loaded with the tools."""
        return tuple(self._engine.stock.scenarios)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of refused documents and of servers that cannot be listed."""
        return self._engine.problems

    @property
    def project(self) -> Project | None:
        """The project of the tools; None without a project."""
        return self._engine.stock.project

    @property
    def servers(self) -> Mapping[str, Server]:
        """The MCP servers and A2A agents, by name."""
        return self._engine.stock.servers

    @property
    def violations(self) -> ViolationLog:
        """The calls that access refused; in audit mode, those that it would have refused or asked about."""
        return self._engine.violations

    @property
    def approvals(self) -> Approvals:
        """The calls that wait for a person, and standing approvals."""
        return self._engine.approvals

    @property
    def journal(self) -> Journal | None:
        """The calls that left the process; None if they are not recorded."""
        return self._engine.journal

    @property
    def statistics(self) -> Statistics:
        """The calls that have ended since the runtime was created or the statistics were reset.

        Example:
            ```python
            statistics = runtime.statistics
            print(statistics.calls, statistics.denials)
            for name, totals in statistics.tools.items():
                print(name, totals.calls, totals.outcomes, totals.durations.percentile(99))
            ```
        """
        return self._engine.call_statistics.taken()

    def reset_statistics(self) -> Statistics:
        """Start the statistics anew, and return those up to now. Every call is in one of the two."""
        self._engine.forget_observations()
        return self._engine.call_statistics.taken(reset=True)

    def estimate(self, name: str) -> CallEstimate:
        """What a call of a tool is expected to use: what its descriptor declares, and what was observed.

        A tool whose declared estimate exceeds its timeout or `limits.output_size` is refused before it is called, with the
        outcome `limit_exceeded` and the code `estimate_exceeds_limit`. So is a call if at least 20 calls of the tool have
        succeeded, and all of them exceeded the limit that applies to this call, such as that of its caller.

        Example:
            ```python
            expected = runtime.estimate("get_order").duration
            print(expected.value, expected.source, expected.observations)
            ```

        Args:
            name: Name of the tool.

        Raises:
            ConfigurationError: No tool has the name; the message has the nearest names.
        """
        return self._engine.estimate(name)

    def running(self) -> tuple[RunningCall, ...]:
        """The calls that are running, the oldest first. Calls that end without waiting are never listed.

        Example:
            ```python
            for call in runtime.running():
                print(call.id, call.tool, call.stage, f"{call.elapsed:.1f}s")
            ```
        """
        return self._engine.running_calls.listed()

    def cancel(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- matches `RunningCall.id`
        correlation: str | None = None,
        session: str | None = None,
        caller: str | None = None,
        tool: str | None = None,
        all: bool = False,  # noqa: A002 -- what it does
    ) -> int:
        """Cancel running calls. May be called in any thread.

        Each call ends with the outcome `cancelled` and the code `cancelled_by_operator`, in the task that awaits it; the
        task itself continues. What the call occupies is released: its connection, its processes, its place in queues.
        An MCP server receives a cancellation notice. Code in a thread continues, and its result is discarded.

        Example:
            ```python
            count = runtime.cancel(session="main", tool="render_video")
            ```

        Args:
            id: ID of the execution (`RunningCall.id`).
            correlation: ID of the call in another system.
            session: Name of the session.
            caller: Agent, interface or program that made the call.
            tool: Name of the tool.
            all: Cancel all calls that the other arguments select; needed if there are none.

        Returns:
            How many calls were cancelled: those that match everything that is given and have not ended.

        Raises:
            ConfigurationError: Nothing selects the calls.
        """
        return self._engine.cancel(
            id=id, correlation=correlation, session=session, caller=caller, tool=tool, all=all
        )

    def resume(self, id: str) -> Coroutine[Any, Any, Result]:  # noqa: A002 -- matches `Pending.id`
        """Make an approved call in the default session. See `Session.resume`."""
        return self._main.resume(id)

    def call(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, idempotency_key: str = ""
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool in the default session. See `Session.call`.

        Example:
            ```python
            result = await runtime.call("get_order", {"order_id": "ORD-1"})
            ```
        """
        main = self._main
        if idempotency_key != "":
            return main.call(name, arguments, idempotency_key=idempotency_key)
        return main._call(name, arguments, main._context)  # noqa: SLF001 -- saves a frame, measurable in a mocked call

    def __getitem__(self, name: str) -> Callable[..., Coroutine[Any, Any, Result]]:
        """Return a function that calls a tool in the default session with keyword arguments. See `Session.__getitem__`.

        Example:
            ```python
            result = await runtime["get_order"](order_id="ORD-1")
            ```
        """
        return self._main[name]

    def __contains__(self, name: object) -> bool:
        """Whether a tool exists."""
        return name in self.registry

    def __iter__(self) -> Iterator[str]:
        """The names of the tools, sorted."""
        return iter(self.registry)

    def __len__(self) -> int:
        """The number of tools."""
        return len(self.registry)

    def __bool__(self) -> bool:
        """True, also without tools: a runtime is more than its tools."""
        return True

    def _repr_html_(self) -> str:
        """A table of the tools, for notebooks."""
        from html import escape  # noqa: PLC0415 -- only notebooks need it

        return f"<p>{escape(repr(self))}</p>{self.registry._repr_html_()}"

    def stream(
        self, name: str, arguments: Mapping[str, JSON] | None = None
    ) -> AsyncIterator[Progress | Partial | Result]:
        """Call a tool in the default session and stream its progress. See `Session.stream`."""
        return self._main.stream(name, arguments)

    async def dry_run(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """Explain a call without making it. See `Session.dry_run`."""
        return await self._main.dry_run(name, arguments)

    def call_sync(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """`call` for code without an event loop.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: An event loop is running in this thread. Use `await call(...)` instead.
        """
        return self._engine.call_sync(name, arguments)

    def session(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- matches `Session.id`
        seed: int = 0,
        clock: Clock | None = None,
        registry: Registry | None = None,
        toolset: str | None = None,
        user: str = "",
        caller: str = "",
        correlation: str = "",
        client: Client | None = None,
        approver: Approver | None = None,
    ) -> Session:
        """Create an isolated session, with its own mock state, counters and clock.

        Example:
            ```python
            async with runtime.session(seed=7, user="ada") as session:
                await session.call("create_order", {"item": "tea"})
            ```

        Args:
            id: Name of the session, part of the key of every generated value (default: numbered).
            seed: Seed of the values that mocks generate.
            clock: Clock of the session (default: the system clock).
            registry: Tools of the session. By default it uses those of the runtime and follows reloads.
            toolset: Name of the toolset to offer. The session then keeps the current tools after a reload.
            user: The user on whose behalf the session calls.
            caller: The agent or program that calls.
            correlation: ID that links the calls to those of other systems.
            client: Fulfils calls of tools in mode `client` (default: the runtime's client).
            approver: Asks a person in place if a call needs approval (default: the runtime's approver).

        Raises:
            ConfigurationError: The toolset is unknown, or `client` is not callable.
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
            approver=approver,
        )

    async def reload(self) -> ReloadReport:
        """Read everything again and swap it in atomically.

        A file that is now broken keeps its last good version, marked stale. Running calls finish on the
        version that they started with. Observers receive the tools that were added, changed, removed, enabled and disabled.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The runtime was not opened from files, or the new configuration is invalid;
                the current tools then stay active.
        """
        return await self._engine.reload()

    @overload
    def add(self, tool: Executor, *, mode: str) -> None: ...

    @overload
    def add(
        self, tool: ToolProvider, *, replace: bool = False, **keys: Unpack[ToolKeys]
    ) -> list[Descriptor]: ...

    @overload
    def add(
        self, tool: Descriptor | Declared, *, replace: bool = False, **keys: Unpack[ToolKeys]
    ) -> Descriptor: ...

    def add(self, tool: Any, *, replace: bool = False, **keys: Any) -> Descriptor | list[Descriptor] | None:
        """Add a tool. It is called, listed, searched, mocked, limited and served as those of files, and survives reloads.

        The observer receives `ToolAppeared`, and served clients hear that the list has changed. Call it in the thread of
        the event loop, if there is one.

        Example:
            ```python
            async def get_weather(city: str) -> str:
                return f"sunny in {city}"

            tools.add(get_weather, timeout="5s", annotations={"read_only": True})
            print(await tools.call("get_weather", {"city": "Oslo"}))
            ```

        Args:
            tool: A descriptor, an annotated function, a subclass of `Tool`, an instance of one, or a factory
                (`toolcrib.factory`); functions and classes may be declared with `toolcrib.tool`. Or an executor, which
                adds the mode `mode`; the files are read again, so that their tools can use it. Or an object with the
                methods of `toolcrib.ToolProvider`, of which all tools are added, or none.
            replace: Whether a tool of the same name is replaced.
            keys: As for `toolcrib.tool`, such as `schema` for a function without annotations; they replace those of the
                decorator. A descriptor has none.

        Returns:
            The descriptor of the tool; a list of them for a provider, and None for an executor.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The name of the tool or mode is taken, or the function cannot be a tool; the message names
                file and line.
            DocumentError: A key is invalid.
        """
        if is_executor(tool):
            self._engine.add_executor(tool, **keys)
            return None
        if is_provider(tool):
            return self._engine.add_provider(tool, replace=replace, keys=keys)
        return self._engine.add(tool, replace=replace, keys=keys)

    def remove(self, name: str) -> None:
        """Remove a tool; a reload does not bring it back. Running calls finish.

        The observer receives `ToolGone`, and served clients hear that the list has changed.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: No tool has the name; the message has the nearest names.
        """
        self._engine.remove(name)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Add an observer. Calls that run already keep the observers that saw them start.

        It receives `CallStarted`, `CallProgressed` and `CallFinished` of every call; `ToolAppeared`, `ToolChanged`, `ToolGone`,
        `ToolEnabled` and `ToolDisabled`; and `AccessViolation`. Each `CallStarted` is followed by exactly one
        `CallFinished`. It must not block; an exception that it raises is logged, and has no other effect. Calls are not
        slowed down while a runtime has no observers.

        Example:
            ```python
            stop = runtime.observe(print)
            await runtime.call("get_order", {"order_id": "ORD-1"})
            stop()
            ```

        Args:
            observer: A function of one event.

        Returns:
            A function that removes the observer.
        """
        return self._engine.observe(observer)

    def disable(self, *globs: str) -> None:
        """Disable tools, also after reloads: they are not listed, and calls end `unavailable`. Running calls finish.

        Observers receive `ToolDisabled`, and served clients hear that the list has changed.

        Args:
            globs: Names of tools, or globs over names.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: A glob matches no tool; the message has the nearest names.
        """
        self._engine.switch(globs, enables=False)

    def enable(self, *globs: str) -> None:
        """Enable tools that `disable`, the project or a profile disabled, also after reloads.

        Observers receive `ToolEnabled`, and served clients hear that the list has changed.

        Args:
            globs: Names of tools, or globs over names.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: A glob matches no tool; the message has the nearest names.
        """
        self._engine.switch(globs, enables=True)

    def configure(self, name: str, config: Mapping[str, JSON]) -> Descriptor:
        """Change the `config` of a Python tool. Later calls use new instances; the old ones are closed after their calls.

        The observer receives one `ToolChanged`, and served clients hear that the list has changed. The config stays
        through reloads. Call it in the thread of the event loop, if there is one.

        Example:
            ```python
            runtime.configure("measure_rain", {"start": 10})
            ```

        Args:
            name: Name of a tool in mode `python` whose class has `initialise(config)`.
            config: The whole config, as in the block `python`.

        Returns:
            The changed descriptor.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: No tool has the name, or the tool has no config.
            DocumentError: The config does not match the type that `initialise` declares; all problems are listed, and
                nothing has changed.
            NotReady: The code of the tool is not trusted, or cannot be imported.
        """
        return self._engine.configure(name, config)

    def watch(self, *, poll: float = 1.0) -> AsyncGenerator[ReloadReport, None]:
        """Reload whenever files change, and yield a report for each reload.

        Example:
            ```python
            async for report in runtime.watch():
                print(report)
            ```

        Args:
            poll: Seconds between checks if no file event arrives earlier; greater than 0.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The runtime has no files to watch, or `poll` is not greater than 0.
        """
        return self._engine.watch(poll=poll)

    async def discover(self, *names: str) -> tuple[Problem, ...]:
        """List the tools of MCP servers and add them to the registry. The observer receives the new tools.

        `async with` does this for all servers that need it, and so does a call that needs a server. Locked
        servers do not need it. Without names, the Python sources of the project are imported as well.

        Args:
            names: The servers to list, unless they were listed before. Default: all servers that need it.

        Returns:
            One error for each of these servers that cannot be listed.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: A server is unknown.
        """
        return await self._engine.discover(*names)

    async def catalogue(self, server: str) -> Catalogue:
        """Return everything that an MCP server offers, and start the server if needed.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The server is unknown, or no installed mode supports servers.
            ServerDown: The server cannot be started or reached.
            NotReady: A prerequisite is missing, such as the extra `mcp` or a secret.
        """
        return await self._engine.catalogue(server)

    async def list_remote_tools(self, agent: str) -> tuple[RemoteTool, ...]:
        """List the tools of an A2A agent, whether they are imported or not.

        Args:
            agent: Name of the agent in the project.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The agent is unknown.
            ServerDown: The agent cannot be reached or used.
            NotReady: A prerequisite is missing, such as the extra `a2a` or a secret.
        """
        from toolcrib.engine.remote_tools import list_remote_tools  # noqa: PLC0415 -- few runtimes have agents

        return await list_remote_tools(self._engine, agent)

    async def execute_remote_tool(
        self,
        agent: str,
        tool: str,
        params: Mapping[str, JSON] | None = None,
        *,
        metadata: Mapping[str, JSON] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Call a tool of an A2A agent by the agent's name for it, whether it is imported or not.

        Args:
            agent: Name of the agent in the project.
            tool: The agent's name for the tool.
            params: The arguments.
            metadata: Metadata of the call for the agent.
            timeout: Deadline in seconds, which the agent learns; None for that of the tool.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The agent is unknown, or the timeout is not positive.
        """
        from toolcrib.engine.remote_tools import execute_remote_tool  # noqa: PLC0415 -- as above

        return await execute_remote_tool(
            self._engine, self._main, agent, tool, params, metadata=metadata, timeout=timeout
        )

    def execute_remote_tool_streaming(
        self,
        agent: str,
        tool: str,
        params: Mapping[str, JSON] | None = None,
        *,
        metadata: Mapping[str, JSON] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Progress | Partial | Result]:
        """Call a tool of an A2A agent, and yield its progress and partial results, then exactly one Result.

        Leaving the loop early cancels the call and the task of the agent.

        Args:
            agent: Name of the agent in the project.
            tool: The agent's name for the tool.
            params: The arguments.
            metadata: Metadata of the call for the agent.
            timeout: Deadline in seconds, which the agent learns; None for that of the tool.
        """
        from toolcrib.engine.remote_tools import stream_remote_tool  # noqa: PLC0415 -- as above

        return stream_remote_tool(
            self._engine, self._main, agent, tool, params, metadata=metadata, timeout=timeout
        )

    async def answer_remote_task(
        self, waiting: Result, answer: str | Mapping[str, JSON], *, timeout: float | None = None
    ) -> Result:
        """Answer the question of an A2A agent, whose task then continues.

        Args:
            waiting: The result of the call, with the code `input_required` or `auth_required`.
            answer: The answer: a text, or an object, which is sent as data.
            timeout: Deadline in seconds; None for that of the tool.

        Returns:
            The result of the task. It is `needs_approval` again if the agent asks another question.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The call does not wait for an answer, or the agent is unknown.
        """
        from toolcrib.engine.remote_tools import execute_remote_tool, waiting_task  # noqa: PLC0415 -- as above

        agent, tool, task = waiting_task(waiting)
        params = {"text": answer} if isinstance(answer, str) else answer
        return await execute_remote_tool(
            self._engine, self._main, agent, tool, params, timeout=timeout, task=task
        )

    async def remote_task_result(self, agent: str, task_id: str) -> Result:
        """Return the result of a task of an A2A agent, also if another program began it.

        Args:
            agent: Name of the agent in the project.
            task_id: The agent's ID for the task: `meta["remote"]["task_id"]` of the call.

        Returns:
            The result; `unavailable` with the code `task_not_ended` while the agent works on the task.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The agent is unknown.
        """
        from toolcrib.engine.remote_tools import task_result  # noqa: PLC0415 -- as above

        return await task_result(self._engine, agent, task_id, cancel=False)

    async def cancel_remote_task(self, agent: str, task_id: str) -> Result:
        """Cancel a task of an A2A agent, also if another program began it.

        Args:
            agent: Name of the agent in the project.
            task_id: The agent's ID for the task.

        Returns:
            The result of the task: `cancelled` with the code `cancelled_by_agent`, unless the agent refuses.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: The agent is unknown.
        """
        from toolcrib.engine.remote_tools import task_result  # noqa: PLC0415 -- as above

        return await task_result(self._engine, agent, task_id, cancel=True)

    async def aclose(self, *, drain: float = DRAIN) -> None:
        """Let running calls end, cancel the rest, close the tools and the journal. Later calls raise ClosedRuntime.

        Calls that are cancelled end with the outcome `cancelled`. If this is cancelled itself, processes are ended
        without a grace period.

        Args:
            drain: Seconds that running calls have to end. `async with` waits as long, or not at all if its block raises.
        """
        await self._engine.aclose(drain=drain)

    def close(self, *, drain: float = DRAIN) -> None:
        """`aclose` for code without an event loop."""
        self._engine.close(drain=drain)

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(drain=DRAIN if error is None else 0)

    def __enter__(self) -> Self:
        self._engine.start_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=DRAIN if error is None else 0)


def runtime_on(engine: Engine) -> Runtime:
    """Wrap an engine in a runtime, without building a second engine."""
    runtime = Runtime.__new__(Runtime)
    runtime._run_on(engine)  # noqa: SLF001 -- not a second public constructor
    return runtime


def _plain_access(said: Mapping[str, JSON], executors: Executors | None) -> tuple[Any, ...]:
    """The access settings of a program as plain data.

    Raises:
        DocumentError: They have errors.
    """
    from toolcrib.loading.projects import parse_program_access  # noqa: PLC0415 -- few programs have rules

    return parse_program_access(said, executors or Executors.installed()).as_plain()


def read_runtime(
    asked: OpenRequest,
    *,
    executors: Executors | None = None,
    ask: Callable[[TrustRequest], Consent] | None = None,
    **options: Any,
) -> Runtime:
    """`Runtime.open` for a caller that reports problems itself: none is logged or raised.

    Args:
        asked: What to read, and the profile and modes to apply.
        executors: The modes (default: all installed ones).
        ask: Asks a person to trust what is not trusted yet; None if there is no one to ask.
        options: Passed to `Engine`.
    """
    trust = Trust(asked.trust, ask=ask)
    started = start(asked, executors, trust)
    engine = Engine(
        started.registry, executors=started.executors, stock=started.stock, trust=trust, **options
    )
    engine.read_from(asked, started.settings)
    if asked.remembers:
        engine.recall_schemas()
    return runtime_on(engine)


def loaded_runtime(
    loaded: LoadedDocuments,
    *,
    modes: Mapping[str, str] = NOTHING,
    executors: Executors | None = None,
    **options: Any,
) -> Runtime:
    """Build a runtime from loaded documents, read from disk or memory; `options` are passed to `Engine`.

    Raises:
        UnknownMode: `modes` selects a mode that is not installed and that no tool has a block for.
    """
    from toolcrib.engine.open_project import link_all  # noqa: PLC0415 -- as above
    from toolcrib.loading.settings import NO_SETTINGS  # noqa: PLC0415 -- a call from an index reads nothing

    executors = executors or Executors.installed()
    stock = link_all(loaded, executors)
    registry = apply_profile(stock, NO_SETTINGS, modes, executors)
    return runtime_on(Engine(registry, executors=executors, stock=stock, **options))


class Engine:
    """The state behind a runtime: registry, bound tools, servers, documents, permitted network.

    Not public. Other packages reach it through `engine_of`.

    Attributes:
        executors: The modes.
        settings: Settings of the project and its profile; None without a project.
        recalled: Name of a tool whose schemas are known from the cache only -> time of their import, and whether its
            files have changed since.
        closed: Whether `aclose` was called.
        violations: The calls that access refused.
        passthrough: Whether mocks that ask for it may forward calls to another binding of their tool.
        offline: Whether scenarios may reach the network only with tools whose modes they name.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        executors: Executors | None = None,
        middleware: Sequence[Middleware | str] = (),
        observer: Observer | Sequence[Observer] | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        stock: LoadedProject | None = None,
        egress: Iterable[str] = (),
        origins: Mapping[str, str] = NOTHING,
        servers: Mapping[str, Server] = NOTHING,
        passthrough: bool = False,
        sandbox: Literal["bubblewrap", "none"] | None = None,
        client: Client | None = None,
        trust: Trust | None = None,
        provide: Mapping[str, Any] = NOTHING,
        approvals: ApprovalStore | Path | str | None = None,
        approver: Approver | None = None,
        telemetry: Telemetry | None = None,
        journal: Path | str | Literal[False] | None = None,
        access: tuple[Any, ...] = (),
    ) -> None:
        """Create an engine with the parameters of `Runtime`, plus the loaded project (`stock`) and `trust`.

        Raises:
            ConfigurationError: As `Runtime`.
        """
        self.executors = executors or Executors.installed()
        self.settings: Settings | None = None
        self.recalled: Mapping[str, tuple[str, bool]] = NOTHING
        self.closed = False
        self.passthrough, self.offline = passthrough, False
        self.call_numbers = itertools.count(1)
        self.call_statistics = CallStatistics()
        self._client = client
        self._provided = provide
        self._approval_store, self._approver = approvals, approver
        if telemetry is not None:
            telemetry.check()
        self._telemetry = telemetry
        self._journal_place = journal
        self._journal: tuple[object, Journal | None] | None = None  # opened for this place
        self._live_servers: dict[str, Server] = {}  # of the network environment
        self._given = (stock or LoadedProject(registry))._replace(registry=registry)
        if servers:
            registry, stock = start_over(self._given, servers, self.executors)
        self._stock = LoadedProject(registry) if stock is None else stock
        self._asked: OpenRequest | None = None
        layers = tuple(middleware_named(item) if isinstance(item, str) else item for item in middleware)
        self.trust = Trust() if trust is None else trust
        self._observers = Observers(observer)
        self._binder = Binder(
            self.executors,
            layers,
            self._observers,
            equip=self._equip,
            check=self._check_trust,
            unmet=self._unmet,
            gate=self._gate,
            record=self._record,
            approve=self._approve,
            budgets=self._budgets_of,
            limit_rules=self._limit_rules_of,
            telemetry=lambda: self.telemetry,
            secrets=lambda: self.known_secrets,
            journal=lambda: self.journal,
        )
        self.violations = ViolationLog()
        self._access: AccessControl | None = None
        self._access_of: tuple[Any, ...] = ()
        if access:
            self.settings = NO_SETTINGS._replace(access=access)
            registry = self._seen_by_anyone(registry)
        self._reach = (egress if isinstance(egress, str) else tuple(egress), dict(origins))
        if any(self._reach):
            # Fail in the constructor, not in the first call that needs the network.
            _world_of(*self._reach)
        self._sandbox = _checked_sandbox(sandbox)
        self._world: NetworkEnvironment | None = None
        self._settled = False  # whether `_world` was built with the project's own egress settings
        self._table = ToolTable(registry)
        self._session_ids = itertools.count(1)
        self._runner: asyncio.Runner | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._followers: list[Callable[[], None]] = []
        self._sources: PythonModules | None = None
        self._switches: list[Rule] = []
        self._budgets: tuple[Settings, tuple[Budget, ...]] | None = None  # compiled for these settings
        self._limit_rules: tuple[Settings, tuple[LimitRule, ...]] | None = None  # as above
        self._changes: dict[str, Descriptor | None] = {}  # the tools that `add` and `remove` gave and took
        self._configs: dict[str, dict[str, JSON]] = {}  # what `configure` set for tools of files
        self._main = self.session(id="main", clock=clock, seed=seed)

    def read_from(self, asked: OpenRequest, settings: Settings | None) -> None:
        """Remember what was opened, so that a reload can read it again."""
        self._asked, self.settings = asked, settings

    @property
    def stock(self) -> LoadedProject:
        """The loaded project, before the profile is applied: packs, project, sources, file fingerprints."""
        return self._stock

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of refused documents and of servers that cannot be listed."""
        told = self._discovery.problems() if self.servers else ()
        if self._modules is not None:
            told = (*told, *self._modules.problems())
        return (*self._stock.problems, *told) if told else self._stock.problems

    @property
    def servers(self) -> Mapping[str, Server]:
        """The MCP servers, by name."""
        return self._stock.servers

    @property
    def lock_file(self) -> str:
        """Path of the servers' lock file; empty without servers."""
        return self._stock.lock_file

    @property
    def registry(self) -> Registry:
        """The tools, as they are now."""
        return self._table.registry

    @property
    def default_session(self) -> Session:
        """The session of calls made on the runtime itself."""
        return self._main

    def call_sync(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """Call without an event loop; see `Runtime.call_sync`."""
        # A coroutine cannot be driven to its end from within another loop of the same thread.
        if _loop_is_running():
            raise ConfigurationError(
                "cannot use `call_sync` inside a running event loop",
                hint="use `await runtime.call(...)`",
            )
        result = self._main.call_at_once(name, arguments)
        return self.run(self._main.call(name, arguments)) if result is None else result

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop kept for synchronous code; threads take turns."""
        with self._running:
            # One loop for all synchronous calls: pooled connections and server processes belong to a loop and
            # would be lost with a new loop for each call.
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
        id: str | None = None,  # noqa: A002 -- matches `Session.id`
        seed: int = 0,
        clock: Clock | None = None,
        registry: Registry | None = None,
        toolset: str | None = None,
        user: str = "",
        caller: str = "",
        correlation: str = "",
        client: Client | None = None,
        approver: Approver | None = None,
    ) -> Session:
        """Create an isolated session; see `Runtime.session`."""
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
            approver=self._approver if approver is None else approver,
        )

    def add(
        self, tool: Descriptor | Declared, *, replace: bool = False, keys: Mapping[str, Any] = NOTHING
    ) -> Descriptor:
        """Add a tool; see `Runtime.add`."""
        self.check_open()
        if not isinstance(tool, Descriptor):
            from toolcrib.executors.python.factories import declared_tool  # noqa: PLC0415 -- few programs add tools

            tool = declared_tool(tool, self.executors, keys, self._provided)
        elif keys:
            listed = ", ".join(f"`{key}`" for key in keys)
            message = f"the descriptor `{tool.name}` has its own keys; {listed} cannot be set here"
            raise ConfigurationError(message, hint="set them in the descriptor")
        if not replace:
            self._check_new([tool.name])
        self._change(tool.name, tool)
        return self.registry[tool.name]

    def add_provider(
        self, provider: ToolProvider, *, replace: bool = False, keys: Mapping[str, Any] = NOTHING
    ) -> list[Descriptor]:
        """Add the tools of a provider; see `Runtime.add`."""
        from toolcrib.executors.python.factories import descriptors_of_provider  # noqa: PLC0415 -- few programs have one

        self.check_open()
        tools = descriptors_of_provider(provider, self.executors, keys)
        if not replace:
            self._check_new([tool.name for tool in tools])
        for tool in tools:
            self._change(tool.name, tool)
        return [self.registry[tool.name] for tool in tools]

    def _check_new(self, names: Sequence[str]) -> None:
        known = {name: self.registry[name].origin.place() for name in names if name in self.registry}
        if known:
            listed = ", ".join(f"`{shorten(name)}` ({place})" for name, place in known.items())
            raise ConfigurationError(
                f"the tools {listed} exist already"
                if len(known) > 1
                else f"the tool {listed} exists already",
                code="duplicate_tool",
                hint="rename one of them, or use `replace=True`",
            )

    def add_executor(self, executor: Executor, mode: str = "") -> None:
        """Add a mode; see `Runtime.add`."""
        self.check_open()
        if not mode:
            hint = f'write `add({type(executor).__name__}(), mode="...")`'
            raise ConfigurationError("an executor needs the name of its mode", code="bad_mode", hint=hint)
        self.executors.add(mode, executor)
        # The blocks of the mode could not be checked until now.
        if self._asked is not None:
            self._swap(self._started_again())
        else:
            self._table.swap(self.registry, {})

    def remove(self, name: str) -> None:
        """Remove a tool; see `Runtime.remove`."""
        self.check_open()
        self._check_known(name)
        self._change(name, None)

    def switch(self, globs: Sequence[str], *, enables: bool) -> None:
        """Disable or enable tools; see `Runtime.disable`."""
        from toolcrib.loading.reload import compare_registries  # noqa: PLC0415 -- few runtimes change

        self.check_open()
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in self.registry):
                hint = did_you_mean(glob.strip("*?"), self.registry) or how_many(self.registry)
                message = f"`{shorten(glob)}` matches no tool"
                raise ConfigurationError(message, code="unknown_tool", hint=hint)
        rule = Rule(tuple(globs), enables, "the program")
        self._switches.append(rule)
        before = self.registry
        self._table.swap(before.with_rules([rule]), {})
        self._tell(compare_registries(before, self.registry))

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Add an observer; see `Runtime.observe`."""
        remove = self._observers.add(observer)
        # The first observer adds a layer to every chain, and the last one to go removes it.
        self._table.forget_chains()

        def stop() -> None:
            remove()
            self._table.forget_chains()

        return stop

    def cancel(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- as in `Runtime.cancel`
        correlation: str | None = None,
        session: str | None = None,
        caller: str | None = None,
        tool: str | None = None,
        all: bool = False,  # noqa: A002 -- as above
    ) -> int:
        """Cancel running calls; see `Runtime.cancel`."""
        wanted = (id, correlation, session, caller, tool)
        if not all and wanted == (None,) * 5:
            raise ConfigurationError(
                "`cancel` needs to know which calls",
                hint="give `id`, `correlation`, `session`, `caller` or `tool`, or `all=True`",
            )

        def matches(call: Call) -> bool:
            context = call.context
            given = (call.id, context.correlation, context.session.id, context.caller, call.tool.name)
            return not any(want not in {None, has} for want, has in zip(wanted, given, strict=True))

        return self.running_calls.cancel(matches)

    def tell_observers(self, event: Event) -> None:
        """Notify the observers."""
        self._observers.tell(event)

    def estimate(self, name: str) -> CallEstimate:
        """What a call of a tool is expected to use; see `Runtime.estimate`."""
        self._check_known(name)
        seen = self._binder.observations_of(name, self._main.clock)
        return estimate_of(self.registry[name], self.call_statistics.taken(), seen)

    def forget_observations(self) -> None:
        """Forget what was observed in calls."""
        self._binder.forget_observations()

    def _check_known(self, name: str) -> None:
        if name in self.registry:
            return
        near = self.registry.near(name)
        hint = (
            f"did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else how_many(self.registry)
        )
        raise ConfigurationError(f"unknown tool `{shorten(name)}`", code="unknown_tool", hint=hint)

    def configure(self, name: str, config: Mapping[str, JSON]) -> Descriptor:
        """Change the config of a tool; see `Runtime.configure`."""
        self.check_open()
        self._check_known(name)
        tool = self.registry[name]
        executor: Any = None if tool.mode is None else self.executors.get(tool.mode)
        if not hasattr(executor, "with_config") or tool.mode not in tool.bindings:
            message = f"cannot configure `{name}`: its mode is `{tool.mode}`, which has no `config`"
            raise ConfigurationError(message, hint="only tools in mode `python` can be configured")
        self._check_trust(tool)
        self._equip(executor)
        added = self._changes.get(name)
        changed: Descriptor = executor.with_config(tool if added is None else added, dict(config))
        if added is None:
            self._configs[name] = dict(config)
            self._swap_tool(name, self.registry.with_tool(changed))
        else:
            self._change(name, changed)
        return self.registry[name]

    def _change(self, name: str, tool: Descriptor | None) -> None:
        self._changes[name] = tool
        self._configs.pop(name, None)
        before = self.registry
        after = before.without(name) if tool is None else before.with_tool(self._configured(tool))
        self._swap_tool(name, after)

    def _swap_tool(self, name: str, after: Registry) -> None:
        """Replace the registry by one in which only one tool differs."""
        from toolcrib.loading.reload import compare_registries  # noqa: PLC0415 -- few runtimes change

        before = self.registry
        # The other chains stay: their tools have not changed.
        chains = {known: chain for known, chain in self._table.chains.items() if chain.tool.name != name}
        self._table.swap(after, chains)
        self._retire(before, [name])
        self._tell(compare_registries(before, after))

    def _retire(self, before: Registry, names: Iterable[str]) -> None:
        """Let the modes close what only the previous versions of these tools used."""
        for name in names:
            old, new = before.get(name), self.registry.get(name)
            executor: Any = None if old is None or old.mode is None else self.executors.made(old.mode)
            if old is None or not hasattr(executor, "retire") or not _runs_otherwise(old, new):
                continue
            if _loop_is_running():
                executor.retire(name)
            elif not executor.keeps_nothing:
                self.run(_within_loop(executor.retire, name))

    def _configured(self, tool: Descriptor) -> Descriptor:
        """A tool that was added, with the defaults and modes that apply to those of files."""
        modes = NOTHING if self._asked is None else self._asked.modes
        if self.settings is not None:
            tool = apply_settings(tool, self.settings)
        if self.settings is not None and self.settings.limit_rules:
            from toolcrib.loading.limit_rules import fixed_limits  # noqa: PLC0415 -- few projects have such rules

            tool = fixed_limits(self.settings.limit_rules)(tool)
        return with_modes(Registry([tool]), modes)[tool.name]

    def _with_changes(self, registry: Registry) -> Registry:
        """A registry that was read again, with the tools that `add` and `remove` gave and took."""
        gone = [name for name, tool in self._changes.items() if tool is None and name in registry]
        added = [self._configured(tool) for tool in self._changes.values() if tool is not None]
        if gone:
            registry = registry.without(*gone)
        for name, config in self._configs.items():
            tool = registry.get(name)
            executor: Any = None if tool is None or tool.mode is None else self.executors.get(tool.mode)
            # Not checked again: if the code changed as well, binding the tool reports what does not fit.
            if tool is not None and hasattr(executor, "with_config") and tool.mode in tool.bindings:
                added.append(executor.with_config(tool, config, check=False))
        registry = registry.with_tools(added) if added else registry
        return registry.with_rules(self._switches) if self._switches else registry

    @property
    def incomplete(self) -> list[Descriptor]:
        """The tools whose schemas only their binding knows, such as those of Python functions in files."""
        return [*completed_tools(self.registry, self.executors)]

    def complete(self) -> None:
        """Bind the incomplete tools, so that their schemas are known before tools are listed."""
        incomplete = self.incomplete
        found = [self.chain_for(tool).tool for tool in incomplete]
        changed = [tool for tool, before in zip(found, incomplete, strict=True) if tool is not before]
        if changed:
            self._table.swap(self.registry.with_tools(changed), {})
            if self._asked is not None:
                from toolcrib.engine.python_modules import save_completed  # noqa: PLC0415 -- as above

                save_completed(incomplete, changed, self.trust)

    def recall_schemas(self) -> None:
        """Complete tools from the cache of definitions, for commands that only list."""
        incomplete = self.incomplete
        if incomplete:
            from toolcrib.engine.python_modules import load_completed  # noqa: PLC0415 -- few tools need it

            changed, self.recalled = load_completed(incomplete, self.trust)
            self._table.swap(self.registry.with_tools(changed), {})

    @property
    def _modules(self) -> PythonModules | None:
        """The Python sources; None if there are none."""
        if self._sources is None and self._stock.python:
            from toolcrib.engine.python_modules import PythonModules  # noqa: PLC0415 -- few projects have any

            self._sources = PythonModules(self, self._provided)
        return self._sources

    async def import_sources(self) -> None:
        """Import the Python sources that are trusted and were not imported yet, and add their tools."""
        modules = self._modules
        if modules is not None and modules.unimported:
            async with self.changing:
                if modules.load():
                    await self.read_again()

    @property
    def has_untried_sources(self) -> bool:
        """Whether a Python source was neither imported nor denied, so that its tools are not known yet."""
        return self._modules is not None and self._modules.untried

    @property
    def unimported(self) -> tuple[str, ...]:
        """Names of the Python sources that were not imported by this runtime."""
        return () if self._modules is None else tuple(source.name for source in self._modules.unimported)

    def in_mode(self, tool: Descriptor, mode: str) -> BoundTool:
        """Bind a tool in another of its modes, without layers; an `Unavailable` if that is not possible."""
        return self._binder.in_mode(tool, mode)

    def chain_for(self, tool: Descriptor) -> BoundChain:
        """Return the chain of a descriptor; chains of the runtime's own registry are built once."""
        table = self._table
        # A session may have another tool of the same name: compare identity, not the name. It may also offer a tool
        # that the runtime hides, whose chain in the table refuses every call.
        if table.registry.get(tool.name) is not tool or table.registry.hidden(tool.name) is not None:
            return self._chain(tool)
        chain = table.chains.get(tool.name)
        if chain is None:
            chain = self._chain(tool)
            # A missing secret or server may be there at the next call, so such a chain is not kept.
            if chain.lasting:
                table.chains[tool.name] = chain
        return chain

    @property
    def access(self) -> AccessControl:
        """Who may call what, by the settings of the project and its profile."""
        plain = () if self.settings is None else self.settings.access
        if self._access is None or self._access_of is not plain:
            origins = NOTHING if self.settings is None else self.settings.origins
            self._access_of = plain
            self._access = access_control(read_access(plain), self.executors, self.servers, origins)
        return self._access

    @property
    def paths(self) -> PathAccess:
        """The folders in which calls may read and write files."""
        return self.access.paths

    def _gate(self, tool: Descriptor) -> ToolGate | None:
        return self.access.gate(tool)

    def _record(self, violation: AccessViolation) -> None:
        self.violations.add(violation)
        self.call_statistics.add_violation()
        self._observers.tell(violation)

    def chain_of_denied(self, tool: Descriptor, context: CallContext) -> BoundChain | None:
        """Return the chain of a tool that access denies a caller, whatever the arguments; None if it may be called."""
        gate = self.access.gate(tool)
        if gate is None or gate.audit:
            return None
        decision = gate.decide_for(principal_of(context))
        return self._binder.denied(tool) if decision is not None and decision.effect == "deny" else None

    def seen_by(self, registry: Registry, context: CallContext | Principal) -> Registry:
        """Return the tools that access lets a caller see."""
        access = self.access
        if access.decides_nothing:
            return registry
        look = access.look(principal_of(context))
        return registry if look is None else registry.derived_once((look,), lambda: registry.seen_by(look))

    def _seen_by_anyone(self, registry: Registry) -> Registry:
        look = self.access.look(ANYONE)
        return registry if look is None else registry.seen_by(look)

    def log_idle_rules(self, access: tuple[Any, ...]) -> None:
        """Log the rules of a program that have no effect on the current tools."""
        if not access:
            return
        from toolcrib.engine.discovery import is_of_unlisted  # noqa: PLC0415 -- few programs have rules
        from toolcrib.loading.access import check_rules  # noqa: PLC0415 -- as above

        own = read_access(access).rules
        inherited = self.access.settings.rules[: -len(own) or None]
        stock = self._stock
        log_problems(
            check_rules(
                inherited,
                own,
                stock.registry,
                lambda glob: not stock.unimported and not is_of_unlisted(glob, stock.unlisted),
            )
        )

    def chain_of_hidden(self, tool: Descriptor, hidden: HiddenReason) -> BoundChain:
        """Return the chain of a tool that is not offered: every call fails with the reason."""
        return self._binder.of_hidden(tool, hidden)

    def _chain(self, tool: Descriptor) -> BoundChain:
        server = self.awaited(tool.name, tool.mode)
        if server is not None:
            return self._binder.unable(tool, self._unheard(tool.name, server), lasting=False)
        why = self._unbound(tool)
        if why is None:
            return self._binder.chain(tool)
        return self._binder.unable(tool, Unavailable(_with_hint(why), code=why.code), lasting=False)

    def _unbound(self, tool: Descriptor) -> Problem | None:
        """Why no server could be chosen for a tool whose block names none; None for any other tool."""
        return self._stock.unbound.get(tool.name) if tool.mode == MODE else None

    def _unheard(self, name: str, server: str) -> Unavailable:
        # The schema of the tool is known only to its server, so arguments cannot be checked yet.
        why, code, outcome = self._discovery.why_unheard(name, server)
        return Unavailable(why, code=code, outcome=outcome)

    @property
    def world(self) -> NetworkEnvironment:
        """What the modes may reach, from the project, its profile and the caller.

        The settings of an untrusted project are ignored, even for a provider that the caller configured.
        """
        # Trust can change while the runtime is open (a person answers a prompt), so look at it each time.
        settled = self.trust.trusts_settings()
        if self._world is None or settled is not self._settled:
            self._settled = settled
            egress, origins = self._reach
            settings = self.settings if settled else None
            if settings is not None:
                egress, origins = (*settings.egress, *egress), {**settings.origins, **origins}
            access = self.access.settings
            self._world = _world_of(egress, origins, access.hosts, audit=access.audit)._replace(
                trust=self.trust,
                sandbox=self._sandbox or ("" if settings is None else settings.sandbox),
                paths=self.access.paths,
            )
            if self.servers:
                judge = self.access.judge(self._discovery.judge())
                record = mcp_durations(self.telemetry)
                self._live_servers = dict(self.servers)
                self._world = self._world._replace(servers=self._live_servers, judge=judge, record=record)
        return self._world

    @cached_property
    def running_calls(self) -> RunningCalls:
        """The calls that are waiting."""
        from toolcrib.core.running_calls import RunningCalls  # noqa: PLC0415 -- most mocked calls never wait

        return RunningCalls()

    @cached_property
    def approvals(self) -> Approvals:
        """The calls that wait for a person, and standing approvals."""
        from toolcrib.engine.approvals import Approvals, default_store, folder_store  # noqa: PLC0415 -- few calls wait for a person
        from toolcrib.security.approvals import MemoryApprovals  # noqa: PLC0415 -- as above

        store = self._approval_store
        if store is None:
            store = MemoryApprovals() if self._asked is None else default_store(self._workspace)
        elif isinstance(store, str | os.PathLike):
            store = folder_store(store, in_work_tree=True)
        return Approvals(self, store)

    @property
    def journal(self) -> Journal | None:
        """The calls that left the process; None if they are not recorded."""
        place = self._journal_place
        said = NOTHING if self.settings is None else self.settings.journal
        if place is False or (place is None and (self._stock.project is None or said.get("store") == "off")):
            return None
        if self._journal is None or self._journal[0] != (place, said):
            from toolcrib.engine.call_journal import open_journal  # noqa: PLC0415 -- few tools leave the process

            self._close_journal()
            self._journal = (place, said), open_journal(self, place, said, self._workspace)
        return self._journal[1]

    def journal_address(self, written: str) -> str:
        """The address of the server of the project's journal, with its look-ups resolved.

        Raises:
            UnusableJournal: The project is not trusted, or a variable is missing.
        """
        from toolcrib.security.journal import UnusableJournal  # noqa: PLC0415 -- few projects have such a server
        from toolcrib.security.secrets import MissingSecret  # noqa: PLC0415 -- as above

        if not self.trust.trusts_settings():
            raise UnusableJournal(
                "the server of the journal is not contacted: the project is not trusted",
                hint="run `toolcrib trust`",
            )
        try:
            return self.world.secrets.fill(written, pointer="/journal")
        except MissingSecret as error:
            raise UnusableJournal(f"the address of the journal is incomplete: {error.message}") from None

    def _close_journal(self) -> None:
        if self._journal is not None and self._journal[1] is not None:
            self._journal[1].close()

    def use_keys(self) -> None:
        """Let all chains look for idempotency keys from now on."""
        if not self._binder.keyed:
            self._binder.keyed = True
            self._table.forget_chains()

    @property
    def _workspace(self) -> str:
        """The folder of the project, or the paths that were opened: approvals belong to it."""
        if self._stock.project is not None:
            return os.path.realpath(self._stock.project.root)
        paths = () if self._asked is None else self._asked.paths
        return "\n".join(sorted(map(os.path.realpath, paths))) or os.path.realpath(working_folder() or ".")

    @property
    def approval_lifetime(self) -> float | None:
        """Seconds after which a pending approval expires."""
        from toolcrib.engine.approvals import LIFETIME  # noqa: PLC0415 -- as above

        said = None if self.settings is None else self.settings.approvals.get("expire_after")
        return LIFETIME if said is None else parse_duration(str(said))

    @property
    def known_secrets(self) -> Redactor | None:
        """The secrets that were looked up so far, if any."""
        return None if self._world is None else self._world.secrets

    @property
    def telemetry(self) -> Telemetry:
        """What is recorded of calls, as the program, the project or its profile configures it."""
        if self._telemetry is not None:
            return self._telemetry
        return NO_TELEMETRY if self.settings is None else telemetry_of(self.settings.telemetry)

    async def _approve(self, call: Call, decision: AccessDecision, call_next: CallNext) -> Answer:
        """Continue a call that a person has approved; otherwise ask, or return `needs_approval`."""
        return await self.approvals.approve(call, decision, call_next)

    def decide(self, call: Call) -> AccessDecision | None:
        """What access decides about a call; None if it decides nothing about the tool, or only records (audit)."""
        gate = self._gate(call.tool)
        return None if gate is None or gate.audit else gate.decide(call)

    def _budgets_of(self, tool: Descriptor) -> Sequence[Budget]:
        """The budgets that count a tool."""
        settings = self.settings
        if settings is None or not settings.budgets:
            return ()
        if self._budgets is None or self._budgets[0] is not settings:
            from toolcrib.loading.budgets import compile_budgets  # noqa: PLC0415 -- few projects have budgets

            self._budgets = settings, compile_budgets(settings.budgets)
        return tuple(budget for budget in self._budgets[1] if budget.counts(tool))

    def _limit_rules_of(self, tool: Descriptor) -> Sequence[LimitRule]:
        """The rules of `limits.rules` that may limit calls of a tool."""
        settings = self.settings
        if settings is None or not settings.limit_rules:
            return ()
        from toolcrib.loading.limit_rules import (  # noqa: PLC0415 -- few projects have such rules
            compile_limit_rules,
            rules_for,
        )

        if self._limit_rules is None or self._limit_rules[0] is not settings:
            self._limit_rules = settings, compile_limit_rules(settings.limit_rules)
        return rules_for(self._limit_rules[1], tool)

    def keeps_state(self, tool: Descriptor) -> bool:
        """Whether calls of a tool depend on earlier calls of their session."""
        # A call that a mock forwards reaches another mode of its tool.
        modes = tool.bindings if self.passthrough else [tool.mode]
        return any(mode is not None and self._keeps_state(tool, mode) for mode in modes)

    def _keeps_state(self, tool: Descriptor, mode: str) -> bool:
        remote = self.executors.remote_of(mode, tool.name, tool.bindings.get(mode))
        server = None if remote is None else self.servers.get(remote.server)
        if server is not None and server.scope == "session":
            return True
        return self.executors.keeps_state(mode, tool)

    def _check_trust(self, tool: Descriptor) -> None:
        from toolcrib.engine.workspaces import subject_of_tool  # noqa: PLC0415 -- mocks need no trust

        if tool.offline and self.contacts(tool):
            raise NetworkRefused(tool.name, tool.mode, tool.offline)
        if self.trust.policy.everything or tool.mode is None or self._is_added(tool):
            return
        self.trust.check(subject_of_tool(tool, self.executors, self.trust, tool.mode))
        remote = self.executors.remote_of(tool.mode, tool.name, tool.bindings.get(tool.mode))
        for name in () if remote is None else remote.servers:
            if name in self.servers:
                self.trust.check_server(self.servers[name])

    def contacts(self, tool: Descriptor) -> bool:
        """Whether calls of a tool reach the network in its mode, as far as the mode says so."""
        uses = self.executors.requirements_of(tool.mode or "", tool, self.servers)
        return uses is not None and "network" in uses.capabilities

    def _is_added(self, tool: Descriptor) -> bool:
        """Whether the program itself added a tool, which therefore needs no trust."""
        added = self._changes.get(tool.name)
        return (
            added is not None
            and added.bindings == tool.bindings
            and added.origin.source == tool.origin.source
        )

    def _equip(self, executor: Any) -> None:
        """Give an executor what it declares: network environment, listener for changed servers, `in_mode`."""
        # Duck typing: third-party executors declare only the attributes that they need.
        if hasattr(executor, "world"):
            executor.world = self.world
        if hasattr(executor, "changed"):
            executor.changed = self._discovery.hear
        if hasattr(executor, "elsewhere"):
            executor.elsewhere = self._binder.in_mode
        if hasattr(executor, "provided"):
            executor.provided = self._provided

    @cached_property
    def _discovery(self) -> Discovery:
        from toolcrib.engine.discovery import Discovery  # noqa: PLC0415 -- few runtimes have servers

        return Discovery(self)

    @property
    def lock_policy(self) -> Literal["warn", "block"]:
        """Whether a tool that differs from the lock is reported (`warn`) or refused (`block`)."""
        said = self.settings.lock if self.settings is not None else ""
        return "block" if said == "block" else "warn"

    def unavailable(self, tool: Descriptor, principal: Principal = ANYONE) -> str:
        """Why a tool cannot be called by someone, and how to fix it; empty if it can."""
        why, refused = self._unbound(tool), over_estimate(tool)
        return (
            self.seen_by(self.registry, principal).why_hidden(tool.name)
            or self._binder.missing(tool)
            or self._unmet(tool)
            or self._lacks(tool)
            or ("" if refused is None else refused.reason)
            or (f"{why.message}; {why.hint}" if why is not None else "")
        )

    def _unmet(self, tool: Descriptor) -> str:
        """Which requirement of a tool is not met in this environment; empty if none is missing."""
        if self.telemetry.lacks_extra:
            return MISSING
        if not tool.platforms and not any(tool.dependencies):
            return ""
        return self.environment_check()(card_of(tool))

    def _lacks(self, tool: Descriptor) -> str:
        """What this machine lacks to run a tool in its mode; empty if nothing is known to be missing."""
        if tool.mode is None or not self.executors.checks_machine(tool.mode):
            return ""
        # The project decides where programs run, and which servers there are.
        self._equip(self.executors.get(tool.mode))
        return self.executors.lacks(tool.mode, tool, self.trust.contents.base)

    def environment_check(self) -> Callable[[Card], str]:
        """A function from a card to why the tool cannot run in this environment; empty if it can.

        It remembers what it found: ask for a new one for each look.
        """
        from toolcrib.loading.tool_requirements import EnvironmentCheck  # noqa: PLC0415 -- few tools have requirements

        executors = self.executors

        def unmet(card: Card) -> str:
            # A mock answers everywhere.
            if card.mode is None or executors.is_contained(card.mode):
                return ""
            why = check.unmet(card) if card.requires else ""
            if why or not executors.checks_machine(card.mode):
                return why
            tool = self.registry[card.name]
            # A list gives the line of the tool: to find those of its keys, its file would be parsed for each tool.
            return self._lacks(tool._replace(origin=tool.origin._replace(locate=lambda _pointer: (0, 0))))

        def why_unable(name: str) -> str:
            card = self.registry.cards.get(name)
            if card is None:
                return f"unknown tool `{shorten(name)}`"
            return self.registry.why_hidden(name) or why_not_callable(card)

        def why_not_callable(card: Card) -> str:
            return why_unable_of(card, executors.modes, executors.missing, unmet)

        check = EnvironmentCheck(why_unable)
        return unmet

    def not_ready(self, tool: Descriptor) -> str:
        """Prerequisite that a tool that reaches out lacks now, such as a secret; empty if none."""
        # Only binding the tool shows what is missing; binding a mock could compile a lot for nothing.
        bound = self._binder.chain(tool).bound if self.reaches_out(tool) else None
        return bound.reason if isinstance(bound, Unavailable) else ""

    def timeout_of(self, tool: Descriptor) -> float:
        """Timeout of a tool in seconds: the one of its binding, else the one of its descriptor."""
        # A binding that completes its tool imports code, which a command that only shows must not do.
        if tool.mode is not None and self.executors.may_complete(tool.mode):
            return tool.timeout
        own: float | None = getattr(self._binder.chain(tool).bound, "timeout", None)
        return tool.timeout if own is None else own

    def plays_examples(self, tool: Descriptor) -> bool:
        """Whether `toolcrib run` plays the examples of a tool: it has no effects outside, or its mode allows it."""
        executor = None if tool.mode is None else self.executors.get(tool.mode)
        plays: Callable[[Descriptor], bool] | None = getattr(executor, "plays_examples", None)
        return not self.reaches_out(tool) if plays is None else plays(tool)

    def why_not_played(self, tool: Descriptor) -> str:
        """Why the examples of a tool are not played, although it can run; empty if they are."""
        if self.plays_examples(tool):
            return ""
        executor = None if tool.mode is None else self.executors.get(tool.mode)
        if hasattr(executor, "plays_examples"):
            return "the annotations allow destructive effects"
        return f"mode `{tool.mode}` reaches outside this process"

    def reaches_out(self, tool: Descriptor) -> bool:
        """Whether the active mode touches something outside: a server, a process, the client."""
        executor = None if tool.mode is None else self.executors.get(tool.mode)
        return hasattr(executor, "world") or getattr(executor, "reaches_out", False)

    def not_found(self, name: str, registry: Registry) -> Result:
        """Build the result for an unknown tool: near misses, or the problem of its document."""
        server = self.awaited(name)
        if server is not None:
            unheard = self._unheard(name, server)
            return Result.failure(unheard.outcome, unheard.reason, code=unheard.code)
        why = None if self._modules is None else self._modules.why_unknown(name)
        if why is not None:
            return why
        near = registry.near(name)
        message = f"unknown tool `{shorten(name)}`"
        refused = self._stock.refused
        if name in refused and refused[name].code == "server_remark":
            message += f": {refused[name].message}"
        elif name in refused:
            message += f"; its document was refused: {refused[name]}"
        else:
            if near:
                message += f"; did you mean {' or '.join(f'`{match}`' for match in near)}?"
            # Near misses are a guess from the spelling; a model that guessed the name needs the others as well.
            message += f" {list_of_tools(registry)}"
        return Result.failure(Outcome.NOT_FOUND, message, details={"near": list(near)})

    def check_open(self) -> None:
        """Check that the runtime is open.

        Raises:
            ClosedRuntime: The runtime was closed.
        """
        if self.closed:
            raise ClosedRuntime("the runtime is closed", hint="call inside `async with Runtime.open(...)`")

    async def reload(self) -> ReloadReport:
        """Read everything again and swap it in; see `Runtime.reload`."""
        from toolcrib.loading.reload import reload_report  # noqa: PLC0415 -- few runtimes reload

        if self._asked is None:
            raise ConfigurationError(
                "cannot reload: the runtime was not read from disk",
                hint="open it with `Runtime.open(...)`",
            )
        async with self.changing:
            started = RealClock().monotonic()
            self.check_open()
            seen, servers = self._stock.seen, self.servers
            events = await self.read_again()
            # Only the first reading shows which servers changed; their tools come from the old answers until
            # these are dropped and everything is linked again.
            if servers and self._discovery.forget(servers):
                events = [*events, *await self.read_again()]
            files = seen.changed() if seen is not None else ()
            duration = RealClock().monotonic() - started
            report = reload_report(self.registry, events, self._stock.problems, files, duration)
        # Outside the lock, which these acquire themselves.
        await self.import_sources()
        if self.servers:
            await self.discover()
        return report

    @cached_property
    def changing(self) -> CrossLoopLock:
        """Lock held while the registry changes; a runtime may be used in several event loops."""
        from toolcrib.core.clock import CrossLoopLock  # noqa: PLC0415 -- few runtimes change

        return CrossLoopLock()

    async def read_again(self) -> Sequence[ToolEvent]:
        """Read everything again and swap it in atomically."""
        import asyncio  # noqa: PLC0415 -- as above

        # Parsing a large project would stop the event loop, and with it every call that is under way.
        return self._swap(await asyncio.to_thread(self._started_again))

    def _swap(self, now: StartupState) -> Sequence[ToolEvent]:
        """Make a project that was read again the current one."""
        from toolcrib.loading.reload import ToolChanged, ToolGone, compare_registries  # noqa: PLC0415 -- as above
        from toolcrib.loading.settings import has_same_egress  # noqa: PLC0415 -- as above

        before = self.registry
        same = has_same_egress(self.settings, now.settings) and (
            configured_servers(now.stock.servers) == configured_servers(self.servers)
        )
        self._stock = now.stock
        if self._asked is not None:
            self.settings = now.settings
        if not same:
            self._world = None  # rebuilt only if needed: a new one loses open connections and cached tokens
        else:
            # So that no connection is lost when a directory lists other agents.
            self._live_servers.update(self.servers)
            for name in self._live_servers.keys() - self.servers.keys():
                del self._live_servers[name]
        self._table.swap(self._with_changes(now.registry).after(before), {})
        self.complete()
        events = compare_registries(before, self.registry)
        self._retire(
            before, [each.before.name for each in events if isinstance(each, ToolChanged | ToolGone)]
        )
        self._tell(events)
        return events

    def _started_again(self) -> StartupState:
        offered = self._discovery.offered if self.servers else NOTHING
        if self._asked is None:
            started = start_over(self._given, configured_servers(self.servers), self.executors, offered)
            registry = self._seen_by_anyone(started[0])
            return StartupState(self.executors, started[1], registry, self.settings or NO_SETTINGS)
        imported = None if self._modules is None else self._modules.imported
        return start_again(self._asked, self.executors, self._stock, offered, self.trust, imported=imported)

    async def discover(self, *names: str) -> tuple[Problem, ...]:
        """List the tools of MCP servers and add them; see `Runtime.discover`."""
        self.check_open()
        if not names:
            await self.import_sources()
        wanted = names or self.undiscovered
        return await self._discovery.ask(wanted) if wanted else ()

    @property
    def undiscovered(self) -> tuple[str, ...]:
        """Names of the servers that must be listed before all tools and their schemas are known; sorted."""
        stock = self._stock
        if not stock.unlisted and not stock.waiting:
            return ()
        from toolcrib.engine.discovery import all_awaited  # noqa: PLC0415 -- as above

        return all_awaited(stock, self.registry)

    def awaited(self, name: str, mode: str | None = None) -> str | None:
        """The server that must be listed before a tool can be called, if any; `mode` is that in a session."""
        stock = self._stock
        return (
            self._discovery.awaited(name, mode) if stock.unlisted or stock.waiting or stock.locked else None
        )

    def may_appear(self, name: str) -> bool:
        """Whether a tool may exist once servers are listed and Python sources are imported."""
        unknown = self._modules is not None and name not in self.registry and self._modules.untried
        return bool(unknown) or self.awaited(name) is not None

    async def discover_for(self, name: str) -> None:
        """List the servers, and import the modules, that must be known before a tool can be called."""
        if self._modules is not None and name not in self.registry:
            await self.import_sources()
        servers = self._discovery.all_awaited(name) if self.servers else ()
        if servers:
            await self.discover(*servers)

    async def read_directories(self) -> None:
        """Read the directories of agents that were not read yet; the agents that they list are servers from then on."""
        directories = [name for name, server in self.servers.items() if server.lists]
        if directories:
            await self._discovery.ask(directories, follow=False)

    @property
    def down(self) -> Mapping[str, NotReady]:
        """Maps each MCP server that could not be listed to its error (`denied` for an untrusted server)."""
        return self._discovery.down if self.servers else NOTHING

    async def catalogue(self, server: str) -> Catalogue:
        """List what an MCP server offers; see `Runtime.catalogue`."""
        self.check_open()
        if server not in self.servers:
            from toolcrib.engine.discovery import unknown_server  # noqa: PLC0415 -- as above

            message, hint = unknown_server(server, self.servers)
            raise ConfigurationError(message, code="unknown_server", hint=hint)
        mode = self.servers[server].mode
        executor: Any = self.executors.get(mode)
        if executor is None:
            raise ConfigurationError(f"mode `{mode}` {self.executors.missing(mode)}")
        self._equip(executor)
        catalogue: Catalogue = await executor.catalogue(server)
        await self._remember(self.servers[server], catalogue)
        return catalogue

    async def _remember(self, server: Server, catalogue: Catalogue) -> None:
        """Cache what a server offers, for commands that only list, if the runtime was read from files."""
        if self._asked is None and not self._stock.lock_file:
            return
        import asyncio  # noqa: PLC0415 -- few runtimes have servers

        from toolcrib.servers.tool_list_cache import save_tool_list  # noqa: PLC0415 -- as above

        when = RealClock().now().isoformat(timespec="seconds")
        await asyncio.to_thread(save_tool_list, server, catalogue, when)

    def follow(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Register a callback that runs in the event loop each time tools are added, changed or removed.

        Unlike an observer, it adds no layer to calls.

        Returns:
            A function that removes the callback.
        """
        self._followers.append(hear)
        return lambda: self._followers.remove(hear)

    def _tell(self, events: Sequence[ToolEvent]) -> None:
        for event in events if self._observers else ():
            self._observers.tell(event)
        # A copy: a callback may remove itself.
        for hear in [*self._followers] if events else ():
            hear()

    async def watch(self, *, poll: float = 1.0) -> AsyncGenerator[ReloadReport, None]:
        """Reload whenever files change, and yield a report each time; see `Runtime.watch`."""
        from toolcrib.loading.reload import watch_changes  # noqa: PLC0415 -- few runtimes watch

        self.check_open()
        if not poll > 0:
            raise ConfigurationError(f"`poll` must be greater than 0, got {poll:g}", hint="use 1.0")

        def seen() -> FileFingerprints:
            if self._stock.seen is None:
                raise ConfigurationError("the runtime has no files to watch")
            return self._stock.seen

        clock = RealClock()
        async with aclosing(watch_changes(seen, clock=clock, poll=poll)) as changed:
            async for _paths in changed:
                while True:
                    try:
                        yield await self.reload()
                    except ConfigurationError as error:
                        _log().warning("reload refused, the current tools stay active: %s", error)
                    except OSError as error:
                        # No file descriptor is free. `watch_changes` reports a change only once, so try again
                        # here.
                        _log().warning("reload failed and will be retried: %s", error)
                        await clock.sleep(poll)
                        continue
                    break

    async def _keep_watching(self) -> None:
        async for report in self.watch():
            _log().info("reloaded: %s", report)

    @property
    def _has_running_calls(self) -> bool:
        # Reading the property would create it, and most runtimes never need it.
        return "running_calls" in vars(self) and len(self.running_calls) > 0

    async def released(self, session_id: str) -> None:
        """Release what the modes hold for a session that was closed."""
        await self.executors.release(session_id)

    async def aclose(self, *, drain: float = DRAIN) -> None:
        """Let running calls end, cancel the rest, and close everything; see `Runtime.aclose`."""
        self.closed = True  # first: no call may start on an executor that is being closed
        if self._watcher is not None:
            import asyncio  # noqa: PLC0415 -- few runtimes watch

            self._watcher.cancel()
            await asyncio.wait([self._watcher])
            self._watcher = None
        try:
            if self._has_running_calls:
                await self.running_calls.drain(drain)
            if self.servers:
                self._discovery.cancel()
            await self.executors.aclose()
        finally:
            # Also if a second signal cancels this: the journal is complete up to here.
            self._close_journal()

    def close(self, *, drain: float = DRAIN) -> None:
        """`aclose` for code without an event loop."""
        # Starting an event loop only to close nothing would cost more than the rest of a short command.
        if (
            self._runner is None
            and self._watcher is None
            and self.executors.empty_handed
            and not self._has_running_calls
        ):
            self.closed = True
            self._close_journal()
            return
        from asyncio import Runner  # noqa: PLC0415 -- as above

        with self._runner or Runner() as runner:
            runner.run(self.aclose(drain=drain))
        self._runner = None

    async def start(self) -> None:
        """List the servers that need it, and start watching files if configured."""
        await self.discover_all()
        if self._asked is not None and self._asked.watched:
            import asyncio  # noqa: PLC0415 -- as above

            self._watcher = asyncio.create_task(self._keep_watching())

    async def discover_all(self) -> None:
        """Import sources, and list the servers that must be listed, unless they failed before: all schemas are then known."""
        await self.import_sources()
        unasked = self.unasked
        if unasked:
            self._log_down(await self.discover(*unasked))
        self.complete()

    def why_without_schema(self, tool: Descriptor) -> str:
        """Why only a server or a function knows the schema of a tool, and has not provided it; empty if it is known."""
        if tool.mode and self.executors.may_complete(tool.mode) and self.executors.completes(tool):
            return self.not_ready(tool) or f"mode `{tool.mode}` did not provide it"
        if tool.input_schema is not True or "input_schema" in (
            tool.origin.written | tool.origin.settings.keys()
        ):
            return ""
        for mode, block in tool.bindings.items():
            remote = self.executors.remote_of(mode, tool.name, block)
            if remote is not None:
                down = self.down.get(remote.server)
                why = "has not listed its tools" if down is None else f"cannot be listed: {down.message}"
                return f"its {kind_of_mode(mode)} `{remote.server}` {why}"
        return ""

    def start_sync(self) -> None:
        """`start` for code without an event loop."""
        if self._modules is not None:
            self.run(self.import_sources())
        unasked = self.unasked
        if unasked:
            self._log_down(self.run(self.discover(*unasked)))
        self.complete()

    @property
    def unasked(self) -> tuple[str, ...]:
        """The servers that must be listed, without those that already failed."""
        return tuple(name for name in self.undiscovered if name not in self.down)

    def _log_down(self, problems: Iterable[Problem]) -> None:
        """Log which servers could not be listed."""
        for problem in problems:
            # The prompt or the summary of trust has already named the servers that are not trusted.
            if problem.code != Untrusted.code or not self.trust.told:
                _log().warning("%s", problem)


def _runs_otherwise(old: Descriptor, new: Descriptor | None) -> bool:
    """Whether calls of the new version of a tool do not run as those of the old one."""
    if new is None or old.mode is None or new.mode != old.mode or new.limits != old.limits:
        return True
    return new.bindings.get(old.mode) != old.bindings.get(old.mode)


async def _within_loop(work: Callable[[str], None], name: str) -> None:
    work(name)


def _with_hint(problem: Problem) -> str:
    return f"{problem.message}\n    hint: {problem.hint}"


def _log() -> logging.Logger:
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    return logging.getLogger("toolcrib")


def _is_missing(path: str | Path) -> bool:
    """Whether a path does not exist; a path that cannot be inspected is a problem of its source."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


def _missing_paths(paths: Sequence[str | Path]) -> ConfigurationError:
    from toolcrib.loading.sources import missing_path_hint  # noqa: PLC0415 -- slow to import, and an index needs no source

    listed = ", ".join(f"`{path}`" for path in paths)
    hints = dict.fromkeys(filter(None, map(missing_path_hint, paths)))
    message = f"{listed} {'does' if len(paths) == 1 else 'do'} not exist"
    return ConfigurationError(message, code="path_not_found", hint="; ".join(hints))


def _policy_of(trust: bool | str | None, paths: Sequence[str]) -> TrustPolicy:
    """Translate the `trust` argument of `Runtime.open` into a policy."""
    if trust is True:
        return TrustPolicy(paths=tuple(paths), everything=not paths).with_environment()
    if trust is False:
        return UNTRUSTED
    if trust is None:
        return TrustPolicy(paths=tuple(paths)).with_environment()
    hashes = hashes_in(trust)
    if not hashes:
        raise ConfigurationError(
            f"`{shorten(trust)}` is not a trust hash",
            hint="run `toolcrib trust --dry-run` to get it; True trusts the paths, False trusts nothing",
        )
    return UNTRUSTED._replace(hashes=hashes)


def _loop_is_running() -> bool:
    # Importing asyncio takes longer than a mocked call; if it is not imported, no loop can be running.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _checked_sandbox(sandbox: str | None) -> str:
    if sandbox is None:
        return ""
    from toolcrib.core.sandbox import KINDS  # noqa: PLC0415 -- few runtimes choose one

    if sandbox not in KINDS:
        hint = f"use {' or '.join(f'`{kind}`' for kind in KINDS)}"
        raise ConfigurationError(
            f"unknown sandbox `{shorten(str(sandbox))}`", code="unknown_sandbox", hint=hint
        )
    return sandbox


def _world_of(
    egress: Iterable[str],
    origins: Mapping[str, str],
    hosts: Iterable[str] | None = None,
    *,
    audit: bool = False,
) -> NetworkEnvironment:
    from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415 -- mocks need no network

    if isinstance(egress, str):
        raise ConfigurationError("`egress` must be a list, got a string", hint=f'use `egress=["{egress}"]`')
    try:
        return NetworkEnvironment.of(egress, origins, hosts, audit=audit)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
