"""Assemble the pieces of an answer, tolerating the ways in which providers use slots, IDs and names."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.text import compact, decode_json
from toolcrib.provider.messages import Reasoning, Text, ToolCall
from toolcrib.provider.models.protocol import CallDelta, Delta, Finish, ReasoningDelta, TextDelta
from toolcrib.schema.validation import as_json, json_violation

AnswerPart: TypeAlias = Text | Reasoning | ToolCall

_LONE: Final = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
_HIGH: Final = ("\ud800", "\udbff")
_REPLACEMENT: Final = "\ufffd"


class Assembler:
    """Assembles the pieces of one answer.

    Parts are in the order of their first pieces. Text before and after a call stays two parts. Pieces of a
    call are matched by slot. If a provider uses one slot for several calls, a new ID starts a new call, and
    so does a new name after complete arguments. Repeated IDs and names are merged.

    Attributes:
        finish: The end of the answer; None until it arrives. Later pieces are ignored.
    """

    __slots__ = ("_calls", "_count", "_parts", "finish")

    def __init__(self) -> None:
        self.finish: Finish | None = None
        self._parts: list[_Prose | _Call] = []
        self._calls: dict[int, list[_Call]] = {}
        self._count = 0

    def add(self, delta: Delta) -> list[Delta]:
        """Add a piece and return what is new in it.

        In a returned `CallDelta`, the slot is the number of the call in the answer, from 0; the ID appears
        once, the name is complete, and arguments are text. Half of a surrogate pair waits for its other half.
        The first piece of a call is returned even if it is empty.
        """
        if self.finish is not None:
            return []
        if isinstance(delta, TextDelta):
            return self._add_prose(delta.text, None, thought=False)
        if isinstance(delta, CallDelta):
            return self._add_call(delta)
        if isinstance(delta, ReasoningDelta):
            return self._add_prose(delta.text, delta.data, thought=True)
        self.finish = delta
        return [*self._close_prose(), delta]

    def parts(self) -> tuple[AnswerPart, ...]:
        """Return the parts so far, in order.

        `ToolCall.arguments` is None if the model did not write a valid JSON object: duplicate keys, NaN and
        lone surrogates are invalid. An empty text and `null` count as an empty object.
        """
        return tuple([part.part() for part in self._parts])

    def _add_prose(self, text: str, data: JSON, *, thought: bool) -> list[Delta]:
        if not text and data is None:
            return []
        found: list[Delta] = []
        last = self._parts[-1] if self._parts else None
        if type(last) is not _Prose or last.thought != thought or last.data is not None:
            found = self._close_prose()
            last = _Prose(thought=thought)
            self._parts.append(last)
        new = last.add(text)
        last.data = data
        if new or data is not None:
            found.append(ReasoningDelta(new, data) if thought else TextDelta(new))
        return found

    def _close_prose(self) -> list[Delta]:
        last = self._parts[-1] if self._parts else None
        if type(last) is _Prose and (rest := last.end()):
            return [ReasoningDelta(rest) if last.thought else TextDelta(rest)]
        return []

    def _add_call(self, delta: CallDelta) -> list[Delta]:
        written, sound = _as_text(delta.arguments)
        # Almost all IDs and names are ASCII and need no conversion.
        if not (delta.id.isascii() and delta.name.isascii()):
            delta = delta._replace(id=whole_characters(delta.id), name=whole_characters(delta.name))
        call = self._call_of(delta, written)
        begins, found = call is None, list[Delta]()
        if call is None:
            found = self._close_prose()
            call = _Call(self._count)
            self._count += 1
            self._parts.append(call)
            self._calls.setdefault(delta.slot, []).append(call)
        call.sound = call.sound and sound
        new = call.add(delta.id, delta.name, written)
        # The first piece is yielded even if it is empty: it fixes the position of the call among the texts.
        if begins or new.arguments or new.id or new.name:
            found.append(new)
        return found

    def _call_of(self, delta: CallDelta, written: str) -> _Call | None:
        """The call that a piece belongs to; None if it starts a new one."""
        # Some services use the slot 0 for every call of an answer, and some send the ID only with the first
        # piece.
        known = self._calls.get(delta.slot)
        if not known:
            return None
        if not delta.id:
            return None if known[-1].is_followed_by(delta, written) else known[-1]
        same = next((call for call in reversed(known) if call.id == delta.id), None)
        if same is None and not known[-1].id:
            same = known[-1]
        return None if same is None or same.is_followed_by(delta, written) else same


class _Characters:
    """Text whose pieces may end in the middle of a character."""

    # Servers that count in UTF-16 units, such as those in JavaScript or Java, split surrogate pairs.

    __slots__ = ("_half", "_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Add a piece and return the text that is complete now."""
        if self._half or not piece.isascii():
            text = self._half + piece
            self._half = text[-1:] if _HIGH[0] <= text[-1:] <= _HIGH[1] else ""
            piece = whole_characters(text.removesuffix(self._half))
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)
        return piece

    def end(self) -> str:
        """Return the replacement for a surrogate that was never completed."""
        if not self._half:
            return ""
        self._half = ""
        return self.add(_REPLACEMENT)

    def ends(self, mark: str) -> bool:
        """Whether the text ends with a mark, ignoring blanks."""
        last = next((piece for piece in reversed(self._pieces) if not piece.isspace()), "")
        return last.rstrip().endswith(mark)

    def __str__(self) -> str:
        return "".join(self._pieces) + (_REPLACEMENT if self._half else "")


