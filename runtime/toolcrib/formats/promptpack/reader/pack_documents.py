"""A PromptPack among what else is read: its pack, and its tools on their way."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.formats.promptpack.reader import read_promptpack
from toolcrib.formats.promptpack.reader.bindings import Bindings
from toolcrib.loading.builder import Draft, Home
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import Document
from toolcrib.loading.packs import Pack, parse_pack, sound_pack


class Joined(NamedTuple):
    """A PromptPack that was read.

    Attributes:
        pack: What it says as a whole, as far as that is right.
        home: Where its tools lie: in that pack.
        drafts: Its tools.
        bindings: What is laid over them.
        problems: What is wrong with all of it but the tools.
    """

    pack: Pack
    home: Home
    drafts: list[Draft]
    bindings: Bindings
    problems: list[Problem]


def join_promptpack(document: Document, where: Home, shape: DocumentChecker) -> Joined:
    """Read a PromptPack.

    Args:
        document: The document.
        where: Where it lies; the mocks that bind its tools keep what tools keep there.
        shape: The pack schema, compiled.
    """
    read = read_promptpack(document, where.files)
    pack, told = parse_pack(read.pack, shape, where.files)
    pack = pack or sound_pack(read.pack, shape)
    pack = replace(pack, namespace=where.namespace, fixture=where.fixture)
    home = replace(where, pack=pack)
    drafts = [Draft(each.document, home, each.problems) for each in read.contracts]
    of_tools = [problem for each in read.contracts for problem in each.problems]
    problems = [*read.problems, *told, *of_tools, *read.bindings.problems]
    return Joined(pack, home, drafts, read.bindings, problems)
