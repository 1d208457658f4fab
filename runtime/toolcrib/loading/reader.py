"""Documents to tools, packs and scenarios: what is valid is kept, and each problem of the rest is placed.

Content decides what a document is: its own keys, a format of another system, or nothing of ours, which is one notice for
the file instead of errors. A refused file takes nothing else with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Descriptor, Fixture
from toolcrib.core.protocols import Files, Kinds
from toolcrib.loading.descriptors import (
    DescriptorSource,
    files_of,
    is_descriptor,
    is_override,
    missing_override_target,
    overlay_document,
    overrides_of,
    parse_descriptors,
    replace_overridden,
    with_cached_files,
)
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents import json_text, yaml_text
from toolcrib.loading.documents.document import Document, first_bytes
from toolcrib.loading.documents.files import PACK_FILES, SUFFIXES, CachedFiles
from toolcrib.loading.documents.positions import TextPosition, root_positions
from toolcrib.loading.format_contract import Format, Formats, NamedFile, OverrideFile, Rewording, formats_of
from toolcrib.loading.packs import (
    Pack,
    duplicate_pack,
    matches_glob,
    parse_pack,
    parse_pack_file,
    parse_readable_part,
    valid_pack_part,
)
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import is_scenario, parse_scenario
from toolcrib.registry.names import full_name, short_name


@dataclass(frozen=True, slots=True)
class DocumentContext:
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
        """The initial contents of the tools' store."""
        return self.outside if self.pack is None else self.pack.fixture


def document_context(
    files: Files, pack: Pack | None, path: str, namespace: str = "", outside: Fixture = NO_FIXTURE
) -> DocumentContext:
    """Where the documents of a file lie; `path` is relative to the pack."""
    if pack is None:
        return DocumentContext(files, namespace=namespace, outside=outside)
    return DocumentContext(files, pack, pack.namespace, pack.holds_tools(path), pack.holds_scenarios(path))


@dataclass(slots=True)
class DescriptorDraft:
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
    where: DocumentContext
    before: Sequence[Problem] = ()
    reword: Rewording | None = None
    tool: Descriptor | None = None
    problems: list[Problem] = field(default_factory=list)


def parse_drafts(drafts: Sequence[DescriptorDraft], kinds: Kinds, shape: DocumentChecker) -> None:
    """Give every draft its tool and its problems."""
    started = [_PreparedDraft(draft) for draft in drafts]
    parsed = parse_descriptors([each.given for each in started], kinds, shape)
    for each, (tool, problems) in zip(started, parsed, strict=True):
        each.draft.problems = problems
        each.draft.tool = None if tool is None else each.finished(tool)


class _PreparedDraft:
    """A draft with what its home gives it; `given` is what is parsed."""

    def __init__(self, draft: DescriptorDraft) -> None:
        self.draft = draft
        where, document = draft.where, draft.document
        self._defaults = _defaults_for(document, where.pack)
        files, self._kept = with_cached_files(where.files)
        if self._defaults and isinstance(document.value, dict):
            document = document.moved({**document.value, **self._defaults}, {})
        pack = "" if where.pack is None else where.pack.name
        self.given = DescriptorSource(document, files, pack, where.fixture)

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
    """The defaults of a pack for a tool that leaves these keys out."""
    if pack is None or not pack.defaults or not isinstance(document.value, dict):
        return NOTHING
    said = document.value
    return {key: item for key, item in pack.defaults.items() if key not in said}


def _with_contents(tool: Descriptor, kept: Iterable[CachedFiles]) -> Descriptor:
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


