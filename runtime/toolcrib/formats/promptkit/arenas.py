"""Find PromptKit arenas, and convert them to tools, scenarios, servers and files of tools.

Parts without a counterpart are reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit import convert_descriptor
from toolcrib.formats.promptkit.arena_agents import tools_of_agents
from toolcrib.formats.promptkit.arena_servers import servers_of
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
from toolcrib.loading.scenarios.model import NO_PROVIDER, Scenario
from toolcrib.loading.servers import ServerBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A converted arena.

    Attributes:
        tools: The tools that it defines inline, as manifests.
        agents: The tools of its mocked agents, in our form.
        tool_files: The files of tools that it refers to: path relative to the arena, path for people, reference.
        scenarios: Its scenarios in our form.
        servers: Its MCP servers, by name.
        problems: All its problems, with positions.
        of_providers: Those that have no effect if another provider is chosen.
    """

    tools: tuple[Document, ...] = ()
    agents: tuple[Document, ...] = ()
    tool_files: tuple[tuple[str, str, SourceNode], ...] = ()
    scenarios: tuple[ComposedDocument, ...] = ()
    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    of_providers: tuple[Problem, ...] = ()


def read_arena(document: Document, files: Files | None) -> Arena:
    """Read an arena and all files that it refers to.

    Args:
        document: The arena.
        files: The files next to it.
    """
    problems: list[Problem] = []
    arena = SourceNode(document, "", document.value)
    library = ArenaLibrary(arena, files, problems)
    tools = tuple(inline_tools(document))
    if not library.is_good(arena, "Arena"):
        return Arena(tools=tools, problems=_told(problems))
    spec = arena.part("spec")
    servers, faults = servers_of(spec)
    agents, strays = tools_of_agents(spec)
    problems += (*faults, *strays)
    setting = _setting(arena, library, agents)
    scenarios = [scenario_of(name, node, labels, setting) for name, node, labels in _scenarios(spec, library)]
    return Arena(
        tools=tools,
        agents=tuple(agents),
        tool_files=tuple(_tool_files(spec, library)),
        scenarios=tuple(scenario for scenario in scenarios if scenario is not None),
        servers=servers,
        problems=_told(problems),
        of_providers=tuple(library.of_providers),
    )


def _told(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    # Several scenarios can refer to the same invalid file.
    return tuple(dict.fromkeys(problems))


def inline_tools(document: Document) -> Iterator[Document]:
    """The tools that an arena defines inline, each as a manifest."""
    specs = SourceNode(document, "", document.value).part("spec", "tool_specs")
    for name, node in specs.entries():
        value: dict[str, Any] = {
            # Only its presence matters: it marks the document as a manifest.
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


def _setting(arena: SourceNode, library: ArenaLibrary, agents: Sequence[Document]) -> ArenaContext:
    spec = arena.part("spec")
    told = len(library.problems)
    providers = _by_id(_providers(spec, library))
    library.of_providers += library.problems[told:]
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
        agents=tuple(str(own.value["name"]) for own in agents if isinstance(own.value, dict)),
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
    """Drop duplicates of scenarios that belong to several arenas, and report them.

    A scenario with scripted replies takes precedence over one with a model, then the first one.
    """
    best: dict[tuple[str, int, str], Scenario] = {}
    for scenario in scenarios:
        key = _key(scenario)
        known = best.get(key)
        if known is None or _rank(known) > _rank(scenario):
            best[key] = scenario
    kept = [scenario for scenario in scenarios if best[_key(scenario)] is scenario]
    message = "this scenario belongs to several arenas; it runs only once"
    hint = "scripted replies take precedence over a model, then the first arena"
    left = {_key(scenario): scenario for scenario in scenarios if best[_key(scenario)] is not scenario}
    notice = Problem(code="one_provider", message=message, hint=hint, severity="notice")
    return kept, [notice.at(each.origin.source, each.origin.line, 1) for each in left.values()]


def _key(scenario: Scenario) -> tuple[str, int, str]:
    return scenario.origin.source, scenario.origin.line, scenario.name


def _rank(scenario: Scenario) -> int:
    provider = scenario.agent.provider if scenario.agent is not None else ""
    return {"scripted": 0, NO_PROVIDER: 2}.get(provider, 1)


def convert_arena(document: Document, where: DocumentContext) -> Conversion:
    """Convert an arena and the files that it refers to."""
    arena = read_arena(document, where.files)
    tools, problems = list[ForeignTool](), list(arena.problems)
    for manifest in arena.tools if where.tools else ():
        converted = convert_descriptor(manifest, where)
        problems += converted.problems
        tools += converted.tools
    tools += [ForeignTool(own) for own in (arena.agents if where.tools else ())]
    files = [
        NamedFile(path, source, at.document, at.pointer, where)
        for path, source, at in (arena.tool_files if where.tools else ())
    ]
    scenarios = [
        each for each in arena.scenarios if where.only in ("", each.source) or _same(each.source, where.only)
    ]
    # A scenario that is run alone is looked for in every arena above it, also in those that do not contain it.
    servers = arena.servers if scenarios or not where.only else NOTHING
    return Conversion(
        tools=tools,
        scenarios=scenarios,
        files=files,
        servers=servers,
        problems=problems,
        of_providers=arena.of_providers,
    )


def _same(file: str, other: str) -> bool:
    # The user may refer to the file by a symlink or by another relative path.
    return os.path.realpath(file) == os.path.realpath(other)


def tools_of(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """The tools that an arena defines inline, converted, those of its mocked agents, and their problems."""
    read = [normalise(manifest, files) or ([], []) for manifest in inline_tools(document)]
    agents, strays = tools_of_agents(SourceNode(document, "", document.value).part("spec"))
    own = [each for owns, _told in read for each in owns]
    return [*own, *agents], [*(each for _owns, told in read for each in told), *strays]


class ArenaSummary(NamedTuple):
    """An arena.

    Attributes:
        name: Its name.
        servers: Its MCP servers in the form of a project.
    """

    name: str
    servers: dict[str, JSON]


def arenas_in(path: Path, *, but: Path | None = None) -> list[ArenaSummary]:
    """The arenas in a file, or in a folder and its subfolders, sorted by name.

    Args:
        path: The file or folder.
        but: A folder to skip.
    """
    files = _texts(path, but) if path.is_dir() else [path]
    documents = [document for file in files for document in read_documents(file, str(file))[0]]
    return [_found(document) for document in documents if is_arena(document.value)]


def _texts(folder: Path, but: Path | None) -> list[Path]:
    found = []
    for here, folders, names in os.walk(folder):
        # Virtual environments and the like can contain thousands of files.
        kept = (name for name in folders if name not in SKIPPED_FOLDERS)
        # `os.walk` descends into the folders that are left in this list.
        folders[:] = sorted(
            name for name in kept if but is None or Path(here, name).resolve() != but.resolve()
        )
        found += [Path(here, name) for name in sorted(names) if name.endswith(SUFFIXES)]
    return found


def _found(document: Document) -> ArenaSummary:
    node = SourceNode(document, "", document.value)
    name = node.part("metadata", "name").text or Path(document.source).resolve().parent.name
    servers = servers_of(node.part("spec"))[0]
    return ArenaSummary(name, {name: dict(block.said) for name, block in servers.items()})
