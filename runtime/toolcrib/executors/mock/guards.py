"""`guard`: top to bottom, the first condition that is true answers its error, and nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import Result
from toolcrib.executors.mock.store_paths import Names
from toolcrib.expressions.functions import COUNTS, DRAWS
from toolcrib.expressions.loops import Loop, compile_test, read_loop
from toolcrib.expressions.values import Run, Scope
from toolcrib.simulation.error_reply import ErrorTemplate, compile_error


class Guard(NamedTuple):
    """A compiled guard.

    Attributes:
        pointer: Where it stands.
        test: Whether its error is answered.
        failing: That error.
        loop: The elements for each of which the test is asked; None for once.
        names: What it reads of the scope.
        settled: What the test always says, where it reads nothing; None where that depends on the call.
        asks: What the test reads.
    """

    pointer: str
    test: Run
    failing: ErrorTemplate
    loop: Loop | None
    names: frozenset[str]
    settled: bool | None
    asks: frozenset[str]

    def judge(self, scope: Scope) -> Result | None:
        """Its error, or None where the call may go on.

        Raises:
            ExpressionError: The mock is wrong.
        """
        if self.loop is None:
            return self.failing.answer(scope) if self.test(scope) else None
        try:
            for turn in self.loop.turns(scope):
                if self.test(turn):
                    return self.failing.answer(turn)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(self.pointer)) from None
        return None


def compile_guards(
    block: Sequence[dict[str, Any]], pointer: str, names: Names, problems: list[Problem]
) -> list[Guard]:
    """Compile a `guard` list; faults are added to `problems`."""
    guards = [_guard(entry, f"{pointer}/{index}", names, problems) for index, entry in enumerate(block)]
    problems += [
        constant_condition("it never answers", f"{guard.pointer}/if")
        for guard in guards
        if guard.settled is False
    ]
    for index, guard in enumerate(guards[:-1]):
        if guard.settled:
            message = f"no call gets past guard {index + 1}, whose `if` is always true"
            hint = "change its condition, or leave out what follows"
            place = guards[index + 1].pointer
            problems.append(Problem(code="unreachable_guard", message=message, pointer=place, hint=hint))
            break
    problems += _asked_before(block, guards)
    return guards


def _asked_before(block: Sequence[dict[str, Any]], guards: Sequence[Guard]) -> Iterator[Problem]:
    """The guards that never answer, because one before them has the same condition."""
    first: dict[str, int] = {}
    for index, (entry, guard) in enumerate(zip(block, guards, strict=True)):
        if "for_each" in entry or guard.settled is not None or DRAWS in guard.asks or COUNTS in guard.asks:
            continue
        before = first.setdefault(entry["if"].strip(), index)
        if before != index:
            message = f"guard {before + 1} has the same `if`, so this one never answers"
            hint = "leave one of them out, or change its condition"
            yield Problem(code="unreachable_guard", message=message, pointer=guard.pointer, hint=hint)


def settled_by(test: Run, used: Collection[str], problems: Sequence[Problem], found: int) -> bool | None:
    """What a test always says, where it reads nothing and has no fault; None where that depends on the call.

    Args:
        test: The test.
        used: What it reads.
        problems: All faults.
        found: How many there were before it was compiled.
    """
    return None if used or len(problems) > found else bool(test({}))


def constant_condition(outcome: str, pointer: str) -> Problem:
    """The fault of an `if` that says the same for every call."""
    message = f"the `if` reads nothing, so it says the same for every call: {outcome}"
    return Problem(
        code="constant_condition",
        message=message,
        pointer=pointer,
        hint="change the condition, or leave it out",
    )


def _guard(entry: dict[str, Any], pointer: str, names: Names, problems: list[Problem]) -> Guard:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, names, problems, pointer)
    inner: Names = names if read is None else read.inner
    found = len(problems)
    test, used = compile_test(entry["if"], inner, problems, f"{pointer}/if")
    settled = settled_by(test, used, problems, found)
    failing = compile_error(entry["error"], f"{pointer}/error", inner, problems)
    asked, used = used, used | failing.names
    if read is not None:
        read.check_used(used, problems)
        used = read.outside(used)
    if read is not None and settled:
        settled = None  # there may be nothing to go through
    return Guard(pointer, test, failing, None if read is None else read.loop, used, settled, asked)
