"""Verify a run: the expectations of each step, golden files, and the rules for the end of the run.

The rules for the end cover the number, absence and order of calls, rows and states, budgets, faults that must happen,
and mock rules of the scenario that no call used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, NOTHING, Outcome, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.core.text import compact
from toolcrib.engine.session import Session
from toolcrib.executors.mock.variables import MockState, state_key
from toolcrib.expressions.matchers import MatchDifference, Matcher, compile_matcher, shown
from toolcrib.loading.scenarios.model import (
    CallRule,
    CallStep,
    Expectation,
    Scenario,
    Verification,
    join_outcomes,
)
from toolcrib.scenarios.reports import GoldenChange, ScenarioFailure
from toolcrib.scenarios.run_log import LoggedCall, StoreView

if TYPE_CHECKING:
    from toolcrib.loading.scenarios.expectations import Golden, GoldenFile
    from toolcrib.simulation.fault_history import FaultRecord
    from toolcrib.simulation.store import Store

MaskArgs: TypeAlias = Callable[[LoggedCall], JSON]
"""Returns the arguments of a call with secrets masked."""


def difference_lines(
    matcher: Matcher, value: JSON, shown: JSON, scope: Mapping[str, JSON] = NOTHING
) -> list[str]:
    """Describe where a value does not match; `shown` is the value with secrets masked.

    Raises:
        ExpressionError: An expression of the matcher failed.
    """
    differences = matcher.differences(value, scope)
    # The real value decides: a masked one may differ where the real one matches, and the other way round.
    if not differences or shown == value:
        return [str(difference) for difference in differences]
    # Describe the difference by the masked value, so that no secret appears in the report.
    masked = {difference.pointer: difference for difference in matcher.differences(shown, scope)}
    lines = []
    for difference in differences:
        safe = masked.get(difference.pointer)
        lines.append(f"{difference.pointer}: differs (secret)" if safe is None else str(safe))
    return lines


class FinalReply(NamedTuple):
    """The end of a conversation.

    Attributes:
        text: Last text of the agent; None if the provider produces no text.
        shown: The text with secrets masked.
        stop: Why the last turn ended.
    """

    text: str | None
    shown: str
    stop: str


class RunEvidence(NamedTuple):
    """What a finished run is verified against.

    Attributes:
        recorded: The calls that reached a tool.
        scope: The variables for expressions.
        show: Masks the arguments of a call.
        kept: The state of the mocks.
        spent: Totals for the budget: `calls`, `attempts`, and `elapsed` in seconds of the scenario's clock.
        last: The end of the conversation; None without an agent.
    """

    recorded: Sequence[LoggedCall]
    scope: Mapping[str, JSON]
    show: MaskArgs
    kept: StoreView
    spent: Mapping[str, float]
    last: FinalReply | None = None


def verify(rules: Verification, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    """Yield the failures of a run."""
    recorded, scope, show = ending[:3]
    for made in rules.calls:
        try:
            # An expression that fails is a failure of its rule; the other rules are still checked.
            yield from _count(made, recorded, scope, show)
        except ExpressionError as error:
            yield ScenarioFailure(what="calls", lines=(error.message,), pointer=error.pointer or made.pointer)
    if rules.order is not None:
        kind, names = rules.order
        made_in_order = [call.tool for call in recorded]
        if not _ORDERS[kind](names, made_in_order):
            lines = (
                f"expected {_WORDS[kind]}: {', '.join(names)}",
                f"the calls were: {', '.join(made_in_order) or 'none'}",
            )
            yield ScenarioFailure(what="order", lines=lines, pointer=f"/verify/order/{kind}")
    for part, matcher in rules.kept.items():
        yield from _kept(part, matcher, ending)
    for part, matcher in rules.budget.items():
        yield from _spent(part, matcher, ending)
    if ending.last is not None:
        yield from _ended(rules, ending.last, ending.scope)


def _ended(rules: Verification, last: FinalReply, scope: Mapping[str, JSON]) -> Iterator[ScenarioFailure]:
    """Failures of `stop` and `final_text`."""
    if rules.stops and last.stop not in rules.stops:
        line = f"stop: expected {' or '.join(rules.stops)}, got {last.stop}"
        yield ScenarioFailure(what="stop", lines=(line,), pointer="/verify/stop")
    if rules.final_text is None or last.text is None:
        return
    pointer = "/verify/final_text"
    try:
        found = difference_lines(rules.final_text, last.text, last.shown, scope)
        lines = [f"final_text{_placed(line)}" for line in found]
    except ExpressionError as error:
        lines, pointer = [f"final_text: {error.message}"], _within(pointer, error)
    if lines:
        yield ScenarioFailure(what="final_text", lines=tuple(lines), pointer=pointer)


def _kept(part: str, matcher: Matcher, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    """Failures of rows or states."""
    kept, pointer = ending.kept, f"/verify/{part}"
    unlisted: list[MatchDifference] = []
    try:
        if part == "state":
            value: dict[str, JSON] = kept.states()
            seen = value
        else:
            # Reading a collection may load a large file, so only the collections of the matcher are read.
            value = kept.changed() if part == "changed" else kept.rows(_named(matcher))
            seen = kept.shown(value)
        if part == "changed":
            unlisted = [*_unlisted(matcher.expected(), seen)]
        differences = matcher.differences(value, ending.scope)
        if not differences and not unlisted:
            return
        lines = [*difference_lines(matcher, value, seen, ending.scope), *map(str, unlisted)]
    except ExpressionError as error:
        yield ScenarioFailure(what=part, lines=(f"{part}: {error.message}",), pointer=_within(pointer, error))
        return
    first = differences[0].pointer if differences else ""  # what is not listed has no place in the document
    yield ScenarioFailure(
        what=part, lines=tuple(f"{part}{_placed(line)}" for line in lines), pointer=pointer + first
    )


def _unlisted(pattern: Any, changed: Mapping[str, Any]) -> Iterator[MatchDifference]:
    """The changed rows that a pattern does not name. An operator such as `$len` may be meant for any of them."""
    for name, rows in changed.items():
        listed = pattern.get(name, {}) if isinstance(pattern, dict) else {}
        if not isinstance(listed, dict) or any(key.startswith("$") for key in (*listed, *pattern)):
            continue
        for key, row in rows.items():
            if key not in listed:
                place = f"/{pointer_step(name)}/{pointer_step(key)}"
                yield MatchDifference(place, "no change", "a deleted row" if row is None else shown(row))


def _named(matcher: Matcher) -> list[str] | None:
    """The collections that a matcher names; None if it may read all of them."""
    pattern = matcher.expected()
    # An operator at the top level, such as `$any`, may read every collection.
    plain = isinstance(pattern, dict) and not any(key.startswith("$") for key in pattern)
    return [*pattern] if plain and isinstance(pattern, dict) else None


def _spent(part: str, matcher: Matcher, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    pointer = f"/verify/budget/{part}"
    try:
        found = matcher.differences(ending.spent[part], ending.scope)
        lines = [f"budget/{part}{_placed(str(difference))}" for difference in found]
    except ExpressionError as error:
        lines, pointer = [f"budget/{part}: {error.message}"], _within(pointer, error)
    if lines:
        yield ScenarioFailure(what="budget", lines=tuple(lines), pointer=pointer)


def _placed(difference: str) -> str:
    return difference if difference.startswith("/") else f": {difference}"


def _within(pointer: str, error: ExpressionError) -> str:
    return error.pointer if error.pointer.startswith(pointer) else pointer + error.pointer


def _count(
    made: CallRule, recorded: Sequence[LoggedCall], scope: Mapping[str, JSON], show: MaskArgs
) -> Iterator[ScenarioFailure]:
    # Each distinct name is matched once, since a run may have thousands of calls.
    names = {name for name in {call[1].call for call in recorded} if fnmatchcase(name, made.tool)}
    named = [call for call in recorded if call[1].call in names]
    ended = [call for call in named if call.outcome in made.outcomes] if made.outcomes else named
    fitting = ended if made.args is None else [call for call in ended if made.args.matches(call[2], scope)]
    if made.times.matches(len(fitting), scope):
        return
    differences = made.times.differences(len(fitting), scope)
    with_args = "" if made.args is None else f" with {compact(made.args.expected())}"
    so = f" that ended {join_outcomes(made.outcomes, '`{}`')}" if made.outcomes else ""
    lines = [f"calls of `{made.tool}`{with_args}{so}: {differences[0]}"]
    lines += [f"  {call.label}: {call.tool} {compact(show(call))}" for call in fitting]
    # By place, since two equal calls are different events.
    fit = {call.place for call in fitting}
    others = (call for call in named if call.place not in fit)
    lines += [f"  {call.label} differs: {_other(made, call, show, scope)}" for call in others]
    yield ScenarioFailure(what="calls", lines=tuple(lines), pointer=made.pointer)


def _other(made: CallRule, call: LoggedCall, show: MaskArgs, scope: Mapping[str, JSON]) -> str:
    """Why a call of the tool is not counted."""
    if made.outcomes and call.outcome not in made.outcomes:
        return f"it ended with `{call.outcome}`"
    return "" if made.args is None else difference_lines(made.args, call.args, show(call), scope)[0]


def _in_order(names: Sequence[str], calls: Sequence[str]) -> bool:
    remaining = iter(calls)
    return all(name in remaining for name in names)


def _all_there(names: Sequence[str], calls: Sequence[str]) -> bool:
    left = list(calls)
    for name in names:
        if name not in left:
            return False
        left.remove(name)
    return True


_ORDERS = {
    "exact": lambda names, calls: list(names) == list(calls),
    "subsequence": _in_order,
    "any": _all_there,
}

_WORDS = {
    "exact": "exactly these calls",
    "subsequence": "these calls in this order",
    "any": "these calls in any order",
}


_OK = Outcome.OK


def step_value(result: Result) -> JSON:
    """The value of `save_as`: what later steps can read of a call."""
    outcome = result.outcome
    return {
        "outcome": "ok" if outcome is _OK else outcome.value,  # `.value` of an enum member is a slow look-up
        "result": result.value,
        "error": _error(result),
        "content": _content(result),
    }


def _error(result: Result) -> JSON:
    return None if result.error is None else result.error.as_json()


def _content(result: Result) -> list[JSON]:
    return [part.as_json() for part in result.content]


_PARTS: dict[str, Callable[[Result], JSON]] = {
    "result": lambda result: result.value,
    "error": _error,
    "content": _content,
    "attempts": lambda result: result.usage.attempts,
    # Virtual time is a sum of floats: 0.1 + 0.2 must equal an expected 0.3.
    "elapsed": lambda result: round(result.usage.duration, 9),
}


def is_expected(expect: Expectation, result: Result, scope: Mapping[str, JSON]) -> bool:
    """Whether a result is as expected. This is the fast check; `compare_step` describes the differences."""
    wanted, ended = expect.outcomes, result.outcome
    # A golden file is only read by the full comparison.
    if expect.golden is not None or (ended not in wanted and (wanted or ended is _OK)):
        return False
    if not expect.parts:
        return True
    passed_over = _passed_over(ended)
    try:
        for part, matcher in expect.parts.items():
            if part != passed_over and not matcher.matches(_PARTS[part](result), scope):
                return False
    except ExpressionError:
        return False
    return True


def _passed_over(ended: Outcome) -> str:
    """The part that is not compared for an outcome: a failed call has no result, a successful one no error."""
    return "error" if ended is _OK else "result"


def compare_step(
    step: CallStep, result: Result, masked: Result, scope: Mapping[str, JSON]
) -> Iterable[ScenarioFailure]:
    """Describe how a result differs from what the step expects; `masked` is the result with secrets masked."""
    wanted, ended = step.expect.outcomes, result.outcome
    pointer = f"{step.pointer}/expect"
    if ended not in wanted and (wanted or ended is _OK):
        line = f"expected {join_outcomes(wanted) or 'an error'}, got {ended}"
        yield ScenarioFailure(what="outcome", lines=(line,), pointer=pointer)
        return
    passed_over = _passed_over(ended)
    for part, matcher in step.expect.parts.items():
        if part == passed_over:
            continue
        try:
            lines = difference_lines(matcher, _PARTS[part](result), _PARTS[part](masked), scope)
        except ExpressionError as error:
            yield ScenarioFailure(
                what=part, lines=(error.message,), pointer=f"{pointer}/{part}{error.pointer}"
            )
            continue
        if lines:
            yield ScenarioFailure(what=part, lines=tuple(lines), pointer=f"{pointer}/{part}")


SHOWN_CALLS = 3
"""Maximum number of calls that are listed for one fault."""

FAULT = "fault"
"""Value of `what` in failures about faults."""


def unfired_faults(session: Session, scenario: Scenario) -> list[ScenarioFailure]:
    """A failure for each fault that had to happen but did not."""
    from toolcrib.simulation.fault_history import why_not_due  # noqa: PLC0415 -- most scenarios have no faults

    wanted = {fault.pointer: fault.name for fault in scenario.faults if fault.must_fire}
    reasons = {pointer: why_not_due(session, name) for pointer, name in wanted.items()}
    return [
        ScenarioFailure(what=FAULT, lines=(why,), pointer=pointer) for pointer, why in reasons.items() if why
    ]


def fault_notes(session: Session, scenario: Scenario, tool: str) -> list[ScenarioFailure]:
    """Notes for a failed step: on which calls the faults of its tool happened, or why they did not."""
    from toolcrib.simulation.fault_history import records_of, why_not_due  # noqa: PLC0415 -- as above

    told = []
    for fault in scenario.faults:
        if fnmatchcase(tool, fault.tool):
            why = why_not_due(session, fault.name).removeprefix("fault ")
            line = why or f"`{fault.name}` happened on {_listed(records_of(session)[fault.name])}"
            place = scenario.origin.place(fault.pointer)
            told.append(ScenarioFailure(what=FAULT, lines=(f"{line} ({place})",), pointer=fault.pointer))
    return told


def _listed(record: FaultRecord) -> str:
    more = record.times - SHOWN_CALLS
    return ", ".join(map(str, record.fired[:SHOWN_CALLS])) + (f" and {more} more" if more > 0 else "")


UNUSED_RULES = "unused_rules"
"""Value of `what` in failures about unused rules."""


def unused_rules(session: Session, scenario: Scenario) -> list[ScenarioFailure]:
    """A failure for each rule and reply that no call used. A mock with a single reply has none."""
    found: list[ScenarioFailure] = []
    blocks: Mapping[str, Any] = scenario.mocks
    for tool, block in blocks.items():
        wanted = _wanted(block)
        if not wanted:
            continue
        used = session.slot(state_key(tool), MockState).used
        for place, calls in wanted:
            if used.get(place, 0) < calls:
                found += _told(tool, block, used)
                break
    return found


# Most runs use every rule, so the common check is a comparison of counts; the details below run only for a
# failure.
@cached_per_schema
def _wanted(block: Any) -> tuple[tuple[str, int], ...]:
    """The counters of a mock, and the number of calls after which everything is used."""
    if not isinstance(block, dict):
        return ()
    if "sequence" in block:
        return (("/mock/sequence", _begins_last(block["sequence"])),)
    return tuple(
        (f"/mock/rules/{index}", _begins_last(rule["reply"]) if isinstance(rule["reply"], list) else 1)
        for index, rule in enumerate(block.get("rules", ()))
    )


def _begins_last(replies: Sequence[Any]) -> int:
    """Number of the first call that gets the last reply."""
    times: Iterable[int] = (reply.get("times", 1) for reply in replies[:-1])
    return 1 + sum(times)


EFFECTS: Final = "effects"
"""The part of a run that failures and warnings about delayed effects belong to."""


MOST_LISTED: Final = 10
"""The number of delayed effects that a warning lists."""


def failed_effects(store: Store) -> list[ScenarioFailure]:
    """A failure for each delayed effect that could not be applied, and that no call has reported."""
    store.version  # noqa: B018 -- applies the effects that are due
    return [ScenarioFailure(EFFECTS, (failed.message,), "") for failed in store.failed]


def due_effects(session: Session) -> list[ScenarioFailure]:
    """A warning about the delayed effects that are not due yet when the run ends; none if there are none."""
    pending = session.store.pending
    if not pending:
        return []
    now = session.clock.now()
    lines = [
        f"an effect of `{effect.tool.name}` ({effect.place}) is due {format_duration((effect.due - now).total_seconds())} after the end"
        for effect in pending[:MOST_LISTED]
    ]
    if len(pending) > MOST_LISTED:
        lines.append(f"and {len(pending) - MOST_LISTED:,} more")
    return [ScenarioFailure(EFFECTS, (*lines, "add a step `advance` to apply them"), "")]


def _told(tool: str, block: Mapping[str, Any], used: Mapping[str, int]) -> Iterator[ScenarioFailure]:
    for what, place in _unused_in(block, used):
        line = f"no call used {what} in the mock of `{tool}`"
        yield ScenarioFailure(UNUSED_RULES, (line,), f"/mocks/{pointer_step(tool)}{place}")


def _unused_in(block: Mapping[str, Any], used: Mapping[str, int]) -> list[tuple[str, str]]:
    """Describe each unused part, with its pointer within the block."""
    if "sequence" in block:
        return _replies(block["sequence"], used.get("/mock/sequence", 0), "the sequence", "/sequence")
    rules, found = block["rules"], []
    for index, rule in enumerate(rules):
        count, reply = used.get(f"/mock/rules/{index}", 0), rule["reply"]
        if not count:
            found.append((_label(rule, index), f"/rules/{index}"))
        elif isinstance(reply, list):
            found += _replies(reply, count, _label(rule, index), f"/rules/{index}/reply")
    # If no rule was used, one line says more than one line per rule.
    if len(found) == len(rules) > 1 and not any(key.startswith("/mock/rules/") for key in used):
        return [(f"any of the {len(rules)} rules", "/rules")]
    return found


def _label(rule: Mapping[str, Any], index: int) -> str:
    return f"`{rule['name']}`" if "name" in rule else f"rule {index + 1}"


def _replies(replies: Sequence[Any], count: int, owner: str, place: str) -> list[tuple[str, str]]:
    """Describe the replies of a list that are left after a number of calls."""
    if not count:
        return [(owner, place)]
    ends = accumulate(reply.get("times", 1) for reply in replies)
    given = 1 + sum(end < count for end in ends)
    left = len(replies) - given
    if left <= 0:
        return []
    which = f"reply {given + 1}" if left == 1 else f"replies {given + 1} to {len(replies)}"
    return [(f"{which} of {owner}", f"{place}/{given}")]


MOST_GOLDEN_DIFFERENCES = 20
"""Maximum number of reported differences."""

UPDATE = "`toolcrib run --update`"


class GoldenComparison(NamedTuple):
    """The comparison of a result with a golden file.

    Attributes:
        lines: The differences; empty if they are equal.
        change: The new content of the file; None if it is equal or cannot be read.
    """

    lines: tuple[str, ...] = ()
    change: GoldenChange | None = None


def compare_golden(
    golden: Golden, value: JSON, files: Files | None, scope: Mapping[str, JSON]
) -> GoldenComparison:
    """Compare a result with the golden file that a step names.

    Args:
        golden: The golden file.
        value: The result with secrets masked.
        files: The files that the scenario may reference.
        scope: The variables for the name of the file.
    """
    try:
        held = golden.read(files, scope)
    except ExpressionError as error:
        return GoldenComparison((error.message,))
    except OSError as error:
        return GoldenComparison((f"cannot read the golden file: {error.strerror or error}",))
    lines = _lines(held, value)
    return GoldenComparison(lines, GoldenChange(held.name, value, held.missing) if lines else None)


def _lines(held: GoldenFile, value: JSON) -> tuple[str, ...]:
    if held.missing:
        return (f"missing golden file `{held.name}`; run {UPDATE} to write it",)
    if held.fault:
        return (held.fault, f"run {UPDATE} to rewrite it")
    # `$exact`, since a plain object as a matcher accepts further keys.
    differences = compile_matcher({"$exact": held.value}, []).differences(
        value, most=MOST_GOLDEN_DIFFERENCES + 1
    )
    if not differences:
        return ()
    told = [str(difference) for difference in differences[:MOST_GOLDEN_DIFFERENCES]]
    more = ["and more"] if len(differences) > MOST_GOLDEN_DIFFERENCES else []
    return (f"differs from `{held.name}`:", *told, *more, f"run {UPDATE} to accept the new result")
