"""The checks of `toolcrib doctor`: installation, project, sources, tools, trust, servers and environment.

Each part is checked on its own, so that an error in one does not hide the others.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple

from packaging.requirements import Requirement

import toolcrib
from toolcrib.cli.excluded_files import excluded_tools
from toolcrib.cli.options import ReadOptions
from toolcrib.cli.output import plural
from toolcrib.cli.trust import ask_at_terminal, can_ask, count_needs, idle_variable, trust_policy
from toolcrib.core.errors import ConfigurationError, NotReady, Problem, ToolcribError, near_misses
from toolcrib.core.model import NOTHING
from toolcrib.core.pointers import file_and_line
from toolcrib.core.server_config import AGENT_MODE, Catalogue, Server
from toolcrib.core.user_folders import CACHE_VARIABLE, STATE_VARIABLE, working_folder
from toolcrib.engine import engine_of
from toolcrib.engine.middleware import GROUP as LAYERS
from toolcrib.engine.open_project import open_project
from toolcrib.engine.python_modules import PythonModules
from toolcrib.engine.runtime import Engine, Runtime, runtime_on
from toolcrib.engine.startup import apply_profile
from toolcrib.engine.workspaces import contents_of
from toolcrib.executors import GROUP as MODES
from toolcrib.executors import Executors
from toolcrib.loading.cache.header import SWITCH, index_key
from toolcrib.loading.cache.index import default_index
from toolcrib.loading.documents.files import ARCHIVE, pack_file
from toolcrib.loading.packs import InstalledPack, installed_packs
from toolcrib.loading.project_discovery import candidate_folders
from toolcrib.loading.projects import Project, SourceEntry, settings_of
from toolcrib.loading.python_sources import ModuleTools, PythonSource
from toolcrib.loading.settings import PROFILE_VARIABLE, Settings, chosen_profile
from toolcrib.loading.snapshot import LoadedProject
from toolcrib.registry.registry import Registry
from toolcrib.schema.validation import check_schema
from toolcrib.security.access import AccessSettings, read_access
from toolcrib.security.server_display import display_address
from toolcrib.security.trust import VARIABLE, Trust, Untrusted


class Finding(NamedTuple):
    """One problem of the installation or the project.

    Attributes:
        severity: `error` if something does not work, `warning` if it works differently from what a user may expect.
        message: The problem.
        hint: How to fix it; may be empty.
        code: Machine-readable kind; empty for most findings.
    """

    severity: Literal["error", "warning"]
    message: str
    hint: str = ""
    code: str = ""


class Findings(list[Finding]):
    """The findings, in the order of the checks, without duplicates."""

    def error(self, message: str, hint: str = "", code: str = "") -> None:
        """Add an error."""
        self._add(Finding("error", message, hint, code))

    def warning(self, message: str, hint: str = "", code: str = "") -> None:
        """Add a warning."""
        self._add(Finding("warning", message, hint, code))

    def _add(self, finding: Finding) -> None:
        if finding not in self:
            self.append(finding)

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(finding.severity == "error" for finding in self)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the findings as JSON objects."""
        return [finding._asdict() for finding in self]


VARIABLES: Mapping[str, str] = {
    PROFILE_VARIABLE: "selects the profile",
    SWITCH: "switches the index on or off",
    CACHE_VARIABLE: "sets the folder of indexes",
    STATE_VARIABLE: "sets the folder of keys and other state",
    VARIABLE: "grants trust",
    "NO_COLOR": "turns off colours",
    "COLUMNS": "sets the width of tables",
}
"""The environment variables that toolcrib reads -> their effect."""


def _access_in_short(access: AccessSettings) -> dict[str, Any]:
    """What access decides, as far as one line can say it."""
    lists = [
        key
        for key in ("grants", "hosts", "read", "write", "commands", "environment")
        if getattr(access, key) is not None
    ]
    return {
        "default": access.default,
        "audit": access.audit,
        "rules": len(access.rules),
        "lists": [f"paths.{key}" if key in {"read", "write"} else key for key in lists],
    }


