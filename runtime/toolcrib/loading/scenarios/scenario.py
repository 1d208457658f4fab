"""From a document to a scenario: its matrix, steps, expectations and verification, compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from toolcrib.core.clock import START, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Descriptor, Fixture, InjectedFault, Origin
from toolcrib.core.pointers import keys_of
from toolcrib.core.protocols import Files
from toolcrib.core.text import compact
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.document_checks import TOO_MANY, DocumentChecker, hidden_problems, valid_parts
from toolcrib.loading.documents.document import Document
from toolcrib.loading.scenarios.expectations import (
    Names,
    check_golden,
    expression_texts,
    parse_expectation,
    parse_verification,
)
from toolcrib.loading.scenarios.model import (
    AdvanceStep,
    AnyStep,
    CallStep,
    Expectation,
    ParallelStep,
    Scenario,
)
from toolcrib.loading.stores import with_refused_names

if TYPE_CHECKING:
    from toolcrib.loading.scenarios.model import Agent

MOST_RUNS = 1000
"""Runs that one scenario may come to: every combination of its matrix, so often as it repeats."""

_LONGEST = 40
"""Characters of a value that is shown in the name of a run; a longer one is shown by its place."""


def parse_matrix(
    entry: Mapping[str, Any], repeat: int, problems: list[Problem]
) -> Mapping[str, tuple[JSON, ...]]:
    """The values of a matrix by their key. They are data: an expression in them reads nothing.

    Args:
        entry: As the document has it.
        repeat: How often each combination runs.
        problems: Receives what is wrong with it.
    """
    matrix = {
        key: tuple(
            compile_value(value, (), problems, f"/matrix/{key}/{index}").render({})
            for index, value in enumerate(values)
        )
        for key, values in entry.items()
    }
    message = describe_excess_runs(matrix, repeat)
    if message:
        pointer = "/matrix" if matrix else "/repeat"
        problems.append(Problem(code="too_many_runs", message=message, pointer=pointer, hint=_FEWER))
    return matrix


_FEWER = "split it into several scenarios, or repeat it fewer times"


def describe_excess_runs(matrix: Mapping[str, Sequence[JSON]], repeat: int) -> str:
    """What is wrong with a number of runs; empty if they may be so many."""
    runs = prod(len(values) for values in matrix.values()) * repeat
    if runs <= MOST_RUNS:
        return ""
    factors = " x ".join(str(len(values)) for values in matrix.values()) or "1"
    return f"this expands to {runs:,} runs ({factors}, {repeat} times each); one scenario has at most {MOST_RUNS:,}"


def combinations(matrix: Mapping[str, Sequence[JSON]]) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Every combination of a matrix, the last key changing fastest: how it is named, and its values by key."""
    named = [list(zip(_labels(key, values), values, strict=True)) for key, values in matrix.items()]
    for chosen in product(*named):
        yield (
            ",".join(label for label, _value in chosen),
            dict(zip(matrix, (value for _label, value in chosen), strict=True)),
        )


def _labels(key: str, values: Sequence[JSON]) -> list[str]:
    """`city=Oslo` for each value; by its place, `city=#2`, where it is long or shown like another one."""
    shown = [value if isinstance(value, str) else compact(value) for value in values]
    often = Counter(shown)
    return [
        f"{key}={text}"
        if often[text] == 1 and 0 < len(text) <= _LONGEST and text.isprintable()
        else f"{key}=#{place}"
        for place, text in enumerate(shown, start=1)
    ]


NAMES = ("now", "seed", "run", "store", "state")
"""What expressions of a scenario may read besides the results of earlier steps and its `matrix`."""

RESERVED = (*NAMES, "matrix")
"""Names that no step may give to its result."""


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
            message = "this scenario uses a real clock, which cannot be advanced"
            hint = "remove `advance` or `clock.mode: real`"
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
                code="duplicate_name", message=message, pointer=f"{pointer}/as", hint="use another name"
            )
            self._problems.append(problem)
        else:
            self.names = {**self.names, name: None}


