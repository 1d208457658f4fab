"""State of scenarios: the collections, machines, faults and mocks that a scenario sees and changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, NO_FIXTURE, Collection, Descriptor, Fixture, Machine, Schema
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.text import canonical, compact
from toolcrib.expressions.matchers import find_impossible
from toolcrib.loading.scenarios.model import Scenario, fixtures_of, tool_names, visible_state
from toolcrib.loading.scenarios.scenario import OWN
from toolcrib.loading.stores import fixture_with, parse_store
from toolcrib.schema.validation import check_schema


def with_inherited_state(
    scenario: Scenario, tools: Mapping[str, Descriptor], problems: list[Problem]
) -> Scenario:
    """Complete the collections and machines of a scenario from those of the same name in its tools' packs.

    A collection inherits `key` and `schema`, and a machine with only an initial state inherits the list of states,
    from the packs of the tools that the scenario calls or mocks.

    Args:
        scenario: The scenario.
        tools: The tools without the scenario's changes.
        problems: Receives contradictions between packs.
    """
    collections, machines = scenario.fixture.collections, scenario.fixture.machines
    fixtures = fixtures_of(scenario, tools) if collections or machines else []
    below = {
        name: [each.collections[name] for each in fixtures if name in each.collections]
        for name in collections
    }
    settled = [_states_of(own, fixtures, problems) for own in machines.values()]
    bases = {
        name: base
        for name, own in collections.items()
        if name in scenario.store
        and (base := _base_of(own, scenario.store[name], below[name], problems)) is not None
    }
    # Read again, because the inherited key and schema decide how rows are keyed and checked.
    again = {name: scenario.store[name] for name in bases}
    read = parse_store(again, "/store", scenario.origin, OWN, problems, below=bases) if again else {}
    fixture = Fixture({**collections, **read}, {each.name: each for each in settled})
    return scenario if fixture == scenario.fixture else replace(scenario, fixture=fixture)


def _base_of(
    own: Collection, entry: JSON, below: Sequence[Collection], problems: list[Problem]
) -> Collection | None:
    """The inherited `key` and `schema` of a collection; None if there are none."""
    base = Collection(own.name, own.id)
    for part in ("key", "schema"):
        if isinstance(entry, dict) and part in entry:
            continue
        there = [getattr(each, part) for each in below]
        if any(canonical(other) != canonical(there[0]) for other in there):
            message = (
                f"`{own.name}` has different values of `{part}` in the packs whose tools this scenario calls"
            )
            hint = f"set its `{part}` here" + ("; `true` accepts any row" * (part == "schema"))
            problems.append(Problem(code="unclear_name", message=message, pointer=own.pointer, hint=hint))
        # An invalid schema is reported in its pack; inheriting it would report it in every scenario as well.
        elif there and there[0] and not (part == "schema" and _is_wrong(there[0])):
            base = base._replace(**{part: there[0]})
    return base if (base.key or base.schema) and not own.fault else None


def _is_wrong(schema: Schema) -> bool:
    return any(problem.severity == "error" for problem in check_schema(schema))


def _states_of(own: Machine, fixtures: Sequence[Fixture], problems: list[Problem]) -> Machine:
    there = {fixture.machines[own.name].states for fixture in fixtures if own.name in fixture.machines}
    if own.states or not there:
        return own
    pointer = f"/state/{pointer_step(own.name)}"
    if len(there) > 1:
        message = f"`{own.name}` has different states in the packs whose tools this scenario calls"
        hint = "list its states here, the initial one first"
        problems.append(Problem(code="unclear_name", message=message, pointer=pointer, hint=hint))
        return own
    (states,) = there
    if states and own.start and own.start not in states:
        listed = ", ".join(f"`{each}`" for each in states)
        message = f"`{own.name}` has no state `{own.start}`; it has {listed}"
        hint = (
            did_you_mean(own.start, states)
            or "to redefine the states, list all of them, the initial one first"
        )
        problems.append(Problem(code="unknown_state", message=message, pointer=pointer, hint=hint))
        return own._replace(start=states[0], states=states)
    return own._replace(states=states)


def check_state_names(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterator[Problem]:
    """The problems of `verify`: unknown collections and machines, and states that a machine never has."""
    wanted = {part: matcher.expected() for part, matcher in scenario.verify.kept.items()}
    if not wanted:
        return
    seen = {name: with_mock(tools[name], scenario) for name in tool_names(scenario, tools) if name in tools}
    fixture, unclear = visible_state(scenario, seen)
    collections, machines = fixture.collections, fixture.machines
    for part in ("store", "changed"):
        for name, pointer in _names_in(wanted.get(part), f"/verify/{part}"):
            if name not in collections:
                message = f"unknown collection `{name}`; {_those(collections)}"
                absent = Problem(code="unknown_collection", message=message, pointer=pointer)
                yield (
                    _unclear(name, pointer, "store")
                    if name in unclear
                    else _declare(absent, name, collections, "store")
                )
            else:
                yield from _never_kept(collections[name], wanted[part], pointer, deleted=part == "changed")
    for name, pointer in _names_in(wanted.get("state"), "/verify/state"):
        if name not in machines:
            message = f"unknown named state `{name}`; {_those(machines)}"
            absent = Problem(code="unknown_machine", message=message, pointer=pointer)
            yield (
                _unclear(name, pointer, "state")
                if name in unclear
                else _declare(absent, name, machines, "state")
            )
        else:
            yield from _never(machines[name], wanted["state"], pointer)


def _names_in(pattern: JSON, pointer: str) -> Iterator[tuple[str, str]]:
    """The names at the top of a matcher, with their pointers; names below operators (`$or`) are not checked."""
    for name in pattern if isinstance(pattern, dict) else ():
        if not name.startswith("$"):
            yield name, f"{pointer}/{pointer_step(name)}"


_DECLARE = "declare it under `{}` in the scenario or in the tools' pack"


def _those(there: Iterable[str]) -> str:
    return f"the tools that this scenario calls have: {', '.join(f'`{name}`' for name in there) or 'none'}"


def _declare(absent: Problem, name: str, there: Iterable[str], key: str) -> Problem:
    """Add a hint to the problem of an unknown name."""
    return absent._replace(hint=did_you_mean(name, there) or _DECLARE.format(key))


def _unclear(name: str, pointer: str, key: str) -> Problem:
    message = f"several packs whose tools this scenario calls declare their own `{name}` under `{key}`"
    hint = f"declare it under `{key}` in the scenario to share one"
    return Problem(code="unclear_name", message=message, pointer=pointer, hint=hint)


def _never_kept(collection: Collection, pattern: JSON, pointer: str, *, deleted: bool) -> Iterator[Problem]:
    """The problems of a matcher that no collection or none of its rows can match; `deleted` permits null for a row."""
    wanted = pattern[collection.name] if isinstance(pattern, dict) else pattern
    by_keys = [*_names_in(wanted, pointer)]
    if not by_keys and find_impossible(wanted, {"type": "object"}):
        message = (
            f"`{collection.name}` is a collection, an object of rows by key, so it is never {compact(wanted)}"
        )
        hint = "such as `{KEY: {FIELD: VALUE}}`, or `{$len: 2}` for how many rows there are"
        yield Problem(code="never_matches", message=message, pointer=pointer, hint=hint)
        return
    schema = collection.schema if isinstance(collection.schema, dict) else {}
    # A schema without `type` would allow a row to be a number, but rows are always objects.
    of_rows = schema if "$ref" in schema else {"type": "object", **schema}
    rows = wanted if isinstance(wanted, dict) else {}
    for key, place in by_keys:
        if deleted and rows[key] is None:
            continue
        for fault in find_impossible(rows[key], of_rows):
            if fault.severity == "error":
                said = fault.message.replace(
                    "the input schema", f"the schema of the rows of `{collection.name}`"
                )
                if fault.code == "unknown_argument":
                    said = f"rows of `{collection.name}` never have `{keys_of(fault.pointer)[-1]}`"
                yield fault._replace(code="never_matches", message=said, pointer=place + fault.pointer)


def _never(machine: Machine, pattern: JSON, pointer: str) -> Iterator[Problem]:
    wanted = pattern[machine.name] if isinstance(pattern, dict) else pattern
    if machine.states and any(True for _fault in find_impossible(wanted, {"enum": [*machine.states]})):
        message = f"`{machine.name}` is never {compact(wanted)}; its states are {', '.join(machine.states)}"
        hint = did_you_mean(wanted, machine.states) if isinstance(wanted, str) else ""
        yield Problem(code="never_matches", message=message, pointer=pointer, hint=hint)


def with_scenario_state(tool: Descriptor, scenario: Scenario) -> Descriptor:
    """The tool with the collections, states and faults of a scenario, which replace those of its pack by name."""
    if scenario.fixture is not NO_FIXTURE:
        fixture = fixture_with(tool.fixture, scenario.fixture.collections, scenario.fixture.machines)
        tool = tool._replace(fixture=fixture)
    if scenario.faults:
        # Deferred: most scenarios inject no faults.
        from toolcrib.loading.scenarios.faults import faults_of  # noqa: PLC0415

        tool = tool._replace(faults=faults_of(tool, scenario.faults))
    return tool


def with_mock(tool: Descriptor, scenario: Scenario) -> Descriptor:
    """The tool as a scenario sees it: with the scenario's state, faults and mock."""
    tool = with_scenario_state(tool, scenario)
    if tool.name not in scenario.mocks:
        return tool
    place = f"/mocks/{pointer_step(tool.name)}"
    locate = scenario.origin.locate
    origin = scenario.origin._replace(locate=lambda pointer: locate(place + pointer.removeprefix("/mock")))
    # A tool that the client answers with `grant` stays in its mode; the mock only supplies the answer.
    granted = scenario.agent is not None and scenario.agent.grants(tool.name)
    return tool._replace(
        mode=tool.mode if granted else "mock",
        bindings={**tool.bindings, "mock": scenario.mocks[tool.name]},
        origin=origin,
    )
