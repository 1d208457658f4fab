"""A call that the caller is asked to fulfil."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from toolcrib.core.model import JSON, Call, CallContext, Outcome, Result
from toolcrib.executors.client.block import Strategy, Terms
from toolcrib.expressions.structures import copied

DEFERRED = "client_tool_deferred"
DECLINED = "consent_declined"


class ClientCall(NamedTuple):
    """A call of a tool in mode `client`, as its `Client` gets it.

    The client answers a JSON value or a `Result`, which the tool's output schema judges; or what `decline` and
    `defer` give. It asks a person first where `consent` is true. It is cancelled when the time is up, and what it
    raises ends the call `internal`.

    Attributes:
        call: The call as the layers have it, with its descriptor; the arguments are the client's own copy.
        terms: What the tool's block says.
    """

    call: Call
    terms: Terms

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self.call.tool.name

    @property
    def arguments(self) -> dict[str, JSON]:
        """What it is called with, defaults included; they fit the tool's input schema."""
        return self.call.arguments

    @property
    def id(self) -> str:
        """Names the call: its id in the conversation where it is part of one, as in `Pending.id`.

        That is the `correlation` it was made with; where it has none of its own, the id that the runtime gave it.
        """
        context = self.call.context
        return self.call.id if context.correlation == context.session.correlation else context.correlation

    @property
    def context(self) -> CallContext:
        """Who calls, and within what: its `session` has the clock, its `emit` takes `Progress` and `Partial`."""
        return self.call.context

    @property
    def consent(self) -> bool:
        """Whether a person must agree before anything is done."""
        return self.terms.consent

    @property
    def message(self) -> str:
        """What to ask that person; empty where the tool says nothing, and asks for no consent."""
        return self.terms.message

    @property
    def categories(self) -> tuple[str, ...]:
        """What the call touches, as the tool says it."""
        return self.terms.categories

    @property
    def timeout(self) -> float:
        """Seconds that the call may take, from its beginning."""
        return self.terms.timeout

    def decline(self, reason: str = "") -> Result:
        """The answer where the person says no, as the tool's `decline_strategy` has it.

        Args:
            reason: Why; told to the model.
        """
        return _DECLINED[self.terms.strategy](self, reason)

    def defer(self) -> Result:
        """The answer where nobody can say now: the call waits, and its result can be given later."""
        return deferred(self.call, self.terms, "it waits for whoever fulfils it")


def deferred(call: Call, terms: Terms, why: str) -> Result:
    """The result of a call that nobody has fulfilled yet."""
    return Result.failed(
        Outcome.NEEDS_APPROVAL,
        f"`{call.tool.name}` is fulfilled by its caller; {why}",
        code=DEFERRED,
        details=terms.as_json(),
    )


def _denied(call: ClientCall, reason: str) -> Result:
    return _no(call, reason, "")


def _retryable(call: ClientCall, reason: str) -> Result:
    return _no(call, reason, "; it may be asked for again", retryable=True)


def _fallen_back(call: ClientCall, reason: str) -> Result:
    terms = call.terms
    if not terms.falls_back:
        return _no(call, reason, "; go on without it")
    return Result.ok(copied(terms.fallback), meta={"client": {"declined": True, "reason": reason}})


def _no(call: ClientCall, reason: str, then: str, *, retryable: bool = False) -> Result:
    why = f": {reason}" if reason else ""
    return Result.failed(
        Outcome.DENIED,
        f"`{call.tool}` was declined{why}{then}",
        code=DECLINED,
        details={"reason": reason},
        retryable=retryable,
    )


_DECLINED: Mapping[Strategy, Callable[[ClientCall, str], Result]] = {
    "error": _denied,
    "retry": _retryable,
    "fallback": _fallen_back,
}
