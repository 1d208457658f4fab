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
        ({"style": "tabDelimited"}, ["a\tb"], "contains `\t` in an item, which would split it in two"),
        (
            {"style": "json"},
            {"a": float("nan")},
            "cannot be sent: Out of range float values are not JSON compliant",
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
        ({"style": "deepObject"}, {"type": "array"}, False),
        ({"style": "deepObject"}, {"type": "string"}, True),
        ({"style": "json"}, {"type": "string"}, False),
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


# Styles beyond those of a query in OpenAPI.


@pytest.mark.parametrize(
    ("style", "value", "query"),
    [
        ("deepObject", ["a", None, "b"], ["color%5B0%5D=a", "color%5B1%5D=b"]),
        ("deepObject", {"R": [1, {"x": 2}]}, ["color%5BR%5D%5B0%5D=1", "color%5BR%5D%5B1%5D%5Bx%5D=2"]),
        ("tabDelimited", ["a", "b c"], ["color=a%09b%20c"]),
        ("json", {"a": [1, None]}, ["color=%7B%22a%22%3A%5B1%2Cnull%5D%7D"]),
        ("json", "blue", ["color=%22blue%22"]),
        ("json", None, []),
    ],
)
def test_lists_in_deep_objects_tabs_and_json(style, value, query):
    assert drafted({"query": styled("{{ args.color }}", style=style)}, {"color": value}).query == query
    assert drafted({"query": styled("{{ args.color }}", style=style)}).query == []


LIST, OBJECT = ["blue", "black"], {"R": 100, "G": 200}


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, "blue", "/v1/blue/x"),
        ("simple", False, LIST, "/v1/blue,black/x"),
        ("simple", False, OBJECT, "/v1/R,100,G,200/x"),
        ("simple", True, OBJECT, "/v1/R=100,G=200/x"),
        ("label", False, "blue", "/v1/.blue/x"),
        ("label", False, LIST, "/v1/.blue,black/x"),
        ("label", True, LIST, "/v1/.blue.black/x"),
        ("label", False, OBJECT, "/v1/.R,100,G,200/x"),
        ("label", True, OBJECT, "/v1/.R=100.G=200/x"),
        ("matrix", False, "blue", "/v1/;color=blue/x"),
        ("matrix", False, LIST, "/v1/;color=blue,black/x"),
        ("matrix", True, LIST, "/v1/;color=blue;color=black/x"),
        ("matrix", False, OBJECT, "/v1/;color=R,100,G,200/x"),
        ("matrix", True, OBJECT, "/v1/;R=100;G=200/x"),
        ("json", None, {"a": "b/c"}, "/v1/%7B%22a%22%3A%22b%2Fc%22%7D/x"),
    ],
)
def test_the_examples_of_the_specification_for_paths(style, explode, value, path):
    said = {"value": "{{ args.color }}", "style": style, **({} if explode is None else {"explode": explode})}
    block = {"url": f"{URL}/{{color}}/x", "path": {"color": said}}
    assert sent(block, {"color": value}).target == path


@pytest.mark.parametrize(
    ("style", "value", "message"),
    [
        ("label", ".", "contains a `.` or `..` segment, which would change the path"),
        ("matrix", [], "is empty, but the URL path needs a value"),
        ("simple", None, "is null, but this call needs a value"),
        ("simple", {"a": [1]}, "is or contains a list, which is not allowed in a URL path"),
    ],
)
def test_what_a_style_of_a_path_can_not_write_is_refused(style, value, message):
    block = {"url": f"{URL}/{{color}}", "path": {"color": {"value": "{{ args.color }}", "style": style}}}
    assert misfit(block, {"color": value}).message == f"`color` {message}"


def test_a_value_of_a_path_stays_one_segment():
    block = {
        "url": f"{URL}/{{color}}",
        "path": {"color": {"value": "{{ args.color }}", "style": "matrix", "explode": True}},
    }
    assert sent(block, {"color": ["a/b;x=1", "?q#f"]}).target == "/v1/;color=a%2Fb%3Bx%3D1;color=%3Fq%23f"


def test_names_of_path_and_url_belong_together():
    said = {"value": "{{ args.color }}", "style": "label"}
    schema = closed("color", color={"type": "string"})
    assert faults({"url": f"{URL}/{{color}}", "path": {"color": said}}, schema) == []
    assert faults({"url": f"{URL}/x", "path": {"color": said}}, schema)[0] == (
        "invalid_url",
        "/live/path/color",
    )
    assert ("invalid_url", "/live/url") in faults(
        {"url": f"{URL}/{{other}}/{{color}}", "path": {"color": said}}, schema
    )
    assert ("invalid_url", "/live/path/color") in faults(
        {"url": f"{URL}?q={{color}}", "path": {"color": said}}, schema
    )
    json = {"value": "{{ args.color }}", "style": "json", "explode": True}
    assert faults({"url": f"{URL}/{{color}}", "path": {"color": json}}, schema) == [
        ("wrong_style", "/live/path/color/explode")
    ]


@pytest.mark.parametrize(
    ("said", "value", "header"),
    [
        ({"style": "simple"}, OBJECT, "R,100,G,200"),
        ({"style": "simple", "explode": True}, OBJECT, "R=100,G=200"),
        ({"style": "simple"}, LIST, "blue, black"),
        ({"style": "simple"}, {}, None),
        ({"style": "json"}, {"a": "ä€"}, '{"a":"\\u00e4\\u20ac"}'),
        ({"style": "json"}, None, None),
    ],
)
def test_a_header_with_a_style(said, value, header):
    request = drafted({"headers": {"X-Color": {"value": "{{ args.color }}", **said}}}, {"color": value})
    assert dict(request.headers).get("X-Color") == header


def test_a_header_with_a_style_stays_one():
    for value, message in (
        ({"a=b": 1}, "has a key with `=`"),
        ({"a": "b,c"}, "contains a comma"),
        ({"a": "b\r\nc"}, "contains a line break"),
    ):
        block = {"headers": {"X": {"value": "{{ args.color }}", "style": "simple", "explode": True}}}
        assert message in misfit(block, {"color": value}).message
    wrong = {"headers": {"X": {"value": "{{ args.color }}", "style": "json", "explode": True}}}
    assert faults(wrong, closed(color={})) == [("wrong_style", "/live/headers/X/explode")]


@pytest.mark.parametrize(
    ("style", "value", "cookies"),
    [
        ("form", LIST, ["c=blue%2Cblack"]),
        ("form", OBJECT, ["c=R%2C100%2CG%2C200"]),
        ("form", "a;b", ["c=a%3Bb"]),
        ("form", [], []),
        ("json", {"a": "b"}, ["c={%22a%22:%22b%22}"]),
        ("json", None, []),
    ],
)
def test_a_cookie_with_a_style(style, value, cookies):
    block = {"cookies": {"c": {"value": "{{ args.color }}", "style": style}}}
    assert drafted(block, {"color": value}).cookies == cookies
