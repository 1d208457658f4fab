"""The variables of a mock's expressions, and the session's memory of a mocked tool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolcrib.core.clock import format_time
from toolcrib.core.model import JSON, NO_DEFINITIONS, Call, Descriptor, Result
from toolcrib.core.model import Collection as Rows
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.expressions.compiler import SHARED, KnownKeys, hidden_key_name, key_of_hidden_name
from toolcrib.expressions.functions import COUNTS, DRAWS, Chance
from toolcrib.expressions.values import CountedScope

if TYPE_CHECKING:
    from toolcrib.executors.mock.unit_of_work import UnitOfWork

Scope = Mapping[str, JSON]

NAMES = ("args", "attempt", "call", "now", "seed", "session", "state", "store")
"""The names that expressions of a mock may read."""

_OF_ONE_CALL = frozenset({"args", "attempt", "call"})
"""The names that definitions of a pack or project cannot read; a function gets them as arguments."""

_KEPT = frozenset({"state", "store", COUNTS})


def is_stateful(names: Collection[str]) -> bool:
    """Whether any name of a scope, including hidden ones, reads the state of the session."""
    return any(name in _KEPT or collection_of(name) for name in names)


def collection_of(name: str) -> str:
    """The collection that a hidden name refers to; empty for other names."""
    return key_of_hidden_name("store", name)


def names_for(tool: Descriptor) -> Mapping[str, Collection[str] | None]:
    """The names that expressions of a tool's mock may read, with their keys if known.

    The keys of `args` are known if the input schema is closed.
    """
    # A hidden name per collection lets `store.orders` read one collection without merging the others.
    known: dict[str, Collection[str] | None] = {
        COUNTS: None,
        DRAWS: None,
        "args": closed_names(tool.input_schema),
        "session": ("id", "calls"),
        "state": tuple(tool.fixture.machines),
        "store": tuple(tool.fixture.collections),
        **{hidden_key_name("store", name): _keys_of(each) for name, each in tool.fixture.collections.items()},
    }
    names = {**dict.fromkeys(NAMES), **known}
    definitions = tool.fixture.definitions
    if definitions is NO_DEFINITIONS:
        return names
    # Deferred: most packs define nothing.
    from toolcrib.expressions.definitions import definition_names  # noqa: PLC0415

    readable = {name: keys for name, keys in names.items() if name not in _OF_ONE_CALL}
    return {**names, **definition_names(definitions, readable)}


def _keys_of(collection: Rows) -> KnownKeys | None:
    if collection.schema is None or collection.fault:
        return None
    # Deferred: many stores have no schemas.
    from toolcrib.executors.mock.collection_schema import CollectionKeys  # noqa: PLC0415

    return CollectionKeys(collection.schema)


def as_text(value: JSON) -> str:
    """A value as text: text as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else compact(value)


class _Acts(OrderedDict[int, int]):
    """Number of a call -> how often it has acted, for the latest `MOST_ACTS` calls."""

    def setdefault(self, key: int, default: int = 0) -> int:
        """Register a call; drop the oldest if there are too many."""
        known = super().setdefault(key, default)
        if len(self) > MOST_ACTS:
            self.popitem(last=False)
        return known


MOST_ACTS = 10_000
"""The number of calls of one tool whose acts a session remembers."""


class MockState:
    """A session's memory of one mocked tool.

    Attributes:
        calls: The number of calls in the session; attempts of one call count once.
        used: Pointer of a rule -> the number of attempts that its replies have answered.
        answers: Value of `idempotent_by` -> the result of the first call with it. Never shrinks, because any
            of the values may come again as long as the session lives.
        acts: Number of a call that may be repeated -> how often it has acted.
    """

    __slots__ = ("acts", "answers", "calls", "used")

    def __init__(self) -> None:
        self.calls = 0
        self.used: dict[str, int] = {}
        self.answers: dict[Hashable, Result] = {}
        self.acts = _Acts()


def state_key(tool: str) -> str:
    """The slot of the session that holds the memory of a mocked tool."""
    return f"mock:{tool}"


class CallRandom:
    """The random numbers of one act of a call. They differ for each place of the document and each use of it.

    Draws are keyed, not taken from a stream: an attempt that never reached the tool, or a call of another
    tool, does not change them.
    """

    __slots__ = ("_call", "_number", "_uses")

    def __init__(self, call: Call, number: int) -> None:
        self._call = call
        self._number = number
        self._uses: dict[str, int] = {}

    def __call__(self, place: str) -> Chance:
        """The next draw at a place."""
        # Deferred: slow to import, and rarely used.
        from toolcrib.schema.keyed_random import KeyedRandom  # noqa: PLC0415

        call, number = self._call, self._number
        session, tool = call.context.session, call.tool.name
        # A mock that counts no acts has one act per attempt.
        acts = session.slot(state_key(tool), MockState).acts.get(number, call.attempt - 1)
        use = self._uses[place] = self._uses.get(place, 0) + 1
        return KeyedRandom(session.seed, session.id, tool, number, acts, place, use)


_READERS: dict[str, Callable[[Call, int], Any]] = {
    DRAWS: CallRandom,
    SHARED: lambda _call, _number: {},
    "args": lambda call, _number: call.arguments,
    "attempt": lambda call, _number: call.attempt,
    "call": lambda _call, number: number,
    "now": lambda call, _number: format_time(call.context.session.clock.now()),
    "seed": lambda call, _number: call.context.session.seed,
    "session": lambda call, _number: {"id": call.context.session.id, "calls": call.context.session.calls},
}


def scope_of(names: frozenset[str]) -> Callable[[Call, int], Scope]:
    """The function that creates the scope of a stateless call. Only the given names are computed."""
    if names <= {"args"}:
        return lambda call, _number: {"args": call.arguments}
    readers = [(name, _READERS[name]) for name in sorted(names) if name in _READERS]
    return lambda call, number: {name: read(call, number) for name, read in readers}


class StatefulScope(CountedScope):
    """The variables of a call with a stateful mock. Rows and states are live; others are computed once."""

    __slots__ = ("call", "number", "work")

    def __init__(self, call: Call, number: int, work: UnitOfWork) -> None:
        self.budget = work
        self["args"] = call.arguments
        self.call = call
        self.number = number
        self.work = work

    def __missing__(self, name: str) -> Any:
        # Not stored in the dict, so that every read sees the changes of the effects before it.
        if name == "store":
            return self.work.store()
        if name == "state":
            return self.work.states()
        if name == COUNTS:
            return self.work.count
        collection = collection_of(name)
        if collection:
            return self.work.rows(collection)
        value = self[name] = _READERS[name](self.call, self.number)
        return value

    @property
    def moment(self) -> datetime:
        """The time of the session's clock."""
        return self.call.context.session.clock.now()

    def later(self, moment: datetime, work: UnitOfWork) -> StatefulScope:
        """The scope of a pending effect of the call, which is due at a time."""
        scope = _LaterScope(self.call, self.number, work)
        scope["now"] = format_time(moment)
        scope.due = moment
        return scope


class _LaterScope(StatefulScope):
    """The variables of a pending effect. For it, the time is the one at which it is due."""

    __slots__ = ("due",)

    due: datetime

    @property
    def moment(self) -> datetime:
        """The time at which the effect is due."""
        return self.due


def with_arguments(scope: Scope, arguments: JSON) -> Scope:
    """The same scope with other arguments."""
    if isinstance(scope, StatefulScope):
        other = StatefulScope(scope.call, scope.number, scope.work)
        other["args"] = arguments
        return other
    return {**scope, "args": arguments}
