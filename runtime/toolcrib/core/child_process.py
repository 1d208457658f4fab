"""Child processes: start them without a shell, read, write, and end them with all their descendants.

A child leads its own session. It and its descendants carry a mark in their environment, which finds descendants that
created their own sessions, such as daemons (in `/proc`, on Linux). On other systems only the process group is ended. A
descendant that changes its session and clears its environment is never found.

A child ends through `end`, its cancellation, or the exit of the interpreter. If our own process is killed, the stdin of
the child closes, which ends every server that follows the protocol (2025-11-25, basic/lifecycle, "Shutdown"); on Linux
the orphan reaper ends the others.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from toolcrib.core.file_descriptors import readable
from toolcrib.core.measured_process import AVAILABLE, MeasuredProcess
from toolcrib.core.process_limits import (
    NO_PROCESS_LIMITS,
    UNKNOWN_USAGE,
    ProcessLimits,
    ProcessUsage,
    restrict_process,
)
from toolcrib.core.process_tree import ORPHAN_REAPER, count_forks, find_processes, signal_processes
from toolcrib.core.sandbox import Sandbox, has_started

MARK = "TOOLCRIB_CHILD"
"""Environment variable that marks a child and its descendants. Its value includes the marks of its ancestors."""

GRACE = 2.0
"""Seconds that a child has to end by itself once its stdin is closed, and again once it was sent SIGTERM."""

HURRIED_GRACE = 0.25
"""The same after `ChildProcess.hurry`: enough to write a file, and hardly a delay for whoever waits."""

_LOOK_AGAIN = 0.05
_AFTER_KILL = 0.5
_ROUNDS = 5

SAID = 64 * 1024
"""Bytes of stderr that are reported."""


# A short list: our environment usually contains API keys, which a third-party program must not receive.
KEPT = ("PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")
"""Variables that a child inherits from our environment; all others must be set for it."""

_KEPT_ON_WINDOWS = (
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
)
"""Variables that a child also inherits on Windows, where most programs do not start without them."""


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that every child inherits."""
    names = (*KEPT, *_KEPT_ON_WINDOWS) if os.name == "nt" else KEPT
    found = {name: environment.get(name) for name in names}
    # A value that starts with `()` is a shell function; unpatched versions of Bash run it (CVE-2014-6271).
    return {name: value for name, value in found.items() if value is not None and not value.startswith("()")}


