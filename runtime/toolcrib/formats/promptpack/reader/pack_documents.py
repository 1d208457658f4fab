"""A PromptPack as loading takes it: its pack, its tools, and what is laid over them."""

from __future__ import annotations

from toolcrib.formats.promptpack.reader import read_promptpack
from toolcrib.loading.documents.document import Document
from toolcrib.loading.formats import Conversion, ForeignTool
from toolcrib.loading.reader import Home


def convert_promptpack(document: Document, where: Home) -> Conversion:
    """Read a PromptPack, and what binds its tools."""
    read = read_promptpack(document, where.files)
    of_tools = [problem for each in read.contracts for problem in each.problems]
    return Conversion(
        tools=[ForeignTool(each.document, each.problems) for each in read.contracts],
        pack=read.pack,
        pack_problems=read.problems,
        overrides=read.bindings,
        problems=[*of_tools, *read.bindings.problems],
    )
