"""The parts that the adapters of all model services share: URLs, API keys, retries, errors and JSON helpers.

`ServedModel` is the base class of an adapter; each request is one HTTP exchange. `ServiceClient` sends it.
The functions at the end are common to all wire formats.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from toolcrib import __version__
from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Content
from toolcrib.core.protocols import Clock
from toolcrib.core.text import DuplicateKey, compact, decode_json
from toolcrib.formats.providers import Declaration
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.http.client import PerLoop, StreamedResponse, StreamingClient
from toolcrib.http.event_stream import EventStream, StreamEvent
from toolcrib.http.headers import fault_of_name, header_fault, seconds_to_wait
from toolcrib.http.messages import parse_origin
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.models.assembler import Assembler, parse_arguments
from toolcrib.provider.models.protocol import CallDelta, Delta, Finish, ProviderError, Request
from toolcrib.security.egress import EgressRefused, is_loopback
from toolcrib.security.redaction import is_secret_name
from toolcrib.security.secrets import MissingSecret, SecretResolver, SecretVariable, split_variables
from toolcrib.servers.environment import NetworkEnvironment, normal_origin

if TYPE_CHECKING:
    from tenacity import RetryCallState

# Azure and several gateways accept the key in the query of the URL.
_KEY: Final = re.compile(r"(?i)(key|sig|signature|auth|code)$")
"""Names of secret query parameters, in addition to the names that are secret everywhere."""


class ServiceURL(NamedTuple):
    """The parsed base URL of a service.

    Attributes:
        origin: Normalized origin.
        path: Prefix of the path of each request, without a trailing slash.
        query: Query of each request.
    """

    origin: str
    path: str
    query: str

    def target(self, path: str) -> str:
        """Build the target of a request from its path."""
        return self.path + path + (f"?{self.query}" if self.query else "")

    def secrets(self) -> Iterator[str]:
        """Yield the secrets in the query."""
        for name, value in parse_qsl(self.query):
            if is_secret_name(name) or _KEY.search(name):
                yield value


def parse_base_url(base_url: str) -> ServiceURL:
    """Parse a base URL.

    Raises:
        ConfigurationError: `invalid_base_url`: the URL is invalid.
    """
    try:
        parts = urlsplit(base_url)
        origin = normal_origin(f"{parts.scheme}://{parts.netloc}")
    except ValueError:
        raise ConfigurationError(
            "the `base_url` of the provider is not a valid URL",  # without the value, which may contain a key
            code="invalid_base_url",
            hint="use a URL such as `https://api.example.com/v1` or `http://127.0.0.1:4010/v1`",
        ) from None
    return ServiceURL(origin, parts.path.rstrip("/"), parts.query)


_LOOKED_AT: Final = 65536
"""Maximum bytes of an error response that are read."""

# 529 is Anthropic's status for an overloaded service.
BY_STATUS: Final[Mapping[int, tuple[str, bool]]] = {
    401: ("key_refused", False),
    403: ("key_refused", False),
    408: ("provider_failed", True),
    409: ("provider_failed", True),
    429: ("rate_limited", True),
    501: ("request_refused", False),
    503: ("provider_overloaded", True),
    529: ("provider_overloaded", True),
}
"""Maps a status to an error code, and whether a retry may succeed. Default: 4xx refused, 5xx failed."""

_WITHOUT_BODY: Final = frozenset({204, 205})
"""Statuses of success that have no body, and so no answer."""

BY_KIND: Final[Mapping[str, tuple[str, bool]]] = {
    "api_error": ("provider_failed", True),
    "internal_server_error": ("provider_failed", True),
    "server_error": ("provider_failed", True),
    "timeout_error": ("provider_failed", True),
    "overloaded": ("provider_overloaded", True),
    "overloaded_error": ("provider_overloaded", True),
    "engine_overloaded_error": ("provider_overloaded", True),
    "server_is_overloaded": ("provider_overloaded", True),
    "service_unavailable_error": ("provider_overloaded", True),
    "slow_down": ("provider_overloaded", True),
    "rate_limit_error": ("rate_limited", True),
    "rate_limit_exceeded": ("rate_limited", True),
    "authentication_error": ("key_refused", False),
    "invalid_request_error": ("request_refused", False),
}
"""Maps the type of an error inside an answer to an error code, and whether a retry may succeed.

