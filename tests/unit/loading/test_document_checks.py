"""The shape of a document: faults as problems, in words that a person can act on."""

from __future__ import annotations

import pytest

from toolcrib.core.schemas import KINDS as DOCUMENT_KINDS
from toolcrib.core.schemas import LATER_KEYS
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.document_checks import MAX_PROBLEMS, DocumentChecker

KINDS = Executors({"mock": MockExecutor})


@pytest.fixture(scope="module")
def tool():
    return DocumentChecker("descriptor", KINDS)


def told(shape, value):
    return [(problem.code, problem.pointer) for problem in shape.problems(value)]


@pytest.mark.parametrize("value", [None, 3, "text", [], [{}], True])
def test_what_is_no_object_is_no_document(tool, value):
    assert told(tool, value) == [("wrong_type", "")]


def test_a_right_document_has_no_problem(tool):
    assert tool.problems({"name": "x", "mock": {"result": 1}}) == []


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_every_key_of_later_is_named_and_the_rest_is_judged(kind):
    shape = DocumentChecker(kind, KINDS)
    value = {**dict.fromkeys(LATER_KEYS[kind]), "extra": 1}
    problems = shape.problems(value)
    later = [problem.pointer for problem in problems if problem.code == "not_supported_yet"]
    assert later == [f"/{key}" for key in sorted(LATER_KEYS[kind])]
    assert {problem.code for problem in problems} == {
        "unknown_key",
        "missing_key",
        *(["not_supported_yet"] if later else []),
    }


OWN_WORDS = [
    ({}, "/mock", "a mock needs exactly one of"),
    ({"result": 1, "error": "no"}, "/mock", "a mock needs exactly one of"),
    ({"rules": [{"reply": {}}]}, "/mock/rules/0/reply", "a reply needs exactly one of"),
    ({"sequence": [{"result": 1, "template": "x"}]}, "/mock/sequence/0", "a reply needs exactly one of"),
    ({"content": [{"type": "image"}]}, "/mock/content/0", "an image or audio part has `mime_type`"),
    ({"content": [{"type": "text", "text": "a", "data": "b"}]}, "/mock/content/0", "a text part has `text`"),
]


@pytest.mark.parametrize(("mock", "pointer", "words"), OWN_WORDS)
def test_keys_that_do_not_go_together_are_told_in_the_schemas_own_words(tool, mock, pointer, words):
    (problem,) = tool.problems({"name": "x", "mock": mock})
    assert (problem.code, problem.pointer) == ("wrong_combination", pointer)
    assert words in problem.message


@pytest.mark.parametrize("beside", [{"rules": [{"reply": {"result": 1}}]}, {"sequence": [{"result": 1}]}])
def test_a_key_that_has_no_effect_there_is_named(tool, beside):
    (problem,) = tool.problems({"name": "x", "mock": {**beside, "latency": "5s"}})
    assert (problem.code, problem.pointer) == ("wrong_combination", "/mock/latency")
    assert problem.message == "`latency` cannot be combined with the keys next to it"


PLAIN_WORDS = [
    ({"rules": [{"name": "x"}]}, "missing_key", "/mock/rules/0/reply"),
    ({"rules": [{"reply": {"result": 1}, "wen": {}}]}, "unknown_key", "/mock/rules/0/wen"),
    ({"result": 1, "reslt": 1}, "unknown_key", "/mock/reslt"),
    ({"error": {"message": "x"}}, "missing_key", "/mock/error/code"),
    ({"generate": False}, "not_allowed", "/mock/generate"),
    ({"result": 1, "latency": "soon"}, "wrong_form", "/mock/latency"),
    ({"result": 1, "progress": [{}]}, "missing_key", "/mock/progress/0/progress"),
    ({"rules": []}, "wrong_value", "/mock/rules"),
]


@pytest.mark.parametrize(("mock", "code", "pointer"), PLAIN_WORDS)
def test_other_faults_keep_their_own_words(tool, mock, code, pointer):
    assert told(tool, {"name": "x", "mock": mock}) == [(code, pointer)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "a b", "description": ""}, "a name begins with a letter or `_`"),
        ({"name": "x", "timeout": "5 s"}, "a duration is a number with its unit"),
        ({"name": "x", "help_url": "here"}, "an address begins with `https://`"),
    ],
)
def test_a_wrong_form_says_what_the_form_is_and_what_was_seen(tool, value, words):
    (problem,) = tool.problems(value)
    assert words in problem.message
    assert "; got " in problem.message


