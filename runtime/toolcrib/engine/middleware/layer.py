"""The contract of a layer: its inputs, its declarations, and the state that calls share.

A layer is one file with one function `layer(context, call_next)`. It returns an async function (or a function
that returns an answer, or an awaitable of one) that accepts a call and continues with `call_next(call)`, or None
if the tool does not need the layer. A layer that awaits nothing but `call_next` declares it with `never_waits`. A chain of
such layers around a tool that never waits runs without an event loop, so synchronous and asynchronous calls
share one chain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock, run_in_thread
from toolcrib.core.model import ANSWERS, Call, Descriptor, Outcome, Result, ToolAnswer, as_result
from toolcrib.core.protocols import BoundTool, CallNext, Clock, Middleware, Reaching
from toolcrib.engine.middleware.call_failures import reportable
from toolcrib.engine.telemetry import NO_TELEMETRY, Telemetry
from toolcrib.schema.validation import as_json
from toolcrib.schema.validation.json_values import DEPTH

if TYPE_CHECKING:
    from toolcrib.engine.access_control import ToolGate
    from toolcrib.engine.call_journal import Journal
    from toolcrib.engine.middleware.events import Observers
    from toolcrib.loading.budgets import Budget
    from toolcrib.loading.limit_rules import LimitRule
    from toolcrib.security.access import AccessDecision, AccessViolation
    from toolcrib.security.redaction import Redactor

T = TypeVar("T")
Answer: TypeAlias = ToolAnswer
Link: TypeAlias = Callable[[Call], Answer | Awaitable[Answer]]
"""A layer around the rest of its chain, or the tool itself. It returns an awaitable only for a call that may wait."""
L = TypeVar("L", bound=Link)


Approve: TypeAlias = "Callable[[Call, AccessDecision, CallNext], Awaitable[Answer]]"
"""Answers a call that a person must approve: `await call_next(call)` once it is approved.

