"""Files in a scanned folder that were never meant for us: what is wrong with them is one notice, not errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import JSON
from toolcrib.loading.documents import json_text, yaml_text
from toolcrib.loading.documents.document import Document, first_bytes, parse_documents
from toolcrib.loading.documents.files import PACK_FILES, SUFFIXES
from toolcrib.loading.documents.positions import Place, roots

TOOL_SUFFIXES: Final = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""A file that is called this says that it holds a descriptor."""

_OUR_KEYS: Final = frozenset({"name", "scenario", "function"})
"""One of these at the top of a document can make it a descriptor or scenario, in whatever form."""

_OUR_NAMES: Final = re.compile(r".*\.(?:tool|scenario)\.[a-z]+")

_SERVERS: Final = frozenset({"mcpServers", "servers", "mcp", "context_servers"})
"""Keys under which files of MCP clients name servers."""

_SERVERS_IN_JSON: Final = re.compile(r'"(?:mcpServers|servers|context_servers)"\s*:')

# Behind a fault of the syntax there are no marks, so there the text itself is looked at.
_IN_YAML: Final = re.compile(r"""^["']?(?:name|scenario|function)["']?\s*:|^kind:\s*Tool\b""", re.MULTILINE)
_IN_JSON: Final = re.compile(r'"(?:name|scenario|function)"\s*:|"kind"\s*:\s*"Tool"')

_ALWAYS_ERRORS: Final = frozenset({"too_large", "file_unreadable", "file_vanished"})
"""What says nothing of the content."""


def stranger_in(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem]
) -> Problem | None:
    """The one notice for a file that was found in a folder and is not ours; None where it is to be read on.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text.
    """
    if len(documents) == 1 and _may_name_servers(documents[0].value):
        from toolcrib.formats.mcp_clients.server_files import looks_like_servers_file, notice_of  # noqa: PLC0415 -- rarely met

        if looks_like_servers_file(documents[0].value):
            return notice_of(source)
    return foreign(path, source, problems) if problems else None


def responses_alone(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem]
) -> Problem | None:
    """What is said of PromptKit's mock responses where they are given without their arena; None for another file.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text; keys that are numbers are right in mock responses.
    """
    if any(problem.code == "non_string_key" for problem in problems):
        try:
            text = first_bytes(path)
        except OSError:
            return None
        documents, problems = parse_documents(source, text, whole=True, number_keys=True)
    if problems or len(documents) != 1 or not _are_responses(documents[0].value):
        return None
    message = "these are mock responses of PromptKit, which say nothing without the scenarios of their arena"
    hint = f"name the folder of the arena, or one of its scenarios, such as `toolcrib run {path.parent}`"
    problem = Problem(code="unrecognised_file", message=message, hint=hint, severity="warning")
    return documents[0].place(problem)


def _are_responses(value: JSON) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= _OF_RESPONSES


_OF_RESPONSES: Final = frozenset(("defaultResponse", "default_response", "judges", "scenarios", "selfplay"))


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


def _may_name_servers(value: JSON) -> bool:
    return isinstance(value, dict) and "name" not in value and not _SERVERS.isdisjoint(value)


def foreign(path: Path, source: str, problems: Sequence[Problem]) -> Problem | None:
    """The one notice that stands for all that is wrong with the text of a file that does not look like ours.

    Args:
        path: The file.
        source: What it is called in problems.
        problems: What is wrong with its text.

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
    if as_json and _SERVERS_IN_JSON.search(text):
        from toolcrib.formats.mcp_clients.server_files import is_servers_file, notice_of  # noqa: PLC0415 -- as above

        if is_servers_file(str(path)):
            return notice_of(source)
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
