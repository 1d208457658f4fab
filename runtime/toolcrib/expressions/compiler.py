"""Compile the nodes of a syntax tree to closures, within limits, and record the names that they read.

`value | name` and `name(value)` compile to the same call.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.expressions.functions import COUNTS, FUNCTIONS, Function
from toolcrib.expressions.values import (
    FREE,
    SIZED,
    Run,
    Scope,
    as_text,
    bounded_text,
    list_of_names,
    shortened,
    visit,
    visit_all,
)

if TYPE_CHECKING:
    from jinja2 import nodes

MOST_NODES = 2_000
"""Maximum number of syntax tree nodes in one expression or template."""

MOST_NESTING = 64
"""Maximum depth of the syntax tree of one expression."""

NOT_ALLOWED = "expression_not_allowed"

SPLIT = "split it into smaller expressions"
"""Hint for an expression that is too large."""


def hidden_key_name(root: str, key: str) -> str:
    """The hidden name of one key of a root. A scope that knows it can provide the key without computing the others."""
    # The dot cannot occur in a name, so no expression can spell a hidden name itself.
    return f"{root}.{key}"


def key_of_hidden_name(root: str, name: str) -> str:
    """The key that `hidden_key_name` encoded; empty for other names."""
    start = hidden_key_name(root, "")
    return name.removeprefix(start) if name.startswith(start) else ""


class KnownKeys(Collection[str]):
    """The keys that an object can have, with those of nested values, for checks at load."""

    @abstractmethod
    def below(self, step: str | None) -> KnownKeys | None:
        """The keys of the value under a key, or of any element if `step` is None; None if unknown."""


SHARED = "shared()"
"""Hidden name of the values of `let` in a pack or project that a call has computed: name -> value."""


def hidden_definition_name(name: str) -> str:
    """The hidden name of a value or function that a pack or project defines."""
    return f"define {name}"


def shared_value_name(name: str) -> str:
    """The hidden name that marks the use of a shared value among the names that an expression reads."""
    return f"{SHARED}{name}"


class Definition(Collection[str]):
    """A value or function that mocks share. As a collection, the names of its parameters.

    Attributes:
        name: Its name.
        is_value: Whether it is a value, which has no parameters.
        place: File and line of its definition; empty if unknown.
    """

    name: str
    is_value: bool
    place: str

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The names of the scope that it reads."""

    @abstractmethod
    def value(self) -> ExpressionPart:
        """Its value, computed once for each call."""

    @abstractmethod
    def call(self, parts: list[ExpressionPart]) -> ExpressionPart:
        """Its result for arguments, one for each parameter."""


class ExpressionPart(NamedTuple):
    """A compiled node.

    Attributes:
        run: Its closure.
        constant: Whether it reads nothing from the scope.
        value: Its value if it is constant.
        path: The names of a plain path such as `args.city`; empty for anything else.
        members: The parts of a list or object that is not constant.
        bare: The closure without the wrapper that adds the location to errors.
        keys: The known keys of its value and of nested values, if any.
    """

    run: Run
    constant: bool = False
    value: JSON = None
    path: tuple[str, ...] = ()
    members: dict[str, ExpressionPart] | list[ExpressionPart] | None = None
    bare: Run | None = None
    keys: KnownKeys | None = None


def constant_function(value: JSON) -> Run:
    """A closure that returns the same object each time."""
    return lambda _scope: value


def literal(value: JSON) -> ExpressionPart:
    """A constant part."""
    return ExpressionPart(constant_function(value), constant=True, value=value)


def combined(make: Callable[..., Run], *parts: ExpressionPart) -> ExpressionPart:
    """A part computed from others.

    If all of them are constant, it is evaluated immediately, so that its errors are reported at load. Constant
    strings and numbers are kept; lists and objects are built again at each evaluation.
    """
    # `make` builds the closure from the closures of the parts; calling it with constants evaluates it at
    # load.
    run = make(*(part.run for part in parts))
    if not all(part.constant for part in parts):
        return ExpressionPart(run)
    value = make(*(constant_function(part.value) for part in parts))(NOTHING)
    if isinstance(value, list | dict):
        return ExpressionPart(run, constant=True, value=value)
    return literal(value)


