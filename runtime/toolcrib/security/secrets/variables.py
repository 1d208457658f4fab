"""`${...}` in texts of documents: what is looked up when a tool is bound, told apart from expressions.

`${VAR}` and `${env:VAR}` read the environment, `${file:/path}` a file, `${keyring:service/user}` the system's
keyring. `:-` gives a default: `${VAR:-text}`. `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step

Source = Literal["env", "file", "keyring"]

_OPENING: Final = re.compile(r"\$\$\{|\$\{")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SOURCES: Final = ("env", "file", "keyring")
_FORMS: Final = (
    "write `${VAR}`, `${VAR:-default}`, `${file:/path}` or `${keyring:service/user}`; "
    "for the characters themselves write `$${`"
)


class Variable(NamedTuple):
    """One look-up.

    Attributes:
        source: Where it is looked up.
        name: Of the variable in the environment, the file's path, or `service/user`.
        default: What stands in where there is nothing; None for none, then it has to be there.
        text: As it was written.
    """

    source: Source
    name: str
    default: str | None
    text: str


def pieces_of(text: str) -> list[str | Variable]:
    """A text, split where something is looked up. `$${` stays in the text pieces as it is: see `plain`.

    Raises:
        ExpressionError: With code `bad_variable`. What is written is not in its message: it may be a secret
            that happens to hold `${`.
    """
    pieces: list[str | Variable] = []
    start = position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        position = opening.end()
        if opening[0] == "$${":
            continue
        end = text.find("}", position)
        if end < 0:
            raise _bad(opening.start(), "is not closed", f"close it with `}}`; {_FORMS}")
        if start < opening.start():
            pieces.append(text[start : opening.start()])
        pieces.append(_variable(text[position:end], text[opening.start() : end + 1], opening.start()))
        start = position = end + 1
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def plain(piece: str) -> str:
    """A text piece as it is meant, where no expressions are read in it: `$${` is `${`."""
    return piece.replace("$${", "${")


def variables_of(value: JSON, pointer: str = "") -> Iterator[tuple[str, Variable]]:
    """All look-ups of the texts of a value that was checked, each with the pointer of its text."""
    if isinstance(value, str):
        yield from ((pointer, piece) for piece in pieces_of(value) if isinstance(piece, Variable))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from variables_of(item, f"{pointer}/{pointer_step(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from variables_of(item, f"{pointer}/{index}")


def check_variables(text: str, pointer: str) -> list[Problem]:
    """What is wrong with the look-ups of a text that stands at `pointer`."""
    try:
        pieces_of(text)
    except ExpressionError as error:
        return [error.problem(pointer)]
    return []


def _variable(inner: str, written: str, start: int) -> Variable:
    if "{" in inner:
        raise _bad(start, "holds a brace", "nothing is nested in a look-up, and a default holds no braces")
    name, given, default = inner.partition(":-")
    source, _colon, rest = name.partition(":") if ":" in name else ("env", "", name)
    if source == "env":
        if _NAME.fullmatch(rest) is None:
            raise _bad(start, "names no variable", _hint_for(rest))
        return Variable("env", rest, default if given else None, written)
    if source == "file":
        if not rest.startswith(("/", "~/")):
            raise _bad(start, "names no file by its whole path", "write `${file:/run/secrets/name}`")
        return Variable("file", rest, default if given else None, written)
    if source == "keyring":
        if not all(rest.rpartition("/")):
            raise _bad(start, "names no entry of a keyring", "write `${keyring:service/user}`")
        return Variable("keyring", rest, default if given else None, written)
    raise _bad(start, "names no place to look in", did_you_mean(source, _SOURCES) or _hint_for(inner))


def _hint_for(name: str) -> str:
    """The way out for what is written in place of a variable's name; other shells' forms come up most."""
    match = _NAME.match(name.strip())
    rest = name.strip()[match.end() :] if match is not None else ""
    if match is not None and not rest:
        return f"leave out the blanks: `${{{match[0]}}}`"
    if match is not None and rest.startswith(("-", "=", ":", "?")):
        return f"a default is written `${{{match[0]}:-text}}`; without one, `${{{match[0]}}}` has to be set"
    return f"a name has letters, digits and `_`; {_FORMS}"


def _bad(start: int, what: str, hint: str) -> ExpressionError:
    return ExpressionError(f"the `${{` at character {start + 1} {what}", code="bad_variable", hint=hint)
