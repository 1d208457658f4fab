"""What stands around all assertions: scopes, conditions, scores, who is asked; and that nothing makes them fall."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import runtime_of
from sampling import examples
from toolcrib import Outcome, Result, VirtualClock
from toolcrib.core.model import Usage
from toolcrib.loading.prompts import Guardrail
from toolcrib.loading.scenarios.assertions import assertion_kinds, compile_guardrails
from toolcrib.loading.scenarios.model import SPEAKING, WRAPPER
from toolcrib.provider.conversations import CallRecord, Conversation
from toolcrib.provider.messages import Message, Text, ToolCall, system, user
from toolcrib.provider.models.protocol import Finish, ProviderError, ReasoningDelta, TextDelta, Tokens
from toolcrib.scenarios.assertions import (
    CHECKS,
    JUDGE_CHECKS,
    AssertionContext,
    Trajectory,
    evaluate_assertion,
)
from trajectories import called, conversation, judged, settled, stopped, way

TALK = conversation(
    ("Find it.", [called("find"), called("find")], ["Looking.", "Found it."]),
    ("Pay.", [called("pay")], ["Paid."]),
    ("Thanks.", [], ["You are welcome."]),
    tokens=Tokens(5, 7),
    cost=0.5,
)


def test_every_kind_is_judged():
    assert {*CHECKS, *JUDGE_CHECKS, WRAPPER} == {*assertion_kinds()}
    assert not CHECKS.keys() & JUDGE_CHECKS.keys()
    assert {*SPEAKING} <= {*assertion_kinds()}


class TestTrajectories:
    def test_of_a_turn(self):
        seen = Trajectory.of(TALK, 1)
        assert [call.tool for call in seen.calls] == ["find", "find"]
        assert (seen.texts, seen.reply) == (("Looking.", "Found it."), "Found it.")
        assert [message.role for message in seen.messages] == ["user", "assistant", "assistant"]

    def test_of_the_conversation(self):
        seen = Trajectory.of(TALK)
        assert [call.tool for call in seen.calls] == ["find", "find", "pay"]
        assert seen.reply == "You are welcome."
        assert (seen.tokens, seen.cost, seen.whole) == (Tokens(5, 7), 0.5, None)

    def test_what_came_later_is_not_seen(self):
        whole = Trajectory.of(TALK, 2).whole
        assert [call.tool for call in whole.calls] == ["find", "find", "pay"]
        assert whole.reply == "Paid."
        assert Trajectory.of(TALK, 1).whole.reply == "Found it."

    def test_what_is_no_text_of_the_model_is_not_said(self):
        messages = (
            system("Be kind."),
            user("Find it."),
            Message("assistant", (Text("Wait. "), ToolCall("1", "find", {}), Text("Soon."))),
            Message("assistant", (ToolCall("2", "find", {}),)),
        )
        seen = Trajectory.of(Conversation(messages))
        assert seen.texts == ("Wait. Soon.",)
        assert [message.role for message in seen.messages] == ["user", "assistant", "assistant"]

    def test_before_anything_was_said(self):
        assert Trajectory.of(Conversation()) == Trajectory()


@pytest.mark.parametrize(
    ("entry", "holds"),
    [
        ({"scope": "turn"}, False),
        ({"scope": "conversation"}, True),
        ({"params": {"tool_names": ["find"], "scope": "conversation"}}, True),
        ({"type": "tools_called_session"}, True),
        ({}, False),
    ],
)
def test_what_an_assertion_of_a_turn_sees(entry, holds):
    written = {"type": "tools_called", "params": {"tool_names": ["find"]}, **entry}
    assertion = settled(written.pop("type"), written.pop("params"), **written)
    assert asyncio.run(evaluate_assertion(assertion, Trajectory.of(TALK, 2))).passed is holds
    assert asyncio.run(evaluate_assertion(assertion, Trajectory.of(TALK))).passed


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        ({}, True),
        ({"tool_called": "pay"}, True),
        ({"tool_called": "refund"}, False),
        ({"tool_called": "denied"}, False),
        ({"tool_called_pattern": "^p"}, True),
        ({"tool_called_pattern": "^q"}, False),
        ({"any_tool_called": True}, True),
        ({"any_tool_called": False}, False),
        ({"any_tool_called": ["refund", "pay"]}, True),
        ({"any_tool_called": ["refund"]}, False),
        ({"min_tool_calls": 2}, True),
        ({"min_tool_calls": 3}, False),
        ({"tool_called": "pay", "min_tool_calls": 3}, False),
    ],
)
def test_what_must_have_happened(when, applies):
    trajectory = way(called("pay"), called("ask", outcome="timeout"), stopped("denied"))
    verdict = judged("tools_called", {"tool_names": ["refund"]}, trajectory, when=when)
    assert (verdict.applies, verdict.passed, verdict.score) == (applies, False, 0)
    assert verdict.message


def test_none_called_is_a_condition_too():
    assert judged("min_length", {"min": 1}, way(say="Hi."), when={"any_tool_called": False}).applies


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [
        ({"min_score": 0.5}, True),
        ({"min_score": 0.51}, False),
        ({"max_score": 0.5}, True),
        ({"max_score": 0.4}, False),
        ({"min_score": 0.4, "max_score": 0.6}, True),
    ],
)
def test_a_score_may_be_enough(bounds, passed):
    inner = {"eval_type": "tools_called", "eval_params": {"tools": ["pay", "ask"]}}
    verdict = judged("assertion", {**inner, **bounds}, way(called("pay")))
    assert (verdict.passed, verdict.score) == (passed, 0.5)
    assert verdict.message.startswith("score 0.50, expected ")


def test_a_wrapped_assertion_that_does_not_apply_makes_the_wrapper_not_apply():
    inner = {
        "eval_type": "outcome_equivalent",
        "eval_params": {"metric": "final_state", "expected_state": "a"},
    }
    assert not judged("assertion", {**inner, "max_score": 0.5}, way()).applies


class Saying:
    """A model that says what it is given, in pieces, and keeps what it was asked."""

    def __init__(self, *deltas):
        self.deltas = deltas
        self.asked = []

    async def respond(self, request):
        self.asked.append(request)
        for delta in self.deltas:
            if isinstance(delta, Exception):
                raise delta
            yield delta


def asked(answer, kind="llm_judge", params=None, trajectory=None):
    model = Saying(
        TextDelta(answer[:5]), ReasoningDelta("Hm."), TextDelta(answer[5:]), Finish(), TextDelta("{")
    )
    seen = trajectory or way(called("pay", args={"api_key": "sk-12345"}), say="Here you are.")
    verdict = judged(kind, {"criteria": "It is kind.", **(params or {})}, seen, AssertionContext(judge=model))
    return verdict, model


class TestModelsThatJudge:
    @pytest.mark.parametrize(
        ("answer", "params", "passed", "score"),
        [
            ('{"passed": true, "score": 0.7, "reasoning": "Yes."}', {}, True, 0.7),
            ('{"passed": false, "score": 0.7}', {}, False, 0.7),
            ('{"passed": false, "score": 0.7}', {"min_score": 0.6}, True, 0.7),
            ('{"passed": true, "score": 0.5}', {"min_score": 0.6}, False, 0.5),
            ('{"passed": true}', {}, True, 1),
            ('{"passed": false}', {}, False, 0),
            ('{"score": 1}', {}, True, 1),
            ('{"score": 0.9}', {}, False, 0.9),
            ('Sure:\n```json\n{"passed": true, "score": 1}\n```', {}, True, 1),
        ],
    )
    def test_their_word_counts(self, answer, params, passed, score):
        verdict, _model = asked(answer, params=params)
        assert (verdict.applies, verdict.passed, verdict.score) == (True, passed, score)

    @pytest.mark.parametrize(
        "answer",
        [
            "",
            "Yes.",
            "{",
            "[]",
            "{}",
            '{"score": 3}',
            '{"score": true}',
            '{"passed": "yes"}',
            "[" * 9000,
            '{"passed": false, "passed": true}',
        ],
    )
    def test_what_is_not_understood_never_passes(self, answer):
        verdict, _model = asked(answer)
        assert (verdict.applies, verdict.passed) == (True, False)
        assert "judge's" in verdict.message

    @pytest.mark.parametrize("reason", ["length", "refused", "tired"])
    def test_an_answer_that_did_not_come_to_its_end_never_passes(self, reason):
        cut = AssertionContext(judge=Saying(TextDelta('{"passed": true} if it were'), Finish(reason)))
        verdict = judged("llm_judge", {"criteria": "a"}, way(say="Hi."), cut)
        assert (verdict.applies, verdict.passed) == (True, False)
        assert f"the judge's answer is incomplete (`{reason}`)" in verdict.message

    def test_nobody_judges(self):
        verdict = judged("llm_judge", {"criteria": "a"}, way(say="Hi."))
        assert (verdict.applies, verdict.passed) == (True, False)
        assert "agent.judge" in verdict.message

    def test_a_model_that_gives_no_answer(self):
        down = AssertionContext(judge=Saying(ProviderError("The model is asleep.")))
        verdict = judged("llm_judge", {"criteria": "a"}, way(say="Hi."), down)
        assert (verdict.passed, verdict.message) == (False, "the judge gave no answer: The model is asleep.")

    def test_what_they_are_shown_of_calls(self):
        _verdict, model = asked('{"passed": true}', "llm_judge_tool_calls", {"rubric": "Be strict."})
        instructions, question = model.asked[0].messages
        assert (instructions.role, question.role) == ("system", "user")
        assert json.loads(question.text) == {
            "criteria": "It is kind.",
            "rubric": "Be strict.",
            "material": {
                "tool_calls": [
                    {"tool": "pay", "arguments": {"api_key": "***"}, "ended": "ok", "result": "null"}
                ]
            },
        }

    def test_only_the_calls_of_some_tools(self):
        verdict, model = asked('{"passed": true}', "llm_judge_tool_calls", {"tools": ["ask"]})
        assert (verdict.applies, model.asked) == (False, [])
        assert verdict.message == "no call of `ask` to judge"

    def test_what_they_are_shown_of_a_conversation(self):
        _verdict, model = asked(
            '{"passed": true}', "llm_judge_conversation", trajectory=Trajectory.of(TALK, 2)
        )
        shown = json.loads(model.asked[0].messages[1].text)["material"]["conversation"]
        assert [each["text"] for each in shown] == ["Find it.", "Looking.", "Found it.", "Pay.", "Paid."]

    def test_they_may_be_instructed(self):
        _verdict, model = asked('{"passed": true}', params={"system_prompt": "Judge!"})
        assert model.asked[0].messages[0].text == "Judge!"


CHECK = """
name: run_tests
input_schema: {type: object, properties: {path: {type: string}}, required: [path], additionalProperties: false}
output_schema: {}
mock:
  rules:
    - {when: {args: {path: good}}, reply: {result: "12 passed, 0 failed"}}
    - {when: {args: {path: bad}}, reply: {result: "11 passed, 1 failed"}}
    - {when: {args: {path: slow}}, reply: {result: "12 passed", latency: 5s}}
    - {reply: {error: {code: broken, message: It broke.}}}
