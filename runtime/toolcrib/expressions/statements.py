"""Compile the statements of templates from Jinja2's syntax tree to closures."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

from jinja2 import nodes

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.expression import check_escapes
from toolcrib.expressions.parser import ENVIRONMENT, parsed, reader_for
from toolcrib.expressions.templates import OutputBuffer, Piece
from toolcrib.expressions.values import Run, Scope, as_text, compact, kind

MOST_LOOPS = 2
"""Maximum nesting of `for` loops."""


def read_statements(source: str, names: Collection[str]) -> tuple[frozenset[str], tuple[Piece, ...]]:
    """Compile a template; see `compile_text`.

    Returns:
        The names that it reads, and the closures that write its pieces.
    """
    # The environment keeps the trailing newline, so that only one is dropped here, as Jinja2 does by default.
    body = source.removesuffix("\n").removesuffix("\r") if source.endswith("\n") else source
    tree = parsed(lambda: _parse(body), source, template=True)
    reader = _TextReader(names, as_json=_begins_as_json(tree))
    pieces = reader.body(tree.body)
    return frozenset(reader.expressions.used), tuple(pieces)


def _parse(source: str) -> nodes.Template:
    for line, token, literal in ENVIRONMENT.lex(source):
        if token == "string":  # noqa: S105 -- a token type, not a password
            with _Line(line):
                check_escapes(literal)
    return ENVIRONMENT.parse(source)


def _begins_as_json(tree: nodes.Template) -> bool:
    """Whether the first literal text of a template, after any statements, begins an object or array."""
    # If it does, values inside quotes are escaped: a city named `", "admin": true, "x": "` must stay a
    # string.
    for output in tree.find_all(nodes.Output):
        for part in output.nodes:
            if not isinstance(part, nodes.TemplateData):
                return False
            text = part.data.lstrip()
            if text:
                return text[0] in "{["
    return False


def _ends_in_quotes(text: str, *, within: bool) -> bool:
    """Whether a piece of JSON text ends inside a string; `within` tells whether it begins inside one."""
    escaped = False
    for mark in text:
        if escaped:
            escaped = False
        elif mark == "\\" and within:
            escaped = True
        elif mark == '"':
            within = not within
    return within


class _LineError(ExpressionError):
    """An error whose message already begins with its line."""


class _Line(AbstractContextManager[None]):
    """Adds the line of the template to the message of an error."""

    # An error with a pointer comes from another document through a lazy scope, so the line would be wrong.

    __slots__ = ("_line",)

    def __init__(self, line: int) -> None:
        self._line = line

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ExpressionError) and not isinstance(error, _LineError) and not error.pointer:
            told = f"line {self._line}: {error.message}"
            raise _LineError(told, code=error.code, hint=error.hint) from None


_REFUSED: Mapping[type[nodes.Node], str] = {
    nodes.Assign: "set",
    nodes.AssignBlock: "set",
    nodes.Block: "block",
    nodes.CallBlock: "call",
    nodes.Extends: "extends",
    nodes.FilterBlock: "filter",
    nodes.FromImport: "import",
    nodes.Import: "import",
    nodes.Include: "include",
    nodes.Macro: "macro",
    nodes.With: "with",
}


class _TextReader:
    def __init__(self, names: Collection[str], *, as_json: bool) -> None:
        self.expressions = reader_for(names)
        self._loops = 0
        self._as_json = as_json
        self._in_quotes = False

    def body(self, statements: list[nodes.Node]) -> list[Piece]:
        pieces: list[Piece] = []
        for statement in statements:
            with _Line(statement.lineno), self.expressions.level():
                pieces.extend(self._statement(statement))
        return pieces

    def _statement(self, node: nodes.Node) -> list[Piece]:
        if isinstance(node, nodes.Output):
            return [self._output(part) for part in node.nodes]
        if isinstance(node, nodes.If):
            return [self._if(node)]
        if isinstance(node, nodes.For):
            return [self._for(node)]
        name = _REFUSED.get(type(node), type(node).__name__.lower())
        raise ExpressionError(
            f"`{{% {name} %}}` is not supported",
            code="expression_not_allowed",
            hint="templates support only `if` and `for`; write each value where it is used",
        )

    def _expression(self, node: nodes.Node) -> Run:
        line = node.lineno
        with _Line(line):
            run = self.expressions.compile(node).run

        def placed(scope: Scope) -> JSON:
            with _Line(line):
                return run(scope)

        return placed

    def _output(self, node: nodes.Node) -> Piece:
        if isinstance(node, nodes.TemplateData):
            data = node.data
            self._in_quotes = self._as_json and _ends_in_quotes(data, within=self._in_quotes)
            return lambda _scope, page: page.write(data)
        run = self._expression(node)
        if self._in_quotes:
            # JSON's own escapes without the quotes, which the template already has.
            return lambda scope, page: page.write(compact(as_text(run(scope)))[1:-1])
        return lambda scope, page: page.write(as_text(run(scope)))

    def _if(self, node: nodes.If) -> Piece:
        # Each branch starts in the same state; branches with unbalanced quotes are the author's mistake.
        before = self._in_quotes
        otherwise = self.body(node.else_)
        branches = []
        for branch in (node, *node.elif_):
            self._in_quotes = before
            branches.append((self._expression(branch.test), self.body(branch.body)))

        def run(scope: Scope, page: OutputBuffer) -> None:
            chosen = next((body for test, body in branches if test(scope)), otherwise)
            for piece in chosen:
                piece(scope, page)

        return run

    def _for(self, node: nodes.For) -> Piece:
        if node.recursive:
            raise ExpressionError("`recursive` loops are not supported", code="expression_not_allowed")
        if self._loops == MOST_LOOPS:
            message = f"loops can be nested at most {MOST_LOOPS} deep"
            raise ExpressionError(
                message,
                code="expression_not_allowed",
                hint="remove a level or split the template",
            )
        targets = _targets(node.target)
        # Compiled outside of `naming`: the list is evaluated before the loop variables exist.
        elements = self._expression(node.iter)
        with self.expressions.naming(targets):
            test = None if node.test is None else self._expression(node.test)
        self._loops += 1
        with self.expressions.naming([*targets, "loop"]):
            body = self.body(node.body)
        self._loops -= 1
        return _Loop(node.lineno, targets, elements, test, body, self.body(node.else_)).run


def _targets(node: nodes.Node) -> list[str]:
    names = node.items if isinstance(node, nodes.Tuple) else [node]
    if all(isinstance(name, nodes.Name) for name in names):
        return [cast("nodes.Name", name).name for name in names]
    raise ExpressionError("the names of a loop cannot be nested", code="expression_not_allowed")


class _Loop(NamedTuple):
    """A compiled `for`."""

    line: int
    targets: list[str]
    elements: Run
    test: Run | None
    body: list[Piece]
    otherwise: list[Piece]

    def run(self, scope: Scope, page: OutputBuffer) -> None:
        with _Line(self.line):
            rows = self._rows(scope, page)
        for place, row in enumerate(rows):
            loop: dict[str, JSON] = {
                "index": place + 1,
                "index0": place,
                "first": place == 0,
                "last": place == len(rows) - 1,
                "length": len(rows),
            }
            inner = _within(scope, {**row, "loop": loop})
            for piece in self.body:
                piece(inner, page)
        if not rows:
            for piece in self.otherwise:
                piece(scope, page)

    def _rows(self, scope: Scope, page: OutputBuffer) -> list[dict[str, JSON]]:
        """The variables of each iteration, filtered by the loop's `if`."""
        # All rows are collected first: `loop.length` and `loop.last` count only rows that pass the filter.
        elements = self.elements(scope)
        if not isinstance(elements, list):
            hint = "iterate over `| keys`, `| values` or `| items`" if isinstance(elements, dict) else ""
            raise ExpressionError(f"`for` needs a list, not {kind(elements)}", hint=hint)
        rows: list[dict[str, JSON]] = []
        for element in elements:
            page.turn()
            row = self._row(element)
            if self.test is None or self.test(_within(scope, row)):
                rows.append(row)
        return rows

    def _row(self, element: JSON) -> dict[str, JSON]:
        if len(self.targets) == 1:
            return {self.targets[0]: element}
        if isinstance(element, list) and len(element) == len(self.targets):
            return dict(zip(self.targets, element, strict=True))
        found = f"a list of {len(element)}" if isinstance(element, list) else kind(element)
        raise ExpressionError(
            f"`for {', '.join(self.targets)}` needs lists of {len(self.targets)}, not {found}"
        )


def _within(scope: Scope, names: dict[str, JSON]) -> Scope:
    """The scope extended by the variables of an iteration. It is never written to."""
    return ChainMap(names, cast("Any", scope))
