"""How every place is named: in a document or value by JSON Pointers (RFC 6901), on disk by `file:line`."""

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


def file_and_line(place: str) -> tuple[str, int]:
    """The two parts of `file:line`; of what ends with no line, all of it and 0."""
    file, _colon, line = place.rpartition(":")
    return (file, int(line)) if line.isdigit() else (place, 0)
