"""From an arena of PromptKit to what we have for it: tools, scenarios, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit.library import Library
from toolcrib.formats.promptkit.model_providers import Choice, Provider, unknown_prices
from toolcrib.formats.promptkit.scenarios import Setting, scenario_of
from toolcrib.formats.promptkit.servers import servers_of
from toolcrib.formats.promptkit.source_nodes import Composed, Node
from toolcrib.formats.promptkit.system_prompts import Prompt
from toolcrib.loading.documents.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What came of an arena.

    Attributes:
        tools: The tools that it writes itself, as manifests.
        tool_files: The files of tools that it names: relative to its own, as a person names them, where.
        scenarios: Its scenarios, as documents of ours.
        problems: Everything that there is to say of it, placed.
    """

    tools: tuple[Document, ...] = ()
    tool_files: tuple[tuple[str, str, Node], ...] = ()
    scenarios: tuple[Composed, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_arena(document: Document, files: Files | None) -> Arena:
    """Read an arena with all the files that it names.

    Args:
        document: The arena.
        files: The files beside it.
    """
    problems: list[Problem] = []
    arena = Node(document, "", document.value)
    library = Library(arena, files, problems)
    tools = tuple(written_tools(document))
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


def written_tools(document: Document) -> Iterator[Document]:
    """The tools that an arena writes itself, each as a manifest."""
    specs = Node(document, "", document.value).part("spec", "tool_specs")
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


def _setting(arena: Node, library: Library) -> Setting:
    spec = arena.part("spec")
    providers = _by_id(_providers(spec, library))
    for provider in providers.values():
        library.problems += unknown_prices(provider)
    roles = {role.part("id").text: role.part("provider") for role in spec.part("self_play", "roles").each()}
    judges = [*spec.part("judges").each(), *(node for _, node in spec.part("judge_specs").entries())]
    busy = frozenset(node.text for node in (*roles.values(), *(judge.part("provider") for judge in judges)))
    return Setting(
        arena=arena,
        library=library,
        prompts=list(_prompts(spec, library)),
        providers=providers,
        roles=roles,
        personas=frozenset(_personas(spec.part("self_play"), library)),
        choice=Choice(arena, tuple(providers.values()), busy, library),
    )


def _by_id(providers: Iterable[Provider]) -> dict[str, Provider]:
    return {provider.id: provider for provider in providers}


def _providers(spec: Node, library: Library) -> Iterator[Provider]:
    for ref in spec.part("providers").each():
        file = ref.part("file")
        for manifest in library.manifests(file, "Provider"):
            own = manifest.part("spec")
            name = own.part("id").text or manifest.part("metadata", "name").text
            yield Provider(name, ref.part("group").text or "default", own, file)
    for name, node in spec.part("provider_specs").entries():
        yield Provider(node.part("id").text or name, "default", node, node)


def _prompts(spec: Node, library: Library) -> Iterator[Prompt]:
    for ref in spec.part("prompt_configs").each():
        for manifest in library.manifests(ref.part("file"), "PromptConfig"):
            name = ref.part("id").text or manifest.part("metadata", "name").text
            yield Prompt(name, manifest.part("spec"), ref.part("vars"))
    for name, node in spec.part("prompt_specs").entries():
        yield Prompt(name, node, node.part("vars"))


def _personas(self_play: Node, library: Library) -> Iterator[str]:
    for ref in self_play.part("personas").each():
        for manifest in library.manifests(ref.part("file"), "Persona"):
            yield manifest.part("metadata", "name").text
            yield manifest.part("spec", "id").text
    yield from (name for name, _node in self_play.part("persona_specs").entries())


def _tool_files(spec: Node, library: Library) -> Iterator[tuple[str, str, Node]]:
    for ref in spec.part("tools").each():
        file = ref.part("file")
        if file.text:
            yield library.path(file.text), library.source(file.text), file


def _scenarios(spec: Node, library: Library) -> Iterator[tuple[str, Node, Node]]:
    """Name, what it says, and the labels of each scenario."""
    for ref in spec.part("scenarios").each():
        for manifest in library.manifests(ref.part("file"), "Scenario"):
            own = manifest.part("spec")
            name = manifest.part("metadata", "name").text or own.part("id").text
            yield name or _stem(manifest), own, manifest.part("metadata", "labels")
    for name, node in spec.part("scenario_specs").entries():
        yield name, node, node.part("labels")


def _stem(manifest: Node) -> str:
    return manifest.document.source.rpartition("/")[2].partition(".")[0]
