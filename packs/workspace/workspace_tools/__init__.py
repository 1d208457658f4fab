"""File tools for agents, confined to one folder: read, list, search, write, edit, and an outline of code."""

from __future__ import annotations

import os
from codecs import utf_8_decode
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

import jsonschema_rs

import toolcrib
from workspace_tools.folder import Entry, FileState, Folder, Refusal
from workspace_tools.outline import Symbol, outline

__all__ = ["EditFile", "ListFiles", "OutlineFile", "ReadFile", "SearchFiles", "WriteFile"]

VARIABLE = "TOOLCRIB_WORKSPACE"
"""The environment variable that names the folder if the config does not."""

MOST_READ = 50_000
"""Characters of one page of `read_file`."""

LONGEST_READ = 4 * MOST_READ + 4
"""Bytes of a line that hold `MOST_READ` characters for sure."""

MOST_SCANNED = 256 << 20
"""Bytes of a file that `read_file` looks at to find a line."""

LARGEST = 8 << 20
"""Bytes of a file that can be searched, edited or outlined."""

MOST_SEARCHED = 64 << 20
"""Bytes that one search looks at."""

MOST_LISTED = 100_000
"""Files that one list or search looks at."""

LONGEST_LINE = 300
"""Characters of a line in the matches of a search."""

Result = toolcrib.Result


@dataclass
class WorkspaceConfig:
    """Where the tools work.

    Attributes:
        root: The folder that no path leaves. Default: the one that TOOLCRIB_WORKSPACE names, else the working directory.
    """

    root: str = ""


@dataclass
class Reading:
    """A page of a text file."""

    path: str
    offset: int = 1
    limit: int = 2000


@dataclass
class Page:
    """Lines of a file."""

    path: str
    content: str
    lines: int
    next_offset: int | None = None
    notice: str = ""


@dataclass
class Listing:
    """A list of files."""

    path: str = "."
    pattern: str = "**"
    offset: int = 0
    limit: int = 200


@dataclass
class Files:
    """Some of the files of a folder."""

    files: list[Entry] = field(default_factory=list)
    next_offset: int | None = None
    notice: str = ""


@dataclass
class Search:
    """A search in files."""

    pattern: str
    path: str = "."
    files: str = "**"
    ignore_case: bool = False
    offset: int = 0
    limit: int = 100


@dataclass
class Match:
    """A line that matches."""

    path: str
    line: int
    text: str


@dataclass
class Matches:
    """Some of the matching lines."""

    matches: list[Match] = field(default_factory=list)
    next_offset: int | None = None
    notice: str = ""


@dataclass
class Writing:
    """The new content of a file."""

    path: str
    content: str


@dataclass
class Written:
    """What was written."""

    path: str
    created: bool
    bytes: int


@dataclass
class Edit:
    """A text to replace in a file."""

    path: str
    old_text: str
    new_text: str
    replace_all: bool = False


@dataclass
class Edited:
    """What was replaced."""

    path: str
    replacements: int
    lines: list[int]


@dataclass
class Outlining:
    """A source file."""

    path: str


@dataclass
class Outline:
    """The symbols of a source file."""

    path: str
    symbols: list[Symbol]


InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


def reported(execute: Callable[[Any, InputT], OutputT]) -> Callable[[Any, InputT], OutputT]:
    """Report a `Refusal` as a failed call: it is for the model, and no bug whose traceback belongs into the log."""

    @wraps(execute)
    def run(self: Any, task: InputT) -> Any:
        try:
            return execute(self, task)
        except Refusal as refusal:
            return Result.failure(
                toolcrib.Outcome.TOOL_ERROR, refusal.message, code=refusal.code, details=refusal.details
            )

    return run


class _InWorkspace:
    """What all tools have: the folder."""

    workspace: Folder

    def initialise(self, config: WorkspaceConfig) -> None:
        """Open the folder."""
        self.workspace = Folder(config.root or os.environ.get(VARIABLE) or ".")

    def close(self) -> None:
        """Close the folder."""
        self.workspace.close()


