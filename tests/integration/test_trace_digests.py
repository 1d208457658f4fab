"""The same runs have the same trace, whatever the seed of Python's hashes and however many processes run them.

A few processes at a time; CI, which has its time, runs an eighth of the seeds. `TOOLCRIB_ALL_DIGESTS=1` runs every seed with every number of processes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sampling import THOROUGH

SEEDS = range(32 if THOROUGH else 4)
JOBS = (1, 2, 4)
AT_ONCE = 2

SUITE = """
name: search
input_schema: {type: object, required: [q], properties: {q: {type: string}}, additionalProperties: false}
output_schema: {type: object, required: [hits], properties: {hits: {type: array, items: {type: string}, minItems: 1, maxItems: 3}}}
annotations: {read_only: true}
timeout: 20s
mock: {generate: true, latency: {min: 10ms, max: 9s}}
---
name: take
input_schema: {type: object, required: [who], properties: {who: {type: string}}, additionalProperties: false}
annotations: {idempotent: true}
timeout: 20s
mock: {result: nothing}
---
scenario: shaky
seed: 5
repeat: 2
matrix: {message: [no, later]}
store:
  seats: {key: seat, rows: [{seat: 1A, of: nobody}, {seat: 1B, of: nobody}]}
  log: []
state: {door: [open, shut]}
mocks:
  take:
    rows: {seat: {in: seats, where: {of: nobody}, missing: all seats are taken}}
    let: {number: "{{ seq('log') }}"}
    effects:
      - {update: seat, set: {of: "{{ args.who }}", ticket: "{{ uuid() }}"}}
      - {insert: log, key: "{{ number }}", value: {who: "{{ args.who }}", at: "{{ now }}", luck: "{{ random(0, 9) }}", how: "{{ pick(['a', 'b', 'c']) }}"}}
      - {if: "{{ number == 2 }}", goto: {door: shut}}
    result: "{{ seat }}"
    latency: {min: 10ms, max: 2s}
faults:
  - {name: bad, tool: search, inject: {error: "{{ matrix.message }}"}, when: {call: 3, attempt: 1}}
  - {name: lost, tool: take, inject: lost_ack, when: {probability: 0.4}, must_fire: false}
  - {name: slow, tool: "s*", inject: {slow: 3s}, when: {probability: 0.5}, must_fire: false}
steps:
  - {call: search, args: {q: "{{ run }}"}, as: found}
  - parallel:
      - {call: take, args: {who: ann}, as: ann}
      - {call: search, args: {q: "{{ found.result.hits[0] }}"}}
  - advance: 1h
  - {call: search, args: {q: "{{ store.seats['1A'].of }}"}, expect: {error: {code: tool_error}}}
  - {call: search, args: {q: "{{ now }} {{ state.door }}"}}
verify: {budget: {elapsed: {$lt: 120}}, unused_rules: error}
---
scenario: race
steps:
  - parallel:
      - {call: search, args: {q: a}}
      - {call: search, args: {q: b}}
      - {call: search, args: {q: c}}
---
scenario: failing
repeat: 2
steps: [{call: search, args: {q: "{{ seed }}"}, expect: {result: {hits: []}}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("suite")
    (made / "descriptors").mkdir()
    (made / "descriptors" / "suite.yaml").write_text(SUITE, encoding="utf-8")
    return made


ALONE = """
import asyncio, gc, json
gc.disable()
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import run_scenario, runs_of

async def told():
    async with Runtime.open("descriptors", executors=Executors({"mock": MockExecutor})) as runtime:
        runs = [run for scenario in runtime.scenarios for run in runs_of(scenario, interleave=ORDERS)]
        reports = [await run_scenario(runtime, run) for run in runs]
    return [(report.scenario.name, report.digest, report.passed) for report in reports]

print(json.dumps(asyncio.run(told())))
"""
"""What one process runs. A seed of hashes holds from the start of a process on, so each needs a start: a quick one."""

ORDERS = 3


def combinations() -> Iterator[tuple[int, int]]:
    """Seeds of hashes with numbers of processes: each seed once, unless all are asked for."""
    if os.environ.get("TOOLCRIB_ALL_DIGESTS"):
        return itertools.product(SEEDS, JOBS)
    # Most with one process: each further one costs as much again.
    several = dict(zip(SEEDS[5:], JOBS[1:], strict=False))
    return ((seed, several.get(seed, 1)) for seed in SEEDS)


def told(folder: Path, hash_seed: int, jobs: int) -> list[list[str | bool]]:
    """Name, digest and verdict of every run."""
    if jobs == 1:
        found: list[list[str | bool]] = json.loads(
            said(folder, hash_seed, "-S", "-c", ALONE.replace("ORDERS", str(ORDERS)))
        )
        return found
    words = ["run", "--interleave", str(ORDERS), "--json", "-j", str(jobs)]
    reports = json.loads(said(folder, hash_seed, "-m", "toolcrib", *words))["scenarios"]
    return [[report["scenario"], report["digest"], report["passed"]] for report in reports]


def said(folder: Path, hash_seed: int, *words: str) -> str:
    """What Python says with these words."""
    there = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": there},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


def test_digests_are_equal_over_seeds_of_hashes_and_numbers_of_processes(folder):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda one: told(folder, *one), combinations()))
    first = found[0]
    names = [name for name, _digest, _passed in first]
    assert len(names) == len(set(names)) == 4 * 2 + 4 + 2
    passed = {name for name, _digest, passed in first if passed}
    assert passed == {name for name in names if not name.startswith("failing")}
    # Seeds and values of the matrix, and the order of beginning, make other traces.
    assert len({digest for _name, digest, _passed in first}) == len(names)
    different = [number for number, others in enumerate(found) if others != first]
    assert different == []
