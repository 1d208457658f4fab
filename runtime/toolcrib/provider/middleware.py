"""A model's tool loop over a runtime, read top to bottom.

ProviderMiddleware.run(messages)
-> a turn, checked: nothing is open, and what waits is answered     ProviderMiddleware._begin
-> until the turn is over                                           ProviderMiddleware._steps, Turn.over
     request -> the model's answer, as it comes                     Turn.request, ProviderMiddleware._hear
     its calls judged by the policy                                 Turn.judge
     those that may be made, made at once                           Caller.make -> Session.call, layers and all
     one result for each, in the order of the calls                 Turn.close
     written down                                                   Sink.append
-> Conversation
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any

from toolcrib.engine import Runtime
from toolcrib.middleware.ends import asked_to_cancel
from toolcrib.model import NOTHING
from toolcrib.provider.answers import FULFILLED, checked
from toolcrib.provider.calls import Caller, Planned
from toolcrib.provider.checking import check_setup, check_whole, dialect_of, free_name
from toolcrib.provider.config import Config
from toolcrib.provider.conversations import Answer, Conversation
from toolcrib.provider.enforcing import Rulebook
from toolcrib.provider.messages import Message, system
from toolcrib.provider.offering import Offering
from toolcrib.provider.refusing import Gate
from toolcrib.provider.requests import Delta, Provider, ProviderError, Request
from toolcrib.provider.rounds import Terms, Turn
from toolcrib.provider.spilling import Reader
from toolcrib.provider.timeline import Event
from toolcrib.registry import Registry
from toolcrib.session import Session
from toolcrib.tool_policy import NO_POLICY, ToolPolicy


class ProviderMiddleware:
    """Lets a model use tools: declares them, makes the calls that it asks for, and tells it what came of them.

    Its calls run through the same layers as all calls. It keeps nothing of a conversation, so it may hold several at
    once; what their mocks keep is the session's.
    """

    def __init__(
        self,
        provider: Provider,
        runtime: Runtime | Session,
        policy: ToolPolicy = NO_POLICY,
        config: Config = Config(),  # noqa: B008 -- immutable
    ) -> None:
        """Put a model, tools and a policy together.

        Args:
            provider: The model.
            runtime: Where calls are made: the default session of a runtime, or a session.
            policy: What the model may do with tools.
            config: How conversations are held.

        Raises:
            ConfigurationError: Something is wrong with the policy (all of that at once), there is no such toolset,
                or a value of `config` is none.
        """
        session = runtime.default_session if isinstance(runtime, Runtime) else runtime
        registry = _within(session.registry, config.toolset)
        self._is_known = not (isinstance(runtime, Runtime) and runtime.undiscovered)
        check_setup(provider, policy, config, registry if self._is_known else None)
        self._provider = provider
        self._session = session
        self._config = config
        self._offering: tuple[Registry, Offering] | None = None
        name = free_name(registry)
        self._rulebook = Rulebook(policy, own=name)
        self._reader = Reader(name, config.result_limit, session.clock)
        self._caller = Caller(session, config.client, policy.max_parallel, self._reader)
        self._terms = Terms(self._rulebook, config.prices, config.result_limit, name, config.settings)

    async def run(
        self,
        messages: str | Message | Sequence[Message | Mapping[str, Any]] | Conversation,
        answers: Mapping[str, Answer | Mapping[str, Any]] = NOTHING,
    ) -> Conversation:
        """Let the model answer, with all the calls that it asks for: one turn.

        Args:
            messages: What the user says, messages, or a conversation to go on with.
            answers: Id of a call that waits -> what is said of it; all of them, where the conversation has some.

        Returns:
            The conversation; `stop` says why the turn ended.

        Raises:
            ConfigurationError: The messages are none, are not whole, or the answers do not fit the calls that wait.
            ClosedRuntime: The runtime was closed.
            asyncio.CancelledError: The caller's task was cancelled; the sink has what was said and called.
        """
        streaming = bool(self._config.streaming)
        async with aclosing(self._turn(messages, answers, streaming=streaming)) as items:
            async for item in items:
                if isinstance(item, Conversation):
                    return item
        raise AssertionError("a turn ends with its conversation")

    async def stream(
        self,
        messages: str | Message | Sequence[Message | Mapping[str, Any]] | Conversation,
        answers: Mapping[str, Answer | Mapping[str, Any]] = NOTHING,
    ) -> AsyncGenerator[Event | Conversation, None]:
        """`run`, watched: what happens as events, in its true order, then exactly one Conversation.

        Leaving the loop early cancels what is under way; close the generator (`contextlib.aclosing`) to wait for that.
        Arguments and errors are those of `run`.
        """
        streaming = self._config.streaming is not False
        async with aclosing(self._turn(messages, answers, streaming=streaming)) as items:
            async for item in items:
                yield item

    async def _turn(
        self, messages: Any, answers: Mapping[str, Any], *, streaming: bool
    ) -> AsyncGenerator[Event | Conversation, None]:
        conversation = self._begin(messages)
        said = checked(conversation, answers, self._is_fulfilled)
        turn = Turn(self._terms, Gate(self._session, self._rulebook), conversation)
        try:
            for step in self._steps(turn, said, streaming=streaming):
                async with aclosing(step) as events:
                    async for event in events:
                        yield event
            await self._write(turn)
        except BaseException:  # whatever ends it: what was said and called is whole, and written down
            turn.break_off()
            await self._write(turn)
            raise
        ended = turn.end()
        for event in turn.news():
            yield event
        yield ended

    def _steps(
        self, turn: Turn, answers: Mapping[str, Answer], *, streaming: bool
    ) -> Iterator[AsyncGenerator[Event, None]]:
        """The loop: steps of a turn, one after the other, each with its events."""
        turn.begin()
        if answers:
            yield self._make(turn, turn.resume(answers, self._offered()))
        while turn.over() is None:
            yield self._hear(turn, turn.request(self._offered(), streaming=streaming))
            yield self._make(turn, turn.judge())

    async def _hear(self, turn: Turn, request: Request) -> AsyncGenerator[Event, None]:
        """The model's answer, as it comes."""
        for event in turn.news():
            yield event
        hearing = turn.hearing()
        try:
            request = request._replace(world=self._session.world)
            async with _closing(self._provider.respond(request)) as deltas:
                async for delta in deltas:
                    for event in hearing.hear(delta):
                        yield event
        except ProviderError as error:
            turn.fail(error)
        except CancelledError:
            if asked_to_cancel():
                raise
            turn.give_up()
        else:
            turn.take(hearing)

    async def _make(self, turn: Turn, plans: Sequence[Planned]) -> AsyncGenerator[Event, None]:
        """The calls that are to be made; then the round is over."""
        for event in turn.news():
            yield event
        async with aclosing(self._caller.make(plans, turn.spilled, turn.tell)) as steps:
            async for _step in steps:
                for event in turn.news():
                    yield event
        turn.close()
        await self._write(turn)

    async def _write(self, turn: Turn) -> None:
        if self._config.sink is not None and turn.unwritten:
            await self._config.sink.append(turn.unwritten)
        turn.written()

    def _begin(self, messages: Any) -> Conversation:
        """What the turn begins with, or goes on from."""
        conversation = Conversation.of(messages)
        instructed = any(message.role == "system" for message in conversation.messages[:1])
        if self._config.system and not instructed and not conversation.seen:
            conversation = conversation._replace(
                messages=(system(self._config.system), *conversation.messages)
            )
        check_whole(conversation)
        return conversation

    def _offered(self) -> Offering:
        registry = self._session.registry
        if self._offering is None or self._offering[0] is not registry:
            reader, dialect = self._reader.tool, dialect_of(self._provider)
            within = _within(registry, self._config.toolset)
            if not self._is_known:  # servers had to be asked first which tools there are
                check_setup(self._provider, self._rulebook.policy, self._config, within)
                self._is_known = True
            self._offering = registry, Offering(within, self._rulebook, dialect, reader)
        return self._offering[1]

    def _is_fulfilled(self, tool: str) -> bool:
        known = self._session.registry.get(tool)
        return known is not None and known.mode == FULFILLED


def _closing(deltas: AsyncIterator[Delta]) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
    """Closes what a provider gives, where that can be closed."""
    return aclosing(deltas) if isinstance(deltas, AsyncGenerator) else nullcontext(deltas)


def _within(registry: Registry, toolset: str | None) -> Registry:
    return registry if toolset is None else registry.within(toolset)