class ReadFile(_InWorkspace, toolcrib.Tool[Reading, Page]):
    """Read a text file."""

    @reported
    def execute(self, task: Reading) -> Page:
        """Return some lines, at most `MOST_READ` characters."""
        kept: list[str] = []
        notices: list[str] = []
        size, number, next_offset = 0, 0, None
        with closing(self._lines(task.path)) as lines:
            for number, line in enumerate(lines, 1):
                if number < task.offset:
                    continue
                text = _decoded(line, task.path, "\ufeff" if number == 1 else "")
                if len(kept) == task.limit or (kept and size + len(text) > MOST_READ):
                    next_offset = number
                    notices.append(f"there are more lines; continue with offset {number}")
                    break
                if len(text) > MOST_READ:
                    text = text[:MOST_READ]
                    notices.append(f"line {number} is cut after {MOST_READ} characters")
                kept.append(text)
                size += len(text)
        if not kept and task.offset > 1:
            raise Refusal("no_such_line", f"`{task.path}` has only {number} lines", lines=number)
        return Page(task.path, "".join(kept), len(kept), next_offset, "; ".join(notices))

    def _lines(self, path: str) -> Generator[bytes, None, None]:
        with self.workspace.open(path) as (descriptor, _), os.fdopen(os.dup(descriptor), "rb") as file:
            scanned = 0
            # A file without line ends is one line; no more of it is read than a page needs.
            while line := file.readline(LONGEST_READ):
                scanned += len(line)
                if scanned > MOST_SCANNED:
                    raise Refusal("too_large", f"line numbers of `{path}` end after {MOST_SCANNED} bytes")
                yield line
                while not line.endswith(b"\n") and (line := file.readline(1 << 20)):
                    scanned += len(line)
                    if scanned > MOST_SCANNED:
                        return


class ListFiles(_InWorkspace, toolcrib.Tool[Listing, Files]):
    """List the files of a folder."""

    @reported
    def execute(self, task: Listing) -> Files:
        """Return the files whose path matches."""
        left_out: list[str] = []
        found = _matching(self.workspace, task.path, task.pattern, left_out)
        page = [*islice(found, task.offset, task.offset + task.limit + 1)]
        files, next_offset = page[: task.limit], None
        if len(page) > task.limit:
            next_offset = task.offset + task.limit
        return Files(files, next_offset, _notice(next_offset, left_out))


class SearchFiles(_InWorkspace, toolcrib.Tool[Search, Matches]):
    """Search files for a regular expression."""

    @reported
    def execute(self, task: Search) -> Matches:
        """Return the lines that match."""
        is_match = _line_test(task.pattern, ignore_case=task.ignore_case)
        left_out: list[str] = []
        found = self._found(task, is_match, left_out)
        page = [*islice(found, task.offset, task.offset + task.limit + 1)]
        next_offset = task.offset + task.limit if len(page) > task.limit else None
        return Matches(page[: task.limit], next_offset, _notice(next_offset, left_out))

    def _found(self, task: Search, is_match: Callable[[str], bool], left_out: list[str]) -> Iterator[Match]:
        searched = 0
        for entry in _matching(self.workspace, task.path, task.files, left_out):
            searched += entry.size
            if searched > MOST_SEARCHED:
                left_out.append(f"{entry.path} and what follows: the search ends after {MOST_SEARCHED} bytes")
                return
            try:
                text = _text(self.workspace, entry.path)[0]
            except Refusal as refusal:
                # Images and other binary files are everywhere, and no news.
                if refusal.code != "not_text":
                    left_out.append(f"{entry.path}: {refusal.message}")
                continue
            for number, line in enumerate(text.split("\n"), 1):
                if is_match(line.removesuffix("\r")):
                    yield Match(entry.path, number, line.strip()[:LONGEST_LINE])


class WriteFile(_InWorkspace, toolcrib.Tool[Writing, Written]):
    """Write a file."""

    @reported
    def execute(self, task: Writing) -> Written:
        """Replace or create the file."""
        content = task.content.encode()
        return Written(task.path, self.workspace.write(task.path, content), len(content))


