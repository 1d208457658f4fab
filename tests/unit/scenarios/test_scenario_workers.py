"""Scenarios in worker processes: the same reports in the same order, and what becomes of a worker that dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from contextlib import closing

import pytest

from openings import Documents, InterruptedStart
from toolcrib.core.errors import ConfigurationError
from toolcrib.scenarios import run_scenario
from toolcrib.scenarios.workers import _run_worker, _WorkerPool, pack_report, run_in_processes, unpack_report

MANY = """
scenario: many
repeat: 30
steps:
  - {call: echo, args: {run: "{{ run }}"}, as: first}
  - name: two at once
    parallel:
      - {call: echo, args: {came: "{{ first.result.args.run }}"}}
      - {call: echo, args: {password: hunter2-is-secret}, expect: {result: {seed: {$lt: 20}}}}
verify: {order: {exact: [echo, echo, echo]}}
---
scenario: last
matrix: {city: [Oslo, Paris]}
steps: [{call: echo, args: {city: "{{ matrix.city }}"}, expect: {result: {args: {city: Oslo}}}}]
"""


def documents(text, **options):
    made = Documents(text, os.getpid(), **options)
    _runtime, scenarios = made.open()
    return made, scenarios


def in_processes(text, jobs=2, **options):
    made, scenarios = documents(text, **options)
    with closing(run_in_processes(made.open, scenarios, jobs=jobs)) as coming:
        return list(coming)


def here(text):
    runtime, scenarios = documents(text)[0].open()

    async def all_of_them():
        return [await run_scenario(runtime, scenario) for scenario in scenarios]

    return asyncio.run(all_of_them())


def comparable(report):
    return {**report.as_json(), "duration": 0, "text": str(report)}


def test_reports_are_the_same_and_in_the_same_order_as_without_workers():
    alone, together = here(MANY), in_processes(MANY, jobs=3)
    assert [report.passed for report in alone].count(False) == 11
    assert [comparable(report) for report in together] == [comparable(report) for report in alone]
    assert multiprocessing.active_children() == []


GOOD = "scenario: good_NUMBER\nsteps: [{call: echo}]\n"


def test_a_worker_that_dies_takes_its_scenario_with_it_and_no_other():
    texts = [GOOD.replace("NUMBER", str(number)) for number in range(20)]
    texts[4:4] = ["scenario: killed\nsteps: [{call: fatal, args: {signal: SIGKILL}}]\n"]
    texts[9:9] = ["scenario: left\nsteps: [{call: fatal, args: {code: 3}}]\n"]
    reports = in_processes("---\n".join(texts))
    lost = [report for report in reports if not report.passed]
    assert [str(report).splitlines()[0].partition(" (")[0] for report in lost] == [
        "FAILED killed › run",
        "FAILED left › run",
    ]
    assert [report.failures[0].lines for report in lost] == [
        ("the worker process that ran it was ended by SIGKILL",),
        ("the worker process that ran it ended with exit code 3",),
    ]
    assert [report.scenario.name for report in reports if report.passed] == [
        f"good_{number}" for number in range(20)
    ]
    assert "1 later step did not run" in str(lost[0])


@pytest.mark.exhaustive
def test_a_worker_that_dies_while_it_waits_takes_nothing_with_it():
    made, scenarios = documents(GOOD)
    pool = _WorkerPool(made.open, scenarios, update=False)
    pool.start(1)
    (worker,) = pool._workers
    assert worker.connection.poll(60)
    worker.process.kill()
    worker.process.join()
    try:
        while 0 not in pool.reports:
            pool.receive()
    finally:
        pool.stop()
    assert pool.reports[0].passed


@pytest.mark.exhaustive
def test_after_too_many_deaths_the_rest_does_not_run():
    fatal = "scenario: fatal\nrepeat: 7\nsteps: [{call: fatal, args: {code: 3}}]\n"
    reports = in_processes(fatal, jobs=1)
    assert [report.failures[0].lines[0].partition(" ended")[0] for report in reports] == [
        *["the worker process that ran it"] * 5,
        *["not run: the last worker process"] * 2,
    ]


def test_workers_that_can_not_begin_are_told_once_for_every_scenario():
    reports = in_processes(GOOD + "---\n" + GOOD.replace("good", "better"), deadly=True)
    assert [report.failures[0].lines for report in reports] == [
        ("not run: the last worker process ended with exit code 7",)
    ] * 2


def test_documents_that_change_meanwhile_are_an_error():
    with pytest.raises(ConfigurationError, match="changed while the workers started"):
        in_processes(GOOD, changed=True)
    assert multiprocessing.active_children() == []


@pytest.mark.exhaustive
def test_leaving_early_ends_the_workers():
    made, scenarios = documents(MANY)
    with closing(run_in_processes(made.open, scenarios, jobs=2)) as coming:
        assert next(coming).scenario.name == "many[1/30]"
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


@pytest.fixture
def interrupts():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_worker_ignores_ctrl_c_and_ends_when_its_line_is_closed(interrupts):
    made, scenarios = documents(GOOD)
    ours, theirs = multiprocessing.Pipe()
    said = []

    def listen():
        said.append(ours.recv())
        ours.send([0])
        said.append(ours.recv())
        ours.close()

    listener = threading.Thread(target=listen)
    listener.start()
    _run_worker(theirs, made.open, False)
    listener.join()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert said[0] == ["tools.yaml:11 good_NUMBER 0"]
    assert unpack_report(said[1][1], scenarios[0]).passed
    theirs.close()


def test_a_worker_ignores_ctrl_c_from_its_first_moment(capfd):
    _made, scenarios = documents(GOOD)
    opening = InterruptedStart(GOOD, os.getpid())
    with closing(run_in_processes(opening.open, scenarios, jobs=1)) as coming:
        assert [report.passed for report in coming] == [True]
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_worker_whose_listener_is_gone_ends_without_a_word(interrupts):
    made, _scenarios = documents(GOOD)
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    _run_worker(theirs, made.open, False)
    theirs.close()


def test_a_report_survives_its_journey_without_what_the_tool_really_answered():
    for report in here(MANY):
        again = unpack_report(pickle.loads(pickle.dumps(pack_report(report))), report.scenario)
        assert comparable(again) == comparable(report)
        assert all(step.result.raw_value is None for step in again.steps)
