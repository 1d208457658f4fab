"""Strict JSON: documents, large files of rows, and JSON with comments.

The C decoder reads valid text; its hooks stop at a fault. Only then does a slow scanner find lines, columns and
pointers. A large file (`LargeJSON`) is searched member by member, so a fault costs a few passes over the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple, NoReturn, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.text import DuplicateKey, unique_members
from toolcrib.loading.documents.positions import (
    DEPTH,
    INTEGER_DIGITS,
    NODES,
    Mark,
    ParsedDocument,
    Problems,
    StopReading,
    TextPosition,
    decoded_text,
    excerpt,
    is_encodable,
    root_positions,
    walk_positions,
)

# RFC 8259, section 2: JSON knows these four blanks only; `str.strip` and `\s` would accept many more.
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
# Possessive quantifiers (`*+`) keep an unclosed string linear: there is nothing to backtrack into.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_TOKEN: Final = re.compile(rf'{_STRING}|[{{}}\[\]]|[^\s"{{}}\[\],:]+', re.DOTALL)
_OUTSIDE_BRACKETS: Final = re.compile(rf"{_STRING}|[^\[\]{{}}\"]+", re.DOTALL)
_EMPTY_PAIR: Final = re.compile(r"\[\]|\{\}")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_KINDS: Final = {"{": "{", "[": "[", "}": "}", "]": "}"}
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


_Report: TypeAlias = Callable[[TextPosition, str, str, str], None]


class _Fault(Exception):
    """The decoder met something that JSON's grammar allows but documents may not contain."""


def _refuse(_text: str) -> NoReturn:
    raise _Fault


def _integer(text: str) -> int:
    if len(text) > INTEGER_DIGITS and len(text.lstrip("-")) > INTEGER_DIGITS:
        raise _Fault
    return int(text)


def _decimal(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Fault
    return value


# Hooks stop the C decoder at the first fault, so valid text costs one fast pass and no second look.
_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=unique_members, parse_int=_integer, parse_float=_decimal, parse_constant=_refuse
)
# Only finds where a faulty value ends. `len` replaces `int`, which raises ValueError beyond 4,300 digits.
_LENIENT: Final = json.JSONDecoder(parse_int=len, parse_constant=len)


def read_json(text: str, problems: Problems, *, whole: bool = False) -> list[ParsedDocument]:
    """Read the document of a text, or each element of its list as a document unless it is `whole`.

    Elements with a fault are omitted. Text that is not valid JSON yields no documents.
    """
    listed = is_list(text) and not whole
    documents: list[ParsedDocument] = []
    try:
        check_bounds(text, problems, NODES)
        if _collect(text, documents, listed=listed):
            report_faults(text, problems, listed=listed)
        elif not documents:
            problems.report(
                Problem(
                    code="empty_document", message="the list is empty", line=1, column=1, severity="notice"
                )
            )
    except json.JSONDecodeError as error:
        report_syntax(text, error, problems)
        return []
    except StopReading:
        return []
    return documents


def is_list(text: str) -> bool:
    """Whether the text's one value is a list, each element of which is a document."""
    return text.startswith("[", skip_whitespace(text, 0))


def skip_whitespace(text: str, start: int) -> int:
    """The index of the first character from `start` that is not a blank."""
    match = _BLANKS.match(text, start)
    return match.end() if match else start


def _collect(text: str, documents: list[ParsedDocument], *, listed: bool) -> bool:
    """Decode the documents one by one; return whether one was omitted because of a fault."""
    at = skip_whitespace(text, 0)
    faulty, index, line, counted = False, 0, 1, 0
    if listed:
        at = skip_whitespace(text, at + 1)
    going = not (listed and text.startswith("]", at))
    while going:
        # Count from the last position: counting from the start each time would be quadratic in the elements.
        line, counted = line + text.count("\n", counted, at), at
        sound, value, at = decode_at(text, at)
        faulty = faulty or not sound
        if sound:
            documents.append(ParsedDocument(index, line, value))
        index += 1
        at = skip_whitespace(text, at)
        going = listed and text.startswith(",", at)
        if going:
            at = skip_whitespace(text, at + 1)
    if listed:
        if not text.startswith("]", at):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = skip_whitespace(text, at + 1)
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return faulty


