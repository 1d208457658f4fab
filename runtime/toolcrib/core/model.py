"""The immutable values that all other modules exchange: calls, results, descriptors and their parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar, overload

from toolcrib.core.errors import ConfigurationError, error_for
from toolcrib.core.pointers import file_and_line, keys_of

if TYPE_CHECKING:
    from socket import socket

    import httpx

    from toolcrib.core.protocols import CallSession, Files, ToolServices
    from toolcrib.executors.client import ClientCall
    from toolcrib.security.approvals import Answer, Pending

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A JSON value: numbers are finite, strings have no lone surrogates, keys are strings."""

_T = TypeVar("_T")

Schema: TypeAlias = "dict[str, JSON] | bool"
"""A JSON Schema, as written in its document."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""An immutable empty mapping, the default of mapping attributes."""


class Outcome(StrEnum):
    """How a call ended. A closed set: each member has an exit code and, except `ok`, an error class."""

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


# Attributes of an enumeration are slow to look up, and every successful call needs this one.
_OK = Outcome.OK
# Skips the constructors of named tuples, which bind keyword arguments and defaults again.
_new: Any = tuple.__new__


# The values are named tuples because creating a frozen dataclass takes six times as long, and every start of the
# command line creates all of these classes.
class Content(NamedTuple):
    """One content part of a result, to be shown to a model or a person.

    Attributes:
        type: `text`, `image`, `audio` or `resource`.
        text: Text of a text part or a text resource.
        data: Data of a binary part, in base64.
        mime_type: Media type of the part.
        uri: Address of a resource, or of an image that is not embedded.
        title: Caption or display name.
    """

    type: Literal["text", "image", "audio", "resource"]
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None
    uri: str | None = None
    title: str | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the part as a JSON object without the attributes that are None."""
        return {key: value for key, value in zip(self._fields, self, strict=True) if value is not None}


class Progress(NamedTuple):
    """Progress of a running call.

    Attributes:
        progress: Work done so far, in any unit.
        total: Total work in the same unit; None if unknown.
        message: Status text for a person.
    """

    progress: float
    total: float | None = None
    message: str = ""


class Partial(NamedTuple):
    """A content part that a call emits before its result.

    Attributes:
        content: The part.
    """

    content: Content


class Failure(NamedTuple):
    """Why a call did not end `ok`.

    Attributes:
        code: Stable error code: the tool's own, the outcome, or a more specific code of toolcrib.
        message: What went wrong, written for the reader who can fix it.
        details: Structured data about the error, depending on the code.
        retryable: Whether the same call may succeed later.
    """

    code: str
    message: str
    details: Mapping[str, Any] = NOTHING
    retryable: bool = False

    def as_json(self) -> dict[str, JSON]:
        """Return the failure as a JSON object."""
        return {
            "code": self.code,
            "message": self.message,
            "details": dict(self.details),
            "retryable": self.retryable,
        }


class Usage(NamedTuple):
    """Attempts and duration of a call.

    What the process of a call used is known if a program or a worker process ran it, and what it sent and received if it
    ran over HTTP, MCP or A2A, or used `context.http`; see `MeasuredUsage`.

    Attributes:
        attempts: Number of attempts; 0 if the call ended before the first.
        duration: Seconds on the session's clock, including queueing and all attempts.
    """

    attempts: int = 0
    duration: float = 0.0

    @property
    def memory(self) -> int | None:
        """Peak memory of the process in bytes, as far as it was measured; None if unknown."""
        return None

    @property
    def cpu_time(self) -> float | None:
        """Seconds of processor time of the process and of those that it started; None if unknown."""
        return None

    @property
    def written_bytes(self) -> int | None:
        """Bytes that they wrote, to files, pipes and sockets; None if unknown."""
        return None

    @property
    def processes(self) -> int | None:
        """The most processes at the same time, as far as they were measured; None if unknown."""
        return None

    @property
    def remote_time(self) -> float | None:
        """Seconds that a remote agent reports for its work; None if unknown."""
        return None

    @property
    def requests(self) -> int | None:
        """Requests that were sent over HTTP or MCP, in all attempts; None if the mode sends none."""
        return None

    @property
    def sent_bytes(self) -> int | None:
        """Bytes of these requests: over HTTP with headers and without TLS, over stdio the messages; None if unknown."""
        return None

    @property
    def received_bytes(self) -> int | None:
        """Bytes of the responses, counted likewise; None if unknown."""
        return None

    def measured(self, values: Mapping[str, Any]) -> Usage:
        """Return the same usage with further measured values, by name."""
        return MeasuredUsage.of(self.attempts, self.duration, values)

    def counted(self, attempts: int, duration: float) -> Usage:
        """Return the same usage with other attempts and another duration."""
        return _new(Usage, (attempts, duration))  # type: ignore[no-any-return]

    def as_json(self) -> dict[str, JSON]:
        """Return the usage as a JSON object without the values that are unknown."""
        measured = {name: getattr(self, name) for name in _MEASURED}
        known = {name: value for name, value in measured.items() if value is not None}
        return {"attempts": self.attempts, "duration": round(self.duration, 6), **known}


_MEASURED = (
    "memory",
    "cpu_time",
    "written_bytes",
    "processes",
    "remote_time",
    "requests",
    "sent_bytes",
    "received_bytes",
)


class MeasuredUsage(Usage):
    """The usage of a call, with what was measured of its process and its requests, or what a remote agent reported."""

    # Not fields: a call that no process ran must not take longer.
    _values: Mapping[str, Any] = NOTHING

    @classmethod
    def of(cls, attempts: int, duration: float, values: Mapping[str, Any]) -> MeasuredUsage:
        """Create a usage with the measured values by name."""
        usage: MeasuredUsage = _new(cls, (attempts, duration))
        usage._values = values
        return usage

    @property
    def memory(self) -> int | None:
        """See `Usage.memory`."""
        return self._values.get("memory")

    @property
    def cpu_time(self) -> float | None:
        """See `Usage.cpu_time`."""
        return self._values.get("cpu_time")

    @property
    def written_bytes(self) -> int | None:
        """See `Usage.written_bytes`."""
        return self._values.get("written_bytes")

    @property
    def processes(self) -> int | None:
        """See `Usage.processes`."""
        return self._values.get("processes")

    @property
    def remote_time(self) -> float | None:
        """See `Usage.remote_time`."""
        return self._values.get("remote_time")

    @property
    def requests(self) -> int | None:
        """See `Usage.requests`."""
        return self._values.get("requests")

    @property
    def sent_bytes(self) -> int | None:
        """See `Usage.sent_bytes`."""
        return self._values.get("sent_bytes")

    @property
    def received_bytes(self) -> int | None:
        """See `Usage.received_bytes`."""
        return self._values.get("received_bytes")

    def measured(self, values: Mapping[str, Any]) -> Usage:
        """See `Usage.measured`."""
        return self.of(self.attempts, self.duration, {**self._values, **values})

    def counted(self, attempts: int, duration: float) -> Usage:
        """See `Usage.counted`."""
        return self.of(attempts, duration, self._values)


NO_USAGE = Usage()


_SHOWN = 80
"""Maximum number of characters of the value or message in the `repr` of a result."""


class Result(NamedTuple):
    """The result of a call.

    `if result.ok:` asks whether the call was successful; `if result:` raises TypeError.

    Attributes:
        outcome: How the call ended.
        value: The JSON value that the tool returned; None unless the outcome is `ok`.
        content: Content parts in addition to the value: text, images, audio, resources.
        message: One line for a person; empty if the outcome is `ok`.
        error: Code, message and details of the failure; None if the outcome is `ok`.
        usage: Attempts and duration.
        meta: Reports of the layers, such as `repairs`, `mock`, `deprecated` and `warnings`.
        raw_value: The tool's original value, if the result check rejected or changed it.
        tool: Name of the tool; empty until the call has ended.
    """

    # `Any`, not `JSON`: only the tool's output schema knows the type, and `result.value["daily"][0]` needs no cast. `into` reads
    # the value as a type.
    outcome: Outcome
    value: Any = None
    content: tuple[Content, ...] = ()
    message: str = ""
    error: Failure | None = None
    usage: Usage = NO_USAGE
    meta: Mapping[str, Any] = NOTHING
    raw_value: Any = None
    tool: str = ""

    @property
    def ok(self) -> bool:
        """Whether the call was successful: the outcome is `ok`."""
        return self.outcome is _OK

    def __bool__(self) -> NoReturn:
        # As a failed result cannot be false without `refusal or call_next(call)` making the refused call.
        raise TypeError("a result is neither true nor false; use `result.ok`, or compare it with None")

    def __repr__(self) -> str:
        """Return one line: `Result(ok, get_forecast, {'city': 'Oslo', ...)`."""
        text = repr(self.value) if self.outcome is Outcome.OK else self.message
        line = " ".join(text[:_SHOWN].split())
        cut = "..." if len(text) > _SHOWN else ""
        return f"Result({', '.join(filter(None, (self.outcome.value, self.tool, line + cut)))})"

    @classmethod
    def success(
        cls, value: JSON = None, *, content: tuple[Content, ...] = (), meta: Mapping[str, JSON] = NOTHING
    ) -> Result:
        """Return the result of a successful call.

        Args:
            value: The value that the tool returned.
            content: Content parts in addition to the value.
            meta: Entries of `meta`.
        """
        return tuple.__new__(cls, (_OK, value, content, "", None, NO_USAGE, meta, None, ""))

    @classmethod
    def failure(
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
        """Return the result of a failed call.

        Args:
            outcome: How the call ended; any outcome but `ok`.
            message: What went wrong.
            code: Error code; by default the outcome.
            details: Structured data about the error.
            retryable: Whether the same call may succeed later.
            content: Content parts.
            raw_value: The tool's original value, if it was rejected.
        """
        failure = Failure(code or outcome.value, message, details, retryable)
        return cls(outcome, None, content, message, failure, raw_value=raw_value)

    def with_usage(self, attempts: int, duration: float, tool: str = "") -> Result:
        """Return the same result with attempts, duration and, if given, the name of its tool."""
        # Runs on every call: 0.7 us instead of 1.1 us with `_replace`.
        outcome, value, content, message, error, before, meta, raw_value, known = self
        usage = (
            _new(Usage, (attempts, duration)) if type(before) is Usage else before.counted(attempts, duration)
        )
        result: Result = _new(
            Result, (outcome, value, content, message, error, usage, meta, raw_value, tool or known)
        )
        return result

    def with_meta(self, **entries: JSON) -> Result:
        """Return the same result with additional entries in `meta`."""
        return self._replace(meta={**self.meta, **entries})

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object: `outcome, result, content, message, error, usage, meta`."""
        # `raw_value` is omitted: it is only for the person who repairs the tool.
        return {
            "outcome": self.outcome.value,
            "result": self.value,
            "content": [part.as_json() for part in self.content],
            "message": self.message,
            "error": None if self.error is None else self.error.as_json(),
            "usage": self.usage.as_json(),
            "meta": dict(self.meta),
        }

    def raise_for_outcome(self) -> Result:
        """Return the result if its outcome is `ok`, and raise otherwise.

        Returns:
            The result itself, so that calls can be chained.

        Raises:
            CallError: The subclass of the outcome.
        """
        if self.outcome is Outcome.OK:
            return self
        raise error_for(self.outcome)(self)

    @overload
    def into(self, kind: type[_T]) -> _T: ...

    @overload
    def into(self, kind: object) -> Any: ...

    def into(self, kind: object) -> Any:
        """Return the value as a dataclass, TypedDict, pydantic model or any other type that pydantic can read.

            forecast = (await tools.call("get_forecast", {"city": "Oslo"})).into(Forecast)

        Needs the extra `typed`.

        Args:
            kind: The type.

        Raises:
            CallError: The outcome is not `ok`; the subclass of the outcome.
            InvalidResult: The type refuses the value. The message lists every wrong field; `result.raw_value` of the
                error is the value.
            ConfigurationError: pydantic cannot read the type, or is not installed (`missing_extra`).
        """
        # Imported by name: the core has no types of Python, and most programs never ask for one.
        return import_module("toolcrib.schema.from_types").read_result(self.raise_for_outcome(), kind)


