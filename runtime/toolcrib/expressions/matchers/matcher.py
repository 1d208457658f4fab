"""The compiled pattern, as everybody else sees it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING
from toolcrib.expressions.matchers.nodes import Difference, Node, Scope
from toolcrib.expressions.matchers.pattern_compiler import Compiler
from toolcrib.expressions.matchers.pattern_operators import OPERATORS


class Matcher:
    """A compiled pattern.

    Attributes:
        constant: Whether no expression stands in it.
        names: The root names that its expressions read from the scope.
    """

    __slots__ = ("_expected", "_node", "_test", "constant", "names")

    def __init__(self, expected: JSON, node: Node, names: frozenset[str]) -> None:
        self._expected = expected
        self._node = node
        self._test = node.test
        self.constant = node.constant
        self.names = names

    def matches(self, value: JSON, scope: Scope = NOTHING) -> bool:
        """Whether the value is one that the pattern accepts.

        Raises:
            ExpressionError: An expression of the pattern failed, or gave what its operator can't use.
        """
        return self._test(value, scope)

    def differences(self, value: JSON, scope: Scope = NOTHING, most: int = 20) -> list[Difference]:
        """Where and how the value is not accepted, at most `most`; empty exactly if it matches.

        Raises:
            ExpressionError: As `matches` does.
        """
        return list(islice(self._node.explain(value, scope, ""), most))

    def expected(self) -> JSON:
        """The pattern as it was written."""
        return self._expected


def compile_matcher(
    pattern: JSON, problems: list[Problem], pointer: str = "", *, names: Collection[str] = ()
) -> Matcher:
    """Compile a pattern; everything that is wrong with it is appended to `problems`.

    Args:
        pattern: As the document has it.
        problems: Receives the faults; where there are any, the matcher accepts nothing at their places.
        pointer: Where the pattern stands in the document.
        names: Root names that expressions may read; without names, `{{` is ordinary text.
    """
    compiler = Compiler(problems, names, OPERATORS)
    node = compiler.node(pattern, pointer)
    return Matcher(pattern, node, frozenset(compiler.used))
