"""Values as plain data that `marshal` writes, and back; schemas and blocks pass as they are.

A tuple stands for something else, and its first item says for what: a class, a tuple, a mapping. Everything that
is no tuple stands for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.model import BUILT_IN_LIMITS, NO_FIXTURE, Collection, Origin

if TYPE_CHECKING:
    from toolcrib.protocols import Files

_THEMSELVES = frozenset({str, int, float, bool, dict, list, set, frozenset, type(None)})
_TUPLE, _MAPPING, _ORIGIN, _LIMITS, _NOTHING_KEPT = "()", "{}", "@", "=", "-"
_OF_ORIGIN = tuple(name for name in Origin._fields if name not in {"files", "locate"})


def to_plain(value: Any) -> Any:
    """A value as plain data.

    Raises:
        Unkept: Something is no plain data, does not lie on disk, or is out of date.
    """
    if type(value) in _THEMSELVES:
        return value
    if isinstance(value, Origin):
        return _plain_origin(value)
    if value is BUILT_IN_LIMITS:  # those of most tools
        return (_LIMITS,)
    if value is NO_FIXTURE:
        return (_NOTHING_KEPT,)
    if isinstance(value, Collection) and value.file:
        value = value._replace(rows=None)  # they are read again where a mock asks for them
    if isinstance(value, tuple):
        items = map(to_plain, value)
        return (_TUPLE, *items) if type(value) is tuple else (_name_of(type(value)), *items)
    if isinstance(value, MappingProxyType):
        return _MAPPING, {key: to_plain(item) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return (
            _name_of(type(value)),
            *(to_plain(getattr(value, name)) for name in value.__dataclass_fields__),
        )
    from toolcrib.loading.recalling import Unkept  # noqa: PLC0415 -- a start from an index reads no documents

    raise Unkept(f"`{type(value).__name__}` is no plain data")


def from_plain(value: Any) -> Any:
    """The value again."""
    if type(value) is not tuple:
        return value
    kind = value[0]
    if kind == _ORIGIN:
        return _origin_from(value)
    if kind == _MAPPING:
        return MappingProxyType({key: from_plain(item) for key, item in value[1].items()})
    items = _items_from(value[1:])
    if kind == _TUPLE:
        return tuple(items)
    if kind == _LIMITS:
        return BUILT_IN_LIMITS
    if kind == _NOTHING_KEPT:
        return NO_FIXTURE
    cls = _CLASSES.get(kind) or _class(kind)
    if issubclass(cls, tuple):
        return cls(*items)
    return cls(**dict(zip(cls.__dataclass_fields__, items, strict=True)))


def _items_from(items: tuple[Any, ...]) -> list[Any]:
    return [from_plain(item) if type(item) is tuple else item for item in items]


_CLASSES: dict[str, Any] = {}


def _class(name: str) -> Any:
    module, _, path = name.partition(":")
    if module not in sys.modules:
        import_module(module)
    found = _CLASSES[name] = getattr(sys.modules[module], path)
    return found


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _plain_origin(origin: Origin) -> Any:
    from toolcrib.loading.recalling import Unkept, document_behind, plain_files, plain_text  # noqa: PLC0415

    if origin.stale:
        raise Unkept(f"{origin.source} is not what is in force: {origin.stale}")
    text = plain_text(document_behind(origin), origin.files, "")
    values = (to_plain(getattr(origin, name)) for name in _OF_ORIGIN)
    return _ORIGIN, tuple(values), text, plain_files(origin.files)


def _origin_from(value: Any) -> Origin:
    _kind, values, text, files = value
    known = dict(zip(_OF_ORIGIN, _items_from(values), strict=True))
    return Origin(**known, files=None if files is None else _Beside(files), locate=_Places(text))


class _Places:
    """From JSON Pointers to lines and columns. The text is read again when somebody asks."""

    __slots__ = ("_locate", "_text")

    def __init__(self, text: Any) -> None:
        self._text = text
        self._locate: Callable[[str], tuple[int, int]] | None = None

    def __call__(self, pointer: str) -> tuple[int, int]:
        if self._locate is None:
            from toolcrib.loading.recalling import locator  # noqa: PLC0415 -- who asks for no line reads no text

            self._locate = locator(self._text)
        return self._locate(pointer)


class _Beside:
    """The files that a document names. What reads them is imported when one is read."""

    __slots__ = ("_files", "_plain")

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._files: Files | None = None

    def of(self, pointer: str) -> Files | None:
        from toolcrib.loading.files import files_at  # noqa: PLC0415 -- as above

        files = self._opened()
        return None if files is None else files_at(files, pointer)

    def read(self, name: str) -> bytes:
        files = self._opened()
        if files is None:
            raise FileNotFoundError(name)
        return files.read(name)

    def _opened(self) -> Files | None:
        if self._files is None:
            from toolcrib.loading.recalling import files_from  # noqa: PLC0415 -- as above

            self._files = files_from(self._plain)
        return self._files
