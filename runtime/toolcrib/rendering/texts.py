"""Texts with statements: `template` and `template_file`.

Jinja2's parser reads them; the tree is run here, with the same closures as expressions, so that a
template and a structure mean the same by the same words. Only `if` and `for` exist.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from jinja2 import nodes

from toolcrib.errors import ExpressionError
from toolcrib.model import JSON
from toolcrib.rendering.braces import check_escapes
from toolcrib.rendering.closures import reader_for
from toolcrib.rendering.expressions import ENVIRONMENT, parsed, too_deep
from toolcrib.rendering.values import MOST_ITEMS, MOST_TEXT, Run, Scope, as_text, compact, kind, text_size

MOST_LOOPS = 2
"""How deep `for` may stand within `for`."""


class Page:
    """What one rendering has written so far, within its bounds."""

    __slots__ = ("_size", "_turns", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._size = 0
        self._turns = 0

    def write(self, text: str) -> None:
        """Add a text.

        Raises:
            ExpressionError: The page grew beyond `MOST_TEXT`.
        """
        self._size += text_size(text)
        if self._size > MOST_TEXT:
            raise ExpressionError(f"the rendered text grew longer than {MOST_TEXT // 1024} KiB")
        self.texts.append(text)

    def turn(self) -> None:
        """Count one turn of a loop.

        Raises:
            ExpressionError: All loops together made more than `MOST_ITEMS`.
        """
        self._turns += 1
        if self._turns > MOST_ITEMS:
            raise ExpressionError(f"the loops of the template made more than {MOST_ITEMS:,} turns")


Piece: TypeAlias = Callable[[Scope, Page], None]


@dataclass(frozen=True, slots=True)
class Text:
    """A compiled template.

    Attributes:
        names: The root names that it reads from the scope.
    """

    names: frozenset[str]
    pieces: tuple[Piece, ...] = field(repr=False, compare=False)

    def render(self, scope: Scope) -> str:
        """The text: at most 256 KiB, with at most 10,000 turns of loops in all.

        Raises:
            ExpressionError: With the line of the template in its message.
        """
        page = Page()
        try:
            for piece in self.pieces:
                piece(scope, page)
        except RecursionError:
            raise too_deep() from None
        return "".join(page.texts)


def compile_text(source: str, names: Collection[str]) -> Text:
    r"""Compile a template.

    Expressions, `{% if %}`, `{% for %}` (at most two deep), `{% raw %}`, comments and the trimming
    of blanks (`{%-`, `-}}`) work as in Jinja2; one line end at the end of the template is dropped, and
    line ends become `\n`. Values come out as in `compile_value`: `true`, `null`, compact JSON.
    In a template that begins as JSON (`{`, `[`), what stands within its quotes is escaped: data never
    becomes structure.

    Args:
        source: The template, at most 16 KiB.
        names: The root names that it may read.

    Raises:
        ExpressionError: As `compile_expression`; the message begins with the line.
    """
    body = source.removesuffix("\n").removesuffix("\r") if source.endswith("\n") else source
    tree = parsed(lambda: _parse(body), source, template=True)
    reader = _TextReader(names, as_json=_begins_as_json(tree))
    pieces = reader.body(tree.body)
    return Text(frozenset(reader.expressions.used), tuple(pieces))


def _parse(source: str) -> nodes.Template:
    for line, token, literal in ENVIRONMENT.lex(source):
        if token == "string":  # noqa: S105 -- a kind of token, no password
            with _Line(line):
                check_escapes(literal)
    return ENVIRONMENT.parse(source)


def _begins_as_json(tree: nodes.Template) -> bool:
    """Whether the first text of a template, behind any statements, begins an object or array."""
    for output in tree.find_all(nodes.Output):
        for part in output.nodes:
            if not isinstance(part, nodes.TemplateData):
                return False
            text = part.data.lstrip()
            if text:
                return text[0] in "{["
    return False


def _ends_in_quotes(text: str, *, within: bool) -> bool:
    """Whether JSON text ends inside of a string, when it begins inside of one or not."""
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
    """Puts the line of the template before the message of an error.

    An error that has a pointer comes from a lazy scope and has its own place.
    """

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
            f"`{{% {name} %}}` can't be used",
            code="expression_not_allowed",
            hint="templates have `if` and `for`; write a value where it is used",
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
            return lambda scope, page: page.write(compact(as_text(run(scope)))[1:-1])
        return lambda scope, page: page.write(as_text(run(scope)))

    def _if(self, node: nodes.If) -> Piece:
        before = self._in_quotes
        otherwise = self.body(node.else_)
        branches = []
        for branch in (node, *node.elif_):
            self._in_quotes = before
            branches.append((self._expression(branch.test), self.body(branch.body)))

        def run(scope: Scope, page: Page) -> None:
            chosen = next((body for test, body in branches if test(scope)), otherwise)
            for piece in chosen:
                piece(scope, page)

        return run

    def _for(self, node: nodes.For) -> Piece:
        if node.recursive:
            raise ExpressionError("`recursive` loops can't be used", code="expression_not_allowed")
        if self._loops == MOST_LOOPS:
            message = f"loops stand at most {MOST_LOOPS} deep"
            raise ExpressionError(
                message,
                code="expression_not_allowed",
                hint="leave out a level, or write less into one template",
            )
        targets = _targets(node.target)
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
    raise ExpressionError("the names of a loop can't be nested", code="expression_not_allowed")


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled `for`."""

    line: int
    targets: list[str]
    elements: Run
    test: Run | None
    body: list[Piece]
    otherwise: list[Piece]

    def run(self, scope: Scope, page: Page) -> None:
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

    def _rows(self, scope: Scope, page: Page) -> list[dict[str, JSON]]:
        """The names of each turn, without those that the loop's `if` leaves out."""
        elements = self.elements(scope)
        if not isinstance(elements, list):
            hint = "go through `| keys`, `| values` or `| items`" if isinstance(elements, dict) else ""
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
    """The scope with the names of a turn before it. It is only read: nothing is ever set in it."""
    return ChainMap(names, cast("Any", scope))
