"""Hints for documents of other systems, in the words of those systems."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import Origin
from toolcrib.formats.promptkit.foreign_descriptors import FOREIGN, SHARED, is_promptkit
from toolcrib.loading.documents.document import Document

_MANIFEST_KEYS = (
    "name",
    "description",
    "input_schema",
    "output_schema",
    "mode",
    *(key for key in FOREIGN if key.startswith("mock_")),
    "timeout_ms",
    "http",
)
"""Keys of the `spec` of a PromptKit manifest."""

_GO_TEMPLATES = ("mockTemplate", "mock_template", "mock_template_file")
"""Keys whose text is a Go template, or is in the file that they name."""

_OF_GO = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "for": "range",
    "length": "len",
    "[]": "index",
}
"""What expressions call an operation -> what Go templates call it."""

_OPERATION = re.compile(r"`([^`]+)`(?= needs)")

_OTHER_KEYS = ("name", "title", "description", *FOREIGN, *SHARED)


def in_their_words(document: Document, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a foreign document, where an unknown key gets a hint with the keys of its own system.

    Args:
        document: As it was read.
        problems: What is wrong with it, with pointers into the document as written.
    """
    manifest = is_promptkit(document.value)
    wrapped = isinstance(document.value, dict) and isinstance(document.value.get("function"), dict)
    place = "/spec" if manifest else "/function" if wrapped else ""
    known = _MANIFEST_KEYS if manifest else _OTHER_KEYS
    told = []
    for problem in problems:
        holder, _, key = problem.pointer.rpartition("/")
        if key in _GO_TEMPLATES:
            message, hint = in_words_of_go(problem.message, problem.hint)
            told.append(problem._replace(message=message, hint=hint))
        elif problem.code == "unknown_key" and holder == place:
            hint = did_you_mean(key, known) or f"known: {', '.join(f'`{name}`' for name in known)}"
            told.append(problem._replace(hint=hint))
        else:
            told.append(problem)
    return told


def pointer_as_written(origin: Origin, pointer: str) -> str:
    """Where a part of a tool stands in its document as it was written; the same where nothing was moved."""
    place = origin.locate  # of a tool that comes from an index, what reads its document again
    document = getattr(place, "__self__", None) or getattr(place, "document", None)
    return document.pointer_as_written(pointer) or pointer if isinstance(document, Document) else pointer


def is_go_template(origin: Origin, pointer: str) -> bool:
    """Whether the part of a tool at a JSON Pointer was written as a Go template."""
    return pointer_as_written(origin, pointer).rpartition("/")[2] in _GO_TEMPLATES


def in_words_of_go(message: str, hint: str) -> tuple[str, str]:
    """A fault of a translated Go template with the names that Go has, and a hint that can be followed there."""
    told = _OPERATION.sub(lambda found: f"`{_OF_GO.get(found[1], found[1])}`", message)
    if told != message:
        hint = "declare the type of the argument in the input schema, and compare or read it as that type"
    return told, "" if "| " in hint else hint
