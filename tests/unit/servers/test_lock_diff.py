"""What a change of a tool means for whoever calls it, and how it is shown."""

from __future__ import annotations

import pytest

from sampling import THOROUGH
from toolcrib.servers.lock_diff import MOST_LINES, compare, differences, render_lines

STRING = {"type": "string"}


def tool(schema=None, **more):
    """A tool with this input schema; `out` is its output schema."""
    definition = {
        "name": "t",
        "description": "Does it.",
        "inputSchema": {"type": "object"} if schema is None else schema,
    }
    if "out" in more:
        definition["outputSchema"] = more.pop("out")
    return {**definition, **more}


def shaped(required=(), closed=None, **properties):
    """An object's schema."""
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema if closed is None else {**schema, "additionalProperties": not closed}


def verdicts_of_arguments(before, after):
    return compare(tool(before), tool(after)).verdicts


def verdicts_of_results(before, after):
    return compare(tool(out=before), tool(out=after)).verdicts


COMPATIBLE, BREAKING = ("compatible",), ("breaking",)

WIDER = {
    "an optional property": (shaped(a=STRING), shaped(a=STRING, b=STRING)),
    "an optional property of a closed object": (
        shaped(closed=True, a=STRING),
        shaped(closed=True, a=STRING, b=STRING),
    ),
    "no longer required": (shaped(["a"], a=STRING), shaped(a=STRING)),
    "a higher maximum": (
        shaped(a={"type": "integer", "maximum": 3}),
        shaped(a={"type": "integer", "maximum": 7}),
    ),
    "a bound less": (shaped(a={"type": "string", "maxLength": 3}), shaped(a=STRING)),
    "an integer as a number": (shaped(a={"type": "integer"}), shaped(a={"type": "number"})),
    "null as well": (shaped(a=STRING), shaped(a={"type": ["string", "null"]})),
    "null as well, said otherwise": (shaped(a=STRING), shaped(a={"anyOf": [STRING, {"type": "null"}]})),
    "one more of an enum": (shaped(a={"enum": ["x"]}), shaped(a={"enum": ["x", "y"]})),
    "any text instead of an enum": (shaped(a={"enum": ["x", "y"]}), shaped(a=STRING)),
    "a closed object opened": (shaped(closed=True, a=STRING), shaped(a=STRING)),
    "wider items": (shaped(a={"type": "array", "items": {"type": "integer"}}), shaped(a={"type": "array"})),
    "one more alternative": (
        shaped(a={"anyOf": [{"type": "integer"}, STRING]}),
        shaped(a={"anyOf": [{"type": "integer"}, STRING, {"type": "null"}]}),
    ),
    "exclusive and inclusive": (
        shaped(a={"type": "integer", "exclusiveMaximum": 8}),
        shaped(a={"type": "integer", "maximum": 7}),
    ),
    "a definition moved": (
        {**shaped(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "integer", "maximum": 3}}},
        shaped(a={"type": "integer", "maximum": 4}),
    ),
    "recursion": (
        {**shaped(kids={"type": "array", "items": {"$ref": "#"}}), "$defs": {}},
        shaped(kids={"type": "array", "items": {"$ref": "#"}}, more=STRING),
    ),
    "an alternative told by a constant": (
        {"oneOf": [shaped(["k"], k={"const": "a"}), shaped(["k"], k={"const": "b"})]},
        {
            "oneOf": [
                shaped(["k"], k={"const": "a"}),
                shaped(["k"], k={"const": "b"}),
                shaped(["k"], k={"const": "c"}),
            ]
        },
    ),
    "another dialect, the same words": (
        {"$schema": "http://json-schema.org/draft-07/schema#", **shaped(["a"], a=STRING)},
        shaped(["a"], a=STRING),
    ),
    "a factor of the factor": (
        shaped(a={"type": "integer", "multipleOf": 6}),
        shaped(a={"type": "integer", "multipleOf": 3}),
    ),
    "fewer excluded": ({"not": {"enum": [1, 2]}}, {"not": {"const": 1}}),
}


