"""How a call ends that no layer ended: by an error that escaped, or by cancellation."""

from __future__ import annotations

from toolcrib.core.errors import progress_of
from toolcrib.core.model import NO_USAGE, Call, Descriptor, Outcome, Result, Usage

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


def untried(result: Result) -> Result:
    """The result as that of a call for which nothing was tried."""
    return result._replace(usage=_UNTRIED)


def may_have_acted(tool: Descriptor) -> bool:
    """Whether a call that was given up may have changed something."""
    return not (tool.annotations.read_only or tool.annotations.idempotent)


def asked_to_cancel() -> bool:
    """Whether the caller cancelled its task; otherwise a cancellation came from within the tool."""
    import asyncio  # noqa: PLC0415 -- who meets a cancellation has it already

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def cancelled(call: Call, message: str, error: BaseException | None = None) -> Result:
    """The result of a call that was given up on its way, by an error if that is known."""
    given = progress_of(error)
    acted = given.attempts and given.reached and may_have_acted(call.tool)
    details = {"may_have_acted": True} if acted else {}
    ended = Result.failed(Outcome.CANCELLED, message, details=details)
    return ended._replace(usage=Usage(given.attempts), meta=given.meta)


def cancelled_within(call: Call) -> Result:
    """The result of a call whose tool cancelled itself, without its caller."""
    return cancelled(call, f"`{call.tool.name}` was cancelled from within")


def ended_by(call: Call, error: BaseException) -> Result | None:
    """The result of a call out of which an error escaped; None for what its caller asked for, which goes on.

    That is the cancellation of the caller's own task, and what ends the process.
    """
    if isinstance(error, Exception):
        return bug(call, error)
    import asyncio  # noqa: PLC0415 -- who meets a cancellation has it already

    within = isinstance(error, asyncio.CancelledError) and not asked_to_cancel()
    return cancelled_within(call) if within else None


def bug(call: Call, error: Exception) -> Result:
    """The result of a call out of which an error escaped. Its text may hold anything, so only the log has it."""
    import logging  # noqa: PLC0415 -- a command that meets no bug starts without it

    logging.getLogger("toolcrib").error("a bug in a call of `%s`", call.tool.name, exc_info=error)
    kind = type(error).__name__
    message = f"a bug while calling `{call.tool.name}`: {kind}; the log of `toolcrib` has the trace"
    return Result.failed(Outcome.INTERNAL, message, details={"exception": kind})
