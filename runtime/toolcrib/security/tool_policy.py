"""What a model may do with tools in a conversation, as a value. `provider.loop.policy_enforcer` enforces it."""

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
    """What a model may do with tools. None means no limit.

    Attributes:
        tool_choice: In the first round of a turn: `auto`, `required`, `none`, or the name of a tool; then `auto`.
        allow: Globs of the tools that are offered and may be called.
        deny: Globs of those that are not, whatever `allow` says.
        ask: Globs of those whose calls wait for an approval.
        max_rounds: Requests to the model in one turn.
        max_calls: Calls in the conversation that reach their tools; so for the next three.
        max_calls_per_turn: Calls between two messages of the user.
        max_calls_per_tool: Tool glob -> calls of each tool in the conversation; the first that fits counts.
        max_calls_per_minute: Calls in any 60 seconds of the session's clock.
        max_parallel: Calls under way at once.
        max_identical: Equal calls one after another in a turn; a tool of `polling` is not counted.
        polling: Globs of the tools that are asked the same again and again.
        max_failures: Calls of one tool that fail for one cause in a turn, with none that ends well between them; all
            calls of tools that are not there, and all of tools that may not be called, count together.
        max_cost: US dollars in the conversation.
        stop_on_tool: Globs of the tools after whose call the turn ends, once one has ended well.
        requires_before: Tool glob -> tools (or globs) of which each must have been called well before, in an earlier round.
        exclusive: Groups of tool globs; who has called a tool of one member may call no tool of another.
        cooldown: Tool glob -> seconds between the beginnings of two calls of a tool; the first that fits counts.
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
    """What is wrong with a policy, all at once; pointers lead into the policy.

    Args:
        policy: The policy.
        tools: The names of all tools, of which its globs should fit some; None where nobody knows them.
    """
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
    """One text for a list of texts is refused: each of its letters would count, and a `*` fits every tool."""
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
    """Globs that fit no tool; `*` may stand for no tool at all."""
    for pointer, glob in _named(policy):
        if glob != "*" and glob not in tools and not any(fnmatchcase(name, glob) for name in tools):
            near = did_you_mean(glob.strip("*?"), tools)
            plain = _is_plain(glob)
            yield Problem(
                code="unknown_tool" if plain else "idle_glob",
                message=f"unknown tool `{glob}`" if plain else f"`{glob}` matches no tool",
                pointer=pointer,
                hint=near or "use a tool name, or a glob over tool names",
                severity="error"
                if plain
                else "warning",  # what is not there may come, or be forbidden for good
            )


def _is_plain(glob: str) -> bool:
    """Whether a glob is a name."""
    return not any(mark in glob for mark in "*?[")


def _named(policy: ToolPolicy) -> Iterator[tuple[str, str]]:
    """Every glob, and where it stands."""
    for key in _GLOBS:
        yield from ((f"/{key}/{number}", glob) for number, glob in enumerate(getattr(policy, key)))
    for key in ("max_calls_per_tool", "requires_before", "cooldown"):
        yield from ((f"/{key}/{glob}", glob) for glob in getattr(policy, key))
    for glob, needs in policy.requires_before.items():
        yield from ((f"/requires_before/{glob}/{number}", need) for number, need in enumerate(needs))
    for number, group in enumerate(policy.exclusive):
        yield from ((f"/exclusive/{number}/{place}", glob) for place, glob in enumerate(group))


CHOICES = ("auto", "required", "none")
"""What `tool_choice` can be besides the name of a tool."""


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
    """The tools that a policy itself names."""
    return {glob for _pointer, glob in _named(policy) if _is_plain(glob)} | {policy.tool_choice} - {*CHOICES}


def _check_groups(policy: ToolPolicy) -> Iterator[Problem]:
    """Groups of which no member shuts out another."""
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
    """Tools that wait for what can never be."""
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
    """The tools that can be called at some time: those that wait for nothing, those that wait for them, and so on."""
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
    """Whether a tool may be called at all, whatever was called before."""
    most = [policy.max_calls, policy.max_calls_per_turn, policy.max_calls_per_minute]
    most += [n for glob, n in policy.max_calls_per_tool.items() if fnmatchcase(tool, glob)][:1]
    return allows(policy, tool) and 0 not in most


def _met(policy: ToolPolicy, tool: str, need: str, tools: Collection[str], free: Collection[str]) -> bool:
    """Whether something that a tool needs can have been called; what fits no tool is told as that."""
    fitting = [other for other in tools if fnmatchcase(other, need)]
    return not fitting or any(other in free and not _exclude(policy, tool, other) for other in fitting)


def _exclude(policy: ToolPolicy, one: str, other: str) -> bool:
    places = [(_place(one, group), _place(other, group)) for group in policy.exclusive]
    return any(None not in pair and pair[0] != pair[1] for pair in places)


def _place(tool: str, group: Collection[str]) -> int | None:
    return next((place for place, glob in enumerate(group) if fnmatchcase(tool, glob)), None)


def _why_never(policy: ToolPolicy, tool: str, needed: Collection[str]) -> str:
    """What could be changed about a tool that waits for ever."""
    if not any(_may_ever(policy, other) for other in needed):
        return "allow it, or do not require it"
    if any(_exclude(policy, tool, other) for other in needed):
        return "the two exclude each other: remove one of them from the group"
    if tool in needed:
        return f"`{tool}` itself matches both sides: list the tools that must wait, without it"
    return "it requires this tool in turn, or a tool that is never called: break the cycle"


def _check_forced(policy: ToolPolicy, tools: Collection[str]) -> Iterator[Problem]:
    """A tool that must be called first, and can't be."""
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
    """Whether a tool is offered, and may be called."""
    return _fits(tool, policy.allow) and not _fits(tool, policy.deny)


def _fits(tool: str, globs: Collection[str]) -> bool:
    # `fnmatch` ignores case on Windows; tool names are case-sensitive everywhere.
    return any(fnmatchcase(tool, glob) for glob in globs)


def renamed(policy: ToolPolicy, full: Callable[[str], str]) -> ToolPolicy:
    """The policy with other names and globs of tools."""
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
    """Return the policy without names and globs that match no tool. Loading has already reported them."""

    def idle(glob: str) -> bool:
        return glob != "*" and not any(fnmatchcase(tool, glob) for tool in tools)

    kept: dict[str, Any] = {
        key: tuple(glob for glob in getattr(policy, key) if not idle(glob)) for key in _GLOBS
    }
    kept |= {
        key: {glob: said for glob, said in getattr(policy, key).items() if not idle(glob)}
        for key in ("max_calls_per_tool", "requires_before", "cooldown")
    }
    if policy.tool_choice not in {*CHOICES, *tools}:
        kept["tool_choice"] = "auto"
    return replace(policy, **kept)
