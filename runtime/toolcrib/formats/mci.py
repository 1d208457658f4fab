"""Tools of an MCI file (Model Context Interface, schema 1.0): executions of the types http, cli, file, text and mcp."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from toolcrib.expressions import escape_expressions
from toolcrib.formats.http_samples import Unconvertible, damage
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import name_of_words, unique_names
from toolcrib.formats.tool_parts import (
    file_block,
    input_schema_of,
    quoted,
    secret_or_variable,
    server_remark,
)
from toolcrib.http.headers import fault_of_name

_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]+)\}\}|\{!!\s*([^{}]+?)\s*!!\}")
_STATEMENT: Final = re.compile(r"@(if|for|foreach)\s*\(")
_STEP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_HINTS: Final = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
_LONGEST: Final = 600_000
"""Longest timeout in milliseconds."""


def tools_of_mci(document: Mapping[str, Any]) -> ImportedTools:
    """The tools of a file. A tool without a counterpart is refused, and the others are not.

    Args:
        document: The file, or a toolset of a library.
    """
    servers = document.get("mcp_servers")
    reader = _Reader(servers if isinstance(servers, dict) else {})
    listed = document.get("tools")
    tools = listed if isinstance(listed, list) else []
    skipped: list[str] = []
    for key in ("toolsets", "mcp_servers"):
        if document.get(key) and not (key == "mcp_servers" and tools):
            what = (
                "import each file of the library by itself"
                if key == "toolsets"
                else "use `toolcrib import mcp`"
            )
            reader.remarks.append(ImportRemark("lost", "", f"/{key}", f"`{key}`: {what}"))
    names = unique_names(_name(tool) for tool in tools)
    keys: set[str] = set()
    for place, (tool, name) in enumerate(zip(tools, names, strict=True)):
        pointer = f"/tools/{place}"
        key = str(tool.get("name", pointer)) if isinstance(tool, dict) else pointer
        key = key if key not in keys else f"{key} ({place + 1})"
        keys.add(key)
        if isinstance(tool, dict) and tool.get("disabled") is True:
            skipped.append(key)
            reader.remarks.append(ImportRemark("lost", key, f"{pointer}/disabled", "it is disabled"))
            continue
        reader.tool(tool, name, key, pointer)
    return ImportedTools(reader.tools, reader.refused, reader.remarks, skipped)


def _name(tool: Any) -> str:
    said = tool.get("name") if isinstance(tool, dict) else None
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", said).strip("_") if isinstance(said, str) else ""
    return plain if 0 < len(plain) <= 64 and not plain[0].isdigit() else name_of_words(plain.split("_"))


class _Reader:
    """Converts the tools of a file."""

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self.tools: list[ImportedTool] = []
        self.refused: list[ImportRefusal] = []
        self.remarks: list[ImportRemark] = []
        self._servers = servers
        self._told: list[tuple[str, str]] = []

    def tool(self, tool: Any, name: str, key: str, pointer: str) -> None:
        """Convert a tool, or refuse it."""
        self._told = []
        try:
            descriptor = self._descriptor(tool, name)
        except Unconvertible as why:
            self.refused.append(ImportRefusal(key, why.reason, f"{pointer}/execution", str(why)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"the tool is damaged: {damage(error)}"
            self.refused.append(ImportRefusal(key, "damaged_tool", pointer, message))
        else:
            self.tools.append(ImportedTool(key, descriptor))
            self.remarks += (ImportRemark(kind, key, pointer, message) for kind, message in self._told)

    def _descriptor(self, tool: Mapping[str, Any], name: str) -> dict[str, Any]:
        annotations = tool.get("annotations") or {}
        found: dict[str, Any] = {"name": name}
        if annotations.get("title"):
            found["title"] = str(annotations["title"])[:200]
        if tool.get("description"):
            found["description"] = str(tool["description"])
        if tool.get("tags"):
            found["tags"] = [*dict.fromkeys(str(tag) for tag in tool["tags"])]
        hints = {
            ours: annotations[key] for key, ours in _HINTS.items() if isinstance(annotations.get(key), bool)
        }
        if hints:
            found["annotations"] = hints
        if annotations.get("audience"):
            self._told.append(("lost", "`annotations.audience`"))
        found["input_schema"], repairs = input_schema_of(tool.get("inputSchema"))
        self._told += (("repaired", f"`inputSchema`: {repair}") for repair in repairs)
        execution = tool["execution"]
        kind = str(execution["type"])
        convert: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "http": self._http,
            "cli": self._program,
            "file": self._file,
            "text": self._text,
            "mcp": self._server,
        }
        if kind not in convert:
            raise Unconvertible("execution_type", f"the execution type `{kind}` has no counterpart")
        if tool.get("directoryAllowList") or tool.get("enableAnyPaths"):
            self._told.append(
                ("lost", "its allowed folders; write them as `exec.paths`, and `access.paths` of the project")
            )
        return found | convert[kind](execution)

    # -- executions

    def _http(self, said: Mapping[str, Any]) -> dict[str, Any]:
        method = str(said.get("method") or "GET").upper()
        if method not in _METHODS:
            raise Unconvertible("method", f"the method `{method}` is not one that `live` sends")
        address, _, query_text = str(said["url"]).partition("?")
        live: dict[str, Any] = {} if method == "GET" else {"method": method}
        live["url"] = expression_text(address)
        query: dict[str, Any] = {}
        for part in query_text.split("&"):
            name, _, value = part.partition("=")
            if name:
                query[unquote_plus(name)] = expression_text(value if "{{" in value else unquote_plus(value))
        query |= {str(name): expressions_in(value) for name, value in (said.get("params") or {}).items()}
        headers = {
            str(name): expression_text(str(value)) for name, value in (said.get("headers") or {}).items()
        }
        if said.get("body"):
            if method in {"GET", "HEAD"}:
                raise Unconvertible(
                    "body_of_get", f"it is a {method} request with a body, which `live` does not send"
                )
            live["body"] = _body(said["body"], headers)
        for name in [*headers]:
            fault = fault_of_name(name)
            is_repeated = name.lower() == "content-type" and headers[name] == "application/json"
            if fault is not None or is_repeated:
                del headers[name]
                self._told += [] if fault is None else [("lost", f"the header `{name}`: {fault.hint}")]
        live |= {key: value for key, value in (("query", query), ("headers", headers)) if value}
        auth = self._auth(said.get("auth"), str(live["url"]))
        live |= {"auth": auth} if auth else {}
        attempts = (said.get("retries") or {}).get("attempts", 1)
        more = _timeout(said)
        if attempts > 1 and method in {"GET", "HEAD"}:
            more["limits"] = {"attempts": int(attempts)}
        elif attempts > 1:
            self._told.append(
                (
                    "lost",
                    "`retries`; set `limits.attempts`, and `annotations.idempotent` if it may be repeated",
                )
            )
        return {**more, "live": live}

    def _auth(self, said: Any, url: str) -> dict[str, Any] | None:
        if not isinstance(said, dict):
            return None

        def credential(key: str, purpose: str) -> str:
            return secret_or_variable(expression_text(str(said[key])), purpose, url, self._told)

        kind = said.get("type")
        if kind == "apiKey":
            return {
                "type": "apiKey",
                "in": said["in"],
                "name": said["name"],
                "value": credential("value", "key"),
            }
        if kind == "bearer":
            return {"type": "http", "scheme": "bearer", "token": credential("token", "token")}
        if kind == "basic":
            user, password = credential("username", "user"), credential("password", "password")
            return {"type": "http", "scheme": "basic", "username": user, "password": password}
        if kind == "oauth2" and said.get("flow") in {"clientCredentials", "client_credentials"}:
            scheme = {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": expression_text(str(said["tokenUrl"])),
                "client_id": credential("clientId", "client id"),
                "client_secret": credential("clientSecret", "client secret"),
                "client_auth": "body",
            }
            return scheme | ({"scopes": [*said["scopes"]]} if said.get("scopes") else {})
        self._told.append(("lost", f"its authentication `{kind}`"))
        return None

    def _program(self, said: Mapping[str, Any]) -> dict[str, Any]:
        command = [str(escape_expressions(str(said["command"])))]
        command += (expression_text(str(each)) for each in said.get("args") or ())
        for flag, config in (said.get("flags") or {}).items():
            command += _flag(str(flag), str(config["from"]), is_switch=config.get("type") == "boolean")
        block: dict[str, Any] = {"command": command}
        if said.get("cwd"):
            block["cwd"] = expression_text(str(said["cwd"]))
        return {**_timeout(said), "exec": block}

    def _file(self, said: Mapping[str, Any]) -> dict[str, Any]:
        if said.get("enableTemplating", True):
            self._told.append(("lost", "placeholders in the file, which is returned as it is"))
        return file_block(expression_text(str(said["path"])))

    def _text(self, said: Mapping[str, Any]) -> dict[str, Any]:
        text = str(said["text"])
        if _STATEMENT.search(text):
            raise Unconvertible("template", "its text contains statements (`@if`, `@for`, `@foreach`)")
        if re.search(r"\{\{\s*env\.", text):
            raise Unconvertible(
                "template", "its text contains variables of the environment, which a mock does not read"
            )
        return {
            "mode": "mock",
            "mock": {"result": expression_text(text)},
            "output_schema": {"type": "string"},
        }

    def _server(self, said: Mapping[str, Any]) -> dict[str, Any]:
        server = str(said["serverName"])
        self._told.append(server_remark(server, self._servers.get(server, {})))
        return {"mode": "mcp", "mcp": {"server": server, "tool": str(said["toolName"])}}


def _timeout(said: Mapping[str, Any]) -> dict[str, Any]:
    value = said.get("timeout_ms")
    usual = 30_000
    is_set = isinstance(value, int) and value not in {0, usual}
    return {"timeout": f"{min(value or usual, _LONGEST)}ms"} if is_set else {}


def _body(said: Mapping[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    content = said["content"]
    if said["type"] == "json":
        return {"json": expressions_in(content)}
    if said["type"] == "form":
        return {"form": {str(name): expressions_in(value) for name, value in content.items()}}
    kind = next((headers.pop(name) for name in [*headers] if name.lower() == "content-type"), "text/plain")
    return {"text": expression_text(str(content)), "content_type": kind}


def _flag(flag: str, path: str, *, is_switch: bool) -> list[str]:
    """The words of a flag of a program, which is left out without its argument."""
    root, _, rest = path.partition(".")
    if root == "env":
        if is_switch:
            raise Unconvertible("template", f"the flag `{flag}` depends on the environment")
        return [flag, f"${{{rest}}}"]
    value = _optional(path)
    if is_switch:
        return [f"{{{{ {quoted(flag)} if {value} else none }}}}"]
    return [f"{{{{ none if {value} is none else [{quoted(flag)}, {value} | string] }}}}"]


# -- Placeholders ---------------------------------------------------------------------------------------------------


def expressions_in(value: Any) -> Any:
    """A value with the expressions of its placeholders. `{!!props.x!!}` keeps the type of the argument."""
    if isinstance(value, str):
        return expression_text(value)
    if isinstance(value, dict):
        return {key: expressions_in(item) for key, item in value.items()}
    return [expressions_in(item) for item in value] if isinstance(value, list) else value


def expression_text(text: str) -> str:
    """A text with expressions in place of its placeholders, and everything else literal.

    Raises:
        Unconvertible: A placeholder has no counterpart.
    """
    pieces, at = [], 0
    for match in _PLACEHOLDER.finditer(text):
        is_whole = match[0] == text.strip()
        pieces.append(str(escape_expressions(text[at : match.start()])))
        pieces.append(_expression(match[1] or match[2], keeps_type=match[2] is not None or not is_whole))
        at = match.end()
    return "".join((*pieces, str(escape_expressions(text[at:]))))


def _expression(inner: str, *, keeps_type: bool) -> str:
    first, *others = [part.strip() for part in inner.split("|")]
    literal = next((part[1:-1] for part in others if part[:1] in {"'", "`"}), None)
    root, _, rest = first.partition(".")
    if root == "env" and (not others or (len(others) == 1 and literal is not None)):
        return f"${{{rest}}}" if literal is None else f"${{{rest}:-{literal}}}"
    if root not in {"props", "input"} or (others and (literal is None or len(others) > 1)):
        raise Unconvertible("template", f"the placeholder `{inner.strip()}` has no counterpart")
    kept = "" if keeps_type else " | string"
    if literal is not None:
        return f"{{{{ {_optional(first)} | default({quoted(literal)}) }}}}"
    return f"{{{{ {_path(first)}{kept} }}}}"


def _path(path: str) -> str:
    """The expression of a path such as `props.user.name`."""
    return "args" + "".join(
        f".{step}" if _STEP.fullmatch(step) else f"[{quoted(step)}]" for step in path.split(".")[1:]
    )


def _optional(path: str) -> str:
    """The expression of a path that is none without its argument."""
    first, *others = path.split(".")[1:]
    return f"args[{quoted(first)}]" + "".join(f"[{quoted(step)}]" for step in others)
