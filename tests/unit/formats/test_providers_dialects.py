"""Declarations of tools in each dialect, and arguments in the tool's own form again."""

from __future__ import annotations

import pytest

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import Descriptor
from toolcrib.core.text import compact
from toolcrib.formats.providers import DIALECTS, Loss, declare
from toolcrib.registry.registry import Registry

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "days": {"type": "integer"},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def tool(schema, name="weather", description="Tells the weather."):
    return Descriptor(name, description=description, input_schema=schema)


def declared(schema, dialect, **more):
    (declaration,) = declare([tool(schema, **more)], dialect)
    return declaration


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


# What is sent.

STRICT_CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "days": {"type": ["integer", "null"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
OPEN_CITY = {key: value for key, value in CITY.items() if key != "additionalProperties"}


@pytest.mark.parametrize(
    ("dialect", "definition"),
    [
        ("plain", {"name": "weather", "description": "Tells the weather.", "parameters": CITY}),
        (
            "openai",
            {
                "type": "function",
                "function": {"name": "weather", "description": "Tells the weather.", "parameters": CITY},
            },
        ),
        (
            "openai_strict",
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Tells the weather.",
                    "parameters": STRICT_CITY,
                    "strict": True,
                },
            },
        ),
        (
            "openai_responses",
            {
                "type": "function",
                "name": "weather",
                "description": "Tells the weather.",
                "parameters": CITY,
                "strict": False,
            },
        ),
        (
            "openai_responses_strict",
            {
                "type": "function",
                "name": "weather",
                "description": "Tells the weather.",
                "parameters": STRICT_CITY,
                "strict": True,
            },
        ),
        ("anthropic", {"name": "weather", "description": "Tells the weather.", "input_schema": CITY}),
        ("gemini", {"name": "weather", "description": "Tells the weather.", "parameters": OPEN_CITY}),
    ],
)
def test_a_tool_is_declared_in_the_form_of_each_dialect(dialect, definition):
    declaration = declared(CITY, dialect)
    assert declaration.definition == definition
    assert (declaration.name, declaration.tool, declaration.description) == (
        "weather",
        "weather",
        "Tells the weather.",
    )
    assert declaration.strict is dialect.endswith("strict")


def test_every_dialect_is_told_by_its_name():
    assert [*DIALECTS] == [dialect.name for dialect in DIALECTS.values()]


def test_a_tool_without_a_description_is_described_by_its_title_or_name():
    assert declared(CITY, "openai", description="").description == "weather"


def test_a_tool_without_arguments_is_declared_without_parameters_only_to_gemini():
    for schema in (Descriptor("t").input_schema, {"type": "object"}, {"type": "object", "properties": {}}):
        assert "parameters" not in declared(schema, "gemini").definition
        assert declared(schema, "openai").schema == {**schema, "properties": {}}
        assert declared(schema, "openai_strict").schema == {**closed(), "required": []}


# Order, names, bytes.


def test_declarations_stand_in_the_order_of_the_tools_and_are_the_same_byte_by_byte():
    tools = [
        tool(CITY, name="b"),
        tool(closed(z={"type": "string"}, a={"enum": [2, 1]}), name="a.b"),
        tool({}, name="c"),
    ]
    for dialect in DIALECTS:
        first = [compact(one.definition) for one in declare(tools, dialect)]
        again = declare(
            [one._replace(input_schema=dict(one.input_schema)) for one in reversed(tools)], dialect
        )
        assert [compact(one.definition) for one in again] == first
        assert [one.tool for one in again] == ["a.b", "b", "c"]


def test_a_schema_is_compiled_once_whatever_else_of_the_tool_changes():
    one, other = tool(CITY), tool(CITY, name="forecast")._replace(mode="mock")
    for dialect in DIALECTS:
        assert declare([one], dialect)[0].schema is declare([other], dialect)[0].schema


def test_names_are_aliases_that_every_provider_takes():
    registry = Registry([tool({}, name="pay.now"), tool({}, name="pay_now"), tool({}, name="x" * 80)])
    for dialect in DIALECTS:
        given = declare(registry.values(), dialect, {name: registry.alias_of(name) for name in registry})
        assert [one.name for one in given] == [registry.alias_of(name) for name in registry]
        assert [one.name for one in declare(registry.values(), dialect)] == [one.name for one in given]


