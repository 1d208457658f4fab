"""JSON Pointers (RFC 6901): how every place in a document or value is named."""

from __future__ import annotations

from collections.abc import Iterable


def pointer_step(key: str | int) -> str:
    """One step of a pointer, without its slash: `~` and `/` are escaped (section 3)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def pointer_to(path: Iterable[str | int]) -> str:
    """The pointer of a path of keys and indexes."""
    return "".join(f"/{pointer_step(key)}" for key in path)


def keys_of(pointer: str) -> list[str]:
    """The keys and indexes that a pointer goes through, each as text."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
