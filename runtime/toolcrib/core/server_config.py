"""MCP servers and A2A agents as configured in a project or a client's `mcpServers` file, and the tools that they list.

The values are plain data, so that an index can store them: `Server(*tuple(server))` equals `server`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.wrapped_results import unwrapped_schema

LOCK_FILE = "toolcrib.lock"
"""File with the locked tools of servers, next to the file that configures them."""

MODE = "mcp"
"""Mode of the tools of MCP servers."""

AGENT_MODE = "a2a"
"""Mode of the tools of A2A agents."""

SEPARATOR = "__"
"""Separates the name of a server from the name of its tool: `time__get_current_time`."""


class Server(NamedTuple):
    """How to reach a server, and which of its tools to offer.

    Text values are stored as written. `${VAR}` is resolved when the server starts, from `known_variables` first.

    Attributes:
        name: Name of the server, and the prefix before `__` in the names of its imported tools.
        transport: `stdio` (a child process), `http` (streamable HTTP) or `sse` (HTTP before protocol 2025-03-26); `a2a`
            for an A2A agent.
        command: Program to start, for `stdio`.
        args: Arguments of the program.
        env: Complete environment of the program, apart from essential variables such as `PATH` and `HOME`.
        cwd: Working directory of the program; a relative path starts at `root`.
        url: Address of the server, for `http` and `sse`; of an agent or its card, for `a2a`.
        headers: Headers of every request.
        auth: Authentication, in the form of mode `live`; None for none.
        era: Protocol generation: `auto` detects it, `handshake` (up to 2025-11-25), `modern` (from 2026-07-28).
        start_timeout: Seconds in which the server must answer the first request.
        idle_timeout: Seconds without a message after which a call is cancelled; 0 for no limit.
        scope: `runtime` starts one server for all calls; `session` starts one per session, and so per scenario.
        elicitation: Hook (`package.module:function`) that answers the server's questions to the user; if empty,
            they are refused.
        sampling: Hook that answers the server's requests to a model; if empty, they are refused.
        imports: Whether all its tools are offered, as `name__tool`.
        only: Globs over the server's names for its tools. Other tools are neither offered nor called.
        skipped: Globs over the tools to exclude (`except` in documents).
        tags: Globs over the tags of an agent's skills; a tool needs a skill with one of them. Empty for any.
        output_modes: Globs over the media types that an agent's skills answer with; empty for any.
        tools: Names of the tools of an agent that are offered without its card.
        hosts: Further hosts, as `host` or `host:port`, at which the card of an agent may place its endpoint.
        lenient: Whether an agent may answer without marking its result.
        jwks: File with a JSON Web Key Set, one of whose keys must have signed the card of an agent; empty for any card.
        lists: Whether it is a directory, whose URL lists the cards of agents.
        directory: URL of the directory that lists the agent; empty if the project names it.
        card_file: File with the card of an agent, whose endpoint is `url`; empty if the card is read from there.
        root: Folder of the file that configures the server.
        places: Key of the server, such as `command`, or `""` for the server itself -> `file:line`.
    """

    name: str
    transport: Literal["stdio", "http", "sse", "a2a"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = NOTHING
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = NOTHING
    auth: JSON = None
    era: Literal["auto", "handshake", "modern"] = "auto"
    start_timeout: float = 30.0
    idle_timeout: float = 0.0
    scope: Literal["runtime", "session"] = "runtime"
    elicitation: str = ""
    sampling: str = ""
    imports: bool = False
    only: tuple[str, ...] = ("*",)
    skipped: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    lenient: bool = False
    jwks: str = ""
    lists: bool = False
    directory: str = ""
    card_file: str = ""
    root: str = "."
    places: Mapping[str, str] = NOTHING

    @property
    def mode(self) -> str:
        """Mode of its tools."""
        return AGENT_MODE if self.transport == AGENT_MODE else MODE

    @property
    def kind(self) -> str:
        """`server` or `agent`: the word for it in messages, and the key of blocks that name it."""
        return kind_of_mode(self.mode)

    def offers(self, tool: str) -> bool:
        """Whether a tool may be listed and called; `tool` is the server's name for it."""
        # `fnmatchcase`, because `fnmatch` ignores case on Windows, and names of tools are case-sensitive.
        taken = any(fnmatchcase(tool, glob) for glob in self.only)
        return taken and not any(fnmatchcase(tool, glob) for glob in self.skipped)

    def texts(self) -> dict[str, JSON]:
        """Return the parts in which `${...}` is looked up, as JSON."""
        return {
            "command": self.command,
            "args": list(self.args),
            "env": dict(self.env),
            "cwd": self.cwd,
            "url": self.url,
            "headers": dict(self.headers),
            "auth": self.auth,
        }

    def place(self, key: str = "") -> str:
        """Return `file:line` of a key, or of the server if the key is not set."""
        return self.places.get(key) or self.places.get("", "")

    def known_variables(self) -> dict[str, str]:
        """Return the values of `${workspaceFolder}` and related variables, and of `${PATH}`: none of them is secret."""
        # Editors define these variables for `mcpServers` files; the environment does not contain them.
        folder = os.path.abspath(self.root)
        return {
            "workspaceFolder": folder,
            "workspaceFolderBasename": os.path.basename(folder),
            "userHome": os.path.expanduser("~"),
            # Every server inherits it; a server that adds folders to it reads nothing more.
            "PATH": os.environ.get("PATH", os.defpath),
        }


def kind_of_mode(mode: str) -> str:
    """The kind of the servers of a mode, which is the key of a block that names one: `server`, or `agent` for A2A."""
    return "agent" if mode == AGENT_MODE else "server"