def joined(parts: list[ExpressionPart]) -> ExpressionPart:
    """The parts joined into one string."""
    texts = [as_text(part.value) if part.constant else "" for part in parts]
    if all(part.constant for part in parts):
        return literal(bounded_text("".join(texts)))
    computed = [(place, part.run) for place, part in enumerate(parts) if not part.constant]

    def run(scope: Scope) -> JSON:
        pieces = texts.copy()
        for place, compute in computed:
            value = compute(scope)
            if isinstance(value, dict | list):
                visit_all(scope, value)
            pieces[place] = value if isinstance(value, str) else as_text(value)
        return bounded_text("".join(pieces))

    return ExpressionPart(run)


_OF_A_CALL = frozenset({"args", "attempt", "call"})
"""The names of a mock that definitions cannot read."""


class ExpressionCompiler:
    """Compiles nodes within limits and records which names they read.

    Args:
        names: The root names that may be read. A mapping gives the keys of each value, or None if unknown. Names that
            are not identifiers are hidden: only functions and `hidden_key_name` use them.
        readers: Node type -> its compiler; other types are refused.
        place: The location of the expression; random functions return different values at different places.

    Attributes:
        used: The root names that are read, without loop variables.
    """

    def __init__(
        self,
        names: Collection[str],
        readers: Mapping[type[nodes.Node], Callable[[ExpressionCompiler, Any], ExpressionPart]] | None = None,
        place: str = "",
    ) -> None:
        self.used: set[str] = set()
        self._readers = readers or {}
        self._names = names
        self._keys: Mapping[str, Collection[str] | None] = names if isinstance(names, Mapping) else {}
        self._local: frozenset[str] = frozenset()
        self._place = place
        self._provided = 0
        self._count = 0
        self._depth = 0

    def compile(self, node: nodes.Node) -> ExpressionPart:
        """Compile a node.

        Raises:
            ExpressionError: A node type that is not allowed, an unknown name or function, a constant part that fails,
                or too many nodes or levels.
        """
        # An allow-list: a node type that a future Jinja2 adds is refused until someone reviews it.
        reader = self._readers.get(type(node))
        if reader is None:
            raise ExpressionError(
                f"`{type(node).__name__}` is not supported in expressions", code=NOT_ALLOWED
            )
        self._go_down()
        part = reader(self, node)
        self._depth -= 1
        return part

    @contextmanager
    def level(self) -> Iterator[None]:
        """Count a node and one level of nesting."""
        self._go_down()
        yield
        self._depth -= 1

    def _go_down(self) -> None:
        self._count += 1
        self._depth += 1
        if self._count > MOST_NODES:
            raise ExpressionError(
                f"more than {MOST_NODES:,} operations", code="expression_too_large", hint=SPLIT
            )
        if self._depth > MOST_NESTING:
            raise ExpressionError(
                f"nested deeper than {MOST_NESTING} levels", code="expression_too_large", hint=SPLIT
            )

    @contextmanager
    def naming(self, names: Collection[str]) -> Iterator[None]:
        """Add the variables of a loop while its body is compiled."""
        outer, self._local = self._local, self._local | frozenset(names)
        yield
        self._local = outer

    def name(self, name: str) -> str:
        """Record that a root name is read, and return it.

        Raises:
            ExpressionError: `unknown_name`.
        """
        if name in self._local:
            return name
        if name in self._names:
            self.used.add(name)
            return name
        # Hidden names are not identifiers and must not appear in the message.
        definition = self.definition(name)
        if definition is not None:
            hint = f"`{name}` is a function: use `{_call_form(definition)}`"
            raise ExpressionError(f"`{name}` is not a value", code="unknown_name", hint=hint)
        known = sorted(name for name in {*self._names, *self._local} if name.isidentifier())
        there = f"the names here are {list_of_names(known, 20)}" if known else "no names are available here"
        if SHARED in self._names and name in _OF_A_CALL:
            hint = f"definitions cannot read `{name}`: pass it to a function of `define`"
        elif name in FUNCTIONS:
            ways = f"use `value | {name}` or `{name}(value)`"
            hint = f"`{name}` is a function: {ways if FUNCTIONS[name].least else f'use `{name}()`'}"
        else:
            # Most unknown names are either misspelt or a string without quotes.
            hint = did_you_mean(name, known) or f"put strings in quotes: `'{name}'`"
        raise ExpressionError(f"unknown name `{name}`; {there}", code="unknown_name", hint=hint)

    def definition(self, name: str) -> Definition | None:
        """The value or function of a name that the pack or project defines; None for other names."""
        if name in self._local:
            return None
        found = self._keys.get(hidden_definition_name(name))
        return found if isinstance(found, Definition) else None

    @property
    def functions(self) -> list[str]:
        """The names of all functions: those of the language, and those of the pack or project."""
        defined = (each for each in self._keys.values() if isinstance(each, Definition))
        return [*(each.name for each in defined if not each.is_value), *FUNCTIONS]

    def hidden_name(self, root: str, key: str) -> str:
        """The hidden name under which the scope provides a single key of a root; empty if it does not."""
        # A loop variable of the same name hides the root.
        name = hidden_key_name(root, key)
        return name if name in self._names and root not in self._local else ""

    def provided(self, source: str, function: str) -> str:
        """Record that a function reads a hidden name of the scope.

        Returns:
            The place of this use, unique within the document.

        Raises:
            ExpressionError: `unknown_function`: the function is not available here.
        """
        if source not in self._names:
            raise ExpressionError(
                f"`{function}` cannot be used here",
                code="unknown_function",
                hint="random values and counters are available only in the replies and effects of a mock",
            )
        self.used.add(source)
        self._provided += 1
        return f"{self._place}#{self._provided}"

    def keys(self, name: str) -> KnownKeys | None:
        """The known keys of a root value and of its nested values, if any."""
        known = None if name in self._local else self._keys.get(name)
        return known if isinstance(known, KnownKeys) else None

    def key(self, owner: ExpressionPart, name: JSON) -> KnownKeys | None:
        """Check that a value can have a key.

        Returns:
            The known keys of the value under it, if any.

        Raises:
            ExpressionError: `unknown_argument` or `unknown_row_key`.
        """
        known: Collection[str] | None = owner.keys
        if known is None and len(owner.path) == 1 and owner.path[0] not in self._local:
            known = self._keys.get(owner.path[0])
        if isinstance(name, str) and known is not None and name not in known:
            what = f"`{'.'.join(owner.path)}`" if owner.path else "this value"
            there = f"its keys are {list_of_names(sorted(known), 20)}" if known else "it has no keys"
            code = "unknown_argument" if owner.keys is None else "unknown_row_key"
            message = f"unknown key `{name}` in {what}; {there}"
            raise ExpressionError(message, code=code, hint=did_you_mean(name, known))
        return None if owner.keys is None else owner.keys.below(name if isinstance(name, str) else None)


