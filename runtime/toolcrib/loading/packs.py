"""Packs: parse `pack.yaml`, check requirements, and find packs that distributions install.

An installed pack is an entry point, `my-pack = "my_package.my_pack"`: the name of the pack, and a package that contains
`pack.yaml` as package data. It is found and read without running code of the distribution. Version ranges (`>=1.2,<2`)
follow PEP 440; a semantic version is read as the PEP 440 version with the same place in the order.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolcrib import __version__
from toolcrib.core.errors import DocumentError, Problem, did_you_mean
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Fixture, Origin, Toolset
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files, Kinds
from toolcrib.core.text import canonical
from toolcrib.loading.descriptors import check_defaults, check_names, check_toolsets, toolsets_of
from toolcrib.loading.document_checks import DocumentChecker, hidden_problems, valid_parts
from toolcrib.loading.documents.document import (
    Content,
    Document,
    parse_content,
    read_documents,
    single_document,
)
from toolcrib.loading.documents.files import pack_file
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.prompts import Prompt, check_prompts, prompts_of
from toolcrib.loading.snapshot import log_problems
from toolcrib.loading.stores import parse_document_fixture, with_refused_names
from toolcrib.registry.names import full_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

_CONDITION = r"(~=|==|!=|>=|<=|>|<) *[0-9][0-9A-Za-z.*+-]*"
_FORM = re.compile(rf" *{_CONDITION}( *, *{_CONDITION})* *")
"""A subset of PEP 440: no `===` (it compares strings), no epochs, and at least one condition."""

_BARE = re.compile(r"\s*[\^~vV=]?\s*v?(\d+)((?:\.\d+)*)[\w.+-]*\s*")


def check_range(text: str, pointer: str = "") -> list[Problem]:
    """The problems of a version range.

    Args:
        text: Conditions separated by commas, all of which must hold: `>=1.2,<2`, `==1.4.*`, `!=1.3.0`, `~=1.2`.
        pointer: JSON Pointer of the range in its document.
    """
    if _range(text) is not None:
        return []
    message = f"`{excerpt(text)}` is not a valid version range"
    return [Problem(code="wrong_form", message=message, pointer=pointer, hint=_instead(text))]


def version_mismatch(version: str, wanted: str) -> str:
    """Why a version is not in a range, as the predicate of a sentence; empty if it is.

    Raises:
        ValueError: `wanted` is not a valid range; `check_range` returns a better message.
    """
    found = _version(version)
    if found is None:
        return f"has version `{excerpt(version)}`, which cannot be compared; pre-releases end with `-a.1`, `-b.1`, `-rc.1` or `-dev.1`"
    conditions = _range(wanted)
    if conditions is None:
        raise ValueError(f"`{excerpt(wanted)}` is not a valid version range")
    # PEP 440 excludes pre-releases by default, to protect installers. A pack in the folder was put there on purpose.
    fits = conditions.contains(found, prereleases=True)
    return "" if fits else f"has version {version}"


def _range(text: str) -> SpecifierSet | None:
    if not _FORM.fullmatch(text):
        return None
    # Few packs need others, and importing `packaging` costs more time than a whole warm start.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def _version(text: str) -> Version | None:
    """Parse a semantic version; None if PEP 440 has no version with the same place in the order."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        version = Version(text)
    except InvalidVersion:
        return None
    # `1.0.0-1` comes before 1.0.0 in semantic versioning, and after it in PEP 440.
    return version if version.is_prerelease is ("-" in text.partition("+")[0]) else None


