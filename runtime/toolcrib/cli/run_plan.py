"""The runs of `toolcrib run`: which documents are read, which scenarios run, in which processes, and again after changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeAlias

import click

from toolcrib.cli.options import ReadOptions, open_with_servers
from toolcrib.cli.trust import Consents
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import Problem, ToolcribError
from toolcrib.core.model import Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.fingerprints import FileFingerprints
from toolcrib.loading.reload import watch_changes
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import example_scenario
from toolcrib.loading.scenarios.scenario_links import tools_of
from toolcrib.scenarios import NotRun, ScenarioReport, run_scenario, runs_of, select
from toolcrib.scenarios.run_setup import trust_subjects
from toolcrib.security.trust import Untrusted


class ModelOverride(NamedTuple):
    """Who speaks in the scenarios that have an agent, in place of whom they name.

    Attributes:
        provider: Name of a provider; empty for the scenario's own.
        model: Which model; empty for the scenario's own, or for the provider's choice where that is another one.
        base_url: Where the provider is; empty as for the model. It is the operator's, who may reach it.
        trials: How often each run is tried; None for the scenario's own.
    """

    provider: str = ""
    model: str = ""
    base_url: str = ""
    trials: int | None = None

    def of(self, scenario: Scenario) -> Scenario:
        """The scenario with this speaker; itself where that changes nothing."""
        agent = scenario.agent
        if agent is None or self == ModelOverride():
            return scenario
        other = self.provider not in {"", agent.provider}
        base_url = self.base_url or ("" if other else agent.base_url)
        api_key = None if other or self.base_url else agent.api_key
        speaking = replace(
            agent,
            provider=self.provider or agent.provider,
            model=self.model or ("" if other else agent.model),
            base_url=base_url,
            api_key=api_key,
            chosen=bool(self.provider or self.base_url) and base_url == self.base_url and api_key is None,
            permitted=bool(self.base_url),
        )
        return replace(scenario, agent=speaking, trials=self.trials or scenario.trials)


class RunPlan(NamedTuple):
    """What the command line asks to run. Every process that has it opens the same and runs the same.

    Attributes:
        reading: What to read.
        paths: The same, more closely.
        keyword: The expression of `-k`.
        tags: One of these tags; empty for all.
        seed: In place of each scenario's own.
        repeat: In place of each scenario's own.
        interleave: In how many further orders the calls of parallel steps begin.
        passthrough: Whether mocks that say so may hand calls on to another binding of their tools.
        speaker: Who speaks in scenarios that have an agent.
        consents: What somebody has answered who was asked for trust; of a watch, in all rounds so far.
    """

    reading: ReadOptions
    paths: tuple[str, ...] = ()
    keyword: str = ""
    tags: tuple[str, ...] = ()
    seed: int | None = None
    repeat: int | None = None
    interleave: int = 0
    passthrough: bool = False
    speaker: ModelOverride = ModelOverride()
    consents: Consents | None = None

    @property
    def filtered(self) -> bool:
        """Whether only a part of what is there is asked for."""
        return bool(self.keyword or self.tags)

    def open(self) -> tuple[Runtime, list[Scenario]]:
        """The runtime, and what to run in it, in order of files and lines.

        Tools that can't run here have no examples to play; nor have those that reach out, for nobody who runs
        scenarios expects something real to happen.

        Raises:
            click.BadParameter: The expression can't be read.
            click.UsageError: It is said who speaks, and nobody does.
            ConfigurationError: The runtime can't be set up, or a scenario comes to too many runs.
        """
        consents = self.consents or Consents()
        reading = self.reading._replace(granted=(*self.reading.granted, *consents.granted))
        runtime = open_with_servers(reading, self.paths, passthrough=self.passthrough, consents=consents)
        examples = [
            scenario
            for tool in runtime.registry.values()
            if (scenario := example_scenario(tool)) is not None
            and not (engine_of(runtime).unavailable(tool) or engine_of(runtime).reaches_out(tool))
        ]
        there = sorted([*runtime.scenarios, *examples], key=_place)
        chosen = self._chosen(run for scenario in there for run in self._runs_of(scenario))
        if self.speaker != ModelOverride() and all(run.agent is None for run in chosen):
            raise click.UsageError(
                "`--provider`, `--model`, `--base-url` and `--trials` are about scenarios with an `agent`, and none of these has one"
            )
        return runtime, chosen

    def _chosen(self, scenarios: Iterable[Scenario]) -> list[Scenario]:
        try:
            return select(scenarios, keyword=self.keyword, tags=self.tags)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="-k") from error

    def not_run(self, runtime: Runtime) -> list[NotRun]:
        """What can't be run, and why.

        `-k` and `--tag` choose among scenarios that were read whole; what could not be read is told in any case.
        """
        found = [*self._unreached(runtime), *self._unplayed(runtime), *_unread(runtime)]
        return sorted(found, key=lambda each: (each.source, each.line))

    def _unreached(self, runtime: Runtime) -> Iterator[NotRun]:
        """Scenarios that call a tool of a server that could not be asked."""
        for scenario in self._chosen(engine_of(runtime).stock.postponed):
            origin = scenario.origin
            ends = [engine_of(runtime).not_found(name, runtime.registry) for name in tools_of(scenario)]
            why = next((end for end in ends if end.outcome is not Outcome.NOT_FOUND), ends[0])
            code = why.error.code if why.error is not None else why.outcome.value
            outcome = Outcome.DENIED if why.outcome is Outcome.DENIED else Outcome.UNAVAILABLE
            reason = _first_line(why.message)
            yield NotRun("scenario", scenario.name, origin.source, origin.line, code, reason, outcome)

    def _unplayed(self, runtime: Runtime) -> Iterator[NotRun]:
        """Examples of tools that can't run here, or that are left out."""
        for tool in runtime.registry.values():
            examples = example_scenario(tool)
            if examples is None or not self._chosen([examples]):
                continue
            source, line = tool.origin.source, tool.origin.line
            hidden, unavailable = runtime.registry.why_hidden(tool.name), engine_of(runtime).unavailable(tool)
            if hidden:
                yield NotRun("examples", tool.name, source, line, "hidden", hidden, None)
            elif unavailable:
                yield NotRun("examples", tool.name, source, line, "unavailable", unavailable)
            elif engine_of(runtime).reaches_out(tool):
                reason = f"the mode `{tool.mode}` reaches out"
                yield NotRun("examples", tool.name, source, line, "reaches_out", reason, None)

    def agreed(self, runtime: Runtime, scenarios: Iterable[Scenario]) -> RunPlan:
        """Let somebody agree beforehand to what the scenarios may touch, so that nobody is asked while they run.

        Returns:
            The plan with what was agreed to, for the processes that run it.
        """
        subjects = {each.user: each for scenario in scenarios for each in trust_subjects(runtime, scenario)}
        for subject in subjects.values():
            with suppress(Untrusted):  # a call that needs it ends `denied`
                engine_of(runtime).trust.check(subject)
        granted = (*self.reading.granted, *engine_of(runtime).trust.granted)
        return self._replace(reading=self.reading._replace(granted=granted))

    def _runs_of(self, scenario: Scenario) -> list[Scenario]:
        return runs_of(
            self.speaker.of(scenario), repeat=self.repeat, seed=self.seed, interleave=self.interleave
        )


