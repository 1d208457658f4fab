"""A bound live tool: from the arguments of a call to its result.

`BoundLive` creates the request. `HTTPExchange` authenticates and sends it, follows permitted redirects, maps
transport errors to outcomes and masks secrets in the response.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib.core.clock import parse_duration, run_in_thread
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.core.running_calls import traffic_of
from toolcrib.core.text import format_size
from toolcrib.executors.live.cross_checks import is_repeatable
from toolcrib.executors.live.dry_run import CallSecrets, plan_of, request_lines, response_lines
from toolcrib.executors.live.pagination import Pages
from toolcrib.executors.live.redirects import follow_redirect
from toolcrib.executors.live.request import CompiledRequest
from toolcrib.executors.live.response import ResponseContent, ResponseReader, media_type
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, HTTPResponse
from toolcrib.http.auth import Auth, AuthFailure
from toolcrib.http.messages import RequestDraft, parse_origin
from toolcrib.schema.validation.json_values import DEPTH, SMALL, is_large
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.egress import EgressRefused
from toolcrib.security.redaction import one_call, redact_result
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient

_log = logging.getLogger("toolcrib.http")

# The server has answered: a retry would get the same oversized response.
_UNREADABLE = frozenset({HTTPFailure.RESPONSE_TOO_LARGE, HTTPFailure.HEADERS_TOO_LARGE})
_MOVED = frozenset({301, 302, 303, 307, 308})
_FRESHNESS = frozenset({"cache-control", "expires", "etag", "last-modified"})


class CompiledBlock(NamedTuple):
    """A compiled `live` block.

    Attributes:
        request: The request.
        auth: The authentication; None for none.
        reading: Turns a response into a result.
        pages: The pagination; None for none.
    """

    request: CompiledRequest
    auth: Auth | None
    reading: ResponseReader
    pages: Pages | None


class BoundLive:
    """A live tool.

    Attributes:
        waits: Always true: a call waits for the network.
        origin: The origin of its requests, such as `https://api.example.com`. Tools of one origin share
            limits and circuit breaker.
        repeatable: Whether a call may be attempted again after an attempt that may have acted.
    """

    waits = True

    def __init__(
        self, tool: Descriptor, parts: CompiledBlock, world: NetworkEnvironment, client: HTTPClient
    ) -> None:
        block: Any = tool.bindings["live"]
        request, auth = parts.request, parts.auth
        annotations = tool.annotations
        self._tool = tool
        self._parts = parts
        self._world = world
        self._key_header: str = block.get("idempotency_key", "")
        # Random, so that idempotency keys of different runs never collide on the server.
        self._namespace = uuid.uuid4()
        self._route = _route_of(block, tool, parts, world)
        self.origin = self._route.origin
        self.repeatable = is_repeatable(tool)
        keeps = annotations.read_only and tool.limits.cache > 0 and request.method in {"GET", "HEAD"}
        self._exchange = HTTPExchange(
            client, self._route, auth, parts.reading, world.secrets, repeatable=self.repeatable, keeps=keeps
        )

    async def execute(self, call: Call) -> Result:
        """Make one attempt; with pagination, fetch all pages."""
        with one_call():
            return await self._attempt(call)

    async def _attempt(self, call: Call) -> Result:
        try:
            draft = self._draft(call)
        except UnusableArguments as misfit:
            return misfit.refused(call, "live")
        pages = self._parts.pages
        if pages is None:
            return await self._exchange.answer(call, self._keyed(call, draft))

        async def page(following: RequestDraft) -> ResponseContent | Result:
            return await self._exchange.read(call, self._keyed(call, following))

        own = self._route.own_origins
        collected = await pages.collect(call, draft, page, self._parts.reading, own=own)
        hide = partial(redact_result, collected, self._world.secrets)
        # Masking a large value would block the event loop.
        if is_large(collected.value, DEPTH):
            return await run_in_thread(call.context.session.clock, hide)
        return hide()

    def explain(self, call: Call) -> JSON | Result:
        """The exact request, masked, with the origin of each part. Nothing is sent, and no token is fetched.

        If no request can be created from the arguments, the result of the call.
        """
        try:
            draft = self._draft(call)
        except UnusableArguments as misfit:
            return misfit.refused(call, "live")
        pages = self._parts.pages
        first = draft if pages is None else pages.first(draft, call)
        if isinstance(first, Result):
            return first
        if self._parts.auth is not None:
            self._parts.auth.show(first)
        request = self._route.aimed(self._keyed(call, first).finished())
        return plan_of(self._tool, self._parts.request, request, self._world.secrets, call.arguments)

    def _draft(self, call: Call) -> RequestDraft:
        draft = self._parts.request.draft(call.arguments)
        if call.context.trace:
            draft.headers.extend(call.context.trace.items())
        return draft

    def _keyed(self, call: Call, draft: RequestDraft) -> RequestDraft:
        """The draft with its idempotency key: the same for every attempt, and different for every page."""
        if self._key_header:
            # The draft of a later page is a copy that still has the key of the page before.
            kept = [each for each in draft.headers if each[0] != self._key_header]
            told = f"{call.id} {draft.path}?{'&'.join(draft.query)}"
            draft.headers = [*kept, (self._key_header, str(uuid.uuid5(self._namespace, told)))]
        return draft


def _route_of(
    block: dict[str, Any], tool: Descriptor, parts: CompiledBlock, world: NetworkEnvironment
) -> Route:
    """The route of a tool's requests."""
    named = (*parts.request.hosts, *(parts.auth.hosts if parts.auth is not None else ()))
    told = block.get("timeouts", {})
    ordinary = ExchangeBounds()
    bounds = ordinary._replace(
        connect=parse_duration(told["connect"]) if "connect" in told else ordinary.connect,
        read=parse_duration(told["read"]) if "read" in told else ordinary.read,
        body=tool.limits.output_size,
    )
    return Route(
        own=parts.request.origin,
        origin=world.instead_of(parts.request.origin),
        hosts=(*named, *_instead_of(named, world)),
        bounds=bounds,
        redirects=block.get("redirects", 0),
        owner=tool.origin.pack or tool.name,
        world=world,
    )


