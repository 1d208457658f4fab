"""The registry: an immutable mapping from names to descriptors, each created on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, did_you_mean
from toolcrib.core.model import Descriptor, Toolset
from toolcrib.registry.catalog import (
    CAPABILITIES,
    Card,
    HiddenReason,
    Hit,
    Look,
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
"""Number of tool names in the `repr` of a registry."""

_ROWS = 50
"""Number of tools in the table that notebooks show."""

# Runs of scenarios derive registries; without a bound, a registry that lives long would keep all of them alive.
_MOST_DERIVATIVES = 64
"""Maximum number of derived registries that a registry caches."""


class _SharedLookups:
    """Lookup tables that registries with the same names and cards share; the first use computes them."""

    __slots__ = ("aliases", "conditional", "finder", "names")

    def __init__(self) -> None:
        self.aliases: Mapping[str, str] | None = None
        self.conditional: bool | None = None
        self.names: Mapping[str, str] | None = None
        self.finder: SearchIndex | None = None


class Registry(Mapping[str, Descriptor]):
    """Tools by name, sorted. Every change returns a new registry.

    The mapping contains every existing tool. Lists, searches and calls offer only the visible ones; see `why_hidden`.
    """

    __slots__ = ("_cards", "_derivatives", "_known", "_offer", "_revision", "_shown", "_tools")

    def __init__(self, tools: Iterable[Descriptor] = (), *, revision: int = 1) -> None:
        """Create a registry of tools.

        Raises:
            DocumentError: Two tools have the same name; the problem names both places.
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
        """A registry whose descriptors are created on first use; queries need only the cards.

        Args:
            cards: The card of each tool. The values of a mapping are looked up when a query needs them.
            make: Creates the descriptor of a name. It is called once for each name unless it raises; the exception
                is passed to the caller.

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
        """1 for a new registry; a derived registry has the next number."""
        return self._revision

    @property
    def cards(self) -> Mapping[str, Card]:
        """The card of every tool by name, computed on first use without creating its descriptor."""
        return self._cards

    def __getitem__(self, name: str) -> Descriptor:
        try:
            return self._tools[name]
        except KeyError:
            # Creating a descriptor that exists may also raise one.
            if name in self._tools:
                raise
            hint = did_you_mean(str(name), self) or str(self)
            raise KeyError(f"unknown tool `{name}`; {hint}") from None

    @overload
    def get(self, name: str, /) -> Descriptor | None: ...

    @overload
    def get(self, name: str, /, default: Descriptor | T) -> Descriptor | T: ...

    def get(self, name: str, /, default: Any = None) -> Any:
        """The tool, or `default` if there is none."""
        # `Mapping.get` would also return the default if creating the descriptor raised a KeyError.
        return self[name] if name in self._tools else default

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        """The size and the first names: `Registry(78 tools: cancel_order, get_forecast, get_order, ...)`."""
        names = [*islice(self, _SHOWN), *(["..."] if len(self) > _SHOWN else [])]
        size = f"{len(self)} tool{'' if len(self) == 1 else 's'}"
        return f"Registry({size}: {', '.join(names)})" if names else f"Registry({size})"

    def _repr_html_(self) -> str:
        """A table for notebooks: name, mode and description of the first tools."""
        from html import escape  # noqa: PLC0415 -- only notebooks need it

        from toolcrib.core.text import first_sentence  # noqa: PLC0415 -- as above

        rows = []
        for card in islice(self.cards.values(), _ROWS):
            cells = (card.name, card.mode or "", first_sentence(card.description))
            rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
        more = f"<p>and {len(self) - _ROWS:,} more</p>" if len(self) > _ROWS else ""
        head = "<tr><th>tool</th><th>mode</th><th>description</th></tr>"
        return f"<table>{head}{''.join(rows)}</table>{more}"

    # Other tools.

    def with_tool(self, tool: Descriptor) -> Registry:
        """A new registry with this tool, replacing one of the same name."""
        return self.with_tools([tool])

    def with_tools(self, tools: Iterable[Descriptor]) -> Registry:
        """A new registry with these tools, replacing those of the same names."""
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
        """A new registry whose tools and cards are changed by functions, on first use.

        Args:
            tool: Returns the changed descriptor, or the same object if nothing changes. The name must not change.
            card: The same change for the card of a tool. Default: cards do not change.
        """
        old_tools, old_cards = self._tools, self._cards
        return self._derived(
            LazyMapping(old_tools, lambda name: tool(old_tools[name])),
            LazyMapping(old_cards, lambda name: card(old_cards[name])),
        )

    def derived_once(self, why: tuple[object, ...], make: Callable[[], Registry]) -> Registry:
        """Derive a registry once for the same `why`, and cache it.

        Args:
            why: The objects that the new registry depends on besides this one, compared by identity.
            make: Derives the registry.
        """
        key = tuple(map(id, why))
        known = self._derivatives.get(key)
        if known is None:
            if len(self._derivatives) >= _MOST_DERIVATIVES:
                self._derivatives.clear()
            # The entry keeps the objects alive, so that no other object can get the same `id`.
            known = self._derivatives[key] = (why, make())
        return known[1]

    # What is offered.

    def disabled(self, *globs: str, place: str = "") -> Registry:
        """A new registry that does not offer the matching tools; they still exist.

        Args:
            globs: Globs over names, case-sensitive.
            place: The place of the setting, for people: `toolcrib.yaml:12 (profile ci)`.

        Raises:
            TypeError: A glob is not a string.
        """
        return self.with_rules([Rule(globs, enables=False, place=place)])

    def enabled(self, *globs: str, place: str = "") -> Registry:
        """A new registry that offers the matching tools, even if they were disabled before.

        Raises:
            TypeError: A glob is not a string.
        """
        return self.with_rules([Rule(globs, enables=True, place=place)])

    def with_rules(self, rules: Iterable[Rule]) -> Registry:
        """A new registry with further rules that disable and enable tools, after the existing ones.

        Raises:
            TypeError: The globs of a rule are a single string, or one of them is not a string.
        """
        rules = tuple(rules)
        for rule in rules:
            _check_globs(rule.globs)
        return self._derived(offer=self._offer._replace(rules=(*self._offer.rules, *rules)))

    def closed(self, why: str, place: str) -> Registry:
        """A new registry that offers no tool, regardless of rules.

        Args:
            why: The reason, after "while": `toolcrib.yaml:4 has errors`.
            place: The place of the reason.
        """
        told = HiddenReason("closed", f"no tool is offered while {why}", place)
        return self._derived(offer=self._offer._replace(closed=told))

    def seen_by(self, look: Look | None) -> Registry:
        """A new registry that offers what access lets a caller see, replacing the caller before; None for everyone."""
        return self._derived(offer=self._offer._replace(access=look))

    def for_client(self, announced: Iterable[str]) -> Registry:
        """A new registry with the tools that exist for a client, replacing the capabilities of the client before.

        Args:
            announced: What the client can do: `client.fs.read_text_file`, `client.fs.write_text_file`, `client.terminal`.

        Raises:
            ConfigurationError: A capability is unknown.
        """
        capabilities = frozenset(announced)
        for name in sorted(capabilities.difference(CAPABILITIES)):
            known = ", ".join(f"`{each}`" for each in CAPABILITIES)
            hint = did_you_mean(name, CAPABILITIES) or f"use one of {known}"
            raise ConfigurationError(f"unknown capability `{name}`", code="unknown_capability", hint=hint)
        without = self._offer._replace(announced=capabilities, replaced=MappingProxyType({}))
        there = self._derived(offer=without)
        replaced = {block["replaces"]: tool.name for tool, block in _of_client(there) if "replaces" in block}
        return self._derived(offer=without._replace(replaced=MappingProxyType(replaced)))

    @property
    def replaced(self) -> Mapping[str, str]:
        """Name -> the tool of the client that replaces it, in a registry of `for_client`.

        A name that is no tool of the registry belongs to an agent that has a tool of its own under this name.
        """
        return self._offer.replaced

    @property
    def pre_approved(self) -> tuple[str, ...]:
        """The offered tools of the client that are called without asking a person, sorted."""
        return tuple(tool.name for tool, block in _of_client(self) if block.get("pre_approved"))

    @property
    def needs_approval(self) -> tuple[str, ...]:
        """The offered tools of the client about whose calls a person is asked, sorted."""
        return tuple(tool.name for tool, block in _of_client(self) if not block.get("pre_approved"))

    def with_toolsets(self, toolsets: Iterable[Toolset]) -> Registry:
        """A new registry with these toolsets, replacing the known ones, for `within` and for queries."""
        known = MappingProxyType({toolset.name: toolset for toolset in toolsets})
        return self._derived(offer=self._offer._replace(toolsets=known))

    def within(self, toolset: Toolset | str | None) -> Registry:
        """A new registry that offers only the tools of a toolset, replacing the active one.

        Args:
            toolset: A toolset, the name of a known one, or None for none.

        Raises:
            ConfigurationError: The name is unknown.
        """
        if isinstance(toolset, str):
            if toolset not in self.toolsets:
                hint = did_you_mean(toolset, self.toolsets) or _listing(self.toolsets)
                raise ConfigurationError(f"unknown toolset `{toolset}`", code="unknown_toolset", hint=hint)
            toolset = self.toolsets[toolset]
        return self._derived(offer=self._offer._replace(toolset=toolset))

    @property
    def toolsets(self) -> Mapping[str, Toolset]:
        """The known toolsets, by name."""
        return self._offer.toolsets

    @property
    def toolset(self) -> Toolset | None:
        """The active toolset."""
        return self._offer.toolset

    @property
    def why_closed(self) -> str:
        """Why no tool is offered at all, in one sentence; empty if some may be."""
        closed = self._offer.closed
        return closed.message if closed is not None else ""

    def hidden(self, name: str) -> HiddenReason | None:
        """Why a tool is not offered, with code and place; None if it is. Only access may create the descriptor."""
        return self._offer.hidden(name, self._cards, self._tools)

    def why_hidden(self, name: str) -> str:
        """Why a tool is not offered, in one sentence; empty if it is."""
        hidden = self.hidden(name)
        return hidden.message if hidden is not None else ""

    # Queries.

    def query(self, *, hidden: bool = False, **filters: Unpack[Filters]) -> list[Card]:
        """The matching cards, sorted by name, without creating descriptors.

        Args:
            hidden: Include tools that are not offered.
            filters: As for `toolcrib.registry.catalog.matches_filters`: `name`, `tag`, `label`, `category`, `mode`, `source`, `pack`,
                `annotation`, `capability`, `toolset`, `deprecated`, `experimental`, `match`.
        """
        test = self._test(filters, hidden=hidden)
        cards = self._cards.all()
        return cards if test is None else [card for card in cards if test(card)]

    def select(self, *, hidden: bool = False, **filters: Unpack[Filters]) -> list[Descriptor]:
        """The matching tools, sorted by name; like `query`, but with descriptors."""
        # The common case in a server: no filter, so no card is needed.
        if not filters and (hidden or self._offers_everything()):
            return self._tools.all()
        return [self[card.name] for card in self.query(hidden=hidden, **filters)]

    def search(
        self, text: str, *, limit: int | None = None, hidden: bool = False, **filters: Unpack[Filters]
    ) -> list[Hit]:
        """Search tools by words, the best match first, without creating descriptors.

        `toolcrib.registry.search` describes the ranking. Equal scores are sorted by name.

        Args:
            text: Words or their beginnings, in any case, with or without accents.
            limit: Maximum number of hits; None for all.
            hidden: Include tools that are not offered.
            filters: As for `query`.
        """
        if self._known.finder is None:
            # Deferred: calls by name need no search.
            from toolcrib.registry.search import SearchIndex  # noqa: PLC0415

            self._known.finder = SearchIndex(self._cards.all())
        test = self._test(filters, hidden=hidden)
        hits = (Hit(self._cards[name], score) for name, score in self._known.finder.scores(text))
        return list(islice((hit for hit in hits if test is None or test(hit.card)), limit))

    def near(self, name: str) -> list[str]:
        """The names of offered tools that are similar to an unknown name, the nearest first."""
        # Deferred: calls by name need no search.
        from toolcrib.registry.search import near_names  # noqa: PLC0415

        return near_names(name, self._offered())

    def alias_of(self, name: str) -> str:
        """The name that every model provider accepts for a tool; see `toolcrib.registry.names`.

        Raises:
            KeyError: The tool is unknown.
        """
        if name not in self:
            raise KeyError(name)
        return self._aliases().get(name, name)

    def named_by_alias(self, alias: str) -> str | None:
        """The name of the tool with an alias, if any."""
        if self._known.names is None:
            self._known.names = {its: name for name, its in self._aliases().items()}
        # Names that are their own alias are not in the table.
        own = alias if alias in self and alias not in self._aliases() else None
        return self._known.names.get(alias, own)

    def _aliases(self) -> Mapping[str, str]:
        if self._known.aliases is None:
            # Deferred: calls by name need no aliases.
            from toolcrib.registry.names import aliases_of  # noqa: PLC0415

            self._known.aliases = aliases_of(self._tools)
        return self._known.aliases

    def _test(self, filters: Filters, *, hidden: bool) -> Callable[[Card], bool] | None:
        test = matches_filters(**filters, toolsets=self.toolsets)
        if hidden or self._offers_everything():
            return test
        offered = self._offered()
        if test is None:
            return lambda card: card.name in offered
        return lambda card: card.name in offered and test(card)

    def _offered(self) -> Collection[str]:
        """The names of the offered tools, computed once."""
        if self._shown is None:
            everything = self._offers_everything()
            self._shown = self if everything else {name for name in self if self.hidden(name) is None}
        return self._shown

    def _offers_everything(self) -> bool:
        if self._known.conditional is None:
            self._known.conditional = any(card.conditions for card in self._cards.all())
        return self._offer.is_everything and not self._known.conditional

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


def _of_client(registry: Registry) -> Iterator[tuple[Descriptor, Mapping[str, Any]]]:
    """The offered tools that need a capability of the client, each with the block of its mode."""
    for card in registry.query():
        if any(text.startswith(f"{card.mode} ") for text in card.conditions):
            tool = registry[card.name]
            block: Any = tool.bindings[card.mode or ""]
            yield tool, block


def _check_globs(globs: object) -> None:
    # A string is an iterable of strings: `"*_order"` would become one glob for each character, and `*` matches all.
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
    """The number of offered tools, as a sentence."""
    many = len(registry.query())
    return f"{many or 'no'} tool{' is' if many == 1 else 's are'} loaded"


_MOST_LISTED = 20
"""Names of tools in an error. Models read it, and pay for each."""


def list_of_tools(registry: Registry) -> str:
    """The names of the offered tools in parentheses, at most 20 of them."""
    cards = registry.query()
    if not cards:
        return "(no tools are loaded)"
    more = f" and {len(cards) - _MOST_LISTED} more" if len(cards) > _MOST_LISTED else ""
    return f"(tools: {', '.join(card.name for card in cards[:_MOST_LISTED])}{more})"


def without_duplicates(tools: Iterable[Descriptor]) -> tuple[list[Descriptor], list[Problem]]:
    """The first tool of each name, and a problem for every further one."""
    first: dict[str, Descriptor] = {}
    problems = []
    for tool in tools:
        if tool.name in first:
            problems.append(_duplicate(first[tool.name], tool))
        else:
            first[tool.name] = tool
    return list(first.values()), problems


def _duplicate(first: Descriptor, second: Descriptor) -> Problem:
    """The problem of two tools of one name, positioned at the second one and naming the first."""
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
    """Values by name, sorted; each is created on first use.

    An exception of `make` is passed to the caller, and the next look-up tries again.
    """

    __slots__ = ("_kept", "_make")

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._kept: dict[str, T | None] = dict.fromkeys(sorted(names))
        self._make = make

    @classmethod
    def of(cls, values: Mapping[str, T]) -> LazyMapping[T]:
        """A mapping of existing values."""
        made = cls((), values.__getitem__)
        made._kept = {name: values[name] for name in sorted(values)}
        return made

    def overlaid(self, new: Mapping[str, T]) -> LazyMapping[T]:
        """The values with new ones added or replaced. A value that is created later is shared by both mappings."""
        kept = {**self._kept, **new}
        return self._with(
            # Sorting is only needed if a name was added.
            kept if len(kept) == len(self._kept) else {name: kept[name] for name in sorted(kept)}
        )

    def without(self, names: Collection[str]) -> LazyMapping[T]:
        """The values without some names. A value that is created later is shared by both mappings."""
        return self._with({name: value for name, value in self._kept.items() if name not in names})

    def _with(self, kept: dict[str, T | None]) -> LazyMapping[T]:
        """A mapping of these values that creates missing ones through the first mapping of the chain."""
        # Each change derives a registry: asking the predecessor would make chains as long as the number of changes.
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
        """All values, sorted by name."""
        return [self[name] if value is None else value for name, value in self._kept.items()]


class _First(Generic[T]):
    """Creates values through the mapping that others were derived from."""

    __slots__ = ("_values",)

    def __init__(self, values: LazyMapping[T]) -> None:
        self._values = values

    def __call__(self, name: str) -> T:
        return self._values[name]
