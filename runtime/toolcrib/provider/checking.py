"""What is wrong with how a conversation is set up, or with what it begins with; all of it at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from toolcrib.errors import ConfigurationError, did_you_mean
from toolcrib.interop.declaring import DIALECTS
from toolcrib.provider.config import Config
from toolcrib.provider.conversations import Conversation
from toolcrib.provider.requests import Provider
from toolcrib.provider.spilling import LEAST_LIMIT, READ_RESULT
from toolcrib.registry import Registry
from toolcrib.tool_policy import ToolPolicy, check_policy


def check_setup(provider: Provider, policy: ToolPolicy, config: Config, registry: Registry | None) -> None:
    """Nothing, where conversations can be held. What is only odd is logged.

    Args:
        provider: The model.
        policy: What it may do with tools.
        config: How conversations are held.
        registry: The tools; None where they are not known yet.

    Raises:
        ConfigurationError: Something is wrong with the policy, the configuration or the provider.
    """
    if config.prices is not None:
        config.prices.check()
    wrong = [*_wrong(provider, policy, config, registry)]
    if wrong:
        message = "no conversation can be held like this:\n" + "\n".join(f"- {each}" for each in wrong)
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
    if policy.max_cost is not None and config.prices is None and hasattr(provider, "world"):
        yield "policy/max_cost: unknown_prices: what answers cost is not known; give `Config(prices=Prices(...))`"
    if config.result_limit < LEAST_LIMIT:
        yield f"config/result_limit: out_of_range: expected at least {LEAST_LIMIT}, got {config.result_limit}"
    dialect = dialect_of(provider)
    if dialect not in DIALECTS:
        near = did_you_mean(dialect, DIALECTS) or f"the dialects are {', '.join(DIALECTS)}"
        yield f"provider/dialect: unknown_dialect: there is no dialect `{dialect}`; {near}"


def dialect_of(provider: Provider) -> str:
    """The form in which a provider wants tools declared."""
    return str(getattr(provider, "dialect", "plain"))


def free_name(registry: Registry) -> str:
    """The name of the tool that reads on in long results: one that no other tool has."""
    name, number = READ_RESULT, 1
    while name in registry or registry.named_by_alias(name) is not None:
        number += 1
        name = f"{READ_RESULT}_{number}"
    return name


def check_whole(conversation: Conversation) -> None:
    """Nothing, where a model can be asked to go on: every call has one result, or waits.

    Raises:
        ConfigurationError: There is nothing to answer; or a call has no result, or several, or a result has no call.
    """
    wrong = [*_not_whole(conversation)]
    if wrong:
        message = "this conversation can't go on:\n" + "\n".join(f"- {each}" for each in wrong)
        hint = "pass messages whose calls all have their results, or what `Conversation.as_json()` gave"
        raise ConfigurationError(message, code="invalid_conversation", hint=hint)


def _not_whole(conversation: Conversation) -> Iterator[str]:
    messages = conversation.messages
    if all(message.role == "system" for message in messages):
        yield "nobody has said anything"
    calls = Counter(call.id for message in messages for call in message.calls)
    results = Counter(result.id for message in messages for result in message.results)
    waiting = {each.id for each in conversation.pending}
    last = next((message.calls for message in reversed(messages) if message.calls), ())
    yield from (f"the id `{id_}` is that of {count} calls" for id_, count in calls.items() if count > 1)
    yield from (f"the call `{id_}` has {count} results" for id_, count in results.items() if count > 1)
    yield from (f"there is no call `{id_}`, which has a result" for id_ in results if id_ not in calls)
    yield from (
        f"the call `{id_}` has no result" for id_ in calls if id_ not in results and id_ not in waiting
    )
    yield from (f"the call `{id_}` waits, and has a result" for id_ in waiting if id_ in results)
    yield from (
        f"the call `{id_}` waits, and is not among the last ones" for id_ in waiting - {c.id for c in last}
    )
