"""Mode `mock`: answers scripted in the descriptor: fixed, templated, by rules, in sequence, generated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from toolcrib.errors import DocumentError, ExpressionError, Problem
from toolcrib.executors.mock.replies import Reply
from toolcrib.executors.mock.rules import BARE, Rule, choose, compile_rules
from toolcrib.executors.mock.scope import MockState, Scope, scope_of
from toolcrib.model import JSON, Call, Descriptor, Outcome, Result, Schema, Sound
from toolcrib.validation import NotJSONError

__all__ = ["BoundMock", "MockExecutor"]


@cache
def _block_schema() -> Schema:
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    text = files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


class MockExecutor:
    """Answers from the descriptor's `mock` block; touches nothing outside the process."""

    keeps_nothing = True

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `mock` block."""
        return _block_schema()

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Expressions, files and matchers compile; fixed answers fit the output schema; every rule can be reached."""
        from toolcrib.executors.mock.checks import problems_of  # noqa: PLC0415 -- no call needs them

        return problems_of(descriptor)

    def bind(self, descriptor: Descriptor) -> BoundMock:
        """Compile the block; ready to be called.

        Raises:
            DocumentError: There is an error in it, which `check` would have told.
        """
        problems: list[Problem] = []
        rules = compile_rules(descriptor, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        return BoundMock(descriptor, rules)

    async def aclose(self) -> None:
        """Nothing to give back."""


_Turn: TypeAlias = tuple[Rule, int, Scope, int]
"""What a call gets: the rule that answers, which of its replies, what expressions read, the call's number."""


_UNSOUND = (ExpressionError, NotJSONError, LookupError, TypeError, RecursionError)
"""What a sound answer that can't be worked out raises; the ordinary one says why."""


class BoundMock:
    """A compiled mock. Matching and choosing are one step: no other call comes between."""

    def __init__(self, descriptor: Descriptor, rules: tuple[Rule, ...]) -> None:
        replies = [reply for rule in rules for reply in rule.replies]
        self.waits = any(reply.waits for reply in replies)
        self._slot = f"mock:{descriptor.name}"
        self._scope = scope_of(frozenset({"args"}).union(*(rule.names for rule in rules)))
        paced = self.waits or any(reply.progress for reply in replies)
        self._counts = paced or rules[0].pointer != BARE or not replies[0].names <= {"args"}
        self._rules = tuple(rule.made_ready(alone=not self._counts) for rule in rules)
        self.value_of = None if self._counts else self._rules[0].replies[0].sound
        answer_now = self._answer if self._counts else self._answer_plain
        self.answer_now: Callable[[Call], Result | Sound] | None = None if paced else answer_now

    async def execute(self, call: Call) -> Result:
        """Answer, in the reply's own time."""
        if self.answer_now is not None:
            return _as_result(self.answer_now(call))
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        rule, place, scope, number = turn
        reply = rule.replies[place]
        try:
            answer = _worked_out(reply, scope, {"mock": {"rule": rule.label, "reply": place + 1}})
            reports = [(report.after, report.at(scope)) for report in reply.progress]
        except ExpressionError as error:
            return _bug(call, error, f"{reply.pointer}/{reply.kind}")
        clock = call.context.session.clock
        for after, progress in reports:
            await clock.sleep(after)
            call.context.emit(progress)
        if reply.latency is not None:
            await clock.sleep(reply.latency(call, number))
        return _as_result(answer)

    def _answer_plain(self, call: Call) -> Result | Sound:
        """One reply that reads the arguments at most: no state is needed."""
        reply = self._rules[0].replies[0]
        if self.value_of is not None:
            try:
                return Sound(self.value_of(call.arguments))
            except _UNSOUND:
                pass
        try:
            return reply.answer({"args": call.arguments})
        except ExpressionError as error:
            return _bug(call, error, f"{reply.pointer}/{reply.kind}")

    def _answer(self, call: Call) -> Result | Sound:
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        rule, place, scope, _number = turn
        reply = rule.replies[place]
        try:
            return _worked_out(reply, scope, {"mock": {"rule": rule.label, "reply": place + 1}})
        except ExpressionError as error:
            return _bug(call, error, f"{reply.pointer}/{reply.kind}")

    def _turn(self, call: Call) -> _Turn | Result:
        """Count the call and choose its reply; a Result where there is none."""
        state = call.context.session.slot(self._slot, MockState)
        if call.attempt == 1:
            state.calls += 1
        number = state.calls
        scope = self._scope(call, number)
        try:
            chosen = choose(self._rules, scope, number, state)
        except ExpressionError as error:
            return _bug(call, error, self._rules[0].pointer)
        if chosen is None:
            from toolcrib.executors.mock.unmatched import unmatched  # noqa: PLC0415 -- slow, and rarely needed

            return unmatched(self._rules, call, scope, number, state)
        rule, index = chosen
        state.used[rule.pointer] = state.used.get(rule.pointer, 0) + 1
        return rule, index, scope, number

    def explain(self, call: Call) -> JSON:
        """Which rule would answer, and why the rules before it would not. Changes nothing."""
        from toolcrib.executors.mock.unmatched import nearest, why_not  # noqa: PLC0415 -- as above

        state = call.context.session.slot(self._slot, MockState)
        number = state.calls + 1
        scope = self._scope(call, number)
        plan: dict[str, JSON] = {"mode": "mock", **({"call": number} if self._counts else {})}
        try:
            chosen = choose(self._rules, scope, number, state)
        except ExpressionError as error:
            return {**plan, "error": error.message}
        passed = self._rules if chosen is None else self._rules[: self._rules.index(chosen[0])]
        reasons = [(rule, why_not(rule, call.tool, scope, number, state)) for rule in passed]
        skipped: list[JSON] = [{"rule": rule.label, "because": list(why)} for rule, why in reasons if why]
        if chosen is None:
            near = nearest(self._rules, call.tool, scope, number, state)
            return {**plan, "rule": None, "skipped": skipped, "nearest": near}
        rule, index = chosen
        reply = rule.replies[index]
        place = call.tool.origin.place(reply.pointer)
        answer: dict[str, JSON] = {"rule": rule.label, "reply": index + 1, "kind": reply.kind, "at": place}
        return {**plan, **answer, "skipped": skipped}


def _worked_out(reply: Reply, scope: Scope, meta: Mapping[str, JSON]) -> Result | Sound:
    """The answer of a reply.

    Raises:
        ExpressionError: The mock is wrong.
    """
    if reply.sound is not None:
        try:
            return tuple.__new__(Sound, (reply.sound(scope), meta))
        except _UNSOUND:
            pass  # what is wrong is told by the answer or by whoever has it judged
    result = reply.answer(scope)
    return result._replace(meta=meta) if meta else result


def _as_result(answer: Result | Sound) -> Result:
    return Result.ok(answer.value, meta=answer.meta) if isinstance(answer, Sound) else answer


def _bug(call: Call, error: ExpressionError, nearby: str) -> Result:
    """The mock itself is wrong: never an answer that a model could take for the tool's.

    `nearby` is where the error belongs, unless it says so itself.
    """
    pointer = error.pointer or nearby
    place = call.tool.origin.place(pointer)
    return Result.failed(
        Outcome.INTERNAL,
        f"the mock of `{call.tool.name}` failed at {place}: {error.message}",
        code="mock_failed",
        details={"at": place, "pointer": pointer, "hint": error.hint, "cause": error.code},
    )
