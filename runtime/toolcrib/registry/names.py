"""Names of tools: within a namespace, and as aliases that every provider of a model takes.

A tool of a source with a namespace is called `ns__tool`.

A name of letters, digits, `_` and `-`, at most 64 of them, is its own alias. In any other name each other character
becomes `_`. Where that is too long, is a tool's own name, or would stand for several tools, each tool that it would
stand for gets its first characters, `_`, and eight hexadecimal digits of BLAKE2b over its name instead.

So an alias depends on its tool's name, and on other tools only where two names would come to the same: it changes
when a tool appears with which it would be shared, and when the last such tool goes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from toolcrib.core.server_config import SEPARATOR

LONGEST = 64
"""Characters of an alias at most."""

_SAFE = re.compile(f"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile("[^A-Za-z0-9_-]")


def is_safe(name: str) -> bool:
    """Whether every provider takes the name as it is."""
    return _SAFE.fullmatch(name) is not None


def aliases_of(names: Collection[str]) -> dict[str, str]:
    """Name -> alias, of the names that are not their own alias. No two tools share one."""
    plain = {name: _OTHER.sub("_", name) for name in sorted(names) if not is_safe(name)}
    shared = Counter(plain.values())
    aliases = {
        name: alias
        for name, alias in plain.items()
        if is_safe(alias) and shared[alias] == 1 and alias not in names
    }
    taken = {*names, *aliases.values()}
    for name, start in plain.items():
        if name not in aliases:
            aliases[name] = _with_digest(name, start, taken)
            taken.add(aliases[name])
    return aliases


def _with_digest(name: str, start: str, taken: Collection[str]) -> str:
    from hashlib import blake2b  # noqa: PLC0415 -- slow to import, and few names need it

    salted = name.encode(errors="surrogatepass")
    while True:
        digest = blake2b(salted, digest_size=4).hexdigest()
        alias = f"{start[: LONGEST - 9]}_{digest}"
        if alias not in taken:
            return alias
        salted = digest.encode() + salted


def full_name(namespace: str, name: str) -> str:
    """How a tool of a namespace is called by everybody else."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def short_name(namespace: str, name: str) -> str:
    """What a tool of a namespace is called there; any other by the name that it has."""
    return name.removeprefix(f"{namespace}{SEPARATOR}") if namespace else name
