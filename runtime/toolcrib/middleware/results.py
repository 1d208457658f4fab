"""Layer `results`: judges what the executor answered against the output schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from toolcrib.middleware.masking import DEPTH, as_reported, masked, without
from toolcrib.model import JSON, NOTHING, Call, Descriptor, Outcome, Result, Schema
from toolcrib.protocols import CallNext, Middleware
from toolcrib.secrets import SeenSecrets
from toolcrib.subschemas import once_for_each
from toolcrib.validation import SUBCLASS, Fault, Validator, json_fault, unshared

_NOT_JSON = "can't be passed on as JSON"


class Bench(NamedTuple):
    """What judges every answer of a tool; its schema is compiled. Without one any JSON value is good.

    Attributes:
        fits: Whether the schema accepts a JSON value, and nothing is to be said beside it.
        judged: What becomes of a result.
    """

    fits: Callable[[JSON], bool]
    judged: Callable[[Call, Result], Result]


@once_for_each
def _validator(schema: Schema | None) -> Validator:
    """The judge of a schema; a tool that is mocked in many scenarios keeps its schema."""
    return Validator(True if schema is None else schema)


def bench(tool: Descriptor) -> Bench:
    """The bench of a tool."""
    validator = _validator(tool.output_schema)
    judge = validator.judge

    def judged(call: Call, result: Result) -> Result:
        # Most calls have the shared empty mapping, which needs no look.
        if result.meta is not NOTHING or (result.error is not None and result.error.details is not NOTHING):
            result, fault = as_reported(result)
            if fault is not None:
                return _unreportable(call, result, fault)
        if result.outcome is not Outcome.OK:
            return result
        fault = json_fault(result.value, DEPTH)
        if fault is not None and fault.keyword == SUBCLASS:
            result, fault = result._replace(value=unshared(result.value, DEPTH)), None
        if fault is not None:
            faults = without(_seen(call), [masked(fault, validator)], result.value)
            return _refused(tool, result._replace(value=None), faults, _NOT_JSON)
        refused = _with_alien_part(call, result) if result.content else None
        if refused is not None:
            return refused
        if judge(result.value):
            return result
        seen = _seen(call)
        faults = without(seen, validator.faults(result.value), result.value)
        return _with_raw_value(_JUDGEMENTS[tool.on_invalid_result](tool, result, faults), result, seen)

    if not tool.deprecated:
        return Bench(judge, judged)
    return Bench(
        lambda _value: False,
        lambda call, result: judged(call, result).with_meta(deprecated=tool.deprecated),
    )


def layer(tool: Descriptor) -> Middleware:
    """The layer of a tool. Where its descriptor calls it deprecated, `meta.deprecated` of every result does."""
    judged = bench(tool).judged

    async def results(call: Call, call_next: CallNext) -> Result:
        return judged(call, await call_next(call))

    return results


def _seen(call: Call) -> SeenSecrets:
    """The secrets among the arguments: a tool may have put them anywhere."""
    return SeenSecrets(call.arguments, call.tool.input_schema)


def _with_alien_part(call: Call, result: Result) -> Result | None:
    """The result that is refused for a part that is no JSON; None where there is none."""
    parts: JSON = {"content": [part.as_json() for part in result.content]}
    fault = json_fault(parts)
    if fault is None:
        return None
    seen = _seen(call)
    refused = _refused(call.tool, result, without(seen, [fault], parts), _NOT_JSON)
    return _with_raw_value(refused, result, seen)


def _unreportable(call: Call, result: Result, fault: Fault) -> Result:
    """The result goes on without what is no JSON; how a failed call ended is kept in the message."""
    sound = result._replace(meta=NOTHING, value=None, content=())
    faults = without(_seen(call), [fault], None)
    ended = "" if result.error is None else f"; the call ended `{result.outcome}`"
    return _refused(call.tool, sound, faults, f"{_NOT_JSON}{ended}")


def _refused(
    tool: Descriptor,
    result: Result,
    faults: Sequence[Fault],
    verdict: str = "does not fit its output schema",
) -> Result:
    lines = "\n".join(fault.for_model() for fault in faults)
    refused = Result.failed(
        Outcome.INVALID_RESULT,
        f"the answer of `{tool.name}` {verdict}:\n{lines}",
        details={"violations": _pointers(faults)},
    )
    return refused._replace(meta=result.meta, usage=result.usage)


def _with_raw_value(judged: Result, result: Result, seen: SeenSecrets) -> Result:
    """The raw value is kept for the one who repairs the tool, not for the model."""
    return judged._replace(raw_value=seen.hide_in(result.value))


def _warned(_tool: Descriptor, result: Result, faults: Sequence[Fault]) -> Result:
    warnings: list[JSON] = [fault.for_model() for fault in faults]
    return result.with_meta(warnings=warnings)


def _passed(_tool: Descriptor, result: Result, _faults: Sequence[Fault]) -> Result:
    return result


_JUDGEMENTS: dict[str, Callable[[Descriptor, Result, Sequence[Fault]], Result]] = {
    "error": _refused,
    "warn": _warned,
    "pass": _passed,
}


def _pointers(faults: Sequence[Fault]) -> list[JSON]:
    return [
        {"pointer": fault.pointer, "keyword": fault.keyword, "expected": fault.expected} for fault in faults
    ]
