"""Output of `toolcrib run`: summaries for people and programs, JUnit XML for CI servers, and golden files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import click

from toolcrib.cli.list import modes_summary
from toolcrib.cli.output import plural, table, write_atomically
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Result
from toolcrib.core.text import compact, truncate
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.documents.document import BYTES
from toolcrib.loading.scenarios.expectations import golden_path, golden_text
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.scenarios import NotRun, ScenarioFailure, ScenarioReport
from toolcrib.scenarios.reports import BRIEF, GoldenChange, common_warnings


def results_of(reports: Sequence[ScenarioReport]) -> list[tuple[str, Result]]:
    """Return the tool name and the result of every call."""
    return [
        (step.step.call, step.result)
        for report in reports
        for step in report.steps
        if step.result is not None
    ]


def group_of(scenario: Scenario) -> str:
    """The group of a scenario in the summary: its pack, otherwise the folder of its file."""
    return scenario.origin.pack or PurePath(scenario.origin.source).parent.as_posix()


def scenarios_of(reports: Sequence[ScenarioReport]) -> int:
    """Number of scenarios, each of which may have several runs."""
    # Names are only unique within a file, and runs of a matrix have names of their own.
    scenarios = (report.scenario for report in reports)
    return len({(one.origin.source, one.origin.line, one.base or one.name) for one in scenarios})


def runs_and_scenarios(reports: Sequence[ScenarioReport]) -> str:
    """`12 runs of 5 scenarios`; empty if each scenario has one run."""
    scenarios = scenarios_of(reports)
    if scenarios == len(reports):
        return ""
    return f"{plural(len(reports), 'run')} of {plural(scenarios, 'scenario')}"


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds: `0.21 s`, `12 s`, `3 m 20 s`, `2 h 14 m`."""
    if seconds < 10:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} m"


def summary_lines(
    runtime: Runtime,
    reports: Sequence[ScenarioReport],
    not_run: Sequence[NotRun],
    duration: float,
    *,
    brief: bool = False,
) -> Iterator[str]:
    """The summary: a line for each pack or folder, tools by mode, outcomes, what did not run, and the verdict.

    A `brief` one has only what did not run, and the verdict.
    """
    if brief:
        yield from missing_lines(reports, not_run)
        yield _verdict(runtime, reports, not_run, duration)
        return
    groups: dict[str, list[ScenarioReport]] = {}
    for report in reports:
        groups.setdefault(group_of(report.scenario), []).append(report)
    yield ""
    yield from table([_row(name, group) for name, group in groups.items()])
    yield ""
    modes = modes_summary(runtime, list(runtime.registry.values()))
    yield f"{plural(len(runtime.registry), 'tool')}{modes and f': {modes}'}"
    outcomes = Counter(result.outcome.value for _tool, result in results_of(reports))
    if outcomes:
        yield "outcomes: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    yield from missing_lines(reports, not_run)
    yield _verdict(runtime, reports, not_run, duration)


NAMED = 50
"""Maximum number of listed items that were not run or not judged."""


def not_run_lines(not_run: Sequence[NotRun]) -> Iterator[str]:
    """List what could not be run, and files that were skipped."""
    left = [each for each in not_run if each.outcome is not None or each.kind == "file"]
    if left:
        yield "\nnot run:"
        yield from (f"  {each}" for each in left[:NAMED])
        yield from ([f"  and {len(left) - NAMED} more"] if len(left) > NAMED else [])


def skipped_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    """List assertions and guardrails that were not judged, one line per scenario and reason."""
    lines: dict[str, None] = {}
    for report in reports:
        reasons: dict[str, list[str]] = {}
        for skip in report.skipped:
            reasons.setdefault(truncate(skip.found, BRIEF), []).append(f"`{skip.named}`")
        name = report.scenario.base or report.scenario.name
        for reason, names in reasons.items():
            # Keys of a dict, since all runs of a scenario usually skip the same assertions.
            lines[f"  {name}: {', '.join(names)}: {reason} ({report.scenario.origin.place()})"] = None
    if lines:
        yield "\nnot judged:"
        yield from [*lines][:NAMED]
        yield from ([f"  and {len(lines) - NAMED} more"] if len(lines) > NAMED else [])


