"""What programs read and write: text, JSON, or the messages of PromptKit."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import DuplicateKey, compact, decode_json
from toolcrib.security.approvals import PENDING

INVALID: Final = "invalid_output"
"""Code of a result whose program wrote something else than its wire format."""

_SHOWN = 200


class Output(NamedTuple):
    """What a program wrote.

    Attributes:
        value: The value; meaningless if there is a failure.
        failure: The result of the call, if it is not `ok`.
        warning: What was changed in the value; empty for nothing.
    """

    value: JSON = None
    failure: Result | None = None
    warning: str = ""


def default_input(wire: str, arguments: dict[str, JSON], *, approved: bool = False) -> JSON:
    """What a program reads if its block says nothing; None for nothing.

    Args:
        wire: The wire format.
        arguments: The arguments of the call.
        approved: Whether a person has approved the call, for which a program of PromptKit may have asked.
    """
    if wire == "json":
        return arguments
    return {"args": arguments, **({"approved": True} if approved else {})} if wire == "promptkit" else None


def input_bytes(value: JSON) -> bytes:
    """The bytes of an input: a text as it is, any other value as JSON."""
    return (value if isinstance(value, str) else compact(value)).encode()


def read_output(wire: str, data: bytes, tool: str) -> Output:
    """Read what a program wrote to its stdout.

    Args:
        wire: The wire format.
        data: The bytes.
        tool: Name of the tool, for messages.
    """
    if wire == "text":
        try:
            return Output(data.decode())
        except UnicodeDecodeError:
            warning = f"the output of `{tool}` is not valid UTF-8; the invalid bytes were replaced"
            return Output(data.decode("utf-8", "replace"), warning=warning)
    try:
        value = decode_json(data)
    except DuplicateKey as error:
        return Output(failure=_invalid(tool, str(error), data))
    except (ValueError, RecursionError):
        why = "it is not one JSON value" if data.strip() else "it is empty, and a JSON value was expected"
        return Output(failure=_invalid(tool, why, data))
    return Output(value) if wire == "json" else _promptkit(value, tool, data)


def _promptkit(value: JSON, tool: str, data: bytes) -> Output:
    """PromptKit's answer of a tool: `result`, `error` or `pending`; another object is the result itself."""
    if not isinstance(value, dict):
        return Output(failure=_invalid(tool, "it is not an object", data))
    error = value.get("error")
    if error:
        text = error if isinstance(error, str) else compact(error)
        return Output(failure=Result.failure(Outcome.TOOL_ERROR, text, code="tool_error"))
    if isinstance(value.get("pending"), dict):
        return Output(failure=_pending(value["pending"], tool))
    result = value.get("result")
    # As PromptKit: without a result, the whole object is the result.
    return Output(value if result is None and "result" not in value else result)


def _pending(info: Any, tool: str) -> Result:
    message = info.get("message") or info.get("reason") or "no reason given"
    return Result.failure(
        Outcome.NEEDS_APPROVAL,
        f"`{tool}` reports that the call is pending: {message}",
        code=PENDING,
        details={"pending": info},
    )


def request_line(wire: str, number: int, value: JSON) -> bytes:
    """The line that asks a program that stays running.

    Raises:
        ValueError: The input is a text of several lines.
    """
    if wire == "promptkit":
        value = {"jsonrpc": "2.0", "id": number, "method": "execute", "params": value}
    data = input_bytes(value)
    if b"\n" in data or b"\r" in data:
        raise ValueError
    return data + b"\n"


def read_response(line: bytes) -> tuple[int | None, dict[str, JSON] | None]:
    """The number of the request that a line of JSON-RPC answers, and the response; None if it is none."""
    try:
        value = decode_json(line)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(value, dict) or ("result" not in value and "error" not in value):
        return None, None
    number = value.get("id")
    known = isinstance(number, int) and not isinstance(number, bool)
    return (number if known else None), value  # type: ignore[return-value]


def output_of_response(response: dict[str, JSON], tool: str) -> Output:
    """What a response of JSON-RPC says."""
    error = response.get("error")
    if isinstance(error, dict):
        message = error.get("message")
        code = error.get("code")
        details: dict[str, JSON] = {"code": code} if isinstance(code, int) else {}
        text = message if isinstance(message, str) and message else compact(error)
        return Output(
            failure=Result.failure(Outcome.TOOL_ERROR, text, code="json_rpc_error", details=details)
        )
    result = response.get("result")
    # A server may answer in the form of a program that runs once.
    if isinstance(result, dict) and isinstance(result.get("pending"), dict) and len(result) == 1:
        return Output(failure=_pending(result["pending"], tool))
    return Output(result)


def _invalid(tool: str, why: str, data: bytes) -> Result:
    text = data[:_SHOWN].decode("utf-8", "replace")
    return Result.failure(
        Outcome.INVALID_RESULT,
        f"the output of `{tool}` cannot be read: {why}",
        code=INVALID,
        raw_value=text,
    )
