"""Programs that the run starts, each at the head of a process group of its own, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

STARTS_WITHIN = 30.0
"""Seconds until a server must have taken a connection."""

ENDS_WITHIN = 15.0
"""Seconds until a program must have ended that was asked to."""


class Ran(NamedTuple):
    """A program that ended: with which code (`-9` where it was killed for taking too long), and what it said."""

    code: int
    out: str
    err: str


class ServerFailed(Exception):
    """A server did not start, or did not end as it should."""


def run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float = 120.0) -> Ran:
    """Run a program to its end; past `timeout` seconds it is killed with all its children."""
    with subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _signal_group(process, signal.SIGKILL)
            out, err = process.communicate()
        finally:
            _signal_group(process, signal.SIGKILL)
    return Ran(process.returncode, out, err)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str],
    port: int,
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    ends_with: int | None = None,
) -> Iterator[None]:
    """A server that listens on a port of loopback, for as long as the block lasts.

    What it says goes to `log`. When it is asked to end, it must do so with the code `ends_with`, if one is given.

    Raises:
        ServerFailed: It did not start, died meanwhile, or did not end as it should.
    """
    with log.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        _wait_until_it_listens(process, port, log)
        yield
        if process.poll() is not None:
            raise ServerFailed(f"it ended by itself with {process.returncode}: {tail(log)}")
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN)
        if ends_with is not None and process.poll() != ends_with:
            raise ServerFailed(
                f"asked to end, it ended with {process.poll()} instead of {ends_with}: {tail(log)}"
            )
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def left_over(home: Path, patience: float = 10.0) -> list[str]:
    """The commands of processes that still run with this home folder, once those that are ending have ended.

    Told by `/proc`; where there is none, nothing is found.
    """
    deadline = time.monotonic() + patience
    while (found := list(_living(home))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _living(home: Path) -> Iterator[str]:
    for environment in Path("/proc").glob("[0-9]*/environ"):
        # A process may end while it is looked at; those of others are none of ours.
        with suppress(OSError):
            if f"HOME={home}".encode() in environment.read_bytes().split(b"\0"):
                command = environment.with_name("cmdline").read_bytes().replace(b"\0", b" ").strip()
                if command:  # a process that has ended and was not waited for has none
                    yield command.decode(errors="replace")


def tail(log: Path, characters: int = 2000) -> str:
    """The end of what a program said."""
    return log.read_text(encoding="utf-8", errors="replace")[-characters:].strip() or "(it said nothing)"


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            raise ServerFailed(f"it ended with {process.returncode} instead of listening: {tail(log)}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"it did not listen on port {port} within {STARTS_WITHIN:.0f} s: {tail(log)}")
        time.sleep(0.05)


def _signal_group(process: subprocess.Popen[str] | subprocess.Popen[bytes], number: signal.Signals) -> None:
    # Its group may outlive it: what it started belongs to us all the same.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
