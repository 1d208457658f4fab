"""Texts that the command line writes: wholly, or not at all."""

from __future__ import annotations

from pathlib import Path

from toolcrib.packing import save


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 text under its name at once, so that nobody ever reads half of it; folders are made.

    Raises:
        OSError: It can't be written; what was there before is still there.
    """
    save(text.encode("utf-8"), path)
