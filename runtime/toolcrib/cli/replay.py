"""`toolcrib replay`: replay recorded tasks, and compare results and changed rows with the recording."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import ReadOptions, json_option, open_with_servers, paths_argument, read_options
from toolcrib.cli.output import json_text, plural, problem_text
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.scenarios.recorded_tasks import RecordedTask, ReplayReport, check_task, parse_tasks, replay


@click.command("replay")
@paths_argument
@click.option(
    "--tasks",
    "file",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The recording, as JSON Lines: `{task, calls: [{tool, arguments, result}], changed_rows}`; `-` is standard input.",
)
@click.option("--task", "names", metavar="NAME", multiple=True, help="Only this task. Can be repeated.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first task that differs from the recording.")
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    paths: tuple[str, ...],
    file: str,
    names: tuple[str, ...],
    fail_fast: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Replay recorded tasks, and compare results and changed rows.

    Each task starts with a fresh store. Without PATH: the project, or the folders `descriptors` and `packs`. Exits with
    1 if something differs from the recording or could not be read, and with 3 if there is no task.
    """
    tasks, problems = _read(file)
    tasks = _chosen(tasks, names, sound=not problems)
    runtime = open_with_servers(reading, paths)
    # A task is checked before it runs: when a call in the middle turns out to be real, the calls before it
    # have happened.
    hindered = {task.line: found for task in tasks if (found := check_task(file, task, runtime))}
    ready = [task for task in tasks if task.line not in hindered]
    problems = _sorted(runtime, [*problems, *chain.from_iterable(hindered.values())])
    for problem in problems:
        click.echo(problem_text(problem), err=True)
    report = asyncio.run(_replayed(runtime, ready, fail_fast=fail_fast))
    for line in _as_json(report, problems) if as_json else _as_text(report, problems, file, len(ready)):
        click.echo(line)
    ctx.exit(_code(report, problems))


def _read(file: str) -> tuple[list[RecordedTask], list[Problem]]:
    try:
        with click.open_file(file, "rb") as lines:
            return parse_tasks(file, lines)
    except OSError as error:
        raise click.FileError(file, hint=error.strerror or str(error)) from error


def _chosen(tasks: Sequence[RecordedTask], names: Sequence[str], *, sound: bool) -> list[RecordedTask]:
    """The tasks with these names; all tasks if no name is given.

    Raises:
        click.BadParameter: A name is unknown. It is not reported if lines could not be read, since it may be there.
    """
    known = {task.name for task in tasks}
    for name in names:
        # With unreadable lines, the task may be in one of them.
        if name not in known and sound:
            hint = did_you_mean(name, known) or f"the recording has {plural(len(known), 'task')}"
            raise click.BadParameter(f"unknown task `{escape_terminal(name)}`; {hint}", param_hint="--task")
    return [task for task in tasks if not names or task.name in names]


async def _replayed(runtime: Runtime, tasks: Sequence[RecordedTask], *, fail_fast: bool) -> ReplayReport:
    with redirected_stdout():
        async with runtime:
            return await replay(runtime, tasks, fail_fast=fail_fast)


def _sorted(runtime: Runtime, problems: Iterable[Problem]) -> list[Problem]:
    """The problems of the documents, then those of the recording by line."""
    of_documents = (problem for problem in runtime.problems if problem.severity != "notice")
    return [*of_documents, *sorted(problems, key=lambda problem: problem.line)]


def _as_text(report: ReplayReport, problems: Sequence[Problem], file: str, ready: int) -> Iterator[str]:
    for each in report.tasks:
        if not each.as_recorded:
            head, *rest = escape_terminal(str(each)).splitlines()
            yield "\n".join([click.style(head, fg="red", bold=True), *rest, ""])
    refused = {problem.line for problem in problems if problem.source == file}
    if refused:
        yield f"{plural(len(refused), 'line')} of the recording could not be replayed"
    if ready > len(report.tasks):
        yield f"{plural(ready - len(report.tasks), 'later task')} did not run"
    yield click.style(str(report), fg="green" if report.as_recorded else "red", bold=True)


def _as_json(report: ReplayReport, problems: Sequence[Problem]) -> Iterator[str]:
    yield json_text({**report.as_json(), "problems": [problem._asdict() for problem in problems]})


def _code(report: ReplayReport, problems: Sequence[Problem]) -> int:
    if not report.as_recorded or any(problem.severity == "error" for problem in problems):
        return exit_codes.PROBLEMS
    return exit_codes.OK if report.tasks else exit_codes.NOTHING_SELECTED