def _instead_of(hosts: Collection[str], world: NetworkEnvironment) -> Iterator[str]:
    """The hosts that replace these hosts by `origins`. Whoever configures a replacement permits it."""
    for written, instead in world.origins.items():
        _scheme, host, port = parse_origin(written)
        if world.guard.is_named(host, port, hosts):
            yield parse_origin(instead)[1]


class Route(NamedTuple):
    """Where the requests of a tool may go, and their limits.

    Attributes:
        own: The origin in the descriptor, such as `https://api.example.com`.
        origin: The origin that is called instead, by `origins` of the project or profile; usually the same.
        hosts: Globs of the hosts that may be reached.
        bounds: The time and size limits of an exchange.
        redirects: The number of redirects that are followed.
        owner: The pack or tool. Connections are reused only within one owner.
        world: The network environment.
    """

    own: str
    origin: str
    hosts: tuple[str, ...]
    bounds: ExchangeBounds
    redirects: int
    owner: str
    world: NetworkEnvironment

    def aimed(self, request: HTTPRequest) -> HTTPRequest:
        """The request, readdressed if `origins` replaces its origin."""
        origins = self.world.origins
        if not origins or request.origin not in origins:
            return request
        scheme, host, port = parse_origin(origins[request.origin])
        return request._replace(scheme=scheme, host=host, port=port)

    @property
    def own_origins(self) -> tuple[str, str]:
        """The origins that count as the tool's own. Credentials are sent nowhere else."""
        return (self.own, self.origin)


