"""Apply rules to tools: severities and exceptions of the project, comments that silence rules, and the places of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.pointers import file_and_line
from toolcrib.lint.ignore_comments import UNUSED, IgnoreComment, ignore_comments, unused_problems
from toolcrib.lint.rule import Edit, LintBudget, LintedTools, LintFinding, LintRule, LintSettings, document_of
from toolcrib.lint.rules import RULES
from toolcrib.loading.projects import Project


class Report(NamedTuple):
    """A finding in its place.

    Attributes:
        problem: The rule as code, the message and the place.
        tool: Name of the tool; empty for the tools together.
        edit: The correction of the value, if there is one.
        replaced: Text of a comment in this place that is replaced, and what stands there instead; None for another finding.
    """

    problem: Problem
    tool: str = ""
    edit: Edit | None = None
    replaced: tuple[str, str] | None = None

    @property
    def fixable(self) -> bool:
        """Whether `--fix` corrects it."""
        return self.edit is not None or self.replaced is not None


def lint_settings(project: Project | None) -> LintSettings:
    """The settings of a project."""
    said: Mapping[str, Any] = project.lint if project is not None else NOTHING
    if project is None or not said:
        return LintSettings()
    return LintSettings(
        rules=said.get("rules", NOTHING),
        ignore={glob: tuple(rules) for glob, rules in said.get("ignore", {}).items()},
        budget=LintBudget(**said.get("budget", {})),
        place=project.origin.place("/lint"),
    )


def lint(
    linted: LintedTools,
    rules: Sequence[LintRule],
    read: Callable[[str], str],
    is_selected: Callable[[str], bool] = lambda _source: True,
) -> list[Report]:
    """Apply rules, and return what they found, sorted by place.

    Args:
        linted: The tools. All of them are compared with each other, also if only some files are selected.
        rules: The rules.
        read: File -> its text; empty if it cannot be read.
        is_selected: Whether findings in a file are reported.
    """
    settings = linted.settings
    applied = [rule for rule in rules if settings.rules.get(rule.name) != "off"]
    # An ignored rule is applied nevertheless: only so it is known that there is something to ignore.
    comments = _Comments(read)
    for each in linted.tools:
        comments.of(each.tool.origin.source)
    idle = {(glob, rule) for glob, listed in settings.ignore.items() for rule in listed}
    reports: dict[tuple[str, str, str, str, int], Report] = {}
    for rule in applied:
        severity = _severity(rule, settings)
        for finding in rule.check(linted):
            problem = _placed(rule, severity, finding, settings)
            name = finding.tool.name if finding.tool is not None else ""
            globs = [
                glob
                for glob, listed in settings.ignore.items()
                if rule.name in listed and fnmatchcase(name, glob)
            ]
            idle -= {(glob, rule.name) for glob in globs}
            if comments.silence(problem) or globs or not is_selected(problem.source):
                continue
            key = (rule.name, name, problem.pointer, problem.message, problem.line)
            # A rule may meet a place twice, such as a reused definition.
            reports.setdefault(key, Report(problem, name, finding.edit))
    found = [*reports.values(), *_unused(comments, idle, applied, settings, is_selected)]
    return sorted(found, key=lambda report: _order(report.problem))


def _unused(
    comments: _Comments,
    idle: set[tuple[str, str]],
    applied: Sequence[LintRule],
    settings: LintSettings,
    is_selected: Callable[[str], bool],
) -> Iterator[Report]:
    """Yield what ignores nothing: comments, and entries of the project."""
    names = [rule.name for rule in applied]
    if UNUSED.name not in names:
        return
    severity = _severity(UNUSED, settings)
    for source, found in comments.found.items():
        if is_selected(source):
            for problem, comment, instead in unused_problems(source, found, RULES, names):
                yield Report(problem._replace(severity=severity), replaced=(comment.text, instead))
    for glob, rule in sorted(idle):
        if rule in names:
            yield Report(_idle(glob, rule, severity, settings))


def _order(problem: Problem) -> tuple[str, int, int, str, str]:
    return (problem.source, problem.line, problem.column, problem.code, problem.pointer)


def _severity(rule: LintRule, settings: LintSettings) -> Severity:
    said = settings.rules.get(rule.name, rule.severity)
    return rule.severity if said == "off" else said


def _idle(glob: str, rule: str, severity: Severity, settings: LintSettings) -> Problem:
    source, line = file_and_line(settings.place)
    return Problem(
        code=UNUSED.name,
        message=f"`lint.ignore` of the project ignores nothing of `{rule}` for `{glob}`",
        hint="remove it",
        severity=severity,
        source=source,
        line=line,
        column=1,
    )


def _placed(rule: LintRule, severity: Severity, finding: LintFinding, settings: LintSettings) -> Problem:
    """The finding as a problem, in the line of the key that it is about."""
    problem = Problem(
        code=rule.name,
        message=finding.message,
        pointer=finding.pointer,
        hint=finding.hint,
        severity=severity,
    )
    if finding.tool is None:
        source, line = file_and_line(settings.place)
        return problem.at(source, line, 1)
    return _in_document(problem, finding.tool)


_SERVED = ("description", "input_schema")
"""Keys of a descriptor that a server or a module provides, if its document does not."""


def _in_document(problem: Problem, tool: Descriptor) -> Problem:
    document = document_of(tool)
    origin = tool.origin
    # The tools of a server share the place of the server.
    if not origin.settings.keys().isdisjoint(_SERVED) and f"`{tool.name}`" not in problem.message:
        problem = problem._replace(message=f"`{tool.name}`: {problem.message}")
    if document is None or origin.overrides:
        file, line = file_and_line(origin.place(problem.pointer))
        return problem.at(file, line or origin.line, 1)
    if document.is_composed:
        return document.place(problem)
    line, column = document.position(problem.pointer, key=True) if problem.pointer else (document.line, 1)
    pointer = document.original_pointer(problem.pointer)
    return problem._replace(pointer=pointer).at(document.source, line, column)


class _Comments:
    """The comments of files that silence rules.

    Attributes:
        found: File -> its comments.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self.found: dict[str, list[IgnoreComment]] = {}

    def of(self, source: str) -> Iterator[IgnoreComment]:
        """The comments of a file."""
        if source not in self.found:
            self.found[source] = ignore_comments(source, self._read(source))
        return iter(self.found[source])

    def silence(self, problem: Problem) -> bool:
        """Whether a comment silences a problem. All that do are asked, so that each counts as used."""
        return sum(comment.silences(problem.code, problem.line) for comment in self.of(problem.source)) > 0
