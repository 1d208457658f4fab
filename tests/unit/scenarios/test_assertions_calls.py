"""Assertions about calls: which of them count, and what is told of those that don't."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib import Content
from toolcrib.scenarios.assertions import Trajectory
from toolcrib.scenarios.assertions.trajectories import matches_expected
from trajectories import called, judged, stopped, way

REFUSED = stopped("pay", "invalid_arguments", code="invalid_arguments", args={"to": 1})
PAY = called("pay", args={"to": "ann", "sum": 5})


def holds(kind, params, *calls, **more):
    verdict = judged(kind, params, way(*calls), **more)
    assert verdict.applies
    assert 0 <= verdict.score <= 1
    return verdict.passed


class TestToolsCalled:
    def test_only_good_calls_count(self):
        assert holds("tools_called", {"tool_names": ["pay"]}, PAY)
        assert not holds("tools_called", {"tool_names": ["pay"]}, called("pay", outcome="tool_error"))
        assert not holds("tools_called", {"tool_names": ["pay"]}, REFUSED)

    def test_a_call_that_a_person_declined_was_good(self):
        declined = called("locate", outcome="denied", code="consent_declined")
        assert holds("tools_called", {"tool_names": ["locate"]}, declined)
        assert not holds("tools_called", {"tool_names": ["locate"]}, declined._replace(code="rejected"))

    def test_calls_with_refused_arguments_count_where_one_says_so(self):
        assert holds("tools_called", {"tool_names": ["pay"], "ignore_validation": True}, REFUSED)
        assert not holds(
            "tools_called", {"tool_names": ["pay"], "ignore_validation": True}, stopped("pay", "denied")
        )

    def test_calls_without_arguments_count_unless_one_says_so(self):
        assert holds("tools_called", {"tool_names": ["pay"]}, called("pay"))
        assert not holds("tools_called", {"tool_names": ["pay"], "require_args": True}, called("pay"))

    def test_the_score_is_the_share_of_the_tools(self):
        verdict = judged("tools_called", {"tool_names": ["pay", "ask", "pay"]}, way(PAY))
        assert (verdict.passed, verdict.score) == (False, 0.5)
        told = '`ask` has 0 good calls, expected at least 1; calls: pay({"to":"ann","sum":5}) ok'
        assert verdict.message == told

    def test_too_many_calls_make_it_nothing(self):
        verdict = judged(
            "tools_called", {"tool_names": ["pay", "ask"], "max_calls": 1}, way(PAY, PAY, called("ask"))
        )
        assert (verdict.passed, verdict.score) == (False, 0)
        assert "`pay` has 2 good calls, expected at most 1" in verdict.message

    def test_none_may_be_wanted(self):
        assert holds("tools_called", {"tool_names": ["pay"], "min_calls": 0, "max_calls": 0})
        assert not holds("tools_called", {"tool_names": ["pay"], "min_calls": 0, "max_calls": 0}, PAY)

    def test_a_name_like_it_is_told(self):
        verdict = judged("tools_called", {"tool_names": ["get_order"]}, way(called("get_orders")))
        assert "did you mean `get_orders`?" in verdict.message


def test_what_must_not_be_called_must_not_be_tried():
    assert holds("tools_not_called", {"tool_names": ["refund", "pay"]}, called("ask"))
    assert not holds("tools_not_called", {"tool_names": ["refund", "pay"]}, stopped("pay", "denied"))
    assert not holds("tools_not_called", {"tool_names": ["pay"]}, REFUSED)


@pytest.mark.parametrize(
    ("expected", "fits"),
    [
        ({"to": "ann"}, True),
        ({"to": "ann", "sum": "5"}, True),
        ({"sum": 5.0}, True),
        ({"sum": None}, True),
        ({"note": None}, False),
        ({"to": "bob"}, False),
        ({"to": "ann", "note": ""}, False),
    ],
)
def test_some_call_has_the_arguments(expected, fits):
    assert holds("tool_args", {"tool_name": "pay", "expected_args": expected}, called("pay"), PAY) is fits


def test_the_nearest_call_is_told():
    far, near = called("pay", args={"to": "bob"}), called("pay", args={"to": "bob", "sum": 5})
    verdict = judged(
        "tool_args", {"tool_name": "pay", "expected_args": {"to": "ann", "sum": 5}}, way(far, near)
    )
    assert verdict.message.endswith('nearest is pay({"to":"bob","sum":5}) ok: `to` is not ann')
    assert "no calls" in judged("tool_args", {"tool_name": "pay", "expected_args": {"to": 1}}, way()).message


@pytest.mark.parametrize(
    ("wanted", "got", "fits"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, True),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "c": 3}]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": {"b": 1}}, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "true"}, {"a": True}, True),
        ({"a": 1}, {"a": "1"}, True),
        ({"a": 1}, {"a": None}, False),
        ({"a": []}, {"a": ""}, False),
    ],
)
def test_values_are_compared_as_people_mean_them(wanted, got, fits):
    assert matches_expected(wanted, got) is fits


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(30), deadline=None)
@given(JSON)
def test_every_value_is_as_itself(value):
    assert matches_expected(value, value)


def test_excluded_arguments_are_not_tried_either():
    excluded = {"tool_name": "pay", "excluded_args": {"to": "ann"}}
    assert holds(
        "tool_args_excluded", excluded, called("pay", args={"to": "bob"}), called("ask", args={"to": "ann"})
    )
    assert not holds("tool_args_excluded", excluded, stopped("pay", args={"to": "ann"}))
    forbidden = {"tool_name": "pay", "forbidden_args": {"to": ["bob", "ann"], "sum": 7}}
    assert not holds("tools_not_called_with_args", forbidden, PAY)
    assert not holds("tools_not_called_with_args", forbidden, called("pay", args={"sum": 7}))
    assert not holds(
        "tool_args_excluded",
        {"tool_name": "pay", "excluded_args": {"to": None}},
        called("pay", args={"to": None}),
    )
    assert holds("tool_args_excluded", {"tool_name": "pay", "excluded_args": {"to": None}}, PAY)


class TestCallsAsDescribed:
    def test_all_calls_of_the_tool_are(self):
        params = {"tool_name": "pay", "args_match": {"to": "^[a-z]+$"}}
        assert holds("tool_calls_with_args", params, PAY, called("ask"))
        verdict = judged("tool_calls_with_args", params, way(PAY, called("pay", args={"to": "ANN"})))
        assert (verdict.passed, verdict.score) == (False, 0.5)
        assert "`to` does not match" in verdict.message

    def test_there_is_one(self):
        assert not holds("tool_calls_with_args", {"tool_name": "pay"}, called("ask"))
        assert not holds("tool_calls_with_args", {"no_error": True})
        assert holds("tool_calls_with_args", {"no_error": True}, PAY, called("ask"))

    def test_refused_arguments_are_no_call_unless_one_says_so(self):
        params = {"tool_name": "pay", "expected_args": {"to": "ann"}}
        assert holds("tool_calls_with_args", params, REFUSED, PAY)
        assert not holds("tool_calls_with_args", params | {"ignore_validation": True}, REFUSED, PAY)

    @pytest.mark.parametrize(
        ("params", "fits"),
        [
            ({"result_includes": ["PAID", "5"]}, True),
            ({"result_includes": ["paid", "6"]}, False),
            ({"result_matches": '"sum":[0-9]'}, True),
            ({"result_matches": "PAID"}, False),
            ({"args_match": {"sum": "^5$"}}, True),
            ({"args_match": {"note": "."}}, False),
            ({"no_error": True}, True),
        ],
    )
    def test_what_they_answered(self, params, fits):
        call = PAY._replace(value={"status": "paid", "sum": 5})
        assert holds("tool_calls_with_args", {"tool_name": "pay", **params}, call) is fits

    def test_what_a_failure_says_is_its_answer(self):
        call = called("pay", outcome="tool_error", code="no_money", message="Nothing left.")
        params = {"tool_name": "pay", "result_includes": ["no_money", "nothing left"]}
        assert holds("tool_calls_with_args", params, call)
        assert not holds("tool_calls_with_args", params | {"no_error": True}, call)


@pytest.mark.parametrize(
    ("params", "number", "fits"),
    [
        ({"min": 1}, 0, False),
        ({"min": 1}, 1, True),
        ({"max": 1}, 2, False),
        ({"min": 2, "max": 2}, 2, True),
        ({"tool": "pay", "min": 2}, 2, True),
        ({"tool": "ask", "max": 0}, 2, True),
        ({"tool": "ask", "min": 1}, 2, False),
    ],
)
def test_counting_calls(params, number, fits):
    assert holds("tool_call_count", params, *[PAY] * number, REFUSED, stopped("pay", "not_found")) is fits


def test_counting_calls_with_refused_arguments():
    assert holds("tool_call_count", {"min": 2, "ignore_validation": True}, PAY, REFUSED)


TOOLS = st.lists(st.sampled_from("abc"), max_size=7)


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(item in rest for item in part)


@settings(max_examples=examples(30), deadline=None)
@given(TOOLS.filter(bool), TOOLS)
def test_laws_of_orders(sequence, names):
    calls = [called(name) for name in names]
    found = is_subsequence(sequence, names)
    assert holds("tool_call_sequence", {"sequence": sequence}, *calls) is found
    assert holds("tool_call_chain", {"steps": [{"tool": tool} for tool in sequence]}, *calls) is found
    assert holds("tool_anti_pattern", {"patterns": [{"sequence": sequence}]}, *calls) is not found
    assert holds("tool_call_sequence", {"sequence": sequence}, *(stopped(name) for name in names)) is False


@settings(max_examples=examples(30), deadline=None)
@given(TOOLS, st.integers(0, 4), st.integers(0, 4))
def test_laws_of_counts(names, least, more):
    calls = [called(name) for name in names]
    count = names.count("a")
    params = {"min": least, "max": least + more}
    assert holds("tool_call_count", {"tool": "a", **params}, *calls) is (least <= count <= least + more)
    assert holds("tool_call_count", params, *calls) is (least <= len(names) <= least + more)
    wanted = {"tool_names": ["a"], "min_calls": least, "max_calls": least + more}
    assert holds("tools_called", wanted, *calls) is (least <= count <= least + more)
    assert holds("tools_not_called", {"tool_names": ["a"]}, *calls) is (count == 0)


@settings(max_examples=examples(30), deadline=None)
@given(TOOLS, st.integers(1, 3))
def test_laws_of_repeats(names, most):
    text = "".join(names)
    repeated = any(tool * (most + 1) in text for tool in "abc")
    calls = [called(name) for name in names]
    assert holds("tool_no_repeat", {"max_repeats": most}, *calls) is not repeated
    assert holds("tool_no_repeat", {"max_repeats": most, "tools": "d"}, *calls)


def test_the_share_of_an_order_that_was_found_is_the_score():
    verdict = judged("tool_call_sequence", {"sequence": ["a", "b", "c", "a"]}, way(*map(called, "acb")))
    assert (verdict.passed, verdict.score) == (False, 0.5)
    assert "`c` was not called after a > b" in verdict.message


def test_a_step_of_a_chain_waits_for_a_call_that_fits():
    steps = [{"tool": "pay", "no_error": True}, {"tool": "pay", "args_match": {"to": "ann"}}]
    failed = called("pay", outcome="tool_error")
    assert holds("chain", {"steps": steps}, failed, called("pay"), called("pay"), PAY)
    verdict = judged("chain", {"steps": steps}, way(failed, called("pay"), called("pay")))
    assert verdict.score == 0.5
    assert "step 2 is missing: nearest is pay() ok: `to` is missing" in verdict.message


def test_a_forbidden_order_says_why():
    params = {"patterns": [{"sequence": ["a", "b"]}, {"sequence": ["b", "b"], "message": "twice"}]}
    verdict = judged("tool_anti_pattern", params, way(*map(called, "cbb")))
    assert verdict.message.startswith("twice: b > b")


@pytest.mark.parametrize(
    ("params", "fits"),
    [
        ({"max_calls": 4}, True),
        ({"max_calls": 3}, False),
        ({"max_errors": 2}, True),
        ({"max_errors": 1}, False),
        ({"max_error_rate": 0.5}, True),
        ({"max_error_rate": 0.4}, False),
    ],
)
def test_efficiency(params, fits):
    waiting = called("pay", outcome=None)
    assert holds("tool_efficiency", params, PAY, REFUSED, called("a", outcome="timeout"), waiting) is fits
    assert holds("tool_efficiency", params)


def test_errors():
    assert holds("no_tool_errors", {})
    assert holds("no_tool_errors", {}, PAY, called("pay", outcome=None))
    assert holds("no_tool_errors", {"tools": "ask"}, called("pay", outcome="timeout"))
    verdict = judged("no_tool_errors", {}, way(PAY, called("pay", outcome="timeout", message="Too slow.")))
    assert (verdict.passed, verdict.score) == (False, 0.5)
    assert verdict.message == "1 of 2 calls failed: pay() timeout: Too slow."


PICTURE = Content("image", data="AA==", mime_type="image/PNG; q=1")


class TestResults:
    @pytest.mark.parametrize(
        ("params", "fits"),
        [
            ({"patterns": ["Paid"]}, True),
            ({"patterns": ["paid", "ann"]}, True),
            ({"patterns": ["paid"], "occurrence": 2}, True),
            ({"patterns": ["paid"], "occurrence": 3}, False),
            ({"patterns": ["paid", "bob"]}, True),
            ({"patterns": ["ann", "bob"]}, False),
            ({"patterns": ["paid"], "tool": "ask"}, False),
        ],
    )
    def test_texts(self, params, fits):
        calls = (called("pay", value="PAID by ann"), called("pay", value={"status": "paid", "by": "bob"}))
        assert holds("tool_result_includes", params, *calls, stopped("pay", message="paid")) is fits

    def test_patterns(self):
        calls = (called("sum", value={"result": 21}), called("sum", value="about 22"))
        assert holds("tool_result_matches", {"pattern": "2[12]", "occurrence": 2}, *calls)
        verdict = judged("tool_result_matches", {"tool": "sum", "pattern": "^2"}, way(*calls))
        assert (
            verdict.message
            == "results of `sum` had a match of ^2 0 times, expected 1; another one was about 22"
        )

    def test_parts_are_looked_at_as_the_model_reads_them(self):
        assert holds("tool_result_matches", {"pattern": "image"}, called("draw", content=(PICTURE,)))

    @pytest.mark.parametrize(
        ("part", "kind"),
        [
            (PICTURE, "image"),
            (Content("audio", data="AA=="), "audio"),
            (Content("resource", uri="a", mime_type="video/mp4"), "video"),
            (Content("resource", uri="a", mime_type="application/pdf"), "document"),
            (Content("resource", uri="a"), "document"),
        ],
    )
    def test_media(self, part, kind):
        call = called("draw", content=(Content("text", text="Here."), part))
        fitting = [
            wanted
            for wanted in ("image", "audio", "video", "document")
            if holds("tool_result_has_media", {"tool": "draw", "media_type": wanted}, call)
        ]
        assert fitting == [kind]
        assert not holds("tool_result_has_media", {"tool": "scan", "media_type": kind}, call)

    def test_media_types(self):
        call = called("draw", content=(PICTURE,))
        assert holds("tool_result_media_type", {"mime_type": "image/png"}, call)
        assert holds("tool_result_media_type", {"mime_type": "image/*", "tool": "draw"}, call)
        verdict = judged("tool_result_media_type", {"mime_type": "image/gif"}, way(call))
        assert "there were image/png" in verdict.message


RULES = {"rules": [{"state": "closed", "allowed": ["ask"]}, {"state": "locked", "allowed": []}]}


class TestStates:
    def test_a_tool_is_called_where_it_may_be(self):
        assert holds("workflow_tool_access", RULES, called("pay", states={"shop": "open"}))
        assert holds("workflow_tool_access", RULES, called("ask", states={"shop": "closed"}))
        assert not holds(
            "workflow_tool_access", RULES, called("pay", states={"shop": "closed", "door": "open"})
        )
        assert not holds(
            "workflow_tool_access", RULES, called("ask", states={"shop": "closed", "door": "locked"})
        )
        assert not holds("workflow_tool_access", RULES, called("pay", states={"orders": {"1": "closed"}}))
        assert holds("workflow_tool_access", RULES)

    def test_without_states_nobody_knows(self):
        verdict = judged("workflow_tool_access", RULES, way(PAY))
        assert (verdict.applies, verdict.passed) == (False, False)
        assert "named state" in verdict.message

    @pytest.mark.parametrize(
        ("kind", "chosen", "expected"),
        [
            ("outcome_equivalent", {"metric": "final_state"}, "expected_state"),
            ("directional", {"check": "same_outcome"}, "baseline_state"),
        ],
    )
    def test_the_state_at_the_end(self, kind, chosen, expected):
        ended = way(states={"shop": "closed", "orders": {"1": "paid"}})
        assert judged(kind, chosen | {expected: "closed"}, ended).passed
        assert judged(kind, chosen | {expected: "paid"}, ended).passed
        assert not judged(kind, chosen | {expected: "open"}, ended).passed
        assert not judged(kind, chosen | {expected: "open"}, way()).applies


@pytest.mark.parametrize(
    ("kind", "chosen", "expected"),
    [
        ("outcome_equivalent", {"metric": "tool_calls"}, "expected_tools"),
        ("directional", {"check": "same_tool_calls"}, "baseline_tools"),
    ],
)
def test_the_same_tools(kind, chosen, expected):
    calls = (PAY, called("ask"), PAY, stopped("refund"))
    assert holds(kind, chosen | {expected: ["ask", "pay"]}, *calls)
    assert not holds(kind, chosen | {expected: ["ask"]}, *calls)
    assert not holds(kind, chosen | {expected: ["ask", "pay", "refund"]}, *calls)
    assert holds(kind, chosen | {expected: []})


def test_fields_that_get_lost():
    params = {"tool": "find", "fields": ["user", "page"]}
    assert holds("invariant_fields_preserved", params, called("find", args={"user": 1}))
    assert holds("invariant_fields_preserved", params, called("find"), called("find", args={"user": 1}))
    lost = way(called("find", args={"user": 1, "page": 1}), called("ask"), called("find", args={"page": 2}))
    verdict = judged("invariant_fields_preserved", params, lost)
    assert (verdict.passed, verdict.score) == (False, 0.5)
    assert "`user` is missing in call 2" in verdict.message


def test_secrets_are_not_told():
    calls = (
        called("login", args={"user": "ann", "password": "hunter22"}, value={"token": "tok-12345"}),
        called("pay", args={"note": "hunter22", "with": "tok-12345 or secrets-secret"}),
    )
    trajectory = way(*calls, hide=lambda text: text.replace("secrets-secret", "***"))
    message = judged("tools_called", {"tool_names": ["ask"]}, trajectory).message
    assert 'login({"user":"ann","password":"***"}) ok' in message
    assert '"note":"***","with":"*** or ***"' in message
    message = judged("tool_result_includes", {"patterns": ["x"]}, trajectory).message
    assert "tok-12345" not in message


def test_many_calls_are_counted():
    message = judged("tool_call_count", {"max": 1}, way(*[PAY] * 30)).message
    assert message.endswith(", 18 more")
    assert len(judged("tool_call_count", {"max": 0}, way(called("a", args={"x": "y" * 9000}))).message) < 300


def test_nothing_of_a_trajectory_is_needed():
    assert Trajectory() == Trajectory()
    assert judged("no_tool_errors", {}, Trajectory()).passed
