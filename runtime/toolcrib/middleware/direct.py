"""The layers `arguments` and `results` around a tool that never waits, as one function: nothing in it is awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from toolcrib.middleware import arguments, results
from toolcrib.model import NO_USAGE, Call, Descriptor, Outcome, Result, Sound

_OK = Outcome.OK

Direct: TypeAlias = Callable[[Call], Result]
"""What a call comes to, at once."""


def direct(tool: Descriptor, answer_now: Callable[[Call], Result | Sound]) -> Direct:
    """The layers of a tool around its answers."""
    passed, mended = arguments.door(tool)
    fits, judged = results.bench(tool)

    def answered(call: Call) -> Result:
        answer = answer_now(call)
        if type(answer) is not Sound:
            return judged(call, answer)  # type: ignore[arg-type] # mypy does not narrow by `type(...) is not`
        value, meta = answer
        result: Result = tuple.__new__(Result, (_OK, value, (), "", None, NO_USAGE, meta, None))
        return result if fits(value) else judged(call, result)

    def run(call: Call) -> Result:
        given = call.arguments
        good = passed(given)
        if good is not None:
            return answered(call if good is given else call.with_arguments(good))
        mending = mended(call)
        if isinstance(mending, Result):
            return mending
        repaired, repairs = mending
        return answered(repaired).with_meta(repairs=repairs)

    return run
