"""What holds for the declaration of every tool, in every dialect."""

from __future__ import annotations

import json
from copy import deepcopy

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from declaring_forms import given as given_for
from declaring_forms import is_narrower, is_of_gemini, is_strict, judged
from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import Descriptor
from toolcrib.core.text import compact
from toolcrib.formats.openapi_document import openapi_document
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.formats.providers.openai_strict import MOST_LEVELS
from toolcrib.schema.generation import KeyedRandom, arguments_for
from toolcrib.schema.validation import Validator, check_schema

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "bb", "1"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])

LAWS = settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def subschemas():
    """Subschemas of keywords that mean much to each other."""

    def objects(inner):
        some = st.lists(inner, min_size=1, max_size=3)
        named = st.dictionaries(NAMES, inner, max_size=2)
        keywords = {
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "title": st.just("T"),
            "description": st.sampled_from(["x", "y."]),
            "default": SCALARS,
            "x-own": st.just(1),
            "writeOnly": st.booleans(),
            "minLength": st.integers(0, 1),
            "pattern": st.sampled_from(["^a", "(?!b)a"]),
            "format": st.sampled_from(["date", "uri", "int32"]),
            "minimum": st.integers(0, 2),
            "exclusiveMaximum": st.just(3),
            "maxProperties": st.integers(0, 2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
            "const": SCALARS,
            "properties": named,
            "patternProperties": named,
            "additionalProperties": inner,
            "unevaluatedProperties": st.just(False),
            "items": inner,
            "prefixItems": some,
            "uniqueItems": st.booleans(),
            "contains": inner,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "dependentRequired": st.just({"a": ["b"]}),
        }
        chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
        usual = st.sampled_from([["type"], ["type", "properties", "additionalProperties"], ["anyOf"], []])
        return st.tuples(usual, chosen).flatmap(
            lambda names: st.fixed_dictionaries(
                {name: keywords[name] for name in sorted({*names[0], *names[1]})}
            )
        )

    return st.recursive(st.booleans() | objects(st.booleans()), objects, max_leaves=5)


@st.composite
def input_schemas(draw):
    """A schema of arguments that a tool may have; some refer to definitions, one of which refers to itself."""
    root = draw(subschemas().filter(lambda schema: isinstance(schema, dict)))
    inner = draw(st.dictionaries(NAMES, subschemas() | st.just({"$ref": "#/$defs/x"}), max_size=3))
    definition = draw(subschemas() | st.just({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}))
    if draw(st.booleans()):
        root = {**root, "type": "object", "properties": inner}
    schema = {**root, "$defs": {"x": definition}}
    assume(not any(problem.severity == "error" for problem in check_schema(schema)))
    return schema


def declared(schema, dialect):
    (declaration,) = declare([Descriptor("tool", input_schema=schema)], dialect)
    return declaration


# Form.


@LAWS
@given(input_schemas())
def test_every_declaration_has_the_form_of_its_dialect(schema):
    before = deepcopy(schema)
    for dialect in DIALECTS:
        declaration = declared(schema, dialect)
        sent = compact(declaration.definition)
        assert "x-own" not in sent
        assert '"writeOnly"' not in sent
        assert '"$comment"' not in sent
        assert compact(declared(deepcopy(schema), dialect).definition) == sent
        assert declaration.schema["type"] == "object"
        assert not any(problem.severity == "error" for problem in check_schema(judged(declaration, dialect)))
        if declaration.strict:
            event("strict")
            assert is_strict(declaration.schema)
        if dialect == "gemini":
            assert is_of_gemini(declaration.schema)
    assert schema == before


@LAWS
@given(input_schemas())
def test_every_loss_names_a_place_of_the_schema(schema):
    for dialect in DIALECTS:
        for pointer, keyword, message in declared(schema, dialect).losses:
            assert keyword is not None
            assert message
            assert "\n" not in message
            node = schema
            for step in pointer.split("/")[1:]:
                node = node[int(step)] if isinstance(node, list) else node[step.replace("~1", "/")]
            assert isinstance(node, dict | bool)


# Meaning.


def valid_arguments(schema, values):
    judge = Validator(schema)
    drawn = [value for value in values if judge.is_valid(value)]
    try:
        return [
            *drawn,
            *(value for value in arguments_for(schema, KeyedRandom(1), 3) if isinstance(value, dict)),
        ]
    except ExpressionError:
        return drawn


ARGUMENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=3), max_size=6)


@LAWS
@given(st.sampled_from(["openai", "openai_strict", "anthropic", "gemini"]), input_schemas(), ARGUMENTS)
def test_arguments_that_mind_the_declaration_come_back_as_they_were(dialect, schema, drawn):
    declaration = declared(schema, dialect)
    judge = Validator(judged(declaration, dialect))
    for arguments in valid_arguments(schema, drawn):
        given_by_model = given_for(arguments, declaration, dialect)
        if not is_narrower(declaration):
            event("compared")
            assert judge.is_valid(given_by_model)
            assert declaration.restore(given_by_model) == arguments
        assert declaration.restore(json.loads(compact(arguments))) is not None


@LAWS
@given(st.sampled_from(["openai_strict", "gemini"]), input_schemas())
def test_where_nothing_is_lost_whatever_fits_the_declaration_fits_the_tool(dialect, schema):
    declaration = declared(schema, dialect)
    told = judged(declaration, dialect)
    judge = Validator(schema)
    try:
        made = arguments_for(told, KeyedRandom(7), 4)
    except ExpressionError:
        made = []
    for arguments in made:
        restored = declaration.restore(arguments)
        assert isinstance(restored, dict)
        if not declaration.losses:
            event("compared")
            assert judge.is_valid(restored)


@LAWS
@given(input_schemas(), ARGUMENTS)
def test_an_openapi_operation_accepts_what_its_tool_accepts(schema, drawn):
    made = openapi_document([Descriptor("tool", input_schema=schema)], {}, title="t", version="1")
    moved = Validator({"$ref": "#/components/schemas/tool.input", **made.document})
    own = Validator(schema)
    for arguments in drawn if not made.losses else ():
        event("compared")
        assert moved.is_valid(arguments) is own.is_valid(arguments)


@LAWS
@given(input_schemas(), VALUES)
def test_whatever_a_model_gives_is_passed_on(schema, junk):
    for dialect in DIALECTS:
        restored = declared(schema, dialect).restore({"a": junk, "arguments": junk, "é": [junk]})
        assert isinstance(restored, dict)


def test_schemas_of_many_levels_are_declared():
    schema = {"type": "string"}
    for _level in range(60):
        schema = {"type": "object", "properties": {"a": schema}, "additionalProperties": False}
    for dialect in DIALECTS:
        declaration = declared(schema, dialect)
        assert declaration.strict is False
    assert any(f"{MOST_LEVELS} levels" in loss.message for loss in declared(schema, "openai_strict").losses)
