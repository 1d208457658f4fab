"""`toolcrib lint`: print what a model will misread in the tools, and correct what needs no decision."""

from __future__ import annotations

import difflib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib import __version__
from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    NO_SOURCES,
    ReadOptions,
    has_no_sources,
    json_option,
    paths_argument,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unqueried_servers,
    print_why_closed,
    read_options,
)
from toolcrib.cli.output import (
    USUAL_WIDTH,
    json_text,
    plural,
    problem_lines,
    terminal_width,
    write_atomically,
)
from toolcrib.cli.run_targets import Target, open_targets_offline
from toolcrib.cli.validate import annotation, is_selected
from toolcrib.core.errors import Severity, did_you_mean
from toolcrib.core.model import Descriptor
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.providers.tokens import token_counter
from toolcrib.lint.corrections import corrected
from toolcrib.lint.linter import Report, lint, lint_settings
from toolcrib.lint.rule import LintedTool, LintedTools, LintRule
from toolcrib.lint.rules import RULES
from toolcrib.lint.sarif import sarif_document
from toolcrib.registry.catalog import card_of, fits_conditions

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "notice")


@click.command("lint")
@paths_argument
@click.option("--select", multiple=True, metavar="RULE", help="Only apply this rule. Can be repeated.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not apply this rule. Can be repeated.")
@click.option("--fix", is_flag=True, help="Correct the documents where no decision is needed.")
@click.option("--diff", "as_diff", is_flag=True, help="Only print what `--fix` would change.")
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "nothing"]),
    default="warning",
    show_default=True,
    help="Exit with 1 if there is a finding that is at least so serious.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@json_option
@click.option("--list-rules", is_flag=True, help="List the rules, and lint nothing.")
@click.option("--explain", metavar="RULE", help="Explain a rule with an example, and lint nothing.")
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    as_diff: bool,
    fail_on: str,
    form: str,
    as_json: bool,
    list_rules: bool,
    explain: str | None,
    reading: ReadOptions,
) -> None:
    """Find what a model will misread: descriptions, parameters, names, costs, and tools that it cannot tell apart.

    Without PATH: the project, or the folders `descriptors` and `packs`. `# lint: ignore[RULE]` in a document silences a
    finding; `lint` of the project sets severities and the budget. No server is contacted and no code is run. Exits with 1 if
    there is a finding of the severity `--fail-on` or a document has errors, and with 3 if there is nothing to lint.
    """
    if as_json and form not in {"text", "json"}:
        raise click.UsageError(f"`--json` and `--format {form}` are two output formats; use only one of them")
    form = "json" if as_json else form
    if explain is not None or list_rules:
        for line in _explained(_named(explain)) if explain is not None else _listed(as_json=form == "json"):
            click.echo(line)
        return
    rules = _selected(select, ignore)
    opened = _open(reading, paths)
    reports = _reports(opened, rules)
    for tell in (print_refusals, print_unqueried_servers, print_unimported_sources, print_unimported_tools):
        tell(opened.runtime)
    if fix or as_diff:
        fixes = _corrections(opened, reports)
        if as_diff:
            for file, (old, new) in fixes.items():
                click.echo(_difference(file, old, new), nl=False)
            ctx.exit(exit_codes.PROBLEMS if fixes else exit_codes.OK)
        if fixes:
            opened = _corrected(opened, fixes, reading, paths)
            reports = _reports(opened, rules)
    for line in _FORMS[form](opened, reports, rules):
        click.echo(line)
    print_why_closed(opened.runtime)
    ctx.exit(_exit_code(opened, reports, fail_on))


def _named(name: str) -> LintRule:
    if name not in RULES:
        hint = did_you_mean(name, RULES) or "`toolcrib lint --list-rules` lists them"
        raise click.UsageError(escape_terminal(f"unknown rule `{name}`; {hint}"))
    return RULES[name]