INSTEAD: Mapping[str, str] = {
    "attr": "`a.name` or `a['name']`",
    "combine": "`merge`",
    "count": "`length`, or `count_of(value)` for equal elements",
    "d": "`default`",
    "dictsort": "`items` and `sort`",
    "format": "`~`, which joins strings",
    "json": "`tojson`",
    "len": "`length`",
    "map": "`pluck('field')`",
    "select": "`where(field=value)`",
    "selectattr": "`where(field=value)`",
    "size": "`length`",
    "sorted": "`sort`",
    "str": "`string`",
    "strip": "`trim`",
    "to_json": "`tojson`",
    "toJson": "`tojson`",
}
"""Names of functions in Jinja2, Python and Go -> their replacement here."""


def apply(
    reader: ExpressionCompiler, name: str, parts: Sequence[ExpressionPart], fields: Sequence[str] = ()
) -> ExpressionPart:
    """Compile a function call.

    Args:
        reader: The compiler of the surrounding expression.
        name: The function.
        parts: Its arguments: the value before `|` first, named arguments last.
        fields: The names of the named arguments.

    Raises:
        ExpressionError: Unknown function or wrong arguments.
    """
    definition = reader.definition(name)
    if definition is not None:
        reader.used |= definition.names
        return definition.call([*parts])
    function = known_function(name, reader.functions)
    check_shape(name, function, len(parts) - len(fields), fields)
    if function.source:
        return _drawn(reader, name, function, [part.run for part in parts])
    count = _COUNTS[function.goes]
    # The most common case, a filter without arguments, gets a closure that counts and calls in one step.
    if function.goes == "one" and len(parts) == 1:
        part = combined(lambda only: _applied_through(function.run, only), *parts)
    elif count is None:
        part = combined(lambda *runs: _applied(function.run, runs, fields), *parts)
    else:
        counts = [None if part.constant else count for part in parts]
        part = combined(lambda *runs: _applied(function.run, _counted(runs, counts), fields), *parts)
    keys = parts[0].keys if parts else None
    if keys is None or name not in _GIVES:
        return part
    return part._replace(keys=keys if _GIVES[name] == "all" else keys.below(None))


