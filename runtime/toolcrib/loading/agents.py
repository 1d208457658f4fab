"""The agent of a scenario: a model, scripted or real, what the user says to it, and how its way is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.matching import Matcher
from toolcrib.model import JSON, NOTHING
from toolcrib.rendering import Rendering
from toolcrib.tool_policy import NO_POLICY, ToolPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """Something that must be true of the way that an agent took.

    Attributes:
        type: Which kind, by its own name; aliases are settled.
        params: What it asks for, as written.
        message: What it shows, for reports.
        when: What must have happened for it to apply.
        pass_threshold: The share of trials in which it must hold, 0 to 1; None for that of the scenario.
        pointer: Where it stands in the document.
    """

    type: str
    params: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    message: str = ""
    when: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    pass_threshold: float | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call that a scripted model asks for.

    Attributes:
        tool: Name of the tool.
        args: The arguments.
        id: Its id; one is made unless given.
        expect_result: Matcher for what the model must be told of it; None for anything.
        pointer: Where it stands in the document.
    """

    tool: str
    args: Rendering
    id: str = ""
    expect_result: Matcher | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a scripted model.

    Attributes:
        when: Part of what the model sees -> matcher for it; all must fit.
        reasoning: What it thinks; None for nothing.
        say: What it says; None for nothing.
        calls: What it asks for, in order.
        times: How often it may be used; 0 for any number of times.
        optional: Whether nobody minds that it was never used.
        pointer: Where it stands in the document.
    """

    when: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    reasoning: Rendering | None = None
    say: Rendering | None = None
    calls: tuple[ScriptedCall, ...] = ()
    times: int = 1
    optional: bool = False
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What happens between two moments at which the agent is waited for.

    Attributes:
        user: What the user says; None where a suspended turn goes on.
        answers: Tool name or call id -> what is said of its pending call, as written.
        script: What a scripted model answers in this turn.
        client: Tool name -> how the caller fulfils it in this turn, before the agent's own.
        assertions: What must be true of this turn.
        pointer: Where it stands in the document.
    """

    user: Rendering | None = None
    answers: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    script: tuple[Reply, ...] = ()
    client: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    assertions: tuple[Assertion, ...] = ()
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of a scenario.

    Attributes:
        provider: `scripted`, `direct`, or the name of a provider of models.
        model: Which model; empty for the provider's choice.
        base_url: Where it is; empty for the provider's own address.
        settings: The provider's own: `temperature` ...
        prices: US dollars per million tokens: `input, output, cached, cache_writes`.
        prompt: Name of a prompt of the pack; empty for none.
        system: What instructs it; None where nothing does.
        policy: What it may do with tools.
        client: Tool name -> how the caller fulfils it: `grant`, `deny`, `timeout`, `defer`, `{result: ...}`, `{error: ...}`.
        judge: Who judges where a model must: `{provider, model, base_url, settings}`; empty for nobody.
        script: Replies that any turn may use.
        turns: What is said to it, in order.
        assertions: What must be true of the whole conversation.
        unused_turns: What it means that a reply was never used: `error`, `warn`, `ignore`.
        pointer: Where it stands in the document.
    """

    provider: str = "scripted"
    model: str = ""
    base_url: str = ""
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    prices: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    prompt: str = ""
    system: Rendering | None = None
    policy: ToolPolicy = NO_POLICY
    client: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    judge: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    script: tuple[Reply, ...] = ()
    turns: tuple[Turn, ...]
    assertions: tuple[Assertion, ...] = ()
    unused_turns: str = "error"
    pointer: str = "/agent"
