"""Protocols that connect the packages: executor, bound tool, middleware, clock, session and files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Call, Descriptor, Result, Schema, ToolAnswer, TrustedAnswer

if TYPE_CHECKING:
    from socket import socket

    import httpx

    from toolcrib.core.running_calls import CallInProgress
    from toolcrib.core.server_config import Server
    from toolcrib.security.requirements import Requirements
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need

T = TypeVar("T")

CallNext = Callable[[Call], Awaitable[Result]]
"""The rest of the chain, which a middleware awaits to continue the call."""


class Middleware(Protocol):
    """A layer around every call of a tool: `async (call, call_next) -> Result`."""

    def __call__(self, call: Call, call_next: CallNext, /) -> Awaitable[Result]:
        """Answer the call, usually by awaiting `call_next(call)` once."""
        ...


class Timer(Protocol):
    """The object that `Clock.timeout` passes to its `async with` block."""

    def expired(self) -> bool:
        """Whether the timeout has expired."""
        ...


class Clock(Protocol):
    """The source of time for everything that a session does."""

    # All code asks its session's clock instead of `time` or `asyncio`: a scenario that simulates hours must not
    # take hours, and two runs with the same seed must see the same times.

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. The value never decreases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait. Virtual time jumps ahead instead, unless a call is working or waits for external I/O."""
        ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[Timer]:
        """Return a context manager that raises TimeoutError if its block takes longer."""
        ...

    def working(self) -> AbstractContextManager[object]:
        """Return a context manager for a call in progress: virtual time stops until the call sleeps."""
        ...

    def waiting(self) -> AbstractContextManager[object]:
        """Return a context manager for waiting on another call, such as in a queue: virtual time can advance."""
        ...

    def outside(self) -> AbstractContextManager[object]:
        """Return a context manager for external I/O (socket, process): virtual time runs like real time."""
        ...


class Files(Protocol):
    """The files that a document can name: a folder on disk, or a mapping in memory."""

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Args:
            name: Relative path with `/` as the separator.

        Raises:
            OSError: The file does not exist, cannot be read, or is outside the permitted folder. The message
                names the reason.
        """
        ...


class ToolServices(Protocol):
    """The services of a runtime for the code of a Python tool; see `CallContext`."""

    @property
    def http(self) -> httpx.AsyncClient:
        """A client for asynchronous code."""
        ...

    @property
    def http_sync(self) -> httpx.Client:
        """A client for synchronous code in a thread."""
        ...

    async def connect(self, host: str, port: int) -> socket:
        """Open a connection through the egress guard."""
        ...

    def secret(self, name: str) -> str:
        """Look up a secret."""
        ...


class CallSession(Protocol):
    """The isolated state of a session: mock data, counters, clock and seed."""

    @property
    def id(self) -> str:
        """Name of the session. Every random value depends on it."""
        ...

    @property
    def seed(self) -> int:
        """Seed of every random value."""
        ...

    @property
    def correlation(self) -> str:
        """Default correlation ID of its calls; empty for none."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock of the session."""
        ...

    @property
    def began(self) -> float:
        """When the session was created, in seconds on its clock."""
        ...

    @property
    def calls(self) -> int:
        """Number of calls started in the session."""
        ...

    def in_progress(self, call_id: str) -> CallInProgress | None:
        """The record of a call that is waiting, which layers and modes write to; None if nobody looks at the call."""
        ...

    # Executors keep their state here, never in the bound tool: all sessions share the bound tool.
    def slot(self, key: str, make: Callable[[], T]) -> T:
        """Return the session's value for a key.

        Args:
            key: Unique key of the state.
            make: Creates the value on first use.
        """
        ...


class BoundTool(Protocol):
    """A tool bound to a mode: compiled once, called any number of times.

    Optional members:

    - `timeout` replaces the descriptor's deadline of a call, in seconds.
    - `own_defaults`: an attribute, true if the tool applies the defaults of its input schema itself. Calls then
      carry only the arguments that were given.
    - `tool`: the descriptor with the schemas that only the binding knows. Calls use it instead of the one that was bound.
    - `recheck()` is called, in any thread, when a result does not match the output schema: where the schema comes from
      may have a newer one.

    Attributes:
        waits: Whether a call may wait. If so, the runtime enforces a deadline.
    """

    waits: bool

    # An executor knows which of its library's exceptions mean a timeout, a refusal or a broken connection. Any
    # exception that reaches the chain is reported as a bug (`internal`).
    async def execute(self, call: Call) -> Result:
        """Run one attempt.

        Exceptions of the libraries used become outcomes here. Cancellation propagates.
        """
        ...

    def explain(self, call: Call) -> JSON | Result:
        """Describe what `execute` would do, without doing it.

        Returns:
            The description, or a failed result if the call would fail before it reaches the tool.
        """
        ...


