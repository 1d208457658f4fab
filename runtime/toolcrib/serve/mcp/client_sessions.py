"""Sessions of clients that hold no connection: since MCP 2026-07-28, each request stands alone.

The protocol recommends explicit handles (SEP-2567): a tool opens a session and returns its handle, and the client
passes the handle as an ordinary argument. `SessionMode` decides between that and one session per token. In both modes,
a client that knows toolcrib can name a session in `_meta` instead, where no model has to repeat it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, NamedTuple

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, NOTHING, Annotations, Descriptor, Outcome, Result, Schema
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.engine import engine_of
from toolcrib.engine.session import Session
from toolcrib.serve.mcp.options import Options

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

CALLER = "mcp"
"""Caller of all calls of clients, as access rules name it. Their user is the principal of the client."""

OPEN_SESSION: Final = "open_session"
"""The tool that opens a session and returns its handle."""

ARGUMENT: Final = "session"
"""The argument that takes a handle."""

META_KEY: Final = "dev.toolcrib/session"
"""Key in `_meta` of a call that names its session."""

HANDLE_BYTES: Final = 18
"""Random bytes of a handle. A model has to copy it, so it is not longer than it must be (128 bits, SEP-2567)."""

LONGEST_NAME: Final = 256
"""Maximum length of a client's own name for a session, in characters."""


class InvalidName(Exception):
    """A client's own name for a session that is not a text of 1 to `LONGEST_NAME` characters."""


class OpenedSession(NamedTuple):
    """A session that a client opened or named.

    Attributes:
        session: The session.
        ends: When it ends, in seconds of the clock.
    """

    session: Session
    ends: float


class ClientSessions:
    """The sessions of clients that hold no connection, each bound to the principal that opened it."""

    def __init__(self, runtime: Runtime, options: Options) -> None:
        """Open sessions of a runtime.

        Args:
            runtime: The tools.
            options: How long a session lasts, and how many may be open.
        """
        self._runtime = runtime
        self._options = options
        self._clock = engine_of(runtime).default_session.clock
        self._own: dict[str, Session] = {}
        # Keyed by principal and handle together: an unknown handle and somebody else's miss in the same look-up,
        # so neither the answer nor its time tells them apart. All last equally long, so the first ends first.
        self._opened: dict[tuple[str, str], OpenedSession] = {}
        self._counts: Counter[str] = Counter()
        self._over: list[Session] = []
        self._ending: asyncio.Task[None] | None = None
        self._unknown = Result.failure(
            Outcome.INVALID_ARGUMENTS,
            f"`{ARGUMENT}` is not the handle of an open session; a session ends {format_duration(options.session_age)} "
            f"after it was opened; call `{OPEN_SESSION}` for a new one",
            code="unknown_session",
        )

    def own(self, principal: str) -> Session:
        """The session of a principal. It never ends."""
        session = self._own.get(principal)
        if session is None:
            session = self._own[principal] = self._made(principal)
        return session

    def open(self, principal: str) -> Result:
        """Open a session; the value is `{session, expires_in}`."""
        handle = token_urlsafe(HANDLE_BYTES)
        opened = self._added(principal, handle)
        if isinstance(opened, Result):
            return opened
        return Result.success({ARGUMENT: handle, "expires_in": self._options.session_age})

    def of_call(
        self,
        principal: str,
        arguments: Mapping[str, JSON] | None,
        meta: Mapping[str, object],
        *,
        keeps_state: bool,
    ) -> tuple[Session, Mapping[str, JSON] | None] | Result:
        """Return the session of a call and the arguments of its tool, or a failed result if the session is unknown.

        Args:
            principal: The principal of the client.
            arguments: The client's arguments.
            meta: `_meta` of the request.
            keeps_state: Whether the tool takes the handle of a session as an argument.

        Raises:
            InvalidName: `_meta` has something else than a name.
        """
        named = meta.get(META_KEY)
        if META_KEY in meta and not (isinstance(named, str) and 0 < len(named) <= LONGEST_NAME):
            raise InvalidName
        if keeps_state:
            given = NOTHING if arguments is None else arguments
            if ARGUMENT in given:
                handle = given[ARGUMENT]
                if named is not None and named != handle:
                    return _TWO
                named = handle
                arguments = {key: value for key, value in given.items() if key != ARGUMENT}
            elif named is None:
                return _MISSING
        elif named is None:
            return self.own(principal), arguments
        found = self._found(principal, named)
        if found is not None:
            return found, arguments
        if self._options.sessions == "handle" or not isinstance(named, str):
            return self._unknown
        added = self._added(principal, named)
        return added if isinstance(added, Result) else (added, arguments)

    def close(self) -> None:
        """Stop ending sessions; the runtime releases what they hold when it is closed."""
        if self._ending is not None:
            self._ending.cancel()

    def _found(self, principal: str, name: object) -> Session | None:
        opened = self._opened.get((principal, name)) if isinstance(name, str) else None
        # The time is compared here as well: the task that ends sessions may not have run yet.
        return None if opened is None or opened.ends <= self._clock.monotonic() else opened.session

    def _added(self, principal: str, name: str) -> Session | Result:
        now = self._clock.monotonic()
        self._drop(now)
        if self._counts[principal] >= self._options.open_sessions_each:
            first = next(opened.ends for (owner, _), opened in self._opened.items() if owner == principal)
            return _too_many(self._options.open_sessions_each, first - now)
        if len(self._opened) >= self._options.open_sessions:
            return _too_many(self._options.open_sessions, next(iter(self._opened.values())).ends - now)
        session = self._made(principal)
        self._opened[principal, name] = OpenedSession(session, now + self._options.session_age)
        self._counts[principal] += 1
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end())
        return session

    def _made(self, principal: str) -> Session:
        return self._runtime.session(caller=CALLER, user=principal, clock=self._clock)

    def _drop(self, now: float) -> None:
        """Forget the sessions that have ended; `_end` releases what they hold."""
        for key in [*takewhile(lambda key: self._opened[key].ends <= now, self._opened)]:
            self._over.append(self._opened.pop(key).session)
            self._counts[key[0]] -= 1

    async def _end(self) -> None:
        """End sessions in time, since they may have servers of their own."""
        while self._opened:
            first = next(iter(self._opened.values()))
            await self._clock.sleep(first.ends - self._clock.monotonic())
            self._drop(self._clock.monotonic())
            while self._over:
                await self._over.pop().aclose()


