"""Convert descriptors of other systems to our form when they are read.

    PromptKit manifest      apiVersion, kind: Tool, metadata, spec
    PromptKit's flat forms  inputSchema, mockResponse, endpoint ...; mock_result, http, timeout_ms ...
    parameter list          parameters: [{name, type, required, ...}]
    function definition     parameters: {JSON Schema}; {type: function, function: {...}}
    MCP tool                name, inputSchema, annotations: {readOnlyHint ...}, icons, _meta, execution

All forms share one mechanism: each foreign key is converted to our keys, and every other key is kept and
checked like our own. Every part keeps its position, so problems point into the original file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from toolcrib.core.errors import ExpressionError, Problem, Severity, did_you_mean, near_misses
from toolcrib.core.model import JSON, Annotations, Origin
from toolcrib.core.protocols import Files
from toolcrib.core.schemas import envelope
from toolcrib.core.subschemas import closed_names, described_names, may_name_elsewhere
from toolcrib.expressions import escape_expressions
from toolcrib.expressions.values import list_of_names
from toolcrib.formats.promptkit.go_templates import GoTranslation, translate
from toolcrib.formats.promptkit.mode_blocks import (
    put_client,
    put_endpoint,
    put_http,
    put_parts,
    put_program,
)
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.files import read_text
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.schema.validation import Validator

_NAMES = {"src": "src", "mimeType": "mime_type", "mime_type": "mime_type", "sizes": "sizes", "theme": "theme"}


def convert_icon(icon: dict[str, JSON]) -> dict[str, JSON] | None:
    """The part of an icon that our form supports; None if it is not an icon."""
    parts = {_NAMES[key]: value for key, value in icon.items() if key in _NAMES}
    kept = {key: value for key, value in parts.items() if _judge(key).is_valid(value)}
    return kept if "src" in kept else None


@cache
def _judge(key: str) -> Validator:
    return Validator(envelope("descriptor")["properties"]["icons"]["items"]["properties"][key])


_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}

_PARAMETER_KEYS = {
    "default": "default",
    "allowed_values": "enum",
    "min_value": "minimum",
    "max_value": "maximum",
    "pattern": "pattern",
    "format": "format",
    "description": "description",
    "examples": "examples",
    "metadata": "x-metadata",
}

_LENGTHS = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}

_KNOWN_PARAMETER_KEYS = ("name", "type", "required", "item_type", "schema", *_PARAMETER_KEYS, *_LENGTHS)

_COUNTERPARTS = {
    **{keyword: key for key, keyword in _PARAMETER_KEYS.items()},
    **{keyword: key for key, keywords in _LENGTHS.items() for keyword in keywords},
    "items": "item_type",
}
"""Keyword of JSON Schema -> key of a parameter."""


def _hint_for_keyword(key: str) -> str:
    """How a parameter says what a keyword of JSON Schema says."""
    same = _COUNTERPARTS.get(key)
    return f"write `{same}`" if same else "write other keywords of JSON Schema under `schema`"


# Python's names of types, which parameter lists may use.
_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}

_LAST = {"annotations", "endpoint", "exec", "http", "mockTemplate", "mock_template", "mock_template_file"}

_GATHERED = {("annotations",), ("labels",), ("metadata",), ("mock",)}


def is_manifest(value: JSON, kind: str) -> bool:
    """Whether a document is a PromptKit manifest of a kind such as `Tool` or `Scenario`."""
    return _is_manifest(value) and isinstance(value, dict) and value["kind"] == kind


def is_tool(value: JSON) -> bool:
    """Whether a document is a PromptKit manifest of a tool."""
    return is_manifest(value, "Tool")


def is_arena(value: JSON) -> bool:
    """Whether a document is a PromptKit arena."""
    return is_manifest(value, "Arena")


def normalise(document: Document, files: Files | None = None) -> tuple[list[Document], list[Problem]] | None:
    """Convert a document of another system to our form.

    Args:
        document: The original document.
        files: The files that it may refer to.

    Returns:
        The documents in our form, if it describes a tool, and its problems with positions; None if the
        document has no known foreign form.
    """
    for detect, convert in _FORMS:
        if detect(document.value):
            return convert(document, files)
    return None


def is_tool_manifest(value: JSON) -> bool:
    """Whether a document is meant to be a PromptKit manifest of any kind."""
    return _is_manifest(value) or _lacks_version(value)


def read_manifest(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """Convert the tools of a manifest."""
    value = document.value
    assert isinstance(value, dict)  # noqa: S101 -- `is_tool_manifest` was true
    if _is_manifest(value):
        return _manifest(document, value, files)
    message = f"missing `apiVersion` of a manifest of `kind: {value['kind']}`"
    hint = "add `apiVersion: promptkit.altairalabs.ai/v1alpha1`"
    missing = Problem(code="missing_key", message=message, pointer="/apiVersion", hint=hint)
    return [], [document.place(missing)]


def _is_manifest(value: JSON) -> bool:
    return isinstance(value, dict) and "apiVersion" in value and isinstance(value.get("kind"), str)


_KINDS = frozenset(("Arena", "Persona", "PromptConfig", "Provider", "Scenario", "Tool"))
"""Kinds of PromptKit manifests."""


def _lacks_version(value: JSON) -> bool:
    # A common mistake. Without this check the file would be ignored silently.
    if not isinstance(value, dict):
        return False
    kind, alone = value.get("kind"), value.keys().isdisjoint(("apiVersion", "name"))
    return alone and isinstance(kind, str) and kind in _KINDS and isinstance(value.get("spec"), dict)


def is_function(value: JSON) -> bool:
    """Whether a document is a function definition: `{type: function, function: {...}}`."""
    return (
        isinstance(value, dict)
        and value.get("type") == "function"
        and isinstance(value.get("function"), dict)
    )


def read_function(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """Convert a function definition."""
    value: Any = document.value
    form = _DescriptorBuilder(document, "/function", files)
    form.check_rest(value, ("type", "function"), "")
    return form.of(value["function"])


def has_foreign_keys(value: JSON) -> bool:
    """Whether a document is a descriptor with keys that only other systems have."""
    if not isinstance(value, dict):
        return False
    annotations = value.get("annotations")
    hinted = isinstance(annotations, dict) and any(key in _HINTS for key in annotations)
    foreign = hinted or _has_program(value) or _has_http(value)
    return "name" in value and (foreign or any(key in FOREIGN and key != "http" for key in value))


def _has_http(value: dict[str, Any]) -> bool:
    """Whether a descriptor has a block `http` of PromptKit: the mode is always written, and no key is one of `live` alone."""
    block = value.get("http")
    own = isinstance(block, dict) and not _LIVE_ONLY.isdisjoint(block)
    return "http" in value and value.get("mode") == "live" and not own


_LIVE_ONLY = frozenset(("auth", "body", "cookies", "errors", "pagination", "query", "select"))
"""Keys of our block `live` that a block `http` of PromptKit does not have."""


def _has_program(value: dict[str, Any]) -> bool:
    """Whether a descriptor has a block `exec` of PromptKit: its command is a text, and the mode is always written."""
    block = value.get("exec")
    return (
        isinstance(block, dict)
        and isinstance(block.get("command"), str)
        and value.get("mode") in ("exec", "server")
    )


def read_foreign_keys(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """Convert a descriptor with keys of other systems."""
    value: Any = document.value
    return _DescriptorBuilder(document, "", files).of(value)


_FORMS = (
    (is_tool_manifest, read_manifest),
    (is_function, read_function),
    (has_foreign_keys, read_foreign_keys),
)


def _manifest(
    document: Document, value: dict[str, Any], files: Files | None
) -> tuple[list[Document], list[Problem]]:
    if value["kind"] == "Arena":
        from toolcrib.formats.promptkit.arenas import tools_of  # noqa: PLC0415 -- most projects have no arena

        return tools_of(document, files)
    if value["kind"] != "Tool":
        message = f"a manifest of kind `{value['kind']}` is not a tool, and no arena refers to it"
        hint = "run the folder of its arena with `-k NAME`" if value["kind"] == "Scenario" else ""
        problem = Problem(code="other_kind", message=message, pointer="/kind", hint=hint, severity="notice")
        return [], [document.place(problem)]
    spec, metadata = value.get("spec"), value.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        missing = "spec" if not isinstance(spec, dict) else "metadata"
        message = f"`{missing}` of a manifest of kind `Tool` must be an object"
        return [], [document.place(Problem(code="missing_key", message=message, pointer=f"/{missing}"))]
    form = _DescriptorBuilder(document, "/spec", files)
    form.check_rest(value, ("apiVersion", "kind", "metadata", "spec"), "")
    form.check_rest(metadata, ("name", "namespace", "labels", "annotations"), "/metadata")
    if "name" in spec and spec["name"] != metadata.get("name"):
        message = f"`metadata.name` is `{metadata.get('name')}` and `spec.name` is `{spec['name']}`; the first one is used"
        form.problem("name_differs", message, "/spec/name", severity="warning")
    for key in ("name", "labels"):
        if key in metadata:
            form.put((key,), metadata[key], f"/metadata/{key}")
    for key in ("namespace", "annotations"):
        if key in metadata:
            form.put(("metadata", key), metadata[key], f"/metadata/{key}")
    return form.of({key: item for key, item in spec.items() if key != "name"})


class _DescriptorBuilder:
    """Converts one document."""

    def __init__(self, document: Document, place: str, files: Files | None) -> None:
        self._document = document
        self._place = place
        self._files = files
        self._value: dict[str, Any] = {}
        self._moves: dict[str, str] = {"": place} if place else {}
        self._problems: list[Problem] = []
        self._milliseconds: int | None = None
        self._runs_program = False

    def of(self, source: dict[str, Any]) -> tuple[list[Document], list[Problem]]:
        """Convert every key, and return the documents and the problems."""
        self._runs_program = _has_program(source)
        # Last: annotations have a title that `title` overrides, and calls and templates need the input
        # schema.
        for key, item in sorted(source.items(), key=lambda entry: entry[0] in _LAST):
            place = self._place + pointer_of((key,))
            turn = FOREIGN.get(key) or SHARED.get(key)
            if turn is None or not turn(self, item, place):
                self.put((key,), item, place)
        self._settle_mode()
        return [self._document.moved(self._value, self._moves)], [
            self._document.place(problem) for problem in self._problems
        ]

    def put(self, path: tuple[str, ...], item: JSON, place: str) -> None:
        """Set a part of the new document and record its origin; objects in `_GATHERED` are merged."""
        holder = self._value
        for key in path[:-1]:
            holder = holder.setdefault(key, {})
            if not isinstance(holder, dict):
                self.problem("wrong_type", f"`{key}` must be an object here", place)
                return
        present = holder.get(path[-1])
        if isinstance(present, dict) and isinstance(item, dict) and path in _GATHERED:
            for key, part in item.items():
                self.put((*path, key), part, place + pointer_of((key,)))
            return
        for depth in range(1, len(path)):
            self._moves.setdefault(pointer_of(path[:depth]), place)
        if path[-1] in holder:
            self.problem("duplicate_key", f"duplicate `{'.'.join(path)}`, here in another form", place)
            return
        # A copy, because later keys are merged into it.
        holder[path[-1]] = dict(item) if isinstance(item, dict) else item
        self._moves[pointer_of(path)] = place

    def note(self, path: tuple[str, ...], place: str) -> None:
        """Record the origin of a part that another `put` has set."""
        self._moves[pointer_of(path)] = place

    def problem(
        self, code: str, message: str, place: str, *, hint: str = "", severity: Any = "error"
    ) -> None:
        """Report a problem at a position of the original document."""
        self._problems.append(
            Problem(code=code, message=message, pointer=place, hint=hint, severity=severity)
        )

    def check_rest(
        self,
        value: dict[str, Any],
        known: tuple[str, ...],
        place: str,
        otherwise: Callable[[str], str] = lambda _key: "",
    ) -> None:
        # A key without a meaning is refused, because dropping it silently would hide a typing error.
        for key in value:
            if key not in known:
                message = f"unknown key `{key}`"
                hint = did_you_mean(key, known) or otherwise(key)
                self.problem("unknown_key", message, place + pointer_of((key,)), hint=hint)

    def _settle_mode(self) -> None:
        # PromptKit needs no `mode` for a mock. A mode without a block gets an empty one, as our schema
        # requires a block.
        mode = self._value.get("mode")
        if mode is None and "mock" in self._value:
            self._value["mode"] = "mock"
        elif isinstance(mode, str) and mode not in self._value:
            self._value[mode] = {}
            self.note((mode,), self._moves["/mode"])

    # Foreign keys. Each method returns whether it converted the item; other items are kept unchanged.

    def input_schema(self, item: JSON, place: str) -> bool:
        self.put(("input_schema",), item, place)
        return True

    def output_schema(self, item: JSON, place: str) -> bool:
        # An empty schema means the same as a missing one, but would declare structured content over MCP.
        if item != {}:
            self.put(("output_schema",), item, place)
        return True

    def mode(self, item: JSON, place: str) -> bool:
        if item == "server":
            self.put(("mode",), "exec", place)
            self.put(("exec", "lifetime"), "runtime", place)
        return item in ("", "server")

    def program(self, item: JSON, place: str) -> bool:
        if not isinstance(item, dict) or not self._runs_program:
            return False
        stays = "exec" in self._value
        put_program(self, item, place, self._document.source, self._files, stays=stays)
        return True

    def timeout(self, item: JSON, place: str) -> bool:
        # PromptKit uses the default for zero and less.
        if isinstance(item, bool) or not isinstance(item, int):
            self.problem("wrong_type", "a timeout in milliseconds must be a whole number", place)
        elif item > 0:
            self._milliseconds = item
            self.put(("timeout",), f"{item}ms", place)
        return True

    def shorten_timeout(self, milliseconds: int, place: str) -> None:
        """Limit a call to this time; a shorter timeout is kept."""
        if "timeout" not in self._value or (self._milliseconds or 0) > milliseconds:
            self._value["timeout"] = f"{milliseconds}ms"
            self._moves["/timeout"] = place

    def mock_result(self, item: JSON, place: str) -> bool:
        # Mock results of PromptKit are literal, so braces in them must not become expressions.
        self.put(("mock", "result"), escape_expressions(item), place)
        return True

    def mock_result_file(self, item: JSON, place: str) -> bool:
        self.put(("mock", "result_file"), item, place)
        return True

    def mock_template(self, item: JSON, place: str) -> bool:
        if not isinstance(item, str):
            self.problem("wrong_type", "a template must be a text", place)
            return self._stand_in(place)
        try:
            present = [*_present(self._value.get("input_schema", True))]
            translated = translate(item, lenient=True, present=present)
        except ExpressionError as error:
            self.problem(error.code, error.message, place, hint=error.hint)
            return self._stand_in(place)
        strays = self._strays(translated, place)
        self._problems += strays
        if any(stray.severity == "error" for stray in strays):
            return self._stand_in(place)
        self.put(("mock", "template"), translated.text, place)
        return True

    def _strays(self, template: GoTranslation, place: str) -> list[Problem]:
        # Like our own templates: an argument that the schema excludes is an error, one that it only omits is
        # a notice.
        schema = self._value.get("input_schema", True)
        described = [f".{name}" for name in described_names(schema)]
        severity: Severity = "notice" if closed_names(schema) is None else "error"
        # Without any property, or with patterns or references, a name that is not listed may still be valid.
        if severity == "notice" and (not described or may_name_elsewhere(schema)):
            return []
        there = list_of_names(sorted(described), 20) if described else "none"
        return [
            Problem(
                code="unknown_argument",
                message=f"line {line} of the Go template: unknown argument `.{name}`; the input schema declares {there}",
                pointer=place,
                hint=did_you_mean(f".{name}", described) or "add it to the input schema",
                severity=severity,
            )
            for name, line in template.arguments.items()
            if f".{name}" not in described
        ]

    def _stand_in(self, place: str) -> bool:
        # An empty template, so that the refused one is not reported as missing, too.
        self.put(("mock", "template"), "", place)
        return True

    def mock_template_file(self, item: JSON, place: str) -> bool:
        if not isinstance(item, str):
            self.problem("wrong_type", "the name of a file must be a text", place)
            return self._stand_in(place)
        before = len(self._problems)
        text = read_text(Origin(files=self._files), item, place, self._problems)
        if len(self._problems) > before:
            return self._stand_in(place)
        return self.mock_template(text, place)

    def mock_parts(self, item: JSON, place: str) -> bool:
        if not isinstance(item, list):
            self.problem("wrong_type", "`mock_parts` must be a list", place)
            return self._stand_in(place)
        put_parts(self, item, place)
        return True

    def endpoint(self, item: JSON, place: str) -> bool:
        put_endpoint(self, item, place)
        return True

    def http(self, item: JSON, place: str) -> bool:
        put_http(self, item, self._value.get("input_schema"), place)
        return True

    def client(self, item: JSON, place: str) -> bool:
        if isinstance(item, dict):
            put_client(self, item, place)
        return isinstance(item, dict)

    def annotations(self, item: JSON, place: str) -> bool:
        """Convert MCP's hints. Annotations that do not describe the effects of a tool are kept in the metadata."""
        if not isinstance(item, dict):
            return False
        for key, value in item.items():
            where = place + pointer_of((key,))
            if key in _HINTS:
                if value is not None:
                    self.put(("annotations", _HINTS[key]), value, where)
            elif key == "title" and "title" not in self._value:
                if value is not None:
                    self.put(("title",), value, where)
            elif key == "title" and value in (None, self._value["title"]):
                continue
            # Our own names and near misses go to the checks for our keys, which report typing errors.
            elif key in Annotations._fields or near_misses(key, _HINTS):
                self.put(("annotations", key), value, where)
            else:
                self.put(("metadata", "annotations", key), value, where)
        return True

    def icons(self, item: JSON, place: str) -> bool:
        """Convert MCP's icons. If one has keys that ours lack, the originals are kept in the metadata."""
        if not isinstance(item, list):
            return False
        icons = [icon for icon in item if isinstance(icon, dict)]
        ours = [own for icon in icons if (own := convert_icon(icon)) is not None]
        if ours:
            self.put(("icons",), [*ours], place)
        if len(icons) < len(item) or sum(map(len, ours)) < sum(map(len, icons)):
            self.put(("metadata", "icons"), item, place)
        return True

    def metadata(self, key: str) -> Callable[[JSON, str], bool]:
        def keep(item: JSON, place: str) -> bool:
            self.put(("metadata", key), item, place)
            return True

        return keep

    def parameters(self, item: JSON, place: str) -> bool:
        if not isinstance(item, list):
            return self.input_schema(item, place)
        properties: dict[str, JSON] = {}
        required: list[JSON] = []
        for index, entry in enumerate(item):
            where = f"{place}/{index}"
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str):
                self.problem("missing_key", "a parameter must be an object with a `name`", where)
                continue
            if name in properties:
                self.problem("duplicate_name", f"duplicate parameter `{name}`", f"{where}/name")
                continue
            properties[name] = self._parameter(entry, ("input_schema", "properties", name), where)
            if entry.get("required") is True:
                required.append(name)
        schema: dict[str, JSON] = {"type": "object", "properties": properties, "additionalProperties": False}
        self.put(("input_schema",), {**schema, "required": required} if required else schema, place)
        return True

    def _parameter(self, entry: dict[str, Any], path: tuple[str, ...], place: str) -> JSON:
        self.check_rest(entry, _KNOWN_PARAMETER_KEYS, place, _hint_for_keyword)
        self.note(path, place)
        schema: dict[str, Any] = dict(entry["schema"]) if isinstance(entry.get("schema"), dict) else {}
        if "schema" in entry and not isinstance(entry["schema"], dict):
            self.problem("wrong_type", "`schema` must be an object", f"{place}/schema")
        if not isinstance(entry.get("required", False), bool):
            self.problem("wrong_type", "`required` must be true or false", f"{place}/required")
        kind = entry.get("type")
        if kind is not None and kind != "any":
            schema["type"] = _TYPES.get(kind, kind) if isinstance(kind, str) else kind
            self.note((*path, "type"), f"{place}/type")
        names = dict(_PARAMETER_KEYS)
        names |= {old: new[schema.get("type") == "array"] for old, new in _LENGTHS.items()}
        for old, new in names.items():
            if old in entry:
                schema[new] = entry[old]
                self.note((*path, new), f"{place}/{old}")
        item_type = entry.get("item_type", "any")
        if isinstance(item_type, dict):
            # A parameter again, whose `name` and `required` have no meaning for an item.
            schema["items"] = self._parameter(item_type, (*path, "items"), f"{place}/item_type")
        elif item_type != "any":
            schema["items"] = {
                "type": _TYPES.get(item_type, item_type) if isinstance(item_type, str) else item_type
            }
            self.note((*path, "items"), f"{place}/item_type")
        return schema


