"""Limits of child processes, measured from outside: `/proc`, `wait4` and resource limits of the system.

What a process says about itself is never used. Values that the system does not tell are None.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import NotReady
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import JSON, Descriptor, Limits, Usage
from toolcrib.core.process_tree import children_of, share_of_memory
from toolcrib.core.text import format_size

if TYPE_CHECKING:
    from resource import struct_rusage

MEASURES_PROCESSES = Path("/proc/self/stat").exists() and Path("/proc/self/statm").exists()
"""Whether processes can be measured (Linux)."""

LOOK = 0.02
"""Seconds between two measurements of a running process that has limits."""

_IDLE_LOOK = 0.05
"""Seconds between two measurements of a running process without limits."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

_ROOM = 16
"""Files that a process may open beyond `open_files` before the system refuses more."""

_SPARE = 64 * 1024
"""Bytes that a process may write to one file beyond `written_bytes` before the system refuses more."""


class ProcessLimits(NamedTuple):
    """Limits of a process and of the processes that it starts; None for no limit.

    Attributes:
        memory: Bytes of memory of all processes together.
        cpu_time: Seconds of processor time of all processes together.
        open_files: Files that one process has open.
        written_bytes: Bytes that all processes write together, to files, pipes and sockets.
        processes: Number of processes at the same time.
    """

    memory: int | None = None
    cpu_time: float | None = None
    open_files: int | None = None
    written_bytes: int | None = None
    processes: int | None = None

    @classmethod
    def of(cls, limits: Limits) -> ProcessLimits:
        """The limits of processes among those of a tool."""
        return cls(*(getattr(limits, name) for name in cls._fields))

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the limits that are set."""
        return tuple(name for name, value in zip(self._fields, self, strict=True) if value is not None)


NO_PROCESS_LIMITS = ProcessLimits()


class ProcessUsage(NamedTuple):
    """What a process and the processes that it started used; None if unknown.

    Attributes:
        memory: Peak memory in bytes.
        cpu_time: Processor time in seconds.
        open_files: The most files that one process had open.
        written_bytes: Bytes written.
        processes: The most processes at the same time.
    """

    memory: int | None = None
    cpu_time: float | None = None
    open_files: int | None = None
    written_bytes: int | None = None
    processes: int | None = None

    def joined(self, other: ProcessUsage) -> ProcessUsage:
        """The larger one of each value."""
        return ProcessUsage(*(_larger(mine, theirs) for mine, theirs in zip(self, other, strict=True)))

    def since(self, before: ProcessUsage) -> ProcessUsage:
        """The use after an earlier measurement of the same process; peaks stay as they are."""
        return self._replace(
            cpu_time=_less(self.cpu_time, before.cpu_time),
            written_bytes=_less(self.written_bytes, before.written_bytes),
        )

    def values(self) -> dict[str, Any]:
        """The values by name, as in `Usage`."""
        return {**self._asdict(), "cpu_time": None if self.cpu_time is None else round(self.cpu_time, 6)}

    def of_call(self, usage: Usage) -> Usage:
        """The usage of a call, with these values."""
        return usage.measured(self.values())


UNKNOWN_USAGE = ProcessUsage()


class ExceededLimit(NamedTuple):
    """A limit that a process has exceeded.

    Attributes:
        name: Name of the limit: `memory`.
        value: The limit.
        measured: What was measured.
    """

    name: str
    value: float
    measured: float

    @property
    def code(self) -> str:
        """Code of the result: `memory_exceeded`."""
        return f"{self.name}_exceeded"

    def details(self, tool: Descriptor) -> dict[str, JSON]:
        """The details of the result; see `limit_details`."""
        return limit_details(tool, self.name, self.value, self.measured)

    def describe(self, tool: Descriptor) -> str:
        """The end of a sentence: ``used 300MiB of memory, and `limits.memory` is 256MiB``."""
        if self.name == "memory":
            used, limit = f"used {_whole_size(self.measured)} of memory", format_size(int(self.value))
        elif self.name == "cpu_time":
            used, limit = f"used {self.measured:.2f}s of processor time", format_duration(self.value)
        elif self.name == "written_bytes":
            used, limit = f"wrote {int(self.measured):,} bytes", format_size(int(self.value))
        elif self.name == "open_files":
            used, limit = f"opened {int(self.measured)} files", str(int(self.value))
        else:
            used, limit = f"had {int(self.measured)} processes", str(int(self.value))
        return f"{used}, and {limit_phrase(tool, self.name, limit)}"


def exceeded_limit(used: ProcessUsage, limits: ProcessLimits) -> ExceededLimit | None:
    """The first limit that a measured use exceeds, if any."""
    for name, most, measured in zip(limits._fields, limits, used, strict=True):
        if most is not None and measured is not None and measured > most:
            return ExceededLimit(name, most, round(measured, 6))
    return None


def check_measurable(limits: Limits, *, measures: bool = MEASURES_PROCESSES) -> None:
    """Check that the limits of processes among those of a tool can be measured.

    Args:
        limits: The limits of the tool.
        measures: Whether the system can measure processes.

    Raises:
        NotReady: They cannot be measured on this system.
    """
    written = ProcessLimits.of(limits).written
    if written and not measures:
        named = ", ".join(f"`limits.{name}`" for name in written)
        raise NotReady(f"{named} cannot be measured on this system", code="unsupported_limit")


def restrict_process(pid: int, limits: ProcessLimits) -> None:
    """Let the system itself stop a process that exceeds its limits between two measurements.

    The resource limits lie above the limits, so that the measurement decides and names what was exceeded.
    """
    import resource  # noqa: PLC0415 -- it exists on POSIX only

    if not hasattr(resource, "prlimit"):
        return
    caps = [
        (resource.RLIMIT_CPU, None if limits.cpu_time is None else math.ceil(limits.cpu_time) + 1),
        (resource.RLIMIT_NOFILE, None if limits.open_files is None else limits.open_files + _ROOM),
        (resource.RLIMIT_FSIZE, None if limits.written_bytes is None else limits.written_bytes + _SPARE),
    ]
    for kind, most in caps:
        if most is None:
            continue
        # The process may have ended, and a limit above the inherited one is refused, which is then the stricter one.
        with suppress(ProcessLookupError, PermissionError, ValueError):
            resource.prlimit(pid, kind, (most, most))


def measure_processes(leader: int, *, wrappers: int = 0) -> ProcessUsage:
    """Measure a running process and its descendants.

    Args:
        leader: ID of the process.
        wrappers: Number of processes of a sandbox, each of which has started the next one, and which are not measured.
    """
    if not MEASURES_PROCESSES:
        return UNKNOWN_USAGE
    everything = [leader, *_descendants(leader)]
    pids = everything[wrappers:]
    return ProcessUsage(
        memory=_memory(pids),
        cpu_time=_total(_cpu_time(pid) for pid in everything),
        open_files=max((_open_files(pid) for pid in pids), default=None),
        written_bytes=_total(written_by(pid) for pid in everything),
        processes=len(pids) or None,
    )


def _memory(pids: Sequence[int]) -> int | None:
    """Bytes of memory of processes; for a single one its peak."""
    if len(pids) == 1:
        return _peak_memory(pids[0])
    return sum(map(share_of_memory, pids)) or None


def usage_of_ended(resources: struct_rusage, own_peak: int) -> ProcessUsage:
    """The use of a process that has ended, and of the descendants that it waited for.

    Args:
        resources: What `os.wait4` returned for it.
        own_peak: Peak memory of our own process when it started the other one, in KiB.
    """
    # Linux also counts the memory of our own process, which the new one shared until it was the program. Only a larger
    # peak is its own.
    peak = resources.ru_maxrss
    memory = peak * 1024 if peak > own_peak else None
    return ProcessUsage(memory=memory, cpu_time=resources.ru_utime + resources.ru_stime)


class ProcessMonitor:
    """Measures a running process again and again, and reports the first limit that it exceeds.

    Args:
        pid: ID of the process.
        limits: Its limits.
        exceeded: Called once, in the event loop.
        wrappers: As for `measure_processes`.

    Attributes:
        peak: The largest values measured.
        exceeded: The limit that was exceeded; None so far.
    """

    def __init__(
        self, pid: int, limits: ProcessLimits, exceeded: Callable[[], None], *, wrappers: int = 0
    ) -> None:
        self._pid = pid
        self._limits = limits
        self._tell = exceeded
        self._wrappers = wrappers
        self._timer: asyncio.TimerHandle | None = None
        self._before = UNKNOWN_USAGE
        self._stopped = True
        self.peak = UNKNOWN_USAGE
        self.exceeded: ExceededLimit | None = None

    def start(self, *, anew: bool = False) -> None:
        """Measure from now on.

        Args:
            anew: Whether a process that ran before is measured for a new call: what it used before does not count.
        """
        self.peak = UNKNOWN_USAGE
        self._before = _begin(self._pid) if anew else UNKNOWN_USAGE
        self.exceeded = None
        self._stopped = False
        if self._limits.written:
            self._look()
        else:
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def stop(self, *, runs: bool) -> ProcessUsage:
        """Measure a last time, and return the largest values that were measured.

        Args:
            runs: Whether the process still runs: the ID of one that has ended may belong to another one.
        """
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if runs:
            self.peak = self.peak.joined(self._measured())
            # The peak of the memory also tells what was freed again since the last look.
            self.exceeded = self.exceeded or exceeded_limit(self.peak, self._limits)
        return self.peak

    def so_far(self) -> dict[str, Any]:
        """What the process has used so far, by name as in `Usage`. After `stop`, the result of its last measurement."""
        return (self.peak if self._stopped else self.peak.joined(self._measured())).values()

    def _measured(self) -> ProcessUsage:
        return measure_processes(self._pid, wrappers=self._wrappers).since(self._before)

    def _look(self) -> None:
        used = self._measured()
        self.peak = self.peak.joined(used)
        self.exceeded = exceeded_limit(used, self._limits)
        if self.exceeded is None:
            pause = LOOK if self._limits.written else _IDLE_LOOK
            self._timer = asyncio.get_running_loop().call_later(pause, self._look)
        else:
            self._timer = None
            self._tell()


def _begin(leader: int) -> ProcessUsage:
    pids = [leader, *_descendants(leader)]
    for pid in pids:
        # The peak of the memory starts anew (proc(5), clear_refs).
        with suppress(OSError), open(f"/proc/{pid}/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")
    return ProcessUsage(cpu_time=_total(map(_cpu_time, pids)), written_bytes=_total(map(written_by, pids)))


def _peak_memory(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # it has ended, or the system tells nothing
    return None


def _descendants(leader: int) -> Iterator[int]:
    left = children_of(leader)
    while left:
        pid = left.pop(0)
        yield pid
        left += children_of(pid)


def _cpu_time(pid: int) -> float | None:
    """Seconds of processor time of a process and the descendants that it waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, ValueError):
        return None


def written_by(pid: int) -> int | None:
    """Bytes that a process and the descendants that it waited for have written."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            for line in file:
                if line.startswith(b"wchar:"):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass  # it has ended, or the system tells nothing
    return None


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _total(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _larger(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def _less(value: Any, before: Any) -> Any:
    return value if value is None or before is None else max(value - before, 0)


def _whole_size(size: float) -> str:
    # Rounded up, so that it is never shown as equal to the limit.
    return format_size(-(-int(size) >> 20) << 20)