class Checkup:
    """The result of all checks.

    Attributes:
        findings: The problems.
        executors: The usable modes.
        stock: The loaded project.
        settings: The active settings.
        runtime: A runtime with the active tools.
        trust: The trust decisions.
        blocked: Why no command that reads tools works; empty if they work.
    """

    def __init__(self, reading: ReadOptions) -> None:
        """Run all checks."""
        self.findings = Findings()
        self.blocked = ""
        installed = Executors.installed()
        self._installation = check_installation(self.findings)
        self._modes = check_modes(installed, self.findings)
        self._layers = check_layers(self.findings)
        self.executors = usable_executors(installed, self._modes)
        self.trust = Trust(trust_policy(reading), ask=ask_at_terminal if can_ask() else None)
        self.stock = self._read(reading)
        self.settings = self._chosen(reading)
        self._servers = ask_servers(self._runtime_of(self.stock.registry), self.findings)
        modules = PythonModules(engine_of(self._runtime_of(self.stock.registry)), NOTHING)
        imported = modules.load()
        if self.stock.unlisted or self.stock.waiting or imported:
            # Servers are queried with the tools of the first read. Overrides and scenarios for their tools
            # can only be linked in a second one.
            self.stock = self._read(reading, self._servers.offered, modules.imported)
        self.runtime = self._runtime_of(self._in_force())
        self._index = _index(
            reading, self.stock, whole=all(mode["fault"] is None for mode in self._modes.values())
        )
        self._trust = self._look_at_trust()
        self._environment = dict(self._variables())
        self._sources = list(self._look_at_sources())
        self._tell_problems()

    @property
    def project(self) -> Project | None:
        """The active project."""
        return self.stock.project

    @property
    def registry(self) -> Registry:
        """The active tools."""
        return self.runtime.registry

    def as_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return {
            "healthy": not self.findings.errors,
            "findings": self.findings.as_json(),
            "toolcrib": self._installation,
            "modes": self._modes,
            "middleware": self._layers,
            "project": self._project(),
            "profile": self._profile(),
            "sources": self._sources,
            "ignored": list(self.stock.ignored),
            "excluded": [
                {"name": tool.name, "place": tool.place, "file": tool.file, "by": tool.key}
                for tool in excluded_tools(self.stock, tuple(self.executors.modes))
                if tool.state != "ignored"
            ],
            "packs": [self._pack(pack) for pack in self.stock.packs],
            "installed_packs": [_installed_pack(pack) for pack in installed_packs().values()],
            "index": self._index,
            "trust": self._trust,
            "servers": self._servers.rows,
            "tools": self._tools(),
            "scenarios": len(self.stock.scenarios),
            "environment": self._environment,
            "problems": [problem._asdict() for problem in self.stock.problems],
        }

    # Reading. A step that fails adds a finding and leaves an empty value for the next steps.

    def _read(
        self,
        reading: ReadOptions,
        offered: Mapping[str, Catalogue] = NOTHING,
        imported: Mapping[PythonSource, ModuleTools] | None = None,
    ) -> LoadedProject:
        try:
            stock = open_project(
                reading.servers,
                reading.packs,
                self.executors,
                offered=offered,
                imported=imported,
                permits=self.trust.permits_data,
            )
        except ToolcribError as error:
            self._block(error)
            return LoadedProject(Registry())
        base = working_folder()
        self.trust.show(lambda: contents_of(stock, self.executors, self.trust, reading.servers, base=base))
        return stock

    def _runtime_of(self, registry: Registry) -> Runtime:
        engine = Engine(registry, executors=self.executors, stock=self.stock, trust=self.trust)
        engine.settings = self.settings
        return runtime_on(engine)

    def _block(self, error: ToolcribError) -> None:
        self.findings.error(error.message, error.hint)
        self.blocked = self.blocked or error.message

    def _chosen(self, reading: ReadOptions) -> Settings:
        """The settings of the selected profile; if it does not exist, those of the project's default profile."""
        asked, chosen_by = chosen_profile(reading.profile)
        if self.project is None and chosen_by == PROFILE_VARIABLE:
            message = f"{PROFILE_VARIABLE} selects profile `{asked}`, but there is no project here"
            self.findings.warning(message, "it has no effect here")
        try:
            return settings_of(self.project, asked, chosen_by)
        except ConfigurationError as error:
            self._block(error)
        return settings_of(self.project)

    def _in_force(self) -> Registry:
        """Apply the settings to the tools."""
        registry = apply_profile(self.stock, self.settings, {}, self.executors)
        if registry.why_closed:
            self.findings.error(registry.why_closed)
        return registry

    def _look_at_trust(self) -> dict[str, Any]:
        """Report the trust decisions, and add findings for workspaces that are not trusted."""
        trust, workspaces = self.trust, []
        here = bool(working_folder())
        if not here:
            self.findings.error("the working directory was deleted", "change to a folder that exists")
        for request in trust.requests() if here else ():
            trusted = trust.grants(request) and not request.undeclared
            if not trusted and (request.needs or request.undeclared):
                name = request.workspace.root
                # A missing decision is an error only if a check above was refused because of it; otherwise
                # nothing needed it.
                asked = any(each.workspace == request.workspace for each in trust.refused)
                tell = self.findings.error if asked else self.findings.warning
                message = f"{name} is not trusted, so only its mocks run"
                tell(message, request.hint, Untrusted.code)
            before = request.before
            workspaces.append(
                {
                    "workspace": request.workspace.root,
                    "kind": request.workspace.kind,
                    "hash": request.hash,
                    "needs": [each.as_json() for each in request.needs],
                    "undeclared": [each.as_json() for each in request.undeclared],
                    "summary": count_needs((*request.needs, *request.undeclared)),
                    "trusted": trusted,
                    "decision": None
                    if before is None
                    else {"when": before.when, "who": before.who, "how": before.how},
                }
            )
        for problem in trust.store.problems:
            self.findings.error(
                problem,
                "restrict write access to yourself, delete damaged files, and run `toolcrib trust` again",
            )
        granted = os.environ.get(VARIABLE) or None
        return {"store": trust.store.folder, "environment": granted, "workspaces": workspaces}

    # The parts of the JSON document.

    def _project(self) -> dict[str, Any]:
        project = self.project
        if not self.stock.project_file:
            return {"file": None, "looked_in": list(candidate_folders("."))}
        told: dict[str, Any] = {"file": self.stock.project_file}
        if project is not None:
            told |= {"name": project.name, "description": project.description, "root": project.root}
            told |= {
                "broken": project.broken,
                "profiles": list(project.profiles),
                "toolsets": [each.name for each in project.toolsets],
            }
        return told

    def _profile(self) -> dict[str, Any]:
        settings = self.settings
        lineage = self.project.lineage(settings.profile) if self.project is not None else []
        return {
            "name": settings.profile or None,
            "chosen_by": settings.chosen_by or None,
            "extends": [profile.name for profile in reversed(lineage[:-1])],
            "modes": [_told(settings, "modes", key, value) for key, value in settings.modes.items()],
            "defaults": [_told(settings, "defaults", key, value) for key, value in settings.defaults.items()],
            "egress": list(settings.egress),
            "origins": [_told(settings, "origins", key, value) for key, value in settings.origins.items()],
            "access": _access_in_short(read_access(settings.access)),
            "toolset": settings.toolset or None,
            "toolset_place": settings.places.get("toolset"),
            "switches": [
                {"globs": list(globs), "enabled": enabled, "place": place, "flag": flag or None}
                for globs, enabled, place, flag in settings.switches
            ],
        }

    def _pack(self, pack: Any) -> dict[str, Any]:
        return {
            "name": pack.name,
            "version": pack.version,
            "source": pack.origin.source,
            "namespace": pack.namespace,
            "tools": sum(card.pack == pack.name for card in self.stock.registry.cards.values()),
        }

    def _tools(self) -> dict[str, Any]:
        registry = self.registry
        hidden = {name: found for name in registry if (found := registry.hidden(name)) is not None}
        unavailable = {
            tool.name: why
            for tool in registry.values()
            if tool.name not in hidden
            and (why := engine_of(self.runtime).unavailable(tool) or engine_of(self.runtime).not_ready(tool))
        }
        called = [
            tool for tool in registry.values() if tool.name not in hidden and tool.name not in unavailable
        ]
        return {
            "total": len(registry),
            "modes": dict(sorted(Counter(tool.mode for tool in called).items())),
            "unavailable": unavailable,
            "hidden": {name: found.message for name, found in hidden.items()},
            "codes": dict(sorted(Counter(found.code for found in hidden.values()).items())),
            "stale": {tool.name: tool.origin.stale for tool in registry.values() if tool.origin.stale},
        }

    def _tell_problems(self) -> None:
        errors = [problem for problem in self.stock.problems if problem.severity == "error"]
        if errors:
            files = len({problem.source for problem in errors})
            message = f"{plural(len(errors), 'error')} in {plural(files, 'document')}"
            self.findings.error(message, "run `toolcrib validate` to list every problem")

    # Sources.

    def _look_at_sources(self) -> Iterator[dict[str, Any]]:
        """The sources in the order in which they are read; a missing one has the kind `missing`."""
        left = dict.fromkeys(self.stock.sources)
        for entry in self.project.sources if self.project is not None else ():
            told = self._source_of_project(entry, self.project)  # type: ignore[arg-type]  # there is one in this loop
            if told is not None:
                left.pop(told["path"], None)
                yield told
        for path in left:
            yield self._source(path)

    def _source_of_project(self, entry: SourceEntry, project: Project) -> dict[str, Any] | None:
        if entry.pack:
            tools = sum(card.pack == entry.pack for card in self.stock.registry.cards.values())
            there = any(pack.name == entry.pack for pack in self.stock.packs)
            kind = "installed pack" if there else "missing"
            told = {"path": entry.pack, "kind": kind, "tools": tools, "scenarios": 0, "problems": 0}
        elif entry.python:
            unknown = any(source.name == entry.python for source in self.stock.unimported)
            tools = sum(source.name == entry.python for source in self.stock.owners.values())
            kind = "module, not imported" if unknown else "module"
            told = {"path": entry.python, "kind": kind, "tools": tools, "scenarios": 0, "problems": 0}
        else:
            path = os.path.normpath(os.path.join(project.root, entry.path))
            if entry.optional and not Path(path).exists():
                return None
            told = self._source(path)
        return told | {"place": entry.place or None, "namespace": entry.namespace, "version": entry.version}

    def _source(self, path: str) -> dict[str, Any]:
        origins = [tool.origin for tool in self.stock.registry.values()]
        # An overridden tool counts for the file that declares it; its override is counted separately.
        first = [
            file_and_line(origin.overrides[-1])[0] if origin.overrides else origin.source
            for origin in origins
        ]
        return {
            "path": path,
            "kind": _kind(path),
            "tools": sum(_lies_in(path, source) for source in first),
            "overrides": sum(_lies_in(path, origin.source) for origin in origins if origin.overrides),
            "scenarios": sum(_lies_in(path, scenario.origin.source) for scenario in self.stock.scenarios),
            "problems": sum(_lies_in(path, problem.source) for problem in self.stock.problems),
            "ignored": sum(_lies_in(path, file) for file in self.stock.ignored),
        }

    # The environment.

    def _variables(self) -> Iterator[tuple[str, dict[str, str]]]:
        for name, effect in VARIABLES.items():
            if os.environ.get(name):
                yield name, {"value": os.environ[name], "effect": effect}
        idle = idle_variable()
        if idle:
            self.findings.warning(idle, "run `toolcrib trust --dry-run` to see the hash")
        for name in sorted(os.environ):
            # A misspelt variable is ignored silently everywhere else.
            if name.startswith("TOOLCRIB_") and name not in VARIABLES:
                near = near_misses(name, [known for known in VARIABLES if known.startswith("TOOLCRIB_")])
                hint = f"did you mean {' or '.join(near)}?" if near else "toolcrib does not read it"
                self.findings.warning(f"the environment variable {name} has no effect", hint)


