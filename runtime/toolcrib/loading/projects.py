"""Projects: parse and check `toolcrib.yaml`, and compute the settings of each profile."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, did_you_mean
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Fixture, Origin, Toolset
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files, Kinds
from toolcrib.core.server_config import Server
from toolcrib.core.text import canonical
from toolcrib.loading.access import access_within, check_access, overlay_access, parse_access
from toolcrib.loading.descriptors import (
    check_defaults,
    check_names,
    check_tool_glob,
    check_tool_globs,
    check_toolsets,
    toolsets_of,
)
from toolcrib.loading.document_checks import DocumentChecker, hidden_problems, valid_parts
from toolcrib.loading.documents.document import Content, Document, parse_content, single_document
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.format_contract import NO_FORMATS, Formats, formats_of
from toolcrib.loading.packs import check_range
from toolcrib.loading.project_discovery import (
    candidate_folders,
    find_project,
    other_project_files,
    project_file,
)
from toolcrib.loading.settings import (
    NO_SETTINGS,
    PROFILE_VARIABLE,
    Settings,
    apply_settings,
    check_limits,
    chosen_profile,
    flatten_limits,
    overlay_limits,
)
from toolcrib.loading.snapshot import log_problems
from toolcrib.loading.stores import parse_document_fixture, with_refused_names
from toolcrib.security.access import NO_ACCESS, AccessSettings

__all__ = [
    "DEFAULT_SOURCES",
    "NO_SETTINGS",
    "Profile",
    "Project",
    "Settings",
    "SourceEntry",
    "apply_settings",
    "candidate_folders",
    "check_project",
    "check_reach",
    "chosen_profile",
    "find_project",
    "other_project_files",
    "parse_project",
    "parse_project_file",
    "project_file",
    "second_project_file",
    "settings_of",
    "unknown_name_problem",
]


def check_reach(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """The problems of `egress` and `origins` of the project or profile at `pointer`."""
    allowed, origins = said.get("egress", {}).get("allow", ()), said.get("origins", {})
    if allowed:
        # Deferred: most projects have no `egress.allow`.
        from toolcrib.security.egress import read_allowed  # noqa: PLC0415

        for index, entry in enumerate(allowed):
            yield from _refused(read_allowed, entry, "bad_egress", f"{pointer}/egress/allow/{index}")
    if origins:
        # Deferred: most projects have no `origins`.
        from toolcrib.servers.environment import normal_origin  # noqa: PLC0415

        for written, instead in origins.items():
            for text in (written, instead):
                yield from _refused(
                    normal_origin, text, "bad_origin", f"{pointer}/origins/{pointer_step(written)}"
                )


def _refused(read: Callable[[str], object], text: str, code: str, pointer: str) -> Iterator[Problem]:
    """The problem of a text that `read` rejects."""
    try:
        read(text)
    except ValueError as error:
        # Both readers end their messages with "; " and a hint.
        message, _, hint = str(error).rpartition("; ")
        yield Problem(code=code, message=message, pointer=pointer, hint=hint)


def check_project(said: Mapping[str, Any], written: Mapping[str, Any]) -> list[Problem]:
    """The problems of a project that the schema cannot find.

    Args:
        said: The parts that the schema has accepted.
        written: The whole document. Names in it are known even if their values are invalid.
    """
    profiles = _names(written, "profiles")
    problems = [
        *check_names(said, ("toolsets", "profiles")),
        *_check_sources(said.get("sources", ())),
        *_check_ignore(said.get("ignore", ())),
        *check_defaults(said, ""),
        *check_tool_globs(said.get("disable", ()), "/disable"),
        *check_toolsets(said.get("toolsets", {})),
        *check_limits(said, ""),
        *_check_limit_rules(said, "", of_profile=False),
        *check_reach(said, ""),
        *check_access(said, ""),
        *_check_budgets(said, ""),
    ]
    if "profile" in said and profiles is not None and said["profile"] not in profiles:
        problems.append(unknown_name_problem("profile", said["profile"], profiles, "/profile"))
    for name, profile in said.get("profiles", {}).items():
        problems += _check_profile(profile, f"/profiles/{pointer_step(name)}", profiles)
    return problems + list(_circles(said.get("profiles", {})))


def _names(written: Mapping[str, Any], key: str) -> list[str] | None:
    """The names under a key; None if its value is not a mapping, which the schema reported."""
    entries = written.get(key, {})
    return list(entries) if isinstance(entries, dict) else None


def _check_profile(said: Mapping[str, Any], pointer: str, profiles: list[str] | None) -> Iterator[Problem]:
    if "extends" in said and profiles is not None and said["extends"] not in profiles:
        yield unknown_name_problem("profile", said["extends"], profiles, f"{pointer}/extends")
    yield from check_defaults(said, pointer)
    yield from check_limits(said, pointer)
    yield from _check_limit_rules(said, pointer, of_profile=True)
    yield from check_reach(said, pointer)
    yield from check_access(said, pointer)
    yield from _check_budgets(said, pointer)
    for glob in said.get("modes", {}):
        yield from check_tool_glob(glob, f"{pointer}/modes/{pointer_step(glob)}")
    for key in ("disable", "enable"):
        yield from check_tool_globs(said.get(key, ()), f"{pointer}/{key}")


def _check_budgets(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    if "budgets" in said:
        # Deferred: most projects have no budgets.
        from toolcrib.loading.budgets import check_budgets  # noqa: PLC0415

        yield from check_budgets(said, pointer)


def _check_limit_rules(said: Mapping[str, Any], pointer: str, *, of_profile: bool) -> Iterator[Problem]:
    if "rules" in said.get("limits", {}):
        # Deferred: most projects have no such rules.
        from toolcrib.loading.limit_rules import check_limit_rules  # noqa: PLC0415

        yield from check_limit_rules(said, pointer, of_profile=of_profile)


_CODES = {"profile": "unknown_profile", "toolset": "unknown_toolset"}


def unknown_name_problem(kind: str, name: str, known: Collection[str], pointer: str) -> Problem:
    """The problem of an unknown profile or toolset; `kind` is one of these two words."""
    there = ", ".join(f"`{each}`" for each in known)
    listed = f"known {kind}s: {there}" if there else f"define it under `{kind}s:`"
    near = did_you_mean(name, known)
    return Problem(
        code=_CODES[kind],
        message=f"unknown {kind} `{excerpt(name)}`",
        pointer=pointer,
        hint=f"{near} {listed}" if near else listed,
    )


def _circles(profiles: Mapping[str, Any]) -> Iterator[Problem]:
    """A problem for each circular `extends`, at one of its profiles."""
    seen: set[str] = set()
    for name in profiles:
        path: dict[str, None] = {}
        at = name
        while at in profiles and at not in seen:
            path[at] = None
            seen.add(at)
            # Each profile extends at most one other, so a chain is followed without recursion; `seen` visits
            # each profile once.
            at = profiles[at].get("extends", "")
        if at in path:
            circle = " extends ".join(f"`{each}`" for each in (*list(path)[list(path).index(at) :], at))
            message = f"the profile extends itself: {circle}"
            pointer = f"/profiles/{pointer_step(at)}/extends"
            hint = "remove one `extends` from the circle"
            yield Problem(code="endless_extends", message=message, pointer=pointer, hint=hint)


def _check_ignore(globs: Any) -> Iterator[Problem]:
    for index, glob in enumerate(globs):
        fault = _fault_of_file_glob(glob)
        if fault:
            message = f"`{excerpt(glob)}` cannot match any file: {fault}"
            hint = "globs are relative to this file: `fixtures/**`, `**/*.data.yaml`"
            yield Problem(code="bad_glob", message=message, pointer=f"/ignore/{index}", hint=hint)


def _fault_of_file_glob(glob: str) -> str:
    steps = glob.split("/")
    if glob.startswith("/"):
        return "it starts with `/`"
    if glob.endswith("/"):
        return "it ends with `/`, but only files can be ignored"
    if not {"", ".", ".."}.isdisjoint(steps):
        return "it has an empty segment, `.` or `..`"
    return "use `/` between folders" if "\\" in glob else ""


def _check_sources(sources: Any) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, entry in enumerate(sources):
        written = {"path": entry} if isinstance(entry, str) else entry
        pointer = f"/sources/{index}"
        path = written.get("path", "")
        if path:
            yield from _check_path(path, pointer if isinstance(entry, str) else f"{pointer}/path")
        if "version" in written:
            yield from check_range(written["version"], f"{pointer}/version")
        # `./tools` and `tools/` are the same source.
        kind = "pack" if "pack" in written else "python"
        name = posixpath.normpath(path) if path else f"{kind} {written[kind]}"
        if name in first:
            message = f"duplicate source `{excerpt(path or written[kind])}`, already number {first[name] + 1} of the list"
            yield Problem(
                code="duplicate_name", message=message, pointer=pointer, hint="list each source once"
            )
        first.setdefault(name, index)


def _check_path(path: str, pointer: str) -> Iterator[Problem]:
    if not path.isprintable():
        message = f"`{excerpt(path)}` is not a valid path: it contains a control character"
        yield Problem(code="wrong_form", message=message, pointer=pointer)
    elif "${" in path:
        message = f"`{excerpt(path)}` contains `${{`, but variables are not substituted here"
        hint = "write the path itself"
        yield Problem(code="variable_not_allowed", message=message, pointer=pointer, hint=hint)


def second_project_file(source: str, first: str) -> Problem:
    """The warning for a second project file in a folder."""
    message = f"the folder has two project files; `{os.path.basename(first)}` is used and this one is ignored"
    hint = "remove one of them"
    return Problem(
        code="second_project_file",
        message=message,
        hint=hint,
        severity="warning",
        source=source,
        line=1,
        column=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source of tools of a project.

    Attributes:
        path: Folder, pack or file, relative to the project's folder; empty for another kind of source.
        pack: Name of an installed pack; empty for another kind of source.
        python: A module, or the name of an entry point; empty for another kind of source.
        version: Accepted versions of the pack: `>=1.2,<2`; empty for any.
        namespace: Prefix of the names of its tools, without `__`; empty for none.
        optional: Whether the source may be missing.
        place: `file:line` of the entry; empty for a default source.
    """

    path: str = ""
    pack: str = ""
    python: str = ""
    version: str = ""
    namespace: str = ""
    optional: bool = False
    place: str = ""


