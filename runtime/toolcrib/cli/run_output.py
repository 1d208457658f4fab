"""What `toolcrib run` writes: totals for people and programs, JUnit XML for CI servers, and golden files.

The XML has the shape that GitLab, Jenkins and GitHub Actions read.
"""

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
    """Every call of a run: the tool's name and what it answered."""
    return [
        (step.step.call, step.result)
        for report in reports
        for step in report.steps
        if step.result is not None
    ]


def group_of(scenario: Scenario) -> str:
    """Where a scenario belongs: its pack, else the folder of its file."""
    return scenario.origin.pack or PurePath(scenario.origin.source).parent.as_posix()


def scenarios_of(reports: Sequence[ScenarioReport]) -> int:
    """How many scenarios the reports are about; one may have several runs."""
    scenarios = (report.scenario for report in reports)
    return len({(one.origin.source, one.origin.line, one.base or one.name) for one in scenarios})


def runs_and_scenarios(reports: Sequence[ScenarioReport]) -> str:
    """`12 runs of 5 scenarios`; empty where each scenario has one run."""
    scenarios = scenarios_of(reports)
    if scenarios == len(reports):
        return ""
    return f"{plural(len(reports), 'run')} of {plural(scenarios, 'scenario')}"


def format_seconds(seconds: float) -> str:
    """A span of time for people: `0.21 s`, `12 s`, `3 m 20 s`, `2 h 14 m`."""
    if seconds < 10:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} m"


def summary_lines(
    runtime: Runtime, reports: Sequence[ScenarioReport], not_run: Sequence[NotRun], duration: float
) -> Iterator[str]:
    """The summary: a line for each pack or folder, the tools by mode, the outcomes, what is missing, the verdict."""
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
"""Of what was not run or not judged, as many are named."""


def not_run_lines(not_run: Sequence[NotRun]) -> Iterator[str]:
    """What was not run and should have been, and files that were left out, a line each."""
    left = [each for each in not_run if each.outcome is not None or each.kind == "file"]
    if left:
        yield "\nnot run:"
        yield from (f"  {each}" for each in left[:NAMED])
        yield from ([f"  and {len(left) - NAMED} more"] if len(left) > NAMED else [])


def skipped_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    """Which assertions and guardrails were not judged, a line for each scenario and reason."""
    lines: dict[str, None] = {}
    for report in reports:
        reasons: dict[str, list[str]] = {}
        for skip in report.skipped:
            reasons.setdefault(truncate(skip.found, BRIEF), []).append(f"`{skip.named}`")
        name = report.scenario.base or report.scenario.name
        for reason, names in reasons.items():
            lines[f"  {name}: {', '.join(names)}: {reason} ({report.scenario.origin.place()})"] = None
    if lines:
        yield "\nnot judged:"
        yield from [*lines][:NAMED]
        yield from ([f"  and {len(lines) - NAMED} more"] if len(lines) > NAMED else [])


def missing_lines(reports: Sequence[ScenarioReport], not_run: Sequence[NotRun]) -> Iterator[str]:
    """What is in no total: what could not be run, what was left out on purpose, and what was not judged."""
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
        yield f"the examples of {plural(count, 'tool')} were left out: {reason}"


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
    """Each run in a line: how it ended, its calls, its virtual time, the beginning of the digest of its trace."""
    if reports:
        yield ""
        yield from table(
            [
                (
                    report.verdict,
                    report.scenario.name,
                    plural(len(results_of([report])), "call"),
                    format_seconds(report.virtual),
                    report.digest[:DIGITS],
                )
                for report in reports
            ]
        )


DIGITS = 16
"""Of a digest, as many as people compare."""


def warning_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    """The warnings, a line each."""
    for place, (report, warning) in enumerate(warnings_of(reports)):
        name = report.scenario.base or report.scenario.name
        where = report.scenario.origin.place(warning.pointer)
        yield f"{'' if place else chr(10)}warning: {name}: {warning.lines[0]} ({where})"


def warnings_of(reports: Sequence[ScenarioReport]) -> Iterator[tuple[ScenarioReport, ScenarioFailure]]:
    """What is odd about scenarios of which not all runs failed: only what is so in each of their runs."""
    runs: dict[tuple[str, int], list[ScenarioReport]] = {}
    for report in reports:
        runs.setdefault((report.scenario.origin.source, report.scenario.origin.line), []).append(report)
    for several in runs.values():
        for warning in common_warnings(several) if not all(report.failed for report in several) else ():
            yield several[0], warning


