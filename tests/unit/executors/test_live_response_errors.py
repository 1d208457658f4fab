"""What answers with a status of failure become."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_answers import JSON_TYPE, answer, result_of
from toolcrib import Outcome
from toolcrib.core.clock import format_duration
from toolcrib.executors.live.response import MOST

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def failure(
    status=404, body=b"", content_type=JSON_TYPE, headers=(), block=None, arguments=None, now=lambda: NOW
):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    result = result_of(block or {}, answer(raw, content_type, status, headers), arguments, now=now)
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.value is None
    assert result.message == result.error.message
    return result.error


@pytest.mark.parametrize(
    ("status", "message", "retryable"),
    [(404, "HTTP 404 Not Found", False), (500, "HTTP 500 Internal Server Error", False), (408, "HTTP 408 Request Timeout", False), (429, "HTTP 429 Too Many Requests", True), (502, "HTTP 502 Bad Gateway", True), (503, "HTTP 503 Service Unavailable", True), (504, "HTTP 504 Gateway Timeout", True), (499, "HTTP 499", False), (304, "HTTP 304 Not Modified", False)],
)  # fmt: skip
def test_a_status_alone(status, message, retryable):
    error = failure(status)
    assert (error.code, error.message, error.retryable, error.details) == (
        f"http_{status}",
        message,
        retryable,
        {"status": status},
    )


@pytest.mark.parametrize(
    ("body", "said", "details"),
    [
        ({"error": {"message": "no such city", "code": "E17"}}, "no such city", {"code": "E17"}),
        ({"error": {"code": 400, "message": "bad lat"}}, "bad lat", {"code": 400}),
        ({"error": "invalid_grant", "error_description": "token expired"}, "token expired", {"code": "invalid_grant"}),
        ({"error": "no such city"}, "no such city", {}),
        ({"error": True, "reason": "latitude is out of range"}, "latitude is out of range", {}),
        ({"message": "not found"}, "not found", {}),
        ({"message": "Not Found", "documentation_url": "https://x", "status": "404"}, "Not Found", {}),
        ({"errors": [{"code": "a", "message": "one"}, {"detail": "two"}, "three"]}, "one; two; three", {"code": "a"}),
        ({"errors": ["one"] * 9}, "one; one; one; one; one", {}),
        ({"errors": {"message": "one"}}, "one", {}),
        ({"detail": [{"loc": ["a"], "msg": "field required"}]}, "field required", {}),
        ({"detail": "gone"}, "gone", {}),
        ({"code": "x/1", "message": ""}, "", {"code": "x/1", "body": {"code": "x/1", "message": ""}}),
        ({"title": "gone"}, "gone", {}),
        ({"whatever": 1}, "", {"body": {"whatever": 1}}),
        ([1, 2], "", {"body": [1, 2]}),
        (["a"], "a", {}),
        (7, "", {"body": 7}),
        ("text", "text", {}),
        ("", "", {}),
        (None, "", {}),
        ({"a": "x" * MOST}, "", {}),
        ({"error": {"error": {"error": {"error": {"error": {"message": "deep"}}}}}}, "", {"body": {"error": {"error": {"error": {"error": {"error": {"message": "deep"}}}}}}}),
        ({"errors": []}, "", {"body": {"errors": []}}),
    ],
)  # fmt: skip
def test_common_shapes_are_understood(body, said, details):
    error = failure(400, body)
    assert error.message == "HTTP 400 Bad Request" + (f": {said}" if said else "")
    assert error.details == {"status": 400, **details}


def test_what_json_can_not_say_is_left_out():
    assert failure(400, b'{"a": 1e999}').details == {"status": 400}


def test_problem_details_are_understood():
    body = {
        "type": "https://x.test/credit",
        "title": "No credit",
        "status": 403,
        "detail": "Your balance is 30.",
        "instance": "/a",
        "balance": 30,
    }
    error = failure(403, body, "application/problem+json")
    assert error.message == "HTTP 403 Forbidden: No credit: Your balance is 30."
    assert error.details == {
        "status": 403,
        "problem": {key: body[key] for key in ("type", "title", "status", "detail", "instance")},
    }
    assert (
        failure(403, {"title": "No credit", "type": "about:blank"}).message == "HTTP 403 Forbidden: No credit"
    )


def test_texts_are_shortened_and_escaped():
    error = failure(502, b"  <h1>Bad\n\n gateway\x1b[31m</h1>" + b"x" * 9000, "text/html")
    assert error.message.startswith("HTTP 502 Bad Gateway: <h1>Bad gateway\\x1b[31m</h1>xxx")
    assert len(error.message.encode()) < MOST + 40
    assert "of 9,028 bytes shown]" in error.message


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b'{"broken": ', JSON_TYPE, 'HTTP 500 Internal Server Error: {"broken":'),
        (b"caf\xe9", "text/plain", "HTTP 500 Internal Server Error: caf\ufffd"),
        (b"cafe", "text/plain; charset=ebcdic", "HTTP 500 Internal Server Error: cafe"),
        (b"\x89PNG", "image/png", "HTTP 500 Internal Server Error"),
        (b"oops", None, "HTTP 500 Internal Server Error: oops"),
    ],
)  # fmt: skip
def test_a_failure_is_read_with_indulgence(body, content_type, message):
    assert failure(500, body, content_type).message == message


@given(st.text(), st.sampled_from(["message", "detail", "error"]))
def test_what_is_told_is_one_short_line(text, key):
    error = failure(400, {key: text * 50})
    assert "\n" not in error.message
    assert error.message.isascii() or error.message.encode()
    assert len(error.message.encode()) <= MOST + 30


BLOCK = {
    "errors": {
        "404": {"code": "no_such_city", "message": "No city {{ args.city }}: {{ body.detail }}", "retryable": True, "details": {"city": "{{ args.city }}", "left": "{{ headers['x-left'] }}"}},
        "4xx": {"code": "refused", "retryable": "{{ body.again }}"},
        "503": "Down, says {{ status }}",
        "default": {"code": "other"},
    }
}  # fmt: skip


def test_the_most_specific_entry_counts():
    error = failure(
        404, {"detail": "gone"}, headers=(("x-left", "3"),), block=BLOCK, arguments={"city": "Oslo"}
    )
    assert (error.code, error.message, error.retryable) == ("no_such_city", "No city Oslo: gone", True)
    assert error.details == {"status": 404, "city": "Oslo", "left": "3"}
    error = failure(418, {"again": True, "message": "tea"}, block=BLOCK)
    assert (error.code, error.message, error.retryable) == ("refused", "HTTP 418 I'm a Teapot: tea", True)
    error = failure(503, block=BLOCK)
    assert (error.code, error.message, error.retryable) == ("http_503", "Down, says 503", True)
    error = failure(500, block=BLOCK)
    assert (error.code, error.message, error.retryable) == ("other", "HTTP 500 Internal Server Error", False)
    assert failure(302, headers=(("location", "https://x.test/"),), block=BLOCK).code == "other"
    assert (
        failure(302, headers=(("location", "https://x.test/"),), block={"errors": {"404": "x"}}).code
        == "redirected"
    )


@pytest.mark.parametrize(
    ("entry", "warning"),
    [
        ("No {{ body.city }}", "cannot compute /live/errors/404: `body` is none and has no `city`: only objects have keys"),
        ({"message": "{{ args.city }}"}, "cannot compute /live/errors/404/message: `args` has no `city`: it is empty"),
        ({"message": "{{ '' }}"}, "/live/errors/404/message did not produce a valid text"),
        ({"code": "{{ 'no such city' }}"}, "/live/errors/404/code did not produce a valid code"),
        ({"code": "{{ [1] }}"}, "/live/errors/404/code did not produce a valid code"),
        ({"retryable": "{{ 'yes' }}"}, "/live/errors/404/retryable did not produce a valid boolean"),
        ({"details": "{{ [1] }}"}, "/live/errors/404/details did not produce a valid object"),
    ],
)  # fmt: skip
def test_what_can_not_be_said_is_understood_instead_and_told(entry, warning):
    result = result_of({"errors": {"404": entry}}, answer(b"", status=404))
    assert (result.error.code, result.message, result.error.retryable) == (
        "http_404",
        "HTTP 404 Not Found",
        False,
    )
    assert result.meta["warnings"] == [warning]


def test_an_expression_may_give_a_number_as_code_or_message():
    error = failure(
        400, {"n": 17}, block={"errors": {"4xx": {"code": "{{ body.n }}", "message": "{{ body.n }}"}}}
    )
    assert (error.code, error.message) == ("17", "17")


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("30", 30), ("0", 0), (" 7 ", 7), ("99999999999999999999", 31_536_000), ("40000000", 31_536_000),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30), ("Sunday, 01-Mar-26 12:01:00 GMT", 60), ("Sun Mar  1 12:02:00 2026", 120),
        ("Sun, 01 Mar 2020 12:00:00 GMT", 0), ("Sun, 01 Mar 9999 12:00:00 GMT", 31_536_000), ("Sun, 01 Mar 2026 13:00:10 +0100", 10),
    ],
)  # fmt: skip
def test_retry_after_is_told_in_seconds(told, seconds):
    error = failure(503, headers=(("retry-after", told),))
    assert error.details == {"status": 503, "retry_after": seconds}
    assert error.message == f"HTTP 503 Service Unavailable; retry after {format_duration(seconds)}"


@pytest.mark.parametrize("told", ["", "-5", "1.5", "soon", "5, 10", "\u0663\u0660", "Mon, 99 Foo 2026 00:00:00 GMT", "Sun, 01 Mar 99999999 12:00:00 GMT", "x" * 10_000])  # fmt: skip
def test_a_retry_after_that_is_none_is_not_told(told):
    assert failure(503, headers=(("retry-after", told),)).details == {"status": 503}


def test_without_a_clock_the_answers_own_date_counts():
    headers = (("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT"), ("date", "Sun, 01 Mar 2026 12:00:10 GMT"))
    assert failure(503, headers=headers, now=None).details["retry_after"] == 20
    assert "retry_after" not in failure(503, headers=headers[:1], now=None).details
    assert "retry_after" not in failure(503, headers=(headers[0], ("date", "today")), now=None).details


def test_retry_after_stands_behind_a_written_message():
    error = failure(
        429,
        headers=(("retry-after", "9"),),
        block={"errors": {"429": {"message": "Slow down", "details": {"a": 1}}}},
    )
    assert error.message == "Slow down; retry after 9s"
    assert error.details == {"status": 429, "a": 1, "retry_after": 9}


@given(st.text())
def test_no_retry_after_breaks_anything(told):
    wait = failure(503, headers=(("retry-after", told),)).details.get("retry_after", 0)
    assert 0 <= wait <= 31_536_000


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://user:hunter2@api.test/login?token=hunter2#hunter2", "https://api.test/login"),
        ("https://api.test:8443/a", "https://api.test:8443/a"),
        ("https://[::1]:80/a", "https://[::1]:80/a"),
        ("//other.test/a?hunter2", "//other.test/a"),
        ("/login?next=hunter2", "/login"),
    ],
)
def test_a_redirect_that_is_not_followed_tells_where_without_secrets(location, told):
    error = failure(302, headers=(("location", location),))
    assert (error.code, error.retryable, error.details) == (
        "redirected",
        False,
        {"status": 302, "location": told},
    )
    assert error.message.startswith(f"HTTP 302 Found: redirect to {told} not followed; ")
    assert "`redirects`" in error.message


@pytest.mark.parametrize("location", ["https://[hunter2", "https://x:hunter2/", "?hunter2"])
def test_a_redirect_to_nowhere(location):
    error = failure(301, headers=(("location", location),))
    assert error.details == {"status": 301}
    assert "HTTP 301 Moved Permanently: redirect to an invalid URL not followed" in error.message
