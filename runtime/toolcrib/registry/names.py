"""Names of tools: within a namespace, and as aliases that every model provider accepts.

A tool of a source with a namespace is named `ns__tool`.

A name of at most 64 letters, digits, `_` and `-` is its own alias. In other names, every other character becomes `_`.
If the result is too long, is the name of another tool, or is the same for several tools, the alias consists of its
first characters, `_`, and eight hexadecimal digits of the BLAKE2b hash of the name.

An alias depends on its tool's name, and on other tools only in a conflict: it changes when a conflicting tool appears,
and when the last conflicting tool is removed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from toolcrib.core.server_config import SEPARATOR

LONGEST = 64
"""Maximum length of an alias, in characters: the limit of the OpenAI and Anthropic APIs."""

_SAFE = re.compile(f"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile("[^A-Za-z0-9_-]")


def is_safe(name: str) -> bool:
    """Whether every provider accepts the name unchanged."""
    return _SAFE.fullmatch(name) is not None


def aliases_of(names: Collection[str]) -> dict[str, str]:
    """Name -> alias, for names that are not their own alias. Aliases are unique."""
    # Sorted, so that conflicts get the same aliases in every process: conversations are stored with them.
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
    # Deferred: `hashlib` is slow to import, and few names need a digest.
    from hashlib import blake2b  # noqa: PLC0415

    salted = name.encode(errors="surrogatepass")
    while True:
        digest = blake2b(salted, digest_size=4).hexdigest()
        alias = f"{start[: LONGEST - 9]}_{digest}"
        if alias not in taken:
            return alias
        # Two names may collide in 32 bits; hashing again with the digest is deterministic.
        salted = digest.encode() + salted


def full_name(namespace: str, name: str) -> str:
    """The full name of a tool in a namespace."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def short_name(namespace: str, name: str) -> str:
    """The name of a tool within its namespace; other names are unchanged."""
    return name.removeprefix(f"{namespace}{SEPARATOR}") if namespace else name
