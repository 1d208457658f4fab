"""Find the project files that a command or a hook runs, so that a change of one of them requires a new decision.

Only files within the workspace are followed: files that the command line names (also in shell text and after options)
or the environment names, modules of `python -m` and `python -c`, the manifests of runners such as `npm` and `uv` with
their scripts, and the files that Python, JavaScript and shell files name or import. Databases and logs change with
every run, so they are listed but not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

MOST_FILES: Final = 500
"""Maximum number of files that are read for one command."""

_LARGEST: Final = 64 << 20
"""Bytes of a file that are read; of a larger one the size counts, too."""

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
"""A flag of bytecode that does not depend on the time of its source (PEP 552)."""


class FollowedFiles(NamedTuple):
    """The files of a workspace that something runs.

    Attributes:
        digests: Path relative to the workspace, with `/` -> SHA-256 of the content, in hex; of a folder with `/` at its end that
            modules are looked for in: of the names that can be imported from it. Sorted.
        left: Paths of data files that are named and not followed, sorted.
        complete: Whether all of them were read; not where there are more than `MOST_FILES`.
    """

    digests: Mapping[str, str] = {}
    left: tuple[str, ...] = ()
    complete: bool = True


def files_of_command(
    argv: Iterable[str], environment: Mapping[str, str], folder: str, root: str
) -> FollowedFiles:
    """The files that a command runs.

    Args:
        argv: The program and its arguments, as far as their variables are known; a default stands for its variable.
        environment: What is set for it; paths in it (`PYTHONPATH`, `PATH`) lead to files as well.
        folder: Its working directory, absolute.
        root: The workspace, absolute, with links resolved.
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


def files_of_module(name: str, root: str) -> FollowedFiles:
    """The files of a Python module that lies in a workspace; none where it lies elsewhere.

    Args:
        name: `package.module`.
        root: The workspace, absolute, with links resolved.
    """
    following = _Following(root, root)
    following.add_module(name, [root])
    return following.ended(names=False)


def _plain(text: str) -> str:
    """A text with the defaults of its variables in place, and relative to a folder that only a variable tells."""
    while (known := _DEFAULT.sub(r"\1", text)) != text:
        text = known
    return _LEADING_VARIABLE.sub("", text)


def _lines(words: list[str]) -> Iterator[list[str]]:
    """A command line, and those within its words: of `sh -c "cd sub; python server.py"`."""
    yield words
    for word in words:
        if len(word.split()) < 2:
            continue
        text = word.replace("\\\n", " ")
        for command in _COMMANDS.split(text):
            yield [part for part in _WORDS.split(command) if part]
        for line in dict.fromkeys([text, *text.splitlines()]):
            # What is no shell's text may leave a quote open: it was split above.
            with contextlib.suppress(ValueError):
                if _QUOTES.search(line):
                    yield from _lines(shlex.split(line))


def _pieces(word: str) -> Iterator[str]:
    """What of a word may be a path: all of it, what stands behind `=`, the parts of a search path."""
    parts = [] if len(word.split()) > 1 else [*_WORDS.split(word), *word.split(os.pathsep)]
    for part in dict.fromkeys([word, *parts]):
        piece = part.removeprefix("@").removeprefix("file://")
        if piece and "\0" not in piece and len(piece) < 4096:
            yield piece


def _program(word: str) -> str:
    return os.path.basename(word).lower()


