"""A safe subset of YAML, built and checked in one pass over the parser's events.

Plain scalars follow the JSON-compatible part of YAML 1.2's core schema: null, booleans in three spellings, and numbers
in JSON's grammar. Everything else is text: `no`, `on`, `0777`, `0x1F`, `1_000`, `22:22`, dates. Aliases, merge keys,
tags, duplicate keys and keys that are not text are rejected with their position. The bounds are checked before
anything large is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.loading.documents.positions import (
    DEPTH,
    INTEGER_DIGITS,
    NODES,
    Mark,
    ParsedDocument,
    Problems,
    StopReading,
    TextPosition,
    excerpt,
    is_encodable,
    pointer_of,
    root_positions,
)

# libyaml is many times as fast as PyYAML's own scanner.
LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Source of events: libyaml, or PyYAML's own scanner if PyYAML was built without libyaml."""

_CONSTANTS: Final[dict[str, JSON]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Plain scalars that are neither text nor numbers."""

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_STARTS: Final = "-0123456789"

# YAML 1.2, production [1] c-printable, without the BOM and without NEL, LS and PS, which end a line in YAML 1.1
# (libyaml) but not in YAML 1.2: two readers would see different documents.
_NOT_YAML: Final = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
# PyYAML and libyaml disagree on whether such an escape is an error, so it is found in the text.
_SURROGATE_ESCAPE: Final = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")
_TAG_DIRECTIVE: Final = re.compile(r"^%TAG\b", re.MULTILINE)
_BARE_EXPRESSION: Final = re.compile(r"(?:^|[:\-,\[{])\s*(\{\{.*?(?:\}\}|$))")
_WHOLE_CHARACTER: Final = "write the character itself, or `\\U` and its eight digits"
_TOO_DEEP: Final = f"objects and lists are nested deeper than {DEPTH} levels"

_HINTS: Final = {
    "mapping values are not allowed": "put text that contains `: ` in quotes",
    "found character that cannot start any token": "put text that starts with this character in quotes",
    "found unexpected ':'": "put text that contains `: ` in quotes",
    "found unexpected end of stream": "close the open quote or bracket",
    "did not find expected key": "check the indentation, and put text with special characters in quotes",
    "could not find expected ':'": "write `: ` after a key",
}


def plain_scalar(text: str) -> JSON:
    """The value of a plain scalar; a whole number of too many digits stays text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    match = _NUMBER.fullmatch(text) if text[0] in _NUMBER_STARTS else None
    if match is None:
        return text
    if match.lastindex is not None:
        return float(text)
    return int(text) if len(text) <= INTEGER_DIGITS else text


class _RefusedKey:
    """Placeholder for a rejected key: the value that follows is read and discarded."""


_REFUSED_KEY: Final = _RefusedKey()


class _Builder:
    """Builds the documents of one text from its events."""

    def __init__(self, text: str, problems: Problems, *, number_keys: bool = False) -> None:
        self.text = text
        self.problems = problems
        self.number_keys = number_keys
        self.documents: list[ParsedDocument] = []
        self.bangs = "!" in text
        self.halves = _SURROGATE_ESCAPE.search(text) is not None
        self.index = -1
        self.line = 1
        self.nodes = 0
        self.errors = 0
        self.blank = False
        self.here: Any = []
        self.key: str | _RefusedKey | None = None
        self.stack: list[tuple[Any, str | _RefusedKey | None, _RefusedKey | None]] = []

    def build(self, events: Iterable[Any]) -> None:
        # Events, not nodes or constructors: an alias bomb or a tag is rejected before PyYAML composes anything.
        for event in events:
            kind = type(event)
            if kind is ScalarEvent:
                self.scalar(event)
            elif kind is MappingStartEvent:
                self.open(event, {})
            elif kind is SequenceStartEvent:
                self.open(event, [])
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self.here, _, self.key = self.stack.pop()
            elif kind is AliasEvent:
                self.alias(event)
            elif kind is DocumentStartEvent:
                self.begin(event)
            elif kind is DocumentEndEvent:
                self.end()

    @cached_property
    def places(self) -> list[TextPosition]:
        """The positions of the text, computed at the first problem that needs them."""
        return root_positions(marks(self.text))

    def begin(self, event: Any) -> None:
        self.index += 1
        self.line = event.start_mark.line + 1
        self.here = []
        self.errors = len(self.problems)

    def end(self) -> None:
        value = self.here[0]
        if value is None and self.blank:
            self.problems.report(
                Problem(
                    code="empty_document",
                    message="the document is empty",
                    line=self.line,
                    column=1,
                    severity="notice",
                )
            )
        elif len(self.problems) == self.errors:
            self.documents.append(ParsedDocument(self.index, self.line, value))

    def scalar(self, event: Any) -> None:
        text = event.value
        self.check(event)
        here, key = self.here, self.key
        if type(here) is list:
            self.blank = not text and not self.stack and event.implicit[0]
            # `implicit[0]` is true for plain scalars only, so quoted `"1"` and `'no'` stay text.
            here.append(self.plain(event, text) if event.implicit[0] else text)
        elif key is None:
            self.key = self.take_key(event, text)
        else:
            value = self.plain(event, text) if event.implicit[0] else text
            if key is not _REFUSED_KEY:
                here[key] = value
            self.key = None

    def open(self, event: Any, container: dict[str, JSON] | list[JSON]) -> None:
        self.check(event)
        if len(self.stack) == DEPTH:
            self.report(event, "too_deep", _TOO_DEEP, self.path())
            raise StopReading
        here, key, after = self.here, self.key, None
        if type(here) is list:
            if not self.stack:
                self.line = event.start_mark.line + 1
            here.append(container)
        elif key is None:
            self.refuse_container_key(event)
            after = _REFUSED_KEY
        elif key is not _REFUSED_KEY:
            here[key] = container
        self.stack.append((here, key, after))
        # The value of a rejected key is still built, in a container that nothing refers to, to find problems
        # in it.
        self.here, self.key = container, None

    def alias(self, event: Any) -> None:
        self.check(event)
        if type(self.here) is list:
            self.here.append(None)
        else:
            self.key = _REFUSED_KEY if self.key is None else None

    def check(self, event: Any) -> None:
        """Count a node, and reject its anchor, alias or tag."""
        # Aliases expand: nine lines of them make a billion values ("billion laughs"). Tags choose
        # the type of a value, which the schema decides here.
        self.nodes += 1
        if self.nodes > NODES:
            self.report(
                event, "too_many_nodes", f"the text contains more than {NODES} keys and values", self.path()
            )
            raise StopReading
        if event.anchor is not None:
            self.refuse_anchor(event)
        if type(event) is AliasEvent:
            return
        if event.tag is not None or (self.bangs and self.has_bare_tag(event)):
            message = f"the tag `{excerpt(event.tag or '!')}` is not allowed"
            self.report(event, "tag_refused", message, self.path(), hint="remove it; use quotes for text")
        if self.halves and type(event) is ScalarEvent and not is_encodable(event.value):
            message = "a text contains a lone surrogate"
            self.report(event, "lone_surrogate", message, self.path(), hint=_WHOLE_CHARACTER)

    def has_bare_tag(self, event: Any) -> bool:
        """Whether a scalar is written `! text`: libyaml reports this non-specific tag as no tag."""
        mark = event.start_mark
        # The mark of the event is at the tag, not at the text after it.
        return type(event) is ScalarEvent and self.text.startswith("!", mark.index)

    def plain(self, event: Any, text: str) -> JSON:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMBER_STARTS:
            return text
        match = _NUMBER.fullmatch(text)
        return text if match is None else self.number(event, text, match)

    def number(self, event: Any, text: str, match: re.Match[str]) -> JSON:
        hint = "put it in quotes if it is a text"
        if match.lastindex is None:
            if len(text) - text.startswith("-") <= INTEGER_DIGITS:
                return int(text)
            message = f"a number has {len(text)} digits; the limit is {INTEGER_DIGITS}"
            self.report(event, "number_too_long", message, self.path(), hint=hint)
            return None
        value = float(text)
        if math.isfinite(value):
            return value
        message = f"`{excerpt(text)}` is too large for a number"
        self.report(event, "non_finite_number", message, self.path(), hint=hint)
        return None

    def take_key(self, event: Any, text: str) -> str | _RefusedKey:
        # Most keys are ordinary words and skip the slower check.
        if event.implicit[0] and (text in _CONSTANTS or text[0] in _NUMBER_STARTS or text == "<<"):
            return self.check_plain_key(event, text)
        return self.new_key(event, text)

    def new_key(self, event: Any, text: str) -> str | _RefusedKey:
        if text not in self.here:
            return text
        pointer = self.path(text)
        first = self.places[self.index].nearest(pointer).key
        where = f"lines {first.line} and " if first is not None else "line "
        message = f"duplicate key `{excerpt(text)}` on {where}{event.start_mark.line + 1}"
        self.report(event, "duplicate_key", message, pointer, hint="keep one of them")
        return _REFUSED_KEY

    def check_plain_key(self, event: Any, text: str) -> str | _RefusedKey:
        if text == "<<":
            message = "the merge key `<<` is not allowed"
            self.report(event, "merge_key_refused", message, self.path(text), hint="write the keys out")
            return _REFUSED_KEY
        value = self.plain(event, text)
        if isinstance(value, str) or (self.number_keys and type(value) is int):
            return self.new_key(event, text)
        kind = "null" if value is None else "a boolean" if isinstance(value, bool) else "a number"
        message = f"the key `{excerpt(text)}` is {kind}; keys must be text"
        self.report(
            event, "non_string_key", message, self.path(text), hint=f'put it in quotes: `"{excerpt(text)}":`'
        )
        return _REFUSED_KEY

    def refuse_container_key(self, event: Any) -> None:
        mark = event.start_mark
        outer = mark.index - 1
        # The most common mistake: YAML reads an unquoted `{{ x }}` as an object whose key is an object.
        if event.flow_style and self.text.startswith("{{", outer):
            self.refuse_expression(mark.line + 1, mark.column, self.text[outer:])
            return
        message = "an object or list is used as a key; keys must be text"
        self.report(event, "non_string_key", message, self.path())

    def refuse_expression(self, line: int, column: int, rest: str) -> None:
        bare = re.match(r"\{\{[^\n]*?\}\}", rest[:200])
        shown = excerpt(bare.group() if bare else "{{ ... }}")
        quoted = f'"{shown}"' if '"' not in shown else "'" + shown.replace("'", "''") + "'"
        self.problems.report(
            Problem(
                code="unquoted_expression",
                message=f"the expression `{shown}` is not in quotes, so YAML reads it as an object",
                line=line,
                column=column,
                pointer=self.path(),
                hint=f"write `{quoted}`",
            )
        )

    def refuse_anchor(self, event: Any) -> None:
        kind, sign = ("alias", "*") if type(event) is AliasEvent else ("anchor", "&")
        message = f"the {kind} `{sign}{excerpt(event.anchor)}` is not allowed"
        self.report(event, "alias_refused", message, self.path(), hint="write the value out where it is used")

    def path(self, key: str | None = None) -> str:
        """The pointer of the value that is being read, or of `key` in the open object."""
        tokens: list[str | int] = []
        for here, used, _ in self.stack[1:]:
            if isinstance(used, _RefusedKey):
                return pointer_of(tokens)
            tokens.append(used if used is not None else len(here) - 1)
        own = key if key is not None else self.key
        if isinstance(own, str):
            tokens.append(own)
        elif type(self.here) is list and self.stack:
            tokens.append(len(self.here))
        return pointer_of(tokens)

    def report(self, event: Any, code: str, message: str, pointer: str, hint: str = "") -> None:
        mark: Any = event.start_mark
        self.problems.report(
            Problem(
                code=code,
                message=message,
                line=mark.line + 1,
                column=mark.column + 1,
                pointer=pointer,
                hint=hint,
            )
        )


def read_yaml(
    text: str, problems: Problems, loader: type[Any] = LOADER, *, number_keys: bool = False
) -> list[ParsedDocument]:
    """Read the documents of a text. Those with errors are omitted, and `problems` receives the errors.

    With `number_keys`, whole numbers are accepted as keys and converted to text.
    """
    # libyaml compares each `%TAG` directive with all earlier ones, so 50,000 of them take quadratic time. Tags are not
    # allowed in any case.
    if "%TAG" in text and (directive := _TAG_DIRECTIVE.search(text)):
        line = text.count("\n", 0, directive.start()) + 1
        problems.report(
            Problem(
                code="tag_refused",
                message="the directive `%TAG` is not allowed",
                line=line,
                column=1,
                hint="remove it",
            )
        )
        return []
    if not text.isascii() and _refuse_character(text, problems):
        return []
    builder = _Builder(text, problems, number_keys=number_keys)
    try:
        builder.build(_events(text, loader))
    except StopReading:
        pass
    except yaml.reader.ReaderError:
        _refuse_character(text, problems)
        return []
    except yaml.MarkedYAMLError as error:
        _report_syntax(builder, error)
    if builder.index < 0 and not problems:
        problems.report(
            Problem(
                code="empty_document",
                message="the text contains no document",
                line=1,
                column=1,
                severity="notice",
            )
        )
    return builder.documents


def _events(text: str, loader: type[Any]) -> Iterator[Any]:
    stream = loader(text)
    try:
        while (event := stream.get_event()) is not None:
            yield event
    except (ValueError, OverflowError) as error:
        # PyYAML's own scanner lets `chr` refuse an escape; libyaml refuses it itself.
        problem = "found invalid Unicode character escape code"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=stream.get_mark()) from error
    finally:
        stream.dispose()


