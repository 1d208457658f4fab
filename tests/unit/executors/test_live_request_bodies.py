"""Bodies: JSON with its types, forms, raw text, and what is left of the arguments."""

from __future__ import annotations

import json

import pytest

from drafting import closed, compiled, drafted, faults, misfit, sent, tried
from toolcrib.security.secrets import SecretResolver

ARGUMENTS = {
    "a": 1,
    "b": 2.0,
    "c": True,
    "d": None,
    "e": [1, {"x": None}],
    "f": {"y": "ä"},
    "g": "{{ args.a }}",
}


def body(block, arguments=None, **options):
    request = sent({"method": "POST", "body": block}, arguments, **options)
    return request.body.decode(), dict(request.headers).get("Content-Type")


def test_json_keeps_types_and_structure():
    template = {key: f"{{{{ args.{key} }}}}" for key in ARGUMENTS}
    assert body({"json": template}, ARGUMENTS) == (
        '{"a":1,"b":2.0,"c":true,"d":null,"e":[1,{"x":null}],"f":{"y":"ä"},"g":"{{ args.a }}"}',
        "application/json",
    )


def test_json_leaves_out_what_is_absent_and_keeps_null():
    template = {
        "a": "{{ args.a }}",
        "n": "{{ args.n }}",
        "deep": {"a": "{{ args.a }}", "list": [1, "{{ args.a }}", "{{ args.n }}", {"b": "{{ args.o.a }}"}]},
        "fixed": {"list": [1, None, {}], "text": "x"},
    }
    text, _type = body({"json": template}, {"n": None, "o": {}})
    assert json.loads(text) == {
        "n": None,
        "deep": {"list": [1, None, {}]},
        "fixed": {"list": [1, None, {}], "text": "x"},
    }
    assert list(json.loads(body({"json": template}, {"a": 1})[0])) == ["a", "deep", "fixed"]


def test_json_may_be_any_value():
    assert body({"json": "{{ args.a }}"}, {"a": [1]}) == ("[1]", "application/json")
    assert body({"json": "{{ args.a }}"}, {}) == ("", None)
    assert body({"json": [1, "{{ args.a }}"]}, {}) == ("[1]", "application/json")
    assert body({"json": None}) == ("null", "application/json")
    assert body({"json": "id-{{ args.a }}-${B}"}, {"a": 1}, environment={"B": "x"}) == (
        '"id-1-x"',
        "application/json",
    )


