"""Worker processes of Python tools: typed calls, death, limits, cancellation, secrets, and what may run in them."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import textwrap
import time
from pathlib import Path
from threading import Thread

import pytest

import toolcrib
from sampling import sample
from toolcrib import Executors, Outcome, Partial, Progress, RealClock, Registry, Runtime, parse_registry
from toolcrib.core.model import NOTHING, Content
from toolcrib.core.process_limits import NO_PROCESS_LIMITS
from toolcrib.executors.python.worker_messages import ToolDescription, WorkerOrder, encode
from toolcrib.executors.python.worker_program import ToolWorker, Wire
from toolcrib.executors.python.workers import WorkerPool, WorkerSettings

MODULE = '''
import asyncio, os, signal, subprocess, sys, time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import toolcrib
from toolcrib import CallContext, Outcome, Partial, Progress, Result
from toolcrib.core.model import Content

calls = 0

def pid(n: int = 0) -> list[int]:
    """Tell the process and its calls."""
    global calls
    calls += 1
    return [os.getpid(), calls]

async def due(day: date) -> date:
    await asyncio.sleep(0)
    return day

def hidden(day: date) -> date:
    return due(day)

def chatty(n: int) -> int:
    print("hello")
    os.system("echo hello")
    sys.stdout.flush()
    return len(sys.stdin.read()) + n

def returning(n: int) -> Iterator[Any]:
    yield Progress(1, n)
    yield Partial(Content("text", text="half"))
    return n

async def streaming(n: int) -> AsyncIterator[Any]:
    yield Progress(1, n, "one")
    yield n

def told(context: CallContext) -> dict[str, Any]:
    context.emit(Progress(3))
    session = context.session
    n = session.slot("n", lambda: [0])
    n[0] += 1
    return {"user": context.user, "session": session.id, "grants": sorted(context.grants), "n": n[0], "calls": session.calls}

def whole() -> Result:
    return Result.failure(Outcome.TOOL_ERROR, "no", code="mine", details={"a": [1]})

def failing(key: str) -> int:
    raise KeyError(f"no such key: {key}")

async def cancelling() -> int:
    raise asyncio.CancelledError

def alien() -> object:
    return {"thing": object()}

def bare():
    return {1: {2, 3}}

def same(text: str) -> str:
    return text

def large(n: int) -> str:
    return "x" * n

def leaving(code: int) -> int:
    sys.exit(code)

def interrupting():
    raise KeyboardInterrupt(os.getpid())

def dying(how: str) -> int:
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)

def hanging(marker: str) -> int:
    if not marker:
        return 0
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(marker).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)

async def hanging_async(marker: str) -> int:
    Path(marker).write_text(f"{os.getpid()}")
    await asyncio.sleep(600)

def writing(path: str, size: int) -> int:
    return Path(path).write_bytes(bytes(size))

def hungry(mib: int) -> int:
    kept = [bytes([1]) * (1 << 20) for _ in range(mib)]
    while len(kept) > 1:
        time.sleep(600)
    return len(kept)

async def reaching(how: str, name: str, context: CallContext) -> str | None:
    if how == "environment":
        return os.environ.get(name)
    if how == "http":
        return (await context.http.get("http://127.0.0.1/")).text
    if how == "http_sync":
        return context.http_sync.get("http://127.0.0.1/").text
    if how == "connect":
        return str(await context.connect("127.0.0.1", 80))
    secret = context.secret(name)
    if how == "error":
        raise RuntimeError("bad token " + secret)
    return "token " + secret

@dataclass
class By:
    by: int = 1

@dataclass
class Config:
    start: int = 0
    folder: str = ""

class Count(toolcrib.Tool[By, list[int]]):
    """Count in one process."""

    def initialise(self, config: Config) -> None:
        self.config, self.value = config, config.start

    def execute(self, given: By) -> list[int]:
        self.value += given.by
        return [os.getpid(), self.value]

    def close(self) -> None:
        if self.config.folder:
            with open(f"{self.config.folder}/closed", "a") as file:
                file.write("x")

class AsyncCount(Count):
    async def initialise(self, config: Config) -> None:
        self.config, self.value = config, config.start

    async def execute(self, given: By) -> list[int]:
        await asyncio.sleep(0)
        self.value += given.by
        return [os.getpid(), self.value]

def unwritable() -> Result:
    return Result.failure(Outcome.TOOL_ERROR, "no", details={"a": {1}})

@toolcrib.factory
def made():
    def inner() -> int:
        return 1
    return inner

class Needy(toolcrib.Tool[By, int]):
    """Needs an object of the program."""

    def __init__(self, database: Any) -> None: ...

    def execute(self, given: By) -> int: ...

class Broken(toolcrib.Tool[By, int]):
    def initialise(self, config: Config) -> None:
        raise ConnectionError("no database")

    def execute(self, given: By) -> int: ...
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module that only this test has, because tests share a process."""
    name = f"worker_tools_{abs(hash(str(tmp_path)))}"
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield name
    sys.modules.pop(name, None)