def _index(reading: ReadOptions, stock: LoadedProject, *, whole: bool) -> dict[str, Any]:
    """Whether the next start can use the index, and why not."""
    index = default_index()
    key = index_key((), reading.packs)
    if index is None:
        off = os.environ.get(SWITCH)
        return {"file": None, "state": f"off, by {SWITCH}={off}" if off else "off: no cache folder"}
    if not reading.indexed:
        return {"file": None, "state": "off, by --no-index"}
    if key is None or stock.seen is None:
        return {"file": None, "state": "none: changes to the sources cannot be tracked"}
    if not whole:
        return {"file": None, "state": "none: not written while a mode is broken"}
    file = index.file(key)
    unused = index.why_unused()
    if unused:
        return {"file": file, "state": f"not used, {unused}: every start reads all files"}
    if not Path(file).exists():
        return {"file": file, "state": "none yet"}
    current = index.recall(key) is not None
    return {"file": file, "state": "current" if current else "out of date: the next start reads all files"}


def _installed_pack(pack: InstalledPack) -> dict[str, Any]:
    return {
        "name": pack.name,
        "distribution": f"{pack.distribution} {pack.version}".rstrip(),
        "folder": None if pack.path is None else str(pack.path),
        "fault": pack.problems[0].message if pack.problems else None,
    }


