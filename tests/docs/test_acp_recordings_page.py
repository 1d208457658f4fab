"""The page on recordings of ACP has the codes that the code has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from toolcrib.serve import acp

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "acp-recordings.md").read_text(encoding="utf-8")
FOLDER = Path(acp.__file__).parent


def first_cells(title: str) -> list[str]:
    (rest,) = PAGE.split(f"## {title}\n")[1:]
    lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("| `")]
    return [name for line in lines for name in re.findall("`([^`]+)`", line.split(" | ")[0])]


def test_violations():
    tree = [
        node
        for name in ("connection_timeline.py", "session_timeline.py")
        for node in ast.walk(ast.parse((FOLDER / name).read_text(encoding="utf-8")))
    ]
    codes = {
        node.args[0].value
        for node in tree
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"violation", "_violation"}
        and isinstance(node.args[0], ast.Constant)
    }
    listed = first_cells("Violations")
    assert len(listed) == len({*listed})
    assert {*listed} == codes | {"unknown_kind", "unknown_status"}


def test_findings():
    source = (FOLDER / "diagnosis.py").read_text(encoding="utf-8")
    listed = first_cells("Findings")
    assert len(listed) == len({*listed})
    tree = ast.parse(source)
    made = {
        node.value
        for scope in ast.walk(tree)
        if isinstance(scope, ast.FunctionDef)
        for call in ast.walk(scope)
        if isinstance(call, ast.Call | ast.Assign)
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in listed
    }
    assert made == {*listed}
