"""Who takes part in the conversation of a scenario: a script or a model, and the client that fulfils its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.protocols import BoundTool
from toolcrib.core.text import compact
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.executors.client import ClientCall
from toolcrib.provider import Provider
from toolcrib.provider.config import Config
from toolcrib.provider.middleware import ProviderMiddleware
from toolcrib.provider.models.protocol import Prices
from toolcrib.provider.models.scripted import Scripted, scripted_replies
from toolcrib.registry.names import short_name
from toolcrib.registry.registry import Registry
from toolcrib.scenarios.assertions import AssertionContext
from toolcrib.security.tool_policy import ToolPolicy, without_idle

if TYPE_CHECKING:
    from toolcrib.loading.prompts import Prompt
    from toolcrib.loading.scenarios.model import Agent, AgentTurn, GuardrailCheck, Scenario
    from toolcrib.scenarios.run_setup import AgentSetup

FulfillCall: TypeAlias = Callable[["ClientStub", ClientCall], Awaitable[Result]]
"""How the caller fulfils a call."""


class ClientStub:
    """The client of a conversation.

    Attributes:
        turn: Whose answers count before those of the agent.

    Args:
        runtime: Binds the mocks of tools that are granted.
        agent: Whose tools are fulfilled.
        names: What expressions read.
    """

    def __init__(self, runtime: Runtime, agent: Agent, names: Callable[[], dict[str, JSON]]) -> None:
        self.turn: AgentTurn | None = None
        self._runtime = runtime
        self._agent = agent
        self._names = names
        self._mocks: dict[str, BoundTool] = {}

    async def __call__(self, call: ClientCall) -> JSON | Result:
        """Fulfil a call as the document says; one of which it says nothing waits."""
        said = self.turn.client.get(call.tool) if self.turn is not None else None
        rendering = said or self._agent.client.get(call.tool)
        if rendering is None:
            return call.defer()
        names = self._names()
        names["args"] = call.arguments
        answer: Any = rendering.render(names)
        if isinstance(answer, str):
            return await _WAYS[answer](self, call)
        if "result" in answer:
            value: JSON = answer["result"]
            return value
        error = answer["error"]
        return Result.failed(Outcome.TOOL_ERROR, error.get("message") or error["code"], code=error["code"])

    async def granted(self, call: ClientCall) -> Result:
        """What the tool's mock answers."""
        if call.tool not in self._mocks:
            self._mocks[call.tool] = engine_of(self._runtime).in_mode(call.call.tool, "mock")
        made = call.call._replace(tool=call.call.tool._replace(mode="mock"))
        return await self._mocks[call.tool].execute(made)


async def _denied(_who: ClientStub, call: ClientCall) -> Result:
    return call.decline("the user said no")


async def _late(_who: ClientStub, call: ClientCall) -> Result:
    await call.context.session.clock.sleep(call.timeout + 1)
    return call.defer()


async def _deferred(_who: ClientStub, call: ClientCall) -> Result:
    return call.defer()


_WAYS: Mapping[str, FulfillCall] = {
    "grant": ClientStub.granted,
    "deny": _denied,
    "timeout": _late,
    "defer": _deferred,
}


