"""Prepare a run: its tools with modes, mocks, store and faults, and its agent with prompt and guardrails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import NO_FIXTURE, Descriptor
from toolcrib.engine import engine_of
from toolcrib.engine.startup import named_mode, with_modes
from toolcrib.engine.workspaces import subject_of_tool, subjects_of_scenario
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario_links import tools_of
from toolcrib.loading.scenarios.scenario_state import with_inherited_state, with_mock, with_scenario_state
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Engine, Runtime
    from toolcrib.loading.prompts import Guardrail, Prompt
    from toolcrib.loading.scenarios.model import GuardrailCheck, ScenarioAgent
    from toolcrib.security.trust import TrustSubject


class AgentSetup(NamedTuple):
    """The agent of a run, with what it needs from the project.

    Attributes:
        agent: The agent.
        subjects: The models that must be trusted before the agent contacts them.
        prompt: The prompt; None if the agent has none, or if there is an `error`.
        guardrails: The guardrails of the agent, then those of its prompt.
        error: Why the prompt was not found; raised when the conversation begins, so that it becomes a failure.
    """

    agent: ScenarioAgent
    subjects: tuple[TrustSubject, ...]
    prompt: Prompt | None
    guardrails: tuple[GuardrailCheck, ...]
    error: ConfigurationError | None


class RunSetup(NamedTuple):
    """A run with everything that it needs from the project.

    Attributes:
        scenario: The scenario, or one of its runs.
        tools: The tools with modes, mocks, store and faults of the scenario.
        agent: The agent; None if the scenario has none.
    """

    scenario: Scenario
    tools: Registry
    agent: AgentSetup | None


def set_up_run(runtime: Runtime, scenario: Scenario) -> RunSetup:
    """Look up and compile what a run needs. The run itself only reads golden files."""
    agent = None if scenario.agent is None else _agent_setup(runtime, scenario, scenario.agent)
    return RunSetup(scenario, tools_for(runtime, scenario), agent)


def _agent_setup(runtime: Runtime, scenario: Scenario, agent: ScenarioAgent) -> AgentSetup:
    from toolcrib.loading.prompts import guardrail_of  # noqa: PLC0415 -- most scenarios have no agent
    from toolcrib.loading.scenarios.agent_checks import prompt_of  # noqa: PLC0415 -- as above

    prompt, error = None, None
    try:
        prompt = prompt_of(agent.prompt, runtime.packs, scenario.origin) if agent.prompt else None
    except ConfigurationError as wrong:
        error = wrong
    guardrails = [guardrail_of(each) for each in agent.guardrails]
    guardrails += prompt.guardrails if prompt else ()
    return AgentSetup(agent, tuple(subjects_of_scenario(scenario)), prompt, _compiled(guardrails), error)


def _compiled(guardrails: Sequence[Guardrail]) -> tuple[GuardrailCheck, ...]:
    if not guardrails:
        return ()
    from toolcrib.loading.scenarios.assertions import compile_guardrails  # noqa: PLC0415 -- most agents have none

    return compile_guardrails(guardrails)


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools of a run: with the modes of the scenario, then its store, faults and mocks."""
    furnishes = bool(scenario.faults) or scenario.fixture is not NO_FIXTURE
    # Scenarios without changes share the registry, and with it everything that is compiled for its tools.
    if not (scenario.modes or scenario.mocks or furnishes):
        return registry
    told = _settled(scenario) if scenario.faults else scenario

    def derive() -> Registry:
        # Loading has reported the problems, so the list is dropped.
        run = with_inherited_state(told, registry, [])
        moded = with_modes(registry, run.modes)
        if furnishes:
            moded = moded.changed(tool=lambda tool: with_scenario_state(tool, run))
        # Mocks come last: a mock of the scenario wins over its modes.
        return moded.with_tools(with_mock(moded[name], run) for name in run.mocks)

    # The runs of a matrix or a repetition usually have the same tools, and compiling mocks costs more than
    # running them.
    return registry.derived_once((told.modes, told.mocks, told.fixture, told.faults, told.origin), derive)


def tools_for(runtime: Runtime, scenario: Scenario) -> Registry:
    """`registry_for`, with the network access and the trust of its tools bound to the scenario.

    Tools from other workspaces need the trust of the workspace of the scenario, too. If the engine is `offline`, only tools
    whose modes the scenario names may reach the network.
    """
    registry, trust = registry_for(runtime.registry, scenario), engine_of(runtime).trust
    if engine_of(runtime).offline:
        reaching = _unnamed(registry, scenario, engine_of(runtime))
        registry = _without_network(registry, scenario, reaching) if reaching else registry
    if trust.policy.everything:
        return registry
    home, executors = trust.workspace_of(scenario.origin.source), engine_of(runtime).executors
    # Tools that stay in this process, such as mocks, need no trust.
    others = [
        card.name
        for card in registry.cards.values()
        if card.mode is not None
        and not executors.is_contained(card.mode)
        and trust.workspace_of(card.source) != home
    ]
    if not others:
        return registry
    # An override in the scenario's file makes its workspace responsible for these tools, too. Otherwise a
    # scenario of a third-party pack could call the live tools of a trusted project.
    place = f"{scenario.origin.source}:{scenario.origin.line}"
    return registry.with_tools(_also_written_in(registry[name], place) for name in others)


def _unnamed(registry: Registry, scenario: Scenario, engine: Engine) -> list[str]:
    """The tools that may reach out of this process in modes that the scenario does not name."""
    return [
        card.name
        for card in registry.cards.values()
        if card.mode is not None
        and not engine.executors.is_contained(card.mode)
        and named_mode(card.name, scenario.modes) != card.mode
    ]


def _without_network(registry: Registry, scenario: Scenario, names: Sequence[str]) -> Registry:
    place = scenario.origin.place("")
    # The runs of a scenario share the tools that are bound once.
    return registry.derived_once(
        (scenario.origin,),
        lambda: registry.with_tools(registry[name]._replace(offline=place) for name in names),
    )


def _also_written_in(tool: Descriptor, place: str) -> Descriptor:
    return tool._replace(origin=tool.origin._replace(overrides=(*tool.origin.overrides, place)))


def trust_subjects(runtime: Runtime, scenario: Scenario) -> Iterator[TrustSubject]:
    """What a run needs outside this process: the tools that it may call, and the models of its agent.

    An agent may call every tool.
    """
    registry = tools_for(runtime, scenario)
    names = registry if scenario.agent is not None else tools_of(scenario)
    for name in names:
        tool = registry.get(name)
        if (
            tool is not None
            and tool.mode is not None
            and not engine_of(runtime).executors.is_contained(tool.mode)
            and not (tool.offline and engine_of(runtime).contacts(tool))
        ):
            yield subject_of_tool(tool, engine_of(runtime).executors, engine_of(runtime).trust, tool.mode)
    yield from subjects_of_scenario(scenario)


def _settled(scenario: Scenario) -> Scenario:
    """Resolve the faults for this run; returns the scenario itself if they do not depend on the run."""
    from toolcrib.loading.scenarios.faults import resolve_faults  # noqa: PLC0415 -- most scenarios have no faults

    faults = resolve_faults(scenario.faults, {"matrix": dict(scenario.values), "run": scenario.run})
    return scenario if faults == scenario.faults else replace(scenario, faults=faults)
