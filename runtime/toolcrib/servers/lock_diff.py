"""What differs between a server and its lock, and what that means for callers and for models that read of its tools."""

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
    "Sign",
    "ToolChange",
    "Value",
    "compare",
    "differences",
    "endpoint_differences",
    "is_read_by_models",
    "render_lines",
    "review",
    "review_endpoint",
]


class Absent:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

Value: TypeAlias = "JSON | Absent"

Sign: TypeAlias = Literal["-", "+", "~", " "]

MOST_LINES: Final = 60
"""Lines that one tool gets; of more it is said how many there are."""

_WIDEST: Final = 240
_WORDS: Final = 600
"""Words of a text that are compared one by one, once what is the same at its ends is set aside."""

_CONTEXT: Final = 4
_DEEPEST: Final = 100

_TEXTS: Final = frozenset(("title", "description", "$comment", "default", "examples", "deprecated"))
"""Keywords of a schema that refuse no value; a model reads what stands there."""

_SETS: Final = frozenset(("required", "enum", "type"))
_PROSE: Final = re.compile(r"\S\s+\S")


class LockDifference(NamedTuple):
    """One place at which two definitions differ.

    Attributes:
        path: Keys and indexes from the definition on.
        before: What stood there; `ABSENT` for nothing.
        after: What stands there now.
        is_text: Whether what stands there is only read, and decides nothing.
    """

    path: tuple[str | int, ...]
    before: Value
    after: Value
    is_text: bool = False

    @property
    def place(self) -> str:
        """Where it is: `description`, `inputSchema /properties/days/maximum`."""
        part, *rest = self.path
        return f"{part} {pointer_to(rest)}" if rest else str(part)


class DiffLine(NamedTuple):
    """One line of what changed.

    Attributes:
        sign: `-` gone, `+` new, `~` other than before, a blank for where it is.
        text: Without the sign; nothing in it can steer a terminal, and what is hidden in it is spelt out.
    """

    sign: Sign
    text: str


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[LockDifference]:
    """Every place at which two definitions differ in what counts of them, innermost as far as both have it."""
    for key in HASHED:
        text = key in {"title", "description"}
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=text, names=False)


def endpoint_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[LockDifference]:
    """Every place at which two endpoints differ: `command`, `args /0` ..."""
    for key in {**before, **after}:
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=False, names=True)


def _between(
    before: Value, after: Value, path: tuple[str | int, ...], *, text: bool, names: bool
) -> Iterator[LockDifference]:
    """Differences at and below a place.

    Args:
        before: What stood there.
        after: What stands there.
        path: The place.
        text: Whether all of it is only read.
        names: Whether the keys of the object there are names of the schema's author, and no keywords.
    """
    if _same(before, after):
        return
    nested = len(path) < _DEEPEST
    if nested and isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            # Below what is only read, and below values such as `enum`, no keyword is one.
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
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _between(old, new, (*path, at), text=text, names=False)
    else:
        yield LockDifference(path, before, after, text)


def _same(before: Value, after: Value) -> bool:
    if isinstance(before, Absent) or isinstance(after, Absent):
        return before is after
    return canonical(before) == canonical(after)


def is_read_by_models(difference: LockDifference) -> bool:
    """Whether a model reads another text: one that is only read, or words in what decides, such as a new property."""
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
    """Differences as lines, `MOST_LINES` at most and one that says how many are left."""
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
    """What is gone from a list and what is new in it, or the two lists where only their order differs."""
    old, new = {canonical(each) for each in before}, {canonical(each) for each in after}
    if old == new:
        yield DiffLine("~", f"{place}: {_shown(before)} -> {_shown(after)}")
    yield from (DiffLine("-", f"{place}: {_shown(each)}") for each in before if canonical(each) not in new)
    yield from (DiffLine("+", f"{place}: {_shown(each)}") for each in after if canonical(each) not in old)


