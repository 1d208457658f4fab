"""What is recorded of calls: OpenTelemetry spans (extra `otel`) and log records.

The layers `spans`, `attempts` and `call_log` record it. Without this configuration, they are in no chain and OpenTelemetry
is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolcrib import __version__
from toolcrib.core.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from toolcrib.servers.environment import RecordDuration


class Telemetry(NamedTuple):
    """What is recorded of calls, as `telemetry` of a project. Used as `Runtime.open(..., telemetry=Telemetry(trace="calls"))`.

    Attributes:
        trace: `calls`: one OpenTelemetry span for each call, whose context is passed on. `propagation`: the current
            context is passed on, without spans. `off`: only trace headers that the caller gives are passed on.
        arguments: Whether spans have the arguments. Secrets are masked.
        results: Whether spans have the results, and the messages of failures. Secrets are masked.
        logs: Whether the end of each call is logged to the logger `toolcrib.calls`, without arguments and results.
        tracer_provider: Creates the spans (default: the global one).
        meter_provider: Records the durations (default: the global one).
    """

    trace: Literal["calls", "propagation", "off"] = "off"
    arguments: bool = False
    results: bool = False
    logs: bool = False
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None

    def check(self) -> None:
        """Check a configuration that a program wrote.

        Raises:
            ConfigurationError: `trace` is unknown, or needs the extra `otel`, which is not installed.
        """
        if self.trace not in _KINDS:
            raise ConfigurationError(
                f"unknown `trace` of `telemetry`: `{self.trace}`",
                code="unknown_trace",
                hint=did_you_mean(str(self.trace), _KINDS) or "use `calls`, `propagation` or `off`",
            )
        if self.lacks_extra:
            raise ConfigurationError(_LACK, code="missing_extra", hint=_INSTALL)

    @property
    def lacks_extra(self) -> bool:
        """Whether OpenTelemetry is needed and not installed."""
        if self.trace == "off":
            return False
        try:
            import opentelemetry.trace  # noqa: F401, PLC0415 -- an extra
        except ImportError:
            return True
        return False


_KINDS = ("calls", "propagation", "off")

NO_TELEMETRY = Telemetry()
"""Nothing is recorded."""


_LACK = "`telemetry` with `trace` needs the extra `otel`, which is not installed"
_INSTALL = "pip install 'toolcrib[otel]'"

MISSING = f"{_LACK}; {_INSTALL}"
"""Why no tool can run where the configured telemetry needs the extra, and how to fix it."""


CALL_SPAN: ContextVar[Span | None] = ContextVar("the span of a call", default=None)
"""The span of the call that runs here. The current span may be another one, which middleware has opened."""


BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds of the histograms of durations in seconds, those of the conventions for MCP."""

_MCP_DURATIONS: Final = {
    "mcp.client.operation.duration": "Duration of an MCP request or notification, as its sender sees it.",
    "mcp.server.operation.duration": "Duration of an MCP request or notification, as its receiver sees it.",
    "mcp.client.session.duration": "Duration of an MCP session, as the client sees it.",
    "mcp.server.session.duration": "Duration of an MCP session, as the server sees it.",
}


def mcp_durations(telemetry: Telemetry) -> RecordDuration:
    """What records the durations of MCP, by the name of the metric; it does nothing unless `trace` is `calls`."""
    from toolcrib.servers.environment import record_nothing  # noqa: PLC0415 -- slow to import, and for servers only

    if telemetry.trace != "calls" or telemetry.lacks_extra:
        return record_nothing
    from opentelemetry import metrics  # noqa: PLC0415 -- an extra

    meter = metrics.get_meter("toolcrib", __version__, telemetry.meter_provider)
    histograms = {
        name: meter.create_histogram(
            name, unit="s", description=about, explicit_bucket_boundaries_advisory=BUCKETS
        )
        for name, about in _MCP_DURATIONS.items()
    }

    def record(name: str, seconds: float, attributes: Mapping[str, str | int]) -> None:
        histograms[name].record(seconds, attributes)

    return record


def telemetry_of(said: Mapping[str, Any]) -> Telemetry:
    """The telemetry that a project or profile configures."""
    return Telemetry(**said) if said else NO_TELEMETRY


def describe_request(attributes: Mapping[str, str | int]) -> None:
    """Add attributes to the current span, which belongs to the request that a client sent."""
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 -- an extra

    get_current_span().set_attributes(attributes)
