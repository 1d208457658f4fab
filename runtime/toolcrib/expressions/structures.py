"""Structures: JSON values whose strings may contain expressions, compiled to closures that render them."""

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

Keep: TypeAlias = Callable[..., Any]
"""Copies a value that may have the given number of nested levels, or raises if the value is refused.

Called with the value and the number. With `counted`, a list of one counter follows, or nothing for a constant.
"""

_UNCHANGING = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list})

_MEMBERS = 32
_LEVELS = 16
_NAMES = 200
"""Larger parts become functions of their own: Python's compiler limits nesting, and long sources compile slowly."""


class UnchangingRoots(NamedTuple):
    """Root names whose values are never changed in place.

    Attributes:
        names: The names.
        keep: Copies and checks a value of one of them; None if there are none.
    """

    names: Collection[str] = ()
    keep: Keep | None = None


NO_ROOTS = UnchangingRoots()


def compile_unshared(
    part: ExpressionPart,
    root: str,
    keep: Keep,
    depth: int,
    *,
    alone: bool = False,
    counted: bool = False,
    unchanging: UnchangingRoots = NO_ROOTS,
) -> Callable[..., JSON]:
    """A function that builds a new, unshared value of a part at each call.

    Args:
        part: A compiled structure.
        root: A root name whose strings and numbers are already validated, so plain paths need no check.
        keep: Copies and checks all other values.
        depth: Maximum number of nested levels.
        alone: Whether the function receives the value of `root` instead of a scope.
        counted: Whether the function receives a counter as well, for `keep`.
        unchanging: Other root names, whose plain paths are copied by a function of their own.

    The function raises the exceptions of `keep`, and LookupError, TypeError, RecursionError or ExpressionError if a
    value cannot be computed; the closure of the part then raises the error with its location.
    """
    if part.members is None or len(part.members) <= _MEMBERS:
        return _GeneratedFunction(root, keep, unchanging, counted=counted).function(part, depth, alone=alone)
    long = _long(part.members, root, keep, depth, unchanging, counted=counted)
    return (lambda value: long({root: value})) if alone else long


class _GeneratedFunction:
    """A function that is generated as Python source."""

    # A list or dict display is twice as fast as any other way to build one: a nested mock renders in 6.2 us,
    # with closures in 18.7 us. The source contains only numbered names (`v5`) and integers. Everything from a
    # document is bound to these names and never becomes part of the source, so no document can inject code.

    def __init__(self, root: str, keep: Keep, unchanging: UnchangingRoots, *, counted: bool) -> None:
        self._counted = counted
        self._left = ", left" if counted else ""
        self._root = root
        self._keep = keep
        self._unchanging = unchanging
        self._names: dict[str, Any] = {"root": root, "keep": keep, "unchanging": _UNCHANGING, "type": type}

    def function(self, part: ExpressionPart, depth: int, *, alone: bool) -> Callable[..., JSON]:
        text = self._expression(part, depth, 0)
        if alone:
            given, first = "source", "    scope = {root: source}\n" if "(scope)" in text else ""
        else:
            given, first = f"scope{self._left}", "    source = scope[root]\n" if "source[" in text else ""
        code = compile(f"def run({given}):\n{first}    return {text}\n", "<rendering>", "exec")
        exec(code, self._names)  # noqa: S102 -- contains no text of a document, see above
        run: Callable[..., JSON] = self._names["run"]
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
            return f"(value if type(value := {read}) in unchanging else keep(value, {depth}{self._left}))"
        unchanging = bool(part.path) and part.path[0] in self._unchanging.names
        keep = self._name(self._unchanging.keep) if unchanging else "keep"
        return f"{keep}({self._name(part.bare or part.run)}(scope), {depth}{self._left})"

    def _container(
        self,
        part: ExpressionPart,
        members: dict[str, ExpressionPart] | list[ExpressionPart],
        depth: int,
        level: int,
    ) -> str:
        if level >= _LEVELS or len(members) > _MEMBERS or len(self._names) > _NAMES:
            inner = compile_unshared(
                part, self._root, self._keep, depth, unchanging=self._unchanging, counted=self._counted
            )
            return f"{self._name(inner)}(scope{self._left})"
        # An empty container stands for this one: `keep` raises if it is nested too deeply.
        self._keep(type(members)(), depth)
        if isinstance(members, list):
            return f"[{', '.join(self._expression(item, depth - 1, level + 1) for item in members)}]"
        pairs = (
            f"{self._name(key)}: {self._expression(item, depth - 1, level + 1)}"
            for key, item in members.items()
        )
        return f"{{{', '.join(pairs)}}}"


