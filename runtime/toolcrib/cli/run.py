"""`toolcrib run`: run scenarios and examples on virtual time, and print a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    NO_SOURCES,
    ReadOptions,
    has_no_sources,
    json_option,
    passthrough_option,
    read_options,
    scenario_names,
)
from toolcrib.cli.output import json_text, plural, problem_lines, write_atomically
from toolcrib.cli.run_output import (
    GoldenUpdate,
    junit_text,
    missing_lines,
    not_run_lines,
    run_document,
    skipped_lines,
    slowest_lines,
    summary_lines,
    trace_lines,
    update_goldens,
    warning_lines,
    warnings_of,
)
from toolcrib.cli.run_plan import ModelOverride, RunPlan, play_runs, run_on_changes, show_progress
from toolcrib.cli.run_targets import LastFailures, Target, parse_targets, run_key, some_names
from toolcrib.cli.trust import Consents, print_denied
from toolcrib.cli.validate import annotation, escape_commands, workflow_command
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.fingerprints import FileFingerprints
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import MOST_RUNS
from toolcrib.scenarios import NotRun, ScenarioReport
from toolcrib.security.trust import Untrusted


def _jobs(_ctx: click.Context, _param: click.Parameter, value: str) -> int | None:
    """Parse a number of processes; None for `auto`."""
    if value == "auto":
        return None
    if value.isdecimal() and int(value):
        return int(value)
    raise click.BadParameter(f"`{value}` is not a number of processes; use 1 or more, or `auto`")


@click.command("run")
@click.argument(
    "targets", nargs=-1, metavar="[TARGET]...", callback=parse_targets, shell_complete=scenario_names
)
@click.option(
    "-k",
    "keyword",
    metavar="EXPR",
    default="",
    help="Only scenarios whose name or file matches: `pay and not refund`.",
)
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    help="Only scenarios with this tag. Can be repeated; any of the tags is enough.",
)
@click.option("--seed", type=int, help="Use this seed instead of each scenario's own.")
@click.option(
    "--repeat",
    type=click.IntRange(1, MOST_RUNS),
    metavar="N",
    help="Run every scenario N times with increasing seeds, instead of its own `repeat`.",
)
@click.option(
    "--interleave",
    type=click.IntRange(0, MOST_RUNS - 1),
    default=0,
    metavar="N",
    help="Also run scenarios with parallel steps in N other orders of their calls.",
)
@click.option(
    "--provider",
    metavar="NAME",
    help="Use this provider in every scenario with an `agent`, also if it has no usable one: `scripted`, `direct`, `openai` ...",
)
@click.option("--model", metavar="NAME", help="Model of the provider.")
@click.option("--base-url", metavar="URL", help="Base URL of the provider; the run may contact it.")
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Try each run of a scenario with an `agent` N times, instead of its own `trials`.",
)
@click.option("-x", "--fail-fast", is_flag=True, help="Stop at the first scenario that fails.")
@click.option(
    "--last-failed",
    "--lf",
    is_flag=True,
    help="Only the runs that failed when they last ran; all if none is known to have failed.",
)
@click.option(
    "-j",
    "--jobs",
    callback=_jobs,
    default="1",
    metavar="N|auto",
    help="Run in N processes; `auto` is one per processor if the run takes long enough. The output is the same.",
)
@click.option("--update", is_flag=True, help="Write golden files that are missing or differ.")
@click.option("--watch", is_flag=True, help="Run again when files change, until Ctrl-C.")
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the reports as JUnit XML.",
)
@click.option(
    "--no-wall-time",
    is_flag=True,
    help="Omit real durations from `--json` and `--junit`, so that equal runs give equal bytes.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print one line per run, with a digest of its trace: equal runs have equal digests.",
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Print only what failed or could not run, and the last line."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail if a scenario, assertion or guardrail was not judged, or a linked folder was not read.",
)
@click.option("--slowest", type=click.IntRange(1), metavar="N", help="List the N slowest runs.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Output format; `github` adds an annotation for every failure.",
)
@passthrough_option
@click.option(
    "--allow-live",
    "live",
    is_flag=True,
    help="Let every scenario reach the network, not only with tools whose `modes` it names.",
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    targets: tuple[Target, ...],
    keyword: str,
    tags: tuple[str, ...],
    seed: int | None,
    repeat: int | None,
    interleave: int,
    provider: str | None,
    model: str | None,
    base_url: str | None,
    trials: int | None,
    fail_fast: bool,
    last_failed: bool,
    jobs: int | None,
    update: bool,
    watch: bool,
    junit: Path | None,
    no_wall_time: bool,
    verbose: bool,
    quiet: bool,
    slowest: int | None,
    strict: bool,
    form: str,
    passthrough: bool,
    live: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Run the scenarios and the examples of descriptors.

    TARGET is a file or folder, the name of a scenario or of a tool with examples, or PATH::NAME. A part of a project has
    the tools of the whole project. Without TARGET: the project, or the folders `descriptors` and `packs`. Exits with 1 if
    something failed, could not be read or could not be run, and with 3 if nothing matches.
    """
    if as_json and form == "github":
        raise click.UsageError("`--json` and `--format github` are two output formats; use only one of them")
    if quiet and verbose:
        raise click.UsageError("`--quiet` and `--verbose` contradict each other; use only one of them")
    if update and watch:
        raise click.UsageError(
            "`--watch` would run again for every file that `--update` writes; use only one of them"
        )
    speaker = ModelOverride(provider or "", model or "", base_url or "", trials)
    plan = RunPlan(
        reading, targets, keyword, tags, seed, repeat, interleave, passthrough, speaker, Consents(), live=live
    )
    options = _Options(
        form="json" if as_json else form,
        jobs=jobs,
        update=update,
        fail_fast=fail_fast,
        junit=junit,
        wall_time=not no_wall_time,
        slowest=slowest or 0,
        verbose=verbose,
        quiet=quiet,
        strict=strict,
        last_failed=last_failed,
    )
    if watch:
        run_on_changes(lambda: run_once(plan, options).seen)
    ctx.exit(run_once(plan, options).code)


