"""What is different about a tool, and what that means for whoever calls it or reads of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import is_schema
from toolcrib.schema.compatibility.reasons import Reason
from toolcrib.schema.compatibility.schema_subset import EFFORT, missing
from toolcrib.servers.lock.diff import ABSENT, Difference, differences, is_told_to_models

Kind: TypeAlias = Literal["compatible", "breaking", "prompt-affecting"]

KINDS: Final[tuple[Kind, ...]] = ("breaking", "compatible", "prompt-affecting")
"""`compatible`: who calls it as before is answered as before. `breaking`: that can't be shown. `prompt-affecting`: a
model reads another text; either may come with it."""

_DEFAULTS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What is meant where a hint is not given: MCP 2025-11-25, `ToolAnnotations`."""


class Breach(NamedTuple):
    """One reason why a change is breaking.

    Attributes:
        part: The key of the definition: `inputSchema`, `outputSchema`, `annotations`.
        pointer: JSON Pointer within that; of the old schema for a result, of the new one for arguments.
        why: What whoever calls it or reads its results will meet.
    """

    part: str
    pointer: str
    why: str

    def __str__(self) -> str:
        place = f"{self.part} {self.pointer}" if self.pointer else self.part
        return f"{place}: {self.why}"


class Change(NamedTuple):
    """How a tool is another one than before.

    Attributes:
        verdicts: What that means, in the order of `KINDS`; empty where nothing changed that counts.
        differences: Everything that is different.
        breaches: Why it is breaking, where it is.
    """

    verdicts: tuple[Kind, ...]
    differences: tuple[Difference, ...]
    breaches: tuple[Breach, ...] = ()


def compare(before: Mapping[str, Any], after: Mapping[str, Any], effort: int = EFFORT) -> Change:
    """What is different between two definitions of one tool.

    Arguments that were right must stay right, so an input schema may only take more; results must stay what readers
    know, so an output schema may only take less. `true` stands for one that is not there.

    Args:
        before: As MCP writes it: `description`, `inputSchema`, `annotations` ...
        after: The same, as it is now.
        effort: How much may be done for each schema, as `missing` has it.
    """
    found = tuple(differences(before, after))
    breaches = (
        *_of_arguments(_schema(before, "inputSchema"), _schema(after, "inputSchema"), effort),
        *_of_results(_schema(before, "outputSchema"), _schema(after, "outputSchema"), effort),
        *_of_annotations(before.get("annotations"), after.get("annotations")),
    )
    kinds: set[Kind] = {"breaking"} if breaches else set()
    for each in found:
        if is_told_to_models(each):
            kinds.add("prompt-affecting")
        if not breaches and not each.is_text:
            kinds.add("compatible")
    return Change(tuple(kind for kind in KINDS if kind in kinds), found, breaches)


def _schema(definition: Mapping[str, Any], key: str) -> Schema:
    schema = definition.get(key)
    return schema if is_schema(schema) else True


def _of_arguments(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
    for reason in missing(before, after, effort):
        yield Breach("inputSchema", pointer_to(reason.path), _why(reason, _FOR_CALLERS))


def _of_results(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
    for reason in missing(after, before, effort):
        yield Breach("outputSchema", pointer_to(reason.path), _why(reason, _FOR_READERS))


_VALUES: Final = frozenset(("type", "enum", "const"))
_BOUNDS: Final = frozenset(
    (
        *("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    )
)
_SHAPES: Final = frozenset(("pattern", "format"))

_UNDECIDED: Final = "can't be shown to be compatible"

_FOR_CALLERS: Final = {
    "required": "`{detail}` must now be given",
    "properties": "`{detail}` is no longer taken",
    "additionalProperties": "properties that are not named are no longer all taken",
    "value": "{detail} is no longer taken",
    "values": "only this is taken now",
    "bounds": "values are refused that were taken",
    "shape": f"texts must fit this {{keyword}} now, which {_UNDECIDED}",
}
"""Why arguments that were right may be refused now."""

_FOR_READERS: Final = {
    "required": "`{detail}` may be missing now",
    "properties": "`{detail}` is new where no other properties were promised",
    "additionalProperties": "properties may come now that are not named",
    "value": "{detail} may come now",
    "values": "anything else may come now",
    "bounds": "values may come now that were ruled out",
    "shape": f"texts need not fit this {{keyword}} now, which {_UNDECIDED}",
}
"""Why results may hold now what a reader does not know."""


def _why(reason: Reason, sentences: Mapping[str, str]) -> str:
    sentence = sentences.get(_kind(reason), _UNDECIDED)
    return sentence.format(keyword=reason.keyword, detail=reason.detail)


def _kind(reason: Reason) -> str:
    if reason.keyword in _VALUES:
        return "value" if reason.detail else "values"
    if reason.keyword in _BOUNDS:
        return "bounds"
    return "shape" if reason.keyword in _SHAPES else reason.keyword


_LOST: Final = (
    ("readOnlyHint", True, "it said that it changes nothing, and may now change things"),
    ("destructiveHint", False, "it said that it destroys nothing, and may now delete or overwrite"),
    ("idempotentHint", True, "it said that a second call changes nothing more, and no longer does"),
    ("openWorldHint", False, "it said that it reaches nothing outside, and may now reach anything"),
)


def _of_annotations(before: JSON, after: JSON) -> Iterator[Breach]:
    """The assurances that are taken back."""
    for key, assured, why in _LOST:
        if _hint(before, key) is assured and _hint(after, key) is not assured and not _is_moot(key, after):
            yield Breach("annotations", pointer_to((key,)), why)


def _is_moot(key: str, after: JSON) -> bool:
    """Whether a hint means nothing, because what only reads neither destroys nor repeats anything."""
    return key in {"destructiveHint", "idempotentHint"} and _hint(after, "readOnlyHint")


def _hint(annotations: JSON, key: str) -> bool:
    said = annotations.get(key) if isinstance(annotations, dict) else None
    return said if isinstance(said, bool) else _DEFAULTS[key]


__all__ = ["ABSENT", "KINDS", "Breach", "Change", "Difference", "Kind", "compare"]
