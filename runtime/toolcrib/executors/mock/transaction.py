"""Compute the result of a reply, alone or in one atomic step with its changes to the store."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import (
    JSON,
    Call,
    Descriptor,
    Outcome,
    Progress,
    Result,
    Schema,
    TrustedAnswer,
    as_result,
)
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.executors.mock.replies import RESULT_DEPTH, Reply
from toolcrib.executors.mock.variables import MockState, Scope, StatefulScope
from toolcrib.expressions import copy_value
from toolcrib.expressions.values import frozen
from toolcrib.schema.validation import NotJSONError, Validator, json_violation

if TYPE_CHECKING:
    from toolcrib.executors.mock.effects import EffectRefusal
    from toolcrib.executors.mock.unit_of_work import UnitOfWork
    from toolcrib.simulation.store import FailedEffect

NOT_TRUSTED = (ExpressionError, NotJSONError, LookupError, TypeError, RecursionError)
"""The exceptions of `Reply.trusted_value`. The ordinary path then reports the reason."""

Meta = Mapping[str, JSON]

Fits = Callable[[Result | TrustedAnswer], bool]
"""Whether a result will be accepted by the layers, so that the changes of the call may be committed."""


class ReplyOutcome(NamedTuple):
    """The outcome of a reply for one call.

    Attributes:
        answer: The result.
        reports: The progress reports before the result, each with the seconds to wait before it.
        used: Whether the call counts against `times` of the reply.
    """

    answer: Result | TrustedAnswer
    reports: tuple[tuple[float, Progress], ...] = ()
    used: bool = True


def answer_reply(reply: Reply, scope: Scope, meta: Meta) -> ReplyOutcome:
    """The result of a reply with its progress reports.

    Raises:
        ExpressionError: The mock is wrong.
    """
    # `tuple.__new__` takes half as long as the classes, which is measurable in a mocked call.
    new: Any = tuple.__new__
    answer: Result | TrustedAnswer | None = None
    if reply.trusted_value is not None:
        try:
            answer = new(TrustedAnswer, (reply.trusted_value(scope), meta))
        except NOT_TRUSTED:
            answer = None
    if answer is None:
        result = reply.answer(scope)
        answer = result._replace(meta=meta) if meta else result
    reports = progress_reports(reply, scope) if reply.progress else ()
    outcome: ReplyOutcome = new(ReplyOutcome, (answer, reports, True))
    return outcome


def progress_reports(reply: Reply, scope: Scope) -> tuple[tuple[float, Progress], ...]:
    """The progress reports before the result, each with the seconds to wait before it.

    Raises:
        ExpressionError: The mock is wrong.
    """
    return tuple((report.after, report.at(scope)) for report in reply.progress)


def run_transaction(
    reply: Reply, scope: StatefulScope, state: MockState, meta: Meta, fits: Fits | None
) -> ReplyOutcome:
    """Run the effects of a reply and compute its result. Everything is committed, or nothing.

    A call with the same `idempotent_by` value as an earlier one returns the earlier result and has no
    effects.

    Args:
        reply: The chosen reply.
        scope: The variables of the call, with its unit of work.
        state: The session's memory of the tool, which receives the result for later calls of the same value.
        meta: The `meta` of the result.
        fits: Decides whether the result lets the changes be committed; None for a dry run.

    Raises:
        ExpressionError: The mock is wrong; nothing is committed.
    """
    if reply.same is None:
        return _step(reply, scope, meta, fits)[0]
    same = _key(reply, scope)
    if same is not None and same in state.answers:
        return ReplyOutcome(_again(state.answers[same]), used=False)
    taken, stands = _step(reply, scope, meta, fits)
    if same is not None and stands:
        state.answers[same] = _kept(taken.answer)
    return taken


def _step(reply: Reply, scope: StatefulScope, meta: Meta, fits: Fits | None) -> tuple[ReplyOutcome, bool]:
    """The outcome of the call, and whether it is final: a refusal by a guard or effect, or a result that the layers accept."""
    work, body = scope.work, reply.body
    inner: Scope = scope
    if body is not None:
        inner = body.begin(scope, work)
        refusal = body.judge(inner)
        if refusal is not None:
            return ReplyOutcome(refusal._replace(meta=meta)), fits is not None
        decided = body.act(inner)
        if decided is not None:
            return _decided(decided, work, meta, fits)
    taken = answer_reply(reply, inner, meta)
    if fits is None:
        return taken, False
    # The result layer runs after this step. A result that it would reject must leave the store unchanged, so
    # the check is made here. The result of a `fault` or `passthrough` reply is not the final one.
    matters = (work.changed or reply.same is not None) and not reply.reaches
    if matters and not fits(taken.answer):
        return taken, False
    if work.changed:
        work.check()
        work.commit()
    return taken, True


def _decided(
    decided: EffectRefusal, work: UnitOfWork, meta: Meta, fits: Fits | None
) -> tuple[ReplyOutcome, bool]:
    """The outcome of a call that an effect ended with an error. Its changes are committed only if they are kept."""
    answer = decided.result._replace(meta=meta)
    final = fits is not None and fits(answer)
    if decided.keep and final and work.changed:
        work.check()
        work.commit()
    return ReplyOutcome(answer), final


def _key(reply: Reply, scope: Scope) -> Hashable:
    """The value of `idempotent_by`; None for a call that is never a repetition."""
    assert reply.same is not None  # noqa: S101 -- called only for a reply with `idempotent_by`
    try:
        value = reply.same.evaluate(scope)
    except ExpressionError as error:
        raise error.under(f"{reply.pointer}/idempotent_by") from None
    return None if value is None else frozen(value)


def _kept(answer: Result | TrustedAnswer) -> Result:
    """A private copy of a result that later calls return again."""
    return _copy(as_result(answer))


def _again(kept: Result) -> Result:
    """A stored result for a repeated call, marked `repeated` in its `meta`."""
    mock = kept.meta.get("mock")
    told = {"mock": {**mock, "repeated": True}} if isinstance(mock, dict) else {}
    return _copy(kept)._replace(meta={**kept.meta, **told})


def _copy(result: Result) -> Result:
    error = result.error
    if error is not None:
        error = error._replace(details=copy_value(dict(error.details)))
    return result._replace(value=copy_value(result.value), error=error)


def answer_check(tool: Descriptor) -> Fits:
    """The test whether the layers will accept a result of the tool.

    Invalid JSON never passes. A result that violates the output schema passes only if the descriptor's
    `on_invalid_result` tolerates it.
    """
    judge = _validator(tool.output_schema if tool.on_invalid_result == "error" else None).judge

    def fits(answer: Result | TrustedAnswer) -> bool:
        if isinstance(answer, TrustedAnswer):
            return judge(answer[0])
        if answer.outcome is not Outcome.OK:
            return answer.error is None or _is_json(dict(answer.error.details))
        parts: list[JSON] = [part.as_json() for part in answer.content]
        return _is_json(answer.value) and _is_json(parts) and judge(answer.value)

    return fits


def _is_json(value: JSON) -> bool:
    return json_violation(value, depth=RESULT_DEPTH) is None


@cached_per_schema
def _validator(schema: Schema | None) -> Validator:
    return Validator(True if schema is None else schema)


def mock_failure(call: Call, error: ExpressionError, pointer: str) -> Result:
    """The result for an error of the mock itself, which must not be mistaken for a result of the tool.

    Args:
        call: The call.
        error: The error.
        pointer: JSON Pointer of the error in the descriptor.
    """
    # Deferred: a mock that fails is rare.
    from toolcrib.formats.promptkit.foreign_descriptors import is_go_template, reword_go_problem  # noqa: PLC0415

    origin, message, hint = call.tool.origin, error.message, error.hint
    if is_go_template(origin, pointer):
        message, hint = reword_go_problem(message, hint)
    place = origin.place(pointer)
    return Result.failure(
        Outcome.INTERNAL,
        f"the mock of `{call.tool.name}` failed at {place}: {message}",
        code="mock_failed",
        details={"at": place, "pointer": pointer, "hint": hint, "cause": error.code},
    )


def effect_failure(failed: FailedEffect) -> Result:
    """The result of a call before which a pending effect could not be applied, because its mock is wrong."""
    place = failed.effect.tool.origin.place(failed.pointer)
    details: dict[str, JSON] = {
        "at": place,
        "pointer": failed.pointer,
        "hint": failed.error.hint,
        "cause": failed.error.code,
    }
    return Result.failure(Outcome.INTERNAL, failed.message, code="mock_failed", details=details)
