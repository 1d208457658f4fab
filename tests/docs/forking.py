"""The command `toolcrib` of a clean environment, started by forking one process that has already imported the wheel.

A page starts the command up to thirty times, and most of the time of each would be spent on the same imports. What is
forked has the working directory, the environment, the streams and the words of the command that a page types.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = '''
import gc, importlib, json, os, pkgutil, select, signal, socket, sys

listening, command = socket.socket(socket.AF_UNIX), sys.argv[2]
listening.bind(sys.argv[1])
listening.listen()
sys.path[0] = os.path.dirname(command)

import toolcrib
from toolcrib.cli import main

for module in pkgutil.walk_packages(toolcrib.__path__, "toolcrib."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:  # of an extra that is not installed
            pass
try:
    import mcp.client.stdio, mcp.server
except ImportError:
    pass

def received(connection):
    """The words, the environment, the folder; standard input, output and error output."""
    told, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not told.endswith(b"\\n"):
        told += connection.recv(1 << 20)
    return json.loads(told), files

running = {}
gc.freeze()
print("ready", flush=True)
while True:
    ready, _, _ = select.select([listening, *running], [], [])
    for each in ready:
        if each is not listening:
            pid, connection = running.pop(each)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(str(code if code >= 0 else 128 - code).encode())
            connection.close()
            os.close(each)
            continue
        connection = listening.accept()[0]
        (words, environment, folder), files = received(connection)
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            running[os.pidfd_open(pid)] = pid, connection
            continue
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for file in (listening, connection, *(one for _, one in running.values())):
            file.close()
        for handle in running:
            os.close(handle)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [command, *words]
        sys.modules["__main__"].__file__ = command  # which processes that it starts import
        importlib.invalidate_caches()  # the page may have installed something
        main()
        sys.exit()
'''

CLIENT = """
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:  # what signals reach has to be the command itself
    os.execv({command!r}, [{command!r}, *sys.argv[1:]])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
told = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode() + b"\\n"
sent = socket.send_fds(connection, [told], [0, 1, 2])
connection.sendall(told[sent:])
os._exit(int(connection.recv(16)))
"""


@contextmanager
def forked_command(python: Path, folder: Path) -> Iterator[Path]:
    """The folder with a command `toolcrib` that does what the one beside an interpreter does.

    Args:
        python: The interpreter of the environment.
        folder: A folder for this alone; its path is short.
    """
    command, address = python.parent / "toolcrib", folder / "socket"
    place = folder / "bin"
    place.mkdir()
    client = folder / "client.py"
    client.write_text(CLIENT.format(command=str(command), address=str(address)), encoding="utf-8")
    script = place / "toolcrib"
    words = " ".join(map(shlex.quote, [sys.executable, "-IS", str(client)]))
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    server = folder / "server.py"
    server.write_text(SERVER, encoding="utf-8")
    started = [python, server, address, command]
    with subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield place
        finally:
            process.kill()
