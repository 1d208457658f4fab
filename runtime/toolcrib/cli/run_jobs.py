"""Plays the runs of a plan, here or in worker processes, and shows that it moves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeAlias

import click

from toolcrib.cli.run_plan import Plan
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.scenarios import ScenarioReport, run_scenario

Show: TypeAlias = Callable[[ScenarioReport], None]
"""Is told of every report, in the order of the scenarios."""

STEPS = 200
"""So often a bar is drawn at most, however many runs there are."""


def play(
    plan: Plan,
    runtime: Runtime,
    scenarios: Sequence[Scenario],
    show: Show,
    *,
    jobs: int = 1,
    update: bool = False,
    fail_fast: bool = False,
) -> list[ScenarioReport]:
    """Run scenarios; the reports are in their order, however many processes there are.

    Args:
        plan: What gave the runtime and the scenarios.
        runtime: Holds the tools; it is closed at the end.
        scenarios: What to run.
        show: Is told of every report.
        jobs: How many processes; 1 for this one alone.
        update: Take results that differ from their golden files for right.
        fail_fast: End with the first scenario that fails.
    """
    if jobs == 1 or not scenarios:
        return asyncio.run(_played(runtime, scenarios, show, update=update, fail_fast=fail_fast))
    # Only here: most runs need no processes, and their modules are slow to import.
    from toolcrib.scenarios.workers import run_in_processes  # noqa: PLC0415

    runtime.close()
    reports = []
    with closing(run_in_processes(plan.open, scenarios, jobs=jobs, update=update)) as coming:
        for report in coming:
            reports.append(report)
            show(report)
            if fail_fast and report.failed:
                break
    return reports


async def _played(
    runtime: Runtime, scenarios: Sequence[Scenario], show: Show, *, update: bool, fail_fast: bool
) -> list[ScenarioReport]:
    reports = []
    async with runtime:
        for scenario in scenarios:
            reports.append(await run_scenario(runtime, scenario, update=update))
            show(reports[-1])
            if fail_fast and reports[-1].failed:
                break
    return reports


@contextmanager
def progress(total: int, *, quiet: bool) -> Iterator[Show]:
    """How a run shows that it moves: a bar on a terminal, else a line of dots for each file.

    Args:
        total: How many runs there are.
        quiet: No dots: what goes to stdout is for a program.
    """
    if sys.stderr.isatty():
        with click.progressbar(
            length=total,
            label="running",
            file=sys.stderr,
            show_pos=True,
            show_percent=True,
            show_eta=True,
            item_show_func=lambda told: told,
            update_min_steps=max(1, total // STEPS),
        ) as bar:
            counts = _Counts()
            yield lambda report: bar.update(1, counts.with_report(report))
    elif quiet:
        yield lambda _report: None
    else:
        dots = _Dots()
        yield dots.add
        dots.end()


class _Counts:
    """`12 passed, 1 failed`."""

    def __init__(self) -> None:
        self._passed = 0
        self._failed = 0

    def with_report(self, report: ScenarioReport) -> str:
        """The counts, one more."""
        self._passed += report.passed
        self._failed += report.failed
        return f"{self._passed} passed" + (f", {self._failed} failed" if self._failed else "")


class _Dots:
    """`file ..F?`: one line a file, one character a run; `?` for one that was not judged."""

    def __init__(self) -> None:
        self._source = ""

    def add(self, report: ScenarioReport) -> None:
        source = report.scenario.origin.source
        if source != self._source:
            self.end()
            self._source = source
            click.echo(f"{escape_terminal(source)} ", nl=False)
        mark = {"passed": ".", "failed": click.style("F", fg="red")}.get(report.verdict, "?")
        click.echo(mark, nl=False)

    def end(self) -> None:
        if self._source:
            click.echo()
