"""Documents that are laid over others: `override: true` changes keys of a tool that comes from elsewhere.

Each top-level key that the upper document writes takes the place of that key, whole. Paths within it are relative
to the upper document; those within any other key to the document below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.protocols import Files
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.files import CachedFiles, files_at


def is_override(value: JSON) -> bool:
    """Whether a document means to be laid over another one."""
    return isinstance(value, dict) and value.get("override") is True and isinstance(value.get("name"), str)


@dataclass(frozen=True, slots=True)
class OverlaidDocument(Document):
    """Two documents as one. Each part of the value knows in which of the files it stands.

    Attributes:
        upper: The document that is laid over the other; it gives the file and line.
        lower: The document below.
    """

    upper: Document | None = None
    lower: Document | None = None

    def _owner(self, pointer: str) -> Document:
        upper, lower = self.upper, self.lower
        assert upper is not None  # noqa: S101 -- both are always given; the fields only follow others with defaults
        assert lower is not None  # noqa: S101
        key = next(iter(keys_of(pointer)), None)
        within = isinstance(upper.value, dict) and (key is None or key in upper.value)
        return upper if within else lower

    def position(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """1-based line and column, in whichever file the part stands."""
        return self._owner(pointer).position(pointer, key=key)

    def place(self, problem: Problem) -> Problem:
        """The problem in the file where the part stands; what was good without the override names it."""
        owner = self._owner(problem.pointer)
        if owner is self.upper:
            return owner.place(problem)
        told = f"`{self.source}:{self.line}` overrides other keys of this tool"
        return owner.place(problem._replace(hint=f"{problem.hint}; {told}" if problem.hint else told))

    def written(self, pointer: str) -> str | None:
        """The characters of a YAML scalar without quotes."""
        return self._owner(pointer).written(pointer)

    def below(self) -> dict[str, str]:
        """The top-level keys that the upper document leaves as they are -> `file:line` of where they are written."""
        keys = self.value.keys() if isinstance(self.value, dict) else ()
        owners = {key: self._owner(f"/{pointer_step(key)}") for key in keys}
        return {key: _place(owner, key) for key, owner in owners.items() if owner is self.lower}


def _place(document: Document, key: str) -> str:
    if isinstance(document, OverlaidDocument):
        known = document.below().get(key)
        if known is not None:
            return known
    return f"{document.source}:{document.position(f'/{pointer_step(key)}')[0]}"


def lay_over(upper: Document, lower: Document) -> OverlaidDocument:
    """The document that comes of laying one over another; the upper one gives the file and line."""
    below = lower.value if isinstance(lower.value, dict) else {}
    above = upper.value if isinstance(upper.value, dict) else {}
    value: JSON = {**below, **{key: item for key, item in above.items() if key != "override"}}
    return OverlaidDocument(
        source=upper.source, index=upper.index, line=upper.line, value=value, upper=upper, lower=lower
    )


@dataclass(frozen=True, slots=True)
class OverlaidFiles:
    """The files beside two documents, one laid over the other.

    Attributes:
        upper: The files beside the upper document.
        lower: Those beside the lower one.
        keys: The top-level keys that the upper document writes.
    """

    upper: Files
    lower: Files
    keys: frozenset[str]

    def of(self, pointer: str) -> Files:
        """The files beside the document that wrote a place."""
        key = next(iter(keys_of(pointer)), None)
        return self.upper if key in self.keys else files_at(self.lower, pointer)

    def read(self, name: str) -> bytes:
        """The content of a file for a reader that does not say which place names it: of the upper, else of the lower.

        Raises:
            OSError: Neither has it, or it may not be read.
        """
        try:
            return self.upper.read(name)
        except (
            FileNotFoundError,
            PermissionError,
        ):  # a path may lead out of the upper folder, and not of the lower
            return self.lower.read(name)


def files_of(upper: Files | None, lower: Files | None, above: Document) -> Files | None:
    """The files that a document which is laid over another may name; `above` is the upper one."""
    if upper is None or lower is None:
        return upper or lower
    keys = frozenset(above.value) if isinstance(above.value, dict) else frozenset()
    return OverlaidFiles(upper, lower, keys)


def kept_files(files: Files | None) -> tuple[Files | None, tuple[CachedFiles, ...]]:
    """The files, so that what is read is kept, and what keeps it: one for each of the documents, the upper one first."""
    if files is None:
        return None, ()
    if isinstance(files, OverlaidFiles):
        upper, above = kept_files(files.upper)
        lower, below = kept_files(files.lower)
        assert upper is not None  # noqa: S101 -- both are always given
        assert lower is not None  # noqa: S101
        return OverlaidFiles(upper, lower, files.keys), above + below
    kept = CachedFiles(files)
    return kept, (kept,)


def nothing_below(
    document: Document, name: str, names: Iterable[str], refused: Mapping[str, Problem]
) -> Problem:
    """The problem of an override without a tool that it could be laid over.

    Args:
        document: The override.
        name: The name that it has.
        names: Those of all tools.
        refused: Name of a tool whose document was refused -> why.
    """
    message = f"there is no tool `{name}` that this could override"
    hint = did_you_mean(name, [*names, *refused]) or "leave `override` out to write a tool of its own"
    if name in refused:
        message += ": its document was refused"
        hint = f"put right what is wrong in {refused[name].source}:{refused[name].line}"
    return document.place(Problem(code="nothing_to_override", message=message, pointer="/name", hint=hint))


def overrides_of(document: Document) -> tuple[str, ...]:
    """`file:line` of each document that a document is laid over already, the nearest first."""
    lower = getattr(document, "lower", None)
    return () if lower is None else (f"{lower.source}:{lower.line}", *overrides_of(lower))


def each_changed_once(tools: Sequence[Descriptor], changed: Mapping[str, Descriptor]) -> list[Descriptor]:
    """The tools, the first of a name that was overridden as it is now; a second one stays for the report."""
    left = dict(changed)
    return [left.pop(tool.name, tool) for tool in tools]