TOOL_SUFFIXES: Final = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""A file that is called this says that it holds a descriptor."""

_OUR_KEYS: Final = frozenset({"name", "scenario", "function"})
"""One of these at the top of a document can make it a descriptor or scenario, in whatever form."""

_OUR_NAMES: Final = re.compile(r".*\.(?:tool|scenario)\.[a-z]+")

# Behind a fault of the syntax there are no marks, so there the text itself is looked at.
_IN_YAML: Final = re.compile(r"""^["']?(?:name|scenario|function)["']?\s*:|^kind:\s*Tool\b""", re.MULTILINE)
_IN_JSON: Final = re.compile(r'"(?:name|scenario|function)"\s*:|"kind"\s*:\s*"Tool"')

_ALWAYS_ERRORS: Final = frozenset({"too_large", "file_unreadable", "file_vanished"})
"""Problems that are independent of the content."""


def unrelated_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The one notice for a file that was found in a folder and is not ours; None where it is to be read on.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text.
        formats: Those of other systems.
    """
    if len(documents) == 1 and _may_name_servers(documents[0].value, formats):
        for files in formats.server_files():
            if files.looks_like_servers_file(documents[0].value):
                return files.notice_of(source)
    return unrelated_file_notice(path, source, problems, formats) if problems else None


def check_lone_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The problem of a file that was given alone and means nothing alone; None for another file.

    Args:
        path: The file.
        source: What it is called in problems.
        documents: What was read of it.
        problems: What is wrong with its text.
        formats: Those of other systems.
    """
    notices = (
        each.notice(path, source, documents, problems) for each in formats.table if each.notice is not None
    )
    return next((notice for notice in notices if notice is not None), None)


def missing_key_hint(value: JSON) -> str:
    """The key that an unknown document lacks to be a PromptPack, as the end of a message; empty for others."""
    if not isinstance(value, dict) or not isinstance(value.get("prompts"), dict):
        return ""
    return "; a PromptPack has `template_engine` next to `prompts`"


def unrecognised_file_problem(message: str, source: str) -> Problem:
    """A file called `*.tool.yaml` that holds no descriptor is an error, any other one a notice."""
    hint = "a descriptor has `name` and a schema or mode, a scenario starts with `scenario:`; keep other data out of the folder"
    severity: Severity = "error" if source.endswith(TOOL_SUFFIXES) else "notice"
    return Problem(code="unrecognised_file", message=message, hint=hint, severity=severity)


def _may_name_servers(value: JSON, formats: Formats) -> bool:
    return isinstance(value, dict) and "name" not in value and not formats.server_keys.isdisjoint(value)


def _may_name_servers_in_json(text: str, formats: Formats) -> bool:
    return any(re.search(rf'"{re.escape(key)}"\s*:', text) for key in sorted(formats.server_keys))


def unrelated_file_notice(
    path: Path, source: str, problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The one notice that stands for all that is wrong with the text of a file that does not look like ours.

    Args:
        path: The file.
        source: What it is called in problems.
        problems: What is wrong with its text.
        formats: Those of other systems.

    Returns:
        None where nothing is wrong, or where the errors are to be told: by its name or its top-level keys the
        file holds a descriptor, scenario or pack.
    """
    first = next((problem for problem in problems if problem.severity == "error"), None)
    if first is None or first.code in _ALWAYS_ERRORS or _is_called_ours(path.name):
        return None
    try:
        text = first_bytes(path).decode("utf-8", errors="replace")
    except OSError:
        return None
    as_json = source.lower().endswith(".json")
    if as_json and _may_name_servers_in_json(text, formats):
        for files in formats.server_files():
            if files.is_servers_file(str(path)):
                return files.notice_of(source)
    if _looks_like_ours(text, as_json=as_json):
        return None
    message = f"not a descriptor, scenario or pack, and not readable: {first.code}: {first.message}"
    hint = "a descriptor has `name:`, a scenario starts with `scenario:`; keep other data out of the folder"
    notice = Problem(code="unrecognised_file", message=message, hint=hint, severity="notice")
    return notice.at(source, first.line, first.column)


def _is_called_ours(name: str) -> bool:
    return name in PACK_FILES or _OUR_NAMES.fullmatch(name) is not None


def _looks_like_ours(text: str, *, as_json: bool) -> bool:
    if (_IN_JSON if as_json else _IN_YAML).search(text):
        return True
    marks = json_text.marks(text) if as_json else yaml_text.marks(text)
    return any(_is_ours(place) for place in root_positions(marks))


def _is_ours(document: TextPosition) -> bool:
    kind = document.parts.get("kind")
    return not _OUR_KEYS.isdisjoint(document.parts) or (kind is not None and kind.mark.text == "Tool")


REFUSED_PACK = "refused_pack"
"""Code of what is said of the tools of a pack whose own file is refused, and of packs that need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDocuments:
    """Everything that was read: the valid parts, and all problems.

    Attributes:
        tools: In order of reading; two tools may still have one name.
        packs: In order of reading.
        scenarios: In order of reading.
        refused_scenarios: What is left of those with errors, to be checked further and never run, with the first error.
        hindered_scenarios: The names of those whose pack was refused, with why.
        problems: Everything that is wrong with them.
        refused: Name of a tool whose document was refused -> the first problem of it, or that of its pack.
        refused_packs: Pack file that was refused -> name of the pack, if it could be read, and the first problem of it.
        unread: `file:line` of the first error of each file whose text could not be read at all.
        ignored: Files that a glob of `ignore` leaves out.
    """

    tools: tuple[Descriptor, ...] = ()
    packs: tuple[Pack, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    refused_scenarios: tuple[tuple[Scenario, Problem], ...] = ()
    hindered_scenarios: tuple[tuple[str, Problem], ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: Mapping[str, Problem] = field(default_factory=dict)
    refused_packs: Mapping[str, tuple[str, Problem]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ToolDocument:
    """A document that describes a tool, and where it lies."""

    document: Document
    home: DocumentContext


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """A file whose documents wait to be looked at; `told` is what is wrong with it so far."""

    key: str
    source: str
    documents: Sequence[Document]
    told: list[Problem]
    where: DocumentContext


@dataclass(frozen=True, slots=True)
class _Classification:
    """The kind of a document: known or unrelated, the number of its valid parts so far, and tools to parse."""

    document: Document
    known: bool = True
    told: Sequence[Problem] = ()
    fruits: int = 0
    drafts: Sequence[DescriptorDraft] = ()


_TOGETHER = 32
"""Documents that are looked at together, which is quicker than one after the other."""


class DocumentReader:
    """Collects what is read. A file is known by its key (its path with links resolved), and read once.

    Attributes:
        formats: Those of other systems that are read.
        touched: Keys of the files that documents name as data.
        stored: Keys of the files that hold rows of packs and of the project, which are no documents.
        ignored: Files that were passed over.
        fixture: What the store of tools outside packs begins with.
    """

    def __init__(self, kinds: Kinds, fixture: Fixture = NO_FIXTURE) -> None:
        self._kinds = kinds
        self.formats = formats_of(kinds)
        self.fixture = fixture
        self._tools: list[Descriptor] = []
        self._written: dict[str, _ToolDocument] = {}
        self._overrides: list[tuple[str, _ToolDocument]] = []
        self._packs: list[Pack] = []
        self._strays: dict[str, dict[str, Problem]] = {}
        self._scenarios: list[Scenario] = []
        self._refused_scenarios: list[tuple[Scenario, Problem]] = []
        self._hindered_scenarios: list[tuple[str, Problem]] = []
        self._refused: dict[str, Problem] = {}
        self._refused_packs: dict[str, tuple[str, Problem]] = {}
        self._unread: dict[str, str] = {}
        self._problems: dict[str, list[Problem]] = {}
        self._waiting: list[_PendingFile] = []
        self._named: list[NamedFile] = []
        self._fruitless: set[str] = set()
        self._globs: dict[str, set[str]] = {}
        self.touched: set[str] = set()
        self.stored: set[str] = set()
        self.ignored: list[str] = []

    @cached_property
    def _tool_shape(self) -> DocumentChecker:
        return DocumentChecker("descriptor", self._kinds)

    @cached_property
    def _pack_shape(self) -> DocumentChecker:
        return DocumentChecker("pack", self._kinds)

    @cached_property
    def _scenario_shape(self) -> DocumentChecker:
        return DocumentChecker("scenario", self._kinds)

    def loaded(self) -> LoadedDocuments:
        """Everything so far. What is wrong with a file is no matter if a descriptor names it as data."""
        self._settle()
        self._read_named()
        tools = self._overridden()
        data = self.touched & self._fruitless
        problems = [problem for key, told in self._problems.items() if key not in data for problem in told]
        strays = (problem for those in self._strays.values() for problem in those.values())
        problems += [*self._idle_globs(), *strays]
        counted, faulty = set(problems), {problem.source for problem in problems}
        return LoadedDocuments(
            tools=tuple(tools),
            packs=tuple(self._packs),
            scenarios=tuple(self._scenarios),
            refused_scenarios=tuple(
                (scenario, problem)
                for scenario, problem in self._refused_scenarios
                if scenario.origin.source in faulty
            ),
            hindered_scenarios=tuple(self._hindered_scenarios),
            problems=tuple(problems),
            refused={
                name: problem
                for name, problem in self._refused.items()
                if problem in counted or problem.code == REFUSED_PACK
            },
            refused_packs=self._refused_packs,
            unread=tuple(place for key, place in self._unread.items() if key not in data),
            ignored=tuple(self.ignored),
        )

    def knows(self, key: str) -> bool:
        """Whether a file was dealt with already, or holds rows."""
        return key in self._problems or key in self.stored

    def add_problem(self, key: str, problem: Problem) -> None:
        """All that is said of a file that is not read."""
        self._problems[key] = [problem]

    def add_problems(self, key: str, problems: Sequence[Problem]) -> None:
        """All that is said of an archive that is not read."""
        self._problems[key] = list(problems)

    def add_pack(
        self,
        key: str,
        source: str,
        documents: Sequence[Document],
        problems: Sequence[Problem],
        namespace: str = "",
        *,
        files: Files | None = None,
    ) -> Pack:
        """The content of a `pack.yaml`, under the namespace of its source, if any.

        Of one that has errors, and of the second one of a name, that is only what its files are checked by: nobody
        knows which of them it would hold and under which names, so nothing of them is taken.
        """
        self._settle()  # what lies before a pack that is refused has nothing to do with it
        pack, told = parse_pack_file(source, documents, problems, self._pack_shape, files)
        first = next((known for known in self._packs if pack is not None and known.name == pack.name), None)
        if pack is not None and first is not None:
            told.append(duplicate_pack(first, pack))
        self._problems[key] = told
        error = next((problem for problem in told if problem.severity == "error"), None)
        if pack is None or error is not None:
            pack = pack or parse_readable_part(source, documents, self._pack_shape, files)
            self._refused_packs[source] = pack.name, error or told[0]
        if namespace:
            pack = replace(pack, namespace=namespace)
        if source not in self._refused_packs:
            self._packs.append(pack)
        told += pack.faults
        return pack

    def refuse_pack(self, key: str, source: str, problem: Problem) -> Pack:
        """A pack whose pack file is not read; nothing of its files is taken."""
        self.add_problem(key, problem)
        self._refused_packs[source] = "", problem
        return parse_readable_part(source, (), self._pack_shape)

    def holds(self, pack: Pack | None, path: str) -> bool:
        """Whether a file (relative to its pack) is to be read; globs that fit it are noted."""
        if pack is None:
            return True
        fitting = {glob for glob in (*pack.tools, *pack.scenarios) if matches_glob(path, glob)}
        self._globs.setdefault(pack.origin.source, set()).update(fitting)
        return bool(fitting)

    def _idle_globs(self) -> Iterator[Problem]:
        """Globs of a pack that fit no file are most likely misspelt."""
        for pack in self._packs:
            used = self._globs.get(pack.origin.source, set())
            for key, globs in (("tools", pack.tools), ("scenarios", pack.scenarios)):
                for index, glob in enumerate(globs):
                    if glob in used or glob == "**":
                        continue
                    pointer = f"/{key}/{index}"
                    message, hint = (
                        f"`{glob}` matches no file of the pack",
                        "globs are relative to the pack; `**` matches across folders",
                    )
                    problem = Problem(
                        code="idle_glob", message=message, pointer=pointer, hint=hint, severity="warning"
                    )
                    yield problem.at(pack.origin.source, *pack.origin.locate(pointer))

    def add_documents(
        self,
        key: str,
        source: str,
        documents: Sequence[Document],
        problems: Sequence[Problem],
        where: DocumentContext,
    ) -> None:
        """The documents of one file, and what was wrong with its text. They wait for others, and are looked at together."""
        told = [problem for problem in problems if problem.code != "empty_document"]
        if not documents and not told:
            told.append(unrecognised_file_problem("the file is empty", source).at(source, 1, 1))
        self._problems[key] = told
        error = next((problem for problem in problems if problem.severity == "error"), None)
        if not documents and error is not None and where.tools:
            self._unread[key] = f"{error.source}:{error.line}"
        self._waiting.append(_PendingFile(key, source, documents, told, where))
        if sum(len(file.documents) for file in self._waiting) >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Add what the waiting documents describe, and tell what is wrong with them."""
        files, self._waiting = self._waiting, []
        finds = [[self._found(document, file) for document in file.documents] for file in files]
        drafts = [draft for those in finds for find in those for draft in find.drafts]
        parse_drafts(drafts, self._kinds, self._tool_shape)
        for file, those in zip(files, finds, strict=True):
            stranger = next((find for find in those if not find.known), None)
            fruits = sum(self._take(find, file) for find in those if find.known or find is stranger)
            if not fruits and not file.source.endswith(TOOL_SUFFIXES):
                self._fruitless.add(file.key)

    def _take(self, find: _Classification, file: _PendingFile) -> int:
        """Add what was found, and tell what is wrong with it. Returns how much of it is good."""
        if not find.known:
            message = f"not a descriptor, scenario or pack{missing_key_hint(find.document.value)}"
            file.told.append(find.document.place(unrecognised_file_problem(message, file.source)))
        file.told.extend(find.told)
        fruits = find.fruits
        for draft in find.drafts:
            fruits += self._add_tool(draft)
            file.told.extend(draft.problems)
        return fruits

    def _found(self, document: Document, file: _PendingFile) -> _Classification:
        """The kind of a document; its tools are still to be parsed."""
        where = file.where
        if is_override(document.value):
            counts = where.tools and self._refusal(where.pack) is None
            if counts:
                self._overrides.append((file.key, _ToolDocument(document, where)))
            return _Classification(document, fruits=int(counts))
        foreign = self.formats.of(document.value)
        if foreign is not None:
            return self._converted(document, file, foreign)
        if is_scenario(document.value):
            before = len(self._scenarios)
            told = self._add_scenario(document, where)
            return _Classification(document, told=told, fruits=len(self._scenarios) - before)
        if not is_descriptor(document.value, self._kinds.modes):
            return _Classification(document, known=False)
        return _Classification(document, drafts=[DescriptorDraft(document, where)] if where.tools else [])

    def _converted(self, document: Document, file: _PendingFile, foreign: Format) -> _Classification:
        """The content of a document of another system, in our own form."""
        where = file.where
        if foreign.is_pack and (not where.tools or self._refusal(where.pack) is not None):
            return _Classification(document)
        read = foreign.convert(document, where)
        told, fruits = [*read.problems], 0
        if read.pack is not None:
            pack, problems = self._foreign_pack(read.pack, where)
            first = next((known for known in self._packs if known.name == pack.name), None)
            told = [*read.pack_problems, *problems, *told]
            where, fruits = replace(where, pack=pack), int(first is None)
            if first is None:
                self._packs.append(pack)
                bound = read.overrides.documents
                self._overrides += [(file.key, _ToolDocument(each, where)) for each in bound]
            else:
                told.append(duplicate_pack(first, pack)._replace(pointer="/id"))
                self._refused_packs[pack.origin.source] = pack.name, told[-1]
            self._note_strays(read.overrides)
        before = len(self._scenarios)
        for scenario in read.scenarios:
            told += self._add_scenario(scenario, where)
        fruits += len(self._scenarios) - before
        if foreign.drop_duplicates is not None:
            self._scenarios, left_out = foreign.drop_duplicates(self._scenarios)
            told += left_out
        self._named += read.files
        drafts = [
            DescriptorDraft(tool.document, where, tool.problems, tool.reword)
            for tool in read.tools
            if where.tools
        ]
        return _Classification(document, told=told, fruits=fruits, drafts=drafts)

    def _foreign_pack(self, document: Document, where: DocumentContext) -> tuple[Pack, list[Problem]]:
        """The pack that a foreign document is, as far as it is sound, and everything that is wrong with it."""
        pack, problems = parse_pack(document, self._pack_shape, where.files)
        pack = pack or valid_pack_part(document, self._pack_shape)
        return replace(pack, namespace=where.namespace, fixture=where.fixture), problems

    def _note_strays(self, overrides: OverrideFile) -> None:
        """Names in a file of overrides are wrong that are tools of no pack beside it."""
        if not overrides.source:
            return
        before = self._strays.get(overrides.source, overrides.strays)
        self._strays[overrides.source] = {
            name: problem for name, problem in before.items() if name in overrides.strays
        }

    def _read_named(self) -> None:
        """Read the files of tools that a foreign document names and that lie in no folder which was given."""
        named, self._named = self._named, []
        for file in named:
            if not self.knows(file.key) and not self.knows(file.own_key):
                documents, problems = file.read()
                self.add_documents(file.own_key, file.source, documents, problems, file.where)
        self._settle()

    def _add_scenario(self, document: Document, where: DocumentContext) -> list[Problem]:
        if not where.scenarios:
            return []
        pack = where.pack.name if where.pack is not None else ""
        scenario, problems = parse_scenario(document, self._scenario_shape, files=where.files, pack=pack)
        if scenario is not None:
            if where.namespace:
                origin = scenario.origin._replace(namespace=where.namespace)
                scenario = replace(scenario, origin=origin)
            hindrance = self._refusal(where.pack)
            error = next((problem for problem in problems if problem.severity == "error"), None)
            if hindrance is not None:
                self._hindered_scenarios.append((scenario.name, hindrance))
            elif error is not None:
                self._refused_scenarios.append((scenario, error))
            else:
                self._scenarios.append(scenario)
        return problems

    def _add_tool(self, draft: DescriptorDraft) -> bool:
        """Add a tool. Returns whether it is good."""
        if draft.reword is not None:
            draft.problems = draft.reword(draft.problems)
        told = (*draft.before, *draft.problems)
        error = next((problem for problem in told if problem.severity == "error"), None)
        error = error or self._refusal(draft.where.pack)
        if draft.tool is not None and error is None:
            self._tools.append(draft.tool)
            self._written.setdefault(draft.tool.name, _ToolDocument(draft.document, draft.where))
            return True
        if error is not None:
            self._note_refusal(draft.document, draft.where, error)
        return False

    def _refusal(self, pack: Pack | None) -> Problem | None:
        """Why nothing is taken from the files of a pack; None where its files count."""
        _name, problem = self._refused_packs.get(pack.origin.source if pack is not None else "", ("", None))
        if problem is None:
            return None
        message = f"its pack was rejected: {problem.code}: {problem.message}"
        return problem._replace(code=REFUSED_PACK, message=message)

    def _note_refusal(self, document: Document, where: DocumentContext, error: Problem) -> None:
        name = document.value.get("name") if isinstance(document.value, dict) else None
        if isinstance(name, str):
            self._refused.setdefault(full_name(where.namespace, name), error)
            if error.code == REFUSED_PACK:
                self._refused.setdefault(name, error)  # its namespace may not have been readable

    def _overridden(self) -> list[Descriptor]:
        """The tools, with the documents that override some of them laid over these, in order of reading."""
        if not self._overrides:
            return self._tools
        changed: dict[str, Descriptor] = {}
        for key, upper in self._overrides:
            said: Any = upper.document.value
            name = full_name(upper.home.namespace, said["name"])
            lower = self._written.get(name)
            if lower is None:
                problem = missing_override_target(upper.document, name, self._written, self._refused)
                self._problems[key].append(problem)
                continue
            tool, problems = self._laid_over(upper, lower, name)
            self._problems[key] += problems
            if tool is not None:
                changed[name] = tool
        self._overrides = []
        return replace_overridden(self._tools, changed)

    def _laid_over(
        self, upper: _ToolDocument, lower: _ToolDocument, name: str
    ) -> tuple[Descriptor | None, list[Problem]]:
        """The tool with one more document laid over it; where that is refused the tool stays as it was."""
        document = overlay_document(upper.document, lower.document)
        where = replace(lower.home, files=files_of(upper.home.files, lower.home.files, upper.document))
        # The name stands in both documents, in the upper one with its namespace.
        document = replace(document, value={**document.value, "name": short_name(where.namespace, name)})  # type: ignore[dict-item]
        draft = DescriptorDraft(document, where)
        parse_drafts([draft], self._kinds, self._tool_shape)
        tool, problems = draft.tool, draft.problems
        if tool is None or any(problem.severity == "error" for problem in problems):
            return None, problems
        below = self._written[name].document
        self._written[name] = _ToolDocument(document, where)
        places = (f"{below.source}:{below.line}",)
        left = {key: place for key, place in document.below().items() if key in tool.origin.written}
        origin = tool.origin._replace(
            overrides=places + overrides_of(below),
            settings={**left, **tool.origin.settings},
            written=tool.origin.written - left.keys(),
        )
        return tool._replace(origin=origin), problems