ReadNames: TypeAlias = Callable[[], dict[str, JSON]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSetup:
    """The parts that hold a conversation.

    Attributes:
        middleware: The loop.
        script: The model, where it is scripted.
        has_text: Whether there is a model that can say something.
        client: The caller's part.
        context: Whom assertions ask.
        guardrails: Those of the agent, then those of its prompt.
        providers: What is to be closed.
    """

    middleware: ProviderMiddleware
    script: Scripted | None
    has_text: bool
    client: ClientStub
    context: AssertionContext
    guardrails: tuple[GuardrailCheck, ...] = ()
    providers: tuple[Provider, ...] = field(default=())

    async def aclose(self) -> None:
        """Close what was opened for the conversation."""
        for provider in self.providers:
            close: Callable[[], Awaitable[None]] | None = getattr(provider, "aclose", None)
            if close is not None:
                await close()


def open_conversation(
    runtime: Runtime, session: Session, scenario: Scenario, setup: AgentSetup, names: ReadNames
) -> ConversationSetup:
    """Open what holds the conversation of a run.

    Args:
        runtime: Says what may be reached.
        session: Where the calls are made.
        scenario: The run.
        setup: What its agent needs.
        names: What expressions read: a new mapping each time.

    Raises:
        ConfigurationError: There is no such provider or prompt, or something that they need is not there.
        ExpressionError: What instructs the model can't be worked out.
        Untrusted: The scenario names a model, and nobody has agreed to that.
    """
    for subject in setup.subjects:
        engine_of(runtime).trust.check(subject)
    if setup.error is not None:
        raise setup.error
    agent, prompt = setup.agent, setup.prompt
    client = ClientStub(runtime, agent, names)
    make = _OWN.get(agent.provider, _opened)
    provider = make(runtime, session, scenario, agent, names)
    judge = _judge(runtime, session, agent)
    config = Config(
        system=_system(agent, prompt, names),
        settings={**(prompt.settings if prompt else {}), **agent.settings},
        prices=Prices(**agent.prices) if agent.prices else None,
        client=client,
    )
    return ConversationSetup(
        middleware=ProviderMiddleware(provider, session, _policy(agent, prompt, session.registry), config),
        script=provider if isinstance(provider, Scripted) else None,
        has_text=agent.provider != DIRECT,
        client=client,
        context=AssertionContext(call_tool=session.call, judge=judge),
        guardrails=setup.guardrails,
        providers=(provider, judge) if judge is not None else (provider,),
    )


SCRIPTED, DIRECT = "scripted", "direct"
"""Providers without a model."""


def _scripted(
    _runtime: Runtime, _session: Session, scenario: Scenario, agent: Agent, names: ReadNames
) -> Provider:
    return _playing(scenario, agent, names, speaks=True)


def _direct(
    _runtime: Runtime, _session: Session, scenario: Scenario, agent: Agent, names: ReadNames
) -> Provider:
    return _playing(scenario, agent, names, speaks=False)


def _playing(scenario: Scenario, agent: Agent, names: ReadNames, *, speaks: bool) -> Scripted:
    namespace = scenario.origin.namespace
    return Scripted(
        scripted_replies(agent.turns, agent.script),
        names=names,
        place=scenario.origin.place,
        named=lambda tool: short_name(namespace, tool),
        speaks=speaks,
    )


def _opened(
    runtime: Runtime, session: Session, _scenario: Scenario, agent: Agent, _names: ReadNames
) -> Provider:
    told = {"name": agent.provider, "model": agent.model, "base_url": agent.base_url}
    return _open(runtime, session, {**told, "api_key": agent.api_key}, permitted=agent.permitted)


def _open(
    runtime: Runtime, session: Session, told: Mapping[str, Any], *, permitted: bool = False
) -> Provider:
    """A provider that reaches what a document may, unless its address is the operator's.

    The key of the environment is never sent to an address of a document.
    """
    from toolcrib.provider.models.installed_providers import allow_base_url, open_provider  # noqa: PLC0415 -- scripts need none of it

    world = (
        allow_base_url(engine_of(runtime).world, told["base_url"]) if permitted else engine_of(runtime).world
    )
    return open_provider(**told, world=world, clock=session.clock, trusted=permitted)


_OWN: Mapping[str, Callable[[Runtime, Session, Scenario, Agent, ReadNames], Provider]] = {
    SCRIPTED: _scripted,
    DIRECT: _direct,
}


def _judge(runtime: Runtime, session: Session, agent: Agent) -> Provider | None:
    if not agent.judge:
        return None
    told = {key: value for key, value in agent.judge.items() if key in {"model", "base_url", "api_key"}}
    provider = _open(runtime, session, {**told, "name": agent.judge["provider"]})
    settings = agent.judge.get("settings")
    return _Set(provider, settings) if settings else provider


class _Set:
    """A provider whose requests have settings of their own."""

    def __init__(self, provider: Provider, settings: Mapping[str, JSON]) -> None:
        self._provider = provider
        self._settings = settings
        self.aclose = getattr(provider, "aclose", _nothing)

    def respond(self, request: Any, /) -> Any:
        """Answer, with these settings."""
        return self._provider.respond(request._replace(settings={**self._settings, **request.settings}))


async def _nothing() -> None:
    """There is nothing to close."""


def _system(agent: Agent, prompt: Prompt | None, names: ReadNames) -> str:
    """What instructs the model."""
    if agent.system is not None:
        text = agent.system.render(names())
        return text if isinstance(text, str) else compact(text)
    if prompt is None:
        return ""
    return prompt.render({name: value.render(names()) for name, value in agent.variables.items()})


def _policy(agent: Agent, prompt: Prompt | None, registry: Registry) -> ToolPolicy:
    """What the document says, over what the prompt says."""
    policy = agent.policy
    if prompt is not None:
        policy = replace(prompt.policy, **{key: getattr(agent.policy, key) for key in agent.policy_keys})
    return without_idle(policy, registry)