class Catalogue(NamedTuple):
    """The tools that a server lists, and its information about itself.

    Attributes:
        server: Name of the server in the project.
        tools: The server's name for a tool -> its definition, as received (`name`, `title`, `description`,
            `inputSchema`, `outputSchema`, `annotations`, `icons`, `_meta`), in the order of the list.
        refused: Name of a tool, or its position such as `#3` if the name is unusable -> why it is not offered.
        remarks: Other problems with the list, such as a repeated cursor.
        info: Information from the server: `name`, `version`, `title`, `instructions` and `protocol`, if it sends
            them.
        agents: Name of an agent in the project -> URL of its card, for a directory.
    """

    server: str
    tools: Mapping[str, dict[str, Any]] = NOTHING
    refused: Mapping[str, str] = NOTHING
    remarks: tuple[str, ...] = ()
    info: Mapping[str, str] = NOTHING
    agents: Mapping[str, str] = NOTHING

    def says(self) -> dict[str, dict[str, Any]]:
        """Return the copied keys of each tool, by the server's name for it."""
        return {name: copied_keys(definition) for name, definition in self.tools.items()}


def configured_servers(servers: Mapping[str, Server]) -> dict[str, Server]:
    """Return the servers that the project itself names, without the agents that a directory lists."""
    return {name: server for name, server in servers.items() if not server.directory}


def listed_agents(servers: Mapping[str, Server], known: Mapping[str, Catalogue]) -> dict[str, Server]:
    """Return the agents that the directories among some servers list. A name that the project itself uses is left out.

    Args:
        servers: The servers by name.
        known: Maps the name of a directory to its catalogue, if it was read.
    """
    return {
        name: directory._replace(name=name, url=url, lists=False, directory=directory.url)
        for directory in servers.values()
        if directory.lists and directory.name in known
        for name, url in known[directory.name].agents.items()
        if name not in servers
    }


class LockVerdict(NamedTuple):
    """The result of comparing a server's tools with its lock, or the server itself with the settings of access.

    Attributes:
        refused: The server's name for a tool -> why it must not be called, as a message with a fix. The key `*`
            applies to every tool of the server.
        warnings: Differences that are reported but have no effect.
        code: Error code of what is refused.
    """

    refused: Mapping[str, str] = NOTHING
    warnings: tuple[str, ...] = ()
    code: str = "definition_changed"


LONGEST_SERVER_NAME = 64
"""Maximum length of a server's name in characters."""

LONGEST_NAME = 128
"""Maximum length of a tool's name in characters, as in descriptors."""


def place_of_server(server: Server) -> str:
    """Return the source of the values that a descriptor inherits from a server: `server time`, `agent crm`."""
    return f"{server.kind} {server.name}"


COPIED_KEYS = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons")
"""Keys that are copied from a tool's definition to its descriptor."""

# An allow list: with any other key, a server could set a mode, a block or a permission of the descriptor.

_FOREIGN_CHARACTERS = re.compile("[^A-Za-z0-9_.-]")


def tool_names_of(
    server: Server, tools: Iterable[str], taken: Collection[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Return the names of a server's tools in the registry, such as `time__get_current_time`.

    A character that is not allowed in a descriptor's name becomes `_`, and a name is cut after 128 characters. If
    two tools get the same name, the one that needed no change keeps it, and the others get `_2`, `_3` and so on.

    Args:
        server: The server. Its filters select the tools.
        tools: The server's names for its tools.
        taken: Names that are already used, for example by tools of another server.

    Returns:
        The server's name -> the name in the registry, in the order of `tools`; and a remark for each tool whose
        name was already taken.
    """
    given = [tool for tool in dict.fromkeys(tools) if server.offers(tool)]
    plain = {tool: _plain_name(server.name, tool) for tool in given}
    unchanged = {tool for tool in given if plain[tool] == server.name + SEPARATOR + tool}
    used, found, remarks = set(taken), dict[str, str](), list[str]()
    # Sorted, so that the numbers do not depend on the order in which the server lists its tools.
    for tool in sorted(given, key=lambda tool: (tool not in unchanged, tool)):
        name = next(name for name in _numbered(plain[tool]) if name not in used)
        used.add(name)
        found[tool] = name
        if name != plain[tool]:
            whose = f"the tool `{tool}` of the {server.kind} `{server.name}`"
            remarks.append(f"{whose} is named `{name}` here because `{plain[tool]}` is already taken")
    return {tool: found[tool] for tool in given}, remarks


def _plain_name(server: str, tool: str) -> str:
    name = _FOREIGN_CHARACTERS.sub("_", server + SEPARATOR + tool)
    return (name if name[0].isalpha() or name[0] == "_" else f"_{name}")[:LONGEST_NAME]


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        end = f"_{number}"
        yield name[: LONGEST_NAME - len(end)] + end
        number += 1


def descriptor_of(server: Server, definition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the descriptor document of an imported tool, with MCP's key names and the block of its mode.

    Args:
        server: The server of the tool.
        definition: The definition of the tool, as the server lists it.
        name: Name of the tool in the registry, from `tool_names_of`.
    """
    # `_meta` is not copied: it changes from one listing to the next, which would look like a changed tool.
    said = copied_keys(definition)
    if "outputSchema" in said:
        said["outputSchema"] = unwrapped_schema(said["outputSchema"])
    block = {server.kind: server.name, "tool": definition["name"]}
    return {"name": name, **said, "mode": server.mode, server.mode: block}


def copied_keys(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `COPIED_KEYS` of a tool's definition."""
    # For a server, null means the same as an omitted key, but a descriptor does not allow null.
    return {key: definition[key] for key in COPIED_KEYS if definition.get(key) is not None}