class _Options(NamedTuple):
    form: str
    jobs: int | None
    update: bool
    fail_fast: bool
    junit: Path | None
    wall_time: bool
    slowest: int
    verbose: bool = False
    quiet: bool = False
    strict: bool = False
    last_failed: bool = False


class RunRound(NamedTuple):
    """The result of one round.

    Attributes:
        code: The exit code.
        seen: The files that were read, to detect changes.
    """

    code: int
    seen: FileFingerprints | None


class _Run(NamedTuple):
    """Everything that one round reports."""

    runtime: Runtime
    scenarios: Sequence[Scenario]
    reports: Sequence[ScenarioReport]
    updated: Sequence[GoldenUpdate]
    duration: float
    options: _Options
    not_run: Sequence[NotRun]
    found: Sequence[Problem]

    @property
    def code(self) -> int:
        """The exit code. Missing trust matters only if a selected scenario could not run without it."""
        failed = [report for report in self.reports if report.failed]
        denied = [report for report in failed if _is_denied(self.runtime, report)]
        if (
            self.errors
            or len(denied) < len(failed)
            or any(update.failed for update in self.updated)
            or any(each.outcome is Outcome.UNAVAILABLE for each in self.not_run)
            or (self.options.strict and self.is_unjudged)
        ):
            return exit_codes.PROBLEMS
        if self.is_denied:
            return exit_codes.OF_OUTCOME[Outcome.DENIED]
        return exit_codes.OK if self.scenarios else exit_codes.NOTHING_SELECTED

    @property
    def is_unjudged(self) -> bool:
        """Whether a file was skipped or an assertion was not judged, except for an unmet `when`."""
        return any(each.kind == "file" for each in self.not_run) or any(
            report.verdict == "not judged" or not all(skip.unmet for skip in report.skipped)
            for report in self.reports
        )

    @property
    def errors(self) -> list[Problem]:
        """The errors of documents and servers, except missing trust."""
        return [
            problem
            for problem in self.found
            if problem.severity == "error" and problem.code != Untrusted.code
        ]

    @property
    def is_denied(self) -> bool:
        """Whether a selected scenario failed, or could not run, because of missing trust."""
        return any(each.outcome is Outcome.DENIED for each in self.not_run) or any(
            report.failed and _is_denied(self.runtime, report) for report in self.reports
        )

    @property
    def problems(self) -> list[Problem]:
        """The problems; missing trust is only a warning if everything passed without it."""
        if self.is_denied:
            return [*self.found]
        return [
            problem._replace(severity="warning") if problem.code == Untrusted.code else problem
            for problem in self.found
        ]


