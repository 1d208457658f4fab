"""A run as JUnit XML, in the shape that GitLab, Jenkins and GitHub actions read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from xml.etree import ElementTree as ET

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.scenarios import NotRun, ScenarioReport

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