def _selected(select: Sequence[str], ignore: Sequence[str]) -> list[LintRule]:
    """The rules of `--select`, or all, without those of `--ignore`."""
    chosen = [_named(name).name for name in select] or [*RULES]
    left_out = {_named(name).name for name in ignore}
    return [RULES[name] for name in dict.fromkeys(chosen) if name not in left_out]


class _Opened(NamedTuple):
    """What is linted.

    Attributes:
        runtime: The runtime.
        targets: The paths whose findings are reported; empty for all.
    """

    runtime: Runtime
    targets: tuple[Target, ...]

    @property
    def tools(self) -> int:
        """Number of tools whose findings are reported."""
        return sum(is_selected(tool.origin.source, self.targets) for tool in self.runtime.registry.values())


def _open(reading: ReadOptions, paths: Sequence[str]) -> _Opened:
    targets = tuple(map(Target, paths))
    # The index keeps no places of keys.
    return _Opened(open_targets_offline(reading._replace(indexed=False), targets), targets)


def _reports(opened: _Opened, rules: Sequence[LintRule]) -> list[Report]:
    runtime, counting = opened.runtime, token_counter()
    registry, project = runtime.registry, runtime.project
    linted = LintedTools(
        tools=[LintedTool(registry[name]) for name in sorted(registry)],
        offered=frozenset(name for name in registry if registry.hidden(name) is None),
        count_tokens=counting.count,
        exact=counting.exact,
        called=frozenset(step.call for each in runtime.scenarios for step in each.written_calls),
        asks=_asks(runtime),
        settings=lint_settings(project),
    )
    return lint(linted, rules, _text, lambda source: is_selected(source, opened.targets))


def _asks(runtime: Runtime) -> Callable[[Descriptor], bool]:
    """Whether a rule of the project asks a person about calls of a tool, or denies them."""
    access = runtime.project.access if runtime.project is not None else None
    if access is None:
        return lambda _tool: False
    rules = [rule.conditions for rule in access.rules if rule.effect in {"ask", "deny"}]

    def asks(tool: Descriptor) -> bool:
        card = card_of(tool)
        return access.default != "allow" or any(fits_conditions(card, conditions) for conditions in rules)

    return asks


def _text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8") if os.path.isfile(source) else ""
    except (OSError, UnicodeDecodeError):
        return ""


# Corrections.


def _corrections(opened: _Opened, reports: Sequence[Report]) -> dict[str, tuple[str, str]]:
    """File -> its text and the corrected one."""
    by_file: dict[str, list[Report]] = {}
    for report in reports:
        if report.fixable and os.path.isfile(report.problem.source):
            by_file.setdefault(report.problem.source, []).append(report)
    found: dict[str, tuple[str, str]] = {}
    lines = {tool.name: tool.origin.line for tool in opened.runtime.registry.values()}
    for file, listed in by_file.items():
        # Line ends are kept as they are.
        old = Path(file).read_bytes().decode("utf-8")
        new = corrected(old, listed, partial(_line_of, lines))
        if new != old:
            found[file] = (old, new)
    return found


def _line_of(lines: Mapping[str, int], report: Report) -> int:
    return lines.get(report.tool, 0)


def _corrected(
    opened: _Opened, fixes: Mapping[str, tuple[str, str]], reading: ReadOptions, paths: Sequence[str]
) -> _Opened:
    """Write the corrections, and read everything again. All files are restored if a tool got lost."""
    before = {*opened.runtime.registry}
    try:
        for file, (_old, new) in fixes.items():
            write_atomically(Path(os.path.realpath(file)), new)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{file} cannot be written: {error.strerror}")) from error
    again = _open(reading, paths)
    lost = sorted(before - {*again.runtime.registry})
    if lost:
        for file, (old, _new) in fixes.items():
            write_atomically(Path(os.path.realpath(file)), old)
        # A changed file of a signed pack is refused.
        message = f"nothing was changed, because `{lost[0]}` would be refused; correct its document by hand"
        raise click.ClickException(escape_terminal(message))
    for file in fixes:
        click.echo(escape_terminal(f"corrected {file}"), err=True)
    return again


