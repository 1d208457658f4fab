"""What the request of a live tool is made of."""

from __future__ import annotations

import pytest

import toolcrib
from drafting import URL, closed, compiled, drafted, misfit, sent, tried
from toolcrib.executors.live.request import RequestPart
from toolcrib.executors.live.value_sources import kind_of, scalar_text
from toolcrib.http import HTTPRequest
from toolcrib.security.secrets import MissingSecret, SecretResolver

BLOCK = {
    "method": "POST",
    "url": "https://API.example.com:8443/v1/cities/{{ args.city }}/days?units={{ args.units }}",
    "query": {"q": "{{ args.q }}", "page": 1},
    "headers": {"X-Team": "${TEAM}", "Accept-Language": "{{ args.lang }}"},
    "cookies": {"session": "${SESSION}", "theme": "{{ args.theme }}"},
    "body": {"json": {"name": "{{ args.name }}", "fixed": True}},
}


def test_a_request_has_all_its_parts_in_order():
    arguments = {"city": "Ål", "units": "metric", "q": "a b", "lang": "nb", "theme": "dark", "name": "x"}
    assert sent(BLOCK, arguments, environment={"TEAM": "blu3-t34m", "SESSION": "s%3A1"}) == HTTPRequest(
        "POST",
        "https",
        "api.example.com",
        8443,
        "/v1/cities/%C3%85l/days?units=metric&q=a%20b&page=1",
        (
            ("X-Team", "blu3-t34m"),
            ("Accept-Language", "nb"),
            ("Accept", "application/json, */*;q=0.5"),
            ("User-Agent", f"toolcrib/{toolcrib.__version__}"),
            ("Content-Type", "application/json"),
            ("Cookie", "session=s%3A1; theme=dark"),
        ),
        b'{"name":"x","fixed":true}',
    )


def test_a_block_with_nothing_but_a_url_is_a_get():
    draft = drafted({"url": "https://example.com"})
    assert (draft.method, draft.path, draft.query, draft.cookies, draft.body) == ("GET", "/", [], [], b"")
    assert [name for name, _value in draft.headers] == ["Accept", "User-Agent"]


def test_what_is_absent_or_null_is_left_out():
    block = {**BLOCK, "url": URL, "body": {"form": {"a": "{{ args.name }}", "b": ["{{ args.name }}", 1]}}}
    for arguments in ({}, dict.fromkeys(("units", "q", "lang", "theme", "name"))):
        request = sent(block, arguments, environment={"TEAM": "blu3-t34m", "SESSION": "1"})
        assert request.target == "/v1?page=1"
        assert [name for name, _value in request.headers] == [
            "X-Team",
            "Accept",
            "User-Agent",
            "Content-Type",
            "Cookie",
        ]
        assert request.headers[-1] == ("Cookie", "session=1")
        assert request.body == b"b=1"


def test_drafts_share_nothing_that_can_be_changed():
    request = compiled({"query": {"a": 1}, "headers": {"B": "2"}, "cookies": {"c": "3"}})
    first = request.draft({})
    first.query.append("x")
    first.headers.append(("x", "y"))
    first.cookies.append("x")
    again = request.draft({})
    assert (again.query, again.cookies, again.headers[0], len(again.headers)) == (
        ["a=1"],
        ["c=3"],
        ("B", "2"),
        3,
    )


def test_parts_say_where_they_are_written_and_what_they_read():
    body = {"form": {"a/b": "{{ args.name | upper }}"}}
    request, problems = tried(
        {**BLOCK, "body": body, "accept": "text/csv"}, secrets=SecretResolver({"TEAM": "a", "SESSION": "b"})
    )
    assert [problem for problem in problems if problem.severity == "error"] == []
    assert request.parts == (
        RequestPart("path", "{{ args.city }}", "/live/url", ("city",)),
        RequestPart("query", "units", "/live/url", ("units",)),
        RequestPart("query", "q", "/live/query/q", ("q",)),
        RequestPart("query", "page", "/live/query/page"),
        RequestPart("header", "X-Team", "/live/headers/X-Team"),
        RequestPart("header", "Accept-Language", "/live/headers/Accept-Language", ("lang",)),
        RequestPart("header", "Accept", "/live/accept"),
        RequestPart("cookie", "session", "/live/cookies/session"),
        RequestPart("cookie", "theme", "/live/cookies/theme", ("theme",)),
        RequestPart("body", "a/b", "/live/body/form/a~1b", ("name",)),
    )


def test_parts_of_what_is_left_name_the_arguments_that_the_schema_describes():
    schema = closed("a", "b")
    request = compiled({"method": "POST", "query": {"x": "{{ args.a }}"}, "body": {"from": "args"}}, schema)
    assert request.parts[-1] == RequestPart("body", "*", "/live/body/from", ("b",))
    request = compiled({"query": {"from": "args"}, "headers": {"X": "{{ args.a }}"}}, schema)
    assert request.parts[-1] == RequestPart("query", "*", "/live/query/from", ("b",))


# What is looked up.


