"""The Python of all pages passes strict type checkers; `make lint` runs the same with the cache that it has."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.exhaustive
def test_mypy_and_pyright_find_nothing_wrong_in_the_python_of_pages(root):
    done = subprocess.run(
        [sys.executable, root / "tests" / "typing" / "run.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
