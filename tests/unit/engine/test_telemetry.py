"""Spans and log records of calls: how many, what they say and do not say, and whose context they carry."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from datetime import datetime
from textwrap import dedent

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanKind, StatusCode

from http_servers import answering_by, raw_answer
from in_memory import always, fake, mocked, runtime_of
from live_tools import API, calling, live_tool
from reaching import Script, broken, failed, reaching
from spans import RecordedSpans, attributes_of, id_of, parent_of, trace_of, traceparent_of
from toolcrib import ConfigurationError, Outcome, RealClock, Result, Runtime, Telemetry
from toolcrib.engine.middleware.call_log import JSONFormatter

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARY = "canary-7f3d9a51"
ECHO = mocked('{result: "{{ args.text }}"}', inputs="{type: object, properties: {text: {type: string}}}")


@pytest.fixture
def spans():
    return RecordedSpans()


def calls_of(spans, **more):
    return Telemetry(trace="calls", tracer_provider=spans.provider, **more)


async def test_a_call_has_one_span_by_the_conventions(spans):
    more = "description: Says what it is told.\nmode: fake"
    runtime = fake(always(Result.success(7)), more, telemetry=calls_of(spans))
    async with runtime.session(id="s") as session:
        await session.call("tool", {}, correlation="call_1")
    span = spans.one("execute_tool tool")
    assert (span.kind, span.status.status_code, span.parent) == (SpanKind.INTERNAL, StatusCode.UNSET, None)
    assert attributes_of(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tool",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Says what it is told.",
        "gen_ai.tool.call.id": "call_1",
        "toolcrib.mode": "fake",
        "toolcrib.call.id": "s-1",
        "toolcrib.session.id": "s",
        "toolcrib.outcome": "ok",
        "toolcrib.attempts": 1,
    }


async def test_attempts_are_events_of_the_one_span(spans):
    script = Script(failed(503), broken(), Result.success(7))
    await reaching(script, telemetry=calls_of(spans)).call("tool")
    span = spans.one("execute_tool tool")
    assert [event.name for event in span.events] == ["toolcrib.attempt"] * 3
    told = [dict(event.attributes or {}) for event in span.events]
    assert [each["toolcrib.attempt.number"] for each in told] == [1, 2, 3]
    assert [each.get("error.type") for each in told] == ["tool_error", "transport_error", None]
    assert attributes_of(span)["toolcrib.attempts"] == 3


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.OK])
async def test_every_failure_is_an_error_of_its_outcome(outcome, spans):
    runtime = fake(always(Result.failure(outcome, CANARY, code="own_code")), telemetry=calls_of(spans))
    result = await runtime.call("tool")
    span = spans.one("execute_tool tool")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert (
        attributes_of(span)["error.type"] == attributes_of(span)["toolcrib.outcome"] == result.outcome.value
    )
    # The code of a `tool_error` is a text of the tool.
    code = attributes_of(span).get("toolcrib.error.code")
    assert code == (None if result.outcome is Outcome.TOOL_ERROR else "own_code")
    assert CANARY not in spans.text()


async def test_a_cancelled_call_has_a_span_that_ends(spans):
    begun = asyncio.Event()

    async def hang(_call):
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(fake(hang, telemetry=calls_of(spans), clock=RealClock()).call("tool"))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    span = spans.one("execute_tool tool")
    assert attributes_of(span)["error.type"] == "cancelled"
    assert [dict(event.attributes)["toolcrib.outcome"] for event in span.events] == ["cancelled"]


async def test_an_exception_of_a_tool_is_not_in_its_span(spans, caplog):
    async def fail(_call):
        raise ValueError(CANARY)

    assert (await fake(fail, telemetry=calls_of(spans, logs=True)).call("tool")).outcome is Outcome.INTERNAL
    assert attributes_of(spans.one("execute_tool tool"))["error.type"] == "internal"
    assert CANARY not in spans.text()


def test_a_call_that_never_waits_needs_no_event_loop(spans):
    runtime = runtime_of(ECHO, telemetry=calls_of(spans, logs=True))
    result = runtime._engine.default_session.call_at_once(
        "tool", {"text": "hi"}, trace={"traceparent": REMOTE}
    )
    assert result.value == "hi"
    assert traceparent_of(spans.one("execute_tool tool"))[:36] == REMOTE[:36]


# The parent, and the context that goes on.


async def test_the_span_belongs_to_the_current_one(spans):
    runtime = runtime_of(ECHO, telemetry=calls_of(spans))
    with spans.provider.get_tracer("test").start_as_current_span("agent") as agent:
        await runtime.call("tool", {"text": "x"})
    assert parent_of(spans.one("execute_tool tool")) == agent.get_span_context().span_id
    assert spans.one("execute_tool tool").links == ()


async def test_the_span_belongs_to_the_headers_of_the_call_and_links_the_current_one(spans):
    runtime = runtime_of(ECHO, telemetry=calls_of(spans))
    with spans.provider.get_tracer("test").start_as_current_span("request") as here:
        await runtime.session().call("tool", {"text": "x"}, trace={"traceparent": REMOTE})
    span = spans.one("execute_tool tool")
    assert (trace_of(span), parent_of(span)) == (int(REMOTE[3:35], 16), int(REMOTE[36:52], 16))
    assert [link.context.span_id for link in span.links] == [here.get_span_context().span_id]


async def test_headers_that_are_no_context_change_nothing(spans):
    runtime = runtime_of(ECHO, telemetry=calls_of(spans))
    await runtime.session().call("tool", {"text": "x"}, trace={"traceparent": "nonsense"})
    assert spans.one("execute_tool tool").parent is None


async def test_every_attempt_of_a_live_tool_carries_the_context_of_the_span(spans):
    answers = iter([503, 200])

    def answer(_head):
        return raw_answer(next(answers), {"Content-Type": "application/json", "Retry-After": "0"}, b"1")

    text = live_tool(f"url: {API}/x", more="limits: {backoff: {first: 0s}}")
    async with calling(text, answering_by(answer), telemetry=calls_of(spans)) as (tools, server):
        token = context.attach(baggage.set_baggage("tenant", "a b"))
        try:
            assert (await tools.session().call("tool", {}, trace={"tracestate": "a=1"})).value == 1
        finally:
            context.detach(token)
    span = spans.one("execute_tool tool")
    assert {head.header("traceparent") for head in server.requests} == {traceparent_of(span)}
    assert [head.header("baggage") for head in server.requests] == ["tenant=a+b"] * 2
    assert len(span.events) == 2


async def test_propagation_alone_passes_the_current_context_on(spans):
    seen = []

    async def answer(call):
        seen.append(dict(call.context.trace))
        return Result.success(1)

    runtime = fake(answer, telemetry=Telemetry(trace="propagation", tracer_provider=spans.provider))
    with spans.provider.get_tracer("test").start_as_current_span("agent"):
        await runtime.call("tool")
    await runtime.call("tool")
    assert seen == [{"traceparent": traceparent_of(spans.one("agent"))}, {}]
    assert len(spans.all()) == 1


async def test_what_a_tool_traces_is_within_the_span(spans):
    async def answer(_call):
        with spans.provider.get_tracer("test").start_as_current_span("query"):
            return Result.success(1)

    await fake(answer, telemetry=calls_of(spans)).call("tool")
    assert parent_of(spans.one("query")) == id_of(spans.one("execute_tool tool"))
    assert not trace.get_current_span().get_span_context().is_valid


async def test_middleware_with_a_span_of_its_own_takes_no_attempts(spans):
    async def traced(call, call_next):
        with spans.provider.get_tracer("test").start_as_current_span("middleware"):
            return await call_next(call)

    await fake(always(Result.success(1)), middleware=[traced], telemetry=calls_of(spans)).call("tool")
    assert len(spans.one("execute_tool tool").events) == 1
    assert spans.one("middleware").events == ()


async def test_the_duration_is_recorded_by_tool_and_kind_of_failure(spans):
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    script = Script(failed(404, retryable=False))
    telemetry = calls_of(spans, meter_provider=meters)
    await reaching(script, telemetry=telemetry).call("tool")
    data = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert (metric.name, metric.unit, point.count) == ("gen_ai.execute_tool.duration", "s", 1)
    assert dict(point.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tool",
        "error.type": "tool_error",
    }
    assert point.explicit_bounds[0] == 0.01


# Values.

SECRET_TOOL = mocked(
    '{result: {echo: "{{ args.pin }}", token: abc-token, text: "{{ args.text }}"}}',
    inputs="{type: object, properties: {pin: {type: string, writeOnly: true}, text: {type: string}}}",
)


async def test_spans_have_no_values_unless_asked(spans):
    runtime = runtime_of(SECRET_TOOL, telemetry=calls_of(spans))
    await runtime.call("tool", {"pin": CANARY, "text": CANARY})
    await runtime.call("tool", {"pin": 1, "text": {"a": CANARY}})
    assert len(spans.all()) == 2
    assert CANARY not in spans.text()


async def test_arguments_and_results_on_demand_have_no_secrets(spans, monkeypatch):
    monkeypatch.setenv("API_KEY", CANARY)
    runtime = runtime_of(SECRET_TOOL, telemetry=calls_of(spans, arguments=True, results=True))
    assert runtime._engine.world.secrets.fill("${API_KEY}") == CANARY
    await runtime.call("tool", {"pin": "pin-number-9", "text": f"say {CANARY}"})
    span = spans.one("execute_tool tool")
    assert attributes_of(span)["gen_ai.tool.call.arguments"] == '{"pin":"***","text":"say ***"}'
    assert attributes_of(span)["gen_ai.tool.call.result"] == '{"echo":"***","token":"***","text":"say ***"}'
    assert "pin-number-9" not in spans.text()
    assert CANARY not in spans.text()


@pytest.mark.parametrize("arguments", [{"text": float("nan")}, {"text": object()}, {"text": "x" * 300_000}])
async def test_arguments_that_are_not_json_or_large_are_left_out(arguments, spans):
    runtime = runtime_of(ECHO, telemetry=calls_of(spans, arguments=True))
    await runtime.call("tool", arguments)
    assert "gen_ai.tool.call.arguments" not in attributes_of(spans.one("execute_tool tool"))


async def test_the_message_of_a_failure_belongs_to_the_results(spans):
    runtime = fake(
        always(Result.failure(Outcome.TOOL_ERROR, "sold out")), telemetry=calls_of(spans, results=True)
    )
    await runtime.call("tool")
    assert spans.one("execute_tool tool").status.description == "sold out"


# Log records.


async def test_a_record_has_the_ids_of_the_call_and_of_its_span(spans, caplog):
    caplog.set_level(logging.INFO, "toolcrib.calls")
    runtime = fake(
        always(Result.failure(Outcome.TIMEOUT, CANARY, code="idle_timeout")),
        telemetry=calls_of(spans, logs=True),
    )
    session = runtime.session(id="s", user="ada", caller="agent", correlation="c-1")
    await session.call("tool", {"text": CANARY})
    (record,) = (each for each in caplog.records if each.name == "toolcrib.calls")
    assert record.getMessage().startswith("call s-1 of `tool` ended timeout after ")
    assert record.levelno == logging.WARNING
    span = spans.one("execute_tool tool")
    blank = logging.LogRecord("", 0, "", 0, "", None, None).__dict__
    fields = {key: value for key, value in record.__dict__.items() if key not in {*blank, "message"}}
    assert 0 < fields.pop("duration") < 60
    assert fields == {
        "tool": "tool",
        "mode": "fake",
        "call_id": "s-1",
        "session_id": "s",
        "correlation": "c-1",
        "caller": "agent",
        "user": "ada",
        "trace_id": f"{trace_of(span):032x}",
        "span_id": f"{id_of(span):016x}",
        "outcome": "timeout",
        "error_code": "idle_timeout",
        "attempts": 1,
    }


async def test_logs_need_no_spans_and_have_no_values(caplog):
    caplog.set_level(logging.DEBUG)
    runtime = runtime_of(SECRET_TOOL, telemetry=Telemetry(logs=True))
    await runtime.call("tool", {"pin": CANARY, "text": CANARY})
    await runtime.call("tool", {"pin": 7, "text": [CANARY]})
    await fake(
        always(Result.failure(Outcome.TOOL_ERROR, CANARY, code=CANARY)), telemetry=Telemetry(logs=True)
    ).call("tool")
    told = [each for each in caplog.records if each.name == "toolcrib.calls"]
    assert [each.outcome for each in told] == ["ok", "invalid_arguments", "tool_error"]
    assert [each.levelname for each in told] == ["INFO", "WARNING", "WARNING"]
    assert not [each for each in told if CANARY in str(each.__dict__)]


async def test_a_record_is_one_line_of_json(caplog):
    caplog.set_level(logging.INFO, "toolcrib.calls")
    await runtime_of(ECHO, telemetry=Telemetry(logs=True)).call("tool", {"text": "x"})
    line = json.loads(JSONFormatter().format(caplog.records[0]))
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line.pop("message").startswith("call main-1 of `tool` ended ok")
    assert line.pop("duration") >= 0
    assert line == {
        "level": "info",
        "tool": "tool",
        "mode": "mock",
        "call_id": "main-1",
        "session_id": "main",
        "outcome": "ok",
        "attempts": 1,
    }


# Configuration.


def test_without_it_nothing_is_in_the_chain():
    runtime = runtime_of(ECHO)
    chain = runtime._engine.chain_for(runtime.registry["tool"])
    assert {"spans", "attempts", "call_log"}.isdisjoint(chain.layers)


def test_without_it_opentelemetry_is_not_imported(tmp_path):
    (tmp_path / "a.yaml").write_text(ECHO)
    program = """
        import sys, toolcrib
        with toolcrib.Runtime.open(sys.argv[1], index=False) as tools:
            assert tools.call_sync("tool", {"text": "x"}).value == "x"
        sys.exit("opentelemetry" in sys.modules)
    """
    subprocess.run([sys.executable, "-c", dedent(program), str(tmp_path)], check=True, timeout=60)


@pytest.fixture
def no_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)


@pytest.mark.parametrize("kind", ["calls", "propagation"])
def test_a_program_that_lacks_the_extra_learns_its_name(kind, no_extra):
    with pytest.raises(ConfigurationError, match="extra `otel`") as raised:
        runtime_of(ECHO, telemetry=Telemetry(trace=kind))
    assert (raised.value.code, raised.value.hint) == ("missing_extra", "pip install 'toolcrib[otel]'")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigurationError, match="did you mean `calls`"):
        runtime_of(ECHO, telemetry=Telemetry(trace="call"))


def project(folder, text):
    (folder / "toolcrib.yaml").write_text(dedent(text))
    (folder / "descriptors").mkdir()
    (folder / "descriptors" / "a.tool.yaml").write_text(ECHO)
    return folder


def test_calls_of_a_project_that_lacks_the_extra_say_so(tmp_path, no_extra):
    folder = project(tmp_path, "project: p\ntelemetry: {trace: calls}\n")
    with Runtime.open(folder, index=False) as tools:
        assert [*tools.registry] == ["tool"]
        result = tools.call_sync("tool", {"text": "x"})
        assert result.outcome is Outcome.UNAVAILABLE
        assert "needs the extra `otel`" in result.message
        assert "pip install 'toolcrib[otel]'" in result.message


async def test_a_project_and_its_profiles_configure_it_and_a_reload_applies_it(tmp_path, caplog):
    caplog.set_level(logging.INFO, "toolcrib.calls")
    text = """
        project: p
        telemetry: {trace: calls, logs: true}
        profiles:
          base: {telemetry: {arguments: true}}
          quiet: {extends: base, telemetry: {logs: false}}
    """
    folder = project(tmp_path, text)
    async with Runtime.open(folder) as tools:
        assert tools._engine.telemetry == Telemetry(trace="calls", logs=True)
        await tools.call("tool", {"text": "x"})
        assert len(caplog.records) == 1
        (folder / "toolcrib.yaml").write_text("project: p\n")
        await tools.reload()
        await tools.call("tool", {"text": "x"})
        assert len(caplog.records) == 1
    (folder / "toolcrib.yaml").write_text(dedent(text))
    quiet = Runtime.open(folder, profile="quiet")
    assert quiet._engine.telemetry == Telemetry(trace="calls", arguments=True)
    own = Runtime.open(folder, telemetry=Telemetry())
    assert own._engine.telemetry == Telemetry()
