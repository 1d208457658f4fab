"""What is given in memory, as documents: a text, bytes, a mapping, or a list of mappings."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.notices import log_problems
from toolcrib.schema.validation import as_dict, as_json

__all__ = ["Content", "documents_of", "log_problems"]

Content: TypeAlias = str | bytes | Mapping[str, JSON] | Sequence[Mapping[str, JSON]]
"""YAML or JSON as text or bytes, one document as a mapping, or several in a list."""


def documents_of(name: str, content: Content, *, line: int = 1) -> tuple[list[Document], list[Problem]]:
    """The documents that a content holds, and what is wrong with it, placed.

    Args:
        name: What it is called in problems; a text is read as JSON if it ends in `.json`.
        content: What was given; anything else than a `Content` is a problem too.
        line: Where mappings stand that somebody else has read.
    """
    if isinstance(content, str | bytes):
        return parse_documents(name, content)
    if isinstance(content, Mapping):
        return _from_mappings(name, [content], line)
    if isinstance(content, list | tuple):
        return _from_mappings(name, content, line)
    message = f"expected a text, bytes, a mapping or a list of mappings, got `{type(content).__name__}`"
    return [], [Problem(code="not_json", message=message, source=name, line=1, column=1)]


def _from_mappings(name: str, contents: Sequence[object], line: int) -> tuple[list[Document], list[Problem]]:
    documents, problems = [], []
    for index, content in enumerate(contents):
        value, fault = as_json(as_dict(content))
        if fault is None:
            documents.append(Document(name, index, line, copy.deepcopy(value)))
            continue
        message = f"expected {fault.expected}, got {fault.got}"
        problem = Problem(code="not_json", message=message, pointer=fault.pointer)
        problems.append(problem.at(name, line, 1))
    return documents, problems


def only_document(
    source: str, documents: Sequence[Document], problems: Sequence[Problem], kind: str, hint: str
) -> tuple[Document | None, list[Problem]]:
    """The one document of a file that holds one, and what is wrong with the file so far.

    Args:
        source: The file, as it was named.
        documents: What was read of it.
        problems: What was wrong with its text.
        kind: What the document describes: `pack`, `project`.
        hint: What to write into an empty file.
    """
    told = [problem for problem in problems if problem.code != "empty_document"]
    if not documents and not told:
        message = f"the file describes no {kind}: it is empty"
        told.append(
            Problem(code="empty_document", message=message, hint=hint, source=source, line=1, column=1)
        )
    if len(documents) > 1:
        message = f"the file holds {len(documents)} documents, and a {kind} is one"
        told.append(
            documents[1].place(Problem(code="several_documents", message=message, hint="keep one of them"))
        )
    return (documents[0] if documents else None), told
