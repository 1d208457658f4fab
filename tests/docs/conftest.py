"""An environment that holds nothing but the built wheel and what it depends on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from contextlib import ExitStack
from importlib.metadata import distribution, distributions
from pathlib import Path
from threading import Event
from time import time_ns

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forking import forked_command
from sampling import thorough
from toolcrib.loading.fingerprints import RACY

PRESENT = ("opentelemetry-sdk", "pytest")
"""What else pages install: in a sample, links to what this environment has."""

EXTRAS = re.compile(r"^\$ pip install 'toolcrib\[([a-z0-9,]+)\]'$", re.MULTILINE)
"""What a page installs first is there before it: it takes long."""


FRAMEWORKS = {"inspect", "langchain", "openai-agents", "pydantic-ai"}
"""The extras of the pages that `make frameworks` runs."""


@pytest.fixture(scope="session")
def wheel(root, tmp_path_factory) -> Path:
    """The wheel, built from the working tree; in an environment of its own where everything is tested."""
    folder = tmp_path_factory.mktemp("wheel")
    if thorough():
        pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(root))
    else:
        run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(folder),
            cwd=root,
        )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def python_with(wheel, tmp_path_factory):
    """Gives the interpreter of a virtual environment with the wheel and what it and some extras (`"mcp"`) require.

    pip installs all of it where everything is tested. Elsewhere it installs the wheel, once, and the requirements are
    links to what this environment has: pip would take 15 s of processor time for the same.
    """
    made: dict[str, Path] = {}

    def python(extras: str = "") -> Path:
        if extras not in made:
            folder = tmp_path_factory.mktemp("environment") / "venv"
            if thorough():
                subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
                pip(folder / "bin" / "python", "install", f"{wheel}[{extras}]" if extras else str(wheel))
            else:
                names = {"pip", *required(f"toolcrib[{extras}]" if extras else "toolcrib")}
                link(folder, names.union(PRESENT, *map(required, PRESENT)))
                if extras:
                    copy(python().parents[1], folder)
                else:
                    pip(folder / "bin" / "python", "install", "--no-deps", "--no-index", str(wheel))
            made[extras] = folder / "bin" / "python"
        return made[extras]

    return python


PIP = """#!/bin/sh
here="$(dirname "$0")"
case "$1 $2" in
  "install toolcrib["* | "install opentelemetry-sdk" | "install pytest") exit 0 ;;
  "install ./"*)
    cd "$2" || exit
    export PYTHONPATH="$here/../backend"
    said="$("$here/python" -m hatchling build --target wheel --directory built 2>&1)" || { echo "$said"; exit 1; }
    "$here/python" -m zipfile --extract built/*.whl "PACKAGES" && rm -r built
    exit ;;
esac
exec "$here/python" -m pip "$@"
"""
"""Extras and `PRESENT` are there already. Packages of pages are built with the backend of this environment, and unpacked
where pip would put them: pip takes five times as long."""


def link(folder: Path, names: set[str]) -> None:
    """A virtual environment, where distributions of this one are links."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    backend = folder / "backend"
    backend.mkdir()
    for place, linked in ((packages, names), (backend, {"hatchling", *required("hatchling")})):
        for name in linked:
            for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
                if not (place / top).exists():  # the distributions of `google` share a folder
                    (place / top).symlink_to(distribution(name).locate_file(top))
    (folder / "bin" / "pip").write_text(PIP.replace("PACKAGES", str(packages)), encoding="utf-8")
    (folder / "bin" / "pip").chmod(0o755)


def copy(source: Path, folder: Path) -> None:
    """Install toolcrib as it is in another environment."""
    (packages,) = source.glob("lib/python*/site-packages")
    for path in packages.glob("toolcrib*"):
        shutil.copytree(path, folder / path.relative_to(source))
    script = (source / "bin" / "toolcrib").read_text(encoding="utf-8")
    (folder / "bin" / "toolcrib").write_text(script.replace(str(source), str(folder)), encoding="utf-8")
    (folder / "bin" / "toolcrib").chmod(0o755)


def required(requirement: str) -> set[str]:
    """The distributions that one requires, and those that they require, without itself."""
    found: set[str] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        above = waiting.pop()
        assert above.extras <= {*distribution(above.name).metadata.get_all("Provides-Extra", ())}, above
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
    """Gives a folder with the commands of an environment, which need not import anything (`forking.py`)."""
    with ExitStack() as stack:
        started: dict[Path, Path] = {}

        def command(python: Path) -> Path:
            if thorough() or not hasattr(os, "pidfd_open"):
                return python.parent
            if python not in started:
                started[python] = stack.enter_context(
                    forked_command(python, tmp_path_factory.mktemp("forking"))
                )
            return started[python]

        yield command


@pytest.fixture
def page_environment(request, root, tmp_path, python_with, command_of):
    """The variables of a newcomer's shell; what a page installs is removed after it."""
    page = (root / request.getfixturevalue("name")).read_text(encoding="utf-8")
    wanted = EXTRAS.search(page)
    python = python_with((wanted[1] if thorough() else of_all_pages(root)) if wanted else "")
    before = installed(python)
    if "$ TOOLCRIB_CACHE_DIR=" in page:
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
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    for added in [each for each in distributions(path=[str(packages)]) if each.name not in before]:
        files = [Path(added.locate_file(file)) for file in added.files or ()]
        for file in files:
            file.unlink(missing_ok=True)
        for folder in {file.parent for file in files if file.parent.suffix == ".dist-info"}:
            shutil.rmtree(folder)  # without metadata, nothing can list the distributions


def of_all_pages(root: Path) -> str:
    """The extras of all pages: a sample makes one environment with all of them, which takes less long than one each."""
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    named = [found[1] for page in pages if (found := EXTRAS.search(page.read_text(encoding="utf-8")))]
    return ",".join(sorted({extra for names in named for extra in names.split(",")} - FRAMEWORKS))


def pip(python: Path | str, *arguments: str) -> None:
    run(str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def installed(python: Path) -> set[str]:
    """The names of the distributions of an environment."""
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return {one.name for one in distributions(path=[str(packages)])}
