"""A model behind a service: one request is one exchange, in whatever form the service wants it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Protocol

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Clock
from toolcrib.http.event_stream import StreamEvent
from toolcrib.provider.models.http_client import Answer, Service, Wire
from toolcrib.provider.models.protocol import Delta, Finish, Request
from toolcrib.servers.environment import World


class Reader(Protocol):
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
        world: World | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] = NOTHING,
        timeout: float = 600.0,
        attempts: int = 3,
    ) -> None:
        if not model:
            raise ConfigurationError(
                f"no model of {self.SERVICE.name} is named",
                code="missing_model",
                hint="say `model:` beside `provider:`, `--model` on the command line, or `model=` in Python",
            )
        self.model = model
        self._wire = Wire(
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
    def read_whole(self, value: dict[str, Any], answer: Answer) -> Iterable[Delta]:
        """What an answer says that does not come as events.

        Raises:
            ProviderError: It is not to be understood, or tells of an error.
        """

    @abstractmethod
    def reader(self, answer: Answer) -> Reader:
        """What reads an answer that comes as events."""
