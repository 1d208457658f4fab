"""`toolcrib run --watch`: one round, and another whenever files change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import NoReturn

import click

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ToolcribError
from toolcrib.core.text import escape_terminal
from toolcrib.loading.fingerprints import FileFingerprints
from toolcrib.loading.reload import changes

SHOWN = 10
"""Changed files that are named."""


def keep_running(round_of: Callable[[], FileFingerprints | None]) -> NoReturn:
    """Run round after round, until Ctrl-C.

    Args:
        round_of: Runs everything, tells what came of it, and returns what it looked at.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        ToolcribError: The first round could not be set up. A later one that can't tells so and is not the last.
    """
    seen = round_of() or FileFingerprints({}, {}, {})
    # Its end closes what waits, wherever Ctrl-C came.
    with asyncio.Runner() as runner:
        coming = changes(lambda: seen, clock=RealClock())
        while True:
            click.echo("waiting for changes; Ctrl-C ends", err=True)
            try:
                paths = runner.run(_next(coming))
            except asyncio.CancelledError:  # of a Ctrl-C while `run` begins, which it forgets
                raise KeyboardInterrupt from None
            _tell_changes(paths)
            try:
                seen = round_of() or seen
            except ToolcribError as error:
                click.echo(escape_terminal(str(error)), err=True)


async def _next(coming: AsyncGenerator[list[str], None]) -> list[str]:
    # Not `anext` itself: a task that is cancelled before it begins must not touch the generator.
    return await anext(coming)


def _tell_changes(paths: Iterable[str]) -> None:
    names = list(dict.fromkeys(_near(path) for path in paths))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    click.echo(f"\nchanged: {escape_terminal(', '.join(names[:SHOWN]))}{more}", err=True)


def _near(path: str) -> str:
    """A path as one would write it here; what lies elsewhere is told whole."""
    real, here = Path(path).resolve(), Path.cwd()
    return str(real.relative_to(here)) if real.is_relative_to(here) else path
