"""The files in which MCP clients write their servers, read as they are: `mcpServers` of Claude, Cursor and others, `servers` of VS Code.

It is somebody else's file: what has no meaning here is told once and stops nothing. What is read becomes the language
of `servers` in a project, and is checked like that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.formats.mcp_clients.entries import Entries
from toolcrib.formats.mcp_clients.keys import FOLDERS
from toolcrib.loading.documents.document import Document, first_bytes, parse_documents
from toolcrib.loading.documents.inline_sources import only_document
from toolcrib.loading.documents.json_text import without_comments
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.formats import ServerFile
from toolcrib.loading.server_blocks import Spot, merged, whole_path

FOUND: Final = "servers_file"
"""Code of the notice for such a file in a folder that is scanned."""

_YAML: Final = (".yaml", ".yml")
_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
"""Where servers stand: `mcp.servers` in the settings of VS Code, `context_servers` in those of Zed."""

_OURS: Final = frozenset({"name", "scenario", "function", "kind", "project", "pack"})
"""A document with one of these at the top is something else, whatever it calls `servers`."""


def looks_like_servers_file(value: JSON) -> bool:
    """Whether a document is one that names MCP servers."""
    if not isinstance(value, dict) or not _OURS.isdisjoint(value):
        return False
    if isinstance(value.get("mcpServers"), dict | list):
        return True
    if "servers" in value and not value.keys() <= _BESIDE:
        return False
    return any(_holds_servers(entries) for _steps, entries in _places(value))


_BESIDE: Final = frozenset({"$schema", "inputs", "sandbox", "servers"})
"""What stands beside `servers` in a file of VS Code; many other files have servers of some kind."""


def _holds_servers(entries: JSON) -> bool:
    return isinstance(entries, dict) and all(
        isinstance(entry, dict) and not _TELLING.isdisjoint(entry) for entry in entries.values()
    )


_TELLING: Final = frozenset({"command", "url"})


def is_servers_file(path: str) -> bool:
    """Whether a path is a file that names MCP servers. Nothing but a file is read, and no more of it than need be."""
    if not os.path.isfile(path):
        return False
    try:
        text = first_bytes(path)
    except (OSError, ValueError):
        return False
    if b"ervers" not in text:
        return False
    documents, _problems = _parsed(path, text)
    return any(looks_like_servers_file(document.value) for document in documents)


def read_servers_file(path: str, named: Spot | None = None) -> ServerFile:
    """Read a client's file.

    Args:
        path: The file.
        named: Where it is named; a file that is not there is a problem of that place.
    """
    try:
        text = first_bytes(path)
    except (OSError, ValueError) as error:
        return ServerFile([_unreadable(path, error, named)], unread=True)
    document, problems = only_document(path, *_parsed(path, text), "servers file", _WAY)
    if document is None:
        return ServerFile(problems, unread=True)
    found = _servers_of(document, path)
    return found._replace(problems=[*problems, *found.problems])


def _first_line(_pointer: str, *, key: bool = False) -> tuple[int, int]:  # noqa: ARG001 -- a `Locate`
    return 1, 1


def _parsed(path: str, text: bytes) -> tuple[list[Document], list[Problem]]:
    """The one document of the file: JSON with comments, or YAML where the file is called so."""
    if path.lower().endswith(_YAML):
        return parse_documents(path, text)
    documents, problems = parse_documents(path, without_comments(text), whole=True, json=True)
    return documents, [_with_our_hint(problem) for problem in problems]


def _with_our_hint(problem: Problem) -> Problem:
    if problem.code != "invalid_json":
        return problem
    hint = "JSON has double quotes; comments, and a comma before a closing bracket, are taken here"
    return problem._replace(hint=hint)


def _unreadable(path: str, error: OSError | ValueError, named: Spot | None) -> Problem:
    spot = named or Spot(path, "", _first_line)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        hint = "the path is relative to the folder of the project" if named is not None else ""
        return spot.problem("path_not_found", f"there is no file `{clipped(path)}`", hint)
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return spot.problem("file_unreadable", f"`{clipped(path)}` can't be read: {reason}")


def _places(value: Mapping[str, JSON]) -> Iterator[tuple[tuple[str, ...], JSON]]:
    """Where servers may stand in a document, as far as something is there."""
    for steps in _KEYS:
        found: JSON = dict(value)
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        if found is not None:
            yield steps, found


def _servers_of(document: Document, path: str) -> ServerFile:
    top = Spot(path, "", document.position)
    value = document.value
    places = list(_places(value)) if isinstance(value, dict) else []
    if not isinstance(value, dict) or not places:
        return ServerFile([_no_servers(top)], unread=True)
    entries = Entries(root_of(path), value.get("inputs", []), top.below("inputs"))
    several = [dict(entries.read(found, top.below(*steps))) for steps, found in reversed(places)]
    written, faults = merged(several)
    others = _others(value, [steps[0] for steps, _ in places], top)
    problems = [*entries.problems(), *faults, *others]
    return ServerFile(problems, written, frozenset(entries.left_out - written.keys()))


def _others(value: Mapping[str, JSON], known: list[str], top: Spot) -> Iterator[Problem]:
    """The one notice for everything else in the file."""
    others = [key for key in value if key not in {*known, *_BESIDE}]
    if others:
        names = ", ".join(f"`{clipped(key)}`" for key in others[:5]) + (" ..." if len(others) > 5 else "")
        message = f"{names} {'has' if len(others) == 1 else 'have'} no meaning here; the servers are read"
        yield top.below(others[0]).problem("client_key", message, severity="notice")


def _no_servers(spot: Spot) -> Problem:
    message = "the file names no MCP servers"
    return spot.problem("no_servers", message, _WAY)


_WAY: Final = 'write `{"mcpServers": {"NAME": {"command": "..."}}}`'


def root_of(path: str) -> str:
    """The folder that paths in the file are relative to: its own, or the one above a folder that a client keeps."""
    folder = Path(whole_path(os.path.dirname(path) or "."))
    kept = folder.parent if folder.name == "settings" else folder
    return str(kept.parent if kept.name in FOLDERS else folder)


def notice_of(path: str) -> Problem:
    """What is said of a file that names servers and lies in a folder that is scanned: nothing of it is started."""
    message = "the file names MCP servers, and none of them is used"
    name = clipped(os.path.basename(path), 200)
    hint = f"to use them, name the file in `toolcrib.yaml`, relative to that: `servers_from: {name}`"
    notice = Problem(code=FOUND, message=message, hint=hint, severity="notice")
    return notice.at(path, 1, 1)