Gateways write a status there as well; it counts like the status of a response.
"""

# Both OpenAI and Anthropic send this header, and their own SDKs obey it before the status.
OPINIONS: Final[Mapping[str, bool]] = {"true": True, "false": False}
"""Values of the header `x-should-retry`."""

LASTING: Final = frozenset(
    {
        HTTPFailure.BAD_REQUEST,
        HTTPFailure.TLS_FAILED,
        HTTPFailure.UNSUPPORTED_CODING,
        HTTPFailure.RESPONSE_TOO_LARGE,
        HTTPFailure.HEADERS_TOO_LARGE,
    }
)
"""Failures that a retry of the same request cannot avoid."""

HINTS: Final[Mapping[HTTPFailure, str]] = {
    HTTPFailure.CONNECT_FAILED: "check that the service is running and that `base_url` is correct",
    HTTPFailure.CONNECT_TIMEOUT: "check that the service is running and that `base_url` is correct",
    HTTPFailure.TLS_FAILED: "check its certificate, or set SSL_CERT_FILE to the certificate that signs it",
    HTTPFailure.READ_TIMEOUT: "increase `timeout`",
}


def error_message(raw: bytes) -> str:
    """Extract the message of an error response, on one line."""
    text = raw[:_LOOKED_AT].decode("utf-8", "replace")
    try:
        found = error_message_in(json.loads(text))
    except (ValueError, RecursionError):
        found = text
    return " ".join(found.split())


def error_message_in(value: Any) -> str:
    """Extract the message of an error: `{error: {message}}` of OpenAI and Anthropic, and common variants."""
    # Compatible services also write `{error: text}`, `{detail: ...}` (FastAPI) and `{message: ...}`.
    for key in ("error", "message", "detail", "type", "code"):
        if isinstance(value, dict) and value.get(key):
            return error_message_in(value[key])
    return value if isinstance(value, str) else "" if value in ({}, None) else json.dumps(value)


def retry_hint(seconds: int | None) -> str:
    """Hint for an error whose service reports how long to wait."""
    return f"retry after {format_duration(seconds)}" if seconds else ""


BOUNDS: Final = ExchangeBounds(connect=10.0, body=64 * 1024 * 1024)
"""Limits of one answer, streamed or not."""

LONGEST_WAIT: Final = 60.0
"""Longest delay in seconds that a service may ask for; if it asks for more, the request fails."""

BACKOFF: Final = (0.5, 8.0)
"""Delay before the second attempt and the maximum delay, in seconds; the delay doubles each time."""

_GRACE: Final = 0.25
_LONGEST_MESSAGE: Final = 1000


class Service(NamedTuple):
    """A model service.

    Attributes:
        name: Display name.
        base_url: Public URL.
        variable: Environment variable with the API key.
        key_header: Header for the API key, in lower case.
        key_scheme: Prefix of the key in the header.
        headers: Further headers of every request.
    """

    name: str
    base_url: str
    variable: str
    key_header: str = "authorization"
    key_scheme: str = "Bearer "
    headers: Mapping[str, str] = NOTHING


class ServiceClient:
    """Sends requests to one service.

    Args:
        service: The service.
        base_url: Replaces the URL of the service.
        api_key: Replaces the key of the environment; `${VAR}` is resolved. Empty for no key.
        clock: Clock for the delays between attempts.
        headers: Further headers of every request; `${VAR}` in a value is resolved.
        timeout: Maximum seconds without any data.
        attempts: Maximum number of attempts. A request is not repeated once a piece of its answer was delivered.

    Raises:
        ConfigurationError: `invalid_base_url`, or a header is invalid.
        ExpressionError: `${...}` in a header or the key has a syntax error.
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
        self.world = NetworkEnvironment.ordinary()
        self._service = service
        self._at = parse_base_url(base_url or service.base_url)
        self._api_key = api_key
        split_variables(api_key or "")  # report a syntax error now, not in the first request
        self._clock: Clock = RealClock() if clock is None else clock
        self._headers = _checked(headers)
        self._timeout = timeout
        self._attempts = attempts
        self._pools: list[tuple[NetworkEnvironment, PerLoop[StreamingClient]]] = []

    def within(self, world: NetworkEnvironment) -> ServiceClient:
        """Return a copy for another network environment; both share their connections."""
        wire = copy(self)
        wire.world = world
        return wire

    async def ask(self, path: str, body: Mapping[str, JSON], decode: AnswerDecoder) -> tuple[Delta, Deltas]:
        """Send a request, and return the first piece of its answer and the rest, which the caller must close.

        Until the first piece is known, the request can be repeated: services also report an overload, or lose
        the connection, after the head of a successful response.

        Args:
            path: Path of the request.
            body: Its body.
            decode: Decodes an answer into pieces, at least one, and releases it.

        Raises:
            ProviderError: The request failed.
        """
        request = self._request(path, body)
        exchange = _Exchange(self, request, decode)
        try:
            streamer = await self._pool().get()
        except HTTPError as error:
            raise self.failed(error) from None
        # Around the delays as well: a virtual clock must not skip them, because the service recovers in real
        # time.
        with self.outside():
            try:
                return await exchange.begin(streamer)
            except ProviderError as error:
                return await self._again(exchange, streamer, error)

    async def _again(
        self, exchange: _Exchange, streamer: StreamingClient, error: ProviderError
    ) -> tuple[Delta, Deltas]:
        """Make the attempts after the first one, which failed with an error."""
        from tenacity import AsyncRetrying, retry_if_exception  # noqa: PLC0415 -- almost no request is repeated

        attempts = AsyncRetrying(
            sleep=self._clock.sleep,
            retry=retry_if_exception(exchange.may_pass),
            wait=self._wait,
            stop=self._stops,
            reraise=True,
        )
        failed: list[ProviderError] = [error]

        async def begin() -> tuple[Delta, Deltas]:
            if failed:  # counts as the first attempt
                raise failed.pop()
            return await exchange.begin(streamer)

        begun: tuple[Delta, Deltas] = await attempts(begin)
        return begun

    async def aclose(self) -> None:
        """Close every connection."""
        for _, pool in self._pools:
            await pool.aclose()

    def failed(self, error: HTTPError | EgressRefused) -> ProviderError:
        """Translate a transport failure into a ProviderError."""
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
        """Build an error that names the service, with secrets masked."""
        told = f"{self._service.name} ({self._at.origin}): {message}"
        # Mask before cutting: half a secret would not be recognized.
        told = self.world.secrets.hide_in_text(told)
        return ProviderError(
            told[:_LONGEST_MESSAGE], code=code, hint=hint, retryable=retryable, details=details
        )

    def outside(self) -> Any:
        """Context manager that tells the clock that the call waits for the service."""
        return self._clock.outside()

    def _request(self, path: str, body: Mapping[str, JSON]) -> HTTPRequest:
        world = self.world
        scheme, host, port = parse_origin(world.instead_of(self._at.origin))
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            # Streams are not decoded, and any other encoding is refused: compression delays events, and a
            # small body can expand to gigabytes.
            "accept-encoding": "identity",
            "user-agent": f"toolcrib/{__version__}",
            **self._service.headers,
        }
        try:
            headers |= self._further(world.secrets)
            if self._service.key_header not in headers:
                headers |= self._key(world.secrets, local=is_loopback(host))
        except MissingSecret as error:
            raise self.error(error.message, code=error.code, hint=error.hint) from None
        # A key read from a file often ends with a newline. The HTTP library would put the value in its error.
        for name, value in headers.items():
            if fault := header_fault(value):
                raise self.error(f"the header `{name}` {fault}", code="unusable_secret")
        return HTTPRequest(
            "POST", scheme, host, port, self._at.target(path), tuple(headers.items()), self._bytes(body)
        )

    def _further(self, secrets: SecretResolver) -> dict[str, str]:
        """Resolve the further headers, and register the secrets in them and in the URL."""
        # Services echo parts of a request in their errors; registered secrets are masked there.
        filled = {name: secrets.fill(value) for name, value in self._headers.items()}
        for name, value in filled.items():
            if is_secret_name(name):
                for secret in (value, *value.split()[1:]):  # also the token after `Bearer`
                    secrets.register(secret)
        for secret in self._at.secrets():
            secrets.register(secret)
        return filled

    def _key(self, secrets: SecretResolver, *, local: bool) -> dict[str, str]:
        service = self._service
        if self._api_key is not None:
            key = secrets.fill(self._api_key)
            secrets.register(key)
            return {service.key_header: service.key_scheme + key} if key else {}
        # A local server, such as Ollama or vLLM, usually needs no key: default to an empty one.
        variable = SecretVariable("env", service.variable, "" if local else None, f"${{{service.variable}}}")
        try:
            key = secrets.look_up(variable)
        except MissingSecret as error:
            hint = f"set `{service.variable}` to your {service.name} API key"
            raise self.error(error.message, code="missing_key", hint=hint) from None
        return {service.key_header: service.key_scheme + key} if key else {}

    def _bytes(self, body: Mapping[str, JSON]) -> bytes:
        try:
            return compact(dict(body)).encode()
        except (ValueError, TypeError) as error:
            raise self.error(f"cannot send the request: {error}", code="request_refused") from None

    async def send(self, streamer: StreamingClient, request: HTTPRequest) -> ServiceAnswer:
        """Send a request once and read the head of its response. The caller must close the answer.

        Raises:
            ProviderError: The request failed, or the response is an error.
        """
        try:
            incoming = await streamer.send(request, BOUNDS, hosts=(request.host,), silence=self._timeout)
        except (HTTPError, EgressRefused) as error:
            raise self.failed(error) from None
        # Gateways also answer with 201 or 202.
        if 200 <= incoming.status < 300 and incoming.status not in _WITHOUT_BODY:
            return ServiceAnswer(incoming, self)
        try:
            raise await self._refusal(incoming)
        finally:
            await incoming.aclose()

    def _pool(self) -> PerLoop[StreamingClient]:
        """The connection pool of the current egress guard."""
        # A pooled connection was permitted by the guard that opened it, so guards must not share pools.
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
            raw = b""  # the status is enough for an error
        code, retryable = _failure_of(status)
        message = error_message(raw) or (
            "redirects are not followed" if 300 <= status < 400 else "no error message"
        )
        details: dict[str, Any] = {"status": status}
        # `Retry-After` as seconds or as a date (RFC 9110, section 10.2.3).
        told = seconds_to_wait(dict(incoming.headers), None)
        if told is not None:
            details["retry_after"] = told
        if identity := incoming.header("x-request-id") or incoming.header("request-id"):
            details["request_id"] = identity
        return self.error(
            f"answered {status}: {message}",
            code=code,
            hint=self._way_to_key() if code == "key_refused" else retry_hint(told),
            retryable=OPINIONS.get(incoming.header("x-should-retry"), retryable),
            details=details,
        )

    def _way_to_key(self) -> str:
        header, key = self._service.key_header, self._api_key
        if header in self._headers:
            return f"check the header `{header}`"
        if key == "":
            return "no key was sent; add `api_key: ${MY_KEY}` next to `base_url` and set that variable"
        return f"check {f'the key in `{self._service.variable}`' if key is None else 'its `api_key`'}"

    def _wait(self, state: RetryCallState) -> float:
        """The delay that the service asks for, else exponential backoff with jitter."""
        told = _told_by(state)
        if told is not None:
            return told
        first, longest = BACKOFF
        time = min(longest, first * 2.0 ** (state.attempt_number - 1))
        # Between half and all of it, so that callers that failed together do not return together. A virtual
        # clock is for tests, which need the same delays each time.
        share: float = random.random() if isinstance(self._clock, RealClock) else 1.0  # noqa: S311 -- no cryptographic use
        return time * (1 + share) / 2

    def _stops(self, state: RetryCallState) -> bool:
        return state.attempt_number >= self._attempts or (_told_by(state) or 0) > LONGEST_WAIT


