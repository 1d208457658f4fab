"""Where a schema keeps its subschemas, what its references mean, and which of them judge a place."""

from __future__ import annotations

import pytest

from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import SchemaIndex, children, is_schema, pattern_validator

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SINGLES = (
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items"),
    *("not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)


def paths(sites):
    return [site.path for site in sites]


def test_a_schema_has_the_form_of_an_object_or_a_boolean():
    assert is_schema({})
    assert is_schema(False)
    assert not is_schema([])
    assert not is_schema(None)


def test_a_path_is_a_pointer():
    assert pointer_to(()) == ""
    assert pointer_to(("a/b", "~", 0, "")) == "/a~1b/~0/0/"


def test_subschemas_stand_at_the_keywords_of_all_drafts():
    schema = {
        "$defs": {"a": {}},
        "definitions": {"a": {}},
        "properties": {"a": {}, "b": 5},
        "patternProperties": {"a": True},
        "dependentSchemas": {"a": {}},
        "dependencies": {"a": {}, "b": ["c"]},
        **{keyword: [{}, 5, False] for keyword in LISTS},
        **{keyword: {} for keyword in SINGLES if keyword != "items"},
        "enum": [{}],
        "const": {},
        "default": {},
        "x-unknown": {},
    }
    assert {path for path, _schema in children(schema)} == {
        ("$defs", "a"),
        ("definitions", "a"),
        ("properties", "a"),
        ("patternProperties", "a"),
        ("dependentSchemas", "a"),
        ("dependencies", "a"),
        *((keyword, position) for keyword in LISTS for position in (0, 2)),
        *((keyword,) for keyword in SINGLES if keyword != "items"),
    }
    assert list(children({"items": {}})) == [(("items",), {})]
    assert list(children(True)) == []


def test_the_parts_whose_form_is_wrong_are_passed_over():
    assert list(children({"properties": 5, "allOf": {}, "items": 5, "not": "x"})) == []
    assert paths(SchemaIndex({"properties": [], "$ref": 5, "$id": 5, "$anchor": 5}).everything()) == [()]


def test_sites_are_walked_outermost_first_in_the_order_written():
    index = SchemaIndex({"properties": {"a": {"items": {}}, "b": {}}, "not": {}})
    assert paths(index.walk(index.root)) == [
        (),
        ("properties", "a"),
        ("properties", "a", "items"),
        ("properties", "b"),
        ("not",),
    ]


def test_everything_holds_the_other_documents_too():
    index = SchemaIndex({"items": {}}, {"http://x/a": {"not": {}}, "http://x/b": 5})
    assert [(site.document, site.path) for site in index.everything()] == [
        ("", ()),
        ("", ("items",)),
        ("http://x/a", ()),
        ("http://x/a", ("not",)),
    ]


RESOLVED = [
    ("#", ()),
    ("", ()),
    ("#/properties/a~1b", ("properties", "a/b")),
    ("#/properties/c%20d", ("properties", "c d")),
    ("#/allOf/0", ("allOf", 0)),
    ("#/x-own/deep", ("x-own", "deep")),
    ("#here", ("$defs", "anchored")),
    ("#there", ("$defs", "dynamic")),
    ("inner", ("$defs", "inner")),
    ("http://x.example/inner", ("$defs", "inner")),
    ("inner#/items", ("$defs", "inner", "items")),
    ("inner#mark", ("$defs", "inner", "items")),
]

UNRESOLVED = [
    "#/properties/z",
    "#/allOf/1",
    "#/allOf/00",
    "#/allOf/-1",
    "#/allOf/a",
    "#/allOf/\u0660",
    "#/allOf/" + "9" * 5000,
    "#/title",
    "#/title/0",
    "#nowhere",
    "#mark",
    "outer",
    "http://[bad",
]

SCHEMA = {
    "$id": "http://x.example/root",
    "title": "t",
    "properties": {"a/b": {}, "c d": {}},
    "allOf": [{}],
    "x-own": {"deep": {}},
    "$defs": {
        "anchored": {"$anchor": "here"},
        "dynamic": {"$dynamicAnchor": "there"},
        "inner": {"$id": "inner", "items": {"$anchor": "mark"}},
    },
}


@pytest.mark.parametrize(("reference", "path"), RESOLVED)
def test_a_reference_means_a_site(reference, path):
    index = SchemaIndex(SCHEMA)
    assert index.resolve(reference, index.root.base).path == path


@pytest.mark.parametrize("reference", UNRESOLVED)
def test_a_reference_that_leads_nowhere_means_nothing(reference):
    index = SchemaIndex(SCHEMA)
    assert index.resolve(reference, index.root.base) is None


def test_documents_at_hand_are_known():
    index = SchemaIndex(SCHEMA, {"http://y.example/a": {"$anchor": "x"}})
    base = index.root.base
    assert index.knows("#/nowhere", base)
    assert index.knows("inner#nowhere", base)
    assert index.knows("http://y.example/a#x", base)
    assert not index.knows("http://z.example/a", base)
    assert index.resolve("http://y.example/a#x", base).document == "http://y.example/a"


def test_references_resolve_against_the_ids_above_them():
    schema = {
        "$id": "http://x/a/",
        "items": {"$id": "b/", "not": {"$ref": "c"}},
        "$defs": {"c": {"$id": "b/c"}},
    }
    index = SchemaIndex(schema)
    (site,) = index.below([index.root], 0)
    (inner,) = index.at_keywords(site, ["not"])
    ((keyword, reference, target),) = index.targets(inner)
    assert (keyword, reference, target.path) == ("$ref", "c", ("$defs", "c"))


def test_draft_4_names_its_id_otherwise():
    index = SchemaIndex(
        {"$schema": DRAFT_4, "id": "http://x/", "definitions": {"a": {"id": "#a"}, "b": {"$id": "b"}}}
    )
    assert index.resolve("#a", index.root.base).path == ("definitions", "a")
    assert index.resolve("b", index.root.base) is None


def test_nothing_beside_a_reference_counts_in_draft_7():
    schema = {
        "$ref": "#/definitions/a",
        "properties": {"n": {}},
        "definitions": {"a": {"properties": {"m": {}}}},
    }
    old, new = SchemaIndex({"$schema": DRAFT_7, **schema}), SchemaIndex(schema)
    assert (old.is_overridden(old.root), new.is_overridden(new.root)) == (True, False)
    assert (paths(old.at(("n",))), paths(new.at(("n",)))) == ([], [("properties", "n")])
    assert paths(old.at(("m",))) == [("definitions", "a", "properties", "m")]


PLACES = {
    "the whole": ({"allOf": [{}], "not": {}, "if": {}, "then": {}}, (), [(), ("allOf", 0), ("then",)]),
    "property": ({"properties": {"a": {}}, "additionalProperties": {}}, ("a",), [("properties", "a")]),
    "other property": (
        {"properties": {"a": {}}, "additionalProperties": {}},
        ("b",),
        [("additionalProperties",)],
    ),
    "unevaluated": ({"unevaluatedProperties": False}, ("b",), [("unevaluatedProperties",)]),
    "by pattern too": (
        {"properties": {"ab": {}}, "patternProperties": {"^a": {}, "^b": {}}, "additionalProperties": {}},
        ("ab",),
        [("properties", "ab"), ("patternProperties", "^a")],
    ),
    "by a pattern that is none": (
        {"patternProperties": {"(": {}}, "additionalProperties": {}},
        ("(",),
        [("additionalProperties",)],
    ),
    "item": ({"items": {}}, (3,), [("items",)]),
    "first item": ({"prefixItems": [{}, {}], "items": {}}, (1,), [("prefixItems", 1)]),
    "further item": ({"prefixItems": [{}], "items": {}}, (1,), [("items",)]),
    "first item of draft 7": ({"items": [{}, 5], "additionalItems": {}}, (0,), [("items", 0)]),
    "item whose form is wrong": ({"items": [{}, 5], "additionalItems": {}}, (1,), []),
    "further item of draft 7": ({"items": [{}], "additionalItems": {}}, (1,), [("additionalItems",)]),
    "unevaluated item": ({"unevaluatedItems": {}}, (0,), [("unevaluatedItems",)]),
    "behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {}}}},
        ("a", 0),
        [("$defs", "a", "items")],
    ),
    "in branches": (
        {
            "anyOf": [{"properties": {"a": {}}}, {"items": {}}],
            "dependentSchemas": {"b": {"properties": {"a": {}}}},
        },
        ("a",),
        [("anyOf", 0, "properties", "a"), ("dependentSchemas", "b", "properties", "a")],
    ),
    "round in a circle": (
        {"allOf": [{"$ref": "#"}], "properties": {"a": {"$ref": "#"}}},
        ("a", "a", "a"),
        [("properties", "a"), (), ("allOf", 0)],
    ),
    "nothing speaks of it": ({"type": "object"}, ("a", 0), []),
    "boolean": (True, ("a",), []),
}


@pytest.mark.parametrize(("schema", "path", "sites"), PLACES.values(), ids=PLACES)
def test_a_place_of_a_value_is_judged_by_the_sites_that_speak_of_it(schema, path, sites):
    assert paths(SchemaIndex(schema).at(path)) == sites


def test_the_heads_of_a_place_are_the_outermost_sites():
    index = SchemaIndex({"properties": {"a": {"allOf": [{}]}}})
    assert paths(index.heads(("a",))) == [("properties", "a")]
    assert paths(index.heads(())) == [()]


def test_a_pattern_is_found_anywhere_in_a_text_and_look_around_is_allowed():
    assert pattern_validator("b+").is_valid("abc")
    assert not pattern_validator("^b").is_valid("abc")
    assert pattern_validator("(?<=a)b").is_valid("abc")
    with pytest.raises(ValueError, match="regex"):
        pattern_validator("(")
