"""Mode `exec`: programs that stay running."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from exec_tools import call, document, gone, registry_of, run, written
from sampling import sample
from toolcrib import Outcome, Runtime

PYTHON = [sys.executable, "-I", "-S", "-u", "-c"]

# PromptKit's form of a server: JSON-RPC 2.0, one message a line.
SERVER = """
import json, os, sys
print("a log line")
calls = 0
for line in sys.stdin:
    request = json.loads(line)
    assert request["jsonrpc"] == "2.0" and request["method"] == "execute", request
    args = request["params"]["args"]
    calls += 1
    do = args.get("do")
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if do == "die":
        sys.exit("no more")
    if do == "kill":
        os.kill(os.getpid(), 9)
    if do == "deaf":
        os.close(1)
        sys.stdin.read()
    if do == "hang":
        with open(args["file"], "w") as file:
            print(os.getpid(), file=file)
        sys.stdin.read()
    if do == "grow":
        kept = b"1" * (200 << 20)
        sys.stdin.read()
    if do == "spike":
        b"1" * (48 << 20)
    if do == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    if do == "fail":
        answer["error"] = {"code": -32000, "message": "no such city"}
    elif do == "wait":
        answer["result"] = {"pending": {"reason": "approval_required"}}
    else:
        answer["result"] = {"args": args, "calls": calls, "pid": os.getpid()}
    print(json.dumps(answer))
"""

# Answers the second of two calls first.
UNORDERED = """
import json, sys
held = None
for line in sys.stdin:
    request = json.loads(line)
    answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]["args"]["n"]})
    if held is None:
        held = answer
    else:
        print(answer)
        print(held)
        held = None
