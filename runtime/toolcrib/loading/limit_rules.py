"""Limits of groups of calls (`limits.rules` of projects and profiles): parse, check, and apply them to tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Bounds, Descriptor
from toolcrib.core.pointers import file_and_line, pointer_step
from toolcrib.loading.access import check_condition, hint_for_idle
from toolcrib.loading.budgets import PERSONAL
from toolcrib.loading.descriptors import check_defaults
from toolcrib.loading.settings import OFF, check_limits, read_limit
from toolcrib.registry.catalog import card_of, fits_conditions
from toolcrib.registry.registry import Registry

SHARED: Final = ("rate", "concurrency", "queue")
"""The keys of a rule that its calls share."""

OF_PROCESSES: Final = ("memory", "cpu_time", "open_files", "written_bytes", "processes")
"""The keys of a rule that limit the process of a tool, which all of its callers share."""

_DEFAULT_QUEUE: Final = 100


class LimitRule(NamedTuple):
    """Limits of a group of calls.

    Attributes:
        name: Name of the rule.
        conditions: The calls that it limits, as in rules of `access`: `tag` -> texts, of which one must match.
        per: What shares `bounds`: `run`, `session`, `user`, `caller` or `tool`.
        bounds: The limits that the calls share; None for no shared limits.
        limits: Key of `limits`, or `timeout` -> limit of each call.
        place: Where it is declared: `toolcrib.yaml:12 (profile ci)`.
    """

    name: str
    conditions: Mapping[str, JSON]
    per: str
    bounds: Bounds | None
    limits: Mapping[str, Any]
    place: str

    @property
    def is_personal(self) -> bool:
        """Whether it depends on the caller or user whether a call is limited."""
        return not PERSONAL.isdisjoint(self.conditions)


def compile_limit_rules(settings: Mapping[str, Mapping[str, Any]]) -> tuple[LimitRule, ...]:
    """Compile the rules of a project, which loading has checked."""
    return tuple(_compile(name, said) for name, said in settings.items())


def _compile(name: str, said: Mapping[str, Any]) -> LimitRule:
    values = {key: read_limit(key, value) for key, value in said.items() if key not in {"for", "per", "at"}}
    bounds = None
    if "rate" in values or "concurrency" in values:
        queue = values.get("queue", _DEFAULT_QUEUE)
        bounds = Bounds(values.get("rate"), values.get("concurrency"), queue)
    return LimitRule(
        name,
        said.get("for", {}),
        said.get("per", "run"),
        bounds,
        {key: value for key, value in values.items() if key not in SHARED},
        said.get("at", ""),
    )


def rules_for(rules: Sequence[LimitRule], tool: Descriptor) -> tuple[LimitRule, ...]:
    """The rules that may limit calls of a tool."""
    if not rules:
        return ()
    card = card_of(tool)
    return tuple(rule for rule in rules if fits_conditions(card, rule.conditions))


def fixed_limits(settings: Mapping[str, Mapping[str, Any]]) -> Callable[[Descriptor], Descriptor]:
    """A function that gives a tool the limits that apply to its calls whoever makes them."""
    rules = [rule for rule in compile_limit_rules(settings) if not rule.is_personal]
    return lambda tool: with_rules(tool, rules_for(rules, tool))


def with_rules(tool: Descriptor, rules: Sequence[LimitRule]) -> Descriptor:
    """A tool with the limits that the rules set for each of its calls, where they are stricter than its own.

    `origin.settings` tells the rule of each changed limit.
    """
    limits, timeout, places = tool.limits, tool.timeout, dict(tool.origin.settings)
    for rule in rules:
        for key, value in rule.limits.items():
            own = timeout if key == "timeout" else getattr(limits, key)
            if own is not None and own <= value:
                continue
            places[key if key == "timeout" else f"limits.{key}"] = f"{rule.place} (rule {rule.name})"
            if key == "timeout":
                timeout = value
            else:
                limits = limits._replace(**{key: value})
    if (limits, timeout) == (tool.limits, tool.timeout):
        return tool
    return tool._replace(limits=limits, timeout=timeout, origin=tool.origin._replace(settings=places))


# Checks of one document.


def check_limit_rules(said: Mapping[str, Any], pointer: str, *, of_profile: bool) -> Iterator[Problem]:
    """The problems of the rules in the `limits` of the project or profile at `pointer` that the schema cannot find."""
    for name, rule in said.get("limits", {}).get("rules", {}).items():
        at = f"{pointer}/limits/rules/{pointer_step(name)}"
        if rule != OFF:
            yield from _check_rule(name, rule, at)
        elif not of_profile:
            message = f"the rule `{name}` is `off` in the project itself, where it removes nothing"
            yield Problem(
                code="needless_key",
                message=message,
                pointer=at,
                hint="write `off` in a profile, or remove it",
            )


def _check_rule(name: str, rule: Mapping[str, Any], at: str) -> Iterator[Problem]:
    conditions = rule.get("for", {})
    for key in conditions:
        yield from check_condition(key, conditions[key], f"{at}/for/{key}")
    limits = [key for key in rule if key not in {"for", "per"}]
    if not limits:
        hint = "add a limit, such as `concurrency: 2` or `output_size: 1MiB`"
        yield Problem(code="missing_key", message=f"the rule `{name}` limits nothing", pointer=at, hint=hint)
    if "rate" not in rule and "concurrency" not in rule:
        for key in ("per", "queue"):
            if key in rule:
                message = f"`{key}` has no effect without `rate` or `concurrency`"
                hint = f"add one of them, or remove `{key}`"
                yield Problem(code="needless_key", message=message, pointer=f"{at}/{key}", hint=hint)
    yield from _check_process_limits(rule, at)
    if "timeout" in rule:
        for problem in check_defaults({"defaults": {"timeout": rule["timeout"]}}, ""):
            yield problem._replace(pointer=f"{at}/timeout")
    for problem in check_limits({"limits": {key: rule[key] for key in limits if key != "timeout"}}, ""):
        yield problem._replace(pointer=problem.pointer.replace("/limits", at, 1))


def _check_process_limits(rule: Mapping[str, Any], at: str) -> Iterator[Problem]:
    conditions = rule.get("for", {})
    personal = " and ".join(f"`{key}`" for key in ("caller", "user") if key in conditions)
    for key in OF_PROCESSES if personal else ():
        if key in rule:
            message = f"`{key}` limits the process of a tool, which all callers share, so it cannot depend on {personal}"
            hint = f"remove {personal} from `for`, or write a rule without it"
            yield Problem(code="unsupported_limit", message=message, pointer=f"{at}/{key}", hint=hint)


# Checks against the tools.


def idle_limit_rules(
    settings: Mapping[str, Mapping[str, Any]],
    registry: Registry,
    settled: Callable[[Iterable[str]], Sequence[str]],
) -> Iterator[Problem]:
    """Warnings for rules that limit no tool.

    Args:
        settings: The rules, as written.
        registry: All tools.
        settled: The globs of a list that match no tool that is not known yet.
    """
    cards = registry.cards.values()
    for rule in compile_limit_rules(settings):
        said: Any = rule.conditions.get("tool", "*")
        globs = [said] if isinstance(said, str) else said
        if any(fits_conditions(card, rule.conditions) for card in cards) or settled(globs) != globs:
            continue
        source, line = file_and_line(rule.place.partition(" (profile ")[0])
        yield Problem(
            code="idle_rule",
            message=f"the limit rule `{rule.name}` matches no tool",
            hint=hint_for_idle(rule.conditions, cards),
            severity="warning",
        ).at(source, line, 1)
