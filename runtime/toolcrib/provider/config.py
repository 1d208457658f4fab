"""Configuration of conversations, and the checks of a configuration and of the conversation to continue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Client, Content
from toolcrib.core.text import MODEL_LIMIT
from toolcrib.formats.providers import DIALECTS
from toolcrib.provider.conversation_store import ConversationStore
from toolcrib.provider.conversations import Conversation, Sink
from toolcrib.provider.loop.calls import LEAST_LIMIT, READ_RESULT
from toolcrib.provider.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolcrib.provider.models.protocol import Prices, Provider
from toolcrib.registry.registry import Registry
from toolcrib.security.approvals import Claim
from toolcrib.security.tool_policy import ToolPolicy, check_policy

CONTENT_LIMIT = 5 * 1024 * 1024
"""Default of `Config.content_limit`, in bytes of base64."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of the conversations of a `ProviderMiddleware`.

    Attributes:
        system: Instructions for the model, unless the messages start with a system message.
        settings: Provider settings such as `temperature` and `max_tokens`.
        prices: Prices of the model; required by `max_cost` of a policy.
        toolset: Name of the toolset to offer (default: the tools of the session).
        client: Fulfils calls of tools in mode `client` (default: the client of the session).
        sink: Receives the messages after every round.
        store: Keeps the messages under the ID of the conversation, for `ProviderMiddleware.resume`.
        claim: Ensures that a suspended conversation is resumed only once if several processes may try, such
            as `FolderClaims`. None if the caller ensures this itself.
        result_limit: Maximum bytes of one result that the model sees; at least 256. It can read the rest on
            demand.
        content_limit: Maximum bytes of base64 of all images, audio and files of one result. Parts beyond the
            limit are described in the text.
        streaming: Whether to request streamed answers. Default: only in `stream`.
        trace: Trace headers to propagate with every call (W3C Trace Context).
    """

    system: str = ""
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    prices: Prices | None = None
    toolset: str | None = None
    client: Client | None = None
    sink: Sink | None = None
    store: ConversationStore | None = None
    claim: Claim | None = None
    result_limit: int = MODEL_LIMIT
    content_limit: int = CONTENT_LIMIT
    streaming: bool | None = None
    trace: Mapping[str, str] = field(default_factory=lambda: NOTHING)


def check_setup(provider: Provider, policy: ToolPolicy, config: Config, registry: Registry | None) -> None:
    """Check a setup. Warnings are logged.

    Args:
        provider: The model.
        policy: The policy for its calls.
        config: The configuration.
        registry: The tools; None if they are not known yet.

    Raises:
        ConfigurationError: The policy, the configuration or the provider is invalid.
    """
    if config.prices is not None:
        config.prices.check()
    wrong = [*_wrong(provider, policy, config, registry)]
    if wrong:
        message = "invalid conversation settings:\n" + "\n".join(f"- {each}" for each in wrong)
        raise ConfigurationError(message, code="invalid_policy")


def _wrong(
    provider: Provider, policy: ToolPolicy, config: Config, registry: Registry | None
) -> Iterator[str]:
    for problem in check_policy(policy, registry):
        hint = f"; {problem.hint}" if problem.hint else ""
        told = f"policy{problem.pointer}: {problem.code}: {problem.message}{hint}"
        if problem.severity == "error":
            yield told
        else:
            logging.getLogger("toolcrib").warning("%s", told)
    if policy.max_cost is not None and config.prices is None and not is_free(provider):
        yield "policy/max_cost: unknown_prices: `max_cost` requires prices: `prices` of the agent, `pricing` of a PromptKit provider, or `Config(prices=Prices(...))`"
    if config.result_limit < LEAST_LIMIT:
        yield f"config/result_limit: out_of_range: expected at least {LEAST_LIMIT}, got {config.result_limit}"
    if config.content_limit < 0:
        yield f"config/content_limit: out_of_range: expected at least 0, got {config.content_limit}"
    dialect = dialect_of(provider)
    if dialect not in DIALECTS:
        near = did_you_mean(dialect, DIALECTS) or f"known dialects: {', '.join(DIALECTS)}"
        yield f"provider/dialect: unknown_dialect: unknown dialect `{dialect}`; {near}"


def is_free(provider: Provider) -> bool:
    """Whether answers cost nothing. Any other provider may call a service, even if it wraps another provider."""
    return bool(getattr(provider, "free", False))


def dialect_of(provider: Provider) -> str:
    """The form in which a provider declares tools."""
    return str(getattr(provider, "dialect", "plain"))


def unused_tool_name(registry: Registry) -> str:
    """Choose a name for the tool that reads long results, different from all other tools and aliases."""
    name, number = READ_RESULT, 1
    while name in registry or registry.named_by_alias(name) is not None:
        number += 1
        name = f"{READ_RESULT}_{number}"
    return name


def check_conversation(conversation: Conversation) -> None:
    """Check that a conversation can continue: every call is pending or is followed by exactly one result.

    Raises:
        ConfigurationError: There is no message to answer, a call has no result or several, a result has no
            call before it, or a message has a part that its role does not allow. The error lists all faults.
    """
    if len(conversation.messages) == 1 and not conversation.pending:
        role, parts = conversation.messages[0]
        if role == "user" and len(parts) == 1 and type(parts[0]) is Text and parts[0].text.strip():
            return  # how most conversations begin
    # Services refuse such conversations with errors that name no message, so find the fault here.
    wrong = [*_not_whole(conversation)]
    if wrong:
        message = "cannot continue this conversation:\n" + "\n".join(f"- {each}" for each in wrong)
        hint = "pass messages in which every call has its result, or the output of `Conversation.as_json()`"
        raise ConfigurationError(message, code="invalid_conversation", hint=hint)


def _not_whole(conversation: Conversation) -> Iterator[str]:
    messages = conversation.messages
    if all(message.role == "system" for message in messages):
        yield "the conversation has no message to answer"
    yield from _misplaced(messages)
    if not conversation.pending and not any(message.calls or message.results for message in messages):
        return  # almost always a new conversation
    calls = Counter(call.id for message in messages for call in message.calls)
    results = Counter(result.id for message in messages for result in message.results)
    waiting = {each.id for each in conversation.pending}
    # Only the last message with calls can be resumed.
    last = next((message.calls for message in reversed(messages) if message.calls), ())
    yield from _out_of_order(messages, waiting)
    yield from (f"the id `{id_}` is used by {count} calls" for id_, count in calls.items() if count > 1)
    yield from (f"the call `{id_}` has {count} results" for id_, count in results.items() if count > 1)
    yield from (f"the result for `{id_}` belongs to no call" for id_ in results if id_ not in calls)
    yield from (
        f"the call `{id_}` has no result" for id_ in calls if id_ not in results and id_ not in waiting
    )
    yield from (f"the call `{id_}` is pending but has a result" for id_ in waiting if id_ in results)
    yield from (
        f"the call `{id_}` is pending but is not in the last message with calls"
        for id_ in waiting - {c.id for c in last}
    )
    open_ = {record.id for record in conversation.calls if record.outcome is None}
    yield from (f"the call `{id_}` is pending but has no open record in `calls`" for id_ in waiting - open_)


_SAYS: Mapping[str, tuple[type, ...]] = {
    "system": (Text,),
    "user": (Text, Content),
    "assistant": (Text, Reasoning, ToolCall, Content),
    "tool": (ToolResult,),
}
"""Maps a role to the types of parts that its messages may have."""


def _misplaced(messages: Sequence[Message]) -> Iterator[str]:
    """Yield parts that the role of their message does not allow, and empty messages."""
    for number, message in enumerate(messages):
        role, parts = message
        for kind in dict.fromkeys(map(type, parts)):
            if kind not in _SAYS[role]:
                yield f"message {number} ({role}) cannot contain a `{kind.__name__}`"
        if role == "tool" and len(parts) != 1:
            yield f"message {number} ({role}) has {len(parts)} parts instead of one result"
        elif role == "user" and not any(map(_says_something, parts)):
            yield f"message {number} ({role}) is empty"


def _says_something(part: Part) -> bool:
    return not isinstance(part, Text) or bool(part.text.strip())


def _out_of_order(messages: Sequence[Message], waiting: Collection[str]) -> Iterator[str]:
    """Yield results before their call, and messages between a call and its result."""
    places: dict[str, int] = {}
    for number, message in enumerate(messages):
        for result in message.results:
            places.setdefault(result.id, number)
    open_: set[str] = set()
    for number, message in enumerate(messages):
        if message.role != "tool":
            yield from (
                f"message {number} ({message.role}) is between the call `{id_}` and its result"
                for id_ in sorted(open_)
            )
            open_ = set()
        for result in message.results:
            open_.discard(result.id)
        for call in message.calls:
            place = places.get(call.id)
            if place is not None and place <= number:
                yield f"the result of the call `{call.id}` comes before the call"
            elif place is not None and call.id not in waiting:
                open_.add(call.id)
