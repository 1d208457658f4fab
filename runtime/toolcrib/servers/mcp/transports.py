"""Links, which exchange messages with an MCP server, and the texts of a server with its variables looked up.

The extra `mcp` is only needed when a link is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from toolcrib.core.errors import ToolcribError
from toolcrib.core.message_splitter import HEAD
from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.running_calls import Traffic
from toolcrib.core.server_config import Server
from toolcrib.security.redaction import is_secret_name, secret_part
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    SecretVariable,
    split_variables,
    unescape_dollars,
)
from toolcrib.security.server_display import written_secrets
from toolcrib.servers.environment import NetworkEnvironment, RecordDuration

if TYPE_CHECKING:
    from mcp.types import RequestId

    from toolcrib.http.auth import TokenCache
    from toolcrib.security.egress import EgressRefused


Streams: TypeAlias = tuple[Any, Any]
"""The incoming and the outgoing messages of a link, as the SDK's session takes them; it keeps their types private."""


class StartFailure(ToolcribError):
    """A server cannot be started or connected to. The text contains no secrets."""

    code = "server_down"


class LinkTrouble(NamedTuple):
    """The reason why no response arrives.

    Attributes:
        code: Over HTTP: a `toolcrib.http.HTTPFailure`, a code of `EgressRefused`, `auth_failed`,
            `unauthorized` (status 401 or 403), `session_over` (the server does not know the session) or
            `http_status` (any other status without a response). Over each transport: `protocol_violation` (the
            response is not valid), `too_large`, or `unidentified_response` (a response is too large, and which
            of the waiting requests it answers is unknown).
        message: What happened. It contains no secrets, and no text of the server except the target of a
            redirect and a duplicate key.
        hint: How to fix it; empty for no hint.
        measured: Bytes that were received of a response that is too large; 0 for any other trouble.
    """

    code: str
    message: str
    hint: str = ""
    measured: int = 0


class CallTrace:
    """What a link records about one call.

    Attributes:
        begun: Whether a `tools/call` of it may have reached the server. If False, the call had no effect,
            however it ends.
        trouble: The reason for a missing response, if the link knows more than a JSON-RPC error can express.
            The call then ends with an `MCPError` whose text can be ignored.
        most: Maximum size of a response in bytes.
        request: ID of the last `tools/call`; empty if none was sent.
        session: ID of the session over HTTP; empty if there is none.
        address: Host and port over HTTP.
        traffic: Counts what it sends and receives; None to count nothing.
    """

    __slots__ = ("address", "begun", "most", "request", "session", "traffic", "trouble")

    def __init__(self, most: int = OUTPUT_SIZE, traffic: Traffic | None = None) -> None:
        self.traffic = traffic
        self.begun = False
        self.trouble: LinkTrouble | None = None
        self.request: RequestId = ""
        self.session = ""
        self.address: tuple[str, int] | None = None
        # A smaller limit would cut off the envelope of a small result, and the size of the result is checked anyway.
        self.most = max(HEAD, most)


# A context variable, because the streams between the SDK's session and a link carry only messages.
CALL_TRACE: ContextVar[CallTrace | None] = ContextVar("the trace of a call", default=None)
"""The trace in which links record the calls of this context."""


@contextmanager
def trace_call(most: int = OUTPUT_SIZE, traffic: Traffic | None = None) -> Iterator[CallTrace]:
    """Record all requests in the block as one call, including those of tasks that it starts.

    Args:
        most: Maximum size of a response in bytes.
        traffic: Counts what is sent and received.
    """
    call_trace = CallTrace(most, traffic)
    token = CALL_TRACE.set(call_trace)
    try:
        yield call_trace
    finally:
        CALL_TRACE.reset(token)


