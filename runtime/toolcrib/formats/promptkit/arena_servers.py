"""The MCP servers of a PromptKit arena, in the form of `servers` of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.formats.promptkit.source_nodes import SourceNode
from toolcrib.loading.servers import ConfigPosition, ServerBlock

_SCOPES: Final = {"run": "runtime", "scenario": "session", "session": "session"}
_TRANSPORTS: Final = {"stdio": "stdio", "sse": "sse", "streamable_http": "http", "http": "http"}
_SPELLINGS: Final[Mapping[str, str]] = {
    "cwd": "working_dir",
    "timeouts": "timeout_ms",
    "import": "tool_filter",
}
"""Key of a server in a project -> its key in an arena, where they differ."""

_OWN_PATH: Final = ("", "$PATH", "$${PATH}")
"""Parts of a PATH that add nothing to the one that the server inherits."""


def servers_of(spec: SourceNode) -> tuple[dict[str, ServerBlock], list[Problem]]:
    """The servers of an arena by their names here, and their problems.

    PromptKit calls the tools of a server `fs` `mcp__fs__read_file`. The server is therefore named `mcp__fs`
    here, which gives its tools the same names.
    """
    servers: dict[str, ServerBlock] = {}
    problems: list[Problem] = []
    for node in spec.part("mcp_servers").each():
        name = f"mcp__{node.part('name').text}"
        said = _server(node, problems)
        if said is None:
            continue
        if name in servers:
            message = f"duplicate server `{node.part('name').text}`; this one is used"
            problems.append(node.problem("duplicate_name", message, "remove one of them", "warning"))
        servers[name] = _block(name, said, node)
    return servers, problems


def _block(name: str, said: dict[str, Any], node: SourceNode) -> ServerBlock:
    source = node.document.source
    spot = ConfigPosition(source, node.pointer, node.document.position)
    spots = {key: spot.below(_SPELLINGS.get(key, key)) for key in said}
    for key in ("env", "headers"):
        spots |= {f"{key}.{each}": spots[key].below(each) for each in said.get(key, ())}
    spots |= {"timeouts.start": spots["timeouts"]} if "timeouts" in said else {}
    return ServerBlock(name, said, {"": spot, **spots}, os.path.dirname(source) or ".")


def _server(node: SourceNode, problems: list[Problem]) -> dict[str, Any] | None:
    """A server in the form of `servers` of a project; None if it is not supported, which is reported."""
    if not node.part("name").text:
        problems.append(node.problem("missing_key", "missing `name` of the server"))
        return None
    if node.part("source"):
        message = "servers that are started from a `source` are not supported"
        hint = "use `command` and `args`, for example `docker run -i --rm IMAGE`"
        problems.append(node.part("source").problem("no_counterpart", message, hint, "warning"))
        return None
    entry: dict[str, Any] = {}
    for key in ("command", "args", "env", "url", "headers"):
        value = _literal(node.part(key))
        if value:
            entry[key] = value
    if "PATH" in entry.get("env", {}):
        # In PromptKit, the program is looked up in the PATH of the caller, whatever `env` contains. An empty part of
        # PATH would mean the working directory.
        parts = [each for each in entry["env"]["PATH"].split(os.pathsep) if each not in _OWN_PATH]
        entry["env"]["PATH"] = os.pathsep.join([*parts, "${PATH}"])
    problems += _unresolved(node)
    if node.part("working_dir").text:
        entry["cwd"] = node.part("working_dir").text
    if "url" in entry:
        # PromptKit's default, for servers from before streamable HTTP.
        entry["transport"] = _TRANSPORTS.get(node.part("transport").text, "sse")
    scope = _SCOPES.get(node.part("scope").text, "runtime")
    if scope != "runtime":
        entry["scope"] = scope
    timeout = node.part("timeout_ms").value
    if isinstance(timeout, int) and timeout > 0:
        entry["timeouts"] = {"start": f"{timeout}ms"}
    entry["import"] = _import(node.part("tool_filter"))
    return entry


def _unresolved(node: SourceNode) -> Iterator[Problem]:
    """A warning for each variable that is not resolved, as in PromptKit; the server would get its name as a secret."""
    for key in ("env", "headers"):
        for name, part in node.part(key).entries():
            if "${" in part.text and (key, name) != ("env", "PATH"):
                message = f"`${{...}}` in `{name}` is literal: PromptKit resolves no variables of servers"
                server = f"mcp__{node.part('name').text}"
                hint = f"configure the server as `{server}` in the `toolcrib.yaml` of a project"
                yield part.problem("unresolved_variable", message, hint, "warning")


def _literal(node: SourceNode) -> Any:
    """The texts of a part, in which `${` is literal: PromptKit does not expand variables."""
    if isinstance(node.value, list):
        return [_literal(item) for item in node.each()]
    if isinstance(node.value, dict):
        return {key: _literal(part) for key, part in node.entries()}
    return node.text.replace("${", "$${")


def _import(chosen: SourceNode) -> JSON:
    """The filter of a server's tools; an allowlist takes precedence over a blocklist."""
    allowed: list[JSON] = [node.text for node in chosen.part("allowlist").each()]
    blocked: list[JSON] = [node.text for node in chosen.part("blocklist").each()]
    return {"only": allowed} if allowed else {"except": blocked} if blocked else True
