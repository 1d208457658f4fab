"""One session of an agent: its conversation, its turns, and the user's decisions about calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp.exceptions import RequestError
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON, NOTHING, Content, Outcome, Result
from toolcrib.core.text import escape_terminal
from toolcrib.executors.client import DEFERRED, ClientCall
from toolcrib.provider import (
    Answer,
    Config,
    Conversation,
    ConversationFacts,
    Delta,
    Event,
    Finish,
    Message,
    Pending,
    Provider,
    ProviderMiddleware,
    Request,
    Stop,
    Tokens,
    ToolCall,
    ToolPolicy,
    user,
)
from toolcrib.provider.conversation_store import LOST, with_results
from toolcrib.provider.messages import parse_messages
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection import INTERNAL_ERROR, INVALID_REQUEST, Editor, finished
from toolcrib.serve.acp.editor_agent import EditorAgent
from toolcrib.serve.acp.editor_tools import EditorTools
from toolcrib.serve.acp.updates import META, STOPS, UpdateWriter, text_block

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

_log = logging.getLogger("toolcrib")


class Mode(NamedTuple):
    """A mode of a session, which the user can select in the editor.

    Attributes:
        name: Name for people.
        description: What the agent may do in it.
        asks: Whether the user is asked before every call.
        changes: Whether tools that change something may be used.
    """

    name: str
    description: str
    asks: bool = False
    changes: bool = True


MODES: Final[Mapping[str, Mode]] = {
    "default": Mode("Default", "Ask where a tool or a rule requires it."),
    "ask": Mode(
        "Always ask", "Ask before every call, unless you have approved it for the session.", asks=True
    ),
    "read_only": Mode("Read only", "Use only tools that change nothing.", changes=False),
}
"""The modes by ID; the first is that of a new session."""

OPTIONS: Final[Mapping[str, tuple[str, str, Answer]]] = {
    "once": ("Allow once", "allow_once", Answer.approve()),
    "session": ("Allow for this session", "allow_always", Answer.approve(scope="session")),
    "always": ("Always allow", "allow_always", Answer.approve(scope="always")),
    "reject": ("Reject", "reject_once", Answer.reject("the user rejected it")),
    "reject_session": (
        "Reject for this session",
        "reject_always",
        Answer.reject("the user rejected it for this session"),
    ),
}
"""What a user can decide about a call: ID -> name, kind in the protocol, answer."""

_OPTIONS: Final = [
    PermissionOption(option_id=id_, name=name, kind=kind)  # type: ignore[arg-type]
    for id_, (name, kind, _answer) in OPTIONS.items()
]


_LONGEST_TITLE: Final = 80


def _open_calls(shown: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The calls that have not ended: ID -> all that was said of the call."""
    calls: dict[str, dict[str, Any]] = {}
    for line in shown:
        if line.get("sessionUpdate") in {"tool_call", "tool_call_update"}:
            calls.setdefault(line["toolCallId"], {}).update(line)
    return {id_: call for id_, call in calls.items() if call.get("status") not in {"completed", "failed"}}


