"""What a run is about: which documents to read, and which of their scenarios to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal, NamedTuple

import click

from toolcrib.cli.options import Reading
from toolcrib.cli.runtime_options import Consents, open_and_ask
from toolcrib.core.errors import Problem
from toolcrib.core.model import Outcome
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import examples_of
from toolcrib.loading.scenarios.scenario_links import tools_of
from toolcrib.scenarios import NotRun, runs_of, select
from toolcrib.scenarios.tool_view import trust_subjects
from toolcrib.security.trust.check import Untrusted


class Speaker(NamedTuple):
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
        if agent is None or self == Speaker():
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


class Plan(NamedTuple):
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

    reading: Reading
    paths: tuple[str, ...] = ()
    keyword: str = ""
    tags: tuple[str, ...] = ()
    seed: int | None = None
    repeat: int | None = None
    interleave: int = 0
    passthrough: bool = False
    speaker: Speaker = Speaker()
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
        runtime = open_and_ask(reading, self.paths, passthrough=self.passthrough, consents=consents)
        examples = [
            scenario
            for tool in runtime.registry.values()
            if (scenario := examples_of(tool)) is not None
            and not (runtime.engine.unavailable(tool) or runtime.engine.reaches_out(tool))
        ]
        there = sorted([*runtime.scenarios, *examples], key=_place)
        chosen = self._chosen(run for scenario in there for run in self._runs_of(scenario))
        if self.speaker != Speaker() and all(run.agent is None for run in chosen):
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
        for scenario in self._chosen(runtime.engine.stock.postponed):
            origin = scenario.origin
            ends = [runtime.engine.not_found(name, runtime.registry) for name in tools_of(scenario)]
            why = next((end for end in ends if end.outcome is not Outcome.NOT_FOUND), ends[0])
            code = why.error.code if why.error is not None else why.outcome.value
            outcome = Outcome.DENIED if why.outcome is Outcome.DENIED else Outcome.UNAVAILABLE
            reason = _first_line(why.message)
            yield NotRun("scenario", scenario.name, origin.source, origin.line, code, reason, outcome)

    def _unplayed(self, runtime: Runtime) -> Iterator[NotRun]:
        """Examples of tools that can't run here, or that are left out."""
        for tool in runtime.registry.values():
            examples = examples_of(tool)
            if examples is None or not self._chosen([examples]):
                continue
            source, line = tool.origin.source, tool.origin.line
            hidden, unavailable = runtime.registry.why_hidden(tool.name), runtime.engine.unavailable(tool)
            if hidden:
                yield NotRun("examples", tool.name, source, line, "hidden", hidden, None)
            elif unavailable:
                yield NotRun("examples", tool.name, source, line, "unavailable", unavailable)
            elif runtime.engine.reaches_out(tool):
                reason = f"the mode `{tool.mode}` reaches out"
                yield NotRun("examples", tool.name, source, line, "reaches_out", reason, None)

    def agreed(self, runtime: Runtime, scenarios: Iterable[Scenario]) -> Plan:
        """Let somebody agree beforehand to what the scenarios may touch, so that nobody is asked while they run.

        Returns:
            The plan with what was agreed to, for the processes that run it.
        """
        subjects = {each.user: each for scenario in scenarios for each in trust_subjects(runtime, scenario)}
        for subject in subjects.values():
            with suppress(Untrusted):  # a call that needs it ends `denied`
                runtime.engine.trust.check(subject)
        granted = (*self.reading.granted, *runtime.engine.trust.granted)
        return self._replace(reading=self.reading._replace(granted=granted))

    def _runs_of(self, scenario: Scenario) -> list[Scenario]:
        return runs_of(
            self.speaker.of(scenario), repeat=self.repeat, seed=self.seed, interleave=self.interleave
        )


_FILES_OF_PACK = ("/tools/", "/scenarios/")
"""Where a pack says which files it has."""


def _unread(runtime: Runtime) -> Iterator[NotRun]:
    """Scenarios, tools and files with errors, and files that are left out. Of each document with errors, one at least."""
    stock = runtime.engine.stock
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