def decode_at(text: str, at: int) -> tuple[bool, JSON, int]:
    """Decode the value at an index: whether it is sound, the value, and the index after it.

    Raises:
        JSONDecodeError: No value begins there.
    """
    try:
        value, end = _STRICT.raw_decode(text, at)
    except (_Fault, DuplicateKey):
        return False, None, _LENIENT.raw_decode(text, at)[1]
    # Python's decoder accepts a lone `\ud800`, which no UTF-8 file and no JSON message can carry.
    if _SURROGATE_ESCAPE.search(text, at, end):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return False, None, end
    return True, value, end


def check_bounds(text: str, problems: Problems, nodes: int | None) -> None:
    """Check the nesting depth of a text, and its number of keys and values if `nodes` is given.

    Raises:
        StopReading: A bound is exceeded; the problem was reported.
    """
    # Before decoding: CPython's decoder recurses in C, so deep nesting ends in a RecursionError at best.
    if not _is_bounded(text, nodes):
        _refuse_unbounded(text, problems, nodes)


def _is_bounded(text: str, most: int | None) -> bool:
    """Whether the bounds surely hold. May return False for text within them (brackets inside strings)."""
    # Whole-text operations in C instead of a loop over tokens: this runs for every document.
    opened = text.count("[") + text.count("{")
    if most is not None and opened + text.count(",") + text.count(":") >= most:
        return False
    if opened <= DEPTH:
        return True
    # Removing innermost pairs `DEPTH` times leaves nothing of text that is nested at most that deep.
    brackets = _OUTSIDE_BRACKETS.sub("", text)
    for _ in range(DEPTH):
        if not brackets:
            return True
        brackets = _EMPTY_PAIR.sub("", brackets)
    return not brackets


def _refuse_unbounded(text: str, problems: Problems, most: int | None) -> None:
    depth = 0
    for nodes, mark in enumerate(marks(text), 1):
        depth += (mark.kind in "{[") - (mark.kind == "}")
        if depth > DEPTH:
            message = f"objects and lists are nested deeper than {DEPTH} levels"
            problems.report(Problem(code="too_deep", message=message, line=mark.line, column=mark.column))
            raise StopReading
        if most is not None and nodes > most:
            message = f"the text contains more than {most} keys and values"
            problems.report(
                Problem(code="too_many_nodes", message=message, line=mark.line, column=mark.column)
            )
            raise StopReading


def report_faults(text: str, problems: Problems, *, listed: bool = False) -> None:
    """Report what JSON's grammar allows but documents may not contain: duplicate keys, NaN, lone surrogates."""

    def report(place: TextPosition, code: str, message: str, hint: str) -> None:
        mark, pointer = place.mark, place.pointer()
        if listed:
            # Each element of the list is a document of its own, so its index is not part of the pointer.
            pointer = pointer[len(pointer.split("/", 2)[1]) + 1 :]
        problems.report(
            Problem(
                code=code, message=message, line=mark.line, column=mark.column, pointer=pointer, hint=hint
            )
        )

    for place, is_key in walk_positions(marks(text)):
        if is_key and place.twin is not None and place.twin.key is not None:
            lines = f"lines {place.twin.key.line} and {place.mark.line}"
            message = f"duplicate key `{excerpt(place.token)}` on {lines}"
            report(place, "duplicate_key", message, "keep one of them")
        if place.mark.plain:
            _check_number(place, report)
        elif not is_encodable(place.mark.text):
            message = f"the text `{excerpt(place.mark.text)}` contains a lone surrogate"
            report(
                place, "lone_surrogate", message, "write the character itself, or the whole surrogate pair"
            )


def _check_number(place: TextPosition, report: _Report) -> None:
    text = place.mark.text
    match = _NUMBER.fullmatch(text)
    hint = "put it in quotes if it is a text"
    if text in _NOT_FINITE or (match is not None and match.lastindex and not math.isfinite(float(text))):
        message = f"`{excerpt(text)}` is not a finite number"
        report(place, "non_finite_number", message, hint)
    elif match is not None and not match.lastindex and len(text.lstrip("-")) > INTEGER_DIGITS:
        message = f"a number has {len(text.lstrip('-'))} digits; the limit is {INTEGER_DIGITS}"
        report(place, "number_too_long", message, hint)


