"""Tool policies: limits on the tool calls of a model in a conversation, and checks for mistakes in them.

A policy is a value; `provider.loop.policy_enforcer` enforces it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Restrictions on the tool calls of a model in a conversation. None means no limit.

    Attributes:
        tool_choice: Tool choice in the first round of a turn: `auto`, `required` (any tool), `none`, or the
            name of a tool. Later rounds use `auto`.
        allow: Globs of the tools that are offered to the model and may be called.
        deny: Globs of tools to exclude, even if `allow` matches them.
        ask: Globs of the tools whose calls need approval.
        max_rounds: Maximum requests to the model in one turn.
        max_calls: Maximum calls in the conversation. This limit and the next three count calls that reach
            their tools.
        max_calls_per_turn: Maximum calls between two messages of the user.
        max_calls_per_tool: Tool glob -> maximum calls of each matching tool in the conversation. The first
            match applies.
        max_calls_per_minute: Maximum calls in any 60 seconds, on the clock of the session.
        max_parallel: Maximum concurrent calls.
        max_identical: Maximum consecutive identical calls in a turn. Tools in `polling` are not counted.
        polling: Globs of the tools that may be called repeatedly with the same arguments.
        max_failures: Maximum failures of one tool with the same cause in a turn, without a successful call in
            between. Calls of unknown tools are counted together, and so are calls of forbidden tools.
        max_cost: Maximum cost of the conversation in US dollars.
        stop_on_tool: Globs of the tools that end the turn when a call succeeds.
        requires_before: Tool glob -> tools or globs, each of which must have been called successfully in an
            earlier round.
        exclusive: Groups of tool globs that exclude each other: after a call of a tool that matches one glob,
            tools that match the other globs of the group are denied.
        cooldown: Tool glob -> minimum seconds between the starts of two calls of a tool. The first match
            applies.
    """

    tool_choice: str = "auto"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    max_rounds: int = 50
    max_calls: int | None = None
    max_calls_per_turn: int | None = None
    max_calls_per_tool: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    max_calls_per_minute: int | None = None
    max_parallel: int = 10
    max_identical: int | None = 3
    polling: tuple[str, ...] = ()
    max_failures: int | None = 5
    max_cost: float | None = None
    stop_on_tool: tuple[str, ...] = ()
    requires_before: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    exclusive: tuple[tuple[str, ...], ...] = ()
    cooldown: Mapping[str, float] = field(default_factory=lambda: NOTHING)


NO_POLICY = ToolPolicy()
"""The default policy."""


def check_policy(policy: ToolPolicy, tools: Collection[str] | None = None) -> list[Problem]:
    """Return all problems of a policy, with pointers into it.

    Args:
        policy: The policy.
        tools: The names of all tools. None if they are unknown: names and globs are not compared with them.
    """
    # The other checks would raise for values of the wrong type.
    problems = [*_check_values(policy)]
    if problems:
        return problems
    if tools is not None:
        problems = [*_check_names(policy, tools), *_check_choice(policy, tools)]
    known = _plain_names(policy) if tools is None else tools
    return [*problems, *_check_groups(policy), *_check_order(policy, known), *_check_forced(policy, known)]


_GLOBS = ("allow", "deny", "ask", "polling", "stop_on_tool")
_LEAST = {
    "max_rounds": 1,
    "max_calls": 0,
    "max_calls_per_turn": 0,
    "max_calls_per_minute": 0,
    "max_parallel": 1,
    "max_identical": 1,
    "max_failures": 1,
}
_ALWAYS = ("max_rounds", "max_parallel")


