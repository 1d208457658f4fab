"""References within a schema: those that lead out, nowhere, or round in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from toolcrib.core.errors import Problem, near_misses
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import IN_PLACE, Key, Path, SchemaIndex, Site
from toolcrib.schema.validation.violations import shorten

WAYS: Final = 100_000
"""Ways through references and combinators that a schema may offer for judging one value."""

_JUDGING: Final = (*IN_PLACE, "not", "if")


def reference_problems(
    index: SchemaIndex, sites: Mapping[Key, Site], bundled: Callable[[str], bool]
) -> Iterator[Problem]:
    """What is wrong with the references between the sites of a schema.

    Args:
        index: The index of the schema.
        sites: All its sites.
        bundled: Whether a reference, as an absolute URI, is known without being fetched.
    """
    for site in sites.values():
        for keyword, reference, target in index.targets(site):
            if target is None and not bundled("#".join(index.address(reference, site.base))):
                yield _unresolved(index, reference, site, (*site.path, keyword))
    edges = {key: [other.key for other in _judges(index, site)] for key, site in sites.items()}
    ways, circling = _ways(edges)
    for key in circling:
        yield from _circles(index, sites[key], circling)
    if any(number > WAYS for number in ways.values()):
        message = f"references and combinators multiply to more than {WAYS:,} ways to judge one value"
        hint = (
            "a subschema that is referred to twice from one that is referred to twice doubles with each step"
        )
        yield Problem(code="schema_too_branchy", message=message, hint=hint)


def _unresolved(index: SchemaIndex, reference: str, site: Site, path: Path) -> Problem:
    shown, place = f"`{shorten(reference)}`", pointer_to(path)
    if not index.knows(reference, site.base):
        message = f"{shown} lies outside the schema, and nothing is fetched"
        hint = "copy it under `$defs` and refer to it as `#/$defs/NAME`"
        return Problem(code="remote_ref", message=message, pointer=place, hint=hint)
    there = dict(_definitions(index.root))
    close = [there[name] for name in near_misses(reference.rpartition("/")[2][:200], there)]
    named = " or ".join(f"`{each}`" for each in close or [*there.values()][:10])
    hint = f"{'did you mean' if close else 'there are:'} {named}{'?' if close else ''}" if named else ""
    return Problem(code="dangling_ref", message=f"{shown} leads nowhere", pointer=place, hint=hint)


def _definitions(root: Site) -> Iterator[tuple[str, str]]:
    """The names of the definitions, each with the reference to it."""
    for keyword in ("$defs", "definitions"):
        table = root.get(keyword)
        if isinstance(table, dict):
            yield from ((name, f"#{pointer_to((keyword, name))}") for name in table)


def _judges(index: SchemaIndex, site: Site) -> Iterator[Site]:
    yield from (target for _, _, target in index.targets(site) if target is not None)
    yield from index.at_keywords(site, _JUDGING)


def _ways(edges: Mapping[Key, Sequence[Key]]) -> tuple[dict[Key, int], set[Key]]:
    """The number of ways on from each site, and the sites on or between circles, which have no end."""
    into: dict[Key, list[Key]] = {key: [] for key in edges}
    for key, others in edges.items():
        for other in others:
            into[other].append(key)
    waiting = {key: len(others) for key, others in edges.items()}
    ready = deque(key for key, number in waiting.items() if number == 0)
    ways: dict[Key, int] = {}
    while ready:
        key = ready.popleft()
        ways[key] = 1 + sum(ways[other] for other in edges[key])
        for other in into[key]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    circling = set(edges) - set(ways)
    while (entered := {other for key in circling for other in edges[key]} & circling) != circling:
        circling = entered
    return ways, circling


def _circles(index: SchemaIndex, site: Site, circling: set[Key]) -> Iterator[Problem]:
    for keyword, reference, target in index.targets(site):
        if target is not None and target.key in circling:
            message = f"`{shorten(reference)}` comes back to itself without going into the value"
            hint = "a schema may refer to itself under `properties` or `items`"
            place = pointer_to((*site.path, keyword))
            yield Problem(code="endless_ref", message=message, pointer=place, hint=hint)