class ServiceAnswer:
    """A successful response whose head was read.

    Attributes:
        arrived: Whether a part of the answer was received before it failed, other than a report of an error.
    """

    def __init__(self, incoming: StreamedResponse, wire: ServiceClient) -> None:
        self.arrived = False
        self._incoming = incoming
        self._wire = wire
        self._start = b""

    async def is_stream(self) -> bool:
        """Whether the answer is an event stream, as far as its first bytes tell; else, by its content type.

        Raises:
            ProviderError: The answer is interrupted.
        """
        # Services and gateways also send streams as `text/plain`, without a type, or as JSON, and JSON as a
        # stream.
        declared = self._incoming.header("content-type").lower().startswith("text/event-stream")
        try:
            if declared:
                self._incoming.check_stream()
            with self._wire.outside():
                start = self._start = _without_blanks(await self._incoming.peek(_is_decisive))
        except HTTPError as error:
            raise self._wire.failed(error) from None
        return not start.startswith(_JSON) if declared else _FIELD.match(start) is not None

    async def whole(self) -> dict[str, Any]:
        """Read an answer that is not streamed.

        Raises:
            ProviderError: The answer is interrupted or is not a JSON object.
        """
        try:
            with self._wire.outside():
                raw = await self._incoming.whole()
        except HTTPError as error:
            # The service had the whole answer, and repeating the request would pay for another one.
            self.arrived = bool(self._start)
            raise self._wire.failed(error) from None
        if not raw.strip():
            raise self.cut_off()
        return self.read(raw, "the answer")

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events as they arrive.

        Raises:
            ProviderError: The stream is interrupted or too large.
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
            raise self._too_large(f"the answer exceeds {BOUNDS.body:,} bytes")

    async def rest(self) -> None:
        """Read the end of the stream, so that the connection can be reused."""
        # Usually nothing follows the last event. A service that keeps the stream open must not delay the
        # turn.
        with suppress(TimeoutError, HTTPError):
            async with asyncio.timeout(_GRACE):
                while await self._chunk():
                    pass

    async def aclose(self) -> None:
        """Release the connection."""
        await self._incoming.aclose()

    async def _chunk(self) -> bytes:
        with self._wire.outside():
            return await self._incoming.chunk()

    def _too_large(self, why: str) -> ProviderError:
        return self._wire.error(why, code=HTTPFailure.RESPONSE_TOO_LARGE.value)

    def read(self, raw: bytes | str, what: str) -> dict[str, Any]:
        """Parse a JSON object of the answer.

        Raises:
            ProviderError: The text is not a JSON object, or the object reports an error.
        """
        try:
            value = decode_json(raw)
        except DuplicateKey as error:
            raise self.unreadable(f"{what} is ambiguous: {error}") from None
        except (ValueError, RecursionError):
            raise self.unreadable(f"{what} is not valid JSON") from None
        if not isinstance(value, dict):
            raise self.unreadable(f"{what} is not a JSON object")
        # Some services answer 200 and report the error in the body, also in the middle of a stream.
        reported = value.get("error")
        if value.get("type") == "error" or (reported and isinstance(reported, dict | str)):
            raise self.told(value)
        return value

    def read_event(self, event: StreamEvent) -> dict[str, Any]:
        """Parse the JSON object of an event.

        Raises:
            ProviderError: The data is not a JSON object, or the event reports an error.
        """
        # In an event that is named `error`, the data is the error, in whatever form.
        if event.type == "error":
            raise self.told(_error_in(event.data))
        return self.read(event.data, "an event")

    def unreadable(self, why: str) -> ProviderError:
        """Build the error for an answer that does not follow the format of the service."""
        self.arrived = True
        return self._wire.error(why, code="bad_answer", retryable=True)

    def cut_off(self) -> ProviderError:
        """Build the error for a stream that ends before the answer does."""
        return self._wire.error("the answer ended prematurely", code="answer_cut_off", retryable=True)

    def told(self, error: Any) -> ProviderError:
        """Build the error that the service reports after its answer has started."""
        kinds = [*_kinds_of(error)]
        message = error_message_in({"error": error}) or "the service reported an error without a message"
        if kind := next((each for each in kinds if each in BY_KIND), ""):
            code, retryable = BY_KIND[kind]
            return self._wire.error(message, code=code, retryable=retryable, details={"type": kind})
        if status := next((each for each in kinds if _STATUS.fullmatch(each)), ""):
            code, retryable = _failure_of(int(status))
            return self._wire.error(message, code=code, retryable=retryable, details={"status": int(status)})
        return self._wire.error(message, code="provider_failed")


