"""Enforce a policy: which tools a model is offered, and whether each of its calls may be made, in order.

All state is derived from the records of earlier calls, so a conversation can continue in another process
under the same limits.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import json_equal
from toolcrib.formats.providers import Declaration, declare
from toolcrib.provider.conversations import CallRecord, Stop
from toolcrib.provider.loop.calls import ResultReader
from toolcrib.provider.messages import ToolCall
from toolcrib.registry.catalog import DENIED, HiddenReason
from toolcrib.registry.registry import Registry
from toolcrib.security.tool_policy import CHOICES, ToolPolicy, allows, needs_of

T = TypeVar("T")

MINUTE = 60.0

UNKNOWN = Outcome.NOT_FOUND.value
"""Cause of failed calls of unknown tools."""

FORBIDDEN = "tool_not_allowed"
"""Cause of failed calls of tools that the policy does not allow."""

_MOST_NAMES = 10_000
"""Maximum number of cached rules: a model can invent any number of tool names."""


class ToolRules(NamedTuple):
    """The rules of a policy for one tool, independent of earlier calls.

    Attributes:
        allowed: Whether the tool is offered and may be called.
        asks: Whether its calls require approval.
        polls: Whether identical calls may be repeated.
        stops: Whether the turn ends after a successful call.
        most: Maximum number of calls in the conversation; None for no limit.
        before: Globs; a tool that matches each one must have succeeded before.
        places: The exclusive groups of the tool: pairs of group and position of the matching glob.
        rest: Minimum seconds between two calls.
    """

    allowed: bool
    asks: bool
    polls: bool
    stops: bool
    most: int | None
    before: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    rest: float


class Rulebook:
    """A policy by tool.

    Attributes:
        policy: The policy.
    """

    def __init__(self, policy: ToolPolicy, own: str = "") -> None:
        """Create the rulebook of a policy.

        Args:
            policy: The policy.
            own: Name of the loop's own tool, which is always allowed, within the limits on calls.
        """
        self.policy = policy
        self._own = own
        self._known: dict[str, ToolRules] = {}
        self.own(own)

    def own(self, tool: str) -> None:
        """Change the name of the loop's own tool."""
        self._known.pop(self._own, None)
        self._own = tool
        self._known[tool] = self._made(tool)._replace(allowed=True, asks=False, polls=True)

    def of(self, tool: str) -> ToolRules:
        """Return the rules for a tool."""
        rules = self._known.get(tool)
        if rules is None:
            rules = self._made(tool)
            if len(self._known) < _MOST_NAMES:
                self._known[tool] = rules
        return rules

    def _made(self, tool: str) -> ToolRules:
        policy = self.policy
        return ToolRules(
            allowed=allows(policy, tool),
            asks=_fits(tool, policy.ask),
            polls=_fits(tool, policy.polling),
            stops=_fits(tool, policy.stop_on_tool),
            most=_first(tool, policy.max_calls_per_tool),
            before=needs_of(policy, tool),
            places=tuple(
                (group, place)
                for group, globs in enumerate(policy.exclusive)
                for place in [next((at for at, glob in enumerate(globs) if fnmatchcase(tool, glob)), None)]
                if place is not None
            ),
            rest=_first(tool, policy.cooldown) or 0.0,
        )


def _fits(tool: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, glob) for glob in globs)


def _first(tool: str, by_glob: Mapping[str, T]) -> T | None:
    return next((value for glob, value in by_glob.items() if fnmatchcase(tool, glob)), None)


class _CallsInFlight(NamedTuple):
    """Permitted calls of one tool in this round that have not ended: their number and last start."""

    calls: int
    last: float


