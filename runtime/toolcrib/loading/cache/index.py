"""The index: encode a loaded project as bytes, and decode each part of it on demand.

The bytes are the length of the header (8, big-endian), the header and the parts. Values are JSON: a list is an encoded
value whose first item, the tag, names a class or a container; anything else stands for itself. The tags of classes
are in a table of this module, and an unknown tag is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

from toolcrib.core.model import BUILT_IN_LIMITS, NO_FIXTURE, Collection, Descriptor, Fixture, Origin
from toolcrib.loading.cache.header import (
    LISTINGS,
    UNREADABLE,
    GarbageCollectionPause,
    IndexHeader,
    Listings,
    Span,
    index_folder,
    parse_header,
    read_json,
    why_not_json,
    with_lists,
    write_json,
)
from toolcrib.loading.cache.store import IndexFolder
from toolcrib.loading.fingerprints import EnvironmentFingerprint, fingerprint_environment
from toolcrib.loading.settings import PROFILE_VARIABLE
from toolcrib.loading.snapshot import LoadedProject
from toolcrib.registry.catalog import Card
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.core.model import JSON
    from toolcrib.core.protocols import Files, Kinds
    from toolcrib.loading.cache.header import Modes
    from toolcrib.loading.documents.document import Document
    from toolcrib.loading.format_contract import Formats
    from toolcrib.loading.scenarios.model import Scenario
    from toolcrib.loading.settings import Settings

CLASSES: Final = MappingProxyType(
    {
        "AccessRule": "toolcrib.security.access",
        "AccessSettings": "toolcrib.security.access",
        "Annotations": "toolcrib.core.model",
        "Backoff": "toolcrib.core.model",
        "Bounds": "toolcrib.core.model",
        "Breaker": "toolcrib.core.model",
        "Collection": "toolcrib.core.model",
        "Dependencies": "toolcrib.core.model",
        "Descriptor": "toolcrib.core.model",
        "Estimate": "toolcrib.core.model",
        "Example": "toolcrib.core.model",
        "Fixture": "toolcrib.core.model",
        "Guardrail": "toolcrib.loading.prompts",
        "Icon": "toolcrib.core.model",
        "InjectedFault": "toolcrib.core.model",
        "Limits": "toolcrib.core.model",
        "Machine": "toolcrib.core.model",
        "Pack": "toolcrib.loading.packs",
        "PendingDescriptor": "toolcrib.loading.snapshot",
        "Problem": "toolcrib.core.errors",
        "Profile": "toolcrib.loading.projects",
        "Project": "toolcrib.loading.projects",
        "Prompt": "toolcrib.loading.prompts",
        "PromptVariable": "toolcrib.loading.prompts",
        "Rate": "toolcrib.core.model",
        "Server": "toolcrib.core.server_config",
        "Settings": "toolcrib.loading.settings",
        "SharedDefinitions": "toolcrib.core.model",
        "SettingsByProfile": "toolcrib.loading.cache.index",
        "SourceEntry": "toolcrib.loading.projects",
        "ToolPolicy": "toolcrib.security.tool_policy",
        "Toolset": "toolcrib.core.model",
    }
)
"""Classes whose values an index may contain, and their modules."""
# Unlike `pickle`, an index cannot name a module or a callable: a forged one can at worst contain wrong values.

_SCALARS = frozenset({str, int, float, bool, type(None)})
_TUPLE, _LIST, _PLAIN_LIST, _DICT, _MAPPING = "()", "[]", "[=]", "{}", "{=}"
_SET, _FROZEN_SET, _BYTES = "{,}", "{,=}", "b"
_ORIGIN, _LIMITS, _NOTHING_KEPT = "@", "=", "-"
_OF_ORIGIN = tuple(name for name in Origin._fields if name not in {"files", "locate"})


def encode_value(value: Any) -> Any:
    """Encode a value as plain data.

    Raises:
        NotCacheable: Some value cannot be encoded, is not on disk, or is stale.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Origin):
        return _plain_origin(value)
    # Most tools share these two values; one tag each keeps them shared after decoding, too.
    if value is BUILT_IN_LIMITS:
        return [_LIMITS]
    if value is NO_FIXTURE:
        return [_NOTHING_KEPT]
    if isinstance(value, Collection) and value.file:
        # The rows may have 64 MiB; they are read again when a mock needs them.
        value = value._replace(rows=None)
    plain = _plain_container(value)
    if plain is not None:
        return plain
    tag = type(value).__name__
    if CLASSES.get(tag) == type(value).__module__:
        names = getattr(value, "_fields", None) or value.__dataclass_fields__
        return [tag, *(encode_value(getattr(value, name)) for name in names)]
    # Deferred: a start from an index needs no document readers, which are slow to import.
    from toolcrib.loading.cache.document_codec import NotCacheable  # noqa: PLC0415

    raise NotCacheable(f"`{tag}` cannot be encoded")


