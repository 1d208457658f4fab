"""Tools as a UTCP manual (1.1), whose readers call the services themselves.

A `live` block becomes an `http` call template, `exec` becomes `cli`, `mcp` becomes `mcp`, and a constant mock becomes `text`.
UTCP sends arguments under their own names, in the path, the query, headers or as the whole body. So the arguments of a tool
in the manual are the parts of its request: a member of a JSON body is found in the argument `body`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_to
from toolcrib.core.server_config import AGENT_MODE, Server
from toolcrib.core.text import compact
from toolcrib.formats.mcp_tools import description_of
from toolcrib.schema.dereference import dereference
from toolcrib.security.secrets import SecretVariable, split_variables, unescape_dollars

VERSION: Final = "1.1.0"
"""The version of UTCP that is written."""

_WHOLE: Final = re.compile(
    r"\s*\{\{\s*args(?:\.([A-Za-z_]\w*)|\[\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\])\s*\}\}\s*"
)
_PLACE: Final = re.compile(r"\{\{\s*args(?:\.([A-Za-z_]\w*)|\[\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\])\s*\}\}")
_METHODS: Final = frozenset(("GET", "POST", "PUT", "DELETE", "PATCH"))
_KEPT: Final = frozenset(("method", "url", "query", "headers", "cookies", "body", "accept", "auth"))
_NOT_OF_UTCP: Final = (
    "title",
    "annotations",
    "examples",
    "limits",
    "requires_confirmation",
    "deprecated",
    "icons",
    "metadata",
)


class UtcpExport(NamedTuple):
    """The manual and what it cannot express.

    Attributes:
        document: The manual.
        losses: Tool, JSON Pointer into its descriptor, and what is lost. A pointer is empty for the whole tool.
    """

    document: dict[str, JSON]
    losses: tuple[tuple[str, str, str], ...]


class _NotExpressible(Exception):
    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer


def utcp_manual(
    tools: Iterable[Descriptor],
    names: Mapping[str, str],
    *,
    servers: Mapping[str, Server],
    version: str = "1.0.0",
) -> UtcpExport:
    """The manual of some tools, sorted by name. A tool that UTCP cannot call is left out and reported.

    Args:
        tools: The tools.
        names: Name of a tool -> its provider-safe alias.
        servers: The MCP servers of the project.
        version: Version of the manual.
    """
    written: list[JSON] = []
    losses: list[tuple[str, str, str]] = []
    for tool in sorted(tools, key=lambda each: each.name):
        draft = _Draft(tool, servers)
        try:
            written.append(draft.tool(names.get(tool.name, tool.name)))
            losses += ((tool.name, pointer, message) for pointer, message in draft.losses)
        except _NotExpressible as why:
            losses.append((tool.name, why.pointer, f"the tool is not written: {why}"))
    return UtcpExport({"utcp_version": VERSION, "manual_version": version, "tools": written}, tuple(losses))


class _Draft:
    """A tool of a manual.

    Attributes:
        losses: Pointer and message of each.
    """

    def __init__(self, tool: Descriptor, servers: Mapping[str, Server]) -> None:
        self.losses: list[tuple[str, str]] = []
        self._tool = tool
        self._servers = servers
        schema: Any = tool.input_schema
        if "$ref" in compact(schema) or "$dynamicRef" in compact(schema):
            inlined = dereference(schema)
            schema = inlined.schema
            self.losses += (("/input_schema", remark) for remark in inlined.remarks)
        self._schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        found = self._schema.get("properties")
        self._known: dict[str, Any] = found if isinstance(found, dict) else {}
        self._inputs: dict[str, Any] = {}
        self._required: list[str] = []
        self._is_request = False
        self._left = dict.fromkeys(self._known)
        required: Any = self._schema.get("required", [])
        self._of_required = frozenset(required)

    def tool(self, alias: str) -> dict[str, JSON]:
        """The tool."""
        tool = self._tool
        usual = tool.mode or next(iter(tool.bindings), "")
        kind = next((each for each in self._templates() if each in tool.bindings), usual)
        template_of = self._templates().get(kind)
        if template_of is None:
            raise _NotExpressible(
                f"/{kind}" if kind else "", f"UTCP has no counterpart of the mode `{kind or 'none'}`"
            )
        template, name = template_of(tool.bindings.get(kind, {}))
        # Only a request renames arguments.
        inputs = self._wire_schema() if self._is_request else _model_schema(self._schema)
        written = {each.partition(".")[0] for each in tool.origin.written}
        self.losses += (
            (f"/{key}", f"`{key}`") for key in _NOT_OF_UTCP if key in written or _is_set(tool, key)
        )
        found: dict[str, Any] = {"name": name or alias, "description": description_of(tool), "inputs": inputs}
        live: Any = tool.bindings.get("live", {})
        if isinstance(tool.output_schema, dict) and "select" not in live:
            output = (
                dereference(tool.output_schema).schema
                if "$ref" in compact(tool.output_schema)
                else tool.output_schema
            )
            found["outputs"] = _model_schema(output)
        if tool.tags:
            found["tags"] = [*tool.tags]
        return {**found, "tool_call_template": template}

    def _templates(self) -> Mapping[str, Callable[[Any], tuple[dict[str, Any], str]]]:
        """Mode -> the call template of its block, and the name that UTCP needs for it; the first that a tool has is written."""
        return {"live": self._http, "mcp": self._server, "exec": self._program, "mock": self._text}

    def _wire_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self._inputs}
        return {**schema, "required": self._required} if self._required else schema

    def _argument(self, expression: str, pointer: str) -> str:
        """The argument that an expression is."""
        match = _WHOLE.fullmatch(expression)
        if match is None:
            raise _NotExpressible(
                pointer, f"`{expression}` is computed, and UTCP sends arguments as they are"
            )
        return next(each for each in match.groups() if each is not None)

    def _take(self, argument: str, wire: str, *, is_required: bool = False) -> None:
        """Add an input that is sent under a name."""
        self._left.pop(argument, None)
        self._inputs[wire] = _model_schema(self._known.get(argument, {}))
        if (is_required or argument in self._of_required) and wire not in self._required:
            self._required.append(wire)

    # -- live

    def _http(self, block: Any) -> tuple[dict[str, Any], str]:
        self._is_request = True
        method = block.get("method", "GET")
        if method not in _METHODS:
            raise _NotExpressible("/live/method", f"UTCP does not send {method}")
        template: dict[str, Any] = {"call_template_type": "http", "http_method": method}
        template["url"] = self._url(block["url"])
        headers = {"Accept": block["accept"]} if block.get("accept") else {}
        fields = []
        for name, value in block.get("headers", {}).items():
            if _is_expression(value):
                self._take(self._argument(value, pointer_to(("live", "headers", name))), name)
                fields.append(name)
            else:
                headers[name] = self._constant(value, pointer_to(("live", "headers", name)))
        cookies = {
            name: self._constant(value, f"/live/cookies/{name}")
            for name, value in block.get("cookies", {}).items()
        }
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        body, kind = self._body(block.get("body"))
        template["body_field"] = body
        if kind:
            template["content_type"] = headers.pop("Content-Type", kind)
        template["url"] += self._query(block.get("query", {}), "&" if "?" in template["url"] else "?")
        template |= {key: value for key, value in (("headers", headers), ("header_fields", fields)) if value}
        auth = self._auth(block.get("auth"))
        template |= {"auth": auth} if auth else {}
        for key in block:
            if key not in _KEPT:
                self.losses.append((f"/live/{key}", f"`{key}`"))
        return template, ""

    def _url(self, url: str) -> str:
        pieces, at = [], 0
        for match in _PLACE.finditer(url):
            name = next(each for each in match.groups() if each is not None)
            wire = name if re.fullmatch(r"[\w-]+", name) else f"path_{len(self._inputs)}"
            pieces += [self._constant(url[at : match.start()], "/live/url"), f"{{{wire}}}"]
            self._take(name, wire, is_required=True)
            at = match.end()
        if "{{" in url[at:] or any("{{" in piece for piece in pieces[::2]):
            raise _NotExpressible("/live/url", "its URL contains a computed value")
        return "".join((*pieces, self._constant(url[at:], "/live/url")))

    def _query(self, query: Mapping[str, Any], lead: str) -> str:
        """Add the parameters to the inputs, and return constant ones as the end of the URL."""
        constants = []
        for name, said in query.items():
            if query.get("from") == "args" and name == "from":
                for argument in [*self._left]:
                    self._take(argument, argument)
                continue
            pointer = pointer_to(("live", "query", name))
            styled = isinstance(said, dict)
            value: Any = said["value"] if isinstance(said, dict) else said
            if styled:
                self.losses.append((pointer, "the style of the parameter"))
            if _is_expression(value):
                self._take(self._argument(value, pointer), name)
            else:
                items = value if isinstance(value, list) else [value]
                texts = (self._constant(item, pointer) for item in items)
                constants += [f"{quote(name, safe='')}={quote(text, safe='${}')}" for text in texts]
        return lead + "&".join(constants) if constants else ""

    def _body(self, body: Any) -> tuple[str | None, str]:
        """The input that is the body, and its media type."""
        if not body:
            return None, ""
        if "multipart" in body:
            raise _NotExpressible("/live/body/multipart", "UTCP does not send multipart bodies")
        if "text" in body:
            name = self._argument(body["text"], "/live/body/text")
            self._take(name, name)
            return name, body.get("content_type", "text/plain; charset=utf-8")
        form = "form" in body or body.get("as") == "form"
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        if "select" in body:
            raise _NotExpressible("/live/body/select", "its body is computed")
        if "from" in body:
            content: Any = {name: f"{{{{ args[{name!r}] }}}}" for name in self._left}
        else:
            content = body["form"] if "form" in body else body["json"]
        if isinstance(content, str) and _WHOLE.fullmatch(content):
            name = self._argument(content, "/live/body/json")
            self._take(name, name)
            return name, kind
        wire = "body" if "body" not in self._inputs else "request_body"
        schema = self._shape(content, "/live/body/form" if "form" in body else "/live/body/json")
        self._inputs[wire] = schema
        if schema.get("required") or not isinstance(content, dict):
            self._required.append(wire)
        return wire, kind

    def _shape(self, content: Any, pointer: str) -> dict[str, Any]:
        """The schema of a part of a body: arguments have their schemas, and the rest is constant."""
        if isinstance(content, dict) and "value" in content and pointer.startswith("/live/body/form/"):
            self.losses.append((pointer, "the style of the field"))
            content = content["value"]
        if _is_expression(content):
            argument = self._argument(content, pointer)
            self._left.pop(argument, None)
            return _model_schema(self._known.get(argument, {}))
        if not isinstance(content, dict):
            text = self._constant(content, pointer) if isinstance(content, str) else content
            return {"const": text}
        properties = {name: self._shape(value, f"{pointer}/{name}") for name, value in content.items()}
        required = [
            name
            for name, value in content.items()
            if not _is_expression(value) or self._argument(value, pointer) in self._of_required
        ]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema

    def _auth(self, said: Any) -> dict[str, Any] | None:
        schemes = said if isinstance(said, list) else [said] if said else []
        for place, scheme in enumerate(schemes[1:], 1):
            self.losses.append(
                (f"/live/auth/{place}", f"a second scheme of authentication (`{scheme['type']}`)")
            )
        if not schemes:
            return None
        scheme, at = schemes[0], "/live/auth"
        if scheme["type"] == "apiKey":
            found = {"auth_type": "api_key", "var_name": scheme["name"], "location": scheme["in"]}
            return {**found, "api_key": self._constant(scheme["value"], f"{at}/value")}
        if scheme["type"] == "http" and scheme["scheme"] == "bearer":
            token = f"Bearer {self._constant(scheme['token'], f'{at}/token')}"
            return {
                "auth_type": "api_key",
                "var_name": "Authorization",
                "location": "header",
                "api_key": token,
            }
        if scheme["type"] == "http":
            parts = {key: self._constant(scheme[key], f"{at}/{key}") for key in ("username", "password")}
            return {"auth_type": "basic", **parts}
        if scheme["type"] == "oauth2" and scheme["flow"] == "client_credentials":
            keys = ("token_url", "client_id", "client_secret")
            found = {
                "auth_type": "oauth2",
                **{key: self._constant(scheme[key], f"{at}/{key}") for key in keys},
            }
            return {**found, "scope": " ".join(scheme["scopes"])} if scheme.get("scopes") else found
        self.losses.append((at, f"the authentication `{scheme.get('flow', scheme['type'])}`"))
        return None

    def _constant(self, value: Any, pointer: str) -> str:
        """A constant text of UTCP, in which `${NAME}` are variables."""
        text = value if isinstance(value, str) else compact(value)
        if "{{" in text:
            raise _NotExpressible(
                pointer, f"`{text}` is computed, and UTCP sends constants and whole arguments"
            )
        written = []
        for piece in split_variables(text):
            if isinstance(piece, SecretVariable):
                name = re.sub(r"\W+", "_", piece.name).strip("_")
                if piece.default is not None or piece.source != "env":
                    what = (
                        f"the default of `${{{name}}}`"
                        if piece.source == "env"
                        else f"`${{{piece.source}:...}}`, now `${{{name}}}`"
                    )
                    self.losses.append((pointer, what))
                written.append(f"${{{name}}}")
            else:
                literal = unescape_dollars(piece)
                if re.search(r"\$\{?[A-Za-z0-9_]", literal):
                    raise _NotExpressible(pointer, "UTCP would read `$` in its text as a variable")
                written.append(literal)
        return "".join(written)

    # -- exec, mcp, mock

    def _program(self, block: Any) -> tuple[dict[str, Any], str]:
        for key in ("stdin", "result"):
            if key in block:
                raise _NotExpressible(f"/exec/{key}", f"UTCP has no counterpart of `{key}`")
        if block.get("wire", "text") != "text" or block.get("lifetime", "call") != "call":
            raise _NotExpressible(
                "/exec", "UTCP passes arguments to a program as words, and starts it for each call"
            )
        words = [self._word(word, f"/exec/command/{place}") for place, word in enumerate(block["command"])]
        template: dict[str, Any] = {"call_template_type": "cli", "commands": [{"command": " ".join(words)}]}
        if block.get("env"):
            template["env_vars"] = {
                name: self._constant(value, f"/exec/env/{name}") for name, value in block["env"].items()
            }
        if block.get("cwd"):
            template["working_dir"] = self._constant(block["cwd"], "/exec/cwd")
        self.losses += (
            (f"/exec/{key}", f"`{key}`")
            for key in ("ok_exit_codes", "paths", "network", "concurrency")
            if key in block
        )
        self.losses.append(("/exec", "the sandbox of the program"))
        return template, ""

    def _word(self, word: str, pointer: str) -> str:
        pieces, at = [], 0
        for match in _PLACE.finditer(word):
            name = next(each for each in match.groups() if each is not None)
            if not re.fullmatch(r"[a-zA-Z0-9_]+", name):
                raise _NotExpressible(pointer, f"UTCP cannot pass an argument named `{name}` to a program")
            literal = self._constant(word[at : match.start()], pointer)
            pieces += [shlex.quote(literal) if literal else "", f"UTCP_ARG_{name}_UTCP_END"]
            at = match.end()
        rest = self._constant(word[at:], pointer)
        return "".join((*pieces, shlex.quote(rest) if rest or not pieces else ""))

    def _server(self, block: Any) -> tuple[dict[str, Any], str]:
        _, _, after = self._tool.name.partition("mcp__")
        server = block.get("server") or after.partition("__")[0]
        found = self._servers.get(server)
        if found is None or found.mode == AGENT_MODE:
            raise _NotExpressible("/mcp/server", f"the server `{server}` is not one of the project")
        if block.get("args"):
            self.losses.append(("/mcp/args", "`args`, which override those of a call"))
        config: dict[str, Any] = (
            {"command": found.command, "args": [*found.args], "env": dict(found.env)}
            if found.transport == "stdio"
            else {"transport": found.transport, "url": found.url, "headers": dict(found.headers)}
        )
        shown = {key: value for key, value in config.items() if value}
        tool = block.get("tool") or after.partition("__")[2] or self._tool.name.rpartition("__")[2]
        return {"call_template_type": "mcp", "config": {"mcpServers": {server: shown}}}, f"{server}.{tool}"

    def _text(self, block: Any) -> tuple[dict[str, Any], str]:
        if set(block) != {"result"} or "{{" in compact(block["result"]):
            raise _NotExpressible(
                "/mock", "UTCP has no counterpart of a mock that is not one constant result"
            )
        result = block["result"]
        content = self._constant(result, "/mock/result") if isinstance(result, str) else compact(result)
        return {"call_template_type": "text", "content": content}, ""


def _is_set(tool: Descriptor, key: str) -> bool:
    # Limits come from the project as well, and annotations from the method.
    return key not in {"limits", "annotations"} and getattr(tool, key) != Descriptor._field_defaults.get(key)


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


def _model_schema(schema: Any) -> dict[str, Any]:
    """A schema as the models of UTCP read it: schemas of properties and items are objects."""
    if not isinstance(schema, dict):
        return {} if schema is True else {"not": {}}
    return dict(_model_members(schema))


def _model_members(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            yield key, {name: _model_schema(each) for name, each in value.items()}
        elif (key == "items" and isinstance(value, bool | dict)) or (
            key == "additionalProperties" and isinstance(value, dict)
        ):
            yield key, _model_schema(value)
        else:
            yield key, value