Deltas: TypeAlias = AsyncGenerator[Delta, None]
"""The pieces of an answer."""

AnswerDecoder: TypeAlias = Callable[[ServiceAnswer], Deltas]
"""Decodes an answer into pieces, and releases it at the end."""


class _Exchange:
    """A request and the answer of its latest attempt."""

    def __init__(self, client: ServiceClient, request: HTTPRequest, decode: AnswerDecoder) -> None:
        self._client = client
        self._request = request
        self._decode = decode
        self._answer: ServiceAnswer | None = None

    async def begin(self, streamer: StreamingClient) -> tuple[Delta, Deltas]:
        """Make one attempt, up to the first piece of the answer."""
        self._answer = None
        self._answer = await self._client.send(streamer, self._request)
        deltas = self._decode(self._answer)
        return await anext(deltas), deltas

    def may_pass(self, error: BaseException) -> bool:
        """Whether a further attempt may succeed, and costs nothing that was already paid for."""
        # Not after a read timeout: the caller has already waited for `timeout` seconds (600 by default).
        return (
            isinstance(error, ProviderError)
            and error.retryable
            and error.code != HTTPFailure.READ_TIMEOUT.value
            and not (self._answer is not None and self._answer.arrived)
        )


DONE: Final = "[DONE]"
"""Data of the event after the last piece of a stream."""

