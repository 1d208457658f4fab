"""Mode `mock`: answers scripted in the descriptor: fixed, templated, by rules, in sequence, generated, stateful.

One call is one step in which nothing else happens: a reply is chosen, its rows are read, its guards are asked, its
effects happen, its answer is worked out and judged, and only then all of it is kept. A call that is answered uses
up its place in a list of replies, also where a guard answers or the output schema refuses the answer, and each
attempt of a call that is tried again uses up one; what is wrong with the mock itself, and a call that repeats an
earlier one (`idempotent_by`), use up nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolcrib.core.errors import DocumentError, ExpressionError, Problem
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Call,
    Descriptor,
    Fixture,
    Result,
    Schema,
    TrustedAnswer,
    as_result,
)
from toolcrib.core.protocols import BoundTool
from toolcrib.executors.mock.replies import Reply
from toolcrib.executors.mock.rules import BARE, MockRule, choose_rule, compile_rules, index_rules
from toolcrib.executors.mock.transaction import (
    NOT_TRUSTED,
    ReplyOutcome,
    answer_check,
    answer_reply,
    mock_failure,
    run_transaction,
)
from toolcrib.executors.mock.variables import (
    MockState,
    Scope,
    StatefulScope,
    is_stateful,
    scope_of,
    state_key,
)

if TYPE_CHECKING:
    from toolcrib.simulation.store import CallCounter

__all__ = ["BoundMock", "MockExecutor"]


@cache
def _block_schema() -> Schema:
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    text = files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


class MockExecutor:
    """Answers from the descriptor's `mock` block; touches nothing outside the process.

    Attributes:
        elsewhere: Binds a tool in another of its modes, for mocks that hand calls on; given by the engine.
    """

    keeps_nothing = True
    contained = True

    def __init__(self) -> None:
        self.elsewhere: Callable[[Descriptor, str], BoundTool] | None = None

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `mock` block."""
        return _block_schema()

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Expressions, files and matchers compile; fixed answers fit the output schema; every rule can be reached."""
        from toolcrib.executors.mock.checks import check_mock_block  # noqa: PLC0415 -- no call needs them

        return check_mock_block(descriptor)

    def bind(self, descriptor: Descriptor) -> BoundMock:
        """Compile the block; ready to be called.

        Raises:
            DocumentError: There is an error in it, which `check` would have told.
        """
        problems: list[Problem] = []
        rules = compile_rules(descriptor, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        if not any(reply.reaches for rule in rules for reply in rule.replies):
            return BoundMock(descriptor, rules)
        from toolcrib.executors.mock.passthrough import ReachingMock  # noqa: PLC0415 -- few mocks reach out

        return ReachingMock(descriptor, rules, self.elsewhere)

    async def aclose(self) -> None:
        """Nothing to give back."""


class ReplySelection(NamedTuple):
    """What a call gets.

    Attributes:
        rule: The rule that answers.
        place: Which of its replies.
        scope: What expressions read.
        number: The call's number.
        state: What the session remembers of the tool.
    """

    rule: MockRule
    place: int
    scope: Scope
    number: int
    state: MockState

    @property
    def reply(self) -> Reply:
        """The reply that answers."""
        return self.rule.replies[self.place]

    @property
    def meta(self) -> Mapping[str, JSON]:
        """What is told beside the answer."""
        return {"mock": {"rule": self.rule.label, "reply": self.place + 1}}

    def takes(self, calls: int = 1) -> None:
        """The rule has answered so many calls more."""
        used = self.state.used
        used[self.rule.pointer] = used.get(self.rule.pointer, 0) + calls


class BoundMock:
    """A compiled mock. Matching, choosing and acting are one step: no other call comes between.

    Attributes:
        keeps: Whether it reads or changes what the session keeps.
    """

    def __init__(self, descriptor: Descriptor, rules: tuple[MockRule, ...]) -> None:
        replies = [reply for rule in rules for reply in rule.replies]
        self.waits = any(reply.waits for reply in replies)
        self._slot = state_key(descriptor.name)
        names = frozenset({"args"}).union(*(rule.names for rule in rules))
        self.keeps = is_stateful(names) or any(reply.keeps for reply in replies)
        self._scope = self._scope_before = scope_of(frozenset() if self.keeps else names)
        if self.keeps:
            scope = _keeping(descriptor.fixture, descriptor.origin.pack)
            self._scope, self._scope_before = scope, partial(scope, before=True)
        self._fits = answer_check(descriptor) if self.keeps else None
        comes_again = bool(descriptor.faults) or any(reply.reaches for reply in replies)
        self._numbers = _numbers_of if comes_again else None
        paced = self.waits or any(reply.progress for reply in replies)
        endless = rules[0].pointer == BARE and rules[0].after_last == "repeat"
        self._counts = paced or self.keeps or not endless or not replies[0].names <= {"args"}
        self._rules = tuple(rule.made_ready(alone=not self._counts) for rule in rules)
        self._choice = index_rules(self._rules)
        answer_now = self._answer if self._counts else _answering_alone(self._rules[0].replies[0])
        self.answer_now: Callable[[Call], Result | TrustedAnswer] | None = None if paced else answer_now

    async def execute(self, call: Call) -> Result:
        """Answer, in the reply's own time."""
        if self.answer_now is not None:
            return as_result(self.answer_now(call))
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        taken = self._taken(call, turn)
        if isinstance(taken, Result):
            return taken
        await self._pace(call, turn, taken)
        return as_result(taken.answer)

    async def _pace(self, call: Call, turn: ReplySelection, taken: ReplyOutcome) -> None:
        """Let the time pass that the reply takes, and report its progress."""
        clock, reply = call.context.session.clock, turn.reply
        for after, progress in taken.reports:
            await clock.sleep(after)
            call.context.emit(progress)
        if reply.latency is not None:
            await clock.sleep(reply.latency(call, turn.number))

    def _answer(self, call: Call) -> Result | TrustedAnswer:
        """What a call is answered whose reply has to be chosen, or whose mock remembers its calls."""
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        taken = self._taken(call, turn)
        return taken if isinstance(taken, Result) else taken.answer

    def _turn(self, call: Call) -> ReplySelection | Result:
        """Count the call and choose its reply; a Result where there is none."""
        state = call.context.session.slot(self._slot, MockState)
        if self._numbers is not None:
            number = self._numbers(call).of(call)
            state.acts.setdefault(number, 0)
        else:
            if call.attempt == 1:
                state.calls += 1
            number = state.calls
        return self._chosen(call, number, state, self._scope(call, number))

    def _chosen(self, call: Call, number: int, state: MockState, scope: Scope) -> ReplySelection | Result:
        """The turn of a call; a Result where there is no reply for it. Changes nothing."""
        chosen = self._choose(call, number, state, scope)
        return chosen if isinstance(chosen, Result) else ReplySelection(*chosen, scope, number, state)

    def _choose(
        self, call: Call, number: int, state: MockState, scope: Scope
    ) -> tuple[MockRule, int] | Result:
        """The rule that answers and the index of its reply; a Result where there is none. Changes nothing."""
        try:
            rules = self._rules if self._choice is None else self._choice.left_for(call.arguments)
            chosen = choose_rule(rules, scope, number, state)
        except ExpressionError as error:
            return mock_failure(call, error, error.pointer or self._rules[0].pointer)
        if chosen is not None:
            return chosen
        from toolcrib.executors.mock.no_match_report import report_no_match  # noqa: PLC0415 -- slow, and rarely needed

        return report_no_match(self._rules, call, scope, number, state)

    def _taken(self, call: Call, turn: ReplySelection) -> ReplyOutcome | Result:
        """What the reply comes to, and the count of its calls; a Result where the mock is wrong."""
        taken = self._worked_out(call, turn)
        if isinstance(taken, ReplyOutcome) and taken.used:
            turn.takes()
        return taken

    def _worked_out(self, call: Call, turn: ReplySelection, *, tried: bool = False) -> ReplyOutcome | Result:
        """What the reply comes to; a Result where the mock is wrong. Nothing is kept of what is only `tried`."""
        reply, scope, acts = turn.reply, turn.scope, turn.state.acts
        try:
            if isinstance(scope, StatefulScope):
                fits = None if tried else self._fits
                taken = run_transaction(reply, scope, turn.state, turn.meta, fits)
            else:
                taken = answer_reply(reply, scope, turn.meta)
        except ExpressionError as error:
            return mock_failure(call, error, reply.place_of(error))
        if turn.number in acts and not tried:
            acts[turn.number] += 1
        return taken

    def answer_before(self, call: Call) -> Result:
        """What the call would be answered if the last change of the session's store had not been. Changes nothing."""
        state = call.context.session.slot(self._slot, MockState)
        number = self._next_number(call, state)
        turn = self._chosen(call, number, state, self._scope_before(call, number))
        if isinstance(turn, Result):
            return turn
        taken = self._worked_out(call, turn, tried=True)
        return taken if isinstance(taken, Result) else as_result(taken.answer)

    def _next_number(self, call: Call, state: MockState) -> int:
        return state.calls + 1 if self._numbers is None else self._numbers(call).would_be(call)

    def explain(self, call: Call) -> JSON:
        """Which rule would answer, and why the rules before it would not. Changes nothing."""
        from toolcrib.executors.mock.no_match_report import explain_call  # noqa: PLC0415 -- as above

        state = call.context.session.slot(self._slot, MockState)
        number = self._next_number(call, state)
        plan: dict[str, JSON] = {"mode": "mock", **({"call": number} if self._counts else {})}
        return {**plan, **explain_call(self._rules, call, self._scope(call, number), number, state)}


