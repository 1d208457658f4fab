"""A live tool, ready to be called: a call, from its arguments to its result.

`BoundLive` makes the request; `HTTPExchange` authenticates it, sends it, follows permitted redirects, maps failures of the
connection to outcomes, and takes secrets out of what comes back.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib.core.clock import parse_duration, run_in_thread
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
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

_UNREADABLE = frozenset({HTTPFailure.RESPONSE_TOO_LARGE, HTTPFailure.HEADERS_TOO_LARGE})
_MOVED = frozenset({301, 302, 303, 307, 308})
_FRESHNESS = frozenset({"cache-control", "expires", "etag", "last-modified"})


class CompiledBlock(NamedTuple):
    """A compiled block.

    Attributes:
        request: What is sent.
        auth: What proves who sends it; None for nothing.
        reading: What is made of the answer.
        pages: How one answer leads to the next; None where there is only one.
    """

    request: CompiledRequest
    auth: Auth | None
    reading: ResponseReader
    pages: Pages | None


class BoundLive:
    """A live tool.

    Attributes:
        waits: A call waits for the world.
        origin: Where its requests go, `https://api.example.com`; limits and circuits of an origin are shared.
        repeatable: Whether an attempt may follow another one that may have acted.
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
        self._namespace = uuid.uuid4()
        self._route = _route_of(block, tool, parts, world)
        self.origin = self._route.origin
        self.repeatable = is_repeatable(tool)
        keeps = annotations.read_only and tool.limits.cache > 0 and request.method in {"GET", "HEAD"}
        self._exchange = HTTPExchange(
            client, self._route, auth, parts.reading, world.secrets, repeatable=self.repeatable, keeps=keeps
        )

    async def execute(self, call: Call) -> Result:
        """One attempt; of a tool with pages, all of them."""
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
        if is_large(collected.value, DEPTH):
            return await run_in_thread(call.context.session.clock, hide)
        return hide()

    def explain(self, call: Call) -> JSON | Result:
        """The exact request, masked, and where each part of it was written. Nothing is sent, no token fetched.

        Of arguments that no request can be made of: the result of the call.
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
        """The draft with the key that is the same for every attempt of it, and another one for every page."""
        if self._key_header:
            kept = [each for each in draft.headers if each[0] != self._key_header]
            told = f"{call.id} {draft.path}?{'&'.join(draft.query)}"
            draft.headers = [*kept, (self._key_header, str(uuid.uuid5(self._namespace, told)))]
        return draft


def _route_of(
    block: dict[str, Any], tool: Descriptor, parts: CompiledBlock, world: NetworkEnvironment
) -> Route:
    """Where the requests of a tool may go, and what an exchange may take."""
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
    """The hosts that stand for others of these: who puts them there means them to be reached."""
    for written, instead in world.origins.items():
        _scheme, host, port = parse_origin(written)
        if world.guard.is_named(host, port, hosts):
            yield parse_origin(instead)[1]


class Route(NamedTuple):
    """Where the requests of a tool may go, and what an exchange may take.

    Attributes:
        own: The origin that the descriptor names: `https://api.example.com`.
        origin: The origin that is called in its place, or the same.
        hosts: Globs of the hosts that may be reached.
        bounds: What an exchange may take.
        redirects: How many are followed.
        owner: Whose connections may be reused.
        world: What may be reached at all.
    """

    own: str
    origin: str
    hosts: tuple[str, ...]
    bounds: ExchangeBounds
    redirects: int
    owner: str
    world: NetworkEnvironment

    def aimed(self, request: HTTPRequest) -> HTTPRequest:
        """The request, sent where its origin is meant to lie."""
        origins = self.world.origins
        if not origins or request.origin not in origins:
            return request
        scheme, host, port = parse_origin(origins[request.origin])
        return request._replace(scheme=scheme, host=host, port=port)

    @property
    def own_origins(self) -> tuple[str, str]:
        """The origins that are the tool's own; credentials go nowhere else."""
        return (self.own, self.origin)


