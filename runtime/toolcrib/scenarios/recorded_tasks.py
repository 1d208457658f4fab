"""Replays recorded tasks against the tools: each in a fresh session, its answers and the rows that it changed compared.

A recording is JSON Lines, one task a line: `{task, calls: [{tool, arguments, result}], changed_rows: {collection:
{key: row after}}}`. A `result` is what a model was given: JSON of the value, or a bare text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Outcome, Result, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.text import compact, decode_json, json_equal, truncate
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.expressions.matchers import MatchDifference, find_differences, shown
from toolcrib.loading.documents.document import parse_json
from toolcrib.schema.validation import Validator, Violation
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.redaction import Redactor, redact
from toolcrib.simulation.store import store_of

MOST_DIFFERENCES: Final = 5
"""Differences of one answer that are reported; the others are counted."""

SHOWN: Final = 400
"""Bytes of the arguments that a text shows."""


class RecordedCall(NamedTuple):
    """One call of a recording.

    Attributes:
        tool: Name of the tool.
        arguments: JSON values by name.
        result: What it answered: JSON of the value, or a bare text.
    """

    tool: str
    arguments: Mapping[str, JSON]
    result: str


class RecordedTask(NamedTuple):
    """One task of a recording, which begins with a fresh store.

    Attributes:
        name: Its name; part of every keyed draw, as the name of a scenario is.
        calls: Its calls, in order.
        changed_rows: Collection -> key -> the row after all calls; None for a row that was deleted.
        line: 1-based line of its file; 0 where there is none.
    """

    name: str
    calls: tuple[RecordedCall, ...]
    changed_rows: Mapping[str, Mapping[str, JSON]] = NOTHING
    line: int = 0


class Deviation(NamedTuple):
    """An answer, or the changed rows of a task, that are not as recorded. Secrets are masked.

    Attributes:
        call: Number of the call in its task, from 1; 0 for the changed rows.
        tool: Name of the tool; empty for the changed rows.
        arguments: Of the call; None for the changed rows.
        differences: The first of them: JSON Pointer into the answer, or into `{collection: {key: row}}`.
        untold: How many more there are.
    """

    call: int
    tool: str
    arguments: JSON
    differences: tuple[MatchDifference, ...]
    untold: int = 0

    def __str__(self) -> str:
        head = f"call {self.call}: {self.tool} {truncate(compact(self.arguments), SHOWN)}"
        more = [f"  ... and {self.untold} more"] if self.untold else []
        told = [f"  {difference}".replace("\n", "\n    ") for difference in self.differences]
        return "\n".join([head if self.call else "changed rows", *told, *more])


class TaskReport(NamedTuple):
    """What came of one task.

    Attributes:
        task: The task.
        deviations: What was not as recorded: answers in the order of the calls, then the changed rows.
    """

    task: RecordedTask
    deviations: tuple[Deviation, ...] = ()

    @property
    def as_recorded(self) -> bool:
        """Whether all answers and the changed rows are."""
        return not self.deviations

    @property
    def results(self) -> int:
        """How many answers are as recorded."""
        return len(self.task.calls) - sum(deviation.call > 0 for deviation in self.deviations)

    @property
    def rows_equal(self) -> bool:
        """Whether the changed rows are as recorded."""
        return all(deviation.call for deviation in self.deviations)

    def __str__(self) -> str:
        place = f" (line {self.task.line})" if self.task.line else ""
        lines = [f"task {self.task.name}{place}"]
        for deviation in self.deviations:
            lines += [f"  {line}" for line in str(deviation).splitlines()]
        return "\n".join(lines)


class ReplayReport(NamedTuple):
    """What came of a replay.

    Attributes:
        tasks: A report of each task that was replayed.
    """

    tasks: tuple[TaskReport, ...]

    @property
    def as_recorded(self) -> bool:
        """Whether everything is."""
        return all(report.as_recorded for report in self.tasks)

    @property
    def results(self) -> int:
        """How many answers are as recorded."""
        return sum(report.results for report in self.tasks)

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return sum(len(report.task.calls) for report in self.tasks)

    @property
    def rows_equal(self) -> int:
        """In how many tasks the changed rows are as recorded."""
        return sum(report.rows_equal for report in self.tasks)

    def __str__(self) -> str:
        return (
            f"{self.results} of {self.calls} results as recorded; "
            f"changed rows of {self.rows_equal} of {len(self.tasks)} tasks equal"
        )

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON document; of the tasks only those that are not as recorded."""
        return {
            "as_recorded": self.as_recorded,
            "calls": self.calls,
            "results": self.results,
            "tasks": len(self.tasks),
            "rows_equal": self.rows_equal,
            "deviations": [_deviating(report) for report in self.tasks if not report.as_recorded],
        }


