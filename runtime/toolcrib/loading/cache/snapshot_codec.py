"""A stock as the bytes of an index, and back: each part is decoded when somebody asks for it.

The bytes are the length of the head (8, big-endian), the head, and behind it the parts. The head is all that is
needed to tell whether the index holds good, and where the parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from toolcrib.core.model import NO_FIXTURE, Descriptor, Fixture
from toolcrib.loading.cache.codec import CLASSES, from_plain, to_plain
from toolcrib.loading.cache.fingerprint import Surroundings
from toolcrib.loading.cache.header import LISTINGS, Head, Span, Uncollected
from toolcrib.loading.cache.json_codec import read_json, with_lists, write_json
from toolcrib.loading.settings import PROFILE_VARIABLE
from toolcrib.loading.snapshot import Stock
from toolcrib.registry.catalog import Card
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.core.protocols import Kinds
    from toolcrib.loading.cache.header import Listings, Modes
    from toolcrib.loading.scenarios.scenario import Scenario
    from toolcrib.loading.settings import Settings

T = TypeVar("T")


class Profiles(NamedTuple):
    """What a project puts in force, by profile.

    Attributes:
        default: Without a profile that somebody asks for.
        named: Name of a profile -> what it puts in force; None outside projects.
    """

    default: Settings
    named: Mapping[str, Settings] | None

    def chosen(self, profile: str | None, chosen_by: str) -> Settings | None:
        """What is in force under a profile; as `loading.projects.settings_of`, but None where that may raise."""
        if profile is None or (self.named is None and chosen_by == PROFILE_VARIABLE):
            return self.default
        found = self.named.get(profile) if self.named is not None else None
        return None if found is None else found._replace(chosen_by=chosen_by)


def encode(
    around: Surroundings,
    stock: Stock,
    modes: Modes,
    profiles: Profiles,
    *,
    listings: Listings | None = None,
) -> tuple[bytes, int]:
    """The bytes of an index, and how many of them a list needs.

    Raises:
        Unkept: Something can't be told as plain data.
        ValueError: As above, in a schema or block.
    """
    from toolcrib.loading.cache_codec import Unkept, plain_scenario  # noqa: PLC0415 -- a start from an index reads none

    if stock.seen is None:
        raise Unkept("not everything that was looked at can be followed")
    if stock.withheld:
        raise Unkept("some data was withheld, and may be read by the next start")
    for problem in stock.problems:
        if problem.code == "file_unreadable" and not problem.pointer:
            raise Unkept(f"{problem.source} may be readable for another user, or later, without a trace")
    blobs: list[bytes] = []
    end = 0

    def put(value: Any) -> Span:
        nonlocal end
        blobs.append(write_json(value))
        end += len(blobs[-1])
        return end - len(blobs[-1]), end

    registry = stock.registry
    first = {} if listings is None else {LISTINGS: put(with_lists([listings, modes]))}
    fixtures = _Fixtures(put)
    tools = {name: [*put(fixtures.apart(tool))] for name, tool in registry.items()}
    parts = first | {
        "tools": put(tools),
        "cards": put([with_lists(card) for card in registry.cards.values()]),
        "packs": put([to_plain(pack) for pack in stock.packs]),
        "projects": put([to_plain(project) for project in stock.projects]),
        "scenarios": put([to_plain(tuple(plain_scenario(scenario))) for scenario in stock.scenarios]),
        "rest": put([modes, to_plain(profiles), {name: to_plain(getattr(stock, name)) for name in _REST}]),
    }
    return Head(around, stock.seen, parts, CLASSES).encoded(b"".join(blobs))


class _Fixtures:
    """What stores begin with, each put once, however many tools share it."""

    def __init__(self, put: Callable[[Any], Span]) -> None:
        self._put = put
        self._spans: dict[int, Span] = {}

    def apart(self, tool: Descriptor) -> list[Any]:
        """The tool without its fixture, and where that is; None where nothing is kept."""
        fixture = tool.fixture
        if fixture is NO_FIXTURE:
            return [to_plain(tool), None]
        if id(fixture) not in self._spans:
            self._spans[id(fixture)] = self._put(to_plain(fixture))
        return [to_plain(tool._replace(fixture=NO_FIXTURE)), [*self._spans[id(fixture)]]]


_LARGE = frozenset({"registry", "packs", "projects", "scenarios", "seen"})
_REST = tuple(name for name in Stock._fields if name not in _LARGE)
"""What is needed whenever tools are called or listed, and small."""


class Recalled:
    """What was read of an index that holds good.

    Attributes:
        modes: The modes that were installed.
        profiles: What the project puts in force.
    """

    def __init__(self, head: Head, parts: memoryview) -> None:
        """Decode what every start needs.

        Raises:
            AttributeError, LookupError, TypeError, ValueError: The index has another form, or values of unknown
                classes.
        """
        if not CLASSES.keys() >= {*head.tags}:
            raise ValueError("it holds values of unknown classes")
        self._head = head
        self._parts = parts
        self._tools: Mapping[str, Span] = self._part("tools")
        self._fixtures: dict[Span, Fixture] = {}
        self.modes: Modes
        self.modes, profiles, self._rest = self._part("rest")
        self.profiles: Profiles = from_plain(profiles)

    def stock(self, kinds: Kinds) -> Stock:
        """The stock; its tools, packs, project and scenarios are made when they are asked for.

        Args:
            kinds: What the modes say of their blocks, for the scenarios, and the formats of other systems.
        """
        rest = {name: from_plain(value, kinds) for name, value in self._rest.items()}
        return Stock(
            registry=Registry.lazy(_Cards(self._tools, self._part), lambda name: self._tool(name, kinds)),
            packs=_Later(lambda: [from_plain(pack, kinds) for pack in self._part("packs")]),
            scenarios=_Later(lambda: self._scenarios(kinds)),
            projects=_Later(lambda: [from_plain(project, kinds) for project in self._part("projects")]),
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
        tool: Descriptor = from_plain(plain, kinds)
        return tool if kept is None else tool._replace(fixture=self._fixture((kept[0], kept[1])))

    def _fixture(self, span: Span) -> Fixture:
        """What the stores of several tools begin with: one value, as it was."""
        if span not in self._fixtures:
            self._fixtures[span] = from_plain(self._decoded(span))
        return self._fixtures[span]

    def _scenarios(self, kinds: Kinds) -> Iterable[Scenario]:
        from toolcrib.loading.cache_codec import ScenarioText, scenarios_from  # noqa: PLC0415 -- calls need none

        texts = [ScenarioText(*from_plain(values)) for values in self._part("scenarios")]
        return scenarios_from(texts, self._tools, kinds)


class _Cards(Mapping[str, Card]):
    """The cards by name; all of them are decoded at once when the first is asked for."""

    def __init__(self, names: Mapping[str, Span], part: Callable[[str], Any]) -> None:
        self._names = names
        self._part = part
        self._cards: dict[str, Card] | None = None

    def __getitem__(self, name: str) -> Card:
        if self._cards is None:
            with Uncollected():
                self._cards = {values[0]: _card_from(values) for values in self._part("cards")}
        return self._cards[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_LABELS = Card._fields.index("labels")
_TUPLES = tuple(at for at, name in enumerate(Card._fields) if Card._field_defaults.get(name) == ())
"""The fields of a card that are tuples. JSON has none, and converting only these makes queries twice as fast."""


def _card_from(values: list[Any]) -> Card:
    values[_LABELS] = map(tuple, values[_LABELS])
    for at in _TUPLES:
        values[at] = tuple(values[at])
    return Card._make(values)


class _Later(Sequence[T]):
    """Values that are made when somebody looks at them."""

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
