"""How a call ends that no layer ended, by an error or by cancellation, and what a report of a failure may show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.core.errors import progress_of
from toolcrib.core.model import NO_USAGE, NOTHING, Call, Descriptor, Outcome, Result, Usage
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import Path
from toolcrib.schema.validation import Validator, Violation, as_dict, as_json
from toolcrib.schema.validation.json_values import DEPTH
from toolcrib.schema.validation.violations import describe_value, plain_scalar
from toolcrib.security.redaction import HIDDEN, Redactor

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
"""Outcomes of calls that reached no executor."""


def attempts_of(result: Result) -> int:
    """How often the runtime tried: what a layer counted, else once or not at all."""
    if result.usage is not NO_USAGE:
        return result.usage.attempts
    # Most are `ok`, and an outcome is slow to look up.
    return 1 if result.outcome is _OK or result.outcome not in BEFORE_ANY_ATTEMPT else 0


_UNTRIED = Usage(0, 0.0)
"""Counted, and not `NO_USAGE`, which says that nobody counted."""


def without_attempts(result: Result) -> Result:
    """The result as that of a call for which nothing was tried."""
    return result._replace(usage=_UNTRIED)


def may_have_acted(tool: Descriptor) -> bool:
    """Whether a call that was given up may have changed something."""
    return not (tool.annotations.read_only or tool.annotations.idempotent)


def is_cancelled_by_caller() -> bool:
    """Whether the caller cancelled its task; otherwise a cancellation came from within the tool."""
    import asyncio  # noqa: PLC0415 -- who meets a cancellation has it already

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def cancelled_result(call: Call, message: str, error: BaseException | None = None) -> Result:
    """The result of a call that was given up on its way, by an error if that is known."""
    given = progress_of(error)
    acted = given.attempts and given.reached and may_have_acted(call.tool)
    details = {"may_have_acted": True} if acted else {}
    ended = Result.failed(Outcome.CANCELLED, message, details=details)
    return ended._replace(usage=Usage(given.attempts), meta=given.meta)


def cancelled_by_tool(call: Call) -> Result:
    """The result of a call whose tool cancelled itself, without its caller."""
    return cancelled_result(call, f"`{call.tool.name}` cancelled itself")


def result_of_error(call: Call, error: BaseException) -> Result | None:
    """The result of a call out of which an error escaped; None for what its caller asked for, which goes on.

    That is the cancellation of the caller's own task, and what ends the process.
    """
    if isinstance(error, Exception):
        return internal_error(call, error)
    import asyncio  # noqa: PLC0415 -- who meets a cancellation has it already

    within = isinstance(error, asyncio.CancelledError) and not is_cancelled_by_caller()
    return cancelled_by_tool(call) if within else None


def internal_error(call: Call, error: Exception) -> Result:
    """The result of a call out of which an error escaped. Its text may hold anything, so only the log has it."""
    import logging  # noqa: PLC0415 -- a command that meets no bug starts without it

    logging.getLogger("toolcrib").error("a bug in a call of `%s`", call.tool.name, exc_info=error)
    kind = type(error).__name__
    message = f"a bug while calling `{call.tool.name}`: {kind}; the traceback is in the `toolcrib` log"
    return Result.failed(Outcome.INTERNAL, message, details={"exception": kind})


def mask_violation(fault: Violation, validator: Validator) -> Violation:
    """The fault of a value that is no JSON, without what stands there if the place is secret."""
    return fault._replace(got=HIDDEN) if validator.secrets.hides(fault.path, ...) else fault


def hide_secrets(seen: Redactor, faults: Sequence[Violation], value: object) -> list[Violation]:
    """The faults of a value without the secrets that were seen before, e.g. in the arguments of the call."""
    return [_without(seen, fault, value) for fault in faults]


def _without(seen: Redactor, fault: Violation, value: object) -> Violation:
    path = tuple(seen.hide_in_text(key) if isinstance(key, str) else key for key in fault.path)
    there = _at(value, fault.path)
    # What is there is judged whole: the text of a fault may be shortened within the secret.
    shown = seen.hide_in(there)  # type: ignore[arg-type]
    hidden = shown is not there and shown != there  # NaN is not equal to itself
    if path != fault.path or (hidden and fault.got == describe_value(there)):
        return fault._replace(path=path, pointer=pointer_to(path), got=HIDDEN, hint="")
    return fault._replace(got=seen.hide_in_text(fault.got), hint=seen.hide_in_text(fault.hint))


def _at(value: Any, path: Path) -> object:
    for key in path:  # with the methods of `dict` and `list`: those of a subclass may do anything
        if issubclass(type(value), dict):
            value = dict.get(value, key)
        elif issubclass(type(value), list) and isinstance(key, int):
            value = list.__getitem__(value, key)
        else:
            value = None
    value = plain_scalar(value)
    return value if type(value) in (str, int, float, bool) else None


def reportable(result: Result) -> tuple[Result, Violation | None]:
    """The result with plain JSON as `meta` and as `details` of its error, and what keeps them from being JSON."""
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
