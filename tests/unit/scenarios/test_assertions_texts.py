"""Assertions about what was said, about budgets and guardrails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.loading.prompts import Guardrail
from toolcrib.provider.models.protocol import Tokens
from trajectories import judged, way


def holds(kind, params, *texts, **more):
    verdict = judged(kind, params, way(say=[*texts], **more))
    assert verdict.applies
    assert 0 <= verdict.score <= 1
    return verdict.passed


def test_all_texts_stand_in_the_reply():
    params = {"patterns": ["ORD-1", "straße"]}
    assert holds("content_includes", params, "Hm.", "Order ord-1: STRASSE 5")
    assert not holds("content_includes", params, "ORD-1 straße", "Anything else?")
    verdict = judged("contains", params, way(say="ORD-1"))
    assert (verdict.score, verdict.message) == (0.5, '"straße" missing; the reply is "ORD-1"')


def test_one_text_was_said_anywhere():
    assert holds("content_includes_any", {"patterns": ["refund", "exchange"]}, "We EXCHANGE it.", "Bye.")
    assert not holds("content_includes_any", {"patterns": ["refund"]}, "Bye.")
    assert not holds("content_includes_any", {"patterns": ["refund"]})


def test_no_text_was_said_anywhere():
    assert not holds("content_excludes", {"patterns": "NULL"}, "It is null.", "Bye.")
    assert holds("content_excludes", {"patterns": "null"}, "Bye.")
    assert holds("content_excludes", {"patterns": "null"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("An ass.", True),
        ("ASS", True),
        ("a pass", False),
        ("assess", False),
        ("ass-like", True),
        ("c++ ", False),
    ],
)
def test_banned_words_are_words(text, found):
    assert holds("banned_words", {"words": ["ass"]}, text) is not found
    assert holds("content_excludes", {"patterns": ["ass"]}, text) is ("ass" not in text.lower())


def test_words_may_end_with_signs():
    assert not holds("banned_words", {"words": ["c++"]}, "I like C++.")
    assert holds("banned_words", {"words": ["c++"]}, "abc++")


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("(?i)(san francisco|37\\.77)", "In San FRANCISCO.", True),
        ("(?i)capital.*france", "The capital of France", True),
        ("\\d+.*days?", "within 30 business days", True),
        ("(?i)(receipt|\\$)", "5 $", True),
        ("^a$", "a\nb", False),
        ("(?m)^b$", "a\nb", True),
        ("(?s)a.b", "a\nb", True),
        ("(?s:a.)b.c", "a\nb\nc", False),
        ("(?s:a.)b.c", "a\nbxc", True),
        ("(?s)a(?-s:.)b", "a\nb", False),
        ("(?s)(x|(a.b))", "a\nb", True),
        ("(?is)A\\.[.].B", "a..\nb", True),
        ("a.b", "a\nb", False),
        ("(?P<year>[0-9]{4})", "in 2030", True),
        ("x", "", False),
    ],
)
def test_patterns_are_those_of_go(pattern, text, fits):
    assert holds("content_matches", {"pattern": pattern}, text) is fits


def test_a_pattern_takes_linear_time():
    assert not holds("regex", {"pattern": "(a+)+$"}, "a" * 50_000 + "b")


@settings(max_examples=examples(25), deadline=None)
@given(st.text(max_size=20), st.integers(1, 25))
def test_lengths(text, bound):
    assert holds("min_length", {"min": bound}, text) is (len(text) >= bound)
    assert holds("max_length", {"max": bound}, text) is (len(text) <= bound)
    assert holds("length", {"max_tokens": bound}, text) is (len(text) // 4 <= bound)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("One", 1),
        ("One. Two!", 2),
        ("It is 3.5 or so.", 1),
        ("Wait... what?!", 2),
        ("One.\nTwo.", 2),
    ],
)
def test_sentences(text, number):
    assert holds("sentence_count", {"min": number, "max": number}, text)
    assert not holds("max_sentences", {"min": number + 1}, text)
    assert number == 0 or not holds("sentence_count", {"max": number - 1}, text)


def test_fields():
    assert holds("required_fields", {"fields": ["Total", "sum"]}, "total = sum")
    assert judged("field_presence", {"fields": ["a", "b", "c", "d"]}, way(say="a b")).score == 0.5


WRAPPED = 'Here:\n\n```json\n{"n": [1, 2]}\n```\nBye {"n": 3}.'


class TestJSON:
    @pytest.mark.parametrize(
        ("text", "params", "fits"),
        [
            (' {"a": 1}\n', {}, True),
            ("7", {}, True),
            ("", {}, False),
            ('{"a": NaN}', {}, False),
            ('{"a": 1, "a": 2}', {"allow_wrapped": True}, False),
            ("{'a': 1}", {}, False),
            (WRAPPED, {}, False),
            (WRAPPED, {"allow_wrapped": True}, True),
            (WRAPPED, {"extract_json": True}, True),
            ('{"a": 1}', {"allow_wrapped": True}, True),
            ("see ```json {} ```", {"allow_wrapped": True}, False),
            ("[ok] it is {1} or [2]", {"extract_json": True}, True),
            ("[" * 100_000, {"extract_json": True}, False),
        ],
    )
    def test_where_it_may_stand(self, text, params, fits):
        assert holds("is_valid_json", params, text) is fits

    def test_the_way_out_is_told(self):
        message = judged("is_valid_json", {}, way(say=WRAPPED)).message
        assert "`allow_wrapped` searches code blocks" in message
        assert judged("valid_json", {}, way()).message == "no JSON; there is no reply"

    def test_a_schema(self):
        params = {"schema": {"properties": {"n": {"items": {"maximum": 1}}}}, "allow_wrapped": True}
        verdict = judged("json_schema", params, way(say=WRAPPED))
        assert (verdict.passed, verdict.message) == (False, "/n/1: expected at most 1, got 2")
        assert holds("json_schema", {"schema": {"required": ["a"]}}, '{"a": 12345678901234567890}')
        assert not holds("json_schema", {"schema": True}, "none")

    @pytest.mark.parametrize(
        ("params", "fits"),
        [
            ({"expression": "n", "expected": [1, 2]}, True),
            ({"expression": "n", "expected": [1]}, False),
            ({"expression": "n[0]", "expected": 1.0}, True),
            ({"expression": "length(n)", "min": 2, "max": 2}, True),
            ({"expression": "length(n)", "min": 3}, False),
            ({"expression": "length(n)", "max": 1}, False),
            ({"expression": "n", "min": 1}, False),
            ({"expression": "n", "contains": [2, 1]}, True),
            ({"expression": "n", "contains": [3]}, False),
            ({"expression": "n[0]", "contains": [1]}, False),
            ({"expression": "n", "min_results": 2, "max_results": 2}, True),
            ({"expression": "n", "min_results": 3}, False),
            ({"expression": "n", "max_results": 1}, False),
            ({"expression": "n[0]", "min_results": 0}, False),
            ({"expression": "n"}, True),
            ({"expression": "m"}, False),
            ({"expression": "m", "expected": None}, True),
            ({"expression": "length(n[0])", "min": 1}, False),
        ],
    )
    def test_a_path(self, params, fits):
        assert holds("json_path", {**params, "allow_wrapped": True}, WRAPPED) is fits

    def test_what_was_found_is_told(self):
        params = {"jmespath_expression": "n", "expected": 3, "extract_json": True}
        assert judged("json_path", params, way(say=WRAPPED)).message == "n is [1,2], expected 3"
        assert (
            "invalid argument" in judged("json_path", {"expression": "abs(n)"}, way(say='{"n": "a"}')).message
        )


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("content_includes", {"patterns": ["a"]}),
        ("content_excludes", {"patterns": ["a"]}),
        ("is_valid_json", {}),
        ("max_length", {"max": 5}),
        ("guardrail_triggered", {"validator": "length", "should_trigger": False}),
        ("llm_judge", {"criteria": "a"}),
        ("outcome_equivalent", {"metric": "content_hash", "expected_content": "a"}),
        ("directional", {"check": "similar_content", "baseline_content": "a"}),
        ("assertion", {"eval_type": "min_length", "eval_params": {"min": 5}, "min_score": 0.5}),
    ],
)
def test_where_no_model_speaks_nothing_of_what_was_said_applies(kind, params):
    verdict = judged(kind, params, way(has_text=False, guardrails=(Guardrail("length", {"max": 1}),)))
    assert (verdict.applies, verdict.passed) == (False, False)
    assert "without a model" in verdict.message


def test_what_is_about_calls_applies_without_a_model():
    assert judged("no_tool_errors", {}, way(has_text=False)).passed
    assert judged(
        "directional", {"check": "same_tool_calls", "baseline_tools": []}, way(has_text=False)
    ).passed


def test_the_reply_as_it_was():
    assert holds(
        "outcome_equivalent", {"metric": "content_hash", "expected_content": "Done."}, "Hm.", "Done."
    )
    assert not holds("outcome_equivalent", {"metric": "content_hash", "expected_content": "Done."}, "Done")


def test_words_in_common():
    params = {"check": "similar_content", "baseline_content": "a b c d"}
    verdict = judged("directional", params, way(say="B C d e"))
    assert (verdict.passed, verdict.score) == (True, 0.6)
    assert not judged("directional", params | {"threshold": 0.7}, way(say="B C d e")).passed
    assert not judged("directional", params, way()).passed


class TestGuardrails:
    RUDE = Guardrail("banned_words", {"words": ["ass"]})
    LONG = Guardrail("length", {"max_characters": 9})

    @pytest.mark.parametrize(
        ("text", "name", "wanted", "fits"),
        [
            ("A pass.", "banned_words", False, True),
            ("An ass.", "banned_words", False, False),
            ("An ass.", "banned_words", True, True),
            ("A pass.", "banned_words", True, False),
            ("An ass.", "content_excludes", True, True),
            ("Far too long.", "length", True, True),
            ("Far too long.", "max_length", True, True),
            ("Short.", "length", True, False),
        ],
    )
    def test_what_they_find(self, text, name, wanted, fits):
        params = {"validator_type": name, "should_trigger": wanted}
        assert holds("guardrail_triggered", params, text, "Bye.", guardrails=(self.RUDE, self.LONG)) is fits

    def test_one_that_is_not_there_finds_nothing_and_proves_nothing(self):
        params = {"validator": "banned_words", "should_trigger": False}
        verdict = judged("guardrail_triggered", params, way(say="An ass.", guardrails=(self.LONG,)))
        assert (verdict.applies, verdict.message) == (False, "the prompt has no guardrail `banned_words`")

    def test_one_with_a_fault_is_told(self):
        broken = Guardrail("length", {"maximum": 3})
        verdict = judged("guardrail_triggered", {"validator": "length"}, way(say="a", guardrails=(broken,)))
        assert not verdict.passed
        assert "maximum" in verdict.message

    def test_one_may_be_judged_by_its_score(self):
        half = {"eval_type": "contains", "eval_params": {"patterns": ["a", "b"]}, "min_score": 0.5}
        guards = (Guardrail("guardrail", half),)
        for text, found in (("a", False), ("c", True)):
            verdict = judged(
                "guardrail_triggered", {"validator": "contains"}, way(say=text, guardrails=guards)
            )
            assert verdict.passed is found


@pytest.mark.parametrize(
    ("params", "fits"),
    [
        ({"max_cost_usd": 0.25}, True),
        ({"max_cost_usd": 0.2}, False),
        ({"max_total_tokens": 30}, True),
        ({"max_total_tokens": 29}, False),
        ({"max_input_tokens": 10, "max_output_tokens": 20}, True),
        ({"max_input_tokens": 9, "max_output_tokens": 20}, False),
        ({"max_input_tokens": 10, "max_output_tokens": 19}, False),
    ],
)
def test_budgets(params, fits):
    assert holds("cost_budget", params, cost=0.25, tokens=Tokens(10, 20, cached=5)) is fits