def _plain_container(value: Any) -> Any:
    """Encode a container; None for any other value."""
    # A container of nothing but JSON is stored unchanged: checking that in C is faster than encoding every item.
    kind = type(value)
    if kind is dict:
        return value if not why_not_json(value) else [_DICT, _plain_items(value)]
    if kind is MappingProxyType:
        return [_MAPPING, _plain_items(value)]
    if kind is list:
        return [_PLAIN_LIST, value] if not why_not_json(value) else [_LIST, *map(encode_value, value)]
    if kind is tuple:
        return [_TUPLE, *map(encode_value, value)]
    if kind is set or kind is frozenset:
        tag = _SET if kind is set else _FROZEN_SET
        # Sorted, because the order of sets differs between processes and equal projects should give equal bytes.
        return [tag, *map(encode_value, sorted(value, key=repr))]
    # Latin-1 maps each byte to one character, which is shorter and faster than Base64.
    return [_BYTES, value.decode("latin-1")] if kind is bytes else None


def _plain_items(values: Any) -> dict[str, Any]:
    return {key: encode_value(item) for key, item in values.items()}


def decode_value(value: Any, kinds: Kinds | None = None) -> Any:
    """Decode a value.

    Args:
        value: The result of `encode_value`.
        kinds: Supplies the foreign formats, which are needed to find positions in their documents.

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
    # Named tuples take positional fields; dataclasses may be keyword-only.
    if issubclass(cls, tuple):
        return cls(*items)
    return cls(**dict(zip(cls.__dataclass_fields__, items, strict=True)))


def with_row_reader(collection: Collection) -> Collection:
    """Make a collection whose rows are in a file read them when a mock first needs them."""
    if not collection.file or collection.fault:
        return collection

    def rows() -> Mapping[str, JSON]:
        # Deferred: a start from an index needs no document readers, which are slow to import.
        from toolcrib.loading.stores import read_rows  # noqa: PLC0415

        return read_rows(collection)

    return collection._replace(rows=rows)


def _items_from(value: list[Any], kinds: Kinds | None) -> list[Any]:
    return [decode_value(item, kinds) if type(item) is list else item for item in value[1:]]


def _dict_from(value: list[Any], kinds: Kinds | None) -> dict[str, Any]:
    return {key: decode_value(item, kinds) for key, item in value[1].items()}


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
    from toolcrib.loading.cache.document_codec import (  # noqa: PLC0415
        NotCacheable,
        document_of_origin,
        encode_document,
        encode_files,
    )

    if origin.stale:
        # A stale tool comes from a version of the file that no longer exists, so it could not be loaded again.
        raise NotCacheable(f"{origin.source} differs from the active version: {origin.stale}")
    text = encode_document(document_of_origin(origin), origin.files, "")
    values = [encode_value(getattr(origin, name)) for name in _OF_ORIGIN]
    return [_ORIGIN, values, encode_value(text), encode_value(encode_files(origin.files))]


def _origin_from(value: list[Any], kinds: Kinds | None) -> Origin:
    _kind, values, text, files = value
    known = dict(zip(_OF_ORIGIN, map(decode_value, values), strict=True))
    beside = None if files is None else _LazyFiles(decode_value(files))
    return Origin(**known, files=beside, locate=_LazyPositions(decode_value(text), kinds))


class _LazyPositions:
    """Maps JSON Pointers to lines and columns; reads the text again on first use."""

    __slots__ = ("_kinds", "_locate", "_text")

    def __init__(self, text: Any, kinds: Kinds | None) -> None:
        self._text = text
        self._kinds = kinds
        self._locate: Callable[[str], tuple[int, int]] | None = None

    @property
    def document(self) -> Document | None:
        """The document, read again; None if it does not exist any more."""
        from toolcrib.loading.cache.document_codec import decode_document  # noqa: PLC0415

        return decode_document(self._text, self._formats())

    def __call__(self, pointer: str) -> tuple[int, int]:
        if self._locate is None:
            # Deferred: the document readers are slow to import, and calls need no positions.
            from toolcrib.loading.cache.document_codec import locator  # noqa: PLC0415

            self._locate = locator(self._text, self._formats())
        return self._locate(pointer)

    def _formats(self) -> Formats:
        from toolcrib.loading.format_contract import NO_FORMATS, formats_of  # noqa: PLC0415

        return NO_FORMATS if self._kinds is None else formats_of(self._kinds)


class _LazyFiles:
    """The files that a document names; their reader is imported when one is read."""

    __slots__ = ("_files", "_plain")

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._files: Files | None = None

    def of(self, pointer: str) -> Files | None:
        from toolcrib.loading.documents.files import files_at  # noqa: PLC0415

        files = self._opened()
        return None if files is None else files_at(files, pointer)

    def read(self, name: str) -> bytes:
        files = self._opened()
        if files is None:
            raise FileNotFoundError(name)
        return files.read(name)

    def _opened(self) -> Files | None:
        if self._files is None:
            from toolcrib.loading.cache.document_codec import decode_files  # noqa: PLC0415

            self._files = decode_files(self._plain)
        return self._files


T = TypeVar("T")


class SettingsByProfile(NamedTuple):
    """The settings of a project, by profile.

    Attributes:
        default: The settings if no profile is requested.
        named: Profile name -> settings; None outside projects.
    """

    default: Settings
    named: Mapping[str, Settings] | None

    def chosen(self, profile: str | None, chosen_by: str) -> Settings | None:
        """The settings of a profile; like `loading.projects.settings_of`, but None if that would raise."""
        if profile is None or (self.named is None and chosen_by == PROFILE_VARIABLE):
            return self.default
        found = self.named.get(profile) if self.named is not None else None
        return None if found is None else found._replace(chosen_by=chosen_by)


def encode_index(
    around: EnvironmentFingerprint,
    stock: LoadedProject,
    modes: Modes,
    profiles: SettingsByProfile,
    *,
    listings: Listings | None = None,
) -> bytes:
    """The bytes of an index.

    Raises:
        NotCacheable: Some value cannot be encoded, or would not be reproducible by a later start.
        ValueError: A schema or block contains a value that is not JSON.
    """
    # Deferred: a start from an index needs no document readers, which are slow to import.
    from toolcrib.loading.cache.document_codec import NotCacheable, encode_scenario  # noqa: PLC0415

    if stock.seen is None:
        raise NotCacheable("not every file that was read can be tracked")
    if stock.withheld:
        raise NotCacheable("some data was withheld in an untrusted workspace, and the next start may read it")
    for problem in stock.problems:
        if problem.code == "file_unreadable" and not problem.pointer:
            # A change of permissions or of the user need not change the metadata that fingerprints compare.
            raise NotCacheable(f"{problem.source} is unreadable, and may become readable without a change")
    blobs: list[bytes] = []
    end = 0

    def put(value: Any) -> Span:
        nonlocal end
        blobs.append(write_json(value))
        end += len(blobs[-1])
        return end - len(blobs[-1]), end

    registry = stock.registry
    fixtures = _Fixtures(put)
    tools = {name: [*put(fixtures.apart(tool))] for name, tool in registry.items()}
    parts = {
        "tools": put(tools),
        "cards": put([with_lists(card) for card in registry.cards.values()]),
        "packs": put([encode_value(pack) for pack in stock.packs]),
        "projects": put([encode_value(project) for project in stock.projects]),
        "scenarios": put([encode_value(tuple(encode_scenario(scenario))) for scenario in stock.scenarios]),
        "rest": put(
            [modes, encode_value(profiles), {name: encode_value(getattr(stock, name)) for name in _REST}]
        ),
    }
    if listings is not None:
        # A part of its own, so that `toolcrib list` decodes nothing else.
        parts[LISTINGS] = put(with_lists([listings, modes]))
    return IndexHeader(around, stock.seen, parts, CLASSES).encoded(b"".join(blobs))


class _Fixtures:
    """Writes each initial store once, however many tools share it."""

    def __init__(self, put: Callable[[Any], Span]) -> None:
        self._put = put
        self._spans: dict[int, Span] = {}

    def apart(self, tool: Descriptor) -> list[Any]:
        """The encoded tool without its fixture, and the span of the fixture; None if the store is initially empty."""
        fixture = tool.fixture
        if fixture is NO_FIXTURE:
            return [encode_value(tool), None]
        if id(fixture) not in self._spans:
            self._spans[id(fixture)] = self._put(encode_value(fixture))
        return [encode_value(tool._replace(fixture=NO_FIXTURE)), [*self._spans[id(fixture)]]]


_LARGE = frozenset({"registry", "packs", "projects", "scenarios", "seen"})
_REST = tuple(name for name in LoadedProject._fields if name not in _LARGE)
"""Small fields that every start needs; they are decoded together."""


class CachedProject:
    """A loaded project from a valid index.

    Attributes:
        modes: The modes that were installed when it was written.
        profiles: The settings of the project, by profile.
    """

    def __init__(self, head: IndexHeader, parts: memoryview) -> None:
        """Decode the parts that every start needs.

        Raises:
            AttributeError, LookupError, TypeError, ValueError: The index has another form, or values of unknown
                classes.
        """
        # Checked here instead of on decoding, because parts are decoded late, when falling back to the
        # documents is no longer possible.
        if not CLASSES.keys() >= {*head.tags}:
            raise ValueError("it holds values of unknown classes")
        self._head = head
        self._parts = parts
        self._tools: Mapping[str, Span] = self._part("tools")
        self._fixtures: dict[Span, Fixture] = {}
        self.modes: Modes
        self.modes, profiles, self._rest = self._part("rest")
        self.profiles: SettingsByProfile = decode_value(profiles)

    def load(self, kinds: Kinds) -> LoadedProject:
        """The loaded project, whose tools, packs, settings and scenarios are decoded on first use.

        Args:
            kinds: The schemas of the modes' blocks, for the scenarios, and the foreign formats.
        """
        rest = {name: decode_value(value, kinds) for name, value in self._rest.items()}
        return LoadedProject(
            registry=Registry.lazy(_Cards(self._tools, self._part), lambda name: self._tool(name, kinds)),
            packs=_LazySequence(lambda: [decode_value(pack, kinds) for pack in self._part("packs")]),
            scenarios=_LazySequence(lambda: self._scenarios(kinds)),
            projects=_LazySequence(
                lambda: [decode_value(project, kinds) for project in self._part("projects")]
            ),
            seen=self._head.seen,
            **rest,
        )

    def _part(self, name: str) -> Any:
        return self._decoded(self._head.parts[name])

    def _decoded(self, span: Span) -> Any:
        start, end = span
        return read_json(self._parts[start:end])

    def _tool(self, name: str, kinds: Kinds) -> Descriptor:
        plain, kept = self._decoded(self._tools[name])
        tool: Descriptor = decode_value(plain, kinds)
        return tool if kept is None else tool._replace(fixture=self._fixture((kept[0], kept[1])))

    def _fixture(self, span: Span) -> Fixture:
        """The initial store at a span; tools that shared one before share the same object again."""
        if span not in self._fixtures:
            self._fixtures[span] = decode_value(self._decoded(span))
        return self._fixtures[span]

    def _scenarios(self, kinds: Kinds) -> Iterable[Scenario]:
        # Deferred: calls need no scenarios, and their readers are slow to import.
        from toolcrib.loading.cache.document_codec import CachedScenario, decode_scenarios  # noqa: PLC0415

        texts = [CachedScenario(*decode_value(values)) for values in self._part("scenarios")]
        return decode_scenarios(texts, self._tools, kinds)


class _Cards(Mapping[str, Card]):
    """The cards by name. All are decoded together on first use, because a query reads all of them."""

    def __init__(self, names: Mapping[str, Span], part: Callable[[str], Any]) -> None:
        self._names = names
        self._part = part
        self._cards: dict[str, Card] | None = None

    def __getitem__(self, name: str) -> Card:
        if self._cards is None:
            with GarbageCollectionPause():
                self._cards = {values[0]: _card_from(values) for values in self._part("cards")}
        return self._cards[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# Pairs within a list need one more level of conversion than the other tuples.
_LABELS = Card._fields.index("labels")
_TUPLES = tuple(at for at, name in enumerate(Card._fields) if Card._field_defaults.get(name) == ())
"""The fields of a card that are tuples. JSON has none, and converting only these makes queries twice as fast."""


def _card_from(values: list[Any]) -> Card:
    values[_LABELS] = map(tuple, values[_LABELS])
    for at in _TUPLES:
        values[at] = tuple(values[at])
    return Card._make(values)


class _LazySequence(Sequence[T]):
    """A sequence whose values are created on first use."""

    def __init__(self, make: Callable[[], Iterable[T]]) -> None:
        self._make = make
        self._made: tuple[T, ...] | None = None

    def _values(self) -> tuple[T, ...]:
        if self._made is None:
            self._made = tuple(self._make())
        return self._made

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._values()[index]

    def __len__(self) -> int:
        return len(self._values())


def default_index() -> Index | None:
    """The index in the user's cache folder; None if it is turned off or the folder does not exist."""
    folder = index_folder()
    return Index(folder) if folder is not None else None


