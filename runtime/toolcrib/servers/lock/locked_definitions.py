"""What a lock holds of a server: how it is reached, and the definition of each tool, each with its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.text import canonical
from toolcrib.security.server_display import shown_args, shown_url

HASHED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What of a definition counts: what a model reads, what decides which calls are valid, what a call may do."""

KEPT: Final = (*HASHED, "icons")
"""What of a definition is kept. Its `_meta` is different from one listing to the next, so it is no part of it."""

SAID_OF_SERVERS: Final = ("name", "title", "version")
"""What of the words of a server on itself is kept. It counts for nothing: each release says another version."""

_AUTH: Final = ("type", "scheme", "in", "name", "flow", "token_url", "function")


class LockedTool(NamedTuple):
    """A tool as it was when it was locked.

    Attributes:
        definition: `KEPT` of what the server said, without nulls.
        hash: `hash_of(definition)`.
    """

    definition: Mapping[str, Any]
    hash: str


class LockedServer(NamedTuple):
    """A server as it was when it was locked.

    Attributes:
        endpoint: `endpoint_of` it.
        tools: Its name for a tool -> the tool; in the order of names.
        info: `SAID_OF_SERVERS`, as far as it said that.
    """

    endpoint: Mapping[str, JSON]
    tools: Mapping[str, LockedTool]
    info: Mapping[str, str]

    @classmethod
    def of(cls, server: Server, catalogue: Catalogue) -> LockedServer:
        """What there is to lock of a server, and of all that it lists now.

        A tool with a text that can't be written as JSON is left out: `unlockable` tells which.
        """
        left_out = unlockable(catalogue)
        tools = {
            name: locked_tool(catalogue.tools[name])
            for name in sorted(catalogue.tools)
            if name not in left_out
        }
        info = {key: catalogue.info[key] for key in SAID_OF_SERVERS if key in catalogue.info}
        return cls(endpoint_of(server), tools, info)


def locked_tool(said: Mapping[str, Any]) -> LockedTool:
    """What is kept of the definition of a tool.

    Raises:
        ValueError: A text in it holds a lone surrogate, a number is not finite, or the nesting is too deep.
    """
    definition = {key: said[key] for key in KEPT if said.get(key) is not None}
    return LockedTool(definition, hash_of(definition))


def unlockable(catalogue: Catalogue) -> dict[str, str]:
    """Name of a tool that can't be locked -> why."""
    found = {}
    for name, said in catalogue.tools.items():
        try:
            locked_tool(said)
        except ValueError as error:
            found[name] = str(error)
    return found


def hash_of(definition: Mapping[str, Any]) -> str:
    """`sha256:` and the digest of what counts of a definition, as canonical JSON.

    Raises:
        ValueError: As `locked_tool` does.
    """
    return digest({key: definition[key] for key in HASHED if definition.get(key) is not None})


def digest(value: JSON) -> str:
    """`sha256:` and the digest of a value as canonical JSON.

    Raises:
        ValueError: It can't be written as JSON.
    """
    return f"sha256:{hashlib.sha256(canonical(value).encode()).hexdigest()}"


def endpoint_of(server: Server) -> dict[str, JSON]:
    """What is started or connected to, as it is written, so that nothing that is looked up is in it.

    Of its environment and its headers only names are told, and what a file writes out in place of a secret becomes
    `***`: a lock lies in repositories to which a client's `mcp.json` is never added.
    """
    if server.transport == "stdio":
        told: dict[str, JSON] = {"command": server.command, "args": [*shown_args(server.args)]}
        told |= {"env": [*sorted(server.env)], "cwd": server.cwd}
    else:
        headers: list[JSON] = [*sorted({name.lower() for name in server.headers})]
        told = {"url": shown_url(server.url), "headers": headers, "auth": _auth(server.auth)}
    return {"transport": server.transport, **{key: item for key, item in told.items() if item}}


def _auth(auth: JSON) -> list[JSON]:
    schemes = auth if isinstance(auth, list) else [auth]
    return [
        {key: str(scheme[key]) for key in _AUTH if key in scheme}
        for scheme in schemes
        if isinstance(scheme, dict)
    ]