def _told(settings: Settings, key: str, name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": value, "place": settings.places[f"{key}.{name}"]}


def _kind(path: str) -> str:
    place = Path(path)
    if place.is_dir():
        return "pack" if pack_file(place) is not None else "folder"
    if not place.exists():
        return "missing"
    return "archive" if path.endswith(ARCHIVE) else "file"


def _lies_in(source: str, file: str) -> bool:
    """Whether a file is a source or inside it; both paths as the user wrote them."""
    # Files below the working directory are reported without a leading `./`.
    if source == ".":
        return not Path(file).is_absolute() and not file.startswith("..")
    return file == source or file.startswith((f"{source}/", f"{source}{os.sep}"))


def check_installation(findings: Findings) -> dict[str, Any]:
    """Return the versions of toolcrib, Python and the packages; a missing package is a finding."""
    requirements = _requirements()
    return {
        "version": toolcrib.__version__,
        "folder": str(Path(toolcrib.__file__).parent),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "packages": dict(_packages(requirements, findings)),
        "extras": _extras(requirements),
    }


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(text) for text in distribution("toolcrib").requires or ()]
    except PackageNotFoundError:  # run from a source folder, without metadata
        return []


def _packages(requirements: Sequence[Requirement], findings: Findings) -> Iterator[tuple[str, str | None]]:
    """Yield the required packages of the core with their installed versions."""
    for needed in requirements:
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if version is None:
            findings.error(f"`{needed.name}` is not installed", f"`pip install '{needed}'`")
        elif not needed.specifier.contains(version, prereleases=True):
            message = f"`{needed.name}` is version {version}, but toolcrib requires {needed.specifier}"
            findings.error(message, f"`pip install '{needed}'`")
        yield needed.name, version


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def _extras(requirements: Sequence[Requirement]) -> dict[str, dict[str, str | None]]:
    """Extra -> package -> installed version."""
    extras: dict[str, dict[str, str | None]] = {}
    try:
        names = distribution("toolcrib").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        names = []
    for name in sorted(names):
        extras[name] = {
            needed.name: _version(needed.name)
            for needed in requirements
            if needed.marker is not None
            and needed.marker.evaluate({"extra": name})
            and not needed.marker.evaluate({"extra": ""})
        }
    return extras


