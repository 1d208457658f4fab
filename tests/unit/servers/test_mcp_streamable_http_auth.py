"""What proves who asks a server, over the link: added to each request, renewed once, taken to no other place."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from mcp import Client, MCPError

from http_servers import Server as Served
from http_servers import answering_by, raw_answer, serving
from mcp_over_http import speaking
from toolcrib.core.server_config import Server
from toolcrib.http.auth import TokenCache
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import MissingSecret, SecretResolver
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.transports import CallTrace, open_link, trace_call

KEY = "canary-key-4b1f"


@asynccontextmanager
async def connected(
    server: Served, auth: Any, *allow: str, tokens: TokenCache | None = None
) -> AsyncIterator[tuple[Client, NetworkEnvironment]]:
    there = NetworkEnvironment.ordinary()._replace(
        guard=EgressGuard(allow), secrets=SecretResolver({"KEY": KEY})
    )
    named = Server("crm", transport="http", url=f"{server.origin}/mcp", auth=auth)
    async with Client(open_link(named, there, tokens), mode="legacy") as client:
        yield client, there


def demanding(name: str, value: str) -> Any:
    """A server that answers only requests with this header."""
    return speaking(seen=lambda head: None if head.header(name) == value else raw_answer(401))


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "http", "scheme": "bearer", "token": "${KEY}"}, "authorization", f"Bearer {KEY}"),
        ({"type": "apiKey", "in": "header", "name": "X-Api-Key", "value": "${KEY}"}, "x-api-key", KEY),
        (
            {"type": "http", "scheme": "basic", "username": "me", "password": "${KEY}"},
            "authorization",
            "Basic " + base64.b64encode(f"me:{KEY}".encode()).decode(),
        ),
    ],
)
async def test_every_request_has_it(auth, header, value):
    async with serving(demanding(header, value)) as server:
        async with connected(server, auth) as (client, there):
            await client.call_tool("echo", {})
            assert there.secrets.hide_in_text(KEY) == "***"
        assert {head.header(header) for head in server.requests} == {value}
        assert {head.method for head in server.requests} == {"POST", "GET", "DELETE"}


def giving(*tokens: str) -> Any:
    """A server that gives these tokens, one after the other."""
    left = list(tokens)

    def token(_head):
        given = {"access_token": left.pop(0), "token_type": "Bearer", "expires_in": 3600}
        return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(given).encode())

    return answering_by(token)


def oauth(server: Served) -> dict[str, str]:
    where = f"{server.origin}/token"
    return {
        "type": "oauth2",
        "flow": "client_credentials",
        "token_url": where,
        "client_id": "me",
        "client_secret": "${KEY}",
    }


async def test_a_token_is_asked_for_once_and_shared():
    tokens = TokenCache()
    async with (
        serving(giving("token-1")) as givers,
        serving(demanding("authorization", "Bearer token-1")) as server,
    ):
        leave = f"127.0.0.1:{givers.port}"
        for _ in range(2):
            async with connected(server, oauth(givers), leave, tokens=tokens) as (client, there):
                await client.call_tool("echo", {})
            assert there.secrets.hide_in_text("token-1") == "***"
        assert len(givers.requests) == 1
        assert parse_qs(givers.requests[0].body.decode())["grant_type"] == ["client_credentials"]


async def test_a_token_that_is_refused_is_renewed_once():
    wanted = demanding("authorization", "Bearer token-2")
    async with serving(giving("token-1", "token-2")) as givers, serving(wanted) as server:
        async with connected(server, oauth(givers), f"127.0.0.1:{givers.port}") as (client, _):
            with trace_call() as call_trace:
                await client.call_tool("echo", {})
            assert call_trace.trouble is None
        first = [head.header("authorization") for head in server.requests[:2]]
        assert first == ["Bearer token-1", "Bearer token-2"]
        assert server.requests[0].body == server.requests[1].body


async def failed(server: Served, auth: Any, *allow: str) -> CallTrace:
    with trace_call() as call_trace, pytest.raises((MCPError, ExceptionGroup)):
        async with connected(server, auth, *allow):
            pass
    assert call_trace.trouble is not None
    assert not call_trace.begun
    return call_trace


@pytest.mark.parametrize(
    ("auth", "hint"),
    [
        (None, "add credentials to `auth` of the server"),
        (
            {"type": "http", "scheme": "bearer", "token": "${KEY}"},
            "check that the credentials in `auth` are still valid",
        ),
    ],
)
async def test_what_is_refused_is_told(auth, hint):
    async with serving(demanding("authorization", "Bearer other")) as server:
        call_trace = await failed(server, auth)
    assert call_trace.trouble[:3] == ("unauthorized", "the server answered with status 401", hint)


async def test_without_a_token_nothing_is_asked():
    refusing = answering_by(
        lambda _head: raw_answer(400, {"Content-Type": "application/json"}, b'{"error": "invalid_client"}')
    )
    async with serving(refusing) as givers, serving(speaking()) as server:
        call_trace = await failed(server, oauth(givers), f"127.0.0.1:{givers.port}")
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "auth_failed"
        assert "returned no token: status 400, `invalid_client`" in call_trace.trouble.message
        assert server.requests == []


async def test_the_server_that_gives_tokens_needs_leave_of_its_own():
    async with serving(giving("token-1"), host="127.0.0.2") as givers, serving(speaking()) as server:
        where = oauth(givers) | {"token_url": f"http://127.0.0.2:{givers.port}/token"}
        call_trace = await failed(server, where)
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "address_refused"
        assert (givers.accepted, server.requests) == (0, [])


def test_a_secret_that_is_not_there_is_told_with_its_place():
    auth = {"type": "http", "scheme": "bearer", "token": "${NOT_THERE}"}
    with pytest.raises(MissingSecret) as caught:
        open_link(
            Server("crm", transport="http", url="https://crm.example.com", auth=auth),
            NetworkEnvironment.ordinary()._replace(secrets=SecretResolver({})),
        )
    assert caught.value.pointer == "/auth/token"
