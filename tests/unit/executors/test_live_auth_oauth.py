"""Tokens of OAuth 2.0: asked for once, kept while they last, renewed, and what is told when there are none."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from email.utils import format_datetime

import pytest

from authentication import applied, draft, failed, fetching, form_of, ready
from http_exchanges import left, sending, settled
from http_servers import (
    answering,
    answering_by,
    answering_each,
    answering_json,
    answering_raw,
    raw_answer,
    serving,
)
from toolcrib import VirtualClock
from toolcrib.core.clock import RealClock
from toolcrib.http import ExchangeBounds, HTTPResponse
from toolcrib.http.auth import AuthFailure, TokenCache
from toolcrib.security.egress import EgressRefused
from toolcrib.security.secrets import SecretResolver

KEYS = {"SECRET": "s3 cr&t", "REFRESH": "r-1", "CLIENT": "client-5e1"}


def client(server, **more):
    """Client credentials of a server."""
    return {
        "type": "oauth2",
        "flow": "client_credentials",
        "token_url": f"{server.origin}/token",
        "client_id": "${CLIENT}",
        "client_secret": "${SECRET}",
        **more,
    }


def refresh(server, **more):
    return {**client(server, **more), "flow": "refresh_token", "refresh_token": "${REFRESH}"}


def without(scheme, name):
    return {key: value for key, value in scheme.items() if key != name}


def token(value="t-1", **more):
    return {"access_token": value, "token_type": "Bearer", **more}


def counting(**more):
    """A handler that gives t-1, t-2 and so on."""
    given = iter(range(1, 1_000_000))
    return answering_by(lambda _head: answering_json(token(f"t-{next(given)}", **more)))


async def sent_token(auth, clock, fetch):
    """The token that a call is sent with."""
    made = await applied(auth, clock, fetch)
    ((name, value),) = made.headers
    assert name == "Authorization"
    return value.removeprefix("Bearer ")


# What is asked.


async def test_a_client_proves_itself_in_a_header():
    async with serving(answering_json(token())) as server, fetching(server) as fetch:
        auth = ready(client(server, scopes=["a", "b:c"], audience="${AIM}"), {**KEYS, "AIM": "https://api/é"})
        assert auth.hosts == ("127.0.0.1",)
        assert await sent_token(auth, VirtualClock(), fetch) == "t-1"
        (head,) = server.requests
    assert (head.method, head.target) == ("POST", "/token")
    assert head.header("content-type") == "application/x-www-form-urlencoded"
    assert head.header("accept") == "application/json"
    assert form_of(head) == {
        "grant_type": "client_credentials",
        "scope": "a b:c",
        "audience": "https://api/é",
    }
    encoded = base64.b64encode(b"client-5e1:s3+cr%26t").decode()
    assert head.header("authorization") == f"Basic {encoded}"


async def test_a_client_may_prove_itself_in_the_body():
    async with serving(answering_json(token())) as server, fetching(server) as fetch:
        scheme = client(server, client_auth="body", token_url=f"{server.origin}/token?tenant=x")
        await sent_token(ready(scheme, KEYS), VirtualClock(), fetch)
        (head,) = server.requests
    assert head.target == "/token?tenant=x"
    assert head.header("authorization") is None
    assert form_of(head) == {
        "grant_type": "client_credentials",
        "client_id": "client-5e1",
        "client_secret": "s3 cr&t",
    }


async def test_a_refresh_token_is_sent_with_or_without_a_secret():
    async with serving(answering_json(token())) as server, fetching(server) as fetch:
        for scheme in (refresh(server), without(refresh(server), "client_secret")):
            await sent_token(ready(scheme, KEYS), VirtualClock(), fetch)
        first, second = server.requests
    assert form_of(first) == {"grant_type": "refresh_token", "refresh_token": "r-1"}
    assert first.header("authorization").startswith("Basic ")
    assert form_of(second) == {
        "grant_type": "refresh_token",
        "refresh_token": "r-1",
        "client_id": "client-5e1",
    }
    assert second.header("authorization") is None


async def test_refresh_tokens_are_rotated():
    answers = [
        token("t-1", refresh_token="r-2"),
        token("t-2"),
        token("t-3", refresh_token="r-3"),
        token("t-4"),
    ]
    async with serving(answering_each(*map(answering_json, answers))) as server, fetching(server) as fetch:
        auth, clock = ready(refresh(server), KEYS), VirtualClock()
        assert await sent_token(auth, clock, fetch) == "t-1"
        for _ in range(3):
            assert await auth.renewed(clock, fetch)
        assert [form_of(head)["refresh_token"] for head in server.requests] == ["r-1", "r-2", "r-2", "r-3"]


# How long it is kept.


async def test_a_token_is_asked_for_once():
    async with serving(counting()) as server, fetching(server) as fetch:
        tokens, clock = TokenCache(), VirtualClock()
        auth = ready(client(server), KEYS, tokens=tokens)
        again = ready(client(server), SecretResolver(KEYS), tokens=tokens)
        assert [await sent_token(each, clock, fetch) for each in (auth, auth, again)] == ["t-1"] * 3
        await clock.advance(10**6)
        assert await sent_token(auth, clock, fetch) == "t-1"
        assert len(server.requests) == 1


async def test_what_differs_has_a_token_of_its_own():
    async with serving(counting()) as server, fetching(server) as fetch:
        tokens, clock = TokenCache(), VirtualClock()
        schemes = [
            client(server),
            client(server, scopes=["a"]),
            client(server, audience="x"),
            client(server, client_auth="body"),
            client(server, client_id="0ther-9f"),
            client(server, client_secret="0ther-9f"),
            client(server, token_url=f"{server.origin}/other"),
            refresh(server),
            {**refresh(server), "refresh_token": "0ther-9f"},
        ]
        given = [await sent_token(ready(each, KEYS, tokens=tokens), clock, fetch) for each in schemes]
        assert len(set(given)) == len(schemes)


@pytest.mark.parametrize(("lifetime", "usable"), [(3600, 3570), (60, 54), ("3600", 3570), (300.5, 270.5)])
async def test_a_token_is_replaced_before_it_ends(lifetime, usable):
    async with serving(counting(expires_in=lifetime)) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        assert await sent_token(auth, clock, fetch) == "t-1"
        await clock.advance(usable - 3)
        assert await sent_token(auth, clock, fetch) == "t-1"
        await clock.advance(4)
        assert await sent_token(auth, clock, fetch) == "t-2"
        assert await sent_token(auth, clock, fetch) == "t-2"


@pytest.mark.parametrize("lifetime", [None, True, "soon", [], "1e999", "nan", 10**400])
async def test_a_lifetime_that_is_none_is_not_known(lifetime):
    async with serving(counting(expires_in=lifetime)) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        await sent_token(auth, clock, fetch)
        await clock.advance(10**6)
        assert await sent_token(auth, clock, fetch) == "t-1"


@pytest.mark.parametrize("lifetime", [0, -5])
async def test_a_token_that_has_ended_is_good_for_one_call(lifetime):
    async with serving(counting(expires_in=lifetime)) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        assert [await sent_token(auth, clock, fetch) for _ in range(2)] == ["t-1", "t-2"]


async def test_each_clock_counts_by_itself_and_all_share_the_token():
    async with serving(counting(expires_in=100)) as server, fetching(server) as fetch:
        auth = ready(client(server), KEYS)
        clocks = [VirtualClock(), RealClock(), *(VirtualClock() for _ in range(100))]
        await clocks[0].advance(10**6)
        assert {await sent_token(auth, clock, fetch) for clock in clocks} == {"t-1"}
        await clocks[-1].advance(95)
        assert await sent_token(auth, clocks[-1], fetch) == "t-2"
        assert await sent_token(auth, clocks[1], fetch) == "t-2"


# One request for all who wait.


def holding(answer):
    """A handler that answers when it is told to, and the event that tells it."""
    told = asyncio.Event()

    async def handler(reader, writer, head):
        await told.wait()
        await answer(reader, writer, head)

    return handler, told


async def test_a_hundred_callers_make_one_request():
    async with serving(counting()) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        given = await asyncio.gather(*(sent_token(auth, clock, fetch) for _ in range(100)))
        assert set(given) == {"t-1"}
        assert (len(server.requests), server.accepted) == (1, 1)


async def until(done):
    """Let the loop turn until something is so."""
    for _ in range(10_000):
        if done():
            return
        await settled(lambda: False, 1)
    raise AssertionError("it never came to be")


async def test_a_caller_that_is_cancelled_leaves_the_others_waiting():
    handler, told = holding(answering_json(token()))
    async with serving(handler) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        callers = [asyncio.create_task(sent_token(auth, clock, fetch)) for _ in range(5)]
        await until(lambda: server.requests)
        callers[0].cancel()
        await asyncio.wait([callers[0]])
        told.set()
        assert callers[0].cancelled()
        assert await asyncio.gather(*callers[1:]) == ["t-1"] * 4
        assert len(server.requests) == 1


async def never(reader, _writer, _head):
    """A handler that waits until the other side goes away."""
    await reader.read()


async def test_with_the_last_caller_the_request_is_cancelled():
    async with serving(answering_each(never, counting())) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        before = left()
        callers = [asyncio.create_task(sent_token(auth, clock, fetch)) for _ in range(5)]
        await until(lambda: server.requests)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert all(caller.cancelled() for caller in callers)
        await server.all_closed()
        await until(lambda: left() == before)
        assert await sent_token(auth, clock, fetch) == "t-1"
        assert len(server.requests) == 2


async def test_a_thousand_callers_that_are_cancelled_leave_nothing():
    async with serving(never) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        before = left()
        for _ in range(10):
            callers = [asyncio.create_task(sent_token(auth, clock, fetch)) for _ in range(100)]
            asked = len(server.requests)
            await until(lambda asked=asked: len(server.requests) > asked)
            for caller in callers:
                caller.cancel()
            await asyncio.wait(callers)
        await server.all_closed()
        await until(lambda: left() == before)


async def test_a_new_caller_does_not_join_a_request_that_is_given_up():
    asked = []
    ending = asyncio.Event()

    async def fetch(request):
        asked.append(request)
        if len(asked) > 1:
            return HTTPResponse(200, (), json.dumps(token("t-2")).encode())
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            await ending.wait()

    async with serving(counting()) as server:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        first = asyncio.create_task(sent_token(auth, clock, fetch))
        await until(lambda: asked)
        first.cancel()
        await settled(lambda: False, 5)
        assert await sent_token(auth, clock, fetch) == "t-2"
        ending.set()
        await asyncio.wait([first])
        assert first.cancelled()
        assert await sent_token(auth, clock, fetch) == "t-2"


def test_another_event_loop_has_a_request_of_its_own():
    asked = []

    async def fetch(request):
        asked.append(request)
        if len(asked) == 1:
            return await asyncio.get_running_loop().create_future()
        return HTTPResponse(200, (), json.dumps(token("t-2")).encode())

    class Anywhere:
        origin = "https://auth.example.com"

    auth, first = ready(client(Anywhere), KEYS), asyncio.new_event_loop()
    waiting = first.create_task(sent_token(auth, RealClock(), fetch))
    first.run_until_complete(settled(lambda: bool(asked)))
    assert asyncio.run(sent_token(auth, RealClock(), fetch)) == "t-2"
    waiting.cancel()
    first.run_until_complete(asyncio.wait([waiting]))
    first.close()
    assert asyncio.run(sent_token(auth, RealClock(), fetch)) == "t-2"


async def test_all_who_wait_are_told_of_a_failure_and_the_next_one_asks_again():
    answers = [answering(503), answering_json(token())]
    async with serving(answering_each(*answers)) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        told = await asyncio.gather(
            *(sent_token(auth, clock, fetch) for _ in range(10)), return_exceptions=True
        )
        assert {type(each) for each in told} == {AuthFailure}
        assert await sent_token(auth, clock, fetch) == "t-1"
        assert len(server.requests) == 2


async def test_virtual_time_waits_for_those_who_wait():
    handler, told = holding(answering_json(token()))
    async with serving(handler) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()

        async def called():
            with clock.working():
                async with clock.timeout(3600):
                    return await sent_token(auth, clock, fetch)

        callers = [asyncio.create_task(called()) for _ in range(3)]
        await until(lambda: server.requests)
        callers[0].cancel()
        await asyncio.wait([callers[0]])
        told.set()
        assert await asyncio.gather(*callers[1:]) == ["t-1", "t-1"]
        await clock.sleep(100)
        assert clock.monotonic() < 3600


# After status 401.


async def test_after_401_there_is_another_token():
    async with serving(counting()) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        used = await applied(auth, clock, fetch)
        assert await auth.renewed(clock, fetch, used)
        assert await sent_token(auth, clock, fetch) == "t-2"
        assert await auth.renewed(clock, fetch, used)
        assert await sent_token(auth, clock, fetch) == "t-2"
        assert await auth.renewed(clock, fetch)
        assert await sent_token(auth, clock, fetch) == "t-3"
        assert await auth.renewed(clock, fetch, draft())
        assert len(server.requests) == 3


async def test_a_hundred_refused_callers_make_one_request():
    async with serving(counting()) as server, fetching(server) as fetch:
        auth, clock = ready([client(server)], KEYS), VirtualClock()
        used = [await applied(auth, clock, fetch) for _ in range(100)]
        assert all(await asyncio.gather(*(auth.renewed(clock, fetch, each) for each in used)))
        assert await sent_token(auth, clock, fetch) == "t-2"
        assert len(server.requests) == 2


async def test_the_same_token_again_is_nothing_new():
    async with serving(answering_json(token())) as server, fetching(server) as fetch:
        auth, clock = ready(client(server), KEYS), VirtualClock()
        used = await applied(auth, clock, fetch)
        assert not await auth.renewed(clock, fetch, used)


async def test_one_of_several_that_has_something_new_is_enough():
    async with serving(counting()) as server, fetching(server) as fetch:
        key = {"type": "apiKey", "in": "query", "name": "k", "value": "${SECRET}"}
        auth, clock = ready([key, client(server)], KEYS), VirtualClock()
        used = await applied(auth, clock, fetch)
        assert await auth.renewed(clock, fetch, used)


# What is told when there is no token.


async def told(answer, *, scheme=client, clock=None, environment=KEYS):
    async with serving(answer) as server, fetching(server, read=1.0) as fetch:
        error = await failed(ready(scheme(server), environment), clock or VirtualClock(), fetch)
        details = dict(error.details)
        assert details.pop("token_url") == f"{server.origin}/token"
        assert f"{server.origin}/token" in error.message
    return error.message, error.retryable, details


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("invalid_client", "client_auth: body"),
        ("invalid_grant", "get a new one"),
        ("invalid_scope", "check `scopes`"),
        ("unauthorized_client", "`flow`"),
        ("unsupported_grant_type", "`flow`"),
        ("invalid_request", ""),
    ],
)
async def test_the_errors_of_the_standard_are_told(code, hint):
    answer = answering_json({"error": code, "error_description": "It is\nso."}, 400)
    message, retryable, details = await told(answer)
    assert f"returned no token: status 400, `{code}` (It is so.)" in message
    assert hint in message
    assert not retryable
    assert details == {"status": 400, "error": code}


@pytest.mark.parametrize(
    ("status", "retryable"), [(401, False), (403, False), (408, True), (429, True), (500, True), (503, True)]
)
async def test_what_may_pass_is_retryable(status, retryable):
    message, passing, details = await told(answering(status, {}, b"<html>"))
    assert (passing, details) == (retryable, {"status": status})
    assert message.endswith(f"status {status}")


async def test_redirects_are_not_followed():
    message, retryable, details = await told(answering(302, {"Location": "http://127.0.0.1:1/steal"}))
    assert "redirects are not followed" in message
    assert (retryable, details) == (False, {"status": 302})
    assert "steal" not in message


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7), ("soon", None), ("-1", None), ("Wed, 21 Oct 2015 07:28:00", 0)]
)
async def test_when_to_ask_again_is_told(value, seconds):
    _message, _retryable, details = await told(answering(503, {"Retry-After": value}))
    assert details.get("retry_after") == seconds


async def test_when_to_ask_again_may_be_a_date():
    clock = VirtualClock()
    for ahead, least in ((90, 80), (-90, 0)):
        value = format_datetime(clock.now() + timedelta(seconds=ahead), usegmt=True)
        _message, _retryable, details = await told(answering(503, {"Retry-After": value}), clock=clock)
        assert least <= details["retry_after"] <= max(ahead, 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "has no `access_token`"),
        (b"<html>", "has no `access_token`"),
        (b"[1]", "has no `access_token`"),
        (b"[" * 100_000, "has no `access_token`"),
        (b'{"access_token": ""}', "cannot be sent in a header"),
        (b'{"access_token": 5}', "cannot be sent in a header"),
        (b'{"access_token": "hunter2 x"}', "cannot be sent in a header"),
        (b'{"access_token": "hunter2\\r\\nX: y"}', "cannot be sent in a header"),
        (b'{"access_token": "hunter2", "token_type": "mac"}', "not of type `Bearer`"),
        (b'{"access_token": "hunter2", "token_type": 1}', "not of type `Bearer`"),
    ],
)
async def test_an_answer_that_is_no_token_is_told(body, words):
    message, retryable, details = await told(answering(200, {}, body))
    assert words in message
    assert "check `token_url`" in message
    assert "hunter2" not in message
    assert (retryable, details) == (False, {"status": 200})


@pytest.mark.parametrize(
    "kind", [{}, {"token_type": "bearer"}, {"token_type": "BearerToken"}, {"refresh_token": 5}]
)
async def test_servers_that_write_it_otherwise_are_understood(kind):
    async with (
        serving(answering_json({"access_token": "t-1", **kind}, 201)) as server,
        fetching(server) as fetch,
    ):
        assert await sent_token(ready(client(server), KEYS), VirtualClock(), fetch) == "t-1"


@pytest.mark.parametrize(
    ("answer", "fault", "retryable"),
    [
        (answering_raw(b"nonsense\r\n\r\n"), "bad_response", False),
        (answering_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"), "connection_broken", True),
    ],
)
async def test_what_breaks_on_the_way_is_told(answer, fault, retryable):
    message, passing, details = await told(answer)
    assert (passing, details) == (retryable, {"fault": fault})
    assert message.startswith("cannot get a token from")


async def test_a_server_that_is_not_there_is_told():
    async with serving(answering(200)) as server:
        auth = ready(client(server), KEYS)
    async with fetching(server) as fetch:
        error = await failed(auth, VirtualClock(), fetch)
    assert error.retryable
    assert error.details["fault"] == "connect_failed"


async def test_the_guard_has_the_last_word():
    async with serving(answering_json(token())) as server, sending() as exchange:

        async def fetch(request):
            return await exchange.sender.send(
                request, ExchangeBounds(), hosts=(request.host,), owner="auth", repeatable=False
            )

        with pytest.raises(EgressRefused):
            await applied(ready(client(server), KEYS), VirtualClock(), fetch)
        assert server.accepted == 0


# What is kept secret.


async def test_what_a_server_gives_is_masked_before_anything_else():
    secrets = SecretResolver(KEYS)
    given = token(
        "an-access-token", refresh_token="a-refresh-token", id_token="an-id-token", scope="read", secret=["x"]
    )
    async with serving(answering_json(given)) as server, fetching(server) as fetch:
        await sent_token(ready(client(server), secrets), VirtualClock(), fetch)
    text = "Bearer an-access-token a-refresh-token an-id-token read"
    assert secrets.hide_in_text(text) == "Bearer *** *** *** read"


async def test_another_vault_learns_a_token_that_was_there_before():
    tokens, clock = TokenCache(), VirtualClock()
    async with serving(answering_json(token("an-access-token"))) as server, fetching(server) as fetch:
        await sent_token(ready(client(server), KEYS, tokens=tokens), clock, fetch)
        later = SecretResolver(KEYS)
        await sent_token(ready(client(server), later, tokens=tokens), clock, fetch)
        assert later.hide_in_text("an-access-token") == "***"
        assert len(server.requests) == 1


async def test_a_server_that_gives_very_much_is_not_remembered_whole():
    secrets = SecretResolver(KEYS)
    given = {f"{number}_token": f"secret-{number}" for number in range(5000)}
    async with serving(answering_json({**token(), **given})) as server, fetching(server) as fetch:
        await sent_token(ready(client(server), secrets), VirtualClock(), fetch)
    assert len(secrets.known) < 100


async def test_an_error_that_repeats_secrets_is_masked_and_short():
    said = {
        "error": "s3cr",
        "error_description": "your secret s3 cr&t, or s3%20cr%26t, is wrong\x1b[2J " + "x" * 1000,
    }
    message, _retryable, details = await told(
        answering_json(said, 400), environment={**KEYS, "CLIENT": "s3cr"}
    )
    assert "your secret ***, or ***, is wrong [2J" in message
    assert len(message) < 400
    assert details["error"] == "***"


@pytest.mark.parametrize(
    "said", [{"error": "<script>"}, {"error": ["x"], "error_description": 5}, {"error": "x" * 100}]
)
async def test_an_error_that_is_none_of_the_standards_is_left_out(said):
    message, _retryable, details = await told(answering_json(said, 400))
    assert message.endswith("status 400")
    assert details == {"status": 400}


async def test_raw_answers_are_read_like_others():
    async with (
        serving(answering_by(lambda _head: raw_answer(200, {}, b'{"access_token": "t-9"}'))) as server,
        fetching(server) as fetch,
    ):
        assert await sent_token(ready(client(server), KEYS), VirtualClock(), fetch) == "t-9"
