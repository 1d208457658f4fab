"""PromptPack: a format that loading reads and `toolcrib export` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toolcrib.core.model import JSON
from toolcrib.loading.format_contract import Conversion, Format

if TYPE_CHECKING:
    from toolcrib.core.protocols import Files
    from toolcrib.loading.documents.document import Document
    from toolcrib.loading.reader import DocumentContext


def is_promptpack(value: JSON) -> bool:
    """Whether a document is a PromptPack: it has prompts or tools, and a template engine or the PromptPack schema."""
    if not isinstance(value, dict) or not ("prompts" in value or "tools" in value):
        return False
    # `prompts` and `tools` are common keys of other formats, so a second mark is required.
    schema = value.get("$schema")
    return "template_engine" in value or (isinstance(schema, str) and "promptpack" in schema.casefold())


def _convert(document: Document, where: DocumentContext) -> Conversion:
    from toolcrib.formats.promptpack.pack_reader import convert_promptpack  # noqa: PLC0415 -- most projects have no PromptPack

    return convert_promptpack(document, where.files)


def _documents(document: Document, _files: Files | None) -> Sequence[Document]:
    from toolcrib.formats.promptpack.pack_reader import documents_in  # noqa: PLC0415 -- most projects have no PromptPack

    return documents_in(document)


PROMPTPACK: Final = Format(
    name="PromptPack", detect=is_promptpack, convert=_convert, documents=_documents, is_pack=True
)