class TrustedAnswer(NamedTuple):
    """A successful answer that its tool guarantees to be valid JSON and unshared.

    The layer `results` checks only that it matches the output schema.

    Attributes:
        value: The value that the tool returned.
        meta: Entries for the `meta` of the result.
    """

    # Not a `Result`, so that no layer inside `results` can replace a part that the tool has guaranteed.

    value: JSON
    meta: Mapping[str, JSON] = NOTHING


ToolAnswer: TypeAlias = Result | TrustedAnswer
"""What a tool answers."""

ANSWERS: Final = (TrustedAnswer, Result)
"""The types of a `ToolAnswer`, for `isinstance`: an awaitable of one is none of them."""


def as_result(answer: ToolAnswer) -> Result:
    """Return the answer as a `Result`."""
    return answer if isinstance(answer, Result) else Result.success(answer.value, meta=answer.meta)


class Annotations(NamedTuple):
    """Side effects of a tool, with the meaning and defaults of MCP's tool annotations.

    Attributes:
        read_only: The tool changes nothing.
        destructive: The tool may delete or overwrite data; only meaningful if it is not `read_only`.
        idempotent: Repeating a call with the same arguments has no further effect.
        open_world: The tool interacts with external systems, such as the web.
    """

    # The pessimistic defaults are those of MCP: a tool without annotations may be destructive.

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Icon(NamedTuple):
    """An icon that clients may show next to a tool, as MCP defines it (2025-11-25, Icon).

    Attributes:
        src: Address of the image: an `https:`, `http:` or `data:` URI.
        mime_type: Media type of the image; empty if `src` implies it or it is unknown.
        sizes: Sizes at which it can be shown, such as `48x48` or `any`; empty for all sizes.
        theme: Background that it is made for, `light` or `dark`; empty for both.
    """

    src: str
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    theme: str = ""

    def as_json(self) -> dict[str, JSON]:
        """Return the icon as a JSON object without empty attributes."""
        told: dict[str, JSON] = {"src": self.src, "mime_type": self.mime_type, "sizes": list(self.sizes)}
        return {key: value for key, value in (told | {"theme": self.theme}).items() if value}


