"""Mode `exec`: programs that run once for each call."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import python_command
from exec_tools import call, document, gone, registry_of, run, written
from toolcrib import Executors, Outcome, Runtime
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import NotReady
from toolcrib.core.model import Limits
from toolcrib.core.process_limits import ProcessLimits, check_measurable
from toolcrib.core.process_tree import SEES_ALL, children_of, find_processes

PYTHON = [sys.executable, "-I", "-S", "-c"]

# What a program was given, one argument a line.
SHOWN = ["sh", "-c", 'for each; do printf "%s\\n" "$each"; done', "sh"]


def problems_of(block, **keys):
    problems = []
    registry_of(document(exec=block, **keys), problems=problems)
    return [(each.code, each.pointer) for each in problems]


# Arguments.


def test_elements_are_filled_in_and_never_split():
    given = {"text": "two words; $(id) `id` && rm -rf * > x", "n": 3, "yes": True, "o": {"a": [1, "é"]}}
    command = [
        *SHOWN,
        "{{ args.text }}",
        "n={{ args.n }}",
        "{{ args.yes }}",
        "{{ args.o }}",
        "'{{ args.n + 1 }}'",
    ]
    result = call(command, given)
    assert result.value.splitlines() == [given["text"], "n=3", "true", '{"a":[1,"é"]}', "'4'"]


def test_a_list_yields_one_argument_for_each_item_and_nothing_yields_none():
    command = [
        *SHOWN,
        "{{ args.paths }}",
        "{{ args.absent }}",
        "{{ none }}",
        "{{ '--all' if args.all else none }}",
    ]
    assert call(command, {"paths": ["a b", "c"], "all": True}).value.splitlines() == ["a b", "c", "--all"]
    assert call(command, {"paths": [], "all": False}).value == ""


@pytest.mark.parametrize(
    ("element", "given"),
    [
        ("{{ args.path }}", {"path": "--upload-pack=sh"}),
        ("{{ args.path }}", {"path": ["fine", "-rf"]}),
        ("{{ args.path }}", {"path": -5}),
        ("{{ args.path }}.txt", {"path": "-x"}),
        ("{{ args.path.name }}", {"path": {"name": "-x"}}),
        ("{{ args.path | trim }}", {"path": "-x"}),
    ],
)
def test_a_value_of_the_call_is_no_option(element, given):
    result = call(["echo", element], given)
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert "`path` begins with `-`, and the program would read it as an option" in result.message
    assert result.usage.attempts == 0


def test_a_value_may_begin_with_a_dash_where_it_is_no_option():
    given = {"path": "-x"}
    assert call([*SHOWN, "--", "{{ args.path }}"], given).value == "--\n-x\n"
    assert call([*SHOWN, "--path={{ args.path }}", "./{{ args.path }}"], given).value == "--path=-x\n./-x\n"


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_program_can_be_given_is_refused(text):
    result = call(["echo", "{{ args.text[0] }}"], {"text": [text]})
    assert result.outcome is Outcome.INVALID_ARGUMENTS


def test_an_argument_that_a_text_needs_is_required():
    result = call(["echo", "city={{ args.city }}"])
    assert (result.outcome, result.usage.attempts) == (Outcome.INVALID_ARGUMENTS, 0)
    assert "`exec/command/1` cannot be computed" in result.message


# Environment, folder and input.


def test_the_environment_is_closed(monkeypatch):
    monkeypatch.setenv("SECRET_OF_TESTS", "hunter2")
    monkeypatch.setenv("TOKEN_OF_TESTS", "s3cret-t0ken")
    block = {"command": ["env"], "env": {"TOKEN": "${TOKEN_OF_TESTS}", "CITY": "in {{ args.city }}"}}
    result = call(block, {"city": "Oslo; id"})
    found = dict(line.partition("=")[::2] for line in result.value.splitlines())
    assert found["CITY"] == "in Oslo; id"
    assert "hunter2" not in result.value
    # Masked, because it is a secret of the document.
    assert found["TOKEN"] == "***"
    assert set(found) <= {
        *("CITY", "TOKEN", "TOOLCRIB_CHILD", "PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER"),
        *("LANG", "LC_ALL", "TMPDIR", "PWD", "SHLVL", "_"),
    }


def test_a_missing_variable_makes_the_tool_unavailable():
    result = call({"command": ["echo", "${NOT_SET_BY_TESTS}"]})
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_secret")
    assert "tools.json:1" in result.message


def test_a_program_starts_in_the_folder_of_its_file(tmp_path):
    (tmp_path / "inner").mkdir()
    source = str(tmp_path / "tools.json")
    assert call(["pwd"], source=source).value == f"{tmp_path}\n"
    assert call({"command": ["pwd"], "cwd": "inner"}, source=source).value == f"{tmp_path}/inner\n"


def test_the_input_is_a_text_or_json():
    assert call({"command": ["cat"], "stdin": "{{ args.text }}\n"}, {"text": "ä"}).value == "ä\n"
    assert call({"command": ["cat"], "stdin": {"q": "{{ args.text }}"}}, {"text": "ä"}).value == '{"q":"ä"}'
    assert call(["cat"]).value == ""


def test_a_program_need_not_read_its_input():
    block = {"command": ["true"], "stdin": "{{ args.text }}"}
    assert call(block, {"text": "x" * 1_000_000}).outcome is Outcome.OK


# Results.


def test_json_is_read_and_written():
    given = {"n": 2**70, "list": [1, {"a": None}]}
    assert call({"command": ["cat"], "wire": "json"}, given).value == given


@pytest.mark.parametrize("output", ["", "{", "1 2", '{"a": 1, "a": 2}', "NaN"])
def test_an_output_that_is_not_json_is_an_invalid_result(output):
    result = call({"command": ["printf", "%s", output], "wire": "json"})
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "invalid_output")
    assert result.raw_value == output


def test_invalid_utf_8_is_replaced_and_reported():
    result = call(["printf", "a\\377b"])
    assert (result.outcome, result.value) == (Outcome.OK, "a\N{REPLACEMENT CHARACTER}b")
    assert result.meta["warnings"] == [
        "the output of `tool` is not valid UTF-8; the invalid bytes were replaced"
    ]


def test_the_result_can_be_computed():
    block = {
        "command": ["sh", "-c", "echo no; exit 1"],
        "ok_exit_codes": [0, 1],
        "result": {"same": "{{ exit_code == 0 }}", "text": "{{ output | trim }}", "of": "{{ args.n }}"},
    }
    assert call(block, {"n": 5}).value == {"same": False, "text": "no", "of": 5}
    failed = call({**block, "result": "{{ output.nothing }}"})
    assert failed.outcome is Outcome.INVALID_RESULT


def test_an_exit_code_is_an_error_of_the_tool():
    result = call(["sh", "-c", "echo problem >&2; exit 3"])
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "exit_code")
    assert result.message == "`sh` exited with code 3: problem"
    assert result.error.details == {"exit_code": 3, "stderr": "problem"}


def test_a_signal_is_an_error_of_the_tool():
    result = call(["sh", "-c", "kill -SEGV $$"])
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "terminated_by_signal")
    assert result.error.details == {"signal": "SIGSEGV"}


def test_stderr_is_bounded_and_masked(monkeypatch):
    monkeypatch.setenv("TOKEN_OF_TESTS", "s3cret-t0ken")
    block = {
        "command": ["sh", "-c", 'yes padding | head -n 5000 >&2; echo "no $TOKEN" >&2; exit 1'],
        "env": {"TOKEN": "${TOKEN_OF_TESTS}"},
    }
    result = call(block)
    assert "no ***" in result.message
    assert "s3cret-t0ken" not in json.dumps(result.as_json())
    assert len(result.message) < 1200


# PromptKit.

PROMPTKIT = """
import json, sys
args = json.load(sys.stdin)["args"]
if args.get("fail"):
    print(json.dumps({"error": "no such city"}))
