"""The header of an index: its fingerprints and the positions of its parts; and the JSON codec of indexes.

`toolcrib list` needs only this module, so it imports nothing slow: only the C code of `json`, because `json` itself
compiles regular expressions, which takes longer than reading an index.
"""

from __future__ import annotations

import gc
import os
import sys

import toolcrib
from toolcrib.core.user_folders import cache_folder
from toolcrib.loading.cache.store import IndexFolder
from toolcrib.loading.fingerprints import EnvironmentFingerprint, FileFingerprints, search_path
from toolcrib.loading.project_discovery import find_project

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    from toolcrib.loading.fingerprints import Entry, Names, State

MAX_DEPTH = 128
"""Maximum nesting depth: twice that of documents (`loading.documents.positions.DEPTH`), far below the recursion limit."""

INTEGER_BITS = 2_000
"""Maximum size of an integer. `PYTHONINTMAXSTRDIGITS` may forbid reading integers of more than 640 digits."""

_FIXED = frozenset({str, float, bool, type(None)})
"""Types whose values can always be encoded."""


def write_json(value: Any) -> bytes:
    """Encode a value, so that `read_json` returns an equal one.

    Raises:
        ValueError: It contains types other than those of JSON, or is nested too deep.
    """
    why = why_not_json(value)
    if why:
        raise ValueError(why)
    # Surrogates are not escaped, because two escaped ones in a row would be read as one character.
    return "".join(_encoder()(value, 0)).encode("utf-8", "surrogatepass")


def why_not_json(value: Any, depth: int = MAX_DEPTH) -> str:
    """Why a value cannot be encoded as JSON; empty if it can.

    Args:
        value: The value.
        depth: Maximum nesting depth.
    """
    # Exact types: a subclass (a NamedTuple, an enum) would be decoded as its base type.
    kind = type(value)
    if kind in _FIXED:
        return ""
    if kind is int:
        return "" if value.bit_length() <= INTEGER_BITS else f"an integer is longer than {INTEGER_BITS} bits"
    if kind is not dict and kind is not list:
        return f"`{kind.__name__}` cannot be encoded"
    if not depth:
        return f"values are nested deeper than {MAX_DEPTH} levels"
    if kind is dict and not {*map(type, value)} <= {str}:
        return "a key is not a string"
    for item in value.values() if kind is dict else value:
        # Nearly all items are text; checking them here instead of in a call makes this three times as fast.
        if type(item) not in _FIXED:
            why = why_not_json(item, depth - 1)
            if why:
                return why
    return ""


def with_lists(value: Any) -> Any:
    """Copy plain data with lists in place of tuples, which JSON does not have."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return [*map(with_lists, value)] if isinstance(value, tuple | list) else value


def read_json(text: bytes | memoryview) -> Any:
    """Decode a value.

    Raises:
        ValueError: The text is not JSON.
    """
    scan, decoded = _scanner(), str(text, "utf-8", "surrogatepass")
    try:
        value, end = scan(decoded, 0)
    # The C scanner raises StopIteration for text that is not JSON.
    except (StopIteration, RecursionError):
        raise ValueError("invalid JSON") from None
    if end != len(decoded):
        raise ValueError("trailing data after the JSON")
    return value


_ENCODERS: list[Callable[[Any, int], Iterable[str]]] = []


def _encoder() -> Callable[[Any, int], Iterable[str]]:
    """A function from a value and its depth to the pieces of its JSON text."""
    if not _ENCODERS:
        try:
            # Private modules of CPython; other interpreters use the fallback below.
            from _json import encode_basestring, make_encoder  # noqa: PLC0415

            # Like `json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))`. `why_not_json` excludes cycles (so no
            # dictionary of markers is needed) and other types (so `repr` is never called).
            _ENCODERS.append(make_encoder(None, repr, encode_basestring, None, ":", ",", False, False, True))
        except (ImportError, TypeError):
            from json import JSONEncoder  # noqa: PLC0415

            encoder = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
            _ENCODERS.append(lambda value, _level: encoder.iterencode(value))
    return _ENCODERS[0]


class _Options:
    """The options of the scanner, as `json.loads` sets them."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


_SCANNERS: list[Callable[[str, int], tuple[Any, int]]] = []


