"""Lists of tools for model providers and of MCP, as they stand in requests, answers and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.core.server_config import copied_keys
from toolcrib.core.text import json_equal
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.imports.sources import elements
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.documents.positions import pointer_of

_FOREIGN: Final = re.compile("[^A-Za-z0-9_.-]")
_LONGEST: Final = 128


class ListedTool(NamedTuple):
    """An element of a list of tools.

    Attributes:
        pointer: JSON Pointer of its definition in the source.
        name: Its name; empty if it has none.
        definition: The definition.
    """

    pointer: str
    name: str
    definition: Mapping[str, Any]


class ToolList:
    """The tools of a list while they are converted: keys, names, refusals and remarks."""

    def __init__(self) -> None:
        self._tools: dict[str, ImportedTool] = {}
        self._sources: dict[str, Mapping[str, Any]] = {}
        self._names: set[str] = set()
        self.refused: list[ImportRefusal] = []
        self.remarks: list[ImportRemark] = []

    def key_of(self, tool: ListedTool) -> str | None:
        """The key of the next tool: its name, numbered if another tool has it; None if it is a copy of an earlier one."""
        number, key = 1, tool.name
        while key in self._sources:
            if json_equal(self._sources[key], tool.definition):
                return None
            number += 1
            key = f"{tool.name}#{number}"
        self._sources[key] = tool.definition
        return key

    def add(self, key: str, tool: ListedTool, descriptor: Mapping[str, Any]) -> None:
        """Add a tool; its name is made valid and unique."""
        plain = _FOREIGN.sub("_", tool.name)[:_LONGEST]
        plain = plain if plain[0].isalpha() or plain[0] == "_" else f"_{plain}"[:_LONGEST]
        name, number = plain, 1
        while name in self._names:
            number += 1
            name = f"{plain[: _LONGEST - len(str(number)) - 1]}_{number}"
        if name != tool.name:
            why = f": another tool is named `{plain}`" if number > 1 else ""
            self.repaired(key, f"{tool.pointer}/name", f"the tool is named `{name}` here{why}")
        self._names.add(name)
        self._tools[key] = ImportedTool(key, {"name": name, **descriptor})

    def refuse(self, key: str, reason: str, pointer: str, message: str) -> None:
        """Leave out a tool."""
        self.refused.append(ImportRefusal(key, reason, pointer, message))

    def lost(self, key: str, pointer: str, message: str) -> None:
        """Report a part without a counterpart."""
        self.remarks.append(ImportRemark("lost", key, pointer, message))

    def repaired(self, key: str, pointer: str, message: str) -> None:
        """Report a part that was invalid."""
        self.remarks.append(ImportRemark("repaired", key, pointer, message))

    def result(self) -> ImportedTools:
        """The tools."""
        return ImportedTools([*self._tools.values()], self.refused, self.remarks)


def tools_of_openai(value: JSON) -> ImportedTools:
    """The functions of a list for OpenAI: of chat completions, of responses, and the older `functions`."""
    tools = ToolList()
    for pointer, item in elements(value):
        _openai(tools, pointer, item)
    return tools.result()


def _openai(tools: ToolList, pointer: str, item: JSON) -> None:
    if not isinstance(item, dict):
        tools.refuse(pointer, "not_a_tool", pointer, "it is not an object")
        return
    kind = item.get("type", "function")
    function = item.get("function")
    place, definition = (f"{pointer}/function", function) if isinstance(function, dict) else (pointer, item)
    if kind != "function":
        _hosted(tools, pointer, item, kind)
        return
    known = ("name", "description", "parameters", "strict", "type")
    _convert(tools, place, definition, "parameters", known)


def _hosted(tools: ToolList, pointer: str, item: Mapping[str, Any], kind: Any) -> None:
    name = item.get("name")
    key = name if isinstance(name, str) and name else str(kind)
    message = f"a tool of type `{kind}` is run by the provider and has no parameters that could be described"
    tools.refuse(key, "provider_tool", pointer, message)


def tools_of_anthropic(value: JSON) -> ImportedTools:
    """The tools of a list for Anthropic's Messages API."""
    tools = ToolList()
    for pointer, item in elements(value):
        if not isinstance(item, dict):
            tools.refuse(pointer, "not_a_tool", pointer, "it is not an object")
        elif item.get("type") not in (None, "custom"):
            _hosted(tools, pointer, item, item["type"])
        else:
            known = ("name", "description", "input_schema", "strict", "type", "input_examples")
            _convert(tools, pointer, item, "input_schema", known)
    return tools.result()