class CallUsage:
    """Tracks the calls so far and decides which calls may be made next.

    A call counts against a limit once it has reached its tool or is on its way. Invalid arguments, unknown
    tools and refused calls do not count. Repetitions and failures count per turn. After a call has exceeded a
    limit, no later call is made.
    """

    __slots__ = (
        "_begun",
        "_begun_in_all",
        "_exceeded",
        "_failures",
        "_for_nothing",
        "_last",
        "_of_tool",
        "_of_turn",
        "_rulebook",
        "_same",
        "_taken",
        "_times",
        "_times_same",
        "_total",
        "_turn",
        "_well",
    )

    def __init__(self, rulebook: Rulebook, records: Iterable[CallRecord], turn: int) -> None:
        self._exceeded: tuple[Stop, str] | None = None
        self._rulebook = rulebook
        self._turn = turn
        self._total = self._of_turn = 0
        self._of_tool: defaultdict[str, int] = defaultdict(int)
        self._times: deque[float] = deque()
        self._last: dict[str, float] = {}
        self._well: set[str] = set()
        self._taken: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._failures: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._for_nothing: defaultdict[str, int] = defaultdict(int)
        self._begun: dict[str, _CallsInFlight] = {}
        self._begun_in_all = 0
        self._same: tuple[str, dict[str, JSON]] | None = None
        self._times_same = 0
        for record in records:
            if record.turn == turn:
                self._ask(record.tool, record.arguments)
            self._fold(record)

    def judge(self, call: ToolCall, now: float, *, known: bool, only: str | None = None) -> Result | None:
        """Check a call that a model requests, and return the result that refuses it; None if it may be made.

        Args:
            call: The call.
            now: Seconds since 1970 on the session's clock.
            known: Whether the tool exists.
            only: The only tool that may be called in this round, empty for none; None for all.
        """
        self._ask(call.name, call.arguments)
        if self._exceeded is not None or self._times_same > 1 or self._failures:
            ended = self._over()
            if ended is None:
                ended = self._repeated(call.name)
            if ended is None:
                ended = self._failing(call.name)
            if ended is not None:
                return ended
        # Unknown tools are reported as such by the caller, with near misses.
        if not known:
            return self._in_vain(UNKNOWN)
        rules = self._rulebook.of(call.name)
        refusal = self._forbidden(call.name, rules, only)
        if refusal is not None:
            vain = self._in_vain(FORBIDDEN)
            return refusal if vain is None else vain
        # Arguments that are not JSON get their own error, which tells the model what to fix.
        if call.arguments is None:
            return None
        refusal = self._out_of_order(call.name, rules, now)
        return self._spent(call.name, rules, now) if refusal is None else refusal

    def judge_again(self, call: ToolCall, now: float) -> Result | None:
        """Check an approved call again; if it may be made, it counts as started."""
        rules = self._rulebook.of(call.name)
        # Each check may end the turn, so none is made after the first that refuses.
        refusal = self._over()
        if refusal is None:
            refusal = self._failing(call.name)
        if refusal is None:
            refusal = self._forbidden(call.name, rules, None)
        if refusal is None:
            refusal = self._out_of_order(call.name, rules, now)
        if refusal is None:
            refusal = self._spent(call.name, rules, now)
        if refusal is None:
            self.begin(call, now)
        return refusal

    def begin(self, call: ToolCall, now: float) -> None:
        """Count a call as started."""
        calls, last = self._begun.get(call.name, (0, now))
        self._begun[call.name] = _CallsInFlight(calls + 1, max(last, now))
        self._begun_in_all += 1

    def settle(self, records: Iterable[CallRecord]) -> None:
        """Replace the started calls of the round by their records, in the order of the calls."""
        self._begun.clear()
        self._begun_in_all = 0
        for record in records:
            self._fold(record)

    def exceed(self, bound: Stop, why: str) -> Result:
        """Build the result of a call that exceeds a limit; later calls of the round get the same one."""
        if self._exceeded is None:
            self._exceeded = bound, why
        return Result.failure(Outcome.LIMIT_EXCEEDED, f"not called: {why}", code=bound.value)

    def _over(self) -> Result | None:
        if self._exceeded is None:
            return None
        bound, why = self._exceeded
        return self.exceed(bound, f"the turn has ended: {why}")

    def _repeated(self, tool: str) -> Result | None:
        most = self._rulebook.policy.max_identical
        if most is None or self._times_same <= most:
            return None
        why = f"the same call of `{tool}` was requested more than {_times(most)} in a row"
        return self.exceed(Stop.MAX_IDENTICAL, why)

    def _failing(self, tool: str) -> Result | None:
        most = self._rulebook.policy.max_failures
        if most is None or tool not in self._failures:
            return None
        ((cause, count),) = self._failures[tool].most_common(1)
        if count < most:
            return None
        return self.exceed(Stop.MAX_FAILURES, f"`{tool}` has failed {_times(count)} with `{cause}`")

    def _in_vain(self, cause: str) -> Result | None:
        """Check the number of calls that failed for the same cause without reaching a tool."""
        # Counted over all names: a model that invents a new name each time would otherwise never stop.
        most = self._rulebook.policy.max_failures
        count = self._for_nothing.get(cause, 0)
        if most is None or count < most:
            return None
        what = "unknown" if cause == UNKNOWN else "forbidden"
        return self.exceed(Stop.MAX_FAILURES, f"{what} tools were requested {_times(count)}")

    def _forbidden(self, tool: str, rules: ToolRules, only: str | None) -> Result | None:
        if not rules.allowed:
            return _denied(FORBIDDEN, f"the policy does not allow `{tool}`")
        if only is not None and tool != only:
            which = f"only `{only}` can" if only else "no tool can"
            return _denied(FORBIDDEN, f"`{tool}` cannot be called in this round: {which}")
        return None

    # Order and cooldown come before the limits: exceeding a limit ends the turn, a denied call does not.
    def _out_of_order(self, tool: str, rules: ToolRules, now: float) -> Result | None:
        if rules.before:
            missing = [need for need in rules.before if need not in self._well and not self._is_done(need)]
            if missing:
                first = " and ".join(f"`{need}`" for need in missing)
                return _denied("call_required_before", f"`{tool}` can be called only after {first} succeeded")
        for group, place in rules.places:
            other = self._other(group, place)
            if other:
                return _denied("exclusive_tools", f"`{tool}` cannot be called because `{other}` was called")
        begun = self._begun.get(tool)
        last = self._last.get(tool) if begun is None else begun.last
        # A start in the future comes from the clock of another process; do not wait for it.
        if last is not None and 0 <= now - last < rules.rest:
            wait = format_duration(round(rules.rest - (now - last), 3))
            return _denied("cooldown", f"`{tool}` can be called again in {wait}")
        return None

    def _is_done(self, need: str) -> bool:
        return any(fnmatchcase(done, need) for done in self._well)

    def _other(self, group: int, place: int) -> str:
        """A tool of another glob of an exclusive group that was called; empty if none."""
        taken = dict(self._taken[group])
        for tool in self._begun:
            taken.update({at: tool for of, at in self._rulebook.of(tool).places if of == group})
        return next((tool for at, tool in taken.items() if at != place), "")

    def _spent(self, tool: str, rules: ToolRules, now: float) -> Result | None:
        # Calls of this round have no record yet; without them, one answer could exceed every limit.
        policy, begun = self._rulebook.policy, self._begun_in_all
        if policy.max_calls is not None and self._total + begun >= policy.max_calls:
            return self.exceed(Stop.MAX_CALLS, f"the conversation is limited to {_calls(policy.max_calls)}")
        most = policy.max_calls_per_turn
        if most is not None and self._of_turn + begun >= most:
            return self.exceed(Stop.MAX_CALLS_PER_TURN, f"a turn is limited to {_calls(most)}")
        if rules.most is not None and self._calls_of(tool) >= rules.most:
            return self.exceed(Stop.MAX_CALLS_PER_TOOL, f"`{tool}` is limited to {_calls(rules.most)}")
        most = policy.max_calls_per_minute
        if most is not None and self._within_a_minute(now) + begun >= most:
            return self.exceed(
                Stop.MAX_CALLS_PER_MINUTE, f"the conversation is limited to {_calls(most)} per minute"
            )
        return None

    def _calls_of(self, tool: str) -> int:
        begun = self._begun.get(tool)
        return self._of_tool.get(tool, 0) + (0 if begun is None else begun.calls)

    def _within_a_minute(self, now: float) -> int:
        # A time in the future comes from the clock of another process; do not count it.
        return sum(0 <= now - at < MINUTE for at in self._times)

    def _ask(self, tool: str, arguments: dict[str, JSON] | None) -> None:
        if self._rulebook.policy.max_identical is None:
            return
        # Polling may repeat calls, and unreadable arguments cannot be compared: both end a sequence of equal
        # calls.
        if arguments is None or self._rulebook.of(tool).polls:
            self._same, self._times_same = None, 0
            return
        same = self._same is not None and self._same[0] == tool and json_equal(self._same[1], arguments)
        self._times_same = self._times_same + 1 if same else 1
        self._same = tool, arguments

    def _fold(self, record: CallRecord) -> None:
        tool = record.tool
        if record.reached:
            self._total += 1
            self._of_turn += record.turn == self._turn
            self._of_tool[tool] += 1
            self._last[tool] = record.at
            self._remember(record.at)
            for group, place in self._rulebook.of(tool).places:
                self._taken[group].setdefault(place, tool)
        if record.outcome is Outcome.OK:
            self._well.add(tool)
            self._failures.pop(tool, None)
        elif record.outcome is not None and record.turn == self._turn:
            cause = record.code or record.outcome.value
            self._failures[tool][cause] += 1
            self._for_nothing[cause] += not record.reached

    def _remember(self, at: float) -> None:
        if self._rulebook.policy.max_calls_per_minute is not None:
            self._times.append(at)
            # Drop older times, so that a long conversation does not grow without bound.
            while at - self._times[0] >= MINUTE:
                self._times.popleft()


