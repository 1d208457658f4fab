"""Parse and check `access` of projects and profiles, and find rules without effect."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import file_and_line
from toolcrib.core.text import json_equal
from toolcrib.expressions.matchers import compile_matcher, find_impossible, is_number
from toolcrib.loading.descriptors import check_tool_glob
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.tool_requirements import CAPABILITIES, check_capability
from toolcrib.registry.catalog import ANNOTATIONS, Card, fits_conditions, idle_globs
from toolcrib.registry.registry import Registry
from toolcrib.security.access import EFFECTS, NO_ACCESS, AccessRule, AccessSettings, Effect
from toolcrib.security.hosts import read_host_pattern

Place = Callable[[str], str]
"""Returns `file:line` of a JSON Pointer below `access`."""

_LISTS = ("grants", "hosts", "commands", "environment")
_PATHS = ("read", "write")


def parse_access(said: Mapping[str, Any], place: Place, root: str) -> AccessSettings:
    """The settings of an `access` block that its schema has accepted.

    Args:
        said: The block; empty if there is none.
        place: Locates its parts.
        root: Folder of the project file.
    """
    if not said:
        return NO_ACCESS
    top = os.path.realpath(root)
    paths = said.get("paths", {})
    keys = [key for key in ("default", "audit", *_LISTS) if key in said]
    return AccessSettings(
        default=said.get("default", "allow"),
        audit=said.get("audit", False),
        **{key: tuple(said[key]) for key in _LISTS if key in said},
        **{key: tuple(os.path.join(top, folder) for folder in paths[key]) for key in _PATHS if key in paths},
        rules=tuple(
            _rule(rule, place(f"/rules/{index}")) for index, rule in enumerate(said.get("rules", ()))
        ),
        places=MappingProxyType(
            {key: place(f"/{key}") for key in keys}
            | {f"paths.{key}": place(f"/paths/{key}") for key in _PATHS if key in paths}
        ),
        root=top,
    )


def _rule(said: Mapping[str, Any], place: str) -> AccessRule:
    effect: Effect = next(effect for effect in EFFECTS if effect in said)
    return AccessRule(effect, said[effect], said.get("reason", ""), said.get("severity", "medium"), place)


def overlay_access(lower: AccessSettings, upper: AccessSettings) -> AccessSettings:
    """The settings of a profile on top of those that it extends: rules are added, other keys are replaced."""
    if upper is NO_ACCESS:
        return lower
    fields = {key.removeprefix("paths."): key for key in upper.places}
    replaced = {name: getattr(upper, name) for name in fields}
    return lower._replace(
        **replaced,
        rules=(*lower.rules, *upper.rules),
        places=MappingProxyType({**lower.places, **upper.places}),
        root=upper.root or lower.root,
    )


def access_within(settings: AccessSettings, profile: str) -> AccessSettings:
    """The settings of a profile, with its name in all places."""
    if settings is NO_ACCESS:
        return settings
    named = f" (profile {profile})"
    return settings._replace(
        rules=tuple(rule._replace(place=rule.place + named) for rule in settings.rules),
        places=MappingProxyType({key: place + named for key, place in settings.places.items()}),
    )


# Checks of one document.


def check_access(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """The problems of the `access` of the project or profile at `pointer` that the schema cannot find."""
    block = said.get("access", {})
    for index, name in enumerate(block.get("grants", ())):
        yield from check_capability(name, f"{pointer}/access/grants/{index}")
    for index, host in enumerate(block.get("hosts", ())):
        try:
            read_host_pattern(host)
        except ValueError as error:
            message, _, hint = str(error).rpartition("; ")
            yield Problem(
                code="bad_host",
                message=message or str(error),
                pointer=f"{pointer}/access/hosts/{index}",
                hint=hint if message else "write a host: `api.example.com`, `*.example.com`, `[::1]:8080`",
            )
    for key in _PATHS:
        for index, folder in enumerate(block.get("paths", {}).get(key, ())):
            yield from _check_folder(folder, f"{pointer}/access/paths/{key}/{index}")
    for index, rule in enumerate(block.get("rules", ())):
        yield from _check_rule(rule, f"{pointer}/access/rules/{index}")


def _check_folder(folder: str, pointer: str) -> Iterator[Problem]:
    steps = os.path.normpath(folder).split(os.sep)
    if steps[0] == os.pardir:
        message = f"`{excerpt(folder)}` leaves the folder of the project"
        hint = "write the absolute path if calls may use files elsewhere"
        yield Problem(code="path_leaves_root", message=message, pointer=pointer, hint=hint)
    elif "\0" in folder or "${" in folder:
        message = f"`{excerpt(folder)}` is not a valid folder: variables are not substituted here"
        yield Problem(code="wrong_form", message=message, pointer=pointer, hint="write the path itself")


def _check_rule(rule: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    for effect in (effect for effect in EFFECTS if effect in rule):
        conditions = rule[effect]
        base = f"{pointer}/{effect}"
        for key in conditions:
            if key == "args":
                faults: list[Problem] = []
                compile_matcher(conditions["args"], faults, f"{base}/args")
                yield from faults
            else:
                yield from check_condition(key, conditions[key], f"{base}/{key}")


def check_condition(key: str, said: Any, pointer: str) -> Iterator[Problem]:
    """The problems of one condition of a rule, other than `args`."""
    for place, entry in _entries(said, pointer):
        yield from _check_entry(key, entry.removeprefix("!"), place)


def _entries(said: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(said, str):
        yield pointer, said
    else:
        yield from ((f"{pointer}/{index}", entry) for index, entry in enumerate(said))


def _check_entry(key: str, entry: str, pointer: str) -> Iterator[Problem]:
    if key == "tool":
        yield from check_tool_glob(entry, pointer)
    elif key == "capability" and not any(fnmatchcase(known, entry) for known in CAPABILITIES):
        yield from check_capability(entry, pointer)
    elif key == "annotation" and entry not in ANNOTATIONS:
        known = ", ".join(f"`{name}`" for name in ANNOTATIONS)
        hint = did_you_mean(entry, ANNOTATIONS) or f"annotations: {known}"
        message = f"unknown annotation `{excerpt(entry)}`"
        yield Problem(code="unknown_annotation", message=message, pointer=pointer, hint=hint)


# Checks against the tools, and of the rules against each other.


def check_rules(
    inherited: Sequence[AccessRule],
    own: Sequence[AccessRule],
    registry: Registry,
    settled: Callable[[str], bool] = lambda _glob: True,
) -> Iterator[Problem]:
    """Warnings for rules without effect.

    Args:
        inherited: The rules of the project and of extended profiles.
        own: The rules to check.
        registry: All tools.
        settled: Whether all tools that a glob can match are known.
    """
    cards = registry.cards.values()
    for number, rule in enumerate(own):
        globs = [text for _, text in _entries(rule.conditions.get("tool", "*"), "")]
        concerned = [card.name for card in cards if fits_conditions(card, rule.conditions)]
        if not concerned and all(map(settled, globs)):
            message = f"the rule `{rule_text(rule)}` matches no tool"
            yield _warning("idle_rule", message, hint_for_idle(rule.conditions, cards), rule)
            continue
        place = rule.place.partition(" (profile ")[0]
        yield from idle_globs(
            registry.cards,
            filter(settled, (glob.removeprefix("!") for glob in globs)),
            of=f"the rule `{rule_text(rule)}`",
            place=place,
        )
        impossible = (
            [_impossible(rule, registry[name]) for name in concerned] if "args" in rule.conditions else []
        )
        if impossible and all(impossible):
            name, why = concerned[0], impossible[0]
            message = f"the rule `{rule_text(rule)}` matches no call: {why} of `{name}`"
            yield _warning("idle_rule", message, "write a matcher that valid arguments can meet", rule)
            continue
        before = (*inherited, *own[:number])
        covering = next(
            (
                other
                for other in (*before, *own[number + 1 :])
                if _covers(other, rule, earlier=other in before)
            ),
            None,
        )
        if covering is not None:
            message = (
                f"the rule `{rule_text(rule)}` never decides: "
                f"`{rule_text(covering)}` ({covering.place}) covers all of its calls"
            )
            yield _warning("covered_rule", message, "remove one of them, or narrow the other one", rule)


def _impossible(rule: AccessRule, tool: Descriptor) -> str:
    """Why no valid arguments of a tool meet the matcher of a rule, as a clause; empty if some may."""
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    found = find_impossible(rule.conditions["args"], schema)
    error = next((each for each in found if each.severity == "error" or each.code == "never_matches"), None)
    return "" if error is None else f"{error.message} in `args{error.pointer}`"


def _warning(code: str, message: str, hint: str, rule: AccessRule) -> Problem:
    # The place of a profile's rule ends with the name of the profile.
    source, line = file_and_line(rule.place.partition(" (profile ")[0])
    return Problem(code=code, message=message, hint=hint, severity="warning").at(source, line, 1)


def hint_for_idle(conditions: Mapping[str, Any], cards: Collection[Card]) -> str:
    """How to change conditions that no tool meets."""
    known: dict[str, set[str]] = {
        "tool": {card.name for card in cards},
        "tag": {tag for card in cards for tag in card.tags},
        "label": {key for card in cards for key, _value in card.labels},
        "capability": {name for card in cards for name in card.capabilities},
        "pack": {card.pack for card in cards if card.pack},
    }
    for key, names in known.items():
        for _, entry in _entries(conditions.get(key, ()), ""):
            if not any(fnmatchcase(name, entry) for name in names):
                near = did_you_mean(entry.strip("*?!"), names)
                if near:
                    return near
    return "all of its conditions must hold for one tool"


def rule_text(rule: AccessRule) -> str:
    """A rule in one line: `deny tool refund_*, args`. The matcher of the arguments is not shown."""
    parts = []
    for key, said in rule.conditions.items():
        parts.append(key if key == "args" else f"{key} {' or '.join(text for _, text in _entries(said, ''))}")
    return f"{rule.effect} {', '.join(parts) or 'everything'}"


def _covers(one: AccessRule, other: AccessRule, *, earlier: bool) -> bool:
    """Whether a rule decides every call that another one could decide."""
    ranks = EFFECTS.index(one.effect), EFFECTS.index(other.effect)
    if ranks[0] > ranks[1] or (ranks[0] == ranks[1] and not earlier):
        return False
    for key, said in one.conditions.items():
        if key not in other.conditions:
            if key == "args" or not _is_everything(said):
                return False
        elif key == "args":
            if not _implies(other.conditions["args"], said):
                return False
        elif not _within(other.conditions[key], said):
            return False
    return True


def _is_everything(said: Any) -> bool:
    return any(entry == "*" for _, entry in _entries(said, ""))


def _within(inner: Any, outer: Any) -> bool:
    """Whether every text that one condition accepts is surely accepted by another one."""
    inside = [entry for _, entry in _entries(inner, "")]
    outside = [entry for _, entry in _entries(outer, "")]
    if any(entry.startswith("!") for entry in (*inside, *outside)):
        return sorted(inside) == sorted(outside)
    return all(any(entry == glob or fnmatchcase(entry, glob) for glob in outside) for entry in inside)


_LOWER, _UPPER = ("$gt", "$gte"), ("$lt", "$lte")


def _implies(inner: JSON, outer: JSON) -> bool:
    """Whether every value that one matcher accepts is surely accepted by another one."""
    if json_equal(inner, outer):
        return True
    if not isinstance(outer, dict):
        return False
    operators = [key for key in outer if key.startswith("$")]
    if not operators:
        return isinstance(inner, dict) and all(
            key in inner and _implies(inner[key], item) for key, item in outer.items()
        )
    if isinstance(inner, dict) and any(key.startswith("$") for key in inner):
        return all(_bounds(inner, key, outer[key]) for key in operators)
    # A literal is one value, or an object to which keys may be added.
    if isinstance(inner, dict):
        return False
    return compile_matcher(outer, []).matches(inner)


def _bounds(inner: Mapping[str, JSON], key: str, limit: JSON) -> bool:
    """Whether the bounds of one matcher imply an operator of another one."""
    if key in inner and json_equal(inner[key], limit):
        return True
    if not is_number(limit) or key not in (*_LOWER, *_UPPER):
        return False
    for own in _LOWER if key in _LOWER else _UPPER:
        bound = inner.get(own)
        if is_number(bound):
            beyond = bound > limit if key in _LOWER else bound < limit
            if beyond or (bound == limit and (own == key or key in {"$gte", "$lte"})):
                return True
    return False
