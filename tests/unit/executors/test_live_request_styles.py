"""Lists and objects in queries and forms: the styles of the OpenAPI 3.1 specification."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from drafting import URL, closed, drafted, faults, misfit, sent

STRING, ARRAY, OBJECT = "blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}

# The table "Style Examples" of OpenAPI 3.1.1: style, explode, then the parameter `color` for an empty text, a text,
# a list and an object; None where it says n/a.
EXAMPLES = [
    ("form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("form", True, "color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
    ("spaceDelimited", False, None, None, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
    ("pipeDelimited", False, None, None, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
    ("deepObject", True, None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
]
CASES = [
    (style, explode, value, expected)
    for style, explode, *cells in EXAMPLES
    for value, expected in zip(["", STRING, ARRAY, OBJECT], cells, strict=True)
    if expected is not None
]


def styled(value, **style):
    return {"color": {"value": value, **style}}


@pytest.mark.parametrize(("style", "explode", "value", "expected"), CASES)
def test_the_examples_of_the_specification(style, explode, value, expected):
    query = styled("{{ args.color }}", style=style, explode=explode)
    assert sent({"query": query}, {"color": value}).target == f"/v1?{expected}"
    form = sent({"method": "POST", "body": {"form": query}}, {"color": value})
    assert form.body.decode() == expected
    assert ("Content-Type", "application/x-www-form-urlencoded") in form.headers


@pytest.mark.parametrize(
    ("style", "expected"),
    [("form", "c=1&c=2"), ("spaceDelimited", "c=1%202"), ("pipeDelimited", "c=1%7C2")],
)
def test_a_style_has_its_own_explode(style, expected):
    assert drafted({"query": {"c": {"value": [1, 2], "style": style}}}).query == expected.split("&")


def test_explode_alone_chooses_style_form():
    query = {
        "a": {"value": "{{ args.a }}", "explode": False},
        "b": {"value": "{{ args.b }}", "explode": True},
    }
    assert drafted({"query": query}, {"a": [1, 2], "b": {"c": 3}}).query == ["a=1,2", "c=3"]


def test_a_simple_style_in_path_and_headers():
    block = {
        "url": f"{URL}/{{{{ args.ids }}}}/x",
        "headers": {"X": "{{ args.ids }}", "Y": ["a", "{{ args.none }}", "b"]},
    }
    request = sent(block, {"ids": [1, "b/c", True]})
    assert request.target == "/v1/1,b%2Fc,true/x"
    assert request.headers[:2] == (("X", "1, b/c, true"), ("Y", "a, b"))


def test_null_items_and_members_are_left_out():
    query = {
        "list": "{{ args.list }}",
        "flat": {"value": "{{ args.object }}", "explode": False},
        "deep": {"value": "{{ args.object }}", "style": "deepObject"},
    }
    arguments = {"list": [None, 1, None], "object": {"a": None, "b": 2}}
    assert drafted({"query": query}, arguments).query == ["list=1", "flat=b,2", "deep%5Bb%5D=2"]


def test_deep_objects_may_be_nested():
    query = styled("{{ args.color }}", style="deepObject")
    draft = drafted({"query": query}, {"color": {"a": {"b": {"c": 1}, "d": None, "e": "&"}}})
    assert draft.query == ["color%5Ba%5D%5Bb%5D%5Bc%5D=1", "color%5Ba%5D%5Be%5D=%26"]


@pytest.mark.parametrize("style", ["form", "spaceDelimited", "pipeDelimited", "deepObject"])
def test_nothing_is_sent_of_what_is_empty(style):
    query = styled("{{ args.color }}", style=style)
    assert drafted({"query": query}, {"color": {}}).query == []
    if style != "deepObject":
        assert drafted({"query": query}, {"color": []}).query == []
    query = styled("{{ args.color }}", explode=False)
    assert (
        drafted({"query": query}, {"color": {}}).query
        == drafted({"query": query}, {"color": [None]}).query
        == []
    )


@pytest.mark.parametrize(
    ("style", "value", "message"),
    [
        ({}, {"admin": 1}, "is an object, but a parameter needs a single value or a list"),
        ({}, [[1]], "contains a list, which style `form` cannot encode"),
        ({"style": "form"}, {"a": {}}, "contains an object, which style `form` cannot encode"),
        ({"style": "form"}, {"b": 1, "units": 1}, "has a key `units`, which the descriptor already sets"),
        ({"style": "form"}, {"color": 1}, "has a key `color`, which the descriptor already sets"),
        ({"style": "form"}, {"in_url": 1}, "has a key `in_url`, which the descriptor already sets"),
        ({"style": "form"}, {"key": 1}, "has a key `key`, which the descriptor already sets"),
        (
            {"style": "spaceDelimited"},
            ["New York"],
            "contains ` ` in an item, which would split it in two",
        ),
        (
            {"style": "spaceDelimited"},
            {"a b": 1},
            "contains ` ` in an item, which would split it in two",
        ),
        ({"style": "pipeDelimited"}, ["a|b"], "contains `|` in an item, which would split it in two"),
        ({"style": "deepObject"}, [1], "is a list, but style `deepObject` needs an object"),
        (
            {"style": "deepObject"},
            {"a": [1]},
            "contains a list, which style `deepObject` cannot encode",
        ),
        ({"style": "deepObject"}, {"a][b": 1}, "has a key with a bracket, which would address another key"),
        (
            {"style": "deepObject"},
            {"a": {"[": 1}},
            "has a key with a bracket, which would address another key",
        ),
        ({}, "\ud800", "contains a lone surrogate, which cannot be sent"),
    ],
)
def test_what_a_style_can_not_write_is_refused(style, value, message):
    block = {
        "url": f"{URL}?in_url=1",
        "query": {"units": "metric", **styled("{{ args.color }}", **style)},
        "auth": [{"type": "http"}, {"type": "apiKey", "in": "query", "name": "key", "value": "${KEY}"}],
    }
    error = misfit(block, {"color": value})
    assert (error.pointer, error.message) == ("/color", f"`color` {message}")


def test_a_comma_in_an_item_is_told_from_the_one_between_items():
    query = styled(["a,b", "c"], explode=False)
    assert drafted({"query": query}).query == ["color=a%2Cb,c"]


def test_one_parameter_stays_one():
    assert (
        sent({"query": {"q": "{{ args.q }}"}}, {"q": "a&admin=1#x?y=+%26"}).target
        == "/v1?q=a%26admin%3D1%23x%3Fy%3D%2B%2526"
    )


# What is left.


def test_a_query_takes_the_arguments_that_are_left():
    block = {
        "url": f"{URL}/{{{{ args.id }}}}",
        "query": {"from": "args", "units": "metric"},
        "headers": {"X": "{{ args.x }}"},
    }
    arguments = {"id": 1, "x": 2, "a": [1, 2], "b&c": "d", "none": None}
    assert sent(block, arguments).target == "/v1/1?units=metric&a=1&a=2&b%26c=d"


def test_a_parameter_may_be_called_from():
    assert drafted({"query": {"from": "Oslo"}}).query == ["from=Oslo"]
    assert drafted({"query": {"from": {"value": "args"}}}).query == ["from=args"]


@pytest.mark.parametrize(
    ("arguments", "pointer", "message"),
    [
        ({"units": "imperial"}, "/units", "`units` is set by the descriptor"),
        ({"o": {"a": 1}}, "/o", "`o` is an object, but a parameter needs a single value or a list"),
        ({"\ud800": 1}, "/\ud800", "`\ud800` contains a lone surrogate, which cannot be sent"),
    ],
)
def test_what_is_left_overrides_nothing(arguments, pointer, message):
    error = misfit({"query": {"from": "args", "units": "metric"}}, arguments)
    assert (error.pointer, error.message, error.at) == (pointer, message, "/live/query/from")


def test_what_is_left_is_checked_when_the_tool_is_loaded():
    schema = closed("a", units={"type": "string"}, o={"type": ["object", "null"]})
    assert faults({"query": {"from": "args", "units": "metric"}}, schema) == [
        ("duplicate_parameter", "/live/query/from"),
        ("wrong_style", "/live/query/from"),
    ]
    block = {
        "query": {
            "from": "args",
            "units": "{{ args.units }}",
            "o": {"value": "{{ args.o }}", "style": "form"},
        }
    }
    assert faults(block, schema) == []


# Types that are known.


@pytest.mark.parametrize(
    ("style", "schema", "wrong"),
    [
        ({}, {"type": "object"}, True),
        ({}, {"type": ["object", "null"]}, True),
        ({}, {"type": ["object", "array"]}, False),
        ({}, {"type": "null"}, False),
        ({}, {"type": 3}, False),
        ({}, True, False),
        ({"style": "form"}, {"type": "object"}, False),
        ({"style": "deepObject"}, {"type": "object"}, False),
        ({"style": "deepObject"}, {"type": "array"}, True),
        ({"style": "deepObject"}, {}, False),
        ({"style": "spaceDelimited"}, {"type": "string"}, True),
        ({"style": "spaceDelimited"}, {"type": "array"}, False),
        ({"style": "pipeDelimited"}, {"type": ["integer", "null"]}, True),
        ({"style": "form", "explode": False}, {"type": "integer"}, False),
    ],
)
def test_a_style_fits_the_type_that_the_schema_gives(style, schema, wrong):
    problems = faults({"query": styled("{{ args.color }}", **style)}, closed(color=schema))
    assert problems == ([("wrong_style", "/live/query/color")] if wrong else [])


def test_types_of_inner_keys_are_known_too():
    schema = closed(a={"type": "object", "properties": {"b": {"type": "object"}}})
    assert faults({"query": {"x": "{{ args.a.b }}"}}, schema) == [("wrong_style", "/live/query/x")]
    assert faults({"query": {"x": "{{ args.a.c }}"}}, schema) == []


@pytest.mark.parametrize(
    ("style", "explode"), [("spaceDelimited", True), ("pipeDelimited", True), ("deepObject", False)]
)
def test_a_style_without_such_an_explode_is_refused(style, explode):
    problems = faults({"query": styled("{{ args.color }}", style=style, explode=explode)})
    assert problems == [("wrong_style", "/live/query/color/explode")]


def test_parse_qsl_reads_back_what_was_written():
    values = ["", " ", "+", "%20", "a=b", "ä", "&", "\x00", "日本"]
    query = "&".join(drafted({"query": {"v": "{{ args.v }}"}}, {"v": values}).query)
    assert parse_qsl(query, keep_blank_values=True) == [("v", value) for value in values]
