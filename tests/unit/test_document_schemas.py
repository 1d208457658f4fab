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

from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.documents import read_documents
from toolcrib.loading.files import walk
from toolcrib.loading.shape import Shape
from toolcrib.loading.sources import parse
from toolcrib.schemas import KINDS, KNOWN_MODES, envelope, with_blocks
from toolcrib.validation import Validator, check_schema

ROOT = Path(__file__).resolve().parents[2]
MODES = Executors({"mock": MockExecutor})

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
        for path in walk(ROOT / folder):
            for document in read_documents(path, str(path))[0]:
                value: Any = document.value
                if path.name == "pack.yaml":
                    yield "pack", value
                elif ".tool." in path.name:
                    yield "descriptor", value
                elif ".scenario." in path.name:
                    yield "scenario", value


CORPUS = list(documents())
SCHEMAS = {kind: jsonschema.Draft202012Validator(with_blocks(kind, MODES.blocks())) for kind in KINDS}
SHAPES = {kind: Shape(kind, MODES) for kind in KINDS}


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


def names_a_foreign_mode(value: Any) -> bool:
    """Whether a document names a mode that no editor can know, and has its block."""
    mode = value.get("mode")
    return (
        isinstance(mode, str)
        and isinstance(value.get(mode), dict)
        and mode not in SCHEMAS["descriptor"].schema["properties"]
    )


@settings(max_examples=300, deadline=None)
@given(mutated())
def test_an_editor_and_the_loader_agree_on_the_shape(made):
    kind, value = made
    assume(kind != "descriptor" or not names_a_foreign_mode(value))
    accepted_by_editor = SCHEMAS[kind].is_valid(value)
    problems = SHAPES[kind].problems(value)
    assert (problems == []) is accepted_by_editor, problems
    assert all(problem.severity == "error" and problem.message for problem in problems)


@settings(max_examples=150, deadline=None)
@given(mutated())
def test_what_an_editor_refuses_never_loads(made):
    kind, value = made
    assume(kind != "pack")
    assume(kind != "descriptor" or not names_a_foreign_mode(value))
    found = parse(f"x.{kind}", value, MODES)
    if not SCHEMAS[kind].is_valid(value):
        assert (found.tools, found.scenarios) == ((), ())
        assert found.problems
    for problem in found.problems:
        assert problem.source == f"x.{kind}"
        assert problem.line == 1


@pytest.mark.parametrize(
    ("kind", "value"), CORPUS, ids=[json.dumps(next(iter(value.values()))) for _kind, value in CORPUS]
)
def test_the_corpus_fits_in_the_eyes_of_an_editor(kind, value):
    assert [error.message for error in SCHEMAS[kind].iter_errors(value)] == []