class Rate(NamedTuple):
    """A rate limit: at most `calls` calls in any period of `seconds` seconds.

    Attributes:
        calls: Maximum number of calls.
        seconds: Length of the period.
    """

    calls: int
    seconds: float


class Backoff(NamedTuple):
    """Delay between attempts: exponential backoff with jitter.

    The maximum doubles after each attempt, and the actual delay is a random part of it.

    Attributes:
        first: Maximum delay before the second attempt, in seconds.
        longest: Maximum delay before any attempt, in seconds.
    """

    # The jitter keeps clients that failed together from retrying together.

    first: float = 0.2
    longest: float = 10.0


class Breaker(NamedTuple):
    """Circuit breaker of an origin.

    Attributes:
        failures: Number of consecutive failures that open the breaker.
        within: Seconds within which they must happen.
        open_for: Seconds until one trial attempt is allowed.
    """

    failures: int = 5
    within: float = 30.0
    open_for: float = 30.0


class Bounds(NamedTuple):
    """Limits on the calls of an origin; None means unlimited.

    Attributes:
        rate: Maximum rate of calls.
        concurrency: Maximum number of concurrent calls.
        queue: Maximum number of waiting calls.
    """

    rate: Rate | None = None
    concurrency: int | None = None
    queue: int | None = None


