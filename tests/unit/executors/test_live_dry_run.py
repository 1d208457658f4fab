"""What is shown of a live call: the request, the command, the exchange; and that nothing secret is in it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import subprocess
import threading
from base64 import b64encode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from http_servers import answering_json
from live_answers import answer, reading_of
from live_tools import API, calling, live_tool
from sampling import examples
from toolcrib.executors.live.dry_run import (
    BODY_FILE,
    MOST,
    SHORT,
    CallSecrets,
    curl_command,
    request_as_json,
    request_lines,
    response_lines,
)
from toolcrib.http import HTTPRequest, HTTPResponse
from toolcrib.http.messages import RequestDraft
from toolcrib.security.secrets import SecretResolver

SECRET = "s3cret/value+1="
JSON_TYPE = ("Content-Type", "application/json")
FORM_TYPE = ("Content-Type", "application/x-www-form-urlencoded")

SHELL = shutil.which("sh")
CURL = shutil.which("curl")


def request(target="/v1/x", *headers, method="GET", body=b"", port=443):
    scheme = "https" if port == 443 else "http"
    return HTTPRequest(method, scheme, "api.example.com", port, target, headers, body)


@pytest.fixture
def secrets():
    held = SecretResolver({})
    held.register(SECRET)
    return held


def exchange_lines(sent, answer, masks):
    return [*request_lines(sent, masks), *response_lines(answer, masks)]


# The parts.


def test_the_parts_of_a_request_are_shown_as_they_are():
    made = request("/a%20b?q=1", ("Accept", "text/plain"), JSON_TYPE, method="POST", body=b'{"a": 1}')
    assert request_as_json(made, SecretResolver({})) == {
        "method": "POST",
        "url": "https://api.example.com/a%20b?q=1",
        "headers": [["Accept", "text/plain"], ["Content-Type", "application/json"]],
        "body": '{"a": 1}',
    }


def test_no_body_is_none_and_one_that_is_no_text_is_told_by_size_and_type():
    assert request_as_json(request(), SecretResolver({}))["body"] is None
    raw = request("/", ("content-type", "image/png"), method="PUT", body=b"\x89PNG\0")
    assert request_as_json(raw, SecretResolver({}))["body"] == {"bytes": 5, "type": "image/png"}


@pytest.mark.parametrize(
    "written",
    [SECRET, "s3cret%2Fvalue%2B1%3D", b64encode(SECRET.encode()).decode(), SECRET.replace("/", "\\/")],
    ids=["plain", "url", "base64", "json"],
)
def test_what_the_vault_knows_is_shown_nowhere_however_it_is_written(written, secrets):
    made = request(
        f"/p/{written}?q={written}", ("X-Odd", f"a {written} b"), method="POST", body=written.encode()
    )
    binary = made._replace(body=b"\xff\x00" + written.encode() + b"\xff")
    answer = HTTPResponse(200, (("x-odd", written),), written.encode())
    told = [
        json.dumps(request_as_json(each, secrets)) + curl_command(each, secrets) for each in (made, binary)
    ]
    told += ["\n".join(exchange_lines(each, answer, secrets)) for each in (made, binary)]
    for text in told:
        assert written not in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("Authorization", "Bearer abc.def", "Bearer ***"),
        ("Authorization", "Basic YTpi", "Basic ***"),
        ("Authorization", "abcdef", "***"),
        ("Proxy-Authorization", "Digest a=b, c=d", "Digest ***"),
        ("X-Api-Key", "abc", "***"),
        ("Cookie", "a=1; b=two words", "a=***; b=***"),
        ("Set-Cookie", "id=abc; Path=/; HttpOnly", "id=***; Path=/; HttpOnly"),
        ("Location", "https://b.example/x?token=abc&a=1", "https://b.example/x?token=***&a=1"),
        (
            "Link",
            '<https://b.example/x?access_token=abc&page=2>; rel="next"',
            '<https://b.example/x?access_token=***&page=2>; rel="next"',
        ),
        ("X-Tokens-Left", "12", "12"),
        ("Accept", "a=b; q=0.5", "a=b; q=0.5"),
    ],
)
def test_headers_named_like_a_secret_are_masked_by_name_alone(name, value, seen):
    assert request_as_json(request("/", (name, value)), SecretResolver({}))["headers"] == [[name, seen]]
    assert f"< {name}: {seen}" in exchange_lines(
        request(), HTTPResponse(200, ((name, value),), b""), SecretResolver({})
    )


@pytest.mark.parametrize(
    ("headers", "body", "seen"),
    [
        ([JSON_TYPE], '{"a":{"client_secret":"x"},"n":1}', '{"a":{"client_secret":"***"},"n":1}'),
        ([JSON_TYPE], '{"a" : 1}', '{"a" : 1}'),
        ([JSON_TYPE], '{"password": "x", "n": NaN}', '{"password":"***","n":NaN}'),
        ([JSON_TYPE], "[" * 100_000, "***"),
        ([("Content-Type", "application/problem+json; charset=utf-8")], '{"token":"x"}', '{"token":"***"}'),
        ([FORM_TYPE], "client_secret=x&grant_type=a+b", "client_secret=***&grant_type=a+b"),
        ([("Content-Type", "text/plain")], "password=x", "password=x"),
    ],
    ids=["json", "unchanged", "nan", "deep", "problem", "form", "text"],
)
def test_bodies_are_masked_by_the_names_in_them(headers, body, seen):
    made = request("/", *headers, method="POST", body=body.encode())
    assert request_as_json(made, SecretResolver({}))["body"] == seen


def test_fields_of_multipart_bodies_are_masked_by_name():
    kind = ("Content-Type", "multipart/form-data; boundary=b")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="api_key"\r\n\r\nabc\r\n'
        b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n--b--\r\n'
    )
    text = request_as_json(request("/", kind, method="POST", body=body), SecretResolver({}))["body"]
    assert "abc" not in text
    assert "hello" in text
    assert text.count("\r\n--b") == 2


def test_secret_arguments_are_hidden_where_the_schema_says_so(secrets):
    schema = {"type": "object", "properties": {"pin": {"type": "string", "x-secret": True}}}
    masks = CallSecrets(secrets, {"pin": "98 76/54", "city": "Oslo"}, schema)
    made = request("/98%2076%2F54/Oslo?x=98+76%2F54", ("X-P", SECRET))
    told = request_as_json(made, masks)
    assert told["url"] == "https://api.example.com/***/Oslo?x=***"
    assert told["headers"] == [["X-P", "***"]]
    assert masks.knows(b"98 76/54")
    assert masks.knows(SECRET.encode())


# The command.


ARGV = 'curl() { for word; do printf \'%s\\0\' "$word"; done; case "$*" in *@-*) cat;; esac; }\n'
"""A curl that prints what it was given: every word, then what stands on its standard input."""


def as_sent(command):
    """Method, URL, headers and body that curl takes from a command (see curl(1))."""
    done = subprocess.run([SHELL, "-c", ARGV + command], capture_output=True, check=True, timeout=60).stdout
    words, left = [], done
    while left and not (words and words[-2:] == ["--data-binary", "@-"]):
        word, _zero, left = left.partition(b"\0")
        words.append(word.decode(errors="surrogateescape"))
    method, url, headers, body = None, None, [], b""
    rest = iter(words)
    for word in rest:
        if word == "--request":
            method = next(rest)
        elif word == "--head":
            method = "HEAD"
        elif word == "--header":
            headers.append(next(rest))
        elif word == "--data-raw":
            body = next(rest).encode(errors="surrogateescape")
        elif word == "--data-binary":
            assert next(rest) == "@-"
            body = left
        elif word not in {"--globoff", "--path-as-is"}:
            assert url is None
            url = word
    return method or ("POST" if body else "GET"), url, headers, body


needs_sh = pytest.mark.skipif(SHELL is None, reason="there is no POSIX shell")


def test_a_short_command_is_easy_to_read():
    made = request("/v1/x?q=a%20b", ("Accept", "*/*"), ("User-Agent", "toolcrib"), port=8080)
    assert curl_command(made, SecretResolver({})).splitlines() == [
        "curl \\",
        "  'http://api.example.com:8080/v1/x?q=a%20b' \\",
        "  --header 'Accept: */*' \\",
        "  --header 'User-Agent: toolcrib'",
    ]


@pytest.mark.parametrize(
    ("made", "option"),
    [
        (request(method="DELETE"), "--request DELETE"),
        (request(method="POST"), "--request POST"),
        (request(method="HEAD"), "--head"),
        (request(method="GET", body=b"x"), "--request GET"),
        (request("/a?b[c]=1"), "--globoff"),
        (request("/a/../b"), "--path-as-is"),
        (request("/a/%2E%2e"), "--path-as-is"),
    ],
)
def test_options_stand_there_where_curl_would_do_something_else(made, option):
    assert option in curl_command(made, SecretResolver({}))
    for each in ("--request", "--head", "--globoff", "--path-as-is"):
        assert each in option or f"{each} " not in curl_command(made, SecretResolver({})).replace(
            "--header", ""
        )


def test_headers_that_curl_would_add_are_taken_out():
    assert curl_command(request(), SecretResolver({})).endswith(
        "--header 'User-Agent:' \\\n  --header 'Accept:'"
    )
    posted = curl_command(request(method="POST", body=b"x"), SecretResolver({}))
    assert "--header 'Content-Type:'" in posted
    large = curl_command(request(method="POST", body=b"x" * 2**21), SecretResolver({}))
    assert "--header 'Expect:'" in large


def test_a_large_body_is_read_from_a_file():
    command = curl_command(request(method="POST", body=b"x" * (MOST + 1)), SecretResolver({}))
    assert command.endswith(f"--data-binary @{BODY_FILE}")
    assert len(command) < 500


CASES = {
    "plain": request("/a", ("A", "1")),
    "quotes": request(
        "/a", ("X", 'it\'s "$HOME" `ls` \\ !x *'), JSON_TYPE, method="POST", body=b'{"a": "it\'s"}'
    ),
    "empty header": request("/a", ("X-Empty", "")),
    "lines": request("/a", method="POST", body=b"one\ntwo\n\n'three'\n"),
    "at": request("/a", method="POST", body=b"@/etc/passwd"),
    "crlf": request("/a", method="POST", body="a\r\n\tb ü %d \\n \\061".encode()),
    "binary": request("/a", method="PUT", body=bytes(range(256))),
    "zeros": request("/a", method="POST", body=b"\0\0011\n\0"),
    "direction": request("/a", method="POST", body="a\u202eb\u200e".encode()),
    "unicode": request("/a", method="POST", body="Zürich 東京 🌍".encode()),
}


@needs_sh
@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_a_shell_gives_curl_the_same_request(made):
    method, url, headers, body = as_sent(curl_command(made, SecretResolver({})))
    assert (method, url, body) == (made.method, made.url, made.body)
    sent = [f"{name}: {value}" if value else f"{name};" for name, value in made.headers]
    assert headers[: len(sent)] == sent
    assert all(re.fullmatch(r"[A-Z][A-Za-z-]+:", header) for header in headers[len(sent) :])


@needs_sh
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60) | st.text("ab'\"\\%$`!{}[]\n\r\t \0ü", max_size=30).map(str.encode))
def test_any_body_comes_through_the_shell_unchanged(body):
    assert as_sent(curl_command(request(method="POST", body=body), SecretResolver({})))[3] == body


def received(port_wanted, run):
    """What comes over the first connection that is made while `run(port)` runs, up to the end of the request."""
    with socket.create_server(("127.0.0.1", port_wanted)) as listening:
        listening.settimeout(20)
        got = bytearray()

        def serve():
            connection, _address = listening.accept()
            with connection:
                connection.settimeout(20)
                while b"\r\n\r\n" not in got:
                    got.extend(connection.recv(65536))
                head, _, body = bytes(got).partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                while length and len(body) < int(length[1]):
                    body += connection.recv(65536)
                got[:] = head + b"\r\n\r\n" + body
                connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        run(listening.getsockname()[1])
        thread.join(60)
        return bytes(got)


@needs_sh
@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_the_command_sends_the_same_request(made):
    """With the system's curl; without one, what it is given is put on the wire by hand."""

    def run(port):
        command = curl_command(made._replace(scheme="http", host="127.0.0.1", port=port), SecretResolver({}))
        if CURL is not None:
            quiet = command.replace("curl \\", "curl --silent --disable --noproxy '*' \\", 1)
            subprocess.run([SHELL, "-c", quiet], check=True, timeout=60, capture_output=True)
            return
        method, url, headers, body = as_sent(command)
        lines = [f"{method} /{url.split('/', 3)[3]} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
        lines += [header.replace(";", ":") for header in headers if not header.endswith(":")]
        lines += [f"Content-Length: {len(body)}"] if body else []
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            connection.recv(100)

    head, _, body = received(0, run).partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    sent = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in headers)}
    assert line == f"{made.method} {made.target} HTTP/1.1"
    assert body == made.body
    expected = {name.lower(): value for name, value in made.headers}
    assert {name: value for name, value in sent.items() if name not in {"host", "content-length"}} == expected


