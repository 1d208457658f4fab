"""Tools of a Higress REST-to-MCP configuration, the dialect that Nacos and several API gateways read as well.

A request template with Go template parts becomes a `live` block. A body template that is JSON becomes a JSON body, so that
arguments keep their types. Response templates have no counterpart but for those that select one value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from toolcrib.core.model import JSON
from toolcrib.core.text import decode_json
from toolcrib.expressions import escape_expressions
from toolcrib.formats.http_samples import Unconvertible, damage
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import name_of_words, unique_names, variable_name
from toolcrib.formats.sampled_tools import reading
from toolcrib.formats.secret_names import is_secret_name
from toolcrib.formats.tool_parts import secret_or_variable, without_nulls
from toolcrib.http.headers import fault_of_name

_ACTION: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_REFERENCE: Final = re.compile(
    r"(?:(?:toJson|urlquery|quote|print|toString)\s+)?\.(args|config)\.([A-Za-z_][\w.-]*)(?:\s*\|\s*(?:toJson|urlquery|quote|trim|toString))*"
)
_SELECTED: Final = re.compile(
    r"\{\{\s*(?:gjson\s+\"([\w.]+)\"|\.([A-Za-z_][\w.]*))(?:\s*\|\s*toJson)?\s*\}\}"
)
_OPEN, _CLOSE = "\ue010", "\ue011"
"""Characters for private use, around an expression in a template."""
_MARKED: Final = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_POSITIONS: Final = frozenset(("query", "path", "header", "cookie", "body"))
_OF_ARGUMENTS: Final = (
    *("type", "enum", "items", "properties", "default", "minimum", "maximum"),
    *("minLength", "maxLength", "pattern", "format"),
)


def tools_of_higress(document: Mapping[str, Any]) -> ImportedTools:
    """The tools of a configuration. A tool without a counterpart is refused, and the others are not.

    Args:
        document: A configuration with `server` and `tools`, or a plugin object of Kubernetes that contains some.
    """
    made: list[ImportedTool] = []
    refused: list[ImportRefusal] = []
    remarks: list[ImportRemark] = []
    found = [*_configurations(document, "")]
    places = [
        (config, f"{pointer}/tools/{place}", tool)
        for pointer, config in found
        for place, tool in enumerate(config["tools"])
    ]
    names = unique_names(_name(tool) for _, _, tool in places)
    keys: set[str] = set()
    for (config, pointer, tool), name in zip(places, names, strict=True):
        key = str(tool.get("name", pointer)) if isinstance(tool, dict) else pointer
        key = key if key not in keys else f"{key} ({pointer})"
        keys.add(key)
        try:
            draft = _Tool(config.get("server") or {}, tool)
            made.append(ImportedTool(key, draft.descriptor(name)))
        except Unconvertible as why:
            refused.append(ImportRefusal(key, why.reason, f"{pointer}/requestTemplate", str(why)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"the tool is damaged: {damage(error)}"
            refused.append(ImportRefusal(key, "damaged_tool", pointer, message))
        else:
            remarks += (ImportRemark(kind, key, pointer, message) for kind, message in draft.remarks)
    return ImportedTools(made, refused, remarks)


def _configurations(value: Any, pointer: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The configurations in a document: it is one, or a plugin object that has some in its rules."""
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("tools"), list):
        return [(pointer, value)]
    inner: list[tuple[str, Mapping[str, Any]]] = []
    spec = value.get("spec")
    if isinstance(spec, dict):
        inner += _configurations(spec.get("defaultConfig"), f"{pointer}/spec/defaultConfig")
        rules = spec.get("matchRules")
        for place, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                inner += _configurations(rule.get("config"), f"{pointer}/spec/matchRules/{place}/config")
    return inner


def _name(tool: Any) -> str:
    said = tool.get("name") if isinstance(tool, dict) else None
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", said).strip("_") if isinstance(said, str) else ""
    return plain if 0 < len(plain) <= 64 and not plain[0].isdigit() else name_of_words(plain.split("_"))


