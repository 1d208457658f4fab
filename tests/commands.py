"""How tests start `toolcrib` and Python programs.

Unless everything is run, `conftest.py` has them forked (`forking.py`) for the modules that import this one. What needs a process of
its own from the start, such as limits or signals that it inherits, names `sys.executable` itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

TOOLCRIB = [sys.executable, "-m", "toolcrib"]
PYTHON = [sys.executable]


def toolcrib_command(*words: str | Path) -> list[str]:
    return [*TOOLCRIB, *map(str, words)]


def python_command(*words: str | Path) -> list[str]:
    """`words` are a script or `-c` and code, with `-W error` or no option before them, and its arguments."""
    return [*PYTHON, *map(str, words)]
