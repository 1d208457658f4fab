"""Arenas of PromptKit: where they are, and what they become here: tools, scenarios, servers and files of tools.

Whatever has no counterpart is reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit import convert_descriptor
from toolcrib.formats.promptkit.foreign_descriptors import is_arena, normalise
from toolcrib.formats.promptkit.library import ArenaLibrary
from toolcrib.formats.promptkit.model_providers import ArenaProvider, ProviderChooser, unknown_prices
from toolcrib.formats.promptkit.prompts import ArenaPrompt
from toolcrib.formats.promptkit.scenarios import ArenaContext, scenario_of
from toolcrib.formats.promptkit.source_nodes import ComposedDocument, SourceNode
from toolcrib.loading.documents.document import Document, read_documents
from toolcrib.loading.documents.files import SKIPPED_FOLDERS, SUFFIXES
from toolcrib.loading.format_contract import Conversion, ForeignTool, NamedFile
from toolcrib.loading.reader import DocumentContext
from toolcrib.loading.scenarios.model import Scenario

_SAME: Final = ("command", "args", "env", "url", "headers")
_SCOPES: Final = {"run": "runtime", "scenario": "session", "session": "session"}
_TRANSPORTS: Final = {"stdio": "stdio", "sse": "sse", "streamable_http": "http", "http": "http"}
_KNOWN: Final = frozenset({*_SAME, "name", "working_dir", "transport", "scope", "timeout_ms", "tool_filter"})
_OF_SOURCES: Final = ("source", "source_args")


def servers_of(spec: SourceNode) -> tuple[dict[str, JSON], list[Problem]]:
    """The servers of an arena by their names here, and the problems with them.

    Tools of a server `fs` are called `mcp__fs__read_file` in PromptKit: so is the server, `mcp__fs`, and nothing else
    changes.
    """
    servers: dict[str, JSON] = {}
    problems: list[Problem] = []
    for node in spec.part("mcp_servers").each():
        entry = _server(node, problems)
        if entry is not None:
            name = node.part("name").text
            servers[f"mcp__{name}"] = entry
            message = f"the server `{name}` is not used from here: servers are named by a project"
            hint = "`toolcrib import promptkit` writes a `toolcrib.yaml` that names it"
            problems.append(node.problem("no_counterpart", message, hint, "warning"))
    return servers, problems


def _server(node: SourceNode, problems: list[Problem]) -> dict[str, JSON] | None:
    """A server as `servers` of a project has it; None where it can't be reached from here, which is reported."""
    if not node.part("name").text:
        problems.append(node.problem("missing_key", "`name` of the server is missing"))
        return None
    if node.part("source"):
        message = "a server that is started from a source has no counterpart here"
        hint = "write its `command` and `args`, such as `docker run -i --rm IMAGE`"
        problems.append(node.part("source").problem("no_counterpart", message, hint, "warning"))
        return None
    for key, part in node.entries():
        if key not in _KNOWN and key not in _OF_SOURCES:
            problems.append(
                part.problem("unknown_key", f"unknown key `{key}`, which has no effect", severity="warning")
            )
    entry: dict[str, JSON] = {key: _literal(node.part(key).value) for key in _SAME if node.part(key)}
    if node.part("working_dir").text:
        entry["cwd"] = node.part("working_dir").text
    if node.part("url"):
        entry["transport"] = _TRANSPORTS.get(node.part("transport").text, "sse")
    scope = _SCOPES.get(node.part("scope").text, "runtime")
    if scope != "runtime":
        entry["scope"] = scope
    if isinstance(node.part("timeout_ms").value, int):
        entry["timeouts"] = {"start": f"{node.part('timeout_ms').value}ms"}
    entry["import"] = _import(node.part("tool_filter"))
    return entry