def test_the_type_of_a_body_may_be_written():
    block = {
        "method": "PATCH",
        "headers": {"content-type": "application/merge-patch+json"},
        "body": {"json": {"a": 1}},
    }
    assert [value for name, value in drafted(block).headers if name.lower() == "content-type"] == [
        "application/merge-patch+json"
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_is_no_json_is_refused(value):
    error = misfit({"method": "POST", "body": {"json": {"a": "{{ args.a }}"}}}, {"a": value})
    assert (error.pointer, error.at) == ("/a", "/live/body/json")
    assert error.message.startswith("the value derived from `a` cannot be sent")


def test_keys_of_json_are_not_computed():
    block = {"json": {"{{ args.a }}": 1, "b": {"${C}": 1}}}
    assert faults({"method": "POST", "body": block}) == [
        ("expression_not_allowed", "/live/body/json/{{ args.a }}"),
        ("expression_not_allowed", "/live/body/json/b/${C}"),
    ]


def test_several_faults_of_a_body_are_told_at_once():
    block = {"json": {"a": "{{ args.x }}", "b": ["{{ 1 +", "${A"], "c": "{{ 1 / 0 }}", "d": "a {{ 1 / 0 }}"}}
    assert faults({"method": "POST", "body": block}, closed()) == [
        ("unknown_argument", "/live/body/json/a"),
        ("expression_syntax", "/live/body/json/b/0"),
        ("bad_variable", "/live/body/json/b/1"),
        ("expression_failed", "/live/body/json/c"),
        ("expression_failed", "/live/body/json/d"),
    ]


# Forms.


def test_a_form():
    block = {
        "form": {"a": "{{ args.a }}", "n": "{{ args.n }}", "list[]": "{{ args.list }}", "fixed": 1, "${x": 1}
    }
    del block["form"]["${x"]
    assert body(block, {"a": "x y&z=1", "n": None, "list": [1, 2]}) == (
        "a=x%20y%26z%3D1&list%5B%5D=1&list%5B%5D=2&fixed=1",
        "application/x-www-form-urlencoded",
    )


@pytest.mark.parametrize("place", ["query", "form"])
def test_names_of_parameters_are_not_computed(place):
    entries = {"{{ args.a }}": 1, "${B}": 1}
    block = {"query": entries} if place == "query" else {"method": "POST", "body": {"form": entries}}
    at = "/live/query" if place == "query" else "/live/body/form"
    assert faults(block) == [
        ("expression_not_allowed", f"{at}/{{{{ args.a }}}}"),
        ("expression_not_allowed", f"{at}/${{B}}"),
    ]


def test_a_parameter_that_an_object_could_write_too_is_refused():
    entries = {"meta": {"value": "{{ args.meta }}", "style": "deepObject"}, "meta[x]": 1}
    assert faults({"query": entries}) == [("duplicate_parameter", "/live/query/meta")]


def test_a_parameter_of_the_url_is_written_once():
    block = {"url": "https://example.com/?a%20b=1", "query": {"a b": 2}}
    assert faults(block) == [("duplicate_parameter", "/live/query/a b")]


# Text.


def test_a_text_is_sent_as_it_is():
    assert body({"text": "<a>{{ args.a }}</a>", "content_type": "application/xml"}, {"a": "ä&"}) == (
        "<a>ä&</a>",
        "application/xml",
    )
    assert body({"text": "{{ args.a }}"}, {"a": {"b": [1.0]}}) == ('{"b":[1.0]}', "text/plain; charset=utf-8")
    assert body({"text": "{{ args.a }}"}, {"a": None}) == body({"text": "{{ args.a }}"}, {}) == ("", None)


def test_a_text_without_utf8_is_refused():
    error = misfit({"method": "POST", "body": {"text": "{{ args.a }}"}}, {"a": "\ud800"})
    assert (error.pointer, error.message) == ("/a", "`a` contains a lone surrogate, which cannot be sent")


@pytest.mark.parametrize(
    "media_type", ["text", "text/", "a/b\r\nX: 1", "{{ args.a }}", "text/plain; x", 'a/b;c="\n"', "a/ä"]
)
def test_a_media_type_is_one(media_type):
    block = {"method": "POST", "body": {"text": "a", "content_type": media_type}}
    assert faults(block) == [("wrong_form", "/live/body/content_type")]


def test_the_media_type_of_a_text_is_written_once():
    block = {
        "method": "POST",
        "headers": {"Content-Type": "a/b"},
        "body": {"text": "a", "content_type": "c/d"},
    }
    assert faults(block) == [("duplicate_header", "/live/headers/Content-Type")]
    del block["body"]["content_type"]
    assert faults(block) == []


# What is left.


def test_a_body_takes_the_arguments_that_are_left():
    block = {
        "method": "POST",
        "url": "https://example.com/{{ args.id }}",
        "query": {"q": "{{ args.q | upper }}"},
        "headers": {"X": "{{ args.x }}"},
        "cookies": {"c": "{{ args.c }}"},
        "body": {"from": "args"},
    }
    arguments = {"id": 1, "q": "a", "x": 2, "c": 3, "z": {"k": None}, "a": [1.0], "n": None}
    assert sent(block, arguments).body == b'{"z":{"k":null},"a":[1.0],"n":null}'
    assert sent(block, {"id": 1, "q": "a"}).body == b"{}"
    assert arguments["id"] == 1


def test_what_is_left_may_be_a_form():
    assert body({"from": "args", "as": "form"}, {"a": "1&2", "b": [1, 2], "n": None}) == (
        "a=1%262&b=1&b=2",
        "application/x-www-form-urlencoded",
    )
    assert misfit({"method": "POST", "body": {"from": "args", "as": "form"}}, {"o": {}}).pointer == "/o"
    problems = faults(
        {"method": "POST", "body": {"from": "args", "as": "form"}}, closed(o={"type": "object"})
    )
    assert problems == [("wrong_style", "/live/body/from")]


def test_what_is_left_is_sent_once():
    block = {"method": "POST", "query": {"from": "args"}, "body": {"from": "args"}}
    assert faults(block) == [("wrong_combination", "/live/body/from")]


@pytest.mark.parametrize("method", ["GET", "HEAD", None])
def test_some_methods_have_no_body(method):
    block = {"body": {"json": 1}, **({"method": method} if method else {})}
    assert faults(block) == [("body_not_allowed", "/live/body")]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_have(method):
    request = compiled({"method": method, "body": {"json": 1}})
    assert (request.method, request.draft({}).method) == (method, method)


# Reshaping.


def test_select_reshapes_json_and_what_is_left():
    select = "{user: {name: name, tags: tags[?starts_with(@, 'a')]}, first: tags[0:1]}"
    expected = '{"user":{"name":"x","tags":["ab"]},"first":["ab"]}'
    arguments = {"name": "x", "tags": ["ab", "b"]}
    assert body({"from": "args", "select": select}, arguments)[0] == expected
    template = {"name": "{{ args.name }}", "tags": "{{ args.tags }}"}
    assert body({"json": template, "select": select}, arguments)[0] == expected
    assert body({"json": {"a": {"b": 1}}, "select": "a"}) == ('{"b":1}', "application/json")
    assert body({"from": "args", "as": "form", "select": "{n: name}"}, arguments)[0] == "n=x"


@pytest.mark.parametrize(
    ("block", "arguments", "message"),
    [
        ({"from": "args", "select": "length(a)"}, {"a": 1}, "the value derived from the arguments cannot be reshaped by `select`: invalid argument for `length`"),
        ({"from": "args", "select": "max_by(a, &b)"}, {"a": [{"b": 1}, {"b": "x"}]}, "the value derived from the arguments cannot be reshaped by `select`: invalid argument for a function"),
        ({"from": "args", "select": "to_number(a)"}, {"a": "nan"}, "the value derived from the arguments cannot be sent: "),
        ({"from": "args", "as": "form", "select": "a"}, {"a": [1]}, "the value derived from the arguments is a list, but a form needs an object"),
        ({"from": "args", "as": "form", "select": "{n: a}"}, {"a": {}}, "`n` is an object, but a parameter needs a single value or a list"),
    ],
)  # fmt: skip
def test_arguments_that_select_can_not_reshape_are_refused(block, arguments, message):
    error = misfit({"method": "POST", "body": block}, arguments)
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("", "`select` is not a valid JMESPath expression"),
        ("a.$", "`select` is not a valid JMESPath expression at character 3"),
        ("a[", "`select` is not a valid JMESPath expression at character 3"),
        ("(" * 3000, "`select` is not a valid JMESPath expression"),
        ("lenght(a)", "unknown JMESPath function `lenght`"),
        ("a[?zzzzzzzz(b)]", "unknown JMESPath function `zzzzzzzz`"),
        ("length(a, b)", "`length` accepts 1 argument, got 2"),
        ("merge()", "`merge` accepts 1 or more arguments, got 0"),
    ],
)
def test_a_select_that_can_not_be_read_is_found_when_the_tool_is_loaded(select, message):
    (problem,) = tried({"method": "POST", "body": {"from": "args", "select": select}})[1]
    assert (problem.code, problem.pointer) == ("bad_select", "/live/body/select")
    assert problem.message.startswith(message)
    assert problem.hint