def signal_name(number: int) -> str:
    """The name of a signal, such as `SIGKILL`; its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class ChildProcess(asyncio.SubprocessProtocol):
    """A child process and its descendants.

    Args:
        heard: Called with each chunk of its stdout.
        silent: Called when its stdout ends, and when it exits; `code` and `deaf` tell them apart.
        marked: A mark that the caller has registered with the orphan reaper; the mark of the process begins with it. Empty
            if the process registers its own.
        sandbox: Its sandbox; None for none. The system ends the descendants of a process in a sandbox with it, so that
            they are not looked for.

    Attributes:
        mark: The mark in its environment.
        pid: ID of the process and of its session; 0 before the start.
        code: The exit code, negative for a signal; None while it runs.
        deaf: Whether its stdout has ended.
        stderr: The last `2 * SAID` bytes of its stderr.
    """

    def __init__(
        self,
        heard: Callable[[bytes], None],
        silent: Callable[[], None],
        *,
        marked: str = "",
        sandbox: Sandbox | None = None,
    ) -> None:
        self._heard = heard
        self._registers = sandbox is None and not marked
        self._sandbox = sandbox
        self._status = -1
        self._told = b""
        self._silent = silent
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited: asyncio.Future[None]
        self._lost: asyncio.Future[None]
        self._hurry: asyncio.Future[float]
        self._room = asyncio.Event()
        self._room.set()
        self._broken = False
        self._forks: int | None = None
        self.mark = marked + secrets.token_hex(12)
        self.pid = 0
        self.code: int | None = None
        self.deaf = False
        self.stderr = b""

    async def start(
        self,
        program: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        limits: ProcessLimits | None = None,
        stdin: bool = True,
        joins_stderr: bool = False,
    ) -> None:
        """Start the process.

        Args:
            program: Path of the program.
            args: Its arguments.
            env: Its environment; the mark is added.
            cwd: Its working directory; in a sandbox empty for the folder of temporary files.
            limits: Its limits; with them, it is measured (`usage`) where the system permits it.
            stdin: Whether it has a stdin; without it, it reads the end of file.
            joins_stderr: Whether its stderr is part of its stdout, in the order in which it writes.

        Raises:
            OSError: The system does not start it.
            ValueError: An argument holds a NUL character.
        """
        above = os.environ.get(MARK)
        env = {**env, MARK: f"{above}.{self.mark}" if above else self.mark}
        loop = asyncio.get_running_loop()
        self._exited, self._lost, self._hurry = (loop.create_future() for _ in range(3))
        argv = [program, *args]
        inherited: list[int] = []
        if self._sandbox is None:
            self._forks = count_forks()
            # Before the start: our process may be killed at any moment after it.
            if self._registers:
                ORPHAN_REAPER.add(self.mark)
        else:
            self._status, *inherited = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            home = env.get("HOME", "")
            argv = [
                self._sandbox.program,
                *self._sandbox.arguments(argv, cwd=cwd, home=home, status=inherited[0]),
            ]
        cwd = cwd or "/"
        try:
            if limits is not None and AVAILABLE:
                await MeasuredProcess.start(
                    self, argv, env=env, cwd=cwd, stdin=stdin, joins_stderr=joins_stderr, inherited=inherited
                )
                if limits is not NO_PROCESS_LIMITS:
                    restrict_process(self.pid, limits)
            else:
                pipe = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
                await loop.subprocess_exec(
                    lambda: self,
                    *argv,
                    env=env,
                    cwd=cwd,
                    start_new_session=True,
                    stdin=pipe,
                    stderr=asyncio.subprocess.STDOUT if joins_stderr else asyncio.subprocess.PIPE,
                    pass_fds=tuple(inherited),
                )
        except (OSError, ValueError):
            self._forget()
            raise
        except asyncio.CancelledError:
            # asyncio kills the process, but not its descendants.
            self.kill()
            self._forget()
            raise
        finally:
            for number in inherited:
                os.close(number)

    @property
    def has_run(self) -> bool:
        """Whether a process that has ended was started by its sandbox; always true without one."""
        # A sandbox that was killed reports nothing.
        if self._sandbox is None or (self.code or 0) < 0:
            return True
        if self._status >= 0:
            with suppress(BlockingIOError):
                self._told += os.read(self._status, 65536)
        return has_started(self._told)

    @property
    def usage(self) -> ProcessUsage:
        """What the process used, with the descendants that it waited for; unknown until it has ended."""
        return self._transport.usage if isinstance(self._transport, MeasuredProcess) else UNKNOWN_USAGE

    def write(self, data: bytes) -> None:
        """Write bytes to stdin; they are buffered until the process reads them.

        Raises:
            BrokenPipeError: The stdin is closed.
        """
        pipe = self._stdin
        if self._broken or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        pipe.write(data)

    def close_stdin(self) -> None:
        """Close stdin once it has taken what was written."""
        pipe = self._pipe(0)
        if pipe is not None:
            pipe.close()

    async def exited(self) -> None:
        """Wait until the process has exited."""
        await asyncio.wait({self._exited})

    async def room(self) -> None:
        """Wait until the write buffer has room.

        Raises:
            BrokenPipeError: The stdin is closed.
        """
        await self._room.wait()
        if self._broken:
            raise BrokenPipeError

    def listen(self, on: bool) -> None:
        """Resume or pause reading stdout. Unread output stays in the pipe."""
        pipe = self._pipe(1)
        if pipe is None or pipe.is_closing() or self.deaf:
            return
        reading = cast("asyncio.ReadTransport", pipe)
        if on:
            reading.resume_reading()
        else:
            reading.pause_reading()

    def waits_in_pipe(self) -> bool:
        """Whether stdout has unread bytes or an unread end of file."""
        pipe = self._pipe(1)
        if self.deaf or pipe is None or pipe.is_closing():
            return False
        return readable(pipe.get_extra_info("pipe").fileno())

    def stop_listening(self) -> None:
        """Close its stdout: its next write fails with a broken pipe."""
        pipe = self._pipe(1)
        if pipe is not None:
            pipe.close()

    async def end(self) -> None:
        """Close stdin, then end all processes that do not exit by themselves, within 5 s."""
        if self._transport is None:
            return
        try:
            try:
                await self._wound_down()
            finally:
                self._transport.close()
            await asyncio.wait({self._lost}, timeout=_AFTER_KILL)
        except BaseException:
            # Nothing runs after the cancellation of a closed loop, or after GeneratorExit, so kill here and without waiting.
            for _ in range(_ROUNDS):
                if not self._send(signal.SIGKILL):
                    break
            raise
        finally:
            self._forget()

    def _forget(self) -> None:
        # Without this the reaper would run as long as this process does.
        _LIVE.pop(self.mark, None)
        if self._registers:
            ORPHAN_REAPER.remove(self.mark)
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    async def gone(self, seconds: float) -> None:
        """Wait until the process has exited and its output was read, at most `seconds`."""
        # Descendants that keep the pipes open would otherwise delay this as long as they run.
        await asyncio.wait({self._lost}, timeout=seconds)

    def is_dead(self) -> bool:
        """Whether the process has ended, even if the event loop has not noticed it yet."""
        if self.code is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # the event loop has just collected it
            return True

    def last_words(self, hide: Callable[[str], str]) -> str:
        """The last 64 KiB of its stderr as text.

        Args:
            hide: Masks secrets in a text.
        """
        text = hide(self.stderr.decode("utf-8", "replace"))
        if len(self.stderr) < 2 * SAID and len(text) <= SAID:
            return text
        text = text[-SAID:]
        # The start may be cut within a secret, which masking does not recognize: drop the incomplete line.
        return text.partition("\n")[2] or text

    def describe_end(self) -> str:
        """How the process ended: `exited with code 3` or `was terminated by signal SIGKILL`."""
        code = self.code or 0
        if code >= 0:
            return f"exited with code {code}"
        return f"was terminated by signal {signal_name(-code)}"

    def hurry(self, grace: float = HURRIED_GRACE) -> None:
        """Shorten each grace period of `end` to so many seconds, from now on."""
        if not self._hurry.done():
            self._hurry.set_result(grace)

    def kill(self) -> None:
        """Kill the process and its descendants immediately, without waiting."""
        self._send(signal.SIGKILL)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called by asyncio."""
        if fd == 1:  # before `connection_made` only
            self._heard(data)
        else:
            # Twice what is reported: masking shortens the text, and a secret cut at the start is not recognized.
            self.stderr = (self.stderr + data)[-2 * SAID :]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Called by asyncio."""
        if fd == 0:
            self._broken = True
            self._room.set()
        elif fd == 1:
            self.deaf = True
            self._silent()

    def process_exited(self) -> None:
        """Called by asyncio. Descendants may still hold the pipes open."""
        if self._transport is not None:
            self.code = self._transport.get_returncode()
        self._broken = True
        self._room.set()
        if not self._exited.done():
            self._exited.set_result(None)
        self._silent()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Called by asyncio."""
        if not self._lost.done():
            self._lost.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        stdout = cast("asyncio.BaseTransport", self._transport.get_pipe_transport(1))
        stdout.set_protocol(_Stdout(stdout.get_protocol(), self._heard))
        self.pid = self._transport.get_pid()
        _LIVE[self.mark] = (os.getpid(), self.pid)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._room.set()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return None if self._transport is None else self._transport.get_pipe_transport(fd)

    def _send(self, number: int) -> bool:
        """Send a signal to all remaining processes; whether there were any."""
        if self._sandbox is not None:
            if self.code is not None or self._transport is None:
                return False
            self._transport.send_signal(number)
            return True
        return signal_processes(self.pid, self.mark, number, running=self.code is None, forks=self._forks)

    async def _wound_down(self) -> None:
        self.close_stdin()
        # A child that blocks on a full stdout pipe could not exit.
        self.listen(True)
        either: set[asyncio.Future[Any]] = {self._exited, self._hurry}
        await asyncio.wait(either, timeout=GRACE, return_when=asyncio.FIRST_COMPLETED)
        if self._hurry.done():
            await asyncio.wait({self._exited}, timeout=self._hurry.result())
        if self._send(signal.SIGTERM):
            await self._until_gone(GRACE, hurries=True)
        # Several rounds: a process may fork between the search and the signal.
        for _ in range(_ROUNDS):
            if not self._send(signal.SIGKILL):
                break
            await self._until_gone(_AFTER_KILL / _ROUNDS)
        await asyncio.wait({self._exited}, timeout=_AFTER_KILL)

    async def _until_gone(self, seconds: float, *, hurries: bool = False) -> None:
        """Wait until all processes have ended, at most `seconds`, which `hurry` may shorten."""
        # Only our own child signals its exit; its descendants must be polled.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0 and (
            self.code is None or (self._sandbox is None and find_processes(self.pid, self.mark, self._forks))
        ):
            watched = self._exited if self.code is None else loop.create_future()
            await asyncio.wait({watched}, timeout=min(left, _LOOK_AGAIN))
            if hurries and self._hurry.done():
                deadline, hurries = min(deadline, loop.time() + self._hurry.result()), False


class _Stdout(asyncio.Protocol):
    """Delivers output as soon as it is read; asyncio's own protocol does so one iteration of the event loop later.

    Args:
        own: The protocol of asyncio, which has to know when the pipe ends.
        heard: Called with each chunk.
    """

    def __init__(self, own: asyncio.BaseProtocol, heard: Callable[[bytes], None]) -> None:
        self._own = own
        self._heard = heard

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._own.connection_lost(exc)


_LIVE: dict[str, tuple[int, int]] = {}
"""Mark -> (ID of the parent process, ID of the child)."""


@atexit.register
def _end_what_is_left() -> None:
    # After a fork, the table still lists the children of the parent process, which must survive.
    left = [(mark, pid) for mark, (owner, pid) in _LIVE.items() if owner == os.getpid()]
    for mark, pid in left:
        signal_processes(pid, mark, signal.SIGKILL, running=True)
    # A descendant in the middle of `exec` shows no environment and was missed: the reaper looks again after our exit.
    if not left:
        ORPHAN_REAPER.end()
