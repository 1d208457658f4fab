"""The comments of a text, with their places; `#` within a text is none."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import yaml


class Comment(NamedTuple):
    """A comment.

    Attributes:
        line: Its line, from 1.
        column: Its column, from 1.
        text: The text from `#` to the end of the line.
        concerns: The line that it belongs to: its own, or, if nothing stands before it, the next line with content.
    """

    line: int
    column: int
    text: str
    concerns: int


def comments_of(source: str, text: str) -> list[Comment]:
    """The comments of a YAML or Python text; none of JSON, and none of a text that cannot be read.

    Args:
        source: Name of the file, whose end says which language it is.
        text: The text.
    """
    if source.lower().endswith(".json") or "#" not in text:
        return []
    lines = text.splitlines()
    places = _of_python(text) if source.lower().endswith(".py") else _of_yaml(text, lines)
    return [_comment(lines, line, column) for line, column in places]


def _comment(lines: list[str], line: int, column: int) -> Comment:
    concerns = line
    if not lines[line - 1][: column - 1].strip():
        following = (
            at
            for at in range(line, len(lines))
            if lines[at].strip() and not lines[at].lstrip().startswith("#")
        )
        concerns = next(following, line - 1) + 1
    return Comment(line, column, lines[line - 1][column - 1 :], concerns)


def _of_python(text: str) -> Iterator[tuple[int, int]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1] + 1
    except (tokenize.TokenError, SyntaxError):
        return


def _of_yaml(text: str, lines: list[str]) -> Iterator[tuple[int, int]]:
    try:
        # PyYAML drops comments, so they are what stands behind `#` outside all scalars.
        scalars = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    except yaml.YAMLError:
        return
    covered: dict[int, list[tuple[int, int]]] = {}
    for token in scalars:
        start, end = token.start_mark, token.end_mark
        # The line of `|` may end with a comment.
        first = start.line + 1 if token.style in {"|", ">"} else start.line
        for line in range(first, end.line + 1):
            left = start.column if line == start.line else 0
            right = end.column if line == end.line else len(lines[line]) + 1 if line < len(lines) else 0
            covered.setdefault(line, []).append((left, right))
    for line, content in enumerate(lines):
        column = content.find("#")
        while column >= 0:
            begins = not column or content[column - 1] in " \t"
            if begins and not any(left <= column < right for left, right in covered.get(line, ())):
                yield line + 1, column + 1
                break
            column = content.find("#", column + 1)