class _Following:
    """Reads files, and what they name and import, as far as they lie in a workspace."""

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
        """What was read, with all that it leads to.

        Args:
            names: Whether Python looks for modules beside what it runs before all others, so that a new file counts.
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
        """A folder that Python looks in before its own, and what it runs of it when it starts."""
        self._look_first(folder)
        # The standard module `site` imports these two when Python starts.
        for name in ("sitecustomize", "usercustomize"):
            self._add_imported([folder], name)

    def add_command(self, words: list[str], folders: list[str]) -> None:
        """What a command line runs.

        Args:
            words: The program and its arguments; a shell's text among them is read as well.
            folders: What names are relative to.
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
        runs = True  # the program itself, and the first file behind an interpreter, whatever they are called
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
        """A file or folder that is named; of a folder what is run when it is. Whether there is one.

        Args:
            word: The name.
            folders: What it is relative to.
            runs: Whether it is run, whatever it is called.
        """
        found = False
        for folder in folders:
            path = os.path.join(folder, word)
            if os.path.isdir(path):
                inside = self._inside(path)
                # The workspace itself is named as what a server works on, too.
                for name in _ENTRIES if inside is not None and (runs or inside != ".") else ():
                    self.add(os.path.join(path, name))
            elif os.path.isfile(path):
                self.add(path, runs=runs)
            else:
                place, base = os.path.split(path)
                for name in self._listing(place).get(base.partition(".")[0], ()):
                    if name.removeprefix(base) in (*_SCRIPTS, ".py", ".json"):
                        self.add(os.path.join(place, name))
                continue
            found = True
        return found

    def add_module(self, name: str, folders: Iterable[str]) -> None:
        """A Python module, as it is found in folders and on the search path, with the packages around it."""
        folders = [*folders, *self._search_path]
        self._add_imported(folders, name)
        self._add_imported(folders, f"{name}.__main__")

    def _add_manifests(self, words: Iterable[str], folders: Iterable[str]) -> None:
        """What a runner reads, and the programs that packages have put beside it."""
        for folder in folders:
            for name in _MANIFESTS:
                self.add(os.path.join(folder, name))
            for word in words:
                if os.sep not in word:
                    self.add(os.path.join(folder, "node_modules", ".bin", word))

    def add(self, path: str, *, runs: bool = False) -> None:
        """A file, if it is there and lies in the workspace.

        Args:
            path: The file.
            runs: Whether it is run, so that it is no data, whatever it is called.
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
            self._look_first(folder)  # of a script that is run, it comes first
            self._add_python(folder, content)
            self._add_compiled(path)
        elif path.endswith(_SCRIPTS):
            self._add_script(folder, content)
        elif os.path.basename(path) == "package.json":
            self._add_package(folder, content)
        elif path.endswith(_SHELLS):
            self._add_shell(folder, content)
        elif b"\0" not in content and (runs or content.startswith(b"#!")):
            # Its name does not tell its language.
            if self._add_python(folder, content):
                self._look_first(folder)
            self._add_script(folder, content)
            self._add_shell(folder, content)

    def _add_script(self, folder: str, content: bytes) -> None:
        for match in _RELATIVE_IMPORT.finditer(content.decode("utf-8", "replace")):
            place = os.path.normpath(os.path.join(folder, match[1]))
            self.add_named(place, [folder])
            # `./part.js` stands for `part.ts`, too.
            self.add_named(os.path.splitext(place)[0], [folder])

    def _add_shell(self, folder: str, content: bytes) -> None:
        folders = [*dict.fromkeys([self._folder, folder])]
        self.add_command([content.decode("utf-8", "replace").strip()], folders)

    def _add_package(self, folder: str, content: bytes) -> None:
        """The scripts and programs of a `package.json`."""
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
        # A regex, not `ast`: parsing takes much longer and fails for the syntax of later Python versions. Text that
        # only looks like an import does no harm.
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
                # What stands behind `from package import` may be a module, too.
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
                if part not in found:  # no folder
                    break
                place = os.path.join(place, part)
                for each in self._listing(place).get("__init__", ()):
                    self.add(os.path.join(place, each))

    def _add_compiled(self, path: str) -> None:
        """Bytecode that is run without regard to the time of its source; other bytecode is written anew with every change."""
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
        """What can be imported from the folders in which Python looks first: a new file there may stand before any other module."""
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
                    and "__init__" in self._listing(os.path.join(folder, name))  # no other folder comes first
                )
            )
            # A `json.py` next to a script replaces the standard module, whoever imports it.
            for name in {name.partition(".")[0] for name in names} & sys.stdlib_module_names:
                self._add_imported([folder], name)
            told = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
            self._digests["./" if within == "." else f"{within}/"] = told
        while self._todo:
            self._add_what_it_names(*self._todo.pop())

    def _listing(self, folder: str) -> dict[str, list[str]]:
        """The names in a folder, by what stands before their first dot."""
        found = self._listings.get(folder)
        if found is None:
            found = self._listings[folder] = {}
            with contextlib.suppress(OSError, ValueError):
                for name in os.listdir(folder):
                    found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def _inside(self, path: str) -> str | None:
        """The path relative to the workspace; None where it leads outside."""
        real = os.path.realpath(path)
        if real == self._root:
            return "."
        lead = self._root.rstrip(os.sep) + os.sep
        return real.removeprefix(lead).replace(os.sep, "/") if real.startswith(lead) else None
