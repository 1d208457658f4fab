"""`effects`: what a call changes in the store, in order; each sees what those before it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.executors.mock.compile_context import Ground
from toolcrib.executors.mock.effect_kinds import CHANGES, Act, Change
from toolcrib.executors.mock.guards import constant_condition, settled_by
from toolcrib.expressions.loops import compile_test, read_loop
from toolcrib.expressions.values import MOST_ITEMS, Run, Scope

if TYPE_CHECKING:
    from toolcrib.executors.mock.body import BodyScope

MOST_EFFECTS: Final = MOST_ITEMS
"""Changes of one call."""


class Effect(NamedTuple):
    """A compiled effect.

    Attributes:
        act: Does it.
        names: What it reads of the scope.
    """

    act: Act
    names: frozenset[str]


def compile_effects(block: Sequence[dict[str, Any]], pointer: str, ground: Ground) -> Effect:
    """Compile a list of effects; faults are added to the problems of the ground."""
    effects = [_effect(entry, f"{pointer}/{index}", ground) for index, entry in enumerate(block)]
    acts = [effect.act for effect in effects]
    names = frozenset[str]().union(*(effect.names for effect in effects))
    if len(acts) == 1:
        return Effect(acts[0], names)

    def run(scope: Scope, root: BodyScope) -> None:
        for act in acts:
            act(scope, root)

    return Effect(run, names)


def _effect(entry: dict[str, Any], pointer: str, ground: Ground) -> Effect:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, ground.names, ground.problems, pointer)
        ground = ground._replace(names=read.inner)
    act, used = _change(entry, pointer, ground)
    if "if" in entry:
        found = len(ground.problems)
        test, asked = compile_test(entry["if"], ground.names, ground.problems, f"{pointer}/if")
        settled = settled_by(test, asked, ground.problems, found)
        if settled is not None:
            outcome = "the effect happens always" if settled else "the effect never happens"
            ground.problems.append(constant_condition(outcome, f"{pointer}/if"))
        act, used = _conditional(act, test), used | asked
    if read is None:
        return Effect(act, used)
    read.check_used(used, ground.problems)
    loop, once = read.loop, act

    def each(scope: Scope, root: BodyScope) -> None:
        for turn in loop.turns(scope, keeps=False):
            once(turn, root)

    return Effect(_placed(each, pointer), read.outside(used))


def _change(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
    if "do" in entry:
        return compile_effects(entry["do"], f"{pointer}/do", ground)
    kind = next(name for name in CHANGES if name in entry)
    act, used = CHANGES[kind](entry, f"{pointer}/{kind}", ground)
    return _counted(act, f"{pointer}/{kind}"), used


def _counted(act: Act, pointer: str) -> Act:
    """The same, counted, with errors that say where, and with rows shown anew after it."""

    def run(scope: Scope, root: BodyScope) -> None:
        root.effects += 1
        if root.effects > MOST_EFFECTS:
            raise ExpressionError(f"one call makes more than {MOST_EFFECTS:,} changes", pointer=pointer)
        act(scope, root)
        root.renew()

    return _placed(run, pointer)


def _placed(act: Act, pointer: str) -> Act:
    def run(scope: Scope, root: BodyScope) -> None:
        try:
            act(scope, root)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(pointer)) from None

    return run


def _conditional(act: Act, test: Run) -> Act:
    def run(scope: Scope, root: BodyScope) -> None:
        if test(scope):
            act(scope, root)

    return run
