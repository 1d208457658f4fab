"""Set up the conversation of a scenario: a script or a model, and a client that fulfils its `client` tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    from toolcrib.loading.scenarios.model import AgentTurn, GuardrailCheck, Scenario, ScenarioAgent
    from toolcrib.scenarios.assertions.trajectories import GuardrailFiring
    from toolcrib.scenarios.guarded_provider import GuardedProvider
    from toolcrib.scenarios.run_setup import AgentSetup

FulfillCall: TypeAlias = Callable[["ClientStub", ClientCall], Awaitable[Result]]
"""Fulfils a call in one of the ways that a scenario can name."""


class ClientStub:
    """The client of a conversation, which answers as the scenario says.

    Attributes:
        turn: The current turn, whose answers take precedence over those of the agent.

    Args:
        runtime: Binds the mocks of granted tools.
        agent: The agent with the answers.
        names: Returns the variables for expressions.
    """

    def __init__(self, runtime: Runtime, agent: ScenarioAgent, names: Callable[[], dict[str, JSON]]) -> None:
        self.turn: AgentTurn | None = None
        self._runtime = runtime
        self._agent = agent
        self._names = names
        self._mocks: dict[str, BoundTool] = {}

    async def __call__(self, call: ClientCall) -> JSON | Result:
        """Fulfil a call as the scenario says; a call without an answer is deferred."""
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
        return Result.failure(Outcome.TOOL_ERROR, error.get("message") or error["code"], code=error["code"])

    async def granted(self, call: ClientCall) -> Result:
        """Call the mock of the tool."""
        if call.tool not in self._mocks:
            self._mocks[call.tool] = engine_of(self._runtime).in_mode(call.call.tool, "mock")
        made = call.call._replace(tool=call.call.tool._replace(mode="mock"))
        return await self._mocks[call.tool].execute(made)


async def _denied(_who: ClientStub, call: ClientCall) -> Result:
    return call.decline("the user declined")


async def _late(_who: ClientStub, call: ClientCall) -> Result:
    # One second past the deadline: on virtual time this costs nothing and makes the deadline layer end the
    # call.
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
    """The parts of a conversation.

    Attributes:
        middleware: The tool loop.
        script: The scripted model; None for a real one.
        has_text: Whether the provider produces text.
        client: The client.
        context: The session and the judge for assertions.
        guardrails: The guardrails of the agent, then those of its prompt.
        firings: The replies that they rewrote so far.
        providers: The providers to close.
    """

    middleware: ProviderMiddleware
    script: Scripted | None
    has_text: bool
    client: ClientStub
    context: AssertionContext
    guardrails: tuple[GuardrailCheck, ...] = ()
    firings: Sequence[GuardrailFiring] = ()
    providers: tuple[Provider, ...] = field(default=())

    async def aclose(self) -> None:
        """Close the providers."""
        for provider in self.providers:
            close: Callable[[], Awaitable[None]] | None = getattr(provider, "aclose", None)
            if close is not None:
                await close()


def open_conversation(
    runtime: Runtime, session: Session, scenario: Scenario, setup: AgentSetup, names: ReadNames
) -> ConversationSetup:
    """Open the providers and the tool loop for the conversation of a run.

    Args:
        runtime: The runtime, with its network policy.
        session: Makes the calls.
        scenario: The run.
        setup: The agent with its prompt and guardrails.
        names: Returns a new mapping of the variables for expressions.

    Raises:
        ConfigurationError: The provider or the prompt is unknown, or something that they need is missing.
        ExpressionError: The system prompt cannot be computed.
        Untrusted: The model that the scenario names is not trusted.
    """
    # Trust is checked before anything is computed, opened or sent.
    for subject in setup.subjects:
        engine_of(runtime).trust.check(subject)
    if setup.error is not None:
        raise setup.error
    agent, prompt = setup.agent, setup.prompt
    client = ClientStub(runtime, agent, names)
    make = _OWN.get(agent.provider, _opened)
    provider = make(runtime, session, scenario, agent, names)
    judge = _judge(runtime, session, agent)
    guarded = _guarded(provider, setup.guardrails)
    config = Config(
        system=_system(agent, prompt, names),
        settings={**(prompt.settings if prompt else {}), **agent.settings},
        prices=Prices(**agent.prices) if agent.prices else None,
        client=client,
    )
    return ConversationSetup(
        middleware=ProviderMiddleware(
            guarded or provider, session, _policy(agent, prompt, session.registry), config
        ),
        script=provider if isinstance(provider, Scripted) else None,
        has_text=agent.provider != DIRECT,
        client=client,
        context=AssertionContext(call_tool=session.call, judge=judge),
        guardrails=setup.guardrails,
        firings=guarded.firings if guarded is not None else (),
        providers=(provider, judge) if judge is not None else (provider,),
    )


def _guarded(provider: Provider, guards: Sequence[GuardrailCheck]) -> GuardedProvider | None:
    """The provider with guardrails that rewrite its replies; None if none of them does."""
    if not any(guard.rewrites for guard in guards):
        return None
    from toolcrib.scenarios.guarded_provider import GuardedProvider  # noqa: PLC0415 -- few agents have such guardrails

    return GuardedProvider(provider, guards)


SCRIPTED, DIRECT = "scripted", "direct"
"""Providers without a model."""


def _scripted(
    _runtime: Runtime, _session: Session, scenario: Scenario, agent: ScenarioAgent, names: ReadNames
) -> Provider:
    return _playing(scenario, agent, names, speaks=True)


def _direct(
    _runtime: Runtime, _session: Session, scenario: Scenario, agent: ScenarioAgent, names: ReadNames
) -> Provider:
    return _playing(scenario, agent, names, speaks=False)


def _playing(scenario: Scenario, agent: ScenarioAgent, names: ReadNames, *, speaks: bool) -> Scripted:
    namespace = scenario.origin.namespace
    return Scripted(
        scripted_replies(agent.turns, agent.script),
        names=names,
        place=scenario.origin.place,
        named=lambda tool: short_name(namespace, tool),
        speaks=speaks,
    )


def _opened(
    runtime: Runtime, session: Session, _scenario: Scenario, agent: ScenarioAgent, _names: ReadNames
) -> Provider:
    told = {"name": agent.provider, "model": agent.model, "base_url": agent.base_url}
    return _open(runtime, session, {**told, "api_key": agent.api_key}, permitted=agent.permitted)


def _open(
    runtime: Runtime, session: Session, told: Mapping[str, Any], *, permitted: bool = False
) -> Provider:
    """Open a provider with the network policy for documents, unless its URL comes from the operator."""
    from toolcrib.provider.models.installed_providers import allow_base_url, open_provider  # noqa: PLC0415 -- scripts do not need it

    world = (
        allow_base_url(engine_of(runtime).world, told["base_url"]) if permitted else engine_of(runtime).world
    )
    # Only a provider that the operator configured gets the API key of the environment: a document could name
    # its own URL and collect the key.
    return open_provider(**told, world=world, clock=session.clock, trusted=permitted)


_OWN: Mapping[str, Callable[[Runtime, Session, Scenario, ScenarioAgent, ReadNames], Provider]] = {
    SCRIPTED: _scripted,
    DIRECT: _direct,
}


def _judge(runtime: Runtime, session: Session, agent: ScenarioAgent) -> Provider | None:
    if not agent.judge:
        return None
    told = {key: value for key, value in agent.judge.items() if key in {"model", "base_url", "api_key"}}
    provider = _open(runtime, session, {**told, "name": agent.judge["provider"]})
    settings = agent.judge.get("settings")
    return _Set(provider, settings) if settings else provider


class _Set:
    """A provider that adds settings to each request."""

    def __init__(self, provider: Provider, settings: Mapping[str, JSON]) -> None:
        self._provider = provider
        self._settings = settings
        self.aclose = getattr(provider, "aclose", _nothing)

    def respond(self, request: Any, /) -> Any:
        """Send a request with the settings."""
        return self._provider.respond(request._replace(settings={**self._settings, **request.settings}))


async def _nothing() -> None:
    """Close nothing."""


def _system(agent: ScenarioAgent, prompt: Prompt | None, names: ReadNames) -> str:
    """Compute the system prompt."""
    if agent.system is not None:
        text = agent.system.render(names())
        return text if isinstance(text, str) else compact(text)
    if prompt is None:
        return ""
    return prompt.render({name: value.render(names()) for name, value in agent.variables.items()})


def _policy(agent: ScenarioAgent, prompt: Prompt | None, registry: Registry) -> ToolPolicy:
    """The policy of the agent, whose keys override those of its prompt."""
    policy = agent.policy
    if prompt is not None:
        policy = replace(prompt.policy, **{key: getattr(agent.policy, key) for key in agent.policy_keys})
    return without_idle(policy, registry)
