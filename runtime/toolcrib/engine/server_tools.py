"""Tools of MCP servers: imported ones, and descriptors that leave to a server what they do not say themselves."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import NOTHING, Descriptor, Schema
from toolcrib.core.pointers import file_and_line
from toolcrib.core.protocols import Kinds, Remote
from toolcrib.core.server_config import Catalogue, Server, document_of, names_of
from toolcrib.loading.reader import LoadedDocuments
from toolcrib.loading.snapshot import PendingDescriptor
from toolcrib.loading.sources import parse

INHERITED = ("title", "description", "input_schema", "output_schema", "annotations", "icons")
"""What a descriptor takes from the server's tool, where neither it nor its pack says so itself."""


class Brought(NamedTuple):
    """What was read, with what the servers offer.

    Attributes:
        loaded: All of it together.
        unlisted: Servers whose tools are imported, and not known yet.
        waiting: Name of a tool -> what it waits for.
        locked: Servers of which only that is known which was locked.
        remembered: Name of a server of which only that is known which it answered some time ago -> when.
    """

    loaded: LoadedDocuments
    unlisted: tuple[str, ...] = ()
    waiting: Mapping[str, PendingDescriptor] = NOTHING
    locked: tuple[str, ...] = ()
    remembered: Mapping[str, str] = NOTHING


def with_servers(
    loaded: LoadedDocuments, servers: Mapping[str, Server], known: Mapping[str, Catalogue], kinds: Kinds
) -> Brought:
    """Add the imported tools, and complete the descriptors that stand for a tool of a server.

    A descriptor counts more than an imported tool of its name.

    Args:
        loaded: What was read from files.
        servers: Those of the project.
        known: Name of a server -> what it offers, as far as that is known.
        kinds: What the modes say of their blocks.
    """
    bound = {tool.name: found for tool in loaded.tools if (found := _remote_of(tool, kinds)) is not None}
    problems = [*_unknown_servers(loaded, bound, servers)]
    tools, waiting = [], {}
    for tool in loaded.tools:
        mode, remote = bound.get(tool.name, ("", None))
        catalogue = None if remote is None else known.get(remote.server)
        if remote is not None and catalogue is not None:
            tool, faults = _completed(tool, mode, remote, catalogue, kinds)  # noqa: PLW2901
            problems += faults
        elif remote is not None and remote.server in servers and "input_schema" not in tool.origin.written:
            waiting[tool.name] = PendingDescriptor(remote.server, mode)
        tools.append(tool)
    own, refused = {tool.name for tool in tools} | set(loaded.refused), dict(loaded.refused)
    for server in servers.values():
        if server.imports and server.name in known:
            imported = _imported(server, known[server.name], own, kinds)
            tools += imported.tools
            problems += imported.problems
            refused |= imported.refused
    unlisted = tuple(name for name, server in servers.items() if server.imports and name not in known)
    loaded = replace(loaded, tools=tuple(tools), problems=(*loaded.problems, *problems), refused=refused)
    return Brought(loaded, unlisted, waiting)


def server_of(name: str, unlisted: Collection[str]) -> str | None:
    """The server that a tool of this name would be imported from; None where it is none of these."""
    owners = [server for server in unlisted if name.startswith(_prefix_of(server))]
    return max(owners, key=len, default=None)


def is_of_unlisted(glob: str, unlisted: Collection[str]) -> bool:
    """Whether a name or glob may stand for a tool that would be imported from one of these servers."""
    start = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    prefixes = map(_prefix_of, unlisted)
    return any(
        start.startswith(prefix) or (start != glob and prefix.startswith(start)) for prefix in prefixes
    )


def _prefix_of(server: str) -> str:
    """How the names of the tools begin that are imported from a server."""
    (name,) = names_of(Server(server), ["x"])[0].values()
    return name.removesuffix("x")


def _remote_of(tool: Descriptor, kinds: Kinds) -> tuple[str, Remote] | None:
    """The mode of the first block that stands for a tool of a server, and which tool that is."""
    for mode, block in tool.bindings.items():
        remote = kinds.remote_of(mode, tool.name, block)
        if remote is not None:
            return mode, remote
    return None


def _unknown_servers(
    loaded: LoadedDocuments, bound: Mapping[str, tuple[str, Remote]], servers: Mapping[str, Server]
) -> Iterator[Problem]:
    for tool in loaded.tools:
        mode, remote = bound.get(tool.name, ("", None))
        if servers and remote is not None and remote.server not in servers:
            message = (
                f"there is no server `{remote.server}`, so `{tool.name}` can't be called in mode `{mode}`"
            )
            near = did_you_mean(remote.server, servers)
            yield _placed(
                tool,
                Problem(
                    code="unknown_server",
                    message=message,
                    pointer=f"/{mode}/server",
                    hint=near or "write it under `servers` in `toolcrib.yaml`",
                    severity="warning",
                ),
            )