def _difference(file: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{file}", f"b/{file}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


# Reports.


def _as_text(opened: _Opened, reports: Sequence[Report], _rules: Sequence[LintRule]) -> Iterator[str]:
    width = (terminal_width() or USUAL_WIDTH) if sys.stdout.isatty() else None
    yield from problem_lines([report.problem for report in reports], width=width)
    yield _summary(opened, reports)


def _as_github(opened: _Opened, reports: Sequence[Report], _rules: Sequence[LintRule]) -> Iterator[str]:
    yield from (annotation(report.problem) for report in reports)
    yield _summary(opened, reports)


def _as_json(opened: _Opened, reports: Sequence[Report], _rules: Sequence[LintRule]) -> Iterator[str]:
    counts = _counts(reports)
    yield json_text(
        {
            "problems": [
                {**report.problem._asdict(), "tool": report.tool, "fixable": report.fixable}
                for report in reports
            ],
            "errors": counts["error"],
            "warnings": counts["warning"],
            "notices": counts["notice"],
            "tools": opened.tools,
        }
    )


def _as_sarif(_opened: _Opened, reports: Sequence[Report], rules: Sequence[LintRule]) -> Iterator[str]:
    top = os.environ.get("GITHUB_WORKSPACE") or "."
    yield json_text(sarif_document(reports, rules, version=__version__, top=top))


_FORMS: Mapping[str, Callable[[_Opened, Sequence[Report], Sequence[LintRule]], Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "sarif": _as_sarif,
    "github": _as_github,
}


def _counts(reports: Sequence[Report]) -> Counter[str]:
    return Counter(report.problem.severity for report in reports)


def _summary(opened: _Opened, reports: Sequence[Report]) -> str:
    if not opened.tools:
        why = NO_SOURCES if has_no_sources(opened.runtime) else "no tools"
        return f"nothing to lint: {why}"
    if not reports:
        return f"{plural(opened.tools, 'tool')}: no findings"
    counts = _counts(reports)
    told = ", ".join(plural(counts[kind], kind) for kind in _SEVERITIES if counts[kind])
    fixable = sum(report.fixable for report in reports)
    more = f"; `--fix` corrects {fixable}" if fixable else ""
    return f"{plural(opened.tools, 'tool')}: {told}{more}"


def _exit_code(opened: _Opened, reports: Sequence[Report], fail_on: str) -> int:
    errors = any(problem.severity == "error" for problem in opened.runtime.problems)
    if not opened.tools and not (errors and not has_no_sources(opened.runtime)):
        return exit_codes.NOTHING_SELECTED
    failing = _SEVERITIES[: _SEVERITIES.index(fail_on) + 1] if fail_on in _SEVERITIES else ()
    failed = errors or any(report.problem.severity in failing for report in reports)
    return exit_codes.PROBLEMS if failed else exit_codes.OK


# Rules.


def _listed(*, as_json: bool) -> Iterator[str]:
    if as_json:
        rules: list[dict[str, Any]] = [
            {
                "name": rule.name,
                "severity": rule.severity,
                "summary": rule.summary,
                "why": rule.why,
                "fix": rule.fix,
            }
            for rule in RULES.values()
        ]
        yield json_text({"rules": rules})
        return
    width = max(map(len, RULES))
    for rule in RULES.values():
        yield f"{rule.name:{width}}  {rule.severity:7}  {rule.summary}{' [--fix]' if rule.fix else ''}"


def _explained(rule: LintRule) -> Iterator[str]:
    yield f"{rule.name} ({rule.severity})"
    yield f"{rule.summary} {rule.why}"
    if rule.fix:
        yield f"`--fix` {rule.fix}."
    for title, text in (("Bad", rule.bad), ("Good", rule.good)):
        yield f"\n{title}:"
        shown = text.splitlines()
        yield from (f"    {line}" for line in shown[:30])
        if len(shown) > 30:
            yield "    ..."