def report_syntax(text: str, error: json.JSONDecodeError, problems: Problems) -> None:
    """Report why a text is not valid JSON."""
    if not text.strip():
        problems.report(
            Problem(code="empty_document", message="the text is empty", line=1, column=1, severity="notice")
        )
        return
    seen = text[error.pos : error.pos + 1]
    # The decoder's own message for these ("Invalid control character at") does not name the character.
    if seen and seen < " " and seen not in "\t\n\r":
        message = f"control character U+{ord(seen):04X} is not allowed in JSON"
        problems.report(
            Problem(
                code="control_character",
                message=message,
                line=error.lineno,
                column=error.colno,
                hint=f"write `\\u{ord(seen):04x}`",
            )
        )
        return
    message = f"{error.msg}{f', found `{excerpt(text[error.pos :][:20])}`' if seen else ', found the end'}"
    hint = "JSON requires double quotes and allows no comments or trailing commas"
    problems.report(
        Problem(code="invalid_json", message=message, line=error.lineno, column=error.colno, hint=hint)
    )


def marks(text: str) -> Iterator[Mark]:
    """Split a text into marks. Invalid JSON is followed as far as it consists of tokens."""
    line, line_start, last = 1, 0, 0
    for match in _TOKEN.finditer(text):
        start, token = match.start(), match.group()
        newlines = text.count("\n", last, start)
        if newlines:
            line, line_start = line + newlines, text.rfind("\n", last, start) + 1
        last = start
        column = start - line_start + 1
        if token[0] in "{}[]":
            yield Mark(_KINDS[token], line, column)
        elif token[0] == '"':
            yield Mark(".", line, column, _text_of(token))
        else:
            yield Mark(".", line, column, token, plain=True)


def _text_of(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token


_KEYS: Final = json.JSONDecoder()


class _Member(NamedTuple):
    """A member of the object or list at the top.

    Attributes:
        step: Its key, or its index as text.
        key: Offset of its key; of the value itself in a list.
        start: Offset of the value.
        end: Offset after the value.
    """

    step: str
    key: int
    start: int
    end: int


class LargeJSON:
    """A JSON text without a limit on keys and values.

    Attributes:
        value: The decoded value; None if there are problems.
        problems: The problems, with lines and columns.
    """

    def __init__(self, source: str, content: bytes) -> None:
        self._source = source
        self._text = ""
        self.value: JSON = None
        self._found = Problems()
        try:
            self._text = decoded_text(content, self._found)
            self._read()
        except json.JSONDecodeError as error:
            report_syntax(self._text, error, self._found)
        except StopReading:
            pass
        self.problems = [each.at(source, each.line, each.column) for each in self._found]

    def _read(self) -> None:
        check_bounds(self._text, self._found, None)
        sound, value, end = decode_at(self._text, skip_whitespace(self._text, 0))
        end = skip_whitespace(self._text, end)
        if end != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)
        if sound:
            self.value = value
        else:
            self._tell_faults()

    def _tell_faults(self) -> None:
        seen: dict[str, int] = {}
        members = list(self._members())
        for member in members:
            if seen.setdefault(member.step, member.key) != member.key:
                lines = f"lines {self._line(seen[member.step])} and {self._line(member.key)}"
                message = f"duplicate key `{excerpt(member.step)}` on {lines}"
                fault = Problem(code="duplicate_key", message=message, hint="keep one of them")
                self._found.report(self._at(fault, member, None))
            for problem in self._faults_in(member):
                mark = Mark(".", problem.line, problem.column) if problem.line else None
                self._found.report(self._at(problem, member, mark))
        if not members:
            report_faults(self._text, self._found)

    def _faults_in(self, member: _Member) -> Problems:
        """The problems of a member, with lines relative to its text; problems of its key have no line."""
        found = Problems()
        if not is_encodable(member.step):
            message = f"the text `{excerpt(member.step)}` contains a lone surrogate"
            hint = "write the character itself, or the whole surrogate pair"
            found.append(Problem(code="lone_surrogate", message=message, hint=hint))
        if not decode_at(self._text, member.start)[0]:
            with suppress(StopReading):  # the problems found so far are still reported
                report_faults(self._text[member.start : member.end], found)
        return found

    def place(self, problem: Problem) -> Problem:
        """A problem with the line and column of its pointer."""
        steps = keys_of(problem.pointer)
        member = self._by_step.get(steps[0]) if steps else None
        if member is None:
            return problem.at(self._source, 1, 1)
        # Only the member is scanned: positions of a whole large file would take far more time and memory than its rows.
        found = root_positions(marks(self._text[member.start : member.end]))[0]
        inner = found.nearest("".join(f"/{pointer_step(step)}" for step in steps[1:]))
        placed = self._at(problem._replace(pointer=""), member, inner.mark)
        return placed._replace(pointer=problem.pointer, source=self._source)

    def _at(self, problem: Problem, member: _Member, mark: Mark | None) -> Problem:
        """A problem within a member, at a mark relative to the member's text; at the member's key without a mark."""
        start = member.key if mark is None else member.start
        line, column = self._line(start), start - self._text.rfind("\n", 0, start)
        if mark is not None:
            line, column = line + mark.line - 1, mark.column + (column - 1 if mark.line == 1 else 0)
        pointer = f"/{pointer_step(member.step)}{problem.pointer}"
        return problem._replace(line=line, column=column, pointer=pointer)

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    @cached_property
    def _by_step(self) -> dict[str, _Member]:
        return {member.step: member for member in self._members()}

    def _members(self) -> Iterator[_Member]:
        """The members of the object or list at the top; none of a scalar. The text must be valid JSON."""
        text = self._text
        at = skip_whitespace(text, 0)
        keyed, index = text.startswith("{", at), 0
        if not keyed and not text.startswith("[", at):
            return
        at = skip_whitespace(text, at + 1)
        while not text.startswith(("}", "]"), at):
            key = at
            step = str(index)
            if keyed:
                step, at = _KEYS.raw_decode(text, at)
                at = skip_whitespace(text, skip_whitespace(text, at) + 1)
            end = decode_at(text, at)[2]
            yield _Member(step, key, at, end)
            index += 1
            at = skip_whitespace(text, end)
            if text.startswith(",", at):
                at = skip_whitespace(text, at + 1)


