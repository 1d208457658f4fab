"""`auth` of MCP servers: what is added to requests that another library makes, and what is done after status 401."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http_exchanges import sending
from http_servers import Head, answering_by, answering_json, raw_answer, serving
from toolcrib import DocumentError
from toolcrib.core.clock import RealClock
from toolcrib.core.hooks import MissingHook, load_hook
from toolcrib.core.server_config import Server
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse, open_client
from toolcrib.http.auth import (
    AuthContext,
    AuthFailure,
    RequestAuth,
    TokenCache,
    auth_schema,
    compile_server_auth,
)
from toolcrib.http.messages import RequestDraft
from toolcrib.schema.validation import check_schema
from toolcrib.security.egress import EgressGuard, EgressRefused
from toolcrib.security.secrets import MissingSecret, SecretResolver

BEARER = {"type": "http", "scheme": "bearer", "token": "${TOKEN}"}
BASIC = {"type": "http", "scheme": "basic", "username": "me", "password": "${PASSWORD}"}
KEYS = {"TOKEN": "t0p", "PASSWORD": "sesame", "KEY": "k&1", "SECRET": "s3cret"}


def key(where: str) -> dict[str, str]:
    return {"type": "apiKey", "in": where, "name": "X-Key", "value": "${KEY}"}


def oauth(server: Any) -> dict[str, str]:
    return {
        "type": "oauth2",
        "flow": "client_credentials",
        "token_url": f"{server.origin}/token",
        "client_id": "crib",
        "client_secret": "${SECRET}",
    }


class Asking:
    """A library that asks a server: it lets each request be proven, and tries once more after status 401."""

    def __init__(self, auth: RequestAuth | None, exchange: Any) -> None:
        self.auth = auth
        self._exchange = exchange

    def request(self, target: str = "/mcp", **parts: Any) -> HTTPRequest:
        return self._exchange.request(method="POST", target=target, body=b"{}", **parts)

    async def __call__(self, target: str = "/mcp", **parts: Any) -> int:
        bare = self.request(target, **parts)
        sent = await self.auth.applied(bare) if self.auth else bare
        response = await self._sent(sent)
        if response.status == 401 and self.auth and await self.auth.renewed(sent):
            response = await self._sent(await self.auth.applied(bare))
        return response.status

    async def _sent(self, request: HTTPRequest) -> HTTPResponse:
        return await self._exchange.sender.send(
            request, ExchangeBounds(), hosts=(request.host,), owner="links", repeatable=False
        )


@asynccontextmanager
async def asking(
    server: Any, auth: Any, *, tokens: TokenCache | None = None, **more: Any
) -> AsyncIterator[Asking]:
    """What asks a loopback server that has an `auth` in the project."""
    async with sending(server) as exchange:
        way = AuthContext(exchange.sender, RealClock(), (server.origin,))
        entry = Server("crm", "http", url=f"{server.origin}/mcp", auth=auth, **more)
        yield Asking(compile_server_auth(entry, SecretResolver(KEYS), way, tokens=tokens), exchange)


async def asked(auth: Any, **more: Any) -> Head:
    """The one request that reaches a server."""
    async with serving(answering_json({})) as server, asking(server, auth, **more) as ask:
        assert await ask("/mcp?a=1", headers=(("Accept", "text/event-stream"),)) == 200
        (head,) = server.requests
    return head


async def test_a_bearer_token_is_added():
    head = await asked(BEARER)
    assert head.header("authorization") == "Bearer t0p"
    assert (head.method, head.target, head.body) == ("POST", "/mcp?a=1", b"{}")
    assert head.header("accept") == "text/event-stream"


async def test_user_and_password_are_added():
    head = await asked(BASIC)
    assert head.header("authorization") == f"Basic {base64.b64encode(b'me:sesame').decode()}"


async def test_a_key_is_added_to_a_header():
    assert (await asked(key("header"))).header("x-key") == "k&1"


async def test_a_key_is_added_to_the_query():
    assert (await asked(key("query"))).query == [("a", "1"), ("X-Key", "k&1")]


async def test_a_key_is_added_to_cookies():
    async with serving(answering_json({})) as server, asking(server, key("cookie")) as ask:
        await ask(headers=(("Cookie", "sid=1; b=2"), ("cookie", "c=3")))
        (head,) = server.requests
    assert head.header("cookie") == "sid=1; b=2; c=3; X-Key=k&1"


async def test_of_a_list_all_are_added():
    head = await asked([BEARER, key("header")])
    assert (head.header("authorization"), head.header("x-key")) == ("Bearer t0p", "k&1")


async def test_a_function_is_asked_for_each_request(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "signing_for_a_server.py").write_text(
        "async def sign(request):\n"
        "    return {'headers': {'X-Signed': f'{request.method} {len(request.body)} {request.url[-8:]}'}}\n"
    )
    head = await asked({"type": "python", "call": "signing_for_a_server:sign"})
    assert head.header("x-signed") == "POST 2 /mcp?a=1"


async def test_a_server_without_auth_has_none():
    async with serving(answering_json({})) as server, asking(server, None) as ask:
        assert ask.auth is None


def token_server(good: set[str], given: list[str]):
    """Gives t-1, t-2 ... at `/token`; elsewhere answers 401 to all but the good ones."""

    def choose(head: Head) -> Any:
        if head.path == "/token":
            given.append(f"t-{len(given) + 1}")
            return answering_json({"access_token": given[-1], "token_type": "Bearer", "expires_in": 3600})
        proven = (head.header("authorization") or "").removeprefix("Bearer ")
        return answering_json({}) if proven in good else raw_answer(401)

    return answering_by(choose)


async def test_a_token_is_fetched_once_and_renewed_when_it_is_refused():
    good, given = {"t-1"}, []
    async with serving(token_server(good, given)) as server, asking(server, oauth(server)) as ask:
        assert [await ask(), await ask()] == [200, 200]
        assert given == ["t-1"]
        good.clear()
        good.add("t-2")
        assert await ask() == 200
        assert given == ["t-1", "t-2"]
        good.clear()
        assert await ask() == 401  # it is tried once more, and no third time
        assert given == ["t-1", "t-2", "t-3"]


async def test_many_that_are_refused_at_once_wait_for_one_new_token():
    good, given = {"t-2"}, []
    async with serving(token_server(good, given)) as server, asking(server, oauth(server)) as ask:
        assert await asyncio.gather(*[ask() for _ in range(10)]) == [200] * 10
        assert given == ["t-1", "t-2"]


async def test_servers_with_the_same_credentials_share_a_token():
    given: list[str] = []
    tokens = TokenCache()
    async with serving(token_server({"t-1"}, given)) as server:
        for _ in range(2):
            async with asking(server, oauth(server), tokens=tokens) as ask:
                assert await ask() == 200
    assert given == ["t-1"]


async def test_what_is_fixed_is_not_tried_again():
    async with serving(answering_by(lambda _head: raw_answer(401))) as server:
        async with asking(server, BEARER) as ask:
            assert await ask() == 401
        assert len(server.requests) == 1


async def test_another_origin_gets_no_credential():
    async with serving(answering_json({})) as server, asking(server, [BEARER, key("query")]) as ask:
        assert ask.auth is not None
        elsewhere = ask.request(host="localhost")
        assert await ask.auth.applied(elsewhere) is elsewhere
        assert await ask.auth.renewed(elsewhere) is False


async def test_tokens_are_asked_for_where_the_origin_lies_now():
    given: list[str] = []
    async with serving(token_server({"t-1"}, given)) as server, sending(server) as exchange:
        way = AuthContext(
            exchange.sender,
            RealClock(),
            (server.origin,),
            aimed=lambda request: request._replace(scheme="http", host="127.0.0.1", port=server.port),
        )
        scheme = {**oauth(server), "token_url": "https://auth.example.com/token"}
        auth = compile_server_auth(
            Server("crm", "http", url=server.origin, auth=scheme), SecretResolver(KEYS), way
        )
        ask = Asking(auth, exchange)
        assert await ask() == 200


async def test_the_guard_has_its_say_over_the_address_of_tokens():
    async with (
        serving(answering_json({})) as server,
        asking(server, None) as ask,
        serving(answering_json({})) as other,
    ):
        way = AuthContext(ask._exchange.sender, RealClock(), (server.origin,))
        auth = compile_server_auth(
            Server("crm", "http", url=server.origin, auth=oauth(other)), SecretResolver(KEYS), way
        )
        assert auth is not None
        with pytest.raises(EgressRefused):
            await auth.applied(ask.request())
        assert other.accepted == 0


async def test_a_token_that_is_not_given_is_told_without_secrets():
    refusing = answering_by(
        lambda _head: answering_json({"error": "invalid_client", "error_description": "s3cret"}, 400)
    )
    async with serving(refusing) as server, asking(server, oauth(server)) as ask:
        with pytest.raises(AuthFailure) as caught:
            await ask()
    assert "invalid_client" in caught.value.message
    assert "s3cret" not in caught.value.message


# What is wrong with it.


def tried(auth: Any, environment: dict[str, str] = KEYS, **more: Any) -> RequestAuth | None:
    way = AuthContext(open_client(EgressGuard()), RealClock(), ("https://crm.example.com",))
    server = Server("crm", "http", url="https://crm.example.com/mcp", auth=auth, **more)
    return compile_server_auth(server, SecretResolver(environment), way)


def test_a_missing_secret_has_its_place():
    with pytest.raises(MissingSecret) as caught:
        tried([key("header"), BEARER], {"KEY": "k"})
    assert caught.value.pointer == "/auth/1/token"


def test_a_missing_hook_has_the_place_of_the_key():
    with pytest.raises(MissingHook, match=r"toolcrib\.yaml:7") as caught:
        tried(
            {"type": "python", "call": "no_such_module_at_all:sign"},
            places={"": "toolcrib.yaml:3", "auth": "toolcrib.yaml:7"},
        )
    assert caught.value.code == "missing_hook"


def test_a_header_that_is_written_twice_is_refused():
    with pytest.raises(DocumentError) as caught:
        tried(BEARER, headers={"authorization": "Bearer x"})
    (problem,) = caught.value.problems
    assert (problem.code, problem.pointer) == ("duplicate_credential", "/auth")
    assert "/headers" in problem.message


def test_the_schema_stands_alone():
    told = auth_schema()
    assert check_schema(told) == []
    assert all(name.startswith("auth_") for name in told["$defs"])


def test_a_hook_may_be_a_method():
    assert load_hook("json:JSONDecoder.decode", "here").__name__ == "decode"
    with pytest.raises(MissingHook, match="not a function"):
        load_hook("json:__name__", "here")


# A request that is finished, and begun again.

_tokens = st.text("abcXYZ-", min_size=1, max_size=8)
_pieces = st.lists(st.text("ab%20=+", min_size=1, max_size=6), max_size=4).map("&".join)
_headers = st.lists(st.tuples(_tokens.filter(lambda name: name.lower() != "cookie"), _tokens), max_size=4)


@given(_tokens, _pieces, _headers.map(tuple), st.binary(max_size=8))
def test_a_draft_of_a_request_finishes_as_the_same(path, query, headers, body):
    target = f"/{path}?{query}" if query else f"/{path}"
    request = HTTPRequest("POST", "https", "example.com", 443, target, headers, body)
    assert RequestDraft.of(request).finished() == request
