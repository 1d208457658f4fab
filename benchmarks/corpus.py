"""Generated descriptors in the style of real ones, always the same for the same number.

Each has about 80 lines: parameters of several kinds, an output schema with a list of records, annotations,
a mock whose answer holds expressions, an example. No two have the same schemas.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

_NOUNS = ("account", "booking", "city", "device", "invoice", "order", "parcel", "report", "ticket", "user")
_VERBS = ("archive", "cancel", "create", "describe", "find", "get", "list", "search", "track", "update")
_FIELDS = ("amount", "country", "currency", "date", "kind", "owner", "priority", "region", "size", "status")
_UNITS = ("metric", "imperial", "nautical", "scientific", "local")

_PARAMETERS: tuple[dict[str, Any], ...] = (
    {"type": "integer", "description": "How many at most", "minimum": 1, "maximum": 100, "default": 20},
    {"type": "string", "description": "Units to answer in", "enum": ["metric", "imperial"]},
    {"type": "boolean", "description": "Whether to go into detail", "default": False},
    {"type": "array", "items": {"type": "string"}, "maxItems": 10},
    {"type": "string", "description": "A day, as YYYY-MM-DD", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    {"type": "number", "minimum": 0},
)
_SAMPLES: tuple[Any, ...] = (5, "metric", True, ["first", "second"], "2026-11-20", 12.5)


def descriptor_texts(count: int) -> list[str]:
    """The YAML of a number of descriptors, each with its own name."""
    chance = random.Random(1)
    return [_as_yaml(_descriptor(number, chance)) for number in range(count)]


def write_descriptors(folder: Path, count: int) -> None:
    """Write them to files: `tool_00000.tool.yaml` and so on."""
    for number, text in enumerate(descriptor_texts(count)):
        (folder / f"tool_{number:05d}.tool.yaml").write_text(text, encoding="utf-8")


def _as_yaml(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _descriptor(number: int, chance: random.Random) -> dict[str, Any]:
    noun, verb = chance.choice(_NOUNS), chance.choice(_VERBS)
    kinds = chance.sample(range(len(_PARAMETERS)), chance.randint(2, 3))
    names = chance.sample(_FIELDS, len(kinds))
    properties: dict[str, Any] = {
        noun: {"type": "string", "minLength": 1, "description": f"The {noun}, for instance: {noun}-{number}"}
    }
    properties |= {name: dict(_PARAMETERS[kind]) for name, kind in zip(names, kinds, strict=True)}
    arguments = {name: _SAMPLES[kind] for name, kind in zip(names, kinds, strict=True)}
    fields = chance.sample(_FIELDS, 2)
    return {
        "name": f"{verb}_{noun}_{number:05d}",
        "version": f"1.{number % 10}.0",
        "description": f"{verb.capitalize()} the {noun} of a customer.\nAnswers with one record for each hit.\n",
        "tags": [noun, verb, f"t{number % 20}"],
        "annotations": {"read_only": True, "idempotent": chance.random() < 0.5},
        "timeout": f"{chance.randint(2, 30)}s",
        "input_schema": {
            "type": "object",
            "properties": properties,
            "required": [noun],
            "additionalProperties": False,
        },
        "output_schema": {
            "type": "object",
            "properties": {
                noun: {"type": "string"},
                "units": {"type": "string", "enum": chance.sample(_UNITS, 2)},
                "found": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "description": f"Such as {noun}-{number}"},
                            **{name: {"type": "string"} for name in fields},
                        },
                        "required": ["id"],
                    },
                },
            },
            "required": [noun, "found"],
        },
        "mock": {
            "result": {
                noun: f"{{{{ args.{noun} }}}}",
                "found": [{"id": f"{noun}-{number}", fields[0]: f"seen {{{{ args.{noun} | upper }}}}"}],
            }
        },
        "examples": [{"args": {noun: f"{noun}-{number}", **arguments}}],
    }