class EditFile(_InWorkspace, toolcrib.Tool[Edit, Edited]):
    """Replace a text in a file."""

    @reported
    def execute(self, task: Edit) -> Edited:
        """Replace the text, which must occur once unless all are replaced."""
        text, state = _text(self.workspace, task.path)
        old, new = task.old_text, task.new_text
        if old == new:
            raise Refusal("no_change", "`old_text` and `new_text` are equal")
        if "\n" in old and old not in text and "\r\n" in text and "\r" not in old:
            # Models read and write `\n`, also for the files of Windows.
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        parts = text.split(old)
        lines = [*_line_numbers(parts, old)]
        if not lines:
            raise Refusal("no_match", f"`old_text` does not occur in `{task.path}`", matches=0)
        if len(lines) > 1 and not task.replace_all:
            where = ", ".join(map(str, lines[:10])) + (", ..." if lines[10:] else "")
            message = (
                f"`old_text` occurs {len(lines)} times in `{task.path}`, at lines {where}; "
                "add context to it, or use `replace_all`"
            )
            raise Refusal("ambiguous_match", message, matches=len(lines), lines=lines[:100])
        self.workspace.write(task.path, new.join(parts).encode(), before=state)
        return Edited(task.path, len(lines), lines[:100])


class OutlineFile(_InWorkspace, toolcrib.Tool[Outlining, Outline]):
    """List the symbols of a source file."""

    @reported
    def execute(self, task: Outlining) -> Outline:
        """Return the symbols."""
        return Outline(
            task.path, outline(task.path, _text(self.workspace, task.path)[0].removeprefix("\ufeff"))
        )


def _text(workspace: Folder, path: str) -> tuple[str, FileState]:
    """The whole text of a file, and its state."""
    content, state = workspace.read(path, LARGEST + 1)
    if len(content) > LARGEST:
        raise Refusal("too_large", f"`{path}` has more than {LARGEST} bytes")
    return _decoded(content, path), state


def _decoded(content: bytes, path: str, mark: str = "") -> str:
    if b"\0" in content:
        raise Refusal("not_text", f"`{path}` is not a text file: it contains NUL bytes")
    try:
        # A line that was cut may end within a character.
        return utf_8_decode(content, "strict", len(content) != LONGEST_READ)[0].removeprefix(mark)
    except UnicodeDecodeError as error:
        reason = f"the byte {content[error.start]:#04x} is not UTF-8"
        raise Refusal("not_text", f"`{path}` is not a text file in UTF-8: {reason}") from None


def _line_numbers(parts: list[str], old: str) -> Iterator[int]:
    line = 1
    for part in parts[:-1]:
        line += part.count("\n")
        yield line
        line += old.count("\n")


def _line_test(pattern: str, *, ignore_case: bool) -> Callable[[str], bool]:
    """Whether a line contains a match; the engine takes linear time for every pattern."""
    schema = {"pattern": f"(?i){pattern}" if ignore_case else pattern}
    options = jsonschema_rs.RegexOptions(size_limit=1 << 20)
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=options).is_valid
    except ValueError:
        message = f"`{pattern}` is not a regular expression that is matched in linear time"
        raise Refusal(
            "invalid_pattern", f"{message}: look-around and back-references are not supported"
        ) from None


def _matching(workspace: Folder, path: str, pattern: str, left_out: list[str]) -> Iterator[Entry]:
    segments = [*_segments(pattern)]
    base = 0
    for number, entry in enumerate(workspace.files(path, left_out)):
        if number == MOST_LISTED:
            left_out.append(f"{entry.path} and what follows: only {MOST_LISTED} files are looked at")
            return
        if not number and path not in {"", "."}:
            # Patterns are relative to the folder that was asked for.
            base = len(
                [name for name in path.removeprefix(workspace.root).split("/") if name not in {"", "."}]
            )
        names = entry.path.split("/")
        if _matches(names[base:] or names[-1:], segments):
            yield entry


def _segments(pattern: str) -> Iterator[str]:
    before = ""
    for name in pattern.removeprefix("./").split("/"):
        if not name == before == "**":
            yield name
        before = name


def _matches(names: list[str], segments: list[str]) -> bool:
    """Whether a path matches a glob; `**` stands for any number of folders. One pass per segment."""
    reached = {0}
    for segment in segments:
        if segment == "**":
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], segment)}
        if not reached:
            return False
    return len(names) in reached


def _notice(next_offset: int | None, left_out: list[str]) -> str:
    """What the reader of a page should know."""
    parts = [] if next_offset is None else [f"there are more; continue with offset {next_offset}"]
    if left_out:
        more = f" and {len(left_out) - 3} more" if left_out[3:] else ""
        parts.append(f"left out: {'; '.join(left_out[:3])}{more}")
    return "; ".join(parts)
