"""Every error that toolcrib raises, and the problems that it reports in documents.

ToolcribError                   code, hint; the base class, never raised itself
├── DocumentError               .problems: every problem in the documents that were read
├── ExpressionError             an expression or template failed (.pointer locates it in its document)
├── NotReady                    a tool cannot be bound yet: a secret or an extra is missing
│   ├── ServerDown              an MCP server cannot be started or reached
│   ├── NetworkRefused          a scenario does not permit network access
├── ConfigurationError          the runtime is set up or used incorrectly
│   ├── UnknownMode             a mode that is neither installed nor used in a descriptor
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

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from toolcrib.core.model import Result

Severity = Literal["error", "warning", "notice"]


class Problem(NamedTuple):
    """One diagnosed fault of a document.

    Attributes:
        code: Stable problem code, for example `unknown_key`.
        message: What is wrong, including the value found.
        pointer: JSON Pointer (RFC 6901) into the document; empty for the whole document.
        hint: How to fix it, if known.
        severity: An `error` rejects the document; a `warning` or `notice` does not.
        source: The file, as the caller named it; empty until `at` sets it.
        line: Line number, from 1; 0 if unknown.
        column: Column number, from 1; 0 if unknown.
        cause: `file:line` of the problem that this one follows from; empty if it has a cause of its own.
    """

    code: str
    message: str
    pointer: str = ""
    hint: str = ""
    severity: Severity = "error"
    source: str = ""
    line: int = 0
    column: int = 0
    cause: str = ""

    def at(self, source: str, line: int, column: int) -> Problem:
        """Return a copy of the problem with its file, line and column."""
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
    """Return up to `most` known names that resemble a misspelt one, closest first."""
    import difflib  # noqa: PLC0415 -- only misspelt names need it, and most commands have none

    # Compared without case, so that `GetForecast` is close to `getforecast`. Sorted in reverse, so that of two
    # names that differ only in case the same one is always suggested.
    folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.casefold(), folded, n=most, cutoff=0.6)
    return [folded[match] for match in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that suggests similar names; empty if there are none."""
    close = near_misses(name, known)
    return f"did you mean {' or '.join(f'`{match}`' for match in close)}?" if close else ""


class ToolcribError(Exception):
    """Base class of all errors that toolcrib raises.

    Attributes:
        code: Stable error code.
        message: What went wrong.
        hint: How to fix it, if known.
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
    """One or more documents are invalid.

    Attributes:
        problems: Every problem found, not only the first.
    """

    code = "invalid_document"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        many = len(self.problems)
        listing = "\n".join(str(problem) for problem in self.problems)
        super().__init__(f"{many} problem{'s' if many != 1 else ''}:\n{listing}")


class ExpressionError(ToolcribError):
    """An expression or template is invalid, or its evaluation failed.

    Attributes:
        pointer: JSON Pointer of the expression within the structure that contains it.
    """

    code = "expression_failed"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "", pointer: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.pointer = pointer

    def under(self, pointer: str) -> ExpressionError:
        """Return the same error, with its pointer relative to an outer structure.

        Args:
            pointer: Where the outer structure contains this one.
        """
        return ExpressionError(self.message, code=self.code, hint=self.hint, pointer=pointer + self.pointer)

    def problem(self, pointer: str, *, hint: str = "") -> Problem:
        """Return the error as a problem of a document.

        Args:
            pointer: Where the document contains the expression.
            hint: Used if the error has no hint of its own.
        """
        return Problem(code=self.code, message=self.message, pointer=pointer, hint=self.hint or hint)


class NotReady(ToolcribError):
    """A tool cannot be bound yet, for example because a secret or an optional package is missing.

    The call ends `unavailable`, and the next call tries to bind the tool again.

    Attributes:
        denied: Whether the binding is forbidden, so that the call ends `denied` instead.
    """

    code = "not_ready"
    denied = False


class ServerDown(NotReady):
    """An MCP server cannot be started or reached, or policy forbids it."""

    code = "server_down"


class NetworkRefused(NotReady):
    """A tool would reach the network in a scenario that does not permit it."""

    code = "network_refused"
    denied = True

    def __init__(self, tool: str, mode: str | None, place: str) -> None:
        """Say what would have happened, and how to permit it.

        Args:
            tool: Name of the tool.
            mode: Its mode.
            place: Place of the scenario, as `file:line`.
        """
        super().__init__(
            f"`{tool}` would reach the network in mode `{mode}`, and the scenario at {place} does not permit that",
            hint=f"add a mock, write `modes: {{{tool}: {mode}}}` in the scenario, or run with `--allow-live`",
        )


class ConfigurationError(ToolcribError):
    """The runtime is set up or used incorrectly."""

    code = "invalid_configuration"


class UnknownMode(ConfigurationError):
    """The requested mode is neither installed nor used in any descriptor."""

    code = "unknown_mode"


class ClosedRuntime(ConfigurationError):
    """A call was made after the runtime was closed."""

    code = "closed_runtime"


class CallError(ToolcribError):
    """A call did not end `ok`. Only `Result.raise_for_outcome()` raises it.

    Attributes:
        outcome: The outcome that the class represents.
        result: The complete result of the call.
    """

    # A plain string: `Outcome` is defined in `model`, which imports this module.
    outcome: ClassVar[str] = ""

    def __init__(self, result: Result) -> None:
        self.result = result
        # A tool can report a more specific code than its outcome, such as `city_unknown`.
        code = result.error.code if result.error is not None else self.outcome
        super().__init__(result.message, code=code)


class ToolFailed(CallError):
    """The tool reported an error."""

    outcome = "tool_error"


class InvalidArguments(CallError):
    """The arguments do not match the input schema."""

    outcome = "invalid_arguments"


class InvalidResult(CallError):
    """The tool's result does not match the output schema."""

    outcome = "invalid_result"


class ToolNotFound(CallError):
    """The registry has no tool with this name."""

    outcome = "not_found"


class ToolUnavailable(CallError):
    """The tool exists but cannot run here; no attempt was made."""

    outcome = "unavailable"


class CallDenied(CallError):
    """Policy, permissions or egress rules refused the call."""

    outcome = "denied"


class ApprovalNeeded(CallError):
    """The call is waiting for approval."""

    outcome = "needs_approval"


class CallTimeout(CallError):
    """The call did not finish before its deadline."""

    outcome = "timeout"


class CallCancelled(CallError):
    """The call was cancelled before it finished."""

    outcome = "cancelled"


class Overloaded(CallError):
    """The queue is full or the circuit breaker is open."""

    outcome = "overloaded"


class LimitExceeded(CallError):
    """The call exceeds a limit on size, cost, number of calls or rate."""

    outcome = "limit_exceeded"


class TransportError(CallError):
    """An attempt failed at the connection or protocol level."""

    outcome = "transport_error"


class UnknownOutcome(CallError):
    """A request that may have taken effect got no usable response: the connection or the server broke, or the response could not be matched."""

    outcome = "unknown_outcome"


class UnmatchedMock(CallError):
    """A strict mock has no reply for the call."""

    outcome = "unmatched_mock"


class InternalError(CallError):
    """A bug in toolcrib or in a mock; for a mock, the message includes the file and line."""

    outcome = "internal"


def error_for(outcome: str) -> type[CallError]:
    """Return the error class of an outcome.

    Raises:
        KeyError: The outcome is `ok`, or unknown.
    """
    # Derived from the classes, so that a new outcome needs no second entry that could be forgotten.
    return {cls.outcome: cls for cls in CallError.__subclasses__()}[outcome]
