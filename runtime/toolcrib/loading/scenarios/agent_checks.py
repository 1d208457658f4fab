"""What a scenario says of its agent, checked against the tools and prompts that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.model import Descriptor, Origin
from toolcrib.loading.packs import Pack
from toolcrib.loading.prompts import Prompt, find_prompt
from toolcrib.loading.scenarios.agent_names import check_names, unknown_tool
from toolcrib.loading.scenarios.agents import Agent, ScriptedCall
from toolcrib.loading.scenarios.provider_names import check_providers
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.security.tool_policy import check_policy

READING = "read_result"
"""The tool by which a model reads on in a result that was too long to be shown; it is always there."""


def check_agent(
    scenario: Scenario, tools: Mapping[str, Descriptor], refused: Mapping[str, Problem]
) -> Iterator[Problem]:
    """Everything in an agent that does not fit the tools: names, what the policy says, who fulfils what.

    Args:
        scenario: What to check.
        tools: The tools that are loaded together with it.
        refused: Name of a tool whose document was refused -> its first problem.
    """
    agent = scenario.agent
    if agent is None:
        return
    yield from check_providers(agent)
    for call in agent.scripted_calls:
        if not ({call.tool} & ({READING} | tools.keys() | refused.keys()) or _wants_failure(call)):
            yield unknown_tool(call.tool, f"{call.pointer}/call", tools, _MEANT)
    for problem in check_policy(agent.policy, tools.keys() | refused.keys()):
        yield problem._replace(pointer=f"/agent/policy{problem.pointer}")
    for tool, pointer in agent.fulfilled:
        if tool in tools:
            yield from _fulfilled(scenario, agent, tools[tool], pointer)
        elif tool not in refused:
            yield unknown_tool(tool, pointer, tools)
    sought = {call.tool for call in agent.scripted_calls if _wants_failure(call)}
    yield from check_names(scenario, agent, tools, {READING, *refused, *sought})


_MEANT = "where the model is to ask for what is not there, `expect_result: {outcome: not_found}` says so"


def _wants_failure(call: ScriptedCall) -> bool:
    """Whether a model is meant to ask for what is not there: the script says how the call ends."""
    pattern = None if call.expect_result is None else call.expect_result.expected()
    return isinstance(pattern, dict) and "outcome" in pattern


def _fulfilled(scenario: Scenario, agent: Agent, tool: Descriptor, pointer: str) -> Iterator[Problem]:
    if "client" not in tool.bindings:
        message = f"`{tool.name}` has no `client:` block, so no caller fulfils it"
        hint = "leave it out, or give the tool a `client:` block"
        yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)
    elif agent.grants(tool.name) and not ("mock" in tool.bindings or tool.name in scenario.mocks):
        message = f"`{tool.name}` has no `mock:` block that could say what the caller answers"
        hint = "write one, in the tool or under `mocks`, or say `{result: ...}` here"
        yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)


def prompt_of(name: str, packs: Sequence[Pack], origin: Origin) -> Prompt:
    """The prompt of an agent: of the scenario's own pack, else of any.

    Raises:
        ConfigurationError: There is none of that name, or several packs have one.
    """
    own = [pack for pack in packs if pack.name == origin.pack and name in pack.prompts]
    return find_prompt(own or packs, name)


def check_prompt(scenario: Scenario, packs: Sequence[Pack]) -> Iterator[Problem]:
    """That the prompt of the scenario's agent is there; the problem is placed in the scenario's file."""
    agent, origin = scenario.agent, scenario.origin
    if agent is None or not agent.prompt:
        return
    try:
        prompt_of(agent.prompt, packs, origin)
    except ConfigurationError as error:
        line, column = origin.locate("/agent/prompt")
        problem = Problem(code=error.code, message=error.message, pointer="/agent/prompt", hint=error.hint)
        yield problem.at(origin.source, line or origin.line, column or 1)
