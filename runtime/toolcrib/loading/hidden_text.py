"""Characters of documents that a person does not see, or not as what they are, and that a model or a terminal reads."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from toolcrib.errors import Problem
from toolcrib.lock.hidden import Hidden, hidden_in, spelt, visible
from toolcrib.model import JSON

MOST: Final = 20
"""Texts of one document that are told."""

_ESCAPED: Final = re.compile(r"\\[bfru]")

_SPELT: Final = 100
"""Characters that tags spell which are told."""


def may_hide(text: str) -> bool:
    """Whether a document, as JSON without needless escapes, may hold a hidden character: a quick look."""
    return not text.isascii() or "\x7f" in text or _ESCAPED.search(text) is not None


def hidden_problems(value: JSON) -> list[Problem]:
    """A warning, `hidden_character`, for each text or key of a document that holds hidden characters.

    A pattern may name control characters: it is shown with their escapes.
    """
    if not isinstance(value, dict):
        return []
    found = [each for each in hidden_in(value) if not (_is_control(each.code) and _in_pattern(each))]
    texts = [[*those] for _place, those in groupby(found, lambda each: (each.where, each.in_key))]
    problems = [_problem(those) for those in texts[:MOST]]
    if len(texts) > MOST:
        problems[-1] = problems[-1]._replace(hint=f"{len(texts) - MOST:,} more texts hold hidden characters")
    return problems


def _problem(found: list[Hidden]) -> Problem:
    first = found[0]
    what = "the key" if first.in_key else "the text"
    more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
    message = f"{what} holds {first} ({first.why}){more}"
    said = spelt("".join(chr(each.code) for each in found))
    if said:
        message += f"; the tags spell `{visible(said[:_SPELT])}`"
    hint = "leave it out, unless it is meant"
    return Problem(
        code="hidden_character", message=message, pointer=first.where, hint=hint, severity="warning"
    )


def _is_control(code: int) -> bool:
    return code < 0x20 or 0x7F <= code < 0xA0


def _in_pattern(found: Hidden) -> bool:
    """Whether the character stands in a regular expression of a schema."""
    holder, _, key = found.where.rpartition("/")
    return holder.endswith("/patternProperties") if found.in_key else key == "pattern"