class Link(Protocol):
    """A link to one server, entered once: `async with link as (read, write)`, like a transport of the SDK.

    Entering may raise `StartFailure`. Leaving ends everything that the link has started, within 5 s, or
    immediately if it is cancelled.

    Attributes:
        ended: Why the link can no longer be used, in words that follow "the server": "exited with code 3",
            "ended its stream", "cannot be reached: ...". Empty while it is usable. Once it is
            set, the next call needs a new link; over HTTP, calls in progress may still get a response.
        refusal: Over HTTP, the refusal of the egress guard, if any.
        secrets: Knows the secrets that the server was given; `open_link` sets it.
        record: Records the durations of requests and sessions; `open_link` sets it.
        pid: ID of the process of the server, while it runs; None over HTTP.
    """

    ended: str
    refusal: EgressRefused | None
    secrets: SecretResolver
    record: RecordDuration

    @property
    def pid(self) -> int | None:
        """See above."""
        ...

    @property
    def garbage(self) -> int:
        """Number of lines or events that were not valid messages, such as banners."""
        ...

    def said(self) -> str:
        """The last 64 KiB that the server wrote to stderr, with secrets masked; empty over HTTP."""
        ...

    async def __aenter__(self) -> Streams:
        """Start the server, or prepare to connect."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """End the link, and everything that it has started."""
        ...


def open_link(server: Server, world: NetworkEnvironment, tokens: TokenCache | None = None) -> Link:
    """Create the link to a server. Nothing is started or sent before it is entered.

    Args:
        server: The server.
        world: The environment: trust, secrets and egress rules.
        tokens: Token cache shared by links over HTTP, so that the same credentials get one token.

    Raises:
        Untrusted: The server is not trusted to be started or contacted.
        MissingSecret: A variable in `${...}` has no value; `pointer` is its place, such as `/env/TOKEN`.
        MissingHook: A hook of `auth` cannot be found.
        DocumentError: `auth` contains an error, which was reported when it was read.
        StartFailure: The looked-up values do not form a valid URL, or cannot be sent.
    """
    # Before the link is created, which already reads secrets.
    world.trust.check_server(server)
    link: Link = _link(server, world, tokens)
    # Creating the link has looked up the texts of the server, which registered its secrets for masking.
    link.secrets = world.secrets
    link.record = world.record
    # After the import of the SDK, because its loggers must exist.
    _keep_quiet()
    return link


def _link(server: Server, world: NetworkEnvironment, tokens: TokenCache | None) -> Any:
    if server.transport == "stdio":
        from toolcrib.servers.mcp.stdio import StdioLink  # noqa: PLC0415 -- needs the extra

        return StdioLink(server, world)
    from toolcrib.servers.endpoint import EndpointClient  # noqa: PLC0415 -- not needed for processes
    from toolcrib.servers.mcp.http_transports import SseLink, StreamableHttpLink  # noqa: PLC0415 -- as above

    client = EndpointClient(server, world, tokens)
    return SseLink(server, client) if server.transport == "sse" else StreamableHttpLink(client)


_OURS: ContextVar[bool] = ContextVar("whether what runs here belongs to a link of ours", default=False)


def _keep_quiet() -> None:
    """Suppress logs of the SDK and its HTTP client about the links of this context.

    The logs of an application that uses the SDK itself are kept. To see the logs of our links, too, set a
    level for the logger `mcp` or `httpx2`.
    """
    # The SDK logs text of the server, which may contain secrets and control characters. A filter on a logger
    # does not apply to its child loggers, so each one gets it. The names are copied, because other threads
    # may add loggers.
    _OURS.set(True)
    for name in [*logging.root.manager.loggerDict]:
        if name == "client" or name.partition(".")[0] in _TALKATIVE:
            logging.getLogger(name).addFilter(_not_of_ours)


def _not_of_ours(record: logging.LogRecord) -> bool:
    """Whether a record may be logged: not made for one of our links, or requested by a level."""
    if not _OURS.get() and CALL_TRACE.get() is None:
        return True
    # The session module of the SDK logs as `client`, a name that an application may use as well: its level says
    # nothing of our links. Code of the project that runs here is marked by `project_code`.
    return (
        record.name != "client" and logging.getLogger(record.name.partition(".")[0]).level != logging.NOTSET
    )


_TALKATIVE = ("mcp", "httpx2")


@contextmanager
def project_code() -> Iterator[None]:
    """Run code of the project, such as a hook, so that its logs and traces do not count as those of the link."""
    ours, call_trace = _OURS.set(False), CALL_TRACE.set(None)
    try:
        yield
    finally:
        CALL_TRACE.reset(call_trace)
        _OURS.reset(ours)


Secret = Callable[[SecretVariable], bool]
"""Decides whether the value of a variable is masked."""


def mask_nothing(_variable: SecretVariable) -> bool:
    """Mask nothing, for public texts such as commands and folders."""
    return False


def mask_without_default(variable: SecretVariable) -> bool:
    """Mask values of variables without a default, and of those with the name of a secret."""
    # A variable with a default in a readable file, such as a time zone, is rarely a secret, and masking its
    # value would hide ordinary words everywhere.
    return not variable.default or is_secret_name(variable.name)


class ServerTexts:
    """Looks up the variables in the texts of a server; `check` reports all missing ones together.

    Literal secrets in the arguments and the URL of the server are registered for masking.

    Args:
        server: The server. Its known variables (`${workspaceFolder}`, `${PATH}`) are not secrets.
        secrets: Resolves the other variables.
    """

    def __init__(self, server: Server, secrets: SecretResolver) -> None:
        self._known = server.known_variables()
        self._secrets = secrets
        self._missing: list[MissingSecret] = []
        for secret in written_secrets(server):
            secrets.register(secret)

    def filled(self, text: str, pointer: str, *, secret: Secret = mask_without_default) -> str:
        """Return a text with its variables replaced; a missing one becomes an empty text."""
        return "".join(
            unescape_dollars(piece) if isinstance(piece, str) else self._value(piece, pointer, secret(piece))
            for piece in split_variables(text)
        )

    def named(self, name: str, text: str, pointer: str) -> str:
        """Return the text of a header or variable. If its name is that of a secret, any value is masked."""
        value = self.filled(text, pointer)
        if is_secret_name(name):
            self._secrets.register(value)
        return value

    def address(self, text: str, pointer: str) -> str:
        """Return a URL with its variables replaced. Values after the host are masked."""
        # Messages must still be able to name the host, so it is never registered as a secret.
        whole = ""
        for piece in split_variables(text):
            if isinstance(piece, str):
                whole += unescape_dollars(piece)
                continue
            value = self._value(piece, pointer, False)
            self._secrets.register(secret_part(whole, value))
            whole += value
        return whole

    def check(self) -> None:
        """Report the missing variables.

        Raises:
            MissingSecret: Variables are missing; the message lists all of them, the pointer is that of the
                first.
        """
        if not self._missing:
            return
        first = self._missing[0]
        message = "; ".join(dict.fromkeys(f"{each.message} (at {each.pointer})" for each in self._missing))
        hint = "; ".join(dict.fromkeys(each.hint for each in self._missing if each.hint))
        # `type(first)`: a subclass such as `UnusableSecret` has its own code.
        raise type(first)(first.variable, message, hint=hint, pointer=first.pointer)

    def _value(self, variable: SecretVariable, pointer: str, secret: bool) -> str:
        # Only the plain form: with a default or a source, a variable of this name is an ordinary one.
        if variable.text == f"${{{variable.name}}}" and variable.name in self._known:
            return self._known[variable.name]
        try:
            return self._secrets.look_up(variable, secret=secret)
        except MissingSecret as error:
            self._missing.append(error.at(pointer))
            return ""