_GIVES: Mapping[str, Literal["all", "one"]] = {
    "find": "one",
    "first": "one",
    "last": "one",
    "reverse": "all",
    "sort": "all",
    "unique": "all",
    "values": "all",
    "where": "all",
}
"""Function -> whether it returns elements of its first value or one of them, so that their keys stay known."""


def _drawn(reader: ExpressionCompiler, name: str, function: Function, runs: list[Run]) -> ExpressionPart:
    """A function that is not pure. It is never evaluated at load, even if all its arguments are constant."""
    source, draw = function.source, function.run
    place = reader.provided(source, name)
    if source == COUNTS:
        return ExpressionPart(lambda scope: draw(scope[source], *[run(scope) for run in runs]))
    return ExpressionPart(
        lambda scope: draw(cast("Any", scope[source])(place), *[run(scope) for run in runs])
    )


def check_definition_call(definition: Definition, given: int, fields: Sequence[str]) -> None:
    """Check the arguments of a call of a definition; `given` counts the positional ones."""
    name = definition.name
    if definition.is_value:
        raise ExpressionError(
            f"`{name}` is a value, not a function", code="unknown_function", hint=f"write `{name}`"
        )
    if fields:
        message = f"`{name}` accepts no named arguments, got {list_of_names(list(fields))}"
        raise ExpressionError(message, code="expression_syntax", hint=f"use `{_call_form(definition)}`")
    if given != len(definition):
        message = (
            f"`{name}` accepts {len(definition)} value{'s' if len(definition) != 1 else ''}, got {given}"
        )
        raise ExpressionError(message, code="expression_syntax", hint=f"use `{_call_form(definition)}`")


def _call_form(definition: Definition) -> str:
    return f"{definition.name}({', '.join(definition)})"


