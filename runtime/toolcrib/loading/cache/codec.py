"""Values as plain data for JSON, and back; schemas and blocks are kept as they are.

A list is an encoded value. Its first item, the tag, says what it is: a class, a tuple, a mapping or a list. Anything
but a list is itself. The classes and their modules are in a table in this module; an unknown tag is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.model import BUILT_IN_LIMITS, NO_FIXTURE, Collection, Origin
from toolcrib.loading.cache.json_codec import why_not_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolcrib.core.model import JSON
    from toolcrib.core.protocols import Files, Kinds
    from toolcrib.loading.documents.document import Document
    from toolcrib.loading.formats import Formats

CLASSES: Final = MappingProxyType(
    {
        "Annotations": "toolcrib.core.model",
        "Backoff": "toolcrib.core.model",
        "Bounds": "toolcrib.core.model",
        "Breaker": "toolcrib.core.model",
        "Collection": "toolcrib.core.model",
        "Descriptor": "toolcrib.core.model",
        "Example": "toolcrib.core.model",
        "Fixture": "toolcrib.core.model",
        "Guardrail": "toolcrib.loading.prompts",
        "Icon": "toolcrib.core.model",
        "InjectedFault": "toolcrib.core.model",
        "Limits": "toolcrib.core.model",
        "Machine": "toolcrib.core.model",
        "Pack": "toolcrib.loading.packs",
        "Problem": "toolcrib.core.errors",
        "Profile": "toolcrib.loading.projects",
        "Profiles": "toolcrib.loading.cache.snapshot_codec",
        "Project": "toolcrib.loading.projects",
        "Prompt": "toolcrib.loading.prompts",
        "Rate": "toolcrib.core.model",
        "Server": "toolcrib.core.server_config",
        "Settings": "toolcrib.loading.settings",
        "SourceEntry": "toolcrib.loading.projects",
        "ToolPolicy": "toolcrib.security.tool_policy",
        "Toolset": "toolcrib.core.model",
        "PromptVariable": "toolcrib.loading.prompts",
        "Waiting": "toolcrib.loading.snapshot",
    }
)
"""The classes whose values an index may hold -> their modules. No module name is taken from an index."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_TUPLE, _LIST, _PLAIN_LIST, _DICT, _MAPPING = "()", "[]", "[=]", "{}", "{=}"
_SET, _FROZEN_SET, _BYTES = "{,}", "{,=}", "b"
_ORIGIN, _LIMITS, _NOTHING_KEPT = "@", "=", "-"
_OF_ORIGIN = tuple(name for name in Origin._fields if name not in {"files", "locate"})


