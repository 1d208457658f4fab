"""Around a user's layer: what it returns must be a result that can be passed on; otherwise the layer is named."""

from __future__ import annotations

from typing import Any

from toolcrib.middleware.masking import report_fault
from toolcrib.model import Call, Outcome, Result
from toolcrib.protocols import CallNext, Middleware
from toolcrib.validation import json_fault
from toolcrib.validation.sizes import DEPTH


def checked(middleware: Middleware) -> Middleware:
    """The layer of a user, with a check of what it returns: anything but a sound Result is `internal`."""
    from inspect import isawaitable  # noqa: PLC0415 -- most tools have no layers of a user

    async def user(call: Call, call_next: CallNext) -> Result:
        answer: Any = middleware(call, call_next)
        result = await answer if isawaitable(answer) else answer
        fault = _fault(result, waited=result is not answer)
        if fault:
            return _broken(call, middleware, fault)
        return result  # type: ignore[no-any-return] # `_fault` says so

    return user


def _fault(result: object, *, waited: bool) -> str:
    """What is wrong with what a layer returned, as the rest of a sentence; empty if nothing is."""
    if not waited:
        return f"is no `async` function: it returned {_named(result)}"
    if not isinstance(result, Result):
        forgotten = "; is a `return` missing?" if result is None else ""
        return f"returned {_named(result)} instead of a `Result`{forgotten}"
    fault = report_fault(result) or json_fault(result.value, depth=DEPTH)
    # Only the kind of what is there: this text is read by whoever made the call.
    return f"returned what is no JSON: expected {fault.expected}" if fault is not None else ""


def _named(value: object) -> str:
    return "None" if value is None else f"a `{type(value).__name__}`"


def _broken(call: Call, middleware: Middleware, fault: str) -> Result:
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)
    message = f"the middleware `{name}` {fault}"
    import logging  # noqa: PLC0415 -- as above

    logging.getLogger("toolcrib").error("a bug in a call of `%s`: %s", call.tool.name, message)
    return Result.failed(Outcome.INTERNAL, message, details={"middleware": name})
