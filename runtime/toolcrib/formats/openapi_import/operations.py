"""Operations of an OpenAPI description as tools.

Every operation is converted apart from the others: what is wrong with one does not affect another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.expressions import escape_expressions
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.openapi_import.names import tool_names
from toolcrib.formats.openapi_import.references import Node, ReadFile, References, Refused, shown
from toolcrib.formats.openapi_import.request import OperationRequest
from toolcrib.formats.openapi_import.response import Responses, responses_of
from toolcrib.formats.openapi_import.schemas import MOST, Closed, Part, Schemas
from toolcrib.formats.openapi_import.security import Security, Servers
from toolcrib.schema.validation import Validator, check_schema

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
"""The methods of a path item, in the order of the specification."""

_LONGEST_TITLE: Final = 200
_HINTS: Final = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
_KNOWN_EXTENSIONS: Final = frozenset(
    ("x-speakeasy-mcp", "x-mcp", "x-openai-isConsequential", "x-annotations", "x-mcp-header", "x-secret")
)
_REASONS: Final = {"endless_ref": "cycle", "schema_too_branchy": "too_branchy"}
_URL: Final = re.compile(r"https?://\S+")


class OpenApiOptions(NamedTuple):
    """What to import, and how.

    Attributes:
        only: Globs of tags, paths, operation ids, keys or names; empty for all operations.
        skipped: Globs of operations to leave out.
        server: The address of the server; empty for that of the description.
        source: The URL of the description; empty for a file.
        file: The name of its file, for references that name it.
        read: Returns the other files of the description; None if there are none.
    """

    only: Sequence[str] = ()
    skipped: Sequence[str] = ()
    server: str = ""
    source: str = ""
    file: str = ""
    read: ReadFile | None = None


class _Operation(NamedTuple):
    """An operation, and the path item that it belongs to."""

    key: str
    method: str
    path: str
    node: Node
    item: Node


def tools_of_openapi(document: JSON, options: OpenApiOptions | None = None) -> ImportedTools:
    """Convert the operations of an OpenAPI description to tools in mode `live`.

    Args:
        document: A description of Swagger 2 or OpenAPI 3.
        options: What to import, and how.

    Raises:
        Refused: It is not such a description.
    """
    return _Description(document, options or OpenApiOptions()).tools()


def version_of(document: JSON) -> str:
    """The version of OpenAPI that a document says it has: `2.0`, `3.0.3` and so on; empty if it is none.

    Raises:
        Refused: The version is not known.
    """
    if not isinstance(document, dict):
        return ""
    said = document.get("openapi", document.get("swagger", document.get("swaggerVersion")))
    if said is None:
        return ""
    version = str(said).strip()
    if not re.match(r"2\.0|3\.[0-2](\.|$)|2$|3$", version):
        raise Refused(
            "unknown_version", "", f"version {shown(version)} of OpenAPI is not known; 2.0 and 3.0 to 3.2 are"
        )
    return version


class _Description:
    """The conversion of one description."""

    def __init__(self, document: JSON, options: OpenApiOptions) -> None:
        version = version_of(document)
        if not version:
            raise Refused("no_openapi", "", "it has neither `openapi` nor `swagger`")
        self._root = Node(document)
        self._options = options
        self._swagger = version.startswith("2")
        self._references = References(document, options.read, options.file)
        self._schemas = Schemas(self._references, legacy=version.startswith(("2", "3.0")) or version == "3")
        info = self._root["info"]
        name = info.text("title") or "API"
        self._servers = Servers(name, options.server, options.source)
        self._security = Security(self._root, self._references, name, swagger=self._swagger)
        self._remarks: dict[ImportRemark, None] = {}
        self._refused: list[ImportRefusal] = []
        self._skipped: list[str] = []
        self._parts: dict[int, Part] = {}
        self._extensions: Counter[str] = Counter()

    def tools(self) -> ImportedTools:
        operations = {operation.key: operation for operation in self._operations()}
        names = tool_names({key: self._said_name(operation) for key, operation in operations.items()})
        tools = []
        for key, operation in operations.items():
            if not self._chosen(operation, names[key]):
                self._skipped.append(key)
                continue
            try:
                descriptor = self._tool(operation, names[key])
            except Refused as refused:
                self._refused.append(
                    ImportRefusal(
                        key, refused.reason, refused.pointer or operation.node.place, refused.message
                    )
                )
                continue
            except RecursionError:
                message = "it is nested too deeply"
                self._refused.append(ImportRefusal(key, "too_deep", operation.node.place, message))
                continue
            tools.append(ImportedTool(key, descriptor))
        self._tell_shared()
        return ImportedTools(tools, self._refused, [*self._remarks], self._skipped)

    def _tell(self, kind: str, key: str, pointer: str, message: str) -> None:
        self._remarks[ImportRemark(kind, key, pointer, message)] = None

    def _tell_shared(self) -> None:
        """What was found in parts that operations share."""
        for kind, pointer, message in (*self._servers.told, *self._security.told):
            self._tell(kind, "", pointer, message)
        for part in self._parts.values():
            for found in part.found:
                self._tell(found.kind, "", found.place, found.message)
        if self._root["webhooks"].value:
            self._tell("lost", "", "/webhooks", "webhooks: requests that the API sends")
        for name, number in self._extensions.items():
            self._tell(
                "lost",
                "",
                "",
                f"`{shown(name)}` of {number:,} operation{'' if number == 1 else 's'} has no counterpart",
            )

    # Which operations there are.

    def _operations(self) -> Iterator[_Operation]:
        for path, node in self._root["paths"].members():
            if path.startswith("x-"):
                continue
            try:
                item = self._references.resolve(node)
                if item.value is not node.value and isinstance(node.value, dict):
                    # OpenAPI 3.1 allows siblings of a reference in a path item.
                    siblings = {key: value for key, value in node.value.items() if key != "$ref"}
                    item = (
                        replace(item, value={**item.value, **siblings})
                        if isinstance(item.value, dict)
                        else item
                    )
            except Refused as refused:
                self._refused.append(ImportRefusal(path, refused.reason, refused.pointer, refused.message))
                continue
            yield from self._of_path(path, item)

    def _of_path(self, path: str, item: Node) -> Iterator[_Operation]:
        found = [(method.upper(), item[method]) for method in METHODS]
        found += [(name.upper(), node) for name, node in item["additionalOperations"].members()]
        for method, node in found:
            if node.value is None:
                continue
            key = f"{method} {path}"
            if not isinstance(node.value, dict):
                self._refused.append(
                    ImportRefusal(key, "invalid_operation", node.place, "the operation is not an object")
                )
            elif method == "TRACE":
                # RFC 9110, 9.3.8: the answer is the request, with whatever credentials it has.
                message = "TRACE shows what proxies change, and is not sent"
                self._refused.append(ImportRefusal(key, "trace", node.place, message))
            elif method.lower() not in METHODS:
                message = f"requests with the method {shown(method)} cannot be sent"
                self._refused.append(ImportRefusal(key, "unknown_method", node.place, message))
            else:
                yield _Operation(key, method, path, node, item)

    @staticmethod
    def _said_name(operation: _Operation) -> str:
        for key in ("x-speakeasy-mcp", "x-mcp"):
            name = operation.node[key].text("name")
            if name:
                return name
        return operation.node.text("operationId")

    def _chosen(self, operation: _Operation, name: str) -> bool:
        for key in ("x-speakeasy-mcp", "x-mcp"):
            said = operation.node[key].value
            if said is False or (
                isinstance(said, dict) and (said.get("disabled") is True or said.get("enabled") is False)
            ):
                return False
        tags = _texts(operation.node.value.get("tags"))
        words = [operation.key, operation.path, name, operation.node.text("operationId"), *tags]

        def matches(globs: Sequence[str]) -> bool:
            return any(fnmatchcase(word, glob) for word in words if word for glob in globs)

        return (not self._options.only or matches(self._options.only)) and not matches(self._options.skipped)

    # One operation.

    def _tool(self, operation: _Operation, name: str) -> dict[str, JSON]:
        node, key = operation.node, operation.key

        def tell(kind: str, pointer: str, message: str) -> None:
            self._tell(kind, key, pointer or node.place, message)

        request = OperationRequest(self._schemas, swagger=self._swagger)
        parameters = [*operation.item["parameters"].items(), *node["parameters"].items()]
        bodies = request.add_parameters(parameters, operation.path)
        if self._swagger:
            request.add_swagger_body(bodies, self._media_types(operation, "consumes"), operation.method)
        elif isinstance(node["requestBody"].value, dict):
            request.add_body(node["requestBody"], operation.method)
        request.url(self._address(operation), operation.path)
        produces = self._media_types(operation, "produces") if self._swagger else None
        responses = responses_of(node["responses"], self._schemas, produces, tell, operation.method)
        for remark in request.told:
            tell(*remark)
        if node["callbacks"].value:
            tell("lost", node["callbacks"].place, "callbacks: requests that the API sends")
        self._count_extensions(node)
        input_schema = self._closed_input(request, operation)
        output_schema = self._closed_output(responses, operation, tell)
        texts = self._texts(operation)
        made: dict[str, Any] = {
            "name": name,
            **texts,
            "input_schema": input_schema,
            "output_schema": output_schema,
            # Descriptions of others are often inexact: a result that differs is still of use.
            "on_invalid_result": None if output_schema is None else "warn",
            "mode": "live",
            "live": self._live(operation, request, responses),
            **self._examples(request, responses, input_schema, output_schema, tell),
        }
        return {key: value for key, value in made.items() if value is not None}

    def _media_types(self, operation: _Operation, key: str) -> list[str]:
        return _texts(operation.node.value.get(key, self._root.value.get(key)))

    def _address(self, operation: _Operation) -> str:
        if self._swagger:
            return self._servers.of_swagger(self._root, operation.node)
        return self._servers.of(operation.node["servers"], operation.item["servers"], self._root["servers"])

    def _count_extensions(self, node: Node) -> None:
        for name in node.value:
            if name.startswith("x-") and name not in _KNOWN_EXTENSIONS:
                self._extensions[name] += 1

    def _use(self, closed: Closed, parts: Sequence[Part]) -> None:
        for part in (*closed.used, *parts):
            if part.found:
                self._parts[id(part)] = part

    def _closed_input(self, request: OperationRequest, operation: _Operation) -> dict[str, JSON]:
        closed = self._schemas.closed(request.parts, request.input_schema(), "request")
        self._use(closed, request.parts)
        schema: dict[str, JSON] = closed.schema
        if closed.size > 4 * MOST:
            raise Refused("too_large", operation.node.place, "the schema of the arguments is too large")
        if closed.cut:
            message = f"the schemas {_listed(closed.cut)} are too large here; they accept any value"
            self._tell("lost", operation.key, operation.node.place, message)
        self._check(closed, operation, "arguments")
        return schema

    def _closed_output(
        self, responses: Responses, operation: _Operation, tell: Callable[[str, str, str], None]
    ) -> JSON:
        if responses.schema is None:
            return None
        place = operation.node["responses"].place
        closed = self._schemas.closed(responses.parts, responses.schema, "response")
        self._use(closed, responses.parts)
        if closed.size > 4 * MOST:
            tell("lost", place, "the schema of the result is too large; any result is accepted")
            return None
        schema: JSON = closed.schema
        if closed.cut:
            tell(
                "lost", place, f"the schemas {_listed(closed.cut)} are too large here; they accept any value"
            )
        try:
            self._check(closed, operation, "result")
        except Refused as refused:
            tell("lost", place, f"{refused.message}; any result is accepted")
            return None
        return schema

    @staticmethod
    def _check(closed: Closed, operation: _Operation, what: str) -> None:
        """Refuse a schema that the loader does not accept, although each of its keywords is valid."""
        # The check takes four times as long as the conversion.
        if not closed.doubtful:
            return
        problem = next((each for each in check_schema(closed.schema) if each.severity == "error"), None)
        if problem is not None:
            message = f"the schema of the {what} is invalid: {problem.message} ({problem.pointer or 'the whole schema'})"
            raise Refused(_REASONS.get(problem.code, "invalid_schema"), operation.node.place, message)

    def _texts(self, operation: _Operation) -> dict[str, JSON]:
        node = operation.node
        summary = " ".join((node.text("summary") or operation.item.text("summary")).split())
        description = node.text("description") or operation.item.text("description")
        help_url = node["externalDocs"].text("url")
        made: dict[str, Any] = {}
        consequential = node.value.get("x-openai-isConsequential")
        annotations: dict[str, JSON] = {}
        for source in (node["x-annotations"], node["x-mcp"], node["x-speakeasy-mcp"]):
            hints = source["annotations"] if isinstance(source["annotations"].value, dict) else source
            annotations |= {
                ours: hints.value[hint]
                for hint, ours in _HINTS.items()
                if isinstance(hints.value, dict) and isinstance(hints.value.get(hint), bool)
            }
            summary = " ".join(source.text("title").split()) or summary
            description = source.text("description") or description
        if summary and summary != description and len(summary) <= _LONGEST_TITLE and description:
            made["title"] = summary
        if description or summary:
            made["description"] = description or summary
        if _URL.fullmatch(help_url):
            made["help_url"] = help_url
        tags = [*dict.fromkeys(filter(None, _texts(node.value.get("tags"))))]
        if tags:
            made["tags"] = tags
        if annotations:
            made["annotations"] = annotations
        if node.value.get("deprecated") is True:
            made["deprecated"] = True
        if consequential is True:
            made["requires_confirmation"] = True
        return made

    def _live(
        self, operation: _Operation, request: OperationRequest, responses: Responses
    ) -> dict[str, JSON]:
        live = request.live
        auth = self._security.of(operation.node["security"])
        parameters = {scheme["name"] for scheme in auth if scheme.get("in") == "query"}
        if parameters and "query" in live:
            live["query"] = {name: value for name, value in live["query"].items() if name not in parameters}
        made: dict[str, Any] = {"method": operation.method, "url": live.pop("url"), **live}
        if responses.accept:
            made["accept"] = responses.accept
        if auth:
            made["auth"] = auth[0] if len(auth) == 1 else auth
        if responses.errors:
            made["errors"] = responses.errors
        return {key: value for key, value in made.items() if value != {}}

    # Examples.

    def _examples(
        self,
        request: OperationRequest,
        responses: Responses,
        input_schema: dict[str, JSON],
        output_schema: JSON,
        tell: Callable[[str, str, str], None],
    ) -> dict[str, JSON]:
        """`examples` and `mock`, from the examples of the description that match the schemas."""
        result: tuple[JSON, ...] = ()
        if responses.has_example:
            if output_schema is None or self._is_valid(output_schema, responses.example):
                result = (responses.example,)
            else:
                tell("repaired", "", "the example of the response does not match its schema and was removed")
        made: dict[str, JSON] = {}
        if request.examples:
            needed = input_schema.get("required")
            given = dict(request.examples)
            if all(name in given for name in (needed if isinstance(needed, list) else [])):
                if self._is_valid(input_schema, given):
                    made["examples"] = [{"args": given, **({"result": result[0]} if result else {})}]
                else:
                    tell(
                        "repaired", "", "the example of the request does not match its schema and was removed"
                    )
        if result:
            made["mock"] = {"result": escape_expressions(result[0])}
        return made

    @staticmethod
    def _is_valid(schema: Any, value: JSON) -> bool:
        return Validator(schema).judge(value)


def _texts(value: Any) -> list[str]:
    """The texts of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _listed(names: Sequence[str]) -> str:
    told = ", ".join(f"`{name}`" for name in names[:5])
    return told if len(names) <= 5 else f"{told} and {len(names) - 5} more"
