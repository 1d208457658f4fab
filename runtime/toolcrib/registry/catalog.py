"""Cards, filters and visibility of tools: the data of queries.

A card contains plain values only, so that tools can be listed, filtered and searched without their descriptors.
`toolcrib list` imports this module before anything else, so it imports nothing slow.
"""

# Without `from __future__ import annotations`: a NamedTuple compiles each string annotation, which is slow.

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from typing import TypedDict

    from toolcrib.core.errors import Problem
    from toolcrib.core.model import Descriptor, Toolset

Values: TypeAlias = "str | Iterable[str] | None"
"""One value, several, or none."""

Match: TypeAlias = Literal["all", "any"]
"""Whether all conditions must match, or any of them."""

if TYPE_CHECKING:

    class Filters(TypedDict, total=False):
        """The filters of `matches_filters`, for methods that pass them on."""

        name: Values
        tag: Values
        label: Values
        category: Values
        mode: Values
        source: Values
        pack: Values
        annotation: Values
        capability: Values
        toolset: Values
        deprecated: bool | None
        experimental: bool | None
        match: Match


NO_TOOLSETS: Mapping[str, "Toolset"] = MappingProxyType({})
"""The default: no known toolsets."""

ANNOTATIONS = ("read_only", "destructive", "idempotent", "open_world")
"""The annotations that a card can have."""


class Card(NamedTuple):
    """The properties of a tool that queries use. An index stores `tuple(card)` as JSON.

    Attributes:
        labels: Pairs of key and value, as written.
        mode: The active mode; None for an unbound tool.
        modes: The modes that the tool has a block for.
        annotations: Those of `ANNOTATIONS` that are true; a read-only tool is not destructive.
        deprecated: Whether it is deprecated, or what to use instead.
        arguments: The names of its top-level arguments.
        capabilities: What its calls use outside the program.
        requires: What must be present where it runs, each with its kind: `platform linux`, `package pandas>=2`,
            `command git`, `tool get_order`, `environment DATABASE_URL`.
        conditions: What a mode needs of the client, each after the name of its mode: `client client.terminal`.
        source: Its file, as the user named it.
        line: First line of its document, 1-based.
        pack: Name of its pack; empty outside packs.
        namespace: Prefix of its name, without `__`, given by its source.
        stale: Why its last good version is still active; empty if it is current.
    """

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    mode: str | None = None
    modes: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    deprecated: bool | str = False
    experimental: bool = False
    arguments: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    source: str = ""
    line: int = 0
    pack: str = ""
    namespace: str = ""
    stale: str = ""

    def place(self) -> str:
        """`file:line` of its document."""
        return f"{self.source}:{self.line}"


def card_of(tool: "Descriptor") -> Card:
    """The card of a tool."""
    says, origin, schema = tool.annotations, tool.origin, tool.input_schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    # MCP: `destructiveHint` is meaningful only if `readOnlyHint` is false, and it defaults to true.
    holds = (says.read_only, says.destructive and not says.read_only, says.idempotent, says.open_world)
    return Card(
        tool.name,
        tool.title,
        tool.description,
        tool.version,
        tool.category,
        tool.tags,
        tuple(tool.labels.items()),
        tool.mode,
        tuple(tool.bindings),
        tuple(key for key, is_so in zip(ANNOTATIONS, holds, strict=True) if is_so),
        tool.deprecated,
        tool.experimental,
        tuple(properties) if isinstance(properties, dict) else (),
        tool.capabilities,
        _requires(tool),
        tuple(f"{mode} {name}" for mode in tool.bindings for name in required_of_client(tool, mode)),
        origin.source,
        origin.line,
        origin.pack,
        origin.namespace,
        origin.stale,
    )


def _requires(tool: "Descriptor") -> tuple[str, ...]:
    if not tool.platforms and not any(tool.dependencies):
        return ()
    packages, commands, tools, environment = tool.dependencies
    return (
        *(f"platform {name}" for name in tool.platforms),
        *(f"package {text}" for text in packages),
        *(f"command {name}" for name in commands),
        *(f"tool {name}" for name in tools),
        *(f"environment {name}" for name in environment),
    )


CAPABILITIES = ("client.fs.read_text_file", "client.fs.write_text_file", "client.terminal")
"""What a client can announce, in the terms of the Agent Client Protocol."""


def required_of_client(tool: "Descriptor", mode: str) -> tuple[str, ...]:
    """The capabilities that the client must announce so that a tool exists in a mode."""
    block = tool.bindings.get(mode)
    said = block.get("requires") if isinstance(block, Mapping) else None
    # Blocks of other distributions may use the key for something else.
    return tuple(name for name in said if name in CAPABILITIES) if isinstance(said, list) else ()


