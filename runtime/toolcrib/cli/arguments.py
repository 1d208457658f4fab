"""The arguments of a call as the command line writes them: `key=text`, `key:=json`, a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from toolcrib.errors import Problem
from toolcrib.loading.documents import parse_documents, parse_json
from toolcrib.model import JSON
from toolcrib.text import escape_terminal


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


def _refused(message: str) -> click.UsageError:
    return click.UsageError(escape_terminal(message))


def _of_word(word: str) -> tuple[str, JSON]:
    key, equals, text = word.partition("=")
    if not equals or key in {"", ":"}:
        raise _refused(f"`{word}` is no argument: write `key=text`, or `key:=json` for a JSON value")
    if not key.endswith(":"):
        return key, text
    value, problems = parse_json(key[:-1], text)
    if problems:
        hint = f"; for the text itself write {_quoted(f'{key[:-1]}={text}')}"
        raise _refused(f"what follows `{key}=` is no JSON: {_told(problems)}{hint}")
    return key[:-1], value


def _quoted(word: str) -> str:
    return f"`{word}`" if word.isprintable() and " " not in word else json.dumps(word)


def _of_file(file: str) -> dict[str, Any]:
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
