"""A schema as the rows of a table: one a property, nested ones with their path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import compact

DEPTH = 3
"""How deep objects within objects are taken apart."""

Row = tuple[str, str, str, str, str]


def parameter_rows(schema: Schema) -> list[Row] | None:
    """The rows `name, type, required, default, description`; None for a schema that is no plain object."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    if "properties" not in schema:
        return [] if schema.get("additionalProperties") is False else None
    return list(_rows(schema, schema, "", DEPTH))


def _rows(schema: Mapping[str, Any], root: Mapping[str, Any], lead: str, depth: int) -> Iterator[Row]:
    required = schema.get("required", [])
    for name, written in schema["properties"].items():
        part = written if isinstance(written, dict) else {}
        target = _resolved(part, root)
        default = compact(part["default"]) if "default" in part else ""
        needed = "required" if name in required else ""
        description = str(part.get("description", target.get("description", "")))
        yield f"{lead}{name}", type_of(part), needed, default, description
        inner = target.get("items") if target.get("type") == "array" else target
        inner = _resolved(inner, root) if isinstance(inner, dict) else {}
        if "properties" in inner and depth > 1:
            mark = "[]." if inner is not target else "."
            yield from _rows(inner, root, f"{lead}{name}{mark}", depth - 1)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a plain `#/$defs/name` means; any other one as it is."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    keyword, _, name = reference.removeprefix("#/").partition("/")
    found = root.get(keyword, {}).get(name) if keyword in {"$defs", "definitions"} else None
    return found if isinstance(found, dict) else schema


def type_of(schema: Mapping[str, Any]) -> str:
    """The type of a value in few words: `integer 1..7`, `"a" | "b"`, `array of string`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return compact(schema["const"])
    if "enum" in schema:
        return " | ".join(compact(item) for item in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(type_of(branch) for branch in schema[keyword] if isinstance(branch, dict))
    types = schema.get("type", "any")
    names = types if isinstance(types, list) else [types]
    return " | ".join(_NAMED.get(name, _plain)(str(name), schema) for name in names)


def _plain(name: str, _schema: Mapping[str, Any]) -> str:
    return name


def _number(name: str, schema: Mapping[str, Any]) -> str:
    low = _bound(schema, "minimum", "exclusiveMinimum", ">")
    high = _bound(schema, "maximum", "exclusiveMaximum", "<")
    return f"{name} {low}..{high}" if low or high else name


def _bound(schema: Mapping[str, Any], inclusive: str, exclusive: str, sign: str) -> str:
    if inclusive in schema:
        return compact(schema[inclusive])
    bound = schema.get(exclusive)  # a boolean in draft 4
    return sign + compact(bound) if isinstance(bound, int | float) and not isinstance(bound, bool) else ""


def _string(name: str, schema: Mapping[str, Any]) -> str:
    extra: JSON = schema.get("format", "")
    return f"{name} ({extra})" if extra else name


def _array(name: str, schema: Mapping[str, Any]) -> str:
    items = schema.get("items")
    return f"{name} of {type_of(items)}" if isinstance(items, dict) and items else name


_NAMED: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "array": _array,
    "integer": _number,
    "number": _number,
    "string": _string,
}