def _present(schema: JSON) -> Iterator[str]:
    """The arguments that every call has, and that are never null."""
    required = schema.get("required") if isinstance(schema, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(required, list) and isinstance(properties, dict):
        for name in (name for name in required if isinstance(name, str)):
            described = properties.get(name)
            if isinstance(described, dict) and described.get("type") in _TYPES.values():
                yield name


_Turn = Callable[[_DescriptorBuilder, JSON, str], bool]


def _keep(key: str) -> _Turn:
    return lambda form, item, place: form.metadata(key)(item, place)


FOREIGN: dict[str, _Turn] = {
    "inputSchema": _DescriptorBuilder.input_schema,
    "outputSchema": _DescriptorBuilder.output_schema,
    "timeoutMs": _DescriptorBuilder.timeout,
    "timeout_ms": _DescriptorBuilder.timeout,
    "mockResponse": _DescriptorBuilder.mock_result,
    "mock_result": _DescriptorBuilder.mock_result,
    "mock_result_file": _DescriptorBuilder.mock_result_file,
    "mockTemplate": _DescriptorBuilder.mock_template,
    "mock_template": _DescriptorBuilder.mock_template,
    "mock_template_file": _DescriptorBuilder.mock_template_file,
    "mock_parts": _DescriptorBuilder.mock_parts,
    "endpoint": _DescriptorBuilder.endpoint,
    "http": _DescriptorBuilder.http,
    "parameters": _DescriptorBuilder.parameters,
    "_meta": _keep("_meta"),
    "execution": _keep("execution"),
}
"""Keys that only other systems have: one of them next to `name` makes a document foreign."""

SHARED: dict[str, _Turn] = {
    "annotations": _DescriptorBuilder.annotations,
    "client": _DescriptorBuilder.client,
    "exec": _DescriptorBuilder.program,
    "icons": _DescriptorBuilder.icons,
    "mode": _DescriptorBuilder.mode,
    "output_schema": _DescriptorBuilder.output_schema,
    "strict": _keep("strict"),
    # A flat function definition has `type: function` next to `name`.
    "type": lambda _form, item, _place: item == "function",
}
"""Keys that are converted only in a foreign document."""


_MANIFEST_KEYS = (
    "name",
    "description",
    "input_schema",
    "output_schema",
    "mode",
    *(key for key in FOREIGN if key.startswith("mock_")),
    "timeout_ms",
    "http",
    "exec",
)
"""Keys in the `spec` of a PromptKit manifest."""

_GO_TEMPLATES = ("mockTemplate", "mock_template", "mock_template_file")
"""Keys whose value is a Go template, or the name of a file with one."""

_OF_GO = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "for": "range",
    "length": "len",
    "[]": "index",
}
"""Operation in our expressions -> name in Go templates."""