class Pigeons:
    """The kinds of a house with one mode, whose block has a pattern without words of its own."""

    modes = ("pigeon", "silent")

    def schema_for(self, mode):
        coop = {"type": "string", "pattern": "^C[0-9]$"}
        forms = {
            "oneOf": [{"type": "object", "required": ["corn"]}, {"type": "object", "required": ["peas"]}]
        }
        schema = {"type": "object", "properties": {"coop": coop, "food": forms}}
        return schema if mode == "pigeon" else None

    def check_binding(self, mode, descriptor):
        return ()


def test_a_pattern_without_words_of_its_own_is_shown():
    shape = DocumentChecker("descriptor", Pigeons())
    (problem,) = shape.problems({"name": "x", "pigeon": {"coop": "D9"}})
    assert (problem.code, problem.pointer) == ("wrong_form", "/pigeon/coop")
    assert "^C[0-9]$" in problem.message


def test_forms_without_words_of_their_own_are_told_by_the_nearest():
    shape = DocumentChecker("descriptor", Pigeons())
    assert told(shape, {"name": "x", "pigeon": {"food": {"peas": 1, "corn": 1}}}) == [
        ("wrong_combination", "/pigeon/food")
    ]
    (problem,) = shape.problems({"name": "x", "pigeon": {"food": {"pea": 1}}})
    assert (problem.code, problem.pointer.rpartition("/")[0]) == ("missing_key", "/pigeon/food")


def test_a_place_of_the_wrong_type_has_no_other_fault(tool):
    assert told(tool, {"name": "x", "mock": {"result": 1, "latency": 5}}) == [("wrong_type", "/mock/latency")]
    assert told(tool, {"name": "x", "mock": 3}) == [("wrong_type", "/mock")]


def test_too_many_faults_are_cut_with_a_word(tool):
    problems = tool.problems(
        {"name": "x", "labels": {f"key{number}": number for number in range(MAX_PROBLEMS + 1)}}
    )
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].code == "too_many_problems"


def test_the_block_of_a_mode_that_is_not_installed_is_left_to_it(tool):
    assert tool.problems({"name": "x", "mode": "pigeon", "pigeon": {"coop": 3}}) == []
    assert tool.problems({"name": "x", "live": {"anything": 1}}) == []
    assert told(tool, {"name": "x", "mode": "pigeon", "pigeon": 3}) == [("unknown_key", "/pigeon")]
    assert told(tool, {"name": "x", "live": 3}) == [("wrong_type", "/live")]


def test_an_unknown_key_names_the_keys_that_are_near(tool):
    (problem,) = tool.problems({"name": "x", "descripton": "y"})
    assert (problem.message, problem.hint) == ("unknown key `descripton`", "did you mean `description`?")


class Crows:
    """One mode, whose block takes values of one type."""

    modes = ("crow",)

    def __init__(self, name):
        self.name = name

    def schema_for(self, mode):
        return {"type": self.name}

    def check_binding(self, mode, descriptor):
        return ()


def test_modes_of_the_same_name_are_judged_by_their_own_schemas():
    texts, numbers, again = (
        DocumentChecker("descriptor", Crows(name)) for name in ("string", "number", "string")
    )
    for shape in (texts, again):
        assert told(shape, {"name": "x", "crow": "caw"}) == []
        assert told(shape, {"name": "x", "crow": 1}) == [("wrong_type", "/crow")]
    assert told(numbers, {"name": "x", "crow": "caw"}) == [("wrong_type", "/crow")]
    assert told(numbers, {"name": "x", "crow": 1}) == []


def test_a_pack_needs_no_schema_of_a_mode():
    class Broken(Crows):
        def schema_for(self, mode):
            return {"default": object()}

    assert told(DocumentChecker("pack", Broken("")), {"name": "x", "version": "1.0.0"}) == []
