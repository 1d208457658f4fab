"""Values and functions that all mocks of a pack or project share: `let` and `define`.

A definition is compiled when an expression first reads it, so that definitions can stand in any order. One that needs
itself, directly or through others, is refused with the cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, NOTHING, SharedDefinitions
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions.compiler import (
    SHARED,
    Definition,
    ExpressionPart,
    KnownKeys,
    hidden_definition_name,
    shared_value_name,
)
from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.loops import LoopScope, check_name
from toolcrib.expressions.structures import Rendering, compile_value
from toolcrib.expressions.values import Run, Scope

CALL_STEPS = 100
"""Elements of the step budget that a call of a function costs: functions that call functions multiply."""


MOST_LEVELS = 32
"""The number of definitions that may read each other in a chain."""


class _Shared(Definition):
    """A value or function that is compiled on first use."""

    def __init__(self, name: str, block: Any, group: _Group, *, is_value: bool) -> None:
        self.name = name
        self.is_value = is_value
        self.place = group.definitions.places.get(name, "")
        self._parameters = () if is_value else tuple(block.get("parameters", ()))
        self._block = {"value": block} if is_value else block
        self._pointer = f"/{'let' if is_value else 'define'}/{pointer_step(name)}"
        self._group = group
        self._made: Rendering | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    @property
    def keys(self) -> KnownKeys | None:
        return self.compiled().keys

    @property
    def names(self) -> frozenset[str]:
        read = self.compiled().names - {*self._parameters}
        return read | {SHARED, shared_value_name(self.name)} if self.is_value else read

    def compiled(self) -> Rendering:
        """The body.

        Raises:
            ExpressionError: It has a problem, which the pack or project reports, or it needs itself.
        """
        if self._made is None:
            self._made = self._group.compile(self, self._body)
        self._group.note_level(self.name)
        return self._made

    def _body(self) -> Rendering | None:
        """Compile the body; None if it has a problem, which is added to those of the group."""
        problems = self._group.problems
        found = len(problems)
        names: dict[str, Collection[str] | None] = dict(self._group.names)
        for index, parameter in enumerate(self._parameters):
            check_name(parameter, names, problems, f"{self._pointer}/parameters/{index}")
            names[parameter] = None
        inner = "" if self.is_value else "/value"
        made = compile_value(self._block["value"], names, problems, f"{self._pointer}{inner}", forms=True)
        problems += [
            Problem(
                code="unused_name",
                message=f"unused parameter `{name}`",
                pointer=f"{self._pointer}/parameters/{index}",
                hint="remove it or use it",
            )
            for index, name in enumerate(self._parameters)
            if name not in made.names and len(problems) == found
        ]
        return None if len(problems) > found else made

    def value(self) -> ExpressionPart:
        name, run = self.name, self._located(self.compiled().run)

        def read(scope: Scope) -> JSON:
            # Once for each call: the value may draw random numbers, and effects must not change it.
            known: Any = scope[SHARED]
            if name not in known:
                known[name] = run(scope)
            return known[name]  # type: ignore[no-any-return]

        return ExpressionPart(read, keys=self.keys)

    def call(self, parts: list[ExpressionPart]) -> ExpressionPart:
        arguments = list(zip(self._parameters, (part.run for part in parts), strict=True))
        run = self._located(self.compiled().run)

        def apply(scope: Scope) -> JSON:
            inner = LoopScope(scope, NOTHING, keeps=True)
            inner.budget.visit(CALL_STEPS)
            for parameter, argument in arguments:
                inner[parameter] = argument(scope)
            return run(inner)

        return ExpressionPart(apply, keys=self.keys)

    def _located(self, run: Run) -> Run:
        """The same closure; its errors name the definition, since their pointers belong to another document."""
        what = f"in `{self.name}` ({self.place})" if self.place else f"in `{self.name}`"

        def located(scope: Scope) -> JSON:
            try:
                return run(scope)
            except ExpressionError as error:
                message = f"{what}: {error.message}"
                raise ExpressionError(message, code=error.code, hint=error.hint) from None

        return located


class _Group:
    """The definitions of one pack or project."""

    def __init__(
        self,
        definitions: SharedDefinitions,
        names: Mapping[str, Collection[str] | None],
        problems: list[Problem],
    ) -> None:
        self.definitions = definitions
        self.problems = problems
        self.shared = {
            **{name: _Shared(name, block, self, is_value=True) for name, block in definitions.let.items()},
            **{
                name: _Shared(name, block, self, is_value=False)
                for name, block in definitions.define.items()
                if name not in definitions.let
            },
        }
        self.names: dict[str, Collection[str] | None] = {**names, SHARED: None}
        for name, each in self.shared.items():
            self.names[hidden_definition_name(name)] = each
            if each.is_value:
                self.names[name] = None
        self._open: list[str] = []
        self._levels: dict[str, int] = {}
        self._broken: set[str] = set()

    def compile(self, shared: _Shared, body: Any) -> Rendering:
        name = shared.name
        if name in self._open:
            cycle = " -> ".join(f"`{each}`" for each in (*self._open[self._open.index(name) :], name))
            message = f"`{name}` needs itself: {cycle}"
            hint = "a definition cannot call itself; use `for_each` to repeat something"
            raise ExpressionError(message, code="recursive_definition", hint=hint)
        if name not in self._broken:
            self._check_level(len(self._open) + 1)
            self._open.append(name)
            made: Rendering | None = body()
            self._open.pop()
            if made is not None:
                return made
            self._broken.add(name)
        where = f" ({shared.place})" if shared.place else ""
        raise ExpressionError(f"`{name}`{where} has an error of its own", code="broken_definition")

    def note_level(self, name: str) -> None:
        """Record that the definition that is being compiled reads another one.

        Raises:
            ExpressionError: The chain of definitions is too long.
        """
        if self._open:
            level = self._levels.get(name, 1) + 1
            self._check_level(level)
            self._levels[self._open[-1]] = max(self._levels.get(self._open[-1], 1), level)

    def _check_level(self, level: int) -> None:
        # A limit, because Python's stack ends a chain of a few hundred calls.
        if level > MOST_LEVELS:
            message = f"a chain of definitions that read each other has more than {MOST_LEVELS} levels"
            raise ExpressionError(message, code="expression_too_large")


def definition_names(
    definitions: SharedDefinitions, names: Mapping[str, Collection[str] | None]
) -> dict[str, Collection[str] | None]:
    """The names that the definitions of a pack or project add to those of its mocks.

    Args:
        definitions: The definitions.
        names: The names that definitions may read, with their keys if known.
    """
    group = _Group(definitions, names, [])
    return {name: group.names[name] for name in group.names if name not in names}


def check_definitions(
    definitions: SharedDefinitions, names: Mapping[str, Collection[str] | None], problems: list[Problem]
) -> None:
    """Report all problems of the definitions of a document.

    Args:
        definitions: The definitions.
        names: The names that definitions may read, with their keys if known.
        problems: Receives every problem.
    """
    group = _Group(definitions, names, problems)
    for kind, blocks in (("let", definitions.let), ("define", definitions.define)):
        for name in blocks:
            place = f"/{kind}/{pointer_step(name)}"
            taken = {**names, **dict.fromkeys(definitions.let if kind == "define" else ())}
            check_name(name, taken, problems, place)
            if name in FUNCTIONS:
                problems.append(
                    Problem(
                        code="name_taken",
                        message=f"`{name}` is a built-in function",
                        pointer=place,
                        hint="choose another name",
                    )
                )
    for shared in group.shared.values():
        try:
            shared.compiled()
        except ExpressionError:
            continue  # its problems were added when it was compiled


def shared_values(names: Mapping[str, Collection[str] | None], used: Collection[str]) -> list[Run]:
    """The closures of the shared values that a reply reads, given the hidden names among the names that it uses."""
    return [
        definition.value().run
        for definition in names.values()
        if isinstance(definition, Definition)
        and definition.is_value
        and shared_value_name(definition.name) in used
    ]
