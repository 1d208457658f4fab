"""Documents of tools that lie in the project or its packs and are not read, and which key excludes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.descriptors import is_descriptor
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.documents.files import PACK_FILES, SUFFIXES, pack_file
from toolcrib.loading.packs import Pack
from toolcrib.loading.snapshot import LoadedProject

FILES = 2000
"""Maximum number of files that are searched for documents that are not read."""


class ExcludedTool(NamedTuple):
    """A document of a tool that was not loaded.

    Attributes:
        name: Name of the tool.
        file: Its file.
        place: The document, as `file:line`.
        state: `ignored`, `left_out` of its pack, `outside` of the sources, or `not_read` for another reason.
        reason: Why it was not loaded, as the end of a sentence.
        key: The key that excludes the file, with its place: `` `sources` (toolcrib.yaml:2) ``; empty for `not_read`.
    """

    name: str
    file: str
    place: str
    state: str
    reason: str
    key: str


def excluded_tools(stock: LoadedProject, modes: tuple[str, ...], name: str = "") -> Iterator[ExcludedTool]:
    """Find documents of tools that were not loaded.

    Args:
        stock: The loaded project.
        modes: The known modes, whose blocks make a document a descriptor.
        name: Only documents with this name; empty for all tools whose file is excluded.
    """
    ignored = {os.path.realpath(path) for path in stock.ignored}
    packs = {
        os.path.realpath(Path(pack.origin.source).parent): pack
        for pack in stock.packs
        if Path(pack.origin.source).name in PACK_FILES  # a PromptPack is one file and contains no others
    }
    root = stock.project.root if stock.project is not None else "."
    for path in _files(root, stock.sources):
        state, reason, key = _why_left_out(path, ignored, packs, stock)
        if not name and state == "not_read":
            continue
        for document in read_documents(path, str(path))[0]:
            said = document.value
            tool = said.get("name") if isinstance(said, dict) else None
            if isinstance(tool, str) and (tool == name if name else is_descriptor(said, modes)):
                place = f"{document.source}:{document.line}"
                yield ExcludedTool(tool, str(path), place, state, reason, key)


def tell_excluded(runtime: Runtime, name: str) -> None:
    """Print on stderr where an unknown tool is, if a file that is not read contains it."""
    engine = engine_of(runtime)
    for tool in excluded_tools(engine.stock, tuple(engine.executors.modes), name):
        if tool.key and name not in engine.stock.refused:
            hint = f"    hint: `{name}` is in {tool.place}, which {tool.key} excludes"
            click.echo(escape_terminal(hint), err=True)
            return


def _why_left_out(
    path: Path, ignored: set[str], packs: dict[str, Pack], stock: LoadedProject
) -> tuple[str, str, str]:
    real = os.path.realpath(path)
    project = stock.project
    if real in ignored:
        return "ignored", "but `ignore` of the project excludes the file", f"`ignore` of {stock.project_file}"
    for folder in Path(real).parents:
        pack = packs.get(str(folder))
        if pack is None:
            continue
        within = Path(real).relative_to(folder).as_posix()
        if not pack.holds_tools(within):
            place = pack.origin.place("/tools")
            return (
                "left_out",
                f"but no glob of `tools` in {place} matches `{within}`",
                f"`tools` ({place})",
            )
    if not any(Path(real).is_relative_to(os.path.realpath(source)) for source in stock.sources):
        listed = ", ".join(stock.sources) or "no sources"
        place = project.origin.place("/sources") if project is not None else ""
        key = f"`sources` ({place})" if place else f"the search in {listed}"
        return "outside", f"but the file is in none of the sources: {listed}", key
    return "not_read", "but the document was not recognised as a descriptor", ""


def _files(root: str, sources: tuple[str, ...]) -> Iterator[Path]:
    """Yield up to `FILES` files that may contain documents, below the project and its sources, each once."""
    seen: set[str] = set()
    for top in dict.fromkeys([root, *sources]):
        for here, folders, names in os.walk(top):
            # `os.walk` descends in the order of this list, so sorting makes the answer independent of the
            # file system.
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and name != "node_modules"
            )
            for name in sorted(names):
                path = Path(here, name)
                real = os.path.realpath(path)
                # A file may be reached twice, through the project and through a link.
                if name.endswith(SUFFIXES) and real not in seen and path != pack_file(path.parent):
                    seen.add(real)
                    yield path
                if len(seen) >= FILES:
                    return