def _scanner() -> Callable[[str, int], tuple[Any, int]]:
    """A function from a text and a position to the value that starts there, and the position where it ends."""
    if not _SCANNERS:
        try:
            # A private module of CPython; other interpreters use the fallback below.
            from _json import make_scanner  # noqa: PLC0415

            _SCANNERS.append(make_scanner(_Options))  # type: ignore[arg-type]  # it asks for nothing but these
        except (ImportError, AttributeError):
            from json import JSONDecoder  # noqa: PLC0415

            _SCANNERS.append(JSONDecoder().raw_decode)
    return _SCANNERS[0]


SWITCH = "TOOLCRIB_INDEX"
"""The environment variable that turns indexes off: `off`, `0`, `no`, `false`."""

LISTINGS = "listings"
"""The part that `toolcrib list` prints."""

_LENGTH = 8

_STATE, _STATES = 6, "6q"
"""Number of integers in the state of a file that is not a link, and their binary layout."""

UNREADABLE = (OSError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of reading an index: those of the file system, and those of authentic content in an unexpected form."""

Span: TypeAlias = tuple[int, int]
"""Start and end of a part, relative to the end of the header. A tuple when written, a list when read."""

ListedTool: TypeAlias = "tuple[str, str | None, bool, str, str, str]"
"""A row of a list: name, mode, whether the tool has a block for the mode, flags, arguments, first sentence of the
description."""

Listing: TypeAlias = "tuple[Sequence[ListedTool], int, Sequence[str]]"
"""The offered tools, sorted by name; the number of hidden ones; the environment variables without which a tool is
unavailable."""

Listings: TypeAlias = "tuple[Listing | None, Mapping[str, Listing | None] | None]"
"""The listing without a requested profile; and those by profile, or None outside projects. A listing is None if
`toolcrib list` has more to print than tools."""

Modes: TypeAlias = "Mapping[str, bool]"
"""Name of an installed mode -> whether it is part of toolcrib."""


def index_folder() -> str | None:
    """The folder of indexes in the user's cache folder; None if indexes are turned off or there is no cache folder."""
    if os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "no", "false"}:
        return None
    folder = cache_folder()
    return os.path.join(folder, "index") if folder is not None else None


def index_key(paths: Sequence[str], also: Sequence[str] = ()) -> bytes | None:
    """The key of an index; None if the working directory was deleted.

    Args:
        paths: The given paths; empty to search from the working directory.
        also: Additional packs.
    """
    try:
        folder = os.getcwd()
    except OSError:
        return None
    # Everything that decides what is read but is not a file: the folder, the interpreter, and `sys.path`.
    project = find_project() if not paths else None
    code = (sys.version, sys.prefix, list(toolcrib.__path__), search_path())
    return repr((folder, tuple(paths), tuple(also), project, code)).encode("utf-8", "backslashreplace")


class IndexHeader:
    """The header of an index.

    Attributes:
        around: Fingerprint of the environment that checked the documents.
        seen: Fingerprints of the files that were read.
        parts: Name of a part -> its span.
        tags: The tags of the classes whose values are in the parts (`index.CLASSES`).
    """

    __slots__ = ("around", "parts", "seen", "tags")

    def __init__(
        self,
        around: EnvironmentFingerprint,
        seen: FileFingerprints,
        parts: dict[str, Span],
        tags: Collection[str] = (),
    ) -> None:
        self.around = around
        self.seen = seen
        self.parts = parts
        self.tags = tags

    def refreshed(self) -> IndexHeader | None:
        """An equivalent header that is faster to check next time; None if anything changed."""
        around = self.around.refreshed()
        seen = self.seen.refreshed() if around is not None else None
        if around is None or seen is None:
            return None
        return IndexHeader(around, seen, self.parts, self.tags)

    @property
    def doubts(self) -> int:
        """Number of files and folders that were modified so recently that checking them takes longer."""
        folders = (state for state, _names in (*self.seen.folders.values(), *self.around.path.values()))
        return len(self.seen.contents) + len(self.around.code.contents) + sum(not state for state in folders)

    def encoded(self, parts: bytes | memoryview) -> bytes:
        """The bytes of the whole index, given those of its parts.

        Raises:
            ValueError: Some value cannot be encoded as JSON.
        """
        tables: list[bytes] = []  # two for the code, then two for the documents
        plain = {
            "version": self.around.version,
            "code": _plain_seen(self.around.code, tables),
            "path": self.around.path,
            "newest": self.around.newest,
            "seen": _plain_seen(self.seen, tables),
            "parts": self.parts,
            "tags": sorted(self.tags),
            "tables": [*map(len, tables)],
        }
        text = write_json(with_lists(plain))
        return b"".join((len(text).to_bytes(_LENGTH, "big"), text, *tables, parts))


