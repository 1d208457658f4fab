"""Run scenarios in worker processes. Each worker opens its own runtime; only indexes and reports are transferred.

A worker receives a batch of scenarios, runs them in order, and sends each report when it is ready. If a worker dies, the
first scenario without a report is therefore the one that it was running, and no scenario runs twice. A report is
transferred as plain data, without the compiled scenario.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Result
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.scenarios.model import CallStep, Scenario
from toolcrib.scenarios.reports import (
    AgentCall,
    AgentReport,
    GoldenChange,
    ScenarioFailure,
    ScenarioReport,
    StepReport,
    constant,
)
from toolcrib.scenarios.runner import run_scenario


class PackedStep(NamedTuple):
    """A step report without the step."""

    args: JSON
    result: Result | None
    failures: tuple[ScenarioFailure, ...]
    golden: GoldenChange | None
    asked: tuple[str, int, int, str, bool, str] | None = None
    """For a call of an agent: tool, turn, place, id, whether the tool was reached, and pointer."""


class PackedReport(NamedTuple):
    """A scenario report without the scenario."""

    seed: int
    passed: bool
    steps: tuple[PackedStep, ...]
    failures: tuple[ScenarioFailure, ...]
    warnings: tuple[ScenarioFailure, ...]
    duration: float
    wall_time: float
    digest: str
    agent: AgentReport | None = None
    trials: tuple[PackedReport, ...] = ()


def pack_report(report: ScenarioReport) -> PackedReport:
    """Convert a report to data that can be pickled. Unmasked results are not transferred."""
    return PackedReport(
        seed=report.seed,
        passed=not report.failed,
        steps=() if report.trials else tuple(map(_packed_step, report.steps)),
        failures=report.failures,
        warnings=report.warnings,
        duration=report.duration,
        wall_time=report.wall_time,
        digest=report.digest,
        agent=report.agent,
        trials=tuple(map(pack_report, report.trials)),
    )


def _packed_step(report: StepReport) -> PackedStep:
    step: Any = report.step
    asked = None
    if type(step) is not CallStep:
        asked = (step.call, step.turn, step.place, step.id, step.reached, step.pointer)
    return PackedStep(report.args, _plain(report.result), report.failures, report.golden, asked)


def _plain(result: Result | None) -> Result | None:
    if result is None:
        return None
    error = result.error
    return result._replace(
        # Mapping proxies cannot be pickled.
        meta=dict(result.meta),
        error=error and error._replace(details=dict(error.details)),
        raw_value=None,
    )


def unpack_report(report: PackedReport, scenario: Scenario) -> ScenarioReport:
    """Rebuild a report with its scenario."""
    if report.trials:
        from toolcrib.scenarios.runner import report_of  # noqa: PLC0415 -- most scenarios have one trial

        tried = [unpack_report(each, replace(scenario, trials=1, seed=each.seed)) for each in report.trials]
        return report_of(scenario, report.seed, tried)
    steps = _unpacked_steps(report.steps, scenario)
    return ScenarioReport(
        scenario=scenario,
        seed=report.seed,
        steps=lambda: steps,
        passed=report.passed,
        failures=report.failures,
        warnings=report.warnings,
        duration=report.duration,
        wall_time=report.wall_time,
        digest=lambda: report.digest,
        agent=report.agent,
    )


def _unpacked_steps(packed_steps: Sequence[PackedStep], scenario: Scenario) -> tuple[StepReport, ...]:
    written = [each for each in packed_steps if each.asked is None]
    own = [
        StepReport(step=step, args=each.args, result=each.result, failures=each.failures, golden=each.golden)
        # Not strict: steps after a failed one have no report.
        for step, each in zip(scenario.calls, written, strict=False)
    ]
    asked = [each for each in packed_steps if each.asked is not None]
    if not asked:
        return tuple(own)
    for each in asked:
        call, turn, place, name, reached, pointer = each.asked or ("", 0, 0, "", True, "")
        step = AgentCall(
            call=call,
            args=constant(each.args),
            turn=turn,
            place=place,
            id=name,
            reached=reached,
            pointer=pointer,
        )
        own.append(StepReport(step=step, args=each.args, result=each.result, failures=each.failures))
    return tuple(own)


OpenRuntime: TypeAlias = Callable[[], tuple[Runtime, Sequence[Scenario]]]
"""Opens the runtime and returns the scenarios, the same in every process. Must be picklable."""

BATCH = 0.2
"""Seconds of work in a batch."""

FIRST = 8
"""Scenarios in the first batch of a worker, when their duration is unknown."""

MOST_DEATHS = 5
"""No new workers are started after this many have died."""

_GRACE = 2.0
"""Seconds that a worker has to stop before it is killed."""

IndexedReport: TypeAlias = tuple[int, PackedReport]
"""Index of a scenario, and its report."""


def run_in_processes(
    opening: OpenRuntime, scenarios: Sequence[Scenario], *, jobs: int, update: bool = False, first: int = 0
) -> Generator[ScenarioReport, None, None]:
    """Run scenarios in several processes and yield the reports in the order of the scenarios.

    Closing the generator early stops the workers. A scenario whose worker died has a failed report.

    Args:
        opening: Opens the runtime in each worker, and returns the same scenarios there.
        scenarios: The scenarios to run.
        jobs: Maximum number of workers.
        update: As in `run_scenario`.
        first: Index of the first scenario to run; those before it have run already.

    Raises:
        ConfigurationError: The documents changed before a worker had read them.
    """
    pool = _WorkerPool(opening, scenarios, update=update, first=first)
    try:
        pool.start(min(jobs, len(scenarios) - first))
        for index in range(first, len(scenarios)):
            while index not in pool.reports:
                pool.receive()
            yield pool.reports.pop(index)
    finally:
        pool.stop()


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process, and the scenarios that it has received but not reported."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    given: deque[int] = field(default_factory=deque)


class _WorkerPool:
    """The workers, the scenarios that are left, and the reports that arrived."""

    def __init__(
        self, opening: OpenRuntime, scenarios: Sequence[Scenario], *, update: bool, first: int
    ) -> None:
        self.reports: dict[int, ScenarioReport] = {}
        self._opening = opening
        self._scenarios = scenarios
        self._names = _names(scenarios)
        self._update = update
        self._left = deque(range(first, len(scenarios)))
        self._workers: list[_Worker] = []
        self._deaths = 0
        self._last_end = "could not be started"
        self._ran = 0
        self._spent = 0.0
        # Not `fork`: a forked copy of a process with threads or open connections may deadlock.
        self._context = multiprocessing.get_context("spawn")

    def start(self, count: int) -> None:
        """Start workers."""
        for _ in range(count):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=_run_worker, args=(theirs, self._opening, self._update), daemon=True
            )
            # An interrupt waits until the worker is among those that are stopped.
            with _interrupts_held():
                process.start()
                # While this process holds a copy of the worker's end, the death of the worker does not close the
                # pipe.
                theirs.close()
                self._workers.append(_Worker(process, ours))

    def receive(self) -> None:
        """Wait for messages of workers and handle them."""
        if not self._workers:
            self._give_up()
            return
        readable = wait([worker.connection for worker in self._workers])
        for worker in [worker for worker in self._workers if worker.connection in readable]:
            try:
                self._handle(worker, worker.connection.recv())
            except (EOFError, OSError):
                self._remove(worker)

    def _handle(self, worker: _Worker, message: IndexedReport | list[str]) -> None:
        if isinstance(message, list):
            self._check(message)
            worker.ready = True
        else:
            index, report = message
            worker.given.remove(index)
            self.reports[index] = unpack_report(report, self._scenarios[index])
            self._ran += 1
            self._spent += report.wall_time
        self._send_batch(worker)

    def _send_batch(self, worker: _Worker) -> None:
        """Send the next batch to an idle worker."""
        if worker.ready and not worker.given and self._left:
            batch = self._batch()
            try:
                worker.connection.send(batch)
            except OSError:
                # The worker died while it was idle; the next `receive` finds its closed connection.
                self._left.extendleft(reversed(batch))
            else:
                worker.given.extend(batch)

    def _check(self, names: list[str]) -> None:
        # Workers read the documents themselves, so an edit in between would shift the indexes.
        if names != self._names:
            raise ConfigurationError("the documents changed while the workers started", hint="run it again")

    def _batch(self) -> list[int]:
        """The next batch: about `BATCH` seconds of work, and less towards the end, so that all workers finish together."""
        # One scenario at a time would cost a round trip for each; large batches would leave workers idle at
        # the end.
        size = FIRST if not self._spent else max(1, int(BATCH * self._ran / self._spent))
        fair = max(1, len(self._left) // (2 * len(self._workers)))
        return [self._left.popleft() for _ in range(min(size, fair, len(self._left)))]

    def _remove(self, worker: _Worker) -> None:
        """Remove a dead worker: report the scenario that it was running, and return the rest to the queue."""
        worker.process.join()
        self._last_end = _ending(worker.process.exitcode)
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.close()
        # A scenario that crashes the interpreter kills one worker; more deaths point to a broken environment.
        self._deaths += 1
        if worker.given:
            self._report_lost(worker.given.popleft(), f"the worker process that ran it {self._last_end}")
        self._left.extendleft(reversed(worker.given))
        # A worker that died before it was ready is not replaced: the next one would fail in the same way.
        if worker.ready and self._left and self._deaths < MOST_DEATHS:
            self.start(1)
        # Idle workers take over what the dead one had not run.
        for other in self._workers:
            self._send_batch(other)

    def _give_up(self) -> None:
        """Report all remaining scenarios as lost, because no worker is left."""
        for index in self._left:
            self._report_lost(index, f"not run: the last worker process {self._last_end}")
        self._left.clear()

    def _report_lost(self, index: int, line: str) -> None:
        scenario = self._scenarios[index]
        failure = ScenarioFailure(what="worker", lines=(line,), pointer="")
        self.reports[index] = ScenarioReport(
            scenario=scenario, seed=scenario.seed, steps=tuple, passed=False, failures=(failure,)
        )

    def stop(self) -> None:
        """Stop all workers: idle ones stop when their connection is closed, the others are terminated."""
        for worker in self._workers:
            # A worker that runs a scenario, or loads the project, does not read its connection.
            if worker.given or not worker.ready:
                worker.process.terminate()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(_GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._workers.clear()


def _names(scenarios: Sequence[Scenario]) -> list[str]:
    """Identify the scenarios, to detect documents that changed between two reads."""
    return [
        f"{scenario.origin.source}:{scenario.origin.line} {scenario.name} {scenario.seed}"
        for scenario in scenarios
    ]


def _ending(code: int | None) -> str:
    """Describe how a process ended."""
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block SIGINT in this thread, and in the processes that it starts, which inherit the mask.

    A worker that is interrupted before it ignores the signal would print a traceback.
    """
    # Its own start ends with SIGINT unblocked, so it comes first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_worker(connection: Connection, opening: OpenRuntime, update: bool) -> None:
    """Run batches in a worker process until its connection is closed."""
    # Ctrl-C sends SIGINT to every process of the terminal; the main process stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What tools start from here on is not to inherit the mask of this process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # stdout belongs to the report of the main process, whatever tools and their programs print.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    runtime, scenarios = opening()
    with suppress(BrokenPipeError):  # the main process has closed the connection
        connection.send(_names(scenarios))
        asyncio.run(_serve(connection, runtime, scenarios, update=update))


async def _serve(
    connection: Connection, runtime: Runtime, scenarios: Sequence[Scenario], *, update: bool
) -> None:
    async with runtime:
        # Reading the pipe blocks, and the event loop has MCP servers to serve.
        while batch := await asyncio.to_thread(_next_batch, connection):
            for index in batch:
                report = await run_scenario(runtime, scenarios[index], update=update)
                connection.send((index, pack_report(report)))


def _next_batch(connection: Connection) -> list[int]:
    """The indexes of the next scenarios; empty after the connection was closed."""
    try:
        batch: list[int] = connection.recv()
    except EOFError:
        return []
    return batch