def check_modes(executors: Executors, findings: Findings) -> dict[str, dict[str, Any]]:
    """Return for each mode the distribution that provides it, and why it cannot be used."""
    found: dict[str, dict[str, Any]] = {}
    for name, entries in _offered(MODES).items():
        *others, entry = entries  # the last one counts, as in `Executors.installed`
        why = _fault_of_mode(executors, name, entry)
        if why:
            findings.error(f"mode `{name}` of {_named(entry)} {why}", "update or uninstall that distribution")
        for other in others:
            message = (
                f"mode `{name}` is provided by {_named(other)} and by {_named(entry)}; the second one is used"
            )
            findings.warning(message, "uninstall one of the distributions")
        found[name] = {"distribution": _named(entry), "object": entry.value, "fault": why or None}
    return found


def _fault_of_mode(executors: Executors, mode: str, entry: EntryPoint) -> str:
    schema = executors.schema_for(mode)
    if schema is None:
        return executors.missing(mode)
    if entry.module.partition(".")[0] == "toolcrib":
        return ""  # Checking the schemas of its own modes takes half of the time of `doctor`; tests do it.
    problems: list[Problem] = check_schema(schema)
    return f"has an invalid block schema: {problems[0].message}" if problems else ""


def usable_executors(executors: Executors, found: dict[str, dict[str, Any]]) -> Executors:
    """The modes that work; with them the documents can still be read."""
    return Executors.named(
        {mode: target for mode, target in executors.targets.items() if found[mode]["fault"] is None}
    )


