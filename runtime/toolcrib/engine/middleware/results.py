"""Layer `results`: judges what the executor answered against the output schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from toolcrib.core.model import (
    JSON,
    NOTHING,
    Call,
    Descriptor,
    Outcome,
    Result,
    Schema,
    TrustedAnswer,
    as_result,
)
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.core.text import format_size
from toolcrib.engine.middleware.call_failures import hide_secrets, mask_violation, may_have_acted, reportable
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link, never_waits, off_loop
from toolcrib.schema.validation import Validator, Violation, ViolationReport, as_json, json_violation
from toolcrib.schema.validation.json_values import (
    ALIEN,
    DEPTH,
    SMALL,
    budget_for_bytes,
    describe_excess,
    is_large,
    remaining_budget,
)
from toolcrib.schema.validation.validator import MOST
from toolcrib.security.redaction import Redactor

_NOT_JSON = "is not valid JSON"


@cached_per_schema
def _validator(schema: Schema | None) -> Validator:
    """The judge of a schema; a tool that is mocked in many scenarios keeps its schema."""
    return Validator(True if schema is None else schema)


def layer(context: LayerContext, call_next: Link) -> Link:
    """The layer of a tool. Where its descriptor calls it deprecated, `meta.deprecated` of every result does."""
    tool = context.tool
    validator = _validator(tool.output_schema)
    judge, is_sync = validator.judge, context.answer_now is not None
    # The tool itself, where it is next and never waits: asking it without a coroutine saves a twentieth of a mocked call.
    answer_now = getattr(call_next, "answer_now", None)

    @never_waits
    async def results(call: Call) -> Answer:
        answer = await call_next(call) if answer_now is None else answer_now(call)
        if type(answer) is TrustedAnswer and judge(answer[0]):
            return answer
        result = as_result(answer)
        parts: list[JSON] = [part.as_json() for part in result.content]
        left = remaining_budget([result.value, parts], DEPTH + 1, SMALL)
        check = partial(_judged, call, result, parts, validator, left)
        # The answer of a tool that never waits is judged at once whatever its size, unless the arguments are large too.
        if ALIEN < left < 0 and (not is_sync or is_large(call.arguments, DEPTH)):
            return await off_loop(call, check)
        return check()

    return _deprecating(tool, results) if tool.deprecated else results


def _deprecating(tool: Descriptor, results: Link) -> Link:
    @never_waits
    async def deprecating(call: Call) -> Result:
        return as_result(await results(call)).with_meta(deprecated=tool.deprecated)

    return deprecating


def _judged(call: Call, result: Result, parts: list[JSON], validator: Validator, left: int) -> Result:
    """What becomes of a result. Where its value is large this takes long, and belongs in a thread.

    `left` is what its value and its parts leave of `SMALL`; see `remaining_budget`.
    """
    tool = call.tool
    # Most calls have the shared empty mapping, which needs no look.
    if result.meta is not NOTHING or (result.error is not None and result.error.details is not NOTHING):
        result, fault = reportable(result)
        if fault is not None:
            return _unreportable(call, result, fault)
    if result.outcome is not Outcome.OK:
        return result
    value, limit = result.value, tool.limits.output_size
    fits = SMALL - left <= budget_for_bytes(limit) if left >= 0 else False
    too_much = "" if fits else describe_excess([value, parts], DEPTH + 1, limit)
    if too_much is None:  # it is not plain JSON: it may have objects and lists of subclasses
        result = _plain(call, result, parts, validator)
        if result.outcome is not Outcome.OK:
            return result
        value = result.value
        too_much = describe_excess([value, parts], DEPTH + 1, limit)
    if too_much:
        return _too_large(call, result, too_much)
    if validator.judge(value):
        return result
    seen = _seen(call)
    report = validator.explain(value)
    report = report._replace(faults=hide_secrets(seen, report.faults, value))
    return _with_raw_value(_JUDGEMENTS[tool.on_invalid_result](tool, result, report), result, seen)


def _seen(call: Call) -> Redactor:
    """The secrets among the arguments: a tool may have put them anywhere."""
    return Redactor(call.arguments, call.tool.input_schema)


def _plain(call: Call, result: Result, parts: list[JSON], validator: Validator) -> Result:
    """The result with plain objects and lists in its value; what refuses it where that or a part is no JSON."""
    value, fault = as_json(result.value, depth=DEPTH)
    if fault is not None:
        faults = hide_secrets(_seen(call), [mask_violation(fault, validator)], value)
        return _refused(call.tool, result._replace(value=None), ViolationReport(faults), _NOT_JSON)
    fault = json_violation({"content": parts})
    if fault is not None:
        seen = _seen(call)
        faults = hide_secrets(seen, [fault], {"content": parts})
        return _with_raw_value(_refused(call.tool, result, ViolationReport(faults), _NOT_JSON), result, seen)
    return result._replace(value=value)


def _too_large(call: Call, result: Result, too_much: str) -> Result:
    tool, limit = call.tool, call.tool.limits.output_size
    details: dict[str, JSON] = {"limit": limit}
    if may_have_acted(tool):
        details["may_have_acted"] = True
    refused = Result.failed(
        Outcome.LIMIT_EXCEEDED,
        f"the result of `{tool.name}` is too large: {too_much}, and `limits.output_size` is {format_size(limit)}; "
        "ask for less",
        code="result_too_large",
        details=details,
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _unreportable(call: Call, result: Result, fault: Violation) -> Result:
    """The result goes on without what is no JSON; how a failed call ended is kept in the message."""
    sound = result._replace(meta=NOTHING, value=None, content=())
    faults = hide_secrets(_seen(call), [fault], None)
    ended = "" if result.error is None else f"; the call ended `{result.outcome}`"
    return _refused(call.tool, sound, ViolationReport(faults), f"{_NOT_JSON}{ended}")


def _refused(
    tool: Descriptor,
    result: Result,
    report: ViolationReport,
    verdict: str = "does not match its output schema",
) -> Result:
    lines = "\n".join(_lines(report))
    refused = Result.failed(
        Outcome.INVALID_RESULT,
        f"the result of `{tool.name}` {verdict}:\n{lines}",
        details={"violations": _pointers(report.faults[:MOST]), **report.counts()},
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _lines(report: ViolationReport) -> list[str]:
    return [*(fault.for_model() for fault in report.faults[:MOST]), *report.unshown()]


def _with_raw_value(judged: Result, result: Result, seen: Redactor) -> Result:
    """The raw value is kept for the one who repairs the tool, not for the model."""
    return judged._replace(raw_value=seen.hide_in(result.value))


def _warned(_tool: Descriptor, result: Result, report: ViolationReport) -> Result:
    warnings: list[JSON] = [*_lines(report)]
    return result.with_meta(warnings=warnings)


def _passed(_tool: Descriptor, result: Result, _report: ViolationReport) -> Result:
    return result


_JUDGEMENTS: dict[str, Callable[[Descriptor, Result, ViolationReport], Result]] = {
    "error": _refused,
    "warn": _warned,
    "pass": _passed,
}


def _pointers(faults: Sequence[Violation]) -> list[JSON]:
    return [
        {"pointer": fault.pointer, "keyword": fault.keyword, "expected": fault.expected} for fault in faults
    ]