@pytest.mark.parametrize(("before", "after"), WIDER.values(), ids=WIDER)
def test_arguments_that_were_right_stay_right_when_more_is_taken(before, after):
    assert verdicts_of_arguments(before, after) == COMPATIBLE


TIGHTER = {
    "a required property": (
        shaped(a=STRING),
        shaped(["b"], a=STRING, b=STRING),
        "/required",
        "`b` is now required",
    ),
    "required": (shaped(a=STRING), shaped(["a"], a=STRING), "/required", "`a` is now required"),
    "a property gone from a closed object": (
        shaped(closed=True, a=STRING, b=STRING),
        shaped(closed=True, a=STRING),
        "/properties/b",
        "`b` is no longer accepted",
    ),
    "closed": (
        shaped(a=STRING),
        shaped(closed=True, a=STRING),
        "/additionalProperties",
        "additional properties are no longer all accepted",
    ),
    "a lower maximum": (
        shaped(a={"type": "integer", "maximum": 7}),
        shaped(a={"type": "integer", "maximum": 3}),
        "/properties/a/maximum",
        "some values that were accepted are now refused",
    ),
    "a member of an enum": (
        shaped(a={"enum": ["x", "y"]}),
        shaped(a={"enum": ["x"]}),
        "/properties/a/enum",
        '"y" is no longer accepted',
    ),
    "a narrower type": (
        shaped(a={"type": ["string", "null"]}),
        shaped(a=STRING),
        "/properties/a/type",
        "null is no longer accepted",
    ),
    "another type": (
        shaped(a={"type": "number"}),
        shaped(a={"type": "integer"}),
        "/properties/a/type",
        "number is no longer accepted",
    ),
    "a type where there was none": (
        shaped(a={}),
        shaped(a=STRING),
        "/properties/a/type",
        "only this is accepted now",
    ),
    "an enum where there was none": (
        shaped(a=STRING),
        shaped(a={"enum": ["x"]}),
        "/properties/a/enum",
        "only this is accepted now",
    ),
    "a pattern": (
        shaped(a=STRING),
        shaped(a={"type": "string", "pattern": "^x"}),
        "/properties/a/pattern",
        "texts must now match this pattern, which cannot be shown to be compatible",
    ),
    "an alternative gone": (
        shaped(a={"anyOf": [STRING, {"type": "null"}]}),
        shaped(a=STRING),
        "/properties/a/type",
        "null is no longer accepted",
    ),
    "a free object with a named property": (
        shaped(a={"type": "object"}),
        shaped(a=shaped(b=STRING)),
        "/properties/a/properties/b/type",
        "only this is accepted now",
    ),
    "what can't be decided": (
        shaped(a={"not": STRING}),
        shaped(a={"not": {"type": "integer"}}),
        "/properties/a/not",
        "cannot be shown to be compatible",
    ),
    "deep in a definition": (
        {**shaped(a={"$ref": "#/$defs/A"}), "$defs": {"A": shaped(b={"type": "integer", "minimum": 1})}},
        {**shaped(a={"$ref": "#/$defs/A"}), "$defs": {"A": shaped(b={"type": "integer", "minimum": 2})}},
        "/$defs/A/properties/b/minimum",
        "some values that were accepted are now refused",
    ),
    "a nearest alternative": (
        shaped(a={"anyOf": [{"type": "integer", "maximum": 7}, {"type": "null"}]}),
        shaped(a={"anyOf": [{"type": "integer", "maximum": 3}, {"type": "null"}]}),
        "/properties/a/anyOf/0/maximum",
        "some values that were accepted are now refused",
    ),
    "an unknown dialect": (
        {"$schema": "urn:x"},
        {"$schema": "urn:x", "type": "object"},
        "",
        "cannot be shown to be compatible",
    ),
}


