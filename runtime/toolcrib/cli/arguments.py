"""Arguments of a call on the command line: parse `key=text`, `key:=json` and files, and complete their names."""

from __future__ import annotations

import json
import math

from toolcrib.core.text import escape_terminal, first_sentence, unique_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

    import click

    from toolcrib.core.errors import Problem
    from toolcrib.core.model import JSON, Schema

SHORT, MOST_NESTED = 1000, 32
"""Characters and brackets. A longer or deeper JSON text may exceed a limit of the document reader."""


def read_arguments(words: Iterable[str], file: str | None = None) -> dict[str, Any]:
    """Return the arguments of a call; words override the members of the file.

    Args:
        words: Arguments in the form `key=text` or `key:=json`, or JSON objects with several.
        file: Path of a YAML or JSON file that contains an object; `-` is standard input.

    Raises:
        click.UsageError: A word is not an argument, has invalid JSON after `:=`, or repeats a key; or the file does not
            contain an object.
    """
    arguments = _of_file(file) if file is not None else {}
    seen: set[str] = set()
    for word in words:
        for key, value in _of_object(word) if word.startswith("{") else [_of_word(word)]:
            # A word overrides the file on purpose, but a repeated word is a typing error.
            if key in seen:
                raise _refused(f"duplicate argument `{key}`")
            seen.add(key)
            arguments[key] = value
    return arguments


def plain_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """Parse words that are obviously valid, without the document reader; return None for any others."""
    # This runs before click is imported. Importing click and the document reader takes longer than most calls.
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
    # A repeated key falls back to `read_arguments`, which reports it.
    return arguments if len(arguments) == len(words) else None


def complete_argument(
    schema: Schema | None, incomplete: str, given: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Complete the beginning of an argument: its name, or a value that its schema lists.

    Args:
        schema: Input schema of the tool; None if it is unknown.
        incomplete: The beginning of the word.
        given: The other words of the call, whose arguments are not offered again.

    Returns:
        Each word (`key=`, `key:=` for a list or an object, or `key=value`) with the first sentence of its description.
    """
    properties: Any = schema.get("properties", {}) if isinstance(schema, dict) else {}
    # bash splits words at `=` and `:`, so only the part before them is certain.
    taken = {word.partition("=")[0].rstrip(":") for word in given}
    name, equals, value = incomplete.partition("=")
    if equals:
        part = properties.get(name)
        values: Any = part.get("enum", ()) if isinstance(part, dict) else ()
        if isinstance(part, dict) and part.get("type") == "boolean":
            values = ("true", "false")
        return [(f"{name}={each}", "") for each in values if isinstance(each, str) and each.startswith(value)]
    found = []
    for key, part in properties.items():
        described = part if isinstance(part, dict) else {}
        # Text, numbers and booleans are coerced; lists and objects are JSON.
        word = f"{key}{':=' if described.get('type') in ('array', 'object') else '='}"
        if word.startswith(incomplete) and key not in taken:
            found.append((word, first_sentence(str(described.get("description", "")))))
    return found


def _split(word: str) -> tuple[str, str, bool] | None:
    """Return key, text and whether the text is JSON; None if the word is not an argument."""
    key, equals, text = word.partition("=")
    if not equals or key in {"", ":"} or key.startswith("{"):
        return None
    return (key[:-1], text, True) if key.endswith(":") else (key, text, False)


def _is_tame(text: str) -> bool:
    """Whether a JSON text is far below every limit of the document reader and contains no lone surrogate."""
    nested = text.count("[") + text.count("{")
    # `\u` may spell half of a surrogate pair, which the document reader reports with its position. `json`
    # accepts it.
    return len(text) <= SHORT and nested <= MOST_NESTED and text.isprintable() and "\\u" not in text


def _unlike(_text: str) -> NoReturn:
    raise ValueError


def _finite(text: str) -> float:
    # `1e999` is valid JSON, but overflows to infinity, which no result can be encoded with.
    value = float(text)
    return value if math.isfinite(value) else _unlike(text)


_PLAIN = json.JSONDecoder(object_pairs_hook=unique_members, parse_float=_finite, parse_constant=_unlike)


def _refused(message: str) -> click.UsageError:
    # A call with valid arguments never loads click.
    import click  # noqa: PLC0415

    return click.UsageError(escape_terminal(message))


def _of_word(word: str) -> tuple[str, JSON]:
    parts = _split(word)
    if parts is None:
        raise _refused(f"`{word}` is not an argument; use `key=text`, or `key:=json` for a JSON value")
    key, text, is_json = parts
    if not is_json:
        return key, text
    from toolcrib.loading.documents.document import parse_json  # noqa: PLC0415 -- only `:=` needs the reader

    value, problems = parse_json(key, text)
    if problems:
        hint = f"; to pass the text itself, use {_quoted(f'{key}={text}')}"
        raise _refused(f"the value of `{key}:=` is not valid JSON: {_told(problems)}{hint}")
    return key, value


def _of_object(word: str) -> Iterable[tuple[str, JSON]]:
    """The members of a JSON object."""
    from toolcrib.loading.documents.document import parse_json  # noqa: PLC0415 -- as above

    value, problems = parse_json("arguments", word)
    if problems:
        raise _refused(f"the arguments are not a valid JSON object: {_told(problems)}")
    assert isinstance(value, dict)  # noqa: S101 -- JSON that starts with a brace
    return value.items()


def _quoted(word: str) -> str:
    # The hint is meant to be pasted into a shell, where a word with blanks needs quotes.
    return f"`{word}`" if word.isprintable() and " " not in word else json.dumps(word)


def _of_file(file: str) -> dict[str, Any]:
    import click  # noqa: PLC0415 -- only `--args-file` needs it

    from toolcrib.loading.documents.document import parse_documents  # noqa: PLC0415

    shown = "standard input" if file == "-" else file
    with click.open_file(file, "rb") as stream:
        documents, problems = parse_documents(shown, stream.read())
    if problems:
        raise _refused(f"cannot read {shown}: {_told(problems)}")
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise _refused(f"{shown} must contain one object with the arguments by name")
    return dict(documents[0].value)


def _told(problems: Iterable[Problem]) -> str:
    return "; ".join(
        f"line {problem.line}, column {problem.column}: {problem.message}"
        if problem.line
        else problem.message
        for problem in problems
    )