def _instead(text: str) -> str:
    """The hint for an invalid range: the range that was most likely meant."""
    # Users of npm and Cargo write `^1.2` or `1.2` for what is `>=1.2,<2` here.
    bare = _BARE.fullmatch(text)
    if bare is None:
        return "separate conditions with commas: `>=1.2,<2`"
    return f"write `>={bare[1]}{bare[2]},<{int(bare[1]) + 1}`, or `=={bare[1]}{bare[2]}` for exactly this version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The content of `pack.yaml`.

    Attributes:
        name: Name of the pack.
        version: Semantic version.
        description: Its purpose.
        author: Its author.
        licence: SPDX identifier.
        tools: Globs of its descriptor files, relative to the pack.
        scenarios: Globs of its scenario files, relative to the pack.
        namespace: Prefix of its tools' names, without `__`; empty for none.
        toolsets: Named selections of its tools, in document order; globs over the names without namespace.
        prompts: Name -> prompt, in document order; globs as in `toolsets`.
        defaults: Key of a descriptor -> value as documents write it, for descriptors that do not set the key.
        requires: `toolcrib` -> accepted versions, `packs` -> name of a pack -> accepted versions; `commands`,
            `environment`, `files`, `hosts`, `keyring`, `network`, `paths`, `python` -> what its tools use.
        metadata: Additional information.
        fixture: The initial contents of the store of its tools.
        faults: The problems of the fixture, which do not reject the pack.
        origin: Its source.
    """

    name: str
    version: str
    description: str = ""
    author: str = ""
    licence: str = ""
    tools: tuple[str, ...] = ("**",)
    scenarios: tuple[str, ...] = ("**",)
    namespace: str = ""
    toolsets: tuple[Toolset, ...] = ()
    prompts: Mapping[str, Prompt] = field(default_factory=lambda: NOTHING)
    defaults: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    requires: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    metadata: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    fixture: Fixture = NO_FIXTURE
    faults: tuple[Problem, ...] = ()
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def parse(cls, name: str, content: Content, *, kinds: Kinds) -> Pack:
        """Parse a pack from the text of its `pack.yaml`, or from an equivalent mapping.

        Args:
            name: Name of the text in problems; it is read as JSON if the name ends in `.json`.
            content: YAML or JSON, or one document as a mapping.
            kinds: The schemas of the modes' blocks (`toolcrib.Executors.installed()`).

        Raises:
            DocumentError: The pack has an error. Warnings are logged.
        """
        pack, problems = parse_pack_file(name, *parse_content(name, content), DocumentChecker("pack", kinds))
        problems += pack.faults if pack is not None else ()
        if pack is None or any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        log_problems(problems)
        return pack

    def toolsets_within(self, namespace: str) -> tuple[Toolset, ...]:
        """Its toolsets, with globs over the full names of its tools within a namespace."""
        return tuple(
            toolset._replace(tools=tuple(full_name(namespace, glob) for glob in toolset.tools))
            for toolset in self.toolsets
        )

    def holds_tools(self, path: str) -> bool:
        """Whether a file (relative to the pack, with `/`) can contain tools of the pack."""
        return any(matches_glob(path, glob) for glob in self.tools)

    def holds_scenarios(self, path: str) -> bool:
        """Whether a file (relative to the pack, with `/`) can contain scenarios of the pack."""
        return any(matches_glob(path, glob) for glob in self.scenarios)


def matches_glob(path: str, glob: str) -> bool:
    """Whether a path matches a glob: `*` stays within a folder, `**` matches across folders."""
    # A set of states instead of backtracking: several `**` in a hostile glob would make that exponential.
    globs = glob.split("/")
    reached = _past_stars({0}, globs)
    for part in path.split("/"):
        # A `**` stays reached, because it may match any number of further folders.
        going_on = {at for at in reached if at < len(globs) and globs[at] == "**"}
        passed = {at + 1 for at in reached - going_on if at < len(globs) and fnmatchcase(part, globs[at])}
        reached = _past_stars(going_on | passed, globs)
    return len(globs) in reached


def _past_stars(reached: set[int], globs: list[str]) -> set[int]:
    """The reached positions in a glob, and those after a `**` that matches no folder."""
    for at, glob in enumerate(globs):
        if at in reached and glob == "**":
            reached = reached | {at + 1}
    return reached


def parse_pack_file(
    source: str,
    documents: Sequence[Document],
    problems: Sequence[Problem],
    shape: DocumentChecker,
    files: Files | None = None,
) -> tuple[Pack | None, list[Problem]]:
    """Parse a pack file; return the pack and the problems of the file, without the pack's own `faults`.

    Args:
        source: The file, as the user named it.
        documents: The documents in it.
        problems: The problems of its text.
        shape: The pack schema, compiled.
        files: The files that it may name; None for text from memory.
    """
    document, told = single_document(source, documents, problems, "pack", _FIRST)
    pack, faults = parse_pack(document, shape, files) if document is not None else (None, [])
    return pack, told + faults


def parse_readable_part(
    source: str, documents: Sequence[Document], shape: DocumentChecker, files: Files | None = None
) -> Pack:
    """The readable part of a rejected pack: its name, namespace, globs, defaults and store.

    Its files are checked with it, so that they show no problems that disappear when the pack is fixed.
    """
    said: dict[str, Any] = {"name": "", "version": ""}
    if documents:
        value, faults = shape.check(documents[0])
        if isinstance(value, dict):
            whole = valid_parts(value, faults, shape)
            said |= {key: whole[key] for key in ("name", "version", "namespace", "defaults") if key in whole}
            said |= {key: tuple(whole[key]) for key in ("tools", "scenarios") if key in whole}
            if any(check_defaults(said, "")):
                del said["defaults"]
            kept: dict[str, Any] = {
                key: whole[key] for key in ("store", "state", "let", "define") if key in whole
            }
            origin = Origin(source=source, pack=said["name"], files=files, locate=documents[0].position)
            fixture, wrong = parse_document_fixture(kept, origin, said["name"], documents[0])
            said |= {"fixture": with_refused_names(fixture, value, said["name"]), "faults": wrong}
    return Pack(**said, origin=Origin(source=source, pack=said["name"]))


def valid_pack_part(document: Document, shape: DocumentChecker) -> Pack:
    """The pack with its valid parts only; it must have a name."""
    value, faults = shape.check(document)
    whole: dict[str, Any] = (
        {"version": "0.0.0", **valid_parts(value, faults, shape)} if isinstance(value, dict) else {}
    )
    whole = valid_parts(whole, [*check_prompts(whole.get("prompts", {}))], shape)
    pack, _told = parse_pack(document.moved(whole, {}), shape)
    return pack or Pack(name=whole["name"], version=whole["version"], origin=Origin(source=document.source))


_FIRST = "write `name: my-pack` and `version: 1.0.0`"


def parse_pack(
    document: Document, shape: DocumentChecker, files: Files | None = None
) -> tuple[Pack | None, list[Problem]]:
    """Parse `pack.yaml`; return the pack, or None if it is rejected, and all problems with their positions."""
    value, faults = shape.check(document)
    if isinstance(value, dict):
        faults = [
            *map(_of_later, faults),
            *_check_pack(valid_parts(value, faults, shape)),
            *hidden_problems(value),
        ]
    problems = [document.place(problem) for problem in faults]
    if not isinstance(value, dict) or any(problem.severity == "error" for problem in problems):
        return None, problems
    said: dict[str, Any] = value
    plain: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item
        for key, item in said.items()
        if key not in _READ_APART
    }
    origin = Origin(
        source=document.source,
        line=document.line,
        digest=hashlib.sha256(canonical(value).encode("utf-8")).hexdigest(),
        pack=said["name"],
        locate=document.position,
    )
    fixture, wrong = parse_document_fixture(said, origin._replace(files=files), said["name"], document)
    plain |= {"toolsets": toolsets_of(said, origin), "prompts": prompts_of(said, origin)}
    plain |= {"fixture": fixture, "faults": wrong}
    return Pack(**plain, origin=origin), problems


_READ_APART = frozenset({"$schema", "define", "let", "state", "store"})
"""Keys that are not fields of `Pack`."""


def _check_pack(said: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of a pack that its schema cannot find."""
    yield from check_names(said, ("toolsets",))
    yield from check_toolsets(said.get("toolsets", {}))
    yield from check_prompts(said.get("prompts", {}))
    yield from check_defaults(said, "")
    needs = said.get("requires", {})
    if "toolcrib" in needs:
        yield from check_range(needs["toolcrib"], "/requires/toolcrib")
    for name, wanted in needs.get("packs", {}).items():
        pointer = f"/requires/packs/{pointer_step(name)}"
        if not _PACK_NAME.fullmatch(name):
            message = f"`{excerpt(name)}` is not a valid pack name"
            hint = "use at most 64 lower-case letters, digits or `-`, starting with a letter"
            yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)
        yield from check_range(wanted, pointer)