@pytest.mark.parametrize(("before", "after", "pointer", "why"), TIGHTER.values(), ids=TIGHTER)
def test_taking_less_breaks_callers(before, after, pointer, why):
    change = compare(tool(before), tool(after))
    assert change.verdicts == BREAKING
    assert (change.breaches[0].part, change.breaches[0].pointer, change.breaches[0].why) == (
        "inputSchema",
        pointer,
        why,
    )


@pytest.mark.parametrize(("before", "after"), [each[:2] for each in TIGHTER.values()], ids=TIGHTER)
def test_promising_more_of_results_is_compatible_where_it_can_be_shown(before, after):
    undecided = before == {"$schema": "urn:x"} or "not" in str(before)
    assert verdicts_of_results(before, after) == (BREAKING if undecided else COMPATIBLE)


LOOSER = {
    "no longer required": (shaped(["a"], a=STRING), shaped(a=STRING), "/required", "`a` may now be missing"),
    "one more of an enum": (
        shaped(a={"enum": ["x"]}),
        shaped(a={"enum": ["x", "y"]}),
        "/properties/a/enum",
        '"y" is now possible',
    ),
    "null as well": (
        shaped(a=STRING),
        shaped(a={"type": ["string", "null"]}),
        "/properties/a/type",
        "null is now possible",
    ),
    "a new property of a closed object": (
        shaped(closed=True, a=STRING),
        shaped(closed=True, a=STRING, b=STRING),
        "/properties/b",
        "`b` is new, but no additional properties were allowed",
    ),
    "opened": (
        shaped(closed=True, a=STRING),
        shaped(a=STRING),
        "/additionalProperties",
        "additional properties are now possible",
    ),
    "a higher maximum": (
        shaped(a={"type": "integer", "maximum": 3}),
        shaped(a={"type": "integer", "maximum": 7}),
        "/properties/a/maximum",
        "values that were excluded are now possible",
    ),
}


@pytest.mark.parametrize(("before", "after", "pointer", "why"), LOOSER.values(), ids=LOOSER)
def test_promising_less_of_results_breaks_readers(before, after, pointer, why):
    change = compare(tool(out=before), tool(out=after))
    assert change.verdicts == BREAKING
    assert [(each.part, each.pointer, each.why) for each in change.breaches] == [
        ("outputSchema", pointer, why)
    ]


def test_an_output_schema_that_goes_breaks_readers_and_one_that_comes_does_not():
    assert compare(tool(out=shaped(a=STRING)), tool()).verdicts == BREAKING
    assert compare(tool(), tool(out=shaped(a=STRING))).verdicts == COMPATIBLE


@pytest.mark.parametrize(
    ("before", "after", "verdicts", "pointers"),
    [
        ({"readOnlyHint": True}, {}, BREAKING, ["/readOnlyHint"]),
        (
            {"readOnlyHint": True},
            {"readOnlyHint": False, "destructiveHint": False},
            BREAKING,
            ["/readOnlyHint"],
        ),
        ({"destructiveHint": False}, {"destructiveHint": True}, BREAKING, ["/destructiveHint"]),
        ({"destructiveHint": False}, {"readOnlyHint": True}, COMPATIBLE, []),
        ({"idempotentHint": True}, {"idempotentHint": False}, BREAKING, ["/idempotentHint"]),
        ({"openWorldHint": False}, {}, BREAKING, ["/openWorldHint"]),
        ({}, {"readOnlyHint": True}, COMPATIBLE, []),
        ({"readOnlyHint": False}, {"readOnlyHint": True, "destructiveHint": True}, COMPATIBLE, []),
        ({"title": "A"}, {"title": "B"}, ("prompt-affecting",), []),
    ],
)
def test_an_assurance_that_is_taken_back_is_breaking(before, after, verdicts, pointers):
    change = compare(tool(annotations=before), tool(annotations=after))
    assert change.verdicts == verdicts
    assert [each.pointer for each in change.breaches] == pointers


