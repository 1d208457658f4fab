"""Parts of descriptors that importers of foreign tool files have in common."""

from __future__ import annotations

from typing import Any

from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.formats.http_samples import Unconvertible
from toolcrib.formats.request_names import host_label, variable_name


def without_nulls(schema: Any) -> Any:
    """A schema without keywords that are null, as libraries write those that are not set."""
    if isinstance(schema, dict):
        data = ("default", "const", "enum", "examples", "example")
        return {
            key: value if key in data else without_nulls(value)
            for key, value in schema.items()
            if value is not None
        }
    return [without_nulls(item) for item in schema] if isinstance(schema, list) else schema


def input_schema_of(said: Any) -> tuple[dict[str, Any], list[str]]:
    """A schema of arguments, and what had to be repaired: its root is an object."""
    schema = without_nulls(said)
    if schema is None or schema == {}:
        return {"type": "object", "additionalProperties": False}, []
    if not isinstance(schema, dict):
        raise Unconvertible("invalid_schema", "the schema of its arguments is not an object")
    if schema.get("type") == "object":
        return schema, []
    if "type" in schema:
        raise Unconvertible(
            "invalid_schema", f"its arguments are of the type {compact(schema['type'])}, not an object"
        )
    return {"type": "object", **schema}, ["its type is missing; it is `object`"]


def properties_of(schema: Any) -> dict[str, Any]:
    """The properties of a schema."""
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def secret_or_variable(text: str, purpose: str, url: str, remarks: list[tuple[str, str]]) -> str:
    """A credential: the variable that it is, or `${NAME}` in place of a value that the source contains."""
    if not text or "${" in text:
        return text
    name = variable_name(host_label(url), purpose)
    remarks.append(("secret", f"its {purpose} is `${{{name}}}`; set this variable"))
    return f"${{{name}}}"


def file_block(path: str) -> dict[str, Any]:
    """The members of a tool that reads a file; the path may contain expressions."""
    block: dict[str, Any] = {"command": ["cat", "--", path]}
    folder = path.rpartition("/")[0].partition("{{")[0]
    if folder:
        block["paths"] = {"read": [folder]}
    return {"exec": block, "output_schema": {"type": "string"}}


def server_remark(name: str, said: Any) -> tuple[str, str]:
    """The remark on a server that the project has to have."""
    shown: dict[str, JSON] = {}
    for key in ("command", "args", "cwd", "url", "env", "headers"):
        value = said.get(key) if isinstance(said, dict) else None
        if isinstance(value, dict):
            shown[key] = {each: f"${{{variable_name(each)}}}" for each in value}
        elif value:
            shown[key] = value
    return "lost", f"its server; add it to `servers` of `toolcrib.yaml`: {compact({name: shown})}"


def quoted(name: str) -> str:
    """A text as a literal of an expression."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
