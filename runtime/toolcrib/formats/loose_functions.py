"""Function lists in the loose dialects of benchmarks, repaired to JSON Schema. Each repair is reported.

The dialects write types of Python, Java and JavaScript (`dict`, `float`, `HashMap<String, Integer>`, `any`), put `required` into a
property or among the properties, or leave `properties` out. The Berkeley Function Calling Leaderboard has most of these forms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from toolcrib.core.errors import DocumentError
from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.formats.imported_tools import ImportedTools
from toolcrib.formats.imports.sources import elements
from toolcrib.formats.tool_lists import ListedTool, ToolList
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.schema.validation import Validator, check_schema

_STANDARD: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))

_NAMES: Final = {
    "object": "dict dictionary hashmap hashtable map mapping treemap linkedhashmap jsonobject json struct record",
    "array": "list tuple set frozenset sequence iterable arraylist linkedlist vector queue deque stack collection",
    "string": "str text char character charsequence bytes date datetime time timestamp uuid url uri path",
    "number": "float double decimal bigdecimal complex real numeric",
    "integer": "int int32 int64 uint long short byte bigint biginteger",
    "boolean": "bool",
    "null": "none nonetype nil undefined void",
}
_TYPES: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""Name of a type in some programming language, in small letters -> the type of JSON Schema."""

_ANY: Final = frozenset(("any", "unknown", "mixed", "function", "callable", "promise", "regexp", "generic"))
"""Names of types that say nothing about the JSON value."""

_LONGEST_NUMBER: Final = 40
"""Maximum length of a number that is written as a text."""

_GENERIC: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*[\[<(](.*)[\])>]\s*", re.DOTALL)

_PARAMETERS: Final = ("parameters", "input_schema", "inputSchema", "arguments", "args", "params", "signature")
_RESULTS: Final = ("response", "returns", "output", "output_schema", "outputSchema", "return")

_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_KEYWORDS: Final = frozenset(
    f"{' '.join((*_MAPS, *_LISTS, *_ONE, *_NUMBERS, *_COUNTS))} type title description required enum const default examples"
    " format pattern uniqueItems $ref $schema $id nullable deprecated".split()
)


def tools_of_functions(value: JSON) -> ImportedTools:
    """The functions of a list; entries of a benchmark hold theirs under `function` or `functions`."""
    tools = ToolList()
    for pointer, function in _functions(value):
        _convert(tools, pointer, function)
    return tools.result()


def _functions(value: JSON) -> Iterator[tuple[str, JSON]]:
    for pointer, item in elements(value):
        inner = "function" if isinstance(item, dict) and "function" in item else "functions"
        part = item.get(inner) if isinstance(item, dict) else None
        if isinstance(part, list):
            for index, function in enumerate(part):
                yield from _unwrapped(f"{pointer}/{inner}/{index}", function)
        elif isinstance(part, dict):
            yield f"{pointer}/{inner}", part
        else:
            yield pointer, item


def _unwrapped(pointer: str, item: JSON) -> Iterator[tuple[str, JSON]]:
    part = item.get("function") if isinstance(item, dict) else None
    yield (f"{pointer}/function", part) if isinstance(part, dict) else (pointer, item)


def _convert(tools: ToolList, pointer: str, function: JSON) -> None:
    if not isinstance(function, dict):
        tools.refuse(pointer or "/", "not_a_tool", pointer, "it is not an object")
        return
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        tools.refuse(pointer or "/", "no_name", pointer, "it has no `name`")
        return
    tool = ListedTool(pointer, name, function)
    key = tools.key_of(tool)
    if key is None:
        return
    schema = _Repair(tools, key)
    descriptor: dict[str, Any] = {}
    description = function.get("description")
    if description:
        descriptor["description"] = description if isinstance(description, str) else _text(description)
    known = {"name", "description", "type", "strict", *_PARAMETERS, *_RESULTS}
    part = next((each for each in _PARAMETERS if function.get(each) is not None), "parameters")
    if part not in ("parameters", "input_schema", "inputSchema"):
        tools.repaired(key, f"{pointer}/{part}", f"`{part}` is read as `parameters`")
    descriptor["input_schema"] = schema.arguments(function.get(part), f"{pointer}/{part}")
    if function.get("required") and isinstance(function["required"], list):
        known.add("required")
        schema.outer_required(descriptor["input_schema"], function["required"], f"{pointer}/required")
    result = next((each for each in _RESULTS if isinstance(function.get(each), dict)), "")
    if result and function[result]:
        descriptor["output_schema"] = schema.schema(function[result], f"{pointer}/{result}")
    for rest in function:
        if rest not in known or (
            rest in _RESULTS and rest != result and function[rest] not in (None, {}, "")
        ):
            tools.lost(key, f"{pointer}{pointer_of((rest,))}", f"`{rest}` has no counterpart in a descriptor")
    tools.add(key, tool, descriptor)


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


