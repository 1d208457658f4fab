"""Run agent frameworks with toolcrib's adapters, and readers of its exports, each in its own virtual environment. `make frameworks`.

In each environment, the tests are run; for a framework also its how-to, and the types of its adapter are checked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
BUILD = PROJECT / "build" / "frameworks"
TESTS = HERE / "framework_tests"
PYTEST = "pytest==9.2.0"


class Framework(NamedTuple):
    """An agent framework, or programs that read an export.

    Attributes:
        name: Name of the environment; for a framework, the extra of toolcrib.
        pins: What is installed, by name and version.
        module: Its adapter in `toolcrib.frameworks`, and the end of the name of its tests.
        use: Code whose types must be right; empty for programs without an adapter.
    """

    name: str
    pins: tuple[str, ...]
    module: str
    use: str = ""

    @property
    def extras(self) -> str:
        """The extras of toolcrib that are installed."""
        return f"{self.name},mcp,typed" if self.use else "mcp,typed"

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return BUILD / self.name / "bin" / "python"


FRAMEWORKS = (
    Framework(
        "langchain",
        ("langchain==1.5.2", "langchain-core==1.8.3", "langgraph==1.2.24"),
        "langchain",
        "from langchain_core.tools import BaseTool\ntools: list[BaseTool] = to_langchain(runtime, 'get_*')",
    ),
    Framework(
        "pydantic-ai",
        ("pydantic-ai-slim==2.68.0",),
        "pydantic_ai",
        "from pydantic_ai import Agent\nAgent('test', toolsets=[to_pydantic_ai(runtime.session())])",
    ),
    Framework(
        "openai-agents",
        ("openai-agents==0.24.0",),
        "openai_agents",
        "from agents import Agent\nAgent('shop', tools=[*to_openai_agents(runtime, ask=['pay'])])",
    ),
    Framework(
        "inspect",
        ("inspect-ai==0.3.285",),
        "inspect_ai",
        "from inspect_ai.solver import use_tools\nuse_tools(to_inspect(runtime))",
    ),
    Framework("openapi-readers", ("fastmcp==4.2.3", "schemathesis==4.32.5"), "openapi_readers"),
)


class Failed(Exception):
    """A command failed; the message ends with its output."""


def run(name: str, command: Sequence[str | Path], **variables: str) -> str:
    """Run a command, and return its output.

    Raises:
        Failed: It failed.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TOOLCRIB"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=PROJECT,
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{name}: `{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def set_up(framework: Framework) -> None:
    """Make the environment of a framework, unless it was made from the same packages.

    Raises:
        Failed: It cannot be made.
    """
    folder = BUILD / framework.name
    stamp = folder / "made-from"
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [*project["dependencies"], *map(str, project["optional-dependencies"].items())]
    parts = (sys.version, str(folder), PYTEST, *framework.pins, *required)
    made_from = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return
    print(f"setting up {folder.relative_to(PROJECT)} (once)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    run(framework.name, [sys.executable, "-m", "venv", folder])
    toolcrib = f"{PROJECT}[{framework.extras}]"
    pip: list[str | Path] = [
        framework.python,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    run(framework.name, [*pip, *framework.pins, PYTEST, "--editable", toolcrib])
    stamp.write_text(made_from, encoding="utf-8")


def check(framework: Framework) -> str:
    """Test a framework, and return what pytest and mypy say at the end.

    Raises:
        Failed: A test failed, or a type is wrong.
    """
    set_up(framework)
    started = time.monotonic()
    test = TESTS / f"test_{framework.module}.py"
    tests = run(
        framework.name,
        [framework.python, "-m", "pytest", "-q", "-c", TESTS / "pytest.ini", test],
        PYTHONPATH=str(PROJECT / "tests"),
        TOOLCRIB_TRUST="all",
        TOOLCRIB_CACHE_DIR=str(BUILD / "cache"),
    )
    told = [tests.strip().splitlines()[-1]]
    if framework.use:
        told.append(check_types(framework).strip().splitlines()[-1])
    return f"{framework.name}: {'; '.join(told)} ({time.monotonic() - started:.0f} s)"


def check_types(framework: Framework) -> str:
    """Check the types of an adapter, and return what mypy says.

    Raises:
        Failed: A type is wrong.
    """
    code = (
        f"import toolcrib.frameworks.{framework.module}\nfrom toolcrib import Runtime\n"
        f"from toolcrib.frameworks import *\nruntime = Runtime.open()\n{framework.use}\n"
    )
    use = BUILD / f"use_{framework.module}.py"
    use.write_text(code, encoding="utf-8")
    mypy: list[str | Path] = [sys.executable, "-m", "mypy", "--python-executable", framework.python]
    return run(framework.name, [*mypy, "--cache-dir", BUILD / f"mypy-{framework.name}", use])


def main() -> int:
    """Check all frameworks, or those that are named. Returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [each.name for each in FRAMEWORKS]
    parser.add_argument("names", nargs="*", choices=[*known, []], help="only these frameworks")
    names = parser.parse_args().names or known
    failures = 0
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(check, each) for each in FRAMEWORKS if each.name in names]:
            try:
                print(future.result(), flush=True)
            except Failed as error:
                failures += 1
                print(error, file=sys.stderr, flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
