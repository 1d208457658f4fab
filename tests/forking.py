"""The commands `toolcrib` and `python`, started by forking one process that has already imported the package.

Importing is most of what a short command, script or server does. What is forked has the working directory, the environment, the
streams and the arguments of the command that was called; signals to that command are forwarded to it.
`make test-all` starts every command by itself.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SERVER = '''
import atexit, builtins, gc, importlib, os, pkgutil, runpy, select, signal, socket, sys, tempfile, threading, types, warnings

listening, command = socket.socket(socket.AF_UNIX), sys.argv[2]
listening.bind(sys.argv[1])
listening.listen()
print("listening", flush=True)
sys.path[0] = os.path.dirname(command)

import toolcrib

for module in pkgutil.walk_packages(toolcrib.__path__, "toolcrib."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:  # of an extra that is not installed
            pass
try:
    import mcp.client.stdio, mcp.server, uvicorn
except ImportError:
    pass

# The schemas of documents are compiled once for a process.
with tempfile.TemporaryDirectory() as first:
    os.mkdir(os.path.join(first, "descriptors"))
    for name, text in {
        "toolcrib.yaml": "project: first",
        "descriptors/a.tool.yaml": "{name: a, input_schema: {type: object}, mock: {result: 1}}",
        "descriptors/a.scenario.yaml": "{scenario: a, steps: [{call: a}]}",
    }.items():
        with open(os.path.join(first, name), "w") as file:
            file.write(text)
    toolcrib.Runtime.open(first, index=False)

def received(connection):
    """The arguments, the environment and the folder; the three streams; signals that came with them.

    EOFError says that the client was killed before it had told everything.
    """
    told, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while b"\\n" not in told:
        more = connection.recv(1 << 20)
        if not more:
            for file in files:
                os.close(file)
            raise EOFError
        told += more
    told, _, signals = told.partition(b"\\n")
    return eval(told), files, signals

def end(code):
    """End as Python does, without taking its modules apart, which is most of what a short command would cost."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # it is closed, or nobody reads it: Python says so
            return
    os._exit(code)

def become(words, environment, folder, files):
    """Go on as the command."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    listening.close()
    for handle, connection in running.values():
        os.close(handle)
        connection.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    importlib.invalidate_caches()  # something may have been installed
    kind, *words = words
    if kind == "toolcrib":
        sys.argv = [command, *words]
        return runpy.run_path(command, run_name="__main__")
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del words[:2]
    if words[0] == "-c":
        name, text = "<string>", words[1].encode()
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
    else:
        name, sys.argv, sys.path[0] = words[0], words, os.path.dirname(os.path.realpath(words[0]))
        with open(name, "rb") as file:
            text = file.read()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if words[0] != "-c":
        main.__file__ = os.path.abspath(name)
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)

gc.set_threshold(50_000, 20, 20)  # as in conftest.py: short commands make little garbage in cycles
running = {}  # pid -> a handle of the process, the connection of its client
gc.freeze()
print("ready", flush=True)
while True:
    ready = select.select([listening, *(each for both in running.values() for each in both)], [], [])[0]
    for pid, (handle, connection) in list(running.items()):
        if connection in ready:
            signals = connection.recv(64) or bytes([signal.SIGKILL])  # the client was killed
            for number in signals:
                signal.pidfd_send_signal(handle, number)
        if handle in ready or connection in ready and signals == bytes([signal.SIGKILL]):
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            del running[pid]
            try:
                connection.sendall(str(code).encode())
            except OSError:
                pass
            connection.close()
            os.close(handle)
    if listening in ready:
        connection = listening.accept()[0]
        try:
            told, files, signals = received(connection)
        except EOFError:
            connection.close()
            continue
        pid = os.fork()
        if not pid:
            connection.close()
            try:
                become(*told, files)
            except SystemExit as ended:
                if ended.code is None or isinstance(ended.code, int):
                    end((ended.code or 0) & 0xFF)
                raise
            end(0)
            sys.exit()
        for file in files:
            os.close(file)
        running[pid] = os.pidfd_open(pid), connection
        for number in signals:
            os.kill(pid, number)
'''

CLIENT = """
import _signal, _socket, array, os, sys  # `json`, `signal` and `socket` take longer than all the rest
if sys.argv[1] == "python":
    words = sys.argv[4:] if sys.argv[2:4] == ["-W", "error"] else sys.argv[2:]
    script = words and (words[0] == "-c" and words[1:] or words[0].endswith(".py") and os.path.isfile(words[0]))
    if not script or any(
        name.startswith("PYTHON") and name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED") for name in os.environ
    ):
        os.execv({python!r}, [{python!r}, *sys.argv[2:]])
forwarded = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
_signal.pthread_sigmask(_signal.SIG_BLOCK, forwarded)  # the command may run before this goes on: they wait
connection = _socket.socket(_socket.AF_UNIX)
connection.connect({address!r})
told = ascii((sys.argv[1:], dict(os.environ), os.getcwd())).encode() + b"\\n"
streams = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
sent = connection.sendmsg([told], [streams])
connection.sendall(told[sent:])
for number in forwarded:
    _signal.signal(number, lambda number, _frame: connection.send(bytes([number])))
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, forwarded)
os.closerange(0, 3)  # the command alone holds its streams
code = int(connection.recv(16) or -_signal.SIGKILL)
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL) if code != -_signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextmanager
def forked_command(
    python: Path, folder: Path, script: Path | None = None, *, wait: bool = True
) -> Iterator[Path]:
    """The folder with commands `toolcrib` and `python` that do what those of an environment do.

    `python` forks for scripts and `-c`, with `-W error` or no option; for all else it is the interpreter.

    Args:
        python: The interpreter of the environment.
        folder: An empty folder; its path is short enough for the address of a socket.
        script: What the command runs instead, a Python file.
        wait: Until commands can be forked; else the first ones wait for that.
    """
    command, address = script or python.parent / "toolcrib", folder / "socket"
    place = folder / "bin"
    place.mkdir()
    client = folder / "client.py"
    client.write_text(CLIENT.format(address=str(address), python=str(python)), encoding="utf-8")
    for name in ("toolcrib", "python"):
        shim = place / name
        words = " ".join(map(shlex.quote, [sys.executable, "-IS", str(client), name]))
        shim.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    server = folder / "server.py"
    server.write_text(SERVER, encoding="utf-8")
    started = [python, server, address, command]
    with subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            if wait:
                assert process.stdout.readline() == "ready\n"
            yield place
        finally:
            process.kill()


def run_forked(
    place: Path, words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
) -> tuple[int, str]:
    """Run a command without the shell and the interpreter that its script in `place` starts: half of what a short one costs.

    Args:
        place: What `forked_command` gave.
        words: `toolcrib`, or `python` with a script or `-c` and code, and the arguments.
        environment: Its environment.
        folder: Its working directory.
        seconds: It is killed when it takes longer.

    Returns:
        Its exit code, negative for a signal, and what it wrote to both streams.

    Raises:
        TimeoutError: It took longer.
    """
    told = ascii((list(words), dict(environment), str(folder))).encode() + b"\n"
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile() as written,
        socket.socket(socket.AF_UNIX) as connection,
    ):
        connection.settimeout(seconds)
        connection.connect(str(place.parent / "socket"))
        streams = [nothing.fileno(), written.fileno(), written.fileno()]
        sent = socket.send_fds(connection, [told], streams)
        connection.sendall(told[sent:])
        code = int(connection.recv(16) or -signal.SIGKILL)
        written.seek(0)
        return code, written.read().decode()
