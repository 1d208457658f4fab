"""Compile a scenario: its matrix, steps, expectations and verification."""

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
    REPETITION,
    AdvanceStep,
    AnyStep,
    CallStep,
    Expectation,
    ParallelStep,
    RepeatStep,
    Scenario,
)
from toolcrib.loading.stores import with_refused_names

if TYPE_CHECKING:
    from toolcrib.loading.scenarios.model import ScenarioAgent

MOST_RUNS = 1000
"""Maximum number of runs of one scenario: the combinations of its matrix times `repeat`."""

_LONGEST = 40
"""Maximum length of a value in the name of a run, in characters; a longer value is shown by its number."""


def parse_matrix(
    entry: Mapping[str, Any], repeat: int, problems: list[Problem]
) -> Mapping[str, tuple[JSON, ...]]:
    """The values of a matrix by key. Expressions in them cannot read any names.

    Args:
        entry: The matrix, as written.
        repeat: Number of runs of each combination.
        problems: Receives the problems of the matrix.
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
    """The message for too many runs; empty if their number is within the limit."""
    runs = prod(len(values) for values in matrix.values()) * repeat
    if runs <= MOST_RUNS:
        return ""
    factors = " x ".join(str(len(values)) for values in matrix.values()) or "1"
    return f"this expands to {runs:,} runs ({factors}, {repeat} times each); one scenario has at most {MOST_RUNS:,}"


def combinations(matrix: Mapping[str, Sequence[JSON]]) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Every combination of a matrix, the last key changing fastest: its label, and its values by key."""
    named = [list(zip(_labels(key, values), values, strict=True)) for key, values in matrix.items()]
    for chosen in product(*named):
        yield (
            ",".join(label for label, _value in chosen),
            dict(zip(matrix, (value for _label, value in chosen), strict=True)),
        )


def _labels(key: str, values: Sequence[JSON]) -> list[str]:
    """A label such as `city=Oslo` for each value; `city=#2` if the value is long or not unique as text."""
    shown = [value if isinstance(value, str) else compact(value) for value in values]
    # The number 1 and the text "1" look alike, but runs are selected and compared by their names.
    often = Counter(shown)
    return [
        f"{key}={text}"
        if often[text] == 1 and 0 < len(text) <= _LONGEST and text.isprintable()
        else f"{key}=#{place}"
        for place, text in enumerate(shown, start=1)
    ]


NAMES = ("now", "seed", "run", "store", "state")
"""Names that expressions of a scenario can read, in addition to results of earlier steps and `matrix`."""

RESERVED = (*NAMES, "matrix", REPETITION)
"""Names that steps cannot save results under."""


