"""What the adapters of all services of models share: addresses, keys, attempts, errors, and JSON of any shape.

`ServedModel` is the base of an adapter: one request is one exchange, in the form of its service. `ServiceClient` sends
it. The functions at the end are common to the wire formats.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol
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
from toolcrib.provider.models.assembler import parse_arguments
from toolcrib.provider.models.protocol import Delta, Finish, ProviderError, Request
from toolcrib.security.egress import EgressRefused, is_loopback
from toolcrib.security.redaction import is_secret_name
from toolcrib.security.secrets import MissingSecret, SecretResolver, SecretVariable, split_variables
from toolcrib.servers.environment import NetworkEnvironment, normal_origin

if TYPE_CHECKING:
    from tenacity import RetryCallState

_KEY: Final = re.compile(r"(?i)(key|sig|signature|auth|code)$")
"""Names in a query whose values are secret, besides those that are so everywhere."""


class ServiceURL(NamedTuple):
    """Where a service is.

    Attributes:
        origin: In its normal form.
        path: Before that of each request; without a slash at its end.
        query: Behind that of each request.
    """

    origin: str
    path: str
    query: str

    def target(self, path: str) -> str:
        """The target of a request."""
        return self.path + path + (f"?{self.query}" if self.query else "")

    def secrets(self) -> Iterator[str]:
        """What must be shown nowhere."""
        for name, value in parse_qsl(self.query):
            if is_secret_name(name) or _KEY.search(name):
                yield value


def parse_base_url(base_url: str) -> ServiceURL:
    """The address that a text is.

    Raises:
        ConfigurationError: `invalid_base_url`: it is none.
    """
    try:
        parts = urlsplit(base_url)
        origin = normal_origin(f"{parts.scheme}://{parts.netloc}")
    except ValueError:
        raise ConfigurationError(
            "the `base_url` of the provider is not a valid URL",  # what is in it may be secret
            code="invalid_base_url",
            hint="use a URL such as `https://api.example.com/v1` or `http://127.0.0.1:4010/v1`",
        ) from None
    return ServiceURL(origin, parts.path.rstrip("/"), parts.query)


_LOOKED_AT: Final = 65536
"""Bytes of an error that are looked at."""

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
"""Status -> code of the error, and whether it may pass; others are refused or failed as HTTP has it."""

BY_KIND: Final[Mapping[str, tuple[str, bool]]] = {
    "api_error": ("provider_failed", True),
    "server_error": ("provider_failed", True),
    "timeout_error": ("provider_failed", True),
    "overloaded_error": ("provider_overloaded", True),
    "rate_limit_error": ("rate_limited", True),
    "rate_limit_exceeded": ("rate_limited", True),
    "authentication_error": ("key_refused", False),
    "invalid_request_error": ("request_refused", False),
}
"""What a service calls an error within an answer -> the same."""

OPINIONS: Final[Mapping[str, bool]] = {"true": True, "false": False}
"""What `x-should-retry` says."""

LASTING: Final = frozenset(
    {
        HTTPFailure.BAD_REQUEST,
        HTTPFailure.TLS_FAILED,
        HTTPFailure.UNSUPPORTED_CODING,
        HTTPFailure.RESPONSE_TOO_LARGE,
        HTTPFailure.HEADERS_TOO_LARGE,
    }
)
"""What the same request meets again."""

HINTS: Final[Mapping[HTTPFailure, str]] = {
    HTTPFailure.CONNECT_FAILED: "check that the service is running and that `base_url` is correct",
    HTTPFailure.CONNECT_TIMEOUT: "check that the service is running and that `base_url` is correct",
    HTTPFailure.TLS_FAILED: "check its certificate, or set SSL_CERT_FILE to the certificate that signs it",
    HTTPFailure.READ_TIMEOUT: "increase `timeout`",
}


def error_message(raw: bytes) -> str:
    """What a service says in an error, on one line."""
    text = raw[:_LOOKED_AT].decode("utf-8", "replace")
    try:
        found = error_message_in(json.loads(text))
    except (ValueError, RecursionError):
        found = text
    return " ".join(found.split())


def error_message_in(value: Any) -> str:
    """The message in an error: `{error: {message}}` of OpenAI and Anthropic, and what compatible services write."""
    for key in ("error", "message", "detail", "type", "code"):
        if isinstance(value, dict) and value.get(key):
            return error_message_in(value[key])
    return value if isinstance(value, str) else "" if value in ({}, None) else json.dumps(value)


def retry_hint(seconds: int | None) -> str:
    """The way out, where the service says how long to wait."""
    return f"retry after {format_duration(seconds)}" if seconds else ""


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


class ServiceClient:
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
        self.world = NetworkEnvironment.ordinary()
        self._service = service
        self._at = parse_base_url(base_url or service.base_url)
        self._api_key = api_key
        split_variables(api_key or "")
        self._clock: Clock = RealClock() if clock is None else clock
        self._headers = _checked(headers)
        self._timeout = timeout
        self._attempts = attempts
        self._pools: list[tuple[NetworkEnvironment, PerLoop[StreamingClient]]] = []

    def within(self, world: NetworkEnvironment) -> ServiceClient:
        """The same in another world; connections are those of both."""
        wire = copy(self)
        wire.world = world
        return wire

    async def ask(self, path: str, body: Mapping[str, JSON]) -> ServiceAnswer:
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
        return ServiceAnswer(incoming, self)

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
        told = self.world.secrets.hide_in_text(told)  # before it is cut: half a secret is not known again
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
            headers |= self._further(world.secrets)
            if self._service.key_header not in headers:
                headers |= self._key(world.secrets, local=is_loopback(host))
        except MissingSecret as error:
            raise self.error(error.message, code=error.code, hint=error.hint) from None
        for name, value in headers.items():
            if fault := header_fault(value):
                raise self.error(f"the header `{name}` {fault}", code="unusable_secret")
        return HTTPRequest(
            "POST", scheme, host, port, self._at.target(path), tuple(headers.items()), self._bytes(body)
        )

    def _further(self, secrets: SecretResolver) -> dict[str, str]:
        """The further headers, filled in. What is secret in them and in the address may come back in an answer."""
        filled = {name: secrets.fill(value) for name, value in self._headers.items()}
        for name, value in filled.items():
            if is_secret_name(name):
                for secret in (value, *value.split()[1:]):  # behind `Bearer`
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
        message = error_message(raw) or (
            "redirects are not followed" if 300 <= status < 400 else "no error message"
        )
        details: dict[str, Any] = {"status": status}
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


class ServiceAnswer:
    """An answer whose head was read: it is none that is an error."""

    def __init__(self, incoming: StreamedResponse, wire: ServiceClient) -> None:
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
            raise self._too_large(f"the answer exceeds {BOUNDS.body:,} bytes")

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
            raise self.unreadable(f"{what} is ambiguous: {error}") from None
        except (ValueError, RecursionError):
            raise self.unreadable(f"{what} is not valid JSON") from None
        if not isinstance(value, dict):
            raise self.unreadable(f"{what} is not a JSON object")
        if isinstance(value.get("error"), dict | str) and value["error"]:
            raise self.told(value["error"])
        return value

    def unreadable(self, why: str) -> ProviderError:
        """An answer that is not as the service's are."""
        return self._wire.error(why, code="bad_answer", retryable=True)

    def cut_off(self) -> ProviderError:
        """Events that end before the answer does."""
        return self._wire.error("the answer ended prematurely", code="answer_cut_off", retryable=True)

    def told(self, error: Any) -> ProviderError:
        """What the service says has gone wrong, after its answer began."""
        kinds = [str(error.get(key)) for key in ("type", "code")] if isinstance(error, dict) else []
        kind = next((each for each in kinds if each in BY_KIND), "")
        code, retryable = BY_KIND.get(kind, ("provider_failed", False))
        message = error_message_in({"error": error}) or "the service reported an error without a message"
        return self._wire.error(
            message, code=code, retryable=retryable, details={"type": kind} if kind else {}
        )


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        split_variables(value)
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