def _check_values(policy: ToolPolicy) -> Iterator[Problem]:
    for key in _GLOBS:
        yield from _check_globs(getattr(policy, key), f"/{key}")
    for glob, needs in policy.requires_before.items():
        yield from _check_globs(needs, f"/requires_before/{glob}")
    for number, group in enumerate(policy.exclusive):
        yield from _check_globs(group, f"/exclusive/{number}")
    for key, least in _LEAST.items():
        value = getattr(policy, key)
        if value is not None or key in _ALWAYS:
            yield from _check_number(value, f"/{key}", least, _is_count)
    for glob, most in policy.max_calls_per_tool.items():
        yield from _check_number(most, f"/max_calls_per_tool/{glob}", 0, _is_count)
    for glob, rest in policy.cooldown.items():
        yield from _check_number(rest, f"/cooldown/{glob}", 0, _is_amount)
    if policy.max_cost is not None:
        yield from _check_number(policy.max_cost, "/max_cost", 0, _is_amount)


def _check_globs(globs: Any, pointer: str) -> Iterator[Problem]:
    # A text is a sequence of characters: each would be a glob of its own, and a `*` matches every tool.
    if isinstance(globs, str):
        hint = f"write `({globs!r},)`"
        yield Problem(
            code="wrong_type",
            message=f"expected a list of globs, got the text `{globs}`",
            pointer=pointer,
            hint=hint,
        )
    elif not all(isinstance(glob, str) and glob for glob in globs):
        yield Problem(code="wrong_type", message="a glob must be a non-empty text", pointer=pointer)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_number(value: Any, pointer: str, least: int, fits: Callable[[object], bool]) -> Iterator[Problem]:
    if not fits(value) or value < least:
        kind = "a whole number" if fits is _is_count else "a number"
        message = f"expected {kind} of at least {least}, got {value!r}"
        yield Problem(code="out_of_range", message=message, pointer=pointer)


def _check_names(policy: ToolPolicy, tools: Collection[str]) -> Iterator[Problem]:
    """Find names and globs that match no tool. `*` is always accepted."""
    for pointer, glob in _named(policy):
        if glob != "*" and glob not in tools and not any(fnmatchcase(name, glob) for name in tools):
            near = did_you_mean(glob.strip("*?"), tools)
            plain = _is_plain(glob)
            yield Problem(
                code="unknown_tool" if plain else "idle_glob",
                message=f"unknown tool `{glob}`" if plain else f"`{glob}` matches no tool",
                pointer=pointer,
                hint=near or "use a tool name, or a glob over tool names",
                # A glob may match tools that are added later.
                severity="error" if plain else "warning",
            )


def _is_plain(glob: str) -> bool:
    """Whether a glob is a plain name."""
    return not any(mark in glob for mark in "*?[")


def _named(policy: ToolPolicy) -> Iterator[tuple[str, str]]:
    """Yield every glob with its pointer."""
    for key in _GLOBS:
        yield from ((f"/{key}/{number}", glob) for number, glob in enumerate(getattr(policy, key)))
    for key in ("max_calls_per_tool", "requires_before", "cooldown"):
        yield from ((f"/{key}/{glob}", glob) for glob in getattr(policy, key))
    for glob, needs in policy.requires_before.items():
        yield from ((f"/requires_before/{glob}/{number}", need) for number, need in enumerate(needs))
    for number, group in enumerate(policy.exclusive):
        yield from ((f"/exclusive/{number}/{place}", glob) for place, glob in enumerate(group))


CHOICES = ("auto", "required", "none")
"""The values of `tool_choice` that are not names of tools."""


def _check_choice(policy: ToolPolicy, tools: Collection[str]) -> Iterator[Problem]:
    choice = policy.tool_choice
    if choice == "required" and not any(allows(policy, tool) for tool in tools):
        message = "`tool_choice` requires a call, but the policy allows no tool"
        yield _contradiction(message, "/tool_choice", "allow a tool, or remove `tool_choice`")
    if choice in CHOICES:
        return
    if choice not in tools:
        hint = (
            did_you_mean(choice, [*CHOICES, *tools])
            or "write `auto`, `required`, `none`, or the name of a tool"
        )
        message = f"`{choice}` is neither a choice nor a tool"
        yield Problem(code="unknown_tool", message=message, pointer="/tool_choice", hint=hint)
    elif not allows(policy, choice):
        message = f"`tool_choice` forces `{choice}`, but the policy does not allow it"
        hint = "remove it from `deny`, or choose another tool"
        yield Problem(code="wrong_value", message=message, pointer="/tool_choice", hint=hint)