def flags_of(card: Card) -> list[str]:
    """Warnings about a tool, in one word each."""
    flags = {
        "stale": card.stale,
        "deprecated": card.deprecated,
        "experimental": card.experimental,
        "read-only": "read_only" in card.annotations,
    }
    return [flag for flag, is_so in flags.items() if is_so]


def why_unable(
    card: Card,
    modes: Iterable[str],
    missing: Callable[[str], str],
    unmet: Callable[[Card], str] = lambda _card: "",
) -> str:
    """Why a tool cannot run, and how to fix it; empty if it can.

    Args:
        card: The tool.
        modes: The installed modes.
        missing: Returns why a mode cannot be used; empty if it can (`Executors.missing`).
        unmet: Returns which requirement of a tool is not met here; empty if none is missing.
    """
    if card.mode is None:
        blocks = " or ".join(f"`{mode}:`" for mode in modes)
        return f"`{card.name}` is unbound: add a {blocks} block to {card.place()}"
    if card.mode not in card.modes:
        there = ", ".join(f"`{mode}`" for mode in card.modes) or "none"
        return f"`{card.name}` has no `{card.mode}:` block ({card.place()}); its modes are: {there}"
    why = missing(card.mode)
    if why:
        return f"mode `{card.mode}` of `{card.name}` {why}"
    return unmet(card)


def matches_filters(
    *,
    name: Values = None,
    tag: Values = None,
    label: Values = None,
    category: Values = None,
    mode: Values = None,
    source: Values = None,
    pack: Values = None,
    annotation: Values = None,
    capability: Values = None,
    toolset: Values = None,
    deprecated: bool | None = None,
    experimental: bool | None = None,
    match: Match = "all",
    toolsets: Mapping[str, "Toolset"] = NO_TOOLSETS,
) -> Callable[[Card], bool] | None:
    """Compile filters into a test of cards; None without filters, because every card matches.

    Every filter accepts several values. For properties with several values (tags, labels, annotations, capabilities,
    toolsets) each value is a condition. For properties with one value (name, category, mode, source, pack) the values are one
    condition, which any of them satisfies. A value that starts with `!` is a negated condition of its own. `match`
    selects whether all conditions must match or any.

    Args:
        name: Globs over the name, case-sensitive.
        tag: Tags.
        label: `key` or `key=value`.
        category: Categories.
        mode: Active modes.
        source: Globs over the tool's file.
        pack: Names of packs.
        annotation: Any of `read_only`, `destructive`, `idempotent`, `open_world`; a read-only tool is not destructive.
        capability: Capabilities: `network`, `crm:write`.
        toolset: Names of toolsets; an unknown toolset contains no tools.
        deprecated: Whether the tool is deprecated.
        experimental: Whether the tool is experimental.
        match: `all` or `any`.
        toolsets: The toolsets by name.
    """
    tests = [
        *_one_of(name, lambda card, value: fnmatchcase(card.name, value)),
        *_each(tag, lambda card, value: value in card.tags),
        *_each(label, _has_label),
        *_one_of(category, lambda card, value: card.category == value),
        *_one_of(mode, lambda card, value: card.mode == value),
        *_one_of(source, lambda card, value: fnmatchcase(card.source, value)),
        *_one_of(pack, lambda card, value: card.pack == value),
        *_each(annotation, lambda card, value: value in card.annotations),
        *_each(capability, lambda card, value: value in card.capabilities),
        *_each(toolset, lambda card, value: value in toolsets and in_toolset(card.name, toolsets[value])),
    ]
    if deprecated is not None:
        tests.append(lambda card: bool(card.deprecated) is deprecated)
    if experimental is not None:
        tests.append(lambda card: card.experimental is experimental)
    if len(tests) < 2:
        return tests[0] if tests else None
    if match == "any":
        return lambda card: any(test(card) for test in tests)
    return lambda card: all(test(card) for test in tests)


_Test: TypeAlias = Callable[[Card], bool]
_Fits: TypeAlias = Callable[[Card, str], bool]


def _each(values: Values, fits_value: _Fits) -> Iterator[_Test]:
    for value in _listed(values):
        yield _negated(fits_value, value[1:]) if value.startswith("!") else _plain(fits_value, value)


