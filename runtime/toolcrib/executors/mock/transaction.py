"""What a reply comes to: the answer alone, or one atomic step that changes what the session's mocks keep."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

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

NOT_TRUSTED = (ExpressionError, NotJSONError, LookupError, TypeError, RecursionError)
"""What a trusted answer that can't be worked out raises; the ordinary one says why."""

Meta = Mapping[str, JSON]

Fits = Callable[[Result | TrustedAnswer], bool]
"""Whether an answer will pass for one of the tool, so that what the call changes may stay."""


class ReplyOutcome(NamedTuple):
    """What became of a call that a reply has taken.

    Attributes:
        answer: What it is answered.
        reports: Seconds to wait and the progress to report then, before the answer.
        used: Whether it counts among the calls that the reply has answered.
    """

    answer: Result | TrustedAnswer
    reports: tuple[tuple[float, Progress], ...] = ()
    used: bool = True


def compute_answer(reply: Reply, scope: Scope, meta: Meta) -> Result | TrustedAnswer:
    """The answer of a reply.

    Raises:
        ExpressionError: The mock is wrong.
    """
    if reply.trusted_value is not None:
        try:
            return tuple.__new__(TrustedAnswer, (reply.trusted_value(scope), meta))
        except NOT_TRUSTED:
            pass  # what is wrong is told by the answer or by whoever has it judged
    result = reply.answer(scope)
    return result._replace(meta=meta) if meta else result


def answer_reply(reply: Reply, scope: Scope, meta: Meta) -> ReplyOutcome:
    """The answer of a reply, and what it reports on the way.

    Raises:
        ExpressionError: The mock is wrong.
    """
    answer = compute_answer(reply, scope, meta)
    return ReplyOutcome(answer, progress_reports(reply, scope)) if reply.progress else ReplyOutcome(answer)


def progress_reports(reply: Reply, scope: Scope) -> tuple[tuple[float, Progress], ...]:
    """What is reported before the answer, and after how many seconds each.

    Raises:
        ExpressionError: The mock is wrong.
    """
    return tuple((report.after, report.at(scope)) for report in reply.progress)


def run_transaction(
    reply: Reply, scope: StatefulScope, state: MockState, meta: Meta, fits: Fits | None
) -> ReplyOutcome:
    """One step: what the reply does, and its answer. All of it is kept, or nothing.

    A call that means the same as an earlier one is answered what that one was, and does nothing.

    Args:
        reply: The reply that has taken the call.
        scope: What expressions of the call read, and the work that is kept if the step stands.
        state: Receives the answer, for the calls that mean the same.
        meta: What is told beside the answer.
        fits: Whether the answer lets the step stand; None for a step that is only tried.

    Raises:
        ExpressionError: The mock is wrong; nothing is kept.
    """
    same = None if reply.same is None else _key(reply, scope)
    if same is not None and same in state.answers:
        return ReplyOutcome(_again(state.answers[same]), used=False)
    taken, stands = _step(reply, scope, meta, fits)
    if same is not None and stands:
        state.answers[same] = _kept(taken.answer)
    return taken


def _step(reply: Reply, scope: StatefulScope, meta: Meta, fits: Fits | None) -> tuple[ReplyOutcome, bool]:
    """What becomes of the call, and whether that stands: what a guard answers does, and what nobody will refuse."""
    work, body = scope.work, reply.body
    inner: Scope = scope
    if body is not None:
        inner = body.begin(scope, work)
        refusal = body.judge(inner)
        if refusal is not None:
            return ReplyOutcome(refusal._replace(meta=meta)), fits is not None
        body.act(inner)
    taken = answer_reply(reply, inner, meta)
    if fits is None:
        return taken, False
    matters = (work.changed or reply.same is not None) and not reply.reaches
    if matters and not fits(taken.answer):
        return taken, False
    if work.changed:
        work.check()
        work.commit()
    return taken, True


def _key(reply: Reply, scope: Scope) -> Hashable:
    """What makes calls one; None for a call of its own."""
    assert reply.same is not None  # noqa: S101 -- asked only of a reply that has it
    try:
        value = reply.same.evaluate(scope)
    except ExpressionError as error:
        raise error.under(f"{reply.pointer}/idempotent_by") from None
    return None if value is None else frozen(value)


def _kept(answer: Result | TrustedAnswer) -> Result:
    """An answer to be given again: nobody else has its objects and lists."""
    return _copy(as_result(answer))


def _again(kept: Result) -> Result:
    """A kept answer for one more call; its `meta` says that nothing was done for it."""
    mock = kept.meta.get("mock")
    told = {"mock": {**mock, "repeated": True}} if isinstance(mock, dict) else {}
    return _copy(kept)._replace(meta={**kept.meta, **told})


def _copy(result: Result) -> Result:
    error = result.error
    if error is not None:
        error = error._replace(details=copy_value(dict(error.details)))
    return result._replace(value=copy_value(result.value), error=error)


def answer_check(tool: Descriptor) -> Fits:
    """Whether an answer of a tool is one that the layers will not refuse.

    What is no JSON never passes; what the output schema refuses passes only where the descriptor lets it.
    """
    judge = _validator(tool.output_schema if tool.on_invalid_result == "error" else None).judge

    def fits(answer: Result | TrustedAnswer) -> bool:
        if isinstance(answer, TrustedAnswer):
            return judge(answer.value)
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
    """The mock itself is wrong: never an answer that a model could take for the tool's.

    `pointer` is where the error belongs.
    """
    from toolcrib.formats.promptkit.foreign_descriptors import is_go_template, reword_go_problem  # noqa: PLC0415 -- a mock that fails is rare

    origin, message, hint = call.tool.origin, error.message, error.hint
    if is_go_template(origin, pointer):
        message, hint = reword_go_problem(message, hint)
    place = origin.place(pointer)
    return Result.failed(
        Outcome.INTERNAL,
        f"the mock of `{call.tool.name}` failed at {place}: {message}",
        code="mock_failed",
        details={"at": place, "pointer": pointer, "hint": hint, "cause": error.code},
    )
