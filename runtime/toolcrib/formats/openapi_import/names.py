"""Names for models: of tools, of arguments and of variables, derived from those of a description."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

LONGEST: Final = 64
"""Maximum length of a name that every provider accepts."""

_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")
_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")


def tool_names(operations: Mapping[str, str]) -> dict[str, str]:
    """Key of an operation -> the name of its tool.

    A name is the operation's id, or method and path if it has none. Operations whose names are equal, also but for
    case, are all named by method and path, then by a digest in addition: the order of the operations does not matter.

    Args:
        operations: Key, such as `GET /pets/{id}`, -> the name that the description gives; empty for none.
    """
    names = {
        key: said if _SAFE.fullmatch(said) else _cut(_words(said), key) or _by_path(key)
        for key, said in operations.items()
    }
    for rename in (_by_path, _by_digest):
        taken = Counter(name.casefold() for name in names.values())
        names = {
            key: rename(key) if taken[name.casefold()] > 1 and rename(key) else name
            for key, name in names.items()
        }
    return names


def _by_path(key: str) -> str:
    method, _blank, path = key.partition(" ")
    path = _TEMPLATE.sub(lambda match: f" by {match[1]} ", path)
    return _cut(_words(f"{method.lower()} {path}"), key)


def _by_digest(key: str) -> str:
    return f"{_by_path(key)[: LONGEST - 9].rstrip('_')}_{_digest(key)}"


def _digest(key: str) -> str:
    return sha256(key.encode("utf-8", "replace")).hexdigest()[:8]


def _cut(name: str, key: str) -> str:
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9].rstrip('_')}_{_digest(key)}"


def _words(text: str) -> str:
    name = _OTHER.sub("_", text).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def argument_name(name: str) -> str:
    """The argument for a parameter: letters, digits and `_`, so that every provider and expression accepts it."""
    kept = _words(name)
    return kept[:LONGEST].rstrip("_") or "value"


def free_name(name: str, where: str, taken: Mapping[str, object]) -> str:
    """A name that is not taken: with the place of its parameter, then with a number."""
    if name not in taken:
        return name
    name = f"{name[: LONGEST - len(where) - 4]}_{where}"
    number, free = 2, name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def variable_name(*parts: str) -> str:
    """The name of an environment variable, such as `PETSTORE_API_KEY`."""
    words = [word for part in parts for word in _OTHER.sub("_", _split_case(part)).upper().split("_") if word]
    # `Petstore API` and `api_key` need not become PETSTORE_API_API_KEY.
    kept = [word for index, word in enumerate(words) if index == 0 or word != words[index - 1]]
    name = "_".join(kept)[:100] or "API"
    return f"_{name}" if name[0].isdigit() else name


def _split_case(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
