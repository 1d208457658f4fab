"""Every outcome, reached through a runtime; what stands at its doors; how big a change it may be."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from in_memory import always, fake, mocked, runtime_of
from toolcrib import (
    Content,
    DocumentError,
    Executors,
    Outcome,
    Problem,
    Result,
    Runtime,
    parse_registry,
)
from toolcrib.core import errors

DEEP = 70


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


async def cancelled_from_within(_call):
    raise asyncio.CancelledError


async def broken(_call):
    return 1 / 0


NO_LAYER_YET = (
    Outcome.DENIED,
    Outcome.NEEDS_APPROVAL,
    Outcome.OVERLOADED,
    Outcome.LIMIT_EXCEEDED,
    Outcome.TRANSPORT_ERROR,
    Outcome.UNKNOWN_OUTCOME,
)

WAYS = {
    Outcome.OK: lambda: runtime_of(mocked("result: 1")),
    Outcome.TOOL_ERROR: lambda: runtime_of(mocked("error: no such city")),
    Outcome.INVALID_ARGUMENTS: lambda: runtime_of(mocked("result: 1", inputs="{required: [city]}")),
    Outcome.INVALID_RESULT: lambda: runtime_of(mocked('result: "{{ 1 + call }}"', output="{type: string}")),
    Outcome.NOT_FOUND: lambda: runtime_of("name: other\nmock: {result: 1}\n"),
    Outcome.UNAVAILABLE: lambda: runtime_of("name: tool\ninput_schema: {}\n"),
    Outcome.TIMEOUT: lambda: runtime_of(mocked("result: 1\nlatency: 2s", more="timeout: 1s")),
    Outcome.CANCELLED: lambda: fake(cancelled_from_within),
    Outcome.UNMATCHED_MOCK: lambda: runtime_of(mocked("rules: [{when: {call: 2}, reply: {result: 1}}]")),
    Outcome.INTERNAL: lambda: fake(broken),
    **{
        outcome: lambda outcome=outcome: fake(always(Result.failure(outcome, "no")))
        for outcome in NO_LAYER_YET
    },
}


def call(runtime, arguments=None):
    with runtime as tools:
        return tools.call_sync("tool", arguments)


def test_there_is_a_way_to_every_outcome():
    assert set(WAYS) == set(Outcome)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_call_ends_in_a_result_and_the_result_raises_its_error(outcome):
    result = call(WAYS[outcome]())
    assert result.outcome is outcome
    if outcome is Outcome.OK:
        assert result.raise_for_outcome() is result
        assert (result.error, result.message) == (None, "")
        return
    assert result.value is None
    assert result.message == result.error.message != ""
    with pytest.raises(errors.error_for(outcome)) as raised:
        result.raise_for_outcome()
    assert raised.value.result is result


@pytest.mark.parametrize(
    ("outcome", "attempts"), [(outcome, 0 if outcome.value in {
        "not_found", "unavailable", "invalid_arguments", "denied", "needs_approval"
    } else 1) for outcome in Outcome]
)  # fmt: skip
def test_calls_that_reach_no_executor_cost_no_attempt(outcome, attempts):
    assert call(WAYS[outcome]()).usage.attempts == attempts


# Both doors: what is no JSON goes neither in nor out.

NO_JSON = {
    "nan": math.nan,
    "infinity": -math.inf,
    "lone surrogate": "half \ud83d",
    "lone surrogate in a key": {"\udc00": 1},
    "number as key": {1: 1},
    "tuple": (1,),
    "bytes": b"x",
    "digits": 10**4301,
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_refused_as_an_argument(value):
    async def reached(_call):
        raise AssertionError("it went in")

    result = call(fake(reached), {"inside": [value]})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert "/inside/0" in result.message
    assert result.message.encode()


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("rule", ["error", "warn", "pass"])
def test_what_is_no_json_is_refused_as_a_result(value, rule):
    result = call(fake(always(Result.success({"inside": [value]})), f"on_invalid_result: {rule}"))
    assert result.outcome is Outcome.INVALID_RESULT
    assert "is not valid JSON:\n/inside/0" in result.message
    assert (result.value, result.raw_value) == (None, None)
    assert result.message.encode()


def test_absurd_depth_is_refused_at_both_doors():
    assert call(fake(always(Result.success())), {"deep": nested(63)}).outcome is Outcome.OK
    assert call(fake(always(Result.success())), {"deep": nested(64)}).outcome is Outcome.INVALID_ARGUMENTS
    assert (
        call(fake(always(Result.success())), {"deep": nested(100_000)}).outcome is Outcome.INVALID_ARGUMENTS
    )
    assert call(fake(always(Result.success(nested(100))))).outcome is Outcome.OK
    assert call(fake(always(Result.success(nested(101))))).outcome is Outcome.INVALID_RESULT
    assert call(fake(always(Result.success(nested(100_000))))).outcome is Outcome.INVALID_RESULT


def test_parts_that_cannot_be_written_as_json_are_refused():
    result = call(fake(always(Result.success(1, content=(Content("text", text="half \ud83d"),)))))
    assert result.outcome is Outcome.INVALID_RESULT
    assert "/content/0/text: expected text without lone surrogates" in result.message
    assert (result.content, result.raw_value) == ((), 1)


def test_good_parts_pass():
    part = Content("image", data="aGk=", mime_type="image/png")
    assert call(fake(always(Result.success(1, content=(part,))))).content == (part,)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**64, 10**40])
def test_big_integers_stay_exact_both_ways(number):
    runtime = runtime_of(
        mocked(
            'result: {n: "{{ args.n }}", more: "{{ args.n + 1 }}"}',
            inputs="{properties: {n: {type: integer}}}",
        )
    )
    assert call(runtime, {"n": number}).value == {"n": number, "more": number + 1}


# Secrets.

LOGIN = "{properties: {user: {type: string}, password: {type: string, maxLength: 5}}, required: [user]}"


@pytest.mark.parametrize("password", ["hunter2", "hun\ud800ter2", ["hunter2"], {"hunter2": 1}])
def test_no_secret_is_told_when_arguments_are_refused(password):
    result = call(runtime_of(mocked("result: 1", inputs=LOGIN)), {"user": "ada", "password": password})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert "/password" in result.message
    assert "***" in result.message
    assert "ter2" not in str(result)


def test_no_secret_is_told_when_a_result_is_refused():
    answer = Result.success({"token": "hun\ud800ter2"})
    told = call(fake(always(answer)))
    assert told.outcome is Outcome.INVALID_RESULT
    assert "/token: expected text without lone surrogates, got ***" in told.message


TOKENS = "{properties: {tok: {x-secret: true}, pin: {x-secret: true}}}"


@pytest.mark.parametrize("policy", ["error", "warn"])
@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ("{id: '{{ args.tok }}'}", "{properties: {id: {type: integer}}}"),
        ("{id: 'so {{ args.tok }}!'}", "{properties: {id: {maxLength: 3}}}"),
        ("{id: '{{ args.pin }}'}", "{properties: {id: {type: string}}}"),
        ("'{{ {args.tok: 1} }}'", "{additionalProperties: false}"),
        ("'{{ {args.tok: 1} }}'", "{propertyNames: {maxLength: 5}}"),
    ],
)
def test_what_came_as_a_secret_argument_is_not_told_of_a_refused_result(answer, output, policy):
    text = mocked(f"result: {answer}", inputs=TOKENS, output=output, more=f"on_invalid_result: {policy}")
    result = call(runtime_of(text), {"tok": "SEKRIT" * 20, "pin": 4711})
    told = str((result.message, result.error, result.meta))
    assert "***" in told
    assert "SEKRIT" not in told
    assert "4711" not in told


@pytest.mark.parametrize(
    "answer",
    [
        Result.success(["SEKRIT\ud800"]),
        Result.success({"SEKRIT\ud800": 1}),
        Result.success([{"SEKRIT": {1}}]),
        Result.success(1, content=(Content("text", text="SEKRIT\ud800"),)),
    ],
)
def test_what_came_as_a_secret_argument_is_not_told_of_a_result_that_is_no_json(answer):
    result = call(fake(always(answer), f"input_schema: {TOKENS}"), {"tok": "SEKRIT"})
    assert result.outcome is Outcome.INVALID_RESULT
    assert "SEKRIT" not in str((result.message, result.error))


@pytest.mark.parametrize(
    ("answer", "pointer"),
    [
        (Result.success(1, meta={"seen": {1}}), "/meta/seen"),
        (Result.success(1, meta={"seen": "SEKRIT\ud800"}), "/meta/seen"),
        (Result.failure(Outcome.TOOL_ERROR, "no", details={"who": [math.nan]}), "/details/who/0"),
    ],
)
def test_what_a_tool_reports_beside_its_value_is_json_too(answer, pointer):
    result = call(fake(always(answer), f"input_schema: {TOKENS}"), {"tok": "SEKRIT"})
    assert result.outcome is Outcome.INVALID_RESULT
    assert f"{pointer}: expected " in result.message
    assert ("the call ended `tool_error`" in result.message) is (answer.outcome is Outcome.TOOL_ERROR)
    json.dumps(result.as_json(), allow_nan=False).encode()
    assert "SEKRIT" not in str(result)


@pytest.mark.parametrize("name", [None, 3, ["tool"], {}])
@pytest.mark.parametrize("way", ["call", "dry_run"])
def test_a_name_that_is_no_text_is_refused_plainly(name, way):
    runtime = runtime_of(mocked("result: 1"))
    with pytest.raises(errors.ConfigurationError, match=r"the name of a tool must be a string, got "):
        asyncio.run(getattr(runtime, way)(name))


def test_an_error_of_a_call_without_event_loop_does_not_speak_of_loops():
    runtime = runtime_of(mocked("result: 1"))
    with pytest.raises(errors.ConfigurationError) as caught, runtime:
        runtime.call_sync(None)
    assert caught.value.__context__ is None


# Arguments on their way in.


def echo(inputs, more="", **options):
    return runtime_of(mocked('result: "{{ args }}"', inputs=inputs, more=more), **options)


def test_defaults_are_filled_before_the_tool_sees_the_arguments():
    inputs = "{properties: {days: {type: integer, default: 3}, where: {properties: {unit: {default: km}}}}}"
    given = {"where": {}}
    assert call(echo(inputs), given).value == {"days": 3, "where": {"unit": "km"}}
    assert given == {"where": {}}


def test_repairs_are_made_and_told():
    result = call(
        echo("{properties: {days: {type: integer}, city: {enum: [Oslo]}}}"), {"days": "3", "city": "oslo"}
    )
    assert result.value == {"days": 3, "city": "Oslo"}
    repairs = {(repair["pointer"], repair["kind"], repair["after"]) for repair in result.meta["repairs"]}
    assert repairs == {("/days", "parsed", "3"), ("/city", "matched", '"Oslo"')}


def test_a_whole_object_that_came_as_text_is_read():
    inputs = "{type: object, properties: {days: {type: integer, default: 1}, city: {type: string}}}"
    result = call(echo(inputs), '{"city": "Oslo"}')
    assert result.value == {"days": 1, "city": "Oslo"}
    assert result.meta["repairs"][0]["pointer"] == ""


def test_with_coerce_off_nothing_is_repaired():
    result = call(echo("{properties: {days: {type: integer}}}", more='coerce: "off"'), {"days": "3"})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert result.message == 'invalid arguments for `tool`:\n/days: expected an integer, got "3"'
    assert result.error.details["violations"] == [
        {"pointer": "/days", "keyword": "type", "expected": "an integer", "got": '"3"', "hint": ""}
    ]


def test_arguments_that_fit_are_never_repaired():
    assert call(echo("{properties: {days: {type: [integer, string]}}}"), {"days": "3"}).value == {"days": "3"}


def test_arguments_that_are_no_object_are_refused():
    for inputs in ("{}", "true", "{type: object}"):
        result = call(echo(inputs), [1])
        assert result.outcome is Outcome.INVALID_ARGUMENTS
        assert "object" in result.message


@pytest.mark.parametrize("given", [3, "3"])
def test_a_default_that_contradicts_an_argument_is_left_out(given):
    inputs = (
        "{properties: {a: {type: integer}, b: {default: 1}}, dependentSchemas: {b: {properties: {a: false}}}}"
    )
    assert call(echo(inputs), {"a": given}).value == {"a": 3}
    assert call(echo(inputs), {}).value == {"b": 1}
    assert call(echo(inputs), {"a": "x"}).outcome is Outcome.INVALID_ARGUMENTS


def test_defaults_that_contradict_each_other_are_left_out():
    inputs = "{properties: {a: {default: 1}, b: {default: 2}}, oneOf: [{required: [a]}, {required: [b]}]}"
    assert call(echo(inputs), {"a": 5}).value == {"a": 5}
    assert call(echo(inputs), {}).outcome is Outcome.INVALID_ARGUMENTS


def test_a_default_that_its_own_schema_refuses_is_not_filled_in():
    inputs = "{properties: {x: {type: string, default: null}, n: {type: integer, default: 1}}}"
    assert call(echo(inputs), {}).value == {"n": 1}
    assert call(echo(inputs), {"x": "a"}).value == {"n": 1, "x": "a"}
    assert call(echo(inputs), {"x": None}).value == {"n": 1}


def test_a_tool_without_an_input_schema_takes_no_arguments():
    runtime = runtime_of("name: tool\nmock: {result: 1}\n")
    assert call(runtime, {}).outcome is Outcome.OK
    assert call(runtime_of("name: tool\nmock: {result: 1}\n"), {"x": 1}).outcome is Outcome.INVALID_ARGUMENTS


# Results on their way out.


WRONG = {"celsius": "warm"}
NUMBER = "output_schema: {properties: {celsius: {type: number}}}\n"


def judged(rule):
    answer = Result.success(WRONG, content=(Content("text", text="warm"),)).with_meta(source="sensor")
    return call(fake(always(answer.with_usage(2, 0.0)), f"{NUMBER}on_invalid_result: {rule}"))


def test_a_wrong_result_is_an_error_and_its_raw_value_is_kept():
    result = judged("error")
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.message == (
        'the result of `tool` does not match its output schema:\n/celsius: expected a number, got "warm"'
    )
    assert (result.value, result.raw_value, result.content) == (None, WRONG, ())
    assert result.error.details == {
        "violations": [{"pointer": "/celsius", "keyword": "type", "expected": "a number"}]
    }
    assert (result.meta, result.usage.attempts) == ({"source": "sensor"}, 2)
    assert "raw_value" not in result.as_json()


def test_a_wrong_result_may_pass_with_a_warning():
    result = judged("warn")
    assert (result.outcome, result.value, result.raw_value) == (Outcome.OK, WRONG, WRONG)
    assert result.meta == {"source": "sensor", "warnings": ['/celsius: expected a number, got "warm"']}
    assert result.content


def test_a_wrong_result_may_pass_in_silence():
    result = judged("pass")
    assert (result.outcome, result.value, result.raw_value) == (Outcome.OK, WRONG, WRONG)
    assert result.meta == {"source": "sensor"}


@pytest.mark.parametrize("rule", ["error", "warn", "pass"])
def test_a_raw_value_holds_no_secret_of_the_arguments(rule):
    answer = {"celsius": "it is CANARY-77", "CANARY-77": ["CANARY-77"]}
    document = (
        f"{NUMBER}on_invalid_result: {rule}\ninput_schema: {{properties: {{token: {{type: string}}}}}}\n"
    )
    result = call(fake(always(Result.success(answer)), document), {"token": "CANARY-77"})
    assert result.raw_value == {"celsius": "it is ***", "***": ["***"]}
    assert "CANARY" not in json.dumps([result.message, dict(result.meta), result.raw_value])


def test_a_right_result_has_no_raw_value():
    assert call(fake(always(Result.success({"celsius": 3})), NUMBER)).raw_value is None


def test_the_answer_of_a_failed_tool_is_not_judged():
    assert (
        call(fake(always(Result.failure(Outcome.TOOL_ERROR, "no")), "output_schema: false")).outcome
        is Outcome.TOOL_ERROR
    )


@pytest.mark.parametrize(("written", "told"), [("true", True), ("use other", "use other")])
def test_results_of_a_deprecated_tool_say_so(written, told):
    for answer in (Result.success(1), Result.failure(Outcome.TOOL_ERROR, "no")):
        assert call(fake(always(answer), f"deprecated: {written}")).meta == {"deprecated": told}
    assert call(fake(always(Result.success(1)), "deprecated: false")).meta == {}


class _Unbinding:
    """A mode whose tools can't be bound."""

    block_schema = True

    def __init__(self, error):
        self._error = error

    def check(self, _descriptor):
        return []

    def bind(self, _descriptor):
        raise self._error

    async def aclose(self):
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DocumentError([Problem(code="gone", message="its file is gone")]), "its file is gone"),
        (TypeError("secret"), "TypeError; the traceback is in the `toolcrib` log"),
    ],
)
def test_a_tool_that_can_not_be_bound_says_why(error, told):
    executors = Executors({"odd": lambda: _Unbinding(error)})
    registry = parse_registry("x.yaml", "name: x\nodd: {}\n", kinds=executors)
    with Runtime(registry, executors=executors) as runtime:
        result = runtime.call_sync("x")
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "not_bound")
    assert told in result.message
    assert "secret" not in result.message
