"""Find the project files that a command or a hook runs, so that a change of one requires a new decision.

Only files within the workspace are followed: files that the command line names (also in shell text and after
options) or the environment names, modules of `python -m` and `python -c`, the manifests of runners such as
`npm` and `uv` with their scripts, and the files that Python, JavaScript and shell files name or import.
Databases and logs change with every run, so they are listed but not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

MOST_FILES: Final = 500
"""Maximum number of files that are read for one command."""

_LARGEST: Final = 64 << 20
"""Maximum number of bytes that are read of a file. A larger file counts with its size, too."""

_DATA: Final = frozenset(
    (".csv", ".db", ".duckdb", ".log", ".parquet", ".pid", ".sock", ".sqlite", ".sqlite3", ".tsv")
)
_SQLITE: Final = b"SQLite format 3\0"

_MANIFESTS: Final = (
    "package.json",
    ".npmrc",
    ".yarnrc.yml",
    "bunfig.toml",
    "pyproject.toml",
    "uv.toml",
    ".python-version",
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
_RUNNER: Final = re.compile(
    "bunx?|cargo|deno|go|hatch|just|make|np[mx]|pdm|pnpm|poetry|rye|task|tsx|uvx?|yarn"
)
_INTERPRETER: Final = re.compile(
    r"(py|pythonw?|pypy|node|ruby|perl|php|lua|deno|bun|tsx|sh|bash|zsh|dash|ksh|fish)[0-9.]*(\.exe)?"
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
_SHELLS: Final = (".sh", ".bash", ".zsh", ".ksh", ".fish", ".command")
_RELATIVE_IMPORT: Final = re.compile(
    r"""(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*["'](\.{1,2}/[^"']+)["']"""
)
# The bounds keep the search linear for any file.
_IMPORT: Final = re.compile(
    r"\b(?:from\b([.\w \t]{0,300})\bimport|import)\b\s{0,99}(\([^)]{0,9999}\)|[^\n;(]{0,9999})"
)
_COMMENT: Final = re.compile(r"#[^\n]*")
_DEFAULT: Final = re.compile(r"\$\{[^{}]*?:-([^{}]*)\}")
_LEADING_VARIABLE: Final = re.compile(r"\$(?:\([^()]*\)|\{[^{}]*\}|\w+)/")
_WORDS: Final = re.compile(r"[\s;|&()<>`\"'=,]+")
_COMMANDS: Final = re.compile(r"[;|&\n]+")
_QUOTES: Final = re.compile(r"[\"'\\]")
_MODULE_FLAG: Final = re.compile(r"-[A-Za-z]*?m(.*)", re.DOTALL)
_CODE_FLAG: Final = re.compile(r"-[A-Za-z]*c")
_MODULES: Final = (".py", ".pyc", ".so", ".pyd")
_HASHED: Final = 1
"""The flag of bytecode that does not depend on the modification time of its source (PEP 552)."""


class FollowedFiles(NamedTuple):
    """The files of a workspace that a command or a hook runs.

    Attributes:
        digests: Path relative to the workspace, with `/` -> SHA-256 of the content, in hex. A path that ends
            with `/` is a folder that Python imports from; its digest covers the names of the modules in it.
            Sorted.
        left: Paths of data files that are named but not read, sorted.
        complete: Whether all files were read. False if there are more than `MOST_FILES`.
    """

    digests: Mapping[str, str] = {}
    left: tuple[str, ...] = ()
    complete: bool = True


def files_of_command(
    argv: Iterable[str], environment: Mapping[str, str], folder: str, root: str
) -> FollowedFiles:
    """Find the files that a command runs.

    Args:
        argv: The program and its arguments. A variable with a default counts as its default.
        environment: The environment variables that are set for it. Paths in them, as in `PYTHONPATH` and
            `PATH`, are followed, too.
        folder: Its working directory, absolute.
        root: Folder of the workspace, absolute, with links resolved.
    """
    following = _Following(root, folder)
    values = {name: _plain(text) for name, text in environment.items()}
    for part in filter(None, values.get("PYTHONPATH", "").split(os.pathsep)):
        following.add_python_path(os.path.join(folder, part))
    programs = [os.path.join(folder, part) for part in values.get("PATH", "").split(os.pathsep) if part]
    following.add_command([*argv], [folder, *filter(following.holds, programs)])
    for text in values.values():
        for piece in (piece for line in _lines([text]) for word in line for piece in _pieces(word)):
            following.add_named(piece, [folder])
    return following.ended()


def files_of_module(name: str, root: str, packs: Sequence[str] = ()) -> FollowedFiles:
    """Find the files of a Python module and of its imports. Empty for a module outside of the workspace.

    Args:
        name: `package.module`.
        root: Folder of the workspace, absolute, with links resolved.
        packs: Folders and zip archives that are searched first. An archive counts as a whole.
    """
    following = _Following(root, root)
    for archive in filter(None, map(_archive_of, packs)):
        following.add(archive, runs=True)
    following.add_module(name, [*packs, root])
    return following.ended(names=False)


def _archive_of(folder: str) -> str:
    """The archive that contains a folder; empty for a folder on disk."""
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder if os.path.isfile(folder) else ""


def _plain(text: str) -> str:
    """Replace variables by their defaults, and remove those that start a path: `$DIR/a.py` becomes `a.py`."""
    # A default may contain another variable: the innermost one is replaced first.
    while (known := _DEFAULT.sub(r"\1", text)) != text:
        text = known
    return _LEADING_VARIABLE.sub("", text)


def _lines(words: list[str]) -> Iterator[list[str]]:
    """Yield a command line and those within its words, as in `sh -c "cd sub; python server.py"`."""
    yield words
    for word in words:
        if len(word.split()) < 2:
            continue
        text = word.replace("\\\n", " ")
        for command in _COMMANDS.split(text):
            yield [part for part in _WORDS.split(command) if part]
        for line in dict.fromkeys([text, *text.splitlines()]):
            # `shlex` raises for an open quote, as in prose. The split above covers such text.
            with contextlib.suppress(ValueError):
                if _QUOTES.search(line):
                    yield from _lines(shlex.split(line))


def _pieces(word: str) -> Iterator[str]:
    """Yield what may be a path in a word: the word, its parts around `=`, the parts of a search path."""
    parts = [] if len(word.split()) > 1 else [*_WORDS.split(word), *word.split(os.pathsep)]
    for part in dict.fromkeys([word, *parts]):
        piece = part.removeprefix("@").removeprefix("file://")
        # No path contains NUL, and Linux limits paths to 4,096 bytes.
        if piece and "\0" not in piece and len(piece) < 4096:
            yield piece


def _program(word: str) -> str:
    return os.path.basename(word).lower()


class _Following:
    """Reads files of a workspace, and the files in it that these name and import."""

    def __init__(self, root: str, folder: str) -> None:
        self._root = root
        self._folder = folder
        self._search_path = [folder]
        self._first: set[str] = set()
        self._digests: dict[str, str] = {}
        self._left: set[str] = set()
        self._complete = True
        self._todo: list[tuple[str, bytes, bool]] = []
        self._listings: dict[str, dict[str, list[str]]] = {}
        self._imported: set[tuple[str, str]] = set()

    def ended(self, *, names: bool = True) -> FollowedFiles:
        """Follow everything that was added and return the files.

        Args:
            names: Whether to include the names of the modules in the folders that Python searches first. A
                new module there would replace another one of the same name.
        """
        while self._todo:
            self._add_what_it_names(*self._todo.pop())
        if names:
            self._add_names()
        digests = {name: self._digests[name] for name in sorted(self._digests)}
        return FollowedFiles(digests, tuple(sorted(self._left)), self._complete)

    def holds(self, path: str) -> bool:
        """Whether a path leads into the workspace."""
        return self._inside(path) is not None

    def add_python_path(self, folder: str) -> None:
        """Add a folder of `PYTHONPATH`, and the modules in it that Python imports at its start."""
        self._look_first(folder)
        # The standard module `site` imports these two when Python starts.
        for name in ("sitecustomize", "usercustomize"):
            self._add_imported([folder], name)

    def add_command(self, words: list[str], folders: list[str]) -> None:
        """Add the files that a command line runs.

        Args:
            words: The program and its arguments. Shell text among them is followed, too.
            folders: The folders that names are relative to.
        """
        lines = [*_lines([_plain(word) for word in words])]
        pieces = dict.fromkeys(piece for line in lines for word in line for piece in _pieces(word))
        # `--directory sub` and `cd sub` change what the other words are relative to.
        inner = (os.path.join(folder, piece) for folder in folders for piece in pieces)
        folders = [
            *dict.fromkeys([*folders, *(path for path in inner if os.path.isdir(path) and self.holds(path))])
        ]
        for line in lines:
            self._add_line(line, folders)
        programs = {_program(piece).partition(".")[0] for piece in pieces}
        if any(map(_RUNNER.fullmatch, programs)):
            self._add_manifests([*programs, *pieces], folders)

    def _add_line(self, words: list[str], folders: list[str]) -> None:
        interpreter = ""
        # The program and the first file after an interpreter are run, so they are never data.
        runs = True
        for word, behind in pairwise([*words, ""]):
            found = [self.add_named(piece, folders, runs=runs) for piece in _pieces(word)]
            module = _MODULE_FLAG.fullmatch(word)
            python = interpreter.startswith("py")
            if _INTERPRETER.fullmatch(_program(word)):
                interpreter, runs = _program(word), True
            elif not interpreter or any(found) or (python and module is not None):
                runs = False
            if module is not None:
                self.add_module(module[1] or behind, folders)
            if python and (module is not None or _CODE_FLAG.fullmatch(word)):
                self._look_first(folders[0])
                self._add_python(folders[0], behind.encode("utf-8", "replace"))

    def add_named(self, word: str, folders: Iterable[str], *, runs: bool = False) -> bool:
        """Add a named file, or the entry files of a named folder; return whether the file or folder exists.

        Args:
            word: The name.
            folders: The folders that it is relative to.
            runs: Whether it is run, regardless of its name.
        """
        found = False
        for folder in folders:
            path = os.path.join(folder, word)
            if os.path.isdir(path):
                inside = self._inside(path)
                # The workspace itself may be named as the data of a server, which runs nothing in it.
                for name in _ENTRIES if inside is not None and (runs or inside != ".") else ():
                    self.add(os.path.join(path, name))
            elif os.path.isfile(path):
                self.add(path, runs=runs)
            else:
                # Imports in JavaScript may omit the extension: `./part` is `part.js`.
                place, base = os.path.split(path)
                for name in self._listing(place).get(base.partition(".")[0], ()):
                    if name.removeprefix(base) in (*_SCRIPTS, ".py", ".json"):
                        self.add(os.path.join(place, name))
                continue
            found = True
        return found

    def add_module(self, name: str, folders: Iterable[str]) -> None:
        """Add a Python module from the given folders or the search path, with its parent packages."""
        folders = [*folders, *self._search_path]
        self._add_imported(folders, name)
        # `python -m package` runs `package/__main__.py`.
        self._add_imported(folders, f"{name}.__main__")

    def _add_manifests(self, words: Iterable[str], folders: Iterable[str]) -> None:
        """Add the manifests of runners, and the programs that packages have installed in `node_modules`."""
        for folder in folders:
            for name in _MANIFESTS:
                self.add(os.path.join(folder, name))
            for word in words:
                if os.sep not in word:
                    self.add(os.path.join(folder, "node_modules", ".bin", word))

    def add(self, path: str, *, runs: bool = False) -> None:
        """Add a file if it exists and is inside the workspace.

        Args:
            path: Path of the file.
            runs: Whether it is run. Then it is read even if it looks like data.
        """
        if not os.path.isfile(path):
            return
        name = self._inside(path)
        if name is None or name in self._digests or (name in self._left and not runs):
            return
        if len(self._digests) >= MOST_FILES:
            self._complete = False
            return
        if not runs and os.path.splitext(name)[1].lower() in _DATA:
            self._left.add(name)
            return
        try:
            with open(path, "rb") as file:
                content = file.read(_LARGEST)
                size = os.fstat(file.fileno()).st_size
        except OSError:
            # Not omitted: a file that becomes readable changes what runs.
            self._digests[name] = "unreadable"
            return
        if not runs and content.startswith(_SQLITE):
            self._left.add(name)
            return
        self._left.discard(name)
        digest = hashlib.sha256(content)
        # Only the first bytes of a large file are hashed; the size reveals appended ones.
        digest.update(str(size).encode() if size > _LARGEST else b"")
        self._digests[name] = digest.hexdigest()
        self._todo.append((os.path.realpath(path), content, runs))

    def _add_what_it_names(self, path: str, content: bytes, runs: bool) -> None:
        folder = os.path.dirname(path)
        if path.endswith((".py", ".pyw")):
            # Python puts the folder of the script that it runs first in `sys.path`.
            self._look_first(folder)
            self._add_python(folder, content)
            self._add_compiled(path)
        elif path.endswith(_SCRIPTS):
            self._add_script(folder, content)
        elif os.path.basename(path) == "package.json":
            self._add_package(folder, content)
        elif path.endswith(_SHELLS):
            self._add_shell(folder, content)
        elif b"\0" not in content and (runs or content.startswith(b"#!")):
            # The name does not reveal the language, so the content is read as each of them.
            if self._add_python(folder, content):
                self._look_first(folder)
            self._add_script(folder, content)
            self._add_shell(folder, content)

    def _add_script(self, folder: str, content: bytes) -> None:
        for match in _RELATIVE_IMPORT.finditer(content.decode("utf-8", "replace")):
            place = os.path.normpath(os.path.join(folder, match[1]))
            self.add_named(place, [folder])
            # In TypeScript, `./part.js` may refer to `part.ts`.
            self.add_named(os.path.splitext(place)[0], [folder])

    def _add_shell(self, folder: str, content: bytes) -> None:
        folders = [*dict.fromkeys([self._folder, folder])]
        self.add_command([content.decode("utf-8", "replace").strip()], folders)

    def _add_package(self, folder: str, content: bytes) -> None:
        """Add the scripts and programs of a `package.json`."""
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        for key in ("scripts", "bin", "main", "module"):
            values = said[key].values() if isinstance(said.get(key), dict) else [said.get(key)]
            for text in values:
                if isinstance(text, str):
                    self.add_command([text], [folder])

    def _add_python(self, folder: str, content: bytes) -> bool:
        """Add the modules that Python code imports, and return whether there are any."""
        # A regex, not `ast`: parsing takes much longer and fails for the syntax of later Python versions.
        # Text that only looks like an import does no harm.
        text = content.decode("utf-8", "replace").replace("\\\r\n", " ").replace("\\\n", " ")
        found = _IMPORT.findall(text)
        for start, behind in found:
            lead = "".join(start.split())
            module = lead.lstrip(".")
            level = len(lead) - len(module)
            folders = [folder, *self._search_path]
            if level:
                folders = [os.path.normpath(os.path.join(folder, *[".."] * (level - 1)))]
                self._add_imported(folders, "__init__")
            if module:
                self._add_imported(folders, module)
            for part in _COMMENT.sub("", behind).strip("()").split(","):
                # In `from package import name`, `name` may be a module.
                name = "".join(part.partition(" as ")[0].split())
                self._add_imported(folders, f"{module}.{name}" if module else name)
        return bool(found)

    def _look_first(self, folder: str) -> None:
        if folder not in self._first and self.holds(folder):
            self._first.add(folder)
            self._search_path.append(folder)

    def _add_imported(self, folders: Iterable[str], name: str) -> None:
        for folder in folders:
            if (folder, name) in self._imported:
                continue
            self._imported.add((folder, name))
            place = folder
            for part in name.split("."):
                found = self._listing(place).get(part)
                if found is None:
                    break
                for each in found:
                    if each.endswith(_MODULES):
                        self.add(os.path.join(place, each))
                if part not in found:  # not a folder
                    break
                place = os.path.join(place, part)
                for each in self._listing(place).get("__init__", ()):
                    self.add(os.path.join(place, each))

    def _add_compiled(self, path: str) -> None:
        """Add the bytecode of a source file that Python may run even though the source has changed."""
        # Only hash-based bytecode: Python ignores other bytecode if the time of the source differs.
        folder, name = os.path.split(path)
        folder = os.path.join(folder, "__pycache__")
        for each in self._listing(folder).get(name.partition(".")[0], ()):
            try:
                with open(os.path.join(folder, each), "rb") as file:
                    flags = int.from_bytes(file.read(8)[4:], "little")
            except OSError:
                continue
            if flags & _HASHED:
                self.add(os.path.join(folder, each))

    def _add_names(self) -> None:
        """Add the names of the modules in the folders that Python searches first."""
        # All names count, because a new module there replaces every later one of the same name.
        for folder in sorted(self._first):
            within = self._inside(folder)
            names = sorted(
                name
                for stem, found in self._listing(folder).items()
                for name in found
                if name.endswith(_MODULES)
                or (
                    stem == name != "__pycache__"
                    and name.isidentifier()
                    # Without `__init__`, a folder is imported only if nothing else has its name (PEP 420).
                    and "__init__" in self._listing(os.path.join(folder, name))
                )
            )
            # A `json.py` next to a script replaces the standard module for all code that imports it.
            for name in {name.partition(".")[0] for name in names} & sys.stdlib_module_names:
                self._add_imported([folder], name)
            told = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
            self._digests["./" if within == "." else f"{within}/"] = told
        while self._todo:
            self._add_what_it_names(*self._todo.pop())

    def _listing(self, folder: str) -> dict[str, list[str]]:
        """The names in a folder, grouped by the part before the first dot. Empty if it cannot be read."""
        found = self._listings.get(folder)
        if found is None:
            found = self._listings[folder] = {}
            with contextlib.suppress(OSError, ValueError):
                for name in os.listdir(folder):
                    found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def _inside(self, path: str) -> str | None:
        """The path relative to the workspace, with `/`; None if it is outside."""
        # Resolved, because a link in the workspace may lead out of it.
        real = os.path.realpath(path)
        if real == self._root:
            return "."
        lead = self._root.rstrip(os.sep) + os.sep
        return real.removeprefix(lead).replace(os.sep, "/") if real.startswith(lead) else None
