"""The calls of one message, made at once: so many at a time, begun in their order, each with one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from toolcrib.model import JSON, NOTHING, Client, Result
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.spilling import Reader
from toolcrib.session import NO_GRANTS, Session
from toolcrib.store import states


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


class Ended(NamedTuple):
    """A call has ended."""

    id: str
    result: Result


Tell: TypeAlias = Callable[[Begun | Ended], None]


class Caller:
    """Makes the calls of a conversation, in one session.

    Args:
        session: Where they are made.
        client: Fulfils the tools that the caller fulfils; None for the session's own.
        most: Calls that may be under way at once.
        reader: Reads on in long results.
    """

    def __init__(self, session: Session, client: Client | None, most: int, reader: Reader) -> None:
        self._session = session
        self._client = client
        self._most = most
        self._reader = reader

    def now(self) -> float:
        """Seconds since 1970 on the session's clock."""
        return self._session.clock.now().timestamp()

    async def make(
        self, plans: Sequence[Planned], spilled: Mapping[str, str], tell: Tell
    ) -> AsyncGenerator[None, None]:
        """Make the calls; gives control back whenever something was told.

        Whoever stops early cancels what is under way; what has ended until then is told.

        Args:
            plans: The calls, in their order.
            spilled: What the tool `read_result` reads in.
            tell: Hears of each call that it has begun, and that it has ended.
        """
        rest = list(plans)
        while rest and self._at_once(rest[0], tell):  # what never waits needs no task
            del rest[0]
            yield
        if not rest:
            return
        news: asyncio.Queue[Begun | Ended | None] = asyncio.Queue()
        task = asyncio.create_task(self._together(rest, spilled, news.put_nowait))
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

    def _at_once(self, plan: Planned, tell: Tell) -> bool:
        """Make a call that never waits; False, and no call, for one that may."""
        call, grants, client = plan
        if grants or client is not None or call.name == self._reader.tool.name:
            return False
        begun = self._begun(call)
        result = self._session.call_at_once(call.name, call.arguments, correlation=call.id)
        if result is None:
            return False
        tell(begun)
        tell(Ended(call.id, result))
        return True

    async def _together(self, plans: Sequence[Planned], spilled: Mapping[str, str], tell: Tell) -> None:
        free = asyncio.Semaphore(self._most)

        async def one(plan: Planned) -> None:
            async with free:
                tell(self._begun(plan.call))
                tell(Ended(plan.call.id, await self._call(plan, spilled)))

        with self._session.clock.working():  # virtual time stands still between two calls
            ends = await asyncio.gather(*map(one, plans), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _call(self, plan: Planned, spilled: Mapping[str, str]) -> Result:
        call, grants, client = plan
        if call.name == self._reader.tool.name:
            return await self._reader.call(call.arguments or {}, spilled)
        client = self._client if client is None else client
        return await self._session.call(
            call.name, call.arguments, grants=grants, client=client, correlation=call.id
        )

    def _begun(self, call: ToolCall) -> Begun:
        tool = self._session.registry.get(call.name)
        kept = NOTHING
        if tool is not None and tool.fixture.machines:
            kept = states(tool.fixture, self._session.store.version)
        return Begun(call.id, self.now(), kept)