def test_what_is_looked_up_is_never_read_as_an_expression():
    block = {
        "query": {"a": "${A}", "b": "${A}-{{ args.x }}"},
        "headers": {"C": "${A}"},
        "method": "POST",
        "body": {"text": "${A}"},
    }
    request = sent(block, {"x": "${B} {{ args.y }}"}, environment={"A": "{{ args.x }}${B}"})
    assert request.target == (
        "/v1?a=%7B%7B%20args.x%20%7D%7D%24%7BB%7D"
        "&b=%7B%7B%20args.x%20%7D%7D%24%7BB%7D-%24%7BB%7D%20%7B%7B%20args.y%20%7D%7D"
    )
    assert request.headers[0] == ("C", "{{ args.x }}${B}")
    assert request.body == b"{{ args.x }}${B}"


def test_a_missing_variable_passes_through_with_its_place():
    with pytest.raises(MissingSecret) as caught:
        compiled({"headers": {"X": "${NOT_THERE}"}})
    assert caught.value.pointer == "/live/headers/X"


def test_nothing_is_looked_up_while_a_block_is_checked():
    block = {
        "url": "${BASE}/x?k=${KEY}",
        "headers": {"X": "${NOT_THERE}", "Y": "${OTHER:-z}"},
        "cookies": {"c": "${D}"},
    }
    request, problems = tried(block)
    assert problems == []
    assert request.draft({}).headers[1] == ("Y", "z")


def test_a_secret_is_registered_and_a_part_of_the_address_is_not():
    secrets = SecretResolver({"HOST": "api.example.com", "KEY": "hidden-key", "TOKEN": "hidden-token"})
    tried({"url": "https://${HOST}/v1?key=${KEY}", "headers": {"X": "${TOKEN}"}}, secrets=secrets)
    assert secrets.hide_in_text("api.example.com hidden-key hidden-token") == "api.example.com *** ***"


def test_two_dollars_are_a_dollar_before_a_brace():
    block = {"query": {"a": "$${A}", "b": "$${A} {{ args.x }}", "c": "{{ '$${' }}"}}
    assert drafted(block, {"x": "1"}).query == ["a=%24%7BA%7D", "b=%24%7BA%7D%201", "c=%24%7B"]


# Arguments.


@pytest.mark.parametrize(
    ("text", "arguments", "seen"),
    [
        ("{{ args.a }}", {}, None),
        ("{{args.a}}", {"a": "1"}, "1"),
        ("{{ args['a b'] }}", {"a b": "1"}, "1"),
        ('{{ args["a b"] }}', {}, None),
        ("{{ args.a.b }}", {"a": {"b": "1"}}, "1"),
        ("{{ args.a['b'] }}", {"a": {}}, None),
        ("{{ args.a.b }}", {"a": None}, None),
        ("{{ args.a.b }}", {}, None),
        ("{{ args['a'] | default('d') }}", {}, "d"),
        ("{{ args.a[0] }}", {"a": ["1"]}, "1"),
        ("{{ args.a if args.a else none }}", {"a": ""}, None),
        ("{{ 'a' }}", {}, "a"),
        ("x {{ args.a }}", {"a": True}, "x true"),
        ("x {{ args.a }}", {"a": 2.0}, "x 2"),
        ("x {{ args.a }}", {"a": [1, {"b": None}]}, 'x [1,{"b":null}]'),
    ],
)
def test_an_expression_reads_an_argument(text, arguments, seen):
    headers = dict(drafted({"headers": {"X": text}}, arguments).headers)
    assert headers.get("X") == seen


@pytest.mark.parametrize(
    ("text", "arguments", "pointer", "message"),
    [
        ("x {{ args.a }}", {}, "/a", "`a` is required by this call"),
        ("x {{ args.a.b }}", {"a": {}}, "/a/b", "`a.b` is required by this call"),
        ("x {{ args.a }}", {"a": None}, "/a", "`a` is null, but this call needs a value"),
        ("{{ args.a | upper }}", {}, "/a", "`a` is required by this call"),
        ("{{ args.a + args.b }}", {"a": 1}, "/b", "`b` is required by this call"),
        (
            "{{ args.a / args.b }}",
            {"a": 1, "b": 0},
            "",
            "the value derived from `a`, `b` cannot be computed: ",
        ),
        ("{{ args.a.b }}", {"a": 1}, "/a/b", "`a.b` cannot be computed: "),
        (
            "{{ args.a }}-{{ args.b }}",
            {"a": "ok", "b": "\n"},
            "",
            "the value derived from `a`, `b` contains a line break",
        ),
        ("{{ args.a | upper }}", {"a": "\n"}, "/a", "the value derived from `a` contains a line break"),
    ],
)
def test_a_value_that_does_not_fit_names_the_argument(text, arguments, pointer, message):
    error = misfit({"headers": {"X": text}}, arguments)
    assert (error.pointer, error.at) == (pointer, "/live/headers/X")
    assert error.message.startswith(message)
    assert str(error) == error.message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (3.0, "3"),
        (-0.0, "0"),
        (2.5, "2.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.00001, "0.00001"),
        (-1.5e-7, "-0.00000015"),
        (2**70, str(2**70)),
        (None, None),
        ([], None),
        ({}, None),
    ],
)
def test_scalars_are_written_as_people_write_them(value, text):
    assert scalar_text(value) == text


def test_kinds_have_names():
    kinds = [kind_of(value) for value in (None, True, 1, 1.5, "", [], {})]
    assert kinds == ["null", "a boolean", "a number", "a number", "text", "a list", "an object"]
