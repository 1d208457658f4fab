"""The forms that providers take, and arguments as a model gives them that minds a declaration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolcrib.core.text import compact
from toolcrib.formats.providers import Declaration
from toolcrib.schema.validation import Validator

STRICT = {
    *("type", "title", "description", "properties", "required", "additionalProperties", "items", "anyOf"),
    *("enum", "pattern", "format", "multipleOf", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
}
GEMINI = {
    *(
        "type",
        "title",
        "description",
        "nullable",
        "properties",
        "required",
        "items",
        "anyOf",
        "enum",
        "format",
    ),
    *("minLength", "maxLength", "pattern", "minimum", "maximum"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
}


def inside(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A compiled schema and all its subschemas."""
    yield schema
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    for inner in [*below, schema["items"]] if "items" in schema else below:
        yield from inside(inner)


def is_strict(schema: dict[str, Any]) -> bool:
    """Whether strict mode takes a schema."""
    for one in inside(schema):
        kinds = one.get("type")
        assert one.keys() <= STRICT
        assert kinds is not None or "anyOf" in one
        if kinds is not None:
            kind, *null = [kinds] if isinstance(kinds, str) else kinds
            assert kind in {"null", "boolean", "integer", "number", "string", "array", "object"}
            assert null in ([], ["null"])
            assert (kind == "object") is ("properties" in one)
            assert (kind == "array") is ("items" in one)
        if "properties" in one:
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])
    return schema["type"] == "object"


def is_of_gemini(schema: dict[str, Any]) -> bool:
    """Whether Gemini takes a schema."""
    for one in inside(schema):
        assert one.keys() <= GEMINI
        if "anyOf" in one:
            assert one.keys() == {"anyOf"}
            continue
        assert one["type"] in {"boolean", "integer", "number", "string", "array", "object"}
        assert (one["type"] == "array") is ("items" in one)
        if "enum" in one:
            assert one["type"] == "string"
            assert all(isinstance(value, str) and value for value in one["enum"])
        if one["type"] == "object":
            assert one is schema or one["properties"]
            assert set(one.get("required", ())) <= one["properties"].keys()
    return schema["type"] == "object"


def judged(declaration: Declaration, dialect: str) -> dict[str, Any]:
    """The schema of a declaration as JSON Schema, so that values can be judged and made."""
    schema = dict(declaration.schema)
    return of_json_schema(schema) if dialect == "gemini" else schema


def of_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of Gemini as JSON Schema."""
    told = {key: value for key, value in schema.items() if key != "nullable"}
    if "properties" in told:
        told["properties"] = {name: of_json_schema(inner) for name, inner in told["properties"].items()}
    if "items" in told:
        told["items"] = of_json_schema(told["items"])
    if "anyOf" in told:
        told["anyOf"] = [of_json_schema(inner) for inner in told["anyOf"]]
    return {"anyOf": [told, {"type": "null"}]} if schema.get("nullable") else told


def given(
    arguments: dict[str, Any], declaration: Declaration, dialect: str, *, wrapper: str = "arguments"
) -> Any:
    """Arguments of the tool as a model gives them that minds the declaration."""
    schema = dict(declaration.schema)
    plain = {wrapper: arguments} if set(schema.get("properties", ())) == {wrapper} else arguments
    return _encoded(plain, schema) if declaration.strict or dialect == "gemini" else plain


def _encoded(value: Any, schema: dict[str, Any]) -> Any:
    if "anyOf" in schema:
        forms = [_encoded(value, branch) for branch in schema["anyOf"]]
        pairs = zip(forms, schema["anyOf"], strict=True)
        fitting = [form for form, branch in pairs if Validator(of_json_schema(branch)).is_valid(form)]
        return fitting[0] if fitting else value
    if "JSON text" in str(schema.get("description")) or (
        "enum" in schema and schema.get("type") in ("string", ["string", "null"])
    ):
        nullable = value is None and (schema.get("nullable") or None in schema.get("enum", ()))
        is_text = "enum" in schema and isinstance(value, str)
        return value if is_text or nullable else compact(value)
    if isinstance(value, list) and "items" in schema:
        return [_encoded(item, schema["items"]) for item in value]
    if isinstance(value, dict) and "properties" in schema:
        told = {
            name: _encoded(value[name], inner)
            for name, inner in schema["properties"].items()
            if name in value
        }
        missing = [name for name in schema.get("required", ()) if name not in value]
        return {**value, **told, **dict.fromkeys(missing)}
    return value


NARROWING = {
    "additionalProperties": "is not set",
    "type": "is not set",
    "enum": "",
    "required": "null is given",
    "prefixItems": "",
    "unevaluatedProperties": "",
    "$ref": "",
}
"""Losses by which a declaration takes less than its tool, or can't say it apart."""


def is_narrower(declaration: Declaration) -> bool:
    """Whether a declaration takes less than its tool, or something that the tool can tell apart from something else."""
    return any(
        keyword in NARROWING and NARROWING[keyword] in message
        for _pointer, keyword, message in declaration.losses
    )