elif args.get("wait"):
    print(json.dumps({"pending": {"reason": "approval_required", "message": "ask the owner"}}))
elif args.get("bare"):
    print(json.dumps({"temperature": 3}))
else:
    print(json.dumps({"result": {"city": args["city"]}}))
"""


def test_a_tool_script_of_promptkit_runs_unchanged():
    block = {"command": [*PYTHON, PROMPTKIT], "wire": "promptkit"}
    given = [{"city": "Oslo"}, {"bare": 1}, {"fail": 1}, {"wait": 1}]
    ok, bare, failed, pending = run(document(exec=block), calls=given)
    assert (ok.value, bare.value) == ({"city": "Oslo"}, {"temperature": 3})
    assert (failed.outcome, failed.message) == (Outcome.TOOL_ERROR, "no such city")
    assert (pending.outcome, pending.error.code) == (Outcome.NEEDS_APPROVAL, "pending")
    assert pending.message == "`tool` requires approval: ask the owner"
    assert pending.error.details["pending"] == {"reason": "approval_required", "message": "ask the owner"}


# Real programs.


def test_jq_answers():
    assert shutil.which("jq"), "the package `jq` is not installed"
    block = {
        "command": ["jq", "--compact-output", "{{ args.filter }}"],
        "stdin": "{{ args.value }}",
        "wire": "json",
    }
    result = call(block, {"filter": ".items | map(.n) | add", "value": {"items": [{"n": 1}, {"n": 2}]}})
    assert result.value == 3
    failed = call(block, {"filter": ".[", "value": {}})
    assert (failed.outcome, failed.error.details["exit_code"]) == (Outcome.TOOL_ERROR, 3)


def test_git_answers(tmp_path):
    git = ["git", "-c", "user.name=T", "-c", "user.email=t@example.com", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a b.txt").write_text("1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Add"], check=True)
    block = {
        "command": ["git", "log", "--format=%s", "--max-count={{ args.n }}", "--", "{{ args.path }}"],
        "cwd": str(tmp_path),
    }
    assert call(block, {"n": 1, "path": "a b.txt"}).value == "Add\n"
    assert call(block, {"n": 1, "path": "--all"}).value == ""


# Hostile programs.


def limited(command, *, limits, **keys):
    return call(command, limits=limits, annotations={"destructive": True}, **keys)


def test_a_program_that_lies_about_its_memory_is_measured():
    lying = "import time; x = b'1' * (200 << 20); print('{\"memory\": 1}', flush=True); time.sleep(600)"
    result = limited([*PYTHON, lying], limits={"memory": "64MiB"})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "memory_exceeded")
    details = result.error.details
    assert (details["limit"], details["value"], details["may_have_acted"]) == ("memory", 64 << 20, True)
    assert details["measured"] > 64 << 20
    assert result.usage.memory >= details["measured"]


def test_a_program_that_forks_is_ended_with_all_processes():
    forking = "for i in $(seq 40); do sleep 600 & done; wait"
    result = limited(["sh", "-c", forking], limits={"processes": 5})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "processes_exceeded")
    assert result.error.details["measured"] > 5


def test_a_program_that_computes_forever_is_ended():
    result = limited(["sh", "-c", "while :; do :; done"], limits={"cpu_time": "100ms"})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "cpu_time_exceeded")
    assert result.usage.cpu_time > 0.1


def test_a_program_that_fills_the_disk_is_ended(tmp_path):
    filling = f"while :; do head -c 100000 /dev/zero >> {tmp_path}/file; done"
    result = limited(["sh", "-c", filling], limits={"written_bytes": "1MiB"})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "written_bytes_exceeded")
    assert result.error.details["measured"] > 1 << 20


def test_a_program_that_opens_many_files_is_ended():
    opening = "import time; x = [open('/dev/null') for _ in range(15)]; time.sleep(600)"
    result = limited([*PYTHON, opening], limits={"open_files": 10})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "open_files_exceeded")


def test_a_program_that_writes_forever_is_ended():
    result = limited(["yes"], limits={"output_size": "64KiB"})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")
    assert result.error.details["measured"] > 64 << 10


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM; while :; do sleep 600; done",
        "exec >&- 2>&-; sleep 600 & wait",
        "setsid sleep 600 & sleep 600",
    ],
    ids=["it ignores SIGTERM", "it closes its stdout", "its child leaves the session"],
)
def test_a_deadline_ends_a_program_with_all_processes(script, tmp_path):
    # What it leaves behind fails the test: see tests/leftovers.py.
    result = call(["sh", "-c", f"echo $$ > {tmp_path}/pid; {script}"], timeout="300ms")
    assert result.outcome is Outcome.TIMEOUT
    assert result.error.details["may_have_acted"] is True
    # A busy machine may not have run its first command by then.
    if (tmp_path / "pid").exists() and (pid := (tmp_path / "pid").read_text().strip()):
        assert asyncio.run(gone(pid))


def test_a_descendant_that_keeps_the_output_open_delays_no_result():
    result = call(["sh", "-c", "sleep 600 & echo done"])
    assert (result.outcome, result.value) == (Outcome.OK, "done\n")


def test_a_cancelled_call_ends_its_program(tmp_path):
    script = f"echo $$ > {tmp_path}/pid; sleep 600"

    async def calls():
        async with Runtime(registry_of(document(exec=["sh", "-c", script])), sandbox="none") as runtime:
            running = asyncio.ensure_future(runtime.call("tool"))
            pid = await written(tmp_path / "pid")
            running.cancel()
            return await gone(pid.strip())

    assert asyncio.run(calls()) is True


# What is reported.


def test_the_usage_is_measured():
    result = call([*PYTHON, "import time; x = b'1' * (200 << 20); time.sleep(0.2); print('x' * 1000)"])
    assert result.outcome is Outcome.OK
    assert result.usage.memory > 200 << 20
    assert 0 < result.usage.cpu_time < 60
    assert result.usage.written_bytes == 1001
    assert result.usage.processes == 1
    assert set(result.as_json()["usage"]) == {
        *("attempts", "duration", "memory", "cpu_time", "written_bytes", "processes")
    }


def test_a_value_that_is_unknown_is_not_reported():
    result = call(["true"], {}, sandbox="none")
    assert result.usage.attempts == 1
    assert None not in result.as_json()["usage"].values()


def test_a_dry_run_shows_the_command_and_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_TESTS", "s3cret-t0ken")
    command = ["touch", "{{ args.path }}", "--reference=${TOKEN_OF_TESTS}"]
    registry = registry_of(document(exec=command))

    async def plan():
        async with Runtime(registry, sandbox="none") as runtime:
            return (await runtime.dry_run("tool", {"path": str(tmp_path / "x")})).value["plan"]

    found = asyncio.run(plan())
    assert found["command"] == [shutil.which("touch"), str(tmp_path / "x"), "--reference=***"]
    assert found["sandbox"] == "none"
    assert not (tmp_path / "x").exists()


# What cannot run.


def test_a_missing_program_is_named_with_similar_ones():
    result = call(["gti", "log"])
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "no_program")
    assert "`gti`, was not found in PATH" in result.message
    assert "git" in result.message


def test_a_program_with_arguments_in_its_name_is_explained():
    assert "each argument is an element of its own" in call(["git log"]).message


def test_a_program_in_a_folder_must_be_executable(tmp_path):
    source = str(tmp_path / "tools.json")
    assert "does not exist" in call(["./tool.sh"], source=source).message
    (tmp_path / "tool.sh").write_text("#!/bin/sh\necho fine\n")
    assert "is not executable" in call(["./tool.sh"], source=source).message
    (tmp_path / "tool.sh").chmod(0o755)
    assert call(["./tool.sh"], source=source).value == "fine\n"
    assert "the working directory" in call({"command": ["pwd"], "cwd": "nowhere"}, source=source).message


def test_a_program_that_the_system_cannot_start_is_unavailable(tmp_path):
    (tmp_path / "tool.sh").write_text("#!/nowhere/sh\n")
    (tmp_path / "tool.sh").chmod(0o755)
    result = call(["./tool.sh"], source=str(tmp_path / "tools.json"))
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "not_started")


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ({"command": ["{{ args.program }}"]}, ("expression_not_allowed", "/exec/command/0")),
        ({"command": ["echo", "{{ args. }}"]}, ("expression_syntax", "/exec/command/1")),
        ({"command": ["echo", "{{ nope }}"]}, ("unknown_name", "/exec/command/1")),
        ({"command": ["echo"], "env": {"A": "{{ nope }}"}}, ("unknown_name", "/exec/env/A")),
        ({"command": ["echo"], "stdin": "{{ nope }}"}, ("unknown_name", "/exec/stdin")),
        ({"command": ["echo"], "result": "{{ nope }}"}, ("unknown_name", "/exec/result")),
        ({"command": ["echo", "${"]}, ("bad_variable", "/exec/command/1")),
        ({"command": ["cat"], "wire": "promptkit", "stdin": "x"}, ("wrong_combination", "/exec/stdin")),
        ({"command": ["cat"], "concurrency": 2}, ("wrong_combination", "/exec/concurrency")),
    ],
)
def test_a_wrong_block_is_refused(block, found):
    assert found in problems_of(block)


def test_an_argument_that_the_schema_does_not_know_is_refused():
    schema = {"type": "object", "properties": {"city": {}}, "additionalProperties": False}
    assert problems_of({"command": ["echo", "{{ args.ctiy }}"]}, input_schema=schema) == [
        ("unknown_argument", "/exec/command/1")
    ]


def test_declared_capabilities_include_those_of_the_block():
    block = {"command": ["echo"], "network": True, "paths": {"read": ["."], "write": ["."]}}
    [tool] = registry_of(document(exec=block)).values()
    assert tool.capabilities == ("file_read", "file_write", "network", "process")
    problems = problems_of(["echo"], capabilities=["network"])
    assert ("undeclared_capability", "/capabilities") in problems


def test_limits_that_cannot_be_measured_make_a_tool_unavailable():
    check_measurable(Limits(), measures=False)
    with pytest.raises(NotReady, match="cannot be measured") as refused:
        check_measurable(Limits(memory=1, processes=1), measures=False)
    assert refused.value.code == "unsupported_limit"
    assert refused.value.message == "`limits.memory`, `limits.processes` cannot be measured on this system"


def test_process_limits_are_those_of_the_tool():
    limits = {"memory": "1MiB", "cpu_time": "2s", "open_files": 3, "written_bytes": "4KiB", "processes": 5}
    [tool] = registry_of(document(exec=["true"], limits=limits)).values()
    assert ProcessLimits.of(tool.limits) == (1 << 20, 2.0, 3, 4096, 5)


def test_the_runtime_leaves_nothing_open():
    def descriptors():
        return [len([*Path("/proc/self", name).iterdir()]) for name in ("fd", "task")]

    run(document(exec=["true"]))
    before = descriptors()
    run(document(exec=["true"]), calls=[{}] * 20)
    assert descriptors() == before


async def test_the_reaper_runs_between_calls_and_ends_with_the_runtime():
    kinds, before = Executors.installed(), {*children_of(os.getpid())}
    async with Runtime(registry_of(document(exec=["true"])), executors=kinds, sandbox="none") as runtime:
        await runtime.call("tool")
        executor, between = kinds.made("exec"), {*children_of(os.getpid())}
        assert not executor.keeps_nothing
        assert len(between - before) <= 1  # none if a test before has left its runtime open
        await runtime.call("tool")
        assert {*children_of(os.getpid())} <= between
    assert executor.keeps_nothing
    assert {*children_of(os.getpid())} <= before


CALLER = """
import asyncio, sys
from toolcrib import Executors, Runtime, parse_registry

