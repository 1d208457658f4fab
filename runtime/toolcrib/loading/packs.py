"""A pack: a folder with `pack.yaml`, and what that file says of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Fixture, Origin, Toolset
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files, Kinds
from toolcrib.core.text import canonical
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.inline_sources import Content, documents_of, log_problems, only_document
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.hidden_text import hidden_problems
from toolcrib.loading.partial_check import sound
from toolcrib.loading.prompts import Prompt, check_prompts, prompts_of
from toolcrib.loading.schema_check import Shape
from toolcrib.loading.store_settings import fixture_of, with_names
from toolcrib.loading.toolsets import check_defaults, check_names, check_toolsets, toolsets_of
from toolcrib.loading.versions import check_range
from toolcrib.registry.namespaces import full_name


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
        namespace: What stands before `__` in the names of its tools; empty for none.
        toolsets: Named selections of its tools, in order of writing; globs over the names without namespace.
        prompts: Name -> what instructs a model, in order of writing; globs as in `toolsets`.
        defaults: Key of a descriptor -> value as documents write it, for descriptors that do not say so themselves.
        requires: `toolcrib` -> versions of it that will do, `packs` -> name of a pack -> versions of it; `environment`,
            `files`, `hosts` -> what its tools look up and contact.
        metadata: What else is known of it.
        fixture: What the store of its tools begins with.
        faults: What is wrong with that; it refuses nothing of the pack.
        origin: Where it came from.
    """

    name: str
    version: str
    description: str = ""
    author: str = ""
    licence: str = ""
    tools: tuple[str, ...] = ("**",)
    scenarios: tuple[str, ...] = ("**",)
    namespace: str = ""
    toolsets: tuple[Toolset, ...] = ()
    prompts: Mapping[str, Prompt] = field(default_factory=lambda: NOTHING)
    defaults: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    requires: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    metadata: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    fixture: Fixture = NO_FIXTURE
    faults: tuple[Problem, ...] = ()
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def parse(cls, name: str, content: Content, *, kinds: Kinds) -> Pack:
        """A pack from the text of its `pack.yaml`, or from a mapping that says the same.

        Args:
            name: What the text is called in problems; read as JSON if it ends in `.json`.
            content: YAML or JSON, or one document as a mapping.
            kinds: What the modes say of their blocks (`toolcrib.Executors.installed()`).

        Raises:
            DocumentError: There is an error in it. Warnings are logged.
        """
        pack, problems = one_pack(name, *documents_of(name, content), Shape("pack", kinds))
        problems += pack.faults if pack is not None else ()
        if pack is None or any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        log_problems(problems)
        return pack

    def toolsets_within(self, namespace: str) -> tuple[Toolset, ...]:
        """Its toolsets, with globs over the names that its tools have within a namespace."""
        return tuple(
            toolset._replace(tools=tuple(full_name(namespace, glob) for glob in toolset.tools))
            for toolset in self.toolsets
        )

    def holds_tools(self, path: str) -> bool:
        """Whether a file (relative to the pack, with `/`) may hold tools of the pack."""
        return any(fits(path, glob) for glob in self.tools)

    def holds_scenarios(self, path: str) -> bool:
        """Whether a file (relative to the pack, with `/`) may hold scenarios of the pack."""
        return any(fits(path, glob) for glob in self.scenarios)


def fits(path: str, glob: str) -> bool:
    """Whether a path fits a glob: `*` stays within a folder, `**` crosses folders."""
    globs = glob.split("/")
    reached = _past_stars({0}, globs)
    for part in path.split("/"):
        going_on = {at for at in reached if at < len(globs) and globs[at] == "**"}
        passed = {at + 1 for at in reached - going_on if at < len(globs) and fnmatchcase(part, globs[at])}
        reached = _past_stars(going_on | passed, globs)
    return len(globs) in reached


def _past_stars(reached: set[int], globs: list[str]) -> set[int]:
    """The places in a glob that are reached, and those behind a `**` that stands for no folder."""
    for at, glob in enumerate(globs):
        if at in reached and glob == "**":
            reached = reached | {at + 1}
    return reached


def one_pack(
    source: str,
    documents: Sequence[Document],
    problems: Sequence[Problem],
    shape: Shape,
    files: Files | None = None,
) -> tuple[Pack | None, list[Problem]]:
    """The pack that one file describes, and everything that is wrong with the file but the pack's own `faults`.

    Args:
        source: The file, as it was named.
        documents: What was read of it.
        problems: What was wrong with its text.
        shape: The pack schema, compiled.
        files: The files that it may name; None for a lone text from memory.
    """
    document, told = only_document(source, documents, problems, "pack", _FIRST)
    pack, faults = parse_pack(document, shape, files) if document is not None else (None, [])
    return pack, told + faults