"""

BLOCK = {"command": [*PYTHON, SERVER], "wire": "promptkit", "lifetime": "runtime"}


def answers(*calls, **keys):
    return run(document(exec=BLOCK, **keys), calls=calls)


def test_a_program_answers_several_calls():
    results = answers({"city": "Oslo"}, {"city": "Rome"})
    assert [each.value["args"] for each in results] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert [each.value["calls"] for each in results] == [1, 2]
    assert results[0].value["pid"] == results[1].value["pid"]
    assert asyncio.run(gone(results[0].value["pid"]))


def test_an_error_and_a_pending_call_are_outcomes():
    failed, pending = answers({"do": "fail"}, {"do": "wait"})
    assert (failed.outcome, failed.message) == (Outcome.TOOL_ERROR, "no such city")
    assert failed.error.details == {"code": -32000}
    assert (pending.outcome, pending.error.code) == (Outcome.NEEDS_APPROVAL, "pending")


@pytest.mark.parametrize(
    ("do", "how"),
    sample(
        [
            ("die", "exited with code 1 before it answered: no more"),
            ("kill", "was terminated by signal SIGKILL before it answered"),
            ("deaf", "closed its stdout before it answered"),
        ],
        one_in=3,
    ),
)
def test_a_call_in_flight_when_the_program_dies_is_unknown_and_the_next_one_starts_it_again(do, how):
    first, lost, second = answers({"n": 1}, {"do": do}, {"n": 2})
    assert (lost.outcome, lost.error.code) == (Outcome.UNKNOWN_OUTCOME, "program_ended")
    assert lost.message.endswith(how)
    assert lost.error.details["may_have_acted"] is True
    assert (second.value["args"], second.value["calls"]) == ({"n": 2}, 1)
    assert first.value["pid"] != second.value["pid"]


def test_a_program_that_died_while_idle_is_started_again():
    async def calls():
        async with Runtime(registry_of(document(exec=BLOCK)), sandbox="none") as runtime:
            first = (await runtime.call("tool")).value["pid"]
            os.kill(first, 9)
            assert await gone(first)
            return first, await runtime.call("tool")

    first, second = asyncio.run(calls())
    assert second.outcome is Outcome.OK
    assert second.value["pid"] != first


def test_one_call_is_served_at_a_time():
    async def calls():
        async with Runtime(registry_of(document(exec=BLOCK)), sandbox="none") as runtime:
            return await asyncio.gather(*(runtime.call("tool", {"n": n}) for n in range(8)))

    results = asyncio.run(calls())
    assert [each.value["args"]["n"] for each in results] == [*range(8)]
    assert len({each.value["pid"] for each in results}) == 1


def test_a_program_may_serve_several_calls_in_any_order():
    block = {**BLOCK, "command": [*PYTHON, UNORDERED], "concurrency": 2}

    async def calls():
        async with Runtime(registry_of(document(exec=block)), sandbox="none") as runtime:
            return await asyncio.gather(*(runtime.call("tool", {"n": n}) for n in range(2)))

    assert [each.value for each in asyncio.run(calls())] == [0, 1]


def test_a_cancelled_call_ends_the_program_and_no_later_call_gets_its_answer(tmp_path):
    async def calls():
        async with Runtime(registry_of(document(exec=BLOCK)), sandbox="none") as runtime:
            given = {"do": "hang", "file": str(tmp_path / "pid")}
            running = asyncio.ensure_future(runtime.call("tool", given))
            pid = (await written(tmp_path / "pid")).strip()
            running.cancel()
            ended = await gone(pid)
            return ended, (await runtime.call("tool", {"n": 1})).value["args"]

    assert asyncio.run(calls()) == (True, {"n": 1})


def test_limits_apply_to_the_calls_of_a_program():
    grown, next_one = answers({"do": "grow"}, {"n": 1}, limits={"memory": "64MiB"})
    assert (grown.outcome, grown.error.code) == (Outcome.LIMIT_EXCEEDED, "memory_exceeded")
    assert grown.error.details["measured"] > 64 << 20
    assert next_one.outcome is Outcome.OK
    assert 0 < next_one.usage.memory < 64 << 20


def test_what_is_freed_between_two_measurements_counts_when_the_call_ends():
    spiked, next_one = answers({"do": "spike"}, {"n": 1}, limits={"memory": "32MiB"})
    assert (spiked.outcome, spiked.error.code) == (Outcome.LIMIT_EXCEEDED, "memory_exceeded")
    assert spiked.usage.memory > 32 << 20
    assert next_one.outcome is Outcome.OK


def test_an_endless_line_is_too_large():
    [flood] = answers({"do": "flood"}, limits={"output_size": "64KiB"})
    assert (flood.outcome, flood.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")


def test_a_runtime_that_is_closed_ends_a_program_that_runs_a_call(tmp_path):
    async def calls():
        runtime = Runtime(registry_of(document(exec=BLOCK)), sandbox="none")
        given = {"do": "hang", "file": str(tmp_path / "pid")}
        running = asyncio.ensure_future(runtime.call("tool", given))
        pid = (await written(tmp_path / "pid")).strip()
        await runtime.aclose(drain=0)
        result = await running
        return result.outcome, dict(result.error.details), await gone(pid)

    assert asyncio.run(calls()) == (Outcome.CANCELLED, {"may_have_acted": True}, True)


@pytest.mark.parametrize("wire", ["text", "json"])
def test_other_wires_answer_line_by_line(wire):
    block = {"command": ["cat"], "wire": wire, "lifetime": "runtime", "stdin": "{{ args.line }}"}
    given = [{"line": '{"n": 1}'}, {"line": '"two"'}]
    values = [each.value for each in run(document(exec=block), calls=given)]
    assert values == (['{"n": 1}', '"two"'] if wire == "text" else [{"n": 1}, "two"])


def test_an_input_of_several_lines_is_refused():
    block = {"command": ["cat"], "lifetime": "runtime", "stdin": "{{ args.text }}"}
    result = call(block, {"text": "a\nb"})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert "contains a line break" in result.message


def test_a_line_that_nobody_asked_for_answers_no_call():
    talking = "import os, sys\nfor line in sys.stdin: os.write(1, (line + 'more\\n').encode())"
    block = {"command": [*PYTHON, talking], "lifetime": "runtime", "stdin": "{{ args.n }}"}
    assert [each.value for each in run(document(exec=block), calls=[{"n": 1}, {"n": 2}])] == ["1", "2"]


def test_a_program_that_cannot_run_is_unavailable_or_unknown():
    block = {**BLOCK, "command": ["sh", "-c", "echo broken >&2; exit 1"]}
    [result] = run(document(exec=block))
    assert result.outcome in {Outcome.UNAVAILABLE, Outcome.UNKNOWN_OUTCOME}
    assert "broken" in result.message


def test_synchronous_callers_share_a_program():
    with Runtime(registry_of(document(exec=BLOCK)), sandbox="none") as runtime:
        values = [runtime.call_sync("tool").value for _ in range(2)]
    assert values[0]["pid"] == values[1]["pid"]
    assert asyncio.run(gone(values[0]["pid"]))


def test_a_changed_tool_gets_a_new_program():
    async def calls():
        async with Runtime(registry_of(document(exec=BLOCK)), sandbox="none") as runtime:
            first = (await runtime.call("tool")).value["pid"]
            [other] = registry_of(document(exec={**BLOCK, "env": {"A": "b"}})).values()
            runtime.remove("tool")
            ended = await gone(first)
            runtime.add(other)
            return first, ended, (await runtime.call("tool")).value["pid"]

    first, ended, second = asyncio.run(calls())
    assert (ended, first != second) == (True, True)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"command": ["cat", "{{ args.x }}"]}, "/exec/command/1"),
        ({"env": {"A": "{{ args.x }}"}}, "/exec/env/A"),
        ({"result": "{{ output }}"}, "/exec/result"),
        ({"ok_exit_codes": [1]}, "/exec/ok_exit_codes"),
        ({"wire": "text"}, "/exec/lifetime"),
    ],
)
def test_what_depends_on_the_call_is_refused(change, pointer):
    problems = []
    registry_of(document(exec={**BLOCK, **change}), problems=problems)
    assert [each.pointer for each in problems if each.code == "wrong_combination"] == [pointer]