DEFAULT_SOURCES: tuple[SourceEntry, ...] = (
    SourceEntry(path="descriptors", optional=True),
    SourceEntry(path="packs", optional=True),
)
"""The sources of a project without `sources`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The settings of a profile itself.

    Attributes:
        name: Name of the profile.
        description: The environment that it is meant for.
        extends: Name of the profile that it extends; empty for none.
        modes: Tool glob -> mode; the first match applies.
        defaults: Key of a descriptor -> value as in `Descriptor`.
        disable: Globs of tools that are not offered.
        enable: Globs of tools that are offered although `disable` matches them.
        toolset: Name of the toolset that is offered; empty to keep that of the extended profile.
        limits: Key of `limits`, with dots -> value as written.
        egress: `host:port` that tools may reach although the address is private or otherwise special.
        origins: Origin as written in descriptors -> the origin that is called instead.
        lock: Policy for a remote tool that changed: `warn` or `block`; empty to keep that of the project.
        sandbox: Where programs run: `bubblewrap` or `none`; empty to keep that of the project.
        access: Who may call what, as far as the profile says.
        experimental: `show` or `hide` for experimental tools; empty to keep that of the project.
        deprecated: `show` or `hide` for deprecated tools; empty to keep that of the project.
        limit_rules: Name of a rule of `limits.rules` -> the rule as written, or `off`.
        budgets: Name of a budget -> the budget as written, or `off`.
        approvals: Settings of pending approvals, as written.
        telemetry: What is recorded of calls, as written.
        journal: Settings of the journal, as written; a text is its `store`.
    """

    name: str
    description: str = ""
    extends: str = ""
    modes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    defaults: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    disable: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    toolset: str = ""
    limits: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    egress: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    lock: str = ""
    sandbox: str = ""
    access: AccessSettings = NO_ACCESS
    experimental: str = ""
    deprecated: str = ""
    limit_rules: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    budgets: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    approvals: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    telemetry: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    journal: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The content of `toolcrib.yaml`.

    Attributes:
        name: Name of the project.
        description: Its purpose.
        root: The folder of its file, as the user named it.
        sources: The sources of tools, in order.
        ignore: Globs, relative to `root`, of files that are skipped.
        defaults: Key of a descriptor -> value as in `Descriptor`.
        disable: Globs of tools that are not offered.
        toolsets: Named selections of tools, in document order.
        limits: Key of `limits`, with dots -> value as written.
        egress: `host:port` that tools may reach although the address is private or otherwise special.
        origins: Origin as written in descriptors -> the origin that is called instead.
        servers: MCP servers by name: those of `servers_from`, with the overrides of `servers`.
        servers_from: The files that configure servers, as the user named them.
        lock: Policy for a remote tool that changed: `warn` or `block`; empty if not configured.
        sandbox: Where programs run: `bubblewrap` or `none`; empty if not configured.
        access: Who may call what.
        experimental: `show` or `hide` for experimental tools.
        deprecated: `show` or `hide` for deprecated tools.
        limit_rules: Name of a rule of `limits.rules` -> the rule as written.
        budgets: Name of a budget -> the budget as written.
        approvals: Settings of pending approvals, as written.
        journal: Settings of the journal, as written; a text is its `store`.
        chat: `provider` and `model` of `toolcrib chat`.
        lint: Severities, exceptions and budget of `toolcrib lint`, as written.
        profile: Name of the default profile; empty for none.
        profiles: The profiles by name.
        fixture: The initial store of tools outside packs.
        faults: The problems of the fixture, which do not affect other parts.
        broken: Whether the file has errors, so that parts may be missing here.
        origin: Its source.
    """

    name: str
    description: str = ""
    root: str = "."
    sources: tuple[SourceEntry, ...] = DEFAULT_SOURCES
    ignore: tuple[str, ...] = ()
    defaults: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    disable: tuple[str, ...] = ()
    toolsets: tuple[Toolset, ...] = ()
    limits: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    egress: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    servers: Mapping[str, Server] = field(default_factory=lambda: NOTHING)
    servers_from: tuple[str, ...] = ()
    lock: str = ""
    sandbox: str = ""
    access: AccessSettings = NO_ACCESS
    experimental: str = "show"
    deprecated: str = "show"
    limit_rules: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    budgets: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    approvals: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    telemetry: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    journal: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    chat: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    lint: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    profile: str = ""
    profiles: Mapping[str, Profile] = field(default_factory=lambda: NOTHING)
    fixture: Fixture = NO_FIXTURE
    faults: tuple[Problem, ...] = ()
    broken: bool = False
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def parse(cls, name: str, content: Content, *, kinds: Kinds) -> Project:
        """Parse a project from the text of its `toolcrib.yaml`, or from an equivalent mapping.

        Args:
            name: Name of the text in problems, including its folder; it is read as JSON if the name ends in `.json`.
            content: YAML or JSON, or one document as a mapping.
            kinds: The schemas of the modes' blocks (`toolcrib.Executors.installed()`).

        Raises:
            DocumentError: The project has an error. Warnings are logged.
        """
        project, problems = parse_project_file(
            name, *parse_content(name, content), DocumentChecker("project", kinds), formats=formats_of(kinds)
        )
        problems += project.faults
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        log_problems(problems)
        return project

    def lineage(self, profile: str) -> list[Profile]:
        """A profile and those that it extends, the most basic one first."""
        # `not in found` ends a circle, which the checks report.
        found: dict[str, Profile] = {}
        while profile in self.profiles and profile not in found:
            found[profile] = self.profiles[profile]
            profile = found[profile].extends
        return list(found.values())[::-1]


def parse_project_file(
    source: str,
    documents: Sequence[Document],
    problems: Sequence[Problem],
    shape: DocumentChecker,
    note: Callable[[str], None] = lambda _path: None,
    *,
    files: Files | None = None,
    formats: Formats = NO_FORMATS,
) -> tuple[Project, list[Problem]]:
    """Parse a project file; return the valid parts of the project, and the problems of the file.

    The problems of its store are only in its `faults`.

    Args:
        source: The file, as the user named it.
        documents: The documents in it.
        problems: The problems of its text.
        shape: The project schema, compiled.
        note: Called with each file of `servers_from` before it is read.
        files: The files that it may name; None for text from memory.
        formats: The foreign formats, whose files may configure servers.
    """
    document, told = single_document(source, documents, problems, "project", "write `project: my-project`")
    project, faults = None, list[Problem]()
    if document is not None:
        project, faults = parse_project(document, shape, note, files, formats)
    if project is None:
        project = Project(name="", root=_folder_of(source), sources=(), origin=Origin(source=source))
    told += faults
    # A broken file of another program (`servers_from`) does not make the settings of the project unknown.
    own = (problem for problem in told if problem.source == source)
    return replace(project, broken=any(problem.severity == "error" for problem in own)), told


def _folder_of(source: str) -> str:
    return os.path.dirname(source) or "."


def parse_project(
    document: Document,
    shape: DocumentChecker,
    note: Callable[[str], None] = lambda _path: None,
    files: Files | None = None,
    formats: Formats = NO_FORMATS,
) -> tuple[Project | None, list[Problem]]:
    """Parse `toolcrib.yaml` and the files of `servers_from`.

    Returns:
        The valid parts, or None if the document is not a mapping; and all problems with their positions. If a problem
        is an error, parts are missing: the project is good enough for reports, but not for calling tools.
    """
    value, problems = shape.check(document, ("project", "profile"))
    if not isinstance(value, dict):
        return None, [document.place(problem) for problem in problems]
    kept = valid_parts(value, problems, shape)
    problems = [*problems, *check_project(kept, value), *hidden_problems(value)]
    project = _built(_with_names(kept, value), document, value)
    fixture, wrong = parse_document_fixture(kept, project.origin._replace(files=files), "", document)
    if any(kept.get(key) != value.get(key) for key in ("store", "state")):
        fixture = with_refused_names(fixture, value, "")
    project = replace(project, fixture=fixture, faults=wrong)
    if not {"servers", "servers_from", "agents"}.isdisjoint(kept):
        # Deferred: many projects have no servers.
        from toolcrib.loading.servers import servers_of_project  # noqa: PLC0415

        servers, named, faults = servers_of_project(kept, document, project.root, note, formats)
        project, problems = replace(project, servers=servers, servers_from=named), [*problems, *faults]
    return project, [document.place(problem) for problem in problems]


def _with_names(said: Mapping[str, Any], written: Mapping[str, Any]) -> Mapping[str, Any]:
    """The valid parts, plus the readable sources and profile names of invalid ones."""
    # Otherwise one bad entry of `sources` would hide all tools, and each of them would be reported as unknown.
    sources, profiles = written.get("sources"), written.get("profiles")
    clear: dict[str, Any] = {}
    if isinstance(sources, list):
        clear["sources"] = [entry for entry in sources if isinstance(entry, str) and "\0" not in entry]
    if isinstance(profiles, dict):
        clear["profiles"] = {name: {} for name in profiles}
    return {**clear, **said}


def _built(said: Mapping[str, Any], document: Document, value: JSON) -> Project:
    origin = Origin(
        source=document.source,
        line=document.line,
        digest=hashlib.sha256(canonical(value).encode("utf-8")).hexdigest(),
        locate=document.position,
    )
    # An empty list means no sources, so only an absent key selects the default.
    sources = DEFAULT_SOURCES
    if "sources" in said:
        sources = tuple(_source(entry, index, origin) for index, entry in enumerate(said["sources"]))
    return Project(
        name=said.get("project", ""),
        description=said.get("description", ""),
        root=_folder_of(document.source),
        sources=sources,
        ignore=tuple(said.get("ignore", ())),
        defaults=_defaults(said),
        disable=tuple(said.get("disable", ())),
        toolsets=toolsets_of(said, origin),
        limits=MappingProxyType(flatten_limits(said.get("limits", {}))),
        egress=_allowed(said),
        origins=_origins(said),
        lock=said.get("lock", ""),
        sandbox=said.get("sandbox", ""),
        access=parse_access(
            said.get("access", {}), lambda at: origin.place(f"/access{at}"), _folder_of(document.source)
        ),
        experimental=said.get("experimental", "show"),
        deprecated=said.get("deprecated", "show"),
        limit_rules=MappingProxyType(dict(said.get("limits", {}).get("rules", {}))),
        budgets=MappingProxyType(dict(said.get("budgets", {}))),
        approvals=MappingProxyType(dict(said.get("approvals", {}))),
        telemetry=MappingProxyType(dict(said.get("telemetry", {}))),
        journal=_journal(said),
        chat=MappingProxyType(dict(said.get("chat", {}))),
        lint=MappingProxyType(dict(said.get("lint", {}))),
        profile=said.get("profile", ""),
        profiles=MappingProxyType(
            {name: _profile(name, entry, origin) for name, entry in said.get("profiles", {}).items()}
        ),
        origin=origin,
    )


def _source(entry: str | Mapping[str, str], index: int, origin: Origin) -> SourceEntry:
    written: dict[str, Any] = {"path": entry} if isinstance(entry, str) else dict(entry)
    return SourceEntry(**written, place=origin.place(f"/sources/{index}"))


def _profile(name: str, said: Mapping[str, Any], origin: Origin) -> Profile:
    base = f"/profiles/{pointer_step(name)}/access"
    return Profile(
        name=name,
        description=said.get("description", ""),
        extends=said.get("extends", ""),
        modes=MappingProxyType(dict(said.get("modes", {}))),
        defaults=_defaults(said),
        disable=tuple(said.get("disable", ())),
        enable=tuple(said.get("enable", ())),
        toolset=said.get("toolset", ""),
        limits=MappingProxyType(flatten_limits(said.get("limits", {}))),
        egress=_allowed(said),
        origins=_origins(said),
        lock=said.get("lock", ""),
        sandbox=said.get("sandbox", ""),
        access=parse_access(
            said.get("access", {}), lambda at: origin.place(f"{base}{at}"), _folder_of(origin.source)
        ),
        experimental=said.get("experimental", ""),
        deprecated=said.get("deprecated", ""),
        limit_rules=MappingProxyType(dict(said.get("limits", {}).get("rules", {}))),
        budgets=MappingProxyType(dict(said.get("budgets", {}))),
        approvals=MappingProxyType(dict(said.get("approvals", {}))),
        telemetry=MappingProxyType(dict(said.get("telemetry", {}))),
        journal=_journal(said),
    )


def _allowed(said: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(said.get("egress", {}).get("allow", ()))


def _journal(said: Mapping[str, Any]) -> Mapping[str, JSON]:
    written = said.get("journal", {})
    return MappingProxyType({"store": written} if isinstance(written, str) else dict(written))


def _origins(said: Mapping[str, Any]) -> Mapping[str, str]:
    return MappingProxyType(dict(said.get("origins", {})))


_FLAGS = ("experimental", "deprecated")
"""Kinds of tools that a project can hide."""


def _defaults(said: Mapping[str, Any]) -> Mapping[str, JSON]:
    written = dict(said.get("defaults", {}))
    if "timeout" in written:
        written["timeout"] = parse_duration(written["timeout"])
    return MappingProxyType(written)


_PROGRAM: Final = "Runtime(access=...)"
"""Where the settings of a program are, in problems and decisions."""


def parse_program_access(said: Mapping[str, Any], kinds: Kinds) -> AccessSettings:
    """The access settings that a program passes to a runtime, written as `access` of a project.

    Relative folders are those of the working directory.

    Raises:
        DocumentError: The settings have errors.
    """
    found = Project.parse(_PROGRAM, {"project": "program", "access": dict(said)}, kinds=kinds).access
    return found._replace(
        rules=tuple(
            rule._replace(place=f"{_PROGRAM}/rules/{index}") for index, rule in enumerate(found.rules)
        ),
        places=MappingProxyType({key: f"{_PROGRAM}/{key.replace('.', '/')}" for key in found.places}),
        # Relative paths in arguments stay those of the project.
        root="",
    )


def settings_of(project: Project | None, profile: str | None = None, chosen_by: str = "") -> Settings:
    """The active settings of a project.

    Args:
        project: The project; None outside projects.
        profile: The requested profile; None for the project's default.
        chosen_by: The origin of the request (`chosen_profile`).

    Raises:
        ConfigurationError: The profile is unknown. Outside projects every profile is, except one that only the
            environment requests; in a broken project an unknown profile is ignored.
    """
    if project is None:
        # An exported TOOLCRIB_PROFILE must not make every command fail outside of projects.
        if profile is not None and chosen_by != PROFILE_VARIABLE:
            raise missing_project_error(profile, chosen_by)
        return NO_SETTINGS
    if profile is None:
        profile = project.profile
        chosen_by = f"`profile` in {project.origin.place('/profile')}" if profile else ""
    if project.broken and profile not in project.profiles:
        profile = ""  # it may be in the broken part of the file, whose error is reported
    if profile and profile not in project.profiles:
        raise unknown_profile_error(project, profile, chosen_by)
    return _in_force(project, profile, chosen_by)


def missing_project_error(profile: str, chosen_by: str) -> ConfigurationError:
    """The error for a profile that is requested outside a project."""
    return ConfigurationError(
        f"unknown profile `{profile}`{_by(chosen_by)}: there is no project here",
        code="unknown_profile",
        hint="profiles are defined in `toolcrib.yaml`, which is not used when paths are given",
    )


def unknown_profile_error(project: Project, profile: str, chosen_by: str) -> ConfigurationError:
    """The error for an unknown profile of a project, with suggestions."""
    there = ", ".join(f"`{name}`" for name in project.profiles)
    known = f"known profiles: {there}" if there else f"{project.origin.place()} has no profiles"
    near = did_you_mean(profile, project.profiles)
    hint = f"{near} {known}" if near else known
    return ConfigurationError(
        f"unknown profile `{profile}`{_by(chosen_by)}", code="unknown_profile", hint=hint
    )


def _by(chosen_by: str) -> str:
    # A user who typed `--profile` knows where the name comes from.
    return f", requested by {chosen_by}" if chosen_by not in {"", "--profile"} else ""


def _in_force(project: Project, profile: str, chosen_by: str) -> Settings:
    modes: dict[str, str] = {}
    defaults = dict(project.defaults)
    toolset, lock, sandbox, access = "", project.lock, project.sandbox, project.access
    limits: Mapping[str, JSON] = project.limits
    egress, origins = project.egress, dict(project.origins)
    where = _Places(project)
    places = {f"defaults.{key}": where.of_project("defaults", key) for key in defaults}
    places |= {f"origins.{key}": where.of_project("origins", key) for key in origins}
    places |= {f"limits.{key}": where.of_project("limits", *key.split(".")) for key in limits}
    places |= {f"servers.{name}": server.place() for name, server in project.servers.items()}
    places |= {"lock": where.of_project("lock")} if lock else {}
    places |= {"sandbox": where.of_project("sandbox")} if sandbox else {}
    hides = {flag: where.of_project(flag) for flag in _FLAGS if getattr(project, flag) == "hide"}
    switches = [
        ((glob,), False, where.of_project("disable", at), "") for at, glob in enumerate(project.disable)
    ]
    for part in project.lineage(profile):
        # The first matching glob applies, so the globs of the extending profile come first.
        modes = {**part.modes, **{glob: mode for glob, mode in modes.items() if glob not in part.modes}}
        defaults |= part.defaults
        toolset = part.toolset or toolset
        egress, origins = egress + part.egress, origins | dict(part.origins)
        places |= {f"origins.{key}": where.of_profile(part, "origins", key) for key in part.origins}
        limits = overlay_limits(limits, part.limits)
        places |= {f"limits.{key}": where.of_profile(part, "limits", *key.split(".")) for key in part.limits}
        places |= {f"modes.{glob}": where.of_profile(part, "modes", glob) for glob in part.modes}
        places |= {f"defaults.{key}": where.of_profile(part, "defaults", key) for key in part.defaults}
        places |= {"toolset": where.of_profile(part, "toolset")} if part.toolset else {}
        lock, sandbox = part.lock or lock, part.sandbox or sandbox
        access = overlay_access(access, access_within(part.access, part.name))
        places |= {"lock": where.of_profile(part, "lock")} if part.lock else {}
        places |= {"sandbox": where.of_profile(part, "sandbox")} if part.sandbox else {}
        for key, globs in (("disable", part.disable), ("enable", part.enable)):
            switches += [
                ((glob,), key == "enable", where.of_profile(part, key, at), "")
                for at, glob in enumerate(globs)
            ]
        for flag in _FLAGS:
            said = getattr(part, flag)
            hides |= {flag: where.of_profile(part, flag) if said == "hide" else ""} if said else {}
    # First, so that `enable` can offer single tools of a hidden kind.
    switches[:0] = [(("*",), False, place, flag) for flag, place in hides.items() if place]
    budgets = _placed(project.budgets, partial(where.of_project, "budgets"))
    rules = _placed(project.limit_rules, partial(where.of_project, "limits", "rules"))
    approvals, telemetry, journal = dict(project.approvals), dict(project.telemetry), dict(project.journal)
    for part in project.lineage(profile):
        budgets |= _placed(part.budgets, partial(where.of_profile, part, "budgets"))
        rules |= _placed(part.limit_rules, partial(where.of_profile, part, "limits", "rules"))
        approvals |= part.approvals
        telemetry |= part.telemetry
        journal |= part.journal
    known = {each.name: each.tools for each in project.toolsets}
    tools = known.get(toolset, ())
    return Settings(
        profile,
        chosen_by,
        modes,
        defaults,
        tuple(switches),
        toolset,
        tools,
        places,
        egress,
        origins,
        dict(limits),
        {name: tuple(server) for name, server in project.servers.items()},
        lock,
        access.as_plain(),
        {name: budget for name, budget in budgets.items() if isinstance(budget, dict)},
        approvals,
        sandbox,
        telemetry,
        journal,
        {name: rule for name, rule in rules.items() if isinstance(rule, dict)},
    )


def _placed(budgets: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """Add its place to each budget or rule; `off` stays as it is."""
    return {
        name: {**budget, "at": place(name)} if isinstance(budget, dict) else budget
        for name, budget in budgets.items()
    }


class _Places:
    """The positions of parts of a project file, for people."""

    def __init__(self, project: Project) -> None:
        self._origin = project.origin

    def of_project(self, *steps: str | int) -> str:
        return self._origin.place("".join(f"/{pointer_step(step)}" for step in steps))

    def of_profile(self, profile: Profile, *steps: str | int) -> str:
        return f"{self.of_project('profiles', profile.name, *steps)} (profile {profile.name})"
