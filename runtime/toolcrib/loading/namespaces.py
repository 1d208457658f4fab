"""Names within a namespace: the tools of a source that has one are called `ns__tool`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase

from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.loading.scenarios.steps import AnyStep, Parallel, Step

SEPARATOR = "__"
"""Stands between a namespace and the name of a tool; providers of models accept it in names."""


def full_name(namespace: str, name: str) -> str:
    """How a tool of a namespace is called by everybody else."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def in_namespace(scenario: Scenario, tools: Collection[str]) -> Scenario:
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
        if isinstance(step, Parallel):
            return replace(step, calls=tuple(replace(call, call=full(call.call)) for call in step.calls))
        return replace(step, call=full(step.call)) if isinstance(step, Step) else step

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


def short_name(namespace: str, name: str) -> str:
    """What a tool of a namespace is called there; any other by the name that it has."""
    return name.removeprefix(f"{namespace}{SEPARATOR}") if namespace else name
