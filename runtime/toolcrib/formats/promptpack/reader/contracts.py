"""The tools of a PromptPack: contracts, which say what a tool takes and not how it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.core.schemas import KNOWN_MODES, envelope
from toolcrib.formats.promptpack.reader.conversion import Turning, kept_apart
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.positions import clipped


class Contract(NamedTuple):
    """One tool.

    Attributes:
        name: What the PromptPack calls it.
        document: What the descriptor would say.
        problems: What is wrong with it, placed.
    """

    name: str
    document: Document
    problems: tuple[Problem, ...]


_KEYS: Final = ("name", "description", "parameters")
"""Keys of a contract."""

_OF_SCHEMAS: Final = frozenset(
    (
        *("$defs", "additionalProperties", "const", "contains", "default", "definitions", "dependentSchemas"),
        *("else", "if", "items", "not", "patternProperties", "properties", "propertyNames", "then"),
        "unevaluatedProperties",
    )
)
"""Keywords of JSON Schema under which an object may stand."""


def contracts_of(document: Document, turning: Turning) -> Iterator[Contract]:
    """The contracts of a PromptPack, each with what is wrong with it; what is no contract is told to `turning`."""
    value = document.value
    tools = turning.take(value, "tools", dict, "") if isinstance(value, dict) else None
    for key, said in (tools or {}).items():
        pointer = f"/tools/{pointer_step(key)}"
        if isinstance(said, dict):
            yield _contract(document, key, said, pointer)
        else:
            turning.tell("wrong_type", f"the tool `{clipped(key)}` is an object", pointer)


def _contract(document: Document, key: str, said: dict[str, Any], pointer: str) -> Contract:
    turning = Turning(document)
    turning.want(said, ("name", "description"), pointer, "a tool of a PromptPack")
    if said.get("name", key) != key:
        message = f"the tool stands under `{clipped(key)}` and calls itself `{clipped(str(said['name']))}`; the first one counts"
        turning.tell("name_differs", message, f"{pointer}/name", severity="notice")
    own: dict[str, JSON] = {"name": key}
    moves = {"": pointer, "/name": pointer}
    if "description" in said:
        own["description"] = said["description"]
    parameters = said.get("parameters")
    if parameters is not None:
        own["input_schema"] = parameters
        moves["/input_schema"] = f"{pointer}/parameters"
    if isinstance(parameters, dict) and _is_shorthand(parameters):
        own["input_schema"] = _schema_of(parameters)
        moves["/input_schema/properties"] = f"{pointer}/parameters"
        message = (
            "`parameters` is a JSON Schema, and here it maps names to schemas; it is read as its `properties`"
        )
        hint = 'write `{"type": "object", "properties": {...}, "required": [...]}`'
        turning.tell("wrong_form", message, f"{pointer}/parameters", hint=hint, severity="warning")
    rest = {each: item for each, item in said.items() if each not in _KEYS}
    for each in rest:
        _tell_unknown(turning, each, pointer)
    if rest:
        own["metadata"] = kept_apart(rest)
        moves["/metadata"] = pointer
    contract = replace(document.moved(own, moves), line=document.position(pointer, key=True)[0])
    return Contract(key, contract, tuple(turning.placed()))


def _is_shorthand(parameters: Mapping[str, JSON]) -> bool:
    """Whether names stand where a JSON Schema has its keywords; as such, `{}` and texts would say nothing there."""
    return (
        bool(parameters)
        and _OF_SCHEMAS.isdisjoint(parameters)
        and all(isinstance(each, dict) and "type" in each for each in parameters.values())
    )


def _schema_of(parameters: Mapping[str, Any]) -> dict[str, JSON]:
    properties: dict[str, JSON] = {
        name: {key: item for key, item in said.items() if key != "required" or not isinstance(item, bool)}
        for name, said in parameters.items()
    }
    required: list[JSON] = [name for name, said in parameters.items() if said.get("required") is True]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _tell_unknown(turning: Turning, key: str, pointer: str) -> None:
    if key not in envelope("descriptor")["properties"] and key not in KNOWN_MODES:
        turning.unknown(key, _KEYS, pointer)
        return
    message = f"`{key}` is no key of a contract; it is kept under `metadata` and has no effect"
    hint = "what binds a tool stands beside the PromptPack, in a `bindings.yaml`"
    turning.tell("unknown_key", message, f"{pointer}/{pointer_step(key)}", hint=hint, severity="warning")