OPEN = "input_schema: {type: object}"
"""A schema of the descriptor, so that no worker has to be asked for one."""


def tools(*texts, **options):
    documents = "\n---\n".join(textwrap.dedent(text) for text in texts)
    problems = []
    registry = parse_registry("tools.yaml", documents, kinds=Executors.installed(), problems=problems)
    assert problems == []
    return Runtime(registry, **options)


def tool(module, call, more="", block=""):
    return (
        f"name: {call.lower()}\nmode: python\n{more}\n"
        f'python: {{call: "{module}:{call}", worker: process{block}}}'
    )


def run(module, call, arguments=None, more="", block=""):
    async def calls():
        async with tools(tool(module, call, more, block)) as runtime:
            return await runtime.call(call.lower(), arguments)

    return asyncio.run(calls())


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid):
    """Wait until a process has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not runs(pid):
            return True
        await RealClock().sleep(0.01)
    return False


async def written(path):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        await RealClock().sleep(0.01)
    raise AssertionError(f"{path} was not written")


def test_a_worker_is_another_process_and_stays_warm(module):
    async def calls():
        async with tools(tool(module, "pid")) as runtime:
            schema = runtime.registry["pid"].input_schema
            return schema, [(await runtime.call("pid", {"n": 1})).value for _ in range(3)]

    schema, values = asyncio.run(calls())
    [process] = {pid for pid, _calls in values}
    assert process != os.getpid()
    assert [calls for _pid, calls in values] == [1, 2, 3]
    assert [*schema["properties"]] == ["n"]
    assert module not in sys.modules  # the schemas, too, come from a worker
    assert asyncio.run(gone(process))


def test_a_worker_that_died_while_idle_is_replaced(module):
    async def calls():
        async with tools(tool(module, "pid", OPEN)) as runtime:
            [first, _calls] = (await runtime.call("pid")).value
            os.kill(first, 9)
            assert await gone(first)
            return first, (await runtime.call("pid")).value

    first, [second, calls_of_second] = asyncio.run(calls())
    assert (first != second, calls_of_second) == (True, 1)


def test_a_runtime_that_is_closed_ends_its_running_workers(module, tmp_path):
    marker = tmp_path / "marker"

    async def calls():
        runtime = tools(tool(module, "hanging", OPEN))
        running = asyncio.ensure_future(runtime.call("hanging", {"marker": str(marker)}))
        pids = (await written(marker)).split()
        await runtime.aclose(drain=0)
        return (await running).outcome, [await gone(pid) for pid in pids]

    assert asyncio.run(calls()) == (Outcome.CANCELLED, [True, True])


@pytest.mark.exhaustive
def test_workers_are_as_many_as_calls_run_at_once_and_bounded(module):
    async def calls():
        async with tools(tool(module, "pid", f"limits: {{concurrency: 2}}\n{OPEN}")) as runtime:
            found = await asyncio.gather(*(runtime.call("pid") for _ in range(8)))
            return [result.value for result in found]

    values = asyncio.run(calls())
    assert len(values) == 8
    assert 1 <= len({pid for pid, _calls in values}) <= 2


def test_what_a_worker_cannot_import_is_refused_when_it_is_added():
    def local() -> int:
        return 1

    main = type(sys)("__main__")
    exec("def script() -> int: ...", main.__dict__)
    for function, why in (
        (local, "it is defined within a function"),
        (main.script, "it belongs to the program itself"),
    ):
        with pytest.raises(toolcrib.DocumentError, match="cannot import") as refused:
            Runtime(Registry()).add(toolcrib.tool(worker="process")(function))
        assert why in str(refused.value)


def test_a_function_of_a_module_can_be_added(module):
    function = importlib.import_module(module).pid

    async def calls():
        async with Runtime(Registry()) as runtime:
            runtime.add(toolcrib.tool(worker="process")(function))
            return await runtime.call("pid"), await runtime.dry_run("pid")

    result, plan = asyncio.run(calls())
    assert result.value[0] != os.getpid()
    assert plan.value["plan"] == {"call": f"{module}:pid", "worker": "process"}


@pytest.mark.exhaustive
def test_synchronous_callers_share_a_worker(module):
    with tools(tool(module, "pid", OPEN)) as runtime:
        values = [runtime.call_sync("pid").value for _ in range(2)]
    assert values[0][0] == values[1][0]
    assert asyncio.run(gone(values[0][0]))


@pytest.mark.exhaustive
def test_workers_that_no_call_needs_end_except_one(module):
    block = json.dumps({"call": f"{module}:pid", "worker": "process"})
    settings = WorkerSettings(f"{module}:pid", block, "", (), 1 << 20, NO_PROCESS_LIMITS, None, 3)

    async def calls():
        pool = WorkerPool(settings, str, unused=0)
        workers = await asyncio.gather(pool.take(), pool.take())
        request = encode("call", {}, None)
        [first, second] = [(await worker.ask(request))[1][0] for worker in workers]
        for worker in workers:
            pool.give_back(worker)
        ended = await gone(first)
        [kept, _calls] = (await (await pool.take()).ask(request))[1]
        await pool.aclose()
        return ended, kept == second

    assert asyncio.run(calls()) == (True, True)


@pytest.mark.parametrize(
    ("call", "why"), sample([("made", "is a factory"), ("Needy", "needs `database`")], one_in=2)
)
def test_what_needs_objects_of_the_program_is_refused_in_workers(module, call, why):
    result = run(module, call, more=OPEN)
    assert result.outcome is Outcome.UNAVAILABLE
    assert why in result.message
    assert "a worker has none of the objects of the program" in result.message


def test_a_factory_that_a_program_adds_is_refused_in_workers(module):
    function = importlib.import_module(module).made
    runtime = Runtime(Registry())
    with pytest.raises(toolcrib.DocumentError, match="cannot import") as refused:
        runtime.add(toolcrib.factory(worker="process")(function))
    assert [each.code for each in refused.value.problems] == ["not_importable"]


@pytest.mark.exhaustive
def test_messages_larger_than_a_pipe_cross_in_both_directions(module):
    text = "\u00e9\n" * 150_000
    result = run(module, "same", {"text": text}, OPEN)
    assert result.value == text


def test_a_deadline_during_the_start_leaves_a_worker_for_the_next_call(module):
    async def calls():
        async with tools(tool(module, "pid", f"timeout: 1ms\n{OPEN}")) as runtime:
            return await runtime.call("pid")

    first = asyncio.run(calls())
    assert first.outcome is Outcome.TIMEOUT
    assert "may_have_acted" not in first.error.details


# What the program of a worker does, in this process: each message and its answer.


class Answers:
    """A worker that runs in a thread, at the other end of two pipes."""

    def __init__(self, module, call, block=NOTHING, schema=None, output_size=1 << 20):
        reading, self.to_worker = os.pipe()
        from_worker, writing = os.pipe()
        self.lines = os.fdopen(from_worker)
        self.pipes = (reading, writing)
        self.worker = ToolWorker(Wire(reading, writing))
        self.thread = Thread(target=self.run)
        self.thread.start()
        order = WorkerOrder(f"{module}:{call}", dict(block), schema, output_size)
        self.ready = self.ask("start", order._asdict())

    def run(self):
        self.worker.run()
        os.close(self.pipes[1])

    def ask(self, *message):
        os.write(self.to_worker, json.dumps(message).encode() + b"\n")
        answers = [json.loads(self.lines.readline())]
        while answers[-1][0] in {"progress", "partial"}:
            answers.append(json.loads(self.lines.readline()))
        return answers if len(answers) > 1 else answers[0]

    def call(self, arguments, context=None):
        return self.ask("call", arguments, context)

    def close(self):
        os.close(self.to_worker)
        self.thread.join()
        self.lines.close()
        os.close(self.pipes[0])


@pytest.fixture
def worker(module):
    opened = []

    def start(call, **options):
        opened.append(Answers(module, call, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


CONTEXT = ["s1", 7, "c0", "ada", "me", ["b", "a"], {"traceparent": "t"}, "c1"]


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("due", {"day": "2026-01-02"}, ["value", "2026-01-02"]),
        ("hidden", {"day": "2026-01-02"}, ["value", "2026-01-02"]),
        ("whole", {}, ["result", ["tool_error", None, [], "no", {"code": "mine", "message": "no", "details": {"a": [1]}, "retryable": False}, {}, None]]),
        ("cancelling", {}, ["cancelled"]),
        ("returning", {"n": 2}, [["progress", 1, 2, ""], ["partial", {"type": "text", "text": "half"}], ["value", 2]]),
        ("streaming", {"n": 2}, [["progress", 1, 2, "one"], ["value", 2]]),
        ("told", {}, [["progress", 3, None, ""], ["value", {"user": "ada", "session": "s1", "grants": ["a", "b"], "n": 1, "calls": 1}]]),
        ("large", {"n": 100}, ["too_large", 612]),
    ],
)  # fmt: skip
def test_a_worker_answers_a_call(worker, call, arguments, answer):
    started = worker(call, output_size=16 if call == "large" else 1 << 20)
    if call == "large":
        arguments = {"n": 600}
    assert started.ready[0] == "ready"
    assert started.call(arguments, CONTEXT) == answer


@pytest.mark.parametrize(
    ("call", "arguments", "kind", "said"),
    [
        ("due", {"day": "yesterday"}, "invalid", "a valid date"),
        ("alien", {}, "unwritable", "object"),
        ("bare", {}, "unwritable", "got the key 1"),
        ("failing", {"key": "k"}, "raised", "KeyError"),
        ("Broken", {}, "uninitialised", "ConnectionError"),
        ("unwritable", {}, "raised", "TypeError"),
    ],
)
def test_a_worker_tells_what_went_wrong(worker, call, arguments, kind, said):
    answer = worker(call, schema={"type": "object"} if call == "bare" else None).call(arguments)
    assert answer[0] == kind
    assert said in str(answer)


@pytest.mark.parametrize("call", ["Count", "AsyncCount"])
@pytest.mark.parametrize("policy", ["shared", "pool", "call"])
def test_the_instances_of_a_class_live_in_their_worker(module, tmp_path, call, policy):
    block = {"config": {"start": 5, "folder": str(tmp_path)}, "instances": policy}
    started = Answers(module, call, block)
    values = [started.call({"by": 2})[1][1] for _ in range(2)]
    started.close()
    assert values == ([7, 7] if policy == "call" else [7, 9])
    assert (tmp_path / "closed").read_text() == ("xx" if policy == "call" else "x")


def test_a_worker_tells_all_that_does_not_fit(worker):
    started = worker(
        "Count",
        block={"config": {"start": "many", "folder": 3}},
        schema={"type": "object", "properties": {"bye": {}}},
    )
    problems = ToolDescription(*started.ready[1]).problems
    assert [each.pointer for each in problems] == ["/python/config/start", "/python/config/folder"]
    refused = worker("bare").ready
    assert refused[:2] == ["refused", "bad_signature"] or refused[0] == "ready"


# Worker processes.


def test_what_does_not_fit_is_told_with_its_place(module):
    result = run(module, "Count", more=OPEN, block=", config: {start: many, folder: 3}")
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "not_bound")
    assert "/start: expected a valid integer" in result.message
    assert "/folder: expected a valid string" in result.message


def test_events_arrive_before_the_result(module):
    async def calls():
        async with tools(tool(module, "returning", OPEN)) as runtime:
            return [event async for event in runtime.stream("returning", {"n": 2})]

    *events, result = asyncio.run(calls())
    assert events == [Progress(1, 2), Partial(Content("text", text="half"))]
    assert result.value == 2


def test_a_call_in_flight_when_its_worker_dies_has_an_unknown_outcome(module):
    async def calls():
        async with tools(tool(module, "dying", OPEN)) as runtime:
            return [await runtime.call("dying", {"how": how}) for how in ("exit", "kill")]

    said = ("exited with code 3", "was terminated by signal SIGKILL")
    for result, how in zip(asyncio.run(calls()), said, strict=True):
        assert (result.outcome, result.error.code) == (Outcome.UNKNOWN_OUTCOME, "worker_died")
        assert (
            result.message
            == f"the worker process of `dying` {how} during the call, so the call may have acted"
        )
        assert result.error.details["may_have_acted"]


def test_a_function_that_ends_the_program_fails_and_its_worker_stays(module):
    async def calls():
        async with tools(tool(module, "leaving", OPEN)) as runtime:
            return [await runtime.call("leaving", {"code": code}) for code in (3, 4)]

    first, second = asyncio.run(calls())
    assert (first.outcome, first.error.code) == (Outcome.TOOL_ERROR, "SystemExit")
    assert first.message == "the function called `sys.exit(3)`"
    assert second.message == "the function called `sys.exit(4)`"


@pytest.mark.exhaustive
def test_a_function_that_raises_an_interrupt_fails_and_its_worker_stays(module):
    async def calls():
        async with tools(tool(module, "interrupting", OPEN)) as runtime:
            return [await runtime.call("interrupting", {}) for _ in range(2)]

    first, second = asyncio.run(calls())
    assert (first.outcome, first.error.code) == (Outcome.TOOL_ERROR, "KeyboardInterrupt")
    # The text is the process ID.
    assert second.message == first.message


def test_a_deadline_ends_the_worker_with_everything_that_it_started(module, tmp_path):
    marker = tmp_path / "marker"

    async def calls():
        async with tools(tool(module, "hanging", f"timeout: 5s\n{OPEN}")) as runtime:
            while not (await runtime.call("hanging", {"marker": ""})).ok:
                pass  # on a busy machine, a worker may need several deadlines to start
            result = await runtime.call("hanging", {"marker": str(marker)})
            return result, [await gone(pid) for pid in (await written(marker)).split()]

    result, ended = asyncio.run(calls())
    assert (result.outcome, result.error.details["may_have_acted"]) == (Outcome.TIMEOUT, True)
    assert ended == [True, True]


def test_a_cancellation_ends_the_worker(module, tmp_path):
    marker = tmp_path / "marker"

    async def calls():
        async with tools(tool(module, "hanging_async", OPEN)) as runtime:
            running = asyncio.ensure_future(runtime.call("hanging_async", {"marker": str(marker)}))
            [pid] = (await written(marker)).split()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await gone(pid)

    assert asyncio.run(calls())


def test_a_memory_limit_ends_the_worker_and_tells_what_it_used(module):
    async def calls():
        async with tools(tool(module, "hungry", f"limits: {{memory: 200MiB}}\n{OPEN}")) as runtime:
            return await runtime.call("hungry", {"mib": 1}), await runtime.call("hungry", {"mib": 400})

    modest, result = asyncio.run(calls())
    assert modest.value == 1
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "memory_exceeded")
    assert "and `limits.memory` is 200MiB (tools.yaml:3); it was terminated" in result.message
    details = result.error.details
    assert (details["limit"], details["value"], details["may_have_acted"]) == ("memory", 200 << 20, True)
    assert details["measured"] > 200 << 20


def test_what_a_call_used_since_the_last_measurement_counts_when_it_ends(module, tmp_path):
    file = str(tmp_path / "written")

    async def calls():
        async with tools(tool(module, "writing", f"limits: {{written_bytes: 4MiB}}\n{OPEN}")) as runtime:
            return [await runtime.call("writing", {"path": file, "size": size << 20}) for size in (1, 8, 1)]

    modest, result, next_one = asyncio.run(calls())
    assert (modest.value, next_one.value) == (1 << 20, 1 << 20)
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "written_bytes_exceeded")
    assert result.error.details["measured"] > 4 << 20


@pytest.mark.parametrize("limits", ["", "limits: {memory: 1024MiB}\n"])
def test_a_running_worker_is_measured(module, tmp_path, limits):
    marker = tmp_path / "marker"

    async def calls():
        async with tools(tool(module, "hanging", f"{limits}{OPEN}")) as runtime:
            call = asyncio.ensure_future(runtime.call("hanging", {"marker": str(marker)}))
            await written(marker)
            async with asyncio.timeout(60):
                # With limits, it is measured 50 times a second.
                while (running := runtime.running()[0]).usage.processes != 2:
                    await RealClock().sleep(0.01)
            assert runtime.cancel(all=True) == 1
            return running.usage, await call

    usage, ended = asyncio.run(calls())
    assert ended.outcome is Outcome.CANCELLED
    assert usage.memory > 1_000_000
    # Without limits, what the worker used before the call is unknown.
    assert (usage.cpu_time is not None) == bool(limits)


def test_a_worker_gets_secrets_only_from_the_runtime(module, monkeypatch, caplog):
    monkeypatch.setenv("PAYMENT_KEY", "hunter22hunter22")

    async def calls():
        async with tools(tool(module, "reaching", OPEN)) as runtime:
            wanted = [
                (how, "PAYMENT_KEY")
                for how in ("environment", "value", "error", "http", "http_sync", "connect")
            ]
            wanted += [("value", "NO_SUCH_KEY_HERE"), ("value", "no key"), ("environment", "PATH")]
            return [await runtime.call("reaching", {"how": how, "name": name}) for how, name in wanted]

    closed, value, failed, *refused, missing, invalid, path = asyncio.run(calls())
    assert (closed.value, value.value, path.value) == (None, "token ***", os.environ["PATH"])
    assert (failed.error.code, failed.message) == ("RuntimeError", "bad token ***")
    assert "Traceback" in caplog.text
    assert "hunter22" not in caplog.text
    assert {each.error.code for each in (*refused, invalid)} == {"ConfigurationError"}
    assert "`context.http` is not available with `worker: process`" in refused[0].message
    assert (missing.outcome, missing.error.code) == (Outcome.UNAVAILABLE, "missing_secret")
    assert "`NO_SUCH_KEY_HERE` is not set" in missing.message


@pytest.mark.parametrize(
    ("code", "schema", "said"),
    sample([
        ("raise ImportError('no driver')", "", 'before it was ready:\nTraceback (most recent call last):\n  File "{file}", line 1, in <module>'),
        ("raise ImportError('no driver')", OPEN, "ImportError: no driver"),
        ("import os; os.write(2, b'bad key hunter22hunter22'); os._exit(7)", OPEN, "exited with code 7 before it was ready:\nbad key ***"),
    ], one_in=2),
)  # fmt: skip
def test_a_worker_that_dies_at_import_is_unavailable_with_the_end_of_its_stderr(
    tmp_path, monkeypatch, code, schema, said
):
    (tmp_path / "broken_worker.py").write_text(f"{code}\ndef f() -> int: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def calls():
        async with tools(tool("broken_worker", "f", schema)) as runtime:
            runtime._engine.world.secrets.register("hunter22hunter22")
            return await runtime.call("f")

    result = asyncio.run(calls())
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "worker_failed")
    assert said.format(file=tmp_path / "broken_worker.py") in result.message


def test_a_worker_that_never_finishes_its_import_is_terminated(tmp_path, monkeypatch):
    (tmp_path / "endless_worker.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def calls():
        async with tools(tool("endless_worker", "f", "timeout: 1s")) as runtime:
            return await runtime.call("f")

    result = asyncio.run(calls())
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "worker_failed")
    assert "was not ready within 1s; it was terminated" in result.message
