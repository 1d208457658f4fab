"""Compare a server with its lock, and classify the changes for callers and for models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, NOTHING, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.subschemas import NAMED, is_schema
from toolcrib.core.text import canonical, compact
from toolcrib.schema.compatibility import EFFORT, incompatibilities
from toolcrib.schema.constraints import Reason
from toolcrib.security.hidden_characters import HiddenCharacter, hidden_in, is_ordinary_name, spell_out_hidden
from toolcrib.servers.lock import HASHED, LockedServer, endpoint_of, unlockable_tools

__all__ = [
    "ABSENT",
    "KINDS",
    "MOST_LINES",
    "Absent",
    "Breach",
    "DiffLine",
    "Kind",
    "LockDifference",
    "ServerReview",
    "SetDifference",
    "Sign",
    "ToolChange",
    "Value",
    "compare",
    "compare_sets",
    "differences",
    "endpoint_differences",
    "is_read_by_models",
    "render_lines",
    "review",
    "review_endpoint",
]


class Absent:
    """The type of `ABSENT`, a missing value."""

    # Not None, which is a valid JSON value, as in `default: null`.

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

Value: TypeAlias = "JSON | Absent"

Sign: TypeAlias = Literal["-", "+", "~", " "]

MOST_LINES: Final = 60
"""Maximum number of lines per tool; the others are counted in one more line."""

_WIDEST: Final = 240
"""Maximum length of a displayed value in characters."""

# `SequenceMatcher` needs quadratic time.
_WORDS: Final = 600
"""Maximum number of words and spaces to compare one by one, without the common start and end of the texts."""

_CONTEXT: Final = 4
"""Number of unchanged words to display on each side of a change."""

# Well below Python's recursion limit.
_DEEPEST: Final = 100
"""Depth below which values are compared as a whole."""

_TEXTS: Final = frozenset(("title", "description", "$comment", "default", "examples", "deprecated"))
"""Keywords of a schema that refuse no value; a model reads their values."""

_SETS: Final = frozenset(("required", "enum", "type"))
"""Keywords whose lists are compared by their members, not by index."""

# Without a space it may be a name, a format or a pattern; a sentence has several words.
_PROSE: Final = re.compile(r"\S\s+\S")


class LockDifference(NamedTuple):
    """A place where two definitions differ.

    Attributes:
        path: Keys and indexes from the root of the definition.
        before: The old value; `ABSENT` for none.
        after: The new value; `ABSENT` for none.
        is_text: Whether the value is only read, and validates nothing.
    """

    path: tuple[str | int, ...]
    before: Value
    after: Value
    is_text: bool = False

    @property
    def place(self) -> str:
        """The place as text: `description`, `inputSchema /properties/days/maximum`."""
        part, *rest = self.path
        return f"{part} {pointer_to(rest)}" if rest else str(part)


class DiffLine(NamedTuple):
    """One line of a diff.

    Attributes:
        sign: `-` removed, `+` added, `~` changed, a space for the place of the change.
        text: The text without the sign. Terminal controls and hidden characters are escaped.
    """

    sign: Sign
    text: str


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[LockDifference]:
    """Yield the innermost places where the hashed parts of two definitions differ."""
    for key in HASHED:
        text = key in {"title", "description"}
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=text, names=False)


def endpoint_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[LockDifference]:
    """Yield the places where two endpoints differ: `command`, `args /0` ..."""
    for key in {**before, **after}:
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=False, names=True)


def _between(
    before: Value, after: Value, path: tuple[str | int, ...], *, text: bool, names: bool
) -> Iterator[LockDifference]:
    """Yield the differences at and below a place.

    Args:
        before: The old value.
        after: The new value.
        path: The place.
        text: Whether the whole value is only read.
        names: Whether the keys of the object are names, such as those of properties, and not keywords.
    """
    if _same(before, after):
        return
    nested = len(path) < _DEEPEST
    if nested and isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            # `description` may be the name of a property, and `title` a key within a `default`.
            told = text or (not names and key in _TEXTS and path[0] != "name")
            here = (*path, key)
            inner = not names and not told and key in NAMED
            yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), here, text=told, names=inner)
    elif (
        nested
        and isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
        and path[-1] not in _SETS
    ):
        # Only for equal lengths: after an insertion, every later index would differ.
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _between(old, new, (*path, at), text=text, names=False)
    else:
        yield LockDifference(path, before, after, text)


def _same(before: Value, after: Value) -> bool:
    if isinstance(before, Absent) or isinstance(after, Absent):
        return before is after
    # Not `==`: in Python, `True == 1`.
    return canonical(before) == canonical(after)


def is_read_by_models(difference: LockDifference) -> bool:
    """Whether a model reads a changed text: one that is only read, or prose within another value."""
    if difference.is_text:
        return True
    words = {*_texts_of(difference.before)} ^ {*_texts_of(difference.after)}
    return any(_PROSE.search(text) for text in words)


def _texts_of(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)


def render_lines(found: Iterable[LockDifference]) -> Iterator[DiffLine]:
    """Render differences as at most `MOST_LINES` lines, and one more with the number of omitted lines."""
    lines = [line for each in found for line in _lines(each)]
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield DiffLine(" ", f"... and {len(lines) - MOST_LINES} more lines")


def _lines(each: LockDifference) -> Iterator[DiffLine]:
    before, after, place = each.before, each.after, spell_out_hidden(each.place)
    if isinstance(before, str) and isinstance(after, str) and (_PROSE.search(before) or _PROSE.search(after)):
        yield DiffLine(" ", place)
        yield from _words(before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _members(before, after, place)
    elif isinstance(before, Absent):
        yield DiffLine("+", f"{place}: {_shown(after)}")
    elif isinstance(after, Absent):
        yield DiffLine("-", f"{place}: {_shown(before)}")
    else:
        yield DiffLine("~", f"{place}: {_shown(before)} -> {_shown(after)}")


def _members(before: list[JSON], after: list[JSON], place: str) -> Iterator[DiffLine]:
    """Yield the removed and added items of a list, or both lists if they have the same items."""
    old, new = {canonical(each) for each in before}, {canonical(each) for each in after}
    if old == new:
        yield DiffLine("~", f"{place}: {_shown(before)} -> {_shown(after)}")
    yield from (DiffLine("-", f"{place}: {_shown(each)}") for each in before if canonical(each) not in new)
    yield from (DiffLine("+", f"{place}: {_shown(each)}") for each in after if canonical(each) not in old)


def _shown(value: Value) -> str:
    # Server text could contain terminal controls, or characters that hide an instruction from a reviewer.
    return "" if isinstance(value, Absent) else _cut(spell_out_hidden(compact(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _words(before: str, after: str) -> Iterator[DiffLine]:
    """Yield the removed and added words of a text with some context."""
    # Whitespace counts as words, so that a change of it is visible; this is why `_CONTEXT` is doubled.
    old, new = re.findall(r"\s+|\S+", before), re.findall(r"\s+|\S+", after)
    start = _common(old, new)
    # Without the common start, so that a repeated word is not counted at both ends.
    end = _common(old[start:][::-1], new[start:][::-1])
    middle, other = old[start : len(old) - end], new[start : len(new) - end]
    if len(middle) + len(other) > _WORDS:
        yield _hunk("-", old, start, len(old) - end)
        yield _hunk("+", new, start, len(new) - end)
        return
    # With `autojunk`, spaces and frequent words would be ignored in texts of 200 words or more.
    matcher = SequenceMatcher(None, middle, other, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT * 2):
        changed = [opcode for opcode in group if opcode[0] != "equal"]
        gone = any(begin < stop for _, begin, stop, _, _ in changed)
        come = any(begin < stop for _, _, _, begin, stop in changed)
        if gone:
            yield _hunk("-", old, start + changed[0][1], start + changed[-1][2])
        if come:
            yield _hunk("+", new, start + changed[0][3], start + changed[-1][4])


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal words at the start of two texts."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _hunk(sign: Sign, words: Sequence[str], begin: int, end: int) -> DiffLine:
    """Render changed words in brackets, with their context, on one line."""
    while begin < end - 1 and words[begin].isspace():
        begin += 1
    while end > begin + 1 and words[end - 1].isspace():
        end -= 1
    lead, trail = words[max(begin - 2 * _CONTEXT, 0) : begin], words[end : end + 2 * _CONTEXT]
    changed = _cut(_flat(words[begin:end]))
    before = "… " if begin > 2 * _CONTEXT else ""
    after = " …" if end + 2 * _CONTEXT < len(words) else ""
    return DiffLine(sign, f"{before}{_flat(lead).lstrip()}[{changed}]{_flat(trail).rstrip()}{after}")


def _flat(words: Sequence[str]) -> str:
    return spell_out_hidden("".join(words)).replace("\n", "\\n").replace("\t", "\\t")


Kind: TypeAlias = Literal["compatible", "breaking", "prompt-affecting"]

KINDS: Final[tuple[Kind, ...]] = ("breaking", "compatible", "prompt-affecting")
"""Kinds of changes.

