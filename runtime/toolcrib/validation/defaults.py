"""Defaults of a schema, compiled into one function that fills them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Final

from toolcrib.model import JSON, Schema
from toolcrib.subschemas import Path, SchemaIndex, Site

_GROWTH: Final = 10_000
"""Values that one default may grow to when the defaults within it are filled in."""


def compile_defaults(schema: Schema) -> Callable[[JSON], JSON] | None:
    """A function that fills in the absent properties of a value; None if the schema has no reachable default.

    It goes through `properties`, `items`, `prefixItems`, `allOf` and references within the schema, and
    never through `anyOf`, `oneOf` or `if`, where the schema leaves open what holds. Containers are
    copied along the way to a change; the value that was given is never changed, and is returned
    itself where nothing is absent. The defaults within a default are filled in too; a default that
    would go on without end is left out.
    """
    index = SchemaIndex(schema)
    plans: dict[frozenset[tuple[str, Path]], _Plan] = {}
    plan = _plan([index.root], index, plans)
    _Growth().settle_all(plans.values())
    _prune(plans.values())
    return plan.fill if plan.works else None


class _Plan:
    """What to fill in for the values of some subschemas that all hold."""

    def __init__(self) -> None:
        self.written: dict[str, JSON] = {}
        self.defaults: list[tuple[str, JSON, bool]] = []
        self.properties: dict[str, _Plan] = {}
        self.prefix: list[_Plan] = []
        self.rest: _Plan | None = None
        self.works = False

    @property
    def inner(self) -> list[_Plan]:
        """The plans of the members."""
        return [*self.properties.values(), *self.prefix, *([self.rest] if self.rest else [])]

    def fill(self, value: JSON) -> JSON:
        """The value with its defaults."""
        if isinstance(value, dict):
            return self._fill_object(value)
        if isinstance(value, list) and (self.prefix or self.rest):
            return self._fill_array(value)
        return value

    def _fill_object(self, value: dict[str, JSON]) -> dict[str, JSON]:
        filled = value
        for name, default, nested in self.defaults:
            if name not in value:
                if filled is value:
                    filled = dict(value)
                filled[name] = deepcopy(default) if nested else default
        for name, plan in self.properties.items():
            if name in value:
                item = plan.fill(value[name])
                if item is not value[name]:
                    if filled is value:
                        filled = dict(value)
                    filled[name] = item
        return filled

    def _fill_array(self, value: list[JSON]) -> list[JSON]:
        filled = value
        for position, item in enumerate(value):
            plan = self.prefix[position] if position < len(self.prefix) else self.rest
            new = plan.fill(item) if plan is not None else item
            if new is not item:
                if filled is value:
                    filled = list(value)
                filled[position] = new
        return filled


def _plan(
    sites: Sequence[Site], index: SchemaIndex, plans: dict[frozenset[tuple[str, Path]], _Plan]
) -> _Plan:
    sites = index.conjuncts(sites)
    key = frozenset(site.key for site in sites)
    if key in plans:
        return plans[key]
    plan = plans[key] = _Plan()
    length = 0
    for site in sites:
        if isinstance(site.schema, bool):
            continue
        properties = site.schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            plan.properties.setdefault(name, _plan(_declared(index, sites, name), index, plans))
            if isinstance(inner, dict) and "default" in inner:
                plan.written.setdefault(name, inner["default"])
        length = max(
            [
                length,
                *(
                    len(each)
                    for each in map(site.schema.get, ("prefixItems", "items"))
                    if isinstance(each, list)
                ),
            ]
        )
    plan.prefix = [_plan(index.below(sites, position), index, plans) for position in range(length)]
    rest = index.below(sites, length)
    plan.rest = _plan(rest, index, plans) if rest else None
    return plan


def _declared(index: SchemaIndex, sites: Sequence[Site], name: str) -> list[Site]:
    return [site for site in index.below(sites, name) if "properties" in site.path[-2:-1]]


class _Growth:
    """Fills defaults into defaults, once for each plan, and leaves out those that would not end."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, str]] = set()
        self._made = 0

    def settle_all(self, plans: Sequence[_Plan] | object) -> None:
        """Work out the final defaults of all plans."""
        for plan in list(plans):  # type: ignore[call-overload] # a view of plans
            for name in plan.written:
                self._made = 0
                self._under_way.clear()
                try:
                    default = self._settle(plan, name)
                except _EndlessError:
                    continue
                plan.defaults.append((name, default, isinstance(default, dict | list)))

    def _settle(self, plan: _Plan, name: str) -> JSON:
        key = (id(plan), name)
        if key in self._under_way:
            raise _EndlessError
        self._under_way.add(key)
        grown = self._grow(plan.properties[name], plan.written[name])
        self._under_way.discard(key)
        return grown

    def _grow(self, plan: _Plan, value: JSON) -> JSON:
        self._made += 1
        if self._made > _GROWTH:
            raise _EndlessError
        if isinstance(value, dict):
            grown = {
                name: self._grow(plan.properties[name], item) if name in plan.properties else item
                for name, item in value.items()
            }
            for name in plan.written:
                if name not in value:
                    grown[name] = self._settle(plan, name)
            return grown
        if isinstance(value, list):
            plans = [*plan.prefix, *([plan.rest] * len(value))][: len(value)]
            return [
                self._grow(inner, item) if inner else item for inner, item in zip(plans, value, strict=True)
            ]
        return value


class _EndlessError(Exception):
    """A default that grows without end."""


def _prune(plans: Sequence[_Plan] | object) -> None:
    """Mark the plans from which a default can be reached, and cut the others away."""
    everything: list[_Plan] = list(plans)  # type: ignore[call-overload] # a view of plans
    changed = True
    while changed:
        changed = False
        for plan in everything:
            if not plan.works and (plan.defaults or any(inner.works for inner in plan.inner)):
                plan.works = changed = True
    for plan in everything:
        plan.properties = {name: inner for name, inner in plan.properties.items() if inner.works}
        if not any(inner.works for inner in plan.prefix):
            plan.prefix = plan.prefix if plan.rest and plan.rest.works else []
        if plan.rest is not None and not plan.rest.works:
            plan.rest = None
