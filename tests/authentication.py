"""Compiled `auth` blocks, and exchanges with loopback token servers: what tests of authentication are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from http_exchanges import sending
from http_servers import Head, Server
from toolcrib import Descriptor, Problem
from toolcrib.core.protocols import Clock
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse
from toolcrib.http.auth import Auth, AuthFailure, Fetch, TokenCache, compile_auth
from toolcrib.http.messages import RequestDraft
from toolcrib.security.secrets import SecretResolver

URL = "https://api.example.com/v1"


def tried(
    auth: Any, secrets: SecretResolver | None = None, *, tokens: TokenCache | None = None, **block: Any
) -> tuple[Auth | None, list[Problem]]:
    """An `auth` and all that is wrong with it; nothing is looked up unless a secrets is given."""
    whole = {"url": URL, "auth": auth, **block}
    problems: list[Problem] = []
    tool = Descriptor("tool", bindings={"live": whole})
    return compile_auth(whole, "/live", tool.origin.place, problems, secrets, tokens=tokens), problems


def faults(auth: Any, environment: Mapping[str, str] | None = None, **block: Any) -> list[tuple[str, str]]:
    """Code and pointer of all that is wrong with an `auth`."""
    secrets = None if environment is None else SecretResolver(environment)
    return [(problem.code, problem.pointer) for problem in tried(auth, secrets, **block)[1]]


def ready(auth: Any, environment: Mapping[str, str] | SecretResolver | None = None, **options: Any) -> Auth:
    """An `auth` without errors, bound."""
    secrets = environment if isinstance(environment, SecretResolver) else SecretResolver(environment or {})
    compiled, problems = tried(auth, secrets, **options)
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    assert compiled is not None
    return compiled


def draft(**parts: Any) -> RequestDraft:
    """A draft of `GET https://api.example.com/v1`."""
    return RequestDraft("GET", "https", "api.example.com", 443, "/v1", **parts)


async def no_exchange(request: HTTPRequest) -> HTTPResponse:
    """What fetches for a scheme that asks nobody."""
    raise AssertionError(f"{request.url} was asked")


async def applied(auth: Auth, clock: Clock, fetch: Fetch = no_exchange, **parts: Any) -> RequestDraft:
    """A draft with what an `auth` adds."""
    made = draft(**parts)
    await auth.apply(made, clock, fetch)
    return made


async def failed(auth: Auth, clock: Clock, fetch: Fetch = no_exchange) -> AuthFailure:
    """Why nothing could be added."""
    try:
        await auth.apply(draft(), clock, fetch)
    except AuthFailure as error:
        return error
    raise AssertionError("something was added")


def shown(auth: Auth, **parts: Any) -> HTTPRequest:
    """A request as it is shown before anything is sent."""
    made = draft(**parts)
    auth.show(made)
    return made.finished()


@asynccontextmanager
async def fetching(server: Server, *, read: float = 5.0) -> AsyncIterator[Fetch]:
    """What makes exchanges with a server through a guard; at the end nothing of them may be left."""
    async with sending(server) as exchange:

        async def fetch(request: HTTPRequest) -> HTTPResponse:
            return await exchange.sender.send(
                request, ExchangeBounds(read=read), hosts=(request.host,), owner="auth", repeatable=False
            )

        yield fetch


def form_of(head: Head) -> dict[str, str]:
    """The fields that were posted."""
    return dict(parse_qsl(head.body.decode(), keep_blank_values=True, strict_parsing=True))
