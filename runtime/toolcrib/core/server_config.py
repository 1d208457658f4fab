"""MCP servers, as a project or a client's `mcpServers` file names them, and what they offer.

All of it is plain data, so that an index can keep it: `Server(*tuple(server))` is the same again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from toolcrib.core.model import JSON, NOTHING

LOCK_FILE = "toolcrib.lock"
"""The file that keeps what servers offered when they were locked; it lies beside the one that names them."""

MODE = "mcp"
"""The mode in which tools of servers are called."""

SEPARATOR = "__"
"""Stands between the name of a server and that of its tool: `time__get_current_time`."""


class Server(NamedTuple):
    """One server: how it is reached, and what of it is offered.

    Texts stand here as they were written: `${VAR}` in them is looked up when the server is started, in `folders` first.

    Attributes:
        name: Names it; stands before `__` in the names of its imported tools.
        transport: `stdio` (a process of ours), `http` (streamable HTTP) or `sse` (HTTP as it was before 2025-03-26).
        command: What is started; of `stdio`.
        args: What it is started with.
        env: All that its environment holds, besides what a process can't do without (`PATH`, `HOME` ...).
        cwd: Its working directory; relative ones are relative to `root`.
        url: Where it is; of `http` and `sse`.
        headers: Sent with every request to it.
        auth: What proves who asks, as `live` writes it; None for nothing.
        era: Which protocol is spoken: `auto` asks, `handshake` (up to 2025-11-25), `modern` (from 2026-07-28).
        start_timeout: Seconds until it must have answered the first question.
        idle_timeout: Seconds after which a call is given up of which nothing was heard; 0 for no such bound.
        scope: `runtime`: one for all calls of a runtime; `session`: one for each session, and so for each scenario.
        elicitation: `package.module:function` that answers when it asks the user something; empty: it is refused.
        sampling: The same for when it asks for a model.
        imports: Whether all its tools are offered, as `name__tool`.
        only: Globs of tools, by its own names for them: the others are neither offered nor called.
        skipped: Globs of tools that are left out (`except` in documents).
        root: The folder of the file that names it.
        places: `""` and keys of the server, such as `command` -> `file:line`.
    """

    name: str
    transport: Literal["stdio", "http", "sse"] = "stdio"
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
    root: str = "."
    places: Mapping[str, str] = NOTHING

    def offers(self, tool: str) -> bool:
        """Whether a tool, by the server's own name for it, may be listed and called."""
        taken = any(fnmatchcase(tool, glob) for glob in self.only)
        return taken and not any(fnmatchcase(tool, glob) for glob in self.skipped)

    def place(self, key: str = "") -> str:
        """`file:line` of one of its keys, or of the server where that one is not written."""
        return self.places.get(key) or self.places.get("", "")

    def folders(self) -> dict[str, str]:
        """What `${workspaceFolder}` and its kin in its texts stand for; editors have them, no environment does."""
        folder = os.path.abspath(self.root)
        return {
            "workspaceFolder": folder,
            "workspaceFolderBasename": os.path.basename(folder),
            "userHome": os.path.expanduser("~"),
        }


class Catalogue(NamedTuple):
    """What a server offers, as it said itself.

    Attributes:
        server: Name of the server, as the project has it.
        tools: The server's name for a tool -> its definition, as it came over the wire (`name`, `title`,
            `description`, `inputSchema`, `outputSchema`, `annotations`, `icons`, `_meta`), in the order of listing.
        refused: Name, or `#3` for a tool without a usable one -> why it can't be offered.
        remarks: What else was wrong with the list: `it gave the cursor "x" twice`.
        info: What it says of itself: `name`, `version`, `title`, `instructions`, `protocol`; what it does not say
            is left out.
    """

    server: str
    tools: Mapping[str, dict[str, Any]] = NOTHING
    refused: Mapping[str, str] = NOTHING
    remarks: tuple[str, ...] = ()
    info: Mapping[str, str] = NOTHING

    def says(self) -> dict[str, dict[str, Any]]:
        """What of its tools is taken over: the server's name for a tool -> that."""
        return {name: copied_keys(definition) for name, definition in self.tools.items()}


class LockVerdict(NamedTuple):
    """What a lock says of what a server offers.

    Attributes:
        refused: The server's name for a tool -> why it may not be called, in words for whoever can act on it. The key
            `*` stands for every tool of the server.
        warnings: What is told, and changes nothing.
    """

    refused: Mapping[str, str] = NOTHING
    warnings: tuple[str, ...] = ()


LONGEST_NAME = 128
"""Characters of a tool's name at most, as descriptors have it."""

COPIED_KEYS = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons")
"""What of a tool's definition goes into its descriptor. A server can't name a mode, a block or a permission."""

_FOREIGN_CHARACTERS = re.compile("[^A-Za-z0-9_.-]")


def tool_names_of(
    server: Server, tools: Iterable[str], taken: Collection[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The names under which tools of a server are offered here: `time__get_current_time`.

    A character that a descriptor's name can't have becomes `_`, and what is longer than 128 characters is cut. Where
    two tools come to the same name, the one that needed no change keeps it and the others get `_2`, `_3` ... in the
    order of their own names, so it does not matter in which order the server lists them.

    Args:
        server: Its filters decide which tools are named at all.
        tools: The server's own names.
        taken: Names that are not free, such as those of another server's tools.

    Returns:
        The server's own name -> the name here, in the order given; and a remark on every name that was taken.
    """
    given = [tool for tool in dict.fromkeys(tools) if server.offers(tool)]
    plain = {tool: _plain_name(server.name, tool) for tool in given}
    unchanged = {tool for tool in given if plain[tool] == server.name + SEPARATOR + tool}
    used, found, remarks = set(taken), dict[str, str](), list[str]()
    for tool in sorted(given, key=lambda tool: (tool not in unchanged, tool)):
        name = next(name for name in _numbered(plain[tool]) if name not in used)
        used.add(name)
        found[tool] = name
        if name != plain[tool]:
            whose = f"the tool `{tool}` of the server `{server.name}`"
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
    """The descriptor of an imported tool, as it is fed to loading: MCP's spellings, and the block `mcp`.

    Of the definition only `COPIED_KEYS` is taken over, and none of it that is null. What stands beside a tool in
    its `_meta` changes from one listing to the next, and is no part of the tool.

    Args:
        server: Whose tool it is.
        definition: The tool, as the server lists it.
        name: Its name here, as `tool_names_of` gives it.
    """
    said = copied_keys(definition)
    block = {"server": server.name, "tool": definition["name"]}
    return {"name": name, **said, "mode": MODE, MODE: block}


def copied_keys(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What `COPIED_KEYS` of a tool's definition hold, without those that are null."""
    return {key: definition[key] for key in COPIED_KEYS if definition.get(key) is not None}
