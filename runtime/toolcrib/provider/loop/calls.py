"""The calls of one message, made at once: so many at a time, begun in their order, each with one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.clock import RealClock
from toolcrib.core.model import JSON, NOTHING, Client, Partial, Progress, Result
from toolcrib.core.text import part_text
from toolcrib.engine.session import NO_GRANTS, Session
from toolcrib.provider.loop.result_paging import Reader
from toolcrib.provider.messages import ToolCall
from toolcrib.simulation.store import states


class Planned(NamedTuple):
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


def others_first() -> Awaitable[None]:
    """What else the event loop has to do is done before what waits for this goes on."""
    return _REAL.sleep(0)


class Begun(NamedTuple):
    """A call has begun.

    Attributes:
        id: Of the call.
        at: When: seconds since 1970 on the session's clock.
        states: Named states of the session's mocks.
    """

    id: str
    at: float
    states: Mapping[str, JSON]


class Told(NamedTuple):
    """A call under way tells of itself."""

    id: str
    text: str


class Ended(NamedTuple):
    """A call has ended."""

    id: str
    result: Result


News: TypeAlias = Begun | Told | Ended

Tell: TypeAlias = Callable[[News], None]


class Caller:
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
        self, plans: Sequence[Planned], reader: Reader, spilled: Mapping[str, str], tell: Tell
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
                await others_first()
        if made == len(plans):
            return
        news: asyncio.Queue[News | None] = asyncio.Queue()
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

    def _at_once(self, plan: Planned, own: str, tell: Tell) -> bool:
        """Make a call that never waits; False, and no call, for one that may."""
        call, grants, client = plan
        if grants or client is not None or call.name == own:
            return False
        begun = self._begun(call)
        result = self._session.call_at_once(call.name, call.arguments, correlation=call.id)
        if result is None:
            return False
        tell(begun)
        tell(Ended(call.id, result))
        return True

    async def _together(
        self, plans: Sequence[Planned], reader: Reader, spilled: Mapping[str, str], tell: Tell
    ) -> None:
        free = asyncio.Semaphore(self._most)

        async def one(plan: Planned) -> None:
            async with free:
                tell(self._begun(plan.call))
                if plan.call.name == reader.tool.name:
                    result = await reader.call(plan.call.arguments or {}, spilled)
                else:
                    result = await self._call(plan, tell)
                tell(Ended(plan.call.id, result))

        with self._session.clock.working():  # virtual time stands still between two calls
            ends = await asyncio.gather(*map(one, plans), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _call(self, plan: Planned, tell: Tell) -> Result:
        call, grants, client = plan
        client = self._client if client is None else client
        events: Any = self._session.stream(
            call.name, call.arguments, grants=grants, client=client, correlation=call.id
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Result):
                    return event
                tell(Told(call.id, _told(event)))
        raise AssertionError("a call ends with its result")

    def _begun(self, call: ToolCall) -> Begun:
        tool = self._session.registry.get(call.name)
        kept = NOTHING
        if tool is not None and tool.fixture.machines:
            kept = states(tool.fixture, self._session.store.version)
        return Begun(call.id, self.now(), kept)


def _told(event: Progress | Partial) -> str:
    """What a call tells of itself, as text."""
    if isinstance(event, Partial):
        return part_text(event.content)
    whole = "" if event.total is None else f" of {event.total:g}"
    return event.message or f"{event.progress:g}{whole}"
