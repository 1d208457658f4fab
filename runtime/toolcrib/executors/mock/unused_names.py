"""Names that a reply defines and nothing reads."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.pointers import pointer_step
from toolcrib.executors.mock.replies import STATEFUL
from toolcrib.expressions.loops import unused

_COMPUTED = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEY_OF = re.compile(r"\bkey_of\b\W*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def idle_names(block: Mapping[str, Any], pointer: str, used: Collection[str]) -> list[Problem]:
    """The rows without `missing` and the lets that neither the body nor the answer reads.

    Args:
        block: The reply.
        pointer: Where it stands.
        used: The names that the body reads.
    """
    if "template_file" in block:  # what the file reads is not known here
        return []
    answer = json.dumps({key: value for key, value in block.items() if key not in STATEFUL})
    read = {word for piece in _COMPUTED.findall(answer) for word in _WORD.findall(piece)}
    read |= {*used, *_KEY_OF.findall(json.dumps(block))}
    rows = {name: row for name, row in block.get("rows", {}).items() if "missing" not in row}
    return [
        unused(what, name, f"{pointer}/{key}/{pointer_step(name)}")
        for key, what, names in (("rows", "row", rows), ("let", "let", block.get("let", {})))
        for name in names
        if name not in read
    ]
