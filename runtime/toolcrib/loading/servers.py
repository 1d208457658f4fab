"""MCP servers out of files: `servers` and `servers_from` of a project, and the files of MCP clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import Server
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.formats import Formats, ServerFile, ServerFiles
from toolcrib.loading.server_blocks import (
    Locate,
    Spot,
    Written,
    check,
    check_name,
    check_prefixes,
    laid_over,
    merged,
    server_of,
    written_at,
)


def _no_line(_pointer: str, *, key: bool = False) -> tuple[int, int]:  # noqa: ARG001 -- a `Locate`
    return 0, 0


def parse_servers(
    said: Mapping[str, Any],
    source: str = "<memory>",
    *,
    root: str = ".",
    locate: Locate = _no_line,
    pointer: str = "/servers",
    below: Mapping[str, Written] = NOTHING,
    told: Callable[[str], bool] = lambda _name: False,
) -> tuple[dict[str, Server], list[Problem]]:
    """The servers that a document writes, and everything that is wrong with them.

    Args:
        said: Name -> what is written of the server; its shape is right.
        source: The document, as it was named.
        root: The folder that paths are relative to.
        locate: Finds lines in the document.
        pointer: Where `said` stands in it.
        below: What other files write, by name: they come first, and what is said here is laid over that.
        told: Whether it is told already why a server is missing there, so that nothing can be laid over it.

    Returns:
        The servers that are sound, in the order of writing; and all problems, placed.
    """
    written, problems = dict(below), list[Problem]()
    top = Spot(source, pointer, locate)
    for name, entry in said.items():
        upper = written_at(name, entry, top.below(name), root)
        if name in written:
            written[name] = laid_over(written[name], upper)
            continue
        if told(name) and not {"command", "url"} & entry.keys():
            continue
        faults = list(check_name(upper.spot(), name))
        if not faults:
            written[name] = upper
        problems += [*faults, *check(upper)] if faults else []
    servers, faults = _sound(written)
    return servers, [*problems, *faults]


def is_servers_file(path: str, formats: Formats) -> bool:
    """Whether a path is a file of another program that names MCP servers."""
    return any(files.is_servers_file(path) for files in formats.server_files())


def read_servers_file(path: str, formats: Formats) -> tuple[dict[str, Server], list[Problem]]:
    """The servers that the file of some client names, and everything that is wrong with it. All are imported.

    What has no meaning here is told as a notice. A server that is switched off there is left out.
    """
    file = _read_file(path, None, formats)
    servers, faults = _sound(file.servers)
    return servers, [*file.problems, *faults]


def _read_file(path: str, named: Spot | None, formats: Formats) -> ServerFile:
    """Read a file by the format that recognises it, else by the first one that has such files."""
    several = [*formats.server_files()]
    if not several:
        spot = named or Spot(path, "", _no_line)
        message = f"nothing here reads `{clipped(path)}`, which another program has written"
        return ServerFile([spot.problem("no_servers", message)], unread=True)
    recognised = (files for files in several[1:] if files.is_servers_file(path))
    reader: ServerFiles = next(recognised, several[0]) if len(several) > 1 else several[0]
    return reader.read_servers_file(path, named)


def _sound(written: Mapping[str, Written]) -> tuple[dict[str, Server], list[Problem]]:
    """The servers without errors, and all problems."""
    servers, problems = {}, []
    for name, each in written.items():
        faults = list(check(each))
        problems += faults
        if not any(fault.severity == "error" for fault in faults):
            servers[name] = server_of(each)
    return servers, [*problems, *check_prefixes(written)]


def servers_of_project(
    said: Mapping[str, Any], document: Document, folder: str, note: Callable[[str], None], formats: Formats
) -> tuple[Mapping[str, Server], tuple[str, ...], list[Problem]]:
    """The servers of a project, the files that it names for them, and everything that is wrong with either.

    Args:
        said: What of the project is sound.
        document: The project's file.
        folder: The folder of the project, as it was named.
        note: Is told of each file before it is read.
        formats: Those whose files may name servers.
    """
    named = said.get("servers_from", ())
    spot = Spot(document.source, "/servers_from", document.position)
    spots = (
        {named: spot} if isinstance(named, str) else {name: spot.below(at) for at, name in enumerate(named)}
    )
    files, problems = dict[str, ServerFile](), list[Problem]()
    for name, place in spots.items():
        fault = _fault_of_path(name)
        if fault is not None:
            problems.append(place.problem(*fault))
            continue
        path = os.path.normpath(os.path.join(folder, os.path.expanduser(name)))
        note(path)
        files[path] = _read_file(path, place, formats)
        problems += files[path].problems
    below, faults = merged(file.servers for file in files.values())
    servers, others = parse_servers(
        said.get("servers", {}),
        document.source,
        root=folder,
        locate=document.position,
        below=below,
        told=lambda name: any(file.tells_of(name) for file in files.values()),
    )
    return MappingProxyType(servers), tuple(files), [*problems, *faults, *others]


def _fault_of_path(path: str) -> tuple[str, str, str] | None:
    if not path.isprintable():
        return "wrong_form", f"`{clipped(path)}` is no path: it holds a control character", ""
    if "${" in path:
        message = f"`{clipped(path)}` holds `${{`, and nothing is looked up here"
        return "variable_not_allowed", message, "write the path itself; `~/` is the home folder"
    return None