_JSON: Final = (b"{", b"[")
_FIELD: Final = re.compile(rb"(?:data|event|id|retry)?[:\r\n]")
_LONGEST_FIELD: Final = len(b"event:")
_MOST_BLANKS: Final = 4096
"""Bytes at the start of an answer that are looked at; some services send blanks while the model computes."""

_STATUS: Final = re.compile("[45][0-9][0-9]")


def _without_blanks(start: bytes) -> bytes:
    """The start of an answer without a byte order mark and blanks."""
    return start.removeprefix(BOM_UTF8).lstrip()


def _is_decisive(start: bytes) -> bool:
    """Whether the start of an answer tells JSON and events apart."""
    bare = _without_blanks(start)
    return bare.startswith(_JSON) or len(bare) >= _LONGEST_FIELD or len(start) >= _MOST_BLANKS


def _failure_of(status: int) -> tuple[str, bool]:
    """The error code for a status, and whether a retry may succeed."""
    return BY_STATUS.get(status, ("request_refused" if status < 500 else "provider_failed", status >= 500))


def _error_in(data: str) -> Any:
    """The error in the data of an event: JSON, or a text."""
    try:
        return decode_json(data)
    except (ValueError, RecursionError):
        return data


def _kinds_of(error: Any) -> Iterator[str]:
    """The types and codes of an error, innermost first."""
    if isinstance(error, dict):
        yield from _kinds_of(error.get("error"))
        yield from (str(error.get(key)) for key in ("type", "code", "status"))


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        split_variables(value)
        if fault := fault_of_name(name):
            raise ConfigurationError(fault.message, code=fault.code, hint=fault.hint)
    return {name.lower(): value for name, value in headers.items()}