_FILES_OF_PACK = ("/tools/", "/scenarios/")
"""Where a pack says which files it has."""


def _unread(runtime: Runtime) -> Iterator[NotRun]:
    """Scenarios, tools and files with errors, and files that are left out. Of each document with errors, one at least."""
    stock = engine_of(runtime).stock
    packs = {pack.origin.source for pack in runtime.packs}
    found = [_refused("scenario", name, problem) for name, problem in stock.refused_scenarios]
    found += [_refused("tool", name, problem) for name, problem in stock.refused.items()]
    for place in stock.unread:
        source, _, at = place.rpartition(":")
        found.append(NotRun("file", "", source, int(at), "file_unread", "nothing could be read of it"))
    yield from found
    listed = {each.source for each in found}
    for problem in stock.problems:
        if problem.code == "idle_glob" and problem.source in packs:
            if problem.pointer.startswith(_FILES_OF_PACK):
                yield _refused("file", "", problem)
        elif problem.code == "link_not_followed":
            yield _refused("file", "", problem)._replace(outcome=None)
        elif problem.severity == "error" and problem.source not in listed:
            listed.add(
                problem.source
            )  # such as a scenario of an arena, which is put together of several files
            yield _refused("file", "", problem)


def _refused(kind: Literal["scenario", "tool", "file"], name: str, problem: Problem) -> NotRun:
    return NotRun(kind, name, problem.source, problem.line, problem.code, _first_line(problem.message))


def _first_line(text: str) -> str:
    """A message without what follows its first line."""
    return text.partition("\n")[0]


def _place(scenario: Scenario) -> tuple[str, int]:
    return scenario.origin.source, scenario.origin.line


ReportListener: TypeAlias = Callable[[ScenarioReport], None]
"""Is told of every report, in the order of the scenarios."""

STEPS = 200
"""So often a bar is drawn at most, however many runs there are."""


def play_runs(
    plan: RunPlan,
    runtime: Runtime,
    scenarios: Sequence[Scenario],
    show: ReportListener,
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
    runtime: Runtime, scenarios: Sequence[Scenario], show: ReportListener, *, update: bool, fail_fast: bool
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
def show_progress(total: int, *, quiet: bool) -> Iterator[ReportListener]:
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


SHOWN = 10
"""Changed files that are named."""


def run_on_changes(round_of: Callable[[], FileFingerprints | None]) -> NoReturn:
    """Run round after round, until Ctrl-C.

    Args:
        round_of: Runs everything, tells what came of it, and returns what it looked at.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        ToolcribError: The first round could not be set up. A later one that can't tells so and is not the last.
    """
    seen = round_of() or FileFingerprints({}, {}, {})
    # Its end closes what waits, wherever Ctrl-C came.
    with asyncio.Runner() as runner:
        coming = watch_changes(lambda: seen, clock=RealClock())
        while True:
            click.echo("waiting for changes; Ctrl-C ends", err=True)
            try:
                paths = runner.run(_next(coming))
            except asyncio.CancelledError:  # of a Ctrl-C while `run` begins, which it forgets
                raise KeyboardInterrupt from None
            _tell_changes(paths)
            try:
                seen = round_of() or seen
            except ToolcribError as error:
                click.echo(escape_terminal(str(error)), err=True)


async def _next(coming: AsyncGenerator[list[str], None]) -> list[str]:
    # Not `anext` itself: a task that is cancelled before it begins must not touch the generator.
    return await anext(coming)


def _tell_changes(paths: Iterable[str]) -> None:
    names = list(dict.fromkeys(_near(path) for path in paths))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    click.echo(f"\nchanged: {escape_terminal(', '.join(names[:SHOWN]))}{more}", err=True)


def _near(path: str) -> str:
    """A path as one would write it here; what lies elsewhere is told whole."""
    real, here = Path(path).resolve(), Path.cwd()
    return str(real.relative_to(here)) if real.is_relative_to(here) else path