class Index:
    """The loaded projects in a cache folder. Several processes may read and write it concurrently."""

    def __init__(
        self,
        folder: str,
        around: Callable[[Iterable[str]], EnvironmentFingerprint | None] = fingerprint_environment,
    ) -> None:
        """Use a folder, which is created on the first write.

        Args:
            folder: The folder of the index files.
            around: Returns the fingerprint of the environment for the locations of modes.
        """
        self._cabinet = IndexFolder(folder)
        self._around = around

    def file(self, key: bytes) -> str:
        """The path of the file of a key, whether it exists or not."""
        return self._cabinet.path(key)

    def why_unused(self) -> str:
        """Why no index is read or written, as the end of a sentence about a file; empty if indexes are used."""
        return self._cabinet.why_unused()

    def recall(self, key: bytes) -> CachedProject | None:
        """The loaded project of a key, if nothing that it was loaded from has changed."""
        try:
            body = self._cabinet.read(key)
            if body is None:
                return None
            head, parts = parse_header(body)
            fresh = head.refreshed()
            if fresh is None:
                return None
            recalled = CachedProject(fresh, parts)
        except UNREADABLE as error:
            # The index is only a cache: if it is unusable for any reason, the documents are read instead.
            _tell("an index was not read", error)
            return None
        # Files that were touched just before the index was written are compared by content until this rewrite.
        if fresh.doubts < head.doubts:
            self._write(key, fresh.encoded(parts))
        return recalled

    def keep(
        self,
        key: bytes,
        stock: LoadedProject,
        targets: Mapping[str, str],
        profiles: SettingsByProfile,
        *,
        built_in: Container[str] = (),
        listings: Listings | None = None,
    ) -> None:
        """Write a loaded project, if all of it can be encoded.

        Args:
            key: The key of the request that it was loaded for.
            stock: The loaded and linked project, before any profile is applied.
            targets: The modes that checked it: mode -> `module:class`.
            profiles: The settings of its project.
            built_in: The modes that are part of toolcrib.
            listings: The output of `toolcrib list`; None if it has more to print than tools.
        """
        # Deferred: a start from an index needs no document readers, which are slow to import.
        from toolcrib.loading.cache.document_codec import NotCacheable  # noqa: PLC0415

        around = self._around(targets.values())
        if around is None:
            # The documents were checked by code that is not on disk any more, which no fingerprint describes.
            _tell("no index was written", "code was changed after it was imported")
            return
        try:
            modes = {mode: mode in built_in for mode in targets}
            written = encode_index(around, stock, modes, profiles, listings=listings)
        except (NotCacheable, ValueError) as error:
            _tell("no index was written", error)
            return
        self._write(key, written)

    def _write(self, key: bytes, body: bytes) -> None:
        try:
            self._cabinet.write(key, body)
        except OSError as error:
            _tell("an index was not written", error)


def project_profiles(stock: LoadedProject) -> SettingsByProfile:
    """The settings of each profile of a loaded project."""
    from toolcrib.loading.projects import settings_of  # noqa: PLC0415

    project = stock.project
    if project is None:
        return SettingsByProfile(settings_of(None), None)
    named = {name: settings_of(project, name) for name in project.profiles}
    return SettingsByProfile(settings_of(project), MappingProxyType(named))


def _tell(what: str, why: object) -> None:
    # Deferred: `logging` is slow to import, and most starts log nothing.
    import logging  # noqa: PLC0415

    logging.getLogger("toolcrib").debug("%s: %s", what, why)
