"""Layer `results`: checks the answer of the executor against the output schema and the size limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import (
    ANSWERS,
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
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link, never_waits, off_loop, results_of
from toolcrib.schema.validation import Validator, Violation, ViolationReport, as_json, json_violation
from toolcrib.schema.validation.json_values import (
    ALIEN,
    DEPTH,
    SMALL,
    WITHIN,
    ExcessSize,
    budget_for_bytes,
    is_large,
    measure_excess,
    remaining_budget,
)
from toolcrib.schema.validation.validator import MOST
from toolcrib.security.redaction import Redactor

_NOT_JSON = "is not valid JSON"


@cached_per_schema
def _validator(schema: Schema | None) -> Validator:
    # Cached: a tool that many scenarios mock is bound anew in each, with the same schema.
    return Validator(True if schema is None else schema)


def layer(context: LayerContext, call_next: Link) -> Link:
    """Build the layer of a tool. The results of a deprecated tool carry `meta.deprecated`."""
    tool = context.tool
    validator = _validator(tool.output_schema)
    # A binding guarantees the limits that all of its callers have.
    judge = (lambda _value: False) if context.personal else _judge(tool, validator)
    is_sync = context.answer_now is not None
    recheck = getattr(context.bound, "recheck", _nothing)

    @never_waits
    def results(call: Call) -> Answer | Awaitable[Answer]:
        answer = call_next(call)
        if type(answer) is TrustedAnswer and judge(answer[0]):
            return answer
        return judged(call, answer) if isinstance(answer, ANSWERS) else later(call, answer)

    async def later(call: Call, rest: Awaitable[Answer]) -> Answer:
        answer = await rest
        if type(answer) is TrustedAnswer and judge(answer[0]):
            return answer
        checked = judged(call, answer)
        return checked if isinstance(checked, Result) else await checked

    def judged(call: Call, answer: Answer) -> Result | Awaitable[Result]:
        result = as_result(answer)
        parts: list[JSON] = [part.as_json() for part in result.content]
        left = remaining_budget([result.value, parts], DEPTH + 1, SMALL)
        check = partial(_judged, call, result, parts, validator, left, recheck=recheck)
        # The answer of a tool that never waits is checked inline even if it is large: that call may have no
        # event loop. With large arguments it always has one.
        if ALIEN < left < 0 and (not is_sync or is_large(call.arguments, DEPTH)):
            return off_loop(call, check)
        return check()

    return _deprecating(tool, results) if tool.deprecated else results


def _judge(tool: Descriptor, validator: Validator) -> Callable[[JSON], bool]:
    """Whether a value that fits the size limit is a valid result."""
    most, judge = tool.limits.output_items, validator.judge
    return judge if most is None else lambda value: count_items(value) <= most and judge(value)


def _deprecating(tool: Descriptor, results: Link) -> Link:
    checked = results_of(results)

    @never_waits
    async def deprecating(call: Call) -> Result:
        return (await checked(call)).with_meta(deprecated=tool.deprecated)

    return deprecating


def _nothing() -> None:
    """The `recheck` of a binding that has none."""


def _judged(
    call: Call,
    result: Result,
    parts: list[JSON],
    validator: Validator,
    left: int,
    *,
    recheck: Callable[[], None],
) -> Result:
    """Check a result. Large values take long, so run this in a thread then.

    Args:
        call: The call.
        result: Its result.
        parts: The content parts as JSON.
        validator: Validator of the output schema.
        left: What the value and the parts leave of the budget `SMALL`; see `remaining_budget`.
        recheck: Called if the value does not match the schema; see `BoundTool`.
    """
    tool = call.tool
    # Most results have the shared empty mapping here, which needs no check.
    if result.meta is not NOTHING or (result.error is not None and result.error.details is not NOTHING):
        result, fault = reportable(result)
        if fault is not None:
            return _unreportable(call, result, fault)
    if result.outcome is not Outcome.OK:
        return result
    value, limit = result.value, tool.limits.output_size
    fits = SMALL - left <= budget_for_bytes(limit) if left >= 0 else False
    too_much = WITHIN if fits else measure_excess([value, parts], DEPTH + 1, limit)
    if too_much is None:  # not plain JSON, such as subclasses of dict and list
        result = _plain(call, result, parts, validator)
        if result.outcome is not Outcome.OK:
            return result
        value = result.value
        too_much = measure_excess([value, parts], DEPTH + 1, limit)
    if too_much is not None and too_much is not WITHIN:
        return _too_large(call, result, too_much)
    if tool.limits.output_items is not None and count_items(value, parts) > tool.limits.output_items:
        return _too_many_items(call, result, count_items(value, parts), tool.limits.output_items)
    if validator.judge(value):
        return result
    recheck()
    seen = _seen(call)
    report = validator.explain(value)
    report = report._replace(faults=hide_secrets(seen, report.faults, value))
    return _with_raw_value(_JUDGEMENTS[tool.on_invalid_result](tool, result, report), result, seen)


def _seen(call: Call) -> Redactor:
    # A tool may echo secrets of its arguments anywhere in its answer.
    return Redactor(call.arguments, call.tool.input_schema)


def _plain(call: Call, result: Result, parts: list[JSON], validator: Validator) -> Result:
    """Convert the value to plain objects and lists; `invalid_result` if the value or a part is not JSON."""
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


def _too_large(call: Call, result: Result, too_much: ExcessSize) -> Result:
    tool, most = call.tool, call.tool.limits.output_size
    limit = limit_phrase(tool, "output_size", format_size(most))
    refused = Result.failure(
        Outcome.LIMIT_EXCEEDED,
        f"the result of `{tool.name}` is too large: {too_much.text}, and {limit}; ask for less",
        code="result_too_large",
        details=limit_details(tool, "output_size", most, too_much.measured) | _acted(tool),
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _too_many_items(call: Call, result: Result, items: int, most: int) -> Result:
    tool = call.tool
    limit = limit_phrase(tool, "output_items", f"{most:,}")
    refused = Result.failure(
        Outcome.LIMIT_EXCEEDED,
        f"the result of `{tool.name}` has too many items: {items:,}, and {limit}; ask for less",
        code="too_many_items",
        details=limit_details(tool, "output_items", most, items) | _acted(tool),
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _acted(tool: Descriptor) -> dict[str, JSON]:
    return {"may_have_acted": True} if may_have_acted(tool) else {}


def count_items(value: JSON, parts: Sequence[JSON] = ()) -> int:
    """The number of items of a result: of its list, of the longest list in its object, or of its content parts."""
    lists: list[Any] = [value, *(value.values() if isinstance(value, dict) else ())]
    return max(len(parts), *(len(each) for each in lists if isinstance(each, list)), 0)


def _unreportable(call: Call, result: Result, fault: Violation) -> Result:
    """Drop `meta` and `details` that are not JSON, and keep the outcome of a failed call in the message."""
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
    refused = Result.failure(
        Outcome.INVALID_RESULT,
        f"the result of `{tool.name}` {verdict}:\n{lines}",
        details={"violations": _pointers(report.faults[:MOST]), **report.counts()},
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _lines(report: ViolationReport) -> list[str]:
    return [*(fault.for_model() for fault in report.faults[:MOST]), *report.unshown()]


def _with_raw_value(judged: Result, result: Result, seen: Redactor) -> Result:
    # For the person who repairs the tool. `raw_value` is not shown to the model.
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
