"""A pack: a folder with `pack.yaml`, and what that file says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.errors import DocumentError, Problem
from toolcrib.loading.documents import Document, parse_documents
from toolcrib.loading.shape import Shape
from toolcrib.model import Origin
from toolcrib.protocols import Kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What `pack.yaml` says.

    Attributes:
        name: Name of the pack.
        version: Semantic version.
        description: What it is for.
        author: Who answers for it.
        licence: SPDX identifier.
        tools: Globs of its descriptor files, relative to the pack.
        scenarios: Globs of its scenario files, relative to the pack.
        origin: Where it came from.
    """

    name: str
    version: str
    description: str = ""
    author: str = ""
    licence: str = ""
    tools: tuple[str, ...] = ("**",)
    scenarios: tuple[str, ...] = ("**",)
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def parse(cls, name: str, content: str | bytes, *, kinds: Kinds) -> Pack:
        """A pack from the text of its `pack.yaml`.

        Args:
            name: What the text is called in problems; read as JSON if it ends in `.json`.
            content: YAML or JSON.
            kinds: What the modes say of their blocks (`toolcrib.Executors.installed()`).

        Raises:
            DocumentError: Something is wrong with it.
        """
        documents, problems = parse_documents(name, content)
        packs = [parse_pack(document, Shape("pack", kinds)) for document in documents]
        problems += [problem for _pack, found in packs for problem in found]
        pack = next((pack for pack, _found in packs if pack is not None), None)
        if pack is None or problems:
            raise DocumentError(
                problems or [Problem(code="unrecognised_file", message="there is no pack here", source=name)]
            )
        return pack

    def holds(self, path: str) -> bool:
        """Whether a file (relative to the pack, with `/`) is among its tools or scenarios."""
        return any(fits(path, glob) for glob in (*self.tools, *self.scenarios))


def fits(path: str, glob: str) -> bool:
    """Whether a path fits a glob: `*` stays within a folder, `**` crosses folders."""
    return _fits(path.split("/"), glob.split("/"))


def _fits(parts: list[str], globs: list[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return _fits(parts, globs[1:]) or (bool(parts) and (len(globs) == 1 or _fits(parts[1:], globs)))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _fits(parts[1:], globs[1:])


def parse_pack(document: Document, shape: Shape) -> tuple[Pack | None, list[Problem]]:
    """Read `pack.yaml`. Returns the pack, or None where it is refused, and all problems, placed."""
    value: Any = document.value
    problems = [document.place(problem) for problem in shape.problems(value)]
    if problems:
        return None, problems
    plain: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item
        for key, item in value.items()
        if key != "$schema"
    }
    origin = Origin(source=document.source, line=document.line, pack=value["name"], locate=document.position)
    return Pack(**plain, origin=origin), []
