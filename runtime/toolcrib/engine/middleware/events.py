"""Layer `events`: notifies observers when a call starts, reports progress and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolcrib.core.model import Call, Partial, Progress, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import attempts_of, observed, with_traffic
from toolcrib.engine.middleware.layer import LayerContext, never_waits

if TYPE_CHECKING:
    from toolcrib.engine.approvals import ApprovalAnswered, ApprovalRequested
    from toolcrib.loading.reload import ToolEvent
    from toolcrib.security.access import AccessViolation


class CallStarted(NamedTuple):
    """A call started. `call.arguments` are the caller's, before defaults and repairs.

    `call.context.correlation` is the ID of the call in another system, such as a conversation.
    """

    call: Call


class CallProgressed(NamedTuple):
    """A call reported progress, or a part of its result. It started before and has not ended."""

    call: Call
    update: Progress | Partial


class CallFinished(NamedTuple):
    """A call ended with the result that its caller gets. A caller that cancelled gets none.

    Each call that started has exactly one such event.
    """

    call: Call
    result: Result


Event: TypeAlias = "CallStarted | CallProgressed | CallFinished | ToolEvent | AccessViolation | ApprovalRequested | ApprovalAnswered"
"""What observers receive."""

Observer: TypeAlias = Callable[[Event], None]
"""Receives the events of every call, every change of tools and every violation, in order. It must not block.

An exception that it raises is logged, and has no other effect.
"""


class Observers:
    """The observers of a runtime.

    Attributes:
        all: The observers, in the order in which they are notified.
    """

    def __init__(self, given: Observer | Iterable[Observer] | None = None) -> None:
        self.all: tuple[Observer, ...] = ()
        if given is not None:
            self.all = (given,) if callable(given) else tuple(given)

    def __bool__(self) -> bool:
        return bool(self.all)

    def add(self, observer: Observer) -> Callable[[], None]:
        """Add an observer, and return a function that removes it."""
        # An object of its own for each registration: the same function may be registered twice.
        entry = _Registration(observer)
        self.all = (*self.all, entry)

        def remove() -> None:
            self.all = tuple(each for each in self.all if each is not entry)

        return remove

    def tell(self, event: Event) -> None:
        """Notify all observers."""
        tell(self.all, event)


class _Registration:
    """An observer that was added to a running program."""

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(self, event: Event) -> None:
        self._observer(event)


NO_OBSERVERS = Observers()
"""The default: nobody observes."""


def tell(observers: Iterable[Observer], event: Event) -> None:
    """Notify some observers. One that fails does not keep the others from the event."""
    for observer in observers:
        try:
            observer(event)
        except Exception:
            import logging  # noqa: PLC0415 -- slow to import, and observers rarely fail

            logging.getLogger("toolcrib").exception("an observer failed")


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None without observers."""
    observers = context.observers
    if not observers:
        return None

    @never_waits
    async def events(call: Call) -> Result:
        # Those who see the start see the end as well, even if they are removed meanwhile.
        told = observers.all
        monotonic = call.context.session.clock.monotonic
        tell(told, CallStarted(call))
        started = monotonic()
        emit = call.context.emit

        def update(event: Progress | Partial) -> None:
            emit(event)
            tell(told, CallProgressed(call, event))

        def finished(result: Result) -> Result:
            result = with_traffic(result, call.context.session.in_progress(call.id))
            ended = result.with_usage(attempts_of(result), monotonic() - started, call.tool.name)
            tell(told, CallFinished(call, ended))
            return ended

        return await observed(
            call, call._replace(context=call.context._replace(emit=update)), call_next, finished
        )

    return events
