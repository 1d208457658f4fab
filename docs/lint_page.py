"""The page of lint rules: what each finds, an example in which it finds something, and the example corrected."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.executors import Executors
from toolcrib.formats.providers.tokens import estimate_tokens
from toolcrib.lint.linter import Report, lint
from toolcrib.lint.rule import LintedTool, LintedTools, LintRule
from toolcrib.lint.rules import RULES
from toolcrib.loading.sources import parse

MOST_LINES = 14
"""Lines of an example on the page."""

WIDEST = 120
"""Characters of a line of an example on the page."""


def reports_of(text: str, source: str = "tools.yaml") -> list[Report]:
    """What all rules find in some descriptors, without errors of the documents."""
    read = parse(source, text, Executors.installed())
    assert not [problem for problem in read.problems if problem.severity == "error"], read.problems
    tools = [LintedTool(tool) for tool in read.tools]
    offered = frozenset(each.tool.name for each in tools)
    linted = LintedTools(tools, offered=offered, count_tokens=estimate_tokens)
    return lint(linted, [*RULES.values()], lambda _source: text)


def shown(text: str) -> str:
    """An example as the page shows it: not long, not wide, and without hidden characters."""
    lines = text.rstrip("\n").splitlines()
    cut = [line if len(line) <= WIDEST else f"{line[:WIDEST]}..." for line in lines[:MOST_LINES]]
    more = [f"# ... and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*cut, *more]).replace("\u200b", "\\u200b")


def section(rule: LintRule) -> Iterator[str]:
    """The lines about a rule."""
    fix = f" `--fix` {rule.fix}." if rule.fix else ""
    yield f"### {rule.name}\n"
    yield f"*{rule.severity}.* {rule.summary} {rule.why}{fix}\n"
    yield f"```yaml\n{shown(rule.bad)}\n```\n"
    found = next(report.problem for report in reports_of(rule.bad) if report.problem.code == rule.name)
    hint = f"; {found.hint}" if found.hint else ""
    yield f"> {found.message}{hint}.\n"
    yield f"Better:\n\n```yaml\n{shown(rule.good)}\n```\n"