def _reads(
    entry: Mapping[str, Any], siblings: AbstractSet[str], names: AbstractSet[str], pointer: str
) -> Iterator[Problem]:
    """A problem for every text of a parallel call that reads what a sibling saves."""
    parts = {key: value for key, value in entry.items() if key in {"args", "expect"}}
    for place, text in expression_texts(parts, pointer) if siblings else ():
        for name in sorted(compile_value(text, names, []).names & siblings):
            message = f"`{name}` is saved by a call of the same `parallel`: they start together, so it does not exist yet"
            hint = "move the call that reads it to a later step"
            yield Problem(code="reads_sibling", message=message, pointer=place, hint=hint)


YEARS = range(1000, 9000)
"""Years in which a scenario may start: time zones and virtual time stay within the calendar."""


def is_scenario(value: JSON) -> bool:
    """Whether a document means to describe a scenario."""
    return isinstance(value, dict) and "scenario" in value


def parse_scenario(
    document: Document, shape: DocumentChecker, *, files: Files | None = None, pack: str = ""
) -> tuple[Scenario | None, list[Problem]]:
    """Read a scenario.

    Returns:
        The scenario, and all problems, placed in the file. Where one of them is an error the scenario is
        refused: what is there of it is only good for being checked further. None where that is nothing.
    """
    value, problems = shape.check(document)
    if not isinstance(value, dict) or any(problem.code == TOO_MANY for problem in problems):
        return None, [document.place(problem) for problem in problems]
    kept = valid_parts(value, problems, shape)
    entries = value.get("faults")
    if "faults" not in kept and isinstance(entries, list):
        kept["faults"] = _sound_faults(entries, problems)
    if "steps" in value and "steps" not in kept:
        # Without the steps nobody knows what names later expressions may read.
        kept = {key: item for key, item in kept.items() if key not in {"verify", "agent"}}
    if "agent" in value:
        kept.setdefault("agent", None)
    # Of a matrix that is refused nobody knows the keys, so no expression is wrong that reads one.
    keys = {"matrix": None} if "matrix" in value and "matrix" not in kept else {}
    origin = Origin(
        source=document.source, line=document.line, pack=pack, files=files, locate=document.position
    )
    scenario = _build(kept, origin, keys, problems)
    if any(kept.get(key) != value.get(key) for key in ("store", "state")):
        scenario = replace(scenario, fixture=with_refused_names(scenario.fixture, value, OWN))
    problems += hidden_problems(value)
    return scenario, [document.place(problem) for problem in problems]


def _sound_faults(entries: Sequence[JSON], problems: Sequence[Problem]) -> list[JSON]:
    """The faults, with None in place of those whose shape is wrong."""
    wrong = {path[1] for problem in problems if (path := keys_of(problem.pointer))[:1] == ["faults"]}
    return [None if str(index) in wrong else entry for index, entry in enumerate(entries)]


def _build(value: Mapping[str, Any], origin: Origin, names: Names, problems: list[Problem]) -> Scenario:
    """The scenario, compiled; `names` is what its expressions may read besides what it says itself."""
    repeat = value.get("repeat", 1)
    matrix = parse_matrix(value.get("matrix", {}), repeat, problems)
    clock = value.get("clock", {})
    real = clock.get("mode") == "real"
    run_names: Names = {"matrix": matrix.keys()} if matrix else names
    reader = StepReader(run_names, problems, real=real)
    scenario = Scenario(
        name=value.get("scenario", "unnamed"),
        description=value.get("description", ""),
        tags=tuple(value.get("tags", ())),
        seed=value.get("seed", 0),
        start=_start(clock, problems),
        real=real,
        modes=value.get("modes", {}),
        mocks=value.get("mocks", {}),
        fixture=_fixture(value, origin, problems),
        store=value.get("store", {}),
        faults=_faults(value.get("faults", ()), origin, run_names, problems),
        matrix=matrix,
        repeat=repeat,
        steps=tuple(reader.steps(value.get("steps", ()))),
        verify=parse_verification(value.get("verify", {}), reader.names, problems),
        agent=_agent(value, reader.names, problems),
        trials=value.get("trials", 1),
        pass_threshold=value.get("pass_threshold", 1.0),
        origin=origin,
    )
    problems += _goldens(scenario, problems)
    problems += _idle_thresholds(value, scenario)
    return scenario