def _one_of(values: Values, fits_value: _Fits) -> Iterator[_Test]:
    wanted = [value for value in _listed(values) if not value.startswith("!")]
    if wanted:
        yield lambda card: any(fits_value(card, value) for value in wanted)
    # "Neither a nor b" needs every negated value to hold, unlike the positive ones.
    yield from _each([value for value in _listed(values) if value.startswith("!")], fits_value)


def _listed(values: Values) -> tuple[str, ...]:
    if values is None:
        return ()
    return (values,) if isinstance(values, str) else tuple(values)


def _plain(fits_value: _Fits, value: str) -> _Test:
    return lambda card: fits_value(card, value)


def _negated(fits_value: _Fits, value: str) -> _Test:
    return lambda card: not fits_value(card, value)


NO_CARDS: Mapping[str, Card] = MappingProxyType({})
"""The default of parameters that map names to cards."""

NO_TOOLS: "Mapping[str, Descriptor]" = MappingProxyType({})
"""The default of parameters that map names to tools."""


def _has_label(card: Card, wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return any(key == own and (not equals or value == its) for own, its in card.labels)


_TESTS_OF_CONDITIONS: Mapping[str, Callable[[Card, str], bool]] = MappingProxyType(
    {
        "tool": lambda card, glob: fnmatchcase(card.name, glob),
        "tag": lambda card, tag: tag in card.tags,
        "label": _has_label,
        "annotation": lambda card, name: name in card.annotations,
        "capability": lambda card, glob: any(fnmatchcase(name, glob) for name in card.capabilities),
        "pack": lambda card, glob: bool(card.pack) and fnmatchcase(card.pack, glob),
    }
)


def fits_conditions(card: Card, conditions: Mapping[str, Any]) -> bool:
    """Whether a tool meets the conditions of an access rule that concern tools: `tool`, `tag`, `label`, and so on."""
    return all(
        accepts(said, lambda entry, key=key: _TESTS_OF_CONDITIONS[key](card, entry))  # type: ignore[misc]
        for key, said in conditions.items()
        if key in _TESTS_OF_CONDITIONS
    )


def accepts(said: Values, fits: Callable[[str], bool]) -> bool:
    """Whether one entry of a condition fits, and none of those that start with `!`."""
    entries = _listed(said)
    wanted = [entry for entry in entries if not entry.startswith("!")]
    return (not wanted or any(map(fits, wanted))) and not any(
        fits(entry[1:]) for entry in entries if entry.startswith("!")
    )


class Hit(NamedTuple):
    """A hit of a search.

    Attributes:
        card: The tool's card.
        score: Its relevance, above 0 and without upper bound; comparable only within one search.
    """

    card: Card
    score: float


class HiddenReason(NamedTuple):
    """Why a tool that exists is not offered.

    Attributes:
        code: `disabled`, `not_in_toolset`, `capability_missing` at the client, `replaced` by a tool of the client,
            `denied` by access, or `closed` if no tool is offered at all.
        message: The reason, with the setting and its place.
        place: The place of the setting; empty if unknown.
    """

    code: str
    message: str
    place: str


class Rule(NamedTuple):
    """A rule that disables or enables tools; the last rule that matches a name applies.

    Attributes:
        globs: Globs over tool names.
        enables: Whether the matching tools are offered.
        place: The place of the setting.
        flag: `experimental` or `deprecated` if the rule concerns only such tools.
    """

    globs: tuple[str, ...]
    enables: bool
    place: str = ""
    flag: str = ""


DENIED = "denied"
"""Code of a tool that access hides from a caller. A call of it ends `denied`, and is recorded."""

Look: TypeAlias = Callable[[Card, Callable[[], "Descriptor"]], "HiddenReason | None"]
"""Returns why a caller may not see a tool: from its card, and from its descriptor if the card is not enough."""


class VisibilityFilter(NamedTuple):
    """Decides which tools are offered, for lists, searches and calls alike.

    Attributes:
        rules: The rules that disable and enable tools, in order.
        toolset: The active toolset.
        toolsets: The known toolsets, by name.
        closed: Why no tool is offered at all, code `closed`; None if some may be.
        access: Why access denies a tool to the caller who looks; None if it denies nothing.
        announced: The capabilities that the client of the session has announced.
        replaced: Name of a tool -> the tool of the client that replaces it.
    """

    rules: tuple[Rule, ...] = ()
    toolset: "Toolset | None" = None
    toolsets: Mapping[str, "Toolset"] = NO_TOOLSETS
    closed: HiddenReason | None = None
    access: Look | None = None
    announced: frozenset[str] = frozenset()
    replaced: Mapping[str, str] = MappingProxyType({})

    @property
    def is_everything(self) -> bool:
        """Whether nothing can be hidden, except tools that need a capability of the client."""
        return not (self.rules or self.replaced or self.toolset or self.closed or self.access)

    def hidden(
        self,
        name: str,
        cards: Mapping[str, Card] = NO_CARDS,
        tools: "Mapping[str, Descriptor]" = NO_TOOLS,
    ) -> HiddenReason | None:
        """Why a tool is not offered; None if it is.

        A tool is offered unless the last matching rule disables it; with an active toolset, one of the toolset's
        globs must match as well.

        Args:
            name: Name of the tool.
            cards: The cards by name.
            tools: The tools by name, for access.
        """
        if self.closed is not None:
            return self.closed
        disabled: HiddenReason | None = None
        for rule in self.rules:
            glob = next((glob for glob in rule.globs if fnmatchcase(name, glob)), None)
            if glob is not None and (not rule.flag or getattr(cards[name], rule.flag)):
                disabled = None if rule.enables else _disabled(name, glob, rule)
        if disabled is None and self.toolset is not None and not in_toolset(name, self.toolset):
            place = self.toolset.place
            at = f" ({place})" if place else ""
            message = f"`{name}` is not in the active toolset `{self.toolset.name}`{at}"
            return HiddenReason("not_in_toolset", message, place)
        if disabled is None:
            disabled = self._unannounced(name, cards)
        if disabled is None and self.access is not None:
            return self.access(cards[name], lambda: tools[name])
        return disabled

    def _unannounced(self, name: str, cards: Mapping[str, Card]) -> HiddenReason | None:
        """Why a tool does not exist for the client of the session; None if it does."""
        card = cards.get(name)
        if card is not None and card.conditions:
            needed = [text.partition(" ")[2] for text in card.conditions if text.startswith(f"{card.mode} ")]
            missing = [capability for capability in needed if capability not in self.announced]
            if missing:
                listed = " and ".join(f"`{capability}`" for capability in missing)
                message = f"`{name}` needs {listed}, which the client has not announced ({card.place()})"
                return HiddenReason("capability_missing", message, card.place())
        if name in self.replaced:
            by = self.replaced[name]
            place = cards[by].place() if by in cards else ""
            return HiddenReason(
                "replaced", f"`{name}` is replaced by `{by}` in this session ({place})", place
            )
        return None


def _disabled(name: str, glob: str, rule: Rule) -> HiddenReason:
    at = f" in {rule.place}" if rule.place else ""
    if rule.flag:
        message = (
            f"`{name}` is {rule.flag}, and such tools are hidden{at}; `enable` of a profile can offer it"
        )
        return HiddenReason("disabled", message, rule.place)
    by = "" if glob == name else f" by `{glob}`"
    return HiddenReason("disabled", f"`{name}` is disabled{by}{at}", rule.place)


def in_toolset(name: str, toolset: "Toolset") -> bool:
    """Whether one of the toolset's globs matches a name."""
    return any(fnmatchcase(name, glob) for glob in toolset.tools)


def idle_globs(names: Collection[str], globs: Iterable[str], *, of: str, place: str = "") -> "list[Problem]":
    """A warning for each glob that matches no name, with suggestions.

    Args:
        names: The names of all tools.
        globs: Globs over them; `*` is valid without any tools.
        of: The owner of the globs, for the message: `the toolset `small``, `` `disable` ``.
        place: `file:line` of the globs.
    """
    # Deferred: only loading reports problems, and `toolcrib list` must start fast.
    from toolcrib.core.errors import Problem, did_you_mean  # noqa: PLC0415
    from toolcrib.core.pointers import file_and_line  # noqa: PLC0415

    source, line = file_and_line(place)
    return [
        Problem(
            code="idle_glob",
            message=f"`{glob}` of {of} matches no tool",
            hint=did_you_mean(glob.strip("*?"), names) or "use a tool name, or a glob over tool names",
            severity="warning",
            source=source,
            line=line,
            column=1 if line else 0,
        )
        for glob in globs
        if glob != "*" and glob not in names and not any(fnmatchcase(name, glob) for name in names)
    ]


def idle_toolset_globs(names: Collection[str], toolsets: Iterable["Toolset"]) -> "list[Problem]":
    """A warning for each glob of each toolset that matches no name."""
    return [
        problem
        for toolset in toolsets
        for problem in idle_globs(
            names, toolset.tools, of=f"the toolset `{toolset.name}`", place=toolset.place
        )
    ]
