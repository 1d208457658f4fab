"""`toolcrib validate`: print every problem of every file; and format problems as GitHub workflow commands."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    NO_SOURCES,
    ReadOptions,
    has_no_sources,
    json_option,
    paths_argument,
    read_options,
    told_while_waiting,
)
from toolcrib.cli.output import USUAL_WIDTH, json_text, plural, problem_lines, terminal_width
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.run_targets import Target, open_targets
from toolcrib.cli.trust import trust_hint
from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Unavailable
from toolcrib.engine.startup import check_offer
from toolcrib.loading.snapshot import sorted_problems
from toolcrib.scenarios.static_checks import run_static_checks
from toolcrib.security.trust import TrustRequest, Untrusted, describe_need


@click.command("validate")
@paths_argument
@click.option("--strict", is_flag=True, help="Treat warnings and notices as errors.")
@click.option(
    "--deep/--shallow", default=True, help="Also test what mocks return, or only check the documents."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    paths: tuple[str, ...],
    strict: bool,
    deep: bool,
    form: str,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Check descriptors, packs and scenarios, and test what mocks return.

    Without PATH: the project, or the folders `descriptors` and `packs`. A part of a project has the tools of the whole
    project. Exits with 1 if there is an error, and with 3 if there is nothing to check.
    """
    if as_json and form == "github":
        raise click.UsageError("`--json` and `--format github` are two output formats; use only one of them")
    targets = tuple(map(Target, paths))
    # Locked servers are queried, too, to find out whether they still offer what was locked.
    runtime = open_targets(reading, targets, everything=not any(target.is_inner for target in targets))
    engine_of(runtime).trust.told = True  # denials are reported as problems below
    told = [
        *runtime.problems,
        *check_offer(runtime.registry, engine_of(runtime).stock),
        *run_static_checks(runtime),
        *(asyncio.run(_proved(runtime)) if deep else ()),
    ]
    problems = [
        *(each for each in told if each.code != Untrusted.code and is_selected(each.source, targets)),
        *_untrusted(told, engine_of(runtime).trust.refused),
    ]
    if strict:
        problems = [problem._replace(severity="error") for problem in problems]
    problems = [] if has_no_sources(runtime) else [*sorted_problems(problems)]
    checked = _checked(runtime, targets)
    for line in _FORMS["json" if as_json else form](problems, checked):
        click.echo(line)
    errors = [problem.code for problem in problems if problem.severity == "error"]
    if errors and {*errors} == {Untrusted.code}:
        ctx.exit(exit_codes.OF_OUTCOME[Outcome.DENIED])
    if not problems and checked.why_nothing:
        ctx.exit(exit_codes.NOTHING_SELECTED)
    ctx.exit(exit_codes.PROBLEMS if errors else exit_codes.OK)


class _Checked(NamedTuple):
    """What was checked.

    Attributes:
        tools: Number of tools.
        packs: Number of packs.
        scenarios: Number of scenarios.
        why_nothing: Why nothing was; empty otherwise.
    """

    tools: int
    packs: int
    scenarios: int
    why_nothing: str


def _checked(runtime: Runtime, targets: Sequence[Target]) -> _Checked:
    tools, packs, scenarios = (
        sum(is_selected(each.origin.source, targets) for each in read)
        for read in (runtime.registry.values(), runtime.packs, runtime.scenarios)
    )
    why = ""
    if has_no_sources(runtime):
        why = f"{NO_SOURCES}\n    hint: `toolcrib init` creates a first one"
    elif not (tools or packs or scenarios or _has_others(runtime, targets)):
        places = [target.path for target in targets] or engine_of(runtime).stock.sources
        why = f"no tools, packs or scenarios in {', '.join(places)}"
    return _Checked(tools, packs, scenarios, escape_terminal(why))


def _has_others(runtime: Runtime, targets: Sequence[Target]) -> bool:
    """Whether a project or servers were read for themselves, and not for the targets."""
    return bool(runtime.servers or runtime.project) and not any(target.is_inner for target in targets)


def is_selected(source: str, targets: Sequence[Target]) -> bool:
    """Whether a file is to be checked; the rest of a project is only read for it."""
    return not (targets and source) or any(target.has(source) for target in targets)


def _untrusted(told: Sequence[Problem], refused: Sequence[TrustRequest]) -> Iterator[Problem]:
    """Replace the trust problems of single servers by one for each untrusted workspace, with all its needs."""
    # Servers are denied one by one, but trust is given to a whole workspace.
    first = next((problem for problem in told if problem.code == Untrusted.code), None)
    if first is None:
        return
    for request in refused:
        workspace = request.workspace
        changed = " any more: what it needs has changed" if request.before is not None else ""
        needs = ", ".join(dict.fromkeys(map(describe_need, (*request.needs, *request.undeclared))))
        message = f"the {workspace.kind} {workspace.root} is not trusted{changed}; it would {needs}"
        yield first._replace(message=message, hint=trust_hint(request))


