"""Mode `client`: tools that the caller fulfils, such as tools of a browser, a device or a person.

The caller passes a function (`Runtime(client=...)`, `Runtime.session(client=...)`,
`Session.call(client=...)`), whose result is validated like any other. Without one, a call ends with outcome
`needs_approval` and code `client_tool_deferred`, and the caller can provide the result later.
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
"""The largest `timeout` of a client tool, in seconds (one day)."""

_READ, _WRITE, _TERMINAL = "client.fs.read_text_file", "client.fs.write_text_file", "client.terminal"

OPERATIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "read_file": ((_READ,), ("file_path",)),
    "write_file": ((_WRITE,), ("file_path", "content")),
    "edit_file": ((_READ, _WRITE), ("file_path", "old_string", "new_string")),
    "run_command": ((_TERMINAL,), ("command",)),
    "command_output": ((_TERMINAL,), ("shell_id",)),
    "kill_command": ((_TERMINAL,), ("shell_id",)),
}
"""What an editor can do for a tool -> the capabilities that it needs, and the arguments that the tool must require."""

Strategy: TypeAlias = Literal["error", "retry", "fallback"]


class ClientTerms(NamedTuple):
    """The parsed `client` block of a tool.

    Attributes:
        consent: Whether a person must agree.
        message: The question for that person; not empty if consent is required.
        strategy: What happens to a declined call.
        timeout: Seconds that the caller may take.
        categories: What the call touches, such as `location`.
        fallback: The result of a declined call with strategy `fallback`.
        falls_back: Whether `fallback` is set, possibly to null.
        operation: What an editor does for the tool; empty if the client decides by the name of the tool.
    """

    consent: bool
    message: str
    strategy: Strategy
    timeout: float
    categories: tuple[str, ...]
    fallback: JSON = None
    falls_back: bool = False
    operation: str = ""

    @classmethod
    def of(cls, tool: Descriptor) -> ClientTerms:
        """The terms of a tool whose block its schema has accepted."""
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
            operation=block.get("operation", ""),
        )

    def as_json(self) -> dict[str, JSON]:
        """The part that is shown to whoever decides: `{consent, message, categories, timeout}`."""
        return {
            "consent": self.consent,
            "message": self.message,
            "categories": list(self.categories),
            "timeout": format_duration(self.timeout),
        }


def check_block(tool: Descriptor) -> Iterator[Problem]:
    """The problems of a block that its JSON Schema cannot express."""
    terms = ClientTerms.of(tool)
    block: Any = tool.bindings["client"]
    if "timeout" in block and not 0 < terms.timeout <= LONGEST_TIMEOUT:
        longest = format_duration(LONGEST_TIMEOUT)
        message = f"`timeout` must be greater than 0s and at most {longest}, got `{block['timeout']}`"
        hint = f"use at most {longest}, or omit it for the default of {format_duration(tool.timeout)}"
        yield Problem(code="out_of_range", message=message, pointer="/client/timeout", hint=hint)
    if terms.falls_back:
        yield from _check_fallback(tool, terms)
    for key in ("replaces", "pre_approved"):
        if key in block and "requires" not in block:
            message = f"`{key}` has no effect without `requires`"
            hint = f"name what the client must announce in `requires`, or remove `{key}`"
            yield Problem(code="needless_key", message=message, pointer=f"/client/{key}", hint=hint)
    needed, arguments = OPERATIONS.get(terms.operation, ((), ()))
    schema = tool.input_schema
    required: Any = schema.get("required", ()) if isinstance(schema, dict) else ()
    absent = [name for name in arguments if name not in required]
    if absent:
        listed = " and ".join(f"`{name}`" for name in absent)
        message = f"`{terms.operation}` takes {listed}, which `input_schema` does not require"
        hint = f"write `required: [{', '.join(arguments)}]` with these properties"
        yield Problem(code="missing_argument", message=message, pointer="/client/operation", hint=hint)
    missing = [name for name in needed if name not in block.get("requires", ())]
    if missing:
        listed = " and ".join(f"`{name}`" for name in missing)
        message = f"`{terms.operation}` needs {listed}, which `requires` does not name"
        hint = f"write `requires: [{', '.join(needed)}]`"
        yield Problem(code="missing_capability", message=message, pointer="/client/operation", hint=hint)
    if block.get("replaces") == tool.name:
        message = f"`{tool.name}` cannot replace itself"
        hint = "name the tool that this one replaces, or remove `replaces`"
        yield Problem(code="not_allowed", message=message, pointer="/client/replaces", hint=hint)


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
    """A call of a tool in mode `client`, as the `Client` function receives it.

    The client returns a JSON value or a `Result`, which is validated against the tool's output schema, or the
    result of `decline()` or `defer()`. If `consent` is true, it asks a person first. It is cancelled when the
    timeout expires; an exception that it raises ends the call with outcome `internal`.

    Attributes:
        call: The call with its descriptor. The arguments are a copy that the client may change.
        terms: The parsed block of the tool.
    """

    call: Call
    terms: ClientTerms

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self.call.tool.name

    @property
    def arguments(self) -> dict[str, JSON]:
        """The arguments, defaults included. They are valid under the tool's input schema."""
        return self.call.arguments

    @property
    def id(self) -> str:
        """The id of the call. In a conversation this is the model's call id, as in `Pending.id`.

        It is the `correlation` that the call was made with, or the runtime's own call id if there was none.
        """
        context = self.call.context
        return self.call.id if context.correlation == context.session.correlation else context.correlation

    @property
    def context(self) -> CallContext:
        """The context of the call: `session` has the clock, `emit` accepts `Progress` and `Partial` events."""
        return self.call.context

    @property
    def consent(self) -> bool:
        """Whether a person must agree before anything is done."""
        return self.terms.consent

    @property
    def message(self) -> str:
        """The question for that person; empty if the tool has no message and requires no consent."""
        return self.terms.message

    @property
    def categories(self) -> tuple[str, ...]:
        """What the call touches, as the tool declares it."""
        return self.terms.categories

    @property
    def operation(self) -> str:
        """What an editor does for the tool, such as `read_file`; empty if the tool declares none."""
        return self.terms.operation

    @property
    def timeout(self) -> float:
        """Seconds that the call may take, from its start."""
        return self.terms.timeout

    def decline(self, reason: str = "") -> Result:
        """The result of a declined call, according to the tool's `decline_strategy`.

        Args:
            reason: Why it was declined; shown to the model.
        """
        return _DECLINED[self.terms.strategy](self, reason)

    def defer(self) -> Result:
        """The result of a call that cannot be decided yet. Its actual result can be provided later."""
        return deferred_result(self.call, self.terms, "its result is pending")


