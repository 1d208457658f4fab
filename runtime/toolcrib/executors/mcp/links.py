"""Links: the ways to an MCP server and back, below the protocol. Nothing here needs the extra until one is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from toolcrib.errors import ToolcribError
from toolcrib.servers import Server
from toolcrib.world import World

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from toolcrib.egress import EgressRefused


class StartFailed(ToolcribError):
    """A server could not be started, or not be connected to. Its text holds no secret."""

    code = "server_down"


class Trouble(NamedTuple):
    """Why an answer does not come, in words and as a code.

    Attributes:
        code: Of HTTP: a `toolcrib.http.Fault`, a code of `EgressRefused`, `http_status`, `unauthorized` (401, 403) or
            `session_over` (404 where there was a session). Of any link: `protocol_violation` (what came is no valid
            answer) and `too_large`.
        message: What happened. No secret, no text of the server.
        hint: The way out; empty where there is none.
    """

    code: str
    message: str
    hint: str = ""


class Passage:
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
        self.trouble: Trouble | None = None


PASSAGE: ContextVar[Passage | None] = ContextVar("the passage of a call", default=None)
"""Where links write down how the calls of this context fare."""


@contextmanager
def one_passage() -> Iterator[Passage]:
    """What is sent within, by this task and by those that it starts, is one call."""
    passage = Passage()
    token = PASSAGE.set(passage)
    try:
        yield passage
    finally:
        PASSAGE.reset(token)


class Link(Protocol):
    """A way to one server, entered once: `async with link as (read, write)`, as a transport of the SDK.

    Entered, it may raise `StartFailed`, or `EgressRefused` where it connects at once. Left, it has ended everything that
    it started: 5 s at most, or at once where leaving is cancelled.

    Attributes:
        ended: Why it is of no more use, in words that follow on "the server": "exited with code 3", "sent a line longer
            than 4 MiB", "could not be reached: ...". Empty as long as it is good. Where it is set, the next call needs
            a new link; over HTTP what is under way may still be answered.
        refusal: Over HTTP, what the egress guard has against it.
        garbage: How many lines came that are no messages, such as banners.
    """

    ended: str
    refusal: EgressRefused | None
    garbage: int

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


def open_link(server: Server, world: World) -> Link:
    """The link to a server; nothing is started before it is entered.

    Raises:
        MissingSecret: Something that `${...}` names is not there; `pointer` tells where, e.g. `/env/TOKEN`.
        StartFailed: What is written can't be an address, or can't be sent.
    """
    if server.transport == "stdio":
        from toolcrib.executors.mcp.stdio import StdioLink  # noqa: PLC0415 -- needs the extra

        return StdioLink(server, world)
    from toolcrib.executors.mcp.streamed import open_streamed  # noqa: PLC0415 -- needs the extra

    return open_streamed(server, world)
