"""The contracts between the rooms: what an executor, a middleware, a clock, a session must be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Call, Descriptor, Result, Schema, TrustedAnswer

if TYPE_CHECKING:
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need

T = TypeVar("T")

CallNext = Callable[[Call], Awaitable[Result]]
"""What a middleware calls to go on: the rest of the chain."""


class Middleware(Protocol):
    """A layer around every call of a tool: `async (call, call_next) -> Result`."""

    def __call__(self, call: Call, call_next: CallNext, /) -> Awaitable[Result]:
        """Answer the call, usually by awaiting `call_next(call)` once."""
        ...


class Timer(Protocol):
    """What `Clock.timeout` gives to its block."""

    def expired(self) -> bool:
        """Whether the block was ended because its time was up."""
        ...


class Clock(Protocol):
    """The one source of time."""

    def now(self) -> datetime:
        """The time of day, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; virtual time jumps instead when nothing waits on the world."""
        ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[Timer]:
        """Raise TimeoutError inside the block when it takes longer."""
        ...

    def working(self) -> AbstractContextManager[object]:
        """A call is under way: virtual time waits until it sleeps."""
        ...

    def waiting(self) -> AbstractContextManager[object]:
        """A call waits for another call (a place in a queue): it does not hold virtual time back."""
        ...

    def outside(self) -> AbstractContextManager[object]:
        """A call waits on the world (socket, process): virtual time runs as real time."""
        ...


class Files(Protocol):
    """The files beside a document: a folder on disk, or a mapping in memory."""

    def read(self, name: str) -> bytes:
        """The content of a file, named by a relative path with `/`.

        Raises:
            OSError: It does not exist, can't be read, or lies outside what may be read; the text says which.
        """
        ...


class CallSession(Protocol):
    """An isolated memory: mock state, counters, clock and seed."""

    @property
    def id(self) -> str:
        """Names the session; part of every keyed draw."""
        ...

    @property
    def seed(self) -> int:
        """Seeds every keyed draw."""
        ...

    @property
    def correlation(self) -> str:
        """What its calls are tied to elsewhere, unless they say so themselves; empty for nothing."""
        ...

    @property
    def clock(self) -> Clock:
        """The session's time."""
        ...

    @property
    def began(self) -> float:
        """When the session was made, in seconds of its clock."""
        ...

    @property
    def calls(self) -> int:
        """How many calls the session has begun."""
        ...

    def slot(self, key: str, make: Callable[[], T]) -> T:
        """The session's own copy of a piece of state, made at its first use."""
        ...


class BoundTool(Protocol):
    """A descriptor's binding, compiled once: ready to be called any number of times.

    One member more may be there: `timeout`, the deadline of a call in seconds, in place of the descriptor's.

    Attributes:
        waits: Whether a call may take time (then a deadline stands around it).
    """

    waits: bool

    async def execute(self, call: Call) -> Result:
        """Run one attempt. Foreign errors become outcomes here; cancellation passes through."""
        ...

    def explain(self, call: Call) -> JSON | Result:
        """What `execute` would do for this call, without doing it; a result where it would fail at once."""
        ...


class SyncTool(BoundTool, Protocol):
    """What a bound tool may offer besides: an answer without waiting, which spares a call all machinery for it.

    It keeps neither the arguments of a call nor what it answers: both belong to the caller.

    Attributes:
        answer_now: What `execute` would answer, for a tool that never waits; None for one that may.
    """

    answer_now: Callable[[Call], Result | TrustedAnswer] | None


class Reaching(BoundTool, Protocol):
    """A bound tool that reaches out: cache, limits, retry and breaker stand around it.

    What it answers may have `meta["freshness"]`, as `http.freshness.freshness` says it.

    Attributes:
        origin: What its calls share with those of other tools: `https://api.example.com`.
        repeatable: Whether an attempt that failed may be made again without a second effect.
    """

    origin: str
    repeatable: bool


class Executor(Protocol):
    """A mode. One module and one entry point (group `toolcrib.executors`, name = the mode).

    More members may be there: an attribute `world` is given what may be reached (`toolcrib.servers.environment.NetworkEnvironment`) before
    each `bind`; a method `annotations(block)` says what a block means for the tool's annotations (`read_only`,
    `destructive`, `idempotent`, `open_world`), where the descriptor says nothing itself; a method `remote(name, block)`
    names the server and the tool that a block stands for, whose description, schemas and annotations are the
    descriptor's where it says nothing itself; an attribute `changed` is given a function `(server, catalogue)` that
    is to be told in the event loop what a server offers, whenever it has listed that; an attribute `elsewhere` is
    given a function `(descriptor, mode)` that binds a tool in another of its modes; a coroutine function
    `release(session_id)` is awaited when a session is over; a property `keeps_nothing` says whether there is
    nothing that `aclose` would give back; an attribute `contained` says that calls stay within this process, so that files
    that nobody trusts may make them; a method `needs(descriptor, workspace)` says what a tool takes that is not contained
    (`toolcrib.security.trust_needs.Need`), and of a mode that says nothing the whole block has to be agreed to; an attribute `reaches_out` says that calls do something real although
    there is no `world`, so that nobody makes them for a test.
    """

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of this mode's block in a descriptor; offers titles and descriptions to editors."""
        ...

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """What the block's schema can't say, with pointers into the descriptor. The block itself is valid."""
        ...

    def bind(self, descriptor: Descriptor) -> BoundTool:
        """Compile the binding. The descriptor passed `check` without errors.

        Raises:
            NotReady: Something that it needs is not there now, such as a secret: the call is `unavailable`, and
                the next one tries again.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections and processes."""
        ...


class Remote(NamedTuple):
    """A tool of a server that a descriptor stands for.

    Attributes:
        server: Name of the server, as the project has it.
        tool: The server's name for the tool.
        fixed: Arguments that the descriptor sets, so that nobody else does.
    """

    server: str
    tool: str
    fixed: frozenset[str] = frozenset()


class Kinds(Protocol):
    """What loading has to know of modes; the engine supplies it.

    One member more may be there: `formats` (`toolcrib.loading.format_contract.Formats`), the formats of other systems that are
    read. Without it, only toolcrib's own documents are.
    """

    @property
    def modes(self) -> Sequence[str]:
        """The installed modes."""
        ...

    def schema_for(self, mode: str) -> Schema | None:
        """The block schema of an installed mode, or None."""
        ...

    def check_binding(self, mode: str, descriptor: Descriptor) -> Sequence[Problem]:
        """The mode's own check of a descriptor's block."""
        ...

    def annotations_of(self, mode: str, block: JSON) -> Mapping[str, bool]:
        """What a mode's block says a tool does to the world; a block whose shape is wrong says nothing."""
        ...

    def needs_of(self, mode: str, tool: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """What a tool needs outside of this process in a mode; nothing where the mode touches nothing."""
        ...

    def remote_of(self, mode: str, name: str, block: JSON) -> Remote | None:
        """The tool of a server that a block of the tool `name` stands for; None where it stands for itself."""
        ...