"""


class TestToolsThatCheck:
    def check(self, **params):
        async def main():
            async with runtime_of(CHECK) as runtime:
                session = runtime.session(clock=VirtualClock())
                around = AssertionContext(call_tool=session.call)
                return await evaluate_assertion(
                    settled("tool_exec", {"tool": "run_tests", **params}), way(), around
                )

        return asyncio.run(main())

    def test_it_answers(self):
        assert self.check(args={"path": "good"}).passed
        assert self.check(args={"path": "bad"}).passed

    def test_it_answers_what_one_wants(self):
        patterns = {"success_pattern": "[0-9]+ passed", "failure_pattern": "[1-9] failed"}
        assert self.check(args={"path": "good"}, **patterns).passed
        assert "matches the failure" in self.check(args={"path": "bad"}, **patterns).message
        assert "does not match" in self.check(args={"path": "good"}, success_pattern="all").message

    def test_it_fails(self):
        assert self.check(args={"path": "none"}).message == "`run_tests` ended tool_error: It broke."
        assert "invalid_arguments" in self.check(args={"file": "good"}).message
        assert "not_found" in self.check(tool="run_test").message

    def test_it_takes_too_long(self):
        assert self.check(args={"path": "slow"}).passed
        assert "longer than 3 s" in self.check(args={"path": "slow"}, timeout_seconds=3).message

    def test_it_never_ends(self):
        async def forever(_tool, _arguments):
            await asyncio.Event().wait()

        verdict = judged(
            "tool_exec", {"tool": "a", "timeout_seconds": 0.01}, way(), AssertionContext(forever)
        )
        assert (verdict.passed, verdict.message) == (False, "`a` took longer than 0.01 s")

    def test_there_is_no_session(self):
        verdict = judged("tool_exec", {"tool": "a"}, way())
        assert (verdict.applies, verdict.passed) == (True, False)
        assert "no session" in verdict.message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b", "get_order"])
LISTS = st.lists(NAMES, min_size=1, max_size=3)
BOUNDS = st.integers(0, 3)
OBJECTS = st.dictionaries(st.sampled_from(["x", "y"]), JSON, min_size=1, max_size=2)
PATTERNS = st.sampled_from(["a", "^$", "(?i)ORD", "[0-9]+", "."])
CALLS = st.builds(
    CallRecord,
    id=st.text(max_size=2),
    tool=NAMES,
    arguments=st.none() | st.dictionaries(st.sampled_from(["x", "y", "password"]), JSON, max_size=2),
    turn=st.integers(1, 3),
    round=st.just(1),
    outcome=st.none() | st.sampled_from(Outcome),
    value=JSON,
    code=st.sampled_from(["", "broken"]),
    message=st.text(max_size=5),
    reached=st.booleans(),
    states=st.just({}) | st.dictionaries(st.sampled_from(["m"]), st.sampled_from(["open", "closed"])),
)
TRAJECTORIES = st.builds(
    Trajectory,
    texts=st.lists(st.text(max_size=20) | JSON.map(json.dumps), max_size=3).map(tuple),
    calls=st.lists(CALLS, max_size=6).map(tuple),
    states=st.just({}) | st.just({"m": "open"}),
    has_text=st.booleans(),
    guardrails=st.just(compile_guardrails((Guardrail("length", {"max": 5}),))),
)
PARAMS = {
    "tools_called": st.fixed_dictionaries({"tool_names": LISTS}, optional={"min_calls": BOUNDS}),
    "tools_not_called": st.fixed_dictionaries({"tools": LISTS}),
    "tool_args": st.fixed_dictionaries({"tool_name": NAMES, "expected_args": OBJECTS}),
    "tool_args_excluded": st.fixed_dictionaries({"tool_name": NAMES, "forbidden_args": OBJECTS}),
    "tool_calls_with_args": st.fixed_dictionaries(
        {"tool_name": NAMES},
        optional={
            "expected_args": OBJECTS,
            "args_match": st.dictionaries(st.sampled_from("xy"), PATTERNS, min_size=1),
            "result_includes": LISTS,
            "result_matches": PATTERNS,
            "no_error": st.booleans(),
        },
    ),
    "tool_call_count": st.fixed_dictionaries({"min": BOUNDS}, optional={"tool": NAMES}),
    "tool_call_sequence": st.fixed_dictionaries({"sequence": LISTS}),
    "tool_call_chain": st.fixed_dictionaries(
        {
            "steps": st.lists(
                st.fixed_dictionaries({"tool": NAMES}, optional={"no_error": st.booleans()}), min_size=1
            )
        }
    ),
    "tool_anti_pattern": st.fixed_dictionaries(
        {"patterns": st.lists(st.fixed_dictionaries({"sequence": LISTS}), min_size=1, max_size=2)}
    ),
    "tool_no_repeat": st.fixed_dictionaries({}, optional={"tools": LISTS}),
    "tool_efficiency": st.fixed_dictionaries(
        {"max_error_rate": st.floats(0, 1)}, optional={"max_calls": BOUNDS}
    ),
    "no_tool_errors": st.fixed_dictionaries({}, optional={"tools": LISTS}),
    "tool_result_includes": st.fixed_dictionaries(
        {"patterns": LISTS}, optional={"occurrence": st.integers(1, 3)}
    ),
    "tool_result_matches": st.fixed_dictionaries({"pattern": PATTERNS}, optional={"tool": NAMES}),
    "tool_result_has_media": st.just({"media_type": "image"}),
    "tool_result_media_type": st.just({"mime_type": "image/*"}),
    "workflow_tool_access": st.just({"rules": [{"state": "open", "allowed": ["a"]}]}),
    "invariant_fields_preserved": st.fixed_dictionaries({"tool": NAMES, "fields": st.just(["x", "y"])}),
    "outcome_equivalent": st.just({"metric": "final_state", "expected_state": "open"}),
    "directional": st.fixed_dictionaries(
        {"check": st.just("similar_content"), "baseline_content": st.text(min_size=1, max_size=5)}
    ),
    "content_includes": st.fixed_dictionaries({"patterns": LISTS}),
    "content_excludes": st.fixed_dictionaries({"patterns": LISTS}),
    "sentence_count": st.fixed_dictionaries({"min": BOUNDS}),
    "json_path": st.just({"expression": "@", "extract_json": True}),
    "json_schema": st.just({"schema": {"type": "object"}, "extract_json": True}),
    "guardrail_triggered": st.fixed_dictionaries({"validator": st.sampled_from(["length", "banned_words"])}),
}
ASSERTIONS = st.sampled_from([*PARAMS]).flatmap(lambda kind: st.tuples(st.just(kind), PARAMS[kind]))


@settings(max_examples=examples(60), deadline=None)
@given(ASSERTIONS, TRAJECTORIES, st.sampled_from([{}, {"tool_called": "a"}, {"any_tool_called": True}]))
def test_whatever_happened_is_judged(assertion, trajectory, when):
    verdict = judged(*assertion, trajectory, when=when)
    assert verdict == judged(*assertion, trajectory, when=when)
    assert 0 <= verdict.score <= 1
    assert verdict.message.isprintable() or "\n" not in verdict.message
    assert verdict.applies or not verdict.passed
    wrapped = {"eval_type": assertion[0], "eval_params": assertion[1], "min_score": verdict.score}
    assert judged("assertion", wrapped, trajectory, when=when).passed is verdict.applies


def test_a_result_with_its_duration_counts():
    async def slow(_tool, _arguments):
        return Result.success("done")._replace(usage=Usage(1, 200.0))

    assert "took 200 s" in judged("tool_exec", {"tool": "a"}, way(), AssertionContext(slow)).message
