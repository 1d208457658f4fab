"""What scenarios say of tools, checked against the tools that are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Outcome
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Kinds
from toolcrib.loading.scenarios.model import AnyStep, CallStep, ParallelStep, Scenario
from toolcrib.loading.scenarios.scenario import combinations
from toolcrib.loading.scenarios.scenario_state import check_state_names, with_inherited_state, with_mock
from toolcrib.registry.names import full_name

Tools = Mapping[str, Descriptor]
Refused = Mapping[str, Problem]


def check_links(
    scenario: Scenario, tools: Tools, kinds: Kinds, refused: Refused, unread: Sequence[str] = ()
) -> list[Problem]:
    """Everything in a scenario that does not fit the tools: unknown names, modes without a block, wrong mocks.

    Args:
        scenario: What to check.
        tools: The tools that are loaded together with it.
        kinds: What the installed modes say of their blocks.
        refused: Name of a tool whose document was refused -> its first problem.
        unread: Places in files of which nothing could be read, so that nobody knows which tools they hold.

    Returns:
        The problems, placed in the scenario's file; a tool that was refused is named once.
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
    """A name that is none of a tool is a warning where the agent says so."""
    if scenario.agent is None or scenario.agent.unknown_tools == "error" or problem.code not in _NAMELESS:
        return problem
    hint = f"{problem.hint}; until then the mock is unused, and a call ends with `not_found`"
    return problem._replace(severity="warning", hint=hint if problem.code == "unknown_tool" else problem.hint)


_NAMELESS = frozenset(("unknown_tool", "unknown_argument", "binding_missing"))
"""Codes that say that a name fits nothing."""


def _doubted(problem: Problem, unread: Sequence[str]) -> Problem:
    """A tool that is not there may stand in a file that could not be read."""
    if problem.code != "unknown_tool" or not unread:
        return problem
    more = f" and {len(unread) - _SHOWN} more" if len(unread) > _SHOWN else ""
    told = f"{', '.join(unread[:_SHOWN])}{more} could not be read and may contain it"
    return problem._replace(hint=f"{problem.hint}; {told}")


_SHOWN = 3
"""Files that a hint names."""


def locate_problem(problem: Problem, scenario: Scenario) -> Problem:
    """A problem at a pointer into a scenario, with its file and line."""
    if problem.source:
        return problem
    if scenario.origin.is_composed:
        from toolcrib.loading.cache.document_codec import document_of_origin  # noqa: PLC0415 -- few were put together of several files

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
            yield Problem(code="refused_tool", message=message, pointer=pointer, hint=hint)


def tools_of(scenario: Scenario) -> dict[str, str]:
    """The tools that a scenario names -> where it does so first."""
    kind, order = scenario.verify.order or ("any", ())
    places = [
        *((step.call, f"{step.pointer}/call") for step in scenario.calls),
        *((name, f"/mocks/{pointer_step(name)}") for name in scenario.mocks),
        *((made.tool, f"{made.pointer}/tool") for made in scenario.verify.calls),
        *_agents(scenario),
        *((name, f"/verify/order/{kind}/{index}") for index, name in enumerate(order)),
    ]
    return dict(reversed(places))


def _agents(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.agent is not None:
        yield from ((call.tool, f"{call.pointer}/call") for call in scenario.agent.scripted_calls)
        yield from scenario.agent.fulfilled


def _unknown(name: str, pointer: str, tools: Tools) -> Problem:
    hint = did_you_mean(name, tools) or "load the tool together with the scenario"
    return Problem(code="unknown_tool", message=f"there is no tool `{name}`", pointer=pointer, hint=hint)


def _steps(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    for step in scenario.calls:
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
    from toolcrib.loading.scenarios.faults import check_faults  # noqa: PLC0415 -- in most scenarios nothing goes wrong

    runs: list[Mapping[str, JSON]] = [
        {"matrix": values, "run": number}
        for _label, values in combinations(scenario.matrix)
        for number in range(1, scenario.repeat + 1)
    ]
    return check_faults(scenario.faults, tools, refused, runs, lambda tool: with_mock(tool, scenario))


def _agent(scenario: Scenario, tools: Tools, refused: Refused) -> Iterator[Problem]:
    if scenario.agent is not None:
        from toolcrib.loading.scenarios.agent_checks import check_agent  # noqa: PLC0415 -- most scenarios have none

        yield from check_agent(scenario, tools, refused)


def _fits_any(glob: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names)


def with_namespace(scenario: Scenario, tools: Collection[str]) -> Scenario:
    """A scenario whose short names of tools are made full; it lies in a namespace.

    Args:
        scenario: As it was read.
        tools: The names of all tools. A name or glob that fits none of the namespace is left as it is.
    """
    namespace = scenario.origin.namespace
    if not namespace:
        return scenario

    def full(name: str) -> str:
        long = full_name(namespace, name)
        return long if long in tools or any(fnmatchcase(tool, long) for tool in tools) else name

    def called(step: AnyStep) -> AnyStep:
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
