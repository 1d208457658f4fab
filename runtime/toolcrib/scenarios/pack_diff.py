"""Compare two versions of a pack: what the new one wants in addition, its publisher, its tools and its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.scenarios.pack_builder import PackArchive
from toolcrib.security.pack_signatures import SIGNATURE_FILE, signature_of


class PackDifference(NamedTuple):
    """How a version of a pack differs from an earlier one.

    Attributes:
        versions: The earlier version, empty for none; and the new one.
        keys: The keys of the publishers likewise; empty for a version that is not signed.
        wants: What the new version wants in addition: `contact api.example.com`.
        gives_up: What it does not want any more.
        keeps: What both want.
        tools: Name of a tool -> `added`, `removed` or `changed`.
        files: Path of a file -> `added`, `removed` or `changed`.
    """

    versions: tuple[str, str]
    keys: tuple[str, str]
    wants: tuple[str, ...]
    gives_up: tuple[str, ...]
    keeps: tuple[str, ...]
    tools: Mapping[str, str]
    files: Mapping[str, str]

    def as_json(self) -> dict[str, JSON]:
        """The difference as a JSON object."""
        return {
            "versions": {"before": self.versions[0] or None, "now": self.versions[1]},
            "keys": {"before": self.keys[0] or None, "now": self.keys[1] or None},
            "wants": [*self.wants],
            "gives_up": [*self.gives_up],
            "keeps": [*self.keeps],
            "tools": {**self.tools},
            "files": {**self.files},
        }


def compare_packs(before: PackArchive | None, now: PackArchive) -> PackDifference:
    """Compare a pack with an earlier version; None if there is none.

    Both packs have been read without errors in their `pack.yaml`.
    """
    old = dict.fromkeys(_wishes(before)) if before is not None else {}
    new = dict.fromkeys(_wishes(now))
    return PackDifference(
        versions=(_version(before), _version(now)),
        keys=(_key(before), _key(now)),
        wants=tuple(each for each in new if each not in old),
        gives_up=tuple(each for each in old if each not in new),
        keeps=tuple(each for each in new if each in old),
        tools=_changes(_digests(before), _digests(now)),
        files=_changes(_files(before), _files(now)),
    )


def _version(parcel: PackArchive | None) -> str:
    return parcel.pack.version if parcel is not None and parcel.pack is not None else ""


def _key(parcel: PackArchive | None) -> str:
    signature = signature_of(parcel.contents) if parcel is not None else None
    return signature.key if signature is not None else ""


def _digests(parcel: PackArchive | None) -> dict[str, str]:
    return {} if parcel is None else {tool.name: tool.origin.digest for tool in parcel.tools}


def _files(parcel: PackArchive | None) -> dict[str, bytes]:
    """The files of a pack without its signature, which differs in every version."""
    contents = parcel.contents if parcel is not None else {}
    return {name: data for name, data in contents.items() if name != SIGNATURE_FILE}


def _changes(before: Mapping[str, object], now: Mapping[str, object]) -> dict[str, str]:
    return {
        name: "added" if name not in before else "removed" if name not in now else "changed"
        for name in sorted({*before, *now})
        if name not in before or name not in now or before[name] != now[name]
    }


def _wishes(parcel: PackArchive) -> Iterator[str]:
    """What a pack wants, in words: the needs that it declares, and the capabilities of its tools."""
    requires: Mapping[str, Any] = parcel.pack.requires if parcel.pack is not None else {}
    for key, words in _WORDS.items():
        yield from (words.format(item) for item in requires.get(key, ()))
    if requires.get("network", False):
        yield "use the network from its programs"
    for purpose, paths in requires.get("paths", {}).items():
        yield from (f"{purpose} {path} with its programs" for path in paths)
    yield from (f"use the pack {name} {versions}" for name, versions in requires.get("packs", {}).items())
    capabilities = {each for tool in parcel.tools for each in tool.capabilities}
    yield from (f"use the capability {each}" for each in sorted(capabilities))


_WORDS: Mapping[str, str] = {
    "hosts": "contact {}",
    "environment": "read the variable {}",
    "files": "read the file {}",
    "commands": "start {}",
    "python": "run the Python code of {}",
}
