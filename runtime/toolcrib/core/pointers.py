"""JSON Pointers (RFC 6901) for places in documents and values, and `file:line` for places on disk."""

from __future__ import annotations

from collections.abc import Iterable


def pointer_step(key: str | int) -> str:
    """Return a key or index as one step of a pointer, without the slash; `~` and `/` are escaped (section 3)."""
    # `~` comes first: otherwise the `~` of an escaped `/` would be escaped again.
    return str(key).replace("~", "~0").replace("/", "~1")


def pointer_to(path: Iterable[str | int]) -> str:
    """Return the pointer of a path of keys and indexes."""
    return "".join(f"/{pointer_step(key)}" for key in path)


def keys_of(pointer: str) -> list[str]:
    """Return the keys and indexes of a pointer, each as text."""
    # `~1` comes first: `~01` stands for the key `~1` (RFC 6901, section 4).
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def file_and_line(place: str) -> tuple[str, int]:
    """Split `file:line`. Without a line number, the result is the whole text and 0."""
    # Split at the last colon, because a Windows path contains another one: `C:\tools\a.yaml:3`.
    file, _colon, line = place.rpartition(":")
    return (file, int(line)) if line.isdigit() else (place, 0)