`compatible`: existing calls stay valid, and results keep their form. `breaking`: this cannot be proved.
`prompt-affecting`: a model reads a changed text; this kind may occur together with one of the others.
"""

_DEFAULTS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""Defaults of the hints (MCP 2025-11-25, `ToolAnnotations`)."""


class Breach(NamedTuple):
    """One reason why a change is breaking.

    Attributes:
        part: The key of the definition: `inputSchema`, `outputSchema`, `annotations`.
        pointer: JSON Pointer within that part: in the old schema for results, in the new one for arguments.
        why: The consequence for callers, or for readers of the results.
    """

    part: str
    pointer: str
    why: str

    def __str__(self) -> str:
        place = f"{self.part} {self.pointer}" if self.pointer else self.part
        return f"{place}: {self.why}"


class ToolChange(NamedTuple):
    """The change of one tool.

    Attributes:
        verdicts: Kinds of the change, in the order of `KINDS`; empty if no hashed part changed.
        differences: All differences.
        breaches: Reasons why the change is breaking; empty if it is not.
    """

    verdicts: tuple[Kind, ...]
    differences: tuple[LockDifference, ...]
    breaches: tuple[Breach, ...] = ()


def compare(before: Mapping[str, Any], after: Mapping[str, Any], effort: int = EFFORT) -> ToolChange:
    """Compare two definitions of one tool.

    Args:
        before: The old definition, with the keys of MCP: `description`, `inputSchema`, `annotations` ...
        after: The new definition.
        effort: Maximum number of facts to examine per schema; see `incompatibilities`.
    """
    # Valid arguments must stay valid, so an input schema may only accept more. Results must stay within what
    # readers know, so an output schema may only allow less.
    found = tuple(differences(before, after))
    breaches = (
        *_of_arguments(_schema(before, "inputSchema"), _schema(after, "inputSchema"), effort),
        *_of_results(_schema(before, "outputSchema"), _schema(after, "outputSchema"), effort),
        *_of_annotations(before.get("annotations"), after.get("annotations")),
    )
    kinds: set[Kind] = {"breaking"} if breaches else set()
    for each in found:
        if is_read_by_models(each):
            kinds.add("prompt-affecting")
        if not breaches and not each.is_text:
            kinds.add("compatible")
    return ToolChange(tuple(kind for kind in KINDS if kind in kinds), found, breaches)


