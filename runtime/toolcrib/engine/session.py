"""Sessions: isolated state for calls. `Session._call` is the path of every call.

There is only one path: the chain of the tool. If nothing in it waits (`BoundChain.at_once`),
`Session.call_at_once` runs the same coroutine to its end without an event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakSet

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import (
    ANSWERS,
    JSON,
    NOTHING,
    Approver,
    Call,
    CallContext,
    Client,
    Collection,
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
from toolcrib.engine.middleware.call_failures import (
    attempts_of,
    cancelled_by_caller,
    result_of_error,
    with_traffic,
    without_attempts,
)
from toolcrib.engine.middleware.layer import LayerContext, Link, results_of
from toolcrib.engine.statistics import BATCH, CallStatistics
from toolcrib.registry.catalog import DENIED, HiddenReason
from toolcrib.registry.registry import Registry
from toolcrib.schema.validation import as_dict
from toolcrib.schema.validation.json_values import MOST_WEIGHT, SMALL, is_large

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from toolcrib.core.running_calls import CallInProgress, RunningCalls
    from toolcrib.engine.access_control import ToolGate
    from toolcrib.engine.approvals import Approvals
    from toolcrib.engine.middleware.layer import Answer
    from toolcrib.engine.runtime import Engine
    from toolcrib.security.access import AccessDecision
    from toolcrib.security.approvals import Answer as ApprovalAnswer
    from toolcrib.security.approvals import Approval
    from toolcrib.security.path_access import PathAccess
    from toolcrib.servers.environment import NetworkEnvironment
    from toolcrib.simulation.store import Store

T = TypeVar("T")

# `tuple.__new__` skips the generated `__new__` of a NamedTuple, and a module global is faster than an enum
# member: both are measurable in a mocked call.
_new: Any = tuple.__new__
_OK = Outcome.OK

_REST = BATCH - 1  # of a number, as `BATCH` is a power of two; `&` is faster than `%`

NO_GRANTS: frozenset[str] = frozenset()
"""The default of `grants`: no permission was given in advance."""


class BoundChain(NamedTuple):
    """A bound tool with the layers that its calls run through.

    Attributes:
        tool: The tool.
        bound: Its binding.
        run: All layers around the binding.
        layers: Names of the layers, outermost first.
        at_once: Whether calls never wait, except with large arguments, so that they need no event loop.
        kept: Whether a layer or an observer may keep the arguments and results of calls.
        lasting: Whether later calls may reuse the chain.
        access: Decides about each call; None if access decides nothing about the tool.
        context: What the layers were built from; None if the tool cannot run.
        chain_of: Returns the chain for the calls of a caller; None if it is the same for all.
    """

    tool: Descriptor
    bound: BoundTool
    run: Link
    layers: tuple[str, ...]
    at_once: bool
    kept: bool = False
    lasting: bool = True
    access: ToolGate | None = None
    context: LayerContext | None = None
    chain_of: Callable[[CallContext], BoundChain] | None = None


_MOST_OTHERS = 64
"""Maximum number of tables for other registries that a table remembers."""


class ToolTable:
    """Tools and their chains. Sessions that share a table see a reload at their next call.

    Attributes:
        registry: The tools.
        chains: Maps the name of a tool to its chain, once it was called.
    """

    __slots__ = ("__weakref__", "_family", "_others", "chains", "registry")

    def __init__(
        self,
        registry: Registry,
        chains: dict[str, BoundChain] | None = None,
        family: WeakSet[ToolTable] | None = None,
    ) -> None:
        self.registry = registry
        self.chains: dict[str, BoundChain] = {} if chains is None else chains
        self._others: dict[int, ToolTable] = {}
        self._family: WeakSet[ToolTable] = WeakSet() if family is None else family
        self._family.add(self)

    def of(self, registry: Registry) -> ToolTable:
        """Return a table that no reload changes.

        For the current registry it shares the chains of this table, which `swap` replaces but never modifies.
        Another registry gets the same table each time, as long as it is remembered.
        """
        if registry is self.registry:
            return ToolTable(registry, self.chains, self._family)
        # The table keeps its registry alive, so no other registry can get the same id.
        other = self._others.get(id(registry))
        if other is None:
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            other = self._others[id(registry)] = ToolTable(registry, None, self._family)
        return other

    def swap(self, registry: Registry, chains: dict[str, BoundChain]) -> None:
        """Replace the tools; running calls finish on the chain that they started with."""
        self.registry, self.chains = registry, chains
        self._others = {}

    def forget_chains(self) -> None:
        """Let every table of the runtime build its chains anew; running calls finish on the chain that they started with."""
        for table in tuple(self._family):
            table.chains = {}


class SessionHost(Protocol):
    """The methods of the engine that a session uses."""

    @property
    def closed(self) -> bool:
        """Whether the runtime was closed."""
        ...

    @property
    def call_numbers(self) -> Iterator[int]:
        """Unique call numbers of the runtime."""
        ...

    @property
    def call_statistics(self) -> CallStatistics:
        """Counts the calls of the runtime."""
        ...

    @property
    def running_calls(self) -> RunningCalls:
        """The calls that are waiting."""
        ...

    def check_open(self) -> None:
        """Raise ClosedRuntime if the runtime was closed."""
        ...

    def chain_for(self, tool: Descriptor) -> BoundChain:
        """The chain of a tool."""
        ...

    def chain_of_hidden(self, tool: Descriptor, hidden: HiddenReason) -> BoundChain:
        """The chain of a tool that is not offered."""
        ...

    def chain_of_denied(self, tool: Descriptor, context: CallContext) -> BoundChain | None:
        """The chain of a tool that access denies a caller, whatever the arguments; None if it may be called."""
        ...

    def seen_by(self, registry: Registry, context: CallContext) -> Registry:
        """The tools that access lets a caller see."""
        ...

    @property
    def paths(self) -> PathAccess:
        """The folders in which calls may read and write files."""
        ...

    def not_found(self, name: str, registry: Registry) -> Result:
        """The result of a call to an unknown tool."""
        ...

    def may_appear(self, name: str) -> bool:
        """Whether a tool may exist, or its schema be known, once servers are listed and modules are imported."""
        ...

    @property
    def passthrough(self) -> bool:
        """Whether mocks may forward calls to another binding of their tool."""
        ...

    @property
    def world(self) -> NetworkEnvironment:
        """The network environment: permitted hosts, origins, secrets."""
        ...

    @property
    def approvals(self) -> Approvals:
        """The calls that wait for a person."""
        ...

    def use_keys(self) -> None:
        """Let all chains look for idempotency keys from now on."""
        ...

    async def discover_for(self, name: str) -> None:
        """List the servers, and import the modules, that must be known before a tool can be called."""
        ...

    async def released(self, session_id: str) -> None:
        """Release what the modes hold for a closed session."""
        ...


class Session:
    """Calls that share mock state, counters and a clock, isolated from other sessions. See `Runtime.session`.

    Example:
        ```python
        async with runtime.session(clock=VirtualClock()) as session:
            created = await session.call("create_order", {"item": "tea"})
            found = await session.call("get_order", {"order_id": created.value["order_id"]})
        ```

    Attributes:
        id: Name of the session, part of the key of every generated value.
        seed: Seed of the values that mocks generate.
        clock: Clock of the session.
        began: Creation time, in seconds of the clock.
        calls: Number of calls started so far.
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
        approver: Approver | None = None,
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
        self._statistics = runtime.call_statistics
        self._pending: dict[str, list[float]] = {}
        self._context = CallContext(
            session=self,
            user=user,
            caller=caller,
            correlation=correlation,
            passthrough=runtime.passthrough,
            client=_checked(client),
            approver=approver,
        )
        self._context_at_once: CallContext | None = None

    def __repr__(self) -> str:
        """Describe the session, such as `Session('main', 78 tools, 3 calls)`."""
        tools, calls = count_phrase(len(self.registry), "tool"), count_phrase(self.calls, "call")
        return f"Session({self.id!r}, {tools}, {calls})"

    @property
    def registry(self) -> Registry:
        """The tools of the session: its own, or the current tools of the runtime. Access decides which are offered."""
        return self._runtime.seen_by(self._table.registry, self._context)

    @property
    def paths(self) -> PathAccess:
        """The folders in which calls may read and write files: `session.paths.open(path, "read")`."""
        return self._runtime.paths

    @property
    def principal(self) -> tuple[str, str]:
        """The caller and the user of the session's calls."""
        return self._context.caller, self._context.user

    @property
    def correlation(self) -> str:
        """Correlation ID of calls that have none of their own."""
        return self._context.correlation

    @property
    def world(self) -> NetworkEnvironment:
        """The network environment of the modes: permitted hosts, origins, secrets."""
        return self._runtime.world

    @property
    def _engine(self) -> Engine:
        # A session knows the part of its engine that calls use; `engine_of` gives the rest to other packages.
        return cast("Engine", self._runtime)

    @property
    def store(self) -> Store:
        """The store of the session's mocks."""
        from toolcrib.simulation.store import store_of  # noqa: PLC0415 -- few tools keep anything

        store = store_of(self)
        store.declared = self._collections
        if store.saved:
            store.recall(self._collections())
        return store

    def _collections(self) -> Iterator[Collection]:
        for tool in self._table.registry.values():
            yield from tool.fixture.collections.values()

    def slot(self, key: str, make: Callable[[], T]) -> T:
        """Return the session's own piece of state for a key; `make` creates it on first use."""
        if key not in self._slots:
            self._slots[key] = make()
        kept: T = self._slots[key]
        return kept

    def in_progress(self, call_id: str) -> CallInProgress | None:
        """The record of a call that is waiting; None if it is not waiting."""
        return self._runtime.running_calls.get(call_id)

    async def aclose(self) -> None:
        """Stop the servers that were started for this session only, and let later sessions use its approvals."""
        if "approvals" in self._slots:
            self._runtime.approvals.release(self)
        await self._runtime.released(self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __getitem__(self, name: str) -> Callable[..., Coroutine[Any, Any, Result]]:
        """Return a function that calls a tool with keyword arguments.

        An unknown name is reported by the call, with the outcome `not_found`: a server may still list the tool.

        Example:
            ```python
            result = await session["get_order"](order_id="ORD-1")
            result = await session["search"]({"page-size": 10})  # names that are not Python identifiers
            ```
        """

        def call(arguments: Mapping[str, JSON] = NOTHING, /, **named: JSON) -> Coroutine[Any, Any, Result]:
            return self.call(name, {**arguments, **named})

        return call

    # Without these two, Python would look for members with `__getitem__` and the numbers from 0, without an end.
    def __contains__(self, name: object) -> bool:
        """Whether a tool exists."""
        return name in self.registry

    def __iter__(self) -> Iterator[str]:
        """The names of the tools, sorted."""
        return iter(self.registry)

    def call(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        trace: Mapping[str, str] = NOTHING,
        grants: AbstractSet[str] = NO_GRANTS,
        client: Client | None = None,
        correlation: str = "",
        approver: Approver | None = None,
        idempotency_key: str = "",
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and return its result.

        Failures are results too: check `result.outcome`, or call `result.raise_for_outcome()`. Only
        programming mistakes raise here.

        Example:
            ```python
            result = await session.call("get_order", {"order_id": "ORD-1"})
            if result.outcome is Outcome.OK:
                print(result.value)
            ```

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None means no arguments.
            trace: Trace headers to forward (W3C trace context).
            grants: Permissions given for this call.
            client: Fulfils the call if its tool is in mode `client` (default: the session's client).
            correlation: ID of the call in another system, such as a conversation (default: the session's).
                Executors, clients and observers read it from the call's context.
            approver: Asks a person in place if the call needs approval (default: the session's approver).
            idempotency_key: Names the call, such as a random UUID. A repeated call of the same caller and user with the
                same key gets the stored result, and `meta.idempotency`.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: `name` is not a string, `client` is not callable, or the key is not a text of 1 to 255
                printable characters.
            asyncio.CancelledError: The caller's task was cancelled.
        """
        if (
            trace is NOTHING
            and grants is NO_GRANTS
            and client is None
            and not correlation
            and approver is None
            and idempotency_key == ""
        ):  # almost every call
            return self._call(name, arguments, self._context)
        context = self._context_with(
            trace, grants, client, correlation, approver, idempotency_key=idempotency_key
        )
        return self._call(name, arguments, context)

    def _context_with(
        self,
        trace: Mapping[str, str] = NOTHING,
        grants: AbstractSet[str] = NO_GRANTS,
        client: Client | None = None,
        correlation: str = "",
        approver: Approver | None = None,
        *,
        idempotency_key: str = "",
    ) -> CallContext:
        context = self._context
        if idempotency_key != "":
            from toolcrib.engine.idempotency_keys import check_key  # noqa: PLC0415 -- few calls have a key

            check_key(idempotency_key)
            self._runtime.use_keys()
        return context._replace(
            trace=trace,
            grants=context.grants.union(grants),
            client=context.client if client is None else _checked(client),
            correlation=correlation or context.correlation,
            approver=context.approver if approver is None else approver,
            idempotency_key=idempotency_key,
        )

    def call_at_once(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        correlation: str = "",
        trace: Mapping[str, str] = NOTHING,
        written: int | None = None,
    ) -> Result | None:
        """Call a tool that never waits, without an event loop. Returns None, without a call, if it may wait.

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None means no arguments.
            correlation: ID of the call in another system (default: the session's).
            trace: Trace headers to forward (W3C trace context).
            written: Characters of the JSON text that the arguments were read from; None if unknown.

        Raises:
            ClosedRuntime: The runtime was closed.
            ConfigurationError: `name` is not a string, or a layer that declares `waits = False` waited.
        """
        self._runtime.check_open()
        chain = (type(name) is str and self._table.chains.get(name)) or self._chain(
            _name(name), self._context
        )
        if self._runtime.may_appear(name) if chain is None else not chain.at_once:
            return None
        # Large arguments are checked in a thread, which needs an event loop.
        if (
            arguments is not None
            and (written is None or written > SMALL // MOST_WEIGHT)
            and is_large(arguments, DEPTH)
        ):
            return None
        context = self._context_at_once
        if context is None:
            context = self._context_at_once = self._context._replace(can_wait=False)
        if correlation:
            context = _new(CallContext, (context[0], correlation, *context[2:]))
        if trace:
            context = context._replace(trace=trace)
        coroutine = self._call(name, arguments, context)
        # A coroutine that never suspends ends in the first `send`; one that yields has broken its
        # declaration.
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
        """Whether a tool was called before, never waits, and no third-party layer or observer sees its calls.

        The caller may then reuse and modify the arguments and results: no one else holds them.
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
        approver: Approver | None = None,
        idempotency_key: str = "",
    ) -> AsyncIterator[Progress | Partial | Result]:
        """Call a tool and yield its progress and partial results, then exactly one Result.

        Leaving the loop early cancels the call.

        Example:
            ```python
            async for event in session.stream("render_video", {"id": 7}):
                print(event)
            ```

        Args:
            name: Name of the tool.
            arguments: JSON values by name; None means no arguments.
            trace: Trace headers to forward (W3C trace context).
            grants: Permissions given for this call.
            client: Fulfils the call if its tool is in mode `client` (default: the session's client).
            correlation: ID of the call in another system (default: the session's).
            approver: Asks a person in place if the call needs approval (default: the session's approver).
            idempotency_key: As for `call`.
        """
        import asyncio  # noqa: PLC0415 -- a call that never waits needs none of it

        arrived: asyncio.Queue[Progress | Partial | None] = asyncio.Queue()
        context = self._context_with(
            trace, grants, client, correlation, approver, idempotency_key=idempotency_key
        )
        context = context._replace(emit=arrived.put_nowait)
        task = asyncio.ensure_future(self._call(name, arguments, context))
        # The sentinel also ends the loop if the call raises or is cancelled.
        task.add_done_callback(lambda _task: arrived.put_nowait(None))
        try:
            while (event := await arrived.get()) is not None:
                yield event
            yield await task
        finally:
            # Wait for the end: the call must have released its connections before the generator is closed.
            task.cancel()
            await asyncio.wait([task])

    @property
    def approvals(self) -> Approvals:
        """The approvals of the runtime."""
        return self._runtime.approvals

    def hold(
        self, name: str, arguments: dict[str, JSON], decision: AccessDecision, *, correlation: str = ""
    ) -> Approval | None:
        """Hold a call that a policy outside of the layers asks a person about; None if it is approved already.

        Args:
            name: Name of the tool.
            arguments: The arguments, with defaults and repairs.
            decision: What asks for approval.
            correlation: ID of the call in another system.

        Raises:
            UnusableApprovals: The store of approvals is corrupt, newer than this program, or not private.
        """
        tool = self.registry[name]
        call = Call(tool, arguments, self._context_with(correlation=correlation))
        approvals = self._runtime.approvals
        return None if approvals.standing(call, decision) is not None else approvals.hold(call, decision)

    async def resume(self, id: str, *, idempotency_key: str = "") -> Result:  # noqa: A002 -- matches `Pending.id`
        """Make a call that was held and is approved now, with the approved arguments.

        The call keeps its caller, user and correlation, and its arguments are validated and evaluated again. It is made
        at most once, even if several processes try.

        Example:
            ```python
            for pending in session.approvals.pending():
                result = await session.resume(pending.id)
            ```

        Args:
            id: The approval (`Pending.id`).
            idempotency_key: As for `call`.

        Returns:
            The result of the call. It is `needs_approval` while nobody has answered, and `denied` with the code
            `rejected`, `approval_expired` or `already_answered` if the call is not made.

        Raises:
            ApprovalError: The approval is unknown, or belongs to another caller or user.
            ClosedRuntime: The runtime was closed.
        """
        self._runtime.check_open()
        claimed = self._runtime.approvals.resumed(self, id)
        if isinstance(claimed, Result):
            return claimed
        approval, arguments, grants = claimed
        context = self._context_with(idempotency_key=idempotency_key)._replace(
            caller=approval.caller, user=approval.user, correlation=approval.correlation, grants=grants
        )
        acting = self if self.principal == (approval.caller, approval.user) else self._acting_for(context)
        return await acting._call(approval.tool, arguments, context)  # noqa: SLF001 -- the same class

    def _acting_for(self, context: CallContext) -> Session:
        """The same session, whose calls are counted for another caller and user."""
        session = copy(self)
        session._context, session._pending = context, {}  # noqa: SLF001 -- as above
        return session

    async def dry_run(self, name: str, arguments: Mapping[str, JSON] | None = None) -> Result:
        """Explain what a call would do, without doing it.

        Returns:
            `ok` with `{tool, mode, arguments, repairs, plan}`. The arguments have their defaults and repairs,
            and secrets are masked; the plan depends on the mode. If the call would fail before its first
            attempt, that failure is returned.

            `meta` has `errors`, all failures that are known now, the one that the call would end with first, each as
            `{outcome, code, message, details, retryable}`; `warnings`, a list of texts; `limits`, the limits of the call
            as `{limit, value}` with `measured`, `of`, `per` and `at` where they apply; `estimate`; and, if they decide
            anything, `access` and `budgets`.

        Raises:
            ClosedRuntime: The runtime was closed.
        """
        self._runtime.check_open()
        chain = await self._found(_name(name), self._context)
        if not isinstance(chain, BoundChain):
            return self._runtime.not_found(name, self.registry) if chain is None else chain
        from toolcrib.engine.dry_run import dry_run  # noqa: PLC0415 -- few calls are explained

        call = self._made(chain, arguments, self._context)
        return await dry_run(chain, call, self._statistics.taken())

    def check_arguments(self, name: str, arguments: Mapping[str, JSON]) -> dict[str, JSON] | Result:
        """Check the arguments of a call without making it.

        Returns:
            The arguments that the tool would get, with defaults and repairs; or the result of the call if it would
            be refused for them.
        """
        chain = self._chain(_name(name), self._context)
        if chain is None:
            return self._runtime.not_found(name, self.registry)
        call = self._made(chain, arguments, self._context)
        checked = argument_layer.ArgumentCheck(chain.tool, chain.bound).repaired(call)
        return checked if isinstance(checked, Result) else checked[0].arguments

    def may_ask(self, name: str) -> bool:
        """Whether access asks a person about some calls of a tool, so that they may have to wait."""
        chain = self._chain(_name(name), self._context)
        return chain is not None and chain.access is not None and chain.access.asks

    def asks(self, name: str, arguments: Mapping[str, JSON], *, correlation: str = "") -> bool:
        """Whether a call would wait for a person: access asks about it, and nobody has approved it or is asked in place.

        Nothing is called, and no approval is requested. False if the arguments are invalid.

        Args:
            name: Name of the tool.
            arguments: The arguments.
            correlation: ID of the call in another system.
        """
        chain = self._chain(_name(name), self._context)
        if chain is None or chain.access is None or not chain.access.asks:
            return False
        from toolcrib.engine.middleware.access import blocking_decision  # noqa: PLC0415 -- few tools have rules

        call = self._made(chain, arguments, self._context_with(correlation=correlation))
        checked = argument_layer.ArgumentCheck(chain.tool, chain.bound).repaired(call)
        if isinstance(checked, Result):
            return False
        decision = blocking_decision(chain.access.decide(checked[0]), chain.access)
        if decision is None or decision.effect != "ask":
            return False
        return self._runtime.approvals.would_hold(checked[0], decision)

    def settle(
        self, name: str, arguments: Mapping[str, JSON], answer: ApprovalAnswer, *, correlation: str = ""
    ) -> None:
        """Answer the pending approvals of a call that a person has decided elsewhere. See `Approvals.settle`.

        Args:
            name: Name of the tool.
            arguments: The arguments.
            answer: The decision: approve, reject or expire.
            correlation: ID of the call in another system.

        Raises:
            UnusableApprovals: The store of approvals is corrupt, newer than this program, or not private.
        """
        if not self.may_ask(name):
            return
        checked = self.check_arguments(name, arguments)
        if isinstance(checked, dict):
            tool = self.registry[name]
            call = Call(tool, checked, self._context_with(correlation=correlation))
            self._runtime.approvals.settle(call, answer)

    async def _call(self, name: str, arguments: Mapping[str, JSON] | None, context: CallContext) -> Result:
        # Reading the attribute first is cheaper than the method call, which only raises.
        if self._runtime.closed:
            self._runtime.check_open()
        chain = (type(name) is str and self._table.chains.get(name)) or await self._found(
            _name(name), context
        )
        if type(chain) is not BoundChain:
            return self._not_started(name, context, chain)
        self.calls += 1
        number = next(self._numbers)
        if not number & _REST:
            self._statistics.settle()
        started = self._monotonic()
        given: Any = {} if arguments is None else arguments
        if type(given) is not dict:
            given = as_dict(given)
        call: Call = _new(Call, (chain.tool, given, context, f"{self.id}-{number}", 1, None, None))
        try:
            if self._real or chain.at_once:  # only a virtual clock has to know who is working
                answer = chain.run(call)
                # The type first, as below: `isinstance` takes five times as long.
                if type(answer) is not TrustedAnswer and not isinstance(answer, ANSWERS):
                    answer = await (answer if chain.at_once else self._in_sight(call, answer, started))
            else:
                with self.clock.working():
                    answer = await self._in_sight(call, results_of(chain.run)(call), started)
        # BaseException: a tool may cancel itself, and that must not look like a cancelled caller.
        except BaseException as error:  # noqa: BLE001 -- raised again if the caller must see it
            answer = self._result_of_error(call, error, started)
        if type(answer) is TrustedAnswer:
            # Inline: most mocked calls end here, and one more frame is measurable.
            tool, duration = chain.tool.name, self._monotonic() - started
            try:
                self._pending[tool].append(duration)
            except KeyError:
                self._pending_of(tool).append(duration)
            usage = _new(Usage, (1, duration))
            trusted: Result = _new(Result, (_OK, answer[0], (), "", None, usage, answer[1], None, tool))
            return trusted
        result = as_result(answer)
        result = result.with_usage(attempts_of(result), self._monotonic() - started, chain.tool.name)
        self._count(result, call)
        return result

    def _result_of_error(self, call: Call, error: BaseException, started: float) -> Result:
        """The result of a call that raised; the error is raised again if the caller must see it."""
        ended = result_of_error(call, error)
        if ended is None:
            ended = cancelled_by_caller(call)
            self._count(ended.with_usage(attempts_of(ended), self._monotonic() - started), call)
            raise error
        return ended

    async def _in_sight(self, call: Call, rest: Awaitable[Answer], started: float) -> Answer:
        """Await a call that waits, so that others can see and cancel it."""
        running = self._runtime.running_calls
        entry = running.add(call, started)
        try:
            answer = await rest
            if entry.cancelled:
                await entry.recover()
        except BaseException as error:
            if not entry.cancelled or not await entry.recover(error):
                raise
            answer = cancelled_by_caller(call)
        finally:
            running.remove(call.id)
        return answer if entry.traffic is None else with_traffic(as_result(answer), entry)

    def _not_started(self, name: str, context: CallContext, found: BoundChain | Result | None) -> Result:
        """The result of a call that has no tool."""
        result = found if isinstance(found, Result) else self._runtime.not_found(name, self.registry)
        # Without the name: unknown names have no end.
        self._statistics.add(self._statistics.series("", context.caller, context.user), result)
        return result

    def _count(self, result: Result, call: Call) -> None:
        context, tool = call.context, call.tool.name
        self._statistics.add(self._statistics.series(tool, context.caller, context.user), result)

    def _pending_of(self, tool: str) -> list[float]:
        context = self._context
        series = self._statistics.series(tool, context.caller, context.user)
        self._pending[tool] = series.pending
        return series.pending

    async def _found(self, name: str, context: CallContext) -> BoundChain | Result | None:
        """Return the chain of a tool, after listing its server if only that one knows the schema.

        Returns:
            The chain; None if the tool is unknown; or the result of a call that was cancelled during discovery.
        """
        chain = self._chain(name, context)
        if chain is not None and chain.lasting:
            return chain
        if not self._runtime.may_appear(name):
            return chain
        from toolcrib.core.running_calls import DISCOVERY  # noqa: PLC0415 -- few calls wait for a server

        tool = self._table.registry.get(name) or Descriptor(name)
        call = Call(tool, {}, context, f"{self.id}-{next(self._numbers)}")
        entry = self._runtime.running_calls.add(call, self._monotonic(), DISCOVERY)
        try:
            await self._runtime.discover_for(name)
        except BaseException as error:
            if not entry.cancelled or not await entry.recover(error):
                raise
            return cancelled_by_caller(call)
        finally:
            self._runtime.running_calls.remove(call.id)
        return self._chain(name, context)

    def _chain(self, name: str, context: CallContext) -> BoundChain | None:
        table = self._table
        tool = table.registry.get(name)
        if tool is None:
            named = table.registry.named_by_alias(name)
            return None if named is None else table.chains.get(named) or self._chain(named, context)
        hidden = table.registry.hidden(name)
        runtime = self._runtime
        if hidden is None or hidden.code == DENIED:
            # Before the tool is bound: a denial runs no code of the tool.
            denied = runtime.chain_of_denied(tool, context)
            if denied is not None:
                return denied
            hidden = None
        chain = runtime.chain_for(tool) if hidden is None else runtime.chain_of_hidden(tool, hidden)
        if chain.lasting:
            table.chains[name] = chain
        return chain

    # `_call` does the same inline, because one more frame is measurable in a mocked call.
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
    """Format a count with its noun: `1 tool`, `78 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(name: object) -> str:
    if isinstance(name, str):
        # A subclass may override `__eq__` and `__hash__`, which the look-up by name relies on.
        return str.__str__(name)
    raise ConfigurationError(
        f"the name of a tool must be a string, got {'None' if name is None else f'a `{type(name).__name__}`'}",
        hint='use `call("tool_name", {...})`',
    )


class Unavailable:
    """Replacement for a tool that cannot be bound: every call fails with the reason.

    Attributes:
        reason: Message of every call.
        code: Error code; None for the one of the outcome.
        outcome: Outcome of every call.
    """

    waits = False

    def __init__(
        self,
        reason: str,
        *,
        code: str | None = None,
        place: str = "",
        outcome: Outcome = Outcome.UNAVAILABLE,
        details: Mapping[str, JSON] = NOTHING,
    ) -> None:
        self.reason = reason
        self.code = code
        self.outcome = outcome
        self._details: Mapping[str, JSON] = {"at": place} if place else details

    async def execute(self, _call: Call) -> Result:
        """Fail with the reason, without an attempt."""
        failed = Result.failure(self.outcome, self.reason, code=self.code, details=self._details or NOTHING)
        return without_attempts(failed)

    def explain(self, _call: Call) -> JSON:
        """Return the reason as the plan of a dry run."""
        return {"unavailable": self.reason}