def _plain_names(policy: ToolPolicy) -> Collection[str]:
    """The tools that a policy names. They stand in for the list of all tools if it is unknown."""
    return {glob for _pointer, glob in _named(policy) if _is_plain(glob)} | {policy.tool_choice} - {*CHOICES}


def _check_groups(policy: ToolPolicy) -> Iterator[Problem]:
    """Find exclusive groups, or globs in them, that have no effect."""
    for number, group in enumerate(policy.exclusive):
        if len(group) < 2:
            message = "a group of fewer than two globs excludes nothing"
            hint = "add the globs that its tools exclude, or remove the group"
            yield _contradiction(message, f"/exclusive/{number}", hint)
        for place, glob in enumerate(group):
            if glob in group[:place]:
                message = f"duplicate `{glob}` in this group; a tool does not exclude itself"
                yield _contradiction(message, f"/exclusive/{number}/{place}", "remove it")


def _check_order(policy: ToolPolicy, tools: Collection[str]) -> Iterator[Problem]:
    """Find tools that can never be called because of `requires_before`."""
    free = _callable(policy, tools)
    for glob, needs in policy.requires_before.items():
        waiting = [tool for tool in tools if tool not in free and fnmatchcase(tool, glob)]
        waiting = [tool for tool in waiting if _may_ever(policy, tool)]
        for number, need in enumerate(needs):
            stuck = next((tool for tool in waiting if not _met(policy, tool, need, tools, free)), None)
            if stuck is not None:
                message = f"`{stuck}` requires an earlier successful call of `{need}`, which is impossible"
                hint = _why_never(policy, stuck, [tool for tool in tools if fnmatchcase(tool, need)])
                yield _contradiction(message, f"/requires_before/{glob}/{number}", hint)


def _callable(policy: ToolPolicy, tools: Collection[str]) -> set[str]:
    """The tools that can be called in some order of calls."""
    # A fixed point: first the tools that require nothing, then those that require only them, and so on. The
    # tools of a cycle are never reached.
    waiting = {tool for tool in tools if _may_ever(policy, tool)}
    free: set[str] = set()
    while True:
        more = {
            tool
            for tool in waiting
            if all(_met(policy, tool, need, tools, free) for need in needs_of(policy, tool))
        }
        if not more:
            return free
        free |= more
        waiting -= more


def _may_ever(policy: ToolPolicy, tool: str) -> bool:
    """Whether a tool may be called at all, regardless of earlier calls."""
    most = [policy.max_calls, policy.max_calls_per_turn, policy.max_calls_per_minute]
    most += [n for glob, n in policy.max_calls_per_tool.items() if fnmatchcase(tool, glob)][:1]
    return allows(policy, tool) and 0 not in most


def _met(policy: ToolPolicy, tool: str, need: str, tools: Collection[str], free: Collection[str]) -> bool:
    """Whether a tool that matches `need` can be called before `tool`."""
    # A glob that matches no tool counts as met: `_check_names` already reports it.
    fitting = [other for other in tools if fnmatchcase(other, need)]
    return not fitting or any(other in free and not _exclude(policy, tool, other) for other in fitting)


def _exclude(policy: ToolPolicy, one: str, other: str) -> bool:
    places = [(_place(one, group), _place(other, group)) for group in policy.exclusive]
    return any(None not in pair and pair[0] != pair[1] for pair in places)


def _place(tool: str, group: Collection[str]) -> int | None:
    return next((place for place, glob in enumerate(group) if fnmatchcase(tool, glob)), None)