class HTTPExchange:
    """What stands between a draft and what is read of its answer."""

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
        """Hold what every exchange of a tool needs.

        Args:
            client: Carries requests.
            route: Where they may go.
            auth: Proves who sends them; None for nobody.
            reading: What is made of answers.
            secrets: Knows what must be masked.
            repeatable: Whether an attempt may follow another one that may have acted.
            keeps: Whether an answer may be kept, where its headers allow it.
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
        """What comes of a draft that has one answer."""
        if call.kept is not None:
            draft.headers.extend(call.kept.validators.items())
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return redact_result(response, self._secrets)
        if response.status == 304 and call.kept is not None:
            result = call.kept.result
        elif len(response.body) > SMALL:
            result = await run_in_thread(call.context.session.clock, partial(self._result, call, response))
        else:
            result = self._result(call, response)
        if not self._keeps or result.outcome is not Outcome.OK:
            return result
        freshness = self._freshness(call, draft, response)
        return result.with_meta(freshness=freshness) if freshness is not None else result

    def _result(self, call: Call, response: HTTPResponse) -> Result:
        """What is made of an answer."""
        read = self._read(response)
        now = call.context.session.clock.now
        result = (
            self._reading.result(read, call.arguments, now) if isinstance(read, ResponseContent) else read
        )
        if response.status in _PASSED_ON and not self._repeatable:
            result = _may_have_acted(result)
        return redact_result(result, self._secrets) if may_hold_secret(self._secrets, response) else result

    async def read(self, call: Call, draft: RequestDraft) -> ResponseContent | Result:
        """What is read of the answer to one page."""
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return response
        if len(response.body) > SMALL:
            return await run_in_thread(call.context.session.clock, partial(self._read, response))
        return self._read(response)

    def _read(self, response: HTTPResponse) -> ResponseContent | Result:
        """What is read of an answer; of a failure without secrets, since what is told of it may be cut."""
        read = self._reading.read(response)
        if isinstance(read, Result) or not self._reading.failed(response.status):
            return read
        return redact_content(read, self._secrets) if may_hold_secret(self._secrets, response) else read

    def _freshness(self, call: Call, draft: RequestDraft, response: HTTPResponse) -> JSON:
        if response.status != 304 and _FRESHNESS.isdisjoint(name for name, _value in response.headers):
            return None
        from toolcrib.http.freshness import freshness  # noqa: PLC0415 -- most answers say nothing of it

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
            return Result.failed(
                Outcome.TOOL_ERROR,
                error.message,
                code="auth_failed",
                details=error.details,
                retryable=error.retryable,
            )

    async def _proven(self, call: Call, draft: RequestDraft, auth: Auth) -> HTTPResponse | Result:
        """With authentication; where the other side does not take it, once more with what is new.

        Only an answer to the request itself asks for that: one behind a redirect comes after the request has acted.
        """
        clock = call.context.session.clock
        bare = draft.copied()

        async def fetch(request: HTTPRequest) -> HTTPResponse:
            return await self._sent(call, self._route.aimed(request), repeatable=False)

        await auth.apply(draft, clock, fetch)
        request = self._route.aimed(draft.finished())
        response = await self._sent(call, request)
        if response.status == 401 and await auth.renewed(clock, fetch, draft):
            await auth.apply(bare, clock, fetch)
            request = self._route.aimed(bare.finished())
            response = await self._sent(call, request)
        return await self._followed(call, request, response)

    async def _followed(
        self, call: Call, request: HTTPRequest, response: HTTPResponse
    ) -> HTTPResponse | Result:
        """The answer behind the redirects that the tool follows."""
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
            except HTTPError as error:  # the first request has arrived, whatever became of this one
                raise HTTPError(error.fault, error.message, sent=True) from None
            except EgressRefused as error:
                return self._denied(error, acted=not self._repeatable).with_usage(call.attempt, 0.0)
        return response

    async def _sent(
        self, call: Call, request: HTTPRequest, *, repeatable: bool | None = None
    ) -> HTTPResponse:
        """One request; of a token, which may be worth only one, nothing is sent twice."""
        route, masks = self._route, None
        again = self._repeatable if repeatable is None else repeatable
        if _log.isEnabledFor(logging.DEBUG):
            masks = CallSecrets(self._secrets, call.arguments, call.tool.input_schema)
            _tell(request_lines(request, masks))
        with call.context.session.clock.outside():
            response = await self._client.send(
                request, self._bounds, hosts=route.hosts, owner=route.owner, repeatable=again
            )
        if masks is not None:
            _tell(response_lines(response, masks, self._reading.redacted))
        return response

    def _denied(self, error: EgressRefused, *, acted: bool = False) -> Result:
        message = f"{error.message}; {error.hint}" if error.hint else error.message
        details: dict[str, JSON] = {"may_have_acted": True} if acted else {}
        return Result.failed(Outcome.DENIED, message, code=error.code, details=details)

    def _failed(self, call: Call, error: HTTPError) -> Result:
        """What became of a request on its way; a request that may have arrived is not called a failure lightly."""
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
            message += "; request less data, or raise `limits.output_size`"
        retryable = not acted and fault not in _UNREADABLE and fault not in _LASTING
        return Result.failed(outcome, message, code=fault.value, details=details, retryable=retryable)


_PASSED_ON = frozenset({502, 504})
"""What a gateway answers that has passed a request on and got nothing good back."""


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
"""Faults that the same request meets again."""


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        _log.debug("%s", line)


_UTF8: Final = frozenset({"", "utf-8", "utf8", "ascii", "us-ascii"})


def may_hold_secret(secrets: SecretResolver, response: HTTPResponse) -> bool:
    """Whether an answer may hold a secret: a quick look, which may spare a long one."""
    charset = media_type(response.header("content-type") or "").charset
    if charset not in _UTF8 or secrets.knows(response.body):
        return True
    return secrets.knows("\n".join([value for _name, value in response.headers]).encode("latin-1"))


def redact_content(read: ResponseContent, secrets: SecretResolver) -> ResponseContent:
    """What was read of an answer, without secrets: half a secret would not be known for one."""
    envelope = read.envelope
    hidden = {key: secrets.hide_in(envelope[key]) for key in ("headers", "body")}
    return read._replace(envelope={**envelope, **hidden})
