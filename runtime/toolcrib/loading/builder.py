"""Documents on their way to tools, several at once, each with the name and the defaults that its home gives it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Descriptor, Fixture
from toolcrib.core.protocols import Files, Kinds
from toolcrib.loading.descriptors import Given, parse_descriptors
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.files import KeptFiles
from toolcrib.loading.formats import Rewording
from toolcrib.loading.overrides import kept_files
from toolcrib.loading.packs import Pack
from toolcrib.registry.namespaces import full_name


@dataclass(frozen=True, slots=True)
class Home:
    """Where documents lie.

    Attributes:
        files: The files that they may name.
        pack: The pack that holds them; None outside packs.
        namespace: What stands before the names of the tools.
        tools: Whether tools are taken from there.
        scenarios: Whether scenarios are taken from there.
        outside: What the store of tools outside packs begins with.
        only: The file whose scenarios alone are taken from a foreign document that names several; empty for all.
    """

    files: Files | None = None
    pack: Pack | None = None
    namespace: str = ""
    tools: bool = True
    scenarios: bool = True
    outside: Fixture = NO_FIXTURE
    only: str = ""

    @property
    def fixture(self) -> Fixture:
        """What the store of the tools begins with."""
        return self.outside if self.pack is None else self.pack.fixture


def home(
    files: Files, pack: Pack | None, path: str, namespace: str = "", outside: Fixture = NO_FIXTURE
) -> Home:
    """Where the documents of a file lie; `path` is relative to the pack."""
    if pack is None:
        return Home(files, namespace=namespace, outside=outside)
    return Home(files, pack, pack.namespace, pack.holds_tools(path), pack.holds_scenarios(path))


@dataclass(slots=True)
class Draft:
    """A document that describes a tool, in our own form, and what came of it.

    Attributes:
        document: The document.
        where: Where it lies.
        before: What was found wrong already with the document as it was written.
        reword: Tells the problems in the words of the system that the document comes from; None where it is our own.
        tool: The tool; None before it is parsed, and where it is refused.
        problems: What is wrong with it.
    """

    document: Document
    where: Home
    before: Sequence[Problem] = ()
    reword: Rewording | None = None
    tool: Descriptor | None = None
    problems: list[Problem] = field(default_factory=list)


def parse_drafts(drafts: Sequence[Draft], kinds: Kinds, shape: DocumentChecker) -> None:
    """Give every draft its tool and its problems."""
    started = [_Started(draft) for draft in drafts]
    parsed = parse_descriptors([each.given for each in started], kinds, shape)
    for each, (tool, problems) in zip(started, parsed, strict=True):
        each.draft.problems = problems
        each.draft.tool = None if tool is None else each.finished(tool)


class _Started:
    """A draft with what its home gives it; `given` is what is parsed."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        where, document = draft.where, draft.document
        self._defaults = _defaults_for(document, where.pack)
        files, self._kept = kept_files(where.files)
        if self._defaults and isinstance(document.value, dict):
            document = document.moved({**document.value, **self._defaults}, {})
        pack = "" if where.pack is None else where.pack.name
        self.given = Given(document, files, pack, where.fixture)

    def finished(self, tool: Descriptor) -> Descriptor:
        """The tool under its full name. Its digest tells the files that it names, its origin what its pack gave it."""
        tool = _with_contents(tool, self._kept)
        where = self.draft.where
        if not (where.namespace or self._defaults):
            return tool
        changes: dict[str, Any] = {"namespace": where.namespace}
        if where.pack is not None and self._defaults:
            place = f"{where.pack.origin.place('/defaults')} (defaults of pack {where.pack.name})"
            changes["settings"] = dict.fromkeys(self._defaults, place)
            changes["written"] = tool.origin.written - self._defaults.keys()
        name = full_name(where.namespace, tool.name)
        return tool._replace(name=name, origin=tool.origin._replace(**changes))


def _defaults_for(document: Document, pack: Pack | None) -> Mapping[str, JSON]:
    """What a pack says for a tool that does not say it itself."""
    if pack is None or not pack.defaults or not isinstance(document.value, dict):
        return NOTHING
    said = document.value
    return {key: item for key, item in pack.defaults.items() if key not in said}


def _with_contents(tool: Descriptor, kept: Iterable[KeptFiles]) -> Descriptor:
    """The tool, whose digest tells the files that it names as well."""
    contents = []
    for files in kept:
        files.close()
        contents += sorted(files.contents.items())
    if not contents:
        return tool
    digest = hashlib.sha256(tool.origin.digest.encode())
    for name, content in contents:
        digest.update(hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest())
        digest.update(hashlib.sha256(content).digest())
    return tool._replace(origin=tool.origin._replace(digest=digest.hexdigest()))
