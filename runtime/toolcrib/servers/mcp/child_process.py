"""Child processes: started without a shell, read, written to, and ended with all that they started.

A child is the leader of a session of its own. It and whatever it starts carry a mark in their environment, so that
strays which made sessions of their own, daemons among them, are found again (in `/proc`, on Linux; elsewhere only its
group is ended, and a stray that also empties its environment gets away everywhere).

What ends a child: `end`; being cancelled while ending; the end of the interpreter, for those that were never ended. Where
our own process is killed its stdin closes, which ends every MCP server that keeps to the protocol (2025-11-25,
basic/lifecycle, "Shutdown"); on Linux the orphan reaper ends the others.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from toolcrib.http.connect import readable
from toolcrib.servers.mcp.process_tree import ORPHAN_REAPER, find_processes, signal_processes

MARK = "TOOLCRIB_CHILD"
"""Name of the variable that marks a child and what it starts; the value names those above it too."""

GRACE = 2.0
"""Seconds that a child has to end by itself once its stdin is closed, and again once it was sent SIGTERM."""

_LOOK_AGAIN = 0.05
_AFTER_KILL = 0.5
_ROUNDS = 5

SAID = 64 * 1024
"""Bytes of stderr that are told."""


class ChildProcess(asyncio.SubprocessProtocol):
    """One program and what it started.

    Args:
        heard: Called with what comes on its stdout.
        silent: Called when its stdout has ended, and when it has: look at `code` and `deaf`.

    Attributes:
        mark: What the environment of all of it holds.
        pid: Its number, and that of its session; 0 before it is there.
        code: The exit code, negative for a signal; None as long as it runs.
        deaf: Whether nothing more comes from its stdout.
        stderr: The last of what it wrote there, more than `SAID`: what is cut off begins with no half of a secret.
    """

    def __init__(self, heard: Callable[[bytes], None], silent: Callable[[], None]) -> None:
        self._heard = heard
        self._silent = silent
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited: asyncio.Future[None]
        self._lost: asyncio.Future[None]
        self._hurry: asyncio.Future[None]
        self._room = asyncio.Event()
        self._room.set()
        self._broken = False
        self.mark = secrets.token_hex(12)
        self.pid = 0
        self.code: int | None = None
        self.deaf = False
        self.stderr = b""

    async def start(self, program: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str) -> None:
        """Start the process.

        Args:
            program: Path of the program.
            args: Its arguments.
            env: Its environment; the mark is added.
            cwd: Its working directory.

        Raises:
            OSError: The system does not start it.
            ValueError: An argument holds a NUL character.
        """
        above = os.environ.get(MARK)
        env = {**env, MARK: f"{above}.{self.mark}" if above else self.mark}
        loop = asyncio.get_running_loop()
        self._exited, self._lost, self._hurry = (loop.create_future() for _ in range(3))
        ORPHAN_REAPER.add(self.mark)
        try:
            await loop.subprocess_exec(lambda: self, program, *args, env=env, cwd=cwd, start_new_session=True)
        except (OSError, ValueError):
            ORPHAN_REAPER.remove(self.mark)
            raise
        except asyncio.CancelledError:
            self.kill()  # asyncio has ended the process; it may have started others
            ORPHAN_REAPER.remove(self.mark)
            raise

    def write(self, data: bytes) -> None:
        """Hand over bytes; they are kept until the process takes them.

        Raises:
            BrokenPipeError: It takes nothing any more.
        """
        pipe = self._pipe(0)
        if self._broken or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        cast("asyncio.WriteTransport", pipe).write(data)

    async def room(self) -> None:
        """Wait until what was written before is on its way.

        Raises:
            BrokenPipeError: The process takes nothing any more.
        """
        await self._room.wait()
        if self._broken:
            raise BrokenPipeError

    def listen(self, on: bool) -> None:
        """Go on, or wait, with what comes on stdout: it then waits in the pipe."""
        pipe = self._pipe(1)
        if pipe is None or pipe.is_closing() or self.deaf:
            return
        reading = cast("asyncio.ReadTransport", pipe)
        if on:
            reading.resume_reading()
        else:
            reading.pause_reading()

    def waits_in_pipe(self) -> bool:
        """Whether something was written to stdout, or it ended, and was not heard yet."""
        pipe = self._pipe(1)
        if self.deaf or pipe is None or pipe.is_closing():
            return False
        return readable(pipe.get_extra_info("pipe").fileno())

    def stop_listening(self) -> None:
        """Close its stdout: what it writes from now on is a broken pipe for it."""
        pipe = self._pipe(1)
        if pipe is not None:
            pipe.close()

    async def end(self) -> None:
        """Close stdin, and end whatever does not end by itself: 5 s at most."""
        if self._transport is None:
            return
        try:
            try:
                await self._wound_down()
            finally:
                self._transport.close()
            await asyncio.wait({self._lost}, timeout=_AFTER_KILL)
        except asyncio.CancelledError:
            # A loop that is closed cancels this task: nothing runs after it, so the child and its strays are killed here.
            for _ in range(_ROUNDS):
                if not self._send(signal.SIGKILL):
                    break
            raise
        finally:
            # Without this the reaper would run as long as this process does.
            _LIVE.pop(self.mark, None)
            ORPHAN_REAPER.remove(self.mark)

    def hurry(self) -> None:
        """Give no more time to end by itself."""
        if not self._hurry.done():
            self._hurry.set_result(None)

    def kill(self) -> None:
        """End all of it at once, without waiting."""
        self._send(signal.SIGKILL)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called by asyncio."""
        if fd == 1:
            self._heard(data)
        else:
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
        """Called by asyncio, while others may still hold the pipes."""
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
        """Send a signal to all that is left; whether there was anything."""
        return signal_processes(self.pid, self.mark, number, running=self.code is None)

    async def _wound_down(self) -> None:
        stdin = self._pipe(0)
        if stdin is not None:
            stdin.close()
        self.listen(True)  # it may wait for room in the pipe, for its last words
        await asyncio.wait({self._exited, self._hurry}, timeout=GRACE, return_when=asyncio.FIRST_COMPLETED)
        if not self._hurry.done() and self._send(signal.SIGTERM):
            await self._until_gone(GRACE)
        for _ in range(_ROUNDS):
            if not self._send(signal.SIGKILL):
                break
            await self._until_gone(_AFTER_KILL / _ROUNDS)
        await asyncio.wait({self._exited}, timeout=_AFTER_KILL)

    async def _until_gone(self, seconds: float) -> None:
        """Wait for the end of all of it, so long at most; what others started can only be looked for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0 and (
            self.code is None or find_processes(self.pid, self.mark)
        ):
            watched = self._exited if self.code is None else loop.create_future()
            await asyncio.wait({watched}, timeout=min(left, _LOOK_AGAIN))
            if self._hurry.done() and seconds == GRACE:
                return


_LIVE: dict[str, tuple[int, int]] = {}
"""Mark -> the process that started a child, and the child."""


@atexit.register
def _end_what_is_left() -> None:
    """Children that were never ended; those of a process that forked this one are not its to end."""
    for mark, (owner, pid) in list(_LIVE.items()):
        if owner == os.getpid():
            signal_processes(pid, mark, signal.SIGKILL, running=True)
    ORPHAN_REAPER.end()