def test_a_select_over_a_fixed_body_is_tried_when_the_tool_is_loaded():
    block = {"method": "POST", "body": {"json": {"a": 1}, "select": "length(a)"}}
    assert faults(block) == [("bad_select", "/live/body/select")]


# The whole block.


def test_an_argument_that_is_used_nowhere_is_a_warning():
    schema = closed("a", "b", "e", "s", "i", "cursor")
    block = {
        "query": {"a": "{{ args.a }}"},
        "errors": {"404": {"message": "{{ args.e }} {{ args['i'] }}"}},
        "pagination": {"style": "cursor", "param": "cursor", "max_pages": 3},
        "auth": {"type": "python", "options": {"x": '{{ args["s"] }}'}},
    }
    _request, problems = tried(block, schema)
    assert [(problem.code, problem.pointer, problem.severity) for problem in problems] == [
        ("unused_argument", "/input_schema/properties/b", "warning")
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"query": {"from": "args"}},
        {"method": "POST", "body": {"from": "args"}},
        {"method": "POST", "body": {"json": "{{ args }}"}},
        {"query": {"x": "{{ args[args.a] }}"}},
        {"query": {"x": "{{ [args] | length }}"}},
    ],
)
def test_all_arguments_may_be_used_at_once(block):
    assert faults(block, closed("a", "b")) == []


