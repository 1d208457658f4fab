"""Files that the command line writes: wholly, or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 text under its name at once, so that nobody ever reads half of it; folders are made.

    Raises:
        OSError: It can't be written; what was there before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Hidden, so that whoever scans the folder meanwhile passes it over.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
