"""Turn documents into tools, packs and scenarios; keep the valid ones and locate each problem of the others.

The content decides the kind of a document: our own keys, a foreign format, or neither, which is one notice for the
file instead of errors. A rejected file does not affect other files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
from toolcrib.loading.project_discovery import PROJECT_FILES
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import is_scenario, parse_scenario
from toolcrib.registry.names import full_name, short_name

if TYPE_CHECKING:
    from toolcrib.loading.pack_integrity import LockedPacks
    from toolcrib.loading.servers import ServerBlock


@dataclass(frozen=True, slots=True)
class DocumentContext:
    """The context of documents in one folder.

    Attributes:
        files: The files that they may name.
        pack: The pack that contains them; None outside packs.
        namespace: Prefix of the tools' names, without `__`.
        tools: Whether tools are loaded from there.
        scenarios: Whether scenarios are loaded from there.
        outside: The initial store of tools outside packs.
        only: If a foreign document names several files, the one whose scenarios are loaded; empty for all.
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
    """The context of the documents of a file; `path` is relative to the pack."""
    if pack is None:
        return DocumentContext(files, namespace=namespace, outside=outside)
    return DocumentContext(files, pack, pack.namespace, pack.holds_tools(path), pack.holds_scenarios(path))


@dataclass(slots=True)
class DescriptorDraft:
    """A document that describes a tool in our own form, and the result of parsing it.

    Attributes:
        document: The document.
        where: Its context.
        before: Problems of the document as written, found before the conversion.
        reword: Rewords problems in the terms of the foreign system; None for our own documents.
        tool: The tool; None before it is parsed, and if it is rejected.
        problems: The problems of the tool.
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
    """A draft together with the defaults of its pack; `given` is the input of the parser."""

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
        """The tool under its full name, with the files that it names in its digest and the defaults in its origin."""
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
    """The defaults of a pack for the keys that a tool omits."""
    if pack is None or not pack.defaults or not isinstance(document.value, dict):
        return NOTHING
    said = document.value
    return {key: item for key, item in pack.defaults.items() if key not in said}


def _with_contents(tool: Descriptor, kept: Iterable[CachedFiles]) -> Descriptor:
    """The tool, with a digest that includes the files that it names."""
    # A reload compares digests: editing a file that a descriptor names must count as a change of the tool.
    contents = []
    for files in kept:
        files.close()
        contents += sorted(files.contents.items())
    if not contents:
        return tool
    digest = hashlib.sha256(tool.origin.digest.encode())
    for name, content in contents:
        # Hashes have a fixed length, so no name and content can be shifted into each other with an equal digest.
        digest.update(hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest())
        digest.update(hashlib.sha256(content).digest())
    return tool._replace(origin=tool.origin._replace(digest=digest.hexdigest()))


TOOL_SUFFIXES: Final = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""Endings of file names that announce a descriptor."""

_OUR_KEYS: Final = frozenset({"name", "scenario", "function"})
"""Top-level keys that a descriptor or scenario can have in any of the supported forms."""

_KINDS: Final = frozenset({"Arena", "Tool"})
"""Kinds of manifests that are loaded; the files of all other kinds are named by an arena."""

_OUR_NAMES: Final = re.compile(r".*\.(?:tool|scenario)\.[a-z]+")

# After a syntax error there are no marks, so the rest of the file is searched as text.
_IN_YAML: Final = re.compile(
    r"""^["']?(?:name|scenario|function)["']?\s*:|^kind:\s*(?:Arena|Tool)\b""", re.MULTILINE
)
_IN_JSON: Final = re.compile(r'"(?:name|scenario|function)"\s*:|"kind"\s*:\s*"(?:Arena|Tool)"')

_ALWAYS_ERRORS: Final = frozenset({"too_large", "file_unreadable", "file_vanished"})
"""Codes of problems that do not depend on the content."""


