"""The syntax trees of the package, for tests of its source: parsed once in a process, which takes 2 s.

`distribution.py` gives the files of `distribution.SOURCE`, which import this module, to one worker.
"""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import toolcrib

PACKAGE = Path(toolcrib.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """Module, as its path in the package -> its tree."""
    found = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    gc.freeze()  # a million objects that stay: collections of garbage would visit them again and again
    return found


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Module -> all nodes of its tree, each before what is in it."""
    found = {module: nodes_in(tree) for module, tree in trees().items()}
    gc.freeze()
    return found


def nodes_in(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, in two thirds of the time."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                found.append(value)
            elif type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
    return found
