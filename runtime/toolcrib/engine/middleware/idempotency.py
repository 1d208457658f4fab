"""Layer `idempotency`: a repeated call with the same idempotency key gets the result of the first one.

The layer is inside `access`, so that a stored result reaches only those who may make the call, and outside `limits` and
`budget`, so that a repetition spends nothing.
"""

from __future__ import annotations

import asyncio

from toolcrib.core.call_progress import record_progress
from toolcrib.core.clock import format_duration
from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.call_journal import unavailable
from toolcrib.engine.idempotency_keys import IdempotencyKeys, MemoryKeys, Running
from toolcrib.engine.middleware.call_failures import cancelled_by_caller, result_of_error, without_attempts
from toolcrib.engine.middleware.layer import LayerContext, never_waits
from toolcrib.security.journal import UnusableJournal

_FIRST_LOOK = 0.005
_SLOWEST_LOOK = 0.25
"""Seconds between two looks at a call that another process may be making, at first and at most."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """Build the layer of a tool."""
    tool, journal = context.tool, context.journal
    own: float | None = getattr(context.bound, "timeout", None)
    seconds = tool.timeout if own is None else own

    # Declared although a call with a key may wait: whoever calls without an event loop passes none. A coroutine function,
    # because the layer `deadline` tells others no deadline.
    @never_waits
    async def idempotency(call: Call) -> Result:
        if not call.context.idempotency_key:
            return await call_next(call)
        keys: IdempotencyKeys = (
            call.context.session.slot("idempotency keys", MemoryKeys) if journal is None else journal
        )
        try:
            found = await _claimed(call, keys, seconds)
        except UnusableJournal as error:
            return unavailable(call, error)
        if found is not None:
            return found
        try:
            result = await call_next(call)
        # BaseException: the call may have acted before it was cancelled.
        except BaseException as error:
            failed = result_of_error(call, error)
            keys.release(call, cancelled_by_caller(call) if failed is None else failed)
            raise
        keys.release(call, result)
        return result

    return idempotency


async def _claimed(call: Call, keys: IdempotencyKeys, seconds: float) -> Result | None:
    """Claim the key of a call. None: the call must be made; otherwise its result."""
    clock = call.context.session.clock
    deadline = clock.monotonic() + seconds if call.deadline is None else call.deadline
    delay = _FIRST_LOOK
    try:
        while isinstance(found := await keys.claim(call), Running):
            if clock.monotonic() + delay >= deadline:
                return _late(call, seconds)
            await clock.sleep(delay)
            delay = min(2 * delay, _SLOWEST_LOOK)
    except asyncio.CancelledError:
        record_progress(call.id, attempts=0)
        raise
    return found


def _late(call: Call, seconds: float) -> Result:
    message = (
        f"`{call.tool.name}` was not called: the earlier call with its idempotency key did not end within "
        f"{format_duration(seconds)}"
    )
    return without_attempts(Result.failure(Outcome.TIMEOUT, message, retryable=True))