# The exchange.


def test_an_exchange_is_told_line_by_line():
    made = request(
        "/x?a=1", ("Accept", "application/json"), JSON_TYPE, method="POST", body=b'{"a": 1}', port=81
    )
    answer = HTTPResponse(404, (("content-type", "text/plain"), ("x-a", "b")), b"no\nsuch thing\n")
    assert list(exchange_lines(made, answer, SecretResolver({}))) == [
        "> POST /x?a=1 HTTP/1.1",
        "> Host: api.example.com:81",
        "> Accept: application/json",
        "> Content-Type: application/json",
        ">",
        '> {"a": 1}',
        "< 404",
        "< content-type: text/plain",
        "< x-a: b",
        "<",
        "< no",
        "< such thing",
    ]


def test_long_and_binary_bodies_are_shortened_after_secrets_are_hidden(secrets):
    long = "x" * (SHORT - 5) + SECRET + "y" * 50
    *_, shown_part, more = exchange_lines(request(), HTTPResponse(200, (), long.encode()), secrets)
    assert shown_part == "< " + "x" * (SHORT - 5) + "***" + "yy"
    assert more == "< [48 more characters]"
    *_, binary = exchange_lines(
        request(), HTTPResponse(200, (("content-type", "image/png"),), b"\x89\0"), secrets
    )
    assert binary == "< [image/png, 2 bytes]"
    *_, untyped = exchange_lines(request(), HTTPResponse(200, (), b"\x89\0"), secrets)
    assert untyped == "< [no content type, 2 bytes]"


