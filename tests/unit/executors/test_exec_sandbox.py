"""Sandboxes of programs: bubblewrap shows them what they were granted, and nothing else."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import textwrap
from pathlib import Path

import pytest

from exec_tools import NEEDS_BUBBLEWRAP, call, document, registry_of, run, written
from toolcrib import ConfigurationError, Outcome, Registry, Runtime
from toolcrib.core.sandbox import find_bubblewrap, has_started

PYTHON = [sys.executable, "-I", "-S", "-c"]


@pytest.fixture
def source(tmp_path):
    """The file of the tools, beside three folders."""
    for name in ("home", "data", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    return str(tmp_path / "home" / "tools.json")


def cat(path, source, **block):
    return call(
        {"command": ["cat", "--", "{{ args.path }}"], **block}, {"path": path}, source=source, sandbox=None
    )


@NEEDS_BUBBLEWRAP
def test_a_program_sees_its_folder_and_no_other(source):
    assert cat("file", source).value == "home\n"
    refused = cat("../secret/file", source)
    assert (refused.outcome, refused.error.code) == (Outcome.TOOL_ERROR, "exit_code")
    assert "No such file or directory" in refused.message
    # Readable by all, but a file of the system that is not needed to run a program.
    assert cat("/etc/shadow", source).outcome is Outcome.TOOL_ERROR


@NEEDS_BUBBLEWRAP
def test_a_program_reads_and_writes_what_it_was_granted(source, tmp_path):
    writing = ["sh", "-c", 'echo new > "$1/file"; cat "$1/file"', "sh", "{{ args.folder }}"]
    assert cat("../data/file", source, paths={"read": ["../data"]}).value == "data\n"
    for block in (writing, {"command": writing, "paths": {"read": ["../data"]}}):
        refused = call(block, {"folder": "../data"}, source=source, sandbox=None)
        assert (tmp_path / "data" / "file").read_text() == "data\n", refused
    block = {"command": writing, "paths": {"write": ["../data"]}}
    assert call(block, {"folder": "../data"}, source=source, sandbox=None).value == "new\n"
    assert (tmp_path / "data" / "file").read_text() == "new\n"


@NEEDS_BUBBLEWRAP
def test_a_script_is_run_by_its_interpreter(source, tmp_path):
    # As pip installs commands: the interpreter is that of a virtual environment, a link to another folder.
    script = tmp_path / "home" / "hello"
    script.write_text(f"#!{sys.executable} -IS\nprint('hello')\n")
    script.chmod(0o755)
    assert call(["./hello"], source=source, sandbox=None).value == "hello\n"


@NEEDS_BUBBLEWRAP
def test_a_link_leads_out_of_no_sandbox(source, tmp_path):
    (tmp_path / "home" / "link").symlink_to(tmp_path / "secret")
    assert cat("link/file", source).outcome is Outcome.TOOL_ERROR
    block = {"paths": {"read": ["link"]}}
    assert cat("link/file", source, **block).value == "secret\n"


@NEEDS_BUBBLEWRAP
def test_the_network_is_off_unless_it_is_declared(source):
    connecting = textwrap.dedent(
        """
        import socket, sys
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60).close()
            print("connected", end="")
        except OSError as error:
            print(type(error).__name__, end="")
        """
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = {"port": server.getsockname()[1]}
        command = [*PYTHON, connecting, "{{ args.port }}"]
        assert call(command, given, source=source, sandbox=None).value == "ConnectionRefusedError"
        block = {"command": command, "network": True}
        assert call(block, given, source=source, sandbox=None).value == "connected"


@NEEDS_BUBBLEWRAP
def test_settings_of_the_network_are_seen_with_the_network(source):
    listing = {"command": ["ls", "/etc"]}
    offline = call(listing, source=source, sandbox=None).value.split()
    online = call({**listing, "network": True}, source=source, sandbox=None).value.split()
    assert {"group", "hosts", "passwd"} <= {*offline}
    assert "services" not in offline
    assert {*offline, "resolv.conf"} <= {*online}


@NEEDS_BUBBLEWRAP
def test_a_link_of_the_system_is_a_link_in_the_sandbox(source):
    programs = call(["realpath", "/bin/sh", "/bin"], source=source, sandbox=None).value.split()
    assert programs == [str(Path(each).resolve()) for each in ("/bin/sh", "/bin")]


@NEEDS_BUBBLEWRAP
def test_a_folder_within_a_granted_one_keeps_its_own_grant(source, tmp_path):
    (tmp_path / "data" / "inner").mkdir()
    writing = "for each in $0 $0/inner; do echo new > $each/made 2> /dev/null && echo $each; done; true"
    for paths, writable in (
        ({"read": ["../data"], "write": ["../data/inner"]}, ["../data/inner"]),
        ({"read": ["../data/inner"], "write": ["../data"]}, ["../data"]),
        ({"write": ["../data", "../data/inner"]}, ["../data", "../data/inner"]),
    ):
        block = {"command": ["sh", "-c", writing, "../data"], "paths": paths}
        result = call(block, source=source, sandbox=None)
        assert result.value.split() == writable, paths


@NEEDS_BUBBLEWRAP
def test_a_program_sees_no_other_process_and_its_own_folder_for_temporary_files(source, tmp_path):
    listing = ["sh", "-c", "ls /proc | grep -c '^[0-9]'; ls -A /tmp; echo x > /tmp/mine"]
    result = call(listing, source=source, sandbox=None)
    assert int(result.value.split()[0]) < 10
    assert not Path("/tmp/mine").exists()


@NEEDS_BUBBLEWRAP
def test_limits_measure_the_program_within_its_sandbox(source):
    growing = "import time; x = b'1' * (200 << 20); time.sleep(600)"
    result = call([*PYTHON, growing], source=source, sandbox=None, limits={"memory": "64MiB"})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "memory_exceeded")
    forking = "for i in 1 2 3 4 5 6 7 8; do setsid sleep 600 & done; wait"
    result = call(["sh", "-c", forking], source=source, sandbox=None, limits={"processes": 3})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "processes_exceeded")
    result = call(["yes"], source=source, sandbox=None, limits={"output_size": "64KiB"})
    assert result.error.code == "result_too_large"


@NEEDS_BUBBLEWRAP
def test_a_deadline_ends_a_program_in_a_sandbox(source):
    script = "trap '' TERM; setsid sleep 600 & sleep 600"
    result = call(["sh", "-c", script], source=source, sandbox=None, timeout="500ms")
    assert result.outcome is Outcome.TIMEOUT


@NEEDS_BUBBLEWRAP
def test_exit_codes_and_signals_pass_through_a_sandbox(source):
    result = call(["sh", "-c", "echo why >&2; exit 7"], source=source, sandbox=None)
    assert result.error.details == {"exit_code": 7, "stderr": "why"}
    result = call(["sh", "-c", "kill -SEGV $$"], source=source, sandbox=None)
    assert result.error.details["exit_code"] == 139
    assert "as after signal SIGSEGV" in result.message


@NEEDS_BUBBLEWRAP
def test_a_program_that_the_sandbox_cannot_start_is_unavailable(source, tmp_path):
    (tmp_path / "home" / "tool.sh").write_text("#!/nowhere/sh\n")
    (tmp_path / "home" / "tool.sh").chmod(0o755)
    result = call(["./tool.sh"], source=source, sandbox=None)
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "sandbox_failed")
    assert "cannot start `./tool.sh`" in result.message


@NEEDS_BUBBLEWRAP
def test_a_program_that_imitates_the_sandbox_is_a_failed_program(source):
    result = call(["sh", "-c", "echo 'bwrap: cannot start' >&2; exit 1"], source=source, sandbox=None)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "exit_code")


@NEEDS_BUBBLEWRAP
def test_a_program_that_stays_running_is_in_a_sandbox(source):
    reading = "import sys\nfor line in sys.stdin:\n try: print(open(line.strip()).read().strip())\n except OSError as e: print(type(e).__name__)"
    block = {"command": [sys.executable, "-ISuc", reading], "lifetime": "runtime", "stdin": "{{ args.path }}"}
    results = run(
        document(exec=block),
        calls=[{"path": "file"}, {"path": "../secret/file"}],
        source=source,
        sandbox=None,
    )
    assert [each.value for each in results] == ["home", "FileNotFoundError"]


@NEEDS_BUBBLEWRAP
def test_a_cancelled_call_ends_its_sandbox(source, tmp_path):
    block = {"command": ["sh", "-c", "echo x > file2; sleep 600"], "paths": {"write": ["."]}}

    async def calls():
        async with Runtime(registry_of(document(exec=block), source=source)) as runtime:
            running = asyncio.ensure_future(runtime.call("tool"))
            await written(tmp_path / "home" / "file2")
            running.cancel()
            return (await asyncio.wait({running}))[0]

    assert len(asyncio.run(calls())) == 1


def project(tmp_path, text, tool):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "toolcrib.yaml").write_text(text)
    (tmp_path / "descriptors" / "tool.yaml").write_text(textwrap.dedent(tool))

    async def calls():
        async with Runtime.open(tmp_path, index=False) as runtime:
            assert [str(each) for each in runtime.problems] == []
            return await runtime.call("tool")

    return asyncio.run(calls())


TOOL = """
    name: tool
    mode: exec
    exec: {command: [sh, -c, "cat ../data/file; echo x > ../out/new; ls ../out"], paths: {read: [../data], write: [../out]}}
