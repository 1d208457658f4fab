"""Compile the `auth` of a tool or server: a list of schemes, each setting a different header, parameter or cookie."""

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
    """Several schemes, applied in order: a hook sees what earlier schemes added."""

    def __init__(self, schemes: Sequence[Auth]) -> None:
        self.hosts: tuple[str, ...] = tuple(host for scheme in schemes for host in scheme.hosts)
        self._schemes = schemes

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:
        """Apply each scheme; see `Auth.apply`."""
        for scheme in self._schemes:
            await scheme.apply(draft, clock, fetch)

    def show(self, draft: RequestDraft) -> None:
        """Add the masked credentials of each scheme."""
        for scheme in self._schemes:
            scheme.show(draft)

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:
        """Renew each scheme; whether any has a new credential. See `Auth.renewed`."""
        # A list, not a generator: any() would stop at the first new credential and leave other schemes
        # expired.
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
        block: The block that contains `auth`, valid against its schema. Its optional `url`, `headers`, `cookies` and
            `query` must not set the same names as a credential.
        pointer: The pointer of the block in its document: `/live`.
        place: Pointer -> `file:line`.
        problems: Receives every problem.
        secrets: Resolves secrets; None to check only.
        tokens: Token cache; share it so that equal credentials share one token. Default: a new one.
        folder: The trusted project folder from which hooks may be imported; empty for none.

    Returns:
        None if the block has no `auth` or is only checked.

    Raises:
        MissingSecret: A secret is missing or cannot be sent.
        MissingHook: A hook does not exist.
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
    """Check that the target of a scheme is unused and may carry a credential."""
    kind, where, name = fields.choice("type"), fields.choice("in"), fields.choice("name")
    # A hook decides at call time which headers it sets; `HookAuth` checks them then.
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
        fields.tell(fault.code, fault.message.replace("header", where, 1), "name", hint=fault.hint)
    spots[spot] = fields.pointer


def _spots_of(block: Mapping[str, Any], pointer: str) -> Iterator[tuple[Spot, str]]:
    """The headers, cookies and parameters that the rest of the block sets, each with its pointer."""
    for key, where in (("headers", "header"), ("cookies", "cookie"), ("query", "query")):
        names = block.get(key, {})
        if key != "query" or "from" not in names:
            for name in names:
                yield (where, name.lower() if where == "header" else name), f"{pointer}/{key}"
    _path, _mark, query = str(block.get("url", "")).partition("?")
    # A parameter in the URL and a credential of the same name would be sent twice; servers differ in which
    # counts.
    for piece in filter(None, query.split("&")):
        yield ("query", unquote_plus(piece.partition("=")[0])), f"{pointer}/url"


def _check_url(block: Mapping[str, Any], fields: AuthFields) -> None:
    origin = "/".join(str(block.get("url", "")).split("/", 3)[:3])
    address = None if "${" in origin else parse_token_endpoint(origin)
    if address is not None:
        warn_of_plain_text(address, fields)


TOKENS = ExchangeBounds(body=1024 * 1024)
"""Limits of a token request."""


def unchanged(request: HTTPRequest) -> HTTPRequest:
    """The default of `AuthContext.aimed`: the request itself."""
    return request


@dataclass(frozen=True, slots=True)
class AuthContext:
    """How tokens are requested, and which origins may receive credentials.

    Attributes:
        client: Sends token requests; has the same egress guard as the requests to the server.
        clock: Determines when tokens expire.
        origins: The server's own origins, such as `https://crm.example.com`. Others never receive a credential.
        aimed: Maps a token request to the address it is sent to; a project can replace origins (`origins`).
        bounds: Limits of a token request.
    """

    client: HTTPClient
    clock: Clock
    origins: Collection[str]
    aimed: Callable[[HTTPRequest], HTTPRequest] = unchanged
    bounds: ExchangeBounds = TOKENS


class RequestAuth:
    """Authenticates the requests to one server. Safe for concurrent tasks."""

    def __init__(self, auth: Auth, way: AuthContext, owner: str) -> None:
        """Create the authentication of one server.

        Args:
            auth: The compiled schemes.
            way: How tokens are requested.
            owner: Owner of the connections to token servers.
        """
        self._auth = auth
        self._way = way
        self._owner = owner

    async def applied(self, request: HTTPRequest) -> HTTPRequest:
        """The request with credentials, which replace headers of the same name.

        Requests to other origins than the server's own are returned unchanged.

        Raises:
            AuthFailure: No credential could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        # A redirect to another origin must not carry the credential along.
        if request.origin not in self._way.origins:
            return request
        draft = RequestDraft.of(request)
        await self._auth.apply(draft, self._way.clock, self._fetch)
        return draft.finished()

    async def renewed(self, refused: HTTPRequest) -> bool:
        """After status 401: whether a new credential is available, so that the request can be retried.

        Args:
            refused: The request as sent. Its credential is not used again; a credential that another task has
                renewed since counts as new.

        Raises:
            AuthFailure: No new credential could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        if refused.origin not in self._way.origins:
            return False
        return await self._auth.renewed(self._way.clock, self._fetch, RequestDraft.of(refused))

    async def _fetch(self, request: HTTPRequest) -> HTTPResponse:
        way = self._way
        aimed = way.aimed(request)
        with way.clock.outside():
            # Never repeated: refresh tokens may be valid for a single request (RFC 6749 section 10.4).
            return await way.client.send(
                aimed, way.bounds, hosts=(aimed.host,), owner=self._owner, repeatable=False
            )


def compile_server_auth(
    server: Server, secrets: SecretResolver, way: AuthContext, *, tokens: TokenCache | None = None
) -> RequestAuth | None:
    """Compile the `auth` of a server and resolve its secrets.

    Args:
        server: The server.
        secrets: Resolves secrets.
        way: How tokens are requested.
        tokens: Token cache; share it so that equal credentials share one token. Default: a new one.

    Returns:
        None if the server has no `auth`.

    Raises:
        MissingSecret: A secret is missing or cannot be sent; `pointer` is its place, such as `/auth/token`.
        MissingHook: A hook does not exist.
        DocumentError: The block is invalid; its problems were reported when the document was read.
    """

    def place(pointer: str) -> str:
        return server.place(pointer.split("/")[1])

    problems: list[Problem] = []
    block = {"url": server.url, "headers": server.headers, "auth": server.auth}
    auth = compile_auth(block, "", place, problems, secrets, tokens=tokens, folder=server.root)
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    return RequestAuth(auth, way, f"mcp:{server.name}") if auth is not None else None