class HTTPExchange:
    """Sends drafts and reads the responses."""

    def __init__(
        self,
        client: HTTPClient,
        route: Route,
        auth: Auth | None,
        reading: ResponseReader,
        secrets: SecretResolver,
        *,
        repeatable: bool,
        keeps: bool,
    ) -> None:
        """Create the exchange of a tool.

        Args:
            client: The HTTP client.
            route: Where requests may go.
            auth: The authentication; None for none.
            reading: Turns responses into results.
            secrets: Masks secrets.
            repeatable: Whether a request may be sent again after an attempt that may have acted.
            keeps: Whether responses may be cached if their headers allow it.
        """
        self._client = client
        self._route = route
        self._auth = auth
        self._reading = reading
        self._secrets = secrets
        self._repeatable = repeatable
        self._keeps = keeps
        self._bounds = route.bounds

    async def answer(self, call: Call, draft: RequestDraft) -> Result:
        """The result of a draft without pagination."""
        # A stale cached result is revalidated: 304 means that it is still current (RFC 9110 section 13.1).
        if call.kept is not None:
            draft.headers.extend(call.kept.validators.items())
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return redact_result(response, self._secrets)
        if response.status == 304 and call.kept is not None:
            result = call.kept.result
        # Parsing and masking a large body would block the event loop.
        elif len(response.body) > SMALL:
            result = await run_in_thread(call.context.session.clock, partial(self._result, call, response))
        else:
            result = self._result(call, response)
        if not self._keeps or result.outcome is not Outcome.OK:
            return result
        freshness = self._freshness(call, draft, response)
        return result.with_meta(freshness=freshness) if freshness is not None else result

    def _result(self, call: Call, response: HTTPResponse) -> Result:
        """The result of a response."""
        read = self._read(response)
        now = call.context.session.clock.now
        result = (
            self._reading.result(read, call.arguments, now) if isinstance(read, ResponseContent) else read
        )
        # The gateway may have forwarded the request before it failed.
        if response.status in _PASSED_ON and not self._repeatable:
            result = _may_have_acted(result)
        return redact_result(result, self._secrets) if may_hold_secret(self._secrets, response) else result

    async def read(self, call: Call, draft: RequestDraft) -> ResponseContent | Result:
        """The content of one page."""
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return response
        if len(response.body) > SMALL:
            return await run_in_thread(call.context.session.clock, partial(self._read, response))
        return self._read(response)

    def _read(self, response: HTTPResponse) -> ResponseContent | Result:
        """The content of a response."""
        read = self._reading.read(response)
        # The text of a failure is truncated later. Half of a secret would not be recognized and masked.
        if isinstance(read, Result) or not self._reading.failed(response.status):
            return read
        return redact_content(read, self._secrets) if may_hold_secret(self._secrets, response) else read

    def _freshness(self, call: Call, draft: RequestDraft, response: HTTPResponse) -> JSON:
        if response.status != 304 and _FRESHNESS.isdisjoint(name for name, _value in response.headers):
            return None
        # Deferred: most responses have no such header.
        from toolcrib.http.freshness import freshness  # noqa: PLC0415

        return freshness(draft.finished(), response, call.context.session.clock.now())

    async def _response(self, call: Call, draft: RequestDraft) -> HTTPResponse | Result:
        try:
            if self._auth is not None and draft.origin in self._route.own_origins:
                return await self._proven(call, draft, self._auth)
            request = self._route.aimed(draft.finished())
            return await self._followed(call, request, await self._sent(call, request))
        except HTTPError as error:
            return self._failed(call, error)
        except EgressRefused as error:
            return self._denied(error)
        except AuthFailure as error:
            return Result.failure(
                Outcome.TOOL_ERROR,
                error.message,
                code="auth_failed",
                details=error.details,
                retryable=error.retryable,
            )

    async def _proven(self, call: Call, draft: RequestDraft, auth: Auth) -> HTTPResponse | Result:
        """Send with authentication, and once more with renewed credentials after a 401."""
        clock = call.context.session.clock
        bare = draft.copied()

        async def fetch(request: HTTPRequest) -> HTTPResponse:
            return await self._sent(call, self._route.aimed(request), repeatable=False)

        await auth.apply(draft, clock, fetch)
        request = self._route.aimed(draft.finished())
        response = await self._sent(call, request)
        # Only a 401 to the request itself is retried. Behind a redirect the request has already acted.
        if response.status == 401 and await auth.renewed(clock, fetch, draft):
            await auth.apply(bare, clock, fetch)
            request = self._route.aimed(bare.finished())
            response = await self._sent(call, request)
        return await self._followed(call, request, response)

    async def _followed(
        self, call: Call, request: HTTPRequest, response: HTTPResponse
    ) -> HTTPResponse | Result:
        """The response after the redirects that the tool follows."""
        route = self._route
        for _ in range(route.redirects):
            location = response.header("location") if response.status in _MOVED else None
            following = (
                None
                if location is None
                else follow_redirect(request, response.status, location, route.own_origins)
            )
            if following is None:
                break
            request = route.aimed(following)
            try:
                response = await self._sent(call, request)
            # `sent`: the first request has arrived, even if the redirected one failed to connect.
            except HTTPError as error:
                raise HTTPError(error.fault, error.message, sent=True) from None
            except EgressRefused as error:
                return self._denied(error, acted=not self._repeatable).with_usage(call.attempt, 0.0)
        return response

    async def _sent(
        self, call: Call, request: HTTPRequest, *, repeatable: bool | None = None
    ) -> HTTPResponse:
        """Send one request. Token requests pass `repeatable=False`: a refresh token may be valid only once."""
        route, masks = self._route, None
        again = self._repeatable if repeatable is None else repeatable
        # Formatting and masking a body is expensive, so it is done only if the log shows it.
        if _log.isEnabledFor(logging.DEBUG):
            masks = CallSecrets(self._secrets, call.arguments, call.tool.input_schema)
            _tell(request_lines(request, masks))
        # The network takes real time, also if the session's clock is virtual.
        with call.context.session.clock.outside():
            response = await self._client.send(
                request,
                self._bounds,
                hosts=route.hosts,
                owner=route.owner,
                repeatable=again,
                traffic=traffic_of(call),
            )
        if masks is not None:
            _tell(response_lines(response, masks, self._reading.redacted))
        return response

    def _denied(self, error: EgressRefused, *, acted: bool = False) -> Result:
        message = f"{error.message}; {error.hint}" if error.hint else error.message
        details: dict[str, JSON] = {"may_have_acted": True} if acted else {}
        return Result.failure(Outcome.DENIED, message, code=error.code, details=details)

    def _failed(self, call: Call, error: HTTPError) -> Result:
        """The result of a transport error."""
        # A request that may have acted must not be reported as failed: the model would repeat it.
        acted = error.sent and not self._repeatable
        details: Mapping[str, JSON] = {"sent": error.sent, **({"may_have_acted": True} if acted else {})}
        fault = error.fault
        outcome = Outcome.TRANSPORT_ERROR
        if fault in _UNREADABLE:
            outcome = Outcome.LIMIT_EXCEEDED
        elif fault is HTTPFailure.READ_TIMEOUT:
            outcome = Outcome.TIMEOUT
        elif acted:
            outcome = Outcome.UNKNOWN_OUTCOME
        message = f"`{call.tool.name}`: {error.message}"
        if outcome is Outcome.UNKNOWN_OUTCOME:
            message += "; the request was sent, so it may have acted"
        if fault is HTTPFailure.RESPONSE_TOO_LARGE:
            tool = call.tool
            limit = limit_phrase(tool, "output_size", format_size(tool.limits.output_size))
            message += f"; {limit}; request less data"
            details = {
                **limit_details(tool, "output_size", tool.limits.output_size, error.measured),
                **details,
            }
        # Retrying is left to the retry layer, which knows the attempts and the deadline.
        retryable = not acted and fault not in _UNREADABLE and fault not in _LASTING
        return Result.failure(outcome, message, code=fault.value, details=details, retryable=retryable)