def whole_characters(text: str) -> str:
    """Join surrogate pairs to characters, and replace lone surrogates with U+FFFD."""
    return _LONE.sub(_REPLACEMENT, text).encode("utf-16", "surrogatepass").decode("utf-16")


class _Prose(_Characters):
    __slots__ = ("data", "thought")

    def __init__(self, *, thought: bool) -> None:
        super().__init__()
        self.thought = thought
        self.data: JSON = None

    def part(self) -> AnswerPart:
        text = str(self)
        return Reasoning(text, self.data) if self.thought else Text(text)


class _Call:
    __slots__ = ("_number", "_text", "id", "name", "sound")

    def __init__(self, number: int) -> None:
        self.id = self.name = ""
        self.sound = True
        self._number = number
        self._text = _Characters()

    def add(self, identity: str, name: str, written: str) -> CallDelta:
        """Add a piece and return what is new in it."""
        # Some services repeat the complete call in a last piece.
        if (identity or name) and self.has_written(written) and self.is_complete():
            written = ""
        new_id = "" if self.id else identity
        self.id = self.id or identity
        new_name = "" if name == self.name else name
        if new_name.startswith(self.name):
            self.name = new_name  # the name so far is repeated with each piece
        else:
            self.name += new_name
        return CallDelta(self._number, new_id, self.name if new_name else "", self._text.add(written))

    def is_complete(self) -> bool:
        """Whether the arguments so far are a complete object, so that only blanks can follow."""
        # The cheap test first: parsing the text after each piece would take quadratic time.
        return self._text.ends("}") and parse_arguments(str(self._text)) is not None

    def has_written(self, written: str) -> bool:
        """Whether a text is exactly what was written so far."""
        return 0 < len(written) == self._text.size and written == str(self._text)

    def is_followed_by(self, delta: CallDelta, written: str) -> bool:
        """Whether a piece with the same slot and no other ID starts the next call."""
        if not delta.name or not self.name:
            return False
        if delta.name != self.name and self._text.size:
            return True
        repeated = bool(delta.id) and self.has_written(written)
        return bool(written.strip()) and not repeated and self.is_complete()

    def part(self) -> AnswerPart:
        written = str(self._text)
        return ToolCall(self.id, self.name, parse_arguments(written) if self.sound else None, written)


def _as_text(arguments: str | dict[str, JSON]) -> tuple[str, bool]:
    """The text of arguments, and whether they are valid JSON."""
    if isinstance(arguments, str):
        return arguments, True
    value, fault = as_json(arguments)
    if fault is None:
        return compact(value), True
    return json.dumps(arguments, ensure_ascii=False, default=repr, skipkeys=True), False


def parse_arguments(text: str) -> dict[str, JSON] | None:
    """Parse the arguments that a model wrote; None if they are not a JSON object.

    Integers keep all their digits, up to 4,300. Blank text and `null` mean no arguments.
    """
    # Models often write nothing at all for a tool without parameters.
    if not text.strip():
        return {}
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) and json_violation(value) is None else None