def _idle_thresholds(value: Mapping[str, Any], scenario: Scenario) -> Iterator[Problem]:
    """Shares of trials where there is one. `--trials` of `toolcrib run` may ask for more."""
    if scenario.trials > 1:
        return
    asserted = () if scenario.agent is None else scenario.agent.all_assertions
    pointers = [each.pointer for each in asserted if each.pass_threshold is not None]
    for pointer in ["", *pointers] if "pass_threshold" in value else pointers:
        message = "`pass_threshold` has no effect with a single trial"
        hint = "set `trials: 3`, or remove it"
        place = f"{pointer}/pass_threshold"
        yield Problem(code="needless_key", message=message, pointer=place, hint=hint, severity="warning")


def _agent(value: Mapping[str, Any], names: Names, problems: list[Problem]) -> Agent | None:
    if "agent" not in value:
        for key in {"final_text", "stop"} & value.get("verify", {}).keys():
            message = "there is no `agent` to say something or to stop"
            hint = "add `agent`, or remove this"
            problems.append(
                Problem(code="contradiction", message=message, pointer=f"/verify/{key}", hint=hint)
            )
        return None
    if value["agent"] is None:  # its shape is wrong
        return None
    from toolcrib.loading.scenarios.agents import check_reserved_names, parse_agent  # noqa: PLC0415 -- most scenarios have none

    problems += check_reserved_names(value.get("steps", ()))
    return parse_agent(value["agent"], names, problems)


def _fixture(value: Mapping[str, Any], origin: Origin, problems: list[Problem]) -> Fixture:
    if not value.get("store") and not value.get("state"):
        return NO_FIXTURE
    from toolcrib.loading.stores import parse_fixture  # noqa: PLC0415 -- most scenarios keep nothing of their own

    return parse_fixture(value, origin, OWN, problems)


def _faults(
    entries: Sequence[Mapping[str, Any]], origin: Origin, names: Names, problems: list[Problem]
) -> tuple[InjectedFault, ...]:
    if not entries:
        return ()
    from toolcrib.loading.scenarios.faults import parse_faults  # noqa: PLC0415 -- in most scenarios nothing goes wrong

    return parse_faults(entries, origin, problems, names)


OWN = "(scenario)"
"""Stands before the names of a scenario's own collections, where those of a pack have its name."""


def _goldens(scenario: Scenario, problems: Sequence[Problem]) -> Iterator[Problem]:
    """What is wrong with the golden files, once it is known how often the scenario runs."""
    pointers = {problem.pointer for problem in problems}
    if any(pointer.startswith(("/matrix", "/repeat")) for pointer in pointers):
        return
    scopes: list[dict[str, JSON]] = [
        {"matrix": values, "run": number}
        for _label, values in combinations(scenario.matrix)
        for number in range(1, scenario.repeat + 1)
    ]
    for step in scenario.calls:
        pointer = f"{step.pointer}/expect/golden"
        if step.expect.golden is not None and pointer not in pointers:
            yield from check_golden(step.expect.golden, pointer, scopes, scenario.origin.files)


def _start(clock: Mapping[str, str], problems: list[Problem]) -> datetime:
    if "start" not in clock:
        return START
    if clock.get("mode") == "real":
        message = "a real clock follows the time of day and cannot start elsewhere"
        hint = "remove `start` or `mode: real`"
        problems.append(Problem(code="contradiction", message=message, pointer="/clock/start", hint=hint))
        return START
    try:
        start = datetime.fromisoformat(clock["start"])
        if start.year in YEARS:
            return start
        fault = f"its year is not between {YEARS.start} and {YEARS.stop - 1}"
    except ValueError as error:
        fault = str(error)
    message = f"`{clock['start']}` is not a valid start time: {fault}"
    problems.append(Problem(code="wrong_value", message=message, pointer="/clock/start", hint=_TIME))
    return START


_TIME = "such as `2030-01-01T09:00:00Z`"


def _data(value: JSON) -> Rendering:
    """A structure that is data: its braces mean nothing."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


def example_scenario(tool: Descriptor) -> Scenario | None:
    """The scenario that plays a descriptor's examples; None where it has none."""
    if not tool.examples:
        return None
    steps = tuple(
        CallStep(
            call=tool.name,
            args=_data(dict(example.args)),
            number=index + 1,
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
