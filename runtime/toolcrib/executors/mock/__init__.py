"""Mode `mock`: replies defined in the descriptor: fixed, templated, by rules, in sequence, generated, stateful.

A call is one atomic step: a reply is chosen, its rows are read, its guards are evaluated, its effects are
applied and its result is computed and validated; only then is everything committed. Each attempt of a call
uses up one place in a list of replies, even if a guard refuses it or the output schema rejects the result. An
error of the mock itself, and a call that repeats an earlier one (`idempotent_by`), use up nothing.
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
    Fits,
    ReplyOutcome,
    answer_check,
    answer_reply,
    effect_failure,
    mock_failure,
    run_transaction,
)
from toolcrib.executors.mock.variables import (
    MockState,
    Scope,
    StatefulScope,
    scope_of,
    state_key,
)

if TYPE_CHECKING:
    from toolcrib.simulation.store import CallCounter

__all__ = ["BoundMock", "MockExecutor"]


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    text = files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


class MockExecutor:
    """Executor that replies from the `mock` block. It touches nothing outside the process.

    Attributes:
        elsewhere: Binds a tool in another of its modes, for `passthrough`; set by the engine.
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
        """Check expressions, files, matchers, fixed results against the output schema, and unreachable rules."""
        # Deferred: no call needs the checks.
        from toolcrib.executors.mock.checks import check_mock_block  # noqa: PLC0415

        return check_mock_block(descriptor)

    def keeps_state(self, descriptor: Descriptor) -> bool:
        """Whether the mock reads or changes the state of the session, or counts its calls."""
        rules = compile_rules(descriptor, [])
        return any(rule.counts or rule.keeps for rule in rules)

    def bind(self, descriptor: Descriptor) -> BoundMock:
        """Compile the block.

        Raises:
            DocumentError: The block has an error, which `check` reports.
        """
        problems: list[Problem] = []
        rules = compile_rules(descriptor, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        if not any(reply.reaches for rule in rules for reply in rule.replies):
            return BoundMock(descriptor, rules)
        # Deferred: few mocks inject faults or forward calls.
        from toolcrib.executors.mock.passthrough import ReachingMock  # noqa: PLC0415

        return ReachingMock(descriptor, rules, self.elsewhere)

    async def aclose(self) -> None:
        """Does nothing: the executor holds no resources."""


class ReplySelection(NamedTuple):
    """The reply chosen for a call.

    Attributes:
        rule: The rule that matched.
        place: The index of its reply.
        scope: The variables of the call's expressions.
        number: The number of the call, from 1.
        state: The session's memory of the tool.
    """

    rule: MockRule
    place: int
    scope: Scope
    number: int
    state: MockState

    @property
    def reply(self) -> Reply:
        """The chosen reply."""
        return self.rule.replies[self.place]

    @property
    def meta(self) -> Mapping[str, JSON]:
        """The `meta` of the result: which rule and which of its replies was used."""
        return {"mock": {"rule": self.rule.label, "reply": self.place + 1}}

    def takes(self, calls: int = 1) -> None:
        """Count calls that the rule has answered; a negative number takes them back."""
        used = self.state.used
        used[self.rule.pointer] = used.get(self.rule.pointer, 0) + calls


class BoundMock:
    """A compiled mock.

    Matching, choosing and acting contain no `await`, so no other call of the session runs in between.

    Attributes:
        waits: Whether a reply takes time or leaves the mock.
        keeps: Whether the mock reads or changes the state of the session.
        answer_now: Answers a call synchronously; None if a reply takes time or reports progress.
    """

    def __init__(self, descriptor: Descriptor, rules: tuple[MockRule, ...]) -> None:
        replies = [reply for rule in rules for reply in rule.replies]
        self.waits = any(reply.waits for reply in replies)
        self._slot = state_key(descriptor.name)
        names = frozenset({"args"}).union(*(rule.names for rule in rules))
        self.keeps = any(rule.keeps for rule in rules)
        self._scope = self._scope_before = scope_of(frozenset() if self.keeps else names)
        stateful = _keeping(descriptor.fixture, descriptor.origin.pack) if self.keeps else None
        if stateful is not None:
            self._scope, self._scope_before = stateful, partial(stateful, before=True)
        # A stateless mock has nothing to roll back: the result layer alone validates its results.
        self._fits = answer_check(descriptor) if self.keeps else None
        # Faults may repeat or withhold attempts, so calls must be numbered by their id, not by their arrival.
        comes_again = bool(descriptor.faults) or any(reply.reaches for reply in replies)
        self._numbers = _numbers_of if comes_again else None
        paced = self.waits or any(reply.progress for reply in replies)
        endless = rules[0].pointer == BARE and rules[0].after_last == "repeat"
        # A single endless reply that reads only the arguments needs neither a scope nor a counter.
        self._counts = paced or self.keeps or not endless or not replies[0].names <= {"args"}
        self._rules = tuple(rule.made_ready(alone=not self._counts) for rule in rules)
        self._choice = index_rules(self._rules)
        answer_now: Callable[[Call], Result | TrustedAnswer] = self._answer
        if not self._counts:
            answer_now = _answering_alone(self._rules[0].replies[0])
        elif endless and stateful is not None and self._fits is not None and not comes_again:
            answer_now = _answering_with_store(self._rules[0], self._slot, stateful, self._fits)
        self.answer_now: Callable[[Call], Result | TrustedAnswer] | None = None if paced else answer_now

    async def execute(self, call: Call) -> Result:
        """Reply, after the reply's latency and progress reports."""
        if self.answer_now is not None:
            return as_result(self.answer_now(call))
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        taken = self._taken(call, turn)
        if isinstance(taken, Result):
            return taken
        # A call takes effect when it arrives; only its result is delayed. So calls cannot interleave.
        await self._pace(call, turn, taken)
        return as_result(taken.answer)

    async def _pace(self, call: Call, turn: ReplySelection, taken: ReplyOutcome) -> None:
        """Wait for the latency of the reply, and emit its progress reports."""
        clock, reply = call.context.session.clock, turn.reply
        for after, progress in taken.reports:
            await clock.sleep(after)
            call.emit(progress)
        if reply.latency is not None:
            await clock.sleep(reply.latency(call, turn.number))

    def _answer(self, call: Call) -> Result | TrustedAnswer:
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        taken = self._taken(call, turn)
        return taken if isinstance(taken, Result) else taken.answer

    def _turn(self, call: Call) -> ReplySelection | Result:
        """Count the call and choose its reply; a Result if there is none."""
        state = call.context.session.slot(self._slot, MockState)
        if self._numbers is not None:
            number = self._numbers(call).of(call)
            state.acts.setdefault(number, 0)
        else:
            # Attempts of one call share its number.
            if call.attempt == 1:
                state.calls += 1
            number = state.calls
        scope = self._scope(call, number)
        if isinstance(scope, StatefulScope) and scope.work.failed:
            return effect_failure(scope.work.failed.pop(0))
        return self._chosen(call, number, state, scope)

    def _chosen(self, call: Call, number: int, state: MockState, scope: Scope) -> ReplySelection | Result:
        """The reply for a call; a Result if there is none. Changes nothing."""
        chosen = self._choose(call, number, state, scope)
        if isinstance(chosen, Result):
            return chosen
        # Twice as fast as the class, which is measurable in a mocked call.
        selection: ReplySelection = tuple.__new__(ReplySelection, (*chosen, scope, number, state))
        return selection

    def _choose(
        self, call: Call, number: int, state: MockState, scope: Scope
    ) -> tuple[MockRule, int] | Result:
        """The rule that answers and the index of its reply; a Result if there is none. Changes nothing."""
        try:
            rules = self._rules if self._choice is None else self._choice.left_for(call.arguments)
            chosen = choose_rule(rules, scope, number, state)
        except ExpressionError as error:
            return mock_failure(call, error, error.pointer or self._rules[0].pointer)
        if chosen is not None:
            return chosen
        # Deferred: slow to import, and needed only for a call without a reply.
        from toolcrib.executors.mock.no_match_report import report_no_match  # noqa: PLC0415

        return report_no_match(self._rules, call, scope, number, state)

    def _taken(self, call: Call, turn: ReplySelection) -> ReplyOutcome | Result:
        """Compute the reply and count it as used; a Result if the mock is wrong."""
        taken = self._worked_out(call, turn)
        if isinstance(taken, ReplyOutcome) and taken.used:
            turn.takes()
        return taken

    def _worked_out(self, call: Call, turn: ReplySelection, *, tried: bool = False) -> ReplyOutcome | Result:
        """Compute the reply; a Result if the mock is wrong. With `tried`, nothing is committed."""
        reply, scope, acts = turn.reply, turn.scope, turn.state.acts
        try:
            if isinstance(scope, StatefulScope):
                fits = None if tried else self._fits
                taken = run_transaction(reply, scope, turn.state, turn.meta, fits)
            else:
                taken = answer_reply(reply, scope, turn.meta)
        except ExpressionError as error:
            return mock_failure(call, error, reply.place_of(error))
        # Acts key the random draws: a repeated delivery of one call draws other values.
        if turn.number in acts and not tried:
            acts[turn.number] += 1
        return taken

    def answer_before(self, call: Call) -> Result:
        """The result that the call would have had before the last change of the session's store. Changes nothing.

        The fault `stale` returns it.
        """
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
        from toolcrib.executors.mock.no_match_report import explain_call  # noqa: PLC0415

        state = call.context.session.slot(self._slot, MockState)
        number = self._next_number(call, state)
        plan: dict[str, JSON] = {"mode": "mock", **({"call": number} if self._counts else {})}
        return {**plan, **explain_call(self._rules, call, self._scope(call, number), number, state)}


def _answering_alone(reply: Reply) -> Callable[[Call], Result | TrustedAnswer]:
    """The function that answers for a mock with a single reply that reads nothing but the arguments."""
    # The hottest path of the package: most mocked calls end here. `tuple.__new__` is faster than the class.
    new: Any = tuple.__new__
    trusted_value = reply.trusted_value

    def answer(call: Call) -> Result | TrustedAnswer:
        if trusted_value is not None:
            try:
                trusted: TrustedAnswer = new(TrustedAnswer, (trusted_value(call.arguments), NOTHING))
            except NOT_TRUSTED:
                # The ordinary path below computes the reply again and reports what is wrong.
                pass
            else:
                return trusted
        try:
            return reply.answer({"args": call.arguments})
        except ExpressionError as error:
            return mock_failure(call, error, reply.place_of(error))

    return answer


def _answering_with_store(
    rule: MockRule, slot: str, scope_for: _Scoping, fits: Fits
) -> Callable[[Call], Result | TrustedAnswer]:
    """The function that answers for a stateful mock with a single reply: `BoundMock._answer` without a choice."""
    reply, pointer, label = rule.replies[0], rule.pointer, rule.label

    def answer(call: Call) -> Result | TrustedAnswer:
        state = call.context.session.slot(slot, MockState)
        if call.attempt == 1:
            state.calls += 1
        scope = scope_for(call, state.calls)
        if scope.work.failed:
            return effect_failure(scope.work.failed.pop(0))
        meta: dict[str, JSON] = {"mock": {"rule": label, "reply": 1}}
        try:
            taken = run_transaction(reply, scope, state, meta, fits)
        except ExpressionError as error:
            return mock_failure(call, error, reply.place_of(error))
        if taken.used:
            state.used[pointer] = state.used.get(pointer, 0) + 1
        return taken.answer

    return answer


class _Scoping(Protocol):
    """Creates the scope of a call whose mock reads or changes the state of the session."""

    def __call__(self, call: Call, number: int, *, before: bool = False) -> StatefulScope:
        """The scope over the current store, or over the store before its last change."""
        ...


def _numbers_of(call: Call) -> CallCounter:
    """The counter of calls that faults may repeat: every attempt of a call has the same number."""
    from toolcrib.simulation.store import call_counter_of  # noqa: PLC0415

    return call_counter_of(call.context.session, call.tool.name)


def _keeping(fixture: Fixture, pack: str) -> _Scoping:
    # Deferred: most mocks are stateless.
    from toolcrib.executors.mock.unit_of_work import UnitOfWork  # noqa: PLC0415
    from toolcrib.simulation.store import store_of  # noqa: PLC0415

    def scope(call: Call, number: int, *, before: bool = False) -> StatefulScope:
        store = store_of(call.context.session)
        if store.saved:
            store.recall(fixture.collections.values())
        version = store.before(fixture) if before else None
        return StatefulScope(call, number, UnitOfWork(store, fixture, version, pack))

    return scope
