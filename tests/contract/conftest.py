"""A third party's distribution, really installed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copies import writable_copy

SOURCES = Path(__file__).parent / "echo_distribution"


@pytest.fixture(scope="module")
def echo_installed(tmp_path_factory) -> Iterator[Path]:
    """The folder that pip installed the distribution `toolcrib-echo` into; it is on the path."""
    sources, target = tmp_path_factory.mktemp("echo") / "sources", tmp_path_factory.mktemp("echo") / "site"
    writable_copy(SOURCES, sources, "__pycache__")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    options = ["--no-index", "--no-deps", "--no-cache-dir", "--target", str(target)]
    done = subprocess.run(
        [*pip, *options, str(sources)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    sys.path.append(str(target))
    importlib.invalidate_caches()
    yield target
    sys.path.remove(str(target))
    sys.modules.pop("toolcrib_echo", None)
    importlib.invalidate_caches()
