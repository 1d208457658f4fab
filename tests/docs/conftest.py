"""An environment that holds nothing but the built wheel and what it depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import distribution, distributions
from pathlib import Path
from threading import Event
from time import time_ns

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forking import forked_command
from sampling import THOROUGH
from toolcrib.loading.fingerprints import RACY


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
    return python_with(wheel, tmp_path_factory.mktemp("clean") / "venv")


@pytest.fixture(scope="session")
def python_with_mcp(wheel, tmp_path_factory) -> Path:
    """The same with the extra `mcp`, for the pages that begin by installing it: it takes long."""
    return python_with(wheel, tmp_path_factory.mktemp("mcp") / "venv", extra="mcp")


def python_with(wheel: Path, folder: Path, extra: str = "") -> Path:
    """The interpreter of a fresh virtual environment with the wheel in it, and what the wheel and an extra require.

    pip installs all of it where everything is tested. Elsewhere it installs the wheel, and the requirements are links to
    what this environment has: pip would take 15 s of processor time for the same.
    """
    python = folder / "bin" / "python"
    if THOROUGH:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip(python, "install", f"{wheel}[{extra}]" if extra else str(wheel))
        return python
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in {"pip", *required("toolcrib", extra)}:
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution(name).locate_file(top))
    (folder / "bin" / "pip").write_text(
        '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n', encoding="utf-8"
    )
    (folder / "bin" / "pip").chmod(0o755)
    pip(python, "install", "--no-deps", "--no-index", str(wheel))
    return python


def required(name: str, extra: str = "") -> set[str]:
    """The distributions that one requires, and those that they require, without itself."""
    found: set[str] = set()
    waiting = [Requirement(f"{name}[{extra}]" if extra else name)]
    while waiting:
        above = waiting.pop()
        for text in distribution(above.name).requires or ():
            each = Requirement(text)
            extras = above.extras or {""}
            if each.marker is not None and not any(
                each.marker.evaluate({"extra": extra}) for extra in extras
            ):
                continue
            if canonicalize_name(each.name) not in found or each.extras:
                found.add(canonicalize_name(each.name))
                waiting.append(each)
    return found


@pytest.fixture(scope="session")
def command_of(tmp_path_factory):
    """Gives the folder of the command `toolcrib` of an environment, which need not import anything (`forking.py`)."""
    with ExitStack() as stack:
        started: dict[Path, Path] = {}

        def command(python: Path) -> Path:
            if THOROUGH or not hasattr(os, "pidfd_open"):
                return python.parent
            if python not in started:
                started[python] = stack.enter_context(
                    forked_command(python, tmp_path_factory.mktemp("forking"))
                )
            return started[python]

        yield command


@pytest.fixture
def page_environment(request, root, tmp_path, command_of):
    """The variables of a newcomer's shell; what a page installs is removed after it."""
    page = (root / request.getfixturevalue("name")).read_text(encoding="utf-8")
    wants_mcp = "$ pip install 'toolcrib[mcp]'" in page
    python = request.getfixturevalue("python_with_mcp" if wants_mcp else "clean_python")
    before = installed(python)
    if "TOOLCRIB_CACHE_DIR" in page:
        # A process that imports the package within two seconds of its installation writes no index, as the process
        # that is forked may have done. So these pages start their own, once the package is old enough.
        commands = []
        package = next(python.parent.parent.glob("lib/*/site-packages/toolcrib"))
        newest = max(path.stat().st_ctime_ns for path in package.rglob("*.py"))
        Event().wait(max(0, newest + RACY - time_ns()) / 1e9)
    else:
        commands = [str(command_of(python))]
    yield {
        "PATH": os.pathsep.join([*commands, str(python.parent), os.environ["PATH"]]),
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
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return {one.name for one in distributions(path=[str(packages)])}
