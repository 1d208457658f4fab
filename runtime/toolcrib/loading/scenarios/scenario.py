"""From a document to a scenario: its steps, expectations and verification, compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolcrib.core.clock import START
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Descriptor, Fixture, InjectedFault, Origin
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.protocols import Files
from toolcrib.expressions import Rendering
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.document_checks import TOO_MANY, DocumentChecker, hidden_problems, valid_parts
from toolcrib.loading.documents.document import Document
from toolcrib.loading.scenarios.expectations import (
    NO_RULES,
    Expectation,
    Names,
    Verification,
    parse_verification,
)
from toolcrib.loading.scenarios.goldens import check_golden
from toolcrib.loading.scenarios.matrices import combinations, parse_matrix
from toolcrib.loading.scenarios.steps import AnyStep, CallStep, ParallelStep, StepReader
from toolcrib.loading.stores import with_names

if TYPE_CHECKING:
    from toolcrib.loading.scenarios.agents import Agent

YEARS = range(1000, 9000)
"""Years in which a scenario may start: time zones and virtual time stay within the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scripted run.

    Attributes:
        name: Name of the scenario; of one of its runs with what tells that from the others.
        description: What it shows.
        tags: Words to choose it by.
        seed: Seeds every generated value.
        start: Time of day at the first step.
        real: Whether it runs on the machine's time, and not on virtual time.
        modes: Tool glob -> mode, the first that fits counts.
        mocks: Tool name -> mock block that stands in for the tool's own binding.
        fixture: The collections and machines that it declares.
        store: Its collections as they are written.
        faults: What goes wrong with the tools.
        matrix: Key -> values; every combination of them is a run of its own.
        repeat: How often each combination runs, each time with the next seed.
        steps: The calls, in order.
        verify: What must be true at the end.
        agent: Who goes on when the steps are done; None for nobody.
        trials: How often one run is tried.
        pass_threshold: The share of trials that must be good, 0 to 1.
        origin: Where it came from.
        values: The matrix of one run: key -> its value.
        run: The number of one run among those of its combination, from 1.
        order: The number of the order in which the calls of parallel steps begin, from 1, the written one; 0 where
            there is no other.
        base: The name as it is written, where this is one of several runs.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    seed: int = 0
    start: datetime = START
    real: bool = False
    modes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    mocks: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    fixture: Fixture = NO_FIXTURE
    store: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    faults: tuple[InjectedFault, ...] = ()
    matrix: Mapping[str, tuple[JSON, ...]] = field(default_factory=lambda: NOTHING)
    repeat: int = 1
    steps: tuple[AnyStep, ...]
    verify: Verification = NO_RULES
    agent: Agent | None = None
    trials: int = 1
    pass_threshold: float = 1.0
    origin: Origin = field(default_factory=Origin)
    values: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    run: int = 1
    order: int = 0
    base: str = ""

    @property
    def calls(self) -> Iterator[CallStep]:
        """The calls of all steps, in order of their beginning."""
        for step in self.steps:
            if isinstance(step, ParallelStep):
                yield from step.calls
            elif isinstance(step, CallStep):
                yield step


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
    value, problems = shape.judged(document)
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
        scenario = replace(scenario, fixture=with_names(scenario.fixture, value, OWN))
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
        message = "`pass_threshold` has no effect: there is one trial"
        hint = "write `trials: 3`, or leave it out"
        place = f"{pointer}/pass_threshold"
        yield Problem(code="needless_key", message=message, pointer=place, hint=hint, severity="warning")


def _agent(value: Mapping[str, Any], names: Names, problems: list[Problem]) -> Agent | None:
    if "agent" not in value:
        for key in {"final_text", "stop"} & value.get("verify", {}).keys():
            message = "there is no `agent` that could say something or stop"
            hint = "write `agent`, or leave this out"
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
        message = "a real clock shows the time of day that it is, so nobody can say where it starts"
        hint = "leave `start` out, or `mode: real`"
        problems.append(Problem(code="contradiction", message=message, pointer="/clock/start", hint=hint))
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


def _data(value: JSON) -> Rendering:
    """A structure that is data: its braces mean nothing."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


def examples_of(tool: Descriptor) -> Scenario | None:
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


def with_scenario_state(tool: Descriptor, scenario: Scenario) -> Descriptor:
    """The tool with the scenario's collections and named states, and with what goes wrong with it there.

    Collections and states take the place of those of its pack that have their names.
    """
    if scenario.fixture is not NO_FIXTURE:
        from toolcrib.loading.stores import fixture_with  # noqa: PLC0415 -- as above

        fixture = fixture_with(tool.fixture, scenario.fixture.collections, scenario.fixture.machines)
        tool = tool._replace(fixture=fixture)
    if scenario.faults:
        from toolcrib.loading.scenarios.faults import faults_of  # noqa: PLC0415 -- as above

        tool = tool._replace(faults=faults_of(tool, scenario.faults))
    return tool


def with_mock(tool: Descriptor, scenario: Scenario) -> Descriptor:
    """The tool as a scenario sees it: furnished, and with the scenario's mock in place of its own binding."""
    tool = with_scenario_state(tool, scenario)
    if tool.name not in scenario.mocks:
        return tool
    place = f"/mocks/{pointer_step(tool.name)}"
    locate = scenario.origin.locate
    origin = scenario.origin._replace(locate=lambda pointer: locate(place + pointer.removeprefix("/mock")))
    # What the caller fulfils stays the caller's; the mock says what it answers where it does.
    granted = scenario.agent is not None and scenario.agent.grants(tool.name)
    return tool._replace(
        mode=tool.mode if granted else "mock",
        bindings={**tool.bindings, "mock": scenario.mocks[tool.name]},
        origin=origin,
    )
