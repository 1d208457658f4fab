"""The chain of a tool that never waits, run without an event loop: it comes to what it comes to in one."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from in_memory import MOCKS, fake, mocked, runtime_of
from sampling import examples
from toolcrib import Call, Outcome, Result
from toolcrib.core.model import ANSWERS, CallContext, TrustedAnswer, as_result
from toolcrib.engine.middleware import build_chain
from toolcrib.engine.middleware.layer import LayerContext, SharedState
from toolcrib.executors.mock import MockExecutor
from toolcrib.schema.validation import NotJSONError, json_violation, unshared_copy

INPUTS = """
  {properties: {n: {type: number}, s: {type: string, default: d}, x: {}}, additionalProperties: false}
"""

BLOCKS = {
    "plain": 'result: {s: "{{ args.s }}", x: ["{{ args.x }}"], t: "<{{ args.n }}>", c: [1, {k: v}]}',
    "counted": 'result: {s: "{{ args.s }}", x: "{{ args.x }}", number: "{{ call }}"}',
    "computed": 'result: {s: "{{ args.s | upper }}", x: "{{ args.x == none }}", sum: "{{ args.n + 1e308 }}"}',
    "nested": 'result: {x: {a: {b: "{{ [args.x, args.x] }}"}}}',
    "whole": 'result: "{{ args }}"',
    "fixed": "result: {a: [1, {b: c}]}",
    "rules": """
      rules:
      - {when: {args: {s: d}}, reply: {result: "{{ args.x }}"}}
      - {when: {if: "{{ args.n > 1 }}"}, reply: {error: {code: big, message: "{{ args.n }} is big"}}}
      - {when: {call: 1}, reply: [{result: {}}], after_last: error}
    """,
    "parts": "{result: '{{ args.x }}', content: [{type: text, text: '{{ args.s }}'}]}",
}
OUTPUTS = ["{}", "{type: object}", "{properties: {s: {const: d}, x: {maxItems: 1}, t: {minLength: 4}}}"]
MORE = ["", "deprecated: use another", "on_invalid_result: warn", "coerce: off"]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-2, 2) | st.floats() | st.sampled_from([10**400, 1.7e308, "3", True]),
        "s": st.text(max_size=3) | st.sampled_from(["d", "\ud800", 1]),
        "x": VALUES,
        "y": st.just(1),
    },
)


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def session_of():
    slots = {}
    return SimpleNamespace(
        id="s", seed=1, calls=1, slot=lambda key, make: slots.setdefault(key, make()), clock=None
    )


def chain_of(tool, bound):
    return build_chain(LayerContext(tool, bound, SharedState()))


def call_of(tool, arguments):
    return Call(tool, arguments, CallContext(session=session_of(), can_wait=False), "1")


def at_once(chain, call):
    """What a chain that never waits answers, without an event loop."""
    assert chain.at_once
    answer = chain.run(call)
    if isinstance(answer, ANSWERS):
        return answer
    with pytest.raises(StopIteration) as ended:
        answer.send(None)
    return ended.value.value


def outcome_of(run):
    try:
        return run()
    except Exception as error:  # noqa: BLE001 -- what escapes is compared, too
        return type(error)


@given(st.sampled_from(sorted(BLOCKS)), st.sampled_from(OUTPUTS), st.sampled_from(MORE), ARGUMENTS)
@example("plain", "{}", "", {"n": 1, "x": nested(60), "s": "d"})
@example("nested", "{}", "", {"x": nested(60)})
@example("computed", "{}", "", {"n": 1.7e308, "x": 1})
@settings(max_examples=examples(400), deadline=None)
def test_both_ways_come_to_the_same(block, output, more, arguments):
    tool = runtime_of(mocked(BLOCKS[block], output=output, inputs=INPUTS, more=more)).registry["tool"]
    bound, other = MockExecutor().bind(tool), MockExecutor().bind(tool)
    waiting = chain_of(tool, SimpleNamespace(waits=False, execute=other.execute))
    assert not waiting.at_once
    expected = outcome_of(lambda: asyncio.run(waiting.run(call_of(tool, arguments))))
    found = outcome_of(lambda: at_once(chain_of(tool, bound), call_of(tool, arguments)))
    if isinstance(found, TrustedAnswer):
        assert json_violation(found.value) is None
        found = as_result(found)
    assert repr(found) == repr(expected)


def test_an_answer_shares_nothing_with_its_arguments_or_the_document():
    runtime = runtime_of(mocked(BLOCKS["plain"], inputs="{}"))
    arguments = {"s": "d", "n": 1, "x": {"deep": [1]}}
    first = runtime.call_sync("tool", arguments).value
    assert first["x"] == [{"deep": [1]}]
    first["x"][0]["deep"].append(2)
    first["c"][1]["k"] = "changed"
    assert arguments["x"] == {"deep": [1]}
    assert runtime.call_sync("tool", arguments).value["c"] == [1, {"k": "v"}]


def test_a_number_that_overflows_is_never_passed_on():
    runtime = runtime_of(mocked('result: ["{{ args.n * 1e308 }}"]', inputs="{}"))
    result = runtime.call_sync("tool", {"n": 10})
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "mock_failed")


def test_an_answer_that_nests_too_deeply_is_refused():
    runtime = runtime_of(mocked("result: " + "[" * 60 + '"{{ args.x }}"' + "]" * 60, inputs="{}"))
    assert runtime.call_sync("tool", {"x": nested(20)}).outcome is Outcome.OK
    result = runtime.call_sync("tool", {"x": nested(50)})
    assert result.outcome is Outcome.INVALID_RESULT
    assert "nesting" in result.message


@pytest.mark.parametrize("members", [33, 400])
def test_long_answers_are_made_anew_each_time(members):
    listed = json.dumps([{"a": ["{{ args.x }}"]}, *range(members)])
    runtime = runtime_of(mocked(f"result: {listed}", inputs="{}"))
    first = runtime.call_sync("tool", {"x": [1]}).value
    assert first == [{"a": [[1]]}, *range(members)]
    first[0]["a"][0].append(2)
    first.clear()
    assert runtime.call_sync("tool", {"x": [1]}).value == [{"a": [[1]]}, *range(members)]


def test_what_a_document_says_is_never_read_as_code():
    text = "'); raise SystemExit #\\n\\"
    document = {"name": "tool", "input_schema": {}, "mock": {"result": {text: ["{{ args.x }}", text]}}}
    runtime = runtime_of(json.dumps(document))
    assert runtime.call_sync("tool", {"x": 1}).value == {text: [1, text]}


def test_a_foreign_tool_that_answers_at_once_is_judged():
    class Bound:
        waits = False

        def answer_now(self, call):
            return Result.success({"n": float("nan")} if "bad" in call.arguments else {"n": 1})

        async def execute(self, call):
            raise AssertionError

    runtime = runtime_of(mocked("result: 1", inputs="{}"))
    tool = runtime.registry["tool"]
    chain = chain_of(tool, Bound())
    assert at_once(chain, call_of(tool, {})).value == {"n": 1}
    assert at_once(chain, call_of(tool, {"bad": 1})).outcome is Outcome.INVALID_RESULT


def test_a_tool_that_may_wait_needs_an_event_loop():
    tool = runtime_of(mocked("result: 1\nlatency: 1s")).registry["tool"]
    assert not chain_of(tool, MOCKS.get("mock").bind(tool)).at_once
    other = fake(lambda _call: None, waits=False).registry["tool"]
    assert not chain_of(other, SimpleNamespace(waits=False, execute=None)).at_once


@given(VALUES, st.integers(0, 4))
@settings(max_examples=examples(300), deadline=None)
def test_what_is_unshared_is_json(value, depth):
    if json_violation(value, depth=depth) is not None:
        with pytest.raises(NotJSONError):
            unshared_copy(value, depth)
        return
    copy = unshared_copy(value, depth)
    assert (copy, json.dumps(copy)) == (value, json.dumps(value))
    assert not isinstance(value, dict | list) or copy is not value
