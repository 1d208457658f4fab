"""What the HTTP client writes, and what it makes of an answer."""

from __future__ import annotations

import pytest

from http_exchanges import sending
from http_servers import (
    Head,
    answering,
    answering_json,
    serving,
)
from toolcrib.http import HTTPError, HTTPFailure


def headers_of(head: Head) -> list[tuple[str, str]]:
    """All headers but the one that names the port."""
    return [(name, value) for name, value in head.headers if name != "Host"]


async def test_a_request_is_written_as_it_was_given_with_one_spelling_for_each_name():
    async with serving(answering_json({"a": 1})) as server, sending(server) as send:
        answer = await send(
            method="POST",
            target="/a%2Fb/%2e%2e/c;d?q=%20+&q=%C3%A9&empty=&&x",
            headers=(("X-Tag", "one"), ("x-tag", "two"), ("Accept", "a, b"), ("X-Latin", "\xe9")),
            body=b'{"a": "\xc3\xa9"}',
        )
    (head,) = server.requests
    assert head.raw.startswith(b"POST /a%2Fb/%2e%2e/c;d?q=%20+&q=%C3%A9&empty=&&x HTTP/1.1\r\nHost: ")
    assert head.header("host") == f"127.0.0.1:{server.port}"
    assert headers_of(head) == [
        ("X-Tag", "one"),
        ("X-Tag", "two"),
        ("Accept", "a, b"),
        ("X-Latin", "\xe9"),
        ("Accept-Encoding", "gzip"),
        ("Content-Length", "11"),
    ]
    assert head.body == b'{"a": "\xc3\xa9"}'
    assert (answer.status, answer.body) == (200, b'{"a": 1}')
    assert answer.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ({}, [("Accept-Encoding", "gzip")]),
        ({"method": "HEAD"}, [("Accept-Encoding", "gzip")]),
        ({"method": "DELETE"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "OPTIONS"}, [("Accept-Encoding", "gzip")]),
        ({"method": "POST"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "PUT"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "PATCH"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"body": b"ab"}, [("Accept-Encoding", "gzip"), ("Content-Length", "2")]),
        ({"method": "DELETE", "body": b"ab"}, [("Accept-Encoding", "gzip"), ("Content-Length", "2")]),
        ({"headers": (("accept-encoding", "identity"),)}, [("accept-encoding", "identity")]),
        ({"headers": (("X-Space", " a\t"),)}, [("X-Space", "a"), ("Accept-Encoding", "gzip")]),
    ],
)
async def test_a_sender_adds_what_follows_and_nothing_else(asked, headers):
    async with serving(answering(200)) as server, sending(server) as send:
        await send(**asked)
    assert headers_of(server.requests[0]) == headers


@pytest.mark.parametrize(
    "target", ["/", "//", "//other.test/x", "/a/../b", "/%", "/?a=b?", "/?a=b?c", "/a:b@c", "/*'()!$,"]
)
async def test_a_target_stays_what_it_was(target):
    async with serving(answering(200)) as server, sending(server) as send:
        await send(target=target)
    assert server.requests[0].target == target


async def test_a_question_mark_without_a_query_is_dropped():
    async with serving(answering(200)) as server, sending(server) as send:
        await send(target="/x?")
    assert server.requests[0].target == "/x"


async def test_a_large_body_arrives_whole():
    body = bytes(range(256)) * 20_000
    async with serving(answering(200)) as server, sending(server) as send:
        await send(method="PUT", body=body)
    assert server.requests[0].body == body


async def test_an_answer_in_many_pieces_arrives_whole():
    body = bytes(range(256)) * 20_000
    async with serving(answering(200, (), body)) as server, sending(server) as send:
        assert (await send()).body == body


CANARY = "canary\r\nX-Evil: 1"


@pytest.mark.parametrize(
    "asked",
    [
        {"headers": (("X-Token", CANARY),)},
        {"headers": (("X-Token", "canary\n"),)},
        {"headers": (("X-Token", "canary\x00"),)},
        {"headers": (("X-Token", "canary\u2028"),)},
        {"headers": (("X-Token", "canary\u0141"),)},
        {"headers": ((CANARY, "x"),)},
        {"headers": (("canary ", "x"),)},
        {"headers": (("", "canary"),)},
        {"headers": (("Host", "canary"),)},
        {"headers": (("content-length", "canary"),)},
        {"headers": (("Transfer-Encoding", "canary"),)},
        {"headers": (("Connection", "canary"),)},
        {"headers": (("Upgrade", "canary"),)},
        {"headers": (("Expect", "canary"),)},
        {"target": "canary"},
        {"target": "/canary x"},
        {"target": "/canary\r\nX-Evil: 1"},
        {"target": "/canary#x"},
        {"target": "/canary\xe9"},
        {"target": ""},
        {"method": "get"},
        {"method": "GET /canary HTTP/1.1\r\nX: y"},
        {"scheme": "ftp"},
        {"host": "canary/x"},
        {"host": "canary@127.0.0.1"},
        {"host": "Canary"},
        {"host": ""},
    ],
)
async def test_what_would_not_stay_in_its_place_is_refused_and_not_shown(asked):
    async with serving(answering(200)) as server, sending(server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(**asked)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.BAD_REQUEST, False)
        assert "canary" not in str(caught.value).replace("`canary `", "")
        assert server.accepted == 0


async def test_redirects_are_not_followed_and_cookies_not_kept():
    handler = answering(302, {"Location": "/elsewhere", "Set-Cookie": "session=1"})
    async with serving(handler) as server, sending(server) as send:
        answer = await send()
        await send()
        assert (answer.status, answer.header("location")) == (302, "/elsewhere")
        assert [(head.target, head.header("cookie")) for head in server.requests] == [("/", None)] * 2


async def test_headers_of_an_answer_keep_their_order_and_number():
    headers = [("B", "1"), ("a", " 2 "), ("b", "3"), ("Empty", ""), ("Latin", "\xe9")]
    async with serving(answering(200, headers)) as server, sending(server) as send:
        answer = await send()
    assert answer.headers[:-1] == (("b", "1"), ("a", "2"), ("b", "3"), ("empty", ""), ("latin", "\xe9"))
    assert (answer.header("b"), answer.header("none")) == ("1, 3", None)