def _convert(
    tools: ToolList, pointer: str, definition: Mapping[str, Any], schema: str, known: Sequence[str]
) -> None:
    """Convert a definition whose schema is a JSON Schema."""
    tool = _named(tools, pointer, definition)
    key = None if tool is None else tools.key_of(tool)
    if tool is None or key is None:
        return
    descriptor: dict[str, Any] = {}
    if definition.get("description"):
        descriptor["description"] = definition["description"]
    descriptor["input_schema"] = _or_empty(definition.get(schema))
    examples = definition.get("input_examples")
    if isinstance(examples, list) and "input_examples" in known:
        descriptor["examples"] = [{"args": each} for each in examples]
    if isinstance(definition.get("strict"), bool):
        descriptor["metadata"] = {"strict": definition["strict"]}
    for rest in definition:
        if rest not in known:
            tools.lost(key, f"{pointer}{pointer_of((rest,))}", f"`{rest}` has no counterpart in a descriptor")
    tools.add(key, tool, descriptor)


def _named(tools: ToolList, pointer: str, definition: Mapping[str, Any]) -> ListedTool | None:
    name = definition.get("name")
    if isinstance(name, str) and name.strip():
        return ListedTool(pointer, name, definition)
    tools.refuse(pointer or "/", "no_name", pointer, "it has no `name`")
    return None


def _or_empty(schema: Any) -> Any:
    # Providers take a tool without parameters as one that has none.
    return {"type": "object", "properties": {}} if schema is None or schema == {} else schema


def tools_of_gemini(value: JSON) -> ImportedTools:
    """The function declarations of a list for Gemini."""
    tools = ToolList()
    for pointer, item in elements(value):
        if not isinstance(item, dict):
            tools.refuse(pointer, "not_a_tool", pointer, "it is not an object")
            continue
        grouped = False
        for group in ("functionDeclarations", "function_declarations"):
            declarations = item.get(group)
            for index, declaration in enumerate(declarations if isinstance(declarations, list) else ()):
                grouped = True
                _gemini(tools, f"{pointer}/{group}/{index}", declaration)
        if not grouped and "name" in item:
            _gemini(tools, pointer, item)
        elif not grouped:
            kind = next(iter(item), "")
            tools.refuse(kind or pointer, "provider_tool", pointer, f"`{kind}` is run by the provider")
    return tools.result()


_GEMINI_KEYS: Final = ("name", "description", "parameters", "response")
_GEMINI_SCHEMAS: Final = {
    "parameters": ("parametersJsonSchema", "parameters_json_schema"),
    "response": ("responseJsonSchema", "response_json_schema"),
}


def _gemini(tools: ToolList, pointer: str, declaration: JSON) -> None:
    if not isinstance(declaration, dict):
        tools.refuse(pointer, "not_a_tool", pointer, "it is not an object")
        return
    tool = _named(tools, pointer, declaration)
    key = None if tool is None else tools.key_of(tool)
    if tool is None or key is None:
        return
    descriptor: dict[str, Any] = {}
    if declaration.get("description"):
        descriptor["description"] = declaration["description"]
    known = [*_GEMINI_KEYS, "behavior"]
    for part, own in (("parameters", "input_schema"), ("response", "output_schema")):
        plain = next((name for name in _GEMINI_SCHEMAS[part] if declaration.get(name) is not None), "")
        known += _GEMINI_SCHEMAS[part]
        if plain:
            descriptor[own] = declaration[plain]
        elif declaration.get(part) is not None:
            descriptor[own] = schema_of_gemini(declaration[part])
    descriptor["input_schema"] = _or_empty(descriptor.get("input_schema"))
    if declaration.get("behavior") not in (None, "UNSPECIFIED", "BLOCKING"):
        tools.lost(
            key, f"{pointer}/behavior", f"the behaviour `{declaration['behavior']}` has no counterpart"
        )
    for rest in declaration:
        if rest not in known:
            tools.lost(key, f"{pointer}{pointer_of((rest,))}", f"`{rest}` has no counterpart in a descriptor")
    tools.add(key, tool, descriptor)