_OPERATION = re.compile(r"`([^`]+)`(?= needs)")

_OTHER_KEYS = ("name", "title", "description", *FOREIGN, *SHARED)


def reword_problems(document: Document, problems: Iterable[Problem]) -> list[Problem]:
    """Adapt problems to the foreign form: hints for unknown keys list the keys of the other system.

    Args:
        document: The original document.
        problems: Its problems, with pointers into the original document.
    """
    manifest = is_tool(document.value)
    wrapped = isinstance(document.value, dict) and isinstance(document.value.get("function"), dict)
    place = "/spec" if manifest else "/function" if wrapped else ""
    known = _MANIFEST_KEYS if manifest else _OTHER_KEYS
    told = []
    for problem in problems:
        holder, _, key = problem.pointer.rpartition("/")
        if key in _GO_TEMPLATES:
            message, hint = reword_go_problem(problem.message, problem.hint)
            told.append(problem._replace(message=message, hint=hint))
        elif problem.code == "unknown_key" and holder == place:
            hint = did_you_mean(key, known) or f"use one of {', '.join(f'`{name}`' for name in known)}"
            told.append(problem._replace(hint=hint))
        else:
            told.append(problem)
    return told


def original_pointer(origin: Origin, pointer: str) -> str:
    """The pointer to a part of a tool in its original document."""
    place = origin.locate  # for a tool from the cache, a function that reads its document again
    document = getattr(place, "__self__", None) or getattr(place, "document", None)
    return document.original_pointer(pointer) or pointer if isinstance(document, Document) else pointer


def is_go_template(origin: Origin, pointer: str) -> bool:
    """Whether the part at a JSON Pointer was a Go template in the original document."""
    return original_pointer(origin, pointer).rpartition("/")[2] in _GO_TEMPLATES


def reword_go_problem(message: str, hint: str) -> tuple[str, str]:
    """Use Go's names in a problem of a translated template, and drop hints that only apply to our templates."""
    told = _OPERATION.sub(lambda found: f"`{_OF_GO.get(found[1], found[1])}`", message)
    if told != message:
        hint = "declare the type of the argument in the input schema, and compare or read it as that type"
    # A hint with a filter (`| default`) would not work in a Go template.
    return told, "" if "| " in hint else hint