def missing_lines(reports: Sequence[ScenarioReport], not_run: Sequence[NotRun]) -> Iterator[str]:
    """Count what the totals do not include: what could not be run, what was skipped, and what was not judged."""
    failing = [each for each in not_run if each.outcome is not None]
    kinds = {"scenario": "scenario", "examples": "tool with examples", "tool": "tool", "file": "file"}
    counts = Counter(kinds[each.kind] for each in failing)
    told = [_counted(counts[what], what) for what in kinds.values() if counts[what]]
    if told:
        yield click.style(f"{_and(told)} could not be run", fg="red", bold=True)
    skipped = sum(len(report.skipped) for report in reports)
    if skipped:
        yield click.style(f"{_counted(skipped, 'assertion or guardrail')} not judged", fg="yellow")
    left = Counter(each.reason for each in not_run if each.outcome is None and each.kind == "examples")
    for reason, count in left.items():
        yield f"the examples of {plural(count, 'tool')} were skipped: {reason}"


def _counted(count: int, what: str) -> str:
    irregular = {
        "tool with examples": "tools with examples",
        "assertion or guardrail": "assertions or guardrails",
    }
    return f"{count} {what if count == 1 else irregular.get(what, what + 's')}"


def _and(parts: Sequence[str]) -> str:
    """`2 scenarios, 1 tool and 1 file`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def trace_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    """One line per run: verdict, number of calls, virtual time, and the beginning of the digest of its trace."""
    if reports:
        yield ""
        yield from table(
            [
                (
                    report.verdict,
                    report.scenario.name,
                    plural(len(results_of([report])), "call"),
                    format_seconds(report.duration),
                    report.digest[:DIGITS],
                )
                for report in reports
            ]
        )


DIGITS = 16
"""Digits of a digest that are shown."""


def warning_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    """The warnings, one per line."""
    for place, (report, warning) in enumerate(warnings_of(reports)):
        name = report.scenario.base or report.scenario.name
        where = report.scenario.origin.place(warning.pointer)
        yield f"{'' if place else chr(10)}warning: {name}: {warning.lines[0]} ({where})"


def warnings_of(reports: Sequence[ScenarioReport]) -> Iterator[tuple[ScenarioReport, ScenarioFailure]]:
    """Yield the warnings that occur in every run of a scenario, unless all its runs failed."""
    # One run of a matrix may use rules that another does not; only what no run used is suspicious.
    runs: dict[tuple[str, int], list[ScenarioReport]] = {}
    for report in reports:
        runs.setdefault((report.scenario.origin.source, report.scenario.origin.line), []).append(report)
    for several in runs.values():
        for warning in common_warnings(several) if not all(report.failed for report in several) else ():
            yield several[0], warning


def slowest_lines(reports: Sequence[ScenarioReport], most: int) -> Iterator[str]:
    """List the runs that took longest, in real time."""
    slow = sorted(reports, key=lambda report: -report.wall_time)[:most]
    if slow:
        yield "\nslowest:"
        yield from table(
            [
                (_short(report.wall_time), report.scenario.name, report.scenario.origin.place())
                for report in slow
            ]
        )


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else format_seconds(seconds)


def _row(name: str, reports: Sequence[ScenarioReport]) -> tuple[str, ...]:
    examples = [report for report in reports if "examples" in report.scenario.tags]
    others = [report for report in reports if "examples" not in report.scenario.tags]
    failed = sum(report.failed for report in reports)
    tools = plural(scenarios_of(examples), "tool") + " with examples"
    return (
        name,
        (runs_and_scenarios(others) or plural(len(others), "scenario")) if others else "",
        tools if examples else "",
        plural(len(results_of(reports)), "call"),
        f"{failed} failed" if failed else "ok",
    )


def _verdict(
    runtime: Runtime, reports: Sequence[ScenarioReport], not_run: Sequence[NotRun], duration: float
) -> str:
    calls = results_of(reports)
    failed = sum(report.failed for report in reports)
    passed_runs = sum(report.passed for report in reports)
    unjudged = len(reports) - failed - passed_runs
    virtual = format_seconds(sum(report.duration for report in reports))
    several = runs_and_scenarios(reports)
    told = [f"{failed} failed"] if failed else []
    lost = sum(each.kind == "scenario" and each.outcome is not None for each in not_run)
    told += [f"{lost} not run"] if lost else []
    told += [f"{unjudged} not judged"] if unjudged else []
    told.append(f"{passed_runs if several else plural(passed_runs, 'scenario')} passed")
    colour = "red" if failed or lost else "yellow" if unjudged else "green"
    verdict = click.style(", ".join(told), fg=colour, bold=True)
    tools = plural(len({tool for tool, _result in calls if tool in runtime.registry}), "tool")
    return f"{verdict}{several and f': {several}'} in {format_seconds(duration)} ({virtual} of virtual time), {plural(len(calls), 'call')} of {tools}"


def run_document(
    reports: Sequence[ScenarioReport], not_run: Sequence[NotRun], wall_time: float | None
) -> dict[str, Any]:
    """The reports as one JSON document, in which only `wall_time` differs between two runs of the same; None omits it."""
    calls = results_of(reports)
    document = {
        "passed": sum(report.passed for report in reports),
        "failed": sum(report.failed for report in reports),
        "not_judged": sum(report.verdict == "not judged" for report in reports),
        "skipped": sum(len(report.skipped) for report in reports),
        "runs": len(reports),
        "of_scenarios": scenarios_of(reports),
        "calls": len(calls),
        "outcomes": dict(sorted(Counter(result.outcome.value for _tool, result in calls).items())),
        "duration": round(sum(report.duration for report in reports), 6),
        "scenarios": [report.as_json() for report in reports],
        "not_run": [each._asdict() for each in not_run],
    }
    if wall_time is None:
        return document
    real = [round(report.wall_time, 6) for report in reports]
    return document | {"wall_time": {"total": round(wall_time, 6), "scenarios": real}}


_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, not even escaped; and CR, which XML parsers normalise to LF."""