def _told_by(state: RetryCallState) -> float | None:
    """Delay in seconds that the service asks for, if any."""
    assert state.outcome is not None  # noqa: S101 -- tenacity calls this after an attempt
    error = state.outcome.exception()
    return error.details.get("retry_after") if isinstance(error, ProviderError) else None


class AnswerReader(Protocol):
    """Decodes the events of one answer.

    Attributes:
        finish: The end of the answer; None until it is known.
        done: Whether the answer needs no more events.
    """

    finish: Finish | None
    done: bool

    def unfinished(self) -> Finish:
        """Build the end of an answer whose stream was completed without one."""
        ...

    def add(self, event: StreamEvent, /) -> Iterable[Delta]:
        """Decode an event into pieces, without the end of the answer.

        Raises:
            ProviderError: The event is invalid or reports an error.
        """
        ...


class ServedModel(ABC):
    """A model behind an HTTP service.

    Args:
        model: Name of the model.
        base_url: URL of the service (default: the public one).
        api_key: API key (default: the one of the environment). `${VAR}` is resolved; empty for no key.
        world: Network environment (default: the one of each request).
        clock: Clock for the delays between attempts (default: the system clock).
        headers: Further headers of every request; `${VAR}` in a value is resolved.
        timeout: Maximum seconds without any data.
        attempts: Maximum number of attempts. A request is not repeated once a piece of its answer was delivered.

    Attributes:
        dialect: The form in which tools are declared.
        world: Network environment; None for the one of each request.

    Raises:
        ConfigurationError: The model is missing, or the URL or a header is invalid.
    """

    SERVICE: ClassVar[Service]
    PATH: ClassVar[str]
    dialect: str = "plain"

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "",
        api_key: str | None = None,
        world: NetworkEnvironment | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] = NOTHING,
        timeout: float = 600.0,
        attempts: int = 3,
    ) -> None:
        if not model:
            raise ConfigurationError(
                f"missing `model` for {self.SERVICE.name}",
                code="missing_model",
                hint="set `model:` next to `provider:`, `--model` on the command line, or `model=` in Python",
            )
        self.model = model
        self._wire = ServiceClient(
            self.SERVICE,
            base_url=base_url,
            api_key=api_key,
            clock=clock,
            headers=headers,
            timeout=timeout,
            attempts=attempts,
        )
        self.world = world

    async def respond(self, request: Request, /) -> AsyncIterator[Delta]:
        """Answer a request.

        Raises:
            ProviderError: The request failed or its answer was interrupted.
            ConfigurationError: A setting is reserved or invalid.
        """
        # One provider may serve several runtimes, each with its own network environment.
        world = self.world or request.world
        wire = self._wire if world is None else self._wire.within(world)
        first, rest = await wire.ask(self.PATH, self.body(request), self._decoded)
        async with aclosing(rest):
            yield first
            async for delta in rest:
                yield delta

    async def _decoded(self, answer: ServiceAnswer) -> Deltas:
        """Decode an answer, and release it."""
        try:
            # The response decides, not the request: some services ignore `stream: true`.
            if not await answer.is_stream():
                for delta in self.read_whole(await answer.whole(), answer):
                    yield delta
                return
            reader, began, done = self.reader(answer), False, False
            calls: list[CallDelta] = []
            async with aclosing(answer.events()) as events:
                async for event in events:
                    done = event.data.strip() == DONE
                    if not done:
                        for delta in reader.add(event):
                            began = True
                            if isinstance(delta, CallDelta):
                                calls.append(delta)
                            yield delta
                    if done or reader.done:
                        break
            finish = reader.finish
            # The mark says that everything was sent, so what arrived is the answer, even without a reason.
            if finish is None and done and began and _are_whole(calls):
                finish = reader.unfinished()
            if finish is None:
                raise answer.cut_off()
            # Before the last piece: a consumer may stop at `Finish`, and the rest would then stay unread.
            await answer.rest()
            yield finish
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._wire.aclose()

    @abstractmethod
    def body(self, request: Request) -> dict[str, JSON]:
        """Build the body of a request. Equal requests must give equal bodies, for the caches of services.

        Raises:
            ConfigurationError: A setting is reserved or invalid.
        """

    @abstractmethod
    def read_whole(self, value: dict[str, Any], answer: ServiceAnswer) -> Iterable[Delta]:
        """Decode an answer that is not streamed.

        Raises:
            ProviderError: The answer is invalid or reports an error.
        """

    @abstractmethod
    def reader(self, answer: ServiceAnswer) -> AnswerReader:
        """Create the reader of a streamed answer."""


