"""The plan of `toolcrib run`: which scenarios run, in which processes, and again after changes (`--watch`)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeAlias

import click

from toolcrib.cli.options import ReadOptions
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.run_targets import RunKey, Target, check_names, names_of, open_targets, run_key
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
    """Command-line options that replace the model of scenarios with an agent.

    Attributes:
        provider: Name of a provider; empty for the scenario's own.
        model: Name of the model; empty for the scenario's own, or for the default of another provider.
        base_url: Base URL of the provider; empty as for `model`. It comes from the operator, so it may be contacted.
        trials: Number of trials of each run; None for the scenario's own.
    """

    provider: str = ""
    model: str = ""
    base_url: str = ""
    trials: int | None = None

    def of(self, scenario: Scenario) -> Scenario:
        """Apply the options to a scenario; returns the scenario itself if nothing changes."""
        agent = scenario.agent
        if agent is None or self == ModelOverride():
            return scenario
        other = self.provider not in {"", agent.provider}
        base_url = self.base_url or ("" if other else agent.base_url)
        # The key in a document belongs to the provider that the document names; never send it to another
        # provider or URL.
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
    """What the command line asks to run. It is picklable, and every process that opens it runs the same.

    Attributes:
        reading: The read options.
        targets: What the arguments select; empty for everything that is read.
        keyword: The expression of `-k`.
        tags: Run scenarios with any of these tags; empty for all.
        seed: Replaces the seed of each scenario.
        repeat: Replaces the `repeat` of each scenario.
        interleave: Number of further orders in which the calls of parallel steps begin.
        passthrough: Whether mocks with `passthrough` may forward calls to another binding of their tools.
        speaker: The model for scenarios with an agent.
        consents: Answers of the user to trust prompts; with `--watch`, those of all rounds so far.
        only: The runs that are selected, of those that all other filters select; empty for all.
        live: Whether scenarios may reach the network with tools whose modes they do not name.
    """

    reading: ReadOptions
    targets: tuple[Target, ...] = ()
    keyword: str = ""
    tags: tuple[str, ...] = ()
    seed: int | None = None
    repeat: int | None = None
    interleave: int = 0
    passthrough: bool = False
    speaker: ModelOverride = ModelOverride()
    consents: Consents | None = None
    only: frozenset[RunKey] = frozenset()
    live: bool = False

    @property
    def filtered(self) -> bool:
        """Whether the scenarios are filtered."""
        return bool(self.keyword or self.tags or self.only or any(target.name for target in self.targets))

    def open(self) -> tuple[Runtime, list[Scenario]]:
        """Open the runtime and select what to run, in the order of files and lines.

        Examples of tools that cannot run here are skipped, and so are those of tools with real effects: running
        scenarios must not have side effects.

        Raises:
            click.BadParameter: The expression is invalid, or no scenario has the name in an argument.
            click.UsageError: A model is selected, but no scenario has an agent.
            ConfigurationError: The runtime cannot be set up, or a scenario has too many runs.
        """
        consents = self.consents or Consents()
        reading = self.reading._replace(granted=(*self.reading.granted, *consents.granted))
        runtime = open_targets(reading, self.targets, passthrough=self.passthrough, consents=consents)
        engine_of(runtime).offline = not self.live
        runs = self._runs(runtime)
        stock = engine_of(runtime).stock
        refused = {*stock.refused, *(name for name, _problem in stock.refused_scenarios)}
        check_names(self.targets, [*runs, *stock.postponed, *stock.unprovided], refused)
        chosen = self._chosen(runs)
        # Failures of before that are gone leave everything, as in pytest.
        chosen = [run for run in chosen if run_key(run) in self.only] or chosen
        # The options would have no effect, which is more likely a mistake in the filters.
        if self.speaker != ModelOverride() and all(run.agent is None for run in chosen):
            if not self.speaker.provider and engine_of(runtime).stock.unprovided:
                raise click.UsageError(
                    "the selected scenarios have no usable provider; choose one with `--provider`, next to `--model` and `--base-url`"
                )
            raise click.UsageError(
                "`--provider`, `--model`, `--base-url` and `--trials` need a scenario with an `agent`, and no selected scenario has one"
            )
        return runtime, chosen

    def names(self, runtime: Runtime) -> list[str]:
        """The names that `-k` and arguments can select."""
        return names_of(self._runs(runtime))

    def _runs(self, runtime: Runtime) -> list[Scenario]:
        """All runs, in the order of files and lines."""
        examples = [
            scenario
            for tool in runtime.registry.values()
            if (scenario := example_scenario(tool)) is not None
            and not engine_of(runtime).unavailable(tool)
            and engine_of(runtime).plays_examples(tool)
        ]
        # With `--provider`, scenarios without a provider of their own run as well.
        others = engine_of(runtime).stock.unprovided if self.speaker.provider else ()
        there = sorted([*runtime.scenarios, *others, *examples], key=_place)
        return [run for scenario in there for run in self._runs_of(scenario)]

    def _chosen(self, scenarios: Iterable[Scenario]) -> list[Scenario]:
        targets = self.targets
        named = [each for each in scenarios if not targets or any(target.holds(each) for target in targets)]
        try:
            return select(named, keyword=self.keyword, tags=self.tags)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="-k") from error

    def not_run(self, runtime: Runtime) -> list[NotRun]:
        """Return what cannot be run, and why.

        `-k` and `--tag` only filter scenarios that were read completely; documents with errors are always reported, except
        for files of scenarios that no argument selects.
        """
        unprovided = list(self._unprovided(runtime))
        problems = self.reported(runtime, engine_of(runtime).stock.problems)
        found = [*self._unreached(runtime), *self._unplayed(runtime), *unprovided]
        broken = _unread(runtime, problems, {each.source for each in unprovided})
        found += [each for each in broken if self._concerns(runtime, each.source)]
        return sorted(found, key=lambda each: (each.source, each.line))

    def _concerns(self, runtime: Runtime, source: str) -> bool:
        """Whether an error in a file concerns this run: files of scenarios do only if an argument selects them."""
        if not self.targets or ".scenario." not in os.path.basename(source):
            return True
        refused = engine_of(runtime).stock.refused_scenarios
        named = {name for name, problem in refused if problem.source == source}
        return any(target.has(source) if target.path else target.name in named for target in self.targets)

    def _unreached(self, runtime: Runtime) -> Iterator[NotRun]:
        """Scenarios that call a tool of a server that could not be queried, or of a module that was not imported."""
        for scenario in self._chosen(engine_of(runtime).stock.postponed):
            origin = scenario.origin
            # An agent may name its tools in the policy only.
            names = tools_of(scenario) or ["*"]
            ends = [engine_of(runtime).not_found(name, runtime.registry) for name in names]
            # A server that is down or denied explains why its tools are unknown; "not found" does not.
            why = next((end for end in ends if end.outcome is not Outcome.NOT_FOUND), ends[0])
            code = why.error.code if why.error is not None else why.outcome.value
            outcome = Outcome.DENIED if why.outcome is Outcome.DENIED else Outcome.UNAVAILABLE
            reason = _first_line(why.message)
            yield NotRun("scenario", scenario.name, origin.source, origin.line, code, reason, outcome)

    def reported(self, runtime: Runtime, problems: Iterable[Problem]) -> list[Problem]:
        """The problems that concern this run; those of replaced providers are only notices."""
        replaced = set(engine_of(runtime).stock.of_providers) if self.speaker.provider else set()
        return [
            each._replace(severity="notice") if each in replaced else each
            for each in problems
            if self._concerns(runtime, each.source)
        ]

    def _unprovided(self, runtime: Runtime) -> Iterator[NotRun]:
        """Scenarios that need a provider from the command line, if there is none."""
        for scenario in () if self.speaker.provider else self._chosen(engine_of(runtime).stock.unprovided):
            origin = scenario.origin
            reason = "no provider can answer for its agent; choose one with `--provider`, `--model` and `--base-url`"
            yield NotRun("scenario", scenario.name, origin.source, origin.line, "no_provider", reason)

    def _unplayed(self, runtime: Runtime) -> Iterator[NotRun]:
        """Examples of tools that cannot run here or are skipped."""
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
            elif not engine_of(runtime).plays_examples(tool):
                reason = engine_of(runtime).why_not_played(tool)
                yield NotRun("examples", tool.name, source, line, "reaches_out", reason, None)

    def agreed(self, runtime: Runtime, scenarios: Iterable[Scenario]) -> RunPlan:
        """Ask for the trust that the scenarios need, so that no prompt appears while they run.

        Returns:
            The plan with the granted hashes, for the worker processes.
        """
        subjects = {each.user: each for scenario in scenarios for each in trust_subjects(runtime, scenario)}
        for subject in subjects.values():
            with suppress(Untrusted):  # the call that needs it returns `denied`
                engine_of(runtime).trust.check(subject)
        granted = (*self.reading.granted, *engine_of(runtime).trust.granted)
        return self._replace(reading=self.reading._replace(granted=granted))

    def _runs_of(self, scenario: Scenario) -> list[Scenario]:
        return runs_of(
            self.speaker.of(scenario), repeat=self.repeat, seed=self.seed, interleave=self.interleave
        )


_FILES_OF_PACK = ("/tools/", "/scenarios/")
"""Pointers in `pack.yaml` below which globs select files."""


def _unread(runtime: Runtime, problems: Iterable[Problem], reported: Collection[str]) -> Iterator[NotRun]:
    """Scenarios, tools and files with errors, and skipped files. Every document with errors appears at least once.

    Args:
        runtime: The runtime.
        problems: Its problems.
        reported: Files that are listed for another reason.
    """
    stock = engine_of(runtime).stock
    packs = {pack.origin.source for pack in runtime.packs}
    found = [_refused("scenario", name, problem) for name, problem in stock.refused_scenarios]
    found += [_refused("tool", name, problem) for name, problem in stock.refused.items()]
    for place in stock.unread:
        source, _, at = place.rpartition(":")
        found.append(NotRun("file", "", source, int(at), "file_unread", "nothing in it could be read"))
    yield from found
    listed = {*reported, *(each.source for each in found)}
    for problem in problems:
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
"""Called with every report, in the order of the scenarios."""

STEPS = 200
"""Maximum number of times that the progress bar is drawn."""


def play_runs(
    plan: RunPlan,
    runtime: Runtime,
    scenarios: Sequence[Scenario],
    show: ReportListener,
    *,
    jobs: int | None = 1,
    update: bool = False,
    fail_fast: bool = False,
) -> list[ScenarioReport]:
    """Run scenarios and return their reports in the same order, whatever the number of processes.

    Args:
        plan: The plan that opened the runtime.
        runtime: The runtime with the tools; it is closed at the end.
        scenarios: The scenarios to run.
        show: Called with every report.
        jobs: Number of processes; 1 runs in this process. None starts one for each processor, but only for what is left
            after `ALONE` seconds in this process, and only if they will probably save as much.
        update: Accept results that differ from their golden files.
        fail_fast: Stop after the first scenario that fails.
    """
    processes = jobs or usable_processors()
    reports: list[ScenarioReport] = []
    if processes == 1 or jobs is None or not scenarios:
        reports = asyncio.run(
            _played(runtime, scenarios, show, processes=processes, update=update, fail_fast=fail_fast)
        )
        if len(reports) == len(scenarios) or (fail_fast and reports[-1].failed):
            return reports
    # `multiprocessing` is slow to import, and most runs use one process.
    from toolcrib.scenarios.workers import run_in_processes  # noqa: PLC0415

    # Each worker opens its own runtime; this one would only hold connections and servers open.
    runtime.close()
    # Closing the generator stops the workers when the loop ends early.
    running = run_in_processes(plan.open, scenarios, jobs=processes, update=update, first=len(reports))
    with closing(running) as coming:
        for report in coming:
            reports.append(report)
            show(report)
            if fail_fast and report.failed:
                break
    return reports


ALONE = 1.0
"""Seconds of work in one process before `-j auto` starts others: each takes about half a second to start."""


def others_pay_off(spent: float, done: int, runs: int, processes: int) -> bool:
    """Whether `-j auto` starts other processes for the rest of the runs: they will probably save more than `ALONE` seconds.

    Args:
        spent: Seconds that the first runs took in one process.
        done: Number of these runs.
        runs: Number of all runs.
        processes: Number of processes that the rest would be spread over.
    """
    rest = spent / done * (runs - done)
    return min(spent, rest * (1 - 1 / processes)) > ALONE


def usable_processors() -> int:
    """Number of processors that this process may use."""
    # In a container with a limited CPU set, `cpu_count` returns all processors of the machine. macOS has no
    # affinity.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


async def _played(
    runtime: Runtime,
    scenarios: Sequence[Scenario],
    show: ReportListener,
    *,
    processes: int,
    update: bool,
    fail_fast: bool,
) -> list[ScenarioReport]:
    """Run scenarios in this process; stop as soon as it pays off to spread the rest over several processes."""
    reports = []
    spent = 0.0
    with redirected_stdout() as restored:
        async with runtime:
            for scenario in scenarios:
                reports.append(await run_scenario(runtime, scenario, update=update))
                with restored():
                    show(reports[-1])
                spent += reports[-1].wall_time
                if fail_fast and reports[-1].failed:
                    break
                if others_pay_off(spent, len(reports), len(scenarios), processes):
                    break
    return reports


@contextmanager
def show_progress(total: int, *, quiet: bool) -> Iterator[ReportListener]:
    """Show the progress: a bar at a terminal, otherwise a line of dots for each file.

    Args:
        total: Number of runs.
        quiet: Print no dots, because stdout is read by a program.
    """
    if sys.stderr.isatty() and total:
        with click.progressbar(
            length=total,
            label="running",
            file=sys.stderr,
            width=0,  # what the counts leave of the terminal's width
            show_pos=True,
            show_percent=True,
            show_eta=True,
            item_show_func=lambda told: told,
            # Drawing the bar takes longer than many runs.
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
        """Count a report and return the counts."""
        self._passed += report.passed
        self._failed += report.failed
        return f"{self._passed} passed" + (f", {self._failed} failed" if self._failed else "")


class _Dots:
    """`file ..F?`: one line per file, one character per run; `?` for one that was not judged."""

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
"""Maximum number of changed files that are listed."""


def run_on_changes(round_of: Callable[[], FileFingerprints | None]) -> NoReturn:
    """Run rounds until Ctrl-C, each one after files changed.

    Args:
        round_of: Runs everything, prints the report, and returns the files that were read.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        ToolcribError: The first round could not be set up. An error in a later round is printed, and the loop continues.
    """
    seen = round_of() or FileFingerprints({}, {}, {})
    # Leaving the runner closes the watcher, wherever Ctrl-C arrives.
    with asyncio.Runner() as runner:
        coming = watch_changes(lambda: seen, clock=RealClock())
        while True:
            click.echo("waiting for changes; press Ctrl-C to stop", err=True)
            try:
                paths = runner.run(_next(coming))
            except asyncio.CancelledError:
                # `Runner.run` resets its count of interrupts after it has installed its SIGINT handler: a Ctrl-C in
                # between cancels the task, but is not turned into KeyboardInterrupt.
                raise KeyboardInterrupt from None
            _tell_changes(paths)
            try:
                seen = round_of() or seen
            # A syntax error in a file that is being edited must not end the watch.
            except ToolcribError as error:
                click.echo(escape_terminal(str(error)), err=True)


async def _next(coming: AsyncGenerator[list[str], None]) -> list[str]:
    # A coroutine of its own instead of `anext`: if the task is cancelled before it starts, the generator is not
    # touched and can continue.
    return await anext(coming)


def _tell_changes(paths: Iterable[str]) -> None:
    names = list(dict.fromkeys(_near(path) for path in paths))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    click.echo(f"\nchanged: {escape_terminal(', '.join(names[:SHOWN]))}{more}", err=True)


def _near(path: str) -> str:
    """A path relative to the working directory; unchanged if it is outside."""
    real, here = Path(path).resolve(), Path.cwd()
    return str(real.relative_to(here)) if real.is_relative_to(here) else path