class _Repair:
    """Repairs the schemas of a function."""

    def __init__(self, tools: ToolList, key: str) -> None:
        self._tools = tools
        self._key = key

    def _tell(self, pointer: str, message: str) -> None:
        self._tools.repaired(self._key, pointer, message)

    def arguments(self, schema: Any, pointer: str) -> dict[str, Any]:
        """The schema of the arguments."""
        if schema in (None, {}, [], ""):
            return {"type": "object", "properties": {}}
        if isinstance(schema, list):
            return self._of_list(schema, pointer)
        if not isinstance(schema, dict):
            self._tell(pointer, "it is not an object; the function is read as one without parameters")
            return {"type": "object", "properties": {}}
        repaired = self.schema(schema, pointer, is_root=True)
        if repaired.get("type") != "object" and "$ref" not in repaired:
            self._tell(pointer, f"its type is {_shown(repaired.get('type'))}; arguments are an object")
            repaired["type"] = "object"
        return {"type": "object", **repaired}

    def _of_list(self, parameters: list[Any], pointer: str) -> dict[str, Any]:
        self._tell(pointer, "a list of parameters is read as `properties`")
        properties: dict[str, Any] = {}
        required: list[str] = []
        for index, parameter in enumerate(parameters):
            place = f"{pointer}/{index}"
            name = parameter.get("name") if isinstance(parameter, dict) else parameter
            if not isinstance(name, str) or not name:
                self._tell(place, "a parameter without a name was left out")
                continue
            rest = (
                {key: item for key, item in parameter.items() if key != "name"}
                if isinstance(parameter, dict)
                else {}
            )
            if rest.pop("required", False) is True:
                required.append(name)
            properties[name] = self.schema(rest, place)
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def outer_required(self, schema: dict[str, Any], names: list[Any], pointer: str) -> None:
        """Move a `required` that stands next to the parameters into their schema."""
        known = [name for name in names if isinstance(name, str) and name in schema.get("properties", {})]
        if known and "required" not in schema:
            schema["required"] = known
            self._tell(pointer, "`required` belongs into `parameters`")

    def schema(self, schema: Any, pointer: str, *, is_root: bool = False) -> dict[str, Any]:
        """A repaired schema."""
        if isinstance(schema, str):
            return self._of_text(schema, pointer)
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            self._tell(pointer, f"{_shown(schema)} is not a schema; any value is accepted")
            return {}
        said = self._with_properties(dict(schema), pointer, is_root=is_root)
        written: dict[str, Any] = {}
        for key, value in said.items():
            self._member(written, key, value, f"{pointer}{pointer_of((key,))}")
        self._settle_required(written, said, pointer)
        if "default" in said:
            self._default(written, said["default"], f"{pointer}/default")
        return written

    def _of_text(self, text: str, pointer: str) -> dict[str, Any]:
        kind = _type_named(text)
        if kind is not None:
            self._tell(pointer, f"the text `{text}` is read as a type")
            return kind
        self._tell(pointer, "a text in place of a schema is read as its description")
        return {"description": text}

    def _with_properties(self, said: dict[str, Any], pointer: str, *, is_root: bool) -> dict[str, Any]:
        """The schema with `properties`, if its parameters stand where `properties` is missing."""
        if isinstance(said.get("properties"), list | type(None)) and "properties" in said:
            self._tell(f"{pointer}/properties", "`properties` is not an object; it is read as empty")
            said["properties"] = {}
        kind = said.get("type")
        is_object = (kind is None and is_root) or (isinstance(kind, str) and _plain_type(kind) == "object")
        if (
            not is_object
            or "properties" in said
            or any(key in said for key in ("$ref", "anyOf", "oneOf", "allOf"))
        ):
            return said
        loose = [key for key, value in said.items() if isinstance(value, dict) and key not in _ONE]
        loose = [key for key in loose if key not in _KEYWORDS or (is_root and "type" in said[key])]
        if not loose:
            return said
        self._tell(
            pointer,
            f"`properties` is missing; {', '.join(f'`{key}`' for key in loose[:5])} are read as properties",
        )
        rest = {key: value for key, value in said.items() if key not in loose}
        return {"type": kind or "object", **rest, "properties": {key: said[key] for key in loose}}

    def _member(self, written: dict[str, Any], key: str, value: Any, pointer: str) -> None:
        """Add a repaired keyword to a schema."""
        if key in _NUMBERS or key in _COUNTS:
            self._number(written, key, value, pointer)
        elif key in _TURNS:
            _TURNS[key](self, written, value, pointer)
        elif isinstance(value, dict | list | str) and (key in _MAPS or key in _LISTS or key in _ONE):
            written[key] = self._parts(value, pointer) if key not in _ONE else self.schema(value, pointer)
        elif key not in ("required", "optional", "default"):
            written[key] = value

    def _parts(self, parts: Any, pointer: str) -> Any:
        """The repaired schemas of an object or a list."""
        if isinstance(parts, list):
            return [self.schema(part, f"{pointer}/{index}") for index, part in enumerate(parts)]
        return {name: self.schema(part, f"{pointer}{pointer_of((name,))}") for name, part in parts.items()}

    def put_items(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        if isinstance(value, list):
            self._tell(pointer, "a list of schemas is read as `prefixItems`")
            written["prefixItems"] = self._parts(value, pointer)
        else:
            written["items"] = value if isinstance(value, bool) else self.schema(value, pointer)

    def put_description(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        if not isinstance(value, str):
            self._tell(pointer, "the description is not a text")
        written["description"] = _text(value)

    def put_nullable(self, _written: dict[str, Any], value: Any, pointer: str) -> None:
        if value is True:
            self._tell(pointer, "`nullable` is read as the type `null`")

    def put_properties(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        parts = value if isinstance(value, dict) else {}
        # A list `required` among the properties is moved to its object.
        written["properties"] = self._parts(
            {name: part for name, part in parts.items() if name != "required" or not isinstance(part, list)},
            pointer,
        )

    def put_type(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        if isinstance(value, str) and value in _STANDARD:
            written.setdefault("type", value)
            return
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            self._types(written, value, pointer)
            return
        kind = _type_named(value) if isinstance(value, str) else None
        if kind is None:
            self._tell(pointer, f"the type {_shown(value)} is unknown; any value is accepted")
        else:
            told = f"read as `{kind['type']}`" if "type" in kind else "any value is accepted"
            self._tell(
                pointer, f"the type `{value}` is {told}" if "type" in kind else f"the type `{value}`: {told}"
            )
            for key, item in kind.items():
                written.setdefault(key, item)

    def _types(self, written: dict[str, Any], names: list[str], pointer: str) -> None:
        plain = [name if name in _STANDARD else _plain_type(name) for name in names]
        if plain != names:
            self._tell(
                pointer, f"the types {', '.join(f'`{name}`' for name in names)} are read as JSON types"
            )
        kinds = [*dict.fromkeys(each for each in plain if each)]
        if None not in plain and kinds:
            written["type"] = kinds if len(kinds) > 1 else kinds[0]

    def _number(self, written: dict[str, Any], key: str, value: Any, pointer: str) -> None:
        number = _number(value)
        if number is None or (key in _COUNTS and (number != int(number) or number < 0)):
            self._tell(pointer, f"`{key}` is {_shown(value)}, not a number; it was left out")
            return
        if isinstance(value, str):
            self._tell(pointer, f"the text {_shown(value)} is read as a number")
        written[key] = (
            int(number)
            if key in _COUNTS or (number == int(number) and not isinstance(value, float))
            else number
        )

    def put_enum(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        if isinstance(value, list) and value:
            written["enum"] = value
        elif isinstance(value, dict) and value:
            self._tell(pointer, "the keys of an object are read as the values")
            written["enum"] = [*value]
        else:
            self._tell(pointer, f"`enum` is {_shown(value)}, not a list of values; it was left out")

    def put_pattern(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        if isinstance(value, str) and not any(
            each.severity == "error" for each in check_schema({"pattern": value})
        ):
            written["pattern"] = value
        else:
            self._tell(pointer, f"{_shown(value)} is not a valid pattern; it was left out")

    def _settle_required(self, written: dict[str, Any], said: Mapping[str, Any], pointer: str) -> None:
        """Collect the required names from all the places where they may stand."""
        given = said.get("required")
        names: list[Any] = [*given] if isinstance(given, list) else []
        if isinstance(given, str):
            self._tell(f"{pointer}/required", "a text is read as a list of one name")
            names.append(given)
        if isinstance(said.get("properties"), dict):
            names = self._required_within(names, said["properties"], f"{pointer}/properties")
        known = written.get("properties", {})
        unknown = [name for name in names if name not in known] if "properties" in written else []
        for name in unknown:
            self._tell(
                f"{pointer}/required", f"{_shown(name)} is required but is no property; it was left out"
            )
        kept = [*dict.fromkeys(name for name in names if name not in unknown)]
        if kept:
            written["required"] = kept
        if said.get("nullable") is True and isinstance(written.get("type"), str):
            written["type"] = [written["type"], "null"]

    def _required_within(self, names: list[Any], properties: Mapping[str, Any], pointer: str) -> list[Any]:
        """The required names, with those that stand among the properties and in them."""
        if isinstance(properties.get("required"), list):
            self._tell(f"{pointer}/required", "`required` stands among the properties")
            names = [*names, *properties["required"]]
        for name, part in properties.items():
            if not isinstance(part, dict):
                continue
            place = f"{pointer}{pointer_of((name,))}"
            if isinstance(part.get("required"), bool | str) and "properties" not in part:
                names = [*names, name] if part["required"] in (True, "true", "True") else names
                self._tell(f"{place}/required", "`required` of a property is moved to its object")
            if part.get("optional") is True and name in names:
                names = [each for each in names if each != name]
                self._tell(f"{place}/optional", f"`{name}` is optional, so it is not required")
        return names

    def _default(self, written: dict[str, Any], value: Any, pointer: str) -> None:
        try:
            is_valid = Validator(written).is_valid
        except DocumentError:
            written["default"] = value  # a reference, which only the whole schema resolves
            return
        for meant in (value, *_readings(value)):
            if is_valid(meant):
                written["default"] = meant
                if meant is not value:
                    self._tell(pointer, f"the default `{compact(value)}` is read as `{compact(meant)}`")
                return
        self._tell(pointer, f"the default {_shown(value)} does not match its schema; it was left out")


_TURNS: Final[Mapping[str, Callable[[_Repair, dict[str, Any], Any, str], None]]] = {
    "type": _Repair.put_type,
    "properties": _Repair.put_properties,
    "items": _Repair.put_items,
    "enum": _Repair.put_enum,
    "pattern": _Repair.put_pattern,
    "description": _Repair.put_description,
    "nullable": _Repair.put_nullable,
}
"""Keyword -> what adds it to a schema."""


def _type_named(name: str) -> dict[str, Any] | None:
    """The schema of a type as programming languages write it: `List[int]`, `String[]`, `int | None`; None if unknown."""
    name = name.strip().strip("\"'`")
    alternatives = [each.strip() for each in _divided(name, "|")]
    if len(alternatives) > 1:
        return _either(alternatives)
    if name.endswith("[]"):
        return _array(_type_named(name[:-2]))
    generic = _GENERIC.fullmatch(name)
    if generic is None:
        if name.casefold() in _ANY or name == "Object":
            return {} if name != "Object" else {"type": "object"}
        plain = _plain_type(name)
        return None if plain is None else {"type": plain}
    outer, inner = generic[1].rpartition(".")[2].casefold(), _divided(generic[2], ",")
    if outer == "optional":
        return _either([generic[2], "none"])
    if outer == "union":
        return _either(inner)
    plain = _plain_type(outer)
    if plain == "array":
        return _array(_type_named(inner[0]) if len(inner) == 1 else None)
    if plain == "object" and len(inner) == 2:
        value = _type_named(inner[1])
        return {"type": "object", **({"additionalProperties": value} if value else {})}
    return None if plain is None else {"type": plain}


def _array(items: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "array", **({"items": items} if items else {})}


def _either(names: list[str]) -> dict[str, Any] | None:
    schemas = [_type_named(name) for name in names]
    if any(schema is None for schema in schemas):
        return None
    known = [schema for schema in schemas if schema is not None]
    if any(not schema for schema in known):
        return {}
    if all([*schema] == ["type"] for schema in known):
        kinds = [*dict.fromkeys(schema["type"] for schema in known)]
        return {"type": kinds if len(kinds) > 1 else kinds[0]}
    return {"anyOf": known}


def _divided(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[<(") - (character in "])>")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _plain_type(name: str) -> str | None:
    """The type of JSON Schema for a single name; None if it is unknown or says nothing."""
    folded = name.strip().rpartition(".")[2].casefold()
    return folded if folded in _STANDARD else _TYPES.get(folded)


def _readings(value: Any) -> Iterator[JSON]:
    """What a default that is written as a text or as a number may mean."""
    if isinstance(value, str):
        words = {"true": True, "false": False, "none": None, "null": None}
        if value.strip().casefold() in words:
            yield words[value.strip().casefold()]
        number = _number(value)
        if number is not None:
            yield int(number) if number == int(number) else number
        try:
            yield json.loads(value)
        except (ValueError, RecursionError):
            return
    elif isinstance(value, float) and value.is_integer():
        yield int(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _number(value: Any) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        number = float(value) if isinstance(value, str) and len(value) <= _LONGEST_NUMBER else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _shown(value: Any) -> str:
    text = str(value) if not isinstance(value, dict | list) else type(value).__name__
    return f"`{text[:40]}`"
