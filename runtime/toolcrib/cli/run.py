"""`toolcrib run`: the scenarios and the examples, on virtual time, with a summary."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.opening import open_runtime
from toolcrib.cli.options import Reading, json_option, paths_argument, reading_options
from toolcrib.cli.printing import json_text, plural, problem_text
from toolcrib.cli.summary import run_document, summary_lines
from toolcrib.clock import RealClock
from toolcrib.engine import Runtime
from toolcrib.errors import Problem
from toolcrib.loading.scenarios import Scenario, examples_of
from toolcrib.scenarios import ScenarioReport, run_scenario, select
from toolcrib.text import escape_terminal


@click.command("run")
@paths_argument
@click.option(
    "-k",
    "keyword",
    metavar="EXPR",
    default="",
    help="Only scenarios whose name or file fits: `pay and not refund`.",
)
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    help="Only scenarios with this tag; several mean any of them.",
)
@click.option("--seed", type=int, help="Use this seed instead of each scenario's own.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first scenario that fails.")
@json_option
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    paths: tuple[str, ...],
    keyword: str,
    tags: tuple[str, ...],
    seed: int | None,
    fail_fast: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Run the scenarios, and the examples of descriptors.

    Without PATH: the project, or the folders `descriptors` and `packs`. Ends with 1 when something failed or
    could not be read, and with 3 when nothing fits.
    """
    started = RealClock().monotonic()
    runtime = open_runtime(reading, paths)
    errors = _tell_problems(runtime)
    chosen = _chosen(runtime, keyword, tags)
    with _shown(chosen, quiet=as_json) as show:
        reports = asyncio.run(_play(runtime, chosen, seed, show, fail_fast=fail_fast))
    duration = RealClock().monotonic() - started
    if as_json:
        click.echo(json_text(run_document(runtime, reports, duration)))
    elif reports:
        _tell_failures(reports)
        for line in summary_lines(runtime, reports, duration):
            click.echo(line)
    if not chosen:
        _tell_nothing(runtime, filtered=bool(keyword or tags))
    failed = bool(errors) or not all(report.passed for report in reports)
    code = exit_codes.OK if chosen else exit_codes.NOTHING_SELECTED
    ctx.exit(exit_codes.PROBLEMS if failed else code)


def _tell_problems(runtime: Runtime) -> Sequence[Problem]:
    """Say what is wrong with the documents, and return the errors. Notices are left to `validate`."""
    for problem in runtime.problems:
        if problem.severity != "notice":
            click.echo(problem_text(problem), err=True)
    return [problem for problem in runtime.problems if problem.severity == "error"]


def _tell_nothing(runtime: Runtime, *, filtered: bool) -> None:
    places = ", ".join(runtime.stock.sources)
    what = "no scenario or example fits" if filtered else "there are no scenarios and no examples"
    click.echo(f"nothing to run: {what} in {escape_terminal(places)}", err=True)


def _chosen(runtime: Runtime, keyword: str, tags: Sequence[str]) -> list[Scenario]:
    """What to run, in order of packs, files and lines. Tools that can't run here have no examples to play."""
    tools = [tool for tool in runtime.registry.values() if not runtime.unavailable(tool)]
    examples = [scenario for tool in tools if (scenario := examples_of(tool)) is not None]
    try:
        chosen = select([*runtime.scenarios, *examples], keyword=keyword, tags=tags)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-k") from error
    return sorted(chosen, key=lambda scenario: (scenario.origin.source, scenario.origin.line))


async def _play(
    runtime: Runtime,
    scenarios: Sequence[Scenario],
    seed: int | None,
    show: Callable[[ScenarioReport], None],
    *,
    fail_fast: bool,
) -> list[ScenarioReport]:
    reports = []
    async with runtime:
        for scenario in scenarios:
            reports.append(await run_scenario(runtime, scenario, seed=seed))
            show(reports[-1])
            if fail_fast and not reports[-1].passed:
                break
    return reports


@contextmanager
def _shown(scenarios: Sequence[Scenario], *, quiet: bool) -> Iterator[Callable[[ScenarioReport], None]]:
    """How a run shows that it moves: a bar on a terminal, else a line of dots for each file."""
    if sys.stderr.isatty():
        with click.progressbar(length=len(scenarios), label="running", file=sys.stderr) as bar:
            yield lambda _report: bar.update(1)
    elif quiet:
        yield lambda _report: None
    else:
        dots = _Dots()
        yield dots.add
        dots.end()


class _Dots:
    """`file ..F`: one line a file, one character a scenario."""

    def __init__(self) -> None:
        self._source = ""

    def add(self, report: ScenarioReport) -> None:
        source = report.scenario.origin.source
        if source != self._source:
            self.end()
            self._source = source
            click.echo(f"{escape_terminal(source)} ", nl=False)
        click.echo("." if report.passed else click.style("F", fg="red"), nl=False)

    def end(self) -> None:
        if self._source:
            click.echo()


def _tell_failures(reports: Sequence[ScenarioReport]) -> None:
    for report in reports:
        if not report.passed:
            head, *rest = escape_terminal(str(report)).splitlines()
            click.echo("\n".join(["", click.style(head, fg="red", bold=True), *rest]))
    left = [report for report in reports if not report.passed]
    if left:
        names = ", ".join(escape_terminal(report.scenario.name) for report in left)
        click.echo(f"\n{plural(len(left), 'scenario')} failed: {names}")