_PACK_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")

_LATER_NEEDS = frozenset({"extras"})
"""Keys of `requires` that are reserved and have no effect yet."""


def _of_later(fault: Problem) -> Problem:
    """Report a reserved key of `requires` as not supported yet, instead of as an unknown key."""
    name = fault.pointer.removeprefix("/requires/")
    if fault.code != "unknown_key" or name not in _LATER_NEEDS:
        return fault
    hint = "remove it; a key without effect is refused rather than ignored"
    return fault._replace(code="not_supported_yet", message=f"`{name}` is not supported yet", hint=hint)


def duplicate_pack(first: Pack, second: Pack) -> Problem:
    """The problem of the second pack of one name, which is rejected with its tools and scenarios."""
    place = first.origin.place("/name")
    message = (
        f"duplicate pack `{second.name}`, already loaded from {place}; this one is skipped with its tools"
    )
    problem = Problem(
        code="duplicate_pack", message=message, pointer="/name", hint="rename one of them, or load only one"
    )
    return problem.at(second.origin.source, *second.origin.locate("/name"))


def second_pack_file(source: str, first: str | Path | None) -> Problem:
    """The problem of a folder with two pack files."""
    message = f"the folder has two pack files; `{Path(first or '').name}` is used and this one is ignored"
    problem = Problem(code="second_pack_file", message=message, hint="remove one of them", severity="warning")
    return problem.at(source, 1, 1)


