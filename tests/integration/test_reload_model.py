"""Any sequence of edits and reloads, against a small model of what must be in force.

The model: a good file has its content in force; a broken or empty one keeps the last good; one that is gone, or is
a folder now, takes its tools with it. While `pack.yaml` is broken everything in its folder stays as it was; while
`toolcrib.yaml` is, so do its settings.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sampling import examples
from toolcrib import Outcome, Runtime

TOOLS = ("a", "b", "c", "d")
PLACES = ("1.yaml", "2.json", "sub/3.yaml", "pack/4.yaml", "pack/in/5.json")
"""Where tools may be written. The last two lie in a pack whenever `pack/pack.yaml` is good."""

PACK, PROJECT, OVERRIDE = "pack/pack.yaml", "toolcrib.yaml", "over.yaml"

places = st.sampled_from(PLACES)
tools = st.sampled_from(TOOLS)
versions = st.integers(1, 99)


class Good(NamedTuple):
    """A file with a tool.

    Attributes:
        tool: Its name.
        version: What it answers.
    """

    tool: str
    version: int


class Broken(NamedTuple):
    """A file that can't be read as it is."""


class InForce(NamedTuple):
    """A tool that is in force.

    Attributes:
        version: What it answers.
        place: Where it was read.
        packed: Whether it belongs to the pack.
        stale: Whether it is not what is written there now.
        overridden: Whether the answer is that of the override.
    """

    version: int
    place: str
    packed: bool
    stale: bool = False
    overridden: bool = False


def text_of(place: str, good: Good) -> str:
    """A descriptor. Cut anywhere, it means nothing."""
    if place.endswith(".json"):
        return f'{{"mock": {{"result": {good.version}}}, "name": "{good.tool}"}}'
    return f'mock: {{result: {good.version}}}\nname: "{good.tool}"'


