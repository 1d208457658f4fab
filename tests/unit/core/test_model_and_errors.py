"""The values that are passed around, the tree of errors, the package's front door."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolcrib
from toolcrib import (
    Annotations,
    CallContext,
    Content,
    Descriptor,
    DocumentError,
    Example,
    ExpressionError,
    Failure,
    Origin,
    Outcome,
    Partial,
    Problem,
    Progress,
    Result,
    ToolcribError,
    Usage,
)
from toolcrib.core import errors
from toolcrib.core.errors import did_you_mean, near_misses
from toolcrib.core.model import NOTHING

VALUES = (
    Annotations(),
    CallContext(session=None),
    Content("text", "hello"),
    Descriptor(name="hello"),
    Example(args={}),
    Failure("broken", "It is broken."),
    Origin(),
    Partial(Content("text", "hello")),
    Problem(code="unknown_key", message="there is no key `nme`"),
    Progress(1),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_value_is_frozen_and_without_further_attributes(value):
    names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
    for name in names:
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
    assert not hasattr(value, "__dict__")


def test_calls_and_results_are_tuples_that_are_changed_by_copies():
    result = Result.success(1)
    with pytest.raises(AttributeError):
        result.value = 2
    assert result.with_meta(a=1).with_meta(b=2).meta == {"a": 1, "b": 2}
    assert result.meta == {}
    assert result.with_usage(2, 0.5).usage == Usage(attempts=2, duration=0.5)
    assert result.usage == Usage(0, 0.0)


def test_the_empty_mapping_that_values_share_cannot_be_filled():
    with pytest.raises(TypeError):
        NOTHING["a"] = 1


def test_a_good_result_has_neither_message_nor_error():
    result = Result.success({"a": 1}, content=(Content("text", text="a"),), meta={"b": 2})
    assert result == Result(Outcome.OK, {"a": 1}, (Content("text", text="a"),), meta={"b": 2})
    assert (result.message, result.error, result.raw_value) == ("", None, None)


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, 1])
def test_a_good_result_is_ok_whatever_its_value(value):
    assert Result.success(value).ok is True


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_a_failed_result_is_not_ok(outcome):
    assert Result.failure(outcome, "no").ok is False


@pytest.mark.parametrize("result", [Result.success(1), Result.failure(Outcome.DENIED, "no")])
def test_a_result_has_no_truth_value_that_could_be_mistaken_for_success(result):
    with pytest.raises(TypeError, match=r"use `result\.ok`"):
        bool(result)
    with pytest.raises(TypeError):
        _ = result or Result.success(2)


def test_the_names_of_the_constructors_are_no_predicates():
    assert not hasattr(Result, "failed")
    assert isinstance(Result.ok, property)


def test_a_failed_result_takes_its_outcome_for_a_code():
    assert Result.failure(Outcome.DENIED, "no").error == Failure("denied", "no")
    finer = Result.failure(
        Outcome.OVERLOADED, "no", code="circuit_open", details={"for": "3s"}, retryable=True
    )
    assert finer.error == Failure("circuit_open", "no", {"for": "3s"}, retryable=True)
    assert finer.message == "no"


def test_a_result_is_a_json_document():
    failed = Result.failure(Outcome.TOOL_ERROR, "no", details={"a": [1]}, raw_value="kept to ourselves")
    document = failed._replace(content=(Content("image", uri="x", title="y"),)).with_usage(1, 1 / 3).as_json()
    assert json.loads(json.dumps(document)) == {
        "outcome": "tool_error",
        "result": None,
        "content": [{"type": "image", "uri": "x", "title": "y"}],
        "message": "no",
        "error": {"code": "tool_error", "message": "no", "details": {"a": [1]}, "retryable": False},
        "usage": {"attempts": 1, "duration": 0.333333},
        "meta": {},
    }
    assert Result.success(1).as_json()["error"] is None


def test_a_part_shows_what_it_has():
    assert Content("text", text="").as_json() == {"type": "text", "text": ""}
    whole = Content("resource", "a", "YQ==", "text/plain", "file:///a", "A")
    assert list(whole.as_json()) == ["type", "text", "data", "mime_type", "uri", "title"]


def test_a_descriptor_says_nothing_by_default():
    tool = Descriptor(name="a")
    assert tool.input_schema == {"type": "object", "additionalProperties": False}
    assert (tool.mode, tool.output_schema, tool.timeout, tool.coerce) == (None, None, 30.0, "safe")
    assert tool.annotations == Annotations(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )


def test_a_place_is_the_line_of_the_pointer_or_of_the_document():
    assert Origin(source="a.yaml", line=4).place("/x") == "a.yaml:4"
    assert Origin(source="a.yaml", line=4, locate=lambda _pointer: (6, 1)).place("/x") == "a.yaml:6"
    assert Origin().place() == "<memory>:1"


def test_origins_are_equal_by_what_they_say():
    assert Origin(source="a", locate=lambda _pointer: (1, 1)) == Origin(source="a", files=None)


# Problems and errors.


def test_a_problem_says_where_what_and_the_way_out():
    problem = Problem(code="unknown_key", message="there is no `x`", pointer="/x", hint="write `y`")
    assert str(problem) == "unknown_key: there is no `x` (at /x)\n    hint: write `y`"
    assert str(problem.at("a.yaml", 3, 7)).startswith("a.yaml:3:7: unknown_key: ")
    assert str(Problem(code="c", message="m", source="a.yaml")) == "a.yaml: c: m"
    assert str(Problem(code="c", message="m", severity="warning")) == "warning: c: m"


def test_a_document_error_counts_and_lists_its_problems():
    one = Problem(code="a", message="first")
    two = Problem(code="b", message="second", severity="warning")
    assert str(DocumentError([one])) == "1 problem:\na: first"
    error = DocumentError([one, two])
    assert str(error) == "2 problems:\na: first\nwarning: b: second"
    assert (error.problems, error.code) == ((one, two), "invalid_document")


def test_an_error_has_a_code_and_a_hint():
    error = ToolcribError("it went wrong", hint="do it right")
    assert str(error) == "it went wrong\n    hint: do it right"
    assert (error.code, error.message) == ("error", "it went wrong")
    assert ToolcribError("x", code="finer").code == "finer"
    assert ToolcribError.code == "error"


def test_an_expression_error_can_be_seen_from_further_out():
    error = ExpressionError("no", code="c", hint="h", pointer="/b").under("/a")
    assert (error.pointer, error.code, error.hint, error.message) == ("/a/b", "c", "h", "no")


def test_an_expression_error_is_a_problem_of_its_document():
    assert ExpressionError("no", code="c", hint="h").problem("/a", hint="i") == Problem("c", "no", "/a", "h")
    assert ExpressionError("no").problem("/a", hint="i") == Problem("expression_failed", "no", "/a", "i")


def test_a_call_error_has_the_finer_code_of_its_result():
    result = Result.failure(Outcome.OVERLOADED, "no", code="circuit_open")
    assert errors.Overloaded(result).code == "circuit_open"
    assert errors.Overloaded(result._replace(error=None)).code == "overloaded"


def test_near_misses_do_not_care_for_case_and_are_few():
    assert near_misses("CITY", ["city", "island", "zip"]) == ["city"]
    assert len(near_misses("a1", [f"a1{digit}" for digit in range(9)])) == 3
    assert near_misses("city", []) == []
    assert did_you_mean("citi", ["city", "cite"]) == "did you mean `city` or `cite`?"
    assert did_you_mean("zzz", ["city"]) == ""


@settings(deadline=None)
@given(st.text(max_size=30), st.lists(st.text(max_size=12), max_size=8))
def test_near_misses_are_known_names(name, known):
    close = near_misses(name, known)
    assert set(close) <= set(known)
    assert len(close) == len(set(close))


# The front door.


def test_every_public_name_can_be_had():
    assert len(toolcrib.__all__) > 50
    for name in toolcrib.__all__:
        assert getattr(toolcrib, name) is not None
    assert {*toolcrib.__all__, "__version__"} == set(dir(toolcrib))


def test_the_version_is_that_of_the_distribution():
    assert toolcrib.__version__[0].isdigit()


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="module `toolcrib` has no attribute `Runtim`"):
        _ = toolcrib.Runtim