def _is_denied(runtime: Runtime, report: ScenarioReport) -> bool:
    """Whether a run failed because one of its calls, or its model, is not trusted."""
    agent = report.scenario.agent is not None
    for step in report.steps:
        error = step.result.error if step.result is not None else None
        if error is not None and error.code == Untrusted.code and (agent or step.failures):
            return True
    if not agent or engine_of(runtime).trust.policy.everything:
        return False
    from toolcrib.engine.workspaces import subjects_of_scenario  # noqa: PLC0415 -- few scenarios speak with a model

    return not all(map(engine_of(runtime).trust.is_trusted, subjects_of_scenario(report.scenario)))


def run_once(plan: RunPlan, options: _Options) -> RunRound:
    """Read the documents, run what the plan selects, and print the report."""
    started = RealClock().monotonic()
    failures = LastFailures()
    if options.last_failed:
        plan = plan._replace(only=failures.read())
    runtime, scenarios = plan.open()
    if options.last_failed and not any(run_key(run) in plan.only for run in scenarios):
        click.echo("no selected run is known to have failed; running all of them", err=True)
    # Trust is asked for before anything runs: a prompt in the middle would break the progress bar, and worker
    # processes have no terminal.
    plan = plan.agreed(runtime, scenarios)
    nowhere = has_no_sources(runtime)
    not_run = [] if nowhere else plan.not_run(runtime)
    problems = [] if nowhere else plan.reported(runtime, runtime.problems)
    print_denied(runtime)
    # Annotations for GitHub contain the problems.
    if options.form != "github":
        _tell_problems(problems)
    with show_progress(len(scenarios), quiet=options.quiet or options.form == "json") as show:
        reports = play_runs(
            plan,
            runtime,
            scenarios,
            show,
            jobs=options.jobs,
            update=options.update,
            fail_fast=options.fail_fast,
        )
    failures.record(
        reports, everything=not (plan.filtered or plan.targets) and len(reports) == len(scenarios)
    )
    updated = _update_goldens(reports) if options.update else []
    duration = RealClock().monotonic() - started
    run = _Run(runtime, scenarios, reports, updated, duration, options, not_run, problems)
    if options.junit is not None:
        _write_junit(run, options.junit)
    for line in _FORMS[options.form](run):
        click.echo(line)
    if not scenarios and not any(each.kind == "scenario" for each in not_run):
        _tell_nothing(runtime, plan)
    return RunRound(run.code, engine_of(runtime).stock.seen)


def _update_goldens(reports: Sequence[ScenarioReport]) -> Sequence[GoldenUpdate]:
    return update_goldens(reports)


def _tell_problems(problems: Sequence[Problem]) -> None:
    """Print the problems of the documents. Only `validate` prints notices."""
    told = [each for each in problems if each.severity != "notice" and each.code != Untrusted.code]
    for line in problem_lines(told):
        click.echo(line, err=True)


