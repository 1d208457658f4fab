"""Copies of folders that a test changes; the originals may be read-only."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path


def writable_copy(source: Path, target: Path, *ignored: str) -> Path:
    """Copy a folder without the names that match a pattern, and give its owner the permission to write all of it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*ignored))
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target
