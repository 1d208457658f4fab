"""The project files that a command or a hook names, and what these import: a change of one of them is a change of what runs.

Followed are files within the workspace: those named on a command line, in its environment, by `python -m`; the manifests
that runners such as `npm` and `uv` read; and, of Python and JavaScript, what they import from the workspace. Databases and
logs change with every run and are named, not read.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

MOST_FILES: Final = 500
"""So many files are read for one command."""

_LARGEST: Final = 64 << 20
"""Bytes of a file that are read; of a larger one the size counts, too."""

_DATA: Final = frozenset(
    (".csv", ".db", ".duckdb", ".log", ".parquet", ".pid", ".sock", ".sqlite", ".sqlite3", ".tsv")
)
_SQLITE: Final = b"SQLite format 3\0"

_MANIFESTS: Final = (
    "package.json",
    "pyproject.toml",
    "deno.json",
    "deno.jsonc",
    "Makefile",
    "makefile",
    "justfile",
    "Justfile",
    "Taskfile.yml",
    "Cargo.toml",
    "go.mod",
)
_RUNNERS: Final = frozenset(
    [
        "bun",
        "bunx",
        "cargo",
        "deno",
        "go",
        "hatch",
        "just",
        "make",
        "npm",
        "npx",
        "pdm",
        "pnpm",
        "poetry",
        "rye",
        "task",
        "tsx",
        "uv",
        "uvx",
        "yarn",
    ]
)
_ENTRIES: Final = (
    "__main__.py",
    "__init__.py",
    "index.js",
    "index.mjs",
    "index.cjs",
    "index.ts",
    *_MANIFESTS,
)
_SCRIPTS: Final = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_RELATIVE_IMPORT: Final = re.compile(
    r"""(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*["'](\.{1,2}/[^"']+)["']"""
)


class Followed(NamedTuple):
    """The files of a workspace that something runs.

    Attributes:
        digests: Path relative to the workspace, with `/` -> SHA-256 of the content, in hex; sorted.
        left: Paths of data files that are named and not followed, sorted.
        complete: Whether all of them were read; not where there are more than `MOST_FILES`.
    """

    digests: Mapping[str, str] = {}
    left: tuple[str, ...] = ()
    complete: bool = True


def files_of_command(argv: Iterable[str], environment: Mapping[str, str], folder: str, root: str) -> Followed:
    """The files that a command runs.

    Args:
        argv: The program and its arguments, as far as their variables are known.
        environment: What is set for it; paths in it (`PYTHONPATH`) lead to files as well.
        folder: Its working directory, absolute.
        root: The workspace, absolute, with links resolved.
    """
    words = [*argv]
    following = _Following(root, [folder, *_paths_in(environment.get("PYTHONPATH", ""), folder)])
    for word in (*words, *environment.values()):
        for path in _paths_in(word, folder):
            following.add_named(path)
    for flag, module in pairwise(words):
        if flag == "-m":
            following.add_module(module)
    if words and Path(words[0]).name.lower().removesuffix(".exe").removesuffix(".cmd") in _RUNNERS:
        for name in _MANIFESTS:
            following.add(os.path.join(folder, name))
    return following.ended()


def files_of_module(name: str, root: str) -> Followed:
    """The files of a Python module that lies in a workspace; none where it lies elsewhere.

    Args:
        name: `package.module`.
        root: The workspace, absolute, with links resolved.
    """
    following = _Following(root, [root])
    following.add_module(name)
    return following.ended()


def _paths_in(word: str, folder: str) -> Iterator[str]:
    """What of a word may be a path: all of it, what stands behind `=`, and the parts of a search path."""
    _name, sign, value = word.partition("=")
    for text in (word, value if sign else ""):
        for part in (text, *(text.split(os.pathsep) if os.pathsep in text else ())):
            if part and "\0" not in part and "\n" not in part:
                yield os.path.join(folder, part.removeprefix("file://"))


class _Following:
    """Reads files, and what they import, as far as they lie in a workspace."""

    def __init__(self, root: str, search_path: Iterable[str]) -> None:
        self._root = root
        self._search_path = [*search_path]
        self._digests: dict[str, str] = {}
        self._left: set[str] = set()
        self._complete = True

    def ended(self) -> Followed:
        """What was read."""
        digests = {name: self._digests[name] for name in sorted(self._digests)}
        return Followed(digests, tuple(sorted(self._left)), self._complete)

    def add_named(self, path: str) -> None:
        """A file or folder that is named; of a folder what is run when it is."""
        if os.path.isdir(path) and self._inside(path) is not None:
            for name in _ENTRIES:
                self.add(os.path.join(path, name))
        else:
            self.add(path)

    def add_module(self, name: str) -> None:
        """A Python module, as it is found on the search path, with the packages around it."""
        for folder in self._search_path:
            self._add_module_in(folder, name)

    def _add_module_in(self, folder: str, name: str) -> None:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return
        for count in range(1, len(parts) + 1):
            place = os.path.join(folder, *parts[:count])
            self.add(f"{place}.py")
            self.add(os.path.join(place, "__init__.py"))
        self.add(os.path.join(folder, *parts, "__main__.py"))

    def add(self, path: str) -> None:
        """A file, if it is there and lies in the workspace, with what it imports."""
        name = self._inside(path)
        if name is None or name in self._digests or name in self._left or not os.path.isfile(path):
            return
        if len(self._digests) >= MOST_FILES:
            self._complete = False
            return
        try:
            with open(path, "rb") as file:
                content = file.read(_LARGEST)
                size = os.fstat(file.fileno()).st_size
        except OSError:
            self._digests[name] = "unreadable"
            return
        if Path(path).suffix.lower() in _DATA or content.startswith(_SQLITE):
            self._left.add(name)
            return
        digest = hashlib.sha256(content)
        digest.update(str(size).encode() if size > _LARGEST else b"")
        self._digests[name] = digest.hexdigest()
        self._add_imports(os.path.realpath(path), content)

    def _add_imports(self, path: str, content: bytes) -> None:
        if path.endswith((".py", ".pyw")):
            self._add_python(path, content)
        elif path.endswith(_SCRIPTS):
            for match in _RELATIVE_IMPORT.finditer(content.decode("utf-8", "replace")):
                place = os.path.normpath(os.path.join(os.path.dirname(path), match[1]))
                bare = os.path.splitext(place)[0]
                for each in (place, *(f"{start}{end}" for start in (place, bare) for end in _SCRIPTS)):
                    self.add(each)
                self.add_named(place)

    def _add_python(self, path: str, content: bytes) -> None:
        folder = os.path.dirname(path)
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # it does not run either
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._add_imported([folder, *self._search_path], alias.name)
            elif isinstance(node, ast.ImportFrom):
                within = [os.path.normpath(os.path.join(folder, *[".."] * (node.level - 1)))]
                folders = within if node.level else [folder, *self._search_path]
                lead = [node.module] if node.module else []
                # What stands behind `import` may be a module, too.
                names = [".".join([*lead, alias.name]) for alias in node.names]
                for name in (*lead, *names):
                    self._add_imported(folders, name)

    def _add_imported(self, folders: Iterable[str], name: str) -> None:
        for folder in folders:
            self._add_module_in(folder, name)

    def _inside(self, path: str) -> str | None:
        """The path relative to the workspace; None where it leads outside."""
        real = os.path.realpath(path)
        if real == self._root:
            return "."
        lead = self._root.rstrip(os.sep) + os.sep
        return real.removeprefix(lead).replace(os.sep, "/") if real.startswith(lead) else None