GROUP = "toolcrib.packs"
"""The entry-point group in which distributions register packs."""


class InstalledPack(NamedTuple):
    """A pack of an installed distribution.

    Attributes:
        name: Name of the pack.
        distribution: Name of the distribution.
        version: Version of the distribution; the pack has its own version in `pack.yaml`.
        path: The folder of the pack; None if it cannot be found.
        problems: Why it cannot be found.
    """

    name: str
    distribution: str
    version: str
    path: Path | None
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return f"distribution {self.distribution} {self.version}".rstrip()


def installed_packs() -> Mapping[str, InstalledPack]:
    """All installed packs by name, sorted. A pack that several distributions provide has a problem and no path."""
    # Deferred: `importlib.metadata` is slow to import, and most projects use no installed packs.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found: dict[str, list[InstalledPack]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(_offered(point))
    return {name: _only(sorted(found[name], key=str)) for name in sorted(found)}


def find_installed(name: str, versions: str = "") -> tuple[Path | None, list[Problem]]:
    """The folder of an installed pack in an accepted version.

    Args:
        name: Name of the pack.
        versions: Accepted versions of the pack: `>=1.2,<2`; empty for any.

    Returns:
        The folder, or None if there is no such pack; and all problems, without positions.
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
    # A namespace package can have several folders, of which one contains the pack.
    path = next((folder for folder in folders if pack_file(folder) is not None), None)
    if path is not None:
        return pack._replace(path=path)
    fault = fault or f"the package `{point.value}` contains no `pack.yaml`"
    message = f"{pack} provides pack `{point.name}`, but {fault}"
    hint = f'the entry point in group `{GROUP}` must name a package that contains `pack.yaml`: `my-pack = "my_package.my_pack"`'
    return pack._replace(problems=(Problem(code="unknown_pack", message=message, hint=hint),))


def _folders(point: EntryPoint) -> tuple[list[Path], str]:
    """The folders of an entry point's package, or the reason why it cannot be found."""
    parts = point.value.split(".")
    if not all(part.isidentifier() for part in parts):
        return [], f"`{excerpt(point.value)}` is not a valid package name"
    within: list[str] | None = None
    for at, part in enumerate(parts):
        name = ".".join(parts[: at + 1])
        spec = _outer_spec(part) if within is None else PathFinder.find_spec(part, within)
        if spec is None:
            return [], f"the package `{name}` was not found"
        if spec.submodule_search_locations is None:
            return [], f"`{name}` is a module, not a package"
        within = list(spec.submodule_search_locations)
    return [Path(folder) for folder in within or ()], ""