def test_the_repr_of_requests_shows_nothing_that_may_be_secret():
    made = RequestDraft(
        "POST",
        "https",
        "api.example.com",
        443,
        "/a",
        ["q=hunter2"],
        [("X", "hunter2")],
        ["c=hunter2"],
        b"hunter2",
    )
    assert repr(made) == "RequestDraft(POST https://api.example.com/a)"
    assert repr(made.finished()) == f"{made.finished()}" == "HTTPRequest(POST https://api.example.com/a)"


def test_a_host_that_is_a_secret_is_hidden_though_it_has_lost_its_case():
    masks = SecretResolver({})
    masks.register("Kq7mZ2xWv9TbLp")
    lines = [*request_lines(HTTPRequest("GET", "http", "kq7mz2xwv9tblp.example", 80, "/"), masks)]
    assert lines == ["> GET / HTTP/1.1", "> Host: ***.example"]


@pytest.mark.parametrize(
    ("body", "shown_as"),
    [
        (b'{"user": {"email": "bob@corp.example", "id": 1}}', '{"user":{"email":"***","id":1}}'),
        (b'\xef\xbb\xbf{"user": {"email": "bob@corp.example"}}', '{"user":{"email":"***"}}'),
        (b'{"user": {"email": "bob@corp.example"', "***"),
        (b"[" * 5000 + b'"bob@corp.example"' + b"]" * 5000, "***"),
        (b"plain text", "plain text"),
    ],
)
def test_what_redact_names_is_hidden_in_what_came_back(body, shown_as):
    reading = reading_of({"response": {"redact": ["user.email"]}})
    lines = response_lines(answer(body), SecretResolver({}), reading.redacted)
    assert [*lines] == ["< 200", "< content-type: application/json", "<", f"< {shown_as}"]


def test_items_of_a_list_are_hidden_in_what_came_back():
    reading = reading_of({"response": {"redact": ["*"]}})
    assert [*response_lines(answer(b"[41, 42]"), SecretResolver({}), reading.redacted)][
        -1
    ] == '< ["***","***"]'
    assert [*response_lines(answer(b"[41, 42]"), SecretResolver({}), reading_of({}).redacted)][
        -1
    ] == "< [41, 42]"


async def test_logs_do_not_show_what_redact_names(caplog):
    text = live_tool(f"url: {API}/x\nresponse: {{redact: [user.email]}}")
    with caplog.at_level(logging.DEBUG):
        async with calling(text, answering_json({"user": {"email": "bob@corp.example"}})) as (tools, _server):
            assert (await tools.call("tool")).value == {"user": {"email": "***"}}
    assert '< {"user":{"email":"***"}}' in caplog.text
    assert "bob@corp" not in caplog.text
