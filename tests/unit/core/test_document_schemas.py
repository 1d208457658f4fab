"""The schemas that editors get: the blocks of the modes are in them, and the loader refuses what they refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib.core.schemas import KINDS, KNOWN_MODES, envelope, with_blocks, without_loader_checks
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.executors.python import PythonExecutor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.editor_schemas import editor_schema
from toolcrib.loading.sources import parse
from toolcrib.schema.validation import Validator, check_schema

ROOT = Path(__file__).resolve().parents[3]
MODES = Executors({"mock": MockExecutor, "python": PythonExecutor})

TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:example:tree",
    "type": "object",
    "properties": {
        "leaf": {"$ref": "#/$defs/leaf"},
        "child": {"$ref": "#"},
        "twin": {"$ref": "#/properties/leaf"},
        "far": {"$ref": "urn:example:far"},
    },
    "$defs": {"leaf": {"type": ["integer", "object"], "properties": {"next": {"$ref": "#/$defs/leaf"}}}},
    "additionalProperties": False,
}


def test_the_definitions_of_a_block_get_names_of_their_own():
    schema = with_blocks("descriptor", {"tree": TREE, "other": {"$defs": {"leaf": True}}})
    assert {"tree", "tree.leaf", "other", "other.leaf"} <= schema["$defs"].keys()
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/tree"}
    properties = schema["$defs"]["tree"]["properties"]
    assert {name: part["$ref"] for name, part in properties.items()} == {
        "leaf": "#/$defs/tree.leaf",
        "child": "#/$defs/tree",
        "twin": "#/$defs/tree/properties/leaf",
        "far": "urn:example:far",
    }
    assert "$id" not in schema["$defs"]["tree"]


def test_a_block_judges_as_it_does_alone():
    block = {key: value for key, value in TREE.items() if key != "$id"}
    block["properties"] = {key: value for key, value in block["properties"].items() if key != "far"}
    alone, within = Validator(block), Validator(with_blocks("descriptor", {"tree": block}))
    for value in (
        {},
        {"leaf": 1},
        {"leaf": "x"},
        {"child": {"child": {"leaf": 1}}},
        {"child": {"lef": 1}},
        {"twin": {"next": 1}},
        {"twin": {"next": ""}},
    ):
        assert within.is_valid({"name": "x", "tree": value}) is alone.is_valid(value), value


def test_a_block_may_be_anything():
    schema = with_blocks("descriptor", {"free": True})
    assert check_schema(schema) == []
    assert Validator(schema).is_valid({"name": "x", "free": [1, "two"]})


@pytest.mark.parametrize("kind", KINDS)
def test_putting_blocks_in_leaves_the_envelope_as_it_is(kind):
    before = copy.deepcopy(envelope(kind))
    made = with_blocks(kind, MODES.blocks())
    made["properties"].clear()
    assert envelope(kind) == before


def test_known_modes_have_a_place_whether_installed_or_not():
    schema = with_blocks("descriptor", MODES.blocks())
    for mode in KNOWN_MODES:
        assert mode in schema["properties"]
        assert ("$ref" in schema["properties"][mode]) is (mode in MODES.modes)


def test_the_mocks_of_a_scenario_are_those_of_the_mode():
    with_mock, without = (Validator(with_blocks("scenario", blocks)) for blocks in (MODES.blocks(), {}))
    value = {"scenario": "s", "steps": [{"call": "a"}], "mocks": {"a": {"reslt": 1}}}
    assert (with_mock.is_valid(value), without.is_valid(value)) == (False, True)


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, value) of every document of the corpus."""
    for folder in ("descriptors", "packs"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            for document in read_documents(path, str(path))[0]:
                value: Any = document.value
                if path.name == "pack.yaml":
                    yield "pack", value
                elif ".tool." in path.name:
                    yield "descriptor", value
                elif ".scenario." in path.name:
                    yield "scenario", value


CORPUS = list(documents())
SCHEMAS = {kind: jsonschema.Draft202012Validator(editor_schema(kind, MODES.blocks())) for kind in KINDS}
CHECKED = {
    kind: jsonschema.Draft202012Validator(without_loader_checks(with_blocks(kind, MODES.blocks())))
    for kind in KINDS
}
SHAPES = {kind: DocumentChecker(kind, MODES) for kind in KINDS}


def words(schema: Any) -> Iterator[str]:
    """Every property name of a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from words(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from words(part)


VOCABULARY = sorted({word for kind in KINDS for word in words(SCHEMAS[kind].schema)} | {"extra"})
VALUES = [
    None,
    True,
    0,
    1.5,
    -1,
    "",
    "text",
    "5s",
    "ok",
    "mock",
    [],
    ["a"],
    [{}],
    {},
    {"result": 1},
    {"a": "b"},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def mutated(draw):
    """A document of the corpus with up to three changes: a key or item lost, renamed, added, or of another type."""
    kind, value = draw(st.sampled_from(CORPUS))
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        *above, key = ("", *draw(st.sampled_from(list(places(value)))))
        holder = {"": value}
        for step in above:
            holder = holder[step]
        change = draw(st.sampled_from(["lose", "retype", "rename", "add"]))
        if change == "lose" and key != "":
            del holder[key]
        elif change == "rename" and isinstance(holder, dict) and key != "":
            holder[draw(st.sampled_from(VOCABULARY))] = holder.pop(key)
        elif change == "add" and isinstance(holder[key], dict):
            holder[key][draw(st.sampled_from(VOCABULARY))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif key != "":
            holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return kind, value


def has_a_foreign_block(value: Any) -> bool:
    """Whether a document has what may be the block of a mode that no editor can know."""
    known = SCHEMAS["descriptor"].schema["properties"]
    return any(isinstance(item, dict) and key not in known for key, item in value.items())


@settings(max_examples=examples(300), deadline=None)
@given(mutated())
def test_the_shape_is_what_the_schema_says_and_no_check_of_the_loader_tells_better(made):
    kind, value = made
    assume(kind != "descriptor" or not has_a_foreign_block(value))
    problems = SHAPES[kind].problems(value)
    assert (problems == []) is CHECKED[kind].is_valid(value), problems
    assert not (problems and SCHEMAS[kind].is_valid(value)), problems
    assert all(problem.severity == "error" and problem.message for problem in problems)


@settings(max_examples=examples(150), deadline=None)
@given(mutated())
def test_what_an_editor_refuses_never_loads(made):
    kind, value = made
    assume(kind != "pack")
    assume(kind != "descriptor" or not has_a_foreign_block(value))
    found = parse(f"x.{kind}", value, MODES)
    if not SCHEMAS[kind].is_valid(value):
        assert (found.tools, found.scenarios) == ((), ())
        assert found.problems
    for problem in found.problems:
        assert problem.source == f"x.{kind}"
        assert problem.line == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    sample(CORPUS, one_in=4),
    ids=sample([json.dumps(next(iter(value.values()))) for _kind, value in CORPUS], one_in=4),
)
def test_the_corpus_fits_in_the_eyes_of_an_editor(kind, value):
    assert [error.message for error in SCHEMAS[kind].iter_errors(value)] == []


def tool(**keys: Any) -> tuple[str, dict[str, Any]]:
    return "descriptor", {"name": "x", **keys}


def rule(reply: Any = None, **keys: Any) -> tuple[str, dict[str, Any]]:
    return tool(input_schema=True, mock={"rules": [{"reply": reply or {"result": 1}, **keys}]})


def expecting(**keys: Any) -> tuple[str, dict[str, Any]]:
    return "scenario", {"scenario": "s", "steps": [{"call": "a", "expect": keys}]}


INPUT = {"type": "object", "properties": {"x": {"type": "integer"}}}

TOLD = {
    "mode without its block": (tool(mode="mock"), "binding_missing"),
    "unknown mode": (tool(mode="mokc", mock={"result": 1}), "binding_missing"),
    "two blocks": (tool(mock={"result": 1}, live={}), "mode_missing"),
    "after_last of one reply": (rule(after_last="repeat"), "needless_key"),
    "after_last without a list": (tool(mock={"result": 1, "after_last": "repeat"}), "needless_key"),
    "condition without braces": (rule(when={"if": "x"}), "expression_syntax"),
    "unknown operator": (rule(when={"args": {"a": [{"$gtt": 1}]}}), "unknown_operator"),
    "mixed matcher": (rule(when={"args": {"a": {"$gt": 1, "b": 2}}}), "mixed_matcher"),
    "number to compare with": (expecting(result={"$gt": []}), "wrong_operand"),
    "list of choices": (expecting(error={"code": {"$in": "a"}}), "wrong_operand"),
    "type": (expecting(result={"$any": [1, {"$type": "text"}]}), "wrong_operand"),
    "tolerance": (expecting(result={"$close": [1, -1]}), "wrong_operand"),
    "length": (expecting(result={"$not": {"$len": "x"}}), "wrong_operand"),
    "error of ok": (expecting(outcome="ok", error={}), "contradiction"),
    "result of a failure": (expecting(outcome="timeout", result=1), "contradiction"),
    "result and error": (expecting(error={}, result=1), "contradiction"),
    "taken name": (("scenario", {"scenario": "s", "steps": [{"call": "a", "as": "now"}]}), "duplicate_name"),
    "no timeout": (tool(description="d", timeout="0s"), "out_of_range"),
    "long timeout": (tool(description="d", timeout="11m"), "out_of_range"),
    "longer timeout": (tool(description="d", timeout="600.5s"), "out_of_range"),
    "arguments as a list": (tool(input_schema={"type": "array"}), "arguments_not_object"),
    "unknown type": (tool(output_schema={"type": "strng"}), "invalid_schema"),
    "unknown inner type": (
        tool(input_schema={**INPUT, "properties": {"x": {"type": "int"}}}),
        "invalid_schema",
    ),
    "nothing to generate from": (tool(input_schema=INPUT, mock={"generate": True}), "no_output_schema"),
    "nothing to generate from in a rule": (rule([{"result": 1}, {"generate": True}]), "no_output_schema"),
    "nothing said": (tool(timeout="5s", tags=["a"]), "unrecognised_file"),
}


@pytest.mark.parametrize(("made", "code"), TOLD.values(), ids=TOLD)
def test_an_editor_sees_what_the_loader_tells_in_better_words(made, code):
    kind, value = made
    assert not SCHEMAS[kind].is_valid(value)
    assert SHAPES[kind].problems(value) == []
    assert [problem.code for problem in parse("x.yaml", value, MODES).problems if problem.code == code]


SEEN = {
    "timeouts": [
        tool(description="d", timeout=text)
        for text in ("1ms", "600s", "600000ms", "10m", "0.1h", "0.16h", "0.001d", "0.5s")
    ],
    "modes": [
        tool(mock={"result": 1}),
        tool(mode="mock", mock={"result": 1}, live={}),
        tool(mode="live", live={}),
    ],
    "matchers": [
        rule(when={"args": {"a": pattern}, "if": " {{ args.a }} "})
        for pattern in (
            {"$len": {"$gt": 1}},
            {"$close": [1, 0.1]},
            {"$in": "{{ args.b }}"},
            {"$contains": "x"},
            [{}],
        )
    ],
    "schemas": [
        tool(input_schema=True),
        tool(input_schema=INPUT),
        tool(output_schema={"type": ["null", "array"]}),
    ],
    "generating": [tool(output_schema=INPUT, mock={"generate": True})],
}


@pytest.mark.parametrize("made", SEEN.values(), ids=SEEN)
def test_an_editor_accepts_what_loads(made):
    for kind, value in made:
        assert [error.message for error in SCHEMAS[kind].iter_errors(value)] == []
        problems = parse("x.yaml", value, MODES).problems
        assert [problem for problem in problems if problem.severity == "error"] == []


def test_mocks_and_scenarios_have_the_same_matchers():
    mock: Any = MODES.blocks()["mock"]
    for name in ("matcher", "computed", "duration", "reply"):
        known = envelope("scenario")["$defs"].get(name, envelope("descriptor")["$defs"].get(name))
        assert known in (None, mock["$defs"][name])
