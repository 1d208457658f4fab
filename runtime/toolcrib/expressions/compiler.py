"""What compiles the nodes of one syntax tree: the pieces, the bounds, the names that are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.expressions.budget import visit_all
from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.values import Run, Scope, as_text, bounded_text, list_of_names

if TYPE_CHECKING:
    from jinja2 import nodes

MOST_NODES = 2_000
"""Nodes of the syntax tree of one expression or template."""

MOST_NESTING = 64
"""Levels of the syntax tree of one expression."""

NOT_ALLOWED = "expression_not_allowed"

SPLIT = "compute less in one place"
"""The way out of an expression that is too large."""


def alone(root: str, key: str) -> str:
    """The hidden name of a key of a root, for scopes that need not work out the others when it is read."""
    return f"{root}.{key}"


def key_alone(root: str, name: str) -> str:
    """The key that a hidden name of `alone` stands for; empty for other names."""
    start = alone(root, "")
    return name.removeprefix(start) if name.startswith(start) else ""


class Keys(Collection[str]):
    """The keys that an object may have, and those of what is in it; any key is among those that are not known."""

    @abstractmethod
    def below(self, step: str | None) -> Keys | None:
        """The keys of what stands under a key; of any element or member for None. None where nothing is known."""


class Part(NamedTuple):
    """A compiled node.

    Attributes:
        run: Its closure.
        constant: Whether it reads nothing from the scope.
        value: What it is, if it is constant.
        path: The root and the names behind it, where it is nothing but those: `args.city`.
        members: The parts of a list or object of a document that are not all constant.
        bare: The closure without what puts the place of a document into its errors.
        keys: The keys of its value, and of what is in it, where these are known beyond its own.
    """

    run: Run
    constant: bool = False
    value: JSON = None
    path: tuple[str, ...] = ()
    members: dict[str, Part] | list[Part] | None = None
    bare: Run | None = None
    keys: Keys | None = None


def always(value: JSON) -> Run:
    """A closure that gives one value, the same object each time."""
    return lambda _scope: value


def literal(value: JSON) -> Part:
    """A part that is the same value each time."""
    return Part(always(value), constant=True, value=value)


def combined(make: Callable[..., Run], *parts: Part) -> Part:
    """A part made of others; worked out now if all of them are constant, so that its faults show now.

    Constant texts and numbers are kept; lists and objects are built anew at each evaluation.
    """
    run = make(*(part.run for part in parts))
    if not all(part.constant for part in parts):
        return Part(run)
    value = make(*(always(part.value) for part in parts))(NOTHING)
    if isinstance(value, list | dict):
        return Part(run, constant=True, value=value)
    return literal(value)


def joined(parts: list[Part]) -> Part:
    """The parts as one text."""
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

    return Part(run)


class Reader:
    """Compiles nodes, within bounds, and notes which names they read.

    Args:
        names: The root names that may be read; as a mapping, each with the keys that its value may
            have, or None where they are not known. Those that are no identifiers are hidden: functions
            read them, and no expression can name them; those of `alone` are read in place of their root.
        readers: Kind of node -> what compiles it; other kinds are refused.
        place: Where the expression stands; tells the draws of one place from those of another.

    Attributes:
        used: The root names that were read, without those of loops.
    """

    def __init__(
        self,
        names: Collection[str],
        readers: Mapping[type[nodes.Node], Callable[[Reader, Any], Part]] | None = None,
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

    def compile(self, node: nodes.Node) -> Part:
        """The closure of an expression's node.

        Raises:
            ExpressionError: A kind of node that is not allowed, an unknown name or function, a
                constant part that fails, too many nodes or levels.
        """
        reader = self._readers.get(type(node))
        if reader is None:
            raise ExpressionError(f"`{type(node).__name__}` can't be used in an expression", code=NOT_ALLOWED)
        self._go_down()
        part = reader(self, node)
        self._depth -= 1
        return part

    @contextmanager
    def level(self) -> Iterator[None]:
        """One node deeper."""
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
        """The names that a loop gives to its body."""
        outer, self._local = self._local, self._local | frozenset(names)
        yield
        self._local = outer

    def name(self, name: str) -> str:
        """Note that a root name is read.

        Raises:
            ExpressionError: `unknown_name`.
        """
        if name in self._local:
            return name
        if name in self._names:
            self.used.add(name)
            return name
        known = sorted(name for name in {*self._names, *self._local} if name.isidentifier())
        there = f"the names here are {list_of_names(known, 20)}" if known else "there are no names here"
        if name in FUNCTIONS:
            ways = f"write it behind a bar, `value | {name}`, or call it, `{name}(value)`"
            hint = f"`{name}` is a function: {ways if FUNCTIONS[name].least else f'call it, `{name}()`'}"
        else:
            hint = did_you_mean(name, known) or f"a text is written in quotes: `'{name}'`"
        raise ExpressionError(f"`{name}` is not known: {there}", code="unknown_name", hint=hint)

    def alone(self, root: str, key: str) -> str:
        """The hidden name under which the scope gives a key of a root by itself; empty where it does not."""
        name = alone(root, key)
        return name if name in self._names and root not in self._local else ""

    def provided(self, source: str, function: str) -> str:
        """Note that a function reads a hidden name of the scope.

        Returns:
            The place of this use, different from all others of the document.

        Raises:
            ExpressionError: `unknown_function`; the function means nothing here.
        """
        if source not in self._names:
            raise ExpressionError(
                f"`{function}` can't be used here",
                code="unknown_function",
                hint="only what a mock answers or changes can draw values and count",
            )
        self.used.add(source)
        self._provided += 1
        return f"{self._place}#{self._provided}"

    def keys(self, name: str) -> Keys | None:
        """The keys of a root name's value, where they are known beyond its own."""
        known = None if name in self._local else self._keys.get(name)
        return known if isinstance(known, Keys) else None

    def key(self, owner: Part, name: JSON) -> Keys | None:
        """Check a key that is read of a value whose keys are known.

        Returns:
            The keys of what stands under it.

        Raises:
            ExpressionError: `unknown_argument`, `unknown_row_key`.
        """
        known: Collection[str] | None = owner.keys
        if known is None and len(owner.path) == 1 and owner.path[0] not in self._local:
            known = self._keys.get(owner.path[0])
        if isinstance(name, str) and known is not None and name not in known:
            what = f"`{'.'.join(owner.path)}`" if owner.path else "this value"
            there = list_of_names(sorted(known), 20) if known else "none"
            code = "unknown_argument" if owner.keys is None else "unknown_row_key"
            message = f"{what} never has a key `{name}`; its keys are {there}"
            raise ExpressionError(message, code=code, hint=did_you_mean(name, known))
        return None if owner.keys is None else owner.keys.below(name if isinstance(name, str) else None)
