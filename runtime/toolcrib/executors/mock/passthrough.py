"""Mocks with `fault` or `passthrough` replies, which fail like a real tool or forward calls to another mode.

They get the same layers as tools that leave the process, so that deadline, retry and circuit breaker behave
as they do for the real tool.
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
    """A mock with replies that inject faults or forward calls.

    Attributes:
        origin: The origin whose limits and circuit breaker its calls share: that of the mode it forwards to,
            if any.
        own_defaults: Whether it forwards to a tool that applies the defaults of its input schema itself.
        repeatable: Whether a failed attempt may be repeated without a second effect.
    """

    def __init__(
        self, descriptor: Descriptor, rules: tuple[MockRule, ...], elsewhere: Elsewhere | None
    ) -> None:
        super().__init__(descriptor, rules)
        self._tool = descriptor
        self._elsewhere = elsewhere
        self._others: dict[str, BoundTool] = {}
        modes = {reply.elsewhere for rule in rules for reply in rule.replies} - {""}
        others = [self._other(mode) for mode in sorted(modes)]
        origins = [getattr(other, "origin", None) for other in others]
        self.own_defaults = any(getattr(other, "own_defaults", False) for other in others)
        self.origin: str = next(filter(None, origins), f"mock:{descriptor.name}")
        self.repeatable = descriptor.annotations.idempotent or descriptor.annotations.read_only

    async def execute(self, call: Call) -> Result:
        """Reply, inject the fault of the reply, or forward the call."""
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
        """The result of a call with a fault, which may deliver the call to the reply once, twice or never."""
        reply, injection = turn.reply, turn.reply.injection
        assert injection is not None  # noqa: S101 -- called only for a reply with a fault
        # Counted before the first await: other calls may arrive while this one waits.
        turn.takes()

        async def act(delivered: Call) -> Result:
            scope = self._scope(delivered, turn.number)
            taken = self._worked_out(delivered, turn._replace(scope=scope))
            if isinstance(taken, Result):
                return taken
            await self._pace(delivered, turn, taken)
            return as_result(taken.answer)

        try:
            if not injection.reaches:
                await self._pace(
                    call, turn, ReplyOutcome(Result.success(), progress_reports(reply, turn.scope))
                )
            result = await injection.inject(
                call, act, turn.scope, number=turn.number, repeatable=self.repeatable
            )
        except ExpressionError as error:
            result = mock_failure(call, error, reply.place_of(error))
        # An error of the mock itself uses no reply up.
        if result.outcome is Outcome.INTERNAL:
            turn.takes(-1)
            return result
        return result.with_meta(**turn.meta)

    async def _handed_on(self, call: Call, turn: ReplySelection) -> Result:
        mode = turn.reply.elsewhere
        other = self._other(mode)
        if other is None:
            message = f"the mock of `{call.tool.name}` forwards calls to `{mode}:`, which requires a runtime"
            return Result.failure(Outcome.UNAVAILABLE, message, code="not_bound")
        result = await other.execute(call)
        # Bound anew at the next call: what was missing, such as a secret, may be there by then.
        if result.outcome is Outcome.UNAVAILABLE:
            self._others.pop(mode, None)
        rule: JSON = {"rule": turn.rule.label, "reply": turn.place + 1, "passthrough": mode}
        # `freshness` is dropped: the cache layer would otherwise answer later calls without asking the mock.
        meta = {key: told for key, told in result.meta.items() if key != "freshness"}
        return result._replace(meta={**meta, "mock": rule})

    def _other(self, mode: str) -> BoundTool | None:
        """The tool bound in another mode, or None without a runtime. It is bound once."""
        if mode not in self._others and self._elsewhere is not None:
            self._others[mode] = self._elsewhere(self._tool, mode)
        return self._others.get(mode)


def _denied(call: Call, reply: Reply) -> Result:
    place = call.tool.origin.place(f"{reply.pointer}/passthrough")
    return Result.failure(
        Outcome.DENIED,
        f"the mock of `{call.tool.name}` forwards this call to `{reply.elsewhere}:` ({place}), which this run does not allow;"
        " use `--allow-passthrough` or `Runtime(..., passthrough=True)`",
        code="passthrough_not_allowed",
        details={"mode": reply.elsewhere, "at": place},
    )


def unused_keys(block: dict[str, Any], reply: Reply) -> Iterator[Problem]:
    """Problems for keys that have no effect next to `fault` or `passthrough`."""
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
