"""Around a user's layer: what it returns must be a result that can be passed on; otherwise the layer is named."""

from __future__ import annotations

from typing import Any

from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.protocols import CallNext, Middleware
from toolcrib.engine.middleware.fault_redaction import as_reported
from toolcrib.engine.middleware.layer import BuildLayer, LayerContext, may_wait, never_waits
from toolcrib.schema.validation import as_json
from toolcrib.schema.validation.json_values import DEPTH


def layer_of(middleware: Middleware) -> BuildLayer:
    """Builds the layer of a user, with a check of what it returns: anything but a sound Result is `internal`."""
    from inspect import isawaitable  # noqa: PLC0415 -- most tools have no layers of a user

    def layer(_context: LayerContext, call_next: CallNext) -> CallNext:
        async def user(call: Call) -> Result:
            answer: Any = middleware(call, call_next)
            result = await answer if isawaitable(answer) else answer
            if result is answer:
                return _broken(call, middleware, f"is no `async` function: it returned {_named(result)}")
            if not isinstance(result, Result):
                forgotten = "; is a `return` missing?" if result is None else ""
                return _broken(
                    call, middleware, f"returned {_named(result)} instead of a `Result`{forgotten}"
                )
            result, fault = as_reported(result)
            if fault is None:
                value, fault = as_json(result.value, depth=DEPTH)
            if (
                fault is not None
            ):  # only the kind of what is there: this text is read by whoever made the call
                return _broken(call, middleware, f"returned what is no JSON: expected {fault.expected}")
            return result if value is result.value else result._replace(value=value)

        return user if may_wait(middleware) else never_waits(user)

    return layer


def _named(value: object) -> str:
    return "None" if value is None else f"a `{type(value).__name__}`"


def _broken(call: Call, middleware: Middleware, fault: str) -> Result:
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)
    message = f"the middleware `{name}` {fault}"
    import logging  # noqa: PLC0415 -- as above

    logging.getLogger("toolcrib").error("a bug in a call of `%s`: %s", call.tool.name, message)
    return Result.failed(Outcome.INTERNAL, message, details={"middleware": name})