INPUT_SIZE = 4 * 1024 * 1024
"""Default limit on the size of arguments, in bytes."""

OUTPUT_SIZE = 16 * 1024 * 1024
"""Default limit on the size of a result, in bytes."""


class Limits(NamedTuple):
    """Size limits of a tool, and the rate, retry and cache settings of a tool that makes external calls.

    Attributes:
        rate: Maximum rate of calls; None for unlimited.
        concurrency: Maximum number of concurrent calls.
        queue: Maximum number of waiting calls; further calls are refused immediately.
        attempts: Maximum attempts of a repeatable call; 1 disables retries.
        backoff: Delay between attempts.
        retry_budget: Share of an origin's calls that may be retried, from 0 to 1.
        breaker: Circuit breaker of the origin; None disables it.
        cache: Number of results cached per session, for read-only tools; 0 disables the cache.
        origin: Limits that all tools of the same origin share.
        input_size: Maximum size of the arguments in bytes of compact JSON, with at most one value per 4 bytes.
        output_size: Maximum size of the result in bytes of compact JSON, with at most one value per 4 bytes. It
            also limits a response while it is read.
        output_items: Maximum number of items of the result: of its list, of the longest list in its object, or of its
            content parts; None for unlimited.
        memory: Maximum memory in bytes of a process that runs the tool; None for unlimited.
        cpu_time: Maximum processor time of it in seconds; None for unlimited.
        open_files: Maximum number of files that it has open; None for unlimited.
        written_bytes: Maximum number of bytes that it writes; None for unlimited.
        processes: Maximum number of processes that it consists of; None for unlimited.
    """

    # The number of values is limited as well because a small text can hold many: `[[],[],[]...` takes 3 bytes of
    # text for each list, and 56 bytes of memory.

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
    output_items: int | None = None
    memory: int | None = None
    cpu_time: float | None = None
    open_files: int | None = None
    written_bytes: int | None = None
    processes: int | None = None


