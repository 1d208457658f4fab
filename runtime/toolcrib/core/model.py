"""The values that everything else passes around. All of them are immutable.

They are named tuples, which cost a sixth of a frozen dataclass when the command line starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import error_for
from toolcrib.core.pointers import file_and_line, keys_of

if TYPE_CHECKING:
    from toolcrib.core.protocols import CallSession, Files
    from toolcrib.executors.client import ClientCall

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A JSON value: finite numbers, text without lone surrogates, keys that are text."""

Schema: TypeAlias = "dict[str, JSON] | bool"
"""A JSON Schema, as it was written."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The empty mapping that immutable values share."""


class Outcome(StrEnum):
    """How a call ended: a closed set. Each member has an error class and an exit code."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    INVALID_ARGUMENTS = "invalid_arguments"
    INVALID_RESULT = "invalid_result"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    NEEDS_APPROVAL = "needs_approval"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    OVERLOADED = "overloaded"
    LIMIT_EXCEEDED = "limit_exceeded"
    TRANSPORT_ERROR = "transport_error"
    UNKNOWN_OUTCOME = "unknown_outcome"
    UNMATCHED_MOCK = "unmatched_mock"
    INTERNAL = "internal"


_OK = Outcome.OK  # an attribute of an enumeration is slow to look up
_new: Any = tuple.__new__


class Content(NamedTuple):
    """One part of a result that is more than a value: what a model or a person is shown.

    Attributes:
        type: `text`, `image`, `audio` or `resource`.
        text: The text of a text part or of a text resource.
        data: Base64 of a binary part.
        mime_type: Media type of the part.
        uri: Where the part can be read, for resources and for images given by address.
        title: Caption or name for people.
    """

    type: Literal["text", "image", "audio", "resource"]
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None
    uri: str | None = None
    title: str | None = None

    def as_json(self) -> dict[str, JSON]:
        """The part as a JSON object; what it does not have is left out."""
        return {key: value for key, value in zip(self._fields, self, strict=True) if value is not None}


class Progress(NamedTuple):
    """How far a running call is. `total` is in the unit of `progress`, where it is known."""

    progress: float
    total: float | None = None
    message: str = ""


class Partial(NamedTuple):
    """A piece of a result that arrives before the result."""

    content: Content


class Failure(NamedTuple):
    """Why a call did not end `ok`.

    Attributes:
        code: Stable and machine-readable: the tool's own code, or the outcome and finer.
        message: One text, written for the reader who can act on it.
        details: Facts that belong to the code.
        retryable: Whether the same call may succeed later.
    """

    code: str
    message: str
    details: Mapping[str, JSON] = NOTHING
    retryable: bool = False

    def as_json(self) -> dict[str, JSON]:
        """The failure as a JSON object."""
        return {
            "code": self.code,
            "message": self.message,
            "details": dict(self.details),
            "retryable": self.retryable,
        }


class Usage(NamedTuple):
    """What a call cost.

    Attributes:
        attempts: How often the runtime tried; 0 if it never got so far.
        duration: Seconds on the call's clock, queueing and all attempts included.
    """

    attempts: int = 0
    duration: float = 0.0


NO_USAGE = Usage()


_SHOWN = 80
"""Characters of a value or message that the `repr` of a result holds."""


class Result(NamedTuple):
    """What came of a call.

    Attributes:
        outcome: How the call ended.
        value: The tool's answer; None unless the outcome is `ok`.
        content: Further parts: text, images, audio, resources.
        message: One line for a person; empty when the outcome is `ok`.
        error: Code, message, details; None when the outcome is `ok`.
        usage: Attempts and duration.
        meta: What the layers report: `repairs`, `mock`, `deprecated`, `warnings` ...
        raw_value: What the tool really answered, where the result check refused or changed it.
        tool: Name of the tool; empty until its call has ended.
    """

    outcome: Outcome
    value: JSON = None
    content: tuple[Content, ...] = ()
    message: str = ""
    error: Failure | None = None
    usage: Usage = NO_USAGE
    meta: Mapping[str, JSON] = NOTHING
    raw_value: JSON = None
    tool: str = ""

    def __repr__(self) -> str:
        """Outcome, tool and the value or message, cut to one line: `Result(ok, get_forecast, {"city": "Oslo", ...)`."""
        text = repr(self.value) if self.outcome is Outcome.OK else self.message
        line = " ".join(text[:_SHOWN].split())
        cut = "..." if len(text) > _SHOWN else ""
        return f"Result({', '.join(filter(None, (self.outcome.value, self.tool, line + cut)))})"

    @classmethod
    def ok(
        cls, value: JSON = None, *, content: tuple[Content, ...] = (), meta: Mapping[str, JSON] = NOTHING
    ) -> Result:
        """The result of a call that ended well."""
        return tuple.__new__(cls, (_OK, value, content, "", None, NO_USAGE, meta, None, ""))

    @classmethod
    def failed(
        cls,
        outcome: Outcome,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, JSON] = NOTHING,
        retryable: bool = False,
        content: tuple[Content, ...] = (),
        raw_value: JSON = None,
    ) -> Result:
        """The result of a call that did not; `code` is the outcome unless a finer one is given."""
        failure = Failure(code or outcome.value, message, details, retryable)
        return cls(outcome, None, content, message, failure, raw_value=raw_value)

    def with_usage(self, attempts: int, duration: float, tool: str = "") -> Result:
        """The same result with the cost of the call, and its tool. Made on every call, so without `_replace`."""
        outcome, value, content, message, error, _usage, meta, raw_value, known = self
        usage = _new(Usage, (attempts, duration))
        result: Result = _new(
            Result, (outcome, value, content, message, error, usage, meta, raw_value, tool or known)
        )
        return result

    def with_meta(self, **entries: JSON) -> Result:
        """The same result with further entries in `meta`."""
        return self._replace(meta={**self.meta, **entries})

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON document: `outcome, result, content, message, error, usage, meta`."""
        return {
            "outcome": self.outcome.value,
            "result": self.value,
            "content": [part.as_json() for part in self.content],
            "message": self.message,
            "error": None if self.error is None else self.error.as_json(),
            "usage": {"attempts": self.usage.attempts, "duration": round(self.usage.duration, 6)},
            "meta": dict(self.meta),
        }

    def raise_for_outcome(self) -> Result:
        """Return the result itself if its outcome is `ok`.

        Raises:
            CallError: The subclass that stands for the outcome.
        """
        if self.outcome is Outcome.OK:
            return self
        raise error_for(self.outcome)(self)


