"""Processes that tests start: they obey the signals that a test sends them, and each ends with its test."""

from __future__ import annotations

import os
import select
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

# Not TOOLCRIB_...: `toolcrib doctor` warns of such a variable if it has no effect.
MARK = "STARTED_BY_TESTS"
"""A variable that every process started by these tests inherits; its value is different in each worker."""

GRACE = 3.0
"""Seconds in which a process may still end that was told to when its test ended."""

_SHELL_IGNORES = [
    getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM") if hasattr(signal, name)
]
_PROC = Path("/proc")
# Multiprocessing starts these two for the first test that needs them and keeps them until the interpreter exits.
_KEPT = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Leftover(NamedTuple):
    """A process that outlived the test that started it."""

    pid: int
    test: str
    command: str

    def __str__(self) -> str:
        return f"{self.test} left process {self.pid} behind: {self.command}"


@contextmanager
def default_signals() -> Iterator[None]:
    """Let processes that are started within the block begin with default signal handling.

    A shell lets what it starts in the background ignore SIGINT, `nohup` has it ignore SIGHUP, and a child inherits what is
    ignored. A signal that is caught is reset in a child (POSIX, `exec`), so this process catches those signals and does
    nothing: it still ignores them, and its children do not.
    """
    ignored = [number for number in _SHELL_IGNORES if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda _number, _frame: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def marked() -> Iterator[str]:
    """Set `MARK` for all processes that are started within the block; yields its value."""
    value = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, value)
        yield value


def has_children() -> bool:
    """Whether this process has a child, running or not: a system call that costs next to nothing."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children() -> set[int]:
    """The direct children of this process; empty where the system does not list them."""
    found: set[int] = set()
    tasks = _PROC / "self" / "task"
    for thread in tasks.iterdir() if tasks.is_dir() else ():
        with suppress(OSError):  # a thread that just ended
            found.update(map(int, (thread / "children").read_bytes().split()))
    return found


def left_by(test: str, started: set[int]) -> list[Leftover]:
    """Those of the children of this process that a test started in its call and that still run.

    Those that its fixtures started are not among them: a fixture of a module or session keeps its server for later tests.
    """
    found = []
    for pid in started:
        variables = _variables(pid)
        started_in = variables.get("PYTEST_CURRENT_TEST", f"{test} (call)")
        if variables and started_in == f"{test} (call)" and not _is_kept(pid):
            found.append(Leftover(pid, test, _command(pid)))
    return _after_grace(found)


def left_by_session(value: str) -> list[Leftover]:
    """All processes that still run and carry a value of `MARK`, also those whose parents have ended."""
    found = []
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        if pid != os.getpid() and (variables := _variables(pid)).get(MARK) == value and not _is_kept(pid):
            test = variables.get("PYTEST_CURRENT_TEST", "a test").removesuffix(" (call)")
            found.append(Leftover(pid, test, _command(pid)))
    return _after_grace(found)


def end(leftovers: list[Leftover]) -> None:
    """Kill them, so that no other test meets them."""
    for each in leftovers:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


def _after_grace(leftovers: list[Leftover]) -> list[Leftover]:
    """Those that do not end within `GRACE` either."""
    deadline = time.monotonic() + GRACE
    return [each for each in leftovers if not _ends(each.pid, max(0.0, deadline - time.monotonic()))]


def _ends(pid: int, seconds: float) -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])  # readable as soon as the process has ended
    finally:
        os.close(handle)


def _variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it has ended or belongs to another user."""
    deadline = time.monotonic() + 1
    raw = b""
    try:
        # A process in the middle of `exec` shows an empty environment, as a zombie and a kernel thread always do.
        while not raw and time.monotonic() < deadline:
            raw = (_PROC / str(pid) / "environ").read_bytes()
            if not raw and not _may_be_starting(pid):
                return {}
    except OSError:
        return {}
    pairs = (each.partition("=") for each in raw.decode(errors="replace").split("\0") if each)
    return {name: value for name, _, value in pairs}


def _may_be_starting(pid: int) -> bool:
    """Whether a process is on a processor or waits for one."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D")


def _command(pid: int) -> str:
    try:
        return (
            (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return "?"


def _is_kept(pid: int) -> bool:
    return any(each in _command(pid) for each in _KEPT)