BUILT_IN_LIMITS = Limits()
"""The limits of a tool whose documents configure none."""


class Example(NamedTuple):
    """An example call in a descriptor, checked when it is loaded and run by `toolcrib run`.

    Attributes:
        args: Arguments of the call.
        result: Expected value.
        has_result: Whether `result` is given, since None is a valid value.
    """

    args: Mapping[str, JSON]
    result: JSON = None
    has_result: bool = False


class Dependencies(NamedTuple):
    """What must be present where a tool runs.

    Attributes:
        packages: Python distributions with their accepted versions: `pandas>=2.1,<3`.
        commands: Programs in the search path.
        tools: Other tools, which must be available.
        environment: Environment variables that must be set.
    """

    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


NO_DEPENDENCIES = Dependencies()
"""The dependencies of a tool that declares none."""


class Estimate(NamedTuple):
    """The expected use of one call; None if it is not declared.

    Attributes:
        duration: Seconds.
        cost: US dollars.
        output: Size of the result in bytes.
    """

    duration: float | None = None
    cost: float | None = None
    output: int | None = None


NO_ESTIMATE = Estimate()
"""The estimate of a tool that declares none."""


def _nowhere(_pointer: str) -> tuple[int, int]:
    return (0, 0)


class Origin(NamedTuple):
    """Where a descriptor or scenario comes from.

    Attributes:
        source: The file as the caller named it, or the name of an in-memory document.
        line: First line of the document, from 1.
        digest: SHA-256 of the document in canonical JSON and of the files that it names, in hex.
        pack: Name of the pack that contains it; empty outside packs.
        namespace: Prefix before `__` in the names of its tools; empty for none.
        written: Keys that the document itself sets; those below `limits` are dotted: `limits.breaker.failures`.
        settings: Key -> source of its value, for values that the document does not set itself.
        overrides: Places of the documents that this one overrides, nearest first.
        stale: Why the last valid version is active although the file has changed; empty if it is current.
        files: Resolves relative paths in the document; None for a single in-memory document.
        locate: JSON Pointer -> (line, column), computed on request.
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

    # tuple defines its own `__ne__`, which would compare `files` and `locate` as well.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:_TOLD])

    @property
    def is_composed(self) -> bool:
        """Whether the document is assembled from several files, as PromptKit documents are."""
        # `locate` is a method of a document in `loading`, which this package must not import.
        return bool(getattr(getattr(self.locate, "__self__", None), "is_composed", False))

    def place(self, pointer: str = "") -> str:
        """Return `file:line` of a JSON Pointer in the document."""
        # Only the reader of a document assembled from several files knows which file a pointer leads to.
        composed: Callable[[str], str] | None = getattr(
            getattr(self.locate, "__self__", None), "place_of", None
        )
        if composed is not None:
            return composed(pointer)
        line = self.locate(pointer)[0] or self.line
        return f"{self.file_of(pointer)}:{line}"

    def file_of(self, pointer: str) -> str:
        """Return the file that contains a JSON Pointer: `source`, or an overridden document that sets the value."""
        # A setting can also come from a pack or a project file, which does not contain the place itself.
        key = next(iter(keys_of(pointer)), "") if self.overrides else ""
        file = _file(self.settings.get(key, ""))
        return file if file in map(_file, self.overrides) else self.source


def _file(place: str) -> str:
    return file_and_line(place)[0]


_TOLD = -2
"""End of the compared attributes: `files` and `locate` give access to a file and do not identify it."""


class Toolset(NamedTuple):
    """A named selection of tools.

    Attributes:
        name: Name of the toolset.
        description: What it is for.
        tools: Globs that match the names of tools.
        place: `file:line` of its definition.
    """

    name: str
    description: str = ""
    tools: tuple[str, ...] = ()
    place: str = ""


_CLOSED: Schema = {"type": "object", "additionalProperties": False}


class Collection(NamedTuple):
    """Rows that mocks read and change, as a document declares them. Every session starts with these rows.

    Attributes:
        name: Name in expressions: `orders` for `store.orders`.
        id: Unique name across packs: `retail/orders`; `/orders` outside packs.
        key: Field that contains the key of a row; empty if the document maps keys to rows or numbers them from 1.
        schema: JSON Schema of a row; None accepts any object.
        rows: Key -> row, or a function that reads the file on first use (for a collection loaded from the
            index); None if the rows are invalid.
        file: File that contains the rows, with `${VAR}` resolved; empty if they are inline.
        anywhere: Whether the operator chose the file (with a `${VAR}` that is set), so that it may be outside
            the folder of the document.
        digest: SHA-256 of the rows and their declaration, in hex; empty if the rows are invalid.
        fault: Why the rows cannot be used; empty if they are valid.
        pointer: JSON Pointer of the collection in the document of `origin`.
        origin: The document that declares the collection.
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
        # The digest is compared instead of the rows: reading the file of each collection would defeat the index.
        return isinstance(other, Collection) and self._told() == other._told()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.id, self.digest, self.fault))

    def _told(self) -> tuple[object, ...]:
        rows = None if self.digest else self.rows
        return (self[:_ROWS], rows, self[_ROWS + 1 :])


