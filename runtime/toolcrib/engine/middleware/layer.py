"""A layer around every call: what it is built from, what it declares, and what the calls of a runtime share.

A layer is one file with one function `layer(context, call_next)`. It returns an `async` function, or one that returns
an awaitable, that takes a call and goes on with `call_next(call)`; or None where a tool does not need the layer. A layer that awaits nothing but
`call_next` says so (`never_waits`): the chain of a tool that never waits, with only such layers, runs without an event
loop. So there is one chain, and its layers take effect in whatever way it is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock, run_in_thread
from toolcrib.core.model import Call, Descriptor, Outcome, Result, TrustedAnswer
from toolcrib.core.protocols import BoundTool, CallNext, Clock, Middleware, Reaching
from toolcrib.engine.middleware.call_failures import reportable
from toolcrib.schema.validation import as_json
from toolcrib.schema.validation.json_values import DEPTH

if TYPE_CHECKING:
    from toolcrib.engine.middleware.events import Observer

T = TypeVar("T")
Answer: TypeAlias = Result | TrustedAnswer

Link: TypeAlias = Callable[[Call], Awaitable[Answer]]
"""A layer around the rest of its chain, or the tool itself."""

L = TypeVar("L", bound=Link)


class LayerContext(NamedTuple):
    """What the layers of one tool are built from.

    Attributes:
        tool: The tool.
        bound: Its binding.
        shared: What the calls of a runtime share.
        user: Layers of the user, outermost first.
        observer: Receives the events of every call; None where nobody observes.
    """

    tool: Descriptor
    bound: BoundTool
    shared: SharedState
    user: Sequence[Middleware] = ()
    observer: Observer | None = None

    @property
    def reaching(self) -> Reaching:
        """The binding of a tool that reaches out."""
        assert reaches_out(self.bound)  # noqa: S101 -- no other tool has the layers that ask
        return self.bound

    @property
    def answer_now(self) -> Callable[[Call], Answer] | None:
        """What a tool answers that never waits (`SyncTool`); None for one that may, or does not say."""
        answer_now: Callable[[Call], Answer] | None = getattr(self.bound, "answer_now", None)
        return None if self.bound.waits else answer_now


def reaches_out(bound: BoundTool) -> TypeGuard[Reaching]:
    """Whether the calls of a bound tool reach out, so that they can fail, and take places, together with others."""
    return hasattr(bound, "origin") and hasattr(bound, "repeatable")


BuildLayer: TypeAlias = Callable[[LayerContext, Any], Link | None]
"""`layer(context, call_next)`. A layer that does not take a `TrustedAnswer` gets a `CallNext`."""


def never_waits(layer: L) -> L:
    """Declare that a layer awaits nothing but `call_next`, and `off_loop`."""
    layer.waits = False  # type: ignore[attr-defined]
    return layer


def may_wait(layer: Link | Middleware) -> bool:
    """Whether a layer may wait by itself, as it does unless it says otherwise."""
    waits: bool = getattr(layer, "waits", True)
    return waits


async def off_loop(call: Call, work: Callable[[], T]) -> T:
    """What work returns that takes long: in a thread, so that the event loop goes on, if the caller can wait for it."""
    if not call.context.can_wait:
        return work()
    clock = call.context.session.clock
    with clock.working():
        return await run_in_thread(clock, work)


class SharedState:
    """Pieces of state by name, as `Session.slot` has them, for all sessions of a runtime: rates, breakers, budgets.

    It survives reloads. What has to do with time is kept for each clock: sessions on virtual time don't wait for others.

    Attributes:
        lock: Held by whoever looks at a piece and changes it: a runtime may be used in several threads at once.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # reentrant: what the garbage collector ends may give a place back
        self._timeless: dict[str, Any] = {}
        self._real: dict[str, Any] = {}
        self._others: WeakKeyDictionary[Clock, dict[str, Any]] = WeakKeyDictionary()

    def slot(self, key: str, make: Callable[[], T], clock: Clock | None = None) -> T:
        """The piece of state of a name, made at its first use.

        Args:
            key: Its name.
            make: Makes it.
            clock: The time that it goes by; None for what has to do with no time.
        """
        pieces = self._timeless if clock is None else self._pieces(clock)
        piece: T | None = pieces.get(key)
        return pieces.setdefault(key, make()) if piece is None else piece

    def _pieces(self, clock: Clock) -> dict[str, Any]:
        if isinstance(clock, RealClock):  # each session has one of its own, and all tell the same time
            return self._real
        return self._others.setdefault(clock, {})


def user_layer(middleware: Middleware) -> BuildLayer:
    """Builds the layer of a user, with a check of what it returns: anything but a sound Result is `internal`."""
    from inspect import isawaitable  # noqa: PLC0415 -- most tools have no layers of a user

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
                # Only the kind of what is there: this text is read by whoever made the call.
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
    return Result.failed(Outcome.INTERNAL, message, details={"middleware": name})
