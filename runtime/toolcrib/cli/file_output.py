"""Texts that the command line writes: wholly, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from toolcrib.core.text import escape_terminal
from toolcrib.scenarios.pack_builder import save


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 text under its name at once, so that nobody ever reads half of it; folders are made.

    Raises:
        OSError: It can't be written; what was there before is still there.
    """
    save(text.encode("utf-8"), path)


def write_new(contents: Mapping[Path, str | bytes], *, force: bool) -> set[Path]:
    """Write files as `write_whole` does; what is there already is left alone, unless forced. Gives what was written.

    Raises:
        click.ClickException: One can't be written.
    """
    written = set()
    for path, content in contents.items():
        if os.path.lexists(path) and not force:
            continue
        try:
            save(content.encode("utf-8") if isinstance(content, str) else content, path)
        except OSError as error:
            message = f"{path} can't be written: {error.strerror}"
            raise click.ClickException(escape_terminal(message)) from error
        written.add(path)
    return written
