"""Choose the server of a descriptor that names none: the only one that offers its tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import Descriptor
from toolcrib.core.protocols import Remote
from toolcrib.core.server_config import SEPARATOR, Catalogue, Server, tool_names_of
from toolcrib.registry.names import short_name

_MCP: Final = f"mcp{SEPARATOR}"
"""Prefix of names of the form `mcp__SERVER__TOOL`, as other systems call the tools of servers."""


class ServerChoice(NamedTuple):
    """The server of a descriptor that names none.

    Attributes:
        remote: The tool that the descriptor refers to; None if it is not known, or not known yet.
        unlisted: Servers that may offer the tool and have not been listed yet.
        problem: Why no server can be chosen; None otherwise.
    """

    remote: Remote | None = None
    unlisted: tuple[str, ...] = ()
    problem: Problem | None = None


def choose_server(
    tool: Descriptor,
    mode: str,
    remote: Remote,
    servers: Mapping[str, Server],
    known: Mapping[str, Catalogue],
) -> ServerChoice:
    """Choose the server of a descriptor that names none.

    Args:
        tool: The descriptor.
        mode: The mode whose block names no server.
        remote: The tool that the block refers to.
        servers: The configured servers.
        known: Maps each listed server to what it offers.
    """
    block: Any = tool.bindings[mode]
    name = short_name(tool.origin.namespace, tool.name)
    owners = {server: prefix for server in servers for prefix in _prefixes(server) if name.startswith(prefix)}
    longest = max(map(len, owners.values()), default=0)
    candidates = [server for server, prefix in owners.items() if len(prefix) == longest] or [*servers]
    wanted: str = block.get("tool", name[longest:])
    if len(candidates) == 1:
        return ServerChoice(Remote(candidates[0], wanted, remote.fixed))
    unlisted = tuple(server for server in candidates if server not in known)
    if unlisted:
        return ServerChoice(unlisted=unlisted)
    found = [server for server in candidates if _offers(servers[server], known[server], wanted)]
    if len(found) == 1:
        return ServerChoice(Remote(found[0], wanted, remote.fixed))
    problem = _several(tool, mode, wanted, found) if found else _none(tool, mode, wanted, servers, known)
    problem = problem._replace(pointer=f"/{mode}", severity="warning")
    line, column = tool.origin.locate(problem.pointer)
    return ServerChoice(problem=problem.at(tool.origin.source, line or tool.origin.line, column or 1))


def _prefixes(server: str) -> Iterator[str]:
    """The beginnings of names `mcp__SERVER__TOOL` of a server's tools."""
    (plain,) = tool_names_of(Server(server), ["x"])[0].values()
    yield _MCP + plain[:-1]
    # The servers of an arena are themselves named `mcp__SERVER`.
    if plain.startswith(_MCP):
        yield plain[:-1]


def _offers(server: Server, catalogue: Catalogue, tool: str) -> bool:
    return tool in catalogue.tools and server.offers(tool)


def _several(tool: Descriptor, mode: str, wanted: str, found: list[str]) -> Problem:
    named = ", ".join(f"`{server}`" for server in found)
    message = f"several servers offer the tool `{wanted}`: {named}; `{tool.name}` must name one of them"
    hint = f"write {_block(mode, found[0], wanted)}"
    return Problem(code="ambiguous_server", message=message, hint=hint)


def _none(
    tool: Descriptor,
    mode: str,
    wanted: str,
    servers: Mapping[str, Server],
    known: Mapping[str, Catalogue],
) -> Problem:
    named = ", ".join(f"`{server}`" for server in servers)
    server, _, inner = wanted.removeprefix(_MCP).partition(SEPARATOR)
    if wanted.startswith(_MCP) and inner:
        message = f"unknown server `{server}` in the name `{tool.name}`; the servers are {named}"
        holder = next((each for each in servers if _offers(servers[each], known[each], inner)), "")
        hint = f"write {_block(mode, holder, inner)}" if holder else did_you_mean(server, servers)
        hint = hint or "add it to `servers` in `toolcrib.yaml`"
        return Problem(code="unknown_server", message=message, hint=hint)
    message = f"no server offers the tool `{wanted}`, so `{tool.name}` cannot be called in mode `{mode}`; the servers are {named}"
    offered = [each for server in servers for each in known[server].tools if servers[server].offers(each)]
    hint = did_you_mean(wanted, offered) or f"name the tool: {_block(mode, next(iter(servers)), '...')}"
    return Problem(code="unknown_remote_tool", message=message, hint=hint)


def _block(mode: str, server: str, tool: str) -> str:
    return f"`{mode}: {{server: {server}, tool: {tool}}}`"