class Reloads(RuleBasedStateMachine):
    """A folder, a runtime over it, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.files: dict[str, Good | Broken] = {}
        self.pack: str | None = None  # its namespace; `?` while it is broken, None without it
        self.project: tuple[str, ...] | str | None = None  # what it disables; `?` while it is broken
        self.override: int | str | None = None  # what it answers for `a`; `?` while it is broken
        self.pack_in_force: str | None = None
        self.disabled: tuple[str, ...] | None = None
        self.in_force: dict[str, InForce] = {}
        self.reloaded = False

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self.runtime.close()
        shutil.rmtree(self.folder)

    @initialize(good=st.dictionaries(places, versions, max_size=3))
    def open(self, good: dict[str, int]) -> None:
        """Some files from the first, each with a tool of its own."""
        for tool, (place, version) in zip(TOOLS, good.items(), strict=False):
            self._write(place, Good(tool, version))
        self.runtime = Runtime.open(self.folder, index=False)
        self._expect()

    def _path(self, place: str) -> Path:
        """Where something is to be written; whatever was there before is gone."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        return path

    def _write(self, place: str, good: Good) -> None:
        self._path(place).write_text(text_of(place, good))
        self.files[place] = good

    def _is_elsewhere(self, tool: str, place: str) -> bool:
        return any(
            isinstance(file, Good) and file.tool == tool for at, file in self.files.items() if at != place
        )

    @rule(place=places, tool=tools, version=versions)
    def write_good(self, place: str, tool: str, version: int) -> None:
        if not self._is_elsewhere(tool, place):
            self._write(place, Good(tool, version))

    @rule(
        place=places,
        text=st.sampled_from(["", "name: [", "- - -\n: ]", "{", 'name: ""\nmock: {}', "\x00", "\udcff"]),
    )
    def write_broken(self, place: str, text: str) -> None:
        self._path(place).write_bytes(text.encode(errors="surrogateescape"))
        self.files[place] = Broken()

    @rule(place=places, data=st.data())
    def truncate(self, place: str, data: st.DataObject) -> None:
        """Of what is there only a part, as it is while somebody writes."""
        file = self.files.get(place)
        if isinstance(file, Good):
            whole = text_of(place, file)
            (self.folder / place).write_text(whole[: data.draw(st.integers(0, len(whole) - 1))])
            self.files[place] = Broken()

    @rule(place=places)
    def delete(self, place: str) -> None:
        if self.files.pop(place, None) is not None:
            (self.folder / place).unlink()

    @rule(place=places)
    def replace_by_folder(self, place: str) -> None:
        self.delete(place)
        self._path(place).mkdir()

    @rule(place=places, other=places)
    def rename(self, place: str, other: str) -> None:
        """To a place of the same format, so that the content means the same there."""
        if place in self.files and place != other and place[-4:] == other[-4:]:
            (self.folder / place).replace(self._path(other))
            self.files[other] = self.files.pop(place)

    @rule(
        place=st.sampled_from([*PLACES, PACK, PROJECT, ".", "sub", "pack"]),
        seconds=st.sampled_from([0, 1, 10**9, 2 * 10**9]),
    )
    def set_clock_back(self, place: str, seconds: int) -> None:
        if (self.folder / place).exists():
            os.utime(self.folder / place, (seconds, seconds))

    @rule(namespace=st.sampled_from(["", "ns", "other"]))
    def write_pack(self, namespace: str) -> None:
        said = f"namespace: {namespace}\n" if namespace else ""
        self._path(PACK).write_text(f'{said}version: 1.0.0\nname: "p"\n')
        self.pack = namespace

    @rule(text=st.sampled_from(["", "name: [", "versoin: 1\n", 'version: 1.0.0\nname: "p']))
    def break_pack(self, text: str) -> None:
        self._path(PACK).write_text(text)
        self.pack = "?"

    @rule(folder=st.booleans())
    def delete_pack(self, folder: bool) -> None:
        self._take_away(PACK, folder=folder)
        self.pack = None

    def _take_away(self, place: str, *, folder: bool) -> None:
        self._path(place).unlink(missing_ok=True)
        if folder:
            (self.folder / place).mkdir()

    @rule(disabled=st.lists(tools, max_size=2, unique=True))
    def write_project(self, disabled: list[str]) -> None:
        self._path(PROJECT).write_text(f'sources: [.]\ndisable: [{", ".join(disabled)}]\nproject: "p"\n')
        self.project = tuple(disabled)

    @rule(text=st.sampled_from(["", "project: [", "project: p\nsuorces: []\n", 'sources: [.]\nproject: "p']))
    def break_project(self, text: str) -> None:
        self._path(PROJECT).write_text(text)
        self.project = "?"

    @rule(folder=st.booleans())
    def delete_project(self, folder: bool) -> None:
        self._take_away(PROJECT, folder=folder)
        self.project = None

    @rule(version=versions)
    def write_override(self, version: int) -> None:
        self._path(OVERRIDE).write_text(f'mock: {{result: {version}}}\noverride: true\nname: "a"\n')
        self.override = version

    @rule(text=st.sampled_from(["", "name: [", "name: a\noverride: true\nmokc: {}\n"]))
    def break_override(self, text: str) -> None:
        self._path(OVERRIDE).write_text(text)
        self.override = "?"

    @rule(folder=st.booleans())
    def delete_override(self, folder: bool) -> None:
        self._take_away(OVERRIDE, folder=folder)
        self.override = None

    @rule()
    def reload(self) -> None:
        before = self.in_force
        asyncio.run(self.runtime.reload())
        self._expect(before)
        self.reloaded = True

    def _expect(self, before: dict[str, InForce] | None = None) -> None:
        """What must be in force now, by the model."""
        before = before or {}
        if self.project != "?":
            self.disabled = self.project
        pack_is_kept = self.pack == "?" and self.pack_in_force is not None
        if not pack_is_kept:
            self.pack_in_force = None if self.pack == "?" else self.pack
        found = {}
        for place, file in self.files.items():
            in_pack = place.startswith("pack/")
            if isinstance(file, Good) and not (in_pack and self.pack == "?"):
                packed = in_pack and self.pack_in_force is not None
                found[self._named(file.tool, packed=packed)] = InForce(file.version, place, packed)
        if "a" in found and isinstance(self.override, int):
            found["a"] = found["a"]._replace(version=self.override, overridden=True)
        for name, tool in before.items():
            if self._is_kept(tool, found.get(name)):
                found[name] = tool._replace(stale=True)
        self.in_force = found

    def _is_kept(self, tool: InForce, now: InForce | None) -> bool:
        """Whether the last version of a tool stays."""
        broken = isinstance(self.files.get(tool.place), Broken)
        broken = broken or (self.pack == "?" and tool.place.startswith("pack/"))
        if not tool.overridden:
            return broken and now is None
        if tool.place not in self.files:
            return False
        if now is None:
            return broken or self.override == "?"
        return self.override == "?" and not now.overridden

    def _named(self, tool: str, *, packed: bool) -> str:
        return f"{self.pack_in_force}__{tool}" if packed and self.pack_in_force else tool

    @invariant()
    def what_is_in_force_is_what_the_model_says(self) -> None:
        if not hasattr(self, "runtime"):
            return
        assert sorted(self.runtime.registry) == sorted(self.in_force)
        for name, tool in self.in_force.items():
            result = self.runtime.call_sync(name)
            if name in (self.disabled or ()):
                assert result.outcome is Outcome.UNAVAILABLE
            else:
                assert (result.outcome, result.value) == (Outcome.OK, tool.version)
            assert bool(self.runtime.registry[name].origin.stale) == tool.stale


TestReloads = Reloads.TestCase
TestReloads.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