def test_names_begin_with_a_letter_or_an_underscore_for_gemini():
    tools = [tool({}, name=name) for name in ("2d", "_2d", "-x", "a-b")]
    names = {one.tool: one.name for one in declare(tools, "gemini")}
    assert names.pop("2d").startswith("_2d_")
    assert names == {"-x": "_x", "_2d": "_2d", "a-b": "a-b"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": "x", "b": "x"}, "`a` and `b` have the same alias `x`"),
        ({"a": "no name"}, "`no name` of `a` is not a valid tool name in the dialect `openai`"),
        ({"a": ""}, "`` of `a` is not a valid tool name in the dialect `openai`"),
    ],
)
def test_a_name_that_no_provider_takes_is_refused(names, message):
    with pytest.raises(ConfigurationError) as error:
        declare([tool({}, name="a"), tool({}, name="b")], "openai", names)
    assert (error.value.message, error.value.code) == (message, "invalid_alias")


def test_a_dialect_that_is_not_there_is_refused_with_a_near_miss():
    with pytest.raises(ConfigurationError, match="unknown dialect `gemeni`") as error:
        declare([], "gemeni")
    assert (error.value.code, error.value.hint) == ("no_such_dialect", "did you mean `gemini`?")


# What all leave out, and how references and older drafts are told.


def test_what_speaks_to_nobody_who_gives_arguments_is_not_sent():
    schema = {
        "$schema": DRAFT_7,
        "$id": "https://x.example/s",
        "$comment": "Ours.",
        **closed(
            key={
                "type": "string",
                "writeOnly": True,
                "x-secret": True,
                "default": "s3cret",
                "examples": ["s3cret"],
            }
        ),
    }
    for dialect in DIALECTS:
        declaration = declared(schema, dialect)
        assert "s3cret" not in compact(declaration.definition)
        assert declaration.schema["properties"]["key"]["type"] in ("string", ["string", "null"])
        assert not declaration.schema["properties"]["key"].keys() & {
            "writeOnly",
            "x-secret",
            "default",
            "examples",
        }
        assert (
            Loss("/properties/key", "default", "dropped, because the field is secret") in declaration.losses
        )
    assert declared(schema, "plain").schema.keys() == {"type", "properties", "additionalProperties"}


def test_older_drafts_are_told_as_the_latest_has_them():
    schema = {
        "$schema": DRAFT_4,
        "id": "x",
        **closed(
            n={
                "type": "number",
                "minimum": 1,
                "exclusiveMinimum": True,
                "maximum": 2,
                "exclusiveMaximum": False,
            },
            l={"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
        ),
        "dependencies": {"n": ["l"], "l": {"required": ["n"]}},
    }
    assert declared(schema, "anthropic").schema == {
        **closed(
            n={"type": "number", "maximum": 2, "exclusiveMinimum": 1},
            l={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        ),
        "dependentRequired": {"n": ["l"]},
        "dependentSchemas": {"l": {"required": ["n"]}},
    }


POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}},
    "required": ["x"],
    "additionalProperties": False,
}


def test_references_are_written_out():
    schema = {**closed(at={"$ref": "#/$defs/point", "description": "Where"}), "$defs": {"point": POINT}}
    assert declared(schema, "openai").schema == closed(at={"description": "Where", **POINT})
    assert declared(schema, "openai").losses == ()


def test_references_stay_where_writing_them_out_would_be_long():
    big = {**POINT, "description": "d" * 400}
    schema = {**closed(**{name: {"$ref": "#/$defs/p"} for name in "abcdef"}), "$defs": {"p": big}}
    for dialect in ("plain", "openai", "anthropic"):
        assert declared(schema, dialect).schema["properties"]["f"] == {"$ref": "#/$defs/p"}
        assert declared(schema, dialect).schema["$defs"] == {"p": big}
    assert declared(schema, "openai_strict").strict
    assert declared(schema, "gemini").schema["properties"]["f"]["type"] == "object"


NODE = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "additionalProperties": False,
}


def test_recursion_stays_where_references_are_followed_and_is_a_loss_elsewhere():
    schema = {**closed(tree={"$ref": "#/$defs/node"}), "$defs": {"node": NODE}}
    assert declared(schema, "anthropic").schema == schema
    remark = "`node` refers to itself: it is expanded 3 levels deep and unchecked below that"
    assert Loss("", "$ref", remark) in declared(schema, "gemini").losses
    strict = declared(schema, "openai_strict")
    assert (strict.strict, strict.schema) == (False, schema)
    assert strict.losses[0].keyword == "properties"


