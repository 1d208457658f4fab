"""Files in a scanned folder that were never meant for us: what is wrong with them is one notice, not errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import JSON
from toolcrib.loading.documents import json_text, yaml_text
from toolcrib.loading.documents.document import Document, first_bytes
from toolcrib.loading.documents.files import PACK_FILES, SUFFIXES
from toolcrib.loading.documents.positions import Place, roots
from toolcrib.loading.formats import Formats

TOOL_SUFFIXES: Final = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""A file that is called this says that it holds a descriptor."""

_OUR_KEYS: Final = frozenset({"name", "scenario", "function"})
"""One of these at the top of a document can make it a descriptor or scenario, in whatever form."""

_OUR_NAMES: Final = re.compile(r".*\.(?:tool|scenario)\.[a-z]+")

# Behind a fault of the syntax there are no marks, so there the text itself is looked at.
_IN_YAML: Final = re.compile(r"""^["']?(?:name|scenario|function)["']?\s*:|^kind:\s*Tool\b""", re.MULTILINE)
_IN_JSON: Final = re.compile(r'"(?:name|scenario|function)"\s*:|"kind"\s*:\s*"Tool"')

_ALWAYS_ERRORS: Final = frozenset({"too_large", "file_unreadable", "file_vanished"})
"""What says nothing of the content."""


def unrelated_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The one notice for a file that was found in a folder and is not ours; None where it is to be read on.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text.
        formats: Those of other systems.
    """
    if len(documents) == 1 and _may_name_servers(documents[0].value, formats):
        for files in formats.server_files():
            if files.looks_like_servers_file(documents[0].value):
                return files.notice_of(source)
    return foreign(path, source, problems, formats) if problems else None


def lone_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """What is reported of a file that was given by itself and means nothing by itself; None for another file.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text.
        formats: Those of other systems.
    """
    notices = (
        each.notice(path, source, documents, problems) for each in formats.table if each.notice is not None
    )
    return next((notice for notice in notices if notice is not None), None)


def lacking(value: JSON) -> str:
    """What a document that is none of ours lacks to be a PromptPack, as the end of a message; empty for others."""
    if not isinstance(value, dict) or not isinstance(value.get("prompts"), dict):
        return ""
    return "; a PromptPack has `template_engine` beside its `prompts`"


def unrecognised(message: str, source: str) -> Problem:
    """A file called `*.tool.yaml` that holds no descriptor is an error, any other one a notice."""
    hint = "a descriptor has `name` and a schema or mode, a scenario begins with `scenario:`; keep other data out of the folder"
    severity: Severity = "error" if source.endswith(TOOL_SUFFIXES) else "notice"
    return Problem(code="unrecognised_file", message=message, hint=hint, severity=severity)


def _may_name_servers(value: JSON, formats: Formats) -> bool:
    return isinstance(value, dict) and "name" not in value and not formats.server_keys.isdisjoint(value)


def _may_name_servers_in_json(text: str, formats: Formats) -> bool:
    return any(re.search(rf'"{re.escape(key)}"\s*:', text) for key in sorted(formats.server_keys))


def foreign(path: Path, source: str, problems: Sequence[Problem], formats: Formats) -> Problem | None:
    """The one notice that stands for all that is wrong with the text of a file that does not look like ours.

    Args:
        path: The file.
        source: What it is called in problems.
        problems: What is wrong with its text.
        formats: Those of other systems.

    Returns:
        None where nothing is wrong, or where the errors are to be told: by its name or its top-level keys the
        file holds a descriptor, scenario or pack.
    """
    first = next((problem for problem in problems if problem.severity == "error"), None)
    if first is None or first.code in _ALWAYS_ERRORS or _is_called_ours(path.name):
        return None
    try:
        text = first_bytes(path).decode("utf-8", errors="replace")
    except OSError:
        return None
    as_json = source.lower().endswith(".json")
    if as_json and _may_name_servers_in_json(text, formats):
        for files in formats.server_files():
            if files.is_servers_file(str(path)):
                return files.notice_of(source)
    if _looks_like_ours(text, as_json=as_json):
        return None
    message = f"this is no descriptor, scenario or pack, and it can't be read: {first.code}: {first.message}"
    hint = "a descriptor has `name:`, a scenario begins with `scenario:`; keep other data out of the folder"
    notice = Problem(code="unrecognised_file", message=message, hint=hint, severity="notice")
    return notice.at(source, first.line, first.column)


def _is_called_ours(name: str) -> bool:
    return name in PACK_FILES or _OUR_NAMES.fullmatch(name) is not None


def _looks_like_ours(text: str, *, as_json: bool) -> bool:
    if (_IN_JSON if as_json else _IN_YAML).search(text):
        return True
    marks = json_text.marks(text) if as_json else yaml_text.marks(text)
    return any(_is_ours(place) for place in roots(marks))


def _is_ours(document: Place) -> bool:
    kind = document.parts.get("kind")
    return not _OUR_KEYS.isdisjoint(document.parts) or (kind is not None and kind.mark.text == "Tool")