def known_function(name: str, functions: Collection[str] = FUNCTIONS) -> Function:
    """Look up a built-in function; raises `unknown_function`, with a hint from the names of all functions."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in INSTEAD:
        hint = f"write {INSTEAD[name]}"
    else:
        hint = (
            did_you_mean(name, functions)
            or f"the functions are {list_of_names(sorted(functions), len(functions))}"
        )
    raise ExpressionError(f"unknown function `{shortened(name)}`", code="unknown_function", hint=hint)


def check_shape(name: str, function: Function, given: int, fields: Sequence[str]) -> None:
    """Check the number and kind of arguments; `given` counts the positional ones."""
    if len(set(fields)) < len(fields):
        raise ExpressionError(f"`{name}` has a duplicate named argument", code="expression_syntax")
    if fields and function.fields == "no":
        raise ExpressionError(
            f"`{name}` accepts no named arguments, got {list_of_names(list(fields))}",
            code="expression_syntax",
        )
    if not fields and function.fields == "must":
        hint = f"use `list | {name}(field=value)`"
        raise ExpressionError(f"`{name}` needs a field and its value", code="expression_syntax", hint=hint)
    least, most = function.least, function.most
    if function.fields == "either":
        least = most = 1 if fields else 2
    if given < least or (most is not None and given > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ExpressionError(
            f"`{name}` accepts {wanted} values (including the one before `|`), got {given}",
            code="expression_syntax",
            hint=function.summary,
        )


def _applied_through(function: Callable[[JSON], JSON], only: Run) -> Run:
    """A call of a function that traverses its only argument, counted against the step budget."""

    def run(scope: Scope) -> JSON:
        value = only(scope)
        if type(value) in SIZED and len(value) > FREE:  # type: ignore[arg-type]
            visit(scope, cast("Any", value))
        return function(value)

    return run


def _counted(runs: Sequence[Run], counts: Sequence[Callable[[Run], Run] | None]) -> list[Run]:
    return [run if count is None else count(run) for run, count in zip(runs, counts, strict=True)]


def _through(run: Run) -> Run:
    """The same value, with its elements counted."""

    def counted(scope: Scope) -> JSON:
        value = run(scope)
        if type(value) in SIZED and len(value) > FREE:  # type: ignore[arg-type]
            visit(scope, cast("Any", value))
        return value

    return counted


def _all_through(run: Run) -> Run:
    """The same value, with its elements counted at every level."""

    def counted(scope: Scope) -> JSON:
        value = run(scope)
        if isinstance(value, dict | list):
            visit_all(scope, value)
        return value

    return counted


_COUNTS: Mapping[str, Callable[[Run], Run] | None] = {"no": None, "one": _through, "all": _all_through}
"""How deep a function traverses its values -> wrapper that counts the elements."""


def _applied(run: Callable[..., JSON], runs: Sequence[Run], fields: Sequence[str]) -> Run:
    if fields:
        places, named = runs[: -len(fields)], list(zip(fields, runs[-len(fields) :], strict=True))
        return lambda scope: run(
            *[place(scope) for place in places], **{name: value(scope) for name, value in named}
        )
    if len(runs) == 1:
        (only,) = runs
        return lambda scope: run(only(scope))
    return lambda scope: run(*[place(scope) for place in runs])


class ArgumentReads:
    """Records which arguments an expression reads while it is compiled.

    Attributes:
        names: The names that the expression may read.
        keys: The arguments that it reads, in order.
    """

    # The compiler checks each name and key with `in`, so collections that record these checks see every read
    # without a second walk over the syntax tree.

    def __init__(self, known: Collection[str] | None) -> None:
        self.names = _Names({"args": _Keys(self, known)})
        self.keys: dict[str, None] = {}
        self.steps = 0

    @property
    def whole(self) -> bool:
        """Whether it reads the arguments as a whole, not only by key."""
        return self.names.asked > self.steps


class _Names(dict[str, Collection[str]]):
    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += name == "args"
        return super().__contains__(name)


class _Keys(Collection[str]):
    def __init__(self, watch: ArgumentReads, known: Collection[str] | None) -> None:
        self._watch = watch
        self._known = known

    def __contains__(self, name: object) -> bool:
        self._watch.steps += 1
        self._watch.keys[str(name)] = None
        return self._known is None or name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known or ())

    def __len__(self) -> int:
        return len(self._known or ())
