"""Check the types that users see with mypy and pyright: the public names, a project with a generated stub, and all pages.

In the files of `project`, each checker must find an error in every line with `# wrong`, and none in any other line. The
Python of the pages has none.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from docs.blocks import blocks_of  # type: ignore[import-not-found]  # noqa: E402 -- in tests

BUILD = ROOT / "build" / "typing"
BIN = Path(sys.executable).parent
MYPY, PYRIGHT, TOOLCRIB = (str(BIN / name) for name in ("mypy", "pyright", "toolcrib"))

Found = Mapping[str, Mapping[int, str]]
"""File -> line -> what a checker says about it."""


def main() -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(HERE / "project", BUILD)
    shutil.copy(HERE / "public_api.py", BUILD)
    subprocess.run([TOOLCRIB, "stubs", "--out", "shop_tools.py"], cwd=BUILD, check=True)
    strict = sorted(path.name for path in BUILD.glob("*.py"))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        # The packages of agent frameworks are installed only where `make frameworks` runs their pages.
        if not page.name.startswith("use-from-"):
            write_blocks(page)
    checkers: Mapping[str, Callable[[], Found]] = {
        "mypy": with_mypy,
        "pyright": partial(with_pyright, strict),
    }
    wrong = [line for name, check in checkers.items() for line in differences(name, check())]
    print("\n".join(wrong) or "mypy and pyright agree with tests/typing")
    return 1 if wrong else 0


def write_blocks(page: Path) -> None:
    """Write the Python of a page, each line with the number that it has there.

    A block has a name of its own, because many pages have a `main.py`, unless another block of the page imports it.
    """
    blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "python"]
    imported = {
        name for block in blocks for name in re.findall(r"^(?:from|import) (\w+)", block.text, re.MULTILINE)
    }
    prefix = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
    for block in blocks:
        path = Path(block.file)
        module = path.parent.name if path.stem == "__init__" else path.stem
        name = module if module in imported else f"{prefix}_{block.line}"
        target = BUILD / f"{name}.py"
        assert not target.exists(), f"{page}:{block.line}: another page has a module `{name}`"
        target.write_text("\n" * block.line + block.text, encoding="utf-8")


def differences(checker: str, found: Found) -> list[str]:
    """What a checker finds and should not, and the other way round."""
    told = []
    for file in sorted(BUILD.glob("*.py")):
        lines = file.read_text(encoding="utf-8").splitlines()
        expected = {number for number, line in enumerate(lines, 1) if re.search(r"  # wrong: ", line)}
        there = found.get(file.name, {})
        told += [
            f"{file.name}:{line}: {checker}: {text}" for line, text in there.items() if line not in expected
        ]
        told += [f"{file.name}:{line}: {checker} finds nothing wrong" for line in expected - there.keys()]
    return told


def with_mypy() -> Found:
    # The cache of `make lint` holds the package already.
    options = [
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        # Pages also show clients that are not installed here, and modules that a command of theirs writes.
        "--ignore-missing-imports",
        "--output",
        "json",
    ]
    files = sorted(path.name for path in BUILD.glob("*.py"))
    run = subprocess.run([MYPY, *options, *files], cwd=BUILD, capture_output=True, text=True, check=False)
    found: dict[str, dict[int, str]] = {}
    for line in run.stdout.splitlines():
        each = json.loads(line)
        if each["severity"] == "error":
            found.setdefault(Path(each["file"]).name, {})[each["line"]] = each["message"]
    if run.stderr or not found:
        raise SystemExit(f"mypy: {run.stdout}{run.stderr}")
    return found


def with_pyright(strict: Sequence[str]) -> Found:
    settings = {
        "strict": strict,
        "reportUnusedExpression": False,
        "reportUnusedCoroutine": False,
        "reportMissingImports": False,
    }
    (BUILD / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [PYRIGHT, "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    try:
        report = json.loads(run.stdout)
    except ValueError:
        raise SystemExit(f"pyright: {run.stdout}{run.stderr}") from None
    found: dict[str, dict[int, str]] = {}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            lines = found.setdefault(Path(each["file"]).name, {})
            lines[each["range"]["start"]["line"] + 1] = each["message"]
    return found


if __name__ == "__main__":
    sys.exit(main())
