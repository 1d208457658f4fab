"""Failures of calls to MCP tools, and the results they become. This module works without the extra `mcp`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import ServerDown, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Content, Outcome, Result
from toolcrib.core.server_config import Server
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact, escape_terminal, truncate
from toolcrib.servers.mcp.transports import LinkTrouble

# Server text is part of error messages, which are sent to a model.
MOST_TOLD: Final = 4096
"""Maximum size of server text in a message, in bytes."""

CONNECTION_CLOSED: Final = -32000
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020

_CODES: Final[Mapping[int, str]] = {
    -32700: "mcp_parse_error",
    -32600: "mcp_invalid_request",
    METHOD_NOT_FOUND: "mcp_method_not_found",
    INVALID_PARAMS: "mcp_invalid_params",
    -32603: "mcp_internal_error",
}
"""JSON-RPC error number -> error code (JSON-RPC 2.0, section 5.1); any other number is `mcp_error`."""

_WRAPPED: Final = re.compile(r"(?:MCP error|McpError:?)\s*(-\d{5})\s*:\s*", re.IGNORECASE)
"""Prefix of a protocol error in the text of a result, from the TypeScript SDK and the first Python SDK."""

# `{0,200}` bounds the search: with `.*`, a long text of the server would take quadratic time.
_UNKNOWN: Final = re.compile(
    r"(unknown|no such|unrecognized) tool|tool .{0,200}(not found|does not exist|is not known)|no tool named",
    re.IGNORECASE | re.DOTALL,
)


class ServerUnavailable(ServerDown):
    """A server cannot be used for a call. Nothing of the call has reached it.

    Attributes:
        outcome: The outcome of the call.
        details: The error details of the result.
        retryable: Whether the call may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str = "",
        outcome: Outcome = Outcome.UNAVAILABLE,
        details: Mapping[str, JSON] = NOTHING,
        retryable: bool = True,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.outcome = outcome
        self.denied = outcome is Outcome.DENIED
        self.details = details
        self.retryable = retryable

    def again(self) -> ServerUnavailable:
        """Return a copy to raise for another call."""
        return ServerUnavailable(
            self.message,
            code=self.code,
            hint=self.hint,
            outcome=self.outcome,
            details=self.details,
            retryable=self.retryable,
        )

    @property
    def result(self) -> Result:
        """The result of a call to this server."""
        return Result.failure(
            self.outcome,
            _with_hint(self.message, self.hint),
            code=self.code,
            details=self.details,
            retryable=self.retryable,
        )


class ProtocolError(Exception):
    """A server responded to a call with a JSON-RPC error.

    Attributes:
        number: The `code` of the error (JSON-RPC 2.0, section 5.1).
        message: The message of the server.
        data: The `data` of the error; None if absent.
    """

    def __init__(self, number: int, message: str, data: JSON = None) -> None:
        super().__init__(message)
        self.number = number
        self.message = message
        self.data = data


