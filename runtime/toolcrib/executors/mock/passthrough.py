"""Mocks that stand for a way into the world: some of their replies fail as it fails, or hand calls on to it.

The layers of tools that reach out stand around them, so that deadline, retry and breaker do what they would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result, as_result
from toolcrib.core.protocols import BoundTool
from toolcrib.executors.mock import BoundMock, ReplySelection
from toolcrib.executors.mock.replies import STATEFUL, Reply
from toolcrib.executors.mock.rules import MockRule
from toolcrib.executors.mock.transaction import ReplyOutcome, mock_failure, progress_reports

Elsewhere = Callable[[Descriptor, str], BoundTool]
"""Binds a tool in another of its modes."""


class ReachingMock(BoundMock):
    """A mock with replies that fail on purpose, or that hand calls on.

    Attributes:
        origin: What its calls share with those of others: that of the binding which it hands calls on to.
        repeatable: Whether an attempt that failed may be made again without a second effect.
    """

    def __init__(
        self, descriptor: Descriptor, rules: tuple[MockRule, ...], elsewhere: Elsewhere | None
    ) -> None:
        super().__init__(descriptor, rules)
        self._tool = descriptor
        self._elsewhere = elsewhere
        self._others: dict[str, BoundTool] = {}
        modes = {reply.elsewhere for rule in rules for reply in rule.replies} - {""}
        origins = [getattr(self._other(mode), "origin", None) for mode in sorted(modes)]
        self.origin: str = next(filter(None, origins), f"mock:{descriptor.name}")
        self.repeatable = descriptor.annotations.idempotent or descriptor.annotations.read_only

    async def execute(self, call: Call) -> Result:
        """Answer, fail as the reply says, or hand the call on."""
        turn = self._turn(call)
        if isinstance(turn, Result):
            return turn
        if turn.reply.injection is not None:
            return await self._failing(call, turn)
        if turn.reply.elsewhere and not call.context.passthrough:
            return _denied(call, turn.reply)
        taken = self._taken(call, turn)
        if isinstance(taken, Result):
            return taken
        await self._pace(call, turn, taken)
        answer = as_result(taken.answer)
        if turn.reply.elsewhere and answer.outcome is Outcome.OK:
            return await self._handed_on(call, turn)
        return answer

    async def _failing(self, call: Call, turn: ReplySelection) -> Result:
        """What the fault makes of the call. What the reply does, it does as often as the fault lets the call through."""
        reply, injection = turn.reply, turn.reply.injection
        assert injection is not None  # noqa: S101 -- asked only of a reply that has it
        turn.takes()  # at once: other calls come while this one takes its time

        async def act(delivered: Call) -> Result:
            scope = self._scope(delivered, turn.number)
            taken = self._worked_out(delivered, turn._replace(scope=scope))
            if isinstance(taken, Result):
                return taken
            await self._pace(delivered, turn, taken)
            return as_result(taken.answer)

        try:
            if not injection.reaches:
                await self._pace(call, turn, ReplyOutcome(Result.ok(), progress_reports(reply, turn.scope)))
            result = await injection.inject(
                call, act, turn.scope, number=turn.number, repeatable=self.repeatable
            )
        except ExpressionError as error:
            result = mock_failure(call, error, reply.place_of(error))
        if result.outcome is Outcome.INTERNAL:
            turn.takes(-1)  # what is wrong with the mock uses nothing up
            return result
        return result.with_meta(**turn.meta)

    async def _handed_on(self, call: Call, turn: ReplySelection) -> Result:
        mode = turn.reply.elsewhere
        other = self._other(mode)
        if other is None:
            message = f"the mock of `{call.tool.name}` forwards calls to `{mode}:`, which requires a runtime"
            return Result.failed(Outcome.UNAVAILABLE, message, code="not_bound")
        result = await other.execute(call)
        if result.outcome is Outcome.UNAVAILABLE:
            self._others.pop(mode, None)  # what it lacks may be there at the next call
        rule: JSON = {"rule": turn.rule.label, "reply": turn.place + 1, "passthrough": mode}
        # How long the answer holds is left out: kept answers would be given past the mock.
        meta = {key: told for key, told in result.meta.items() if key != "freshness"}
        return result._replace(meta={**meta, "mock": rule})

    def _other(self, mode: str) -> BoundTool | None:
        """The tool in another of its modes; bound once."""
        if mode not in self._others and self._elsewhere is not None:
            self._others[mode] = self._elsewhere(self._tool, mode)
        return self._others.get(mode)


def _denied(call: Call, reply: Reply) -> Result:
    place = call.tool.origin.place(f"{reply.pointer}/passthrough")
    return Result.failed(
        Outcome.DENIED,
        f"the mock of `{call.tool.name}` forwards this call to `{reply.elsewhere}:` ({place}), which this run does not allow;"
        " use `--allow-passthrough` or `Runtime(..., passthrough=True)`",
        code="passthrough_not_allowed",
        details={"mode": reply.elsewhere, "at": place},
    )


def unused_keys(block: dict[str, Any], reply: Reply) -> Iterator[Problem]:
    """What stands beside a fault or a passthrough and would have no effect."""
    keys: tuple[str, ...] = ("content", "idempotent_by")
    why = f"the result comes from `{reply.elsewhere}:`"
    if reply.injection is not None:
        keys = ("content",) if reply.injection.reaches else ("content", "idempotent_by", *STATEFUL)
        why = "the call never reaches the tool"
        if reply.injection.reaches:
            why = "the tool's result is generated"
    if reply.injection is not None and reply.injection.kind == "stale":
        message = "a reply cannot be `stale`: it has no earlier result"
        hint = "inject it from a scenario instead: `faults: [{tool: ..., inject: stale}]`"
        yield Problem("fault_not_possible", message, f"{reply.pointer}/fault", hint)
    for key in keys:
        if key in block:
            message = f"`{key}` has no effect with `{reply.kind}`: {why}"
            hint = "remove one of them"
            yield Problem("needless_key", message, f"{reply.pointer}/{key}", hint)
