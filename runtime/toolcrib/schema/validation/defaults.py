"""Compile the defaults of a schema into a function that fills them in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import Final, TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import Key, SchemaIndex, Site
from toolcrib.schema.validation.validator import compile_parts

_GROWTH: Final = 10_000
"""Maximum number of values in one default after its nested defaults are filled in."""


def compile_defaults(schema: Schema) -> Callable[[JSON], JSON] | None:
    """A function that fills in missing properties of a value; None if the schema has no reachable default.

    Defaults are found through `properties`, `items`, `prefixItems`, `allOf` and local references, but not through
    `anyOf`, `oneOf` or `if`, because it is not known which branch applies. The given value is never modified: containers
    on the path to a change are copied, and a value without missing properties is returned itself. Nested defaults are
    filled in, too; a default that would grow endlessly (or beyond 10,000 values) is omitted, and so is one that its own
    subschema refuses, such as the null of `{"type": "string", "default": null}`.
    """
    index = SchemaIndex(schema)
    return compile_defaults_at(index.root, index)


def compile_defaults_at(site: Site, index: SchemaIndex) -> Callable[[JSON], JSON] | None:
    """The same for one subschema of an indexed schema."""
    plans: dict[frozenset[Key], _Plan] = {}
    plan = _plan([site], index, plans)
    _settle(plans.values(), index)
    _prune(plans.values())
    if not plan.works:
        return None
    return _flat(plan.defaults) if plan.is_flat else plan.fill


def _flat(defaults: Sequence[tuple[str, JSON, bool]]) -> Callable[[JSON], JSON]:
    """A faster function for the most common plan: scalar defaults of top-level properties."""
    plain = [(name, default) for name, default, _nested in defaults]

    def fill(value: JSON) -> JSON:
        filled = value
        if isinstance(value, dict):
            for name, default in plain:
                if name not in value:
                    # Copied only at the first missing property.
                    filled = dict(value) if filled is value else filled
                    filled[name] = default  # type: ignore[call-overload, index] # it is a dict
        return filled

    return fill


class _Plan:
    """What to fill in for values that a set of subschemas judges.

    Attributes:
        written: Property -> its default as written.
        judges: Property with a default -> the subschemas that describe it.
        defaults: Name, default with its nested defaults, and whether it must be copied.
        properties: Property -> plan of its value.
        prefix: Plans of the first items.
        rest: Plan of the other items.
        works: Whether a default can be reached from here.
    """

    def __init__(self) -> None:
        self.written: dict[str, JSON] = {}
        self.judges: dict[str, list[Site]] = {}
        self.defaults: list[tuple[str, JSON, bool]] = []
        self.properties: dict[str, _Plan] = {}
        self.prefix: list[_Plan] = []
        self.rest: _Plan | None = None
        self.works = False

    @property
    def is_flat(self) -> bool:
        """Whether it fills in only scalars, and nothing inside the members."""
        return not self.inner() and not any(nested for _name, _default, nested in self.defaults)

    def inner(self) -> list[_Plan]:
        """The plans of the members."""
        return [*self.properties.values(), *self.prefix, *([self.rest] if self.rest else [])]

    def of_item(self, position: int) -> _Plan | None:
        """The plan of an item."""
        return self.prefix[position] if position < len(self.prefix) else self.rest

    def fill(self, value: JSON) -> JSON:
        """The value with its defaults."""
        if isinstance(value, dict):
            return self._fill_object(value)
        if isinstance(value, list) and (self.prefix or self.rest):
            return self._fill_array(value)
        return value

    def _fill_object(self, value: dict[str, JSON]) -> dict[str, JSON]:
        filled = value
        for name, plan in self.properties.items():
            if name in value and (item := plan.fill(value[name])) is not value[name]:
                filled = dict(value) if filled is value else filled
                filled[name] = item
        for name, default, nested in self.defaults:
            if name not in value:
                filled = dict(value) if filled is value else filled
                filled[name] = deepcopy(default) if nested else default
        return filled

    def _fill_array(self, value: list[JSON]) -> list[JSON]:
        filled = value
        for position, item in enumerate(value):
            plan = self.of_item(position)
            if plan is not None and (new := plan.fill(item)) is not item:
                filled = list(value) if filled is value else filled
                filled[position] = new
        return filled


_Plans: TypeAlias = dict[frozenset[Key], _Plan]


def _plan(sites: Sequence[Site], index: SchemaIndex, plans: _Plans) -> _Plan:
    sites = [site for site in index.together(sites, ("allOf",)) if not index.is_overridden(site)]
    key = frozenset(site.key for site in sites)
    if key in plans:
        return plans[key]
    # Entered before its members are planned: recursive schemas make plans that refer to themselves.
    plan = plans[key] = _Plan()
    for site in sites:
        properties = site.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            plan.properties.setdefault(name, _plan(index.below(sites, name), index, plans))
            if isinstance(inner, dict) and "default" in inner:
                plan.written.setdefault(name, inner["default"])
                plan.judges[name] = index.below(sites, name)
    lists = [each for site in sites for each in (site.get("prefixItems"), site.get("items"))]
    length = max((len(each) for each in lists if isinstance(each, list)), default=0)
    plan.prefix = [_plan(index.below(sites, position), index, plans) for position in range(length)]
    rest = index.below(sites, length)
    plan.rest = _plan(rest, index, plans) if rest else None
    return plan


class _EndlessError(Exception):
    """A default that grows endlessly."""


def _settle(plans: Collection[_Plan], index: SchemaIndex) -> None:
    """Fill the nested defaults into every default; omit those that would grow endlessly or do not fit."""
    fits = _fitness(plans, index)
    for plan in plans:
        for name, written in plan.written.items():
            try:
                default = _Growth(fits).grow(plan.properties[name], written)
            except _EndlessError:
                continue
            if fits(plan, name, default):
                plan.defaults.append((name, default, isinstance(default, dict | list)))


_Fits: TypeAlias = Callable[["_Plan", str, JSON], bool]
"""Whether the subschemas of a property accept its default."""


def _fitness(plans: Collection[_Plan], index: SchemaIndex) -> _Fits:
    parts = {
        f"{id(plan)} {number} {name}": site
        for plan in plans
        for name, judges in plan.judges.items()
        for number, site in enumerate(judges)
    }
    try:
        judge = compile_parts(index.root, parts) if parts else None
    except ValueError:
        judge = None  # references below an `$id` resolve differently, so no part can be judged alone
    if judge is None:
        return lambda _plan, _name, _default: True
    accepts = judge.is_valid
    known: dict[tuple[int, str], bool] = {}

    def fits(plan: _Plan, name: str, default: JSON) -> bool:
        # Remembered, because a nested default is the same wherever it is filled in.
        key = (id(plan), name)
        if key not in known:
            numbers = range(len(plan.judges[name]))
            known[key] = accepts({f"{id(plan)} {number} {name}": default for number in numbers})
        return known[key]

    return fits


class _Growth:
    """The growth of one default."""

    def __init__(self, fits: _Fits) -> None:
        self._fits = fits
        self._under_way: set[tuple[int, str]] = set()
        self._made = 0

    def grow(self, plan: _Plan, value: JSON) -> JSON:
        """The value with the defaults within it."""
        self._made += 1
        if self._made > _GROWTH:
            raise _EndlessError
        if isinstance(value, dict):
            grown = {name: self._member(plan.properties.get(name), item) for name, item in value.items()}
            absent = {name: item for name, item in plan.written.items() if name not in value}
            return {**grown, **self._absent(plan, absent)}
        if isinstance(value, list):
            return [self._member(plan.of_item(position), item) for position, item in enumerate(value)]
        return value

    def _member(self, plan: _Plan | None, value: JSON) -> JSON:
        return value if plan is None else self.grow(plan, value)

    def _absent(self, plan: _Plan, defaults: Mapping[str, JSON]) -> dict[str, JSON]:
        grown = {}
        for name, default in defaults.items():
            # The same default inside itself would be filled in for ever.
            key = (id(plan), name)
            if key in self._under_way:
                raise _EndlessError
            self._under_way.add(key)
            whole = self.grow(plan.properties[name], default)
            self._under_way.discard(key)
            if self._fits(plan, name, whole):
                grown[name] = whole
        return grown


def _prune(plans: Collection[_Plan]) -> None:
    """Mark the plans from which a default can be reached, and remove the others."""
    # Repeated until nothing changes, because plans can be cyclic.
    changed = True
    while changed:
        changed = False
        for plan in plans:
            if not plan.works and (plan.defaults or any(inner.works for inner in plan.inner())):
                plan.works = changed = True
    for plan in plans:
        plan.properties = {name: inner for name, inner in plan.properties.items() if inner.works}
        if not any(inner.works for inner in (*plan.prefix, plan.rest) if inner is not None):
            plan.prefix, plan.rest = [], None