class ConnectionLoss(Exception):
    """The connection of a call broke, so no response can arrive.

    Attributes:
        why: What happened, in words that follow "the server"; empty if unknown.
        begun: Whether the call may have reached the server.
        trouble: The reason that the link recorded; None if it recorded none.
    """

    def __init__(self, why: str, *, begun: bool, trouble: LinkTrouble | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.begun = begun
        self.trouble = trouble


class IdleTimeout(Exception):
    """A server sent nothing for a call for longer than its idle timeout."""


class InvalidAnswer(Exception):
    """A response violates the protocol.

    Attributes:
        message: The fault of the response.
        raw: The response.
    """

    def __init__(self, message: str, raw: JSON = None) -> None:
        super().__init__(message)
        self.message = message
        self.raw = raw


class CallTarget(NamedTuple):
    """The called tool, as failures describe it.

    Attributes:
        server: The server of the tool.
        tool: The server's name for the tool.
        name: The name of the tool in the project.
        repeatable: Whether a second call has no further effect.
    """

    server: Server
    tool: str
    name: str
    repeatable: bool


def clean_text(text: str) -> str:
    """Escape control characters in a server text, and truncate it to `MOST_TOLD` bytes."""
    return truncate(escape_terminal(text.strip()), MOST_TOLD)


def split_error_number(text: str) -> tuple[int | None, str]:
    """Split a text into the number of the protocol error at its start, if any, and the rest."""
    found = _WRAPPED.match(text)
    return (None, text) if found is None else (int(found[1]), text[found.end() :])


def says_unknown_tool(text: str, tool: str) -> bool:
    """Whether a text reports that a tool of this name does not exist."""
    # The number -32602 also means invalid arguments, so only the text identifies an unknown tool (2025-11-25,
    # tools, error handling). The name must occur, because a tool may fail with similar words.
    return tool in text and _UNKNOWN.search(text) is not None


def result_of_lost_connection(target: CallTarget, error: ConnectionLoss) -> Result:
    """The result of a call whose connection broke."""
    trouble = error.trouble
    code = "" if trouble is None else trouble.code
    if trouble is not None and code == "protocol_violation":
        return result_of_invalid_answer(target, trouble.message)
    acted = error.begun and not target.repeatable and code not in _UNTOUCHED
    outcome = _outcome_of(code, begun=error.begun, acted=acted)
    message = _broken_message(target, error)
    if acted and outcome is Outcome.UNKNOWN_OUTCOME:
        message += "; the call was sent, so it may have acted"
    lasting = acted or code in _LASTING or outcome is Outcome.LIMIT_EXCEEDED
    return Result.failure(
        outcome,
        message,
        code=code or ("server_down" if outcome is Outcome.UNAVAILABLE else None),
        details={"may_have_acted": True} if acted else {},
        retryable=not lasting,
    )


_OVERSIZED: Final = frozenset({"too_large", "response_too_large"})
_TOO_LARGE: Final = _OVERSIZED | {"headers_too_large"}
_UNIDENTIFIED: Final = "unidentified_response"
"""The code of each call that an oversized response may belong to, if its request is unknown."""

_FORBIDDEN: Final = frozenset({"host_not_named", "address_refused", "bad_address"})
_UNPROVEN: Final = frozenset({"unauthorized", "auth_failed"})
_UNTOUCHED: Final = _FORBIDDEN | _UNPROVEN | {"session_over"}
"""Codes of calls that had no effect although they were sent: the request was refused before the tool ran."""

_LASTING: Final = _FORBIDDEN | _UNPROVEN | {"bad_request", "tls_failed"}
"""Codes of failures that a repeated call would meet again."""


def _outcome_of(code: str, *, begun: bool, acted: bool) -> Outcome:
    if code in _TOO_LARGE:
        return Outcome.LIMIT_EXCEEDED
    if code in _FORBIDDEN:
        return Outcome.DENIED
    if code in _UNPROVEN:
        return Outcome.TOOL_ERROR
    if not begun:
        return Outcome.UNAVAILABLE
    if code == "read_timeout":
        return Outcome.TIMEOUT
    if code == _UNIDENTIFIED:
        return Outcome.UNKNOWN_OUTCOME
    return Outcome.UNKNOWN_OUTCOME if acted else Outcome.TRANSPORT_ERROR


def _broken_message(target: CallTarget, error: ConnectionLoss) -> str:
    name, trouble = target.name, error.trouble
    server = f"{target.server.kind} `{target.server.name}`"
    if trouble is not None:
        limited = trouble.code in _OVERSIZED or trouble.code == _UNIDENTIFIED
        hint = "request less data, or raise `limits.output_size`" if limited else trouble.hint
        return _with_hint(f"`{name}` ({server}): {trouble.message}", hint)
    return f"`{name}`: the {server} {error.why or 'closed the connection'}"


def result_of_silence(target: CallTarget) -> Result:
    """The result of a call that was cancelled at the idle timeout."""
    time = format_duration(target.server.idle_timeout)
    acted = not target.repeatable
    return Result.failure(
        Outcome.TIMEOUT,
        f"`{target.name}`: the {target.server.kind} `{target.server.name}` sent nothing for {time}; the call was cancelled",
        code="idle_timeout",
        details={"timeout": time, **({"may_have_acted": True} if acted else {})},
        retryable=not acted,
    )


def result_of_invalid_answer(target: CallTarget, why: str, raw: JSON = None) -> Result:
    """The result of a call whose response violates the protocol."""
    # A response, even an invalid one, shows that the server received the call, so the tool may have run.
    return Result.failure(
        Outcome.INVALID_RESULT,
        f"`{target.name}`: the {target.server.kind} `{target.server.name}` violated the protocol: {why}",
        code="protocol_violation",
        details={} if target.repeatable else {"may_have_acted": True},
        raw_value=raw,
    )


def result_of_protocol_error(target: CallTarget, error: ProtocolError, known: Iterable[str]) -> Result:
    """The result of a call that the server answered with a JSON-RPC error.

    Args:
        target: The called tool.
        error: The error.
        known: The names that the server has listed, for suggestions.
    """
    if error.number in {INVALID_PARAMS, METHOD_NOT_FOUND} and says_unknown_tool(error.message, target.tool):
        return result_of_unknown_tool(target, known)
    details: dict[str, JSON] = {"number": error.number}
    if error.data is not None and _is_small(error.data):
        details["data"] = error.data
    message = clean_text(error.message) or "the server gave no reason"
    return Result.failure(
        Outcome.TOOL_ERROR, message, code=_CODES.get(error.number, "mcp_error"), details=details
    )


def result_of_tool_error(text: str, content: tuple[Content, ...] = (), structured: JSON = None) -> Result:
    """The result of a call whose tool reported a failure.

    Args:
        text: The text of the failure.
        content: All parts of the response. Text parts are dropped if the message contains them completely.
        structured: The structured content; None if absent.
    """
    number, rest = split_error_number(text)
    # A model reads the message and the content: the same text twice costs tokens.
    if len(rest.encode()) <= MOST_TOLD:
        content = tuple(part for part in content if part.type != "text")
    details: dict[str, JSON] = {} if number is None else {"number": number}
    if structured is not None:
        details["structured"] = structured
    return Result.failure(
        Outcome.TOOL_ERROR,
        clean_text(rest) or "the tool failed without giving a reason",
        code=None if number is None else _CODES.get(number, "mcp_error"),
        details=details,
        content=content,
        raw_value=structured,
    )


def result_of_unknown_tool(target: CallTarget, known: Iterable[str]) -> Result:
    """The result of a call to a tool that the server does not have."""
    near = did_you_mean(target.tool, known)
    message = f"the {target.server.kind} `{target.server.name}` has no tool `{target.tool}`"
    return Result.failure(
        Outcome.UNAVAILABLE,
        _with_hint(message, near),
        code="unknown_remote_tool",
        details={"tool": target.tool},
    )


def result_of_filtered_tool(target: CallTarget) -> Result:
    """The result of a call to a tool that `only` or `except` excludes."""
    server = target.server
    message = (
        f"the tool `{target.tool}` of the {server.kind} `{server.name}` is excluded by `only` or `except`"
    )
    place = server.place("import")
    return Result.failure(
        Outcome.DENIED,
        f"{message} ({place})" if place else message,
        code="filtered",
        details={"tool": target.tool},
    )


def result_of_changed_tool(target: CallTarget, why: str) -> Result:
    """The result of a call to a tool that the lock refuses."""
    return Result.failure(
        Outcome.DENIED,
        why,
        code="definition_changed",
        details={"server": target.server.name, "tool": target.tool},
    )


def result_of_fixed_arguments(
    target: CallTarget, fixed: Collection[str], definition: Mapping[str, Any]
) -> Result | None:
    """The result of a call whose descriptor sets arguments that the server's tool does not accept; None if it accepts all.

    Args:
        target: The called tool.
        fixed: Names of the arguments that the descriptor sets.
        definition: The definition of the tool, as the server lists it.
    """
    # Arguments that the descriptor sets are hidden from callers, so nothing else would explain the server's error.
    taken = closed_names(definition["inputSchema"]) if fixed else None
    names = [] if taken is None else [name for name in fixed if name not in taken]
    if not names:
        return None
    mode, kind = target.server.mode, target.server.kind
    faults = [_with_hint(f"`{mode}.args` sets `{name}`", did_you_mean(name, taken or ())) for name in names]
    message = f"the tool `{target.tool}` of the {kind} `{target.server.name}` has no such argument"
    return Result.failure(
        Outcome.UNAVAILABLE,
        f"`{target.name}`: {message}: {', '.join(faults)}",
        code="unknown_fixed_argument",
        details={"tool": target.tool, "arguments": [*names]},
    )


def result_of_task_only_tool(target: CallTarget) -> Result:
    """The result of a call to a tool that a server runs only as a task (MCP 2025-11-25, tasks)."""
    message = f"the tool `{target.tool}` of the server `{target.server.name}` runs only as a task, which toolcrib does not support"
    return Result.failure(Outcome.UNAVAILABLE, message, code="task_required", details={"tool": target.tool})


def append_message(result: Result, more: str) -> Result:
    """Append an explanation to the message of a failure."""
    if result.error is None:
        return result
    message = f"{result.message}; {more}"
    return result._replace(message=message, error=result.error._replace(message=message))


def _with_hint(message: str, hint: str) -> str:
    return f"{message}; {hint}" if hint else message


def _is_small(value: JSON) -> bool:
    try:
        return len(compact(value)) <= MOST_TOLD
    # The data of an error is not validated, and may contain `NaN` or a lone surrogate.
    except (TypeError, ValueError):
        return False