class AnswerReader(Protocol):
    """Reads the events of one answer.

    Attributes:
        finish: The end of the answer; None until it is known.
        done: Whether no more events are to be read.
    """

    finish: Finish | None
    done: bool

    def add(self, event: StreamEvent, /) -> Iterable[Delta]:
        """What an event says, but for the end.

        Raises:
            ProviderError: It is not to be understood, or tells of an error.
        """
        ...


class ServedModel(ABC):
    """A model behind a service.

    Args:
        model: The model's name.
        base_url: Where the service is; its own address unless given.
        api_key: Its key; the one in the environment unless given. `${VAR}` is looked up; empty for none.
        world: What may be reached; that of each request unless given.
        clock: Passes the time between attempts.
        headers: Further headers of every request; `${VAR}` in a value is looked up.
        timeout: Seconds for which nothing may come.
        attempts: How often a request is tried, as long as nothing of an answer has come.

    Attributes:
        dialect: The form in which tools are declared.
        world: What may be reached; None for that of each request.

    Raises:
        ConfigurationError: No model is named, or the address or a header is none.
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
            ProviderError: There is no answer, or it breaks off.
            ConfigurationError: A setting can't be one.
        """
        world = self.world or request.world
        wire = self._wire if world is None else self._wire.within(world)
        answer = await wire.ask(self.PATH, self.body(request))
        try:
            if not answer.streams:
                for delta in self.read_whole(await answer.whole(), answer):
                    yield delta
                return
            reader = self.reader(answer)
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for delta in reader.add(event):
                        yield delta
                    if reader.done:
                        break
            if reader.finish is None:
                raise answer.cut_off()
            await answer.rest()
            yield reader.finish
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._wire.aclose()

    @abstractmethod
    def body(self, request: Request) -> dict[str, JSON]:
        """The request as it is sent; equal requests have equal texts.

        Raises:
            ConfigurationError: A setting can't be one.
        """

    @abstractmethod
    def read_whole(self, value: dict[str, Any], answer: ServiceAnswer) -> Iterable[Delta]:
        """What an answer says that does not come as events.

        Raises:
            ProviderError: It is not to be understood, or tells of an error.
        """

    @abstractmethod
    def reader(self, answer: ServiceAnswer) -> AnswerReader:
        """What reads an answer that comes as events."""


IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that the services take as data."""

PDF: Final = "application/pdf"

_TAKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_TAKEN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def wire_id(identity: str) -> str:
    """The id of a call as every service takes it: one that has other characters, or too many, gets a digest."""
    return identity if _TAKEN.fullmatch(identity) else f"call_{_digest(identity)[:32]}"


def wire_name(call: ToolCall) -> str:
    """The name in a call as every service takes it: as the model knows it, where that can be one.

    A model writes names that nobody has declared, and a service refuses whatever has such a name in it. Other
    characters are underscores there, and a digest keeps different names apart.
    """
    name = call.alias or call.name
    if _TAKEN.fullmatch(name):
        return name
    return f"{_NOT_TAKEN.sub('_', name)[:47] or 'unnamed'}_{_digest(name)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def arguments_of(call: ToolCall) -> dict[str, JSON]:
    """The arguments as the model gave them; what it wrote that is no object stands in one."""
    written = parse_arguments(call.written) if call.written else call.arguments
    return {"INVALID_JSON": call.written} if written is None else written


def arguments_text(call: ToolCall) -> str:
    """The same as JSON text, as the model wrote it wherever that is an object."""
    if call.written.lstrip().startswith("{") and parse_arguments(call.written) is not None:
        return call.written
    return compact(arguments_of(call))


def describe_part(part: Content) -> str:
    """A part for a service that does not take it."""
    if part.text is not None:
        return part.text
    return "[" + " ".join(word for word in (part.type, part.mime_type, part.title, part.uri) if word) + "]"


def source_url(part: Content, kinds: frozenset[str] = IMAGES) -> str:
    """A part as an address: `data:` where its data is there and of one of the kinds; empty where it has none."""
    if part.data is not None:
        return f"data:{part.mime_type};base64,{part.data}" if part.mime_type in kinds else ""
    return part.uri if part.uri and part.uri.startswith(("https://", "http://")) else ""


def declared_tools(request: Request) -> tuple[Declaration, ...]:
    """What is declared; nothing where no call may be made, unless the conversation has calls."""
    return () if request.tool_choice == "none" and not request.aware else request.tools


def settings_of(request: Request, reserved: Mapping[str, str]) -> dict[str, JSON]:
    """The settings.

    Args:
        request: The request.
        reserved: What can't be a setting -> where it is said instead.

    Raises:
        ConfigurationError: One of them can't be one.
    """
    for name in request.settings:
        if name in reserved:
            message = f"`{name}` cannot be a provider setting"
            raise ConfigurationError(message, code="reserved_setting", hint=reserved[name])
    return dict(request.settings)


def text_of(value: Any) -> str:
    """A text, or the empty one where there is something else."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """An object, or the empty one where there is something else."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count, or 0 where there is something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