def _deviating(report: TaskReport) -> dict[str, Any]:
    return {
        "task": report.task.name,
        "line": report.task.line,
        "deviations": [
            {
                "call": deviation.call or None,
                "tool": deviation.tool or None,
                "arguments": deviation.arguments,
                "differences": [_difference_json(each) for each in deviation.differences],
                "untold": deviation.untold,
            }
            for deviation in report.deviations
        ],
    }


def _difference_json(difference: MatchDifference) -> dict[str, str]:
    return {
        "pointer": difference.pointer,
        "expected": difference.expected,
        "got": difference.actual,
        "hint": difference.hint,
    }


async def replay(runtime: Runtime, tasks: Iterable[RecordedTask], *, fail_fast: bool = False) -> ReplayReport:
    """Make the calls of recorded tasks, each task in a fresh session on virtual time, and compare.

    After an answer that differs the rest of the task goes on. What a tool does really happens;
    `check_task` finds those that reach out.

    Args:
        runtime: Holds the tools; it is not changed.
        tasks: What was recorded.
        fail_fast: End with the first task that is not as recorded.
    """
    reports = []
    for task in tasks:
        reports.append(await _replayed(runtime, task))
        if fail_fast and not reports[-1].as_recorded:
            break
    return ReplayReport(tuple(reports))


async def _replayed(runtime: Runtime, task: RecordedTask) -> TaskReport:
    session = runtime.session(id=task.name, clock=VirtualClock())
    seen = Redactor()
    deviations = []
    try:
        for number, call in enumerate(task.calls, 1):
            result = await session.call(call.tool, call.arguments)
            found = _answer_deviation(number, call, result, session, seen)
            if found is not None:
                deviations.append(found)
    finally:
        await session.aclose()
    found = _rows_deviation(task, store_of(session).changed(), seen)
    return TaskReport(task, tuple(deviations) if found is None else (*deviations, found))


def _answer_deviation(
    number: int, call: RecordedCall, result: Result, session: Session, seen: Redactor
) -> Deviation | None:
    tool = session.registry.get(call.tool)
    arguments = seen.add(dict(call.arguments), None if tool is None else tool.input_schema)
    if result.outcome not in {Outcome.OK, Outcome.TOOL_ERROR}:
        lost = MatchDifference("", shown(_wanted(call.result, "")), f"{result.outcome}: {result.message}")
        return Deviation(number, call.tool, arguments, (lost,))
    said = _said(result)
    if said == call.result:
        return None
    wanted = _wanted(call.result, said)
    if json_equal(wanted, said):
        return None
    schema = None if tool is None else tool.output_schema
    return Deviation(number, call.tool, arguments, *_told(wanted, said, seen, schema))


def _rows_deviation(
    task: RecordedTask, changed: Mapping[str, Mapping[str, JSON]], seen: Redactor
) -> Deviation | None:
    names = [*task.changed_rows, *(name for name in changed if name not in task.changed_rows)]
    wanted: JSON = {name: dict(task.changed_rows.get(name, NOTHING)) for name in names}
    found: JSON = {name: dict(changed.get(name, NOTHING)) for name in names}
    if json_equal(wanted, found):
        return None
    return Deviation(0, "", None, *_told(wanted, found, seen, None))


