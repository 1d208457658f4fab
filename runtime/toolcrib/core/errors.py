"""Every error that toolcrib raises, and the problems for which it refuses a document.

ToolcribError                   code, hint; never raised itself
├── DocumentError               .problems: everything wrong with the documents that were read
├── ExpressionError             an expression or template failed (.pointer says where in its document)
├── NotReady                    what a tool needs is not there now: a secret, an extra
│   ├── ServerDown              an MCP server can't be started or reached
├── ConfigurationError          how the runtime is used is wrong
│   ├── UnknownMode             a mode that is neither installed nor written anywhere
│   └── ClosedRuntime           a call after the runtime was closed
└── CallError                   .result: one class for each outcome but `ok`
    ├── ToolFailed              tool_error
    ├── InvalidArguments        invalid_arguments
    ├── InvalidResult           invalid_result
    ├── ToolNotFound            not_found
    ├── ToolUnavailable         unavailable
    ├── CallDenied              denied
    ├── ApprovalNeeded          needs_approval
    ├── CallTimeout             timeout
    ├── CallCancelled           cancelled
    ├── Overloaded              overloaded
    ├── LimitExceeded           limit_exceeded
    ├── TransportError          transport_error
    ├── UnknownOutcome          unknown_outcome
    ├── UnmatchedMock           unmatched_mock
    └── InternalError           internal
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from toolcrib.core.model import JSON, Result

Severity = Literal["error", "warning", "notice"]


class Problem(NamedTuple):
    """One diagnosed fault of a document.

    Attributes:
        code: Stable name of the kind of fault, e.g. `unknown_key`.
        message: What is wrong, with the value seen.
        pointer: JSON Pointer (RFC 6901) of the place within its document; empty for the whole.
        hint: The way out, where there is one.
        severity: `error` keeps the document out; `warning` and `notice` do not.
        source: The file, as it was named; empty until the problem is placed in its document.
        line: 1-based; 0 where unknown.
        column: 1-based; 0 where unknown.
    """

    code: str
    message: str
    pointer: str = ""
    hint: str = ""
    severity: Severity = "error"
    source: str = ""
    line: int = 0
    column: int = 0

    def at(self, source: str, line: int, column: int) -> Problem:
        """The same problem, placed in a file."""
        return self._replace(source=source, line=line, column=column)

    def __str__(self) -> str:
        place = self.source
        if self.line:
            place += f":{self.line}:{self.column}"
        where = f" (at {self.pointer})" if self.pointer else ""
        kind = "" if self.severity == "error" else f"{self.severity}: "
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{place + ': ' if place else ''}{kind}{self.code}: {self.message}{where}{hint}"


def near_misses(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names that a misspelt name may have meant, nearest first."""
    import difflib  # noqa: PLC0415 -- most commands meet no misspelt name

    folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.casefold(), folded, n=most, cutoff=0.6)
    return [folded[match] for match in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the near misses, or the empty text where nothing is near."""
    close = near_misses(name, known)
    return f"did you mean {' or '.join(f'`{match}`' for match in close)}?" if close else ""


class ToolcribError(Exception):
    """The root of the tree.

    Attributes:
        code: Stable name of the fault.
        hint: The way out, where there is one.
    """

    code: str = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n    hint: {self.hint}" if self.hint else self.message


class DocumentError(ToolcribError):
    """Documents were refused. `problems` holds everything that is wrong with them."""

    code = "invalid_document"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        many = len(self.problems)
        listing = "\n".join(str(problem) for problem in self.problems)
        super().__init__(f"{many} problem{'s' if many != 1 else ''}:\n{listing}")


class ExpressionError(ToolcribError):
    """An expression or template can't be read, or failed while it was worked out.

    Attributes:
        pointer: JSON Pointer of the text within the structure that holds it.
    """

    code = "expression_failed"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "", pointer: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.pointer = pointer

    def under(self, pointer: str) -> ExpressionError:
        """The same error, seen from a structure that holds this one at `pointer`."""
        return ExpressionError(self.message, code=self.code, hint=self.hint, pointer=pointer + self.pointer)

    def problem(self, pointer: str, *, hint: str = "") -> Problem:
        """The error as a problem of the document whose text stands at `pointer`; `hint` where it has none itself."""
        return Problem(code=self.code, message=self.message, pointer=pointer, hint=self.hint or hint)


class NotReady(ToolcribError):
    """A mode can't bind a tool now: a secret or an extra that it needs is not there. The next call tries again.

    Attributes:
        denied: Whether it may not be bound.
    """

    code = "not_ready"
    denied = False


class ServerDown(NotReady):
    """An MCP server can't be started or reached now, or may not be."""

    code = "server_down"


class ConfigurationError(ToolcribError):
    """How the runtime is set up or used is wrong."""

    code = "invalid_configuration"


class UnknownMode(ConfigurationError):
    """A mode was asked for that is neither installed nor written in any descriptor."""

    code = "unknown_mode"


class ClosedRuntime(ConfigurationError):
    """A call was made after the runtime was closed."""

    code = "closed_runtime"


class CallError(ToolcribError):
    """A call did not end `ok`. Raised by `Result.raise_for_outcome()` alone.

    Attributes:
        outcome: The outcome that this class stands for.
        result: The whole result of the call.
    """

    outcome: ClassVar[str] = ""

    def __init__(self, result: Result) -> None:
        self.result = result
        code = result.error.code if result.error is not None else self.outcome
        super().__init__(result.message, code=code)


class ToolFailed(CallError):
    """The tool answered that it failed."""

    outcome = "tool_error"


class InvalidArguments(CallError):
    """The arguments do not fit the tool's input schema."""

    outcome = "invalid_arguments"


class InvalidResult(CallError):
    """The tool's answer does not fit its output schema."""

    outcome = "invalid_result"


class ToolNotFound(CallError):
    """No tool has this name."""

    outcome = "not_found"


class ToolUnavailable(CallError):
    """The tool is known, and it was clear before any attempt that it can't run here."""

    outcome = "unavailable"


class CallDenied(CallError):
    """Policy, permission or egress said no."""

    outcome = "denied"


class ApprovalNeeded(CallError):
    """The call waits for somebody's approval."""

    outcome = "needs_approval"


class CallTimeout(CallError):
    """The deadline passed."""

    outcome = "timeout"


class CallCancelled(CallError):
    """The caller gave up."""

    outcome = "cancelled"


class Overloaded(CallError):
    """A queue is full or a circuit is open."""

    outcome = "overloaded"


class LimitExceeded(CallError):
    """A limit of size, cost, calls or rate was reached."""

    outcome = "limit_exceeded"


class TransportError(CallError):
    """An attempt was made and failed on the way."""

    outcome = "transport_error"


class UnknownOutcome(CallError):
    """The connection broke after a non-idempotent request was sent: it may have acted."""

    outcome = "unknown_outcome"


class UnmatchedMock(CallError):
    """A strict mock had no reply for this call."""

    outcome = "unmatched_mock"


class InternalError(CallError):
    """A bug: toolcrib's own, or of the mock (then with its file and line)."""

    outcome = "internal"


def error_for(outcome: str) -> type[CallError]:
    """The error class of an outcome; KeyError for `ok`, which has none."""
    return {cls.outcome: cls for cls in CallError.__subclasses__()}[outcome]


class CallProgress(NamedTuple):
    """How far a call had progressed when it was cancelled, attached to the exception for outer layers.

    Attributes:
        attempts: How often the runtime had tried.
        queue: The tool or origin in whose queue the call was; empty for none.
        reached: Whether the tool may have been reached.
        meta: What to report beside the result.
    """

    attempts: int = 1
    queue: str = ""
    reached: bool = True
    meta: Mapping[str, JSON] = MappingProxyType({})


def attach_progress(
    error: BaseException,
    *,
    attempts: int,
    queue: str = "",
    reached: bool = True,
    meta: Mapping[str, JSON] = MappingProxyType({}),
) -> None:
    """Attach to an error how far the call was that it ends; without `meta`, an earlier `meta` stays."""
    error.__dict__["toolcrib_progress"] = CallProgress(
        attempts, queue, reached, meta or progress_of(error).meta
    )


def progress_of(error: BaseException | None) -> CallProgress:
    """How far the call was that an error ended."""
    progress = None if error is None else error.__dict__.get("toolcrib_progress")
    return progress if isinstance(progress, CallProgress) else CallProgress()
