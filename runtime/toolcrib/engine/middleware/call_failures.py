"""Results of calls that end with an exception or a cancellation, and the masking of secrets in failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolcrib.core.call_progress import CallProgress, progress_of
from toolcrib.core.model import NO_USAGE, NOTHING, Call, Descriptor, Outcome, Result, Usage
from toolcrib.core.pointers import pointer_to
from toolcrib.core.protocols import CallNext
from toolcrib.core.subschemas import Path
from toolcrib.schema.validation import Validator, Violation, as_dict, as_json
from toolcrib.schema.validation.json_values import DEPTH
from toolcrib.schema.validation.violations import describe_value, plain_scalar
from toolcrib.security.redaction import HIDDEN, Redactor

if TYPE_CHECKING:
    from toolcrib.core.running_calls import CallInProgress

_OK = Outcome.OK

BEFORE_ANY_ATTEMPT = frozenset(
    {
        Outcome.NOT_FOUND,
        Outcome.UNAVAILABLE,
        Outcome.INVALID_ARGUMENTS,
        Outcome.DENIED,
        Outcome.NEEDS_APPROVAL,
    }
)
"""Outcomes of calls that did not reach an executor."""


def attempts_of(result: Result) -> int:
    """Number of attempts: the count of a layer if any, else one or zero, depending on the outcome."""
    if result.usage is not NO_USAGE:
        return result.usage.attempts
    # Most results are `ok`, and hashing an enum member for the set look-up is slow.
    return 1 if result.outcome is _OK or result.outcome not in BEFORE_ANY_ATTEMPT else 0


def with_traffic(result: Result, entry: CallInProgress | None) -> Result:
    """The result with what its call has sent and received, if that was counted."""
    if entry is None or entry.traffic is None:
        return result
    usage = Usage(attempts_of(result)) if result.usage is NO_USAGE else result.usage
    return result._replace(usage=usage.measured(entry.traffic.values()))


_UNTRIED = Usage(0, 0.0)
"""Zero attempts, counted by a layer. `NO_USAGE` means that no layer counted."""


def without_attempts(result: Result) -> Result:
    """Mark the result as one without any attempt."""
    return result._replace(usage=_UNTRIED)


def may_have_acted(tool: Descriptor) -> bool:
    """Whether a cancelled call of the tool may have had an effect."""
    return not (tool.annotations.read_only or tool.annotations.idempotent)


def is_cancelled_by_caller() -> bool:
    """Whether the caller cancelled its task; otherwise the cancellation came from inside the tool."""
    import asyncio  # noqa: PLC0415 -- already imported if there is a cancellation

    # `cancelling()` counts the requests of `Task.cancel`; a CancelledError that a tool raises does not count.
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_BY_CALLER = Result.failure(Outcome.CANCELLED, "the caller cancelled the call")

_BY_OPERATOR = Result.failure(
    Outcome.CANCELLED, "an operator cancelled the call", code="cancelled_by_operator"
)

_BY_CLOSING = Result.failure(
    Outcome.CANCELLED, "the runtime was closed before the call ended", code="runtime_closed"
)


def cancelled_by_caller(call: Call) -> Result:
    """Build the result of a call that was cancelled from outside of its tool, with the progress that it had made."""
    entry = call.context.session.in_progress(call.id)
    if entry is not None and entry.cancelled:
        return _cancelled(call, _BY_CLOSING if entry.closing else _BY_OPERATOR, progress_of(call.id))
    return _cancelled(call, _BY_CALLER, progress_of(call.id))


def cancelled_by_tool(call: Call) -> Result:
    """Build the result of a call whose tool cancelled itself."""
    itself = Result.failure(Outcome.CANCELLED, f"`{call.tool.name}` cancelled itself")
    return _cancelled(call, itself, CallProgress())


def _cancelled(call: Call, result: Result, given: CallProgress) -> Result:
    if given.attempts and given.reached and may_have_acted(call.tool) and result.error is not None:
        result = result._replace(error=result.error._replace(details={"may_have_acted": True}))
    return result._replace(usage=Usage(given.attempts), meta=given.meta)


def result_of_error(call: Call, error: BaseException) -> Result | None:
    """Build the result of a call that raised; None if the error must propagate.

    A cancellation by the caller propagates, and so do KeyboardInterrupt and SystemExit.
    """
    if isinstance(error, Exception):
        return internal_error(call, error)
    import asyncio  # noqa: PLC0415 -- already imported if there is a cancellation

    within = isinstance(error, asyncio.CancelledError) and not is_cancelled_by_caller()
    return cancelled_by_tool(call) if within else None


async def observed(
    call: Call, passed: Call, call_next: CallNext, finished: Callable[[Result], Result]
) -> Result:
    """Continue a call, and pass its end to `finished` exactly once, whose result the caller gets.

    Args:
        call: The call, for the result of an exception.
        passed: The call to continue with.
        call_next: Continues it.
        finished: Receives the result. If the call is cancelled or interrupted, there is one as well, which nobody gets.
    """
    try:
        result = await call_next(passed)
    # BaseException: a call that is cancelled or interrupted has an end as well, which observers must see.
    except BaseException as error:
        ended = result_of_error(call, error)
        if ended is None:
            finished(cancelled_by_caller(call))
            raise
        result = ended
    return finished(result)


def internal_error(call: Call, error: Exception) -> Result:
    """Build the result of a call that raised an exception."""
    # The text of the exception may contain secrets or untrusted data. The result, which a model may read,
    # names only its type; the log has the rest.
    import logging  # noqa: PLC0415 -- not needed unless there is a bug

    logging.getLogger("toolcrib").error("a bug in a call of `%s`", call.tool.name, exc_info=error)
    kind = type(error).__name__
    message = f"a bug while calling `{call.tool.name}`: {kind}; the traceback is in the `toolcrib` log"
    return Result.failure(Outcome.INTERNAL, message, details={"exception": kind})


def mask_violation(fault: Violation, validator: Validator) -> Violation:
    """Hide the value in a violation if the schema marks its place as secret."""
    return fault._replace(got=HIDDEN) if validator.secrets.hides(fault.path, ...) else fault


def hide_secrets(seen: Redactor, faults: Sequence[Violation], value: object) -> list[Violation]:
    """Hide secrets that were seen before, such as in the arguments of the call, in violations of a value."""
    return [_without(seen, fault, value) for fault in faults]


def _without(seen: Redactor, fault: Violation, value: object) -> Violation:
    path = tuple(seen.hide_in_text(key) if isinstance(key, str) else key for key in fault.path)
    there = _at(value, fault.path)
    # Compare the whole value: the text of a violation may be cut in the middle of a secret.
    shown = seen.hide_in(there)  # type: ignore[arg-type]
    hidden = shown is not there and shown != there  # `is` first, because NaN is not equal to itself
    if path != fault.path or (hidden and fault.got == describe_value(there)):
        return fault._replace(path=path, pointer=pointer_to(path), got=HIDDEN, hint="")
    return fault._replace(got=seen.hide_in_text(fault.got), hint=seen.hide_in_text(fault.hint))


def _at(value: Any, path: Path) -> object:
    # Use the methods of `dict` and `list` themselves: a subclass may override them with arbitrary code.
    for key in path:
        if issubclass(type(value), dict):
            value = dict.get(value, key)
        elif issubclass(type(value), list) and isinstance(key, int):
            value = list.__getitem__(value, key)
        else:
            value = None
    value = plain_scalar(value)
    return value if type(value) in (str, int, float, bool) else None


def reportable(result: Result) -> tuple[Result, Violation | None]:
    """Convert `meta` and the error's `details` to plain JSON; also return the first violation, if any."""
    told: dict[str, Any] = {}
    error = result.error
    if result.meta is not NOTHING:
        told["meta"] = as_dict(result.meta)
    if error is not None and error.details is not NOTHING:
        told["details"] = as_dict(error.details)
    plain: Any
    plain, fault = as_json(told, depth=DEPTH)
    if fault is not None or plain is told:
        return result, fault
    if error is not None:
        error = error._replace(details=plain.get("details", NOTHING))
    return result._replace(meta=plain.get("meta", NOTHING), error=error), None