class _CountingProvider:
    """A provider that remembers the tokens of its last answer.

    Attributes:
        last: The tokens.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.last = Tokens()

    def __getattr__(self, name: str) -> Any:
        # The optional members of a provider, such as its dialect.
        return getattr(self._provider, name)

    async def respond(self, request: Request, /) -> AsyncIterator[Delta]:
        async for delta in self._provider.respond(request):
            if isinstance(delta, Finish):
                self.last = delta.tokens
            yield delta

    async def aclose(self) -> None:
        close = getattr(self._provider, "aclose", None)
        if close is not None:
            await close()


class TurnCancelled(Exception):
    """The editor answered a question about a call with `cancelled`."""


class AgentSession:
    """A session.

    Attributes:
        id: ID of the session and of its conversation.
        cwd: Its working folder.
        mode: ID of its mode.
        conversation: The conversation so far.
    """

    def __init__(
        self,
        editor: Editor,
        runtime: Runtime,
        options: EditorAgent,
        *,
        id: str,  # noqa: A002 -- the name in the protocol
        cwd: str,
        capabilities: frozenset[str],
    ) -> None:
        self.id = id
        self.cwd = cwd
        self.mode = next(iter(MODES))
        self.conversation = Conversation(id=id)
        self._editor = editor
        self._options = options
        tools = runtime.registry if options.registry is None else options.registry
        self._tools = runtime.session(
            id=id,
            seed=options.seed,
            registry=tools.for_client(capabilities),
            caller="acp",
            correlation=id,
            client=self._fulfil,
        )
        self._provider = _CountingProvider(options.provider())
        self._writer = UpdateWriter(self._tools.registry.get, cwd)
        self._client = EditorTools(
            editor, id, cwd, self._display, reads="client.fs.read_text_file" in capabilities
        )
        self._turn: asyncio.Task[dict[str, Any]] | None = None
        self._rest: Sequence[Event] = ()
        self._trace: Mapping[str, str] = NOTHING
        self._rejected: set[str] = set()

    def modes(self) -> dict[str, Any]:
        """The state of the modes, in the protocol."""
        known = [
            {"id": id_, "name": mode.name, "description": mode.description} for id_, mode in MODES.items()
        ]
        return {"currentModeId": self.mode, "availableModes": known}

    def facts(self) -> dict[str, JSON]:
        """What depends on the client: the tools, why others are missing, and which are called without asking."""
        registry = self._tools.registry
        hidden = {card.name: registry.hidden(card.name) for card in registry.query(hidden=True)}
        return {
            "tools": [card.name for card in registry.query()],
            "replaced": dict(registry.replaced),
            "preApproved": list(registry.pre_approved),
            "missing": {
                name: {"code": why.code, "message": why.message}
                for name, why in hidden.items()
                if why is not None
            },
        }

    # Stored sessions.

    def restore(self) -> list[dict[str, Any]]:
        """Continue a stored session, and return the updates that an editor was shown.

        A call that was open when toolcrib ended is failed from now on, and the model is told.

        Raises:
            ConfigurationError: The session is unknown or cannot be read.
        """
        store = self._options.store
        assert store is not None  # noqa: S101 -- the agent announces it only with a store
        conversation = store.load(self.id)
        shown = [*store.shown(self.id)]
        messages = [*conversation.messages]
        prompts = [line["prompt"] for line in shown if "prompt" in line]
        # If toolcrib ended in the first round of a turn, the message of the user is not among the messages yet.
        if len(prompts) > conversation.turns:
            (last,) = parse_messages(prompts[-1:])
            if last not in messages[-1:]:
                messages.append(last)
        known = {call.id for message in messages for call in message.calls}
        for id_, call in _open_calls(shown).items():
            failed: dict[str, Any] = {
                "sessionUpdate": "tool_call_update",
                "toolCallId": id_,
                "status": "failed",
                "content": [{"type": "content", "content": text_block(LOST)}],
                "rawOutput": {"outcome": "unknown_outcome", "message": LOST},
            }
            store.record(self.id, failed)
            shown.append(failed)
            if id_ not in known:
                name = call.get("_meta", {}).get(META, {}).get("tool", "")
                messages.append(Message("assistant", (ToolCall(id_, name, call.get("rawInput", {})),)))
        self.conversation = conversation._replace(
            messages=with_results(messages), seen=len(conversation.messages)
        )
        return [line for line in shown if "sessionUpdate" in line]

    async def replay(self, updates: Sequence[Mapping[str, Any]]) -> None:
        """Show an editor what it was shown before."""
        for update in updates:
            await self._editor.update(self.id, update)

    async def _show(self, update: Mapping[str, Any]) -> None:
        """Show an update, which is stored first: what an editor has seen is there after a crash."""
        if self._options.store is not None:
            self._options.store.record(self.id, update)
        await self._editor.update(self.id, update, self._trace)

    def _record_prompt(self, parts: Sequence[str | Content], blocks: Sequence[Mapping[str, Any]]) -> None:
        store = self._options.store
        if store is None:
            return
        title = next((text for part in parts if isinstance(part, str) and (text := part.strip())), "")
        if not self.conversation.messages:
            store.describe(ConversationFacts(self.id, " ".join(title.split())[:_LONGEST_TITLE], self.cwd))
        store.record(self.id, {"prompt": user(*parts).as_json()})
        for block in blocks:
            store.record(self.id, {"sessionUpdate": "user_message_chunk", "content": dict(block)})

    async def close(self) -> None:
        """Cancel the turn, and release what the session holds."""
        if self._turn is not None:
            await finished([self._turn])
        await self._client.close()
        await self._provider.aclose()
        await self._tools.aclose()

    # Turns.

    async def prompt(
        self,
        parts: Sequence[str | Content],
        blocks: Sequence[Mapping[str, Any]],
        trace: Mapping[str, str],
    ) -> dict[str, Any]:
        """Run a turn, and return the answer to its request.

        Args:
            parts: What the user says.
            blocks: The same as content blocks.
            trace: Trace headers of the request, for its calls and its updates.

        Raises:
            RequestError: The session is answering another prompt, or the model failed.
        """
        if self._turn is not None:
            message = (
                f"the session `{self.id}` is answering another prompt; wait for it or send `session/cancel`"
            )
            raise RequestError(INVALID_REQUEST, message)
        self._trace = trace
        self._record_prompt(parts, blocks)
        turn = self._turn = asyncio.create_task(self._answer(parts))
        try:
            await asyncio.wait([turn])
        finally:
            # Only the end of the connection cancels this coroutine: the calls of the turn have to end first.
            await finished([turn])
            self._turn = None
        # An editor that disconnects while it is asked cannot answer any more.
        if turn.cancelled() or isinstance(turn.exception(), TurnCancelled | ConnectionError):
            return await self._cancelled()
        return turn.result()

    def cancel(self) -> None:
        """Cancel the turn; its prompt is answered `cancelled`."""
        if self._turn is not None:
            self._turn.cancel()

    async def _answer(self, parts: Sequence[str | Content]) -> dict[str, Any]:
        conversation, answers = self.conversation.saying(*parts), NOTHING
        before = self.conversation.tokens
        middleware = self._middleware()
        try:
            while True:
                stream = middleware.stream(conversation, answers, broken_off=self._broken_off)
                async with aclosing(stream) as items:
                    async for item in items:
                        if isinstance(item, Conversation):
                            conversation = self.conversation = item
                        else:
                            await self._report(item)
                if conversation.stop is not Stop.PENDING:
                    break
                answers = {each.id: await self._decision(each) for each in conversation.pending}
        except ToolcribError as error:
            raise RequestError(INTERNAL_ERROR, error.message, {"code": error.code}) from error
        stop = conversation.stop
        if stop is Stop.PROVIDER_FAILED:
            failure = dict(conversation.failure)
            raise RequestError(INTERNAL_ERROR, str(failure.pop("message", conversation.detail)), failure)
        await self._report_context()
        used = Tokens(*(now - then for now, then in zip(conversation.tokens, before, strict=True)))
        told: dict[str, Any] = {"stopReason": STOPS[stop or Stop.ANSWERED]}
        if any(used):
            told["usage"] = {
                "totalTokens": used.input + used.output,
                "inputTokens": used.input,
                "outputTokens": used.output,
                "thoughtTokens": used.reasoning,
                "cachedReadTokens": used.cached,
                "cachedWriteTokens": used.cache_writes,
            }
        if told["stopReason"] == "max_turn_requests":
            told["_meta"] = {"toolcrib": {"stop": str(stop), "detail": conversation.detail}}
        return told

    def _middleware(self) -> ProviderMiddleware:
        config = Config(
            system=self._options.system,
            settings=self._options.settings,
            store=self._options.store,
            trace=self._trace,
        )
        return ProviderMiddleware(self._provider, self._tools, self._policy(), config)

    def _policy(self) -> ToolPolicy:
        """The policy of the agent, with what the mode of the session and the tools of the client add."""
        policy, registry = self._options.policy, self._tools.registry
        mode = MODES[self.mode]
        if mode.asks:
            return replace(policy, ask=("*",))
        if not mode.changes:
            changing = [card.name for card in registry.query() if "read_only" not in card.annotations]
            policy = replace(policy, deny=(*policy.deny, *changing))
        return replace(policy, ask=(*policy.ask, *registry.needs_approval))

    async def _report(self, event: Event) -> None:
        for update in (self._writer.of(event), self._writer.plan(event)):
            if update is not None:
                await self._show(update)

    async def _report_context(self) -> None:
        """Report how full the context of the model is."""
        last, size = self._provider.last, self._options.context_size
        if size and any(last):
            used = {"sessionUpdate": "usage_update", "used": last.input + last.output, "size": size}
            await self._show(used)

    def _broken_off(self, events: Sequence[Event], conversation: Conversation) -> None:
        self._rest, self.conversation = events, conversation

    async def _cancelled(self) -> dict[str, Any]:
        """End a cancelled turn: every call that is still open is reported as failed before the prompt is answered."""
        events, self._rest = self._rest, ()
        if self.conversation.pending:
            events, self.conversation = await self._middleware().cancel_pending(self.conversation)
        for event in events:
            with suppress(ConnectionError):  # the store has it
                await self._report(event)
        return {"stopReason": "cancelled"}

    # Calls.

    async def _decision(self, pending: Pending) -> Answer:
        """What the user decides about a call; a call that nobody can fulfil is declined without a question."""
        if pending.code == DEFERRED:
            return Answer.reject("the editor has no method for it")
        if pending.tool in self._rejected:
            return OPTIONS["reject_session"][2]
        call = ToolCallUpdate(
            tool_call_id=pending.id,
            status="pending",
            raw_input=pending.arguments,
            content=[{"type": "content", "content": text_block(pending.message)}],  # type: ignore[list-item]
        )
        try:
            outcome = (await self._editor.ask(self.id, call, _OPTIONS, self._trace)).outcome
        except RequestError as error:
            return Answer.reject(f"the editor did not ask the user: {error}")
        if not isinstance(outcome, AllowedOutcome):
            raise TurnCancelled
        option = OPTIONS.get(outcome.option_id)
        if option is None:
            unknown = shorten(escape_terminal(outcome.option_id))
            _log.warning("the editor answered a question with the unknown option `%s`", unknown)
            return Answer.reject(f"the editor answered with the unknown option `{unknown}`")
        if outcome.option_id == "reject_session":
            self._rejected.add(pending.tool)
        return option[2]

    async def _display(self, call: str, content: list[dict[str, Any]], *, now: bool = False) -> None:
        self._writer.show(call, content)
        if now:
            update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": content}
            await self._show(update)

    async def _fulfil(self, call: ClientCall) -> JSON | Result:
        if call.operation:
            return await self._client(call)
        if self._options.client is not None:
            return await self._options.client(call)
        message = f"the editor has no method for `{call.tool}`"
        return Result.failure(Outcome.UNAVAILABLE, message, code="no_client_method")
