"""A session: calls with a memory of their own. `Session._call` is the path of every call.

There is one path: the chain of the tool. Where nothing in it waits (`BoundChain.at_once`), `Session.call_at_once` runs the
same coroutine to its end without an event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Call,
    CallContext,
    Client,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
    TrustedAnswer,
    Usage,
    as_result,
)
from toolcrib.core.protocols import BoundTool, Clock
from toolcrib.engine.middleware import arguments as argument_layer
from toolcrib.engine.middleware.arguments import DEPTH
from toolcrib.engine.middleware.call_failures import attempts_of, result_of_error
from toolcrib.engine.middleware.layer import LayerContext, Link, SharedState
from toolcrib.registry.catalog import HiddenReason
from toolcrib.registry.registry import Registry
from toolcrib.schema.validation import as_dict
from toolcrib.schema.validation.json_values import is_large
from toolcrib.security.redaction import redact

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from toolcrib.servers.environment import NetworkEnvironment
    from toolcrib.simulation.store import Store

T = TypeVar("T")

_new: Any = tuple.__new__
_OK = Outcome.OK

NO_GRANTS: frozenset[str] = frozenset()
"""Nothing was permitted beforehand."""


class BoundChain(NamedTuple):
    """A tool, bound: what its calls run through.

    Attributes:
        tool: The tool.
        bound: Its binding.
        run: All layers around the binding.
        layers: Their names, outermost first.
        at_once: Whether none of it ever waits, unless arguments are large: then no event loop is needed.
        kept: Whether a layer, or an observer, may keep the arguments and results of its calls.
        lasting: Whether it is good for later calls too.
    """

    tool: Descriptor
    bound: BoundTool
    run: Link
    layers: tuple[str, ...]
    at_once: bool
    kept: bool = False
    lasting: bool = True


_MOST_OTHERS = 64
"""Tables of other registries that one remembers."""


class ToolTable:
    """Tools, and the chains of those that were called. Sessions that share a table see a reload at their next call.

    Attributes:
        registry: The tools.
        chains: Name of a tool -> its chain, once it was called.
    """

    __slots__ = ("_others", "chains", "registry")

    def __init__(self, registry: Registry, chains: dict[str, BoundChain] | None = None) -> None:
        self.registry = registry
        self.chains: dict[str, BoundChain] = {} if chains is None else chains
        self._others: dict[int, ToolTable] = {}

    def of(self, registry: Registry) -> ToolTable:
        """A table that no reload changes. For the tools of this one it shares the chains, which a swap leaves alone.

        For another registry it is the same table each time, as long as it is remembered.
        """
        if registry is self.registry:
            return ToolTable(registry, self.chains)
        other = self._others.get(id(registry))  # its table holds it, so no other one can have its identity
        if other is None:
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            other = self._others[id(registry)] = ToolTable(registry)
        return other

    def swap(self, registry: Registry, chains: dict[str, BoundChain]) -> None:
        """Put other tools in place of these; a call that has begun ends on the chain it has."""
        self.registry, self.chains = registry, chains
        self._others = {}


class SessionHost(Protocol):
    """What a session asks of the runtime that made it."""

    @property
    def closed(self) -> bool:
        """Whether calls are no longer possible."""
        ...

    @property
    def call_numbers(self) -> Iterator[int]:
        """Numbers that no two calls of the runtime share."""
        ...

    def check_open(self) -> None:
        """Raise ClosedRuntime when calls are no longer possible."""
        ...

    def chain_for(self, tool: Descriptor) -> BoundChain:
        """What the calls of a tool run through."""
        ...

    def chain_of_hidden(self, tool: Descriptor, hidden: HiddenReason) -> BoundChain:
        """What the calls of a tool run through that is not offered."""
        ...

    def not_found(self, name: str, registry: Registry) -> Result:
        """The result of a call to a tool that is not there."""
        ...

    def awaited(self, name: str) -> str | None:
        """The server that must be asked before a tool can be called; None for none."""
        ...

    @property
    def passthrough(self) -> bool:
        """Whether mocks may hand calls on to another binding of their tools."""
        ...

    @property
    def world(self) -> NetworkEnvironment:
        """What may be reached."""
        ...

    async def discover(self, *names: str) -> object:
        """Ask servers what they offer, and put it in force."""
        ...

    async def released(self, session_id: str) -> None:
        """A session is over: what it alone held is given back."""
        ...


class Session:
    """Calls with a memory of their own. Made by `Runtime.session`.

    Attributes:
        id: Names the session; part of every keyed draw.
        seed: Seeds what mocks generate.
        clock: The session's time.
        began: When it was made, in seconds of its clock.
        calls: How many calls it has begun.
    """

    def __init__(
        self,
        runtime: SessionHost,
        *,
        id: str,  # noqa: A002
        seed: int,
        clock: Clock,
        table: ToolTable,
        user: str,
        caller: str,
        correlation: str,
        client: Client | None = None,
    ) -> None:
        self.id = id
        self.seed = seed
        self.clock = clock
        self.began = clock.monotonic()
        self.calls = 0
        self._runtime = runtime
        self._real = isinstance(clock, RealClock)
        self._monotonic = clock.monotonic
        self._numbers = runtime.call_numbers
        self._table = table
        self._slots: dict[str, Any] = {}
        self._context = CallContext(
            session=self,
            user=user,
            caller=caller,
            correlation=correlation,
            passthrough=runtime.passthrough,
            client=_checked(client),
        )
        self._context_at_once: CallContext | None = None

    def __repr__(self) -> str:
        """Name, tools and calls: `Session('main', 78 tools, 3 calls)`."""
        tools, calls = count_phrase(len(self.registry), "tool"), count_phrase(self.calls, "call")
        return f"Session({self.id!r}, {tools}, {calls})"

    @property
    def registry(self) -> Registry:
        """The session's tools: its own, or those of the runtime as they are now."""
        return self._table.registry

    @property
    def correlation(self) -> str:
        """What ties its calls to those of other systems, where a call says nothing of its own."""
        return self._context.correlation

    @property
    def world(self) -> NetworkEnvironment:
        """What the modes may reach."""
        return self._runtime.world

    @property
    def store(self) -> Store:
        """What the mocks of the session keep."""
        from toolcrib.simulation.store import store_of  # noqa: PLC0415 -- few tools keep anything

        return store_of(self)

    def slot(self, key: str, make: Callable[[], T]) -> T:
        """The session's own copy of a piece of state, made at its first use."""
        if key not in self._slots:
            self._slots[key] = make()
        kept: T = self._slots[key]
        return kept

    async def aclose(self) -> None:
        """Give back what this session alone holds: the servers that were started for it."""
        await self._runtime.released(self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def call(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        trace: Mapping[str, str] = NOTHING,
        grants: AbstractSet[str] = NO_GRANTS,
        client: Client | None = None,
        correlation: str = "",
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool: `await session.call(...)`.

        Every way in which a call can end is a Result; only programming mistakes raise.

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None is the empty object.
            trace: Trace headers to pass on (W3C trace context).
            grants: Permissions that were given for this call.
            client: Fulfils the call if its tool is in mode `client`; the session's unless given.
            correlation: Ties the call to what it is called elsewhere, such as its id in a conversation; the
                session's unless given. Executors, clients and observers see it in the call's context.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: `name` is no text, or `client` no function.
            asyncio.CancelledError: The caller's task was cancelled.
        """
        if (
            trace is NOTHING and grants is NO_GRANTS and client is None and not correlation
        ):  # almost every call
            return self._call(name, arguments, self._context)
        return self._call(name, arguments, self._context_with(trace, grants, client, correlation))

    def _context_with(
        self,
        trace: Mapping[str, str] = NOTHING,
        grants: AbstractSet[str] = NO_GRANTS,
        client: Client | None = None,
        correlation: str = "",
    ) -> CallContext:
        context = self._context
        return context._replace(
            trace=trace,
            grants=context.grants.union(grants),
            client=context.client if client is None else _checked(client),
            correlation=correlation or context.correlation,
        )

    def call_at_once(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, correlation: str = ""
    ) -> Result | None:
        """`call` without an event loop, for a call that never waits; None, and no call, for one that may.

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None is the empty object.
            correlation: Ties the call to what it is called elsewhere; the session's unless given.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: `name` is no text, or a layer waited that declares `waits = False`.
        """
        self._runtime.check_open()
        chain = self._chain(_name(name))
        if self._runtime.awaited(name) if chain is None else not chain.at_once:
            return None
        if arguments is not None and is_large(arguments, DEPTH):
            return None
        context = self._context_at_once
        if context is None:
            context = self._context_at_once = self._context._replace(can_wait=False)
        if correlation:
            context = context._replace(correlation=correlation)
        coroutine = self._call(name, arguments, context)
        try:
            coroutine.send(None)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        coroutine.close()
        raise ConfigurationError(
            f"the call of `{name}` waited, although its tool and all layers around it declare `waits = False`",
            hint="remove `waits = False` from the middleware that waits",
        )

    def answers_at_once(self, name: str) -> bool:
        """Whether a tool was called before, never waits, and nobody else's layer or observer sees its calls.

        Then nobody keeps the arguments and the answers of its calls, to change them later.
        """
        chain = self._table.chains.get(name)
        return chain is not None and chain.at_once and not chain.kept

    async def stream(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        trace: Mapping[str, str] = NOTHING,
        grants: AbstractSet[str] = NO_GRANTS,
        client: Client | None = None,
        correlation: str = "",
    ) -> AsyncIterator[Progress | Partial | Result]:
        """Call a tool and watch it: what arrives before the result, then exactly one Result.

        Leaving the loop early cancels the call.

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None is the empty object.
            trace: Trace headers to pass on (W3C trace context).
            grants: Permissions that were given for this call.
            client: Fulfils the call if its tool is in mode `client`; the session's unless given.
            correlation: Ties the call to what it is called elsewhere; the session's unless given.
        """
        import asyncio  # noqa: PLC0415 -- a call that never waits needs none of it

        arrived: asyncio.Queue[Progress | Partial | None] = asyncio.Queue()
        context = self._context_with(trace, grants, client, correlation)
        context = context._replace(emit=arrived.put_nowait)
        task = asyncio.ensure_future(self._call(name, arguments, context))
        task.add_done_callback(lambda _task: arrived.put_nowait(None))
        try:
            while (event := await arrived.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def dry_run(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """What a call would do, without doing it.

        Returns:
            `ok` with `{tool, mode, arguments, repairs, plan}`: the arguments with defaults and repairs,
            secrets masked; the plan is the mode's own. Otherwise how the call would fail before any attempt.

        Raises:
            ClosedRuntime: The runtime was closed.
        """
        self._runtime.check_open()
        chain = await self._found(_name(name))
        if chain is None:
            return self._runtime.not_found(name, self.registry)
        if isinstance(chain.bound, Unavailable):
            return await chain.bound.execute(self._made(chain, arguments, self._context))
        return await dry_run(chain, self._made(chain, arguments, self._context))

    async def _call(self, name: str, arguments: Mapping[str, JSON] | None, context: CallContext) -> Result:
        if self._runtime.closed:
            self._runtime.check_open()
        chain = (type(name) is str and self._table.chains.get(name)) or await self._found(_name(name))
        if chain is None:
            return self._runtime.not_found(name, self.registry)
        self.calls += 1
        started = self._monotonic()
        given: Any = {} if arguments is None else arguments
        if type(given) is not dict:
            given = as_dict(given)
        call: Call = _new(
            Call, (chain.tool, given, context, f"{self.id}-{next(self._numbers)}", 1, None, None)
        )
        try:
            if self._real or chain.at_once:  # what never waits needs no account of who works
                answer = await chain.run(call)
            else:
                with self.clock.working():
                    answer = await chain.run(call)
        except BaseException as error:  # the edge: what escapes the layers is a bug, and told as one
            ended = result_of_error(call, error)
            if ended is None:
                raise
            answer = ended
        if type(answer) is TrustedAnswer:
            # In place, as most mocked calls end here, and a frame more is felt.
            usage = _new(Usage, (1, self._monotonic() - started))
            trusted: Result = _new(
                Result, (_OK, answer[0], (), "", None, usage, answer[1], None, chain.tool.name)
            )
            return trusted
        result = as_result(answer)
        return result.with_usage(attempts_of(result), self._monotonic() - started, chain.tool.name)

    async def _found(self, name: str) -> BoundChain | None:
        """The chain of a tool, after its server was asked what it takes, where only that one knows."""
        chain = self._chain(name)
        if chain is not None and chain.lasting:
            return chain
        server = self._runtime.awaited(name)
        if server is None:
            return chain
        await self._runtime.discover(server)
        return self._chain(name)

    def _chain(self, name: str) -> BoundChain | None:
        table = self._table
        tool = table.registry.get(name)
        if tool is None:
            named = table.registry.named_by_alias(name)
            return None if named is None else table.chains.get(named) or self._chain(named)
        hidden = table.registry.hidden(name)
        runtime = self._runtime
        chain = runtime.chain_for(tool) if hidden is None else runtime.chain_of_hidden(tool, hidden)
        if chain.lasting:
            table.chains[name] = chain
        return chain

    # `_call` does the same in place: a frame more is felt in a mocked call.
    def _made(self, chain: BoundChain, arguments: Mapping[str, JSON] | None, context: CallContext) -> Call:
        given: Any = {} if arguments is None else arguments
        if type(given) is not dict:
            given = as_dict(given)
        number = f"{self.id}-{next(self._numbers)}"
        return tuple.__new__(Call, (chain.tool, given, context, number, 1, None, None))


def _checked(client: Client | None) -> Client | None:
    if client is None or callable(client):
        return client
    raise ConfigurationError(
        f"`client` must be a coroutine function, got a `{type(client).__name__}`",
        hint="define `async def client(call): ...` and pass it without calling it",
    )


def count_phrase(number: int, noun: str) -> str:
    """A number of things: `1 tool`, `78 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(name: object) -> str:
    if isinstance(name, str):
        return str.__str__(name)  # of a subclass, a plain one: names are looked up, and compared
    raise ConfigurationError(
        f"the name of a tool must be a string, got {'None' if name is None else f'a `{type(name).__name__}`'}",
        hint='use `call("tool_name", {...})`',
    )


async def dry_run(chain: BoundChain, call: Call) -> Result:
    """Let the call pass the layer that prepares its arguments, and explain it instead of running it."""

    async def explained(prepared: Call) -> Result:
        shown = redact(prepared.arguments, prepared.tool.input_schema)
        plan = chain.bound.explain(prepared)
        if isinstance(plan, Result):
            return plan
        return Result.ok(
            {"tool": prepared.tool.name, "mode": prepared.tool.mode, "arguments": shown, "plan": plan}
        )

    result = as_result(
        await argument_layer.layer(LayerContext(call.tool, chain.bound, SharedState()), explained)(call)
    )
    if result.outcome is Outcome.OK and isinstance(result.value, dict):
        return result._replace(
            value={**result.value, "repairs": result.meta.get("repairs", [])}, meta=NOTHING
        )
    return result


class Unavailable:
    """Stands where a tool can't be bound: every call says why.

    Attributes:
        reason: Why.
        code: Finer than the outcome; None for the outcome's own.
        outcome: How every call ends.
    """

    waits = False

    def __init__(
        self,
        reason: str,
        *,
        code: str | None = None,
        place: str = "",
        outcome: Outcome = Outcome.UNAVAILABLE,
    ) -> None:
        self.reason = reason
        self.code = code
        self.outcome = outcome
        self._details: dict[str, JSON] = {"at": place} if place else {}

    async def execute(self, _call: Call) -> Result:
        """Say why."""
        return Result.failed(self.outcome, self.reason, code=self.code, details=self._details or NOTHING)

    def explain(self, _call: Call) -> JSON:
        """Say why."""
        return {"unavailable": self.reason}