def _tell_nothing(runtime: Runtime, plan: RunPlan) -> None:
    if runtime.registry.why_closed:
        click.echo(f"nothing to run: {escape_terminal(runtime.registry.why_closed)}", err=True)
        return
    if has_no_sources(runtime):
        click.echo(f"nothing to run: {NO_SOURCES}\n    hint: `toolcrib init` creates a first one", err=True)
        return
    paths = [target.path for target in plan.targets if target.path]
    places = escape_terminal(", ".join(paths or engine_of(runtime).stock.sources))
    if not plan.filtered:
        click.echo(f"nothing to run: no scenarios or examples in {places}", err=True)
        return
    known = plan.names(runtime)
    near = did_you_mean(plan.keyword, known) if plan.keyword else ""
    click.echo(f"nothing to run: no scenario or example matches in {places}", err=True)
    click.echo(f"    hint: {escape_terminal(near or some_names(known))}", err=True)


def _write_junit(run: _Run, path: Path) -> None:
    # After `--fail-fast`, the scenarios that did not run appear as skipped, so that CI servers keep their
    # history.
    skipped = run.scenarios[len(run.reports) :]
    duration = run.duration if run.options.wall_time else None
    text = junit_text(run.reports, skipped, run.problems, run.not_run, duration=duration)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from error


def _as_json(run: _Run) -> Iterator[str]:
    yield json_text(
        run_document(run.reports, run.not_run, run.duration if run.options.wall_time else None)
        | {"problems": [problem._asdict() for problem in run.problems]}
        | {"golden": [update._asdict() for update in run.updated]}
    )


def _as_text(run: _Run) -> Iterator[str]:
    if run.options.verbose:
        yield from (escape_terminal(line) for line in trace_lines(run.reports))
    yield from _failure_lines(run.reports)
    yield from (escape_terminal(line) for line in warning_lines(run.reports))
    yield from (escape_terminal(str(update)) for update in run.updated)
    yield from (escape_terminal(line) for line in skipped_lines(run.reports))
    yield from (escape_terminal(line) for line in not_run_lines(run.not_run))
    if run.reports:
        yield from slowest_lines(run.reports, run.options.slowest)
        yield from summary_lines(run.runtime, run.reports, run.not_run, run.duration, brief=run.options.quiet)
    else:
        yield from missing_lines(run.reports, run.not_run)


def _as_github(run: _Run) -> Iterator[str]:
    """Annotations for all problems and failures, then the text with its workflow commands escaped."""
    for problem in run.problems:
        if problem.severity != "notice":
            yield annotation(problem)
    for report in run.reports:
        origin = report.scenario.origin
        for fault in report.faults:
            yield workflow_command(
                "error",
                "\n".join([*fault.lines, f"seed {report.seed}"]),
                file=origin.source,
                line=origin.locate(fault.pointer)[0] or origin.line,
                title=f"{report.scenario.name} › {fault.title}",
            )
    for each in run.not_run:
        if each.kind == "scenario" and each.outcome is not None:
            title = f"{each.name} was not run"
            yield workflow_command("error", each.reason, file=each.source, line=each.line, title=title)
    for report, warning in warnings_of(run.reports):
        origin = report.scenario.origin
        yield workflow_command(
            "warning",
            warning.lines[0],
            file=origin.source,
            line=origin.locate(warning.pointer)[0] or origin.line,
            title=report.scenario.base or report.scenario.name,
        )
    yield from (escape_commands(line) for line in _as_text(run))


_FORMS: Mapping[str, Callable[[_Run], Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_github,
}


def _failure_lines(reports: Sequence[ScenarioReport]) -> Iterator[str]:
    left = [report for report in reports if report.failed]
    for report in left:
        head, *rest = escape_terminal(str(report)).splitlines()
        yield "\n".join(["", click.style(head, fg="red", bold=True), *rest])
    if left:
        names = ", ".join(escape_terminal(report.scenario.name) for report in left)
        what = "run" if any(report.scenario.base for report in left) else "scenario"
        yield f"\n{plural(len(left), what)} failed: {names}"
