"""Results that FastMCP wraps: MCP before 2026-07-28 requires objects, so other values are sent as `{"result": value}`.

FastMCP marks the output schema of such a tool with `x-fastmcp-wrap-result`, and each result with `_meta`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.core.model import JSON

_MARK: Final = "x-fastmcp-wrap-result"
_KEY: Final = "result"
_TABLES: Final = ("$defs", "definitions")
_KEPT: Final = ("$schema", *_TABLES)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def unwrapped_schema(schema: Any) -> Any:
    """The schema of the value in a marked output schema; any other schema as it is.

    The definitions move with it. If a reference leads elsewhere, the schema stays wrapped.
    """
    if not _is_marked(schema):
        return schema
    properties = schema["properties"]
    inner = properties[_KEY]
    if not isinstance(inner, dict):
        return inner if isinstance(inner, bool) else schema
    kept = {key: schema[key] for key in _KEPT if key in schema}
    movable = "$id" not in schema and kept.keys().isdisjoint(inner)
    return {**kept, **inner} if movable and all(map(_is_definition, _references(schema))) else schema


def unwrapped_result(response: Mapping[str, Any], definition: Mapping[str, Any]) -> tuple[JSON] | None:
    """The value in the structured content of a response, in a tuple because it may be null; None if it is not wrapped.

    Args:
        response: The result of `tools/call`.
        definition: The server's definition of the tool.
    """
    structured = response.get("structuredContent")
    if not isinstance(structured, dict) or structured.keys() != {_KEY}:
        return None
    meta = response.get("_meta")
    said = meta.get("fastmcp") if isinstance(meta, dict) else None
    told = isinstance(said, dict) and said.get("wrap_result") is True
    return (structured[_KEY],) if told or _is_marked(definition.get("outputSchema")) else None


def _is_marked(schema: Any) -> bool:
    if not isinstance(schema, dict) or schema.get(_MARK) is not True:
        return False
    properties = schema.get("properties")
    return isinstance(properties, dict) and properties.keys() == {_KEY}


def _references(schema: JSON) -> Iterator[JSON]:
    waiting = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from (item[key] for key in _REFERENCES if key in item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _is_definition(reference: JSON) -> bool:
    starts = tuple(f"#/{table}/" for table in _TABLES)
    return isinstance(reference, str) and reference.startswith(starts)