_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_CAMEL: Final = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
}


def schema_of_gemini(schema: Any) -> Any:
    """Gemini's form of a schema (types in capitals, `nullable`, numbers as texts) as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    members: dict[str, Any] = schema
    said = {_CAMEL.get(key, key): value for key, value in members.items()}
    written: dict[str, Any] = {}
    nullable = said.pop("nullable", False) is True
    order = said.pop("propertyOrdering", None)
    for key, value in said.items():
        converted = _gemini_member(key, value)
        if converted is not None:
            name, item = converted
            written[name] = item
    properties = written.get("properties")
    if isinstance(order, list) and isinstance(properties, dict):
        places = {name: place for place, name in enumerate(order)}
        names = sorted(properties, key=lambda name: places.get(name, len(places)))
        written["properties"] = {name: properties[name] for name in names}
    return _nullable(written) if nullable else written


def _gemini_member(key: str, value: Any) -> tuple[str, Any] | None:
    if key == "type" and isinstance(value, str):
        return None if value == "TYPE_UNSPECIFIED" else ("type", value.lower())
    if key == "type" and isinstance(value, list):
        return "type", [each.lower() if isinstance(each, str) else each for each in value]
    if key in ("properties", "$defs", "defs") and isinstance(value, dict):
        return key, {name: schema_of_gemini(part) for name, part in value.items()}
    if key in ("anyOf", "prefixItems") and isinstance(value, list):
        return key, [schema_of_gemini(part) for part in value]
    if key in ("items", "additionalProperties"):
        return key, schema_of_gemini(value)
    if key in _COUNTS and isinstance(value, str) and value.isdecimal():
        return key, int(value)  # JSON of Protocol Buffers writes 64-bit integers as texts
    if key == "example":
        return "examples", [value]
    if key == "format" and value == "enum":
        return None
    return key, value


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        schema = {**schema, "type": [schema["type"], "null"]}
    elif isinstance(schema.get("anyOf"), list):
        schema = {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema = {**schema, "enum": [*schema["enum"], None]}
    return schema


_MCP_KEYS: Final = (
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "_meta",
    "execution",
)


def tools_of_mcp(value: JSON) -> ImportedTools:
    """The tools of a saved answer of `tools/list`, with everything that it declares about them."""
    tools = ToolList()
    for pointer, item in elements(value):
        if not isinstance(item, dict):
            tools.refuse(pointer, "not_a_tool", pointer, "it is not an object")
            continue
        tool = _named(tools, pointer, item)
        key = None if tool is None else tools.key_of(tool)
        if tool is None or key is None:
            continue
        kept = {name: item[name] for name in ("_meta", "execution") if item.get(name) is not None}
        definition = json.dumps({"name": "tool", **copied_keys(item), **kept})
        (document, *_), problems = _converted(definition)
        errors = [problem for problem in problems if problem.severity == "error"]
        if document is None or errors:
            message = "; ".join(f"{each.message} ({each.pointer or 'the whole tool'})" for each in errors[:3])
            tools.refuse(key, "invalid_definition", pointer, message)
            continue
        for rest in item:
            if rest != "name" and rest not in _MCP_KEYS:
                tools.lost(
                    key, f"{pointer}{pointer_of((rest,))}", f"`{rest}` has no counterpart in a descriptor"
                )
        tools.add(key, tool, {name: part for name, part in document.items() if name != "name"})
    return tools.result()


def _converted(definition: str) -> tuple[list[dict[str, Any] | None], list[Any]]:
    documents, problems = parse_documents("tool.json", definition)
    converted = normalise(documents[0]) if documents else None
    documents, problems = converted if converted is not None else (documents, problems)
    value = documents[0].value if documents else None
    return [value if isinstance(value, dict) else None], [*problems]


TOOL_LISTS: Final[Mapping[str, Callable[[JSON], ImportedTools]]] = {
    "openai": tools_of_openai,
    "anthropic": tools_of_anthropic,
    "gemini": tools_of_gemini,
    "mcp": tools_of_mcp,
}
"""Kind -> its converter."""
