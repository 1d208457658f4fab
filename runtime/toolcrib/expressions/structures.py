"""Structures: JSON values whose texts may hold expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions.codegen import Keep, fresh
from toolcrib.expressions.compiler import Keys, Part, joined, literal
from toolcrib.expressions.delimiters import Body, split
from toolcrib.expressions.expression import compile_node, too_deep
from toolcrib.expressions.values import Run, Scope, shortened

_MOST_NESTING = 128
_OPENERS = ("{{", "{%", "{#")
_VARIABLE = re.compile(r"(?<!\$)\$\{")


class Rendering(NamedTuple):
    """A compiled structure.

    Attributes:
        constant: Whether it reads nothing from the scope.
        names: The root names that it reads from the scope.
        run: Its closure.
        part: Its compiled parts, where it was written in a document.
    """

    constant: bool
    names: frozenset[str]
    run: Run
    part: Part | None = None

    @property
    def keys(self) -> Keys | None:
        """The keys of its value, and of what is in it, where these are known."""
        return None if self.part is None else self.part.keys

    def render(self, scope: Scope) -> JSON:
        """The structure with its expressions worked out.

        A whole text `{{ ... }}` keeps the type of its value. Objects and lists that hold a computed
        value are new each time; constant parts are the same objects each time, and what was read
        from the scope is handed on: who changes a result copies it first.

        Raises:
            ExpressionError: With the pointer of the text that failed.
        """
        return self.run(scope)

    def fresh(self, root: str, keep: Keep, depth: int, *, alone: bool = False) -> Callable[[Any], JSON]:
        """A function that renders values which nobody shares; see `codegen.fresh`."""
        return fresh(self.part or Part(self.run), root, keep, depth, alone=alone)


def compile_value(
    value: JSON,
    names: Collection[str],
    problems: list[Problem],
    pointer: str = "",
    *,
    forms: bool = False,
) -> Rendering:
    """Compile a structure. Every text is read: `{{ ... }}` is an expression, `$${` a literal `${`.

    Args:
        value: The structure, at most 128 levels deep.
        names: The root names that its expressions may read.
        problems: Receives every fault; a text with a fault renders as it was written.
        pointer: Where the structure stands; put before the pointers of problems and errors.
        forms: Whether mappings with `for_each` are loops and no data; see `loops`.
    """
    reader = _StructureReader(names, problems, forms=forms)
    part = reader.read(value, pointer, 0)
    run = literal(part.value).run if part.constant else part.run
    return Rendering(part.constant, frozenset(reader.used), run, part)


class _StructureReader:
    def __init__(self, names: Collection[str], problems: list[Problem], *, forms: bool) -> None:
        self.used: set[str] = set()
        self._names = names
        self._problems = problems
        self._forms = forms

    def read(self, value: JSON, pointer: str, depth: int) -> Part:
        if depth > _MOST_NESTING:
            message = f"the structure is nested deeper than {_MOST_NESTING} levels"
            self._problems.append(Problem(code="expression_too_large", message=message, pointer=pointer))
            return literal(value)
        if isinstance(value, str):
            if "{" not in value:
                return literal(value)
            return self._text(self._without_variables(value, pointer), pointer)
        if isinstance(value, list):
            parts = [self.read(item, f"{pointer}/{place}", depth + 1) for place, item in enumerate(value)]
            return _container([part.value for part in parts], enumerate(parts), parts)
        if isinstance(value, dict):
            if self._forms and "for_each" in value:
                form = self._form(value, pointer)
                if form is not None:
                    return form
            for key in value:
                self._check_key(key, pointer)
            inner = {key: self.read(item, _below(pointer, key), depth + 1) for key, item in value.items()}
            return _container({key: part.value for key, part in inner.items()}, inner.items(), inner)
        return literal(value)

    def _form(self, value: dict[str, JSON], pointer: str) -> Part | None:
        from toolcrib.expressions.loops import is_form  # noqa: PLC0415 -- most structures have none

        if not is_form(value):
            return None
        from toolcrib.expressions.loop_syntax import read_form  # noqa: PLC0415 -- as above

        part, used = read_form(value, self._names, self._problems, pointer)
        self.used |= used
        return part

    def _without_variables(self, text: str, pointer: str) -> str:
        """The text with `$${` as a literal; `${` alone looks a value up elsewhere, and never here."""
        if _VARIABLE.search(text) is not None:
            self._problems.append(
                Problem(
                    code="variable_not_allowed",
                    message=f"`${{` looks nothing up here: `{shortened(text)}`",
                    pointer=pointer,
                    hint="an expression is written `{{ args.name }}`; for the characters themselves write `$${`",
                )
            )
        return text.replace("$${", "${")

    def _check_key(self, key: str, pointer: str) -> None:
        if any(opener in key for opener in _OPENERS):
            self._problems.append(
                Problem(
                    code="expression_not_allowed",
                    message=f"a key is literal text and can't be computed: `{shortened(key)}`",
                    pointer=_below(pointer, key),
                    hint="an object with computed keys is written as `{{ {args.name: 1} }}`",
                )
            )

    def _text(self, text: str, pointer: str) -> Part:
        if not any(opener in text for opener in _OPENERS):
            return literal(text)
        try:
            pieces = split(text)
        except ExpressionError as error:
            self._problems.append(error.problem(pointer))
            return literal(text)
        found = len(self._problems)
        parts = [self._piece(piece, pointer, number) for number, piece in enumerate(pieces)]
        if len(self._problems) > found:
            return literal(text)
        try:
            part = parts[0] if len(parts) == 1 else joined(parts)
        except ExpressionError as error:
            self._problems.append(error.problem(pointer))
            return literal(text)
        return part if part.constant else part._replace(run=placed(part.run, pointer), bare=part.run)

    def _piece(self, piece: str | Body, pointer: str, number: int) -> Part:
        if isinstance(piece, str):
            return literal(piece)
        try:
            part, used = compile_node(piece.source, self._names, f"{pointer}:{number}")
        except ExpressionError as error:
            self._problems.append(error.problem(pointer))
            return literal(piece.source)
        self.used |= used
        return part


def _below(pointer: str, key: str) -> str:
    return f"{pointer}/{pointer_step(key)}"


def placed(run: Run, pointer: str) -> Run:
    """The same, with errors that say where. An error that has a place comes from a lazy scope and keeps it."""

    def leaf(scope: Scope) -> JSON:
        try:
            return run(scope)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(pointer)) from None
        except RecursionError:
            raise too_deep().under(pointer) from None

    return leaf


def _container(values: Any, parts: Iterable[tuple[Any, Part]], members: dict[str, Part] | list[Part]) -> Part:
    """A list or object of parts by their place; `values` is its copy of what is constant."""
    computed = [(place, part.run) for place, part in parts if not part.constant]
    if not computed:
        return literal(values)

    def run(scope: Scope) -> JSON:
        result: Any = values.copy()
        for place, compute in computed:
            result[place] = compute(scope)
        rendered: JSON = result
        return rendered

    return Part(run, members=members)
