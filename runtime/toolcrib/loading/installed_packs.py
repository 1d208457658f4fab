"""Packs that installed Python distributions offer, by an entry point: `my-pack = "my_package.my_pack"`.

The key is the name of the pack, the value a package that holds `pack.yaml` as package data. It is found and read
without running any of the distribution's code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.documents.files import pack_file
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.versions import check_range, mismatch

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "toolcrib.packs"
"""The entry points under which distributions offer packs."""


class InstalledPack(NamedTuple):
    """A pack that an installed distribution offers.

    Attributes:
        name: Name of the pack.
        distribution: Name of the distribution.
        version: Version of the distribution; the pack has its own, in its `pack.yaml`.
        path: The folder of the pack; None where it can't be found.
        problems: Why it can't be found.
    """

    name: str
    distribution: str
    version: str
    path: Path | None
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return f"distribution {self.distribution} {self.version}".rstrip()


def installed_packs() -> Mapping[str, InstalledPack]:
    """Name -> pack of everything that is offered, by name. One that several distributions offer can't be found."""
    from importlib.metadata import entry_points  # noqa: PLC0415 -- searching all metadata takes its time

    found: dict[str, list[InstalledPack]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(_offered(point))
    return {name: _only(sorted(found[name], key=str)) for name in sorted(found)}


def find_installed(name: str, versions: str = "") -> tuple[Path | None, list[Problem]]:
    """The folder of a pack that is installed, in a version that will do.

    Args:
        name: Name of the pack.
        versions: Versions of the pack that will do: `>=1.2,<2`; empty for any.

    Returns:
        The folder, or None where there is no such pack, and all problems; where these belong the caller knows.
    """
    known = installed_packs()
    pack = known.get(name)
    if pack is None:
        return None, [_unknown(name, known)]
    if pack.path is None:
        return None, list(pack.problems)
    problems = [*_check_name(pack, pack.path), *_check_version(pack, pack.path, versions)]
    return (None if problems else pack.path), problems


def _offered(point: EntryPoint) -> InstalledPack:
    distribution = point.dist
    name, version = ("", "") if distribution is None else (distribution.name, distribution.version)
    pack = InstalledPack(point.name, name, version, None)
    folders, fault = _folders(point)
    path = next((folder for folder in folders if pack_file(folder) is not None), None)
    if path is not None:
        return pack._replace(path=path)
    fault = fault or f"the package `{point.value}` holds no `pack.yaml`"
    message = f"{pack} offers pack `{point.name}`, and {fault}"
    hint = f'the entry point in group `{GROUP}` names a package with `pack.yaml` in it: `my-pack = "my_package.my_pack"`'
    return pack._replace(problems=(Problem(code="unknown_pack", message=message, hint=hint),))


def _folders(point: EntryPoint) -> tuple[list[Path], str]:
    """Where the package of an entry point lies, or what keeps it from being found."""
    parts = point.value.split(".")
    if not all(part.isidentifier() for part in parts):
        return [], f"`{clipped(point.value)}` is no name of a package"
    within: list[str] | None = None
    for at, part in enumerate(parts):
        name = ".".join(parts[: at + 1])
        spec = _outer_spec(part) if within is None else PathFinder.find_spec(part, within)
        if spec is None:
            return [], f"there is no package `{name}`"
        if spec.submodule_search_locations is None:
            return [], f"`{name}` is a module and no package"
        within = list(spec.submodule_search_locations)
    return [Path(folder) for folder in within or ()], ""


def _outer_spec(name: str) -> ModuleSpec | None:
    """Where a package lies. `find_spec` of the standard library imports the packages around one that lies deeper."""
    finders: Iterable[Any] = sys.meta_path
    specs = (finder.find_spec(name, None) for finder in finders if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _only(packs: Sequence[InstalledPack]) -> InstalledPack:
    if len(packs) == 1:
        return packs[0]
    message = f"pack `{packs[0].name}` is offered by {' and by '.join(map(str, packs))}"
    problem = Problem(code="duplicate_pack", message=message, hint="uninstall all but one of them")
    return packs[0]._replace(path=None, problems=(problem,))


def _unknown(name: str, known: Iterable[str]) -> Problem:
    there = ", ".join(f"`{each}`" for each in known)
    listed = f"installed packs are {there}" if there else "install the distribution that has it, with pip"
    message = f"no installed distribution offers pack `{clipped(name)}`"
    return Problem(code="unknown_pack", message=message, hint=did_you_mean(name, known) or listed)


def _check_name(pack: InstalledPack, path: Path) -> Iterator[Problem]:
    own = _said(path, "name")
    if own not in {None, pack.name}:
        message = (
            f"{pack} offers pack `{pack.name}`, which calls itself `{clipped(str(own))}` in its `pack.yaml`"
        )
        hint = f"ask its author to give the entry point in group `{GROUP}` the name of the pack"
        yield Problem(code="unknown_pack", message=message, hint=hint)


def _check_version(pack: InstalledPack, path: Path, versions: str) -> Iterator[Problem]:
    faults = check_range(versions) if versions else []
    yield from faults
    own = _said(path, "version") if versions and not faults else None
    if isinstance(own, str) and (why := mismatch(own, versions)):
        message = f"pack `{pack.name}` {versions} is asked for, and the one of {pack} {why}"
        hint = f"install another version of `{pack.distribution}`, or widen the range"
        yield Problem(code="version_mismatch", message=message, hint=hint)


def _said(path: Path, key: str) -> object:
    """What the pack file says; None where that can't be read, which reading the pack tells in full."""
    file = pack_file(path)
    documents = read_documents(file, str(file))[0] if file is not None else []
    value = documents[0].value if documents else None
    return value.get(key) if isinstance(value, dict) else None
