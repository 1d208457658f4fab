"""A scenario's script in the place of a model, and its tools as the scenario sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.agent_checks import prompt_of
from toolcrib.loading.scenarios.model import Agent, Scenario
from toolcrib.provider.models.scripted import Scripted, scripted_replies
from toolcrib.registry.namespaces import short_name
from toolcrib.scenarios.runs import runs_of
from toolcrib.scenarios.tool_view import tools_for
from toolcrib.scenarios.user_simulator import ClientStub
from toolcrib.security.tool_policy import ToolPolicy


class Script(NamedTuple):
    """A script that is ready to be played.

    Attributes:
        provider: Plays it.
        session: Where its calls are made: with the scenario's modes, mocks, store and faults.
        policy: What the scenario says of the tools.
        client: Fulfils those tools of mode `client` of which the scenario says how.
        lines: What its user says, turn by turn, as far as that is plain text.
    """

    provider: Scripted
    session: Session
    policy: ToolPolicy
    client: ClientStub
    lines: tuple[str, ...]


def script_of(runtime: Runtime, named: str) -> Script:
    """The script of a scenario.

    Args:
        runtime: Has the scenarios.
        named: Name of the scenario, or its file.

    Raises:
        ConfigurationError: There is none of that name, or it has no agent.
    """
    scenario = runs_of(_found(runtime, named))[0]
    agent = scenario.agent
    assert agent is not None  # noqa: S101 -- it was looked for
    told: dict[str, JSON] = {"seed": scenario.seed, "run": scenario.run, "matrix": dict(scenario.values)}
    namespace = scenario.origin.namespace
    provider = Scripted(
        scripted_replies(agent.turns, agent.script),
        names=told.copy,
        place=scenario.origin.place,
        named=lambda tool: short_name(namespace, tool),
    )
    session = runtime.session(id="chat", seed=scenario.seed, registry=tools_for(runtime, scenario))
    client = ClientStub(runtime, agent, told.copy)
    return Script(provider, session, _policy(runtime, scenario, agent), client, _lines(agent, told))


def _found(runtime: Runtime, named: str) -> Scenario:
    with_agent = [scenario for scenario in runtime.scenarios if scenario.agent is not None]
    file = Path(named).is_file()
    for scenario in with_agent:
        same = (
            Path(scenario.origin.source).resolve() == Path(named).resolve()
            if file
            else scenario.name == named
        )
        if same:
            return scenario
    names = [scenario.name for scenario in with_agent]
    what = (
        f"`{named}` holds no scenario with an agent"
        if file
        else f"no scenario with an agent is called `{named}`"
    )
    known = f"there are {', '.join(f'`{name}`' for name in names)}" if names else "name a path that has one"
    raise ConfigurationError(what, code="unknown_scenario", hint=did_you_mean(named, names) or known)


def _policy(runtime: Runtime, scenario: Scenario, agent: Agent) -> ToolPolicy:
    """What the agent says, over what its prompt says."""
    if not agent.prompt:
        return agent.policy
    prompt = prompt_of(agent.prompt, runtime.packs, scenario.origin)
    said: dict[str, Any] = {key: getattr(agent.policy, key) for key in agent.policy_keys}
    return replace(prompt.policy, **said)


def _lines(agent: Agent, names: dict[str, JSON]) -> tuple[str, ...]:
    texts = [turn.user for turn in agent.turns if turn.user is not None]
    return tuple(str(text.render(names.copy())) if text.names <= names.keys() else "" for text in texts)