def _why_never(policy: ToolPolicy, tool: str, needed: Collection[str]) -> str:
    """The hint for a tool that can never be called."""
    if not any(_may_ever(policy, other) for other in needed):
        return "allow it, or do not require it"
    if any(_exclude(policy, tool, other) for other in needed):
        return "the two exclude each other: remove one of them from the group"
    if tool in needed:
        return f"`{tool}` itself matches both sides: list the tools that must wait, without it"
    return "it requires this tool in turn, or a tool that is never called: break the cycle"


def _check_forced(policy: ToolPolicy, tools: Collection[str]) -> Iterator[Problem]:
    """Check whether the tool that `tool_choice` forces can be called first."""
    choice = policy.tool_choice
    if choice in CHOICES or choice not in tools or not allows(policy, choice):
        return
    if not _may_ever(policy, choice):
        message = f"`tool_choice` forces `{choice}`, but its limit is 0 calls"
        yield _contradiction(message, "/tool_choice", "raise its limit, or choose another tool")
    needs = needs_of(policy, choice)
    if needs:
        before = " and ".join(f"`{need}`" for need in needs)
        message = f"`tool_choice` forces `{choice}` first, but it requires {before}"
        yield _contradiction(
            message, "/tool_choice", "choose the tool that comes first, or do not require it"
        )


def _contradiction(message: str, pointer: str, hint: str) -> Problem:
    return Problem(code="contradiction", message=message, pointer=pointer, hint=hint)


def needs_of(policy: ToolPolicy, tool: str) -> tuple[str, ...]:
    """Globs that each require an earlier successful call of a matching tool before this tool may be called.

    With `{"*": ["login"]}`, all tools wait for `login`, and `login` does not wait for itself.
    """
    return tuple(
        need
        for glob, needs in policy.requires_before.items()
        if fnmatchcase(tool, glob)
        for need in needs
        if _is_plain(glob) or not fnmatchcase(tool, need)
    )


def allows(policy: ToolPolicy, tool: str) -> bool:
    """Whether a tool is offered to the model and may be called."""
    return _fits(tool, policy.allow) and not _fits(tool, policy.deny)


def _fits(tool: str, globs: Collection[str]) -> bool:
    # `fnmatch` ignores case on Windows; tool names are case-sensitive everywhere.
    return any(fnmatchcase(tool, glob) for glob in globs)


def renamed(policy: ToolPolicy, full: Callable[[str], str]) -> ToolPolicy:
    """Return the policy with `full` applied to every name and glob of a tool."""
    globs: dict[str, Any] = {key: tuple(map(full, getattr(policy, key))) for key in _GLOBS}
    return replace(
        policy,
        **globs,
        tool_choice=policy.tool_choice if policy.tool_choice in CHOICES else full(policy.tool_choice),
        max_calls_per_tool={full(glob): most for glob, most in policy.max_calls_per_tool.items()},
        requires_before={
            full(glob): tuple(map(full, needs)) for glob, needs in policy.requires_before.items()
        },
        exclusive=tuple(tuple(map(full, group)) for group in policy.exclusive),
        cooldown={full(glob): rest for glob, rest in policy.cooldown.items()},
    )


def without_idle(policy: ToolPolicy, tools: Collection[str]) -> ToolPolicy:
    """Return the policy without what matches no tool, and without an impossible choice. Loading has reported them."""

    def idle(glob: str) -> bool:
        return glob != "*" and not any(fnmatchcase(tool, glob) for tool in tools)

    kept: dict[str, Any] = {
        key: tuple(glob for glob in getattr(policy, key) if not idle(glob)) for key in _GLOBS
    }
    kept |= {
        key: {glob: said for glob, said in getattr(policy, key).items() if not idle(glob)}
        for key in ("max_calls_per_tool", "requires_before", "cooldown")
    }
    allowed = {tool for tool in tools if allows(policy, tool)}
    possible = allowed if policy.tool_choice == "required" else policy.tool_choice in {*CHOICES, *allowed}
    if not possible:
        kept["tool_choice"] = "auto"
    return replace(policy, **kept)
