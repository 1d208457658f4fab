"""Servers that mean harm, and arguments that do: what a live call comes to, and that nothing of it is left.

Each case names its outcome. Afterwards every connection is closed, and no task or file descriptor is left over.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from http_servers import (
    Handler,
    answering,
    answering_each,
    answering_json,
    answering_raw,
    raw_answer,
    serving,
)
from live_tools import API, live_runtime, live_tool, open_files, others
from sampling import sample

SECRET = "CANARY-7f3a-secret"
CITY = "{type: object, properties: {city: {type: string}}, required: [city]}"
FOUND = "{type: object, required: [n], properties: {n: {type: integer}}}"
GOOD = answering_json({"n": 1})
AUTH = "auth: {type: apiKey, in: header, name: X-Api-Key, value: '${CRIB_CANARY}'}\n"


class Case(NamedTuple):
    """What is tried, and what it must come to.

    Attributes:
        id: Names it.
        outcome: The outcome, and after a colon the code where it is a finer one.
        answer: What the server does; a list is taken in turn.
        block: The live block.
        arguments: Of the call.
        inputs: The input schema.
        timeout: Of the tool.
        requests: How many requests reach the server; None where that is open.
        value: What a good call answers.
        repeated: Whether a second call must get a good answer after it.
    """

    id: str
    outcome: str
    answer: Handler | list[Handler] = GOOD
    block: str = f"url: {API}/x\n"
    arguments: Mapping[str, Any] = {}
    inputs: str = "{}"
    output: str = FOUND
    timeout: str = "60s"
    requests: int | None = None
    value: Any = None
    repeated: bool = False


async def _silent(reader, _writer, _head):
    await reader.read()  # until the other side goes away


def _dripping(piece: bytes, first: bytes = b"") -> Handler:
    async def drip(_reader, writer, _head):
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.05)

    return drip


def _flooding(piece: bytes, first: bytes) -> Handler:
    async def flood(_reader, writer, _head):
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()

    return flood


def _typed(body: bytes, kind: str = "application/json", **headers: str) -> Handler:
    return answering(200, {"Content-Type": kind, **headers}, body)


def _failing(status: int, **headers: str) -> Handler:
    return answering(status, {"Content-Type": "application/json", **headers}, b"{}")


def _bomb(megabytes: int) -> bytes:
    squeezer = zlib.compressobj(9, wbits=31)
    pieces = [squeezer.compress(bytes(1024 * 1024)) for _ in range(megabytes)]
    return b"".join([*pieces, squeezer.flush()])


IN_PATH = f"url: {API}/v1/{{{{ args.city }}}}/days\n"
IN_QUERY = f"url: {API}/x\nquery: {{q: '{{{{ args.city }}}}', fixed: a}}\n"
IN_HEADER = f"url: {API}/x\nheaders: {{X-City: '{{{{ args.city }}}}'}}\n"
IN_COOKIE = f"url: {API}/x\ncookies: {{city: '{{{{ args.city }}}}', fixed: a}}\n"
POST = f"method: POST\nurl: {API}/x\n"
PLAIN = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def given(city: str, block: str, outcome: str = "ok", **more: Any) -> dict[str, Any]:
    return {"arguments": {"city": city}, "inputs": CITY, "block": block, "outcome": outcome, **more}


CASES = [
    # arguments that would be more than a value
    Case("D55", **given("../admin", IN_PATH, "invalid_arguments", requests=0)),
    Case("D56", **given("%2e%2e%2f", IN_PATH, requests=1)),
    Case("D57", **given("a&admin=1", IN_QUERY, requests=1)),
    Case("D58", **given("a\r\nX-Admin: 1", IN_HEADER, "invalid_arguments", requests=0)),
    Case("H01-dots", **given("..", IN_PATH, "invalid_arguments", requests=0)),
    Case("H02-one-dot", **given(".", IN_PATH, "invalid_arguments", requests=0)),
    Case("H03-empty", **given("", IN_PATH, "invalid_arguments", requests=0)),
    Case("H04-nul", **given("a\0b", IN_PATH, "invalid_arguments", requests=0)),
    Case("H05-host", **given("@evil.example/", IN_PATH, requests=1)),
    Case("H06-fragment", **given("a#b?c", IN_PATH, requests=1)),
    Case("H07-backslash", **given("..\\admin", IN_PATH, "invalid_arguments", requests=0)),
    Case("H08-cookie", **given("a; admin=1", IN_COOKIE, requests=1)),
    Case("H09-cookie-crlf", **given("a\r\nb", IN_COOKIE, requests=None, outcome="")),
    Case("H10-nul-header", **given("a\0b", IN_HEADER, "invalid_arguments", requests=0)),
    Case("H11-long-header", **given("a" * 200_000, IN_HEADER, "transport_error", requests=0)),
    Case("H12-template", **given("{{ 7*7 }}", IN_QUERY, requests=1)),
    Case("H13-variable", **given("${CRIB_CANARY}", IN_QUERY, requests=1)),
    # servers that answer badly
    Case("D65", "limit_exceeded:response_too_large", _typed(_bomb(64), **{"Content-Encoding": "gzip"})),
    Case("D66", "timeout", _silent, timeout="300ms"),
    Case(
        "D67", "timeout", _dripping(b" ", PLAIN.encode() + b"Content-Length: 100000\r\n\r\n"), timeout="300ms"
    ),
    Case("D68", "invalid_result", _typed(b"<html>hello</html>", "text/html")),
    Case("D69", "invalid_result", _typed(b'{"n": 1')),
    Case("D70-post", "tool_error:http_429", _failing(429, **{"Retry-After": "0"}), POST, requests=1),
    Case("D71", "unknown_outcome:connection_broken", answering_raw(b""), POST, requests=1),
    Case("H20-drip-headers", "timeout", _dripping(b"X-A: b\r\n", b"HTTP/1.1 200 OK\r\n"), timeout="300ms"),
    Case(
        "H21-endless-headers",
        "limit_exceeded:headers_too_large",
        _flooding(b"X-A: " + b"b" * 1000 + b"\r\n", b"HTTP/1.1 200 OK\r\n"),
    ),
    Case(
        "H22-one-long-header",
        "limit_exceeded:headers_too_large",
        _flooding(b"b" * 4096, b"HTTP/1.1 200 OK\r\nX-A: "),
    ),
    Case(
        "H23-endless-interim",
        "limit_exceeded:headers_too_large",
        _flooding(b"HTTP/1.1 103 Early Hints\r\n\r\n", b""),
    ),
    Case(
        "H24-endless-body",
        "limit_exceeded:response_too_large",
        _flooding(
            b"8000\r\n" + b" " * 0x8000 + b"\r\n", PLAIN.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
        ),
    ),
    Case(
        "H25-declared-too-large",
        "limit_exceeded:response_too_large",
        answering_raw(PLAIN.encode() + b"Content-Length: 99999999999\r\n\r\n", close=False),
    ),
    Case(
        "H26-short-body", "transport_error", answering_raw(PLAIN.encode() + b"Content-Length: 99\r\n\r\n{}")
    ),
    Case(
        "H27-two-lengths",
        "transport_error",
        answering_raw(PLAIN.encode() + b'Content-Length: 7\r\nContent-Length: 99\r\n\r\n{"n":1}'),
    ),
    Case("H28-garbage", "transport_error", answering_raw(b"\x16\x03\x01\x02\x00 not http at all\r\n\r\n")),
    Case(
        "H29-truncated-gzip",
        "transport_error",
        _typed(gzip.compress(b'{"n": 1}' + b" " * 5000)[:-6], **{"Content-Encoding": "gzip"}),
    ),
    Case(
        "H30-brotli",
        "transport_error:unsupported_coding",
        _typed(b"\x0b\x02\x80{}\x03", **{"Content-Encoding": "br"}),
    ),
    Case(
        "H31-twice-gzip",
        "transport_error:unsupported_coding",
        _typed(gzip.compress(gzip.compress(b"{}")), **{"Content-Encoding": "gzip, gzip"}),
    ),
    Case("H32-nan", "invalid_result", _typed(b'{"n": NaN}')),
    Case("H33-huge-number", "invalid_result", _typed(b'{"n": ' + b"9" * 5000 + b"}")),
    Case("H34-deep", "invalid_result", _typed(b'{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}")),
    Case("H35-surrogate", "invalid_result", _typed(b'{"n": 1, "s": "\\ud800"}')),
    Case("H36-bad-charset", "invalid_result", _typed(b'{"n": 1}', "application/json; charset=zlib")),
    Case("H37-not-utf8", "invalid_result", _typed(b'{"n": 1, "s": "\xff"}')),
    Case("H38-no-content-type", "", answering(200, {}, b'{"n": 1}')),
    Case(
        "H39-surplus",
        "ok",
        answering_raw(
            raw_answer(200, {"Content-Type": "application/json"}, b'{"n": 1}')
            + raw_answer(200, {"Content-Type": "application/json"}, b'{"n": 666}'),
            close=False,
        ),
        value={"n": 1},
        repeated=True,
    ),
    Case("H40-empty", "invalid_result", answering(204)),
    Case("H41-reset-get", "ok", [answering_raw(b""), GOOD], requests=2, value={"n": 1}),
    Case(
        "H42-unavailable-then-good",
        "ok",
        [_failing(503, **{"Retry-After": "0"}), GOOD],
        requests=2,
        value={"n": 1},
    ),
    Case("H43-always-unavailable", "tool_error:http_503", _failing(503, **{"Retry-After": "0"}), requests=3),
    Case("H44-wait-too-long", "tool_error:http_503", _failing(503, **{"Retry-After": "86400"}), requests=1),
    Case(
        "H45-garbage-retry-after",
        "tool_error:http_503",
        _failing(503, **{"Retry-After": "-9e99"}),
        requests=3,
    ),
    Case(
        "H46-error-with-html",
        "tool_error:http_500",
        answering(500, {"Content-Type": "text/html"}, b"<b>\x1b[31mno</b>"),
    ),
    Case(
        "H47-endless-error-text",
        "tool_error:http_400",
        answering(400, {"Content-Type": "text/plain"}, b"no " * 100_000),
        requests=1,
    ),
    Case(
        "H48-redirect-loop",
        "tool_error:redirected",
        answering(302, {"Location": "/x"}),
        f"url: {API}/x\nredirects: 3\n",
        requests=4,
    ),
    Case(
        "H49-redirect-scheme",
        "tool_error:redirected",
        answering(302, {"Location": "file:///etc/passwd"}),
        f"url: {API}/x\nredirects: 3\n",
        requests=1,
    ),
    Case(
        "H50-redirect-metadata",
        "denied",
        answering(302, {"Location": "http://169.254.169.254/latest/"}),
        f"url: {API}/x\nredirects: 3\nhosts: ['*']\n",
        requests=1,
    ),
    Case(
        "H51-redirect-other-host",
        "denied",
        answering(302, {"Location": "https://evil.example/"}),
        f"url: {API}/x\nredirects: 3\n",
        requests=1,
    ),
    Case("H52-huge-status", "transport_error", answering_raw(b"HTTP/1.1 99999 Huge\r\n\r\n")),
    Case("H53-http-0.9", "transport_error", answering_raw(b'{"n": 1}')),
    Case(
        "H54-upgrade",
        "",
        answering_raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        timeout="500ms",
    ),
    Case(
        "H55-chunk-bomb",
        "transport_error",
        answering_raw(PLAIN.encode() + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"),
    ),
    Case("H56-hang-up-in-headers", "transport_error", answering_raw(b"HTTP/1.1 200 OK\r\nX-A:")),
    Case(
        "H57-cookie-set",
        "ok",
        _typed(b'{"n": 1}', **{"Set-Cookie": "session=stolen"}),
        value={"n": 1},
        repeated=True,
    ),
]

ADDRESSES = {
    "D59": "http://169.254.169.254/latest",
    "D60": "http://2130706433/",
    "D61": "http://[::1]/",
    "H60-hex": "http://0x7f.1/",
    "H61-short": "http://127.1/",
    "H62-zero": "http://0/",
    "H63-mapped": "http://[::ffff:127.0.0.1]/",
    "H64-nat64": "http://[64:ff9b::7f00:1]/",
    "H65-octal": "http://0177.0.0.1/",
    "H66-cgnat": "http://100.64.0.1/",
    "H67-private": "http://10.0.0.1/",
    "H68-name": "http://localhost/",
}
CASES += [Case(name, "denied", block=f"url: {url}\n", requests=0) for name, url in ADDRESSES.items()]

_SEEN: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def _report():
    """What every case came to is printed: `pytest -rP`."""
    yield
    lines = [f"{case:32} {told}" for case, told in sorted(_SEEN.items())]
    print("\n".join(lines))  # noqa: T201 -- the report


@pytest.mark.parametrize("case", sample(CASES, one_in=2), ids=lambda case: case.id)
async def test_a_hostile_exchange_has_its_outcome_and_leaves_nothing(case, monkeypatch, caplog):
    monkeypatch.setenv("CRIB_CANARY", SECRET)
    text = live_tool(
        case.block + AUTH, inputs=case.inputs, output=case.output, more=f"timeout: {case.timeout}"
    )
    tasks = others()
    answer = answering_each(*case.answer) if isinstance(case.answer, list) else case.answer
    async with serving(answer) as server:
        files = open_files()
        async with live_runtime(text, server) as tools:
            clock = asyncio.get_running_loop().time
            started = clock()
            result = await tools.call("tool", dict(case.arguments))
            took = clock() - started
            again = await tools.call("tool", dict(case.arguments)) if case.repeated else None
        await server.all_closed()
        left = open_files() - files
        told = f"{result.outcome}:{result.error.code}" if result.error is not None else str(result.outcome)
        _SEEN[case.id] = f"{told} ({len(server.requests)} requests)"
        assert case.outcome in (told, str(result.outcome), "")
        assert result.outcome != "internal"
        assert case.requests in (None, len(server.requests))
        assert case.value in (None, result.value)
        assert again is None or again.value == case.value
        assert left <= 0
        assert SECRET not in json.dumps(result.as_json()) + caplog.text
        for head in server.requests:
            assert head.path.count("/") == (3 if case.block == IN_PATH else 1)
            assert len(head.query) == (2 if case.block == IN_QUERY else 0)
            assert head.header("x-admin") is None
            assert SECRET not in head.target
            assert head.header("cookie") in (None, head.header("cookie") if case.block == IN_COOKIE else None)
        assert took < 5.25
    assert others() <= tasks


async def test_proxies_of_the_environment_are_ignored(monkeypatch):
    """D72."""
    async with serving(answering_json({"n": 666})) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        async with (
            serving(GOOD) as server,
            live_runtime(live_tool(f"url: {API}/x"), server) as tools,
        ):
            assert (await tools.call("tool")).value == {"n": 1}
        assert proxy.accepted == 0
