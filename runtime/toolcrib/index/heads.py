"""What is read first of an index: for what it was written, whether it holds good, and where its parts are.

A list of tools begins here, so this module imports nothing that is slow.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys

import toolcrib
from toolcrib.index.cabinet import Cabinet
from toolcrib.index.surroundings import Surroundings, search_path, surroundings_from
from toolcrib.loading.finding import find_project
from toolcrib.loading.trail import Seen
from toolcrib.user_folders import cache_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

SWITCH = "TOOLCRIB_INDEX"
"""The environment variable that turns indexes off: `off`, `0`, `no`, `false`."""

LISTINGS = "listings"
"""The part that a list shows; it is the first, so that it can be read without the others."""

_LENGTH = 8

Span: TypeAlias = tuple[int, int]
"""Where a part begins and ends, counted from the end of the head."""

ListedTool: TypeAlias = "tuple[str, str | None, bool, str, str]"
"""What a list shows of a tool: name, mode, whether it has a block for it, flags, the first sentence about it."""

Listing: TypeAlias = "tuple[Sequence[ListedTool], int]"
"""The tools that are offered, in the order of their names, and how many more there are."""

Listings: TypeAlias = "tuple[Listing | None, Mapping[str, Listing | None] | None]"
"""Without a profile that somebody asks for; name of a profile -> with it, or None outside projects. None where a
list has more to tell than tools."""


def index_folder() -> str | None:
    """The folder of indexes in the user's caches; None where they are turned off, or there is no such folder."""
    if os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "no", "false"}:
        return None
    folder = cache_folder()
    return os.path.join(folder, "index") if folder is not None else None


def key_of(paths: Sequence[str], also: Sequence[str] = ()) -> bytes | None:
    """What tells one reading from another; None where the working directory is gone.

    Args:
        paths: As they were given; none for what is found from the working directory.
        also: What is read besides.
    """
    try:
        folder = os.getcwd()
    except OSError:
        return None
    project = find_project() if not paths else None
    code = (sys.version, sys.prefix, list(toolcrib.__path__), search_path())
    return repr((folder, tuple(paths), tuple(also), project, code)).encode("utf-8", "backslashreplace")


class Head:
    """What is read first of an index.

    Attributes:
        key: What it was written for.
        around: What judged the documents.
        seen: What was looked at.
        parts: Name of a part -> where it is.
    """

    __slots__ = ("around", "key", "parts", "seen")

    def __init__(self, key: bytes, around: Surroundings, seen: Seen, parts: dict[str, Span]) -> None:
        self.key = key
        self.around = around
        self.seen = seen
        self.parts = parts

    def refreshed(self) -> Head | None:
        """The same, for a faster look next time, or None where anything is different."""
        around = self.around.refreshed()
        seen = self.seen.refreshed() if around is not None else None
        if around is None or seen is None:
            return None
        return Head(self.key, around, seen, self.parts)

    @property
    def doubts(self) -> int:
        """How many looks take longer because something was touched a moment before it was noted."""
        folders = (state for state, _names in (*self.seen.folders.values(), *self.around.path.values()))
        return len(self.seen.contents) + len(self.around.code.contents) + sum(not state for state in folders)

    def encoded(self, parts: bytes | memoryview) -> tuple[bytes, int]:
        """The bytes of the whole index, given those of its parts; and how many of them a list needs."""
        told: Any = (self.key, self.around.plain(), tuple(self.seen), self.parts)
        head = marshal.dumps(told)
        listed = self.parts[LISTINGS][1] if LISTINGS in self.parts else 0
        return b"".join((len(head).to_bytes(_LENGTH, "big"), head, parts)), _LENGTH + len(head) + listed


def head_of(body: memoryview) -> tuple[Head, memoryview]:
    """The head of an index, and its parts.

    Raises:
        EOFError, TypeError, ValueError: The bytes are no index.
    """
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "big")
    with Uncollected():
        key, around, seen, parts = marshal.loads(body[_LENGTH:end])  # noqa: S302 -- the user's own folder
    return Head(key, surroundings_from(around), Seen(*seen), parts), body[end:]


def find_listing(
    also: Sequence[str], profile: str | None, *, insists: bool
) -> tuple[Listing, Mapping[str, str]] | None:
    """What a list shows of what is read where no path is given, and where the modes lie; None where nobody can tell.

    Nothing can be told without an index that holds good, of an unknown profile, and where something is to be
    told beside the tools.

    Args:
        also: What is read besides.
        profile: Name of the profile that is asked for.
        insists: Whether there must be a project for that; else the profile counts only in projects.
    """
    folder, key = index_folder(), key_of((), also)
    if folder is None or key is None:
        return None
    cabinet = Cabinet(folder)
    try:
        body = cabinet.read_beginning(key)
        if body is None:
            return None
        head, parts = head_of(body)
        fresh = head.refreshed() if head.key == key else None
        if fresh is None or LISTINGS not in head.parts:
            return None
        start, end = head.parts[LISTINGS]
        (default, named), targets = marshal.loads(parts[start:end])  # noqa: S302 -- as above
        if fresh.doubts < head.doubts:
            _settle(cabinet, key)
    except (OSError, EOFError, ValueError, TypeError):
        return None
    counts = profile is not None and (insists or named is not None)
    listing = (named or {}).get(profile) if counts else default
    return None if listing is None else (listing, targets)


def _settle(cabinet: Cabinet, key: bytes) -> None:
    """Write an index again that can be looked at faster from now on. Another one may be there by now."""
    body = cabinet.read(key)
    if body is None:
        return
    head, parts = head_of(body)
    fresh = head.refreshed() if head.key == key else None
    if fresh is not None and fresh.doubts < head.doubts:
        cabinet.write(key, *fresh.encoded(parts))


class Uncollected:
    """While very many values come to be, none of which is garbage, no garbage is looked for: `with Uncollected():`."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_error: object) -> None:
        if self._was_on:
            gc.enable()
