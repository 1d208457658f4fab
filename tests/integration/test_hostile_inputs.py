"""Inputs that mean harm: each lies beside two good tools, and is read and called by a worker under a watchdog.

Whatever the input: the worker lives, answers within a minute, shows no traceback, and the good tools answer.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hostile
from hostile import BY_ID, CANARY_PORT, CASES, SECRET, Case, lay_out
from sampling import sample

WATCHDOG = 60.0
"""Seconds."""


pytestmark = pytest.mark.xdist_group("hostile")


class Worker:
    """A process that takes cases; a new one takes the place of one that died."""

    def __init__(self, port: int, errors: Path) -> None:
        self._environment = {**os.environ, CANARY_PORT: str(port), "TOOLCRIB_CANARY": SECRET}
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None

    def ask(self, case: Case) -> dict[str, Any]:
        """What came of a case; fails if the worker is silent for too long or dies."""
        process = self._alive()
        process.stdin.write(case.id + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], WATCHDOG)
        line = process.stdout.readline() if ready else ""
        if not line:
            code = process.poll()
            self.stop()
            pytest.fail(
                f"{case.id}: {'no answer within 60 s' if code is None else f'the worker died ({code})'}\n{self.errors()}"
            )
        return json.loads(line)

    def errors(self) -> str:
        """Everything that workers wrote to standard error."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            with self._errors.open("ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-W", "error", hostile.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=self._environment,
                )
        return self._process

    def stop(self) -> int | None:
        """End the worker; its exit code, or None if there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.stdin.close()
        try:
            return process.wait(WATCHDOG)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()


@pytest.fixture(scope="module")
def canary():
    """A server that nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture(scope="module")
def worker(canary, tmp_path_factory):
    worker = Worker(canary.getsockname()[1], tmp_path_factory.mktemp("hostile") / "stderr.txt")
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def times():
    """(case, outcome, seconds of loading, seconds of the call)."""
    return []


@pytest.mark.parametrize(
    "case",
    [
        # The bomb takes as long as fifty others, and tests of archives have one.
        pytest.param(case, id=case.id, marks=[pytest.mark.exhaustive] if case.id == "D93" else [])
        for case in CASES
    ],
)
def test_a_hostile_input_comes_to_nothing(case, worker, canary, times):
    answer = worker.ask(case)
    got = answer.get("answer")
    times.append(
        (
            case.id,
            " ".join(answer["codes"]) or "loaded",
            got and got["outcome"],
            answer["load"],
            answer.get("call"),
        )
    )
    assert answer["good"] == [{"n": 2}, {"n": 2}]
    assert "Traceback" not in worker.errors()
    assert answer["codes"] == sorted(case.codes)
    assert answer["strict"] is bool(case.codes)
    if case.call is not None:
        assert (got["outcome"], got["result"]) == (case.outcome, case.value)
    everything = answer["text"] + json.dumps(got)
    assert [part for part in case.says if part not in everything] == []
    assert [part for part in case.silent if part in everything] == []
    with pytest.raises(BlockingIOError):
        canary.accept()


def test_a_failing_call_reports_twenty_faults_at_most(worker):
    faults = worker.ask(BY_ID["D38"])["answer"]["error"]["details"]["violations"]
    assert 1 < len(faults) <= 20


def test_every_input_of_the_list_is_tried():
    tried_ones = {case.id.partition("-")[0] for case in CASES}
    later = {"D23", "D24"}
    assert tried_ones == {f"D{number:02}" for number in (*range(1, 55), *range(91, 94))} - later


@pytest.mark.parametrize(
    "verb", sample([["list"], ["show", "hostile"], ["list", "--json"], ["validate"]], one_in=4)
)
def test_nothing_in_a_document_steers_the_terminal(verb, tmp_path):
    lay_out(BY_ID["D22"], tmp_path)
    command = [
        sys.executable,
        "-m",
        "toolcrib",
        *verb,
        *(["--pack"] if verb != ["validate"] else []),
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr.decode()
    output = run.stdout + run.stderr
    assert b"\x1b" not in output
    assert "\u202e".encode() not in output


def test_the_worker_ends_without_a_word(worker):
    worker.ask(BY_ID["D40"])
    assert worker.stop() == 0
    assert worker.errors() == ""


def test_report_of_times(times):
    """The times of all cases are printed: `pytest -rP`."""
    lines = [f"{'input':<22}{'load ms':>9}{'call ms':>9}  outcome"]
    for name, codes, outcome, load, call in times:
        spent = "" if call is None else f"{1000 * call:.1f}"
        lines.append(f"{name:<22}{1000 * load:>9.1f}{spent:>9}  {outcome or codes}")
    slowest = max((load + (call or 0) for _name, _codes, _outcome, load, call in times), default=0.0)
    lines.append(f"{len(times)} inputs, the slowest took {1000 * slowest:.0f} ms")
    sys.stdout.write("\n".join(lines) + "\n")
    assert slowest < WATCHDOG
