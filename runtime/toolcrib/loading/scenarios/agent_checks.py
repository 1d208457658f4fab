"""Check agents of scenarios against the loaded tools and prompts: providers, policies and all names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, Problem, did_you_mean
from toolcrib.core.model import Descriptor, Origin
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import closed_names
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.packs import Pack
from toolcrib.loading.prompts import Prompt, find_prompt
from toolcrib.loading.scenarios.agents import check_providers
from toolcrib.loading.scenarios.assertions import assertion_kinds
from toolcrib.loading.scenarios.model import (
    WRAPPER,
    AgentReply,
    Assertion,
    Scenario,
    ScenarioAgent,
    ScriptedCall,
    visible_state,
)
from toolcrib.loading.scenarios.scenario_state import with_mock
from toolcrib.registry.names import short_name
from toolcrib.security.tool_policy import check_policy

_OF_TOOLS: Final = frozenset({"#/$defs/name", "#/$defs/names", "#/$defs/tools_or_none"})
"""References in parameter schemas that denote tool names."""

_OF_ARGUMENTS: Final = ("expected_args", "excluded_args", "forbidden_args", "args_match", "args")
"""Parameters whose keys are arguments of the tool named next to them."""


class NameUse(NamedTuple):
    """The use of a name in a document.

    Attributes:
        name: The name.
        pointer: JSON Pointer into the document.
        tool: The tool, if the name is that of an argument; else empty.
    """

    name: str
    pointer: str
    tool: str = ""


def named_tools(assertion: Assertion) -> Iterator[NameUse]:
    """The tools that an assertion names, including those in `when`."""
    for schema, params, pointer in _parts(assertion):
        yield from _tools(schema["$defs"], schema, params, pointer)
    when, pointer = assertion.when, f"{assertion.pointer}/when"
    if "tool_called" in when:
        yield NameUse(when["tool_called"], f"{pointer}/tool_called")
    if isinstance(any_of := when.get("any_tool_called"), list):
        yield from (NameUse(name, f"{pointer}/any_tool_called/{index}") for index, name in enumerate(any_of))


def named_arguments(assertion: Assertion) -> Iterator[NameUse]:
    """The arguments that an assertion names, unless it counts calls with invalid arguments."""
    for _schema, params, pointer in _parts(assertion):
        # With `ignore_validation`, calls that the schema rejected count as well, so any argument name is possible.
        if params.get("ignore_validation"):
            continue
        steps = [(step, f"{pointer}/steps/{index}") for index, step in enumerate(params.get("steps", ()))]
        for part, place in [(params, pointer), *steps]:
            tool = part.get("tool_name") or part.get("tool")
            for key in _OF_ARGUMENTS if isinstance(tool, str) else ():
                yield from (
                    NameUse(name, f"{place}/{key}/{pointer_step(name)}", tool) for name in part.get(key, ())
                )


def named_states(assertion: Assertion) -> Iterator[NameUse]:
    """The states that an assertion names."""
    for _schema, params, pointer in _parts(assertion):
        for index, rule in enumerate(params.get("rules", ())):
            yield NameUse(rule["state"], f"{pointer}/rules/{index}/state")


def _parts(assertion: Assertion) -> Iterable[tuple[dict[str, Any], Mapping[str, Any], str]]:
    """The schema of an assertion's type, its parameters and their pointer; for a wrapper, those of the inner one."""
    if assertion.unsupported:
        return
    kind, params, pointer = assertion.type, assertion.params, f"{assertion.pointer}/params"
    while kind == WRAPPER:
        kind, params, pointer = params["eval_type"], params["eval_params"], f"{pointer}/eval_params"
    yield assertion_kinds()[kind], params, pointer


