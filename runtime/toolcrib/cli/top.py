"""`toolcrib top`: the running calls and the rates of a served runtime, live."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import click

from toolcrib.cli.options import json_option
from toolcrib.cli.output import json_text, plural, table, terminal_width, truncate
from toolcrib.cli.stats import durations_of, failed_of, runtime_argument, selected, short_duration
from toolcrib.core.text import escape_terminal
from toolcrib.engine.statistics import Statistics, Totals
from toolcrib.serve.inspection import Inspection, ServedRuntime

_CALLS: Final = ("id", "tool", "stage", "elapsed", "attempt", "progress", "session", "caller", "user")
_TOOLS: Final = ("tool", "running", "calls/s", "calls", "failed", "p50", "p90", "p99")

# Control sequences of terminals (ECMA-48, and xterm for the second screen).
_SECOND_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_FIRST_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


class Snapshot(NamedTuple):
    """What a served runtime does at a moment.

    Attributes:
        served: The runtime.
        running: The running calls, the oldest first, each as `RunningCall.as_json` returns it.
        statistics: The finished calls.
    """

    served: ServedRuntime
    running: Sequence[Mapping[str, Any]]
    statistics: Statistics

    @classmethod
    async def taken(cls, inspection: Inspection) -> Snapshot:
        """Ask a served runtime."""
        return cls(inspection.served, await inspection.running(), await inspection.statistics())

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object."""
        return {
            "runtime": self.served.as_json(),
            "running": [*self.running],
            "statistics": self.statistics.as_json(),
        }


@click.command("top")
@runtime_argument
@click.option("--once", is_flag=True, help="Print one snapshot, as where the output is not a terminal.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Refresh this often.",
)
@json_option
def command(*, name: str | None, once: bool, interval: float, as_json: bool) -> None:
    """Show the running calls and the rates of a served runtime, live.

    `q` or Ctrl-C ends it. Calls that end without waiting, such as most mocks, are only counted. Rates are those since the
    last refresh; in a snapshot, those since counting began.

    RUNTIME is the process ID, the name or the folder of a server that you started with `toolcrib serve`. It may be left out
    if there is only one, or only one of the project that contains this folder.
    """
    asyncio.run(_run(name, interval, once=once or as_json or not sys.stdout.isatty(), as_json=as_json))


async def _run(name: str | None, interval: float, *, once: bool, as_json: bool) -> None:
    async with selected(name) as inspection:
        snapshot = await Snapshot.taken(inspection)
        if as_json:
            click.echo(json_text(snapshot.as_json()))
        elif once:
            for line in snapshot_lines(snapshot, None, terminal_width()):
                click.echo(line)
        else:
            with _screen() as ended:
                await _refresh(inspection, snapshot, interval, ended)


async def _refresh(inspection: Inspection, snapshot: Snapshot, interval: float, ended: asyncio.Event) -> None:
    before = None
    while not ended.is_set():
        # Measured each time, since windows are resized.
        columns, rows = shutil.get_terminal_size()
        lines = snapshot_lines(snapshot, before, columns)[: rows - 1]
        text = "".join(f"{line}{_CLEAR_LINE}\r\n" for line in lines)
        sys.stdout.write(f"{_HOME}{text}{_CLEAR_BELOW}")
        sys.stdout.flush()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), interval)
        before, snapshot = snapshot, await Snapshot.taken(inspection)


@contextmanager
def _screen() -> Iterator[asyncio.Event]:
    """Show the second screen of the terminal within the block, and set the event when the user types `q`."""
    ended = asyncio.Event()
    with _keys(ended):
        sys.stdout.write(_SECOND_SCREEN)
        try:
            yield ended
        finally:
            sys.stdout.write(_FIRST_SCREEN)
            sys.stdout.flush()


@contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Hear the keys of the terminal within the block, if there is one."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 -- not on Windows, where nothing can be inspected
    import tty  # noqa: PLC0415 -- as above

    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def hear() -> None:
        typed = os.read(keyboard, 64)
        if not typed or b"q" in typed.lower():  # nothing: the terminal was closed
            ended.set()

    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, hear)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def snapshot_lines(snapshot: Snapshot, before: Snapshot | None, width: int | None) -> list[str]:
    """The screen: a head, the running calls, and the tools with their rates, the busiest first.

    Args:
        snapshot: What is shown.
        before: An earlier snapshot, from which on rates count; None for the beginning of the statistics.
        width: Columns of the terminal; None for no limit.
    """
    served, running, statistics = snapshot
    since, counted = statistics.since, dict[str, int]()
    if before is not None and before.statistics.since == since:  # otherwise they were reset meanwhile
        since = before.statistics.until
        counted = {tool: totals.calls for tool, totals in before.statistics.tools.items()}
    seconds = max((statistics.until - since).total_seconds(), 1e-3)
    tools = statistics.tools
    rates = {tool: (totals.calls - counted.get(tool, 0)) / seconds for tool, totals in tools.items()}
    up = short_duration((statistics.until - served.started).total_seconds())
    totals = statistics.totals
    head = [
        f"{served}, {served.transport}, up {up}; {served.folder}",
        f"{len(running):,} running; {plural(totals.calls, 'call')}, {failed_of(totals):,} failed; "
        f"{_rate(sum(rates.values()))} calls/s; "
        + ", ".join(
            f"p{percent} {text}" for percent, text in zip((50, 99), durations_of(totals, 50, 99), strict=True)
        ),
    ]
    lines = [truncate(escape_terminal(line), width) for line in head]
    if running:
        lines += ["", *table([_CALLS, *map(_call_row, running)], width)]
    busy = {str(call["tool"]): 0 for call in running}
    for call in running:
        busy[str(call["tool"])] += 1
    names = sorted({*tools, *busy}, key=lambda tool: (-rates.get(tool, 0), -busy.get(tool, 0), tool))
    if names:
        rows = [_tool_row(tool, busy.get(tool, 0), rates.get(tool, 0), tools.get(tool)) for tool in names]
        lines += ["", *table([_TOOLS, *rows], width)]
    return lines


def _call_row(call: Mapping[str, Any]) -> tuple[str, ...]:
    progress = call["progress"]
    return (
        call["id"],
        call["tool"],
        call["stage"],
        short_duration(call["elapsed"]),
        str(call["usage"]["attempts"]),
        "" if progress is None else _progress(**progress),
        call["session"],
        call["caller"],
        call["user"],
    )


def _progress(progress: float, total: float | None = None, message: str = "") -> str:
    done = f"{progress / total:.0%}" if total else f"{progress:g}"
    return f"{done} {truncate(message, 30)}".rstrip()


def _tool_row(tool: str, running: int, rate: float, totals: Totals | None) -> tuple[str, ...]:
    if totals is None:
        return tool, str(running), "0", "0", "0", "-", "-", "-"
    counts = (f"{totals.calls:,}", f"{failed_of(totals):,}")
    return tool or "(no tool)", str(running), _rate(rate), *counts, *durations_of(totals, 50, 90, 99)


def _rate(calls: float) -> str:
    return f"{calls:,.0f}" if calls >= 100 else f"{calls:.3g}"