def test_a_reference_that_leads_nowhere_takes_any_value():
    schema = closed(a={"$ref": "https://x.example/other"})
    declaration = declared(schema, "openai")
    assert declaration.schema == closed(a={})
    assert declaration.losses[-1] == Loss(
        "/properties/a", "$ref", '"https://x.example/other" cannot be inlined; any value is accepted'
    )


# What OpenAI and Anthropic refuse at the root.

EITHER = {
    **closed(a={"type": "string"}, b={"type": "string"}, c={"type": "string"}),
    "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}],
}
FORMS = {
    "oneOf": [
        {**closed(kind={"const": "card"}, number={"type": "string"}), "required": ["kind"]},
        {**closed(kind={"const": "cash"}), "required": ["kind"]},
    ]
}


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic", "gemini"])
def test_branches_that_only_say_more_are_told_in_words(dialect):
    declaration = declared(EITHER, dialect)
    assert declaration.description == "Tells the weather. Give at least one of: a; b and c."
    assert Loss("", "anyOf", "moved to the description") in declaration.losses
    assert [*declaration.schema["properties"]] == ["a", "b", "c"]


def test_where_the_root_may_say_all_it_does():
    assert declared(EITHER, "plain").schema == EITHER
    assert declared(FORMS, "plain").schema == {"type": "object", **FORMS}


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic", "gemini"])
def test_arguments_of_several_forms_are_declared_as_one_property(dialect):
    declaration = declared(FORMS, dialect)
    assert [*declaration.schema["properties"]] == ["arguments"]
    assert not declaration.schema.keys() & {"oneOf", "anyOf"}
    assert declaration.restore({"arguments": {"kind": "cash"}}) == {"kind": "cash"}
    assert declaration.restore({"kind": "cash"}) == {"kind": "cash"}
    assert declaration.restore({"arguments": "cash"}) == {"arguments": "cash"}
    card = {"kind": "card", "number": None} if dialect == "openai_strict" else {"kind": "card"}
    assert declaration.restore({"arguments": card}) == {"kind": "card"}
    if dialect in {"openai", "anthropic"}:
        assert declaration.losses == ()


def test_the_property_of_all_arguments_has_a_name_of_its_own():
    schema = {"anyOf": [closed(arguments={"type": "string"}), closed(b={})]}
    assert [*declared(schema, "openai").schema["properties"]] == ["arguments_"]


def test_all_of_at_the_root_is_merged():
    schema = {
        "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {}}}]
    }
    assert declared(schema, "openai").schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {}},
        "required": ["a"],
    }


def test_openai_wants_items_at_every_list():
    schema = closed(
        a={"type": "array"}, b={"type": ["array", "null"], "items": {"type": "array"}}, c={"items": True}
    )
    assert declared(schema, "openai").schema == closed(
        a={"type": "array", "items": {}},
        b={"type": ["array", "null"], "items": {"type": "array", "items": {}}},
        c={"items": {}},
    )
    assert declared(schema, "anthropic").schema["properties"]["a"] == {"type": "array"}


def test_anthropic_and_gemini_get_names_of_properties_that_they_take():
    schema = {
        **closed(**{"filter[id]": {"type": "string"}, "filter_id": {}, "1st": {}, "a.b": {}}),
        "required": ["filter[id]"],
    }
    anthropic, gemini = declared(schema, "anthropic"), declared(schema, "gemini")
    names = [*anthropic.schema["properties"]]
    assert names[1:] == ["filter_id", "1st", "a.b"]
    assert names[0].startswith("filter_id_")
    assert anthropic.schema["required"] == [names[0]]
    assert [*gemini.schema["properties"]] == [names[0], "filter_id", "_1st", "a_b"]
    assert anthropic.restore({names[0]: "x", "filter_id": 1}) == {"filter[id]": "x", "filter_id": 1}
    assert gemini.restore({names[0]: "x", "_1st": "2", "1st": 3}) == {"filter[id]": "x", "_1st": 2, "1st": 3}
    assert anthropic.restore({"filter[id]": "x"}) == {"filter[id]": "x"}
