"""Mode `client`: tools that the caller fulfils, such as those of a browser, a device or a person.

The caller gives a function (`Runtime(client=...)`, `Runtime.session(client=...)`, `Session.call(client=...)`), and
what it answers is judged like every answer. Where there is none, a call ends `needs_approval` with the code
`client_tool_deferred`, and whoever made it may give the result later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, Call, CallContext, Descriptor, Outcome, Result, Schema
from toolcrib.expressions.structures import copy_value
from toolcrib.schema.validation import Validator

__all__ = ["DECLINED", "DEFERRED", "BoundClient", "ClientCall", "ClientExecutor"]

LONGEST_TIMEOUT = 86400.0
"""Seconds."""

Strategy: TypeAlias = Literal["error", "retry", "fallback"]


class ClientTerms(NamedTuple):
    """What is asked of the caller.

    Attributes:
        consent: Whether a person must agree.
        message: What the person is asked; not empty where one must agree.
        strategy: What becomes of a call that is declined.
        timeout: Seconds that the caller may take.
        categories: What the call touches.
        fallback: What a declined call is answered with.
        falls_back: Whether there is a fallback.
    """

    consent: bool
    message: str
    strategy: Strategy
    timeout: float
    categories: tuple[str, ...]
    fallback: JSON = None
    falls_back: bool = False

    @classmethod
    def of(cls, tool: Descriptor) -> ClientTerms:
        """The terms of a tool, whose block has the right shape."""
        block: Any = tool.bindings["client"]
        consent: Mapping[str, Any] = block.get("consent", {})
        required = consent.get("required", False)
        asking = f"Allow `{tool.title or tool.name}`?" if required else ""
        return cls(
            consent=required,
            message=consent.get("message", asking),
            strategy=consent.get("decline_strategy", "error"),
            timeout=parse_duration(block["timeout"]) if "timeout" in block else tool.timeout,
            categories=tuple(block.get("categories", ())),
            fallback=block.get("fallback"),
            falls_back="fallback" in block,
        )

    def as_json(self) -> dict[str, JSON]:
        """What is told of them to whoever decides: `{consent, message, categories, timeout}`."""
        return {
            "consent": self.consent,
            "message": self.message,
            "categories": list(self.categories),
            "timeout": format_duration(self.timeout),
        }


def check_block(tool: Descriptor) -> Iterator[Problem]:
    """What is wrong with a block that the schema of blocks can't say."""
    terms = ClientTerms.of(tool)
    block: Any = tool.bindings["client"]
    if "timeout" in block and not 0 < terms.timeout <= LONGEST_TIMEOUT:
        longest = format_duration(LONGEST_TIMEOUT)
        message = f"`timeout` must be greater than 0s and at most {longest}, got `{block['timeout']}`"
        hint = f"use at most {longest}, or omit it for the default of {format_duration(tool.timeout)}"
        yield Problem(code="out_of_range", message=message, pointer="/client/timeout", hint=hint)
    if terms.falls_back:
        yield from _check_fallback(tool, terms)


def _check_fallback(tool: Descriptor, terms: ClientTerms) -> Iterator[Problem]:
    if terms.strategy != "fallback":
        message = f"`fallback` has no effect if `decline_strategy` is `{terms.strategy}`"
        hint = "set `consent: {decline_strategy: fallback}`, or remove `fallback`"
        yield Problem(code="needless_key", message=message, pointer="/client/fallback", hint=hint)
    if tool.output_schema is None:
        return
    for fault in Validator(tool.output_schema).faults(terms.fallback):
        yield Problem(
            code="result_breaks_schema",
            message=f"`fallback` does not match `output_schema`: {fault.for_model()}",
            pointer=f"/client/fallback{fault.pointer}",
            hint=fault.hint,
        )


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
    terms: ClientTerms

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
        return deferred_result(self.call, self.terms, "its result is pending")


def deferred_result(call: Call, terms: ClientTerms, why: str) -> Result:
    """The result of a call that nobody has fulfilled yet."""
    return Result.failed(
        Outcome.NEEDS_APPROVAL,
        f"`{call.tool.name}` is fulfilled by the client; {why}",
        code=DEFERRED,
        details=terms.as_json(),
    )


def _denied(call: ClientCall, reason: str) -> Result:
    return _no(call, reason, "")


def _retryable(call: ClientCall, reason: str) -> Result:
    return _no(call, reason, "; it may be requested again", retryable=True)


def _fallen_back(call: ClientCall, reason: str) -> Result:
    terms = call.terms
    if not terms.falls_back:
        return _no(call, reason, "; continue without it")
    return Result.ok(copy_value(terms.fallback), meta={"client": {"declined": True, "reason": reason}})


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


@cache
def _block_schema() -> Schema:
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class ClientExecutor:
    """Asks the client of the call's context."""

    keeps_nothing = True
    reaches_out = True
    contained = True  # what happens outside, the caller does

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `client` block."""
        return _block_schema()

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Its time is possible, and its fallback has an effect and fits the output schema."""
        return [*check_block(descriptor)]

    def bind(self, descriptor: Descriptor) -> BoundClient:
        """Read the block.

        Raises:
            DocumentError: There is an error in it, which `check` would have told.
        """
        problems = self.check(descriptor)
        if problems:
            raise DocumentError(problems)
        return BoundClient(ClientTerms.of(descriptor))

    async def aclose(self) -> None:
        """Nothing to give back."""


class BoundClient:
    """A tool that the caller fulfils.

    Virtual time stands still while the client works, unless it sleeps on the session's clock; one that waits on
    the world says so (`with call.context.session.clock.outside()`).

    Attributes:
        waits: A call waits for the caller.
        timeout: Seconds that the caller may take.
    """

    waits = True

    def __init__(self, terms: ClientTerms) -> None:
        self.timeout = terms.timeout
        self._terms = terms

    async def execute(self, call: Call) -> Result:
        """Have the client fulfil the call; without one the call waits for somebody to do so later."""
        client = call.context.client
        if client is None:
            return deferred_result(
                call, self._terms, "no client is configured, so its result must be provided later"
            )
        asked = ClientCall(call.with_arguments(copy_value(call.arguments)), self._terms)
        answer = await client(asked)
        return answer if isinstance(answer, Result) else Result.ok(_own(answer))

    def explain(self, call: Call) -> JSON:
        """What the caller would be asked, and whether anybody is there to answer."""
        terms = self._terms
        plan: dict[str, JSON] = {
            "fulfilled_by": "nobody" if call.context.client is None else "client",
            **terms.as_json(),
            "decline_strategy": terms.strategy,
        }
        return {**plan, "fallback": copy_value(terms.fallback)} if terms.falls_back else plan


def _own(answer: JSON) -> JSON:
    """The answer as the call's own, where it is one that ends; any other is refused by the layer around."""
    try:
        copy: JSON = copy_value(answer)
    except RecursionError:
        return answer
    return copy