def _outer_spec(name: str) -> ModuleSpec | None:
    """Find a top-level package without importing it."""
    # `importlib.util.find_spec("a.b")` imports `a`, and listing packs must not run code of distributions.
    finders: Iterable[Any] = sys.meta_path
    specs = (finder.find_spec(name, None) for finder in finders if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _only(packs: Sequence[InstalledPack]) -> InstalledPack:
    if len(packs) == 1:
        return packs[0]
    message = f"pack `{packs[0].name}` is provided by {' and by '.join(map(str, packs))}"
    problem = Problem(code="duplicate_pack", message=message, hint="uninstall all but one of them")
    # Choosing one silently would depend on the order of `sys.path`.
    return packs[0]._replace(path=None, problems=(problem,))


def _unknown(name: str, known: Iterable[str]) -> Problem:
    there = ", ".join(f"`{each}`" for each in known)
    listed = f"installed packs: {there}" if there else "install the distribution that provides it with pip"
    message = f"no installed distribution provides pack `{excerpt(name)}`"
    return Problem(code="unknown_pack", message=message, hint=did_you_mean(name, known) or listed)


def _check_name(pack: InstalledPack, path: Path) -> Iterator[Problem]:
    own = _said(path, "name")
    if own not in {None, pack.name}:
        message = (
            f"{pack} provides pack `{pack.name}`, but its `pack.yaml` has the name `{excerpt(str(own))}`"
        )
        hint = f"ask its author to name the entry point in group `{GROUP}` after the pack"
        yield Problem(code="unknown_pack", message=message, hint=hint)


def _check_version(pack: InstalledPack, path: Path, versions: str) -> Iterator[Problem]:
    faults = check_range(versions) if versions else []
    yield from faults
    # Reads the pack file only if the project asks for a version.
    own = _said(path, "version") if versions and not faults else None
    if isinstance(own, str) and (why := version_mismatch(own, versions)):
        message = f"pack `{pack.name}` {versions} is required, but the one from {pack} {why}"
        hint = f"install another version of `{pack.distribution}`, or widen the range"
        yield Problem(code="version_mismatch", message=message, hint=hint)


def _said(path: Path, key: str) -> object:
    """The value of a key of the pack file; None if the file is unreadable, which loading the pack reports in full."""
    file = pack_file(path)
    documents = read_documents(file, str(file))[0] if file is not None else []
    value = documents[0].value if documents else None
    return value.get(key) if isinstance(value, dict) else None


Refused: TypeAlias = Mapping[str, tuple[str, Problem]]
"""Pack file that was rejected -> name of the pack, empty if unreadable, and its first problem."""


def check_requirements(
    packs: Sequence[Pack],
    refused: Refused = NOTHING,
    *,
    version: str = __version__,
) -> list[Problem]:
    """The problems of unmet requirements, each positioned at the requirement.

    A pack with a missing dependency still loads its tools.

    Args:
        packs: All packs that were loaded.
        refused: Pack file that was rejected -> name of the pack, if readable, and its first problem.
        version: The version of toolcrib.
    """
    if not any(pack.requires for pack in packs):
        return []
    there = {pack.name: pack for pack in packs}
    problems = [problem for pack in packs for problem in _unmet(pack, there, refused, version)]
    return problems + list(_circles(there))


def _unmet(pack: Pack, there: Mapping[str, Pack], refused: Refused, version: str) -> Iterator[Problem]:
    wanted = pack.requires.get("toolcrib", "")
    if wanted and (why := version_mismatch(version, wanted)):
        message = f"pack `{pack.name}` needs toolcrib {wanted}, but this one {why}"
        hint = f"`pip install 'toolcrib{wanted}'`, or use a version of the pack that supports this toolcrib"
        yield _placed(pack, Problem(code="version_mismatch", message=message, pointer=_TOOLCRIB, hint=hint))
    for name, wanted in _needed(pack).items():
        found = there.get(name)
        if found is None:
            yield _placed(pack, _absent(pack, name, wanted, there, refused))
        elif why := version_mismatch(found.version, wanted):
            place = found.origin.place("/version")
            message = f"pack `{pack.name}` needs `{name}` {wanted}, but the one in {place} {why}"
            hint = f"replace it with an accepted version of `{name}`, or widen the range"
            yield _placed(
                pack, Problem(code="version_mismatch", message=message, pointer=_pointer(name), hint=hint)
            )


_TOOLCRIB = "/requires/toolcrib"


def _absent(pack: Pack, name: str, wanted: str, there: Mapping[str, Pack], refused: Refused) -> Problem:
    why = next((problem for known, problem in refused.values() if known == name), None)
    if why is not None:
        message = f"pack `{pack.name}` needs pack `{name}` {wanted}, which was rejected: {why.code} in {why.source}:{why.line}"
        return Problem(
            code="refused_pack",
            message=message,
            pointer=_pointer(name),
            hint="fix the file of that pack first",
            cause=f"{why.source}:{why.line}",
        )
    message = f"pack `{pack.name}` needs pack `{name}` {wanted}, which is not loaded"
    others = [known for known in there if known != pack.name]
    near = did_you_mean(name, others)
    listed = (
        f"; other packs: {', '.join(f'`{known}`' for known in others[:_LISTED])}"
        if others and not near
        else ""
    )
    unread = [file for file, (known, _problem) in refused.items() if not known]
    if unread and not near:
        near = f"{', '.join(unread[:_LISTED])} has no readable name; fix it first if it is this pack"
    hint = f"{near or 'add it to `sources` in `toolcrib.yaml`, or load it with `--pack`'}{listed}"
    return Problem(code="unknown_pack", message=message, pointer=_pointer(name), hint=hint)


_LISTED = 10
"""Maximum number of packs that a hint lists."""


def _circles(there: Mapping[str, Pack]) -> Iterator[Problem]:
    """A problem for each circular dependency, at one of its requirements."""
    # An explicit stack: a chain of a thousand packs would exceed the recursion limit.
    done: set[str] = set()
    for start in there:
        path: list[str] = []
        left = [iter([start])]
        while left:
            name = next(left[-1], None)
            if name is None:
                left.pop()
                done.update(path[-1:])
                del path[-1:]
            elif name in path:
                yield _circle(there, [*path[path.index(name) :], name])
            elif name in there and name not in done:
                path.append(name)
                left.append(iter(_needed(there[name])))


def _circle(there: Mapping[str, Pack], names: Sequence[str]) -> Problem:
    circle = " needs ".join(f"`{name}`" for name in names)
    last = there[names[-2]]
    message = (
        f"circular pack dependency: {circle}" if len(names) > 2 else f"the pack depends on itself: {circle}"
    )
    hint = "remove one of these dependencies, or move the shared parts into another pack"
    problem = Problem(code="endless_requires", message=message, pointer=_pointer(names[-1]), hint=hint)
    return _placed(last, problem)


def _needed(pack: Pack) -> Mapping[str, str]:
    """Name of a needed pack -> versions that will do."""
    found: Mapping[str, str] = pack.requires.get("packs", {})
    return found


def _pointer(name: str) -> str:
    return f"/requires/packs/{pointer_step(name)}"


def _placed(pack: Pack, problem: Problem) -> Problem:
    return problem.at(pack.origin.source, *pack.origin.locate(problem.pointer))