_ROWS = 4
"""Index of `rows` in a collection."""


class Machine(NamedTuple):
    """A named state that mocks share within a session.

    Attributes:
        name: Name in expressions: `cart` for `state.cart`.
        id: Unique name across packs: `retail/cart`.
        start: State of a new session.
        states: All valid states; empty if any text is valid.
    """

    name: str
    id: str
    start: str
    states: tuple[str, ...] = ()


class SharedDefinitions(NamedTuple):
    """Values and functions that the mocks of one pack or project share, as written.

    Attributes:
        let: Name -> value.
        define: Name -> `{parameters, value}`.
        places: Name -> file and line of the definition.
    """

    let: Mapping[str, JSON] = NOTHING
    define: Mapping[str, Any] = NOTHING
    places: Mapping[str, str] = NOTHING


NO_DEFINITIONS = SharedDefinitions()
"""The definitions of a pack or project that shares nothing."""


class Fixture(NamedTuple):
    """Initial contents of a session's store, and the definitions, for the mocks of one pack or project.

    Attributes:
        collections: Name -> collection.
        machines: Name -> named state.
        definitions: Values and functions that the mocks share.
    """

    collections: Mapping[str, Collection] = NOTHING
    machines: Mapping[str, Machine] = NOTHING
    definitions: SharedDefinitions = NO_DEFINITIONS

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all collections and machines."""
        return frozenset(each.id for kept in (self.collections, self.machines) for each in kept.values())


NO_FIXTURE = Fixture()
"""The fixture of a tool whose mocks keep no data."""


class InjectedFault(NamedTuple):
    """A fault that a scenario injects into the calls of a tool.

    Attributes:
        name: Name in reports.
        tool: Name or glob of the tools.
        inject: The fault, as written: a kind, or `{kind: options}`.
        when: Which attempts are affected, as written; empty for all.
        must_fire: Whether a run fails if the fault never occurs.
        pointer: JSON Pointer of the fault in the document of `origin`.
        origin: The document that declares the fault.
    """

    name: str
    tool: str
    inject: JSON
    when: Mapping[str, JSON] = NOTHING
    must_fire: bool = True
    pointer: str = ""
    origin: Origin = Origin()


class Descriptor(NamedTuple):
    """A tool, as its descriptor file defines it.

    Attributes:
        name: Name of the tool, unique in a registry.
        icons: Icons that clients may show.
        input_schema: JSON Schema of the arguments; by default, an object without properties.
        output_schema: JSON Schema of the result; None accepts any JSON value.
        mode: The active mode; None for an unbound tool.
        bindings: Mode -> the block of that mode, as written.
        timeout: Deadline of one call, in seconds.
        limits: Size limits, and the rate, retry and cache settings of external calls.
        coerce: How far invalid arguments are repaired: `off`, `safe` or `lenient`.
        on_invalid_result: How to handle a result that does not match the output schema: `error`, `warn` or `pass`.
        labels: Key -> value, for queries.
        capabilities: What calls use outside the program: as declared, else what the blocks need.
        platforms: Operating systems that the tool runs on; empty for all.
        dependencies: What must be present where the tool runs.
        requires_confirmation: Whether each call needs approval, or the question for the person who approves; it may
            contain expressions over `args`.
        estimate: Expected use of one call.
        metadata: Arbitrary data, which toolcrib stores and shows but never interprets.
        fixture: Initial contents of its mock's store, those of its pack or project.
        faults: Faults that a scenario injects; the first that is due applies.
        offline: Place of the scenario (`file:line`) that does not permit its calls to reach the network; empty if they may.
        origin: Where the descriptor comes from.
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
    capabilities: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    dependencies: Dependencies = NO_DEPENDENCIES
    requires_confirmation: bool | str = False
    estimate: Estimate = NO_ESTIMATE
    deprecated: bool | str = False
    experimental: bool = False
    metadata: Mapping[str, JSON] = NOTHING
    fixture: Fixture = NO_FIXTURE
    faults: tuple[InjectedFault, ...] = ()
    offline: str = ""
    origin: Origin = Origin()

    def __repr__(self) -> str:
        """Return one line: `Descriptor('get_forecast', mode='mock', arguments=['city', 'days'], ...)`."""
        properties = self.input_schema.get("properties") if isinstance(self.input_schema, dict) else None
        arguments = list(properties) if isinstance(properties, dict) else []
        place = f"{self.origin.source}:{self.origin.line}"
        return f"Descriptor({self.name!r}, mode={self.mode!r}, arguments={arguments!r}, origin={place!r})"


