"""Requests to services of models: keys, attempts, failures, and what may be reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from http_servers import answering, answering_each, answering_json, answering_raw, raw_answer, serving
from served_models import ASKED, Waiting, events, said, speaking
from toolcrib.core.errors import ConfigurationError, ExpressionError
from toolcrib.provider import ProviderError, Request, TextDelta, user
from toolcrib.provider.models.http_client import error_message
from toolcrib.provider.models.installed_providers import open_provider
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

HI = {"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}
NAMES = ["openai", "openai_responses", "anthropic"]
KEY = "sk-test-1234567890"


def failing(status: int, message: str = "Oh", **headers: str) -> Any:
    told = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return answering_json({"error": {"message": message}}, status, told)


@pytest.mark.parametrize(
    ("name", "variable", "header", "value"),
    [
        ("openai", "OPENAI_API_KEY", "authorization", f"Bearer {KEY}"),
        ("openai_responses", "OPENAI_API_KEY", "authorization", f"Bearer {KEY}"),
        ("anthropic", "ANTHROPIC_API_KEY", "x-api-key", KEY),
    ],
)
async def test_the_key_of_the_environment_is_sent_and_shown_nowhere(
    name: str, variable: str, header: str, value: str
) -> None:
    refused = failing(401, f"wrong key {KEY}")
    async with speaking(name, refused, environment={variable: KEY}) as (provider, server):
        with pytest.raises(ProviderError, match=r"answered 401: wrong key \*\*\*") as raised:
            await said(provider)
        assert server.requests[0].header(header) == value
    assert (raised.value.code, raised.value.retryable) == ("key_refused", False)
    assert raised.value.hint == f"check the key in `{variable}`"
    assert KEY not in repr(vars(provider)) + str(raised.value)


async def test_a_key_that_is_given_is_the_one() -> None:
    environment = {"OPENAI_API_KEY": "another"}
    async with speaking("openai", failing(403, KEY), api_key=KEY, environment=environment) as (
        provider,
        server,
    ):
        with pytest.raises(ProviderError, match=r"\*\*\*"):
            await said(provider)
        assert server.requests[0].header("authorization") == f"Bearer {KEY}"


async def test_a_key_is_masked_before_a_long_message_is_cut() -> None:
    refused = failing(401, "x" * 955 + KEY + "y" * 100_000)
    async with speaking("openai", refused, api_key=KEY) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert KEY[:5] not in raised.value.message
    assert len(raised.value.message) == 1000


@pytest.mark.parametrize(
    ("name", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
async def test_without_a_key_nothing_is_sent(name: str, variable: str) -> None:
    provider: Any = open_provider(
        name, model="m", world=NetworkEnvironment(EgressGuard(), SecretResolver({}))
    )
    with pytest.raises(ProviderError, match=f"`{variable}` is not set") as raised:
        await said(provider)
    assert raised.value.code == "missing_key"
    assert variable in raised.value.hint
    await provider.aclose()


async def test_a_key_that_can_be_no_header() -> None:
    async with speaking("openai", answering_json(HI), api_key=f"{KEY}\n{KEY}") as (provider, server):
        with pytest.raises(ProviderError, match="contains a line break") as raised:
            await said(provider)
    assert raised.value.code == "unusable_secret"
    assert server.requests == []


async def test_further_headers() -> None:
    headers = {"X-Title": "mine", "Authorization": "Token ${MY_KEY}"}
    async with speaking(
        "openai", answering_json(HI), headers=headers, environment={"MY_KEY": KEY, "OPENAI_API_KEY": "no"}
    ) as (provider, server):
        await said(provider)
    assert server.requests[0].header("authorization") == f"Token {KEY}"
    assert server.requests[0].header("x-title") == "mine"
    with pytest.raises(ConfigurationError, match="`Content-Length` cannot be set"):
        open_provider("openai", model="m", headers={"Content-Length": "1"})
    async with speaking("openai", answering_json(HI), headers={"X-Title": "${NONE}"}) as (provider, server):
        with pytest.raises(ProviderError, match="`NONE` is not set") as raised:
            await said(provider)
    assert raised.value.code == "missing_secret"
    with pytest.raises(ExpressionError):
        open_provider("openai", model="m", headers={"X-Title": "${NONE"})


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    clock = Waiting()
    handler = answering_each(failing(status), failing(status), answering_json(HI))
    async with speaking("openai", handler, clock=clock, attempts=3) as (provider, server):
        assert (await said(provider))[0] == TextDelta("Hi.")
    assert [request.body for request in server.requests] == [server.requests[0].body] * 3
    assert clock.waits == [0.5, 1.0]


async def test_attempts_have_an_end() -> None:
    clock = Waiting()
    async with speaking("openai", failing(500), clock=clock, attempts=7) as (provider, server):
        with pytest.raises(ProviderError, match="answered 500: Oh") as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("provider_failed", True)
    assert clock.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert len(server.requests) == 7


async def test_a_service_says_how_long_to_wait() -> None:
    clock = Waiting()
    handler = answering_each(
        failing(429, retry_after="20"),
        failing(503, retry_after="Tue, 01 Jan 2030 00:00:30 GMT", date="Tue, 01 Jan 2030 00:00:00 GMT"),
        failing(429, retry_after="61", x_request_id="r-1"),
    )
    async with speaking("openai", handler, clock=clock, attempts=9) as (provider, server):
        with pytest.raises(ProviderError, match="answered 429") as raised:
            await said(provider)
    assert clock.waits == [20, 30]
    assert len(server.requests) == 3
    assert raised.value.details == {"status": 429, "retry_after": 61, "request_id": "r-1"}
    assert (raised.value.code, raised.value.retryable) == ("rate_limited", True)


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (failing(400), "request_refused"),
        (failing(404), "request_refused"),
        (failing(501), "request_refused"),
        (failing(403), "key_refused"),
        (answering(302, {"Location": "https://example.com"}), "request_refused"),
        (failing(429, x_should_retry="false"), "rate_limited"),
    ],
)
async def test_what_does_not_pass_is_tried_once(handler: Any, code: str) -> None:
    async with speaking("openai", handler, clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == (code, False)
    assert len(server.requests) == 1


async def test_a_connection_that_breaks_before_an_answer() -> None:
    handler = answering_each(answering_raw(b""), answering_raw(b"HTTP/1.1 200"), answering_json(HI))
    async with speaking("openai", handler, clock=Waiting(), attempts=3) as (provider, server):
        assert (await said(provider))[0] == TextDelta("Hi.")
    assert len(server.requests) == 3


async def test_nobody_listens() -> None:
    clock = Waiting()
    async with speaking("openai", answering_json(HI), clock=clock, attempts=2) as (provider, server):
        server.stop_listening()
        with pytest.raises(ProviderError, match="cannot connect") as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("connect_failed", True)
    assert raised.value.hint == "check that the service is running and that `base_url` is correct"
    assert clock.waits == [0.5]


async def test_after_the_first_byte_nothing_is_tried_again() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    async with speaking("openai", answering_raw(head), clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("connection_broken", True)
    assert len(server.requests) == 1


async def test_a_silence_ends_a_request() -> None:
    async def silent(_reader: Any, _writer: Any, _head: Any) -> None:
        await asyncio.Event().wait()

    async with speaking("openai", silent, timeout=0.05, clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert (raised.value.code, raised.value.hint) == ("read_timeout", "increase `timeout`")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"error": {"message": "Oh", "type": "x"}}', "Oh"),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "Oh"}}', "Oh"),
        (b'{"error": "Oh"}', "Oh"),
        (b'{"message": "Oh"}', "Oh"),
        (b'{"detail": [{"loc": ["body"]}]}', '[{"loc": ["body"]}]'),
        (b'{"error": {"type": "odd"}}', "odd"),
        (b"<p>Oh\n  no</p>", "<p>Oh no</p>"),
        (b"{}", ""),
        (b"", ""),
        (b"\xff", "\ufffd"),
    ],
)
def test_what_errors_say(raw: bytes, told: str) -> None:
    assert error_message(raw) == told


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (raw_answer(200, {"Content-Type": "application/json"}, b"[]"), "bad_answer"),
        (raw_answer(200, {"Content-Type": "application/json"}, b'{"a": NaN}'), "bad_answer"),
        (raw_answer(200, {"Content-Type": "text/html"}, b"<p>Hi.</p>"), "bad_answer"),
        (raw_answer(200, {}, b'{"choices": []}'), "bad_answer"),
        (raw_answer(200, {}, b'{"error": {"message": "Oh", "type": "rate_limit_error"}}'), "rate_limited"),
        (
            raw_answer(200, {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}, b"x"),
            "unsupported_coding",
        ),
    ],
)
async def test_answers_that_are_none(raw: bytes, code: str) -> None:
    async with speaking("openai", answering_raw(raw)) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert raised.value.code == code


async def test_an_event_without_end_is_not_kept() -> None:
    async with speaking("openai", events("a" * 9_000_000)) as (provider, _):
        with pytest.raises(ProviderError, match="exceeds 8,388,608 characters") as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("response_too_large", False)


async def test_what_can_be_no_request() -> None:
    async with speaking("openai", answering_json(HI)) as (provider, _):
        with pytest.raises(
            ProviderError, match="cannot send the request: the text contains the lone surrogate"
        ) as raised:
            await said(provider, Request((user("\ud800"),)))
    assert raised.value.code == "request_refused"


async def test_the_guard_decides_what_is_reached() -> None:
    async with serving(answering_json(HI)) as server:
        provider: Any = open_provider("openai", model="m", base_url=server.origin)
        assert provider.world is None
        with pytest.raises(ProviderError, match="may not reach") as raised:
            await said(provider)
        assert raised.value.code == "address_refused"
        provider.world = NetworkEnvironment(EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver({}))
        assert (await said(provider))[0] == TextDelta("Hi.")
        await provider.aclose()
        with pytest.raises(ProviderError, match="the runtime is closed"):
            await said(provider)


async def test_one_provider_asks_within_the_world_of_each_request() -> None:
    async with serving(failing(401, KEY)) as server:
        provider: Any = open_provider("openai", model="m", base_url=server.origin, attempts=1)
        open_world = NetworkEnvironment(
            EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver({"OPENAI_API_KEY": KEY})
        )
        told = []
        for world in (NetworkEnvironment(EgressGuard(), SecretResolver({})), open_world, None, open_world):
            with pytest.raises(ProviderError) as raised:
                await said(provider, ASKED._replace(world=world))
            told.append((raised.value.code, KEY in raised.value.message))
        await provider.aclose()
    refused, asked = ("address_refused", False), ("key_refused", False)
    assert told == [refused, asked, refused, asked]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({"headers": {"Authorization": f"Bearer {KEY}"}}, ""),
        ({"headers": {"X-Goog-Api-Key": KEY}}, ""),
        ({"api_key": "${MINE}"}, ""),
        ({}, f"?api-key={KEY}"),
        ({}, f"?key={KEY}"),
    ],
)
async def test_whatever_a_server_echoes_a_secret_is_shown_nowhere(options: Any, query: str) -> None:
    async def echo(_reader: Any, writer: Any, head: Any) -> None:
        told = f'{{"error": {{"message": "seen: {KEY} {head.target}"}}}}'.encode()
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told))

    async with serving(echo) as server:
        world = NetworkEnvironment(EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver({"MINE": KEY}))
        given = {"model": "m", "base_url": f"{server.origin}/v1{query}", "world": world, "attempts": 1}
        provider: Any = open_provider("openai", **{**given, **options})
        with pytest.raises(ProviderError, match=r"seen: \*\*\*") as raised:
            await said(provider)
        await provider.aclose()
    assert KEY not in str(raised.value) + repr(raised.value.details)
    told = server.requests[0]
    assert KEY in f"{told.target} {told.header('authorization')} {told.header('x-goog-api-key')}"


async def test_a_project_may_put_another_service_in_its_place() -> None:
    async with serving(answering_json(HI)) as server:
        world = NetworkEnvironment.of([f"127.0.0.1:{server.port}"], {"https://api.openai.com": server.origin})
        provider: Any = open_provider("openai", model="m", world=world, api_key=KEY)
        assert (await said(provider))[0] == TextDelta("Hi.")
        await provider.aclose()
    assert server.requests[0].target == "/v1/chat/completions"


async def test_an_address_may_have_a_query() -> None:
    async with serving(answering_json(HI)) as server:
        world = NetworkEnvironment(EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver({}))
        url = f"{server.origin}/deployments/x/?api-version=1"
        provider: Any = open_provider("openai", model="m", world=world, base_url=url)
        await said(provider)
        await provider.aclose()
    assert server.requests[0].target == "/deployments/x/chat/completions?api-version=1"


async def test_who_has_heard_enough_hangs_up() -> None:
    delta = {"choices": [{"delta": {"content": "a"}}]}
    async with speaking("openai", events(*[delta] * 3)) as (provider, server):
        answer = provider.respond(ASKED)
        assert await anext(answer) == TextDelta("a")
        await answer.aclose()
        await server.all_closed()


def test_one_provider_serves_several_loops() -> None:
    async def ask(provider: Any) -> Any:
        return (await said(provider))[0]

    async def both() -> None:
        async with speaking("openai", answering_json(HI)) as (provider, _):
            assert await ask(provider) == TextDelta("Hi.")
            assert await asyncio.to_thread(asyncio.run, ask(provider)) == TextDelta("Hi.")

    asyncio.run(both())


@pytest.mark.parametrize("url", ["127.0.0.1:4010", "ftp://example.com", "http://", "http://user@example.com"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match="the `base_url` of the provider is not a valid URL"
    ) as raised:
        open_provider("openai", model="m", base_url=url)
    assert raised.value.code == "invalid_base_url"