def to_plain(value: Any) -> Any:
    """Encode a value as plain data.

    Raises:
        Unkept: Something is no plain data, does not lie on disk, or is out of date.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Origin):
        return _plain_origin(value)
    if value is BUILT_IN_LIMITS:  # those of most tools
        return [_LIMITS]
    if value is NO_FIXTURE:
        return [_NOTHING_KEPT]
    if isinstance(value, Collection) and value.file:
        value = value._replace(rows=None)  # they are read again where a mock asks for them
    plain = _plain_container(value)
    if plain is not None:
        return plain
    tag = type(value).__name__
    if CLASSES.get(tag) == type(value).__module__:
        names = getattr(value, "_fields", None) or value.__dataclass_fields__
        return [tag, *(to_plain(getattr(value, name)) for name in names)]
    from toolcrib.loading.cache_codec import Unkept  # noqa: PLC0415 -- a start from an index reads no documents

    raise Unkept(f"`{tag}` is no plain data")


def _plain_container(value: Any) -> Any:
    """Encode a container, which most often holds nothing but JSON; None for any other value."""
    kind = type(value)
    if kind is dict:
        return value if not why_not_json(value) else [_DICT, _plain_items(value)]
    if kind is MappingProxyType:
        return [_MAPPING, _plain_items(value)]
    if kind is list:
        return [_PLAIN_LIST, value] if not why_not_json(value) else [_LIST, *map(to_plain, value)]
    if kind is tuple:
        return [_TUPLE, *map(to_plain, value)]
    if kind is set or kind is frozenset:
        tag = _SET if kind is set else _FROZEN_SET
        return [tag, *map(to_plain, sorted(value, key=repr))]
    return [_BYTES, value.decode("latin-1")] if kind is bytes else None


def _plain_items(values: Any) -> dict[str, Any]:
    return {key: to_plain(item) for key, item in values.items()}


def from_plain(value: Any, kinds: Kinds | None = None) -> Any:
    """Decode a value.

    Args:
        value: What `to_plain` made.
        kinds: Brings the formats in which documents are found again that are not our own.

    Raises:
        KeyError: A tag is unknown.
    """
    if type(value) is not list:
        return value
    kind = value[0]
    if kind == _ORIGIN:
        return _origin_from(value, kinds)
    if kind in _OF_CONTAINERS:
        return _OF_CONTAINERS[kind](value, kinds)
    cls = _LOADED.get(kind) or _class(kind)
    items = _items_from(value, kinds)
    if cls is Collection:
        return with_row_reader(Collection(*items))
    if issubclass(cls, tuple):
        return cls(*items)
    return cls(**dict(zip(cls.__dataclass_fields__, items, strict=True)))


def with_row_reader(collection: Collection) -> Collection:
    """Let a collection whose rows lie in a file read them when a mock first asks for them."""
    if not collection.file or collection.fault:
        return collection

    def rows() -> Mapping[str, JSON]:
        from toolcrib.loading.stores import read_rows  # noqa: PLC0415 -- a start from an index reads no documents

        return read_rows(collection)

    return collection._replace(rows=rows)


def _items_from(value: list[Any], kinds: Kinds | None) -> list[Any]:
    return [from_plain(item, kinds) if type(item) is list else item for item in value[1:]]


def _dict_from(value: list[Any], kinds: Kinds | None) -> dict[str, Any]:
    return {key: from_plain(item, kinds) for key, item in value[1].items()}


_OF_CONTAINERS: Final[dict[str, Callable[[list[Any], Kinds | None], Any]]] = {
    _TUPLE: lambda value, kinds: tuple(_items_from(value, kinds)),
    _LIST: _items_from,
    _PLAIN_LIST: lambda value, _kinds: value[1],
    _DICT: _dict_from,
    _MAPPING: lambda value, kinds: MappingProxyType(_dict_from(value, kinds)),
    _SET: lambda value, kinds: set(_items_from(value, kinds)),
    _FROZEN_SET: lambda value, kinds: frozenset(_items_from(value, kinds)),
    _BYTES: lambda value, _kinds: value[1].encode("latin-1"),
    _LIMITS: lambda _value, _kinds: BUILT_IN_LIMITS,
    _NOTHING_KEPT: lambda _value, _kinds: NO_FIXTURE,
}


_LOADED: dict[str, Any] = {}


def _class(tag: str) -> Any:
    """The class with a tag.

    Raises:
        KeyError: There is none.
    """
    module = CLASSES[tag]
    if module not in sys.modules:
        import_module(module)
    found = _LOADED[tag] = getattr(sys.modules[module], tag)
    return found


def _plain_origin(origin: Origin) -> Any:
    from toolcrib.loading.cache_codec import Unkept, document_behind, plain_files, plain_text  # noqa: PLC0415

    if origin.stale:
        raise Unkept(f"{origin.source} is not what is in force: {origin.stale}")
    text = plain_text(document_behind(origin), origin.files, "")
    values = [to_plain(getattr(origin, name)) for name in _OF_ORIGIN]
    return [_ORIGIN, values, to_plain(text), to_plain(plain_files(origin.files))]


def _origin_from(value: list[Any], kinds: Kinds | None) -> Origin:
    _kind, values, text, files = value
    known = dict(zip(_OF_ORIGIN, map(from_plain, values), strict=True))
    beside = None if files is None else _Beside(from_plain(files))
    return Origin(**known, files=beside, locate=_Places(from_plain(text), kinds))


class _Places:
    """From JSON Pointers to lines and columns. The text is read again when somebody asks."""

    __slots__ = ("_kinds", "_locate", "_text")

    def __init__(self, text: Any, kinds: Kinds | None) -> None:
        self._text = text
        self._kinds = kinds
        self._locate: Callable[[str], tuple[int, int]] | None = None

    @property
    def document(self) -> Document | None:
        """The document, read again; None where it is no longer there."""
        from toolcrib.loading.cache_codec import document_from  # noqa: PLC0415 -- as below

        return document_from(self._text, self._formats())

    def __call__(self, pointer: str) -> tuple[int, int]:
        if self._locate is None:
            from toolcrib.loading.cache_codec import locator  # noqa: PLC0415 -- who asks for no line reads no text

            self._locate = locator(self._text, self._formats())
        return self._locate(pointer)

    def _formats(self) -> Formats:
        from toolcrib.loading.formats import NO_FORMATS, formats_of  # noqa: PLC0415 -- as above

        return NO_FORMATS if self._kinds is None else formats_of(self._kinds)


class _Beside:
    """The files that a document names. What reads them is imported when one is read."""

    __slots__ = ("_files", "_plain")

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._files: Files | None = None

    def of(self, pointer: str) -> Files | None:
        from toolcrib.loading.documents.files import files_at  # noqa: PLC0415 -- as above

        files = self._opened()
        return None if files is None else files_at(files, pointer)

    def read(self, name: str) -> bytes:
        files = self._opened()
        if files is None:
            raise FileNotFoundError(name)
        return files.read(name)

    def _opened(self) -> Files | None:
        if self._files is None:
            from toolcrib.loading.cache_codec import files_from  # noqa: PLC0415 -- as above

            self._files = files_from(self._plain)
        return self._files