The layer `access` waits if it does, unless it declares `waits = False`.
"""


class LayerContext(NamedTuple):
    """The inputs for building the layers of one tool.

    Attributes:
        tool: The tool.
        bound: Its binding.
        shared: State that the calls of a runtime share.
        user: Middleware of the user, outermost first.
        observers: Receive the events of every call.
        access: Decides about each call; None if access decides nothing about the tool.
        record: Records a call that access refused.
        approve: Asks a person about a call and continues it; None if nobody can be asked.
        budgets: The budgets that count the tool.
        telemetry: What is recorded of calls.
        secrets: Returns the secrets that were looked up so far; None if there are none.
        journal: Records the calls of the tool; None if they are not recorded.
        keyed: Whether calls with an idempotency key were made on the runtime.
        limit_rules: The rules of `limits.rules` that limit the calls. `tool` has their limits of single calls.
        personal: Whether `tool` has limits that other callers of the same binding do not have.
        limits_of_callers: Names of the limits that rules set for the calls of some callers.
    """

    tool: Descriptor
    bound: BoundTool
    shared: SharedState
    user: Sequence[Middleware] = ()
    observers: Observers | None = None
    access: ToolGate | None = None
    record: Callable[[AccessViolation], None] = lambda _violation: None
    approve: Approve | None = None
    budgets: Sequence[Budget] = ()
    telemetry: Telemetry = NO_TELEMETRY
    secrets: Callable[[], Redactor | None] = lambda: None
    journal: Journal | None = None
    keyed: bool = False
    limit_rules: Sequence[LimitRule] = ()
    personal: bool = False
    limits_of_callers: frozenset[str] = frozenset()

    @property
    def shared_rules(self) -> list[LimitRule]:
        """The rules whose rate or concurrency calls share."""
        return [rule for rule in self.limit_rules if rule.bounds is not None]

    @property
    def timeout(self) -> float:
        """Seconds until a call times out."""
        return effective_timeout(self.tool, self.bound, self.limit_rules)

    @property
    def reaching(self) -> Reaching:
        """The binding of a tool that reaches out."""
        assert reaches_out(self.bound)  # noqa: S101 -- only such tools have the layers that use it
        return self.bound

    @property
    def answer_now(self) -> Callable[[Call], Answer] | None:
        """The synchronous answer function of a `SyncTool`; None if the tool may wait or has none."""
        answer_now: Callable[[Call], Answer] | None = getattr(self.bound, "answer_now", None)
        return None if self.bound.waits else answer_now

    @property
    def begin(self) -> Link | None:
        """What starts a call of the tool, and may answer without waiting; None if the tool has nothing of the kind."""
        begin: Link | None = getattr(self.bound, "begin", None)
        return begin if self.bound.waits else self.answer_now


def effective_timeout(tool: Descriptor, bound: BoundTool | None, rules: Sequence[LimitRule]) -> float:
    """Seconds until a call of a tool times out: those of its binding or descriptor, or less by a rule."""
    own: float | None = getattr(bound, "timeout", None)
    seconds = tool.timeout if own is None else own
    return min([seconds, *(float(rule.limits["timeout"]) for rule in rules if "timeout" in rule.limits)])


def reaches_out(bound: BoundTool) -> TypeGuard[Reaching]:
    """Whether calls leave the process, and so share failures and limits with others of their origin."""
    return hasattr(bound, "origin") and hasattr(bound, "repeatable")


def has_own_limits(context: LayerContext) -> bool:
    """Whether the rate, the concurrency and the circuit breaker of the tool and its origin apply."""
    return reaches_out(context.bound) and getattr(context.bound, "limited", True)


def is_limited(context: LayerContext) -> bool:
    """Whether calls may wait for a place: by the limits of the tool and its origin, or by rules of the project."""
    return has_own_limits(context) or bool(context.limit_rules and context.shared_rules)


BuildLayer: TypeAlias = Callable[[LayerContext, Any], Link | None]
"""`layer(context, call_next)`. A layer that does not accept a `TrustedAnswer` gets a `CallNext`."""


def never_waits(layer: L) -> L:
    """Declare that a layer awaits nothing but `call_next` and `off_loop`."""
    layer.waits = False  # type: ignore[attr-defined]
    return layer


def may_wait(layer: Link | Middleware | Approve) -> bool:
    """Whether a layer may wait by itself; True unless it declares `waits = False`."""
    waits: bool = getattr(layer, "waits", True)
    return waits


def results_of(link: Link) -> CallNext:
    """Convert a link to a coroutine function that returns a result, for a layer that accepts nothing else."""

    async def result(call: Call) -> Result:
        answer = link(call)
        return as_result(answer if isinstance(answer, ANSWERS) else await answer)

    return result


async def off_loop(call: Call, work: Callable[[], T]) -> T:
    """Run slow work in a thread, so that the event loop is not blocked; inline if there is no event loop."""
    if not call.context.can_wait:
        return work()
    clock = call.context.session.clock
    with clock.working():  # a virtual clock must not advance meanwhile
        return await run_in_thread(clock, work)


class SharedState:
    """Named state shared by all sessions of a runtime: rates, breakers, budgets. It survives reloads.

    State that depends on time exists once per clock, so sessions on virtual time do not wait for others.

    Attributes:
        lock: Hold it to read and change a piece of state, because a runtime may be used in several threads.
    """

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a call in this thread, which then frees its slot.
        self.lock = RLock()
        self._timeless: dict[str, Any] = {}
        self._real: dict[str, Any] = {}
        self._others: WeakKeyDictionary[Clock, dict[str, Any]] = WeakKeyDictionary()

    def slot(self, key: str, make: Callable[[], T], clock: Clock | None = None) -> T:
        """Return the piece of state with a name.

        Args:
            key: Name of the piece.
            make: Creates it on first use.
            clock: The clock that it depends on; None if it does not depend on time.
        """
        pieces = self._timeless if clock is None else self._pieces(clock)
        piece: T | None = pieces.get(key)
        # `setdefault` is atomic: two threads that arrive together get the same piece.
        return pieces.setdefault(key, make()) if piece is None else piece

    def forget(self, prefix: str) -> None:
        """Forget the pieces whose names start with a prefix; calls in progress keep theirs."""
        for pieces in (self._timeless, self._real, *self._others.values()):
            for key in [key for key in pieces if key.startswith(prefix)]:
                del pieces[key]

    def _pieces(self, clock: Clock) -> dict[str, Any]:
        # Each session has its own RealClock object, but they all show the same time.
        if isinstance(clock, RealClock):
            return self._real
        return self._others.setdefault(clock, {})


def user_layer(middleware: Middleware) -> BuildLayer:
    """Wrap a middleware of the user in a layer; a call ends `internal` unless it returns a valid Result."""
    from inspect import isawaitable  # noqa: PLC0415 -- most tools have no user middleware

    def layer(_context: LayerContext, call_next: CallNext) -> CallNext:
        async def user(call: Call) -> Result:
            answer: Any = middleware(call, call_next)
            result = await answer if isawaitable(answer) else answer
            if result is answer:
                return _broken(
                    call, middleware, f"is not an `async` function: it returned {_kind_of(result)}"
                )
            if not isinstance(result, Result):
                forgotten = "; is a `return` missing?" if result is None else ""
                return _broken(
                    call, middleware, f"returned {_kind_of(result)} instead of a `Result`{forgotten}"
                )
            result, fault = reportable(result)
            if fault is None:
                value, fault = as_json(result.value, depth=DEPTH)
            if fault is not None:
                # Name only the type: the value may be secret, and the caller reads this text.
                return _broken(
                    call, middleware, f"returned a value that is not valid JSON: expected {fault.expected}"
                )
            return result if value is result.value else result._replace(value=value)

        return user if may_wait(middleware) else never_waits(user)

    return layer


def _kind_of(value: object) -> str:
    return "None" if value is None else f"a `{type(value).__name__}`"


def _broken(call: Call, middleware: Middleware, fault: str) -> Result:
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)
    message = f"the middleware `{name}` {fault}"
    import logging  # noqa: PLC0415 -- as above

    logging.getLogger("toolcrib").error("a bug in a call of `%s`: %s", call.tool.name, message)
    return Result.failure(Outcome.INTERNAL, message, details={"middleware": name})
