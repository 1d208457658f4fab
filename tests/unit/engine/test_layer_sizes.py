"""`limits.input_size` and `limits.output_size`: how large arguments and results may be, in every mode and on every way."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http_servers import answering_json
from in_memory import fake, loaded, mocked, runtime_of
from live_tools import API, calling, live_executors, live_tool
from toolcrib import Outcome, RealClock, Result
from toolcrib.core.text import compact, format_size, parse_size
from toolcrib.schema.validation.json_values import WITHIN, count_elements, measure_excess

MIB = 1024 * 1024
ECHO = 'result: "{{ args.x }}"'


def call(runtime, arguments=None):
    return asyncio.run(runtime.call("tool", arguments))


def echo(limits, inputs="{}"):
    return runtime_of(mocked(ECHO, inputs=inputs, more=f"limits: {limits}"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON_VALUES, st.integers(1, 200))
def test_a_value_passes_a_limit_by_its_bytes_or_by_its_values(value, limit):
    fits = len(compact(value).encode()) <= limit and count_elements(value, 10**9) * 4 <= limit
    excess = measure_excess(value, 1000, limit)
    assert excess is not None
    assert (excess is WITHIN) is fits
    assert fits or excess.measured > limit


@given(st.integers(1, 10**8))
def test_a_size_that_is_written_is_read_again(size):
    assert parse_size(format_size(size)) == size


def test_arguments_that_are_too_large_end_the_call_before_any_attempt():
    result = call(echo("{input_size: 1KiB}"), {"x": "y" * 1100})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "arguments_too_large")
    assert result.message == (
        "the arguments of `tool` are too large: 1,108 bytes, and `limits.input_size` is 1KiB (tools.yaml:4); send less"
    )
    assert result.error.details == {
        "limit": "input_size",
        "value": 1024,
        "measured": 1108,
        "at": "tools.yaml:4",
    }
    assert result.usage.attempts == 0


@pytest.mark.parametrize("length", [1, 900, 1016])
def test_arguments_of_just_the_size_are_good(length):
    arguments = {"x": "y" * length}
    assert len(json.dumps(arguments, separators=(",", ":"))) <= 1024
    assert call(echo("{input_size: 1KiB}"), arguments).value == "y" * length


def test_there_may_be_a_value_for_every_four_bytes():
    few, many = [1] * 254, [1] * 255
    assert call(echo("{input_size: 1KiB}"), {"x": few}).value == few
    result = call(echo("{input_size: 1KiB}"), {"x": many})
    assert "257 values, and `limits.input_size` is 1KiB (tools.yaml:4)" in result.message
    assert result.error.details["measured"] == 257 * 4


def test_without_a_word_arguments_may_have_four_mebibytes_and_results_sixteen():
    runtime = echo("{}")
    assert call(runtime, {"x": "y" * (4 * MIB - 8)}).outcome is Outcome.OK
    assert call(runtime, {"x": "y" * (4 * MIB - 7)}).error.code == "arguments_too_large"

    async def answer(_call):
        return Result.success("y" * (16 * MIB - 1))

    result = call(fake(answer))
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")


ANSWERS = {
    "a fixed result": f"result: {'y' * 1100}",
    "an expression": 'result: "{{ args.x }}"',
    "a part of an object": 'result: {a: {b: "{{ args.x }}"}}',
    "a template": 'template: "{{ args.x }}"',
    "a rule": 'rules: [{when: {if: "{{ args.x != none }}"}, reply: {result: "{{ args.x }}"}}]',
    "a reply that waits": 'result: "{{ args.x }}"\nlatency: 1ms',
    "a part beside the value": 'result: 1\ncontent: [{type: text, text: "{{ args.x }}"}]',
}


@pytest.mark.parametrize("block", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_mocked_result_that_is_too_large_is_refused(block, read_only):
    more = f"limits: {{output_size: 1KiB}}\nannotations: {{read_only: {str(read_only).lower()}}}"
    result = call(runtime_of(mocked(block, more=more)), {"x": "y" * 1100})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")
    assert "`limits.output_size` is 1KiB (tools.yaml:" in result.message
    details = dict(result.error.details)
    assert details.pop("at").startswith("tools.yaml:")
    assert details.pop("measured") > 1100
    acted = {} if read_only else {"may_have_acted": True}
    assert details == {"limit": "output_size", "value": 1024, **acted}
    assert result.value is None


def test_a_mocked_result_of_many_expressions_is_refused_too():
    text = "y" * 60_000
    parts = ", ".join(['"{{ args.x }}"'] * 300)
    result = call(runtime_of(mocked(f"result: [{parts}]")), {"x": text})
    assert result.error.code == "result_too_large"


async def test_an_answer_over_http_is_read_no_further_than_its_limit():
    text = live_tool(f"url: {API}/x", more="limits: {output_size: 1KiB}")
    async with calling(text, answering_json("y" * 1100)) as (runtime, _server):
        result = await runtime.call("tool", {})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "response_too_large")
    assert "`limits.output_size` is 1KiB (tools.yaml:" in result.message
    details = result.error.details
    assert (details["limit"], details["value"], details["measured"]) == ("output_size", 1024, 1102)


async def test_a_large_answer_over_http_is_judged_like_a_small_one():
    text = live_tool(f"url: {API}/x", output="{items: {type: integer}}")
    async with calling(text, answering_json([*range(100_000), "x"])) as (runtime, _server):
        result = await runtime.call("tool", {})
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.message.endswith('/100000: expected an integer, got "x"')
    async with calling(text, answering_json([*range(100_000)])) as (runtime, _server):
        assert (await runtime.call("tool", {})).value == [*range(100_000)]


def test_the_key_that_it_was_before_names_the_new_one():
    text = f"name: tool\nlive: {{url: '{API}', response: {{max_size: 1MiB}}}}\n"
    (problem,) = loaded(text, executors=live_executors()).problems
    assert (problem.code, problem.pointer) == ("unknown_key", "/live/response/max_size")
    assert problem.hint == "write `limits.output_size` instead"


LARGE = "{type: object, properties: {x: {type: array, items: {type: integer}}}}"


@pytest.mark.parametrize("x", [[1] * 50_000, ["x"] * 50_000], ids=["good", "bad"])
def test_the_event_loop_goes_on_while_large_arguments_are_judged(x):
    runtime = echo("{}", LARGE)

    async def turns():
        count = 0
        task = asyncio.ensure_future(runtime.call("tool", {"x": x}))
        while not task.done():
            await RealClock().sleep(0)
            count += 1
        return count, task.result()

    count, result = asyncio.run(turns())
    assert result.outcome is (Outcome.OK if x[0] == 1 else Outcome.INVALID_ARGUMENTS)
    assert count > 2


def test_small_arguments_are_judged_at_once():
    runtime = echo("{}", LARGE)
    assert runtime._engine.default_session.call_at_once("tool", {"x": [1]}).value == [1]
    assert (
        runtime._engine.default_session.call_at_once("tool", {"x": ["x"]}).outcome
        is Outcome.INVALID_ARGUMENTS
    )
    assert runtime._engine.default_session.call_at_once("tool", {"x": [1] * 50_000}) is None


def test_a_call_whose_large_arguments_are_judged_can_be_cancelled():
    runtime = echo("{}", LARGE)

    async def cancelled():
        task = asyncio.ensure_future(runtime.call("tool", {"x": ["x"] * 200_000}))
        await RealClock().sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_large_arguments_are_repaired_and_filled_in_like_small_ones():
    inputs = "{properties: {x: {items: {type: integer}}, n: {default: 7}}}"
    runtime = runtime_of(mocked('result: ["{{ args.n }}", "{{ args.x[0] }}"]', inputs=inputs))
    result = call(runtime, {"x": ["5", *range(50_000)]})
    assert result.value == [7, 5]
    assert [repair["pointer"] for repair in result.meta["repairs"]] == ["/x/0"]
    assert call(runtime, {"x": [*range(50_000)]}).value == [7, 0]


def test_a_large_answer_that_does_not_fit_tells_twenty_violations_and_that_there_are_more():
    async def answer(_call):
        return Result.success(["x"] * 200_000)

    result = call(fake(answer, "output_schema: {items: {type: integer}}"))
    assert (result.outcome, len(result.error.details["violations"])) == (Outcome.INVALID_RESULT, 20)
    assert result.error.details["at_least"] == 50
    assert result.message.endswith("... and at least 30 more")


def test_large_arguments_that_do_not_fit_tell_twenty_violations_and_that_there_are_more():
    result = call(echo("{}", LARGE), {"x": ["x"] * 200_000})
    assert (result.outcome, len(result.error.details["violations"])) == (Outcome.INVALID_ARGUMENTS, 20)
    assert result.error.details["at_least"] == 50
    assert result.message.endswith('/x/19: expected an integer, got "x"\n... and at least 30 more')
    some = call(echo("{}", LARGE), {"x": ["x"] * 23})
    assert some.error.details["total"] == 23
    assert some.message.endswith("... and 3 more")


@pytest.mark.exhaustive
def test_a_deadline_ends_a_call_whose_large_answer_is_being_judged():
    async def answer(_call):
        return Result.success([1] * 2_000_000)

    more = "timeout: 1ms\noutput_schema: {items: {type: integer}}"
    assert call(fake(answer, more, clock=RealClock())).outcome is Outcome.TIMEOUT


ITEMS = {
    "a list": ("[1, 2, 3]", 3),
    "the longest list of an object": ("{a: [1], b: [1, 2, 3], c: {d: [1, 2, 3, 4, 5]}}", 3),
    "a text": ("abcdefgh", 0),
    "an object without a list": ("{a: 1, b: 2, c: 3, d: 4}", 0),
}


@pytest.mark.parametrize(("value", "items"), ITEMS.values(), ids=ITEMS)
@pytest.mark.parametrize(
    "form", ["result: {}", "rules: [{{reply: {{result: {}}}}}]", "result: {}\nlatency: 1ms"]
)
def test_the_items_of_a_result_are_its_list_or_the_longest_list_of_its_object(value, items, form):
    for most in (0, 2, 3):
        result = call(runtime_of(mocked(form.format(value), more=f"limits: {{output_items: {most}}}")))
        if items <= most:
            assert result.outcome is Outcome.OK
            continue
        assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "too_many_items")
        place = result.error.details["at"]
        assert result.message == (
            f"the result of `tool` has too many items: {items}, and `limits.output_items` is {most} ({place}); "
            "ask for less"
        )
        assert result.error.details == {
            "limit": "output_items",
            "value": most,
            "measured": items,
            "at": place,
            "may_have_acted": True,
        }


def test_content_parts_are_items_too():
    parts = "content: [{type: text, text: a}, {type: text, text: b}]"
    result = call(runtime_of(mocked(f"result: 1\n{parts}", more="limits: {output_items: 1}")))
    assert (result.error.code, result.error.details["measured"]) == ("too_many_items", 2)


async def test_the_items_of_an_answer_over_http_are_counted():
    text = live_tool(f"url: {API}/x", more="limits: {output_items: 2}")
    async with calling(text, answering_json({"items": [1, 2, 3]})) as (runtime, _server):
        result = await runtime.call("tool", {})
    assert (result.error.code, result.error.details["measured"]) == ("too_many_items", 3)
