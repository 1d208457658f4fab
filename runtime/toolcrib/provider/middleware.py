"""A model's tool loop over a runtime, read top to bottom.

ProviderMiddleware.run(messages)
-> a turn, checked: nothing is open, and what waits is answered     ProviderMiddleware._begin
-> until the turn is over                                           ProviderMiddleware._steps, ConversationTurn.stop_reason
     request -> the model's answer, as it comes                     ConversationTurn.request, ProviderMiddleware._ask
     its calls judged by the policy                                 ConversationTurn.judge
     those that may be made, made at once                           CallRunner.make -> Session.call, layers and all
     one result for each, in the order of the calls                 ConversationTurn.end_round
     written down                                                   Sink.append
-> Conversation
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias
from uuid import uuid4

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import NOTHING
from toolcrib.engine import engine_of
from toolcrib.engine.middleware.call_failures import is_cancelled_by_caller
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.provider.config import Config, check_conversation, check_setup, dialect_of, unused_tool_name
from toolcrib.provider.conversations import Answer, Conversation, SinkFailed, append_once
from toolcrib.provider.loop.approvals import ApprovalGate, check_answers
from toolcrib.provider.loop.calls import CallRunner, PlannedCall, ResultReader, yield_to_event_loop
from toolcrib.provider.loop.policy_enforcer import Rulebook, ToolOffer
from toolcrib.provider.loop.timeline import Event
from toolcrib.provider.loop.turn import ConversationTurn, TurnSettings
from toolcrib.provider.messages import Message, system
from toolcrib.provider.models.protocol import Provider, ProviderError, Request, checked_response
from toolcrib.registry.registry import Registry
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy

BrokenOff: TypeAlias = Callable[[Sequence[Event], Conversation], None]
"""Takes the last events of a turn that ended before its time, and its conversation."""


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
        session = engine_of(runtime).default_session if isinstance(runtime, Runtime) else runtime
        registry = _within(session.registry, config.toolset)
        self._is_known = not (isinstance(runtime, Runtime) and engine_of(runtime).undiscovered)
        check_setup(provider, policy, config, registry if self._is_known else None)
        self._provider = provider
        self._session = session
        self._config = config
        self._offering: tuple[Registry, ToolOffer] | None = None
        name = unused_tool_name(registry)
        self._rulebook = Rulebook(policy, own=name)
        self._reader = ResultReader(name, config.result_limit, session.clock)
        self._runner = CallRunner(session, config.client, policy.max_parallel)
        self._settings = TurnSettings(
            self._rulebook,
            config.prices,
            config.result_limit,
            config.content_limit,
            config.settings,
            costly=hasattr(provider, "world"),
        )

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
            The conversation; `stop` says why the turn ended. Where the provider fails amid an answer, the text that
            came is its last message, without what was thought and without calls; `failure` says more.

        Raises:
            ConfigurationError: The messages are none, are not whole, or the answers do not fit the calls that wait.
            ClosedRuntime: The runtime was closed.
            SinkFailed: The sink failed; `conversation` of the error has all that was said and called.
            asyncio.CancelledError: The caller's task was cancelled; the sink has what was said and called, also the
                text of an answer that was under way.
        """
        streaming = bool(self._config.streaming)
        async with aclosing(self._turn(messages, answers, streaming=streaming)) as items:
            async for item in items:
                if isinstance(item, Conversation):
                    return item
        raise AssertionError("the turn ended without a conversation")

    async def stream(
        self,
        messages: str | Message | Sequence[Message | Mapping[str, Any]] | Conversation,
        answers: Mapping[str, Answer | Mapping[str, Any]] = NOTHING,
        *,
        broken_off: BrokenOff | None = None,
    ) -> AsyncGenerator[Event | Conversation, None]:
        """`run`, watched: what happens as events, in its true order, then exactly one Conversation.

        Leaving the loop early cancels what is under way; close the generator (`contextlib.aclosing`) to wait for that.
        Arguments and errors are those of `run`.

        Args:
            messages: As in `run`.
            answers: As in `run`.
            broken_off: Is given what nobody can be given any more when the turn is cancelled or left, or can't go on: the
                last events and the conversation, which is whole and can go on.
        """
        streaming = self._config.streaming is not False
        async with aclosing(self._turn(messages, answers, broken_off, streaming=streaming)) as items:
            async for item in items:
                yield item

    async def _turn(
        self,
        messages: Any,
        answers: Mapping[str, Any],
        broken_off: BrokenOff | None = None,
        *,
        streaming: bool,
    ) -> AsyncGenerator[Event | Conversation, None]:
        conversation = self._begin(messages)
        decided = check_answers(conversation, answers)
        await self._claim(conversation)
        turn = ConversationTurn(self._settings, ApprovalGate(self._session, self._rulebook), conversation)
        try:
            for step in self._steps(turn, decided, streaming=streaming):
                async with aclosing(step) as events:
                    async for event in events:
                        yield event
            await self._write(turn)
        except SinkFailed:  # what was said and called is whole, and the error has it
            raise
        except BaseException as error:
            # Whatever ends it: what was said and called is whole, and written down.
            turn.break_off(cancelled=not isinstance(error, Exception))
            await self._write_at_last(turn)
            if broken_off is not None:
                conversation = turn.end()
                broken_off(turn.take_events(), conversation)
            raise
        ended = turn.end()
        for event in turn.take_events():
            yield event
        yield ended

    def _steps(
        self, turn: ConversationTurn, answers: Mapping[str, Answer], *, streaming: bool
    ) -> Iterator[AsyncGenerator[Event, None]]:
        """The loop: steps of a turn, one after the other, each with its events."""
        turn.begin()
        if answers:
            yield self._make(turn, turn.resume(answers, self._offered()))
        while turn.stop_reason() is None:
            yield self._ask(turn, turn.request(self._offered(), streaming=streaming))
            yield self._make(turn, turn.judge())

    async def _ask(self, turn: ConversationTurn, request: Request) -> AsyncGenerator[Event, None]:
        """The model's answer, as it comes."""
        for event in turn.take_events():
            yield event
        decoder = turn.decoder()
        try:
            request = request._replace(world=self._session.world)
            async with aclosing(checked_response(self._provider, request)) as deltas:
                async for delta in deltas:
                    for event in decoder.decode(delta):
                        yield event
        except ProviderError as error:
            turn.fail(error)
        except CancelledError:
            if is_cancelled_by_caller():
                raise
            turn.cancel_request()
        else:
            turn.accept(decoder)

    async def _make(
        self, turn: ConversationTurn, plans: Sequence[PlannedCall]
    ) -> AsyncGenerator[Event, None]:
        """The calls that are to be made; then the round is over."""
        for event in turn.take_events():
            yield event
        async with aclosing(self._runner.make(plans, turn.reader, turn.spilled, turn.record)) as steps:
            async for _step in steps:
                for event in turn.take_events():
                    yield event
        turn.end_round()
        await self._write(turn)
        if (
            turn.stop_reason() is None
        ):  # a model in memory and prompt mocks never wait: others have their turn
            await yield_to_event_loop()

    async def _write(self, turn: ConversationTurn) -> None:
        new, sink = turn.unwritten(), self._config.sink
        if sink is None or not new:
            return
        try:
            await append_once(sink, new)
        except BaseException as error:
            if isinstance(error, Exception) or (
                isinstance(error, CancelledError) and not is_cancelled_by_caller()
            ):
                raise SinkFailed(error, turn.end(), new) from error
            raise

    async def _write_at_last(self, turn: ConversationTurn) -> None:
        """Write down what there is of a turn that another error ends, which goes on."""
        try:
            await self._write(turn)
        except SinkFailed as error:
            logging.getLogger("toolcrib").exception("%s", error.message)

    def _begin(self, messages: Any) -> Conversation:
        """What the turn begins with, or goes on from."""
        conversation = Conversation.of(messages)
        instructed = any(message.role == "system" for message in conversation.messages[:1])
        if self._config.system and not instructed and not conversation.seen:
            conversation = conversation._replace(
                messages=(system(self._config.system), *conversation.messages)
            )
        check_conversation(conversation)
        return conversation if conversation.id else conversation._replace(id=str(uuid4()))

    async def _claim(self, conversation: Conversation) -> None:
        """Calls that wait are answered once, whoever else tries to."""
        claim, pending = self._config.claim, conversation.pending
        if claim is None or not pending:
            return
        self._offered()  # it may find something wrong, and then nobody has claimed anything
        place = f"@{conversation.place.seq}"
        if not await claim.claim([f"{conversation.id}/{each.id}{place}" for each in pending]):
            named = ", ".join(f"`{each.id}`" for each in pending)
            message = f"the pending calls were already answered: {named}"
            hint = "continue with the conversation that those answers produced"
            raise ConfigurationError(message, code="already_answered", hint=hint)

    def _offered(self) -> ToolOffer:
        registry = self._session.registry
        if self._offering is None or self._offering[0] is not registry:
            within, dialect = _within(registry, self._config.toolset), dialect_of(self._provider)
            name = unused_tool_name(within)
            if name != self._reader.tool.name:  # a reload has brought a tool of that name, or taken it away
                self._reader = ResultReader(name, self._config.result_limit, self._session.clock)
                self._rulebook.own(name)
            if not self._is_known:  # servers had to be asked first which tools there are
                check_setup(self._provider, self._rulebook.policy, self._config, within)
                self._is_known = True
            self._offering = registry, ToolOffer(within, self._rulebook, dialect, self._reader)
        return self._offering[1]


def _within(registry: Registry, toolset: str | None) -> Registry:
    return registry if toolset is None else registry.within(toolset)
