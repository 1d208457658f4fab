"""`guard`: top to bottom, the first condition that is true answers its error, and nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolcrib.errors import ExpressionError, Problem
from toolcrib.executors.mock.places import Names
from toolcrib.failing import Failing, compile_error
from toolcrib.model import Result
from toolcrib.rendering.forms import compile_test, read_loop
from toolcrib.rendering.loops import Loop
from toolcrib.rendering.values import Run, Scope


class Guard(NamedTuple):
    """A compiled guard.

    Attributes:
        pointer: Where it stands.
        test: Whether its error is answered.
        failing: That error.
        loop: The elements for each of which the test is asked; None for once.
        names: What it reads of the scope.
        always: Whether the test reads nothing and is true.
    """

    pointer: str
    test: Run
    failing: Failing
    loop: Loop | None
    names: frozenset[str]
    always: bool

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
    for index, guard in enumerate(guards[:-1]):
        if guard.always:
            message = f"no call gets past guard {index + 1}, whose `if` is always true"
            hint = "change its condition, or leave out what follows"
            place = guards[index + 1].pointer
            problems.append(Problem(code="unreachable_guard", message=message, pointer=place, hint=hint))
            break
    return guards


def _guard(entry: dict[str, Any], pointer: str, names: Names, problems: list[Problem]) -> Guard:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, names, problems, pointer)
    inner: Names = names if read is None else read.inner
    found = len(problems)
    test, used = compile_test(entry["if"], inner, problems, f"{pointer}/if")
    failing = compile_error(entry["error"], f"{pointer}/error", inner, problems)
    always = read is None and not used and len(problems) == found and bool(test({}))
    used |= failing.names
    if read is not None:
        read.check_used(used, problems)
        used = read.outside(used)
    return Guard(pointer, test, failing, None if read is None else read.loop, used, always)