class TrustedAnswer(NamedTuple):
    """A good answer of a tool that vouches for it: all of it is JSON, and its objects and lists belong to nobody else.

    The layer `results` only asks whether it fits the output schema. It is not a `Result`, so that no part of it can be
    replaced on the way there.

    Attributes:
        value: The tool's answer.
        meta: What is told beside it.
    """

    value: JSON
    meta: Mapping[str, JSON] = NOTHING


def as_result(answer: Result | TrustedAnswer) -> Result:
    """An answer as a result."""
    return answer if isinstance(answer, Result) else Result.ok(answer.value, meta=answer.meta)


class Annotations(NamedTuple):
    """What a tool does to the world; the meaning and defaults of MCP's tool annotations.

    Attributes:
        read_only: It changes nothing.
        destructive: It may delete or overwrite; only meaningful when not `read_only`.
        idempotent: Calling it again with the same arguments changes nothing more.
        open_world: It reaches things outside a closed system.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Icon(NamedTuple):
    """A picture that clients may show beside a tool; the meaning of MCP's icons (2025-11-25, Icon).

    Attributes:
        src: Where it is: an `https:`, `http:` or `data:` URI.
        mime_type: Its media type, where `src` does not say it; empty for unsaid.
        sizes: Sizes in which it can be shown: `48x48`, or `any`; none for all.
        theme: `light` or `dark`, the background that it is made for; empty for any.
    """

    src: str
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    theme: str = ""

    def as_json(self) -> dict[str, JSON]:
        """The icon as a JSON object; what it does not say is left out."""
        told: dict[str, JSON] = {"src": self.src, "mime_type": self.mime_type, "sizes": list(self.sizes)}
        return {key: value for key, value in (told | {"theme": self.theme}).items() if value}


class Rate(NamedTuple):
    """So many calls in any stretch of so many seconds."""

    calls: int
    seconds: float


class Backoff(NamedTuple):
    """How long to wait before an attempt: a random part of a time that doubles.

    Attributes:
        first: Seconds, at most, before the second attempt.
        longest: Seconds, at most, before any attempt.
    """

    first: float = 0.2
    longest: float = 10.0


class Breaker(NamedTuple):
    """When an origin is given up for a while.

    Attributes:
        failures: So many in a row open the breaker.
        within: Seconds in which they happen.
        open_for: Seconds until one attempt is let through again.
    """

    failures: int = 5
    within: float = 30.0
    open_for: float = 30.0


class Bounds(NamedTuple):
    """How much may be under way; None is no bound.

    Attributes:
        rate: Calls in a stretch of time.
        concurrency: Calls at once.
        queue: Calls that wait for one of these.
    """

    rate: Rate | None = None
    concurrency: int | None = None
    queue: int | None = None


INPUT_SIZE = 4 * 1024 * 1024
"""Bytes of arguments, unless a document says otherwise."""

OUTPUT_SIZE = 16 * 1024 * 1024
"""Bytes of a result, unless a document says otherwise."""


class Limits(NamedTuple):
    """How large arguments and results may be; what a tool that reaches out may take, how it deals with what fails.

    Attributes:
        rate: Calls in a stretch of time; None for any number.
        concurrency: Calls at once.
        queue: Calls that may wait; one more is refused at once.
        attempts: Tries of a call that may be repeated; 1 for never again.
        backoff: How long to wait between them.
        retry_budget: Share of the calls of an origin that may be repeated, 0 to 1.
        breaker: When its origin is given up for a while; None for never.
        cache: Answers that are kept in each session, of a tool that only reads; 0 for none.
        origin: Bounds of all tools of the origin together.
        input_size: Bytes of the arguments as compact JSON; one value is allowed for every 4 bytes.
        output_size: Bytes of the result as compact JSON, and of a response while it is read; values likewise.
    """

    rate: Rate | None = None
    concurrency: int = 10
    queue: int = 100
    attempts: int = 3
    backoff: Backoff = Backoff()
    retry_budget: float = 0.2
    breaker: Breaker | None = Breaker()
    cache: int = 1000
    origin: Bounds = Bounds()
    input_size: int = INPUT_SIZE
    output_size: int = OUTPUT_SIZE


BUILT_IN_LIMITS = Limits()
"""The limits of tools of which nobody says any."""


class Example(NamedTuple):
    """A call that the author shows, checked at load and played by `toolcrib run`."""

    args: Mapping[str, JSON]
    result: JSON = None
    has_result: bool = False


def _nowhere(_pointer: str) -> tuple[int, int]:
    return (0, 0)


class Origin(NamedTuple):
    """Where a descriptor or scenario came from.

    Attributes:
        source: The file as it was named, or the name given to a text from memory.
        line: First line of the document, 1-based.
        digest: SHA-256 of the document's content in canonical JSON, and of the files that it names, in hex.
        pack: Name of the pack that holds it; empty outside packs.
        namespace: What stands before `__` in the names of the tools from there; empty for none.
        written: The keys that the document itself writes; those below `limits` with dots: `limits.breaker.failures`.
        settings: Key -> where its value came from, where it is not the document's own.
        overrides: Places of the documents that this one is laid over, the nearest first.
        stale: Why the last good version is still in force although the file has changed; empty if it is current.
        files: The files that relative paths in the document name; None for a lone text from memory.
        locate: JSON Pointer -> (line, column), worked out when asked.
    """

    source: str = "<memory>"
    line: int = 1
    digest: str = ""
    pack: str = ""
    namespace: str = ""
    written: frozenset[str] = frozenset()
    settings: Mapping[str, str] = NOTHING
    overrides: tuple[str, ...] = ()
    stale: str = ""
    files: Files | None = None
    locate: Callable[[str], tuple[int, int]] = _nowhere

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self[:_TOLD] == other[:_TOLD]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:_TOLD])

    @property
    def is_composed(self) -> bool:
        """Whether the document was put together of parts of several files, as those of PromptKit are."""
        return bool(getattr(getattr(self.locate, "__self__", None), "is_composed", False))

    def place(self, pointer: str = "") -> str:
        """`file:line` of a place in the document."""
        # What was put together of several files knows it itself.
        composed: Callable[[str], str] | None = getattr(
            getattr(self.locate, "__self__", None), "place_of", None
        )
        if composed is not None:
            return composed(pointer)
        line = self.locate(pointer)[0] or self.line
        return f"{self.file_of(pointer)}:{line}"

    def file_of(self, pointer: str) -> str:
        """The file that a place stands in: `source`, or that of a document below which wrote it."""
        key = next(iter(keys_of(pointer)), "") if self.overrides else ""
        file = _file(self.settings.get(key, ""))
        return file if file in map(_file, self.overrides) else self.source


def _file(place: str) -> str:
    return file_and_line(place)[0]


_TOLD = -2
"""How a file is read, and where places lie in it, make no difference between two origins."""


class Toolset(NamedTuple):
    """A named selection of tools.

    Attributes:
        name: Names it.
        description: What it is for.
        tools: Globs over the names of tools.
        place: `file:line` of where it is written.
    """

    name: str
    description: str = ""
    tools: tuple[str, ...] = ()
    place: str = ""


_CLOSED: Schema = {"type": "object", "additionalProperties": False}


class Collection(NamedTuple):
    """Rows that mocks read and change, as a document declares them: what each session begins with.

    Attributes:
        name: What expressions call it: `store.orders`.
        id: Tells it from the collections of other packs: `retail/orders`; `/orders` outside packs.
        key: The field that holds a row's key; empty where rows stand under their keys, or are numbered from 1.
        schema: JSON Schema of a row; None accepts any object.
        rows: Key -> row, or what reads them (of a collection from the index, whose file is read when a mock first asks);
            None if something is wrong with them.
        file: The file that has them, its `${VAR}` looked up; empty where they are written in place.
        anywhere: Whether the operator named the file (a `${VAR}` that is set), so that it may lie anywhere.
        digest: SHA-256 of the rows and of what is said of them, in hex; empty where something is wrong with them.
        fault: What is wrong with the rows, so that nobody can have them; empty where all is well.
        pointer: Where the collection stands in the document of `origin`.
        origin: The document that declares it.
    """

    name: str
    id: str
    key: str = ""
    schema: Schema | None = None
    rows: Mapping[str, JSON] | Callable[[], Mapping[str, JSON]] | None = None
    file: str = ""
    anywhere: bool = False
    digest: str = ""
    fault: str = ""
    pointer: str = ""
    origin: Origin = Origin()

    def __eq__(self, other: object) -> bool:
        # The digest stands for the rows, which may not have been read yet.
        return isinstance(other, Collection) and self._told() == other._told()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.id, self.digest, self.fault))

    def _told(self) -> tuple[object, ...]:
        rows = None if self.digest else self.rows
        return (self[:_ROWS], rows, self[_ROWS + 1 :])


_ROWS = 4
"""Where the rows of a collection stand."""


class Machine(NamedTuple):
    """A named state of a session: where it begins, and what it can be.

    Attributes:
        name: What expressions call it: `state.cart`.
        id: Tells it from those of other packs: `retail/cart`.
        start: The state of a fresh session.
        states: All states that it can have; empty for any text.
    """

    name: str
    id: str
    start: str
    states: tuple[str, ...] = ()


class Fixture(NamedTuple):
    """What the store of a fresh session holds, for the mocks of one pack or project.

    Attributes:
        collections: Name -> collection.
        machines: Name -> named state.
    """

    collections: Mapping[str, Collection] = NOTHING
    machines: Mapping[str, Machine] = NOTHING


NO_FIXTURE = Fixture()
"""Nothing is kept."""


class InjectedFault(NamedTuple):
    """A way in which the world fails, put around a tool by a scenario.

    Attributes:
        name: Names it in reports.
        tool: Name or glob of the tools.
        inject: What happens, as written: a kind, or `{kind: options}`.
        when: On which attempts, as written; empty for all.
        must_fire: Whether a run in which it never happened has failed.
        pointer: Where it stands in the document of `origin`.
        origin: The document that says so.
    """

    name: str
    tool: str
    inject: JSON
    when: Mapping[str, JSON] = NOTHING
    must_fire: bool = True
    pointer: str = ""
    origin: Origin = Origin()


class Descriptor(NamedTuple):
    """A tool, as its file describes it.

    Attributes:
        name: Unique in a registry.
        icons: Pictures that clients may show.
        input_schema: JSON Schema of the arguments; a closed empty object unless given.
        output_schema: JSON Schema of the result; None accepts any JSON value.
        mode: The mode in force; None for an unbound tool.
        bindings: Mode -> the block of that mode, as written.
        timeout: Deadline of one call in seconds.
        limits: Attempts, rates, places and answers that are kept, where calls reach out.
        coerce: How far arguments are repaired: `off`, `safe`, `lenient`.
        on_invalid_result: What becomes of a result that the output schema refuses: `error`, `warn`, `pass`.
        labels: Key -> value, for queries.
        metadata: Anything; kept and shown, never interpreted.
        fixture: What its mock's store begins with: that of its pack or project.
        faults: What a scenario lets go wrong with it, the first that is due counts.
        origin: Where the descriptor came from.
    """

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    help_url: str = ""
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = NOTHING
    category: str = ""
    annotations: Annotations = Annotations()
    icons: tuple[Icon, ...] = ()
    input_schema: Schema = _CLOSED
    output_schema: Schema | None = None
    mode: str | None = None
    bindings: Mapping[str, JSON] = NOTHING
    timeout: float = 30.0
    limits: Limits = BUILT_IN_LIMITS
    coerce: Literal["off", "safe", "lenient"] = "safe"
    on_invalid_result: Literal["error", "warn", "pass"] = "error"
    examples: tuple[Example, ...] = ()
    deprecated: bool | str = False
    experimental: bool = False
    metadata: Mapping[str, JSON] = NOTHING
    fixture: Fixture = NO_FIXTURE
    faults: tuple[InjectedFault, ...] = ()
    origin: Origin = Origin()

    def __repr__(self) -> str:
        """Name, mode, arguments and origin: `Descriptor('get_forecast', mode='mock', arguments=['city', 'days'], ...)`."""
        properties = self.input_schema.get("properties") if isinstance(self.input_schema, dict) else None
        arguments = list(properties) if isinstance(properties, dict) else []
        place = f"{self.origin.source}:{self.origin.line}"
        return f"Descriptor({self.name!r}, mode={self.mode!r}, arguments={arguments!r}, origin={place!r})"


Client: TypeAlias = "Callable[[ClientCall], Awaitable[JSON | Result]]"
"""Fulfils the calls of tools in mode `client`: a coroutine function that answers a value, or a Result."""


class CallContext(NamedTuple):
    """Who calls, and within what. Shared by the calls of one session and caller.

    Attributes:
        session: Memory of mocks, counters, clock and seed.
        correlation: Ties calls of several systems together; of a call of a conversation its id there.
        user: On whose behalf.
        caller: Which agent, face or program.
        grants: Permissions that were given for these calls.
        trace: Trace headers to pass on (W3C trace context).
        passthrough: Whether a mock may hand these calls on to another binding of its tool.
        emit: Receives what arrives before the result.
        client: Fulfils calls of tools in mode `client`; None where nobody does.
        can_wait: Whether the caller can wait; without an event loop nothing may be awaited.
    """

    session: CallSession
    correlation: str = ""
    user: str = ""
    caller: str = ""
    grants: frozenset[str] = frozenset()
    trace: Mapping[str, str] = NOTHING
    passthrough: bool = False
    emit: Callable[[Progress | Partial], None] = lambda _event: None
    client: Client | None = None
    can_wait: bool = True


class StaleAnswer(NamedTuple):
    """An answer of before that a cache has, too old to be given without asking.

    Attributes:
        result: The answer.
        validators: Request header -> value that asks whether it still holds: `If-None-Match`, `If-Modified-Since`.
    """

    result: Result
    validators: Mapping[str, str] = NOTHING


class Call(NamedTuple):
    """One call on its way through the layers. A layer that changes it passes a replaced copy.

    Attributes:
        tool: The descriptor.
        arguments: What the agent asked, then with defaults and repairs.
        context: Who calls, and within what.
        id: Unique within the runtime.
        attempt: 1 for the first try of the runtime.
        deadline: On the session's clock, in seconds; None for none.
        kept: What a cache has for this call, to be asked about.
    """

    tool: Descriptor
    arguments: dict[str, JSON]
    context: CallContext
    id: str = ""
    attempt: int = 1
    deadline: float | None = None
    kept: StaleAnswer | None = None

    def with_arguments(self, arguments: dict[str, JSON]) -> Call:
        """The same call with other arguments. Made on many calls, so without `_replace`."""
        tool, _arguments, context, number, attempt, deadline, kept = self
        return tuple.__new__(Call, (tool, arguments, context, number, attempt, deadline, kept))
