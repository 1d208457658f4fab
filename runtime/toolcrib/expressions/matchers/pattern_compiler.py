"""From patterns to nodes: plain values here, operators by their table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import compile_value, is_expression
from toolcrib.expressions.matchers.nodes import (
    Node,
    Operand,
    Scope,
    accepts_nothing,
    all_of,
    equal,
    items,
    shown,
    step,
    subset,
)

Build: TypeAlias = "Callable[[Compiler, JSON, str], Node]"
"""Compiles the operand of one operator, which stands at a pointer."""

_OTHER_WORDS = {
    "$and": "$all",
    "$any_of": "$any",
    "$match": "$regex",
    "$nin": "$not",
    "$or": "$any",
    "$pattern": "$regex",
    "$present": "$exists",
    "$size": "$len",
}


class Compiler:
    """Compiles the patterns of one document place and collects what is wrong with them."""

    def __init__(
        self, problems: list[Problem], names: Collection[str], operators: Mapping[str, Build]
    ) -> None:
        self.problems = problems
        self.used: set[str] = set()
        self._names = names
        self._operators = operators

    def node(self, pattern: JSON, pointer: str) -> Node:
        """Compile a pattern of any form."""
        if isinstance(pattern, list):
            return items([self.node(item, step(pointer, index)) for index, item in enumerate(pattern)])
        if not isinstance(pattern, dict):
            return equal(self.operand(pattern, pointer))
        operators = [key for key in pattern if key.startswith("$")]
        if operators and len(operators) < len(pattern):
            plain = next(key for key in pattern if not key.startswith("$"))
            return self.refuse(
                "mixed_matcher",
                f"an object holds the operator `{operators[0]}` beside the plain key `{plain}`",
                pointer,
                "put the operators in an object of their own; a key that really begins with `$` goes under `$exact`",
            )
        if operators:
            return all_of(self._operator(key, pattern[key], pointer) for key in operators)
        return subset({key: self.node(item, step(pointer, key)) for key, item in pattern.items()})

    def _operator(self, name: str, operand: JSON, pointer: str) -> Node:
        build = self._operators.get(name)
        if build is not None:
            return build(self, operand, step(pointer, name))
        other = _OTHER_WORDS.get(name)
        hint = f"write `{other}`" if other else did_you_mean(name, self._operators)
        return self.refuse(
            "unknown_operator",
            f"`{name}` is no operator",
            step(pointer, name),
            hint or f"the operators are {', '.join(f'`{known}`' for known in self._operators)}",
        )

    def operand(self, value: JSON, pointer: str) -> Operand:
        """A value to compare with; its texts may hold expressions."""
        if not self._names:
            return Operand(lambda _scope: value, constant=True)
        rendering = compile_value(value, self._names, self.problems, pointer)
        self.used |= rendering.names
        if rendering.constant:
            constant = rendering.render({})
            return Operand(lambda _scope: constant, constant=True)
        return Operand(rendering.render, constant=False)

    def typed_operand(
        self, value: JSON, pointer: str, fits: Callable[[JSON], bool], wanted: str, hint: str = ""
    ) -> Operand | None:
        """An operand of a certain kind, checked now or, where it is computed, at each match.

        Args:
            value: As the document has it.
            pointer: Where it stands.
            fits: Whether a value is of the kind.
            wanted: The kind in words.
            hint: The way out.

        Returns:
            None where the value does not fit; the problem is noted.
        """
        operand = self.operand(value, pointer)
        if not operand.constant:
            return Operand(_checked(operand, fits, wanted, pointer), constant=False)
        if fits(operand.read({})):
            return operand
        self.refuse_operand(value, pointer, wanted, hint)
        return None

    def literal(
        self, value: JSON, pointer: str, fits: Callable[[JSON], bool], wanted: str, hint: str = ""
    ) -> bool:
        """Whether an operand that can't be computed is of its kind; if not, the problem is noted."""
        if fits(value) and not (self._names and isinstance(value, str) and is_expression(value)):
            return True
        self.refuse_operand(value, pointer, wanted, hint)
        return False

    def refuse_operand(self, value: JSON, pointer: str, wanted: str, hint: str = "") -> Node:
        """Note an operand of the wrong kind."""
        name = pointer.rpartition("/")[2]
        return self.refuse("wrong_operand", f"`{name}` takes {wanted}, not {shown(value)}", pointer, hint)

    def refuse(self, code: str, message: str, pointer: str, hint: str = "") -> Node:
        """Note a problem; the node in its place accepts nothing."""
        self.problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))
        return accepts_nothing()


def _checked(
    operand: Operand, fits: Callable[[JSON], bool], wanted: str, pointer: str
) -> Callable[[Scope], JSON]:
    name = pointer.rpartition("/")[2]

    def read(scope: Scope) -> JSON:
        value = operand.read(scope)
        if fits(value):
            return value
        raise ExpressionError(
            f"`{name}` takes {wanted}, but its expression gave {shown(value)}",
            code="wrong_operand",
            pointer=pointer,
        )

    return read
