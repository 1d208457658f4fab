"""A document on its way into our own form: what is wrong with it, and where each part came from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from toolcrib.core.errors import Problem, Severity, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.core.text import compact
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.positions import clipped

NO_COUNTERPART = "no_counterpart"
"""Code of what is told of a part that means nothing here."""

_KINDS: Mapping[type, str] = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}


class Turning:
    """Collects what is wrong with a document.

    Attributes:
        document: As it was read.
        moves: Pointer into our own form -> pointer into the document.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.moves: dict[str, str] = {}
        self._problems: list[Problem] = []

    @property
    def tools(self) -> Collection[str]:
        """The names of its tools."""
        value = self.document.value
        tools = value.get("tools") if isinstance(value, dict) else None
        return tools if isinstance(tools, dict) else ()

    def placed(self) -> Iterator[Problem]:
        """All that is wrong, in the file."""
        return map(self.document.place, self._problems)

    def tell(
        self, code: str, message: str, pointer: str, *, hint: str = "", severity: Severity = "error"
    ) -> None:
        """Something is wrong at a place of the document."""
        self._problems.append(
            Problem(code=code, message=message, pointer=pointer, hint=hint, severity=severity)
        )

    def take(self, holder: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
        """What stands under a key, if it is of a kind; None where it is not there, or is something else, which is told."""
        value = holder.get(key)
        if key not in holder or isinstance(value, kind):
            return value
        message = f"`{key}` is {_KINDS[kind]}, and {clipped(compact(value))} is not"
        self.tell("wrong_type", message, f"{place}/{pointer_step(key)}")
        return None

    def want(self, holder: Mapping[str, Any], keys: Collection[str], place: str, of: str) -> None:
        """Tell which of the keys are missing or empty that a PromptPack needs, and we do not."""
        for key in keys:
            if holder.get(key, "") == "":
                message = f"{of} has `{key}`, and here it is {'empty' if key in holder else 'missing'}"
                self.tell("missing_key", message, f"{place}/{pointer_step(key)}", severity="warning")

    def unknown(self, key: str, known: Collection[str], place: str) -> None:
        """Tell of a key that PromptPacks do not have; it is kept."""
        near = did_you_mean(key, known)
        message = f"`{key}` is no key of a PromptPack here; it is kept under `metadata` and has no effect"
        self.tell("unknown_key", message, f"{place}/{pointer_step(key)}", hint=near, severity="warning")

    def kept(self, key: str, place: str, means: str) -> None:
        """Tell of a key that has no counterpart here; it is kept."""
        message = f"`{key}` has no counterpart here: {means}; it is kept under `metadata`"
        self.tell(NO_COUNTERPART, message, f"{place}/{pointer_step(key)}", severity="notice")


def kept_apart(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """The metadata that holds what a PromptPack says and we do not."""
    return {"promptpack": dict(parts)} if parts else {}