def _shown(value: Value) -> str:
    return "" if isinstance(value, Absent) else _cut(spell_out_hidden(compact(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _words(before: str, after: str) -> Iterator[DiffLine]:
    """The words that are gone and those that are new, each with some of those around them."""
    old, new = re.findall(r"\s+|\S+", before), re.findall(r"\s+|\S+", after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle, other = old[start : len(old) - end], new[start : len(new) - end]
    if len(middle) + len(other) > _WORDS:
        yield _hunk("-", old, start, len(old) - end)
        yield _hunk("+", new, start, len(new) - end)
        return
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
    """How many words two texts begin with alike."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _hunk(sign: Sign, words: Sequence[str], begin: int, end: int) -> DiffLine:
    """Some words with those around them, on one line: the changed ones in brackets."""
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
"""`compatible`: who calls it as before is answered as before. `breaking`: that can't be shown. `prompt-affecting`: a
model reads another text; either may come with it."""

_DEFAULTS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What is meant where a hint is not given: MCP 2025-11-25, `ToolAnnotations`."""


class Breach(NamedTuple):
    """One reason why a change is breaking.

    Attributes:
        part: The key of the definition: `inputSchema`, `outputSchema`, `annotations`.
        pointer: JSON Pointer within that; of the old schema for a result, of the new one for arguments.
        why: What whoever calls it or reads its results will meet.
    """

    part: str
    pointer: str
    why: str

    def __str__(self) -> str:
        place = f"{self.part} {self.pointer}" if self.pointer else self.part
        return f"{place}: {self.why}"


class ToolChange(NamedTuple):
    """How a tool is another one than before.

    Attributes:
        verdicts: What that means, in the order of `KINDS`; empty where nothing changed that counts.
        differences: Everything that is different.
        breaches: Why it is breaking, where it is.
    """

    verdicts: tuple[Kind, ...]
    differences: tuple[LockDifference, ...]
    breaches: tuple[Breach, ...] = ()


def compare(before: Mapping[str, Any], after: Mapping[str, Any], effort: int = EFFORT) -> ToolChange:
    """What is different between two definitions of one tool.

    Arguments that were right must stay right, so an input schema may only take more; results must stay what readers
    know, so an output schema may only take less. `true` stands for one that is not there.

    Args:
        before: As MCP writes it: `description`, `inputSchema`, `annotations` ...
        after: The same, as it is now.
        effort: How much may be done for each schema, as `missing` has it.
    """
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
    return schema if is_schema(schema) else True


def _of_arguments(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
    for reason in incompatibilities(before, after, effort):
        yield Breach("inputSchema", pointer_to(reason.path), _why(reason, _FOR_CALLERS))


def _of_results(before: Schema, after: Schema, effort: int) -> Iterator[Breach]:
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
"""Why arguments that were right may be refused now."""

_FOR_READERS: Final = {
    "required": "`{detail}` may now be missing",
    "properties": "`{detail}` is new, but no additional properties were allowed",
    "additionalProperties": "additional properties are now possible",
    "value": "{detail} is now possible",
    "values": "any other value is now possible",
    "bounds": "values that were excluded are now possible",
    "shape": f"texts no longer need to match this {{keyword}}, which {_UNDECIDED}",
}
"""Why results may hold now what a reader does not know."""


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
    """The assurances that are taken back."""
    for key, assured, why in _LOST:
        if _hint(before, key) is assured and _hint(after, key) is not assured and not _is_moot(key, after):
            yield Breach("annotations", pointer_to((key,)), why)


def _is_moot(key: str, after: JSON) -> bool:
    """Whether a hint means nothing, because what only reads neither destroys nor repeats anything."""
    return key in {"destructiveHint", "idempotentHint"} and _hint(after, "readOnlyHint")


def _hint(annotations: JSON, key: str) -> bool:
    said = annotations.get(key) if isinstance(annotations, dict) else None
    return said if isinstance(said, bool) else _DEFAULTS[key]


_EFFORT: Final = 10 * EFFORT
"""What may be done for all tools of a server together, as far as each gets `_LEAST`."""

_LEAST: Final = 200


class ServerReview(NamedTuple):
    """What was found of one server.

    Attributes:
        name: Of the server.
        before: What is locked; None for nothing.
        now: What there is to lock; None where it was not asked, or could not be.
        endpoint: How it is reached otherwise than is locked.
        added: Its tools that are not locked, in order.
        removed: Locked tools that it no longer has, in order.
        changed: Tools that are not what was locked.
        hidden: Tool -> the characters of its definition that nobody sees; the empty name stands for what the server
            says of itself.
        unlockable: Tool -> why it can't be locked, and so is left out.
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
        """Whether nothing of it is locked."""
        return self.before is None

    @property
    def differs(self) -> bool:
        """Whether it is another one than the one that is locked, and somebody has to accept that."""
        return not self.is_new and bool(self.endpoint or self.added or self.removed or self.changed)


def review_endpoint(before: LockedServer | None, server: Server) -> ServerReview:
    """What can be said of a server that is not started: how it is reached."""
    if before is None:
        return ServerReview(server.name)
    return ServerReview(
        server.name, before, endpoint=tuple(endpoint_differences(before.endpoint, endpoint_of(server)))
    )


def review(before: LockedServer | None, server: Server, catalogue: Catalogue) -> ServerReview:
    """What can be said of a server that has listed its tools."""
    now = LockedServer.of(server, catalogue)
    hidden = {name: found for name, said in catalogue.tools.items() if (found := hidden_in(said))}
    of_itself = hidden_in(catalogue.info)
    known = now.tools if before is None else before.tools
    changed = [name for name, tool in now.tools.items() if name in known and known[name].hash != tool.hash]
    effort = min(max(_EFFORT // max(len(changed), 1), _LEAST), EFFORT)
    return review_endpoint(before, server)._replace(
        now=now,
        added=tuple(name for name in now.tools if name not in known),
        removed=tuple(name for name in known if name not in now.tools),
        changed={
            name: compare(known[name].definition, now.tools[name].definition, effort) for name in changed
        },
        hidden={**({"": of_itself} if of_itself else {}), **hidden},
        unlockable=unlockable_tools(catalogue),
        odd=tuple(name for name in catalogue.tools if not is_ordinary_name(name)),
    )