def deferred_result(call: Call, terms: ClientTerms, why: str) -> Result:
    """The result `needs_approval` of a call that waits for its client."""
    return Result.failure(
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
    # Without a fallback value, the message only advises the model to continue.
    if not terms.falls_back:
        return _no(call, reason, "; continue without it")
    return Result.success(copy_value(terms.fallback), meta={"client": {"declined": True, "reason": reason}})


def _no(call: ClientCall, reason: str, then: str, *, retryable: bool = False) -> Result:
    why = f": {reason}" if reason else ""
    return Result.failure(
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
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class ClientExecutor:
    """Executor that hands each call to the client of the call's context."""

    keeps_nothing = True
    reaches_out = True
    # The tool itself touches nothing outside the process: the caller does, with its own permissions.
    contained = True

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `client` block."""
        return _block_schema()

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check the timeout, and that the fallback has an effect and matches the output schema."""
        return [*check_block(descriptor)]

    def bind(self, descriptor: Descriptor) -> BoundClient:
        """Parse the block.

        Raises:
            DocumentError: The block has an error, which `check` reports.
        """
        problems = self.check(descriptor)
        if problems:
            raise DocumentError(problems)
        return BoundClient(ClientTerms.of(descriptor))

    async def aclose(self) -> None:
        """Does nothing: the executor holds no resources."""


class BoundClient:
    """A tool that the client fulfils.

    Virtual time stops while the client works, unless it sleeps on the session's clock. A client that waits
    for something in real time declares it with `with call.context.session.clock.outside()`.

    Attributes:
        waits: Always true: a call waits for the client.
        timeout: Seconds that the client may take.
    """

    waits = True

    def __init__(self, terms: ClientTerms) -> None:
        self.timeout = terms.timeout
        self._terms = terms

    async def execute(self, call: Call) -> Result:
        """Let the client fulfil the call; without a client, defer it."""
        client = call.context.client
        if client is None:
            return deferred_result(
                call, self._terms, "no client is configured, so its result must be provided later"
            )
        # Copied because the client is user code: traces and retries still use the original arguments.
        asked = ClientCall(call.with_arguments(copy_value(call.arguments)), self._terms)
        answer = await client(asked)
        return answer if isinstance(answer, Result) else Result.success(_own(answer))

    def explain(self, call: Call) -> JSON:
        """What the client would be asked, and whether one is configured."""
        terms = self._terms
        plan: dict[str, JSON] = {
            "fulfilled_by": "nobody" if call.context.client is None else "client",
            **terms.as_json(),
            "decline_strategy": terms.strategy,
        }
        return {**plan, "fallback": copy_value(terms.fallback)} if terms.falls_back else plan


def _own(answer: JSON) -> JSON:
    """A copy of the answer, so that later changes by the client do not reach the result."""
    try:
        copy: JSON = copy_value(answer)
    except RecursionError:
        # Too deep or cyclic: the result layer refuses it with a proper message.
        return answer
    return copy