def _told(
    wanted: JSON, found: JSON, seen: Redactor, schema: Schema | None
) -> tuple[tuple[MatchDifference, ...], int]:
    """The first differences of two values, with their secrets masked, and how many more there are."""
    shown_wanted, shown_found = (seen.hide_in(redact(value, schema)) for value in (wanted, found))
    differences = find_differences(shown_wanted, shown_found, "")
    first = tuple(islice(differences, MOST_DIFFERENCES))
    if not first:
        return (MatchDifference("", "another secret", "one that is masked here"),), 0
    return first, sum(1 for _ in differences)


def _said(result: Result) -> JSON:
    """What a caller is given: the value, or the texts of the parts where there is none."""
    texts = [part.text for part in result.content if part.text is not None]
    if result.outcome is Outcome.TOOL_ERROR:
        return "\n".join(texts) if texts else result.message
    return "\n".join(texts) if result.value is None and texts else result.value


def _wanted(recorded: str, said: JSON) -> JSON:
    """What a recorded text stands for beside an answer: a text is not read as a number, `true` or `null`."""
    try:
        value = decode_json(recorded)
    except (ValueError, RecursionError):
        return recorded
    is_scalar = not isinstance(value, dict | list | str)
    return recorded if is_scalar and isinstance(said, str) else value


_TASK: Final[Schema] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "minLength": 1},
        "calls": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "tool": {"type": "string"},
                    "arguments": {"type": "object"},
                    "result": {"type": "string"},
                },
                "required": ["tool", "arguments", "result"],
                "additionalProperties": False,
            },
        },
        "changed_rows": {"type": "object", "additionalProperties": {"type": "object"}},
    },
    "required": ["task", "calls", "changed_rows"],
    "additionalProperties": False,
}

_CODES: Final = {
    "additionalProperties": "unknown_key",
    "required": "missing_key",
    "type": "wrong_type",
    "minLength": "wrong_value",
}


def parse_tasks(source: str, lines: Iterable[bytes]) -> tuple[list[RecordedTask], list[Problem]]:
    """The tasks of a recording that are without fault, and everything that is wrong with its other lines.

    Args:
        source: The file, as it was named.
        lines: Its lines; blank ones count and say nothing.
    """
    validator = Validator(_TASK)
    tasks, problems = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        value, wrong = parse_json(source, line)
        if not wrong:
            wrong = [_shape_problem(fault, source) for fault in validator.faults(value)]
        if wrong:
            problems += [problem._replace(line=number) for problem in wrong]
        else:
            tasks.append(_task(value, number))
    return tasks, problems


def _shape_problem(fault: Violation, source: str) -> Problem:
    code = _CODES[fault.keyword]
    message = f"expected {fault.expected}, got {fault.got}"
    if code == "unknown_key":
        message = f"unknown key `{fault.path[-1]}`"
    elif code == "missing_key":
        message = f"`{fault.path[-1]}` is missing"
    return Problem(
        code=code, message=message, pointer=fault.pointer, hint=fault.hint, source=source, column=1
    )


def _task(value: Any, line: int) -> RecordedTask:
    calls = tuple(RecordedCall(**call) for call in value["calls"])
    return RecordedTask(value["task"], calls, value["changed_rows"], line)


def check_task(source: str, task: RecordedTask, runtime: Runtime) -> list[Problem]:
    """What keeps a task from being replayed: tools that do not exist, and tools that would do something real.

    Args:
        source: The file, as it was named.
        task: One of its tasks.
        runtime: Holds the tools.
    """
    problems = (_hindrance(call.tool, runtime) for call in task.calls)
    return [
        problem._replace(
            pointer=pointer_to(["calls", index, "tool"]), source=source, line=task.line, column=1
        )
        for index, problem in enumerate(problems)
        if problem is not None
    ]


def _hindrance(tool: str, runtime: Runtime) -> Problem | None:
    registry = runtime.registry
    name = tool if tool in registry else registry.named_by_alias(tool)
    if name is None:
        near = registry.near(tool)
        hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
        return Problem(code="unknown_tool", message=f"there is no tool `{shorten(tool)}`", hint=hint)
    if engine_of(runtime).reaches_out(registry[name]):
        message = f"`{name}` is in mode `{registry[name].mode}`, and a replay does nothing real"
        hint = "put a mode in force that answers here, with a profile or in the descriptor"
        return Problem(code="reaches_out", message=message, hint=hint)
    return None
