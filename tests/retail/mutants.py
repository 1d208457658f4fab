"""The tools of the retail pack with one rule left out, with two neighbouring rules in the other order, or with one
sign of an expression changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import pytest

from retail.playing import PACK
from retail.reading import COLLECTIONS, Store
from toolcrib import Executors, Runtime
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.sources import LoadedDocuments, parse_files

KINDS = Executors({"mock": MockExecutor})

SIGNS = {
    r" < ": " <= ",
    r" > ": " >= ",
    r" \| sort(\(.*?\))?": "",
    r" \| abs": "",
    r" \| round\(2\)": "",
    r" \| lower": "",
    r"\[0\]": "[-1]",
}
"""A part of an expression -> what stands there instead."""

Place = tuple[str | int, ...]


class Mutant(NamedTuple):
    """One change of one tool.

    Attributes:
        tool: Name of the tool.
        name: What was done, for people; unique.
        document: The tool's document after it.
    """

    tool: str
    name: str
    document: dict[str, Any]


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Tool -> its document, as its file says, but for its schemas.

    The reasons of a cancellation are free texts, or else nothing would come to the guard `Error: invalid reason`;
    and no output schema notices what the judges are to notice.
    """
    found = {}
    for path in sorted(PACK.rglob("*.tool.yaml")):
        read, problems = parse_documents(path.name, path.read_text(encoding="utf-8"))
        assert not problems, problems
        for document in read:
            value: Any = document.value
            found[value["name"]] = {key: inner for key, inner in value.items() if key != "output_schema"}
    found["cancel_pending_order"]["input_schema"]["properties"]["reason"].pop("enum")
    return found


def runtime_over(store: Store, *changed: dict[str, Any], alone: bool = False) -> Runtime:
    """The pack over a store in memory, some of its documents changed.

    Args:
        store: The rows that every session begins with.
        changed: The changed documents.
        alone: Leave the other tools out.
    """
    tools = {document["name"]: document for document in changed}
    if not alone:
        tools = {**documents(), **tools}
    loaded = _loaded(store, tools)
    while unused := [problem.pointer for problem in loaded.problems if problem.code == "unused_name"]:
        (document,) = changed  # the pack itself has no such name: only the missing rule has read it
        changed = (_without_all(document, unused),)
        loaded = _loaded(store, {**tools, document["name"]: changed[0]})
    assert [str(problem) for problem in loaded.problems if problem.severity == "error"] == []
    return loaded_runtime(loaded, executors=KINDS)


def _loaded(store: Store, tools: Mapping[str, Mapping[str, Any]]) -> LoadedDocuments:
    files = {f"store/{name}.json": json.dumps(store[name]) for name in COLLECTIONS}
    files |= {f"tools/{name}.tool.yaml": json.dumps(document) for name, document in tools.items()}
    files["pack.yaml"] = (PACK / "pack.yaml").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TAU_RETAIL_DATA", raising=False)
        return parse_files(files, KINDS)


def _without_all(document: dict[str, Any], pointers: Iterable[str]) -> dict[str, Any]:
    for pointer in pointers:
        document = _without(document, _place_of(document, pointer))
    return document


def _place_of(value: Any, pointer: str) -> Place:
    place: Place = ()
    for name in pointer.split("/")[1:]:
        step = int(name) if isinstance(value, list) else name
        place, value = (*place, step), value[step]
    return place


def mutants() -> list[Mutant]:
    """All of them, in the order of the tools."""
    return [mutant for tool, document in documents().items() for mutant in _of(tool, document)]


def _of(tool: str, document: Mapping[str, Any]) -> Iterator[Mutant]:
    block = document["mock"]
    for place in _rules(block, ()):
        yield Mutant(tool, f"{tool}: without {_said(block, place)}", _without(document, ("mock", *place)))
    for place in _lists(block, ()):
        guards = _at(block, place)
        for number in range(len(guards) - 1):
            pair = f"{_said(block, (*place, number))} after {_said(block, (*place, number + 1))}"
            yield Mutant(tool, f"{tool}: {pair}", _swapped(document, ("mock", *place), number))
    for place, text in _texts(block, ()):
        for sign, other in SIGNS.items():
            if found := re.search(sign, text):
                changed = deepcopy(dict(document))
                _at(changed["mock"], place[:-1])[place[-1]] = re.sub(sign, other, text, count=1)
                where = "/".join(str(step) for step in place)
                said = f"with `{other.strip()}` for" if other else "without"
                yield Mutant(tool, f"{tool}: {where} {said} `{found[0].strip()}`", changed)


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Every text with an expression."""
    if isinstance(value, str) and "{{" in value:
        yield place, value
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(inner, (*place, key))


def _rules(value: Any, place: Place) -> Iterator[Place]:
    """Where a guard, an effect, a part of an effect, or what answers for an absent row stands."""
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        here = (*place, key)
        if key in {"missing", "round"} or (key == "if" and "error" not in value):
            yield here
        elif key in {"guard", "effects", "do"}:
            for number, rule in enumerate(inner):
                yield (*here, number)
                yield from _rules(rule, (*here, number))
        elif key == "set" and isinstance(inner, dict) and len(inner) > 1:
            yield from ((*here, name) for name in inner)
        elif key in {"rows", "crud"} or place[-1:] == ("rows",):
            yield from _rules(inner, here)


def _lists(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict) and "guard" in value:
        yield (*place, "guard")


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _said(block: Mapping[str, Any], place: Place) -> str:
    """A rule, for people."""
    rule = _at(block, place)
    if isinstance(rule, dict) and "error" in rule:
        return f"guard `{rule['error']}`"
    path = "/".join(str(step) for step in place)
    said = " ".join(f"{key} {value}" for key, value in rule.items()) if isinstance(rule, dict) else str(rule)
    return f"{path} `{said[:70]}`"


def _without(document: Mapping[str, Any], place: Place) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(document))
    holder = _at(changed, place[:-1])
    del holder[place[-1]]
    if not holder:  # an empty list of guards or effects is none
        del _at(changed, place[:-2])[place[-2]]
    return changed


def _swapped(document: Mapping[str, Any], place: Place, number: int) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(document))
    guards = _at(changed, place)
    guards[number], guards[number + 1] = guards[number + 1], guards[number]
    return changed
