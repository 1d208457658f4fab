"""Links: the ways to an MCP server and back, below the protocol; and the texts of a server with its variables looked up.

Nothing here needs the extra until a link is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolcrib.core.errors import ToolcribError
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
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from toolcrib.http.auth import TokenCache
    from toolcrib.security.egress import EgressRefused


class StartFailure(ToolcribError):
    """A server could not be started, or not be connected to. Its text holds no secret."""

    code = "server_down"


class LinkTrouble(NamedTuple):
    """Why an answer does not come, in words and as a code.

    Attributes:
        code: Of HTTP: a `toolcrib.http.HTTPFailure`, a code of `EgressRefused`, `auth_failed`, `unauthorized` (status 401
            or 403), `session_over` (the server does not know the session) or `http_status` (any other that is no
            answer). Of a process: `protocol_violation` (what came is no valid answer) or `too_large`.
        message: What happened. No secret, and no text of the server but, of a redirect, where it leads, and a key that
            is there twice.
        hint: The way out; empty where there is none.
    """

    code: str
    message: str
    hint: str = ""


class CallTrace:
    """What is known of the way of one call.

    Attributes:
        begun: Whether any of its `tools/call` may have reached the server. As long as it is false, nothing has happened
            there, whatever the call ends with.
        trouble: Why no answer came, where the link knows more than the protocol could say. The call then ends with an
            `MCPError` whose text need not be read.
    """

    __slots__ = ("begun", "trouble")

    def __init__(self) -> None:
        self.begun = False
        self.trouble: LinkTrouble | None = None


CALL_TRACE: ContextVar[CallTrace | None] = ContextVar("the trace of a call", default=None)
"""Where links write down how the calls of this context fare."""


@contextmanager
def trace_call() -> Iterator[CallTrace]:
    """What is sent within, by this task and by those that it starts, is one call."""
    call_trace = CallTrace()
    token = CALL_TRACE.set(call_trace)
    try:
        yield call_trace
    finally:
        CALL_TRACE.reset(token)


class Link(Protocol):
    """A way to one server, entered once: `async with link as (read, write)`, as a transport of the SDK.

    Entered, it may raise `StartFailure`. Left, it has ended everything that it started: after 5 s at most, or at once where
    leaving is cancelled.

    Attributes:
        ended: Why it is of no more use, in words that follow on "the server": "exited with code 3", "sent a line longer
            than 16MiB", "could not be reached: ...". Empty as long as it is good. Where it is set, the next call needs
            a new link; over HTTP what is under way may still be answered.
        refusal: Over HTTP, what the egress guard has against it.
        secrets: Knows which secrets the server was given; `open_link` sets it.
    """

    ended: str
    refusal: EgressRefused | None
    secrets: SecretResolver

    @property
    def garbage(self) -> int:
        """How many lines or events came that are no messages, such as banners."""
        ...

    def said(self) -> str:
        """The end of what the server wrote to stderr: 64 KiB at most, secrets masked; empty over HTTP."""
        ...

    async def __aenter__(self) -> TransportStreams:
        """Start the server, or make ready to connect."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """End it, and all that belongs to it."""
        ...


def open_link(server: Server, world: NetworkEnvironment, tokens: TokenCache | None = None) -> Link:
    """The link to a server; nothing is started before it is entered.

    Args:
        server: The server.
        world: What may be reached.
        tokens: Shared by links over HTTP, so that the same credentials get one token.

    Raises:
        Untrusted: Nobody has agreed to what it takes to start or reach the server.
        MissingSecret: Something that `${...}` names is not there; `pointer` tells where, e.g. `/env/TOKEN`.
        MissingHook: A hook of `auth` is not there.
        DocumentError: There is an error in `auth`, which was told when it was read.
        StartFailure: What is looked up makes no address, or can't be sent.
    """
    world.trust.check_server(server)
    link: Link = _link(server, world, tokens)
    link.secrets = world.secrets  # has every secret of the server since its texts were looked up just now
    _keep_quiet()  # once the modules are there that log
    return link


def _link(server: Server, world: NetworkEnvironment, tokens: TokenCache | None) -> Any:
    if server.transport == "stdio":
        from toolcrib.servers.mcp.stdio import StdioLink  # noqa: PLC0415 -- needs the extra

        return StdioLink(server, world)
    from toolcrib.servers.mcp.http_transports import (  # noqa: PLC0415 -- no process needs it
        EndpointClient,
        SseLink,
        StreamableHttpLink,
    )

    client = EndpointClient(server, world, tokens)
    return SseLink(server, client) if server.transport == "sse" else StreamableHttpLink(client)


_OURS: ContextVar[bool] = ContextVar("whether what runs here belongs to a link of ours", default=False)


def _keep_quiet() -> None:
    """Let the SDK and its HTTP client log nothing of what this context does from now on: it is servers' text.

    Whoever uses the SDK besides us keeps its logs. Who gives `mcp` or `httpx2` a level by name wants to see ours, too.
    """
    _OURS.set(True)
    for name in [*logging.root.manager.loggerDict]:
        if name == "client" or name.partition(".")[0] in _TALKATIVE:
            logging.getLogger(name).addFilter(_not_of_ours)


def _not_of_ours(record: logging.LogRecord) -> bool:
    """Whether a record is none that the SDK makes of a link of ours."""
    if not _OURS.get() and CALL_TRACE.get() is None:
        return True
    if record.name == "client":  # as the SDK calls one of its own
        return not record.pathname.endswith(_SESSION)
    return logging.getLogger(record.name.partition(".")[0]).level != logging.NOTSET


_TALKATIVE = ("mcp", "httpx2")
_SESSION = str(Path("mcp", "client", "session.py"))


Secret = Callable[[SecretVariable], bool]
"""Whether what a variable stands for is masked."""


def mask_nothing(_variable: SecretVariable) -> bool:
    """For what everybody may see: commands, folders."""
    return False


def mask_without_default(variable: SecretVariable) -> bool:
    """A value with a default that anybody can read, such as a time zone, is shown, unless its name is that of a secret."""
    return not variable.default or is_secret_name(variable.name)


class ServerTexts:
    """Texts of a server with everything looked up; what is missing is told at the end, all of it.

    Secrets that are written out in its arguments or its url are masked from now on.

    Args:
        server: Whose they are: its folders (`${workspaceFolder}`) are known, and are no secrets.
        secrets: Where the rest is looked up.
    """

    def __init__(self, server: Server, secrets: SecretResolver) -> None:
        self._known = server.folders()
        self._secrets = secrets
        self._missing: list[MissingSecret] = []
        for secret in written_secrets(server):
            secrets.register(secret)

    def filled(self, text: str, pointer: str, *, secret: Secret = mask_without_default) -> str:
        """A text as it is meant."""
        return "".join(
            unescape_dollars(piece) if isinstance(piece, str) else self._value(piece, pointer, secret(piece))
            for piece in split_variables(text)
        )

    def named(self, name: str, text: str, pointer: str) -> str:
        """The text of a header or variable; what has the name of a secret is one, however it is written."""
        value = self.filled(text, pointer)
        if is_secret_name(name):
            self._secrets.register(value)
        return value

    def address(self, text: str, pointer: str) -> str:
        """An address; what is looked up for it is masked where it stands behind the host."""
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
        """Raise what is missing.

        Raises:
            MissingSecret: With the pointer of the first place, and the words of all.
        """
        if not self._missing:
            return
        first = self._missing[0]
        message = "; ".join(dict.fromkeys(f"{each.message} (at {each.pointer})" for each in self._missing))
        hint = "; ".join(dict.fromkeys(each.hint for each in self._missing if each.hint))
        raise type(first)(first.variable, message, hint=hint, pointer=first.pointer)

    def _value(self, variable: SecretVariable, pointer: str, secret: bool) -> str:
        if variable.text == f"${{{variable.name}}}" and variable.name in self._known:
            return self._known[variable.name]
        try:
            return self._secrets.look_up(variable, secret=secret)
        except MissingSecret as error:
            self._missing.append(error.at(pointer))
            return ""
