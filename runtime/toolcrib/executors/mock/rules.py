"""Choose the reply for a call. Every mock is a list of rules: a bare reply or a sequence is a single rule.

A mock with many rules has a `RuleIndex`, which skips the rules that require another value of one argument.
The remaining rules are tried in order, so the index never changes which rule is chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, Machine
from toolcrib.core.pointers import pointer_step
from toolcrib.core.text import compact
from toolcrib.executors.mock.replies import Reply, compile_reply
from toolcrib.executors.mock.variables import MockState, Scope, is_stateful, names_for
from toolcrib.expressions import Expression, compile_condition
from toolcrib.expressions.values import frozen

if TYPE_CHECKING:
    from toolcrib.expressions.matchers import Matcher

AfterLast = Literal["error", "repeat", "cycle", "next_rule"]

BARE = "/mock"
"""The pointer of a rule that was written as a bare reply."""

SEQUENCE = "/mock/sequence"
"""The pointer of a rule that was written as `sequence`."""


class MockRule(NamedTuple):
    """A compiled rule. Each matching attempt of a call uses the next of its replies.

    Attributes:
        label: The name for reports, such as `rule 2`.
        pointer: JSON Pointer of the rule in the descriptor.
        replies: The replies, in order of use.
        ends: The number of calls after which each reply is used up, counted from the first.
        when: The `when` of the document; empty if the rule always matches.
        args: Matcher of the arguments; None for any.
        call: Matcher of the call's number; None for any.
        state: Matcher of the session's state machines; None for any.
        condition: The expression `if`; None for none.
        after_last: What happens when the replies are used up.
    """

    label: str
    pointer: str
    replies: tuple[Reply, ...]
    ends: tuple[int, ...]
    when: Mapping[str, JSON] = NOTHING
    args: Matcher | None = None
    call: Matcher | None = None
    state: Matcher | None = None
    condition: Expression | None = None
    after_last: AfterLast = "error"

    def made_ready(self, *, alone: bool) -> MockRule:
        """The same rule with prepared replies; see `Reply.made_ready`."""
        return self._replace(replies=tuple(reply.made_ready(alone=alone) for reply in self.replies))

    @property
    def always(self) -> bool:
        """Whether the rule matches every call, so that the rules below it are unreachable."""
        return not self.when and self.after_last != "next_rule"

    @property
    def names(self) -> frozenset[str]:
        """The names of the scope that the rule and its replies read."""
        readers = (self.args, self.call, self.state, self.condition, *self.replies)
        states = frozenset[str]() if self.state is None else frozenset({"state"})
        return states.union(*(reader.names for reader in readers if reader is not None))

    @property
    def keeps(self) -> bool:
        """Whether it reads or changes the state of the session."""
        return is_stateful(self.names) or any(reply.keeps for reply in self.replies)

    @property
    def counts(self) -> bool:
        """Whether its answer depends on the number of calls in the session."""
        limited = len(self.replies) > 1 or self.after_last != "repeat" or self.call is not None
        paced = any(reply.injection is not None and reply.injection.counts for reply in self.replies)
        return limited or paced or not self.names.isdisjoint(("call", "session"))

    def matches(self, scope: Scope, number: int) -> bool:
        """Whether the call matches. Does not look at whether replies are left.

        Raises:
            ExpressionError: An expression of the rule failed; the pointer of the error names it.
        """
        if self.args is not None and not self.args.matches(scope["args"], scope):
            return False
        if self.call is not None and not self.call.matches(number, scope):
            return False
        if self.state is not None and not self.state.matches(scope["state"], scope):
            return False
        try:
            return self.condition is None or bool(self.condition.evaluate(scope))
        except ExpressionError as error:
            raise error.under(f"{self.pointer}/when/if") from None

    def reply_at(self, state: MockState) -> int | None:
        """The index of the next reply; None if all are used up."""
        used, calls = state.used.get(self.pointer, 0), self.ends[-1]
        if used >= calls:
            if self.after_last == "repeat":
                return len(self.replies) - 1
            if self.after_last != "cycle":
                return None
            used %= calls
        # Without `times`, each reply is used once, and the number of uses is its index.
        return used if calls == len(self.replies) else bisect_right(self.ends, used)


def choose_rule(
    rules: Iterable[MockRule], scope: Scope, number: int, state: MockState
) -> tuple[MockRule, int] | None:
    """The first rule that answers and the index of its reply; None if there is none. Changes nothing."""
    for rule in rules:
        if rule.matches(scope, number):
            index = rule.reply_at(state)
            if index is not None:
                return rule, index
            # An exhausted rule must not fall through by accident: a script that is too short is reported.
            if rule.after_last == "error":
                return None
    return None


def blocking_rule(
    rules: tuple[MockRule, ...], scope: Scope, number: int, state: MockState
) -> MockRule | None:
    """The exhausted rule that keeps a call from the rules below it; None if there is none."""
    for rule in rules:
        if rule.matches(scope, number) and rule.reply_at(state) is None and rule.after_last == "error":
            return rule
    return None


def compile_rules(tool: Descriptor, problems: list[Problem]) -> tuple[MockRule, ...]:
    """Compile a `mock` block that its schema has accepted; problems are added to `problems`."""
    block: dict[str, Any] = tool.bindings["mock"]  # type: ignore[assignment]
    if "rules" in block:
        return tuple(
            _rule(entry, index, f"/mock/rules/{index}", tool, problems)
            for index, entry in enumerate(block["rules"])
        )
    if "sequence" in block:
        replies = _replies(block["sequence"], "/mock/sequence", tool, problems)
        return (
            MockRule(
                "sequence", SEQUENCE, replies, _ends(replies), after_last=block.get("after_last", "error")
            ),
        )
    reply = compile_reply(block, "/mock", tool, problems)
    after_last = _after_one(block, block, BARE, "this mock", problems)
    return (MockRule("mock", BARE, (reply,), _ends((reply,)), after_last=after_last),)


def _replies(
    entries: list[dict[str, Any]], pointer: str, tool: Descriptor, problems: list[Problem]
) -> tuple[Reply, ...]:
    return tuple(
        compile_reply(entry, f"{pointer}/{index}", tool, problems) for index, entry in enumerate(entries)
    )


def _ends(replies: tuple[Reply, ...]) -> tuple[int, ...]:
    return tuple(accumulate(reply.times for reply in replies))


def _after_one(
    holder: dict[str, Any], reply: dict[str, Any], pointer: str, words: str, problems: list[Problem]
) -> AfterLast:
    """The `after_last` of a single reply. Without `times` it answers every call, so `after_last` has no effect."""
    if "times" in reply:
        after_last: AfterLast = holder.get("after_last", "error")
        return after_last
    if "after_last" in holder:
        message = f"`after_last` has no effect: {words} has a single reply"
        hint = "remove `after_last`, set `times` on the reply, or write several replies"
        place = f"{pointer}/after_last"
        problems.append(Problem(code="needless_key", message=message, pointer=place, hint=hint))
    return "repeat"


def _rule(
    entry: dict[str, Any], index: int, pointer: str, tool: Descriptor, problems: list[Problem]
) -> MockRule:
    when, reply = entry.get("when", {}), entry["reply"]
    if isinstance(reply, list):
        replies = _replies(reply, f"{pointer}/reply", tool, problems)
        after_last: AfterLast = entry.get("after_last", "error")
    else:
        replies = (compile_reply(reply, f"{pointer}/reply", tool, problems),)
        after_last = _after_one(entry, reply, pointer, "this rule", problems)
    return MockRule(
        label=str(entry.get("name", f"rule {index + 1}")),
        pointer=pointer,
        replies=replies,
        ends=_ends(replies),
        when=when,
        args=_args(when, pointer, tool, problems),
        call=_call(when, pointer, tool, problems),
        state=_state(when, pointer, tool, problems),
        condition=_condition(when, pointer, tool, problems),
        after_last=after_last,
    )


def _args(when: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Matcher | None:
    if "args" not in when:
        return None
    # Deferred, like the imports below: slow to import, and many mocks match nothing.
    from toolcrib.expressions.matchers import compile_matcher, find_impossible  # noqa: PLC0415

    place = f"{pointer}/when/args"
    faults: list[Problem] = []
    matcher = compile_matcher(when["args"], faults, place, names=names_for(tool))
    if not faults:
        faults += [
            problem._replace(pointer=place + problem.pointer)
            for problem in find_impossible(when["args"], tool.input_schema)
        ]
    problems += faults
    return matcher


def _call(when: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Matcher | None:
    if "call" not in when:
        return None
    from toolcrib.expressions.matchers import compile_matcher, find_impossible  # noqa: PLC0415

    place = f"{pointer}/when/call"
    faults: list[Problem] = []
    matcher = compile_matcher(when["call"], faults, place, names=names_for(tool))
    problems += faults
    wrong = None if faults else next(iter(find_impossible(when["call"], _NUMBERS)), None)
    if wrong is not None:
        message = f"calls are numbered from 1, so none matches {compact(when['call'])}"
        problems.append(Problem(code="never_matches", message=message, pointer=place + wrong.pointer))
    return matcher


_NUMBERS: dict[str, JSON] = {"type": "integer", "minimum": 1}
"""JSON Schema of the number of a call."""


def _state(when: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Matcher | None:
    if "state" not in when:
        return None
    from toolcrib.expressions.matchers import compile_matcher  # noqa: PLC0415

    place = f"{pointer}/when/state"
    faults: list[Problem] = []
    matcher = compile_matcher(when["state"], faults, place, names=names_for(tool))
    problems += faults or _never_in(when["state"], place, tool)
    return matcher


def _never_in(pattern: dict[str, JSON], place: str, tool: Descriptor) -> Iterator[Problem]:
    """The parts of a `state` matcher that name no machine, or no state of one."""
    machines = tool.fixture.machines
    for name, wanted in pattern.items():
        machine, at = machines.get(name), f"{place}/{pointer_step(name)}"
        if name in {"$any", "$all"} and isinstance(wanted, list):
            for index, part in enumerate(wanted):
                yield from _never_in(part, f"{at}/{index}", tool) if isinstance(part, dict) else ()
        elif name.startswith("$"):
            continue
        elif machine is None:
            there = ", ".join(f"`{known}`" for known in machines) or "none"
            message = f"unknown state machine `{name}`; known machines: {there}"
            hint = did_you_mean(name, machines) or f"add `state: {{{name}: ...}}` to the pack or scenario"
            yield Problem(code="unknown_machine", message=message, pointer=at, hint=hint)
        elif not _can_be(wanted, machine, tool):
            states = ", ".join(f"`{state}`" for state in machine.states)
            which = f"its states are {states}" if states else "a state must be text"
            message = f"`{name}` is never in state {compact(wanted)}; {which}"
            yield Problem("never_matches", message, at, _meant(wanted, machine))


def _can_be(wanted: JSON, machine: Machine, tool: Descriptor) -> bool:
    """Whether a matcher may match a state of a machine. A computed matcher may match any."""
    from toolcrib.expressions.matchers import compile_matcher, find_impossible  # noqa: PLC0415

    if next(iter(find_impossible(wanted, {"type": "string"})), None) is not None:
        return False
    matcher = compile_matcher(wanted, [], names=names_for(tool))
    return not machine.states or bool(matcher.names) or any(map(matcher.matches, machine.states))


def _meant(wanted: JSON, machine: Machine) -> str:
    """The hint for a matcher that matches no state."""
    if isinstance(wanted, str):
        return did_you_mean(wanted, machine.states)
    # YAML reads an unquoted `3` or `true` as a number or boolean, but states are strings.
    text = compact(wanted)
    plain = isinstance(wanted, int | float) and (not machine.states or text in machine.states)
    return f'quote it: `"{text}"`' if plain else ""


def _condition(
    when: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]
) -> Expression | None:
    if "if" not in when:
        return None
    place = f"{pointer}/when/if"
    try:
        return compile_condition(when["if"], names_for(tool), place)
    except ExpressionError as error:
        problems.append(error.problem(place))
        return None


FEWEST = 8
"""The smallest number of rules that get an index. Trying fewer than that is as fast."""

_MOST_MERGED = 100_000
"""The largest total size of the lists that an index merges in advance, which bounds its memory."""

Numbered: TypeAlias = "list[tuple[int, MockRule]]"


class RuleIndex:
    """Finds the rules that may match a call by the value of one argument.

    Args:
        rules: The rules, in order.
        key: The argument that distinguishes them best.
    """

    def __init__(self, rules: tuple[MockRule, ...], key: str) -> None:
        self._key = key
        self._rest: Numbered = []
        self._listed: dict[Hashable, Numbered] = {}
        for numbered in enumerate(rules):
            wanted = dict(_sure(numbered[1]))
            if key in wanted:
                self._listed.setdefault(frozen(wanted[key]), []).append(numbered)
            else:
                self._rest.append(numbered)
        self._unlisted = tuple(rule for _number, rule in self._rest)
        # Merged in advance, a look-up is a single dict access, but every value repeats all unindexed rules.
        laid_out = len(self._rest) * len(self._listed) <= _MOST_MERGED
        self._short: dict[Hashable, tuple[MockRule, ...]] | None = (
            {value: self._merged(value) for value in self._listed} if laid_out else None
        )

    def left_for(self, arguments: JSON) -> Sequence[MockRule]:
        """The rules that may match a call with these arguments, in order. No other rule matches it."""
        if not isinstance(arguments, dict) or self._key not in arguments:
            return self._unlisted
        value = arguments[self._key]
        # Most indexed arguments are ids: a plain string needs no freezing.
        if isinstance(value, dict | list):
            return self._unlisted
        key: Hashable = value if type(value) is str else frozen(value)
        if self._short is None:
            return self._merged(key)
        found: Sequence[MockRule] = self._short.get(key, self._unlisted)
        return found

    def _merged(self, value: Hashable) -> tuple[MockRule, ...]:
        """The rules that require a value, merged with those that require none, in order."""
        listed: Numbered = self._listed.get(value, [])
        return tuple(rule for _place, rule in merge(listed, self._rest, key=_number))


def index_rules(rules: tuple[MockRule, ...]) -> RuleIndex | None:
    """The index of a mock's rules; None if there are too few rules or no argument distinguishes them."""
    key = _telling(rules) if len(rules) >= FEWEST else None
    return None if key is None else RuleIndex(rules, key)


def _number(numbered: tuple[int, MockRule]) -> int:
    return numbered[0]


def _telling(rules: tuple[MockRule, ...]) -> str | None:
    """The argument for which the rules require the most different values; None if there is none."""
    values: dict[str, set[Hashable]] = {}
    for rule in rules:
        for key, value in _sure(rule):
            values.setdefault(key, set()).add(frozen(value))
    return max(values, key=lambda key: len(values[key]), default=None)


def _sure(rule: MockRule) -> Iterator[tuple[str, JSON]]:
    """The arguments for which a rule requires one constant value, up to the first that is not constant."""
    wanted = rule.when.get("args")
    # Arguments are matched in order. Behind the first matcher that may fail, the index must not skip the
    # rule, or an expression error would be lost.
    for key, value in wanted.items() if isinstance(wanted, dict) else ():
        plain = value is None or isinstance(value, bool | int | float)
        if key.startswith("$") or not (plain or (isinstance(value, str) and not {"{", "$"} & {*value})):
            return
        yield key, value
