"""PromptPacks (version 1.4) as packs of our own: contracts of tools, prompts, and what binds the tools beside them.

    name.pack.json          one PromptPack: contracts and prompts; any JSON or YAML file of that form will do
    name.bindings.yaml      what binds its tools, by their names; or `bindings.yaml`, for all PromptPacks of the folder

Nothing is lost: what has no counterpart here is kept under `metadata` and told as a notice. Where a part came from is
kept as well, so problems point into the files as they are written.
"""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.protocols import Files
from toolcrib.formats.promptpack import is_promptpack
from toolcrib.formats.promptpack.reader.bindings import bound_parts, is_bindings, read_bindings
from toolcrib.formats.promptpack.reader.contracts import Contract, contracts_of
from toolcrib.formats.promptpack.reader.conversion import Turning
from toolcrib.formats.promptpack.reader.pack_settings import pack_of
from toolcrib.loading.documents.document import Document
from toolcrib.loading.formats import OverrideFile

__all__ = ["Contract", "PromptPack", "parts_of", "read_promptpack"]


class PromptPack(NamedTuple):
    """A PromptPack as documents in our own form.

    Attributes:
        pack: What `pack.yaml` would say.
        contracts: What the descriptors would say, each with what is wrong with it.
        bindings: What is laid over them.
        problems: What is wrong besides, placed.
    """

    pack: Document
    contracts: tuple[Contract, ...]
    bindings: OverrideFile
    problems: tuple[Problem, ...]


def read_promptpack(document: Document, files: Files | None = None) -> PromptPack:
    """Read a PromptPack.

    Args:
        document: As it was read; `is_promptpack` holds of it.
        files: Those beside it, among which its bindings are looked for.
    """
    turning = Turning(document)
    pack = pack_of(turning)
    contracts = tuple(contracts_of(document, turning))
    names = [contract.name for contract in contracts]
    return PromptPack(pack, contracts, read_bindings(document, names, files), tuple(turning.placed()))


def parts_of(document: Document) -> list[Document]:
    """The documents in our own form that stand in one of a PromptPack, or of its bindings; none in any other."""
    if is_promptpack(document.value):
        read = read_promptpack(document)
        return [read.pack, *(contract.document for contract in read.contracts)]
    return bound_parts(document) if is_bindings(document.source) else []
