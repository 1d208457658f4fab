"""The words of commands in the syntax of a shell, without executing anything.

Two shells are read: a POSIX shell (quotes, `$'...'` of bash, continued lines, variables) and the cmd.exe of Windows, where
"copy as cURL" of browsers writes `^` before special characters. Variables become the marks of `variable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from toolcrib.formats.http_samples import variable


class ShellCommand(NamedTuple):
    """A command.

    Attributes:
        line: The line on which it begins, from 1.
        words: Its words, without assignments of variables before the command.
        rest: What follows it in its pipe.
    """

    line: int
    words: tuple[str, ...]
    rest: str


class UnclosedQuote(ValueError):
    """A quote is not closed, so that the end of the command is unknown."""


_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
)
SUBSTITUTION: Final = variable("(")
"""The mark of a part that another command writes."""

_SPACES: Final = " \t"
_ENDS: Final = "\n;&|"
_PLAIN: Final = re.compile(r"[^ \t\n;&|<>'\"\\$`]+")
_IN_QUOTES: Final = re.compile(r'[^"\\$`]+')
_BACKSLASHES: Final = re.compile(r"\\*")
_OF_CMD: Final = re.compile(r'[^\^"\n]+')
_OF_WINDOWS: Final = re.compile(r'[^\\" \t\n]+')
_IN_ANSI: Final = re.compile(r"[^'\\]+")
_REDIRECTION: Final = re.compile(r"\d?[<>]+&?[\d-]?[ \t]*")


def commands_of(text: str) -> Iterator[ShellCommand]:
    """The commands of a text.

    Raises:
        UnclosedQuote: After the commands before it.
    """
    text = text.replace("\r\n", "\n").lstrip("\ufeff")
    lines = _of_cmd(text) if is_cmd(text) else _Posix(text).commands()
    for command in lines:
        words = command.words
        # Documentation often shows the prompt of the shell, and variables before the command.
        while words and (words[0] in {"$", "%", ">", "#"} or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
            words = words[1:]
        if words:
            yield command._replace(words=words)


def is_cmd(text: str) -> bool:
    """Whether commands are written for cmd.exe: `^` before quotes, or at the end of lines."""
    return re.search(r"\^\"|\^[ \t]*(\n|$)", text) is not None


class _Posix:
    """Words of a POSIX shell, with `$'...'` of bash. Variables become marks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._begin = 0
        self._counted = 0
        self._lines = 0

    def commands(self) -> Iterator[ShellCommand]:
        """The commands, in order."""
        while self._at < len(self._text):
            start = self._at
            words: list[str] = []
            while (word := self._next_word()) is not None:
                start = start if words else self._begin
                words.append(word)
            rest = self._separator()
            if words:
                yield ShellCommand(self._line(start), tuple(words), rest)

    def _next_word(self) -> str | None:
        """The next word of the command; None at its end."""
        while self._at < len(self._text):
            redirection = _REDIRECTION.match(self._text, self._at)
            if self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] in _SPACES:
                self._at += 1
            elif self._text[self._at] == "#":
                self._at = self._end_of_line()
            elif self._text[self._at] in _ENDS:
                return None
            elif redirection is not None:
                # Its target is a word of its own.
                self._at = redirection.end()
                self._word()
            else:
                self._begin = self._at
                return self._word()
        return None

    def _separator(self) -> str:
        """Skip what ends a command, and return what follows it in its pipe."""
        text = self._text
        is_pipe = text.startswith("|", self._at) and not text.startswith("||", self._at)
        # An address without quotes ends at its first `&`, which is rarely meant.
        is_background = text.startswith("&", self._at) and not text.startswith("&&", self._at)
        self._at += 2 if text.startswith(("&&", "||"), self._at) else 1
        if not is_pipe:
            return "&" if is_background else ""
        begin, self._at = self._at, self._end_of_line()
        return text[begin : self._at].strip()

    def _line(self, at: int) -> int:
        """The number of a line; places are asked for in ascending order, but for quotes that are not closed."""
        if at < self._counted:
            return self._text.count("\n", 0, at) + 1
        self._lines += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._lines + 1

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _word(self) -> str:
        pieces: list[str] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign in _SPACES or sign in _ENDS or sign in "<>":
                break
            if sign == "'":
                pieces.append(self._until("'", self._at + 1))
            elif sign == '"':
                pieces.append(self._double())
            elif self._text.startswith("$'", self._at):
                pieces.append(self._ansi())
            elif sign == "\\":
                # A backslash before a newline joins the lines.
                if not self._text.startswith("\\\n", self._at):
                    pieces.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif sign in "$`":
                pieces.append(self._expansion())
            else:
                pieces.append(self._run(_PLAIN))
        return "".join(pieces)

    def _run(self, pattern: re.Pattern[str]) -> str:
        """The signs from here on that stand for themselves: one at least."""
        match = pattern.match(self._text, self._at)
        end = match.end() if match is not None else self._at + 1
        begin, self._at = self._at, end
        return self._text[begin:end]

    def _until(self, quote: str, start: int) -> str:
        end = self._text.find(quote, start)
        if end < 0:
            raise self._unclosed(quote)
        self._at = end + 1
        return self._text[start:end]

    def _unclosed(self, quote: str) -> UnclosedQuote:
        return UnclosedQuote(f"line {self._line(self._at)}: a {quote} is not closed")

    def _double(self) -> str:
        begin = self._at
        self._at += 1
        pieces: list[str] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == '"':
                self._at += 1
                return "".join(pieces)
            if sign == "\\":
                follower = self._text[self._at + 1 : self._at + 2]
                pieces.append(
                    "" if follower == "\n" else follower if follower in '$`"\\' else f"\\{follower}"
                )
                self._at += 2
            elif sign in "$`":
                pieces.append(self._expansion())
            else:
                pieces.append(self._run(_IN_QUOTES))
        self._at = begin
        raise self._unclosed('"')

    def _ansi(self) -> str:
        begin = self._at
        self._at += 2
        pieces: list[str] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == "'":
                self._at += 1
                return _joined_surrogates("".join(pieces))
            if sign != "\\":
                pieces.append(self._run(_IN_ANSI))
                continue
            code = re.compile(
                r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.))",
                re.DOTALL,
            ).match(self._text, self._at)
            if code is not None and code[5] is None:
                number = int(code[4], 8) if code[4] else int(code[1] or code[2] or code[3], 16)
                pieces.append(chr(number) if number <= 0x10FFFF else "\ufffd")
                self._at = code.end()
            else:
                follower = self._text[self._at + 1 : self._at + 2]
                pieces.append(_ESCAPES.get(follower, follower if follower in "\\'\"?" else f"\\{follower}"))
                self._at += 2
        self._at = begin
        raise self._unclosed("$'")

    def _expansion(self) -> str:
        """A `$` or a backquote: the mark of a variable, or a literal dollar."""
        match = re.compile(
            r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=?+]([^}]*))?\}|([0-9@*#?$!-]))"
        ).match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return variable(match[1] or match[2] or f"ARGUMENT_{match[4]}")
        found = re.compile(r"`[^`]*`|\$\{[^}]*\}").match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            return SUBSTITUTION
        if self._text.startswith("$(", self._at):
            self._skip_parentheses()
            return SUBSTITUTION
        self._at += 1
        return "$"

    def _skip_parentheses(self) -> None:
        depth, at = 0, self._at + 1
        while at < len(self._text):
            depth += {"(": 1, ")": -1}.get(self._text[at], 0)
            at += 1
            if depth == 0:
                break
        self._at = at


def _joined_surrogates(text: str) -> str:
    # Browsers escape UTF-16 code units: an emoji is two of them.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _of_cmd(text: str) -> Iterator[ShellCommand]:
    """Commands of cmd.exe: carets are removed, then quotes are read as programs of Windows read them."""
    line = 1
    for raw in _lines_of_cmd(text):
        words = tuple(_words_of_windows(raw))
        if words:
            yield ShellCommand(line, words, "")
        line += raw.count("\n") + 1


def _lines_of_cmd(text: str) -> Iterator[str]:
    pieces: list[str] = []
    quoted = False
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "^" and not quoted and at + 1 < len(text):
            follower = text[at + 1]
            if follower == "\n":
                # An escaped newline is a newline if an empty line follows, and else joins the lines.
                doubled = text.startswith("\n", at + 2)
                pieces.append("\n" if doubled else "")
                at += 3 if doubled else 2
                continue
            pieces.append(follower)
            at += 2
            continue
        if sign == '"':
            quoted = not quoted
        if sign == "\n":
            yield "".join(pieces)
            pieces, quoted = [], False
            at += 1
            continue
        run = _OF_CMD.match(text, at)
        end = run.end() if run is not None else at + 1
        pieces.append(text[at:end])
        at = end
    yield "".join(pieces)


def _words_of_windows(text: str) -> Iterator[str]:
    """The arguments of a command line, by the rules of Microsoft's C runtime."""
    at = 0
    while at < len(text):
        if text[at] in " \t\n":
            at += 1
            continue
        pieces: list[str] = []
        quoted = False
        while at < len(text) and (quoted or text[at] not in " \t\n"):
            slashes = _BACKSLASHES.match(text, at)
            count = len(slashes[0]) if slashes is not None else 0
            at += count
            if at < len(text) and text[at] == '"':
                pieces.append("\\" * (count // 2))
                if count % 2:
                    pieces.append('"')
                elif quoted and text.startswith('""', at):
                    pieces.append('"')
                    at += 1
                else:
                    quoted = not quoted
                at += 1
                continue
            pieces.append("\\" * count)
            if at < len(text) and (quoted or text[at] not in " \t\n"):
                run = _OF_WINDOWS.match(text, at)
                end = run.end() if run is not None else at + 1
                pieces.append(text[at:end])
                at = end
        yield "".join(pieces)