def _imported(server: Server, catalogue: Catalogue, own: Collection[str], kinds: Kinds) -> LoadedDocuments:
    """The tools of a server as descriptors, but for those whose name a descriptor has."""
    names, remarks = names_of(server, [*catalogue.tools, *catalogue.refused])
    documents = [
        document_of(server, catalogue.tools[tool], name)
        for tool, name in names.items()
        if tool in catalogue.tools and name not in own
    ]
    source, line = _place_of(server)
    loaded = parse(source, documents, kinds, line=line) if documents else LoadedDocuments()
    refused = {name: catalogue.refused[tool] for tool, name in names.items() if tool in catalogue.refused}
    refused |= {name: f"{fault.message} (at {fault.pointer})" for name, fault in loaded.refused.items()}
    whose = {name: f"the tool `{tool}` of the server `{server.name}`" for tool, name in names.items()}
    faults = {
        name: _remark(f"{whose[name]} is not offered: {why}", source, line) for name, why in refused.items()
    }
    told = [*(f"the server `{server.name}`: {remark}" for remark in catalogue.remarks), *remarks]
    problems = (*faults.values(), *(_remark(text, source, line) for text in told))
    return LoadedDocuments(tools=loaded.tools, problems=problems, refused=faults)


def _remark(text: str, source: str, line: int) -> Problem:
    return Problem(code="server_remark", message=text, severity="warning").at(source, line, 1)


def _place_of(server: Server) -> tuple[str, int]:
    """The file and line that name a server; of one that a program named, words instead."""
    source, line = file_and_line(server.place())
    return (source, line) if source and line else (f"server {server.name}", 1)


def _completed(
    tool: Descriptor, mode: str, remote: Remote, catalogue: Catalogue, kinds: Kinds
) -> tuple[Descriptor, list[Problem]]:
    """The descriptor with what it takes from the server's tool, and what is wrong with the two together."""
    definition = catalogue.tools.get(remote.tool)
    if definition is None:
        return tool, [_missing(tool, mode, remote, catalogue)]
    theirs = _their_own(remote, definition, kinds)
    if theirs is None:
        return tool, []
    taken = {key: getattr(theirs, key) for key in INHERITED if key not in tool.origin.written}
    taken = {key: value for key, value in taken.items() if key not in tool.origin.settings}
    if "input_schema" in taken:
        taken["input_schema"] = _without(theirs.input_schema, remote.fixed)
    told = dict.fromkeys(taken, f"server {remote.server}")
    digest = hashlib.sha256(f"{tool.origin.digest}{theirs.origin.digest}".encode()).hexdigest()
    origin = tool.origin._replace(digest=digest, settings={**told, **tool.origin.settings})
    tool = tool._replace(**taken, origin=origin)
    return tool, [_placed(tool, problem) for problem in kinds.check_binding(mode, tool)]


def _their_own(remote: Remote, definition: Mapping[str, Any], kinds: Kinds) -> Descriptor | None:
    """The server's tool, as a descriptor of its own."""
    document = document_of(Server(remote.server), definition, "remote")
    return next(iter(parse(f"server {remote.server}", [document], kinds).tools), None)


def _missing(tool: Descriptor, mode: str, remote: Remote, catalogue: Catalogue) -> Problem:
    message = f"the server `{remote.server}` has no tool `{remote.tool}`"
    hint = did_you_mean(remote.tool, catalogue.tools) or (
        f"its tools are: {', '.join(f'`{name}`' for name in catalogue.tools)}"
    )
    return _placed(
        tool,
        Problem(
            code="unknown_remote_tool",
            message=message,
            pointer=f"/{mode}/tool",
            hint=hint,
            severity="warning",
        ),
    )


def _without(schema: Schema, names: Collection[str]) -> Schema:
    """A schema of arguments of which some are set already, so that no caller sets them."""
    if not isinstance(schema, dict) or not names:
        return schema
    left: dict[str, Any] = dict(schema)
    properties, required = left.get("properties"), left.get("required")
    if isinstance(properties, dict):
        left["properties"] = {name: each for name, each in properties.items() if name not in names}
    if isinstance(required, list):
        left["required"] = [name for name in required if name not in names]
    return left


def _placed(tool: Descriptor, problem: Problem) -> Problem:
    line, column = tool.origin.locate(problem.pointer)
    return problem.at(tool.origin.source, line or tool.origin.line, column or 1)