def _denied(code: str, message: str) -> Result:
    return Result.failure(Outcome.DENIED, message, code=code)


def _calls(most: int) -> str:
    return f"{most} call{'' if most == 1 else 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class ToolOffer:
    """The tools that a policy offers to a model; built once per registry.

    Attributes:
        registry: The tools.
        reader: The reader of long results.
    """

    def __init__(self, registry: Registry, rulebook: Rulebook, dialect: str, reader: ResultReader) -> None:
        """Declare the tools.

        Args:
            registry: The tools.
            rulebook: The policy; tools that it does not allow are not declared.
            dialect: The form of the declarations (`formats.providers.DIALECTS`).
            reader: The reader of long results; its tool is declared once there are any.
        """
        self.registry = registry
        self.reader = reader
        tools = [tool for tool in registry.select() if rulebook.of(tool.name).allowed]
        names = {tool.name: registry.alias_of(tool.name) for tool in tools}
        self._declared = declare(tools, dialect, names)
        self._with_reader = (*self._declared, *declare([reader.tool], dialect, {}))
        self._by_name = {each.name: each for each in self._with_reader}
        self._by_tool = {each.tool: each for each in self._with_reader}

    def declared(self, *, reading: bool) -> tuple[Declaration, ...]:
        """Return the declarations in a stable order, so that services can cache them.

        Args:
            reading: Whether there are long results to read.
        """
        return self._with_reader if reading else self._declared

    def can_choose(self, tool_choice: str) -> bool:
        """Whether a tool choice is possible."""
        # A reload may have removed the tool since the policy was checked.
        return tool_choice in CHOICES or tool_choice in self._by_tool

    def choice(self, tool_choice: str) -> str:
        """Translate a tool choice for a request: the name of a tool becomes its declared name."""
        declaration = self._by_tool.get(tool_choice)
        return tool_choice if declaration is None else declaration.name

    def tool_of(self, written: str) -> str:
        """The tool that a name in an answer refers to; the name itself if there is none."""
        declaration = self._by_name.get(written)
        if declaration is not None:
            return declaration.tool
        return written if written in self.registry else self.registry.named_by_alias(written) or written

    def knows(self, tool: str) -> bool:
        """Whether a tool exists, offered or not."""
        return tool in self._by_tool or tool in self.registry

    def restored(self, tool: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
        """Convert arguments from the declared form to the one that the tool accepts."""
        declaration = self._by_tool.get(tool)
        return arguments if declaration is None else declaration.restore(arguments)

    def hidden(self, tool: str) -> HiddenReason | None:
        """Why an existing tool is not offered; None if it is offered, unknown, or denied by access."""
        if tool in self._by_tool or tool not in self.registry:
            return None
        hidden = self.registry.hidden(tool)
        # A call that access denies is made, so that it is recorded and ends like that of any other caller.
        return None if hidden is not None and hidden.code == DENIED else hidden