def junit_text(
    reports: Sequence[ScenarioReport],
    skipped: Iterable[Scenario] = (),
    problems: Sequence[Problem] = (),
    not_run: Iterable[NotRun] = (),
    *,
    duration: float | None,
) -> str:
    """Format JUnit XML: a suite for each file, a case for each run and for each error of a document.

    Args:
        reports: The runs.
        skipped: Scenarios that did not run because an earlier one failed.
        problems: Problems of the documents; only errors become cases.
        not_run: What could not be run; each becomes an error, unless the problems contain it.
        duration: Real duration of the whole run in seconds; None omits all real durations.
    """
    # A document with errors is already a case, as a problem.
    known = {(problem.source, problem.line, problem.code) for problem in problems}
    cases = [
        *((problem.source, _refused(problem)) for problem in problems if problem.severity == "error"),
        *((report.scenario.origin.source, _case(report)) for report in reports),
        *(
            (each.source, _unavailable(each))
            for each in not_run
            if each.outcome is not None and (each.source, each.line, each.code) not in known
        ),
        *((scenario.origin.source, _skipped(scenario)) for scenario in skipped),
    ]
    suites: dict[str, list[ET.Element]] = {}
    for source, case in cases:
        suites.setdefault(source, []).append(case)
    # GitLab, Jenkins and GitHub Actions all read this subset of JUnit XML: `file` and `line` are extensions
    # that GitLab uses.
    root = ET.Element("testsuites", {"name": "toolcrib", **_counts([case for _source, case in cases])})
    root.set("time", _seconds(duration or 0))
    for source, inside in sorted(suites.items()):
        told = {"name": _safe(source), "file": _safe(source), **_counts(inside)}
        suite = ET.SubElement(root, "testsuite", told)
        suite.set("time", _seconds(sum(float(case.get("time", "0")) for case in inside)))
        suite.extend(inside)
    if duration is None:
        for element in root.iter():
            element.attrib.pop("time", None)
    ET.indent(root)
    return f"{_DECLARATION}{ET.tostring(root, encoding='unicode')}\n"


_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _counts(cases: Sequence[ET.Element]) -> dict[str, str]:
    plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    told = {name: sum(case.find(kind) is not None for case in cases) for kind, name in plural.items()}
    return {"tests": str(len(cases)), **{name: str(count) for name, count in told.items()}}


def _case(report: ScenarioReport) -> ET.Element:
    scenario = report.scenario
    case = _element(scenario, report.wall_time)
    properties = ET.SubElement(case, "properties")
    told = {"seed": str(report.seed), "virtual": _seconds(report.duration)}
    told |= {f"matrix.{key}": _text(value) for key, value in scenario.values.items()}
    told |= {"not_judged": str(len(report.skipped))} if report.skipped else {}
    for name, value in told.items():
        ET.SubElement(properties, "property", name=name, value=_safe(value))
    if report.failed:
        first = report.faults[0]
        kind = "error" if first.what == "worker" else "failure"
        message = _safe(f"{first.title}: {first.what}: {first.head}")
        ET.SubElement(case, kind, message=message, type=first.what).text = _safe(str(report))
    elif report.verdict == "not judged":
        ET.SubElement(case, "skipped", message="not judged: all its assertions were skipped")
    lines = [*map(report.warned, report.warnings), *report.skipped_lines]
    if lines:
        ET.SubElement(case, "system-out").text = _safe("\n".join(lines))
    return case


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else compact(value)


