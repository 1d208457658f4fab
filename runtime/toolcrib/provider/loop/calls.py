"""Make the calls of one message concurrently, and render their results for the model.

Calls start in order, up to a maximum number at a time. The model gets a short result as a whole. Of a long
result it gets the beginning and a handle; the conversation keeps the whole text, and from then on the tool
`read_result` is declared, which returns pieces of it. Calls of that tool are checked like all calls and run
in their own runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from types import coroutine
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Annotations,
    Client,
    Content,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
)
from toolcrib.core.protocols import Clock
from toolcrib.core.text import part_text, text_for_model
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import NO_GRANTS, Session
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.provider.messages import ToolCall
from toolcrib.registry.registry import Registry
from toolcrib.simulation.store import state_by_machine

READ_RESULT = "read_result"

LEAST_LIMIT = 256
"""Smallest allowed `Config.result_limit`, in bytes."""

_UNBOUNDED = 1 << 62
_NOTE = 160
"""Bytes reserved for the note after a truncated text."""


def render_result(
    result: Result, limit: int, spilled: Mapping[str, str], reader: str
) -> tuple[str, str, str]:
    """Render a result for the model.

    Args:
        result: The result.
        limit: Maximum bytes of UTF-8.
        spilled: The long results kept so far.
        reader: Name of the tool that reads them.

    Returns:
        The text. If it was truncated, also a handle and the whole text; else both are empty.
    """
    whole = text_for_model(result, _UNBOUNDED)
    # A character has at most four bytes in UTF-8, so short texts need no encoding.
    if len(whole) * 4 <= limit or (size := len(whole.encode(errors="replace"))) <= limit:
        return whole, "", ""
    handle = f"result_{len(spilled) + 1}"
    # The note, with the name of the reader, must fit into the limit as well.
    shown = truncate_to_bytes(whole, limit - _NOTE - len(reader))
    note = (
        f"… [truncated: {len(shown)} of {len(whole)} characters ({size} bytes in total); continue with "
        f'{reader}(handle="{handle}", offset={len(shown)})]'
    )
    return shown + note, handle, whole


def limit_content(result: Result, limit: int) -> Result:
    """Replace parts that exceed the limit with a description.

    Args:
        result: The result.
        limit: Maximum bytes of base64 of all parts together.
    """
    if not result.content:
        return result
    parts, room = [], limit
    for part in result.content:
        size = len(part.data or "")
        if size > room:
            described = part_text(part._replace(text=None)).removesuffix("]")
            note = f"{described}: {size} bytes of base64, too large to show]"
            parts.append(Content("text", text=f"{part.text}\n{note}" if part.text else note))
        else:
            room -= size
            parts.append(part)
    return result._replace(content=tuple(parts))


def truncate_to_bytes(text: str, limit: int) -> str:
    """Cut a text to a number of bytes, but keep at least one character."""
    # Without any progress, a model that reads on in pieces would never come to the end.
    return text[:limit].encode(errors="replace")[:limit].decode(errors="ignore") or text[:1]


def media_parts(result: Result) -> tuple[Content, ...]:
    """The parts of a result that are not text."""
    return tuple([part for part in result.content if part.text is None])


def read_result_tool(name: str, limit: int) -> Descriptor:
    """Build the descriptor of the tool that reads long results."""
    offset: dict[str, Any] = {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "Characters to skip.",
    }
    most: dict[str, Any] = {
        "type": "integer",
        "minimum": 1,
        "description": f"Maximum number of characters to read; at most {limit} bytes are returned at a time.",
    }
    handle: dict[str, Any] = {
        "type": "string",
        "description": "The handle in the note of the truncated result.",
    }
    return Descriptor(
        name,
        description="Read more of a result that was too long to show in full.",
        input_schema={
            "type": "object",
            "properties": {"handle": handle, "offset": offset, "limit": most},
            "required": ["handle"],
            "additionalProperties": False,
        },
        output_schema={"type": "string"},
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        mode="client",
        bindings={"client": {}},
    )


class ResultReader:
    """Reads long results for the model.

    Attributes:
        tool: The tool that the model calls.
    """

    def __init__(self, name: str, limit: int, clock: Clock) -> None:
        self.tool = read_result_tool(name, limit)
        self._limit = limit
        self._clock = clock

    @cached_property
    def _runtime(self) -> Runtime:
        # A runtime of its own, so that neither middleware nor observers see these calls.
        executors = Executors({"client": ClientExecutor})
        return Runtime(Registry([self.tool]), executors=executors, clock=self._clock)

    def call(self, arguments: Mapping[str, Any], spilled: Mapping[str, str]) -> Awaitable[Result]:
        """Read a piece of a result; a note tells the model where to continue."""
        session = engine_of(self._runtime).default_session
        return session.call(self.tool.name, arguments, client=self._from(spilled))

    def _from(self, spilled: Mapping[str, str]) -> Callable[[Any], Awaitable[Result]]:
        async def read(call: Any) -> Result:
            handle, offset = call.arguments["handle"], call.arguments["offset"]
            if handle not in spilled:
                near = did_you_mean(handle, spilled) or "use the handle in the note of a truncated result"
                message = f"unknown handle `{handle}`; {near}"
                return Result.failure(Outcome.TOOL_ERROR, message, code="unknown_handle")
            whole = spilled[handle]
            if offset >= len(whole):
                message = f"offset {offset} is past the end of `{handle}`, which has {len(whole)} characters"
                return Result.failure(Outcome.TOOL_ERROR, message, code="offset_too_large")
            wanted = whole[offset : offset + call.arguments.get("limit", len(whole))]
            piece = truncate_to_bytes(wanted, self._limit - _NOTE)
            end = offset + len(piece)
            then = f"continue with offset={end}" if end < len(whole) else "end of the result"
            note = f"[characters {offset} to {end} of {len(whole)}; {then}]"
            return Result.success(piece, content=(Content("text", text=note),))

        return read


class PlannedCall(NamedTuple):
    """A call to make.

    Attributes:
        call: The call.
        grants: Permissions given for it.
        client: Fulfils the call; None for the client of the conversation.
    """

    call: ToolCall
    grants: frozenset[str] = NO_GRANTS
    client: Client | None = None


AT_ONCE = 16
"""Maximum number of calls, or of rounds, that never wait before the event loop may run other tasks."""


@coroutine
def yield_to_event_loop() -> Generator[None, None, None]:
    """Let the event loop run its other tasks once."""
    yield


class CallStart(NamedTuple):
    """A call has started.

    Attributes:
        id: ID of the call.
        at: Start time, in seconds since 1970 on the session's clock.
        states: Named states of the session's mocks at that time.
    """

    id: str
    at: float
    states: Mapping[str, JSON]


class CallUpdate(NamedTuple):
    """A running call reports progress."""

    id: str
    text: str


class CallEnd(NamedTuple):
    """A call has ended."""

    id: str
    result: Result


CallEvent: TypeAlias = CallStart | CallUpdate | CallEnd

CallListener: TypeAlias = Callable[[CallEvent], None]


class CallRunner:
    """Makes the calls of a conversation, in one session.

    Args:
        session: The session of the calls.
        client: Fulfils calls of tools in mode `client`; None for the client of the session.
        most: Maximum number of concurrent calls.
        trace: Trace headers to propagate.
    """

    def __init__(
        self, session: Session, client: Client | None, most: int, trace: Mapping[str, str] = NOTHING
    ) -> None:
        self._session = session
        self._trace = trace
        self._client = client
        self._most = most

    def now(self) -> float:
        """Seconds since 1970 on the session's clock."""
        return self._session.clock.now().timestamp()

    async def make(
        self,
        plans: Sequence[PlannedCall],
        reader: ResultReader,
        spilled: Mapping[str, str],
        tell: CallListener,
    ) -> AsyncGenerator[None, None]:
        """Make the calls, and yield after each event passed to `tell`.

        Closing the generator early cancels the running calls; calls that have ended by then are still
        reported.

        Args:
            plans: The calls, in order.
            reader: The reader of long results.
            spilled: The long results.
            tell: Receives the start, the progress and the end of each call.
        """
        made, own = 0, reader.tool.name
        # Calls that never wait need no task and no queue, which cost more than a mocked call itself.
        while made < len(plans) and self.make_at_once(plans[made], own, tell):
            made += 1
            yield
            if made % AT_ONCE == 0:
                await yield_to_event_loop()
        if made == len(plans):
            return
        news: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self._together(plans[made:], reader, spilled, news.put_nowait))
        task.add_done_callback(lambda _task: news.put_nowait(None))
        try:
            while (new := await news.get()) is not None:
                tell(new)
                yield
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])
            # Calls that ended meanwhile may have had effects: their results belong in the conversation.
            while not news.empty():
                if (late := news.get_nowait()) is not None:
                    tell(late)

    def make_at_once(self, plan: PlannedCall, own: str, tell: CallListener) -> bool:
        """Make a call that never waits; False, without a call, if it may wait.

        Args:
            plan: The call.
            own: Name of the reader of long results.
            tell: Receives the start and the end of the call.
        """
        call, grants, client = plan
        if grants or client is not None or call.name == own:
            return False
        # Before the call, which may change the states that the event reports.
        begun = self._begun(call)
        result = self._session.call_at_once(
            call.name,
            call.arguments,
            correlation=call.id,
            trace=self._trace,
            written=len(call.written) or None,
        )
        if result is None:
            return False
        # A call that waits for a person has not started.
        if result.outcome is not Outcome.NEEDS_APPROVAL:
            tell(begun)
        tell(CallEnd(call.id, result))
        return True

    async def _together(
        self,
        plans: Sequence[PlannedCall],
        reader: ResultReader,
        spilled: Mapping[str, str],
        tell: CallListener,
    ) -> None:
        free = asyncio.Semaphore(self._most)

        async def one(plan: PlannedCall) -> None:
            async with free:
                if not self._waits(plan):
                    tell(self._begun(plan.call))
                if plan.call.name == reader.tool.name:
                    result = await reader.call(plan.call.arguments or {}, spilled)
                else:
                    result = await self._call(plan, tell)
                tell(CallEnd(plan.call.id, result))

        with self._session.clock.working():  # virtual time must not advance between two calls
            # Tasks start in this order. Exceptions are raised below, once no call is running any more.
            ends = await asyncio.gather(*map(one, plans), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _call(self, plan: PlannedCall, tell: CallListener) -> Result:
        call, grants, client = plan
        client = self._client if client is None else client
        events: Any = self._session.stream(
            call.name, call.arguments, trace=self._trace, grants=grants, client=client, correlation=call.id
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Result):
                    return event
                tell(CallUpdate(call.id, _told(event)))
        raise AssertionError("the call ended without a result")

    def _waits(self, plan: PlannedCall) -> bool:
        """Whether a person is asked before the call starts; its grants approve it already."""
        call = plan.call
        return not plan.grants and self._session.asks(call.name, call.arguments or {}, correlation=call.id)

    def _begun(self, call: ToolCall) -> CallStart:
        registry = self._session.registry
        kept = NOTHING
        if call.name in registry and (fixture := registry[call.name].fixture).machines:
            kept = state_by_machine(fixture, self._session.store.version)
        return CallStart(call.id, self.now(), kept)


def _told(event: Progress | Partial) -> str:
    """Format a progress report or a partial result as text."""
    if isinstance(event, Partial):
        return part_text(event.content)
    whole = "" if event.total is None else f" of {event.total:g}"
    return event.message or f"{event.progress:g}{whole}"