async def main():
    kinds = Executors.installed()
    registry = parse_registry("tool.json", sys.argv[1], kinds=kinds)
    async with Runtime(registry, executors=kinds, sandbox="none") as runtime:
        await runtime.call("tool", {"seconds": "0"})
        await runtime.call("tool", {"seconds": "600"})

asyncio.run(main())
"""


@pytest.mark.skipif(not SEES_ALL, reason="processes are found in /proc")
async def test_programs_of_later_calls_end_with_a_caller_that_is_killed(tmp_path):
    place, block = (
        f"HERE={tmp_path}",
        {"command": ["sleep", "{{ args.seconds }}"], "env": {"HERE": str(tmp_path)}},
    )
    schema = {"properties": {"seconds": {"type": "string"}}}
    tool = json.dumps({"name": "tool", "mode": "exec", "exec": block, "input_schema": schema})
    with started(CALLER, tool) as caller:
        async with asyncio.timeout(60):
            while not [pid for pid in find_processes(0, place) if b"600" in command_of(pid)]:
                await RealClock().sleep(0.02)
        caller.kill()
    async with asyncio.timeout(60):
        while find_processes(0, place):
            await RealClock().sleep(0.02)


def started(code, *words):
    return subprocess.Popen(python_command("-c", code, *words))


def command_of(pid):
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_descendant_in_a_session_of_its_own_is_ended_after_the_program():
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=2).pid)"
    async with Runtime(registry_of(document(exec=[*PYTHON, code])), sandbox="none") as runtime:
        for _ in range(3):
            result = await runtime.call("tool")
            assert await gone(int(result.value)), result
