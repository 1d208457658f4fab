"""From the MCP servers of an arena to those of a project."""

from __future__ import annotations

from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.formats.promptkit.source_nodes import Node

_SAME: Final = ("command", "args", "env", "url", "headers")
_SCOPES: Final = {"run": "runtime", "scenario": "session", "session": "session"}
_TRANSPORTS: Final = {"stdio": "stdio", "sse": "sse", "streamable_http": "http", "http": "http"}
_KNOWN: Final = frozenset({*_SAME, "name", "working_dir", "transport", "scope", "timeout_ms", "tool_filter"})
_OF_SOURCES: Final = ("source", "source_args")


def servers_of(spec: Node) -> tuple[dict[str, JSON], list[Problem]]:
    """The servers of an arena by their names here, and what is to be said of them.

    Tools of a server `fs` are called `mcp__fs__read_file` in PromptKit: so is the server, `mcp__fs`, and nothing else
    changes.
    """
    servers: dict[str, JSON] = {}
    problems: list[Problem] = []
    for node in spec.part("mcp_servers").each():
        entry = _server(node, problems)
        if entry is not None:
            name = node.part("name").text
            servers[f"mcp__{name}"] = entry
            message = f"the server `{name}` is not used from here: servers are named by a project"
            hint = "`toolcrib import promptkit` writes a `toolcrib.yaml` that names it"
            problems.append(node.problem("no_counterpart", message, hint, "warning"))
    return servers, problems


def _server(node: Node, problems: list[Problem]) -> dict[str, JSON] | None:
    """A server as `servers` of a project has it; None where it can't be reached from here, which is told."""
    if not node.part("name").text:
        problems.append(node.problem("missing_key", "`name` of the server is missing"))
        return None
    if node.part("source"):
        message = "a server that is started from a source has no counterpart here"
        hint = "write its `command` and `args`, such as `docker run -i --rm IMAGE`"
        problems.append(node.part("source").problem("no_counterpart", message, hint, "warning"))
        return None
    for key, part in node.entries():
        if key not in _KNOWN and key not in _OF_SOURCES:
            problems.append(
                part.problem("unknown_key", f"`{key}` is no key here, and has no effect", severity="warning")
            )
    entry: dict[str, JSON] = {key: _literal(node.part(key).value) for key in _SAME if node.part(key)}
    if node.part("working_dir").text:
        entry["cwd"] = node.part("working_dir").text
    if node.part("url"):
        entry["transport"] = _TRANSPORTS.get(node.part("transport").text, "sse")
    scope = _SCOPES.get(node.part("scope").text, "runtime")
    if scope != "runtime":
        entry["scope"] = scope
    if isinstance(node.part("timeout_ms").value, int):
        entry["timeouts"] = {"start": f"{node.part('timeout_ms').value}ms"}
    entry["import"] = _import(node.part("tool_filter"))
    return entry


def _literal(value: JSON) -> JSON:
    """PromptKit looks up no variables: what looks like one is itself."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else str(value)


def _import(chosen: Node) -> JSON:
    """Which tools are offered; where there is a list of those that are, the other one says nothing."""
    allowed: list[JSON] = [node.text for node in chosen.part("allowlist").each()]
    blocked: list[JSON] = [node.text for node in chosen.part("blocklist").each()]
    return {"only": allowed} if allowed else {"except": blocked} if blocked else True