def _long(
    members: dict[str, ExpressionPart] | list[ExpressionPart],
    root: str,
    keep: Keep,
    depth: int,
    unchanging: UnchangingRoots,
    *,
    counted: bool,
) -> Callable[..., JSON]:
    """A long list or object: a copy of its constant scalars, in which the other members are replaced."""
    keep(type(members)(), depth)  # raises if it is nested too deeply
    places: Iterable[tuple[Any, ExpressionPart]] = (
        members.items() if isinstance(members, dict) else enumerate(members)
    )
    values: Any = {} if isinstance(members, dict) else [None] * len(members)
    made: list[tuple[Any, Callable[..., JSON]]] = []
    for place, part in places:
        plain = part.constant and type(part.value) in _UNCHANGING
        values[place] = keep(part.value, depth) if plain else None
        if not plain:
            inner = compile_unshared(part, root, keep, depth - 1, unchanging=unchanging, counted=counted)
            made.append((place, inner))

    def run(scope: Scope, *left: list[int]) -> JSON:
        result: Any = values.copy()
        for place, make in made:
            result[place] = make(scope, *left)
        return result  # type: ignore[no-any-return]

    return run


def compile_copier(value: JSON) -> Callable[[], JSON]:
    """A function that returns a new copy of a constant value, so that callers may change their results."""
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
    """A deep copy of a JSON value."""
    # Expressions return parts of the arguments or the document, which a caller must not be able to change.
    # copy.deepcopy takes several times as long, since it tracks every object in a memo.
    kind = type(value)
    if kind is dict:
        copy: Any = value.copy()
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                copy[key] = copy_value(item)
        return copy
    if kind is list:
        return [copy_value(item) if type(item) in _CONTAINERS else item for item in value]
    return value


_MOST_NESTING = 128
_OPENERS = ("{{", "{%", "{#")
_VARIABLE = re.compile(r"(?<!\$)\$\{")


class Rendering(NamedTuple):
    """A compiled structure.

    Attributes:
        constant: Whether it reads nothing from the scope.
        names: The root names that it reads from the scope.
        run: Its closure.
        part: The compiled parts, if it comes from a document.
    """

    constant: bool
    names: frozenset[str]
    run: Run
    part: ExpressionPart | None = None

    @property
    def keys(self) -> KnownKeys | None:
        """The known keys of its value and of nested values, if any."""
        return None if self.part is None else self.part.keys

    def render(self, scope: Scope) -> JSON:
        """Evaluate the expressions of the structure.

        A string that is a single `{{ ... }}` keeps the type of its value. Objects and lists with a computed member are
        new each time. Constant parts and values from the scope are shared: copy the result before changing it.

        Raises:
            ExpressionError: With the pointer of the string that failed.
        """
        return self.run(scope)

    def fresh(
        self,
        root: str,
        keep: Keep,
        depth: int,
        *,
        alone: bool = False,
        counted: bool = False,
        unchanging: UnchangingRoots = NO_ROOTS,
    ) -> Callable[..., JSON]:
        """A function that renders unshared values; see `compile_unshared`."""
        part = self.part or ExpressionPart(self.run)
        return compile_unshared(part, root, keep, depth, alone=alone, counted=counted, unchanging=unchanging)


def compile_value(
    value: JSON,
    names: Collection[str],
    problems: list[Problem],
    pointer: str = "",
    *,
    forms: bool = False,
) -> Rendering:
    """Compile a structure. In its strings, `{{ ... }}` is an expression and `$${` a literal `${`.

    Args:
        value: The structure, at most 128 levels deep.
        names: The root names that its expressions may read.
        problems: Receives every problem; a string with a problem renders as written.
        pointer: The pointer of the structure, prefixed to the pointers of problems and errors.
        forms: Whether mappings with `for_each` are loops instead of data; see `loops`.
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
            # A form that is not complete falls through: as data, its keys are checked like any others.
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
        from toolcrib.expressions.loops import is_form  # noqa: PLC0415 -- imports this module; most structures have no loop

        if not is_form(value):
            return None
        from toolcrib.expressions.loops import read_form  # noqa: PLC0415 -- as above

        part, used = read_form(value, self._names, self._problems, pointer)
        self.used |= used
        return part

    def _without_variables(self, text: str, pointer: str) -> str:
        """The text with `$${` replaced by `${`; a bare `${` is reported."""
        # `${VAR}` works in other blocks. A silent literal here would send the variable's name instead of its
        # value.
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
        # Each piece is compiled even after a problem, so that all problems of a text are reported together.
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
    """The same closure, with the pointer added to its errors."""

    # An error that already has a pointer was raised by a lazy scope, for another place in the document.
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
    """A list or object of parts; `values` holds the constant ones."""
    # Copying the constants and replacing the computed members is faster than building the container member by
    # member.
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
