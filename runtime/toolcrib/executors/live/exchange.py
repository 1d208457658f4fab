"""One exchange: authentication, the hops of a redirect, and how the wire's failures are told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.clock import run_in_thread
from toolcrib.core.model import JSON, Call, Outcome, Result
from toolcrib.executors.live.dry_run import CallMasks, request_lines, response_lines
from toolcrib.executors.live.redirects import hop
from toolcrib.executors.live.response import Read, Reading
from toolcrib.executors.live.response_masking import masked_read, may_tell
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, HTTPResponse
from toolcrib.http.auth import Auth, AuthFailed
from toolcrib.http.messages import RequestDraft, parse_origin
from toolcrib.schema.validation.json_values import SMALL
from toolcrib.security.egress import EgressRefused
from toolcrib.security.redaction import redact_result
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient

_log = logging.getLogger("toolcrib.http")

_UNREADABLE = frozenset({HTTPFailure.RESPONSE_TOO_LARGE, HTTPFailure.HEADERS_TOO_LARGE})
_MOVED = frozenset({301, 302, 303, 307, 308})
_FRESHNESS = frozenset({"cache-control", "expires", "etag", "last-modified"})


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


class Exchange:
    """What stands between a draft and what is read of its answer."""

    def __init__(
        self,
        sender: HTTPClient,
        route: Route,
        auth: Auth | None,
        reading: Reading,
        vault: SecretResolver,
        *,
        repeatable: bool,
        keeps: bool,
    ) -> None:
        """Hold what every exchange of a tool needs.

        Args:
            sender: Carries requests.
            route: Where they may go.
            auth: Proves who sends them; None for nobody.
            reading: What is made of answers.
            vault: Knows what must be masked.
            repeatable: Whether an attempt may follow another one that may have acted.
            keeps: Whether an answer may be kept, where its headers allow it.
        """
        self._sender = sender
        self._route = route
        self._auth = auth
        self._reading = reading
        self._vault = vault
        self._repeatable = repeatable
        self._keeps = keeps
        self._bounds = route.bounds

    async def answer(self, call: Call, draft: RequestDraft) -> Result:
        """What comes of a draft that has one answer."""
        if call.kept is not None:
            draft.headers.extend(call.kept.validators.items())
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return redact_result(response, self._vault)
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
        result = self._reading.result(read, call.arguments, now) if isinstance(read, Read) else read
        if response.status in _PASSED_ON and not self._repeatable:
            result = _may_have_acted(result)
        return redact_result(result, self._vault) if may_tell(self._vault, response) else result

    async def read(self, call: Call, draft: RequestDraft) -> Read | Result:
        """What is read of the answer to one page."""
        response = await self._response(call, draft)
        if isinstance(response, Result):
            return response
        if len(response.body) > SMALL:
            return await run_in_thread(call.context.session.clock, partial(self._read, response))
        return self._read(response)

    def _read(self, response: HTTPResponse) -> Read | Result:
        """What is read of an answer; of a failure without secrets, since what is told of it may be cut."""
        read = self._reading.read(response)
        if isinstance(read, Result) or not self._reading.failed(response.status):
            return read
        return masked_read(read, self._vault) if may_tell(self._vault, response) else read

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
        except AuthFailed as error:
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
                None if location is None else hop(request, response.status, location, route.own_origins)
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
            masks = CallMasks(self._vault, call.arguments, call.tool.input_schema)
            _tell(request_lines(request, masks))
        with call.context.session.clock.outside():
            response = await self._sender.send(
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
            message += "; ask for less, or raise `limits.output_size`"
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
