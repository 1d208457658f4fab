"""Layer `spans`: one OpenTelemetry span for each call, and the context of the trace that calls pass on.

The names follow the semantic conventions for generative AI and for MCP. Importing this module needs the extra `otel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from toolcrib import __version__
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result, Schema
from toolcrib.core.protocols import CallNext
from toolcrib.core.text import compact
from toolcrib.engine.middleware.call_failures import attempts_of, observed
from toolcrib.engine.middleware.layer import LayerContext, never_waits
from toolcrib.engine.telemetry import BUCKETS, CALL_SPAN
from toolcrib.schema.validation.json_values import DEPTH, is_large
from toolcrib.security.redaction import Redactor, redact

if TYPE_CHECKING:
    from opentelemetry.context import Context

STATUS_CODE: Final = "rpc.response.status_code"
"""Attribute of the code of a JSON-RPC error."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if neither spans nor the context of a trace are configured."""
    telemetry, tool = context.telemetry, context.tool
    if telemetry.trace == "off":
        return None

    if telemetry.trace == "propagation":

        @never_waits
        async def propagation(call: Call) -> Result:
            return await call_next(_carrying(call, _parent_of(call.context.trace)[0]))

        return propagation

    tracer = trace.get_tracer("toolcrib", __version__, telemetry.tracer_provider)
    durations = metrics.get_meter("toolcrib", __version__, telemetry.meter_provider).create_histogram(
        "gen_ai.execute_tool.duration",
        unit="s",
        description="Duration of a tool call, with all its attempts.",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )
    shows = telemetry.arguments or telemetry.results
    name, fixed = f"execute_tool {tool.name}", _attributes_of_tool(tool)
    measured = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}

    @never_waits
    async def spans(call: Call) -> Result:
        parent, links = _parent_of(call.context.trace)
        span = tracer.start_span(name, parent, SpanKind.INTERNAL, {**fixed, **_ids_of(call)}, links)
        recorded = _Recorded(span)
        monotonic = call.context.session.clock.monotonic
        started = monotonic()
        shown = _Shown(context, call) if shows and span.is_recording() else None
        if telemetry.arguments and shown is not None:
            shown.add(span, "gen_ai.tool.call.arguments", call.arguments, tool.input_schema)

        def finished(result: Result) -> Result:
            message = shown.text(result.message) if telemetry.results and shown is not None else ""
            failed = recorded.end(result, message)
            if telemetry.results and shown is not None and not failed:
                shown.add(span, "gen_ai.tool.call.result", result.value, tool.output_schema)
            span.end()
            durations.record(monotonic() - started, {**measured, **failed})
            return result

        within = trace.set_span_in_context(span, parent)
        token, own = contexts.attach(within), CALL_SPAN.set(span)
        try:
            carrying = _carrying(call, within)
            annotated = carrying.context._replace(annotate=recorded.annotate)
            return await observed(call, carrying._replace(context=annotated), call_next, finished)
        finally:
            CALL_SPAN.reset(own)
            contexts.detach(token)

    return spans


class _Recorded:
    """The span of a call, and the code of the JSON-RPC error that it got, if any."""

    __slots__ = ("_code", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self._code = ""

    def annotate(self, attributes: Mapping[str, str | int]) -> None:
        """Add attributes to the span."""
        self.span.set_attributes(attributes)
        self._code = str(attributes.get(STATUS_CODE, ""))

    def end(self, result: Result, message: str) -> Mapping[str, str]:
        """Record how the call ended, with a message that may be shown; returns `error.type` if it failed."""
        span = self.span
        span.set_attributes(
            {"toolcrib.outcome": result.outcome.value, "toolcrib.attempts": attempts_of(result)}
        )
        if result.outcome is Outcome.OK:
            return {}
        # The code of a `tool_error` is the tool's own text, and a message may quote arguments and results.
        if result.error is not None and result.outcome is not Outcome.TOOL_ERROR:
            span.set_attribute("toolcrib.error.code", result.error.code)
        failed = {"error.type": self._code or result.outcome.value}
        span.set_attributes(failed)
        span.set_status(Status(StatusCode.ERROR, message or None))
        return failed


def _attributes_of_tool(tool: Descriptor) -> Mapping[str, str]:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        # In the words of the convention: the model writes the arguments, and its client runs the tool.
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": tool.description,
        "toolcrib.mode": tool.mode or "",
    }
    return {key: value for key, value in given.items() if value}


def _ids_of(call: Call) -> Mapping[str, str]:
    return {
        "gen_ai.tool.call.id": call.context.correlation or call.id,
        "toolcrib.call.id": call.id,
        "toolcrib.session.id": call.context.session.id,
    }


def _parent_of(headers: Mapping[str, str]) -> tuple[Context, tuple[Link, ...]]:
    """The context that the span of a call belongs to, and the links of the span."""
    current = contexts.get_current()
    if not headers:
        return current, ()
    ambient = trace.get_current_span(current)
    given = propagate.extract(headers, current)
    here, there = ambient.get_span_context(), trace.get_current_span(given).get_span_context()
    # The span of the request that brought these headers, such as that of the MCP SDK, is nearer than their sender's.
    if here.trace_id == there.trace_id:
        return trace.set_span_in_context(ambient, given), ()
    return given, (Link(here),) if here.is_valid else ()


def _carrying(call: Call, within: Context) -> Call:
    """The call with the trace headers of a context."""
    headers = dict(call.context.trace)
    propagate.inject(headers, within)
    return call._replace(context=call.context._replace(trace=headers)) if headers else call


class _Shown:
    """Texts of a call for its span, without secrets."""

    __slots__ = ("_given", "_looked_up")

    def __init__(self, context: LayerContext, call: Call) -> None:
        self._looked_up = context.secrets
        # A result may repeat a secret of the arguments.
        self._given = Redactor(call.arguments, call.tool.input_schema)

    def text(self, text: str) -> str:
        """A text without the secrets of the arguments and those that were looked up so far."""
        looked_up = self._looked_up()
        text = self._given.hide_in_text(text)
        return text if looked_up is None else looked_up.hide_in_text(text)

    def add(self, span: Span, key: str, value: JSON, schema: Schema | None) -> None:
        """Add a value to a span as JSON. A large one is left out: masking it would block the event loop."""
        if is_large(value, DEPTH):
            return
        try:
            span.set_attribute(key, self.text(compact(redact(value, schema))))
        except (TypeError, ValueError):  # it is not JSON: the result of the call says so
            return
