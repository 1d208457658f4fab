"""From a document to a scenario: its steps, expectations and verification, compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from toolcrib.clock import START, parse_duration
from toolcrib.errors import Problem
from toolcrib.loading.documents import Document
from toolcrib.loading.shape import TOO_MANY, Shape
from toolcrib.loading.soundness import sound
from toolcrib.matching import Matcher, compile_matcher, impossible
from toolcrib.model import JSON, NOTHING, Descriptor, Origin, Outcome
from toolcrib.pointers import pointer_step
from toolcrib.protocols import Files
from toolcrib.rendering import Rendering, compile_value
from toolcrib.text import compact

NAMES = ("now", "seed")
"""What expressions of a scenario may read besides the results of earlier steps."""

YEARS = range(1000, 9000)
"""Years in which a scenario may start: time zones and virtual time stay within the calendar."""

PARTS = ("result", "error", "content", "attempts", "elapsed")
"""What an expectation may hold a matcher for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a step's call must answer.

    Attributes:
        outcome: The outcome; None for any but `ok` (an error is expected, whichever).
        parts: Matchers for `result`, `error`, `content`, `attempts`, `elapsed`, as far as given.
    """

    outcome: Outcome | None = Outcome.OK
    parts: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a scenario.

    Attributes:
        call: Name of the tool.
        args: The arguments; may read the results of earlier steps.
        name: What the step shows.
        save_as: Name under which later steps find what came of it; empty for none.
        expect: What it must answer.
        pointer: Where it stands in the document.
        written: The arguments as the document has them.
    """

    call: str
    args: Rendering
    name: str = ""
    save_as: str = ""
    expect: Expectation = Expectation()
    pointer: str = ""
    written: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Calls that must or must not have been made.

    Attributes:
        tool: Name or glob.
        args: What their arguments are; None for anything.
        times: How many there are.
        pointer: Where it stands in the document.
    """

    tool: str
    args: Matcher | None
    times: Matcher
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """What must be true when all steps are done.

    Attributes:
        calls: Calls with how many there must be; a forbidden call is one with 0.
        order: `exact`, `subsequence` or `any`, and the tools' names; None for no rule.
    """

    calls: tuple[Made, ...] = ()
    order: tuple[Literal["exact", "subsequence", "any"], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scripted run.

    Attributes:
        name: Name of the scenario.
        description: What it shows.
        tags: Words to choose it by.
        seed: Seeds every generated value.
        start: Time of day at the first step.
        modes: Tool glob -> mode, the first that fits counts.
        mocks: Tool name -> mock block that stands in for the tool's own binding.
        steps: The calls, in order.
        verify: What must be true at the end.
        origin: Where it came from.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    seed: int = 0
    start: datetime = START
    modes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    mocks: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    steps: tuple[Step, ...]
    verify: Verify = Verify()
    origin: Origin = field(default_factory=Origin)


def is_scenario(value: JSON) -> bool:
    """Whether a document means to describe a scenario."""
    return isinstance(value, dict) and "scenario" in value


def parse_scenario(
    document: Document, shape: Shape, *, files: Files | None = None, pack: str = ""
) -> tuple[Scenario | None, list[Problem]]:
    """Read a scenario.

    Returns:
        The scenario, and all problems, placed in the file. Where one of them is an error the scenario is
        refused: what is there of it is only good for being checked further. None where that is nothing.
    """
    value, problems = shape.judged(document)
    if not isinstance(value, dict) or any(problem.code == TOO_MANY for problem in problems):
        return None, [document.place(problem) for problem in problems]
    kept = sound(value, problems, shape)
    if "steps" not in kept:
        # Without the steps nobody knows what names later expressions may read.
        kept.pop("verify", None)
    scenario = _build(kept, document, problems, files, pack)
    return scenario, [document.place(problem) for problem in problems]


def _build(
    value: Mapping[str, Any], document: Document, problems: list[Problem], files: Files | None, pack: str
) -> Scenario:
    origin = Origin(
        source=document.source, line=document.line, pack=pack, files=files, locate=document.position
    )
    names = [*NAMES, *(step["as"] for step in value.get("steps", ()) if "as" in step)]
    return Scenario(
        name=value.get("scenario", "unnamed"),
        description=value.get("description", ""),
        tags=tuple(value.get("tags", ())),
        seed=value.get("seed", 0),
        start=_start(value.get("clock", {}), problems),
        modes=value.get("modes", {}),
        mocks=value.get("mocks", {}),
        steps=_steps(value.get("steps", ()), problems),
        verify=_verify(value.get("verify", {}), names, problems),
        origin=origin,
    )


def _start(clock: Mapping[str, str], problems: list[Problem]) -> datetime:
    if "start" not in clock:
        return START
    try:
        start = datetime.fromisoformat(clock["start"])
        if start.year in YEARS:
            return start
        fault = f"its year is none of {YEARS.start} to {YEARS.stop - 1}"
    except ValueError as error:
        fault = str(error)
    message = f"`{clock['start']}` is no time that a scenario can start at: {fault}"
    problems.append(Problem(code="wrong_value", message=message, pointer="/clock/start", hint=_TIME))
    return START


_TIME = "such as `2030-01-01T09:00:00Z`"


def _steps(entries: Sequence[Mapping[str, Any]], problems: list[Problem]) -> tuple[Step, ...]:
    names = list(NAMES)
    steps = []
    for index, entry in enumerate(entries):
        pointer = f"/steps/{index}"
        steps.append(
            Step(
                call=entry["call"],
                args=compile_value(entry.get("args", {}), names, problems, f"{pointer}/args"),
                name=entry.get("name", ""),
                save_as=entry.get("as", ""),
                expect=_expect(entry.get("expect", {}), f"{pointer}/expect", names, problems),
                pointer=pointer,
                written=entry.get("args", {}),
            )
        )
        if entry.get("as") in names:
            message = f"`{entry['as']}` is already the name of {'an earlier step' if entry['as'] not in NAMES else 'something else'}"
            problems.append(
                Problem(
                    code="duplicate_name", message=message, pointer=f"{pointer}/as", hint="take another name"
                )
            )
        elif "as" in entry:
            names.append(entry["as"])
    return tuple(steps)


def _expect(
    entry: Mapping[str, Any], pointer: str, names: Sequence[str], problems: list[Problem]
) -> Expectation:
    parts = {part: _matcher(part, entry[part], pointer, names, problems) for part in PARTS if part in entry}
    if "error" in entry and entry.get("outcome") == Outcome.OK.value:
        message = "a call that ends `ok` has no error"
        problems.append(
            Problem(
                code="contradiction",
                message=message,
                pointer=f"{pointer}/outcome",
                hint="leave out `outcome` or `error`",
            )
        )
    if "error" in entry and "result" in entry:
        message = "a call answers a result or an error, and both are expected"
        problems.append(
            Problem(
                code="contradiction",
                message=message,
                pointer=f"{pointer}/error",
                hint="leave one of them out",
            )
        )
    elif "result" in entry and entry.get("outcome", Outcome.OK.value) != Outcome.OK.value:
        message = f"a call that ends `{entry['outcome']}` has no result"
        problems.append(
            Problem(
                code="contradiction",
                message=message,
                pointer=f"{pointer}/result",
                hint="leave out `outcome` or `result`",
            )
        )
    if "outcome" in entry:
        return Expectation(outcome=Outcome(entry["outcome"]), parts=parts)
    return Expectation(outcome=None if "error" in entry else Outcome.OK, parts=parts)


_OF_PART: dict[str, dict[str, JSON]] = {
    "attempts": {"type": "integer", "minimum": 0},
    "elapsed": {"type": "number", "minimum": 0},
    "times": {"type": "integer", "minimum": 0},
}
"""What the parts of an expectation can be, where it is known."""

_WORDS = {
    "attempts": "`attempts` is a whole number",
    "elapsed": "`elapsed` is a number of seconds",
    "times": "`times` is a whole number",
}


def _matcher(
    part: str, pattern: JSON, pointer: str, names: Sequence[str], problems: list[Problem]
) -> Matcher:
    """The matcher of one part of an expectation, that something can fit."""
    place = f"{pointer}/{part}"
    faults: list[Problem] = []
    matcher = compile_matcher(pattern, faults, place, names=names)
    if not faults:
        found = impossible(pattern, _OF_PART.get(part, {}))
        faults = [replace(problem, pointer=place + problem.pointer) for problem in found]
        if faults and part in _WORDS:
            message = f"{_WORDS[part]} from 0 up, so it is never {compact(pattern)}"
            faults = [replace(faults[0], message=message, hint=_number_for(pattern))]
    problems += faults
    return matcher


def _number_for(pattern: JSON) -> str:
    """The way out where a duration was written for a number of seconds."""
    if isinstance(pattern, str):
        with suppress(ValueError):
            return f"write `{parse_duration(pattern):g}`"
    return "such as `2` or `{$lt: 2}`"


def _verify(entry: Mapping[str, Any], names: Sequence[str], problems: list[Problem]) -> Verify:
    required = [
        _made(made, f"/verify/calls/{index}", made.get("times", {"$gte": 1}), names, problems)
        for index, made in enumerate(entry.get("calls", ()))
    ]
    forbidden = [
        _made(made, f"/verify/never/{index}", 0, names, problems)
        for index, made in enumerate(entry.get("never", ()))
    ]
    order = next(((kind, tuple(tools)) for kind, tools in entry.get("order", {}).items()), None)
    return Verify(calls=(*required, *forbidden), order=order)


def _made(
    entry: Mapping[str, Any], pointer: str, times: JSON, names: Sequence[str], problems: list[Problem]
) -> Made:
    args = _matcher("args", entry["args"], pointer, names, problems) if "args" in entry else None
    return Made(
        tool=entry["tool"],
        args=args,
        times=_matcher("times", times, pointer, names, problems),
        pointer=pointer,
    )


def _data(value: JSON) -> Rendering:
    """A structure that is data: its braces mean nothing."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


def examples_of(tool: Descriptor) -> Scenario | None:
    """The scenario that plays a descriptor's examples; None where it has none."""
    if not tool.examples:
        return None
    steps = tuple(
        Step(
            call=tool.name,
            args=_data(dict(example.args)),
            name=f"example {index + 1}",
            expect=Expectation(
                parts={"result": compile_matcher({"$exact": example.result}, [])}
                if example.has_result
                else NOTHING
            ),
            pointer=f"/examples/{index}",
        )
        for index, example in enumerate(tool.examples)
    )
    return Scenario(name=f"{tool.name} examples", tags=("examples",), steps=steps, origin=tool.origin)


def mocked(tool: Descriptor, scenario: Scenario) -> Descriptor:
    """The tool as a scenario sees it: with the scenario's mock in place of its own binding, if it has one."""
    if tool.name not in scenario.mocks:
        return tool
    place = f"/mocks/{pointer_step(tool.name)}"
    locate = scenario.origin.locate
    origin = replace(scenario.origin, locate=lambda pointer: locate(place + pointer.removeprefix("/mock")))
    return replace(
        tool, mode="mock", bindings={**tool.bindings, "mock": scenario.mocks[tool.name]}, origin=origin
    )