_STRING_ON_ONE_LINE: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING_ON_ONE_LINE}|//[^\n\r]*+|/\*", re.DOTALL)
_SIGN: Final = re.compile(rf'{_STRING_ON_ONE_LINE}|[,\[\]{{}}]|[^\s",\[\]{{}}]+', re.DOTALL)
_VISIBLE: Final = re.compile(r"[^\n\r]")


def without_comments(text: bytes) -> bytes:
    """Blank out comments and trailing commas. Invalid UTF-8 stays in the text for the reader to report."""
    # Without either byte there is neither a comment nor a comma.
    if b"/" not in text and b"," not in text:
        return text
    # Blanks, not deletions: lines and columns in problems stay those of the file.
    decoded = text.decode("utf-8", errors="surrogateescape")
    return _without_commas(_without_comments(decoded)).encode("utf-8", errors="surrogateescape")


def _without_comments(text: str) -> str:
    """Replace `// ...` and `/* ... */` with blanks. An unclosed comment stays, so that the JSON reader reports it."""
    pieces, kept, at = [], 0, 0
    while (match := _COMMENT.search(text, at)) is not None:
        at = match.end()
        if match[0].startswith('"'):
            continue
        if match[0] == "/*":
            end = text.find("*/", at)
            if end < 0:
                break
            at = end + 2
        pieces += [text[kept : match.start()], _VISIBLE.sub(" ", text[match.start() : at])]
        kept = at
    return "".join([*pieces, text[kept:]])


def _without_commas(text: str) -> str:
    """Replace commas between a value and a closing bracket with blanks."""
    pieces, kept = [], 0
    before, comma = "", -1
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign in "]}" and comma >= 0:
            pieces += [text[kept:comma], " "]
            kept = comma + 1
        comma = match.start() if sign == "," and before not in {"", ",", "[", "{"} else -1
        before = sign
    return "".join([*pieces, text[kept:]])