def test_hosts_name_that_of_the_url():
    block = {"url": "https://api.example.com/x", "hosts": ["cdn.example.com"]}
    assert faults(block) == [("host_not_named", "/live/hosts")]
    assert faults({**block, "url": "ftp://api.example.com/x"}) == [("invalid_url", "/live/url")]
    hosts = ["API.example.com", "*.cdn.example.com"]
    assert compiled({**block, "hosts": hosts}).hosts == ("api.example.com", "*.cdn.example.com")
    assert faults({"url": "https://${HOST}/x", "hosts": hosts}) == []
    assert (
        tried({"url": "https://${HOST}/x", "hosts": hosts}, secrets=SecretResolver({"HOST": "b.example"}))[1]
        != []
    )


@pytest.mark.parametrize(
    ("url", "block", "warned"),
    [
        ("http://api.example.com/", {"headers": {"X": "${KEY}"}}, True),
        ("http://api.example.com/?key=${KEY}", {}, True),
        ("http://127.0.0.1.evil.example/", {"headers": {"X": "${KEY}"}}, True),
        ("https://api.example.com/", {"headers": {"X": "${KEY}"}}, False),
        ("http://api.example.com/${KEY}", {}, True),
        ("${BASE_URL}/x", {}, False),
        ("http://api.example.com/", {"headers": {"X": "${KEY}"}, "auth": {"type": "http"}}, False),
        ("http://localhost:8080/", {"headers": {"X": "${KEY}"}}, False),
        ("http://api.localhost/", {"headers": {"X": "${KEY}"}}, False),
        ("http://127.0.0.2/", {"headers": {"X": "${KEY}"}}, False),
        ("http://[::1]/", {"headers": {"X": "${KEY}"}}, False),
    ],
)
def test_secrets_without_encryption_are_a_warning(url, block, warned):
    environment = {"KEY": "k", "BASE_URL": "http://api.example.com/team"}
    _request, problems = tried({"url": url, **block}, secrets=SecretResolver(environment))
    assert [(problem.code, problem.pointer, problem.severity) for problem in problems] == (
        [("unencrypted_secret", "/live/url", "warning")] if warned else []
    )


def test_a_file_is_the_body(tmp_path):
    block = {"file": "{{ args.photo }}"}
    assert body(block, {"photo": "data:image/png;base64,AAEC"}) == ("\0\1\2", "image/png")
    assert body(block, {"photo": {"data": "AAEC"}}) == ("\0\1\2", "application/octet-stream")
    assert body({**block, "content_type": "image/webp"}, {"photo": "data:,a"}) == ("a", "image/webp")
    assert body(block, {}) == ("", None)
    assert body({"file": "data:text/csv,a"}) == ("a", "text/csv")
    for value, message in (
        ([], "is a list"),
        ("/etc/passwd", "is not a file: paths and URLs in arguments are never read"),
    ):
        assert message in misfit({"method": "POST", "body": block}, {"photo": value}).message
    assert faults({"method": "POST", "body": {**block, "content_type": "png"}}, closed(photo={})) == [
        ("wrong_form", "/live/body/content_type")
    ]


def test_a_query_request_has_a_body():
    request = sent({"method": "QUERY", "body": {"json": {"a": 1}}})
    assert (request.method, request.body) == ("QUERY", b'{"a":1}')