"""


@NEEDS_BUBBLEWRAP
def test_a_project_grants_paths(tmp_path):
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "file").write_text("data\n")
    granted = "project: p\naccess: {paths: {read: [data], write: [out]}}\n"
    assert project(tmp_path, granted, TOOL).value == "data\nnew\n"


@NEEDS_BUBBLEWRAP
def test_the_paths_of_a_project_are_those_of_a_tool_that_declares_none(tmp_path):
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "file").write_text("data\n")
    granted = "project: p\naccess: {paths: {read: [data], write: [out]}}\n"
    tool = TOOL.partition(", paths")[0] + "}\n"
    assert project(tmp_path, granted, tool).value == "data\nnew\n"


def test_a_path_that_the_project_does_not_grant_makes_the_tool_unavailable(tmp_path):
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    result = project(
        tmp_path, "project: p\nsandbox: none\naccess: {paths: {read: [data], write: [data]}}\n", TOOL
    )
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "path_not_granted")
    assert "`tool` declares to write" in result.message


def test_a_path_that_does_not_exist_makes_the_tool_unavailable(tmp_path):
    result = project(tmp_path, "project: p\nsandbox: none\n", TOOL)
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "no_such_path")


def test_a_project_can_do_without_a_sandbox(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    tool = "name: tool\nmode: exec\nexec: [cat, ../secret]\n".replace("[cat", "{command: [cat").replace(
        "t]", "t]}"
    )
    assert project(tmp_path, "project: p\nsandbox: none\n", tool).value == "secret\n"


def test_without_bubblewrap_a_program_is_unavailable(source, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_bubblewrap() == ""
    block = {"command": [shutil.which("true", path="/usr/bin:/bin")]}
    result = call(block, source=source, sandbox=None)
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "no_sandbox")
    assert "write `sandbox: none` in `toolcrib.yaml`" in result.message
    assert call(block, source=source, sandbox="none").outcome is Outcome.OK


def test_an_unknown_sandbox_is_refused():
    with pytest.raises(ConfigurationError, match="unknown sandbox `docker`"):
        Runtime(Registry(), sandbox="docker")


def test_what_bubblewrap_reports_tells_whether_a_program_was_started():
    assert has_started(b'{ "child-pid": 5 }\n{ "exit-code": 0 }\n')
    assert not has_started(b'{ "child-pid": 5 }\n')
    assert not has_started(b'{ "child-pid": 5 }\n{ "exit-co')