class SyncTool(BoundTool, Protocol):
    """A bound tool that can answer without waiting, which avoids the cost of an event loop.

    It must keep no reference to the arguments or the answer, because both belong to the caller.

    Attributes:
        answer_now: Returns synchronously what `execute` would return; None if the tool may wait.
    """

    # The fast path makes no copies, so a reference that is kept would let a caller change the tool's state.
    answer_now: Callable[[Call], Result | TrustedAnswer] | None


class EagerTool(BoundTool, Protocol):
    """A bound tool that can end a call without waiting, although other calls wait.

    The runtime calls `begin` instead of `execute`, in the task of the caller, and sets a timer for the deadline only if the
    answer must be awaited.
    """

    def begin(self, call: Call) -> ToolAnswer | Awaitable[ToolAnswer]:
        """Run an attempt until it first waits: return the answer if it has ended, else an awaitable of it.

        Exceptions become outcomes, as in `execute`. The call has a `deadline` only if a layer around it reads it. A
        `TrustedAnswer` must not exceed `limits.output_size`.
        """
        ...


class Reaching(BoundTool, Protocol):
    """A bound tool that makes external calls. Cache, limits, retries and circuit breaker apply to it.

    Its results may have `meta["freshness"]`, in the form that `http.freshness.freshness` returns. An optional attribute
    `limited` is false if neither limits of rate and concurrency nor a circuit breaker apply.

    Attributes:
        origin: Origin whose limits and circuit breaker it shares with other tools: `https://api.example.com`.
        repeatable: Whether a failed attempt may be retried without a second effect.
    """

    origin: str
    repeatable: bool


class Executor(Protocol):
    """The implementation of a mode: one module and one entry point (group `toolcrib.executors`, named like the mode).

    Optional members:

    - `world`: the runtime sets this attribute before each `bind` to the network access that is allowed
      (`toolcrib.servers.environment.NetworkEnvironment`).
    - `provided`: the runtime sets this attribute before each `bind` to the dependencies of `Runtime(provide=...)`, by name.
    - `annotations(block)` returns the tool annotations that a block implies (`read_only`, `destructive`,
      `idempotent`, `open_world`). Those of the descriptor take precedence.
    - `remote(name, block)` returns the server and the tool that a block refers to. The description, schemas and
      annotations of that tool apply unless the descriptor sets its own.
    - `changed`: the runtime sets this attribute to a function `(server, catalogue)`. The executor calls it in the
      event loop each time it has listed the tools of a server.
    - `elsewhere`: the runtime sets this attribute to a function `(descriptor, mode)` that binds a tool in another
      of its modes.
    - `release(session_id)`: a coroutine function that is awaited when a session ends.
    - `keeps_nothing`: a property, true if `aclose` has nothing to release.
    - `contained`: an attribute, true if calls stay within this process. Untrusted files may use such a mode.
    - `keeps_state(descriptor)` returns whether calls depend on earlier calls of their session. Clients that are served
      over MCP then name their session (`--sessions handle`).
    - `needs(descriptor, workspace)` returns the access that a tool of a mode that is not contained requires
      (`toolcrib.security.trust_needs.Need`). Without this method, the user must trust the whole block.
    - `requirements(descriptor, server)` returns what calls use outside the program
      (`toolcrib.security.requirements.Requirements`): capabilities, hosts, programs, variables. `server` is the server
      that the block names, or None. Without this method, nothing is known.
    - `lacks(descriptor, base)` returns what this machine lacks to run a tool, such as a program or a variable, and how to
      fix it; empty if it lacks nothing, or if only binding the tool shows it. Lists show such a tool as unavailable, also
      if nobody trusts it yet, so the text must not contain values of variables. Names of sources are relative to `base`.
    - `required_variables(descriptor, server)` returns the names of the environment variables that must be set so that
      `lacks` is empty, or None if more than variables decides. `toolcrib list` is answered faster with it. `server` is
      the server that the block names, or None. Without this method, `lacks` is asked each time.
    - `completes(descriptor)` returns whether the bound tool has a `tool` with further schemas. An open runtime then binds it
      before it lists its tools.
    - `plays_examples(descriptor)` returns whether `toolcrib run` plays the examples of a tool although the mode reaches
      out. Without this method, it does not.
    - `reaches_out`: an attribute, true if calls have real effects although there is no `world`. Tests do not make
      such calls.
    """

    # The optional members are not declared, so that an executor that needs none of them satisfies the protocol.

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the mode's block in a descriptor. Editors show its titles and descriptions."""
        ...

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Return the problems that the block schema cannot express, with pointers into the descriptor.

        The block is already valid against `block_schema`.
        """
        ...

    def bind(self, descriptor: Descriptor) -> BoundTool:
        """Compile the binding of a descriptor that `check` reported no errors for.

        Raises:
            NotReady: A requirement is missing, such as a secret. The call ends `unavailable`, and the next call
                tries to bind the tool again.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and stop processes."""
        ...


class Remote(NamedTuple):
    """The tool of a server that a descriptor refers to.

    Attributes:
        server: Name of the server in the project; empty for the only one that offers the tool.
        tool: The server's name for the tool.
        fixed: Names of the arguments that the descriptor sets and callers cannot.
        others: Names of further servers with the same tool, which are called if the first one cannot be.
    """

    server: str
    tool: str
    fixed: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers of the tool, the first one first."""
        return (self.server, *self.others)


