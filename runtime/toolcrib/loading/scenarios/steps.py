"""The steps of a scenario, compiled: calls, calls that begin together, and time that passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions import Rendering, compile_value, is_expression
from toolcrib.loading.scenarios.expectations import ANSWERED, Expectation, Names, parse_expectation

NAMES = ("now", "seed", "run", "store", "state")
"""What expressions of a scenario may read besides the results of earlier steps and its `matrix`."""

RESERVED = (*NAMES, "matrix")
"""Names that no step may give to its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call of a scenario.

    Attributes:
        call: Name of the tool.
        args: The arguments; may read the results of earlier steps.
        number: Of the scenario's steps, from 1.
        branch: Its number among the calls of a parallel step, from 1; 0 for a step of its own.
        within: What the parallel step shows that it belongs to.
        name: What the step shows.
        save_as: Name under which later steps find what came of it; empty for none.
        expect: What it must answer.
        pointer: Where it stands in the document.
        written: The arguments as the document has them.
    """

    call: str
    args: Rendering
    number: int = 0
    branch: int = 0
    within: str = ""
    name: str = ""
    save_as: str = ""
    expect: Expectation = ANSWERED
    pointer: str = ""
    written: JSON = None

    @property
    def label(self) -> str:
        """`2`, or `2.1` for the first call of a parallel step."""
        return f"{self.number}.{self.branch}" if self.branch else str(self.number)

    @property
    def title(self) -> str:
        """`step 2`, for reports."""
        return f"step {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """Calls that begin at the same moment.

    Attributes:
        calls: The calls, in the order in which they begin.
        number: Of the scenario's steps, from 1.
        name: What the step shows.
        pointer: Where it stands in the document.
    """

    calls: tuple[CallStep, ...]
    number: int = 0
    name: str = ""
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceStep:
    """Time that passes between calls.

    Attributes:
        seconds: How much, on virtual time.
        number: Of the scenario's steps, from 1.
        name: What the step shows.
        pointer: Where it stands in the document.
    """

    seconds: float
    number: int = 0
    name: str = ""
    pointer: str = ""


AnyStep: TypeAlias = CallStep | ParallelStep | AdvanceStep
"""Whatever may stand under `steps`."""


class StepReader:
    """Reads steps in their order; what one saves, those after it may read.

    Attributes:
        names: What expressions may read, after all steps that were read.
    """

    def __init__(self, names: Names, problems: list[Problem], *, real: bool = False) -> None:
        self._run_names: Names = {"run": None, **names}
        self._problems = problems
        self._real = real
        self.names: Names = {**dict.fromkeys(NAMES), **self._run_names}

    def steps(self, entries: Sequence[Mapping[str, Any]]) -> Iterator[AnyStep]:
        """The steps of a scenario."""
        for index, entry in enumerate(entries):
            pointer = f"/steps/{index}"
            if "parallel" in entry:
                yield self._parallel(entry, pointer, index + 1)
            elif "advance" in entry:
                yield self._advance(entry, pointer, index + 1)
            else:
                yield self._call(entry, pointer, index + 1)
                self._save(entry, pointer)

    def _parallel(self, entry: Mapping[str, Any], pointer: str, number: int) -> ParallelStep:
        inner = [(f"{pointer}/parallel/{place}", call) for place, call in enumerate(entry["parallel"])]
        siblings = {call["as"] for _pointer, call in inner if "as" in call} - self.names.keys()
        for place, call in inner:
            self._problems += _reads(call, siblings, {*self.names, *siblings}, place)
        # A name of a sibling is told above, better than as one that is not known.
        outer, self.names = self.names, {**self.names, **dict.fromkeys(siblings)}
        name = entry.get("name", "")
        calls = tuple(
            replace(self._call(call, place, number), branch=branch, within=name)
            for branch, (place, call) in enumerate(inner, start=1)
        )
        self.names = outer
        for place, call in inner:
            self._save(call, place)
        return ParallelStep(calls=calls, number=number, name=name, pointer=pointer)

    def _advance(self, entry: Mapping[str, Any], pointer: str, number: int) -> AdvanceStep:
        if self._real:
            message = "the clock of this scenario is real, and nobody can move that on"
            hint = "leave `advance` out, or `clock.mode: real`"
            place = f"{pointer}/advance"
            self._problems.append(Problem(code="contradiction", message=message, pointer=place, hint=hint))
        seconds = parse_duration(entry["advance"])
        return AdvanceStep(seconds=seconds, number=number, name=entry.get("name", ""), pointer=pointer)

    def _call(self, entry: Mapping[str, Any], pointer: str, number: int) -> CallStep:
        return CallStep(
            call=entry["call"],
            args=compile_value(entry.get("args", {}), self.names, self._problems, f"{pointer}/args"),
            number=number,
            name=entry.get("name", ""),
            save_as=entry.get("as", ""),
            expect=parse_expectation(
                entry.get("expect", {}), f"{pointer}/expect", self.names, self._run_names, self._problems
            ),
            pointer=pointer,
            written=entry.get("args", {}),
        )

    def _save(self, entry: Mapping[str, Any], pointer: str) -> None:
        name = entry.get("as")
        if name is None:
            return
        if name in self.names or name in RESERVED:
            owner = "something else" if name in RESERVED else "an earlier step"
            message = f"`{name}` is already the name of {owner}"
            problem = Problem(
                code="duplicate_name", message=message, pointer=f"{pointer}/as", hint="take another name"
            )
            self._problems.append(problem)
        else:
            self.names = {**self.names, name: None}


def _reads(
    entry: Mapping[str, Any], siblings: AbstractSet[str], names: AbstractSet[str], pointer: str
) -> Iterator[Problem]:
    """A problem for every text of a parallel call that reads what a sibling saves."""
    parts = {key: value for key, value in entry.items() if key in {"args", "expect"}}
    for place, text in _texts(parts, pointer) if siblings else ():
        for name in sorted(compile_value(text, names, []).names & siblings):
            message = f"`{name}` is saved by a call of the same `parallel`: they begin together, so it is not there yet"
            hint = "make the call that reads it a step after this one"
            yield Problem(code="reads_sibling", message=message, pointer=place, hint=hint)


def _texts(value: JSON, pointer: str) -> Iterator[tuple[str, str]]:
    """The texts with expressions, and where they stand."""
    if isinstance(value, str) and is_expression(value):
        yield pointer, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, f"{pointer}/{pointer_step(key)}")
