"""The commonest expressions, read without a parser: `args.city`, `args.city | upper`.

Jinja2's lexer and parser take a hundred times as long as this for the same tree.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jinja2 import nodes

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PATH: Final = re.compile(rf"[ \t]*({_NAME}(?:\.{_NAME})*)[ \t]*((?:\|[ \t]*{_NAME}[ \t]*)*)")
_RESERVED: Final = frozenset(
    ["True", "False", "None", "true", "false", "none", "and", "or", "not", "if", "else", "in", "is"]
)
"""Names that may mean something else to the parser, at whatever place."""


@lru_cache(maxsize=256)
def read_path(source: str) -> nodes.Expr | None:
    """The tree of a path and of functions without arguments behind it; None where a parser is needed.

    It is the tree that Jinja2's parser makes of the same source. It is shared, and not to be changed.
    """
    match = _PATH.fullmatch(source)
    if match is None:
        return None
    path, functions = match.groups()
    names = path.split(".")
    filters = [name.strip() for name in functions.split("|")[1:]]
    if not _RESERVED.isdisjoint((*names, *filters)):
        return None
    node: nodes.Expr = nodes.Name(names[0], "load", lineno=1)
    for name in names[1:]:
        node = nodes.Getattr(node, name, "load", lineno=1)
    for name in filters:
        node = nodes.Filter(node, name, [], [], None, None, lineno=1)
    return node
