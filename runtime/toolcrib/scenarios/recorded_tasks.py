"""Replay recorded tasks, each in a fresh session, and compare the results and the changed rows.

A recording is JSON Lines, one task a line: `{task, calls: [{tool, arguments, result}], changed_rows: {collection:
{key: row after}}}`. A `result` is the text that a model received: JSON of the value, or plain text.
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
"""Reported differences of one result; the others are counted."""

SHOWN: Final = 400
"""Bytes of the arguments that a report shows."""


class RecordedCall(NamedTuple):
    """One call of a recording.

    Attributes:
        tool: Name of the tool.
        arguments: JSON values by name.
        result: The recorded result: JSON of the value, or plain text.
    """

    tool: str
    arguments: Mapping[str, JSON]
    result: str


class RecordedTask(NamedTuple):
    """One task of a recording, which starts with a fresh store.

    Attributes:
        name: Name of the task. Like the name of a scenario, it is part of the key of every generated value.
        calls: The calls in order.
        changed_rows: Collection -> key -> the row after all calls; None for a row that was deleted.
        line: Line in its file, from 1; 0 if it was not read from a file.
    """

    name: str
    calls: tuple[RecordedCall, ...]
    changed_rows: Mapping[str, Mapping[str, JSON]] = NOTHING
    line: int = 0


class Deviation(NamedTuple):
    """A result, or the changed rows of a task, that differ from the recording. Secrets are masked.

    Attributes:
        call: Number of the call in its task, from 1; 0 for the changed rows.
        tool: Name of the tool; empty for the changed rows.
        arguments: Arguments of the call; None for the changed rows.
        differences: The first differences, with JSON Pointers into the result or into `{collection: {key: row}}`.
        untold: Number of further differences.
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
    """The result of replaying one task.

    Attributes:
        task: The task.
        deviations: The deviations from the recording: results in the order of the calls, then the changed rows.
    """

    task: RecordedTask
    deviations: tuple[Deviation, ...] = ()

    @property
    def as_recorded(self) -> bool:
        """Whether all results and the changed rows are as recorded."""
        return not self.deviations

    @property
    def results(self) -> int:
        """Number of results that are as recorded."""
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
    """The result of a replay.

    Attributes:
        tasks: The report of each replayed task.
    """

    tasks: tuple[TaskReport, ...]

    @property
    def as_recorded(self) -> bool:
        """Whether everything is as recorded."""
        return all(report.as_recorded for report in self.tasks)

    @property
    def results(self) -> int:
        """Number of results that are as recorded."""
        return sum(report.results for report in self.tasks)

    @property
    def calls(self) -> int:
        """Number of calls."""
        return sum(len(report.task.calls) for report in self.tasks)

    @property
    def rows_equal(self) -> int:
        """Number of tasks whose changed rows are as recorded."""
        return sum(report.rows_equal for report in self.tasks)

    def __str__(self) -> str:
        return (
            f"{self.results} of {self.calls} results as recorded; "
            f"changed rows equal in {self.rows_equal} of {len(self.tasks)} tasks"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON document; it lists only tasks with deviations."""
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
    """Make the calls of recorded tasks, each task in a fresh session on virtual time, and compare the results.

    A task continues after a result that differs. Tools really run; use `check_task` to find those with real effects.

    Args:
        runtime: The runtime with the tools; it is not changed.
        tasks: The recorded tasks.
        fail_fast: Stop after the first task with deviations.
    """
    reports = []
    for task in tasks:
        reports.append(await _replayed(runtime, task))
        if fail_fast and not reports[-1].as_recorded:
            break
    return ReplayReport(tuple(reports))


async def _replayed(runtime: Runtime, task: RecordedTask) -> TaskReport:
    # On virtual time, the latency of mocks does not slow down a replay.
    session = runtime.session(id=task.name, clock=VirtualClock())
    # One redactor for the whole task: a secret in the arguments of one call may appear in a later result or
    # row.
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
    # Any other outcome is not an answer of the tool, so there is no value to compare.
    if result.outcome not in {Outcome.OK, Outcome.TOOL_ERROR}:
        lost = MatchDifference("", shown(_wanted(call.result, "")), f"{result.outcome}: {result.message}")
        return Deviation(number, call.tool, arguments, (lost,))
    said = _said(result)
    # Most results are equal texts, for which no JSON is parsed.
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
    """The first differences of two values, with secrets masked, and the number of further ones."""
    shown_wanted, shown_found = (seen.hide_in(redact(value, schema)) for value in (wanted, found))
    differences = find_differences(shown_wanted, shown_found, "")
    first = tuple(islice(differences, MOST_DIFFERENCES))
    # The values differ only in secrets, which are equal once they are masked.
    if not first:
        return (MatchDifference("", "another secret", "one that is masked here"),), 0
    return first, sum(1 for _ in differences)


def _said(result: Result) -> JSON:
    """What a model receives: the value, or the text parts if there is no value."""
    texts = [part.text for part in result.content if part.text is not None]
    if result.outcome is Outcome.TOOL_ERROR:
        return "\n".join(texts) if texts else result.message
    return "\n".join(texts) if result.value is None and texts else result.value


def _wanted(recorded: str, said: JSON) -> JSON:
    """Parse a recorded text as JSON, unless it is a scalar and the actual result is a string."""
    try:
        value = decode_json(recorded)
    except (ValueError, RecursionError):
        return recorded
    # The recording cannot tell the string `"12"` from the number 12: both are recorded as `12`.
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
    """Parse a recording; return its valid tasks and the problems of its other lines.

    Args:
        source: Path of the file, as it was given.
        lines: Lines of the file; blank lines are skipped, but counted.
    """
    validator = Validator(_TASK)
    tasks, problems = [], []
    for number, line in enumerate(lines, 1):
        # Many programs end a JSON Lines file with a blank line.
        if not line.strip():
            continue
        value, wrong = parse_json(source, line)
        if not wrong:
            wrong = [_shape_problem(fault, source) for fault in validator.faults(value)]
        if wrong:
            # Each line is a document of its own, so its problems are all in its line 1.
            problems += [problem._replace(line=number) for problem in wrong]
        else:
            tasks.append(_task(value, number))
    return tasks, problems


def _shape_problem(fault: Violation, source: str) -> Problem:
    # `_CODES` covers every keyword that `_TASK` uses.
    code = _CODES[fault.keyword]
    message = f"expected {fault.expected}, got {fault.got}"
    if code == "unknown_key":
        message = f"unknown key `{fault.path[-1]}`"
    elif code == "missing_key":
        message = f"missing key `{fault.path[-1]}`"
    return Problem(
        code=code, message=message, pointer=fault.pointer, hint=fault.hint, source=source, column=1
    )


def _task(value: Any, line: int) -> RecordedTask:
    calls = tuple(RecordedCall(**call) for call in value["calls"])
    return RecordedTask(value["task"], calls, value["changed_rows"], line)


def check_task(source: str, task: RecordedTask, runtime: Runtime) -> list[Problem]:
    """Return why a task cannot be replayed: unknown tools, and tools with real effects.

    Args:
        source: Path of the file, as it was given.
        task: One of its tasks.
        runtime: The runtime with the tools.
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
    # Recordings of a model contain aliases, since providers restrict the characters of tool names.
    name = tool if tool in registry else registry.named_by_alias(tool)
    if name is None:
        near = registry.near(tool)
        hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
        return Problem(code="unknown_tool", message=f"unknown tool `{shorten(tool)}`", hint=hint)
    if engine_of(runtime).reaches_out(registry[name]):
        message = f"`{name}` is in mode `{registry[name].mode}`, and a replay only runs simulated tools"
        hint = "select a simulated mode, such as `mock`, in a profile or in the descriptor"
        return Problem(code="reaches_out", message=message, hint=hint)
    return None
