"""Structures: JSON values whose texts may hold expressions, compiled to render shared or unshared values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions.compiler import ExpressionPart, KnownKeys, joined, literal
from toolcrib.expressions.expression import ExpressionBody, compile_node, split, too_deep
from toolcrib.expressions.values import Run, Scope, shortened

Keep: TypeAlias = Callable[[Any, int], Any]
"""Copies a value that may nest so many containers, or raises because it is not to be had."""

_UNCHANGING = frozenset({str, int, float, bool, type(None)})

_MEMBERS = 32
_LEVELS = 16
_NAMES = 200
"""What is longer or deeper is a function of its own: Python's compiler has bounds, and long texts take it long."""


def compile_unshared(
    part: ExpressionPart, root: str, keep: Keep, depth: int, *, alone: bool = False
) -> Callable[[Any], JSON]:
    """A function that makes the value of a part anew each time.

    Args:
        part: A structure, compiled.
        root: The name whose texts and numbers are known to be sound where plain paths read them.
        keep: Copies everything else.
        depth: Containers that may be nested in one another.
        alone: Whether the function gets the value of `root` instead of a scope.

    The function raises what `keep` raises, and LookupError, TypeError, RecursionError or ExpressionError where a
    value can't be worked out; the part's own closure says where and why.
    """
    if part.members is None or len(part.members) <= _MEMBERS:
        return _GeneratedFunction(root, keep).function(part, depth, alone=alone)
    long = _long(part.members, root, keep, depth)
    return (lambda value: long({root: value})) if alone else long


class _GeneratedFunction:
    """A function, written as Python: a list or object in brackets is made twice as fast as by any other means.

    Only numbered names stand in its text. What a document says is behind these names, never in the text.
    """

    def __init__(self, root: str, keep: Keep) -> None:
        self._root = root
        self._keep = keep
        self._names: dict[str, Any] = {"root": root, "keep": keep, "unchanging": _UNCHANGING, "type": type}

    def function(self, part: ExpressionPart, depth: int, *, alone: bool) -> Callable[[Any], JSON]:
        text = self._expression(part, depth, 0)
        if alone:
            given, first = "source", "    scope = {root: source}\n" if "(scope)" in text else ""
        else:
            given, first = "scope", "    source = scope[root]\n" if "source[" in text else ""
        code = compile(f"def run({given}):\n{first}    return {text}\n", "<rendering>", "exec")
        exec(code, self._names)  # noqa: S102 -- nothing that anybody wrote is in it, see above
        run: Callable[[Any], JSON] = self._names["run"]
        return run

    def _name(self, value: object) -> str:
        name = f"v{len(self._names)}"
        self._names[name] = value
        return name

    def _expression(self, part: ExpressionPart, depth: int, level: int) -> str:
        if part.constant:
            value = self._keep(part.value, depth)
            return (
                self._name(value) if type(value) in _UNCHANGING else f"{self._name(compile_copier(value))}()"
            )
        if part.members is not None:
            return self._container(part, part.members, depth, level)
        if len(part.path) == 2 and part.path[0] == self._root:
            read = f"source[{self._name(part.path[1])}]"
            return f"(value if type(value := {read}) in unchanging else keep(value, {depth}))"
        return f"keep({self._name(part.bare or part.run)}(scope), {depth})"

    def _container(
        self,
        part: ExpressionPart,
        members: dict[str, ExpressionPart] | list[ExpressionPart],
        depth: int,
        level: int,
    ) -> str:
        if level >= _LEVELS or len(members) > _MEMBERS or len(self._names) > _NAMES:
            return f"{self._name(compile_unshared(part, self._root, self._keep, depth))}(scope)"
        self._keep(type(members)(), depth)  # raises if it is nested too deeply
        if isinstance(members, list):
            return f"[{', '.join(self._expression(item, depth - 1, level + 1) for item in members)}]"
        pairs = (
            f"{self._name(key)}: {self._expression(item, depth - 1, level + 1)}"
            for key, item in members.items()
        )
        return f"{{{', '.join(pairs)}}}"