_PASSED_ON = frozenset({502, 504})
"""The statuses of a gateway that got no valid response to a forwarded request (RFC 9110 section 15.6)."""


def _may_have_acted(result: Result) -> Result:
    if result.error is None:
        return result
    details = {**result.error.details, "may_have_acted": True}
    return result._replace(error=result.error._replace(details=details, retryable=False))


_LASTING = frozenset(
    {
        HTTPFailure.BAD_REQUEST,
        HTTPFailure.TLS_FAILED,
        HTTPFailure.UNSUPPORTED_CODING,
        HTTPFailure.BAD_RESPONSE,
    }
)
"""Failures that the same request would meet again, so a retry is useless."""


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        _log.debug("%s", line)


_UTF8: Final = frozenset({"", "utf-8", "utf8", "ascii", "us-ascii"})


def may_hold_secret(secrets: SecretResolver, response: HTTPResponse) -> bool:
    """Whether a response may contain a secret. A search in the raw bytes is cheap; masking parses and copies."""
    charset = media_type(response.header("content-type") or "").charset
    # In another charset a secret has other bytes than those that are searched for.
    if charset not in _UTF8 or secrets.knows(response.body):
        return True
    return secrets.knows("\n".join([value for _name, value in response.headers]).encode("latin-1"))


def redact_content(read: ResponseContent, secrets: SecretResolver) -> ResponseContent:
    """The content of a response, masked."""
    envelope = read.envelope
    hidden = {key: secrets.hide_in(envelope[key]) for key in ("headers", "body")}
    return read._replace(envelope={**envelope, **hidden})
