"""A child process that tells what it used when it has ended, as a transport of asyncio (Linux).

asyncio's own transport collects the exit code in a way that discards what the system measured. This one waits for the
process itself, through a descriptor of the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

from toolcrib.core.process_limits import UNKNOWN_USAGE, ProcessUsage, usage_of_ended, written_by

AVAILABLE = hasattr(os, "pidfd_open") and hasattr(os, "wait4")
"""Whether the system has what this module needs (Linux 5.3 or later)."""


class MeasuredProcess(asyncio.SubprocessTransport):
    """A running process.

    Attributes:
        usage: What it and the descendants that it waited for used; unknown until it has ended.
    """

    def __init__(
        self, protocol: asyncio.SubprocessProtocol, popen: subprocess.Popen[bytes], own_peak: int
    ) -> None:
        super().__init__()
        self._own_peak = own_peak
        self._protocol = protocol
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._open = 0
        self._closed = False
        self._code: int | None = None
        self._ended = False
        self._handle = -1
        self.usage = UNKNOWN_USAGE
        self._handle = os.pidfd_open(popen.pid)
        # Only this class waits for the process. Popen would wait for it, too, and warn that it still runs if the event
        # loop is closed before it has noticed the end of a process that was killed.
        popen.returncode = 0

    def __del__(self) -> None:
        """Collect a process whose end the event loop did not notice before it was closed."""
        if self._code is None and self._handle >= 0:
            os.close(self._handle)
            with suppress(ChildProcessError):
                os.waitpid(self._popen.pid, os.WNOHANG)

    @classmethod
    async def start(
        cls,
        protocol: asyncio.SubprocessProtocol,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: bool,
        joins_stderr: bool = False,
        inherited: Sequence[int] = (),
    ) -> MeasuredProcess:
        """Start a process in its own session.

        Args:
            protocol: Receives its output and its end, as with `loop.subprocess_exec`.
            argv: The path of the program, and its arguments.
            env: Its environment.
            cwd: Its working directory; None for ours.
            stdin: Whether it has a stdin; without it, it reads the end of file.
            joins_stderr: Whether its stderr is part of its stdout.
            inherited: Descriptors of files that it inherits.

        Raises:
            OSError: The system does not start it.
            ValueError: An argument contains a null character.
        """
        import resource  # noqa: PLC0415 -- it exists on POSIX only

        popen = subprocess.Popen(  # noqa: S603, ASYNC220 -- as asyncio starts processes; the command is a list
            argv,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if joins_stderr else subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            bufsize=0,
            pass_fds=tuple(inherited),
        )
        transport = cls(protocol, popen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        try:
            await transport._connect()
        except BaseException:
            transport._abandon()
            raise
        # The pipes come first, as with asyncio, and the end of the process after both.
        protocol.connection_made(transport)
        transport._watch()
        return transport

    async def _connect(self) -> None:
        files = self._files()
        self._open = sum(file is not None for file in files.values())
        for number, file in files.items():
            if file is None:
                continue
            connect: Any = self._loop.connect_read_pipe if number else self._loop.connect_write_pipe
            transport, _protocol = await connect(lambda number=number: _Pipe(self, number), file)
            self._pipes[number] = transport
            if self._closed:
                transport.close()

    def _abandon(self) -> None:
        """Close everything after a start that was cancelled or has failed."""
        for number, file in self._files().items():
            if file is not None and number not in self._pipes:
                file.close()
        self._open = len(self._pipes)
        self._watch()
        self.close()

    def _watch(self) -> None:
        self._loop.add_reader(self._handle, self._collect)

    def _files(self) -> dict[int, IO[bytes] | None]:
        return {0: self._popen.stdin, 1: self._popen.stdout, 2: self._popen.stderr}

    def get_pid(self) -> int:
        """ID of the process."""
        return self._popen.pid

    def get_returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._code

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """The transport of stdin (0), stdout (1) or stderr (2)."""
        return self._pipes.get(fd)

    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Close the pipes, and kill the process if it still runs."""
        if self._closed:
            return
        self._closed = True
        for pipe in self._pipes.values():
            pipe.close()
        if self._code is None:
            self.send_signal(signal.SIGKILL)
        self._settle()

    def send_signal(self, signal: int) -> None:
        """Send a signal to the process."""
        if self._code is None:
            with suppress(ProcessLookupError):
                _send(self._handle, signal)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def pipe_lost(self, number: int, error: Exception | None) -> None:
        """Called by a pipe that was closed."""
        self._open -= 1
        self._protocol.pipe_connection_lost(number, error)
        self._settle()

    def received(self, number: int, data: bytes) -> None:
        """Called by a pipe with output."""
        self._protocol.pipe_data_received(number, data)

    def writing(self, *, paused: bool) -> None:
        """Called by stdin when its buffer is full, and when it has room again."""
        (self._protocol.pause_writing if paused else self._protocol.resume_writing)()

    def _collect(self) -> None:
        """Called once the process has ended."""
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        pid = self._popen.pid
        # A process that was not waited for still has its counters.
        before = ProcessUsage(written_bytes=written_by(pid))
        try:
            _pid, status, resources = os.wait4(pid, 0)
        except ChildProcessError:
            # Other code in this process has waited for it; as asyncio does then.
            self._code, self.usage = 255, before
        else:
            self._code = os.waitstatus_to_exitcode(status)
            self.usage = before.joined(usage_of_ended(resources, self._own_peak))
        self._protocol.process_exited()
        self._settle()

    def _settle(self) -> None:
        if self._code is not None and self._open == 0 and not self._ended:
            self._ended = True
            self._loop.call_soon(self._protocol.connection_lost, None)


class _Pipe(asyncio.Protocol):
    def __init__(self, process: MeasuredProcess, number: int) -> None:
        self._process = process
        self._number = number

    def data_received(self, data: bytes) -> None:
        self._process.received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.pipe_lost(self._number, exc)

    def pause_writing(self) -> None:
        self._process.writing(paused=True)

    def resume_writing(self) -> None:
        self._process.writing(paused=False)


def _send(handle: int, number: int) -> None:
    cast("Any", signal).pidfd_send_signal(handle, number)