def readable_part(
    source: str, documents: Sequence[Document], shape: Shape, files: Files | None = None
) -> Pack:
    """What can be told of a pack that is refused: its name, namespace, globs, defaults and store, if they are readable.

    Its files are checked by it, so that they show no problems that they would not have in the mended pack.
    """
    said: dict[str, Any] = {"name": "", "version": ""}
    if documents:
        value, faults = shape.judged(documents[0])
        if isinstance(value, dict):
            whole = sound(value, faults, shape)
            said |= {key: whole[key] for key in ("name", "version", "namespace", "defaults") if key in whole}
            said |= {key: tuple(whole[key]) for key in ("tools", "scenarios") if key in whole}
            if any(check_defaults(said, "")):
                del said["defaults"]
            kept: dict[str, Any] = {key: whole[key] for key in ("store", "state") if key in whole}
            origin = Origin(source=source, pack=said["name"], files=files, locate=documents[0].position)
            fixture, wrong = fixture_of(kept, origin, said["name"], documents[0])
            said |= {"fixture": with_names(fixture, value, said["name"]), "faults": wrong}
    return Pack(**said, origin=Origin(source=source, pack=said["name"]))


def sound_pack(document: Document, shape: Shape) -> Pack:
    """What is right of a pack that has a name, whatever is wrong with other parts of it."""
    value, faults = shape.judged(document)
    whole: dict[str, Any] = (
        {"version": "0.0.0", **sound(value, faults, shape)} if isinstance(value, dict) else {}
    )
    whole = sound(whole, [*check_prompts(whole.get("prompts", {}))], shape)
    pack, _told = parse_pack(document.moved(whole, {}), shape)
    return pack or Pack(name=whole["name"], version=whole["version"], origin=Origin(source=document.source))


_FIRST = "write `name: my-pack` and `version: 1.0.0`"


def parse_pack(
    document: Document, shape: Shape, files: Files | None = None
) -> tuple[Pack | None, list[Problem]]:
    """Read `pack.yaml`. Returns the pack, or None where it is refused, and all problems, placed."""
    value, faults = shape.judged(document)
    if isinstance(value, dict):
        faults = [*map(_of_later, faults), *_check_pack(sound(value, faults, shape)), *hidden_problems(value)]
    problems = [document.place(problem) for problem in faults]
    if not isinstance(value, dict) or any(problem.severity == "error" for problem in problems):
        return None, problems
    said: dict[str, Any] = value
    plain: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item
        for key, item in said.items()
        if key not in _READ_APART
    }
    origin = Origin(
        source=document.source,
        line=document.line,
        digest=hashlib.sha256(canonical(value).encode("utf-8")).hexdigest(),
        pack=said["name"],
        locate=document.position,
    )
    fixture, wrong = fixture_of(said, origin._replace(files=files), said["name"], document)
    plain |= {"toolsets": toolsets_of(said, origin), "prompts": prompts_of(said, origin)}
    plain |= {"fixture": fixture, "faults": wrong}
    return Pack(**plain, origin=origin), problems


_READ_APART = frozenset({"$schema", "state", "store"})
"""Keys that are no fields of a pack."""


def _check_pack(said: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the parts of a pack whose shape is right."""
    yield from check_names(said, ("toolsets",))
    yield from check_toolsets(said.get("toolsets", {}))
    yield from check_prompts(said.get("prompts", {}))
    yield from check_defaults(said, "")
    needs = said.get("requires", {})
    if "toolcrib" in needs:
        yield from check_range(needs["toolcrib"], "/requires/toolcrib")
    for name, wanted in needs.get("packs", {}).items():
        pointer = f"/requires/packs/{pointer_step(name)}"
        if not _PACK_NAME.fullmatch(name):
            message = f"`{clipped(name)}` is no name of a pack"
            hint = "a name is lower case letters, digits and `-`, at most 64 in all, and begins with a letter"
            yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)
        yield from check_range(wanted, pointer)


_PACK_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")

_LATER_NEEDS = frozenset({"commands", "extras"})
"""Keys of `requires` that are reserved and have no effect yet."""


def _of_later(fault: Problem) -> Problem:
    """A need that nothing looks after yet is told as that, not as a misspelling."""
    name = fault.pointer.removeprefix("/requires/")
    if fault.code != "unknown_key" or name not in _LATER_NEEDS:
        return fault
    hint = "leave it out; a key without effect is refused rather than ignored"
    return fault._replace(code="not_supported_yet", message=f"`{name}` is not supported yet", hint=hint)


def duplicate_pack(first: Pack, second: Pack) -> Problem:
    """The second pack of one name is refused, with everything in it."""
    place = first.origin.place("/name")
    message = f"`{second.name}` is already the name of a pack in {place}; this one is left out with its tools"
    problem = Problem(
        code="duplicate_pack", message=message, pointer="/name", hint="rename one of them, or load only one"
    )
    return problem.at(second.origin.source, *second.origin.locate("/name"))


def second_pack_file(source: str, first: str | Path | None) -> Problem:
    """The problem of a folder with two pack files."""
    message = f"the folder has two pack files; `{Path(first or '').name}` counts, and this one is not read"
    problem = Problem(code="second_pack_file", message=message, hint="remove one of them", severity="warning")
    return problem.at(source, 1, 1)
