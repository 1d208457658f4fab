"""Spans that tests read with the in-memory exporter of OpenTelemetry.

spans = RecordedSpans()
runtime = runtime_of(..., telemetry=Telemetry(trace="calls", tracer_provider=spans.provider))
...
spans.one("execute_tool tool")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class RecordedSpans:
    """The spans that a provider has recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.processor = SimpleSpanProcessor(self.exporter)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)

    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def text(self) -> str:
        """Everything that the spans hold."""
        return "\n".join(span.to_json() for span in self.all())


class RecordedDurations:
    """The histograms that a provider has recorded."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def points(self, name: str) -> list[dict[str, Any]]:
        """The attributes of each point of a metric, each with its `count`."""
        data = self.reader.get_metrics_data()
        return [
            {**point.attributes, "count": point.count}
            for resource in (() if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name and metric.unit == "s"
            for point in metric.data.data_points
        ]


class _SwitchedTracer(trace.Tracer):
    """Records for the test that reads spans now, and nothing while no test does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle = trace.NoOpTracer()

    @property
    def _current(self) -> trace.Tracer:
        spans = _SwitchedProvider.reader
        return self._idle if spans is None else spans.provider.get_tracer(self._name)

    def start_span(self, *given: Any, **options: Any) -> trace.Span:
        return self._current.start_span(*given, **options)

    def start_as_current_span(self, *given: Any, **options: Any) -> Any:
        return self._current.start_as_current_span(*given, **options)


class _SwitchedProvider(trace.TracerProvider):
    reader: RecordedSpans | None = None

    def get_tracer(self, name: str, *_given: Any, **_options: Any) -> trace.Tracer:
        return _SwitchedTracer(name)


@contextmanager
def recorded_globally() -> Iterator[RecordedSpans]:
    """The spans of the global provider, which the MCP SDK uses. A process can set it only once."""
    if not isinstance(trace.get_tracer_provider(), _SwitchedProvider):
        trace.set_tracer_provider(_SwitchedProvider())
    spans = _SwitchedProvider.reader = RecordedSpans()
    try:
        yield spans
    finally:
        _SwitchedProvider.reader = None


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def traceparent_of(span: ReadableSpan) -> str:
    """The header of a span (W3C Trace Context)."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
