"""Which private members of other packages are used: each has one place, which checks that it exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import source_trees

PRIVATE = {
    # Closes the connection where it is missing, and says so.
    ("http/connection.py", "_h11_state"),
    # `missing_connection` looks for it before clients are served.
    ("serve/mcp/sdk_connection.py", "_connection"),
    # Only a shortcut, for the loops that have them.
    ("core/virtual_clock.py", "_ready"),
    ("core/virtual_clock.py", "_scheduled"),
    # The documented way to end a process immediately, and a name that only annotations use.
    ("serve/http_common/lifecycle.py", "_exit"),
    ("http/response_body.py", "_Decompress"),
    # Parts of CPython, with other modules where they are missing; the last one is read by type checkers only.
    ("loading/cache/header.py", "_json"),
    ("loading/cache/store.py", "_blake2"),
    ("cli/entry.py", "_typeshed"),
}
"""(file, member or module): all there are."""

NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_field_defaults", "_make"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


def own_names(nodes: list[ast.AST]) -> set[str]:
    """The names that a module of toolcrib itself defines, on whatever object."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # `__slots__`
    return found


def private_members(nodes: list[ast.AST], own: set[str], mine: set[str]) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and not (node.attr in own or node.attr in mine)
        ):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("toolcrib"):
            yield from filter(is_private, (*node.module.split("."), *(alias.name for alias in node.names)))
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split(".") if is_private(part))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                yield name.value


def test_private_members_of_other_packages_are_those_that_are_listed():
    nodes = source_trees.nodes()
    names = {file: own_names(each) for file, each in nodes.items()}
    # A name of ours is known by where it is stored; `_connection` is both ours and the SDK's.
    own = set().union(*names.values()) - {member for _file, member in PRIVATE}
    found = {(file, name) for file, each in nodes.items() for name in private_members(each, own, names[file])}
    assert found == PRIVATE


def test_nothing_is_stored_on_exceptions_and_no_log_record_is_known_by_its_file():
    for file, each in source_trees.nodes().items():
        for node in each:
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"__dict__", "pathname"}, f"{file}:{node.lineno}"
