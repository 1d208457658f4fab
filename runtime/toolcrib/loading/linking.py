"""What scenarios say of tools, checked against the tools that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from toolcrib.errors import Problem, did_you_mean
from toolcrib.loading.scenarios import Scenario, mocked
from toolcrib.model import Descriptor, Outcome
from toolcrib.protocols import Kinds


def link(
    scenario: Scenario, tools: Mapping[str, Descriptor], kinds: Kinds, refused: Mapping[str, Problem]
) -> list[Problem]:
    """Everything in a scenario that does not fit the tools: unknown names, modes without a block, wrong mocks.

    Args:
        scenario: What to check.
        tools: The tools that are loaded together with it.
        kinds: What the installed modes say of their blocks.
        refused: Name of a tool whose document was refused -> its first problem.

    Returns:
        The problems, placed in the scenario's file; a tool that was refused is named once.
    """
    missing = [
        name
        for name in dict.fromkeys(step.call for step in scenario.steps)
        if name in refused and name not in tools
    ]
    if missing:
        return [_placed(_refused(name, refused[name], scenario), scenario) for name in missing]
    found = [
        *_steps(scenario, tools),
        *_mocks(scenario, tools, kinds),
        *_modes(scenario, tools),
        *_verify(scenario, tools),
    ]
    return [_placed(problem, scenario) for problem in found]


def _placed(problem: Problem, scenario: Scenario) -> Problem:
    line, column = scenario.origin.locate(problem.pointer)
    return problem.at(scenario.origin.source, line or scenario.origin.line, column or 1)


def _refused(name: str, problem: Problem, scenario: Scenario) -> Problem:
    pointer = next(step.pointer for step in scenario.steps if step.call == name) + "/call"
    message = f"the tool `{name}` was refused: {problem.code} in {problem.source}:{problem.line}"
    return Problem(code="refused_tool", message=message, pointer=pointer, hint="mend its descriptor first")


def _unknown(name: str, pointer: str, tools: Mapping[str, Descriptor]) -> Problem:
    hint = did_you_mean(name, tools) or "the tool must be loaded together with the scenario"
    return Problem(code="unknown_tool", message=f"there is no tool `{name}`", pointer=pointer, hint=hint)


def _steps(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterator[Problem]:
    for step in scenario.steps:
        if step.call not in tools and step.expect.outcome is not Outcome.NOT_FOUND:
            yield _unknown(step.call, f"{step.pointer}/call", tools)


def _mocks(scenario: Scenario, tools: Mapping[str, Descriptor], kinds: Kinds) -> Iterator[Problem]:
    for name in scenario.mocks:
        place = f"/mocks/{name.replace('~', '~0')}"
        if name not in tools:
            yield _unknown(name, place, tools)
            continue
        for problem in kinds.check_binding("mock", mocked(tools[name], scenario)):
            yield replace(problem, pointer=place + problem.pointer.removeprefix("/mock"))


def _modes(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterator[Problem]:
    for glob, mode in scenario.modes.items():
        pointer = f"/modes/{glob.replace('~', '~0').replace('/', '~1')}"
        fitting = [tool for tool in tools.values() if fnmatchcase(tool.name, glob)]
        if not fitting:
            yield _unknown(glob, pointer, tools)
        elif not any(mode in mocked(tool, scenario).bindings for tool in fitting):
            message = f"no tool that fits `{glob}` has a `{mode}:` block"
            there = sorted({mode for tool in fitting for mode in tool.bindings})
            hint = did_you_mean(mode, there) or f"their modes are: {', '.join(there) or 'none'}"
            yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)


def _verify(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterator[Problem]:
    for made in scenario.verify.calls:
        if not any(fnmatchcase(name, made.tool) for name in tools):
            yield _unknown(made.tool, f"{made.pointer}/tool", tools)
    kind, names = scenario.verify.order or ("any", ())
    for index, name in enumerate(names):
        if name not in tools:
            yield _unknown(name, f"/verify/order/{kind}/{index}", tools)
