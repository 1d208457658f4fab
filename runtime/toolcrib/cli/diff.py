"""`toolcrib diff`: what changed between two sets of tools, and what it means for their callers."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.lock import change_lines, json_of_change, verdicts_text
from toolcrib.cli.options import ReadOptions, json_option, open_offline
from toolcrib.cli.output import json_text, plural
from toolcrib.core.child_process import ChildProcess, inherited_environment
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.text import compact, decode_json, escape_terminal
from toolcrib.engine.open_project import DEFAULT_PATHS
from toolcrib.formats.mcp_tools import definition_of
from toolcrib.loading.project_discovery import project_file
from toolcrib.security.hidden_characters import spell_out_hidden
from toolcrib.servers.lock_diff import SetDifference, compare_sets

MOST_FILES: Final = 20_000
"""Maximum number of files that are read from a git revision."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of these files together."""

_BLOBS: Final = frozenset({b"100644", b"100755"})
"""Modes of ordinary files in git."""

_NOTED: Final = ("mode", "version", "deprecated", "experimental", "requires_confirmation", "timeout")
"""Attributes of a descriptor whose changes are noted: they change no call, and no model reads them."""


class ToolSet(NamedTuple):
    """One side of the comparison.

    Attributes:
        label: How it was named.
        definitions: Name -> the definition, with the keys of MCP.
        tools: Name -> the descriptor; empty for a saved list.
        refused: Number of files with errors, whose tools may be missing.
    """

    label: str
    definitions: Mapping[str, Mapping[str, JSON]]
    tools: Mapping[str, Descriptor] = {}
    refused: int = 0


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default=".")
@click.option(
    "--fail-on",
    type=click.Choice(["breaking", "prompt-affecting", "any", "nothing"]),
    default="breaking",
    show_default=True,
    help="Exit with 1 if there is such a change.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, *, old: str, new: str, fail_on: str, as_json: bool) -> None:
    """Compare two sets of tools, and say what each change means.

    OLD and NEW are projects, folders, packs, zips or files; a saved answer of `tools/list` (JSON); or git revisions:
    `main`, `v1.2`, `HEAD~1:packs/shop`. A revision without a path is that of the folder NEW. Default of NEW: the
    working directory.

    A change is breaking unless it is proved that valid calls stay valid and results keep their form; compatible if that is
    proved; prompt-affecting if a model reads another text. No server is contacted and no code is run.
    """
    before, after = _tool_set(old, beside=new), _tool_set(new, beside=old)
    found = compare_sets(before.definitions, after.definitions)
    if as_json:
        click.echo(json_text(_document(before, after, found, _notes(before, after))))
    else:
        for line in report_lines(before, after, found):
            click.echo(line)
    for side in (before, after):
        if side.refused:
            note = f"{plural(side.refused, 'file')} of {escape_terminal(side.label)} {'was' if side.refused == 1 else 'were'} refused"
            click.echo(f"{note}, so that tools may be missing; run `toolcrib validate` there", err=True)
    fails = {"any": found.differs, "nothing": False}.get(fail_on, fail_on in found.verdicts)
    ctx.exit(exit_codes.PROBLEMS if fails else exit_codes.OK)


# The two sides.


def _tool_set(said: str, *, beside: str) -> ToolSet:
    """The tools that an argument names; a path takes precedence over a git revision of the same name."""
    if os.path.lexists(said):
        saved = _saved_list(said)
        return ToolSet(said, saved) if saved is not None else _opened(said, said)
    # A revision without a path is that of the folder on the other side.
    folder = beside if os.path.isdir(beside) else os.path.dirname(beside)
    with _revision(said, folder if ":" not in said and os.path.isdir(folder) else ".") as checked_out:
        return _opened(said, checked_out)


def _opened(label: str, path: str) -> ToolSet:
    # An index would be written into a folder that is only looked at.
    runtime = open_offline(ReadOptions(indexed=False), _sources(path))
    tools = {tool.name: tool for tool in runtime.registry.select(hidden=True)}
    refused = {problem.source for problem in runtime.problems if problem.severity == "error"}
    return ToolSet(label, {name: definition_of(tool) for name, tool in tools.items()}, tools, len(refused))


def _sources(path: str) -> list[str]:
    """What is read of a path: in a folder without a project, the same folders as in the working directory."""
    if project_file(path) is not None:
        return [path]
    found = [os.path.join(path, name) for name in DEFAULT_PATHS]
    return [each for each in found if os.path.isdir(each)] or [path]


def _saved_list(path: str) -> dict[str, Mapping[str, JSON]] | None:
    """The definitions in a saved answer of `tools/list`; None if the file is something else."""
    if not path.endswith(".json") or not os.path.isfile(path):
        return None
    try:
        value = decode_json(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    for key in ("result", "tools"):
        value = value[key] if isinstance(value, dict) and key in value else value
    if not isinstance(value, list) or not value or not all(_is_definition(each) for each in value):
        return None
    return {str(each["name"]): each for each in value if isinstance(each, dict)}


def _is_definition(value: JSON) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and "inputSchema" in value


# Git.


@contextmanager
def _revision(said: str, folder: str) -> Iterator[str]:
    """The files of a git revision in a temporary folder; its path, or that of the only file."""
    scratch = tempfile.mkdtemp(prefix="toolcrib-diff-")
    try:
        yield _checked_out(said, folder, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked_out(said: str, folder: str, scratch: str) -> str:
    program = shutil.which("git")
    if said.startswith("-"):
        raise _no_such(said, "there is no such path")
    if program is None:
        raise _no_such(said, "there is no such path, and `git` is not installed")
    git = _Git(program, folder)
    try:
        prefix = git.read("rev-parse", "--show-prefix").decode(errors="replace").rstrip("\n")
        # `REV:` with the prefix of the folder is the tree of the folder; git resolves a path after the colon.
        object_ = said if ":" in said else f"{said}:{prefix}"
        kind = git.read("cat-file", "-t", object_).strip()
        if kind == b"blob":
            path = os.path.join(scratch, os.path.basename(said.partition(":")[2]))
            Path(path).write_bytes(git.read("cat-file", "blob", object_))
            return path
        # The files are read as they were committed: a checkout would run the filters of the repository.
        _write_tree(git, object_, scratch)
    except _GitError as error:
        raise _no_such(said, f"there is no such path, and git says: {error}") from None
    return scratch


def _write_tree(git: _Git, object_: str, scratch: str) -> None:
    listed = git.read("ls-tree", "-r", "-l", "-z", "--full-tree", object_)
    files: list[tuple[str, str, int]] = []
    for entry in filter(None, listed.split(b"\0")):
        facts, _, place = entry.partition(b"\t")
        mode, _kind, hash_, length = facts.split()
        # Others are links and submodules.
        if mode in _BLOBS:
            files.append((os.fsdecode(place), hash_.decode(), int(length)))
    if len(files) > MOST_FILES or sum(size for *_, size in files) > MOST_BYTES:
        message = (
            f"`{object_}` has {plural(len(files), 'file')}; at most {MOST_FILES} files and 256 MiB are read"
        )
        raise ConfigurationError(
            message, code="too_large", hint="name the folder of the tools: `REVISION:PATH`"
        )
    hashes = "".join(f"{hash_}\n" for _path, hash_, _size in files)
    data = git.read("cat-file", "--batch", stdin=hashes.encode())
    position = 0
    # Each is a line `HASH blob SIZE`, the bytes, and a line end.
    for path, _hash, size in files:
        begin = data.index(b"\n", position) + 1
        position = begin + size + 1
        file = Path(scratch, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data[begin : begin + size])


def _no_such(said: str, why: str) -> ConfigurationError:
    hint = "pass a project, folder, pack, zip or file, a saved `tools/list`, or a git revision such as `HEAD:packs/shop`"
    return ConfigurationError(f"`{escape_terminal(said)}`: {why}", code="path_not_found", hint=hint)


class _GitError(Exception):
    """Git failed; `str()` is its message."""


class _Git:
    """Git in a folder."""

    def __init__(self, program: str, folder: str) -> None:
        self._program = program
        self._folder = folder

    def read(self, *args: str, stdin: bytes = b"") -> bytes:
        """The output of a command.

        Raises:
            _GitError: It failed.
        """
        return asyncio.run(self._read(args, stdin))

    async def _read(self, args: Sequence[str], stdin: bytes) -> bytes:
        chunks: list[bytes] = []
        changed = asyncio.Event()
        child = ChildProcess(chunks.append, changed.set)
        env = {**inherited_environment(os.environ), "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        await child.start(self._program, args, env=env, cwd=self._folder)
        try:
            if stdin:
                child.write(stdin)
            child.close_stdin()
            while child.code is None or not child.deaf:
                changed.clear()
                await changed.wait()
            await child.gone(1.0)
        finally:
            await child.end()
        if child.code:
            lines = child.stderr.decode(errors="replace").strip().splitlines()
            raise _GitError(escape_terminal(lines[0] if lines else f"exit code {child.code}"))
        return b"".join(chunks)


# The report.


def _notes(before: ToolSet, after: ToolSet) -> dict[str, dict[str, tuple[JSON, JSON]]]:
    """Tool -> attribute -> old and new value, for what changes no call."""
    found: dict[str, dict[str, tuple[JSON, JSON]]] = {}
    for name, tool in after.tools.items():
        known = before.tools.get(name)
        if known is not None:
            pairs = {key: (getattr(known, key), getattr(tool, key)) for key in _NOTED}
            different = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
            if different:
                found[name] = different
    return found


def report_lines(before: ToolSet, after: ToolSet, found: SetDifference | None = None) -> Iterator[str]:
    """The lines of the report.

    Args:
        before: The old tools.
        after: The new tools.
        found: Their difference; None to compute it.
    """
    found = compare_sets(before.definitions, after.definitions) if found is None else found
    notes = _notes(before, after)
    for name in found.added:
        yield f"{click.style('+', fg='green')} {spell_out_hidden(name)}: new"
    for name in found.removed:
        renamed = found.renamed.get(name)
        became = "removed" if renamed is None else f"renamed to {spell_out_hidden(renamed)}"
        yield f"{click.style('-', fg='red')} {spell_out_hidden(name)}: {verdicts_text(['breaking'])}, {became}"
    for name in sorted({*found.changed, *notes}):
        if name in found.changed:
            yield from change_lines(name, found.changed[name])
        else:
            yield f"{spell_out_hidden(name)}: no change for callers"
        for key, (old, new) in notes.get(name, {}).items():
            yield f"  {click.style('~', fg='yellow')} {key}: {_value(old)} -> {_value(new)}"
    counts = [
        (len(found.added), "new"),
        (len(found.removed), "removed"),
        (len(found.changed), "changed"),
        (len(after.definitions.keys() & before.definitions.keys()) - len(found.changed), "unchanged"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in counts if count) or "no tools"
    verdicts = f"; {verdicts_text(found.verdicts)}" if found.differs else ""
    yield f"{escape_terminal(before.label)} -> {escape_terminal(after.label)}: {told}{verdicts}"


def _value(value: JSON) -> str:
    return spell_out_hidden(value or "none") if isinstance(value, str) else compact(value)


def _document(
    before: ToolSet,
    after: ToolSet,
    found: SetDifference,
    notes: Mapping[str, Mapping[str, tuple[JSON, JSON]]],
) -> dict[str, Any]:
    return {
        "old": {"source": before.label, "tools": len(before.definitions), "refused_files": before.refused},
        "new": {"source": after.label, "tools": len(after.definitions), "refused_files": after.refused},
        "verdicts": [*found.verdicts],
        "added": [*found.added],
        "removed": [*found.removed],
        "renamed": dict(found.renamed),
        "changed": {name: json_of_change(change) for name, change in found.changed.items()},
        "notes": {
            name: {key: {"before": old, "after": new} for key, (old, new) in each.items()}
            for name, each in notes.items()
        },
    }