def _tools(
    definitions: Mapping[str, Any], schema: Mapping[str, Any], value: Any, pointer: str
) -> Iterator[NameUse]:
    """The tool names in a value, as marked by its schema."""
    reference = schema.get("$ref", "")
    if reference in _OF_TOOLS:
        if isinstance(value, str):
            yield NameUse(value, pointer)
        else:
            yield from (NameUse(name, f"{pointer}/{index}") for index, name in enumerate(value))
        return
    known = {**definitions.get(reference.removeprefix("#/$defs/"), {}), **schema}
    if isinstance(value, dict):
        inner = known.get("properties", {})
        for key in value.keys() & inner.keys():
            yield from _tools(definitions, inner[key], value[key], f"{pointer}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tools(definitions, known.get("items", {}), item, f"{pointer}/{index}")


_MADE_ID: Final = re.compile(r"call_[1-9][0-9]*")
"""IDs that are generated for calls without one."""

_OF_LAST: Final = ("tool", "outcome", "code", "value", "text")


class KnownNames(NamedTuple):
    """The known names of tools.

    Attributes:
        tools: Name in the scenario -> tool.
        others: Further valid names: those of rejected tools, and those that a script calls to provoke `not_found`.
    """

    tools: Mapping[str, Descriptor]
    others: Collection[str]

    def has(self, name: str) -> bool:
        """Whether a name is known."""
        return name in self.tools or name in self.others


def check_names(
    scenario: Scenario, agent: ScenarioAgent, tools: Mapping[str, Descriptor], others: Iterable[str]
) -> Iterator[Problem]:
    """A problem for each unknown name in assertions, in `when` and in `answers`.

    Args:
        scenario: The scenario.
        agent: Its agent.
        tools: The tools that are loaded together with it.
        others: Further valid names of tools.
    """
    namespace = scenario.origin.namespace
    known = KnownNames(
        {short_name(namespace, name): tool for name, tool in tools.items()},
        {short_name(namespace, name) for name in others},
    )
    assertions = list(agent.all_assertions)
    for assertion in assertions:
        yield from _assertion(assertion, known)
    yield from _states(scenario, assertions, tools)
    for reply in agent.replies:
        yield from _when(reply, known)
    yield from _answers(agent, known, lambda name: short_name(namespace, name))


def _assertion(assertion: Assertion, known: KnownNames) -> Iterator[Problem]:
    for name, pointer, _tool in named_tools(assertion):
        if not known.has(name):
            yield unknown_tool(name, pointer, known.tools)
    for name, pointer, tool in named_arguments(assertion):
        names = closed_names(known.tools[tool].input_schema) if tool in known.tools else None
        if names is not None and name not in names:
            message = f"`{tool}` has no argument `{name}`, so no call can have it"
            hint = did_you_mean(name, names) or f"known arguments: {_listed(names)}"
            yield Problem(code="unknown_argument", message=message, pointer=pointer, hint=hint)
    pattern = assertion.when.get("tool_called_pattern")
    if pattern and not any(map(compile_matcher({"$regex": pattern}, []).matches, known.tools)):
        message = f"no tool name matches {pattern}, so the assertion never applies"
        place = f"{assertion.pointer}/when/tool_called_pattern"
        yield Problem(code="idle_glob", message=message, pointer=place, severity="warning")


def _states(
    scenario: Scenario, assertions: Iterable[Assertion], tools: Mapping[str, Descriptor]
) -> Iterator[Problem]:
    """A problem for each state that no machine can have."""
    named: list[NameUse] = [each for assertion in assertions for each in named_states(assertion)]
    if not named:
        return
    machines = visible_state(
        scenario, {name: with_mock(tool, scenario) for name, tool in tools.items()}
    ).fixture[1]
    # A machine without a list of states can have any state.
    if not machines or not all(machine.states for machine in machines.values()):
        return
    states = {state for machine in machines.values() for state in machine.states}
    for name, pointer, _tool in named:
        if name not in states:
            message = f"unknown state `{name}`: no machine has it"
            hint = did_you_mean(name, states) or f"known states: {_listed(states)}"
            yield Problem(code="never_matches", message=message, pointer=pointer, hint=hint)


def _when(reply: AgentReply, known: KnownNames) -> Iterator[Problem]:
    """Names in what a reply waits for."""
    pointer = f"{reply.pointer}/when"
    patterns = {key: matcher.expected() for key, matcher in reply.when.items()}
    last = patterns.get("last")
    if isinstance(last, dict):
        for key in (key for key in last if key not in _OF_LAST and not key.startswith("$")):
            hint = did_you_mean(key, _OF_LAST) or f"known: {_listed(_OF_LAST)}"
            place = f"{pointer}/last/{pointer_step(key)}"
            yield Problem(
                code="unknown_key", message=f"unknown key `{key}` in `last`", pointer=place, hint=hint
            )
        tool = last.get("tool")
        if isinstance(tool, str) and "{{" not in tool and not known.has(tool):
            yield unknown_tool(tool, f"{pointer}/last/tool", known.tools)
    results = patterns.get("results")
    for name in results if isinstance(results, dict) else ():
        if not name.startswith("$") and not known.has(name):
            yield unknown_tool(name, f"{pointer}/results/{pointer_step(name)}", known.tools)


def _answers(agent: ScenarioAgent, known: KnownNames, short: Callable[[str], str]) -> Iterator[Problem]:
    """Answers to what is neither a tool nor the id of a call."""
    ids = {call.id for call in agent.scripted_calls if call.id}
    for turn in agent.turns:
        for name in map(short, turn.answers):
            if not (known.has(name) or name in ids or _MADE_ID.fullmatch(name)):
                pointer = f"{turn.pointer}/answers/{pointer_step(name)}"
                problem = unknown_tool(name, pointer, {*known.tools, *ids})
                yield problem._replace(message=f"`{name}` is neither a tool nor the ID of a call")


def unknown_tool(name: str, pointer: str, tools: Collection[str], way: str = "") -> Problem:
    """The problem of an unknown tool; `way` is a further hint."""
    hint = did_you_mean(name, tools) or "load the tool together with the scenario"
    hint = "; ".join(filter(None, (hint, way)))
    return Problem(code="unknown_tool", message=f"unknown tool `{name}`", pointer=pointer, hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


READING = "read_result"
"""The tool with which a model reads the rest of a truncated result; it always exists."""


def check_agent(
    scenario: Scenario, tools: Mapping[str, Descriptor], refused: Mapping[str, Problem]
) -> Iterator[Problem]:
    """The problems of an agent with regard to the tools: names, policy, and answers of the client.

    Args:
        scenario: The scenario.
        tools: The tools that are loaded together with it.
        refused: Name of a tool whose document was rejected -> its first problem.
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
    # Assertions may name these tools as well, for example to check that a call failed.
    sought = {call.tool for call in agent.scripted_calls if _wants_failure(call)}
    yield from check_names(scenario, agent, tools, {READING, *refused, *sought})


_MEANT = "if the model should call an unknown tool, add `expect_result: {outcome: not_found}`"


def _wants_failure(call: ScriptedCall) -> bool:
    """Whether the script expects a certain outcome of a call, so that the tool may be unknown on purpose."""
    pattern = None if call.expect_result is None else call.expect_result.expected()
    return isinstance(pattern, dict) and "outcome" in pattern


def _fulfilled(scenario: Scenario, agent: ScenarioAgent, tool: Descriptor, pointer: str) -> Iterator[Problem]:
    if "client" not in tool.bindings:
        message = f"`{tool.name}` has no `client:` block, so no client answers it"
        hint = "remove it, or add a `client:` block to the tool"
        yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)
    elif agent.grants(tool.name) and not ("mock" in tool.bindings or tool.name in scenario.mocks):
        message = f"`{tool.name}` has no `mock:` block to supply the client's answer"
        hint = "add one to the tool or under `mocks`, or write `{result: ...}` here"
        yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)


def prompt_of(name: str, packs: Sequence[Pack], origin: Origin) -> Prompt:
    """The prompt of an agent: that of the scenario's own pack, else of any pack.

    Raises:
        ConfigurationError: The prompt is unknown, or several packs have it.
    """
    # A scenario of a pack must not break when another pack adds a prompt of the same name.
    own = [pack for pack in packs if pack.name == origin.pack and name in pack.prompts]
    return find_prompt(own or packs, name)


def check_prompt(scenario: Scenario, packs: Sequence[Pack]) -> Iterator[Problem]:
    """The problem of an unknown prompt, positioned in the scenario's file."""
    agent, origin = scenario.agent, scenario.origin
    if agent is None or not agent.prompt:
        return
    try:
        prompt_of(agent.prompt, packs, origin)
    except ConfigurationError as error:
        line, column = origin.locate("/agent/prompt")
        problem = Problem(code=error.code, message=error.message, pointer="/agent/prompt", hint=error.hint)
        yield problem.at(origin.source, line or origin.line, column or 1)
