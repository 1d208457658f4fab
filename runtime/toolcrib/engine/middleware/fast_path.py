"""The layers `arguments` and `results` around a tool that never waits, as one function: nothing in it is awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from toolcrib.core.model import JSON, Call, Descriptor, Result, TrustedAnswer
from toolcrib.core.protocols import PromptTool
from toolcrib.engine.middleware import arguments, results
from toolcrib.schema.validation.json_values import is_large, weigh

Direct: TypeAlias = Callable[[Call], Result | TrustedAnswer | None]
"""What a call comes to, at once. `TrustedAnswer` is an answer that its tool vouches for and that fits its schema.

None of a call whose arguments are large: judging them takes too long to be done at once.
"""

Plain: TypeAlias = Callable[[Any], Any]
"""The value of an `ok` call with these arguments and nothing to tell beside it; `MISSED` for every other call."""

MISSED: Any = object()
"""What `Plain` says of a call that has to be made to see what comes of it."""


def direct(tool: Descriptor, bound: PromptTool) -> tuple[Direct | None, Plain | None]:
    """The layers of a tool around its answers, and the shortest way through them; None where it can't be had."""
    answer_now = bound.answer_now
    if answer_now is None:
        return None, None
    door, bench = arguments.door(tool), results.bench(tool)
    way = _direct(door, bench, answer_now)
    return way, None if bound.value_of is None or tool.deprecated else _plain(door, bench, bound.value_of)


def _direct(
    door: arguments.Door, bench: results.Bench, answer_now: Callable[[Call], Result | TrustedAnswer]
) -> Direct:
    passed, mended = door.passed, door.mended
    fits, judged = bench

    def answered(call: Call) -> Result | TrustedAnswer:
        answer = answer_now(call)
        if type(answer) is TrustedAnswer and fits(answer[0]):
            return answer
        return judged(call, as_result(answer))

    def run(call: Call) -> Result | TrustedAnswer | None:
        given = call.arguments
        good = passed(given)
        if good is not None:
            return answered(call if good is given else call.with_arguments(good))
        if is_large(given, arguments.DEPTH):
            return None
        mending = mended(call)
        if isinstance(mending, Result):
            return mending
        prepared, repairs = mending
        result = answered(prepared)
        return as_result(result).with_meta(repairs=repairs) if repairs else result

    return run


def _plain(door: arguments.Door, bench: results.Bench, value_of: Callable[[dict[str, JSON]], JSON]) -> Plain:
    fill, judge, room, fits, depth = door.fill, door.judge, door.room, bench.fits, arguments.DEPTH

    def run(given: Any) -> Any:
        try:
            # `Door.passed` in place: a call more would be felt here.
            if type(given) is dict and weigh(given, depth, room) >= 0:
                good: Any = given if fill is None else fill(given)
                if judge(good):
                    value = value_of(good)
                    if fits(value):
                        return value
        except Exception:  # noqa: BLE001, S110 -- when the call is made it happens again, and is told as what it is
            pass
        return MISSED

    return run


def as_result(answer: Result | TrustedAnswer) -> Result:
    """An answer as the layers pass it on."""
    return answer if isinstance(answer, Result) else Result.ok(answer.value, meta=answer.meta)