def check_layers(findings: Findings) -> dict[str, dict[str, Any]]:
    """Return for each installed middleware the distribution that provides it, and why it cannot be used."""
    found = {}
    for name, entries in _offered(LAYERS).items():
        why = ""
        try:
            entries[-1].load()
        except Exception as error:  # noqa: BLE001 -- importing third-party code may raise anything
            why = f"cannot be used: {type(error).__name__}: {error}"
            findings.warning(
                f"middleware `{name}` of {_named(entries[-1])} {why}", "it is used only if a runtime names it"
            )
        found[name] = {"distribution": _named(entries[-1]), "object": entries[-1].value, "fault": why or None}
    return found


def _offered(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name, sorted."""
    offered: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        offered.setdefault(entry.name, []).append(entry)
    return dict(sorted(offered.items()))


def _named(entry: EntryPoint) -> str:
    dist: Distribution | None = entry.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"


class ServerAnswers(NamedTuple):
    """The answers of the servers.

    Attributes:
        offered: Name of a server -> its catalogue.
        rows: The JSON objects of all servers.
    """

    offered: Mapping[str, Catalogue]
    rows: list[dict[str, Any]]


def ask_servers(runtime: Runtime, findings: Findings) -> ServerAnswers:
    """Start or contact every server, list its tools, and stop it. Each failure is a finding."""
    if not runtime.servers:
        return ServerAnswers({}, [])
    answers = asyncio.run(_answers(runtime))
    rows = [_row(runtime, server, answers[server.name], findings) for server in runtime.servers.values()]
    return ServerAnswers({name: each for name, each in answers.items() if isinstance(each, Catalogue)}, rows)


async def _answers(runtime: Runtime) -> dict[str, Catalogue | NotReady]:
    async def one(name: str) -> Catalogue | NotReady:
        try:
            return await runtime.catalogue(name)
        # If one call raised, `gather` would drop the answers of the other servers.
        except NotReady as error:
            return error

    try:
        await engine_of(runtime).read_directories()
        answers = await asyncio.gather(*map(one, runtime.servers))
        return dict(zip(runtime.servers, answers, strict=True))
    finally:
        await engine_of(runtime).executors.aclose()


def _row(
    runtime: Runtime, server: Server, answer: Catalogue | NotReady, findings: Findings
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": server.name,
        "transport": server.transport,
        "address": display_address(server),
        "place": server.place(),
        "imports": server.imports,
        "tools": None,
        "protocol": None,
        "fault": None,
        "lock": [],
    }
    if isinstance(answer, NotReady) and answer.denied and answer.code == Untrusted.code:
        return row | {"fault": "not queried: not trusted"}
    if isinstance(answer, NotReady):
        findings.error(f"{server.kind} `{server.name}` cannot be used: {answer.message}", answer.hint)
        return row | {"fault": answer.message}
    judge = engine_of(runtime).world.judge
    verdict = judge(server, answer)
    told = [*dict.fromkeys(verdict.refused.values()), *judge(server, None).warnings, *verdict.warnings]
    for text in (*told, *answer.remarks, *(f"`{name}`: {why}" for name, why in answer.refused.items())):
        findings.warning(f"{server.kind} `{server.name}`: {text}")
    protocol = answer.info.get("protocol")
    listed = {"agents": len(answer.agents)} if server.lists else {}
    return row | {"tools": len(answer.tools), "protocol": protocol, "lock": told, **listed}


def server_line(row: Mapping[str, Any]) -> list[str]:
    """The table cells of a server."""
    if row["fault"] is not None:
        state = "not queried" if row["fault"].startswith("not queried") else "cannot be used"
    else:
        speaks = "A2A" if row["transport"] == AGENT_MODE else "MCP"
        offers = plural(row["agents"], "agent") if "agents" in row else plural(row["tools"], "tool")
        state = offers + (f", {speaks} {row['protocol']}" if row["protocol"] else "")
    return [row["name"], row["transport"], row["address"], state, f"({row['place']})"]
