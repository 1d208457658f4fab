"""The symbols of source files: Python by `ast`, other languages by tree-sitter where its parsers are installed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from workspace_tools.folder import Refusal

PARSERS = {
    ".c": ("tree_sitter_c", "language"),
    ".cc": ("tree_sitter_cpp", "language"),
    ".cpp": ("tree_sitter_cpp", "language"),
    ".cs": ("tree_sitter_c_sharp", "language"),
    ".go": ("tree_sitter_go", "language"),
    ".h": ("tree_sitter_c", "language"),
    ".hpp": ("tree_sitter_cpp", "language"),
    ".java": ("tree_sitter_java", "language"),
    ".js": ("tree_sitter_javascript", "language"),
    ".jsx": ("tree_sitter_javascript", "language"),
    ".mjs": ("tree_sitter_javascript", "language"),
    ".php": ("tree_sitter_php", "language_php"),
    ".rb": ("tree_sitter_ruby", "language"),
    ".rs": ("tree_sitter_rust", "language"),
    ".scala": ("tree_sitter_scala", "language"),
    ".ts": ("tree_sitter_typescript", "language_typescript"),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
}
"""Suffix -> module of the parser, and its function that returns the language."""

_PYTHON = (".py", ".pyi")
_SYMBOL = re.compile(
    r"(class|constructor|enum|function|impl|interface|method|mod|module|namespace|object|record|struct|trait|type_alias)"
    r"(_(declaration|definition|item|specifier|signature))?"
)
_NAMES = ("name", "declarator", "type")
"""Fields of a syntax node that lead to its name."""


@dataclass
class Symbol:
    """A class, function or other definition.

    Attributes:
        name: Its name, with those that contain it: `Cart.total`.
        kind: `class`, `function`, `method`, or what the parser calls it.
        line: Its first line, from 1.
        end_line: Its last line.
        signature: Its first line of code, without the body.
    """

    name: str
    kind: str
    line: int
    end_line: int
    signature: str


def outline(path: str, text: str) -> list[Symbol]:
    """The symbols of a file, in the order of their lines.

    Raises:
        Refusal: The file has a syntax error, or its language has no parser.
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _PYTHON:
        return [*_python(path, text)]
    if suffix not in PARSERS:
        known = " ".join(sorted((*_PYTHON, *PARSERS)))
        raise Refusal("unsupported_language", f"`{path}` has no outline; files that may have one: {known}")
    root = _tree(suffix, path, text.encode())
    return [*_symbols(root, "", text.splitlines())]


def _python(path: str, text: str) -> Iterator[Symbol]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Refusal("syntax_error", f"`{path}` line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refusal("syntax_error", f"`{path}` cannot be parsed: {error}") from None
    yield from _definitions(tree.body, "", "function")


def _definitions(body: list[ast.stmt], outer: str, kind: str) -> Iterator[Symbol]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outer}{node.name}"
            yield Symbol(name, kind, node.lineno, node.end_lineno or node.lineno, _signature(node))
        elif isinstance(node, ast.ClassDef):
            name = f"{outer}{node.name}"
            bases = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
            signature = f"class {node.name}({bases})" if bases else f"class {node.name}"
            yield Symbol(name, "class", node.lineno, node.end_lineno or node.lineno, signature)
            yield from _definitions(node.body, f"{name}.", "method")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            # As in `if TYPE_CHECKING:` and `try: import ...`.
            yield from _definitions(node.body, outer, kind)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{start} {node.name}({ast.unparse(node.args)}){returns}"


def _tree(suffix: str, path: str, content: bytes) -> Any:
    module, function = PARSERS[suffix]
    try:
        tree_sitter, grammar = import_module("tree_sitter"), import_module(module)
    except ImportError:
        packages = f"tree-sitter {module.replace('_', '-')}"
        message = f"the parser for `{path}` is not installed: pip install {packages}"
        raise Refusal("missing_parser", message) from None
    language = tree_sitter.Language(getattr(grammar, function)())
    return tree_sitter.Parser(language).parse(content).root_node


def _symbols(root: Any, outer: str, lines: list[str]) -> Iterator[Symbol]:
    # A stack, not recursion: generated code can be nested deeper than Python's stack.
    todo = [(child, outer) for child in reversed(root.named_children)]
    while todo:
        node, outer = todo.pop()
        found = _SYMBOL.fullmatch(node.type)
        name = _name(node) if found else ""
        if found and name:
            line = node.start_point[0]
            signature = lines[line].strip().removesuffix("{").rstrip() if line < len(lines) else ""
            yield Symbol(f"{outer}{name}", found[1], line + 1, node.end_point[0] + 1, signature[:300])
            outer = f"{outer}{name}."
        todo += [(child, outer) for child in reversed(node.named_children)]


def _name(node: Any) -> str:
    for _ in range(8):
        inner = next((found for field in _NAMES if (found := node.child_by_field_name(field))), None)
        if inner is None:
            return "" if node.named_child_count else node.text.decode(errors="replace")
        node = inner
    return ""
