"""The names in the assertions and scripts of an agent: of tools, of their arguments, of states."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import Descriptor
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import closed_names
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.scenarios.agents import Agent, AgentReply, Assertion
from toolcrib.loading.scenarios.assertions.referenced_names import (
    NameUse,
    named_arguments,
    named_states,
    named_tools,
)
from toolcrib.loading.scenarios.scenario import Scenario, with_mock
from toolcrib.loading.scenarios.scenario_state import visible_state
from toolcrib.registry.namespaces import short_name

_MADE_ID: Final = re.compile(r"call_[1-9][0-9]*")
"""The id of a call that has none of its own."""

_OF_LAST: Final = ("tool", "outcome", "code", "value", "text")


class KnownNames(NamedTuple):
    """What can be named.

    Attributes:
        tools: The tools that there are, as the scenario calls them -> what they are.
        others: Further names of tools that mean something: of refused ones, and what a script asks for in vain.
    """

    tools: Mapping[str, Descriptor]
    others: Collection[str]

    def has(self, name: str) -> bool:
        """Whether a tool can be called so."""
        return name in self.tools or name in self.others


def check_names(
    scenario: Scenario, agent: Agent, tools: Mapping[str, Descriptor], others: Iterable[str]
) -> Iterator[Problem]:
    """Names in assertions, in `when` and in `answers` that are those of nothing.

    Args:
        scenario: What to check.
        agent: Its agent.
        tools: The tools that are loaded together with it.
        others: Further names of tools that mean something.
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
            message = f"`{tool}` has no argument `{name}`, so no call of it is made with one"
            hint = did_you_mean(name, names) or f"it has {_listed(names)}"
            yield Problem(code="unknown_argument", message=message, pointer=pointer, hint=hint)
    pattern = assertion.when.get("tool_called_pattern")
    if pattern and not any(map(compile_matcher({"$regex": pattern}, []).matches, known.tools)):
        message = f"no tool has a name that matches {pattern}, so the assertion never applies"
        place = f"{assertion.pointer}/when/tool_called_pattern"
        yield Problem(code="idle_glob", message=message, pointer=place, severity="warning")


def _states(
    scenario: Scenario, assertions: Iterable[Assertion], tools: Mapping[str, Descriptor]
) -> Iterator[Problem]:
    """States that no machine can have, where all machines say which they can have."""
    named: list[NameUse] = [each for assertion in assertions for each in named_states(assertion)]
    if not named:
        return
    machines = visible_state(
        scenario, {name: with_mock(tool, scenario) for name, tool in tools.items()}
    ).fixture[1]
    if not machines or not all(machine.states for machine in machines.values()):
        return
    states = {state for machine in machines.values() for state in machine.states}
    for name, pointer, _tool in named:
        if name not in states:
            message = f"no machine is ever in a state `{name}`"
            hint = did_you_mean(name, states) or f"their states are {_listed(states)}"
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
                code="unknown_key", message=f"`{key}` is no key of `last`", pointer=place, hint=hint
            )
        tool = last.get("tool")
        if isinstance(tool, str) and "{{" not in tool and not known.has(tool):
            yield unknown_tool(tool, f"{pointer}/last/tool", known.tools)
    results = patterns.get("results")
    for name in results if isinstance(results, dict) else ():
        if not name.startswith("$") and not known.has(name):
            yield unknown_tool(name, f"{pointer}/results/{pointer_step(name)}", known.tools)


def _answers(agent: Agent, known: KnownNames, short: Callable[[str], str]) -> Iterator[Problem]:
    """Answers to what is neither a tool nor the id of a call."""
    ids = {call.id for call in agent.scripted_calls if call.id}
    for turn in agent.turns:
        for name in map(short, turn.answers):
            if not (known.has(name) or name in ids or _MADE_ID.fullmatch(name)):
                pointer = f"{turn.pointer}/answers/{pointer_step(name)}"
                problem = unknown_tool(name, pointer, {*known.tools, *ids})
                yield problem._replace(message=f"`{name}` is no tool, and no id of a call")


def unknown_tool(name: str, pointer: str, tools: Collection[str], way: str = "") -> Problem:
    """A tool that is not there; `way` says what can be done besides."""
    hint = did_you_mean(name, tools) or "the tool must be loaded together with the scenario"
    hint = "; ".join(filter(None, (hint, way)))
    return Problem(code="unknown_tool", message=f"there is no tool `{name}`", pointer=pointer, hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
