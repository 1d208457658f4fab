"""The tool loop of a model over a runtime. This is the path of a turn.

ProviderMiddleware.run(messages)
-> check the conversation and the answers to pending calls     ProviderMiddleware._begin, check_answers
-> until the turn ends                                         ProviderMiddleware._turn, ConversationTurn.stop_reason
     request -> stream of the model's answer                   ConversationTurn.request, CheckedResponse
     check its calls against the policy                        ConversationTurn.judge
     make the permitted calls, concurrently                    CallRunner.make -> Session.call, with all layers
     add one result per call, in the order of the calls        ConversationTurn.end_round
     write the messages                                        Sink.append
-> Conversation
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import NOTHING
from toolcrib.engine import engine_of
from toolcrib.engine.middleware.call_failures import is_cancelled_by_caller
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.provider.config import (
    Config,
    check_conversation,
    check_setup,
    dialect_of,
    is_free,
    unused_tool_name,
)
from toolcrib.provider.conversations import Conversation, SinkFailed, append_once, new_id
from toolcrib.provider.loop.approvals import ApprovalGate, check_answers, settle_answers, stored_answers
from toolcrib.provider.loop.calls import AT_ONCE, CallRunner, ResultReader, yield_to_event_loop
from toolcrib.provider.loop.policy_enforcer import Rulebook, ToolOffer
from toolcrib.provider.loop.timeline import Event
from toolcrib.provider.loop.turn import ConversationTurn, TurnSettings
from toolcrib.provider.messages import Message, system
from toolcrib.provider.models.protocol import CheckedResponse, Provider, ProviderError
from toolcrib.registry.registry import Registry
from toolcrib.security.approvals import Answer
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy

BrokenOff: TypeAlias = Callable[[Sequence[Event], Conversation], None]
"""Receives the last events and the conversation of a turn that was cancelled or failed."""


class ProviderMiddleware:
    """Lets a model use tools: declares them, makes the calls that it requests, and returns their results.

    The calls run through the same layers as all other calls. The object keeps no conversation, so it can run
    several concurrently; the state of mocks belongs to the session.

    Example:
        ```python
        provider = open_provider("openai", model="gpt-5-mini")
        async with Runtime.open("descriptors") as tools:
            loop = ProviderMiddleware(provider, tools, ToolPolicy(ask=("refund_*",)))
            conversation = await loop.run("Where is my order ORD-1?")
            print(conversation.text)
        ```
    """

    def __init__(
        self,
        provider: Provider,
        runtime: Runtime | Session,
        policy: ToolPolicy = NO_POLICY,
        config: Config = Config(),  # noqa: B008 -- immutable
    ) -> None:
        """Combine a model, tools and a policy.

        Args:
            provider: The model.
            runtime: The session that makes the calls; a runtime means its default session.
            policy: Which calls the model may make, and how many.
            config: Instructions, settings, limits, sink.

        Raises:
            ConfigurationError: The policy is invalid (the error lists all faults), the toolset is unknown, or
                a value of `config` is invalid.
        """
        session = engine_of(runtime).default_session if isinstance(runtime, Runtime) else runtime
        registry = _within(session.registry, config.toolset)
        # Without the tools of unlisted servers, the policy would seem to name unknown tools; check it later.
        engine = engine_of(runtime) if isinstance(runtime, Runtime) else None
        self._is_known = engine is None or not (engine.undiscovered or engine.unimported)
        check_setup(provider, policy, config, registry if self._is_known else None)
        self._provider = provider
        self._session = session
        self._config = config
        self._offering: tuple[Registry, ToolOffer] | None = None
        name = unused_tool_name(registry)
        self._rulebook = Rulebook(policy, own=name)
        self._reader = ResultReader(name, config.result_limit, session.clock)
        self._runner = CallRunner(session, config.client, policy.max_parallel, config.trace)
        self._settings = TurnSettings(
            self._rulebook,
            config.prices,
            config.result_limit,
            config.content_limit,
            config.settings,
            costly=not is_free(provider),
        )

    async def run(
        self,
        messages: str | Message | Sequence[Message | Mapping[str, Any]] | Conversation,
        answers: Mapping[str, Answer | Mapping[str, Any]] = NOTHING,
    ) -> Conversation:
        """Run one turn: let the model answer and make all the calls that it requests.

        Example:
            ```python
            first = await loop.run("Refund order ORD-1.")
            if first.stop is Stop.PENDING:
                answers = {call.id: Answer.approve() for call in first.pending}
                second = await loop.run(first, answers)
            ```

        Args:
            messages: Text of the user, messages, or a conversation to continue.
            answers: Maps the ID of each pending call to its answer. If calls are pending, all need an answer.

        Returns:
            The conversation; `stop` is the reason why the turn ended. If the provider fails in the middle of
            an answer, the text so far is the last message, without reasoning and calls, and `failure` has the
            details.

        Raises:
            ConfigurationError: The messages are invalid or incomplete, or the answers do not match the
                pending calls.
            ClosedRuntime: The runtime was closed.
            SinkFailed: The sink failed; `conversation` of the error is complete.
            asyncio.CancelledError: The caller's task was cancelled. The sink has received all messages and
                results, including the text of an interrupted answer.
        """
        streaming = bool(self._config.streaming)
        # Nobody hears the events, so the conversation is the only item.
        turn = self._turn(messages, answers, streaming=streaming, heard=False)
        conversation = await anext(turn)
        await turn.aclose()
        assert isinstance(conversation, Conversation)  # noqa: S101 -- as above
        return conversation

    async def stream(
        self,
        messages: str | Message | Sequence[Message | Mapping[str, Any]] | Conversation,
        answers: Mapping[str, Answer | Mapping[str, Any]] = NOTHING,
        *,
        broken_off: BrokenOff | None = None,
    ) -> AsyncGenerator[Event | Conversation, None]:
        """Run one turn and yield its events in order, then exactly one Conversation.

        Leaving the loop early cancels the turn. Use `contextlib.aclosing` to wait for its end. Errors are
        those of `run`.

        Example:
            ```python
            async with aclosing(loop.stream("Where is my order?")) as items:
                async for item in items:
                    if isinstance(item, Event) and item.type == "text":
                        print(item.text, end="")
            ```

        Args:
            messages: As in `run`.
            answers: As in `run`.
            broken_off: Called if the turn is cancelled or fails, with the events not yielded yet and the
                conversation, which is complete and can be continued.
        """
        streaming = self._config.streaming is not False
        async with aclosing(self._turn(messages, answers, broken_off, streaming=streaming)) as items:
            async for item in items:
                yield item

    async def resume(self, id: str) -> Conversation:  # noqa: A002 -- the public name of the field
        """Return a stored conversation, to continue it with `run`. See `FolderConversations`.

        Raises:
            ConfigurationError: `config.store` is not set (`no_store`), or does not have the conversation
                (`unknown_conversation`).
        """
        if self._config.store is None:
            hint = 'pass `Config(store=FolderConversations("conversations"))`'
            raise ConfigurationError("conversations are not stored", code="no_store", hint=hint)
        return self._config.store.load(id)

    async def cancel_pending(self, conversation: Conversation) -> tuple[Sequence[Event], Conversation]:
        """End the pending calls of a conversation as cancelled, without another request to the model.

        Returns:
            The events of the calls and of the end of the turn, and the conversation, which can continue.

        Raises:
            ConfigurationError: The conversation is incomplete, or its calls were answered already.
            SinkFailed: As for `run`.
        """
        reject = {pending.id: Answer.reject("the turn was cancelled") for pending in conversation.pending}
        await self._decided(conversation, reject)
        turn = ConversationTurn(self._settings, ApprovalGate(self._session, self._rulebook), conversation)
        turn.cancel_pending(self._offered())
        await self._write(turn)
        ended = turn.end(turn.stop_reason())
        return turn.take_events(), ended

    async def _turn(  # noqa: C901, PLR0912 -- one generator, since each further one takes as long as a mocked call
        self,
        messages: Any,
        answers: Mapping[str, Any],
        broken_off: BrokenOff | None = None,
        *,
        streaming: bool,
        heard: bool = True,
    ) -> AsyncGenerator[Event | Conversation, None]:
        """The loop: yields the events of a turn as they arise, unless nobody hears them, then the conversation."""
        conversation = self._begin(messages)
        decided = await self._decided(conversation, answers)
        gate = ApprovalGate(self._session, self._rulebook)
        turn = ConversationTurn(self._settings, gate, conversation, heard=heard)
        try:
            turn.begin()
            plans = turn.resume(decided, self._offered()) if decided else None
            stop = turn.stop_reason()
            for event in turn.take_events():
                yield event
            while plans is not None or stop is None:
                if plans is None:
                    # Read the world for each request: a reload or a trust decision may change it.
                    request = turn.request(self._offered(), streaming=streaming, world=self._session.world)
                    try:
                        async with CheckedResponse(self._provider, request) as deltas:
                            async for delta in deltas:
                                for event in turn.hear(delta):
                                    yield event
                    except ProviderError as error:
                        turn.fail(error)
                    # A provider that cancels itself ends the turn, but not the task of the caller.
                    except CancelledError:
                        if is_cancelled_by_caller():
                            raise
                        turn.cancel_request()
                    else:
                        turn.accept()
                    plans = turn.judge()
                for event in turn.take_events():
                    yield event
                # A single call that never waits needs no generator either.
                alone = len(plans) == 1 and self._runner.make_at_once(
                    plans[0], turn.reader.tool.name, turn.record
                )
                if plans and not alone:
                    async with aclosing(
                        self._runner.make(plans, turn.reader, turn.spilled, turn.record)
                    ) as steps:
                        async for _step in steps:
                            for event in turn.take_events():
                                yield event
                for event in turn.take_events():
                    yield event
                plans = None
                turn.end_round()
                if self._config.sink is not None or self._config.store is not None:
                    await self._write(turn)
                stop = turn.stop_reason()
                # A scripted model and mocks never suspend: without this, a long turn would block all other tasks.
                if stop is None and turn.rounds % AT_ONCE == 0:
                    await yield_to_event_loop()
            await self._write(turn)
        except SinkFailed:  # the error already contains the complete conversation
            raise
        except BaseException as error:
            await self._break_off(turn, error, broken_off)
            raise
        ended = turn.end(stop)
        for event in turn.take_events():
            yield event
        yield ended

    async def _break_off(
        self, turn: ConversationTurn, error: BaseException, broken_off: BrokenOff | None
    ) -> None:
        """End a turn that was cancelled or failed: its calls may have had effects, which must be written."""
        turn.break_off(cancelled=not isinstance(error, Exception))
        await self._write_at_last(turn)
        # The generator can yield nothing more, so the rest goes to the callback.
        if broken_off is not None:
            conversation = turn.end(turn.stop_reason())
            broken_off(turn.take_events(), conversation)

    async def _write(self, turn: ConversationTurn) -> None:
        new, store = turn.unwritten(), self._config.store
        if not new:
            return
        try:
            if self._config.sink is not None:
                await append_once(self._config.sink, new, partial(turn.masked, new))
            if store is not None:
                await append_once(store.sink(turn.id), new, partial(turn.masked, new))
        # A sink that cancels itself has failed; only a cancellation by the caller propagates as one.
        except BaseException as error:
            if isinstance(error, Exception) or (
                isinstance(error, CancelledError) and not is_cancelled_by_caller()
            ):
                raise SinkFailed(error, turn.end(turn.stop_reason()), new) from error
            raise

    async def _write_at_last(self, turn: ConversationTurn) -> None:
        """Write the messages of a turn that ends with another error."""
        # That error is raised to the caller, so a failing sink can only be logged.
        try:
            await self._write(turn)
        except SinkFailed as error:
            logging.getLogger("toolcrib").exception("%s", error.message)

    def _begin(self, messages: Any) -> Conversation:
        """Build and check the conversation that the turn continues."""
        conversation = Conversation.of(messages)
        if self._config.system and not conversation.seen:
            instructed = any(message.role == "system" for message in conversation.messages[:1])
            if not instructed:
                conversation = conversation._replace(
                    messages=(system(self._config.system), *conversation.messages)
                )
        check_conversation(conversation)
        return conversation if conversation.id else conversation._replace(id=new_id())

    async def _decided(self, conversation: Conversation, answers: Mapping[str, Any]) -> dict[str, Answer]:
        """Check, claim and store the answers to the pending calls, with those that calls got elsewhere."""
        if not conversation.pending:
            return check_answers(conversation, answers)
        approvals = self._session.approvals
        stored = stored_answers(conversation, approvals)
        given = {**stored, **answers} if stored and isinstance(answers, Mapping) else answers
        decided = check_answers(conversation, given)
        # After all checks: a claim is permanent, so it must not be spent on invalid answers.
        await self._claim(conversation)
        settle_answers(conversation, decided, stored.keys() - answers.keys(), approvals, self._session)
        return decided

    async def _claim(self, conversation: Conversation) -> None:
        """Claim the pending calls, so that no other process answers them as well."""
        claim, pending = self._config.claim, conversation.pending
        if claim is None or not pending:
            return
        self._offered()  # checks the setup, which must happen before the claim
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
            if name != self._reader.tool.name:  # a reload added or removed a tool with the reader's name
                self._reader = ResultReader(name, self._config.result_limit, self._session.clock)
                self._rulebook.own(name)
            if not self._is_known:  # postponed in the constructor until the servers were listed
                check_setup(self._provider, self._rulebook.policy, self._config, within)
                self._is_known = True
            self._offering = registry, ToolOffer(within, self._rulebook, dialect, self._reader)
        return self._offering[1]


def _within(registry: Registry, toolset: str | None) -> Registry:
    return registry if toolset is None else registry.within(toolset)
