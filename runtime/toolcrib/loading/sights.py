"""What a scenario can see of what the mocks of its tools keep: the collections and machines by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from toolcrib.errors import Problem, did_you_mean
from toolcrib.loading.scenarios import Scenario, mocked
from toolcrib.matching import impossible
from toolcrib.model import JSON, Collection, Descriptor, Fixture, Machine
from toolcrib.pointers import pointer_step
from toolcrib.text import compact

T = TypeVar("T", Collection, Machine)


class Sight(NamedTuple):
    """What a scenario calls `store` and `state`.

    Attributes:
        fixture: Its own, and that of the tools which it calls or mocks.
        unclear: Names that mean different things in the packs of these tools; they are not in `fixture`.
    """

    fixture: Fixture
    unclear: frozenset[str] = frozenset()


def in_sight(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Sight:
    """What a scenario can see.

    Args:
        scenario: The scenario.
        tools: The tools as it sees them.
    """
    fixtures = [scenario.fixture, *(tools[name].fixture for name in _named(scenario) if name in tools)]
    collections, unclear = _merged(fixture.collections for fixture in fixtures)
    machines, others = _merged(fixture.machines for fixture in fixtures)
    return Sight(Fixture(collections, machines), unclear | others)


def _named(scenario: Scenario) -> dict[str, None]:
    return dict.fromkeys([*(step.call for step in scenario.calls), *scenario.mocks])


def _merged(named: Iterable[Mapping[str, T]]) -> tuple[dict[str, T], frozenset[str]]:
    found: dict[str, T] = {}
    unclear = set()
    for each in named:
        for name, kept in each.items():
            if found.setdefault(name, kept).id != kept.id:
                unclear.add(name)
    return {name: kept for name, kept in found.items() if name not in unclear}, frozenset(unclear)


def misplaced(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterator[Problem]:
    """What `verify` wants of collections and machines that there are not, or of states that a machine never has."""
    wanted = {part: matcher.expected() for part, matcher in scenario.verify.kept.items()}
    if not wanted:
        return
    seen = {name: mocked(tools[name], scenario) for name in _named(scenario) if name in tools}
    (collections, machines), unclear = in_sight(scenario, seen)
    for name, pointer in _names_in(wanted.get("store"), "/verify/store"):
        if name not in collections:
            yield (
                _unclear(name, pointer, "store")
                if name in unclear
                else Problem(
                    code="unknown_collection",
                    message=f"there is no collection `{name}`; {_those(collections)}",
                    pointer=pointer,
                    hint=did_you_mean(name, collections) or _DECLARE.format("store"),
                )
            )
    for name, pointer in _names_in(wanted.get("state"), "/verify/state"):
        if name not in machines:
            yield (
                _unclear(name, pointer, "state")
                if name in unclear
                else Problem(
                    code="unknown_machine",
                    message=f"there is no named state `{name}`; {_those(machines)}",
                    pointer=pointer,
                    hint=did_you_mean(name, machines) or _DECLARE.format("state"),
                )
            )
        else:
            yield from _never(machines[name], wanted["state"], pointer)


def _names_in(pattern: JSON, pointer: str) -> Iterator[tuple[str, str]]:
    """The names at the top of a matcher, and where each stands; those under operators are not looked for."""
    for name in pattern if isinstance(pattern, dict) else ():
        if not name.startswith("$"):
            yield name, f"{pointer}/{pointer_step(name)}"


_DECLARE = "write it under `{}` of the scenario, or of the tools' pack"


def _those(there: Iterable[str]) -> str:
    return f"those of the tools that this scenario calls are: {', '.join(f'`{name}`' for name in there) or 'none'}"


def _unclear(name: str, pointer: str, key: str) -> Problem:
    message = f"several packs whose tools this scenario calls have a `{name}` of their own under `{key}`"
    hint = f"declare it under `{key}` of the scenario, then it is one for all of them"
    return Problem(code="unclear_name", message=message, pointer=pointer, hint=hint)


def _never(machine: Machine, pattern: JSON, pointer: str) -> Iterator[Problem]:
    wanted = pattern[machine.name] if isinstance(pattern, dict) else pattern
    if machine.states and any(True for _fault in impossible(wanted, {"enum": [*machine.states]})):
        message = f"`{machine.name}` is never {compact(wanted)}; its states are {', '.join(machine.states)}"
        hint = did_you_mean(wanted, machine.states) if isinstance(wanted, str) else ""
        yield Problem(code="never_matches", message=message, pointer=pointer, hint=hint)
