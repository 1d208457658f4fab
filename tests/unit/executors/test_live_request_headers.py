"""Headers and cookies: fixed names, and values that bring no others with them."""

from __future__ import annotations

import pytest

from drafting import closed, drafted, faults, misfit, sent, tried
from toolcrib.security.secrets import SecretResolver


def header(value, arguments=None, **options):
    return dict(drafted({"headers": {"X": value}}, arguments, **options).headers).get("X")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        (" a\tb ", "a\tb"),
        ("é", "é"),
        (5, "5"),
        (True, "true"),
        (["a", 1], "a, 1"),
        ([], None),
        ([None], None),
        (None, None),
        ("a: b; c, d", "a: b; c, d"),
    ],
)
def test_a_value_of_a_header(value, text):
    assert header("{{ args.v }}", {"v": value}) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\r\nX-Admin: 1", "contains a line break, which is not allowed in a header"),
        ("a\n", "contains a line break, which is not allowed in a header"),
        ("\ra", "contains a line break, which is not allowed in a header"),
        ("a\x00", "contains a control character, which is not allowed in a header"),
        ("a\x7f", "contains a control character, which is not allowed in a header"),
        ("日本", "contains a character outside Latin-1, which is not allowed in a header"),
        ("\ud800", "contains a character outside Latin-1, which is not allowed in a header"),
        (["a", "b\n"], "contains a line break, which is not allowed in a header"),
        (["a,b"], "contains a comma in an item, which would split it in two"),
        ({"a": 1}, "is or contains an object, which is not allowed in a header"),
        ([[1]], "is or contains a list, which is not allowed in a header"),
    ],
)
def test_a_value_that_can_not_stand_in_a_header_is_refused(value, message):
    error = misfit({"headers": {"X": "{{ args.v }}"}}, {"v": value})
    assert (error.pointer, error.message, error.at) == ("/v", f"`v` {message}", "/live/headers/X")


@pytest.mark.parametrize("value", ["secret\nvalue", "secret\x00", "secret日"])
def test_a_secret_that_can_not_stand_in_a_header_is_told_without_itself(value):
    _request, problems = tried({"headers": {"X": "${KEY}"}}, secrets=SecretResolver({"KEY": value}))
    assert [(problem.code, problem.pointer) for problem in problems] == [("wrong_form", "/live/headers/X")]
    assert "secret" not in str(problems[0])


@pytest.mark.parametrize("name", ["X Y", "X:", "", "Å", "X\r\nY", "{{ args.a }}", "X-${A}"])
def test_a_name_is_a_token(name):
    assert ("wrong_form", f"/live/headers/{name}") in faults({"headers": {name: "a"}})
    assert ("wrong_form", f"/live/cookies/{name}") in faults({"cookies": {name: "a"}})


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE", "Trailer",
     "Expect", "Accept-Encoding", "Content-Encoding", "Proxy-Authorization", "Proxy-Connection", "Cookie"],
)  # fmt: skip
def test_headers_of_the_connection_are_refused(name):
    assert faults({"headers": {name: "a"}}) == [("reserved_header", f"/live/headers/{name}")]
    assert faults({"idempotency_key": name}) == [("reserved_header", "/live/idempotency_key")]


def test_a_cookie_header_points_to_cookies():
    (problem,) = tried({"headers": {"cookie": "a=1"}})[1]
    assert problem.hint == "write `cookies: {name: value}`"


def test_a_header_is_written_once():
    assert faults({"headers": {"X-A": "1", "x-a": "2"}}) == [("duplicate_header", "/live/headers/x-a")]
    block = {"headers": {"accept": "a/b", "Key": "1"}, "accept": "c/d", "idempotency_key": "key"}
    assert faults(block) == [
        ("duplicate_header", "/live/headers/accept"),
        ("duplicate_header", "/live/headers/Key"),
    ]


def test_accept_and_user_agent_may_be_written():
    headers = drafted({"headers": {"accept": "text/csv", "USER-AGENT": "mine/1"}}).headers
    assert headers == [("accept", "text/csv"), ("USER-AGENT", "mine/1")]
    assert drafted({"accept": "text/csv"}).headers[0] == ("Accept", "text/csv")


@pytest.mark.parametrize("accept", ["a\nb", "{{ args.a }}", "${A}", " "])
def test_accept_is_a_fixed_text(accept):
    assert faults({"accept": accept}) == [("wrong_form", "/live/accept")]


def test_an_unknown_argument_is_found_when_the_tool_is_loaded():
    (problem,) = tried(
        {"headers": {"X": "{{ args.lnag }}"}, "query": {"l": "{{ args.lang }}"}}, closed("lang")
    )[1]
    assert (problem.code, problem.pointer) == ("unknown_argument", "/live/headers/X")
    assert "lang" in problem.hint


# Cookies.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a=a"),
        ("a; admin=1", "a=a%3B%20admin=1"),
        ('"a", \\', "a=%22a%22%2C%20%5C"),
        ("a\r\nb", "a=a%0D%0Ab"),
        ("%3B", "a=%253B"),
        ("å", "a=%C3%A5"),
        (1.0, "a=1"),
        (None, None),
    ],
)
def test_a_cookie_stays_one(value, text):
    assert drafted({"cookies": {"a": "{{ args.v }}"}}, {"v": value}).cookies == ([text] if text else [])


def test_what_is_written_of_a_cookie_is_sent_as_it_is():
    block = {
        "cookies": {
            "a": "s%3A1",
            "b": "${S}",
            "c": "x%3B-${S}-{{ args.v }}",
            "d": 1,
            "e": "{{ none }}",
            "f": "",
        }
    }
    request = sent(block, {"v": "%;"}, environment={"S": "y%3B"})
    assert request.headers[-1] == ("Cookie", "a=s%3A1; b=y%3B; c=x%3B-y%3B-%25%3B; d=1; f=")


@pytest.mark.parametrize(
    "value", ["a b", "a;b", "a,b", '"a"', "a\\b", "a\nb", "å", "a b{{ args.v }}", "{{ [1] }}"]
)
def test_a_written_cookie_that_would_end_is_refused(value):
    assert faults({"cookies": {"c": value}}) == [
        *([("optional_in_path", "/live/cookies/c")] if "args" in value else []),
        ("wrong_form", "/live/cookies/c"),
    ]


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("{{ args.v }}", [1], "is a list, but a cookie needs a single value"),
        ("{{ args.v }}", {}, "is an object, but a cookie needs a single value"),
        ("{{ args.v }}", "\ud800", "contains a lone surrogate, which cannot be sent"),
        ("x{{ args.v }}", None, "is null, but this call needs a value"),
    ],
)
def test_a_value_that_is_no_cookie_is_refused(text, value, message):
    error = misfit({"cookies": {"c": text}}, {"v": value})
    assert (error.pointer, error.message, error.at) == ("/v", f"`v` {message}", "/live/cookies/c")