def parse_header(body: memoryview) -> tuple[IndexHeader, memoryview]:
    """Parse the header of an index; returns it and the bytes of the parts.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: The bytes are not an index.
    """
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "big")
    with GarbageCollectionPause():
        plain = read_json(body[_LENGTH:end])
        tables = []
        for length in plain["tables"]:
            tables.append(body[end : end + length])
            end += length
        code, seen = _seen_from(plain["code"], *tables[:2]), _seen_from(plain["seen"], *tables[2:])
        path: dict[str, Entry] = {
            folder: (tuple(state), tuple((name, tuple(points)) for name, points in distributions))
            for folder, (state, distributions) in plain["path"].items()
        }
    around = EnvironmentFingerprint(plain["version"], code, path, plain["newest"])
    return IndexHeader(around, seen, plain["parts"], plain["tags"]), body[end:]


def _plain_seen(seen: FileFingerprints, tables: list[bytes]) -> list[Any]:
    """Fingerprints as plain data; adds a table of paths and one of their states to `tables`."""
    # Nearly every state is six 64-bit integers, which take longer to read from JSON than the rest of the header.
    from struct import pack  # noqa: PLC0415

    # Inode numbers are unsigned and may exceed a signed 64-bit integer; such states stay in the JSON.
    regular = {
        path: state
        for path, state in seen.files.items()
        if len(state) == _STATE and all(-(1 << 63) <= number < 1 << 63 for number in state)
    }
    tables.append("\0".join(regular).encode("utf-8", "surrogatepass"))
    tables.append(b"".join(pack(_STATES, *state) for state in regular.values()))
    others = {path: state for path, state in seen.files.items() if path not in regular}
    contents = {path: digest.hex() for path, digest in seen.contents.items()}
    return [others, contents, seen.folders, seen.variables]


def _seen_from(plain: list[Any], paths: memoryview, states: memoryview) -> FileFingerprints:
    """Fingerprints from plain data and two tables."""
    others, contents, folders, variables = plain
    numbers = iter(states.cast("q").tolist())
    files: dict[str, State] = dict(
        zip(
            str(paths, "utf-8", "surrogatepass").split("\0"),
            zip(*[numbers] * _STATE, strict=True),
            strict=False,  # splitting an empty text gives one empty path
        )
    )
    files |= {path: tuple(state) for path, state in others.items()}
    named: dict[str, tuple[State, Names]] = {
        path: (tuple(state), None if names is None else tuple(names))
        for path, (state, names) in folders.items()
    }
    return FileFingerprints(
        files, {path: bytes.fromhex(digest) for path, digest in contents.items()}, named, variables
    )


def find_listing(also: Sequence[str], profile: str | None, *, insists: bool) -> tuple[Listing, Modes] | None:
    """The listing for `toolcrib list` without paths, and the installed modes; None if the index cannot supply it.

    That is the case without a valid index, for an unknown profile, and if there is more to print than tools.

    Args:
        also: Additional packs.
        profile: Name of the requested profile.
        insists: Whether the profile requires a project; else it is ignored outside projects.
    """
    # Answering from the header alone takes 26 ms, through click and the whole index 244 ms.
    folder, key = index_folder(), index_key((), also)
    if folder is None or key is None:
        return None
    cabinet = IndexFolder(folder)
    try:
        body = cabinet.read(key)
        if body is None:
            return None
        head, parts = parse_header(body)
        fresh = head.refreshed()
        if fresh is None or LISTINGS not in head.parts:
            return None
        start, end = head.parts[LISTINGS]
        (default, named), modes = read_json(parts[start:end])
        # Rewriting the header makes the next start faster: files that were "racy" are compared by metadata
        # from then on.
        if fresh.doubts < head.doubts:
            cabinet.write(key, fresh.encoded(parts))
    except UNREADABLE:
        return None
    counts = profile is not None and (insists or named is not None)
    listing = (named or {}).get(profile) if counts else default
    return None if listing is None else (listing, modes)


class GarbageCollectionPause:
    """Pauses garbage collection within a `with` block."""

    # Creating many objects triggers collections that visit all of them and find no garbage.

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_error: object) -> None:
        if self._was_on:
            gc.enable()
