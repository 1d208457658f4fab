"""Compiles an `auth`, of a tool or of a server: its schemes in their order, each with a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Server
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse
from toolcrib.http.auth.credentials import AuthFields
from toolcrib.http.auth.oauth import (
    OAuth,
    TokenCache,
    compile_oauth2,
    parse_token_endpoint,
    warn_of_plain_text,
)
from toolcrib.http.auth.schemes import (
    Auth,
    Fetch,
    HookAuth,
    Spot,
    StaticAuth,
    compile_api_key,
    compile_basic,
    compile_bearer,
    compile_hook,
)
from toolcrib.http.headers import fault_of_name
from toolcrib.http.messages import RequestDraft
from toolcrib.security.secrets import SecretResolver

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient


class CombinedAuth:
    """Schemes that all apply, in their order: a hook sees what those before it have added."""

    def __init__(self, schemes: Sequence[Auth]) -> None:
        self.hosts: tuple[str, ...] = tuple(host for scheme in schemes for host in scheme.hosts)
        self._schemes = schemes

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:
        """Add what each of them adds; see `Auth.apply`."""
        for scheme in self._schemes:
            await scheme.apply(draft, clock, fetch)

    def show(self, draft: RequestDraft) -> None:
        """Add what each of them adds, masked."""
        for scheme in self._schemes:
            scheme.show(draft)

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:
        """Whether any of them has something new; each is asked. See `Auth.renewed`."""
        return any([await scheme.renewed(clock, fetch, used) for scheme in self._schemes])


def compile_auth(
    block: Mapping[str, Any],
    pointer: str,
    place: Callable[[str], str],
    problems: list[Problem],
    secrets: SecretResolver | None,
    *,
    tokens: TokenCache | None = None,
    folder: str = "",
) -> Auth | None:
    """Compile the `auth` of a block.

    Args:
        block: What holds it, with `url`, `headers`, `cookies` and `query`, each of which may be left out; what they
            fill can't be a credential's place. It fits its schema.
        pointer: Where the block stands in its document: `/live`.
        place: Pointer -> `file:line`.
        problems: Receives every fault.
        secrets: Where secrets are looked up; None to check only.
        tokens: Shared by all that asks for tokens, so that the same credentials get one token; its own unless given.
        folder: The trusted project whose modules may be hooks; empty for none.

    Returns:
        None where the block has no `auth`, or is only checked.

    Raises:
        MissingSecret: A secret is not there, or can't be sent.
        MissingHook: A hook is not there.
    """
    auth = block.get("auth")
    if auth is None:
        return None
    at = f"{pointer}/auth"
    alone = isinstance(auth, Mapping)
    schemes: list[Auth] = []
    spots = dict(_spots_of(block, pointer))
    for index, scheme in enumerate([auth] if alone else auth):
        fields = AuthFields(scheme, at if alone else f"{at}/{index}", problems, secrets)
        compiled = _compiled(fields, place, tokens or TokenCache(), folder)
        _check_spot(fields, spots)
        if compiled is not None:
            schemes.append(compiled)
    _check_url(block, AuthFields({}, at, problems, secrets))
    if secrets is None or not schemes:
        return None
    return schemes[0] if len(schemes) == 1 else CombinedAuth(schemes)


def _compiled(
    fields: AuthFields, place: Callable[[str], str], tokens: TokenCache, folder: str
) -> StaticAuth | OAuth | HookAuth | None:
    kind = fields.choice("type")
    if kind == "apiKey":
        return compile_api_key(fields)
    if kind == "http":
        return compile_basic(fields) if fields.choice("scheme") == "basic" else compile_bearer(fields)
    return compile_oauth2(fields, tokens) if kind == "oauth2" else compile_hook(fields, place, folder)


def _check_spot(fields: AuthFields, spots: dict[Spot, str]) -> None:
    """Whether a scheme's place is free, and one where a credential may stand."""
    kind, where, name = fields.choice("type"), fields.choice("in"), fields.choice("name")
    if kind == "python":
        return
    if kind != "apiKey":
        where, name = "header", "Authorization"
    spot = (where, name.lower() if where == "header" else name)
    if spot in spots:
        message = f"the {where} `{name}` is set twice: here and at {spots[spot]}"
        fields.tell("duplicate_credential", message, hint="remove one of them; only one can be sent")
    fault = fault_of_name(name) if where != "query" else None
    if fault is not None and not (where == "cookie" and fault.code == "reserved_header"):
        fields.tell(fault.code, fault.message.replace("header", where), "name", hint=fault.hint)
    spots[spot] = fields.pointer


def _spots_of(block: Mapping[str, Any], pointer: str) -> Iterator[tuple[Spot, str]]:
    """The places that the rest of the block fills, each with its pointer."""
    for key, where in (("headers", "header"), ("cookies", "cookie"), ("query", "query")):
        names = block.get(key, {})
        if key != "query" or "from" not in names:
            for name in names:
                yield (where, name.lower() if where == "header" else name), f"{pointer}/{key}"
    _path, _mark, query = str(block.get("url", "")).partition("?")
    for piece in filter(None, query.split("&")):
        yield ("query", unquote_plus(piece.partition("=")[0])), f"{pointer}/url"


def _check_url(block: Mapping[str, Any], fields: AuthFields) -> None:
    origin = "/".join(str(block.get("url", "")).split("/", 3)[:3])
    address = None if "${" in origin else parse_token_endpoint(origin)
    if address is not None:
        warn_of_plain_text(address, fields)


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
            AuthFailure: There is nothing to add.
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
            AuthFailure: Something new could not be had.
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
    server: Server, secrets: SecretResolver, way: AuthContext, *, tokens: TokenCache | None = None
) -> RequestAuth | None:
    """Compile the `auth` of a server and look its secrets up.

    Args:
        server: Whose it is.
        secrets: Where secrets are looked up.
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
    auth = compile_auth(block, "", place, problems, secrets, tokens=tokens, folder=server.root)
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    return RequestAuth(auth, way, f"mcp:{server.name}") if auth is not None else None