class StepReader:
    """Compiles steps in order; later steps can read the values that earlier steps saved.

    Attributes:
        names: Names that expressions can read after the steps compiled so far.
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
            yield (
                self._repeated(entry, pointer, index + 1)
                if "repeat" in entry
                else self._one(entry, pointer, index + 1)
            )

    def _one(
        self, entry: Mapping[str, Any], pointer: str, number: int
    ) -> CallStep | ParallelStep | AdvanceStep:
        if "parallel" in entry:
            return self._parallel(entry, pointer, number)
        if "advance" in entry:
            return self._advance(entry, pointer, number)
        step = self._call(entry, pointer, number)
        self._save(entry, pointer)
        return step

    def _repeated(self, entry: Mapping[str, Any], pointer: str, number: int) -> RepeatStep:
        outer = self.names
        self.names = {**self.names, REPETITION: None}
        if "steps" in entry:
            inner = []
            for place, each in enumerate(entry["steps"]):
                step = self._one(each, f"{pointer}/steps/{place}", number)
                name = entry.get("name", "")
                inner.append(
                    replace(step, branch=place + 1, within=name) if isinstance(step, CallStep) else step
                )
        else:
            inner = [self._one(entry, pointer, number)]
        if REPETITION not in outer:
            self.names = {name: keys for name, keys in self.names.items() if name != REPETITION}
        times = entry["repeat"]
        repeated = [_repetition(step, turn, times) for turn in range(1, times + 1) for step in inner]
        return RepeatStep(
            steps=tuple(repeated),
            repetitions=times,
            number=number,
            name=entry.get("name", ""),
            pointer=pointer,
        )

    def _parallel(self, entry: Mapping[str, Any], pointer: str, number: int) -> ParallelStep:
        inner = [(f"{pointer}/parallel/{place}", call) for place, call in enumerate(entry["parallel"])]
        siblings = {call["as"] for _pointer, call in inner if "as" in call} - self.names.keys()
        for place, call in inner:
            self._problems += _reads(call, siblings, {*self.names, *siblings}, place)
        # Names of siblings are reported above; here they count as known, to avoid a second, less helpful problem.
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
            answers=tuple(self._answers(entry.get("answers", ()), f"{pointer}/answers")),
            pointer=pointer,
            written=entry.get("args", {}),
        )

    def _answers(self, said: Any, pointer: str) -> Iterator[Rendering]:
        """The answers of the approver: one, or a list."""
        entries = [(pointer, said)]
        if not isinstance(said, dict):
            entries = [(f"{pointer}/{index}", answer) for index, answer in enumerate(said)]
        for place, answer in entries:
            yield compile_value(answer, self.names, self._problems, place)

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


def _repetition(
    step: CallStep | ParallelStep | AdvanceStep, turn: int, times: int
) -> CallStep | ParallelStep | AdvanceStep:
    if isinstance(step, CallStep):
        return replace(step, repetition=turn, repetitions=times)
    if isinstance(step, ParallelStep):
        calls = tuple(replace(call, repetition=turn, repetitions=times) for call in step.calls)
        return replace(step, calls=calls)
    return step


def _reads(
    entry: Mapping[str, Any], siblings: AbstractSet[str], names: AbstractSet[str], pointer: str
) -> Iterator[Problem]:
    """A problem for every text of a parallel call that reads a value saved by a sibling."""
    parts = {key: value for key, value in entry.items() if key in {"args", "answers", "expect"}}
    for place, text in expression_texts(parts, pointer) if siblings else ():
        for name in sorted(compile_value(text, names, []).names & siblings):
            message = f"`{name}` is saved by a call of the same `parallel`: they start together, so it does not exist yet"
            hint = "move the call that reads it to a later step"
            yield Problem(code="reads_sibling", message=message, pointer=place, hint=hint)


YEARS = range(1000, 9000)
"""Years in which a scenario can start. Time zones and virtual time must stay within `datetime` (years 1 to 9999)."""


def is_scenario(value: JSON) -> bool:
    """Whether a document is meant as a scenario."""
    return isinstance(value, dict) and "scenario" in value


def parse_scenario(
    document: Document, shape: DocumentChecker, *, files: Files | None = None, pack: str = ""
) -> tuple[Scenario | None, list[Problem]]:
    """Parse a scenario.

    Returns:
        The scenario, and all problems with their positions. If a problem is an error, the scenario is rejected, and
        its valid parts serve only for further checks; None if there are none.
    """
    value, problems = shape.check(document)
    if not isinstance(value, dict) or any(problem.code == TOO_MANY for problem in problems):
        return None, [document.place(problem) for problem in problems]
    kept = valid_parts(value, problems, shape)
    entries = value.get("faults")
    if "faults" not in kept and isinstance(entries, list):
        kept["faults"] = _sound_faults(entries, problems)
    if "steps" in value and "steps" not in kept:
        # Without the steps it is unknown which names later expressions can read.
        kept = {key: item for key, item in kept.items() if key not in {"verify", "agent"}}
    if "agent" in value:
        # None marks an invalid agent: without it, `verify.final_text` would be reported as needing one.
        kept.setdefault("agent", None)
    # The keys of an invalid matrix are unknown, so expressions that read one are not reported.
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
    """The faults, with None in place of invalid ones, so that indexes in pointers stay right."""
    wrong = {path[1] for problem in problems if (path := keys_of(problem.pointer))[:1] == ["faults"]}
    return [None if str(index) in wrong else entry for index, entry in enumerate(entries)]


def _build(value: Mapping[str, Any], origin: Origin, names: Names, problems: list[Problem]) -> Scenario:
    """Compile the scenario; `names` are additional names that its expressions can read."""
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
    # Only a warning: `toolcrib run --trials` may ask for more trials.
    if scenario.trials > 1:
        return
    asserted = () if scenario.agent is None else scenario.agent.all_assertions
    pointers = [each.pointer for each in asserted if each.pass_threshold is not None]
    for pointer in ["", *pointers] if "pass_threshold" in value else pointers:
        message = "`pass_threshold` has no effect with a single trial"
        hint = "set `trials: 3`, or remove it"
        place = f"{pointer}/pass_threshold"
        yield Problem(code="needless_key", message=message, pointer=place, hint=hint, severity="warning")


def _agent(value: Mapping[str, Any], names: Names, problems: list[Problem]) -> ScenarioAgent | None:
    if "agent" not in value:
        for key in {"final_text", "stop"} & value.get("verify", {}).keys():
            message = "there is no `agent` to say something or to stop"
            hint = "add `agent`, or remove this"
            problems.append(
                Problem(code="contradiction", message=message, pointer=f"/verify/{key}", hint=hint)
            )
        return None
    if value["agent"] is None:  # invalid, which is reported already
        return None
    # Deferred: most scenarios have no agent.
    from toolcrib.loading.scenarios.agents import check_reserved_names, parse_agent  # noqa: PLC0415

    problems += check_reserved_names(value.get("steps", ()))
    return parse_agent(value["agent"], names, problems)


def _fixture(value: Mapping[str, Any], origin: Origin, problems: list[Problem]) -> Fixture:
    if not value.get("store") and not value.get("state"):
        return NO_FIXTURE
    # Deferred: most scenarios declare no store of their own.
    from toolcrib.loading.stores import parse_fixture  # noqa: PLC0415

    return parse_fixture(value, origin, OWN, problems)


def _faults(
    entries: Sequence[Mapping[str, Any]], origin: Origin, names: Names, problems: list[Problem]
) -> tuple[InjectedFault, ...]:
    if not entries:
        return ()
    # Deferred: most scenarios inject no faults.
    from toolcrib.loading.scenarios.faults import parse_faults  # noqa: PLC0415

    return parse_faults(entries, origin, problems, names)


OWN = "(scenario)"
"""Scope of a scenario's own collections; those of a pack have the name of the pack."""


def _goldens(scenario: Scenario, problems: Sequence[Problem]) -> Iterator[Problem]:
    """The problems of golden files, whose names may depend on the run."""
    # With an invalid matrix the runs, and so the names of golden files, are unknown.
    pointers = {problem.pointer for problem in problems}
    if any(pointer.startswith(("/matrix", "/repeat")) for pointer in pointers):
        return
    scopes: list[dict[str, JSON]] = [
        {"matrix": values, "run": number}
        for _label, values in combinations(scenario.matrix)
        for number in range(1, scenario.repeat + 1)
    ]
    for step in scenario.written_calls:
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
    # Examples are data: `{{` in them is not an expression.
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


def example_scenario(tool: Descriptor) -> Scenario | None:
    """A scenario that runs the examples of a descriptor; None without examples."""
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
