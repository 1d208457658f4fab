"""The registry: an immutable mapping from names to descriptors, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, did_you_mean
from toolcrib.core.model import Descriptor, Toolset
from toolcrib.registry.catalog import (
    Card,
    HiddenReason,
    Hit,
    Rule,
    VisibilityFilter,
    card_of,
    matches_filters,
)

if TYPE_CHECKING:
    from typing import Unpack

    from toolcrib.registry.catalog import Filters
    from toolcrib.registry.search import SearchIndex

T = TypeVar("T")

_SHOWN = 5
"""Names of tools that the `repr` of a registry holds."""

_MOST_DERIVATIVES = 64
"""Derived registries that one remembers."""


class _SharedLookups:
    """What was worked out of names and cards, by whichever of the registries that share them was asked first."""

    __slots__ = ("aliases", "finder", "names")

    def __init__(self) -> None:
        self.aliases: Mapping[str, str] | None = None
        self.names: Mapping[str, str] | None = None
        self.finder: SearchIndex | None = None


class Registry(Mapping[str, Descriptor]):
    """Tools by name, in the order of their names. Changing one gives a new registry.

    The mapping holds every tool that exists. Which of them are offered, to lists, searches and calls alike, is
    what `why_hidden` says.
    """

    __slots__ = ("_cards", "_derivatives", "_known", "_offer", "_revision", "_shown", "_tools")

    def __init__(self, tools: Iterable[Descriptor] = (), *, revision: int = 1) -> None:
        """Hold the tools.

        Raises:
            DocumentError: Two tools have the same name; both places are named.
        """
        kept, problems = without_duplicates(tools)
        if problems:
            raise DocumentError(problems)
        named = {tool.name: tool for tool in kept}
        self._tools: LazyMapping[Descriptor] = LazyMapping.of(named)
        self._cards: LazyMapping[Card] = LazyMapping(named, lambda name: card_of(named[name]))
        self._offer = VisibilityFilter()
        self._known = _SharedLookups()
        self._shown: Collection[str] | None = None
        self._derivatives: dict[tuple[int, ...], tuple[tuple[object, ...], Registry]] = {}
        self._revision = revision

    @classmethod
    def lazy(cls, cards: Iterable[Card] | Mapping[str, Card], make: Callable[[str], Descriptor]) -> Registry:
        """A registry of tools that are made when they are first asked for; queries make none.

        Args:
            cards: What queries know of each tool. The values of a mapping are looked up when a query needs them.
            make: From a name to the descriptor of which the card tells. It is called once for each name, unless
                it raises; what it raises comes through to whoever asked.

        Raises:
            ValueError: Two cards have the same name.
        """
        if not isinstance(cards, Mapping):
            cards = _by_name(cards)
        new = cls()
        new._hold(
            LazyMapping(cards, make),
            LazyMapping(cards, cards.__getitem__),
            VisibilityFilter(),
            _SharedLookups(),
        )
        return new

    @property
    def revision(self) -> int:
        """1 for a new registry, one more for each one derived from it."""
        return self._revision

    @property
    def cards(self) -> Mapping[str, Card]:
        """The card of every tool by name, each worked out when it is asked for; no descriptor is made for it."""
        return self._cards

    def __getitem__(self, name: str) -> Descriptor:
        return self._tools[name]

    @overload
    def get(self, name: str, /) -> Descriptor | None: ...

    @overload
    def get(self, name: str, /, default: Descriptor | T) -> Descriptor | T: ...

    def get(self, name: str, /, default: Any = None) -> Any:
        """The tool, or `default` where there is none; what making it raises is never taken for its absence."""
        return self[name] if name in self._tools else default

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        """Its size, and the first names: `Registry(78 tools: cancel_order, get_forecast, get_order, ...)`."""
        names = [*islice(self, _SHOWN), *(["..."] if len(self) > _SHOWN else [])]
        size = f"{len(self)} tool{'' if len(self) == 1 else 's'}"
        return f"Registry({size}: {', '.join(names)})" if names else f"Registry({size})"

    # Other tools.

    def with_tool(self, tool: Descriptor) -> Registry:
        """A new registry with this tool, in place of one of the same name."""
        return self.with_tools([tool])

    def with_tools(self, tools: Iterable[Descriptor]) -> Registry:
        """A new registry with these tools, each in place of one of the same name."""
        new = {tool.name: tool for tool in tools}
        cards = {name: card_of(tool) for name, tool in new.items()}
        return self._derived(self._tools.overlaid(new), self._cards.overlaid(cards))

    def without(self, *names: str) -> Registry:
        """A new registry without these tools.

        Raises:
            KeyError: No tool has one of the names.
        """
        for name in names:
            if name not in self:
                raise KeyError(name)
        return self._derived(self._tools.without(names), self._cards.without(names))

    def after(self, before: Registry) -> Registry:
        """The same tools as the next revision of another registry."""
        return self._derived(before=before)

    def changed(
        self,
        *,
        tool: Callable[[Descriptor], Descriptor],
        card: Callable[[Card], Card] = lambda card: card,
    ) -> Registry:
        """A new registry whose tools and cards are these ones after a change, made when they are asked for.

        Args:
            tool: From a descriptor to the changed one, or to the same object where nothing changes. It must
                leave the name alone.
            card: The same change for the card of a tool. The default is for changes that no card shows.
        """
        old_tools, old_cards = self._tools, self._cards
        return self._derived(
            LazyMapping(old_tools, lambda name: tool(old_tools[name])),
            LazyMapping(old_cards, lambda name: card(old_cards[name])),
        )

    def derived_once(self, why: tuple[object, ...], make: Callable[[], Registry]) -> Registry:
        """What `make` derives from this registry. It is made once for the same objects `why`, and remembered.

        Args:
            why: What the new registry depends on besides this one. The objects are told apart by identity.
            make: Derives it.
        """
        key = tuple(map(id, why))
        known = self._derivatives.get(key)
        if known is None:
            if len(self._derivatives) >= _MOST_DERIVATIVES:
                self._derivatives.clear()
            # The objects are held, so that no other ones can have their identities.
            known = self._derivatives[key] = (why, make())
        return known[1]

    # What is offered.

    def disabled(self, *globs: str, place: str = "") -> Registry:
        """A new registry that does not offer the tools whose names fit; they still exist.

        Args:
            globs: Globs over names, case-sensitive.
            place: Where that is written, for people: `toolcrib.yaml:12 (profile ci)`.

        Raises:
            TypeError: A glob is no text.
        """
        return self.with_rules([Rule(globs, enables=False, place=place)])

    def enabled(self, *globs: str, place: str = "") -> Registry:
        """A new registry that offers the tools whose names fit, although they were disabled before.

        Raises:
            TypeError: A glob is no text.
        """
        return self.with_rules([Rule(globs, enables=True, place=place)])

    def with_rules(self, rules: Iterable[Rule]) -> Registry:
        """A new registry that disables and enables tools by these rules too, after those it has.

        Raises:
            TypeError: The globs of a rule are one text, or one of them is no text.
        """
        rules = tuple(rules)
        for rule in rules:
            _check_globs(rule.globs)
        return self._derived(offer=self._offer._replace(rules=(*self._offer.rules, *rules)))

    def closed(self, why: str, place: str) -> Registry:
        """A new registry that offers no tool, whatever enables one.

        Args:
            why: As long as what holds: `toolcrib.yaml:4 has errors`.
            place: Where that is written.
        """
        told = HiddenReason("closed", f"no tool is offered while {why}", place)
        return self._derived(offer=self._offer._replace(closed=told))

    def with_toolsets(self, toolsets: Iterable[Toolset]) -> Registry:
        """A new registry that knows these toolsets by name, for `within` and for queries, and no others."""
        known = MappingProxyType({toolset.name: toolset for toolset in toolsets})
        return self._derived(offer=self._offer._replace(toolsets=known))

    def within(self, toolset: Toolset | str | None) -> Registry:
        """A new registry that offers only the tools of this toolset, in place of the one in force before.

        Args:
            toolset: A toolset, the name of one that the registry knows, or None for none.

        Raises:
            ConfigurationError: The registry knows no toolset of the name.
        """
        if isinstance(toolset, str):
            if toolset not in self.toolsets:
                hint = did_you_mean(toolset, self.toolsets) or _listing(self.toolsets)
                raise ConfigurationError(f"unknown toolset `{toolset}`", code="unknown_toolset", hint=hint)
            toolset = self.toolsets[toolset]
        return self._derived(offer=self._offer._replace(toolset=toolset))

    @property
    def toolsets(self) -> Mapping[str, Toolset]:
        """The toolsets that are known, by name."""
        return self._offer.toolsets

    @property
    def toolset(self) -> Toolset | None:
        """The toolset in force."""
        return self._offer.toolset

    @property
    def why_closed(self) -> str:
        """Why no tool is offered at all, in one sentence; empty where some may be."""
        closed = self._offer.closed
        return closed.message if closed is not None else ""

    def hidden(self, name: str) -> HiddenReason | None:
        """Why a tool is not offered, with code and place; None if it is. A name alone decides."""
        return self._offer.hidden(name)

    def why_hidden(self, name: str) -> str:
        """Why a tool is not offered, in one sentence; empty if it is."""
        hidden = self.hidden(name)
        return hidden.message if hidden is not None else ""

    # Queries.

    def query(self, *, hidden: bool = False, **filters: Unpack[Filters]) -> list[Card]:
        """The cards that fit, in the order of their names; no descriptor is made.

        Args:
            hidden: Also those of tools that are not offered.
            filters: As for `toolcrib.registry.catalog.matches_filters`: `name`, `tag`, `label`, `category`, `mode`, `source`, `pack`,
                `annotation`, `toolset`, `deprecated`, `experimental`, `match`.
        """
        test = self._test(filters, hidden=hidden)
        cards = self._cards.all()
        return cards if test is None else [card for card in cards if test(card)]

    def select(self, *, hidden: bool = False, **filters: Unpack[Filters]) -> list[Descriptor]:
        """The tools that fit, in the order of their names. See `query`; the tools that are found are made."""
        if not filters and (hidden or self._offer.is_everything):
            return self._tools.all()
        return [self[card.name] for card in self.query(hidden=hidden, **filters)]

    def search(
        self, text: str, *, limit: int | None = None, hidden: bool = False, **filters: Unpack[Filters]
    ) -> list[Hit]:
        """The tools that speak of the words of a text, the best first; no descriptor is made.

        How they are ranked: `toolcrib.registry.search`. Equal scores stand in the order of their names.

        Args:
            text: Words, in any case, with or without accents, whole or only their beginnings.
            limit: How many at most; None for all.
            hidden: Also tools that are not offered.
            filters: As for `query`.
        """
        if self._known.finder is None:
            from toolcrib.registry.search import SearchIndex  # noqa: PLC0415 -- calls need no search

            self._known.finder = SearchIndex(self._cards.all())
        test = self._test(filters, hidden=hidden)
        hits = (Hit(self._cards[name], score) for name, score in self._known.finder.scores(text))
        return list(islice((hit for hit in hits if test is None or test(hit.card)), limit))

    def near(self, name: str) -> list[str]:
        """The names of offered tools that a name which is not here may have meant, the nearest first."""
        from toolcrib.registry.search import near_names  # noqa: PLC0415 -- calls need no search

        return near_names(name, self._offered())

    def alias_of(self, name: str) -> str:
        """The name by which every provider of a model takes the tool: see `toolcrib.registry.names`.

        Raises:
            KeyError: No tool has the name.
        """
        if name not in self:
            raise KeyError(name)
        return self._aliases().get(name, name)

    def named_by_alias(self, alias: str) -> str | None:
        """The name of the tool that has an alias; None where none has."""
        if self._known.names is None:
            self._known.names = {its: name for name, its in self._aliases().items()}
        own = alias if alias in self and alias not in self._aliases() else None
        return self._known.names.get(alias, own)

    def _aliases(self) -> Mapping[str, str]:
        if self._known.aliases is None:
            from toolcrib.registry.names import aliases_of  # noqa: PLC0415 -- calls by name need none

            self._known.aliases = aliases_of(self._tools)
        return self._known.aliases

    def _test(self, filters: Filters, *, hidden: bool) -> Callable[[Card], bool] | None:
        test = matches_filters(**filters, toolsets=self.toolsets)
        if hidden or self._offer.is_everything:
            return test
        offered = self._offered()
        if test is None:
            return lambda card: card.name in offered
        return lambda card: card.name in offered and test(card)

    def _offered(self) -> Collection[str]:
        """The names of the tools that are offered, asked of each tool once."""
        if self._shown is None:
            everything = self._offer.is_everything
            self._shown = self if everything else {name for name in self if self._offer.hidden(name) is None}
        return self._shown

    def _derived(
        self,
        tools: LazyMapping[Descriptor] | None = None,
        cards: LazyMapping[Card] | None = None,
        offer: VisibilityFilter | None = None,
        before: Registry | None = None,
    ) -> Registry:
        new = Registry(revision=(self if before is None else before).revision + 1)
        new._hold(
            self._tools if tools is None else tools,
            self._cards if cards is None else cards,
            self._offer if offer is None else offer,
            self._known if tools is None and cards is None else _SharedLookups(),
        )
        return new

    def _hold(
        self,
        tools: LazyMapping[Descriptor],
        cards: LazyMapping[Card],
        offer: VisibilityFilter,
        known: _SharedLookups,
    ) -> None:
        self._tools, self._cards, self._offer, self._known, self._shown = tools, cards, offer, known, None


def _check_globs(globs: object) -> None:
    """Refuse one text for a list of texts: each of its letters would count, and a `*` fits every tool."""
    if isinstance(globs, str):
        raise TypeError(f"expected a tuple of globs, got the string `{globs}`; use (`{globs}`,)")
    if isinstance(globs, Iterable):
        for glob in globs:
            if not isinstance(glob, str):
                raise TypeError(
                    f"a glob must be a string, got {glob!r}; pass several globs as separate items"
                )


def _by_name(cards: Iterable[Card]) -> dict[str, Card]:
    named: dict[str, Card] = {}
    for card in cards:
        if named.setdefault(card.name, card) is not card:
            raise ValueError(f"duplicate card `{card.name}`")
    return named


def _listing(toolsets: Iterable[str]) -> str:
    return f"known toolsets: {', '.join(f'`{name}`' for name in toolsets) or 'none'}"


def how_many(registry: Registry) -> str:
    """How many tools are offered, as a sentence."""
    many = len(registry.query())
    return f"{many or 'no'} tool{' is' if many == 1 else 's are'} loaded"


def without_duplicates(tools: Iterable[Descriptor]) -> tuple[list[Descriptor], list[Problem]]:
    """The tools, the first of each name, and a problem for every other one."""
    first: dict[str, Descriptor] = {}
    problems = []
    for tool in tools:
        if tool.name in first:
            problems.append(_duplicate(first[tool.name], tool))
        else:
            first[tool.name] = tool
    return list(first.values()), problems


def _duplicate(first: Descriptor, second: Descriptor) -> Problem:
    """The problem of two tools of one name; it stands at the second and names the first."""
    line, column = second.origin.locate("/name")
    place = first.origin.overrides[-1] if first.origin.overrides else first.origin.place("/name")
    return Problem(
        code="duplicate_tool",
        message=f"duplicate tool `{second.name}`, already loaded from {place}",
        pointer="/name",
        hint="rename one of them, or remove one of the files",
        source=second.origin.source,
        line=line or second.origin.line,
        column=column or 1,
    )


class LazyMapping(Mapping[str, T], Generic[T]):
    """Values by name, in the order of their names; one that is not there yet is made when it is asked for.

    What `make` raises comes through, and the next look-up asks again.
    """

    __slots__ = ("_kept", "_make")

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._kept: dict[str, T | None] = dict.fromkeys(sorted(names))
        self._make = make

    @classmethod
    def of(cls, values: Mapping[str, T]) -> LazyMapping[T]:
        """Values that are all there."""
        made = cls((), values.__getitem__)
        made._kept = {name: values[name] for name in sorted(values)}
        return made

    def overlaid(self, new: Mapping[str, T]) -> LazyMapping[T]:
        """The same values but for the new ones. What is yet to be made is made for both at once."""
        kept = {**self._kept, **new}
        return self._with(
            kept if len(kept) == len(self._kept) else {name: kept[name] for name in sorted(kept)}
        )

    def without(self, names: Collection[str]) -> LazyMapping[T]:
        """The values of all other names. What is yet to be made is made for both at once."""
        return self._with({name: value for name, value in self._kept.items() if name not in names})

    def _with(self, kept: dict[str, T | None]) -> LazyMapping[T]:
        """Such values. However many are derived one from another, all ask the first for what is yet to be made."""
        first = self._make if isinstance(self._make, _First) else _First(self)
        derived: LazyMapping[T] = LazyMapping((), first)
        derived._kept = kept
        return derived

    def __getitem__(self, name: str) -> T:
        value = self._kept[name]
        if value is None:
            made = self._make(name)
            value = self._kept[name] = made
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def all(self) -> list[T]:
        """Every value, in the order of the names."""
        return [self[name] if value is None else value for name, value in self._kept.items()]


class _First(Generic[T]):
    """Asks the values that others were derived from."""

    __slots__ = ("_values",)

    def __init__(self, values: LazyMapping[T]) -> None:
        self._values = values

    def __call__(self, name: str) -> T:
        return self._values[name]
