"""Hints for documents of other systems, in the words of those systems."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.errors import Problem, did_you_mean
from toolcrib.loading.compatible import FOREIGN, SHARED, is_promptkit
from toolcrib.loading.documents import Document

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
        if problem.code == "unknown_key" and holder == place:
            hint = did_you_mean(key, known) or f"known: {', '.join(f'`{name}`' for name in known)}"
            told.append(problem._replace(hint=hint))
        else:
            told.append(problem)
    return told
