"""The arguments of a call as the command line writes them: `key=text`, `key:=json`, a file."""

from __future__ import annotations

import json
import math

from toolcrib.core.text import escape_terminal, unique_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

    import click

    from toolcrib.core.errors import Problem
    from toolcrib.core.model import JSON

SHORT, MOST_NESTED = 1000, 32
"""Characters and brackets. A JSON text with more of them may break a bound of documents."""


def read_arguments(words: Iterable[str], file: str | None = None) -> dict[str, Any]:
    """The arguments of a call: those of the file, then those of the words.

    Args:
        words: Each `key=text` or `key:=json`.
        file: Path of a YAML or JSON file with an object; `-` is the standard input.

    Raises:
        click.UsageError: A word is neither, has no JSON after `:=`, or names a key again; the file holds no object.
    """
    arguments = _of_file(file) if file is not None else {}
    seen: set[str] = set()
    for word in words:
        key, value = _of_word(word)
        if key in seen:
            raise _refused(f"`{key}` is given twice")
        seen.add(key)
        arguments[key] = value
    return arguments


def plain_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """What `read_arguments` makes of words that are in order at first sight; None of any others."""
    arguments: dict[str, Any] = {}
    for word in words:
        parts = _split(word)
        if parts is None:
            return None
        key, text, is_json = parts
        if is_json and not _is_tame(text):
            return None
        try:
            arguments[key] = _PLAIN.decode(text) if is_json else text
        except ValueError:
            return None
    return arguments if len(arguments) == len(words) else None


def _split(word: str) -> tuple[str, str, bool] | None:
    """Key, text, and whether the text is JSON; None for a word that is no argument."""
    key, equals, text = word.partition("=")
    if not equals or key in {"", ":"}:
        return None
    return (key[:-1], text, True) if key.endswith(":") else (key, text, False)


def _is_tame(text: str) -> bool:
    """Whether a JSON text is far from every bound of documents, and holds no halves of surrogate pairs."""
    nested = text.count("[") + text.count("{")
    return len(text) <= SHORT and nested <= MOST_NESTED and text.isprintable() and "\\u" not in text


def _unlike(_text: str) -> NoReturn:
    raise ValueError


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _unlike(text)


_PLAIN = json.JSONDecoder(object_pairs_hook=unique_members, parse_float=_finite, parse_constant=_unlike)


def _refused(message: str) -> click.UsageError:
    import click  # noqa: PLC0415 -- arguments that are in order need none of it

    return click.UsageError(escape_terminal(message))


def _of_word(word: str) -> tuple[str, JSON]:
    parts = _split(word)
    if parts is None:
        raise _refused(f"`{word}` is no argument: write `key=text`, or `key:=json` for a JSON value")
    key, text, is_json = parts
    if not is_json:
        return key, text
    from toolcrib.loading.documents.document import parse_json  # noqa: PLC0415 -- texts need none of it

    value, problems = parse_json(key, text)
    if problems:
        hint = f"; for the text itself write {_quoted(f'{key}={text}')}"
        raise _refused(f"what follows `{key}:=` is no JSON: {_told(problems)}{hint}")
    return key, value


def _quoted(word: str) -> str:
    return f"`{word}`" if word.isprintable() and " " not in word else json.dumps(word)


def _of_file(file: str) -> dict[str, Any]:
    import click  # noqa: PLC0415 -- as above

    from toolcrib.loading.documents.document import parse_documents  # noqa: PLC0415

    shown = "the standard input" if file == "-" else file
    with click.open_file(file, "rb") as stream:
        documents, problems = parse_documents(shown, stream.read())
    if problems:
        raise _refused(f"{shown} can't be read: {_told(problems)}")
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise _refused(f"{shown} must hold one object: the arguments by name")
    return dict(documents[0].value)


def _told(problems: Iterable[Problem]) -> str:
    return "; ".join(
        f"line {problem.line}, column {problem.column}: {problem.message}"
        if problem.line
        else problem.message
        for problem in problems
    )