def _long(
    members: dict[str, ExpressionPart] | list[ExpressionPart], root: str, keep: Keep, depth: int
) -> Run:
    """A long list or object: a copy of the texts and numbers in it, with the rest put in its places."""
    keep(type(members)(), depth)  # raises if it is nested too deeply
    places: Iterable[tuple[Any, ExpressionPart]] = (
        members.items() if isinstance(members, dict) else enumerate(members)
    )
    values: Any = {} if isinstance(members, dict) else [None] * len(members)
    made: list[tuple[Any, Run]] = []
    for place, part in places:
        plain = part.constant and type(part.value) in _UNCHANGING
        values[place] = keep(part.value, depth) if plain else None
        if not plain:
            made.append((place, compile_unshared(part, root, keep, depth - 1)))

    def run(scope: Scope) -> JSON:
        result: Any = values.copy()
        for place, make in made:
            result[place] = make(scope)
        return result  # type: ignore[no-any-return]

    return run


def compile_copier(value: JSON) -> Callable[[], JSON]:
    """Makes equal, unshared copies of a fixed value: a caller who changes a result hurts nobody."""
    if isinstance(value, dict):
        if not any(isinstance(item, (dict, list)) for item in value.values()):
            return value.copy
        entries = [(key, compile_copier(item)) for key, item in value.items()]
        return lambda: {key: make() for key, make in entries}
    if isinstance(value, list):
        if not any(isinstance(item, (dict, list)) for item in value):
            return value.copy
        makers = [compile_copier(item) for item in value]
        return lambda: [make() for make in makers]
    return lambda: value


def copy_value(value: Any) -> Any:
    """An equal, unshared copy of an answer: what an expression read belongs to the caller or the document."""
    if type(value) is dict:
        copy: Any = value.copy()
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                copy[key] = copy_value(item)
        return copy
    return [copy_value(item) for item in value] if type(value) is list else value


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
    part: ExpressionPart | None = None

    @property
    def keys(self) -> KnownKeys | None:
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
        """A function that renders values which nobody shares; see `fresh`."""
        return compile_unshared(self.part or ExpressionPart(self.run), root, keep, depth, alone=alone)


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

    def read(self, value: JSON, pointer: str, depth: int) -> ExpressionPart:
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

    def _form(self, value: dict[str, JSON], pointer: str) -> ExpressionPart | None:
        from toolcrib.expressions.loops import is_form  # noqa: PLC0415 -- most structures have none

        if not is_form(value):
            return None
        from toolcrib.expressions.loops import read_form  # noqa: PLC0415 -- as above

        part, used = read_form(value, self._names, self._problems, pointer)
        self.used |= used
        return part

    def _without_variables(self, text: str, pointer: str) -> str:
        """The text with `$${` as a literal; `${` alone looks a value up elsewhere, and never here."""
        if _VARIABLE.search(text) is not None:
            self._problems.append(
                Problem(
                    code="variable_not_allowed",
                    message=f"`${{` variables are not available here: `{shortened(text)}`",
                    pointer=pointer,
                    hint="use an expression such as `{{ args.name }}`; write a literal `${` as `$${`",
                )
            )
        return text.replace("$${", "${")

    def _check_key(self, key: str, pointer: str) -> None:
        if any(opener in key for opener in _OPENERS):
            self._problems.append(
                Problem(
                    code="expression_not_allowed",
                    message=f"a key is literal and cannot be computed: `{shortened(key)}`",
                    pointer=_below(pointer, key),
                    hint="write an object with computed keys as `{{ {args.name: 1} }}`",
                )
            )

    def _text(self, text: str, pointer: str) -> ExpressionPart:
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
        return part if part.constant else part._replace(run=with_location(part.run, pointer), bare=part.run)

    def _piece(self, piece: str | ExpressionBody, pointer: str, number: int) -> ExpressionPart:
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


def with_location(run: Run, pointer: str) -> Run:
    """The same, with errors that say where. An error that has a place comes from a lazy scope and keeps it."""

    def leaf(scope: Scope) -> JSON:
        try:
            return run(scope)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(pointer)) from None
        except RecursionError:
            raise too_deep().under(pointer) from None

    return leaf


def _container(
    values: Any,
    parts: Iterable[tuple[Any, ExpressionPart]],
    members: dict[str, ExpressionPart] | list[ExpressionPart],
) -> ExpressionPart:
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

    return ExpressionPart(run, members=members)
