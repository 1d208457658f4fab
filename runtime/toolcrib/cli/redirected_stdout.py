"""stdout belongs to the output of a command: what the code of tools prints goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO, TypeAlias

Restored: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Returns a block in which stdout is that of the command again."""


@contextmanager
def duplicated_stdout() -> Iterator[TextIO]:
    """A stream to where stdout leads now, also while it is redirected; stdout itself if it is not a file."""
    try:
        descriptor = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        yield sys.stdout
        return
    with open(descriptor, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as out:
        yield out


@contextmanager
def redirected_stdout() -> Iterator[Restored]:
    """Send to stderr what is printed within the block, also by programs that tools start."""
    out, descriptor = sys.stdout, os.dup(1)

    def redirect() -> None:
        out.flush()
        sys.stdout = sys.stderr
        # `contextlib.redirect_stdout` does not reach C code and child processes.
        os.dup2(2, 1)

    def restore() -> None:
        sys.stderr.flush()
        os.dup2(descriptor, 1)
        sys.stdout = out

    @contextmanager
    def restored() -> Iterator[None]:
        restore()
        try:
            yield
        finally:
            redirect()

    redirect()
    try:
        yield restored
    finally:
        restore()
        os.close(descriptor)
