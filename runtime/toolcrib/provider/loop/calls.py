"""The calls of one message, made at once, and their results as a model reads them.

So many calls run at a time; they begin in their order, and each has one end. The model gets all of a short result, and
of a long one the beginning and a handle for the rest. The whole text is kept in the conversation, and from then on a
tool is declared that gives pieces of it, `read_result`; its calls are judged like all calls, in a runtime of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.clock import RealClock
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
"""Bytes of a result that a model is shown at least."""

_UNBOUNDED = 1 << 62
_NOTE = 160
"""Bytes that the note about a piece takes at most."""


def render_result(
    result: Result, limit: int, spilled: Mapping[str, str], reader: str
) -> tuple[str, str, str]:
    """What a model reads of a result.

    Args:
        result: The result.
        limit: Bytes of UTF-8 at most.
        spilled: What is kept already.
        reader: The tool that reads what is kept.

    Returns:
        The text; and where it was too long, a handle and the whole. Those are empty where it was not.
    """
    whole = text_for_model(result, _UNBOUNDED)
    if len(whole) * 4 <= limit or (size := len(whole.encode(errors="replace"))) <= limit:
        return whole, "", ""
    handle = f"result_{len(spilled) + 1}"
    shown = truncate_to_bytes(whole, limit - _NOTE - len(reader))
    note = (
        f"… [truncated: {len(shown)} of {len(whole)} characters ({size} bytes in total); continue with "
        f'{reader}(handle="{handle}", offset={len(shown)})]'
    )
    return shown + note, handle, whole


def limit_content(result: Result, limit: int) -> Result:
    """The result without the parts that don't fit: what each of them is stands in its place.

    Args:
        result: The result.
        limit: Bytes of base64 that all its parts may have together.
    """
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
    return result._replace(content=tuple(parts)) if result.content else result


def truncate_to_bytes(text: str, limit: int) -> str:
    """As much of the text as so many bytes hold, at least one character."""
    return text[:limit].encode(errors="replace")[:limit].decode(errors="ignore") or text[:1]


def media_parts(result: Result) -> tuple[Content, ...]:
    """The parts of a result that are more than text."""
    return tuple(part for part in result.content if part.text is None)


def read_result_tool(name: str, limit: int) -> Descriptor:
    """The tool that reads what is kept."""
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
    """Calls the tool that reads what is kept.

    Attributes:
        tool: The tool.
    """

    def __init__(self, name: str, limit: int, clock: Clock) -> None:
        self.tool = read_result_tool(name, limit)
        self._limit = limit
        self._clock = clock

    @cached_property
    def _runtime(self) -> Runtime:
        executors = Executors({"client": ClientExecutor})
        return Runtime(Registry([self.tool]), executors=executors, clock=self._clock)

    def call(self, arguments: Mapping[str, Any], spilled: Mapping[str, str]) -> Awaitable[Result]:
        """Read a piece: its text, with a note that says where it goes on."""
        session = engine_of(self._runtime).default_session
        return session.call(self.tool.name, arguments, client=self._from(spilled))

    def _from(self, spilled: Mapping[str, str]) -> Callable[[Any], Awaitable[Result]]:
        async def read(call: Any) -> Result:
            handle, offset = call.arguments["handle"], call.arguments["offset"]
            if handle not in spilled:
                near = did_you_mean(handle, spilled) or "use the handle in the note of a truncated result"
                message = f"unknown handle `{handle}`; {near}"
                return Result.failed(Outcome.TOOL_ERROR, message, code="unknown_handle")
            whole = spilled[handle]
            if offset >= len(whole):
                message = f"offset {offset} is past the end of `{handle}`, which has {len(whole)} characters"
                return Result.failed(Outcome.TOOL_ERROR, message, code="offset_too_large")
            wanted = whole[offset : offset + call.arguments.get("limit", len(whole))]
            piece = truncate_to_bytes(wanted, self._limit - _NOTE)
            end = offset + len(piece)
            then = f"continue with offset={end}" if end < len(whole) else "end of the result"
            note = f"[characters {offset} to {end} of {len(whole)}; {then}]"
            return Result.ok(piece, content=(Content("text", text=note),))

        return read


class PlannedCall(NamedTuple):
    """A call that is to be made.

    Attributes:
        call: The call.
        grants: Permissions that were given for it.
        client: Fulfils it, where that is decided; None for the client of the conversation.
    """

    call: ToolCall
    grants: frozenset[str] = NO_GRANTS
    client: Client | None = None


AT_ONCE = 16
"""Calls that never wait, one after another, before others have their turn."""

_REAL = RealClock()


def yield_to_event_loop() -> Awaitable[None]:
    """What else the event loop has to do is done before what waits for this goes on."""
    return _REAL.sleep(0)


class CallStart(NamedTuple):
    """A call has begun.

    Attributes:
        id: Of the call.
        at: When: seconds since 1970 on the session's clock.
        states: Named states of the session's mocks.
    """

    id: str
    at: float
    states: Mapping[str, JSON]


class CallUpdate(NamedTuple):
    """A call under way tells of itself."""

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
        session: Where they are made.
        client: Fulfils the tools that the caller fulfils; None for the session's own.
        most: Calls that may be under way at once.
    """

    def __init__(self, session: Session, client: Client | None, most: int) -> None:
        self._session = session
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
        """Make the calls; gives control back whenever something was told.

        Whoever stops early cancels what is under way; what has ended until then is told.

        Args:
            plans: The calls, in their order.
            reader: Reads on in long results.
            spilled: What it reads in.
            tell: Hears of each call that it has begun, what it tells of itself, and that it has ended.
        """
        made, own = 0, reader.tool.name
        while made < len(plans) and self._at_once(plans[made], own, tell):  # what never waits needs no task
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
            while not news.empty():
                if (late := news.get_nowait()) is not None:
                    tell(late)

    def _at_once(self, plan: PlannedCall, own: str, tell: CallListener) -> bool:
        """Make a call that never waits; False, and no call, for one that may."""
        call, grants, client = plan
        if grants or client is not None or call.name == own:
            return False
        begun = self._begun(call)
        result = self._session.call_at_once(call.name, call.arguments, correlation=call.id)
        if result is None:
            return False
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
                tell(self._begun(plan.call))
                if plan.call.name == reader.tool.name:
                    result = await reader.call(plan.call.arguments or {}, spilled)
                else:
                    result = await self._call(plan, tell)
                tell(CallEnd(plan.call.id, result))

        with self._session.clock.working():  # virtual time stands still between two calls
            ends = await asyncio.gather(*map(one, plans), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _call(self, plan: PlannedCall, tell: CallListener) -> Result:
        call, grants, client = plan
        client = self._client if client is None else client
        events: Any = self._session.stream(
            call.name, call.arguments, grants=grants, client=client, correlation=call.id
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Result):
                    return event
                tell(CallUpdate(call.id, _told(event)))
        raise AssertionError("the call ended without a result")

    def _begun(self, call: ToolCall) -> CallStart:
        tool = self._session.registry.get(call.name)
        kept = NOTHING
        if tool is not None and tool.fixture.machines:
            kept = state_by_machine(tool.fixture, self._session.store.version)
        return CallStart(call.id, self.now(), kept)


def _told(event: Progress | Partial) -> str:
    """What a call tells of itself, as text."""
    if isinstance(event, Partial):
        return part_text(event.content)
    whole = "" if event.total is None else f" of {event.total:g}"
    return event.message or f"{event.progress:g}{whole}"
