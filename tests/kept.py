"""What tests of the index share: an index whose surroundings never change, and a project with everything in it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import toolcrib
from toolcrib import Executors
from toolcrib.engine.open_project import open_project
from toolcrib.loading.cache.header import index_key
from toolcrib.loading.cache.index import Index, project_profiles
from toolcrib.loading.fingerprints import EnvironmentFingerprint, FileFingerprints
from toolcrib.loading.snapshot import LoadedProject

POINTERS = (
    "",
    "/name",
    "/description",
    "/input_schema/properties/city",
    "/mock/result",
    "/steps/0/call",
    "/nowhere",
)

PROJECT = {
    "toolcrib.yaml": """
project: everything
sources: [descriptors, {path: team, namespace: team}, packs]
defaults: {timeout: 5s}
disable: [legacy_*]
toolsets: {small: {description: A few., tools: [get_*]}}
profiles: {dev: {modes: {"*": mock}}, ci: {extends: dev, toolset: small}}
""",
    "descriptors/forecast.tool.yaml": """
name: get_forecast
description: Daily forecast
version: 1.10
tags: [weather]
labels: {team: sky}
annotations: {read_only: true}
input_schema:
  type: object
  properties: {city: {type: string}}
examples: [{args: {city: Oslo}}]
mock: {result: {city: "{{ args.city }}"}}
---
name: legacy_forecast
mock: {result: 1}
""",
    "descriptors/form.json": '{"name": "flat", "description": "d", "inputSchema": {"type": "object"}, "mockResponse": {"a": 1}}',
    "descriptors/data.tool.yaml": "name: with_data\nmock: {result_file: data/answer.json}\n",
    "descriptors/data/answer.json": '{"answer": 42}',
    "descriptors/broken.tool.yaml": "name: broken\nmock: {resul: 1}\n",
    "descriptors/override.yaml": "name: get_forecast\noverride: true\ndescription: |\n  Overridden\n",
    "descriptors/plays.scenario.yaml": """
scenario: plays
description: 1.10
steps:
- call: get_forecast
  args: {city: Oslo}
""",
    "team/tool.yaml": "name: ask\nmock: {result: yes}\n",
    "team/asks.yaml": "scenario: asks\nsteps:\n- call: ask\n",
    "packs/travel/pack.yaml": """
name: travel
version: 1.0.0
namespace: tr
defaults: {timeout: 7s}
toolsets: {all: {tools: ["*"]}}
""",
    "packs/travel/book.tool.yaml": "# first\nname: book\nmock: {result: ok}\n",
}

IN_ARCHIVE = {
    "pack.yaml": "name: zipped\nversion: 2.0.0\n",
    "tools/look.tool.yaml": "name: look\n\ndescription: Looks\nmock: {result_file: ../data/seen.json}\n",
    "data/seen.json": '"much"',
}


def write_project(folder: Path) -> Path:
    """A project with an override, a namespace, packs, an archive, data, a compatible form, scenarios and a fault."""
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with zipfile.ZipFile(folder / "packs" / "zipped.zip", "w") as archive:
        for name, text in IN_ARCHIVE.items():
            archive.writestr(f"zipped/{name}", text)
    return folder


def nowhere(_targets: Iterable[str] = ()) -> EnvironmentFingerprint:
    """Surroundings in which nothing is that could change."""
    return EnvironmentFingerprint(toolcrib.__version__, FileFingerprints({}, {}, {}), {})


class Shelf:
    """An index, and the stock of some paths as it is read and as it is kept."""

    def __init__(self, folder: Path, *paths: str) -> None:
        self.folder = folder
        self.index = Index(str(folder), nowhere)
        self.paths = paths
        self.executors = Executors.installed()

    def of(self, *paths: str) -> Shelf:
        """Other paths in the same index."""
        return Shelf(self.folder, *paths)

    def file(self) -> Path:
        """The only file in the index."""
        (file,) = self.folder.iterdir()
        return file

    @property
    def key(self) -> bytes:
        key = index_key(self.paths)
        assert key is not None
        return key

    def read(self) -> LoadedProject:
        """The stock, read from the documents."""
        return open_project(self.paths, (), self.executors)

    def keep(self) -> LoadedProject:
        """The stock, read and kept."""
        stock = self.read()
        targets, built_in = self.executors.targets, self.executors.built_in
        self.index.keep(self.key, stock, targets, project_profiles(stock), built_in=built_in)
        return stock

    def recall(self) -> LoadedProject | None:
        """The stock from the index."""
        recalled = self.index.recall(self.key)
        return recalled.load(self.executors) if recalled is not None else None


def assert_same(warm: LoadedProject | None, cold: LoadedProject) -> None:
    """Everything that a runtime can be asked for is the same, whether it was read or recalled."""
    assert warm is not None
    assert list(warm.registry) == list(cold.registry)
    assert dict(warm.registry) == dict(cold.registry)
    assert dict(warm.registry.cards) == dict(cold.registry.cards)
    assert list(warm.packs) == list(cold.packs)
    assert list(warm.projects) == list(cold.projects)
    assert warm.project == cold.project
    assert [scenario.name for scenario in warm.scenarios] == [scenario.name for scenario in cold.scenarios]
    scenarios = list(zip(warm.scenarios, cold.scenarios, strict=True))
    for name in {*LoadedProject._fields} - {"registry", "packs", "projects", "scenarios", "seen"}:
        assert getattr(warm, name) == getattr(cold, name), name
    found = [(warm.registry[name], cold.registry[name]) for name in cold.registry] + scenarios
    found += list(zip([*warm.packs, *warm.projects], [*cold.packs, *cold.projects], strict=True))
    for ours, theirs in found:
        assert ours.origin == theirs.origin
        for pointer in POINTERS:
            assert ours.origin.locate(pointer) == theirs.origin.locate(pointer), (ours.name, pointer)
    for ours, theirs in scenarios:
        assert [step.call for step in ours.calls] == [step.call for step in theirs.calls]
        assert ours.description == theirs.description
