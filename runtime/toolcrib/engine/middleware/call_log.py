"""Layer `call_log`: one log record for each call, with IDs and without arguments, results and messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from logging import INFO, WARNING, Formatter, LogRecord, getLogger
from typing import Any, Final

from toolcrib.core.clock import format_duration
from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import attempts_of, observed
from toolcrib.engine.middleware.layer import LayerContext, never_waits

LOGGER: Final = "toolcrib.calls"
"""Name of the logger."""

_log = getLogger(LOGGER)
_ORDINARY: Final = frozenset({*vars(LogRecord("", 0, "", 0, "", None, None)), "message", "taskName"})


class JSONFormatter(Formatter):
    """Formats a record as a JSON object on one line: `time`, `level`, `message`, and the fields of the record."""

    def format(self, record: LogRecord) -> str:
        """The text of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        fields = {key: value for key, value in vars(record).items() if key not in _ORDINARY}
        return json.dumps({**told, **fields})


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if calls are not logged."""
    if not context.telemetry.logs:
        return None

    @never_waits
    async def call_log(call: Call) -> Result:
        monotonic = call.context.session.clock.monotonic
        started = monotonic()

        def finished(result: Result) -> Result:
            level = INFO if result.outcome is Outcome.OK else WARNING
            if _log.isEnabledFor(level):
                duration = monotonic() - started
                _log.log(
                    level,
                    "call %s of `%s` ended %s after %s",
                    call.id,
                    call.tool.name,
                    result.outcome.value,
                    format_duration(round(duration, 3)),
                    extra=_fields_of(call, result, duration),
                )
            return result

        return await observed(call, call, call_next, finished)

    return call_log


def _fields_of(call: Call, result: Result, duration: float) -> dict[str, Any]:
    context = call.context
    # `traceparent` is `version-trace-span-flags` (W3C Trace Context); the layer `spans` has set that of the call.
    _version, trace_id, span_id, *_flags = [*context.trace.get("traceparent", "").split("-"), "", "", ""][:4]
    # The code of a `tool_error` is the tool's own text.
    code = "" if result.error is None or result.outcome is Outcome.TOOL_ERROR else result.error.code
    fields: dict[str, Any] = {
        "tool": call.tool.name,
        "mode": call.tool.mode,
        "call_id": call.id,
        "session_id": context.session.id,
        "correlation": context.correlation,
        "caller": context.caller,
        "user": context.user,
        "trace_id": trace_id,
        "span_id": span_id,
        "outcome": result.outcome.value,
        "error_code": code,
        "attempts": attempts_of(result),
        "duration": round(duration, 6),
    }
    return {key: value for key, value in fields.items() if value not in {"", None}}