def _too_many(most: int, wait: float) -> Result:
    return Result.failure(
        Outcome.OVERLOADED,
        f"{most} sessions are open, which is the maximum",
        code="too_many_sessions",
        retryable=True,
        details={"retry_after": math.ceil(wait)},
    )


_MISSING: Final = Result.failure(
    Outcome.INVALID_ARGUMENTS,
    f"`{ARGUMENT}` is missing; call `{OPEN_SESSION}` and pass the handle that it returns",
    code="session_needed",
)

_TWO: Final = Result.failure(
    Outcome.INVALID_ARGUMENTS,
    f"the argument `{ARGUMENT}` and `{META_KEY}` in `_meta` name two sessions; send one of them",
    code="two_sessions",
)

_ARGUMENT_SCHEMA: Final[Schema] = {
    "type": "string",
    "description": f"Handle of the session, from `{OPEN_SESSION}`.",
}


def with_argument(schema: dict[str, JSON]) -> dict[str, JSON]:
    """An input schema that also requires the handle of a session; `conflict_of` must have found nothing."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return {
        **schema,
        "properties": {ARGUMENT: _ARGUMENT_SCHEMA, **(properties if isinstance(properties, dict) else {})},
        "required": [ARGUMENT, *(required if isinstance(required, list) else [])],
    }


class Conflict(NamedTuple):
    """Why a tool cannot be served with sessions by handle.

    Attributes:
        message: What is wrong.
        hint: How to fix it.
    """

    message: str
    hint: str


_OR_PRINCIPAL: Final = "or use `--sessions principal`"


def conflict_of(tool: Descriptor, alias: str, *, keeps_state: bool) -> Conflict | None:
    """Why a tool cannot be served with sessions by handle; None if it can.

    Args:
        tool: The tool.
        alias: Its name for clients.
        keeps_state: Whether it takes the handle of a session as an argument.
    """
    if OPEN_SESSION in {tool.name, alias}:
        message = f"the tool `{tool.name}` has the name of the tool that `--sessions handle` adds"
        return Conflict(message, f"rename the tool, {_OR_PRINCIPAL}")
    if not keeps_state or not isinstance(tool.input_schema, dict):
        return None
    index = SchemaIndex(tool.input_schema)
    for site in index.together([index.root]):
        if not isinstance(site.schema, dict):
            continue
        properties, required = site.get("properties"), site.get("required")
        if any(isinstance(named, dict | list) and ARGUMENT in named for named in (properties, required)):
            message = f"the tool `{tool.name}` has an argument `{ARGUMENT}`, which `--sessions handle` adds"
            return Conflict(message, f"rename the argument, {_OR_PRINCIPAL}")
        closed = any(site.get(key) is False for key in ("additionalProperties", "unevaluatedProperties"))
        if closed and site.path != index.root.path:
            message = (
                f"the input schema of the tool `{tool.name}` is closed in a subschema, so `--sessions handle` cannot add the "
                f"argument `{ARGUMENT}`"
            )
            return Conflict(message, f"close the schema at its root, {_OR_PRINCIPAL}")
    return None


def opening_tool(age: float) -> Descriptor:
    """The tool that opens a session.

    Args:
        age: Seconds after which a session ends.
    """
    return Descriptor(
        OPEN_SESSION,
        title="Open a session",
        # The protocol recommends to describe the lifetime here, where a model reads it.
        description=f"Opens a session and returns its handle. Tools with the argument `{ARGUMENT}` require a handle; calls "
        f"with the same handle share their data. A session ends {format_duration(age)} after it was opened.",
        annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=False),
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
        output_schema={
            "type": "object",
            "properties": {
                ARGUMENT: {"type": "string", "description": "Handle of the session."},
                "expires_in": {"type": "number", "description": "Seconds until the session ends."},
            },
            "required": [ARGUMENT, "expires_in"],
        },
    )
