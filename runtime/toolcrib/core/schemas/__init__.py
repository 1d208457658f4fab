"""The JSON Schemas of toolcrib's own documents: the single contract of descriptor, pack, scenario and project.

Each kind of document has an envelope in this folder; the blocks of the modes are put into it from
the executors that own them. Editors get more than the loader checks against: see `loading.editor_schemas`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from toolcrib.core.model import Schema

Kind = Literal["descriptor", "pack", "scenario", "project"]

KINDS: tuple[Kind, ...] = ("descriptor", "pack", "scenario", "project")

LATER_KEYS: Mapping[str, frozenset[str]] = {
    "descriptor": frozenset(
        {
            "capabilities",
            "config",
            "dependencies",
            "estimate",
            "permissions",
            "platforms",
            "policy",
            "requires",
            "requires_confirmation",
        }
    ),
    "pack": frozenset(),
    "scenario": frozenset({"cases", "vars"}),
    "project": frozenset({"agents", "policy"}),
}
"""Keys that are reserved and have no effect yet; a document that uses one is refused."""

KNOWN_MODES = ("mock", "live", "mcp", "a2a", "client", "exec", "server", "local")
"""Names that a block may have although no executor for it is installed: a warning, not an unknown key."""


@cache
def envelope(kind: Kind) -> dict[str, Any]:
    """The schema of a kind of document without the blocks of any mode. Not to be changed."""
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
"""Parts of documents that have files of their own in this folder."""


def part_schema(name: Literal["agent", "policy"]) -> dict[str, Any]:
    """The schema of a part that several kinds of documents have, or that stands alone in a file."""
    schema: dict[str, Any] = json.loads(
        files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    )
    return schema


def _add_part(schema: dict[str, Any], name: Literal["agent", "policy"]) -> None:
    """Put in a part, as the definition of its name, with its own definitions beside it."""
    part = part_schema(name)
    schema["$defs"] |= part.pop("$defs")
    schema["$defs"][name] = {
        key: value for key, value in part.items() if key not in {"$schema", "$id", "title"}
    }


def _add_auth(schema: dict[str, Any]) -> None:
    """Put in what an `auth` may be; its schema lies beside the code that reads it."""
    text = files("toolcrib").joinpath("http", "auth", "schema.json").read_text(encoding="utf-8")
    auth: dict[str, Any] = json.loads(text)
    definitions = auth.pop("$defs")
    schema["$defs"]["auth"] |= {**auth, **schema["$defs"]["auth"]}
    schema["$defs"] |= definitions


def with_blocks(kind: Kind, blocks: Mapping[str, Schema]) -> dict[str, Any]:
    """The whole schema of a kind of document.

    Args:
        kind: Which document.
        blocks: Mode -> schema of its block, of every installed mode.
    """
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
"""A document that is laid over another one may leave out what that one says."""

_SAYING = ("description", "input_schema", "output_schema", "mode", "examples", "annotations")
"""Keys of which a descriptor has at least one, or else the block of a mode."""


def _conditions(modes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the keys of a descriptor ask of each other; the loader has better words for all of it."""
    there: list[dict[str, Any]] = [{"required": [mode]} for mode in modes]
    told = {TOLD_BY_LOADER: True}
    yield {**told, "anyOf": [*there, *({"required": [key]} for key in _SAYING)]}
    one_at_most = {"oneOf": [*there, {"not": {"anyOf": there}}]}
    yield {**told, "if": {"not": {"required": ["mode"]}}, "then": one_at_most}
    yield {**told, "properties": {"mode": {"enum": list(modes)}}}
    for mode in modes:
        chosen = {"properties": {"mode": {"const": mode}}, "required": ["mode"]}
        yield {**told, "if": chosen, "then": {"required": [mode]}}


TOLD_BY_LOADER = "x-told-by-loader"
"""Marks a subschema that is there for editors: the loader checks the same and knows better words for it."""


def _generating(schema: dict[str, Any]) -> dict[str, Any]:
    """Objects that have a key whose value fits a schema."""
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
"""An answer is generated from the output schema."""


def _place_in_scenario(schema: dict[str, Any], blocks: Mapping[str, Schema]) -> None:
    if "mock" in blocks:
        schema["properties"]["mocks"]["additionalProperties"] = {"$ref": "#/$defs/mock"}


_PLACES = {"descriptor": _place_in_descriptor, "scenario": _place_in_scenario}


def _embed(schema: dict[str, Any], mode: str, block: Schema) -> None:
    """Put a block's schema under `$defs`, its own definitions beside it under names of their own."""
    copied = json.loads(json.dumps(block))
    if isinstance(copied, dict):
        copied.pop("$schema", None)
        copied.pop("$id", None)
        for name, definition in copied.pop("$defs", {}).items():
            schema["$defs"][f"{mode}.{name}"] = with_mode_references(definition, mode)
    schema["$defs"][mode] = with_mode_references(copied, mode)


def with_mode_references(value: Any, mode: str) -> Any:
    """A part of a block's schema, with its references leading to where its definitions stand under a name."""
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
    """A schema without what the loader tells by checks of its own, here or in the place of a subschema."""
    if isinstance(schema, list):
        return [without_loader_checks(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(TOLD_BY_LOADER) is True:
        return {}
    return {key: without_loader_checks(item) for key, item in schema.items()}
