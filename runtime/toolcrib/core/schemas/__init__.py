"""The JSON Schemas of toolcrib's own documents: descriptor, pack, scenario and project.

Each kind of document has an envelope in this folder. The blocks of the modes are added from their executors. Editors
get a larger schema than the loader uses: see `loading.editor_schemas`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from toolcrib.core.model import Schema
from toolcrib.core.server_config import MODE

Kind = Literal["descriptor", "pack", "scenario", "project"]

KINDS: tuple[Kind, ...] = ("descriptor", "pack", "scenario", "project")

LATER_KEYS: Mapping[str, frozenset[str]] = {
    "descriptor": frozenset({"config", "policy", "requires"}),
    "pack": frozenset(),
    "scenario": frozenset({"cases", "vars"}),
    "project": frozenset({"policy"}),
}
"""Reserved keys, which have no effect yet. A document that uses one is invalid."""

KNOWN_MODES = ("mock", "live", "mcp", "a2a", "client", "exec", "server", "local")
"""Names of blocks that cause a warning if their mode is not installed, instead of an unknown key."""


@cache
def envelope(kind: Kind) -> dict[str, Any]:
    """Return the schema of a kind of document without the blocks of the modes. Callers must not change it."""
    text = files(__package__).joinpath(f"{kind}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    if kind == "project":
        _add_auth(schema)
    for part in _PARTS.get(kind, ()):
        _add_part(schema, part)
    return schema


_PARTS: Mapping[Kind, tuple[Literal["agent", "policy"], ...]] = {
    "pack": ("policy",),
    "scenario": ("agent", "policy"),
}
"""Parts of documents whose schemas are separate files in this folder."""


def part_schema(name: Literal["agent", "policy"]) -> dict[str, Any]:
    """Return the schema of a part that several kinds of documents share, or that has its own file."""
    schema: dict[str, Any] = json.loads(
        files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    )
    return schema


def _add_part(schema: dict[str, Any], name: Literal["agent", "policy"]) -> None:
    """Add a part and its definitions to the `$defs` of a schema."""
    part = part_schema(name)
    schema["$defs"] |= part.pop("$defs")
    schema["$defs"][name] = {
        key: value for key, value in part.items() if key not in {"$schema", "$id", "title"}
    }


def _add_auth(schema: dict[str, Any]) -> None:
    """Add the schema of `auth`."""
    # Read as a file, because importing `http.auth` would reverse the dependency between the packages.
    text = files("toolcrib").joinpath("http", "auth", "schema.json").read_text(encoding="utf-8")
    auth: dict[str, Any] = json.loads(text)
    definitions = auth.pop("$defs")
    schema["$defs"]["auth"] |= {**auth, **schema["$defs"]["auth"]}
    schema["$defs"] |= definitions


def with_blocks(kind: Kind, blocks: Mapping[str, Schema]) -> dict[str, Any]:
    """Return the complete schema of a kind of document.

    Args:
        kind: Kind of document.
        blocks: Mode -> schema of its block, for every installed mode.
    """
    # A deep copy, because the envelope is cached.
    schema: dict[str, Any] = json.loads(json.dumps(envelope(kind)))
    place = _PLACES.get(kind)
    if place is not None:
        for mode, block in sorted(blocks.items()):
            _embed(schema, mode, block)
        place(schema, blocks)
    return schema


def _place_in_descriptor(schema: dict[str, Any], blocks: Mapping[str, Schema]) -> None:
    for mode in sorted(blocks):
        schema["properties"][mode] = {"$ref": f"#/$defs/{mode}"}
    for mode in KNOWN_MODES:
        missing = {
            "type": "object",
            "title": mode,
            "description": f"Mode `{mode}` is not installed: the block is not checked.",
        }
        schema["properties"].setdefault(mode, missing)
    whole = [
        *_conditions(sorted({*blocks, *KNOWN_MODES})),
        *([_NEEDS_OUTPUT] if "mock" in blocks else []),
    ]
    schema["allOf"] = [{TOLD_BY_LOADER: True, "if": {**_OVERRIDES}, "else": {"allOf": whole}}]


_OVERRIDES: dict[str, Any] = {"properties": {"override": {"const": True}}, "required": ["override"]}
"""Matches a document that overrides another one and so may omit the keys that the other one sets."""

_SAYING = ("description", "input_schema", "output_schema", "mode", "examples", "annotations")
"""Keys of which a descriptor needs at least one, unless it has the block of a mode."""


def _conditions(modes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the conditions between the keys of a descriptor, for editors."""
    # The loader checks the same conditions with clearer messages than those of a schema.
    there: list[dict[str, Any]] = [{"required": [mode]} for mode in modes]
    told = {TOLD_BY_LOADER: True}
    yield {**told, "anyOf": [*there, *({"required": [key]} for key in _SAYING)]}
    one_at_most = {"oneOf": [*there, {"not": {"anyOf": there}}]}
    yield {**told, "if": {"not": {"required": ["mode"]}}, "then": one_at_most}
    yield {**told, "properties": {"mode": {"enum": list(modes)}}}
    # Mode `mcp` needs no block: the server and its tool may follow from the name.
    for mode in (each for each in modes if each != MODE):
        chosen = {"properties": {"mode": {"const": mode}}, "required": ["mode"]}
        yield {**told, "if": chosen, "then": {"required": [mode]}}