def _are_whole(calls: Iterable[CallDelta]) -> bool:
    """Whether the arguments of all calls are complete; if nothing of them was sent, they may be missing."""
    assembler = Assembler()
    for call in calls:
        assembler.add(call)
    return all(
        isinstance(part, ToolCall) and part.written and part.arguments is not None
        for part in assembler.parts()
    )


IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that the services accept as data."""

PDF: Final = "application/pdf"

# What OpenAI and Anthropic both accept as a tool name and as the ID of a call.
_TAKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_TAKEN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def wire_id(identity: str) -> str:
    """The ID of a call in a form that every service accepts; an ID with other characters is hashed."""
    return identity if _TAKEN.fullmatch(identity) else f"call_{_digest(identity)[:32]}"


def wire_name(call: ToolCall) -> str:
    """The tool name of a call in a form that every service accepts; if possible, the declared name.

    Models invent names, and a service refuses every later request that contains an invalid one. Invalid
    characters become underscores, and a digest keeps different names apart.
    """
    name = call.alias or call.name
    if _TAKEN.fullmatch(name):
        return name
    return f"{_NOT_TAKEN.sub('_', name)[:47] or 'unnamed'}_{_digest(name)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def arguments_of(call: ToolCall) -> dict[str, JSON]:
    """The arguments as the model wrote them; text that is not a JSON object is wrapped in an object."""
    written = parse_arguments(call.written) if call.written else call.arguments
    return {"INVALID_JSON": call.written} if written is None else written


def arguments_text(call: ToolCall) -> str:
    """The same as JSON text, unchanged if the model wrote an object."""
    # An unchanged text keeps the prefix of the conversation identical, so that the service can use its cache.
    if call.written.lstrip().startswith("{") and parse_arguments(call.written) is not None:
        return call.written
    return compact(arguments_of(call))


def describe_part(part: Content) -> str:
    """Describe a part for a service that does not accept its type."""
    if part.text is not None:
        return part.text
    return "[" + " ".join(word for word in (part.type, part.mime_type, part.title, part.uri) if word) + "]"


def source_url(part: Content, kinds: frozenset[str] = IMAGES) -> str:
    """A part as a URL: `data:` for data of one of the kinds, else its HTTP URL; else empty."""
    if part.data is not None:
        return f"data:{part.mime_type};base64,{part.data}" if part.mime_type in kinds else ""
    return part.uri if part.uri and part.uri.startswith(("https://", "http://")) else ""


def declared_tools(request: Request) -> tuple[Declaration, ...]:
    """The tools to declare; none if calls are forbidden, unless the conversation has calls already."""
    return () if request.tool_choice == "none" and not request.aware else request.tools


def settings_of(request: Request, reserved: Mapping[str, str]) -> dict[str, JSON]:
    """Copy the settings of a request.

    Args:
        request: The request.
        reserved: Maps names that are not allowed as settings to a hint.

    Raises:
        ConfigurationError: `reserved_setting`.
    """
    for name in request.settings:
        if name in reserved:
            message = f"`{name}` cannot be a provider setting"
            raise ConfigurationError(message, code="reserved_setting", hint=reserved[name])
    return dict(request.settings)


def text_of(value: Any) -> str:
    """The value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; empty if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """The value if it is a positive integer, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
