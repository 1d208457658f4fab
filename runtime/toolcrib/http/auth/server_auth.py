"""What proves who asks an MCP server, for requests that another library makes and sends."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Server
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse
from toolcrib.http.auth.compiler import compile_auth
from toolcrib.http.auth.oauth import TokenCache
from toolcrib.http.auth.schemes import Auth
from toolcrib.http.messages import RequestDraft
from toolcrib.security.secrets import SecretResolver

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient

TOKENS = ExchangeBounds(body=1024 * 1024)
"""What asking for a token may take."""


def unchanged(request: HTTPRequest) -> HTTPRequest:
    """The request, sent where it says."""
    return request


@dataclass(frozen=True, slots=True)
class AuthContext:
    """How tokens are asked for, and where what proves who asks may go.

    Attributes:
        client: Carries requests for tokens; of the same egress guard as the requests to the server.
        clock: By which tokens end.
        origins: The server's own: `https://crm.example.com`. A request to any other gets no credential.
        aimed: Where a request for a token is sent in place of where it says.
        bounds: What one may take.
    """

    client: HTTPClient
    clock: Clock
    origins: Collection[str]
    aimed: Callable[[HTTPRequest], HTTPRequest] = unchanged
    bounds: ExchangeBounds = TOKENS


class RequestAuth:
    """Proves who asks, request by request. It may be used by many tasks at once."""

    def __init__(self, auth: Auth, way: AuthContext, owner: str) -> None:
        """Hold what it takes.

        Args:
            auth: What proves it.
            way: How tokens are asked for.
            owner: Whose connections to token servers may be reused.
        """
        self._auth = auth
        self._way = way
        self._owner = owner

    async def applied(self, request: HTTPRequest) -> HTTPRequest:
        """The request with what proves who asks, in place of what has the same name.

        A request to another origin than the server's own stays as it is: a redirect takes no credential along.

        Raises:
            AuthFailed: There is nothing to add.
            EgressRefused: The guard refused the address of the tokens.
        """
        if request.origin not in self._way.origins:
            return request
        draft = RequestDraft.of(request)
        await self._auth.apply(draft, self._way.clock, self._fetch)
        return draft.finished()

    async def renewed(self, refused: HTTPRequest) -> bool:
        """After status 401: whether there is something new, so that the bare request may be tried once more.

        Args:
            refused: The request as it was sent. What proved it is not given again; where somebody else has had it
                renewed since then, that is taken.

        Raises:
            AuthFailed: Something new could not be had.
            EgressRefused: As for `applied`.
        """
        if refused.origin not in self._way.origins:
            return False
        return await self._auth.renewed(self._way.clock, self._fetch, RequestDraft.of(refused))

    async def _fetch(self, request: HTTPRequest) -> HTTPResponse:
        way = self._way
        aimed = way.aimed(request)
        with way.clock.outside():  # of a token, which may be worth only one request, nothing is sent twice
            return await way.client.send(
                aimed, way.bounds, hosts=(aimed.host,), owner=self._owner, repeatable=False
            )


def compile_server_auth(
    server: Server, vault: SecretResolver, way: AuthContext, *, tokens: TokenCache | None = None
) -> RequestAuth | None:
    """Compile the `auth` of a server and look its secrets up.

    Args:
        server: Whose it is.
        vault: Where secrets are looked up.
        way: How tokens are asked for.
        tokens: Shared by servers, so that the same credentials get one token; its own unless given.

    Returns:
        None where the server has no `auth`.

    Raises:
        MissingSecret: A secret is not there, or can't be sent; `pointer` tells where: `/auth/token`.
        MissingHook: A hook is not there.
        DocumentError: There is an error in it, which was told when it was read.
    """

    def place(pointer: str) -> str:
        return server.place(pointer.split("/")[1])

    problems: list[Problem] = []
    block = {"url": server.url, "headers": server.headers, "auth": server.auth}
    auth = compile_auth(block, "", place, problems, vault, tokens=tokens, folder=server.root)
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    return RequestAuth(auth, way, f"mcp:{server.name}") if auth is not None else None
