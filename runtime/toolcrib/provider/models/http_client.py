"""Requests to a service of models over HTTP: its key, attempts, and what fails on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib import __version__
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Clock
from toolcrib.core.text import DuplicateKey, compact, decode_json
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.http.client import PerLoop, StreamedResponse, StreamingClient
from toolcrib.http.event_stream import EventStream, StreamEvent
from toolcrib.http.headers import fault_of_name, header_fault, seconds_to_wait
from toolcrib.http.messages import parse_origin
from toolcrib.provider.models.base_url import address_of
from toolcrib.provider.models.protocol import ProviderError
from toolcrib.provider.models.service_errors import (
    BY_KIND,
    BY_STATUS,
    HINTS,
    LASTING,
    OPINIONS,
    hint_of,
    message_of,
    said_in,
)
from toolcrib.security.egress import EgressRefused, is_loopback
from toolcrib.security.redaction import is_secret_name
from toolcrib.security.secrets import MissingSecret, Variable, Vault, pieces_of
from toolcrib.servers.environment import World

if TYPE_CHECKING:
    from tenacity import RetryCallState

BOUNDS: Final = ExchangeBounds(connect=10.0, body=64 * 1024 * 1024)
"""What an answer may take, in pieces or whole."""

LONGEST_WAIT: Final = 60.0
"""Seconds that are waited because the service asks for it; where it asks for more, the request has failed."""

BACKOFF: Final = (0.5, 8.0)
"""Seconds before the second attempt, which then double, and their bound."""

_GRACE: Final = 0.25
_LONGEST_MESSAGE: Final = 1000


class Service(NamedTuple):
    """A service of models.

    Attributes:
        name: As people call it.
        base_url: Where it is.
        variable: The variable of the environment that holds its key.
        key_header: The header that a key goes into, in lower case.
        key_scheme: What stands before it there.
        headers: What else every request has.
    """

    name: str
    base_url: str
    variable: str
    key_header: str = "authorization"
    key_scheme: str = "Bearer "
    headers: Mapping[str, str] = NOTHING


class Wire:
    """Sends requests to one service.

    Args:
        service: The service.
        base_url: Where it is instead.
        api_key: The key, instead of the one in the environment; `${VAR}` is looked up. Empty for none.
        clock: Passes the time between attempts.
        headers: Further headers of every request; `${VAR}` in a value is looked up.
        timeout: Seconds for which nothing may come.
        attempts: How often a request is tried, as long as nothing of an answer has come.

    Raises:
        ConfigurationError: `invalid_base_url`, or something that no header can be.
        ExpressionError: A look-up in a header or the key is written wrong.
    """

    def __init__(
        self,
        service: Service,
        *,
        base_url: str = "",
        api_key: str | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] = NOTHING,
        timeout: float = 600.0,
        attempts: int = 3,
    ) -> None:
        self.world = World.ordinary()
        self._service = service
        self._at = address_of(base_url or service.base_url)
        self._api_key = api_key
        pieces_of(api_key or "")
        self._clock: Clock = RealClock() if clock is None else clock
        self._headers = _checked(headers)
        self._timeout = timeout
        self._attempts = attempts
        self._pools: list[tuple[World, PerLoop[StreamingClient]]] = []

    def within(self, world: World) -> Wire:
        """The same in another world; connections are those of both."""
        wire = copy(self)
        wire.world = world
        return wire

    async def ask(self, path: str, body: Mapping[str, JSON]) -> Answer:
        """The beginning of the service's answer, which has to be closed.

        Raises:
            ProviderError: There is none.
        """
        from tenacity import AsyncRetrying, retry_if_exception  # noqa: PLC0415 -- most processes ask no model

        request = self._request(path, body)
        attempts = AsyncRetrying(
            sleep=self._clock.sleep,
            retry=retry_if_exception(_may_pass),
            wait=self._wait,
            stop=self._stops,
            reraise=True,
        )
        try:
            streamer = await self._pool().get()
        except HTTPError as error:
            raise self.failed(error) from None
        with self.outside():  # also between attempts: nobody's virtual time makes a service ready
            incoming: StreamedResponse = await attempts(self._sent, streamer, request)
        return Answer(incoming, self)

    async def aclose(self) -> None:
        """Close every connection."""
        for _, pool in self._pools:
            await pool.aclose()

    def failed(self, error: HTTPError | EgressRefused) -> ProviderError:
        """What a failure on the way comes to."""
        if isinstance(error, EgressRefused):
            return self.error(error.message, code=error.code, hint=error.hint)
        fault = error.fault
        retryable = fault not in LASTING
        return self.error(error.message, code=fault.value, hint=HINTS.get(fault, ""), retryable=retryable)

    def error(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str = "",
        retryable: bool = False,
        details: Mapping[str, Any] = NOTHING,
    ) -> ProviderError:
        """An error that names the service; secrets are masked."""
        told = f"{self._service.name} ({self._at.origin}): {message}"
        told = self.world.vault.hide_in_text(told)  # before it is cut: half a secret is not known again
        return ProviderError(
            told[:_LONGEST_MESSAGE], code=code, hint=hint, retryable=retryable, details=details
        )

    def outside(self) -> Any:
        """For the time of the block, something waits on the service."""
        return self._clock.outside()

    def _request(self, path: str, body: Mapping[str, JSON]) -> HTTPRequest:
        world = self.world
        scheme, host, port = parse_origin(world.instead_of(self._at.origin))
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
            "user-agent": f"toolcrib/{__version__}",
            **self._service.headers,
        }
        try:
            headers |= self._further(world.vault)
            if self._service.key_header not in headers:
                headers |= self._key(world.vault, local=is_loopback(host))
        except MissingSecret as error:
            raise self.error(error.message, code=error.code, hint=error.hint) from None
        for name, value in headers.items():
            if fault := header_fault(value):
                raise self.error(f"the header `{name}` {fault}", code="unusable_secret")
        return HTTPRequest(
            "POST", scheme, host, port, self._at.target(path), tuple(headers.items()), self._bytes(body)
        )

    def _further(self, vault: Vault) -> dict[str, str]:
        """The further headers, filled in. What is secret in them and in the address may come back in an answer."""
        filled = {name: vault.fill(value) for name, value in self._headers.items()}
        for name, value in filled.items():
            if is_secret_name(name):
                for secret in (value, *value.split()[1:]):  # behind `Bearer`
                    vault.register(secret)
        for secret in self._at.secrets():
            vault.register(secret)
        return filled

    def _key(self, vault: Vault, *, local: bool) -> dict[str, str]:
        service = self._service
        if self._api_key is not None:
            key = vault.fill(self._api_key)
            vault.register(key)
            return {service.key_header: service.key_scheme + key} if key else {}
        variable = Variable("env", service.variable, "" if local else None, f"${{{service.variable}}}")
        try:
            key = vault.look_up(variable)
        except MissingSecret as error:
            hint = f"set `{service.variable}` to a key of {service.name}"
            raise self.error(error.message, code="missing_key", hint=hint) from None
        return {service.key_header: service.key_scheme + key} if key else {}

    def _bytes(self, body: Mapping[str, JSON]) -> bytes:
        try:
            return compact(dict(body)).encode()
        except (ValueError, TypeError) as error:
            raise self.error(f"the request can't be sent: {error}", code="request_refused") from None

    async def _sent(self, streamer: StreamingClient, request: HTTPRequest) -> StreamedResponse:
        """One attempt; an answer that is an error is one."""
        try:
            incoming = await streamer.send(request, BOUNDS, hosts=(request.host,), silence=self._timeout)
        except (HTTPError, EgressRefused) as error:
            raise self.failed(error) from None
        if incoming.status == 200:
            return incoming
        try:
            raise await self._refusal(incoming)
        finally:
            await incoming.aclose()

    def _pool(self) -> PerLoop[StreamingClient]:
        """Connections that the guard of this world dials."""
        world = self.world
        found = next((pool for of, pool in self._pools if of.guard is world.guard), None)
        if found is None:
            found = PerLoop(lambda: StreamingClient(world.guard))
            self._pools.append((world, found))
        return found

    async def _refusal(self, incoming: StreamedResponse) -> ProviderError:
        status = incoming.status
        try:
            raw = await incoming.whole()
        except HTTPError:
            raw = b""  # the status says enough
        code, retryable = BY_STATUS.get(
            status, ("request_refused" if status < 500 else "provider_failed", status >= 500)
        )
        message = message_of(raw) or ("points elsewhere" if 300 <= status < 400 else "without a message")
        details: dict[str, Any] = {"status": status}
        told = seconds_to_wait(dict(incoming.headers), None)
        if told is not None:
            details["retry_after"] = told
        if identity := incoming.header("x-request-id") or incoming.header("request-id"):
            details["request_id"] = identity
        return self.error(
            f"answered {status}: {message}",
            code=code,
            hint=self._way_to_key() if code == "key_refused" else hint_of(told),
            retryable=OPINIONS.get(incoming.header("x-should-retry"), retryable),
            details=details,
        )

    def _way_to_key(self) -> str:
        header, key = self._service.key_header, self._api_key
        if header in self._headers:
            return f"see to the header `{header}`"
        if key == "":
            return "no key was sent; write `api_key: ${MY_KEY}` beside `base_url`, and set that variable"
        return f"see to {f'the key in `{self._service.variable}`' if key is None else 'its `api_key`'}"

    def _wait(self, state: RetryCallState) -> float:
        """What the service asks for, or a time that doubles, of which a part is random, so that callers spread out."""
        told = _told_by(state)
        if told is not None:
            return told
        first, longest = BACKOFF
        time = min(longest, first * 2.0 ** (state.attempt_number - 1))
        share: float = random.random() if isinstance(self._clock, RealClock) else 1.0  # noqa: S311 -- others must not draw the same
        return time * (1 + share) / 2

    def _stops(self, state: RetryCallState) -> bool:
        return state.attempt_number >= self._attempts or (_told_by(state) or 0) > LONGEST_WAIT


class Answer:
    """An answer whose head was read: it is none that is an error."""

    def __init__(self, incoming: StreamedResponse, wire: Wire) -> None:
        self._incoming = incoming
        self._wire = wire

    @property
    def streams(self) -> bool:
        """Whether it comes as events."""
        return self._incoming.header("content-type").lower().startswith("text/event-stream")

    async def whole(self) -> dict[str, Any]:
        """The answer, which does not come as events.

        Raises:
            ProviderError: It breaks off, or is no JSON object.
        """
        try:
            with self._wire.outside():
                raw = await self._incoming.whole()
        except HTTPError as error:
            raise self._wire.failed(error) from None
        return self.read(raw, "the answer")

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """The events, as they come.

        Raises:
            ProviderError: They break off, or are larger than they may be.
        """
        stream, left = EventStream(), BOUNDS.body
        try:
            self._incoming.check_stream()
            while (chunk := await self._chunk()) and (left := left - len(chunk)) > 0:
                for event in stream.add(chunk):
                    yield event
        except HTTPError as error:
            raise self._wire.failed(error) from None
        except ValueError as error:
            raise self._too_large(str(error)) from None
        if left <= 0:
            raise self._too_large(f"the answer has more than {BOUNDS.body:,} bytes")

    async def rest(self) -> None:
        """Read what follows the last event, which is nothing as a rule, so that the connection can be used again."""
        with suppress(TimeoutError, HTTPError):
            async with asyncio.timeout(_GRACE):
                while await self._chunk():
                    pass

    async def aclose(self) -> None:
        """Be done with it."""
        await self._incoming.aclose()

    async def _chunk(self) -> bytes:
        with self._wire.outside():
            return await self._incoming.chunk()

    def _too_large(self, why: str) -> ProviderError:
        return self._wire.error(why, code=HTTPFailure.RESPONSE_TOO_LARGE.value)

    def read(self, raw: bytes | str, what: str) -> dict[str, Any]:
        """The JSON object that a text is.

        Raises:
            ProviderError: It is none, or tells of an error.
        """
        try:
            value = decode_json(raw)
        except DuplicateKey as error:
            raise self.unreadable(f"{what} can't be trusted: {error}") from None
        except (ValueError, RecursionError):
            raise self.unreadable(f"{what} is no JSON") from None
        if not isinstance(value, dict):
            raise self.unreadable(f"{what} is no JSON object")
        if isinstance(value.get("error"), dict | str) and value["error"]:
            raise self.told(value["error"])
        return value

    def unreadable(self, why: str) -> ProviderError:
        """An answer that is not as the service's are."""
        return self._wire.error(why, code="bad_answer", retryable=True)

    def cut_off(self) -> ProviderError:
        """Events that end before the answer does."""
        return self._wire.error("the answer ended before its end", code="answer_cut_off", retryable=True)

    def told(self, error: Any) -> ProviderError:
        """What the service says has gone wrong, after its answer began."""
        kinds = [str(error.get(key)) for key in ("type", "code")] if isinstance(error, dict) else []
        kind = next((each for each in kinds if each in BY_KIND), "")
        code, retryable = BY_KIND.get(kind, ("provider_failed", False))
        message = said_in({"error": error}) or "the service tells of an error without a message"
        return self._wire.error(
            message, code=code, retryable=retryable, details={"type": kind} if kind else {}
        )


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        pieces_of(value)
        if fault := fault_of_name(name):
            raise ConfigurationError(fault.message, code=fault.code, hint=fault.hint)
    return {name.lower(): value for name, value in headers.items()}


def _may_pass(error: BaseException) -> bool:
    """Whether a further attempt may end better. After a silence, nobody has the patience."""
    return (
        isinstance(error, ProviderError) and error.retryable and error.code != HTTPFailure.READ_TIMEOUT.value
    )


def _told_by(state: RetryCallState) -> float | None:
    """Seconds that the service asks to wait."""
    assert state.outcome is not None  # noqa: S101 -- an attempt was made
    error = state.outcome.exception()
    return error.details.get("retry_after") if isinstance(error, ProviderError) else None
