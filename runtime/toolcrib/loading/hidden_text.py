"""Characters of documents that a person does not see, or not as what they are, and that a model or a terminal reads."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.security.hidden_characters import Hidden, each_hidden, spelt, texts_in, visible

MOST: Final = 20
"""Texts of one document that are told."""

MOST_CHARACTERS: Final = 100
"""Characters of one text that are counted."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPED: Final = re.compile(r"\\[bfru]")


def may_hide(text: str) -> bool:
    """Whether a document, as JSON without needless escapes, may hold a hidden character: a quick look."""
    return not text.isascii() or "\x7f" in text or _ESCAPED.search(text) is not None


def hidden_problems(value: JSON) -> list[Problem]:
    """A warning, `hidden_character`, for each text or key of a document that holds hidden characters.

    A pattern may name control characters: it is shown with their escapes.
    """
    problems: list[Problem] = []
    for path, text, in_key in texts_in(value) if isinstance(value, dict) else ():
        in_pattern = path[-2:-1] == ("patternProperties",) if in_key else path[-1] == "pattern"
        looked_at = _CONTROLS.sub(" ", text) if in_pattern else text
        found = [*islice(each_hidden(looked_at), MOST_CHARACTERS + 1)]
        if found and len(problems) == MOST:
            problems[-1] = problems[-1]._replace(hint="what follows holds more hidden characters")
            break
        if found:
            problems.append(_problem(found, pointer_of(path), "the key" if in_key else "the text"))
    return problems


def _problem(found: list[Hidden], pointer: str, what: str) -> Problem:
    first = found[0]
    count = f"{len(found) - 1}" if len(found) <= MOST_CHARACTERS else "many"
    more = f", and {count} more" if len(found) > 1 else ""
    message = f"{what} holds {first} ({first.why}){more}"
    said = spelt("".join(chr(each.code) for each in found))
    if said:
        message += f"; the tags spell `{visible(said)}`"
    hint = "leave it out, unless it is meant"
    return Problem(code="hidden_character", message=message, pointer=pointer, hint=hint, severity="warning")