def unrelated_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The notice for a file in a folder that is not a document of toolcrib; None if the file is to be loaded.

    Args:
        path: The file.
        source: Its name in problems.
        documents: The documents in it.
        problems: The problems of its text.
        formats: The foreign formats.
    """
    # The cheap check on keys comes first: importing the reader of server files is slow, and few folders
    # contain one.
    if len(documents) == 1 and _may_name_servers(documents[0].value, formats):
        for files in formats.server_files():
            if files.looks_like_servers_file(documents[0].value):
                return files.notice_of(source)
    return unrelated_file_notice(path, source, problems, formats) if problems else None


def check_lone_file(
    path: Path, source: str, documents: Sequence[Document], problems: Sequence[Problem], formats: Formats
) -> Problem | None:
    """The problem of a file that cannot be loaded on its own; None for any other file.

    Args:
        path: The file.
        source: Its name in problems.
        documents: The documents in it.
        problems: The problems of its text.
        formats: The foreign formats.
    """
    notices = (
        each.notice(path, source, documents, problems) for each in formats.table if each.notice is not None
    )
    return next((notice for notice in notices if notice is not None), None)


def missing_key_hint(value: JSON) -> str:
    """A hint for documents that lack one key to be a PromptPack, as the end of a message; empty for others."""
    if not isinstance(value, dict) or not isinstance(value.get("prompts"), dict):
        return ""
    return "; a PromptPack has `template_engine` next to `prompts`"


def unrecognised_file_problem(message: str, source: str) -> Problem:
    """The problem of a file without documents of toolcrib: an error if it is named `*.tool.yaml`, else a notice."""
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
    """One notice in place of the syntax errors of a file that is not meant for toolcrib.

    Args:
        path: The file.
        source: Its name in problems.
        problems: The problems of its text.
        formats: The foreign formats.

    Returns:
        None if there are no errors, or if they are to be reported: the file's name or top-level keys show that it
        is meant as a descriptor, scenario or pack.
    """
    # A folder of tools may contain Helm templates, CI files or data that our strict YAML rejects. Errors for them
    # would make `validate` fail on files of other programs.
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
    return not _OUR_KEYS.isdisjoint(document.parts) or (kind is not None and kind.mark.text in _KINDS)


REFUSED_PACK = "refused_pack"
"""Problem code of the tools of a pack whose pack file is rejected, and of packs that need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDocuments:
    """The result of loading: the valid parts, and all problems.

    Attributes:
        tools: The tools in load order; names are not yet unique.
        packs: The packs in load order.
        scenarios: The scenarios in load order.
        refused_scenarios: The readable part of scenarios with errors, which is checked but never run, and the first error.
        hindered_scenarios: Names of scenarios whose pack was rejected, and the reason.
        problems: All problems.
        refused: Name of a tool whose document was rejected -> its first problem, or that of its pack.
        refused_packs: Pack file that was rejected -> name of the pack, if readable, and its first problem.
        unread: `file:line` of the first error of each file whose text is unreadable as a whole.
        ignored: Files that a glob of `ignore` excludes.
        servers: The MCP servers that foreign documents configure, in load order, without checks.
        of_providers: The problems that have no effect if the agents get another provider.
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
    servers: tuple[Mapping[str, ServerBlock], ...] = ()
    of_providers: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _ToolDocument:
    """A document that describes a tool, and its context."""

    document: Document
    home: DocumentContext


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """A file whose documents are not classified yet; `told` are its problems so far."""

    key: str
    source: str
    documents: Sequence[Document]
    told: list[Problem]
    where: DocumentContext


@dataclass(frozen=True, slots=True)
class _Classification:
    """The kind of a document: whether it is known, the number of its valid parts so far, and the tools to parse."""

    document: Document
    known: bool = True
    told: Sequence[Problem] = ()
    fruits: int = 0
    drafts: Sequence[DescriptorDraft] = ()


# In a batch each check visits all documents before the next check begins; its data stays in the processor's cache,
# which is about a fifth faster than one document after the other.
_TOGETHER = 32
"""Number of documents that are classified and parsed together."""


class DocumentReader:
    """Collects documents. A file is identified by its key (its path with links resolved) and read once.

    Attributes:
        formats: The foreign formats.
        touched: Keys of the files that documents name as data.
        stored: Keys of the files with rows of packs and of the project, which are not documents.
        ignored: Files that were skipped.
        fixture: The initial store of tools outside packs.
        locked: The packs that must be as they were installed; None for none.
    """

    def __init__(
        self, kinds: Kinds, fixture: Fixture = NO_FIXTURE, locked: LockedPacks | None = None
    ) -> None:
        self._kinds = kinds
        self.formats = formats_of(kinds)
        self.fixture = fixture
        self.locked = locked
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
        self._servers: list[Mapping[str, ServerBlock]] = []
        self._of_providers: list[Problem] = []
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
        """Everything that was loaded so far, without the problems of files that a descriptor names as data."""
        # A folder is read in order, so only now is it known which files are data of a descriptor that came later.
        self._settle()
        self._read_named()
        tools = self._overridden()
        # A file that yields documents stays a document, even if a descriptor also names it as data.
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
            servers=tuple(self._servers),
            of_providers=tuple(self._of_providers),
        )

    def knows(self, key: str) -> bool:
        """Whether a file was already handled, or contains rows."""
        return key in self._problems or key in self.stored

    def add_problem(self, key: str, problem: Problem) -> None:
        """Add the one problem of a file that is not read."""
        self._problems[key] = [problem]

    def add_problems(self, key: str, problems: Sequence[Problem]) -> None:
        """Add the problems of an archive that is not read."""
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
        contents: Callable[[], Mapping[str, bytes]] = dict,
    ) -> Pack:
        """Add a `pack.yaml`, under the namespace of its source, if any.

        Args:
            key: Identifies the file.
            source: Its path in problems.
            documents: The documents in it.
            problems: The problems of its text.
            namespace: Prefix of the tools' names, without `__`.
            files: The files that it may name.
            contents: Returns all files of the pack: path with `/` -> content. It is called for a locked pack.

        Returns:
            The pack. If it has errors or a duplicate name, the readable part, which serves only to check its files.
        """
        # Files before the pack belong to their own context and must not be affected if the pack is rejected.
        self._settle()
        pack, told = parse_pack_file(source, documents, problems, self._pack_shape, files)
        first = next((known for known in self._packs if pack is not None and known.name == pack.name), None)
        if pack is not None and first is not None:
            told.append(duplicate_pack(first, pack))
        changed = None if pack is None or self.locked is None else self.locked.problem(pack, contents)
        if changed is not None:
            told.append(changed)
        self._problems[key] = told
        error = next((problem for problem in told if problem.severity == "error"), None)
        if pack is None or error is not None:
            # The globs and the namespace of a broken pack are unknown: loading its tools might give them wrong names.
            pack = pack or parse_readable_part(source, documents, self._pack_shape, files)
            self._refused_packs[source] = pack.name, error or told[0]
        if namespace:
            pack = replace(pack, namespace=namespace)
        if source not in self._refused_packs:
            self._packs.append(pack)
        told += pack.faults
        return pack

    def refuse_pack(self, key: str, source: str, problem: Problem) -> Pack:
        """Reject a pack whose pack file is not read; nothing is loaded from its files."""
        self.add_problem(key, problem)
        self._refused_packs[source] = "", problem
        return parse_readable_part(source, (), self._pack_shape)

    def holds(self, pack: Pack | None, path: str) -> bool:
        """Whether a file (relative to its pack) is to be loaded; records the globs that match it."""
        if pack is None:
            return True
        fitting = {glob for glob in (*pack.tools, *pack.scenarios) if matches_glob(path, glob)}
        self._globs.setdefault(pack.origin.source, set()).update(fitting)
        return bool(fitting)

    def _idle_globs(self) -> Iterator[Problem]:
        """A warning for each glob of a pack that matches no file: it is most likely misspelt."""
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
        """Add the documents of a file and the problems of its text. They are parsed in batches."""
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
        """Parse the waiting documents."""
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
        """Add the parts of a document and its problems; return the number of valid parts."""
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
        """Classify a document; its tools are parsed later."""
        where = file.where
        if is_override(document.value):
            counts = where.tools and self._refusal(where.pack) is None
            if counts:
                self._overrides.append((file.key, _ToolDocument(document, where)))
            return _Classification(document, fruits=int(counts))
        # Before our own kinds: foreign documents may have `name`, too, and would be reported as bad descriptors.
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
        """Convert a foreign document."""
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
        self._of_providers += read.of_providers
        if read.servers:
            told += self._add_servers(read.servers, where)
        drafts = [
            DescriptorDraft(tool.document, where, tool.problems, tool.reword)
            for tool in read.tools
            if where.tools
        ]
        return _Classification(document, told=told, fruits=fruits, drafts=drafts)

    def _add_servers(self, servers: Mapping[str, ServerBlock], where: DocumentContext) -> list[Problem]:
        """Add the servers of a document outside packs; those inside are ignored, which is reported."""
        if where.pack is None:
            self._servers.append(servers)
            return []
        # Loading a pack of somebody else must not configure servers of a project.
        hint = f"configure it under `servers` in {PROJECT_FILES[0]}"
        return [
            block.spot().problem(
                "server_left_out", f"the server `{name}` of a pack is ignored", hint, "warning"
            )
            for name, block in servers.items()
        ]

    def _foreign_pack(self, document: Document, where: DocumentContext) -> tuple[Pack, list[Problem]]:
        """The pack of a foreign document, or its readable part, and its problems."""
        pack, problems = parse_pack(document, self._pack_shape, where.files)
        # A PromptPack contains its tools, which are worth checking even if the pack has errors.
        pack = pack or valid_pack_part(document, self._pack_shape)
        return replace(pack, namespace=where.namespace, fixture=where.fixture), problems

    def _note_strays(self, overrides: OverrideFile) -> None:
        """Record names in a file of overrides that are not tools of any pack next to it."""
        if not overrides.source:
            return
        # Several packs may share one file of overrides: a name is unknown only if it is unknown to all of them.
        before = self._strays.get(overrides.source, overrides.strays)
        self._strays[overrides.source] = {
            name: problem for name, problem in before.items() if name in overrides.strays
        }

    def _read_named(self) -> None:
        """Read the tool files that a foreign document names and that are not in any given folder."""
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
        """Add a tool; return whether it is valid."""
        if draft.reword is not None:
            draft.problems = draft.reword(draft.problems)
        told = (*draft.before, *draft.problems)
        error = next((problem for problem in told if problem.severity == "error"), None)
        error = error or self._refusal(draft.where.pack)
        if draft.tool is not None and error is None:
            self._tools.append(draft.tool)
            # Of duplicate names the first is the target of overrides, as it is the one that is kept.
            self._written.setdefault(draft.tool.name, _ToolDocument(draft.document, draft.where))
            return True
        if error is not None:
            self._note_refusal(draft.document, draft.where, error)
        return False

    def _refusal(self, pack: Pack | None) -> Problem | None:
        """Why nothing is loaded from the files of a pack; None if they are loaded."""
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
                # A reference without the namespace must also find the reason.
                self._refused.setdefault(name, error)  # its namespace may not have been readable

    def _overridden(self) -> list[Descriptor]:
        """The tools with their overrides applied, in load order."""
        if not self._overrides:
            return self._tools
        # After all files are read: an override may come before the tool it overrides.
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
        """A tool with one more override; None, with problems, if the override is rejected and the tool stays."""
        document = overlay_document(upper.document, lower.document)
        where = replace(lower.home, files=files_of(upper.home.files, lower.home.files, upper.document))
        # Both documents contain the name, the upper one with its namespace.
        document = replace(document, value={**document.value, "name": short_name(where.namespace, name)})  # type: ignore[dict-item]
        draft = DescriptorDraft(document, where)
        parse_drafts([draft], self._kinds, self._tool_shape)
        tool, problems = draft.tool, draft.problems
        if tool is None or any(problem.severity == "error" for problem in problems):
            return None, problems
        below = self._written[name].document
        self._written[name] = _ToolDocument(document, where)
        places = (f"{below.source}:{below.line}",)
        # Settings show where a value comes from; keys that the override did not touch keep the place below.
        left = {key: place for key, place in document.below().items() if key in tool.origin.written}
        origin = tool.origin._replace(
            overrides=places + overrides_of(below),
            settings={**left, **tool.origin.settings},
            written=tool.origin.written - left.keys(),
        )
        return tool._replace(origin=origin), problems