TOLD_BY_LOADER = "x-told-by-loader"
"""Marks a subschema for editors only: the loader makes the same check with a clearer message."""


def _generating(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has a key whose value matches a schema."""
    (key,) = schema
    return {"type": "object", "required": [key], "properties": schema}


_GENERATED = _generating({"generate": {}})
_ONE_GENERATED = {"type": "array", "contains": _GENERATED}
_GENERATING_RULES = {
    "type": "array",
    "contains": _generating({"reply": {"anyOf": [_GENERATED, _ONE_GENERATED]}}),
}
_NEEDS_OUTPUT: dict[str, Any] = {
    TOLD_BY_LOADER: True,
    "if": _generating(
        {
            "mock": {
                "anyOf": [
                    _GENERATED,
                    _generating({"sequence": _ONE_GENERATED}),
                    _generating({"rules": _GENERATING_RULES}),
                ]
            }
        }
    ),
    "then": {"required": ["output_schema"]},
}
"""A mock that generates its answer needs the output schema to generate it from."""


def _place_in_scenario(schema: dict[str, Any], blocks: Mapping[str, Schema]) -> None:
    if "mock" in blocks:
        schema["properties"]["mocks"]["additionalProperties"] = {"$ref": "#/$defs/mock"}


_PLACES = {"descriptor": _place_in_descriptor, "scenario": _place_in_scenario}


def _embed(schema: dict[str, Any], mode: str, block: Schema) -> None:
    """Add a block's schema and its definitions to `$defs`."""
    # The definitions get the mode as a prefix, because two modes may use the same name.
    copied = json.loads(json.dumps(block))
    if isinstance(copied, dict):
        copied.pop("$schema", None)
        copied.pop("$id", None)
        for name, definition in copied.pop("$defs", {}).items():
            schema["$defs"][f"{mode}.{name}"] = with_mode_references(definition, mode)
    schema["$defs"][mode] = with_mode_references(copied, mode)


def with_mode_references(value: Any, mode: str) -> Any:
    """Return a part of a block's schema, with its references changed to the prefixed definitions."""
    if isinstance(value, list):
        return [with_mode_references(item, mode) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: with_mode_references(item, mode) for key, item in value.items()}
    reference = changed.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        changed["$ref"] = f"#/$defs/{mode}.{reference.removeprefix('#/$defs/')}"
    elif isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        changed["$ref"] = f"#/$defs/{mode}{reference.removeprefix('#')}"
    return changed


def without_loader_checks(schema: Any) -> Any:
    """Return a schema without the subschemas that the loader checks itself."""
    if isinstance(schema, list):
        return [without_loader_checks(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(TOLD_BY_LOADER) is True:
        return {}
    return {key: without_loader_checks(item) for key, item in schema.items()}