def _skipped(scenario: Scenario) -> ET.Element:
    case = _element(scenario, 0)
    ET.SubElement(case, "skipped", message="not run: an earlier scenario failed")
    return case


def _element(scenario: Scenario, duration: float) -> ET.Element:
    return ET.Element(
        "testcase",
        classname=_class(scenario.origin.source),
        name=_safe(scenario.name),
        time=_seconds(duration),
        file=_safe(scenario.origin.source),
        line=str(scenario.origin.line),
    )


def _refused(problem: Problem) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_class(problem.source),
        name=_safe(f"{problem.code} {problem.pointer}".rstrip()),
        time=_seconds(0),
        file=_safe(problem.source),
        line=str(problem.line),
    )
    told = ET.SubElement(case, "error", message=_safe(problem.message), type=problem.code)
    told.text = _safe(str(problem))
    return case


def _unavailable(not_run: NotRun) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_class(not_run.source),
        name=_safe(
            f"{not_run.name or 'file'} ({not_run.kind})" if not_run.kind != "scenario" else not_run.name
        ),
        time=_seconds(0),
        file=_safe(not_run.source),
        line=str(not_run.line),
    )
    ET.SubElement(
        case, "error", message=_safe(f"not run: {not_run.reason}"), type=_safe(str(not_run.outcome))
    )
    return case


def _class(source: str) -> str:
    """Convert a path to a class name, by which viewers group cases: `packs.words.scenarios.wait`."""
    path = PurePath(source)
    parts = [*path.parts[:-1], path.name.partition(".")[0] or path.name]
    # Viewers split class names at dots.
    return _safe(".".join(part.replace(".", "_") for part in parts if part not in {"/", "."}))


def _seconds(span: float) -> str:
    return f"{span:.6f}"


def _safe(text: str) -> str:
    r"""Replace characters that XML cannot contain with escapes such as `\x1b`."""
    return _FORBIDDEN.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class GoldenUpdate(NamedTuple):
    """The result of updating one golden file.

    Attributes:
        place: The file.
        what: `wrote`, `updated`, or why the file was not written.
        failed: Whether the file was not written.
    """

    place: str
    what: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.failed else f"{self.what} {self.place}"


class _Wish(NamedTuple):
    """The content that one run gives a golden file."""

    report: ScenarioReport
    change: GoldenChange

    @property
    def place(self) -> str:
        folder = PurePath(self.report.scenario.origin.source).parent
        return (folder / self.change.name).as_posix()


def update_goldens(reports: Sequence[ScenarioReport]) -> list[GoldenUpdate]:
    """Write the golden files that are missing or differ, in the order of the runs."""
    wanted: dict[Path, list[_Wish]] = {}
    told = []
    for wish in _wishes(reports):
        try:
            # Raises for a path outside the folder of the scenario, or inside an archive, which cannot be
            # written.
            path = golden_path(wish.report.scenario.origin.files, wish.change.name)
        except OSError as error:
            told.append(GoldenUpdate(wish.place, str(error), failed=True))
        else:
            wanted.setdefault(path, []).append(wish)
    return [*told, *(_updated(path, wishes) for path, wishes in wanted.items())]


def _wishes(reports: Sequence[ScenarioReport]) -> Iterator[_Wish]:
    for report in reports:
        for step in report.steps:
            if step.golden is not None:
                yield _Wish(report, step.golden)


def _updated(path: Path, wishes: Sequence[_Wish]) -> GoldenUpdate:
    texts = {golden_text(wish.change.value): wish for wish in wishes}
    # If two runs share a file but differ, writing either one would make the other fail next time.
    (text, first), *others = texts.items()
    if others:
        names = f"`{first.report.scenario.name}` and `{others[0][1].report.scenario.name}`"
        hint = "add what differs to the name of the file, such as `{{ matrix.city }}` or `{{ run }}`"
        return GoldenUpdate(
            first.place, f"not written: {names} return different results; {hint}", failed=True
        )
    # The loader refuses larger files, so the next run could not read it.
    if len(text.encode()) > BYTES:
        return GoldenUpdate(first.place, f"not written: the golden file exceeds {BYTES:,} bytes", failed=True)
    try:
        write_atomically(path, text)
    except OSError as error:
        return GoldenUpdate(first.place, f"not written: {error.strerror or error}", failed=True)
    return GoldenUpdate(first.place, "wrote" if first.change.missing else "updated")