def _schema(definition: Mapping[str, Any], key: str) -> Schema:
    schema = definition.get(key)
    # A missing schema allows everything, as `true` does.
    return schema if is_schema(schema) else True


def _of_arguments(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
    for reason in incompatibilities(before, after, effort):
        yield Breach("inputSchema", pointer_to(reason.path), _why(reason, _FOR_CALLERS))


def _of_results(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
    # The other way round than for arguments: readers must know every value that the new schema allows.
    for reason in incompatibilities(after, before, effort):
        yield Breach("outputSchema", pointer_to(reason.path), _why(reason, _FOR_READERS))


_VALUES: Final = frozenset(("type", "enum", "const"))
_BOUNDS: Final = frozenset(
    (
        *("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    )
)
_SHAPES: Final = frozenset(("pattern", "format"))

_UNDECIDED: Final = "cannot be shown to be compatible"

_FOR_CALLERS: Final = {
    "required": "`{detail}` is now required",
    "properties": "`{detail}` is no longer accepted",
    "additionalProperties": "additional properties are no longer all accepted",
    "value": "{detail} is no longer accepted",
    "values": "only this is accepted now",
    "bounds": "some values that were accepted are now refused",
    "shape": f"texts must now match this {{keyword}}, which {_UNDECIDED}",
}
"""Reasons why valid arguments may now be refused, by keyword or by group of keywords."""

_FOR_READERS: Final = {
    "required": "`{detail}` may now be missing",
    "properties": "`{detail}` is new, but no additional properties were allowed",
    "additionalProperties": "additional properties are now possible",
    "value": "{detail} is now possible",
    "values": "any other value is now possible",
    "bounds": "values that were excluded are now possible",
    "shape": f"texts no longer need to match this {{keyword}}, which {_UNDECIDED}",
}
"""Reasons why results may now contain values that readers do not know, by keyword or by group of keywords."""


def _why(reason: Reason, sentences: Mapping[str, str]) -> str:
    sentence = sentences.get(_kind(reason), _UNDECIDED)
    return sentence.format(keyword=reason.keyword, detail=reason.detail)


def _kind(reason: Reason) -> str:
    if reason.keyword in _VALUES:
        return "value" if reason.detail else "values"
    if reason.keyword in _BOUNDS:
        return "bounds"
    return "shape" if reason.keyword in _SHAPES else reason.keyword


_LOST: Final = (
    ("readOnlyHint", True, "it was read-only and may now make changes"),
    ("destructiveHint", False, "it was not destructive and may now delete or overwrite"),
    ("idempotentHint", True, "it was idempotent and no longer is"),
    ("openWorldHint", False, "it was limited to a closed system and may now reach anything"),
)


def _of_annotations(before: JSON, after: JSON) -> Iterator[Breach]:
    """Yield the hints whose assurance was withdrawn."""
    for key, assured, why in _LOST:
        if _hint(before, key) is assured and _hint(after, key) is not assured and not _is_moot(key, after):
            yield Breach("annotations", pointer_to((key,)), why)


def _is_moot(key: str, after: JSON) -> bool:
    # Both hints only have a meaning if the tool is not read-only (MCP 2025-11-25, `ToolAnnotations`).
    return key in {"destructiveHint", "idempotentHint"} and _hint(after, "readOnlyHint")


def _hint(annotations: JSON, key: str) -> bool:
    said = annotations.get(key) if isinstance(annotations, dict) else None
    return said if isinstance(said, bool) else _DEFAULTS[key]


_EFFORT: Final = 10 * EFFORT
"""Maximum number of facts to examine for all tools of a server, unless `_LEAST` per tool exceeds it."""

_LEAST: Final = 200
"""Minimum effort for each tool."""


class SetDifference(NamedTuple):
    """What differs between two sets of tools.

    Attributes:
        added: New tools, in order.
        removed: Tools that are gone, in order.
        renamed: Old name -> new name, for tools in both lists whose definitions differ only in their name.
        changed: Tool -> its change.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: Mapping[str, str]
    changed: Mapping[str, ToolChange]

    @property
    def differs(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.removed or self.changed)

    @property
    def verdicts(self) -> tuple[Kind, ...]:
        """Kinds of all changes, in the order of `KINDS`. A model reads which tools there are; a call of a removed one fails."""
        kinds: set[Kind] = {kind for change in self.changed.values() for kind in change.verdicts}
        if self.removed:
            kinds |= {"breaking", "prompt-affecting"}
        if self.added:
            kinds |= {"compatible", "prompt-affecting"}
        return tuple(kind for kind in KINDS if kind in kinds)


def compare_sets(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> SetDifference:
    """Compare two sets of definitions.

    Args:
        before: Name -> the old definition, with the keys of MCP.
        after: Name -> the new definition.
    """
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    changed = [
        name
        for name, definition in after.items()
        if name in before and any(definition.get(key) != before[name].get(key) for key in HASHED)
    ]
    # A server can change all its tools, and 10,000 facts take up to a second: the tools share a fixed effort.
    effort = min(max(_EFFORT // max(len(changed), 1), _LEAST), EFFORT)
    unnamed = {_without_name(after[name]): name for name in reversed(added)} if removed else {}
    return SetDifference(
        tuple(added),
        tuple(removed),
        {name: unnamed[known] for name in removed if (known := _without_name(before[name])) in unnamed},
        {name: compare(before[name], after[name], effort) for name in changed},
    )


def _without_name(definition: Mapping[str, Any]) -> str:
    return canonical({key: definition.get(key) for key in HASHED if key != "name"})


class ServerReview(NamedTuple):
    """The result of comparing one server with its lock.

    Attributes:
        name: Name of the server.
        before: The locked state; None if the server is not locked.
        now: The current state; None if the server was not started, or could not be.
        endpoint: Differences of the endpoint from the locked one.
        added: Tools that are not locked, in order.
        removed: Locked tools that the server no longer lists, in order.
        changed: Tool -> its change, for tools that differ from the lock.
        hidden: Tool -> the hidden characters in its definition; the empty name maps to those in the
            server's information about itself.
        unlockable: Tool -> the reason why it cannot be locked; such tools are omitted from the lock.
        odd: Tools with unusual characters in their names.
    """

    name: str
    before: LockedServer | None = None
    now: LockedServer | None = None
    endpoint: tuple[LockDifference, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, ToolChange] = NOTHING
    hidden: Mapping[str, list[HiddenCharacter]] = NOTHING
    unlockable: Mapping[str, str] = NOTHING
    odd: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether the server is not locked."""
        return self.before is None

    @property
    def differs(self) -> bool:
        """Whether the server differs from its lock, so that the changes must be accepted."""
        return not self.is_new and bool(self.endpoint or self.added or self.removed or self.changed)


def review_endpoint(before: LockedServer | None, server: Server) -> ServerReview:
    """Compare only the endpoint of a server, which requires no start."""
    if before is None:
        return ServerReview(server.name)
    return ServerReview(
        server.name, before, endpoint=tuple(endpoint_differences(before.endpoint, endpoint_of(server)))
    )


def review(before: LockedServer | None, server: Server, catalogue: Catalogue) -> ServerReview:
    """Compare a server that has listed its tools with its lock."""
    now = LockedServer.of(server, catalogue)
    hidden = {name: found for name, said in catalogue.tools.items() if (found := hidden_in(said))}
    of_itself = hidden_in(catalogue.info)
    # Without a lock no tool counts as added or changed.
    known = now.tools if before is None else before.tools
    changes = compare_sets(
        {name: tool.definition for name, tool in known.items()},
        {name: tool.definition for name, tool in now.tools.items()},
    )
    return review_endpoint(before, server)._replace(
        now=now,
        added=changes.added,
        removed=changes.removed,
        changed=changes.changed,
        hidden={**({"": of_itself} if of_itself else {}), **hidden},
        unlockable=unlockable_tools(catalogue),
        odd=tuple(name for name in catalogue.tools if not is_ordinary_name(name)),
    )