def _answering_alone(reply: Reply) -> Callable[[Call], Result | TrustedAnswer]:
    """What a reply answers that is the only one and reads the arguments at most: nothing is chosen or remembered."""
    new: Any = tuple.__new__  # most mocked calls end here, and calling the class takes longer
    trusted_value = reply.trusted_value

    def answer(call: Call) -> Result | TrustedAnswer:
        if trusted_value is not None:
            try:
                trusted: TrustedAnswer = new(TrustedAnswer, (trusted_value(call.arguments), NOTHING))
            except NOT_TRUSTED:
                pass  # the ordinary answer says what is wrong
            else:
                return trusted
        try:
            return reply.answer({"args": call.arguments})
        except ExpressionError as error:
            return mock_failure(call, error, reply.place_of(error))

    return answer


class _Scoping(Protocol):
    """Makes the scope of a call whose mock reads or changes what the session keeps."""

    def __call__(self, call: Call, number: int, *, before: bool = False) -> Scope:
        """As things are, or as they were before the last change."""
        ...


def _numbers_of(call: Call) -> CallCounter:
    """The numbers of calls that may come again, or may have failed before: each attempt of one has the same."""
    from toolcrib.simulation.store import call_counter_of  # noqa: PLC0415 -- most calls come once

    return call_counter_of(call.context.session, call.tool.name)


def _keeping(fixture: Fixture, pack: str) -> _Scoping:
    from toolcrib.executors.mock.unit_of_work import UnitOfWork  # noqa: PLC0415 -- most mocks keep nothing
    from toolcrib.simulation.store import store_of  # noqa: PLC0415 -- as above

    def scope(call: Call, number: int, *, before: bool = False) -> Scope:
        store = store_of(call.context.session)
        version = store.before(fixture) if before else None
        return StatefulScope(call, number, UnitOfWork(store, fixture, version, pack))

    return scope
