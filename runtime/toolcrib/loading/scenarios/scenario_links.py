"""Check the references of scenarios to tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Outcome
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Kinds
from toolcrib.loading.scenarios.model import CallStep, ParallelStep, RepeatStep, Scenario
from toolcrib.loading.scenarios.scenario import combinations
from toolcrib.loading.scenarios.scenario_state import check_state_names, with_inherited_state, with_mock
from toolcrib.registry.names import full_name

Tools = Mapping[str, Descriptor]
Refused = Mapping[str, Problem]


def check_links(
    scenario: Scenario, tools: Tools, kinds: Kinds, refused: Refused, unread: Sequence[str] = ()
) -> list[Problem]:
    """The problems of a scenario with regard to the tools: unknown names, modes without a block, invalid mocks.

    Args:
        scenario: The scenario.
        tools: The tools that are loaded together with it.
        kinds: The schemas and checks of the installed modes.
        refused: Name of a tool whose document was rejected -> its first problem.
        unread: Places in unreadable files, which may contain any tool.

    Returns:
        The problems with their positions; a rejected tool is reported once.
    """
    inherited: list[Problem] = []
    scenario = with_inherited_state(scenario, tools, inherited)
    found = [
        *inherited,
        *_refused(scenario, tools, refused),
        *_steps(scenario, tools, refused),
        *_mocks(scenario, tools, refused, kinds),
        *_modes(scenario, tools, refused),
        *_verify(scenario, tools, refused),
        *check_state_names(scenario, tools),
        *_faults(scenario, tools, refused),
        *_agent(scenario, tools, refused),
    ]
    return [locate_problem(_weighed(_doubted(problem, unread), scenario), scenario) for problem in found]


def _weighed(problem: Problem, scenario: Scenario) -> Problem:
    # With `unknown_tools: warning`, a test may intentionally let the model call tools that do not exist.
    if scenario.agent is None or scenario.agent.unknown_tools == "error":
        return problem
    # `without_idle` removes a choice that is not possible; other faults of a choice remain.
    impossible = scenario.agent.policy.tool_choice == "required" or problem.code in {
        "unknown_tool",
        "wrong_value",
    }
    if problem.pointer == "/agent/policy/tool_choice" and impossible:
        return problem._replace(
            severity="warning", hint=f"{problem.hint}; until then the model chooses freely"
        )
    if problem.code not in _NAMELESS:
        return problem
    hint = f"{problem.hint}; until then the mock is unused, and a call ends with `not_found`"
    return problem._replace(severity="warning", hint=hint if problem.code == "unknown_tool" else problem.hint)


_NAMELESS = frozenset(("unknown_tool", "unknown_argument", "binding_missing"))
"""Codes of problems with unknown names."""


def _doubted(problem: Problem, unread: Sequence[str]) -> Problem:
    # An unknown tool may be in an unreadable file: without the hint, users look for a typo in the scenario.
    if problem.code != "unknown_tool" or not unread:
        return problem
    more = f" and {len(unread) - _SHOWN} more" if len(unread) > _SHOWN else ""
    told = f"{', '.join(unread[:_SHOWN])}{more} could not be read and may contain it"
    return problem._replace(hint=f"{problem.hint}; {told}", cause=unread[0])


_SHOWN = 3
"""Maximum number of files that a hint lists."""


def locate_problem(problem: Problem, scenario: Scenario) -> Problem:
    """Add file and line to a problem with a pointer into a scenario."""
    if problem.source:
        return problem
    if scenario.origin.is_composed:
        # Deferred: few scenarios combine several files.
        from toolcrib.loading.cache.document_codec import document_of_origin  # noqa: PLC0415

        return document_of_origin(scenario.origin).place(problem)
    line, column = scenario.origin.locate(problem.pointer)
    return problem.at(scenario.origin.source, line or scenario.origin.line, column or 1)


def _refused(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    for name, pointer in tools_of(scenario).items():
        if name in refused and name not in tools:
            problem = refused[name]
            message = f"the tool `{name}` was rejected: {problem.code} in {problem.source}:{problem.line}"
            what = "the file of its pack" if problem.code == "refused_pack" else "its descriptor"
            hint = f"fix {what} first"
            cause = f"{problem.source}:{problem.line}"
            yield Problem(code="refused_tool", message=message, pointer=pointer, hint=hint, cause=cause)


def tools_of(scenario: Scenario) -> dict[str, str]:
    """The tools that a scenario names -> pointer of the first use."""
    kind, order = scenario.verify.order or ("any", ())
    places = [
        *((step.call, f"{step.pointer}/call") for step in scenario.written_calls),
        *((name, f"/mocks/{pointer_step(name)}") for name in scenario.mocks),
        *((made.tool, f"{made.pointer}/tool") for made in scenario.verify.calls),
        *_agents(scenario),
        *((name, f"/verify/order/{kind}/{index}") for index, name in enumerate(order)),
    ]
    # Of equal keys a dict keeps the last one, so reversed it keeps the first use.
    return dict(reversed(places))


def _agents(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.agent is not None:
        yield from ((call.tool, f"{call.pointer}/call") for call in scenario.agent.scripted_calls)
        yield from scenario.agent.fulfilled


def _unknown(name: str, pointer: str, tools: Tools) -> Problem:
    hint = did_you_mean(name, tools) or "load the tool together with the scenario"
    return Problem(code="unknown_tool", message=f"unknown tool `{name}`", pointer=pointer, hint=hint)


def _steps(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    for step in scenario.written_calls:
        known = step.call in tools or step.call in refused
        if not known and Outcome.NOT_FOUND not in step.expect.outcomes:
            yield _unknown(step.call, f"{step.pointer}/call", tools)


def _mocks(scenario: Scenario, tools: Tools, refused: Refused, kinds: Kinds) -> Iterator[Problem]:
    for name in scenario.mocks:
        place = f"/mocks/{pointer_step(name)}"
        if name in tools:
            for problem in kinds.check_binding("mock", with_mock(tools[name], scenario)):
                yield problem._replace(pointer=place + problem.pointer.removeprefix("/mock"))
        elif name not in refused:
            yield _unknown(name, place, tools)


def _modes(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    for glob, mode in scenario.modes.items():
        pointer = f"/modes/{pointer_step(glob)}"
        fitting = [tool for tool in tools.values() if fnmatchcase(tool.name, glob)]
        if not fitting and not _fits_any(glob, refused):
            yield _unknown(glob, pointer, tools)
        elif fitting and not any(mode in with_mock(tool, scenario).bindings for tool in fitting):
            message = f"no tool that matches `{glob}` has a `{mode}:` block"
            there = sorted({mode for tool in fitting for mode in tool.bindings})
            hint = did_you_mean(mode, there) or f"their modes are: {', '.join(there) or 'none'}"
            yield Problem(code="binding_missing", message=message, pointer=pointer, hint=hint)


def _verify(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    for made in scenario.verify.calls:
        if not _fits_any(made.tool, tools) and not _fits_any(made.tool, refused):
            yield _unknown(made.tool, f"{made.pointer}/tool", tools)
    kind, names = scenario.verify.order or ("any", ())
    for index, name in enumerate(names):
        if name not in tools and name not in refused:
            yield _unknown(name, f"/verify/order/{kind}/{index}", tools)


def _faults(scenario: Scenario, tools: Tools, refused: Refused) -> list[Problem]:
    if not scenario.faults:
        return []
    # Deferred: most scenarios inject no faults.
    from toolcrib.loading.scenarios.faults import check_faults  # noqa: PLC0415

    runs: list[Mapping[str, JSON]] = [
        {"matrix": values, "run": number}
        for _label, values in combinations(scenario.matrix)
        for number in range(1, scenario.repeat + 1)
    ]
    return check_faults(scenario.faults, tools, refused, runs, lambda tool: with_mock(tool, scenario))


def _agent(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    if scenario.agent is not None:
        # Deferred: most scenarios have no agent.
        from toolcrib.loading.scenarios.agent_checks import check_agent  # noqa: PLC0415

        yield from check_agent(scenario, tools, refused)


def _fits_any(glob: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names)


def with_namespace(scenario: Scenario, tools: Collection[str]) -> Scenario:
    """Replace short tool names in a scenario by the full names of its namespace.

    Args:
        scenario: The scenario, as parsed.
        tools: The names of all tools. A name or glob that matches no tool of the namespace stays unchanged.
    """
    namespace = scenario.origin.namespace
    if not namespace:
        return scenario

    def full(name: str) -> str:
        # A scenario of a pack may also name tools outside of it, so only names that exist in the namespace
        # change.
        long = full_name(namespace, name)
        return long if long in tools or any(fnmatchcase(tool, long) for tool in tools) else name

    def called(step: Any) -> Any:
        if isinstance(step, RepeatStep):
            return replace(step, steps=tuple(called(each) for each in step.steps))
        if isinstance(step, ParallelStep):
            return replace(step, calls=tuple(replace(call, call=full(call.call)) for call in step.calls))
        return replace(step, call=full(step.call)) if isinstance(step, CallStep) else step

    verify = scenario.verify
    order = verify.order and (verify.order[0], tuple(full(name) for name in verify.order[1]))
    calls = tuple(replace(made, tool=full(made.tool)) for made in verify.calls)
    return replace(
        scenario,
        steps=tuple(called(step) for step in scenario.steps),
        modes={full(glob): mode for glob, mode in scenario.modes.items()},
        mocks={full(name): block for name, block in scenario.mocks.items()},
        faults=tuple(fault._replace(tool=full(fault.tool)) for fault in scenario.faults),
        verify=replace(verify, calls=calls, order=order),
        agent=scenario.agent and scenario.agent.named(full),
    )