class ToolProvider(Protocol):
    """Tools that an application lists and calls itself. `Runtime.add` adds all of them.

    Example:
        ```python
        class Echo:
            def list(self):
                text = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
                return [{"name": "echo", "description": "Repeat a text.", "inputSchema": text}]

            async def call(self, name, arguments):
                return {"echo": arguments["text"]}

        tools.add(Echo())
        ```
    """

    def list(self) -> Iterable[Mapping[str, JSON]]:
        """Return the definitions of the tools, when the provider is added.

        Each has `name`, `description` and `inputSchema` (default: no arguments), and may have `title`, `outputSchema` and
        `annotations` as in MCP, or any other key of a descriptor that `toolcrib.tool` accepts, such as `timeout`.
        """
        ...

    def call(self, name: str, arguments: Mapping[str, JSON], /) -> Any:
        """Return the result of a tool. The method may be `async`; otherwise it runs in a thread.

        The result is converted as that of a function (`toolcrib.tool`). A tool reports its own error by
        `Result.failure(Outcome.TOOL_ERROR, message, code=...)`.

        Args:
            name: Name of the tool.
            arguments: The arguments, which are valid.
        """
        ...


class Kinds(Protocol):
    """The modes, as document loading sees them. The engine implements it.

    An optional member `formats` (`toolcrib.loading.format_contract.Formats`) lists the formats of other systems
    that can be loaded. Without it, only toolcrib's own documents can.
    """

    # A protocol instead of an import: the engine depends on loading, not the other way round.

    @property
    def modes(self) -> Sequence[str]:
        """Names of the installed modes."""
        ...

    def schema_for(self, mode: str) -> Schema | None:
        """Return the block schema of a mode; None if the mode is not installed."""
        ...

    def check_binding(self, mode: str, descriptor: Descriptor) -> Sequence[Problem]:
        """Return the problems that the mode itself finds in a descriptor's block."""
        ...

    def annotations_of(self, mode: str, block: JSON) -> Mapping[str, bool]:
        """Return the tool annotations that a block implies; empty for an invalid block."""
        ...

    def needs_of(self, mode: str, tool: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """Return the access outside this process that a tool requires in a mode; empty for a contained mode."""
        ...

    def requirements_of(
        self, mode: str, tool: Descriptor, servers: Mapping[str, Server] = NOTHING
    ) -> Requirements | None:
        """Return what calls of a tool in a mode use outside the program; None if that is unknown."""
        ...

    def remote_of(self, mode: str, name: str, block: JSON) -> Remote | None:
        """Return the server tool that a block of the tool `name` refers to; None if it refers to none."""
        ...
