"""PromptKit documents, and descriptors in the flat forms of other systems, as formats that loading reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit.foreign_descriptors import (
    has_foreign_keys,
    is_arena,
    is_function,
    is_manifest,
    is_tool,
    is_tool_manifest,
    read_foreign_keys,
    read_function,
    read_manifest,
    reword_problems,
)
from toolcrib.loading.documents.document import Document, first_bytes, parse_documents
from toolcrib.loading.format_contract import Conversion, ForeignTool, Format, ParentDocuments

if TYPE_CHECKING:
    from toolcrib.loading.reader import DocumentContext
    from toolcrib.loading.scenarios.model import Scenario

_Read: TypeAlias = Callable[[Document, Files | None], tuple[list[Document], list[Problem]]]


def _descriptors(name: str, detect: Callable[[JSON], bool], read: _Read) -> Format:

    def convert(document: Document, where: DocumentContext) -> Conversion:
        return convert_descriptor(document, where, read)

    def documents(document: Document, files: Files | None) -> Sequence[Document]:
        return read(document, files)[0] if detect(document.value) else ()

    return Format(name=name, detect=detect, convert=convert, documents=documents)


def convert_descriptor(document: Document, where: DocumentContext, read: _Read = read_manifest) -> Conversion:
    """Convert a descriptor of another system to our form."""
    documents, problems = read(document, where.files)
    reword = partial(reword_problems, document)
    return Conversion(tools=[ForeignTool(own, problems, reword) for own in documents], problems=problems)


def _convert_arena(document: Document, where: DocumentContext) -> Conversion:
    from toolcrib.formats.promptkit.arenas import convert_arena  # noqa: PLC0415 -- most projects have no arena

    return convert_arena(document, where)


def _documents_in_arena(document: Document, files: Files | None) -> Sequence[Document]:
    return read_manifest(document, files)[0] if is_arena(document.value) else ()


def _drop_duplicates(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[Problem]]:
    from toolcrib.formats.promptkit.arenas import drop_duplicates  # noqa: PLC0415 -- most projects have no arena

    return drop_duplicates(scenarios)


def check_lone_responses(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem]
) -> Problem | None:
    """The problem of a file of mock responses without its arena; None for any other file.

    Args:
        path: The file.
        source: Its name in problems.
        documents: The documents read from it.
        problems: Problems of its text; numbers as keys are correct in mock responses.
    """
    # The general reader refuses numbers as keys, so the file is read again with `number_keys`.
    if any(problem.code == "non_string_key" for problem in problems):
        try:
            text = first_bytes(path)
        except OSError:
            return None
        documents, problems = parse_documents(source, text, whole=True, number_keys=True)
    if problems or len(documents) != 1 or not _are_responses(documents[0].value):
        return None
    message = "PromptKit mock responses have no effect without the scenarios of their arena"
    hint = f"run the folder of the arena, or one of its scenarios: `toolcrib run {path.parent}`"
    problem = Problem(code="unrecognised_file", message=message, hint=hint, severity="warning")
    return documents[0].place(problem)


def _are_responses(value: JSON) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= _OF_RESPONSES


_OF_RESPONSES: Final = frozenset(("defaultResponse", "default_response", "judges", "scenarios", "selfplay"))

ARENA: Final = Format(
    name="PromptKit arena",
    detect=is_arena,
    convert=_convert_arena,
    documents=_documents_in_arena,
    parents=ParentDocuments(is_arena, is_tool, partial(is_manifest, kind="Scenario")),
    drop_duplicates=_drop_duplicates,
    notice=check_lone_responses,
)
MANIFEST: Final = _descriptors("PromptKit manifest", is_tool_manifest, read_manifest)
FUNCTION: Final = _descriptors("function definition", is_function, read_function)
FOREIGN_KEYS: Final = _descriptors("descriptor of another system", has_foreign_keys, read_foreign_keys)