async def _proved(runtime: Runtime) -> Sequence[Problem]:
    from toolcrib.scenarios.self_check import run_self_check  # noqa: PLC0415 -- `--shallow` does not need jsonschema, which is slow to import

    # stdout is for the report, whatever the code of a Python tool prints.
    testing = f"testing the mocks of {plural(len(runtime.registry), 'tool')}"
    with redirected_stdout(), told_while_waiting(testing):
        async with runtime:
            return [*_unbound(runtime), *await run_self_check(runtime)]


def _unbound(runtime: Runtime) -> Iterator[Problem]:
    """Yield an error for each tool whose schemas its function provides, and whose function cannot be used."""
    engine = engine_of(runtime)
    for tool in engine.incomplete:
        bound = engine.chain_for(tool).bound
        # Trust is reported for whole projects.
        if isinstance(bound, Unavailable) and bound.outcome is not Outcome.DENIED:
            problem = Problem(code="not_bound", message=bound.reason)
            yield problem.at(tool.origin.source, tool.origin.line, 1)


def _as_text(problems: Sequence[Problem], checked: _Checked) -> Iterator[str]:
    # A log has one line for each problem, which programs find by its place.
    width = (terminal_width() or USUAL_WIDTH) if sys.stdout.isatty() else None
    yield from problem_lines(problems, width=width)
    yield _summary(problems, checked)


def _as_json(problems: Sequence[Problem], checked: _Checked) -> Iterator[str]:
    document: dict[str, Any] = {
        "problems": [problem._asdict() for problem in problems],
        "errors": _count(problems)["error"],
        "warnings": _count(problems)["warning"],
        "notices": _count(problems)["notice"],
        "tools": checked.tools,
        "packs": checked.packs,
        "scenarios": checked.scenarios,
    }
    yield json_text(document)


def _as_github(problems: Sequence[Problem], checked: _Checked) -> Iterator[str]:
    yield from (annotation(problem) for problem in problems)
    yield _summary(problems, checked)


_FORMS: Mapping[str, Callable[[Sequence[Problem], _Checked], Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_github,
}


def _count(problems: Sequence[Problem]) -> Counter[str]:
    return Counter(problem.severity for problem in problems)


def _summary(problems: Sequence[Problem], checked: _Checked) -> str:
    if not problems and checked.why_nothing:
        return f"nothing to validate: {checked.why_nothing}"
    if not problems:
        there = (
            plural(checked.tools, "tool"),
            plural(checked.packs, "pack"),
            plural(checked.scenarios, "scenario"),
        )
        return f"{', '.join(there)}: no problems"
    counts = _count(problems)
    told = ", ".join(plural(counts[kind], kind) for kind in ("error", "warning", "notice") if counts[kind])
    return f"{told} in {plural(len({problem.source for problem in problems}), 'file')}"


_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)
"""Where a GitHub runner recognises a command: `::` at the start of a line, also after blanks, and `##[` anywhere."""


def annotation(problem: Problem) -> str:
    """Format a problem as a workflow command."""
    text = problem.message + (f"\nhint: {problem.hint}" if problem.hint else "")
    return workflow_command(
        problem.severity,
        f"{problem.code}: {text}",
        file=problem.source,
        line=problem.line,
        column=problem.column,
        title=problem.code,
    )


def workflow_command(
    severity: Severity, text: str, *, file: str, line: int = 0, column: int = 0, title: str = ""
) -> str:
    """Format an annotation of a line of a file; empty and zero properties are omitted."""
    properties = {"file": _in_workspace(file), "line": line, "col": column, "title": title}
    told = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value)
    return f"::{severity} {told}::{_data(text)}"


def _in_workspace(file: str) -> str:
    """The path relative to the checked-out folder (`GITHUB_WORKSPACE`); unchanged if it is outside."""
    top = os.environ.get("GITHUB_WORKSPACE", "")
    if not top or not file:
        return file
    # GitHub resolves paths from this folder, whatever the working directory of the step is.
    within = os.path.relpath(os.path.realpath(file), os.path.realpath(top))
    outside = within == os.pardir or within.startswith(f"{os.pardir}{os.sep}")
    return file if outside else within.replace(os.sep, "/")


def _data(text: str) -> str:
    # The escapes of GitHub's own toolkit: `%` first, since the other escapes contain it.
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escape_terminal(escaped)


def _property(text: str) -> str:
    # `:` and `,` end a property.
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def escape_commands(text: str) -> str:
    """Escape workflow commands in a text: results of tools must not control the runner."""
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)