Client: TypeAlias = "Callable[[ClientCall], Awaitable[JSON | Result]]"
"""A coroutine function that fulfils calls of tools in mode `client`. It returns a JSON value or a Result."""


Approver: TypeAlias = "Callable[[Pending], Awaitable[Answer | Mapping[str, Any] | None]]"
"""A coroutine function that asks a person about a pending call. None leaves the call pending."""


class CallContext(NamedTuple):
    """The caller of a call and the session it runs in. All calls of one session and caller share it.

    Attributes:
        session: Mock state, counters, clock and seed.
        correlation: ID that links calls across systems; for a call in a conversation, its ID there.
        user: User on whose behalf the call is made.
        caller: Agent, interface or program that makes the call.
        grants: Permissions granted to these calls.
        trace: Trace headers to propagate (W3C Trace Context).
        passthrough: Whether a mock may pass these calls on to another mode of its tool.
        emit: Receives progress and partial content before the result.
        client: Fulfils calls of tools in mode `client`; None if the caller has no client.
        can_wait: Whether layers may await; False if the call is made without an event loop.
        services: The services of the runtime for Python tools; None for all other callees.
        approver: Asks a person in place if a call needs approval; None if nobody can be asked.
        annotate: Adds attributes to the span of the call, such as `server.address`; does nothing without a span.
        idempotency_key: A repeated call with the same key gets the result of the first one; empty for none.
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
    services: ToolServices | None = None
    approver: Approver | None = None
    annotate: Callable[[Mapping[str, str | int]], None] = lambda _attributes: None
    idempotency_key: str = ""

    @property
    def http(self) -> httpx.AsyncClient:
        """An HTTP client for an asynchronous Python tool, over connections that the egress guard opens.

        Every access returns a new client, without cookies; the connections are shared.

        Raises:
            ConfigurationError: The call has no services: the context is not the one that a Python tool received, or
                the tool runs in a worker process.
        """
        return self._services.http

    @property
    def http_sync(self) -> httpx.Client:
        """As `http`, for a synchronous Python tool in a thread.

        Raises:
            ConfigurationError: As for `http`; or the call runs in the event loop.
        """
        return self._services.http_sync

    async def connect(self, host: str, port: int) -> socket:
        """Open a connection through the egress guard.

        Returns:
            A connected, non-blocking socket.

        Raises:
            EgressRefused: The address is not permitted.
            UnreachableHost: The host cannot be resolved or reached.
            ConfigurationError: As for `http`.
        """
        return await self._services.connect(host, port)

    def secret(self, name: str) -> str:
        """Look up a secret. Its value is masked in results, errors and logs from then on.

        Args:
            name: An environment variable, `file:/path` or `keyring:service/user`.

        Raises:
            MissingSecret: There is none. Unless the tool catches it, the call ends `unavailable`.
            ConfigurationError: The name is invalid, or the call has no services.
        """
        return self._services.secret(name)

    @property
    def _services(self) -> ToolServices:
        if self.services is None:
            raise ConfigurationError(
                "this context has no network services",
                code="no_network_services",
                hint="use the context that a Python tool receives in its call",
            )
        return self.services


class StaleAnswer(NamedTuple):
    """A cached result that must be revalidated before it is used (RFC 9111, section 4.3).

    Attributes:
        result: The cached result.
        validators: Request headers for the revalidation: `If-None-Match`, `If-Modified-Since`.
    """

    result: Result
    validators: Mapping[str, str] = NOTHING


class Call(NamedTuple):
    """One call of a tool. A layer that changes the call passes a modified copy on.

    Attributes:
        tool: Descriptor of the tool.
        arguments: The caller's arguments; after the layer `arguments`, with defaults and repairs.
        context: The caller and its session.
        id: Unique ID within the runtime.
        attempt: Number of the attempt, from 1.
        deadline: Time on the session's clock at which the call times out, in seconds; None for no deadline.
        kept: Cached result to revalidate, if any.
    """

    tool: Descriptor
    arguments: dict[str, JSON]
    context: CallContext
    id: str = ""
    attempt: int = 1
    deadline: float | None = None
    kept: StaleAnswer | None = None

    def __repr__(self) -> str:
        # Only the names of the arguments: events are logged, and arguments may hold secrets.
        names = ", ".join(self.arguments)
        return f"Call({self.tool.name}({names}), id={self.id!r}, attempt={self.attempt})"

    def emit(self, update: Progress | Partial) -> None:
        """Report progress, or a part of the result, before the call has ended.

        Those who stream or observe the call receive it, and `Runtime.running` lists the last progress.
        """
        entry = self.context.session.in_progress(self.id)
        if entry is not None and isinstance(update, Progress):
            entry.progress = update
        self.context.emit(update)

    # These two run on many calls: 0.25 us instead of 0.6 us with `_replace`.
    def with_arguments(self, arguments: dict[str, JSON]) -> Call:
        """Return a copy of the call with other arguments."""
        tool, _arguments, context, number, attempt, deadline, kept = self
        return tuple.__new__(Call, (tool, arguments, context, number, attempt, deadline, kept))

    def with_deadline(self, deadline: float) -> Call:
        """Return a copy of the call with a deadline."""
        tool, arguments, context, number, attempt, _deadline, kept = self
        return tuple.__new__(Call, (tool, arguments, context, number, attempt, deadline, kept))