@pytest.mark.parametrize(
    ("before", "after", "verdicts"),
    [
        (tool(), tool(description="Does it well."), ("prompt-affecting",)),
        (tool(), tool(title="It"), ("prompt-affecting",)),
        (tool(shaped(a=STRING)), tool(shaped(a={**STRING, "description": "x"})), ("prompt-affecting",)),
        (tool(shaped(a=STRING)), tool(shaped(a={**STRING, "default": "x"})), ("prompt-affecting",)),
        (tool(shaped(a=STRING)), tool(shaped(a=STRING, description=STRING)), COMPATIBLE),
        (
            tool(shaped(a=STRING)),
            tool(shaped(a=STRING, b={"description": "Do this first."})),
            ("compatible", "prompt-affecting"),
        ),
        (
            tool(shaped(a={"enum": ["x"]})),
            tool(shaped(a={"enum": ["x", "ignore what was said"]})),
            ("compatible", "prompt-affecting"),
        ),
        (
            tool(shaped(a=STRING)),
            tool(shaped(["a"], a=STRING), description="Other."),
            ("breaking", "prompt-affecting"),
        ),
        (tool(icons=[1]), tool(icons=[2], _meta={"x": 1}), ()),
        (tool(shaped(a=STRING)), tool(shaped(a=STRING)), ()),
    ],
)
def test_what_a_model_reads_is_told_apart(before, after, verdicts):
    assert compare(before, after).verdicts == verdicts


def lines(before, after):
    return [f"{line.sign} {line.text}" for line in render_lines(differences(before, after))]


def test_values_are_shown_with_their_place():
    before = tool(shaped(["a"], a={"type": "integer", "maximum": 7}, gone=STRING))
    after = tool(shaped(["a", "b"], a={"type": "integer", "maximum": 3}, new={"type": "null"}), title="It")
    assert lines(before, after) == [
        '+ title: "It"',
        "~ inputSchema /properties/a/maximum: 7 -> 3",
        '- inputSchema /properties/gone: {"type":"string"}',
        '+ inputSchema /properties/new: {"type":"null"}',
        '+ inputSchema /required: "b"',
    ]


def test_texts_are_shown_word_by_word():
    before = (
        "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."
    )
    after = before.replace("six ", "SIX ").replace("sixteen.", "sixteen. And more.\nLine")
    assert lines(tool(description=before), tool(description=after)) == [
        "  description",
        "- … two three four five [six] seven eight nine ten …",
        "+ … two three four five [SIX] seven eight nine ten …",
        "+ … thirteen fourteen fifteen sixteen. [And more.\\nLine]",
    ]


def test_what_is_shown_is_bounded_and_harmless():
    before = tool(shaped(**{f"p{number}": STRING for number in range(200)}))
    after = tool(shaped(), description="x " * 100_000 + "\x1b[2J\u202e\u200b")
    shown = lines(before, after)
    assert len(shown) == MOST_LINES + 1
    assert "more lines" in shown[-1]
    assert max(map(len, shown)) < 600
    assert "\x1b" not in "".join(shown)


def test_hidden_characters_are_spelt_out():
    assert lines(tool(description="Does it now."), tool(description="Does it\u200b now.")) == [
        "  description",
        "- Does [it] now.",
        "+ Does [it\\u200b] now.",
    ]


def test_the_order_of_a_list_is_a_difference():
    assert lines(tool(shaped(["a", "b"])), tool(shaped(["b", "a"]))) == [
        '~ inputSchema /required: ["a","b"] -> ["b","a"]'
    ]


@pytest.mark.exhaustive
def test_a_difference_between_huge_schemas_ends():
    def huge(bound):
        inner = STRING
        for _ in range(14 if THOROUGH else 12):
            inner = {"anyOf": [inner, {"type": "array", "items": inner}, {"maximum": bound}]}
        return inner

    assert compare(tool(huge(3)), tool(huge(4))).verdicts in {COMPATIBLE, BREAKING}