def slowest_lines(reports: Sequence[ScenarioReport], most: int) -> Iterator[str]:
    """Which took longest, in real time."""
    slow = sorted(reports, key=lambda report: -report.duration)[:most]
    if slow:
        yield "\nslowest:"
        yield from table(
            [
                (_short(report.duration), report.scenario.name, report.scenario.origin.place())
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
    virtual = format_seconds(sum(report.virtual for report in reports))
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
    reports: Sequence[ScenarioReport], not_run: Sequence[NotRun], duration: float
) -> dict[str, Any]:
    """The run as one JSON document."""
    calls = results_of(reports)
    return {
        "passed": sum(report.passed for report in reports),
        "failed": sum(report.failed for report in reports),
        "not_judged": sum(report.verdict == "not judged" for report in reports),
        "skipped": sum(len(report.skipped) for report in reports),
        "runs": len(reports),
        "of_scenarios": scenarios_of(reports),
        "calls": len(calls),
        "outcomes": dict(sorted(Counter(result.outcome.value for _tool, result in calls).items())),
        "duration": round(duration, 6),
        "virtual": round(sum(report.virtual for report in reports), 6),
        "scenarios": [report.as_json() for report in reports],
        "not_run": [each._asdict() for each in not_run],
    }


_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't hold, not even escaped; and CR, which readers turn into LF."""


def junit_text(
    reports: Sequence[ScenarioReport],
    skipped: Iterable[Scenario] = (),
    problems: Sequence[Problem] = (),
    not_run: Iterable[NotRun] = (),
    *,
    duration: float,
) -> str:
    """The whole document: a suite for each file, a case for each run and for each error of a document.

    Args:
        reports: What ran.
        skipped: What was to run and did not.
        problems: What is wrong with documents; only errors count.
        not_run: What could not be run: an error each, but for what is among the problems.
        duration: Seconds of the whole run.
    """
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
    root = ET.Element("testsuites", {"name": "toolcrib", **_counts([case for _source, case in cases])})
    root.set("time", _seconds(duration))
    for source, inside in sorted(suites.items()):
        told = {"name": _safe(source), "file": _safe(source), **_counts(inside)}
        suite = ET.SubElement(root, "testsuite", told)
        suite.set("time", _seconds(sum(float(case.get("time", "0")) for case in inside)))
        suite.extend(inside)
    ET.indent(root)
    return f"{_DECLARATION}{ET.tostring(root, encoding='unicode')}\n"


_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _counts(cases: Sequence[ET.Element]) -> dict[str, str]:
    plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    told = {name: sum(case.find(kind) is not None for case in cases) for kind, name in plural.items()}
    return {"tests": str(len(cases)), **{name: str(count) for name, count in told.items()}}


def _case(report: ScenarioReport) -> ET.Element:
    scenario = report.scenario
    case = _element(scenario, report.duration)
    properties = ET.SubElement(case, "properties")
    told = {"seed": str(report.seed), "virtual": _seconds(report.virtual)}
    told |= {f"matrix.{key}": _text(value) for key, value in scenario.values.items()}
    for name, value in told.items():
        ET.SubElement(properties, "property", name=name, value=_safe(value))
    if report.failed:
        first = report.faults[0]
        kind = "error" if first.what == "worker" else "failure"
        message = _safe(f"{first.title}: {first.what}: {first.head}")
        ET.SubElement(case, kind, message=message, type=first.what).text = _safe(str(report))
    elif report.verdict == "not judged":
        ET.SubElement(case, "skipped", message="not judged: all that it asserts was skipped")
    lines = [*map(report.warned, report.warnings), *report.skipped_lines]
    if lines:
        ET.SubElement(case, "system-out").text = _safe("\n".join(lines))
    return case


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else compact(value)


def _skipped(scenario: Scenario) -> ET.Element:
    case = _element(scenario, 0)
    ET.SubElement(case, "skipped", message="it did not run: an earlier one failed")
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
    """A file as viewers group by: `packs.words.scenarios.wait`, its endings and dots left out."""
    path = PurePath(source)
    parts = [*path.parts[:-1], path.name.partition(".")[0] or path.name]
    return _safe(".".join(part.replace(".", "_") for part in parts if part not in {"/", "."}))


def _seconds(span: float) -> str:
    return f"{span:.6f}"


def _safe(text: str) -> str:
    r"""The text with `\x1b` in place of a character that XML can't hold."""
    return _FORBIDDEN.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class GoldenUpdate(NamedTuple):
    """What became of one golden file.

    Attributes:
        place: The file.
        what: `wrote`, `updated`, or why neither could be.
        failed: Whether it is not as the runs want it.
    """

    place: str
    what: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.failed else f"{self.what} {self.place}"


class _Wish(NamedTuple):
    """What one run wants a golden file to hold."""

    report: ScenarioReport
    change: GoldenChange

    @property
    def place(self) -> str:
        folder = PurePath(self.report.scenario.origin.source).parent
        return (folder / self.change.name).as_posix()


def update_goldens(reports: Sequence[ScenarioReport]) -> list[GoldenUpdate]:
    """Write the golden files that are missing or differ, in order of the runs."""
    wanted: dict[Path, list[_Wish]] = {}
    told = []
    for wish in _wishes(reports):
        try:
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
    (text, first), *others = texts.items()
    if others:
        names = f"`{first.report.scenario.name}` and `{others[0][1].report.scenario.name}`"
        hint = "name the file after what is different, such as `{{ matrix.city }}` or `{{ run }}`"
        return GoldenUpdate(first.place, f"not written: {names} answer differently; {hint}", failed=True)
    if len(text.encode()) > BYTES:
        return GoldenUpdate(
            first.place, f"not written: a golden file has at most {BYTES:,} bytes", failed=True
        )
    try:
        write_atomically(path, text)
    except OSError as error:
        return GoldenUpdate(first.place, f"not written: {error.strerror or error}", failed=True)
    return GoldenUpdate(first.place, "wrote" if first.change.missing else "updated")