def _refuse_character(text: str, problems: Problems) -> bool:
    match = _NOT_YAML.search(text)
    if match is None:
        return False
    start = match.start()
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    shown = f"U+{ord(match.group()):04X}"
    message = f"character {shown} is not allowed in YAML"
    hint = f"write `\\u{ord(match.group()):04x}` in double quotes, or remove it"
    problems.report(Problem(code="control_character", message=message, line=line, column=column, hint=hint))
    return True


def _report_syntax(builder: _Builder, error: yaml.MarkedYAMLError) -> None:
    mark: Any = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    lines = builder.text.split("\n")
    seen = lines[line] if line < len(lines) else ""
    # The syntax error that follows is a consequence of the expression that was just reported.
    if builder.problems and builder.problems[-1].code == "unquoted_expression":
        return
    # libyaml often notices an unquoted expression only on the next line.
    for row in (line, line - 1):
        bare = _bare_expression(lines[row]) if 0 <= row < len(lines) else None
        if bare is not None:
            builder.refuse_expression(row + 1, bare.start(1) + 1, bare.group(1))
            return
    message, hint, code = error.problem or "not valid YAML", "", "invalid_yaml"
    # libyaml reads ahead, so since PyYAML 6.0.4 its own limit of 1,000 levels is reached before ours.
    if message == "exceeded maximum nesting depth":
        message, code = _TOO_DEEP, "too_deep"
    if seen[column : column + 1] == "\t":
        message, hint = "a tab is used as indentation", "indent with spaces"
    elif _SURROGATE_ESCAPE.match(seen, max(column - 2, 0)):
        code, hint = "lone_surrogate", _WHOLE_CHARACTER
    for sign, advice in _HINTS.items():
        hint = hint or (advice if sign in message else "")
    if error.context and error.context_mark and error.context_mark.line != line:
        message += f" ({error.context} that begins on line {error.context_mark.line + 1})"
    builder.problems.report(Problem(code=code, message=message, line=line + 1, column=column + 1, hint=hint))


def _bare_expression(line: str) -> re.Match[str] | None:
    """The unquoted expression at the start of a value in a line of YAML."""
    match = _BARE_EXPRESSION.search(line)
    if match is None:
        return None
    # After an odd number of quotes the braces are within a quoted text.
    before = line[: match.start(1)]
    return None if before.count('"') % 2 or before.count("'") % 2 else match


def marks(text: str, loader: type[Any] = LOADER) -> Iterator[Mark]:
    """Split a text into marks, up to the first syntax error."""
    try:
        for event in _events(text, loader):
            if isinstance(event, CollectionEndEvent):
                yield Mark("}", 0, 0)
            elif isinstance(event, NodeEvent):
                yield _mark(event)
    except yaml.YAMLError:
        return


def _mark(event: Any) -> Mark:
    start: Any = event.start_mark
    line, column = start.line + 1, start.column + 1
    if isinstance(event, ScalarEvent):
        return Mark(".", line, column, event.value, event.implicit[0])
    if isinstance(event, CollectionStartEvent):
        return Mark("{" if isinstance(event, MappingStartEvent) else "[", line, column)
    return Mark(".", line, column)