class _Tool:
    """A tool that is converted.

    Attributes:
        remarks: Kind and message of each remark.
    """

    def __init__(self, server: Mapping[str, Any], tool: Mapping[str, Any]) -> None:
        self.remarks: list[tuple[str, str]] = []
        self._server = server
        self._tool = tool
        self._config: Mapping[str, Any] = server.get("config") or {}
        self._arguments = {str(each["name"]): each for each in tool.get("args") or ()}
        self._used: set[str] = set()

    def descriptor(self, name: str) -> dict[str, Any]:
        """The members of the descriptor."""
        template = self._tool.get("requestTemplate")
        if not isinstance(template, dict):
            raise Unconvertible("no_request", "it has no request template")
        found: dict[str, Any] = {"name": name}
        if self._tool.get("description"):
            found["description"] = str(self._tool["description"])
        found["input_schema"] = self._inputs()
        outputs = without_nulls(self._tool.get("outputSchema"))
        live = self._live(template)
        answer = self._response()
        if outputs:
            found |= {"output_schema": outputs, "on_invalid_result": "warn"}
        return {**found, "live": {**live, **answer}}

    def _inputs(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for name, said in self._arguments.items():
            schema = {"description": str(said["description"])} if said.get("description") else {}
            properties[name] = {
                **{key: said[key] for key in _OF_ARGUMENTS if said.get(key) is not None},
                **schema,
            }
        required = [name for name, said in self._arguments.items() if said.get("required") is True]
        inputs: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            inputs["required"] = required
        return {**inputs, "additionalProperties": False}

    # -- request

    def _live(self, template: Mapping[str, Any]) -> dict[str, Any]:
        method = str(template.get("method") or "GET").upper()
        if method not in _METHODS:
            raise Unconvertible("method", f"the method `{method}` is not one that `live` sends")
        live: dict[str, Any] = {} if method == "GET" else {"method": method}
        address, _, query_text = self._marked(str(template["url"])).partition("?")
        if address.startswith("/"):
            # The converter of OpenAPI descriptions writes paths if the description has no server.
            self.remarks.append(("lost", "its URL has no host; set `${BASE_URL}`"))
            address = f"{_OPEN}${{BASE_URL}}{_CLOSE}{address}"
        live["url"] = _written(re.sub(r"\{([A-Za-z_][\w-]*)\}", self._of_path, address))
        query: dict[str, Any] = {}
        for part in query_text.split("&"):
            name, _, value = part.partition("=")
            if name:
                query[unquote_plus(name)] = _written(value if _OPEN in value else unquote_plus(value))
        headers = {
            str(each["key"]): _written(self._marked(str(each["value"])))
            for each in template.get("headers") or ()
        }
        body = self._body(template, headers)
        cookies: dict[str, Any] = {}
        places = {"query": query, "header": headers, "cookie": cookies}
        for name, said in self._arguments.items():
            position = said.get("position")
            if position in places and name not in self._used:
                places[position][name] = f"{{{{ {reading(name)} }}}}"
                self._used.add(name)
            elif position and position not in _POSITIONS:
                self.remarks.append(("lost", f"the position `{position}` of the argument `{name}`"))
        rest = {name: f"{{{{ {reading(name)} }}}}" for name in self._arguments if name not in self._used}
        if template.get("argsToUrlParam"):
            query |= rest
        if body is not None and method in {"GET", "HEAD"}:
            raise Unconvertible(
                "body_of_get", f"it is a {method} request with a body, which `live` does not send"
            )
        self._drop_headers(headers, body)
        parts = (("query", query), ("headers", headers), ("cookies", cookies), ("body", body or {}))
        live |= {key: value for key, value in parts if value}
        auth = self._auth(template.get("security"), str(live["url"]))
        return live | ({"auth": auth} if auth else {})

    def _drop_headers(self, headers: dict[str, Any], body: Mapping[str, Any] | None) -> None:
        for name in [*headers]:
            fault = fault_of_name(name)
            said = str(headers[name]).partition(";")[0].strip().lower()
            is_repeated = name.lower() == "content-type" and (
                body is None
                or "text" in body
                or said in {"application/json", "application/x-www-form-urlencoded"}
            )
            if is_repeated:
                del headers[name]
            elif fault is not None:
                del headers[name]
                self.remarks.append(("lost", f"the header `{name}`: {fault.hint}"))
            elif is_secret_name(name) and "${" not in str(headers[name]) and "{{" not in str(headers[name]):
                variable = variable_name(name)
                headers[name] = f"${{{variable}}}"
                self.remarks.append(
                    ("secret", f"the header `{name}` is `${{{variable}}}`; set this variable")
                )

    def _of_path(self, match: re.Match[str]) -> str:
        if match[1] not in self._arguments:
            return match[0]
        self._used.add(match[1])
        return f"{_OPEN}{{{{ {reading(match[1])} }}}}{_CLOSE}"

    def _body(self, template: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any] | None:
        placed = [name for name, said in self._arguments.items() if said.get("position") == "body"]
        text = template.get("body")
        if isinstance(text, str) and text.strip():
            return self._of_template(text, headers)
        rest = [
            name
            for name, said in self._arguments.items()
            if name not in self._used and not said.get("position")
        ]
        names = [*placed, *(rest if template.get("argsToJsonBody") or template.get("argsToFormBody") else ())]
        if not names:
            return None
        self._used.update(names)
        values = {name: f"{{{{ {reading(name)} }}}}" for name in names}
        return {"form": values} if template.get("argsToFormBody") else {"json": values}

    def _of_template(self, text: str, headers: Mapping[str, Any]) -> dict[str, Any]:
        marked = self._marked(text)
        # A mark outside of a string stands for a value of any type, one within a string for text.
        quoted = re.sub(
            rf'"(?:[^"\\]|\\.)*"|{_MARKED.pattern}',
            lambda match: match[0] if match[0][0] == '"' else f'"{_OPEN}!{match[0][1:]}"',
            marked,
            flags=re.DOTALL,
        )
        try:
            value = decode_json(quoted)
        except (ValueError, RecursionError):
            kind = next(
                (str(each) for name, each in headers.items() if name.lower() == "content-type"), "text/plain"
            )
            return {"text": _written(marked.replace(f"{_OPEN}!", _OPEN)), "content_type": kind}
        return {"json": self._values(value)}

    def _values(self, value: JSON) -> JSON:
        if isinstance(value, dict):
            return {key: self._values(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._values(item) for item in value]
        if not isinstance(value, str):
            return value
        whole = _MARKED.fullmatch(value)
        if whole is None:
            return _written(value)
        expression = whole[1].removeprefix("!")
        if whole[1].startswith("!") or not expression.startswith("{{"):
            return expression
        said = re.fullmatch(r"\{\{ args\.(\w+) \}\}", expression)
        is_text = said is not None and self._arguments.get(said[1], {}).get("type") == "string"
        return expression if is_text else expression.replace(" }}", " | string }}")

    def _marked(self, text: str) -> str:
        """A template with marked expressions in place of its actions."""

        def replace(match: re.Match[str]) -> str:
            reference = _REFERENCE.fullmatch(match[1])
            if reference is None:
                raise Unconvertible(
                    "template", f"the part `{match[0][:60]}` of a template has no counterpart"
                )
            first, *others = reference[2].split(".")
            if reference[1] == "config":
                return f"{_OPEN}{self._of_config(first)}{_CLOSE}"
            if first not in self._arguments:
                raise Unconvertible(
                    "unknown_argument", f"a template uses the argument `{first}`, which it does not have"
                )
            self._used.add(first)
            inner = "".join(f"[{other!r}]" for other in others)
            return f"{_OPEN}{{{{ {reading(first)}{inner} }}}}{_CLOSE}"

        return _ACTION.sub(replace, text)

    def _of_config(self, key: str) -> str:
        value = self._config.get(key)
        if isinstance(value, str | int | float) and value != "" and not is_secret_name(key):
            return str(escape_expressions(str(value)))
        name = variable_name(key)
        self.remarks.append(("secret", f"`server.config.{key}` is `${{{name}}}`; set this variable"))
        return f"${{{name}}}"

    def _auth(self, said: Any, url: str) -> dict[str, Any] | None:
        wanted = said.get("id") if isinstance(said, dict) else None
        schemes = self._server.get("securitySchemes") or ()
        scheme = next((each for each in schemes if each.get("id") == wanted), None)
        if wanted is None or scheme is None:
            if wanted is not None:
                self.remarks.append(
                    ("lost", f"the security scheme `{wanted}`, which the server does not define")
                )
            return None
        if said.get("passthrough"):
            self.remarks.append(("lost", "the credential of the caller is not passed on; a variable is used"))
        credential = str(said.get("credential") or scheme.get("defaultCredential") or "x")
        if scheme.get("type") == "apiKey":
            value = secret_or_variable(credential, "key", url, self.remarks)
            return {"type": "apiKey", "in": scheme["in"], "name": scheme["name"], "value": value}
        if str(scheme.get("scheme")).lower() == "basic":
            user = secret_or_variable(credential, "user", url, self.remarks)
            password = secret_or_variable(credential, "password", url, self.remarks)
            return {"type": "http", "scheme": "basic", "username": user, "password": password}
        token = secret_or_variable(credential, "token", url, self.remarks)
        return {"type": "http", "scheme": "bearer", "token": token}

    # -- response

    def _response(self) -> dict[str, Any]:
        said = self._tool.get("responseTemplate")
        found: dict[str, Any] = {}
        for key in ("prependBody", "appendBody"):
            if isinstance(said, dict) and said.get(key):
                self.remarks.append(("lost", f"`responseTemplate.{key}`, the text around the response"))
        body = said.get("body") if isinstance(said, dict) else None
        if isinstance(body, str) and body.strip():
            match = _SELECTED.fullmatch(body.strip())
            if match is not None:
                found["select"] = f"body.{match[1] or match[2]}"
            else:
                self.remarks.append(("lost", "`responseTemplate.body`; the result is the response"))
        if self._tool.get("errorResponseTemplate"):
            self.remarks.append(("lost", "`errorResponseTemplate`; write `live.errors`"))
        return found


def _written(text: str) -> str:
    """A text with its expressions, and everything else literal."""
    pieces = _MARKED.split(text)
    return "".join(
        piece.removeprefix("!") if place % 2 else str(escape_expressions(piece))
        for place, piece in enumerate(pieces)
    )