def _literal(value: JSON) -> JSON:
    """PromptKit looks up no variables: what looks like one is itself."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else str(value)


def _import(chosen: SourceNode) -> JSON:
    """Which tools are offered; a list of permitted tools takes precedence over one of refused tools."""
    allowed: list[JSON] = [node.text for node in chosen.part("allowlist").each()]
    blocked: list[JSON] = [node.text for node in chosen.part("blocklist").each()]
    return {"only": allowed} if allowed else {"except": blocked} if blocked else True


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What came of an arena.

    Attributes:
        tools: The tools that it writes itself, as manifests.
        tool_files: The files of tools that it names: relative to its own, as a person names them, where.
        scenarios: Its scenarios, as documents of ours.
        problems: All problems with it, placed.
    """

    tools: tuple[Document, ...] = ()
    tool_files: tuple[tuple[str, str, SourceNode], ...] = ()
    scenarios: tuple[ComposedDocument, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_arena(document: Document, files: Files | None) -> Arena:
    """Read an arena with all the files that it names.

    Args:
        document: The arena.
        files: The files beside it.
    """
    problems: list[Problem] = []
    arena = SourceNode(document, "", document.value)
    library = ArenaLibrary(arena, files, problems)
    tools = tuple(inline_tools(document))
    if not library.is_good(arena, "Arena"):
        return Arena(tools=tools, problems=_told(problems))
    spec = arena.part("spec")
    problems += servers_of(spec)[1]
    setting = _setting(arena, library)
    scenarios = [scenario_of(name, node, labels, setting) for name, node, labels in _scenarios(spec, library)]
    return Arena(
        tools=tools,
        tool_files=tuple(_tool_files(spec, library)),
        scenarios=tuple(scenario for scenario in scenarios if scenario is not None),
        problems=_told(problems),
    )


def _told(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def inline_tools(document: Document) -> Iterator[Document]:
    """The tools that an arena writes itself, each as a manifest."""
    specs = SourceNode(document, "", document.value).part("spec", "tool_specs")
    for name, node in specs.entries():
        value: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Tool",
            "metadata": {"name": name},
            "spec": node.value,
        }
        moves = {
            "": specs.pointer,
            "/metadata": node.pointer,
            "/metadata/name": node.pointer,
            "/spec": node.pointer,
        }
        yield document.moved(value, moves)


def _setting(arena: SourceNode, library: ArenaLibrary) -> ArenaContext:
    spec = arena.part("spec")
    providers = _by_id(_providers(spec, library))
    for provider in providers.values():
        library.problems += unknown_prices(provider)
    roles = {role.part("id").text: role.part("provider") for role in spec.part("self_play", "roles").each()}
    judges = [*spec.part("judges").each(), *(node for _, node in spec.part("judge_specs").entries())]
    busy = frozenset(node.text for node in (*roles.values(), *(judge.part("provider") for judge in judges)))
    return ArenaContext(
        arena=arena,
        library=library,
        prompts=list(_prompts(spec, library)),
        providers=providers,
        roles=roles,
        personas=frozenset(_personas(spec.part("self_play"), library)),
        choice=ProviderChooser(arena, tuple(providers.values()), busy, library),
    )


def _by_id(providers: Iterable[ArenaProvider]) -> dict[str, ArenaProvider]:
    return {provider.id: provider for provider in providers}


def _providers(spec: SourceNode, library: ArenaLibrary) -> Iterator[ArenaProvider]:
    for ref in spec.part("providers").each():
        file = ref.part("file")
        for manifest in library.manifests(file, "Provider"):
            own = manifest.part("spec")
            name = own.part("id").text or manifest.part("metadata", "name").text
            yield ArenaProvider(name, ref.part("group").text or "default", own, file)
    for name, node in spec.part("provider_specs").entries():
        yield ArenaProvider(node.part("id").text or name, "default", node, node)


def _prompts(spec: SourceNode, library: ArenaLibrary) -> Iterator[ArenaPrompt]:
    for ref in spec.part("prompt_configs").each():
        for manifest in library.manifests(ref.part("file"), "PromptConfig"):
            name = ref.part("id").text or manifest.part("metadata", "name").text
            yield ArenaPrompt(name, manifest.part("spec"), ref.part("vars"))
    for name, node in spec.part("prompt_specs").entries():
        yield ArenaPrompt(name, node, node.part("vars"))


def _personas(self_play: SourceNode, library: ArenaLibrary) -> Iterator[str]:
    for ref in self_play.part("personas").each():
        for manifest in library.manifests(ref.part("file"), "Persona"):
            yield manifest.part("metadata", "name").text
            yield manifest.part("spec", "id").text
    yield from (name for name, _node in self_play.part("persona_specs").entries())


def _tool_files(spec: SourceNode, library: ArenaLibrary) -> Iterator[tuple[str, str, SourceNode]]:
    for ref in spec.part("tools").each():
        file = ref.part("file")
        if file.text:
            yield library.path(file.text), library.source(file.text), file


def _scenarios(spec: SourceNode, library: ArenaLibrary) -> Iterator[tuple[str, SourceNode, SourceNode]]:
    """Name, content and labels of each scenario."""
    for ref in spec.part("scenarios").each():
        for manifest in library.manifests(ref.part("file"), "Scenario"):
            own = manifest.part("spec")
            name = manifest.part("metadata", "name").text or own.part("id").text
            yield name or _stem(manifest), own, manifest.part("metadata", "labels")
    for name, node in spec.part("scenario_specs").entries():
        yield name, node, node.part("labels")


def _stem(manifest: SourceNode) -> str:
    return manifest.document.source.rpartition("/")[2].partition(".")[0]


def drop_duplicates(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[Problem]]:
    """The scenarios, each of those that several arenas name once; and what is left out.

    One whose answers are scripted goes before one that a model answers, else the first.
    """
    best: dict[tuple[str, int, str], Scenario] = {}
    for scenario in scenarios:
        key = _key(scenario)
        known = best.get(key)
        if known is None or (_asks_model(known) and not _asks_model(scenario)):
            best[key] = scenario
    kept = [scenario for scenario in scenarios if best[_key(scenario)] is scenario]
    message = "several arenas name this scenario; it runs once"
    hint = "a scenario whose answers are scripted goes before one that a model answers, else the first"
    left = {_key(scenario): scenario for scenario in scenarios if best[_key(scenario)] is not scenario}
    notice = Problem(code="one_provider", message=message, hint=hint, severity="notice")
    return kept, [notice.at(each.origin.source, each.origin.line, 1) for each in left.values()]


def _key(scenario: Scenario) -> tuple[str, int, str]:
    return scenario.origin.source, scenario.origin.line, scenario.name


def _asks_model(scenario: Scenario) -> bool:
    return scenario.agent is not None and scenario.agent.provider != "scripted"


def convert_arena(document: Document, where: DocumentContext) -> Conversion:
    """Read an arena and the files that it names."""
    arena = read_arena(document, where.files)
    tools, problems = list[ForeignTool](), list(arena.problems)
    for manifest in arena.tools if where.tools else ():
        converted = convert_descriptor(manifest, where)
        problems += converted.problems
        tools += converted.tools
    files = [
        NamedFile(path, source, at.document, at.pointer, where)
        for path, source, at in (arena.tool_files if where.tools else ())
    ]
    scenarios = [
        each for each in arena.scenarios if where.only in ("", each.source) or _same(each.source, where.only)
    ]
    return Conversion(tools=tools, scenarios=scenarios, files=files, problems=problems)


def _same(file: str, other: str) -> bool:
    """Whether two names are of one file."""
    return os.path.realpath(file) == os.path.realpath(other)


def tools_of(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """The tools that an arena writes itself, in our form, and what is wrong with them."""
    read = [normalise(manifest, files) or ([], []) for manifest in inline_tools(document)]
    return [own for owns, _told in read for own in owns], [each for _owns, told in read for each in told]


class ArenaSummary(NamedTuple):
    """An arena.

    Attributes:
        name: What it is called.
        servers: Its MCP servers, as a project of ours has them.
    """

    name: str
    servers: dict[str, JSON]


def arenas_in(path: Path, *, but: Path | None = None) -> list[ArenaSummary]:
    """The arenas of a file, or of a folder and those in it, in the order of names.

    Args:
        path: The file or folder.
        but: A folder in which none is looked for.
    """
    files = _texts(path, but) if path.is_dir() else [path]
    documents = [document for file in files for document in read_documents(file, str(file))[0]]
    return [_found(document) for document in documents if is_arena(document.value)]


def _texts(folder: Path, but: Path | None) -> list[Path]:
    found = []
    for here, folders, names in os.walk(folder):
        kept = (name for name in folders if name not in SKIPPED_FOLDERS)
        folders[:] = sorted(
            name for name in kept if but is None or Path(here, name).resolve() != but.resolve()
        )
        found += [Path(here, name) for name in sorted(names) if name.endswith(SUFFIXES)]
    return found


def _found(document: Document) -> ArenaSummary:
    node = SourceNode(document, "", document.value)
    name = node.part("metadata", "name").text or Path(document.source).resolve().parent.name
    return ArenaSummary(name, servers_of(node.part("spec"))[0])
