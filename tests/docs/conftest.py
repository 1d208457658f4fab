"""An environment that holds nothing but the built wheel and what it depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wheel(root, tmp_path_factory) -> Path:
    """The wheel, built from the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(root))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def clean_python(wheel, tmp_path_factory) -> Path:
    """The interpreter of a fresh virtual environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip(python, "install", str(wheel))
    return python


@pytest.fixture(scope="session")
def python_with_mcp(wheel, tmp_path_factory) -> Path:
    """The same with the extra `mcp`, for the pages that begin by installing it: it takes long."""
    folder = tmp_path_factory.mktemp("mcp") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip(python, "install", f"{wheel}[mcp]")
    return python


@pytest.fixture
def page_environment(request, root, tmp_path):
    """The variables of a newcomer's shell; what a page installs is removed after it."""
    page = (root / request.getfixturevalue("name")).read_text(encoding="utf-8")
    wants_mcp = "$ pip install 'toolcrib[mcp]'" in page
    python = request.getfixturevalue("python_with_mcp" if wants_mcp else "clean_python")
    before = installed(python)
    yield {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "PIP_QUIET": "2",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **{
            key: value
            for key, value in os.environ.items()
            if key.startswith(("PIP_", "SSL_", "HTTPS_", "https_"))
        },
    }
    added = installed(python) - before
    if added:
        pip(python, "uninstall", "--yes", *sorted(added))


def pip(python: Path | str, *arguments: str) -> None:
    done = subprocess.run(
        [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def installed(python: Path) -> set[str]:
    """The names of the distributions of an environment."""
    script = "from importlib.metadata import distributions\nfor one in distributions(): print(one.name)"
    return set(subprocess.check_output([str(python), "-c", script], text=True).split())
